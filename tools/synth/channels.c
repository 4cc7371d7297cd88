/* What the channels of the residual stream are for, and how strongly each layer's router reads them.
 *
 * A quarter of the channels (signal) holds what the embedding says of all tokens and of the token's topic;
 * no layer writes there. A quarter (token) holds the single token. The other half is dealt out in slots,
 * each written by one feed-forward layer and the mixer after it. A router reads signal with a fixed share
 * of its logits' variance; of the rest, the newest slot has the share `change`, the slot before it change *
 * (1 - change), and so on, the token channels what is left. So from layer to layer each router's logits
 * keep the signal and forget the rest at a fixed rate, and the residual stream stays O(1). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan_internal.h"
#include "random.h"

synth_gains synth_gains_default(void) {
    return (synth_gains){.common = 0.11, .topic = 0.54, .change = 0.13, .n_topics = 64};
}

static uint32_t slots_of(const sl_model *m) {
    return SL_MAX(1u, SL_MIN(m->n_layers + 1, m->d_model / 16));
}

uint64_t synth_channels_bytes(const sl_model *m, const synth_gains *gains) {
    return (uint64_t)m->d_model * (sizeof(int16_t) + 1 + gains->n_topics) +
           slots_of(m) * sizeof(uint32_t) + 4 * 64;
}

sl_status synth_channels_init(const sl_model *m, uint64_t seed, const synth_gains *gains,
                              sl_arena *arena, synth_channels *c, sl_error *err) {
    uint32_t d = m->d_model, next = 0;
    memset(c, 0, sizeof(*c));
    c->d_model = d;
    c->n_slots = slots_of(m);
    c->of = sl_arena_alloc(arena, d * sizeof(*c->of), 64);
    c->count = sl_arena_alloc(arena, c->n_slots * sizeof(*c->count), 64);
    c->signs = sl_arena_alloc(arena, (size_t)d * (1 + gains->n_topics), 64);
    if (!c->of || !c->count || !c->signs)
        return sl_arena_full(arena, d, err);
    for (uint32_t j = 0; j < d; j++) {
        if (j % 4 == 0) {
            c->of[j] = SYNTH_CHANNEL_SIGNAL;
            c->n_signal++;
        } else if (j % 4 == 2) {
            c->of[j] = SYNTH_CHANNEL_TOKEN;
            c->n_token++;
        } else {
            c->of[j] = (int16_t)(next++ % c->n_slots);
            c->count[c->of[j]]++;
        }
    }
    for (uint32_t p = 0; p <= gains->n_topics; p++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "pattern %u", p);
        uint64_t key = synth_key(seed, name);
        for (uint32_t j = 0; j < d; j++)
            c->signs[(size_t)p * d + j] = synth_word(key, j / 64) >> (j % 64) & 1 ? 1 : -1;
    }
    return SL_OK;
}

/* With unit energy in each signal, token and written slot channel, and random weights of variance 1, the logit's
 * variance is the sum of gain^2 over the channels, divided by the mean square of the stream. */
void synth_router_gains(const sl_model *m, const synth_gains *gains, const synth_channels *c,
                        uint32_t layer, float *out) {
    double share[SL_LAYERS_MAX + 1] = {0}, rest = 1 - gains->common - gains->topic;
    double energy = c->n_signal + c->n_token, left = rest;
    for (uint32_t back = 0; back <= layer; back++) {
        uint32_t slot = (layer - back) % c->n_slots;
        energy += c->count[slot];
        share[slot] += left * gains->change;
        left -= left * gains->change;
    }
    double scale = SYNTH_LOGIT_STD * SYNTH_LOGIT_STD * energy / m->d_model;
    for (uint32_t j = 0; j < m->d_model; j++) {
        double per_channel = c->of[j] == SYNTH_CHANNEL_SIGNAL ? (1 - rest) / c->n_signal
                             : c->of[j] == SYNTH_CHANNEL_TOKEN
                                 ? left / c->n_token
                                 : share[c->of[j]] / c->count[c->of[j]];
        out[j] = (float)sqrt(scale * per_channel);
    }
}
