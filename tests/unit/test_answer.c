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

#define DS_CALL(name, arguments)                                                                   \
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" name "\n```json\n" arguments                     \
    "\n```<｜tool▁call▁end｜>"
#define DS_CALLS(calls) "<｜tool▁calls▁begin｜>" calls "<｜tool▁calls▁end｜>"

static void fenced_calls_are_read(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"deepseek", true,
         "why\n</think>\n\nLook.\n" DS_CALLS(
             DS_CALL("f", "{\"s\": \"``` </think> <｜tool▁call▁end｜>\"}") "\n" DS_CALL(
                 "g", "{ }")) "\ndone",
         "R[why]T[Look.]C[f {\"s\": \"``` </think> <｜tool▁call▁end｜>\"}]C[g { }]T[done]"},
        {"deepseek", false, "<think>\n\n</think>\n\n" DS_CALLS(DS_CALL("f", "{}")), "C[f {}]"},
        // Inside the thinking a call is not one.
        {"deepseek", true, "a " DS_CALL("f", "{}"), "R[a " DS_CALL("f", "{}") "]"},
        // The calls' end closes a call as well.
        {"deepseek", false,
         "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁calls▁end｜>x",
         "C[f {}]T[x]"},
        {"deepseek", false, "a\n\n" DS_CALLS(DS_CALL("f", "[1]")) "b",
         "T[a" DS_CALL("f", "[1]") "b]"},
        {"deepseek", false, DS_CALL("f", "{\"a\": }"), "T[" DS_CALL("f", "{\"a\": }") "]"},
        {"deepseek", false, DS_CALL("", "{}"), "T[" DS_CALL("", "{}") "]"},
        {"deepseek", false, DS_CALL("f", "{} x"), "T[" DS_CALL("f", "{} x") "]"},
        {"deepseek", false, "a\n<｜tool▁call▁begin｜>f\n{}<｜tool▁call▁end｜>\nb",
         "T[a\n<｜tool▁call▁begin｜>f\n{}<｜tool▁call▁end｜>\nb]"},
        {"deepseek", false, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n``",
         "C?[f {\"a\": 1}]"},
        {"deepseek", false,
         "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁ca", "C?[f {}]"},
        {"deepseek", false, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1",
         "T[<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1]"},
        // What only begins like a mark, down to a part of a character.
        {"deepseek", false, "<｜User｜><｜tool▁cal <ｽ <▁ <｜tool▁",
         "T[<｜User｜><｜tool▁cal <ｽ <▁ <｜tool▁]"},
        {"deepseek", false, "<<｜<｜tool▁calls▁begin｜", "T[<<｜<｜tool▁calls▁begin｜]"},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

#define START "<|start|>assistant"
#define ANALYSIS "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define TO_F "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"

