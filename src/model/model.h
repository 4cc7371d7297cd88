/* The descriptor: everything the engine must know of a model, read from its config.json.
 *
 * A family is a row of data (families.c): which config keys and tensor names it uses, which layer kinds
 * occur, how the router scores. The descriptor is that row joined with the numbers of one config. No
 * code asks for a family by name; code asks what kind a layer is. */
#ifndef SL_MODEL_MODEL_H
#define SL_MODEL_MODEL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/status.h"

#define SL_LAYERS_MAX 256u
#define SL_ROT_MAX 256u /* rotated elements of a head */
#define SL_STOP_TOKENS_MAX 16u
#define SL_TOP_K_MAX 32u  /* experts picked per token */
#define SL_GROUPS_MAX 64u /* of experts, in the router */
#define SL_EXPERTS_MAX 4096u

/* How a layer mixes tokens, and what it does to each. */
typedef enum sl_mixer {
    SL_MIXER_ATTENTION, /* grouped-query softmax attention, with or without a window */
    SL_MIXER_MLA,       /* multi-head latent attention */
    SL_MIXER_DELTA,     /* gated delta rule */
    SL_MIXER_CONV,      /* short convolution */
    SL_MIXER_COUNT
} sl_mixer;
typedef enum sl_ffn { SL_FFN_MOE, SL_FFN_DENSE } sl_ffn;

typedef enum sl_qk_norm {
    SL_QK_NORM_NONE,
    SL_QK_NORM_HEAD, /* each head by itself, weight [d_head] */
    SL_QK_NORM_ALL,  /* all heads of a token together, weight [heads * d_head] */
} sl_qk_norm;

typedef enum sl_router_score { SL_ROUTER_SOFTMAX, SL_ROUTER_SIGMOID } sl_router_score;
typedef enum sl_activation {
    SL_ACTIVATION_SWIGLU,         /* silu(gate) * up */
    SL_ACTIVATION_SWIGLU_CLAMPED, /* gate * sigmoid(alpha * gate) * (up + 1), both clamped before */
} sl_activation;

typedef struct sl_family sl_family;

typedef struct sl_model {
    const sl_family *family;
    uint32_t n_layers, d_model, n_vocab, n_ctx_max;
    float norm_eps;
    uint8_t mixer[SL_LAYERS_MAX];    /* sl_mixer */
    uint8_t ffn[SL_LAYERS_MAX];      /* sl_ffn */
    uint8_t windowed[SL_LAYERS_MAX]; /* attention sees attn.window keys; 0: all */

    struct {
        uint32_t n_heads, n_kv_heads, d_head; /* MLA uses n_heads alone */
        float scale;                          /* of q . k; of MLA's scores too */
        bool gated;         /* q_proj rows are, per head, [query | gate]; out * sigmoid(gate) */
        sl_qk_norm qk_norm; /* RMS norm of queries and keys, before the rotation */
        bool qkv_bias, out_bias; /* of the projections; MLA's: q_a and kv_a, and o */
        bool sinks;              /* a logit per head that takes part in the softmax alone */
        uint32_t window;         /* keys that a query of a windowed layer sees, its own included */
        float clip;              /* q, k, v are clamped to +-clip after the norms; 0: not */
    } attn;

    struct {
        uint32_t d_q_latent;          /* 0: queries are projected from h directly */
        uint32_t d_latent;            /* what the cache holds of a token, beside the rope key */
        uint32_t d_nope, d_rope, d_v; /* per head */
        float norm_eps;               /* of both latents */
    } mla;

    struct {
        uint32_t n_rot;                 /* first elements of a head that rotate; even */
        float inv_freq[SL_ROT_MAX / 2]; /* n_rot / 2 are used */
        float cos_sin_scale;            /* YaRN's attention factor; 1 without */
        bool pairs; /* elements (2i, 2i+1) rotate together, else (i, i + n_rot/2) */
    } rope;

    struct {
        uint32_t n_k_heads, n_v_heads, d_k, d_v, conv_width;
    } delta;

    struct {
        uint32_t width;
        bool bias; /* of the convolution and of both projections */
    } conv;

    struct {
        uint32_t n_experts, top_k, d_expert;
        sl_router_score score;
        bool router_bias;               /* added to the router's logits */
        bool selection_bias;            /* added to the scores that choose, not to the weights */
        uint32_t n_groups, groups_kept; /* 1, 1: no groups */
        bool renorm; /* weights of the picks are divided by their sum + renorm_eps */
        float renorm_eps;
        float route_scale;
        uint32_t d_shared; /* width of the shared expert; 0: none */
        bool shared_gate;  /* sigmoid of a linear of one row */
        bool expert_bias;  /* of every expert matrix */
        sl_activation activation;
        float swiglu_limit, swiglu_alpha;
    } moe;
    uint32_t d_dense; /* width of dense layers; 0: there are none */

    bool tied_head;
    /* Parts that the config speaks of and that are not used. */
    uint32_t n_mtp_layers; /* multi-token prediction */
    bool vision;
    uint32_t stop_tokens[SL_STOP_TOKENS_MAX];
    uint32_t n_stop_tokens;
} sl_model;

