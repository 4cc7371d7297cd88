/* See replay.h. */
#include "engine/replay.h"

#include <string.h>

#include "base/mem.h"
#include "engine/policy.h"

#define NOWHERE UINT32_MAX
#define NEVER UINT64_MAX

typedef struct entry {
    uint32_t slot;    /* or NOWHERE */
    uint32_t n_uses;  /* LFU */
    uint64_t used_at; /* LRU: position of the last use */
    uint64_t next_at; /* Belady: of the next one */
    sl_use use;
} entry;

/* Slots are numbered; those of the ring first, as `part` says: slots change parts as in experts.c. */
typedef struct slot {
    uint32_t key;  /* or NOWHERE */
    uint32_t ring; /* of slot i < ring_slots: the i-th slot of the ring */
    uint64_t
        asked; /* position of the layer that asked for it last: not to be taken by that layer */
    bool in_ring, guessed;
} slot;

typedef struct replay {
    const sl_trace *trace;
    const sl_replay_job *job;
    uint32_t ring_slots, ring_next, n_empty;
    entry *entries; /* [n_moe * n_experts] */
    slot *slots;    /* [n_slots] */
    uint64_t *next; /* [n_tokens * n_moe * top_k] position of the next use of the same expert */
    uint64_t *last; /* [n_moe * n_experts], while next is made */
    sl_policy policy;
    uint64_t at; /* position: token * n_moe + layer, from 1 */
    uint32_t layer;
    sl_replay_sums sums;
    bool counting;
} replay;

static uint32_t key_of(const replay *r, uint32_t layer, uint32_t expert) {
    return layer * r->trace->shape.n_experts + expert;
}

/* How little an expert is worth to the policy; the largest makes room. */
static double worthless(const replay *r, uint32_t key) {
    const entry *e = &r->entries[key];
    const sl_trace *t = r->trace;
    switch (r->job->policy) {
    case SL_POLICY_LRU:
        return -(double)e->used_at;
    case SL_POLICY_LFU:
        return -(double)e->n_uses;
    case SL_POLICY_BELADY:
        return e->next_at == NEVER ? 0x1p64 : (double)e->next_at;
    default:
        return (double)sl_policy_wait(&r->policy, &e->use, t->layers[key / t->shape.n_experts],
                                      t->layers[r->layer], t->shape.n_layers);
    }
}

// The slot, not of the ring, that the policy gives to the expert; NOWHERE: none.
static uint32_t victim(const replay *r, uint32_t key) {
    bool always = r->job->policy == SL_POLICY_LRU || r->job->policy == SL_POLICY_LFU;
    uint32_t best = NOWHERE;
    double most = always ? -0x1p64 : worthless(r, key);
    for (uint32_t i = 0; i < r->job->n_slots; i++) {
        const slot *s = &r->slots[i];
        // What the layer works with stays; the bound may use a slot again as soon as it was served.
        if (s->in_ring || (s->asked == r->at && r->job->policy != SL_POLICY_BELADY))
            continue;
        double w = worthless(r, s->key);
        if (w > most) {
            most = w;
            best = i;
        }
    }
    return best;
}

static uint32_t hot_slot(replay *r, uint32_t key) {
    return r->n_empty ? r->job->n_slots - r->n_empty-- : victim(r, key);
}

/* As free_ring_slot() and slot_for() of the engine, with nothing under way: for demand a slot with a guess that may
 * still come true is the second choice, for a guess it is none if of the same layer. */
static uint32_t ring_slot(replay *r, bool for_guess, uint32_t layer) {
    uint32_t second = NOWHERE;
    for (uint32_t i = 0; i < r->ring_slots; i++) {
        uint32_t k = r->slots[(r->ring_next + i) % r->ring_slots].ring;
        const slot *s = &r->slots[k];
        if (s->key != NOWHERE && s->asked == r->at)
            continue;
        bool waits = s->guessed && (!for_guess || s->key / r->trace->shape.n_experts == layer);
        if (!waits) {
            if (!for_guess)
                r->ring_next = (r->ring_next + i + 1) % r->ring_slots;
            return k;
        }
        if (second == NOWHERE)
            second = k;
    }
    return for_guess ? NOWHERE : second;
}

