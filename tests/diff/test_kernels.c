/* Every entry of the kernel table, at every level that this machine runs, against the reference: the
 * same bits on ordinary and on wild data, in odd sizes, between guards. The measure is the portable
 * build of the reference; its build with hardware FMA is one of the things measured.
 *
 *   test_kernels [cases, default 60] [seed, default 1] */
#define _DEFAULT_SOURCE // MAP_ANONYMOUS

#include "kernels_fixture.h"

#include "base/attr.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"

typedef struct level {
    char name[24];
    sl_kernels k;
} level;

static sl_kernels truth;
static level levels[8];
static size_t n_levels;
static uint32_t n_cases = 60;
static tally tallies[DATA_KINDS];

/* Compare results of a level with those of the truth, say what differs. */
static void same(const level *l, const char *what, data_kind kind, uint64_t seed,
                 const float *expected, const float *found, size_t n) {
    const size_t at = first_difference(expected, found, n);
    CHECK(at == n, "%s, %s, %s data, seed %llu: element %zu of %zu: expected %a, found %a", l->name,
          what, data_names[kind], (unsigned long long)seed, at, n,
          at < n ? (double)expected[at] : 0.0, at < n ? (double)found[at] : 0.0);
}

/* ---- products ---- */

typedef struct product_case {
    sl_matrix w;
    uint32_t row_begin, row_end;
    uint32_t n, n_inputs;
    uint32_t group; /* of the sums of inputs: 0 where the weights have no biases */
    size_t y_stride;
    const float *x;
} product_case;

typedef struct packed {
    float *xp, *lane_sums, *group_sums;
    sl_columns columns;
} packed;

static packed pack(const sl_kernels *k, const product_case *c, const float *x, uint32_t n) {
    packed p = {.xp = guarded_floats(n * sl_pack_floats(c->n_inputs)),
                .lane_sums = guarded_floats(n * sl_lane_floats(c->n_inputs))};
    k->pack(x, c->n_inputs, n, c->n_inputs, p.xp, p.lane_sums);
    if (c->group != 0) { // no sums where nobody may look at them
        p.group_sums = guarded_floats((size_t)n * sl_group_stride(c->n_inputs, c->group));
        k->group_sums(p.lane_sums, n, c->n_inputs, c->group, p.group_sums);
    }
    p.columns = (sl_columns){
        .n = n, .n_inputs = c->n_inputs, .group = c->group, .xp = p.xp, .group_sums = p.group_sums};
    return p;
}

static const void *random_scales(size_t n, sl_dtype dtype, data_kind kind) {
    if (dtype == SL_DTYPE_F32) {
        float *p = guarded_floats(n);
        random_floats(p, n, kind);
        return p;
    }
    uint16_t *p = guarded(n * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) {
        p[i] = dtype == SL_DTYPE_F16 ? random_half(kind)
                                     : (uint16_t)(bits_of_float(random_float(kind)) >> 16);
    }
    return p;
}

/* Scales of MXFP4: never 255, which is refused before a kernel sees it. */
static const unsigned char *random_exponents(size_t n, data_kind kind) {
    unsigned char *p = guarded(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = (unsigned char)(kind == DATA_SUBNORMAL  ? random_below(4)
                               : kind == DATA_ORDINARY ? 120 + random_below(10)
                               : random_below(16) == 0 ? random_below(2) * 254
                                                       : random_below(255));
    }
    return p;
}

static sl_matrix random_matrix(sl_dtype dtype, uint32_t rows, uint32_t cols, uint32_t group,
                               data_kind kind) {
    static const sl_dtype scale_types[] = {SL_DTYPE_BF16, SL_DTYPE_F16, SL_DTYPE_F32};
    const sl_dtype scale_dtype = scale_types[random_below(3)];
    sl_matrix m = {.shape = {.dtype = dtype,
                             .scale_dtype = scale_dtype,
                             .rows = rows,
                             .cols = cols,
                             .group = group}};
    if (group == 0) {
        m.codes = random_scales((size_t)rows * cols, dtype, kind);
        return m;
    }
    const bool affine = sl_dtype_is_affine(dtype);
    const unsigned bits = sl_dtype_bits(dtype);
    const size_t bytes = (size_t)rows * cols / 8 * bits;
    unsigned char *codes = guarded(bytes);
    for (size_t i = 0; i < bytes; i++) {
        codes[i] = (unsigned char)random_u64();
        if (kind == DATA_ZEROS && (bits == 4 || bits == 8) && random_below(4) != 0) {
            codes[i] = bits == 4 ? 0x88 : 0x80; // the centre, or E2M1's -0: products of zero
        }
    }
    m.codes = codes;
    if (!affine) {
        m.shape.scale_dtype = SL_DTYPE_U8;
        m.scales = random_exponents((size_t)rows * (cols / group), random_partner(kind));
        return m;
    }
    m.scales = random_scales((size_t)rows * (cols / group), scale_dtype, random_partner(kind));
    m.biases = random_scales((size_t)rows * (cols / group), scale_dtype, random_partner(kind));
    return m;
}

