/* OpenAI chat completions. See api_format.h. */
#include "server/api_internal.h"

#include <string.h>

/* ---- request ----------------------------------------------------------------------------------------------------- */

typedef struct message {
    sl_api_text role, name, tool_call_id;
    sl_api_text reasoning_content, reasoning, refusal;
    const sl_json *content, *tool_calls;
} message;

#define AT(member) offsetof(message, member)
static const api_field message_fields[] = {
    {.name = "role", .read = sl__read_text, .offset = AT(role), .required = true},
    {.name = "content", .read = sl__read_node, .offset = AT(content)},
    {.name = "name", .read = sl__read_text, .offset = AT(name)},
};
static const api_field assistant_fields[] = {
    {.name = "reasoning_content", .read = sl__read_text, .offset = AT(reasoning_content)},
    {.name = "reasoning", .read = sl__read_text, .offset = AT(reasoning)},
    {.name = "refusal", .read = sl__read_text, .offset = AT(refusal)},
    {.name = "tool_calls", .read = sl__read_node, .offset = AT(tool_calls)},
    {.name = "function_call", .read = sl__read_refused},
    {.name = "audio", .read = sl__read_refused},
};
static const api_field tool_fields[] = {
    {.name = "tool_call_id", .read = sl__read_text, .offset = AT(tool_call_id), .required = true},
};
static const api_table message_table = {message_fields, SL_COUNT(message_fields), NULL};
static const api_table assistant_table = {assistant_fields, SL_COUNT(assistant_fields),
                                          &message_table};
static const api_table tool_table = {tool_fields, SL_COUNT(tool_fields), &message_table};

typedef struct call_fields {
    sl_api_text id, type, name, arguments;
    const sl_json *function;
} call_fields;
static const api_field call_outer[] = {
    {.name = "id", .read = sl__read_text, .offset = offsetof(call_fields, id)},
    {.name = "type", .read = sl__read_text, .offset = offsetof(call_fields, type)},
    {.name = "function",
     .read = sl__read_node,
     .offset = offsetof(call_fields, function),
     .required = true},
};
static const api_field call_inner[] = {
    {.name = "name",
     .read = sl__read_text,
     .offset = offsetof(call_fields, name),
     .required = true},
    {.name = "arguments",
     .read = sl__read_text,
     .offset = offsetof(call_fields, arguments),
     .required = true},
};
static const api_table call_outer_table = {call_outer, SL_COUNT(call_outer), NULL};
static const api_table call_inner_table = {call_inner, SL_COUNT(call_inner), NULL};

static sl_status add_call(api_reader *r, api_turn *turn, const sl_json *v) {
    call_fields in = {0};
    sl_status st = sl__req_fields(r, v, &call_outer_table, &in);
    if (st)
        return st;
    if (in.type.text && strcmp(in.type.text, "function") != 0) {
        (void)sl__req_enter(r, "type");
        return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "'%.40s' is not supported, only 'function'",
                            in.type.text);
    }
    (void)sl__req_enter(r, "function");
    if ((st = sl__req_fields(r, in.function, &call_inner_table, &in)))
        return st;
    api_call *call = sl__turn_call(r, turn);
    if (!call)
        return SL_ERR_MEMORY;
    call->id = in.id;
    call->name = in.name;
    (void)sl__req_enter(r, "arguments");
    return sl__call_arguments(r, call, &in.arguments);
}

