/* The families that this binary knows, as tables. Sources: the configs and checkpoints of each family, as
 * collected in docs/architecture.md, "Families". */
#include "model/family.h"

#define SOURCES(...)                                                                               \
    { __VA_ARGS__ }
#define BLOCK(array) ((sl_tensor_block){array, sizeof(array) / sizeof((array)[0])})
#define BLOCKS(...) ((const sl_tensor_block *const[]){__VA_ARGS__, NULL})
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

#define WEIGHT(name)                                                                               \
    { name, SL_MAP_PLAIN, SL_SUFFIX_WEIGHT, false }
#define VECTOR(name)                                                                               \
    { name, SL_MAP_PLAIN, SL_SUFFIX_NONE, false }
#define MATRIX_ROW(role, name)                                                                     \
    { role, SOURCES(WEIGHT(name)), SL_PRECISION_ASKED, false }
#define VECTOR_ROW(role, name)                                                                     \
    { role, SOURCES(VECTOR(name)), SL_PRECISION_ASKED, false }
#define CENTRED_ROW(role, name)                                                                    \
    { role, SOURCES(VECTOR(name)), SL_PRECISION_ASKED, true }

/* ---- blocks that families share ------------------------------------------------------------------- */

static const sl_tensor_row embed[] = {MATRIX_ROW(SL_ROLE_EMBED, "embed_tokens")};
static const sl_tensor_row last_plain[] = {VECTOR_ROW(SL_ROLE_NORM_FINAL, "norm.weight"),
                                           MATRIX_ROW(SL_ROLE_HEAD, "lm_head")};
static const sl_tensor_row last_centred[] = {CENTRED_ROW(SL_ROLE_NORM_FINAL, "norm.weight"),
                                             MATRIX_ROW(SL_ROLE_HEAD, "lm_head")};

#define NORM_MIXER "input_layernorm.weight"
#define NORM_FFN "post_attention_layernorm.weight"
static const sl_tensor_row norm_mixer_rows[] = {VECTOR_ROW(SL_ROLE_NORM_MIXER, NORM_MIXER)},
                           norm_mixer_centred_rows[] = {CENTRED_ROW(SL_ROLE_NORM_MIXER,
                                                                    NORM_MIXER)},
                           norm_ffn_rows[] = {VECTOR_ROW(SL_ROLE_NORM_FFN, NORM_FFN)},
                           norm_ffn_centred_rows[] = {CENTRED_ROW(SL_ROLE_NORM_FFN, NORM_FFN)};
static const sl_tensor_block norm_mixer = BLOCK(norm_mixer_rows),
                             norm_mixer_centred = BLOCK(norm_mixer_centred_rows),
                             norm_ffn = BLOCK(norm_ffn_rows),
                             norm_ffn_centred = BLOCK(norm_ffn_centred_rows);

// Rows that a model has no use for (biases, norms, sinks) are skipped by what its config says.
#define ATTENTION_ROWS(row, q_norm, k_norm, out)                                                   \
    MATRIX_ROW(SL_ROLE_ATTN_Q, "self_attn.q_proj"),                                                \
        MATRIX_ROW(SL_ROLE_ATTN_K, "self_attn.k_proj"),                                            \
        MATRIX_ROW(SL_ROLE_ATTN_V, "self_attn.v_proj"),                                            \
        VECTOR_ROW(SL_ROLE_ATTN_Q_BIAS, "self_attn.q_proj.bias"),                                  \
        VECTOR_ROW(SL_ROLE_ATTN_K_BIAS, "self_attn.k_proj.bias"),                                  \
        VECTOR_ROW(SL_ROLE_ATTN_V_BIAS, "self_attn.v_proj.bias"),                                  \
        row(SL_ROLE_ATTN_Q_NORM, "self_attn." q_norm ".weight"),                                   \
        row(SL_ROLE_ATTN_K_NORM, "self_attn." k_norm ".weight"),                                   \
        VECTOR_ROW(SL_ROLE_ATTN_SINKS, "self_attn.sinks"),                                         \
        MATRIX_ROW(SL_ROLE_ATTN_O, "self_attn." out),                                              \
        VECTOR_ROW(SL_ROLE_ATTN_O_BIAS, "self_attn." out ".bias")
