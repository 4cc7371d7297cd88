/* Which expert is worth a slot: the arithmetic of the hot tier, shared with its simulation (replay.h), so that
 * what is found by replaying is what the engine does.
 *
 * Every expert has a frequency f: it gains 1 per token that uses the expert and decays by SL_DECAY per token. The
 * weight W is what f would be, had every token used it. So p = f / W is the share of recent tokens that use the
 * expert, also while there are few, and it is expected back after
 *     u = ((layer - current - 1) mod n_layers) / n_layers + (1 - p) / p     tokens.
 *
 * A text changes its topic, and then what is remembered misleads. A token tells: the mean p of the experts
 * that it picks, taken before it counts, is its familiarity. Where that is below what is usual by more than
 * SL_CHANGE_SHARE of it and by more than SL_CHANGE_SPREAD standard deviations, time jumps by SL_CHANGE_TOKENS: what was
 * learned before still ranks what nothing newer is known about, and weighs little beside what comes. The spread
 * keeps models whose tokens differ a lot from being taken for models that change their topic.
 * docs/experiments.md has the alternatives, with numbers.
 *
 * Thread: the owner of the session. */
#ifndef SL_ENGINE_POLICY_H
#define SL_ENGINE_POLICY_H

#include <stdbool.h>

#include "base/attr.h"

#define SL_DECAY 0.985f
#define SL_DECAY_TABLE 1000u /* 0.985^1000 is nothing */
#define SL_CHANGE_SHARE 0.4f
#define SL_CHANGE_TOKENS 300u
#define SL_CHANGE_REST 4u /* tokens after a change that do not tell of another one */
#define SL_USUAL_AVERAGE 0.02f
#define SL_CHANGE_SPREAD 4.0f

typedef struct sl_policy {
    float decay[SL_DECAY_TABLE]; /* SL_DECAY^n */
    uint32_t clock;              /* tokens so far, and the jumps; modulo 2^32 */
    float weight;                /* W */
    float usual, variance;       /* of the familiarity, over some 50 tokens */
    float familiar;              /* of the token under way: the sum of p over n_picks */
    uint32_t n_picks;
    uint32_t since_change; /* tokens */
} sl_policy;

/* What is known about an expert. All zero at the start. */
typedef struct sl_use {
    float frequency; /* at `seen` */
    uint32_t seen;   /* the policy's clock at the last use */
} sl_use;

static inline void sl_policy_init(sl_policy *p) {
    *p = (sl_policy){.decay[0] = 1};
    for (uint32_t i = 1; i < SL_DECAY_TABLE; i++)
        p->decay[i] = p->decay[i - 1] * SL_DECAY;
}

static inline float sl_policy_decay(const sl_policy *p, uint32_t tokens) {
    return tokens < SL_DECAY_TABLE ? p->decay[tokens] : 0;
}

/* The share of recent tokens that use the expert. */
static inline float sl_policy_share(const sl_policy *p, const sl_use *use) {
    return p->weight > 0 ? use->frequency * sl_policy_decay(p, p->clock - use->seen) / p->weight
                         : 0;
}

/* n tokens are about to pass through all layers, together where n > 1. */
static inline void sl_policy_tick(sl_policy *p, uint32_t n_tokens) {
    uint32_t step = n_tokens;
    if (p->n_picks) {
        float familiar = p->familiar / (float)p->n_picks;
        float off = familiar - p->usual;
        if (p->usual == 0) {
            p->usual = p->since_change < SL_CHANGE_REST ? 0 : familiar;
        } else if (p->since_change < SL_CHANGE_REST) {
            // What a change leaves is unfamiliar for a while, and says nothing about what is usual.
        } else if (off < -SL_CHANGE_SHARE * p->usual &&
                   off * off > SL_CHANGE_SPREAD * SL_CHANGE_SPREAD * p->variance) {
            step += SL_CHANGE_TOKENS;
            p->since_change = 0;
        } else {
            p->usual += SL_USUAL_AVERAGE * off;
            p->variance += SL_USUAL_AVERAGE * (off * off - p->variance);
        }
    }
    p->familiar = 0;
    p->n_picks = 0;
    p->since_change += n_tokens;
    p->clock += step;
    // The newest n tokens weigh 1, SL_DECAY, SL_DECAY^2, ...
    p->weight =
        p->weight * sl_policy_decay(p, step) + (1 - sl_policy_decay(p, n_tokens)) / (1 - SL_DECAY);
}

/* The tokens of the last tick use the expert: `uses` of the n. As many single tokens with that share would move
 * f as far. */
static inline void sl_policy_count(sl_policy *p, sl_use *use, uint32_t uses, uint32_t n_tokens) {
    if (n_tokens == 1) { // a chunk's many experts say little about a change
        p->familiar += sl_policy_share(p, use);
        p->n_picks++;
    }
    use->frequency =
        use->frequency * sl_policy_decay(p, p->clock - use->seen) +
        (float)uses / (float)n_tokens * (1 - sl_policy_decay(p, n_tokens)) / (1 - SL_DECAY);
    use->seen = p->clock;
}

/* Expected number of tokens until the expert of that layer is asked for again, while `current` is served. */
static inline float sl_policy_wait(const sl_policy *p, const sl_use *use, uint32_t layer,
                                   uint32_t current, uint32_t n_layers) {
    uint32_t ahead = layer > current ? layer - current - 1 : layer + n_layers - current - 1;
    float share = sl_policy_share(p, use);
    share = share < 1e-6f ? 1e-6f : share > 1 ? 1 : share;
    return (float)ahead / (float)n_layers + (1 - share) / share;
}

#endif
