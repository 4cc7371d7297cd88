/* Which kernels this machine can run, and the table that they fill. Nothing here is kept: every
 * question is asked of the processor again. */
#include <string.h>

#include "base/attr.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#elif defined(__aarch64__)
#include "kernels/arm/arm.h"
#endif

static const char *const level_names[] = {
    [SL_CPU_REF] = "ref",
    [SL_CPU_AVX2] = "avx2",
    [SL_CPU_AVX512] = "avx512",
    [SL_CPU_NEON] = "neon",
};

#if defined(__x86_64__)

/* __builtin_cpu_supports asks XCR0 too: a level counts only where the system saves its registers. */
bool sl_cpu_level_runs(sl_cpu_level level) {
    __builtin_cpu_init();
    switch (level) {
    case SL_CPU_REF:
        return true;
    case SL_CPU_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case SL_CPU_AVX512:
        return sl_cpu_level_runs(SL_CPU_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    case SL_CPU_NEON:
        return false;
    }
    return false;
}

void sl_kernels_init(sl_kernels *k, sl_cpu_level level) {
    if (sl_cpu_level_runs(SL_CPU_AVX2)) {
        sl__ref_fma_table(k);
    } else {
        sl__ref_table(k);
    }
    if (level == SL_CPU_AVX2 || level == SL_CPU_AVX512) {
        sl__avx2_table(k);
    }
    if (level == SL_CPU_AVX512) {
        sl__avx512_table(k);
    }
}

#elif defined(__aarch64__)

bool sl_cpu_level_runs(sl_cpu_level level) {
    return level == SL_CPU_REF || level == SL_CPU_NEON;
}

void sl_kernels_init(sl_kernels *k, sl_cpu_level level) {
    sl__ref_table(k);
    if (level == SL_CPU_NEON) {
        sl__neon_table(k);
    }
}

#else

bool sl_cpu_level_runs(sl_cpu_level level) {
    return level == SL_CPU_REF;
}

void sl_kernels_init(sl_kernels *k, sl_cpu_level level) {
    (void)level;
    sl__ref_table(k);
}

#endif

sl_cpu_level sl_cpu_level_best(void) {
    for (int level = (int)SL_COUNT(level_names) - 1; level > SL_CPU_REF; level--) {
        if (sl_cpu_level_runs((sl_cpu_level)level)) {
            return (sl_cpu_level)level;
        }
    }
    return SL_CPU_REF;
}

const char *sl_cpu_level_name(sl_cpu_level level) {
    return level_names[level];
}

bool sl_cpu_level_from_name(const char *name, sl_cpu_level *out) {
    for (size_t level = 0; level < SL_COUNT(level_names); level++) {
        if (strcmp(name, level_names[level]) == 0) {
            *out = (sl_cpu_level)level;
            return true;
        }
    }
    return false;
}
