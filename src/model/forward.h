/* One chunk of tokens through the layers.
 *
 * The chunk's activations live in a scratch area that is laid out once, by the same function that tells
 * the plan its size. State (key/value cache, recurrent state) belongs to the session and is laid out the
 * same way. Results for a token do not depend on how tokens are cut into chunks. */
#ifndef SL_MODEL_FORWARD_H
#define SL_MODEL_FORWARD_H

#include "backend/backend.h"
#include "model/expert_source.h"
#include "model/weights.h"

/* ---- state of a sequence -------------------------------------------------------------------- */

typedef struct sl_state {
    uint32_t n_ctx, n_past; /* capacity, and tokens computed so far */
    float *kv;              /* layer after layer, see sl_state_kv() */
    float *recurrent;       /* likewise */
} sl_state;

/* Bytes of the key/value cache and of the recurrent state, exactly. Pure.
 * Per layer the cache holds: attention K and then V, [n_kv_heads][rows][d_head] each, rows = n_ctx or, with a
 * sliding window, sl_window_ring(); MLA [n_ctx][d_latent + d_rope]; the others nothing. Recurrent state: the
 * delta rule [conv_width - 1][channels] last inputs and [n_v_heads][sl_delta_state_floats]; a short
 * convolution [width - 1][d_model]. */
uint64_t sl_kv_bytes(const sl_model *model, uint32_t n_ctx);
uint64_t sl_recurrent_bytes(const sl_model *model);
/* kv and recurrent: zeroed memory of those sizes, 64-byte aligned. */
void sl_state_bind(sl_state *state, uint32_t n_ctx, void *kv, void *recurrent);
/* What a layer has of each. 64-byte aligned. */
float *sl_state_kv(const sl_state *state, const sl_model *model, uint32_t layer);
float *sl_state_recurrent(const sl_state *state, const sl_model *model, uint32_t layer);
/* Forget everything: recurrent state to zero. The key/value cache needs no clearing. */
void sl_state_reset(sl_state *state, const sl_model *model);

/* Copies: what n_past tokens have left, without the rest of the context. A copy fits any state of the same model and
 * n_ctx. Pure but for the memory that is named. copy: of sl_state_copy_bytes(), aligned to 4. */
uint64_t sl_state_copy_bytes(const sl_state *state, const sl_model *model);
void sl_state_copy(const sl_state *state, const sl_model *model, void *copy);
/* n_past: of the state when it was copied. */
void sl_state_restore(sl_state *state, const sl_model *model, uint32_t n_past, const void *copy);
/* Whether a smaller n_past alone takes the last tokens back: every layer keeps all positions apart. */
bool sl_state_can_shorten(const sl_state *state, const sl_model *model);

/* ---- scratch -------------------------------------------------------------------------------- */

typedef struct sl_scratch {
    uint32_t chunk;                /* tokens that it is laid out for */
    float *x, *h;                  /* [chunk][d_model]: the residual stream, a normed copy */
    float *cos, *sin;              /* [chunk][n_rot / 2] */
    sl_packed packed;              /* of h, and of whatever enters a projection */
    float *a, *b, *c, *d, *e;      /* the layer kinds' own, see each layer's file; they overlap */
    float *logits;                 /* [n_vocab] */
    uint32_t *picks;               /* [chunk][top_k] expert ids, best first */
    float *pick_weights;           /* [chunk][top_k] */
    float *choice;                 /* [n_experts] what the router chooses by */
    float *guess_x, *guess_logits; /* [d_model], [n_experts]: of the next layer's guess */
    uint32_t *order;               /* [chunk * top_k] tokens, grouped by expert */
    float *order_weights;          /* the same order */
    uint32_t *experts, *n_uses, *first_use; /* [n_experts]: needed ones, ascending */
} sl_scratch;

/* Bytes for a chunk; and the layout over a block of that size (64-byte aligned). Pure. */
uint64_t sl_scratch_bytes(const sl_model *model, uint32_t chunk);
void sl_scratch_bind(sl_scratch *scratch, const sl_model *model, uint32_t chunk, void *block);

/* ---- forward -------------------------------------------------------------------------------- */

typedef struct sl_times {
    double mixer, router, experts, head; /* seconds, summed */
} sl_times;

typedef struct sl_forward {
    const sl_model *model;
    const sl_weights *weights;
    sl_backend *backend;
    sl_trunk_source *trunk;
    sl_expert_source *experts;
    sl_scratch *scratch;
    sl_state *state;
    sl_times *times;
    /* Asked between layers; true stops with SL_ERR_CANCELED. */
    bool (*canceled)(void *user);
    /* Told after each layer but the last: how many of them the chunk has passed. May be NULL. */
    void (*passed)(void *user, uint32_t n_layers);
    /* Called with the embeddings (layer 0) and after each layer l (l + 1): x [n_tokens][d_model]. May be NULL. */
    void (*hidden)(void *user, uint32_t layer, const float *x, uint32_t n_tokens);
    void *user;
} sl_forward;

/* Compute n tokens (1..scratch->chunk) whose embeddings are in scratch->x, at positions
 * state->n_past.. ; on success state->n_past has grown by n and scratch->x holds the last layer's
 * residual stream. On an error the state is no longer usable: reset it. */
SL_MUST_USE sl_status sl_forward_chunk(sl_forward *f, uint32_t n, sl_error *err);

/* Logits of token t of the last chunk into scratch->logits. */
SL_MUST_USE sl_status sl_forward_logits(sl_forward *f, uint32_t t, sl_error *err);

#endif
