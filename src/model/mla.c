/* Layer kind: multi-head latent attention (DeepSeek-V2, 2024), in its absorbed form: the cache holds one latent
 * and one rotated key of a token for all heads.
 *
 *   q = q_b norm(q_a h), or q h;  latent, rope key = kv_a h;  per head: query = [embed_q q_nope | q_rope];
 *   softmax over query . [latent | rope key];  m = weighted sum of latents;  unembed_out m per head;
 *   output projection, added to the residual stream.
 *
 * Scratch: a = q [n][n_heads * (d_nope + d_rope)], then heads' values [n][n_heads * d_v];
 *          b = kv [n][d_latent + d_rope], then projected output [n][d_model]; c = q_a h [n][d_q_latent];
 *          d = query [n][n_heads * (d_latent + d_rope)]; e = latent sums [n][n_heads * d_latent]. */
#include "model/layers.h"

sl_layer_scratch sl_layer_mla_scratch(const sl_model *m, uint32_t chunk) {
    uint64_t n = chunk, heads = n * m->attn.n_heads, row = m->mla.d_latent + m->mla.d_rope;
    return (sl_layer_scratch){heads * SL_MAX(m->mla.d_nope + m->mla.d_rope, m->mla.d_v),
                              n * SL_MAX(row, m->d_model), n * m->mla.d_q_latent, heads * row,
                              heads * m->mla.d_latent};
}

// Queries and latents of n tokens: a and b.
static sl_status project_in(sl_forward *f, const sl_weight *const *w, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    uint32_t d_q = m->mla.d_q_latent;
    const sl_projection kv = {w[SL_ROLE_MLA_KV_A], w[SL_ROLE_MLA_KV_A_BIAS], s->b},
                        q_a = {w[SL_ROLE_MLA_Q_A], w[SL_ROLE_MLA_Q_A_BIAS], s->c},
                        q = {w[SL_ROLE_MLA_Q], NULL, s->a};
    sl_status st;
    sl_pack(f, s->h, n, m->d_model);
    if ((st = sl_project(f, (const sl_projection[]){kv, d_q ? q_a : q}, 2, err)) || !d_q)
        return st;
    f->backend->ops->norm(f->backend, s->c, s->c, sl_vector(w[SL_ROLE_MLA_Q_A_NORM]), n, d_q,
                          m->mla.norm_eps);
    sl_pack(f, s->c, n, d_q);
    return sl_project(f, &q, 1, err);
}

sl_status sl_layer_mla(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    uint32_t n_heads = m->attn.n_heads, d_q = m->mla.d_nope + m->mla.d_rope,
             row = m->mla.d_latent + m->mla.d_rope;
    sl_status st = project_in(f, w, n, err);
    if (st)
        return st;
    const sl_head_product embed = {
        .rows_per_head = m->mla.d_latent,
        .n_tokens = n,
        .x = s->a,
        .x_token_stride = (size_t)n_heads * d_q,
        .x_head_stride = d_q,
        .y = s->d,
        .y_token_stride = (size_t)n_heads * row,
        .y_head_stride = row,
    };
    if ((st = sl_project_heads(f, w[SL_ROLE_MLA_EMBED_Q], &embed, err)))
        return st;
    const sl_mla_step step = {
        .n_tokens = n,
        .first_position = f->state->n_past,
        .n_heads = n_heads,
        .d_latent = m->mla.d_latent,
        .d_nope = m->mla.d_nope,
        .d_rope = m->mla.d_rope,
        .n_ctx = f->state->n_ctx,
        .scale = m->attn.scale,
        .norm_eps = m->mla.norm_eps,
        .rope_half = !m->rope.pairs,
        .latent_norm = sl_vector(w[SL_ROLE_MLA_KV_A_NORM]),
        .cos = s->cos,
        .sin = s->sin,
        .q = s->a,
        .kv = s->b,
        .query = s->d,
        .cache = sl_state_kv(f->state, m, layer),
        .out = s->e,
    };
    f->backend->ops->mla(f->backend, &step);
    const sl_head_product unembed = {
        .rows_per_head = m->mla.d_v,
        .n_tokens = n,
        .x = s->e,
        .x_token_stride = (size_t)n_heads * m->mla.d_latent,
        .x_head_stride = m->mla.d_latent,
        .y = s->a,
        .y_token_stride = (size_t)n_heads * m->mla.d_v,
        .y_head_stride = m->mla.d_v,
    };
    if ((st = sl_project_heads(f, w[SL_ROLE_MLA_UNEMBED], &unembed, err)))
        return st;
    sl_pack(f, s->a, n, n_heads * m->mla.d_v);
    const sl_projection out = {w[SL_ROLE_MLA_O], w[SL_ROLE_MLA_O_BIAS], s->b};
    if ((st = sl_project(f, &out, 1, err)))
        return st;
    f->backend->ops->add(f->backend, s->x, s->b, (size_t)n * m->d_model);
    return SL_OK;
}
