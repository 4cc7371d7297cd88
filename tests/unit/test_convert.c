/* convert: both layouts, what is refused, and going on after an interruption. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/convert.h"
#include "checkpoint/quantize.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "helpers/tensors.h"

static char notes[4096];

static sl_status convert(const char *src, const char *dst, const sl_convert_params *params,
                         bool *resumed, sl_error *err) {
    const sl_convert_params defaults = {0};
    sl_convert_outcome out;
    memset(err, 0, sizeof(*err));
    sl_status st = sl_convert_run(src, dst, params ? params : &defaults, &out, err);
    (void)snprintf(notes, sizeof(notes), "%s", out.notes.data ? out.notes.data : "");
    if (resumed)
        *resumed = out.resumed;
    sl_convert_outcome_deinit(&out);
    return st;
}

static void convert_ok(const char *src, const char *dst, const sl_convert_params *params) {
    sl_error err;
    sl_status st = convert(src, dst, params, NULL, &err);
    if (st)
        fail_msg("%s: %s: %s", src, sl_status_name(st), err.message);
}

static void convert_fails(const char *src, const char *dst, const sl_convert_params *params,
                          sl_status want, const char *says) {
    sl_error err;
    sl_status st = convert(src, dst, params, NULL, &err);
    if (st != want || !strstr(err.message, says))
        fail_msg("%s: %s '%s', expected %s '%s'", src, sl_status_name(st), err.message,
                 sl_status_name(want), says);
}

static const char *made(const char *name, const test_checkpoint *spec) {
    const char *path = test_scratch_path(name);
    test_checkpoint_write(path, spec);
    return path;
}

static void stores_agree(const sl_store *s, const char *a, const char *b) {
    const char *files[] = {"trunk.bin", "embed.bin", "experts.sum"};
    for (size_t i = 0; i < SL_COUNT(files); i++)
        if (!test_files_equal(test_path_in(a, files[i]), test_path_in(b, files[i])))
            fail_msg("%s of %s and %s differ", files[i], a, b);
    for (uint32_t i = 0; i < s->model.n_layers; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "experts/%03u.bin", i);
        if (s->model.ffn[i] == SL_FFN_DENSE) {
            assert_int_equal(access(test_path_in(a, name), F_OK), -1);
            continue;
        }
        if (!test_files_equal(test_path_in(a, name), test_path_in(b, name)))
            fail_msg("%s of %s and %s differ", name, a, b);
    }
}

static void open_ok(const char *path, sl_store *out) {
    sl_error err;
    if (sl_store_open(path, SL_DIRECT_PREFERRED, out, &err))
        fail_msg("%s", err.message);
}

static void same_store(const char *a, const char *b) {
    sl_store s;
    open_ok(a, &s);
    stores_agree(&s, a, b);
    sl_store_close(&s);
}

/* ---- what comes out ---------------------------------------------------------------------------- */

// Families with a golden in both layouts.
static const char *const pairs[] = {"qwen3_5_moe", "qwen3_next", "qwen3_moe", "olmoe",
                                    "deepseek_v3", "mixtral",    "glm4_moe",  "lfm2_moe"};

/* The same weights in BF16 of Hugging Face and in what MLX made of them: experts fused or one by one against stacked,
 * projections turned per head against those that are so already. Codes, scales, biases, norms and convolutions
 * are equal in every bit. */
static void both_layouts_give_one_store(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(pairs); i++) {
        sl_store s;
        char from[64], to[64];
        (void)snprintf(from, sizeof(from), "%s-mlx4", pairs[i]);
        (void)snprintf(to, sizeof(to), "%s-hf", pairs[i]);
        const char *hf = test_scratch_path(to), *mlx = test_scratch_path(from);
        convert_ok(test_golden(pairs[i]), hf, NULL);
        assert_non_null(strstr(notes, "no tokenizer.json"));
        convert_ok(test_golden(from), mlx, NULL);
        open_ok(hf, &s);
        stores_agree(&s, hf, mlx);
        assert_int_equal(s.expert.n_parts, 3);
        assert_int_equal(s.expert.shape[SL_PART_GATE].dtype, SL_DTYPE_Q4);
        sl_store_close(&s);
    }
}

/* Independently of the converter's own view of the file: the bytes of the MLX checkpoint are in the store, where the
 * layouts say. */
