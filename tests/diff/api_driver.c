/* Answers one request as the server would, from a script instead of a model, so that real clients can be held
 * against the bytes.
 *
 *   api_driver DIALECT < input > output          DIALECT: chat completions responses messages count models
 *
 * Input: the length of the request's body in decimal, a newline, the body, and a JSON array of events:
 *   ["prefill", done, total]  ["begin", prompt, cached]  ["text", "..."]  ["reasoning", "..."]
 *   ["call", name, arguments]  ["token", [bytes...], logprob, [[bytes...], logprob] ...]
 *   ["finish", "stop" | "stop_string" | "length" | "context", stop string or null, prompt, cached, completion, reasoning]
 *   ["failure", message]  ["store", bytes]  ["refuse_call"]
 * The last two come first: the size of the store, and a check that refuses all arguments.
 * Output: a line of JSON {"status":...,"stream":...,"render":...,"n_ignored":...,"param":...}, then the answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "server/api_format.h"

#define INPUT_MAX ((size_t)8 << 20)
#define BLOCK_BYTES ((size_t)64 << 20)

static void die(const char *what) {
    fprintf(stderr, "api_driver: %s\n", what);
    exit(2);
}

static const sl_json *element(const sl_json *v, uint32_t i) {
    const sl_json *e = sl_json_element(v, i);
    if (!e)
        die("an event is too short");
    return e;
}

static uint32_t number(const sl_json *v, uint32_t i) {
    uint64_t u;
    if (!sl_json_uint64(element(v, i), &u))
        die("expected a number");
    return (uint32_t)u;
}

static sl_api_logprob token(const sl_json *bytes, const sl_json *logprob, char *room) {
    double d = 0;
    sl_api_logprob out = {.bytes = room, .n = bytes->n_children};
    for (uint32_t i = 0; i < bytes->n_children; i++)
        room[i] = (char)number(bytes, i);
    (void)sl_json_double(logprob, &d);
    out.logprob = (float)d;
    return out;
}

static sl_status refuse(void *user, size_t tool, const char *arguments, size_t len, sl_error *why) {
    (void)user, (void)tool, (void)arguments, (void)len;
    return sl_fail(why, SL_ERR_ARGUMENT, "refused");
}

static sl_status write_token(sl_api_writer *w, const sl_json *e, sl_api_error *err) {
    char room[32][64];
    sl_api_logprob top[30];
    uint32_t n = 0;
    sl_api_logprob first = token(element(e, 1), element(e, 2), room[31]);
    for (uint32_t i = 3; i < e->n_children && n < SL_COUNT(top); i++, n++)
        top[n] = token(element(element(e, i), 0), element(element(e, i), 1), room[n]);
    return sl_api_write_token(w, &first, top, n, err);
}

static sl_api_usage usage(const sl_json *e, uint32_t at, bool all) {
    sl_api_usage u = {.n_prompt = number(e, at), .n_cached = number(e, at + 1)};
    if (all) {
        u.n_completion = number(e, at + 2);
        u.n_reasoning = number(e, at + 3);
    }
    return u;
}

static sl_status finish(sl_api_writer *w, const sl_json *e, sl_api_error *err) {
    static const char *const names[] = {"stop", "stop_string", "length", "context"};
    const sl_api_usage u = usage(e, 3, true);
    for (unsigned how = 0; how < SL_COUNT(names); how++)
        if (sl_json_text_is(element(e, 1), names[how]))
            return sl_api_finish_answer(w, (sl_api_finish)how, element(e, 2)->text, &u, err);
    die("finish how?");
    return SL_OK;
}

static sl_status run(sl_api_writer *w, const sl_json *e, sl_api_error *err) {
    const char *name = element(e, 0)->text;
    const sl_json *a = sl_json_element(e, 1), *b = sl_json_element(e, 2);
    if (strcmp(name, "prefill") == 0)
        return sl_api_write_prefill(w, number(e, 1), number(e, 2), err);
    if (strcmp(name, "text") == 0)
        return sl_api_write_text(w, a->text, a->text_len, err);
    if (strcmp(name, "reasoning") == 0)
        return sl_api_write_reasoning(w, a->text, a->text_len, err);
    if (strcmp(name, "call") == 0)
        return sl_api_write_call(w, a->text, a->text_len, b->text, b->text_len, err);
    if (strcmp(name, "token") == 0)
        return write_token(w, e, err);
    if (strcmp(name, "finish") == 0)
        return finish(w, e, err);
    if (strcmp(name, "begin") == 0) {
        const sl_api_usage u = usage(e, 1, false);
        return sl_api_write_begin(w, &u, err);
    }
    if (strcmp(name, "refuse_call") == 0) {
        w->check = refuse;
        return SL_OK;
    }
    if (strcmp(name, "failure") == 0)
        return sl_api_fail(err, SL_API_ERR_INTERNAL, NULL, "%s", a->text);
    die("an event that nobody knows");
    return SL_OK;
}

static int status_of(sl_api_dialect dialect, const char *body, size_t len, const sl_json *events,
                     sl_arena *arena, sl_api_request *req, sl_api_error *err, sl_buf *out) {
    static const sl_api_limits limits = {.n_vocab = 1000};
    const sl_api_identity identity = {
        .random = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, .created = 1700000000, .model = "demo"};
    sl_api_writer w;
    uint64_t store = 1 << 20;
    if (sl_api_parse(dialect, body, len, &limits, arena, req, err)) {
        sl_api_write_error(dialect, err, out);
        return sl_api_error_http_status(err);
    }
    if (dialect == SL_API_COUNT_TOKENS) {
        sl_api_write_count(out, number(events, 0));
        return 200;
    }
    const sl_json *e = events->child;
    if (e && sl_json_text_is(e->child, "store")) {
        store = number(e, 1);
        e = e->next;
    }
    void *block = malloc(store);
    if (!block)
        die("no memory");
    sl_api_writer_init(&w, req, &identity, out, block, store);
    int status = 200;
    for (; e; e = e->next)
        if (run(&w, e, err)) {
            status = req->stream ? 200 : sl_api_error_http_status(err);
            sl_api_write_failure(&w, err);
            break;
        }
    free(block);
    return status;
}

// One request of a dialect, from standard input.
static void serve(sl_api_dialect dialect, char *input, char *block) {
    sl_buf out, line;
    sl_arena arena;
    sl_json *events;
    sl_error cause;
    sl_api_request req = {0};
    sl_api_error err = {0};
    char *body;
    size_t n = fread(input, 1, INPUT_MAX, stdin);
    input[n] = '\0';
    size_t len = strtoul(input, &body, 10);
    if (*body++ != '\n' || len > n - (size_t)(body - input))
        die("no length");
    sl_buf_init(&out);
    sl_buf_init(&line);
    sl_arena_init(&arena, "request", block, BLOCK_BYTES);
    const char *script = body + len;
    if (sl_json_parse(script, n - (size_t)(script - input), &arena, &events, &cause))
        die(cause.message);
    int status = status_of(dialect, body, len, events, &arena, &req, &err, &out);
    sl_buf_printf(&line, "{\"status\":%d,\"stream\":%s,\"n_ignored\":%zu,\"render\":", status,
                  req.stream ? "true" : "false", req.n_ignored);
    sl_api_add_string(&line, req.render.text ? req.render.text : "", req.render.len);
    sl_buf_add_text(&line, ",\"param\":");
    sl_api_add_string(&line, err.param, strlen(err.param));
    sl_buf_add_text(&line, ",\"schema\":");
    sl_api_add_string(&line, req.schema.text ? req.schema.text : "", req.schema.len);
    printf("%s}\n", line.data);
    fwrite(out.data, 1, out.len, stdout);
    sl_buf_deinit(&line);
    sl_buf_deinit(&out);
}

static void list_models(void) {
    static const char *const models[] = {"demo", "other"};
    sl_buf out;
    sl_buf_init(&out);
    sl_api_write_models(&out, models, 2, 1700000000, 4096);
    printf("{\"status\": 200}\n%s", out.data);
    sl_buf_deinit(&out);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"chat", "completions", "responses", "messages", "count"};
    char *input = malloc(INPUT_MAX + 1), *block = malloc(BLOCK_BYTES);
    unsigned dialect = 0;
    if (!input || !block || argc != 2)
        die("api_driver DIALECT < input");
    while (dialect < SL_COUNT(names) && strcmp(argv[1], names[dialect]) != 0)
        dialect++;
    if (dialect < SL_COUNT(names))
        serve((sl_api_dialect)dialect, input, block);
    else if (strcmp(argv[1], "models") == 0)
        list_models();
    else
        die("unknown dialect");
    free(input);
    free(block);
    return 0;
}
