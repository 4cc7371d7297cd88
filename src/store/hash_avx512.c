/* See hash.c. The library's code, compiled for AVX-512: the same hash. */
#include <xxhash.h>

#include "store/store_internal.h"

sl_hash128 sl__hash_avx512(const void *bytes, size_t n) {
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (sl_hash128){h.low64, h.high64};
}
