/* Answers: the store that collects what is written at the end, the bounds, and the parts that dialects share.
 * See api_format.h and api_internal.h. */
#include "server/api_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/check.h"

/* ---- the store --------------------------------------------------------------------------------------------------- */

/* Records follow each other without gaps: head, then n bytes of
 *   text, reasoning   the text
 *   call              uint32 length of the name, the name, the arguments
 *   token             uint32 entries; each float logprob, uint32 length, bytes */
typedef struct record_head {
    uint32_t kind, n;
} record_head;

static uint32_t load_u32(const char *at) {
    uint32_t v;
    memcpy(&v, at, sizeof(v));
    return v;
}

bool sl__store_next(const sl_api_writer *w, size_t *at, api_record *record) {
    record_head head;
    if (*at >= w->store.len)
        return false;
    memcpy(&head, w->store.data + *at, sizeof(head));
    uint32_t index = *at == 0 ? 0 : record->index + (record->kind == API_CALL);
    *record = (api_record){.kind = (uint8_t)head.kind,
                           .bytes = w->store.data + *at + sizeof(head),
                           .n = head.n,
                           .index = index};
    if (head.kind == API_CALL) {
        size_t n = load_u32(record->bytes);
        record->name = (sl_api_text){record->bytes + 4, n};
        record->arguments = (sl_api_text){record->bytes + 4 + n, head.n - 4 - n};
    }
    *at += sizeof(head) + head.n;
    return true;
}

size_t sl__store_item(const sl_api_writer *w, size_t at, api_record *first) {
    api_record record = *first;
    size_t end = at;
    first->kind = API_NOTHING;
    while (sl__store_next(w, &at, &record)) {
        if (record.kind == API_TOKEN)
            continue; // of the text that follows
        if (first->kind != API_NOTHING && (record.kind != first->kind || record.kind == API_CALL))
            return end;
        if (first->kind == API_NOTHING)
            *first = record;
        end = at;
    }
    return w->store.len;
}

bool sl__store_has(const sl_api_writer *w, uint8_t kind) {
    api_record record;
    size_t at = 0;
    while (sl__store_next(w, &at, &record))
        if (record.kind == kind)
            return true;
    return false;
}

void sl__add_joined(sl_api_writer *w, uint8_t kind, size_t from, size_t to) {
    api_record record = {0};
    sl_buf_add_char(w->out, '"');
    while (from < to && sl__store_next(w, &from, &record))
        if (record.kind == kind)
            sl__add_escaped(w->out, record.bytes, record.n);
    sl_buf_add_char(w->out, '"');
}

static const api_dialect *dialect_of(const sl_api_writer *w) {
    return sl__api_dialect(w->request->dialect);
}

// Whether text and calls are collected; logprobs always are.
static bool stores(const sl_api_writer *w) {
    return !w->request->stream || dialect_of(w)->stream_stores;
}

