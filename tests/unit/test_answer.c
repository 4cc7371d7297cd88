/* text/answer: every case is fed whole, byte by byte, and split at every pair of bytes, and must give
 * the same events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "text/answer.h"

/* Events as text: T[...] R[...] C[name arguments], with ! for oversized text and ? for an unclosed call.
 * Neighbouring pieces of one kind are joined. */
typedef struct recorder {
    sl_buf out;
    char open; // kind of the last piece, or 0
    bool oversized;
} recorder;

static void close_piece(recorder *r) {
    if (r->open)
        sl_buf_add_text(&r->out, "]");
    r->open = 0;
}

static void record(void *ctx, const sl_answer_event *event) {
    recorder *r = ctx;
    if (event->kind == SL_ANSWER_TOOL_CALL) {
        close_piece(r);
        char whole[4096];
        snprintf(whole, sizeof(whole), "{\"name\": \"%.*s\", \"arguments\": %.*s}",
                 (int)event->name_len, event->name, (int)event->arguments_len, event->arguments);
        if (!memchr(event->name, '\n', event->name_len)) {
            assert_int_equal(event->len, strlen(whole));
            assert_memory_equal(event->text, whole, event->len);
        }
        sl_buf_printf(&r->out, "C%s[%.*s %.*s]", event->unclosed ? "?" : "", (int)event->name_len,
                      event->name, (int)event->arguments_len, event->arguments);
        return;
    }
    assert_true(event->len > 0);
    // Pieces are whole characters.
    assert_true(((unsigned char)event->text[0] & 0xc0) != 0x80);
    char kind = event->kind == SL_ANSWER_TEXT ? 'T' : 'R';
    if (r->open != kind || r->oversized != event->oversized) {
        close_piece(r);
        sl_buf_printf(&r->out, "%c%s[", kind, event->oversized ? "!" : "");
    }
    r->open = kind;
    r->oversized = event->oversized;
    sl_buf_add(&r->out, event->text, event->len);
}

typedef struct answer_case {
    const char *format;
    bool in_reasoning;
    const char *input;
    const char *events;
} answer_case;

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", "
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"b\": "
    "{\"type\": "
    "\"boolean\"}, \"o\": {\"type\": \"object\"}, \"x\": {\"type\": [\"string\", \"null\"]}, "
    "\"any\": {}}}}},"
    " {\"name\": \"bare\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}}}}]";

static char call_block[4096], json_block[4096], out_block[16384];
static size_t call_cap = sizeof(call_block), json_cap = sizeof(json_block);

// Feeds the text cut at a and b (a <= b <= len); step 0, or pieces of that many bytes.
static const char *events_of(const answer_case *c, const sl_json *tools, size_t a, size_t b,
                             size_t step) {
    static recorder r;
    sl_answer answer;
    size_t len = strlen(c->input);
    r = (recorder){0};
    sl_buf_init_fixed(&r.out, out_block, sizeof(out_block));
    sl_answer_init(&answer, sl_answer_format_find(c->format), c->in_reasoning, tools, call_block,
                   call_cap, json_block, json_cap, record, &r);
    if (step) {
        for (size_t i = 0; i < len; i += step)
            sl_answer_feed(&answer, c->input + i, SL_MIN(step, len - i));
    } else {
        sl_answer_feed(&answer, c->input, a);
        sl_answer_feed(&answer, c->input + a, b - a);
        sl_answer_feed(&answer, c->input + b, len - b);
    }
    sl_answer_end(&answer);
    close_piece(&r);
    return r.out.data;
}

// Text arrives in whole characters, so cuts are made between them.
static bool is_boundary(const char *s, size_t i) {
    return ((unsigned char)s[i] & 0xc0) != 0x80;
}

static void run_case(const answer_case *c, const sl_json *tools) {
    size_t len = strlen(c->input);
    assert_string_equal(events_of(c, tools, 0, len, 0), c->events);
    bool ascii = true;
    for (size_t i = 0; i < len; i++)
        ascii &= (unsigned char)c->input[i] < 0x80;
    if (ascii)
        assert_string_equal(events_of(c, tools, 0, 0, 1), c->events);
    for (size_t a = 0; a <= len; a++) {
        for (size_t b = a; b <= len && is_boundary(c->input, a); b++) {
            if (is_boundary(c->input, b))
                assert_string_equal(events_of(c, tools, a, b, 0), c->events);
        }
    }
}

static void run_cases(const answer_case *cases, size_t n, bool with_tools) {
    static char block[16384];
    sl_arena arena;
    sl_json *tools = NULL;
    sl_error err;
    sl_arena_init(&arena, "tools", block, sizeof(block));
    assert_int_equal(sl_json_parse(tools_json, strlen(tools_json), &arena, &tools, &err), SL_OK);
    for (size_t i = 0; i < n; i++)
        run_case(&cases[i], with_tools ? tools : NULL);
}

