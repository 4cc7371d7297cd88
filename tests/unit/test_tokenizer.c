/* text/tokenizer: what is refused at compiling, damaged tables, limits of the workspace and of the
 * output, and known ids of the demo tokenizer. Equality with the reference implementation over large
 * corpora is tests/diff/test_tokenizer_hf.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "text/tokenizer.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

/* A tokenizer.json of 256 bytes and a few words, with parts that a test may replace. */
typedef struct mini {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *vocab, *merges, *added,
        *model;
} mini;

#define QWEN2_SPLIT                                                                                \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"        \
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "            \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"       \
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","                         \
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]}"

static const mini usual = {
    .normalizer = "{\"type\":\"NFC\"}",
    .pre_tokenizer = QWEN2_SPLIT,
    .post_processor = "null",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .vocab = ",\"ab\":256,\"abc\":257,\"\xc4\xa0"
             "ab\":258,\"bc\":259",
    .merges = "[\"a\",\"b\"],[\"ab\",\"c\"],[\"\xc4\xa0\",\"ab\"]",
    .added = "{\"id\":260,\"content\":\"<end>\",\"special\":true,\"normalized\":false},"
             "{\"id\":261,\"content\":\"<tag>\",\"special\":false,\"normalized\":false}",
    .model = "\"type\":\"BPE\",",
};

static void write_json(const mini *m, sl_buf *out) {
    sl_buf_init(out);
    sl_buf_printf(out, "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,", m->added,
                  m->normalizer, m->pre_tokenizer);
    sl_buf_printf(out, "\"post_processor\":%s,\"decoder\":%s,\"model\":{%s\"vocab\":{",
                  m->post_processor, m->decoder, m->model);
    unsigned remapped = 0;
    for (unsigned b = 0; b < 256; b++) {
        bool kept = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        uint8_t spelled[4];
        size_t n = sl_utf8_encode(kept ? b : 256 + remapped++, spelled);
        sl_buf_add_text(out, b ? "," : "");
        sl_buf_add_json_string(out, (char *)spelled, n);
        sl_buf_printf(out, ":%u", b);
    }
    sl_buf_printf(out, "%s},\"merges\":[%s]}}", m->vocab, m->merges);
}

static sl_status compile(const mini *m, const char *config, sl_buf *blob, sl_error *err) {
    sl_buf json;
    write_json(m, &json);
    sl_buf_init(blob);
    sl_status st =
        sl_tok_compile(json.data, json.len, config, config ? strlen(config) : 0, blob, err);
    sl_buf_deinit(&json);
    return st;
}

typedef struct opened {
    sl_buf blob;
    sl_tok tok;
    void *block;
    sl_arena workspace;
} opened;

static void open_blob(opened *o) {
    sl_error err;
    size_t bytes = sl_tok_workspace_bytes(0);
    assert_int_equal(sl_tok_open(o->blob.data, o->blob.len, &o->tok, &err), SL_OK);
    o->block = malloc(bytes);
    sl_arena_init(&o->workspace, "workspace", o->block, bytes);
}

static void open_mini(opened *o, const mini *m) {
    sl_error err;
    assert_int_equal(compile(m, NULL, &o->blob, &err), SL_OK);
    open_blob(o);
}

static void close_opened(opened *o) {
    free(o->block);
    sl_buf_deinit(&o->blob);
}

static void expect_ids(opened *o, const char *text, unsigned flags, const uint32_t *ids, size_t n) {
    uint32_t found[64];
    size_t n_found;
    sl_error err;
    assert_int_equal(sl_tok_encode(&o->tok, text, strlen(text), flags, found, SL_COUNT(found),
                                   &n_found, &o->workspace, &err),
                     SL_OK);
    assert_int_equal(n_found, n);
    assert_memory_equal(found, ids, n * sizeof(*ids));
    assert_int_equal(o->workspace.used, 0);
}

