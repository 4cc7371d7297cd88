/* config.json -> descriptor. Every value is checked here, once; later code trusts the descriptor. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DIM_MAX ((uint32_t)1 << 24)
#define WIDTH_MAX ((uint32_t)1 << 16)
#define POSITIONS_MAX ((uint32_t)1 << 22) // as far as sl_sincosf() is exact
#define MLA_ROW_MAX 1024u                 // latent and rope key: one row of the cache

/* ---- values --------------------------------------------------------------------------------------- */

const sl_json *sl__config_find(const sl_config *c, const char *key) {
    const sl_json *v = sl_json_member_set(c->text, key);
    return v ? v : sl_json_member_set(c->top, key);
}

const sl_json *sl__config_find_any(const sl_config *c, const char *const *keys,
                                   const char **found) {
    for (; *keys; keys++) {
        const sl_json *v = sl__config_find(c, *keys);
        if (v) {
            *found = *keys;
            return v;
        }
    }
    return NULL;
}

sl_status sl__config_numbers(const sl_config *c, const sl_config_number *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const sl_config_number *d = &list[i];
        const char *key = d->keys[0];
        const sl_json *v = sl__config_find_any(c, d->keys, &key);
        uint64_t number = 0;
        if (!v && d->optional)
            continue;
        if (!v)
            return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: '%s' is missing", key);
        if (!sl_json_uint64(v, &number) || number < d->min || number > d->max)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "config.json: '%s' is %.40s, expected a whole number from %u to %u", key,
                           v->text ? v->text : "no number", d->min, d->max);
        *d->out = (uint32_t)number;
    }
    return SL_OK;
}

sl_status sl__config_float(const sl_config *c, const sl_json *v, const char *key, double min,
                           double max, double *out) {
    double d;
    if (!v)
        return SL_OK;
    if (!sl_json_double(v, &d) || !(d >= min && d <= max))
        return sl_fail(c->err, SL_ERR_CORRUPT,
                       "config.json: '%s' is %.40s, expected a number from %g to %g", key,
                       v->text ? v->text : "no number", min, max);
    *out = d;
    return SL_OK;
}

sl_status sl__config_choice(const sl_config *c, const char *const *keys, sl_choice choice,
                            bool *out) {
    const char *key = keys[0];
    const sl_json *v = sl__config_find_any(c, keys, &key);
    *out = choice == SL_YES || choice == SL_KEY_OR_YES;
    if (!v)
        return SL_OK;
    bool on = sl_json_is(v, SL_JSON_TRUE);
    if (!on && !sl_json_is(v, SL_JSON_FALSE))
        return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: '%s' is neither true nor false", key);
    if ((choice == SL_YES || choice == SL_NO) && on != *out)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED, "config.json: '%s' is %s, family %s has it %s",
                       key, on ? "true" : "false", c->family->name, on ? "never" : "always");
    *out = on;
    return SL_OK;
}

/* ---- layers --------------------------------------------------------------------------------------- */

static void set_layer(sl_model *m, uint32_t i, const sl_layer_type *type) {
    m->mixer[i] = (uint8_t)type->mixer;
    m->windowed[i] = type->windowed;
}

static sl_status read_layer_types(const sl_config *c, sl_model *m) {
    const sl_family *f = c->family;
    const sl_json *types = sl__config_find(c, "layer_types");
    if (!types) {
        uint32_t interval = f->interval;
        if (interval == SL_INTERVAL_REQUIRED)
            return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: 'layer_types' is missing");
        if (interval) {
            const sl_config_number n = {SL_KEYS("full_attention_interval"), &interval, 1,
                                        SL_LAYERS_MAX, true};
            sl_status st = sl__config_numbers(c, &n, 1);
            if (st)
                return st;
        }
        for (uint32_t i = 0; i < m->n_layers; i++)
            set_layer(m, i, &f->layer_types[interval && (i + 1) % interval == 0]);
        return SL_OK;
    }
    if (!sl_json_is(types, SL_JSON_ARRAY) || types->n_children != m->n_layers)
        return sl_fail(c->err, SL_ERR_CORRUPT,
                       "config.json: 'layer_types' must list %u layers, it has %u", m->n_layers,
                       types->n_children);
    uint32_t i = 0;
    for (const sl_json *t = types->child; t; t = t->next, i++) {
        const sl_layer_type *known = f->layer_types;
        while (known->name && !sl_json_text_is(t, known->name))
            known++;
        if (!known->name)
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "config.json: 'layer_types' asks for '%.40s' in layer %u, which family "
                           "%s does not have",
                           t->text ? t->text : "?", i, f->name);
        set_layer(m, i, known);
    }
    return SL_OK;
}

