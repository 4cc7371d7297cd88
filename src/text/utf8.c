/* UTF-8, see utf8.h. */
#include "text/utf8.h"

#include <string.h>

// The bytes that may follow lead byte c: how many, and the range of the first of them. The ranges
// keep out overlong forms, surrogates and everything above U+10FFFF (Unicode, table 3-7).
static unsigned lead(uint8_t c, uint8_t *low, uint8_t *high) {
    *low = 0x80;
    *high = 0xbf;
    if (c >= 0xc2 && c <= 0xdf)
        return 1;
    if (c >= 0xe0 && c <= 0xef) {
        if (c == 0xe0)
            *low = 0xa0;
        if (c == 0xed)
            *high = 0x9f;
        return 2;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (c == 0xf0)
            *low = 0x90;
        if (c == 0xf4)
            *high = 0x8f;
        return 3;
    }
    return 0;
}

// Bytes of the sequence at p that fit together; *complete tells whether they are a character.
static size_t scan(const uint8_t *p, const uint8_t *end, bool *complete) {
    if (p[0] < 0x80) {
        *complete = true;
        return 1;
    }
    uint8_t low, high;
    unsigned n = lead(p[0], &low, &high);
    *complete = false;
    for (unsigned i = 1; i <= n; i++) {
        if (p + i == end || p[i] < low || p[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *complete = n > 0;
    return n + 1;
}

size_t sl_utf8_decode(const uint8_t *p, const uint8_t *end, uint32_t *cp) {
    bool complete;
    size_t n = scan(p, end, &complete);
    if (complete)
        return sl_utf8_decode_valid(p, cp);
    *cp = SL_UTF8_INVALID;
    return n;
}

size_t sl_utf8_encode(uint32_t cp, uint8_t out[4]) {
    size_t n = sl_utf8_size(cp);
    if (n == 1) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (uint8_t)((0xf00u >> n & 0xff) | cp);
    return n;
}

bool sl_utf8_is_valid(const char *text, size_t len) {
    const uint8_t *p = (const uint8_t *)text, *end = p + len;
    while (p < end) {
        bool complete;
        p += scan(p, end, &complete);
        if (!complete)
            return false;
    }
    return true;
}

void sl_utf8_stream_init(sl_utf8_stream *stream) {
    memset(stream, 0, sizeof(*stream));
}

static char *put_replacement(char *out) {
    memcpy(out, "\xef\xbf\xbd", 3);
    return out + 3;
}

size_t sl_utf8_feed(sl_utf8_stream *stream, const void *bytes, size_t n, char *out) {
    const uint8_t *p = bytes, *end = p + n;
    char *start = out;
    while (p < end || stream->n_held > 0) {
        // The held bytes are looked at together with up to three new ones.
        uint8_t joined[6];
        const uint8_t *q = p, *q_end = end;
        size_t held = stream->n_held;
        if (held > 0) {
            size_t more = SL_MIN((size_t)(end - p), 3);
            memcpy(joined, stream->held, held);
            memcpy(joined + held, p, more);
            q = joined;
            q_end = joined + held + more;
        }
        bool complete;
        size_t taken = scan(q, q_end, &complete);
        uint8_t low, high;
        bool open = !complete && q + taken == q_end && taken <= lead(q[0], &low, &high);
        if (open) {
            memmove(stream->held, q, taken);
            stream->n_held = (uint8_t)taken;
            break;
        }
        if (complete) {
            memcpy(out, q, taken);
            out += taken;
        } else {
            out = put_replacement(out);
        }
        // What is held always belongs to the sequence that starts with it, whole.
        stream->n_held = 0;
        p += taken - held;
    }
    return (size_t)(out - start);
}

size_t sl_utf8_flush(sl_utf8_stream *stream, char *out) {
    bool any = stream->n_held > 0;
    sl_utf8_stream_init(stream);
    return any ? (size_t)(put_replacement(out) - out) : 0;
}