#define EXPECT_IDS(o, text, flags, ...)                                                            \
    do {                                                                                           \
        const uint32_t ids_[] = {__VA_ARGS__};                                                     \
        expect_ids(o, text, flags, ids_, SL_COUNT(ids_));                                          \
    } while (0)

static void merges_go_by_rank(void **state) {
    (void)state;
    opened o;
    open_mini(&o, &usual);
    EXPECT_IDS(&o, "abc", 0, 257);
    EXPECT_IDS(&o, " abc", 0, ' ', 257); // "abc" comes before " ab"
    EXPECT_IDS(&o, " ab ab", 0, 258, 258);
    EXPECT_IDS(&o, "bc", 0, 'b', 'c'); // in the vocabulary, but no merge makes it
    EXPECT_IDS(&o, "abab", 0, 256, 256);
    EXPECT_IDS(&o, "\xff", 0, 0xef, 0xbf, 0xbd);
    close_opened(&o);
}

static void ignored_merges_take_whole_entries(void **state) {
    (void)state;
    opened o;
    mini m = usual;
    m.model = "\"type\":\"BPE\",\"ignore_merges\":true,";
    open_mini(&o, &m);
    EXPECT_IDS(&o, "bc", 0, 259);
    EXPECT_IDS(&o, "abbc", 0, 256, 'b', 'c');
    close_opened(&o);
}

static void added_tokens_are_ids_unless_text_is_plain(void **state) {
    (void)state;
    opened o;
    open_mini(&o, &usual);
    EXPECT_IDS(&o, "ab<end>ab<tag>", 0, 256, 260, 256, 261);
    EXPECT_IDS(&o, "<end>", SL_TOK_PLAIN, '<', 'e', 'n', 'd', '>');
    EXPECT_IDS(&o, "<end<end>", 0, '<', 'e', 'n', 'd', 260);
    assert_true(sl_tok_is_special(&o.tok, 260));
    assert_false(sl_tok_is_special(&o.tok, 261));
    assert_false(sl_tok_is_special(&o.tok, 1u << 30));
    close_opened(&o);
}

// A special token that is also a whole entry of the vocabulary must not come out of plain text.
static void plain_text_cannot_spell_a_special_token(void **state) {
    (void)state;
    opened o;
    mini m = usual;
    m.vocab = ",\"ab\":256,\"abc\":257,\"\xc4\xa0"
              "ab\":258,\"stop\":259";
    m.added = "{\"id\":259,\"content\":\"stop\",\"special\":true,\"normalized\":false}";
    m.model = "\"type\":\"BPE\",\"ignore_merges\":true,";
    open_mini(&o, &m);
    EXPECT_IDS(&o, "stop", 0, 259);
    EXPECT_IDS(&o, "stop", SL_TOK_PLAIN, 's', 't', 'o', 'p');
    close_opened(&o);
}

