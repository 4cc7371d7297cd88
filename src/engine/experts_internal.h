/* Shared by experts.c and guess.c. */
#ifndef SL_ENGINE_EXPERTS_INTERNAL_H
#define SL_ENGINE_EXPERTS_INTERNAL_H

#include "engine/experts.h"

static inline bool sl__slot_has(const sl_slot *s, sl_slot_flag flag) {
    return s->flags & flag;
}

/* Count in a layer: no more than a load and a store, as only the owner writes. */
static inline void sl__layer_count(_Atomic uint64_t *counter, int by) {
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + (uint64_t)(int64_t)by, memory_order_relaxed);
}

uint32_t sl__expert_key(const sl_experts *x, uint32_t layer, uint32_t expert);
/* Reads that may be started now. */
uint32_t sl__expert_reads_free(const sl_experts *x);
/* Empty a slot, which no read writes to and nobody holds. */
void sl__expert_forget(sl_experts *x, uint32_t slot);
/* Start the reads of an expert into a slot that is empty. There are reads free for its extents. */
void sl__expert_read(sl_experts *x, uint32_t slot, uint32_t key, bool guess);
/* The i-th slot of the ring, counted from where the last search ended. */
uint32_t sl__ring_slot(const sl_experts *x, uint32_t i);

/* Guesses: see experts.h. */
void sl__guess_init(sl_experts *x, bool on);
void sl__guess(sl_expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t n);
/* Start reads of guesses, as long as the drive has nothing more urgent to do. */
void sl__guess_submit(sl_experts *x);
/* A layer begins to ask, and n_missing experts have to be read; the last read that was asked for came in; a
 * guessed expert was asked for, or its slot is lost. */
void sl__guess_layer_begins(sl_experts *x, uint32_t n_missing);
void sl__guess_demand_ends(sl_experts *x);
void sl__guess_came_true(sl_experts *x, uint32_t slot);
void sl__guess_lost(sl_experts *x, uint32_t slot);

#endif
