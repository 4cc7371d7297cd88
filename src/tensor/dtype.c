/* Names and sizes of element types. */
#include "tensor/dtype.h"

#include <string.h>

typedef enum kind { PLAIN, SCALED, AFFINE } kind;

static const struct {
    const char *name;
    uint8_t bits;
    uint8_t kind;
} dtypes[SL_DTYPE_COUNT] = {
    [SL_DTYPE_F32] = {"f32", 32, PLAIN},   [SL_DTYPE_F16] = {"f16", 16, PLAIN},
    [SL_DTYPE_BF16] = {"bf16", 16, PLAIN}, [SL_DTYPE_F8_E4M3] = {"f8_e4m3", 8, PLAIN},
    [SL_DTYPE_U32] = {"u32", 32, PLAIN},   [SL_DTYPE_I32] = {"i32", 32, PLAIN},
    [SL_DTYPE_U8] = {"u8", 8, PLAIN},      [SL_DTYPE_Q2] = {"q2", 2, AFFINE},
    [SL_DTYPE_Q3] = {"q3", 3, AFFINE},     [SL_DTYPE_Q4] = {"q4", 4, AFFINE},
    [SL_DTYPE_Q5] = {"q5", 5, AFFINE},     [SL_DTYPE_Q6] = {"q6", 6, AFFINE},
    [SL_DTYPE_Q8] = {"q8", 8, AFFINE},     [SL_DTYPE_MXFP4] = {"mxfp4", 4, SCALED},
};

const char *sl_dtype_name(sl_dtype dtype) {
    return (unsigned)dtype < SL_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

bool sl_dtype_from_name(const char *name, sl_dtype *out) {
    for (unsigned i = 0; i < SL_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (sl_dtype)i;
            return true;
        }
    }
    return false;
}

unsigned sl_dtype_bits(sl_dtype dtype) {
    return dtypes[dtype].bits;
}

bool sl_dtype_is_quantized(sl_dtype dtype) {
    return dtypes[dtype].kind != PLAIN;
}

bool sl_dtype_is_affine(sl_dtype dtype) {
    return dtypes[dtype].kind == AFFINE;
}

bool sl_dtype_quantized(unsigned bits, sl_dtype *out) {
    for (unsigned i = 0; i < SL_DTYPE_COUNT; i++) {
        if (dtypes[i].kind == AFFINE && dtypes[i].bits == bits) {
            *out = (sl_dtype)i;
            return true;
        }
    }
    return false;
}