static void the_store_holds_the_checkpoints_bytes(void **state) {
    (void)state;
    static const char *const projections[] = {"gate_proj", "up_proj", "down_proj"};
    const char *dst = test_scratch_path("bytes");
    sl_store s;
    char name[160];
    size_t n;
    convert_ok(test_golden("qwen3_5_moe-mlx4"), dst, NULL);
    open_ok(dst, &s);
    test_tensors *t =
        test_tensors_open(test_path_in(test_golden("qwen3_5_moe-mlx4"), "model.safetensors"));
    uint32_t n_experts = s.model.moe.n_experts;
    for (uint32_t layer = 0; layer < s.model.n_layers; layer++) {
        (void)snprintf(name, sizeof(name), "%s/experts/%03u.bin", dst, layer);
        char *file = test_file_read(name, &n);
        assert_int_equal(n, n_experts * s.expert.stride);
        for (uint32_t e = 0; e < n_experts; e++) {
            sl_matrix m[SL_PARTS_MAX];
            char *record = aligned_alloc(4096, (size_t)s.expert.stride);
            memcpy(record, file + e * s.expert.stride, (size_t)s.expert.stride);
            sl_expert_bind(&s.expert, record, m);
            assert_true(sl_store_expert_intact(&s, layer, e, record));
            for (unsigned p = 0; p < 3; p++) {
                static const char *const parts[] = {"weight", "scales", "biases"};
                const void *ours[] = {m[p].codes, m[p].scales, m[p].biases};
                for (unsigned k = 0; k < 3; k++) {
                    (void)snprintf(name, sizeof(name),
                                   "language_model.model.layers.%u.mlp.switch_mlp.%s.%s", layer,
                                   projections[p], parts[k]);
                    test_tensor theirs = test_tensors_get(t, name);
                    size_t bytes = theirs.n_elements * (k ? 2 : 4) / n_experts;
                    assert_memory_equal(ours[k], (const char *)theirs.data + e * bytes, bytes);
                }
            }
            record[0] ^= 1;
            assert_false(sl_store_expert_intact(&s, layer, e, record));
            free(record);
        }
        free(file);
    }
    char *trunk = test_file_read(test_path_in(dst, "trunk.bin"), &n);
    const sl_store_tensor *conv = sl_store_tensor_find(&s, SL_ROLE_DELTA_CONV, 0);
    test_tensor taps =
        test_tensors_get(t, "language_model.model.layers.0.linear_attn.conv1d.weight");
    float *wide = malloc(taps.n_elements * sizeof(float)),
          *turned = (float *)(void *)(trunk + conv->offset);
    sl_widen(taps.data, SL_DTYPE_BF16, taps.n_elements, wide);
    for (uint32_t tap = 0; tap < conv->shape.rows; tap++)
        for (uint32_t c = 0; c < conv->shape.cols; c++)
            assert_true(turned[tap * conv->shape.cols + c] == wide[c * conv->shape.rows + tap]);
    free(wide);
    free(trunk);
    char *embed = test_file_read(test_path_in(dst, "embed.bin"), &n);
    test_tensor codes = test_tensors_get(t, "language_model.model.embed_tokens.weight");
    test_tensor biases = test_tensors_get(t, "language_model.model.embed_tokens.biases");
    for (uint32_t row = 0; row < s.embed.shape.rows; row++) {
        sl_matrix m;
        sl_embed_bind(&s.embed, embed + row * s.embed.stride, &m);
        assert_memory_equal(m.codes, (const char *)codes.data + row * s.embed.scales_at,
                            s.embed.scales_at);
        assert_memory_equal(m.biases,
                            (const char *)biases.data + row * (s.embed.shape.cols / 64) * 2,
                            s.embed.shape.cols / 64 * 2);
    }
    free(embed);
    test_tensors_close(t);
    sl_store_close(&s);
}

// Hugging Face's zero-centred norms become 1 + w in f32; the recurrent layers' own norm does not.
static void norms_are_one_plus_w(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_store s;
    size_t n;
    const char *src = made("norms-src", &spec), *dst = test_scratch_path("norms");
    convert_ok(src, dst, NULL);
    open_ok(dst, &s);
    test_tensors *t = test_tensors_open(test_path_in(src, "model.safetensors"));
    char *trunk = test_file_read(test_path_in(dst, "trunk.bin"), &n);
    const struct {
        sl_role role;
        uint32_t layer;
        const char *name;
        float add;
    } cases[] = {{SL_ROLE_NORM_MIXER, 0, "model.layers.0.input_layernorm.weight", 1},
                 {SL_ROLE_NORM_FFN, 3, "model.layers.3.post_attention_layernorm.weight", 1},
                 {SL_ROLE_ATTN_K_NORM, 3, "model.layers.3.self_attn.k_norm.weight", 1},
                 {SL_ROLE_NORM_FINAL, 0, "model.norm.weight", 1},
                 {SL_ROLE_DELTA_NORM, 1, "model.layers.1.linear_attn.norm.weight", 0},
                 {SL_ROLE_DELTA_A_LOG, 1, "model.layers.1.linear_attn.A_log", 0}};
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const sl_store_tensor *ours = sl_store_tensor_find(&s, cases[i].role, cases[i].layer);
        test_tensor theirs = test_tensors_get(t, cases[i].name);
        float wide[256];
        assert_int_equal(ours->shape.dtype, SL_DTYPE_F32);
        assert_int_equal(ours->shape.cols, theirs.n_elements);
        sl_widen(theirs.data, SL_DTYPE_BF16, theirs.n_elements, wide);
        for (size_t k = 0; k < theirs.n_elements; k++)
            wide[k] = cases[i].add + wide[k];
        assert_memory_equal(trunk + ours->offset, wide, theirs.n_elements * 4);
    }
    free(trunk);
    test_tensors_close(t);
    sl_store_close(&s);
}

