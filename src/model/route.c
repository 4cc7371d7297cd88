/* The router: which experts a token goes to, and with what weights. */
#include "model/layers.h"

void sl_route(const sl_model *m, sl_backend *backend, float *logits, uint32_t *picks,
              float *weights) {
    uint32_t n_experts = m->moe.n_experts, top_k = m->moe.top_k;
    for (uint32_t i = 0; i < top_k; i++) {
        uint32_t best = n_experts;
        for (uint32_t e = 0; e < n_experts; e++) {
            bool taken = false;
            for (uint32_t j = 0; j < i; j++)
                taken |= picks[j] == e;
            if (!taken && (best == n_experts || logits[e] > logits[best]))
                best = e;
        }
        picks[i] = best;
        weights[i] = logits[best];
    }
    float max = weights[0];
    for (uint32_t i = 0; i < top_k; i++)
        weights[i] = weights[i] - max;
    backend->ops->exp(backend, weights, weights, top_k);
    float sum = 0;
    if (m->moe.renorm) {
        for (uint32_t i = 0; i < top_k; i++)
            sum = sum + weights[i];
    } else {
        for (uint32_t e = 0; e < n_experts; e++)
            logits[e] = logits[e] - max;
        backend->ops->exp(backend, logits, logits, n_experts);
        for (uint32_t e = 0; e < n_experts; e++)
            sum = sum + logits[e];
    }
    for (uint32_t i = 0; i < top_k; i++)
        weights[i] = weights[i] / sum * m->moe.route_scale;
}
