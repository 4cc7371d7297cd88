/* Values against schemas, keyword by keyword. tests/diff/test_schema_check.py holds many more against jsonschema. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/schema_check.h"

#define BLOCK_BYTES ((size_t)4 << 20)

static void *block;

static int set_up(void **state) {
    (void)state;
    block = malloc(BLOCK_BYTES);
    return block ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    free(block);
    return 0;
}

static sl_status run(const char *schema, const char *value, sl_error *err) {
    sl_arena arena;
    sl_arena_init(&arena, "scratch", block, BLOCK_BYTES);
    err->message[0] = '\0';
    sl_status st = sl_schema_check_text(schema, strlen(schema), value, strlen(value), &arena, err);
    assert_int_equal(arena.used, 0);
    return st;
}

typedef struct example {
    const char *schema, *good, *bad; // values, several with a space in between
} example;

static const example examples[] = {
    {"true", "1 {} null", ""},
    {"false", "", "1 {} null"},
    {"{}", "1 {} null \"a\"", ""},
    {"{\"type\":\"integer\"}", "0 -3 1.0 1e3 123456789012345678901234567890",
     "1.5 \"1\" null true"},
    {"{\"type\":\"number\"}", "1 1.5", "\"1\" true"},
    {"{\"type\":\"boolean\"}", "true false", "0 \"true\" null"},
    {"{\"type\":\"null\"}", "null", "0 false"},
    {"{\"type\":[\"string\",\"null\"]}", "\"\" null", "1 []"},
    {"{\"enum\":[1,\"a\",[1,2],{\"a\":1,\"b\":2}]}", "1 1.0 \"a\" [1,2] {\"b\":2,\"a\":1}",
     "2 \"b\" [2,1] {\"a\":1}"},
    {"{\"const\":{\"a\":[null]}}", "{\"a\":[null]}", "{\"a\":[]} {} {\"a\":[null],\"b\":1}"},
    {"{\"minimum\":1,\"maximum\":2}", "1 2 1.5 \"x\"", "0.999 2.001"},
    {"{\"exclusiveMinimum\":1,\"exclusiveMaximum\":2}", "1.5", "1 2"},
    {"{\"minimum\":1,\"exclusiveMinimum\":true}", "1.5", "1"},
    {"{\"multipleOf\":0.1}", "0.3 0.7 -1 0 1e3", "0.35"},
    {"{\"multipleOf\":3}", "9 0 -3", "10 1.5"},
    {"{\"minLength\":2,\"maxLength\":3}", "\"ab\" \"\u00e9\u00e9\u00e9\" 7",
     "\"a\" \"abcd\" \"\u00e9\""},
    {"{\"minItems\":1,\"maxItems\":2}", "[1] [1,2] {}", "[] [1,2,3]"},
    {"{\"items\":{\"type\":\"integer\"}}", "[] [1,2] \"x\"", "[\"a\"] [1,\"a\"]"},
    {"{\"prefixItems\":[{\"type\":\"string\"}],\"items\":false}", "[] [\"a\"]", "[1] [\"a\",1]"},
    {"{\"items\":[{\"type\":\"string\"}],\"additionalItems\":{\"type\":\"null\"}}", "[\"a\",null]",
     "[1] [\"a\",1]"},
    {"{\"uniqueItems\":true}", "[1,2] [[1],[2]] [1,true]",
     "[1,1.0] [{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"},
    {"{\"contains\":{\"const\":1}}", "[1] [2,1]", "[] [2]"},
    {"{\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":3}", "[1,1] [1,2,1,1]",
     "[1] [1,1,1,1]"},
    {"{\"contains\":{\"const\":1},\"minContains\":0}", "[] [2]", ""},
    {"{\"required\":[\"a\"]}", "{\"a\":null} 1", "{} {\"b\":1}"},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
     "{} {\"a\":1}", "{\"a\":\"1\"} {\"b\":1}"},
    {"{\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":1}", "{\"x\":\"\"}"},
    {"{\"propertyNames\":{\"maxLength\":1}}", "{\"a\":1}", "{\"ab\":1}"},
    {"{\"minProperties\":1,\"maxProperties\":1}", "{\"a\":1}", "{} {\"a\":1,\"b\":2}"},
    {"{\"dependentRequired\":{\"a\":[\"b\"]}}", "{} {\"b\":1} {\"a\":1,\"b\":1}", "{\"a\":1}"},
    {"{\"allOf\":[{\"minimum\":1},{\"maximum\":2}]}", "1 2", "0 3"},
    {"{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}", "\"a\" 5", "4"},
    {"{\"oneOf\":[{\"minimum\":5},{\"maximum\":5}]}", "4 6", "5"},
    {"{\"not\":{\"type\":\"string\"}}", "1", "\"a\""},
    {"{\"if\":{\"minimum\":5},\"then\":{\"multipleOf\":2},\"else\":{\"multipleOf\":3}}", "6 3",
     "7 4"},
    {"{\"if\":{\"minimum\":5}}", "6 3", ""},
    {"{\"$defs\":{\"a/b\":{\"type\":\"string\"}},\"$ref\":\"#/$defs/a~1b\"}", "\"a\"", "1"},
    {"{\"definitions\":{\"a "
     "b\":{\"type\":\"string\"}},\"properties\":{\"x\":{\"$ref\":\"#/definitions/a%20b\"}}}",
     "{\"x\":\"a\"}", "{\"x\":1}"},
    {"{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#\"}},\"additionalProperties\":"
     "false}",
     "{\"next\":{\"next\":{}}}", "{\"next\":{\"next\":1}} {\"next\":{\"last\":{}}}"},
    {"{\"allOf\":[{\"const\":1},{\"$ref\":\"#/allOf/0\"}]}", "1", "2"},
    // not looked at
    {"{\"pattern\":\"^a\",\"format\":\"email\"}", "\"b\"", ""},
    {"{\"patternProperties\":{\"^a\":{\"type\":\"string\"}},\"additionalProperties\":false}",
     "{\"a\":1}", ""},
};

static void each(const example *e, const char *values, sl_status expected) {
    char copy[512];
    (void)snprintf(copy, sizeof(copy), "%s", values);
    for (char *at = copy, *end; *at; at = end) {
        sl_error err;
        end = strchr(at, ' ');
        end = end ? end : at + strlen(at);
        bool more = *end;
        *end = '\0';
        sl_status st = run(e->schema, at, &err);
        if (st != expected)
            fail_msg("%s: %s: %d %s", e->schema, at, (int)st, err.message);
        assert_int_equal(err.message[0] != '\0', expected != SL_OK);
        end += more;
    }
}

static void keywords_judge(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(examples); i++) {
        each(&examples[i], examples[i].good, SL_OK);
        each(&examples[i], examples[i].bad, SL_ERR_ARGUMENT);
    }
}

static void a_misfit_has_its_place(void **state) {
    (void)state;
    static const struct {
        const char *schema, *value, *message;
    } cases[] = {
        {"{\"type\":\"integer\"}", "\"a\"", "expected integer, found string"},
        {"{\"properties\":{\"days\":{\"items\":{\"type\":\"integer\"}}}}", "{\"days\":[1,\"2\"]}",
         "/days/1: expected integer, found string"},
        {"{\"properties\":{\"a\":{\"required\":[\"b\"]}}}", "{\"a\":{}}", "/a: 'b' is missing"},
        {"{\"anyOf\":[{\"type\":\"integer\"}]}", "\"\"", "fits none of anyOf"},
        {"{\"additionalProperties\":false}", "{\"x\":1}", "'x' is no member that is allowed"},
        {"{\"maximum\":2}", "3", "3 is out of range: maximum is 2"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error err;
        assert_int_equal(run(cases[i].schema, cases[i].value, &err), SL_ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i].message);
    }
    // A place that is longer than the message loses its front.
    char schema[64] = "{\"additionalProperties\":{\"$ref\":\"#\"},\"type\":\"object\"}",
         value[4096] = "";
    for (int i = 0; i < 60; i++)
        (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "{\"member%d\":", i);
    (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "1");
    for (int i = 0; i < 60; i++)
        (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "}");
    sl_error err;
    assert_int_equal(run(schema, value, &err), SL_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "/member58/member59: expected object, found number"));
}

static void schemas_that_cannot_be_applied(void **state) {
    (void)state;
    static const struct {
        const char *schema, *value;
    } cases[] = {
        {"1", "1"},
        {"{\"type\":1}", "1"},
        {"{\"enum\":1}", "1"},
        {"{\"$ref\":\"#/nowhere\"}", "1"},
        {"{\"$ref\":\"other.json\"}", "1"},
        {"{\"$ref\":7}", "1"},
        {"{\"$ref\":\"#\"}", "1"},
        {"{\"not\":{\"$ref\":\"#\"}}", "1"},
        {"{\"minimum\":\"1\"}", "1"},
        {"{\"multipleOf\":0}", "1"},
        {"{\"maxLength\":\"1\"}", "\"\""},
        {"{\"allOf\":{}}", "1"},
        {"{\"anyOf\":1}", "1"},
        {"{\"prefixItems\":{}}", "[]"},
        {"{\"properties\":[]}", "{}"},
        {"{\"required\":\"a\"}", "{}"},
        {"{\"required\":[1]}", "{}"},
        {"{\"additionalProperties\":7}", "{\"x\":1}"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error failure;
        sl_status st = run(cases[i].schema, cases[i].value, &failure);
        if (st != SL_ERR_UNSUPPORTED)
            fail_msg("%s: %d %s", cases[i].schema, (int)st, failure.message);
    }
    sl_error err;
    assert_int_equal(run("{", "1", &err), SL_ERR_SYNTAX);
    assert_int_equal(run("{}", "[", &err), SL_ERR_SYNTAX);
}

/* Schemas whose branches multiply, and values that are compared with each other, end by their bound. */
static void work_is_bounded(void **state) {
    (void)state;
    sl_error err;
    char schema[4096] = "{\"$defs\":{\"d0\":{\"type\":\"integer\"}";
    for (int i = 1; i < 40; i++)
        (void)snprintf(
            schema + strlen(schema), sizeof(schema) - strlen(schema),
            ",\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]}", i,
            i - 1, i - 1);
    (void)snprintf(schema + strlen(schema), sizeof(schema) - strlen(schema),
                   "},\"$ref\":\"#/$defs/d39\"}");
    assert_int_equal(run(schema, "1", &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "a million steps"));
    char *value = malloc(40000);
    assert_non_null(value);
    size_t n = 0;
    value[n++] = '[';
    for (int i = 0; i < 4000; i++)
        n += (size_t)snprintf(value + n, 40000 - n, "%s%d", i ? "," : "", i);
    (void)snprintf(value + n, 40000 - n, "]");
    assert_int_equal(run("{\"uniqueItems\":true}", value, &err), SL_ERR_UNSUPPORTED);
    free(value);
    sl_arena small;
    sl_arena_init(&small, "scratch", block, 64);
    assert_int_equal(sl_schema_check_text("{\"a\":1}", 7, "1", 1, &small, &err), SL_ERR_MEMORY);
    assert_int_equal(small.used, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_judge),
        cmocka_unit_test(a_misfit_has_its_place),
        cmocka_unit_test(schemas_that_cannot_be_applied),
        cmocka_unit_test(work_is_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
