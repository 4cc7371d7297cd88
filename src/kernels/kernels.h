/* The table of kernels: every arithmetic loop of the engine, one entry each.
 *
 * kernels/ref/ fills the whole table with plain C that is written for reading: it is the definition
 * (docs/numerics.md). x86/ and arm/ overwrite entries with faster code that returns the same bits on
 * the same input, which tests/diff holds them to with memcmp.
 *
 * Kernels take plain pointers, sizes and strides, keep no state, allocate nothing and may run on any
 * thread whose floating-point environment is the default (sl_fpenv_check()). NaN payloads and signs are
 * outside the promise; everything else, zeros' signs and subnormals included, is inside. No pointer
 * may be NULL; buffers of floats are 64-byte aligned where it says so. */
#ifndef SL_KERNELS_KERNELS_H
#define SL_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/matrix.h"

/* ---- activations, packed for products -------------------------------------------------------
 * A vector of K inputs is cut into blocks of 128 (the last one padded with +0). Lane i (0..15) of block
 * b owns inputs 128b+8i .. 128b+8i+7. Columns are packed in tiles of up to 4: tile t holds columns
 * 4t..4t+w-1, w = min(4, n-4t), and within it the value of (block b, step j, column c, lane i) is
 *     xp[tile_offset(t) + ((8b + j) * w + c) * 16 + i] = x[column][128b + 8i + j].
 * tile_offset(t) = 4t * blocks * 128 floats. */
#define SL_LANES 16u
#define SL_BLOCK 128u
#define SL_TILE 4u

typedef struct sl_columns {
    uint32_t n;              /* columns */
    uint32_t n_inputs;       /* K */
    uint32_t group;          /* the group that group_sums is for; only affine weights use both */
    const float *xp;         /* [n * blocks * 128], 64-byte aligned, as above */
    const float *group_sums; /* [n][sl_group_stride(K, group)], 64-byte aligned, padded with +0 */
} sl_columns;

static inline uint32_t sl_blocks(uint32_t n_inputs) {
    return (n_inputs + SL_BLOCK - 1) / SL_BLOCK;
}
/* Floats of xp, of lane sums and of group sums for one column. */
static inline size_t sl_pack_floats(uint32_t n_inputs) {
    return (size_t)sl_blocks(n_inputs) * SL_BLOCK;
}
static inline size_t sl_lane_floats(uint32_t n_inputs) {
    return (size_t)sl_blocks(n_inputs) * SL_LANES;
}
static inline uint32_t sl_group_stride(uint32_t n_inputs, uint32_t group) {
    return (n_inputs / group + SL_LANES - 1) / SL_LANES * SL_LANES;
}

/* ---- gated delta rule ------------------------------------------------------------------------
 * State of one value head: S[d_k][d_v], kept in slices of 16 columns: element (i, c) is at
 * S[(c / 16) * d_k * 16 + i * 16 + c % 16]; columns past d_v are zero. */
#define SL_DELTA_SLICE 16u
static inline uint32_t sl_delta_slices(uint32_t d_v) {
    return (d_v + SL_DELTA_SLICE - 1) / SL_DELTA_SLICE;
}
static inline size_t sl_delta_state_floats(uint32_t d_k, uint32_t d_v) {
    return (size_t)sl_delta_slices(d_v) * SL_DELTA_SLICE * d_k;
}

typedef struct sl_delta_args {
    float *state;              /* one head, in and out, 64-byte aligned */
    const float *q, *k;        /* [n_tokens] rows of d_k, q already scaled; strides in floats */
    const float *v;            /* [n_tokens] rows of d_v */
    const float *decay, *beta; /* one value per token: exp(g) and beta */
    float *o;                  /* [n_tokens] rows of d_v */
    size_t q_stride, k_stride, v_stride, o_stride, gate_stride;
    uint32_t n_tokens, d_k, d_v;
    uint32_t slice_begin, slice_end; /* the columns that this call computes */
} sl_delta_args;

/* ---- softmax attention -----------------------------------------------------------------------
 * Queries of consecutive tokens and of the heads that share one key/value head. Each is computed by
 * itself, over positions in blocks of 64 on an absolute grid: its result depends on the positions that
 * it sees and on nothing else in the call. */
#define SL_ATTEND_BLOCK 64u

typedef struct sl_attend_args {
    uint32_t n_tokens, n_heads;
    uint32_t d, d_v; /* of keys and of values, at most 1024 each */
    uint32_t end;    /* token t sees positions before end + t; end >= 1 */
    uint32_t window; /* the last `window` of them; 0: all */
    uint32_t ring;   /* position p is at row p % ring, a multiple of 64; 0: at row p */
    float scale;
    const float *sinks; /* [n_heads] logits that have weight and no value (gpt-oss); NULL: none */
    const float *q;     /* query of (token, head): d floats at both strides */
    const float *k, *v; /* rows of d and d_v; they may be the same memory */
    float *out;         /* d_v floats of (token, head) */
    size_t q_token_stride, q_head_stride, out_token_stride, out_head_stride;
    size_t k_stride, v_stride;
} sl_attend_args;

