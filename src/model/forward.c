/* The layout of scratch, and the walk through the layers. */
#include "model/forward.h"

#include <string.h>

#include "base/clock.h"
#include "model/layers.h"

/* ---- layouts: one walk gives the size (block == NULL) and the pointers ------------------------- */

typedef struct cursor {
    uint8_t *block;
    uint64_t at;
} cursor;

static void *take(cursor *c, uint64_t count, uint64_t size) {
    void *p = c->block ? c->block + c->at : NULL;
    c->at += SL_ALIGN_UP(count * size, 64);
    return p;
}

static float *take_floats(cursor *c, uint64_t count) {
    return take(c, count, sizeof(float));
}
static uint32_t *take_u32(cursor *c, uint64_t count) {
    return take(c, count, sizeof(uint32_t));
}

static sl_layer_scratch most(sl_layer_scratch x, sl_layer_scratch y) {
    return (sl_layer_scratch){SL_MAX(x.a, y.a), SL_MAX(x.b, y.b), SL_MAX(x.c, y.c),
                              SL_MAX(x.d, y.d), SL_MAX(x.e, y.e)};
}

typedef sl_status (*mixer_fn)(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
static const struct {
    mixer_fn run;
    sl_layer_scratch (*scratch)(const sl_model *m, uint32_t chunk);
} mixers[SL_MIXER_COUNT] = {
    [SL_MIXER_ATTENTION] = {sl_layer_attention, sl_layer_attention_scratch},
    [SL_MIXER_MLA] = {sl_layer_mla, sl_layer_mla_scratch},
    [SL_MIXER_DELTA] = {sl_layer_delta, sl_layer_delta_scratch},
    [SL_MIXER_CONV] = {sl_layer_conv, sl_layer_conv_scratch},
};

// The widest vector that enters a product.
static uint32_t inputs_max(const sl_model *m) {
    uint32_t n = SL_MAX(m->d_model, sl_model_d_inner(m));
    n = SL_MAX(n, m->attn.n_heads * SL_MAX(m->attn.d_head, m->mla.d_v));
    return SL_MAX(SL_MAX(n, m->mla.d_q_latent), m->delta.n_v_heads * m->delta.d_v);
}

static uint64_t scratch_layout(sl_scratch *s, const sl_model *m, uint32_t chunk, void *block) {
    cursor c = {block, 0};
    sl_layer_scratch own = sl_layer_moe_scratch(m, chunk);
    for (unsigned i = 0; i < SL_MIXER_COUNT; i++)
        if (sl_model_mixer_count(m, (sl_mixer)i))
            own = most(own, mixers[i].scratch(m, chunk));
    uint32_t inputs = inputs_max(m);
    uint64_t n = chunk;
    memset(s, 0, sizeof(*s));
    s->chunk = chunk;
    s->x = take_floats(&c, n * m->d_model);
    s->h = take_floats(&c, n * m->d_model);
    s->cos = take_floats(&c, n * (m->rope.n_rot / 2));
    s->sin = take_floats(&c, n * (m->rope.n_rot / 2));
    // Columns of a chunk, or the inner vectors of one token's experts.
    uint32_t inner = m->moe.d_expert, k = m->moe.top_k;
    s->packed.xp = take_floats(&c, SL_MAX(n * sl_pack_floats(inputs), k * sl_pack_floats(inner)));
    s->packed.lane_sums =
        take_floats(&c, SL_MAX(n * sl_lane_floats(inputs), k * sl_lane_floats(inner)));
    s->packed.group_sums =
        take_floats(&c, SL_MAX(n * sl_group_stride(SL_ALIGN_UP(inputs, SL_BLOCK), 32),
                               k * (uint64_t)sl_group_stride(SL_ALIGN_UP(inner, SL_BLOCK), 32)));
    s->a = take_floats(&c, own.a);
    s->b = take_floats(&c, own.b);
    s->c = take_floats(&c, own.c);
    s->d = take_floats(&c, own.d);
    s->e = take_floats(&c, own.e);
    s->logits = take_floats(&c, m->n_vocab);
    s->picks = take_u32(&c, n * m->moe.top_k);
    s->pick_weights = take_floats(&c, n * m->moe.top_k);
    s->choice = take_floats(&c, m->moe.n_experts);
    s->guess_x = take_floats(&c, m->d_model);
    s->guess_logits = take_floats(&c, m->moe.n_experts);
    s->order = take_u32(&c, n * m->moe.top_k);
    s->order_weights = take_floats(&c, n * m->moe.top_k);
    s->experts = take_u32(&c, m->moe.n_experts);
    s->n_uses = take_u32(&c, m->moe.n_experts);
    s->first_use = take_u32(&c, m->moe.n_experts);
    return c.at;
}

uint64_t sl_scratch_bytes(const sl_model *model, uint32_t chunk) {
    sl_scratch s;
    return scratch_layout(&s, model, chunk, NULL);
}

void sl_scratch_bind(sl_scratch *scratch, const sl_model *model, uint32_t chunk, void *block) {
    (void)scratch_layout(scratch, model, chunk, block);
}

/* ---- the walk --------------------------------------------------------------------------------- */

/* Angles position * inv_freq in f32, as the reference implementations take them. */
static void rotary_angles(const sl_model *m, sl_scratch *s, uint32_t first, uint32_t n) {
    uint32_t half = m->rope.n_rot / 2;
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < half; i++) {
            float sin, cos;
            sl_sincosf((float)(first + t) * m->rope.inv_freq[i], &sin, &cos);
            s->cos[(size_t)t * half + i] = cos * m->rope.cos_sin_scale;
            s->sin[(size_t)t * half + i] = sin * m->rope.cos_sin_scale;
        }
    }
}