static sl_status add_calls(api_reader *r, api_turn *turn, const sl_json *v) {
    size_t i = 0;
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "an array");
    for (const sl_json *m = v->child; m; m = m->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add_call(r, turn, m);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

static const api_table *table_of(const char *role, api_role *out) {
    static const struct {
        const char *name;
        api_role role;
        const api_table *table;
    } roles[] = {
        {"system", API_SYSTEM, &message_table},
        {"developer", API_SYSTEM, &message_table},
        {"user", API_USER, &message_table},
        {"tool", API_TOOL, &tool_table},
        {"assistant", API_ASSISTANT, &assistant_table},
    };
    for (size_t i = 0; i < SL_COUNT(roles); i++)
        if (strcmp(role, roles[i].name) == 0) {
            *out = roles[i].role;
            return roles[i].table;
        }
    return NULL;
}

static sl_status add_message(api_reader *r, const sl_json *v) {
    message in = {0};
    api_role role = API_USER;
    const sl_json *name = sl_json_member_set(v, "role");
    const api_table *table =
        sl_json_is(name, SL_JSON_STRING) ? table_of(name->text, &role) : &message_table;
    if (!table) {
        (void)sl__req_enter(r, "role");
        return sl__req_fail(r, SL_API_ERR_INVALID,
                            "expected system, developer, user, assistant or tool, found '%.40s'",
                            name->text);
    }
    sl_status st = sl__req_fields(r, v, table, &in);
    if (st)
        return st;
    api_turn *turn = sl__turn(r, role, API_JOIN_NEVER);
    if (!turn)
        return SL_ERR_MEMORY;
    turn->name = in.name;
    turn->tool_call_id = in.tool_call_id;
    const sl_api_text *thought = in.reasoning_content.text ? &in.reasoning_content : &in.reasoning;
    if (thought->text && (st = sl__turn_reasoning(r, turn, thought->text, thought->len)))
        return st;
    if (in.tool_calls) {
        size_t mark = sl__req_enter(r, "tool_calls");
        if ((st = add_calls(r, turn, in.tool_calls)))
            return st;
        sl__req_leave(r, mark);
    }
    (void)sl__req_enter(r, "content");
    if (in.content)
        return sl__turn_content(r, turn, in.content);
    if (in.refusal.text)
        return sl__turn_text(r, turn, in.refusal.text, in.refusal.len);
    if (role != API_ASSISTANT || (!turn->calls && !turn->reasoning.first))
        return sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    return SL_OK;
}

static sl_status read_messages(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return sl__req_messages(r, v, add_message);
}

static sl_status read_modalities(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    for (const sl_json *m = v->child; m; m = m->next)
        if (!sl_json_text_is(m, "text"))
            return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "only 'text' is supported");
    return SL_OK;
}

// What happens anyway, said.
static sl_status read_prompt_end(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return v->type == SL_JSON_TRUE
               ? SL_OK
               : sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "only true is supported");
}

#undef AT
#define AT(member) offsetof(sl_api_request, member)
static const api_field fields[] = {
    {.name = "messages", .read = read_messages, .required = true},
    {.name = "tools", .read = sl__read_tools_chat},
    {.name = "tool_choice", .read = sl__read_tool_choice},
    {.name = "parallel_tool_calls",
     .read = sl__read_bool,
     .offset = AT(parallel_tool_calls),
     .set = SL_API_SET_PARALLEL},
    {.name = "response_format", .read = sl__read_format_chat},
    {.name = "logprobs", .read = sl__read_bool, .offset = AT(logprobs)},
    {.name = "top_logprobs",
     .read = sl__read_uint,
     .offset = AT(n_top_logprobs),
     .max = SL_API_TOP_LOGPROBS_MAX},
    {.name = "reasoning_effort", .read = sl__read_effort},
    {.name = "reasoning", .read = sl__read_reasoning},
    {.name = "thinking", .read = sl__read_thinking},
    {.name = "enable_thinking", .read = sl__read_switch},
    {.name = "modalities", .read = read_modalities},
    {.name = "add_generation_prompt", .read = read_prompt_end},
    {.name = "continue_final_message", .read = sl__read_refused},
    {.name = "functions", .read = sl__read_refused},
    {.name = "function_call", .read = sl__read_refused},
    {.name = "audio", .read = sl__read_refused},
    {.name = "web_search_options", .read = sl__read_refused},
    {.name = "verbosity", .read = sl__read_refused, .neutral = "medium"},
};
static const api_table table = {fields, SL_COUNT(fields), &sl__table_openai};

