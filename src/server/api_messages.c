/* Anthropic messages, and the count of their tokens. See api_format.h. */
#include "server/api_internal.h"

#include <string.h>

/* ---- request ----------------------------------------------------------------------------------------------------- */

// A content block of any type: each type reads what it has.
typedef struct block {
    sl_api_text type, text, thinking, id, name, tool_use_id;
    const sl_json *input, *content;
    bool is_error;
    api_join join;
} block;

#define AT(member) offsetof(block, member)
#define TYPE_FIELD                                                                                 \
    { .name = "type", .read = sl__read_text, .offset = AT(type), .required = true }
#define TABLE(name, fields) static const api_table name = {fields, SL_COUNT(fields), NULL}
static const api_field text_fields[] = {
    TYPE_FIELD,
    {.name = "text", .read = sl__read_text, .offset = AT(text), .required = true},
};
static const api_field thinking_fields[] = {
    TYPE_FIELD,
    {.name = "thinking", .read = sl__read_text, .offset = AT(thinking), .required = true},
    {.name = "signature", .read = sl__read_text, .offset = AT(name)}, // ours says nothing
};
static const api_field use_fields[] = {
    TYPE_FIELD,
    {.name = "id", .read = sl__read_text, .offset = AT(id), .required = true},
    {.name = "name", .read = sl__read_text, .offset = AT(name), .required = true},
    {.name = "input", .read = sl__read_node, .offset = AT(input), .required = true},
};
static const api_field result_fields[] = {
    TYPE_FIELD,
    {.name = "tool_use_id", .read = sl__read_text, .offset = AT(tool_use_id), .required = true},
    {.name = "content", .read = sl__read_node, .offset = AT(content)},
    {.name = "is_error", .read = sl__read_bool, .offset = AT(is_error)},
};
TABLE(text_table, text_fields);
TABLE(thinking_table, thinking_fields);
TABLE(use_table, use_fields);
TABLE(result_table, result_fields);

static sl_status add_text(api_reader *r, api_role role, const block *b) {
    api_turn *turn = sl__turn(r, role, b->join);
    return turn ? sl__turn_text(r, turn, b->text.text, b->text.len) : SL_ERR_MEMORY;
}

static sl_status add_thinking(api_reader *r, api_role role, const block *b) {
    api_turn *turn = sl__turn(r, role, b->join);
    return turn ? sl__turn_reasoning(r, turn, b->thinking.text, b->thinking.len) : SL_ERR_MEMORY;
}

static sl_status add_use(api_reader *r, api_role role, const block *b) {
    if (b->input->type != SL_JSON_OBJECT) {
        (void)sl__req_enter(r, "input");
        return sl__req_wrong_type(r, b->input, "an object");
    }
    api_turn *turn = sl__turn(r, role, b->join);
    api_call *call = turn ? sl__turn_call(r, turn) : NULL;
    if (!call)
        return SL_ERR_MEMORY;
    call->id = b->id;
    call->name = b->name;
    call->input = b->input;
    return SL_OK;
}

// A result is a turn of its own. Templates have no word for one that failed, so the text says it.
static sl_status add_result(api_reader *r, api_role role, const block *b) {
    (void)role;
    api_turn *turn = sl__turn(r, API_TOOL, API_JOIN_NEVER);
    sl_status st = SL_OK;
    if (!turn)
        return SL_ERR_MEMORY;
    turn->tool_call_id = b->tool_use_id;
    if (b->is_error)
        st = sl__turn_text(r, turn, "Error: ", 7);
    if (st || !b->content)
        return st;
    (void)sl__req_enter(r, "content");
    return sl__turn_content(r, turn, b->content);
}

static const struct block_type {
    const char *name;
    api_role role; // who may say it; API_SYSTEM: everybody
    const api_table *table;
    sl_status (*add)(api_reader *r, api_role role, const block *b);
} block_types[] = {
    {"text", API_SYSTEM, &text_table, add_text},
    {"thinking", API_ASSISTANT, &thinking_table, add_thinking},
    {"tool_use", API_ASSISTANT, &use_table, add_use},
    {"tool_result", API_USER, &result_table, add_result},
};

