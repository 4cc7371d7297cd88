/* Compiler attributes behind names, and the few macros that every floor uses. */
#ifndef SL_BASE_ATTR_H
#define SL_BASE_ATTR_H

#include <stddef.h>
#include <stdint.h>

#define SL_MUST_USE __attribute__((warn_unused_result))
#define SL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define SL_NORETURN __attribute__((noreturn))
#define SL_UNUSED __attribute__((unused))
#define SL_ALIGNED(n) __attribute__((aligned(n)))
#define SL_NOINLINE __attribute__((noinline))
#define SL_LIKELY(x) __builtin_expect(!!(x), 1)
#define SL_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define SL_ALIGN_UP(x, a) (((x) + ((a)-1)) / (a) * (a))
#define SL_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SL_MAX(a, b) ((a) > (b) ? (a) : (b))

#define SL_KIB ((uint64_t)1 << 10)
#define SL_MIB ((uint64_t)1 << 20)
#define SL_GIB ((uint64_t)1 << 30)

/* Unit of direct I/O, of records in the store and of slots in memory. */
#define SL_PAGE ((uint64_t)4096)

#endif
