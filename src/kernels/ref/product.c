/* Reference: products of a weight matrix with packed columns, and single rows widened.
 *
 * Every weight type is one story: lane i of block b owns inputs 128b + 8i .. 128b + 8i + 7. Its eight
 * products are chained, p = w_0 x_0, p = fmaf(w_j, x_j, p), and the lane takes p in once per block:
 *   affine  w_j = code - C with C = 2^(bits-1);  a = fmaf(scale, p, a)
 *   mxfp4   w_j the code's value, E2M1;          a = fmaf(2^(scale - 127), p, a)
 *   dense   w_j the weight itself;               a = a + p
 * Affine lanes start from the biases: a_{g mod 16} = fmaf(B_g, xsum_g, a_{g mod 16}), g ascending from
 * +0, B_g = fmaf(C, scale_g, bias_g); the others from +0. What lies past the last input counts as x = +0
 * with w_j = +0 and scale +0. */
#include <string.h>

#include "kernels/ref/ref.h"
#include "kernels/ref/widen.h"

/* One block of one column as the table's caller packed it. */
typedef struct ref_column {
    const float *x; /* lane 0 of step 0 of block 0 */
    size_t step;    /* floats from one step to the next */
} ref_column;

static ref_column ref_column_of(const sl_columns *x, uint32_t column) {
    const uint32_t first = column / SL_TILE * SL_TILE;
    const uint32_t width = x->n - first < SL_TILE ? x->n - first : SL_TILE;
    const float *tile = x->xp + (size_t)first * sl_pack_floats(x->n_inputs);
    return (ref_column){.x = tile + (column - first) * SL_LANES, .step = (size_t)width * SL_LANES};
}

/* Eight codes are exactly `bits` bytes of the row's bit stream. */
static uint64_t ref_eight_codes(const unsigned char *p, unsigned bits) {
    uint64_t stream = 0;
    for (unsigned byte = 0; byte < bits; byte++) {
        stream |= (uint64_t)p[byte] << (8 * byte);
    }
    return stream;
}

static inline void ref_affine(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                              const sl_columns *x, float *y, size_t y_stride, unsigned bits) {
    const sl_dtype scale_dtype = w->shape.scale_dtype;
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = w->shape.group;
    const uint32_t n_groups = n_inputs / group;
    const uint32_t mask = (1u << bits) - 1;
    const int32_t centre = 1 << (bits - 1);
    for (uint32_t row = row_begin; row < row_end; row++) {
        const unsigned char *codes =
            (const unsigned char *)w->codes + (size_t)row * ((size_t)n_inputs * bits / 8);
        const size_t row_groups = (size_t)row * n_groups;
        for (uint32_t column = 0; column < x->n; column++) {
            const ref_column xc = ref_column_of(x, column);
            const float *xsum = x->group_sums + (size_t)column * sl_group_stride(n_inputs, group);
            float a[SL_LANES] = {0.0f};
            for (uint32_t g = 0; g < n_groups; g++) {
                const float scale = sl__widen(w->scales, scale_dtype, row_groups + g);
                const float bias = sl__widen(w->biases, scale_dtype, row_groups + g);
                const float b = sl__fmaf((float)centre, scale, bias);
                a[g % SL_LANES] = sl__fmaf(b, xsum[g], a[g % SL_LANES]);
            }
            for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
                const float *xb = xc.x + (size_t)8 * b * xc.step;
                for (uint32_t i = 0; i < SL_LANES; i++) {
                    const uint32_t at = SL_BLOCK * b + 8 * i;
                    uint64_t eight = 0;
                    float scale = 0.0f;
                    if (at < n_inputs) {
                        eight = ref_eight_codes(codes + (size_t)at / 8 * bits, bits);
                        scale = sl__widen(w->scales, scale_dtype, row_groups + at / group);
                    }
                    float p = 0.0f;
                    for (uint32_t j = 0; j < 8; j++) {
                        const int32_t code = (int32_t)(eight >> (bits * j) & mask);
                        const float c = at < n_inputs ? (float)(code - centre) : 0.0f;
                        const float xj = xb[j * xc.step + i];
                        p = j == 0 ? c * xj : sl__fmaf(c, xj, p);
                    }
                    a[i] = sl__fmaf(scale, p, a[i]);
                }
            }
            y[column * y_stride + row] = sl__ref_tree(a);
        }
    }
}

