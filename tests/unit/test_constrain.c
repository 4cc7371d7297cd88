/* constrain: what schemas allow and refuse, the bounds of everything, and that mask, single question and
 * acceptance agree. tests/diff/test_constrain_jsonschema.py holds answers against a validator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "constrain/constrain.h"

/* A vocabulary: all bytes (or those that are left), then words, then a special token and the end. */
static const char *const words[] = {
    "\":",  "\", \"",  "{\"",      "}}",        "true",           "null", " \"",  "\":{\"", "é",
    "日本", "日\"",    "\\u",      "00",        "name",           "\n  ", "[[[[", "[]",     "],[",
    "0.5",  "name\":", "\xf0\x9f", "\x98\x80x", "[[[[[[[[[[[[[[["};
enum { N_WORDS = sizeof(words) / sizeof(words[0]), SPECIAL = 256 + N_WORDS, END, N_VOCAB };

typedef struct fixture {
    bool missing[256];
    char bytes[256];
    sl_vocab *vocab;
    sl_constraint_work *work, *plain;
    sl_constraint *c;
    sl_constraint_limits limits;
    sl_arena vocab_arena, arena, scratch;
    sl_error err;
} fixture;

static fixture f;
static char vocab_block[1 << 18], arena_block[1 << 22], scratch_block[1 << 23], work_block[1 << 20];

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    (void)ctx;
    if (id < 256) {
        *bytes = &f.bytes[id];
        *len = 1;
        return !f.missing[id];
    }
    if (id - 256 >= N_WORDS)
        return false;
    *bytes = words[id - 256];
    *len = strlen(*bytes);
    return true;
}

static sl_status build_vocab(void) {
    static const uint32_t ends[] = {END};
    const sl_vocab_source source = {
        .n_vocab = N_VOCAB, .token_bytes = token_bytes, .end_ids = ends, .n_end = 1};
    sl_arena work;
    uint64_t bytes;
    for (unsigned b = 0; b < 256; b++)
        f.bytes[b] = (char)b;
    sl_arena_init(&f.scratch, "scratch", scratch_block, sizeof(scratch_block));
    sl_status measured = sl_vocab_measure(&source, &f.scratch, &bytes, &f.err);
    assert_true(bytes <= sizeof(vocab_block));
    // At an odd address, where aligning costs most.
    sl_arena_init(&f.vocab_arena, "vocabulary", vocab_block + 1, (size_t)bytes);
    sl_status st = sl_vocab_build(&source, &f.vocab_arena, &f.scratch, &f.vocab, &f.err);
    assert_int_equal(st, measured);
    assert_int_equal(f.scratch.used, 0);
    if (st)
        return st;
    assert_true(f.vocab_arena.used + 16 > bytes);
    assert_int_equal(sl_vocab_size(f.vocab), N_VOCAB);
    sl_arena_init(&work, "work", work_block, sizeof(work_block));
    assert_int_equal(sl_constraint_work_init(f.vocab, 4, &work, &f.work, &f.err), SL_OK);
    assert_int_equal(sl_constraint_work_init(f.vocab, 0, &work, &f.plain, &f.err), SL_OK);
    return SL_OK;
}

static int setup(void **state) {
    (void)state;
    memset(&f, 0, sizeof(f));
    f.limits = sl_constraint_limits_default();
    return build_vocab() ? 1 : 0;
}

static sl_status compile(const char *schema) {
    sl_arena_init(&f.arena, "constraint", arena_block, sizeof(arena_block));
    sl_status st = sl_constraint_compile_text(schema, strlen(schema), f.vocab, &f.limits, &f.arena,
                                              &f.scratch, &f.c, &f.err);
    assert_int_equal(f.scratch.used, 0);
    assert_true((st == SL_OK) == (f.c != NULL));
    assert_true(st == SL_OK || f.arena.used == 0);
    return st;
}

static void must_compile(const char *schema) {
    sl_status st = compile(schema);
    if (st)
        fail_msg("%s: %s", schema, f.err.message);
}