static sl_status read_window(const sl_config *c, sl_model *m) {
    const sl_json *window = sl__config_find(c, "sliding_window"),
                  *use = sl__config_find(c, "use_sliding_window");
    sl_window_rule rule = c->family->window;
    uint32_t n_windowed = sl_model_windowed_count(m);
    bool off = sl_json_is(use, SL_JSON_FALSE) ||
               (rule == SL_WINDOW_IF_USED && !sl_json_is(use, SL_JSON_TRUE));
    if (!window || off) {
        if (n_windowed && rule == SL_WINDOW_BY_TYPE && !window)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "config.json: %u layers have a sliding window, 'sliding_window' is "
                           "missing",
                           n_windowed);
        memset(m->windowed, 0, sizeof(m->windowed));
        return SL_OK;
    }
    if (rule == SL_WINDOW_NEVER)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'sliding_window' is set, which family %s does not have",
                       c->family->name);
    const sl_config_number n = {SL_KEYS("sliding_window"), &m->attn.window, 1, POSITIONS_MAX,
                                false};
    for (uint32_t i = 0; i < m->n_layers && rule != SL_WINDOW_BY_TYPE; i++)
        m->windowed[i] = m->mixer[i] == SL_MIXER_ATTENTION;
    return sl__config_numbers(c, &n, 1);
}

static sl_status read_dense_list(const sl_config *c, sl_model *m) {
    const sl_json *dense = sl__config_find(c, "mlp_only_layers");
    uint32_t step = 1;
    const sl_config_number n = {SL_KEYS("decoder_sparse_step"), &step, 1, SL_LAYERS_MAX, true};
    sl_status st = sl__config_numbers(c, &n, 1);
    if (st)
        return st;
    for (uint32_t i = 0; i < m->n_layers; i++)
        m->ffn[i] = (i + 1) % step == 0 ? SL_FFN_MOE : SL_FFN_DENSE;
    for (const sl_json *v = dense ? dense->child : NULL; v; v = v->next) {
        uint64_t layer;
        if (!sl_json_uint64(v, &layer) || layer >= m->n_layers)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "config.json: 'mlp_only_layers' holds %.40s, expected layers below %u",
                           v->text ? v->text : "no number", m->n_layers);
        m->ffn[layer] = SL_FFN_DENSE;
    }
    return SL_OK;
}

static sl_status read_dense_first(const sl_config *c, sl_model *m) {
    uint32_t n_dense = 0;
    const sl_config_number n = {SL_KEYS("first_k_dense_replace", "num_dense_layers"), &n_dense, 0,
                                m->n_layers, true};
    sl_status st = sl__config_numbers(c, &n, 1);
    for (uint32_t i = 0; i < n_dense; i++)
        m->ffn[i] = SL_FFN_DENSE;
    return st;
}

