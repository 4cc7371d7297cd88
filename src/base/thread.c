#define _GNU_SOURCE
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t sl_thread_page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ThreadSanitizer keeps 900 KiB of its own at the top of each stack. */
#if defined(__SANITIZE_THREAD__)
#define TOOL_BYTES SL_MIB
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TOOL_BYTES SL_MIB
#endif
#endif
#ifndef TOOL_BYTES
#define TOOL_BYTES ((uint64_t)0)
#endif

/* What the C library refuses to go below: 16 KiB on x86-64, 128 KiB on arm64. */
static uint64_t usable_bytes(uint64_t stack_bytes) {
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    const uint64_t bytes = SL_MAX(stack_bytes, least > 0 ? (uint64_t)least : 0);
    return SL_ALIGN_UP(bytes + TOOL_BYTES, sl_thread_page_bytes());
}

uint64_t sl_thread_stack_bytes(uint64_t stack_bytes) {
    return usable_bytes(stack_bytes) + sl_thread_page_bytes();
}

static void *trampoline(void *arg) {
    sl_thread *thread = arg;
    (void)pthread_setname_np(pthread_self(), thread->name);
    thread->run(thread->ctx);
    return NULL;
}

/* Created with every signal blocked: the mask is inherited. */
static int create(pthread_t *id, void *stack, size_t stack_bytes, sl_thread *thread) {
    pthread_attr_t attr;
    int errnum = pthread_attr_init(&attr);
    if (errnum)
        return errnum;
    if ((errnum = pthread_attr_setstack(&attr, stack, stack_bytes)) == 0) {
        sigset_t all, before;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        errnum = pthread_create(id, &attr, trampoline, thread);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attr);
    return errnum;
}

sl_status sl_thread_start(sl_thread *thread, const char *name, sl_arena *arena,
                          uint64_t stack_bytes, void (*run)(void *ctx), void *ctx, sl_error *err) {
    size_t page = (size_t)sl_thread_page_bytes();
    size_t bytes = (size_t)usable_bytes(stack_bytes);
    memset(thread, 0, sizeof(*thread));
    uint8_t *guard = sl_arena_alloc(arena, page + bytes, page);
    if (!guard)
        return sl_arena_full(arena, page + bytes, err);
    if (mprotect(guard, page, PROT_NONE) != 0)
        return sl_fail_errno(err, SL_ERR_MEMORY, errno, "guard page of thread '%s'", name);
    thread->run = run;
    thread->ctx = ctx;
    (void)snprintf(thread->name, sizeof(thread->name), "%s", name);
    int errnum = create(&thread->id, guard + page, bytes, thread);
    if (errnum) {
        (void)mprotect(guard, page, PROT_READ | PROT_WRITE);
        return sl_fail_errno(err, SL_ERR_MEMORY, errnum, "starting thread '%s'", name);
    }
    thread->guard = guard;
    return SL_OK;
}

void sl_thread_join(sl_thread *thread) {
    if (!thread->guard)
        return;
    (void)pthread_join(thread->id, NULL);
    (void)mprotect(thread->guard, (size_t)sl_thread_page_bytes(), PROT_READ | PROT_WRITE);
    thread->guard = NULL;
}
