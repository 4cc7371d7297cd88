/* Traces: recording what a forced sequence asks for, and replaying it. */
#include <string.h>

#include "api/internal.h"
#include "engine/replay.h"
#include "model/layers.h"

/* ---- recording ----------------------------------------------------------------------------------- */

/* Stands between the layers and the engine's source: sees what is asked for and passes it on. */
typedef struct recorder {
    sl_expert_source base; /* first */
    sl_expert_source *inner;
    sl_engine *engine;
    sl_trace_shape shape;
    uint16_t index[SL_LAYERS_MAX]; /* of a layer among those with experts */
    uint16_t *rows;                /* [chunk] tokens, heap */
    uint16_t *catch;               /* where a guess goes; NULL: it is the engine's */
} recorder;

static uint16_t *row_at(recorder *r, uint32_t token, uint32_t layer) {
    const sl_trace_shape *s = &r->shape;
    return r->rows + ((size_t)token * s->n_moe + r->index[layer]) * (s->top_k + s->n_guess);
}

/* What this layer's state says about the next one, token by token. The packed activations are put back. */
static void guess_next(recorder *r, uint32_t layer, uint32_t n_tokens) {
    sl_forward *f = &r->engine->forward;
    const sl_model *m = f->model;
    uint32_t next = layer + 1;
    while (next < m->n_layers && m->ffn[next] != SL_FFN_MOE)
        next++;
    if (next == m->n_layers)
        return;
    for (uint32_t t = 0; t < n_tokens; t++) {
        r->catch = row_at(r, t, next) + r->shape.top_k;
        sl_guess_experts(f, next, f->scratch->x + (size_t)t * m->d_model);
    }
    r->catch = NULL;
    sl_pack(f, f->scratch->h, n_tokens, m->d_model);
}

static void begin(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                  const uint32_t *n_uses, uint32_t n, bool in_order) {
    recorder *r = (recorder *)source;
    const sl_scratch *s = &r->engine->scratch;
    uint32_t n_picks = 0, top_k = r->shape.top_k;
    for (uint32_t i = 0; i < n; i++)
        n_picks += n_uses[i];
    for (uint32_t i = 0; i < n_picks; i++)
        row_at(r, i / top_k, layer)[i % top_k] = (uint16_t)s->picks[i];
    guess_next(r, layer, n_picks / top_k);
    r->inner->begin(r->inner, layer, experts, n_uses, n, in_order);
    r->base.guess_width = r->inner->guess_width;
}

static sl_status take(sl_expert_source *source, sl_expert_view *out, uint32_t max, bool wait,
                      uint32_t *n, sl_error *err) {
    recorder *r = (recorder *)source;
    return r->inner->take(r->inner, out, max, wait, n, err);
}

static void release(sl_expert_source *source, const sl_expert_view *view) {
    recorder *r = (recorder *)source;
    r->inner->release(r->inner, view);
}

static void end(sl_expert_source *source) {
    recorder *r = (recorder *)source;
    r->inner->end(r->inner);
}

static void guess(sl_expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t n) {
    recorder *r = (recorder *)source;
    for (uint32_t i = 0; r->catch && i < SL_MIN(n, r->shape.n_guess); i++)
        r->catch[i] = (uint16_t)experts[i];
    if (!r->catch)
        r->inner->guess(r->inner, layer, experts, n);
}

static sl_status record(recorder *r, sl_trace_writer *w, sl_session *s, const uint32_t *tokens,
                        size_t n, const sl_progress *progress, sl_error *err) {
    sl_engine *e = r->engine;
    uint32_t numbers = sl_trace_row_numbers(&r->shape);
    sl_status st = SL_OK;
    for (size_t done = 0; done < n && !st;) {
        uint32_t count = (uint32_t)SL_MIN(n - done, e->scratch.chunk);
        memset(r->rows, 0xff, (size_t)count * numbers * sizeof(uint16_t)); // SL_TRACE_NONE
        uint64_t entered = sl__engine_enter();
        st = sl__session_chunk(s, tokens + done, count, true, err);
        sl__engine_leave(entered);
        for (uint32_t t = 0; t < count && !st; t++)
            st = sl_trace_add(w, r->rows + (size_t)t * numbers, err);
        done += count;
        sl__engine_publish(e);
        if (!st && progress && progress->report &&
            !progress->report(progress->user, SL_PHASE_PREFILL, done, n))
            st = sl_fail(err, SL_ERR_CANCELED, "canceled after %zu of %zu tokens", done, n);
    }
    return st;
}

