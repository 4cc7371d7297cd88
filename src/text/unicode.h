/* Unicode facts that tokenization needs: character classes and canonical composition.
 *
 * Two versions on purpose, those of the reference tokenizer: classes are Unicode 16, normalization
 * is Unicode 9. Tables: unicode_tables.c (constant, about 125 KB), made by tools/gen_unicode.py.
 * Pure; any thread. Code points are <= 0x10FFFF. */
#ifndef SL_TEXT_UNICODE_H
#define SL_TEXT_UNICODE_H

#include <stdbool.h>

#include "base/attr.h"

/* A character's general category is one bit, so that sets of categories are masks. White_Space is the
 * separators and six of the control characters, which have a bit of their own. SL_UNI_WORD comes
 * beside the category: "word" as regular expressions mean it (Alphabetic, M, Nd, Pc, Join_Control). */
#define SL_UNI_LU (1u << 0)
#define SL_UNI_LL (1u << 1)
#define SL_UNI_LT (1u << 2)
#define SL_UNI_LM (1u << 3)
#define SL_UNI_LO (1u << 4)
#define SL_UNI_MN (1u << 5)
#define SL_UNI_MC (1u << 6)
#define SL_UNI_ME (1u << 7)
#define SL_UNI_ND (1u << 8)
#define SL_UNI_NL (1u << 9)
#define SL_UNI_NO (1u << 10)
#define SL_UNI_PC (1u << 11)
#define SL_UNI_PD (1u << 12)
#define SL_UNI_PS (1u << 13)
#define SL_UNI_PE (1u << 14)
#define SL_UNI_PI (1u << 15)
#define SL_UNI_PF (1u << 16)
#define SL_UNI_PO (1u << 17)
#define SL_UNI_SM (1u << 18)
#define SL_UNI_SC (1u << 19)
#define SL_UNI_SK (1u << 20)
#define SL_UNI_SO (1u << 21)
#define SL_UNI_ZS (1u << 22)
#define SL_UNI_ZL (1u << 23)
#define SL_UNI_ZP (1u << 24)
#define SL_UNI_CC (1u << 25) /* those that are no white space */
#define SL_UNI_CF (1u << 26)
#define SL_UNI_CS (1u << 27)
#define SL_UNI_CO (1u << 28)
#define SL_UNI_CN (1u << 29)
#define SL_UNI_WHITE_CONTROL (1u << 30)
#define SL_UNI_WORD (1u << 31)

#define SL_UNI_L (SL_UNI_LU | SL_UNI_LL | SL_UNI_LT | SL_UNI_LM | SL_UNI_LO)
#define SL_UNI_M (SL_UNI_MN | SL_UNI_MC | SL_UNI_ME)
#define SL_UNI_N (SL_UNI_ND | SL_UNI_NL | SL_UNI_NO)
#define SL_UNI_P (SL_UNI_PC | SL_UNI_PD | SL_UNI_PS | SL_UNI_PE | SL_UNI_PI | SL_UNI_PF | SL_UNI_PO)
#define SL_UNI_S (SL_UNI_SM | SL_UNI_SC | SL_UNI_SK | SL_UNI_SO)
#define SL_UNI_Z (SL_UNI_ZS | SL_UNI_ZL | SL_UNI_ZP)
#define SL_UNI_C (SL_UNI_CC | SL_UNI_WHITE_CONTROL | SL_UNI_CF | SL_UNI_CS | SL_UNI_CO | SL_UNI_CN)
#define SL_UNI_WHITE (SL_UNI_Z | SL_UNI_WHITE_CONTROL)

/* The bit of the category, and SL_UNI_WORD. */
uint32_t sl_uni_class(uint32_t cp);

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
