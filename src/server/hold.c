/* Holding an answer to what the request demands: a JSON value, or a tool call.
 *
 * A value: thinking is free; from where the answer's own text begins, only tokens that keep it the beginning of a value
 * of the schema may be sampled.
 *
 * A call that must be made (tool_choice): the answer opens with the mark of a call, so that thinking is skipped. Where
 * there is a choice, the name is held to the tools' names; the arguments to the tool's schema, if calls of this model
 * are written with a JSON object. What stays free is checked when the call is complete. */
#include <stdio.h>
#include <string.h>

#include "server/server_internal.h"

/* Compile into the lower half of what the job's arena has left, with the upper half as scratch. */
static sl_status compile(sl_hold *h, const char *text, size_t len, bool closed, sl_error *err) {
    sl_arena *job = &h->server->job, lower, upper;
    size_t from = SL_ALIGN_UP(job->used, 64), half = (job->bytes - SL_MIN(from, job->bytes)) / 2;
    sl_constraint_limits limits = sl_constraint_limits_default();
    limits.closed_objects = closed;
    if (half < 64)
        return sl_arena_full(job, 64, err);
    sl_arena_init(&lower, "server", job->base + from, half / 64 * 64);
    sl_arena_init(&upper, "server", job->base + from + half / 64 * 64, half / 64 * 64);
    sl_status st =
        text ? sl_constraint_compile_text(text, len, h->server->vocab, &limits, &lower, &upper,
                                          &h->constraint, err)
             : sl_constraint_compile_object(h->server->vocab, &lower, &upper, &h->constraint, err);
    if (st)
        return st;
    job->used = from + lower.used;
    sl_constraint_begin(h->constraint, &h->state);
    return SL_OK;
}

static sl_status no_vocab(sl_api_error *err, const char *param) {
    return sl_api_fail(err, SL_API_ERR_UNSUPPORTED, param,
                       "the tokens of this model cannot spell every JSON text, so that its answers "
                       "cannot be held to one");
}

static sl_status fail_schema(sl_api_error *err, const char *param, const sl_error *cause) {
    if (cause->status == SL_ERR_MEMORY)
        return sl_api_fail(err, SL_API_ERR_SCHEMA, param,
                           "the schema is larger than this server's memory for a request: %s",
                           cause->message);
    return sl_api_fail(err, SL_API_ERR_SCHEMA, param, "%s", cause->message);
}

static sl_status begin_value(sl_hold *h, sl_api_error *err) {
    const sl_api_request *r = h->request;
    sl_error cause;
    bool object = r->constraint == SL_API_CONSTRAINT_JSON_OBJECT;
    const char *param = r->schema_path;
    if (!h->server->vocab)
        return no_vocab(err, param);
    sl_status st = compile(h, object ? NULL : r->schema.text, r->schema.len, false, &cause);
    if (st)
        return fail_schema(err, param, &cause);
    h->stage = SL_HOLD_WAIT;
    return SL_OK;
}

/* ---- calls ----------------------------------------------------------------------------------------- */

// The arguments of that tool are next.
static sl_status begin_arguments(sl_hold *h, size_t tool, sl_error *err) {
    const sl_api_tool *t = &h->request->tools[tool];
    h->stage = SL_HOLD_NOT;
    if (!h->json_arguments || !h->server->vocab)
        return SL_OK;
    sl_status st = compile(h, t->schema.text, t->schema.len, true, err);
    if (!st)
        h->stage = SL_HOLD_ARGUMENTS;
    return st;
}

// A strict tool's schema has to be one that can be held to.
static sl_status check_strict(sl_hold *h, sl_api_error *err) {
    const sl_api_request *r = h->request;
    size_t mark = sl_arena_mark(&h->server->job);
    for (size_t i = 0; i < r->n_tools; i++) {
        sl_error cause;
        char param[SL_API_PARAM_MAX];
        if (!r->tools[i].strict || !h->server->vocab)
            continue;
        sl_status st = compile(h, r->tools[i].schema.text, r->tools[i].schema.len, true, &cause);
        sl_arena_reset(&h->server->job, mark);
        if (st) {
            (void)snprintf(param, sizeof(param), r->tools_path, i);
            return fail_schema(err, param, &cause);
        }
    }
    return SL_OK;
}

static sl_status begin_call(sl_hold *h, sl_api_error *err) {
    const sl_api_request *r = h->request;
    sl_server *s = h->server;
    char text[1024];
    sl_error cause;
    sl_status st = check_strict(h, err);
    if (st)
        return st;
    bool named = r->tool_choice == SL_API_TOOL_NAMED || r->n_tools == 1;
    size_t tool = r->tool_choice == SL_API_TOOL_NAMED ? r->named_tool : 0, cap = sizeof(text);
    if (!sl_engine_call_opening(s->engine, named ? r->tools[tool].name.text : NULL, text,
                                sizeof(text), &h->json_arguments))
        return sl_api_fail(err, SL_API_ERR_UNSUPPORTED, "tool_choice",
                           "the chat template of this model has no tool calls");
    h->name_end = sl_engine_call_name_end(s->engine);
    h->opening = sl_arena_alloc(&s->job, cap * sizeof(*h->opening), 4);
    if (!h->opening)
        return sl_api_fail(err, SL_API_ERR_TOO_LARGE, NULL, "no memory for the tool call");
    st = sl_engine_tokenize(s->engine, text, strlen(text), 0, h->opening, cap, &h->n_opening,
                            &cause);
    if (st)
        return sl_api_fail_engine(err, "tool_choice", &cause);
    h->stage = SL_HOLD_NAME;
    // Where it cannot be held to, it stays free and is checked when it is complete.
    if (named)
        (void)begin_arguments(h, tool, &cause);
    return SL_OK;
}

