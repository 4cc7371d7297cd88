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

#define MATRIX SL_TENSOR_MATRIX
#define VECTOR SL_TENSOR_VECTOR
#define CONV SL_TENSOR_CONV
#define EXPERT SL_TENSOR_EXPERT
#define CENTRED SL_TENSOR_ZERO_CENTRED
#define ROUTER SL_TENSOR_ROUTER

// In the order in which a token uses them.
static const sl_tensor_name qwen3_5_tensors[] = {
    {SL_ROLE_EMBED, SL_IN_MODEL, MATRIX, "embed_tokens", 0},
    {SL_ROLE_NORM_MIXER, SL_IN_LAYER, VECTOR, "input_layernorm.weight", CENTRED},
    {SL_ROLE_ATTN_Q, SL_IN_ATTENTION, MATRIX, "self_attn.q_proj", 0},
    {SL_ROLE_ATTN_K, SL_IN_ATTENTION, MATRIX, "self_attn.k_proj", 0},
    {SL_ROLE_ATTN_V, SL_IN_ATTENTION, MATRIX, "self_attn.v_proj", 0},
    {SL_ROLE_ATTN_Q_NORM, SL_IN_QK_NORM, VECTOR, "self_attn.q_norm.weight", CENTRED},
    {SL_ROLE_ATTN_K_NORM, SL_IN_QK_NORM, VECTOR, "self_attn.k_norm.weight", CENTRED},
    {SL_ROLE_ATTN_O, SL_IN_ATTENTION, MATRIX, "self_attn.o_proj", 0},
    {SL_ROLE_DELTA_QKV, SL_IN_DELTA, MATRIX, "linear_attn.in_proj_qkv", 0},
    {SL_ROLE_DELTA_Z, SL_IN_DELTA, MATRIX, "linear_attn.in_proj_z", 0},
    {SL_ROLE_DELTA_A, SL_IN_DELTA, MATRIX, "linear_attn.in_proj_a", 0},
    {SL_ROLE_DELTA_B, SL_IN_DELTA, MATRIX, "linear_attn.in_proj_b", 0},
    {SL_ROLE_DELTA_CONV, SL_IN_DELTA, CONV, "linear_attn.conv1d.weight", 0},
    {SL_ROLE_DELTA_A_LOG, SL_IN_DELTA, VECTOR, "linear_attn.A_log", 0},
    {SL_ROLE_DELTA_DT_BIAS, SL_IN_DELTA, VECTOR, "linear_attn.dt_bias", 0},
    {SL_ROLE_DELTA_NORM, SL_IN_DELTA, VECTOR, "linear_attn.norm.weight", 0},
    {SL_ROLE_DELTA_OUT, SL_IN_DELTA, MATRIX, "linear_attn.out_proj", 0},
    {SL_ROLE_NORM_FFN, SL_IN_LAYER, VECTOR, "post_attention_layernorm.weight", CENTRED},
    {SL_ROLE_ROUTER, SL_IN_LAYER, MATRIX, "mlp.gate", ROUTER},
    {SL_ROLE_SHARED_GATE, SL_IN_SHARED_GATE, MATRIX, "mlp.shared_expert_gate", ROUTER},
    {SL_ROLE_SHARED_GATE_PROJ, SL_IN_SHARED, MATRIX, "mlp.shared_expert.gate_proj", 0},
    {SL_ROLE_SHARED_UP_PROJ, SL_IN_SHARED, MATRIX, "mlp.shared_expert.up_proj", 0},
    {SL_ROLE_SHARED_DOWN_PROJ, SL_IN_SHARED, MATRIX, "mlp.shared_expert.down_proj", 0},
    {SL_ROLE_EXPERT_GATE_PROJ, SL_IN_LAYER, EXPERT, "gate_proj", 0},
    {SL_ROLE_EXPERT_UP_PROJ, SL_IN_LAYER, EXPERT, "up_proj", 0},
    {SL_ROLE_EXPERT_DOWN_PROJ, SL_IN_LAYER, EXPERT, "down_proj", 0},
    {SL_ROLE_NORM_FINAL, SL_IN_MODEL, VECTOR, "norm.weight", CENTRED},
    {SL_ROLE_HEAD, SL_IN_HEAD, MATRIX, "lm_head", 0},
};

static const char *const qwen3_5_prefixes[] = {"language_model.model.", "model.language_model.",
                                               "model.", NULL};
static const char *const qwen3_5_head_prefixes[] = {"language_model.", "", NULL};
static const char *const qwen3_5_unused[] = {
    "model.visual.", "visual.", "vision_tower.", "mtp.", "language_model.mtp.", "model.mtp.", NULL};

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
