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

sl_status sl_logits(sl_session *s, const uint32_t *tokens, size_t n, const sl_sink *logits,
                    const sl_sink *hidden, sl_error *err) {
    sl_engine *e = s->engine;
    const sl_model *m = &e->store.model;
    capture c = {.n = n, .d_model = m->d_model};
    sl_status st = SL_OK;
    sl__session_reset(s);
    if (n == 0 || n > e->state.n_ctx)
        return sl_fail(err, SL_ERR_CONTEXT,
                       "%zu tokens were given, the context holds %u and takes at least one", n,
                       e->state.n_ctx);
    size_t floats = (size_t)(m->n_layers + 1) * n * m->d_model;
    if (hidden) {
        if (!(c.hidden = sl_mem_alloc(floats * sizeof(float))))
            return sl_fail(err, SL_ERR_MEMORY, "no memory for %zu hidden values", floats);
        e->capture = &c;
        e->forward.hidden = keep_hidden;
    }
    for (size_t i = 0; i < n && !st; i++)
        if (tokens[i] >= m->n_vocab)
            st = sl_fail(err, SL_ERR_ARGUMENT, "token %zu is %u, the vocabulary has %u", i,
                         tokens[i], m->n_vocab);
    sl_fpenv_set();
    while (!st && c.at < n) {
        uint32_t count = (uint32_t)SL_MIN(n - c.at, e->scratch.chunk);
        st = sl__session_chunk(s, tokens + c.at, count, err);
        for (uint32_t t = 0; t < count && !st; t++)
            if (!(st = sl_forward_logits(&e->forward, t, err)))
                st = send_floats(logits, e->scratch.logits, m->n_vocab, err);
        c.at += count;
    }
    if (!st && hidden)
        st = send_floats(hidden, c.hidden, floats, err);
    e->forward.hidden = NULL;
    e->capture = NULL;
    sl_mem_free(c.hidden);
    sl__session_reset(s);
    return st;
}
