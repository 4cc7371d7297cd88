/* Exact widening of small floats, and unaligned little-endian loads. Weights come from files, so
 * nothing here assumes an alignment. */
#ifndef SL_KERNELS_REF_WIDEN_H
#define SL_KERNELS_REF_WIDEN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

static inline float sl__float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t sl__bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

static inline float sl__widen_bf16(uint16_t h) {
    return sl__float_of_bits((uint32_t)h << 16);
}

static inline float sl__widen_f16(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = h >> 10 & 0x1fu;
    const uint32_t fraction = h & 0x3ffu;
    if (exponent == 0x1f) { // infinity, NaN
        return sl__float_of_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) { // zero, subnormal: fraction * 2^-24, exact in f32
        const float magnitude = (float)fraction * 0x1p-24f;
        return sl__float_of_bits(sign | sl__bits_of_float(magnitude));
    }
    return sl__float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* 2^(e - 127), for e = 0 a subnormal. 255 is no scale and comes out infinite. */
static inline float sl__widen_e8m0(uint8_t e) {
    return sl__float_of_bits(e == 0 ? 0x00400000u : (uint32_t)e << 23);
}

/* E2M1: bit 3 the sign, bits 2 and 1 the exponent, bit 0 the fraction. */
static inline float sl__widen_fp4(uint32_t code) {
    static const float values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                     -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    return values[code];
}

/* Element `at` of an array of F32, F16 or BF16, as f32. */
static inline float sl__widen(const void *array, sl_dtype dtype, size_t at) {
    if (dtype == SL_DTYPE_F32) {
        float f;
        memcpy(&f, (const char *)array + at * 4, sizeof(f));
        return f;
    }
    uint16_t h;
    memcpy(&h, (const char *)array + at * 2, sizeof(h));
    return dtype == SL_DTYPE_BF16 ? sl__widen_bf16(h) : sl__widen_f16(h);
}

#endif
