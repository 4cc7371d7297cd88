/* constrain/check: values against schemas, keyword by keyword, messages, what is refused, and the bounds.
 * tests/diff/test_check_jsonschema.py holds many more values against a validator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "constrain/check.h"

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
    {"{\"allOf\":[{\"$anchor\":\"x\",\"minimum\":3},{\"$ref\":\"#x\"}]}", "3 4", "2"},
    {"{\"$id\":\"urn:x\",\"items\":{\"$ref\":\"#\"},\"maxItems\":1}", "[[]] [[1]]", "[[1,2]]"},
    {"{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"integer\"}},\"minimum\":2}", "2",
     "1 2.5"},
    {"{\"pattern\":\"^a\"}", "\"a\" \"ab\" 1", "\"\" \"ba\""},
    {"{\"pattern\":\"\\\"\\\\\\\\$\"}", "\"\\\"\\\\\" \"x\\\"\\\\\"", "\"\\\"\" \"\\\\\""},
    {"{\"pattern\":\"^.$\"}", "\"\u00e9\" \"\U0001f600\" \"\\\"\" \"\\u0000\"",
     "\"ab\" \"\" \"\\n\""},
    {"{\"pattern\":\"[^\\\\s\\\\S]\"}", "1", "\"\" \"a\""},
    {"{\"patternProperties\":{\"^a\":{\"type\":\"string\"}},\"additionalProperties\":false}",
     "{\"a\":\"\"} {}", "{\"a\":1} {\"b\":\"\"}"},
    {"{\"patternProperties\":{\"a\":{\"minimum\":1},\"b\":{\"maximum\":2}}}",
     "{\"ab\":1} {\"a\":9} {\"c\":9}", "{\"ab\":0} {\"ab\":3}"},
    {"{\"properties\":{\"a\":true},\"patternProperties\":{\"^a\":{\"minimum\":1}},"
     "\"additionalProperties\":{\"maximum\":0}}",
     "{\"a\":1,\"ab\":1,\"b\":0}", "{\"a\":0} {\"b\":1}"},
    {"{\"dependentSchemas\":{\"a\":{\"required\":[\"b\"]}}}", "{} {\"a\":1,\"b\":1}", "{\"a\":1}"},
    {"{\"contains\":{\"minimum\":5},\"maxContains\":1}", "[5] [5,1]", "[] [5,6]"},
    {"{\"minContains\":3,\"then\":false,\"maxContains\":0}", "[] [1]", ""},
    {"{\"unevaluatedProperties\":true,\"unevaluatedItems\":true}", "{} [1]", ""},
    {"{\"format\":\"email\",\"nullable\":true,\"x-order\":3,\"required\":true}", "\"b\" {}", ""},
    {"{\"required\":[\"a\\u0000b\"]}", "{\"a\\u0000b\":1}", "{\"a\":1}"},
    {"{\"const\":\"a\\u0000b\"}", "\"a\\u0000b\"", "\"a\" \"a\\u0000c\""},
    {"{\"enum\":[]}", "", "1 null"},
    {"{\"dependencies\":{\"a\":[\"b\"],\"c\":{\"maxProperties\":1}}}",
     "{} {\"a\":1,\"b\":1} {\"c\":1}", "{\"a\":1} {\"c\":1,\"d\":1}"},
    {"{\"maximum\":2,\"exclusiveMaximum\":true,\"exclusiveMinimum\":true}", "1 1.999", "2"},
    {"{\"items\":[],\"additionalItems\":false}", "[] {}", "[1]"},
    // numbers are exact
    {"{\"minimum\":9007199254740993}", "9007199254740993 9007199254740993.0 1e16",
     "9007199254740992"},
    {"{\"const\":1e2}", "100 100.0 1000e-1", "100.00000000000000000001 10 -100"},
    {"{\"exclusiveMinimum\":0.1}", "0.10000000000000000000001", "0.1 0.10 1e-1 -1"},
    {"{\"multipleOf\":0.01}", "0.07 19.99 1e3 0", "0.001 19.999"},
    {"{\"type\":\"integer\"}", "1e9999 -0.0 120e-1", "1e-9999 12.5e-1"},
    {"{\"uniqueItems\":true}",
     "[0.1,0.10000000000000000000001] [{\"a\":1},{\"b\":1}] [\"1\",1] [[],{}] [[1,2],[2,1]]",
     "[0.1,1e-1] [-0,0] [3,1,2,1] [\"a\",\"\\u0061\"] [[{}],[{}]]"},
    {"{\"maxItems\":1e30,\"minItems\":1.0}", "[1]", "[]"},
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

static void a_misfit_says_where_and_what(void **state) {
    (void)state;
    static const struct {
        const char *schema, *value, *message;
    } cases[] = {
        {"{\"type\":\"integer\"}", "\"a\"", "(root): expected integer, found \"a\""},
        {"{\"type\":[\"integer\",\"null\"]}", "[1,2]",
         "(root): expected integer or null, found an array of 2"},
        {"{\"properties\":{\"days\":{\"items\":{\"type\":\"integer\"}}}}", "{\"days\":[1,\"2\"]}",
         "/days/1: expected integer, found \"2\""},
        {"{\"properties\":{\"a\":{\"required\":[\"b\"]}}}", "{\"a\":{\"c\":1,\"d\":2}}",
         "/a: expected a property \"b\", found an object of \"c\", \"d\""},
        {"{\"enum\":[\"a\",2,null]}", "{}",
         "(root): expected one of \"a\", 2, null, found an object of nothing"},
        {"{\"additionalProperties\":false,\"properties\":{\"y\":{}}}", "{\"x\":1}",
         "/x: expected no property of this name (declared: \"y\"), found 1"},
        {"{\"maximum\":2}", "3", "(root): expected a number of at most 2, found 3"},
        {"{\"exclusiveMinimum\":2}", "2", "(root): expected a number above 2, found 2"},
        {"{\"multipleOf\":0.1}", "0.25", "(root): expected a multiple of 0.1, found 0.25"},
        {"{\"minLength\":2}", "\"\\n\"", "(root): expected at least 2 characters, found \"\\n\""},
        {"{\"pattern\":\"^\\n\"}", "\"a\"",
         "(root): expected a text in which \"^\\n\" is found, found \"a\""},
        {"{\"items\":false}", "[7]", "/0: expected nothing at this place, found 7"},
        {"{\"additionalProperties\":false}", "{\"a~/\\n\":1}",
         "/a~0~1\\u000a: expected no property of this name (declared: none), found 1"},
        {"{\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}",
         "/ab: expected a name as propertyNames asks for, found 1"},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "\"\"",
         "(root): expected integer or null, found \"\""},
        // The schema that is closest speaks.
        {"{\"anyOf\":[{\"type\":\"string\"},{\"items\":{\"type\":\"integer\"}},{\"type\":\"null\"}]"
         "}",
         "[1,true]", "/1: expected integer, found true"},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"type\":\"object\",\"required\":[\"q\"]}]}", "{}",
         "(root): expected a property \"q\", found an object of nothing"},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"minimum\":1},{\"minimum\":2}]}", "3",
         "(root): expected to fit one schema of oneOf alone (it fits 1 and 2), found 3"},
        {"{\"not\":{\"type\":\"null\"}}", "null",
         "(root): expected what does not fit the schema of not, found null"},
        {"{\"uniqueItems\":true}", "[1,1]",
         "(root): expected items of which no two are equal, found an array of 2"},
        {"{\"contains\":{\"const\":1},\"maxContains\":1}", "[1,1,2]",
         "(root): expected at most 1 items that fit contains (2 do), found an array of 3"},
        {"{\"contains\":{\"const\":1}}", "[2]",
         "(root): expected at least 1 items that fit contains (0 do), found an array of 1"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error err;
        sl_status st = run(cases[i].schema, cases[i].value, &err);
        assert_int_equal(st, SL_ERR_ARGUMENT);
        assert_string_equal(err.message, cases[i].message);
    }
}

// Parts of a message that are too long are cut between characters.
static void long_misfits_are_cut(void **state) {
    (void)state;
    char value[4096] = "", name[200];
    sl_error err;
    for (int i = 0; i < 60; i++)
        (void)snprintf(value + strlen(value), sizeof(value) - strlen(value),
                       "{\"m\u00e9mber%d\":", i);
    (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "1");
    for (int i = 0; i < 60; i++)
        (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "}");
    assert_int_equal(
        run("{\"additionalProperties\":{\"$ref\":\"#\"},\"type\":\"object\"}", value, &err),
        SL_ERR_ARGUMENT);
    assert_memory_equal(err.message, "/m\u00e9mber0/m\u00e9mber1/", 19);
    assert_non_null(strstr(err.message, "...: expected object, found 1"));
    for (unsigned shift = 0; shift < 3; shift++) {
        (void)snprintf(value, sizeof(value), "\"%.*s", (int)shift, "xx");
        for (int i = 0; i < 100; i++)
            (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "\u65e5");
        (void)snprintf(value + strlen(value), sizeof(value) - strlen(value), "\"");
        assert_int_equal(run("{\"type\":\"null\"}", value, &err), SL_ERR_ARGUMENT);
        const char *dots = strstr(err.message, "\u65e5\"...");
        assert_non_null(dots);
        assert_int_equal(strlen(dots), 7);
    }
    (void)snprintf(name, sizeof(name), "%0150d", 7);
    (void)snprintf(value, sizeof(value),
                   "{\"properties\":{\"%s\":{\"enum\":[\"%s\",\"%s\",\"%s\",1]}}}", name, name,
                   name, name);
    char instance[1024];
    (void)snprintf(instance, sizeof(instance), "{\"%s\":{\"%s\":1,\"a%s\":2,\"b\":3}}", name, name,
                   name);
    assert_int_equal(run(value, instance, &err), SL_ERR_ARGUMENT);
    assert_true(strlen(err.message) < SL_ERROR_MESSAGE_MAX - 1);
    assert_non_null(strstr(err.message, "...: expected one of \"0"));
}

static void schemas_that_cannot_be_checked(void **state) {
    (void)state;
    static const struct {
        const char *schema, *place;
    } cases[] = {
        {"1", "#: "},
        {"{\"type\":1}", "#/type: "},
        {"{\"type\":\"text\"}", "#/type: "},
        {"{\"type\":[]}", "#/type: "},
        {"{\"enum\":1}", "#/enum: "},
        {"{\"$ref\":\"#/nowhere\"}", "#/$ref: "},
        {"{\"$ref\":\"#nowhere\"}", "#/$ref: "},
        {"{\"$ref\":\"#x\",\"enum\":[{\"$anchor\":\"x\"}]}", "#/$ref: "},
        {"{\"$ref\":\"#/$defs/%zz\",\"$defs\":{\"%zz\":{}}}", "#/$ref: "},
        {"{\"$ref\":\"other.json\"}", "#/$ref: "},
        {"{\"$ref\":7}", "#/$ref: "},
        {"{\"$ref\":\"#\"}", "#: refers to itself without end"},
        {"{\"not\":{\"$ref\":\"#\"}}", "#: refers to itself without end"},
        {"{\"$defs\":{\"a\":{\"anyOf\":[{},{\"$ref\":\"#/$defs/a\"}]}},\"items\":{\"$ref\":\"#/"
         "$defs/a\"}}",
         "#/$defs/a: refers to itself without end"},
        {"{\"$ref\":\"#/$defs/a/not\",\"$defs\":{\"a\":{\"$id\":\"x\",\"not\":{}}}}", "#/$ref: "},
        {"{\"items\":{\"$id\":\"x\"}}", "#/items/$id: "},
        {"{\"$dynamicRef\":\"#a\"}", "#/$dynamicRef: "},
        {"{\"$recursiveRef\":\"#\"}", "#/$recursiveRef: "},
        {"{\"properties\":{\"a\":{\"unevaluatedProperties\":false}}}",
         "#/properties/a/unevaluatedProperties: "},
        {"{\"unevaluatedItems\":{}}", "#/unevaluatedItems: "},
        {"{\"minimum\":\"1\"}", "#/minimum: "},
        {"{\"minimum\":1e10000}", "#/minimum: "},
        {"{\"enum\":[[1e10000]]}", "#/enum: "},
        {"{\"multipleOf\":0}", "#/multipleOf: "},
        {"{\"multipleOf\":-1}", "#/multipleOf: "},
        {"{\"multipleOf\":1234567890123456789}", "#/multipleOf: "},
        {"{\"maxLength\":\"1\"}", "#/maxLength: "},
        {"{\"maxLength\":-1}", "#/maxLength: "},
        {"{\"minContains\":1.5}", "#/minContains: "},
        {"{\"allOf\":{}}", "#/allOf: "},
        {"{\"allOf\":[]}", "#/allOf: "},
        {"{\"anyOf\":1}", "#/anyOf: "},
        {"{\"anyOf\":[1]}", "#/anyOf/0: "},
        {"{\"prefixItems\":{}}", "#/prefixItems: "},
        {"{\"properties\":[]}", "#/properties: "},
        {"{\"required\":\"a\"}", "#/required: "},
        {"{\"required\":[1]}", "#/required: "},
        {"{\"dependentRequired\":{\"a\":\"b\"}}", "#/dependentRequired: "},
        {"{\"uniqueItems\":1}", "#/uniqueItems: "},
        {"{\"additionalProperties\":7}", "#/additionalProperties: "},
        {"{\"pattern\":\"(?=a)\"}", "#/pattern: "},
        {"{\"patternProperties\":{\"[\":{}}}", "#/patternProperties: "},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error failure;
        // No value is needed to find out.
        sl_status st = run(cases[i].schema, "{}", &failure);
        if (st != SL_ERR_UNSUPPORTED || failure.status != st ||
            strncmp(failure.message, "schema: ", 8) != 0 ||
            strncmp(failure.message + 8, cases[i].place, strlen(cases[i].place)) != 0)
            fail_msg("%s: %d %s", cases[i].schema, (int)st, failure.message);
    }
    sl_error err;
    assert_int_equal(run("{", "1", &err), SL_ERR_SYNTAX);
    assert_int_equal(run("{}", "[", &err), SL_ERR_SYNTAX);
    // What nothing leads to is not looked at.
    assert_int_equal(
        run("{\"$defs\":{\"a\":{\"type\":7}},\"default\":{\"$ref\":\"x\"}}", "1", &err), SL_OK);
}

static void a_schema_alone(void **state) {
    (void)state;
    sl_arena arena;
    sl_error err;
    sl_json *schema;
    sl_arena_init(&arena, "scratch", block, BLOCK_BYTES);
    static const char good[] = "{\"type\":\"object\"}", bad[] = "{\"items\":{\"$ref\":\"x.json\"}}";
    assert_int_equal(sl_json_parse(good, sizeof(good) - 1, &arena, &schema, &err), SL_OK);
    assert_int_equal(sl_schema_check(schema, NULL, &arena, &err), SL_OK);
    assert_int_equal(sl_json_parse(bad, sizeof(bad) - 1, &arena, &schema, &err), SL_OK);
    assert_int_equal(sl_schema_check(schema, NULL, &arena, &err), SL_ERR_UNSUPPORTED);
}

/* ---- bounds -------------------------------------------------------------------------------- */

