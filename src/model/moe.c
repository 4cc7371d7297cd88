/* Layer kind: routed experts and a shared expert.
 *
 * Several tokens: each needed expert is asked for once, in ascending id, multiplies the rows of the tokens
 * that picked it and adds them to y at once. One token: see moe_token.c. A token's experts are added in
 * ascending id either way, the shared expert last, so the bits of y do not depend on which way it was.
 *
 * Scratch: a = router logits, then gathered rows [n][d_model], b = gate rows, c = up rows
 *          [max(n, top_k)][d_inner], d = expert outputs [max(n, top_k + 1)][d_model], e = y [n][d_model] and
 *          the shared expert's gates [n]. */
#include <string.h>

#include "base/clock.h"
#include "model/layers.h"

sl_layer_scratch sl_layer_moe_scratch(const sl_model *m, uint32_t chunk) {
    uint64_t n = chunk, inner = SL_MAX(n, m->moe.top_k) * sl_model_d_inner(m);
    return (sl_layer_scratch){n * SL_MAX(m->d_model, m->moe.n_experts), inner, inner,
                              SL_MAX(n, m->moe.top_k + 1) * m->d_model, n * (m->d_model + 1)};
}

/* Group the picks of n tokens by expert: experts ascending, tokens ascending within each.
 * Returns the number of experts needed. */
static uint32_t group_picks(const sl_model *m, sl_scratch *s, uint32_t n) {
    uint32_t n_experts = m->moe.n_experts, n_picks = n * m->moe.top_k, n_needed = 0, at = 0;
    memset(s->n_uses, 0, n_experts * sizeof(*s->n_uses));
    for (uint32_t i = 0; i < n_picks; i++)
        s->n_uses[s->picks[i]]++;
    for (uint32_t e = 0; e < n_experts; e++) {
        s->first_use[e] = at;
        at += s->n_uses[e];
    }
    for (uint32_t i = 0; i < n_picks; i++) {
        uint32_t place = s->first_use[s->picks[i]]++;
        s->order[place] = i / m->moe.top_k;
        s->order_weights[place] = s->pick_weights[i];
    }
    at = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        uint32_t uses = s->n_uses[e];
        if (!uses)
            continue;
        s->experts[n_needed] = e;
        s->first_use[n_needed] = at;
        s->n_uses[n_needed] = uses;
        n_needed++;
        at += uses;
    }
    return n_needed;
}

static void activate(const sl_model *m, sl_backend *be, float *gate, const float *up, size_t n) {
    if (m->moe.activation == SL_ACTIVATION_SWIGLU_CLAMPED)
        be->ops->swiglu_clamped(be, gate, gate, up, n, m->moe.swiglu_limit, m->moe.swiglu_alpha);
    else
        be->ops->silu_mul(be, gate, gate, up, n);
}

/* out [n][d_model] = what an expert makes of the n rows that are packed. */
static void expert(sl_forward *f, const sl_expert_weights *w, uint32_t n, float *out) {
    sl_scratch *s = f->scratch;
    sl_backend *be = f->backend;
    uint32_t inner = w->gate.shape.rows, d_model = w->down.shape.rows;
    const sl_product in[] = {{w->gate, s->b, inner}, {w->up, s->c, inner}};
    be->ops->product(be, &s->packed, in, 2);
    if (w->gate_bias) {
        be->ops->add_rows(be, s->b, w->gate_bias, n, inner);
        be->ops->add_rows(be, s->c, w->up_bias, n, inner);
    }
    activate(f->model, be, s->b, s->c, (size_t)n * inner);
    be->ops->pack(be, &s->packed, s->b, inner, n, inner);
    be->ops->product(be, &s->packed, &(sl_product){w->down, out, d_model}, 1);
    if (w->down_bias)
        be->ops->add_rows(be, out, w->down_bias, n, d_model);
}

