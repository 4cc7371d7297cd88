/* Elementwise kernels, norms and rotary embedding: whole vectors, then the part that is left. */
#ifndef SL_KERNELS_LANES_ELEMENTWISE_H
#define SL_KERNELS_LANES_ELEMENTWISE_H

/* Run `body` over 0 .. n-1 with LOAD and STORE of whole vectors, then once with those of the rest. */
#define EACH_VECTOR(n, body)                                                                       \
    size_t i = 0;                                                                                  \
    for (; i + SL_LANES <= (n); i += SL_LANES) {                                                   \
        body(l_load, l_store)                                                                      \
    }                                                                                              \
    const uint32_t rest = (uint32_t)((n)-i);                                                       \
    if (rest > 0) {                                                                                \
        body(LOAD_REST, STORE_REST)                                                                \
    }
#define LOAD_REST(p) l_load_part(p, rest)
#define STORE_REST(p, v) l_store_part(p, v, rest)

static void lanes_add(float *y, const float *x, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_add(LOAD(y + i), LOAD(x + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_axpy(float *y, float a, const float *x, size_t n) {
    const lanes factor = l_set1(a);
#define BODY(LOAD, STORE) STORE(y + i, l_fma(factor, LOAD(x + i), LOAD(y + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_mul(float *y, const float *x, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_mul(LOAD(y + i), LOAD(x + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

SL_INLINE lanes l_clamp(lanes x, float limit) {
    return l_min(l_set1(limit), l_max(l_set1(-limit), x));
}

static void lanes_clamp(float *y, float limit, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_clamp(LOAD(y + i), limit));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_exp(float *y, const float *x, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_exp(LOAD(x + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_silu_mul(float *y, const float *gate, const float *up, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_mul(l_silu(LOAD(gate + i)), LOAD(up + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_sigmoid_mul(float *y, const float *x, const float *gate, size_t n) {
#define BODY(LOAD, STORE) STORE(y + i, l_mul(LOAD(x + i), l_sigmoid(LOAD(gate + i))));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_swiglu_clamped(float *y, const float *gate, const float *up, size_t n,
                                 float limit, float alpha) {
#define BODY(LOAD, STORE)                                                                          \
    const lanes g = l_min(l_set1(limit), LOAD(gate + i));                                          \
    const lanes u = l_clamp(LOAD(up + i), limit);                                                  \
    STORE(y + i, l_mul(l_mul(g, l_sigmoid(l_mul(l_set1(alpha), g))), l_add(u, l_set1(1.0f))));
    EACH_VECTOR(n, BODY)
#undef BODY
}

/* ---- norms ---- */

SL_INLINE float lanes_sum_of_squares(const float *x, uint32_t n) {
    lanes a = l_zero();
    uint32_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) {
        const lanes v = l_load(x + i);
        a = l_fma(v, v, a);
    }
    if (i < n) { // a sum of squares is never -0, so lanes without an element may gain +0
        const lanes v = l_load_part(x + i, n - i);
        a = l_fma(v, v, a);
    }
    return l_tree(a);
}

SL_INLINE lanes lanes_rms_factor(const float *x, uint32_t n, float eps) {
    const float mean = lanes_sum_of_squares(x, n) / (float)n;
    return l_set1(1.0f / sl__sqrtf(mean + eps));
}

static void lanes_rms_norm(float *y, const float *x, const float *w, uint32_t n, float eps) {
    const lanes r = lanes_rms_factor(x, n, eps);
#define BODY(LOAD, STORE) STORE(y + i, l_mul(l_mul(LOAD(x + i), r), LOAD(w + i)));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_rms_norm_gated(float *y, const float *x, const float *w, const float *z,
                                 uint32_t n, float eps) {
    const lanes r = lanes_rms_factor(x, n, eps);
#define BODY(LOAD, STORE)                                                                          \
    STORE(y + i, l_mul(l_mul(l_mul(LOAD(x + i), r), LOAD(w + i)), l_silu(LOAD(z + i))));
    EACH_VECTOR(n, BODY)
#undef BODY
}

static void lanes_l2_norm(float *y, const float *x, uint32_t n, float eps, float scale) {
    const lanes r = l_set1(1.0f / sl__sqrtf(lanes_sum_of_squares(x, n) + eps));
    const lanes s = l_set1(scale);
#define BODY(LOAD, STORE) STORE(y + i, l_mul(l_mul(LOAD(x + i), r), s));
    EACH_VECTOR(n, BODY)
#undef BODY
}

/* ---- rotary embedding ---- */

static void lanes_rope_half(float *x, const float *cos, const float *sin, uint32_t n_rot) {
    const uint32_t h = n_rot / 2;
#define BODY(LOAD, STORE)                                                                          \
    const lanes u = LOAD(x + i);                                                                   \
    const lanes v = LOAD(x + h + i);                                                               \
    const lanes c = LOAD(cos + i);                                                                 \
    const lanes s = LOAD(sin + i);                                                                 \
    STORE(x + i, l_fma(u, c, l_neg(l_mul(v, s))));                                                 \
    STORE(x + h + i, l_fma(v, c, l_mul(u, s)));
    EACH_VECTOR(h, BODY)
#undef BODY
}

#undef EACH_VECTOR
#undef LOAD_REST
#undef STORE_REST

#endif