static bool has(const uint32_t *mask, uint32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

/* Whether the text is a whole answer, byte by byte. On the way, for every token of the vocabulary, the
 * mask is held against the single question, and something is always allowed. */
static bool accepts(const char *text) {
    sl_constraint_state s;
    sl_constraint_begin(f.c, &s);
    for (size_t i = 0;; i++) {
        uint32_t mask[SL_CONSTRAINT_MASK_WORDS(N_VOCAB)], other[SL_CONSTRAINT_MASK_WORDS(N_VOCAB)];
        bool any = false;
        sl_constraint_mask(f.c, &s, f.work, mask);
        sl_constraint_mask(f.c, &s, f.plain, other);
        assert_memory_equal(mask, other, sizeof(mask));
        for (uint32_t id = 0; id < N_VOCAB; id++) {
            assert_int_equal(has(mask, id), sl_constraint_allows(f.c, &s, f.plain, id));
            any |= has(mask, id);
        }
        assert_true(any);
        assert_false(has(mask, SPECIAL));
        assert_int_equal(has(mask, END), sl_constraint_is_complete(f.c, &s));
        if (sl_constraint_is_closed(f.c, &s))
            for (uint32_t id = 0; id < END; id++)
                assert_false(has(mask, id));
        if (!text[i])
            return sl_constraint_is_complete(f.c, &s);
        uint8_t byte = (uint8_t)text[i];
        bool allowed = has(mask, byte);
        sl_status st = sl_constraint_accept(f.c, &s, f.work, byte, &f.err);
        assert_int_equal(allowed, st == SL_OK);
        if (st)
            return false;
    }
}

// The same without looking around on the way.
static bool accepts_text(const char *text) {
    sl_constraint_state s;
    sl_constraint_begin(f.c, &s);
    return !sl_constraint_accept_bytes(f.c, &s, f.work, text, strlen(text), &f.err) &&
           sl_constraint_is_complete(f.c, &s);
}

static void check_texts(const char *schema, const char *const *good, const char *const *bad) {
    must_compile(schema);
    for (; *good; good++)
        if (!accepts(*good))
            fail_msg("%s refuses %s", schema, *good);
    for (; *bad; bad++)
        if (accepts(*bad))
            fail_msg("%s accepts %s", schema, *bad);
}

#define GOOD(...) ((const char *const[]){__VA_ARGS__, NULL})

static void scalars(void **state) {
    (void)state;
    check_texts("{\"type\": \"integer\"}", GOOD("0", "-0", "12", "-7", "123456789012345678"),
                GOOD("", "01", "1.0", "1e2", "+1", "-", "1234567890123456789", " 1", "1 "));
    check_texts("{\"type\": \"number\"}", GOOD("0", "-0.5", "1e9", "1E+99", "2.50e-3", "3"),
                GOOD("1.", ".5", "1e", "1e100", "NaN", "Infinity", "0x1", "1,5", "00.5"));
    check_texts("{\"type\": [\"boolean\", \"null\"]}", GOOD("true", "false", "null"),
                GOOD("tru", "True", "nil", "\"true\"", "0"));
    check_texts("{\"type\": \"string\"}",
                GOOD("\"\"", "\"a\\n\\u00e9\\ud83d\\ude00é日😀\\/\"", "\"\\u0000\""),
                GOOD("\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\u0041\"",
                     "\"\x80\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
                     "'a'"));
    check_texts("{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
                GOOD("\"ab\"", "\"日本語\"", "\"\\ud83d\\ude00\\n😀\""),
                GOOD("\"\"", "\"日\"", "\"\\ud83d\\ude00\"", "\"abcd\""));
    check_texts("{\"enum\": [1.0, \"a\\nb\", null, [1, {\"k\": \"é\"}], 2.5e1, 12]}",
                GOOD("1", "\"a\\nb\"", "null", "[1,{\"k\":\"é\"}]", "25", "12"),
                GOOD("1.0", "\"a\"", "2", "[1, {\"k\":\"é\"}]", "[1]"));
    check_texts("{\"const\": {}}", GOOD("{}"), GOOD("{ }", "null"));
    check_texts("true", GOOD("1", "{\"a\":[true, {\"b\": null}]}", "[]", "\"\""),
                GOOD("[1,]", "{\"a\"}", "{a:1}", "{,}", "[", "]"));
}

static void objects(void **state) {
    (void)state;
    check_texts("{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"n\": "
                "{\"type\": \"integer\"}, \"na\": true}, \"required\": [\"n\"], "
                "\"additionalProperties\": false}",
                GOOD("{\"n\":1}", "{\"name\":\"x\",\"n\":1}",
                     "{\"name\": \"x\", \"n\": 1, \"na\": {}}", "{\n  \"n\": 1\n}", "{ \"n\":1 }"),
                GOOD("{}", "{\"na\":1,\"n\":1}", "{\"n\":1,\"n\":1}", "{\"n\":1,\"x\":1}",
                     "{\"n\":1,}", "{\"n\":1}}", "{\"n\" :1}", "{\"n\":\n1}", "{\"n\":  1}",
                     "{\n\n\"n\":1}", "{\n     \"n\":1}", "{\"name\":\"x\"}",
                     "{\"nam\":\"x\",\"n\":1}"));
    // Other keys come last, each once, and never one that is declared.
    check_texts(
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"null\"}, \"c\": false}, "
        "\"additionalProperties\": {\"type\": \"integer\"}}",
        GOOD("{\"a\":null,\"b\":1}", "{\"b\":1,\"ab\":2,\"é\":3}", "{}", "{\"\":1}"),
        GOOD("{\"b\":1,\"a\":null}", "{\"a\":1}", "{\"b\":1,\"b\":1}", "{\"b\":null}", "{\"c\":1}",
             "{\"b\":1,\"\\u0061\":1}", "{\"b\":1,\"d\":2,\"b\":3}", "{\"\x80\":1}"));
    // The same key is fine in another object, also one inside or beside.
    check_texts("{\"type\": \"object\"}",
                GOOD("{\"a\":{\"a\":1,\"b\":{\"a\":2}},\"b\":1,\"c\":[{\"a\":1},{\"a\":2}]}"),
                GOOD("{\"a\":{\"a\":1},\"a\":2}", "{\"a\":{\"b\":1,\"b\":2}}", "[]"));
    check_texts(
        "{\"type\": \"object\", \"required\": [\"x\", \"q\\\"\"], \"additionalProperties\": "
        "{\"type\": \"boolean\"}}",
        GOOD("{\"x\":true,\"q\\\"\":false}", "{\"x\":true,\"q\\\"\":false,\"y\":true}"),
        GOOD("{\"x\":true}", "{\"q\\\"\":false,\"x\":true}", "{\"x\":1,\"q\\\"\":false}"));
    f.limits.closed_objects = true;
    check_texts("{\"properties\": {\"o\": {\"type\": \"object\"}, \"n\": {\"type\": \"integer\"}}, "
                "\"type\": \"object\"}",
                GOOD("{\"o\":{\"free\":1}}", "{}"), GOOD("{\"x\":1}", "{\"n\":1,\"x\":1}"));
}

static void arrays(void **state) {
    (void)state;
    check_texts("{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, "
                "\"maxItems\": 3}",
                GOOD("[1]", "[1,2, 3]", "[\n  1,\n  2\n]"),
                GOOD("[]", "[1,2,3,4]", "[1 ,2]", "[,1]"));
    check_texts("{\"type\": \"array\", \"prefixItems\": [{\"type\": \"null\"}, {\"const\": 1}], "
                "\"items\": false}",
                GOOD("[]", "[null]", "[null,1]"), GOOD("[1]", "[null,1,1]", "[null,2]"));
    check_texts("{\"type\": \"array\", \"prefixItems\": [true, false], \"minItems\": 1}",
                GOOD("[1]"), GOOD("[]", "[1,2]"));
    check_texts(
        "{\"type\": \"array\", \"items\": {\"type\": \"array\", \"items\": {\"type\": \"null\"}}}",
        GOOD("[[],[null]]", "[]"), GOOD("[null]", "[[null,1]]"));
}

static void combinations(void **state) {
    (void)state;
    check_texts(
        "{\"anyOf\": [{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
        "\"required\": [\"a\"], \"additionalProperties\": false}, {\"type\": \"object\", "
        "\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {}}, \"required\": [\"b\"], "
        "\"additionalProperties\": false}, {\"const\": 12}, {\"const\": 1}]}",
        GOOD("{\"a\":1}", "{\"a\":\"\",\"b\":[]}", "{\"b\":1}", "1", "12"),
        GOOD("{\"a\":1,\"b\":1}", "{}", "{\"a\":\"\"}", "2", "123"));
    check_texts(
        "{\"allOf\": [{\"type\": \"integer\", \"minimum\": 3}, {\"maximum\": 5}], \"maximum\": 4}",
        GOOD("3", "4"), GOOD("2", "5"));
    check_texts("{\"type\": \"string\", \"pattern\": \"^a\", \"allOf\": [{\"pattern\": \"z$\"}, "
                "{\"maxLength\": 3}]}",
                GOOD("\"az\"", "\"aéz\""), GOOD("\"a\"", "\"z\"", "\"abcz\""));
    // A base with alternatives that only require.
    check_texts(
        "{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}}, "
        "\"additionalProperties\": false, \"anyOf\": [{\"required\": [\"a\"]}, {\"required\": "
        "[\"b\"]}]}",
        GOOD("{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"), GOOD("{}"));
    check_texts(
        "{\"$defs\": {\"t\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": "
        "\"integer\"}, \"kids\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/t\"}}}, "
        "\"required\": [\"v\"], \"additionalProperties\": false}}, \"$ref\": \"#/$defs/t\"}",
        GOOD("{\"v\":1,\"kids\":[{\"v\":2,\"kids\":[]},{\"v\":3}]}"),
        GOOD("{\"v\":1,\"kids\":[{\"kids\":[]}]}", "{\"v\":1,\"kids\":[1]}"));
    check_texts("{\"enum\": [1, 5, \"x\", \"xyz\", null], \"type\": [\"integer\", \"string\"], "
                "\"minimum\": 2, \"minLength\": 2}",
                GOOD("5", "\"xyz\""), GOOD("1", "\"x\"", "null"));
    check_texts("{\"oneOf\": [{\"type\": \"integer\", \"maximum\": 3}, {\"type\": \"integer\", "
                "\"exclusiveMinimum\": 3}, {\"type\": \"string\"}, {\"enum\": [null, true]}]}",
                GOOD("3", "4", "\"\"", "true"), GOOD("false", "3.5"));
    check_texts("{\"anyOf\": [{\"type\": \"string\", \"maxLength\": 1}, {\"type\": \"string\", "
                "\"minLength\": 3}]}",
                GOOD("\"\"", "\"a\"", "\"abc\"", "\"abcd\""), GOOD("\"ab\""));
}

static void patterns(void **state) {
    (void)state;
    check_texts("{\"type\": \"string\", \"pattern\": \"^[^a-z\\\\d]{2}$\"}",
                GOOD("\"AB\"", "\"é日\"", "\"\\\"\\\\\"", "\"\\n\\u0001\""),
                GOOD("\"a1\"", "\"A\"", "\"ABC\"", "\"\\u00e9A\"", "\"\\u0041B\"", "\"\\/A\""));
    check_texts("{\"type\": \"string\", \"pattern\": \"b|^$|c$\"}",
                GOOD("\"\"", "\"abd\"", "\"xc\"", "\"b\""), GOOD("\"a\"", "\"ca\""));
    check_texts("{\"type\": \"string\", \"pattern\": \"^(?:a|bc)*?d{0,2}\\\\.\\\\w+$\"}",
                GOOD("\".x\"", "\"abcadd.Z_9\""),
                GOOD("\"ab.x\"", "\"ddd.x\"", "\"a.\"", "\"a.é\""));
    check_texts("{\"type\": \"string\", \"pattern\": \"^[\\\\u4e00-\\\\u9fff\\\\u{1F600}]+$\"}",
                GOOD("\"日本\"", "\"😀\""), GOOD("\"\"", "\"a\"", "\"😁\""));
    check_texts("{\"type\": \"string\", \"pattern\": \"^(ab|a)(c|bcd)$\"}",
                GOOD("\"abc\"", "\"ac\"", "\"abcd\"", "\"abbcd\""), GOOD("\"ab\"", "\"abcdd\""));
    check_texts("{\"type\": \"string\", \"format\": \"date\"}",
                GOOD("\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"0001-01-01\""),
                GOOD("\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\"", "\"2024-13-01\"",
                     "\"2024-1-1\"", "\"0000-01-01\""));
    check_texts("{\"type\": \"string\", \"format\": \"ipv4\"}", GOOD("\"0.10.199.255\""),
                GOOD("\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""));
}

/* Bounds, against what comparing doubles says: all texts of few digits. */
static void number_bounds(void **state) {
    (void)state;
    static const char *const bounds[] = {"0",    "-1",  "7",  "-0.5", "0.05",
                                         "12.5", "1e1", "99", "-20",  "0.50"};
    static const char *const texts[] = {
        "0",     "0.0",   "-1",    "-1.0",   "-1.01", "-0.5", "-0.49", "-0.51", "0.05",
        "0.049", "0.051", "0.5",   "7",      "6.99",  "7.0",  "7.01",  "10",    "9.9",
        "12",    "12.5",  "12.49", "12.500", "12.51", "99",   "98",    "100",   "-20",
        "-19",   "-21",   "-20.0", "3",      "70",    "-7",   "1250",  "0.1",   "0.009"};
    for (size_t i = 0; i < SL_COUNT(bounds) * SL_COUNT(bounds) * 4; i++) {
        const char *low = bounds[i / 4 % 10], *high = bounds[i / 40];
        bool above = i & 1, below = i & 2;
        char schema[200];
        double lo = strtod(low, NULL), hi = strtod(high, NULL);
        snprintf(schema, sizeof(schema), "{\"type\": \"number\", \"%s\": %s, \"%s\": %s}",
                 above ? "exclusiveMinimum" : "minimum", low,
                 below ? "exclusiveMaximum" : "maximum", high);
        bool empty = lo > hi || (lo == hi && (above || below));
        assert_int_equal(compile(schema), empty ? SL_ERR_UNSUPPORTED : SL_OK);
        for (size_t k = 0; !empty && k < SL_COUNT(texts); k++) {
            double v = strtod(texts[k], NULL);
            bool inside = (above ? v > lo : v >= lo) && (below ? v < hi : v <= hi);
            if (accepts_text(texts[k]) != inside)
                fail_msg("%s and %s", schema, texts[k]);
        }
    }
    must_compile("{\"type\": \"integer\", \"minimum\": -12.5, \"exclusiveMaximum\": 1e3, "
                 "\"multipleOf\": 6}");
    for (int n = -200; n < 1100; n++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", n);
        assert_int_equal(accepts_text(text), n >= -12 && n < 1000 && n % 6 == 0);
    }
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *schema, *message;
        sl_status status;
    } cases[] = {
        {"{\"type\": \"object\", \"properties\": {\"a~/b\": {\"not\": {}}}}",
         "#/properties/a~0~1b/not: ", SL_ERR_UNSUPPORTED},
        {"{\"items\": {\"anyOf\": [{}, {\"propertyNames\": {}}]}}",
         "#/items/anyOf/1/propertyNames: ", SL_ERR_UNSUPPORTED},
        {"{\"unknown\": 1}", "#/unknown: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"text\"}", "#/type: ", SL_ERR_ARGUMENT},
        {"{\"enum\": []}", "#/enum: ", SL_ERR_ARGUMENT},
        {"{\"minLength\": -1}", "#/minLength: ", SL_ERR_ARGUMENT},
        {"{\"$ref\": \"#/$defs/x\"}", "#/$ref: ", SL_ERR_ARGUMENT},
        {"{\"properties\": {\"a\": 3}}", "#/properties/a: ", SL_ERR_ARGUMENT},
        {"[]", "#: ", SL_ERR_ARGUMENT},
        {"{\"type\": \"string\", \"pattern\": \"a{3,1}\"}", "#/pattern: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"string\", \"pattern\": \"(a\"}", "#/pattern: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"string\", \"pattern\": \"\\\\p{L}\"}", "#/pattern: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"string\", \"pattern\": \"^(x{900}){900}$\"}",
         "#/pattern: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"number\", \"minimum\": 0.1234567890123456789}",
         "#/minimum: ", SL_ERR_UNSUPPORTED},
        {"{\"enum\": [{\"a\": 1}], \"required\": [\"a\"]}", "#/required: ", SL_ERR_UNSUPPORTED},
        {"{\"oneOf\": [{\"type\": \"object\", \"required\": [\"a\"]}, {\"type\": \"object\"}]}",
         "#/oneOf: ", SL_ERR_UNSUPPORTED},
        {"{\"type\": \"string\", \"allOf\": [{\"type\": \"null\"}]}", "#: ", SL_ERR_UNSUPPORTED},
        {"{\"$defs\": {\"a\": {\"$ref\": \"#/$defs/b\"}, \"b\": {\"allOf\": [{\"$ref\": "
         "\"#/$defs/a\"}]}}, "
         "\"items\": {\"$ref\": \"#/$defs/a\"}}",
         "#/$defs/a: ", SL_ERR_UNSUPPORTED},
        {"{\"a\": ", "JSON", SL_ERR_SYNTAX},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        assert_int_equal(compile(cases[i].schema), cases[i].status);
        if (!strstr(f.err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].schema, f.err.message);
    }
}

static void too_much_is_refused(void **state) {
    (void)state;
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"a\": {\"enum\": "
                                 "[\"x\", \"y\", 3]}, \"b\": {\"type\": "
                                 "\"array\", \"items\": {\"type\": \"string\", \"pattern\": "
                                 "\"^[a-z]+[0-9]{2}$\", \"maxLength\": "
                                 "9}}, \"c\": {\"type\": \"number\", \"maximum\": 12.5}}}";
    must_compile(schema);
    size_t used = f.arena.used;
    for (size_t bytes = 0; bytes < used; bytes += 37) { // any arena that is too small
        sl_arena_init(&f.arena, "constraint", arena_block, bytes);
        assert_int_equal(sl_constraint_compile_text(schema, strlen(schema), f.vocab, &f.limits,
                                                    &f.arena, &f.scratch, &f.c, &f.err),
                         SL_ERR_MEMORY);
        assert_null(f.c);
        assert_int_equal(f.arena.used, 0);
    }
    unsigned n_failed = 0;
    for (size_t bytes = 0; bytes < sizeof(scratch_block); bytes += 1 + bytes / 8) {
        sl_arena small;
        sl_arena_init(&small, "scratch", scratch_block, bytes);
        sl_arena_init(&f.arena, "constraint", arena_block, sizeof(arena_block));
        sl_status st = sl_constraint_compile_text(schema, strlen(schema), f.vocab, &f.limits,
                                                  &f.arena, &small, &f.c, &f.err);
        assert_true(st == SL_OK || st == SL_ERR_MEMORY);
        assert_int_equal(small.used, 0);
        n_failed += st != SL_OK;
    }
    assert_true(n_failed > 10);
    f.limits.n_nodes_max = 3;
    assert_int_equal(compile(schema), SL_ERR_UNSUPPORTED);
    f.limits = sl_constraint_limits_default();
    f.limits.n_states_max = 30;
    assert_int_equal(compile(schema), SL_ERR_UNSUPPORTED);
    f.limits = sl_constraint_limits_default();
    f.limits.n_steps_max = 1000;
    assert_int_equal(compile(schema), SL_ERR_UNSUPPORTED);
}

/* 2^20 combinations of one value, too many forms, 2^30 states. */
static void blow_up_is_refused(void **state) {
    (void)state;
    static char text[1 << 16];
    sl_status st = compile("{\"type\": \"string\", \"pattern\": \"^.*a.{30}$\"}");
    assert_true(st == SL_ERR_UNSUPPORTED || st == SL_ERR_MEMORY); // whichever limit comes first
    size_t n = (size_t)snprintf(text, sizeof(text), "{\"allOf\": [");
    for (int i = 0; i < 20; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "%s{\"anyOf\": [{\"minLength\": %d}, {\"maxLength\": %d}]}",
                              i ? "," : "", i, 100 + i);
    snprintf(text + n, sizeof(text) - n, "]}");
    assert_int_equal(compile(text), SL_ERR_UNSUPPORTED);
    n = (size_t)snprintf(text, sizeof(text), "{\"anyOf\": [");
    for (int i = 0; i < 40; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "%s{\"minLength\": %d, \"type\": \"string\"}", i ? "," : "", i);
    snprintf(text + n, sizeof(text) - n, "]}");
    assert_int_equal(compile(text), SL_ERR_UNSUPPORTED);
}

/* Schemas of a megabyte: the work is counted, whatever it consists of. */
static void large_schemas_end(void **state) {
    (void)state;
    static char text[1 << 20];
    size_t n = (size_t)snprintf(text, sizeof(text), "{\"oneOf\": [");
    for (int b = 0; b < 32; b++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "%s{\"type\": \"object\", \"required\": [\"x\"", b ? "," : "");
        for (int i = 0; i < 900; i++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"key%d\"", i);
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              ", \"kind\"], \"properties\": {\"kind\": {\"const\": %d}", b);
        for (int i = 0; i < 900; i++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"key%d\":{}", i);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "}}");
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "]}");
    assert_true(n < sizeof(text) - 1);
    assert_int_equal(compile(text), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "steps"));
    // Many keys alone are fine, and none of them may be written as another.
    n = (size_t)snprintf(text, sizeof(text), "{\"type\": \"object\", \"properties\": {\"x\": {}");
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"key%d\":{\"type\": \"null\"}", i);
    snprintf(text + n, sizeof(text) - n, "}, \"additionalProperties\": {\"type\": \"integer\"}}");
    must_compile(text);
    for (int i = 0; i < 1010; i++) {
        char answer[64];
        snprintf(answer, sizeof(answer), "{\"other\":1,\"key%d\":1}", i);
        assert_int_equal(accepts_text(answer), i >= 1000);
        snprintf(answer, sizeof(answer), "{\"key%d\":null}", i);
        assert_int_equal(accepts_text(answer), i < 1000);
    }
}

