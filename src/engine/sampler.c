/* See sampler.h. Candidates are taken from a heap one by one, best first, so that a cut after a few of
 * them costs little whatever the vocabulary's size. */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

#define SEEN_TIMES 4u /* one time in the answer */

void sl_sampler_init(sl_sampler *s, uint32_t n_vocab, void *memory) {
    s->n_vocab = n_vocab;
    s->logits = memory;
    s->ids = (uint32_t *)memory + n_vocab;
    s->seen = s->ids + n_vocab;
}

void sl_sampler_reset(sl_sampler *s) {
    memset(s->seen, 0, s->n_vocab * sizeof(*s->seen));
}

void sl_sampler_see(sl_sampler *s, uint32_t token, uint32_t bit) {
    s->seen[token] |= bit;
    if (bit == SL_SEEN_ANSWER && s->seen[token] <= UINT32_MAX - SEEN_TIMES)
        s->seen[token] += SEEN_TIMES;
}

// The finalizer of SplitMix64 (Steele, Lea & Flood 2014).
static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double sl_random_unit(uint64_t seed, uint64_t counter) {
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
    uint64_t bits = mix(key ^ mix((counter + 1) * 0x9e3779b97f4a7c15u));
    return (double)(bits >> 11) * 0x1p-53;
}

static void penalize(sl_sampler *s, const sl_sampler_params *p) {
    for (size_t i = 0; i < p->n_bias; i++)
        s->logits[p->bias_ids[i]] += p->bias[i];
    if (p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0)
        return;
    for (uint32_t i = 0; i < s->n_vocab; i++) {
        if (!s->seen[i])
            continue;
        if (p->repeat_penalty != 1)
            s->logits[i] = s->logits[i] > 0 ? s->logits[i] / p->repeat_penalty
                                            : s->logits[i] * p->repeat_penalty;
        uint32_t times = s->seen[i] / SEEN_TIMES;
        if (s->seen[i] & SL_SEEN_ANSWER)
            s->logits[i] = s->logits[i] - p->presence_penalty - p->frequency_penalty * (float)times;
    }
}

// What is not allowed has no weight at all: e^-inf is 0.
static void apply_mask(sl_sampler *s, const uint32_t *mask) {
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (!(mask[i / 32] >> i % 32 & 1))
            s->logits[i] = -INFINITY;
}

static uint32_t argmax(const sl_sampler *s) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < s->n_vocab; i++)
        if (s->logits[i] > s->logits[best])
            best = i;
    return best;
}

/* ---- the heap: ids ordered by logit, ties to the lower id ---------------------------------------- */

static bool better(const sl_sampler *s, uint32_t a, uint32_t b) {
    return s->logits[a] > s->logits[b] || (s->logits[a] == s->logits[b] && a < b);
}

static void sift(const sl_sampler *s, uint32_t *heap, uint32_t n, uint32_t at) {
    uint32_t id = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && better(s, heap[child + 1], heap[child]))
            child++;
        if (!better(s, heap[child], id))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = id;
}

// Removes the best and keeps it behind the heap's end: afterwards ids[n - 1] is that one.
static uint32_t pop(sl_sampler *s, uint32_t n) {
    uint32_t best = s->ids[0];
    s->ids[0] = s->ids[n - 1];
    s->ids[n - 1] = best;
    sift(s, s->ids, n - 1, 0);
    return best;
}

// True when no logit is infinite or NaN: exponents are not all ones.
static bool all_finite(const float *logits, uint32_t n) {
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof(bits));
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}

bool sl_sampler_pick(sl_sampler *s, sl_backend *backend, const float *logits,
                     const sl_sampler_params *p, uint32_t position, uint32_t *token) {
    uint32_t n = s->n_vocab;
    *token = 0;
    if (!all_finite(logits, n))
        return false;
    memcpy(s->logits, logits, n * sizeof(*logits));
    penalize(s, p);
    if (p->mask)
        apply_mask(s, p->mask);
    uint32_t best = argmax(s);
    *token = best;
    if (p->temperature <= 0)
        return true;
    float max = s->logits[best];
    for (uint32_t i = 0; i < n; i++)
        s->logits[i] = (s->logits[i] - max) / p->temperature;

    for (uint32_t i = 0; i < n; i++)
        s->ids[i] = i;
    for (uint32_t i = n / 2; i-- > 0;)
        sift(s, s->ids, n, i);

    // Weights e^l are softmax but for the sum. With top-k, the k best and their mass.
    uint32_t left = n, k = p->top_k && p->top_k < n ? p->top_k : n;
    double mass = 0;
    if (k < n) {
        for (uint32_t i = 0; i < k; i++) {
            float w;
            backend->ops->exp(backend, &w, &s->logits[pop(s, left--)], 1);
            mass += (double)w;
        }
    } else {
        backend->ops->exp(backend, s->logits, s->logits, n);
        for (uint32_t i = 0; i < n; i++)
            mass += (double)s->logits[i];
        for (uint32_t i = n / 2; i-- > 0;)
            sift(s, s->ids, n, i); // logits that differ may have equal weights: order those by id
    }

    // Candidates best first, until top-p is reached or min-p ends them; kept in ids from the back.
    double kept = 0;
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t id = k < n ? s->ids[n - 1 - i] : pop(s, left--);
        float w = s->logits[id];
        if (k < n) {
            backend->ops->exp(backend, &w, &w, 1);
            s->logits[id] = w;
        }
        if (i > 0 && (w == 0 || w < p->min_p || kept >= (double)p->top_p * mass))
            break;
        kept += (double)w;
        n_kept++;
    }

    double at = sl_random_unit(p->seed, position) * kept;
    for (uint32_t i = 0; i < n_kept; i++) {
        *token = s->ids[n - 1 - i];
        at -= (double)s->logits[*token];
        if (at < 0)
            break;
    }
    return true;
}

// Ids [0, n_top) become the most likely ones, best first, by insertion: n_top is small.
static void find_top(const float *logits, uint32_t n, uint32_t n_top, uint32_t *ids) {
    uint32_t n_kept = 0;
    for (uint32_t i = 0; i < n && n_top; i++) {
        if (n_kept == n_top && !(logits[i] > logits[ids[n_top - 1]]))
            continue;
        uint32_t at = n_kept < n_top ? n_kept++ : n_top - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
}

float sl_sampler_logprobs(sl_sampler *s, sl_backend *backend, const float *logits, uint32_t token,
                          uint32_t n_top, uint32_t *top_ids, float *top) {
    uint32_t n = s->n_vocab;
    float max = logits[0];
    for (uint32_t i = 1; i < n; i++)
        max = SL_MAX(max, logits[i]);
    for (uint32_t i = 0; i < n; i++)
        s->logits[i] = logits[i] - max;
    backend->ops->exp(backend, s->logits, s->logits, n);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)s->logits[i];
    double all = (double)max + sl_log64(sum);
    find_top(logits, n, n_top, top_ids);
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = (float)((double)logits[top_ids[i]] - all);
    return (float)((double)logits[token] - all);
}

void sl_sampler_begin_answer(sl_sampler *s) {
    for (uint32_t i = 0; i < s->n_vocab; i++)
        s->seen[i] = s->seen[i] ? SL_SEEN_PROMPT : 0;
}
