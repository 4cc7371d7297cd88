/* The CPU back end's steps: against plain loops in double precision, and the same bits at every level,
 * with any number of threads, in chunks of any size, with a ring or without. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"

/* ---- memory and numbers ------------------------------------------------------------------------- */

static SL_ALIGNED(64) float memory[1 << 21];
static size_t memory_used;

static float *floats(size_t n) {
    float *p = memory + memory_used;
    memory_used += SL_ALIGN_UP(n, 16);
    assert_true(memory_used <= SL_COUNT(memory));
    return p;
}

static int fresh(void **state) {
    (void)state;
    memory_used = 0;
    return 0;
}

static uint64_t random_state = 1;

static float random_float(void) { // -1 .. 1
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) * 0x1p-23 - 1.0);
}

static float *random_floats(size_t n, float size) {
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = size * random_float();
    return p;
}

static float *copy(const float *p, size_t n) {
    return memcpy(floats(n), p, n * sizeof(float));
}

static float *nans(size_t n) {
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = NAN;
    return p;
}

static void assert_near(const float *found, const double *expected, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)found[i] - expected[i]) < 2e-5))
            fail_msg("element %zu is %.9g, should be %.9g", i, (double)found[i], expected[i]);
    }
}

static void assert_same(const float *found, const float *expected, size_t n, const sl_backend *be,
                        uint32_t chunk) {
    const sl_cpu_backend *cpu = (const sl_cpu_backend *)be;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(found + i, expected + i, sizeof(float)) != 0)
            fail_msg("level %s, %u threads, chunks of %u: element %zu is %a, should be %a",
                     cpu->k.level, sl_pool_threads(cpu->pool), chunk, i, (double)found[i],
                     (double)expected[i]);
    }
}

/* ---- back ends ---------------------------------------------------------------------------------- */

/* The first one that a test sees is the reference on one thread. */
static void each_backend(void (*run)(sl_backend *be, void *ctx), void *ctx) {
    static const uint32_t threads[] = {1, 2, 4};
    for (int level = SL_CPU_REF; level <= SL_CPU_NEON; level++) {
        if (!sl_cpu_level_runs((sl_cpu_level)level))
            continue;
        for (size_t i = 0; i < SL_COUNT(threads); i++) {
            sl_error err;
            sl_arena stacks;
            sl_pool pool;
            sl_cpu_backend be;
            assert_int_equal(sl_arena_map(&stacks, "threads", sl_pool_bytes(threads[i]), &err),
                             SL_OK);
            assert_int_equal(sl_pool_init(&pool, threads[i], &stacks, NULL, &err), SL_OK);
            sl_cpu_backend_init(&be, (sl_cpu_level)level, &pool);
            size_t before = memory_used;
            run(&be.base, ctx);
            memory_used = before;
            sl_pool_deinit(&pool);
            sl_arena_unmap(&stacks);
        }
    }
}

static uint32_t chunk_of(size_t i, uint32_t n_tokens) {
    static const uint32_t chunks[] = {1, 7, 64};
    return i < SL_COUNT(chunks) ? chunks[i] : n_tokens;
}
#define N_CHUNKS 4

/* ---- in double precision ------------------------------------------------------------------------ */

static void plain_norm(double *y, const float *w, uint32_t n, double eps) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += y[i] * y[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = y[i] / sqrt(sum / n + eps) * (double)w[i];
}

static void plain_rope(double *y, const float *cos, const float *sin, uint32_t n_rot, bool pairs) {
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        double *a = &y[pairs ? 2 * i : i], *b = &y[pairs ? 2 * i + 1 : i + n_rot / 2];
        double u = *a, v = *b;
        *a = u * (double)cos[i] - v * (double)sin[i];
        *b = v * (double)cos[i] + u * (double)sin[i];
    }
}

static double plain_clip(double x, double limit) {
    return limit > 0 ? fmin(fmax(x, -limit), limit) : x;
}

