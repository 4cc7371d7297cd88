/* The router: which experts a token goes to, and with what weights. */
#include <string.h>

#include "model/layers.h"

/* The index of the largest of n values that is not taken, ties to the lower one. One is free. */
static uint32_t best_free(const float *value, const uint8_t *taken, uint32_t n) {
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || value[i] > value[best]))
            best = i;
    return best;
}

/* Take every expert whose group is not among the kept ones. A group counts as the sum of its two largest.
 * Source: DeepSeek-V3 (2024), node-limited routing. */
static void drop_groups(const sl_model *m, const float *choice, uint8_t *taken) {
    uint32_t in_group = m->moe.n_experts / m->moe.n_groups;
    float score[SL_GROUPS_MAX];
    uint8_t kept[SL_GROUPS_MAX] = {0};
    for (uint32_t g = 0; g < m->moe.n_groups; g++) {
        const float *c = choice + (size_t)g * in_group;
        uint8_t *used = taken + (size_t)g * in_group;
        uint32_t first = best_free(c, used, in_group);
        used[first] = 1;
        score[g] = c[first] + c[best_free(c, used, in_group)];
        used[first] = 0;
    }
    for (uint32_t i = 0; i < m->moe.groups_kept; i++)
        kept[best_free(score, kept, m->moe.n_groups)] = 1;
    for (uint32_t g = 0; g < m->moe.n_groups; g++)
        memset(taken + (size_t)g * in_group, !kept[g], in_group);
}

// exp(logit - largest), and what they are divided by: the sum over the picks, or over all experts.
static float softmax_weights(const sl_model *m, sl_backend *be, float *logits, float *weights) {
    float max = weights[0], sum = 0;
    for (uint32_t i = 0; i < m->moe.top_k; i++)
        weights[i] = weights[i] - max;
    be->ops->exp(be, weights, weights, m->moe.top_k);
    if (m->moe.renorm)
        return 0;
    for (uint32_t e = 0; e < m->moe.n_experts; e++)
        logits[e] = logits[e] - max;
    be->ops->exp(be, logits, logits, m->moe.n_experts);
    for (uint32_t e = 0; e < m->moe.n_experts; e++)
        sum = sum + logits[e];
    return sum;
}

void sl_choose(const sl_model *m, sl_backend *be, float *logits, const float *selection_bias,
               float *choice, uint32_t n, uint32_t *picks) {
    uint32_t n_experts = m->moe.n_experts;
    uint8_t taken[SL_EXPERTS_MAX] = {0};
    if (m->moe.score == SL_ROUTER_SIGMOID)
        be->ops->sigmoid(be, logits, logits, n_experts);
    for (uint32_t e = 0; e < n_experts; e++)
        choice[e] = selection_bias ? logits[e] + selection_bias[e] : logits[e];
    if (m->moe.n_groups > 1)
        drop_groups(m, choice, taken);
    for (uint32_t i = 0; i < n; i++) {
        picks[i] = best_free(choice, taken, n_experts);
        if (picks[i] == n_experts) // of groups that were dropped: any will do
            picks[i] = 0;
        taken[picks[i]] = 1;
    }
}

void sl_route(const sl_model *m, sl_backend *be, float *logits, const float *selection_bias,
              float *choice, uint32_t *picks, float *weights) {
    uint32_t top_k = m->moe.top_k;
    bool softmax = m->moe.score == SL_ROUTER_SOFTMAX;
    sl_choose(m, be, logits, selection_bias, choice, top_k, picks);
    for (uint32_t i = 0; i < top_k; i++)
        weights[i] = logits[picks[i]];
    float sum = softmax ? softmax_weights(m, be, logits, weights) : 1;
    if (m->moe.renorm) {
        sum = 0;
        for (uint32_t i = 0; i < top_k; i++)
            sum = sum + weights[i];
        sum = sum + m->moe.renorm_eps;
    }
    for (uint32_t i = 0; i < top_k; i++)
        weights[i] = weights[i] / sum * m->moe.route_scale;
}
