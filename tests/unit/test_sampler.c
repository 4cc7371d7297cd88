/* The sampler against one that sorts, and its parts by what they promise. */
#include "engine/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "kernels/kernels.h"

#define VOCAB 500

static void plain_exp(sl_backend *backend, float *y, const float *x, size_t n) {
    (void)backend;
    for (size_t i = 0; i < n; i++)
        y[i] = sl_expf(x[i]);
}
static const sl_backend_ops ops = {.exp = plain_exp};
static sl_backend backend = {.ops = &ops};

static uint32_t memory[3 * VOCAB];
static sl_sampler sampler;

static void fresh(uint32_t n_vocab) {
    memset(memory, 0, sizeof(memory));
    sl_sampler_init(&sampler, n_vocab, memory);
}

static const sl_sampler_params greedy = {.top_p = 1, .repeat_penalty = 1};

static uint32_t pick(const float *logits, const sl_sampler_params *p, uint32_t position) {
    uint32_t token = UINT32_MAX;
    assert_true(sl_sampler_pick(&sampler, &backend, logits, p, position, &token));
    assert_true(token < sampler.n_vocab);
    return token;
}

/* ---- a sampler that sorts ----------------------------------------------------------------------- */

static const float *sort_by;

static int best_first(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (sort_by[i] != sort_by[j])
        return sort_by[i] > sort_by[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static uint32_t sorted_pick(const float *logits, uint32_t n, const sl_sampler_params *p,
                            uint32_t position) {
    static float l[VOCAB], w[VOCAB];
    static uint32_t ids[VOCAB];
    double mass = 0, kept = 0;
    uint32_t n_kept = 0, k = p->top_k && p->top_k < n ? p->top_k : n;
    for (uint32_t i = 0; i < n; i++) {
        l[i] = logits[i];
        if (sampler.seen[i] && p->repeat_penalty != 1)
            l[i] = l[i] > 0 ? l[i] / p->repeat_penalty : l[i] * p->repeat_penalty;
        if (sampler.seen[i] & SL_SEEN_ANSWER)
            l[i] -= p->presence_penalty;
        ids[i] = i;
    }
    sort_by = l;
    qsort(ids, n, sizeof(*ids), best_first);
    if (p->temperature <= 0)
        return ids[0];
    float max = l[ids[0]];
    for (uint32_t i = 0; i < n; i++)
        l[i] = (l[i] - max) / p->temperature;
    qsort(ids, n, sizeof(*ids), best_first); // division may make neighbours equal
    for (uint32_t i = 0; i < n; i++)
        w[i] = sl_expf(l[i]);
    if (k < n) {
        for (uint32_t i = 0; i < k; i++)
            mass += (double)w[ids[i]];
    } else {
        for (uint32_t i = 0; i < n; i++)
            mass += (double)w[i];
        sort_by = w;
        qsort(ids, n, sizeof(*ids), best_first);
    }
    for (; n_kept < k; n_kept++) {
        float weight = w[ids[n_kept]];
        if (n_kept && (weight == 0 || weight < p->min_p || kept >= (double)p->top_p * mass))
            break;
        kept += (double)weight;
    }
    double at = sl_random_unit(p->seed, position) * kept;
    uint32_t i = 0;
    for (; i + 1 < n_kept; i++)
        if ((at -= (double)w[ids[i]]) < 0)
            break;
    return ids[i];
}

static uint64_t state = 1;
static uint32_t random_below(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % n);
}
static float random_float(void) {
    return (float)random_below(1 << 20) / (float)(1 << 20);
}

static void equals_the_one_that_sorts(void **unused) {
    (void)unused;
    static const float temperatures[] = {0, 1e-4f, 0.3f, 0.7f, 1, 1.5f, 8, 100};
    static const float top_ps[] = {1, 0.95f, 0.8f, 0.3f, 0.01f, 0};
    static const float min_ps[] = {0, 0, 0.02f, 0.5f, 1};
    static const uint32_t top_ks[] = {0, 0, 1, 2, 20, 499, 500, 1000};
    for (uint32_t round = 0; round < 4000; round++) {
        float logits[VOCAB];
        uint32_t n = round % 3 ? VOCAB : 1 + random_below(VOCAB);
        fresh(n);
        uint32_t grid = random_below(3);
        for (uint32_t i = 0; i < n; i++) {
            // Smooth, coarse with many ties, and far apart so that weights underflow.
            float x = random_float() * 2 - 1;
            logits[i] = grid == 0 ? x * 12 : grid == 1 ? (float)(int)(x * 4) : x * 3000;
            if (random_below(4) == 0)
                sl_sampler_see(&sampler, i, 1 + random_below(3));
        }
        sl_sampler_params p = {
            .temperature = temperatures[random_below(SL_COUNT(temperatures))],
            .top_k = top_ks[random_below(SL_COUNT(top_ks))],
            .top_p = top_ps[random_below(SL_COUNT(top_ps))],
            .min_p = min_ps[random_below(SL_COUNT(min_ps))],
            .presence_penalty = random_below(2) ? random_float() * 3 - 1 : 0,
            .repeat_penalty = random_below(2) ? 0.5f + random_float() : 1,
            .seed = state,
        };
        for (uint32_t position = 0; position < 3; position++) {
            uint32_t expected = sorted_pick(logits, n, &p, position);
            if (pick(logits, &p, position) != expected)
                fail_msg("round %u: expected token %u", round, expected);
        }
    }
}

/* ---- parts -------------------------------------------------------------------------------------- */

static void greedy_takes_the_lower_id(void **unused) {
    (void)unused;
    const float logits[] = {-1, 3, 2, 3, -5, 3};
    fresh(6);
    assert_int_equal(pick(logits, &greedy, 0), 1);
    // Zeros of both signs are equal.
    const float zeros[] = {-0.0f, 0.0f};
    fresh(2);
    assert_int_equal(pick(zeros, &greedy, 0), 0);
}

static void penalties(void **unused) {
    (void)unused;
    const float logits[] = {2, 1.5f, -1, -1.1f};
    sl_sampler_params p = greedy;
    fresh(4);
    sl_sampler_see(&sampler, 0, SL_SEEN_PROMPT);
    // A presence penalty is for tokens of the answer; a repeat penalty for both.
    p.presence_penalty = 1;
    assert_int_equal(pick(logits, &p, 0), 0);
    sl_sampler_see(&sampler, 0, SL_SEEN_ANSWER);
    assert_int_equal(pick(logits, &p, 0), 1);
    // What was an answer is the prompt of the next one.
    sl_sampler_begin_answer(&sampler);
    assert_int_equal(pick(logits, &p, 0), 0);
    p.presence_penalty = 0;
    p.repeat_penalty = 1.5f;
    assert_int_equal(pick(logits, &p, 0), 1);
    // Negative logits are multiplied: seen tokens become less likely, not more.
    const float negative[] = {-1, -1.2f};
    fresh(2);
    sl_sampler_see(&sampler, 0, SL_SEEN_PROMPT);
    assert_int_equal(pick(negative, &p, 0), 1);
    sl_sampler_reset(&sampler);
    assert_int_equal(pick(negative, &p, 0), 0);
}

static void cuts(void **unused) {
    (void)unused;
    // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625 at temperature 1.
    float logits[5];
    for (int i = 0; i < 5; i++)
        logits[i] = (float)(-(i < 4 ? i : 3) * 0.69314718);
    static const struct {
        sl_sampler_params p;
        uint32_t n; /* tokens that can come up */
    } cases[] = {
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1}, 5},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .top_k = 3}, 3},
        {{.temperature = 1, .top_p = 0.4f, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_p = 0.6f, .repeat_penalty = 1}, 2},
        {{.temperature = 1, .top_p = 0.8f, .repeat_penalty = 1}, 3},
        {{.temperature = 1, .top_p = 0, .repeat_penalty = 1}, 1},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .min_p = 0.2f}, 3},
        {{.temperature = 1, .top_p = 1, .repeat_penalty = 1, .min_p = 1}, 1},
        // top-p is of what top-k left: 0.5 of 0.75.
        {{.temperature = 1, .top_p = 0.6f, .repeat_penalty = 1, .top_k = 2}, 1},
    };
    for (size_t c = 0; c < SL_COUNT(cases); c++) {
        bool came[5] = {false};
        fresh(5);
        for (uint32_t position = 0; position < 2000; position++)
            came[pick(logits, &cases[c].p, position)] = true;
        for (uint32_t i = 0; i < 5; i++)
            assert_int_equal(came[i], i < cases[c].n);
    }
}

