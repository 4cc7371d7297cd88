/* The routes, as the HTTP thread sees them: what needs no engine is answered at once, all else is put into the
 * queue of the worker. */
#include <stdio.h>
#include <string.h>

#include "server/server_internal.h"

#define JSON "application/json"
#define METRICS "text/plain; version=0.0.4"
#define MODEL_PREFIX "/v1/models/"
#define RETRY_SECONDS 5

static const sl_route routes[] = {
    {"GET", "/health", SL_ROUTE_HEALTH, SL_API_CHAT},
    {"GET", "/v1/models", SL_ROUTE_MODELS, SL_API_CHAT},
    {"GET", "/metrics", SL_ROUTE_METRICS, SL_API_CHAT},
    {"GET", "/api/v1/memory", SL_ROUTE_MEMORY, SL_API_CHAT},
    {"GET", "/api/v1/events", SL_ROUTE_EVENTS, SL_API_CHAT},
    {"POST", "/v1/chat/completions", SL_ROUTE_GENERATE, SL_API_CHAT},
    {"POST", "/v1/completions", SL_ROUTE_GENERATE, SL_API_COMPLETIONS},
    {"POST", "/v1/responses", SL_ROUTE_GENERATE, SL_API_RESPONSES},
    {"POST", "/v1/messages", SL_ROUTE_GENERATE, SL_API_MESSAGES},
    {"POST", "/v1/messages/count_tokens", SL_ROUTE_COUNT, SL_API_COUNT_TOKENS},
    {"POST", "/tokenize", SL_ROUTE_TOKENIZE, SL_API_CHAT},
    {"POST", "/detokenize", SL_ROUTE_DETOKENIZE, SL_API_CHAT},
};
static const sl_route one_model = {"GET", MODEL_PREFIX, SL_ROUTE_MODEL, SL_API_CHAT};

static const sl_route *find(const char *path) {
    for (size_t i = 0; i < SL_COUNT(routes); i++)
        if (strcmp(routes[i].path, path) == 0)
            return &routes[i];
    return strncmp(path, MODEL_PREFIX, strlen(MODEL_PREFIX)) == 0 ? &one_model : NULL;
}

const sl_route *sl__route_of(const sl_http_request *request) {
    return find(request->path);
}

static sl_api_dialect dialect_of(const char *path) {
    const sl_route *r = find(path);
    return r ? r->dialect : SL_API_CHAT;
}

/* ---- errors -------------------------------------------------------------------------------------- */

static sl_api_error_kind kind_of(unsigned status) {
    switch (status) {
    case 401:
        return SL_API_ERR_AUTH;
    case 403:
        return SL_API_ERR_FORBIDDEN;
    case 404:
        return SL_API_ERR_NOT_FOUND;
    case 405:
        return SL_API_ERR_METHOD;
    case 408:
        return SL_API_ERR_TIMEOUT;
    case 413:
        return SL_API_ERR_TOO_LARGE;
    case 415:
        return SL_API_ERR_MEDIA_TYPE;
    case 429:
        return SL_API_ERR_BUSY;
    case 503:
        return SL_API_ERR_UNAVAILABLE;
    default:
        return status >= 500 ? SL_API_ERR_INTERNAL : SL_API_ERR_INVALID;
    }
}

// What HTTP refuses, in the form of the route's API.
static void error_body(void *ctx, const char *path, unsigned status, const char *message,
                       sl_buf *out) {
    sl_api_error err;
    (void)ctx;
    (void)sl_api_fail(&err, kind_of(status), NULL, "%s", message);
    sl_api_write_error(dialect_of(path), &err, out);
}

void sl__answer_error(sl_server *s, sl_http_exchange *x, sl_api_dialect dialect,
                      const sl_api_error *err) {
    char block[SL_API_FAILURE_BYTES];
    sl_buf body;
    unsigned status = (unsigned)sl_api_error_http_status(err);
    bool retry = sl_api_error_retry(err);
    const sl_http_header headers[] = {{"x-should-retry", retry ? "true" : "false"},
                                      {"Retry-After", "5"}};
    sl_buf_init_fixed(&body, block, sizeof(block));
    sl_api_write_error(dialect, err, &body);
    (void)pthread_mutex_lock(&s->mutex);
    s->state.n_failed++;
    (void)pthread_mutex_unlock(&s->mutex);
    sl__server_log(s, status == 500, "%s: %u %s%s%s", sl_http_request_of(x)->path, status,
                   err->param, *err->param ? ": " : "", err->message);
    sl_http_respond(x, status, JSON, headers, retry ? 2 : 1, body.data, body.len);
}

/* ---- at once -------------------------------------------------------------------------------------- */

static void respond(sl_http_exchange *x, const char *type, const sl_buf *body) {
    if (body->failed)
        sl_http_refuse(x, 500, "the answer is longer than expected", 0);
    else
        sl_http_respond(x, 200, type, NULL, 0, body->data, body->len);
}

