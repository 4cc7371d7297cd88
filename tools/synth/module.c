/* What a tensor of each role is filled with, so that activations keep their size: projections give numbers of
 * variance 1 for inputs of variance 1, and what is added to the residual stream has unit energy in the slot
 * that its layer writes and a thousandth of it elsewhere. */
#include <math.h>
#include <string.h>

#include "checkpoint/quantize.h"
#include "plan_internal.h"

#define SILU_UP_RMS 0.597      // rms of silu(a) * b for a, b of variance 1; and of silu(a)
#define CLAMPED_RMS 0.95       // the same for the clamped kind
#define WRITE_RMS 0.7071       // half of a slot's energy each for mixer and feed-forward
#define ATTENTION_RMS 0.6      // of the mean over positions of values of variance 1
#define SHARPNESS 1.5          // of queries and keys each: softmax over scores of this, squared
#define SHARED_GATE_SQUARE 0.3 // mean of sigmoid(a)^2

static double clamp_width(const sl_model *m) {
    return m->moe.activation == SL_ACTIVATION_SWIGLU_CLAMPED ? CLAMPED_RMS : SILU_UP_RMS;
}

// Sum of the squares of a token's expert weights.
static double weights_square(const sl_model *m) {
    double k = m->moe.top_k, square = m->moe.score == SL_ROUTER_SIGMOID ? 1 / k : 2 / (k + 1);
    if (!m->moe.renorm)
        square *= 0.4;
    return square * (double)m->moe.route_scale * (double)m->moe.route_scale;
}

// Rms of a feed-forward layer's output for down projections of n inputs that keep the size.
static double feed_forward_rms(const sl_model *m) {
    double shared = m->moe.d_shared == 0 ? 0 : m->moe.shared_gate ? SHARED_GATE_SQUARE : 1;
    double a = clamp_width(m);
    return sqrt(a * a * weights_square(m) + SILU_UP_RMS * SILU_UP_RMS * shared);
}

/* What a projection's random weights are multiplied with, beside 1 / sqrt(inputs). */
static double gain_of(const sl_model *m, sl_role role) {
    switch (role) {
    case SL_ROLE_ATTN_Q:
    case SL_ROLE_ATTN_K:
        return m->attn.qk_norm == SL_QK_NORM_NONE ? SHARPNESS : 1;
    case SL_ROLE_ATTN_O:
        return WRITE_RMS / (ATTENTION_RMS * (m->attn.gated ? sqrt(SHARED_GATE_SQUARE) : 1));
    case SL_ROLE_MLA_O:
        return WRITE_RMS / ATTENTION_RMS;
    case SL_ROLE_DELTA_OUT:
        return WRITE_RMS / SILU_UP_RMS;
    case SL_ROLE_CONV_OUT:
        return WRITE_RMS;
    case SL_ROLE_DENSE_DOWN_PROJ:
        return WRITE_RMS / SILU_UP_RMS;
    case SL_ROLE_SHARED_DOWN_PROJ:
    case SL_ROLE_EXPERT_DOWN_PROJ:
        return WRITE_RMS / feed_forward_rms(m);
    default:
        return 1;
    }
}

// How many numbers one output sums: the key half of a latent projection is stored on its side.
static double inputs_of(const sl_model *m, const sl_tensor_spec *spec) {
    return spec->role == SL_ROLE_MLA_EMBED_Q ? m->mla.d_latent : spec->cols;
}

static bool writes(sl_role role) {
    return role == SL_ROLE_ATTN_O || role == SL_ROLE_MLA_O || role == SL_ROLE_DELTA_OUT ||
           role == SL_ROLE_CONV_OUT || role == SL_ROLE_DENSE_DOWN_PROJ ||
           role == SL_ROLE_SHARED_DOWN_PROJ || role == SL_ROLE_EXPERT_DOWN_PROJ;
}

static bool is_feed_forward(sl_role role) {
    return role == SL_ROLE_DENSE_DOWN_PROJ || role == SL_ROLE_SHARED_DOWN_PROJ ||
           role == SL_ROLE_EXPERT_DOWN_PROJ;
}