static sl_status read_layers(const sl_config *c, sl_model *m) {
    sl_status st;
    if ((st = read_layer_types(c, m)) || (st = read_window(c, m)))
        return st;
    if (c->family->dense == SL_DENSE_LIST && (st = read_dense_list(c, m)))
        return st;
    if (c->family->dense == SL_DENSE_FIRST && (st = read_dense_first(c, m)))
        return st;
    if (sl_model_ffn_count(m, SL_FFN_MOE) == 0)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: none of %u layers has experts, which is what this program is "
                       "for",
                       m->n_layers);
    if (sl_model_ffn_count(m, SL_FFN_DENSE) == 0)
        return SL_OK;
    const sl_config_number width = {SL_KEYS("intermediate_size"), &m->d_dense, 32, WIDTH_MAX,
                                    false};
    return sl__config_numbers(c, &width, 1);
}

/* ---- mixers --------------------------------------------------------------------------------------- */

static sl_status read_attention(const sl_config *c, sl_model *m) {
    const sl_family *f = c->family;
    bool qk_norm;
    double clip = 0;
    sl_status st;
    m->attn.n_kv_heads = m->attn.n_heads;
    m->attn.d_head = m->d_model / m->attn.n_heads;
    const sl_config_number heads[] = {
        {SL_KEYS("num_key_value_heads"), &m->attn.n_kv_heads, 1, 1024, true},
        {SL_KEYS("head_dim"), &m->attn.d_head, 16, 512, true},
    };
    if ((st = sl__config_numbers(c, heads, SL_COUNT(heads))))
        return st;
    if (m->attn.n_heads % m->attn.n_kv_heads)
        return sl_fail(c->err, SL_ERR_CORRUPT,
                       "config.json: %u attention heads cannot share %u key/value heads",
                       m->attn.n_heads, m->attn.n_kv_heads);
    if (m->attn.d_head < 16 || m->attn.d_head > 512 || m->attn.d_head % 16)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: heads of %u, supported are multiples of 16 up to 512",
                       m->attn.d_head);
    if ((st = sl__config_choice(c, SL_KEYS("use_qk_norm"), f->use_qk_norm, &qk_norm)) ||
        (st = sl__config_float(c, f->clip ? sl__config_find(c, "clip_qkv") : NULL, "clip_qkv", 0,
                               1e30, &clip)))
        return st;
    m->attn.scale = (float)(1.0 / sqrt((double)m->attn.d_head));
    m->attn.gated = f->attn_gated;
    m->attn.qk_norm = qk_norm ? f->qk_norm : SL_QK_NORM_NONE;
    m->attn.sinks = f->sinks;
    m->attn.clip = (float)clip;
    const sl_json *gate = sl__config_find(c, "attn_output_gate");
    if (gate && f->attn_gated && !sl_json_is(gate, SL_JSON_TRUE))
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'attn_output_gate' is off, family %s has the gate", f->name);
    return SL_OK;
}

static sl_status read_mla(const sl_config *c, sl_model *m) {
    const sl_config_number numbers[] = {
        {SL_KEYS("q_lora_rank"), &m->mla.d_q_latent, 16, WIDTH_MAX, true},
        {SL_KEYS("kv_lora_rank"), &m->mla.d_latent, 16, MLA_ROW_MAX, false},
        {SL_KEYS("qk_nope_head_dim"), &m->mla.d_nope, 16, MLA_ROW_MAX, false},
        {SL_KEYS("qk_rope_head_dim"), &m->mla.d_rope, 2, SL_ROT_MAX, false},
        {SL_KEYS("v_head_dim"), &m->mla.d_v, 16, MLA_ROW_MAX, false},
    };
    sl_status st = sl__config_numbers(c, numbers, SL_COUNT(numbers));
    if (st)
        return st;
    if (m->mla.d_latent + m->mla.d_rope > MLA_ROW_MAX || m->mla.d_latent % 16 || m->mla.d_rope % 2)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'kv_lora_rank' %u with 'qk_rope_head_dim' %u; expected a "
                       "multiple of 16 and an even number, together up to %u",
                       m->mla.d_latent, m->mla.d_rope, MLA_ROW_MAX);
    m->mla.norm_eps = 1e-6f; // whatever rms_norm_eps is, as in the reference implementations
    return SL_OK;
}

