/* Reading the fields of a JSON object by tables: places for errors, types, ranges, what is refused and what is ignored.
 * See api_internal.h. */
#include "server/api_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- where the reader is ----------------------------------------------------------------------------------------- */

static void path_add(api_reader *r, const char *text, size_t len) {
    size_t left = sizeof(r->path) - 1 - r->path_len;
    len = SL_MIN(len, left);
    memcpy(r->path + r->path_len, text, len);
    r->path_len += len;
    r->path[r->path_len] = '\0';
}

size_t sl__req_enter(api_reader *r, const char *key) {
    size_t mark = r->path_len;
    if (mark)
        path_add(r, ".", 1);
    path_add(r, key, strlen(key));
    return mark;
}

size_t sl__req_enter_index(api_reader *r, size_t index) {
    char text[32];
    size_t mark = r->path_len;
    int n = snprintf(text, sizeof(text), "[%zu]", index);
    path_add(r, text, (size_t)n);
    return mark;
}

void sl__req_leave(api_reader *r, size_t mark) {
    r->path_len = mark;
    r->path[mark] = '\0';
}

static const char *type_name(const sl_json *v) {
    static const char *const names[] = {
        [SL_JSON_NULL] = "null",        [SL_JSON_FALSE] = "false",     [SL_JSON_TRUE] = "true",
        [SL_JSON_NUMBER] = "a number",  [SL_JSON_STRING] = "a string", [SL_JSON_ARRAY] = "an array",
        [SL_JSON_OBJECT] = "an object",
    };
    return names[v->type];
}

sl_status sl__req_wrong_type(api_reader *r, const sl_json *v, const char *expected) {
    return sl__req_fail(r, SL_API_ERR_INVALID, "expected %s, found %s", expected, type_name(v));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

sl_status sl__req_full(api_reader *r) {
    return sl_api_fail(
        r->err, SL_API_ERR_TOO_LARGE, NULL,
        "the request is too large: with everything in it taken apart it needs more than the "
        "%zu bytes that this server has for one",
        r->arena->bytes);
}

void *sl__req_alloc(api_reader *r, size_t count, size_t size) {
    void *p = count > SIZE_MAX / 2 / size ? NULL : sl_arena_alloc(r->arena, count * size, 16);
    if (p)
        memset(p, 0, count * size);
    else
        (void)sl__req_full(r);
    return p;
}

const char *sl__req_path(api_reader *r) {
    char *path = sl__req_alloc(r, r->path_len + 1, 1);
    if (path)
        memcpy(path, r->path, r->path_len);
    return path;
}

/* All that is left is taken, and what was not written is given back: the text's length is not known before. */
sl_status sl__req_text_begin(api_reader *r, sl_buf *buf) {
    size_t left = r->arena->bytes - r->arena->used, peak = r->arena->used_peak;
    void *block = left ? sl_arena_alloc(r->arena, left, 1) : NULL;
    if (!block)
        return sl__req_full(r);
    r->arena->used_peak = peak;
    sl_buf_init_fixed(buf, block, left);
    return SL_OK;
}

sl_status sl__req_text_end(api_reader *r, sl_buf *buf, sl_api_text *out) {
    size_t from = (size_t)((uint8_t *)buf->data - r->arena->base);
    bool failed = buf->failed;
    sl_arena_reset(r->arena, from + (failed ? 0 : buf->len + 1));
    r->arena->used_peak = SL_MAX(r->arena->used_peak, r->arena->used);
    if (failed)
        return sl__req_full(r);
    *out = (sl_api_text){buf->data, buf->len};
    return SL_OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

sl_status sl__req_note_ignored(api_reader *r, const char *key) {
    if (!r->req || r->req->n_ignored++ >= SL_API_IGNORED_MAX)
        return SL_OK;
    size_t mark = sl__req_enter(r, key);
    const char *path = sl__req_path(r);
    if (!path)
        return SL_ERR_MEMORY;
    sl__req_leave(r, mark);
    r->req->ignored[r->req->n_ignored - 1] = path;
    return SL_OK;
}

static bool is_known(const api_table *table, const sl_json *member) {
    for (; table; table = table->next)
        for (size_t i = 0; i < table->n; i++)
            if (strlen(table->fields[i].name) == member->key_len &&
                memcmp(table->fields[i].name, member->key, member->key_len) == 0)
                return true;
    return false;
}

static sl_status read_one(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    const sl_json *member = sl_json_member_set(v, f->name);
    size_t mark = sl__req_enter(r, f->name);
    if (!member)
        return f->required ? sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing")
                           : (sl__req_leave(r, mark), SL_OK);
    sl_status st = f->read(r, member, f, into);
    if (st)
        return st;
    sl__req_leave(r, mark);
    if (r->req)
        r->req->set |= f->set;
    return SL_OK;
}

// Names that mean something in another dialect: to ignore them here would be to answer another question.
static bool is_of_another(const sl_json *member) {
    static const char *const names[] = {"max_tokens",
                                        "max_completion_tokens",
                                        "max_output_tokens",
                                        "stop",
                                        "stop_sequences",
                                        "logit_bias",
                                        "response_format",
                                        "output_config",
                                        "output_format",
                                        "system",
                                        "instructions",
                                        "messages",
                                        "prompt",
                                        "input",
                                        "tools",
                                        "tool_choice",
                                        "functions",
                                        "function_call",
                                        "logprobs",
                                        "top_logprobs",
                                        "reasoning",
                                        "reasoning_effort",
                                        "thinking",
                                        "enable_thinking",
                                        "text",
                                        "echo",
                                        "suffix",
                                        "previous_response_id",
                                        "parallel_tool_calls"};
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(member->key, names[i]) == 0)
            return true;
    return false;
}

static sl_status meet_unknown(api_reader *r, const sl_json *parent, const sl_json *member) {
    if (!r->req || parent != r->body || !is_of_another(member))
        return sl__req_note_ignored(r, member->key);
    (void)sl__req_enter(r, member->key);
    return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "is no parameter of this API");
}