void sl__store_sent(sl_api_writer *w) {
    if (!stores(w)) {
        sl_buf_clear(&w->store);
        w->last_at = SIZE_MAX;
    }
    w->logprobs_from = w->store.len;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static size_t capacity(const sl_buf *buf) {
    return buf->fixed ? buf->cap - 1 : SIZE_MAX;
}

static sl_status too_large(sl_api_writer *w, size_t limit, sl_api_error *err) {
    w->failed = true;
    return sl_api_fail(
        err, SL_API_ERR_ANSWER_TOO_LARGE, NULL,
        "the answer is larger than the %zu bytes in which this server collects one%s", limit,
        w->request->stream ? "" : "; ask for a stream, or for fewer tokens");
}

/* Room for n more bytes of records and for what the answer's end makes of them. Responses say a piece four times: as
 * itself, twice at the end of its item, and in the whole answer. */
static sl_status reserve(sl_api_writer *w, size_t n, size_t json_bytes, sl_api_error *err) {
    size_t times = w->request->stream && dialect_of(w)->stream_stores ? 4 : 1;
    if (n > capacity(&w->store) - w->store.len)
        return too_large(w, capacity(&w->store), err);
    if (!stores(w))
        return SL_OK;
    w->body_bytes += times * json_bytes;
    if (w->body_bytes > capacity(w->out))
        return too_large(w, capacity(w->out), err);
    return SL_OK;
}

// Everything after mark is one event: it is there as a whole, with room for a failure after it, or not at all.
static sl_status commit(sl_api_writer *w, size_t mark, size_t room, sl_api_error *err) {
    if (!w->out->failed && room <= capacity(w->out) - w->out->len)
        return SL_OK;
    w->out->len = mark;
    w->out->data[mark] = '\0';
    w->out->failed = false;
    return too_large(w, capacity(w->out), err);
}

static sl_status check_open(const sl_api_writer *w, sl_api_error *err) {
    if (w->ended || w->failed)
        return sl_api_fail(err, SL_API_ERR_INTERNAL, NULL, "the answer has ended");
    return SL_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

#define ITEM_BYTES 512 /* of JSON around an item: ids, names, types */

void sl_api_writer_init(sl_api_writer *w, const sl_api_request *request,
                        const sl_api_identity *identity, sl_buf *out, void *store_block,
                        size_t store_bytes) {
    assert(request->dialect < SL_API_COUNT_TOKENS);
    memset(w, 0, sizeof(*w));
    w->request = request;
    w->identity = identity;
    w->out = out;
    w->last_at = SIZE_MAX;
    sl_buf_init_fixed(&w->store, store_block, store_bytes);
    size_t model = sl__escaped_bytes(identity->model, strlen(identity->model));
    w->body_bytes = 2048 + model + 2 * request->echo.len;
}

sl_status sl_api_write_prefill(sl_api_writer *w, uint64_t done, uint64_t total, sl_api_error *err) {
    sl_status st = check_open(w, err);
    if (st || !w->request->stream)
        return st;
    size_t mark = w->out->len;
    sl_buf_printf(w->out, ": prefill %llu/%llu\n\n", (unsigned long long)done,
                  (unsigned long long)total);
    if (dialect_of(w)->anthropic)
        sl_buf_add_text(w->out, "event: ping\ndata: {\"type\":\"ping\"}\n\n");
    return commit(w, mark, SL_API_FAILURE_BYTES, err);
}

sl_status sl_api_write_begin(sl_api_writer *w, const sl_api_usage *usage, sl_api_error *err) {
    sl_status st = check_open(w, err);
    if (st)
        return st;
    w->began = true;
    w->prompt_usage = *usage;
    if (!w->request->stream || !dialect_of(w)->begin)
        return SL_OK;
    size_t mark = w->out->len;
    dialect_of(w)->begin(w);
    return commit(w, mark, SL_API_FAILURE_BYTES, err);
}

static void store_head(sl_api_writer *w, uint8_t kind, size_t n) {
    record_head head = {kind, (uint32_t)n};
    w->last_at = w->store.len;
    sl_buf_add(&w->store, &head, sizeof(head));
}

static sl_status store_piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n,
                             sl_api_error *err) {
    record_head head = {API_NOTHING, 0};
    if (w->last_at != SIZE_MAX)
        memcpy(&head, w->store.data + w->last_at, sizeof(head));
    bool extends = head.kind == kind && n <= UINT32_MAX - head.n;
    size_t around = extends ? 0 : sizeof(head);
    sl_status st =
        reserve(w, n + around, sl__escaped_bytes(bytes, n) + (extends ? 0 : ITEM_BYTES), err);
    if (st)
        return st;
    if (!extends) {
        store_head(w, kind, n);
    } else {
        head.n += (uint32_t)n;
        memcpy(w->store.data + w->last_at, &head, sizeof(head));
    }
    sl_buf_add(&w->store, bytes, n);
    return SL_OK;
}

static sl_status write_piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n,
                             sl_api_error *err) {
    sl_status st = check_open(w, err);
    if (st || n == 0)
        return st;
    if (stores(w) && (st = store_piece(w, kind, bytes, n, err)))
        return st;
    if (!w->request->stream)
        return SL_OK;
    size_t mark = w->out->len;
    dialect_of(w)->piece(w, kind, bytes, n);
    return commit(w, mark, SL_API_FAILURE_BYTES, err);
}

