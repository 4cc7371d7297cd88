/* checkpoint/quantize: MLX's affine quantizer and the 16-bit types. The quantizer was compared with mx.quantize of
 * MLX 0.32.4 (CPU), 540 cases of every width, group and type: equal in every bit; the vectors here keep it so. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/quantize.h"

static uint32_t bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return u;
}

static sl_matrix_shape shape(unsigned bits, uint32_t group, uint32_t cols, sl_dtype scales) {
    sl_matrix_shape s = {.rows = 1, .cols = cols, .group = group, .scale_dtype = scales};
    assert_true(sl_dtype_quantized(bits, &s.dtype));
    return s;
}

// Code i of a row: bits [b*i, b*i + b) of a little-endian stream.
static unsigned code_at(const uint8_t *row, unsigned bits, unsigned i) {
    unsigned code = 0;
    for (unsigned k = 0; k < bits; k++)
        code |= (unsigned)(row[(bits * i + k) / 8] >> (bits * i + k) % 8 & 1) << k;
    return code;
}

static void known_groups(void **state) {
    (void)state;
    static const float eight[8] = {-1, -.5f, 0, .25f, .5f, .75f, .9f, .1f};
    static const struct {
        unsigned bits;
        float scale;
        unsigned codes[8];
    } cases[] = {{4, .125f, {0, 4, 8, 10, 12, 14, 15, 9}}, {3, .25f, {0, 2, 4, 5, 6, 7, 7, 4}}};
    for (size_t c = 0; c < SL_COUNT(cases); c++) {
        for (int sign = 1; sign >= -1; sign -= 2) {
            float w[64], scale, bias;
            uint8_t codes[64];
            for (unsigned i = 0; i < 64; i++)
                w[i] = (float)sign * eight[i % 8];
            sl_matrix_shape s = shape(cases[c].bits, 64, 64, SL_DTYPE_F32);
            assert_true(sl_quantize_rows(w, 1, &s, codes, &scale, &bias));
            assert_true(scale == (float)sign * cases[c].scale && bias == (float)-sign);
            for (unsigned i = 0; i < 64; i++)
                assert_int_equal(code_at(codes, cases[c].bits, i), cases[c].codes[i % 8]);
        }
    }
}

// Whole numbers from 0 on quantize to themselves, so that the bytes show the packing alone.
static void packing(void **state) {
    (void)state;
    static const struct {
        unsigned bits, n;
        uint8_t codes[8], bytes[5];
    } cases[] = {{4, 8, {1, 2, 3, 4, 5, 6, 7, 8}, {0x21, 0x43, 0x65, 0x87}},
                 {3, 8, {1, 2, 3, 4, 5, 6, 7, 0}, {0xd1, 0x58, 0x1f}},
                 {6, 4, {1, 2, 3, 63}, {0x81, 0x30, 0xfc}},
                 {5, 8, {1, 2, 3, 4, 5, 6, 7, 31}, {0x41, 0x0c, 0x52, 0xcc, 0xf9}},
                 {2, 4, {0, 1, 2, 3}, {0xe4}},
                 {8, 4, {0, 1, 254, 255}, {0, 1, 254, 255}}};
    for (size_t c = 0; c < SL_COUNT(cases); c++) {
        unsigned bits = cases[c].bits, top = (1u << bits) - 1;
        float w[32], scale, bias;
        uint8_t codes[32];
        // Negated codes: the edge is -top, the scale -1 and the bias... so that code = -w / 1.
        for (unsigned i = 0; i < 32; i++)
            w[i] = i < cases[c].n ? (float)cases[c].codes[i] - (float)top
                   : i == 31      ? -(float)top
                                  : 0;
        sl_matrix_shape s = shape(bits, 32, 32, SL_DTYPE_F32);
        assert_true(sl_quantize_rows(w, 1, &s, codes, &scale, &bias));
        assert_true(scale == 1 && bias == -(float)top);
        assert_memory_equal(codes, cases[c].bytes, cases[c].n * bits / 8);
    }
}

static void degenerate_groups(void **state) {
    (void)state;
    static const float values[] = {0, -0.0f, 1, -1, 1e-9f, -1e-9f, 3e38f, 65504, 1e-40f};
    for (unsigned bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
        for (size_t v = 0; v < SL_COUNT(values); v++) {
            float w[128], scale, bias;
            uint8_t codes[128];
            for (unsigned i = 0; i < 128; i++)
                w[i] = values[v];
            sl_matrix_shape s = shape(bits, 128, 128, SL_DTYPE_F32);
            assert_true(sl_quantize_rows(w, 1, &s, codes, &scale, &bias));
            for (unsigned i = 0; i < 128; i++) {
                float back = scale * (float)code_at(codes, bits, i) + bias;
                // Below half of the smallest scale everything is zero.
                assert_true(fabsf(values[v]) < 5e-8f ? back == 0 : back == values[v]);
            }
        }
    }
}

static void what_is_not_finite_is_refused(void **state) {
    (void)state;
    static const float wild[] = {INFINITY, -INFINITY, NAN};
    uint8_t codes[64];
    float scales[2], biases[2];
    sl_matrix_shape s = shape(4, 32, 64, SL_DTYPE_F32);
    for (size_t v = 0; v < SL_COUNT(wild); v++) {
        for (unsigned at = 0; at < 64; at++) {
            float w[64] = {0};
            w[at] = wild[v];
            assert_false(sl_quantize_rows(w, 1, &s, codes, scales, biases));
            assert_false(sl_all_finite(w, SL_DTYPE_F32, 64));
        }
    }
    float far[64] = {3e38f, -3e38f}; // finite, and their distance is not
    assert_false(sl_quantize_rows(far, 1, &s, codes, scales, biases));
    assert_true(sl_all_finite(far, SL_DTYPE_F32, 64));
}

/* Every group against the definition written with libm, on random data: the largest weight is exact, codes are the
 * nearest, and scales are rounded to their type. */