static const sl_tensor_row attention_rows[] = {
    ATTENTION_ROWS(VECTOR_ROW, "q_norm", "k_norm", "o_proj")};
static const sl_tensor_row attention_centred_rows[] = {
    ATTENTION_ROWS(CENTRED_ROW, "q_norm", "k_norm", "o_proj")};
static const sl_tensor_block attention = BLOCK(attention_rows),
                             attention_centred = BLOCK(attention_centred_rows);

#define EIGHT_BITS SL_PRECISION_EIGHT_BITS
#define DENSE SL_PRECISION_DENSE
#define ROUTER_ROW(name, precision)                                                                \
    { SL_ROLE_ROUTER, SOURCES(WEIGHT(name)), precision, false }
static const sl_tensor_row router_eight_bits_rows[] = {ROUTER_ROW("mlp.gate", EIGHT_BITS)};
static const sl_tensor_row router_rows[] = {ROUTER_ROW("mlp.gate", SL_PRECISION_ASKED)};
static const sl_tensor_row router_dense_rows[] = {
    ROUTER_ROW("mlp.gate", DENSE),
    VECTOR_ROW(SL_ROLE_ROUTER_SELECTION_BIAS, "mlp.gate.e_score_correction_bias"),
};
static const sl_tensor_block router_eight_bits = BLOCK(router_eight_bits_rows),
                             router = BLOCK(router_rows), router_dense = BLOCK(router_dense_rows);

static const sl_tensor_row shared_gated_rows[] = {
    {SL_ROLE_SHARED_GATE, SOURCES(WEIGHT("mlp.shared_expert_gate")), EIGHT_BITS, false},
    MATRIX_ROW(SL_ROLE_SHARED_GATE_PROJ, "mlp.shared_expert.gate_proj"),
    MATRIX_ROW(SL_ROLE_SHARED_UP_PROJ, "mlp.shared_expert.up_proj"),
    MATRIX_ROW(SL_ROLE_SHARED_DOWN_PROJ, "mlp.shared_expert.down_proj"),
};
static const sl_tensor_row shared_rows[] = {
    MATRIX_ROW(SL_ROLE_SHARED_GATE_PROJ, "mlp.shared_experts.gate_proj"),
    MATRIX_ROW(SL_ROLE_SHARED_UP_PROJ, "mlp.shared_experts.up_proj"),
    MATRIX_ROW(SL_ROLE_SHARED_DOWN_PROJ, "mlp.shared_experts.down_proj"),
};
static const sl_tensor_row dense_rows[] = {
    MATRIX_ROW(SL_ROLE_DENSE_GATE_PROJ, "mlp.gate_proj"),
    MATRIX_ROW(SL_ROLE_DENSE_UP_PROJ, "mlp.up_proj"),
    MATRIX_ROW(SL_ROLE_DENSE_DOWN_PROJ, "mlp.down_proj"),
};
static const sl_tensor_block shared_gated = BLOCK(shared_gated_rows), shared = BLOCK(shared_rows),
                             dense = BLOCK(dense_rows);

#define STACKED(name)                                                                              \
    { name, SL_MAP_STACK, SL_SUFFIX_WEIGHT, true }
#define SINGLE(name)                                                                               \
    { name, SL_MAP_SINGLE, SL_SUFFIX_WEIGHT, false }
#define FUSED(name)                                                                                \
    { name, SL_MAP_FUSED, SL_SUFFIX_NONE, false }
#define EXPERT_ROW(role, projection, fused)                                                        \
    {                                                                                              \
        role,                                                                                      \
            SOURCES(STACKED("mlp.switch_mlp." projection), FUSED("mlp.experts." fused),            \
                    SINGLE("mlp.experts.%u." projection)),                                         \
            SL_PRECISION_ASKED, false                                                              \
    }
