/* The threads that compute. A job is n_parts calls of one function; parts are handed out one by one
 * to whoever is free, so what a part computes must not depend on the thread that runs it.
 *
 * The thread that owns the pool takes part as thread 0 and comes back when every part is done. It
 * never waits for a worker that has nothing to do: a job of few microseconds is not held up by a
 * worker that is asleep. Workers wait for the next job by spinning for SL_POOL_SPIN_NS (only where
 * every thread of the pool can have a processor of its own) and then sleep; an idle pool costs
 * nothing. */
#ifndef SL_BASE_POOL_H
#define SL_BASE_POOL_H

#include <stdatomic.h>

#include "base/thread.h"

#define SL_POOL_THREADS_MAX 256
#define SL_POOL_STACK_BYTES (128 * SL_KIB)
#define SL_POOL_SPIN_NS 50000

typedef void (*sl_pool_fn)(void *ctx, uint32_t part, uint32_t thread);

typedef struct sl_pool sl_pool;

typedef struct sl_pool_worker {
    sl_pool *pool;
    uint32_t thread; /* 1..n_threads-1 */
    sl_thread handle;
} sl_pool_worker;

/* Its address is fixed from init to deinit. Fields are the pool's own; pool.c says who pairs with
 * whom. */
struct sl_pool {
    uint32_t n_threads;
    bool may_spin;
    sl_pool_worker *workers; /* [n_threads - 1] */
    void (*thread_start)(void);
    atomic_bool is_running;

    /* generation << 32 | next part to hand out. Alone on its line: everybody hammers it. */
    SL_ALIGNED(64) atomic_uint_fast64_t claim;
    /* The job of the generation in `claim`. */
    SL_ALIGNED(64) _Atomic(sl_pool_fn) fn;
    _Atomic(void *) ctx;
    atomic_uint_fast32_t n_parts;
    /* Parts that workers have finished. */
    SL_ALIGNED(64) atomic_uint_fast32_t n_done;

    /* Sleeping. The mutex guards no data: it closes the gap between looking and falling asleep. */
    SL_ALIGNED(64) pthread_mutex_t mutex;
    pthread_cond_t has_work;
    pthread_cond_t is_done;
    atomic_uint_fast32_t n_sleeping; /* workers in, or on the way into, has_work */
    atomic_bool owner_sleeps;        /* the same for the owner and is_done */
    atomic_bool stop;
};

/* Bytes of the arena that sl_pool_init uses (up to a page less, by alignment; 0 for one thread),
 * and what the kernel is charged with. n_threads: 1..SL_POOL_THREADS_MAX, the owner included. */
uint64_t sl_pool_bytes(uint32_t n_threads);
uint64_t sl_pool_kernel_bytes(uint32_t n_threads);

/* Start n_threads - 1 workers on stacks from the arena (unused for one thread). thread_start,
 * unless NULL, runs first in each worker (not in the owner). Errors: SL_ERR_MEMORY, with nothing
 * left running. */
SL_MUST_USE sl_status sl_pool_init(sl_pool *pool, uint32_t n_threads, sl_arena *stacks,
                                   void (*thread_start)(void), sl_error *err);
/* Ends and joins the workers. Accepts a zeroed struct. Not while a job runs. */
void sl_pool_deinit(sl_pool *pool);

static inline uint32_t sl_pool_threads(const sl_pool *pool) {
    return pool->n_threads;
}

/* Call fn(ctx, part, thread) once for every part in 0..n_parts-1, in any order, from threads
 * 0..n_threads-1, and return when all calls have returned; what they wrote is then visible to the
 * caller. One caller at a time, and never from within fn (asserted). n_parts < UINT32_MAX.
 * Allocates nothing, takes no lock unless somebody has to be woken. */
void sl_pool_run(sl_pool *pool, uint32_t n_parts, sl_pool_fn fn, void *ctx);

#endif
