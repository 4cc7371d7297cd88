/* What the kernel tests share: checks, seeded data (ordinary and wild), buffers between guards.
 * No test library is used, so that these programs also build for an emulated machine that has none. */
#ifndef SL_TESTS_KERNELS_FIXTURE_H
#define SL_TESTS_KERNELS_FIXTURE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- checks ---- */

static unsigned checks_failed;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition) && checks_failed++ < 20) {                                                \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

/* ---- numbers (splitmix64) ---- */

static uint64_t random_state;

static inline uint64_t random_u64(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* One of 0 .. n-1. */
static inline uint32_t random_below(uint32_t n) {
    return (uint32_t)((random_u64() >> 32) * n >> 32);
}

static inline float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint32_t bits_of_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return bits;
}

/* ---- kinds of data ---- */

typedef enum data_kind {
    DATA_ORDINARY,  /* about -3 .. 3 */
    DATA_SUBNORMAL, /* below 2^-126 */
    DATA_SMALL,     /* products of two underflow or come out subnormal */
    DATA_HUGE,      /* up to 2^127: sums overflow here and there */
    DATA_ZEROS,     /* both zeros, and a few ordinary numbers */
    DATA_WIDE,      /* exponents of -60 .. 60 */
    DATA_SPECIALS,  /* ordinary with a few infinities and NaNs */
    DATA_KINDS
} data_kind;

static const char *const data_names[DATA_KINDS] = {"ordinary", "subnormal", "small",   "huge",
                                                   "zeros",    "wide",      "specials"};

/* 2^exponent * [1, 2), either sign. */
static inline float random_scaled(int exponent) {
    const uint64_t r = random_u64();
    const uint32_t sign = (uint32_t)(r >> 63) << 31;
    return float_of_bits(sign | (uint32_t)(exponent + 127) << 23 | (uint32_t)(r & 0x7fffff));
}

static inline float random_float(data_kind kind) {
    const uint64_t r = random_u64();
    switch (kind) {
    case DATA_SUBNORMAL:
        return float_of_bits((uint32_t)(r & 0x807fffffu) >> (r >> 60 & 3 ? 0 : 12));
    case DATA_SMALL:
        return random_scaled(-75 + (int)random_below(16));
    case DATA_HUGE:
        return random_scaled(100 + (int)random_below(28));
    case DATA_ZEROS:
        return random_below(8) == 0 ? random_scaled(0) : float_of_bits((uint32_t)(r >> 63) << 31);
    case DATA_WIDE:
        return random_scaled(-60 + (int)random_below(121));
    case DATA_SPECIALS:
        if (random_below(400) == 0) {
            static const uint32_t special[4] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u};
            return float_of_bits(special[r & 3]);
        }
        return random_scaled(-(int)random_below(4));
    case DATA_ORDINARY:
    case DATA_KINDS:
        break;
    }
    return (float)((double)(int64_t)r * 0x1p-63 * 3.0);
}

static inline void random_floats(float *p, size_t n, data_kind kind) {
    for (size_t i = 0; i < n; i++) {
        p[i] = random_float(kind);
    }
}

/* A second operand: mostly ordinary, so that results are neither all zero nor all NaN. */
static inline data_kind random_partner(data_kind kind) {
    return random_below(4) == 0 ? kind : DATA_ORDINARY;
}

static inline uint16_t random_half(data_kind kind) {
    const uint16_t h = (uint16_t)random_u64();
    const uint16_t sign_fraction = h & 0x83ffu;
    if (kind == DATA_SPECIALS && random_below(400) == 0) {
        return (uint16_t)(h | 0x7c00u);
    }
    if (kind == DATA_SUBNORMAL) {
        return sign_fraction;
    }
    if (kind == DATA_ZEROS) {
        return h & 0x8000u;
    }
    const uint32_t exponent = kind == DATA_ORDINARY ? 12 + random_below(5) : random_below(31);
    return (uint16_t)(sign_fraction | exponent << 10);
}

/* ---- buffers ----
 * Each ends right before an unreadable page, and the bytes before it are watched. All of them live
 * until guards_release(). */

typedef struct guard {
    unsigned char *map;
    size_t map_bytes;
    unsigned char *data;
} guard;

static guard guards[256];
static size_t n_guards;

#define GUARD_PAGE ((size_t)65536) /* a multiple of every page size */
#define GUARD_FILL 0xa5

static inline void *guarded(size_t bytes) {
    const size_t body = (bytes + GUARD_PAGE - 1) / GUARD_PAGE * GUARD_PAGE + GUARD_PAGE;
    unsigned char *map =
        mmap(NULL, body + GUARD_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || n_guards == sizeof(guards) / sizeof(guards[0]) ||
        mprotect(map + body, GUARD_PAGE, PROT_NONE) != 0) {
        printf("cannot map %zu bytes\n", bytes);
        exit(1);
    }
    unsigned char *data = map + body - bytes;
    memset(data - 256, GUARD_FILL, 256 + bytes);
    guards[n_guards++] = (guard){.map = map, .map_bytes = body + GUARD_PAGE, .data = data};
    return data;
}

static inline float *guarded_floats(size_t n) {
    return guarded(n * sizeof(float));
}

static inline float *guarded_copy(const float *p, size_t n) {
    return memcpy(guarded(n * sizeof(float)), p, n * sizeof(float));
}

static inline void guards_release(void) {
    while (n_guards > 0) {
        const guard g = guards[--n_guards];
        for (size_t i = 1; i <= 256; i++) {
            CHECK(g.data[-(ptrdiff_t)i] == GUARD_FILL, "wrote %zu bytes before a buffer", i);
        }
        munmap(g.map, g.map_bytes);
    }
}

/* ---- comparing ---- */

/* What results were made of: a test whose results are all zero or NaN shows nothing. */
typedef struct tally {
    uint64_t n, n_finite;
} tally;

/* Equal in bits, every NaN alike. Returns the index of the first difference, n if there is none. */
static inline size_t first_difference(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (bits_of_float(a[i]) != bits_of_float(b[i]) && !(isnan(a[i]) && isnan(b[i]))) {
            return i;
        }
    }
    return n;
}

static inline void tally_add(tally *t, const float *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        t->n++;
        t->n_finite += isfinite(p[i]) && p[i] != 0.0f;
    }
}

#endif
