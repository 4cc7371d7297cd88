/* Families as data. A new family whose layer kinds exist is a new entry in families.c and a test: see
 * docs/adding-a-family.md. No code outside of that file knows a family by name. */
#ifndef SL_MODEL_FAMILY_H
#define SL_MODEL_FAMILY_H

#include "model/model.h"

/* ---- tensors: where each role stands in a checkpoint ------------------------------------------- */

/* How a place in a checkpoint relates to the tensor. "group": of a projection that is fused per key head. */
typedef enum sl_map {
    SL_MAP_PLAIN,     /* the same matrix or vector */
    SL_MAP_HEADS,     /* [n_heads][rows / n_heads][cols] */
    SL_MAP_KV_B_KEYS, /* of kv_b [n_heads * (d_nope + d_v)][d_latent]: key rows, turned per head */
    SL_MAP_KV_B_VALUES,  /* of the same: value rows */
    SL_MAP_GROUPED_QKV,  /* of qkvz, per group q, k, v.., z..: all q, all k, all v */
    SL_MAP_GROUPED_Z,    /* of the same: all z */
    SL_MAP_GROUPED_B,    /* of ba, per group b.., a..: all b */
    SL_MAP_GROUPED_A,    /* of the same: all a */
    SL_MAP_STACK,        /* experts, [n_experts] times the same */
    SL_MAP_SINGLE,       /* experts, one tensor each: the name has %u */
    SL_MAP_FUSED,        /* experts, [n_experts][gate rows, up rows]; down as STACK */
    SL_MAP_ROW_PAIRS,    /* experts, gate and up rows alternate; down as STACK */
    SL_MAP_COLUMN_PAIRS, /* experts, [in][out], gate and up columns alternate; down [in][out] */
} sl_map;

typedef struct sl_tensor_source {
    const char *name; /* after "layers.<l>." in layer blocks */
    sl_map map;
    sl_place_suffix suffix;
    bool mlx; /* only MLX's conversions have it */
} sl_tensor_source;

typedef struct sl_tensor_row {
    sl_role role;
    sl_tensor_source sources[SL_PLACES_MAX]; /* in order of preference; end at a NULL name */
    sl_tensor_precision precision;
    bool zero_centred; /* HF files hold w - 1 */
} sl_tensor_row;

/* Rows of tensors in the order in which a token uses them. */
typedef struct sl_tensor_block {
    const sl_tensor_row *rows;
    uint32_t n;
} sl_tensor_block;

/* ---- families ----------------------------------------------------------------------------------- */

typedef struct sl_layer_type {
    const char *name; /* in config.json's layer_types */
    sl_mixer mixer;
    bool windowed;
} sl_layer_type;

typedef enum sl_window_rule {
    SL_WINDOW_NEVER,   /* sliding_window must not be set, or be switched off */
    SL_WINDOW_ALWAYS,  /* set: in every layer */
    SL_WINDOW_IF_USED, /* set and use_sliding_window: in every layer */
    SL_WINDOW_BY_TYPE, /* in layers whose type says so */
} sl_window_rule;

typedef enum sl_dense_rule {
    SL_DENSE_NEVER,
    SL_DENSE_FIRST, /* the first first_k_dense_replace | num_dense_layers layers */
    SL_DENSE_LIST,  /* mlp_only_layers, and what decoder_sparse_step leaves out */
} sl_dense_rule;

typedef enum sl_shared_rule {
    SL_SHARED_NEVER,
    SL_SHARED_WIDTH, /* shared_expert_intermediate_size */
    SL_SHARED_COUNT, /* n_shared_experts times the experts' width */
} sl_shared_rule;

typedef enum sl_choice {
    SL_NO,
    SL_YES,
    SL_KEY_OR_NO, /* as the config says; absent: no */
    SL_KEY_OR_YES,
} sl_choice;

#define SL_INTERVAL_REQUIRED UINT32_MAX

struct sl_family {
    const char *name;
    const char *const *model_types; /* values of model_type, NULL-terminated */

    /* Layers. Without layer_types in the config, layer i is of the second type where interval divides
     * i + 1, else of the first; interval 0: all are of the first, SL_INTERVAL_REQUIRED: it must be there. */
    const sl_layer_type *layer_types; /* ends with a NULL name */
    uint32_t interval;
    sl_window_rule window;
    sl_dense_rule dense;

    /* Attention. */
    bool attn_gated, sinks, clip; /* clip: clip_qkv is known */
    sl_qk_norm qk_norm;
    sl_choice use_qk_norm, attn_bias; /* keys use_qk_norm, attention_bias */
    bool attn_out_bias;               /* attention_bias means the output projection too */
    float rope_theta;                 /* default; 0: must be given */
    float rotary_fraction;            /* default */
    bool rope_pairs;                  /* default of rope_interleave; false: the key is not known */
    bool conv_bias;                   /* the key is known */

    /* Experts. */
    sl_router_score score;
    bool router_bias, groups, route_scale; /* groups, route_scale: the keys are known */
    sl_choice selection_bias;              /* key use_expert_bias */
    sl_choice renorm;                      /* key norm_topk_prob */
    float renorm_eps;
    sl_shared_rule shared;
    bool shared_gate, expert_bias;
    sl_activation activation;
    float swiglu_limit, swiglu_alpha; /* defaults */

    sl_choice tied_head; /* key tie_word_embeddings | tie_embedding */

    /* Checkpoints. */
    sl_tensor_block first, last; /* of the model, around the layers; the embedding first of all */
    const sl_tensor_block *const *layer; /* NULL-terminated */
    const char *const *prefixes, *const *head_prefixes, *const *unused_prefixes;
    const char *const
        *known_keys; /* of this family alone, without effect; NULL-terminated, or NULL */
};

extern const sl_family *const sl_families[];
extern const uint32_t sl_n_families;

#endif
