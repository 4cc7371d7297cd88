/* The descriptor: what is read from configs, what is refused, and the router's picks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "model/layers.h"

static uint8_t memory[1 << 20];

static const sl_json *parse(const char *text) {
    static sl_arena arena;
    sl_json *root;
    sl_error err;
    sl_arena_init(&arena, "test", memory, sizeof(memory));
    if (sl_json_parse(text, strlen(text), &arena, &root, &err))
        fail_msg("%s", err.message);
    return root;
}

static sl_model read(const char *text) {
    sl_model m;
    sl_error err;
    if (sl_model_from_config(parse(text), NULL, &m, NULL, &err))
        fail_msg("%s", err.message);
    return m;
}

static void refused(const char *text, sl_status status, const char *field) {
    sl_model m;
    sl_error err;
    assert_int_equal(sl_model_from_config(parse(text), NULL, &m, NULL, &err), status);
    if (!strstr(err.message, field))
        fail_msg("expected '%s' to be named: %s", field, err.message);
}

/* ---- families at their real size ------------------------------------------------------------------ */

static const char cogito[] =
    "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"num_hidden_layers\": 61,"
    "\"num_attention_heads\": 128, \"num_key_value_heads\": 128, \"q_lora_rank\": 1536,"
    "\"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"
    "\"v_head_dim\": 128, \"head_dim\": 64, \"intermediate_size\": 18432,"
    "\"moe_intermediate_size\": 2048, \"n_routed_experts\": 256, \"num_experts_per_tok\": 8,"
    "\"n_shared_experts\": 1, \"n_group\": 8, \"topk_group\": 4, \"topk_method\": \"noaux_tc\","
    "\"scoring_func\": \"sigmoid\", \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5,"
    "\"first_k_dense_replace\": 3, \"moe_layer_freq\": 1, \"rms_norm_eps\": 1e-6,"
    "\"rope_theta\": 10000, \"max_position_embeddings\": 163840, \"rope_scaling\": {\"type\":"
    "\"yarn\", \"factor\": 40, \"original_max_position_embeddings\": 4096, \"beta_fast\": 32,"
    "\"beta_slow\": 1, \"mscale\": 1.0, \"mscale_all_dim\": 1.0}, \"vocab_size\": 128815,"
    "\"attention_bias\": false, \"num_nextn_predict_layers\": 1, \"sliding_window\": null}";

static void latent_attention_with_yarn(void **state) {
    (void)state;
    sl_model m = read(cogito);
    // models.md 12.5: scale 192^-0.5 * (0.1 ln 40 + 1)^2, cos and sin as they are.
    assert_true(fabs((double)m.attn.scale - 0.13523378) < 1e-8);
    assert_true(m.rope.cos_sin_scale == 1.0f);
    assert_true(m.rope.pairs);
    assert_int_equal(m.rope.n_rot, 64);
    static const struct {
        uint32_t i;
        double value;
    } known[] = {{0, 1},      {1, .749894209},     {9, .0749894209},    {11, .0390069266},
                 {16, .0055}, {21, .000414990398}, {23, 3.33380358e-5}, {31, 3.33380358e-6}};
    for (size_t i = 0; i < SL_COUNT(known); i++)
        assert_true(fabs((double)m.rope.inv_freq[known[i].i] / known[i].value - 1) < 1e-6);
    assert_int_equal(sl_model_mixer_count(&m, SL_MIXER_MLA), 61);
    assert_int_equal(sl_model_ffn_count(&m, SL_FFN_DENSE), 3);
    assert_int_equal(m.ffn[2], SL_FFN_DENSE);
    assert_int_equal(m.ffn[3], SL_FFN_MOE);
    assert_int_equal(m.d_dense, 18432);
    assert_int_equal(m.moe.d_shared, 2048);
    assert_int_equal(m.n_mtp_layers, 1);
    // models.md 12.4: 140,544 bytes a token.
    assert_int_equal(sl_kv_bytes(&m, 4096), (uint64_t)4096 * 140544);
}

#define GPT_OSS                                                                                    \
    "{\"model_type\": \"gpt_oss\", \"hidden_size\": 2880, \"intermediate_size\": 2880,"            \
    "\"num_hidden_layers\": 24, \"num_attention_heads\": 64, \"num_key_value_heads\": 8,"          \
    "\"head_dim\": 64, \"num_local_experts\": 32, \"num_experts_per_tok\": 4,"                     \
    "\"experts_per_token\": 4, \"rms_norm_eps\": 1e-5, \"vocab_size\": 201088,"                    \
    "\"max_position_embeddings\": 131072, \"sliding_window\": 128, \"swiglu_limit\": 7.0,"         \
    "\"initial_context_length\": 4096, \"attention_bias\": true, "

