/* kernels/lanes/lanes.h in AVX-512 (F, BW, DQ, VL): one register. */
#ifndef SL_KERNELS_X86_LANES_AVX512_H
#define SL_KERNELS_X86_LANES_AVX512_H

#include <immintrin.h>

#include "kernels/lanes/lanes.h"

typedef __m512 lanes;
typedef __m512i words;

#define L_WIDE 8

SL_INLINE __mmask16 l_mask(uint32_t n) {
    return (__mmask16)((1u << n) - 1);
}

SL_INLINE lanes l_zero(void) {
    return _mm512_setzero_ps();
}
SL_INLINE lanes l_set1(float f) {
    return _mm512_set1_ps(f);
}
SL_INLINE lanes l_load(const float *p) {
    return _mm512_loadu_ps(p);
}
SL_INLINE void l_store(float *p, lanes v) {
    _mm512_storeu_ps(p, v);
}
SL_INLINE lanes l_load_part(const float *p, uint32_t n) {
    return _mm512_maskz_loadu_ps(l_mask(n), p);
}
SL_INLINE void l_store_part(float *p, lanes v, uint32_t n) {
    _mm512_mask_storeu_ps(p, l_mask(n), v);
}
SL_INLINE lanes l_first(uint32_t n, lanes a, lanes b) {
    return _mm512_mask_blend_ps(l_mask(n), b, a);
}

SL_INLINE lanes l_add(lanes a, lanes b) {
    return _mm512_add_ps(a, b);
}
SL_INLINE lanes l_sub(lanes a, lanes b) {
    return _mm512_sub_ps(a, b);
}
SL_INLINE lanes l_mul(lanes a, lanes b) {
    return _mm512_mul_ps(a, b);
}
SL_INLINE lanes l_div(lanes a, lanes b) {
    return _mm512_div_ps(a, b);
}
SL_INLINE lanes l_fma(lanes a, lanes b, lanes c) {
    return _mm512_fmadd_ps(a, b, c);
}
SL_INLINE lanes l_neg(lanes a) {
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
SL_INLINE lanes l_max(lanes a, lanes b) {
    return _mm512_max_ps(a, b);
}
SL_INLINE lanes l_min(lanes a, lanes b) {
    return _mm512_min_ps(a, b);
}

SL_INLINE float l_tree(lanes v) {
    const __m256 d8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 d4 = _mm_add_ps(_mm256_castps256_ps128(d8), _mm256_extractf128_ps(d8, 1));
    const __m128 d2 = _mm_add_ps(d4, _mm_movehl_ps(d4, d4));
    return _mm_cvtss_f32(_mm_add_ss(d2, _mm_movehdup_ps(d2)));
}

/* Four trees at once: each step adds the same pairs of lanes as l_tree. */
SL_INLINE __m128 l_tree4_sums(lanes v0, lanes v1, lanes v2, lanes v3) {
    const __m512 v01 =
        _mm512_add_ps(_mm512_shuffle_f32x4(v0, v1, 0x44), _mm512_shuffle_f32x4(v0, v1, 0xee));
    const __m512 v23 =
        _mm512_add_ps(_mm512_shuffle_f32x4(v2, v3, 0x44), _mm512_shuffle_f32x4(v2, v3, 0xee));
    // 128-bit part k: the four lanes that are left of v[k]
    const __m512 d4 =
        _mm512_add_ps(_mm512_shuffle_f32x4(v01, v23, 0x88), _mm512_shuffle_f32x4(v01, v23, 0xdd));
    const __m512 d2 = _mm512_add_ps(d4, _mm512_permute_ps(d4, 0x4e));
    const __m512 d1 = _mm512_add_ps(d2, _mm512_permute_ps(d2, 0xb1));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, d1));
}
SL_INLINE void l_tree4(float *out, const lanes v[4]) {
    _mm_storeu_ps(out, l_tree4_sums(v[0], v[1], v[2], v[3]));
}

SL_INLINE lanes l_widen(const void *p, sl_dtype dtype, size_t at, uint32_t n) {
    const __mmask16 mask = l_mask(n);
    if (dtype == SL_DTYPE_F32) {
        return _mm512_maskz_loadu_ps(mask, (const char *)p + at * 4);
    }
    const __m256i halves = _mm256_maskz_loadu_epi16(mask, (const char *)p + at * 2);
    if (dtype == SL_DTYPE_F16) {
        return _mm512_cvtph_ps(halves);
    }
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

SL_INLINE lanes l_exponents(const void *p, uint32_t n) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(l_mask(n), p));
    const __m512i least = _mm512_set1_epi32(0x00400000); // 2^-127
    return _mm512_castsi512_ps(_mm512_maskz_max_epi32(l_mask(n), _mm512_slli_epi32(e, 23), least));
}

