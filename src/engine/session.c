/* The session: tokens in, logits out. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

void sl__session_reset(sl_session *s) {
    sl_engine *e = s->engine;
    sl_state_reset(&e->state, &e->store.model);
    sl_sampler_reset(&e->sampler);
    s->has_logits = false;
    s->n_answer = 0;
}

const float *sl__session_logits(const sl_session *s) {
    return s->has_logits ? s->engine->scratch.logits : NULL;
}

sl_status sl__session_chunk(sl_session *s, const uint32_t *tokens, uint32_t n, sl_error *err) {
    sl_engine *e = s->engine;
    sl_status st = sl__rows_read(e, tokens, n, e->scratch.x, err);
    if (st)
        return st;
    sl_experts_tick(&e->experts, n);
    return sl_forward_chunk(&e->forward, n, err);
}

static sl_status feed(sl_session *s, const uint32_t *tokens, size_t n,
                      bool (*progress)(void *user, uint64_t done, uint64_t total), void *user,
                      sl_error *err) {
    sl_engine *e = s->engine;
    sl_status st;
    uint32_t last = 0;
    for (size_t done = 0; done < n;) {
        last = (uint32_t)SL_MIN(n - done, e->scratch.chunk);
        if ((st = sl__session_chunk(s, tokens + done, last, err)))
            return st;
        done += last;
        if (progress && !progress(user, done, n))
            return sl_fail(err, SL_ERR_CANCELED, "canceled after %zu of %zu tokens", done, n);
    }
    if ((st = sl_forward_logits(&e->forward, last - 1, err)))
        return st;
    s->has_logits = true;
    return SL_OK;
}

sl_status sl__session_feed(sl_session *s, const uint32_t *tokens, size_t n,
                           bool (*progress)(void *user, uint64_t done, uint64_t total), void *user,
                           sl_error *err) {
    sl_engine *e = s->engine;
    uint32_t n_past = e->state.n_past;
    if (n == 0)
        return SL_OK;
    if (n > e->state.n_ctx - n_past)
        return sl_fail(err, SL_ERR_CONTEXT,
                       "the context holds %u tokens, %u are in use and %zu more were given; "
                       "nothing was cut off",
                       e->state.n_ctx, n_past, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= e->store.model.n_vocab)
            return sl_fail(err, SL_ERR_ARGUMENT, "token %zu is %u, the vocabulary has %u", i,
                           tokens[i], e->store.model.n_vocab);
    double begin = sl_now();
    sl_seal_enter();
    sl_fpenv_set();
    sl_status st = feed(s, tokens, n, progress, user, err);
    sl_seal_leave();
    double seconds = sl_now() - begin;
    if (n == 1 && n_past) {
        e->tokens_decoded++;
        e->decode_seconds += seconds;
    } else {
        e->tokens_prefilled += n;
        e->prefill_seconds += seconds;
    }
    if (st)
        sl__session_reset(s);
    return st;
}