static product_case random_product(sl_dtype dtype, data_kind kind) {
    static const uint32_t columns[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 32, 35};
    product_case c = {.n = columns[random_below(SL_COUNT(columns))]};
    const uint32_t rows = 1 + random_below(random_below(4) == 0 ? 70 : 13);
    if (sl_dtype_is_quantized(dtype)) {
        const uint32_t group = sl_dtype_is_affine(dtype) ? 32u << random_below(3) : 32;
        const uint32_t groups_max = random_below(8) == 0 ? 2048 / group : 640 / group;
        c.group = sl_dtype_is_affine(dtype) ? group : 0;
        c.n_inputs = group * (1 + random_below(groups_max));
    } else {
        c.n_inputs = random_below(2) == 0 ? 1 + random_below(700) : 64 * (1 + random_below(12));
    }
    c.row_begin = random_below(2) == 0 ? 0 : random_below(rows);
    c.row_end = random_below(2) == 0 ? rows : c.row_begin + random_below(rows - c.row_begin + 1);
    c.y_stride = rows + random_below(4);
    c.w = random_matrix(dtype, rows, c.n_inputs, dtype == SL_DTYPE_MXFP4 ? 32 : c.group,
                        dtype == SL_DTYPE_F32 ? random_partner(kind) : kind);
    float *x = guarded_floats((size_t)c.n * c.n_inputs);
    random_floats(x, (size_t)c.n * c.n_inputs, kind);
    c.x = x;
    return c;
}

static void product_at_level(const level *l, const product_case *c, data_kind kind, uint64_t seed,
                             const packed *expected, const float *y_expected, size_t n_y) {
    const sl_dtype dtype = c->w.shape.dtype;
    const packed p = pack(&l->k, c, c->x, c->n);
    same(l, "pack", kind, seed, expected->xp, p.xp, c->n * sl_pack_floats(c->n_inputs));
    same(l, "lane sums", kind, seed, expected->lane_sums, p.lane_sums,
         c->n * sl_lane_floats(c->n_inputs));
    if (c->group != 0) {
        same(l, "group sums", kind, seed, expected->group_sums, p.group_sums,
             (size_t)c->n * sl_group_stride(c->n_inputs, c->group));
    }
    float *y = guarded_floats(n_y);
    l->k.product[dtype](&c->w, c->row_begin, c->row_end, &p.columns, y, c->y_stride);
    same(l, sl_dtype_name(dtype), kind, seed, y_expected, y, n_y); // untouched elements included

    const uint32_t column = random_below(c->n);
    const packed one = pack(&l->k, c, c->x + (size_t)column * c->n_inputs, 1);
    float *y_one = guarded_floats(c->w.shape.rows);
    l->k.product[dtype](&c->w, c->row_begin, c->row_end, &one.columns, y_one, c->w.shape.rows);
    const uint32_t n_rows = c->row_end - c->row_begin;
    same(l, "a column alone", kind, seed, y_expected + column * c->y_stride + c->row_begin,
         y_one + c->row_begin, n_rows);

    const uint32_t row = random_below(c->w.shape.rows);
    float *row_expected = guarded_floats(c->n_inputs);
    float *row_found = guarded_floats(c->n_inputs);
    truth.row(&c->w, row, row_expected);
    l->k.row(&c->w, row, row_found);
    same(l, "row", kind, seed, row_expected, row_found, c->n_inputs);
}

static void products(sl_dtype dtype, data_kind kind, uint64_t seed) {
    const product_case c = random_product(dtype, kind);
    const packed p = pack(&truth, &c, c.x, c.n);
    const size_t n_y = (c.n - 1) * c.y_stride + c.w.shape.rows;
    float *y = guarded_floats(n_y);
    truth.product[dtype](&c.w, c.row_begin, c.row_end, &p.columns, y, c.y_stride);
    for (uint32_t column = 0; column < c.n; column++) {
        tally_add(&tallies[kind], y + column * c.y_stride + c.row_begin, c.row_end - c.row_begin);
    }
    for (size_t i = 0; i < n_levels; i++) {
        product_at_level(&levels[i], &c, kind, seed, &p, y, n_y);
    }
}

static void products_f32(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_F32, kind, seed);
}
static void products_f16(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_F16, kind, seed);
}
static void products_bf16(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_BF16, kind, seed);
}
static void products_q2(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q2, kind, seed);
}
static void products_q3(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q3, kind, seed);
}
static void products_q4(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q4, kind, seed);
}
static void products_q5(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q5, kind, seed);
}
static void products_q6(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q6, kind, seed);
}
static void products_q8(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_Q8, kind, seed);
}
static void products_mxfp4(data_kind kind, uint64_t seed) {
    products(SL_DTYPE_MXFP4, kind, seed);
}