SL_REF_PRODUCT(mxfp4) {
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = w->shape.group;
    for (uint32_t row = row_begin; row < row_end; row++) {
        const unsigned char *codes = (const unsigned char *)w->codes + (size_t)row * (n_inputs / 2);
        const unsigned char *scales =
            (const unsigned char *)w->scales + (size_t)row * (n_inputs / group);
        for (uint32_t column = 0; column < x->n; column++) {
            const ref_column xc = ref_column_of(x, column);
            float a[SL_LANES] = {0.0f};
            for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
                const float *xb = xc.x + (size_t)8 * b * xc.step;
                for (uint32_t i = 0; i < SL_LANES; i++) {
                    const uint32_t at = SL_BLOCK * b + 8 * i;
                    uint64_t eight = 0;
                    float scale = 0.0f;
                    if (at < n_inputs) {
                        eight = ref_eight_codes(codes + at / 2, 4);
                        scale = sl__widen_e8m0(scales[at / group]);
                    }
                    float p = 0.0f;
                    for (uint32_t j = 0; j < 8; j++) {
                        const float c = sl__widen_fp4(eight >> (4 * j) & 15);
                        const float xj = xb[j * xc.step + i];
                        p = j == 0 ? c * xj : sl__fmaf(c, xj, p);
                    }
                    a[i] = sl__fmaf(scale, p, a[i]);
                }
            }
            y[column * y_stride + row] = sl__ref_tree(a);
        }
    }
}

static inline void ref_dense(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                             const sl_columns *x, float *y, size_t y_stride, sl_dtype dtype) {
    const uint32_t n_inputs = w->shape.cols;
    for (uint32_t row = row_begin; row < row_end; row++) {
        const size_t row_at = (size_t)row * n_inputs;
        for (uint32_t column = 0; column < x->n; column++) {
            const ref_column xc = ref_column_of(x, column);
            float a[SL_LANES] = {0.0f};
            for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
                const float *xb = xc.x + (size_t)8 * b * xc.step;
                for (uint32_t i = 0; i < SL_LANES; i++) {
                    float p = 0.0f;
                    for (uint32_t j = 0; j < 8; j++) {
                        const uint32_t at = SL_BLOCK * b + 8 * i + j;
                        const float wj =
                            at < n_inputs ? sl__widen(w->codes, dtype, row_at + at) : 0.0f;
                        const float xj = xb[j * xc.step + i];
                        p = j == 0 ? wj * xj : sl__fmaf(wj, xj, p);
                    }
                    a[i] = a[i] + p;
                }
            }
            y[column * y_stride + row] = sl__ref_tree(a);
        }
    }
}

SL_REF_PRODUCT(f32) {
    ref_dense(w, row_begin, row_end, x, y, y_stride, SL_DTYPE_F32);
}
SL_REF_PRODUCT(f16) {
    ref_dense(w, row_begin, row_end, x, y, y_stride, SL_DTYPE_F16);
}
SL_REF_PRODUCT(bf16) {
    ref_dense(w, row_begin, row_end, x, y, y_stride, SL_DTYPE_BF16);
}
SL_REF_PRODUCT(q2) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 2);
}
SL_REF_PRODUCT(q3) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 3);
}
SL_REF_PRODUCT(q4) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 4);
}
SL_REF_PRODUCT(q5) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 5);
}
SL_REF_PRODUCT(q6) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 6);
}
SL_REF_PRODUCT(q8) {
    ref_affine(w, row_begin, row_end, x, y, y_stride, 8);
}

void SL_REF(row)(const sl_matrix *w, uint32_t row, float *out) {
    const sl_matrix_shape *s = &w->shape;
    if (!sl_dtype_is_quantized(s->dtype)) {
        for (uint32_t i = 0; i < s->cols; i++) {
            out[i] = sl__widen(w->codes, s->dtype, (size_t)row * s->cols + i);
        }
        return;
    }
    const unsigned bits = sl_dtype_bits(s->dtype);
    const size_t row_groups = (size_t)row * (s->cols / s->group);
    const unsigned char *codes =
        (const unsigned char *)w->codes + (size_t)row * ((size_t)s->cols * bits / 8);
    for (uint32_t i = 0; i < s->cols; i++) {
        const uint64_t eight = ref_eight_codes(codes + (size_t)i / 8 * bits, bits);
        const uint32_t code = eight >> (bits * (i % 8)) & ((1u << bits) - 1);
        if (s->dtype == SL_DTYPE_MXFP4) {
            const unsigned char *scales = w->scales;
            out[i] = sl__widen_fp4(code) * sl__widen_e8m0(scales[row_groups + i / s->group]);
            continue;
        }
        const float scale = sl__widen(w->scales, s->scale_dtype, row_groups + i / s->group);
        const float bias = sl__widen(w->biases, s->scale_dtype, row_groups + i / s->group);
        out[i] = sl__fmaf((float)code, scale, bias);
    }
}
