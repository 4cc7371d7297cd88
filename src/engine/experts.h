/* The hot tier and the ring: every expert in memory, and the reads of those that are not.
 *
 * One pool of slots. A few of them are the ring: an expert that is not worth keeping passes through one of
 * them and may be found there again until the slot is needed. The others are hot: their experts stay
 * until one comes that is expected back sooner. A slot that a layer has asked for is pinned from then
 * until the layer gives it back, and is not taken away.
 *
 * Who stays. For every expert policy.h says in how many tokens it is expected back, from how often it was used
 * lately, also while it is not in memory.
 * The hot expert that is expected back last makes room, unless the newcomer itself is. A chunk of several
 * tokens fills empty hot slots but evicts nobody: a prompt's many experts would only wash the tier out.
 *
 * Guesses. What the next layer is likely to ask for is read early, into the ring, while nothing that was
 * asked for waits to be read. A guess that comes true may move into the hot tier: slots change their
 * part, bytes do not move. How many guesses are made follows from how long the drive is idle between two
 * layers and from how many came true (see guess_width_of() in guess.c). During a chunk the guess is the next
 * layer's experts in ascending order, as a large chunk needs nearly all.
 *
 * Thread: the owner of the session, for everything. */
#ifndef SL_ENGINE_EXPERTS_H
#define SL_ENGINE_EXPERTS_H

#include <stdatomic.h>

#include "engine/policy.h"
#include "base/pool.h"
#include "io/reader.h"
#include "model/expert_source.h"
#include "store/store.h"

#define SL_EXPERT_READS_MAX 96u
#define SL_GUESS_MAX 16u

typedef struct sl_expert_entry {
    uint32_t slot; /* or SL_NO_SLOT */
    sl_use use;
} sl_expert_entry;

#define SL_NO_SLOT UINT32_MAX
#define SL_NO_KEY UINT32_MAX

typedef struct sl_slot {
    uint32_t key;     /* layer * n_experts + expert, or SL_NO_KEY */
    uint16_t layer;   /* of the key */
    uint16_t pending; /* reads under way */
    uint8_t pins;
    uint8_t flags; /* sl_slot_flag */
    int16_t error; /* 0, or the first failed read's -errno; short reads are -ENODATA */
    uint16_t error_extent;
    uint32_t ring; /* of slot i < ring_slots: the number of the i-th ring slot */
} sl_slot;

/* Of one layer, since open. The owner of the session counts, any thread reads while it does (relaxed: each number
 * stands for itself). */
typedef struct sl_layer_counts {
    _Atomic uint64_t hits, reads, guess_reads, guesses_used;
} sl_layer_counts;

typedef enum sl_slot_flag {
    SL_SLOT_CHECKED = 1, /* the checksum was compared since the read */
    SL_SLOT_RING = 2,
    SL_SLOT_GUESSED = 4,   /* read as a guess, and not asked for so far */
    SL_SLOT_CAME_TRUE = 8, /* a guess when it was last asked for, which counts as no hit */
} sl_slot_flag;

typedef struct sl_expert_read {
    sl_read read;
    uint32_t least; /* bytes that it must bring */
    uint32_t slot, extent;
    bool used, guess;
} sl_expert_read;

/* What is to be read early, and what that has brought. */
typedef struct sl_guesses {
    bool off;
    uint32_t wanted[SL_GUESS_MAX]; /* keys whose reads have not begun */
    uint32_t n_wanted, at;         /* wanted[at ..] are left */
    uint32_t in_flight;            /* reads */
    uint32_t width;
    bool ahead;     /* a chunk: the next layer's experts are to be read once this one's are */
    uint32_t quiet; /* layers since something was missing */
    /* For the width. Times in seconds, averages over some fifty layers; 0: not known. */
    double demand_begin; /* of the layer's reads that were asked for */
    double demand_end;   /* when the last of them came in */
    uint32_t n_demand;   /* experts that they are */
    double idle;         /* that the drive has nothing to do between two layers */
    double expert_time;  /* that one expert takes, others in flight */
    double precision;    /* share of guesses that came true */
} sl_guesses;

typedef struct sl_experts {
    sl_expert_source base;
    const sl_store *store;
    sl_reader *reader;
    sl_pool *pool;       /* compares checksums */
    uint8_t *ring, *hot; /* slot memory: the first ring_slots, the others */
    uint32_t ring_slots, n_slots;
    uint32_t ring_next;       /* where the search for a ring slot goes on */
    uint32_t n_empty_hot;     /* hot slots never used so far */
    sl_layer_counts *layers;  /* [n_layers] */
    sl_expert_entry *entries; /* [n_layers * n_experts] */
    sl_slot *slots;           /* [n_slots] */
    sl_expert_read reads[SL_EXPERT_READS_MAX];
    uint32_t n_reads;     /* of `reads` that may be used: the reader's depth */
    uint32_t n_under_way; /* of those, guesses apart */
    sl_policy policy;
    uint32_t tokens; /* that passed, modulo 2^32 */

    /* The layer being served. */
    uint32_t layer, n, n_submitted, n_given;
    const uint32_t *experts;
    bool in_order, single;
    /* Asked before each wait; true: take() fails with SL_ERR_CANCELED, and end() waits for nothing. May be NULL. */
    bool (*canceled)(void *user);
    void *user;
    uint8_t *given; /* [n_experts] 1: handed out */

    sl_guesses guesses;

    /* Telemetry. reads_total: experts read because they were asked for; guesses apart. */
    uint64_t hits, reads_total, read_bytes;
    uint64_t guess_reads, guesses_used, guesses_wasted;
    double wait_seconds;
} sl_experts;

/* ring and hot hold ring_slots and hot_slots strides; tables comes zeroed, of the size that
 * sl_plan_hot_table_bytes() gives. depth: reads in flight. guesses: false to make none. */
void sl_experts_init(sl_experts *x, const sl_store *store, sl_reader *reader, sl_pool *pool,
                     uint32_t depth, void *ring, uint32_t ring_slots, void *hot, uint32_t hot_slots,
                     void *tables, bool guesses);
/* One more token (or n of a chunk) is about to pass through all layers. */
void sl_experts_tick(sl_experts *x, uint32_t n_tokens);
/* Wait for everything under way. */
void sl_experts_drain(sl_experts *x);

#endif
