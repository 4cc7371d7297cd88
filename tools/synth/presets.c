/* Shapes of published models. Sources: their config.json files. */
#include <string.h>

#include "synth.h"

#define QWEN_STOP                                                                                  \
    "{\"bos_token_id\": 151643, \"eos_token_id\": [151645, 151643], \"pad_token_id\": 151643, "    \
    "\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.8, \"top_k\": 20}"

static const char qwen36[] =
    "{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"], \"model_type\": "
    "\"qwen3_5_moe\", "
    "\"image_token_id\": 248056, \"video_token_id\": 248057, \"vision_start_token_id\": 248053, "
    "\"vision_end_token_id\": 248054, \"tie_word_embeddings\": false, \"text_config\": {"
    "\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": 2048, \"num_hidden_layers\": 40, "
    "\"full_attention_interval\": 4, \"num_attention_heads\": 16, \"num_key_value_heads\": 2, "
    "\"head_dim\": 256, \"attn_output_gate\": true, \"attention_bias\": false, "
    "\"attention_dropout\": 0.0, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, "
    "\"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, "
    "\"mamba_ssm_dtype\": \"float32\", \"num_experts\": 256, \"num_experts_per_tok\": 8, "
    "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512, "
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"rope_parameters\": {"
    "\"rope_type\": \"default\", \"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25, "
    "\"mrope_section\": [11, 11, 10], \"mrope_interleaved\": true}, "
    "\"max_position_embeddings\": 262144, \"vocab_size\": 248320, \"bos_token_id\": 248044, "
    "\"eos_token_id\": 248044, \"dtype\": \"bfloat16\"}}";
static const char qwen36_generation[] =
    "{\"bos_token_id\": 248044, \"eos_token_id\": [248046, 248044], \"pad_token_id\": 248044, "
    "\"do_sample\": true, \"temperature\": 1.0, \"top_p\": 0.95, \"top_k\": 20}";

static const char qwen3_next[] =
    "{\"architectures\": [\"Qwen3NextForCausalLM\"], \"model_type\": \"qwen3_next\", "
    "\"hidden_size\": 2048, \"num_hidden_layers\": 48, \"full_attention_interval\": 4, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"head_dim\": 256, "
    "\"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000, \"linear_num_key_heads\": 16, "
    "\"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, "
    "\"linear_conv_kernel_dim\": 4, \"num_experts\": 512, \"num_experts_per_tok\": 10, "
    "\"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512, "
    "\"intermediate_size\": 5120, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], "
    "\"norm_topk_prob\": true, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, "
    "\"max_position_embeddings\": 262144, \"vocab_size\": 151936, \"bos_token_id\": 151643, "
    "\"eos_token_id\": 151645, \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

#define QWEN3_30B(theta, positions)                                                                \
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", "               \
    "\"hidden_size\": 2048, \"num_hidden_layers\": 48, \"num_attention_heads\": 32, "              \
    "\"num_key_value_heads\": 4, \"head_dim\": 128, \"num_experts\": 128, "                        \
    "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768, \"intermediate_size\": 6144, "    \
    "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"norm_topk_prob\": true, "              \
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"rope_theta\": " theta ", "               \
    "\"max_position_embeddings\": " positions ", \"vocab_size\": 151936, "                         \
    "\"bos_token_id\": 151643, \"eos_token_id\": 151645, \"attention_bias\": false, "              \
    "\"sliding_window\": null, \"use_sliding_window\": false, \"tie_word_embeddings\": false, "    \
    "\"torch_dtype\": \"bfloat16\"}"

static const char olmoe[] =
    "{\"architectures\": [\"OlmoeForCausalLM\"], \"model_type\": \"olmoe\", \"hidden_size\": 2048, "
    "\"num_hidden_layers\": 16, \"num_attention_heads\": 16, \"num_key_value_heads\": 16, "
    "\"intermediate_size\": 1024, \"num_experts\": 64, \"num_experts_per_tok\": 8, "
    "\"norm_topk_prob\": false, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
    "\"rope_theta\": 10000.0, \"max_position_embeddings\": 4096, \"vocab_size\": 50304, "
    "\"clip_qkv\": null, \"attention_bias\": false, \"eos_token_id\": 50279, \"pad_token_id\": 1, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static const char cogito[] =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", "
    "\"hidden_size\": 7168, \"num_hidden_layers\": 61, \"num_attention_heads\": 128, "
    "\"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, "
    "\"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128, "
    "\"intermediate_size\": 18432, \"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, "
    "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4, "
    "\"topk_method\": \"noaux_tc\", \"scoring_func\": \"sigmoid\", \"norm_topk_prob\": true, "
    "\"routed_scaling_factor\": 2.5, \"first_k_dense_replace\": 3, \"moe_layer_freq\": 1, "
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000, "
    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40, "
    "\"original_max_position_embeddings\": 4096, \"beta_fast\": 32, \"beta_slow\": 1, "
    "\"mscale\": 1.0, \"mscale_all_dim\": 1.0}, \"max_position_embeddings\": 163840, "
    "\"vocab_size\": 128815, \"bos_token_id\": 0, \"eos_token_id\": 1, \"attention_bias\": false, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static const char mixtral[] =
    "{\"architectures\": [\"MixtralForCausalLM\"], \"model_type\": \"mixtral\", "
    "\"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
    "\"num_key_value_heads\": 8, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
    "\"intermediate_size\": 14336, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
    "\"rope_theta\": 1000000.0, \"sliding_window\": null, \"max_position_embeddings\": 32768, "
    "\"vocab_size\": 32000, \"bos_token_id\": 1, \"eos_token_id\": 2, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

