/* The CPU back end: softmax attention, grouped and latent. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_internal.h"

/* The query heads of one key/value head, cut into n shares of almost equal size: as few as keep the
 * threads busy, since each share reads the cache once. */
typedef struct head_shares {
    uint32_t n_heads, n;
} head_shares;

// n_others: how many times there are such heads (key/value heads times tokens).
static head_shares shares_for(const sl_cpu_backend *c, uint32_t n_heads, uint64_t n_others) {
    uint64_t threads = sl_pool_threads(c->pool);
    uint32_t n = 1;
    for (; n < n_heads; n++) {
        uint64_t rounds = (n * n_others + threads - 1) / threads, longest = (n_heads + n - 1) / n;
        if (rounds * longest * threads * 3 <= n_heads * n_others * 4)
            break;
    }
    return (head_shares){n_heads, n};
}

static void share_heads(const head_shares *s, uint32_t share, uint32_t *first, uint32_t *n) {
    uint64_t begin, end;
    slice(s->n_heads, s->n, share, &begin, &end);
    *first = (uint32_t)begin;
    *n = (uint32_t)(end - begin);
}

/* ---- grouped-query attention ---------------------------------------------------------------- */

typedef struct attention_job {
    const sl_kernels *k;
    const sl_attention_step *s;
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t n_rot);
    uint32_t first, n; /* the tokens of this round */
    uint32_t rows;     /* of a key/value head's cache */
    bool is_ring;
    head_shares shares;
    uint32_t parts;
} attention_job;

// All heads of one token: norm, clamp, rotate. Head h is at x + h * stride.
static void prepare_heads(const attention_job *j, float *x, size_t stride, uint32_t n_heads,
                          const float *norm, size_t token) {
    const sl_attention_step *s = j->s;
    size_t angles = token * (s->n_rot / 2);
    if (norm && s->norm_all_heads)
        j->k->rms_norm(x, x, norm, n_heads * s->d_head, s->norm_eps);
    for (uint32_t h = 0; h < n_heads; h++, x += stride) {
        if (norm && !s->norm_all_heads)
            j->k->rms_norm(x, x, norm, s->d_head, s->norm_eps);
        if (s->clip != 0.0f)
            j->k->clamp(x, s->clip, s->d_head);
        j->rope(x, s->cos + angles, s->sin + angles, s->n_rot);
    }
}

// Prepare queries and keys of some tokens, and put keys and values into the cache.
static void attention_prepare(void *ctx, uint32_t part, uint32_t thread) {
    const attention_job *j = ctx;
    const sl_attention_step *s = j->s;
    uint64_t begin, end;
    size_t d = s->d_head, q_width = s->gated ? 2 * d : d, kv_width = s->n_kv_heads * d;
    (void)thread;
    slice(j->n, j->parts, part, &begin, &end);
    for (uint64_t t = j->first + begin; t < j->first + end; t++) {
        float *k = s->k + t * kv_width, *v = s->v + t * kv_width;
        prepare_heads(j, s->q + t * s->n_heads * q_width, q_width, s->n_heads, s->q_norm, t);
        prepare_heads(j, k, d, s->n_kv_heads, s->k_norm, t);
        if (s->clip != 0.0f)
            j->k->clamp(v, s->clip, kv_width);
        size_t row = (s->first_position + t) % j->rows;
        for (uint32_t h = 0; h < s->n_kv_heads; h++, k += d, v += d) {
            size_t at = ((size_t)h * j->rows + row) * d;
            memcpy(s->k_cache + at, k, d * sizeof(float));
            memcpy(s->v_cache + at, v, d * sizeof(float));
        }
    }
}

/* Queries that share a key/value head go to the kernel together: units are (key/value head, share of its
 * query heads, token), tokens last, and those of a part that differ in the token alone are one call. */
static void attention_attend(void *ctx, uint32_t part, uint32_t thread) {
    const attention_job *j = ctx;
    const sl_attention_step *s = j->s;
    uint64_t begin, end;
    size_t d = s->d_head, q_width = s->gated ? 2 * d : d;
    (void)thread;
    slice((uint64_t)s->n_kv_heads * j->shares.n * j->n, j->parts, part, &begin, &end);
    while (begin < end) {
        uint32_t kv = (uint32_t)(begin / j->n / j->shares.n);
        uint32_t t = (uint32_t)(begin % j->n), n = (uint32_t)SL_MIN(end - begin, j->n - t);
        uint32_t head, n_heads;
        share_heads(&j->shares, (uint32_t)(begin / j->n % j->shares.n), &head, &n_heads);
        head += kv * j->shares.n_heads;
        size_t query = (size_t)(j->first + t) * s->n_heads + head, rows = (size_t)kv * j->rows * d;
        const sl_attend_args args = {
            .n_tokens = n,
            .n_heads = n_heads,
            .d = s->d_head,
            .d_v = s->d_head,
            .end = s->first_position + j->first + t + 1,
            .window = s->window,
            .ring = j->is_ring ? j->rows : 0,
            .scale = s->scale,
            .sinks = s->sinks ? s->sinks + head : NULL,
            .q = s->q + query * q_width,
            .k = s->k_cache + rows,
            .v = s->v_cache + rows,
            .out = s->out + query * d,
            .q_token_stride = s->n_heads * q_width,
            .q_head_stride = q_width,
            .out_token_stride = s->n_heads * d,
            .out_head_stride = d,
            .k_stride = d,
            .v_stride = d,
        };
        j->k->attend(&args);
        for (uint32_t i = 0; s->gated && i < n * n_heads; i++) {
            size_t at = query + (size_t)(i / n_heads) * s->n_heads + i % n_heads;
            j->k->sigmoid_mul(s->out + at * d, s->out + at * d, s->q + at * q_width + d, d);
        }
        begin += n;
    }
}

