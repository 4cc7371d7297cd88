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
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return sl_fail_errno(err, SL_ERR_MEMORY, errno, "account '%s': mapping %zu bytes", name,
                             size);
    // Huge pages would round the account up behind the plan's back.
    (void)madvise(p, size, MADV_NOHUGEPAGE);
    arena->base = p;
    arena->bytes = size;
    arena->mapped = true;
    return SL_OK;
}

sl_status sl_arena_map(sl_arena *arena, const char *name, uint64_t bytes, sl_error *err) {
    sl_status st = sl_arena_reserve(arena, name, bytes, err);
    for (size_t at = 0; !st && at < arena->bytes; at += SL_PAGE)
        ((volatile uint8_t *)arena->base)[at] = 0;
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
