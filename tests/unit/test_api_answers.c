/* Answers of the API: the order of events, the bounds, errors. What clients make of the bytes is held in
 * tests/diff/test_api_formats.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/status.h"
#include "server/api_format.h"

#define BLOCK_BYTES ((size_t)1 << 20)

typedef struct fixture {
    uint8_t *arena_block, *store, *out_block;
    sl_arena arena;
    sl_buf out;
    sl_api_request req;
    sl_api_writer w;
    sl_api_error err;
} fixture;

static const sl_api_identity identity = {.random = {0xab}, .created = 1700000000, .model = "m\"\n"};
static const sl_api_usage usage = {
    .n_prompt = 10, .n_cached = 4, .n_completion = 3, .n_reasoning = 1};

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof(*f));
    if (!f || !(f->arena_block = malloc(BLOCK_BYTES)) || !(f->store = malloc(BLOCK_BYTES)) ||
        !(f->out_block = malloc(BLOCK_BYTES)))
        return -1;
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    free(f->arena_block);
    free(f->store);
    free(f->out_block);
    free(f);
    return 0;
}

#define TOOL "\"name\":\"f\""
static const char *const bases[] = {
    [SL_API_CHAT] =
        "\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":[{\"type\":\"function\","
        "\"function\":{" TOOL "}}]",
    [SL_API_COMPLETIONS] = "\"prompt\":\"\"",
    [SL_API_RESPONSES] = "\"input\":\"\",\"tools\":[{\"type\":\"function\"," TOOL "}]",
    [SL_API_MESSAGES] =
        "\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"\"}],\"tools\":[{" TOOL
        ",\"input_schema\":{}}]",
};

// A writer with a store and an output of these sizes.
static void begin_sized(fixture *f, sl_api_dialect dialect, bool stream, const char *more,
                        size_t store, size_t out) {
    static const sl_api_limits limits = {0};
    char body[1024];
    (void)snprintf(body, sizeof(body), "{\"model\":\"x\",\"stream\":%s,%s%s}",
                   stream ? "true" : "false", bases[dialect], more);
    sl_arena_init(&f->arena, "request", f->arena_block, BLOCK_BYTES);
    assert_int_equal(
        sl_api_parse(dialect, body, strlen(body), &limits, &f->arena, &f->req, &f->err), SL_OK);
    sl_buf_init_fixed(&f->out, f->out_block, out);
    sl_api_writer_init(&f->w, &f->req, &identity, &f->out, f->store, store);
}

static void begin(fixture *f, sl_api_dialect dialect, bool stream) {
    begin_sized(f, dialect, stream, "", BLOCK_BYTES, BLOCK_BYTES);
    assert_int_equal(sl_api_write_begin(&f->w, &usage, &f->err), SL_OK);
}

static sl_status text(fixture *f, const char *s) {
    return sl_api_write_text(&f->w, s, strlen(s), &f->err);
}

static sl_status call(fixture *f, const char *name, const char *arguments) {
    return sl_api_write_call(&f->w, name, strlen(name), arguments, strlen(arguments), &f->err);
}

static sl_status finish(fixture *f) {
    return sl_api_finish_answer(&f->w, SL_API_FINISH_STOP, NULL, &usage, &f->err);
}

// The output as JSON. Lives in the arena.
static const sl_json *body(fixture *f) {
    sl_json *root;
    sl_error err;
    if (sl_json_parse(f->out.data, f->out.len, &f->arena, &root, &err))
        fail_msg("%s: %s", err.message, f->out.data);
    return root;
}

// Every event of a stream is JSON or [DONE]; the number of them.
static size_t count_events(fixture *f) {
    size_t n = 0;
    for (char *line = f->out.data; *line; n++) {
        char *end = strstr(line, "\n\n"), *data = strstr(line, "data: ");
        assert_non_null(end);
        if (line[0] == ':') {
            line = end + 2;
            continue;
        }
        assert_true(data && data < end);
        data += 6;
        sl_json *root;
        sl_error err;
        size_t mark = sl_arena_mark(&f->arena);
        if (strncmp(data, "[DONE]", 6) != 0 &&
            sl_json_parse(data, (size_t)(end - data), &f->arena, &root, &err))
            fail_msg("%s: %.*s", err.message, (int)(end - data), data);
        sl_arena_reset(&f->arena, mark);
        line = end + 2;
    }
    return n;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void strings_are_escaped_and_repaired(void **state) {
    char block[200];
    sl_buf out;
    (void)state;
    sl_buf_init_fixed(&out, block, sizeof(block));
    sl_api_add_string(&out, "a\"\\\b\f\n\r\t\v\0\x1f\x7f\u00e9\u2028\U0001f999",
                      11 + 1 + 2 + 3 + 4);
    assert_string_equal(
        out.data, "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u000b\\u0000\\u001f\x7f\u00e9\u2028\U0001f999\"");
    sl_buf_clear(&out);
    sl_api_add_string(&out, "\xc3|\xff|\xed\xa0\x80|\xf0\x9f\xa6", 11);
    assert_string_equal(out.data, "\"\ufffd|\ufffd|\ufffd\ufffd\ufffd|\ufffd\"");
}

static void a_chat_stream_in_bytes(void **state) {
    fixture *f = *state;
    begin(f, SL_API_CHAT, true);
    assert_int_equal(text(f, ""), SL_OK); // says nothing
    assert_int_equal(text(f, "a"), SL_OK);
    assert_int_equal(finish(f), SL_OK);
#define CHUNK(delta, reason)                                                                       \
    "data: {\"id\":\"chatcmpl-ab0000000000000000000000\",\"object\":\"chat.completion.chunk\","    \
    "\"created\":1700000000,\"model\":\"m\\\"\\n\",\"choices\":[{\"index\":0,\"delta\":{" delta    \
    "},\"logprobs\":null,\"finish_reason\":" reason "}]}\n\n"
    assert_string_equal(f->out.data, CHUNK("\"role\":\"assistant\",\"content\":\"\"", "null")
                                         CHUNK("\"content\":\"a\"", "null")
                                             CHUNK("", "\"stop\"") "data: [DONE]\n\n");
}

static void progress_is_a_comment(void **state) {
    fixture *f = *state;
    for (int d = SL_API_CHAT; d <= SL_API_MESSAGES; d++) {
        begin_sized(f, (sl_api_dialect)d, true, "", BLOCK_BYTES, BLOCK_BYTES);
        assert_int_equal(sl_api_write_prefill(&f->w, 512, 2048, &f->err), SL_OK);
        assert_string_equal(f->out.data,
                            d == SL_API_MESSAGES
                                ? ": prefill 512/2048\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n"
                                : ": prefill 512/2048\n\n");
        begin_sized(f, (sl_api_dialect)d, false, "", BLOCK_BYTES, BLOCK_BYTES);
        assert_int_equal(sl_api_write_prefill(&f->w, 512, 2048, &f->err), SL_OK);
        assert_int_equal(f->out.len, 0);
    }
}

static void every_order_of_events_is_json(void **state) {
    fixture *f = *state;
    // All sequences of five pieces of three kinds, for every dialect, streamed and not.
    for (int d = SL_API_CHAT; d <= SL_API_MESSAGES; d++)
        for (int run = 0; run < 2 * 243; run++) {
            begin(f, (sl_api_dialect)d, run % 2);
            uint32_t n_calls = 0;
            for (int i = 0, k = run / 2; i < 5; i++, k /= 3) {
                if (k % 3 == 0)
                    assert_int_equal(text(f, "t\n\n"), SL_OK);
                else if (k % 3 == 1)
                    assert_int_equal(sl_api_write_reasoning(&f->w, "\"", 1, &f->err), SL_OK);
                else
                    assert_int_equal(call(f, "f", "{\"a\": \"\\n\"}"), SL_OK);
                n_calls += k % 3 == 2 && d != SL_API_COMPLETIONS;
            }
            assert_int_equal(finish(f), SL_OK);
            assert_int_equal(f->w.n_calls, n_calls);
            assert_int_equal(f->w.n_calls_refused, 0);
            if (run % 2)
                assert_true(count_events(f) >= 6);
            else
                (void)body(f);
        }
}

static void blocks_keep_their_order(void **state) {
    fixture *f = *state;
    begin(f, SL_API_MESSAGES, false);
    assert_int_equal(sl_api_write_reasoning(&f->w, "r", 1, &f->err), SL_OK);
    assert_int_equal(text(f, "a"), SL_OK);
    assert_int_equal(text(f, "b"), SL_OK);
    assert_int_equal(call(f, "f", "{}"), SL_OK);
    assert_int_equal(call(f, "f", "{\"x\":2}"), SL_OK);
    assert_int_equal(text(f, "c"), SL_OK);
    assert_int_equal(finish(f), SL_OK);
    assert_non_null(strstr(f->out.data, "\"content\":[{\"type\":\"thinking\",\"thinking\":\"r\","
                                        "\"signature\":\"sluice\"},{\"type\":\"text\","
                                        "\"text\":\"ab\"},{\"type\":\"tool_use\",\"id\":\"toolu_"
                                        "ab000000000000000000000000\",\"name\":\"f\","
                                        "\"input\":{}},{\"type\":\"tool_use\",\"id\":\"toolu_"
                                        "ab000000000000000000000001\",\"name\":\"f\",\"input\":"
                                        "{\"x\":2}},{\"type\":\"text\",\"text\":\"c\"}],\"stop_"
                                        "reason\":\"tool_use\",\"stop_sequence\":null,"));
}

static void hidden_thinking_is_not_written(void **state) {
    fixture *f = *state;
    begin_sized(f, SL_API_MESSAGES, true,
                ",\"thinking\":{\"type\":\"enabled\",\"display\":\"omitted\"}", BLOCK_BYTES,
                BLOCK_BYTES);
    assert_int_equal(sl_api_write_begin(&f->w, &usage, &f->err), SL_OK);
    size_t before = f->out.len;
    assert_int_equal(sl_api_write_reasoning(&f->w, "r", 1, &f->err), SL_OK);
    assert_int_equal(f->out.len, before);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct checked {
    size_t tool, n;
    char arguments[32];
} checked;

static sl_status check(void *user, size_t tool, const char *arguments, size_t len, sl_error *why) {
    checked *c = user;
    c->n++;
    c->tool = tool;
    (void)snprintf(c->arguments, sizeof(c->arguments), "%.*s", (int)len, arguments);
    if (strcmp(c->arguments, "{\"u\":1}") == 0)
        return sl_fail(why, SL_ERR_UNSUPPORTED, "no such keyword");
    return strcmp(c->arguments, "{}") == 0 ? SL_OK
                                           : sl_fail(why, SL_ERR_ARGUMENT, "/a is no number");
}

static void calls_are_checked(void **state) {
    fixture *f = *state;
    checked seen = {.tool = 7};
    for (int stream = 0; stream < 2; stream++) {
        begin(f, SL_API_CHAT, stream);
        f->w.check = check;
        f->w.check_user = &seen;
        assert_int_equal(call(f, "f", "{\"a\":\"\"}"), SL_OK);
        assert_string_equal(seen.arguments, "{\"a\":\"\"}");
        assert_int_equal(seen.tool, 0);
        assert_int_equal(f->w.n_calls_refused, 1);
        assert_non_null(strstr(f->w.call_refused.message, "/a is no number"));
        assert_int_equal(call(f, "g\"", "{}"), SL_OK); // no such tool: nothing to check
        assert_int_equal(seen.n, (size_t)(stream ? 4 : 1));
        assert_int_equal(f->w.n_calls_refused, 2);
        assert_int_equal(call(f, "f", "{}"), SL_OK);
        assert_int_equal(f->w.n_calls, 1);
        assert_int_equal(f->w.n_calls_unchecked, 0);
        assert_int_equal(call(f, "f", "{\"u\":1}"), SL_OK); // nobody can tell
        assert_int_equal(f->w.n_calls, 2);
        assert_int_equal(f->w.n_calls_unchecked, 1);
        assert_int_equal(f->w.n_calls_refused, 2);
        assert_non_null(strstr(f->w.call_refused.message, "cannot be checked: no such keyword"));
        assert_int_equal(finish(f), SL_OK);
        assert_non_null(strstr(f->out.data, "\"finish_reason\":\"tool_calls\""));
    }
    begin(f, SL_API_CHAT, false);
    assert_int_equal(call(f, "g\"", "{\"a\":1}"), SL_OK);
    assert_int_equal(finish(f), SL_OK);
    assert_non_null(strstr(
        f->out.data,
        "\"content\":\"{\\\"name\\\": \\\"g\\\\\\\"\\\", \\\"arguments\\\": {\\\"a\\\":1}}\""));
    assert_non_null(strstr(f->out.data, "\"finish_reason\":\"stop\""));
}

static void no_calls_where_none_were_wanted(void **state) {
    fixture *f = *state;
    begin_sized(f, SL_API_CHAT, false, ",\"tool_choice\":\"none\"", BLOCK_BYTES, BLOCK_BYTES);
    assert_int_equal(sl_api_write_begin(&f->w, &usage, &f->err), SL_OK);
    assert_int_equal(call(f, "f", "{}"), SL_OK);
    assert_int_equal(f->w.n_calls, 0);
    assert_int_equal(f->w.n_calls_refused, 1);
}

/* ---- logprobs ---------------------------------------------------------------------------------------------------- */