static const sl_tensor_row experts_rows[] = {
    EXPERT_ROW(SL_ROLE_EXPERT_GATE_PROJ, "gate_proj", "gate_up_proj"),
    EXPERT_ROW(SL_ROLE_EXPERT_UP_PROJ, "up_proj", "gate_up_proj"),
    EXPERT_ROW(SL_ROLE_EXPERT_DOWN_PROJ, "down_proj", "down_proj"),
};
static const sl_tensor_block experts = BLOCK(experts_rows);

// Experts whose matrices are called w1 (gate), w3 (up) and w2 (down) in HF files.
#define W123_ROW(base, role, projection, w)                                                        \
    {                                                                                              \
        role, SOURCES(STACKED(base ".switch_mlp." projection), SINGLE(base ".experts.%u." w)),     \
            SL_PRECISION_ASKED, false                                                              \
    }
#define W123_ROWS(base)                                                                            \
    W123_ROW(base, SL_ROLE_EXPERT_GATE_PROJ, "gate_proj", "w1"),                                   \
        W123_ROW(base, SL_ROLE_EXPERT_UP_PROJ, "up_proj", "w3"),                                   \
        W123_ROW(base, SL_ROLE_EXPERT_DOWN_PROJ, "down_proj", "w2")

static const char *const plain_prefixes[] = {"model.", NULL};
static const char *const plain_head_prefixes[] = {"", NULL};
static const char *const no_prefixes[] = {NULL};

static const sl_layer_type attention_types[] = {
    {"full_attention", SL_MIXER_ATTENTION, false},
    {"sliding_attention", SL_MIXER_ATTENTION, true},
    {NULL, SL_MIXER_COUNT, false},
};

/* ---- Qwen3.5-MoE, Qwen3.6-MoE ---------------------------------------------------------------------- */

static const sl_layer_type delta_types[] = {
    {"linear_attention", SL_MIXER_DELTA, false},
    {"full_attention", SL_MIXER_ATTENTION, false},
    {NULL, SL_MIXER_COUNT, false},
};

#define DELTA_REST_ROWS                                                                            \
    VECTOR_ROW(SL_ROLE_DELTA_CONV, "linear_attn.conv1d.weight"),                                   \
        VECTOR_ROW(SL_ROLE_DELTA_A_LOG, "linear_attn.A_log"),                                      \
        VECTOR_ROW(SL_ROLE_DELTA_DT_BIAS, "linear_attn.dt_bias"),                                  \
        VECTOR_ROW(SL_ROLE_DELTA_NORM, "linear_attn.norm.weight"),                                 \
        MATRIX_ROW(SL_ROLE_DELTA_OUT, "linear_attn.out_proj")
static const sl_tensor_row delta_rows[] = {
    MATRIX_ROW(SL_ROLE_DELTA_QKV, "linear_attn.in_proj_qkv"),
    MATRIX_ROW(SL_ROLE_DELTA_Z, "linear_attn.in_proj_z"),
    MATRIX_ROW(SL_ROLE_DELTA_A, "linear_attn.in_proj_a"),
    MATRIX_ROW(SL_ROLE_DELTA_B, "linear_attn.in_proj_b"),
    DELTA_REST_ROWS,
};
static const sl_tensor_block delta = BLOCK(delta_rows);

static const sl_family qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .model_types = NAMES("qwen3_5_moe", "qwen3_5_moe_text"),
    .layer_types = delta_types,
    .interval = 4,
    .attn_gated = true,
    .qk_norm = SL_QK_NORM_HEAD,
    .use_qk_norm = SL_YES,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = true,
    .rope_theta = 1e7f,
    .rotary_fraction = 0.25f,
    .renorm = SL_YES,
    .shared = SL_SHARED_WIDTH,
    .shared_gate = true,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer_centred, &attention_centred, &delta, &norm_ffn_centred,
                    &router_eight_bits, &shared_gated, &experts),
    .last = BLOCK(last_centred),
    .prefixes = NAMES("language_model.model.", "model.language_model.", "model."),
    .head_prefixes = NAMES("language_model.", ""),
    .unused_prefixes = NAMES("model.visual.", "visual.", "vision_tower.", "mtp.",
                             "language_model.mtp.", "model.mtp."),
    .known_keys = NAMES("vision_config", "image_token_id", "video_token_id",
                        "vision_start_token_id", "vision_end_token_id", "language_model_only",
                        "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype",
                        "output_gate_type", "attn_output_gate"),
};

