/* The CPU back end: its table, rows and elements, products. */
#include <assert.h>
#include <string.h>

#include "backend/cpu/cpu_internal.h"

#define ROW_UNIT 16u /* rows that stay together in a product */

/* ---- rows and elements ---------------------------------------------------------------------- */

typedef struct element_job {
    const sl_kernels *k;
    uint32_t parts, n, d;
    size_t n_elements;
    float *y;
    const float *x, *w, *a;
    const uint32_t *rows;
    float eps, limit, alpha;
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

static void add_rows_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n, j->parts, part, &begin, &end);
    for (uint64_t t = begin; t < end; t++)
        j->k->add(j->y + t * j->d, j->x, j->d);
}

static void cpu_add_rows(sl_backend *be, float *y, const float *bias, uint32_t n_tokens,
                         uint32_t n) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {.k = &c->k, .n = n_tokens, .d = n, .y = y, .x = bias};
    j.parts = parts_for(c, (uint64_t)n_tokens * n, PART_FLOATS);
    sl_pool_run(c->pool, j.parts, add_rows_part, &j);
}

static void swiglu_clamped_part(void *ctx, uint32_t part, uint32_t thread) {
    const element_job *j = ctx;
    uint64_t begin, end;
    (void)thread;
    slice(j->n_elements, j->parts, part, &begin, &end);
    j->k->swiglu_clamped(j->y + begin, j->x + begin, j->a + begin, end - begin, j->limit, j->alpha);
}

static void cpu_swiglu_clamped(sl_backend *be, float *y, const float *gate, const float *up,
                               size_t n, float limit, float alpha) {
    sl_cpu_backend *c = cpu(be);
    element_job j = {
        .k = &c->k, .n_elements = n, .y = y, .x = gate, .a = up, .limit = limit, .alpha = alpha};
    j.parts = parts_for(c, n, PART_FLOATS / 4);
    sl_pool_run(c->pool, j.parts, swiglu_clamped_part, &j);
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
    const sl_columns *x; /* of all products, or one for each */
    bool own_columns;
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
            j->k->product[p->w.shape.dtype](&p->w, row_begin, row_end,
                                            j->own_columns ? &j->x[i] : j->x, p->y, p->y_stride);
        }
        at += units;
    }
}

// The group whose sums of the inputs a product needs: of affine weights, else 0.
static uint32_t sums_group(const sl_matrix_shape *s) {
    return sl_dtype_is_affine(s->dtype) ? s->group : 0;
}

// The whole list, over n columns each.
static void run_products(sl_cpu_backend *c, product_job *j, uint32_t n_columns) {
    uint64_t weights = 0;
    for (uint32_t i = 0; i < j->n; i++) {
        j->n_units += units_of(&j->list[i]);
        weights += (uint64_t)j->list[i].w.shape.rows * j->list[i].w.shape.cols;
    }
    j->parts = parts_for(c, weights * n_columns, PART_WEIGHTS);
    sl_pool_run(c->pool, j->parts, product_part, j);
}

// Products that need the same group sums, or none (0).
static void product_run(sl_cpu_backend *c, sl_packed *p, const sl_product *list, uint32_t n,
                        uint32_t group) {
    if (group && p->group != group) {
        c->k.group_sums(p->lane_sums, p->n, p->n_inputs, group, p->group_sums);
        p->group = group;
    }
    sl_columns x = {p->n, p->n_inputs, group, p->xp, p->group_sums};
    product_job j = {.k = &c->k, .x = &x, .list = list, .n = n};
    run_products(c, &j, p->n);
}

static void cpu_product(sl_backend *be, sl_packed *p, const sl_product *list, uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        uint32_t end = i + 1;
        uint32_t group = sums_group(&list[i].w.shape);
        while (end < n && sums_group(&list[end].w.shape) == group)
            end++;
        product_run(cpu(be), p, list + i, end - i, group);
        i = end;
    }
}

