/* The CPU back end: steps with a state of fixed size, the gated delta rule and the short convolution. */
#include "backend/cpu/cpu_internal.h"

/* ---- gated delta rule ----------------------------------------------------------------------- */

typedef struct delta_job {
    const sl_kernels *k;
    const sl_delta_step *s;
    uint32_t parts, n_channels, slices;
} delta_job;

static void delta_conv(void *ctx, uint32_t part, uint32_t thread) {
    const delta_job *j = ctx;
    const sl_delta_step *s = j->s;
    uint64_t begin, end;
    (void)thread;
    slice(j->n_channels / 16, j->parts, part, &begin, &end);
    begin *= 16;
    end = part + 1 == j->parts ? j->n_channels : end * 16;
    j->k->conv_silu(s->mixed, j->n_channels, s->qkv, j->n_channels, s->tail, s->taps, s->conv_width,
                    j->n_channels, s->n_tokens, (uint32_t)begin, (uint32_t)end);
}

// Gates, and the unit length of queries and keys, token by token.
static void delta_prepare(void *ctx, uint32_t part, uint32_t thread) {
    const delta_job *j = ctx;
    const sl_delta_step *s = j->s;
    uint64_t begin, end;
    float q_scale = 1.0f / __builtin_sqrtf((float)s->d_k);
    (void)thread;
    slice(s->n_tokens, j->parts, part, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        size_t gates = t * s->n_v_heads;
        j->k->delta_gates(s->decay + gates, s->beta + gates, s->a + gates, s->b + gates, s->a_log,
                          s->dt_bias, s->n_v_heads);
        float *q = s->mixed + t * j->n_channels;
        for (uint32_t h = 0; h < s->n_k_heads; h++, q += s->d_k)
            j->k->l2_norm(q, q, s->d_k, 1e-6f, q_scale);
        for (uint32_t h = 0; h < s->n_k_heads; h++, q += s->d_k)
            j->k->l2_norm(q, q, s->d_k, 1e-6f, 1.0f);
    }
}

// Slices of state columns are independent of each other, over all tokens.
static void delta_recur(void *ctx, uint32_t part, uint32_t thread) {
    const delta_job *j = ctx;
    const sl_delta_step *s = j->s;
    uint64_t begin, end;
    uint32_t share = s->n_v_heads / s->n_k_heads;
    (void)thread;
    slice((uint64_t)s->n_v_heads * j->slices, j->parts, part, &begin, &end);
    while (begin < end) {
        uint32_t h = (uint32_t)(begin / j->slices), first = (uint32_t)(begin % j->slices);
        uint32_t last = (uint32_t)SL_MIN(first + (end - begin), j->slices);
        const float *q = s->mixed + (size_t)(h / share) * s->d_k;
        sl_delta_args args = {
            .state = s->state + h * sl_delta_state_floats(s->d_k, s->d_v),
            .q = q,
            .k = q + (size_t)s->n_k_heads * s->d_k,
            .v = s->mixed + 2 * (size_t)s->n_k_heads * s->d_k + (size_t)h * s->d_v,
            .decay = s->decay + h,
            .beta = s->beta + h,
            .o = s->out + (size_t)h * s->d_v,
            .q_stride = j->n_channels,
            .k_stride = j->n_channels,
            .v_stride = j->n_channels,
            .o_stride = (size_t)s->n_v_heads * s->d_v,
            .gate_stride = s->n_v_heads,
            .n_tokens = s->n_tokens,
            .d_k = s->d_k,
            .d_v = s->d_v,
            .slice_begin = first,
            .slice_end = last,
        };
        j->k->delta(&args);
        begin += last - first;
    }
}

static void delta_finish(void *ctx, uint32_t part, uint32_t thread) {
    const delta_job *j = ctx;
    const sl_delta_step *s = j->s;
    uint64_t begin, end;
    (void)thread;
    slice((uint64_t)s->n_tokens * s->n_v_heads, j->parts, part, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        float *o = s->out + i * s->d_v;
        j->k->rms_norm_gated(o, o, s->norm, s->z + i * s->d_v, s->d_v, s->norm_eps);
    }
}

void sl__cpu_delta(sl_backend *be, const sl_delta_step *s) {
    sl_cpu_backend *c = cpu(be);
    delta_job j = {.k = &c->k, .s = s};
    j.n_channels = 2 * s->n_k_heads * s->d_k + s->n_v_heads * s->d_v;
    j.slices = sl_delta_slices(s->d_v);
    uint64_t mixed = (uint64_t)s->n_tokens * j.n_channels,
             out = (uint64_t)s->n_tokens * s->n_v_heads * s->d_v;
    j.parts = parts_for(c, mixed, PART_FLOATS / 4);
    sl_pool_run(c->pool, j.parts, delta_conv, &j);
    j.parts = parts_for(c, mixed, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, delta_prepare, &j);
    j.parts = parts_for(c, out * s->d_k, PART_WEIGHTS);
    sl_pool_run(c->pool, j.parts, delta_recur, &j);
    j.parts = parts_for(c, out, PART_FLOATS / 4);
    sl_pool_run(c->pool, j.parts, delta_finish, &j);
}

/* ---- short convolution ---------------------------------------------------------------------- */

typedef struct short_conv_job {
    const sl_kernels *k;
    const sl_short_conv_step *s;
    uint32_t parts;
} short_conv_job;

// Some channels, all tokens.
static void short_conv_part(void *ctx, uint32_t part, uint32_t thread) {
    const short_conv_job *j = ctx;
    const sl_short_conv_step *s = j->s;
    uint64_t begin, end;
    size_t c = s->n_channels, row = 3 * c;
    (void)thread;
    slice(c / 16, j->parts, part, &begin, &end);
    begin *= 16;
    end = part + 1 == j->parts ? c : end * 16;
    size_t n = end - begin;
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        float *b = s->bcx + t * row + begin;
        j->k->mul(b, b + 2 * c, n);
    }
    j->k->conv(s->out, c, s->bcx, row, s->tail, s->taps, s->width, s->n_channels, s->n_tokens,
               (uint32_t)begin, (uint32_t)end);
    for (uint32_t t = 0; t < s->n_tokens; t++) {
        float *out = s->out + t * c + begin;
        if (s->bias)
            j->k->add(out, s->bias + begin, n);
        j->k->mul(out, s->bcx + t * row + c + begin, n);
    }
}

void sl__cpu_short_conv(sl_backend *be, const sl_short_conv_step *s) {
    sl_cpu_backend *c = cpu(be);
    short_conv_job j = {.k = &c->k, .s = s};
    j.parts = parts_for(c, (uint64_t)s->n_tokens * s->n_channels, PART_FLOATS / 4);
    sl_pool_run(c->pool, j.parts, short_conv_part, &j);
}
