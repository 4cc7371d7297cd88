/* config.json -> descriptor. Every value is checked here, once; later code trusts the descriptor. */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "model/family.h"

#define DIM_MAX ((uint32_t)1 << 24)
#define POSITIONS_MAX ((uint32_t)1 << 22) // as far as sl_sincosf() is exact

/* What reading a config needs at hand. Keys are looked up in the text section first, then at top level. */
typedef struct reader {
    const sl_json *text, *top, *rope;
    sl_error *err;
} reader;

static const sl_json *find(const reader *r, const char *key) {
    const sl_json *v = sl_json_member_set(r->text, key);
    return v ? v : sl_json_member_set(r->top, key);
}

// The first of the alternatives (NULL-terminated) that is present.
static const sl_json *find_any(const reader *r, const char *const *keys, const char **found) {
    for (; *keys; keys++) {
        const sl_json *v = find(r, *keys);
        if (v) {
            *found = *keys;
            return v;
        }
    }
    return NULL;
}

typedef struct dimension {
    const char *const *keys; /* aliases, NULL-terminated */
    uint32_t *out;
    uint32_t min, max;
    bool optional; /* keeps *out when absent */
} dimension;

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static sl_status read_dimension(const reader *r, const dimension *d) {
    const char *key = d->keys[0];
    const sl_json *v = find_any(r, d->keys, &key);
    uint64_t n = 0;
    if (!v) {
        if (d->optional)
            return SL_OK;
        return sl_fail(r->err, SL_ERR_CORRUPT, "config.json: '%s' is missing", key);
    }
    if (!sl_json_uint64(v, &n) || n < d->min || n > d->max)
        return sl_fail(r->err, SL_ERR_CORRUPT,
                       "config.json: '%s' is %.40s, expected a whole number from %u to %u", key,
                       v->text ? v->text : "no number", d->min, d->max);
    *d->out = (uint32_t)n;
    return SL_OK;
}

static sl_status read_float(const reader *r, const sl_json *v, const char *key, double min,
                            double max, double *out) {
    double d;
    if (!v)
        return SL_OK;
    if (!sl_json_double(v, &d) || !(d >= min && d <= max))
        return sl_fail(r->err, SL_ERR_CORRUPT,
                       "config.json: '%s' is %.40s, expected a number from %g to %g", key,
                       v->text ? v->text : "no number", min, max);
    *out = d;
    return SL_OK;
}

// A switch that must not be on: the engine has no code for it.
static sl_status refuse_true(const reader *r, const char *key, const char *why) {
    const sl_json *v = find(r, key);
    if (v && !sl_json_is(v, SL_JSON_FALSE))
        return sl_fail(r->err, SL_ERR_UNSUPPORTED, "config.json: '%s' is set: %s", key, why);
    return SL_OK;
}

static sl_status read_layers(const reader *r, const sl_family *f, sl_model *m) {
    const sl_json *types = find(r, "layer_types");
    if (!types) {
        uint32_t interval = f->full_attention_interval;
        dimension d = {KEYS("full_attention_interval"), &interval, 1, SL_LAYERS_MAX, true};
        sl_status st = read_dimension(r, &d);
        for (uint32_t i = 0; i < m->n_layers; i++)
            m->mixer[i] = (i + 1) % interval == 0 ? SL_MIXER_ATTENTION : SL_MIXER_DELTA;
        return st;
    }
    if (!sl_json_is(types, SL_JSON_ARRAY) || types->n_children != m->n_layers)
        return sl_fail(r->err, SL_ERR_CORRUPT,
                       "config.json: 'layer_types' must list %u layers, it has %u", m->n_layers,
                       types->n_children);
    uint32_t i = 0;
    for (const sl_json *t = types->child; t; t = t->next, i++) {
        const sl_layer_type *known = f->layer_types;
        while (known->name && !sl_json_text_is(t, known->name))
            known++;
        if (!known->name)
            return sl_fail(r->err, SL_ERR_UNSUPPORTED,
                           "config.json: 'layer_types' asks for '%.40s' in layer %u, which family "
                           "%s does not have",
                           t->text ? t->text : "?", i, f->name);
        m->mixer[i] = (uint8_t)known->mixer;
    }
    return SL_OK;
}

