/* Families as data. A new family whose layer kinds exist is a new row in families.c. */
#ifndef SL_MODEL_FAMILY_H
#define SL_MODEL_FAMILY_H

#include "model/model.h"

/* Which layers have a tensor. */
typedef enum sl_tensor_scope {
    SL_IN_MODEL,
    SL_IN_HEAD, /* of the model; under the embedding's name where the two are tied */
    SL_IN_LAYER,
    SL_IN_ATTENTION, /* layers with this mixer */
    SL_IN_QK_NORM,   /* the same, where q and k are normed */
    SL_IN_DELTA,
    SL_IN_SHARED,      /* layers with a shared expert */
    SL_IN_SHARED_GATE, /* layers with a gated shared expert */
} sl_tensor_scope;

#define SL_TENSOR_ZERO_CENTRED 1u /* HF files hold w - 1 */
#define SL_TENSOR_ROUTER 2u       /* quantized to 8 bits */

typedef struct sl_tensor_name {
    sl_role role;
    sl_tensor_scope scope;
    sl_tensor_kind kind;
    const char *name; /* after "layers.<l>." for layer scopes */
    unsigned flags;
} sl_tensor_name;

typedef struct sl_layer_type {
    const char *name; /* in config.json's layer_types */
    sl_mixer mixer;
} sl_layer_type;

struct sl_family {
    const char *name;
    const char *const *model_types;   /* values of model_type, NULL-terminated */
    const sl_layer_type *layer_types; /* ends with a NULL name */
    uint32_t full_attention_interval; /* default when layer_types is absent */
    const sl_tensor_name *tensors;    /* the embedding first */
    uint32_t n_tensors;
    const char *const *prefixes, *const *head_prefixes, *const *unused_prefixes;
    const char *experts_stacked, *experts_fused_gate_up, *experts_fused_down, *experts_single;
    bool attn_gated, qk_norm;
    float rope_theta, rotary_fraction; /* defaults */
    bool renorm, renorm_from_config;   /* default, and whether norm_topk_prob is honoured */
    bool shared_gate;
};

extern const sl_family *const sl_families[];
extern const uint32_t sl_n_families;

#endif
