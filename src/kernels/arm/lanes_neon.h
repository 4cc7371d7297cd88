/* kernels/lanes/lanes.h in NEON (the baseline of aarch64): four registers of four lanes. */
#ifndef SL_KERNELS_ARM_LANES_NEON_H
#define SL_KERNELS_ARM_LANES_NEON_H

#include <arm_neon.h>

#include "kernels/lanes/lanes.h"

typedef struct lanes {
    float32x4_t q[4];
} lanes;

typedef struct words {
    uint32x4_t q[4];
} words;

#define L_WIDE 4

/* The same instruction on each of the four registers of its operands. */
#define L_ONE(f, a)                                                                                \
    { f((a).q[0]), f((a).q[1]), f((a).q[2]), f((a).q[3]) }
#define L_TWO(f, a, b)                                                                             \
    { f((a).q[0], (b).q[0]), f((a).q[1], (b).q[1]), f((a).q[2], (b).q[2]), f((a).q[3], (b).q[3]) }
#define L_BY(f, a, n)                                                                              \
    { f((a).q[0], n), f((a).q[1], n), f((a).q[2], n), f((a).q[3], n) }

SL_INLINE lanes l_set1(float f) {
    const float32x4_t v = vdupq_n_f32(f);
    return (lanes){{v, v, v, v}};
}
SL_INLINE lanes l_zero(void) {
    return l_set1(0.0f);
}
SL_INLINE lanes l_load(const float *p) {
    return (lanes){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
SL_INLINE void l_store(float *p, lanes v) {
    vst1q_f32(p, v.q[0]);
    vst1q_f32(p + 4, v.q[1]);
    vst1q_f32(p + 8, v.q[2]);
    vst1q_f32(p + 12, v.q[3]);
}
/* NEON has no masks: a part goes through a buffer. */
SL_INLINE lanes l_load_part(const float *p, uint32_t n) {
    if (n == SL_LANES) {
        return l_load(p);
    }
    float part[SL_LANES] = {0.0f};
    memcpy(part, p, n * sizeof(float));
    return l_load(part);
}
SL_INLINE void l_store_part(float *p, lanes v, uint32_t n) {
    if (n == SL_LANES) {
        l_store(p, v);
        return;
    }
    float part[SL_LANES];
    l_store(part, v);
    memcpy(p, part, n * sizeof(float));
}
SL_INLINE lanes l_first(uint32_t n, lanes a, lanes b) {
    const uint32_t count[4] = {0, 1, 2, 3};
    const uint32x4_t lane = vld1q_u32(count);
    lanes out;
    SL_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        const uint32x4_t from_a = vcltq_u32(vaddq_u32(lane, vdupq_n_u32(4 * i)), vdupq_n_u32(n));
        out.q[i] = vbslq_f32(from_a, a.q[i], b.q[i]);
    }
    return out;
}

SL_INLINE lanes l_add(lanes a, lanes b) {
    return (lanes){L_TWO(vaddq_f32, a, b)};
}
SL_INLINE lanes l_sub(lanes a, lanes b) {
    return (lanes){L_TWO(vsubq_f32, a, b)};
}
SL_INLINE lanes l_mul(lanes a, lanes b) {
    return (lanes){L_TWO(vmulq_f32, a, b)};
}
SL_INLINE lanes l_div(lanes a, lanes b) {
    return (lanes){L_TWO(vdivq_f32, a, b)};
}
SL_INLINE lanes l_neg(lanes a) {
    return (lanes){L_ONE(vnegq_f32, a)};
}
SL_INLINE lanes l_fma(lanes a, lanes b, lanes c) {
    return (lanes){{vfmaq_f32(c.q[0], a.q[0], b.q[0]), vfmaq_f32(c.q[1], a.q[1], b.q[1]),
                    vfmaq_f32(c.q[2], a.q[2], b.q[2]), vfmaq_f32(c.q[3], a.q[3], b.q[3])}};
}
/* vmaxq would return NaN where one operand is: the comparison is what is asked for. */
SL_INLINE float32x4_t l_max4(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
SL_INLINE float32x4_t l_min4(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
SL_INLINE lanes l_max(lanes a, lanes b) {
    return (lanes){L_TWO(l_max4, a, b)};
}
SL_INLINE lanes l_min(lanes a, lanes b) {
    return (lanes){L_TWO(l_min4, a, b)};
}

SL_INLINE float l_tree(lanes v) {
    const float32x4_t d4 = vaddq_f32(vaddq_f32(v.q[0], v.q[2]), vaddq_f32(v.q[1], v.q[3]));
    const float32x2_t d2 = vadd_f32(vget_low_f32(d4), vget_high_f32(d4));
    return vget_lane_f32(d2, 0) + vget_lane_f32(d2, 1);
}
SL_INLINE void l_tree4(float *out, const lanes v[4]) {
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = l_tree(v[i]);
    }
}

/* vcvt depends on FPCR.AHP. Exponent and fraction in their new place make a float that is 2^112 too
 * small, subnormals included; infinities and NaNs get the exponent that is theirs. */
SL_INLINE float32x4_t l_half4(uint32x4_t h) {
    const uint32x4_t magnitude = vshlq_n_u32(vandq_u32(h, vdupq_n_u32(0x7fff)), 13);
    const uint32x4_t sign = vshlq_n_u32(vandq_u32(h, vdupq_n_u32(0x8000)), 16);
    const uint32x4_t special =
        vandq_u32(vcgeq_u32(magnitude, vdupq_n_u32(0x7c00u << 13)), vdupq_n_u32(0x7f800000));
    const float32x4_t f = vmulq_f32(vreinterpretq_f32_u32(magnitude), vdupq_n_f32(0x1p112f));
    return vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(f), vorrq_u32(sign, special)));
}
SL_INLINE float32x4_t l_widen_f16(uint16x4_t halves) {
    return l_half4(vmovl_u16(halves));
}