static void random_groups_follow_the_definition(void **state) {
    (void)state;
    uint64_t seed = 88172645463325252u;
    for (unsigned round = 0; round < 3000; round++) {
        static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
        static const uint32_t groups[] = {32, 64, 128};
        unsigned bits = widths[round % 6], n = (1u << bits) - 1;
        uint32_t group = groups[round / 6 % 3];
        float w[128] = {0}, span = ldexpf(1, (int)(round % 40) - 30), scale, bias;
        uint8_t codes[128];
        for (uint32_t i = 0; i < group; i++) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            w[i] = ((float)(seed >> 40) / 16777216.0f - (round % 5 == 4 ? 0 : .5f)) * span;
        }
        float low = w[0], high = w[0];
        for (uint32_t i = 1; i < group; i++) {
            low = fminf(low, w[i]);
            high = fmaxf(high, w[i]);
        }
        float step = fmaxf((high - low) / (float)n, 1e-7f),
              edge = fabsf(low) > fabsf(high) ? low : high;
        step = edge == low && fabsf(low) > fabsf(high) ? step : -step;
        float q0 = nearbyintf(edge / step);
        float want_scale = q0 != 0 ? edge / q0 : step, want_bias = q0 != 0 ? edge : 0;
        sl_matrix_shape s = shape(bits, group, group, SL_DTYPE_F32);
        assert_true(sl_quantize_rows(w, 1, &s, codes, &scale, &bias));
        assert_int_equal(bits_of(scale), bits_of(want_scale));
        assert_int_equal(bits_of(bias), bits_of(want_bias));
        for (uint32_t i = 0; i < group; i++) {
            float q = fminf(fmaxf(nearbyintf((w[i] - want_bias) / want_scale), 0), (float)n);
            assert_int_equal(code_at(codes, bits, i), (unsigned)q);
        }
        sl_matrix_shape half = shape(bits, group, group, SL_DTYPE_BF16);
        uint16_t scale16, bias16;
        uint8_t codes16[128];
        assert_true(sl_quantize_rows(w, 1, &half, codes16, &scale16, &bias16));
        assert_memory_equal(codes, codes16, group * bits / 8);
        float back;
        sl_widen(&scale16, SL_DTYPE_BF16, 1, &back);
        assert_true(fabsf(back - scale) <= fabsf(scale) * 0x1p-8f);
    }
}

static void sixteen_bit_types_round_to_nearest_even(void **state) {
    (void)state;
    static const sl_dtype types[] = {SL_DTYPE_F16, SL_DTYPE_BF16};
    for (size_t t = 0; t < SL_COUNT(types); t++) {
        uint32_t infinity = types[t] == SL_DTYPE_F16 ? 0x7c00 : 0x7f80;
        for (uint32_t h = 0; h < 0x10000; h++) {
            uint16_t in = (uint16_t)h, out, next;
            float value, above, middle;
            sl_widen(&in, types[t], 1, &value);
            sl_narrow(&value, types[t], 1, &out);
            assert_int_equal(sl_all_finite(&in, types[t], 1), (h & 0x7fff) < infinity);
            if ((h & 0x7fff) > infinity) {
                assert_true(isnan(value) && (out & 0x7fff) > infinity);
                continue;
            }
            assert_int_equal(out, in);
            if ((h & 0x7fff) >= infinity - 1)
                continue;
            // Half way to the next value goes to the even one, a hair more or less to the nearer.
            in = (uint16_t)(h + 1);
            sl_widen(&in, types[t], 1, &above);
            middle = value + (above - value) / 2;
            sl_narrow(&middle, types[t], 1, &next);
            assert_int_equal(next, h & 1 ? h + 1 : h);
            float more = nextafterf(middle, above), less = nextafterf(middle, value);
            sl_narrow(&more, types[t], 1, &next);
            assert_int_equal(next, h + 1);
            sl_narrow(&less, types[t], 1, &next);
            assert_int_equal(next, h);
        }
    }
    const float large[] = {65519, 65520, 3.4028235e38f};
    uint16_t out;
    sl_narrow(&large[0], SL_DTYPE_F16, 1, &out);
    assert_int_equal(out, 0x7bff);
    sl_narrow(&large[1], SL_DTYPE_F16, 1, &out);
    assert_int_equal(out, 0x7c00);
    sl_narrow(&large[2], SL_DTYPE_BF16, 1, &out);
    assert_int_equal(out, 0x7f80);
}