/* Sums that end at -0 tell every addition of +0 that the definition does not have, and every one that
 * it has: what is missing of a last block adds +0, the groups of a row that do not exist add nothing.
 * Lanes reach -0 by rounding: scale * p and B * xsum are too small to be anything else. */
static void minus_zero(data_kind kind, uint64_t seed) {
    static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
    const unsigned bits = widths[random_below(SL_COUNT(widths))];
    const bool centred =
        random_below(2) == 0; // codes at the centre, inputs negative: products are -0
    sl_dtype dtype;
    CHECK(sl_dtype_quantized(bits, &dtype), "%u bits", bits);
    product_case c = {.n = 1 + random_below(5), .group = 32u << random_below(3)};
    c.n_inputs = c.group * (1 + random_below(1600 / c.group));
    const uint32_t rows = 1 + random_below(6);
    const uint32_t n_groups = c.n_inputs / c.group;
    unsigned char *codes = guarded((size_t)rows * c.n_inputs / 8 * bits);
    memset(codes, 0, (size_t)rows * c.n_inputs / 8 * bits);
    for (size_t i = 0; centred && i < (size_t)rows * c.n_inputs; i++) {
        codes[(i * bits + bits - 1) / 8] |= (unsigned char)(1u << ((i * bits + bits - 1) % 8));
    }
    float *scales = guarded_floats((size_t)rows * n_groups);
    float *biases = guarded_floats((size_t)rows * n_groups);
    for (size_t i = 0; i < (size_t)rows * n_groups; i++) {
        scales[i] = 0x1p-100f;
        biases[i] = centred ? 0x1p-61f : -0x1p-61f;
    }
    float *x = guarded_floats((size_t)c.n * c.n_inputs);
    for (size_t i = 0; i < (size_t)c.n * c.n_inputs; i++) {
        x[i] = centred ? -0x1p-100f : 0x1p-100f;
    }
    c.w = (sl_matrix){.shape = {.dtype = dtype,
                                .scale_dtype = SL_DTYPE_F32,
                                .rows = rows,
                                .cols = c.n_inputs,
                                .group = c.group},
                      .codes = codes,
                      .scales = scales,
                      .biases = biases};
    c.row_end = rows;
    c.y_stride = rows;
    c.x = x;
    const packed p = pack(&truth, &c, c.x, c.n);
    float *y = guarded_floats((size_t)c.n * rows);
    truth.product[dtype](&c.w, 0, rows, &p.columns, y, rows);
    const bool negative = c.n_inputs % SL_BLOCK == 0 && (!centred || n_groups >= SL_LANES);
    CHECK(bits_of_float(y[0]) == (negative ? 0x80000000u : 0), "%a with %u inputs in groups of %u",
          (double)y[0], c.n_inputs, c.group);
    for (size_t i = 0; i < n_levels; i++) {
        product_at_level(&levels[i], &c, kind, seed, &p, y, (size_t)c.n * rows);
    }
}

/* The same of MXFP4, whose lanes start from +0: there are no biases. Here c * x is -2^-100 or so, and a
 * scale of 2^-127 rounds it to -0. */
static void minus_zero_mxfp4(data_kind kind, uint64_t seed) {
    product_case c = {.n = 1 + random_below(5), .n_inputs = 32 * (1 + random_below(50))};
    const uint32_t rows = 1 + random_below(6);
    const size_t n_weights = (size_t)rows * c.n_inputs;
    unsigned char *codes = guarded(n_weights / 2);
    unsigned char *scales = guarded(n_weights / 32);
    float *x = guarded_floats((size_t)c.n * c.n_inputs);
    for (size_t i = 0; i < n_weights / 2; i++) {
        codes[i] = (unsigned char)((1 + random_below(7)) * 0x11);
    }
    memset(scales, 0, n_weights / 32);
    for (size_t i = 0; i < (size_t)c.n * c.n_inputs; i++) {
        x[i] = -0x1p-100f;
    }
    c.w = (sl_matrix){.shape = {.dtype = SL_DTYPE_MXFP4,
                                .scale_dtype = SL_DTYPE_U8,
                                .rows = rows,
                                .cols = c.n_inputs,
                                .group = 32},
                      .codes = codes,
                      .scales = scales};
    c.row_end = rows;
    c.y_stride = rows;
    c.x = x;
    const packed p = pack(&truth, &c, c.x, c.n);
    float *y = guarded_floats((size_t)c.n * rows);
    truth.product[SL_DTYPE_MXFP4](&c.w, 0, rows, &p.columns, y, rows);
    const bool negative = c.n_inputs % SL_BLOCK == 0;
    CHECK(bits_of_float(y[0]) == (negative ? 0x80000000u : 0), "%a with %u inputs", (double)y[0],
          c.n_inputs);
    for (size_t i = 0; i < n_levels; i++) {
        product_at_level(&levels[i], &c, kind, seed, &p, y, (size_t)c.n * rows);
    }
}

/* ---- norms and elementwise ---- */

static uint32_t random_length(void) {
    return random_below(4) == 0 ? 1 + random_below(600) : 1 + random_below(70);
}

