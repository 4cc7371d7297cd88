/* One request that generates: its body, its prompt, what is known of it already, the rest of it, and the answer. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "server/server_internal.h"

/* A client that takes nothing for so long is cut off: others wait for the session. */
#define SLOW_SECONDS 10.0

typedef struct generation {
    sl_server *s;
    sl_http_exchange *x;
    sl_api_request request;
    sl_api_identity identity;
    sl_api_writer writer;
    sl_api_checker checker;
    sl_hold hold;
    sl_buf *out;
    sl_api_error *err;
    sl_api_usage usage;
    size_t n_prompt,
        n_begin;    /* tokens; and of these up to where a later prompt is likely to branch off */
    bool streaming; /* the head of the answer is out */
    bool refused;   /* err says why */
    bool left;      /* the client */
    bool enough;    /* a call, and no more of them */
    uint64_t fed;   /* tokens of the prompt that were known */
} generation;

/* ---- the prompt ------------------------------------------------------------------------------------- */

// A copy of the template's variables with one more member in front, or with `from` replaced by `to`.
static const char *variables(generation *g, const char *member, const char *from, const char *to,
                             size_t *n) {
    const sl_api_text *v = &g->request.render;
    size_t cap = v->len + 64;
    char *text = sl_arena_alloc(&g->s->job, cap, 1);
    if (!text)
        return NULL;
    sl_buf b;
    sl_buf_init_fixed(&b, text, cap);
    sl_buf_add_char(&b, '{');
    sl_buf_add_text(&b, member);
    const char *rest = v->text + 1, *end = v->text + v->len, *at = NULL;
    // Inside strings quotes are escaped: the name of a member is found nowhere else.
    for (const char *c = rest; from && (c = strstr(c, from)); c++)
        at = c;
    if (at) {
        sl_buf_add(&b, rest, (size_t)(at - rest));
        sl_buf_add_text(&b, to);
        rest = at + strlen(from);
    }
    sl_buf_add(&b, rest, (size_t)(end - rest));
    *n = b.len;
    return b.failed ? NULL : text;
}

static sl_status fail_memory(generation *g) {
    return sl_api_fail(g->err, SL_API_ERR_TOO_LARGE, NULL,
                       "the request takes more than the %zu bytes that this server has for one",
                       g->s->job.bytes);
}

static sl_status fail_context(generation *g, size_t n) {
    return sl_api_fail_context(g->err, g->request.dialect, n, 0, g->s->plan.n_ctx);
}

static sl_status tokens_of(generation *g, const char *text, size_t n, unsigned flags,
                           const char *param, uint32_t *ids, size_t *n_ids) {
    sl_error cause;
    sl_status st =
        sl_engine_tokenize(g->s->engine, text, n, flags, ids, g->s->plan.n_ctx, n_ids, &cause);
    if (st == SL_ERR_CONTEXT)
        return fail_context(g, *n_ids);
    return st ? sl_api_fail_engine(g->err, param, &cause) : SL_OK;
}

static sl_status render(generation *g, const char *variables_text, size_t len, char *out,
                        size_t *n) {
    sl_error cause;
    sl_status st = sl_engine_render(g->s->engine, variables_text, len, out,
                                    (size_t)g->s->sizes.text_bytes, n, &cause);
    if (st == SL_ERR_CONTEXT)
        return sl_api_fail(g->err, SL_API_ERR_CONTEXT, "messages",
                           "the prompt is longer than the %llu bytes that this server holds for a "
                           "context of %u tokens; nothing was cut. Write a shorter one, or serve "
                           "with a larger --ctx",
                           (unsigned long long)g->s->sizes.text_bytes, g->s->plan.n_ctx);
    return st ? sl_api_fail_engine(g->err, "messages", &cause) : SL_OK;
}

/* Tokens that this prompt shares with the same conversation before the answer was asked for: a next turn begins with
 * them, and may go on differently (thinking is left out of what was said before). */