/* ---- Qwen3-Next: the same with projections fused per key head ---------------------------------------- */

#define GROUPED_ROW(role, name, map)                                                               \
    { role, SOURCES({name, map, SL_SUFFIX_WEIGHT, false}), SL_PRECISION_ASKED, false }
static const sl_tensor_row delta_grouped_rows[] = {
    GROUPED_ROW(SL_ROLE_DELTA_QKV, "linear_attn.in_proj_qkvz", SL_MAP_GROUPED_QKV),
    GROUPED_ROW(SL_ROLE_DELTA_Z, "linear_attn.in_proj_qkvz", SL_MAP_GROUPED_Z),
    GROUPED_ROW(SL_ROLE_DELTA_A, "linear_attn.in_proj_ba", SL_MAP_GROUPED_A),
    GROUPED_ROW(SL_ROLE_DELTA_B, "linear_attn.in_proj_ba", SL_MAP_GROUPED_B),
    DELTA_REST_ROWS,
};
static const sl_tensor_block delta_grouped = BLOCK(delta_grouped_rows);

static const sl_family qwen3_next = {
    .name = "qwen3_next",
    .model_types = NAMES("qwen3_next"),
    .layer_types = delta_types,
    .interval = 4,
    .dense = SL_DENSE_LIST,
    .attn_gated = true,
    .qk_norm = SL_QK_NORM_HEAD,
    .use_qk_norm = SL_YES,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = true,
    .rotary_fraction = 0.25f,
    .renorm = SL_KEY_OR_YES,
    .shared = SL_SHARED_WIDTH,
    .shared_gate = true,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer_centred, &attention_centred, &delta_grouped, &norm_ffn_centred,
                    &dense, &router_eight_bits, &shared_gated, &experts),
    .last = BLOCK(last_centred),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = NAMES("mtp.", "model.mtp."),
};

/* ---- Qwen3-MoE ------------------------------------------------------------------------------------- */

static const sl_family qwen3_moe = {
    .name = "qwen3_moe",
    .model_types = NAMES("qwen3_moe"),
    .layer_types = attention_types,
    .window = SL_WINDOW_IF_USED,
    .dense = SL_DENSE_LIST,
    .qk_norm = SL_QK_NORM_HEAD,
    .use_qk_norm = SL_YES,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = true,
    .rotary_fraction = 1,
    .renorm = SL_KEY_OR_NO,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &attention, &norm_ffn, &dense, &router_eight_bits, &experts),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
};

/* ---- OLMoE ------------------------------------------------------------------------------------------ */

static const sl_family olmoe = {
    .name = "olmoe",
    .model_types = NAMES("olmoe"),
    .layer_types = attention_types,
    .clip = true,
    .qk_norm = SL_QK_NORM_ALL,
    .use_qk_norm = SL_YES,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = true,
    .rotary_fraction = 1,
    .renorm = SL_KEY_OR_NO,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &attention, &norm_ffn, &router, &experts),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
};

/* ---- DeepSeek-V3, R1; Cogito v2 671B; Kimi-K2 -------------------------------------------------------- */

static const sl_layer_type mla_types[] = {
    {"full_attention", SL_MIXER_MLA, false},
    {NULL, SL_MIXER_COUNT, false},
};