// Adds the routed experts of several tokens to y.
static sl_status routed(sl_forward *f, uint32_t layer, uint32_t n_needed, sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    sl_backend *be = f->backend;
    sl_status st = SL_OK;
    f->experts->begin(f->experts, layer, s->experts, s->n_uses, n_needed, true);
    for (uint32_t i = 0; i < n_needed; i++) {
        sl_expert_view v;
        uint32_t got;
        if ((st = f->experts->take(f->experts, &v, 1, true, &got, err)))
            break;
        uint32_t first = s->first_use[v.index], uses = s->n_uses[v.index];
        for (uint32_t j = 0; j < uses; j++)
            memcpy(s->a + (size_t)j * m->d_model, s->h + (size_t)s->order[first + j] * m->d_model,
                   m->d_model * sizeof(float));
        sl_pack(f, s->a, uses, m->d_model);
        expert(f, &v.w, uses, s->d);
        be->ops->scatter_add(be, s->e, s->d, s->order_weights + first, s->order + first, uses,
                             m->d_model);
        f->experts->release(f->experts, &v);
    }
    f->experts->end(f->experts);
    return st;
}

sl_status sl_shared_expert(sl_forward *f, uint32_t layer, uint32_t n, float *out, float *gates,
                           sl_error *err) {
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_status st = sl_feed_forward(
        f, w[SL_ROLE_SHARED_GATE_PROJ], w[SL_ROLE_SHARED_UP_PROJ], w[SL_ROLE_SHARED_DOWN_PROJ],
        (sl_projection){w[SL_ROLE_SHARED_GATE], NULL, gates}, n, out, err);
    if (st == SL_OK && w[SL_ROLE_SHARED_GATE])
        f->backend->ops->sigmoid(f->backend, gates, gates, n);
    return st;
}

void sl_add_shared_expert(sl_forward *f, uint32_t n, float *y, const float *out,
                          const float *gates) {
    const sl_model *m = f->model;
    sl_backend *be = f->backend;
    if (m->moe.shared_gate)
        be->ops->scatter_add(be, y, out, gates, NULL, n, m->d_model);
    else
        be->ops->add(be, y, out, (size_t)n * m->d_model);
}

static sl_status several_tokens(sl_forward *f, uint32_t layer, uint32_t n, uint32_t n_needed,
                                sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    float *gates = s->e + (size_t)n * m->d_model;
    sl_status st;
    memset(s->e, 0, (size_t)n * m->d_model * sizeof(float));
    if ((st = routed(f, layer, n_needed, err)) || m->moe.d_shared == 0)
        return st;
    if ((st = sl_shared_expert(f, layer, n, s->d, gates, err)))
        return st;
    sl_add_shared_expert(f, n, s->e, s->d, gates);
    return SL_OK;
}

sl_status sl_layer_moe(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    sl_status st;
    double begin = sl_now();

    sl_pack(f, s->h, n, m->d_model);
    const sl_projection router = {w[SL_ROLE_ROUTER], w[SL_ROLE_ROUTER_BIAS], s->a};
    if ((st = sl_project(f, &router, 1, err)))
        return st;
    for (uint32_t t = 0; t < n; t++)
        sl_route(m, f->backend, s->a + (size_t)t * m->moe.n_experts,
                 sl_vector(w[SL_ROLE_ROUTER_SELECTION_BIAS]), s->choice,
                 s->picks + (size_t)t * m->moe.top_k, s->pick_weights + (size_t)t * m->moe.top_k);
    uint32_t n_needed = group_picks(m, s, n);
    double routing_end = sl_now();
    f->times->router += routing_end - begin;

    st =
        n == 1 ? sl_moe_token(f, layer, n_needed, err) : several_tokens(f, layer, n, n_needed, err);
    if (st)
        return st;
    f->backend->ops->add(f->backend, s->x, s->e, (size_t)n * m->d_model);
    f->times->experts += sl_now() - routing_end;
    return SL_OK;
}