static void thinking_is_split_off(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"think", true, "so\n\nhmm\n</think>\n\nAnswer\n\nmore\n",
         "R[so\n\nhmm]T[Answer\n\nmore\n]"},
        {"think", true, "\n\n</think>\n\nAnswer", "T[Answer]"},
        {"think", true, "cut off in th", "R[cut off in th]"},
        {"think", true, "cut off </thi", "R[cut off </thi]"},
        {"think", true, "a\n</thinking>\n</think>b", "R[a\n</thinking>]T[b]"},
        {"think", true, "a <think> b </think>c</think>", "R[a <think> b ]T[c</think>]"},
        {"think", false, "<think>\nwhy\n</think>\n\nbecause", "R[why]T[because]"},
        {"think", false, "\n<think>\n\n</think>\n\nbecause", "T[because]"},
        {"think", false, "say <think> is a tag", "T[say <think> is a tag]"},
        {"think", false, "plain\n\n", "T[plain\n\n]"},
        {"think", false, "<<think>x", "T[<<think>x]"},
        {"think", true, "ü<ü</th\303\251 </think>\303\251\n", "R[ü<ü</thé ]T[é\n]"},
        {"plain", true, "a <think> b\n</think> <tool_call>\n",
         "T[a <think> b\n</think> <tool_call>\n]"},
        {"think", true, "a</think><tool_call>b</tool_call>", "R[a]T[<tool_call>b</tool_call>]"},
        {"think", true, "", ""},
        {"think", false, "<", "T[<]"},
        {"think", true, "a\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nb",
         "R[a\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nb]"},
    };
    run_cases(cases, SL_COUNT(cases), false);
}

#define XML(body) "<tool_call>\n" body "\n</tool_call>"

static void xml_calls_are_read(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"qwen-xml", false,
         "Let me look.\n\n" XML("<function=f>\n<parameter=s>\n12\n</"
                                "parameter>\n<parameter=n>\n12\n</parameter>\n</function>"),
         "T[Let me look.]C[f {\"s\": \"12\", \"n\": 12}]"},
        {"qwen-xml", true,
         "think\n</think>\n\n" XML("<function=g>\n</function>") "\n" XML(
             "<function=f>\n<parameter=s>\n\n a\n\n</parameter>\n</function>"),
         "R[think]C[g {}]C[f {\"s\": \"\\n a\\n\"}]"},
        {"qwen-xml", false,
         XML("<function=f><parameter=b>true</parameter><parameter=o>{\"a\": [1, "
             "2.5]}</parameter></function>"),
         "C[f {\"b\": true, \"o\": {\"a\": [1, 2.5]}}]"},
        // Values that are not what the schema says stay text; Python's booleans are understood.
        {"qwen-xml", false,
         XML("<function=f>\n<parameter=n>\ntwelve\n</parameter>\n<parameter=b>\nTrue\n</"
             "parameter>\n<parameter=o>\n{bad}\n</parameter>\n</function>"),
         "C[f {\"n\": \"twelve\", \"b\": true, \"o\": \"{bad}\"}]"},
        {"qwen-xml", false,
         XML("<function=f>\n<parameter=x>\nnull\n</parameter>\n<parameter=any>\n[1]\n</"
             "parameter>\n<parameter=zz>\n5\n</parameter>\n</function>"),
         "C[f {\"x\": null, \"any\": [1], \"zz\": 5}]"},
        {"qwen-xml", false, XML("<function=f>\n<parameter=x>\n5\n</parameter>\n</function>"),
         "C[f {\"x\": \"5\"}]"},
        {"qwen-xml", false,
         XML("<function=bare>\n<parameter=s>\ntrue \"q\" \\ \t\n</parameter>\n</function>"),
         "C[bare {\"s\": \"true \\\"q\\\" \\\\ \\t\"}]"},
        // Markers inside a value are data.
        {"qwen-xml", false,
         XML("<function=f>\n<parameter=s>\n</tool_call><tool_call>\n<parameter=n>\n</parameter>\n</"
             "function>") "done",
         "C[f {\"s\": \"</tool_call><tool_call>\\n<parameter=n>\"}]T[done]"},
        // Text after a call, and between calls.
        {"qwen-xml", false,
         XML("<function=g>\n</function>") "\n\nAnd then\n" XML("<function=g>\n</function>") "\n",
         "C[g {}]T[And then]C[g {}]"},
        // What is no call is text, newlines included.
        {"qwen-xml", false, "a\n\n<tool_call>\nnot a call\n</tool_call>\nb",
         "T[a\n\n<tool_call>\nnot a call\n</tool_call>\nb]"},
        {"qwen-xml", false,
         XML("<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=s>\n2\n</parameter>\n</"
             "function>"),
         "T[" XML("<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=s>\n2\n</parameter>\n</"
                  "function>") "]"},
        {"qwen-xml", false, XML("<function=>\n</function>"),
         "T[" XML("<function=>\n</function>") "]"},
        {"qwen-xml", false, XML("<function=f>\n<parameter=s>\n1\n</parameter>\nstray</function>"),
         "T[" XML("<function=f>\n<parameter=s>\n1\n</parameter>\nstray</function>") "]"},
        {"qwen-xml", false, "<tool_calls>", "T[<tool_calls>]"},
        {"qwen-xml", false, "<think>\n</think>\n\n<tool_call", "T[<tool_call]"},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

