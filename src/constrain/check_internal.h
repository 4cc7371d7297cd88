/* What check.c (values) and check_schema.c (the schema itself) share. */
#ifndef SL_CONSTRAIN_CHECK_INTERNAL_H
#define SL_CONSTRAIN_CHECK_INTERNAL_H

#include "constrain/check.h"
#include "constrain/compile_internal.h"

/* What the value of a keyword has to be. */
typedef enum sl__check_kind {
    SL__IS_VALUE,
    SL__IS_VALUES,
    SL__IS_TYPES,
    SL__IS_FLAG,
    SL__IS_COUNT,
    SL__IS_NUMBER,
    SL__IS_BOUND, /* a number; of older drafts true or false, which speaks of the other bound */
    SL__IS_DIVISOR,
    SL__IS_PATTERN,
    SL__IS_NAMES, /* of draft 3 true or false, which means nothing here */
    SL__IS_NAMES_MAP,
    SL__IS_DEPENDENCIES, /* each a list of names or a schema */
    SL__IS_SCHEMA,
    SL__IS_ITEMS, /* a schema; of older drafts a list of them */
    SL__IS_SCHEMAS,
    SL__IS_SCHEMA_MAP,
    SL__IS_PATTERN_MAP,
    SL__IS_REFERENCE,
    SL__IS_ID,
    SL__IS_DEFINITIONS, /* schemas that matter where a reference leads to them */
    SL__IS_REFUSED,
    SL__IS_TRUE_OR_REFUSED,
} sl__check_kind;

typedef struct sl__checker sl__checker;

/* A keyword. Sources: JSON Schema core and validation, draft 2020-12. */
typedef struct sl__check_row {
    const char *name;
    uint8_t kind;
    uint8_t types; /* SL__T_*: values of others always fit */
    bool here;     /* its schemas apply to the value itself, not to what is in it */
    /* Whether value fits, as sl__eval(). NULL: another keyword looks at this one. */
    sl_status (*check)(sl__checker *k, const sl_json *schema, const sl_json *member,
                       const sl_json *value);
} sl__check_row;

/* The row of a schema's member, NULL for annotations. */
const sl__check_row *sl__check_row_of(const sl_json *member);

/* What is known of a node of the schema: a schema that was looked at, a pattern, or (a member of
 * patternProperties) both. */
typedef struct sl__check_known {
    const sl_json *node;   /* NULL: an empty place of the table */
    const sl_json *target; /* of its $ref */
    const sl__dfa *dfa;    /* of its pattern: bodies of strings in canonical spelling */
    bool schema, open;     /* it was looked at as a schema; it is on the way that led here */
} sl__check_known;

struct sl__checker {
    sl__compiler c; /* root: the schema; scratch: the caller's */
    sl__check_known *known;
    uint32_t n_known, n_table;
    sl__vector todo; /* schemas to look at */

    const sl_json *instance;
    uint32_t depth; /* of schemas within schemas */
    uint32_t level; /* of the value in the instance */
    uint32_t quiet; /* above 0: no messages are made */
    uint32_t rank;  /* of the last misfit: how close the value was */
};

/* Count work. SL_ERR_UNSUPPORTED above SL_SCHEMA_CHECK_STEPS_MAX. */
SL_MUST_USE sl_status sl__check_spend(sl__checker *k, uint64_t steps);
/* Look at all schemas that can be reached from the root. */
SL_MUST_USE sl_status sl__check_prepare(sl__checker *k);
/* NULL: nothing is known. */
sl__check_known *sl__check_find(const sl__checker *k, const sl_json *node);
/* The first number of the value that is too long to be compared, or NULL. Recursion as deep as the
 * value, which the JSON reader has bounded. */
const sl_json *sl__check_long_number(const sl_json *value);

#endif