sl_status sl_forward_chunk(sl_forward *f, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    const sl_backend_ops *ops = f->backend->ops;
    sl_status st;
    rotary_angles(m, s, f->state->n_past, n);
    if (f->hidden)
        f->hidden(f->user, 0, s->x, n);
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        const sl_weight *const *w = f->weights->layers[layer].role;
        if (f->canceled && f->canceled(f->user))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        double begin = sl_now();
        if (n == 1 && f->experts->guess_width)
            sl_guess_experts(f, layer, s->x);
        ops->norm(f->backend, s->h, s->x, sl_vector(w[SL_ROLE_NORM_MIXER]), n, m->d_model,
                  m->norm_eps);
        if ((st = mixers[m->mixer[layer]].run(f, layer, n, err)))
            return st;
        ops->norm(f->backend, s->h, s->x, sl_vector(w[SL_ROLE_NORM_FFN]), n, m->d_model,
                  m->norm_eps);
        f->times->mixer += sl_now() - begin;
        st = m->ffn[layer] == SL_FFN_DENSE ? sl_layer_dense(f, layer, n, err)
                                           : sl_layer_moe(f, layer, n, err);
        if (st)
            return st;
        if (f->hidden)
            f->hidden(f->user, layer + 1, s->x, n);
        if (f->passed && layer + 1 < m->n_layers)
            f->passed(f->user, layer + 1);
    }
    f->state->n_past += n;
    return SL_OK;
}

sl_status sl_forward_logits(sl_forward *f, uint32_t t, sl_error *err) {
    const sl_model *m = f->model;
    sl_scratch *s = f->scratch;
    double begin = sl_now();
    f->backend->ops->norm(f->backend, s->h, s->x + (size_t)t * m->d_model,
                          sl_vector(f->weights->norm_final), 1, m->d_model, m->norm_eps);
    sl_pack(f, s->h, 1, m->d_model);
    sl_status st = sl_project(f, &(sl_projection){f->weights->head, NULL, s->logits}, 1, err);
    f->times->head += sl_now() - begin;
    return st;
}