SL_INLINE lanes l_spread(const float *s, uint32_t group) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_srli_epi32(lane, group == 128 ? 4 : group == 64 ? 3 : 2);
    return _mm512_permutexvar_ps(index, _mm512_castps128_ps512(_mm_loadu_ps(s)));
}

SL_INLINE words w_set1(uint32_t u) {
    return _mm512_set1_epi32((int)u);
}
SL_INLINE words w_load(const void *p) {
    return _mm512_loadu_si512(p);
}
SL_INLINE words w_and(words a, words b) {
    return _mm512_and_si512(a, b);
}
SL_INLINE words w_add(words a, words b) {
    return _mm512_add_epi32(a, b);
}
SL_INLINE words w_sub(words a, words b) {
    return _mm512_sub_epi32(a, b);
}
SL_INLINE words w_shl(words a, int n) {
    return _mm512_slli_epi32(a, (unsigned)n);
}
SL_INLINE words w_shr(words a, int n) {
    return _mm512_srli_epi32(a, (unsigned)n);
}
SL_INLINE words w_sar(words a, int n) {
    return _mm512_srai_epi32(a, (unsigned)n);
}
SL_INLINE words w_keep_or(words a, words mask, words bits) {
    return _mm512_ternarylogic_epi32(a, mask, bits, 0xea);
}
SL_INLINE words w_bits(lanes v) {
    return _mm512_castps_si512(v);
}
SL_INLINE lanes l_bits(words v) {
    return _mm512_castsi512_ps(v);
}

SL_INLINE lanes l_half(words w) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w));
}

/* Dwords 2i and 2i+1 of two registers. */
SL_INLINE void w_uneven(__m512i a, __m512i b, words out[2]) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    out[0] = _mm512_permutex2var_epi32(a, even, b);
    out[1] = _mm512_permutex2var_epi32(a, odd, b);
}

SL_INLINE void w_deal2(const void *p, words out[2]) {
    w_uneven(_mm512_loadu_si512(p), _mm512_loadu_si512((const char *)p + 64), out);
}

SL_INLINE __m128i w_bytes8_pair(const char *p, size_t stride) {
    const __m128i first = _mm_loadl_epi64((const __m128i *)p);
    return _mm_unpacklo_epi64(first, _mm_loadl_epi64((const __m128i *)(p + stride)));
}
SL_INLINE __m512i w_bytes8_half(const char *p, size_t stride) {
    const __m512i v = _mm512_castsi128_si512(w_bytes8_pair(p, stride));
    const __m512i v1 = _mm512_inserti32x4(v, w_bytes8_pair(p + 2 * stride, stride), 1);
    const __m512i v2 = _mm512_inserti32x4(v1, w_bytes8_pair(p + 4 * stride, stride), 2);
    return _mm512_inserti32x4(v2, w_bytes8_pair(p + 6 * stride, stride), 3);
}
SL_INLINE void w_bytes8(const void *p, size_t stride, words out[2]) {
    w_uneven(w_bytes8_half(p, stride), w_bytes8_half((const char *)p + 8 * stride, stride), out);
}

/* Rows m, 4+m, 8+m and 12+m in the four parts of one register. */
SL_INLINE __m512i w_rows(const char *p, size_t row_bytes) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 4 * row_bytes)), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 8 * row_bytes)), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 12 * row_bytes)), 3);
}
SL_INLINE void w_deal4(const void *p, size_t row_bytes, words out[4]) {
    const char *at = p;
    const __m512i r0 = w_rows(at, row_bytes);
    const __m512i r1 = w_rows(at + row_bytes, row_bytes);
    const __m512i r2 = w_rows(at + 2 * row_bytes, row_bytes);
    const __m512i r3 = w_rows(at + 3 * row_bytes, row_bytes);
    const __m512i a = _mm512_unpacklo_epi32(r0, r1);
    const __m512i b = _mm512_unpackhi_epi32(r0, r1);
    const __m512i c = _mm512_unpacklo_epi32(r2, r3);
    const __m512i d = _mm512_unpackhi_epi32(r2, r3);
    out[0] = _mm512_unpacklo_epi64(a, c);
    out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d);
    out[3] = _mm512_unpackhi_epi64(b, d);
}

#endif
