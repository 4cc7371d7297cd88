/* Pre-tokenization: cutting text into the pieces that byte-pair merges never cross.
 *
 * A tokenizer.json states the cut as a regular expression. The known ones are written here as tables
 * of rules, one per alternative, which a small matcher walks: leftmost, first alternative wins,
 * quantifiers are greedy. Known texts of expressions: sl_pretok_find(). All known patterns match at
 * every position, so the pieces cover the text.
 * Pure; any thread. */
#ifndef SL_TEXT_PRETOKENIZE_H
#define SL_TEXT_PRETOKENIZE_H

#include <stdbool.h>

#include "base/attr.h"

typedef struct sl_pretok sl_pretok;

/* Patterns are stored by number: never renumber. */
typedef enum sl_pretok_id {
    SL_PRETOK_GPT2 = 1, /* also what ByteLevel with use_regex means */
    SL_PRETOK_QWEN2 = 2,
    SL_PRETOK_QWEN35 = 3,
} sl_pretok_id;

/* The pattern of a number, or NULL. */
const sl_pretok *sl_pretok_by_id(uint32_t id);
/* The number of the pattern with exactly this expression (not NUL-terminated), or 0. */
uint32_t sl_pretok_find(const char *regex, size_t len);
/* The names of the known patterns, for messages: "gpt2, qwen2, ...". Returns out. */
const char *sl_pretok_names(char *out, size_t cap);

/* The length of the piece at p < end; the text is valid UTF-8. With final == false more text may
 * follow end, and 0 says that the piece depends on it. */
size_t sl_pretok_next(const sl_pretok *pattern, const uint8_t *p, const uint8_t *end, bool final);

#endif