// floor() for numbers far below 2^31.
static double whole_below(double x) {
    double whole = (double)(int32_t)x;
    return whole > x ? whole - 1 : whole;
}

/* Rotary frequencies: theta^(-2i/n_rot), with YaRN's blend where asked for.
 * Sources: RoFormer (Su et al. 2021); YaRN (Peng et al. 2023). */
static sl_status read_rope(reader *r, const sl_family *f, sl_model *m) {
    sl_status st;
    double theta = (double)f->rope_theta, fraction = (double)f->rotary_fraction, factor = 1;
    double beta_fast = 32, beta_slow = 1, original = m->n_ctx_max, attention = 0, mscale = 0,
           mscale_all = 0;
    const sl_json *p = find(r, "rope_parameters");
    const sl_json *scaling = p ? p : find(r, "rope_scaling");
    const sl_json *type = sl_json_member_set(scaling, "rope_type");
    if (!type)
        type = sl_json_member_set(scaling, "type");
    bool yarn = sl_json_text_is(type, "yarn");
    // "mrope" is the older name of plain frequencies with a position per axis; text has one position.
    if (type && !yarn && !sl_json_text_is(type, "default") && !sl_json_text_is(type, "mrope"))
        return sl_fail(r->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'rope_type' is '%.40s', supported are default and yarn",
                       type->text ? type->text : "?");
    const sl_json *v = sl_json_member_set(scaling, "rope_theta");
    // At least 2: the logarithm of a base of 1 is 0, and YaRN divides by it.
    if ((st = read_float(r, v ? v : find(r, "rope_theta"), "rope_theta", 2, 1e12, &theta)))
        return st;
    v = sl_json_member_set(scaling, "partial_rotary_factor");
    if ((st = read_float(r, v ? v : find(r, "partial_rotary_factor"), "partial_rotary_factor",
                         0.001, 1, &fraction)))
        return st;
    m->rope.n_rot = (uint32_t)((double)m->attn.d_head * fraction);
    if (m->rope.n_rot == 0 || m->rope.n_rot % 2 || m->rope.n_rot > SL_ROT_MAX)
        return sl_fail(r->err, SL_ERR_UNSUPPORTED,
                       "config.json: %u rotated elements of a head (head_dim %u * %g), expected an "
                       "even number up to %u",
                       m->rope.n_rot, m->attn.d_head, fraction, SL_ROT_MAX);
    if (yarn &&
        ((st = read_float(r, sl_json_member_set(scaling, "factor"), "factor", 1, 1e6, &factor)) ||
         (st = read_float(r, sl_json_member_set(scaling, "beta_fast"), "beta_fast", 1e-3, 1e6,
                          &beta_fast)) ||
         (st = read_float(r, sl_json_member_set(scaling, "beta_slow"), "beta_slow", 1e-3, 1e6,
                          &beta_slow)) ||
         (st = read_float(r, sl_json_member_set(scaling, "mscale"), "mscale", 0, 1e3, &mscale)) ||
         (st = read_float(r, sl_json_member_set(scaling, "mscale_all_dim"), "mscale_all_dim", 0,
                          1e3, &mscale_all)) ||
         (st = read_float(r, sl_json_member_set(scaling, "attention_factor"), "attention_factor", 0,
                          1e3, &attention)) ||
         (st = read_float(r, sl_json_member_set(scaling, "original_max_position_embeddings"),
                          "original_max_position_embeddings", 1, 1e9, &original))))
        return st;

    const double pi = 3.14159265358979323846;
    uint32_t half = m->rope.n_rot / 2;
    double log_theta = sl_log64(theta);
    double low =
        (double)m->rope.n_rot * sl_log64(original / (2 * pi * beta_fast)) / (2 * log_theta);
    double high =
        (double)m->rope.n_rot * sl_log64(original / (2 * pi * beta_slow)) / (2 * log_theta);
    if (!sl_json_is(sl_json_member_set(scaling, "truncate"), SL_JSON_FALSE)) {
        low = whole_below(low);
        high = -whole_below(-high);
    }
    low = low < 0 ? 0 : low;
    high = high > m->rope.n_rot - 1 ? m->rope.n_rot - 1 : high;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < half; i++) {
        double base = sl_exp64(-2.0 * i / m->rope.n_rot * log_theta);
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        m->rope.inv_freq[i] = (float)(yarn ? base / factor * ramp + base * (1 - ramp) : base);
    }
    m->rope.cos_sin_scale = 1;
    if (yarn) {
        double log_factor = sl_log64(factor);
        if (attention == 0 && mscale != 0 && mscale_all != 0)
            attention = factor <= 1
                            ? 1
                            : (0.1 * mscale * log_factor + 1) / (0.1 * mscale_all * log_factor + 1);
        if (attention == 0)
            attention = factor <= 1 ? 1 : 0.1 * log_factor + 1;
        m->rope.cos_sin_scale = (float)attention;
    }
    return SL_OK;
}