static void logprobs_wait_for_their_text(void **state) {
    fixture *f = *state;
    const sl_api_logprob token = {"a", 1, -0.1f};
    const sl_api_logprob top[] = {{"a", 1, -0.1f}, {"b", 1, -2}, {"c", 1, -3}};
    begin_sized(f, SL_API_CHAT, true, ",\"logprobs\":true,\"top_logprobs\":2", 256, BLOCK_BYTES);
    assert_int_equal(sl_api_write_begin(&f->w, &usage, &f->err), SL_OK);
    // The store holds what waits, so that a long stream needs no more of it.
    for (int i = 0; i < 100; i++) {
        size_t before = f->out.len;
        assert_int_equal(sl_api_write_token(&f->w, &token, top, 3, &f->err), SL_OK);
        assert_int_equal(f->out.len, before);
        assert_int_equal(text(f, "a"), SL_OK);
        assert_int_equal(f->w.store.len, 0);
    }
    assert_non_null(strstr(f->out.data, "\"logprobs\":{\"content\":[{\"token\":\"a\",\"logprob\":-"
                                        "0.1,\"bytes\":[97],\"top_logprobs\":["
                                        "{\"token\":\"a\",\"logprob\":-0.1,\"bytes\":[97]},{"
                                        "\"token\":\"b\",\"logprob\":-2,\"bytes\":"
                                        "[98]}]}],\"refusal\":null}"));
    sl_status st = SL_OK;
    for (int i = 0; i < 100 && !st; i++) // no text takes them away
        st = sl_api_write_token(&f->w, &token, top, 3, &f->err);
    assert_int_equal(st, SL_ERR_MEMORY);
    begin(f, SL_API_CHAT, true); // not asked for
    assert_int_equal(sl_api_write_token(&f->w, &token, top, 3, &f->err), SL_OK);
    assert_int_equal(f->w.store.len, 0);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static sl_status run_all(fixture *f, int *n) {
    static const char piece[] = "0123456789\n\"\x01";
    sl_status st = sl_api_write_begin(&f->w, &usage, &f->err);
    const sl_api_logprob token = {"\xc3\xa9", 2, -1};
    for (*n = 0; !st && *n < 40; ++*n) {
        if (*n % 8 == 3)
            st = sl_api_write_reasoning(&f->w, piece, sizeof(piece) - 1, &f->err);
        else if (*n % 8 == 6)
            st = call(f, "f", "{\"a\":\"\\n\"}");
        else if (!(st = sl_api_write_token(&f->w, &token, &token, 1, &f->err)))
            st = sl_api_write_text(&f->w, piece, sizeof(piece) - 1, &f->err);
    }
    return st ? st : finish(f);
}

/* Whatever the sizes of store and output: the answer is whole, or it ends in an error that says so. What a stream has
 * sent before is whole events. */
static void answers_are_whole_or_refused(void **state) {
    fixture *f = *state;
    for (int run = 0; run < 8; run++) {
        sl_api_dialect dialect = (sl_api_dialect)(run / 2);
        bool stream = run % 2;
        const char *more = dialect == SL_API_MESSAGES      ? ""
                           : dialect == SL_API_COMPLETIONS ? ",\"logprobs\":1"
                           : dialect == SL_API_RESPONSES   ? ",\"top_logprobs\":1"
                                                         : ",\"logprobs\":true,\"top_logprobs\":1";
        bool fitted = false, refused = false;
        for (size_t size = 16; size <= 400000; size += 16 + size / 8)
            for (int which = 0; which < 2; which++) {
                int n;
                begin_sized(f, dialect, stream, more, which ? BLOCK_BYTES : size,
                            (which ? size : 400000) + SL_API_FAILURE_BYTES);
                sl_status st = run_all(f, &n);
                if (st) {
                    refused = true;
                    assert_int_equal(st, SL_ERR_MEMORY);
                    assert_int_equal(f->err.kind, SL_API_ERR_ANSWER_TOO_LARGE);
                    assert_int_equal(text(f, "more"), SL_ERR_STATE);
                    sl_api_error cause = f->err;
                    if (!stream)
                        assert_int_equal(f->out.len, 0);
                    (void)sl_api_fail(&cause, SL_API_ERR_ANSWER_TOO_LARGE, NULL, "too large");
                    sl_api_write_failure(&f->w, &cause);
                    assert_non_null(strstr(f->out.data, "too large"));
                }
                fitted |= !st && n == 40;
                assert_false(f->out.failed);
                if (stream)
                    assert_true(count_events(f) > 0);
                else
                    (void)body(f);
            }
        assert_true(fitted && refused);
    }
}

static void a_failure_ends_an_answer(void **state) {
    fixture *f = *state;
    sl_api_error cause;
    (void)sl_api_fail(&cause, SL_API_ERR_INTERNAL, NULL, "layer 3 is gone");
    for (int run = 0; run < 8; run++) {
        begin(f, (sl_api_dialect)(run / 2), run % 2);
        assert_int_equal(text(f, "a"), SL_OK);
        sl_api_write_failure(&f->w, &cause);
        assert_non_null(strstr(f->out.data, "layer 3 is gone"));
        size_t len = f->out.len;
        sl_api_write_failure(&f->w, &cause); // once
        assert_int_equal(f->out.len, len);
        assert_int_equal(text(f, "a"), SL_ERR_STATE);
        assert_int_equal(finish(f), SL_ERR_STATE);
        if (run % 2)
            (void)count_events(f);
        else
            (void)body(f);
    }
}

/* The longest names and messages, in characters that grow the most, fit into what is kept free. */
static void a_failure_always_fits(void **state) {
    fixture *f = *state;
    sl_api_error cause = {.kind = SL_API_ERR_INTERNAL};
    memset(cause.message, 1, sizeof(cause.message) - 1);
    memset(cause.param, 1, sizeof(cause.param) - 1);
    for (int run = 0; run < 16; run++) {
        begin_sized(f, (sl_api_dialect)(run / 2 % 4), run % 2, "", BLOCK_BYTES,
                    SL_API_FAILURE_BYTES);
        f->w.began = run / 8;
        sl_api_write_failure(&f->w, &cause);
        assert_false(f->out.failed);
        assert_true(f->out.len > sizeof(cause.message) * 6 - 6);
    }
}

/* ---- errors and small routes ------------------------------------------------------------------------------------- */

static void errors_have_the_dialects_shape(void **state) {
    fixture *f = *state;
    char block[1024];
    sl_buf out;
    sl_buf_init_fixed(&out, block, sizeof(block));
    (void)sl_api_fail(&f->err, SL_API_ERR_MODEL, "model", "no model '%s'", "a\"b");
    sl_api_write_error(SL_API_RESPONSES, &f->err, &out);
    assert_string_equal(
        out.data,
        "{\"error\":{\"message\":\"no model 'a\\\"b'\",\"type\":\"invalid_request_error\","
        "\"param\":\"model\",\"code\":\"model_not_found\"}}");
    sl_buf_clear(&out);
    sl_api_write_error(SL_API_COUNT_TOKENS, &f->err, &out);
    assert_string_equal(out.data,
                        "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":"
                        "\"model: no model 'a\\\"b'\"}}");
    sl_buf_clear(&out);
    assert_int_equal(sl_api_error_http_status(&f->err), 404);
    (void)sl_api_fail(&f->err, SL_API_ERR_BUSY, NULL, "later");
    sl_api_write_error(SL_API_CHAT, &f->err, &out);
    assert_string_equal(
        out.data, "{\"error\":{\"message\":\"later\",\"type\":\"rate_limit_error\",\"param\":null,"
                  "\"code\":\"rate_limit_exceeded\"}}");
    assert_int_equal(sl_api_error_http_status(&f->err), 429);
    assert_true(sl_api_error_retry(&f->err));
    static const struct {
        sl_api_error_kind kind;
        int status;
        bool retry;
    } kinds[] = {{SL_API_ERR_AUTH, 401, false},      {SL_API_ERR_FORBIDDEN, 403, false},
                 {SL_API_ERR_NOT_FOUND, 404, false}, {SL_API_ERR_METHOD, 405, false},
                 {SL_API_ERR_TIMEOUT, 408, true},    {SL_API_ERR_TOO_LARGE, 413, false},
                 {SL_API_ERR_INTERNAL, 500, false},  {SL_API_ERR_UNAVAILABLE, 503, true}};
    for (size_t i = 0; i < SL_COUNT(kinds); i++) {
        (void)sl_api_fail(&f->err, kinds[i].kind, NULL, "x");
        assert_int_equal(sl_api_error_http_status(&f->err), kinds[i].status);
        assert_int_equal(sl_api_error_retry(&f->err), kinds[i].retry);
    }
}

static void a_prompt_that_does_not_fit_has_both_counts(void **state) {
    fixture *f = *state;
    assert_int_equal(sl_api_fail_context(&f->err, SL_API_CHAT, 5000, 0, 4096), SL_ERR_CONTEXT);
    assert_string_equal(f->err.param, "messages");
    assert_string_equal(f->err.message, "the prompt has 5000 tokens, the context holds 4096");
    assert_int_equal(sl_api_error_http_status(&f->err), 400);
    (void)sl_api_fail_context(&f->err, SL_API_COMPLETIONS, 4000, 200, 4096);
    assert_string_equal(f->err.param, "prompt");
    assert_string_equal(
        f->err.message,
        "the prompt has 4000 tokens and 200 more were asked for; the context holds 4096");
}

static void errors_of_the_engine_keep_their_words(void **state) {
    fixture *f = *state;
    static const struct {
        sl_status status;
        int http;
    } cases[] = {{SL_ERR_ARGUMENT, 400}, {SL_ERR_SYNTAX, 400}, {SL_ERR_UNSUPPORTED, 400},
                 {SL_ERR_CONTEXT, 400},  {SL_ERR_STATE, 503},  {SL_ERR_IO, 500},
                 {SL_ERR_CORRUPT, 500},  {SL_ERR_MEMORY, 413}};
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const sl_error cause = {.status = cases[i].status, .message = "layer 3"};
        assert_int_equal(sl_api_fail_engine(&f->err, "messages", &cause), cases[i].status);
        assert_int_equal(sl_api_error_http_status(&f->err), cases[i].http);
        assert_string_equal(f->err.message, "layer 3");
        assert_string_equal(f->err.param, "messages");
    }
}