/* Scores to weights; sink NULL: none. */
static void plain_softmax(double *s, uint32_t n, const float *sink) {
    double max = sink ? (double)*sink : -1e300, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = fmax(max, s[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += s[i] = exp(s[i] - max);
    sum += sink ? exp((double)*sink - max) : 0;
    for (uint32_t i = 0; i < n; i++)
        s[i] /= sum;
}

/* ---- attention ---------------------------------------------------------------------------------- */

#define TOKENS 210u
#define HEADS 6u
#define KV_HEADS 2u
#define D_HEAD 24u
#define N_ROT 16u
#define EPS 1e-5f

typedef struct attention_case {
    bool gated, head_norm, norm_all_heads, rope_pairs, has_sinks;
    float clip;
    uint32_t window;
    const float *q, *k, *v, *q_norm, *k_norm, *cos, *sin, *sinks; // of TOKENS tokens
    float *expected;
} attention_case;

static uint32_t q_width(const attention_case *c) {
    return HEADS * D_HEAD * (c->gated ? 2 : 1);
}

static const float *attention_run(sl_backend *be, const attention_case *c, uint32_t chunk,
                                  uint32_t n_ctx, uint32_t ring) {
    uint32_t rows = ring ? ring : n_ctx;
    float *q = copy(c->q, (size_t)TOKENS * q_width(c));
    float *k = copy(c->k, TOKENS * KV_HEADS * D_HEAD), *v = copy(c->v, TOKENS * KV_HEADS * D_HEAD);
    float *out = nans(TOKENS * HEADS * D_HEAD);
    sl_attention_step step = {
        .n_heads = HEADS,
        .n_kv_heads = KV_HEADS,
        .d_head = D_HEAD,
        .n_rot = N_ROT,
        .scale = 0.3f,
        .norm_eps = EPS,
        .gated = c->gated,
        .q_norm = c->head_norm || c->norm_all_heads ? c->q_norm : NULL,
        .k_norm = c->head_norm || c->norm_all_heads ? c->k_norm : NULL,
        .norm_all_heads = c->norm_all_heads,
        .clip = c->clip,
        .rope_pairs = c->rope_pairs,
        .sinks = c->has_sinks ? c->sinks : NULL,
        .window = c->window,
        .k_cache = nans((size_t)KV_HEADS * rows * D_HEAD),
        .v_cache = nans((size_t)KV_HEADS * rows * D_HEAD),
        .n_ctx = n_ctx,
        .ring = ring,
    };
    for (uint32_t t = 0; t < TOKENS; t += chunk) {
        step.n_tokens = SL_MIN(chunk, TOKENS - t);
        step.first_position = t;
        step.cos = c->cos + t * N_ROT / 2;
        step.sin = c->sin + t * N_ROT / 2;
        step.q = q + (size_t)t * q_width(c);
        step.k = k + t * KV_HEADS * D_HEAD;
        step.v = v + t * KV_HEADS * D_HEAD;
        step.out = out + t * HEADS * D_HEAD;
        be->ops->attention(be, &step);
    }
    return out;
}

/* Norm, clip and rotate one head of a token; x is the whole token's row. */
static void plain_head(const attention_case *c, double y[D_HEAD], const float *x, uint32_t stride,
                       uint32_t head, uint32_t n_heads, const float *norm, uint32_t token) {
    double all[HEADS * D_HEAD];
    for (uint32_t h = 0; h < n_heads; h++) {
        for (uint32_t i = 0; i < D_HEAD; i++)
            all[h * D_HEAD + i] = (double)x[h * stride + i];
    }
    if (c->norm_all_heads)
        plain_norm(all, norm, n_heads * D_HEAD, (double)EPS);
    for (uint32_t i = 0; i < D_HEAD; i++)
        y[i] = all[head * D_HEAD + i];
    if (c->head_norm)
        plain_norm(y, norm, D_HEAD, (double)EPS);
    for (uint32_t i = 0; i < D_HEAD; i++)
        y[i] = plain_clip(y[i], (double)c->clip);
    plain_rope(y, c->cos + token * N_ROT / 2, c->sin + token * N_ROT / 2, N_ROT, c->rope_pairs);
}

static void attention_is_attention(const attention_case *c, const float *out) {
    static double keys[TOKENS][KV_HEADS][D_HEAD];
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t h = 0; h < KV_HEADS; h++)
            plain_head(c, keys[t][h], c->k + t * KV_HEADS * D_HEAD, D_HEAD, h, KV_HEADS, c->k_norm,
                       t);
    }
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            double q[D_HEAD], weights[TOKENS], expected[D_HEAD] = {0};
            const float *x = c->q + (size_t)t * q_width(c);
            uint32_t width = c->gated ? 2 * D_HEAD : D_HEAD, kv = h / (HEADS / KV_HEADS);
            uint32_t first = c->window && t + 1 > c->window ? t + 1 - c->window : 0;
            plain_head(c, q, x, width, h, HEADS, c->q_norm, t);
            for (uint32_t p = first; p <= t; p++) {
                weights[p - first] = 0;
                for (uint32_t i = 0; i < D_HEAD; i++)
                    weights[p - first] += (double)0.3f * q[i] * keys[p][kv][i];
            }
            plain_softmax(weights, t + 1 - first, c->has_sinks ? c->sinks + h : NULL);
            for (uint32_t i = 0; i < D_HEAD; i++) {
                for (uint32_t p = first; p <= t; p++)
                    expected[i] +=
                        weights[p - first] *
                        plain_clip((double)c->v[(p * KV_HEADS + kv) * D_HEAD + i], (double)c->clip);
                if (c->gated)
                    expected[i] /= 1 + exp(-(double)x[h * width + D_HEAD + i]);
            }
            assert_near(out + (t * HEADS + h) * D_HEAD, expected, D_HEAD);
        }
    }
}

