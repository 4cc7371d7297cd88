/* The drive turns slow while a model runs: the same bits, only later; a cancel does not wait for the queue of reads;
 * guesses leave the drive alone; and telemetry tells what it delivers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "helpers/demo.h"
#include "helpers/held.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"
#include "io/reader_internal.h"

#define N_TOKENS 3

static const uint32_t tokens[N_TOKENS] = {7, 268, 289};

/* A converted model, and a checkpoint that runs in place: there an expert is nine reads. */
static const char *model_at(uint32_t i) {
    return i ? test_golden("qwen3_5_moe-mlx4") : demo_store();
}
#define N_MODELS 2u

typedef struct opened {
    sl_engine *engine;
    sl_session *session;
} opened;

/* part: 0 is the floor, where the trunk streams as well, 16 is everything in memory. */
static opened open_at(const char *model, uint32_t part, uint32_t chunk, sl_io io, bool guesses) {
    opened x;
    sl_error err;
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = 256;
    o.n_threads = 2;
    o.chunk = chunk;
    o.io = io;
    o.no_guesses = !guesses;
    uint64_t floor = trace_smallest(model, &o), top = trace_largest(model, &o);
    o.mem_bytes = floor + (top - floor) * part / 16;
    demo_check(sl_engine_open(model, &o, NULL, &x.engine, &err), &err);
    demo_check(sl_session_open(x.engine, &x.session, &err), &err);
    return x;
}

static sl_hash128 answer_of(const opened *x) {
    sl_error err;
    sl_session_reset(x->session);
    demo_check(sl_session_feed(x->session, tokens, N_TOKENS, NULL, &err), &err);
    return sl_hash(sl_session_logits(x->session), x->engine->store.model.n_vocab * sizeof(float));
}

static void the_same_bits(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2 * N_MODELS; i++) {
        for (uint32_t part = 0; part <= 2; part += 2) {
            opened x = open_at(model_at(i / 2), part, 2, trace_io(demo_store(), i % 2), true);
            sl_hash128 expected = answer_of(&x);
            // From the first read on, and from the middle of a layer on.
            for (uint32_t nth = 1; nth <= 7; nth += 6) {
                sl_reader_slow(x.engine->reader, nth, 0.002);
                assert_true(sl_hash_equal(answer_of(&x), expected));
                assert_true(x.engine->reader->delay > 0); // it was as slow as that
                sl_reader_slow(x.engine->reader, 0, 0);
            }
            assert_true(sl_hash_equal(answer_of(&x), expected));
            sl_engine_close(x.engine);
        }
    }
}

/* ---- cancel -------------------------------------------------------------------------------------- */

#define DELAY 0.1

typedef struct canceler {
    sl_session *session;
    double at, told; /* sl_now(), when to cancel and when that happened */
} canceler;

static void *cancel_later(void *ctx) {
    canceler *c = ctx;
    sl_sleep_until(c->at);
    c->told = sl_now();
    sl_session_cancel(c->session);
    return NULL;
}

/* Feed n tokens and cancel after so many seconds. Returns how long the call took from there on. */
static double feed_and_cancel(const opened *x, const uint32_t *ids, size_t n, double after,
                              sl_status expected) {
    pthread_t thread;
    canceler c = {.session = x->session, .at = sl_now() + after};
    sl_error err;
    assert_int_equal(pthread_create(&thread, NULL, cancel_later, &c), 0);
    sl_status st = sl_session_feed(x->session, ids, n, NULL, &err);
    double end = sl_now();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(st, expected);
    assert_true(end > c.told); // it ran when the cancel came
    return end - c.told;
}

/* Of a prompt: within the time of the reads that something waits for just then, one expert, one strip of the trunk or
 * one batch of rows, with a guess or two in front of them. In place, each of these is several reads. */
static void a_cancel_of_a_prompt_does_not_wait(void **state) {
    (void)state;
    uint32_t prompt[40]; // of any vocabulary
    for (uint32_t i = 0; i < SL_COUNT(prompt); i++)
        prompt[i] = 11 + 7 * i;
    for (uint32_t i = 0; i < 2 * N_MODELS; i++) {
        for (uint32_t part = 0; part <= 2; part += 2) {
            opened x = open_at(model_at(i / 2), part, 64, trace_io(demo_store(), i % 2), true);
            sl_hash128 expected = answer_of(&x);
            for (uint32_t k = 1; k <= 2; k++) {
                sl_session_reset(x.session);
                sl_reader_slow(x.engine->reader, 1 + 40 * (k - 1), DELAY);
                double seconds =
                    feed_and_cancel(&x, prompt, SL_COUNT(prompt), 0.35 * k, SL_ERR_CANCELED);
                printf("%s, part %u: %.2f s after the cancel\n",
                       sl_reader_kind_name(x.engine->settings.reader), part, seconds);
                assert_true(seconds < 12 * DELAY);
                assert_int_equal(sl_session_length(x.session), 0);
                sl_reader_slow(x.engine->reader, 0, 0);
                assert_true(sl_hash_equal(answer_of(&x), expected));
            }
            sl_engine_close(x.engine);
        }
    }
}

/* A token of an answer is finished where that takes no more than the patience for it, so that the session can go on;
 * given up where it would. */