static sl_status add_stop_token(reader *r, const sl_json *v, sl_model *m) {
    uint64_t id;
    if (!sl_json_uint64(v, &id) || id >= m->n_vocab)
        return sl_fail(r->err, SL_ERR_CORRUPT,
                       "eos_token_id is %.40s, expected an id below the vocabulary's %u",
                       v->text ? v->text : "no number", m->n_vocab);
    for (uint32_t i = 0; i < m->n_stop_tokens; i++)
        if (m->stop_tokens[i] == id)
            return SL_OK;
    if (m->n_stop_tokens == SL_STOP_TOKENS_MAX)
        return sl_fail(r->err, SL_ERR_UNSUPPORTED, "more than %u end tokens", SL_STOP_TOKENS_MAX);
    m->stop_tokens[m->n_stop_tokens++] = (uint32_t)id;
    return SL_OK;
}

// An id or a list of ids; absent is fine.
static sl_status add_stop_tokens(reader *r, const sl_json *v, sl_model *m) {
    if (!v)
        return SL_OK;
    if (!sl_json_is(v, SL_JSON_ARRAY))
        return add_stop_token(r, v, m);
    for (const sl_json *c = v->child; c; c = c->next) {
        sl_status st = add_stop_token(r, c, m);
        if (st)
            return st;
    }
    return SL_OK;
}

/* ---- keys --------------------------------------------------------------------------------------- */

/* Keys that change the result in families that this version does not run: they must have the value that
 * changes nothing. number: that value; 0 also stands for false. */
static const struct {
    const char *key;
    double number;
    const char *text;
} neutral_keys[] = {
    {"attention_multiplier", 1, NULL},
    {"attn_logit_softcapping", 0, NULL},
    {"embedding_multiplier", 1, NULL},
    {"final_logit_softcapping", 0, NULL},
    {"first_k_dense_replace", 0, NULL},
    {"kv_lora_rank", 0, NULL},
    {"logit_scale", 1, NULL},
    {"logits_scaling", 1, NULL},
    {"mlp_bias", 0, NULL},
    {"moe_layer_freq", 1, NULL},
    {"n_group", 1, NULL},
    {"num_dense_layers", 0, NULL},
    {"q_lora_rank", 0, NULL},
    {"qkv_bias", 0, NULL},
    {"query_pre_attn_scalar", 0, NULL},
    {"residual_multiplier", 1, NULL},
    {"rope_interleave", 0, NULL},
    {"routed_scaling_factor", 1, NULL},
    {"scoring_func", 0, "softmax"},
    {"swiglu_limit", 0, NULL},
    {"topk_group", 1, NULL},
};