SL_INLINE lanes l_widen(const void *p, sl_dtype dtype, size_t at, uint32_t n) {
    if (dtype == SL_DTYPE_F32) {
        return l_load_part((const float *)p + at, n);
    }
    uint16_t part[SL_LANES] = {0};
    memcpy(part, (const char *)p + at * 2, n * sizeof(uint16_t));
    const uint16x8_t lo = vld1q_u16(part);
    const uint16x8_t hi = vld1q_u16(part + 8);
    if (dtype == SL_DTYPE_BF16) {
        return (lanes){{vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)),
                        vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(lo), 16)),
                        vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)),
                        vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(hi), 16))}};
    }
    return (lanes){{l_widen_f16(vget_low_u16(lo)), l_widen_f16(vget_high_u16(lo)),
                    l_widen_f16(vget_low_u16(hi)), l_widen_f16(vget_high_u16(hi))}};
}

SL_INLINE lanes l_exponents(const void *p, uint32_t n) {
    float out[SL_LANES] = {0.0f};
    for (uint32_t i = 0; i < n; i++) {
        out[i] = sl__widen_e8m0(((const unsigned char *)p)[i]);
    }
    return l_load(out);
}

SL_INLINE lanes l_spread(const float *s, uint32_t group) {
    const uint32_t a = 32 / group; // 1, 0, 0
    const uint32_t b = 64 / group; // 2, 1, 0
    return (lanes){
        {vdupq_n_f32(s[0]), vdupq_n_f32(s[a]), vdupq_n_f32(s[b]), vdupq_n_f32(s[a + b])}};
}

