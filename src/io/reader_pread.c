/* Reading with a few threads that call pread. Attempts wait in one queue and are taken in its
 * order; those that have ended wait in another until the owner collects them, all at once. */
#define _GNU_SOURCE
#include "io/reader_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

#define WORKERS_MAX 16
#define STACK_BYTES (32 * SL_KIB)

typedef struct queue {
    sl_read *first, *last;
} queue;

typedef struct pread_reader {
    sl_reader base;
    uint32_t n_workers;
    sl_thread *workers; /* [n_workers] */
    queue taken;        /* the owner's: collected from `ended`, not handed out yet */

    pthread_mutex_t mutex; /* guards waiting, ended and stop */
    pthread_cond_t has_waiting;
    pthread_cond_t has_ended;
    queue waiting;
    queue ended;
    bool stop;
    /* ended is not empty: lets the owner look without the mutex. Written under the mutex; relaxed,
     * since whoever acts on it takes the mutex first. */
    atomic_bool any_ended;
} pread_reader;

static void push(queue *q, sl_read *read) {
    read->next = NULL;
    if (q->last)
        q->last->next = read;
    else
        q->first = read;
    q->last = read;
}

static sl_read *pop(queue *q) {
    sl_read *read = q->first;
    if (read) {
        q->first = read->next;
        if (!q->first)
            q->last = NULL;
    }
    return read;
}

static int32_t attempt(const sl_read *read) {
    sl_attempt a = sl__read_attempt(read);
    ssize_t got;
    do {
        got = pread(read->fd, a.buf, a.n, (off_t)a.offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : (int32_t)got;
}

static void worker_main(void *ctx) {
    pread_reader *r = ctx;
    (void)pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->waiting.first && !r->stop)
            (void)pthread_cond_wait(&r->has_waiting, &r->mutex);
        sl_read *read = pop(&r->waiting);
        if (!read)
            break;
        (void)pthread_mutex_unlock(&r->mutex);
        int32_t result = attempt(read);
        (void)pthread_mutex_lock(&r->mutex);
        read->result = result;
        push(&r->ended, read);
        atomic_store_explicit(&r->any_ended, true, memory_order_relaxed);
        (void)pthread_cond_signal(&r->has_ended);
    }
    (void)pthread_mutex_unlock(&r->mutex);
}

static void pread_start(sl_reader *reader, sl_read *read) {
    pread_reader *r = (pread_reader *)reader;
    (void)pthread_mutex_lock(&r->mutex);
    push(&r->waiting, read);
    (void)pthread_cond_signal(&r->has_waiting);
    (void)pthread_mutex_unlock(&r->mutex);
}

static sl_read *pread_collect(sl_reader *reader, bool wait) {
    pread_reader *r = (pread_reader *)reader;
    if (!r->taken.first) {
        if (!wait && !atomic_load_explicit(&r->any_ended, memory_order_relaxed))
            return NULL;
        (void)pthread_mutex_lock(&r->mutex);
        while (wait && !r->ended.first)
            (void)pthread_cond_wait(&r->has_ended, &r->mutex);
        r->taken = r->ended;
        r->ended = (queue){0};
        atomic_store_explicit(&r->any_ended, false, memory_order_relaxed);
        (void)pthread_mutex_unlock(&r->mutex);
    }
    return pop(&r->taken);
}

static void pread_close(sl_reader *reader) {
    pread_reader *r = (pread_reader *)reader;
    (void)pthread_mutex_lock(&r->mutex);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->has_waiting);
    (void)pthread_mutex_unlock(&r->mutex);
    for (uint32_t i = 0; i < r->n_workers; i++)
        sl_thread_join(&r->workers[i]);
    (void)pthread_cond_destroy(&r->has_ended);
    (void)pthread_cond_destroy(&r->has_waiting);
    (void)pthread_mutex_destroy(&r->mutex);
}

static const sl_reader_ops pread_ops = {
    .start = pread_start, .collect = pread_collect, .close = pread_close};

static uint32_t workers_for(uint32_t depth) {
    return SL_MIN(depth, (uint32_t)WORKERS_MAX);
}

uint64_t sl__reader_pread_bytes(uint32_t depth) {
    uint64_t n = workers_for(depth);
    return sizeof(pread_reader) + n * sizeof(sl_thread) + _Alignof(max_align_t) +
           sl_thread_page_bytes() + n * sl_thread_stack_bytes(STACK_BYTES);
}

uint64_t sl__reader_pread_kernel_bytes(uint32_t depth) {
    return workers_for(depth) * SL_THREAD_KERNEL_BYTES;
}

sl_status sl__reader_pread_open(uint32_t depth, sl_arena *arena, sl_reader **out, sl_error *err) {
    uint32_t n = workers_for(depth);
    size_t bytes = sizeof(pread_reader) + n * sizeof(sl_thread);
    pread_reader *r = sl_arena_alloc(arena, bytes, _Alignof(max_align_t));
    if (!r)
        return sl_arena_full(arena, bytes, err);
    memset(r, 0, bytes);
    r->base = (sl_reader){.ops = &pread_ops, .depth = depth};
    r->workers = (sl_thread *)(r + 1);
    (void)pthread_mutex_init(&r->mutex, NULL);
    (void)pthread_cond_init(&r->has_waiting, NULL);
    (void)pthread_cond_init(&r->has_ended, NULL);
    for (; r->n_workers < n; r->n_workers++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "sl-read-%u", r->n_workers & 0xff);
        sl_status status = sl_thread_start(&r->workers[r->n_workers], name, arena, STACK_BYTES,
                                           worker_main, r, err);
        if (status) {
            pread_close(&r->base);
            return status;
        }
    }
    *out = &r->base;
    return SL_OK;
}