static void nesting_has_an_end(void **state) {
    (void)state;
    sl_constraint_state s;
    unsigned depth = 0;
    must_compile("{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"minItems\": 0}");
    sl_constraint_begin(f.c, &s);
    while (sl_constraint_accept(f.c, &s, f.work, '[', &f.err) == SL_OK)
        depth++;
    assert_int_equal(depth, SL_JSON_DEPTH_MAX);
    // A token of several brackets ends at the same place.
    sl_constraint_begin(f.c, &s);
    depth = 0;
    while (sl_constraint_accept(f.c, &s, f.work, 256 + N_WORDS - 1, &f.err) == SL_OK)
        depth += 15;
    assert_int_equal(depth, 60);
    // A list must end before the room for what its items need is gone.
    must_compile(
        "{\"$defs\": {\"l\": {\"type\": \"object\", \"properties\": {\"v\": {\"const\": [[[]]]}, "
        "\"n\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/l\"}]}}, \"required\": "
        "[\"v\", \"n\"], \"additionalProperties\": false}}, \"$ref\": \"#/$defs/l\"}");
    sl_constraint_begin(f.c, &s);
    depth = 0;
    while (sl_constraint_accept_bytes(f.c, &s, f.work, "{\"v\":[[[]]],\"n\":", 16, &f.err) == SL_OK)
        depth++;
    assert_int_equal(depth, SL_JSON_DEPTH_MAX - 3);
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "null", 4, &f.err), SL_OK);
    for (unsigned i = 0; i < depth; i++)
        assert_int_equal(sl_constraint_accept(f.c, &s, f.work, '}', &f.err), SL_OK);
    assert_true(sl_constraint_is_closed(f.c, &s));
}

