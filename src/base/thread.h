/* Threads whose stacks the plan has counted: they lie in an arena that is faulted in, with a guard
 * page below. All signals are blocked in them, so that a handler of the host program never runs on
 * a small stack. Starting one costs a few hundred bytes of heap (the C library's) and what the
 * kernel takes: SL_THREAD_KERNEL_BYTES. */
#ifndef SL_BASE_THREAD_H
#define SL_BASE_THREAD_H

#include <pthread.h>

#include "base/mem.h"
#include "base/status.h"

/* What the kernel is charged with for one more thread: its stack there, the task, two mappings
 * split by the guard page. 25 KiB were measured on x86-64 (Linux 6.18), where most of it is the
 * stack. */
#define SL_THREAD_KERNEL_BYTES (32 * SL_KIB)

typedef struct sl_thread {
    pthread_t id;
    void *guard; /* NULL: not running */
    void (*run)(void *ctx);
    void *ctx;
    char name[16];
} sl_thread;

/* Bytes one stack takes of an arena, its guard page included, when the arena hands it out at a page
 * boundary: whoever allocates other things before it adds a page. Depends on the kernel's page
 * size, and on the smallest stack that the C library accepts: a smaller stack_bytes is raised to it. */
uint64_t sl_thread_stack_bytes(uint64_t stack_bytes);
uint64_t sl_thread_page_bytes(void);

/* Start run(ctx) on a stack from the arena. *thread stays where it is until sl_thread_join. name:
 * at most 15 bytes are kept. Errors: SL_ERR_MEMORY. Any thread. */
SL_MUST_USE sl_status sl_thread_start(sl_thread *thread, const char *name, sl_arena *arena,
                                      uint64_t stack_bytes, void (*run)(void *ctx), void *ctx,
                                      sl_error *err);
/* Wait until run has returned. The stack may then be reused. Accepts a zeroed struct. */
void sl_thread_join(sl_thread *thread);

#endif
