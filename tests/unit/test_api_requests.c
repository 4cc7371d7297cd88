/* Requests of the API: every field that is read, and every refusal with the parameter that it names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api_format.h"

#define ARENA_BYTES ((size_t)1 << 20)

typedef struct fixture {
    void *block;
    sl_arena arena;
    sl_api_request req;
    sl_api_error err;
    sl_api_limits limits;
} fixture;

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof(*f));
    if (!f || !(f->block = malloc(ARENA_BYTES)))
        return -1;
    f->limits.n_vocab = 1000;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    free(f->block);
    free(f);
    return 0;
}

static sl_status parse_in(fixture *f, sl_api_dialect dialect, const char *body,
                          size_t arena_bytes) {
    // The body goes away, so that a pointer into it would be seen.
    size_t len = strlen(body);
    char *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, body, len);
    memset(&f->err, 0, sizeof(f->err));
    sl_arena_init(&f->arena, "request", f->block, arena_bytes);
    sl_status st = sl_api_parse(dialect, copy, len, &f->limits, &f->arena, &f->req, &f->err);
    memset(copy, '#', len);
    free(copy);
    return st;
}

static sl_status parse(fixture *f, sl_api_dialect dialect, const char *body) {
    return parse_in(f, dialect, body, ARENA_BYTES);
}

#define MESSAGES "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define PROMPT "\"model\":\"m\",\"prompt\":\"hi\""
#define INPUT "\"model\":\"m\",\"input\":\"hi\""
#define LIMITED MESSAGES ",\"max_tokens\":9"

// A body of the dialect with these fields besides those that must be there; they may be NULL.
static sl_status parse_fields(fixture *f, sl_api_dialect dialect, const char *fields) {
    static const char *const base[SL_API_DIALECTS] = {MESSAGES, PROMPT, INPUT, LIMITED, MESSAGES};
    char body[8192];
    (void)snprintf(body, sizeof(body), "{%s%s%s}", base[dialect], fields ? "," : "",
                   fields ? fields : "");
    return parse(f, dialect, body);
}

static void assert_read(fixture *f, sl_api_dialect dialect, const char *fields) {
    if (parse_fields(f, dialect, fields))
        fail_msg("%s: %s: %s", fields ? fields : "", f->err.param, f->err.message);
}

#define assert_render(f, expected) assert_string_equal((f)->req.render.text, expected)

/* ---- what is read ------------------------------------------------------------------------------------------------ */

static void nothing_is_set_that_was_not_said(void **state) {
    fixture *f = *state;
    for (int d = 0; d < SL_API_DIALECTS; d++) {
        assert_read(f, (sl_api_dialect)d, NULL);
        assert_int_equal(f->req.dialect, d);
        assert_string_equal(f->req.model.text, "m");
        assert_int_equal(f->req.set, d == SL_API_MESSAGES ? SL_API_SET_MAX_TOKENS : 0);
        assert_false(f->req.stream);
        assert_true(f->req.parallel_tool_calls);
        assert_int_equal(f->req.tool_choice, SL_API_TOOL_AUTO);
        assert_int_equal(f->req.constraint, SL_API_CONSTRAINT_NONE);
        assert_int_equal(f->req.n_ignored + f->req.n_tools + f->req.n_stop + f->req.n_bias, 0);
        if (d == SL_API_COMPLETIONS)
            assert_string_equal(f->req.prompt.text, "hi");
        else
            assert_render(f, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_"
                             "generation_prompt\":true}");
    }
    // null is the same as absent
    assert_read(f, SL_API_CHAT,
                "\"temperature\":null,\"n\":null,\"tools\":null,\"stop\":null,\"extra\":null");
    assert_int_equal(f->req.set + f->req.n_ignored, 0);
}

static void sampling_is_read_by_all(void **state) {
    fixture *f = *state;
    for (int d = 0; d < SL_API_DIALECTS; d++) {
        assert_read(
            f, (sl_api_dialect)d,
            "\"stream\":true,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":40,\"min_p\":0.125,"
            "\"presence_penalty\":-2,\"frequency_penalty\":2,\"repeat_penalty\":1.5,\"seed\":-1");
        const sl_api_request *r = &f->req;
        uint32_t sampling = SL_API_SET_TEMPERATURE | SL_API_SET_TOP_P | SL_API_SET_TOP_K |
                            SL_API_SET_MIN_P | SL_API_SET_PRESENCE | SL_API_SET_FREQUENCY |
                            SL_API_SET_REPEAT | SL_API_SET_SEED;
        assert_int_equal(r->set & sampling, sampling);
        assert_true(r->stream);
        assert_true(r->temperature == 0.5f && r->top_p == 0.25f && r->min_p == 0.125f);
        assert_true(r->presence_penalty == -2 && r->frequency_penalty == 2 &&
                    r->repeat_penalty == 1.5f);
        assert_int_equal(r->top_k, 40);
        assert_true(r->seed == UINT64_MAX);
    }
    assert_read(
        f, SL_API_CHAT,
        "\"seed\":18446744073709551615,\"top_k\":-1,\"repetition_penalty\":2,\"temperature\":0");
    assert_true(f->req.seed == UINT64_MAX && f->req.top_k == 0 && f->req.repeat_penalty == 2);
    assert_true(f->req.set & SL_API_SET_TEMPERATURE);
}

static void limits_and_stops_are_read(void **state) {
    fixture *f = *state;
    assert_read(f, SL_API_CHAT, "\"max_completion_tokens\":7,\"max_tokens\":7,\"stop\":\"END\"");
    assert_int_equal(f->req.max_tokens, 7);
    assert_int_equal(f->req.n_stop, 1);
    assert_string_equal(f->req.stop[0], "END");
    assert_read(f, SL_API_COMPLETIONS, "\"max_tokens\":3,\"stop\":[\"a\",\"\\u00e9\"]");
    assert_int_equal(f->req.max_tokens, 3);
    assert_int_equal(f->req.n_stop, 2);
    assert_int_equal(f->req.stop_len[1], 2);
    assert_read(f, SL_API_RESPONSES, "\"max_output_tokens\":4");
    assert_int_equal(f->req.max_tokens, 4);
    assert_read(f, SL_API_MESSAGES, "\"stop_sequences\":[\"x\"]");
    assert_int_equal(f->req.max_tokens, 9);
    assert_string_equal(f->req.stop[0], "x");
    assert_read(f, SL_API_CHAT, "\"stop\":[]");
    assert_int_equal(f->req.n_stop, 0);
}

