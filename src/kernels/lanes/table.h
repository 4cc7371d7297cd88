/* Put everything of this folder into a table. What is not here stays the reference; 4-bit products are
 * left to the instruction set. */
#ifndef SL_KERNELS_LANES_TABLE_H
#define SL_KERNELS_LANES_TABLE_H

#include "kernels/lanes/math.h"
#include "kernels/lanes/elementwise.h"
#include "kernels/lanes/pack.h"
#include "kernels/lanes/product.h"
#include "kernels/lanes/conv.h"
#include "kernels/lanes/delta.h"
#include "kernels/lanes/attend.h"

static void lanes_table(sl_kernels *k) {
    k->pack = lanes_pack;
    k->product[SL_DTYPE_F32] = lanes_product_f32;
    k->product[SL_DTYPE_F16] = lanes_product_f16;
    k->product[SL_DTYPE_BF16] = lanes_product_bf16;
    k->product[SL_DTYPE_Q2] = lanes_product_odd;
    k->product[SL_DTYPE_Q3] = lanes_product_odd;
    k->product[SL_DTYPE_Q5] = lanes_product_odd;
    k->product[SL_DTYPE_Q6] = lanes_product_odd;
    k->product[SL_DTYPE_Q8] = lanes_product_q8;
    k->rms_norm = lanes_rms_norm;
    k->rms_norm_gated = lanes_rms_norm_gated;
    k->l2_norm = lanes_l2_norm;
    k->add = lanes_add;
    k->axpy = lanes_axpy;
    k->mul = lanes_mul;
    k->clamp = lanes_clamp;
    k->exp = lanes_exp;
    k->silu_mul = lanes_silu_mul;
    k->sigmoid_mul = lanes_sigmoid_mul;
    k->swiglu_clamped = lanes_swiglu_clamped;
    k->rope_half = lanes_rope_half;
    k->conv_silu = lanes_conv_silu;
    k->conv = lanes_conv_plain;
    k->delta = lanes_delta;
    k->attend = lanes_attend;
}

#endif
