/* The worker: owns engine and session, and takes the requests in the order in which they came. */
#include <string.h>

#include "server/server_internal.h"

void sl__set_phase(sl_server *s, sl_server_phase phase, uint64_t done, uint64_t total) {
    (void)pthread_mutex_lock(&s->mutex);
    s->state.phase = phase;
    s->state.done = done;
    s->state.total = total;
    s->state.n_answered = 0;
    (void)pthread_mutex_unlock(&s->mutex);
}

/* ---- tokens -------------------------------------------------------------------------------------- */

static sl_status tokenize(sl_server *s, const sl_http_request *request, sl_buf *body,
                          sl_api_error *err) {
    sl_api_tokenize t;
    sl_error cause;
    size_t n;
    sl_status st = sl_api_parse_tokenize(request->body ? request->body : "", request->body_bytes,
                                         &s->job, &t, err);
    if (st)
        return st;
    unsigned flags =
        (t.add_special ? SL_TOKENIZE_WHOLE : 0) | (t.parse_special ? 0 : SL_TOKENIZE_PLAIN);
    size_t cap = t.content.len + 16; // a byte is a token at worst, and a few stand around the text
    uint32_t *ids = sl_arena_alloc(&s->job, cap * sizeof(*ids), 4);
    if (!ids)
        return sl_api_fail(err, SL_API_ERR_TOO_LARGE, "content",
                           "the text of %zu bytes is longer than this server's memory for a "
                           "request of %zu",
                           t.content.len, s->job.bytes);
    st = sl_engine_tokenize(s->engine, t.content.text, t.content.len, flags, ids, cap, &n, &cause);
    if (st)
        return sl_api_fail_engine(err, "content", &cause);
    sl_api_write_tokens(body, ids, n);
    return SL_OK;
}

static sl_status detokenize(sl_server *s, const sl_http_request *request, sl_buf *body,
                            sl_api_error *err) {
    const uint32_t *ids;
    size_t n;
    sl_status st = sl_api_parse_detokenize(request->body ? request->body : "", request->body_bytes,
                                           s->model.n_vocab, &s->job, &ids, &n, err);
    if (st)
        return st;
    sl_buf text;
    sl_buf_init_fixed(&text, s->store, (size_t)s->sizes.out_bytes);
    for (size_t i = 0; i < n; i++) {
        sl_token_info t;
        if (!sl_engine_token(s->engine, ids[i], &t))
            return sl_api_fail(err, SL_API_ERR_INVALID, "tokens", "%u is no token", ids[i]);
        sl_buf_add(&text, t.bytes, t.len);
    }
    if (text.failed)
        return sl_api_fail(err, SL_API_ERR_ANSWER_TOO_LARGE, NULL,
                           "the text is longer than the %llu bytes that this server holds",
                           (unsigned long long)s->sizes.out_bytes);
    sl_api_write_content(body, text.data, text.len);
    return SL_OK;
}

// Answer with the route's body or its error; the handle is gone afterwards.
static void tokens_route(sl_server *s, sl_http_exchange *x, const sl_route *r) {
    sl_api_error err;
    sl_buf body;
    const sl_http_request *request = sl_http_request_of(x);
    sl_buf_init_fixed(&body, s->out, (size_t)s->sizes.out_bytes);
    sl_status st = r->kind == SL_ROUTE_TOKENIZE ? tokenize(s, request, &body, &err)
                                                : detokenize(s, request, &body, &err);
    if (!st && body.failed)
        st = sl_api_fail(&err, SL_API_ERR_ANSWER_TOO_LARGE, NULL,
                         "the answer is longer than the %llu bytes that this server holds",
                         (unsigned long long)s->sizes.out_bytes);
    if (st)
        sl__answer_error(s, x, r->dialect, &err);
    else
        sl_http_respond(x, 200, "application/json", NULL, 0, body.data, body.len);
}

/* ---- the loop ------------------------------------------------------------------------------------- */

// The next request; NULL once the server stops. It is the current one from here on.
static sl_http_exchange *next(sl_server *s) {
    sl_http_exchange *x = NULL;
    (void)pthread_mutex_lock(&s->mutex);
    while (s->n_queued == 0 && !s->stopping)
        (void)pthread_cond_wait(&s->has_work, &s->mutex);
    if (s->n_queued) {
        x = s->queue[s->first];
        s->first = (s->first + 1) % s->sizes.n_queue;
        s->n_queued--;
        s->current = x;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return x;
}

/* The request is answered, and its handle about to go: from here on a client that leaves cancels nothing. A cancel that
 * came too late is taken back. */
static void let_go(sl_server *s) {
    (void)pthread_mutex_lock(&s->mutex);
    s->current = NULL;
    (void)pthread_mutex_unlock(&s->mutex);
    (void)sl_session_feed(s->session, NULL, 0, NULL, NULL);
}

static void generate(sl_server *s, sl_http_exchange *x, sl_api_dialect dialect) {
    sl_api_error err;
    sl_buf body;
    sl_buf_init_fixed(&body, s->out, (size_t)s->sizes.out_bytes);
    sl__set_phase(s, SL_SERVER_PREPARE, 0, 0);
    sl_generated got = sl__generate(s, x, dialect, &body, &err);
    sl__set_phase(s, SL_SERVER_IDLE, 0, 0);
    let_go(s);
    switch (got) {
    case SL_GENERATED_ERROR:
        sl__answer_error(s, x, dialect, &err);
        break;
    case SL_GENERATED_BODY:
        sl_http_respond(x, 200, "application/json", NULL, 0, body.data, body.len);
        break;
    case SL_GENERATED_SENT:
        sl_http_end(x);
        break;
    case SL_GENERATED_CUT:
        sl_http_abort(x);
        break;
    }
}

static void serve(sl_server *s, sl_http_exchange *x) {
    const sl_route *r = sl__route_of(sl_http_request_of(x));
    bool stopping;
    (void)pthread_mutex_lock(&s->mutex);
    stopping = s->stopping;
    (void)pthread_mutex_unlock(&s->mutex);
    sl_arena_reset(&s->job, 0);
    if (stopping) {
        let_go(s);
        sl_http_refuse(x, 503, "the server is stopping", 5);
    } else if (r->kind == SL_ROUTE_TOKENIZE || r->kind == SL_ROUTE_DETOKENIZE) {
        let_go(s); // nothing to cancel
        tokens_route(s, x, r);
    } else {
        generate(s, x, r->dialect);
    }
}

void sl__worker_main(void *server) {
    sl_server *s = server;
    sl_http_exchange *x;
    while ((x = next(s)))
        serve(s, x);
}
