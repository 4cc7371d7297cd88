/* Unicode facts that tokenization needs: character classes and canonical composition.
 *
 * Two versions on purpose, those of the reference tokenizer: classes are Unicode 16, normalization
 * is Unicode 9. Tables: unicode_tables.c (constant, about 110 KB), made by tools/gen_unicode.py.
 * Pure; any thread. Code points are <= 0x10FFFF. */
#ifndef SL_TEXT_UNICODE_H
#define SL_TEXT_UNICODE_H

#include <stdbool.h>

#include "base/attr.h"

/* General category groups, White_Space, and "word" as regular expressions mean it (Alphabetic, M,
 * Nd, Pc, Join_Control). */
enum {
    SL_UNI_L = 1,
    SL_UNI_M = 2,
    SL_UNI_N = 4,
    SL_UNI_P = 8,
    SL_UNI_S = 16,
    SL_UNI_WHITE = 32,
    SL_UNI_WORD = 64,
};
uint8_t sl_uni_class(uint32_t cp);

/* NFC works on segments: a segment starts before a character that never joins what stands before it,
 * and NFC of a text is the NFC of its segments, one after the other. */
bool sl_uni_starts_segment(uint32_t cp);
/* True when cp starts a segment and is its own NFC: a segment of this character alone stays. */
bool sl_uni_is_plain(uint32_t cp);

/* A code point with its canonical combining class in the upper byte, as the two calls below pass
 * them on. */
typedef uint32_t sl_uni_marked;

#define SL_UNI_DECOMPOSED_MAX 4
/* The full canonical decomposition of cp. Returns its length, 1..4. */
size_t sl_uni_decompose(uint32_t cp, sl_uni_marked out[SL_UNI_DECOMPOSED_MAX]);
/* Put a decomposed segment into canonical order and compose it, in place: linear in n. Returns the
 * number of code points; they carry no classes any more. scratch holds n elements. */
size_t sl_uni_compose(sl_uni_marked *segment, size_t n, sl_uni_marked *scratch);

#endif
