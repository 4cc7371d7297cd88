/* The CPU back end: each operation is cut into parts that threads claim. A part is large enough that
 * claiming it costs little, and never cuts through a sum. */
#include "backend/cpu/cpu.h"

#include <string.h>

#define PART_WEIGHTS                                                                               \
    ((uint64_t)1 << 17) /* weights times columns, about 5 us: worth a part of their own */
#define PART_FLOATS ((size_t)1 << 14) /* the same for elementwise work */
#define ROW_UNIT 16u                  /* rows that stay together in a product */

static sl_cpu_backend *cpu(sl_backend *be) {
    return (sl_cpu_backend *)be;
}

static uint32_t threads(const sl_cpu_backend *c) {
    return sl_pool_threads(c->pool);
}

// Parts for n units of work of which `per_part` are worth a part; at most a few for each thread.
static uint32_t parts_for(const sl_cpu_backend *c, uint64_t n, uint64_t per_part) {
    uint64_t parts = n / (per_part ? per_part : 1);
    uint64_t most = (uint64_t)threads(c) * 4;
    parts = parts > most ? most : parts;
    return threads(c) == 1 || parts == 0 ? 1 : (uint32_t)parts;
}

static void slice(uint64_t n, uint32_t parts, uint32_t part, uint64_t *begin, uint64_t *end) {
    *begin = n * part / parts;
    *end = n * (part + 1) / parts;
}

/* ---- rows and elements ---------------------------------------------------------------------- */

typedef struct element_job {
    const sl_kernels *k;
    uint32_t parts, n, d;
    size_t n_elements;
    float *y;
    const float *x, *w, *a;
    const uint32_t *rows;
    float eps;
} element_job;

static void norm_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n, j->parts, part, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        j->k->rms_norm(j->y + t * j->d, j->x + t * j->d, j->w, j->d, j->eps);
}

static void cpu_norm(sl_backend *be, float *y, const float *x, const float *w, uint32_t n_tokens,
                     uint32_t d, float eps) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {.k = &c->k, .n = n_tokens, .d = d, .y = y, .x = x, .w = w, .eps = eps};
    j.parts = parts_for(c, (uint64_t)n_tokens * d, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, norm_part, &j);
}

static void add_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n_elements, j->parts, part, &begin, &end);
    j->k->add(j->y + begin, j->x + begin, end - begin);
}

static void cpu_add(sl_backend *be, float *y, const float *x, size_t n) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {.k = &c->k, .n_elements = n, .y = y, .x = x};
    j.parts = parts_for(c, n, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, add_part, &j);
}

static void silu_mul_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n_elements, j->parts, part, &begin, &end);
    j->k->silu_mul(j->y + begin, j->x + begin, j->a + begin, end - begin);
}

static void cpu_silu_mul(sl_backend *be, float *y, const float *gate, const float *up, size_t n) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {.k = &c->k, .n_elements = n, .y = y, .x = gate, .a = up};
    j.parts = parts_for(c, n, PART_FLOATS / 4);
    sl_pool_run(c->pool, j.parts, silu_mul_part, &j);
}

static void scatter_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n, j->parts, part, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        size_t row = j->rows ? j->rows[i] : i;
        j->k->axpy(j->y + row * j->d, j->a[i], j->x + i * j->d, j->d);
    }
}

static void cpu_scatter_add(sl_backend *be, float *y, const float *x, const float *a,
                            const uint32_t *rows, uint32_t n, uint32_t d) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {.k = &c->k, .n = n, .d = d, .y = y, .x = x, .a = a, .rows = rows};
    j.parts = parts_for(c, (uint64_t)n * d, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, scatter_part, &j);
}

static void cpu_sigmoid(sl_backend *be, float *y, const float *x, size_t n) {
    (void)be;
    for (size_t i = 0; i < n; i++)
        y[i] = sl_sigmoidf(x[i]);
}

static void cpu_exp(sl_backend *be, float *y, const float *x, size_t n) {
    cpu(be)->k.exp(y, x, n);
}

