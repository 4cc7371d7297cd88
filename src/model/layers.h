/* The layer kinds, each in its own file, and what they share. Internal to src/model. */
#ifndef SL_MODEL_LAYERS_H
#define SL_MODEL_LAYERS_H

#include "model/forward.h"

/* Mixers: scratch->h [n][d_model] (normed) in, the mixer's output added to scratch->x. */
sl_status sl_layer_attention(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
sl_status sl_layer_delta(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
/* Routed experts and the shared one: scratch->h in, their output added to scratch->x. */
sl_status sl_layer_moe(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);

/* Floats that each kind needs of scratch->a .. e for a chunk. */
typedef struct sl_layer_scratch {
    uint64_t a, b, c, d, e;
} sl_layer_scratch;
sl_layer_scratch sl_layer_attention_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_delta_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_moe_scratch(const sl_model *model, uint32_t chunk);

/* One of several products of the activations that are packed in scratch->packed. */
typedef struct sl_projection {
    const sl_weight *w;
    float *y; /* [n][w->shape.rows] dense */
} sl_projection;

/* y = w x for up to 8 weights, in memory or streamed. */
sl_status sl_project(sl_forward *f, const sl_projection *list, uint32_t n, sl_error *err);
/* Pack x [n][n_inputs] into scratch->packed. */
void sl_pack(sl_forward *f, const float *x, uint32_t n, uint32_t n_inputs);

/* The picks of one token (docs/numerics.md, "Router"): the top_k largest logits, ties to the lower index,
 * with their weights. Clobbers logits. */
void sl_route(const sl_model *model, sl_backend *backend, float *logits, uint32_t *picks,
              float *weights);

static inline const float *sl_vector(const sl_weight *w) {
    return w->block;
}

#endif
