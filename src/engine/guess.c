/* Guesses: which experts are read before they are asked for, and how many. */
#include <string.h>

#include "base/clock.h"
#include "engine/experts_internal.h"

#define IN_FLIGHT_MAX 4u /* experts guessed: what is asked for next waits behind them */
#define DEMAND_LOW 1u    /* guesses start when no more than so many others are under way */
#define AVERAGE 0.02     /* weight of the newest value */
#define PRECISION_START 0.7
#define PRECISION_LOW 0.3 /* below this a guess costs more than it brings */

static void average(double *mean, double value) {
    *mean = *mean == 0 ? value : *mean + AVERAGE * (value - *mean);
}

static uint32_t most_guesses(const sl_experts *x) {
    return SL_MIN(SL_GUESS_MAX, x->ring_slots > 2 ? x->ring_slots - 2 : 0);
}

/* As many as the drive can read in the time that it would be idle, and half of one more. Where fewer than a
 * third come true: one now and then, to see whether that changes. */
static uint32_t guess_width_of(const sl_experts *x) {
    const sl_guesses *g = &x->guesses;
    uint32_t most = most_guesses(x);
    if (g->off || most == 0)
        return 0;
    if (g->precision < PRECISION_LOW)
        return x->tokens % 16 == 0;
    if (g->expert_time == 0 || g->idle == 0)
        return SL_MIN(most, 2u);
    double fit = g->idle / g->expert_time + 0.5;
    return fit >= most ? most : (uint32_t)fit;
}

static void set_width(sl_experts *x) {
    x->guesses.width = guess_width_of(x);
    // Nothing missing for two tokens: asking the routers early would be for nothing.
    bool quiet = x->guesses.quiet > 2 * x->store->model.n_layers;
    x->base.guess_width = quiet ? 0 : x->guesses.width;
}

void sl__guess_init(sl_experts *x, bool on) {
    x->guesses = (sl_guesses){.off = !on, .precision = PRECISION_START};
    set_width(x);
}

static void want(sl_experts *x, uint32_t key, uint32_t most) {
    sl_guesses *g = &x->guesses;
    if (g->n_wanted < most && x->entries[key].slot == SL_NO_SLOT)
        g->wanted[g->n_wanted++] = key;
}

void sl__guess(sl_expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t n) {
    sl_experts *x = (sl_experts *)source;
    x->guesses.n_wanted = x->guesses.at = 0;
    for (uint32_t i = 0; i < n; i++)
        want(x, sl__expert_key(x, layer, experts[i]), x->guesses.width);
    sl__guess_submit(x);
}

// A large chunk needs nearly every expert of the next layer, in ascending order.
static void want_next_layer(sl_experts *x) {
    const sl_model *m = &x->store->model;
    uint32_t layer = x->layer + 1;
    x->guesses.n_wanted = x->guesses.at = 0;
    while (layer < m->n_layers && m->ffn[layer] != SL_FFN_MOE)
        layer++;
    if (layer < m->n_layers)
        for (uint32_t e = 0; e < m->moe.n_experts; e++)
            want(x, sl__expert_key(x, layer, e), most_guesses(x));
}

// A ring slot that nobody needs: not one that waits to come true for the same layer.
static uint32_t slot_for(const sl_experts *x, uint32_t layer) {
    for (uint32_t i = 0; i < x->ring_slots; i++) {
        uint32_t slot = sl__ring_slot(x, i);
        const sl_slot *s = &x->slots[slot];
        bool waits = sl__slot_has(s, SL_SLOT_GUESSED) && s->layer == layer;
        if (!s->pins && !s->pending && !waits)
            return slot;
    }
    return SL_NO_SLOT;
}

void sl__guess_submit(sl_experts *x) {
    sl_guesses *g = &x->guesses;
    const uint32_t n_extents = x->store->n_extents;
    if (x->n_submitted < x->n)
        return;
    if (g->ahead) {
        g->ahead = false;
        want_next_layer(x);
    }
    while (g->at < g->n_wanted && x->n_under_way <= DEMAND_LOW * n_extents &&
           g->in_flight < IN_FLIGHT_MAX * n_extents && sl__expert_reads_free(x) >= n_extents) {
        uint32_t key = g->wanted[g->at];
        uint32_t slot = slot_for(x, key / x->store->model.moe.n_experts);
        if (slot == SL_NO_SLOT)
            return;
        g->at++;
        if (x->entries[key].slot != SL_NO_SLOT)
            continue;
        sl__expert_forget(x, slot);
        sl__expert_read(x, slot, key, true);
        x->guess_reads++;
        sl__layer_count(&x->layers[x->slots[slot].layer].guess_reads, 1);
    }
}

void sl__guess_layer_begins(sl_experts *x, uint32_t n_missing) {
    sl_guesses *g = &x->guesses;
    double now = sl_now();
    // What has not begun is known by now: asked for, or wrong.
    g->n_wanted = g->at = 0;
    if (g->demand_end != 0)
        average(&g->idle, now - g->demand_end);
    g->demand_end = 0;
    g->demand_begin = now;
    g->n_demand = n_missing;
    g->quiet = n_missing ? 0 : g->quiet + 1;
    // A layer that has all it needs tells that the next one may have, too.
    g->ahead = !g->off && !x->single && n_missing && x->n >= x->store->model.moe.n_experts / 4 * 3;
    set_width(x);
}

void sl__guess_demand_ends(sl_experts *x) {
    sl_guesses *g = &x->guesses;
    g->demand_end = sl_now();
    if (g->n_demand && x->single)
        average(&g->expert_time, (g->demand_end - g->demand_begin) / g->n_demand);
}

void sl__guess_came_true(sl_experts *x, uint32_t slot) {
    x->slots[slot].flags &= (uint8_t)~SL_SLOT_GUESSED;
    x->slots[slot].flags |= SL_SLOT_CAME_TRUE;
    x->guesses_used++;
    sl__layer_count(&x->layers[x->slots[slot].layer].guesses_used, 1);
    average(&x->guesses.precision, 1);
}

void sl__guess_lost(sl_experts *x, uint32_t slot) {
    x->slots[slot].flags &= (uint8_t)~SL_SLOT_GUESSED;
    x->guesses_wasted++;
    average(&x->guesses.precision, 0);
}