sl_status sl_api_write_text(sl_api_writer *w, const char *bytes, size_t n, sl_api_error *err) {
    return write_piece(w, API_TEXT, bytes, n, err);
}

sl_status sl_api_write_reasoning(sl_api_writer *w, const char *bytes, size_t n, sl_api_error *err) {
    if (w->request->hide_reasoning)
        return check_open(w, err);
    return write_piece(w, dialect_of(w)->text_only ? API_TEXT : API_REASONING, bytes, n, err);
}

// A call that cannot be delivered, as text: in pieces, so that no buffer is needed.
static sl_status write_call_as_text(sl_api_writer *w, const api_record *call, sl_api_error *err) {
    char name[SL_API_TOOL_NAME_MAX * 6 + 3];
    sl_buf quoted;
    sl_buf_init_fixed(&quoted, name, sizeof(name));
    sl_api_add_string(&quoted, call->name.text,
                      SL_MIN(call->name.len, (size_t)SL_API_TOOL_NAME_MAX));
    sl_status st;
    if ((st = write_piece(w, API_TEXT, "{\"name\": ", 9, err)) ||
        (st = write_piece(w, API_TEXT, quoted.data, quoted.len, err)) ||
        (st = write_piece(w, API_TEXT, ", \"arguments\": ", 15, err)) ||
        (st = write_piece(w, API_TEXT, call->arguments.text, call->arguments.len, err)))
        return st;
    return write_piece(w, API_TEXT, "}", 1, err);
}

// Whether a call is one of the request's tools, with arguments that fit; else call_refused says why not.
static bool call_is_good(sl_api_writer *w, const api_record *call) {
    const sl_api_request *req = w->request;
    sl_error why = {0};
    size_t n = req->tool_choice == SL_API_TOOL_NONE ? 0 : req->n_tools;
    for (size_t i = 0; i < n; i++) {
        const sl_api_text *name = &req->tools[i].name;
        if (name->len != call->name.len || memcmp(name->text, call->name.text, name->len) != 0)
            continue;
        sl_status st =
            w->check ? w->check(w->check_user, i, call->arguments.text, call->arguments.len, &why)
                     : SL_OK;
        if (st == SL_OK)
            return true;
        (void)sl_api_fail(&w->call_refused, SL_API_ERR_INVALID, name->text,
                          "the arguments of the call %s: %s",
                          st == SL_ERR_ARGUMENT ? "do not fit" : "cannot be checked", why.message);
        w->n_calls_unchecked += st != SL_ERR_ARGUMENT;
        return st != SL_ERR_ARGUMENT;
    }
    (void)sl_api_fail(&w->call_refused, SL_API_ERR_INVALID, NULL,
                      "the call is of '%.*s', which is no tool",
                      (int)SL_MIN(call->name.len, (size_t)SL_API_TOOL_NAME_MAX), call->name.text);
    return false;
}

sl_status sl_api_check_schema(void *user, size_t tool, const char *arguments, size_t len,
                              sl_error *why) {
    const sl_api_checker *checker = user;
    const sl_api_text *schema = &checker->request->tools[tool].schema;
    return sl_schema_check_text(schema->text, schema->len, arguments, len, checker->scratch, why);
}

