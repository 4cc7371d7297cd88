#define _GNU_SOURCE
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t sl_clock_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sl_sleep_until(double when) {
    struct timespec t = {.tv_sec = (time_t)when};
    t.tv_nsec = (long)(1e9 * (when - (double)t.tv_sec));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

int64_t sl_unix_time(void) {
    return (int64_t)time(NULL);
}