static void find_begin(generation *g, const char *member) {
    size_t n, n_text, n_ids, same = 0, mark = sl_arena_mark(&g->s->job);
    sl_api_error ignored, *err = g->err;
    const char *v = variables(g, member, "\"add_generation_prompt\":true",
                              "\"add_generation_prompt\":false", &n);
    g->err = &ignored;
    if (v && !render(g, v, n, g->s->other_text, &n_text) &&
        !tokens_of(g, g->s->other_text, n_text, 0, NULL, g->s->other_ids, &n_ids)) {
        size_t most = SL_MIN(n_ids, g->n_prompt);
        while (same < most && g->s->ids[same] == g->s->other_ids[same])
            same++;
    }
    g->err = err;
    g->n_begin = same < g->n_prompt ? same : 0;
    sl_arena_reset(&g->s->job, mark);
}

static sl_status make_chat_prompt(generation *g) {
    const sl_api_request *r = &g->request;
    // Thinking would come before what the answer has to be; who asked for it gets it.
    const char *member = sl__hold_skips_thinking(r) && !(r->set & SL_API_SET_THINKING)
                             ? "\"enable_thinking\":false,"
                             : "";
    size_t n, n_text;
    const char *v = variables(g, member, NULL, NULL, &n);
    if (!v)
        return fail_memory(g);
    sl_status st = render(g, v, n, g->s->text, &n_text);
    if (!st)
        st = tokens_of(g, g->s->text, n_text, 0, "messages", g->s->ids, &g->n_prompt);
    if (!st && r->dialect != SL_API_COUNT_TOKENS)
        find_begin(g, member);
    return st;
}

static sl_status make_prompt(generation *g) {
    const sl_api_request *r = &g->request;
    sl_status st = SL_OK;
    if (r->n_prompt_ids > g->s->plan.n_ctx)
        return fail_context(g, r->n_prompt_ids);
    if (r->n_prompt_ids) {
        memcpy(g->s->ids, r->prompt_ids, r->n_prompt_ids * sizeof(*r->prompt_ids));
        g->n_prompt = r->n_prompt_ids;
    } else if (r->dialect == SL_API_COMPLETIONS) {
        st = tokens_of(g, r->prompt.text, r->prompt.len, SL_TOKENIZE_WHOLE, "prompt", g->s->ids,
                       &g->n_prompt);
    } else {
        st = make_chat_prompt(g);
    }
    if (!st && g->n_prompt == 0)
        return sl_api_fail(g->err, SL_API_ERR_INVALID, "prompt", "the prompt has no tokens");
    return st;
}

/* ---- what is sent ----------------------------------------------------------------------------------- */

// Send what is in out. False: the client is gone.
static bool flush(generation *g) {
    if (!g->request.stream || g->out->len == 0)
        return !g->left;
    if (!g->left)
        g->left = sl_http_write(g->x, g->out->data, g->out->len, SLOW_SECONDS, NULL) != SL_HTTP_OK;
    sl_buf_clear(g->out);
    return !g->left;
}

// After a call of the writer.
static bool written(generation *g, sl_status st) {
    if (st)
        g->refused = true;
    return !st && flush(g);
}

static void count(generation *g) {
    (void)pthread_mutex_lock(&g->s->mutex);
    g->s->state.n_answered = g->usage.n_completion;
    (void)pthread_mutex_unlock(&g->s->mutex);
}

/* A cancel between two calls of the engine is forgotten by the first of them: whoever computes for a client looks whether
 * it is still there. */
static bool is_wanted(generation *g) {
    g->left = g->left || sl_http_is_gone(g->x);
    return !g->left;
}

static bool on_progress(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    generation *g = user;
    (void)phase;
    (void)total; // of this call: the prompt is fed in two
    sl__set_phase(g->s, SL_SERVER_PREFILL, g->fed + done, g->n_prompt);
    return is_wanted(g) &&
           written(g, sl_api_write_prefill(&g->writer, g->fed + done, g->n_prompt, g->err));
}