static void attention_on(sl_backend *be, void *ctx) {
    attention_case *c = ctx;
    if (isnan(c->expected[0])) {
        const float *out = attention_run(be, c, TOKENS, TOKENS, 0);
        attention_is_attention(c, out);
        memcpy(c->expected, out, TOKENS * HEADS * D_HEAD * sizeof(float));
    }
    uint32_t ring = sl_window_ring(c->window, TOKENS);
    for (size_t i = 0; i < N_CHUNKS; i++) {
        size_t before = memory_used;
        uint32_t chunk = chunk_of(i, TOKENS);
        assert_same(attention_run(be, c, chunk, TOKENS + 5, 0), c->expected,
                    TOKENS * HEADS * D_HEAD, be, chunk);
        assert_same(attention_run(be, c, chunk, TOKENS, ring), c->expected, TOKENS * HEADS * D_HEAD,
                    be, chunk);
        memory_used = before;
    }
}

static void attention_in_every_form(void **state) {
    (void)state;
    attention_case cases[] = {
        {.gated = true, .head_norm = true},
        {.norm_all_heads = true, .clip = 0.5f},
        {.head_norm = true, .rope_pairs = true, .has_sinks = true},
        {.window = 128, .has_sinks = true},
        {.window = 2, .gated = true},
        {.window = 66, .head_norm = true, .clip = 0.7f}, // a ring with more than 64 rows to spare
        {.window = 1},
    };
    float *angles = random_floats(TOKENS * N_ROT / 2, 3.0f);
    float *cos_x = floats(TOKENS * N_ROT / 2), *sin_x = floats(TOKENS * N_ROT / 2);
    for (size_t i = 0; i < (size_t)TOKENS * N_ROT / 2; i++)
        sl_sincosf(angles[i], &sin_x[i], &cos_x[i]);
    const float *q = random_floats((size_t)TOKENS * HEADS * 2 * D_HEAD, 2.0f);
    const float *k = random_floats(TOKENS * KV_HEADS * D_HEAD, 2.0f);
    const float *v = random_floats(TOKENS * KV_HEADS * D_HEAD, 1.0f);
    const float *norms = random_floats(2 * HEADS * D_HEAD, 1.5f);
    const float *sinks = random_floats(HEADS, 4.0f);
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        size_t before = memory_used;
        attention_case *c = &cases[i];
        c->q = q;
        c->k = k;
        c->v = v;
        c->q_norm = norms;
        c->k_norm = norms + HEADS * D_HEAD;
        c->cos = cos_x;
        c->sin = sin_x;
        c->sinks = sinks;
        c->expected = nans(TOKENS * HEADS * D_HEAD);
        each_backend(attention_on, c);
        memory_used = before;
    }
}

