/* See load.h. */
#define XXH_INLINE_ALL
#include "engine/load.h"

#include <string.h>
#include <xxhash.h>

#include "base/clock.h"

sl_status sl_load(sl_loader *l, const sl_file *file, const char *file_name, const char *what,
                  uint64_t offset, uint64_t n, uint8_t *dst, sl_hash128 hash, sl_error *err) {
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_128bits_reset(&state);
    uint64_t at = offset, end = offset + n, room = l->bounce_bytes / SL_PAGE * SL_PAGE;
    while (at < end) {
        uint64_t from = at / SL_PAGE * SL_PAGE;
        uint64_t span = SL_MIN(SL_ALIGN_UP(end, SL_PAGE) - from, room);
        double begin = sl_now();
        sl_status st = sl_file_read(file, l->bounce, (size_t)span, from, NULL, err);
        l->read_seconds += sl_now() - begin;
        if (st)
            return sl_error_context(err, st, "%s: %s", file_name, what);
        uint64_t skip = at - from, got = SL_MIN(end, from + span) - at;
        (void)XXH3_128bits_update(&state, l->bounce + skip, (size_t)got);
        if (dst)
            memcpy(dst + (at - offset), l->bounce + skip, (size_t)got);
        at += got;
        l->read_bytes += span;
        l->done += got;
        if (l->progress && !l->progress(l->user, l->done, l->total))
            return sl_fail(err, SL_ERR_CANCELED, "canceled while opening");
    }
    XXH128_hash_t sum = XXH3_128bits_digest(&state);
    if (!sl_hash_equal((sl_hash128){sum.low64, sum.high64}, hash))
        return sl_fail_at(err, SL_ERR_CORRUPT, -1, -1, offset,
                          "%s: %s, %llu bytes at %llu, does not have the checksum of the manifest; "
                          "`sluice verify` lists all damage, converting again mends it",
                          file_name, what, (unsigned long long)n, (unsigned long long)offset);
    return SL_OK;
}