static char text[1 << 19];

static void add(const char *fmt, int n) {
    size_t len = strlen(text);
    (void)snprintf(text + len, sizeof(text) - len, fmt, n, n + 1);
}

// Schemas whose branches multiply end by the bound of steps.
static void branches_are_bounded(void **state) {
    (void)state;
    sl_error err;
    strcpy(text, "{\"$defs\":{\"d0\":{\"type\":\"integer\"}");
    for (int i = 0; i < 39; i++)
        add(",\"d%2$d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%1$d\"},{\"$ref\":\"#/$defs/d%1$d\"}]}",
            i);
    add("},\"$ref\":\"#/$defs/d20\"}", 0);
    assert_int_equal(run(text, "1", &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "more than 20000000 steps"));
    assert_int_equal(run(text, "null", &err), SL_ERR_ARGUMENT); // the first of them tells
}

static void comparisons_are_bounded(void **state) {
    (void)state;
    sl_error err;
    static const char unique[] = "{\"uniqueItems\":true}";
    strcpy(text, "[-1");
    for (int i = 0; i < 20000; i++)
        add(",%d", i);
    size_t len = strlen(text);
    add("]", 0);
    assert_int_equal(run(unique, text, &err), SL_OK);
    strcpy(text + len, ",-10e-1]");
    assert_int_equal(run(unique, text, &err), SL_ERR_ARGUMENT);
    // Two objects with many keys: each is looked for.
    strcpy(text, "{\"const\":{\"x\":0");
    for (int i = 0; i < 5000; i++)
        add(",\"%d\":0", i);
    add("}}", 0);
    len = strlen(text + 9);
    char *instance = malloc(len);
    assert_non_null(instance);
    memcpy(instance, text + 9, len);
    instance[len - 1] = '\0';
    assert_int_equal(run(text, instance, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "steps"));
    free(instance);
}

