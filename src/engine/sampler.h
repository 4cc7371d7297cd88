/* Choosing the next token from logits.
 *
 * Order: biases, penalties, the mask, temperature, top-k, top-p, min-p, softmax, draw. The draw is a counter-based
 * generator keyed by seed and position, so a token depends on its logits, seed and position alone.
 * Every comparison breaks ties towards the lower id. docs/numerics.md, "Sampling". */
#ifndef SL_ENGINE_SAMPLER_H
#define SL_ENGINE_SAMPLER_H

#include <stdbool.h>

#include "backend/backend.h"

typedef struct sl_sampler_params {
    float temperature;       /* 0: greedy */
    uint32_t top_k;          /* 0: off */
    float top_p;             /* 1: off */
    float min_p;             /* 0: off */
    float presence_penalty;  /* 0: off; on tokens of the answer */
    float frequency_penalty; /* 0: off; for each time that a token is in the answer */
    float repeat_penalty;    /* 1: off; on tokens of prompt and answer */
    uint64_t seed;
    const uint32_t *bias_ids; /* [n_bias] below n_vocab */
    const float *bias;        /* [n_bias] added to their logits */
    size_t n_bias;
    /* Bit id % 32 of word id / 32: the token may be chosen. At least one. NULL: all. */
    const uint32_t *mask;
} sl_sampler_params;

typedef struct sl_sampler {
    uint32_t n_vocab;
    float *logits;  /* [n_vocab] working copy */
    uint32_t *ids;  /* [n_vocab] candidates */
    uint32_t *seen; /* [n_vocab] SL_SEEN_* bits, and above them how often it is in the answer */
} sl_sampler;

#define SL_SEEN_PROMPT 1u
#define SL_SEEN_ANSWER 2u

/* memory: n_vocab * 12 bytes, zeroed. */
void sl_sampler_init(sl_sampler *s, uint32_t n_vocab, void *memory);
void sl_sampler_reset(sl_sampler *s);
void sl_sampler_see(sl_sampler *s, uint32_t token, uint32_t bit);
/* What was an answer so far is prompt from now on. */
void sl_sampler_begin_answer(sl_sampler *s);
/* position: the index in the sequence that the token will have. false when a logit is infinite or NaN. */
bool sl_sampler_pick(sl_sampler *s, sl_backend *backend, const float *logits,
                     const sl_sampler_params *p, uint32_t position, uint32_t *token);

/* Logarithms of softmax(logits), of the model's own logits: of `token`, and the n_top most likely ids with theirs, best
 * first (n_top <= SL_LOGPROBS_MAX, ids below n_vocab). Overwrites the working copy. */
#define SL_LOGPROBS_MAX 20u
float sl_sampler_logprobs(sl_sampler *s, sl_backend *backend, const float *logits, uint32_t token,
                          uint32_t n_top, uint32_t *top_ids, float *top);

/* Uniform in [0, 1), 53 bits, from a key and a counter. */
double sl_random_unit(uint64_t seed, uint64_t counter);

#endif
