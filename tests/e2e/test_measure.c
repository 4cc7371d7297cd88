/* Measuring: what a trace says about the demo model is what its engine does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "helpers/demo.h"
#include "helpers/scratch.h"
#include "sluice.h"

#define TOKENS 300u

static uint32_t tokens[TOKENS];

static sl_engine *open_engine(const sl_engine_options *o, sl_session **session) {
    sl_engine *engine;
    sl_error err;
    demo_check(sl_engine_open(demo_store(), o, NULL, &engine, &err), &err);
    demo_check(sl_session_open(engine, session, &err), &err);
    return engine;
}

static sl_engine_options options_at(double share) {
    sl_engine_options o;
    sl_plan_info plan;
    sl_error err;
    sl_engine_options_init(&o);
    o.n_ctx = TOKENS;
    o.mem_bytes = (uint64_t)1 << 40;
    demo_check(sl_plan(demo_store(), &o, false, &plan, &err), &err);
    o.mem_bytes =
        plan.smallest_bytes + (uint64_t)((double)(plan.total_bytes - plan.smallest_bytes) * share);
    return o;
}

static void record(const char *path, const sl_engine_options *o) {
    sl_session *session;
    sl_error err;
    sl_engine *engine = open_engine(o, &session);
    demo_check(sl_trace_record(session, tokens, TOKENS, path, NULL, &err), &err);
    assert_int_equal(sl_session_length(session), 0);
    sl_engine_close(engine);
}

/* Recorded in chunks or token by token, at any budget: the same picks and guesses, to the byte. Only the head knows the
 * plan. */
static void a_trace_does_not_depend_on_the_budget(void **state) {
    (void)state;
    const double shares[] = {1, 0.5, 0.1};
    static char bytes[3][1 << 20];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        const char *path = test_scratch_path("budget.trace");
        sl_engine_options o = options_at(shares[i]);
        o.chunk = i == 1 ? 1 : 0;
        record(path, &o);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        n[i] = fread(bytes[i], 1, sizeof(bytes[i]), f);
        assert_true(n[i] > 64 && n[i] < sizeof(bytes[i]));
        fclose(f);
        assert_int_equal(n[i], n[0]);
        assert_memory_equal(bytes[i] + 64, bytes[0] + 64, n[0] - 64);
    }
}

/* Decoding the same tokens without guesses, from nothing: the engine reads what the replay says. */
static void a_replay_is_what_the_engine_does(void **state) {
    (void)state;
    const char *path = test_scratch_path("decode.trace");
    const double shares[] = {0.2, 0.5, 0.8};
    for (size_t i = 0; i < 3; i++) {
        sl_engine_options o = options_at(shares[i]);
        record(path, &o);
        sl_error err;
        sl_session *session;
        sl_plan_info plan;
        sl_telemetry t;
        o.no_guesses = true;
        sl_engine *engine = open_engine(&o, &session);
        sl_engine_plan(engine, &plan);
        for (uint32_t k = 0; k < TOKENS; k++)
            demo_check(sl_session_feed(session, &tokens[k], 1, NULL, &err), &err);
        sl_engine_telemetry(engine, &t);
        sl_engine_close(engine);

        sl_trace *trace;
        sl_trace_info info;
        sl_replay_counts c;
        demo_check(sl_trace_open(path, &trace, &info, &err), &err);
        assert_int_equal(info.n_tokens, TOKENS);
        assert_int_equal(info.expert_bytes, plan.expert_bytes);
        assert_true(info.fixed_bytes + (plan.hot_slots + plan.ring_slots) * info.expert_bytes ==
                    plan.total_bytes);
        const sl_replay_setup setup = {.policy = SL_REPLAY_OURS,
                                       .n_slots = plan.hot_slots + plan.ring_slots,
                                       .ring_slots = plan.ring_slots};
        demo_check(sl_trace_replay(trace, &setup, &c, &err), &err);
        printf("%u hot, %u ring: engine %llu, replay %llu reads of %llu uses\n", plan.hot_slots,
               plan.ring_slots, (unsigned long long)t.reads, (unsigned long long)c.demand,
               (unsigned long long)c.uses);
        assert_int_equal(t.hits + t.reads, c.uses);
        // Which slot of the ring is free depends on when reads come in: a few experts more or less.
        double off = ((double)t.reads - (double)c.demand) / (double)c.demand;
        assert_true(off > -0.01 && off < 0.01);
        assert_true(sl_trace_guessed(trace, info.n_guesses) > 0.3);
        sl_trace_close(trace);
    }
}

static void recording_fails_with_words(void **state) {
    (void)state;
    sl_engine_options o = options_at(0.5);
    sl_session *session;
    sl_error err;
    sl_engine *engine = open_engine(&o, &session);
    const uint32_t wrong = UINT32_MAX;
    const char *path = test_scratch_path("none.trace");
    assert_int_equal(sl_trace_record(session, &wrong, 1, path, NULL, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_trace_record(session, tokens, 0, path, NULL, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_trace_record(session, tokens, 4, "/nonexistent/x", NULL, &err), SL_ERR_IO);
    // What follows is not disturbed.
    demo_check(sl_session_feed(session, tokens, 4, NULL, &err), &err);
    sl_engine_close(engine);
}

static int set_up(void **state) {
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; n < TOKENS; i = (i + 1) % demo_n_examples()) {
        const demo_example *e = demo_example_at(i);
        for (uint32_t k = 0; k < e->n_prompt && n < TOKENS; k++)
            tokens[n++] = e->prompt_ids[k];
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    test_scratch_remove();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_does_not_depend_on_the_budget),
        cmocka_unit_test(a_replay_is_what_the_engine_does),
        cmocka_unit_test(recording_fails_with_words),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
