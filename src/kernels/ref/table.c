/* Reference: the whole table. */
#include "kernels/ref/ref.h"

void SL_REF(table)(sl_kernels *k) {
    *k = (sl_kernels){
        .level = "ref",
        .pack = SL_REF(pack),
        .group_sums = SL_REF(group_sums),
        .product =
            {
                [SL_DTYPE_F32] = SL_REF(product_f32),
                [SL_DTYPE_F16] = SL_REF(product_f16),
                [SL_DTYPE_BF16] = SL_REF(product_bf16),
                [SL_DTYPE_Q2] = SL_REF(product_q2),
                [SL_DTYPE_Q3] = SL_REF(product_q3),
                [SL_DTYPE_Q4] = SL_REF(product_q4),
                [SL_DTYPE_Q5] = SL_REF(product_q5),
                [SL_DTYPE_Q6] = SL_REF(product_q6),
                [SL_DTYPE_Q8] = SL_REF(product_q8),
                [SL_DTYPE_MXFP4] = SL_REF(product_mxfp4),
            },
        .row = SL_REF(row),
        .rms_norm = SL_REF(rms_norm),
        .rms_norm_gated = SL_REF(rms_norm_gated),
        .l2_norm = SL_REF(l2_norm),
        .add = SL_REF(add),
        .axpy = SL_REF(axpy),
        .mul = SL_REF(mul),
        .clamp = SL_REF(clamp),
        .exp = SL_REF(exp),
        .silu_mul = SL_REF(silu_mul),
        .sigmoid_mul = SL_REF(sigmoid_mul),
        .swiglu_clamped = SL_REF(swiglu_clamped),
        .rope_half = SL_REF(rope_half),
        .rope_pairs = SL_REF(rope_pairs),
        .conv_silu = SL_REF(conv_silu),
        .conv = SL_REF(conv),
        .delta_gates = SL_REF(delta_gates),
        .delta = SL_REF(delta),
        .attend = SL_REF(attend),
    };
}
