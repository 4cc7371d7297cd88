/* store: layouts, opening, and a manifest that says anything at all. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/convert.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "store/store_internal.h"
#include "store/store_write.h"
#include "store/verify.h"

static void convert_golden(const char *name, const char *dst) {
    char src[512];
    const sl_convert_params params = {.force = true};
    sl_convert_outcome out;
    sl_error err;
    (void)snprintf(src, sizeof(src), SL_TEST_DATA "/goldens/%s", name);
    sl_status st = sl_convert_run(src, dst, &params, &out, &err);
    sl_convert_outcome_deinit(&out);
    if (st)
        fail_msg("%s", err.message);
}

/* ---- layouts ------------------------------------------------------------------------------------- */

// formats.md's record of Qwen3.6: 1,769,472 bytes, 432 pages, codes, scales, biases of gate, up, down.
static void the_record_of_a_large_model(void **state) {
    (void)state;
    const sl_matrix_shape gate = {SL_DTYPE_Q4, SL_DTYPE_BF16, 512, 2048, 64};
    const sl_matrix_shape down = {SL_DTYPE_Q4, SL_DTYPE_BF16, 2048, 512, 64};
    const sl_matrix_shape parts[] = {gate, gate, down};
    sl_expert_layout l;
    sl_error err;
    assert_int_equal(sl_expert_layout_of(parts, 3, &l, &err), SL_OK);
    assert_int_equal(l.n_parts, 3);
    assert_int_equal(l.bytes, 1769472);
    assert_int_equal(l.stride, 432 * 4096);
    assert_int_equal(l.layout[SL_PART_GATE].scales_at, 524288);
    assert_int_equal(l.layout[SL_PART_GATE].biases_at, 524288 + 32768);
    assert_int_equal(l.at[SL_PART_UP], 589824);
    assert_int_equal(l.at[SL_PART_DOWN], 2 * 589824);
}

// gpt-oss-20b: 13,219,200 bytes of weights (kept in 64s), and three biases of 2880 f32.
static void a_record_with_biases(void **state) {
    (void)state;
    const sl_matrix_shape w = {SL_DTYPE_MXFP4, SL_DTYPE_U8, 2880, 2880, 32};
    const sl_matrix_shape b = {SL_DTYPE_F32, SL_DTYPE_F32, 1, 2880, 0};
    const sl_matrix_shape parts[] = {w, w, w, b, b, b};
    sl_expert_layout l;
    sl_error err;
    assert_int_equal(sl_expert_layout_of(parts, 6, &l, &err), SL_OK);
    assert_int_equal(l.at[SL_PART_GATE_BIAS], 3 * (4147200 + 259200));
    assert_int_equal(l.at[SL_PART_DOWN_BIAS], 13219200 + 2 * 11520);
    assert_int_equal(l.bytes, 13219200 + 3 * 11520);
    assert_int_equal(l.stride % 4096, 0);
    uint8_t *slot = aligned_alloc(4096, (size_t)l.stride);
    sl_matrix m[SL_PARTS_MAX];
    sl_expert_bind(&l, slot, m);
    assert_ptr_equal(m[SL_PART_UP_BIAS].codes, slot + l.at[SL_PART_UP_BIAS]);
    assert_ptr_equal(m[SL_PART_DOWN].scales, slot + l.at[SL_PART_DOWN] + 4147200);
    assert_null(m[SL_PART_DOWN].biases);
    free(slot);
}

