/* A model goes on inside the sandbox of a server: the same answer, what the
 * engine says of memory, a cancel from another thread, and the end. Every system call that is not on the list would
 * stop the child that does it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/sandbox.h"
#include "helpers/demo.h"
#include "helpers/trace.h"

#define N_ANSWER 6

typedef struct answer {
    uint32_t ids[N_ANSWER], n;
} answer;

static bool keep(void *user, uint32_t token) {
    answer *a = user;
    if (a->n == N_ANSWER)
        return false;
    a->ids[a->n++] = token;
    return true;
}

// Fails without cmocka, which a child must not go back to.
static void need(bool holds, const char *what, const sl_error *err) {
    if (holds)
        return;
    (void)fprintf(stderr, "test_shut_in: %s: %s\n", what, err ? err->message : "is not so");
    _exit(1);
}

static sl_session *open_session(sl_engine *engine) {
    sl_session *session;
    sl_error err;
    need(!sl_session_open(engine, &session, &err), "open a session", &err);
    return session;
}

static sl_engine *open_engine(sl_io io, bool is_whole) {
    sl_engine *engine;
    sl_error err;
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = 512;
    o.n_threads = 2;
    o.io = io;
    o.mem_bytes = is_whole ? trace_largest(demo_store(), &o) : trace_smallest(demo_store(), &o);
    need(!sl_engine_open(demo_store(), &o, NULL, &engine, &err), "open the model", &err);
    return engine;
}

static answer answer_to(sl_engine *engine, sl_session *session, const demo_example *example) {
    answer a = {.n = 0};
    sl_generate_request request;
    sl_generate_result result;
    sl_error err;
    sl_generate_request_init(engine, &request);
    request.prompt = example->prompt_ids;
    request.n_prompt = example->n_prompt;
    request.max_tokens = N_ANSWER;
    request.parse = true;
    request.on_token = keep;
    request.user = &a;
    need(!sl_session_generate(session, &request, &result, &err), "generate", &err);
    return a;
}

static void *cancel_soon(void *session) {
    sl_sleep_until(sl_now() + 0.02);
    sl_session_cancel(session);
    return NULL;
}

static void use(sl_engine *engine, const answer *expected, const demo_example *example) {
    const demo_example *story = demo_example_at(29); // long enough to be cancelled within
    sl_memory_info memory;
    sl_error err;
    pthread_t canceler;
    sl_session *session = open_session(engine);
    for (int i = 0; i < 2; i++) {
        const answer a = answer_to(engine, session, example);
        need(a.n == expected->n && memcmp(a.ids, expected->ids, a.n * sizeof(a.ids[0])) == 0,
             "the same answer", NULL);
        need(!sl_engine_memory(engine, &memory, &err), "the account of memory", &err);
        need(memory.rss_bytes > 0 && memory.peak_bytes > 0, "numbers in it", NULL);
        sl_session_reset(session);
    }
    need(pthread_create(&canceler, NULL, cancel_soon, session) == 0, "start a thread", NULL);
    (void)sl_session_feed(session, story->prompt_ids, story->n_prompt, NULL, NULL);
    need(pthread_join(canceler, NULL) == 0, "join it", NULL);
    sl_engine_close(engine);
}

static void runs_inside(sl_io io, bool is_whole) {
    const demo_example *example = demo_example_at(0);
    sl_engine *outside = open_engine(io, is_whole);
    const answer expected = answer_to(outside, open_session(outside), example);
    sl_engine_close(outside);
    assert_true(expected.n > 0);

    int status;
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sl_sandbox_report report = {0};
        sl_error err;
        char line[200];
        (void)alarm(120);
        sl_engine *engine = open_engine(io, is_whole);
        need(!sl_sandbox_files(NULL, &report, &err), "close the files", &err);
        need(!sl_sandbox_calls(&(sl_sandbox_options){.trap = true}, &report, &err), "list calls",
             &err);
        sl_sandbox_describe(&report, line, sizeof(line));
        (void)printf("inside: %s\n", line);
        (void)fflush(stdout);
        use(engine, &expected, example);
        _exit(report.landlock_abi || report.n_calls ? 0 : 77);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        print_message("skipped: this kernel has neither Landlock nor seccomp\n");
        skip();
    }
    if (WIFSIGNALED(status))
        print_message("ended by signal %d (%d: a call that is not on the list)\n", WTERMSIG(status),
                      SIGSYS);
    assert_int_equal(status, 0);
}

static void with_threads_that_read(void **state) {
    (void)state;
    runs_inside(SL_IO_PREAD, false);
    runs_inside(SL_IO_PREAD, true);
}

static void with_what_the_kernel_has(void **state) {
    (void)state;
    runs_inside(trace_io(demo_store(), 1), false);
    runs_inside(trace_io(demo_store(), 1), true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_threads_that_read),
        cmocka_unit_test(with_what_the_kernel_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