static const sl_tensor_row mla_rows[] = {
    MATRIX_ROW(SL_ROLE_MLA_Q_A, "self_attn.q_a_proj"),
    VECTOR_ROW(SL_ROLE_MLA_Q_A_BIAS, "self_attn.q_a_proj.bias"),
    VECTOR_ROW(SL_ROLE_MLA_Q_A_NORM, "self_attn.q_a_layernorm.weight"),
    MATRIX_ROW(SL_ROLE_MLA_KV_A, "self_attn.kv_a_proj_with_mqa"),
    VECTOR_ROW(SL_ROLE_MLA_KV_A_BIAS, "self_attn.kv_a_proj_with_mqa.bias"),
    VECTOR_ROW(SL_ROLE_MLA_KV_A_NORM, "self_attn.kv_a_layernorm.weight"),
    {SL_ROLE_MLA_Q, SOURCES(WEIGHT("self_attn.q_b_proj"), WEIGHT("self_attn.q_proj")),
     SL_PRECISION_ASKED, false},
    {SL_ROLE_MLA_EMBED_Q,
     SOURCES({"self_attn.embed_q", SL_MAP_HEADS, SL_SUFFIX_WEIGHT, true},
             {"self_attn.kv_b_proj", SL_MAP_KV_B_KEYS, SL_SUFFIX_WEIGHT, false}),
     SL_PRECISION_ASKED, false},
    {SL_ROLE_MLA_UNEMBED,
     SOURCES({"self_attn.unembed_out", SL_MAP_HEADS, SL_SUFFIX_WEIGHT, true},
             {"self_attn.kv_b_proj", SL_MAP_KV_B_VALUES, SL_SUFFIX_WEIGHT, false}),
     SL_PRECISION_ASKED, false},
    MATRIX_ROW(SL_ROLE_MLA_O, "self_attn.o_proj"),
    VECTOR_ROW(SL_ROLE_MLA_O_BIAS, "self_attn.o_proj.bias"),
};
static const sl_tensor_block mla = BLOCK(mla_rows);

static const sl_family deepseek_v3 = {
    .name = "deepseek_v3",
    .model_types = NAMES("deepseek_v3", "kimi_k2"),
    .layer_types = mla_types,
    .dense = SL_DENSE_FIRST,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = true,
    .rotary_fraction = 1,
    .rope_pairs = true,
    .score = SL_ROUTER_SIGMOID,
    .groups = true,
    .route_scale = true,
    .selection_bias = SL_YES,
    .renorm = SL_KEY_OR_YES,
    .renorm_eps = 1e-20f,
    .shared = SL_SHARED_COUNT,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &mla, &norm_ffn, &dense, &router_dense, &shared, &experts),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
    .known_keys = NAMES("ep_size", "aux_loss_alpha", "seq_aux"),
};

/* ---- Mixtral ------------------------------------------------------------------------------------------ */

static const sl_tensor_row mixtral_moe_rows[] = {
    ROUTER_ROW("block_sparse_moe.gate", SL_PRECISION_ASKED),
    W123_ROWS("block_sparse_moe"),
};
static const sl_tensor_block mixtral_moe = BLOCK(mixtral_moe_rows);

static const sl_family mixtral = {
    .name = "mixtral",
    .model_types = NAMES("mixtral"),
    .layer_types = attention_types,
    .window = SL_WINDOW_ALWAYS,
    .rotary_fraction = 1,
    .renorm = SL_YES,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &attention, &norm_ffn, &mixtral_moe),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
};

/* ---- gpt-oss ------------------------------------------------------------------------------------------- */

static const sl_layer_type gpt_oss_types[] = {
    {"sliding_attention", SL_MIXER_ATTENTION, true},
    {"full_attention", SL_MIXER_ATTENTION, false},
    {NULL, SL_MIXER_COUNT, false},
};

#define GPT_OSS_EXPERT_ROW(role, projection, fused)                                                \
    {                                                                                              \
        role,                                                                                      \
            SOURCES(STACKED("mlp.experts." projection),                                            \
                    {"mlp.experts." fused, SL_MAP_ROW_PAIRS, SL_SUFFIX_BLOCKS, false},             \
                    {"mlp.experts." fused, SL_MAP_COLUMN_PAIRS, SL_SUFFIX_NONE, false}),           \
            SL_PRECISION_ASKED, false                                                              \
    }
