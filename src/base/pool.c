/* Handing out parts.
 *
 * `claim` holds a generation (the number of the job) and the next part. A worker takes part p of
 * job g by moving claim from (g, p) to (g, p + 1); this can only succeed while job g is the current
 * one, so a worker that was asleep or delayed can never take a part of a job it has not read. To
 * change jobs, the owner first moves claim to (g + 1, CLOSED), from which no part can be taken,
 * then writes the job, then opens (g + 1, 0).
 *
 * Why a worker cannot mix two jobs: it loads claim = (g, p), then the job, then exchanges claim. If
 * one of the job's fields it read (acquire) was of a later job, that field's store (release) came
 * after claim was closed, so the exchange finds a later generation and fails.
 *
 * Sleeping is Dekker's pattern, sequentially consistent on both sides: the sleeper announces itself
 * and then looks again; the waker publishes and then looks for sleepers. One of them sees the
 * other. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"

#define CLOSED UINT32_MAX

/* Looks between two readings of the clock. */
#define SPIN_LOOKS 32

static uint32_t generation_of(uint64_t claim) {
    return (uint32_t)(claim >> 32);
}
static uint32_t part_of(uint64_t claim) {
    return (uint32_t)claim;
}
static uint64_t claim_of(uint32_t generation, uint32_t part) {
    return (uint64_t)generation << 32 | part;
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); // yield does nothing on most cores; this waits a little
#endif
}

/* Take and run parts of this generation until there are none left. Returns how many. */
static uint32_t run_parts(sl_pool *pool, uint32_t generation, uint32_t thread) {
    uint32_t n = 0;
    // acquire: with the opening store of sl_pool_run, or with the closing one, which needs nothing
    uint64_t claim = atomic_load_explicit(&pool->claim, memory_order_acquire);
    while (generation_of(claim) == generation && part_of(claim) != CLOSED) {
        // acquire: with the stores of sl_pool_run; see the file's comment
        sl_pool_fn fn = atomic_load_explicit(&pool->fn, memory_order_acquire);
        void *ctx = atomic_load_explicit(&pool->ctx, memory_order_acquire);
        uint32_t n_parts = (uint32_t)atomic_load_explicit(&pool->n_parts, memory_order_acquire);
        if (part_of(claim) >= n_parts)
            break;
        if (!atomic_compare_exchange_weak_explicit(&pool->claim, &claim, claim + 1,
                                                   memory_order_acquire, memory_order_acquire))
            continue;
        fn(ctx, part_of(claim), thread);
        n++;
        claim = atomic_load_explicit(&pool->claim, memory_order_acquire);
    }
    return n;
}

/* ---- the workers' side --------------------------------------------------------------------- */

static bool is_awaited(sl_pool *pool, uint32_t seen) {
    uint64_t claim = atomic_load_explicit(&pool->claim, memory_order_seq_cst);
    return (generation_of(claim) != seen && part_of(claim) != CLOSED) ||
           atomic_load_explicit(&pool->stop, memory_order_seq_cst);
}

static bool spin_for_work(sl_pool *pool, uint32_t seen) {
    uint64_t end = sl_clock_ns() + SL_POOL_SPIN_NS;
    do {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (is_awaited(pool, seen))
                return true;
            relax();
        }
    } while (sl_clock_ns() < end);
    return false;
}

