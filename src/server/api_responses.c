/* OpenAI responses, the part that text, streaming and function calls need. See api_format.h. */
#include "server/api_internal.h"

#include <string.h>

/* ---- request: items of the input --------------------------------------------------------------------------------- */

typedef struct item {
    sl_api_text type, role, call_id, name, arguments, text;
    const sl_json *content, *output, *summary;
} item;

#define AT(member) offsetof(item, member)
#define TABLE(name, fields) static const api_table name = {fields, SL_COUNT(fields), NULL}
static const api_field message_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = AT(type)},
    {.name = "role", .read = sl__read_text, .offset = AT(role), .required = true},
    {.name = "content", .read = sl__read_node, .offset = AT(content), .required = true},
};
static const api_field call_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = AT(type)},
    {.name = "call_id", .read = sl__read_text, .offset = AT(call_id), .required = true},
    {.name = "name", .read = sl__read_text, .offset = AT(name), .required = true},
    {.name = "arguments", .read = sl__read_text, .offset = AT(arguments), .required = true},
};
static const api_field output_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = AT(type)},
    {.name = "call_id", .read = sl__read_text, .offset = AT(call_id), .required = true},
    {.name = "output", .read = sl__read_node, .offset = AT(output), .required = true},
};
static const api_field reasoning_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = AT(type)},
    {.name = "content", .read = sl__read_node, .offset = AT(content)},
    {.name = "summary", .read = sl__read_node, .offset = AT(summary)},
};
static const api_field thought_fields[] = {
    {.name = "type", .read = sl__read_text, .offset = AT(type), .required = true},
    {.name = "text", .read = sl__read_text, .offset = AT(text), .required = true},
};
TABLE(message_table, message_fields);
TABLE(call_table, call_fields);
TABLE(output_table, output_fields);
TABLE(reasoning_table, reasoning_fields);
TABLE(thought_table, thought_fields);

static sl_status add_message(api_reader *r, const item *in) {
    static const struct {
        const char *name;
        api_role role;
    } roles[] = {{"user", API_USER},
                 {"assistant", API_ASSISTANT},
                 {"system", API_SYSTEM},
                 {"developer", API_SYSTEM}};
    for (size_t i = 0; i < SL_COUNT(roles); i++) {
        if (strcmp(in->role.text, roles[i].name) != 0)
            continue;
        // What the assistant said comes back in items: thinking, text and calls of one turn.
        api_turn *turn = sl__turn(
            r, roles[i].role, roles[i].role == API_ASSISTANT ? API_JOIN_MESSAGE : API_JOIN_NEVER);
        (void)sl__req_enter(r, "content");
        return turn ? sl__turn_content(r, turn, in->content) : SL_ERR_MEMORY;
    }
    (void)sl__req_enter(r, "role");
    return sl__req_fail(r, SL_API_ERR_INVALID,
                        "expected user, assistant, system or developer, found '%.40s'",
                        in->role.text);
}

static sl_status add_call(api_reader *r, const item *in) {
    api_turn *turn = sl__turn(r, API_ASSISTANT, API_JOIN_MESSAGE);
    api_call *call = turn ? sl__turn_call(r, turn) : NULL;
    if (!call)
        return SL_ERR_MEMORY;
    call->id = in->call_id;
    call->name = in->name;
    (void)sl__req_enter(r, "arguments");
    return sl__call_arguments(r, call, &in->arguments);
}

static sl_status add_output(api_reader *r, const item *in) {
    api_turn *turn = sl__turn(r, API_TOOL, API_JOIN_NEVER);
    if (!turn)
        return SL_ERR_MEMORY;
    turn->tool_call_id = in->call_id;
    (void)sl__req_enter(r, "output");
    return sl__turn_content(r, turn, in->output);
}

