/* How a layer asks for experts: the only way it gets one.
 *
 * A layer announces all the experts that it needs, then takes them as they come and gives each back.
 * Where an expert comes from (memory, a read that was started early, a read started now) decides when
 * it arrives, never what it holds. Implemented above (engine/experts.c).
 *
 * Thread: the owner of the session. */
#ifndef SL_MODEL_EXPERT_SOURCE_H
#define SL_MODEL_EXPERT_SOURCE_H

#include <stdbool.h>

#include "backend/backend.h"
#include "base/status.h"

/* One expert's weights. Valid until it is released. */
typedef struct sl_expert_view {
    uint32_t expert;
    uint32_t index; /* its place in the list given to begin */
    sl_expert_weights w;
} sl_expert_view;

typedef struct sl_expert_source sl_expert_source;
struct sl_expert_source {
    /* How many guesses are worth making now; 0: none. Set by the source. */
    uint32_t guess_width;
    /* Announce the experts of one layer, ascending and distinct, with the number of tokens that use each.
     * The arrays stay with the caller until end. in_order: take() gives them in the order of the list;
     * otherwise as they come. */
    void (*begin)(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                  const uint32_t *n_uses, uint32_t n, bool in_order);
    /* Up to max of the experts that are present and were not given yet. Where none is: wait for one, or
     * without `wait` give none. The caller holds what was given until it releases it, and releases all
     * before it calls again. Errors: SL_ERR_IO, SL_ERR_CORRUPT, both naming layer, expert, file, offset. */
    sl_status (*take)(sl_expert_source *source, sl_expert_view *out, uint32_t max, bool wait,
                      uint32_t *n, sl_error *err);
    void (*release)(sl_expert_source *source, const sl_expert_view *view);
    /* After the last release, or at any point after an error. Reads that are under way are waited for. */
    void (*end)(sl_expert_source *source);
    /* Experts that a layer is likely to ask for soon, the likeliest first, up to guess_width of those that
     * are not in memory count. A hint: it decides what is read early and nothing else. Replaces the guess
     * before, as far as its reads have not begun. */
    void (*guess)(sl_expert_source *source, uint32_t layer, const uint32_t *experts, uint32_t n);
};

#endif
