/* The kernels' mathematics: scalar functions against the C library in long double, kernels against
 * sums in double and against worked examples (reference vectors of the operations' definitions).
 *
 *   test_kernels_math [points, default 1000000] */
#define _DEFAULT_SOURCE // MAP_ANONYMOUS

#include "kernels_fixture.h"

#include "base/attr.h"
#include "kernels/kernels.h"
#include "kernels/ref/fma.h"

static uint32_t n_points = 1000000;

/* ---- scalar functions ---- */

/* |found - exact| in units of the last place of a float near `exact`, subnormals included. */
static double ulps(float found, long double exact) {
    int exponent;
    (void)frexpl(exact, &exponent); // |exact| in [2^(e-1), 2^e): the unit is 2^(e-24)
    const int unit = exponent - 24 < -149 ? -149 : exponent - 24;
    return (double)fabsl(ldexpl((long double)found - exact, -unit));
}

static double ulps64(double found, long double exact) {
    int exponent;
    (void)frexpl(exact, &exponent);
    return (double)fabsl(ldexpl((long double)found - exact, -(exponent - 53)));
}

static float random_in(float low, float high) {
    return (float)((double)low +
                   ((double)high - (double)low) * (double)(random_u64() >> 11) * 0x1p-53);
}

static void expect_at_most(const char *name, double worst, double bound) {
    printf("%-12s %.4f ulp at most (bound %.3f)\n", name, worst, bound);
    CHECK(worst <= bound, "%s", name);
    CHECK(worst > 0.1, "%s: an error that small was not measured", name);
}

static void exp_is_accurate(void) {
    double worst = 0.0;
    for (uint32_t i = 0; i < n_points; i++) {
        const float x = i % 2 == 0 ? random_in(-87.0f, 88.7f) : random_in(-1.0f, 1.0f);
        const double e = ulps(sl_expf(x), expl((long double)x));
        worst = e > worst ? e : worst;
    }
    expect_at_most("expf", worst, 1.1);
    CHECK(sl_expf(0.0f) == 1.0f && sl_expf(-0.0f) == 1.0f, "e^0");
    CHECK(bits_of_float(sl_expf(-INFINITY)) == 0, "e^-inf must be +0");
    CHECK(bits_of_float(sl_expf(-104.0f)) == 0 && sl_expf(-103.0f) > 0.0f, "smallest results");
    CHECK(sl_expf(INFINITY) == INFINITY && sl_expf(89.0f) == INFINITY, "overflow");
    CHECK(sl_expf(88.72283f) < INFINITY && sl_expf(88.72284f) == INFINITY, "largest result");
    CHECK(isnan(sl_expf(NAN)), "NaN");
}

static void sigmoid_is_accurate(void) {
    double worst = 0.0;
    for (uint32_t i = 0; i < n_points; i++) {
        const float x = random_in(i % 2 == 0 ? -80.0f : -4.0f, i % 2 == 0 ? 30.0f : 4.0f);
        const double e = ulps(sl_sigmoidf(x), 1.0L / (1.0L + expl(-(long double)x)));
        worst = e > worst ? e : worst;
    }
    expect_at_most("sigmoidf", worst, 2.5);
    CHECK(sl_sigmoidf(0.0f) == 0.5f && sl_sigmoidf(200.0f) == 1.0f, "exact values");
    CHECK(sl_sigmoidf(-200.0f) == 0.0f, "far left");
}

static void softplus_is_accurate(void) {
    double worst = 0.0;
    for (uint32_t i = 0; i < n_points; i++) {
        const float x = random_in(i % 2 == 0 ? -104.0f : -4.0f, i % 2 == 0 ? 104.0f : 4.0f);
        const long double wide = (long double)x;
        const long double exact = x > 0.0f ? wide + log1pl(expl(-wide)) : log1pl(expl(wide));
        const double e = ulps(sl_softplusf(x), exact);
        worst = e > worst ? e : worst;
    }
    expect_at_most("softplusf", worst, 0.501);
    CHECK(sl_softplusf(-INFINITY) == 0.0f && sl_softplusf(INFINITY) == INFINITY, "infinities");
    CHECK(sl_softplusf(1e30f) == 1e30f && isnan(sl_softplusf(NAN)), "far right, NaN");
}

