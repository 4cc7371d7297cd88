/* Experts of one token. What is in memory is computed while the rest is read: the shared expert first, then
 * experts in batches as they come. Outputs are kept apart and added in ascending id at the end.
 *
 * Before the layer waits for a read, the experts of the next layer are guessed from the state as far as it is
 * known, and once more when it is complete (sl_guess_experts() at the start of a layer): the residual stream
 * changes little from layer to layer, so the next router says most of its picks already. */
#include <string.h>

#include "model/layers.h"

/* x' = x + what is computed so far, into scratch->guess_x. done: one per needed expert. */
static void partial_state(sl_forward *f, const uint8_t *done, uint32_t n_needed,
                          const float *gates) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    sl_backend *be = f->backend;
    memcpy(s->guess_x, s->x, m->d_model * sizeof(float));
    for (uint32_t i = 0; i < n_needed; i++)
        if (done[i])
            be->ops->scatter_add(be, s->guess_x, s->d + (size_t)i * m->d_model,
                                 s->order_weights + i, NULL, 1, m->d_model);
    if (m->moe.d_shared)
        sl_add_shared_expert(f, 1, s->guess_x, s->d + (size_t)m->moe.top_k * m->d_model, gates);
}

static void compute(sl_forward *f, const sl_expert_view *views, uint32_t n) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    sl_expert_weights w[SL_TOP_K_MAX];
    float *out[SL_TOP_K_MAX];
    for (uint32_t i = 0; i < n; i++) {
        w[i] = views[i].w;
        out[i] = s->d + (size_t)views[i].index * m->d_model;
    }
    const sl_expert_batch batch = {
        .n = n,
        .experts = w,
        .out = out,
        .gate = s->b,
        .up = s->c,
        .clamped = m->moe.activation == SL_ACTIVATION_SWIGLU_CLAMPED,
        .limit = m->moe.swiglu_limit,
        .alpha = m->moe.swiglu_alpha,
    };
    sl_pack(f, s->h, 1, m->d_model);
    f->backend->ops->experts(f->backend, &s->packed, &batch);
}

// All needed experts into scratch->d.
static sl_status routed(sl_forward *f, uint32_t layer, uint32_t n_needed, const float *gates,
                        sl_error *err) {
    sl_expert_source *source = f->experts;
    sl_expert_view views[SL_TOP_K_MAX];
    uint8_t done[SL_TOP_K_MAX] = {0};
    bool guessed = false;
    for (uint32_t n_done = 0; n_done < n_needed;) {
        uint32_t n;
        sl_status st = source->take(source, views, SL_TOP_K_MAX, guessed, &n, err);
        if (st)
            return st;
        if (n == 0) { // what is left has to be waited for
            guessed = true;
            if (source->guess_width) {
                partial_state(f, done, n_needed, gates);
                sl_guess_experts(f, layer + 1, f->scratch->guess_x);
            }
            continue;
        }
        compute(f, views, n);
        for (uint32_t i = 0; i < n; i++) {
            done[views[i].index] = 1;
            source->release(source, &views[i]);
        }
        n_done += n;
    }
    return SL_OK;
}

sl_status sl_moe_token(sl_forward *f, uint32_t layer, uint32_t n_needed, sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    float *shared = s->d + (size_t)m->moe.top_k * m->d_model, *gates = s->e + m->d_model;
    sl_status st = SL_OK;
    f->experts->begin(f->experts, layer, s->experts, s->n_uses, n_needed, false);
    if (m->moe.d_shared)
        st = sl_shared_expert(f, layer, 1, shared, gates, err);
    if (st == SL_OK)
        st = routed(f, layer, n_needed, gates, err);
    f->experts->end(f->experts);
    if (st)
        return st;
    memset(s->e, 0, m->d_model * sizeof(float));
    for (uint32_t i = 0; i < n_needed; i++)
        f->backend->ops->scatter_add(f->backend, s->e, s->d + (size_t)i * m->d_model,
                                     s->order_weights + i, NULL, 1, m->d_model);
    if (m->moe.d_shared)
        sl_add_shared_expert(f, 1, s->e, shared, gates);
    return SL_OK;
}

void sl_guess_experts(sl_forward *f, uint32_t layer, const float *x) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    while (layer < m->n_layers && m->ffn[layer] != SL_FFN_MOE)
        layer++;
    if (layer >= m->n_layers)
        return;
    const sl_weight *const *w = f->weights->layers[layer].role;
    const sl_weight *router = w[SL_ROLE_ROUTER];
    if (!router->block) // it streams: asking it would cost reads
        return;
    uint32_t picks[SL_TOP_K_MAX];
    // Beyond the first few that it will not take, the router says little.
    uint32_t n = SL_MIN(m->moe.top_k + m->moe.top_k / 4, SL_TOP_K_MAX);
    n = SL_MIN(n, m->moe.n_experts);
    f->backend->ops->norm(f->backend, s->guess_x, x, sl_vector(w[SL_ROLE_NORM_FFN]), 1, m->d_model,
                          m->norm_eps);
    sl_pack(f, s->guess_x, 1, m->d_model);
    sl_product product = {.y = s->guess_logits, .y_stride = m->moe.n_experts};
    sl_matrix_bind(&product.w, &router->shape, &router->layout, router->block);
    f->backend->ops->product(f->backend, &s->packed, &product, 1);
    if (w[SL_ROLE_ROUTER_BIAS])
        f->backend->ops->add(f->backend, s->guess_logits, sl_vector(w[SL_ROLE_ROUTER_BIAS]),
                             m->moe.n_experts);
    sl_choose(m, f->backend, s->guess_logits, sl_vector(w[SL_ROLE_ROUTER_SELECTION_BIAS]),
              s->choice, n, picks);
    f->experts->guess(f->experts, layer, picks, n);
}
