/* True to the model: logits and the hidden states of every layer against what transformers computed, and the
 * greedy continuation, for both checkpoint layouts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "helpers/scratch.h"
#include "helpers/tensors.h"
#include "sluice.h"

typedef struct floats {
    float *data;
    size_t n, cap;
} floats;

static bool collect(void *user, const char *bytes, size_t n) {
    floats *f = user;
    if (f->n * 4 + n > f->cap * 4)
        return false;
    memcpy(f->data + f->n, bytes, n);
    f->n += n / 4;
    return true;
}

static floats floats_for(size_t n) {
    return (floats){malloc(n * sizeof(float)), 0, n};
}

static void check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

static sl_engine *open_golden(const char *layout, uint64_t mem) {
    char src[1024];
    sl_error err;
    sl_convert_options options;
    sl_convert_report report;
    snprintf(src, sizeof(src), "%s/goldens/%s", SL_TEST_DATA, layout);
    const char *dst = test_scratch_path(layout);
    sl_convert_options_init(&options);
    options.force = true;
    check(sl_convert(src, dst, &options, NULL, &report, &err), &err);
    sl_engine_options eo;
    sl_engine_options_init(&eo);
    eo.mem_bytes = mem;
    eo.n_ctx = 256;
    sl_engine *engine;
    check(sl_engine_open(dst, &eo, NULL, &engine, &err), &err);
    return engine;
}

/* Largest |ours - theirs| over max(1, max |theirs|) of any position. */
static double worst(const float *ours, const float *theirs, size_t n_positions, size_t width,
                    size_t *where) {
    double worst_error = 0;
    for (size_t p = 0; p < n_positions; p++) {
        double scale = 1, difference = 0;
        for (size_t i = 0; i < width; i++) {
            scale = fmax(scale, fabs((double)theirs[p * width + i]));
            double d = fabs((double)ours[p * width + i] - (double)theirs[p * width + i]);
            if (!(d <= difference))
                difference = d;
        }
        if (!(difference / scale <= worst_error)) {
            worst_error = difference / scale;
            *where = p;
        }
    }
    return worst_error;
}

#define LIMIT 5e-5

static void compare(const char *layout, const char *golden) {
    char path[1024];
    snprintf(path, sizeof(path), "%s/goldens/%s/golden/text.safetensors", SL_TEST_DATA, golden);
    test_tensors *t = test_tensors_open(path);
    test_tensor ids = test_tensors_get(t, "input_ids"), logits = test_tensors_get(t, "logits");
    test_tensor hidden = test_tensors_get(t, "hidden"), greedy = test_tensors_get(t, "greedy");
    test_tensor margin = test_tensors_get(t, "greedy_margin");
    size_t n = ids.n_elements, n_vocab = logits.shape[1], d_model = hidden.shape[2], where = 0;

    sl_engine *engine = open_golden(layout, (uint64_t)64 << 20);
    sl_session *session;
    sl_error err;
    check(sl_session_open(engine, &session, &err), &err);
    floats ours = floats_for(logits.n_elements), ours_hidden = floats_for(hidden.n_elements);
    sl_sink to_logits = {collect, &ours}, to_hidden = {collect, &ours_hidden};
    check(sl_logits(session, ids.data, n, &to_logits, &to_hidden, &err), &err);
    assert_int_equal(ours.n, logits.n_elements);
    assert_int_equal(ours_hidden.n, hidden.n_elements);
    for (size_t l = 0; l < hidden.shape[0]; l++) {
        const float *theirs = (const float *)hidden.data + l * n * d_model;
        double e = worst(ours_hidden.data + l * n * d_model, theirs, n, d_model, &where);
        printf("%s: hidden %zu: %.2e (position %zu)\n", layout, l, e, where);
        assert_true(e <= LIMIT);
    }
    double e = worst(ours.data, logits.data, n, n_vocab, &where);
    printf("%s: logits: %.2e (position %zu)\n", layout, e, where);
    assert_true(e <= LIMIT);

    // The continuation, wherever the reference itself is sure.
    check(sl_session_feed(session, ids.data, n, NULL, &err), &err);
    for (size_t i = 0; i < greedy.n_elements; i++) {
        const float *l = sl_session_logits(session);
        uint32_t best = 0, expected = ((const uint32_t *)greedy.data)[i];
        for (uint32_t v = 1; v < n_vocab; v++)
            best = l[v] > l[best] ? v : best;
        if (((const float *)margin.data)[i] > 1e-3f)
            assert_int_equal(best, expected);
        check(sl_session_feed(session, &expected, 1, NULL, &err), &err);
    }
    sl_engine_close(engine);
    free(ours.data);
    free(ours_hidden.data);
    test_tensors_close(t);
}

/* The checkpoint and the folder with its golden; gpt-oss has no copy of MLX. */
static const struct {
    const char *layout, *golden;
} cases[] = {
    {"qwen3_5_moe", "qwen3_5_moe"},
    {"qwen3_5_moe-mlx4", "qwen3_5_moe"},
    {"qwen3_5_moe_text", "qwen3_5_moe_text"},
    {"qwen3_next", "qwen3_next"},
    {"qwen3_next-mlx4", "qwen3_next"},
    {"qwen3_moe", "qwen3_moe"},
    {"qwen3_moe-mlx4", "qwen3_moe"},
    {"olmoe", "olmoe"},
    {"olmoe-mlx4", "olmoe"},
    {"deepseek_v3", "deepseek_v3"},
    {"deepseek_v3-mlx4", "deepseek_v3"},
    {"mixtral", "mixtral"},
    {"mixtral-mlx4", "mixtral"},
    {"glm4_moe", "glm4_moe"},
    {"glm4_moe-mlx4", "glm4_moe"},
    {"lfm2_moe", "lfm2_moe"},
    {"lfm2_moe-mlx4", "lfm2_moe"},
    {"gpt_oss", "gpt_oss"},
};

static void agrees(void **state) {
    size_t i = (size_t)*state;
    compare(cases[i].layout, cases[i].golden);
}

int main(void) {
    enum { N = sizeof(cases) / sizeof(cases[0]) };
    struct CMUnitTest tests[N];
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){cases[i].layout, agrees, NULL, NULL, (void *)i};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