// sign * 2^(max(e, 1) - 7) * ((e > 0) + m / 8), by ldexp.
static double f8_value(unsigned code) {
    int e = (int)(code >> 3 & 15), m = (int)(code & 7);
    double magnitude = ldexp((e ? 8 : 0) + m, (e ? e : 1) - 10);
    return code & 0x80 ? -magnitude : magnitude;
}

static void eight_bit_floats(void **state) {
    (void)state;
    for (unsigned code = 0; code < 256; code++) {
        uint8_t in = (uint8_t)code;
        float value;
        bool number = (code & 0x7f) != 0x7f;
        sl_widen(&in, SL_DTYPE_F8_E4M3, 1, &value);
        assert_int_equal(sl_all_finite(&in, SL_DTYPE_F8_E4M3, 1), number);
        if (!number)
            assert_true(isnan(value));
        else
            assert_int_equal(bits_of(value), bits_of((float)f8_value(code)));
    }
    static const uint8_t known[] = {0x01, 0x07, 0x08, 0x38, 0x7e, 0x80, 0xfe};
    static const float values[] = {0x1p-9f, 0x1.cp-7f, 0x1p-6f, 1, 448, -0.0f, -448};
    float wide[7];
    sl_widen(known, SL_DTYPE_F8_E4M3, 7, wide);
    assert_memory_equal(wide, values, sizeof(values));
}

// Tiles of 128 x 128 whose last ones are not whole, rows from the middle, scales at an odd address.
static void tiles_of_eight_bit_floats(void **state) {
    (void)state;
    enum { ROWS = 300, COLS = 200, TILES = 3 * 2 };
    static uint8_t in[ROWS * COLS], f32_scales[1 + 4 * TILES], bf16_scales[1 + 2 * TILES];
    static float out[ROWS * COLS];
    float scales[TILES];
    for (unsigned i = 0; i < ROWS * COLS; i++) {
        in[i] = (uint8_t)(i * 2654435761u >> 17);
        in[i] = (in[i] & 0x7f) == 0x7f ? 0x3a : in[i];
    }
    for (unsigned i = 0; i < TILES; i++)
        scales[i] = (float)(i + 3) * 0x1.02p-9f;
    memcpy(f32_scales + 1, scales, sizeof(scales));
    sl_narrow(scales, SL_DTYPE_BF16, TILES, bf16_scales + 1);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const void *s = bf16 ? bf16_scales + 1 : f32_scales + 1;
        sl_dtype type = bf16 ? SL_DTYPE_BF16 : SL_DTYPE_F32;
        for (unsigned first = 0; first < ROWS; first += 100) {
            assert_true(
                sl_widen_f8_tiles(in + (size_t)first * COLS, first, 100, COLS, s, type, out));
            for (unsigned r = 0; r < 100; r++) {
                for (unsigned c = 0; c < COLS; c++) {
                    unsigned tile = (first + r) / 128 * 2 + c / 128;
                    float scale = scales[tile];
                    if (bf16)
                        sl_widen(bf16_scales + 1 + 2 * tile, SL_DTYPE_BF16, 1, &scale);
                    float want = (float)(f8_value(in[(first + r) * COLS + c]) * (double)scale);
                    assert_int_equal(bits_of(out[r * COLS + c]), bits_of(want));
                }
            }
        }
    }
    in[ROWS * COLS - 1] = 0xff;
    assert_false(sl_widen_f8_tiles(in, 0, ROWS, COLS, scales, SL_DTYPE_F32, out));
    in[ROWS * COLS - 1] = 0x7e; // 448
    assert_true(sl_widen_f8_tiles(in, 0, ROWS, COLS, scales, SL_DTYPE_F32, out));
    scales[TILES - 1] = 0x1p120f;
    assert_false(sl_widen_f8_tiles(in, 0, ROWS, COLS, scales, SL_DTYPE_F32, out));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_groups),
        cmocka_unit_test(packing),
        cmocka_unit_test(degenerate_groups),
        cmocka_unit_test(what_is_not_finite_is_refused),
        cmocka_unit_test(random_groups_follow_the_definition),
        cmocka_unit_test(sixteen_bit_types_round_to_nearest_even),
        cmocka_unit_test(eight_bit_floats),
        cmocka_unit_test(tiles_of_eight_bit_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
