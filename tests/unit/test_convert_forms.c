/* convert: the forms in which checkpoints hold weights. Each test writes a checkpoint from a golden or from nothing,
 * and holds the store to what the test computes by itself, or to the store of the same weights in a plain form. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "convert/convert.h"
#include "checkpoint/quantize.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "helpers/tensors.h"

static char notes[4096];

static sl_status convert(const char *src, const char *dst, const sl_convert_params *params,
                         sl_error *err) {
    const sl_convert_params defaults = {.force = true};
    sl_convert_outcome out;
    memset(err, 0, sizeof(*err));
    sl_status st = sl_convert_run(src, dst, params ? params : &defaults, &out, err);
    (void)snprintf(notes, sizeof(notes), "%s", out.notes.data ? out.notes.data : "");
    sl_convert_outcome_deinit(&out);
    return st;
}

static void convert_ok(const char *src, const char *dst, const sl_convert_params *params) {
    sl_error err;
    sl_status st = convert(src, dst, params, &err);
    if (st)
        fail_msg("%s: %s: %s", src, sl_status_name(st), err.message);
}

static void convert_fails(const char *src, const sl_convert_params *params, sl_status want,
                          const char *says) {
    sl_error err;
    sl_status st = convert(src, test_scratch_path("fails"), params, &err);
    if (st != want || !strstr(err.message, says))
        fail_msg("%s: %s '%s', expected %s '%s'", src, sl_status_name(st), err.message,
                 sl_status_name(want), says);
}

static void open_ok(const char *path, sl_store *out) {
    sl_error err;
    if (sl_store_open(path, SL_DIRECT_PREFERRED, out, &err))
        fail_msg("%s", err.message);
}

static void stores_agree(const char *a, const char *b) {
    sl_store s;
    const char *files[] = {"trunk.bin", "embed.bin", "experts.sum"};
    for (size_t i = 0; i < SL_COUNT(files); i++)
        if (!test_files_equal(test_path_in(a, files[i]), test_path_in(b, files[i])))
            fail_msg("%s of %s and %s differ", files[i], a, b);
    open_ok(a, &s);
    for (uint32_t i = 0; i < s.model.n_layers; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "experts/%03u.bin", i);
        if (s.model.ffn[i] == SL_FFN_MOE &&
            !test_files_equal(test_path_in(a, name), test_path_in(b, name)))
            fail_msg("%s of %s and %s differ", name, a, b);
    }
    sl_store_close(&s);
}

/* ---- checkpoints from goldens --------------------------------------------------------------------- */

static test_entries read_golden(const char *name) {
    return test_entries_read(test_path_in(test_golden(name), "model.safetensors"));
}

/* Write a folder: tensors, and the golden's config with `section` as its first member (text that ends in a comma, or
 * empty) in place of what it says of quantization. */
static const char *write_folder(const char *name, const test_entries *e, const char *config_of,
                                const char *section) {
    const char *path = test_scratch_path(name);
    size_t n;
    (void)mkdir(path, 0777);
    test_entries_write(e, test_path_in(path, "model.safetensors"));
    char *config = test_file_read(test_path_in(test_golden(config_of), "config.json"), &n);
    // The golden's own sections go: from the key to the brace that closes it.
    for (char *at; (at = strstr(config, "\"quantization"));) {
        char *end = strchr(at, '{');
        for (int depth = 0; *end; end++) {
            depth += *end == '{';
            depth -= *end == '}';
            if (depth == 0)
                break;
        }
        end += 1 + (end[1] == ',');
        memmove(at, end, strlen(end) + 1);
    }
    char *text = malloc(strlen(config) + strlen(section) + 1);
    (void)sprintf(text, "{%s%s", section, strchr(config, '{') + 1);
    test_file_write(test_path_in(path, "config.json"), text, strlen(text));
    free(text);
    free(config);
    return path;
}

static void edit_config(const char *folder, const char *from, const char *to) {
    size_t n;
    char *config = test_file_read(test_path_in(folder, "config.json"), &n);
    char *at = strstr(config, from);
    assert_non_null(at);
    char *text = malloc(n + strlen(to) + 1);
    int m = sprintf(text, "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    test_file_write(test_path_in(folder, "config.json"), text, (size_t)m);
    free(text);
    free(config);
}

static uint64_t random_state = 1;
static uint32_t next_random(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 32);
}

// A tensor of the store's trunk, or a part of an expert, in memory; freed by the caller.
static char *trunk_tensor(const char *dst, const sl_store *s, sl_role role, uint32_t layer,
                          sl_matrix *out) {
    size_t n;
    const sl_store_tensor *t = sl_store_tensor_find(s, role, layer);
    assert_non_null(t);
    char *trunk = test_file_read(test_path_in(dst, "trunk.bin"), &n);
    sl_matrix_bind(out, &t->shape, &t->layout, trunk + t->offset);
    return trunk;
}
static char *expert_parts(const char *dst, const sl_store *s, uint32_t layer, uint32_t expert,
                          sl_matrix out[SL_PARTS_MAX]) {
    size_t n;
    char name[32];
    (void)snprintf(name, sizeof(name), "experts/%03u.bin", layer);
    char *file = test_file_read(test_path_in(dst, name), &n);
    sl_expert_bind(&s->expert, file + expert * s->expert.stride, out);
    return file;
}

static void bytes_equal(const void *a, const void *b, size_t n, const char *what) {
    if (memcmp(a, b, n) != 0)
        fail_msg("%s differs", what);
}

/* The matrix is what `w` quantizes to. */
static void is_quantized(const sl_matrix *m, const float *w, const char *what) {
    sl_matrix_layout l;
    sl_error err;
    assert_int_equal(sl_matrix_layout_of(&m->shape, &l, &err), SL_OK);
    char *codes = malloc((size_t)l.codes_bytes), *scales = malloc((size_t)l.scales_bytes),
         *biases = malloc((size_t)l.biases_bytes);
    assert_true(sl_dtype_is_affine(m->shape.dtype));
    assert_true(sl_quantize_rows(w, m->shape.rows, &m->shape, codes, scales, biases));
    bytes_equal(m->codes, codes, (size_t)l.codes_bytes, what);
    bytes_equal(m->scales, scales, (size_t)l.scales_bytes, what);
    bytes_equal(m->biases, biases, (size_t)l.biases_bytes, what);
    free(codes);
    free(scales);
    free(biases);
}

