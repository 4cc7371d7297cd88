/* What the sources that compile a schema share. All of them take memory from the compiler's arenas
 * and count their work, so that a schema is refused before it costs more than its limits. */
#ifndef SL_CONSTRAIN_COMPILE_INTERNAL_H
#define SL_CONSTRAIN_COMPILE_INTERNAL_H

#include "base/buf.h"
#include "constrain/constrain_internal.h"

/* A growing array in the scratch arena. What it grows out of stays behind: at most as much again. */
typedef struct sl__vector {
    void *data;
    uint32_t n, cap;
} sl__vector;

typedef struct sl__compiler {
    const sl_vocab *vocab; /* NULL: texts are only read, any byte can be there */
    const sl_constraint_limits *limits;
    sl_arena *arena, *scratch;
    sl_error *err;
    const sl_json *root;
    const sl_json *at;   /* the schema that is being compiled, for messages */
    const char *keyword; /* and its keyword; NULL: the schema itself */
    uint64_t n_steps;
    uint32_t n_states;
    uint32_t first_alt;                                     /* of the node that is being compiled */
    sl__vector nodes, alts, props, refs, texts, dfas, sets; /* of sl__node, sl__alt, ... */
    sl__vector elements;                                    /* of the sets of schemas: uint64_t */
    uint32_t *node_of; /* [n_node_of] hash table of sets: node + 1 */
    uint32_t n_node_of;
    struct sl__seen *seen; /* [n_seen] hash table of schemas that were checked */
    uint32_t n_seen;
} sl__compiler;

/* Room for n more elements; the address of the first, or NULL with the error filled. */
void *sl__vector_add(sl__compiler *c, sl__vector *v, uint32_t n, size_t element_bytes);
void *sl__take(sl__compiler *c, sl_arena *arena, size_t bytes, size_t align);

/* Count work. SL_ERR_UNSUPPORTED above the limit. */
SL_MUST_USE sl_status sl__spend(sl__compiler *c, uint64_t steps);

/* Refuse, naming the place of the schema and the keyword. */
sl_status sl__refuse(sl__compiler *c, const sl_json *schema, const char *keyword, const char *fmt,
                     ...) SL_PRINTF(4, 5);
sl_status sl__wrong(sl__compiler *c, const sl_json *schema, const char *keyword, const char *fmt,
                    ...) SL_PRINTF(4, 5); /* the same with SL_ERR_ARGUMENT */

/* Append the JSON pointer of node, which is below at, to a fixed buf; control characters as \u00xx, so
 * that a message stays one line. false: it is not there. Recursion as deep as the value. */
bool sl__find_pointer(const sl_json *at, const sl_json *node, sl_buf *buf);

/* ---- automata ------------------------------------------------------------------------------ */

#define SL__DEAD UINT64_MAX

/* An automaton given by functions: states are numbers of its own choice. */
typedef struct sl__machine {
    void *ctx;
    uint64_t start;
    /* SL__DEAD, or the next state. Errors go to *status. */
    uint64_t (*step)(void *ctx, uint64_t state, uint8_t byte, sl_status *status);
    bool (*accepts)(void *ctx, uint64_t state);
    uint8_t class_of[256]; /* bytes of one class step alike */
    uint32_t n_classes;
} sl__machine;

/* Tabulate a machine in the arena, without states from which acceptance is out of reach. out->next is
 * NULL when nothing is accepted, or nothing that can be written with the vocabulary. */
SL_MUST_USE sl_status sl__dfa_build(sl__compiler *c, const sl__machine *machine, sl_arena *arena,
                                    sl__dfa *out);
/* Give back what scratch holds above the mark, except for the automaton when its arena is scratch: that
 * is moved down to the mark. On error nothing but the mark counts. */
void sl__dfa_settle(sl__compiler *c, size_t mark, const sl_arena *arena, sl__dfa *dfa);
/* Make the classes: bytes are alike when all splits[] between them are false. splits[b]: b - 1 and b
 * are told apart. */