static void a_cancel_of_a_token_has_patience(void **state) {
    (void)state;
    opened x = open_at(demo_store(), 0, 2, SL_IO_PREAD, false);
    const uint32_t more[] = {300, 301};
    sl_hash128 expected, got;
    sl_error err;
    (void)answer_of(&x);
    demo_check(sl_session_feed(x.session, &more[0], 1, NULL, &err), &err);
    demo_check(sl_session_feed(x.session, &more[1], 1, NULL, &err), &err);
    const size_t logits = x.engine->store.model.n_vocab * sizeof(float);
    expected = sl_hash(sl_session_logits(x.session), logits);

    // Three milliseconds each: the token takes half a second.
    (void)answer_of(&x);
    sl_reader_slow(x.engine->reader, 1, 0.003);
    (void)feed_and_cancel(&x, &more[0], 1, 0.02, SL_OK);
    sl_reader_slow(x.engine->reader, 0, 0);
    assert_int_equal(sl_session_length(x.session), N_TOKENS + 1);
    demo_check(sl_session_feed(x.session, &more[1], 1, NULL, &err), &err);
    got = sl_hash(sl_session_logits(x.session), logits);
    assert_true(sl_hash_equal(got, expected));

    // A tenth of a second each: it would take half a minute.
    expected = answer_of(&x);
    sl_reader_slow(x.engine->reader, 1, DELAY);
    double seconds = feed_and_cancel(&x, &more[0], 1, 0.1, SL_ERR_CANCELED);
    printf("given up %.2f s after the cancel\n", seconds);
    assert_true(seconds > SL_CANCEL_PATIENCE_SECONDS - 0.01);
    assert_true(seconds < SL_CANCEL_PATIENCE_SECONDS + 10 * DELAY);
    assert_int_equal(sl_session_length(x.session), 0);
    assert_null(sl_session_logits(x.session));
    sl_reader_slow(x.engine->reader, 0, 0);
    assert_true(sl_hash_equal(answer_of(&x), expected));
    sl_engine_close(x.engine);
}

/* Closing with reads under way waits for them, as their buffers go. */
static void closing_in_the_middle(void **state) {
    (void)state;
    const demo_example *story = demo_example_at(29);
    for (uint32_t i = 0; i < 2; i++) {
        opened x = open_at(demo_store(), 2, 64, trace_io(demo_store(), i), true);
        sl_reader_slow(x.engine->reader, 1, 0.02);
        (void)feed_and_cancel(&x, story->prompt_ids, story->n_prompt, 0.3, SL_ERR_CANCELED);
        double begin = sl_now();
        sl_engine_close(x.engine);
        assert_true(sl_now() - begin < 2);
    }
}

/* ---- guesses and telemetry -------------------------------------------------------------------------- */

static void feed_singly(const opened *x, const uint32_t *ids, uint32_t n) {
    sl_error err;
    for (uint32_t i = 0; i < n; i++)
        demo_check(sl_session_feed(x->session, &ids[i], 1, NULL, &err), &err);
}

/* Between two layers such a drive has no time for a read that nobody asked for. */
static void guesses_leave_it_alone(void **state) {
    (void)state;
    const demo_example *story = demo_example_at(0);
    for (uint32_t i = 1; story->n_prompt < 26; i++)
        story = demo_example_at(i);
    for (uint32_t i = 0; i < 2; i++) {
        opened x = open_at(demo_store(), 4, 2, trace_io(demo_store(), i), true);
        assert_int_equal(x.engine->plan.n_streamed, 0);
        sl_telemetry at_first, before, after;
        sl_engine_telemetry(x.engine, &at_first);
        feed_singly(&x, story->prompt_ids, 2);
        sl_reader_slow(x.engine->reader, 1, 0.005);
        feed_singly(&x, story->prompt_ids + 2, 12);
        sl_engine_telemetry(x.engine, &before);
        assert_int_equal(x.engine->experts.guesses.width, 0);
        feed_singly(&x, story->prompt_ids + 14, 12);
        sl_engine_telemetry(x.engine, &after);
        printf("guesses: %llu at first, %llu of %llu reads at last; %.0f bytes a second, of %.0f\n",
               (unsigned long long)(before.guess_reads - at_first.guess_reads),
               (unsigned long long)(after.guess_reads - before.guess_reads),
               (unsigned long long)(after.reads - before.reads),
               (double)(after.drive_bytes - before.drive_bytes) /
                   (after.drive_seconds - before.drive_seconds),
               (double)x.engine->store.expert.stride / 0.005);
        assert_true(after.reads > before.reads + 24);
        assert_int_equal(after.guess_reads, before.guess_reads);
        // What it delivers while it reads is what it was slowed down to, at most; where computing takes its time between
        // two reads that were made at once, the second is found late.
        double rate = (double)(after.drive_bytes - before.drive_bytes) /
                      (after.drive_seconds - before.drive_seconds) /
                      ((double)x.engine->store.expert.stride / 0.005);
        assert_true(rate > 0.4 && rate < 1.02);
        // Less than when the model was opened: that is what a person sees.
        assert_true(after.drive_open_bytes >= x.engine->store.trunk_bytes);
        assert_true((double)after.drive_open_bytes / after.drive_open_seconds >
                    (double)x.engine->store.expert.stride / 0.005);
        // And that is nearly all that was read.
        assert_true((double)(after.drive_bytes - before.drive_bytes) >
                    0.9 * (double)(after.read_bytes - before.read_bytes));
        sl_engine_close(x.engine);
    }
}

static int set_up(void **state) {
    (void)state;
    (void)demo_store();
    (void)demo_example_at(0);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_LEAVES_NOTHING(the_same_bits),
        TEST_LEAVES_NOTHING(a_cancel_of_a_prompt_does_not_wait),
        TEST_LEAVES_NOTHING(a_cancel_of_a_token_has_patience),
        TEST_LEAVES_NOTHING(closing_in_the_middle),
        TEST_LEAVES_NOTHING(guesses_leave_it_alone),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
