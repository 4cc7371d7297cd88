/* The families that this binary knows, as tables. Sources: the configs and checkpoints of each family, as
 * collected in docs/architecture.md, "Families". */
#include "model/family.h"

/* ---- Qwen3.5-MoE, Qwen3.6-MoE ---------------------------------------------------------------- */

static const char *const qwen3_5_types[] = {"qwen3_5_moe", "qwen3_5_moe_text", NULL};

static const sl_layer_type qwen3_5_layers[] = {
    {"linear_attention", SL_MIXER_DELTA},
    {"full_attention", SL_MIXER_ATTENTION},
    {NULL, SL_MIXER_COUNT},
};

// In the order in which a token uses them.
static const sl_tensor_name qwen3_5_tensors[] = {
    {SL_ROLE_EMBED, SL_SCOPE_MODEL, SL_TENSOR_MATRIX, "embed_tokens", false, false},
    {SL_ROLE_NORM_MIXER, SL_SCOPE_LAYER, SL_TENSOR_VECTOR, "input_layernorm.weight", true, false},
    {SL_ROLE_ATTN_Q, SL_SCOPE_ATTENTION, SL_TENSOR_MATRIX, "self_attn.q_proj", false, false},
    {SL_ROLE_ATTN_K, SL_SCOPE_ATTENTION, SL_TENSOR_MATRIX, "self_attn.k_proj", false, false},
    {SL_ROLE_ATTN_V, SL_SCOPE_ATTENTION, SL_TENSOR_MATRIX, "self_attn.v_proj", false, false},
    {SL_ROLE_ATTN_Q_NORM, SL_SCOPE_QK_NORM, SL_TENSOR_VECTOR, "self_attn.q_norm.weight", true, false},
    {SL_ROLE_ATTN_K_NORM, SL_SCOPE_QK_NORM, SL_TENSOR_VECTOR, "self_attn.k_norm.weight", true, false},
    {SL_ROLE_ATTN_O, SL_SCOPE_ATTENTION, SL_TENSOR_MATRIX, "self_attn.o_proj", false, false},
    {SL_ROLE_DELTA_QKV, SL_SCOPE_DELTA, SL_TENSOR_MATRIX, "linear_attn.in_proj_qkv", false, false},
    {SL_ROLE_DELTA_Z, SL_SCOPE_DELTA, SL_TENSOR_MATRIX, "linear_attn.in_proj_z", false, false},
    {SL_ROLE_DELTA_A, SL_SCOPE_DELTA, SL_TENSOR_MATRIX, "linear_attn.in_proj_a", false, false},
    {SL_ROLE_DELTA_B, SL_SCOPE_DELTA, SL_TENSOR_MATRIX, "linear_attn.in_proj_b", false, false},
    {SL_ROLE_DELTA_CONV, SL_SCOPE_DELTA, SL_TENSOR_CONV, "linear_attn.conv1d.weight", false, false},
    {SL_ROLE_DELTA_A_LOG, SL_SCOPE_DELTA, SL_TENSOR_VECTOR, "linear_attn.A_log", false, false},
    {SL_ROLE_DELTA_DT_BIAS, SL_SCOPE_DELTA, SL_TENSOR_VECTOR, "linear_attn.dt_bias", false, false},
    {SL_ROLE_DELTA_NORM, SL_SCOPE_DELTA, SL_TENSOR_VECTOR, "linear_attn.norm.weight", false, false},
    {SL_ROLE_DELTA_OUT, SL_SCOPE_DELTA, SL_TENSOR_MATRIX, "linear_attn.out_proj", false, false},
    {SL_ROLE_NORM_FFN, SL_SCOPE_LAYER, SL_TENSOR_VECTOR, "post_attention_layernorm.weight", true, false},
    {SL_ROLE_ROUTER, SL_SCOPE_LAYER, SL_TENSOR_MATRIX, "mlp.gate", false, true},
    {SL_ROLE_SHARED_GATE, SL_SCOPE_SHARED_GATE, SL_TENSOR_MATRIX, "mlp.shared_expert_gate", false, true},
    {SL_ROLE_SHARED_GATE_PROJ, SL_SCOPE_SHARED, SL_TENSOR_MATRIX, "mlp.shared_expert.gate_proj", false, false},
    {SL_ROLE_SHARED_UP_PROJ, SL_SCOPE_SHARED, SL_TENSOR_MATRIX, "mlp.shared_expert.up_proj", false, false},
    {SL_ROLE_SHARED_DOWN_PROJ, SL_SCOPE_SHARED, SL_TENSOR_MATRIX, "mlp.shared_expert.down_proj", false, false},
    {SL_ROLE_EXPERT_GATE_PROJ, SL_SCOPE_LAYER, SL_TENSOR_EXPERT, "gate_proj", false, false},
    {SL_ROLE_EXPERT_UP_PROJ, SL_SCOPE_LAYER, SL_TENSOR_EXPERT, "up_proj", false, false},
    {SL_ROLE_EXPERT_DOWN_PROJ, SL_SCOPE_LAYER, SL_TENSOR_EXPERT, "down_proj", false, false},
    {SL_ROLE_NORM_FINAL, SL_SCOPE_MODEL, SL_TENSOR_VECTOR, "norm.weight", true, false},
    {SL_ROLE_HEAD, SL_SCOPE_HEAD, SL_TENSOR_MATRIX, "lm_head", false, false},
};

static const char *const qwen3_5_prefixes[] = {"language_model.model.", "model.language_model.", "model.", NULL};
static const char *const qwen3_5_head_prefixes[] = {"language_model.", "", NULL};
static const char *const qwen3_5_unused[] = {"model.visual.", "visual.", "vision_tower.", "mtp.",
                                             "language_model.mtp.", "model.mtp.", NULL};

static const sl_family qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .model_types = qwen3_5_types,
    .layer_types = qwen3_5_layers,
    .full_attention_interval = 4,
    .tensors = qwen3_5_tensors,
    .n_tensors = sizeof(qwen3_5_tensors) / sizeof(qwen3_5_tensors[0]),
    .prefixes = qwen3_5_prefixes,
    .head_prefixes = qwen3_5_head_prefixes,
    .unused_prefixes = qwen3_5_unused,
    .experts_stacked = "mlp.switch_mlp.%s",
    .experts_fused_gate_up = "mlp.experts.gate_up_proj",
    .experts_fused_down = "mlp.experts.down_proj",
    .experts_single = "mlp.experts.%u.%s",
    .attn_gated = true,
    .qk_norm = true,
    .rope_theta = 1e7f,
    .rotary_fraction = 0.25f,
    .renorm = true,
    .renorm_from_config = false,
    .shared_gate = true,
};

const sl_family *const sl_families[] = {&qwen3_5_moe};
const uint32_t sl_n_families = sizeof(sl_families) / sizeof(sl_families[0]);
