/* The session: tokens in, logits out. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

#define PROGRESS_SECONDS 0.25

uint64_t sl__engine_enter(void) {
    sl_seal_enter();
    return sl_fpenv_set();
}

void sl__engine_leave(uint64_t entered) {
    sl_fpenv_restore(entered);
    sl_seal_leave();
}

/* ---- counters ------------------------------------------------------------------------------------ */

// Of the accounts that fill up; the others are used as they were planned.
static void measure_use(const sl_engine *e, uint64_t *used) {
    const sl_plan_result *p = &e->plan;
    const sl_experts *x = &e->experts;
    memcpy(used, p->account, sizeof(p->account));
    used[SL_ACCOUNT_RESERVE] = 0;
    used[SL_ACCOUNT_KV] = p->account[SL_ACCOUNT_KV] * e->state.n_past / p->n_ctx;
    used[SL_ACCOUNT_HOT] -= x->n_empty_hot * e->store.expert.stride;
    used[SL_ACCOUNT_SNAPSHOTS] = e->snapshots.used;
}

void sl__engine_publish(sl_engine *e) {
    const sl_reader_rate measured = sl_reader_measured(e->reader);
    sl_counters now = {
        .tokens_prefilled = e->tokens_prefilled,
        .tokens_decoded = e->tokens_decoded,
        .hits = e->experts.hits,
        .reads = e->experts.reads_total,
        .guess_reads = e->experts.guess_reads,
        .guesses_used = e->experts.guesses_used,
        .guesses_wasted = e->experts.guesses_wasted,
        .expert_read_bytes = e->experts.read_bytes,
        .trunk_read_bytes = e->trunk.read_bytes,
        .row_read_bytes = e->rows.read_bytes,
        .open_read_bytes = e->open_read_bytes,
        .open_seconds = e->open_seconds,
        .prefill_seconds = e->prefill_seconds,
        .decode_seconds = e->decode_seconds,
        .wait_seconds = e->experts.wait_seconds + e->trunk.wait_seconds + e->rows.wait_seconds,
        .drive = {measured.bytes - e->drive_before.bytes,
                  measured.seconds - e->drive_before.seconds},
        .drive_at_open = e->drive_at_open,
        .times = e->times,
    };
    measure_use(e, now.used);
    (void)pthread_mutex_lock(&e->counters_lock);
    e->counters = now;
    (void)pthread_mutex_unlock(&e->counters_lock);
}

void sl__engine_counters(sl_engine *e, sl_counters *out) {
    (void)pthread_mutex_lock(&e->counters_lock);
    *out = e->counters;
    (void)pthread_mutex_unlock(&e->counters_lock);
}

/* ---- session ------------------------------------------------------------------------------------- */

void sl__session_reset(sl_session *s) {
    sl_engine *e = s->engine;
    sl_state_reset(&e->state, &e->store.model);
    sl_sampler_reset(&e->sampler);
    s->has_logits = false;
    s->n_tail = 0;
}

const float *sl__session_logits(const sl_session *s) {
    return s->has_logits ? s->engine->scratch.logits : NULL;
}

// What the sampler's penalties and the parser of answers want to know about the sequence.
static void remember(sl_session *s, const uint32_t *tokens, size_t n) {
    for (size_t i = 0; i < n; i++)
        sl_sampler_see(&s->engine->sampler, tokens[i], SL_SEEN_PROMPT);
    size_t fresh = SL_MIN(n, SL_TAIL_TOKENS), kept = SL_MIN(s->n_tail, SL_TAIL_TOKENS - fresh);
    memmove(s->tail, s->tail + s->n_tail - kept, kept * sizeof(*s->tail));
    memcpy(s->tail + kept, tokens + n - fresh, fresh * sizeof(*s->tail));
    s->n_tail = (uint32_t)(kept + fresh);
}

uint32_t sl__session_rewind(sl_session *s, const uint32_t *tokens, size_t n) {
    sl_engine *e = s->engine;
    uint32_t kept = sl_snapshots_rewind(&e->snapshots, &e->state, &e->store.model, tokens, n);
    // As if the tokens had just been fed.
    sl_sampler_reset(&e->sampler);
    s->has_logits = false;
    s->n_tail = 0;
    remember(s, tokens, kept);
    return kept;
}

bool sl__session_keep(sl_session *s) {
    sl_engine *e = s->engine;
    return sl_snapshots_keep(&e->snapshots, &e->state, &e->store.model);
}

static bool is_canceled(void *user) {
    sl_engine *e = user;
    return e->session.prefill.stop ||
           atomic_load_explicit(&e->session.cancel, memory_order_relaxed);
}

// A chunk takes long on a large model: what it has passed is told as a share of its tokens.
static void tell_passed(void *user, uint32_t n_layers) {
    sl_engine *e = user;
    sl_prefill_progress *p = &e->session.prefill;
    double now = sl_now();
    if (now < p->next || p->stop)
        return;
    p->next = now + PROGRESS_SECONDS;
    sl__engine_publish(e);
    p->stop =
        !p->report(p->user, p->done + p->chunk * n_layers / e->store.model.n_layers, p->total);
}