bool sl__hold_skips_thinking(const sl_api_request *r) {
    return r->constraint != SL_API_CONSTRAINT_NONE || r->tool_choice == SL_API_TOOL_REQUIRED ||
           r->tool_choice == SL_API_TOOL_NAMED;
}

bool sl__hold_any(const sl_hold *h) {
    return h->stage != SL_HOLD_NOT || h->think_tokens;
}

// A limit on thinking needs a mark that ends it, and one token that is that mark.
static sl_status limit_thinking(sl_hold *h, sl_api_error *err) {
    const char *mark = h->server->model.think_end;
    uint32_t id;
    size_t n = 0;
    if (mark && !sl_engine_tokenize(h->server->engine, mark, strlen(mark), 0, &id, 1, &n, NULL) &&
        n == 1) {
        h->think_tokens = h->request->thinking_budget;
        h->think_end = id;
        return SL_OK;
    }
    return sl_api_fail(err, SL_API_ERR_UNSUPPORTED, "thinking.budget_tokens",
                       "this model has no mark that ends thinking: leave the budget out");
}

sl_status sl__hold_begin(sl_hold *h, sl_server *s, const sl_api_request *r, sl_api_error *err) {
    memset(h, 0, sizeof(*h));
    h->server = s;
    h->request = r;
    if (r->set & SL_API_SET_THINKING_BUDGET && limit_thinking(h, err))
        return SL_ERR_ARGUMENT;
    if (r->tool_choice == SL_API_TOOL_REQUIRED || r->tool_choice == SL_API_TOOL_NAMED)
        return begin_call(h, err);
    if (r->constraint != SL_API_CONSTRAINT_NONE)
        return begin_value(h, err);
    return check_strict(h, err);
}

/* ---- tokens ---------------------------------------------------------------------------------------- */

/* Whether the name with these bytes behind it is the beginning of a tool's name and of what ends it. whole (may be NULL)
 * receives the tool of which it is all. */
static bool may_be_name(const sl_hold *h, const char *bytes, size_t n, size_t *whole) {
    const size_t end = strlen(h->name_end), len = h->n_name + n;
    char text[sizeof(h->name)], full[SL_API_TOOL_NAME_MAX + 64];
    if (n == 0 || len > sizeof(text))
        return false;
    memcpy(text, h->name, h->n_name);
    memcpy(text + h->n_name, bytes, n);
    for (size_t i = 0; i < h->request->n_tools; i++) {
        const sl_api_text *name = &h->request->tools[i].name;
        if (name->len + end > sizeof(full) || len > name->len + end)
            continue;
        memcpy(full, name->text, name->len);
        memcpy(full + name->len, h->name_end, end);
        if (memcmp(full, text, len) != 0)
            continue;
        if (whole)
            *whole = len == name->len + end ? i : SIZE_MAX;
        return true;
    }
    return false;
}

static const uint32_t *mask_names(sl_hold *h) {
    sl_server *s = h->server;
    uint32_t *mask = s->mask, n_allowed = 0;
    memset(mask, 0, SL_CONSTRAINT_MASK_WORDS(s->model.n_vocab) * sizeof(*mask));
    for (uint32_t id = 0; id < s->model.n_vocab; id++) {
        sl_token_info t;
        // The end of a name may be a mark, as in <|constrain|>.
        if (!sl_engine_token(s->engine, id, &t) || !may_be_name(h, t.bytes, t.len, NULL))
            continue;
        mask[id / 32] |= 1u << id % 32;
        n_allowed++;
    }
    return n_allowed ? mask : NULL;
}

const uint32_t *sl__hold_mask(sl_hold *h, sl_place place, uint32_t n_tokens) {
    sl_server *s = h->server;
    if (h->think_tokens && place == SL_PLACE_REASONING && n_tokens >= h->think_tokens) {
        memset(s->mask, 0, SL_CONSTRAINT_MASK_WORDS(s->model.n_vocab) * sizeof(*s->mask));
        s->mask[h->think_end / 32] |= 1u << h->think_end % 32;
        return s->mask;
    }
    switch (h->stage) {
    case SL_HOLD_NOT:
        return NULL;
    case SL_HOLD_WAIT:
        if (place != SL_PLACE_TEXT)
            return NULL;
        h->stage = SL_HOLD_TEXT;
        break;
    case SL_HOLD_TEXT:
    case SL_HOLD_ARGUMENTS:
        break;
    case SL_HOLD_NAME:
        return mask_names(h);
    }
    sl_constraint_mask(h->constraint, &h->state, s->work, s->mask);
    return s->mask;
}

void sl__hold_token(sl_hold *h, uint32_t token) {
    sl_token_info t;
    sl_error err;
    size_t whole = SIZE_MAX;
    switch (h->stage) {
    case SL_HOLD_NOT:
    case SL_HOLD_WAIT:
        return;
    case SL_HOLD_NAME:
        if (!sl_engine_token(h->server->engine, token, &t) ||
            !may_be_name(h, t.bytes, t.len, &whole)) {
            h->stage = SL_HOLD_NOT;
            return;
        }
        memcpy(h->name + h->n_name, t.bytes, t.len);
        h->n_name += t.len;
        if (whole != SIZE_MAX)
            (void)begin_arguments(h, whole, &err);
        return;
    case SL_HOLD_TEXT:
    case SL_HOLD_ARGUMENTS:
        // What the mask allowed is accepted.
        if (sl_constraint_accept(h->constraint, &h->state, h->server->work, token, &err) ||
            (h->stage == SL_HOLD_ARGUMENTS && sl_constraint_is_closed(h->constraint, &h->state)))
            h->stage = SL_HOLD_NOT;
        return;
    }
}