static void bias_and_logprobs_are_read(void **state) {
    fixture *f = *state;
    assert_read(f, SL_API_CHAT,
                "\"logit_bias\":{\"7\":-100,\"999\":0.5},\"logprobs\":true,\"top_logprobs\":20");
    assert_int_equal(f->req.n_bias, 2);
    assert_int_equal(f->req.bias[1].token, 999);
    assert_true(f->req.bias[0].bias == -100 && f->req.bias[1].bias == 0.5f);
    assert_true(f->req.logprobs);
    assert_int_equal(f->req.n_top_logprobs, 20);
    assert_read(f, SL_API_COMPLETIONS, "\"logprobs\":0");
    assert_true(f->req.logprobs && f->req.n_top_logprobs == 0);
    assert_read(f, SL_API_COMPLETIONS, "\"logprobs\":false");
    assert_false(f->req.logprobs);
    assert_read(f, SL_API_RESPONSES,
                "\"include\":[\"message.output_text.logprobs\",\"reasoning.encrypted_content\"]");
    assert_true(f->req.logprobs && f->req.n_top_logprobs == 0);
    assert_read(f, SL_API_CHAT, "\"stream\":true,\"stream_options\":{\"include_usage\":true}");
    assert_true(f->req.include_usage);
}

static void prompts_are_read(void **state) {
    fixture *f = *state;
    assert_int_equal(parse(f, SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[5,0,999]}"), SL_OK);
    assert_null(f->req.prompt.text);
    assert_int_equal(f->req.n_prompt_ids, 3);
    assert_int_equal(f->req.prompt_ids[2], 999);
    assert_int_equal(parse(f, SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"one\"]}"), SL_OK);
    assert_string_equal(f->req.prompt.text, "one");
    assert_int_equal(parse(f, SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[[1]]}"), SL_OK);
    assert_int_equal(f->req.n_prompt_ids, 1);
}

static void formats_are_read(void **state) {
    fixture *f = *state;
    static const struct {
        sl_api_dialect dialect;
        const char *fields, *path;
    } schemas[] = {
        {SL_API_CHAT,
         "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
         "true,"
         "\"schema\":{\"type\":\"object\",\"x\":[1.50,\"\\u00e9\\n\",null,true]}}}",
         "response_format.json_schema.schema"},
        {SL_API_CHAT,
         "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"object\",\"x\":[1."
         "50,\"\\u00e9\\n\","
         "null,true]}}",
         "response_format.schema"},
        {SL_API_RESPONSES,
         "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"type\":"
         "\"object\",\"x\":"
         "[1.50,\"\\u00e9\\n\",null,true]}}}",
         "text.format.schema"},
        {SL_API_MESSAGES,
         "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\","
         "\"x\":"
         "[1.50,\"\\u00e9\\n\",null,true]}}}",
         "output_config.format.schema"},
    };
    for (size_t i = 0; i < SL_COUNT(schemas); i++) {
        assert_read(f, schemas[i].dialect, schemas[i].fields);
        assert_int_equal(f->req.constraint, SL_API_CONSTRAINT_JSON_SCHEMA);
        assert_string_equal(f->req.schema.text,
                            "{\"type\":\"object\",\"x\":[1.50,\"\u00e9\\n\",null,true]}");
        assert_string_equal(f->req.schema_path, schemas[i].path);
    }
    assert_read(f, SL_API_CHAT, "\"response_format\":{\"type\":\"json_object\"}");
    assert_int_equal(f->req.constraint, SL_API_CONSTRAINT_JSON_OBJECT);
    assert_string_equal(f->req.schema_path, "response_format");
    assert_read(f, SL_API_RESPONSES, "\"text\":{\"format\":{\"type\":\"json_object\"}}");
    assert_string_equal(f->req.schema_path, "text.format");
    assert_read(f, SL_API_RESPONSES,
                "\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"medium\"}");
    assert_int_equal(f->req.constraint, SL_API_CONSTRAINT_NONE);
}

#define CHAT_TOOLS                                                                                 \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","        \
    "\"parameters\":{\"type\":\"object\"},\"strict\":true}},{\"type\":\"function\","               \
    "\"function\":{\"name\":\"g\"}}]"
#define RENDERED_TOOLS                                                                             \
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":"   \
    "{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":"  \
    "{\"type\":\"object\",\"properties\":{}}}}]"

static void tools_are_read(void **state) {
    fixture *f = *state;
    static const struct {
        sl_api_dialect dialect;
        const char *fields, *path;
    } tools[] = {
        {SL_API_CHAT, CHAT_TOOLS, "tools[%zu].function.parameters"},
        {SL_API_RESPONSES,
         "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\",\"parameters\":{"
         "\"type\":"
         "\"object\"},\"strict\":true},{\"type\":\"function\",\"name\":\"g\",\"parameters\":null}]",
         "tools[%zu].parameters"},
        {SL_API_MESSAGES,
         "\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"},"
         "\"strict\":true},"
         "{\"type\":\"custom\",\"name\":\"g\",\"input_schema\":{\"type\":\"object\",\"properties\":"
         "{}}}]",
         "tools[%zu].input_schema"},
    };
    for (size_t i = 0; i < SL_COUNT(tools); i++) {
        assert_read(f, tools[i].dialect, tools[i].fields);
        assert_int_equal(f->req.n_tools, 2);
        assert_string_equal(f->req.tools[0].name.text, "f");
        assert_string_equal(f->req.tools[0].schema.text, "{\"type\":\"object\"}");
        assert_true(f->req.tools[0].strict && !f->req.tools[1].strict);
        assert_string_equal(f->req.tools_json.text, RENDERED_TOOLS);
        assert_string_equal(f->req.tools_path, tools[i].path);
        assert_non_null(strstr(f->req.render.text, ",\"tools\":" RENDERED_TOOLS));
    }
}

static void choices_are_read(void **state) {
    fixture *f = *state;
    static const struct {
        sl_api_dialect dialect;
        const char *choice;
        sl_api_tool_choice expected;
    } choices[] = {
        {SL_API_CHAT, "\"auto\"", SL_API_TOOL_AUTO},
        {SL_API_CHAT, "\"none\"", SL_API_TOOL_NONE},
        {SL_API_CHAT, "\"required\"", SL_API_TOOL_REQUIRED},
        {SL_API_CHAT, "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}", SL_API_TOOL_NAMED},
        {SL_API_RESPONSES, "\"required\"", SL_API_TOOL_REQUIRED},
        {SL_API_RESPONSES, "{\"type\":\"function\",\"name\":\"g\"}", SL_API_TOOL_NAMED},
        {SL_API_MESSAGES, "{\"type\":\"auto\"}", SL_API_TOOL_AUTO},
        {SL_API_MESSAGES, "{\"type\":\"none\"}", SL_API_TOOL_NONE},
        {SL_API_MESSAGES, "{\"type\":\"any\"}", SL_API_TOOL_REQUIRED},
        {SL_API_MESSAGES, "{\"type\":\"tool\",\"name\":\"g\",\"disable_parallel_tool_use\":true}",
         SL_API_TOOL_NAMED},
    };
    static const char *const tools[SL_API_DIALECTS] = {
        [SL_API_CHAT] = CHAT_TOOLS,
        [SL_API_RESPONSES] = "\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":"
                             "\"function\",\"name\":\"g\"}]",
        [SL_API_MESSAGES] =
            "\"tools\":[{\"name\":\"f\",\"input_schema\":{}},{\"name\":\"g\",\"input_schema\":{}}]",
    };
    for (size_t i = 0; i < SL_COUNT(choices); i++) {
        char fields[2048];
        // The choice stands before the tools, which it has to wait for.
        (void)snprintf(fields, sizeof(fields), "\"tool_choice\":%s,%s", choices[i].choice,
                       tools[choices[i].dialect]);
        assert_read(f, choices[i].dialect, fields);
        assert_int_equal(f->req.tool_choice, choices[i].expected);
        assert_int_equal(f->req.named_tool, choices[i].expected == SL_API_TOOL_NAMED);
        assert_int_equal(strstr(f->req.render.text, "\"tools\"") == NULL,
                         choices[i].expected == SL_API_TOOL_NONE);
        assert_int_equal(f->req.n_tools, 2);
    }
    assert_false(f->req.parallel_tool_calls);
    assert_read(f, SL_API_CHAT, "\"parallel_tool_calls\":false");
    assert_false(f->req.parallel_tool_calls);
    assert_true(f->req.set & SL_API_SET_PARALLEL);
}

static void thinking_is_read(void **state) {
    fixture *f = *state;
    static const struct {
        sl_api_dialect dialect;
        const char *fields, *rendered;
    } cases[] = {
        {SL_API_CHAT, "\"reasoning_effort\":\"none\"",
         "\"enable_thinking\":false,\"thinking\":false}"},
        {SL_API_CHAT, "\"reasoning_effort\":\"minimal\"",
         "\"enable_thinking\":true,\"thinking\":true,\"reasoning_effort\":\"low\"}"},
        {SL_API_CHAT, "\"reasoning_effort\":\"xhigh\"",
         "\"enable_thinking\":true,\"thinking\":true,\"reasoning_effort\":\"high\"}"},
        {SL_API_CHAT, "\"thinking\":{\"type\":\"disabled\"}",
         "\"enable_thinking\":false,\"thinking\":false}"},
        {SL_API_CHAT, "\"enable_thinking\":true", "\"enable_thinking\":true,\"thinking\":true}"},
        {SL_API_CHAT, "\"chat_template_kwargs\":{\"enable_thinking\":false,\"date\":[1]}",
         "\"enable_thinking\":false,\"thinking\":false,\"date\":[1]}"},
        {SL_API_RESPONSES, "\"reasoning\":{\"effort\":\"medium\",\"summary\":\"auto\"}",
         "\"enable_thinking\":true,\"thinking\":true,\"reasoning_effort\":\"medium\"}"},
        {SL_API_MESSAGES, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}",
         "\"enable_thinking\":true,\"thinking\":true}"},
        {SL_API_MESSAGES, "\"output_config\":{\"effort\":\"max\"}",
         "\"add_generation_prompt\":true,\"reasoning_effort\":\"high\"}"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        assert_read(f, cases[i].dialect, cases[i].fields);
        const char *at = strstr(f->req.render.text, cases[i].rendered);
        if (!at)
            fail_msg("%s: %s", cases[i].fields, f->req.render.text);
        assert_string_equal(at, cases[i].rendered); // the end
    }
    assert_read(
        f, SL_API_MESSAGES,
        "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024,\"display\":\"omitted\"}");
    assert_int_equal(f->req.thinking_budget, 1024);
    assert_int_equal(f->req.set,
                     SL_API_SET_MAX_TOKENS | SL_API_SET_THINKING | SL_API_SET_THINKING_BUDGET);
    assert_true(f->req.enable_thinking && f->req.hide_reasoning);
}

/* ---- conversations ----------------------------------------------------------------------------------------------- */

static void assert_messages(fixture *f, sl_api_dialect dialect, const char *messages,
                            const char *expected) {
    char body[4096], text[4096];
    (void)snprintf(body, sizeof(body), "{\"model\":\"m\",%s%s}",
                   dialect == SL_API_MESSAGES ? "\"max_tokens\":1," : "", messages);
    (void)snprintf(text, sizeof(text), "{\"messages\":[%s],\"add_generation_prompt\":true}",
                   expected);
    if (parse(f, dialect, body))
        fail_msg("%s: %s: %s", messages, f->err.param, f->err.message);
    assert_render(f, text);
}

static void chat_messages_become_turns(void **state) {
    fixture *f = *state;
    assert_messages(
        f, SL_API_CHAT,
        "\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"developer\",\"content\":"
        "[{\"type\":\"text\","
        "\"text\":\"b\"},{\"type\":\"text\",\"text\":\"\\\"c\\u0001\"}]},{\"role\":\"user\","
        "\"name\":\"n\",\"content\":\"\"},"
        "{\"role\":\"user\",\"content\":[]}]",
        "{\"role\":\"system\",\"content\":\"a\\n\\nb\\\"c\\u0001\"},"
        "{\"role\":\"user\",\"content\":\"\",\"name\":\"n\"},{\"role\":\"user\",\"content\":\"\"}");
    assert_messages(
        f, SL_API_CHAT,
        "\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":\"r\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":"
        "\" {\\\"a\\\": [1, 2]}\"}},{\"function\":{\"name\":\"g\",\"arguments\":\"\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"t\"},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]",
        "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"r\",\"tool_calls\":[{"
        "\"id\":\"1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\": {\"a\": [1, 2]}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"content\":\"t\",\"tool_call_id\":\"1\"},"
        "{\"role\":\"assistant\",\"content\":\"no\"}");
    f->limits.null_content = true;
    assert_messages(
        f, SL_API_CHAT,
        "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"g\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
        "\"function\":"
        "{\"name\":\"g\",\"arguments\":\"{}\"}}]}]",
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
        "\"function\":"
        "{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"assistant\",\"content\":\"\",\"tool_"
        "calls\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]}");
}

static void blocks_become_turns(void **state) {
    fixture *f = *state;
    assert_messages(
        f, SL_API_MESSAGES,
        "\"system\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],"
        "\"messages\":["
        "{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":\"1\"},"
        "{\"type\":\"text\",\"text\":\"2\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"r\","
        "\"signature\":\"s\"},"
        "{\"type\":\"redacted_thinking\",\"data\":\"x\"},{\"type\":\"text\",\"text\":\"t\"},"
        "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"a\":1}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\","
        "\"content\":[{\"type\":"
        "\"text\",\"text\":\"o\"}],\"is_error\":true},{\"type\":\"tool_result\",\"tool_use_id\":"
        "\"2\"},"
        "{\"type\":\"text\",\"text\":\"n\"}]}]",
        "{\"role\":\"system\",\"content\":\"ab\"},{\"role\":\"user\",\"content\":\"q\\n\\n12\"},"
        "{\"role\":\"assistant\",\"content\":\"t\",\"reasoning_content\":\"r\",\"tool_calls\":[{"
        "\"id\":\"1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},"
        "{\"role\":\"tool\",\"content\":\"Error: o\",\"tool_call_id\":\"1\"},"
        "{\"role\":\"tool\",\"content\":\"\",\"tool_call_id\":\"2\"},{\"role\":\"user\","
        "\"content\":\"n\"}");
    assert_int_equal(f->req.n_ignored, 1);
    assert_string_equal(f->req.ignored[0], "messages[2].content[1].data");
}

static void items_become_turns(void **state) {
    fixture *f = *state;
    assert_messages(
        f, SL_API_RESPONSES,
        "\"instructions\":\"a\",\"input\":[{\"type\":\"message\",\"role\":\"developer\","
        "\"content\":\"b\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"q\"}]},"
        "{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[],\"content\":[{\"type\":\"reasoning_"
        "text\",\"text\":\"r\"}]},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"t\","
        "\"annotations\":[]}]},{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\","
        "\"arguments\":\"{}\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":\"o\"},"
        "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}]},"
        "{\"role\":\"assistant\",\"content\":\"u\"}]",
        "{\"role\":\"system\",\"content\":\"a\\n\\nb\"},{\"role\":\"user\",\"content\":\"q\"},"
        "{\"role\":\"assistant\",\"content\":\"t\",\"reasoning_content\":\"r\",\"tool_calls\":[{"
        "\"id\":\"1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},"
        "{\"role\":\"tool\",\"content\":\"o\",\"tool_call_id\":\"1\"},"
        "{\"role\":\"assistant\",\"content\":\"u\",\"reasoning_content\":\"s\"}");
    assert_int_equal(f->req.n_ignored, 2); // id, annotations
    assert_string_equal(f->req.echo.text,
                        ",\"parallel_tool_calls\":true,\"temperature\":null,\"top_p\":null,"
                        "\"max_output_tokens\":null,\"text\":{\"format\":{\"type\":\"text\"}},"
                        "\"tool_choice\":\"auto\",\"tools\":[]");
}

/* ---- what is ignored, what is refused ---------------------------------------------------------------------------- */

static void what_means_nothing_is_ignored_and_counted(void **state) {
    fixture *f = *state;
    assert_read(f, SL_API_CHAT,
                "\"user\":\"u\",\"metadata\":{\"a\":1},\"store\":true,\"service_tier\":\"auto\","
                "\"f5\":5,\"f6\":6,"
                "\"f7\":7,\"f8\":8,\"f9\":9,\"stream_options\":{\"include_obfuscation\":false}");
    assert_int_equal(f->req.n_ignored, 10);
    assert_string_equal(f->req.ignored[0], "user");
    assert_string_equal(f->req.ignored[SL_API_IGNORED_MAX - 1], "f8");
    // A field that means something is taken where it says what happens anyway.
    assert_read(f, SL_API_CHAT,
                "\"n\":1,\"best_of\":1,\"echo\":false,\"suffix\":\"\",\"modalities\":[\"text\"],"
                "\"functions\":[],"
                "\"length_penalty\":1.0,\"verbosity\":\"medium\",\"mirostat\":0,\"add_generation_"
                "prompt\":true,"
                "\"continue_final_message\":false");
    assert_int_equal(f->req.n_ignored, 0);
    assert_read(f, SL_API_RESPONSES,
                "\"background\":false,\"truncation\":\"disabled\",\"store\":true");
    assert_int_equal(f->req.n_ignored, 1);
}

typedef struct refusal {
    sl_api_dialect dialect;
    const char *fields; // NULL: body is the whole body
    const char *param;
    sl_api_error_kind kind;
    const char *body;
} refusal;

#define INVALID SL_API_ERR_INVALID
#define UNSUPPORTED SL_API_ERR_UNSUPPORTED
#define MISSING SL_API_ERR_MISSING
#define BODY(dialect, body, param, kind)                                                           \
    { dialect, NULL, param, kind, body }
#define CHAT(fields, param, kind)                                                                  \
    { SL_API_CHAT, fields, param, kind, NULL }
#define MSG(text, param, kind)                                                                     \
    BODY(SL_API_CHAT,                                                                              \
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}," text "]}", param, \
         kind)