sl_status sl__engine_check_limit(sl_engine *e, sl_error *err) {
    // The kernel keeps limits in whole pages, rounded down.
    uint64_t limit = e->memory_limit(), planned = e->plan.total_bytes / SL_PAGE * SL_PAGE;
    e->limit_look = sl_now() + SL_LIMIT_LOOK_SECONDS;
    if (limit >= planned)
        return SL_OK;
    return sl_fail(err, SL_ERR_BUDGET,
                   "the control group of this process may hold %.1f MiB (%llu bytes), and the plan "
                   "takes %.1f MiB (%llu bytes): raise the group's limit, or open the model again "
                   "with a budget of at most %llu bytes",
                   (double)limit / (double)SL_MIB, (unsigned long long)limit,
                   (double)planned / (double)SL_MIB, (unsigned long long)planned,
                   (unsigned long long)limit);
}

static sl_status look_at_limit(sl_engine *e, sl_error *err) {
    return sl_now() < e->limit_look ? SL_OK : sl__engine_check_limit(e, err);
}

sl_status sl__session_check(sl_session *s, const uint32_t *tokens, size_t n, sl_error *err) {
    sl_engine *e = s->engine;
    if (n > e->state.n_ctx - e->state.n_past)
        return sl_fail(err, SL_ERR_CONTEXT,
                       "the context holds %u tokens, %u are in use and %zu more were given; "
                       "nothing was cut off",
                       e->state.n_ctx, e->state.n_past, n);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= e->store.model.n_vocab)
            return sl_fail(err, SL_ERR_ARGUMENT, "token %zu is %u, the vocabulary has %u", i,
                           tokens[i], e->store.model.n_vocab);
    if (is_canceled(s->engine))
        return sl_fail(err, SL_ERR_CANCELED, "canceled before it began");
    return look_at_limit(e, err);
}

/* For a token of an answer: only when it does not come to its end for a long time, as on a drive that has
 * become very slow. */
static bool is_canceled_for_long(void *user) {
    sl_engine *e = user;
    if (!is_canceled(user)) {
        e->session.cancel_seen = 0;
        return false;
    }
    double now = sl_now();
    if (e->session.cancel_seen == 0)
        e->session.cancel_seen = now;
    return now - e->session.cancel_seen > SL_CANCEL_PATIENCE_SECONDS;
}

static void allow_cancel(sl_engine *e, bool at_once) {
    bool (*canceled)(void *user) = at_once ? is_canceled : is_canceled_for_long;
    e->session.cancel_seen = 0;
    e->forward.canceled = canceled;
    e->experts.canceled = canceled;
    e->trunk.canceled = canceled;
    e->rows.canceled = canceled;
    e->experts.user = e->trunk.user = e->rows.user = e;
}

sl_status sl__session_chunk(sl_session *s, const uint32_t *tokens, uint32_t n, bool can_cancel,
                            sl_error *err) {
    sl_engine *e = s->engine;
    allow_cancel(e, can_cancel);
    sl_status st = sl__rows_read(e, tokens, n, e->scratch.x, err);
    if (st)
        return st;
    if (e->snapshots.history)
        memcpy(e->snapshots.history + e->state.n_past, tokens, n * sizeof(*tokens));
    sl_experts_tick(&e->experts, n);
    return sl_forward_chunk(&e->forward, n, err);
}

static sl_status feed(sl_session *s, const uint32_t *tokens, size_t n, bool can_cancel,
                      bool (*progress)(void *user, uint64_t done, uint64_t total), void *user,
                      sl_error *err) {
    sl_engine *e = s->engine;
    sl_status st;
    uint32_t last = 0;
    s->prefill = (sl_prefill_progress){
        .report = progress, .user = user, .total = n, .next = sl_now() + PROGRESS_SECONDS};
    e->forward.passed = progress ? tell_passed : NULL;
    for (size_t done = 0; done < n;) {
        last = (uint32_t)SL_MIN(n - done, e->scratch.chunk);
        s->prefill.done = done;
        s->prefill.chunk = last;
        if ((st = sl__session_chunk(s, tokens + done, last, can_cancel, err)))
            return st;
        done += last;
        sl__engine_publish(e);
        if (progress && !progress(user, done, n))
            return sl_fail(err, SL_ERR_CANCELED, "canceled after %zu of %zu tokens", done, n);
        if (done < n && (st = look_at_limit(e, err)))
            return st;
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
    // A single token of an answer is always finished: a cancel then leaves a session that can go on.
    bool answer = n == 1 && e->state.n_past;
    sl_status st = sl__session_check(s, tokens, n, err);
    if (st || n == 0)
        return st;
    double begin = sl_now();
    uint64_t entered = sl__engine_enter();
    st = feed(s, tokens, n, !answer, progress, user, err);
    s->prefill = (sl_prefill_progress){0};
    e->forward.passed = NULL;
    sl__engine_leave(entered);
    *(answer ? &e->decode_seconds : &e->prefill_seconds) += sl_now() - begin;
    *(answer ? &e->tokens_decoded : &e->tokens_prefilled) += n;
    if (st)
        sl__session_reset(s);
    else
        remember(s, tokens, n);
    sl__engine_publish(e);
    return st;
}
