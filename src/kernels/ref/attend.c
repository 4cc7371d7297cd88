/* Reference: softmax attention of one query head, with a running maximum over blocks of 64 absolute
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

void SL_REF(attend)(const sl_attend_args *args) {
    const uint32_t d_v = args->d_v;
    float *acc = args->out;
    float m = args->sink ? *args->sink : -INFINITY;
    float l = args->sink ? 1.0f : 0.0f;
    for (uint32_t i = 0; i < d_v; i++) {
        acc[i] = 0.0f;
    }
    for (uint32_t block = args->first / SL_ATTEND_BLOCK; block * SL_ATTEND_BLOCK < args->end;
         block++) {
        const uint32_t grid = block * SL_ATTEND_BLOCK;
        const uint32_t begin = args->first > grid ? args->first : grid;
        const uint32_t end =
            args->end - grid < SL_ATTEND_BLOCK ? args->end : grid + SL_ATTEND_BLOCK;
        float e[SL_ATTEND_BLOCK];
        float m_new = m;
        for (uint32_t p = begin; p < end; p++) {
            const float s = args->scale *
                            ref_dot(args->q, args->k + ref_row(args, p) * args->k_stride, args->d);
            e[p - grid] = s;
            m_new = s > m_new ? s : m_new;
        }
        const float shrink = ref_expf(m - m_new);
        float lanes[SL_LANES] = {0.0f};
        for (uint32_t p = begin; p < end; p++) {
            e[p - grid] = ref_expf(e[p - grid] - m_new);
            lanes[(p - grid) % SL_LANES] = lanes[(p - grid) % SL_LANES] + e[p - grid];
        }
        l = sl__fmaf(l, shrink, sl__ref_tree(lanes));
        for (uint32_t i = 0; i < d_v; i++) {
            acc[i] = acc[i] * shrink;
        }
        for (uint32_t p = begin; p < end; p++) {
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
