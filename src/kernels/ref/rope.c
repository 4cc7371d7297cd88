/* Reference: rotary embedding. */
#include "kernels/ref/ref.h"

static void ref_rotate(float *first, float *second, float cos, float sin) {
    const float u = *first;
    const float v = *second;
    const float v_sin = v * sin;
    const float u_sin = u * sin;
    *first = sl__fmaf(u, cos, -v_sin);
    *second = sl__fmaf(v, cos, u_sin);
}

void SL_REF(rope_half)(float *x, const float *cos, const float *sin, uint32_t n_rot) {
    const uint32_t h = n_rot / 2;
    for (uint32_t i = 0; i < h; i++) {
        ref_rotate(&x[i], &x[i + h], cos[i], sin[i]);
    }
}

void SL_REF(rope_pairs)(float *x, const float *cos, const float *sin, uint32_t n_rot) {
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        ref_rotate(&x[2 * i], &x[2 * i + 1], cos[i], sin[i]);
    }
}
