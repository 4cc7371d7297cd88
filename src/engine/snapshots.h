/* What sequences have left behind, kept for those that begin the same way.
 *
 * The engine has one session; conversations take turns in it. A snapshot holds the tokens of a sequence and a
 * copy of its state, so that a later prompt which begins with those tokens need not compute them again.
 * Recurrent state cannot be cut back, therefore snapshots are taken where a later prompt is likely to
 * branch off: in front of an answer, and behind it.
 *
 * One block, given at the start. Snapshots lie in it one behind another; where room is needed, those used
 * longest ago go and the others move up. Thread: the owner of the session. */
#ifndef SL_ENGINE_SNAPSHOTS_H
#define SL_ENGINE_SNAPSHOTS_H

#include "model/forward.h"

typedef struct sl_snapshots {
    uint32_t *history; /* [n_ctx] the session's tokens; NULL: nothing is kept */
    uint8_t *block;
    uint64_t cap, used;
    uint64_t clock; /* counts uses */
    uint32_t n;
} sl_snapshots;

/* Bytes of the history and of a snapshot of n_tokens, so that a plan can say how many fit. Pure. */
uint64_t sl_snapshots_history_bytes(uint32_t n_ctx);
uint64_t sl_snapshot_bytes(const sl_model *model, uint32_t n_ctx, uint32_t n_tokens);

/* memory: bytes, 64-byte aligned; less than the history keeps nothing. */
void sl_snapshots_init(sl_snapshots *s, uint32_t n_ctx, void *memory, uint64_t bytes);

/* Keep a copy of the state and of its tokens, history [0, n_past). False when it is larger than the block. */
bool sl_snapshots_keep(sl_snapshots *s, const sl_state *state, const sl_model *model);

/* Make the state that of the longest known beginning of tokens [n], shorter than n: what the state holds
 * already, that shortened where the model allows it, a snapshot, or nothing. Returns its length, which
 * is then state->n_past; the history is tokens [0, that). */
uint32_t sl_snapshots_rewind(sl_snapshots *s, sl_state *state, const sl_model *model,
                             const uint32_t *tokens, size_t n);

#endif
