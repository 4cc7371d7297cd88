/* The layer kinds, each in its own file, and what they share. Internal to src/model. */
#ifndef SL_MODEL_LAYERS_H
#define SL_MODEL_LAYERS_H

#include "model/forward.h"

/* Mixers: scratch->h [n][d_model] (normed) in, the mixer's output added to scratch->x. */
sl_status sl_layer_attention(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
sl_status sl_layer_mla(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
sl_status sl_layer_delta(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
sl_status sl_layer_conv(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
/* Feed-forward layers, likewise: routed experts and the shared one; or one dense. */
sl_status sl_layer_moe(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);
sl_status sl_layer_dense(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err);

/* Floats that each kind needs of scratch->a .. e for a chunk. moe covers dense layers. */
typedef struct sl_layer_scratch {
    uint64_t a, b, c, d, e;
} sl_layer_scratch;
sl_layer_scratch sl_layer_attention_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_mla_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_delta_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_conv_scratch(const sl_model *model, uint32_t chunk);
sl_layer_scratch sl_layer_moe_scratch(const sl_model *model, uint32_t chunk);

/* Floats of a delta layer's convolution tail, in whole cache lines; its rule's state follows. */
uint64_t sl_delta_tail_floats(const sl_model *model);

/* One of several products of the activations that are packed in scratch->packed. */
typedef struct sl_projection {
    const sl_weight *w;
    const sl_weight *bias; /* [rows], added afterwards; NULL: none */
    float *y;              /* [n][w->shape.rows] dense */
} sl_projection;

/* y = w x + bias for up to 8 weights, in memory or streamed. */
sl_status sl_project(sl_forward *f, const sl_projection *list, uint32_t n, sl_error *err);
/* Pack x [n][n_inputs] into scratch->packed. */
void sl_pack(sl_forward *f, const float *x, uint32_t n, uint32_t n_inputs);

/* Each head's own product (sl_head_product): rows_per_head rows of w belong to a head; y[t][h] is at
 * y + t * y_token_stride + h * y_head_stride, x likewise. w in memory or streamed. */
sl_status sl_project_heads(sl_forward *f, const sl_weight *w, const sl_head_product *step,
                           sl_error *err);
/* out [n][d_model] = down(silu(gate h) * (up h)) with trunk weights; `beside`, which may have w NULL, is one
 * more product of h. Uses scratch->b and c. */
sl_status sl_feed_forward(sl_forward *f, const sl_weight *gate, const sl_weight *up,
                          const sl_weight *down, sl_projection beside, uint32_t n, float *out,
                          sl_error *err);

/* The experts of one token (moe_token.c): y into scratch->e, as sl_layer_moe() has it. */
sl_status sl_moe_token(sl_forward *f, uint32_t layer, uint32_t n_needed, sl_error *err);
/* The shared expert of scratch->h into out [n][d_model], and its gates [n], if it has them, as factors; uses
 * scratch->b and c. Then y += out, times the gates. */
sl_status sl_shared_expert(sl_forward *f, uint32_t layer, uint32_t n, float *out, float *gates,
                           sl_error *err);
void sl_add_shared_expert(sl_forward *f, uint32_t n, float *y, const float *out,
                          const float *gates);
/* Tell the source which experts the first layer from `layer` on that has some is likely to pick, by its router
 * on the state x [d_model] of an earlier one. Uses scratch->packed. */
void sl_guess_experts(sl_forward *f, uint32_t layer, const float *x);

/* The picks of one token (docs/numerics.md, "Router"), best first, with their weights. selection_bias
 * [n_experts] or NULL; choice [n_experts] is scratch. Clobbers logits. */
void sl_route(const sl_model *m, sl_backend *be, float *logits, const float *selection_bias,
              float *choice, uint32_t *picks, float *weights);
/* The first part of it: the best n (not only top_k), and logits as scores. */
void sl_choose(const sl_model *m, sl_backend *be, float *logits, const float *selection_bias,
               float *choice, uint32_t n, uint32_t *picks);

/* NULL for NULL. */
static inline const float *sl_vector(const sl_weight *w) {
    return w ? w->block : NULL;
}

#endif
