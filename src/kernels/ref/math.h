/* The scalar functions of the number path as inline code, so that every build of the reference has
 * them with its own instructions. kernels.h declares them for callers; docs/numerics.md states them.
 *
 * Single precision uses fmaf where it is written, double precision only + - * / : IEEE fixes all of
 * them, so the results are the same everywhere. */
#ifndef SL_KERNELS_REF_MATH_H
#define SL_KERNELS_REF_MATH_H

#include <stdint.h>
#include <string.h>

#include "kernels/ref/fma.h"
#include "kernels/ref/widen.h"

static inline double sl__double_of_bits(uint64_t bits) {
    double d;
    memcpy(&d, &bits, sizeof(d));
    return d;
}

static inline uint64_t sl__bits_of_double(double d) {
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return bits;
}

/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves n in the low bits
 * of the sum. 2^n is applied in two halves, so that only the last product can round: results below
 * the normal range are rounded once and e^-104 is +0. NaN goes through both comparisons. */
static inline float ref_expf(float x) {
    const float magic = 0x1.8p23f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float z = sl__fmaf(x, 0x1.715476p+0f, magic);
    const float n = z - magic;
    float r = sl__fmaf(n, -0x1.62e400p-1f, x);
    r = sl__fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.a01a02p-13f;
    p = sl__fmaf(p, r, 0x1.6c16c2p-10f);
    p = sl__fmaf(p, r, 0x1.111112p-7f);
    p = sl__fmaf(p, r, 0x1.555556p-5f);
    p = sl__fmaf(p, r, 0x1.555556p-3f);
    p = sl__fmaf(p, r, 0.5f);
    p = sl__fmaf(p, r * r, r);
    p = p + 1.0f;
    const int32_t exponent = (int32_t)(sl__bits_of_float(z) - 0x4b400000u);
    const int32_t half = exponent >> 1;
    const float a = sl__float_of_bits((uint32_t)(half + 127) << 23);
    const float b = sl__float_of_bits((uint32_t)(exponent - half + 127) << 23);
    return (p * a) * b;
}

static inline float ref_sigmoidf(float x) {
    return 1.0f / (1.0f + ref_expf(-x));
}

static inline float ref_siluf(float x) {
    return x / (1.0f + ref_expf(-x));
}

/* As ref_expf, in double precision: Taylor's series to r^13 leaves 4e-18. */
static inline double ref_exp64(double x) {
    const double magic = 0x1.8p52;
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    const double z = x * 0x1.71547652b82fep+0 + magic;
    const double n = z - magic;
    const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * (r * r) + r;
    p = p + 1.0;
    const int64_t exponent = (int64_t)(sl__bits_of_double(z) - 0x4338000000000000u);
    const int64_t half = exponent >> 1;
    const double a = sl__double_of_bits((uint64_t)(half + 1023) << 52);
    const double b = sl__double_of_bits((uint64_t)(exponent - half + 1023) << 52);
    return (p * a) * b;
}

/* ln x = k ln 2 + ln m, m in [sqrt(1/2), sqrt 2): with f = m - 1 and s = f / (2 + f),
 * ln m = 2 atanh s = f - s (f - R), R = s^2 (2/3 + 2/5 s^2 + ...). */
static inline double ref_log64(double x) {
    int64_t k = 0;
    if (x < 0x1p-1022) { // subnormal: scale into the normal range
        x *= 0x1p54;
        k = -54;
    }
    const uint64_t bits = sl__bits_of_double(x);
    const uint64_t root_half = 0x3fe6a09e667f3bcdu;
    const int64_t shift = (int64_t)(bits - root_half) >> 52;
    const double f = sl__double_of_bits(bits - ((uint64_t)shift << 52)) - 1.0;
    const double n = (double)(k + shift);
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    const double low = n * 0x1.a39ef35793c76p-33 - s * (f - z * p);
    return n * 0x1.62e42feep-1 + (f + low);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + u), u = e^-|x|, and ln(1 + u) = 2 atanh(u / (2 + u)); in double
 * precision, rounded once at the end. s^2 <= 1/9, so the series to s^25 leaves 1e-13 of the result. */
static inline float ref_softplusf(float x) {
    const double wide = (double)x;
    const double u = ref_exp64(wide > 0.0 ? -wide : wide);
    const double s = u / (2.0 + u);
    const double z = s * s;
    double p = 1.0 / 25.0;
    p = p * z + 1.0 / 23.0;
    p = p * z + 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    const double log1p_u = 2.0 * (s + s * (z * p));
    return (float)((wide > 0.0 ? wide : 0.0) + log1p_u);
}

/* Reduce by n = round(x * 2 / pi), pi / 2 = hi + lo with 30 bits in hi: n * hi is exact up to 2^23.
 * Taylor's series on |r| <= pi / 4 in double precision, rounded once at the end. */
static inline void ref_sincosf(float x, float *sin_x, float *cos_x) {
    const double magic = 0x1.8p52;
    const double wide = (double)x;
    const double q = wide * 0x1.45f306dc9c883p-1 + magic;
    const double n = q - magic;
    const double r = (wide - n * 0x1.921fb540p+0) - n * 0x1.10b4611a62633p-30;
    const double z = r * r;
    double s = -1.0 / 1307674368000.0;
    s = s * z + 1.0 / 6227020800.0;
    s = s * z - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = s * z * r + r;
    double c = 1.0 / 20922789888000.0;
    c = c * z - 1.0 / 87178291200.0;
    c = c * z + 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    c = c * z + 1.0;
    const unsigned quadrant = (unsigned)(sl__bits_of_double(q) & 3u);
    const double s_out = quadrant & 1 ? c : s;
    const double c_out = quadrant & 1 ? s : c;
    *sin_x = (float)(quadrant & 2 ? -s_out : s_out);
    *cos_x = (float)((quadrant + 1) & 2 ? -c_out : c_out);
}

#endif