static void sleep_until_work(sl_pool *pool, uint32_t seen) {
    (void)pthread_mutex_lock(&pool->mutex);
    // seq_cst: Dekker with wake_workers
    atomic_fetch_add_explicit(&pool->n_sleeping, 1, memory_order_seq_cst);
    while (!is_awaited(pool, seen))
        (void)pthread_cond_wait(&pool->has_work, &pool->mutex);
    atomic_fetch_sub_explicit(&pool->n_sleeping, 1, memory_order_relaxed);
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void report_done(sl_pool *pool, uint32_t n) {
    // seq_cst: release for the results, and Dekker with wait_for_workers
    atomic_fetch_add_explicit(&pool->n_done, n, memory_order_seq_cst);
    if (!atomic_load_explicit(&pool->owner_sleeps, memory_order_seq_cst))
        return;
    (void)pthread_mutex_lock(&pool->mutex);
    (void)pthread_cond_signal(&pool->is_done);
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void worker_main(void *ctx) {
    sl_pool_worker *worker = ctx;
    sl_pool *pool = worker->pool;
    if (pool->thread_start)
        pool->thread_start();
    uint32_t seen = 0;
    for (;;) {
        if (!(pool->may_spin && spin_for_work(pool, seen)))
            sleep_until_work(pool, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_seq_cst))
            return;
        uint64_t claim = atomic_load_explicit(&pool->claim, memory_order_acquire);
        // Closed again already: that job was done without us, and the next is about to open.
        if (part_of(claim) == CLOSED)
            continue;
        seen = generation_of(claim);
        uint32_t n = run_parts(pool, seen, worker->thread);
        if (n > 0)
            report_done(pool, n);
    }
}

/* ---- the owner's side ---------------------------------------------------------------------- */

static void open_job(sl_pool *pool, uint32_t generation, uint32_t n_parts, sl_pool_fn fn,
                     void *ctx) {
    // Only the owner changes generations, and between jobs no part can be taken.
    atomic_store_explicit(&pool->claim, claim_of(generation, CLOSED), memory_order_relaxed);
    // release: orders the closing store before each of these; partner: the loads of run_parts
    atomic_store_explicit(&pool->fn, fn, memory_order_release);
    atomic_store_explicit(&pool->ctx, ctx, memory_order_release);
    atomic_store_explicit(&pool->n_parts, n_parts, memory_order_release);
    // relaxed: every worker that took a part of the last job has reported
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    // seq_cst: release for the job and what the caller wrote, and Dekker with sleep_until_work
    atomic_store_explicit(&pool->claim, claim_of(generation, 0), memory_order_seq_cst);
}

static void wake_workers(sl_pool *pool, uint32_t n_wanted) {
    uint32_t n = (uint32_t)atomic_load_explicit(&pool->n_sleeping, memory_order_seq_cst);
    if (n == 0)
        return;
    // Who has announced itself under the mutex is asleep once we hold it.
    (void)pthread_mutex_lock(&pool->mutex);
    (void)pthread_mutex_unlock(&pool->mutex);
    for (n = SL_MIN(n, n_wanted); n > 0; n--)
        (void)pthread_cond_signal(&pool->has_work);
}

static bool is_done(sl_pool *pool, uint32_t n) {
    // seq_cst: acquire of the workers' results, and Dekker with report_done
    return atomic_load_explicit(&pool->n_done, memory_order_seq_cst) == n;
}

static bool spin_for_workers(sl_pool *pool, uint32_t n) {
    uint64_t end = sl_clock_ns() + SL_POOL_SPIN_NS;
    do {
        for (int i = 0; i < SPIN_LOOKS; i++) {
            if (is_done(pool, n))
                return true;
            relax();
        }
    } while (sl_clock_ns() < end);
    return false;
}

static void wait_for_workers(sl_pool *pool, uint32_t n) {
    if (is_done(pool, n) || (pool->may_spin && spin_for_workers(pool, n)))
        return;
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_store_explicit(&pool->owner_sleeps, true, memory_order_seq_cst);
    while (!is_done(pool, n))
        (void)pthread_cond_wait(&pool->is_done, &pool->mutex);
    atomic_store_explicit(&pool->owner_sleeps, false, memory_order_relaxed);
    (void)pthread_mutex_unlock(&pool->mutex);
}

void sl_pool_run(sl_pool *pool, uint32_t n_parts, sl_pool_fn fn, void *ctx) {
    assert(n_parts < CLOSED);
    // relaxed: a guard against misuse, not an order
    assert(!atomic_load_explicit(&pool->is_running, memory_order_relaxed));
    atomic_store_explicit(&pool->is_running, true, memory_order_relaxed);
    if (pool->n_threads == 1 || n_parts <= 1) {
        for (uint32_t part = 0; part < n_parts; part++)
            fn(ctx, part, 0);
    } else {
        // relaxed: nobody but the owner writes the generation
        uint64_t claim = atomic_load_explicit(&pool->claim, memory_order_relaxed);
        uint32_t generation = generation_of(claim) + 1;
        open_job(pool, generation, n_parts, fn, ctx);
        wake_workers(pool, n_parts - 1);
        uint32_t n_own = run_parts(pool, generation, 0);
        wait_for_workers(pool, n_parts - n_own);
    }
    atomic_store_explicit(&pool->is_running, false, memory_order_relaxed);
}

/* ---- life ---------------------------------------------------------------------------------- */

uint64_t sl_pool_bytes(uint32_t n_threads) {
    if (n_threads == 1)
        return 0;
    uint64_t n_workers = n_threads - 1;
    return n_workers * (sl_thread_stack_bytes(SL_POOL_STACK_BYTES) + sizeof(sl_pool_worker)) +
           _Alignof(sl_pool_worker) + sl_thread_page_bytes();
}

uint64_t sl_pool_kernel_bytes(uint32_t n_threads) {
    return (uint64_t)(n_threads - 1) * SL_THREAD_KERNEL_BYTES;
}

sl_status sl_pool_init(sl_pool *pool, uint32_t n_threads, sl_arena *stacks,
                       void (*thread_start)(void), sl_error *err) {
    memset(pool, 0, sizeof(*pool));
    if (n_threads < 1 || n_threads > SL_POOL_THREADS_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "1 to %d threads were expected, got %u",
                       SL_POOL_THREADS_MAX, n_threads);
    sl_pool_worker *workers = NULL;
    if (n_threads > 1) {
        size_t bytes = (n_threads - 1) * sizeof(sl_pool_worker);
        if (!(workers = sl_arena_alloc(stacks, bytes, _Alignof(sl_pool_worker))))
            return sl_arena_full(stacks, bytes, err);
        memset(workers, 0, bytes);
    }
    pool->n_threads = n_threads;
    pool->may_spin = n_threads <= sl_cpus_allowed();
    pool->workers = workers;
    pool->thread_start = thread_start;
    // claim is (0, 0) and workers have seen generation 0: there is no job.
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->has_work, NULL);
    (void)pthread_cond_init(&pool->is_done, NULL);
    for (uint32_t i = 0; i + 1 < n_threads; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "sl-compute-%u", (i + 1) & 0xff);
        workers[i] = (sl_pool_worker){.pool = pool, .thread = i + 1};
        sl_status status = sl_thread_start(&workers[i].handle, name, stacks, SL_POOL_STACK_BYTES,
                                           worker_main, &workers[i], err);
        if (status) {
            sl_pool_deinit(pool);
            return status;
        }
    }
    return SL_OK;
}

void sl_pool_deinit(sl_pool *pool) {
    if (pool->n_threads == 0)
        return;
    atomic_store_explicit(&pool->stop, true, memory_order_seq_cst);
    (void)pthread_mutex_lock(&pool->mutex);
    (void)pthread_cond_broadcast(&pool->has_work);
    (void)pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i + 1 < pool->n_threads; i++)
        sl_thread_join(&pool->workers[i].handle);
    (void)pthread_cond_destroy(&pool->is_done);
    (void)pthread_cond_destroy(&pool->has_work);
    (void)pthread_mutex_destroy(&pool->mutex);
    memset(pool, 0, sizeof(*pool));
}
