/* Reference: rotary embedding. */
#include "kernels/ref/ref.h"

void SL_REF(rope_half)(float *x, const float *cos, const float *sin, uint32_t n_rot) {
    const uint32_t h = n_rot / 2;
    for (uint32_t i = 0; i < h; i++) {
        const float u = x[i];
        const float v = x[i + h];
        const float v_sin = v * sin[i];
        const float u_sin = u * sin[i];
        x[i] = sl__fmaf(u, cos[i], -v_sin);
        x[i + h] = sl__fmaf(v, cos[i], u_sin);
    }
}