/* ---- names and forms ------------------------------------------------------------------------------ */

// transformers 5 may write the experts of families that had one tensor each as fused ones.
static void fused_experts_of_a_family_with_single_ones(void **state) {
    (void)state;
    test_entries e = read_golden("qwen3_moe");
    const size_t d = 128, inner = 64, size = 2;
    size_t n_experts = 0, n_layers = 0;
    char name[160];
    do
        (void)snprintf(name, sizeof(name), "model.layers.0.mlp.experts.%zu.up_proj.weight",
                       ++n_experts);
    while (test_entries_find(&e, name));
    do
        (void)snprintf(name, sizeof(name), "model.layers.%zu.input_layernorm.weight", ++n_layers);
    while (test_entries_find(&e, name));
    for (size_t l = 0; l < n_layers; l++) {
        static const char *const projections[] = {"gate", "up", "down"};
        (void)snprintf(name, sizeof(name), "model.layers.%zu.mlp.experts.gate_up_proj", l);
        char *gate_up = test_entries_add(&e, name, "BF16", n_experts, 2 * inner, d, 0);
        (void)snprintf(name, sizeof(name), "model.layers.%zu.mlp.experts.down_proj", l);
        char *down = test_entries_add(&e, name, "BF16", n_experts, d, inner, 0);
        for (size_t k = 0; k < n_experts; k++) {
            const size_t matrix = inner * d * size;
            char *to[] = {gate_up + 2 * k * matrix, gate_up + (2 * k + 1) * matrix,
                          down + k * matrix};
            for (size_t p = 0; p < 3; p++) {
                (void)snprintf(name, sizeof(name),
                               "model.layers.%zu.mlp.experts.%zu.%s_proj.weight", l, k,
                               projections[p]);
                test_entry *t = test_entries_find(&e, name);
                assert_int_equal(t->bytes, matrix);
                memcpy(to[p], t->data, matrix);
                test_entries_drop(&e, name);
            }
        }
    }
    const char *fused = test_scratch_path("fused"), *single = test_scratch_path("single");
    convert_ok(write_folder("fused-src", &e, "qwen3_moe", ""), fused, NULL);
    convert_ok(test_golden("qwen3_moe"), single, NULL);
    stores_agree(fused, single);
    test_entries_free(&e);
}

// Layers past the last one are multi-token prediction; the frequencies of some old files follow from the config.
static void layers_past_the_end_are_left_out(void **state) {
    (void)state;
    test_entries e = read_golden("deepseek_v3");
    (void)test_entries_add(&e, "model.layers.5.enorm.weight", "BF16", 128, 0, 0, 0);
    (void)test_entries_add(&e, "model.layers.5.eh_proj.weight", "BF16", 128, 256, 0, 0);
    (void)test_entries_add(&e, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 16, 0, 0, 0);
    const char *dst = test_scratch_path("mtp"), *plain = test_scratch_path("no-mtp");
    convert_ok(write_folder("mtp-src", &e, "deepseek_v3", ""), dst, NULL);
    assert_non_null(strstr(notes, "2 tensors (65792 bytes) of layers from 5 on are left out"));
    assert_null(strstr(notes, "inv_freq"));
    convert_ok(test_golden("deepseek_v3"), plain, NULL);
    assert_null(strstr(notes, "left out"));
    stores_agree(dst, plain);
    (void)test_entries_add(&e, "model.layers.4.enorm.weight", "BF16", 128, 0, 0, 0);
    convert_fails(write_folder("mtp-src", &e, "deepseek_v3", ""), NULL, SL_ERR_UNSUPPORTED,
                  "model.layers.4.enorm.weight");
    test_entries_free(&e);
}

/* ---- gpt-oss -------------------------------------------------------------------------------------- */

typedef struct gpt_shape {
    size_t n_experts, d_model, d_expert;
} gpt_shape;

/* A model of one layer of random weights: its trunk, and experts as asked. */
typedef enum gpt_form {
    GPT_BF16,         /* [in][out], gate and up columns alternating */
    GPT_BF16_STACKED, /* the same numbers in MLX's names, [out][in] each */
    GPT_BLOCKS,       /* MXFP4, gate and up rows alternating */
    GPT_MXFP4_MLX,    /* the same in MLX's names */
} gpt_form;

static uint16_t bf16_of(size_t expert, size_t part, size_t row, size_t col) {
    // Any mixture that differs in all of them: a sign, an exponent near 1, seven bits.
    uint32_t h = (uint32_t)(expert * 7919 + part * 104729 + row * 31337 + col * 271) * 2654435761u;
    return (uint16_t)((h >> 31) << 15 | (120 + (h >> 20 & 3)) << 7 | (h >> 8 & 127));
}
static uint8_t code_byte(size_t expert, size_t part, size_t row, size_t byte) {
    return (uint8_t)((expert * 7919 + part * 104729 + row * 31337 + byte * 271) * 2654435761u >>
                     13);
}
static uint8_t scale_byte(size_t expert, size_t part, size_t row, size_t group) {
    return (uint8_t)(116 + (expert * 3 + part * 5 + row * 7 + group * 11) % 17);
}
static uint16_t bias_of(size_t expert, size_t part, size_t row) {
    return bf16_of(expert, part + 3, row, 0);
}