static void keys_run_out_before_memory(void **state) {
    (void)state;
    sl_constraint_state s;
    unsigned n = 0;
    must_compile("{\"type\": \"object\"}");
    sl_constraint_begin(f.c, &s);
    assert_int_equal(sl_constraint_accept(f.c, &s, f.work, '{', &f.err), SL_OK);
    for (;; n++) {
        char text[32];
        int len = snprintf(text, sizeof(text), "%s\"key%u\":%s", n ? "," : "", n,
                           n % 5 ? "[1]" : "{\"\":1}");
        if (sl_constraint_accept_bytes(f.c, &s, f.work, text, (size_t)len, &f.err))
            break;
    }
    assert_in_range(n, SL_CONSTRAINT_KEYS_THREAD_MAX - 1, SL_CONSTRAINT_KEYS_THREAD_MAX);
    assert_false(sl_constraint_allows(f.c, &s, f.work, ','));
    assert_true(sl_constraint_allows(f.c, &s, f.work, '}'));
}

static void ambiguity_is_followed_and_bounded(void **state) {
    (void)state;
    // Three ways at every level, which stay possible to the end.
    static const char schema[] =
        "{\"$defs\": {\"x\": {\"anyOf\": [{\"type\": \"array\", \"items\": {\"$ref\": "
        "\"#/$defs/x\"}}, "
        "{\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/x\"}, \"maxItems\": 5}, {\"type\": "
        "\"array\", "
        "\"items\": {\"$ref\": \"#/$defs/x\"}, \"maxItems\": 6}]}}, \"$ref\": \"#/$defs/x\"}";
    sl_constraint_state s;
    must_compile(schema);
    sl_constraint_begin(f.c, &s);
    for (int i = 0; i < 60; i++)
        assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "[[],", 4, &f.err), SL_OK);
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "[]", 2, &f.err), SL_OK);
    for (int i = 0; i < 60; i++)
        assert_int_equal(sl_constraint_accept(f.c, &s, f.work, ']', &f.err), SL_OK);
    assert_true(sl_constraint_is_closed(f.c, &s));
    assert_true(accepts("[[[],[],[],[],[],[],[]]]"));
}

