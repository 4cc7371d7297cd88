/* Softmax attention of one query head. */
#ifndef SL_KERNELS_LANES_ATTEND_H
#define SL_KERNELS_LANES_ATTEND_H

#include <math.h>

/* scores[0..3] of four keys, or of as many as there are: their chains run side by side. Lanes without an
 * element gain +0, which can make a -0 of a sum +0: no weight can tell, because exp takes the difference
 * of two scores. */
SL_INLINE void lanes_scores(float scores[4], const float *q, const float *const k[4], uint32_t d,
                            int n_keys) {
    lanes a[4];
    SL_UNROLL
    for (int p = 0; p < 4; p++) {
        a[p] = l_zero();
    }
    uint32_t i = 0;
    for (; i + SL_LANES <= d; i += SL_LANES) {
        const lanes part = l_load(q + i);
        SL_UNROLL
        for (int p = 0; p < n_keys; p++) {
            a[p] = l_fma(part, l_load(k[p] + i), a[p]);
        }
    }
    if (i < d) {
        const uint32_t n = d - i;
        const lanes part = l_load_part(q + i, n);
        SL_UNROLL
        for (int p = 0; p < n_keys; p++) {
            a[p] = l_fma(part, l_load_part(k[p] + i, n), a[p]);
        }
    }
    l_tree4(scores, a);
}

/* Scores of n keys (at most a block), the first at k, into e[0 ..], and the greatest of them and m. */
SL_INLINE float lanes_block_scores(const sl_attend_args *args, const float *k, uint32_t n, float *e,
                                   float m) {
    const size_t stride = args->k_stride;
    uint32_t p = 0;
    for (; p + 4 <= n; p += 4, k += 4 * stride) {
        const float *const rows[4] = {k, k + stride, k + 2 * stride, k + 3 * stride};
        lanes_scores(e + p, args->q, rows, args->d, 4);
    }
    for (; p < n; p++, k += stride) {
        float scores[4];
        const float *const rows[4] = {k, NULL, NULL, NULL};
        lanes_scores(scores, args->q, rows, args->d, 1);
        e[p] = scores[0];
    }
    for (uint32_t i = 0; i < n; i++) {
        e[i] = args->scale * e[i];
        m = e[i] > m ? e[i] : m;
    }
    return m;
}

/* e[i] = exp(e[i] - m) in place, and their sum. The definition gives lane p mod 16 of the block's grid the
 * weights p, ascending; e begins anywhere on that grid. The same weights share a lane all the same, and
 * the tree adds lanes at equal distances around the circle, so turning it changes nothing. */
SL_INLINE float lanes_block_weights(float *e, uint32_t n, float m) {
    lanes sum = l_zero(); // weights are never -0, so the +0 of a position that is not there is none
    for (uint32_t i = 0; i < n; i += SL_LANES) {
        const uint32_t part = n - i < SL_LANES ? n - i : SL_LANES;
        const lanes v = l_exp(l_sub(l_load_part(e + i, part), l_set1(m)));
        l_store_part(e + i, v, part);
        sum = l_add(sum, l_first(part, v, l_zero()));
    }
    return l_tree(sum);
}

/* acc = acc * shrink, then acc = fmaf(e[p], v_p, acc), p ascending, for 16 * n_vectors elements, the
 * last vector with `rest` of them. */
SL_INLINE void lanes_accumulate(float *acc, const float *v, size_t v_stride, const float *e,
                                uint32_t n, float shrink, int n_vectors, uint32_t rest) {
    lanes sum[L_WIDE];
    SL_UNROLL
    for (int j = 0; j < n_vectors; j++) {
        const bool part = j == n_vectors - 1 && rest < SL_LANES;
        const float *from = acc + SL_LANES * (unsigned)j;
        sum[j] = l_mul(part ? l_load_part(from, rest) : l_load(from), l_set1(shrink));
    }
    for (uint32_t p = 0; p < n; p++) {
        const lanes weight = l_set1(e[p]);
        const float *row = v + p * v_stride;
        SL_UNROLL
        for (int j = 0; j < n_vectors; j++) {
            const bool part = j == n_vectors - 1 && rest < SL_LANES;
            const float *from = row + SL_LANES * (unsigned)j;
            sum[j] = l_fma(weight, part ? l_load_part(from, rest) : l_load(from), sum[j]);
        }
    }
    SL_UNROLL
    for (int j = 0; j < n_vectors; j++) {
        float *to = acc + SL_LANES * (unsigned)j;
        if (j == n_vectors - 1 && rest < SL_LANES) {
            l_store_part(to, sum[j], rest);
        } else {
            l_store(to, sum[j]);
        }
    }
}

static void lanes_attend(const sl_attend_args *args) {
    const uint32_t d_v = args->d_v;
    float *acc = args->out;
    float m = args->sink ? *args->sink : -INFINITY;
    float l = args->sink ? 1.0f : 0.0f;
    memset(acc, 0, d_v * sizeof(float));
    for (uint32_t block = args->first / SL_ATTEND_BLOCK; block * SL_ATTEND_BLOCK < args->end;
         block++) {
        const uint32_t grid = block * SL_ATTEND_BLOCK;
        const uint32_t begin = args->first > grid ? args->first : grid;
        const uint32_t end =
            args->end - grid < SL_ATTEND_BLOCK ? args->end : grid + SL_ATTEND_BLOCK;
        // The rows of a block lie together in a ring too.
        const size_t row = args->ring ? begin % args->ring : begin;
        float e[SL_ATTEND_BLOCK];
        const float m_new =
            lanes_block_scores(args, args->k + row * args->k_stride, end - begin, e, m);
        const float shrink = ref_expf(m - m_new);
        l = sl__fmaf(l, shrink, lanes_block_weights(e, end - begin, m_new));
        const float *v = args->v + row * args->v_stride;
        uint32_t i = 0;
        for (; i + SL_LANES * L_WIDE <= d_v; i += SL_LANES * L_WIDE) {
            lanes_accumulate(acc + i, v + i, args->v_stride, e, end - begin, shrink, L_WIDE,
                             SL_LANES);
        }
        for (; i < d_v; i += SL_LANES) {
            lanes_accumulate(acc + i, v + i, args->v_stride, e, end - begin, shrink, 1,
                             d_v - i < SL_LANES ? d_v - i : SL_LANES);
        }
        m = m_new;
    }
    const lanes divisor = l_set1(l);
    for (uint32_t i = 0; i < d_v; i += SL_LANES) {
        const uint32_t part = d_v - i < SL_LANES ? d_v - i : SL_LANES;
        l_store_part(acc + i, l_div(l_load_part(acc + i, part), divisor), part);
    }
}

#endif