static void sincos_is_accurate(void) {
    double worst = 0.0;
    for (uint32_t i = 0; i < n_points; i++) {
        const float limit = i % 3 == 0 ? 4194304.0f : i % 3 == 1 ? 1000.0f : 1.0f;
        const float x = random_in(-limit, limit);
        float s, c;
        sl_sincosf(x, &s, &c);
        const double es = ulps(s, sinl((long double)x));
        const double ec = ulps(c, cosl((long double)x));
        worst = es > worst ? es : worst;
        worst = ec > worst ? ec : worst;
    }
    expect_at_most("sincosf", worst, 0.501);
    float s, c;
    sl_sincosf(-0.0f, &s, &c);
    CHECK(s == 0.0f && c == 1.0f, "at -0");
}

static void doubles_are_accurate(void) {
    if (sizeof(long double) == sizeof(double)) {
        return; // nothing wider to compare with
    }
    double worst_exp = 0.0;
    double worst_log = 0.0;
    for (uint32_t i = 0; i < n_points; i++) {
        const double u = (double)(random_u64() >> 11) * 0x1p-53;
        const double x = i % 2 == 0 ? u * 1400.0 - 700.0 : u * 2.0 - 1.0;
        const double e = ulps64(sl_exp64(x), expl((long double)x));
        worst_exp = e > worst_exp ? e : worst_exp;
        const double y = i % 2 == 0 ? sl_exp64(x) : 0.5 + u;
        const double l = ulps64(sl_log64(y), logl((long double)y));
        worst_log = l > worst_log ? l : worst_log;
    }
    expect_at_most("exp64", worst_exp, 1.1);
    expect_at_most("log64", worst_log, 1.1);
    CHECK(sl_exp64(0.0) == 1.0 && sl_log64(1.0) == 0.0, "exact values");
    CHECK(sl_exp64(-1000.0) == 0.0 && sl_exp64(1000.0) == (double)INFINITY, "out of range");
    CHECK(fabs(sl_log64(0x1p-1074) + 744.4400719213812) < 1e-12, "of the smallest number");
}

/* ---- worked examples, at every level ---- */

static const sl_kernels *kernels;

static void near(const char *what, const float *found, const double *expected, size_t n) {
    for (size_t i = 0; i < n; i++) {
        CHECK(fabs((double)found[i] - expected[i]) <= 4e-7 * fmax(1.0, fabs(expected[i])),
              "%s at level %s: element %zu is %.9g, should be %.9g", what, kernels->level, i,
              (double)found[i], expected[i]);
    }
}

static void norms(void) {
    const float x[4] = {1, 2, 3, 4};
    const float zero_centred[4] = {1.0f, 1.5f, 0.5f, 1.25f};
    float y[4];
    kernels->rms_norm(y, x, zero_centred, 4, 1e-6f);
    near("rms_norm", y, (const double[]){.365148347, 1.095445042, .547722521, 1.825741737}, 4);
    kernels->rms_norm_gated(y, x, (const float[]){1, 1, .5f, 2}, (const float[]){0, 1, -1, 2}, 4,
                            1e-6f);
    near("rms_norm_gated", y, (const double[]){0, .533889664, -.147305273, 5.145945558}, 4);
    kernels->l2_norm(y, x, 4, 1e-6f, 1.0f);
    near("l2_norm", y, (const double[]){.182574186, .365148372, .547722558, .730296743}, 4);
}