static void norms(data_kind kind, uint64_t seed) {
    const uint32_t n = random_length();
    const float eps = random_below(2) == 0 ? 1e-6f : 1e-5f;
    float *x = guarded_floats(n);
    float *w = guarded_floats(n);
    float *z = guarded_floats(n);
    random_floats(x, n, kind);
    random_floats(w, n, random_partner(kind));
    random_floats(z, n, random_partner(kind));
    float *rms = guarded_floats(n);
    float *gated = guarded_floats(n);
    float *l2 = guarded_floats(n);
    truth.rms_norm(rms, x, w, n, eps);
    truth.rms_norm_gated(gated, x, w, z, n, eps);
    truth.l2_norm(l2, x, n, eps, 0.125f);
    tally_add(&tallies[kind], rms, n);
    for (size_t i = 0; i < n_levels; i++) {
        const level *l = &levels[i];
        float *y = guarded_floats(n);
        l->k.rms_norm(y, x, w, n, eps);
        same(l, "rms_norm", kind, seed, rms, y, n);
        l->k.rms_norm_gated(y, x, w, z, n, eps);
        same(l, "rms_norm_gated", kind, seed, gated, y, n);
        l->k.l2_norm(y, x, n, eps, 0.125f);
        same(l, "l2_norm", kind, seed, l2, y, n);
        memcpy(y, x, n * sizeof(float));
        l->k.rms_norm(y, y, w, n, eps);
        same(l, "rms_norm in place", kind, seed, rms, y, n);
        memcpy(y, x, n * sizeof(float));
        l->k.l2_norm(y, y, n, eps, 0.125f);
        same(l, "l2_norm in place", kind, seed, l2, y, n);
    }
}

enum { ELEMENTWISE = 8 };

static void elementwise_with(const sl_kernels *k, const float *y0, const float *x, const float *z,
                             uint32_t n, float limit, float *out[ELEMENTWISE]) {
    for (int i = 0; i < ELEMENTWISE; i++) {
        out[i] = guarded_copy(y0, n);
    }
    k->add(out[0], x, n);
    k->axpy(out[1], z[0], x, n);
    k->exp(out[2], x, n);
    k->silu_mul(out[3], x, z, n);
    k->sigmoid_mul(out[4], z, x, n);
    k->mul(out[5], x, n);
    k->clamp(out[6], limit, n);
    k->swiglu_clamped(out[7], x, z, n, limit, 1.702f);
}

static void elementwise(data_kind kind, uint64_t seed) {
    static const char *const names[ELEMENTWISE] = {
        "add", "axpy", "exp", "silu_mul", "sigmoid_mul", "mul", "clamp", "swiglu_clamped"};
    const uint32_t n = random_length();
    float *y0 = guarded_floats(n);
    float *x = guarded_floats(n);
    float *z = guarded_floats(n);
    random_floats(y0, n, random_partner(kind));
    random_floats(x, n, kind);
    random_floats(z, n, random_partner(kind));
    for (uint32_t i = 0; i < n; i++) { // where exp and sigmoid have their edges
        if (kind == DATA_ORDINARY && random_below(2) == 0) {
            x[i] = x[i] * 40.0f;
        }
    }
    const float limit = random_below(3) == 0 ? 7.0f : random_below(2) == 0 ? 1.0f : 0.0f;
    float *expected[ELEMENTWISE];
    float *found[ELEMENTWISE];
    elementwise_with(&truth, y0, x, z, n, limit, expected);
    tally_add(&tallies[kind], expected[3], n);
    for (size_t i = 0; i < n_levels; i++) {
        elementwise_with(&levels[i].k, y0, x, z, n, limit, found);
        for (int op = 0; op < ELEMENTWISE; op++) {
            same(&levels[i], names[op], kind, seed, expected[op], found[op], n);
        }
        float *in_place = guarded_copy(x, n);
        levels[i].k.exp(in_place, in_place, n);
        same(&levels[i], "exp in place", kind, seed, expected[2], in_place, n);
        in_place = guarded_copy(x, n);
        levels[i].k.silu_mul(in_place, in_place, z, n);
        same(&levels[i], "silu_mul in place", kind, seed, expected[3], in_place, n);
        in_place = guarded_copy(z, n);
        levels[i].k.sigmoid_mul(in_place, in_place, x, n);
        same(&levels[i], "sigmoid_mul in place", kind, seed, expected[4], in_place, n);
        in_place = guarded_copy(z, n);
        levels[i].k.swiglu_clamped(in_place, x, in_place, n, limit, 1.702f);
        same(&levels[i], "swiglu_clamped in place", kind, seed, expected[7], in_place, n);
    }
}