static void embedding_rows(void **state) {
    (void)state;
    sl_embed_layout l;
    sl_error err;
    sl_matrix m;
    const sl_matrix_shape q3 = {SL_DTYPE_Q3, SL_DTYPE_F32, 10, 96, 32};
    assert_int_equal(sl_embed_layout_of(&q3, &l, &err), SL_OK);
    assert_int_equal(l.scales_at, 36);
    assert_int_equal(l.biases_at, 48);
    assert_int_equal(l.row_bytes, 60);
    assert_int_equal(l.stride, 64);
    const uint8_t record[64] = {0};
    sl_embed_bind(&l, record, &m);
    assert_int_equal(m.shape.rows, 1);
    assert_ptr_equal(m.biases, record + 48);
    const sl_matrix_shape f16 = {SL_DTYPE_F16, SL_DTYPE_F32, 10, 100, 0};
    assert_int_equal(sl_embed_layout_of(&f16, &l, &err), SL_OK);
    assert_int_equal(l.stride, 208);
    sl_embed_bind(&l, record, &m);
    assert_null(m.scales);
    const sl_matrix_shape mxfp4 = {SL_DTYPE_MXFP4, SL_DTYPE_U8, 10, 96, 32};
    assert_int_equal(sl_embed_layout_of(&mxfp4, &l, &err), SL_OK);
    assert_int_equal(l.row_bytes, 51);
    sl_embed_bind(&l, record, &m);
    assert_ptr_equal(m.scales, record + 48);
    assert_null(m.biases);
    const sl_matrix_shape bad = {SL_DTYPE_Q4, SL_DTYPE_BF16, 10, 100, 64};
    assert_int_equal(sl_embed_layout_of(&bad, &l, &err), SL_ERR_CORRUPT);
}

// gpt-oss: 2880 x 2880 are 4,147,200 bytes of codes, 259,200 of scales, and no biases.
static void matrices_without_biases(void **state) {
    (void)state;
    sl_matrix_shape s = {SL_DTYPE_MXFP4, SL_DTYPE_U8, 2880, 2880, 32};
    sl_matrix_layout l;
    sl_matrix m;
    sl_error err;
    static const uint8_t block[1];
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_OK);
    assert_int_equal(l.row_code_bytes, 1440);
    assert_int_equal(l.row_scale_bytes, 90);
    assert_int_equal(l.row_bias_bytes, 0);
    assert_int_equal(l.scales_at, 4147200);
    assert_int_equal(l.scales_bytes, 259200);
    assert_int_equal(l.biases_bytes, 0);
    assert_int_equal(l.bytes, 4147200 + 259200);
    sl_matrix_bind(&m, &s, &l, block);
    assert_non_null(m.scales);
    assert_null(m.biases);
    s.group = 64;
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_ERR_UNSUPPORTED);
    s.group = 32, s.scale_dtype = SL_DTYPE_BF16;
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_ERR_UNSUPPORTED);
    s.scale_dtype = SL_DTYPE_U8, s.cols = 2888;
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_ERR_CORRUPT);
    s = (sl_matrix_shape){SL_DTYPE_Q4, SL_DTYPE_U8, 8, 64, 32};
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_ERR_UNSUPPORTED);
    s = (sl_matrix_shape){SL_DTYPE_F8_E4M3, SL_DTYPE_F32, 8, 64, 0};
    assert_int_equal(sl_matrix_layout_of(&s, &l, &err), SL_ERR_UNSUPPORTED);
    sl_dtype dtype;
    assert_true(sl_dtype_quantized(4, &dtype) && dtype == SL_DTYPE_Q4);
    assert_true(sl_dtype_from_name("mxfp4", &dtype) && dtype == SL_DTYPE_MXFP4);
}

/* Blocks put part by part are the same bytes and checksum whether they fit the window or not, padding and
 * whatever is never put included. */