static void rings_have_room(void **state) {
    (void)state;
    assert_int_equal(sl_window_ring(0, 1000), 1000);
    assert_int_equal(sl_window_ring(1, 1000), 64);
    assert_int_equal(sl_window_ring(2, 1000), 128);
    assert_int_equal(sl_window_ring(128, 4096), 192);
    assert_int_equal(sl_window_ring(128, 192), 192);
    assert_int_equal(sl_window_ring(128, 100), 100);
    assert_int_equal(sl_window_ring(UINT32_MAX, 5), 5);
    for (uint32_t window = 1; window < 300; window++) {
        uint32_t ring = sl_window_ring(window, 4096);
        assert_true(ring % SL_ATTEND_BLOCK == 0 && ring >= window + 63 && ring < window + 127);
    }
}

/* ---- products per head -------------------------------------------------------------------------- */

typedef struct head_case {
    uint32_t n_heads, rows_per_head, n_tokens;
    sl_matrix w; // the whole stack
    const float *x;
    float *expected;
} head_case;

static sl_matrix rows_of(const sl_matrix *w, uint32_t first, uint32_t n) {
    sl_matrix out = *w;
    sl_matrix_layout layout;
    sl_error err;
    assert_int_equal(sl_matrix_layout_of(&w->shape, &layout, &err), SL_OK);
    out.shape.rows = n;
    out.codes = (const char *)w->codes + first * layout.row_code_bytes;
    if (w->shape.group)
        out.scales = (const char *)w->scales + first * layout.row_scale_bytes;
    if (sl_dtype_is_affine(w->shape.dtype))
        out.biases = (const char *)w->biases + first * layout.row_bias_bytes;
    return out;
}

/* x is [T][n_heads][cols + 3], y is [T][n_heads][rows_per_head + 5]. */
static void head_product_on(sl_backend *be, void *ctx) {
    head_case *c = ctx;
    uint32_t cols = c->w.shape.cols, rows = c->rows_per_head, stride = rows + 5;
    size_t n_y = (size_t)c->n_tokens * c->n_heads * stride;
    if (isnan(c->expected[0])) {
        sl_packed p = {.xp = floats(c->n_tokens * sl_pack_floats(cols)),
                       .lane_sums = floats(c->n_tokens * sl_lane_floats(cols)),
                       .group_sums = floats((size_t)c->n_tokens * sl_group_stride(cols, 32))};
        for (uint32_t h = 0; h < c->n_heads; h++) {
            const sl_product product = {rows_of(&c->w, h * rows, rows), c->expected + h * stride,
                                        (size_t)c->n_heads * stride};
            be->ops->pack(be, &p, c->x + h * (cols + 3), (size_t)c->n_heads * (cols + 3),
                          c->n_tokens, cols);
            be->ops->product(be, &p, &product, 1);
        }
    }
    for (uint32_t strip = 1; strip <= c->n_heads * rows; strip = strip * 3 + 1) {
        float *y = floats(n_y);
        memset(y, 0, n_y * sizeof(float));
        for (uint32_t row = 0; row < c->n_heads * rows; row += strip) {
            const sl_head_product product = {
                .w = rows_of(&c->w, row, SL_MIN(strip, c->n_heads * rows - row)),
                .first_row = row,
                .rows_per_head = rows,
                .n_tokens = c->n_tokens,
                .x = c->x,
                .x_token_stride = (size_t)c->n_heads * (cols + 3),
                .x_head_stride = cols + 3,
                .y = y,
                .y_token_stride = (size_t)c->n_heads * stride,
                .y_head_stride = stride,
            };
            be->ops->head_product(be, &product);
        }
        assert_same(y, c->expected, n_y, be, strip);
    }
}

