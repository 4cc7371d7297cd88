/* Traces and their replay: files there and back and damaged in every way, Belady's bound against all choices there
 * are, and the policies on traces small enough to follow by hand. */
#include "engine/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "helpers/demo.h"
#include "helpers/scratch.h"
#include "io/folder.h"

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

// A trace of random picks; low experts more often. The caller frees it.
static sl_trace random_trace(uint32_t n_tokens, uint32_t n_moe, uint32_t n_experts, uint32_t top_k,
                             uint32_t n_guess) {
    sl_trace t = {.shape = {.n_layers = n_moe + 1,
                            .n_moe = n_moe,
                            .n_experts = n_experts,
                            .top_k = top_k,
                            .n_guess = n_guess,
                            .expert_bytes = 4096,
                            .fixed_bytes = 1000},
                  .n_tokens = n_tokens};
    t.layers = sl_mem_calloc(n_moe, sizeof(uint16_t));
    t.rows = sl_mem_calloc((size_t)n_tokens * sl_trace_row_numbers(&t.shape) + 1, sizeof(uint16_t));
    for (uint32_t i = 0; i < n_moe; i++)
        t.layers[i] = (uint16_t)(i + 1);
    uint16_t *row = t.rows;
    for (uint32_t i = 0; i < n_tokens * n_moe; i++, row += top_k + n_guess) {
        for (uint32_t j = 0; j < top_k; j++) {
            bool again = true;
            while (again) {
                row[j] = (uint16_t)random_below(1 + random_below(n_experts));
                again = false;
                for (uint32_t k = 0; k < j; k++)
                    again |= row[k] == row[j];
            }
        }
        for (uint32_t j = 0; j < n_guess; j++)
            row[top_k + j] = i % n_moe == 0 ? SL_TRACE_NONE : (uint16_t)random_below(n_experts);
    }
    return t;
}

/* ---- files --------------------------------------------------------------------------------------- */

static const char *write_trace(const sl_trace *t) {
    const char *path = test_scratch_path("routes.trace");
    sl_error err;
    sl_trace_writer w;
    demo_check(sl_trace_create(path, &t->shape, t->layers, &w, &err), &err);
    for (uint32_t i = 0; i < t->n_tokens; i++)
        demo_check(sl_trace_add(&w, sl_trace_picks(t, i, 0), &err), &err);
    demo_check(sl_trace_finish(&w, &err), &err);
    return path;
}

