/* Heap, arenas and the seal. The only file that calls malloc or maps anonymous memory. */
#define _GNU_SOURCE
#include "base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

static _Thread_local unsigned seal_depth;
static atomic_uint_fast64_t seal_violations; // relaxed: a counter, read when the work is over

void sl_seal_enter(void) {
    seal_depth++;
}
void sl_seal_leave(void) {
    seal_depth--;
}

uint64_t sl_seal_violations(void) {
    return atomic_load_explicit(&seal_violations, memory_order_relaxed);
}

static void check_seal(void) {
    if (SL_LIKELY(seal_depth == 0))
        return;
#ifdef SL_SEAL_TRAP
    abort();
#endif
    atomic_fetch_add_explicit(&seal_violations, 1, memory_order_relaxed);
}

void *sl_mem_alloc(size_t bytes) {
    check_seal();
    return malloc(bytes ? bytes : 1);
}

void *sl_mem_calloc(size_t count, size_t size) {
    check_seal();
    return count && size ? calloc(count, size) : calloc(1, 1);
}

void *sl_mem_realloc(void *block, size_t bytes) {
    check_seal();
    return realloc(block, bytes ? bytes : 1);
}

void sl_mem_free(void *block) {
    free(block);
}

void sl_mem_trim(void) {
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

void sl_mem_one_heap(void) {
#ifdef __GLIBC__
    (void)mallopt(M_ARENA_MAX, 1);
#endif
}

#define HUGE_PAGE ((size_t)2 * SL_MIB)
#define HUGE_TRIAL (32 * HUGE_PAGE)
#define HUGE_TRIAL_SECONDS 0.064 // about 1 GiB/s: small pages are filled at twice that

// Memory that begins where a huge page can. NULL: errno says why.
static uint8_t *map_aligned(size_t size) {
    size_t slack = size >= HUGE_PAGE ? HUGE_PAGE - SL_PAGE : 0;
    uint8_t *p =
        mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = slack ? (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE : 0;
    if (before)
        (void)munmap(p, before);
    if (slack > before)
        (void)munmap(p + before + size, slack - before);
    (void)madvise(p + before, size, MADV_NOHUGEPAGE);
    return p + before;
}

sl_status sl_arena_reserve(sl_arena *arena, const char *name, uint64_t bytes, sl_error *err) {
    check_seal();
    memset(arena, 0, sizeof(*arena));
    arena->name = name;
    if (bytes == 0)
        return SL_OK;
    if (bytes > SIZE_MAX - SL_PAGE)
        return sl_fail(err, SL_ERR_MEMORY,
                       "account '%s': %llu bytes are more than this machine can address", name,
                       (unsigned long long)bytes);
    size_t size = (size_t)SL_ALIGN_UP(bytes, SL_PAGE);
    uint8_t *p = map_aligned(size);
    if (!p)
        return sl_fail_errno(err, SL_ERR_MEMORY, errno, "account '%s': mapping %zu bytes", name,
                             size);
    arena->base = p;
    arena->bytes = size;
    arena->mapped = true;
    return SL_OK;
}

/* Fault every page in. Huge pages where whole ones fit, so that none rounds the account up behind the plan's back;
 * the rest is small pages. A system that has to make room for huge pages first can take seconds for them:
 * then small ones follow. */
void sl_arena_fault_in(sl_arena *arena) {
    uint8_t *p = arena->base;
    size_t size = arena->bytes;
    size_t whole = size / HUGE_PAGE * HUGE_PAGE;
    double begin = sl_now();
    bool huge = whole && madvise(p, whole, MADV_HUGEPAGE) == 0;
    for (size_t at = 0; at < size; at += SL_PAGE) {
        if (huge && at > 0 && at % HUGE_TRIAL == 0 && at < whole) {
            double now = sl_now();
            if (now - begin > HUGE_TRIAL_SECONDS) {
                (void)madvise(p + at, whole - at, MADV_NOHUGEPAGE);
                huge = false;
            }
            begin = now;
        }
        ((volatile uint8_t *)p)[at] = 0;
    }
}

sl_status sl_arena_map(sl_arena *arena, const char *name, uint64_t bytes, sl_error *err) {
    sl_status st = sl_arena_reserve(arena, name, bytes, err);
    if (!st)
        sl_arena_fault_in(arena);
    return st;
}

void sl_arena_unmap(sl_arena *arena) {
    if (arena->mapped && arena->base)
        (void)munmap(arena->base, arena->bytes);
    memset(arena, 0, sizeof(*arena));
}

void sl_arena_init(sl_arena *arena, const char *name, void *block, size_t bytes) {
    memset(arena, 0, sizeof(*arena));
    arena->base = block;
    arena->bytes = bytes;
    arena->name = name;
}

void *sl_arena_alloc(sl_arena *arena, size_t bytes, size_t align) {
    uintptr_t at = (uintptr_t)arena->base + arena->used;
    size_t pad = (size_t)(-at & (align - 1));
    size_t left = arena->bytes - arena->used;
    if (pad > left || bytes > left - pad)
        return NULL;
    arena->used += pad + bytes;
    arena->used_peak = SL_MAX(arena->used_peak, arena->used);
    return (void *)(at + pad);
}

sl_status sl_arena_full(const sl_arena *arena, size_t bytes, sl_error *err) {
    return sl_fail(err, SL_ERR_MEMORY,
                   "account '%s' holds %zu bytes, %zu are in use and %zu more were asked for",
                   arena->name ? arena->name : "?", arena->bytes, arena->used, bytes);
}