static sl_status store_call(sl_api_writer *w, const api_record *call, sl_api_error *err) {
    size_t n = 4 + call->name.len + call->arguments.len;
    uint32_t name_len = (uint32_t)call->name.len;
    size_t json = sl__escaped_bytes(call->name.text, call->name.len) +
                  sl__escaped_bytes(call->arguments.text, call->arguments.len);
    sl_status st = reserve(w, sizeof(record_head) + n, json + ITEM_BYTES, err);
    if (st)
        return st;
    store_head(w, API_CALL, n);
    sl_buf_add(&w->store, &name_len, sizeof(name_len));
    sl_buf_add(&w->store, call->name.text, call->name.len);
    sl_buf_add(&w->store, call->arguments.text, call->arguments.len);
    return SL_OK;
}

sl_status sl_api_write_call(sl_api_writer *w, const char *name, size_t name_len,
                            const char *arguments, size_t arguments_len, sl_api_error *err) {
    const api_record call = {.kind = API_CALL,
                             .name = {name, name_len},
                             .arguments = {arguments, arguments_len},
                             .index = w->n_calls};
    sl_status st = check_open(w, err);
    if (st)
        return st;
    if (dialect_of(w)->text_only)
        return write_call_as_text(w, &call, err);
    if (!call_is_good(w, &call)) {
        w->n_calls_refused++;
        return write_call_as_text(w, &call, err);
    }
    if (stores(w) && (st = store_call(w, &call, err)))
        return st;
    size_t mark = w->out->len;
    if (w->request->stream) {
        dialect_of(w)->call(w, &call);
        if ((st = commit(w, mark, SL_API_FAILURE_BYTES, err)))
            return st;
    }
    w->n_calls++;
    return SL_OK;
}

/* ---- logprobs ---------------------------------------------------------------------------------------------------- */

static void store_entry(sl_api_writer *w, const sl_api_logprob *entry) {
    uint32_t n = (uint32_t)entry->n;
    sl_buf_add(&w->store, &entry->logprob, sizeof(entry->logprob));
    sl_buf_add(&w->store, &n, sizeof(n));
    sl_buf_add(&w->store, entry->bytes, entry->n);
}

sl_status sl_api_write_token(sl_api_writer *w, const sl_api_logprob *token,
                             const sl_api_logprob *top, size_t n_top, sl_api_error *err) {
    sl_status st = check_open(w, err);
    if (st || !w->request->logprobs)
        return st;
    n_top = SL_MIN(n_top, (size_t)w->request->n_top_logprobs);
    uint32_t entries = (uint32_t)n_top + 1;
    // An entry is {"token":"...","logprob":-12.3456789,"bytes":[1,2,3]}: up to six bytes and four for each of the token's.
    size_t n = sizeof(entries) + 8 + token->n, json = 128 + 10 * token->n;
    for (size_t i = 0; i < n_top; i++) {
        n += 8 + top[i].n;
        json += 96 + 10 * top[i].n;
    }
    if ((st = reserve(w, sizeof(record_head) + n, json, err)))
        return st;
    store_head(w, API_TOKEN, n);
    sl_buf_add(&w->store, &entries, sizeof(entries));
    store_entry(w, token);
    for (size_t i = 0; i < n_top; i++)
        store_entry(w, &top[i]);
    return SL_OK;
}

bool sl__token_next(const sl_api_writer *w, size_t *at, size_t to, api_token *token) {
    api_record record = {0};
    while (*at < to && sl__store_next(w, at, &record))
        if (record.kind == API_TOKEN) {
            *token = (api_token){record.bytes + 4, load_u32(record.bytes)};
            return true;
        }
    return false;
}

api_entry sl__token_entry(api_token *token) {
    api_entry entry = {.bytes = token->at + 8, .n = load_u32(token->at + 4)};
    memcpy(&entry.logprob, token->at, sizeof(entry.logprob));
    token->at += 8 + entry.n;
    return entry;
}

bool sl__logprobs_wait(const sl_api_writer *w) {
    api_token token;
    size_t at = w->logprobs_from;
    return sl__token_next(w, &at, w->store.len, &token);
}

