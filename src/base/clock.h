/* Time that only moves forward. */
#ifndef SL_BASE_CLOCK_H
#define SL_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point in the past (CLOCK_MONOTONIC). No system call. Any thread. */
uint64_t sl_clock_ns(void);
/* Sleep until sl_now() says `when`, whatever signals come. Any thread. */
void sl_sleep_until(double when);
/* Seconds since 1970, as the machine's clock has them. Any thread. */
int64_t sl_unix_time(void);
/* Monotonic time in seconds. */
static inline double sl_now(void) {
    return 1e-9 * (double)sl_clock_ns();
}

#endif