static sl_status read_delta(const sl_config *c, sl_model *m) {
    const sl_config_number delta[] = {
        {SL_KEYS("linear_num_key_heads"), &m->delta.n_k_heads, 1, 1024, false},
        {SL_KEYS("linear_num_value_heads"), &m->delta.n_v_heads, 1, 1024, false},
        {SL_KEYS("linear_key_head_dim"), &m->delta.d_k, 4, 1024, false},
        {SL_KEYS("linear_value_head_dim"), &m->delta.d_v, 16, 1024, false},
        {SL_KEYS("linear_conv_kernel_dim"), &m->delta.conv_width, 2, 8, false},
    };
    sl_status st = sl__config_numbers(c, delta, SL_COUNT(delta));
    if (st)
        return st;
    if (m->delta.n_v_heads % m->delta.n_k_heads || m->delta.d_k % 4 || m->delta.d_v % 16)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: linear attention with %u value heads over %u key heads of %u "
                       "x %u; expected whole shares, key size a multiple of 4, value size of 16",
                       m->delta.n_v_heads, m->delta.n_k_heads, m->delta.d_k, m->delta.d_v);
    return SL_OK;
}

static sl_status read_conv(const sl_config *c, sl_model *m) {
    const sl_config_number width = {SL_KEYS("conv_L_cache"), &m->conv.width, 2, 8, false};
    sl_status st = sl__config_numbers(c, &width, 1);
    return st ? st
              : sl__config_choice(c, SL_KEYS("conv_bias"),
                                  c->family->conv_bias ? SL_KEY_OR_NO : SL_NO, &m->conv.bias);
}

static sl_status read_mixers(const sl_config *c, sl_model *m) {
    static sl_status (*const readers[SL_MIXER_COUNT])(const sl_config *, sl_model *) = {
        [SL_MIXER_ATTENTION] = read_attention,
        [SL_MIXER_MLA] = read_mla,
        [SL_MIXER_DELTA] = read_delta,
        [SL_MIXER_CONV] = read_conv,
    };
    for (unsigned i = 0; i < SL_MIXER_COUNT; i++) {
        sl_status st;
        if (sl_model_mixer_count(m, (sl_mixer)i) && (st = readers[i](c, m)))
            return st;
    }
    double mla_scale = 1;
    sl_status st = SL_OK;
    if (sl_model_mixer_count(m, SL_MIXER_ATTENTION) || sl_model_mixer_count(m, SL_MIXER_MLA))
        st = sl__config_rope(c, m, &mla_scale);
    if (st)
        return st;
    if (sl_model_mixer_count(m, SL_MIXER_MLA))
        m->attn.scale = (float)(mla_scale / sqrt((double)(m->mla.d_nope + m->mla.d_rope)));
    bool bias;
    st = sl__config_choice(c, SL_KEYS("attention_bias"), c->family->attn_bias, &bias);
    m->attn.qkv_bias = bias;
    m->attn.out_bias = bias && c->family->attn_out_bias;
    return st;
}

/* ---- experts -------------------------------------------------------------------------------------- */

static sl_status read_groups(const sl_config *c, sl_model *m) {
    m->moe.n_groups = m->moe.groups_kept = 1;
    if (!c->family->groups)
        return SL_OK;
    const sl_config_number groups[] = {
        {SL_KEYS("n_group"), &m->moe.n_groups, 1, 4096, true},
        {SL_KEYS("topk_group"), &m->moe.groups_kept, 1, 4096, true},
    };
    sl_status st = sl__config_numbers(c, groups, SL_COUNT(groups));
    if (st)
        return st;
    uint32_t in_group = m->moe.n_experts / m->moe.n_groups;
    if (m->moe.n_groups > SL_GROUPS_MAX || m->moe.n_experts % m->moe.n_groups ||
        m->moe.groups_kept > m->moe.n_groups || (m->moe.n_groups > 1 && in_group < 2) ||
        m->moe.groups_kept * in_group < m->moe.top_k)
        return sl_fail(c->err, SL_ERR_CORRUPT,
                       "config.json: %u of %u groups of %u experts for %u picks: expected up to %u "
                       "equal groups of at least 2, and enough experts in those that are kept",
                       m->moe.groups_kept, m->moe.n_groups, m->moe.n_experts, m->moe.top_k,
                       SL_GROUPS_MAX);
    return SL_OK;
}

