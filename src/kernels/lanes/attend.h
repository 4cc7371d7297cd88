/* Softmax attention. Queries are taken in tiles over a block of positions, so that a row of keys or of
 * values, once in a register, serves several of them; the block itself stays in the second cache for
 * the queries of a group. What a query computes, and in which order, is not touched by that. */
#ifndef SL_KERNELS_LANES_ATTEND_H
#define SL_KERNELS_LANES_ATTEND_H

#include <math.h>

#define ATTEND_TILE (L_WIDE / 2) /* queries of a tile; also its keys, and its vectors of values */
#define ATTEND_GROUP 32u         /* queries that share a block */

/* One query on its way through the blocks. */
typedef struct lanes_query {
    const float *q;
    float *acc;
    uint32_t first, end; /* the positions that it sees */
    float m, l;
} lanes_query;

/* Positions of a block, counted from its first. */
typedef struct lanes_range {
    uint32_t begin, end;
} lanes_range;

/* ---- scores ---- */

/* a[j * n_k + p] = fmaf(q_j, k_p, a[j * n_k + p]) for elements i .. of queries and keys: a whole vector,
 * or the `rest` that is less. */
SL_INLINE void lanes_dots_step(const lanes_query *s, int n_q, const float *k, size_t stride,
                               int n_k, uint32_t i, uint32_t rest, lanes *a) {
    lanes keys[4];
    SL_UNROLL
    for (int p = 0; p < n_k; p++) {
        const float *from = k + (size_t)p * stride + i;
        keys[p] = rest ? l_load_part(from, rest) : l_load(from);
    }
    SL_UNROLL
    for (int j = 0; j < n_q; j++) {
        const lanes q = rest ? l_load_part(s[j].q + i, rest) : l_load(s[j].q + i);
        SL_UNROLL
        for (int p = 0; p < n_k; p++) {
            a[j * n_k + p] = l_fma(q, keys[p], a[j * n_k + p]);
        }
    }
}

/* Dot products of n_q queries with n_k keys, whose chains run side by side; that of query j and key p goes
 * to e[j * SL_ATTEND_BLOCK + p]. Lanes without an element gain +0, which can make a -0 of a sum +0: no
 * weight can tell, because exp takes the difference of two scores. */
SL_INLINE void lanes_dots(const lanes_query *s, int n_q, const float *k, size_t stride, int n_k,
                          uint32_t d, float *e) {
    enum { MOST = ATTEND_TILE * ATTEND_TILE };
    lanes a[MOST];
    float dots[MOST];
    SL_UNROLL
    for (int j = 0; j < MOST; j++) {
        a[j] = l_zero();
    }
    uint32_t i = 0;
    for (; i + SL_LANES <= d; i += SL_LANES) {
        lanes_dots_step(s, n_q, k, stride, n_k, i, 0, a);
    }
    if (i < d) {
        lanes_dots_step(s, n_q, k, stride, n_k, i, d - i, a);
    }
    SL_UNROLL
    for (int j = 0; j < n_q * n_k; j += 4) {
        l_tree4(dots + j, a + j);
    }
    SL_UNROLL
    for (int j = 0; j < n_q; j++) {
        memcpy(e + (unsigned)j * SL_ATTEND_BLOCK, dots + j * n_k, (size_t)n_k * sizeof(float));
    }
}

/* The same with the keys of a range; k is the row of the block's first position. */
SL_INLINE void lanes_dots_range(const lanes_query *s, int n_q, const float *k, size_t stride,
                                lanes_range r, uint32_t d, float *e) {
    const uint32_t n_k = n_q == 1 ? 4 : ATTEND_TILE;
    uint32_t p = r.begin;
    for (; p + n_k <= r.end; p += n_k) {
        lanes_dots(s, n_q, k + p * stride, stride, (int)n_k, d, e + p);
    }
    for (; p < r.end; p++) {
        for (int j = 0; j < n_q; j++) {
            lanes_dots(s + j, 1, k + p * stride, stride, 1, d,
                       e + (unsigned)j * SL_ATTEND_BLOCK + p);
        }
    }
}

/* ---- weights ---- */

/* e[i] = scale * e[i]; returns the greatest of them and m. */
SL_INLINE float lanes_scale(float *e, uint32_t n, float scale, float m) {
    lanes most = l_set1(m);
    for (uint32_t i = 0; i < n; i += SL_LANES) {
        const uint32_t part = n - i < SL_LANES ? n - i : SL_LANES;
        const lanes v = l_mul(l_set1(scale), l_load_part(e + i, part));
        l_store_part(e + i, v, part);
        most = l_max(l_first(part, v, most), most);
    }
    float of[SL_LANES];
    l_store(of, most);
    for (uint32_t d = SL_LANES / 2; d >= 1; d /= 2) {
        for (uint32_t i = 0; i < d; i++) {
            of[i] = of[i + d] > of[i] ? of[i + d] : of[i];
        }
    }
    return of[0];
}

