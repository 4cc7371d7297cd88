/* The back end: one table of operations at the size of a layer step. The CPU fills it with kernels and
 * a thread pool (cpu/); a GPU fills the same table later and is held to the same bits.
 *
 * Pointers are to memory of the back end (for the CPU: any memory). An operation returns when its
 * results are there. Operations of one back end are called by one thread at a time. None can fail and
 * none allocates. T is a count of tokens ("n_tokens"), rows are dense unless a stride is given. */
#ifndef SL_BACKEND_BACKEND_H
#define SL_BACKEND_BACKEND_H

#include "kernels/kernels.h"

typedef struct sl_backend sl_backend;

/* Activations packed for products, with buffers that the caller owns (64-byte aligned, sized for the
 * largest use): xp sl_pack_floats, lane_sums sl_lane_floats, group_sums sl_group_stride(., 32), each
 * times the number of columns. */
typedef struct sl_packed {
    float *xp, *lane_sums, *group_sums;
    uint32_t n, n_inputs;
    uint32_t group; /* that group_sums holds now; 0: none */
} sl_packed;

/* One product of a list over the same packed activations: y[c * y_stride + r] = w x. */
typedef struct sl_product {
    sl_matrix w;
    float *y;
    size_t y_stride;
} sl_product;

/* The core of a softmax attention layer, between its projections. */
typedef struct sl_attention_step {
    uint32_t n_tokens, first_position;
    uint32_t n_heads, n_kv_heads, d_head, n_rot;
    float scale, norm_eps;
    bool gated;                   /* q holds, per head, d_head queries and then d_head gates */
    const float *q_norm, *k_norm; /* [d_head], or NULL: no norm */
    const float *cos, *sin;       /* [n_tokens][n_rot / 2] */
    float *q;                     /* [T][n_heads][d_head * (gated ? 2 : 1)], changed in place */
    float *k, *v;                 /* [T][n_kv_heads][d_head]; k is changed in place */
    float *k_cache, *v_cache;     /* [n_kv_heads][n_ctx][d_head] of this layer */
    uint32_t n_ctx;
    float *out; /* [T][n_heads][d_head] */
} sl_attention_step;

/* The core of a gated delta rule layer, between its projections. */
typedef struct sl_delta_step {
    uint32_t n_tokens;
    uint32_t n_k_heads, n_v_heads, d_k, d_v, conv_width;
    float norm_eps;
    const float *taps;            /* [conv_width][channels] */
    const float *a_log, *dt_bias; /* [n_v_heads] */
    const float *norm;            /* [d_v] */
    const float *qkv;             /* [T][channels]: q heads, k heads, v heads */
    const float *z;               /* [T][n_v_heads][d_v] */
    const float *a, *b;           /* [T][n_v_heads] */
    float *mixed;                 /* [T][channels], scratch */
    float *decay, *beta;          /* [T][n_v_heads], scratch */
    float *tail;                  /* [conv_width - 1][channels], in and out */
    float *state;                 /* [n_v_heads][sl_delta_state_floats], in and out */
    float *out;                   /* [T][n_v_heads][d_v] */
} sl_delta_step;

typedef struct sl_backend_ops {
    const char *name;
    /* y[t] = RMS norm of x[t] with weight w[d]; y may be x. */
    void (*norm)(sl_backend *be, float *y, const float *x, const float *w, uint32_t n_tokens,
                 uint32_t d, float eps);
    void (*add)(sl_backend *be, float *y, const float *x, size_t n);
    void (*silu_mul)(sl_backend *be, float *y, const float *gate, const float *up, size_t n);
    /* y[rows[i]] = fmaf(a[i], x[i], y[rows[i]]) over rows of d; rows are distinct; NULL: i itself. */
    void (*scatter_add)(sl_backend *be, float *y, const float *x, const float *a,
                        const uint32_t *rows, uint32_t n, uint32_t d);
    void (*sigmoid)(sl_backend *be, float *y, const float *x, size_t n);
    void (*exp)(sl_backend *be, float *y, const float *x, size_t n);
    /* One row of a matrix, widened. */
    void (*row)(sl_backend *be, const sl_matrix *w, uint32_t row, float *out);
    /* p's buffers are filled; x column c is at x + c * x_stride. */
    void (*pack)(sl_backend *be, sl_packed *p, const float *x, size_t x_stride, uint32_t n,
                 uint32_t n_inputs);
    void (*product)(sl_backend *be, sl_packed *p, const sl_product *list, uint32_t n);
    void (*attention)(sl_backend *be, const sl_attention_step *step);
    void (*delta)(sl_backend *be, const sl_delta_step *step);
} sl_backend_ops;

struct sl_backend {
    const sl_backend_ops *ops;
};

#endif