static void rope(data_kind kind, uint64_t seed) {
    const uint32_t n_rot = 2 * (1 + random_below(70));
    float *x = guarded_floats(n_rot);
    float *c = guarded_floats(n_rot / 2);
    float *s = guarded_floats(n_rot / 2);
    random_floats(x, n_rot, kind);
    random_floats(c, n_rot / 2, random_partner(kind));
    random_floats(s, n_rot / 2, random_partner(kind));
    float *expected = guarded_copy(x, n_rot);
    float *pairs_expected = guarded_copy(x, n_rot);
    truth.rope_half(expected, c, s, n_rot);
    truth.rope_pairs(pairs_expected, c, s, n_rot);
    tally_add(&tallies[kind], expected, n_rot);
    for (size_t i = 0; i < n_levels; i++) {
        float *found = guarded_copy(x, n_rot);
        levels[i].k.rope_half(found, c, s, n_rot);
        same(&levels[i], "rope_half", kind, seed, expected, found, n_rot);
        found = guarded_copy(x, n_rot);
        levels[i].k.rope_pairs(found, c, s, n_rot);
        same(&levels[i], "rope_pairs", kind, seed, pairs_expected, found, n_rot);
    }
}

static void conv(data_kind kind, uint64_t seed) {
    const bool silu = random_below(2) == 0;
    const uint32_t width = 2 + random_below(7);
    const uint32_t n_channels = 1 + random_below(90);
    const uint32_t n_tokens = 1 + random_below(12);
    const uint32_t begin = random_below(n_channels);
    const uint32_t end = begin + random_below(n_channels - begin + 1);
    const size_t x_stride = n_channels + random_below(3);
    const size_t y_stride = n_channels + random_below(3);
    const size_t n_x = (n_tokens - 1) * x_stride + n_channels;
    const size_t n_y = (n_tokens - 1) * y_stride + n_channels;
    const size_t n_tail = (size_t)(width - 1) * n_channels;
    float *x = guarded_floats(n_x);
    float *tail = guarded_floats(n_tail);
    float *taps = guarded_floats((size_t)width * n_channels);
    random_floats(x, n_x, kind);
    random_floats(tail, n_tail, kind);
    random_floats(taps, (size_t)width * n_channels, random_partner(kind));
    float *y_expected = guarded_floats(n_y);
    float *tail_expected = guarded_copy(tail, n_tail);
    (silu ? truth.conv_silu : truth.conv)(y_expected, y_stride, x, x_stride, tail_expected, taps,
                                          width, n_channels, n_tokens, begin, end);
    tally_add(&tallies[kind], y_expected + begin, end - begin);
    for (size_t i = 0; i < n_levels; i++) {
        float *y = guarded_floats(n_y);
        float *tail_found = guarded_copy(tail, n_tail);
        (silu ? levels[i].k.conv_silu : levels[i].k.conv)(
            y, y_stride, x, x_stride, tail_found, taps, width, n_channels, n_tokens, begin, end);
        same(&levels[i], silu ? "conv_silu" : "conv", kind, seed, y_expected, y, n_y);
        same(&levels[i], "conv's tail", kind, seed, tail_expected, tail_found, n_tail);
        // Token by token, with the tail between calls, is the same sequence.
        float *y_steps = guarded_floats(n_y);
        float *tail_steps = guarded_copy(tail, n_tail);
        for (uint32_t t = 0; t < n_tokens; t++) {
            (silu ? levels[i].k.conv_silu
                  : levels[i].k.conv)(y_steps + t * y_stride, y_stride, x + t * x_stride, x_stride,
                                      tail_steps, taps, width, n_channels, 1, begin, end);
        }
        same(&levels[i], "conv in steps", kind, seed, y_expected, y_steps, n_y);
        same(&levels[i], "its tail", kind, seed, tail_expected, tail_steps, n_tail);
    }
}

/* ---- gated delta rule ---- */

static void delta_gates(data_kind kind, uint64_t seed) {
    const uint32_t n = 1 + random_below(40);
    float *in[4];
    for (int i = 0; i < 4; i++) {
        in[i] = guarded_floats(n);
        random_floats(in[i], n, i == 0 ? kind : random_partner(kind));
    }
    float *decay = guarded_floats(n);
    float *beta = guarded_floats(n);
    truth.delta_gates(decay, beta, in[0], in[1], in[2], in[3], n);
    tally_add(&tallies[kind], decay, n);
    for (size_t i = 0; i < n_levels; i++) {
        float *decay_found = guarded_floats(n);
        float *beta_found = guarded_floats(n);
        levels[i].k.delta_gates(decay_found, beta_found, in[0], in[1], in[2], in[3], n);
        same(&levels[i], "delta_gates decay", kind, seed, decay, decay_found, n);
        same(&levels[i], "delta_gates beta", kind, seed, beta, beta_found, n);
    }
}