/* ---- experts of one token ------------------------------------------------------------------- */

typedef struct inner_job {
    const sl_kernels *k;
    const sl_expert_batch *b;
    const sl_columns *columns; /* [n], whose buffers are filled */
    sl_packed *p;
    uint32_t inner, parts;
} inner_job;

// Activation of some experts, packed as one column each.
static void inner_part(void *ctx, uint32_t part, uint32_t thread) {
    const inner_job *j = ctx;
    const sl_expert_batch *b = j->b;
    uint64_t begin, end;
    uint32_t n = j->inner;
    (void)thread;
    slice(b->n, j->parts, part, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        const sl_expert_weights *w = &b->experts[i];
        const sl_columns *x = &j->columns[i];
        float *gate = b->gate + i * n, *up = b->up + i * n;
        float *xp = j->p->xp + i * sl_pack_floats(n);
        float *lane_sums = j->p->lane_sums + i * sl_lane_floats(n);
        float *group_sums = j->p->group_sums + i * sl_group_stride(n, 32);
        if (w->gate_bias) {
            j->k->add(gate, w->gate_bias, n);
            j->k->add(up, w->up_bias, n);
        }
        if (b->clamped)
            j->k->swiglu_clamped(gate, gate, up, n, b->limit, b->alpha);
        else
            j->k->silu_mul(gate, gate, up, n);
        j->k->pack(gate, n, 1, n, xp, lane_sums);
        if (x->group)
            j->k->group_sums(lane_sums, 1, n, x->group, group_sums);
    }
}

static void cpu_experts(sl_backend *be, sl_packed *p, const sl_expert_batch *b) {
    sl_cpu_backend *c = cpu(be);
    sl_product list[2 * SL_EXPERT_BATCH_MAX] = {0};
    sl_columns columns[SL_EXPERT_BATCH_MAX];
    uint32_t inner = b->experts[0].gate.shape.rows, d_model = b->experts[0].down.shape.rows;
    assert(p->n == 1 && b->n >= 1 && b->n <= SL_EXPERT_BATCH_MAX);
    for (uint32_t i = 0; i < b->n; i++) {
        list[2 * i] = (sl_product){b->experts[i].gate, b->gate + (size_t)i * inner, inner};
        list[2 * i + 1] = (sl_product){b->experts[i].up, b->up + (size_t)i * inner, inner};
    }
    cpu_product(be, p, list, 2 * b->n);

    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t group = sums_group(&b->experts[i].down.shape);
        columns[i] = (sl_columns){1, inner, group, p->xp + i * sl_pack_floats(inner),
                                  p->group_sums + i * (size_t)sl_group_stride(inner, 32)};
        list[i] = (sl_product){b->experts[i].down, b->out[i], d_model};
    }
    inner_job inner_work = {.k = &c->k, .b = b, .columns = columns, .p = p, .inner = inner};
    inner_work.parts = parts_for(c, (uint64_t)b->n * inner, PART_FLOATS / 8);
    sl_pool_run(c->pool, inner_work.parts, inner_part, &inner_work);
    product_job down = {.k = &c->k, .x = columns, .own_columns = true, .list = list, .n = b->n};
    run_products(c, &down, 1);
    for (uint32_t i = 0; i < b->n; i++)
        if (b->experts[i].down_bias)
            c->k.add(b->out[i], b->experts[i].down_bias, d_model);
    p->n = 0;
}

/* ---- products per head ---------------------------------------------------------------------- */

#define HEAD_COLUMNS (2 * SL_TILE) /* tokens whose inputs are packed at a time */

typedef struct head_product_job {
    const sl_kernels *k;
    const sl_head_product *p;
    uint32_t parts;
} head_product_job;