static void blocks_do_not_depend_on_the_window(void **state) {
    (void)state;
    enum { BLOCK = 300000, AT = 4096 };
    uint8_t *data = malloc(BLOCK), *window = aligned_alloc(4096, 1 << 20);
    sl_hash128 hashes[2];
    sl_error err;
    const char *names[2] = {"small", "large"};
    for (size_t i = 0; i < BLOCK; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int k = 0; k < 2; k++) {
        sl_store_writer w;
        assert_int_equal(
            sl_store_writer_init(&w, test_scratch(), window, k ? 1 << 20 : 65536, &err), SL_OK);
        assert_int_equal(sl_store_file_begin(&w, names[k], &err), SL_OK);
        sl_store_block_begin(&w, AT, BLOCK);
        // Backwards, with a hole of 1000 bytes and an end that nobody writes.
        for (int part = 2; part >= 0; part--)
            assert_int_equal(
                sl_store_block_put(&w, (uint64_t)part * 90000, data + part * 90000, 89000, &err),
                SL_OK);
        assert_int_equal(sl_store_block_end(&w, &hashes[k], &err), SL_OK);
        assert_int_equal(sl_store_file_end(&w, SL_ALIGN_UP(AT + BLOCK, SL_PAGE), &err), SL_OK);
        sl_store_writer_deinit(&w);
    }
    assert_true(sl_hash_equal(hashes[0], hashes[1]));
    assert_true(test_files_equal(test_scratch_path("small"), test_scratch_path("large")));
    size_t n;
    char *file = test_file_read(test_scratch_path("large"), &n);
    assert_int_equal(n, SL_ALIGN_UP(AT + BLOCK, SL_PAGE));
    assert_memory_equal(file + AT + 90000, data + 90000, 89000);
    assert_int_equal(file[AT + 89500], 0);
    assert_true(sl_hash_equal(sl_hash(file + AT, BLOCK), hashes[0]));
    // Any range of a file, in pieces, from any offset.
    sl_file f;
    assert_int_equal(sl_file_open(test_scratch_path("large"), false, &f, &err), SL_OK);
    for (uint64_t at = 0; at < 9000; at += 777) {
        sl_hash128 hash;
        assert_int_equal(sl_store_hash_range(&f, at, 50000, window, 8192, NULL, NULL, &hash, &err),
                         SL_OK);
        assert_true(sl_hash_equal(hash, sl_hash(file + at, 50000)));
    }
    sl_hash128 hash;
    assert_int_equal(sl_store_hash_range(&f, 4096, n, window, 8192, NULL, NULL, &hash, &err),
                     SL_ERR_CORRUPT);
    sl_file_close(&f);
    free(file);
    free(data);
    free(window);
}

/* ---- hostile manifests ------------------------------------------------------------------------------ */

// Put the right checksum at the end of an edited manifest.
static void seal(char *text, size_t n) {
    char hex[SL_STORE_HEX + 1];
    sl__hash_text(sl_hash(text, n - SL_STORE_SEAL_BYTES), hex);
    memcpy(text + n - sizeof(SL_STORE_SEAL_TAIL) + 1 - SL_STORE_HEX, hex, SL_STORE_HEX);
}

static sl_status open_edited(const char *dst, const char *manifest, size_t n, const char *from,
                             const char *to, sl_error *err) {
    sl_store s;
    const char *at = strstr(manifest, from);
    if (!at)
        fail_msg("no '%s' in the manifest", from);
    size_t head = (size_t)(at - manifest), m = n - strlen(from) + strlen(to);
    char *text = malloc(m + 1);
    memcpy(text, manifest, head);
    memcpy(text + head, to, strlen(to));
    memcpy(text + head + strlen(to), at + strlen(from), n - head - strlen(from));
    seal(text, m);
    test_file_write(test_path_in(dst, SL_STORE_MANIFEST), text, m);
    free(text);
    memset(err, 0, sizeof(*err));
    sl_status st = sl_store_open(dst, SL_DIRECT_PREFERRED, &s, err);
    sl_store_close(&s);
    return st;
}