static void a_file_there_and_back(void **state) {
    (void)state;
    const uint32_t shapes[][4] = {{3, 9, 2, 4}, {1, 5, 1, 0}, {7, 256, 8, 16}};
    random_state = 5;
    for (size_t i = 0; i < SL_COUNT(shapes); i++) {
        sl_error err;
        sl_trace back, t = random_trace(20, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
        demo_check(sl_trace_read(write_trace(&t), &back, &err), &err);
        const sl_trace_shape *a = &back.shape, *b = &t.shape;
        assert_true(a->n_layers == b->n_layers && a->n_moe == b->n_moe &&
                    a->n_experts == b->n_experts && a->top_k == b->top_k &&
                    a->n_guess == b->n_guess);
        assert_true(a->expert_bytes == b->expert_bytes && a->fixed_bytes == b->fixed_bytes);
        assert_int_equal(back.n_tokens, t.n_tokens);
        assert_memory_equal(back.layers, t.layers, t.shape.n_moe * sizeof(uint16_t));
        assert_memory_equal(back.rows, t.rows,
                            t.n_tokens * sl_trace_row_numbers(&t.shape) * sizeof(uint16_t));
        sl_trace_free(&back);
        sl_trace_free(&t);
    }
}

/* Cut anywhere, or one byte changed anywhere: refused, with words, never read wrongly. */
static void damage_is_found(void **state) {
    (void)state;
    sl_error err;
    sl_buf buf;
    sl_trace back, t = random_trace(4, 2, 300, 2, 3);
    sl_buf_init(&buf);
    demo_check(sl_file_slurp(write_trace(&t), 1 << 20, &buf, &err), &err);
    uint8_t *bytes = (uint8_t *)buf.data;
    demo_check(sl_trace_parse(bytes, buf.len, &back, &err), &err);
    sl_trace_free(&back);
    for (size_t n = 0; n < buf.len; n++) {
        uint8_t *exact = malloc(n + !n); // what is behind the end is nobody's
        assert_non_null(exact);
        memcpy(exact, bytes, n);
        assert_int_equal(sl_trace_parse(exact, n, &back, &err), SL_ERR_CORRUPT);
        assert_true(err.message[0] && !back.rows && !back.layers);
        free(exact);
    }
    for (size_t i = 0; i < buf.len; i++) {
        bytes[i] ^= (uint8_t)(1 << i % 8);
        sl_status st = sl_trace_parse(bytes, buf.len, &back, &err);
        assert_int_equal(st, i >= 8 && i < 12 ? SL_ERR_UNSUPPORTED : SL_ERR_CORRUPT);
        bytes[i] ^= (uint8_t)(1 << i % 8);
    }
    sl_buf_deinit(&buf);
    sl_trace_free(&t);
}

/* A writer that never finished leaves no trace. */
static void an_unfinished_file_is_none(void **state) {
    (void)state;
    const char *path = test_scratch_path("unfinished.trace");
    sl_error err;
    sl_trace_writer w;
    sl_trace back, t = random_trace(3, 2, 8, 2, 0);
    demo_check(sl_trace_create(path, &t.shape, t.layers, &w, &err), &err);
    demo_check(sl_trace_add(&w, t.rows, &err), &err);
    sl_trace_abandon(&w);
    assert_int_equal(sl_trace_read(path, &back, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "not completed"));
    assert_int_equal(sl_trace_read("/nonexistent/x", &back, &err), SL_ERR_MISSING);
    sl_trace_free(&t);
}

/* ---- policies ------------------------------------------------------------------------------------ */

static sl_replay_sums counts_of(const sl_trace *t, sl_policy_kind policy, uint32_t n_slots,
                                uint32_t width) {
    sl_error err;
    sl_replay_sums c;
    const sl_replay_job setup = {policy, n_slots, t->shape.top_k + 1, width, 0};
    demo_check(sl__replay(t, &setup, &c, &err), &err);
    assert_int_equal(c.uses, (uint64_t)t->n_tokens * t->shape.n_moe * t->shape.top_k);
    assert_int_equal(c.uses, c.hits + c.demand + c.guesses_used);
    assert_true(c.guesses_used <= c.guess_reads);
    return c;
}

/* The fewest reads there can be from layer `at` on, with `held` (a set of experts) in the slots: what is held or
 * asked for may be kept. One layer, at most 6 experts. */
static uint32_t fewest(const sl_trace *t, uint32_t at, uint32_t held, uint32_t n_slots,
                       uint8_t *known) {
    if (at == t->n_tokens)
        return 0;
    uint8_t *memo = &known[at * 64 + held];
    if (*memo)
        return *memo - 1;
    const uint16_t *picks = sl_trace_picks(t, at, 0);
    uint32_t asked = 0, best = UINT32_MAX;
    for (uint32_t i = 0; i < t->shape.top_k; i++)
        asked |= 1u << picks[i];
    uint32_t reads = (uint32_t)__builtin_popcount(asked & ~held), all = asked | held;
    for (uint32_t kept = 0; kept < 64; kept++) {
        if ((kept & ~all) || (uint32_t)__builtin_popcount(kept) > n_slots)
            continue;
        uint32_t rest = fewest(t, at + 1, kept, n_slots, known);
        best = SL_MIN(best, rest);
    }
    *memo = (uint8_t)(reads + best + 1);
    return reads + best;
}

static void belady_is_the_bound(void **state) {
    (void)state;
    random_state = 3;
    for (uint32_t round = 0; round < 200; round++) {
        static uint8_t known[64 * 64];
        uint32_t top_k = 1 + random_below(3), n_slots = top_k + 1 + random_below(2);
        sl_trace t = random_trace(25, 1, 6, top_k, 0);
        memset(known, 0, sizeof(known));
        uint32_t bound = fewest(&t, 0, 0, n_slots, known);
        assert_int_equal(counts_of(&t, SL_POLICY_BELADY, n_slots, 0).demand, bound);
        assert_true(counts_of(&t, SL_POLICY_LRU, n_slots, 0).demand >= bound);
        assert_true(counts_of(&t, SL_POLICY_LFU, n_slots, 0).demand >= bound);
        if (n_slots > top_k)
            assert_true(counts_of(&t, SL_POLICY_OURS, n_slots, 0).demand >= bound);
        sl_trace_free(&t);
    }
}

// A trace of one layer and one pick per token, from text: 'a' is expert 0.
static sl_trace trace_of(const char *text) {
    sl_trace t = random_trace((uint32_t)strlen(text), 1, 26, 1, 0);
    for (uint32_t i = 0; text[i]; i++)
        t.rows[i] = (uint16_t)(text[i] - 'a');
    return t;
}

static void by_hand(void **state) {
    (void)state;
    const struct {
        const char *picks;
        uint32_t n_slots, lru, lfu, belady;
    } cases[] = {
        {"aaaaaa", 2, 1, 1, 1},       {"abcabcabc", 3, 3, 3, 3},
        {"abcabcabc", 2, 9, 7, 5},    // a round trip of three in two slots
        {"aabcabca", 2, 7, 5, 4},     // LFU keeps the favourite
        {"abababcdcdcd", 2, 4, 8, 4}, // and what was one
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_trace t = trace_of(cases[i].picks);
        uint64_t lru = counts_of(&t, SL_POLICY_LRU, cases[i].n_slots, 0).demand,
                 lfu = counts_of(&t, SL_POLICY_LFU, cases[i].n_slots, 0).demand,
                 belady = counts_of(&t, SL_POLICY_BELADY, cases[i].n_slots, 0).demand;
        printf("%s: lru %d, lfu %d, belady %d\n", cases[i].picks, (int)lru, (int)lfu, (int)belady);
        assert_int_equal(lru, cases[i].lru);
        assert_int_equal(lfu, cases[i].lfu);
        assert_int_equal(belady, cases[i].belady);
        sl_trace_free(&t);
    }
}

/* A guess that names the picks turns misses into guesses that come true; one that does not changes no demand. */
static void guesses_are_counted_apart(void **state) {
    (void)state;
    random_state = 8;
    for (int right = 0; right < 2; right++) {
        sl_trace t = random_trace(100, 4, 64, 2, 4);
        for (uint32_t i = 0; i < t.n_tokens; i++)
            for (uint32_t layer = 1; layer < 4; layer++) {
                uint16_t *row = t.rows + ((size_t)i * 4 + layer) * 6;
                for (uint32_t j = 0; j < 4; j++)
                    row[2 + j] = right ? row[j % 2] : (uint16_t)(63 - j);
                if (!right)
                    for (uint32_t j = 0; j < 2; j++)
                        row[j] = (uint16_t)(row[j] % 30 + 30 * (j == 1));
            }
        sl_replay_sums without = counts_of(&t, SL_POLICY_OURS, 12, 0);
        sl_replay_sums with = counts_of(&t, SL_POLICY_OURS, 12, 2);
        uint64_t n_picks, n_named;
        sl__replay_guesses(&t, 2, &n_picks, &n_named);
        assert_int_equal(n_picks, 100 * 3 * 2);
        assert_int_equal(without.guess_reads, 0);
        assert_true(with.guess_reads > 0);
        if (right) {
            assert_int_equal(n_named, n_picks);
            assert_int_equal(with.guesses_used, with.guess_reads);
            assert_true(with.demand < without.demand / 2);
        } else {
            assert_int_equal(n_named, 0);
            assert_int_equal(with.guesses_used, 0);
        }
        sl_trace_free(&t);
    }
}

/* The topics of a text: each has its experts. What was learned about one must not stand in the way of the next, so
 * ours reads less than both. */
static void a_topic_is_left_behind(void **state) {
    (void)state;
    random_state = 21;
    sl_trace t = random_trace(1500, 8, 128, 4, 0);
    uint16_t *row = t.rows;
    for (uint32_t token = 0; token < t.n_tokens; token++)
        for (uint32_t layer = 0; layer < 8; layer++, row += 4)
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t topic = token / 100 * 7919 % 64 + layer * 11;
                // A quarter of a topic's 24 experts often, the others now and then.
                row[j] = (uint16_t)((topic + j * 6 + random_below(1 + random_below(6))) % 128);
            }
    uint64_t ours = counts_of(&t, SL_POLICY_OURS, 100, 0).demand,
             lru = counts_of(&t, SL_POLICY_LRU, 100, 0).demand,
             lfu = counts_of(&t, SL_POLICY_LFU, 100, 0).demand,
             bound = counts_of(&t, SL_POLICY_BELADY, 100, 0).demand;
    printf("topics: ours %d, lru %d, lfu %d, bound %d\n", (int)ours, (int)lru, (int)lfu,
           (int)bound);
    assert_true(ours < lru && ours < lfu && ours >= bound);
    sl_trace_free(&t);
}