static void convolution(void) {
    const float x[5] = {1, 2, 3, 4, 5};
    const float taps[4] = {.1f, .2f, .3f, .4f};
    float tail[3] = {0, 0, 0};
    float y[5];
    kernels->conv_silu(y, 1, x, 1, tail, taps, 4, 1, 5, 0, 1);
    near("conv_silu", y,
         (const double[]){.239475064, .825286116, 1.761594156, 2.857722380, 3.928055160}, 5);
    near("its tail", tail, (const double[]){3, 4, 5}, 3);
    float empty[3] = {0, 0, 0};
    kernels->conv(y, 1, x, 1, empty, taps, 4, 1, 5, 0, 1);
    near("conv", y, (const double[]){.4, 1.1, 2, 3, 4}, 5);
}

static void decay(void) {
    const float a = 1.0f, b = 0.0f, a_log = .5f, dt_bias = -2.0f;
    float g, beta;
    kernels->delta_gates(&g, &beta, &a, &b, &a_log, &dt_bias, 1);
    near("decay", &g, (const double[]){.596616227}, 1);
    near("beta", &beta, (const double[]){.5}, 1);
    const float softplus = sl_softplusf(a + dt_bias);
    near("softplus", &softplus, (const double[]){.313261688}, 1);
}

static void delta_rule(void) {
    SL_ALIGNED(64) float state[2 * SL_DELTA_SLICE] = {0};
    const float q[4] = {.6f, .8f, 1, 0};
    const float k[4] = {1, 0, .8f, .6f};
    const float v[4] = {2, -1, .5f, 3};
    const float g[2] = {sl_expf(-.5f), sl_expf(-.25f)};
    const float beta[2] = {.5f, .9f};
    float o[4];
    sl_delta_args args = {.state = state,
                          .q = q,
                          .k = k,
                          .v = v,
                          .decay = g,
                          .beta = beta,
                          .o = o,
                          .q_stride = 2,
                          .k_stride = 2,
                          .v_stride = 2,
                          .o_stride = 2,
                          .gate_stride = 1,
                          .n_tokens = 2,
                          .d_k = 2,
                          .d_v = 2,
                          .slice_begin = 0,
                          .slice_end = 1};
    kernels->delta(&args);
    near("delta", o, (const double[]){.6, -.3, .690211532, 1.994894234}, 4);
    near("state, row 0", state, (const double[]){.690211532, 1.994894234}, 2);
    near("state, row 1", state + SL_DELTA_SLICE, (const double[]){-.066441938, 1.788220969}, 2);
}

static void rotation(void) {
    float x[4] = {1, 2, 3, 4};
    const float c[2] = {.6f, 0};
    const float s[2] = {.8f, 1};
    kernels->rope_half(x, c, s, 4);
    near("rope_half", x, (const double[]){.6 - 2.4, -4, 1.8 + .8, 2}, 4);
    float pairs[5] = {1, 2, 3, 4, 5};
    kernels->rope_pairs(pairs, c, s, 4);
    near("rope_pairs", pairs, (const double[]){.6 - 1.6, 1.2 + .8, -4, 3, 5}, 5);
}

/* gpt-oss: min(g, 7) * sigmoid(1.702 g) * (clamp(u, -7, 7) + 1). */
static void clamped(void) {
    const float gate[5] = {1, -2, 9, 0, 7}, up[5] = {2, -9, .5f, 3, 8};
    float y[5];
    kernels->swiglu_clamped(y, gate, up, 5, 7.0f, 1.702f);
    double expected[5];
    for (int i = 0; i < 5; i++) {
        const double g = fmin((double)gate[i], 7), u = fmin(fmax((double)up[i], -7), 7);
        expected[i] = g / (1 + exp(-(double)1.702f * g)) * (u + 1);
    }
    near("swiglu_clamped", y, expected, 5);
    float x[4] = {-3, 3, -1.5f, 2};
    kernels->clamp(x, 2.0f, 4);
    near("clamp", x, (const double[]){-2, 2, -1.5, 2}, 4);
    kernels->mul(x, (const float[]){3, -.5f, 2, 0}, 4);
    near("mul", x, (const double[]){-6, -1, -3, 0}, 4);
}