/* Read a config.json (HF or MLX spelling; text keys at top level or under text_config; null counts as
 * absent). generation_config may be NULL; it adds stop tokens.
 * notes, which may be NULL, receives one line per key that was left out of account and cannot matter.
 * Errors: SL_ERR_UNSUPPORTED names the field, what it asks for and what is supported: also a key that is
 * not known and is set to something; SL_ERR_CORRUPT names a missing or impossible value. Everything is
 * checked: a descriptor that this returns has dimensions whose byte sizes fit 64 bits by far (each at
 * most 2^24). Pure. */
SL_MUST_USE sl_status sl_model_from_config(const sl_json *config, const sl_json *generation_config,
                                           sl_model *out, sl_buf *notes, sl_error *err);

const char *sl_model_family_name(const sl_model *model);
/* Whether the token ends an answer. */
bool sl_model_is_stop_token(const sl_model *model, uint32_t token);

/* Channels of the delta rule's convolution: 2 * n_k_heads * d_k + n_v_heads * d_v. */
uint32_t sl_model_conv_channels(const sl_model *model);
/* How many layers there are of a kind. */
uint32_t sl_model_mixer_count(const sl_model *model, sl_mixer mixer);
uint32_t sl_model_ffn_count(const sl_model *model, sl_ffn ffn);
uint32_t sl_model_windowed_count(const sl_model *model);
/* Widest of the feed-forward layers: experts, shared, dense. */
uint32_t sl_model_d_inner(const sl_model *model);

/* ---- tensors -------------------------------------------------------------------------------- */

