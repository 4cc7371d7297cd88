/* Layouts of state and scratch, and the walk through the layers. */
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

uint64_t sl_kv_bytes(const sl_model *m, uint32_t n_ctx) {
    uint64_t side = (uint64_t)sl_model_mixer_count(m, SL_MIXER_ATTENTION) * m->attn.n_kv_heads *
                    n_ctx * m->attn.d_head * sizeof(float);
    return 2 * SL_ALIGN_UP(side, 64);
}

static uint64_t tail_floats(const sl_model *m) {
    return (uint64_t)sl_model_mixer_count(m, SL_MIXER_DELTA) * (m->delta.conv_width - 1) *
           sl_model_conv_channels(m);
}

static uint64_t recurrent_floats(const sl_model *m) {
    return (uint64_t)sl_model_mixer_count(m, SL_MIXER_DELTA) * m->delta.n_v_heads *
           sl_delta_state_floats(m->delta.d_k, m->delta.d_v);
}

uint64_t sl_recurrent_bytes(const sl_model *m) {
    if (!sl_model_mixer_count(m, SL_MIXER_DELTA))
        return 0;
    return SL_ALIGN_UP(tail_floats(m) * sizeof(float), 64) +
           SL_ALIGN_UP(recurrent_floats(m) * sizeof(float), 64);
}

void sl_state_bind(sl_state *state, const sl_model *m, uint32_t n_ctx, void *kv, void *recurrent) {
    memset(state, 0, sizeof(*state));
    state->n_ctx = n_ctx;
    state->k = kv;
    state->v = (float *)((uint8_t *)kv + sl_kv_bytes(m, n_ctx) / 2);
    if (sl_model_mixer_count(m, SL_MIXER_DELTA)) {
        state->tails = recurrent;
        state->recurrent =
            (float *)((uint8_t *)recurrent + SL_ALIGN_UP(tail_floats(m) * sizeof(float), 64));
    }
}

void sl_state_reset(sl_state *state, const sl_model *m) {
    state->n_past = 0;
    if (state->tails) {
        memset(state->tails, 0, tail_floats(m) * sizeof(float));
        memset(state->recurrent, 0, recurrent_floats(m) * sizeof(float));
    }
}

static uint64_t max3(uint64_t a, uint64_t b, uint64_t c) {
    return SL_MAX(a, SL_MAX(b, c));
}

static uint64_t scratch_layout(sl_scratch *s, const sl_model *m, uint32_t chunk, void *block) {
    cursor c = {block, 0};
    sl_layer_scratch attention = sl_layer_attention_scratch(m, chunk),
                     delta = sl_layer_delta_scratch(m, chunk), moe = sl_layer_moe_scratch(m, chunk);
    uint32_t inputs = SL_MAX(m->d_model, m->attn.n_heads * m->attn.d_head);
    inputs = SL_MAX(inputs, m->delta.n_v_heads * m->delta.d_v);
    inputs = SL_MAX(inputs, SL_MAX(m->moe.d_expert, m->moe.d_shared));
    uint64_t n = chunk;
    memset(s, 0, sizeof(*s));
    s->chunk = chunk;
    s->x = take_floats(&c, n * m->d_model);
    s->h = take_floats(&c, n * m->d_model);
    s->cos = take_floats(&c, n * (m->rope.n_rot / 2));
    s->sin = take_floats(&c, n * (m->rope.n_rot / 2));
    s->packed.xp = take_floats(&c, n * sl_pack_floats(inputs));
    s->packed.lane_sums = take_floats(&c, n * sl_lane_floats(inputs));
    s->packed.group_sums = take_floats(&c, n * sl_group_stride(SL_ALIGN_UP(inputs, SL_BLOCK), 32));
    s->a = take_floats(&c, max3(attention.a, delta.a, moe.a));
    s->b = take_floats(&c, max3(attention.b, delta.b, moe.b));
    s->c = take_floats(&c, max3(attention.c, delta.c, moe.c));
    s->d = take_floats(&c, max3(attention.d, delta.d, moe.d));
    s->e = take_floats(&c, max3(attention.e, delta.e, moe.e));
    s->logits = take_floats(&c, m->n_vocab);
    s->picks = take_u32(&c, n * m->moe.top_k);
    s->pick_weights = take_floats(&c, n * m->moe.top_k);
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

typedef sl_status (*mixer_fn)(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
static const mixer_fn mixers[SL_MIXER_COUNT] = {
    [SL_MIXER_ATTENTION] = sl_layer_attention,
    [SL_MIXER_DELTA] = sl_layer_delta,
};

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
        ops->norm(f->backend, s->h, s->x, sl_vector(w[SL_ROLE_NORM_MIXER]), n, m->d_model,
                  m->norm_eps);
        if ((st = mixers[m->mixer[layer]](f, layer, n, err)))
            return st;
        ops->norm(f->backend, s->h, s->x, sl_vector(w[SL_ROLE_NORM_FFN]), n, m->d_model,
                  m->norm_eps);
        f->times->mixer += sl_now() - begin;
        if ((st = sl_layer_moe(f, layer, n, err)))
            return st;
        if (f->hidden)
            f->hidden(f->user, layer + 1, s->x, n);
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
    sl_status st = sl_project(f, &(sl_projection){f->weights->head, s->logits}, 1, err);
    f->times->head += sl_now() - begin;
    return st;
}