static void types_bits_and_groups(void **state) {
    (void)state;
    static const struct {
        const char *name, *dtype;
        test_layout layout;
        uint32_t bits, group;
        sl_dtype codes, scales;
    } cases[] = {{"f16", "F16", TEST_HF_SINGLE, 0, 0, SL_DTYPE_Q4, SL_DTYPE_F16},
                 {"f32", "F32", TEST_HF_FUSED, 3, 32, SL_DTYPE_Q3, SL_DTYPE_F32},
                 {"bf16", "BF16", TEST_MLX_DENSE, 8, 64, SL_DTYPE_Q8, SL_DTYPE_BF16},
                 {"six", "BF16", TEST_HF_SINGLE, 6, 64, SL_DTYPE_Q6, SL_DTYPE_BF16}};
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        test_checkpoint spec = test_checkpoint_default();
        char src[64];
        sl_store s;
        spec.layout = cases[i].layout;
        spec.dtype = cases[i].dtype;
        (void)snprintf(src, sizeof(src), "types-%s-src", cases[i].name);
        sl_convert_params params = {.options = {.bits = cases[i].bits, .group = cases[i].group}};
        const char *dst = test_scratch_path(cases[i].name);
        convert_ok(made(src, &spec), dst, &params);
        open_ok(dst, &s);
        assert_int_equal(s.expert.shape[SL_PART_DOWN].dtype, cases[i].codes);
        assert_int_equal(s.expert.shape[SL_PART_DOWN].scale_dtype, cases[i].scales);
        assert_int_equal(s.expert.shape[SL_PART_DOWN].group, cases[i].group ? cases[i].group : 64);
        assert_int_equal(s.embed.shape.dtype, cases[i].codes);
        // Routers keep 8 bits in groups of 64 whatever is asked.
        const sl_store_tensor *router = sl_store_tensor_find(&s, SL_ROLE_ROUTER, 2);
        assert_int_equal(router->shape.dtype, SL_DTYPE_Q8);
        assert_int_equal(router->shape.group, 64);
        sl_store_close(&s);
    }
}

// 64 inputs are no whole group of 128: such a matrix stays as it is, here the experts' down and the shared one's.
static void what_does_not_fit_a_group_stays_dense(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_convert_params params = {.options = {.bits = 4, .group = 128}};
    sl_store s;
    const char *dst = test_scratch_path("dense");
    convert_ok(made("dense-src", &spec), dst, &params);
    open_ok(dst, &s);
    assert_int_equal(s.expert.shape[SL_PART_GATE].dtype, SL_DTYPE_Q4);
    assert_int_equal(s.expert.shape[SL_PART_DOWN].dtype, SL_DTYPE_BF16);
    assert_int_equal(sl_store_tensor_find(&s, SL_ROLE_SHARED_DOWN_PROJ, 0)->shape.dtype,
                     SL_DTYPE_BF16);
    sl_store_close(&s);
}

// A tied head is a copy of the embedding, so that the engine knows one kind of head.
static void a_tied_head_is_the_embedding(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    spec.tied = true;
    for (unsigned by_config = 0; by_config < 2; by_config++) {
        sl_store s;
        size_t n;
        spec.tied = by_config;
        spec.omit = by_config ? NULL : "lm_head.weight";
        const char *dst = test_scratch_path(by_config ? "tied" : "headless");
        convert_ok(made(by_config ? "tied-src" : "headless-src", &spec), dst, NULL);
        assert_int_equal(strstr(notes, "no lm_head") != NULL, !by_config);
        open_ok(dst, &s);
        assert_false(s.model.tied_head);
        const sl_store_tensor *head = sl_store_tensor_find(&s, SL_ROLE_HEAD, 0);
        assert_non_null(head);
        char *trunk = test_file_read(test_path_in(dst, "trunk.bin"), &n),
             *embed = test_file_read(test_path_in(dst, "embed.bin"), &n);
        for (uint32_t row = 0; row < s.embed.shape.rows; row++)
            assert_memory_equal(trunk + head->offset + row * head->layout.row_code_bytes,
                                embed + row * s.embed.stride, head->layout.row_code_bytes);
        free(trunk);
        free(embed);
        sl_store_close(&s);
    }
}