static void windows_and_yarn_without_truncation(void **state) {
    (void)state;
    sl_model m = read(GPT_OSS "\"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": \"yarn\","
                              "\"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, \"truncate\":"
                              "false, \"original_max_position_embeddings\": 4096}}");
    assert_true(fabs((double)m.rope.cos_sin_scale - 1.34657359) < 1e-7);
    // Between the unrounded bounds 8.0928 and 17.3980 (models.md 13.3).
    double base = pow(150000, -2.0 * 9 / 64), ramp = (9 - 8.0928) / (17.3980 - 8.0928);
    double expected = base / 32 * ramp + base * (1 - ramp);
    assert_true(fabs((double)m.rope.inv_freq[9] / expected - 1) < 1e-4);
    for (uint32_t i = 0; i < 24; i++)
        assert_int_equal(m.windowed[i], i % 2 == 0);
    assert_int_equal(m.attn.window, 128);
    assert_true(m.attn.sinks && m.attn.qkv_bias && m.attn.out_bias && m.moe.expert_bias);
    assert_true(m.moe.renorm && m.moe.router_bias);
    assert_int_equal(m.moe.activation, SL_ACTIVATION_SWIGLU_CLAMPED);
    // A ring of 192 rows where the window is, the whole context where it is not.
    assert_int_equal(sl_kv_bytes(&m, 4096), (uint64_t)12 * 2 * 8 * 64 * 4 * (192 + 4096));
    // A context that is no longer than the ring needs none.
    assert_int_equal(sl_kv_bytes(&m, 128), (uint64_t)24 * 2 * 8 * 64 * 4 * 128);
}

static void transformers_5_spelling(void **state) {
    (void)state;
    sl_model flat = read(GPT_OSS "\"rope_theta\": 150000, \"rope_scaling\": null}");
    sl_model nested =
        read(GPT_OSS "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 150000}}");
    sl_model by_type =
        read(GPT_OSS "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\","
                     "\"rope_theta\": 150000}, \"sliding_attention\": {\"rope_type\":"
                     "\"default\", \"rope_theta\": 150000}}}");
    assert_memory_equal(flat.rope.inv_freq, nested.rope.inv_freq, sizeof(flat.rope.inv_freq));
    assert_memory_equal(flat.rope.inv_freq, by_type.rope.inv_freq, sizeof(flat.rope.inv_freq));
    refused(GPT_OSS "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 150000},"
                    "\"sliding_attention\": {\"rope_theta\": 10000}}}",
            SL_ERR_UNSUPPORTED, "rope_parameters");
}

#define QWEN3                                                                                      \
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"num_hidden_layers\": 6,"             \
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128,"                  \
    "\"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768,"            \
    "\"intermediate_size\": 6144, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6,"                    \
    "\"max_position_embeddings\": 40960, \"vocab_size\": 151936"

static void dense_layers_by_list_and_step(void **state) {
    (void)state;
    sl_model m = read(QWEN3 ", \"mlp_only_layers\": [1], \"decoder_sparse_step\": 2}");
    static const uint8_t expected[] = {SL_FFN_DENSE, SL_FFN_DENSE, SL_FFN_DENSE,
                                       SL_FFN_MOE,   SL_FFN_DENSE, SL_FFN_MOE};
    assert_memory_equal(m.ffn, expected, sizeof(expected));
    assert_int_equal(m.d_dense, 6144);
    assert_int_equal(read(QWEN3 "}").d_dense, 0);
    refused(QWEN3 ", \"mlp_only_layers\": [6]}", SL_ERR_CORRUPT, "mlp_only_layers");
    refused(QWEN3 ", \"mlp_only_layers\": [0, 1, 2, 3, 4, 5]}", SL_ERR_UNSUPPORTED, "experts");
}

static void a_window_counts_only_when_used(void **state) {
    (void)state;
    sl_model m = read(QWEN3 ", \"sliding_window\": 512, \"use_sliding_window\": true}");
    assert_int_equal(sl_model_windowed_count(&m), 6);
    m = read(QWEN3 ", \"sliding_window\": 512, \"use_sliding_window\": false}");
    assert_int_equal(sl_model_windowed_count(&m), 0);
    m = read(QWEN3 ", \"sliding_window\": null}");
    assert_int_equal(sl_model_windowed_count(&m), 0);
}

