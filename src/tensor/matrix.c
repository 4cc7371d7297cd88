/* Shapes and layouts of weight matrices. Arithmetic only; sizes cannot overflow 64 bits since rows and
 * cols are bounded by 2^28. */
#include "tensor/matrix.h"

#include <string.h>

#define DIM_MAX ((uint32_t)1 << 28)

sl_status sl_matrix_layout_of(const sl_matrix_shape *s, sl_matrix_layout *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    if (s->rows == 0 || s->cols == 0 || s->rows > DIM_MAX || s->cols > DIM_MAX)
        return sl_fail(err, SL_ERR_CORRUPT, "matrix of %u rows and %u columns: each must be 1..%u",
                       s->rows, s->cols, DIM_MAX);
    if (!sl_dtype_is_quantized(s->dtype)) {
        if (s->dtype != SL_DTYPE_F32 && s->dtype != SL_DTYPE_F16 && s->dtype != SL_DTYPE_BF16)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "matrix of type %s: expected f32, f16, bf16, q2..q8 or mxfp4",
                           sl_dtype_name(s->dtype));
        out->row_code_bytes = (uint64_t)s->cols * sl_dtype_bits(s->dtype) / 8;
        out->codes_bytes = out->row_code_bytes * s->rows;
        out->bytes = SL_ALIGN_UP(out->codes_bytes, SL_MATRIX_ALIGN);
        return SL_OK;
    }
    const bool affine = sl_dtype_is_affine(s->dtype);
    if (!affine && (s->group != 32 || s->scale_dtype != SL_DTYPE_U8))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s in groups of %u with %s scales: expected groups of 32 with u8 scales",
                       sl_dtype_name(s->dtype), s->group, sl_dtype_name(s->scale_dtype));
    if (s->group != 32 && s->group != 64 && s->group != 128)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "quantization group of %u: expected 32, 64 or 128",
                       s->group);
    if (s->cols % s->group)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "%u columns are not a multiple of the quantization group %u", s->cols,
                       s->group);
    if (affine && s->scale_dtype != SL_DTYPE_BF16 && s->scale_dtype != SL_DTYPE_F16 &&
        s->scale_dtype != SL_DTYPE_F32)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "scales of type %s: expected bf16, f16 or f32",
                       sl_dtype_name(s->scale_dtype));
    out->row_code_bytes = (uint64_t)s->cols * sl_dtype_bits(s->dtype) / 8;
    out->row_scale_bytes = (uint64_t)(s->cols / s->group) * sl_dtype_bits(s->scale_dtype) / 8;
    out->codes_bytes = out->row_code_bytes * s->rows;
    out->row_bias_bytes = affine ? out->row_scale_bytes : 0;
    out->scales_bytes = out->row_scale_bytes * s->rows;
    out->biases_bytes = out->row_bias_bytes * s->rows;
    out->scales_at = SL_ALIGN_UP(out->codes_bytes, SL_MATRIX_ALIGN);
    out->biases_at = SL_ALIGN_UP(out->scales_at + out->scales_bytes, SL_MATRIX_ALIGN);
    out->bytes = SL_ALIGN_UP(out->biases_at + out->biases_bytes, SL_MATRIX_ALIGN);
    return SL_OK;
}

void sl_matrix_bind(sl_matrix *m, const sl_matrix_shape *shape, const sl_matrix_layout *layout,
                    const void *block) {
    const uint8_t *base = block;
    m->shape = *shape;
    m->codes = base + layout->codes_at;
    m->scales = layout->scales_bytes ? base + layout->scales_at : NULL;
    m->biases = layout->biases_bytes ? base + layout->biases_at : NULL;
}

bool sl_mxfp4_scales_valid(const void *scales, size_t n) {
    const uint8_t *p = scales;
    unsigned invalid = 0; // counted without leaving the loop, which vectorizes
    for (size_t i = 0; i < n; i++)
        invalid |= p[i] == 255;
    return invalid == 0;
}
