/* What the parts of the template interpreter share: the tree, values, and the state of a rendering.
 *
 *   template.c            the public functions; errors, steps, memory
 *   template_lex.c        text -> tokens
 *   template_parse.c      tokens -> tree; decides everything that can be decided without values
 *   template_eval.c       walks the tree: statements, scopes, calls
 *   template_value.c      what Python does with values: operators, comparison, indexing
 *   template_print.c      str(), repr(), JSON
 *   template_call.c       finding and calling what the next four list in tables
 *   template_strings.c    methods of str and filters on text
 *   template_filters.c    other filters, methods of containers
 *   template_tests.c      tests
 *   template_functions.c  global functions
 *   template_case.c       Unicode case mapping and str.isprintable(), generated tables
 *   template_utf8.c       code points, searching
 *
 * Values are immutable and live in the scratch arena (or in the template, or in the variables).
 * Three objects change after they were made, as they do in Jinja: a namespace, a loop and a
 * generator. Functions that return bool return false after an error was put into run->err. */
#ifndef SL_TEXT_TEMPLATE_INTERNAL_H
#define SL_TEXT_TEMPLATE_INTERNAL_H

#include "text/template.h"

/* ---- tree ---------------------------------------------------------------------------------- */

typedef struct tpl_callable tpl_callable;
typedef struct tpl_node tpl_node;

// What a, b and the union hold, by kind. "..." is a chain through next.
typedef enum tpl_kind {
    // Expressions.
    TPL_ABSENT, // an index of a slice that is not given
    TPL_CONST_NONE,
    TPL_CONST_BOOL,  // op: 0 or 1
    TPL_CONST_INT,   // i
    TPL_CONST_FLOAT, // f
    TPL_CONST_STR,   // text, len
    TPL_NAME,        // text, len
    TPL_LIST,        // a... elements
    TPL_TUPLE,       // a... elements
    TPL_DICT,        // a... key, value, key, value
    TPL_ATTR,        // a object; text, len
    TPL_ITEM,        // a object; b index
    TPL_SLICE,       // a object; b... start, stop, step, each maybe TPL_ABSENT
    TPL_CALL,        // a callee; b... arguments; c the next call of a name in the template
    TPL_KEYWORD,     // a value; text, len: an argument given by name
    TPL_FILTER,      // a subject; b... arguments; fn
    TPL_TEST,        // a subject; b... arguments; fn
    TPL_SUBJECT,     // the text of the block that a filter is applied to
    TPL_UNARY,       // op; a
    TPL_BINARY,      // a; b... TPL_OPERAND, applied from left to right
    TPL_CONCAT,      // a; b... TPL_OPERAND
    TPL_COMPARE,     // a; b... TPL_OPERAND
    TPL_AND,         // a; b... TPL_OPERAND
    TPL_OR,          // a; b... TPL_OPERAND
    TPL_OPERAND,     // op; a
    TPL_COND,        // a condition; b then; c else or NULL
    // Statements.
    TPL_TEXT,         // text, len
    TPL_PRINT,        // a
    TPL_IF,           // a... TPL_BRANCH
    TPL_BRANCH,       // a condition, NULL for else; b... body
    TPL_FOR,          // a target; b iterable; c TPL_LOOP
    TPL_LOOP,         // a condition or NULL; b... body; c... else
    TPL_SET,          // a target; b value
    TPL_SET_BLOCK,    // a target; b filters around TPL_SUBJECT; c... body
    TPL_FILTER_BLOCK, // b filters around TPL_SUBJECT; c... body
    TPL_MACRO,        // a... TPL_PARAM; b... body; text, len
    TPL_PARAM,        // a default or NULL; text, len
    TPL_WITH,         // a... target, value, target, value; b... body
    TPL_BREAK,
    TPL_CONTINUE,
} tpl_kind;

