/* The list of a model's tensors: names from the family's table, shapes from the descriptor. */
#include <stdio.h>
#include <string.h>

#include "model/family.h"

static const char *const role_names[SL_ROLE_COUNT] = {
    [SL_ROLE_EMBED] = "embed",
    [SL_ROLE_NORM_FINAL] = "norm_final",
    [SL_ROLE_HEAD] = "head",
    [SL_ROLE_NORM_MIXER] = "norm_mixer",
    [SL_ROLE_NORM_FFN] = "norm_ffn",
    [SL_ROLE_ATTN_Q] = "attn_q",
    [SL_ROLE_ATTN_K] = "attn_k",
    [SL_ROLE_ATTN_V] = "attn_v",
    [SL_ROLE_ATTN_O] = "attn_o",
    [SL_ROLE_ATTN_Q_NORM] = "attn_q_norm",
    [SL_ROLE_ATTN_K_NORM] = "attn_k_norm",
    [SL_ROLE_DELTA_QKV] = "delta_qkv",
    [SL_ROLE_DELTA_Z] = "delta_z",
    [SL_ROLE_DELTA_A] = "delta_a",
    [SL_ROLE_DELTA_B] = "delta_b",
    [SL_ROLE_DELTA_CONV] = "delta_conv",
    [SL_ROLE_DELTA_A_LOG] = "delta_a_log",
    [SL_ROLE_DELTA_DT_BIAS] = "delta_dt_bias",
    [SL_ROLE_DELTA_NORM] = "delta_norm",
    [SL_ROLE_DELTA_OUT] = "delta_out",
    [SL_ROLE_ROUTER] = "router",
    [SL_ROLE_SHARED_GATE] = "shared_gate",
    [SL_ROLE_SHARED_GATE_PROJ] = "shared_gate_proj",
    [SL_ROLE_SHARED_UP_PROJ] = "shared_up_proj",
    [SL_ROLE_SHARED_DOWN_PROJ] = "shared_down_proj",
    [SL_ROLE_EXPERT_GATE_PROJ] = "expert_gate_proj",
    [SL_ROLE_EXPERT_UP_PROJ] = "expert_up_proj",
    [SL_ROLE_EXPERT_DOWN_PROJ] = "expert_down_proj",
};

const char *sl_role_name(sl_role role) {
    return role_names[role];
}

static void shape_of(const sl_model *m, sl_role role, uint32_t *rows, uint32_t *cols) {
    uint32_t q = m->attn.n_heads * m->attn.d_head, kv = m->attn.n_kv_heads * m->attn.d_head;
    uint32_t v = m->delta.n_v_heads * m->delta.d_v;
    *rows = 1;
    *cols = m->d_model;
    switch (role) {
    case SL_ROLE_EMBED:
    case SL_ROLE_HEAD:
        *rows = m->n_vocab;
        break;
    case SL_ROLE_NORM_FINAL:
    case SL_ROLE_NORM_MIXER:
    case SL_ROLE_NORM_FFN:
    case SL_ROLE_SHARED_GATE:
        break;
    case SL_ROLE_ATTN_Q:
        *rows = m->attn.gated ? 2 * q : q;
        break;
    case SL_ROLE_ATTN_K:
    case SL_ROLE_ATTN_V:
        *rows = kv;
        break;
    case SL_ROLE_ATTN_O:
        *rows = m->d_model;
        *cols = q;
        break;
    case SL_ROLE_ATTN_Q_NORM:
    case SL_ROLE_ATTN_K_NORM:
        *cols = m->attn.d_head;
        break;
    case SL_ROLE_DELTA_QKV:
        *rows = sl_model_conv_channels(m);
        break;
    case SL_ROLE_DELTA_Z:
        *rows = v;
        break;
    case SL_ROLE_DELTA_A:
    case SL_ROLE_DELTA_B:
        *rows = m->delta.n_v_heads;
        break;
    case SL_ROLE_DELTA_CONV:
        *rows = m->delta.conv_width;
        *cols = sl_model_conv_channels(m);
        break;
    case SL_ROLE_DELTA_A_LOG:
    case SL_ROLE_DELTA_DT_BIAS:
        *cols = m->delta.n_v_heads;
        break;
    case SL_ROLE_DELTA_NORM:
        *cols = m->delta.d_v;
        break;
    case SL_ROLE_DELTA_OUT:
        *rows = m->d_model;
        *cols = v;
        break;
    case SL_ROLE_ROUTER:
        *rows = m->moe.n_experts;
        break;
    case SL_ROLE_SHARED_GATE_PROJ:
    case SL_ROLE_SHARED_UP_PROJ:
        *rows = m->moe.d_shared;
        break;
    case SL_ROLE_SHARED_DOWN_PROJ:
        *rows = m->d_model;
        *cols = m->moe.d_shared;
        break;
    case SL_ROLE_EXPERT_GATE_PROJ:
    case SL_ROLE_EXPERT_UP_PROJ:
        *rows = m->moe.d_expert;
        break;
    case SL_ROLE_EXPERT_DOWN_PROJ:
        *rows = m->d_model;
        *cols = m->moe.d_expert;
        break;
    case SL_ROLE_COUNT:
        break;
    }
}