static void edited_manifests_are_refused(void **state) {
    (void)state;
    const char *dst = test_scratch_path("edited");
    size_t n;
    sl_error err;
    convert_golden("qwen3_5_moe-mlx4", dst);
    char *manifest = test_file_read(test_path_in(dst, SL_STORE_MANIFEST), &n);
    const struct {
        const char *from, *to;
        sl_status status;
        const char *says;
    } cases[] = {
        {"\"layer\": 0", "\"layer\":  0", SL_OK, ""},
        {"sluice-store", "other", SL_ERR_CORRUPT, "not a store"},
        {"\"version\": 1", "\"version\": 2", SL_ERR_UNSUPPORTED, "store version 2"},
        {"\"version\": 1", "\"version\": \"1\"", SL_ERR_CORRUPT, "version"},
        {"\"role\": \"norm_mixer\", \"layer\": 0", "\"role\": \"norm_ffn\", \"layer\": 0",
         SL_ERR_CORRUPT, "tensor 0"},
        {"\"role\": \"norm_mixer\", \"layer\": 0", "\"role\": \"nonsense\", \"layer\": 0",
         SL_ERR_CORRUPT, "tensor 0"},
        {"\"role\": \"norm_mixer\", \"layer\": 0", "\"role\": \"norm_mixer\", \"layer\": 1",
         SL_ERR_CORRUPT, "tensor 0"},
        {"\"role\": \"norm_mixer\", \"layer\": 0", "\"role\": \"norm_mixer\", \"layer\": -1",
         SL_ERR_CORRUPT, "layer"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"bf16\"", SL_ERR_CORRUPT, "expected f32"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"q4\"", SL_ERR_CORRUPT, "group"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"u32\"", SL_ERR_CORRUPT, "expected f32"},
        {"\"rows\": 1, \"cols\": 128", "\"rows\": 1, \"cols\": 129", SL_ERR_CORRUPT, "[1][129]"},
        {"\"rows\": 1, \"cols\": 128", "\"rows\": 1, \"cols\": 4294967424", SL_ERR_CORRUPT, "cols"},
        {"\"group\": 64", "\"group\": 0", SL_ERR_UNSUPPORTED, "group of 0"},
        {"\"dtype\": \"q4\"", "\"dtype\": \"q8\"", SL_ERR_CORRUPT, "overlaps"},
        {"\"offset\": 0", "\"offset\": 1", SL_ERR_CORRUPT, "not aligned"},
        {"\"offset\": 0", "\"offset\": 64", SL_ERR_CORRUPT, "overlaps"},
        {"\"offset\": 0", "\"offset\": 18446744073709551552", SL_ERR_CORRUPT, "offset"},
        {"\"trunk\": {\"bytes\": ", "\"trunk\": {\"bytes\": 1", SL_ERR_CORRUPT, "trunk.bin is"},
        {"\"trunk\": {\"bytes\": ", "\"trunk\": {\"bytes\": 0.0000", SL_ERR_CORRUPT, "bytes"},
        {"{\"role\": \"norm_mixer\"", "{}, {\"role\": \"norm_mixer\"", SL_ERR_CORRUPT, "tensor 0"},
        {"\"stride\": ", "\"stride\": 1", SL_ERR_CORRUPT, "stride"},
        {"\"experts\": {\"gate\": {\"dtype\": \"q4\"", "\"experts\": {\"gate\": {\"dtype\": \"q8\"",
         SL_ERR_CORRUPT, "stride"},
        {"\"experts\": {\"gate\"", "\"experts\": {\"gates\"", SL_ERR_CORRUPT, "gate"},
        {"\"stop_tokens\": []", "\"stop_tokens\": [4294967296]", SL_ERR_CORRUPT, "stop_tokens"},
        {"\"stop_tokens\": []", "\"stop_tokens\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
         SL_ERR_CORRUPT, "stop_tokens"},
        {"\"generation_config\": null", "\"generation_config\": {\"temperature\": -1}",
         SL_ERR_CORRUPT, "temperature"},
        {"\"generation_config\": null", "\"generation_config\": {\"top_k\": 0.5}", SL_ERR_CORRUPT,
         "top_k"},
        {"\"tokenizer\": null",
         "\"tokenizer\": {\"offset\": 1, \"bytes\": 1, \"xxh3\": "
         "\"00000000000000000000000000000000\"}",
         SL_ERR_CORRUPT, "tokenizer"},
        {"\"tokenizer\": null",
         "\"tokenizer\": {\"offset\": 0, \"bytes\": 1, \"xxh3\": "
         "\"00000000000000000000000000000000\"}",
         SL_ERR_CORRUPT, "text.bin is missing"},
        {"\"tokenizer\": null", "\"tokenizer\": {\"offset\": 0, \"bytes\": 1, \"xxh3\": \"0\"}",
         SL_ERR_CORRUPT, "checksum"},
        {"\"num_experts\": 12", "\"num_experts\": 13", SL_ERR_CORRUPT, "asks for"},
        {"\"hidden_size\": 128", "\"hidden_size\": 1e9", SL_ERR_CORRUPT, "hidden_size"},
        {"\"model_type\": \"qwen3_5_moe\"", "\"model_type\": \"nonsense\"", SL_ERR_UNSUPPORTED,
         "nonsense"},
        {"\"fingerprint\"", "\"fingertip\"", SL_ERR_CORRUPT, "fingerprint"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_status st = open_edited(dst, manifest, n, cases[i].from, cases[i].to, &err);
        if (st != cases[i].status || !strstr(err.message, cases[i].says))
            fail_msg("'%s' -> '%s': %s '%s', expected %s '%s'", cases[i].from, cases[i].to,
                     sl_status_name(st), err.message, sl_status_name(cases[i].status),
                     cases[i].says);
    }
    free(manifest);
}

// A record of six parts: those of the biases are asked for where the config has them, and are f32.
static void manifests_of_biases_are_checked(void **state) {
    (void)state;
    const char *dst = test_scratch_path("biases");
    size_t n;
    sl_error err;
    sl_store s;
    convert_golden("gpt_oss", dst);
    char *manifest = test_file_read(test_path_in(dst, SL_STORE_MANIFEST), &n);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    assert_int_equal(s.expert.n_parts, SL_PARTS_MAX);
    assert_int_equal(s.expert.shape[SL_PART_DOWN_BIAS].cols, s.model.d_model);
    sl_store_close(&s);
    const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"up_bias\": {", "\"up_biases\": {", "up_bias"},
        {"\"up_bias\": {\"dtype\": \"f32\"", "\"up_bias\": {\"dtype\": \"f16\"", "expected f32"},
        {"\"down_bias\": {\"dtype\": \"f32\", \"rows\": 1",
         "\"down_bias\": {\"dtype\": \"f32\", \"rows\": 2", "expert_down_bias"},
        {"\"attention_bias\": true", "\"attention_bias\": false", "tensor"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_status st = open_edited(dst, manifest, n, cases[i].from, cases[i].to, &err);
        if (st != SL_ERR_CORRUPT || !strstr(err.message, cases[i].says))
            fail_msg("'%s': %s '%s', expected '%s'", cases[i].to, sl_status_name(st), err.message,
                     cases[i].says);
    }
    free(manifest);
}

