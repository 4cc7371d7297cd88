/* Reference: one output per input, no order to keep. */
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

void SL_REF(add)(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = y[i] + x[i];
    }
}

void SL_REF(axpy)(float *y, float a, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = sl__fmaf(a, x[i], y[i]);
    }
}

void SL_REF(mul)(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = y[i] * x[i];
    }
}

/* NaN goes through both comparisons. */
static float ref_clamp(float x, float limit) {
    x = x < -limit ? -limit : x;
    return x > limit ? limit : x;
}

void SL_REF(clamp)(float *y, float limit, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = ref_clamp(y[i], limit);
    }
}

void SL_REF(exp)(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = ref_expf(x[i]);
    }
}

void SL_REF(silu_mul)(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = ref_siluf(gate[i]) * up[i];
    }
}

void SL_REF(sigmoid_mul)(float *y, const float *x, const float *gate, size_t n) {
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * ref_sigmoidf(gate[i]);
    }
}

void SL_REF(swiglu_clamped)(float *y, const float *gate, const float *up, size_t n, float limit,
                            float alpha) {
    for (size_t i = 0; i < n; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = ref_clamp(up[i], limit);
        y[i] = (g * ref_sigmoidf(alpha * g)) * (u + 1.0f);
    }
}