SL_INLINE words w_set1(uint32_t u) {
    const uint32x4_t v = vdupq_n_u32(u);
    return (words){{v, v, v, v}};
}
/* Weights come in at any address: bytes are loaded. */
SL_INLINE uint32x4_t w_load4(const void *p) {
    return vreinterpretq_u32_u8(vld1q_u8(p));
}
SL_INLINE words w_load(const void *p) {
    const char *at = p;
    return (words){{w_load4(at), w_load4(at + 16), w_load4(at + 32), w_load4(at + 48)}};
}
SL_INLINE words w_and(words a, words b) {
    return (words){L_TWO(vandq_u32, a, b)};
}
SL_INLINE words w_add(words a, words b) {
    return (words){L_TWO(vaddq_u32, a, b)};
}
SL_INLINE words w_sub(words a, words b) {
    return (words){L_TWO(vsubq_u32, a, b)};
}
/* Shifts by a register: a negative count shifts right, and the compiler sees constants through it. */
SL_INLINE words w_shl(words a, int n) {
    const int32x4_t by = vdupq_n_s32(n);
    return (words){L_BY(vshlq_u32, a, by)};
}
SL_INLINE words w_shr(words a, int n) {
    return w_shl(a, -n);
}
SL_INLINE uint32x4_t w_sar4(uint32x4_t a, int32x4_t by) {
    return vreinterpretq_u32_s32(vshlq_s32(vreinterpretq_s32_u32(a), by));
}
SL_INLINE words w_sar(words a, int n) {
    const int32x4_t by = vdupq_n_s32(-n);
    return (words){L_BY(w_sar4, a, by)};
}
SL_INLINE words w_keep_or(words a, words mask, words bits) {
    const words kept = w_and(a, mask);
    return (words){L_TWO(vorrq_u32, kept, bits)};
}
SL_INLINE words w_bits(lanes v) {
    return (words){L_ONE(vreinterpretq_u32_f32, v)};
}
SL_INLINE lanes l_bits(words v) {
    return (lanes){L_ONE(vreinterpretq_f32_u32, v)};
}

SL_INLINE lanes l_half(words w) {
    return (lanes){L_ONE(l_half4, w)};
}

SL_INLINE void w_deal2(const void *p, words out[2]) {
    const words a = w_load(p);
    const words b = w_load((const char *)p + 64);
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        out[0].q[i] = vuzp1q_u32(a.q[2 * i], a.q[2 * i + 1]);
        out[1].q[i] = vuzp2q_u32(a.q[2 * i], a.q[2 * i + 1]);
        out[0].q[2 + i] = vuzp1q_u32(b.q[2 * i], b.q[2 * i + 1]);
        out[1].q[2 + i] = vuzp2q_u32(b.q[2 * i], b.q[2 * i + 1]);
    }
}

SL_INLINE uint32x4_t w_bytes8_pair(const unsigned char *p, size_t stride) {
    return vreinterpretq_u32_u8(vcombine_u8(vld1_u8(p), vld1_u8(p + stride)));
}
SL_INLINE void w_bytes8(const void *p, size_t stride, words out[2]) {
    SL_UNROLL
    for (int i = 0; i < 4; i++) {
        const unsigned char *at = (const unsigned char *)p + 4 * (size_t)i * stride;
        const uint32x4_t a = w_bytes8_pair(at, stride);
        const uint32x4_t b = w_bytes8_pair(at + 2 * stride, stride);
        out[0].q[i] = vuzp1q_u32(a, b);
        out[1].q[i] = vuzp2q_u32(a, b);
    }
}

SL_INLINE uint64x2_t w_wide(uint32x4_t v) {
    return vreinterpretq_u64_u32(v);
}
SL_INLINE uint32x4_t w_narrow(uint64x2_t v) {
    return vreinterpretq_u32_u64(v);
}
SL_INLINE void w_deal4(const void *p, size_t row_bytes, words out[4]) {
    SL_UNROLL
    for (int i = 0; i < 4; i++) { // four rows of four dwords at a time
        const char *rows = (const char *)p + 4 * (size_t)i * row_bytes;
        const uint32x4_t r0 = w_load4(rows);
        const uint32x4_t r1 = w_load4(rows + row_bytes);
        const uint32x4_t r2 = w_load4(rows + 2 * row_bytes);
        const uint32x4_t r3 = w_load4(rows + 3 * row_bytes);
        const uint64x2_t a = w_wide(vtrn1q_u32(r0, r1)); // dwords 0 and 2 of rows 0 and 1
        const uint64x2_t b = w_wide(vtrn2q_u32(r0, r1));
        const uint64x2_t c = w_wide(vtrn1q_u32(r2, r3));
        const uint64x2_t d = w_wide(vtrn2q_u32(r2, r3));
        out[0].q[i] = w_narrow(vtrn1q_u64(a, c));
        out[1].q[i] = w_narrow(vtrn1q_u64(b, d));
        out[2].q[i] = w_narrow(vtrn2q_u64(a, c));
        out[3].q[i] = w_narrow(vtrn2q_u64(b, d));
    }
}

#endif