/* Tokens that differ a lot, as those of a small model do, are no changes of topic: what is known in the long run must
 * not be thrown away, so ours is close to LFU, which is at its best here. */
static void different_tokens_are_no_change(void **state) {
    (void)state;
    random_state = 4;
    sl_trace t = random_trace(1500, 8, 64, 4, 0);
    uint16_t *row = t.rows;
    for (uint32_t token = 0; token < t.n_tokens; token++) {
        uint32_t rare = random_below(4) == 0; // a token whose experts few others pick
        for (uint32_t layer = 0; layer < 8; layer++, row += 4)
            for (uint32_t j = 0; j < 4; j++)
                row[j] = (uint16_t)(j * 16 + (rare ? 4 + random_below(12) : random_below(4)));
    }
    uint64_t ours = counts_of(&t, SL_POLICY_OURS, 150, 0).demand,
             lru = counts_of(&t, SL_POLICY_LRU, 150, 0).demand,
             lfu = counts_of(&t, SL_POLICY_LFU, 150, 0).demand;
    printf("steady: ours %d, lru %d, lfu %d\n", (int)ours, (int)lru, (int)lfu);
    assert_true(ours < lru && (double)ours < 1.1 * (double)lfu);
    sl_trace_free(&t);
}

static void impossible_setups_are_refused(void **state) {
    (void)state;
    sl_error err;
    sl_replay_sums c;
    sl_trace t = random_trace(5, 2, 16, 4, 0);
    const sl_replay_job setups[] = {{SL_POLICY_LRU, 4, 0, 0, 0},
                                    {SL_POLICY_OURS, 20, 3, 0, 0},
                                    {SL_POLICY_OURS, 20, 21, 0, 0},
                                    {SL_POLICY_BELADY, 20, 0, 0, 5}};
    for (size_t i = 0; i < SL_COUNT(setups); i++)
        assert_int_equal(sl__replay(&t, &setups[i], &c, &err), SL_ERR_ARGUMENT);
    sl_trace_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_there_and_back),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(an_unfinished_file_is_none),
        cmocka_unit_test(belady_is_the_bound),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(guesses_are_counted_apart),
        cmocka_unit_test(a_topic_is_left_behind),
        cmocka_unit_test(different_tokens_are_no_change),
        cmocka_unit_test(impossible_setups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
