/* Element types of tensors, in checkpoints, in the store and in memory. Data only. */
#ifndef SL_TENSOR_DTYPE_H
#define SL_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* The values are written into manifests by name (sl_dtype_name), never by number.
 * SL_DTYPE_F8_E4M3 is the type without infinities (e4m3fn); checkpoints have it, matrices here do not.
 * SL_DTYPE_Q* are MLX affine codes of that many bits, SL_DTYPE_MXFP4 are 4-bit floats with a power of two
 * for every 32 (docs/format.md, "Weights"). */
typedef enum sl_dtype {
    SL_DTYPE_F32,
    SL_DTYPE_F16,
    SL_DTYPE_BF16,
    SL_DTYPE_F8_E4M3,
    SL_DTYPE_U32,
    SL_DTYPE_I32,
    SL_DTYPE_U8,
    SL_DTYPE_Q2,
    SL_DTYPE_Q3,
    SL_DTYPE_Q4,
    SL_DTYPE_Q5,
    SL_DTYPE_Q6,
    SL_DTYPE_Q8,
    SL_DTYPE_MXFP4,
    SL_DTYPE_COUNT
} sl_dtype;

/* "f32", "bf16", "q4", "mxfp4", ... Never NULL. */
const char *sl_dtype_name(sl_dtype dtype);
bool sl_dtype_from_name(const char *name, sl_dtype *out);
/* Bits of one element. */
unsigned sl_dtype_bits(sl_dtype dtype);
/* Codes with a scale for every group of inputs. */
bool sl_dtype_is_quantized(sl_dtype dtype);
/* The quantized types that have a bias beside each scale: SL_DTYPE_Q*. */
bool sl_dtype_is_affine(sl_dtype dtype);
/* SL_DTYPE_Q<bits>; false when there is no such code width. */
bool sl_dtype_quantized(unsigned bits, sl_dtype *out);

#endif
