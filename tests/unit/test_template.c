/* text/template: places of errors, limits, memory and stack. What templates print is held to jinja2 by
 * tests/diff/test_template_jinja.py; a few lines of that are here so that it shows without Python. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/template.h"

static char tree_block[1 << 18], scratch_block[1 << 20], out_block[1 << 16];

static sl_status parse(const char *source, sl_template **tpl, sl_error *err) {
    static sl_arena arena;
    sl_arena_init(&arena, "tree", tree_block, sizeof(tree_block));
    return sl_template_parse(source, strlen(source), &arena, tpl, err);
}

static sl_status render_with(const char *source, const char *vars_json,
                             const sl_template_limits *limits, sl_buf *out, sl_error *err) {
    sl_template *tpl;
    sl_arena vars_arena, scratch;
    sl_json *vars;
    static char vars_block[1 << 16];
    sl_status st = parse(source, &tpl, err);
    if (st)
        return st;
    sl_arena_init(&vars_arena, "vars", vars_block, sizeof(vars_block));
    sl_arena_init(&scratch, "scratch", scratch_block, sizeof(scratch_block));
    assert_int_equal(sl_json_parse(vars_json, strlen(vars_json), &vars_arena, &vars, err), SL_OK);
    st = sl_template_render(tpl, vars, limits, &scratch, out, err);
    assert_int_equal(scratch.used, 0);
    return st;
}

static sl_status render(const char *source, const char *vars_json, sl_buf *out, sl_error *err) {
    sl_template_limits limits = sl_template_limits_default(1750861384);
    sl_buf_init_fixed(out, out_block, sizeof(out_block));
    return render_with(source, vars_json, &limits, out, err);
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static char text[1 << 16];
    *len = fread(text, 1, sizeof(text), f);
    fclose(f);
    return text;
}

static void templates_print_what_jinja_prints(void **state) {
    (void)state;
    const struct {
        const char *source, *out;
    } cases[] = {
        {"Hello {{ who }}!\n", "Hello W\303\266rld!"},
        {"{% for x in l if x != 2 -%}\n  {{ x }}{{ ',' if not loop.last }}\n{%- endfor %}", "1,3"},
        {"  {% if l %}\n  yes\n  {% endif %}\n.", "  yes\n."},
        {"{{ d }} {{ d | tojson }} {{ [none, 1.0, 'it\\'s'] }}",
         "{'k': [True]} {\"k\": [true]} [None, 1.0, \"it's\"]"},
        {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 1 < 2 < 3 }}", "-4 2 3.5 8 True"},
        {"{% macro m(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}",
         "[1x][32]"},
        {"{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ "
         "ns.n }}",
         "6"},
        {"{{ who[::-1] | upper }} {{ who.split('r')[0] }} {{ nothing }}|{{ nothing is defined }}",
         "DLR\303\226W W\303\266 |False"},
        {"{{ strftime_now('%d %B %Y') }}", "25 June 2025"},
        {"", ""},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_buf out;
        sl_error err;
        assert_int_equal(
            render(cases[i].source,
                   "{\"who\": \"W\303\266rld\", \"l\": [1, 2, 3], \"d\": {\"k\": [true]}}", &out,
                   &err),
            SL_OK);
        assert_string_equal(out.data, cases[i].out);
    }
}

static void what_cannot_be_parsed_says_where(void **state) {
    (void)state;
    const struct {
        const char *source;
        sl_status status;
        const char *where, *what;
    } cases[] = {
        {"a\nb {{ 1 + }}", SL_ERR_SYNTAX, "line 2 column 10", "expected an expression"},
        {"{% if x %}\n\n", SL_ERR_SYNTAX, "line 1 column 4", "endif"},
        {"\n{% endfor %}", SL_ERR_SYNTAX, "line 2 column 4", "endfor"},
        {"{% for x in y %}{% endif %}", SL_ERR_SYNTAX, "line 1 column 20", "endif"},
        {"{{ 'abc }}", SL_ERR_SYNTAX, "line 1 column 4", "string"},
        {"{# abc", SL_ERR_SYNTAX, "line 1 column 1", "comment"},
        {"{% raw %} x", SL_ERR_SYNTAX, "line 1 column 1", "endraw"},
        {"{{ (1] }}", SL_ERR_SYNTAX, "line 1 column 6", "']'"},
        {"{{ x", SL_ERR_SYNTAX, "line 1 column 5", "ends inside a tag"},
        {"{% break %}", SL_ERR_SYNTAX, "line 1 column 4", "outside of a loop"},
        {"{{ x | replace('a') }}", SL_ERR_SYNTAX, "line 1 column 8", "too few"},
        {"{{ x is divisibleby }}", SL_ERR_SYNTAX, "line 1 column 9", "too few"},
        {"{{ range() }}", SL_ERR_SYNTAX, "line 1 column 9", "too few"},
        {"{{ x | trim(nope=1) }}", SL_ERR_SYNTAX, "line 1 column 8", "no argument of this name"},
        {"\xff", SL_ERR_SYNTAX, "line 1 column 1", "UTF-8"},
        {"{% include 'x' %}", SL_ERR_UNSUPPORTED, "line 1 column 4", "include"},
        {"{{ x | wordwrap }}", SL_ERR_UNSUPPORTED, "line 1 column 8", "wordwrap"},
        {"{{ x is fancy }}", SL_ERR_UNSUPPORTED, "line 1 column 9", "fancy"},
        {"{{ cycler(1) }}", SL_ERR_UNSUPPORTED, "line 1 column 4", "cycler"},
        {"{{ x.append(1) }}", SL_ERR_UNSUPPORTED, "line 1 column 6", "append"},
        {"{% for x in y recursive %}{% endfor %}", SL_ERR_UNSUPPORTED, "line 1 column 15",
         "recursive"},
        {"{{ x | map('wordwrap') }}", SL_ERR_UNSUPPORTED, "line 1 column 12", "wordwrap"},
        {"{{ x | selectattr('a', 'fancy') }}", SL_ERR_UNSUPPORTED, "line 1 column 24", "fancy"},
        {"{{ 99999999999999999999 }}", SL_ERR_UNSUPPORTED, "line 1 column 4", "64 bits"},
        {"{{ strftime_now('%Z') }}", SL_ERR_UNSUPPORTED, "line 1 column 17", "time format"},
        {"{{ f(*x) }}", SL_ERR_UNSUPPORTED, "line 1 column 6", "*"},
        // Also where it would never run.
        {"{% if false %}{{ x | wordwrap }}{% endif %}", SL_ERR_UNSUPPORTED, "line 1 column 22",
         "wordwrap"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_template *tpl;
        sl_error err;
        assert_int_equal(parse(cases[i].source, &tpl, &err), cases[i].status);
        assert_null(tpl);
        assert_int_equal(err.status, cases[i].status);
        if (!strstr(err.message, cases[i].where) || !strstr(err.message, cases[i].what))
            fail_msg("%s gave: %s", cases[i].source, err.message);
    }
}

static void what_cannot_be_rendered_says_where(void **state) {
    (void)state;
    const struct {
        const char *source;
        sl_status status;
        const char *message;
    } cases[] = {
        {"{{ raise_exception('Roles must\\nalternate') }}", SL_ERR_ARGUMENT,
         "chat template: Roles must alternate"},
        {"\n {{ x.y }}", SL_ERR_ARGUMENT, "chat template, line 2 column 7: 'x' is undefined"},
        {"{{ 1 + 'a' }}", SL_ERR_ARGUMENT,
         "chat template, line 1 column 6: 'int' + 'str' is not possible"},
        {"{{ 2 ** 64 }}", SL_ERR_UNSUPPORTED,
         "chat template, line 1 column 6: an integer outside 64 bits"},
        {"{{ range(3) | map('int') }}", SL_ERR_UNSUPPORTED,
         "chat template, line 1 column 1: printing a generator"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_buf out;
        sl_error err;
        assert_int_equal(render(cases[i].source, "{}", &out, &err), cases[i].status);
        assert_string_equal(err.message, cases[i].message);
    }
    sl_buf out;
    sl_error err;
    assert_int_equal(render("x", "[]", &out, &err), SL_ERR_ARGUMENT);
}

static void limits_hold(void **state) {
    (void)state;
    sl_error err;
    sl_buf out;
    sl_template_limits limits = sl_template_limits_default(0);
    limits.steps_max = 1000;
    sl_buf_init_fixed(&out, out_block, sizeof(out_block));
    assert_int_equal(
        render_with(
            "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
            "{}", &limits, &out, &err),
        SL_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "1000 steps"));

    limits = sl_template_limits_default(0);
    limits.output_bytes_max = 10;
    sl_buf_clear(&out);
    assert_int_equal(render_with("12345{{ '12345' }}", "{}", &limits, &out, &err), SL_OK);
    sl_buf_clear(&out);
    assert_int_equal(render_with("12345{{ '123456' }}", "{}", &limits, &out, &err), SL_ERR_CONTEXT);
    assert_string_equal(out.data, "12345");

    // Depth: macros that call themselves, and a value nested by the template.
    sl_buf_clear(&out);
    assert_int_equal(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", &out, &err),
                     SL_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "deep"));
    assert_int_equal(render("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = "
                            "[ns.l] %}{% endfor %}{{ ns.l }}",
                            "{}", &out, &err),
                     SL_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "deep"));

    // A fixed buffer that is too small, and one that grows.
    char small[8];
    sl_buf_init_fixed(&out, small, sizeof(small));
    limits = sl_template_limits_default(0);
    assert_int_equal(render_with("12345678", "{}", &limits, &out, &err), SL_ERR_CONTEXT);
    sl_buf_init(&out);
    assert_int_equal(render_with("{{ 'x' * 100000 }}", "{}", &limits, &out, &err), SL_OK);
    assert_int_equal(out.len, 100000);
    sl_buf_deinit(&out);
}

// Templates that would work for minutes stop at the limit on steps, or run out of scratch.
static void time_is_bounded(void **state) {
    (void)state;
    const char *sources[] = {
        "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s * 2 %}{% "
        "endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s.find('a' * 1000 ~ 'b') }}{% "
        "endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s.rfind('b' ~ 'a' * 1000) }}{% "
        "endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s.count('a') }}{% endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s[-1] }}{% endfor %}",
        "{% set s = '\303\244' * 100000 %}{% for i in range(100000) %}{{ s[::-1][0] }}{% endfor %}",
        "{% set s = ' ' * 200000 %}{% for i in range(100000) %}{{ s.strip() }}{% endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s is lower }}{% endfor %}",
        "{% set s = 'a' * 200000 %}{% for i in range(100000) %}{{ s.strip('b' * 1000 ~ 'a') }}{% "
        "endfor %}",
        "{% set s = '\316\243' * 20000 %}{% for i in range(100000) %}{{ (s | lower)[0] }}{% endfor "
        "%}",
        "{% set l = [1] * 30000 %}{% for i in range(100000) %}{{ 2 in l }}{% endfor %}",
        "{% set l = range(10000) | list %}{{ l | unique | list }}",
        "{% set l = range(20000) | list %}{% for i in range(100000) %}{{ l | sum }}{% endfor %}",
        "{% set l = [1] * 20000 %}{% for i in range(100000) %}{{ l == [1] * 20000 }}{% endfor %}",
        "{% set s = 'a' * 100000 %}{{ s.replace('', s[:1000]) }}",
        "{% for i in range(100000) %}{{ messages | tojson | length }}{% endfor %}",
    };
    for (size_t i = 0; i < SL_COUNT(sources); i++) {
        sl_buf out;
        sl_error err;
        sl_status st = render(sources[i], "{\"messages\": [1, 2, {\"a\": \"b\"}]}", &out, &err);
        if (st != SL_ERR_ARGUMENT && st != SL_ERR_MEMORY && st != SL_ERR_CONTEXT)
            fail_msg("%s: %d", sources[i], (int)st);
    }
}

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"Hi\"},"
    "{\"role\": \"assistant\", \"content\": \"<think>\\nx\\n</think>\\n\\nHello\", \"tool_calls\": "
    "[{\"function\": {\"name\": "
    "\"f\", \"arguments\": {\"a\": [1, 2]}}}]}, {\"role\": \"tool\", \"content\": \"ok\"}], "
    "\"tools\": [{\"name\": \"f\"}],"
    " \"add_generation_prompt\": true}";

static void the_demo_template_is_small(void **state) {
    (void)state;
    size_t len;
    const char *source = read_file(SL_MODELS_DIR "/demo/chat_template.jinja", &len);
    sl_arena arena;
    sl_template *tpl;
    sl_error err;
    sl_arena_init(&arena, "tree", tree_block, sizeof(tree_block));
    assert_int_equal(sl_template_parse(source, len, &arena, &tpl, &err), SL_OK);
    print_message("demo template: %zu bytes of source, %zu of tree\n", len, arena.used);
    assert_true(arena.used <= 7 * len);

    sl_arena scratch, vars_arena;
    static char vars_block[1 << 14];
    sl_json *vars;
    sl_buf out;
    sl_arena_init(&vars_arena, "vars", vars_block, sizeof(vars_block));
    sl_arena_init(&scratch, "scratch", scratch_block, sizeof(scratch_block));
    sl_buf_init_fixed(&out, out_block, sizeof(out_block));
    assert_int_equal(sl_json_parse(conversation, strlen(conversation), &vars_arena, &vars, &err),
                     SL_OK);
    sl_template_limits limits = sl_template_limits_default(0);
    assert_int_equal(sl_template_render(tpl, vars, &limits, &scratch, &out, &err), SL_OK);
    print_message("a conversation of %zu bytes takes %zu of scratch and gives %zu\n",
                  strlen(conversation), scratch.used_peak, out.len);
    char whole[4096];
    memcpy(whole, out.data, out.len + 1);

    // Every arena that is too small is an error that names it, and leaves nothing behind.
    size_t tree_bytes = arena.used, scratch_bytes = scratch.used_peak;
    for (size_t bytes = 0; bytes < tree_bytes; bytes += 24) {
        sl_template *none;
        sl_arena_init(&arena, "small tree", tree_block, bytes);
        assert_int_equal(sl_template_parse(source, len, &arena, &none, &err), SL_ERR_MEMORY);
        assert_non_null(strstr(err.message, "small tree"));
        assert_null(none);
    }
    sl_arena_init(&arena, "tree", tree_block, tree_bytes);
    assert_int_equal(sl_template_parse(source, len, &arena, &tpl, &err), SL_OK);
    for (size_t bytes = 0; bytes < scratch_bytes; bytes += 24) {
        sl_arena_init(&scratch, "small scratch", scratch_block, bytes);
        sl_buf_clear(&out);
        assert_int_equal(sl_template_render(tpl, vars, &limits, &scratch, &out, &err),
                         SL_ERR_MEMORY);
        assert_non_null(strstr(err.message, "small scratch"));
        assert_int_equal(scratch.used, 0);
    }
    sl_arena_init(&scratch, "scratch", scratch_block, scratch_bytes);
    sl_buf_clear(&out);
    assert_int_equal(sl_template_render(tpl, vars, &limits, &scratch, &out, &err), SL_OK);
    assert_string_equal(out.data, whole);
}

// A long text that a template puts together piece by piece is copied once, not once a piece.
static void appending_is_linear(void **state) {
    (void)state;
    sl_buf out;
    sl_error err;
    assert_int_equal(render("{% set ns = namespace(s='') %}{% for i in range(2000) %}{% set ns.s = "
                            "ns.s + 'abcdefghijklmnopqrst' %}"
                            "{% endfor %}{{ ns.s | length }}",
                            "{}", &out, &err),
                     SL_OK);
    assert_string_equal(out.data, "40000");
}

static const char *render_deep_templates(void) {
    char source[4096];
    size_t n = 0;
    sl_buf out;
    sl_error err;
    // As deep as the parser allows, in brackets and in blocks, and deeper.
    for (int depth = 20; depth <= 120; depth += 20) {
        n = 0;
        for (int i = 0; i < depth; i++)
            n +=
                (size_t)snprintf(source + n, sizeof(source) - n, "{%% if [(-%s", i % 2 ? "(" : "[");
        (void)render(source, "{}", &out, &err);
        n = 0;
        for (int i = 0; i < depth; i++)
            n += (size_t)snprintf(source + n, sizeof(source) - n, "{%% for x in [1] %%}");
        for (int i = 0; i < depth; i++)
            n += (size_t)snprintf(source + n, sizeof(source) - n, "{%% endfor %%}");
        sl_status st = render(source, "{}", &out, &err);
        if (st != (depth < 100 ? SL_OK : SL_ERR_UNSUPPORTED) && st != SL_ERR_UNSUPPORTED)
            return "blocks";
        n = (size_t)snprintf(source, sizeof(source), "{{ ");
        for (int i = 0; i < depth; i++)
            source[n++] = '(';
        snprintf(source + n, sizeof(source) - n, "1");
        if (render(source, "{}", &out, &err) == SL_OK)
            return "parentheses";
    }
    if (render("{% macro m(x) %}{{ [(m(x) | upper), 1] | join }}{% endmacro %}{{ m(1) }}", "{}",
               &out, &err) != SL_ERR_ARGUMENT ||
        !strstr(err.message, "deep"))
        return "macros";
    if (render("{% set ns = namespace(l=1) %}{% for i in range(290) %}{% set ns.l = {'a': [ns.l]} "
               "%}{% endfor %}{{ ns.l | tojson }}",
               "{}", &out, &err) != SL_ERR_ARGUMENT ||
        !strstr(err.message, "deep"))
        return "tojson";
    return NULL;
}

static void *render_deep(void *problem) {
    *(const char **)problem = render_deep_templates();
    return NULL;
}

static void a_small_stack_is_enough(void **state) {
    (void)state;
    pthread_attr_t attr;
    pthread_t thread;
    const char *problem = NULL;
    assert_int_equal(pthread_attr_init(&attr), 0);
#if defined(__SANITIZE_ADDRESS__)
    size_t bytes = 2 << 20; // instrumented frames are several times as large
#else
    size_t bytes = 192 << 10;
#endif
    assert_int_equal(pthread_attr_setstacksize(&attr, bytes), 0);
    assert_int_equal(pthread_create(&thread, &attr, render_deep, &problem), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    if (problem)
        fail_msg("%s", problem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_print_what_jinja_prints),
        cmocka_unit_test(what_cannot_be_parsed_says_where),
        cmocka_unit_test(what_cannot_be_rendered_says_where),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(the_demo_template_is_small),
        cmocka_unit_test(appending_is_linear),
        cmocka_unit_test(a_small_stack_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
