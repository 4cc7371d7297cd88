/* Routes of the whole forward pass: the engine runs, and what it asks its experts for is looked at. */
#include <string.h>

#include "engine/engine.h"
#include "model/layers.h"
#include "synth.h"

/* Stands between the layers and the engine's experts. The engine's thread only. */
typedef struct watch {
    sl_expert_source base;
    sl_expert_source *inner;
    sl_engine *engine;
    synth_figures *figures;
    float *logits, *choice, *weights; /* [chunk][n_experts], [n_experts], [top_k] */
    uint32_t *guesses;                /* [chunk][top_k], for layer `guessed` */
    uint32_t guessed;                 /* 0: none */
    sl_status status;
    sl_error error;
} watch;

// What the next layer's router says of this layer's state.
static void guess(watch *w, uint32_t layer, uint32_t n) {
    sl_engine *e = w->engine;
    const sl_model *m = &e->store.model;
    w->guessed = 0;
    if (layer + 1 >= m->n_layers || m->ffn[layer + 1] != SL_FFN_MOE || w->status)
        return;
    const sl_weight *const *next = e->weights.layers[layer + 1].role;
    const sl_projection router = {next[SL_ROLE_ROUTER], next[SL_ROLE_ROUTER_BIAS], w->logits};
    sl_pack(&e->forward, e->scratch.h, n, m->d_model);
    if ((w->status = sl_project(&e->forward, &router, 1, &w->error)))
        return;
    for (uint32_t t = 0; t < n; t++)
        sl_route(m, &e->backend.base, w->logits + (size_t)t * m->moe.n_experts,
                 sl_vector(next[SL_ROLE_ROUTER_SELECTION_BIAS]), w->choice,
                 w->guesses + (size_t)t * m->moe.top_k, w->weights);
    w->guessed = layer + 1;
}

static void watch_stream(void *user, uint32_t layer, const float *x, uint32_t n_tokens) {
    const sl_engine *e = user; // what forward.user is
    const watch *w = e->capture;
    (void)layer;
    synth_figures_stream(w->figures, x, n_tokens, e->store.model.d_model);
}

static void watch_begin(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                        const uint32_t *n_uses, uint32_t n_needed, bool in_order) {
    watch *w = (watch *)source;
    const sl_model *m = &w->engine->store.model;
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_needed; i++)
        n += n_uses[i];
    n /= m->moe.top_k;
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t *picks = w->engine->scratch.picks + (size_t)t * m->moe.top_k;
        synth_figures_picks(w->figures, layer, picks);
        if (layer && w->guessed == layer)
            synth_figures_guess(w->figures, layer, w->guesses + (size_t)t * m->moe.top_k, picks);
    }
    guess(w, layer, n);
    w->inner->begin(w->inner, layer, experts, n_uses, n_needed, in_order);
}

static sl_status watch_take(sl_expert_source *source, sl_expert_view *out, uint32_t max, bool wait,
                            uint32_t *n, sl_error *err) {
    watch *w = (watch *)source;
    return w->inner->take(w->inner, out, max, wait, n, err);
}

static void watch_release(sl_expert_source *source, const sl_expert_view *view) {
    watch *w = (watch *)source;
    w->inner->release(w->inner, view);
}

static void watch_end(sl_expert_source *source) {
    watch *w = (watch *)source;
    w->inner->end(w->inner);
}

// Not asked for, with a guess_width of 0.
static void watch_guess(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                        uint32_t n) {
    watch *w = (watch *)source;
    w->inner->guess(w->inner, layer, experts, n);
}

static sl_status run(watch *w, uint64_t seed, uint32_t n_topics, uint32_t n_tokens, sl_error *err) {
    sl_engine *e = w->engine;
    const sl_model *m = &e->store.model;
    uint32_t *tokens = sl_mem_alloc((size_t)n_tokens * sizeof(*tokens));
    w->logits = sl_mem_alloc((size_t)e->scratch.chunk * m->moe.n_experts * sizeof(float));
    w->choice = sl_mem_alloc(m->moe.n_experts * sizeof(float));
    w->weights = sl_mem_alloc(m->moe.top_k * sizeof(float));
    w->guesses = sl_mem_alloc((size_t)e->scratch.chunk * m->moe.top_k * sizeof(uint32_t));
    sl_status st = SL_OK;
    if (!tokens || !w->logits || !w->choice || !w->weights || !w->guesses)
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for %u tokens", n_tokens);
    if (st == SL_OK) {
        synth_stream(m, seed, n_topics, tokens, n_tokens);
        w->inner = e->forward.experts;
        e->forward.experts = &w->base;
        e->forward.hidden = watch_stream;
        e->capture = w;
        st = sl__session_feed(&e->session, tokens, n_tokens, NULL, NULL, err);
        e->forward.experts = w->inner;
        e->forward.hidden = NULL;
        e->capture = NULL;
    }
    if (st == SL_OK && (st = w->status) != SL_OK)
        *err = w->error;
    sl_mem_free(tokens);
    sl_mem_free(w->logits);
    sl_mem_free(w->choice);
    sl_mem_free(w->weights);
    sl_mem_free(w->guesses);
    return st;
}

sl_status synth_check_full(const char *store, uint64_t seed, uint32_t n_topics, uint32_t n_tokens,
                           uint64_t budget_bytes, uint32_t n_threads, synth_figures **out,
                           sl_error *err) {
    const sl_engine_setup setup = {.budget_bytes = budget_bytes,
                                   .n_ctx = n_tokens,
                                   .n_threads = n_threads,
                                   .cpu = sl_cpu_level_best()};
    watch w = {.base = {.begin = watch_begin,
                        .take = watch_take,
                        .release = watch_release,
                        .end = watch_end,
                        .guess = watch_guess}};
    *out = NULL;
    sl_status st = sl__engine_open(store, &setup, &w.engine, err);
    if (st)
        return st;
    if ((st = synth_figures_init(&w.engine->store.model, &w.figures, err)) == SL_OK)
        st = run(&w, seed, n_topics, n_tokens, err);
    if (st == SL_OK)
        *out = w.figures;
    else
        synth_figures_free(w.figures);
    sl__engine_close(w.engine);
    return st;
}