/* Attention, every other time with a sink, against two passes in double, over windows that start and end inside blocks. */
static void attention(void) {
    enum { D = 24, D_V = 20, POSITIONS = 150 };
    static float q[D], k[POSITIONS * D], v[POSITIONS * D_V];
    random_floats(q, D, DATA_ORDINARY);
    random_floats(k, POSITIONS * D, DATA_ORDINARY);
    random_floats(v, POSITIONS * D_V, DATA_ORDINARY);
    for (uint32_t end = 1; end <= POSITIONS; end += 7) {
        const uint32_t first = end / 3;
        double weights[POSITIONS];
        double expected[D_V] = {0};
        const float sink = 1.5f;
        const bool has_sink = end % 2 == 0;
        double max = has_sink ? (double)sink : -1e300;
        double sum = 0.0;
        for (uint32_t p = first; p < end; p++) {
            double dot = 0.0;
            for (int i = 0; i < D; i++) {
                dot += (double)q[i] * (double)k[p * D + i];
            }
            weights[p] = dot * 0.2;
            max = fmax(max, weights[p]);
        }
        sum += has_sink ? exp((double)sink - max) : 0.0;
        for (uint32_t p = first; p < end; p++) {
            weights[p] = exp(weights[p] - max);
            sum += weights[p];
        }
        for (uint32_t p = first; p < end; p++) {
            for (int i = 0; i < D_V; i++) {
                expected[i] += weights[p] / sum * (double)v[p * D_V + i];
            }
        }
        float out[D_V];
        const sl_attend_args args = {.n_tokens = 1,
                                     .n_heads = 1,
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .out = out,
                                     .k_stride = D,
                                     .v_stride = D_V,
                                     .d = D,
                                     .d_v = D_V,
                                     .window = end - first,
                                     .end = end,
                                     .scale = 0.2f,
                                     .sinks = has_sink ? &sink : NULL};
        kernels->attend(&args);
        for (int i = 0; i < D_V; i++) {
            CHECK(fabs((double)out[i] - expected[i]) < 2e-5, "attend %u..%u: %g, should be %g",
                  first, end, (double)out[i], expected[i]);
        }
    }
}

/* Codes in MLX's order: element i of a row in bits [bits * i, bits * (i + 1)). */
static void codes_are_unpacked(void) {
    static const struct {
        sl_dtype dtype;
        unsigned char bytes[8];
        float codes[8];
        size_t n;
    } cases[] = {
        {SL_DTYPE_Q4, {0x21, 0x43, 0x65, 0x87}, {1, 2, 3, 4, 5, 6, 7, 8}, 8},
        {SL_DTYPE_Q3, {0xd1, 0x58, 0x1f}, {1, 2, 3, 4, 5, 6, 7, 0}, 8},
        {SL_DTYPE_Q6, {0x81, 0x30, 0xfc}, {1, 2, 3, 63}, 4},
        {SL_DTYPE_Q5, {0x41, 0x0c, 0x52, 0xcc, 0xf9}, {1, 2, 3, 4, 5, 6, 7, 31}, 8},
        {SL_DTYPE_Q2, {0xe4}, {0, 1, 2, 3}, 4},
        {SL_DTYPE_Q8, {7, 0, 255, 128}, {7, 0, 255, 128}, 4},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        unsigned char codes[32] = {0};
        memcpy(codes, cases[i].bytes, sizeof(cases[i].bytes));
        const float scale = 2.0f;
        const float bias = -1.0f;
        const sl_matrix w = {.shape = {.dtype = cases[i].dtype,
                                       .scale_dtype = SL_DTYPE_F32,
                                       .rows = 1,
                                       .cols = 32,
                                       .group = 32},
                             .codes = codes,
                             .scales = &scale,
                             .biases = &bias};
        float row[32];
        kernels->row(&w, 0, row);
        for (size_t j = 0; j < cases[i].n; j++) {
            CHECK(row[j] == 2.0f * cases[i].codes[j] - 1.0f, "%s: code %zu gives %g",
                  sl_dtype_name(cases[i].dtype), j, (double)row[j]);
        }
    }
}

