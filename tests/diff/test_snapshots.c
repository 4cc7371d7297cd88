/* Sequences that begin alike: what a session is taken back to gives the same logit bits as computing everything
 * again, for every layer kind, whether it was cut back in place, restored from a snapshot or just continued. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"
#include "sluice.h"

#define CTX 512
#define N_TOKENS 320 /* a sliding window has wrapped around its ring by then */
#define N_VOCAB 512

static char store[1024];
static uint32_t a[N_TOKENS], b[N_TOKENS], mixed[N_TOKENS];
static sl_engine *engine, *plain;
static sl_session *session, *fresh;

static void check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

static void open_engine(uint64_t snapshot_bytes, sl_engine **e, sl_session **s) {
    sl_engine_options o;
    sl_error err;
    sl_engine_options_init(&o);
    o.n_ctx = CTX;
    o.n_threads = 2;
    o.chunk = 48;
    o.snapshot_bytes = snapshot_bytes;
    o.mem_bytes = trace_smallest(store, &o) + 256 * SL_KIB;
    check(sl_engine_open(store, &o, NULL, e, &err), &err);
    check(sl_session_open(*e, s, &err), &err);
}

static void close_engines(void) {
    sl_engine_close(engine);
    sl_engine_close(plain);
    engine = plain = NULL;
}

static void feed(sl_session *s, const uint32_t *tokens, size_t n) {
    sl_error err;
    check(sl_session_feed(s, tokens, n, NULL, &err), &err);
}

// The session computes what is left of tokens [n]; a fresh one computes all of it.
static void same_as_fresh(const uint32_t *tokens, size_t n) {
    uint32_t length = sl_session_length(session);
    assert_true(length < n);
    feed(session, tokens + length, n - length);
    sl_session_reset(fresh);
    feed(fresh, tokens, n);
    assert_memory_equal(sl_session_logits(session), sl_session_logits(fresh),
                        N_VOCAB * sizeof(float));
}

static void rewind_to(const uint32_t *tokens, size_t n, uint32_t kept) {
    assert_int_equal(sl_session_rewind(session, tokens, n), kept);
    assert_int_equal(sl_session_length(session), kept);
    assert_null(sl_session_logits(session));
    same_as_fresh(tokens, n);
}

static void convert(const char *name) {
    char src[1024];
    sl_error err;
    sl_model_info model;
    sl_convert_options options;
    (void)snprintf(src, sizeof(src), "%s/goldens/%s", SL_TEST_DATA, name);
    (void)snprintf(store, sizeof(store), "%s", test_scratch_path(name));
    sl_convert_options_init(&options);
    options.force = true;
    check(sl_convert(src, store, &options, NULL, NULL, &err), &err);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        a[i] = (i * i * 7 + i * 3 + 11) % 509;
        b[i] = i < 20 ? a[i] : (i * i * 5 + i + 3) % 503;
    }
    open_engine(16 * SL_MIB, &engine, &session);
    open_engine(0, &plain, &fresh);
    sl_engine_model(engine, &model);
    assert_int_equal(model.n_vocab, N_VOCAB);
}

/* Two conversations take turns; each goes on behind its snapshot. */
static void take_turns(void) {
    rewind_to(a, 100, 0);
    assert_true(sl_session_keep(session));
    uint32_t kept =
        sl_session_rewind(session, b, 130); // cut back to what is common, if that is possible
    assert_true(kept == 0 || kept == 20);
    same_as_fresh(b, 130);
    assert_true(sl_session_keep(session));
    rewind_to(a, 150, 100);
    rewind_to(b, 140, 130);
    // Another ending of the first one, and the first one again.
    memcpy(mixed, a, sizeof(a));
    for (uint32_t i = 110; i < N_TOKENS; i++)
        mixed[i] = b[i];
    sl_session_reset(session);
    rewind_to(mixed, 180, 100);
    sl_session_reset(session);
    rewind_to(a, 101, 100);
    // The one that has wrapped around.
    rewind_to(a, 310, 101);
    assert_true(sl_session_keep(session));
    rewind_to(b, 131, 130);
    rewind_to(a, 311, 310);
}

// The whole prompt is known: its last token is computed again, for its logits.
static void never_all(void) {
    sl_session_reset(session);
    feed(session, a, 310);
    assert_true(sl_session_keep(session));
    assert_true(sl_session_rewind(session, a, 310) < 310);
    same_as_fresh(a, 310);
    assert_int_equal(sl_session_rewind(session, a, 0), 0);
    assert_int_equal(sl_session_rewind(session, b + 30, 1), 0);
    same_as_fresh(b + 30, 1);
}

static void shortens(bool can) {
    sl_session_reset(session);
    feed(session, a, 90);
    rewind_to(mixed, 95, 90); // mixed goes on like a up to 110
    memcpy(mixed, a, sizeof(a));
    mixed[33] = (a[33] + 1) % 500;
    rewind_to(mixed, 60, can ? 33 : 0);
}

static void family(const char *name, bool can_shorten) {
    convert(name);
    take_turns();
    never_all();
    shortens(can_shorten);
    close_engines();
}

#define FAMILY(name, can_shorten)                                                                  \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        family(#name, can_shorten);                                                                \
    }
FAMILY(qwen3_next, false)
FAMILY(lfm2_moe, false)
FAMILY(gpt_oss, false)
FAMILY(qwen3_moe, true)
FAMILY(deepseek_v3, true)

/* A block that holds one snapshot of each kind: the one used longest ago goes. */
static void the_oldest_goes(void **state) {
    (void)state;
    convert("qwen3_next");
    close_engines();
    open_engine(0, &plain, &fresh);
    // Nothing is kept without memory for it.
    assert_false(sl_session_keep(fresh));
    assert_int_equal(sl_session_rewind(fresh, a, 10), 0);
    uint64_t bytes = 64 * SL_KIB;
    for (;; bytes += 16 * SL_KIB) { // the least that holds two snapshots
        open_engine(bytes, &engine, &session);
        feed(session, a, 60);
        bool one = sl_session_keep(session);
        sl_session_reset(session);
        feed(session, b, 60);
        bool two = sl_session_keep(session);
        sl_session_reset(session);
        if (one && two && sl_session_rewind(session, a, 61) == 60)
            break;
        sl_engine_close(engine);
    }
    same_as_fresh(a, 61); // and is used later than b
    sl_session_reset(session);
    feed(session, a + 100, 60);
    assert_true(sl_session_keep(session));
    rewind_to(b, 61, 0);
    rewind_to(a, 61, 60);
    memcpy(mixed, a + 100, 61 * sizeof(*a));
    rewind_to(mixed, 61, 60);
    close_engines();
}

static void a_snapshot_larger_than_the_block(void **state) {
    (void)state;
    convert("qwen3_moe");
    close_engines();
    open_engine(4 * SL_KIB, &engine, &session);
    open_engine(0, &plain, &fresh);
    feed(session, a, 60);
    assert_false(sl_session_keep(session));
    rewind_to(a, 80, 60);
    close_engines();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_next),
        cmocka_unit_test(lfm2_moe),
        cmocka_unit_test(gpt_oss),
        cmocka_unit_test(qwen3_moe),
        cmocka_unit_test(deepseek_v3),
        cmocka_unit_test(the_oldest_goes),
        cmocka_unit_test(a_snapshot_larger_than_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