/* ---- refusals: each names the field -------------------------------------------------------------- */

static void refusals_name_the_field(void **state) {
    (void)state;
    static const struct {
        const char *text, *field;
        sl_status status;
    } cases[] = {
        {QWEN3 ", \"final_logit_softcapping\": 30.0}", "final_logit_softcapping",
         SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"n_shared_experts\": 1}", "n_shared_experts", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"routed_scaling_factor\": 2.5}", "routed_scaling_factor", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"scoring_func\": \"sigmoid\"}", "scoring_func", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"hidden_act\": \"gelu\"}", "hidden_act", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"brand_new_feature\": 3}", "brand_new_feature", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"brand_new_switch\": true}", "brand_new_switch", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"kv_lora_rank\": 512}", "kv_lora_rank", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"clip_qkv\": 8.0}", "clip_qkv", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"layer_types\": [\"linear_attention\", \"full_attention\", \"full_attention\","
               "\"full_attention\", \"full_attention\", \"full_attention\"]}",
         "linear_attention", SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}}", "rope_type",
         SL_ERR_UNSUPPORTED},
        {QWEN3 ", \"norm_topk_prob\": 1}", "norm_topk_prob", SL_ERR_CORRUPT},
        {QWEN3 ", \"attention_bias\": \"yes\"}", "attention_bias", SL_ERR_CORRUPT},
        {"{\"model_type\": \"mamba\"}", "mamba", SL_ERR_UNSUPPORTED},
        {"{\"model_type\": \"lfm2_moe\", \"hidden_size\": 2048, \"num_hidden_layers\": 24,"
         "\"num_attention_heads\": 32, \"vocab_size\": 65536, \"max_position_embeddings\": 4096}",
         "layer_types", SL_ERR_CORRUPT},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++)
        refused(cases[i].text, cases[i].status, cases[i].field);
}

static void keys_that_are_off_are_noted(void **state) {
    (void)state;
    sl_model m;
    sl_error err;
    sl_buf notes;
    sl_buf_init(&notes);
    const sl_json *config = parse(QWEN3 ", \"brand_new_switch\": false, \"_name\": \"x\","
                                        "\"tool_token_id\": 7, \"n_shared_experts\": null}");
    assert_int_equal(sl_model_from_config(config, NULL, &m, &notes, &err), SL_OK);
    sl_buf_add_char(&notes, '\0');
    assert_non_null(strstr(notes.data, "brand_new_switch"));
    assert_null(strstr(notes.data, "tool_token_id"));
    sl_buf_deinit(&notes);
}

/* ---- places ----------------------------------------------------------------------------------------- */

static sl_tensor_spec spec_of(const sl_model *m, sl_role role, uint32_t layer) {
    sl_tensor_spec spec;
    for (uint32_t i = 0; i < sl_model_tensors(m); i++) {
        sl_model_tensor(m, i, &spec);
        if (spec.role == role && spec.layer == layer)
            return spec;
    }
    fail_msg("no %s in layer %u", sl_role_name(role), layer);
    return spec;
}

static void places_of_latent_attention(void **state) {
    (void)state;
    sl_model m = read(cogito);
    sl_tensor_place p[SL_PLACES_MAX];
    sl_tensor_spec spec = spec_of(&m, SL_ROLE_MLA_EMBED_Q, 5);
    assert_int_equal(spec.rows, 128 * 512);
    assert_int_equal(spec.cols, 128);
    assert_int_equal(sl_tensor_places(&m, &spec, 0, p), 2);
    assert_string_equal(p[0].name, "layers.5.self_attn.embed_q");
    assert_int_equal(p[0].n_stack, 128);
    assert_string_equal(p[1].name, "layers.5.self_attn.kv_b_proj");
    assert_int_equal(p[1].rows, 32768);
    assert_true(p[1].transposed);
    assert_int_equal(p[1].runs[0].rows, 128);
    assert_int_equal(p[1].runs[0].stride, 256);
    spec = spec_of(&m, SL_ROLE_EXPERT_UP_PROJ, 60);
    assert_int_equal(sl_tensor_places(&m, &spec, 17, p), 3);
    assert_string_equal(p[2].name, "layers.60.mlp.experts.17.up_proj");
    assert_int_equal(p[1].runs[0].first, 2048); // fused: after the gate rows
}

