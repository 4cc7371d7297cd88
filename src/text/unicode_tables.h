/* The shape of the generated tables; unicode.c is their only reader. All are two-stage: the block of
 * a code point is index[cp >> shift], its entry data[block << shift | low bits]. */
#ifndef SL_TEXT_UNICODE_TABLES_H
#define SL_TEXT_UNICODE_TABLES_H

#include <stdint.h>

#define SL_UNI_CLASS_SHIFT 8
#define SL_UNI_NFC_SHIFT 7

/* The number of the category's bit in unicode.h, and 32 for SL_UNI_WORD. */
extern const uint8_t sl__uni_class_index[];
extern const uint8_t sl__uni_class[];

/* Number of a record: bits 0..7 canonical combining class, 8 BOUNDARY, 9 CHANGES (unicode.c),
 * 12..14 length and 16..31 start of the full canonical decomposition in sl__uni_decomposed. */
extern const uint8_t sl__uni_nfc_index[];
extern const uint16_t sl__uni_nfc[];
extern const uint32_t sl__uni_nfc_record[];
extern const uint32_t sl__uni_decomposed[];

/* Primary composites {first, second, composed}, sorted by first, then second. */
extern const uint32_t sl__uni_n_pairs;
extern const uint32_t sl__uni_pair[][3];

#endif