static void shards_make_the_same_store(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    spec.layout = TEST_HF_SINGLE;
    spec.sparse = true; // the same numbers wherever the cuts are
    const char *one = test_scratch_path("one"), *five = test_scratch_path("five");
    convert_ok(made("one-src", &spec), one, NULL);
    spec.n_shards = 5;
    const char *src = made("five-src", &spec);
    test_file_write(test_path_in(src, "extra.safetensors"), "\2\0\0\0\0\0\0\0{}", 10);
    convert_ok(src, five, NULL);
    assert_non_null(strstr(notes, "extra.safetensors is not in"));
    same_store(one, five);
    // Without the index all files count.
    assert_int_equal(unlink(test_path_in(src, "model.safetensors.index.json")), 0);
    const char *again = test_scratch_path("again");
    convert_ok(src, again, NULL);
    same_store(one, again);
}

/* ---- texts -------------------------------------------------------------------------------------- */

static void link_demo(const char *dst, const char *without) {
    static const char *const names[] = {"config.json",         "generation_config.json",
                                        "tokenizer.json",      "tokenizer_config.json",
                                        "chat_template.jinja", "model.safetensors"};
    assert_int_equal(mkdir(dst, 0777), 0);
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (!without || strcmp(names[i], without) != 0)
            assert_int_equal(
                symlink(test_path_in(SL_MODELS_DIR "/demo", names[i]), test_path_in(dst, names[i])),
                0);
}

static void the_demo_brings_its_texts(void **state) {
    (void)state;
    sl_store s;
    const char *dst = test_scratch_path("demo");
    convert_ok(SL_MODELS_DIR "/demo", dst, NULL);
    assert_non_null(strstr(notes, "left out (vision, multi-token prediction)"));
    open_ok(dst, &s);
    assert_true(s.tokenizer.bytes > 0 && s.chat_template.bytes > 0);
    assert_int_equal(s.chat_template.offset % 4096, 0);
    assert_int_equal(s.model.n_stop_tokens, 2);
    assert_true(s.do_sample && s.top_k == 20 && s.temperature == 0.7 && s.top_p == 0.95 &&
                s.min_p < 0);
    size_t n, m;
    char *text = test_file_read(test_path_in(dst, "text.bin"), &n);
    char *source = test_file_read(SL_MODELS_DIR "/demo/chat_template.jinja", &m);
    assert_int_equal(s.chat_template.bytes, m);
    assert_memory_equal(text + s.chat_template.offset, source, m);
    free(text);
    free(source);
    sl_store_close(&s);
}

static void the_tokenizers_end_token_stops(void **state) {
    (void)state;
    sl_store s;
    const char *src = test_scratch_path("no-generation-src"),
               *dst = test_scratch_path("no-generation");
    link_demo(src, "generation_config.json");
    convert_ok(src, dst, NULL);
    open_ok(dst, &s);
    // 8179 from the config, <|im_end|> from the tokenizer.
    assert_int_equal(s.model.n_stop_tokens, 2);
    assert_int_equal(s.model.stop_tokens[1], 8181);
    assert_true(s.temperature < 0 && s.top_k < 0 && !s.do_sample);
    sl_store_close(&s);
}

static void templates_are_checked_at_conversion(void **state) {
    (void)state;
    const char *bad = "line one\n{% include 'x' %}";
    const char *src = test_scratch_path("template-src"), *dst = test_scratch_path("template");
    link_demo(src, "chat_template.jinja");
    test_file_write(test_path_in(src, "chat_template.jinja"), bad, strlen(bad));
    sl_error err;
    sl_status st = convert(src, dst, NULL, NULL, &err);
    assert_int_equal(st, SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "line 2"));
    // Nothing was begun.
    assert_int_equal(access(dst, F_OK), -1);
    test_file_write(test_path_in(src, "chat_template.jinja"), "{% for", 6);
    convert_fails(src, dst, NULL, SL_ERR_CORRUPT, "chat template");
}