// The thinking itself, or its summary where that is all there is.
static sl_status add_reasoning(api_reader *r, const item *in) {
    const sl_json *parts = in->content && in->content->n_children ? in->content : in->summary;
    size_t i = 0;
    api_turn *turn = sl__turn(r, API_ASSISTANT, API_JOIN_MESSAGE);
    if (!turn)
        return SL_ERR_MEMORY;
    if (!parts)
        return SL_OK;
    (void)sl__req_enter(r, parts == in->content ? "content" : "summary");
    if (parts->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, parts, "an array");
    for (const sl_json *m = parts->child; m; m = m->next, i++) {
        item part = {0};
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = sl__req_fields(r, m, &thought_table, &part);
        if (st || (st = sl__turn_reasoning(r, turn, part.text.text, part.text.len)))
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

static sl_status add_item(api_reader *r, const sl_json *v) {
    static const struct {
        const char *name;
        const api_table *table;
        sl_status (*add)(api_reader *r, const item *in);
    } types[] = {
        {"message", &message_table, add_message},
        {"function_call", &call_table, add_call},
        {"function_call_output", &output_table, add_output},
        {"reasoning", &reasoning_table, add_reasoning},
    };
    item in = {0};
    // A message may leave its type out.
    const char *type = sl_json_member_set(v, "role") && !sl_json_member_set(v, "type")
                           ? "message"
                           : sl__req_type(r, v);
    if (!type)
        return SL_ERR_ARGUMENT;
    for (size_t i = 0; i < SL_COUNT(types); i++)
        if (strcmp(type, types[i].name) == 0) {
            sl_status st = sl__req_fields(r, v, types[i].table, &in);
            return st ? st : types[i].add(r, &in);
        }
    (void)sl__req_enter(r, "type");
    return sl__req_fail(
        r, SL_API_ERR_UNSUPPORTED,
        "expected message, function_call, function_call_output or reasoning, found '%.40s'", type);
}

static sl_status read_input(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    size_t i = 0;
    (void)f;
    (void)into;
    if (v->type == SL_JSON_STRING) {
        api_turn *turn = sl__turn(r, API_USER, API_JOIN_NEVER);
        return turn ? sl__turn_text(r, turn, v->text, v->text_len) : SL_ERR_MEMORY;
    }
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "a string or an array of items");
    if (!v->child)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected at least one item, found none");
    for (const sl_json *m = v->child; m; m = m->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add_item(r, m);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

/* ---- request: the rest ------------------------------------------------------------------------------------------- */

static sl_status read_instructions(api_reader *r, const sl_json *v, const api_field *f,
                                   void *into) {
    (void)f;
    (void)into;
    if (v->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, v, "a string");
    api_turn *turn = sl__turn(r, API_SYSTEM, API_JOIN_NEVER);
    return turn ? sl__turn_text(r, turn, v->text, v->text_len) : SL_ERR_MEMORY;
}

static const api_field text_fields[] = {
    {.name = "format", .read = sl__read_format_schema},
    {.name = "verbosity", .read = sl__read_refused, .neutral = "medium"},
};
TABLE(text_table, text_fields);

static sl_status read_text(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    return sl__req_fields(r, v, &text_table, into);
}

static sl_status read_include(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    size_t i = 0;
    (void)f;
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "an array");
    for (const sl_json *m = v->child; m; m = m->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        if (sl_json_text_is(m, "message.output_text.logprobs"))
            req->logprobs = true;
        else if (!sl_json_text_is(m, "reasoning.encrypted_content")) // thinking is not hidden here
            return sl__req_fail(
                r, SL_API_ERR_UNSUPPORTED,
                "only message.output_text.logprobs and reasoning.encrypted_content");
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

#undef AT
#define AT(member) offsetof(sl_api_request, member)
static const api_field fields[] = {
    {.name = "instructions", .read = read_instructions},
    {.name = "input", .read = read_input, .required = true},
    {.name = "tools", .read = sl__read_tools_responses},
    {.name = "tool_choice", .read = sl__read_tool_choice},
    {.name = "parallel_tool_calls",
     .read = sl__read_bool,
     .offset = AT(parallel_tool_calls),
     .set = SL_API_SET_PARALLEL},
    {.name = "text", .read = read_text},
    {.name = "max_output_tokens",
     .read = sl__read_uint,
     .offset = AT(max_tokens),
     .set = SL_API_SET_MAX_TOKENS,
     .min = 1,
     .max = UINT32_MAX},
    {.name = "reasoning", .read = sl__read_reasoning},
    {.name = "include", .read = read_include},
    {.name = "top_logprobs",
     .read = sl__read_uint,
     .offset = AT(n_top_logprobs),
     .max = SL_API_TOP_LOGPROBS_MAX},
    {.name = "previous_response_id", .read = sl__read_refused},
    {.name = "conversation", .read = sl__read_refused},
    {.name = "prompt", .read = sl__read_refused},
    {.name = "background", .read = sl__read_refused},
    {.name = "truncation", .read = sl__read_refused, .neutral = "disabled"},
    {.name = "context_management", .read = sl__read_refused},
};
static const api_table table = {fields, SL_COUNT(fields), &sl__table_sampling};

static void echo_number(sl_buf *out, const char *key, bool set, float value) {
    sl_buf_printf(out, ",\"%s\":", key);
    if (set)
        sl__add_float(out, value);
    else
        sl_buf_add_text(out, "null");
}

/* What a response repeats of its request, once written. Tools are repeated by name: a response is sent three times, and
 * a client has its tools. */
static sl_status write_echo(api_reader *r) {
    static const char *const formats[] = {"text", "json_object", "json_schema"};
    static const char *const choices[] = {"\"auto\"", "\"none\"", "\"required\""};
    sl_api_request *req = r->req;
    sl_buf out;
    sl_status st = sl__req_text_begin(r, &out);
    if (st)
        return st;
    sl_buf_printf(&out, ",\"parallel_tool_calls\":%s", req->parallel_tool_calls ? "true" : "false");
    echo_number(&out, "temperature", req->set & SL_API_SET_TEMPERATURE, req->temperature);
    echo_number(&out, "top_p", req->set & SL_API_SET_TOP_P, req->top_p);
    if (req->set & SL_API_SET_MAX_TOKENS)
        sl_buf_printf(&out, ",\"max_output_tokens\":%u", req->max_tokens);
    else
        sl_buf_add_text(&out, ",\"max_output_tokens\":null");
    sl_buf_printf(&out, ",\"text\":{\"format\":{\"type\":\"%s\"}}", formats[req->constraint]);
    sl_buf_add_text(&out, ",\"tool_choice\":");
    if (req->tool_choice == SL_API_TOOL_NAMED) {
        sl_buf_add_text(&out, "{\"type\":\"function\",\"name\":");
        sl_api_add_string(&out, req->tools[req->named_tool].name.text,
                          req->tools[req->named_tool].name.len);
        sl_buf_add_char(&out, '}');
    } else {
        sl_buf_add_text(&out, choices[req->tool_choice]);
    }
    sl_buf_add_text(&out, ",\"tools\":[");
    for (size_t i = 0; i < req->n_tools; i++) {
        sl_buf_add_text(&out, i ? ",{\"type\":\"function\",\"name\":"
                                : "{\"type\":\"function\",\"name\":");
        sl_api_add_string(&out, req->tools[i].name.text, req->tools[i].name.len);
        sl_buf_printf(&out, ",\"parameters\":null,\"strict\":%s}",
                      req->tools[i].strict ? "true" : "false");
    }
    sl_buf_add_char(&out, ']');
    return sl__req_text_end(r, &out, &req->echo);
}

static sl_status parse(api_reader *r) {
    sl_status st = sl__req_fields(r, r->body, &table, r->req);
    if (st)
        return st;
    r->req->logprobs |= r->req->n_top_logprobs > 0;
    return (st = write_echo(r)) ? st : sl__req_render(r);
}

/* ---- answer: items ----------------------------------------------------------------------------------------------- */

static void add_item_id(sl_api_writer *w, uint8_t kind, uint32_t index) {
    sl__add_id(w, kind == API_TEXT ? "msg_" : kind == API_CALL ? "fc_" : "rs_", index);
}

// A part of an item: text of the store between two places, or an empty one. Logprobs are those up to `sent`.
static void add_part(sl_api_writer *w, uint8_t kind, size_t from, size_t to, size_t sent) {
    sl_buf_add_text(w->out, kind == API_TEXT
                                ? "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":"
                                : "{\"type\":\"reasoning_text\"");
    if (kind == API_TEXT)
        sl__add_logprobs(w, from, sent);
    sl_buf_add_text(w->out, ",\"text\":");
    sl__add_joined(w, kind, from, to);
    sl_buf_add_char(w->out, '}');
}

static void add_call_item(sl_api_writer *w, uint32_t index, const api_record *call, bool done) {
    sl_buf_add_text(w->out, "{\"type\":\"function_call\",\"id\":");
    add_item_id(w, API_CALL, index);
    sl_buf_add_text(w->out, ",\"call_id\":");
    sl__add_id(w, "call_", call->index);
    sl_buf_add_text(w->out, ",\"name\":");
    sl_api_add_string(w->out, call->name.text, call->name.len);
    sl_buf_add_text(w->out, ",\"arguments\":");
    sl_api_add_string(w->out, call->arguments.text, done ? call->arguments.len : 0);
    sl_buf_printf(w->out, ",\"status\":\"%s\"}", done ? "completed" : "in_progress");
}

// An item of text or thinking; without a part while it begins.
static void add_text_item(sl_api_writer *w, uint8_t kind, uint32_t index, const char *status,
                          size_t from, size_t to, size_t sent) {
    sl_buf_add_text(w->out, kind == API_TEXT
                                ? "{\"type\":\"message\",\"role\":\"assistant\",\"id\":"
                                : "{\"type\":\"reasoning\",\"summary\":[],\"id\":");
    add_item_id(w, kind, index);
    sl_buf_printf(w->out, ",\"status\":\"%s\",\"content\":[", status);
    if (from < to)
        add_part(w, kind, from, to, sent);
    sl_buf_add_text(w->out, "]}");
}

static void add_usage(sl_api_writer *w, const sl_api_usage *u) {
    sl_buf_printf(w->out,
                  "{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
                  "\"cache_write_tokens\":0},\"output_tokens\":%u,\"output_tokens_details\":"
                  "{\"reasoning_tokens\":%u},\"total_tokens\":%llu}",
                  u->n_prompt, u->n_cached, u->n_completion, u->n_reasoning,
                  (unsigned long long)u->n_prompt + u->n_completion);
}

// All items of the store. An answer that was cut ends in an item that is incomplete.
static void add_output_items(sl_api_writer *w, bool cut) {
    api_record first = {0};
    uint32_t index = 0;
    for (size_t at = 0, end; at < w->store.len; at = end, index++) {
        end = sl__store_item(w, at, &first);
        if (first.kind == API_NOTHING)
            break;
        if (index)
            sl_buf_add_char(w->out, ',');
        if (first.kind == API_CALL)
            add_call_item(w, index, &first, true);
        else
            add_text_item(w, first.kind, index,
                          cut && end == w->store.len ? "incomplete" : "completed", at, end, end);
    }
}

static const char *cut_reason(sl_api_finish how) {
    return how == SL_API_FINISH_LENGTH || how == SL_API_FINISH_CONTEXT ? "max_output_tokens" : NULL;
}

// The response object. usage NULL: it is not over yet; error NULL: nothing went wrong.
static void add_response(sl_api_writer *w, const char *status, const sl_api_usage *usage,
                         const char *incomplete, const sl_api_error *error) {
    sl_buf_add_text(w->out, "{\"id\":");
    sl__add_id(w, "resp_", -1);
    sl_buf_printf(w->out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\"",
                  (long long)w->identity->created, status);
    sl__add_member(w->out, "model", w->identity->model);
    sl_buf_add_text(w->out, ",\"error\":");
    if (error) {
        sl_buf_add_text(w->out, "{\"code\":\"server_error\",\"message\":");
        sl_api_add_string(w->out, error->message, strlen(error->message));
        sl_buf_add_char(w->out, '}');
    } else {
        sl_buf_add_text(w->out, "null");
    }
    sl_buf_add_text(w->out, ",\"incomplete_details\":");
    if (incomplete)
        sl_buf_printf(w->out, "{\"reason\":\"%s\"}", incomplete);
    else
        sl_buf_add_text(w->out, "null");
    sl_buf_add_text(w->out, ",\"output\":[");
    if (usage)
        add_output_items(w, incomplete != NULL);
    sl_buf_add_text(w->out, "],\"usage\":");
    if (usage)
        add_usage(w, usage);
    else
        sl_buf_add_text(w->out, "null");
    sl_buf_add_text(w->out, ",\"instructions\":null,\"metadata\":{},\"previous_response_id\":null,"
                            "\"store\":false,\"truncation\":\"disabled\"");
    if (error) // a failure has to fit into little
        sl_buf_add_text(w->out,
                        ",\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[]");
    else
        sl_buf_add(w->out, w->request->echo.text, w->request->echo.len);
    sl_buf_add_char(w->out, '}');
}

/* ---- answer: stream ---------------------------------------------------------------------------------------------- */

static void event(sl_api_writer *w, const char *name) {
    sl_buf_printf(w->out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%u", name, name,
                  w->sequence++);
}

static void event_end(sl_api_writer *w) {
    sl_buf_add_text(w->out, "}\n\n");
}

static void response_event(sl_api_writer *w, const char *name, const char *status,
                           const sl_api_usage *usage, const char *incomplete,
                           const sl_api_error *error) {
    event(w, name);
    sl_buf_add_text(w->out, ",\"response\":");
    add_response(w, status, usage, incomplete, error);
    event_end(w);
}

static void begin(sl_api_writer *w) {
    response_event(w, "response.created", "in_progress", NULL, NULL, NULL);
    response_event(w, "response.in_progress", "in_progress", NULL, NULL, NULL);
}

// An event about the item that is open: where it is, and of a part which.
static void item_event(sl_api_writer *w, const char *name, bool part) {
    event(w, name);
    sl_buf_printf(w->out, ",\"output_index\":%u,\"item_id\":", w->n_items - 1);
    add_item_id(w, w->open, w->n_items - 1);
    if (part)
        sl_buf_add_text(w->out, ",\"content_index\":0");
}

static void item_object_event(sl_api_writer *w, const char *name) {
    event(w, name);
    sl_buf_printf(w->out, ",\"output_index\":%u,\"item\":", w->n_items - 1);
}

static void piece_event(sl_api_writer *w, const char *bytes, size_t n) {
    item_event(w,
               w->open == API_TEXT ? "response.output_text.delta" : "response.reasoning_text.delta",
               true);
    sl_buf_add_text(w->out, ",\"delta\":");
    sl_api_add_string(w->out, bytes, n);
    if (w->open == API_TEXT) {
        sl_buf_add_text(w->out, ",\"logprobs\":");
        sl__add_logprobs(w, w->logprobs_from, w->store.len);
    }
    event_end(w);
    sl__store_sent(w);
}

static void close_item(sl_api_writer *w, const char *status) {
    uint8_t kind = w->open;
    if (kind == API_NOTHING)
        return;
    size_t from = w->item_at, to = w->store.len, sent = w->logprobs_from;
    item_event(w, kind == API_TEXT ? "response.output_text.done" : "response.reasoning_text.done",
               true);
    sl_buf_add_text(w->out, ",\"text\":");
    sl__add_joined(w, kind, from, to);
    if (kind == API_TEXT) {
        sl_buf_add_text(w->out, ",\"logprobs\":");
        sl__add_logprobs(w, from, sent);
    }
    event_end(w);
    item_event(w, "response.content_part.done", true);
    sl_buf_add_text(w->out, ",\"part\":");
    add_part(w, kind, from, to, sent);
    event_end(w);
    item_object_event(w, "response.output_item.done");
    add_text_item(w, kind, w->n_items - 1, status, from, to, sent);
    event_end(w);
    w->open = API_NOTHING;
}

static void piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n) {
    if (w->open != kind) {
        close_item(w, "completed");
        w->open = kind;
        w->item_at = w->logprobs_from;
        w->n_items++;
        item_object_event(w, "response.output_item.added");
        add_text_item(w, kind, w->n_items - 1, "in_progress", 0, 0, 0);
        event_end(w);
        item_event(w, "response.content_part.added", true);
        sl_buf_add_text(w->out, ",\"part\":");
        add_part(w, kind, 0, 0, 0);
        event_end(w);
    }
    piece_event(w, bytes, n);
}

static void call_item(sl_api_writer *w, const api_record *call) {
    close_item(w, "completed");
    w->open = API_CALL;
    w->n_items++;
    item_object_event(w, "response.output_item.added");
    add_call_item(w, w->n_items - 1, call, false);
    event_end(w);
    item_event(w, "response.function_call_arguments.delta", false);
    sl_buf_add_text(w->out, ",\"delta\":");
    sl_api_add_string(w->out, call->arguments.text, call->arguments.len);
    event_end(w);
    item_event(w, "response.function_call_arguments.done", false);
    sl_buf_add_text(w->out, ",\"name\":");
    sl_api_add_string(w->out, call->name.text, call->name.len);
    sl_buf_add_text(w->out, ",\"arguments\":");
    sl_api_add_string(w->out, call->arguments.text, call->arguments.len);
    event_end(w);
    item_object_event(w, "response.output_item.done");
    add_call_item(w, w->n_items - 1, call, true);
    event_end(w);
    w->open = API_NOTHING;
    sl__store_sent(w);
}

static void finish(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                   const sl_api_usage *usage) {
    const char *cut = cut_reason(how);
    (void)stop_string;
    if (w->open == API_TEXT && sl__logprobs_wait(w))
        piece_event(w, "", 0);
    close_item(w, cut ? "incomplete" : "completed");
    response_event(w, cut ? "response.incomplete" : "response.completed",
                   cut ? "incomplete" : "completed", usage, cut, NULL);
}

static void failure(sl_api_writer *w, const sl_api_error *cause) {
    if (w->began) {
        response_event(w, "response.failed", "failed", NULL, NULL, cause);
        return;
    }
    event(w, "error");
    sl__add_member(w->out, "code", sl__error_code(cause));
    sl__add_member(w->out, "message", cause->message);
    sl__add_member(w->out, "param", cause->param[0] ? cause->param : NULL);
    event_end(w);
}

static void body(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                 const sl_api_usage *usage) {
    const char *cut = cut_reason(how);
    (void)stop_string;
    add_response(w, cut ? "incomplete" : "completed", usage, cut, NULL);
}

const api_dialect sl__api_responses = {
    .parse = parse,
    .body = body,
    .begin = begin,
    .piece = piece,
    .call = call_item,
    .finish = finish,
    .failure = failure,
    .stream_stores = true,
};