static void tokens_can_be_asked_for(void **state) {
    (void)state;
    opened o;
    const char *bytes;
    size_t len;
    uint32_t id;
    open_mini(&o, &usual);
    assert_int_equal(o.tok.n_vocab, 262);
    assert_int_equal(o.tok.token_bytes_max, 5);
    assert_true(sl_tok_token_bytes(&o.tok, 258, &bytes, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(bytes, " ab", 3);
    assert_true(sl_tok_token_bytes(&o.tok, 0, &bytes, &len));
    assert_true(len == 1 && bytes[0] == 0);
    assert_false(sl_tok_token_bytes(&o.tok, 262, &bytes, &len));
    assert_true(sl_tok_find(&o.tok, "<end>", 5, &id) && id == 260);
    assert_true(sl_tok_find(&o.tok, " ab", 3, &id) && id == 258);
    assert_false(sl_tok_find(&o.tok, "ba", 2, &id));
    assert_false(sl_tok_find(&o.tok, "", 0, &id));
    close_opened(&o);
}

static void a_full_output_still_counts(void **state) {
    (void)state;
    opened o;
    sl_error err;
    uint32_t ids[3] = {7, 7, 7};
    size_t n;
    open_mini(&o, &usual);
    assert_int_equal(sl_tok_encode(&o.tok, "ab ab ab ab", 11, 0, ids, 2, &n, &o.workspace, &err),
                     SL_ERR_CONTEXT);
    assert_int_equal(n, 4);
    assert_true(ids[0] == 256 && ids[1] == 258 && ids[2] == 7);
    assert_non_null(strstr(err.message, "4 tokens"));
    assert_int_equal(sl_tok_encode(&o.tok, "", 0, 0, NULL, 0, &n, &o.workspace, &err), SL_OK);
    assert_int_equal(n, 0);
    close_opened(&o);
}

static void pieces_are_limited_by_the_workspace(void **state) {
    (void)state;
    opened o;
    sl_error err;
    size_t len = 200000, n;
    char *text = malloc(len);
    uint32_t *ids = malloc(len * sizeof(*ids));
    open_mini(&o, &usual);
    memset(text, 'a', len);
    assert_int_equal(sl_tok_encode(&o.tok, text, len, 0, ids, len, &n, &o.workspace, &err),
                     SL_ERR_MEMORY);
    assert_non_null(strstr(err.message, "4096 bytes"));
    assert_int_equal(o.workspace.used, 0);
    for (size_t i = 0; i < len; i += 4096)
        text[i] = ' ';
    assert_int_equal(sl_tok_encode(&o.tok, text, len, 0, ids, len, &n, &o.workspace, &err), SL_OK);
    assert_int_equal(n, len);

    memset(text, 'a', len);
    size_t bytes = sl_tok_workspace_bytes(len);
    void *block = malloc(bytes);
    sl_arena large;
    sl_arena_init(&large, "large", block, bytes);
    assert_int_equal(sl_tok_encode(&o.tok, text, len, 0, ids, len, &n, &large, &err), SL_OK);
    assert_int_equal(n, len);
    sl_arena_init(&large, "tiny", block, sl_tok_workspace_bytes(0) - 1);
    assert_int_equal(sl_tok_encode(&o.tok, "a", 1, 0, ids, len, &n, &large, &err), SL_ERR_MEMORY);
    assert_int_equal(sl_tok_workspace_bytes(SIZE_MAX), SIZE_MAX);
    free(block);
    free(text);
    free(ids);
    close_opened(&o);
}

static void what_is_not_understood_is_refused(void **state) {
    (void)state;
#define WITH(field, value)                                                                         \
    (mini){usual.normalizer, usual.pre_tokenizer, usual.post_processor, usual.decoder,             \
           usual.vocab,      usual.merges,        usual.added,          usual.model},              \
        offsetof(mini, field), value
    const struct {
        mini base;
        size_t field;
        const char *value;
        sl_status status;
        const char *message;
    } cases[] = {
        {WITH(normalizer, "{\"type\":\"NFKC\"}"), SL_ERR_UNSUPPORTED, "NFKC"},
        {WITH(normalizer, "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
                          "\"Lowercase\"}]}"),
         SL_ERR_UNSUPPORTED, "normalizer"},
        {WITH(normalizer,
              "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"b\"}"),
         SL_ERR_UNSUPPORTED, "Replace"},
        {WITH(normalizer, "{\"type\":\"Prepend\",\"prepend\":\"\u2581\"}"), SL_ERR_UNSUPPORTED,
         "mixture"},
        {WITH(pre_tokenizer, "{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), SL_ERR_UNSUPPORTED,
         "Metaspace"},
        {WITH(pre_tokenizer, "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"}"),
         SL_ERR_UNSUPPORTED, "mixture"},
        {WITH(pre_tokenizer, "{\"type\":\"Whitespace\"}"), SL_ERR_UNSUPPORTED, "Whitespace"},
        {WITH(pre_tokenizer, "null"), SL_ERR_UNSUPPORTED, "mixture"},
        {WITH(pre_tokenizer, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},"
                             "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]}"),
         SL_ERR_UNSUPPORTED, "add_prefix_space"},
        {WITH(pre_tokenizer, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
                             "{\"type\":\"Digits\"}]}"),
         SL_ERR_UNSUPPORTED, "after ByteLevel"},
        {WITH(pre_tokenizer, "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
                             "\"behavior\":\"Removed\",\"invert\":false}"),
         SL_ERR_UNSUPPORTED, "Isolated"},
        {WITH(pre_tokenizer, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                             "\"pattern\":{\"Regex\":\"\\\\w+\"},"
                             "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","
                             "\"add_prefix_space\":false,"
                             "\"use_regex\":false}]}"),
         SL_ERR_UNSUPPORTED, "'\\w+': at 1"},
        {WITH(post_processor, "{\"type\":\"TemplateProcessing\"}"), SL_ERR_UNSUPPORTED, "template"},
        {WITH(post_processor,
              "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},"
              "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[999]}}}"),
         SL_ERR_CORRUPT, "token 999"},
        {WITH(post_processor, "{\"type\":\"RobertaProcessing\"}"), SL_ERR_UNSUPPORTED, "Roberta"},
        {WITH(decoder, "{\"type\":\"WordPiece\"}"), SL_ERR_UNSUPPORTED, "WordPiece"},
        {WITH(model, "\"type\":\"Unigram\","), SL_ERR_UNSUPPORTED, "Unigram"},
        {WITH(model, "\"byte_fallback\":true,"), SL_ERR_UNSUPPORTED, "mixture"},
        {WITH(model, "\"dropout\":0.1,"), SL_ERR_UNSUPPORTED, "dropout"},
        {WITH(model, "\"end_of_word_suffix\":\"</w>\","), SL_ERR_UNSUPPORTED, "end_of_word_suffix"},
        {WITH(model, "\"novelty\":1,"), SL_ERR_UNSUPPORTED, "novelty"},
        {WITH(vocab, ",\"ab\":255"), SL_ERR_CORRUPT, "id 255"},
        {WITH(vocab, ",\"ab\":3000000"), SL_ERR_UNSUPPORTED, "3000000"},
        {WITH(vocab, ",\"ab\":-1"), SL_ERR_CORRUPT, "no number"},
        {WITH(vocab, ",\"ab\":256,\"ab\":257"), SL_ERR_CORRUPT, "same bytes"},
        {WITH(vocab, ",\"\":256"), SL_ERR_UNSUPPORTED, "0 bytes"},
        {WITH(merges, "\"a b\",\"ab d\""), SL_ERR_CORRUPT, "merge 1"},
        {WITH(merges, "\"a b\",\"a b\""), SL_ERR_CORRUPT, "twice"},
        {WITH(merges, "\"ab\""), SL_ERR_CORRUPT, "merge 0"},
        {WITH(merges, "[\"a\"]"), SL_ERR_CORRUPT, "merge 0"},
        {WITH(added, "{\"id\":270,\"content\":\"x1\",\"special\":true},{\"id\":270,\"content\":"
                     "\"x2\",\"special\":true}"),
         SL_ERR_CORRUPT, "id 270"},
        {WITH(added, "{\"id\":270,\"content\":\"x1\",\"special\":true},{\"id\":271,\"content\":"
                     "\"x1\",\"special\":true}"),
         SL_ERR_CORRUPT, "same content"},
        {WITH(added, "{\"id\":270,\"content\":\"abc\",\"special\":true}"), SL_ERR_CORRUPT,
         "entry 257"},
        {WITH(added, "{\"id\":257,\"content\":\"xyz\",\"special\":true}"), SL_ERR_UNSUPPORTED,
         "spelling"},
        {WITH(added, "{\"id\":270,\"content\":\"\"}"), SL_ERR_UNSUPPORTED, "270"},
        {WITH(added, "{\"content\":\"x\"}"), SL_ERR_CORRUPT, "no id"},
        {WITH(normalizer, "nul"), SL_ERR_SYNTAX, "JSON"},
    };
#undef WITH
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        mini m = cases[i].base;
        sl_buf blob;
        sl_error err;
        *(const char **)((char *)&m + cases[i].field) = cases[i].value;
        assert_int_equal(compile(&m, NULL, &blob, &err), cases[i].status);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %zu: '%s' does not name '%s'", i, err.message, cases[i].message);
        assert_int_equal(blob.len, 0);
        sl_buf_deinit(&blob);
    }
}

static void the_config_is_looked_through(void **state) {
    (void)state;
    sl_error err;
    opened o;
    uint32_t id;
    static const struct {
        const char *config, *message;
        sl_status status;
    } refused[] = {
        {"{\"add_bos_token\": true}", "add_bos_token", SL_ERR_CORRUPT},
        {"{\"add_eos_token\": true, \"eos_token\": \"<none>\"}", "<none>", SL_ERR_CORRUPT},
        {"{\"add_bos_token\": 1}", "neither", SL_ERR_CORRUPT},
        {"{\"add_prefix_space\": true}", "add_prefix_space", SL_ERR_UNSUPPORTED},
        {"{\"split_special_tokens\": true}", "split_special_tokens", SL_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < SL_COUNT(refused); i++) {
        assert_int_equal(compile(&usual, refused[i].config, &o.blob, &err), refused[i].status);
        assert_non_null(strstr(err.message, refused[i].message));
        sl_buf_deinit(&o.blob);
    }
    assert_int_equal(compile(&usual,
                             "{\"added_tokens_decoder\": {\"260\": {\"content\": \"<other>\"}}}",
                             &o.blob, &err),
                     SL_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "<other>"));
    sl_buf_deinit(&o.blob);
    assert_int_equal(
        compile(
            &usual,
            "{\"add_bos_token\": false, \"chat_template\": \"{{x}}\", \"added_tokens_decoder\": "
            "{\"260\": {\"content\": \"<end>\"}, \"263\": {\"content\": \"<more>\", \"special\": "
            "true}}}",
            &o.blob, &err),
        SL_OK);
    open_blob(&o);
    assert_true(sl_tok_find(&o.tok, "<more>", 6, &id) && id == 263 &&
                sl_tok_is_special(&o.tok, 263));
    EXPECT_IDS(&o, "<end><more>", 0, 260, 263);
    const char *bytes;
    size_t len;
    assert_false(sl_tok_token_bytes(&o.tok, 262, &bytes, &len)); // a hole
    close_opened(&o);
}

#define TEMPLATE                                                                                   \
    "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":"                   \
    "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<tag>\",\"type_id\":0}},"      \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"SpecialToken\":{\"id\":\"e\"}}],"              \
    "\"special_tokens\":{\"<tag>\":{\"ids\":[261]},\"e\":{\"ids\":[260,260]}}}]}"

static void a_template_stands_around_a_text(void **state) {
    (void)state;
    sl_error err;
    opened o;
    mini m = usual;
    m.post_processor = TEMPLATE;
    open_mini(&o, &m);
    EXPECT_IDS(&o, "abc", 0, 257);
    EXPECT_IDS(&o, "abc", SL_TOK_TEMPLATE, 261, 257, 260, 260);
    EXPECT_IDS(&o, "<tag>", SL_TOK_TEMPLATE | SL_TOK_PLAIN, 261, '<', 't', 'a', 'g', '>', 260, 260);
    EXPECT_IDS(&o, "", SL_TOK_TEMPLATE, 261, 260, 260);
    close_opened(&o);
    // What the config says counts instead of it.
    static const char *const bos =
        "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<end>\"}}";
    assert_int_equal(compile(&m, bos, &o.blob, &err), SL_OK);
    open_blob(&o);
    EXPECT_IDS(&o, "abc", SL_TOK_TEMPLATE, 260, 257);
    close_opened(&o);
    assert_int_equal(
        compile(&m, "{\"add_bos_token\": false, \"bos_token\": \"<end>\"}", &o.blob, &err), SL_OK);
    open_blob(&o);
    EXPECT_IDS(&o, "abc", SL_TOK_TEMPLATE, 257);
    close_opened(&o);
    assert_int_equal(
        compile(&m, "{\"add_eos_token\": true, \"eos_token\": \"<tag>\"}", &o.blob, &err), SL_OK);
    open_blob(&o);
    EXPECT_IDS(&o, "abc", SL_TOK_TEMPLATE, 257, 261);
    close_opened(&o);
}

/* A vocabulary of characters: bytes are 0..255, then words with the mark for a space. */
static void open_chars(opened *o, const char *strip, const char *merges) {
    sl_error err;
    sl_buf json;
    sl_buf_init(&json);
    sl_buf_printf(
        &json,
        "{\"added_tokens\":[{\"id\":300,\"content\":\"<s>\",\"special\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
        "\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
        "\"content\":\"\u2581\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\","
        "\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},"
        "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]},"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<s>\",\"fuse_unk\":true,"
        "\"byte_fallback\":true,\"vocab\":{",
        strip);
    for (unsigned b = 0; b < 256; b++)
        sl_buf_printf(&json, "\"<0x%02X>\":%u,", b, b);
    sl_buf_printf(&json,
                  "\"\u2581\":256,\"a\":257,\"b\":258,\"\u00e9\":259,\"ab\":260,\"\u2581ab\":261,"
                  "\"b\u2581\":262},\"merges\":[%s]}}",
                  merges);
    sl_buf_init(&o->blob);
    assert_int_equal(sl_tok_compile(json.data, json.len, NULL, 0, &o->blob, &err), SL_OK);
    sl_buf_deinit(&json);
    open_blob(o);
}

static void characters_fall_back_to_bytes(void **state) {
    (void)state;
    opened o;
    const char *bytes;
    size_t len;
    open_chars(&o, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}",
               "\"a b\",\"\u2581 ab\"");
    EXPECT_IDS(&o, "ab", 0, 261);
    EXPECT_IDS(&o, "ab\n", 0, 261, '\n');
    EXPECT_IDS(&o, " ab ab", 0, 256, 261, 261);
    EXPECT_IDS(&o, "\u2581\u00e9\u4e2d", 0, 256, 256, 259, 0xe4, 0xb8, 0xad);
    EXPECT_IDS(&o, "<0x41>A", 0, 256, '<', '0', 'x', '4', '1', '>', 'A');
    EXPECT_IDS(&o, "<s>ab<s>", 0, 300, 261, 300);
    EXPECT_IDS(&o, "<s>", SL_TOK_PLAIN, 256, '<', 's', '>');
    assert_true(sl_tok_decode(&o.tok, 261, true, &bytes, &len) && len == 2 && *bytes == 'a');
    assert_true(sl_tok_decode(&o.tok, 261, false, &bytes, &len) && len == 3 && *bytes == ' ');
    assert_true(sl_tok_decode(&o.tok, 256, true, &bytes, &len) && len == 0);
    assert_true(sl_tok_decode(&o.tok, '\n', true, &bytes, &len) && len == 1 && *bytes == '\n');
    assert_false(sl_tok_decode(&o.tok, 299, true, &bytes, &len));
    assert_int_equal(o.tok.pretok.n_steps, 1); // cut before spaces
    close_opened(&o);
    open_chars(&o, "", "\"b \u2581\",\"a b\"");
    EXPECT_IDS(&o, "ab ab", 0, 256, 257, 262, 260);
    assert_true(sl_tok_decode(&o.tok, 261, true, &bytes, &len) && len == 3);
    assert_int_equal(o.tok.pretok.n_steps, 0); // a merge crosses the place
    close_opened(&o);
}