static void add_trunk(test_entries *e, gpt_shape g) {
    static const struct {
        const char *name;
        size_t rows, cols; /* 0: d_model */
    } rows[] = {{"embed_tokens.weight", 64, 0},
                {"norm.weight", 0, 1},
                {"layers.0.input_layernorm.weight", 0, 1},
                {"layers.0.post_attention_layernorm.weight", 0, 1},
                {"layers.0.self_attn.q_proj.weight", 64, 0},
                {"layers.0.self_attn.k_proj.weight", 64, 0},
                {"layers.0.self_attn.v_proj.weight", 64, 0},
                {"layers.0.self_attn.o_proj.weight", 0, 64},
                {"layers.0.self_attn.q_proj.bias", 64, 1},
                {"layers.0.self_attn.k_proj.bias", 64, 1},
                {"layers.0.self_attn.v_proj.bias", 64, 1},
                {"layers.0.self_attn.o_proj.bias", 0, 1},
                {"layers.0.self_attn.sinks", 2, 1},
                {"layers.0.mlp.router.weight", 1, 0},
                {"layers.0.mlp.router.bias", 1, 1}};
    uint16_t *to;
    for (size_t i = 0; i < SL_COUNT(rows); i++) {
        char name[160];
        bool router = strstr(rows[i].name, "router");
        size_t r = router ? g.n_experts : rows[i].rows ? rows[i].rows : g.d_model;
        size_t c = rows[i].cols ? rows[i].cols : g.d_model;
        (void)snprintf(name, sizeof(name), "model.%s", rows[i].name);
        to = test_entries_add(e, name, "BF16", r, c == 1 ? 0 : c, 0, 0);
        for (size_t k = 0; k < r * c; k++)
            to[k] = bf16_of(99, i, k / c, k % c);
    }
    to = test_entries_add(e, "lm_head.weight", "BF16", 64, g.d_model, 0, 0);
    for (size_t k = 0; k < 64 * g.d_model; k++)
        to[k] = bf16_of(98, 0, 0, k);
}

#define EXPERTS "model.layers.0.mlp.experts."

static void add_bf16(test_entries *e, gpt_shape g) {
    const size_t n = g.n_experts, d = g.d_model, f = g.d_expert;
    uint16_t *gate_up = test_entries_add(e, EXPERTS "gate_up_proj", "BF16", n, d, 2 * f, 0);
    uint16_t *down = test_entries_add(e, EXPERTS "down_proj", "BF16", n, f, d, 0);
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < d; i++)
            for (size_t o = 0; o < 2 * f; o++)
                gate_up[(k * d + i) * 2 * f + o] = bf16_of(k, o % 2, o / 2, i);
        for (size_t i = 0; i < f; i++)
            for (size_t o = 0; o < d; o++)
                down[(k * f + i) * d + o] = bf16_of(k, 2, o, i);
    }
}

static void add_stacked(test_entries *e, gpt_shape g) {
    static const char *const names[] = {EXPERTS "gate_proj.weight", EXPERTS "up_proj.weight",
                                        EXPERTS "down_proj.weight"};
    for (size_t p = 0; p < 3; p++) {
        size_t rows = p == 2 ? g.d_model : g.d_expert, cols = p == 2 ? g.d_expert : g.d_model;
        uint16_t *to = test_entries_add(e, names[p], "BF16", g.n_experts, rows, cols, 0);
        for (size_t k = 0; k < g.n_experts * rows * cols; k++)
            to[k] = bf16_of(k / cols / rows, p, k / cols % rows, k % cols);
    }
}

static void fill_mxfp4(uint8_t *codes, uint8_t *scales, size_t expert, size_t part, size_t row,
                       size_t cols) {
    for (size_t i = 0; i < cols / 2; i++)
        codes[i] = code_byte(expert, part, row, i);
    for (size_t i = 0; i < cols / 32; i++)
        scales[i] = scale_byte(expert, part, row, i);
}

static void add_blocks(test_entries *e, gpt_shape g) {
    for (size_t fused = 0; fused < 2; fused++) {
        size_t rows = fused ? 2 * g.d_expert : g.d_model, cols = fused ? g.d_model : g.d_expert;
        const char *base = fused ? EXPERTS "gate_up_proj" : EXPERTS "down_proj";
        char name[160];
        (void)snprintf(name, sizeof(name), "%s_blocks", base);
        uint8_t *codes = test_entries_add(e, name, "U8", g.n_experts, rows, cols / 32, 16);
        (void)snprintf(name, sizeof(name), "%s_scales", base);
        uint8_t *scales = test_entries_add(e, name, "U8", g.n_experts, rows, cols / 32, 0);
        for (size_t k = 0; k < g.n_experts; k++)
            for (size_t r = 0; r < rows; r++)
                fill_mxfp4(codes + (k * rows + r) * cols / 2, scales + (k * rows + r) * cols / 32,
                           k, fused ? r % 2 : 2, fused ? r / 2 : r, cols);
    }
}

static void add_mxfp4_mlx(test_entries *e, gpt_shape g) {
    static const char *const names[] = {"gate", "up", "down"};
    for (size_t p = 0; p < 3; p++) {
        size_t rows = p == 2 ? g.d_model : g.d_expert, cols = p == 2 ? g.d_expert : g.d_model;
        char name[160];
        (void)snprintf(name, sizeof(name), EXPERTS "%s_proj.weight", names[p]);
        uint8_t *codes = test_entries_add(e, name, "U32", g.n_experts, rows, cols / 8, 0);
        (void)snprintf(name, sizeof(name), EXPERTS "%s_proj.scales", names[p]);
        uint8_t *scales = test_entries_add(e, name, "U8", g.n_experts, rows, cols / 32, 0);
        for (size_t r = 0; r < g.n_experts * rows; r++)
            fill_mxfp4(codes + r * cols / 2, scales + r * cols / 32, r / rows, p, r % rows, cols);
    }
}

static void add_biases(test_entries *e, gpt_shape g, bool mlx) {
    const size_t n = g.n_experts, f = g.d_expert, d = g.d_model;
    uint16_t *down = test_entries_add(e, mlx ? EXPERTS "down_proj.bias" : EXPERTS "down_proj_bias",
                                      "BF16", n, d, 0, 0);
    for (size_t k = 0; k < n * d; k++)
        down[k] = bias_of(k / d, 2, k % d);
    if (mlx) {
        for (size_t p = 0; p < 2; p++) {
            uint16_t *to = test_entries_add(
                e, p ? EXPERTS "up_proj.bias" : EXPERTS "gate_proj.bias", "BF16", n, f, 0, 0);
            for (size_t k = 0; k < n * f; k++)
                to[k] = bias_of(k / f, p, k % f);
        }
        return;
    }
    uint16_t *to = test_entries_add(e, EXPERTS "gate_up_proj_bias", "BF16", n, 2 * f, 0, 0);
    for (size_t k = 0; k < n * 2 * f; k++)
        to[k] = bias_of(k / (2 * f), k % 2, k % (2 * f) / 2);
}