typedef enum tpl_op {
    TPL_OP_NONE,
    TPL_OP_NOT,
    TPL_OP_NEGATE,
    TPL_OP_PLUS,
    TPL_OP_ADD,
    TPL_OP_SUB,
    TPL_OP_MUL,
    TPL_OP_DIV,
    TPL_OP_FLOOR_DIV,
    TPL_OP_MOD,
    TPL_OP_POW,
    TPL_OP_CONCAT,
    TPL_OP_EQ,
    TPL_OP_NE,
    TPL_OP_LT,
    TPL_OP_LE,
    TPL_OP_GT,
    TPL_OP_GE,
    TPL_OP_IN,
    TPL_OP_NOT_IN,
    TPL_OP_AND,
    TPL_OP_OR,
} tpl_op;

struct tpl_node {
    uint8_t kind;
    uint8_t op;
    uint8_t height; // of the tree below, at most SL_TEMPLATE_HEIGHT_MAX
    uint32_t at;    // offset in the source, for messages
    uint32_t len;   // of text
    tpl_node *next;
    tpl_node *a, *b;
    union {
        tpl_node *c;
        const char *text;
        int64_t i;
        double f;
        const tpl_callable *fn;
    };
};

struct sl_template {
    const char *source; // newlines normalized, without the last one; for the places in messages
    tpl_node *body;
};

/* Line and column, from 1, of an offset in the source. Columns count bytes. */
void sl__tpl_place(const char *source, size_t at, unsigned *line, unsigned *column);

/* ---- values -------------------------------------------------------------------------------- */

typedef enum tpl_type {
    TPL_V_ABSENT,    // no value at all: an argument or a binding that is not set
    TPL_V_UNDEFINED, // s, len: the name that was looked up
    TPL_V_NONE,
    TPL_V_BOOL,
    TPL_V_INT,
    TPL_V_BIG_INT, // s, len: a JSON integer outside 64 bits; printed and compared, not computed with
    TPL_V_FLOAT,
    TPL_V_STR,   // s, len; valid UTF-8
    TPL_V_LIST,  // items, len
    TPL_V_TUPLE, // items, len
    TPL_V_RANGE, // range; len
    TPL_V_DICT,  // pairs, len
    TPL_V_KEYS,  // pairs, len: views of a dict
    TPL_V_VALUES,
    TPL_V_ITEMS,
    TPL_V_GENERATOR, // gen: what map(), select(), reverse() ... return; read once
    TPL_V_NAMESPACE, // scope
    TPL_V_LOOP,      // loop
    TPL_V_MACRO,     // macro
    TPL_V_FUNCTION,  // fn
    TPL_V_METHOD,    // bound; bound->fn is NULL for a method of Python's that is not in the subset
} tpl_type;

typedef struct tpl_pair tpl_pair;
typedef struct tpl_scope tpl_scope;
typedef struct tpl_loop tpl_loop;

typedef struct tpl_val {
    uint8_t type;
    bool markup; // a string that passed through safe or escape
    uint32_t len;
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        const struct tpl_val *items;
        const struct tpl_pair *pairs;
        const struct tpl_range *range;
        struct tpl_generator *gen;
        struct tpl_scope *scope;
        struct tpl_loop *loop;
        const struct tpl_closure *macro;
        const tpl_callable *fn;
        const struct tpl_bound *bound;
    };
} tpl_val;

struct tpl_pair {
    tpl_val key, val;
};

typedef struct tpl_range {
    int64_t start, stop, step;
} tpl_range;

typedef struct tpl_generator {
    const tpl_val *items;
    uint32_t len, pos;
} tpl_generator;

typedef struct tpl_bound {
    const tpl_callable *fn;
    tpl_val self;
} tpl_bound;

typedef struct tpl_closure {
    const tpl_node *node;
    tpl_scope *scope;
} tpl_closure;

typedef struct tpl_binding tpl_binding;
struct tpl_binding {
    const char *name;
    uint32_t len;
    tpl_val val; // TPL_V_ABSENT: not set (scopes are reused from one turn of a loop to the next)
    tpl_binding *next;
};

struct tpl_scope {
    tpl_scope *parent;
    tpl_binding *first;
};

