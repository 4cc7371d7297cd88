/* Faults of a checkpoint that runs in place: reads that fail once, a file that is cut short or replaced while it is used,
 * one that is damaged before. Each gives a typed error that names the file; afterwards the same bits as before. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "helpers/checkpoint.h"
#include "helpers/held.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"

#define N_TOKENS 3 /* a chunk of two, and one alone */
#define FILE_NAME "model.safetensors"

static const uint32_t tokens[N_TOKENS] = {7, 268, 489};

static void check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

// A copy of a golden checkpoint.
static const char *copy(const char *name) {
    static const char *const files[] = {"config.json", FILE_NAME};
    static char folder[1024], golden[1024];
    (void)snprintf(folder, sizeof(folder), "%s", test_scratch_path(name));
    (void)snprintf(golden, sizeof(golden), "%s/goldens/qwen3_5_moe-mlx4", SL_TEST_DATA);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (size_t i = 0; i < SL_COUNT(files); i++) {
        size_t n;
        char *bytes = test_file_read(test_path_in(golden, files[i]), &n);
        test_file_write(test_path_in(folder, files[i]), bytes, n);
        free(bytes);
    }
    return folder;
}

/* Half way between the floor and everything: trunk tensors stream, few experts stay. */
static sl_status open_at(const char *folder, uint32_t part, sl_engine **engine,
                         sl_session **session, sl_error *err) {
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = 64;
    o.n_threads = 1;
    o.chunk = 2;
    o.io = SL_IO_PREAD;
    uint64_t smallest = trace_smallest(folder, &o), largest = trace_largest(folder, &o);
    o.mem_bytes = smallest + (largest - smallest) * part / 16;
    sl_status st = sl_engine_open(folder, &o, NULL, engine, err);
    return st ? st : sl_session_open(*engine, session, err);
}

static sl_status feed(sl_session *session, sl_hash128 *logits, sl_error *err) {
    sl_session_reset(session);
    sl_status st = sl_session_feed(session, tokens, N_TOKENS, NULL, err);
    if (!st)
        *logits = sl_hash(sl_session_logits(session),
                          session->engine->store.model.n_vocab * sizeof(float));
    return st;
}

static sl_hash128 answer_of(sl_session *session) {
    sl_hash128 logits;
    sl_error err;
    check(feed(session, &logits, &err), &err);
    return logits;
}

static void reads_that_fail_once(void **state) {
    (void)state;
    static const sl_fault_kind kinds[] = {SL_FAULT_EIO, SL_FAULT_SHORT};
    const char *folder = copy("fail");
    for (uint32_t part = 0; part <= 4; part += 4) {
        sl_engine *engine;
        sl_session *session;
        sl_error err;
        sl_hash128 logits;
        uint32_t n_errors = 0;
        check(open_at(folder, part, &engine, &session, &err), &err);
        const sl_hash128 want = answer_of(session);
        for (uint32_t nth = 1; nth < 400; nth += 1 + nth / 6) {
            sl_reader_inject(engine->reader, kinds[nth % 2], nth);
            sl_status st = feed(session, &logits, &err);
            sl_reader_inject(engine->reader, SL_FAULT_NONE, 0);
            n_errors += st != SL_OK;
            if (st == SL_OK) { // a guess that nobody asked for, or fewer reads than that
                assert_true(sl_hash_equal(logits, want));
                continue;
            }
            assert_int_equal(st, SL_ERR_IO);
            assert_non_null(strstr(err.message, FILE_NAME));
            assert_true(sl_hash_equal(answer_of(session), want));
        }
        assert_true(n_errors >= 10);
        sl_engine_close(engine);
    }
}

static void cut_short_while_running(void **state) {
    (void)state;
    const char *folder = copy("cut");
    const char *path = test_path_in(folder, FILE_NAME);
    sl_engine *engine;
    sl_session *session;
    sl_error err;
    sl_hash128 logits;
    size_t n;
    check(open_at(folder, 1, &engine, &session, &err), &err);
    const sl_hash128 want = answer_of(session);
    char *bytes = test_file_read(path, &n);
    assert_int_equal(truncate(path, (off_t)(n / 3)), 0);
    assert_int_equal(feed(session, &logits, &err), SL_ERR_IO);
    assert_non_null(strstr(err.message, "cut short"));
    assert_non_null(strstr(err.message, FILE_NAME));
    // Written again, into the same file, it answers as before.
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_true(sl_hash_equal(answer_of(session), want));
    free(bytes);
    sl_engine_close(engine);
}

// Another file of the name: the one that was opened is read on.
static void replaced_while_running(void **state) {
    (void)state;
    const char *folder = copy("replaced");
    sl_engine *engine;
    sl_session *session;
    sl_error err;
    check(open_at(folder, 1, &engine, &session, &err), &err);
    const sl_hash128 want = answer_of(session);
    test_file_write(test_path_in(folder, "other"), "other", 5);
    assert_int_equal(rename(test_path_in(folder, "other"), test_path_in(folder, FILE_NAME)), 0);
    assert_true(sl_hash_equal(answer_of(session), want));
    sl_engine_close(engine);
}

static void damaged_before(void **state) {
    (void)state;
    const char *folder = copy("damaged");
    const char *path = test_path_in(folder, FILE_NAME);
    sl_engine_options o;
    sl_engine *engine;
    sl_error err;
    size_t n;
    sl_engine_options_init(&o);
    o.n_ctx = 64;
    char *bytes = test_file_read(path, &n);
    for (uint32_t cut = 0; cut < 8; cut++) {
        test_file_write(path, bytes, n * cut / 8);
        sl_status st = sl_engine_open(folder, &o, NULL, &engine, &err);
        assert_int_equal(st, SL_ERR_CORRUPT);
        assert_null(engine);
        assert_non_null(strstr(err.message, FILE_NAME));
    }
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_LEAVES_NOTHING(reads_that_fail_once),
        TEST_LEAVES_NOTHING(cut_short_while_running),
        TEST_LEAVES_NOTHING(replaced_while_running),
        TEST_LEAVES_NOTHING(damaged_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