#define GPT_OSS_BIAS_ROW(role, projection, fused)                                                  \
    {                                                                                              \
        role,                                                                                      \
            SOURCES({"mlp.experts." projection ".bias", SL_MAP_STACK, SL_SUFFIX_NONE, true},       \
                    {"mlp.experts." fused "_bias", SL_MAP_COLUMN_PAIRS, SL_SUFFIX_NONE, false}),   \
            SL_PRECISION_ASKED, false                                                              \
    }
static const sl_tensor_row gpt_oss_moe_rows[] = {
    ROUTER_ROW("mlp.router", EIGHT_BITS),
    VECTOR_ROW(SL_ROLE_ROUTER_BIAS, "mlp.router.bias"),
    GPT_OSS_EXPERT_ROW(SL_ROLE_EXPERT_GATE_PROJ, "gate_proj", "gate_up_proj"),
    GPT_OSS_EXPERT_ROW(SL_ROLE_EXPERT_UP_PROJ, "up_proj", "gate_up_proj"),
    GPT_OSS_EXPERT_ROW(SL_ROLE_EXPERT_DOWN_PROJ, "down_proj", "down_proj"),
    GPT_OSS_BIAS_ROW(SL_ROLE_EXPERT_GATE_BIAS, "gate_proj", "gate_up_proj"),
    GPT_OSS_BIAS_ROW(SL_ROLE_EXPERT_UP_BIAS, "up_proj", "gate_up_proj"),
    GPT_OSS_BIAS_ROW(SL_ROLE_EXPERT_DOWN_BIAS, "down_proj", "down_proj"),
};
static const sl_tensor_block gpt_oss_moe = BLOCK(gpt_oss_moe_rows);

static const sl_family gpt_oss = {
    .name = "gpt_oss",
    .model_types = NAMES("gpt_oss"),
    .layer_types = gpt_oss_types,
    .interval = 2,
    .window = SL_WINDOW_BY_TYPE,
    .sinks = true,
    .attn_bias = SL_KEY_OR_YES,
    .attn_out_bias = true,
    .rotary_fraction = 1,
    .router_bias = true,
    .renorm = SL_YES, // a softmax over the picks alone is the renormalised softmax over all
    .expert_bias = true,
    .activation = SL_ACTIVATION_SWIGLU_CLAMPED,
    .swiglu_limit = 7,
    .swiglu_alpha = 1.702f,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &attention, &norm_ffn, &gpt_oss_moe),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
    .known_keys = NAMES("initial_context_length"),
};

/* ---- GLM-4.5, 4.6, 4.7 --------------------------------------------------------------------------------- */

static const sl_family glm4_moe = {
    .name = "glm4_moe",
    .model_types = NAMES("glm4_moe"),
    .layer_types = attention_types,
    .dense = SL_DENSE_FIRST,
    .qk_norm = SL_QK_NORM_HEAD,
    .use_qk_norm = SL_KEY_OR_NO,
    .attn_bias = SL_KEY_OR_NO,
    .attn_out_bias = false,
    .rotary_fraction = 0.5f,
    .score = SL_ROUTER_SIGMOID,
    .groups = true,
    .route_scale = true,
    .selection_bias = SL_YES,
    .renorm = SL_KEY_OR_YES,
    .renorm_eps = 1e-20f,
    .shared = SL_SHARED_COUNT,
    .tied_head = SL_KEY_OR_NO,
    .first = BLOCK(embed),
    .layer = BLOCKS(&norm_mixer, &attention, &norm_ffn, &dense, &router_dense, &shared, &experts),
    .last = BLOCK(last_plain),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
};

/* ---- LFM2-MoE -------------------------------------------------------------------------------------------- */

static const sl_layer_type lfm2_types[] = {
    {"conv", SL_MIXER_CONV, false},
    {"full_attention", SL_MIXER_ATTENTION, false},
    {NULL, SL_MIXER_COUNT, false},
};

