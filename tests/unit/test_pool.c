/* base/pool: every part once, results visible, nothing lost over many tiny jobs, sleepers woken. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/pool.h"

#define PARTS_MAX 1000

static sl_pool pool;
static sl_arena stacks;
static atomic_uint n_started;

static void count_start(void) {
    atomic_fetch_add(&n_started, 1);
}

static void open_pool(uint32_t n_threads) {
    sl_error err;
    atomic_store(&n_started, 0);
    assert_int_equal(sl_arena_map(&stacks, "threads", sl_pool_bytes(n_threads), &err), SL_OK);
    assert_int_equal(sl_pool_init(&pool, n_threads, &stacks, count_start, &err), SL_OK);
    assert_int_equal(sl_pool_threads(&pool), n_threads);
    assert_true(stacks.bytes - stacks.used < 2 * sl_thread_page_bytes());
}

static void close_pool(void) {
    sl_pool_deinit(&pool);
    sl_arena_unmap(&stacks);
}

typedef struct job {
    uint32_t calls[PARTS_MAX]; // plain: the pool orders them, and ThreadSanitizer looks on
    uint32_t thread_of[PARTS_MAX];
    uint64_t spin_ns;
} job;

static void count_part(void *ctx, uint32_t part, uint32_t thread) {
    job *j = ctx;
    j->calls[part]++;
    j->thread_of[part] = thread;
    if (j->spin_ns) {
        uint64_t end = sl_clock_ns() + j->spin_ns;
        while (sl_clock_ns() < end) {
        }
    }
}

static void every_part_runs_once(void **state) {
    (void)state;
    static job j;
    const uint32_t sizes[] = {0, 1, 2, 3, 7, 64, PARTS_MAX};
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads++) {
        open_pool(n_threads);
        for (size_t s = 0; s < SL_COUNT(sizes); s++) {
            memset(&j, 0, sizeof(j));
            for (uint32_t round = 1; round <= 50; round++) {
                sl_pool_run(&pool, sizes[s], count_part, &j);
                for (uint32_t i = 0; i < PARTS_MAX; i++) {
                    assert_int_equal(j.calls[i], i < sizes[s] ? round : 0);
                    assert_true(j.thread_of[i] < n_threads);
                }
            }
        }
        close_pool();
        assert_int_equal(atomic_load(&n_started), n_threads - 1);
    }
}

static void workers_share_the_work(void **state) {
    (void)state;
    static job j;
    open_pool(4);
    memset(&j, 0, sizeof(j));
    j.spin_ns = 2000000;
    sl_pool_run(&pool, 64, count_part, &j);
    uint32_t used = 0;
    for (uint32_t i = 0; i < 64; i++)
        used |= 1u << j.thread_of[i];
    assert_true((used & (used - 1)) != 0); // at least two
    close_pool();
}

static void tiny_jobs_are_not_lost(void **state) {
    (void)state;
    static job j;
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads *= 2) {
        memset(&j, 0, sizeof(j));
        open_pool(n_threads);
        uint64_t start = sl_clock_ns();
        for (uint32_t i = 0; i < 100000; i++)
            sl_pool_run(&pool, 1 + i % 5, count_part, &j);
        print_message("%u threads: %.2f us a job\n", n_threads,
                      (double)(sl_clock_ns() - start) / 1e3 / 100000);
        close_pool();
        for (uint32_t part = 0; part < 5; part++)
            assert_int_equal(j.calls[part], 100000 - part * 20000);
    }
}

static void idle_workers_sleep_and_wake(void **state) {
    (void)state;
    static job j;
    memset(&j, 0, sizeof(j));
    open_pool(4);
    for (uint32_t round = 1; round <= 5; round++) {
        struct timespec pause = {.tv_nsec = 20000000};
        nanosleep(&pause, NULL);
        sl_pool_run(&pool, 16, count_part, &j);
        for (uint32_t part = 0; part < 16; part++)
            assert_int_equal(j.calls[part], round);
    }
    struct timespec settle = {.tv_nsec = 20000000}, pause = {.tv_nsec = 200000000};
    nanosleep(&settle, NULL);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&pause, NULL);
    getrusage(RUSAGE_SELF, &after);
    int64_t us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000 +
                 (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    assert_true(us < 50000); // spinning would take 600000
    close_pool();
}

static void running_takes_no_heap(void **state) {
    (void)state;
    static job j;
    memset(&j, 0, sizeof(j));
    open_pool(3);
    uint64_t before = sl_seal_violations();
    sl_seal_enter();
    for (int i = 0; i < 100; i++)
        sl_pool_run(&pool, 10, count_part, &j);
    sl_seal_leave();
    assert_int_equal(sl_seal_violations(), before);
    close_pool();
}

static void stacks_must_fit(void **state) {
    (void)state;
    sl_error err;
    uint64_t page = sl_thread_page_bytes();
    assert_int_equal(sl_arena_map(&stacks, "threads", sl_pool_bytes(4) - 2 * page, &err), SL_OK);
    assert_int_equal(sl_pool_init(&pool, 4, &stacks, NULL, &err), SL_ERR_MEMORY);
    assert_non_null(strstr(err.message, "'threads'"));
    sl_pool_deinit(&pool);
    // The guard pages of those that had started are ordinary memory again.
    memset(stacks.base, 1, stacks.bytes);
    sl_arena_unmap(&stacks);
    assert_int_equal(sl_pool_init(&pool, 0, &stacks, NULL, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_pool_init(&pool, SL_POOL_THREADS_MAX + 1, &stacks, NULL, &err),
                     SL_ERR_ARGUMENT);
    assert_int_equal(sl_pool_init(&pool, 1, NULL, NULL, &err), SL_OK);
    sl_pool_deinit(&pool);
    sl_pool_deinit(&pool);
}

static void read_signal_mask(void *ctx, uint32_t part, uint32_t thread) {
    (void)part;
    sigset_t *masks = ctx;
    pthread_sigmask(SIG_SETMASK, NULL, &masks[thread]);
    uint64_t end = sl_clock_ns() + 1000000;
    while (sl_clock_ns() < end) {
    }
}

static void workers_take_no_signals(void **state) {
    (void)state;
    sigset_t masks[2];
    sigemptyset(&masks[0]);
    sigfillset(&masks[1]);
    open_pool(2);
    sl_pool_run(&pool, 50, read_signal_mask, masks);
    close_pool();
    assert_false(sigismember(&masks[0], SIGINT));
    assert_true(sigismember(&masks[1], SIGINT));
}

#ifndef NDEBUG
static void nest(void *ctx, uint32_t part, uint32_t thread) {
    (void)part;
    (void)thread;
    sl_pool_run(&pool, 2, count_part, ctx);
}

static void nested_use_is_refused(void **state) {
    (void)state;
    static job j;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sl_error err;
        signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        if (sl_pool_init(&pool, 1, NULL, NULL, &err) == SL_OK)
            sl_pool_run(&pool, 2, nest, &j);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once),    cmocka_unit_test(workers_share_the_work),
        cmocka_unit_test(tiny_jobs_are_not_lost),  cmocka_unit_test(idle_workers_sleep_and_wake),
        cmocka_unit_test(running_takes_no_heap),   cmocka_unit_test(stacks_must_fit),
        cmocka_unit_test(workers_take_no_signals),
#ifndef NDEBUG
        cmocka_unit_test(nested_use_is_refused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
