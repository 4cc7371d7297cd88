/* The reference kernels: kernels.h says what each computes, docs/numerics.md how. They are written to
 * be read and never tuned; they are the definition that every other kernel is compared with.
 *
 * The sources are built twice on x86: as they are, for any machine (a fused step then takes several
 * operations, see fma.h), and through x86/ref_fma.c for machines that fuse in hardware. SL_REF() keeps
 * the names of the two apart. */
#ifndef SL_KERNELS_REF_REF_H
#define SL_KERNELS_REF_REF_H

#include "kernels/kernels.h"
#include "kernels/ref/fma.h"

#ifdef SL_REF_FMA
#define SL_REF(name) sl__ref_fma_##name
#else
#define SL_REF(name) sl__ref_##name
#endif

/* Fill every entry of the table. */
void sl__ref_table(sl_kernels *k);
void sl__ref_fma_table(sl_kernels *k);

void SL_REF(pack)(const float *x, size_t x_stride, uint32_t n, uint32_t n_inputs, float *xp,
                  float *lane_sums);
void SL_REF(group_sums)(const float *lane_sums, uint32_t n, uint32_t n_inputs, uint32_t group,
                        float *sums);

#define SL_REF_PRODUCT(type)                                                                       \
    void SL_REF(product_##type)(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,          \
                                const sl_columns *x, float *y, size_t y_stride)
SL_REF_PRODUCT(f32);
SL_REF_PRODUCT(f16);
SL_REF_PRODUCT(bf16);
SL_REF_PRODUCT(q2);
SL_REF_PRODUCT(q3);
SL_REF_PRODUCT(q4);
SL_REF_PRODUCT(q5);
SL_REF_PRODUCT(q6);
SL_REF_PRODUCT(q8);
SL_REF_PRODUCT(mxfp4);
void SL_REF(row)(const sl_matrix *w, uint32_t row, float *out);

void SL_REF(rms_norm)(float *y, const float *x, const float *w, uint32_t n, float eps);
void SL_REF(rms_norm_gated)(float *y, const float *x, const float *w, const float *z, uint32_t n,
                            float eps);
void SL_REF(l2_norm)(float *y, const float *x, uint32_t n, float eps, float scale);

void SL_REF(add)(float *y, const float *x, size_t n);
void SL_REF(axpy)(float *y, float a, const float *x, size_t n);
void SL_REF(mul)(float *y, const float *x, size_t n);
void SL_REF(clamp)(float *y, float limit, size_t n);
void SL_REF(exp)(float *y, const float *x, size_t n);
void SL_REF(silu_mul)(float *y, const float *gate, const float *up, size_t n);
void SL_REF(sigmoid_mul)(float *y, const float *x, const float *gate, size_t n);
void SL_REF(swiglu_clamped)(float *y, const float *gate, const float *up, size_t n, float limit,
                            float alpha);
void SL_REF(rope_half)(float *x, const float *cos, const float *sin, uint32_t n_rot);
void SL_REF(rope_pairs)(float *x, const float *cos, const float *sin, uint32_t n_rot);

void SL_REF(conv_silu)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                       const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                       uint32_t begin, uint32_t end);
void SL_REF(conv)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                  const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                  uint32_t begin, uint32_t end);
void SL_REF(delta_gates)(float *decay, float *beta, const float *a, const float *b,
                         const float *a_log, const float *dt_bias, uint32_t n);
void SL_REF(delta)(const sl_delta_args *args);
void SL_REF(attend)(const sl_attend_args *args);

/* The end of every reduction: a_i = a_i + a_{i+d} for d = 8, 4, 2, 1. Destroys the lanes. */
static inline float sl__ref_tree(float lanes[SL_LANES]) {
    for (uint32_t d = SL_LANES / 2; d >= 1; d /= 2) {
        for (uint32_t i = 0; i < d; i++) {
            lanes[i] = lanes[i] + lanes[i + d];
        }
    }
    return lanes[0];
}

#endif