/* Every code with every scale, as a row and as the product with a unit vector: ldexp has the same value. */
static void mxfp4_is_what_it_says(void) {
    static const double magnitudes[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    static SL_ALIGNED(64) float xp[SL_BLOCK], lane_sums[SL_LANES];
    float x[32] = {0.0f}, row[32], y;
    for (uint32_t scale = 0; scale < 255; scale++) {
        const unsigned char e = (unsigned char)scale;
        CHECK(sl_mxfp4_scales_valid(&e, 1), "scale %u", scale);
        for (uint32_t code = 0; code < 16; code++) {
            unsigned char codes[16];
            memset(codes, (int)(code | (15 - code) << 4), sizeof(codes));
            const sl_matrix w = {.shape = {.dtype = SL_DTYPE_MXFP4,
                                           .scale_dtype = SL_DTYPE_U8,
                                           .rows = 1,
                                           .cols = 32,
                                           .group = 32},
                                 .codes = codes,
                                 .scales = &e};
            kernels->row(&w, 0, row);
            for (uint32_t i = 0; i < 32; i++) {
                const uint32_t is = i % 2 ? 15 - code : code;
                const double exact = ldexp(magnitudes[is & 7], (int)scale - 127);
                const float expected = (float)(is & 8 ? -exact : exact);
                CHECK(bits_of_float(row[i]) == bits_of_float(expected),
                      "scale %u code %u: %a, should be %a", scale, is, (double)row[i],
                      (double)expected);
                x[i] = 1.0f;
                kernels->pack(x, 32, 1, 32, xp, lane_sums);
                const sl_columns column = {.n = 1, .n_inputs = 32, .xp = xp};
                kernels->product[SL_DTYPE_MXFP4](&w, 0, 1, &column, &y, 1);
                CHECK(y == expected, "level %s, scale %u code %u input %u: %a, should be %a",
                      kernels->level, scale, is, i, (double)y, (double)expected);
                x[i] = 0.0f;
            }
        }
    }
    const unsigned char invalid[3] = {0, 254, 255};
    CHECK(sl_mxfp4_scales_valid(invalid, 2) && !sl_mxfp4_scales_valid(invalid, 3), "scale 255");
}

/* A product against the plain sum in double over the widened row. */
static void products_are_sums(void) {
    enum { K = 448, ROWS = 5, N = 6 };
    static SL_ALIGNED(64) float xp[N * 512];
    static SL_ALIGNED(64) float lane_sums[N * 64], group_sums[N * 16];
    static float x[N * K], scales[ROWS * K / 64], biases[ROWS * K / 64], row[K], y[N * ROWS];
    static float weights[ROWS * K];
    static uint16_t halves[ROWS * K];
    static unsigned char exponents[ROWS * K / 32];
    random_floats(x, N * K, DATA_ORDINARY);
    random_floats(weights, ROWS * K, DATA_ORDINARY);
    for (int i = 0; i < ROWS * K; i++) {
        halves[i] = (uint16_t)(bits_of_float(weights[i]) >> 16);
    }
    for (size_t i = 0; i < sizeof(exponents); i++) {
        exponents[i] = (unsigned char)(110 + i % 17);
    }
    for (int i = 0; i < ROWS * K / 64; i++) {
        scales[i] = random_in(0.001f, 0.02f);
        biases[i] = random_in(-0.2f, 0.0f);
    }
    kernels->pack(x, K, N, K, xp, lane_sums);
    kernels->group_sums(lane_sums, N, K, 64, group_sums);
    const sl_columns columns = {
        .n = N, .n_inputs = K, .group = 64, .xp = xp, .group_sums = group_sums};
    for (int dtype = 0; dtype < SL_DTYPE_COUNT; dtype++) {
        if (kernels->product[dtype] == NULL || dtype == SL_DTYPE_F16) { // F16: any bits are no data
            continue;
        }
        const bool fp4 = dtype == SL_DTYPE_MXFP4;
        const bool affine = sl_dtype_is_affine((sl_dtype)dtype);
        const sl_matrix w = {.shape = {.dtype = (sl_dtype)dtype,
                                       .scale_dtype = fp4 ? SL_DTYPE_U8 : SL_DTYPE_F32,
                                       .rows = ROWS,
                                       .cols = K,
                                       .group = fp4      ? 32
                                                : affine ? 64
                                                         : 0},
                             .codes = dtype == SL_DTYPE_BF16 ? (const void *)halves : weights,
                             .scales = fp4 ? (const void *)exponents : scales,
                             .biases = biases};
        kernels->product[dtype](&w, 0, ROWS, &columns, y, ROWS);
        for (int r = 0; r < ROWS; r++) {
            kernels->row(&w, (uint32_t)r, row);
            for (int c = 0; c < N; c++) {
                double exact = 0.0;
                double magnitude = 0.0;
                for (int i = 0; i < K; i++) {
                    exact += (double)row[i] * (double)x[c * K + i];
                    magnitude += fabs((double)row[i] * (double)x[c * K + i]);
                }
                const double found = (double)y[c * ROWS + r];
                CHECK(!(fabs(found - exact) > 2e-6 * magnitude), "%s at level %s: %g, should be %g",
                      sl_dtype_name((sl_dtype)dtype), kernels->level, found, exact);
            }
        }
    }
}

static float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* The fused step without the instruction, against the C library's: any bits, sums that nearly cancel, and
 * subnormal results. (Where this file is compiled for machines with the instruction, it tests that.) */
static void fused_is_exact(void) {
    for (uint32_t i = 0; i < n_points * 4; i++) {
        const uint64_t r = random_u64(), q = random_u64();
        uint32_t a = (uint32_t)r, b = (uint32_t)(r >> 32), c = (uint32_t)q;
        if (i % 4 == 1) {
            a = (a & 0x807fffff) | (uint32_t)(100 + (q >> 40) % 50) << 23;
            b = (b & 0x807fffff) | (uint32_t)(110 + (q >> 48) % 30) << 23;
            const float near_product = -float_of(a) * float_of(b);
            memcpy(&c, &near_product, sizeof(c));
            c += (uint32_t)((q >> 35) % 5) - 2;
        } else if (i % 4 == 2) {
            a = (a & 0x807fffff) | (uint32_t)(1 + (q >> 40) % 80) << 23;
            b = (b & 0x807fffff) | (uint32_t)(40 + (q >> 48) % 60) << 23;
            c = (c & 0x807fffff) | (uint32_t)((q >> 54) % 3) << 23;
        }
        const float found = sl__fmaf(float_of(a), float_of(b), float_of(c));
        const float expected = fmaf(float_of(a), float_of(b), float_of(c));
        CHECK(first_difference(&expected, &found, 1) == 1, "fused %08x %08x %08x", a, b, c);
    }
}

int main(int argc, char **argv) {
    n_points = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : n_points;
    random_state = 7;
    fused_is_exact();
    exp_is_accurate();
    sigmoid_is_accurate();
    softplus_is_accurate();
    sincos_is_accurate();
    doubles_are_accurate();
    for (int level = SL_CPU_REF; level <= SL_CPU_NEON; level++) {
        if (!sl_cpu_level_runs((sl_cpu_level)level)) {
            continue;
        }
        sl_kernels table;
        sl_kernels_init(&table, (sl_cpu_level)level);
        kernels = &table;
        norms();
        convolution();
        decay();
        delta_rule();
        rotation();
        clamped();
        attention();
        codes_are_unpacked();
        mxfp4_is_what_it_says();
        products_are_sums();
        sl_cpu_level back;
        CHECK(sl_cpu_level_from_name(sl_cpu_level_name((sl_cpu_level)level), &back) &&
                  back == (sl_cpu_level)level,
              "level %d", level);
    }
    CHECK(sl_cpu_level_runs(sl_cpu_level_best()), "the best level");
    sl_cpu_level none;
    CHECK(!sl_cpu_level_from_name("avx", &none), "an unknown level");
    if (checks_failed > 0) {
        printf("%u checks failed\n", checks_failed);
        return 1;
    }
    return 0;
}