static test_entries gpt_entries(gpt_shape g, gpt_form form) {
    test_entries e = {NULL, 0};
    bool mlx = form == GPT_BF16_STACKED || form == GPT_MXFP4_MLX;
    add_trunk(&e, g);
    if (form == GPT_BF16)
        add_bf16(&e, g);
    else if (form == GPT_BF16_STACKED)
        add_stacked(&e, g);
    else if (form == GPT_BLOCKS)
        add_blocks(&e, g);
    else
        add_mxfp4_mlx(&e, g);
    add_biases(&e, g, mlx);
    return e;
}

static const char *write_gpt(const char *name, const test_entries *e, gpt_shape g,
                             const char *section) {
    const char *path = test_scratch_path(name);
    char config[1024];
    int n = snprintf(config, sizeof(config),
                     "{%s\"model_type\": \"gpt_oss\", \"hidden_size\": %zu, "
                     "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
                     "\"num_key_value_heads\": 2, \"head_dim\": 32, \"num_local_experts\": %zu, "
                     "\"num_experts_per_tok\": 1, \"intermediate_size\": %zu, "
                     "\"attention_bias\": true, \"rms_norm_eps\": 1e-5, \"vocab_size\": 64, "
                     "\"sliding_window\": 32, \"layer_types\": [\"full_attention\"], "
                     "\"rope_theta\": 150000, \"max_position_embeddings\": 512, "
                     "\"tie_word_embeddings\": false}",
                     section, g.d_model, g.n_experts, g.d_expert);
    (void)mkdir(path, 0777);
    test_entries_write(e, test_path_in(path, "model.safetensors"));
    test_file_write(test_path_in(path, "config.json"), config, (size_t)n);
    return path;
}

#define HF_MXFP4 "\"quantization_config\": {\"quant_method\": \"mxfp4\"}, "
#define MLX_MXFP4 "\"quantization\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\"}, "

static const gpt_shape small = {5, 128, 96};
/* More than the buffers hold: a gate of 4096 x 2176 f32 is 35.7 MB, its rows in blocks 8.9 MB. */
static const gpt_shape large = {1, 2176, 4096};

// [in][out] with alternating columns against what the test itself turned.
static void turned_experts(gpt_shape g, const char *names[4], uint32_t group) {
    sl_store s;
    sl_convert_params params = {.options = {.bits = 4, .group = group}, .force = true};
    test_entries hf = gpt_entries(g, GPT_BF16), plain = gpt_entries(g, GPT_BF16_STACKED);
    const char *a = test_scratch_path(names[0]), *b = test_scratch_path(names[1]);
    convert_ok(write_gpt(names[2], &hf, g, ""), a, &params);
    convert_ok(write_gpt(names[3], &plain, g, ""), b, &params);
    stores_agree(a, b);
    open_ok(a, &s);
    assert_int_equal(s.expert.n_parts, 6);
    assert_int_equal(s.expert.shape[SL_PART_DOWN].dtype,
                     g.d_expert % group ? SL_DTYPE_BF16 : SL_DTYPE_Q4);
    // And by itself: row 3 of the last expert's up, element by element, and its biases.
    sl_matrix m[SL_PARTS_MAX];
    char *file = expert_parts(a, &s, 0, (uint32_t)g.n_experts - 1, m);
    float *w = malloc(g.d_expert * g.d_model * sizeof(float));
    for (size_t i = 0; i < g.d_expert * g.d_model; i++) {
        uint16_t h = bf16_of(g.n_experts - 1, 1, i / g.d_model, i % g.d_model);
        sl_widen(&h, SL_DTYPE_BF16, 1, &w[i]);
    }
    is_quantized(&m[SL_PART_UP], w, "up");
    for (size_t p = 0; p < 3; p++) {
        size_t rows = p == 2 ? g.d_model : g.d_expert;
        assert_int_equal(m[SL_PART_GATE_BIAS + p].shape.dtype, SL_DTYPE_F32);
        for (size_t i = 0; i < rows; i++) {
            uint16_t h = bias_of(g.n_experts - 1, p, i);
            float want;
            sl_widen(&h, SL_DTYPE_BF16, 1, &want);
            assert_true(((const float *)m[SL_PART_GATE_BIAS + p].codes)[i] == want);
        }
    }
    free(w);
    free(file);
    sl_store_close(&s);
    test_entries_free(&hf);
    test_entries_free(&plain);
}

static void experts_in_columns_are_turned(void **state) {
    (void)state;
    const char *names[] = {"columns", "rows", "columns-src", "rows-src"};
    turned_experts(small, names, 32);
}

// 96 inputs are no group of 64: down is turned and stays BF16.
static void turned_experts_may_stay_dense(void **state) {
    (void)state;
    const char *names[] = {"columns-64", "rows-64", "columns-64-src", "rows-64-src"};
    turned_experts(small, names, 64);
}

static void large_experts_are_turned_in_strips(void **state) {
    (void)state;
    const char *names[] = {"columns-large", "rows-large", "columns-large-src", "rows-large-src"};
    turned_experts(large, names, 64);
}