/* e[i] = exp(e[i] - m) in place, and their sum. The definition gives lane p mod 16 of the block's grid the
 * weights p, ascending; e begins anywhere on that grid. The same weights share a lane all the same, and
 * the tree adds lanes at equal distances around the circle, so turning it changes nothing. */
SL_INLINE float lanes_weights_of(float *e, uint32_t n, float m) {
    lanes sum = l_zero(); // weights are never -0, so the +0 of a position that is not there is none
    for (uint32_t i = 0; i < n; i += SL_LANES) {
        const uint32_t part = n - i < SL_LANES ? n - i : SL_LANES;
        const lanes v = l_exp(l_sub(l_load_part(e + i, part), l_set1(m)));
        l_store_part(e + i, v, part);
        sum = l_add(sum, l_first(part, v, l_zero()));
    }
    return l_tree(sum);
}

/* ---- values ---- */

/* acc_j = acc_j * shrink_j, then acc_j = fmaf(e_j[p], v_p, acc_j), p ascending, for n_q queries and
 * elements i .. i + 16 * n_v - 1; with `rest`, n_v is 1 and there are `rest` elements. */
SL_INLINE void lanes_accumulate_part(const lanes_query *s, int n_q, const float *v, size_t stride,
                                     lanes_range r, const float *e, const float *shrink, uint32_t i,
                                     int n_v, uint32_t rest) {
    lanes sum[ATTEND_TILE * ATTEND_TILE > L_WIDE ? ATTEND_TILE * ATTEND_TILE : L_WIDE];
    SL_UNROLL
    for (int j = 0; j < n_q; j++) {
        SL_UNROLL
        for (int c = 0; c < n_v; c++) {
            const float *from = s[j].acc + i + SL_LANES * (unsigned)c;
            sum[j * n_v + c] =
                l_mul(rest ? l_load_part(from, rest) : l_load(from), l_set1(shrink[j]));
        }
    }
    for (uint32_t p = r.begin; p < r.end; p++) {
        const float *row = v + p * stride + i;
        lanes values[L_WIDE];
        SL_UNROLL
        for (int c = 0; c < n_v; c++) {
            const float *from = row + SL_LANES * (unsigned)c;
            values[c] = rest ? l_load_part(from, rest) : l_load(from);
        }
        SL_UNROLL
        for (int j = 0; j < n_q; j++) {
            const lanes weight = l_set1(e[(unsigned)j * SL_ATTEND_BLOCK + p]);
            SL_UNROLL
            for (int c = 0; c < n_v; c++) {
                sum[j * n_v + c] = l_fma(weight, values[c], sum[j * n_v + c]);
            }
        }
    }
    SL_UNROLL
    for (int j = 0; j < n_q; j++) {
        SL_UNROLL
        for (int c = 0; c < n_v; c++) {
            float *to = s[j].acc + i + SL_LANES * (unsigned)c;
            if (rest) {
                l_store_part(to, sum[j * n_v + c], rest);
            } else {
                l_store(to, sum[j * n_v + c]);
            }
        }
    }
}

/* All d_v elements. */
SL_INLINE void lanes_accumulate(const lanes_query *s, int n_q, const float *v, size_t stride,
                                lanes_range r, uint32_t d_v, const float *e, const float *shrink) {
    const int n_v = n_q == 1 ? L_WIDE : ATTEND_TILE;
    uint32_t i = 0;
    for (; i + SL_LANES * (unsigned)n_v <= d_v; i += SL_LANES * (unsigned)n_v) {
        lanes_accumulate_part(s, n_q, v, stride, r, e, shrink, i, n_v, 0);
    }
    for (; i + SL_LANES <= d_v; i += SL_LANES) {
        lanes_accumulate_part(s, n_q, v, stride, r, e, shrink, i, 1, 0);
    }
    if (i < d_v) {
        lanes_accumulate_part(s, n_q, v, stride, r, e, shrink, i, 1, d_v - i);
    }
}

/* ---- blocks ---- */

/* The positions of the block at `grid` that a query sees; empty where begin >= end. */
SL_INLINE lanes_range lanes_visible(const lanes_query *s, uint32_t grid) {
    const uint32_t end = s->end > grid ? s->end - grid : 0;
    return (lanes_range){s->first > grid ? s->first - grid : 0,
                         end < SL_ATTEND_BLOCK ? end : SL_ATTEND_BLOCK};
}

/* One block for n_q queries, of which query j sees seen[j]: `common` together, what lies before and
 * after one by one. k and v are the rows of the block's first position. */