// Every byte of the tables is changed in turn: open refuses, or encoding still stays inside and gives
// tokens that spell the text.
static void damaged_tables_do_no_harm(void **state) {
    (void)state;
    opened o;
    sl_error err;
    sl_tok tok;
    size_t refused = 0;
    const char *text = " abc ab<end>bc \xc3\xa9 abcabc";
    open_mini(&o, &usual);
    uint8_t *bytes = (uint8_t *)o.blob.data;
    static const uint8_t change[] = {0x01, 0x80, 0xff};
    for (size_t i = 0; i < o.blob.len * SL_COUNT(change); i++) {
        uint8_t *byte = &bytes[i / SL_COUNT(change)], before = *byte;
        *byte ^= change[i % SL_COUNT(change)];
        if (sl_tok_open(bytes, o.blob.len, &tok, &err) != SL_OK) {
            refused++;
        } else {
            uint32_t ids[64];
            char joined[128];
            size_t n, len = 0;
            assert_int_equal(sl_tok_encode(&tok, text, strlen(text), SL_TOK_PLAIN, ids,
                                           SL_COUNT(ids), &n, &o.workspace, &err),
                             SL_OK);
            for (size_t k = 0; k < n; k++) {
                const char *part;
                size_t part_len;
                assert_true(sl_tok_token_bytes(&tok, ids[k], &part, &part_len));
                memcpy(joined + len, part, part_len);
                len += part_len;
            }
            assert_int_equal(len, strlen(text));
            assert_memory_equal(joined, text, len);
        }
        *byte = before;
    }
    assert_true(refused > 1000);
    for (size_t size = 0; size < o.blob.len; size++)
        assert_int_equal(sl_tok_open(bytes, size, &tok, &err), SL_ERR_CORRUPT);
    assert_int_equal(sl_tok_open(bytes + 1, o.blob.len - 1, &tok, &err), SL_ERR_ARGUMENT);
    bytes[8]++;
    assert_int_equal(sl_tok_open(bytes, o.blob.len, &tok, &err), SL_ERR_UNSUPPORTED);
    close_opened(&o);
}