/* The loop variable. Without a condition kept == items and n_kept == n. With one, items are tried
 * when they are needed: at each turn, for loop.last and loop.nextitem, and all of them for
 * loop.length, since the condition may read what the body has changed. */
struct tpl_loop {
    const tpl_val *items;
    const tpl_val *kept;
    uint32_t n, n_kept;
    uint32_t n_tried; // items that the condition has seen
    uint32_t index0;
    const tpl_node *node; // TPL_FOR
    tpl_scope *outer;     // where the condition is evaluated
};

/* ---- rendering ----------------------------------------------------------------------------- */

typedef struct tpl_piece tpl_piece;
struct tpl_piece {
    const char *s;
    size_t len;
    tpl_piece *next;
};

/* Output that becomes a value: of a macro, of a set block. Pieces point at strings that live on. */
typedef struct tpl_capture {
    tpl_piece *first, **tail;
    size_t bytes;
    struct tpl_capture *outer;
} tpl_capture;

typedef struct tpl_run {
    const sl_template *tpl;
    const sl_template_limits *limits;
    sl_arena *arena;
    sl_buf *out;
    sl_error *err;
    sl_status status; // of the first error
    uint64_t steps;
    size_t out_bytes;
    uint32_t depth;
    uint32_t at; // offset in the source of what is being evaluated
    tpl_scope *scope;
    tpl_capture *capture; // NULL: output goes to out
    tpl_val subject;      // of the filters around a block
    tpl_val vars;
} tpl_run;

/* ---- template.c ---------------------------------------------------------------------------- */

/* Errors and memory. sl__tpl_fail returns false and keeps the first error. */
bool sl__tpl_fail(tpl_run *run, sl_status status, const char *fmt, ...) SL_PRINTF(3, 4);
bool sl__tpl_steps(tpl_run *run, uint64_t n);
bool sl__tpl_enter(tpl_run *run); // one level deeper; pair with sl__tpl_leave
static inline void sl__tpl_leave(tpl_run *run) {
    run->depth--;
}
/* count * size bytes for values, or NULL after an error. Any pointer for 0 bytes. */
void *sl__tpl_alloc(tpl_run *run, size_t count, size_t size);

/* Text that is put together in the arena. After an error nothing more is added. */
typedef struct tpl_text {
    tpl_run *run;
    char *s;
    size_t len, cap;
} tpl_text;

static inline tpl_text sl__tpl_text(tpl_run *run) {
    return (tpl_text){.run = run};
}
void sl__tpl_text_add(tpl_text *text, const void *bytes, size_t n);
void sl__tpl_text_puts(tpl_text *text, const char *s);
bool sl__tpl_text_end(tpl_text *text, tpl_val *out); // a string value

/* ---- constructors -------------------------------------------------------------------------- */

static inline tpl_val tpl_undefined(const char *name, uint32_t len) {
    return (tpl_val){.type = TPL_V_UNDEFINED, .s = name, .len = len};
}
static inline tpl_val tpl_none(void) {
    return (tpl_val){.type = TPL_V_NONE};
}
static inline tpl_val tpl_bool(bool b) {
    return (tpl_val){.type = TPL_V_BOOL, .b = b};
}
static inline tpl_val tpl_int(int64_t i) {
    return (tpl_val){.type = TPL_V_INT, .i = i};
}
static inline tpl_val tpl_float(double f) {
    return (tpl_val){.type = TPL_V_FLOAT, .f = f};
}
static inline tpl_val tpl_str(const char *s, size_t len) {
    return (tpl_val){.type = TPL_V_STR, .s = s, .len = (uint32_t)len};
}
static inline tpl_val tpl_list(const tpl_val *items, uint32_t len) {
    return (tpl_val){.type = TPL_V_LIST, .items = items, .len = len};
}
static inline tpl_val tpl_tuple(const tpl_val *items, uint32_t len) {
    return (tpl_val){.type = TPL_V_TUPLE, .items = items, .len = len};
}
static inline tpl_val tpl_dict(const tpl_pair *pairs, uint32_t len) {
    return (tpl_val){.type = TPL_V_DICT, .pairs = pairs, .len = len};
}
bool sl__tpl_generator(tpl_run *run, const tpl_val *items, uint32_t len, tpl_val *out);