typedef enum sl_role {
    SL_ROLE_EMBED,      /* [n_vocab][d_model] */
    SL_ROLE_NORM_FINAL, /* [d_model] */
    SL_ROLE_HEAD,       /* [n_vocab][d_model]; tied: a copy of the embedding */
    SL_ROLE_NORM_MIXER, /* per layer from here on: [d_model] */
    SL_ROLE_NORM_FFN,
    SL_ROLE_ATTN_Q, /* [n_heads * d_head * (gated ? 2 : 1)][d_model] */
    SL_ROLE_ATTN_K, /* [n_kv_heads * d_head][d_model] */
    SL_ROLE_ATTN_V,
    SL_ROLE_ATTN_O,      /* [d_model][n_heads * d_head] */
    SL_ROLE_ATTN_Q_BIAS, /* [rows of the matrix], as all biases */
    SL_ROLE_ATTN_K_BIAS,
    SL_ROLE_ATTN_V_BIAS,
    SL_ROLE_ATTN_O_BIAS,
    SL_ROLE_ATTN_Q_NORM, /* [d_head], or [heads * d_head] */
    SL_ROLE_ATTN_K_NORM,
    SL_ROLE_ATTN_SINKS, /* [n_heads] */
    SL_ROLE_MLA_Q,      /* [n_heads * (d_nope + d_rope)][d_q_latent, or d_model without] */
    SL_ROLE_MLA_Q_A,    /* [d_q_latent][d_model] */
    SL_ROLE_MLA_Q_A_BIAS,
    SL_ROLE_MLA_Q_A_NORM, /* [d_q_latent] */
    SL_ROLE_MLA_KV_A,     /* [d_latent + d_rope][d_model] */
    SL_ROLE_MLA_KV_A_BIAS,
    SL_ROLE_MLA_KV_A_NORM, /* [d_latent] */
    SL_ROLE_MLA_EMBED_Q,   /* [n_heads * d_latent][d_nope]: a query head into latent space */
    SL_ROLE_MLA_UNEMBED,   /* [n_heads * d_v][d_latent]: a latent sum to a head's values */
    SL_ROLE_MLA_O,         /* [d_model][n_heads * d_v] */
    SL_ROLE_MLA_O_BIAS,
    SL_ROLE_DELTA_QKV, /* [conv channels][d_model]: all q heads, all k heads, all v heads */
    SL_ROLE_DELTA_Z,   /* [n_v_heads * d_v][d_model] */
    SL_ROLE_DELTA_A,   /* [n_v_heads][d_model] */
    SL_ROLE_DELTA_B,
    SL_ROLE_DELTA_CONV,  /* taps, stored as [conv_width][conv channels] */
    SL_ROLE_DELTA_A_LOG, /* [n_v_heads] */
    SL_ROLE_DELTA_DT_BIAS,
    SL_ROLE_DELTA_NORM, /* [d_v] */
    SL_ROLE_DELTA_OUT,  /* [d_model][n_v_heads * d_v] */
    SL_ROLE_CONV_IN,    /* [3 * d_model][d_model]: B, C, x */
    SL_ROLE_CONV_IN_BIAS,
    SL_ROLE_CONV_TAPS, /* stored as [width][d_model] */
    SL_ROLE_CONV_BIAS, /* [d_model] */
    SL_ROLE_CONV_OUT,  /* [d_model][d_model] */
    SL_ROLE_CONV_OUT_BIAS,
    SL_ROLE_DENSE_GATE_PROJ, /* [d_dense][d_model] */
    SL_ROLE_DENSE_UP_PROJ,
    SL_ROLE_DENSE_DOWN_PROJ,       /* [d_model][d_dense] */
    SL_ROLE_ROUTER,                /* [n_experts][d_model] */
    SL_ROLE_ROUTER_BIAS,           /* [n_experts] */
    SL_ROLE_ROUTER_SELECTION_BIAS, /* [n_experts] */
    SL_ROLE_SHARED_GATE,           /* [1][d_model]: the scalar gate of the shared expert */
    SL_ROLE_SHARED_GATE_PROJ,      /* [d_shared][d_model] */
    SL_ROLE_SHARED_UP_PROJ,
    SL_ROLE_SHARED_DOWN_PROJ, /* [d_model][d_shared] */
    SL_ROLE_EXPERT_GATE_PROJ, /* [d_expert][d_model], one per expert */
    SL_ROLE_EXPERT_UP_PROJ,
    SL_ROLE_EXPERT_DOWN_PROJ, /* [d_model][d_expert] */
    SL_ROLE_EXPERT_GATE_BIAS,
    SL_ROLE_EXPERT_UP_BIAS,
    SL_ROLE_EXPERT_DOWN_BIAS,
    SL_ROLE_COUNT
} sl_role;

typedef enum sl_tensor_kind {
    SL_TENSOR_MATRIX,        /* a product's weight: keeps its type, may be quantized */
    SL_TENSOR_VECTOR,        /* kept as f32 [1][cols] */
    SL_TENSOR_CONV,          /* kept as f32 [rows = width][cols = channels] */
    SL_TENSOR_EXPERT,        /* a matrix of every expert; lives in the expert files */
    SL_TENSOR_EXPERT_VECTOR, /* f32 [1][cols], one per expert; lives there too */
} sl_tensor_kind;