static void the_demo_tokenizer_works(void **state) {
    (void)state;
    opened o;
    sl_error err;
    uint32_t id;
    FILE *f = fopen(SL_MODELS_DIR "/demo/tokenizer.json", "rb");
    assert_non_null(f);
    char *json = malloc(1 << 20);
    size_t len = fread(json, 1, 1 << 20, f);
    fclose(f);
    sl_buf_init(&o.blob);
    assert_int_equal(sl_tok_compile(json, len, NULL, 0, &o.blob, &err), SL_OK);
    assert_true(o.blob.len < 200000);
    open_blob(&o);
    assert_int_equal(o.tok.n_vocab, 8192);
    assert_true(sl_tok_find(&o.tok, "<|im_end|>", 10, &id) && id == 8181);
    assert_true(sl_tok_is_special(&o.tok, 8181));
    assert_false(sl_tok_is_special(&o.tok, 8190));
    sl_seal_enter();
    EXPECT_IDS(&o, "<|im_start|>Hello, world<|im_end|>", 0, 8180, 1627, 11, 3388, 8181);
    sl_seal_leave();
    assert_int_equal(sl_seal_violations(), 0);
    free(json);
    close_opened(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank),
        cmocka_unit_test(ignored_merges_take_whole_entries),
        cmocka_unit_test(added_tokens_are_ids_unless_text_is_plain),
        cmocka_unit_test(plain_text_cannot_spell_a_special_token),
        cmocka_unit_test(tokens_can_be_asked_for),
        cmocka_unit_test(a_full_output_still_counts),
        cmocka_unit_test(pieces_are_limited_by_the_workspace),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(the_config_is_looked_through),
        cmocka_unit_test(a_template_stands_around_a_text),
        cmocka_unit_test(characters_fall_back_to_bytes),
        cmocka_unit_test(damaged_tables_do_no_harm),
        cmocka_unit_test(the_demo_tokenizer_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