void sl__classes_from_splits(const bool splits[257], sl__machine *machine);
bool sl__dfa_accepts(const sl__dfa *dfa, const uint8_t *bytes, size_t len);

/* What both accept; with lengths, only texts of min..max characters. Both are bodies of strings, as
 * below. */
SL_MUST_USE sl_status sl__dfa_intersect(sl__compiler *c, const sl__dfa *a, const sl__dfa *b,
                                        sl_arena *arena, sl__dfa *out);
SL_MUST_USE sl_status sl__dfa_limit(sl__compiler *c, const sl__dfa *a, uint32_t min, uint32_t max,
                                    sl_arena *arena, sl__dfa *out);
/* The body of a string between quotes. */
SL_MUST_USE sl_status sl__dfa_quote(sl__compiler *c, const sl__dfa *body, sl_arena *arena,
                                    sl__dfa *out);

/* A nondeterministic automaton. */
typedef enum sl__nfa_kind {
    SL__NFA_SPLIT, /* go on at a and at b (SL__NONE: not) */
    SL__NFA_BYTE,  /* a byte of lo..hi, then a */
    SL__NFA_BEGIN, /* a, only where nothing was read yet */
    SL__NFA_END,   /* a, only where nothing follows */
    SL__NFA_ACCEPT,
} sl__nfa_kind;

typedef struct sl__nfa_state {
    uint8_t kind, lo, hi;
    uint32_t a, b;
} sl__nfa_state;

typedef struct sl__nfa {
    sl__vector states;
    uint32_t start;
    uint32_t rest; /* a state from which any text is accepted; SL__NONE if there is none */
} sl__nfa;

SL_MUST_USE sl_status sl__nfa_add(sl__compiler *c, sl__nfa *nfa, sl__nfa_kind kind, uint8_t lo,
                                  uint8_t hi, uint32_t a, uint32_t b, uint32_t *out);
SL_MUST_USE sl_status sl__nfa_determinize(sl__compiler *c, sl__nfa *nfa, sl_arena *arena,
                                          sl__dfa *out);

/* ---- strings ------------------------------------------------------------------------------- */

/* Bodies of JSON strings in their canonical spelling (sl__spell_character) that a pattern finds
 * something in (ECMA 262 with the flag u, a subset). */
SL_MUST_USE sl_status sl__pattern_build(sl__compiler *c, const char *pattern, size_t len,
                                        sl_arena *arena, sl__dfa *out);
/* The pattern that a format stands for; NULL for formats that are not known. */
const char *sl__format_pattern(const char *format);

/* How a character is written: itself where JSON allows it, else its short escape, else \u00xx in lower
 * case. With ascii, \uxxxx for all beyond ASCII. Returns the bytes, at most 12. */
size_t sl__spell_character(uint32_t cp, bool ascii, uint8_t out[12]);
/* Append a string's canonical spelling with its quotes to v (of bytes). */
SL_MUST_USE sl_status sl__spell_string(sl__compiler *c, const char *text, size_t len,
                                       sl__vector *v);
/* Append a value's, without spaces. */
SL_MUST_USE sl_status sl__spell_value(sl__compiler *c, const sl_json *value, sl__vector *v);
uint32_t sl__n_characters(const char *text, size_t len);

/* ---- numbers ------------------------------------------------------------------------------- */

#define SL__DIGITS_MAX 64

/* (-1)^negative * 0.d1d2d3... * 10^point: digits without leading and trailing zeros; none: zero. */
typedef struct sl__decimal {
    bool negative;
    uint8_t n;
    int32_t point;
    uint8_t digits[SL__DIGITS_MAX];
} sl__decimal;

/* false: more than SL__DIGITS_MAX digits, or an exponent beyond 4 digits. */
bool sl__decimal_parse(const char *text, size_t len, sl__decimal *out);
int sl__decimal_compare(const sl__decimal *a, const sl__decimal *b);
bool sl__decimal_is_integer(const sl__decimal *d);

typedef struct sl__number_rules {
    bool integer;
    bool has_min, has_max, above_min, below_max; /* above, below: the bound itself is excluded */
    sl__decimal min, max;
    uint32_t multiple_of; /* 0: any */
} sl__number_rules;

