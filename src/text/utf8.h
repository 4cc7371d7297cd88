/* UTF-8: decoding with replacement, encoding, and an incremental filter for output.
 *
 * Invalid input is replaced the way the Unicode standard recommends (chapter 3, "maximal subparts"):
 * the longest prefix of a sequence that could still have become a character counts as one error and
 * gives one U+FFFD; a byte that cannot start anything is an error of its own. E2 82 41 is U+FFFD "A".
 * Everything here is pure and may be called from any thread. */
#ifndef SL_TEXT_UTF8_H
#define SL_TEXT_UTF8_H

#include <stdbool.h>

#include "base/attr.h"

/* What sl_utf8_decode gives for an invalid sequence; no code point has this value. */
#define SL_UTF8_INVALID UINT32_MAX
#define SL_UTF8_REPLACEMENT 0xFFFDu

/* Decode the sequence at p, p < end. Returns the bytes it takes (1..4) and its code point, or the
 * bytes of the maximal invalid subpart (1..3) and SL_UTF8_INVALID. A sequence that end cuts short is
 * invalid and reaches up to end. */
size_t sl_utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *cp);

/* The same for text that is known to be valid: no checks. */
static inline size_t sl_utf8_decode_valid(const uint8_t *p, uint32_t *cp) {
    uint32_t c = p[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    if (c < 0xe0) {
        *cp = (c & 0x1f) << 6 | (p[1] & 0x3fu);
        return 2;
    }
    if (c < 0xf0) {
        *cp = (c & 0x0f) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        return 3;
    }
    *cp = (c & 0x07) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    return 4;
}

/* Bytes of the encoded form of cp <= 0x10FFFF; sl_utf8_encode writes them and returns their number. */
static inline size_t sl_utf8_size(uint32_t cp) {
    return cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
}
size_t sl_utf8_encode(uint32_t cp, uint8_t out[4]);

bool sl_utf8_is_valid(const char *text, size_t len);

/* Turns a stream of bytes, cut anywhere (tokens cut characters), into whole characters. */
typedef struct sl_utf8_stream {
    uint8_t held[3]; /* the start of a character that is not complete yet */
    uint8_t n_held;
} sl_utf8_stream;

/* Room that feed and flush may need in out for n bytes of input. */
#define SL_UTF8_FEED_BYTES(n) (3 * ((size_t)(n) + 3))

void sl_utf8_stream_init(sl_utf8_stream *stream);
/* Feed n bytes; writes the characters that are complete now and returns their bytes. What was
 * invalid comes out as U+FFFD as soon as that is certain. out has SL_UTF8_FEED_BYTES(n) bytes and
 * does not overlap bytes. All outputs of a stream together are those of the whole input at once. */
size_t sl_utf8_feed(sl_utf8_stream *stream, const void *bytes, size_t n, char *out);
/* The end of the input: a held tail becomes one U+FFFD. Returns 0 or 3; the stream is empty again. */
size_t sl_utf8_flush(sl_utf8_stream *stream, char *out);

#endif
