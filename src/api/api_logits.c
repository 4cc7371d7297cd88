/* Logits and hidden states of a forced token sequence. */
#include <string.h>

#include "api/internal.h"

typedef struct capture {
    float *hidden; /* [n_layers + 1][n][d_model] */
    size_t n, at;  /* tokens in all, tokens before this chunk */
    uint32_t d_model;
} capture;

static void keep_hidden(void *user, uint32_t layer, const float *x, uint32_t n_tokens) {
    // forward.user is the engine: it finds the capture through itself.
    const sl_engine *e = user;
    capture *c = e->capture;
    memcpy(c->hidden + ((size_t)layer * c->n + c->at) * c->d_model, x,
           (size_t)n_tokens * c->d_model * sizeof(float));
}

static sl_status send_floats(const sl_sink *sink, const float *x, size_t n, sl_error *err) {
    if (!sink->write(sink->user, (const char *)x, n * sizeof(float)))
        return sl_fail(err, SL_ERR_CANCELED, "stopped");
    return SL_OK;
}

static sl_status compute(sl_session *s, const uint32_t *tokens, size_t n, capture *c,
                         const sl_sink *logits, sl_error *err) {
    sl_engine *e = s->engine;
    sl_status st = SL_OK;
    while (!st && c->at < n) {
        uint32_t count = (uint32_t)SL_MIN(n - c->at, e->scratch.chunk);
        st = sl__session_chunk(s, tokens + c->at, count, true, err);
        for (uint32_t t = 0; t < count && !st; t++)
            if (!(st = sl_forward_logits(&e->forward, t, err)))
                st = send_floats(logits, e->scratch.logits, e->store.model.n_vocab, err);
        c->at += count;
    }
    return st;
}

sl_status sl_logits(sl_session *s, const uint32_t *tokens, size_t n, const sl_sink *logits,
                    const sl_sink *hidden, sl_error *err) {
    sl_engine *e = s->engine;
    const sl_model *m = &e->store.model;
    capture c = {.n = n, .d_model = m->d_model};
    size_t floats = (size_t)(m->n_layers + 1) * n * m->d_model;
    sl__session_reset(s);
    sl_status st = sl__session_check(s, tokens, n, err);
    if (!st && n == 0)
        st = sl_fail(err, SL_ERR_ARGUMENT, "no tokens were given");
    if (!st && hidden && !(c.hidden = sl_mem_alloc(floats * sizeof(float))))
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for %zu hidden values", floats);
    if (!st) {
        e->capture = &c;
        e->forward.hidden = hidden ? keep_hidden : NULL;
        uint64_t entered = sl__engine_enter();
        st = compute(s, tokens, n, &c, logits, err);
        sl__engine_leave(entered);
        e->forward.hidden = NULL;
        e->capture = NULL;
    }
    if (!st && hidden)
        st = send_floats(hidden, c.hidden, floats, err);
    sl_mem_free(c.hidden);
    sl__session_reset(s);
    sl__engine_publish(e);
    atomic_store_explicit(&s->cancel, false, memory_order_relaxed);
    return st;
}
