/* Streaming normalization, see normalize.h. Plain text is found by scanning and copied in runs; only
 * a segment that may change is taken apart. */
#include "text/normalize.h"

#include <string.h>

#include "text/utf8.h"

// Where the run of text at z->at that can be copied as it is ends, within `room` bytes.
static const uint8_t *plain_run(const sl_normalizer *z, size_t room) {
    const uint8_t *p = z->at;
    const uint8_t *limit = (size_t)(z->end - p) > room ? p + room : z->end;
    const uint8_t *last = p; // the last character: a mark that follows would take it along
    while (p < limit) {
        uint64_t eight;
        if (limit - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) {
            last = p + 7;
            p += 8;
            continue;
        }
        if (*p < 0x80) {
            last = p++;
            continue;
        }
        uint32_t cp;
        size_t n = sl_utf8_decode(p, z->end, &cp);
        if (cp == SL_UTF8_INVALID || (z->spaces && cp == SL_SPACE_MARK))
            return p;
        if (z->nfc && !sl_uni_is_plain(cp))
            return sl_uni_starts_segment(cp) ? p : last;
        if (n > (size_t)(limit - p))
            return p;
        last = p;
        p += n;
    }
    return z->nfc && p < z->end ? last : p;
}

// The segment at z->at, composed into z->segment. Returns its code points; *after is where it ends.
static sl_status read_segment(const sl_normalizer *z, size_t *n, const uint8_t **after,
                              sl_error *err) {
    const uint8_t *p = z->at;
    size_t count = 0;
    while (p < z->end) {
        uint32_t cp;
        size_t bytes = sl_utf8_decode(p, z->end, &cp);
        if (cp == SL_UTF8_INVALID || (p > z->at && sl_uni_starts_segment(cp)))
            break;
        if (z->segment_cap - count < SL_UNI_DECOMPOSED_MAX)
            return sl_fail(err, SL_ERR_MEMORY,
                           "the text has a character with more than %zu combining marks, which is "
                           "more than this workspace holds",
                           count);
        count += sl_uni_decompose(cp, z->segment + count);
        p += bytes;
    }
    *n = sl_uni_compose(z->segment, count, z->scratch);
    *after = p;
    return SL_OK;
}

sl_status sl_normalizer_fill(sl_normalizer *z, uint8_t *out, size_t cap, size_t *n, sl_error *err) {
    uint8_t *start = out, *out_end = out + cap;
    while (z->at < z->end) {
        const uint8_t *stop = plain_run(z, (size_t)(out_end - out));
        size_t run = (size_t)(stop - z->at);
        memcpy(out, z->at, run);
        out += run;
        z->at = stop;
        if (z->at == z->end)
            break;
        uint32_t cp;
        size_t bytes = sl_utf8_decode(z->at, z->end, &cp);
        bool mark = z->spaces && cp == SL_SPACE_MARK;
        if (cp == SL_UTF8_INVALID || mark || !z->nfc) {
            cp = cp == SL_UTF8_INVALID ? SL_UTF8_REPLACEMENT : mark ? ' ' : cp;
            if ((size_t)(out_end - out) < sl_utf8_size(cp))
                break;
            out += sl_utf8_encode(cp, out);
            z->at += bytes;
            continue;
        }
        size_t count = 0, size = 0;
        const uint8_t *after = z->at;
        sl_status st = read_segment(z, &count, &after, err);
        if (st)
            return st;
        for (size_t i = 0; i < count; i++)
            size += sl_utf8_size(z->segment[i]);
        if (size > (size_t)(out_end - out))
            break;
        for (size_t i = 0; i < count; i++)
            out += sl_utf8_encode(z->segment[i], out);
        z->at = after;
    }
    *n = (size_t)(out - start);
    return SL_OK;
}