static inline bool tpl_is_str(const tpl_val *v) {
    return v->type == TPL_V_STR;
}
static inline bool tpl_is_integral(const tpl_val *v) {
    return v->type == TPL_V_INT || v->type == TPL_V_BOOL;
}
static inline int64_t tpl_integral(const tpl_val *v) {
    return v->type == TPL_V_INT ? v->i : v->b;
}

/* ---- template_value.c ---------------------------------------------------------------------- */

/* floor(), for any double. */
double sl__tpl_floor(double x);

const char *sl__tpl_type_name(const tpl_val *v); // as in Python's messages
bool sl__tpl_truth(const tpl_val *v);
bool sl__tpl_equal(tpl_run *run, const tpl_val *a, const tpl_val *b, bool *out);
bool sl__tpl_compare(tpl_run *run, tpl_op op, const tpl_val *a, const tpl_val *b, bool *out);
bool sl__tpl_contains(tpl_run *run, const tpl_val *box, const tpl_val *v, bool *out);
bool sl__tpl_unary(tpl_run *run, tpl_op op, const tpl_val *a, tpl_val *out);
bool sl__tpl_binary(tpl_run *run, tpl_op op, const tpl_val *a, const tpl_val *b, tpl_val *out);
bool sl__tpl_hashable(tpl_run *run, const tpl_val *v);             // an error if it is not
bool sl__tpl_escape(tpl_run *run, const tpl_val *s, tpl_val *out); // of a string; makes markup

/* len(v); false without an error where Python has no length for v. */
bool sl__tpl_length(tpl_run *run, const tpl_val *v, int64_t *out);
/* The values that iterating over v yields. A generator is spent by it. */
bool sl__tpl_iterate(tpl_run *run, const tpl_val *v, const tpl_val **items, uint32_t *n);
bool sl__tpl_is_iterable(const tpl_val *v);
/* obj.name, obj[index] and obj[start:stop:step] of the sandbox: what is not there is undefined. */
bool sl__tpl_attr(tpl_run *run, const tpl_val *obj, const char *name, uint32_t len, tpl_val *out);
bool sl__tpl_item(tpl_run *run, const tpl_val *obj, const tpl_val *index, tpl_val *out);
bool sl__tpl_slice(tpl_run *run, const tpl_val *obj, const tpl_val index[3], tpl_val *out);
/* The value under a key, or NULL. False after an error. */
bool sl__tpl_dict_find(tpl_run *run, const tpl_val *dict, const tpl_val *key, const tpl_val **out);
/* Put key and value into pairs[*n], or in the place of an equal key. */
bool sl__tpl_dict_put(tpl_run *run, tpl_pair *pairs, uint32_t *n, const tpl_val *key,
                      const tpl_val *val);

/* ---- template_print.c ---------------------------------------------------------------------- */

bool sl__tpl_to_str(tpl_run *run, const tpl_val *v, tpl_val *out); // str(v)

typedef struct tpl_json_style {
    bool ascii, sort_keys;
    const char *indent; // NULL: one line
    size_t indent_len;
    tpl_val item_sep, key_sep;
} tpl_json_style;
bool sl__tpl_to_json(tpl_run *run, const tpl_val *v, const tpl_json_style *style, tpl_val *out);

bool sl__tpl_json_to_val(tpl_run *run, const sl_json *json, tpl_val *out);
/* repr(float) in buf; returns its length. */
size_t sl__tpl_float_repr(double f, char buf[40]);

/* ---- template_utf8.c ----------------------------------------------------------------------- */