typedef struct sl_kernels {
    const char *level; /* "ref", "avx2", "avx512", "neon": the highest level in the table */

    /* Pack n columns (column c at x + c * x_stride) for products, and their lane sums
     * [n][blocks * 16]: t = x_0; t = t + x_j over the lane's 8 inputs. xp and lane_sums 64-byte aligned. */
    void (*pack)(const float *x, size_t x_stride, uint32_t n, uint32_t n_inputs, float *xp,
                 float *lane_sums);
    /* Group sums of packed columns, from lane sums, for affine weights of that group. */
    void (*group_sums)(const float *lane_sums, uint32_t n, uint32_t n_inputs, uint32_t group,
                       float *sums);

    /* y[c * y_stride + r] = W x for rows row_begin..row_end-1 and every column; one entry per weight
     * type (NULL where a type is no weight). The bits of a column do not depend on n, on the row
     * range, or on how the work is split. x->n_inputs == w->shape.cols and, for affine weights,
     * x->group == w->shape.group. Reads nothing outside the matrix. */
    void (*product[SL_DTYPE_COUNT])(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                                    const sl_columns *x, float *y, size_t y_stride);
    /* out[cols] = row `row` of a matrix, widened: fmaf(code, scale, bias) for affine weights, code value
     * times scale for MXFP4. */
    void (*row)(const sl_matrix *w, uint32_t row, float *out);

    /* y = x * (1 / sqrt(mean(x^2) + eps)) * w, over n elements. y may be x.
     * Source: Zhang & Sennrich 2019. */
    void (*rms_norm)(float *y, const float *x, const float *w, uint32_t n, float eps);
    /* y = rms_norm(x; w) * silu(z): Gated DeltaNet's output norm (norm first, then gate). */
    void (*rms_norm_gated)(float *y, const float *x, const float *w, const float *z, uint32_t n,
                           float eps);
    /* y = x / sqrt(sum(x^2) + eps) * scale. y may be x. */
    void (*l2_norm)(float *y, const float *x, uint32_t n, float eps, float scale);

    /* Elementwise: y may be any of the other operands, exactly; a partial overlap is not allowed. */
    void (*add)(float *y, const float *x, size_t n);           /* y += x */
    void (*axpy)(float *y, float a, const float *x, size_t n); /* y = fmaf(a, x, y) */
    void (*mul)(float *y, const float *x, size_t n);           /* y *= x */
    void (*clamp)(float *y, float limit, size_t n);            /* to [-limit, limit]; NaN stays */
    void (*exp)(float *y, const float *x, size_t n);           /* e^x */
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n); /* silu(gate) * up */
    void (*sigmoid_mul)(float *y, const float *x, const float *gate,
                        size_t n); /* x * sigmoid(gate) */
    /* g = min(gate, limit), u = up clamped to [-limit, limit]: y = (g * sigmoid(alpha * g)) * (u + 1).
     * Source: gpt-oss. */
    void (*swiglu_clamped)(float *y, const float *gate, const float *up, size_t n, float limit,
                           float alpha);

    /* Half-split rotary embedding of one head, in place: for i < n_rot/2
     *   x[i] = x[i]*cos[i] - x[i+h]*sin[i];  x[i+h] = x[i+h]*cos[i] + x[i]*sin[i],  h = n_rot/2,
     * as t = x[i+h]*sin[i]; fmaf(x[i], cos[i], -t) and t = x[i]*sin[i]; fmaf(x[i+h], cos[i], t).
     * Elements from n_rot on stay. Source: RoFormer (Su et al. 2021). */
    void (*rope_half)(float *x, const float *cos, const float *sin, uint32_t n_rot);
    /* The same rotation of the pairs (x[2i], x[2i+1]). */
    void (*rope_pairs)(float *x, const float *cos, const float *sin, uint32_t n_rot);

    /* Causal depthwise convolution and SiLU over channels begin..end-1:
     *   y_t[c] = silu(sum_j taps[j][c] * u_{t-(width-1)+j}[c]), u = (tail, x), j ascending.
     * taps [width][n_channels]; tail [width-1][n_channels] holds the last inputs and is updated;
     * x [n_tokens][x_stride] and y [n_tokens][y_stride] do not overlap. width in 2..8. */
    void (*conv_silu)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                      const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                      uint32_t begin, uint32_t end);
    /* The same without the SiLU. */
    void (*conv)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                 const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                 uint32_t begin, uint32_t end);
    /* decay = exp(-exp(a_log) * softplus(a + dt_bias)), beta = sigmoid(b), n value heads. */
    void (*delta_gates)(float *decay, float *beta, const float *a, const float *b,
                        const float *a_log, const float *dt_bias, uint32_t n);
    void (*delta)(const sl_delta_args *args);
    void (*attend)(const sl_attend_args *args);
} sl_kernels;

typedef enum sl_cpu_level {
    SL_CPU_REF = 0,
    SL_CPU_AVX2 = 1,   /* AVX2 and FMA */
    SL_CPU_AVX512 = 2, /* F, BW, DQ, VL */
    SL_CPU_NEON = 3,
} sl_cpu_level;

/* The highest level that this machine can run. */
sl_cpu_level sl_cpu_level_best(void);
bool sl_cpu_level_runs(sl_cpu_level level);
const char *sl_cpu_level_name(sl_cpu_level level);
bool sl_cpu_level_from_name(const char *name, sl_cpu_level *out);

/* Fill the table for a level that runs here (levels below it included). The result is constant. */
void sl_kernels_init(sl_kernels *k, sl_cpu_level level);

/* Scalar functions of the number path (docs/numerics.md gives sequence and error bound). Same bits on
 * every machine; the vector entries above agree with them. */
float sl_expf(float x);
float sl_softplusf(float x); /* ln(1 + e^x) */
float sl_sigmoidf(float x);
void sl_sincosf(float x, float *sin_x, float *cos_x); /* |x| <= 2^22 */
double sl_exp64(double x);
double sl_log64(double x); /* x > 0 */

/* Set round-to-nearest with subnormals kept, in the calling thread; returns what was set before, for
 * sl_fpenv_restore(). */
uint64_t sl_fpenv_set(void);
void sl_fpenv_restore(uint64_t before);
/* True when the calling thread computes as the definitions say. */
bool sl_fpenv_check(void);

#endif