static bool is_layer_scope(sl_tensor_scope scope) {
    return scope != SL_IN_MODEL && scope != SL_IN_HEAD;
}

static bool layer_has(const sl_model *m, const sl_tensor_name *t, uint32_t layer) {
    switch (t->scope) {
    case SL_IN_LAYER:
        return true;
    case SL_IN_ATTENTION:
        return m->mixer[layer] == SL_MIXER_ATTENTION;
    case SL_IN_QK_NORM:
        return m->mixer[layer] == SL_MIXER_ATTENTION && m->attn.qk_norm;
    case SL_IN_DELTA:
        return m->mixer[layer] == SL_MIXER_DELTA;
    case SL_IN_SHARED:
        return m->moe.d_shared > 0;
    case SL_IN_SHARED_GATE:
        return m->moe.d_shared > 0 && m->moe.shared_gate;
    case SL_IN_MODEL:
    case SL_IN_HEAD:
        break;
    }
    return false;
}

static void fill(const sl_model *m, const sl_tensor_name *t, uint32_t layer, sl_tensor_spec *out) {
    memset(out, 0, sizeof(*out));
    out->role = t->role;
    out->kind = t->kind;
    out->layer = layer;
    out->zero_centred = t->flags & SL_TENSOR_ZERO_CENTRED;
    out->router = t->flags & SL_TENSOR_ROUTER;
    shape_of(m, t->role, &out->rows, &out->cols);
    if (is_layer_scope(t->scope))
        (void)snprintf(out->name, sizeof(out->name), "layers.%u.%s", layer, t->name);
    else if (t->scope == SL_IN_HEAD && m->tied_head)
        (void)snprintf(out->name, sizeof(out->name), "%s", m->family->tensors[0].name);
    else
        (void)snprintf(out->name, sizeof(out->name), "%s", t->name);
}

/* Walk the list up to `index`; returns how many tensors there are up to there. The family's table holds
 * the model's tensors around one contiguous run of layer tensors, which repeats for every layer. */
static uint32_t walk(const sl_model *m, uint32_t index, sl_tensor_spec *out) {
    const sl_family *f = m->family;
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->n_tensors;) {
        const sl_tensor_name *t = &f->tensors[i];
        if (!is_layer_scope(t->scope)) {
            if (at++ == index) {
                fill(m, t, 0, out);
                return at;
            }
            i++;
            continue;
        }
        uint32_t end = i;
        while (end < f->n_tensors && is_layer_scope(f->tensors[end].scope))
            end++;
        for (uint32_t layer = 0; layer < m->n_layers; layer++) {
            for (uint32_t j = i; j < end; j++) {
                if (layer_has(m, &f->tensors[j], layer) && at++ == index) {
                    fill(m, &f->tensors[j], layer, out);
                    return at;
                }
            }
        }
        i = end;
    }
    return at;
}

uint32_t sl_model_tensors(const sl_model *model) {
    return walk(model, UINT32_MAX, NULL);
}

void sl_model_tensor(const sl_model *model, uint32_t index, sl_tensor_spec *out) {
    (void)walk(model, index, out);
}

const char *const *sl_model_name_prefixes(const sl_model *model) {
    return model->family->prefixes;
}
const char *const *sl_model_head_prefixes(const sl_model *model) {
    return model->family->head_prefixes;
}
const char *const *sl_model_unused_prefixes(const sl_model *model) {
    return model->family->unused_prefixes;
}

void sl_tensor_expert_names(const sl_model *model, const sl_tensor_spec *spec, uint32_t expert,
                            sl_expert_names *out) {
    const sl_family *f = model->family;
    // spec->name is "layers.<l>.<projection>": the projection is what follows the second dot.
    const char *projection = strrchr(spec->name, '.') + 1;
    char tail[80];
    memset(out, 0, sizeof(*out));
    (void)snprintf(tail, sizeof(tail), f->experts_stacked, projection);
    (void)snprintf(out->stacked, sizeof(out->stacked), "layers.%u.%s", spec->layer, tail);
    (void)snprintf(tail, sizeof(tail), f->experts_single, expert, projection);
    (void)snprintf(out->single, sizeof(out->single), "layers.%u.%s", spec->layer, tail);
    bool down = spec->role == SL_ROLE_EXPERT_DOWN_PROJ;
    (void)snprintf(out->fused, sizeof(out->fused), "layers.%u.%s", spec->layer,
                   down ? f->experts_fused_down : f->experts_fused_gate_up);
    out->fused_row = spec->role == SL_ROLE_EXPERT_UP_PROJ ? spec->rows : 0;
    out->fused_rows = down ? spec->rows : 2 * spec->rows;
}