sl_status sl__req_fields(api_reader *r, const sl_json *v, const api_table *table, void *into) {
    sl_status st;
    if (v->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, v, "an object");
    for (const sl_json *m = v->child; m; m = m->next)
        if (m->type != SL_JSON_NULL && !is_known(table, m) && (st = meet_unknown(r, v, m)))
            return st;
    for (; table; table = table->next)
        for (size_t i = 0; i < table->n; i++)
            if ((st = read_one(r, v, &table->fields[i], into)))
                return st;
    return SL_OK;
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

static void *place(const api_field *f, void *into) {
    return (char *)into + f->offset;
}

sl_status sl__read_node(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)r;
    *(const sl_json **)place(f, into) = v;
    return SL_OK;
}

sl_status sl__read_text(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    if (v->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, v, "a string");
    *(sl_api_text *)place(f, into) = (sl_api_text){v->text, v->text_len};
    return SL_OK;
}

sl_status sl__read_bool(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    if (v->type != SL_JSON_TRUE && v->type != SL_JSON_FALSE)
        return sl__req_wrong_type(r, v, "true or false");
    *(bool *)place(f, into) = v->type == SL_JSON_TRUE;
    return SL_OK;
}

sl_status sl__read_float(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    double d;
    if (!sl_json_double(v, &d))
        return sl__req_wrong_type(r, v, "a number");
    if (!(d >= f->min && d <= f->max))
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected a number from %g to %g, found %.40s",
                            f->min, f->max, v->text);
    *(float *)place(f, into) = (float)d;
    return SL_OK;
}

sl_status sl__read_uint(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    uint64_t u;
    if (v->type != SL_JSON_NUMBER)
        return sl__req_wrong_type(r, v, "a whole number");
    if (!sl_json_uint64(v, &u) || (double)u < f->min || (double)u > f->max)
        return sl__req_fail(r, SL_API_ERR_INVALID,
                            "expected a whole number from %.0f to %.0f, found %.40s", f->min,
                            f->max, v->text);
    *(uint32_t *)place(f, into) = (uint32_t)u;
    return SL_OK;
}

sl_status sl__read_refused(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)into;
    double d;
    bool neutral = false;
    switch (v->type) {
    case SL_JSON_NULL:
    case SL_JSON_FALSE:
        neutral = true;
        break;
    case SL_JSON_TRUE:
        break;
    case SL_JSON_NUMBER:
        neutral = sl_json_double(v, &d) && d == f->min;
        break;
    case SL_JSON_STRING:
        neutral = v->text_len == 0 || (f->neutral && sl_json_text_is(v, f->neutral));
        break;
    default:
        neutral = v->n_children == 0;
    }
    if (neutral)
        return SL_OK;
    if (v->type == SL_JSON_NUMBER)
        return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "not supported, except as %g; found %.40s",
                            f->min, v->text);
    if (f->neutral)
        return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "not supported, except as '%s'", f->neutral);
    return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "not supported");
}

const char *sl__req_type(api_reader *r, const sl_json *v) {
    if (v->type != SL_JSON_OBJECT) {
        (void)sl__req_wrong_type(r, v, "an object");
        return NULL;
    }
    const sl_json *type = sl_json_member_set(v, "type");
    if (type && type->type == SL_JSON_STRING)
        return type->text;
    (void)sl__req_enter(r, "type");
    if (type)
        (void)sl__req_wrong_type(r, type, "a string");
    else
        (void)sl__req_fail(r, SL_API_ERR_MISSING, "a required parameter is missing");
    return NULL;
}

/* ---- JSON again -------------------------------------------------------------------------------------------------- */

// As deep as the parser allows, which is SL_JSON_DEPTH_MAX.
void sl__add_json(sl_buf *out, const sl_json *v) {
    switch (v->type) {
    case SL_JSON_NULL:
        sl_buf_add_text(out, "null");
        break;
    case SL_JSON_FALSE:
        sl_buf_add_text(out, "false");
        break;
    case SL_JSON_TRUE:
        sl_buf_add_text(out, "true");
        break;
    case SL_JSON_NUMBER:
        sl_buf_add(out, v->text, v->text_len);
        break;
    case SL_JSON_STRING:
        sl_buf_add_json_string(out, v->text, v->text_len);
        break;
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        sl_buf_add_char(out, v->type == SL_JSON_ARRAY ? '[' : '{');
        for (const sl_json *c = v->child; c; c = c->next) {
            if (c != v->child)
                sl_buf_add_char(out, ',');
            if (v->type == SL_JSON_OBJECT) {
                sl_buf_add_json_string(out, c->key, c->key_len);
                sl_buf_add_char(out, ':');
            }
            sl__add_json(out, c);
        }
        sl_buf_add_char(out, v->type == SL_JSON_ARRAY ? ']' : '}');
    }
}
