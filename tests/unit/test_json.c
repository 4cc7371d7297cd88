/* base/json: grammar, limits, numbers, and that reader and tree agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static char block[1 << 16];

static sl_status parse(const char *text, sl_json **out, sl_error *err) {
    static sl_arena arena;
    sl_arena_init(&arena, "test", block, sizeof(block));
    return sl_json_parse(text, strlen(text), &arena, out, err);
}

static void tree_keeps_order_and_values(void **state) {
    (void)state;
    sl_error err;
    sl_json *root;
    assert_int_equal(
        parse("{\"b\": [1, 2.5, -3e2, true, null], \"a\": {\"x\": \"\\u00e9\\ud83d\\ude00\\n\"}}",
              &root, &err),
        SL_OK);
    assert_int_equal(root->n_children, 2);
    assert_string_equal(root->child->key, "b");
    double d;
    assert_true(sl_json_double(sl_json_element(sl_json_member(root, "b"), 2), &d));
    assert_true(d == -300.0);
    assert_true(sl_json_text_is(sl_json_member(sl_json_member(root, "a"), "x"), "é😀\n"));
    assert_null(sl_json_member(root, "c"));
    assert_null(sl_json_member(NULL, "c"));
}

static void numbers_round_correctly(void **state) {
    (void)state;
    const struct {
        const char *text;
        double value;
    } cases[] = {{"0.1", 0.1},
                 {"1e-06", 1e-06},
                 {"10000000.0", 1e7},
                 {"2.2250738585072014e-308", 2.2250738585072014e-308},
                 {"-0", -0.0},
                 {"1e400", (double)INFINITY},
                 {"123456789012345678901234567890", 123456789012345678901234567890.0},
                 {"0.30000000000000004", 0.30000000000000004},
                 {"9007199254740993", 9007199254740992.0}};
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        double v = sl_json_parse_double(cases[i].text, strlen(cases[i].text));
        assert_memory_equal(&v, &cases[i].value, sizeof(v));
    }
    sl_error err;
    sl_json *root;
    int64_t i;
    uint64_t u;
    assert_int_equal(
        parse("[18446744073709551615, 18446744073709551616, 3.0, 3.5, -7]", &root, &err), SL_OK);
    assert_true(sl_json_uint64(sl_json_element(root, 0), &u) && u == UINT64_MAX);
    assert_false(sl_json_uint64(sl_json_element(root, 1), &u));
    assert_true(sl_json_int64(sl_json_element(root, 2), &i) && i == 3);
    assert_false(sl_json_int64(sl_json_element(root, 3), &i));
    assert_true(sl_json_int64(sl_json_element(root, 4), &i) && i == -7);
    assert_false(sl_json_uint64(sl_json_element(root, 4), &u));
}

static void bad_text_is_refused(void **state) {
    (void)state;
    const char *bad[] = {"",
                         "{",
                         "[1,]",
                         "{\"a\":1,}",
                         "{'a':1}",
                         "[01]",
                         "[1.]",
                         "[.5]",
                         "[+1]",
                         "[1e]",
                         "nul",
                         "[1] 2",
                         "\"\\x\"",
                         "\"\\ud800\"",
                         "\"\\udc00\"",
                         "\"\x01\"",
                         "\"\xff\"",
                         "\"\xc0\xaf\"",
                         "\"\xed\xa0\x80\"",
                         "{\"a\" 1}",
                         "{\"a\":}",
                         "{\"a\":1 \"b\":2}",
                         "\"abc",
                         "[NaN]",
                         "{\"a\":1,\"a\":2}",
                         "// x\n1"};
    for (size_t i = 0; i < SL_COUNT(bad); i++) {
        sl_error err;
        sl_json *root;
        assert_int_equal(parse(bad[i], &root, &err), SL_ERR_SYNTAX);
        assert_null(root);
        assert_non_null(strstr(err.message, "JSON"));
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    char text[2 * SL_JSON_DEPTH_MAX + 3];
    sl_error err;
    sl_json *root;
    memset(text, '[', SL_JSON_DEPTH_MAX);
    memset(text + SL_JSON_DEPTH_MAX, ']', SL_JSON_DEPTH_MAX);
    text[2 * SL_JSON_DEPTH_MAX] = '\0';
    assert_int_equal(parse(text, &root, &err), SL_OK);
    memset(text, '[', SL_JSON_DEPTH_MAX + 1);
    assert_int_equal(parse(text, &root, &err), SL_ERR_SYNTAX);
}

static void reader_skips_values(void **state) {
    (void)state;
    const char *text =
        "{\"skip\": {\"a\": [1, {\"b\": 2}]}, \"n\": 5, \"skip2\": [], \"k\\n\": \"v\"}";
    sl_error err;
    sl_json_reader r;
    sl_json_reader_init(&r, text, strlen(text));
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_BEGIN_OBJECT);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_KEY);
    assert_true(sl_json_reader_is(&r, "skip"));
    assert_int_equal(sl_json_skip(&r, false, &err), SL_OK);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_KEY);
    assert_true(sl_json_reader_is(&r, "n"));
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_NUMBER);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_KEY);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_BEGIN_ARRAY);
    assert_int_equal(sl_json_skip(&r, true, &err), SL_OK);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_KEY);
    assert_true(sl_json_reader_is(&r, "k\n"));
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_STRING);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_END_OBJECT);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_END);
    assert_int_equal(sl_json_next(&r, &err), SL_JSON_EV_END);
}

static void a_full_arena_is_an_error(void **state) {
    (void)state;
    sl_arena arena;
    sl_error err;
    sl_json *root;
    const char *text = "[1, 2, 3, 4, 5, 6, 7, 8]";
    for (size_t bytes = 0; bytes < 504; bytes += 8) {
        sl_arena_init(&arena, "small", block, bytes);
        assert_int_equal(sl_json_parse(text, strlen(text), &arena, &root, &err), SL_ERR_MEMORY);
        assert_non_null(strstr(err.message, "small"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_keeps_order_and_values), cmocka_unit_test(numbers_round_correctly),
        cmocka_unit_test(bad_text_is_refused),         cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(reader_skips_values),         cmocka_unit_test(a_full_arena_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