// Keys that name the way to score and choose: the family has one.
static sl_status check_scoring(const sl_config *c) {
    bool sigmoid = c->family->score == SL_ROUTER_SIGMOID;
    const struct {
        const char *key, *value;
    } words[] = {{"scoring_func", sigmoid ? "sigmoid" : "softmax"},
                 {"topk_method", sigmoid ? "noaux_tc" : "greedy"}};
    for (size_t i = 0; i < SL_COUNT(words); i++) {
        const sl_json *v = sl__config_find(c, words[i].key);
        if (v && !sl_json_text_is(v, words[i].value))
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "config.json: '%s' is '%.40s', family %s has '%s'", words[i].key,
                           v->text ? v->text : "?", c->family->name, words[i].value);
    }
    return SL_OK;
}

static sl_status read_router(const sl_config *c, sl_model *m) {
    const sl_family *f = c->family;
    double scale = 1;
    sl_status st;
    m->moe.score = f->score;
    m->moe.router_bias = f->router_bias;
    m->moe.renorm_eps = f->renorm_eps;
    if ((st = check_scoring(c)) || (st = read_groups(c, m)) ||
        (st = sl__config_choice(c, SL_KEYS("use_expert_bias"), f->selection_bias,
                                &m->moe.selection_bias)) ||
        (st = sl__config_float(c,
                               f->route_scale ? sl__config_find(c, "routed_scaling_factor") : NULL,
                               "routed_scaling_factor", 0, 1e6, &scale)))
        return st;
    m->moe.route_scale = (float)scale;
    // A family that renormalises whatever the key says: so does its reference implementation.
    if (f->renorm == SL_YES) {
        const sl_json *renorm = sl__config_find(c, "norm_topk_prob");
        m->moe.renorm = true;
        if (c->notes && renorm && !sl_json_is(renorm, SL_JSON_TRUE))
            sl_buf_add_text(c->notes, "config.json: norm_topk_prob is ignored, as in the reference "
                                      "implementation\n");
        return SL_OK;
    }
    return sl__config_choice(c, SL_KEYS("norm_topk_prob"), f->renorm, &m->moe.renorm);
}

static sl_status read_shared(const sl_config *c, sl_model *m) {
    uint32_t n = 0;
    const sl_config_number width = {SL_KEYS("shared_expert_intermediate_size"), &m->moe.d_shared, 0,
                                    WIDTH_MAX, true},
                           count = {SL_KEYS("n_shared_experts"), &n, 0, 64, true};
    m->moe.shared_gate = c->family->shared_gate;
    if (c->family->shared == SL_SHARED_WIDTH)
        return sl__config_numbers(c, &width, 1);
    if (c->family->shared == SL_SHARED_NEVER)
        return SL_OK;
    sl_status st = sl__config_numbers(c, &count, 1);
    m->moe.d_shared = n * m->moe.d_expert;
    return st;
}

