/* From the caller's bytes to the text that is tokenized: invalid UTF-8 becomes U+FFFD, the rest is
 * brought into NFC and the mark of spaces made one, where the tokenizer asks for it. Works through a
 * window, in bounded memory. */
#ifndef SL_TEXT_NORMALIZE_H
#define SL_TEXT_NORMALIZE_H

#include "base/status.h"
#include "text/unicode.h"

/* How SentencePiece writes a space. Tokenizers of that kind turn spaces into it and back; here both are
 * the space, in the vocabulary and in the text. */
#define SL_SPACE_MARK 0x2581u

typedef struct sl_normalizer {
    const uint8_t *at, *end; /* input that is left; at == end: everything was handed out */
    sl_uni_marked *segment;  /* [segment_cap] both: room for one segment, decomposed */
    sl_uni_marked *scratch;
    size_t segment_cap;
    bool nfc;
    bool spaces; /* U+2581 becomes a space */
} sl_normalizer;

/* Write the next bytes of the normalized text to out, whole characters, as many as fit; *n = 0 only
 * when nothing is left or the next segment does not fit. NFC text is copied, at the speed of a scan.
 * Errors: SL_ERR_MEMORY, a segment (a character with the marks that follow it) has more than
 * segment_cap code points. */
SL_MUST_USE sl_status sl_normalizer_fill(sl_normalizer *z, uint8_t *out, size_t cap, size_t *n,
                                         sl_error *err);

#endif
