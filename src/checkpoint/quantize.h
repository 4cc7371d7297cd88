/* Numbers of checkpoints: widening to f32, and affine quantization with the arithmetic of MLX, bit for bit.
 *
 * A group of g weights w becomes codes q of b bits, a scale and a bias, w ~ scale * q + bias. In f32, each
 * step rounded, n = 2^b - 1:
 *   s = max((max w - min w) / n, 1e-7);  if |min w| > |max w|: edge = min w
 *                                        else: edge = max w, s = -s
 *   q0 = rint(edge / s);  if q0 != 0: s = edge / q0, bias = edge;  else: bias = 0
 *   q  = min(max(rint((w - bias) / s), 0), n)
 * and only then are s and bias rounded to the type they are stored in. rint rounds halves to even. The
 * weight of largest magnitude is exact. Held to mx.quantize by tests/unit/test_quantize.c. */
#ifndef SL_CHECKPOINT_QUANTIZE_H
#define SL_CHECKPOINT_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/matrix.h"

/* n elements of type F32, F16, BF16 or F8_E4M3 as f32; every value is exact. Pure. */
void sl_widen(const void *in, sl_dtype dtype, size_t n, float *out);
/* Nearest value of type F32, F16 or BF16, halves to even; out at any address. Finite values beyond a type's
 * range become infinite. Pure. */
void sl_narrow(const float *in, sl_dtype dtype, size_t n, void *out);
/* True when all n elements of type F32, F16, BF16 or F8_E4M3 are finite. Pure. */
bool sl_all_finite(const void *in, sl_dtype dtype, size_t n);

#define SL_MXFP4_GROUP 32u
#define SL_F8_TILE 128u
/* Rows first_row .. first_row + rows - 1 of an F8_E4M3 matrix that has one scale for each tile of 128 x 128:
 *   out[r][c] = in[r][c] * scale[(first_row + r) / 128][c / 128]     one f32 multiplication, [rows][cols]
 *   in      the first of these rows;  scales [tiles of rows][ceil(cols / 128)] of the whole matrix, of type
 *           F32 or BF16, at any address
 * false: a result is not finite (a NaN, or a scale too large). Source: the files of DeepSeek-V3
 * (weight_scale_inv). Pure. */
bool sl_widen_f8_tiles(const void *in, uint32_t first_row, uint32_t rows, uint32_t cols,
                       const void *scales, sl_dtype scale_dtype, float *out);

/* Quantize rows of shape->cols weights each to shape->dtype (a Q type) in groups of shape->group.
 *   w       [rows][cols] f32
 *   codes   [rows] x cols*bits/8 bytes, scales and biases [rows][cols/group] of shape->scale_dtype
 * shape->rows does not matter. false: a weight, or a group's range, is not finite. Pure. */
bool sl_quantize_rows(const float *w, uint32_t rows, const sl_matrix_shape *shape, void *codes,
                      void *scales, void *biases);

/* The weights of affine rows, out[rows][cols]: fmaf(code, scale, bias). codes, scales and biases as above. Pure. */
void sl_dequantize_rows(const void *codes, const void *scales, const void *biases,
                        const sl_matrix_shape *shape, float *out);

#endif