// What open would refuse, or what a damaged file holds, ends the conversion.
static void damaged_texts_are_refused(void **state) {
    (void)state;
    const struct {
        const char *folder, *file, *text, *says;
    } cases[] = {
        {"hot", "generation_config.json", "{\"temperature\": 1e300}", "temperature"},
        {"all", "generation_config.json", "{\"top_k\": -1}", "top_k"},
        {"cut", "tokenizer.json", "{\"model\": {", "tokenizer.json"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const char *src = test_scratch_path(cases[i].folder);
        link_demo(src, cases[i].file);
        test_file_write(test_path_in(src, cases[i].file), cases[i].text, strlen(cases[i].text));
        convert_fails(src, test_scratch_path("damaged"), NULL, SL_ERR_CORRUPT, cases[i].says);
    }
}

/* ---- what is refused --------------------------------------------------------------------------- */

static void odd_checkpoints_are_refused(void **state) {
    (void)state;
    const struct {
        const char *name;
        test_layout layout;
        float norm_offset;
        const char *omit, *extra;
        sl_status status;
        const char *says;
    } cases[] = {
        {"norms-hf", TEST_HF_FUSED, 1, NULL, NULL, SL_ERR_CORRUPT, "would be a guess"},
        {"norms-mlx", TEST_MLX_DENSE, -1, NULL, NULL, SL_ERR_CORRUPT, "would be a guess"},
        {"no-embed", TEST_HF_FUSED, 0, "model.embed_tokens.weight", NULL, SL_ERR_MISSING,
         "embed_tokens"},
        {"no-k", TEST_HF_FUSED, 0, "model.layers.3.self_attn.k_proj.weight", NULL, SL_ERR_MISSING,
         "layers.3.self_attn.k_proj"},
        {"no-norm", TEST_HF_SINGLE, 0, "model.norm.weight", NULL, SL_ERR_MISSING,
         "model.norm.weight"},
        {"no-expert", TEST_HF_SINGLE, 0, "model.layers.2.mlp.experts.5.up_proj.weight", NULL,
         SL_ERR_MISSING, "experts.5.up_proj"},
        {"bias", TEST_HF_FUSED, 0, NULL, "model.layers.3.self_attn.q_proj.bias", SL_ERR_UNSUPPORTED,
         "q_proj.bias"},
        {"fp8", TEST_HF_FUSED, 0, NULL, "model.layers.0.mlp.gate.weight_scale_inv",
         SL_ERR_UNSUPPORTED, "weight_scale_inv"},
        {"scales", TEST_HF_FUSED, 0, NULL, "other.scales", SL_ERR_CORRUPT, "would be a guess"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        test_checkpoint spec = test_checkpoint_default();
        spec.layout = cases[i].layout;
        spec.norm_offset = cases[i].norm_offset;
        spec.omit = cases[i].omit;
        spec.extra = cases[i].extra;
        convert_fails(made(cases[i].name, &spec), test_scratch_path("odd"), NULL, cases[i].status,
                      cases[i].says);
    }
    test_checkpoint spec = test_checkpoint_default();
    spec.extra = "model.visual.patch_embed.proj.bias";
    convert_ok(made("visual", &spec), test_scratch_path("odd-1"), NULL);
    assert_non_null(strstr(notes, "1 tensors that this version does not use"));
    spec.extra = "foo.bar";
    convert_ok(made("unknown", &spec), test_scratch_path("odd-2"), NULL);
    assert_non_null(strstr(notes, "the first is 'foo.bar'"));
}

static void numbers_that_are_not_finite_are_refused(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    static const char *const names[] = {
        "model.layers.1.mlp.experts.down_proj", "model.layers.0.linear_attn.dt_bias",
        "model.embed_tokens.weight", "model.layers.2.linear_attn.conv1d.weight"};
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        char name[32];
        size_t n;
        (void)snprintf(name, sizeof(name), "nan-%zu", i);
        const char *src = made(name, &spec), *file = test_path_in(src, "model.safetensors");
        test_tensors *t = test_tensors_open(file);
        test_tensor bad = test_tensors_get(t, names[i]);
        uint16_t value;
        memcpy(&value, (const char *)bad.data + 6, 2);
        char *bytes = test_file_read(file, &n);
        // The tensor's place in the file: its first bytes are random enough to be unique.
        char *at = memmem(bytes, n, bad.data, SL_MIN(bad.n_elements * 2, (size_t)512));
        assert_non_null(at);
        memcpy(at + 6, "\x80\x7f", 2);
        test_file_write(file, bytes, n);
        free(bytes);
        test_tensors_close(t);
        convert_fails(src, test_scratch_path("nan"), NULL, SL_ERR_CORRUPT, names[i]);
    }
}

static void other_formats_are_named(void **state) {
    (void)state;
    const char *src = test_scratch_path("formats"), *dst = test_scratch_path("formats-dst");
    convert_fails(src, dst, NULL, SL_ERR_MISSING, "nothing is there");
    assert_int_equal(mkdir(src, 0777), 0);
    convert_fails(src, dst, NULL, SL_ERR_MISSING, "no .safetensors files");
    test_file_write(test_path_in(src, "model-q4.gguf"), "GGUF", 4);
    convert_fails(src, dst, NULL, SL_ERR_UNSUPPORTED, "not supported yet: GGUF");
    convert_fails(test_path_in(src, "model-q4.gguf"), dst, NULL, SL_ERR_UNSUPPORTED, "GGUF");
    assert_int_equal(unlink(test_path_in(src, "model-q4.gguf")), 0);
    test_file_write(test_path_in(src, "pytorch_model.bin"), "PK", 2);
    convert_fails(src, dst, NULL, SL_ERR_UNSUPPORTED, "PyTorch");
    const char *pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    test_file_write(test_path_in(src, "model.safetensors"), pointer, strlen(pointer));
    convert_fails(src, dst, NULL, SL_ERR_CORRUPT, "git lfs pull");
}

static void broken_files_are_named(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    spec.n_shards = 3;
    const char *src = made("broken", &spec), *dst = test_scratch_path("broken-dst"), *index;
    size_t n;
    char *file = test_file_read(test_path_in(src, "model-1.safetensors"), &n);
    test_file_write(test_path_in(src, "model-1.safetensors"), file, n - 100);
    convert_fails(src, dst, NULL, SL_ERR_CORRUPT, "model-1.safetensors");
    test_file_write(test_path_in(src, "model-1.safetensors"), file, 6);
    convert_fails(src, dst, NULL, SL_ERR_CORRUPT, "model-1.safetensors");
    assert_int_equal(unlink(test_path_in(src, "model-1.safetensors")), 0);
    convert_fails(src, dst, NULL, SL_ERR_MISSING, "model-1.safetensors");
    test_file_write(test_path_in(src, "model-1.safetensors"), file, n);
    free(file);
    index = test_path_in(src, "model.safetensors.index.json");
    const struct {
        const char *text, *says;
    } cases[] = {{"", "index"},
                 {"[]", "not a JSON object"},
                 {"{\"weight_map\": {}}", "missing or empty"},
                 {"{\"weight_map\": [1]}", "not an object"},
                 {"{\"weight_map\": {\"a\": 1}}", "file names"},
                 {"{\"weight_map\": {\"a\": \"../secret.safetensors\"}}", "plain name"},
                 {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "plain name"},
                 {"{\"weight_map\": {\"a\": \"model-0.safetensors\"}", "index"}};
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        test_file_write(index, cases[i].text, strlen(cases[i].text));
        convert_fails(src, dst, NULL, SL_ERR_CORRUPT, cases[i].says);
    }
}