static void model(sl_server *s, sl_http_exchange *x, const char *name, sl_buf *body) {
    sl_api_error err;
    if (strcmp(name, s->name) == 0) {
        sl_api_write_model(body, s->name, s->started, s->plan.n_ctx);
        respond(x, JSON, body);
        return;
    }
    (void)sl_api_fail(&err, SL_API_ERR_MODEL, "model", "there is no model '%.100s'; this is '%s'",
                      name, s->name);
    sl_api_write_error(SL_API_CHAT, &err, body);
    sl_http_respond(x, 404, JSON, NULL, 0, body->data, body->len);
}

static void watch(sl_server *s, sl_http_exchange *x) {
    unsigned i = 0;
    (void)pthread_mutex_lock(&s->mutex);
    while (i < SL_SERVER_WATCHERS_MAX && s->watchers[i])
        i++;
    bool room = i < SL_SERVER_WATCHERS_MAX && !s->stopping;
    if (room) {
        sl_http_keep(x, NULL);
        sl_http_begin(x, 200, SL_HTTP_SSE_TYPE, NULL, 0, SL_HTTP_SSE_COMMENT);
        s->watchers[i] = x;
        s->newcomers = true;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    if (!room)
        sl_http_refuse(x, 503, "too many listen to events already", RETRY_SECONDS);
}

static void enqueue(sl_server *s, sl_http_exchange *x) {
    bool stopping, room;
    (void)pthread_mutex_lock(&s->mutex);
    stopping = s->stopping;
    room = s->n_queued < s->sizes.n_queue && !stopping;
    if (room) {
        sl_http_keep(x, NULL);
        s->queue[(s->first + s->n_queued++) % s->sizes.n_queue] = x;
        s->state.n_requests++;
        (void)pthread_cond_signal(&s->has_work);
    } else {
        s->state.n_refused_busy++;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    if (stopping)
        sl_http_refuse(x, 503, "the server is stopping", RETRY_SECONDS);
    else if (!room)
        sl_http_refuse(x, 429, "the queue is full: requests are answered one at a time",
                       RETRY_SECONDS);
}

static void handle(void *ctx, sl_http_exchange *x, const sl_http_request *request) {
    sl_server *s = ctx;
    char block[8 * SL_KIB];
    sl_buf body;
    if (sl__page_answer(x, request))
        return;
    const sl_route *r = find(request->path); // there is one: see check
    sl_buf_init_fixed(&body, block, sizeof(block));
    switch (r->kind) {
    case SL_ROUTE_HEALTH:
        sl_buf_add_text(&body, "{\"status\":\"ok\"}");
        respond(x, JSON, &body);
        return;
    case SL_ROUTE_MODELS: {
        const char *names[] = {s->name};
        sl_api_write_models(&body, names, 1, s->started, s->plan.n_ctx);
        respond(x, JSON, &body);
        return;
    }
    case SL_ROUTE_MODEL:
        model(s, x, request->path + strlen(MODEL_PREFIX), &body);
        return;
    case SL_ROUTE_METRICS:
        sl__status_metrics(s, &body);
        respond(x, METRICS, &body);
        return;
    case SL_ROUTE_MEMORY:
        sl__status_memory(s, &body);
        respond(x, JSON, &body);
        return;
    case SL_ROUTE_EVENTS:
        watch(s, x);
        return;
    case SL_ROUTE_GENERATE:
    case SL_ROUTE_COUNT:
    case SL_ROUTE_TOKENIZE:
    case SL_ROUTE_DETOKENIZE:
        enqueue(s, x);
        return;
    }
}

/* ---- before and after ------------------------------------------------------------------------------ */

static unsigned check(void *ctx, const sl_http_request *request, unsigned *retry_seconds) {
    (void)ctx;
    (void)retry_seconds;
    if (sl__page_has(request->path))
        return strcmp(request->method, "GET") == 0 ? 0 : 405;
    const sl_route *r = find(request->path);
    if (!r)
        return 404;
    if (strcmp(r->method, request->method) != 0)
        return 405;
    if (strcmp(r->method, "POST") == 0 && strcmp(request->content_type, JSON) != 0)
        return 415;
    return 0;
}

static bool is_open(void *ctx, const sl_http_request *request) {
    (void)ctx;
    return strcmp(request->path, "/health") == 0 || sl__page_has(request->path);
}

// A client has left: what it waits for is not computed.
static void gone(void *ctx, sl_http_exchange *x, void *user) {
    sl_server *s = ctx;
    bool queued = false;
    (void)user;
    (void)pthread_mutex_lock(&s->mutex);
    s->state.n_gone++;
    if (s->current == x)
        sl_session_cancel(s->session);
    for (uint32_t i = 0; i < s->n_queued; i++) {
        sl_http_exchange **at = &s->queue[(s->first + i) % s->sizes.n_queue];
        if (!queued && *at == x)
            queued = true;
        else if (queued)
            s->queue[(s->first + i - 1) % s->sizes.n_queue] = *at;
    }
    s->n_queued -= queued;
    (void)pthread_mutex_unlock(&s->mutex);
    if (queued)
        sl_http_end(x);
}

void sl__routes_init(sl_server *s, sl_http_options *http) {
    http->ctx = s;
    http->handle = handle;
    http->check = check;
    http->is_open = is_open;
    http->error_body = error_body;
    http->gone = gone;
}
