/* Reference: the gated delta rule as the plain recurrence, column by column. Sums over the key's
 * elements run in four chains i mod 4, joined as (c0 + c1) + (c2 + c3). */
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

void SL_REF(delta_gates)(float *decay, float *beta, const float *a, const float *b,
                         const float *a_log, const float *dt_bias, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const float step = ref_softplusf(a[i] + dt_bias[i]);
        decay[i] = ref_expf(-(ref_expf(a_log[i]) * step));
        beta[i] = ref_sigmoidf(b[i]);
    }
}

/* One token on one column of the state: s points at its first element, the next is 16 floats on. */
static float ref_delta_column(float *s, const float *q, const float *k, float v, float decay,
                              float beta, uint32_t d_k) {
    float c[4] = {0.0f};
    for (uint32_t i = 0; i < d_k; i++) {
        c[i % 4] = sl__fmaf(s[i * SL_DELTA_SLICE], k[i], c[i % 4]);
    }
    const float kv = decay * ((c[0] + c[1]) + (c[2] + c[3]));
    const float dv = beta * (v - kv);
    float o[4] = {0.0f};
    for (uint32_t i = 0; i < d_k; i++) {
        const float updated = sl__fmaf(k[i], dv, decay * s[i * SL_DELTA_SLICE]);
        s[i * SL_DELTA_SLICE] = updated;
        o[i % 4] = sl__fmaf(updated, q[i], o[i % 4]);
    }
    return (o[0] + o[1]) + (o[2] + o[3]);
}

void SL_REF(delta)(const sl_delta_args *args) {
    const uint32_t d_k = args->d_k;
    const uint32_t column_begin = args->slice_begin * SL_DELTA_SLICE;
    const uint32_t column_limit = args->slice_end * SL_DELTA_SLICE;
    const uint32_t column_end = column_limit < args->d_v ? column_limit : args->d_v;
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const float *q = args->q + t * args->q_stride;
        const float *k = args->k + t * args->k_stride;
        const float *v = args->v + t * args->v_stride;
        float *o = args->o + t * args->o_stride;
        for (uint32_t c = column_begin; c < column_end; c++) {
            float *s = args->state + (size_t)(c / SL_DELTA_SLICE) * d_k * SL_DELTA_SLICE +
                       c % SL_DELTA_SLICE;
            o[c] = ref_delta_column(s, q, k, v[c], args->decay[t * args->gate_stride],
                                    args->beta[t * args->gate_stride], d_k);
        }
    }
}