static sl_status read_experts(const sl_config *c, sl_model *m) {
    const sl_family *f = c->family;
    const sl_config_number numbers[] = {
        {SL_KEYS("num_experts", "n_routed_experts", "num_local_experts"), &m->moe.n_experts, 1,
         SL_EXPERTS_MAX, false},
        {SL_KEYS("num_experts_per_tok", "top_k_experts", "experts_per_token"), &m->moe.top_k, 1,
         SL_TOP_K_MAX, false},
        {SL_KEYS("moe_intermediate_size", "intermediate_size"), &m->moe.d_expert, 32, WIDTH_MAX,
         false},
    };
    sl_status st = sl__config_numbers(c, numbers, SL_COUNT(numbers));
    if (st)
        return st;
    if (m->moe.top_k > m->moe.n_experts)
        return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: %u experts per token of only %u",
                       m->moe.top_k, m->moe.n_experts);
    double limit = (double)f->swiglu_limit, alpha = (double)f->swiglu_alpha;
    m->moe.activation = f->activation;
    m->moe.expert_bias = f->expert_bias;
    if (f->activation == SL_ACTIVATION_SWIGLU_CLAMPED &&
        ((st = sl__config_float(c, sl__config_find(c, "swiglu_limit"), "swiglu_limit", 1e-6, 1e6,
                                &limit)) ||
         (st = sl__config_float(c, sl__config_find(c, "swiglu_alpha"), "swiglu_alpha", 1e-6, 1e6,
                                &alpha))))
        return st;
    m->moe.swiglu_limit = (float)limit;
    m->moe.swiglu_alpha = (float)alpha;
    const sl_json *act = sl__config_find(c, "hidden_act");
    if (act && !sl_json_text_is(act, "silu") && !sl_json_text_is(act, "swish"))
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'hidden_act' is '%.40s', supported is silu",
                       act->text ? act->text : "?");
    return (st = read_shared(c, m)) ? st : read_router(c, m);
}

/* ---- end tokens ----------------------------------------------------------------------------------- */

static sl_status add_stop_token(const sl_config *c, const sl_json *v, sl_model *m) {
    uint64_t id;
    if (!sl_json_uint64(v, &id))
        return sl_fail(c->err, SL_ERR_CORRUPT, "eos_token_id is %.40s, expected a token's id",
                       v->text ? v->text : "no number");
    if (id >= m->n_vocab) { // no token ends an answer by it
        if (c->notes)
            sl_buf_printf(c->notes, "eos_token_id %llu is not in the vocabulary of %u: left out\n",
                          (unsigned long long)id, m->n_vocab);
        return SL_OK;
    }
    if (sl_model_is_stop_token(m, (uint32_t)id))
        return SL_OK;
    if (m->n_stop_tokens == SL_STOP_TOKENS_MAX)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED, "more than %u end tokens", SL_STOP_TOKENS_MAX);
    m->stop_tokens[m->n_stop_tokens++] = (uint32_t)id;
    return SL_OK;
}

// An id or a list of ids; absent is fine.
static sl_status add_stop_tokens(const sl_config *c, const sl_json *section, sl_model *m) {
    const sl_json *v = sl_json_member_set(section, "eos_token_id");
    if (!v)
        return SL_OK;
    if (!sl_json_is(v, SL_JSON_ARRAY))
        return add_stop_token(c, v, m);
    for (const sl_json *id = v->child; id; id = id->next) {
        sl_status st = add_stop_token(c, id, m);
        if (st)
            return st;
    }
    return SL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------- */

static bool find_family(const sl_json *type, const sl_family **out) {
    for (uint32_t i = 0; i < sl_n_families; i++) {
        *out = sl_families[i];
        for (const char *const *t = (*out)->model_types; *t; t++)
            if (sl_json_text_is(type, *t))
                return true;
    }
    return false;
}

static sl_status unknown_family(const sl_json *type, sl_error *err) {
    char known[256] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < sl_n_families && n < sizeof(known); i++)
        n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%s", i ? ", " : "",
                              sl_families[i]->name);
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "config.json: 'model_type' is '%.60s'; this version runs %s",
                   type->text ? type->text : "", known);
}