static void delta(data_kind kind, uint64_t seed) {
    const uint32_t d_k = 1 + random_below(random_below(3) == 0 ? 128 : 40);
    const uint32_t d_v = 1 + random_below(random_below(3) == 0 ? 128 : 40);
    const uint32_t n_slices = sl_delta_slices(d_v);
    const uint32_t begin = random_below(2) == 0 ? 0 : random_below(n_slices);
    const uint32_t end = random_below(2) == 0 ? n_slices : begin + 1;
    const uint32_t n = 1 + random_below(5);
    const size_t gate_stride = 1 + random_below(3);
    const size_t n_state = sl_delta_state_floats(d_k, d_v);
    float *q = guarded_floats((size_t)n * d_k);
    float *k = guarded_floats((size_t)n * d_k);
    float *v = guarded_floats((size_t)n * d_v);
    float *decay = guarded_floats((n - 1) * gate_stride + 1);
    float *beta = guarded_floats((n - 1) * gate_stride + 1);
    float *state = guarded_floats(n_state);
    random_floats(q, (size_t)n * d_k, random_partner(kind));
    random_floats(k, (size_t)n * d_k, DATA_ORDINARY);
    random_floats(v, (size_t)n * d_v, kind);
    random_floats(decay, (n - 1) * gate_stride + 1, DATA_ORDINARY);
    random_floats(beta, (n - 1) * gate_stride + 1, DATA_ORDINARY);
    random_floats(state, n_state, kind);
    for (size_t i = 0; i < n_state; i++) {
        const size_t column = i / (d_k * SL_DELTA_SLICE) * SL_DELTA_SLICE + i % SL_DELTA_SLICE;
        if (column >= d_v) {
            state[i] = 0.0f;
        }
    }
    float *state_expected = guarded_copy(state, n_state);
    float *o_expected = guarded_floats((size_t)n * d_v);
    sl_delta_args args = {.state = state_expected,
                          .q = q,
                          .k = k,
                          .v = v,
                          .decay = decay,
                          .beta = beta,
                          .o = o_expected,
                          .q_stride = d_k,
                          .k_stride = d_k,
                          .v_stride = d_v,
                          .o_stride = d_v,
                          .gate_stride = gate_stride,
                          .n_tokens = n,
                          .d_k = d_k,
                          .d_v = d_v,
                          .slice_begin = begin,
                          .slice_end = end};
    truth.delta(&args);
    tally_add(&tallies[kind], state_expected, n_state);
    for (size_t i = 0; i < n_levels; i++) {
        args.state = guarded_copy(state, n_state);
        args.o = guarded_floats((size_t)n * d_v);
        levels[i].k.delta(&args);
        same(&levels[i], "delta", kind, seed, o_expected, args.o, (size_t)n * d_v);
        same(&levels[i], "delta's state", kind, seed, state_expected, args.state, n_state);
    }
}

/* ---- attention ---- */

/* The rows of positions first .. end-1 as a ring holds them; the others hold anything. */
static float *in_ring(const float *rows, size_t stride, uint32_t d, uint32_t first, uint32_t end,
                      uint32_t ring) {
    const size_t n = (ring - 1) * stride + d;
    float *out = guarded_floats(n);
    for (size_t i = 0; i < n; i++) {
        out[i] = NAN;
    }
    for (uint32_t p = first; p < end; p++) {
        memcpy(out + p % ring * stride, rows + p * stride, d * sizeof(float));
    }
    return out;
}

/* Queries of n_tokens and n_heads, dense but for a gap after each token's; some of almost equal weights,
 * where each one counts. */
static float *random_queries(uint32_t n_tokens, uint32_t n_heads, uint32_t d, size_t token_stride,
                             data_kind kind) {
    const size_t n = (n_tokens - 1) * token_stride + (size_t)n_heads * d;
    float *q = guarded_floats(n);
    const float flat = random_below(2) == 0 ? 1.0f : 0.02f;
    random_floats(q, n, random_partner(kind));
    for (size_t i = 0; i < n; i++) {
        q[i] = q[i] * flat;
    }
    return q;
}

