/* See trace.h. */
#include "helpers/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

static bool keep_row(void *user, const char *bytes, size_t n) {
    trace *t = user;
    assert_true(t->n_rows < TRACE_TOKENS_MAX);
    t->row[t->n_rows++] = sl_hash(bytes, n);
    return true;
}

bool trace_keep_token(void *user, uint32_t token) {
    trace *t = user;
    assert_true(t->n_answer < TRACE_ANSWER);
    t->answer[t->n_answer++] = token;
    return true;
}

// What layers were told of and what telemetry says are the same sums.
static void layers_add_up(const sl_engine *engine, const sl_telemetry *t) {
    sl_layer_use use[256], sum = {0};
    uint32_t n = sl_engine_layers(engine, use, 256);
    assert_in_range(n, 1, 256);
    assert_int_equal(sl_engine_layers(engine, NULL, 0), n);
    for (uint32_t i = 0; i < n; i++) {
        sum.hits += use[i].hits;
        sum.reads += use[i].reads;
        sum.guess_reads += use[i].guess_reads;
        sum.guesses_used += use[i].guesses_used;
    }
    assert_int_equal(sum.hits, t->hits);
    assert_int_equal(sum.reads, t->reads);
    assert_int_equal(sum.guess_reads, t->guess_reads);
    assert_int_equal(sum.guesses_used, t->guesses_used);
}

void trace_run(const char *store, const sl_engine_options *o, const uint32_t *tokens, uint32_t n,
               const uint32_t *prompt, uint32_t n_prompt, trace *t) {
    sl_engine *engine;
    sl_session *session;
    sl_error err;
    sl_generate_request request;
    sl_generate_result result;
    sl_telemetry telemetry;
    memset(t, 0, sizeof(*t));
    check(sl_engine_open(store, o, NULL, &engine, &err), &err);
    check(sl_session_open(engine, &session, &err), &err);
    sl_engine_plan(engine, &t->plan);
    sl_sink sink = {keep_row, t};
    check(sl_logits(session, tokens, n, &sink, NULL, &err), &err);
    assert_int_equal(t->n_rows, n);

    sl_generate_request_init(engine, &request);
    request.prompt = prompt;
    request.n_prompt = n_prompt;
    request.sampling = (sl_sampling){.temperature = 1.5f,
                                     .top_k = 400,
                                     .top_p = 0.98f,
                                     .min_p = 0.001f,
                                     .presence_penalty = 0.5f,
                                     .repeat_penalty = 1.1f,
                                     .seed = 20240607};
    request.max_tokens = TRACE_ANSWER;
    request.on_token = trace_keep_token;
    request.user = t;
    check(sl_session_generate(session, &request, &result, &err), &err);
    assert_int_equal(result.n_generated, t->n_answer);
    sl_engine_telemetry(engine, &telemetry);
    t->trunk_read_bytes = telemetry.trunk_read_bytes;
    layers_add_up(engine, &telemetry);
    sl_engine_close(engine);
}

void trace_same(const trace *expected, const trace *got, const char *what) {
    assert_int_equal(expected->n_rows, got->n_rows);
    for (uint32_t i = 0; i < expected->n_rows; i++)
        if (!sl_hash_equal(expected->row[i], got->row[i]))
            fail_msg("%s: the logits of position %u differ", what, i);
    assert_int_equal(expected->n_answer, got->n_answer);
    for (uint32_t i = 0; i < expected->n_answer; i++)
        if (expected->answer[i] != got->answer[i])
            fail_msg("%s: sampled token %u is %u, expected %u", what, i, got->answer[i],
                     expected->answer[i]);
}

uint64_t trace_smallest(const char *store, const sl_engine_options *options) {
    sl_engine_options o = *options;
    sl_plan_info plan;
    sl_error err;
    o.mem_bytes = 1;
    assert_int_equal(sl_plan(store, &o, false, &plan, &err), SL_ERR_BUDGET);
    assert_true(plan.smallest_bytes > 1);
    return plan.smallest_bytes;
}

uint64_t trace_largest(const char *store, const sl_engine_options *options) {
    sl_engine_options o = *options;
    sl_plan_info plan;
    sl_error err;
    o.mem_bytes = (uint64_t)1 << 30;
    check(sl_plan(store, &o, false, &plan, &err), &err);
    assert_int_equal(plan.hot_slots, plan.n_experts_total);
    assert_int_equal(plan.n_tensors_streamed, 0);
    return plan.total_bytes;
}

static bool uring_works(const char *store) {
    sl_engine_options o;
    sl_engine *engine;
    sl_error err;
    sl_engine_options_init(&o);
    o.io = SL_IO_URING;
    o.n_ctx = 64;
    o.mem_bytes = trace_largest(store, &o);
    sl_status st = sl_engine_open(store, &o, NULL, &engine, &err);
    if (st == SL_ERR_UNSUPPORTED) {
        printf("no io_uring here (%s): pread alone is tested\n", err.message);
        return false;
    }
    check(st, &err);
    sl_engine_close(engine);
    return true;
}

sl_io trace_io(const char *store, uint32_t i) {
    static int works = -1;
    if (works < 0)
        works = uring_works(store);
    return works && i % 2 ? SL_IO_URING : SL_IO_PREAD;
}