/* Numbers that are not products' weights: centre and half width. */
static void vector_range(const sl_model *m, sl_role role, float *centre, float *half) {
    *centre = 0;
    *half = 0.05f; // biases
    switch (role) {
    case SL_ROLE_NORM_FINAL:
    case SL_ROLE_NORM_MIXER:
    case SL_ROLE_NORM_FFN:
    case SL_ROLE_DELTA_NORM:
    case SL_ROLE_MLA_Q_A_NORM:
    case SL_ROLE_MLA_KV_A_NORM:
        *centre = 1;
        *half = 0.1f;
        break;
    case SL_ROLE_ATTN_Q_NORM:
    case SL_ROLE_ATTN_K_NORM:
        *centre = (float)SHARPNESS;
        *half = 0.2f;
        break;
    case SL_ROLE_ATTN_SINKS:
        *half = 1;
        break;
    case SL_ROLE_DELTA_A_LOG:
        *centre = 0.25f;
        *half = 1.25f;
        break;
    case SL_ROLE_DELTA_DT_BIAS:
        *centre = -3;
        *half = 2;
        break;
    case SL_ROLE_DELTA_CONV:
        *half = (float)sqrt(3.0 / m->delta.conv_width);
        break;
    case SL_ROLE_CONV_TAPS:
        *half = (float)sqrt(3.0 / m->conv.width);
        break;
    case SL_ROLE_ROUTER_SELECTION_BIAS:
    case SL_ROLE_EXPERT_DOWN_BIAS:
        *half = 0.02f;
        break;
    default:
        break;
    }
}

static bool is_f32(sl_role role) {
    return role == SL_ROLE_DELTA_A_LOG || role == SL_ROLE_ROUTER_SELECTION_BIAS;
}

static void affine_level(float scale, unsigned bits, synth_scales *out, uint32_t i) {
    float bias;
    sl_narrow(&scale, SL_DTYPE_BF16, 1, &out->scale[i]);
    sl_widen(&out->scale[i], SL_DTYPE_BF16, 1, &scale);
    bias = scale * -((float)((1u << bits) - 1) / 2);
    sl_narrow(&bias, SL_DTYPE_BF16, 1, &out->bias[i]);
}

/* Scales around `std` divided by that of uniform codes, of either sign, and their biases. */
static void affine_scales(double std, unsigned bits, synth_scales *out) {
    double n = (double)(1u << bits), base = std / sqrt((n * n - 1) / 12);
    for (uint32_t i = 0; i < SYNTH_LEVELS; i++)
        affine_level((float)(base * (96 + i % 64) / 128) * (i < 64 ? 1.0f : -1.0f), bits, out, i);
}

/* Two neighbouring powers of two, mixed to the right mean square. Uniform codes have a mean square of 68.5 / 8. */
static void mxfp4_scales(double std, synth_scales *out) {
    double scale = std / sqrt(68.5 / 8);
    int exponent;
    double fraction =
        2 * frexp(scale, &exponent); // scale = fraction * 2^(exponent - 1), 1 <= fraction < 2
    out->exponent = (uint8_t)(127 + exponent - 1);
    out->higher = (uint8_t)((fraction * fraction - 1) / 3 * 255);
}

static void scales_of(double std, sl_dtype dtype, synth_scales *out) {
    if (dtype == SL_DTYPE_MXFP4)
        mxfp4_scales(std, out);
    else
        affine_scales(std, sl_dtype_bits(dtype), out);
}

static sl_dtype type_of(const synth_options *o, const sl_tensor_spec *spec, bool mxfp4,
                        uint32_t *group) {
    sl_dtype dtype = SL_DTYPE_BF16;
    bool eight = spec->precision == SL_PRECISION_EIGHT_BITS;
    uint32_t bits = eight ? 8 : o->bits;
    *group = 0;
    if (mxfp4 && spec->cols % 32 == 0) {
        *group = 32;
        return SL_DTYPE_MXFP4;
    }
    if (spec->precision == SL_PRECISION_DENSE || spec->cols % (eight ? 64 : o->group))
        return SL_DTYPE_BF16;
    *group = eight ? 64 : o->group;
    return sl_dtype_quantized(bits, &dtype) ? dtype : SL_DTYPE_BF16;
}

/* ---- what is planted ------------------------------------------------------------------------------ */

#define SQRT3 1.7320508
#define EMBED_SLOT 0.05 // of the token's own noise, in channels that layers write

/* Weights per channel: the common part, the topic's, and the standard deviation of the rest. */
typedef struct weights {
    double common, topic, noise;
} weights;

static weights embed_weights(const synth_plan *p, uint32_t j) {
    const synth_gains *g = &p->options.gains;
    double signal = SL_MAX(g->common + g->topic, 1e-9);
    switch (p->channels.of[j]) {
    case SYNTH_CHANNEL_SIGNAL:
        return (weights){sqrt(g->common / signal) * p->channels.signs[j], sqrt(g->topic / signal),
                         0};
    case SYNTH_CHANNEL_TOKEN:
        return (weights){0, 0, 1};
    default:
        return (weights){0, 0, EMBED_SLOT};
    }
}

/* Tokens of the state's topic are likelier, so that an answer stays with it. */
static weights head_weights(const synth_plan *p, uint32_t j) {
    const synth_channels *c = &p->channels;
    bool signal = c->of[j] == SYNTH_CHANNEL_SIGNAL;
    return (weights){0, signal ? SYNTH_HEAD_TOPIC / c->n_signal : 0,
                     SYNTH_HEAD_NOISE / sqrt(c->d_model)};
}

