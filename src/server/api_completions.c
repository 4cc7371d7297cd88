/* OpenAI completions: a prompt as text or token ids in, text out. See api_format.h. */
#include "server/api_internal.h"

#include <string.h>

#include "text/utf8.h"

/* ---- request ----------------------------------------------------------------------------------------------------- */

static sl_status read_prompt(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    // A list of one prompt is one prompt.
    if (v->type == SL_JSON_ARRAY && v->child && v->child->type != SL_JSON_NUMBER) {
        if (v->n_children > 1)
            return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "expected one prompt, found %u",
                                v->n_children);
        (void)sl__req_enter_index(r, 0);
        v = v->child;
    }
    if (v->type == SL_JSON_STRING) {
        req->prompt = (sl_api_text){v->text, v->text_len};
        return SL_OK;
    }
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "a string or an array of token ids");
    if (!v->child)
        return sl__req_fail(r, SL_API_ERR_INVALID, "is empty");
    return sl__read_ids(r, v, f, into);
}

static sl_status read_logprobs(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    if (v->type == SL_JSON_FALSE)
        return SL_OK;
    sl_status st = sl__read_uint(r, v, f, into);
    req->logprobs = !st;
    return st;
}

static sl_status parse(api_reader *r) {
    static const api_field fields[] = {
        {.name = "prompt", .read = read_prompt, .required = true},
        {.name = "logprobs",
         .read = read_logprobs,
         .offset = offsetof(sl_api_request, n_top_logprobs),
         .max = SL_API_TOP_LOGPROBS_MAX},
        {.name = "response_format", .read = sl__read_format_chat},
    };
    static const api_table table = {fields, SL_COUNT(fields), &sl__table_openai};
    return sl__req_fields(r, r->body, &table, r->req);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

// A token as a string: those that are no whole characters are written as this API does, "bytes:\xe2\x80".
static void add_token_text(sl_buf *out, const char *bytes, size_t n) {
    if (sl_utf8_is_valid(bytes, n)) {
        sl_api_add_string(out, bytes, n);
        return;
    }
    sl_buf_add_text(out, "\"bytes:");
    for (size_t i = 0; i < n; i++)
        sl_buf_printf(out, "\\\\x%02x", (unsigned char)bytes[i]);
    sl_buf_add_char(out, '"');
}

static size_t characters(const char *bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return count;
}

static void add_alternatives(sl_buf *out, api_token token) {
    const char *comma = "";
    sl_buf_add_char(out, '{');
    for (uint32_t i = 1; i < token.n; i++) {
        api_entry e = sl__token_entry(&token);
        sl_buf_add_text(out, comma);
        add_token_text(out, e.bytes, e.n);
        sl_buf_add_char(out, ':');
        sl__add_float(out, e.logprob);
        comma = ",";
    }
    sl_buf_add_char(out, '}');
}

// Four lists beside each other: the tokens are walked once for each.
static void add_logprobs(sl_api_writer *w) {
    static const char *const lists[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    if (!w->request->logprobs || !sl__logprobs_wait(w)) {
        sl_buf_add_text(w->out, "null");
        return;
    }
    uint64_t offset = w->text_chars;
    for (size_t list = 0; list < SL_COUNT(lists); list++) {
        api_token token;
        size_t at = w->logprobs_from;
        const char *comma = "";
        sl_buf_printf(w->out, "%s\"%s\":[", list ? "]," : "{", lists[list]);
        while (sl__token_next(w, &at, w->store.len, &token)) {
            api_entry e = sl__token_entry(&token);
            sl_buf_add_text(w->out, comma);
            comma = ",";
            if (list == 0) {
                add_token_text(w->out, e.bytes, e.n);
            } else if (list == 1) {
                sl__add_float(w->out, e.logprob);
            } else if (list == 2) {
                add_alternatives(w->out, token);
            } else {
                sl_buf_printf(w->out, "%llu", (unsigned long long)offset);
                offset += characters(e.bytes, e.n);
            }
        }
    }
    sl_buf_add_text(w->out, "]}");
    w->text_chars = offset;
    sl__store_sent(w);
}

static void head(sl_api_writer *w) {
    sl_buf_add_text(w->out, w->request->stream ? "data: {\"id\":" : "{\"id\":");
    sl__add_id(w, "cmpl-", -1);
    sl_buf_printf(w->out, ",\"object\":\"text_completion\",\"created\":%lld",
                  (long long)w->identity->created);
    sl__add_member(w->out, "model", w->identity->model);
    sl_buf_add_text(w->out, ",\"choices\":[");
}

static void choice_tail(sl_api_writer *w, const char *finish) {
    sl_buf_add_text(w->out, ",\"index\":0,\"logprobs\":");
    add_logprobs(w);
    sl__add_member(w->out, "finish_reason", finish);
    sl_buf_add_text(w->out, "}]");
}

static void chunk_tail(sl_api_writer *w) {
    sl_buf_add_text(w->out, w->request->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

static void piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n) {
    (void)kind; // there is no other
    head(w);
    sl_buf_add_text(w->out, "{\"text\":");
    sl_api_add_string(w->out, bytes, n);
    choice_tail(w, NULL);
    chunk_tail(w);
}

static void finish(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                   const sl_api_usage *usage) {
    (void)stop_string;
    head(w);
    sl_buf_add_text(w->out, "{\"text\":\"\"");
    choice_tail(w, sl__openai_finish(w, how));
    chunk_tail(w);
    if (w->request->include_usage) {
        head(w);
        sl_buf_add_text(w->out, "],\"usage\":");
        sl__add_usage(w, usage);
        sl_buf_add_text(w->out, "}\n\n");
    }
    sl_buf_add_text(w->out, "data: [DONE]\n\n");
}

static void body(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                 const sl_api_usage *usage) {
    (void)stop_string;
    head(w);
    sl_buf_add_text(w->out, "{\"text\":");
    sl__add_joined(w, API_TEXT, 0, w->store.len);
    choice_tail(w, sl__openai_finish(w, how));
    sl_buf_add_text(w->out, ",\"usage\":");
    sl__add_usage(w, usage);
    sl_buf_add_char(w->out, '}');
}

const api_dialect sl__api_completions = {
    .parse = parse,
    .piece = piece,
    .finish = finish,
    .failure = sl__failure_openai,
    .body = body,
    .text_only = true,
};