static void attend(data_kind kind, uint64_t seed) {
    const uint32_t d = 1 + random_below(random_below(4) == 0 ? 1024 : 80);
    const uint32_t d_v = 1 + random_below(random_below(4) == 0 ? 1024 : 80);
    const uint32_t n_tokens = random_below(2) == 0 ? 1 : 1 + random_below(20);
    const uint32_t n_heads = 1 + random_below(9);
    const uint32_t end = 1 + random_below(random_below(3) == 0 ? 300 : 140);
    const uint32_t window = random_below(2) == 0 ? 0 : 1 + random_below(end + 10);
    const uint32_t first = window != 0 && end > window ? end - window : 0;
    const uint32_t n_rows = end + n_tokens - 1;
    const size_t k_stride = d + random_below(3);
    const size_t v_stride = d_v + random_below(3);
    const size_t n_out = (size_t)n_tokens * (n_heads * d_v + 1);
    const size_t q_token_stride = (size_t)n_heads * d + random_below(3);
    const float *q = random_queries(n_tokens, n_heads, d, q_token_stride, kind);
    float *k = guarded_floats((n_rows - 1) * k_stride + d);
    float *v = guarded_floats((n_rows - 1) * v_stride + d_v);
    float *sinks = guarded_floats(n_heads);
    random_floats(k, (n_rows - 1) * k_stride + d, random_below(2) == 0 ? DATA_ORDINARY : kind);
    random_floats(v, (n_rows - 1) * v_stride + d_v, kind);
    random_floats(sinks, n_heads, random_partner(kind));
    // Rows before the first visible position may hold anything.
    for (size_t i = 0; i < (size_t)first * k_stride; i++) {
        k[i] = NAN;
    }
    for (size_t i = 0; i < (size_t)first * v_stride; i++) {
        v[i] = NAN;
    }
    float *expected = guarded_floats(n_out);
    sl_attend_args args = {.n_tokens = n_tokens,
                           .n_heads = n_heads,
                           .d = d,
                           .d_v = d_v,
                           .end = end,
                           .window = window,
                           .scale = 1.0f / sqrtf((float)d),
                           .sinks = random_below(2) == 0 ? sinks : NULL,
                           .q = q,
                           .k = k,
                           .v = v,
                           .out = expected,
                           .q_token_stride = q_token_stride,
                           .q_head_stride = d,
                           .out_token_stride = (size_t)n_heads * d_v + 1,
                           .out_head_stride = d_v,
                           .k_stride = k_stride,
                           .v_stride = v_stride};
    truth.attend(&args);
    for (uint32_t t = 0; t < n_tokens; t++) {
        tally_add(&tallies[kind], expected + t * args.out_token_stride, (size_t)n_heads * d_v);
    }
    const uint32_t ring = SL_ALIGN_UP(n_rows - first, SL_ATTEND_BLOCK) + 64 * random_below(2);
    const float *k_ring = in_ring(k, k_stride, d, first, n_rows, ring);
    const float *v_ring = in_ring(v, v_stride, d_v, first, n_rows, ring);
    for (size_t i = 0; i < n_levels; i++) {
        args.out = guarded_floats(n_out);
        levels[i].k.attend(&args);
        same(&levels[i], "attend", kind, seed, expected, args.out, n_out);
        sl_attend_args in_rows = args;
        in_rows.k = k_ring;
        in_rows.v = v_ring;
        in_rows.ring = ring;
        in_rows.out = guarded_floats(n_out);
        levels[i].k.attend(&in_rows);
        same(&levels[i], "attend in a ring", kind, seed, expected, in_rows.out, n_out);
    }
}

/* Keys and values in the same rows, as a latent attention has them, and many heads to them. */
static void attend_latent(data_kind kind, uint64_t seed) {
    const uint32_t d_v = 1 + random_below(random_below(4) == 0 ? 512 : 80);
    const uint32_t d = d_v + 1 + random_below(64);
    const uint32_t n_tokens = 1 + random_below(3);
    const uint32_t n_heads = 1 + random_below(40);
    const uint32_t end = 1 + random_below(140);
    const size_t n_rows = end + n_tokens - 1;
    const size_t n_out = (size_t)n_tokens * n_heads * d_v;
    float *rows = guarded_floats(n_rows * d);
    random_floats(rows, n_rows * d, kind);
    float *expected = guarded_floats(n_out);
    sl_attend_args args = {.n_tokens = n_tokens,
                           .n_heads = n_heads,
                           .d = d,
                           .d_v = d_v,
                           .end = end,
                           .scale = 0.1f / sqrtf((float)d),
                           .q = random_queries(n_tokens, n_heads, d, (size_t)n_heads * d, kind),
                           .k = rows,
                           .v = rows,
                           .out = expected,
                           .q_token_stride = (size_t)n_heads * d,
                           .q_head_stride = d,
                           .out_token_stride = (size_t)n_heads * d_v,
                           .out_head_stride = d_v,
                           .k_stride = d,
                           .v_stride = d};
    truth.attend(&args);
    tally_add(&tallies[kind], expected, n_out);
    for (size_t i = 0; i < n_levels; i++) {
        args.out = guarded_floats(n_out);
        levels[i].k.attend(&args);
        same(&levels[i], "attend to one stream", kind, seed, expected, args.out, n_out);
    }
}

/* ---- that the comparison can fail ---- */

static bool product_differs(const product_case *c, const product_case *changed) {
    const uint32_t rows = c->w.shape.rows;
    const sl_dtype dtype = c->w.shape.dtype;
    const packed p = pack(&truth, c, c->x, 1);
    const packed p_changed = pack(&truth, changed, changed->x, 1);
    float *y = guarded_floats(rows);
    float *y_changed = guarded_floats(rows);
    truth.product[dtype](&c->w, 0, rows, &p.columns, y, rows);
    truth.product[dtype](&changed->w, 0, rows, &p_changed.columns, y_changed, rows);
    return first_difference(y, y_changed, rows) < rows;
}

