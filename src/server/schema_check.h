/* Does a JSON value fit a JSON schema? For arguments of tool calls that were generated freely: what src/constrain
 * generates fits by construction, but it knows only its own spelling of a value.
 *
 * JSON Schema 2020-12 as far as values are judged: true and false, type, enum, const, properties, required,
 * additionalProperties, propertyNames, minProperties, maxProperties, dependentRequired, items, prefixItems, minItems,
 * maxItems, uniqueItems, contains, minContains, maxContains, minLength, maxLength, minimum, maximum, exclusiveMinimum,
 * exclusiveMaximum, multipleOf, allOf, anyOf, oneOf, not, if, then, else, $ref within the schema ("#", "#/$defs/x").
 * Of older drafts: definitions, items as an array with additionalItems, exclusiveMinimum and -Maximum as booleans.
 *
 * pattern, patternProperties, unevaluatedItems and unevaluatedProperties are not looked at, and neither is format, as
 * the standard has it: a value is never refused for them, and one that only they forbid is taken. (Where there are
 * patternProperties, additionalProperties is not looked at either.) */
#ifndef SL_SERVER_SCHEMA_CHECK_H
#define SL_SERVER_SCHEMA_CHECK_H

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

/* Pure; any thread. Bounded: depth 128 of schema and value together, a million steps. Errors:
 *   SL_ERR_ARGUMENT     the value does not fit; the message has its place as a JSON pointer: "/days: expected integer,
 *                       found string"
 *   SL_ERR_UNSUPPORTED  the schema cannot be applied: a reference that leads nowhere or out of it, a keyword's value of
 *                       the wrong kind, or a bound above */
SL_MUST_USE sl_status sl_schema_check(const sl_json *schema, const sl_json *value, sl_error *err);

/* The same for texts. scratch is given back. Errors also: SL_ERR_SYNTAX (no JSON), SL_ERR_MEMORY (scratch is full). */
SL_MUST_USE sl_status sl_schema_check_text(const char *schema, size_t schema_len, const char *value,
                                           size_t value_len, sl_arena *scratch, sl_error *err);

#endif
