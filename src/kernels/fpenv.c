/* The floating-point environment of the calling thread. A library that was linked with -ffast-math
 * may have set flush-to-zero for the whole process; the number path needs IEEE's default. */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

/* MXCSR: all exceptions masked, round to nearest, neither FTZ nor DAZ; the sticky flags stay. */
uint64_t sl_fpenv_set(void) {
    const uint32_t before = _mm_getcsr();
    _mm_setcsr((before & 0x3fu) | 0x1f80u);
    return before;
}

void sl_fpenv_restore(uint64_t before) {
    _mm_setcsr((uint32_t)before);
}

#elif defined(__aarch64__)

/* FPCR: clear RMode, FZ, FZ16, the trap enables, and FIZ and AH where the processor has them. */
uint64_t sl_fpenv_set(void) {
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    const uint64_t fpcr = before & ~((uint64_t)3 << 22 | (uint64_t)1 << 24 | (uint64_t)1 << 19 |
                                     (uint64_t)0x9f00 | 3u);
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
    return before;
}

void sl_fpenv_restore(uint64_t before) {
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}

#else
#include <fenv.h>

uint64_t sl_fpenv_set(void) {
    const int before = fegetround();
    fesetround(FE_TONEAREST);
    return (uint64_t)before;
}

void sl_fpenv_restore(uint64_t before) {
    fesetround((int)before);
}

#endif

/* Ask by computing, so that the answer is about results and not about one register's bits. */
bool sl_fpenv_check(void) {
    volatile float one = 1.0f;
    volatile float quarter_ulp = 0x1p-25f;
    volatile float most_of_ulp = 0x1.8p-24f;
    volatile float smallest_normal = 0x1p-126f;
    volatile float half = 0.5f;
    volatile float subnormal = 0x1p-130f;
    volatile float large = 0x1p+100f;
    const bool nearest = one + quarter_ulp == one && -one - quarter_ulp == -one &&
                         one + most_of_ulp == 0x1.000002p+0f;
    const bool keeps_results = smallest_normal * half == 0x1p-127f;
    const bool keeps_inputs = subnormal * large == 0x1p-30f;
    return nearest && keeps_results && keeps_inputs;
}
