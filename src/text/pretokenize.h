/* Pre-tokenization: cutting text into the pieces that byte-pair merges never cross.
 *
 * A tokenizer.json states the cut as a list of steps, each a regular expression: a step cuts every
 * piece of the step before it into the matches and what lies between them ("isolated"). Matches are
 * leftmost, the first alternative that matches wins, quantifiers are greedy. sl_pretok_add() compiles
 * an expression of the small language that tokenizers use; what is outside of it is refused with its
 * place:
 *
 *   pattern      alternative | alternative ...
 *   alternative  a list of   one            with ? * + {m} {m,} {m,n}, greedy
 *                            (?i:b|b..)     or (?:b|b..) or (b|b..), with ? or nothing; a branch b is a
 *                                           list of `one`, none repeated
 *                            (?!one) (?=one)
 *   one          a literal; \r \n \t \f \v; \s \S \d \D; \p{Lu} \p{L} \P{..}: general categories; a
 *                class of those and of ranges, [a-z\p{M}] or [^..]
 *
 * Case is ignored as Unicode does it: (?i:s) matches U+017F too. No alternative may be empty, and where a
 * long repetition may have to give back what it took, no other after it may fail at its end. So a match
 * costs a small multiple of the text it looks at.
 *
 * sl_pretok is plain data of a fixed size, for many threads; a cursor belongs to one text. No
 * allocation. Held to the reference by tests/diff/test_tokenizer_hf.py. */
#ifndef SL_TEXT_PRETOKENIZE_H
#define SL_TEXT_PRETOKENIZE_H

#include <stdbool.h>

#include "base/status.h"

/* Limits of all steps together. The largest expression known (o200k) takes 7 alternatives, 65 items and
 * 21 sets; DeepSeek-V3 has 3 steps. */
#define SL_PRETOK_STEPS_MAX 4
#define SL_PRETOK_ALTERNATIVES_MAX 16 /* of one step */
#define SL_PRETOK_ITEMS_MAX 128
#define SL_PRETOK_SETS_MAX 64
#define SL_PRETOK_RANGES_MAX 32
#define SL_PRETOK_REPEATS_MAX 255

/* The expression inside ByteLevel with use_regex. */
#define SL_PRETOK_GPT2                                                                             \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* A set of characters. Members of the structs below are this module's own. */
typedef struct sl__pretok_set {
    uint64_t ascii[2];    /* bit c: the character c < 128 is in the set */
    uint32_t categories;  /* others: masks of unicode.h */
    uint8_t first, count; /* in range[]: the exceptions from categories */
    bool in_range;        /* what those in a range are */
} sl__pretok_set;

typedef enum sl__pretok_kind {
    SL__PRETOK_RUN,    /* set{min,max} */
    SL__PRETOK_GROUP,  /* branches, the next n_skip items; min 0: or nothing */
    SL__PRETOK_BRANCH, /* of a group: n_skip runs that take one character each */
    SL__PRETOK_AHEAD,  /* the next character, if any, is in set (min 1: there must be one) */
} sl__pretok_kind;

typedef struct sl__pretok_item {
    uint8_t kind, set, min, max; /* max 0: no limit */
    uint8_t n_skip;
    bool gives_back; /* a shorter run may help the rest of the alternative */
} sl__pretok_item;

typedef struct sl__pretok_step {
    uint8_t n_alternatives;
    uint8_t
        item[SL_PRETOK_ALTERNATIVES_MAX + 1]; /* alternative i is items item[i] .. item[i + 1] */
    uint16_t first[128];                      /* the alternatives that can start with a character */
} sl__pretok_step;

typedef struct sl_pretok {
    uint32_t n_steps, n_items, n_sets, n_ranges;
    sl__pretok_step step[SL_PRETOK_STEPS_MAX];
    sl__pretok_item item[SL_PRETOK_ITEMS_MAX];
    sl__pretok_set set[SL_PRETOK_SETS_MAX];
    uint32_t range[SL_PRETOK_RANGES_MAX][2];
} sl_pretok;

/* Append a step to a pre-tokenizer that started as zeros. A pre-tokenizer without steps has one piece.
 * Errors: SL_ERR_UNSUPPORTED (says what, and where in the expression); *pretok is then of no use. */
SL_MUST_USE sl_status sl_pretok_add(sl_pretok *pretok, const char *regex, size_t len,
                                    sl_error *err);

/* Where the pieces of each step end around the next piece. Zeros: the start of a text. */
typedef struct sl_pretok_cursor {
    struct {
        size_t end;
        bool closed; /* the step's piece ends at end; false: it ends there or later */
    } step[SL_PRETOK_STEPS_MAX];
} sl_pretok_cursor;

/* The length of the piece at text[from], from < end, where the piece before it ended; the text is valid
 * UTF-8. With final == false more text may follow end, and 0 says that the piece depends on it. */
size_t sl_pretok_next(const sl_pretok *pretok, sl_pretok_cursor *cursor, const uint8_t *text,
                      size_t from, size_t end, bool final);
/* The text moved: what was text[n] is now text[0]. */
void sl_pretok_moved(sl_pretok_cursor *cursor, size_t n);

#endif