static void put(replay *r, uint32_t i, uint32_t key, bool guessed) {
    slot *s = &r->slots[i];
    if (s->key != NOWHERE)
        r->entries[s->key].slot = NOWHERE;
    s->key = key;
    s->guessed = guessed;
    s->asked = guessed ? 0 : r->at;
    r->entries[key].slot = i;
}

static void promote(replay *r, uint32_t i) {
    uint32_t other = hot_slot(r, r->slots[i].key);
    if (other == NOWHERE)
        return;
    uint32_t k = 0;
    while (r->slots[k].ring != i)
        k++;
    r->slots[k].ring = other;
    r->slots[other].in_ring = true;
    r->slots[i].in_ring = false;
}

// An expert that has to be read.
static void read_in(replay *r, uint32_t key) {
    uint32_t i = hot_slot(r, key);
    if (i == NOWHERE && r->ring_slots)
        i = ring_slot(r, false, 0);
    if (i != NOWHERE) // else it passes through without a place: Belady's bypass
        put(r, i, key, false);
}

static void count_hit(replay *r, slot *s) {
    *(s->guessed ? &r->sums.guesses_used : &r->sums.hits) += r->counting;
    s->guessed = false;
}

static void serve(replay *r, uint32_t token) {
    const sl_trace_shape *s = &r->trace->shape;
    const uint16_t *picks = sl_trace_picks(r->trace, token, r->layer);
    const uint64_t *next = r->next + ((size_t)token * s->n_moe + r->layer) * s->top_k;
    uint32_t keys[64];
    for (uint32_t i = 0; i < s->top_k; i++) {
        keys[i] = key_of(r, r->layer, picks[i]);
        entry *e = &r->entries[keys[i]];
        sl_policy_count(&r->policy, &e->use, 1, 1);
        e->n_uses++;
        e->used_at = r->at;
        e->next_at = next[i];
        if (e->slot != NOWHERE)
            r->slots[e->slot].asked = r->at;
    }
    r->sums.uses += r->counting ? s->top_k : 0;
    // First what is there, then what is read: as the engine does.
    bool missing[64];
    for (uint32_t i = 0; i < s->top_k; i++) {
        uint32_t k = r->entries[keys[i]].slot;
        missing[i] = k == NOWHERE;
        if (!missing[i])
            count_hit(r, &r->slots[k]);
    }
    for (uint32_t i = 0; i < s->top_k; i++) {
        uint32_t k = r->entries[keys[i]].slot;
        if (!missing[i] && r->slots[k].in_ring)
            promote(r, k);
    }
    for (uint32_t i = 0; i < s->top_k; i++) {
        if (!missing[i])
            continue;
        r->sums.demand += r->counting;
        read_in(r, keys[i]);
    }
}

static void guess(replay *r, uint32_t token) {
    const sl_trace_shape *s = &r->trace->shape;
    uint32_t layer = r->layer + 1;
    if (layer >= s->n_moe)
        return;
    const uint16_t *guesses = sl_trace_picks(r->trace, token, layer) + s->top_k;
    for (uint32_t i = 0, n = 0; i < s->n_guess && n < r->job->guess_width; i++) {
        if (guesses[i] == SL_TRACE_NONE)
            continue;
        uint32_t key = key_of(r, layer, guesses[i]);
        if (r->entries[key].slot != NOWHERE)
            continue;
        uint32_t k = ring_slot(r, true, layer);
        if (k == NOWHERE)
            return;
        put(r, k, key, true);
        r->sums.guess_reads += r->counting;
        n++;
    }
}

static void find_next_uses(replay *r) {
    const sl_trace_shape *s = &r->trace->shape;
    for (uint32_t k = 0; k < s->n_moe * s->n_experts; k++)
        r->last[k] = NEVER;
    for (uint64_t at = (uint64_t)r->trace->n_tokens * s->n_moe; at-- > 0;) {
        uint32_t layer = (uint32_t)(at % s->n_moe);
        const uint16_t *picks = sl_trace_picks(r->trace, (uint32_t)(at / s->n_moe), layer);
        for (uint32_t i = 0; i < s->top_k; i++) {
            uint32_t key = key_of(r, layer, picks[i]);
            r->next[at * s->top_k + i] = r->last[key];
            r->last[key] = at + 1;
        }
    }
}

