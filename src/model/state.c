/* The state of a sequence: its layout, and copies of it. */
#include <string.h>

#include "model/forward.h"
#include "model/layers.h"

/* ---- layout ------------------------------------------------------------------------------------- */

static uint32_t ring_rows(const sl_model *m, uint32_t layer, uint32_t n_ctx) {
    return sl_window_ring(m->windowed[layer] ? m->attn.window : 0, n_ctx);
}

// Of one layer, in whole cache lines.
static uint64_t kv_floats(const sl_model *m, uint32_t layer, uint32_t n_ctx) {
    uint64_t rows;
    switch ((sl_mixer)m->mixer[layer]) {
    case SL_MIXER_ATTENTION:
        rows = ring_rows(m, layer, n_ctx);
        return SL_ALIGN_UP(2 * rows * m->attn.n_kv_heads * m->attn.d_head, 16);
    case SL_MIXER_MLA:
        return SL_ALIGN_UP((uint64_t)n_ctx * (m->mla.d_latent + m->mla.d_rope), 16);
    case SL_MIXER_DELTA:
    case SL_MIXER_CONV:
    case SL_MIXER_COUNT:
        break;
    }
    return 0;
}

static uint64_t recurrent_floats(const sl_model *m, uint32_t layer) {
    switch ((sl_mixer)m->mixer[layer]) {
    case SL_MIXER_DELTA:
        return sl_delta_tail_floats(m) +
               SL_ALIGN_UP(m->delta.n_v_heads * sl_delta_state_floats(m->delta.d_k, m->delta.d_v),
                           16);
    case SL_MIXER_CONV:
        return SL_ALIGN_UP((uint64_t)(m->conv.width - 1) * m->d_model, 16);
    case SL_MIXER_ATTENTION:
    case SL_MIXER_MLA:
    case SL_MIXER_COUNT:
        break;
    }
    return 0;
}

static uint64_t kv_before(const sl_model *m, uint32_t layer, uint32_t n_ctx) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < layer; i++)
        n += kv_floats(m, i, n_ctx);
    return n;
}

static uint64_t recurrent_before(const sl_model *m, uint32_t layer) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < layer; i++)
        n += recurrent_floats(m, i);
    return n;
}

uint64_t sl_kv_bytes(const sl_model *m, uint32_t n_ctx) {
    return kv_before(m, m->n_layers, n_ctx) * sizeof(float);
}

uint64_t sl_recurrent_bytes(const sl_model *m) {
    return recurrent_before(m, m->n_layers) * sizeof(float);
}

void sl_state_bind(sl_state *state, uint32_t n_ctx, void *kv, void *recurrent) {
    *state = (sl_state){.n_ctx = n_ctx, .kv = kv, .recurrent = recurrent};
}

float *sl_state_kv(const sl_state *state, const sl_model *m, uint32_t layer) {
    return state->kv + kv_before(m, layer, state->n_ctx);
}

float *sl_state_recurrent(const sl_state *state, const sl_model *m, uint32_t layer) {
    return state->recurrent + recurrent_before(m, layer);
}

void sl_state_reset(sl_state *state, const sl_model *m) {
    state->n_past = 0;
    if (sl_recurrent_bytes(m))
        memset(state->recurrent, 0, sl_recurrent_bytes(m));
}

bool sl_state_can_shorten(const sl_state *state, const sl_model *m) {
    for (uint32_t i = 0; i < m->n_layers; i++)
        if (recurrent_floats(m, i) ||
            (m->mixer[i] == SL_MIXER_ATTENTION && ring_rows(m, i, state->n_ctx) < state->n_ctx))
            return false;
    return true;
}

/* ---- copies ------------------------------------------------------------------------------------- */

// Of one layer's cache: `n` runs of floats, `stride` apart; of each the first `used` hold something.
typedef struct kv_runs {
    uint64_t n, stride, used;
} kv_runs;

static kv_runs runs_of(const sl_state *s, const sl_model *m, uint32_t layer) {
    switch ((sl_mixer)m->mixer[layer]) {
    case SL_MIXER_ATTENTION: {
        uint64_t rows = ring_rows(m, layer, s->n_ctx), d = m->attn.d_head;
        // Keys of each head, then values of each head.
        return (kv_runs){(uint64_t)2 * m->attn.n_kv_heads, rows * d, SL_MIN(s->n_past, rows) * d};
    }
    case SL_MIXER_MLA: {
        uint64_t d = m->mla.d_latent + m->mla.d_rope;
        return (kv_runs){1, s->n_ctx * d, s->n_past * d};
    }
    case SL_MIXER_DELTA:
    case SL_MIXER_CONV:
    case SL_MIXER_COUNT:
        break;
    }
    return (kv_runs){0, 0, 0};
}

static float *copy_floats(float *state, float *copy, uint64_t n, bool restore) {
    if (n)
        memcpy(restore ? state : copy, restore ? copy : state, n * sizeof(float));
    return copy + n;
}

static void copy_state(sl_state *s, const sl_model *m, float *copy, bool restore) {
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        kv_runs r = runs_of(s, m, layer);
        for (uint64_t i = 0; i < r.n; i++)
            copy = copy_floats(sl_state_kv(s, m, layer) + i * r.stride, copy, r.used, restore);
    }
    (void)copy_floats(s->recurrent, copy, recurrent_before(m, m->n_layers), restore);
}

uint64_t sl_state_copy_bytes(const sl_state *state, const sl_model *m) {
    uint64_t n = recurrent_before(m, m->n_layers);
    for (uint32_t i = 0; i < m->n_layers; i++) {
        kv_runs r = runs_of(state, m, i);
        n += r.n * r.used;
    }
    return n * sizeof(float);
}

void sl_state_copy(const sl_state *state, const sl_model *m, void *copy) {
    copy_state((sl_state *)state, m, copy, false); // which only reads it
}

void sl_state_restore(sl_state *state, const sl_model *m, uint32_t n_past, const void *copy) {
    state->n_past = n_past;
    copy_state(state, m, (float *)copy, true);
}