static bool on_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    generation *g = user;
    sl_status st = SL_OK;
    switch (kind) {
    case SL_PIECE_TEXT:
        st = sl_api_write_text(&g->writer, bytes, n, g->err);
        break;
    case SL_PIECE_REASONING:
        g->usage.n_reasoning = g->usage.n_completion; // it comes first
        st = sl_api_write_reasoning(&g->writer, bytes, n, g->err);
        break;
    case SL_PIECE_TOOL_CALL: {
        sl_json *call;
        size_t mark = sl_arena_mark(&g->s->job);
        sl_error cause;
        const char *name, *arguments;
        size_t n_arguments;
        // {"name": NAME, "arguments": {...}}
        if (sl_json_parse(bytes, n, &g->s->job, &call, &cause)) {
            st = sl_api_write_text(&g->writer, bytes, n, g->err);
        } else {
            const sl_json *name_json = sl_json_member(call, "name");
            static const char before[] = "\"arguments\": ";
            name = name_json ? name_json->text : "";
            arguments = strstr(bytes + 1, before);
            // The name is escaped: the first one is the member's.
            arguments = arguments ? arguments + sizeof(before) - 1 : bytes;
            n_arguments = (size_t)(bytes + n - 1 - arguments);
            st = sl_api_write_call(&g->writer, name, name_json ? name_json->text_len : 0, arguments,
                                   n_arguments, g->err);
            g->enough = g->writer.n_calls > 0 && (g->request.set & SL_API_SET_PARALLEL) &&
                        !g->request.parallel_tool_calls;
        }
        sl_arena_reset(&g->s->job, mark);
        break;
    }
    }
    return written(g, st) && !g->enough;
}

static bool on_token(void *user, uint32_t token) {
    generation *g = user;
    g->usage.n_completion++;
    // The opening is told as well, and was not held to anything.
    if (g->usage.n_completion > g->hold.n_opening)
        sl__hold_token(&g->hold, token);
    count(g);
    return is_wanted(g);
}

static bool on_mask(void *user, sl_place place, const uint32_t **bits) {
    generation *g = user;
    *bits = sl__hold_mask(&g->hold, place, g->usage.n_completion);
    return true;
}

static sl_api_logprob logprob_of(const generation *g, const sl_token_logprob *t) {
    sl_token_info info;
    (void)sl_engine_token(g->s->engine, t->token, &info);
    return (sl_api_logprob){.bytes = info.bytes, .n = info.len, .logprob = t->logprob};
}

static bool on_logprobs(void *user, const sl_token_logprob *token, const sl_token_logprob *top,
                        size_t n_top) {
    generation *g = user;
    sl_api_logprob own = logprob_of(g, token), others[SL_TOP_LOGPROBS_MAX];
    for (size_t i = 0; i < n_top; i++)
        others[i] = logprob_of(g, &top[i]);
    return written(g, sl_api_write_token(&g->writer, &own, others, n_top, g->err));
}

/* ---- the answer -------------------------------------------------------------------------------------- */

static void choose_sampling(const generation *g, sl_sampling *p, uint32_t *bias_ids, float *bias) {
    const sl_api_request *r = &g->request;
    if (r->set & SL_API_SET_TEMPERATURE)
        p->temperature = r->temperature;
    if (r->set & SL_API_SET_TOP_P)
        p->top_p = r->top_p;
    if (r->set & SL_API_SET_TOP_K)
        p->top_k = r->top_k;
    if (r->set & SL_API_SET_MIN_P)
        p->min_p = r->min_p;
    if (r->set & SL_API_SET_PRESENCE)
        p->presence_penalty = r->presence_penalty;
    if (r->set & SL_API_SET_FREQUENCY)
        p->frequency_penalty = r->frequency_penalty;
    if (r->set & SL_API_SET_REPEAT)
        p->repeat_penalty = r->repeat_penalty;
    p->seed = r->seed;
    if (!(r->set & SL_API_SET_SEED))
        sl_random_bytes(&p->seed, sizeof(p->seed));
    for (size_t i = 0; i < r->n_bias; i++) {
        bias_ids[i] = r->bias[i].token;
        bias[i] = r->bias[i].bias;
    }
    p->bias_ids = bias_ids;
    p->bias = bias;
    p->n_bias = r->n_bias;
}