static sl_status parse(api_reader *r) {
    sl_status st = sl__req_fields(r, r->body, &table, r->req);
    if (st)
        return st;
    if (r->req->n_top_logprobs && !r->req->logprobs)
        return sl_api_fail(r->err, SL_API_ERR_INVALID, "top_logprobs", "needs logprobs to be true");
    return sl__req_render(r);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static void head(sl_api_writer *w, const char *object) {
    sl_buf_add_text(w->out, w->request->stream ? "data: {\"id\":" : "{\"id\":");
    sl__add_id(w, "chatcmpl-", -1);
    sl_buf_printf(w->out, ",\"object\":\"%s\",\"created\":%lld", object,
                  (long long)w->identity->created);
    sl__add_member(w->out, "model", w->identity->model);
    sl_buf_add_text(w->out, ",\"choices\":[");
}

static void add_logprobs(sl_api_writer *w, const char *none) {
    if (!w->request->logprobs || (!sl__logprobs_wait(w) && w->request->stream)) {
        sl_buf_add_text(w->out, none);
        return;
    }
    sl_buf_add_text(w->out, "{\"content\":");
    sl__add_logprobs(w, w->logprobs_from, w->store.len);
    sl_buf_add_text(w->out, ",\"refusal\":null}");
    sl__store_sent(w);
}

static void chunk_begin(sl_api_writer *w) {
    head(w, "chat.completion.chunk");
    sl_buf_add_text(w->out, "{\"index\":0,\"delta\":{");
}

static void chunk_end(sl_api_writer *w, const char *finish_reason) {
    sl_buf_add_text(w->out, "},\"logprobs\":");
    add_logprobs(w, "null");
    sl__add_member(w->out, "finish_reason", finish_reason);
    sl_buf_add_text(w->out, w->request->include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void begin(sl_api_writer *w) {
    chunk_begin(w);
    sl_buf_add_text(w->out, "\"role\":\"assistant\",\"content\":\"\"");
    chunk_end(w, NULL);
}

static void piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n) {
    chunk_begin(w);
    sl_buf_add_text(w->out, kind == API_TEXT ? "\"content\":" : "\"reasoning_content\":");
    sl_api_add_string(w->out, bytes, n);
    chunk_end(w, NULL);
}

static void add_call_object(sl_api_writer *w, const api_record *call, bool index) {
    sl_buf_add_char(w->out, '{');
    if (index)
        sl_buf_printf(w->out, "\"index\":%u,", call->index);
    sl_buf_add_text(w->out, "\"id\":");
    sl__add_id(w, "call_", call->index);
    sl_buf_add_text(w->out, ",\"type\":\"function\",\"function\":{\"name\":");
    sl_api_add_string(w->out, call->name.text, call->name.len);
    sl_buf_add_text(w->out, ",\"arguments\":");
    sl_api_add_string(w->out, call->arguments.text, call->arguments.len);
    sl_buf_add_text(w->out, "}}");
}

static void call_chunk(sl_api_writer *w, const api_record *call) {
    chunk_begin(w);
    sl_buf_add_text(w->out, "\"tool_calls\":[");
    add_call_object(w, call, true);
    sl_buf_add_char(w->out, ']');
    chunk_end(w, NULL);
}

static void finish(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                   const sl_api_usage *usage) {
    (void)stop_string;
    chunk_begin(w);
    chunk_end(w, sl__openai_finish(w, how));
    if (w->request->include_usage) {
        head(w, "chat.completion.chunk");
        sl_buf_add_text(w->out, "],\"usage\":");
        sl__add_usage(w, usage);
        sl_buf_add_text(w->out, "}\n\n");
    }
    sl_buf_add_text(w->out, "data: [DONE]\n\n");
}

static void add_message_calls(sl_api_writer *w) {
    api_record record;
    size_t at = 0;
    const char *before = ",\"tool_calls\":[";
    while (sl__store_next(w, &at, &record)) {
        if (record.kind != API_CALL)
            continue;
        sl_buf_add_text(w->out, before);
        add_call_object(w, &record, false);
        before = ",";
    }
    if (w->n_calls)
        sl_buf_add_char(w->out, ']');
}

static void body(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                 const sl_api_usage *usage) {
    (void)stop_string;
    head(w, "chat.completion");
    sl_buf_add_text(w->out, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    if (w->n_calls && !sl__store_has(w, API_TEXT))
        sl_buf_add_text(w->out, "null");
    else
        sl__add_joined(w, API_TEXT, 0, w->store.len);
    sl_buf_add_text(w->out, ",\"refusal\":null");
    if (sl__store_has(w, API_REASONING)) {
        sl_buf_add_text(w->out, ",\"reasoning_content\":");
        sl__add_joined(w, API_REASONING, 0, w->store.len);
    }
    add_message_calls(w);
    sl_buf_add_text(w->out, "},\"logprobs\":");
    add_logprobs(w, "null");
    sl__add_member(w->out, "finish_reason", sl__openai_finish(w, how));
    sl_buf_add_text(w->out, "}],\"usage\":");
    sl__add_usage(w, usage);
    sl_buf_add_char(w->out, '}');
}

const api_dialect sl__api_chat = {
    .parse = parse,
    .begin = begin,
    .piece = piece,
    .call = call_chunk,
    .finish = finish,
    .failure = sl__failure_openai,
    .body = body,
};
