/* Reference: softmax attention, one query at a time, with a running maximum over blocks of 64 absolute
 * positions (Milakov & Gimelshein 2018). */
#include <math.h>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

static float ref_dot(const float *q, const float *k, uint32_t d) {
    float a[SL_LANES] = {0.0f};
    for (uint32_t i = 0; i < d; i++) {
        a[i % SL_LANES] = sl__fmaf(q[i], k[i], a[i % SL_LANES]);
    }
    return sl__ref_tree(a);
}

static size_t ref_row(const sl_attend_args *args, uint32_t position) {
    return args->ring ? position % args->ring : position;
}

/* The query at q over positions first .. end-1, into acc. */
static void ref_attend_query(const sl_attend_args *args, const float *q, const float *sink,
                             uint32_t first, uint32_t end, float *acc) {
    const uint32_t d_v = args->d_v;
    float m = sink ? *sink : -INFINITY;
    float l = sink ? 1.0f : 0.0f;
    for (uint32_t i = 0; i < d_v; i++) {
        acc[i] = 0.0f;
    }
    for (uint32_t grid = first / SL_ATTEND_BLOCK * SL_ATTEND_BLOCK; grid < end;
         grid += SL_ATTEND_BLOCK) {
        const uint32_t from = first > grid ? first : grid;
        const uint32_t to = end - grid < SL_ATTEND_BLOCK ? end : grid + SL_ATTEND_BLOCK;
        float e[SL_ATTEND_BLOCK];
        float m_new = m;
        for (uint32_t p = from; p < to; p++) {
            const float *k = args->k + ref_row(args, p) * args->k_stride;
            const float s = args->scale * ref_dot(q, k, args->d);
            e[p - grid] = s;
            m_new = s > m_new ? s : m_new;
        }
        const float shrink = ref_expf(m - m_new);
        float lanes[SL_LANES] = {0.0f};
        for (uint32_t p = from; p < to; p++) {
            e[p - grid] = ref_expf(e[p - grid] - m_new);
            lanes[(p - grid) % SL_LANES] = lanes[(p - grid) % SL_LANES] + e[p - grid];
        }
        l = sl__fmaf(l, shrink, sl__ref_tree(lanes));
        for (uint32_t i = 0; i < d_v; i++) {
            acc[i] = acc[i] * shrink;
        }
        for (uint32_t p = from; p < to; p++) {
            const float *v = args->v + ref_row(args, p) * args->v_stride;
            for (uint32_t i = 0; i < d_v; i++) {
                acc[i] = sl__fmaf(e[p - grid], v[i], acc[i]);
            }
        }
        m = m_new;
    }
    for (uint32_t i = 0; i < d_v; i++) {
        acc[i] = acc[i] / l;
    }
}

void SL_REF(attend)(const sl_attend_args *args) {
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const uint32_t end = args->end + t;
        const uint32_t first = args->window && end > args->window ? end - args->window : 0;
        for (uint32_t h = 0; h < args->n_heads; h++) {
            ref_attend_query(args, args->q + t * args->q_token_stride + h * args->q_head_stride,
                             args->sinks ? args->sinks + h : NULL, first, end,
                             args->out + t * args->out_token_stride + h * args->out_head_stride);
        }
    }
}
