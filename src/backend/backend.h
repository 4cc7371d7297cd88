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

/* Feed-forward of several experts for one token, which is packed: out[i] [d_model] =
 * down_i(act(gate_i x) up_i x), biases where there are any. Experts of a batch have the same shapes. The bits
 * are those of the experts one by one. */
#define SL_EXPERT_BATCH_MAX 32u
typedef struct sl_expert_weights {
    sl_matrix gate, up, down; /* [d_expert][d_model] twice, [d_model][d_expert] */
    const float *gate_bias, *up_bias, *down_bias; /* [rows]; all NULL: none */
} sl_expert_weights;
typedef struct sl_expert_batch {
    uint32_t n; /* 1..SL_EXPERT_BATCH_MAX */
    const sl_expert_weights *experts;
    float *const *out;
    float *gate, *up; /* [n][d_expert] scratch */
    bool clamped;     /* swiglu_clamped with these: */
    float limit, alpha;
} sl_expert_batch;

/* A stack of matrices, one per head, each times that head's vector of every token:
 *   y[t][h][r] = W[h * rows_per_head + r] x[t][h],  the bits of `product` with that head's rows alone.
 * w may be a strip of the stack, which begins and ends anywhere: only its rows' results are written. */
#define SL_HEAD_INPUTS_MAX 1024u
typedef struct sl_head_product {
    sl_matrix w; /* rows first_row .. of the stack; at most SL_HEAD_INPUTS_MAX columns */
    uint32_t first_row, rows_per_head;
    uint32_t n_tokens;
    const float *x; /* x[t][h] at t * x_token_stride + h * x_head_stride */
    size_t x_token_stride, x_head_stride;
    float *y; /* likewise; y_head_stride >= rows_per_head */
    size_t y_token_stride, y_head_stride;
} sl_head_product;

/* Rows per key/value head of the cache of a layer with a sliding window: enough for a ring, unless all
 * n_ctx positions take no more. window 0: no window. Pure; plan, allocation and step agree by it. What a
 * ring holds are the last positions: a sequence can go back by rows - window positions and no more. */
static inline uint32_t sl_window_ring(uint32_t window, uint32_t n_ctx) {
    uint64_t block = SL_ATTEND_BLOCK;
    uint64_t rows = ((uint64_t)window + block - 1 + block - 1) / block * block;
    return window == 0 || rows >= n_ctx ? n_ctx : (uint32_t)rows;
}

/* The core of a softmax attention layer, between its projections (biases are added already). In this
 * order: norm, clamp, rotate queries and keys, clamp values; write the cache; attend; gate. */
typedef struct sl_attention_step {
    uint32_t n_tokens, first_position;
    uint32_t n_heads, n_kv_heads, d_head, n_rot;
    float scale, norm_eps;
    bool gated;                   /* q holds, per head, d_head queries and then d_head gates */
    const float *q_norm, *k_norm; /* [d_head], or NULL: no norm */
    bool norm_all_heads;          /* q_norm [n_heads * d_head], k_norm [n_kv_heads * d_head]: one
                                     norm over all heads of a token (OLMoE); not with gated */
    float clip;                   /* queries, keys, values to [-clip, clip]; 0: as they are */
    bool rope_pairs;              /* rotate pairs (2i, 2i + 1) instead of (i, i + n_rot / 2) */
    const float *cos, *sin;       /* [n_tokens][n_rot / 2] */
    const float *sinks;           /* [n_heads] logits without a value, or NULL */
    uint32_t window;              /* positions visible to a query, its own included; 0: all */
    float *q;                     /* [T][n_heads][d_head * (gated ? 2 : 1)], changed in place */
    float *k, *v;                 /* [T][n_kv_heads][d_head], changed in place */
    float *k_cache, *v_cache;     /* [n_kv_heads][rows][d_head] of this layer */
    uint32_t n_ctx;
    uint32_t ring; /* rows of the caches, sl_window_ring(window, n_ctx): a ring if less than n_ctx;
                      0: n_ctx */
    float *out;    /* [T][n_heads][d_head] */
} sl_attention_step;

/* The core of multi-head latent attention in its absorbed form (DeepSeek-V2): norm the latent, rotate
 * queries and key, write the cache, attend. Queries enter as embed_q q_nope and the result leaves as
 * sum p c, so head_product goes before (into query) and after (unembed_out, from out). */
typedef struct sl_mla_step {
    uint32_t n_tokens, first_position;
    uint32_t n_heads, d_latent, d_nope, d_rope; /* d_latent + d_rope <= 1024 */
    uint32_t n_ctx;
    float scale, norm_eps;
    bool rope_half;           /* rotate pairs (i, i + d_rope / 2) instead of (2i, 2i + 1) */
    const float *latent_norm; /* [d_latent] */
    const float *cos, *sin;   /* [T][d_rope / 2] */
    const float *q;           /* [T][n_heads][d_nope + d_rope]: only the rope part is read */
    const float *kv;          /* [T][d_latent + d_rope]: latent, rope key */
    float *query;             /* [T][n_heads][d_latent + d_rope]: the latent part is the caller's,
                                 the rope part is written here */
    float *cache;             /* [n_ctx][d_latent + d_rope]: normed latent, rotated rope key */
    float *out;               /* [T][n_heads][d_latent] */
} sl_mla_step;

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

/* The core of a gated short convolution (LFM2), between its projections:
 *   u = B * x;  c = causal depthwise convolution of u (+ bias);  out = C * c. */
typedef struct sl_short_conv_step {
    uint32_t n_tokens, n_channels, width; /* width in 2..8 */
    const float *taps;                    /* [width][n_channels] */
    const float *bias;                    /* [n_channels], or NULL */
    float *bcx;                           /* [T][3 * n_channels]: B, C, x; B becomes u */
    float *tail;                          /* [width - 1][n_channels], the last u, in and out */
    float *out;                           /* [T][n_channels] */
} sl_short_conv_step;

typedef struct sl_backend_ops {
    const char *name;
    /* y[t] = RMS norm of x[t] with weight w[d]; y may be x. */
    void (*norm)(sl_backend *be, float *y, const float *x, const float *w, uint32_t n_tokens,
                 uint32_t d, float eps);
    void (*add)(sl_backend *be, float *y, const float *x, size_t n);
    void (*silu_mul)(sl_backend *be, float *y, const float *gate, const float *up, size_t n);
    /* y[t][i] += bias[i] for rows of n. */
    void (*add_rows)(sl_backend *be, float *y, const float *bias, uint32_t n_tokens, uint32_t n);
    /* g = min(gate, limit), u = up clamped to [-limit, limit]: g sigmoid(alpha g) (u + 1). */
    void (*swiglu_clamped)(sl_backend *be, float *y, const float *gate, const float *up, size_t n,
                           float limit, float alpha);
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
    /* x holds one column and is overwritten: its buffers have room for n columns of d_expert too. */
    void (*experts)(sl_backend *be, sl_packed *x, const sl_expert_batch *batch);
    void (*head_product)(sl_backend *be, const sl_head_product *product);
    void (*attention)(sl_backend *be, const sl_attention_step *step);
    void (*mla)(sl_backend *be, const sl_mla_step *step);
    void (*short_conv)(sl_backend *be, const sl_short_conv_step *step);
    void (*delta)(sl_backend *be, const sl_delta_step *step);
} sl_backend_ops;

struct sl_backend {
    const sl_backend_ops *ops;
};

#endif