// Rows begin..end-1 of the strip, all of one head. Each thread packs what it needs on its stack.
static void head_rows(const sl_kernels *k, const sl_head_product *p, uint32_t head, uint32_t begin,
                      uint32_t end) {
    SL_ALIGNED(64) float xp[HEAD_COLUMNS * SL_HEAD_INPUTS_MAX];
    SL_ALIGNED(64) float lane_sums[HEAD_COLUMNS * SL_HEAD_INPUTS_MAX / SL_BLOCK * SL_LANES];
    SL_ALIGNED(64) float group_sums[HEAD_COLUMNS * SL_HEAD_INPUTS_MAX / 32];
    const sl_matrix_shape *shape = &p->w.shape;
    const uint32_t group = sums_group(shape);
    const float *x = p->x + head * p->x_head_stride;
    // Row r of the strip is row first_row + r - head * rows_per_head of the head.
    float *y = p->y + head * (p->y_head_stride - p->rows_per_head) + p->first_row;
    for (uint32_t t = 0; t < p->n_tokens; t += HEAD_COLUMNS) {
        uint32_t n = SL_MIN(p->n_tokens - t, HEAD_COLUMNS);
        k->pack(x + t * p->x_token_stride, p->x_token_stride, n, shape->cols, xp, lane_sums);
        if (group)
            k->group_sums(lane_sums, n, shape->cols, group, group_sums);
        const sl_columns columns = {n, shape->cols, group, xp, group_sums};
        k->product[shape->dtype](&p->w, begin, end, &columns, y + t * p->y_token_stride,
                                 p->y_token_stride);
    }
}

static void head_product_part(void *ctx, uint32_t part, uint32_t thread) {
    const head_product_job *j = ctx;
    const sl_head_product *p = j->p;
    uint64_t begin, end;
    uint32_t rows = p->w.shape.rows;
    (void)thread;
    slice((rows + ROW_UNIT - 1) / ROW_UNIT, j->parts, part, &begin, &end);
    uint32_t row = (uint32_t)begin * ROW_UNIT, row_end = (uint32_t)SL_MIN(end * ROW_UNIT, rows);
    while (row < row_end) {
        uint32_t head = (p->first_row + row) / p->rows_per_head;
        uint32_t next = (head + 1) * p->rows_per_head - p->first_row;
        next = SL_MIN(next, row_end);
        head_rows(j->k, p, head, row, next);
        row = next;
    }
}

static void cpu_head_product(sl_backend *be, const sl_head_product *p) {
    sl_cpu_backend *c = cpu(be);
    assert(p->w.shape.cols <= SL_HEAD_INPUTS_MAX && p->y_head_stride >= p->rows_per_head);
    head_product_job j = {.k = &c->k, .p = p};
    j.parts = parts_for(c, (uint64_t)p->w.shape.rows * p->w.shape.cols * p->n_tokens, PART_WEIGHTS);
    sl_pool_run(c->pool, j.parts, head_product_part, &j);
}

/* ---- the table ------------------------------------------------------------------------------ */

static const sl_backend_ops cpu_ops = {
    .name = "cpu",
    .norm = cpu_norm,
    .add = cpu_add,
    .silu_mul = cpu_silu_mul,
    .add_rows = cpu_add_rows,
    .swiglu_clamped = cpu_swiglu_clamped,
    .scatter_add = cpu_scatter_add,
    .sigmoid = cpu_sigmoid,
    .exp = cpu_exp,
    .row = cpu_row,
    .pack = cpu_pack,
    .product = cpu_product,
    .experts = cpu_experts,
    .head_product = cpu_head_product,
    .attention = sl__cpu_attention,
    .mla = sl__cpu_mla,
    .short_conv = sl__cpu_short_conv,
    .delta = sl__cpu_delta,
};

void sl_cpu_backend_init(sl_cpu_backend *be, sl_cpu_level level, sl_pool *pool) {
    memset(be, 0, sizeof(*be));
    be->base.ops = &cpu_ops;
    sl_kernels_init(&be->k, level);
    be->pool = pool;
}
