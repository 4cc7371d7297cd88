/* Sixteen lanes: the vector in which the definitions are written, and what each instruction set has to
 * say about it. An AVX-512 register holds one, AVX2 needs two, NEON four; the files of this folder
 * are one text for all of them.
 *
 * An instruction set's header (x86/lanes_avx2.h, ...) defines the types `lanes` (16 f32) and `words`
 * (16 u32), all functions SL_INLINE, lane i of the result from lane i of the arguments:
 *
 *   l_zero()  l_set1(f)  l_load(p)  l_store(p, v)   no alignment needed
 *   l_load_part(p, n)          the first n lanes from memory, the others +0; touches n floats only
 *   l_store_part(p, v, n)      the first n lanes; touches n floats only
 *   l_first(n, a, b)           the first n lanes of a, the others of b;  0 <= n <= 16
 *   l_add l_sub l_mul l_div(a, b)    l_fma(a, b, c) = fused a*b + c    l_neg(a): the sign flipped
 *   l_max(a, b) = a > b ? a : b      l_min(a, b) = a < b ? a : b       (b where one is NaN)
 *   l_tree(v)                  a_i = a_i + a_{i+d} for d = 8, 4, 2, 1; a_0
 *   l_tree4(out, v)            the same of v[0..3], into out[0..3]
 *   l_widen(p, dtype, at, n)   elements at .. at+n-1 of an F32, F16 or BF16 array, then +0;
 *                              n >= 1
 *   l_exponents(p, n)          2^(u - 127) of the n bytes at p, then +0; touches n bytes only; n >= 1
 *   l_half(w)                  the F16 in the low 16 bits of each word
 *   l_spread(s, group)         lane i: s[8i / group], group 32, 64 or 128; reads s[0..3]
 *   w_set1(u)  w_load(p)  w_and(a, b)  w_add(a, b)  w_sub(a, b)  w_shl(a, n)  w_shr(a, n)  w_sar(a, n)
 *   w_keep_or(a, mask, bits) = (a & mask) | bits
 *   w_bits(lanes)  l_bits(words)     the same 512 bits
 *   w_deal2(p, out)            out[t] lane i = dword 2i + t;  t = 0, 1
 *   w_bytes8(p, stride, out)   out[0] lane i = the first four of the eight bytes at p + i * stride,
 *                              out[1] the last four
 *   w_deal4(p, row_bytes, out) out[t] lane i = dword t of the 16 bytes at p + i * row_bytes;  t = 0..3
 *
 * and L_WIDE, how many vectors of lanes are worth keeping in registers as accumulators. */
#ifndef SL_KERNELS_LANES_LANES_H
#define SL_KERNELS_LANES_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "kernels/kernels.h"
#include "kernels/ref/math.h"

#define SL_INLINE static inline __attribute__((always_inline))
#define SL_UNROLL _Pragma("GCC unroll 16")

#endif