static void depth_is_bounded(void **state) {
    (void)state;
    sl_error err;
    char value[256] = "";
    strcpy(text, "{\"$defs\":{");
    for (int i = 0; i < 7; i++)
        add("\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i);
    add("\"d7\":{\"items\":{\"$ref\":\"#/$defs/d0\"}}},\"$ref\":\"#/$defs/d0\"}", 0);
    for (int depth = 0; depth < 60; depth++) {
        memmove(value + depth + 1, value + depth, (size_t)depth);
        value[depth] = '[';
        value[2 * depth + 1] = ']';
        value[2 * depth + 2] = '\0';
        // Eight schemas and their reference for each level; the root refers once as well.
        bool fits = 9 * (depth + 1) <= SL_SCHEMA_CHECK_DEPTH_MAX;
        assert_int_equal(run(text, value, &err), fits ? SL_OK : SL_ERR_UNSUPPORTED);
    }
    assert_non_null(strstr(err.message, "more than 400 schemas within schemas"));
    strcpy(text, "{\"$defs\":{");
    for (int i = 0; i < 70; i++)
        add("\"d%d\":{\"$ref\":\"#/$defs/d%d\"},", i);
    add("\"d70\":{}},\"$ref\":\"#/$defs/d0\"}", 0);
    assert_int_equal(run(text, "1", &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "more than 64 references in a row"));
}

static void numbers_are_bounded(void **state) {
    (void)state;
    sl_error err;
    char value[128] = "[1e10000]";
    assert_int_equal(run("{}", value, &err), SL_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "/0: expected a number of at most 64 digits"));
    (void)snprintf(value, sizeof(value), "%065d", 1);
    value[0] = '1';
    assert_int_equal(run("{}", value, &err), SL_ERR_ARGUMENT);
    memmove(value, value + 1, sizeof(value) - 1);
    value[0] = '1';
    assert_int_equal(run("{\"type\":\"integer\"}", value, &err), SL_OK);
}

