/* Checking: whether a JSON value satisfies a JSON Schema (draft 2020-12).
 *
 * For values that nobody constrained while they were written, such as the arguments of a tool call:
 * keys in any order, any spelling. Where the constrained decoder (constrain.h) refuses a keyword that
 * it cannot enforce, most can be checked here.
 *
 * Checked: type, enum, const; properties, patternProperties, additionalProperties, propertyNames,
 * required, dependentRequired, dependentSchemas, minProperties, maxProperties; prefixItems, items,
 * contains, minContains, maxContains, minItems, maxItems, uniqueItems; minLength, maxLength (code
 * points), pattern; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf; allOf, anyOf,
 * oneOf, not, if, then, else; $ref to '#', '#/pointer' and '#anchor', $defs, definitions; true and
 * false as schemas. Of older drafts, where 2020-12 leaves no doubt: items as a list with
 * additionalItems, exclusiveMinimum and exclusiveMaximum as flags, dependencies.
 *
 * Refused with SL_ERR_UNSUPPORTED: unevaluatedItems and unevaluatedProperties (unless true),
 * $dynamicRef, $recursiveRef, references to other documents, $id anywhere but at the root, schemas that
 * refer to themselves for the same value without end, patterns that the constrained decoder does not
 * know either (looking ahead or behind, references back, word boundaries), and keywords whose value is
 * of the wrong kind. All schemas that can be reached are looked at first: whether a schema is refused
 * depends on no value, except for the limits below.
 *
 * Everything else is an annotation and ignored, as the standard says; that includes format, keywords
 * that nobody knows, and required as a flag (draft 3). $schema is not looked at: each schema is read as
 * 2020-12.
 *
 * Numbers are compared by value, exactly, as decimal fractions: 1, 1.0 and 10e-1 are one number and an
 * integer, 0.3 is a multiple of 0.1, 9007199254740993 is above 9007199254740992. Numbers have at most
 * 64 digits without leading and trailing zeros and an exponent of at most 9999: an instance with
 * another one is invalid, a schema unsupported. multipleOf has at most 18 digits. */
#ifndef SL_CONSTRAIN_CHECK_H
#define SL_CONSTRAIN_CHECK_H

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

/* Units of work, of about 5 ns each, that a check may take: a tenth of a second. Patterns are compiled
 * at each check and count too. */
#define SL_SCHEMA_CHECK_STEPS_MAX (20u * 1000 * 1000)
/* Schemas within schemas at once: one for each level of the value, and those that $ref, allOf and the
 * like apply to the same level. They take 70 KiB of stack where the compiler optimizes. */
#define SL_SCHEMA_CHECK_DEPTH_MAX 400

/* Check instance against schema; both as sl_json_parse() made them. instance NULL: only whether the
 * schema can be checked, so that it can be refused before a value is made.
 * SL_OK: valid.
 * SL_ERR_ARGUMENT: invalid. The message, one line, is "POINTER: expected WHAT, found WHAT", with the
 * JSON pointer of the first value that does not fit ('(root)': the whole). Of anyOf and oneOf it speaks
 * of the schema that the value is closest to.
 * SL_ERR_UNSUPPORTED: the schema cannot be checked: "schema: #POINTER: why". Also above the two limits.
 * SL_ERR_MEMORY: scratch is too small. It is given back. A schema takes some kilobytes, uniqueItems 64
 * bytes an item, patterns what the decoder needs to compile them: 4 MiB is ample. Nothing else is
 * allocated.
 * Any thread; one arena belongs to one at a time. */
SL_MUST_USE sl_status sl_schema_check(const sl_json *schema, const sl_json *instance,
                                      sl_arena *scratch, sl_error *why);

/* The same for texts, which are parsed into scratch: some 64 bytes a value more. Errors also:
 * SL_ERR_SYNTAX (one of them is no JSON). */
SL_MUST_USE sl_status sl_schema_check_text(const char *schema, size_t schema_len,
                                           const char *instance, size_t instance_len,
                                           sl_arena *scratch, sl_error *why);

#endif
