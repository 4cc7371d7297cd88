/* MLX's affine quantizer and float16 types, see quantize.h. Written so that compilers vectorize the loops
 * over a group without being allowed to change a bit. */
#include "convert/quantize.h"

#include <math.h>
#include <string.h>

#define GROUP_MAX 128u
#define LANES 8u

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static float float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static float widen_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31)
        return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f; // subnormal or zero: exact
    return sign ? -tiny : tiny;
}

static uint16_t narrow_f16(float f) {
    uint32_t u = bits_of(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) // 65520 and more round to infinity
        return (uint16_t)(sign | 0x7c00);
    if (magnitude >= 0x38800000) {
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
    }
    // Subnormal: the addition puts the last bit that is kept at the unit of 0.5 in f32 and rounds there.
    uint32_t tiny = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    return (uint16_t)(sign | tiny);
}

static uint16_t narrow_bf16(float f) {
    uint32_t u = bits_of(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void sl_widen(const void *in, sl_dtype dtype, size_t n, float *out) {
    if (dtype == SL_DTYPE_F32) {
        memcpy(out, in, n * sizeof(*out));
        return;
    }
    const uint8_t *p = in;
    bool bf16 = dtype == SL_DTYPE_BF16;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof(h));
        out[i] = bf16 ? float_of((uint32_t)h << 16) : widen_f16(h);
    }
}

void sl_narrow(const float *in, sl_dtype dtype, size_t n, void *out) {
    if (dtype == SL_DTYPE_F32) {
        memcpy(out, in, n * sizeof(*in));
        return;
    }
    uint8_t *p = out;
    bool bf16 = dtype == SL_DTYPE_BF16;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = bf16 ? narrow_bf16(in[i]) : narrow_f16(in[i]);
        memcpy(p + 2 * i, &h, sizeof(h));
    }
}

bool sl_all_finite(const void *in, sl_dtype dtype, size_t n) {
    const uint8_t *p = in;
    size_t size = dtype == SL_DTYPE_F32 ? 4 : 2;
    uint32_t mask = dtype == SL_DTYPE_F32 ? 0x7f800000 : dtype == SL_DTYPE_BF16 ? 0x7f80 : 0x7c00;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = 0;
        memcpy(&u, p + size * i, size); // little-endian, as the files are
        if ((u & mask) == mask)
            return false;
    }
    return true;
}

/* Codes 8 at a time are `bits` whole bytes, least significant code first. */
static void pack(const uint8_t *q, uint32_t n, unsigned bits, uint8_t *out) {
    for (uint32_t i = 0; i < n; i += 8, out += bits) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8; k++)
            word |= (uint64_t)q[i + k] << (bits * k);
        for (unsigned k = 0; k < bits; k++)
            out[k] = (uint8_t)(word >> (8 * k));
    }
}

// One group; false when something is not finite.
static bool quantize_group(const float *w, uint32_t n, unsigned bits, uint8_t *codes,
                           float *scale_out, float *bias_out) {
    float low[LANES], high[LANES];
    uint32_t wild[LANES] = {0};
    for (unsigned j = 0; j < LANES; j++)
        low[j] = high[j] = w[j];
    for (uint32_t i = 0; i < n; i += LANES) {
        for (unsigned j = 0; j < LANES; j++) {
            float v = w[i + j];
            low[j] = v < low[j] ? v : low[j];
            high[j] = v > high[j] ? v : high[j];
            wild[j] |= (bits_of(v) & 0x7f800000) == 0x7f800000;
        }
    }
    float min = low[0], max = high[0];
    uint32_t any = wild[0];
    for (unsigned j = 1; j < LANES; j++) {
        min = low[j] < min ? low[j] : min;
        max = high[j] > max ? high[j] : max;
        any |= wild[j];
    }
    float steps = (float)((1u << bits) - 1), scale = (max - min) / steps, bias = 0;
    if (any || !isfinite(scale))
        return false;
    scale = scale > 1e-7f ? scale : 1e-7f;
    bool below = fabsf(min) > fabsf(max);
    float edge = below ? min : max;
    scale = below ? scale : -scale;
    float q0 = rintf(edge / scale);
    if (q0 != 0) {
        scale = edge / q0;
        bias = edge;
    }
    uint8_t q[GROUP_MAX];
    for (uint32_t i = 0; i < n; i++) {
        // Clamping before rounding gives the same code, as 0 and steps are whole; then adding and
        // subtracting 1.5 * 2^23 rounds to even without a call.
        float c = (w[i] - bias) / scale;
        c = c > 0 ? c : 0;
        c = c < steps ? c : steps;
        q[i] = (uint8_t)(int32_t)((c + 12582912.0f) - 12582912.0f);
    }
    pack(q, n, bits, codes);
    *scale_out = scale;
    *bias_out = bias;
    return true;
}

bool sl_quantize_rows(const float *w, uint32_t rows, const sl_matrix_shape *shape, void *codes,
                      void *scales, void *biases) {
    unsigned bits = sl_dtype_bits(shape->dtype);
    size_t size = sl_dtype_bits(shape->scale_dtype) / 8,
           n_groups = (size_t)rows * (shape->cols / shape->group);
    for (size_t i = 0; i < n_groups; i++) {
        float scale, bias;
        if (!quantize_group(w + i * shape->group, shape->group, bits,
                            (uint8_t *)codes + i * shape->group * bits / 8, &scale, &bias))
            return false;
        sl_narrow(&scale, shape->scale_dtype, 1, (uint8_t *)scales + i * size);
        sl_narrow(&bias, shape->scale_dtype, 1, (uint8_t *)biases + i * size);
    }
    return true;
}
