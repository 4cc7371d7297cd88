/* Which keys of a config.json are known, and which of them a family takes. */
#include <string.h>

#include "base/attr.h"
#include "model/config.h"

/* What a family must have for a key to be its own. */
typedef enum key_use {
    USE_NONE, /* no family computes it */
    USE_MLA,
    USE_GROUPS,
    USE_ROUTE_SCALE,
    USE_DENSE_FIRST,
    USE_DENSE_LIST,
    USE_SHARED_COUNT,
    USE_SHARED_WIDTH,
    USE_CLAMPED,
    USE_CLIP,
    USE_CONV,
    USE_CONV_BIAS,
    USE_QK_NORM,
    USE_EXPERT_BIAS,
    USE_DELTA,
} key_use;

static bool has_mixer(const sl_family *f, sl_mixer mixer) {
    for (const sl_layer_type *t = f->layer_types; t->name; t++)
        if (t->mixer == mixer)
            return true;
    return false;
}

static bool is_key(sl_choice choice) {
    return choice == SL_KEY_OR_NO || choice == SL_KEY_OR_YES;
}

static bool takes(const sl_family *f, key_use use) {
    switch (use) {
    case USE_NONE:
        return false;
    case USE_MLA:
        return has_mixer(f, SL_MIXER_MLA);
    case USE_GROUPS:
        return f->groups;
    case USE_ROUTE_SCALE:
        return f->route_scale;
    case USE_DENSE_FIRST:
        return f->dense == SL_DENSE_FIRST;
    case USE_DENSE_LIST:
        return f->dense == SL_DENSE_LIST;
    case USE_SHARED_COUNT:
        return f->shared == SL_SHARED_COUNT;
    case USE_SHARED_WIDTH:
        return f->shared == SL_SHARED_WIDTH;
    case USE_CLAMPED:
        return f->activation == SL_ACTIVATION_SWIGLU_CLAMPED;
    case USE_CLIP:
        return f->clip;
    case USE_CONV:
        return has_mixer(f, SL_MIXER_CONV);
    case USE_CONV_BIAS:
        return f->conv_bias;
    case USE_QK_NORM:
        return is_key(f->use_qk_norm);
    case USE_EXPERT_BIAS:
        return is_key(f->selection_bias);
    case USE_DELTA:
        return has_mixer(f, SL_MIXER_DELTA);
    }
    return false;
}

/* Keys that change the result where they are taken. For a family that does not take one, it must have the value
 * that changes nothing: that number, where 0 also stands for false and an empty list. */
static const struct {
    const char *key;
    key_use use;
    double neutral;
} keys[] = {
    {"attention_multiplier", USE_NONE, 1},
    {"attn_logit_softcapping", USE_NONE, 0},
    {"clip_qkv", USE_CLIP, 0},
    {"conv_L_cache", USE_CONV, 0},
    {"conv_bias", USE_CONV_BIAS, 0},
    {"decoder_sparse_step", USE_DENSE_LIST, 1},
    {"embedding_multiplier", USE_NONE, 1},
    {"final_logit_softcapping", USE_NONE, 0},
    {"first_k_dense_replace", USE_DENSE_FIRST, 0},
    {"full_attention_interval", USE_DELTA, 1},
    {"kv_lora_rank", USE_MLA, 0},
    {"linear_conv_kernel_dim", USE_DELTA, 0},
    {"linear_key_head_dim", USE_DELTA, 0},
    {"linear_num_key_heads", USE_DELTA, 0},
    {"linear_num_value_heads", USE_DELTA, 0},
    {"linear_value_head_dim", USE_DELTA, 0},
    {"logit_scale", USE_NONE, 1},
    {"logits_scaling", USE_NONE, 1},
    {"mlp_bias", USE_NONE, 0},
    {"mlp_only_layers", USE_DENSE_LIST, 0},
    {"moe_layer_freq", USE_NONE, 1},
    {"n_group", USE_GROUPS, 1},
    {"n_shared_experts", USE_SHARED_COUNT, 0},
    {"num_dense_layers", USE_DENSE_FIRST, 0},
    {"q_lora_rank", USE_MLA, 0},
    {"qk_head_dim", USE_MLA, 0},
    {"qk_nope_head_dim", USE_MLA, 0},
    {"qk_rope_head_dim", USE_MLA, 0},
    {"qkv_bias", USE_NONE, 0},
    {"query_pre_attn_scalar", USE_NONE, 0},
    {"residual_multiplier", USE_NONE, 1},
    {"rope_interleave", USE_MLA, 0},
    {"routed_scaling_factor", USE_ROUTE_SCALE, 1},
    {"shared_expert_intermediate_size", USE_SHARED_WIDTH, 0},
    {"swiglu_alpha", USE_CLAMPED, 0},
    {"swiglu_limit", USE_CLAMPED, 0},
    {"topk_group", USE_GROUPS, 1},
    {"use_expert_bias", USE_EXPERT_BIAS, 0},
    {"use_qk_norm", USE_QK_NORM, 0},
    {"v_head_dim", USE_MLA, 0},
};