/* Keys that are read here or by the converter, and keys without effect on the result. */
static const char *const known_keys[] = {
    "architectures",
    "attention_bias",
    "attention_dropout",
    "attn_output_gate",
    "auto_map",
    "bos_token_id",
    "conv_L_cache",
    "decoder_sparse_step",
    "dtype",
    "eos_token_id",
    "experts_per_token",
    "full_attention_interval",
    "head_dim",
    "hidden_act",
    "hidden_size",
    "image_token_id",
    "initializer_range",
    "intermediate_size",
    "language_model_only",
    "layer_types",
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
    "mamba_d_conv",
    "mamba_ssm_dtype",
    "max_position_embeddings",
    "max_window_layers",
    "mlp_only_layers",
    "model_type",
    "moe_intermediate_size",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
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
    "output_gate_type",
    "output_router_logits",
    "pad_token_id",
    "partial_rotary_factor",
    "pretraining_tp",
    "quantization",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "shared_expert_intermediate_size",
    "sliding_window",
    "text_config",
    "tie_embedding",
    "tie_word_embeddings",
    "top_k_experts",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "use_sliding_window",
    "video_token_id",
    "vision_config",
    "vision_end_token_id",
    "vision_start_token_id",
    "vocab_size",
};

static bool is_known(const char *key) {
    for (size_t i = 0; i < SL_COUNT(known_keys); i++)
        if (strcmp(known_keys[i], key) == 0)
            return true;
    return false;
}

// Index into neutral_keys, or its length.
static size_t find_neutral(const char *key) {
    size_t i = 0;
    while (i < SL_COUNT(neutral_keys) && strcmp(neutral_keys[i].key, key) != 0)
        i++;
    return i;
}

static bool is_neutral(const sl_json *v, size_t i) {
    double d;
    if (sl_json_is(v, SL_JSON_NULL))
        return true;
    if (sl_json_is(v, SL_JSON_FALSE))
        return neutral_keys[i].number == 0;
    if (sl_json_double(v, &d))
        return d == neutral_keys[i].number;
    return neutral_keys[i].text && sl_json_text_is(v, neutral_keys[i].text);
}

// Refuse keys that ask for other arithmetic; note those that nothing is known of.
static sl_status check_keys(const sl_json *section, sl_buf *notes, sl_error *err) {
    for (const sl_json *v = section ? section->child : NULL; v; v = v->next) {
        size_t i = find_neutral(v->key);
        if (i < SL_COUNT(neutral_keys)) {
            if (!is_neutral(v, i))
                return sl_fail(err, SL_ERR_UNSUPPORTED,
                               "config.json: '%s' asks for something that this version does not "
                               "compute",
                               v->key);
        } else if (notes && !is_known(v->key)) {
            sl_buf_printf(notes, "config.json: '%.60s' is not known and was ignored\n", v->key);
        }
    }
    return SL_OK;
}

static const sl_family *family_of(const sl_json *type) {
    for (uint32_t i = 0; i < sl_n_families; i++)
        for (const char *const *t = sl_families[i]->model_types; *t; t++)
            if (sl_json_text_is(type, *t))
                return sl_families[i];
    return NULL;
}