static void states_are_snapshots(void **state) {
    (void)state;
    sl_constraint_state s, snapshot;
    must_compile("{\"type\": \"object\"}");
    sl_constraint_begin(f.c, &s);
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "{\"a\":1,\"b", 9, &f.err), SL_OK);
    snapshot = s;
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "c\":{\"x\":2}", 10, &f.err),
                     SL_OK);
    // What is not accepted changes nothing, from the middle of the text on.
    sl_constraint_state before = s;
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, ",\"a\":1", 6, &f.err),
                     SL_ERR_STATE);
    assert_memory_equal(&before, &s, sizeof(s));
    assert_int_equal(sl_constraint_accept(f.c, &s, f.work, SPECIAL, &f.err), SL_ERR_STATE);
    assert_int_equal(sl_constraint_accept(f.c, &s, f.work, N_VOCAB + 5, &f.err), SL_ERR_STATE);
    s = snapshot;
    assert_int_equal(sl_constraint_accept_bytes(f.c, &s, f.work, "\":[]}", 5, &f.err), SL_OK);
    assert_true(sl_constraint_is_closed(f.c, &s));
    assert_true(sl_constraint_is_end(f.c, END));
    assert_false(sl_constraint_is_end(f.c, SPECIAL));
}

static void missing_bytes_lead_nowhere(void **state) {
    (void)state;
    for (unsigned b = 0x80; b < 0x100; b++)
        f.missing[b] = true;
    assert_int_equal(build_vocab(), SL_OK);
    sl_constraint_state s;
    uint32_t e_acute = 0, half = 0;
    for (uint32_t i = 0; i < N_WORDS; i++) {
        e_acute = strcmp(words[i], "é") == 0 ? 256 + i : e_acute;
        half = strcmp(words[i], "\xf0\x9f") == 0 ? 256 + i : half;
    }
    must_compile("{\"type\": \"string\"}");
    sl_constraint_begin(f.c, &s);
    assert_int_equal(sl_constraint_accept(f.c, &s, f.work, '"', &f.err), SL_OK);
    assert_true(sl_constraint_allows(f.c, &s, f.work, e_acute));
    assert_false(sl_constraint_allows(f.c, &s, f.work, half));
    assert_true(accepts("\"a\""));
    // What cannot be written as it is, is escaped; what cannot be escaped is refused.
    must_compile("{\"enum\": [\"é😀\"]}");
    assert_true(accepts("\"\\u00e9\\ud83d\\ude00\""));
    assert_int_equal(compile("{\"type\": \"string\", \"pattern\": \"^ü$\"}"), SL_ERR_UNSUPPORTED);
    f.missing['}'] = true;
    assert_int_equal(build_vocab(), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(f.err.message, "0x7d"));
}

