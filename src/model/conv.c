/* Layer kind: a gated short convolution (LFM2), whose state is its last inputs.
 *
 *   B, C, x = projections of h;  u = B * x;  c = causal depthwise convolution of u;  output projection of
 *   C * c, added to the residual stream.
 *
 * Scratch: a = B, C, x [n][3 * d_model], b = C * c [n][d_model], c = projected output [n][d_model]. */
#include "model/layers.h"

sl_layer_scratch sl_layer_conv_scratch(const sl_model *m, uint32_t chunk) {
    uint64_t n = (uint64_t)chunk * m->d_model;
    return (sl_layer_scratch){3 * n, n, n, 0, 0};
}

sl_status sl_layer_conv(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    const sl_projection in = {w[SL_ROLE_CONV_IN], w[SL_ROLE_CONV_IN_BIAS], s->a},
                        out = {w[SL_ROLE_CONV_OUT], w[SL_ROLE_CONV_OUT_BIAS], s->c};
    sl_status st;

    sl_pack(f, s->h, n, m->d_model);
    if ((st = sl_project(f, &in, 1, err)))
        return st;
    const sl_short_conv_step step = {
        .n_tokens = n,
        .n_channels = m->d_model,
        .width = m->conv.width,
        .taps = sl_vector(w[SL_ROLE_CONV_TAPS]),
        .bias = sl_vector(w[SL_ROLE_CONV_BIAS]),
        .bcx = s->a,
        .tail = sl_state_recurrent(f->state, m, layer),
        .out = s->b,
    };
    f->backend->ops->short_conv(f->backend, &step);
    sl_pack(f, s->b, n, m->d_model);
    if ((st = sl_project(f, &out, 1, err)))
        return st;
    f->backend->ops->add(f->backend, s->x, s->c, (size_t)n * m->d_model);
    return SL_OK;
}