/* Precision of a matrix when a dense checkpoint is quantized, as MLX's converter decides it. */
typedef enum sl_tensor_precision {
    SL_PRECISION_ASKED,
    SL_PRECISION_EIGHT_BITS, /* 8 bits, group 64, whatever was asked */
    SL_PRECISION_DENSE,      /* not quantized */
} sl_tensor_precision;

typedef struct sl_tensor_spec {
    sl_role role;
    sl_tensor_kind kind;
    uint32_t layer;      /* 0 for tensors of the whole model */
    uint32_t rows, cols; /* of one matrix */
    bool zero_centred;   /* HF files hold w, the engine wants 1 + w; MLX files hold 1 + w */
    sl_tensor_precision precision;
} sl_tensor_spec;

/* The tensors of a model, in the order in which a token uses them: the embedding, then per layer, then final
 * norm and head. n = sl_model_tensors(model); spec i by sl_model_tensor(). Experts are listed once per
 * layer and projection. Pure. */
uint32_t sl_model_tensors(const sl_model *model);
void sl_model_tensor(const sl_model *model, uint32_t index, sl_tensor_spec *out);
/* The short name of a role in manifests: "attn_q", "router", ... */
const char *sl_role_name(sl_role role);
sl_tensor_kind sl_role_kind(sl_role role);
static inline bool sl_kind_is_expert(sl_tensor_kind kind) {
    return kind == SL_TENSOR_EXPERT || kind == SL_TENSOR_EXPERT_VECTOR;
}

/* ---- where a tensor may stand in a checkpoint ------------------------------------------------- */

/* Prefixes that stand before a text tensor's name in checkpoints of this family, longest first,
 * NULL-terminated: "language_model.model.", "model.language_model.", "model.". The head has its own.
 * And prefixes of tensors that are known and not used (vision, MTP), NULL-terminated. */
const char *const *sl_model_name_prefixes(const sl_model *model);
const char *const *sl_model_head_prefixes(const sl_model *model);
const char *const *sl_model_unused_prefixes(const sl_model *model);

typedef enum sl_place_suffix {
    SL_SUFFIX_WEIGHT, /* ".weight"; quantized: with ".scales", ".biases" or ".weight_scale_inv" beside */
    SL_SUFFIX_NONE,   /* the name is complete */
    SL_SUFFIX_BLOCKS, /* "_blocks" and "_scales": MXFP4 as Hugging Face files hold it */
} sl_place_suffix;

/* `count` groups of `rows` rows each, the first at `first`, `stride` rows apart. */
typedef struct sl_row_run {
    uint32_t first, rows, stride, count;
} sl_row_run;
#define SL_ROW_RUNS_MAX 3u

/* A place where a checkpoint may hold a tensor of the model: of the matrix [rows][cols] that is there, the
 * rows of `runs` in order, each group turned on its side when transposed, and of each of these then
 * the columns first_col, first_col + col_step, ... (transposed: of the file's columns, which become
 * rows). What comes out has the spec's rows and cols. */
#define SL_STACK_WHOLE UINT32_MAX
typedef struct sl_tensor_place {
    char name[96]; /* after the prefix */
    sl_place_suffix suffix;
    /* The file's tensor is [n_stack][rows][cols] and matrix `index` of it is meant, or all of them as one
     * [rows][cols]: SL_STACK_WHOLE. n_stack 0: the tensor is [rows][cols], a vector [cols]. */
    uint32_t n_stack, index;
    uint32_t rows, cols;
    uint32_t n_runs;
    sl_row_run runs[SL_ROW_RUNS_MAX];
    bool transposed;
    uint32_t first_col, col_step;
    bool mlx; /* a form that only MLX's conversions have */
} sl_tensor_place;

#define SL_PLACES_MAX 5u
/* The places of a tensor, in order of preference; returns how many. expert: for expert kinds, else 0. */
uint32_t sl_tensor_places(const sl_model *model, const sl_tensor_spec *spec, uint32_t expert,
                          sl_tensor_place out[SL_PLACES_MAX]);
/* True when all of the place is meant, as it is. */
bool sl_place_is_plain(const sl_tensor_place *place);

#endif