static void without_tools_values_stay_text(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"qwen-xml", false, XML("<function=f>\n<parameter=n>\n12\n</parameter>\n</function>"),
         "C[f {\"n\": \"12\"}]"},
    };
    run_cases(cases, SL_COUNT(cases), false);
}

static void unclosed_calls_are_kept(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"qwen-xml", false,
         "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</function>\n",
         "C?[f {\"n\": 1}]"},
        {"qwen-xml", false, "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>",
         "C?[f {\"n\": 1}]"},
        {"qwen-xml", false, "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n</func",
         "C?[f {\"n\": 1}]"},
        {"qwen-xml", false, "<tool_call>\n<function=g>\n</function>\n</tool", "C?[g {}]"},
        {"qwen-xml", false, "x\n<tool_call>\n<function=g>\n", "T[x\n<tool_call>\n<function=g>\n]"},
        {"qwen-xml", false, "<tool_call>\n<function=f>\n<parameter=s>\nhalf",
         "T[<tool_call>\n<function=f>\n<parameter=s>\nhalf]"},
        {"qwen-xml", false,
         "<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\nha",
         "T[<tool_call>\n<function=f>\n<parameter=n>\n1\n</parameter>\n<parameter=s>\nha]"},
        {"qwen-xml", false, "<tool_call>", "T[<tool_call>]"},
        {"qwen-json", false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n", "C?[f {}]"},
        {"qwen-json", false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}</tool_",
         "C?[f {}]"},
        {"qwen-json", false, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}",
         "T[<tool_call>\n{\"name\": \"f\", \"arguments\": {}]"},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

static void json_calls_are_read(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"qwen-json", false,
         "Hi\n" XML("{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": null}], \"s\": "
                    "\"</tool_call>\\\"\"}}") "\n" XML("{\"arguments\": {}, \"name\": \"g\"}"),
         "T[Hi]C[f {\"a\": [1, {\"b\": null}], \"s\": \"</tool_call>\\\"\"}]C[g {}]"},
        {"qwen-json", false, XML("{\"name\": \"\\u00e9\\n\", \"arguments\": { }, \"id\": [1]}"),
         "C[é\n { }]"},
        {"qwen-json", false, XML("{\"name\": \"f\"}"), "T[" XML("{\"name\": \"f\"}") "]"},
        {"qwen-json", false, XML("{\"name\": 5, \"arguments\": {}}"),
         "T[" XML("{\"name\": 5, \"arguments\": {}}") "]"},
        {"qwen-json", false, XML("{\"name\": \"f\", \"arguments\": \"{}\"}"),
         "T[" XML("{\"name\": \"f\", \"arguments\": \"{}\"}") "]"},
        {"qwen-json", false, XML("{\"name\": \"f\", \"arguments\": {}} x"),
         "T[" XML("{\"name\": \"f\", \"arguments\": {}} x") "]"},
        {"qwen-json", false, XML("{'name': 'f', 'arguments': {}}") "ok",
         "T[" XML("{'name': 'f', 'arguments': {}}") "ok]"},
        {"qwen-json", false, XML("[]"), "T[" XML("[]") "]"},
    };
    run_cases(cases, SL_COUNT(cases), false);
}

#define ARG(key, value) "<arg_key>" key "</arg_key>\n<arg_value>" value "</arg_value>\n"
#define KEYS(body) "<tool_call>" body "</tool_call>"