static sl_status add_block(api_reader *r, api_role role, const sl_json *v, api_join join) {
    block b = {.join = join};
    const char *type = sl__req_type(r, v);
    if (!type)
        return SL_ERR_ARGUMENT;
    if (role == API_ASSISTANT && strcmp(type, "redacted_thinking") == 0)
        return sl__req_note_ignored(r, "data"); // nobody but its maker can read it
    for (size_t i = 0; i < SL_COUNT(block_types); i++) {
        const struct block_type *t = &block_types[i];
        if (strcmp(type, t->name) != 0 || (t->role != API_SYSTEM && t->role != role))
            continue;
        sl_status st = sl__req_fields(r, v, t->table, &b);
        return st ? st : t->add(r, role, &b);
    }
    return sl__req_no_text(r, type);
}

static sl_status add_content(api_reader *r, api_role role, const sl_json *v) {
    size_t i = 0;
    if (v->type == SL_JSON_STRING) {
        const block b = {.text = {v->text, v->text_len}, .join = API_JOIN_MESSAGE};
        return add_text(r, role, &b);
    }
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "a string or an array of blocks");
    for (const sl_json *m = v->child; m; m = m->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add_block(r, role, m, i ? API_JOIN_BLOCK : API_JOIN_MESSAGE);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

typedef struct message {
    sl_api_text role;
    const sl_json *content;
} message;
static const api_field message_fields[] = {
    {.name = "role", .read = sl__read_text, .offset = offsetof(message, role), .required = true},
    {.name = "content",
     .read = sl__read_node,
     .offset = offsetof(message, content),
     .required = true},
};
TABLE(message_table, message_fields);

static sl_status add_message(api_reader *r, const sl_json *v) {
    static const char *const roles[] = {
        [API_SYSTEM] = "system", [API_USER] = "user", [API_ASSISTANT] = "assistant"};
    message in = {0};
    sl_status st = sl__req_fields(r, v, &message_table, &in);
    if (st)
        return st;
    for (size_t role = 0; role < SL_COUNT(roles); role++)
        if (strcmp(in.role.text, roles[role]) == 0) {
            (void)sl__req_enter(r, "content");
            return add_content(r, (api_role)role, in.content);
        }
    (void)sl__req_enter(r, "role");
    return sl__req_fail(r, SL_API_ERR_INVALID, "expected user, assistant or system, found '%.40s'",
                        in.role.text);
}

static sl_status read_system(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return add_content(r, API_SYSTEM, v);
}

static sl_status read_messages(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    sl_status st = sl__req_messages(r, v, add_message);
    if (st)
        return st;
    if (r->last_turn && r->last_turn->role == API_ASSISTANT)
        return sl__req_fail(
            r, SL_API_ERR_UNSUPPORTED,
            "the last message is the assistant's: beginning its answer is not supported");
    return SL_OK;
}

static sl_status read_output_effort(api_reader *r, const sl_json *v, const api_field *f,
                                    void *into) {
    (void)f;
    (void)into;
    return v->type == SL_JSON_STRING ? sl__req_effort(r, v->text)
                                     : sl__req_wrong_type(r, v, "a string");
}

static const api_field output_fields[] = {
    {.name = "effort", .read = read_output_effort},
    {.name = "format", .read = sl__read_format_schema},
};
TABLE(output_table, output_fields);

static sl_status read_output(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    return sl__req_fields(r, v, &output_table, into);
}

static const api_field fields[] = {
    {.name = "system", .read = read_system},
    {.name = "messages", .read = read_messages, .required = true},
    {.name = "tools", .read = sl__read_tools_messages},
    {.name = "tool_choice", .read = sl__read_tool_choice},
    {.name = "thinking", .read = sl__read_thinking},
    {.name = "output_config", .read = read_output},
    {.name = "output_format", .read = sl__read_format_schema},
    {.name = "stop_sequences", .read = sl__read_stop},
    {.name = "container", .read = sl__read_refused},
    {.name = "mcp_servers", .read = sl__read_refused},
    {.name = "context_management", .read = sl__read_refused},
    {.name = "prefill", .read = sl__read_refused},
};
static const api_field max_field = {
    .name = "max_tokens",
    .read = sl__read_uint,
    .offset = offsetof(sl_api_request, max_tokens),
    .set = SL_API_SET_MAX_TOKENS,
    .min = 1,
    .max = UINT32_MAX,
};

static sl_status parse_as(api_reader *r, bool count) {
    api_field max = max_field;
    max.required = !count;
    const api_table max_table = {&max, 1, &sl__table_sampling};
    const api_table table = {fields, SL_COUNT(fields), &max_table};
    sl_status st = sl__req_fields(r, r->body, &table, r->req);
    return st ? st : sl__req_render(r);
}

static sl_status parse(api_reader *r) {
    return parse_as(r, false);
}

static sl_status parse_count(api_reader *r) {
    return parse_as(r, true);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

// Thinking carries a signature by which its maker knows it again. We do not look at them.
#define SIGNATURE "\"signature\":\"sluice\""

static const char *stop_reason(const sl_api_writer *w, sl_api_finish how) {
    switch (how) {
    case SL_API_FINISH_LENGTH:
        return "max_tokens";
    case SL_API_FINISH_CONTEXT:
        return "model_context_window_exceeded";
    default:
        break;
    }
    if (w->n_calls)
        return "tool_use";
    return how == SL_API_FINISH_STOP_STRING ? "stop_sequence" : "end_turn";
}

static void add_stop(sl_api_writer *w, sl_api_finish how, const char *stop_string) {
    const char *reason = stop_reason(w, how);
    sl_buf_printf(w->out, "\"stop_reason\":\"%s\"", reason);
    sl__add_member(w->out, "stop_sequence",
                   strcmp(reason, "stop_sequence") == 0 ? stop_string : NULL);
}

// Tokens found in a snapshot are not among the input tokens here.
static void add_usage(sl_api_writer *w, const sl_api_usage *u) {
    sl_buf_printf(w->out,
                  "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":%u,\"output_tokens\":%u,"
                  "\"output_tokens_details\":{\"thinking_tokens\":%u}}",
                  u->n_prompt - SL_MIN(u->n_cached, u->n_prompt), u->n_cached, u->n_completion,
                  u->n_reasoning);
}

static void add_head(sl_api_writer *w) {
    sl_buf_add_text(w->out, "{\"id\":");
    sl__add_id(w, "msg_", -1);
    sl_buf_add_text(w->out, ",\"type\":\"message\",\"role\":\"assistant\"");
    sl__add_member(w->out, "model", w->identity->model);
    sl_buf_add_text(w->out, ",\"content\":[");
}

// {"type":"tool_use","id":...,"name":...,"input": without what follows.
static void add_use_head(sl_api_writer *w, const api_record *call) {
    sl_buf_add_text(w->out, "{\"type\":\"tool_use\",\"id\":");
    sl__add_id(w, "toolu_", call->index);
    sl_buf_add_text(w->out, ",\"name\":");
    sl_api_add_string(w->out, call->name.text, call->name.len);
    sl_buf_add_text(w->out, ",\"input\":");
}

static void event(sl_api_writer *w, const char *name) {
    sl_buf_printf(w->out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

static void event_end(sl_api_writer *w) {
    sl_buf_add_text(w->out, "}\n\n");
}

static void begin(sl_api_writer *w) {
    event(w, "message_start");
    sl_buf_add_text(w->out, ",\"message\":");
    add_head(w);
    sl_buf_add_text(w->out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    add_usage(w, &w->prompt_usage);
    sl_buf_add_char(w->out, '}');
    event_end(w);
}

static void delta(sl_api_writer *w, const char *type, const char *key, const char *bytes,
                  size_t n) {
    event(w, "content_block_delta");
    sl_buf_printf(w->out, ",\"index\":%u,\"delta\":{\"type\":\"%s\",\"%s\":", w->n_items - 1, type,
                  key);
    sl_api_add_string(w->out, bytes, n);
    sl_buf_add_char(w->out, '}');
    event_end(w);
}

static void close_block(sl_api_writer *w) {
    if (w->open == API_NOTHING)
        return;
    if (w->open == API_REASONING)
        delta(w, "signature_delta", "signature", "sluice", 6);
    event(w, "content_block_stop");
    sl_buf_printf(w->out, ",\"index\":%u", w->n_items - 1);
    event_end(w);
    w->open = API_NOTHING;
}

static void open_block(sl_api_writer *w, uint8_t kind, const api_record *call) {
    close_block(w);
    w->open = kind;
    event(w, "content_block_start");
    sl_buf_printf(w->out, ",\"index\":%u,\"content_block\":", w->n_items++);
    if (call) {
        add_use_head(w, call);
        sl_buf_add_text(w->out, "{}}");
    } else if (kind == API_REASONING) {
        sl_buf_add_text(w->out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        sl_buf_add_text(w->out, "{\"type\":\"text\",\"text\":\"\"}");
    }
    event_end(w);
}

static void piece(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n) {
    if (w->open != kind)
        open_block(w, kind, NULL);
    if (kind == API_TEXT)
        delta(w, "text_delta", "text", bytes, n);
    else
        delta(w, "thinking_delta", "thinking", bytes, n);
}

static void call_block(sl_api_writer *w, const api_record *call) {
    open_block(w, API_CALL, call);
    delta(w, "input_json_delta", "partial_json", call->arguments.text, call->arguments.len);
    close_block(w);
}

static void finish(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                   const sl_api_usage *usage) {
    close_block(w);
    event(w, "message_delta");
    sl_buf_add_text(w->out, ",\"delta\":{");
    add_stop(w, how, stop_string);
    sl_buf_add_text(w->out, "},");
    add_usage(w, usage);
    event_end(w);
    event(w, "message_stop");
    event_end(w);
}

static void failure(sl_api_writer *w, const sl_api_error *cause) {
    sl_buf_add_text(w->out, "event: error\ndata: ");
    sl_api_write_error(w->request->dialect, cause, w->out);
    sl_buf_add_text(w->out, "\n\n");
}

static void add_block_body(sl_api_writer *w, const api_record *first, size_t from, size_t to) {
    if (first->kind == API_CALL) {
        add_use_head(w, first);
        sl_buf_add(w->out, first->arguments.text, first->arguments.len); // JSON already
    } else if (first->kind == API_REASONING) {
        sl_buf_add_text(w->out, "{\"type\":\"thinking\",\"thinking\":");
        sl__add_joined(w, API_REASONING, from, to);
        sl_buf_add_text(w->out, "," SIGNATURE);
    } else {
        sl_buf_add_text(w->out, "{\"type\":\"text\",\"text\":");
        sl__add_joined(w, API_TEXT, from, to);
    }
    sl_buf_add_char(w->out, '}');
}

static void body(sl_api_writer *w, sl_api_finish how, const char *stop_string,
                 const sl_api_usage *usage) {
    api_record first = {0};
    add_head(w);
    for (size_t at = 0, end; at < w->store.len; at = end) {
        end = sl__store_item(w, at, &first);
        if (first.kind == API_NOTHING)
            break;
        if (at)
            sl_buf_add_char(w->out, ',');
        add_block_body(w, &first, at, end);
    }
    sl_buf_add_text(w->out, "],");
    add_stop(w, how, stop_string);
    sl_buf_add_char(w->out, ',');
    add_usage(w, usage);
    sl_buf_add_char(w->out, '}');
}

const api_dialect sl__api_messages = {
    .parse = parse,
    .body = body,
    .begin = begin,
    .piece = piece,
    .call = call_block,
    .finish = finish,
    .failure = failure,
    .anthropic = true,
};
const api_dialect sl__api_count_tokens = {.parse = parse_count, .anthropic = true};