static void small_routes_in_bytes(void **state) {
    static const char *const names[] = {"a", "b\""};
    static const uint32_t ids[] = {1, 4294967295u};
    fixture *f = *state;
    sl_buf_init_fixed(&f->out, f->out_block, BLOCK_BYTES);
    sl_api_write_count(&f->out, 7);
    sl_api_write_tokens(&f->out, ids, 2);
    sl_api_write_tokens(&f->out, NULL, 0);
    sl_api_write_content(&f->out, "a\xff", 2);
    assert_string_equal(f->out.data, "{\"input_tokens\":7}{\"tokens\":[1,4294967295],\"count\":2}"
                                     "{\"tokens\":[],\"count\":0}{\"content\":\"a\ufffd\"}");
    static const struct {
        int64_t at;
        const char *text;
    } times[] = {{0, "1970-01-01T00:00:00Z"},          {951782399, "2000-02-28T23:59:59Z"},
                 {951782400, "2000-02-29T00:00:00Z"},  {1709251199, "2024-02-29T23:59:59Z"},
                 {4102444800, "2100-01-01T00:00:00Z"}, {-5, "1970-01-01T00:00:00Z"}};
    for (size_t i = 0; i < SL_COUNT(times); i++) {
        sl_buf_clear(&f->out);
        sl_api_write_model(&f->out, "a", times[i].at, 4096);
        assert_non_null(strstr(f->out.data, times[i].text));
    }
    sl_buf_clear(&f->out);
    sl_arena_init(&f->arena, "json", f->arena_block, BLOCK_BYTES);
    sl_api_write_models(&f->out, names, 2, 5, 4096);
    const sl_json *root = body(f);
    assert_true(sl_json_text_is(sl_json_member(root, "object"), "list"));
    assert_int_equal(sl_json_member(root, "data")->n_children, 2);
    assert_true(sl_json_text_is(sl_json_member(root, "last_id"), "b\""));
    sl_buf_clear(&f->out);
    sl_api_write_models(&f->out, NULL, 0, 5, 4096);
    assert_string_equal(
        f->out.data,
        "{\"object\":\"list\",\"data\":[],\"has_more\":false,\"first_id\":null,\"last_id\":null}");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(strings_are_escaped_and_repaired),
        TEST(a_chat_stream_in_bytes),
        TEST(progress_is_a_comment),
        TEST(every_order_of_events_is_json),
        TEST(blocks_keep_their_order),
        TEST(hidden_thinking_is_not_written),
        TEST(calls_are_checked),
        TEST(no_calls_where_none_were_wanted),
        TEST(logprobs_wait_for_their_text),
        TEST(answers_are_whole_or_refused),
        TEST(a_failure_ends_an_answer),
        TEST(a_failure_always_fits),
        TEST(errors_have_the_dialects_shape),
        TEST(a_prompt_that_does_not_fit_has_both_counts),
        TEST(errors_of_the_engine_keep_their_words),
        TEST(small_routes_in_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
