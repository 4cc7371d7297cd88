/* kernels/lanes/lanes.h in AVX2 and FMA: two registers, lanes 0-7 and 8-15. */
#ifndef SL_KERNELS_X86_LANES_AVX2_H
#define SL_KERNELS_X86_LANES_AVX2_H

#include <immintrin.h>

#include "kernels/lanes/lanes.h"

typedef struct lanes {
    __m256 lo, hi;
} lanes;

typedef struct words {
    __m256i lo, hi;
} words;

#define L_WIDE 4

/* All ones in the first n of 8 dwords; any n. */
SL_INLINE __m256i l_mask8(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

SL_INLINE lanes l_set1(float f) {
    return (lanes){_mm256_set1_ps(f), _mm256_set1_ps(f)};
}
SL_INLINE lanes l_zero(void) {
    return l_set1(0.0f);
}
SL_INLINE lanes l_load(const float *p) {
    return (lanes){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SL_INLINE void l_store(float *p, lanes v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
SL_INLINE lanes l_load_part(const float *p, uint32_t n) {
    return (lanes){_mm256_maskload_ps(p, l_mask8((int32_t)n)),
                   _mm256_maskload_ps(p + 8, l_mask8((int32_t)n - 8))};
}
SL_INLINE void l_store_part(float *p, lanes v, uint32_t n) {
    _mm256_maskstore_ps(p, l_mask8((int32_t)n), v.lo);
    _mm256_maskstore_ps(p + 8, l_mask8((int32_t)n - 8), v.hi);
}
SL_INLINE lanes l_first(uint32_t n, lanes a, lanes b) {
    const __m256 lo = _mm256_castsi256_ps(l_mask8((int32_t)n));
    const __m256 hi = _mm256_castsi256_ps(l_mask8((int32_t)n - 8));
    return (lanes){_mm256_blendv_ps(b.lo, a.lo, lo), _mm256_blendv_ps(b.hi, a.hi, hi)};
}

SL_INLINE lanes l_add(lanes a, lanes b) {
    return (lanes){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
SL_INLINE lanes l_sub(lanes a, lanes b) {
    return (lanes){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
SL_INLINE lanes l_mul(lanes a, lanes b) {
    return (lanes){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
SL_INLINE lanes l_div(lanes a, lanes b) {
    return (lanes){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
SL_INLINE lanes l_fma(lanes a, lanes b, lanes c) {
    return (lanes){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
SL_INLINE lanes l_neg(lanes a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (lanes){_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
SL_INLINE lanes l_max(lanes a, lanes b) {
    return (lanes){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
SL_INLINE lanes l_min(lanes a, lanes b) {
    return (lanes){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

SL_INLINE float l_tree(lanes v) {
    const __m256 d8 = _mm256_add_ps(v.lo, v.hi);
    const __m128 d4 = _mm_add_ps(_mm256_castps256_ps128(d8), _mm256_extractf128_ps(d8, 1));
    const __m128 d2 = _mm_add_ps(d4, _mm_movehl_ps(d4, d4));
    return _mm_cvtss_f32(_mm_add_ss(d2, _mm_movehdup_ps(d2)));
}

/* Four trees at once, of vectors whose step d = 8 is done: the same pairs of lanes as l_tree. */
SL_INLINE __m128 l_tree4_sums(__m256 v0, __m256 v1, __m256 v2, __m256 v3) {
    const __m256 v01 =
        _mm256_add_ps(_mm256_permute2f128_ps(v0, v1, 0x20), _mm256_permute2f128_ps(v0, v1, 0x31));
    const __m256 v23 =
        _mm256_add_ps(_mm256_permute2f128_ps(v2, v3, 0x20), _mm256_permute2f128_ps(v2, v3, 0x31));
    // per 128-bit part: {0+2, 1+3} of v0, then of v2 (v1 and v3 in the upper part)
    const __m256 d2 =
        _mm256_add_ps(_mm256_shuffle_ps(v01, v23, 0x44), _mm256_shuffle_ps(v01, v23, 0xee));
    const __m256 d1 = _mm256_add_ps(d2, _mm256_permute_ps(d2, 0xb1));
    return _mm_unpacklo_ps(_mm_permute_ps(_mm256_castps256_ps128(d1), 0x08),
                           _mm_permute_ps(_mm256_extractf128_ps(d1, 1), 0x08));
}
SL_INLINE void l_tree4(float *out, const lanes v[4]) {
    _mm_storeu_ps(out,
                  l_tree4_sums(_mm256_add_ps(v[0].lo, v[0].hi), _mm256_add_ps(v[1].lo, v[1].hi),
                               _mm256_add_ps(v[2].lo, v[2].hi), _mm256_add_ps(v[3].lo, v[3].hi)));
}

SL_INLINE __m256 l_widen_bf16(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
/* F16C is not part of the level. Exponent and fraction in their new place make a float that is 2^112 too
 * small, subnormals included; infinities and NaNs get the exponent that is theirs. */
SL_INLINE __m256 l_half8(__m256i h) {
    const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(0x7fff)), 13);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(h, _mm256_set1_epi32(0x8000)), 16);
    const __m256i last_finite = _mm256_set1_epi32((0x7c00 << 13) - 1);
    const __m256i special =
        _mm256_and_si256(_mm256_cmpgt_epi32(magnitude, last_finite), _mm256_set1_epi32(0x7f800000));
    const __m256 f = _mm256_mul_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(0x1p112f));
    return _mm256_or_ps(f, _mm256_castsi256_ps(_mm256_or_si256(sign, special)));
}
SL_INLINE __m256 l_widen_f16(__m128i halves) {
    return l_half8(_mm256_cvtepu16_epi32(halves));
}

/* n 16-bit elements, 1 <= n <= 16, then zeros: dwords are loaded under a mask, and the last element,
 * which may be half a dword, is put in by itself. */
SL_INLINE __m256i w_load_halves(const char *p, uint32_t n) {
    const __m256i place = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i pairs = _mm256_maskload_epi32((const int *)p, l_mask8((int32_t)(n / 2)));
    uint16_t last;
    memcpy(&last, p + (n - 1) * 2, sizeof(last));
    const __m256i only_last = _mm256_cmpeq_epi16(place, _mm256_set1_epi16((short)(n - 1)));
    return _mm256_or_si256(pairs, _mm256_and_si256(only_last, _mm256_set1_epi16((short)last)));
}
SL_INLINE lanes l_widen(const void *p, sl_dtype dtype, size_t at, uint32_t n) {
    if (dtype == SL_DTYPE_F32) {
        return l_load_part((const float *)p + at, n);
    }
    const char *from = (const char *)p + at * 2;
    const __m256i halves =
        n == 16 ? _mm256_loadu_si256((const __m256i *)from) : w_load_halves(from, n);
    if (dtype == SL_DTYPE_BF16) {
        return (lanes){l_widen_bf16(_mm256_castsi256_si128(halves)),
                       l_widen_bf16(_mm256_extracti128_si256(halves, 1))};
    }
    return (lanes){l_widen_f16(_mm256_castsi256_si128(halves)),
                   l_widen_f16(_mm256_extracti128_si256(halves, 1))};
}

/* n of 8 exponents, n <= 8; what is missing becomes +0. */
SL_INLINE __m256 l_exponents8(__m128i bytes, int32_t n) {
    const __m256i e = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    const __m256i least = _mm256_set1_epi32(0x00400000); // 2^-127
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_max_epi32(e, least), l_mask8(n)));
}
/* n bytes, n < 16, then zeros. Not through a buffer: its load would wait for narrower stores. */
SL_INLINE __m128i w_load_bytes(const unsigned char *p, uint32_t n) {
    const uint32_t whole = n / 4; // dwords
    const __m128i first =
        _mm_maskload_epi32((const int *)p, _mm256_castsi256_si128(l_mask8((int32_t)whole)));
    uint32_t rest = 0;
    for (uint32_t i = n; i > 4 * whole; i--) {
        rest = rest << 8 | p[i - 1];
    }
    const __m128i place = _mm_cmpeq_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32((int)whole));
    return _mm_or_si128(first, _mm_and_si128(place, _mm_set1_epi32((int)rest)));
}
SL_INLINE lanes l_exponents(const void *p, uint32_t n) {
    const __m128i bytes = n == 16 ? _mm_loadu_si128(p) : w_load_bytes(p, n);
    return (lanes){l_exponents8(bytes, (int32_t)n),
                   l_exponents8(_mm_srli_si128(bytes, 8), (int32_t)n - 8)};
}

SL_INLINE lanes l_spread(const float *s, uint32_t group) {
    if (group == 128) {
        return l_set1(s[0]);
    }
    if (group == 64) {
        return (lanes){_mm256_set1_ps(s[0]), _mm256_set1_ps(s[1])};
    }
    return (lanes){_mm256_set_m128(_mm_set1_ps(s[1]), _mm_set1_ps(s[0])),
                   _mm256_set_m128(_mm_set1_ps(s[3]), _mm_set1_ps(s[2]))};
}

SL_INLINE words w_set1(uint32_t u) {
    return (words){_mm256_set1_epi32((int)u), _mm256_set1_epi32((int)u)};
}
SL_INLINE words w_load(const void *p) {
    return (words){_mm256_loadu_si256((const __m256i *)p),
                   _mm256_loadu_si256((const __m256i *)((const char *)p + 32))};
}
SL_INLINE words w_and(words a, words b) {
    return (words){_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
SL_INLINE words w_add(words a, words b) {
    return (words){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
SL_INLINE words w_sub(words a, words b) {
    return (words){_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
SL_INLINE words w_shl(words a, int n) {
    return (words){_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}
SL_INLINE words w_shr(words a, int n) {
    return (words){_mm256_srli_epi32(a.lo, n), _mm256_srli_epi32(a.hi, n)};
}
SL_INLINE words w_sar(words a, int n) {
    return (words){_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
}
SL_INLINE words w_keep_or(words a, words mask, words bits) {
    return (words){_mm256_or_si256(_mm256_and_si256(a.lo, mask.lo), bits.lo),
                   _mm256_or_si256(_mm256_and_si256(a.hi, mask.hi), bits.hi)};
}
SL_INLINE words w_bits(lanes v) {
    return (words){_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)};
}
SL_INLINE lanes l_bits(words v) {
    return (lanes){_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)};
}

SL_INLINE lanes l_half(words w) {
    return (lanes){l_half8(w.lo), l_half8(w.hi)};
}

/* 16 bytes at p and 16 at q, in the two parts of one register. */
SL_INLINE __m256i w_pair(const char *p, const char *q) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                                   _mm_loadu_si128((const __m128i *)q), 1);
}

SL_INLINE void w_deal2_half(const char *p, __m256i *even, __m256i *odd) {
    const __m256 a = _mm256_castsi256_ps(w_pair(p, p + 32));      // dwords 0-3, 8-11
    const __m256 b = _mm256_castsi256_ps(w_pair(p + 16, p + 48)); // dwords 4-7, 12-15
    *even = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    *odd = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
}
SL_INLINE void w_deal2(const void *p, words out[2]) {
    w_deal2_half(p, &out[0].lo, &out[1].lo);
    w_deal2_half((const char *)p + 64, &out[0].hi, &out[1].hi);
}

SL_INLINE __m128i w_bytes8_pair(const char *p, size_t stride) {
    const __m128i first = _mm_loadl_epi64((const __m128i *)p);
    return _mm_unpacklo_epi64(first, _mm_loadl_epi64((const __m128i *)(p + stride)));
}
SL_INLINE void w_bytes8_half(const char *p, size_t stride, __m256i *low, __m256i *high) {
    const __m256i a = _mm256_set_m128i(w_bytes8_pair(p + 4 * stride, stride),
                                       w_bytes8_pair(p, stride)); // lanes 0, 1 and 4, 5
    const __m256i b = _mm256_set_m128i(w_bytes8_pair(p + 6 * stride, stride),
                                       w_bytes8_pair(p + 2 * stride, stride));
    const __m256 af = _mm256_castsi256_ps(a);
    const __m256 bf = _mm256_castsi256_ps(b);
    *low = _mm256_castps_si256(_mm256_shuffle_ps(af, bf, 0x88));
    *high = _mm256_castps_si256(_mm256_shuffle_ps(af, bf, 0xdd));
}
SL_INLINE void w_bytes8(const void *p, size_t stride, words out[2]) {
    w_bytes8_half(p, stride, &out[0].lo, &out[1].lo);
    w_bytes8_half((const char *)p + 8 * stride, stride, &out[0].hi, &out[1].hi);
}

SL_INLINE void w_deal4_half(const char *p, size_t row_bytes, __m256i out[4]) {
    const __m256i r0 = w_pair(p, p + 4 * row_bytes);
    const __m256i r1 = w_pair(p + row_bytes, p + 5 * row_bytes);
    const __m256i r2 = w_pair(p + 2 * row_bytes, p + 6 * row_bytes);
    const __m256i r3 = w_pair(p + 3 * row_bytes, p + 7 * row_bytes);
    const __m256i a = _mm256_unpacklo_epi32(r0, r1);
    const __m256i b = _mm256_unpackhi_epi32(r0, r1);
    const __m256i c = _mm256_unpacklo_epi32(r2, r3);
    const __m256i d = _mm256_unpackhi_epi32(r2, r3);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
}
SL_INLINE void w_deal4(const void *p, size_t row_bytes, words out[4]) {
    __m256i lo[4], hi[4];
    w_deal4_half(p, row_bytes, lo);
    w_deal4_half((const char *)p + 8 * row_bytes, row_bytes, hi);
    SL_UNROLL
    for (int t = 0; t < 4; t++) {
        out[t] = (words){lo[t], hi[t]};
    }
}

#endif
