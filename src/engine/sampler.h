/* Choosing the next token from logits.
 *
 * Order: penalties, temperature, top-k, top-p, min-p, softmax, draw. The draw is a counter-based
 * generator keyed by seed and position, so a token depends on its logits, seed and position alone.
 * Every comparison breaks ties towards the lower id. docs/numerics.md, "Sampling". */
#ifndef SL_ENGINE_SAMPLER_H
#define SL_ENGINE_SAMPLER_H

#include <stdbool.h>

#include "backend/backend.h"

typedef struct sl_sampler_params {
    float temperature;      /* 0: greedy */
    uint32_t top_k;         /* 0: off */
    float top_p;            /* 1: off */
    float min_p;            /* 0: off */
    float presence_penalty; /* 0: off; on tokens of the answer */
    float repeat_penalty;   /* 1: off; on tokens of prompt and answer */
    uint64_t seed;
} sl_sampler_params;

typedef struct sl_sampler {
    uint32_t n_vocab;
    float *logits;  /* [n_vocab] working copy */
    uint32_t *ids;  /* [n_vocab] candidates */
    uint32_t *seen; /* [n_vocab] SL_SEEN_* bits */
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

/* Uniform in [0, 1), 53 bits, from a key and a counter. */
double sl_random_unit(uint64_t seed, uint64_t counter);

#endif