bool sl__number_fits(const sl__number_rules *rules, const sl__decimal *d);
SL_MUST_USE sl_status sl__number_build(sl__compiler *c, const sl__number_rules *rules,
                                       sl_arena *arena, sl__dfa *out);

/* ---- schemas ------------------------------------------------------------------------------- */

#define SL__SET_MAX 64 /* schemas that apply to one value at once */

/* The schemas that a value must satisfy, references and allOf resolved: addresses, ascending, the low
 * bits say what of them has been dealt with. */
typedef struct sl__set {
    uint32_t n;
    bool never; /* one of them is false */
    uint64_t elements[SL__SET_MAX];
} sl__set;

#define SL__DONE_ANY 1u
#define SL__DONE_ONE 2u
#define SL__DONE 3u
static inline const sl_json *sl__set_schema(const sl__set *set, uint32_t i) {
    return (const sl_json *)(uintptr_t)(set->elements[i] & ~(uint64_t)SL__DONE);
}

SL_MUST_USE sl_status sl__set_add(sl__compiler *c, sl__set *set, const sl_json *schema);
/* Node of the set; SL__NONE for one with `never`. */
SL_MUST_USE sl_status sl__node_of(sl__compiler *c, const sl__set *set, uint32_t *node);

enum {
    SL__T_NULL = 1,
    SL__T_BOOLEAN = 2,
    SL__T_INTEGER = 4,
    SL__T_NUMBER = 8, /* numbers that are no integers */
    SL__T_STRING = 16,
    SL__T_ARRAY = 32,
    SL__T_OBJECT = 64,
    SL__T_ALL = 127,
};
/* The types that `type` of all schemas of the set leaves. */
SL_MUST_USE sl_status sl__set_types(sl__compiler *c, const sl__set *set, uint32_t *types);
uint32_t sl__type_of(const sl_json *value);

typedef struct sl__string_rules {
    uint32_t min, max;
    bool automaton; /* there is a pattern or format */
} sl__string_rules;
SL_MUST_USE sl_status sl__string_rules_of(sl__compiler *c, const sl__set *set,
                                          sl__string_rules *rules);
/* Body of the strings that all patterns and formats of the set, and its lengths, allow. */
SL_MUST_USE sl_status sl__strings_build(sl__compiler *c, const sl__set *set,
                                        const sl__string_rules *rules, sl_arena *arena,
                                        sl__dfa *out);
SL_MUST_USE sl_status sl__number_rules_of(sl__compiler *c, const sl__set *set, bool integer,
                                          sl__number_rules *rules);
/* Append the forms that a set without open anyOf and oneOf allows. */
SL_MUST_USE sl_status sl__forms_add(sl__compiler *c, const sl__set *set);
/* The values of enum and const that all schemas of the set allow, as one form. *has: there is one of
 * these keywords. */
SL_MUST_USE sl_status sl__literals_add(sl__compiler *c, const sl__set *set, uint32_t types,
                                       bool *has);
bool sl__json_equal(const sl_json *a, const sl_json *b);
/* An upper bound of the work that sl__json_equal() has with a value: it looks for each key. */
uint64_t sl__json_equal_cost(const sl_json *value);
SL_MUST_USE sl_status sl__add_dfa_form(sl__compiler *c, const sl__dfa *dfa, uint32_t depth);

/* Refuses a oneOf unless no value satisfies two of its schemas. */
SL_MUST_USE sl_status sl__check_one_of(sl__compiler *c, const sl_json *schema);
/* Checks keywords, once for each schema, and that references come to an end. */
SL_MUST_USE sl_status sl__check_schema(sl__compiler *c, const sl_json *schema);
SL_MUST_USE sl_status sl__resolve(sl__compiler *c, const sl_json *schema, const sl_json **target);
/* A whole number >= 0 of a keyword; absent: *out stays. */
SL_MUST_USE sl_status sl__count_of(sl__compiler *c, const sl_json *schema, const char *keyword,
                                   uint32_t *out);

#endif