static void controls(void) {
    const uint32_t rows = 1;
    const uint32_t n_inputs = 192;
    float *x = guarded_floats(n_inputs);
    random_floats(x, n_inputs, DATA_ORDINARY);
    product_case c = {.w = random_matrix(SL_DTYPE_Q4, rows, n_inputs, 64, DATA_ORDINARY),
                      .n = 1,
                      .n_inputs = n_inputs,
                      .group = 64,
                      .x = x};
    CHECK(!product_differs(&c, &c), "one product twice");
    product_case changed = c;
    unsigned char *codes = guarded(n_inputs / 2);
    memcpy(codes, c.w.codes, n_inputs / 2);
    codes[random_below(n_inputs / 2)] ^= 1;
    changed.w.codes = codes;
    CHECK(product_differs(&c, &changed), "one bit of one code");
    changed = c;
    changed.x = guarded_copy(x, n_inputs);
    ((float *)changed.x)[random_below(n_inputs)] *= 1.001f;
    CHECK(product_differs(&c, &changed), "one input");
    const float zeros[2] = {0.0f, -0.0f};
    CHECK(first_difference(&zeros[0], &zeros[1], 1) == 0, "zeros of two signs");
    guards_release();
}

/* A library built for speed sets flush-to-zero: it is noticed, it would show, and it is undone. */
#if defined(__x86_64__)
#include <xmmintrin.h>
static void flush_to_zero(void) {
    _mm_setcsr(_mm_getcsr() | 0x8040u);
}
#elif defined(__aarch64__)
static void flush_to_zero(void) {
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | (uint64_t)1 << 24));
}
#endif

static void environment(void) {
    CHECK(sl_fpenv_check(), "at start");
#if defined(__x86_64__) || defined(__aarch64__)
    float x[40], plain[40], flushed[40];
    random_floats(x, SL_COUNT(x), DATA_SUBNORMAL);
    memcpy(plain, x, sizeof(x));
    memcpy(flushed, x, sizeof(x));
    truth.add(plain, x, SL_COUNT(x));
    flush_to_zero();
    CHECK(!sl_fpenv_check(), "with flush-to-zero");
    truth.add(flushed, x, SL_COUNT(x));
    sl_fpenv_set();
    CHECK(sl_fpenv_check(), "after setting it");
    CHECK(first_difference(plain, flushed, SL_COUNT(x)) < SL_COUNT(x), "flushed sums are the same");
#endif
}

/* ---- all of it ---- */

static void add_level(const char *name, sl_cpu_level which) {
    level *l = &levels[n_levels++];
    snprintf(l->name, sizeof(l->name), "%s", name);
    sl_kernels_init(&l->k, which);
    printf("level %s: table says %s\n", name, l->k.level);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(data_kind kind, uint64_t seed);
    } tests[] = {{"products f32", products_f32},
                 {"products f16", products_f16},
                 {"products bf16", products_bf16},
                 {"products q2", products_q2},
                 {"products q3", products_q3},
                 {"products q4", products_q4},
                 {"products q5", products_q5},
                 {"products q6", products_q6},
                 {"products q8", products_q8},
                 {"products mxfp4", products_mxfp4},
                 {"minus zero", minus_zero},
                 {"minus zero mxfp4", minus_zero_mxfp4},
                 {"norms", norms},
                 {"elementwise", elementwise},
                 {"rope", rope},
                 {"conv", conv},
                 {"delta gates", delta_gates},
                 {"delta", delta},
                 {"attend", attend},
                 {"attend latent", attend_latent}};
    n_cases = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : n_cases;
    const uint64_t base_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    printf("%u cases of each test and kind of data, seed %llu\n", n_cases,
           (unsigned long long)base_seed);
    sl__ref_table(&truth);
    for (int which = SL_CPU_REF; which <= SL_CPU_NEON; which++) {
        if (sl_cpu_level_runs((sl_cpu_level)which)) {
            add_level(sl_cpu_level_name((sl_cpu_level)which), (sl_cpu_level)which);
        }
    }
    random_state = base_seed;
    environment();
    controls();
    for (size_t t = 0; t < SL_COUNT(tests); t++) {
        const unsigned failed_before = checks_failed;
        for (int kind = 0; kind < DATA_KINDS; kind++) {
            for (uint32_t i = 0; i < n_cases; i++) {
                const uint64_t seed = base_seed * 1000000007u + t * 1000003u +
                                      (uint64_t)kind * 10007u + (uint64_t)i * 101u;
                random_state = seed;
                tests[t].run((data_kind)kind, seed);
                guards_release();
            }
        }
        printf("%-14s %s\n", tests[t].name, checks_failed == failed_before ? "ok" : "FAILED");
        fflush(stdout);
    }
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        const double share = (double)tallies[kind].n_finite / (double)tallies[kind].n;
        printf("%-10s %9llu results, %4.1f%% finite and not zero\n", data_names[kind],
               (unsigned long long)tallies[kind].n, 100.0 * share);
        CHECK(share > 0.05, "results of %s data say little", data_names[kind]);
    }
    if (checks_failed > 0) {
        printf("%u checks failed\n", checks_failed);
        return 1;
    }
    return 0;
}
