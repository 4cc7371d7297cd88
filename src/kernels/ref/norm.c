/* Reference: norms. The sum of squares runs over 16 lanes: a_{i mod 16} = fmaf(x_i, x_i, a_{i mod 16})
 * from +0, then the tree. */
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

static float ref_sum_of_squares(const float *x, uint32_t n) {
    float a[SL_LANES] = {0.0f};
    for (uint32_t i = 0; i < n; i++) {
        a[i % SL_LANES] = sl__fmaf(x[i], x[i], a[i % SL_LANES]);
    }
    return sl__ref_tree(a);
}

static float ref_rms_factor(const float *x, uint32_t n, float eps) {
    const float mean = ref_sum_of_squares(x, n) / (float)n;
    return 1.0f / sl__sqrtf(mean + eps);
}

void SL_REF(rms_norm)(float *y, const float *x, const float *w, uint32_t n, float eps) {
    const float r = ref_rms_factor(x, n, eps);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (x[i] * r) * w[i];
    }
}

void SL_REF(rms_norm_gated)(float *y, const float *x, const float *w, const float *z, uint32_t n,
                            float eps) {
    const float r = ref_rms_factor(x, n, eps);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = ((x[i] * r) * w[i]) * ref_siluf(z[i]);
    }
}

void SL_REF(l2_norm)(float *y, const float *x, uint32_t n, float eps, float scale) {
    const float r = 1.0f / sl__sqrtf(ref_sum_of_squares(x, n) + eps);
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (x[i] * r) * scale;
    }
}