static void head_products_are_products(void **state) {
    (void)state;
    static const struct {
        uint32_t n_heads, rows, cols, n_tokens, group;
        sl_dtype dtype;
    } cases[] = {
        {5, 24, 70, 1, 0, SL_DTYPE_F32},     {3, 40, 192, 19, 64, SL_DTYPE_Q4},
        {16, 512, 128, 1, 64, SL_DTYPE_Q4},  {4, 33, 1024, 3, 32, SL_DTYPE_Q8},
        {2, 17, 1024, 9, 128, SL_DTYPE_Q4},  {7, 8, 96, 5, 32, SL_DTYPE_Q6},
        {3, 128, 512, 17, 0, SL_DTYPE_BF16}, {5, 50, 64, 11, 32, SL_DTYPE_MXFP4},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        memory_used = 0;
        head_case c = {.n_heads = cases[i].n_heads,
                       .rows_per_head = cases[i].rows,
                       .n_tokens = cases[i].n_tokens,
                       .w = {.shape = {.dtype = cases[i].dtype,
                                       .scale_dtype = SL_DTYPE_F32,
                                       .rows = cases[i].n_heads * cases[i].rows,
                                       .cols = cases[i].cols,
                                       .group = cases[i].group}}};
        size_t n_weights = (size_t)c.w.shape.rows * c.w.shape.cols;
        // Bits of floats are codes as good as any; as BF16 they are pairs of a float and noise.
        float *codes = random_floats(n_weights, 0.5f);
        if (c.w.shape.dtype == SL_DTYPE_BF16) {
            for (size_t j = 0; j < n_weights; j++)
                memcpy((uint16_t *)codes + j, (const uint16_t *)&codes[j] + 1, sizeof(uint16_t));
        }
        c.w.codes = codes;
        if (c.w.shape.dtype == SL_DTYPE_MXFP4) {
            c.w.shape.scale_dtype = SL_DTYPE_U8;
            c.w.scales = memset(floats(n_weights / 32), 125, n_weights / 32);
        } else if (c.w.shape.group) {
            c.w.scales = random_floats(n_weights / c.w.shape.group, 0.02f);
            c.w.biases = random_floats(n_weights / c.w.shape.group, 0.2f);
        }
        c.x = random_floats((size_t)c.n_tokens * c.n_heads * (c.w.shape.cols + 3), 1.0f);
        size_t n_y = (size_t)c.n_tokens * c.n_heads * (c.rows_per_head + 5);
        c.expected = floats(n_y);
        memset(c.expected, 0, n_y * sizeof(float));
        c.expected[0] = NAN;
        each_backend(head_product_on, &c);
    }
}

/* ---- multi-head latent attention ---------------------------------------------------------------- */

#define MLA_TOKENS 140u
#define MLA_HEADS 3u
#define D_LATENT 64u
#define D_NOPE 40u
#define D_ROPE 16u
#define D_V 24u
#define D_QUERY (D_LATENT + D_ROPE)

typedef struct mla_case {
    bool rope_half;
    const float *q, *kv, *latent_norm, *cos, *sin;
    const float *embed_q;     // [heads * D_LATENT][D_NOPE]
    const float *unembed_out; // [heads * D_V][D_LATENT]
    float *expected;          // [T][heads][D_V]
} mla_case;