static void bad_vocabularies(void **state) {
    (void)state;
    static const uint32_t ends[] = {END, N_VOCAB};
    sl_vocab_source source = {
        .n_vocab = N_VOCAB, .token_bytes = token_bytes, .end_ids = ends, .n_end = 2};
    uint64_t bytes;
    sl_arena small;
    assert_int_equal(sl_vocab_measure(&source, &f.scratch, &bytes, &f.err), SL_ERR_ARGUMENT);
    source.n_end = 0;
    assert_int_equal(sl_vocab_measure(&source, &f.scratch, &bytes, &f.err), SL_ERR_ARGUMENT);
    source.n_end = 1;
    source.n_vocab = 0;
    assert_int_equal(sl_vocab_measure(&source, &f.scratch, &bytes, &f.err), SL_ERR_ARGUMENT);
    source.n_vocab = N_VOCAB;
    assert_int_equal(sl_vocab_measure(&source, &f.scratch, &bytes, &f.err), SL_OK);
    sl_arena_init(&small, "vocabulary", vocab_block, (size_t)bytes / 2);
    assert_int_equal(sl_vocab_build(&source, &small, &f.scratch, &f.vocab, &f.err), SL_ERR_MEMORY);
    assert_int_equal(small.used + f.scratch.used, 0);
    sl_arena_init(&small, "scratch", scratch_block, 8 * N_VOCAB - 8);
    assert_int_equal(sl_vocab_measure(&source, &small, &bytes, &f.err), SL_ERR_MEMORY);
}