/* Keys that are read whatever the family is, here or by the converter, and keys without effect on the result. */
static const char *const known_keys[] = {
    "architectures",
    "attention_bias",
    "attention_dropout",
    "auto_map",
    "bos_token_id",
    "dtype",
    "eos_token_id",
    "experts_per_token",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "moe_intermediate_size",
    "n_routed_experts",
    "norm_eps",
    "norm_topk_prob",
    "num_attention_heads",
    "num_experts",
    "num_experts_per_tok",
    "num_hidden_layers",
    "num_key_value_heads",
    "num_local_experts",
    "num_nextn_predict_layers",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "quantization",
    "quantization_config",
    "return_dict",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "sliding_window",
    "text_config",
    "tie_embedding",
    "tie_word_embeddings",
    "top_k_experts",
    "topk_method",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "use_sliding_window",
    "vocab_size",
};

static bool listed(const char *const *list, size_t n, const char *key) {
    for (size_t i = 0; i < n && list[i]; i++)
        if (strcmp(list[i], key) == 0)
            return true;
    return false;
}

// Not set, or set to nothing.
static bool is_off(const sl_json *v) {
    return sl_json_is(v, SL_JSON_NULL) || sl_json_is(v, SL_JSON_FALSE) ||
           ((sl_json_is(v, SL_JSON_ARRAY) || sl_json_is(v, SL_JSON_OBJECT)) && !v->child);
}

static bool changes_nothing(const sl_json *v, double neutral) {
    double d;
    if (sl_json_double(v, &d))
        return d == neutral;
    return sl_json_is(v, SL_JSON_NULL) || (neutral == 0 && is_off(v));
}

static sl_status check_key(const sl_config *c, const sl_json *v) {
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        if (strcmp(keys[i].key, v->key) != 0)
            continue;
        if (takes(c->family, keys[i].use) || changes_nothing(v, keys[i].neutral))
            return SL_OK;
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: '%s' is set, which family %s does not have", v->key,
                       c->family->name);
    }
    if (listed(known_keys, SL_COUNT(known_keys), v->key) ||
        (c->family->known_keys && listed(c->family->known_keys, SIZE_MAX, v->key)))
        return SL_OK;
    // Names of files and people, and ids of tokens: nothing that a layer computes with.
    const char *token = strstr(v->key, "_token_id");
    if (v->key[0] == '_' || (token && token[strlen("_token_id")] == '\0'))
        return SL_OK;
    if (!is_off(v))
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: '%.60s' is set and not known to this version: it may change "
                       "what the model computes",
                       v->key);
    if (c->notes)
        sl_buf_printf(c->notes, "config.json: '%.60s' is not known; it is not set\n", v->key);
    return SL_OK;
}

sl_status sl__config_check_keys(const sl_config *c, const sl_json *section) {
    for (const sl_json *v = section ? section->child : NULL; v; v = v->next) {
        sl_status st = check_key(c, v);
        if (st)
            return st;
    }
    return SL_OK;
}