#define GPT_OSS(layers, experts)                                                                   \
    "{\"architectures\": [\"GptOssForCausalLM\"], \"model_type\": \"gpt_oss\", "                   \
    "\"hidden_size\": 2880, \"intermediate_size\": 2880, \"num_hidden_layers\": " layers ", "      \
    "\"num_attention_heads\": 64, \"num_key_value_heads\": 8, \"head_dim\": 64, "                  \
    "\"num_local_experts\": " experts ", \"num_experts_per_tok\": 4, \"attention_bias\": true, "   \
    "\"hidden_act\": \"silu\", \"swiglu_limit\": 7.0, \"rms_norm_eps\": 1e-05, "                   \
    "\"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, "       \
    "\"original_max_position_embeddings\": 4096, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "        \
    "\"truncate\": false}, \"sliding_window\": 128, \"max_position_embeddings\": 131072, "         \
    "\"vocab_size\": 201088, \"eos_token_id\": 200002, \"pad_token_id\": 199999, "                 \
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}"
static const char gpt_oss_generation[] =
    "{\"bos_token_id\": 199998, \"eos_token_id\": [200002, 199999, 200012], \"pad_token_id\": "
    "199999, \"do_sample\": true}";

static const char glm45_air[] =
    "{\"architectures\": [\"Glm4MoeForCausalLM\"], \"model_type\": \"glm4_moe\", "
    "\"hidden_size\": 4096, \"num_hidden_layers\": 46, \"num_attention_heads\": 96, "
    "\"num_key_value_heads\": 8, \"head_dim\": 128, \"attention_bias\": true, "
    "\"partial_rotary_factor\": 0.5, \"use_qk_norm\": false, \"n_routed_experts\": 128, "
    "\"num_experts_per_tok\": 8, \"n_shared_experts\": 1, \"moe_intermediate_size\": 1408, "
    "\"intermediate_size\": 10944, \"first_k_dense_replace\": 1, \"n_group\": 1, "
    "\"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1.0, "
    "\"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000, "
    "\"max_position_embeddings\": 131072, \"vocab_size\": 151552, "
    "\"eos_token_id\": [151329, 151336, 151338], \"pad_token_id\": 151329, "
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}";

static const char lfm2[] =
    "{\"architectures\": [\"Lfm2MoeForCausalLM\"], \"model_type\": \"lfm2_moe\", "
    "\"hidden_size\": 2048, \"num_hidden_layers\": 24, \"layer_types\": [\"conv\", \"conv\", "
    "\"full_attention\", \"conv\", \"conv\", \"conv\", \"full_attention\", \"conv\", \"conv\", "
    "\"conv\", \"full_attention\", \"conv\", \"conv\", \"conv\", \"full_attention\", \"conv\", "
    "\"conv\", \"conv\", \"full_attention\", \"conv\", \"conv\", \"full_attention\", \"conv\", "
    "\"conv\"], \"conv_L_cache\": 3, \"conv_bias\": false, \"num_attention_heads\": 32, "
    "\"num_key_value_heads\": 8, \"num_experts\": 32, \"num_experts_per_tok\": 4, "
    "\"moe_intermediate_size\": 1792, \"num_dense_layers\": 2, \"intermediate_size\": 7168, "
    "\"norm_topk_prob\": true, \"use_expert_bias\": true, \"routed_scaling_factor\": 1.0, "
    "\"norm_eps\": 1e-05, \"rope_theta\": 1000000.0, \"max_position_embeddings\": 128000, "
    "\"vocab_size\": 65536, \"bos_token_id\": 1, \"eos_token_id\": 7, \"pad_token_id\": 0, "
    "\"tie_embedding\": true, \"dtype\": \"bfloat16\"}";

const synth_preset synth_presets[] = {
    {"qwen3.6-35b-a3b", qwen36, qwen36_generation},
    {"qwen3-next-80b-a3b", qwen3_next, QWEN_STOP},
    {"qwen3-30b-a3b", QWEN3_30B("1000000.0", "40960"), QWEN_STOP},
    {"qwen3-coder-30b-a3b", QWEN3_30B("10000000", "262144"), QWEN_STOP},
    {"olmoe-1b-7b", olmoe, "{\"eos_token_id\": 50279, \"pad_token_id\": 1}"},
    {"cogito-v2-671b", cogito,
     "{\"bos_token_id\": 0, \"eos_token_id\": 1, \"do_sample\": true, \"temperature\": 0.6, "
     "\"top_p\": 0.95}"},
    {"mixtral-8x7b", mixtral, "{\"bos_token_id\": 1, \"eos_token_id\": 2}"},
    {"gpt-oss-20b", GPT_OSS("24", "32"), gpt_oss_generation},
    {"gpt-oss-120b", GPT_OSS("36", "128"), gpt_oss_generation},
    {"glm-4.5-air", glm45_air,
     "{\"eos_token_id\": [151329, 151336, 151338], \"pad_token_id\": 151329}"},
    {"lfm2-8b-a1b", lfm2, "{\"bos_token_id\": 1, \"eos_token_id\": 7, \"pad_token_id\": 0}"},
    {NULL, NULL, NULL},
};

const synth_preset *synth_preset_find(const char *name) {
    for (const synth_preset *p = synth_presets; p->name; p++)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}