// Without a new checksum every change is seen, wherever it is; so is every cut.
static void a_damaged_manifest_is_refused(void **state) {
    (void)state;
    const char *dst = test_scratch_path("damaged");
    size_t n;
    sl_error err;
    sl_store s;
    convert_golden("qwen3_5_moe-mlx4", dst);
    char *manifest = test_file_read(test_path_in(dst, SL_STORE_MANIFEST), &n);
    char *tree = malloc(n * SL_STORE_TREE_FACTOR);
    for (size_t at = 0; at < n; at++) {
        sl_arena arena;
        sl_arena_init(&arena, "tree", tree, n * SL_STORE_TREE_FACTOR);
        manifest[at] ^= 1;
        sl_status st = sl__store_parse_manifest(manifest, n, dst, &arena, &s, &err);
        manifest[at] ^= 1;
        if (st != SL_ERR_CORRUPT && st != SL_ERR_UNSUPPORTED)
            fail_msg("byte %zu changed: %s", at, sl_status_name(st));
        sl_store_close(&s);
    }
    for (size_t at = 0; at < n; at += 7) {
        sl_arena arena;
        sl_arena_init(&arena, "tree", tree, n * SL_STORE_TREE_FACTOR);
        assert_int_equal(sl__store_parse_manifest(manifest, at, dst, &arena, &s, &err),
                         SL_ERR_CORRUPT);
        sl_store_close(&s);
    }
    free(tree);
    free(manifest);
}

