/* A conversation as a list of turns, the same for all dialects, and the JSON of it that chat templates take.
 * Texts stay where the parser put them: turns hold pointers. See api_internal.h. */
#include "server/api_internal.h"

#include <string.h>

/* ---- turns ------------------------------------------------------------------------------------------------------- */

sl_status sl__req_messages(api_reader *r, const sl_json *v,
                           sl_status (*add)(api_reader *r, const sl_json *message)) {
    size_t i = 0;
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "an array");
    if (!v->child)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected at least one message, found none");
    for (const sl_json *m = v->child; m; m = m->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add(r, m);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

api_turn *sl__turn(api_reader *r, api_role role, api_join join) {
    api_turn *last = r->last_turn;
    if (last && last->role == role && (join != API_JOIN_NEVER || role == API_SYSTEM)) {
        if (join != API_JOIN_BLOCK)
            last->gap = last->content.first != NULL;
        return last;
    }
    api_turn *turn = sl__req_alloc(r, 1, sizeof(*turn));
    if (!turn)
        return NULL;
    turn->role = role;
    if (last)
        last->next = turn;
    else
        r->turns = turn;
    r->last_turn = turn;
    return turn;
}

static sl_status add_part(api_reader *r, api_parts *parts, const char *text, size_t len) {
    parts->given = true;
    if (len == 0)
        return SL_OK;
    api_part *part = sl__req_alloc(r, 1, sizeof(*part));
    if (!part)
        return SL_ERR_MEMORY;
    part->text = text;
    part->len = len;
    if (parts->last)
        parts->last->next = part;
    else
        parts->first = part;
    parts->last = part;
    return SL_OK;
}

sl_status sl__turn_text(api_reader *r, api_turn *turn, const char *text, size_t len) {
    sl_status st = SL_OK;
    if (turn->gap && len) {
        turn->gap = false;
        st = add_part(r, &turn->content, "\n\n", 2);
    }
    return st ? st : add_part(r, &turn->content, text, len);
}

sl_status sl__turn_reasoning(api_reader *r, api_turn *turn, const char *text, size_t len) {
    return add_part(r, &turn->reasoning, text, len);
}

api_call *sl__turn_call(api_reader *r, api_turn *turn) {
    api_call *call = sl__req_alloc(r, 1, sizeof(*call));
    if (!call)
        return NULL;
    if (turn->last_call)
        turn->last_call->next = call;
    else
        turn->calls = call;
    turn->last_call = call;
    return call;
}

sl_status sl__call_arguments(api_reader *r, api_call *call, const sl_api_text *text) {
    sl_json *root;
    sl_error cause;
    if (strspn(text->text, " \t\r\n") == text->len) {
        call->arguments = (sl_api_text){"{}", 2};
        return SL_OK;
    }
    size_t mark = sl_arena_mark(r->arena);
    sl_status st = sl_json_parse(text->text, text->len, r->arena, &root, &cause);
    if (st == SL_ERR_MEMORY)
        return sl__req_full(r);
    if (st)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected the text of a JSON object: %s",
                            cause.message);
    if (root->type != SL_JSON_OBJECT)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected the text of a JSON object");
    sl_arena_reset(r->arena, mark); // the text itself goes on
    call->arguments = *text;
    return SL_OK;
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

sl_status sl__req_no_text(api_reader *r, const char *type) {
    static const char *const pictures[] = {"image", "image_url", "input_image"};
    static const char *const others[] = {
        "input_audio",      "audio",        "video", "video_url", "file", "input_file", "document",
        "container_upload", "search_result"};
    (void)sl__req_enter(r, "type");
    for (size_t i = 0; i < SL_COUNT(pictures); i++)
        if (strcmp(type, pictures[i]) == 0)
            return sl__req_fail(r, SL_API_ERR_PICTURE, "pictures are not supported yet: found '%s'",
                                type);
    for (size_t i = 0; i < SL_COUNT(others); i++)
        if (strcmp(type, others[i]) == 0)
            return sl__req_fail(r, SL_API_ERR_PICTURE,
                                "content of type '%s' is not supported, only text", type);
    return sl__req_fail(r, SL_API_ERR_INVALID, "there is no content of type '%.40s' here", type);
}

typedef struct part_fields {
    sl_api_text type, text, refusal;
} part_fields;
static const api_field text_fields[] = {
    {.name = "type",
     .read = sl__read_text,
     .offset = offsetof(part_fields, type),
     .required = true},
    {.name = "text",
     .read = sl__read_text,
     .offset = offsetof(part_fields, text),
     .required = true},
};
static const api_field refusal_fields[] = {
    {.name = "type",
     .read = sl__read_text,
     .offset = offsetof(part_fields, type),
     .required = true},
    {.name = "refusal",
     .read = sl__read_text,
     .offset = offsetof(part_fields, refusal),
     .required = true},
};
static const api_table text_table = {text_fields, SL_COUNT(text_fields), NULL};
static const api_table refusal_table = {refusal_fields, SL_COUNT(refusal_fields), NULL};

static sl_status add_content_part(api_reader *r, api_turn *turn, const sl_json *v) {
    static const char *const texts[] = {"text", "input_text", "output_text"};
    part_fields part = {0};
    const char *type = sl__req_type(r, v);
    if (!type)
        return SL_ERR_ARGUMENT;
    bool is_text = false;
    for (size_t i = 0; i < SL_COUNT(texts); i++)
        is_text |= strcmp(type, texts[i]) == 0;
    bool is_refusal = turn->role == API_ASSISTANT && strcmp(type, "refusal") == 0;
    if (!is_text && !is_refusal)
        return sl__req_no_text(r, type);
    sl_status st = sl__req_fields(r, v, is_text ? &text_table : &refusal_table, &part);
    const sl_api_text *text = is_text ? &part.text : &part.refusal;
    return st ? st : sl__turn_text(r, turn, text->text, text->len);
}

sl_status sl__turn_content(api_reader *r, api_turn *turn, const sl_json *v) {
    size_t i = 0;
    if (v->type == SL_JSON_STRING)
        return sl__turn_text(r, turn, v->text, v->text_len);
    if (v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "a string or an array of parts");
    turn->content.given = true;
    for (const sl_json *part = v->child; part; part = part->next, i++) {
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add_content_part(r, turn, part);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

/* ---- the template's JSON ----------------------------------------------------------------------------------------- */

static void add_parts(sl_buf *out, const api_parts *parts) {
    sl_buf_add_char(out, '"');
    for (const api_part *p = parts->first; p; p = p->next)
        sl__add_escaped(out, p->text, p->len);
    sl_buf_add_char(out, '"');
}

static void add_text_member(sl_buf *out, const char *key, const sl_api_text *text) {
    if (!text->text)
        return;
    sl_buf_printf(out, ",\"%s\":", key);
    sl_api_add_string(out, text->text, text->len);
}

static void add_calls(sl_buf *out, const api_call *calls) {
    sl_buf_add_text(out, ",\"tool_calls\":[");
    for (const api_call *c = calls; c; c = c->next) {
        sl_buf_add_text(out, c == calls ? "{" : ",{");
        if (c->id.text) {
            sl_buf_add_text(out, "\"id\":");
            sl_api_add_string(out, c->id.text, c->id.len);
            sl_buf_add_char(out, ',');
        }
        sl_buf_add_text(out, "\"type\":\"function\",\"function\":{\"name\":");
        sl_api_add_string(out, c->name.text, c->name.len);
        sl_buf_add_text(out, ",\"arguments\":");
        if (c->input)
            sl__add_json(out, c->input);
        else
            sl_buf_add(out, c->arguments.text, c->arguments.len);
        sl_buf_add_text(out, "}}");
    }
    sl_buf_add_char(out, ']');
}

static void add_turn(sl_buf *out, const api_turn *turn, bool null_content) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    sl_buf_printf(out, "{\"role\":\"%s\",\"content\":", roles[turn->role]);
    if (turn->calls && !turn->content.given && null_content)
        sl_buf_add_text(out, "null");
    else
        add_parts(out, &turn->content);
    add_text_member(out, "name", &turn->name);
    add_text_member(out, "tool_call_id", &turn->tool_call_id);
    if (turn->reasoning.first) {
        sl_buf_add_text(out, ",\"reasoning_content\":");
        add_parts(out, &turn->reasoning);
    }
    if (turn->calls)
        add_calls(out, turn->calls);
    sl_buf_add_char(out, '}');
}

static void add_settings(api_reader *r, sl_buf *out) {
    const sl_api_request *req = r->req;
    if (req->tools_json.text && req->tool_choice != SL_API_TOOL_NONE) {
        sl_buf_add_text(out, ",\"tools\":");
        sl_buf_add(out, req->tools_json.text, req->tools_json.len);
    }
    // Templates call it by one name or the other.
    if (req->set & SL_API_SET_THINKING)
        sl_buf_printf(out, ",\"enable_thinking\":%s,\"thinking\":%s",
                      req->enable_thinking ? "true" : "false",
                      req->enable_thinking ? "true" : "false");
    if (r->effort)
        sl_buf_printf(out, ",\"reasoning_effort\":\"%s\"", r->effort);
    for (const sl_json *m = r->template_args ? r->template_args->child : NULL; m; m = m->next) {
        if (strcmp(m->key, "enable_thinking") == 0 || strcmp(m->key, "thinking") == 0)
            continue;
        sl_buf_add_char(out, ',');
        sl_buf_add_json_string(out, m->key, m->key_len);
        sl_buf_add_char(out, ':');
        sl__add_json(out, m);
    }
}

sl_status sl__req_render(api_reader *r) {
    sl_buf out;
    sl_status st = sl__req_text_begin(r, &out);
    if (st)
        return st;
    sl_buf_add_text(&out, "{\"messages\":[");
    for (const api_turn *t = r->turns; t; t = t->next) {
        if (t != r->turns)
            sl_buf_add_char(&out, ',');
        add_turn(&out, t, r->limits->null_content);
    }
    sl_buf_add_text(&out, "],\"add_generation_prompt\":true");
    add_settings(r, &out);
    sl_buf_add_char(&out, '}');
    return sl__req_text_end(r, &out, &r->req->render);
}
