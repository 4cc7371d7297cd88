/* Opening, stopping and closing: see server.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/server_internal.h"

void sl__server_log(sl_server *s, bool is_error, const char *fmt, ...) {
    char line[1024];
    va_list args;
    if (!s->options.log)
        return;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    for (char *c = line; *c; c++) // what a client sent stays on its line
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = ' ';
    s->options.log(s->options.user, is_error, line);
}

/* ---- open ---------------------------------------------------------------------------------------- */

static void *take(sl_server *s, uint64_t bytes, sl_status *st, sl_error *err) {
    void *p = sl_arena_alloc(&s->arena, (size_t)bytes, 64);
    if (!p && !*st)
        *st = sl_arena_full(&s->arena, (size_t)bytes, err);
    return p;
}

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    sl_token_info t;
    if (!sl_engine_token(ctx, id, &t) || t.special)
        return false;
    *bytes = t.bytes;
    *len = t.len;
    return true;
}

/* What holds answers to a schema; where the vocabulary cannot spell every answer, or does not end one by a token, the server
 * goes without and refuses such requests. */
static void build_vocab(sl_server *s) {
    uint32_t ends[SL_VOCAB_ENDS_MAX], n_end = 0;
    sl_token_info t;
    sl_error err;
    sl_arena scratch, sub;
    if (!s->sizes.vocab_bytes)
        return;
    for (uint32_t id = 0; id < s->model.n_vocab && n_end < SL_VOCAB_ENDS_MAX; id++)
        if (sl_engine_token(s->engine, id, &t) && t.end)
            ends[n_end++] = id;
    size_t bytes = (size_t)(s->sizes.vocab_bytes + s->sizes.work_bytes);
    void *block = sl_arena_alloc(&s->arena, bytes, SL_PAGE);
    if (!block || !n_end)
        return;
    sl_arena_init(&sub, "server", block, bytes);
    const sl_vocab_source source = {.n_vocab = s->model.n_vocab,
                                    .token_bytes = token_bytes,
                                    .ctx = s->engine,
                                    .end_ids = ends,
                                    .n_end = n_end};
    // The arena of a request is free now.
    sl_arena_init(&scratch, "server", s->job.base, s->job.bytes);
    if (sl_vocab_build(&source, &sub, &scratch, &s->vocab, &err) ||
        sl_constraint_work_init(s->vocab, s->sizes.n_masks, &sub, &s->work, &err)) {
        s->vocab = NULL;
        sl__server_log(s, false, "answers cannot be held to a schema with this model: %s",
                       err.message);
    }
}

static sl_status lay_out(sl_server *s, sl_error *err) {
    const sl_server_sizes *z = &s->sizes;
    sl_status st = sl_arena_map(&s->arena, "server", z->arena_bytes, err);
    if (st)
        return st;
    uint64_t ids = ((uint64_t)s->plan.n_ctx + 1) * sizeof(uint32_t);
    s->queue = take(s, z->n_queue * sizeof(sl_http_exchange *), &st, err);
    s->text = take(s, z->text_bytes, &st, err);
    s->other_text = take(s, z->text_bytes, &st, err);
    s->ids = take(s, ids, &st, err);
    s->other_ids = take(s, ids, &st, err);
    s->out = take(s, z->out_bytes, &st, err);
    s->store = take(s, z->out_bytes, &st, err);
    s->mask = take(s, SL_CONSTRAINT_MASK_WORDS(s->model.n_vocab) * sizeof(*s->mask), &st, err);
    void *job = take(s, z->job_bytes, &st, err);
    if (st)
        return st;
    sl_arena_init(&s->job, "server", job, (size_t)z->job_bytes);
    build_vocab(s);
    return SL_OK;
}

static sl_status open_engine(sl_server *s, const sl_progress *progress, sl_error *err) {
    sl_engine_options options = s->options.engine;
    options.server_bytes = s->sizes.server_bytes;
    options.snapshot_bytes = s->sizes.snapshot_bytes;
    sl_status st = sl_engine_open(s->options.path, &options, progress, &s->engine, err);
    if (st)
        return st;
    sl_engine_plan(s->engine, &s->plan);
    sl_engine_model(s->engine, &s->model);
    if (!s->model.has_tokenizer)
        return sl_fail(err, SL_ERR_STATE, "'%s' has no tokenizer: it cannot be talked to",
                       s->options.path);
    return sl_session_open(s->engine, &s->session, err);
}