static sl_status make_request(generation *g, sl_generate_request *q) {
    const sl_api_request *r = &g->request;
    uint32_t *bias_ids = sl_arena_alloc(&g->s->job, r->n_bias * sizeof(*bias_ids) + 1, 4);
    float *bias = sl_arena_alloc(&g->s->job, r->n_bias * sizeof(*bias) + 1, 4);
    if (!bias_ids || !bias)
        return fail_memory(g);
    sl_generate_request_init(g->s->engine, q);
    choose_sampling(g, &q->sampling, bias_ids, bias);
    q->max_tokens = r->set & SL_API_SET_MAX_TOKENS ? r->max_tokens : 0;
    q->stop = r->stop;
    q->n_stop = r->n_stop;
    q->parse = r->dialect != SL_API_COMPLETIONS;
    q->tools_json = q->parse && r->n_tools ? r->tools_json.text : NULL;
    q->opening = g->hold.opening;
    q->n_opening = g->hold.n_opening;
    q->on_piece = on_piece;
    q->on_token = on_token;
    q->on_mask = sl__hold_any(&g->hold) ? on_mask : NULL;
    q->on_logprobs = r->logprobs ? on_logprobs : NULL;
    q->n_top = r->n_top_logprobs;
    q->user = g;
    return SL_OK;
}

// What the session has to compute of the prompt, with a snapshot where a next turn may branch off.
static sl_status prefill(generation *g, sl_error *err) {
    sl_server *s = g->s;
    sl_progress progress = {on_progress, g};
    size_t done = sl_session_rewind(s->session, s->ids, g->n_prompt);
    sl_status st = SL_OK;
    g->fed = done;
    g->usage.n_prompt = (uint32_t)g->n_prompt;
    g->usage.n_cached = (uint32_t)done;
    sl__set_phase(s, SL_SERVER_PREFILL, done, g->n_prompt);
    if (g->n_begin > done) {
        st = sl_session_feed(s->session, s->ids + done, g->n_begin - done, &progress, err);
        if (st)
            return st;
        (void)sl_session_keep(s->session);
        g->fed = done = g->n_begin;
    }
    return sl_session_feed(s->session, s->ids + done, g->n_prompt - done, &progress, err);
}

static sl_api_finish finish_of(const sl_generate_result *result) {
    if (result->stop_string)
        return SL_API_FINISH_STOP_STRING;
    if (result->finish == SL_FINISH_LENGTH)
        return result->context_full ? SL_API_FINISH_CONTEXT : SL_API_FINISH_LENGTH;
    return SL_API_FINISH_STOP;
}

// Why an answer that was canceled ended; false where the client is gone, and nobody is left to tell.
static bool canceled(generation *g) {
    bool stopping;
    (void)pthread_mutex_lock(&g->s->mutex);
    stopping = g->s->stopping;
    (void)pthread_mutex_unlock(&g->s->mutex);
    if (g->refused)
        return true;
    if (g->left || sl_http_is_gone(g->x) || !stopping)
        return false;
    (void)sl_api_fail(g->err, SL_API_ERR_UNAVAILABLE, NULL, "the server is stopping");
    return true;
}

static sl_status answer(generation *g) {
    sl_server *s = g->s;
    sl_generate_request q;
    sl_generate_result result;
    sl_error cause;
    sl_status st = make_request(g, &q);
    if (st)
        return st;
    if (g->request.stream) {
        sl_http_begin(g->x, 200, SL_HTTP_SSE_TYPE, NULL, 0, SL_HTTP_SSE_COMMENT);
        g->streaming = true;
    }
    st = prefill(g, &cause);
    sl__set_phase(s, SL_SERVER_ANSWER, 0, 0);
    if (!st && !written(g, sl_api_write_begin(&g->writer, &g->usage, g->err)))
        st = SL_ERR_CANCELED;
    if (!st)
        st = sl_session_generate(s->session, &q, &result, &cause);
    if (st == SL_ERR_CANCELED || (!st && result.finish == SL_FINISH_CANCEL && !g->enough)) {
        g->left = !canceled(g);
        return SL_ERR_CANCELED;
    }
    if (st)
        return sl_api_fail_engine(g->err, NULL, &cause);
    g->usage.n_completion = result.n_generated;
    (void)sl_session_keep(s->session); // a next turn may repeat the answer as it is
    const char *stop = result.stop_string ? q.stop[result.stop_index] : NULL;
    st = sl_api_finish_answer(&g->writer, finish_of(&result), stop, &g->usage, g->err);
    if (!st && !flush(g))
        return SL_ERR_CANCELED;
    return st;
}

