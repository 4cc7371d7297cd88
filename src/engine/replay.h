/* A trace against a policy: what would have had to be read, without a model and without a drive.
 *
 * The hot tier's own policy is simulated with its own arithmetic (policy.h), slots and ring as in experts.c,
 * reads taking no time. Beside it what others do at the same number of slots, and the bound:
 *   LRU     the expert whose last use is longest ago makes room, always
 *   LFU     the expert with the fewest uses so far makes room, always
 *   Belady  the expert whose next use is furthest away makes room, unless the newcomer's is further still: no
 *           policy reads less without guessing (Belady 1966, with bypass) */
#ifndef SL_ENGINE_REPLAY_H
#define SL_ENGINE_REPLAY_H

#include "engine/trace.h"

typedef enum sl_policy_kind {
    SL_POLICY_OURS,
    SL_POLICY_LRU,
    SL_POLICY_LFU,
    SL_POLICY_BELADY
} sl_policy_kind;

typedef struct sl_replay_job {
    sl_policy_kind policy;
    uint32_t n_slots;     /* in all, > top_k */
    uint32_t ring_slots;  /* of these, OURS alone: >= top_k, <= n_slots */
    uint32_t guess_width; /* OURS alone: experts read ahead before each layer at most */
    uint32_t warm;        /* tokens that fill the slots before counting begins */
} sl_replay_job;

/* Sums over the tokens that count. uses = hits + demand + guesses_used. */
typedef struct sl_replay_sums {
    uint64_t n_tokens, uses, hits, demand;
    uint64_t guess_reads, guesses_used;
} sl_replay_sums;

/* Errors: SL_ERR_ARGUMENT (job), SL_ERR_MEMORY. Pure, heap aside. */
SL_MUST_USE sl_status sl__replay(const sl_trace *trace, const sl_replay_job *job,
                                 sl_replay_sums *out, sl_error *err);

/* Of the picks of layers that were guessed, how many are among the first `width` guesses. */
void sl__replay_guesses(const sl_trace *trace, uint32_t width, uint64_t *n_picks,
                        uint64_t *n_named);

#endif