static void cpu_row(sl_backend *be, const sl_matrix *w, uint32_t row, float *out) {
    cpu(be)->k.row(w, row, out);
}

/* ---- products ------------------------------------------------------------------------------- */

typedef struct pack_job {
    const sl_kernels *k;
    sl_packed *p;
    const float *x;
    size_t x_stride;
    uint32_t parts, n_tiles;
} pack_job;

static void pack_part(void *ctx, uint32_t part, uint32_t thread) {
    const pack_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n_tiles, j->parts, part, &begin, &end);
    begin *= SL_TILE;
    end = SL_MIN(end * SL_TILE, j->p->n);
    if (begin < end)
        j->k->pack(j->x + begin * j->x_stride, j->x_stride, (uint32_t)(end - begin), j->p->n_inputs,
                   j->p->xp + begin * sl_pack_floats(j->p->n_inputs),
                   j->p->lane_sums + begin * sl_lane_floats(j->p->n_inputs));
}

static void cpu_pack(sl_backend *be, sl_packed *p, const float *x, size_t x_stride, uint32_t n,
                     uint32_t n_inputs) {
    sl_cpu_backend *c = cpu(be);
    p->n = n;
    p->n_inputs = n_inputs;
    p->group = 0;
    pack_job j = {.k = &c->k, .p = p, .x = x, .x_stride = x_stride};
    j.n_tiles = (n + SL_TILE - 1) / SL_TILE;
    j.parts = parts_for(c, (uint64_t)n * n_inputs, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, pack_part, &j);
}

typedef struct product_job {
    const sl_kernels *k;
    const sl_columns *x;
    const sl_product *list;
    uint32_t n, parts;
    uint64_t n_units; /* of ROW_UNIT rows, over the whole list */
} product_job;

static uint64_t units_of(const sl_product *p) {
    return (p->w.shape.rows + ROW_UNIT - 1) / ROW_UNIT;
}

static void product_part(void *ctx, uint32_t part, uint32_t thread) {
    const product_job *j = ctx;
    uint64_t begin, end, at = 0;
    (void)thread;
    slice(j->n_units, j->parts, part, &begin, &end);
    for (uint32_t i = 0; i < j->n && at < end; i++) {
        const sl_product *p = &j->list[i];
        uint64_t units = units_of(p);
        uint64_t from = SL_MAX(begin, at), to = SL_MIN(end, at + units);
        if (from < to) {
            uint32_t row_begin = (uint32_t)(from - at) * ROW_UNIT;
            uint32_t row_end = (uint32_t)SL_MIN((to - at) * ROW_UNIT, p->w.shape.rows);
            j->k->product[p->w.shape.dtype](&p->w, row_begin, row_end, j->x, p->y, p->y_stride);
        }
        at += units;
    }
}

// Products of one group size (0: dense weights).
static void product_run(sl_cpu_backend *c, sl_packed *p, const sl_product *list, uint32_t n,
                        uint32_t group) {
    if (group && p->group != group) {
        c->k.group_sums(p->lane_sums, p->n, p->n_inputs, group, p->group_sums);
        p->group = group;
    }
    sl_columns x = {p->n, p->n_inputs, group, p->xp, p->group_sums};
    product_job j = {.k = &c->k, .x = &x, .list = list, .n = n};
    uint64_t weights = 0;
    for (uint32_t i = 0; i < n; i++) {
        j.n_units += units_of(&list[i]);
        weights += (uint64_t)list[i].w.shape.rows * list[i].w.shape.cols;
    }
    j.parts = parts_for(c, weights * p->n, PART_WEIGHTS);
    sl_pool_run(c->pool, j.parts, product_part, &j);
}