/* A layer's core with both products. */
static const float *mla_run(sl_backend *be, const mla_case *c, uint32_t chunk) {
    float *query = nans(MLA_TOKENS * MLA_HEADS * D_QUERY);
    float *mixed = nans(MLA_TOKENS * MLA_HEADS * D_LATENT);
    float *cache = nans(MLA_TOKENS * D_QUERY), *out = nans(MLA_TOKENS * MLA_HEADS * D_V);
    for (uint32_t t = 0; t < MLA_TOKENS; t += chunk) {
        uint32_t n = SL_MIN(chunk, MLA_TOKENS - t);
        const float *q = c->q + t * MLA_HEADS * (D_NOPE + D_ROPE);
        const sl_head_product before = {
            .w = {{.dtype = SL_DTYPE_F32, .rows = MLA_HEADS * D_LATENT, .cols = D_NOPE},
                  c->embed_q,
                  NULL,
                  NULL},
            .rows_per_head = D_LATENT,
            .n_tokens = n,
            .x = q,
            .x_token_stride = MLA_HEADS * (D_NOPE + D_ROPE),
            .x_head_stride = D_NOPE + D_ROPE,
            .y = query,
            .y_token_stride = MLA_HEADS * D_QUERY,
            .y_head_stride = D_QUERY,
        };
        const sl_mla_step step = {
            .n_tokens = n,
            .first_position = t,
            .n_heads = MLA_HEADS,
            .d_latent = D_LATENT,
            .d_nope = D_NOPE,
            .d_rope = D_ROPE,
            .n_ctx = MLA_TOKENS,
            .scale = 0.2f,
            .norm_eps = EPS,
            .rope_half = c->rope_half,
            .latent_norm = c->latent_norm,
            .cos = c->cos + t * D_ROPE / 2,
            .sin = c->sin + t * D_ROPE / 2,
            .q = q,
            .kv = c->kv + t * D_QUERY,
            .query = query,
            .cache = cache,
            .out = mixed,
        };
        const sl_head_product after = {
            .w = {{.dtype = SL_DTYPE_F32, .rows = MLA_HEADS * D_V, .cols = D_LATENT},
                  c->unembed_out,
                  NULL,
                  NULL},
            .rows_per_head = D_V,
            .n_tokens = n,
            .x = mixed,
            .x_token_stride = MLA_HEADS * D_LATENT,
            .x_head_stride = D_LATENT,
            .y = out + t * MLA_HEADS * D_V,
            .y_token_stride = MLA_HEADS * D_V,
            .y_head_stride = D_V,
        };
        be->ops->head_product(be, &before);
        be->ops->mla(be, &step);
        be->ops->head_product(be, &after);
    }
    return out;
}

/* The plain form: keys and values per head are made from the latent. */
static void mla_is_attention(const mla_case *c, const float *out) {
    static double latent[MLA_TOKENS][D_QUERY];
    for (uint32_t t = 0; t < MLA_TOKENS; t++) {
        for (uint32_t i = 0; i < D_QUERY; i++)
            latent[t][i] = (double)c->kv[t * D_QUERY + i];
        plain_norm(latent[t], c->latent_norm, D_LATENT, (double)EPS);
        plain_rope(latent[t] + D_LATENT, c->cos + t * D_ROPE / 2, c->sin + t * D_ROPE / 2, D_ROPE,
                   !c->rope_half);
    }
    for (uint32_t h = 0; h < MLA_HEADS; h++) {
        static double keys[MLA_TOKENS][D_NOPE], values[MLA_TOKENS][D_V];
        memset(keys, 0, sizeof(keys));
        memset(values, 0, sizeof(values));
        for (uint32_t t = 0; t < MLA_TOKENS; t++) {
            for (uint32_t j = 0; j < D_LATENT; j++) {
                for (uint32_t i = 0; i < D_NOPE; i++)
                    keys[t][i] +=
                        (double)c->embed_q[(h * D_LATENT + j) * D_NOPE + i] * latent[t][j];
                for (uint32_t i = 0; i < D_V; i++)
                    values[t][i] +=
                        (double)c->unembed_out[(h * D_V + i) * D_LATENT + j] * latent[t][j];
            }
        }
        for (uint32_t t = 0; t < MLA_TOKENS; t++) {
            double q[D_NOPE + D_ROPE], s[MLA_TOKENS], expected[D_V] = {0};
            for (uint32_t i = 0; i < D_NOPE + D_ROPE; i++)
                q[i] = (double)c->q[(t * MLA_HEADS + h) * (D_NOPE + D_ROPE) + i];
            plain_rope(q + D_NOPE, c->cos + t * D_ROPE / 2, c->sin + t * D_ROPE / 2, D_ROPE,
                       !c->rope_half);
            for (uint32_t p = 0; p <= t; p++) {
                s[p] = 0;
                for (uint32_t i = 0; i < D_NOPE + D_ROPE; i++)
                    s[p] += (double)0.2f * q[i] *
                            (i < D_NOPE ? keys[p][i] : latent[p][D_LATENT + i - D_NOPE]);
            }
            plain_softmax(s, t + 1, NULL);
            for (uint32_t p = 0; p <= t; p++) {
                for (uint32_t i = 0; i < D_V; i++)
                    expected[i] += s[p] * values[p][i];
            }
            assert_near(out + (t * MLA_HEADS + h) * D_V, expected, D_V);
        }
    }
}