size_t sl__tpl_cp_count(const char *s, size_t len);
size_t sl__tpl_cp_len(const char *s);                          // bytes of the code point at s
size_t sl__tpl_cp_offset(const char *s, size_t len, size_t n); // bytes of the first n code points
uint32_t sl__tpl_cp_decode(const char *s, size_t *bytes);
size_t sl__tpl_cp_valid(const char *s, size_t left); // bytes of a valid one at s, or 0
size_t sl__tpl_cp_encode(uint32_t cp, char out[4]);
bool sl__tpl_is_space(uint32_t cp); // str.isspace()

/* The first (or last) place of needle in hay, NULL if there is none. Every comparison is counted in
 * steps: false when they run out. */
bool sl__tpl_find(tpl_run *run, const char *hay, size_t len, const char *needle, size_t needle_len,
                  const char **at);
bool sl__tpl_find_last(tpl_run *run, const char *hay, size_t len, const char *needle,
                       size_t needle_len, const char **at);

/* ---- template_call.c ----------------------------------------------------------------------- */

typedef struct tpl_args {
    const tpl_val *pos;
    const struct tpl_keyword_arg *kw;
    uint32_t n_pos, n_kw;
} tpl_args;

typedef struct tpl_keyword_arg {
    const char *name;
    uint32_t len;
    tpl_val val;
} tpl_keyword_arg;

#define TPL_PARAMS_MAX 4

/* A filter, test, method or function. Fixed parameters: fn gets self (subject or receiver) and one
 * value for each parameter, TPL_V_ABSENT where none was given. Otherwise any_fn gets all arguments. */
struct tpl_callable {
    const char *name;
    const char *params[TPL_PARAMS_MAX]; // NULL: cannot be given by name
    uint8_t n_params, n_required;
    uint8_t self_type; // methods: the receiver's tpl_type
    bool (*fn)(tpl_run *run, const tpl_val *self, const tpl_val *args, tpl_val *out);
    bool (*any_fn)(tpl_run *run, const tpl_val *self, const tpl_args *args, tpl_val *out);
};

const tpl_callable *sl__tpl_find_filter(const char *name, size_t len);
const tpl_callable *sl__tpl_find_test(const char *name, size_t len);
const tpl_callable *sl__tpl_find_function(const char *name, size_t len);
/* The method of a type, or of any type for TPL_V_ABSENT. */
const tpl_callable *sl__tpl_find_method(const char *name, size_t len, tpl_type type);
/* What is wrong with a call, as text, or NULL: for the parser, which knows names and counts. */
const char *sl__tpl_check_call(const tpl_callable *fn, uint32_t n_pos, const tpl_node *keywords);
/* True if every directive of a strftime_now() format is known. */
bool sl__tpl_strftime_ok(const char *format, size_t len);
bool sl__tpl_call(tpl_run *run, const tpl_callable *fn, const tpl_val *self, const tpl_args *args,
                  tpl_val *out);

/* ---- template_eval.c ----------------------------------------------------------------------- */

bool sl__tpl_exec_template(tpl_run *run);
bool sl__tpl_lookup(tpl_scope *scope, const char *name, uint32_t len, tpl_val *out);
bool sl__tpl_scope_set(tpl_run *run, tpl_scope *scope, const char *name, uint32_t len,
                       const tpl_val *val);
/* Make kept[i] exist if the loop goes that far; *exists says whether it does. */
bool sl__tpl_loop_reach(tpl_run *run, tpl_loop *loop, uint32_t i, bool *exists);

/* ---- template_case.c ----------------------------------------------------------------------- */

typedef enum tpl_case { TPL_CASE_LOWER, TPL_CASE_UPPER, TPL_CASE_TITLE } tpl_case;
/* str.lower(), .upper() and .title() of one code point: up to three. */
uint32_t sl__tpl_case_map(uint32_t cp, tpl_case to, uint32_t out[3]);
/* Properties of a code point, as str.islower() and its like see them. */
bool sl__tpl_is_lower(uint32_t cp);
bool sl__tpl_is_upper(uint32_t cp);
bool sl__tpl_is_cased(uint32_t cp);
bool sl__tpl_is_case_ignorable(uint32_t cp);
bool sl__tpl_is_printable(uint32_t cp);

#endif