/* MXFP4 goes into the store as it is, whatever the file's order of rows; the rest stays BF16 unless bits are asked for. */
static void mxfp4_experts(gpt_shape g, const char *names[4]) {
    sl_store s;
    sl_matrix m[SL_PARTS_MAX];
    test_entries hf = gpt_entries(g, GPT_BLOCKS), mlx = gpt_entries(g, GPT_MXFP4_MLX);
    const char *a = test_scratch_path(names[0]), *b = test_scratch_path(names[1]);
    convert_ok(write_gpt(names[2], &hf, g, HF_MXFP4), a, NULL);
    assert_null(strstr(notes, "other bits"));
    assert_non_null(strstr(notes, "7 matrices are not quantized in the checkpoint"));
    convert_ok(write_gpt(names[3], &mlx, g, MLX_MXFP4), b, NULL);
    assert_null(strstr(notes, "other bits"));
    stores_agree(a, b);
    open_ok(a, &s);
    assert_int_equal(sl_store_tensor_find(&s, SL_ROLE_ATTN_Q, 0)->shape.dtype, SL_DTYPE_BF16);
    assert_int_equal(s.embed.shape.dtype, SL_DTYPE_BF16);
    for (size_t k = 0; k < g.n_experts; k++) {
        char *file = expert_parts(a, &s, 0, (uint32_t)k, m);
        for (size_t p = 0; p < 3; p++) {
            size_t rows = p == 2 ? g.d_model : g.d_expert, cols = p == 2 ? g.d_expert : g.d_model;
            assert_int_equal(m[p].shape.dtype, SL_DTYPE_MXFP4);
            for (size_t r = 0; r < rows; r++) {
                for (size_t i = 0; i < cols / 2; i++)
                    assert_int_equal(((const uint8_t *)m[p].codes)[r * cols / 2 + i],
                                     code_byte(k, p, r, i));
                for (size_t i = 0; i < cols / 32; i++)
                    assert_int_equal(((const uint8_t *)m[p].scales)[r * cols / 32 + i],
                                     scale_byte(k, p, r, i));
            }
        }
        free(file);
    }
    sl_store_close(&s);
    test_entries_free(&hf);
    test_entries_free(&mlx);
}

static void mxfp4_is_kept(void **state) {
    (void)state;
    const char *names[] = {"blocks", "mxfp4", "blocks-src", "mxfp4-src"};
    mxfp4_experts(small, names);
}

static void large_mxfp4_is_kept(void **state) {
    (void)state;
    const char *names[] = {"blocks-large", "mxfp4-large", "blocks-large-src", "mxfp4-large-src"};
    mxfp4_experts(large, names);
}

static void the_rest_of_mxfp4_can_be_quantized(void **state) {
    (void)state;
    sl_store s;
    const sl_convert_params params = {.options = {.bits = 8}, .force = true};
    test_entries e = gpt_entries(small, GPT_BLOCKS);
    const char *src = write_gpt("rest-src", &e, small, HF_MXFP4), *dst = test_scratch_path("rest");
    convert_ok(src, dst, &params);
    assert_null(strstr(notes, "not quantized"));
    open_ok(dst, &s);
    assert_int_equal(s.expert.shape[SL_PART_UP].dtype, SL_DTYPE_MXFP4);
    assert_int_equal(sl_store_tensor_find(&s, SL_ROLE_ATTN_Q, 0)->shape.dtype, SL_DTYPE_Q8);
    assert_int_equal(s.embed.shape.dtype, SL_DTYPE_Q8);
    // The plan from the config alone says the same.
    sl_store planned;
    sl_error err;
    size_t n;
    char *config = test_file_read(test_path_in(src, "config.json"), &n);
    assert_int_equal(sl_config_describe(config, n, &params.options, &planned, &err), SL_OK);
    assert_int_equal(planned.model_bytes, s.model_bytes);
    sl_store_close(&planned);
    const sl_checkpoint_options none = {0};
    assert_int_equal(sl_config_describe(config, n, &none, &planned, &err), SL_OK);
    assert_true(planned.model_bytes > s.model_bytes);
    assert_int_equal(planned.embed.shape.dtype, SL_DTYPE_BF16);
    assert_int_equal(planned.expert.shape[SL_PART_UP].dtype, SL_DTYPE_MXFP4);
    sl_store_close(&planned);
    free(config);
    sl_store_close(&s);
    test_entries_free(&e);
}

static void damaged_mxfp4_is_named(void **state) {
    (void)state;
    static const char *const blocks = EXPERTS "gate_up_proj_blocks", *const scales = EXPERTS
                                                                     "gate_up_proj_scales";
    for (unsigned i = 0; i < 6; i++) {
        test_entries e = gpt_entries(small, i < 4 ? GPT_BLOCKS : GPT_MXFP4_MLX);
        const char *says = blocks, *section = i < 4 ? HF_MXFP4 : MLX_MXFP4;
        sl_status want = SL_ERR_CORRUPT;
        test_entry *t;
        switch (i) {
        case 0: // of the last expert's up
            t = test_entries_find(&e, scales);
            ((uint8_t *)t->data)[t->bytes - 1] = 255;
            break;
        case 1:
            test_entries_drop(&e, scales);
            want = SL_ERR_MISSING;
            break;
        case 2:
            t = test_entries_find(&e, scales);
            t->shape[1] /= 2, t->shape[2] *= 2;
            says = scales;
            break;
        case 3:
            t = test_entries_find(&e, blocks);
            t->shape[2] *= 2, t->shape[3] /= 2;
            break;
        case 4:
            t = test_entries_find(&e, EXPERTS "down_proj.scales");
            ((uint8_t *)t->data)[0] = 255;
            says = EXPERTS "down_proj.weight";
            break;
        default:
            t = test_entries_find(&e, EXPERTS "down_proj.weight");
            t->shape[1] *= 2, t->shape[2] /= 2;
            says = EXPERTS "down_proj.weight";
            break;
        }
        convert_fails(write_gpt("damaged-src", &e, small, section), NULL, want, says);
        test_entries_free(&e);
    }
}

