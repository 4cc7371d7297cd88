/* The gated delta rule: a slice of 16 state columns is one vector per key element. The four chains of
 * one slice do not fill a wide machine, so slices are taken L_SLICES at a time. */
#ifndef SL_KERNELS_LANES_DELTA_H
#define SL_KERNELS_LANES_DELTA_H

#define L_SLICES (L_WIDE / 4)

typedef struct lanes_chains {
    lanes c[4];
} lanes_chains;

SL_INLINE lanes lanes_join(const lanes_chains *s) {
    return l_add(l_add(s->c[0], s->c[1]), l_add(s->c[2], s->c[3]));
}

/* One token on n_slices neighbouring slices; `columns` (1..16) of the last one exist. */
SL_INLINE void lanes_delta_token(float *state, const float *q, const float *k, const float *v,
                                 float decay, float beta, float *o, uint32_t d_k, int n_slices,
                                 uint32_t columns) {
    const size_t slice = (size_t)d_k * SL_DELTA_SLICE;
    const lanes g = l_set1(decay);
    lanes dv[L_SLICES];
    lanes_chains kv[L_SLICES], out[L_SLICES];
    SL_UNROLL
    for (int s = 0; s < n_slices; s++) {
        for (int m = 0; m < 4; m++) {
            kv[s].c[m] = out[s].c[m] = l_zero();
        }
    }
#define RECALL(m)                                                                                  \
    SL_UNROLL                                                                                      \
    for (int s = 0; s < n_slices; s++) {                                                           \
        const float *row = state + s * slice + (size_t)(i + (m)) * SL_DELTA_SLICE;                 \
        kv[s].c[m] = l_fma(l_load(row), l_set1(k[i + (m)]), kv[s].c[m]);                           \
    }
#define UPDATE(m)                                                                                  \
    SL_UNROLL                                                                                      \
    for (int s = 0; s < n_slices; s++) {                                                           \
        float *row = state + s * slice + (size_t)(i + (m)) * SL_DELTA_SLICE;                       \
        const lanes updated = l_fma(l_set1(k[i + (m)]), dv[s], l_mul(g, l_load(row)));             \
        if (s == n_slices - 1 && columns < SL_DELTA_SLICE) {                                       \
            l_store_part(row, updated, columns);                                                   \
        } else {                                                                                   \
            l_store(row, updated);                                                                 \
        }                                                                                          \
        out[s].c[m] = l_fma(updated, l_set1(q[i + (m)]), out[s].c[m]);                             \
    }
#define EACH_KEY_ELEMENT(STEP)                                                                     \
    for (i = 0; i + 4 <= d_k; i += 4) {                                                            \
        STEP(0) STEP(1) STEP(2) STEP(3)                                                            \
    }                                                                                              \
    if (i < d_k) {                                                                                 \
        STEP(0)                                                                                    \
    }                                                                                              \
    if (i + 1 < d_k) {                                                                             \
        STEP(1)                                                                                    \
    }                                                                                              \
    if (i + 2 < d_k) {                                                                             \
        STEP(2)                                                                                    \
    }
    uint32_t i;
    EACH_KEY_ELEMENT(RECALL)
    SL_UNROLL
    for (int s = 0; s < n_slices; s++) {
        const uint32_t n = s == n_slices - 1 ? columns : SL_DELTA_SLICE;
        const lanes recalled = l_mul(g, lanes_join(&kv[s]));
        dv[s] = l_mul(l_set1(beta), l_sub(l_load_part(v + s * SL_DELTA_SLICE, n), recalled));
    }
    EACH_KEY_ELEMENT(UPDATE)
    SL_UNROLL
    for (int s = 0; s < n_slices; s++) {
        const uint32_t n = s == n_slices - 1 ? columns : SL_DELTA_SLICE;
        l_store_part(o + s * SL_DELTA_SLICE, lanes_join(&out[s]), n);
    }
#undef EACH_KEY_ELEMENT
#undef UPDATE
#undef RECALL
}

/* All tokens on the slices from `slice` on: they stay in the first cache meanwhile. */
SL_INLINE void lanes_delta_slices(const sl_delta_args *a, uint32_t slice, int n_slices) {
    const uint32_t first = slice * SL_DELTA_SLICE;
    const uint32_t last = first + ((uint32_t)n_slices - 1) * SL_DELTA_SLICE;
    const uint32_t columns = a->d_v - last < SL_DELTA_SLICE ? a->d_v - last : SL_DELTA_SLICE;
    float *state = a->state + (size_t)first * a->d_k;
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        lanes_delta_token(state, a->q + t * a->q_stride, a->k + t * a->k_stride,
                          a->v + t * a->v_stride + first, a->decay[t * a->gate_stride],
                          a->beta[t * a->gate_stride], a->o + t * a->o_stride + first, a->d_k,
                          n_slices, columns);
    }
}

static void lanes_delta(const sl_delta_args *args) {
    uint32_t slice = args->slice_begin;
    for (; slice + L_SLICES <= args->slice_end; slice += L_SLICES) {
        lanes_delta_slices(args, slice, L_SLICES);
    }
    for (; slice < args->slice_end; slice++) {
        lanes_delta_slices(args, slice, 1);
    }
}

#endif
