#define _GNU_SOURCE
#include "helpers/held.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

#define WAIT_SECONDS 5.0
/* What malloc may keep: less than the smallest engine has mapped. */
#define HEAP_BYTES (1ul << 20)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_BYTES 0 // a sanitizer's own grow
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_BYTES 0
#endif
#endif
#ifndef COUNTS_BYTES
#define COUNTS_BYTES 1
#endif

typedef struct held {
    unsigned n_fds, n_threads;
    unsigned long bytes;
} held;

static held before;

static unsigned count(const char *folder) {
    unsigned n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static held look(void) {
    held h = {.n_fds = count("/proc/self/fd"), .n_threads = count("/proc/self/task")};
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &h.bytes), 1);
    (void)fclose(f);
    h.bytes *= (unsigned long)sysconf(_SC_PAGESIZE);
    return h;
}

static void *nothing(void *ctx) {
    return ctx;
}

int test_held_note(void **state) {
    pthread_t thread;
    (void)state;
    // The C library keeps what is freed, and the stack of a thread: not more and more of it.
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    before = look();
    return 0;
}

int test_held_compare(void **state) {
    (void)state;
    double end = sl_now() + WAIT_SECONDS;
    held now = look();
    while (now.n_threads > before.n_threads && sl_now() < end) {
        usleep(1000);
        now = look();
    }
    if (now.n_fds == before.n_fds && now.n_threads <= before.n_threads &&
        (!COUNTS_BYTES || now.bytes <= before.bytes + HEAP_BYTES))
        return 0;
    print_error("before: %u descriptors, %u threads, %lu bytes; after: %u, %u, %lu\n", before.n_fds,
                before.n_threads, before.bytes, now.n_fds, now.n_threads, now.bytes);
    return 1;
}