/* With a tied head a token's own logit is the product of its embedding with what is left of it in the state,
 * which would drown all others: the final norm weighs the channels as the rows of a head of its own would. */
static weights final_norm_weights(const synth_plan *p, uint32_t j) {
    const synth_channels *c = &p->channels;
    const synth_gains *g = &p->options.gains;
    double topic = g->topic / SL_MAX(g->common + g->topic, 1e-9);
    switch (c->of[j]) {
    case SYNTH_CHANNEL_SIGNAL:
        return (weights){SYNTH_HEAD_TOPIC / (c->n_signal * SL_MAX(topic, 0.1)), 0, 0};
    case SYNTH_CHANNEL_TOKEN:
        return (weights){SYNTH_HEAD_NOISE / c->n_token, 0, 0};
    default:
        return (weights){
            SYNTH_HEAD_NOISE / (EMBED_SLOT * sqrt(c->d_model - c->n_signal - c->n_token)), 0, 0};
    }
}

static weights weights_of(const synth_plan *p, sl_role role, const float *router, uint32_t j) {
    return role == SL_ROLE_EMBED        ? embed_weights(p, j)
           : role == SL_ROLE_HEAD       ? head_weights(p, j)
           : role == SL_ROLE_NORM_FINAL ? final_norm_weights(p, j)
                                        : (weights){0, 0, (double)router[j]};
}

/* The middle of a code's range to its end; dense weights are laid out as codes of 8 bits would be. */
static double half_range(sl_dtype dtype) {
    unsigned bits = sl_dtype_is_quantized(dtype) ? sl_dtype_bits(dtype) : 8;
    return (double)((1u << bits) - 1) / 2;
}

static sl_status plant(synth_plan *p, const sl_tensor_spec *spec, synth_module *out,
                       sl_error *err) {
    uint32_t d = p->model.d_model;
    size_t bytes = 4 * (size_t)d * sizeof(float);
    int32_t *fixed = sl_arena_alloc(&p->arena, bytes, 64);
    if (!fixed)
        return sl_arena_full(&p->arena, bytes, err);
    float *router = (float *)(void *)(fixed + 3 * (size_t)d);
    synth_router_gains(&p->model, &p->options.gains, &p->channels, spec->layer, router);
    double most = 0;
    for (uint32_t j = 0; j < d; j++) {
        weights w = weights_of(p, spec->role, router, j);
        most = SL_MAX(most, fabs(w.common) + w.topic + w.noise * SQRT3);
    }
    double codes = half_range(out->dtype) / most;
    for (uint32_t j = 0; j < d; j++) {
        weights w = weights_of(p, spec->role, router, j);
        fixed[j] = (int32_t)(w.common * codes * 65536);
        fixed[d + j] = (int32_t)(w.topic * codes * 65536);
        fixed[2 * (size_t)d + j] = (int32_t)(w.noise * codes * SQRT3 * 256);
    }
    out->planted = (synth_planted){fixed, fixed + d, fixed + 2 * (size_t)d, (float)(1 / codes)};
    for (uint32_t i = 0; i < SYNTH_LEVELS && sl_dtype_is_quantized(out->dtype); i++)
        affine_level(i < SYNTH_LEVELS / 2 ? out->planted.unit : -out->planted.unit,
                     sl_dtype_bits(out->dtype), &out->on, i);
    return SL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

sl_status synth_module_fill(synth_plan *plan, const sl_tensor_spec *spec, bool mxfp4,
                            synth_module *out, sl_error *err) {
    const sl_model *m = &plan->model;
    if (spec->role == SL_ROLE_NORM_FINAL && m->tied_head) {
        out->dtype = SL_DTYPE_BF16;
        out->fill = SYNTH_PLANTED;
        return plant(plan, spec, out, err);
    }
    if (spec->kind != SL_TENSOR_MATRIX && spec->kind != SL_TENSOR_EXPERT) {
        out->dtype = is_f32(spec->role) ? SL_DTYPE_F32 : SL_DTYPE_BF16;
        vector_range(m, spec->role, &out->centre, &out->half);
        return SL_OK;
    }
    out->dtype = type_of(&plan->options, spec, mxfp4, &out->group);
    if (spec->role == SL_ROLE_EMBED || spec->role == SL_ROLE_HEAD || spec->role == SL_ROLE_ROUTER) {
        out->fill = SYNTH_PLANTED;
        return plant(plan, spec, out, err);
    }
    double std = gain_of(m, spec->role) / sqrt(inputs_of(m, spec));
    out->half = (float)(std * SQRT3);
    out->writes = writes(spec->role);
    out->slot = (spec->layer + is_feed_forward(spec->role)) % plan->channels.n_slots;
    if (sl_dtype_is_quantized(out->dtype)) {
        scales_of(std, out->dtype, &out->on);
        scales_of(std * (double)SYNTH_LEAK, out->dtype, &out->off);
    }
    return SL_OK;
}