static void missing_and_short_files_are_named(void **state) {
    (void)state;
    const char *dst = test_scratch_path("short");
    static const char *const names[] = {"trunk.bin", "embed.bin", "experts.sum", "experts/000.bin",
                                        "experts/003.bin"};
    sl_store s;
    sl_error err;
    size_t n;
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_MISSING);
    sl_store_close(&s);
    assert_int_equal(mkdir(dst, 0777), 0);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_MISSING);
    sl_store_close(&s);
    test_file_write(test_path_in(dst, SL_STORE_MANIFEST), "", 0);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_CORRUPT);
    sl_store_close(&s);
    // An empty manifest makes no model of a folder, and a conversion replaces models only.
    assert_int_equal(unlink(test_path_in(dst, SL_STORE_MANIFEST)), 0);
    assert_int_equal(rmdir(dst), 0);
    convert_golden("qwen3_5_moe-mlx4", dst);
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        char *file = test_file_read(test_path_in(dst, names[i]), &n);
        test_file_write(test_path_in(dst, names[i]), file, n - 4096);
        assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_CORRUPT);
        assert_non_null(strstr(err.message, names[i]));
        sl_store_close(&s);
        assert_int_equal(unlink(test_path_in(dst, names[i])), 0);
        assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_CORRUPT);
        assert_non_null(strstr(err.message, "missing"));
        sl_store_close(&s);
        test_file_write(test_path_in(dst, names[i]), file, n);
        free(file);
    }
    test_file_flip(test_path_in(dst, "experts.sum"), 5);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "experts.sum"));
    sl_store_close(&s);
    test_file_flip(test_path_in(dst, "experts.sum"), 5);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    sl_store_close(&s);
    sl_store_close(&s); // closing twice is harmless
}

static void opening_leaves_no_pages(void **state) {
    (void)state;
    const char *dst = test_scratch_path("pages");
    static const char *const names[] = {SL_STORE_MANIFEST, "trunk.bin", "embed.bin", "experts.sum",
                                        "experts/000.bin"};
    sl_store s;
    sl_error err;
    convert_golden("qwen3_5_moe-mlx4", dst);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    if (!s.direct) {
        sl_store_close(&s);
        print_message("no direct I/O on this file system: skipped\n");
        skip();
    }
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        sl_file f;
        uint64_t cached;
        assert_int_equal(sl_file_open(test_path_in(dst, names[i]), false, &f, &err), SL_OK);
        assert_int_equal(sl_file_cached_bytes(&f, &cached, &err), SL_OK);
        assert_int_equal(cached, 0);
        sl_file_close(&f);
    }
    sl_expert_place place;
    char name[32];
    sl_store_expert_place(&s, 2, 5, &place);
    assert_int_equal(place.n_extents, 1);
    assert_int_equal(place.extents[0].offset, 5 * s.expert.stride);
    sl_store_file_name(&s, place.extents[0].file, name, sizeof(name));
    assert_string_equal(name, "experts/002.bin");
    assert_ptr_equal(sl_store_file(&s, place.extents[0].file), &s.experts[2]);
    assert_null(sl_store_tensor_find(&s, SL_ROLE_ATTN_Q, 0));
    sl_store_close(&s);
}

/* ---- verify ------------------------------------------------------------------------------------------- */

typedef struct told {
    char text[8192];
    size_t n;
    uint64_t done, total;
} told;

static bool line(void *user, bool damaged, const char *text) {
    told *t = user;
    t->n += (size_t)snprintf(t->text + t->n, sizeof(t->text) - t->n, "%s%s\n", damaged ? "! " : "",
                             text);
    return true;
}

static bool report(void *user, uint64_t done, uint64_t total) {
    told *t = user;
    assert_true(done >= t->done && done <= total);
    t->done = done;
    t->total = total;
    return true;
}

static bool refuse(void *user, uint64_t done, uint64_t total) {
    (void)user;
    return done < total / 10;
}

