/* Memory: the only place that asks the system for it.
 *
 * Two kinds. *Heap* blocks (sl_mem_*) are for work outside an opened engine: conversion, inspection,
 * opening itself. *Arenas* hold everything an opened engine uses: each account of the plan is one
 * arena, reserved and faulted in at open, which never grows.
 *
 * The seal: code that serves an opened engine runs between sl_seal_enter() and sl_seal_leave(). A
 * heap block or a mapping asked for inside is a broken promise; builds with SL_SEAL_TRAP stop there
 * (abort), other builds count it. The seal is per thread. */
#ifndef SL_BASE_MEM_H
#define SL_BASE_MEM_H

#include <stdbool.h>

#include "base/attr.h"
#include "base/status.h"

/* Heap. Blocks are aligned to 16 bytes. NULL when the system refuses; bytes == 0 gives a valid
 * pointer. Any thread. sl_mem_alloc does not clear, sl_mem_calloc does (count * size is checked). */
SL_MUST_USE void *sl_mem_alloc(size_t bytes);
SL_MUST_USE void *sl_mem_calloc(size_t count, size_t size);
SL_MUST_USE void *sl_mem_realloc(void *block, size_t bytes);
void sl_mem_free(void *block);
/* Give free heap back to the system, as far as it can be. */
void sl_mem_trim(void);
/* One heap for all threads, from now on: the C library otherwise makes more of them, each of which takes memory of its own. */
void sl_mem_one_heap(void);

void sl_seal_enter(void);
void sl_seal_leave(void);
/* Allocations that were made inside a seal since the process started. Tests hold this to 0. */
uint64_t sl_seal_violations(void);

/* A bump allocator over one block. Not safe for two threads at once. */
typedef struct sl_arena {
    uint8_t *base;
    size_t bytes; /* capacity */
    size_t used;  /* bytes handed out, alignment included */
    size_t used_peak;
    const char *name; /* the account; static or outliving the arena */
    bool mapped;      /* base came from sl_arena_map */
} sl_arena;

/* Map bytes (rounded up to 4 KiB) of zeroed memory and fault every page in, as huge pages where whole ones fit and
 * the system has them at hand.
 * Errors: SL_ERR_MEMORY names the account and the bytes. Release with sl_arena_unmap. */
SL_MUST_USE sl_status sl_arena_map(sl_arena *arena, const char *name, uint64_t bytes,
                                   sl_error *err);
/* The same without faulting anything in: for work whose need is far below its bound, or until
 * sl_arena_fault_in(). */
SL_MUST_USE sl_status sl_arena_reserve(sl_arena *arena, const char *name, uint64_t bytes,
                                       sl_error *err);
/* Fault in a reserved arena that nobody uses yet, as sl_arena_map() does. Any thread. */
void sl_arena_fault_in(sl_arena *arena);
/* Accepts a zeroed struct. */
void sl_arena_unmap(sl_arena *arena);

/* Use a block that the caller owns and keeps alive. */
void sl_arena_init(sl_arena *arena, const char *name, void *block, size_t bytes);

/* Hand out bytes, aligned to align (a power of two). NULL when the arena is full: see
 * sl_arena_full(). The memory of a freshly mapped arena is zero; reused memory is not cleared. */
SL_MUST_USE void *sl_arena_alloc(sl_arena *arena, size_t bytes, size_t align);

/* SL_ERR_MEMORY with a message that names the account, its size and the request. */
sl_status sl_arena_full(const sl_arena *arena, size_t bytes, sl_error *err);

/* Give back everything handed out since the mark (a former value of arena->used). */
static inline size_t sl_arena_mark(const sl_arena *arena) {
    return arena->used;
}
static inline void sl_arena_reset(sl_arena *arena, size_t mark) {
    arena->used = mark;
}

#endif