/* Listen, and shut the process in: files before anything from outside is read, calls once everything stands. */
static sl_status start(sl_server *s, sl_error *err) {
    const sl_sandbox_options walls = {.may_listen = true, .port = s->options.port};
    sl_http_options http = s->sizes.http;
    bool shut = !s->options.no_sandbox;
    sl_status st;
    sl__routes_init(s, &http);
    if (shut && (st = sl_sandbox_files(&walls, &s->walls, err)))
        return st;
    if ((st = sl_thread_start(&s->worker, "sl-worker", &s->arena, SL_SERVER_STACK_BYTES,
                              sl__worker_main, s, err)) ||
        (st = sl_thread_start(&s->watcher, "sl-watcher", &s->arena, SL_SERVER_WATCHER_STACK_BYTES,
                              sl__watcher_main, s, err)))
        return st;
    if ((st = sl_http_start(&http, &s->arena, &s->http, err)) ||
        (shut && (st = sl_sandbox_calls(&walls, &s->walls, err))))
        return st;
    if (shut)
        sl_sandbox_describe(&s->walls, s->sandbox, sizeof(s->sandbox));
    else
        (void)snprintf(s->sandbox, sizeof(s->sandbox), "off");
    return SL_OK;
}

// A port that is taken shows before a large model has been read.
static sl_status try_address(sl_server *s, sl_error *err) {
    sl_http_options http = s->sizes.http;
    sl__routes_init(s, &http);
    return sl_http_try(&http, err);
}

static void choose_name(sl_server *s) {
    const char *name = s->options.name;
    if (!name) {
        size_t n = strlen(s->options.path);
        while (n > 1 && s->options.path[n - 1] == '/')
            n--;
        size_t from = n;
        while (from > 0 && s->options.path[from - 1] != '/')
            from--;
        (void)snprintf(s->name, sizeof(s->name), "%.*s", (int)(n - from), s->options.path + from);
    } else {
        (void)snprintf(s->name, sizeof(s->name), "%s", name);
    }
}

sl_status sl_server_open(const sl_server_options *options, const sl_progress *progress,
                         sl_server **out, sl_error *err) {
    *out = NULL;
    sl_mem_one_heap(); // HTTP's thread allocates a little for each connection
    sl_server *s = sl_mem_calloc(1, sizeof(*s));
    if (!s)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for the server");
    s->options = *options;
    s->started = sl_unix_time();
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_cond_init(&s->has_work, NULL);
    (void)pthread_cond_init(&s->has_ended, NULL);
    choose_name(s);
    sl_status st;
    if ((st = sl__server_sizes(options, &s->sizes, err)) || (st = try_address(s, err)) ||
        (st = open_engine(s, progress, err)) || (st = lay_out(s, err)) || (st = start(s, err))) {
        sl_server_close(s);
        return st;
    }
    *out = s;
    return SL_OK;
}

uint16_t sl_server_port(const sl_server *s) {
    return sl_http_port(s->http);
}

const sl_engine *sl_server_engine(const sl_server *s) {
    return s->engine;
}

const char *sl_server_sandbox(const sl_server *s) {
    return s->sandbox;
}

/* ---- stop ---------------------------------------------------------------------------------------- */

static void say_stop(sl_server *s) {
    (void)pthread_mutex_lock(&s->mutex);
    s->stopping = true;
    (void)pthread_cond_broadcast(&s->has_work);
    (void)pthread_cond_broadcast(&s->has_ended);
    (void)pthread_mutex_unlock(&s->mutex);
}

void sl_server_stop(sl_server *s, double seconds) {
    say_stop(s); // what waits in the queue is answered 503, the current request goes on
    sl_http_stop(s->http, seconds); // cuts what has not ended; `gone` cancels the session then
    s->http = NULL;
    sl_thread_join(&s->worker);
    sl_thread_join(&s->watcher);
}

void sl_server_close(sl_server *s) {
    if (!s)
        return;
    sl_server_stop(s, 0);
    sl_session_close(s->session);
    sl_engine_close(s->engine);
    sl_arena_unmap(&s->arena);
    (void)pthread_cond_destroy(&s->has_ended);
    (void)pthread_cond_destroy(&s->has_work);
    (void)pthread_mutex_destroy(&s->mutex);
    sl_mem_free(s);
}