static void mla_on(sl_backend *be, void *ctx) {
    mla_case *c = ctx;
    if (isnan(c->expected[0])) {
        const float *out = mla_run(be, c, MLA_TOKENS);
        mla_is_attention(c, out);
        memcpy(c->expected, out, MLA_TOKENS * MLA_HEADS * D_V * sizeof(float));
    }
    for (size_t i = 0; i < N_CHUNKS; i++) {
        uint32_t chunk = chunk_of(i, MLA_TOKENS);
        assert_same(mla_run(be, c, chunk), c->expected, MLA_TOKENS * MLA_HEADS * D_V, be, chunk);
    }
}

static void latent_attention_in_both_pairings(void **state) {
    (void)state;
    for (int half = 0; half < 2; half++) {
        memory_used = 0;
        float *angles = random_floats(MLA_TOKENS * D_ROPE / 2, 3.0f);
        float *cos_x = floats(MLA_TOKENS * D_ROPE / 2), *sin_x = floats(MLA_TOKENS * D_ROPE / 2);
        for (size_t i = 0; i < (size_t)MLA_TOKENS * D_ROPE / 2; i++)
            sl_sincosf(angles[i], &sin_x[i], &cos_x[i]);
        mla_case c = {
            .rope_half = half,
            .q = random_floats((size_t)MLA_TOKENS * MLA_HEADS * (D_NOPE + D_ROPE), 1.0f),
            .kv = random_floats(MLA_TOKENS * D_QUERY, 1.0f),
            .latent_norm = random_floats(D_LATENT, 1.5f),
            .cos = cos_x,
            .sin = sin_x,
            .embed_q = random_floats((size_t)MLA_HEADS * D_LATENT * D_NOPE, 0.3f),
            .unembed_out = random_floats((size_t)MLA_HEADS * D_V * D_LATENT, 0.3f),
            .expected = nans(MLA_TOKENS * MLA_HEADS * D_V),
        };
        each_backend(mla_on, &c);
    }
}

/* ---- short convolution -------------------------------------------------------------------------- */

#define CONV_TOKENS 150u
#define CHANNELS 77u

typedef struct conv_case {
    uint32_t width;
    const float *taps, *bias, *bcx;
    float *expected, *expected_tail;
} conv_case;

static void conv_on(sl_backend *be, void *ctx) {
    conv_case *c = ctx;
    size_t n = (size_t)CONV_TOKENS * CHANNELS, n_tail = (size_t)(c->width - 1) * CHANNELS;
    for (size_t i = N_CHUNKS; i-- > 0;) {
        uint32_t chunk = chunk_of(i, CONV_TOKENS);
        float *bcx = copy(c->bcx, 3 * n), *out = nans(n), *tail = floats(n_tail);
        memset(tail, 0, n_tail * sizeof(float));
        for (uint32_t t = 0; t < CONV_TOKENS; t += chunk) {
            const sl_short_conv_step step = {.n_tokens = SL_MIN(chunk, CONV_TOKENS - t),
                                             .n_channels = CHANNELS,
                                             .width = c->width,
                                             .taps = c->taps,
                                             .bias = c->bias,
                                             .bcx = bcx + (size_t)t * 3 * CHANNELS,
                                             .tail = tail,
                                             .out = out + (size_t)t * CHANNELS};
            be->ops->short_conv(be, &step);
        }
        if (isnan(c->expected[0])) {
            memcpy(c->expected, out, n * sizeof(float));
            memcpy(c->expected_tail, tail, n_tail * sizeof(float));
        }
        assert_same(out, c->expected, n, be, chunk);
        assert_same(tail, c->expected_tail, n_tail, be, chunk);
    }
}

