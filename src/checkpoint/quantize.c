/* MLX's affine quantizer and float16 types, see quantize.h. Written so that compilers vectorize the loops
 * over a group without being allowed to change a bit. */
#include "checkpoint/quantize.h"

#include <math.h>
#include <string.h>

#include "kernels/ref/fma.h"

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

// 1-4-3 with bias 7; all ones is NaN, infinities do not exist.
static float widen_f8(uint8_t u) {
    uint32_t sign = (uint32_t)(u & 0x80) << 24, exponent = u >> 3 & 15, mantissa = u & 7;
    uint32_t magnitude = exponent ? (exponent + 120) << 23 | mantissa << 20
                                  : bits_of((float)mantissa * 0x1p-9f); // exact
    return float_of(sign | ((u & 0x7f) == 0x7f ? 0x7fc00000 : magnitude));
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
    if (dtype == SL_DTYPE_F8_E4M3) {
        for (size_t i = 0; i < n; i++)
            out[i] = widen_f8(p[i]);
        return;
    }
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
    uint32_t wild = 0; // counted without leaving the loop, which vectorizes
    if (dtype == SL_DTYPE_F32) {
        for (size_t i = 0; i < n; i++) {
            uint32_t u;
            memcpy(&u, p + 4 * i, sizeof(u));
            wild |= (u & 0x7f800000) == 0x7f800000;
        }
        return wild == 0;
    }
    if (dtype == SL_DTYPE_F8_E4M3) {
        for (size_t i = 0; i < n; i++)
            wild |= (p[i] & 0x7f) == 0x7f;
        return wild == 0;
    }
    uint16_t mask = dtype == SL_DTYPE_BF16 ? 0x7f80 : 0x7c00;
    for (size_t i = 0; i < n; i++) {
        uint16_t u;
        memcpy(&u, p + 2 * i, sizeof(u));
        wild |= (u & mask) == mask;
    }
    return wild == 0;
}

bool sl_widen_f8_tiles(const void *in, uint32_t first_row, uint32_t rows, uint32_t cols,
                       const void *scales, sl_dtype scale_dtype, float *out) {
    const size_t n_tiles = ((size_t)cols + SL_F8_TILE - 1) / SL_F8_TILE,
                 scale_bytes = sl_dtype_bits(scale_dtype) / 8;
    sl_widen(in, SL_DTYPE_F8_E4M3, (size_t)rows * cols, out);
    for (uint32_t r = 0; r < rows; r++) {
        const size_t row_tiles = ((size_t)first_row + r) / SL_F8_TILE * n_tiles;
        float *row = out + (size_t)r * cols;
        for (uint32_t first = 0; first < cols; first += SL_F8_TILE) {
            const uint32_t end = SL_MIN(first + SL_F8_TILE, cols);
            float scale;
            sl_widen((const uint8_t *)scales + (row_tiles + first / SL_F8_TILE) * scale_bytes,
                     scale_dtype, 1, &scale);
            for (uint32_t c = first; c < end; c++)
                row[c] *= scale;
        }
    }
    return sl_all_finite(out, SL_DTYPE_F32, (size_t)rows * cols);
}

/* Codes 8 at a time are `bits` whole bytes, least significant code first. Inlined with constant bits. */
static inline void pack_bits(const uint8_t *q, uint32_t n, unsigned bits, uint8_t *out) {
    for (uint32_t i = 0; i < n; i += 8, out += bits) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8; k++)
            word |= (uint64_t)q[i + k] << (bits * k);
        for (unsigned k = 0; k < bits; k++)
            out[k] = (uint8_t)(word >> (8 * k));
    }
}

static void pack(const uint8_t *q, uint32_t n, unsigned bits, uint8_t *out) {
    switch (bits) {
    case 2:
        pack_bits(q, n, 2, out);
        break;
    case 3:
        pack_bits(q, n, 3, out);
        break;
    case 4:
        pack_bits(q, n, 4, out);
        break;
    case 5:
        pack_bits(q, n, 5, out);
        break;
    case 6:
        pack_bits(q, n, 6, out);
        break;
    default:
        memcpy(out, q, n);
        break;
    }
}

/* Clamping before rounding gives the same code, as 0 and steps are whole. Adding 1.5 * 2^23 then rounds to
 * even, and leaves the code in the last bits. */
static void encode(const float *restrict w, uint32_t n, float scale, float bias, float steps,
                   uint8_t *restrict q) {
    for (uint32_t i = 0; i < n; i++) {
        float c = (w[i] - bias) / scale;
        c = c > 0 ? c : 0;
        c = c < steps ? c : steps;
        q[i] = (uint8_t)bits_of(c + 12582912.0f);
    }
}

static void range(const float *w, uint32_t n, float *min, float *max) {
    float low[LANES], high[LANES];
    for (unsigned j = 0; j < LANES; j++)
        low[j] = high[j] = w[j];
    for (uint32_t i = LANES; i < n; i += LANES) {
        for (unsigned j = 0; j < LANES; j++) {
            float v = w[i + j];
            low[j] = v < low[j] ? v : low[j];
            high[j] = v > high[j] ? v : high[j];
        }
    }
    for (unsigned j = 1; j < LANES; j++) {
        low[0] = low[j] < low[0] ? low[j] : low[0];
        high[0] = high[j] > high[0] ? high[j] : high[0];
    }
    *min = low[0];
    *max = high[0];
}

// One group; false when something is not finite.
static bool quantize_group(const float *w, uint32_t n, unsigned bits, uint8_t *codes,
                           float *scale_out, float *bias_out) {
    float min, max, steps = (float)((1u << bits) - 1), bias = 0;
    if (!sl_all_finite(w, SL_DTYPE_F32, n))
        return false;
    range(w, n, &min, &max);
    float scale = (max - min) / steps;
    if (!isfinite(scale))
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
    uint8_t q[GROUP_MAX] = {0};
    encode(w, n, scale, bias, steps, q);
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

void sl_dequantize_rows(const void *codes, const void *scales, const void *biases,
                        const sl_matrix_shape *shape, float *out) {
    const unsigned bits = sl_dtype_bits(shape->dtype);
    const size_t size = sl_dtype_bits(shape->scale_dtype) / 8, group = shape->group,
                 n_groups = (size_t)shape->rows * (shape->cols / group);
    const uint8_t *from = codes;
    for (size_t i = 0; i < n_groups; i++) {
        float scale, bias;
        sl_widen((const uint8_t *)scales + i * size, shape->scale_dtype, 1, &scale);
        sl_widen((const uint8_t *)biases + i * size, shape->scale_dtype, 1, &bias);
        // 8 codes are `bits` whole bytes, as in pack_bits().
        for (size_t k = 0; k < group; k += 8, from += bits, out += 8) {
            uint64_t word = 0;
            for (unsigned b = 0; b < bits; b++)
                word |= (uint64_t)from[b] << (8 * b);
            for (unsigned j = 0; j < 8; j++)
                out[j] = sl__fmaf((float)(word >> (bits * j) & ((1u << bits) - 1)), scale, bias);
        }
    }
}
