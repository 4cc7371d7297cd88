/* A weight matrix as it lies in memory or in a file: type, shape and the byte layout. Data only.
 *
 * Affine (SL_DTYPE_Q*): the weight of row r, input i is scale * code + bias, one (scale, bias) per
 * `group` consecutive inputs of a row. Layout, each part row-major and dense:
 *   codes  [rows] x cols*bits/8 bytes: one little-endian bit stream per row, code i in bits
 *          [bits*i, bits*(i+1)), least significant first (MLX's order)
 *   scales [rows][cols/group], then biases likewise, of type scale_dtype (BF16, F16 or F32)
 * SL_DTYPE_MXFP4: the weight of input i is v(code) * 2^(scale - 127), one scale per 32 inputs, the group.
 *   codes  [rows] x cols/2 bytes, a bit stream as above; bit 3 of a code is the sign, bits 0..2 say
 *          v = 0, 0.5, 1, 1.5, 2, 3, 4, 6 (E2M1)
 *   scales [rows][cols/32] U8 (E8M0), 255 is no number: see sl_mxfp4_scales_valid(); no biases
 * Source: OCP Microscaling Formats (MX) v1.0.
 * Dense (F32, F16, BF16): codes holds [rows][cols] elements; scales and biases are NULL.
 *
 * A matrix in the store is one block: codes, scales, biases back to back, each part padded to
 * SL_MATRIX_ALIGN bytes: sl_matrix_layout() gives the offsets. */
#ifndef SL_TENSOR_MATRIX_H
#define SL_TENSOR_MATRIX_H

#include "base/status.h"
#include "tensor/dtype.h"

#define SL_MATRIX_ALIGN 64u

typedef struct sl_matrix_shape {
    sl_dtype dtype;
    sl_dtype scale_dtype; /* quantized only; U8 for MXFP4 */
    uint32_t rows, cols;
    uint32_t group; /* inputs per scale; 0 for dense */
} sl_matrix_shape;

typedef struct sl_matrix {
    sl_matrix_shape shape;
    const void *codes;
    const void *scales;
    const void *biases;
} sl_matrix;

typedef struct sl_matrix_layout {
    uint64_t codes_at, scales_at, biases_at;          /* offsets within the block */
    uint64_t codes_bytes, scales_bytes, biases_bytes; /* of one part, without padding */
    uint64_t row_code_bytes, row_scale_bytes, row_bias_bytes;
    uint64_t bytes; /* of the block, a multiple of SL_MATRIX_ALIGN */
} sl_matrix_layout;

/* Check a shape and compute its layout. Rules: rows, cols >= 1 and at most 2^28; affine: group in
 * {32, 64, 128}, cols a multiple of group; MXFP4: the same with group 32 and U8 scales. Errors: SL_ERR_UNSUPPORTED, SL_ERR_CORRUPT. Pure. */
SL_MUST_USE sl_status sl_matrix_layout_of(const sl_matrix_shape *shape, sl_matrix_layout *out,
                                          sl_error *err);

/* True when none of n scales of MXFP4 weights is 255, which stands for "not a number". Pure. */
bool sl_mxfp4_scales_valid(const void *scales, size_t n);

/* Point a matrix into a block that has the given layout. */
void sl_matrix_bind(sl_matrix *m, const sl_matrix_shape *shape, const sl_matrix_layout *layout,
                    const void *block);

#endif