static void run(replay *r) {
    const sl_trace_shape *s = &r->trace->shape;
    uint32_t n_keys = s->n_moe * s->n_experts;
    for (uint32_t k = 0; k < n_keys; k++)
        r->entries[k].slot = NOWHERE;
    for (uint32_t i = 0; i < r->job->n_slots; i++)
        r->slots[i] = (slot){.key = NOWHERE, .ring = i, .in_ring = i < r->ring_slots};
    r->n_empty = r->job->n_slots - r->ring_slots;
    sl_policy_init(&r->policy);
    find_next_uses(r);
    for (uint32_t t = 0; t < r->trace->n_tokens; t++) {
        r->counting = t >= r->job->warm;
        r->sums.n_tokens += r->counting;
        sl_policy_tick(&r->policy, 1);
        for (r->layer = 0; r->layer < s->n_moe; r->layer++) {
            r->at = (uint64_t)t * s->n_moe + r->layer + 1;
            serve(r, t);
            guess(r, t);
        }
    }
}

sl_status sl__replay(const sl_trace *trace, const sl_replay_job *job, sl_replay_sums *out,
                     sl_error *err) {
    const sl_trace_shape *s = &trace->shape;
    bool ours = job->policy == SL_POLICY_OURS;
    uint32_t n_keys = s->n_moe * s->n_experts;
    memset(out, 0, sizeof(*out));
    if (job->n_slots <= s->top_k ||
        (ours && (job->ring_slots < s->top_k || job->ring_slots > job->n_slots)))
        return sl_fail(err, SL_ERR_ARGUMENT,
                       "%u slots, %u of them in the ring: a layer asks for %u experts at once",
                       job->n_slots, ours ? job->ring_slots : 0, s->top_k);
    if (job->warm >= trace->n_tokens)
        return sl_fail(err, SL_ERR_ARGUMENT, "the trace has %u tokens, %u are not to count",
                       trace->n_tokens, job->warm);
    sl_replay_job own = *job;
    // A slot for every expert is as much as anybody can use.
    own.n_slots = SL_MIN(job->n_slots, n_keys + job->ring_slots);
    own.guess_width = ours ? job->guess_width : 0;
    replay r = {.trace = trace, .job = &own, .ring_slots = ours ? job->ring_slots : 0};
    r.entries = sl_mem_calloc(n_keys, sizeof(*r.entries));
    r.slots = sl_mem_calloc(own.n_slots, sizeof(*r.slots));
    r.last = sl_mem_calloc(n_keys, sizeof(*r.last));
    r.next = sl_mem_calloc((size_t)trace->n_tokens * s->n_moe * s->top_k, sizeof(*r.next));
    sl_status st = SL_OK;
    if (!r.entries || !r.slots || !r.next || !r.last)
        st = sl_fail(err, SL_ERR_MEMORY, "no memory to replay %u tokens", trace->n_tokens);
    else
        run(&r);
    *out = r.sums;
    sl_mem_free(r.entries);
    sl_mem_free(r.slots);
    sl_mem_free(r.next);
    sl_mem_free(r.last);
    return st;
}

void sl__replay_guesses(const sl_trace *trace, uint32_t width, uint64_t *n_picks,
                        uint64_t *n_named) {
    const sl_trace_shape *s = &trace->shape;
    *n_picks = *n_named = 0;
    for (uint32_t t = 0; t < trace->n_tokens; t++) {
        for (uint32_t layer = 0; layer < s->n_moe; layer++) {
            const uint16_t *picks = sl_trace_picks(trace, t, layer), *guesses = picks + s->top_k;
            if (s->n_guess == 0 || guesses[0] == SL_TRACE_NONE)
                continue;
            *n_picks += s->top_k;
            for (uint32_t i = 0; i < s->top_k; i++)
                for (uint32_t j = 0; j < SL_MIN(width, s->n_guess); j++)
                    *n_named += picks[i] == guesses[j];
        }
    }
}
