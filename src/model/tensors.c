/* The list of a model's tensors: roles and names from the family's tables, shapes from the descriptor. */
#include <stdio.h>
#include <string.h>

#include "model/family.h"

static const struct {
    const char *name;
    sl_tensor_kind kind;
} roles[SL_ROLE_COUNT] = {
    [SL_ROLE_EMBED] = {"embed", SL_TENSOR_MATRIX},
    [SL_ROLE_NORM_FINAL] = {"norm_final", SL_TENSOR_VECTOR},
    [SL_ROLE_HEAD] = {"head", SL_TENSOR_MATRIX},
    [SL_ROLE_NORM_MIXER] = {"norm_mixer", SL_TENSOR_VECTOR},
    [SL_ROLE_NORM_FFN] = {"norm_ffn", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_Q] = {"attn_q", SL_TENSOR_MATRIX},
    [SL_ROLE_ATTN_K] = {"attn_k", SL_TENSOR_MATRIX},
    [SL_ROLE_ATTN_V] = {"attn_v", SL_TENSOR_MATRIX},
    [SL_ROLE_ATTN_O] = {"attn_o", SL_TENSOR_MATRIX},
    [SL_ROLE_ATTN_Q_BIAS] = {"attn_q_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_K_BIAS] = {"attn_k_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_V_BIAS] = {"attn_v_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_O_BIAS] = {"attn_o_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_Q_NORM] = {"attn_q_norm", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_K_NORM] = {"attn_k_norm", SL_TENSOR_VECTOR},
    [SL_ROLE_ATTN_SINKS] = {"attn_sinks", SL_TENSOR_VECTOR},
    [SL_ROLE_MLA_Q] = {"mla_q", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_Q_A] = {"mla_q_a", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_Q_A_BIAS] = {"mla_q_a_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_MLA_Q_A_NORM] = {"mla_q_a_norm", SL_TENSOR_VECTOR},
    [SL_ROLE_MLA_KV_A] = {"mla_kv_a", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_KV_A_BIAS] = {"mla_kv_a_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_MLA_KV_A_NORM] = {"mla_kv_a_norm", SL_TENSOR_VECTOR},
    [SL_ROLE_MLA_EMBED_Q] = {"mla_embed_q", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_UNEMBED] = {"mla_unembed", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_O] = {"mla_o", SL_TENSOR_MATRIX},
    [SL_ROLE_MLA_O_BIAS] = {"mla_o_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_DELTA_QKV] = {"delta_qkv", SL_TENSOR_MATRIX},
    [SL_ROLE_DELTA_Z] = {"delta_z", SL_TENSOR_MATRIX},
    [SL_ROLE_DELTA_A] = {"delta_a", SL_TENSOR_MATRIX},
    [SL_ROLE_DELTA_B] = {"delta_b", SL_TENSOR_MATRIX},
    [SL_ROLE_DELTA_CONV] = {"delta_conv", SL_TENSOR_CONV},
    [SL_ROLE_DELTA_A_LOG] = {"delta_a_log", SL_TENSOR_VECTOR},
    [SL_ROLE_DELTA_DT_BIAS] = {"delta_dt_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_DELTA_NORM] = {"delta_norm", SL_TENSOR_VECTOR},
    [SL_ROLE_DELTA_OUT] = {"delta_out", SL_TENSOR_MATRIX},
    [SL_ROLE_CONV_IN] = {"conv_in", SL_TENSOR_MATRIX},
    [SL_ROLE_CONV_IN_BIAS] = {"conv_in_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_CONV_TAPS] = {"conv_taps", SL_TENSOR_CONV},
    [SL_ROLE_CONV_BIAS] = {"conv_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_CONV_OUT] = {"conv_out", SL_TENSOR_MATRIX},
    [SL_ROLE_CONV_OUT_BIAS] = {"conv_out_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_DENSE_GATE_PROJ] = {"dense_gate_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_DENSE_UP_PROJ] = {"dense_up_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_DENSE_DOWN_PROJ] = {"dense_down_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_ROUTER] = {"router", SL_TENSOR_MATRIX},
    [SL_ROLE_ROUTER_BIAS] = {"router_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_ROUTER_SELECTION_BIAS] = {"router_selection_bias", SL_TENSOR_VECTOR},
    [SL_ROLE_SHARED_GATE] = {"shared_gate", SL_TENSOR_MATRIX},
    [SL_ROLE_SHARED_GATE_PROJ] = {"shared_gate_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_SHARED_UP_PROJ] = {"shared_up_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_SHARED_DOWN_PROJ] = {"shared_down_proj", SL_TENSOR_MATRIX},
    [SL_ROLE_EXPERT_GATE_PROJ] = {"expert_gate_proj", SL_TENSOR_EXPERT},
    [SL_ROLE_EXPERT_UP_PROJ] = {"expert_up_proj", SL_TENSOR_EXPERT},
    [SL_ROLE_EXPERT_DOWN_PROJ] = {"expert_down_proj", SL_TENSOR_EXPERT},
    [SL_ROLE_EXPERT_GATE_BIAS] = {"expert_gate_bias", SL_TENSOR_EXPERT_VECTOR},
    [SL_ROLE_EXPERT_UP_BIAS] = {"expert_up_bias", SL_TENSOR_EXPERT_VECTOR},
    [SL_ROLE_EXPERT_DOWN_BIAS] = {"expert_down_bias", SL_TENSOR_EXPERT_VECTOR},
};

const char *sl_role_name(sl_role role) {
    return roles[role].name;
}

sl_tensor_kind sl_role_kind(sl_role role) {
    return roles[role].kind;
}

static void shape_of(const sl_model *m, sl_role role, uint32_t *rows, uint32_t *cols) {
    uint32_t q = m->attn.n_heads * m->attn.d_head, kv = m->attn.n_kv_heads * m->attn.d_head;
    uint32_t v = m->delta.n_v_heads * m->delta.d_v;
    bool all = m->attn.qk_norm == SL_QK_NORM_ALL;
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
    case SL_ROLE_ATTN_O_BIAS:
    case SL_ROLE_MLA_O_BIAS:
    case SL_ROLE_CONV_BIAS:
    case SL_ROLE_CONV_OUT_BIAS:
    case SL_ROLE_EXPERT_DOWN_BIAS:
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
    case SL_ROLE_ATTN_Q_BIAS:
        *cols = m->attn.gated ? 2 * q : q;
        break;
    case SL_ROLE_ATTN_K_BIAS:
    case SL_ROLE_ATTN_V_BIAS:
        *cols = kv;
        break;
    case SL_ROLE_ATTN_Q_NORM:
        *cols = all ? q : m->attn.d_head;
        break;
    case SL_ROLE_ATTN_K_NORM:
        *cols = all ? kv : m->attn.d_head;
        break;
    case SL_ROLE_ATTN_SINKS:
        *cols = m->attn.n_heads;
        break;
    case SL_ROLE_MLA_Q:
        *rows = m->attn.n_heads * (m->mla.d_nope + m->mla.d_rope);
        *cols = m->mla.d_q_latent ? m->mla.d_q_latent : m->d_model;
        break;
    case SL_ROLE_MLA_Q_A:
        *rows = m->mla.d_q_latent;
        break;
    case SL_ROLE_MLA_Q_A_BIAS:
    case SL_ROLE_MLA_Q_A_NORM:
        *cols = m->mla.d_q_latent;
        break;
    case SL_ROLE_MLA_KV_A:
        *rows = m->mla.d_latent + m->mla.d_rope;
        break;
    case SL_ROLE_MLA_KV_A_BIAS:
        *cols = m->mla.d_latent + m->mla.d_rope;
        break;
    case SL_ROLE_MLA_KV_A_NORM:
        *cols = m->mla.d_latent;
        break;
    case SL_ROLE_MLA_EMBED_Q:
        *rows = m->attn.n_heads * m->mla.d_latent;
        *cols = m->mla.d_nope;
        break;
    case SL_ROLE_MLA_UNEMBED:
        *rows = m->attn.n_heads * m->mla.d_v;
        *cols = m->mla.d_latent;
        break;
    case SL_ROLE_MLA_O:
        *rows = m->d_model;
        *cols = m->attn.n_heads * m->mla.d_v;
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
    case SL_ROLE_CONV_IN:
        *rows = 3 * m->d_model;
        break;
    case SL_ROLE_CONV_IN_BIAS:
        *cols = 3 * m->d_model;
        break;
    case SL_ROLE_CONV_TAPS:
        *rows = m->conv.width;
        break;
    case SL_ROLE_CONV_OUT:
        *rows = m->d_model;
        break;
    case SL_ROLE_DENSE_GATE_PROJ:
    case SL_ROLE_DENSE_UP_PROJ:
        *rows = m->d_dense;
        break;
    case SL_ROLE_DENSE_DOWN_PROJ:
        *rows = m->d_model;
        *cols = m->d_dense;
        break;
    case SL_ROLE_ROUTER:
        *rows = m->moe.n_experts;
        break;
    case SL_ROLE_ROUTER_BIAS:
    case SL_ROLE_ROUTER_SELECTION_BIAS:
        *cols = m->moe.n_experts;
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
    case SL_ROLE_EXPERT_GATE_BIAS:
    case SL_ROLE_EXPERT_UP_BIAS:
        *cols = m->moe.d_expert;
        break;
    case SL_ROLE_COUNT:
        break;
    }
}

static bool layer_has(const sl_model *m, sl_role role, uint32_t layer) {
    bool attention = m->mixer[layer] == SL_MIXER_ATTENTION, mla = m->mixer[layer] == SL_MIXER_MLA,
         conv = m->mixer[layer] == SL_MIXER_CONV, moe = m->ffn[layer] == SL_FFN_MOE;
    switch (role) {
    case SL_ROLE_NORM_MIXER:
    case SL_ROLE_NORM_FFN:
        return true;
    case SL_ROLE_ATTN_Q:
    case SL_ROLE_ATTN_K:
    case SL_ROLE_ATTN_V:
    case SL_ROLE_ATTN_O:
        return attention;
    case SL_ROLE_ATTN_Q_BIAS:
    case SL_ROLE_ATTN_K_BIAS:
    case SL_ROLE_ATTN_V_BIAS:
        return attention && m->attn.qkv_bias;
    case SL_ROLE_ATTN_O_BIAS:
        return attention && m->attn.out_bias;
    case SL_ROLE_ATTN_Q_NORM:
    case SL_ROLE_ATTN_K_NORM:
        return attention && m->attn.qk_norm != SL_QK_NORM_NONE;
    case SL_ROLE_ATTN_SINKS:
        return attention && m->attn.sinks;
    case SL_ROLE_MLA_Q:
    case SL_ROLE_MLA_KV_A:
    case SL_ROLE_MLA_KV_A_NORM:
    case SL_ROLE_MLA_EMBED_Q:
    case SL_ROLE_MLA_UNEMBED:
    case SL_ROLE_MLA_O:
        return mla;
    case SL_ROLE_MLA_Q_A:
    case SL_ROLE_MLA_Q_A_NORM:
        return mla && m->mla.d_q_latent > 0;
    case SL_ROLE_MLA_Q_A_BIAS:
        return mla && m->mla.d_q_latent > 0 && m->attn.qkv_bias;
    case SL_ROLE_MLA_KV_A_BIAS:
        return mla && m->attn.qkv_bias;
    case SL_ROLE_MLA_O_BIAS:
        return mla && m->attn.out_bias;
    case SL_ROLE_DELTA_QKV:
    case SL_ROLE_DELTA_Z:
    case SL_ROLE_DELTA_A:
    case SL_ROLE_DELTA_B:
    case SL_ROLE_DELTA_CONV:
    case SL_ROLE_DELTA_A_LOG:
    case SL_ROLE_DELTA_DT_BIAS:
    case SL_ROLE_DELTA_NORM:
    case SL_ROLE_DELTA_OUT:
        return m->mixer[layer] == SL_MIXER_DELTA;
    case SL_ROLE_CONV_IN:
    case SL_ROLE_CONV_TAPS:
    case SL_ROLE_CONV_OUT:
        return conv;
    case SL_ROLE_CONV_IN_BIAS:
    case SL_ROLE_CONV_BIAS:
    case SL_ROLE_CONV_OUT_BIAS:
        return conv && m->conv.bias;
    case SL_ROLE_DENSE_GATE_PROJ:
    case SL_ROLE_DENSE_UP_PROJ:
    case SL_ROLE_DENSE_DOWN_PROJ:
        return !moe;
    case SL_ROLE_ROUTER:
    case SL_ROLE_EXPERT_GATE_PROJ:
    case SL_ROLE_EXPERT_UP_PROJ:
    case SL_ROLE_EXPERT_DOWN_PROJ:
        return moe;
    case SL_ROLE_ROUTER_BIAS:
        return moe && m->moe.router_bias;
    case SL_ROLE_ROUTER_SELECTION_BIAS:
        return moe && m->moe.selection_bias;
    case SL_ROLE_SHARED_GATE:
        return moe && m->moe.d_shared > 0 && m->moe.shared_gate;
    case SL_ROLE_SHARED_GATE_PROJ:
    case SL_ROLE_SHARED_UP_PROJ:
    case SL_ROLE_SHARED_DOWN_PROJ:
        return moe && m->moe.d_shared > 0;
    case SL_ROLE_EXPERT_GATE_BIAS:
    case SL_ROLE_EXPERT_UP_BIAS:
    case SL_ROLE_EXPERT_DOWN_BIAS:
        return moe && m->moe.expert_bias;
    case SL_ROLE_EMBED:
    case SL_ROLE_NORM_FINAL:
    case SL_ROLE_HEAD:
    case SL_ROLE_COUNT:
        break;
    }
    return false;
}

static void fill(const sl_model *m, const sl_tensor_row *row, uint32_t layer, sl_tensor_spec *out) {
    memset(out, 0, sizeof(*out));
    out->role = row->role;
    out->kind = roles[row->role].kind;
    out->layer = layer;
    out->zero_centred = row->zero_centred;
    out->precision = row->precision;
    shape_of(m, row->role, &out->rows, &out->cols);
}

/* Walk the list up to `index`; returns how many tensors there are up to there. */
static uint32_t walk(const sl_model *m, uint32_t index, sl_tensor_spec *out) {
    const sl_family *f = m->family;
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->first.n; i++) {
        if (at++ == index) {
            fill(m, &f->first.rows[i], 0, out);
            return at;
        }
    }
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        for (const sl_tensor_block *const *b = f->layer; *b; b++) {
            for (uint32_t i = 0; i < (*b)->n; i++) {
                if (layer_has(m, (*b)->rows[i].role, layer) && at++ == index) {
                    fill(m, &(*b)->rows[i], layer, out);
                    return at;
                }
            }
        }
    }
    for (uint32_t i = 0; i < f->last.n; i++) {
        if (at++ == index) {
            fill(m, &f->last.rows[i], 0, out);
            return at;
        }
    }
    return at;
}

uint32_t sl_model_tensors(const sl_model *model) {
    return walk(model, UINT32_MAX, NULL);
}

void sl_model_tensor(const sl_model *model, uint32_t index, sl_tensor_spec *out) {
    (void)walk(model, index, out);
}
