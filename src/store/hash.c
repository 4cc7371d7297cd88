/* XXH3-128 of a block, with the widest registers of the machine: a record is hashed after every read. */
#include <xxhash.h>

#include "store/store_internal.h"

sl_hash128 sl_hash(const void *bytes, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return sl__hash_avx512(bytes, n);
    if (__builtin_cpu_supports("avx2"))
        return sl__hash_avx2(bytes, n);
#endif
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (sl_hash128){h.low64, h.high64};
}
