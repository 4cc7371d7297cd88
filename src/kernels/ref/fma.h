/* Fused multiply-add and square root exactly as IEEE 754 defines them, without a call into libm, whose
 * pages would count against every budget. */
#ifndef SL_KERNELS_REF_FMA_H
#define SL_KERNELS_REF_FMA_H

#include <stdint.h>
#include <string.h>

/* a * b + c with one rounding: the instruction where the file is compiled for machines that have it,
 * arithmetic in double otherwise. */
static inline float sl__fmaf(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(a, b, c);
#else
    /* The product of two floats is exact in double. The sum is rounded to odd: if it is inexact and its
     * last bit is 0, it moves by one unit towards what was lost. With 53 bits for 24, rounding that to
     * float then gives what one rounding of the exact sum gives (Boldo & Melquiond 2008). */
    const double p = (double)a * (double)b;
    const double s = p + (double)c;
    const double from_c = s - p;
    const double lost = (p - (s - from_c)) + ((double)c - from_c); // exact (Knuth's TwoSum)
    uint64_t bits;
    memcpy(&bits, &s, sizeof(bits));
    // Not for sums that are exact, infinite or NaN (lost is 0 or NaN then).
    if ((lost > 0 || lost < 0) && !(bits & 1)) {
        // Away from zero when what was lost has the sum's sign.
        bits += (lost > 0) == (s > 0) ? 1 : UINT64_MAX;
        double odd;
        memcpy(&odd, &bits, sizeof(odd));
        return (float)odd;
    }
    return (float)s;
#endif
}

/* Every machine that we build for has the instruction; the builtin is it in unoptimised builds too. */
static inline float sl__sqrtf(float x) {
    return __builtin_sqrtf(x);
}

#endif