static void nothing_is_allocated(void **state) {
    (void)state;
    uint64_t before = sl_seal_violations();
    sl_seal_enter();
    assert_int_equal(build_vocab(), SL_OK);
    must_compile("{\"type\": \"object\", \"properties\": {\"s\": {\"type\": \"string\", "
                 "\"pattern\": \"a\"}}}");
    bool ok = accepts("{\"s\":\"bab\",\"t\":[1]}");
    sl_seal_leave();
    assert_true(ok);
    assert_int_equal(sl_seal_violations(), before);
    sl_arena_init(&f.arena, "constraint", arena_block, 32 << 10);
    assert_int_equal(sl_constraint_compile_object(f.vocab, &f.arena, &f.scratch, &f.c, &f.err),
                     SL_OK);
    assert_true(accepts("{\"a\": [1, 2, {\"b\": null}]}"));
    assert_false(accepts("[]"));
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(scalars),
        TEST(objects),
        TEST(arrays),
        TEST(combinations),
        TEST(patterns),
        TEST(number_bounds),
        TEST(refusals),
        TEST(too_much_is_refused),
        TEST(blow_up_is_refused),
        TEST(large_schemas_end),
        TEST(nesting_has_an_end),
        TEST(keys_run_out_before_memory),
        TEST(ambiguity_is_followed_and_bounded),
        TEST(states_are_snapshots),
        TEST(missing_bytes_lead_nowhere),
        TEST(bad_vocabularies),
        TEST(nothing_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
