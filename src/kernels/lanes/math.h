/* e^x and what is made of it, lane by lane: the sequences of ref/math.h. */
#ifndef SL_KERNELS_LANES_MATH_H
#define SL_KERNELS_LANES_MATH_H

SL_INLINE lanes l_exp(lanes x) {
    const lanes magic = l_set1(0x1.8p23f);
    x = l_max(l_set1(-104.0f), x);
    x = l_min(l_set1(89.0f), x);
    const lanes z = l_fma(x, l_set1(0x1.715476p+0f), magic);
    const lanes n = l_sub(z, magic);
    lanes r = l_fma(n, l_set1(-0x1.62e400p-1f), x);
    r = l_fma(n, l_set1(-0x1.7f7d1cp-20f), r);
    lanes p = l_set1(0x1.a01a02p-13f);
    p = l_fma(p, r, l_set1(0x1.6c16c2p-10f));
    p = l_fma(p, r, l_set1(0x1.111112p-7f));
    p = l_fma(p, r, l_set1(0x1.555556p-5f));
    p = l_fma(p, r, l_set1(0x1.555556p-3f));
    p = l_fma(p, r, l_set1(0.5f));
    p = l_fma(p, l_mul(r, r), r);
    p = l_add(p, l_set1(1.0f));
    const words exponent = w_sub(w_bits(z), w_set1(0x4b400000u));
    const words half = w_sar(exponent, 1);
    const words a = w_shl(w_add(half, w_set1(127)), 23);
    const words b = w_shl(w_add(w_sub(exponent, half), w_set1(127)), 23);
    return l_mul(l_mul(p, l_bits(a)), l_bits(b));
}

SL_INLINE lanes l_sigmoid(lanes x) {
    const lanes one = l_set1(1.0f);
    return l_div(one, l_add(one, l_exp(l_neg(x))));
}

SL_INLINE lanes l_silu(lanes x) {
    return l_div(x, l_add(l_set1(1.0f), l_exp(l_neg(x))));
}

#endif