static void modes_of_modules(void **state) {
    (void)state;
    test_entries e = gpt_entries(small, GPT_MXFP4_MLX);
    const sl_convert_params asked = {.options = {.bits = 4}, .force = true};
    static const struct {
        const char *section;
        sl_status status;
        const char *says;
    } cases[] = {
        {"\"quantization\": {\"group_size\": 64, \"bits\": 8, \"mode\": \"affine\", \"" EXPERTS
         "gate_proj\": {\"mode\": \"mxfp4\"}, \"" EXPERTS "up_proj\": {\"mode\": \"mxfp4\"}, "
         "\"" EXPERTS "down_proj\": {\"mode\": \"mxfp4\", \"group_size\": 32, \"bits\": 4}}, ",
         SL_OK, ""},
        {"\"quantization\": {\"group_size\": 32, \"bits\": 8, \"mode\": \"mxfp8\"}, ",
         SL_ERR_UNSUPPORTED, "mxfp8"},
        {"\"quantization\": {\"group_size\": 16, \"bits\": 4, \"mode\": \"nvfp4\"}, ",
         SL_ERR_UNSUPPORTED, "nvfp4"},
        {"\"quantization\": {\"group_size\": 64, \"bits\": 4, \"mode\": \"mxfp4\"}, ",
         SL_ERR_UNSUPPORTED, "groups of 64"},
        {"\"quantization\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\", \"" EXPERTS
         "up_proj\": {\"mode\": \"nvfp4\"}}, ",
         SL_ERR_UNSUPPORTED, EXPERTS "up_proj"},
        {"\"quantization_config\": {\"quant_method\": \"awq\"}, ", SL_ERR_UNSUPPORTED, "awq"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const char *src = write_gpt("modes-src", &e, small, cases[i].section);
        if (cases[i].status) {
            convert_fails(src, NULL, cases[i].status, cases[i].says);
            continue;
        }
        convert_ok(src, test_scratch_path("modes"), NULL);
        assert_null(strstr(notes, "other bits"));
    }
    // Bits are for what is not quantized: codes elsewhere than in the experts end that.
    uint8_t *scales = test_entries_add(&e, "lm_head.scales", "U8", 64, 4, 0, 0);
    memset(scales, 127, (size_t)64 * 4);
    test_entries_drop(&e, "lm_head.weight");
    (void)test_entries_add(&e, "lm_head.weight", "U32", 64, 16, 0, 0);
    const char *src = write_gpt("modes-src", &e, small, MLX_MXFP4);
    convert_fails(src, &asked, SL_ERR_ARGUMENT, "quantized already");
    convert_ok(src, test_scratch_path("modes"), NULL);
    test_entries_free(&e);
}

/* ---- FP8 ------------------------------------------------------------------------------------------- */

#define FP8                                                                                        \
    "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", "                     \
    "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]}, "

// 1-4-3 with bias 7, by arithmetic.
static float f8_value(uint8_t u) {
    int exponent = u >> 3 & 15, mantissa = u & 7;
    float v = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return u & 0x80 ? -v : v;
}

static bool becomes_f8(const test_entry *t) {
    return t->n_dims == 2 && !strstr(t->name, "embed_tokens") && !strstr(t->name, "lm_head") &&
           !strstr(t->name, "mlp.gate.weight");
}

/* Every linear of a DeepSeek but the router in FP8 with random tile scales, of either type. Its heads have d_v values
 * beside 64 keys: with other than 64, heads begin and end inside of tiles. */