static const sl_tensor_row lfm2_norm_mixer_rows[] = {
    VECTOR_ROW(SL_ROLE_NORM_MIXER, "operator_norm.weight")};
static const sl_tensor_row lfm2_attention_rows[] = {
    ATTENTION_ROWS(VECTOR_ROW, "q_layernorm", "k_layernorm", "out_proj")};
static const sl_tensor_row lfm2_conv_rows[] = {
    MATRIX_ROW(SL_ROLE_CONV_IN, "conv.in_proj"),
    VECTOR_ROW(SL_ROLE_CONV_IN_BIAS, "conv.in_proj.bias"),
    VECTOR_ROW(SL_ROLE_CONV_TAPS, "conv.conv.weight"),
    VECTOR_ROW(SL_ROLE_CONV_BIAS, "conv.conv.bias"),
    MATRIX_ROW(SL_ROLE_CONV_OUT, "conv.out_proj"),
    VECTOR_ROW(SL_ROLE_CONV_OUT_BIAS, "conv.out_proj.bias"),
};
#define LFM2_DENSE_ROW(role, projection, w)                                                        \
    {                                                                                              \
        role, SOURCES(WEIGHT("feed_forward." projection), WEIGHT("feed_forward." w)),              \
            SL_PRECISION_ASKED, false                                                              \
    }
static const sl_tensor_row lfm2_ffn_rows[] = {
    VECTOR_ROW(SL_ROLE_NORM_FFN, "ffn_norm.weight"),
    LFM2_DENSE_ROW(SL_ROLE_DENSE_GATE_PROJ, "gate_proj", "w1"),
    LFM2_DENSE_ROW(SL_ROLE_DENSE_UP_PROJ, "up_proj", "w3"),
    LFM2_DENSE_ROW(SL_ROLE_DENSE_DOWN_PROJ, "down_proj", "w2"),
    ROUTER_ROW("feed_forward.gate", EIGHT_BITS),
    VECTOR_ROW(SL_ROLE_ROUTER_SELECTION_BIAS, "feed_forward.expert_bias"),
    W123_ROWS("feed_forward"),
};
static const sl_tensor_row lfm2_last[] = {
    VECTOR_ROW(SL_ROLE_NORM_FINAL, "embedding_norm.weight"),
    MATRIX_ROW(SL_ROLE_HEAD, "lm_head"),
};
static const sl_tensor_block lfm2_norm_mixer = BLOCK(lfm2_norm_mixer_rows),
                             lfm2_attention = BLOCK(lfm2_attention_rows),
                             lfm2_conv = BLOCK(lfm2_conv_rows), lfm2_ffn = BLOCK(lfm2_ffn_rows);

static const sl_family lfm2_moe = {
    .name = "lfm2_moe",
    .model_types = NAMES("lfm2_moe"),
    .layer_types = lfm2_types,
    .interval = SL_INTERVAL_REQUIRED,
    .dense = SL_DENSE_FIRST,
    .qk_norm = SL_QK_NORM_HEAD,
    .use_qk_norm = SL_YES,
    .rotary_fraction = 1,
    .conv_bias = true,
    .score = SL_ROUTER_SIGMOID,
    .route_scale = true,
    .selection_bias = SL_KEY_OR_YES,
    .renorm = SL_KEY_OR_YES,
    .renorm_eps = 1e-6f,
    .tied_head = SL_KEY_OR_YES,
    .first = BLOCK(embed),
    .layer = BLOCKS(&lfm2_norm_mixer, &lfm2_attention, &lfm2_conv, &lfm2_ffn),
    .last = BLOCK(lfm2_last),
    .prefixes = plain_prefixes,
    .head_prefixes = plain_head_prefixes,
    .unused_prefixes = no_prefixes,
};

const sl_family *const sl_families[] = {&qwen3_5_moe, &qwen3_next,  &qwen3_moe,
                                        &olmoe,       &deepseek_v3, &mixtral,
                                        &gpt_oss,     &glm4_moe,    &lfm2_moe};
const uint32_t sl_n_families = sizeof(sl_families) / sizeof(sl_families[0]);