SL_INLINE void lanes_attend_block(const sl_attend_args *args, lanes_query *s, int n_q,
                                  const lanes_range *seen, lanes_range common, const float *k,
                                  const float *v) {
    SL_ALIGNED(64) float e[ATTEND_TILE * SL_ATTEND_BLOCK];
    float shrink[ATTEND_TILE], one = 1.0f;
    lanes_dots_range(s, n_q, k, args->k_stride, common, args->d, e);
    for (int j = 0; j < n_q; j++) {
        float *e_j = e + (unsigned)j * SL_ATTEND_BLOCK;
        const lanes_range before = {seen[j].begin, common.begin};
        const lanes_range after = {common.end, seen[j].end};
        const uint32_t n = seen[j].end - seen[j].begin;
        if (n_q > 1) {
            lanes_dots_range(s + j, 1, k, args->k_stride, before, args->d, e_j);
            lanes_dots_range(s + j, 1, k, args->k_stride, after, args->d, e_j);
        }
        const float m = lanes_scale(e_j + seen[j].begin, n, args->scale, s[j].m);
        shrink[j] = ref_expf(s[j].m - m);
        s[j].l = sl__fmaf(s[j].l, shrink[j], lanes_weights_of(e_j + seen[j].begin, n, m));
        s[j].m = m;
        if (n_q > 1 && before.begin < before.end) {
            lanes_accumulate(s + j, 1, v, args->v_stride, before, args->d_v, e_j, &shrink[j]);
            shrink[j] = 1.0f;
        }
    }
    lanes_accumulate(s, n_q, v, args->v_stride, common, args->d_v, e, shrink);
    for (int j = 0; n_q > 1 && j < n_q; j++) {
        const lanes_range after = {common.end, seen[j].end};
        if (after.begin < after.end) {
            lanes_accumulate(s + j, 1, v, args->v_stride, after, args->d_v,
                             e + (unsigned)j * SL_ATTEND_BLOCK, &one);
        }
    }
}

/* Queries in order of their tokens, so that ranges ascend. */
static void lanes_attend_group(const sl_attend_args *args, lanes_query *s, uint32_t n) {
    for (uint32_t grid = s[0].first / SL_ATTEND_BLOCK * SL_ATTEND_BLOCK; grid < s[n - 1].end;
         grid += SL_ATTEND_BLOCK) {
        // The rows of a block lie together in a ring too.
        const size_t row = args->ring ? grid % args->ring : grid;
        const float *k = args->k + row * args->k_stride;
        const float *v = args->v + row * args->v_stride;
        for (uint32_t i = 0; i < n;) {
            lanes_range seen[ATTEND_TILE];
            uint32_t width = 0;
            for (; width < ATTEND_TILE && i + width < n; width++) {
                seen[width] = lanes_visible(&s[i + width], grid);
            }
            const lanes_range common = {seen[width - 1].begin, seen[0].end};
            if (width == ATTEND_TILE && common.begin < common.end) {
                lanes_attend_block(args, s + i, ATTEND_TILE, seen, common, k, v);
                i += ATTEND_TILE;
            } else {
                if (seen[0].begin < seen[0].end) {
                    lanes_attend_block(args, s + i, 1, seen, seen[0], k, v);
                }
                i++;
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const lanes divisor = l_set1(s[i].l);
        for (uint32_t c = 0; c < args->d_v; c += SL_LANES) {
            const uint32_t part = args->d_v - c < SL_LANES ? args->d_v - c : SL_LANES;
            float *at = s[i].acc + c;
            l_store_part(at, l_div(l_load_part(at, part), divisor), part);
        }
    }
}

static void lanes_attend(const sl_attend_args *args) {
    lanes_query s[ATTEND_GROUP];
    uint32_t n = 0;
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        const uint32_t end = args->end + t;
        const uint32_t first = args->window && end > args->window ? end - args->window : 0;
        for (uint32_t h = 0; h < args->n_heads; h++) {
            float *acc = args->out + t * args->out_token_stride + h * args->out_head_stride;
            memset(acc, 0, args->d_v * sizeof(float));
            s[n++] = (lanes_query){
                .q = args->q + t * args->q_token_stride + h * args->q_head_stride,
                .acc = acc,
                .first = first,
                .end = end,
                .m = args->sinks ? args->sinks[h] : -INFINITY,
                .l = args->sinks ? 1.0f : 0.0f,
            };
            if (n == ATTEND_GROUP) {
                lanes_attend_group(args, s, n);
                n = 0;
            }
        }
    }
    if (n > 0) {
        lanes_attend_group(args, s, n);
    }
}

#undef ATTEND_TILE
#undef ATTEND_GROUP

#endif
