/* How a layer asks for experts: the only way it gets one.
 *
 * A layer announces all the experts that it needs, then takes them one by one and gives each back.
 * Where an expert comes from (memory, a read that was started early, a read started now) decides when
 * it arrives, never what it holds. Implemented above (engine/experts.c).
 *
 * Thread: the owner of the session. */
#ifndef SL_MODEL_EXPERT_SOURCE_H
#define SL_MODEL_EXPERT_SOURCE_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/matrix.h"

/* One expert's weights. Valid until it is released. */
typedef struct sl_expert_view {
    uint32_t expert;
    uint32_t index; /* its place in the list given to begin */
    sl_matrix gate, up, down;
    const float *gate_bias, *up_bias, *down_bias; /* [rows]; NULL: none */
} sl_expert_view;

typedef struct sl_expert_source sl_expert_source;
struct sl_expert_source {
    /* Announce the experts of one layer, ascending and distinct, with the number of tokens that use each.
     * The arrays stay with the caller until end. in_order: next() gives them in the order of the list;
     * otherwise those that are present come first. */
    void (*begin)(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                  const uint32_t *n_uses, uint32_t n, bool in_order);
    /* The next expert; waits for the drive where it must. At most one is held at a time: release it
     * before the next call. Errors: SL_ERR_IO, SL_ERR_CORRUPT, both naming layer, expert, file, offset. */
    sl_status (*next)(sl_expert_source *source, sl_expert_view *out, sl_error *err);
    void (*release)(sl_expert_source *source, const sl_expert_view *view);
    /* After the last release, or at any point after an error. Reads that are under way are waited for. */
    void (*end)(sl_expert_source *source);
};

#endif
