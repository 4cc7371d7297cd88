/* Streaming is real: at the floor, the bytes that telemetry tells are those that the kernel counted for
 * this process, and the drive delivered at least as many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cmocka.h>

#include "helpers/demo.h"
#include "helpers/trace.h"

/* read_bytes of /proc/self/io: what this process caused to be fetched from drives. */
static bool process_read_bytes(uint64_t *out) {
    char line[128];
    unsigned long long bytes;
    bool found = false;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "read_bytes: %llu", &bytes) == 1) {
            *out = bytes;
            found = true;
        }
    if (f)
        (void)fclose(f);
    return found;
}

/* Bytes read so far from the block device that a file is on. */
static bool device_read_bytes(const char *path, uint64_t *out) {
    struct stat st;
    char line[512];
    unsigned device_major, device_minor;
    unsigned long long sectors;
    bool found = false;
    FILE *f = fopen("/proc/diskstats", "r");
    while (f && stat(path, &st) == 0 && fgets(line, sizeof(line), f))
        if (sscanf(line, "%u %u %*s %*u %*u %llu", &device_major, &device_minor, &sectors) == 3 &&
            device_major == major(st.st_dev) && device_minor == minor(st.st_dev)) {
            *out = sectors * 512;
            found = true;
        }
    if (f)
        (void)fclose(f);
    return found;
}

static void bytes_agree(sl_io io, const char *name, bool *looked_at_device) {
    const demo_example *story = demo_example_at(29);
    sl_engine_options o;
    sl_engine *engine;
    sl_session *session;
    sl_error err;
    sl_generate_request request;
    sl_generate_result result;
    sl_telemetry t;
    uint64_t process = 0, process_end = 0, device = 0, device_end = 0;
    sl_engine_options_init(&o);
    o.n_ctx = 256;
    o.n_threads = 1;
    o.io = io;
    o.mem_bytes = trace_smallest(demo_store(), &o);
    if (!process_read_bytes(&process)) {
        printf("/proc/self/io cannot be read here\n");
        skip();
    }
    *looked_at_device = device_read_bytes(demo_store(), &device);
    sl_status st = sl_engine_open(demo_store(), &o, NULL, &engine, &err);
    if (st == SL_ERR_UNSUPPORTED) {
        printf("%s: %s\n", name, err.message);
        skip();
    }
    demo_check(st, &err);
    demo_check(sl_session_open(engine, &session, &err), &err);
    sl_generate_request_init(engine, &request);
    request.prompt = story->prompt_ids;
    request.n_prompt = story->n_prompt;
    request.sampling.temperature = 0;
    request.max_tokens = 32;
    demo_check(sl_session_generate(session, &request, &result, &err), &err);
    sl_engine_telemetry(engine, &t);
    sl_engine_close(engine);
    assert_true(process_read_bytes(&process_end));
    process = process_end - process;
    printf(
        "%s: telemetry %llu (experts %llu, trunk %llu, rows %llu, open %llu), the process %llu\n",
        name, (unsigned long long)t.read_bytes, (unsigned long long)t.expert_read_bytes,
        (unsigned long long)t.trunk_read_bytes, (unsigned long long)t.embedding_read_bytes,
        (unsigned long long)t.open_read_bytes, (unsigned long long)process);
    assert_int_equal(result.n_generated, 32);
    assert_true(t.expert_read_bytes > 0 && t.trunk_read_bytes > 0 && t.embedding_read_bytes > 0 &&
                t.open_read_bytes > 0);
    assert_int_equal(t.read_bytes, t.expert_read_bytes + t.trunk_read_bytes +
                                       t.embedding_read_bytes + t.open_read_bytes);
    // Each of the tokens reads its 48 experts: nothing stays at the floor, save what the ring holds.
    assert_true(t.reads > (uint64_t)48 * 32 / 2);
    assert_true(t.read_bytes <= process);
    assert_true(process - t.read_bytes <= t.read_bytes / 100);
    if (*looked_at_device) {
        assert_true(device_read_bytes(demo_store(), &device_end));
        printf("the drive %llu\n", (unsigned long long)(device_end - device));
        assert_true(device_end - device >= t.read_bytes);
    }
}

static void with_pread(void **state) {
    (void)state;
    bool looked;
    bytes_agree(SL_IO_PREAD, "pread", &looked);
}

static void with_uring(void **state) {
    (void)state;
    bool looked;
    bytes_agree(SL_IO_URING, "io_uring", &looked);
}

/* What the plan says that one token of an answer reads is what it reads. */
static void plan_tells_the_cost(void **state) {
    (void)state;
    const demo_example *x = demo_example_of(21);
    for (uint32_t part = 0; part < 8; part++) {
        sl_engine_options o;
        sl_engine *engine;
        sl_session *session;
        sl_error err;
        sl_plan_info plan;
        sl_telemetry before, after;
        sl_engine_options_init(&o);
        o.n_ctx = 256;
        o.n_threads = 1;
        o.no_guesses = true; // the plan counts what is asked for
        o.mem_bytes = trace_smallest(demo_store(), &o);
        o.mem_bytes += (trace_largest(demo_store(), &o) - o.mem_bytes) * part * part / 49;
        demo_check(sl_engine_open(demo_store(), &o, NULL, &engine, &err), &err);
        demo_check(sl_session_open(engine, &session, &err), &err);
        sl_engine_plan(engine, &plan);
        // Twice: the slots start empty.
        for (uint32_t round = 0; round < 2; round++) {
            sl_session_reset(session);
            demo_check(sl_session_feed(session, x->prompt_ids, x->n_prompt, NULL, &err), &err);
            sl_engine_telemetry(engine, &before);
            for (uint32_t i = 0; i < x->n_answer; i++)
                demo_check(sl_session_feed(session, &x->answer_ids[i], 1, NULL, &err), &err);
        }
        sl_engine_telemetry(engine, &after);
        uint64_t trunk = after.trunk_read_bytes - before.trunk_read_bytes;
        uint64_t all = (after.read_bytes - before.read_bytes) / x->n_answer;
        printf("%llu bytes: a token reads %llu, planned %llu to %llu (trunk %llu)\n",
               (unsigned long long)o.mem_bytes, (unsigned long long)all,
               (unsigned long long)plan.token_read_bytes_low,
               (unsigned long long)plan.token_read_bytes_high,
               (unsigned long long)plan.trunk_streamed_bytes);
        assert_int_equal(trunk, plan.trunk_streamed_bytes * x->n_answer);
        // Rows lie on two pages now and then, and the plan counts one.
        assert_true(all <= plan.token_read_bytes_high + SL_PAGE);
        sl_engine_close(engine);
    }
}

static void drive_is_counted(void **state) {
    (void)state;
    uint64_t bytes;
    if (!device_read_bytes(demo_store(), &bytes)) {
        printf("the store is not on a block device of its own (overlay, network): sectors are not "
               "compared\n");
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drive_is_counted),
        cmocka_unit_test(with_pread),
        cmocka_unit_test(with_uring),
        cmocka_unit_test(plan_tells_the_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