static void cpu_product(sl_backend *be, sl_packed *p, const sl_product *list, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        while (end < n && list[end].w.shape.group == list[i].w.shape.group)
            end++;
        product_run(cpu(be), p, list + i, end - i, list[i].w.shape.group);
        i = end;
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

typedef struct attention_job {
    const sl_kernels *k;
    const sl_attention_step *s;
    uint32_t parts;
} attention_job;

// Norm and rotate queries and keys of some tokens, and put keys and values into the cache.
static void attention_prepare(void *ctx, uint32_t part, uint32_t thread) {
    const attention_job *j = ctx;
    const sl_attention_step *s = j->s;
    uint64_t begin, end;
    uint32_t d = s->d_head, q_width = s->gated ? 2 * d : d;
    (void)thread;
    slice(s->n_tokens, j->parts, part, &begin, &end);
    for (uint64_t t = begin; t < end; t++) {
        const float *cos = s->cos + t * (s->n_rot / 2), *sin = s->sin + t * (s->n_rot / 2);
        size_t position = s->first_position + t;
        for (uint32_t h = 0; h < s->n_heads; h++) {
            float *q = s->q + (t * s->n_heads + h) * q_width;
            if (s->q_norm)
                j->k->rms_norm(q, q, s->q_norm, d, s->norm_eps);
            j->k->rope_half(q, cos, sin, s->n_rot);
        }
        for (uint32_t h = 0; h < s->n_kv_heads; h++) {
            float *k = s->k + (t * s->n_kv_heads + h) * d;
            const float *v = s->v + (t * s->n_kv_heads + h) * d;
            if (s->k_norm)
                j->k->rms_norm(k, k, s->k_norm, d, s->norm_eps);
            j->k->rope_half(k, cos, sin, s->n_rot);
            size_t at = ((size_t)h * s->n_ctx + position) * d;
            memcpy(s->k_cache + at, k, d * sizeof(float));
            memcpy(s->v_cache + at, v, d * sizeof(float));
        }
    }
}

// One query head at a time; the pairs of (token, head) are split over the threads.
static void attention_attend(void *ctx, uint32_t part, uint32_t thread) {
    const attention_job *j = ctx;
    const sl_attention_step *s = j->s;
    uint64_t begin, end;
    uint32_t d = s->d_head, q_width = s->gated ? 2 * d : d, share = s->n_heads / s->n_kv_heads;
    (void)thread;
    slice((uint64_t)s->n_tokens * s->n_heads, j->parts, part, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        uint64_t t = i / s->n_heads, h = i % s->n_heads;
        const float *q = s->q + i * q_width;
        size_t kv = h / share * (size_t)s->n_ctx * d;
        sl_attend_args args = {
            .q = q,
            .k = s->k_cache + kv,
            .v = s->v_cache + kv,
            .out = s->out + i * d,
            .k_stride = d,
            .v_stride = d,
            .d = d,
            .d_v = d,
            .first = 0,
            .end = s->first_position + (uint32_t)t + 1,
            .scale = s->scale,
        };
        j->k->attend(&args);
        if (s->gated)
            j->k->sigmoid_mul(args.out, args.out, q + d, d);
    }
}

static void cpu_attention(sl_backend *be, const sl_attention_step *s) {
    sl_cpu_backend *c = cpu(be);
    attention_job j = {.k = &c->k, .s = s};
    uint64_t elements = (uint64_t)s->n_tokens * s->n_heads * s->d_head;
    j.parts = parts_for(c, elements, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, attention_prepare, &j);
    j.parts = parts_for(c, elements * (s->first_position + s->n_tokens), PART_FLOATS * 4);
    sl_pool_run(c->pool, j.parts, attention_attend, &j);
}

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

static void cpu_delta(sl_backend *be, const sl_delta_step *s) {
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

static const sl_backend_ops cpu_ops = {
    .name = "cpu",
    .norm = cpu_norm,
    .add = cpu_add,
    .silu_mul = cpu_silu_mul,
    .scatter_add = cpu_scatter_add,
    .sigmoid = cpu_sigmoid,
    .exp = cpu_exp,
    .row = cpu_row,
    .pack = cpu_pack,
    .product = cpu_product,
    .attention = cpu_attention,
    .delta = cpu_delta,
};

void sl_cpu_backend_init(sl_cpu_backend *be, sl_cpu_level level, sl_pool *pool) {
    memset(be, 0, sizeof(*be));
    be->base.ops = &cpu_ops;
    sl_kernels_init(&be->k, level);
    be->pool = pool;
}