/* In a ring, a token may overwrite a position only when no query needs it any more: so many tokens at a
 * time that the first one's window and the rows of all of them fit. */
void sl__cpu_attention(sl_backend *be, const sl_attention_step *s) {
    sl_cpu_backend *c = cpu(be);
    attention_job j = {
        .k = &c->k, .s = s, .rope = s->rope_pairs ? c->k.rope_pairs : c->k.rope_half};
    j.is_ring = s->ring != 0 && s->ring < s->n_ctx;
    j.rows = j.is_ring ? s->ring : s->n_ctx;
    assert(!(s->norm_all_heads && s->gated));
    assert(!j.is_ring ||
           (s->window != 0 && s->window <= s->ring && s->ring % SL_ATTEND_BLOCK == 0));
    uint32_t round = j.is_ring ? s->ring - s->window + 1 : s->n_tokens;
    for (; j.first < s->n_tokens; j.first += j.n) {
        j.n = SL_MIN(round, s->n_tokens - j.first);
        uint64_t elements = (uint64_t)j.n * s->n_heads * s->d_head;
        uint64_t visible = (uint64_t)s->first_position + j.first + j.n;
        visible = s->window ? SL_MIN(visible, s->window) : visible;
        j.parts = parts_for(c, elements, PART_FLOATS);
        sl_pool_run(c->pool, j.parts, attention_prepare, &j);
        j.shares = shares_for(c, s->n_heads / s->n_kv_heads, (uint64_t)s->n_kv_heads * j.n);
        j.parts = parts_for(c, elements * visible, PART_FLOATS * 4);
        sl_pool_run(c->pool, j.parts, attention_attend, &j);
    }
}

/* ---- multi-head latent attention ------------------------------------------------------------ */

typedef struct mla_job {
    const sl_kernels *k;
    const sl_mla_step *s;
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t n_rot);
    head_shares shares;
    uint32_t parts;
} mla_job;

// Some tokens: latent and rope key into the cache, rope parts into the queries.
static void mla_prepare(void *ctx, uint32_t part, uint32_t thread) {
    const mla_job *j = ctx;
    const sl_mla_step *s = j->s;
    uint64_t begin, end;
    size_t d = s->d_latent + s->d_rope, q_width = s->d_nope + s->d_rope;
    size_t rope_bytes = s->d_rope * sizeof(float);
    (void)thread;
    slice(s->n_tokens, j->parts, part, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        const float *cos = s->cos + t * (s->d_rope / 2), *sin = s->sin + t * (s->d_rope / 2);
        const float *kv = s->kv + t * d;
        float *row = s->cache + (s->first_position + t) * d;
        j->k->rms_norm(row, kv, s->latent_norm, s->d_latent, s->norm_eps);
        memcpy(row + s->d_latent, kv + s->d_latent, rope_bytes);
        j->rope(row + s->d_latent, cos, sin, s->d_rope);
        for (size_t i = t * s->n_heads; i < (t + 1) * s->n_heads; i++) {
            float *rotated = s->query + i * d + s->d_latent;
            memcpy(rotated, s->q + i * q_width + s->d_nope, rope_bytes);
            j->rope(rotated, cos, sin, s->d_rope);
        }
    }
}

// As attention_attend, with one stream for keys, values and all heads.
static void mla_attend(void *ctx, uint32_t part, uint32_t thread) {
    const mla_job *j = ctx;
    const sl_mla_step *s = j->s;
    uint64_t begin, end;
    uint32_t d = s->d_latent + s->d_rope;
    (void)thread;
    slice((uint64_t)j->shares.n * s->n_tokens, j->parts, part, &begin, &end);
    while (begin < end) {
        uint32_t t = (uint32_t)(begin % s->n_tokens);
        uint32_t n = (uint32_t)SL_MIN(end - begin, s->n_tokens - t);
        uint32_t head, n_heads;
        share_heads(&j->shares, (uint32_t)(begin / s->n_tokens), &head, &n_heads);
        size_t query = (size_t)t * s->n_heads + head;
        const sl_attend_args args = {
            .n_tokens = n,
            .n_heads = n_heads,
            .d = d,
            .d_v = s->d_latent,
            .end = s->first_position + t + 1,
            .scale = s->scale,
            .q = s->query + query * d,
            .k = s->cache,
            .v = s->cache,
            .out = s->out + query * s->d_latent,
            .q_token_stride = (size_t)s->n_heads * d,
            .q_head_stride = d,
            .out_token_stride = (size_t)s->n_heads * s->d_latent,
            .out_head_stride = s->d_latent,
            .k_stride = d,
            .v_stride = d,
        };
        j->k->attend(&args);
        begin += n;
    }
}

void sl__cpu_mla(sl_backend *be, const sl_mla_step *s) {
    sl_cpu_backend *c = cpu(be);
    assert(s->first_position + s->n_tokens <= s->n_ctx);
    mla_job j = {.k = &c->k, .s = s, .rope = s->rope_half ? c->k.rope_half : c->k.rope_pairs};
    uint64_t pairs = (uint64_t)s->n_tokens * s->n_heads;
    j.parts = parts_for(c, pairs * s->d_rope, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, mla_prepare, &j);
    j.shares = shares_for(c, s->n_heads, s->n_tokens);
    j.parts = parts_for(c, pairs * s->d_latent * ((uint64_t)s->first_position + s->n_tokens),
                        PART_FLOATS * 4);
    sl_pool_run(c->pool, j.parts, mla_attend, &j);
}