// The golden's config, with one text replaced by another.
static const char *edited_golden(const char *name, const char *from, const char *to) {
    const char *src = test_scratch_path(name);
    size_t n;
    assert_int_equal(mkdir(src, 0777), 0);
    assert_int_equal(symlink(test_path_in(test_golden("qwen3_5_moe-mlx4"), "model.safetensors"),
                             test_path_in(src, "model.safetensors")),
                     0);
    char *config = test_file_read(test_path_in(test_golden("qwen3_5_moe-mlx4"), "config.json"), &n);
    char *at = strstr(config, from);
    assert_non_null(at);
    char *edited = malloc(n + strlen(to) + 1);
    size_t head = (size_t)(at - config), tail = n - head - strlen(from);
    memcpy(edited, config, head);
    memcpy(edited + head, to, strlen(to));
    memcpy(edited + head + strlen(to), at + strlen(from), tail);
    test_file_write(test_path_in(src, "config.json"), edited, head + strlen(to) + tail);
    free(edited);
    free(config);
    return src;
}

static void quantization_sections_are_checked(void **state) {
    (void)state;
    sl_convert_params params = {.options = {.bits = 4}};
    const char *dst = test_scratch_path("section");
    convert_fails(edited_golden("mxfp4", "\"mode\": \"affine\"", "\"mode\": \"mxfp4\""), dst, NULL,
                  SL_ERR_UNSUPPORTED, "mxfp4");
    convert_fails(edited_golden("gptq", "\"mode\": \"affine\"", "\"quant_method\": \"gptq\""), dst,
                  NULL, SL_ERR_UNSUPPORTED, "gptq");
    convert_fails(test_golden("qwen3_5_moe-mlx4"), dst, &params, SL_ERR_ARGUMENT,
                  "quantized already");
    params.options.bits = 7;
    convert_fails(test_golden("qwen3_5_moe"), dst, &params, SL_ERR_ARGUMENT, "7 bits");
    params.options = (sl_checkpoint_options){.bits = 4, .group = 48};
    convert_fails(test_golden("qwen3_5_moe"), dst, &params, SL_ERR_ARGUMENT, "group of 48");
    // The files count: a config that claims other bits is noted.
    convert_ok(edited_golden("claims", "\"bits\": 4", "\"bits\": 5"), dst, NULL);
    assert_non_null(strstr(notes, "other bits or groups than config.json says"));
}

/* ---- destinations --------------------------------------------------------------------------------- */

