/* Layer kind: grouped-query softmax attention, with optional output gate, query/key norms, biases, sliding
 * window and sinks.
 *
 *   q, k, v = projections of h;  q, k normed and rotated;  softmax over the positions that are visible;
 *   o * sigmoid(gate);  output projection, added to the residual stream.
 *
 * Scratch: a = q [n][n_heads * d * (gated ? 2 : 1)], b = k, c = v [n][n_kv_heads * d],
 *          d = attention output [n][n_heads * d], e = projected output [n][d_model]. */
#include "model/layers.h"

sl_layer_scratch sl_layer_attention_scratch(const sl_model *m, uint32_t chunk) {
    uint64_t n = chunk, q = (uint64_t)m->attn.n_heads * m->attn.d_head;
    uint64_t kv = (uint64_t)m->attn.n_kv_heads * m->attn.d_head;
    return (sl_layer_scratch){n * q * (m->attn.gated ? 2 : 1), n * kv, n * kv, n * q,
                              n * m->d_model};
}

sl_status sl_layer_attention(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    sl_status st;

    sl_pack(f, s->h, n, m->d_model);
    const sl_projection in[] = {{w[SL_ROLE_ATTN_Q], w[SL_ROLE_ATTN_Q_BIAS], s->a},
                                {w[SL_ROLE_ATTN_K], w[SL_ROLE_ATTN_K_BIAS], s->b},
                                {w[SL_ROLE_ATTN_V], w[SL_ROLE_ATTN_V_BIAS], s->c}};
    if ((st = sl_project(f, in, SL_COUNT(in), err)))
        return st;

    uint32_t window = m->windowed[layer] ? m->attn.window : 0;
    uint32_t rows = sl_window_ring(window, f->state->n_ctx);
    float *cache = sl_state_kv(f->state, m, layer);
    const sl_attention_step step = {
        .n_tokens = n,
        .first_position = f->state->n_past,
        .n_heads = m->attn.n_heads,
        .n_kv_heads = m->attn.n_kv_heads,
        .d_head = m->attn.d_head,
        .n_rot = m->rope.n_rot,
        .scale = m->attn.scale,
        .norm_eps = m->norm_eps,
        .gated = m->attn.gated,
        .q_norm = sl_vector(w[SL_ROLE_ATTN_Q_NORM]),
        .k_norm = sl_vector(w[SL_ROLE_ATTN_K_NORM]),
        .norm_all_heads = m->attn.qk_norm == SL_QK_NORM_ALL,
        .clip = m->attn.clip,
        .rope_pairs = m->rope.pairs,
        .sinks = sl_vector(w[SL_ROLE_ATTN_SINKS]),
        .window = window,
        .cos = s->cos,
        .sin = s->sin,
        .q = s->a,
        .k = s->b,
        .v = s->c,
        .k_cache = cache,
        .v_cache = cache + (size_t)m->attn.n_kv_heads * rows * m->attn.d_head,
        .n_ctx = f->state->n_ctx,
        .ring = rows,
        .out = s->d,
    };
    f->backend->ops->attention(f->backend, &step);

    sl_pack(f, s->d, n, m->attn.n_heads * m->attn.d_head);
    if ((st = sl_project(f, &(sl_projection){w[SL_ROLE_ATTN_O], w[SL_ROLE_ATTN_O_BIAS], s->e}, 1,
                         err)))
        return st;
    f->backend->ops->add(f->backend, s->x, s->e, (size_t)n * m->d_model);
    return SL_OK;
}