static void calls_with_keys_are_read(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"glm", false,
         "<think>why</think>\nLook.\n" KEYS("f\n" ARG("s", "12") ARG("n", "12")) "\n" KEYS("now"),
         "R[why]T[Look.]C[f {\"s\": \"12\", \"n\": 12}]C[now {}]"},
        // A value has no newlines around it; what looks like the end of the call is data in it.
        {"glm", false,
         KEYS("f\n" ARG("s", "\n</tool_call>\n") "<arg_key>b</arg_key><arg_value>true</arg_value>"),
         "C[f {\"s\": \"\\n</tool_call>\\n\", \"b\": true}]"},
        {"glm", false, KEYS("f \n" ARG("o", "{\"a\": 1}") ARG("x", "null")),
         "C[f {\"o\": {\"a\": 1}, \"x\": null}]"},
        {"glm", false, KEYS("f\n" ARG("s", "1") ARG("s", "2")),
         "T[" KEYS("f\n" ARG("s", "1") ARG("s", "2")) "]"},
        {"glm", false, KEYS("f\n<arg_key>s</arg_key>1"), "T[" KEYS("f\n<arg_key>s</arg_key>1") "]"},
        {"glm", false, KEYS("{\"name\": \"f\", \"arguments\": {}}"),
         "T[" KEYS("{\"name\": \"f\", \"arguments\": {}}") "]"},
        {"glm", false, KEYS("two words"), "T[" KEYS("two words") "]"},
        {"glm", false, KEYS(""), "T[" KEYS("") "]"},
        {"glm", false, "<tool_call>f\n" ARG("s", "1"), "C?[f {\"s\": \"1\"}]"},
        {"glm", false, "<tool_call>f\n" ARG("s", "1") "</tool_", "C?[f {\"s\": \"1\"}]"},
        {"glm", false, "<tool_call>nam", "T[<tool_call>nam]"},
        {"glm", false, "<tool_call>f\n" ARG("n", "1") "<arg_key>s</arg_key>",
         "T[<tool_call>f\n" ARG("n", "1") "<arg_key>s</arg_key>]"},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

static void a_call_too_large_is_text(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"qwen-xml", false,
         "a\n<tool_call>\n<function=f>\n<parameter=s>\nü€😀ü€😀ü€😀ü€😀\n</parameter>\n</function>\n</"
         "tool_call>\nb",
         "T[a\n]T![<tool_call>\n<function=f>\n<parameter=s>\nü€😀ü€😀ü€😀ü€😀\n</parameter>\n</"
         "function>\n</tool_call>]T[\nb]"},
        {"qwen-xml", false,
         "<tool_call>0123456789</tool_call><tool_call>\n<function=g></function></tool_call>",
         "T[<tool_call>0123456789</tool_call>]C[g {}]"},
        {"qwen-json", false, "<tool_call>01234567890123456789012345678901234567890123456789012",
         "T![<tool_call>01234567890123456789012345678901234567890123456789012]"},
    };
    for (call_cap = 36; call_cap < 48; call_cap++)
        run_cases(cases, SL_COUNT(cases), false);
    call_cap = sizeof(call_block);
    // The JSON may be what does not fit.
    const answer_case big_json[] = {
        {"qwen-json", false, XML("{\"name\": \"f\", \"arguments\": {}}") "x",
         "T![" XML("{\"name\": \"f\", \"arguments\": {}}") "]T[x]"},
        {"qwen-xml", false, XML("<function=f></function>") "x",
         "T![" XML("<function=f></function>") "]T[x]"},
    };
    for (json_cap = 1; json_cap < 32; json_cap++)
        run_cases(big_json, SL_COUNT(big_json), false);
    json_cap = sizeof(json_block);
}

static void formats_are_recognized(void **state) {
    (void)state;
    const char *xml = "... <tool_call>\n<function=name> ... <think>";
    const char *json = "<tool_call>\n{\"name\": ..., \"arguments\": ...}";
    const char *keys = "<tool_call>{{ f.name }}<arg_key>{% for k in f.arguments %}";
    const char *think = "{{ '<think>\n' }}", *plain = "{{ messages }}";
    assert_string_equal(sl_answer_format_of_template(xml, strlen(xml))->name, "qwen-xml");
    assert_string_equal(sl_answer_format_of_template(json, strlen(json))->name, "qwen-json");
    assert_string_equal(sl_answer_format_of_template(keys, strlen(keys))->name, "glm");
    assert_string_equal(sl_answer_format_of_template(think, strlen(think))->name, "think");
    assert_string_equal(sl_answer_format_of_template(plain, strlen(plain))->name, "plain");
    assert_null(sl_answer_format_find("harmony"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_split_off),
        cmocka_unit_test(xml_calls_are_read),
        cmocka_unit_test(without_tools_values_stay_text),
        cmocka_unit_test(unclosed_calls_are_kept),
        cmocka_unit_test(json_calls_are_read),
        cmocka_unit_test(calls_with_keys_are_read),
        cmocka_unit_test(a_call_too_large_is_text),
        cmocka_unit_test(formats_are_recognized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