static void destinations_are_protected(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_convert_params force = {.force = true};
    sl_store s;
    const char *src = made("protect-src", &spec), *dst = test_scratch_path("protect");
    convert_ok(src, dst, NULL);
    convert_fails(src, dst, NULL, SL_ERR_EXISTS, "--force");
    force.options.bits = 8;
    convert_ok(src, dst, &force);
    open_ok(dst, &s);
    assert_int_equal(s.expert.shape[SL_PART_GATE].dtype, SL_DTYPE_Q8);
    sl_store_close(&s);
    assert_int_equal(access(test_path_in(test_scratch(), "protect.partial"), F_OK), -1);
    const char *other = test_scratch_path("other-folder");
    assert_int_equal(mkdir(other, 0777), 0);
    test_file_write(test_path_in(other, "thesis.txt"), "x", 1);
    convert_fails(src, other, &force, SL_ERR_EXISTS, "not a converted model");
    assert_int_equal(access(test_path_in(other, "thesis.txt"), F_OK), 0);
    // A manifest.json alone is somebody's web project, and what lies in a model may be notes.
    test_file_write(test_path_in(other, "manifest.json"), "{}", 2);
    convert_fails(src, other, &force, SL_ERR_EXISTS, "not a converted model");
    assert_int_equal(access(test_path_in(other, "manifest.json"), F_OK), 0);
    test_file_write(test_path_in(dst, "notes.txt"), "x", 1);
    convert_fails(src, dst, &force, SL_ERR_EXISTS, "notes.txt");
    assert_int_equal(unlink(test_path_in(dst, "notes.txt")), 0);
    test_file_write(test_path_in(dst, "experts/notes.txt"), "x", 1);
    convert_fails(src, dst, &force, SL_ERR_EXISTS, "notes.txt");
    assert_int_equal(unlink(test_path_in(dst, "experts/notes.txt")), 0);
    const char *link = test_scratch_path("link");
    assert_int_equal(symlink(dst, link), 0);
    convert_fails(src, link, &force, SL_ERR_EXISTS, "symbolic link");
    convert_ok(src, dst, &force);
    assert_int_equal(mkdir(test_scratch_path("foreign.partial"), 0777), 0);
    test_file_write(test_scratch_path("foreign.partial/thesis.txt"), "x", 1);
    convert_fails(src, test_scratch_path("foreign"), NULL, SL_ERR_EXISTS, "thesis.txt");
}

/* ---- going on --------------------------------------------------------------------------------------- */

typedef struct stop {
    uint64_t at, total;
} stop;

static bool stop_at(void *user, uint64_t done, uint64_t total) {
    stop *s = user;
    s->total = total;
    assert_true(done <= total);
    return done < s->at;
}

static void a_stopped_conversion_goes_on(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_error err;
    const char *src = made("resume-src", &spec), *whole = test_scratch_path("resume-whole");
    stop s = {UINT64_MAX, 0};
    sl_convert_params params = {.report = stop_at, .user = &s};
    convert_ok(src, whole, &params);
    assert_true(s.total > 0);
    // Stopped at every sixteenth of the way, over and over, in one destination.
    const char *dst = test_scratch_path("resume");
    for (unsigned i = 1; i <= 16; i++) {
        bool resumed;
        s.at = s.total * i / 16;
        assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_ERR_CANCELED);
        assert_true(i > 1 ? i < 8 || resumed : !resumed);
        assert_int_equal(access(dst, F_OK), -1);
    }
    s.at = UINT64_MAX;
    bool resumed;
    assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_OK);
    assert_true(resumed);
    same_store(whole, dst);
    assert_true(
        test_files_equal(test_path_in(whole, "manifest.json"), test_path_in(dst, "manifest.json")));
    assert_int_equal(access(test_path_in(dst, "journal"), F_OK), -1);
}

static void changed_sources_and_options_start_anew(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_error err;
    bool resumed;
    const char *src = made("changed-src", &spec), *dst = test_scratch_path("changed");
    stop s = {UINT64_MAX, 0};
    sl_convert_params params = {.report = stop_at, .user = &s};
    convert_ok(src, test_scratch_path("changed-whole"), &params);
    s.at = s.total / 2;
    assert_int_equal(convert(src, dst, &params, NULL, &err), SL_ERR_CANCELED);
    params.options.bits = 8;
    assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_ERR_CANCELED);
    assert_false(resumed);
    assert_non_null(strstr(notes, "starts anew"));
    // The same size and another time: a file that was fetched again.
    const struct timespec times[2] = {{1000000000, 5}, {1000000000, 5}};
    assert_int_equal(utimensat(AT_FDCWD, test_path_in(src, "model.safetensors"), times, 0), 0);
    assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_ERR_CANCELED);
    assert_false(resumed);
    assert_non_null(strstr(notes, "starts anew"));
    s.at = UINT64_MAX;
    assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_OK);
    assert_true(resumed);
    sl_store store;
    open_ok(dst, &store);
    assert_int_equal(store.expert.shape[SL_PART_UP].dtype, SL_DTYPE_Q8);
    sl_store_close(&store);
}