static test_entries deepseek_f8(const char *scale_dtype, size_t d_v) {
    test_entries e = read_golden("deepseek_v3");
    for (unsigned l = 0; l < 5; l++) {
        char name[160];
        (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.kv_b_proj.weight", l);
        test_entries_drop(&e, name);
        (void)test_entries_add(&e, name, "BF16", 4 * (64 + d_v), 64, 0, 0);
        (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.o_proj.weight", l);
        test_entries_drop(&e, name);
        (void)test_entries_add(&e, name, "BF16", 128, 4 * d_v, 0, 0);
    }
    for (size_t i = 0, n = e.n; i < n; i++) {
        test_entry *t = &e.entries[i];
        if (!becomes_f8(t))
            continue;
        char name[160];
        size_t rows = t->shape[0], cols = t->shape[1];
        (void)snprintf(t->dtype, sizeof(t->dtype), "F8_E4M3");
        t->bytes = rows * cols;
        for (size_t k = 0; k < t->bytes; k++) {
            uint8_t u = (uint8_t)next_random();
            ((uint8_t *)t->data)[k] = (u & 0x7f) == 0x7f ? 0 : u;
        }
        (void)snprintf(name, sizeof(name), "%.*s.weight_scale_inv",
                       (int)(strlen(t->name) - strlen(".weight")), t->name);
        size_t a = (rows + 127) / 128, b = (cols + 127) / 128;
        char *scales = test_entries_add(&e, name, scale_dtype, a, b, 0, 0);
        for (size_t k = 0; k < a * b; k++) {
            // A value of BF16, so that both types hold it.
            uint16_t h = (uint16_t)(0x3a00 | (next_random() & 0xff));
            if (scale_dtype[0] == 'B')
                memcpy(scales + 2 * k, &h, 2);
            else
                memcpy(scales + 4 * k + 2, &h, 2);
        }
    }
    return e;
}

// The weights of a tensor, [rows][cols] f32.
static float *f8_weights(const test_entries *e, const char *base) {
    char name[160];
    (void)snprintf(name, sizeof(name), "%s.weight", base);
    const test_entry *t = test_entries_find(e, name);
    (void)snprintf(name, sizeof(name), "%s.weight_scale_inv", base);
    const test_entry *s = test_entries_find(e, name);
    float *w = malloc(t->shape[0] * t->shape[1] * sizeof(float));
    for (size_t r = 0; r < t->shape[0]; r++) {
        for (size_t c = 0; c < t->shape[1]; c++) {
            size_t tile = r / 128 * s->shape[1] + c / 128;
            float scale = 0;
            if (s->dtype[0] == 'B')
                memcpy((char *)&scale + 2, (const char *)s->data + 2 * tile, 2);
            else
                memcpy(&scale, (const char *)s->data + 4 * tile, 4);
            w[r * t->shape[1] + c] =
                f8_value(((const uint8_t *)t->data)[r * t->shape[1] + c]) * scale;
        }
    }
    return w;
}

/* kv_b of 4 heads of 64 key and d_v value rows over a latent of 64, as the model wants it. */
static void split_kv_b(const float *kv_b, size_t d_v, float *keys, float *values) {
    for (size_t h = 0; h < 4; h++) {
        const float *head = kv_b + h * (64 + d_v) * 64;
        for (size_t i = 0; i < 64; i++)
            for (size_t j = 0; j < 64; j++)
                keys[(h * 64 + i) * 64 + j] = head[j * 64 + i];
        memcpy(values + h * d_v * 64, head + 64 * 64, d_v * 64 * sizeof(float));
    }
}

static void fp8_is_requantized(void **state) {
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        test_entries e = deepseek_f8(i ? "BF16" : "F32", 96);
        sl_store s;
        sl_matrix m, parts[SL_PARTS_MAX];
        const sl_convert_params params = {.options = {.bits = i ? 8 : 0}, .force = true};
        const char *dst = test_scratch_path("fp8");
        const char *src = write_folder("fp8-src", &e, "deepseek_v3", FP8);
        edit_config(src, "\"v_head_dim\": 64", "\"v_head_dim\": 96");
        convert_ok(src, dst, &params);
        assert_non_null(strstr(notes, i ? "FP8 weights are requantized to 8 bits, group 64"
                                        : "FP8 weights are requantized to 4 bits, group 64"));
        open_ok(dst, &s);
        static const struct {
            sl_role role;
            uint32_t layer;
            const char *base;
        } cases[] = {{SL_ROLE_MLA_Q_A, 0, "model.layers.0.self_attn.q_a_proj"},
                     {SL_ROLE_MLA_Q, 1, "model.layers.1.self_attn.q_b_proj"},
                     {SL_ROLE_MLA_O, 4, "model.layers.4.self_attn.o_proj"},
                     {SL_ROLE_DENSE_DOWN_PROJ, 1, "model.layers.1.mlp.down_proj"},
                     {SL_ROLE_SHARED_UP_PROJ, 3, "model.layers.3.mlp.shared_experts.up_proj"}};
        for (size_t k = 0; k < SL_COUNT(cases); k++) {
            float *w = f8_weights(&e, cases[k].base);
            char *trunk = trunk_tensor(dst, &s, cases[k].role, cases[k].layer, &m);
            assert_int_equal(m.shape.scale_dtype, SL_DTYPE_BF16);
            assert_int_equal(m.shape.dtype, i ? SL_DTYPE_Q8 : SL_DTYPE_Q4);
            is_quantized(&m, w, cases[k].base);
            free(trunk);
            free(w);
        }
        float keys[4 * 64 * 64], values[4 * 96 * 64];
        float *kv_b = f8_weights(&e, "model.layers.2.self_attn.kv_b_proj");
        split_kv_b(kv_b, 96, keys, values);
        char *trunk = trunk_tensor(dst, &s, SL_ROLE_MLA_EMBED_Q, 2, &m);
        is_quantized(&m, keys, "keys");
        free(trunk);
        trunk = trunk_tensor(dst, &s, SL_ROLE_MLA_UNEMBED, 2, &m);
        is_quantized(&m, values, "values");
        free(trunk);
        free(kv_b);
        char *file = expert_parts(dst, &s, 3, 7, parts);
        float *down = f8_weights(&e, "model.layers.3.mlp.experts.7.down_proj");
        is_quantized(&parts[SL_PART_DOWN], down, "an expert's down");
        free(down);
        free(file);
        assert_int_equal(sl_store_tensor_find(&s, SL_ROLE_ROUTER, 2)->shape.dtype, SL_DTYPE_BF16);
        sl_store_close(&s);
        test_entries_free(&e);
    }
}

static void damaged_fp8_is_named(void **state) {
    (void)state;
    static const char q_b[] = "model.layers.1.self_attn.q_b_proj.weight_scale_inv";
    for (unsigned i = 0; i < 6; i++) {
        test_entries e = deepseek_f8("F32", 64);
        const char *says = "model.layers.3.mlp.experts.2.down_proj.weight", *section = FP8;
        sl_status want = SL_ERR_CORRUPT;
        test_entry *t = test_entries_find(&e, says);
        switch (i) {
        case 0:
            ((uint8_t *)t->data)[777] = 0xff;
            break;
        case 1:
            test_entries_drop(&e, "model.layers.3.mlp.experts.2.down_proj.weight_scale_inv");
            want = SL_ERR_UNSUPPORTED;
            break;
        case 2:
            t = test_entries_find(&e, q_b);
            t->shape[0] = 1, t->shape[1] = 3;
            says = q_b;
            break;
        case 3: // infinite
            t = test_entries_find(&e, "model.layers.2.self_attn.kv_b_proj.weight_scale_inv");
            memcpy((char *)t->data + 4, "\0\0\x80\x7f", 4);
            says = "model.layers.2.self_attn.kv_b_proj.weight";
            break;
        case 4:
            t->shape[0] /= 2, t->shape[1] *= 2;
            break;
        default:
            section = "\"quantization_config\": {\"quant_method\": \"fp8\", "
                      "\"weight_block_size\": [64, 128]}, ";
            want = SL_ERR_UNSUPPORTED;
            says = "weight_block_size";
            break;
        }
        convert_fails(write_folder("fp8-damaged", &e, "deepseek_v3", section), NULL, want, says);
        test_entries_free(&e);
    }
}

/* ---- DeepSeek of older conversions ------------------------------------------------------------------- */

/* MLX's older conversions kept a quantized kv_b_proj: value rows are copied, key rows widened, turned and quantized
 * again. */
static void a_quantized_kv_b_is_split(void **state) {
    (void)state;
    const sl_matrix_shape shape = {SL_DTYPE_Q6, SL_DTYPE_BF16, 512, 64, 32};
    test_entries e = read_golden("deepseek_v3-mlx4");
    const char *dst = test_scratch_path("kv-b");
    char *codes = NULL, *scales = NULL, *biases = NULL;
    for (unsigned l = 0; l < 5; l++) {
        static const char *const old[] = {"embed_q", "unembed_out"};
        static const char *const parts[] = {"weight", "scales", "biases"};
        char name[160];
        for (unsigned i = 0; i < 6; i++) {
            (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.%s.%s", l, old[i / 3],
                           parts[i % 3]);
            test_entries_drop(&e, name);
        }
        (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.kv_b_proj.weight", l);
        codes = test_entries_add(&e, name, "U32", 512, 12, 0, 0);
        (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.kv_b_proj.scales", l);
        scales = test_entries_add(&e, name, "BF16", 512, 2, 0, 0);
        (void)snprintf(name, sizeof(name), "model.layers.%u.self_attn.kv_b_proj.biases", l);
        biases = test_entries_add(&e, name, "BF16", 512, 2, 0, 0);
        float w[512 * 64];
        for (size_t i = 0; i < SL_COUNT(w); i++)
            w[i] = (float)(int32_t)next_random() * 0x1p-33f;
        assert_true(sl_quantize_rows(w, 512, &shape, codes, scales, biases));
    }
    convert_ok(write_folder("kv-b-src", &e, "deepseek_v3-mlx4",
                            "\"quantization\": {\"group_size\": 64, \"bits\": 4}, "),
               dst, NULL);
    assert_non_null(strstr(notes, "5 quantized matrices are turned on their side"));
    // The last layer's, with codes taken out bit by bit.
    float kv_b[512 * 64], keys[4 * 64 * 64], values[4 * 64 * 64];
    for (size_t i = 0; i < SL_COUNT(kv_b); i++) {
        unsigned code = 0;
        for (size_t b = 0; b < 6; b++)
            code |= (unsigned)((uint8_t)codes[(6 * i + b) / 8] >> (6 * i + b) % 8 & 1) << b;
        float scale, bias;
        sl_widen(scales + i / 32 * 2, SL_DTYPE_BF16, 1, &scale);
        sl_widen(biases + i / 32 * 2, SL_DTYPE_BF16, 1, &bias);
        kv_b[i] = fmaf((float)code, scale, bias);
    }
    split_kv_b(kv_b, 64, keys, values);
    sl_store s;
    sl_matrix m;
    open_ok(dst, &s);
    char *trunk = trunk_tensor(dst, &s, SL_ROLE_MLA_EMBED_Q, 4, &m);
    assert_int_equal(m.shape.dtype, SL_DTYPE_Q6);
    assert_int_equal(m.shape.group, 32);
    is_quantized(&m, keys, "keys");
    free(trunk);
    trunk = trunk_tensor(dst, &s, SL_ROLE_MLA_UNEMBED, 4, &m);
    for (size_t r = 0; r < 256; r++) {
        size_t from = r / 64 * 128 + 64 + r % 64;
        bytes_equal((const char *)m.codes + r * 48, codes + from * 48, 48, "codes of values");
        bytes_equal((const char *)m.scales + r * 4, scales + from * 4, 4, "scales of values");
        bytes_equal((const char *)m.biases + r * 4, biases + from * 4, 4, "biases of values");
    }
    free(trunk);
    sl_store_close(&s);
    test_entries_free(&e);
}

/* ---- shapes ------------------------------------------------------------------------------------------ */

// For each kind of place a tensor with other dimensions than the config gives it.
static void wrong_shapes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *golden, *tensor;
    } cases[] = {
        {"qwen3_next", "model.layers.0.linear_attn.in_proj_qkvz.weight"},
        {"qwen3_next", "model.layers.1.linear_attn.in_proj_ba.weight"},
        {"qwen3_next", "model.layers.0.linear_attn.conv1d.weight"},
        {"qwen3_next-mlx4", "model.layers.0.linear_attn.in_proj_qkvz.scales"},
        {"qwen3_next-mlx4", "model.layers.0.linear_attn.in_proj_ba.biases"},
        {"deepseek_v3", "model.layers.2.self_attn.kv_b_proj.weight"},
        {"deepseek_v3-mlx4", "model.layers.2.self_attn.embed_q.weight"},
        {"deepseek_v3-mlx4", "model.layers.2.self_attn.unembed_out.scales"},
        {"deepseek_v3-mlx4", "model.layers.3.mlp.switch_mlp.up_proj.weight"},
        {"deepseek_v3", "model.layers.3.mlp.gate.e_score_correction_bias"},
        {"mixtral", "model.layers.1.block_sparse_moe.experts.3.w3.weight"},
        {"lfm2_moe", "model.layers.0.conv.conv.weight"},
        {"lfm2_moe", "model.layers.1.feed_forward.w2.weight"},
        {"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj"},
        {"gpt_oss", "model.layers.0.mlp.experts.gate_up_proj_bias"},
        {"gpt_oss", "model.layers.0.self_attn.sinks"},
        {"qwen3_5_moe", "model.language_model.layers.0.mlp.experts.gate_up_proj"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        test_entries e = read_golden(cases[i].golden);
        test_entry *t = test_entries_find(&e, cases[i].tensor);
        assert_non_null(t);
        // A dimension in front, or half as many of something twice as long.
        if (t->n_dims == 1)
            t->shape[1] = t->shape[0], t->shape[0] = 1, t->n_dims = 2;
        else
            t->shape[t->n_dims - 2] *= 2, t->shape[0] /= t->n_dims == 2 ? 1 : 2;
        if (t->n_dims == 2 && t->shape[1] % 2 == 0)
            t->shape[1] /= 2;
        size_t n = t->dtype[0] == 'U' ? 4 : 2;
        for (size_t k = 0; k < t->n_dims; k++)
            n *= t->shape[k];
        t->data = realloc(t->data, n);
        if (n > t->bytes)
            memset((char *)t->data + t->bytes, 0, n - t->bytes);
        t->bytes = n;
        const char *section = strstr(cases[i].golden, "mlx4")
                                  ? "\"quantization\": {\"group_size\": 64, \"bits\": 4}, "
                                  : "";
        convert_fails(write_folder("shapes-src", &e, cases[i].golden, section), NULL,
                      SL_ERR_CORRUPT, cases[i].tensor);
        test_entries_free(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_experts_of_a_family_with_single_ones),
        cmocka_unit_test(layers_past_the_end_are_left_out),
        cmocka_unit_test(experts_in_columns_are_turned),
        cmocka_unit_test(turned_experts_may_stay_dense),
        cmocka_unit_test(large_experts_are_turned_in_strips),
        cmocka_unit_test(mxfp4_is_kept),
        cmocka_unit_test(large_mxfp4_is_kept),
        cmocka_unit_test(the_rest_of_mxfp4_can_be_quantized),
        cmocka_unit_test(damaged_mxfp4_is_named),
        cmocka_unit_test(modes_of_modules),
        cmocka_unit_test(fp8_is_requantized),
        cmocka_unit_test(damaged_fp8_is_named),
        cmocka_unit_test(a_quantized_kv_b_is_split),
        cmocka_unit_test(wrong_shapes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