// Whatever the arena's size is: the right answer, or none, and the arena as it was.
static void memory_is_bounded(void **state) {
    (void)state;
    static const char schema[] = "{\"items\":{\"pattern\":\"^[a-z]{2,9}$\"},\"uniqueItems\":true}";
    static const char good[] = "[\"ab\",\"abc\"]", bad[] = "[\"ab\",\"A\"]";
    unsigned n_full = 0, n_done = 0;
    for (size_t bytes = 1; bytes < BLOCK_BYTES; bytes += bytes / 8 + 1) {
        sl_arena small;
        sl_error err;
        sl_arena_init(&small, "scratch", block, bytes);
        sl_status st =
            sl_schema_check_text(schema, sizeof(schema) - 1, good, sizeof(good) - 1, &small, &err);
        assert_true(st == SL_OK || st == SL_ERR_MEMORY);
        n_done += st == SL_OK;
        n_full += st == SL_ERR_MEMORY;
        st = sl_schema_check_text(schema, sizeof(schema) - 1, bad, sizeof(bad) - 1, &small, &err);
        assert_true(st == SL_ERR_ARGUMENT || st == SL_ERR_MEMORY);
        assert_int_equal(small.used, 0);
    }
    assert_true(n_full > 10 && n_done > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_judge),          cmocka_unit_test(a_misfit_says_where_and_what),
        cmocka_unit_test(long_misfits_are_cut),    cmocka_unit_test(schemas_that_cannot_be_checked),
        cmocka_unit_test(a_schema_alone),          cmocka_unit_test(branches_are_bounded),
        cmocka_unit_test(comparisons_are_bounded), cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(numbers_are_bounded),     cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