#define BLOCK(text, param, kind)                                                                   \
    BODY(SL_API_MESSAGES,                                                                          \
         "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[" text   \
         "]}]}",                                                                                   \
         param, kind)
#define ITEM(text, param, kind)                                                                    \
    BODY(SL_API_RESPONSES, "{\"model\":\"m\",\"input\":[" text "]}", param, kind)

static const refusal refusals[] = {
    BODY(SL_API_CHAT, "", "", SL_API_ERR_SYNTAX),
    BODY(SL_API_CHAT, "{", "", SL_API_ERR_SYNTAX),
    BODY(SL_API_CHAT, "{\"n\":1,\"n\":1}", "", SL_API_ERR_SYNTAX),
    BODY(SL_API_CHAT, "[]", "", INVALID),
    BODY(SL_API_CHAT, "{}", "messages", MISSING),
    BODY(SL_API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "model", MISSING),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\"}", "prompt", MISSING),
    BODY(SL_API_RESPONSES, "{\"model\":\"m\"}", "input", MISSING),
    BODY(SL_API_MESSAGES, "{" MESSAGES "}", "max_tokens", MISSING),
    BODY(SL_API_COUNT_TOKENS, "{\"model\":\"m\"}", "messages", MISSING),
    BODY(SL_API_CHAT, "{\"model\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "model",
         INVALID),
    BODY(SL_API_CHAT, "{\"model\":\"m\",\"messages\":{}}", "messages", INVALID),
    BODY(SL_API_CHAT, "{\"model\":\"m\",\"messages\":[]}", "messages", INVALID),
    BODY(SL_API_MESSAGES, "{\"model\":\"m\",\"messages\":[],\"max_tokens\":1}", "messages",
         INVALID),
    // sampling
    CHAT("\"stream\":1", "stream", INVALID),
    CHAT("\"temperature\":2.1", "temperature", INVALID),
    CHAT("\"temperature\":\"1\"", "temperature", INVALID),
    CHAT("\"temperature\":1e999", "temperature", INVALID),
    CHAT("\"top_p\":-0.1", "top_p", INVALID),
    CHAT("\"top_k\":1.5", "top_k", INVALID),
    CHAT("\"top_k\":-2", "top_k", INVALID),
    CHAT("\"min_p\":1.1", "min_p", INVALID),
    CHAT("\"presence_penalty\":3", "presence_penalty", INVALID),
    CHAT("\"frequency_penalty\":-3", "frequency_penalty", INVALID),
    CHAT("\"repeat_penalty\":0", "repeat_penalty", INVALID),
    CHAT("\"repetition_penalty\":-1", "repetition_penalty", INVALID),
    CHAT("\"seed\":1.5", "seed", INVALID),
    CHAT("\"seed\":\"1\"", "seed", INVALID),
    CHAT("\"seed\":18446744073709551616", "seed", INVALID),
    CHAT("\"max_tokens\":0", "max_tokens", INVALID),
    CHAT("\"max_tokens\":-1", "max_tokens", INVALID),
    CHAT("\"max_tokens\":4294967296", "max_tokens", INVALID),
    CHAT("\"max_tokens\":1,\"max_completion_tokens\":2", "max_completion_tokens", INVALID),
    CHAT("\"logit_bias\":[]", "logit_bias", INVALID),
    CHAT("\"logit_bias\":{\"1000\":1}", "logit_bias.1000", INVALID),
    CHAT("\"logit_bias\":{\"-1\":1}", "logit_bias.-1", INVALID),
    CHAT("\"logit_bias\":{\"a\":1}", "logit_bias.a", INVALID),
    CHAT("\"logit_bias\":{\"4294967297\":1}", "logit_bias.4294967297", INVALID),
    CHAT("\"logit_bias\":{\"1\":101}", "logit_bias.1", INVALID),
    CHAT("\"logit_bias\":{\"1\":\"1\"}", "logit_bias.1", INVALID),
    CHAT("\"stop\":7", "stop", INVALID),
    CHAT("\"stop\":\"\"", "stop", INVALID),
    CHAT("\"stop\":[\"a\",\"\"]", "stop[1]", INVALID),
    CHAT("\"stop\":[\"a\",1]", "stop[1]", INVALID),
    CHAT("\"stop\":\"a\\u0000b\"", "stop", INVALID),
    CHAT("\"stop\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "stop", INVALID),
    CHAT("\"logprobs\":1", "logprobs", INVALID),
    CHAT("\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", INVALID),
    CHAT("\"top_logprobs\":2", "top_logprobs", INVALID),
    CHAT("\"stream_options\":1", "stream_options", INVALID),
    CHAT("\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", INVALID),
    {SL_API_COMPLETIONS, "\"logprobs\":21", "logprobs", INVALID, NULL},
    {SL_API_COMPLETIONS, "\"logprobs\":true", "logprobs", INVALID, NULL},
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[]}", "prompt", INVALID),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":7}", "prompt", INVALID),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[\"a\",\"b\"]}", "prompt", UNSUPPORTED),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[true]}", "prompt[0]", INVALID),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[1,1000]}", "prompt[1]", INVALID),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[1,\"a\"]}", "prompt[1]", INVALID),
    BODY(SL_API_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[1.5]}", "prompt[0]", INVALID),
    // what is not supported
    CHAT("\"n\":2", "n", UNSUPPORTED),
    CHAT("\"best_of\":2", "best_of", UNSUPPORTED),
    CHAT("\"functions\":[{}]", "functions", UNSUPPORTED),
    CHAT("\"function_call\":\"auto\"", "function_call", UNSUPPORTED),
    CHAT("\"audio\":{\"voice\":\"a\"}", "audio", UNSUPPORTED),
    CHAT("\"modalities\":[\"text\",\"audio\"]", "modalities", UNSUPPORTED),
    CHAT("\"web_search_options\":{\"a\":1}", "web_search_options", UNSUPPORTED),
    CHAT("\"verbosity\":\"low\"", "verbosity", UNSUPPORTED),
    CHAT("\"guided_json\":{\"a\":1}", "guided_json", UNSUPPORTED),
    CHAT("\"grammar\":\"root\"", "grammar", UNSUPPORTED),
    CHAT("\"min_tokens\":5", "min_tokens", UNSUPPORTED),
    CHAT("\"mirostat\":2", "mirostat", UNSUPPORTED),
    CHAT("\"ignore_eos\":true", "ignore_eos", UNSUPPORTED),
    CHAT("\"add_generation_prompt\":false", "add_generation_prompt", UNSUPPORTED),
    CHAT("\"continue_final_message\":true", "continue_final_message", UNSUPPORTED),
    CHAT("\"chat_template\":\"x\"", "chat_template", UNSUPPORTED),
    CHAT("\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs.messages",
         UNSUPPORTED),
    CHAT("\"chat_template_kwargs\":{\"thinking\":1}", "chat_template_kwargs.thinking", INVALID),
    CHAT("\"chat_template_kwargs\":[]", "chat_template_kwargs", INVALID),
    {SL_API_COMPLETIONS, "\"echo\":true", "echo", UNSUPPORTED, NULL},
    {SL_API_COMPLETIONS, "\"suffix\":\"x\"", "suffix", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"previous_response_id\":\"r\"", "previous_response_id", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"conversation\":\"c\"", "conversation", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"background\":true", "background", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"truncation\":\"auto\"", "truncation", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"prompt\":{\"id\":\"p\"}", "prompt", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"include\":[\"file_search_call.results\"]", "include[0]", UNSUPPORTED,
     NULL},
    {SL_API_RESPONSES, "\"text\":{\"verbosity\":\"high\"}", "text.verbosity", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"instructions\":[]", "instructions", INVALID, NULL},
    {SL_API_MESSAGES, "\"container\":\"c\"", "container", UNSUPPORTED, NULL},
    {SL_API_MESSAGES, "\"mcp_servers\":[{}]", "mcp_servers", UNSUPPORTED, NULL},
    // parameters of another dialect
    CHAT("\"stop_sequences\":[\"a\"]", "stop_sequences", UNSUPPORTED),
    CHAT("\"max_output_tokens\":1", "max_output_tokens", UNSUPPORTED),
    {SL_API_RESPONSES, "\"max_tokens\":1", "max_tokens", UNSUPPORTED, NULL},
    {SL_API_RESPONSES, "\"response_format\":{}", "response_format", UNSUPPORTED, NULL},
    {SL_API_MESSAGES, "\"stop\":\"a\"", "stop", UNSUPPORTED, NULL},
    {SL_API_MESSAGES, "\"logit_bias\":{\"1\":1}", "logit_bias", UNSUPPORTED, NULL},
    {SL_API_COMPLETIONS, "\"tools\":[]", "tools", UNSUPPORTED, NULL},
    {SL_API_COMPLETIONS, "\"messages\":[]", "messages", UNSUPPORTED, NULL},
    // thinking
    CHAT("\"reasoning_effort\":\"huge\"", "reasoning_effort", INVALID),
    CHAT("\"reasoning_effort\":1", "reasoning_effort", INVALID),
    CHAT("\"reasoning_effort\":\"low\",\"enable_thinking\":false", "enable_thinking", INVALID),
    {SL_API_MESSAGES, "\"thinking\":{\"type\":\"between_tools\"}", "thinking.type", INVALID, NULL},
    {SL_API_MESSAGES, "\"thinking\":{}", "thinking.type", MISSING, NULL},
    {SL_API_MESSAGES, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}",
     "thinking.budget_tokens", INVALID, NULL},
    {SL_API_MESSAGES, "\"thinking\":{\"type\":\"enabled\",\"display\":\"x\"}", "thinking.display",
     INVALID, NULL},
    {SL_API_MESSAGES, "\"output_config\":{\"effort\":1}", "output_config.effort", INVALID, NULL},
    // formats
    CHAT("\"response_format\":\"json\"", "response_format", INVALID),
    CHAT("\"response_format\":{}", "response_format.type", MISSING),
    CHAT("\"response_format\":{\"type\":\"xml\"}", "response_format.type", UNSUPPORTED),
    CHAT("\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema", MISSING),
    CHAT("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}",
         "response_format.json_schema.schema", MISSING),
    CHAT("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":true}}",
         "response_format.json_schema.schema", INVALID),
    {SL_API_RESPONSES, "\"text\":{\"format\":{\"type\":\"json_schema\"}}", "text.format.schema",
     MISSING, NULL},
    {SL_API_MESSAGES, "\"output_config\":{\"format\":{\"type\":\"json_object\"}}",
     "output_config.format.type", UNSUPPORTED, NULL},
    // tools
    CHAT("\"tools\":{}", "tools", INVALID),
    CHAT("\"tools\":[1]", "tools[0]", INVALID),
    CHAT("\"tools\":[{}]", "tools[0].type", MISSING),
    CHAT("\"tools\":[{\"type\":\"custom\"}]", "tools[0].type", UNSUPPORTED),
    CHAT("\"tools\":[{\"type\":\"function\"}]", "tools[0].function", MISSING),
    CHAT("\"tools\":[{\"type\":\"function\",\"function\":{}}]", "tools[0].function.name", MISSING),
    CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]",
         "tools[0].function.name", INVALID),
    CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]",
         "tools[0].function.name", INVALID),
    CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"type\":\"function\","
         "\"function\":"
         "{\"name\":\"a\"}}]",
         "tools[1].function.name", INVALID),
    CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}]",
         "tools[0].function.parameters", INVALID),
    {SL_API_RESPONSES, "\"tools\":[{\"type\":\"web_search\"}]", "tools[0].type", UNSUPPORTED, NULL},
    {SL_API_MESSAGES, "\"tools\":[{\"name\":\"a\"}]", "tools[0].input_schema", MISSING, NULL},
    {SL_API_MESSAGES, "\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"}]", "tools[0].type",
     UNSUPPORTED, NULL},
    CHAT("\"tool_choice\":\"required\"", "tool_choice", INVALID),
    CHAT("\"tool_choice\":\"any\"", "tool_choice", INVALID),
    CHAT("\"tool_choice\":1", "tool_choice", INVALID),
    CHAT("\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice.type", UNSUPPORTED),
    CHAT("\"tool_choice\":{\"type\":\"function\"}", "tool_choice.function", MISSING),
    CHAT("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}",
         "tool_choice.function.name", INVALID),
    {SL_API_RESPONSES, "\"tool_choice\":{\"type\":\"function\"}", "tool_choice.name", MISSING,
     NULL},
    {SL_API_MESSAGES, "\"tool_choice\":{\"type\":\"x\"}", "tool_choice.type", INVALID, NULL},
    {SL_API_MESSAGES, "\"tool_choice\":{\"type\":\"any\"}", "tool_choice", INVALID, NULL},
    {SL_API_MESSAGES, "\"tool_choice\":{\"type\":\"tool\"}", "tool_choice.name", MISSING, NULL},
    {SL_API_MESSAGES, "\"tool_choice\":\"auto\"", "tool_choice", INVALID, NULL},
    CHAT("\"parallel_tool_calls\":1", "parallel_tool_calls", INVALID),
    // chat messages
    MSG("1", "messages[1]", INVALID),
    MSG("{}", "messages[1].role", MISSING),
    MSG("{\"role\":1}", "messages[1].role", INVALID),
    MSG("{\"role\":\"function\",\"content\":\"a\"}", "messages[1].role", INVALID),
    MSG("{\"role\":\"user\"}", "messages[1].content", MISSING),
    MSG("{\"role\":\"assistant\",\"content\":null}", "messages[1].content", MISSING),
    MSG("{\"role\":\"user\",\"content\":1}", "messages[1].content", INVALID),
    MSG("{\"role\":\"user\",\"content\":[1]}", "messages[1].content[0]", INVALID),
    MSG("{\"role\":\"user\",\"content\":[{}]}", "messages[1].content[0].type", MISSING),
    MSG("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}", "messages[1].content[0].text",
        MISSING),
    MSG("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image_url\"}"
        "]}",
        "messages[1].content[1].type", SL_API_ERR_PICTURE),
    MSG("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}",
        "messages[1].content[0].type", SL_API_ERR_PICTURE),
    MSG("{\"role\":\"user\",\"content\":[{\"type\":\"poem\"}]}", "messages[1].content[0].type",
        INVALID),
    MSG("{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"\"}]}",
        "messages[1].content[0].type", INVALID),
    MSG("{\"role\":\"tool\",\"content\":\"a\"}", "messages[1].tool_call_id", MISSING),
    MSG("{\"role\":\"assistant\",\"content\":\"\",\"function_call\":{\"name\":\"f\"}}",
        "messages[1].function_call", UNSUPPORTED),
    MSG("{\"role\":\"assistant\",\"tool_calls\":{}}", "messages[1].tool_calls", INVALID),
    MSG("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"function\":{}}]}",
        "messages[1].tool_calls[0].type", UNSUPPORTED),
    MSG("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}"
        "}]}",
        "messages[1].tool_calls[0].function.arguments", INVALID),
    MSG("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"[]"
        "\"}}]}",
        "messages[1].tool_calls[0].function.arguments", INVALID),
    // blocks
    BLOCK("{\"type\":\"image\"}", "messages[0].content[0].type", SL_API_ERR_PICTURE),
    BLOCK("{\"type\":\"document\"}", "messages[0].content[0].type", SL_API_ERR_PICTURE),
    BLOCK("{\"type\":\"tool_use\"}", "messages[0].content[0].type", INVALID),
    BLOCK("{\"type\":\"tool_result\"}", "messages[0].content[0].tool_use_id", MISSING),
    BLOCK("{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"image\"}]}",
          "messages[0].content[0].content[0].type", SL_API_ERR_PICTURE),
    BODY(SL_API_MESSAGES,
         "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":[{"
         "\"type\":\"tool_use\","
         "\"id\":\"1\",\"name\":\"f\",\"input\":1}]}]}",
         "messages[0].content[0].input", INVALID),
    BODY(SL_API_MESSAGES,
         "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"assistant\",\"content\":"
         "\"a\"}]}",
         "messages", UNSUPPORTED),
    BODY(SL_API_MESSAGES,
         "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}",
         "messages[0].role", INVALID),
    {SL_API_MESSAGES, "\"system\":1", "system", INVALID, NULL},
    // items
    ITEM("", "input", INVALID),
    ITEM("1", "input[0]", INVALID),
    ITEM("{\"type\":\"item_reference\",\"id\":\"1\"}", "input[0].type", UNSUPPORTED),
    ITEM("{\"role\":\"tool\",\"content\":\"a\"}", "input[0].role", INVALID),
    ITEM("{\"role\":\"user\"}", "input[0].content", MISSING),
    ITEM("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}", "input[0].content[0].type",
         SL_API_ERR_PICTURE),
    ITEM("{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{}\"}", "input[0].call_id",
         MISSING),
    ITEM("{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"1\"}",
         "input[0].arguments", INVALID),
    ITEM("{\"type\":\"function_call_output\",\"call_id\":\"1\"}", "input[0].output", MISSING),
    ITEM("{\"type\":\"reasoning\",\"summary\":\"a\"}", "input[0].summary", INVALID),
};

static void refusals_name_the_parameter(void **state) {
    fixture *f = *state;
    for (size_t i = 0; i < SL_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        sl_status st =
            r->fields ? parse_fields(f, r->dialect, r->fields) : parse(f, r->dialect, r->body);
        const char *text = r->fields ? r->fields : r->body;
        if (st == SL_OK)
            fail_msg("taken: %s", text);
        if (strcmp(f->err.param, r->param) != 0 || f->err.kind != r->kind)
            fail_msg("%s: param %s kind %d: %s", text, f->err.param, (int)f->err.kind,
                     f->err.message);
        assert_true(f->err.message[0]);
        assert_int_equal(sl_api_error_http_status(&f->err), 400);
        assert_null(f->req.model.text);
        assert_int_equal(f->req.dialect, r->dialect);
    }
}

static void a_stop_string_is_bounded(void **state) {
    fixture *f = *state;
    char fields[512] = "\"stop\":\"";
    size_t at = strlen(fields);
    memset(fields + at, 'x', 257);
    (void)snprintf(fields + at + 256, 4, "\"");
    assert_read(f, SL_API_CHAT, fields);
    assert_int_equal(f->req.stop_len[0], 256);
    fields[at + 256] = 'x';
    (void)snprintf(fields + at + 257, 4, "\"");
    assert_int_equal(parse_fields(f, SL_API_CHAT, fields), SL_ERR_ARGUMENT);
    assert_string_equal(f->err.param, "stop");
}

/* Any size of arena: the request is read as a whole, or refused as too large, and never half. */
static void a_small_arena_refuses(void **state) {
    fixture *f = *state;
    static const char body[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{"
                               "\"type\":\"text\",\"text\":\"hi\"}]},"
                               "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":"
                               "\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}],"
                               "\"stop\":[\"a\"],\"logit_bias\":{\"1\":1},\"x\":1," CHAT_TOOLS ","
                               "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
                               "\"schema\":{\"type\":\"object\"}}}}";
    assert_int_equal(parse(f, SL_API_CHAT, body), SL_OK);
    char whole[4096];
    (void)snprintf(whole, sizeof(whole), "%s", f->req.render.text);
    size_t need = f->arena.used;
    bool fitted = false;
    for (size_t bytes = 0; bytes <= need + 64; bytes++) {
        sl_status st = parse_in(f, SL_API_CHAT, body, bytes);
        if (st == SL_OK) {
            assert_string_equal(f->req.render.text, whole);
            fitted = true;
        } else {
            assert_false(fitted); // more memory never takes less
            assert_int_equal(st, SL_ERR_MEMORY);
            assert_int_equal(f->err.kind, SL_API_ERR_TOO_LARGE);
            assert_int_equal(sl_api_error_http_status(&f->err), 413);
        }
    }
    assert_true(fitted);
}

/* ---- the small routes -------------------------------------------------------------------------------------------- */

static void tokens_are_read(void **state) {
    fixture *f = *state;
    sl_api_tokenize in;
    const uint32_t *ids;
    size_t n;
#define ARENA (sl_arena_init(&f->arena, "request", f->block, ARENA_BYTES), &f->arena)
#define TOKENIZE(body) sl_api_parse_tokenize(body, strlen(body), ARENA, &in, &f->err)
#define DETOKENIZE(body) sl_api_parse_detokenize(body, strlen(body), 1000, ARENA, &ids, &n, &f->err)
    assert_int_equal(TOKENIZE("{\"content\":\"a\"}"), SL_OK);
    assert_string_equal(in.content.text, "a");
    assert_true(!in.add_special && in.parse_special);
    assert_int_equal(
        TOKENIZE("{\"prompt\":\"b\",\"add_special\":true,\"parse_special\":false,\"model\":\"m\"}"),
        SL_OK);
    assert_string_equal(in.content.text, "b");
    assert_true(in.add_special && !in.parse_special);
    assert_int_equal(TOKENIZE("{}"), SL_ERR_ARGUMENT);
    assert_string_equal(f->err.param, "content");
    assert_int_equal(TOKENIZE("{\"content\":1}"), SL_ERR_ARGUMENT);
    assert_int_equal(DETOKENIZE("{\"tokens\":[1,999]}"), SL_OK);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 999);
    assert_int_equal(DETOKENIZE("{\"tokens\":[]}"), SL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(DETOKENIZE("{\"tokens\":[1000]}"), SL_ERR_ARGUMENT);
    assert_string_equal(f->err.param, "tokens[0]");
    assert_int_equal(DETOKENIZE("{\"tokens\":7}"), SL_ERR_ARGUMENT);
    assert_int_equal(DETOKENIZE("{}"), SL_ERR_ARGUMENT);
    assert_int_equal(f->err.kind, SL_API_ERR_MISSING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_set_that_was_not_said),
        TEST(sampling_is_read_by_all),
        TEST(limits_and_stops_are_read),
        TEST(bias_and_logprobs_are_read),
        TEST(prompts_are_read),
        TEST(formats_are_read),
        TEST(tools_are_read),
        TEST(choices_are_read),
        TEST(thinking_is_read),
        TEST(chat_messages_become_turns),
        TEST(blocks_become_turns),
        TEST(items_become_turns),
        TEST(what_means_nothing_is_ignored_and_counted),
        TEST(refusals_name_the_parameter),
        TEST(a_stop_string_is_bounded),
        TEST(a_small_arena_refuses),
        TEST(tokens_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