static void add_entry(sl_buf *out, const api_entry *e) {
    sl_buf_add_text(out, "{\"token\":");
    sl_api_add_string(out, e->bytes, e->n);
    sl_buf_add_text(out, ",\"logprob\":");
    sl__add_float(out, e->logprob);
    sl_buf_add_text(out, ",\"bytes\":[");
    for (uint32_t i = 0; i < e->n; i++)
        sl_buf_printf(out, i ? ",%u" : "%u", (unsigned char)e->bytes[i]);
    sl_buf_add_char(out, ']');
}

void sl__add_logprobs(sl_api_writer *w, size_t from, size_t to) {
    api_token token;
    const char *comma = "";
    sl_buf_add_char(w->out, '[');
    while (sl__token_next(w, &from, to, &token)) {
        api_entry e = sl__token_entry(&token);
        sl_buf_add_text(w->out, comma);
        add_entry(w->out, &e);
        sl_buf_add_text(w->out, ",\"top_logprobs\":[");
        for (uint32_t i = 1; i < token.n; i++) {
            e = sl__token_entry(&token);
            if (i > 1)
                sl_buf_add_char(w->out, ',');
            add_entry(w->out, &e);
            sl_buf_add_char(w->out, '}');
        }
        sl_buf_add_text(w->out, "]}");
        comma = ",";
    }
    sl_buf_add_char(w->out, ']');
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

sl_status sl_api_finish_answer(sl_api_writer *w, sl_api_finish finish, const char *stop_string,
                               const sl_api_usage *usage, sl_api_error *err) {
    sl_status st = check_open(w, err);
    if (st)
        return st;
    size_t mark = w->out->len;
    if (w->request->stream)
        dialect_of(w)->finish(w, finish, stop_string, usage);
    else
        dialect_of(w)->body(w, finish, stop_string, usage);
    if ((st = commit(w, mark, 0, err)))
        return st;
    w->ended = true;
    return SL_OK;
}

void sl_api_write_failure(sl_api_writer *w, const sl_api_error *cause) {
    if (w->ended)
        return;
    w->ended = true;
    if (w->request->stream)
        dialect_of(w)->failure(w, cause);
    else
        sl_api_write_error(w->request->dialect, cause, w->out);
}

void sl__failure_openai(sl_api_writer *w, const sl_api_error *cause) {
    sl_buf_add_text(w->out, "data: ");
    sl_api_write_error(w->request->dialect, cause, w->out);
    sl_buf_add_text(w->out, "\n\n");
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

void sl__add_id(sl_api_writer *w, const char *prefix, int64_t index) {
    sl_buf_printf(w->out, "\"%s", prefix);
    for (size_t i = 0; i < sizeof(w->identity->random); i++)
        sl_buf_printf(w->out, "%02x", w->identity->random[i]);
    if (index >= 0)
        sl_buf_printf(w->out, "%02x", (unsigned)index);
    sl_buf_add_char(w->out, '"');
}

// The shortest text that reads back as the same float; with a point, whatever the locale says.
void sl__add_float(sl_buf *out, float value) {
    char text[40];
    if (!(value > -9999.0f)) // -inf, and what is no number
        value = -9999.0f;
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    char *comma = strchr(text, ',');
    if (comma)
        *comma = '.';
    sl_buf_add_text(out, text);
}

const char *sl__openai_finish(const sl_api_writer *w, sl_api_finish finish) {
    if (finish == SL_API_FINISH_LENGTH || finish == SL_API_FINISH_CONTEXT)
        return "length";
    return w->n_calls ? "tool_calls" : "stop";
}

void sl__add_usage(sl_api_writer *w, const sl_api_usage *u) {
    sl_buf_printf(w->out,
                  "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%llu,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%u},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%u}}",
                  u->n_prompt, u->n_completion, (unsigned long long)u->n_prompt + u->n_completion,
                  u->n_cached, u->n_reasoning);
}