static void a_damaged_journal_is_cut(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_error err;
    bool resumed;
    size_t n;
    const char *src = made("journal-src", &spec), *dst = test_scratch_path("journal"),
               *whole = test_scratch_path("journal-whole");
    stop s = {UINT64_MAX, 0};
    sl_convert_params params = {.report = stop_at, .user = &s};
    convert_ok(src, whole, &params);
    s.at = s.total - 1;
    assert_int_equal(convert(src, dst, &params, NULL, &err), SL_ERR_CANCELED);
    char *journal = test_file_read(test_path_in(test_scratch(), "journal.partial/journal"), &n);
    for (size_t cut = 0; cut <= n; cut += n / 23) {
        test_file_write(test_path_in(test_scratch(), "journal.partial/journal"), journal, cut);
        assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_ERR_CANCELED);
    }
    s.at = UINT64_MAX;
    journal[n / 2] ^= 1;
    test_file_write(test_path_in(test_scratch(), "journal.partial/journal"), journal, n);
    assert_int_equal(convert(src, dst, &params, &resumed, &err), SL_OK);
    same_store(whole, dst);
    free(journal);
}

// Killed between the end of all work and the rename: the folder holds a store without a journal.
static void a_finished_folder_is_published(void **state) {
    (void)state;
    test_checkpoint spec = test_checkpoint_default();
    sl_error err;
    bool resumed;
    stop s = {1, 0};
    sl_convert_params never = {.report = stop_at, .user = &s};
    const char *src = made("finished-src", &spec), *dst = test_scratch_path("finished");
    convert_ok(src, dst, NULL);
    assert_int_equal(rename(dst, test_path_in(test_scratch(), "finished.partial")), 0);
    assert_int_equal(convert(src, dst, &never, &resumed, &err), SL_OK);
    assert_true(resumed);
    sl_store store;
    open_ok(dst, &store);
    sl_store_close(&store);
}

/* ---- numbers without a store ------------------------------------------------------------------------ */

static void describing_equals_converting(void **state) {
    (void)state;
    static const char *const names[] = {
        "qwen3_5_moe",     "qwen3_5_moe-mlx4", "qwen3_5_moe_text", "qwen3_next",
        "qwen3_next-mlx4", "qwen3_moe",        "qwen3_moe-mlx4",   "olmoe",
        "olmoe-mlx4",      "deepseek_v3",      "deepseek_v3-mlx4", "mixtral",
        "mixtral-mlx4",    "glm4_moe",         "glm4_moe-mlx4",    "lfm2_moe",
        "lfm2_moe-mlx4",   "gpt_oss"};
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        const sl_checkpoint_options options = {0};
        sl_checkpoint ck;
        sl_store real, from_files, from_config;
        sl_buf said;
        sl_error err;
        size_t n;
        char dst[64];
        (void)snprintf(dst, sizeof(dst), "describe-%zu", i);
        const char *path = test_scratch_path(dst);
        convert_ok(test_golden(names[i]), path, NULL);
        open_ok(path, &real);
        sl_buf_init(&said);
        assert_int_equal(sl_checkpoint_open(test_golden(names[i]), &options, &said, &ck, &err),
                         SL_OK);
        assert_int_equal(sl_checkpoint_describe(&ck, &from_files, &err), SL_OK);
        char *config = test_file_read(test_path_in(test_golden(names[i]), "config.json"), &n);
        assert_int_equal(sl_config_describe(config, n, &options, &from_config, &err), SL_OK);
        const sl_store *both[] = {&from_files, &from_config};
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(both[k]->model_bytes, real.model_bytes);
            assert_int_equal(both[k]->trunk_bytes, real.trunk_bytes);
            assert_int_equal(both[k]->expert.stride, real.expert.stride);
            assert_int_equal(both[k]->n_tensors, real.n_tensors);
            for (uint32_t j = 0; j < real.n_tensors; j++)
                assert_int_equal(both[k]->tensors[j].offset, real.tensors[j].offset);
        }
        free(config);
        sl_checkpoint_close(&ck);
        sl_buf_deinit(&said);
        sl_store_close(&real);
        sl_store_close(&from_files);
        sl_store_close(&from_config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_layouts_give_one_store),
        cmocka_unit_test(the_store_holds_the_checkpoints_bytes),
        cmocka_unit_test(norms_are_one_plus_w),
        cmocka_unit_test(types_bits_and_groups),
        cmocka_unit_test(what_does_not_fit_a_group_stays_dense),
        cmocka_unit_test(a_tied_head_is_the_embedding),
        cmocka_unit_test(shards_make_the_same_store),
        cmocka_unit_test(the_demo_brings_its_texts),
        cmocka_unit_test(the_tokenizers_end_token_stops),
        cmocka_unit_test(templates_are_checked_at_conversion),
        cmocka_unit_test(damaged_texts_are_refused),
        cmocka_unit_test(odd_checkpoints_are_refused),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(broken_files_are_named),
        cmocka_unit_test(quantization_sections_are_checked),
        cmocka_unit_test(destinations_are_protected),
        cmocka_unit_test(a_stopped_conversion_goes_on),
        cmocka_unit_test(changed_sources_and_options_start_anew),
        cmocka_unit_test(a_damaged_journal_is_cut),
        cmocka_unit_test(a_finished_folder_is_published),
        cmocka_unit_test(describing_equals_converting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
