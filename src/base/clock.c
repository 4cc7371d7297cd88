#define _GNU_SOURCE
#include "base/clock.h"

#include <time.h>

uint64_t sl_clock_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int64_t sl_unix_time(void) {
    return (int64_t)time(NULL);
}