static void log_ignored(generation *g) {
    const sl_api_request *r = &g->request;
    char line[512];
    sl_buf b;
    if (!r->n_ignored)
        return;
    sl_buf_init_fixed(&b, line, sizeof(line));
    for (size_t i = 0; i < SL_MIN(r->n_ignored, SL_API_IGNORED_MAX); i++)
        sl_buf_printf(&b, "%s%s", i ? ", " : "", r->ignored[i]);
    sl__server_log(g->s, false, "%s: ignored %zu field%s: %s", sl_http_request_of(g->x)->path,
                   r->n_ignored, r->n_ignored == 1 ? "" : "s", line);
    (void)pthread_mutex_lock(&g->s->mutex);
    g->s->state.n_ignored_fields += r->n_ignored;
    (void)pthread_mutex_unlock(&g->s->mutex);
}

static void add_up(generation *g) {
    sl_server *s = g->s;
    (void)pthread_mutex_lock(&s->mutex);
    s->state.n_prompt += g->usage.n_prompt;
    s->state.n_cached += g->usage.n_cached;
    s->state.n_completion += g->usage.n_completion;
    s->state.n_calls_refused += g->writer.n_calls_refused;
    (void)pthread_mutex_unlock(&s->mutex);
    if (g->writer.n_calls_refused || g->writer.n_calls_unchecked)
        sl__server_log(s, false, "%s: %u tool calls given as text, %u not checked: %s",
                       sl_http_request_of(g->x)->path, g->writer.n_calls_refused,
                       g->writer.n_calls_unchecked, g->writer.call_refused.message);
}

static sl_status read_request(generation *g, sl_api_dialect dialect) {
    sl_server *s = g->s;
    const sl_http_request *http = sl_http_request_of(g->x);
    const sl_api_limits limits = {.n_vocab = s->model.n_vocab};
    sl_status st = sl_api_parse(dialect, http->body ? http->body : "", http->body_bytes, &limits,
                                &s->job, &g->request, g->err);
    sl_http_drop_body(g->x);
    if (st)
        return st;
    log_ignored(g);
    if (strcmp(g->request.model.text, s->name) != 0)
        return sl_api_fail(g->err, SL_API_ERR_MODEL, "model",
                           "there is no model '%.100s' here; this server has '%s'",
                           g->request.model.text, s->name);
    if (dialect != SL_API_COMPLETIONS && !s->model.has_template)
        return sl_api_fail(g->err, SL_API_ERR_UNSUPPORTED, NULL,
                           "this model has no chat template: /v1/completions works with it");
    return SL_OK;
}

sl_generated sl__generate(sl_server *s, sl_http_exchange *x, sl_api_dialect dialect, sl_buf *body,
                          sl_api_error *err) {
    generation *g = sl_arena_alloc(&s->job, sizeof(*g), 64);
    if (!g) { // it is far smaller than the arena
        (void)sl_api_fail(err, SL_API_ERR_INTERNAL, NULL, "no memory for a request");
        return SL_GENERATED_ERROR;
    }
    memset(g, 0, sizeof(*g));
    g->s = s;
    g->x = x;
    g->out = body;
    g->err = err;
    if (read_request(g, dialect) || make_prompt(g))
        return SL_GENERATED_ERROR;
    if (dialect == SL_API_COUNT_TOKENS) {
        sl_api_write_count(body, g->n_prompt);
        return SL_GENERATED_BODY;
    }
    if (sl__hold_begin(&g->hold, s, &g->request, err))
        return SL_GENERATED_ERROR;
    sl_random_bytes(g->identity.random, sizeof(g->identity.random));
    g->identity.created = sl_unix_time();
    g->identity.model = s->name;
    sl_api_writer_init(&g->writer, &g->request, &g->identity, body, s->store,
                       (size_t)s->sizes.out_bytes);
    g->checker = (sl_api_checker){&g->request, &s->job};
    g->writer.check = sl_api_check_schema;
    g->writer.check_user = &g->checker;
    sl_status st = answer(g);
    add_up(g);
    if (!st)
        return g->streaming ? SL_GENERATED_SENT : SL_GENERATED_BODY;
    if (g->left)
        return SL_GENERATED_CUT;
    if (!g->streaming)
        return SL_GENERATED_ERROR;
    sl_api_write_failure(&g->writer, err);
    sl__server_log(s, sl_api_error_http_status(err) == 500, "%s: %s", sl_http_request_of(x)->path,
                   err->message);
    return flush(g) ? SL_GENERATED_SENT : SL_GENERATED_CUT;
}