static void places_of_paired_experts(void **state) {
    (void)state;
    sl_model m = read(GPT_OSS "\"rope_theta\": 150000}");
    sl_tensor_place p[SL_PLACES_MAX];
    sl_tensor_spec spec = spec_of(&m, SL_ROLE_EXPERT_UP_PROJ, 1);
    assert_int_equal(sl_tensor_places(&m, &spec, 3, p), 3);
    assert_int_equal(p[1].suffix, SL_SUFFIX_BLOCKS); // odd rows of [5760][2880]
    assert_int_equal(p[1].rows, 5760);
    assert_int_equal(p[1].runs[0].first, 1);
    assert_int_equal(p[1].runs[0].stride, 2);
    assert_int_equal(p[1].runs[0].count, 2880);
    assert_true(p[2].transposed); // odd columns of [2880][5760]
    assert_int_equal(p[2].cols, 5760);
    assert_int_equal(p[2].first_col, 1);
    assert_int_equal(p[2].col_step, 2);
    spec = spec_of(&m, SL_ROLE_EXPERT_DOWN_BIAS, 1);
    assert_int_equal(sl_tensor_places(&m, &spec, 3, p), 2);
    assert_string_equal(p[1].name, "layers.1.mlp.experts.down_proj_bias");
    assert_true(sl_place_is_plain(&p[1]));
}

/* ---- router: the vectors of models.md 16 ------------------------------------------------------------ */

static void route(const sl_model *m, const float *logits, const float *bias, const uint32_t *picks,
                  const double *weights) {
    sl_pool pool;
    sl_cpu_backend be;
    sl_error err;
    float copy[16], choice[16], found[16];
    uint32_t found_picks[16];
    assert_int_equal(sl_pool_init(&pool, 1, NULL, NULL, &err), SL_OK);
    sl_cpu_backend_init(&be, SL_CPU_REF, &pool);
    memcpy(copy, logits, m->moe.n_experts * sizeof(float));
    sl_route(m, &be.base, copy, bias, choice, found_picks, found);
    for (uint32_t i = 0; i < m->moe.top_k; i++) {
        assert_int_equal(found_picks[i], picks[i]);
        assert_true(fabs((double)found[i] - weights[i]) < 2e-6);
    }
    sl_pool_deinit(&pool);
}

static void softmax_router(void **state) {
    (void)state;
    sl_model m = {.moe = {.n_experts = 4, .top_k = 2, .renorm = true, .route_scale = 1}};
    static const float logits[] = {2, 1, 0, -1};
    route(&m, logits, NULL, (const uint32_t[]){0, 1}, (const double[]){.731058579, .268941421});
    m.moe.renorm = false;
    route(&m, logits, NULL, (const uint32_t[]){0, 1}, (const double[]){.643914260, .236882818});
    static const float ties[] = {1, 2, 2, 2};
    m.moe.renorm = true;
    route(&m, ties, NULL, (const uint32_t[]){1, 2}, (const double[]){.5, .5});
}

static void sigmoid_router_in_groups(void **state) {
    (void)state;
    sl_model m = {.moe = {.n_experts = 8,
                          .top_k = 2,
                          .score = SL_ROUTER_SIGMOID,
                          .n_groups = 4,
                          .groups_kept = 2,
                          .renorm = true,
                          .renorm_eps = 1e-20f,
                          .route_scale = 2.5f}};
    static const float logits[] = {.5f, -1, 2, -.5f, 1.5f, 1, -2, 3},
                       bias[] = {.1f, 0, -.3f, .2f, 0, .4f, 0, -.6f};
    // Expert 7 has the largest score and its group loses.
    route(&m, logits, bias, (const uint32_t[]){5, 4}, (const double[]){1.180168, 1.319832});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_attention_with_yarn),
        cmocka_unit_test(windows_and_yarn_without_truncation),
        cmocka_unit_test(transformers_5_spelling),
        cmocka_unit_test(dense_layers_by_list_and_step),
        cmocka_unit_test(a_window_counts_only_when_used),
        cmocka_unit_test(refusals_name_the_field),
        cmocka_unit_test(keys_that_are_off_are_noted),
        cmocka_unit_test(places_of_latent_attention),
        cmocka_unit_test(places_of_paired_experts),
        cmocka_unit_test(softmax_router),
        cmocka_unit_test(sigmoid_router_in_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