static void fill_shape(const sl_engine *e, recorder *r, uint16_t *layers) {
    const sl_model *m = &e->store.model;
    const sl_plan_result *p = &e->plan;
    uint64_t slots = (p->hot_slots + p->ring_slots) * e->store.expert.stride;
    r->shape = (sl_trace_shape){
        .n_layers = m->n_layers,
        .n_experts = m->moe.n_experts,
        .top_k = m->moe.top_k,
        .n_guess = SL_MIN(SL_MIN(2 * m->moe.top_k, SL_TOP_K_MAX), m->moe.n_experts),
        .expert_bytes = e->store.expert.stride,
        .fixed_bytes = p->total_bytes - slots,
    };
    for (uint32_t i = 0; i < m->n_layers; i++) {
        if (m->ffn[i] != SL_FFN_MOE)
            continue;
        r->index[i] = (uint16_t)r->shape.n_moe;
        layers[r->shape.n_moe++] = (uint16_t)i;
    }
}

sl_status sl_trace_record(sl_session *s, const uint32_t *tokens, size_t n, const char *path,
                          const sl_progress *progress, sl_error *err) {
    sl_engine *e = s->engine;
    uint16_t layers[SL_LAYERS_MAX];
    recorder r = {
        .base = {0, begin, take, release, end, guess}, .inner = e->forward.experts, .engine = e};
    sl_trace_writer w = {.out = SL_OUTPUT_CLOSED};
    fill_shape(e, &r, layers);
    sl__session_reset(s);
    sl_status st = sl__session_check(s, tokens, n, err);
    if (!st && n == 0)
        st = sl_fail(err, SL_ERR_ARGUMENT, "no tokens were given");
    if (!st && r.shape.n_moe == 0)
        st = sl_fail(err, SL_ERR_UNSUPPORTED, "this model has no experts to trace");
    if (!st && !(r.rows = sl_mem_calloc((size_t)e->scratch.chunk * sl_trace_row_numbers(&r.shape),
                                        sizeof(uint16_t))))
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for the picks of %u tokens", e->scratch.chunk);
    if (!st && !(st = sl_trace_create(path, &r.shape, layers, &w, err))) {
        e->forward.experts = &r.base;
        st = record(&r, &w, s, tokens, n, progress, err);
        e->forward.experts = r.inner;
        if (!st)
            st = sl_trace_finish(&w, err);
        sl_trace_abandon(&w);
    }
    sl_mem_free(r.rows);
    sl__session_reset(s);
    atomic_store_explicit(&s->cancel, false, memory_order_relaxed);
    return st;
}

/* ---- replaying ----------------------------------------------------------------------------------- */

sl_status sl_trace_open(const char *path, sl_trace **out, sl_trace_info *info, sl_error *err) {
    *out = NULL;
    memset(info, 0, sizeof(*info));
    sl_trace *t = sl_mem_calloc(1, sizeof(*t));
    if (!t)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for a trace");
    sl_status st = sl_trace_read(path, t, err);
    if (st) {
        sl_mem_free(t);
        return st;
    }
    *info = (sl_trace_info){
        .n_tokens = t->n_tokens,
        .n_layers = t->shape.n_moe,
        .n_experts = t->shape.n_experts,
        .n_experts_token = t->shape.top_k,
        .n_guesses = t->shape.n_guess,
        .expert_bytes = t->shape.expert_bytes,
        .fixed_bytes = t->shape.fixed_bytes,
    };
    *out = t;
    return SL_OK;
}

void sl_trace_close(sl_trace *t) {
    if (!t)
        return;
    sl_trace_free(t);
    sl_mem_free(t);
}

sl_status sl_trace_replay(const sl_trace *trace, const sl_replay_setup *setup,
                          sl_replay_counts *out, sl_error *err) {
    static const sl_policy_kind kinds[SL_REPLAY_POLICIES] = {
        [SL_REPLAY_OURS] = SL_POLICY_OURS,
        [SL_REPLAY_LRU] = SL_POLICY_LRU,
        [SL_REPLAY_LFU] = SL_POLICY_LFU,
        [SL_REPLAY_BELADY] = SL_POLICY_BELADY,
    };
    memset(out, 0, sizeof(*out));
    if ((unsigned)setup->policy >= SL_REPLAY_POLICIES)
        return sl_fail(err, SL_ERR_ARGUMENT, "policy %d is none of sl_replay_policy",
                       (int)setup->policy);
    const sl_replay_job job = {
        .policy = kinds[setup->policy],
        .n_slots = setup->n_slots,
        .ring_slots = setup->ring_slots,
        .guess_width = setup->guess_width,
        .warm = setup->warm,
    };
    sl_replay_sums sums;
    sl_status st = sl__replay(trace, &job, &sums, err);
    if (!st)
        *out = (sl_replay_counts){sums.n_tokens, sums.uses,        sums.hits,
                                  sums.demand,   sums.guess_reads, sums.guesses_used};
    return st;
}

double sl_trace_guessed(const sl_trace *trace, uint32_t width) {
    uint64_t n_picks, n_named;
    sl__replay_guesses(trace, width, &n_picks, &n_named);
    return n_picks ? (double)n_named / (double)n_picks : 0;
}