static void messages_are_told_apart(void **state) {
    (void)state;
    const answer_case cases[] = {
        {"harmony", false, ANALYSIS "so\n\nhmm<|end|>" START FINAL "An\n<answer>\n<|return|>",
         "R[so\n\nhmm]T[An\n<answer>]"},
        {"harmony", false, ANALYSIS "why<|end|>" START TO_F "{\"a\": \"<|end|>\\\"\"}<|call|>",
         "R[why]C[f {\"a\": \"<|end|>\\\"\"}]"},
        // A recipient before the channel, also where the prompt has the role already.
        {"harmony", false, " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
         "C[f {}]"},
        {"harmony", false,
         ANALYSIS "a<|end|>" START " to=functions.é-2<|channel|>commentary<|message|> {} <|call|>",
         "R[a]C[é-2 {}]"},
        {"harmony", false, "<|channel|>analysis to=functions.f code<|message|>{}<|end|>",
         "C[f {}]"},
        {"harmony", false,
         "<|channel|>commentary<|message|>First this.<|end|>" START TO_F "{}<|call|>",
         "T[First this.]C[f {}]"},
        {"harmony", false, START "<|message|>no channel<|end|>", "T[no channel]"},
        // Messages of a kind are paragraphs; empty ones are nothing.
        {"harmony", false,
         "<|channel|>commentary<|message|>a\n<|end|>" START FINAL "\nb<|end|>" START FINAL
         "<|end|>" START ANALYSIS "c<|end|>" START ANALYSIS "<|end|>" START ANALYSIS "d",
         "T[a\n\nb]R[c\n\nd]"},
        {"harmony", false, FINAL "a<|end|>" START TO_F "{}<|call|>" START FINAL "b",
         "T[a]C[f {}]T[b]"},
        {"harmony", false, FINAL "a<|end|>" START FINAL "\n\n", "T[a]"},
        // A missing end, or start.
        {"harmony", false, ANALYSIS "a" START FINAL "b", "R[a]T[b]"},
        {"harmony", false, ANALYSIS "a\n<|end|>" FINAL "b<|end|>\nc<|return|><|return|>",
         "R[a]T[b\n\nc]"},
        {"harmony", false, "plain <|x|> to=me\n\n<|retur", "T[plain <|x|> to=me\n\n<|retur]"},
        {"harmony", false, " to do\nit", "T[ to do\nit]"},
        {"harmony", false, "", ""},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

static void broken_messages_are_text(void **state) {
    (void)state;
    const answer_case cases[] = {
        // Headers that say nothing known.
        {"harmony", false, "<|channel|>secret<|message|>a<|end|>" START FINAL "b",
         "T[<|channel|>secret<|message|>a\n\nb]"},
        {"harmony", false, "<|start|>user<|message|>a<|end|>", "T[<|start|>user<|message|>a]"},
        {"harmony", false, "<|channel|>analysis to=python code<|message|>1+1<|call|>",
         "T[<|channel|>analysis to=python code<|message|>1+1]"},
        {"harmony", false, "<|channel|>commentary to=functions.<|message|>{}<|call|>",
         "T[<|channel|>commentary to=functions.<|message|>{}]"},
        {"harmony", false, "<|channel|>final<|channel|>final<|message|>a",
         "T[<|channel|>final<|channel|>final<|message|>a]"},
        {"harmony", false, "<|channel|>final a b<|message|>c",
         "T[<|channel|>final a b<|message|>c]"},
        {"harmony", false, "<|channel|><|message|>a", "T[<|channel|><|message|>a]"},
        {"harmony", false, "a\n\n<|start|>\n\nb<|message|>c", "T[a\n\n<|start|>\n\nb<|message|>c]"},
        {"harmony", false, ANALYSIS "a\n<|channel|>final<|end|>b",
         "R[a]T[\n<|channel|>final<|end|>b]"},
        // Headers without an end.
        {"harmony", false, "a\n" START, "T[a\n" START "]"},
        {"harmony", false, "<|channel|>final<|mess", "T[<|channel|>final<|mess]"},
        // Calls that are none.
        {"harmony", false, ANALYSIS "a<|end|>" START TO_F "{\"a\": }<|call|>b",
         "R[a]T[" START TO_F "{\"a\": }<|call|>b]"},
        {"harmony", false, TO_F "[]<|end|>", "T[" TO_F "[]<|end|>]"},
        {"harmony", false, TO_F "{} x<|return|>" START FINAL "y", "T[" TO_F "{} x<|return|>\n\ny]"},
        {"harmony", false, TO_F "<|call|>", "T[" TO_F "<|call|>]"},
        // Calls without an end.
        {"harmony", false, TO_F "{\"a\": 1}", "C?[f {\"a\": 1}]"},
        {"harmony", false, TO_F "{\"a\": 1}<|ca", "C?[f {\"a\": 1}]"},
        {"harmony", false, TO_F "{\"a\": \"<|call|>", "T[" TO_F "{\"a\": \"<|call|>]"},
        {"harmony", false, TO_F, "T[" TO_F "]"},
    };
    run_cases(cases, SL_COUNT(cases), true);
}

static void a_header_too_long_is_text(void **state) {
    (void)state;
    char input[SL_ANSWER_HEADER_MAX + 64], events[sizeof(input) + 8];
    for (size_t n = SL_ANSWER_HEADER_MAX - 3; n < SL_ANSWER_HEADER_MAX + 3; n++) {
        const char *begin = "<|channel|>commentary to=functions.", *end = "<|message|>";
        size_t name_len = n - strlen(begin) - strlen(end);
        sl_buf in, out;
        sl_buf_init_fixed(&in, input, sizeof(input));
        sl_buf_init_fixed(&out, events, sizeof(events));
        bool fits = n <= SL_ANSWER_HEADER_MAX;
        sl_buf_add_text(&in, begin);
        sl_buf_add_text(&out, fits ? "C[" : "T[<|channel|>commentary to=functions.");
        for (size_t i = 0; i < name_len; i++) {
            sl_buf_add_char(&in, 'n');
            sl_buf_add_char(&out, 'n');
        }
        sl_buf_printf(&in, "%s{}<|call|>x", end);
        sl_buf_add_text(&out, fits ? " {}]T[x]" : "<|message|>{}\n\nx]");
        const answer_case c = {"harmony", false, input, events};
        run_case(&c, NULL);
    }
    // A buffer smaller than that is the limit then, for headers and for what follows them.
    const answer_case cases[] = {
        {"harmony", false, FINAL "fits<|return|>", "T[fits]"},
        {"harmony", false,
         "x<|channel|>commentary to=functions.long <|constrain|>json<|message|>{}<|end|>y",
         "T[x<|channel|>commentary to=functions.long <|constrain|>json<|message|>{}\n\ny]"},
        {"harmony", false,
         "x<|channel|>final to=functions.f<|message|>{\"a\": "
         "\"ü€😀ü€😀\"}<|call|><|start|>assistant" FINAL "y",
         "T[x]T![<|channel|>final to=functions.f<|message|>{\"a\": \"ü€😀ü€😀\"}<|call|>]T[\n\ny]"},
    };
    for (call_cap = 48; call_cap < 64; call_cap++)
        run_cases(cases, SL_COUNT(cases), false);
    const answer_case tiny[] = {
        {"harmony", false, FINAL "a<|return|>", "T[" FINAL "a]"},
    };
    for (call_cap = 0; call_cap < strlen(FINAL); call_cap++)
        run_cases(tiny, SL_COUNT(tiny), false);
    call_cap = sizeof(call_block);
}

// Text is passed on as soon as it cannot be a mark any more.
static void pieces_come_at_once(void **state) {
    (void)state;
    static const struct {
        const char *format, *input, *events;
    } cases[] = {
        {"harmony", ANALYSIS "a", "R[a]"},
        {"harmony", FINAL "a <|", "T[a ]"},
        {"harmony", FINAL "a <|x", "T[a <|x]"},
        {"harmony", "a", "T[a]"},
        {"harmony", " to b", "T[ to b]"},
        {"harmony", "<|channel|>\n", "T[<|channel|>\n]"},
        {"harmony", TO_F "{}<|call|>", "C[f {}]"},
        {"deepseek", "a <｜t", "T[a ]"},
        {"deepseek", "a <｜U", "T[a <｜U]"},
        {"deepseek", "<｜tool▁calls▁begin｜>" DS_CALL("f", "{}"), "C[f {}]"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        recorder r = {0};
        sl_answer answer;
        sl_buf_init_fixed(&r.out, out_block, sizeof(out_block));
        sl_answer_init(&answer, sl_answer_format_find(cases[i].format), false, NULL, call_block,
                       call_cap, json_block, json_cap, record, &r);
        sl_answer_feed(&answer, cases[i].input, strlen(cases[i].input));
        close_piece(&r);
        assert_string_equal(r.out.data, cases[i].events);
    }
}

static void headers_are_told_from_content(void **state) {
    (void)state;
    recorder r = {0};
    sl_answer answer;
    sl_buf_init_fixed(&r.out, out_block, sizeof(out_block));
    sl_answer_init(&answer, sl_answer_format_find("harmony"), false, NULL, call_block, call_cap,
                   json_block, json_cap, record, &r);
    assert_false(sl_answer_in_header(&answer));
    static const struct {
        const char *piece;
        bool in_header;
    } steps[] = {{"<|channel|>", true}, {"final", true},    {"<|message|>", false},
                 {"a", false},          {"<|end|>", false}, {"<|start|>", true}};
    for (size_t i = 0; i < SL_COUNT(steps); i++) {
        sl_answer_feed(&answer, steps[i].piece, strlen(steps[i].piece));
        assert_int_equal(sl_answer_in_header(&answer), steps[i].in_header);
    }
}

static bool is_mark(const char *format, const char *text) {
    return sl_answer_is_mark(sl_answer_format_find(format), text, strlen(text));
}

static void marks_are_known(void **state) {
    (void)state;
    static const char *const harmony[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                          "<|message|>", "<|end|>",     "<|return|>",
                                          "<|call|>"};
    for (size_t i = 0; i < SL_COUNT(harmony); i++) {
        assert_true(is_mark("harmony", harmony[i]));
        assert_false(is_mark("plain", harmony[i]));
        assert_false(is_mark("qwen-xml", harmony[i]));
    }
    assert_true(is_mark("deepseek", "<｜tool▁calls▁begin｜>"));
    assert_true(is_mark("deepseek", "<｜tool▁calls▁end｜>"));
    assert_true(is_mark("deepseek", "<｜tool▁call▁begin｜>"));
    assert_true(is_mark("deepseek", "<｜tool▁call▁end｜>"));
    assert_true(is_mark("deepseek", "<｜tool▁sep｜>"));
    assert_false(is_mark("deepseek", "<｜end▁of▁sentence｜>"));
    assert_false(is_mark("harmony", "<|endoftext|>"));
    assert_false(is_mark("harmony", "<|end|"));
    assert_false(is_mark("harmony", ""));
    assert_false(is_mark("qwen-xml", "<|im_end|>"));
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

// What an opening begins, the parser reads as a call; without a name, the name and its end are to follow.
static void openings_begin_calls(void **state) {
    (void)state;
    static const struct {
        const char *format, *rest;
        bool json;
    } cases[] = {
        {"qwen-xml", "</function>\n</tool_call>", false},
        {"qwen-json", "{}}\n</tool_call>", true},
        {"glm", "</tool_call>", false},
        {"deepseek", "{}\n```<｜tool▁call▁end｜>", true},
        {"harmony", "{}<|call|>", true},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const sl_answer_format *f = sl_answer_format_find(cases[i].format);
        assert_int_equal(sl_answer_calls_json(f), cases[i].json);
        for (int named = 0; named < 2; named++) {
            sl_buf text;
            sl_buf_init(&text);
            assert_true(sl_answer_add_call_opening(f, named ? "f" : NULL, &text));
            if (!named) {
                sl_buf_add_text(&text, "f");
                sl_buf_add_text(&text, sl_answer_call_name_end(f));
            }
            sl_buf_add_text(&text, cases[i].rest);
            const answer_case c = {cases[i].format, false, text.data, "C[f {}]"};
            run_cases(&c, 1, false);
            sl_buf_deinit(&text);
        }
    }
    sl_buf none;
    sl_buf_init(&none);
    assert_false(sl_answer_add_call_opening(sl_answer_format_find("think"), "f", &none));
    sl_buf_deinit(&none);
}

// Where an answer's own text is: what may be held to a schema.
static void text_is_told_from_the_rest(void **state) {
    (void)state;
    static const struct {
        const char *format, *piece;
        bool in_text;
    } steps[] = {
        {"harmony", "", false},
        {NULL, "<|channel|>analysis<|message|>", false},
        {NULL, "hm", false},
        {NULL, "<|end|>", false},
        {NULL, "<|start|>assistant", false},
        {NULL, "<|channel|>final<|message|>", true},
        {NULL, "{", true},
        {NULL, "<|end|>", false},
        {"qwen-xml", "", true},
        {NULL, "<think>", false},
        {NULL, "a</think>", true},
        {NULL, "b", true},
        {NULL, "<tool_call>", false},
        {"plain", "a", true},
    };
    recorder r = {0};
    sl_answer answer;
    sl_buf_init_fixed(&r.out, out_block, sizeof(out_block));
    for (size_t i = 0; i < SL_COUNT(steps); i++) {
        if (steps[i].format)
            sl_answer_init(&answer, sl_answer_format_find(steps[i].format), false, NULL, call_block,
                           call_cap, json_block, json_cap, record, &r);
        sl_answer_feed(&answer, steps[i].piece, strlen(steps[i].piece));
        if (sl_answer_in_text(&answer) != steps[i].in_text)
            fail_msg("step %zu, after '%s'", i, steps[i].piece);
    }
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
    const char *fenced = "{{ '<think>' }}<tool_call> arguments <｜tool▁calls▁begin｜>";
    const char *messages =
        "{{ '<|start|>assistant<|channel|>' ~ m.channel ~ '<|message|>' }}<think>";
    assert_string_equal(sl_answer_format_of_template(fenced, strlen(fenced))->name, "deepseek");
    assert_string_equal(sl_answer_format_of_template(messages, strlen(messages))->name, "harmony");
    assert_null(sl_answer_format_find("other"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_split_off),
        cmocka_unit_test(xml_calls_are_read),
        cmocka_unit_test(openings_begin_calls),
        cmocka_unit_test(text_is_told_from_the_rest),
        cmocka_unit_test(without_tools_values_stay_text),
        cmocka_unit_test(unclosed_calls_are_kept),
        cmocka_unit_test(json_calls_are_read),
        cmocka_unit_test(calls_with_keys_are_read),
        cmocka_unit_test(fenced_calls_are_read),
        cmocka_unit_test(messages_are_told_apart),
        cmocka_unit_test(broken_messages_are_text),
        cmocka_unit_test(a_header_too_long_is_text),
        cmocka_unit_test(pieces_come_at_once),
        cmocka_unit_test(headers_are_told_from_content),
        cmocka_unit_test(marks_are_known),
        cmocka_unit_test(a_call_too_large_is_text),
        cmocka_unit_test(formats_are_recognized),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
