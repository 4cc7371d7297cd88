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
#define SL_TOP_K_MAX 32u /* experts picked per token */

typedef enum sl_mixer { SL_MIXER_ATTENTION, SL_MIXER_DELTA, SL_MIXER_COUNT } sl_mixer;

typedef struct sl_family sl_family;

typedef struct sl_model {
    const sl_family *family;
    uint32_t n_layers, d_model, n_vocab, n_ctx_max;
    float norm_eps;
    uint8_t mixer[SL_LAYERS_MAX]; /* sl_mixer */

    struct {
        uint32_t n_heads, n_kv_heads, d_head;
        float scale;  /* of q . k */
        bool gated;   /* q_proj rows are, per head, [query | gate]; out * sigmoid(gate) */
        bool qk_norm; /* RMS norm of each query and key head, before the rotation */
    } attn;

    struct {
        uint32_t n_rot;                 /* first elements of a head that rotate; even */
        float inv_freq[SL_ROT_MAX / 2]; /* n_rot / 2 are used */
        float cos_sin_scale;            /* YaRN's attention factor; 1 without */
    } rope;

    struct {
        uint32_t n_k_heads, n_v_heads, d_k, d_v, conv_width;
    } delta;

    struct {
        uint32_t n_experts, top_k, d_expert;
        bool renorm; /* weights of the picks are divided by their sum */
        float route_scale;
        uint32_t d_shared; /* width of the shared expert; 0: none */
        bool shared_gate;  /* sigmoid of a linear of one row */
    } moe;

    bool tied_head;
    uint32_t stop_tokens[SL_STOP_TOKENS_MAX];
    uint32_t n_stop_tokens;
} sl_model;

/* Read a config.json (HF or MLX spelling; text keys at top level or under text_config; null counts as
 * absent). generation_config may be NULL; it adds stop tokens.
 * notes, which may be NULL, receives one line per key that is not known and has been ignored; keys that are
 * known to change the result in other families are refused.
 * Errors: SL_ERR_UNSUPPORTED names the field, what it asks for and what is supported; SL_ERR_CORRUPT names
 * a missing or impossible value. Everything is checked: a descriptor that this returns has dimensions
 * whose byte sizes fit 64 bits by far (each at most 2^24). Pure. */
SL_MUST_USE sl_status sl_model_from_config(const sl_json *config, const sl_json *generation_config,
                                           sl_model *out, sl_buf *notes, sl_error *err);

const char *sl_model_family_name(const sl_model *model);

/* Channels of the convolution: 2 * n_k_heads * d_k + n_v_heads * d_v. */
uint32_t sl_model_conv_channels(const sl_model *model);
/* Index of a layer among those of its mixer kind, and how many there are of a kind. */
uint32_t sl_model_mixer_index(const sl_model *model, uint32_t layer);
uint32_t sl_model_mixer_count(const sl_model *model, sl_mixer mixer);

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
    SL_ROLE_ATTN_Q_NORM, /* [d_head] */
    SL_ROLE_ATTN_K_NORM,
    SL_ROLE_DELTA_QKV, /* [conv channels][d_model]: all q heads, all k heads, all v heads */
    SL_ROLE_DELTA_Z,   /* [n_v_heads * d_v][d_model] */
    SL_ROLE_DELTA_A,   /* [n_v_heads][d_model] */
    SL_ROLE_DELTA_B,
    SL_ROLE_DELTA_CONV,  /* taps, stored as [conv_width][conv channels] */
    SL_ROLE_DELTA_A_LOG, /* [n_v_heads] */
    SL_ROLE_DELTA_DT_BIAS,
    SL_ROLE_DELTA_NORM,       /* [d_v] */
    SL_ROLE_DELTA_OUT,        /* [d_model][n_v_heads * d_v] */
    SL_ROLE_ROUTER,           /* [n_experts][d_model] */
    SL_ROLE_SHARED_GATE,      /* [1][d_model]: the scalar gate of the shared expert */
    SL_ROLE_SHARED_GATE_PROJ, /* [d_shared][d_model] */
    SL_ROLE_SHARED_UP_PROJ,
    SL_ROLE_SHARED_DOWN_PROJ, /* [d_model][d_shared] */
    SL_ROLE_EXPERT_GATE_PROJ, /* [d_expert][d_model], one per expert */
    SL_ROLE_EXPERT_UP_PROJ,
    SL_ROLE_EXPERT_DOWN_PROJ, /* [d_model][d_expert] */
    SL_ROLE_COUNT
} sl_role;

typedef enum sl_tensor_kind {
    SL_TENSOR_MATRIX, /* a product's weight: keeps its type, may be quantized */
    SL_TENSOR_VECTOR, /* kept as f32 [1][cols] */
    SL_TENSOR_CONV,   /* kept as f32 [rows = width][cols = channels] */
    SL_TENSOR_EXPERT, /* a matrix of every expert; lives in the expert files */
} sl_tensor_kind;

typedef struct sl_tensor_spec {
    sl_role role;
    sl_tensor_kind kind;
    uint32_t layer;      /* 0 for tensors of the whole model */
    uint32_t rows, cols; /* of one matrix */
    bool zero_centred;   /* HF files hold w, the engine wants 1 + w; MLX files hold 1 + w */
    bool router;         /* quantized to 8 bits rather than the bits asked */
    /* Name in a checkpoint after the prefix: "layers.3.self_attn.q_proj" (a matrix adds ".weight" and,
     * quantized, ".scales" and ".biases"; a vector's name is complete). Experts: HF fused
     * "layers.3.mlp.experts.gate_up_proj", per expert "layers.3.mlp.experts.%u.gate_proj", MLX
     * "layers.3.mlp.switch_mlp.gate_proj" are made by sl_tensor_expert_names(). The head's name
     * takes its own prefixes: "lm_head"; that of a tied head is the embedding's, prefixes included. */
    char name[96];
} sl_tensor_spec;

/* The tensors of a model, in the order in which a token uses them: per layer, then final norm and head,
 * with the embedding first. n = sl_model_tensors(model); spec i by sl_model_tensor(). Experts are
 * listed once per layer and projection. Pure. */
uint32_t sl_model_tensors(const sl_model *model);
void sl_model_tensor(const sl_model *model, uint32_t index, sl_tensor_spec *out);
/* The short name of a role in manifests: "attn_q", "router", ... */
const char *sl_role_name(sl_role role);

/* Prefixes that stand before a text tensor's name in checkpoints of this family, longest first,
 * NULL-terminated: "language_model.model.", "model.language_model.", "model.". And prefixes of tensors
 * that are known and not used (vision, MTP), NULL-terminated. */
const char *const *sl_model_name_prefixes(const sl_model *model);
const char *const *sl_model_head_prefixes(const sl_model *model);
const char *const *sl_model_unused_prefixes(const sl_model *model);

typedef struct sl_expert_names {
    char stacked[96]; /* MLX: one tensor [n_experts][rows][cols] + ".weight"/".scales"/".biases" */
    char fused[96];   /* HF: [n_experts][2 * d_expert][d_model], gate rows first (gate and up), or
                            [n_experts][rows][cols] for down */
    char single[96];  /* HF: one tensor per expert, for the given expert, + ".weight" */
    uint32_t fused_row;  /* first row of this projection in the fused tensor */
    uint32_t fused_rows; /* rows of one expert in the fused tensor */
} sl_expert_names;
void sl_tensor_expert_names(const sl_model *model, const sl_tensor_spec *spec, uint32_t expert,
                            sl_expert_names *out);

#endif