sl_status sl_model_from_config(const sl_json *config, const sl_json *generation_config, sl_model *m,
                               sl_buf *notes, sl_error *err) {
    sl_status st;
    memset(m, 0, sizeof(*m));
    if (!sl_json_is(config, SL_JSON_OBJECT))
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: expected an object");
    const sl_json *text = sl_json_member_set(config, "text_config");
    reader r = {sl_json_is(text, SL_JSON_OBJECT) ? text : config, config, NULL, err};
    const sl_json *type = sl_json_member_set(config, "model_type");
    if (!sl_json_is(type, SL_JSON_STRING))
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: 'model_type' is missing");
    const sl_family *f = family_of(type);
    if (!f)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'model_type' is '%.60s'; this version runs qwen3_5_moe and "
                       "qwen3_5_moe_text",
                       type->text);
    m->family = f;
    if ((st = check_keys(config, notes, err)) ||
        (r.text != config && (st = check_keys(r.text, notes, err))))
        return st;
    m->moe.d_expert = 0;
    const dimension dimensions[] = {
        {KEYS("num_hidden_layers"), &m->n_layers, 1, SL_LAYERS_MAX, false},
        {KEYS("hidden_size"), &m->d_model, 32, 1u << 16, false},
        {KEYS("vocab_size"), &m->n_vocab, 2, DIM_MAX, false},
        {KEYS("max_position_embeddings"), &m->n_ctx_max, 1, POSITIONS_MAX, false},
        {KEYS("num_attention_heads"), &m->attn.n_heads, 1, 1024, false},
        {KEYS("num_experts", "n_routed_experts", "num_local_experts"), &m->moe.n_experts, 1, 4096,
         false},
        {KEYS("num_experts_per_tok", "top_k_experts", "experts_per_token"), &m->moe.top_k, 1,
         SL_TOP_K_MAX, false},
        {KEYS("moe_intermediate_size", "intermediate_size"), &m->moe.d_expert, 32, 1u << 16, false},
        {KEYS("shared_expert_intermediate_size"), &m->moe.d_shared, 0, 1u << 16, true},
    };
    for (size_t i = 0; i < SL_COUNT(dimensions); i++)
        if ((st = read_dimension(&r, &dimensions[i])))
            return st;
    if ((st = read_layers(&r, f, m)))
        return st;

    m->attn.n_kv_heads = m->attn.n_heads;
    m->attn.d_head = m->d_model / m->attn.n_heads;
    const dimension heads[] = {
        {KEYS("num_key_value_heads"), &m->attn.n_kv_heads, 1, 1024, true},
        {KEYS("head_dim"), &m->attn.d_head, 16, 512, true},
    };
    for (size_t i = 0; i < SL_COUNT(heads); i++)
        if ((st = read_dimension(&r, &heads[i])))
            return st;
    if (m->attn.n_heads % m->attn.n_kv_heads)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "config.json: %u attention heads cannot share %u key/value heads",
                       m->attn.n_heads, m->attn.n_kv_heads);
    if (m->attn.d_head < 16 || m->attn.d_head > 512)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "config.json: heads of %u, supported are 16 to 512",
                       m->attn.d_head);
    if (m->attn.d_head % 16)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'head_dim' is %u, expected a multiple of 16", m->attn.d_head);
    if (m->moe.top_k > m->moe.n_experts)
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: %u experts per token of only %u",
                       m->moe.top_k, m->moe.n_experts);
    m->attn.scale = (float)(1.0 / sqrt((double)m->attn.d_head));
    m->attn.gated = f->attn_gated;
    m->attn.qk_norm = f->qk_norm;

    if (sl_model_mixer_count(m, SL_MIXER_DELTA)) {
        const dimension delta[] = {
            {KEYS("linear_num_key_heads"), &m->delta.n_k_heads, 1, 1024, false},
            {KEYS("linear_num_value_heads"), &m->delta.n_v_heads, 1, 1024, false},
            {KEYS("linear_key_head_dim"), &m->delta.d_k, 4, 1024, false},
            {KEYS("linear_value_head_dim"), &m->delta.d_v, 16, 1024, false},
            {KEYS("linear_conv_kernel_dim", "conv_L_cache", "mamba_d_conv"), &m->delta.conv_width,
             2, 8, false},
        };
        for (size_t i = 0; i < SL_COUNT(delta); i++)
            if ((st = read_dimension(&r, &delta[i])))
                return st;
        if (m->delta.n_v_heads % m->delta.n_k_heads || m->delta.d_k % 4 || m->delta.d_v % 16)
            return sl_fail(
                err, SL_ERR_UNSUPPORTED,
                "config.json: linear attention with %u value heads over %u key heads of %u x %u; "
                "expected whole shares, key size a multiple of 4, value size of 16",
                m->delta.n_v_heads, m->delta.n_k_heads, m->delta.d_k, m->delta.d_v);
    }

    double eps = 0;
    const char *eps_key = "rms_norm_eps";
    const sl_json *eps_value = find_any(&r, KEYS("rms_norm_eps", "norm_eps"), &eps_key);
    if (!eps_value)
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: 'rms_norm_eps' is missing");
    if ((st = read_float(&r, eps_value, eps_key, 0, 1, &eps)))
        return st;
    m->norm_eps = (float)eps;

    m->moe.renorm = f->renorm;
    m->moe.route_scale = 1;
    m->moe.shared_gate = f->shared_gate;
    const sl_json *renorm = find(&r, "norm_topk_prob");
    if (renorm && f->renorm_from_config)
        m->moe.renorm = sl_json_is(renorm, SL_JSON_TRUE);
    else if (notes && renorm && sl_json_is(renorm, SL_JSON_TRUE) != f->renorm)
        sl_buf_add_text(
            notes, "config.json: norm_topk_prob is ignored, as in the reference implementation\n");

    const sl_json *act = find(&r, "hidden_act");
    if (act && !sl_json_text_is(act, "silu") && !sl_json_text_is(act, "swish"))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'hidden_act' is '%.40s', supported is silu",
                       act->text ? act->text : "?");
    const sl_json *gate = find(&r, "attn_output_gate");
    if (gate && f->attn_gated && !sl_json_is(gate, SL_JSON_TRUE))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'attn_output_gate' is off, family %s has the gate", f->name);
    const sl_json *dense = find(&r, "mlp_only_layers");
    if (dense && dense->n_children)
        return sl_fail(
            err, SL_ERR_UNSUPPORTED,
            "config.json: 'mlp_only_layers' asks for dense layers, which this version lacks");
    uint32_t sparse_step = 1;
    dimension step = {KEYS("decoder_sparse_step"), &sparse_step, 0, 1u << 16, true};
    if ((st = read_dimension(&r, &step)))
        return st;
    if (sparse_step != 1)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'decoder_sparse_step' is %u, supported is 1", sparse_step);
    const sl_json *window = find(&r, "sliding_window");
    const sl_json *use_window = find(&r, "use_sliding_window");
    if (window && !sl_json_is(use_window, SL_JSON_FALSE))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: 'sliding_window' is set, which this version lacks");
    if ((st = refuse_true(&r, "attention_bias", "this version has no biases in attention")))
        return st;
    const sl_json *tied = find_any(&r, KEYS("tie_word_embeddings", "tie_embedding"), &eps_key);
    m->tied_head = sl_json_is(tied, SL_JSON_TRUE);

    if ((st = read_rope(&r, f, m)))
        return st;
    if ((st = add_stop_tokens(&r, sl_json_member_set(generation_config, "eos_token_id"), m)) ||
        (st = add_stop_tokens(&r, sl_json_member_set(config, "eos_token_id"), m)) ||
        (st = add_stop_tokens(&r, sl_json_member_set(text, "eos_token_id"), m)))
        return st;
    return SL_OK;
}

const char *sl_model_family_name(const sl_model *model) {
    return model->family->name;
}

uint32_t sl_model_conv_channels(const sl_model *m) {
    return 2 * m->delta.n_k_heads * m->delta.d_k + m->delta.n_v_heads * m->delta.d_v;
}

uint32_t sl_model_mixer_index(const sl_model *m, uint32_t layer) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < layer; i++)
        n += m->mixer[i] == m->mixer[layer];
    return n;
}

uint32_t sl_model_mixer_count(const sl_model *m, sl_mixer mixer) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_layers; i++)
        n += m->mixer[i] == mixer;
    return n;
}
