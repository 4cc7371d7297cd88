/* The API's formats: the first byte chooses the dialect, the second the sizes, the rest is a request's body. What is
 * taken must give JSON to the template, what is refused must be said in JSON; then the bytes serve once more, as the
 * events of an answer, which must come out as JSON or as events whatever fits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_format.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void require_json(const char *text, size_t len) {
    sl_json_reader reader;
    sl_json_event event;
    sl_json_reader_init(&reader, text, len);
    while ((event = sl_json_next(&reader, NULL)) != SL_JSON_EV_END)
        require(event != SL_JSON_EV_ERROR);
}

// Lines of events: comments, names, and data that is JSON or the end.
static void require_events(const char *at) {
    while (*at) {
        const char *end = strstr(at, "\n\n"), *data = at;
        require(end != NULL);
        if (strncmp(data, "event: ", 7) == 0)
            data = strchr(data, '\n') + 1;
        if (strncmp(data, "data: ", 6) == 0 && strncmp(data, "data: [DONE]", 12) != 0)
            require_json(data + 6, (size_t)(end - data - 6));
        else
            require(data[0] == ':' || strncmp(data, "data: ", 6) == 0);
        at = end + 2;
    }
}

static sl_status event(sl_api_writer *w, uint8_t how, const char *bytes, size_t n,
                       sl_api_error *err) {
    const sl_api_logprob token = {bytes, n, -0.5f * (float)how};
    const sl_api_tool *tool = w->request->n_tools ? w->request->tools : NULL;
    switch (how % 5) {
    case 0:
        return sl_api_write_reasoning(w, bytes, n, err);
    case 1:
        return tool ? sl_api_write_call(w, tool->name.text, tool->name.len, "{\"a\": 1}", 8, err)
                    : sl_api_write_call(w, bytes, n, "{}", 2, err);
    case 2:
        return sl_api_write_token(w, &token, &token, how & 1, err);
    default:
        return sl_api_write_text(w, bytes, n, err);
    }
}

static void answer(const sl_api_request *req, uint8_t sizes, const char *bytes, size_t n) {
    static const sl_api_identity identity = {.created = 1, .model = "m"};
    static const sl_api_usage usage = {.n_prompt = 3};
    size_t store_bytes = 1 + ((size_t)sizes << 4),
           out_bytes = SL_API_FAILURE_BYTES + ((size_t)sizes << 8);
    char *store = malloc(store_bytes), *block = malloc(out_bytes);
    sl_api_writer w;
    sl_api_error err;
    sl_buf out;
    require(store && block);
    sl_buf_init_fixed(&out, block, out_bytes);
    sl_api_writer_init(&w, req, &identity, &out, store, store_bytes);
    sl_status st = sl_api_write_begin(&w, &usage, &err);
    for (size_t i = 0; i + 1 < n && !st; i += 8)
        st = event(&w, (uint8_t)bytes[i], bytes + i + 1, SL_MIN((size_t)7, n - i - 1), &err);
    if (!st)
        st = sl_api_finish_answer(&w, (sl_api_finish)(sizes % 4), "stop", &usage, &err);
    if (st) {
        require(st == SL_ERR_MEMORY && err.message[0]);
        sl_api_write_failure(&w, &err);
    }
    require(!out.failed && out.len > 0);
    if (req->stream)
        require_events(out.data);
    else
        require_json(out.data, out.len);
    free(store);
    free(block);
}

static sl_status parse(unsigned which, const char *text, size_t len, sl_arena *arena,
                       sl_api_request *req, sl_api_error *err) {
    static const sl_api_limits limits = {.n_vocab = 100};
    sl_api_tokenize in;
    const uint32_t *ids;
    size_t n;
    if (which < SL_API_DIALECTS)
        return sl_api_parse((sl_api_dialect)which, text, len, &limits, arena, req, err);
    if (which == SL_API_DIALECTS)
        return sl_api_parse_tokenize(text, len, arena, &in, err);
    sl_status st = sl_api_parse_detokenize(text, len, 100, arena, &ids, &n, err);
    for (size_t i = 0; !st && i < n; i++)
        require(ids[i] < 100);
    return st;
}

static void look(const sl_api_request *req) {
    if (req->dialect != SL_API_COMPLETIONS)
        require_json(req->render.text, req->render.len);
    else
        require((req->prompt.text != NULL) != (req->n_prompt_ids > 0));
    require(req->model.text && req->n_stop <= SL_API_STOP_MAX && req->n_bias <= SL_API_BIAS_MAX);
    require((req->constraint == SL_API_CONSTRAINT_JSON_SCHEMA) == (req->schema.text != NULL));
    if (req->schema.text)
        require_json(req->schema.text, req->schema.len);
    if (req->tools_json.text)
        require_json(req->tools_json.text, req->tools_json.len);
    for (size_t i = 0; i < req->n_tools; i++)
        require_json(req->tools[i].schema.text, req->tools[i].schema.len);
    for (size_t i = 0; i < req->n_stop; i++)
        require(strlen(req->stop[i]) == req->stop_len[i] && req->stop_len[i] > 0);
    require(req->tool_choice != SL_API_TOOL_NAMED || req->named_tool < req->n_tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    unsigned which = data[0] % (SL_API_DIALECTS + 2);
    const char *text = (const char *)data + 2;
    size_t len = size - 2, arena_bytes = data[1] & 1 ? 64 * (size_t)data[1] : 8192 + 128 * len;
    void *block = malloc(arena_bytes + 1);
    sl_arena arena;
    sl_api_request req;
    sl_api_error err = {0};
    require(block != NULL);
    sl_arena_init(&arena, "fuzz", block, arena_bytes);
    if (parse(which, text, len, &arena, &req, &err)) {
        char said[8192];
        sl_buf out;
        sl_buf_init_fixed(&out, said, sizeof(said));
        require(err.message[0] && sl_api_error_http_status(&err) >= 400);
        sl_api_write_error(which < SL_API_DIALECTS ? (sl_api_dialect)which : SL_API_CHAT, &err,
                           &out);
        require(!out.failed);
        require_json(out.data, out.len);
    } else if (which < SL_API_DIALECTS) {
        look(&req);
        if (which != SL_API_COUNT_TOKENS)
            answer(&req, data[1], text, len);
    }
    free(block);
    return 0;
}