static void short_convolutions(void **state) {
    (void)state;
    for (uint32_t width = 2; width <= 4; width++) {
        memory_used = 0;
        conv_case c = {.width = width,
                       .taps = random_floats((size_t)width * CHANNELS, 1.0f),
                       .bias = width == 3 ? NULL : random_floats(CHANNELS, 1.0f),
                       .bcx = random_floats((size_t)3 * CONV_TOKENS * CHANNELS, 1.0f),
                       .expected = nans((size_t)CONV_TOKENS * CHANNELS),
                       .expected_tail = floats((size_t)(width - 1) * CHANNELS)};
        each_backend(conv_on, &c);
        for (uint32_t t = 0; t < CONV_TOKENS; t++) {
            for (uint32_t i = 0; i < CHANNELS; i++) {
                double sum = c.bias ? (double)c.bias[i] : 0;
                for (uint32_t j = 0; j < width && j <= t; j++) { // j tokens back
                    const float *row = c.bcx + (size_t)(t - j) * 3 * CHANNELS;
                    sum += (double)c.taps[(width - 1 - j) * CHANNELS + i] * (double)row[i] *
                           (double)row[2 * CHANNELS + i];
                }
                double y = sum * (double)c.bcx[(t * 3 + 1) * CHANNELS + i];
                assert_near(c.expected + t * CHANNELS + i, &y, 1);
            }
        }
    }
}

/* ---- elements ----------------------------------------------------------------------------------- */

#define ROWS 37u
#define COLS 1200u

typedef struct element_case {
    const float *a, *b;
    float *sums, *mixed;
} element_case;

static void elements_on(sl_backend *be, void *ctx) {
    element_case *c = ctx;
    float *sums = copy(c->a, ROWS * COLS), *mixed = nans(ROWS * COLS);
    be->ops->add_rows(be, sums, c->b, ROWS, COLS);
    be->ops->swiglu_clamped(be, mixed, c->a, c->b, ROWS * COLS, 7.0f, 1.702f);
    if (isnan(c->sums[0])) {
        memcpy(c->sums, sums, ROWS * COLS * sizeof(float));
        memcpy(c->mixed, mixed, ROWS * COLS * sizeof(float));
    }
    assert_same(sums, c->sums, ROWS * COLS, be, ROWS);
    assert_same(mixed, c->mixed, ROWS * COLS, be, ROWS);
}

static void biases_and_clamped_gates(void **state) {
    (void)state;
    element_case c = {.a = random_floats(ROWS * COLS, 12.0f),
                      .b = random_floats(ROWS * COLS, 12.0f),
                      .sums = nans(ROWS * COLS),
                      .mixed = nans(ROWS * COLS)};
    each_backend(elements_on, &c);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        double g = fmin((double)c.a[i], 7), u = plain_clip((double)c.b[i], 7);
        double y = g / (1 + exp(-(double)1.702f * g)) * (u + 1);
        double sum = (double)c.a[i] + (double)c.b[i % COLS];
        assert_near(&c.mixed[i], &y, 1);
        assert_near(&c.sums[i], &sum, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(attention_in_every_form, fresh),
        cmocka_unit_test(rings_have_room),
        cmocka_unit_test_setup(head_products_are_products, fresh),
        cmocka_unit_test_setup(latent_attention_in_both_pairings, fresh),
        cmocka_unit_test_setup(short_convolutions, fresh),
        cmocka_unit_test_setup(biases_and_clamped_gates, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