static void verify_names_what_is_damaged(void **state) {
    (void)state;
    const char *dst = test_scratch_path("verify");
    told t = {.n = 0};
    sl_verify_params params = {report, line, &t};
    uint32_t n_damaged;
    sl_error err;
    sl_store s;
    convert_golden("qwen3_5_moe", dst);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    uint64_t stride = s.expert.stride, embed = s.embed.stride;
    const sl_store_tensor router = *sl_store_tensor_find(&s, SL_ROLE_ROUTER, 1);
    sl_store_close(&s);
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_OK);
    assert_int_equal(n_damaged, 0);
    assert_int_equal(t.n, 0);
    assert_true(t.done == t.total && t.total > 0);
    // One bit in the last byte of padding, one in a router, one in the embedding, a file too many.
    test_file_flip(test_path_in(dst, "experts/002.bin"), 8 * stride - 1);
    test_file_flip(test_path_in(dst, "trunk.bin"), router.offset + 3);
    test_file_flip(test_path_in(dst, "embed.bin"), 9 * embed);
    test_file_write(test_path_in(dst, "notes.txt"), "x", 1);
    assert_int_equal(unlink(test_path_in(dst, "experts/001.bin")), 0);
    t.done = 0;
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_ERR_CORRUPT);
    assert_int_equal(n_damaged, 4);
    char expert[64];
    (void)snprintf(expert, sizeof(expert), "! experts/002.bin: expert 7 at %llu: checksum",
                   (unsigned long long)(7 * stride));
    assert_non_null(strstr(t.text, expert));
    assert_non_null(strstr(t.text, "! trunk.bin: layer 1 router at"));
    assert_non_null(strstr(t.text, "! embed.bin: embedding at 0"));
    assert_non_null(strstr(t.text, "! experts/001.bin: missing"));
    assert_non_null(strstr(t.text, "\nnotes.txt: not part of the store"));
    test_file_flip(test_path_in(dst, "experts.sum"), 0);
    t = (told){.n = 0};
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(t.text, "! experts.sum: checksums at 0"));
    assert_non_null(strstr(t.text, "experts cannot be checked"));
    params.report = refuse;
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_ERR_CANCELED);
    test_file_flip(test_path_in(dst, SL_STORE_MANIFEST), 100);
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_ERR_CORRUPT);
}

// Layers 0 and 1 have no experts, hence no file and no checksums; the others' are where they always are.
static void layers_without_experts(void **state) {
    (void)state;
    const char *dst = test_scratch_path("without");
    told t = {.n = 0};
    sl_verify_params params = {report, line, &t};
    uint32_t n_damaged;
    sl_error err;
    sl_store s;
    convert_golden("deepseek_v3", dst);
    assert_int_equal(access(test_path_in(dst, "experts/000.bin"), F_OK), -1);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    uint32_t n = s.model.moe.n_experts;
    const sl_hash128 none = {0, 0};
    assert_int_equal(s.experts[1].fd, -1);
    assert_true(s.experts[2].fd >= 0);
    assert_true(sl_hash_equal(s.expert_hashes[2 * n - 1], none));
    assert_false(sl_hash_equal(s.expert_hashes[2 * n], none));
    assert_int_equal(s.model_bytes,
                     s.trunk_bytes + s.embed.shape.rows * s.embed.stride + 3 * n * s.expert.stride);
    sl_store_close(&s);
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_OK);
    assert_int_equal(n_damaged, 0);
    assert_int_equal(t.n, 0);
    assert_true(t.done == t.total && t.total > 0);
    test_file_write(test_path_in(dst, "experts/001.bin"), "x", 1);
    t.done = 0;
    assert_int_equal(sl_store_verify(dst, &params, &n_damaged, &err), SL_OK);
    assert_non_null(strstr(t.text, "experts/001.bin: not part of the store"));
    assert_int_equal(unlink(test_path_in(dst, "experts/002.bin")), 0);
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "experts/002.bin is missing"));
    sl_store_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_record_of_a_large_model),
        cmocka_unit_test(a_record_with_biases),
        cmocka_unit_test(embedding_rows),
        cmocka_unit_test(matrices_without_biases),
        cmocka_unit_test(blocks_do_not_depend_on_the_window),
        cmocka_unit_test(edited_manifests_are_refused),
        cmocka_unit_test(manifests_of_biases_are_checked),
        cmocka_unit_test(a_damaged_manifest_is_refused),
        cmocka_unit_test(missing_and_short_files_are_named),
        cmocka_unit_test(opening_leaves_no_pages),
        cmocka_unit_test(verify_names_what_is_damaged),
        cmocka_unit_test(layers_without_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