static sl_status read_model(const sl_config *c, sl_model *m) {
    double eps = 0;
    const char *eps_key = "rms_norm_eps";
    const sl_json *eps_value =
        sl__config_find_any(c, SL_KEYS("rms_norm_eps", "norm_eps"), &eps_key);
    const sl_config_number numbers[] = {
        {SL_KEYS("num_hidden_layers"), &m->n_layers, 1, SL_LAYERS_MAX, false},
        {SL_KEYS("hidden_size"), &m->d_model, 32, WIDTH_MAX, false},
        {SL_KEYS("vocab_size"), &m->n_vocab, 2, DIM_MAX, false},
        {SL_KEYS("max_position_embeddings"), &m->n_ctx_max, 1, POSITIONS_MAX, false},
        {SL_KEYS("num_attention_heads"), &m->attn.n_heads, 1, 1024, false},
    };
    sl_status st;
    if ((st = sl__config_numbers(c, numbers, SL_COUNT(numbers))) || (st = read_layers(c, m)) ||
        (st = read_mixers(c, m)) || (st = read_experts(c, m)))
        return st;
    if (!eps_value)
        return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: 'rms_norm_eps' is missing");
    if ((st = sl__config_float(c, eps_value, eps_key, 0, 1, &eps)))
        return st;
    m->norm_eps = (float)eps;
    const sl_config_number mtp = {SL_KEYS("num_nextn_predict_layers", "mtp_num_hidden_layers"),
                                  &m->n_mtp_layers, 0, SL_LAYERS_MAX, true};
    m->vision = sl__config_find(c, "vision_config") != NULL;
    if ((st = sl__config_numbers(c, &mtp, 1)))
        return st;
    return sl__config_choice(c, SL_KEYS("tie_word_embeddings", "tie_embedding"),
                             c->family->tied_head, &m->tied_head);
}

sl_status sl_model_from_config(const sl_json *config, const sl_json *generation_config, sl_model *m,
                               sl_buf *notes, sl_error *err) {
    sl_status st;
    memset(m, 0, sizeof(*m));
    if (!sl_json_is(config, SL_JSON_OBJECT))
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: expected an object");
    const sl_json *text = sl_json_member_set(config, "text_config");
    const sl_json *type = sl_json_member_set(config, "model_type");
    if (!sl_json_is(type, SL_JSON_STRING))
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: 'model_type' is missing");
    const sl_family *f;
    if (!find_family(type, &f))
        return unknown_family(type, err);
    m->family = f;
    const sl_config c = {sl_json_is(text, SL_JSON_OBJECT) ? text : config, config, f, notes, err};
    if ((st = sl__config_check_keys(&c, config)) ||
        (c.text != config && (st = sl__config_check_keys(&c, c.text))) || (st = read_model(&c, m)))
        return st;
    if ((st = add_stop_tokens(&c, generation_config, m)) || (st = add_stop_tokens(&c, config, m)) ||
        (c.text != config && (st = add_stop_tokens(&c, c.text, m))))
        return st;
    return SL_OK;
}

/* ---- counts ----------------------------------------------------------------------------------------- */

const char *sl_model_family_name(const sl_model *model) {
    return model->family->name;
}

bool sl_model_is_stop_token(const sl_model *m, uint32_t token) {
    for (uint32_t i = 0; i < m->n_stop_tokens; i++)
        if (m->stop_tokens[i] == token)
            return true;
    return false;
}

uint32_t sl_model_conv_channels(const sl_model *m) {
    return 2 * m->delta.n_k_heads * m->delta.d_k + m->delta.n_v_heads * m->delta.d_v;
}

static uint32_t count(const sl_model *m, const uint8_t *kinds, uint8_t kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_layers; i++)
        n += kinds[i] == kind;
    return n;
}

uint32_t sl_model_mixer_count(const sl_model *m, sl_mixer mixer) {
    return count(m, m->mixer, (uint8_t)mixer);
}

uint32_t sl_model_ffn_count(const sl_model *m, sl_ffn ffn) {
    return count(m, m->ffn, (uint8_t)ffn);
}

uint32_t sl_model_windowed_count(const sl_model *m) {
    return count(m, m->windowed, 1);
}

uint32_t sl_model_d_inner(const sl_model *m) {
    return SL_MAX(m->d_dense, SL_MAX(m->moe.d_expert, m->moe.d_shared));
}