static void draws_follow_the_probabilities(void **unused) {
    (void)unused;
    enum { N = 40, DRAWS = 40000 };
    float logits[N];
    double p[N], sum = 0, chi2 = 0;
    uint32_t count[N] = {0};
    for (int i = 0; i < N; i++) {
        logits[i] = (float)((i * 7) % N) / 10;
        sum += p[i] = exp((double)logits[i] / 0.8);
    }
    sl_sampler_params params = {.temperature = 0.8f, .top_p = 1, .repeat_penalty = 1, .seed = 99};
    fresh(N);
    for (uint32_t position = 0; position < DRAWS; position++)
        count[pick(logits, &params, position)]++;
    for (int i = 0; i < N; i++) {
        double expected = p[i] / sum * DRAWS;
        chi2 += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    }
    printf("chi2 %.1f with %d degrees of freedom\n", chi2, N - 1);
    assert_true(chi2 < 72.06); // one in a thousand is above that; the draws are always the same
}

static void random_numbers(void **unused) {
    (void)unused;
    double sum = 0, product = 0, before = 0.5;
    uint32_t n_bins[16] = {0};
    for (uint64_t i = 0; i < 100000; i++) {
        // Neighbouring seeds and positions must have nothing to do with each other.
        double x = sl_random_unit(i / 316, i % 316);
        assert_true(x >= 0 && x < 1);
        sum += x;
        product += (x - 0.5) * (before - 0.5);
        n_bins[(int)(x * 16)]++;
        before = x;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.004);
    assert_true(fabs(product / 100000 * 12) < 0.014);
    for (int i = 0; i < 16; i++)
        assert_in_range(n_bins[i], 6250 - 320, 6250 + 320);
    // The same key gives the same number, on any machine.
    assert_true(sl_random_unit(1, 2) == sl_random_unit(1, 2));
    assert_true(sl_random_unit(0, 0) != sl_random_unit(0, 1));
    assert_true(sl_random_unit(0, 0) != sl_random_unit(1, 0));
    (void)sl_random_unit(UINT64_MAX, UINT64_MAX);
}

static void logits_that_are_no_numbers(void **unused) {
    (void)unused;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < SL_COUNT(bad); i++) {
        float logits[] = {1, 2, 3};
        uint32_t token;
        fresh(3);
        logits[i] = bad[i];
        assert_false(sl_sampler_pick(&sampler, &backend, logits, &greedy, 0, &token));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_one_that_sorts),
        cmocka_unit_test(greedy_takes_the_lower_id),
        cmocka_unit_test(penalties),
        cmocka_unit_test(cuts),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(random_numbers),
        cmocka_unit_test(logits_that_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
