/* Layer kind: Gated DeltaNet (Yang et al. 2024), a linear attention with a fixed-size state.
 *
 *   qkv, z, a, b = projections of h;  qkv through a causal convolution and SiLU;  q, k to unit length;
 *   the gated delta rule per value head;  norm, gate by silu(z);  output projection, added to x.
 *
 * Scratch: a = qkv [n][channels], b = mixed [n][channels], c = z [n][n_v_heads * d_v] and then the
 *          projected output [n][d_model], d = rule's output [n][n_v_heads * d_v],
 *          e = a, b, decay, beta [n][n_v_heads] each. */
#include "model/layers.h"

uint64_t sl_delta_tail_floats(const sl_model *m) {
    return SL_ALIGN_UP((uint64_t)(m->delta.conv_width - 1) * sl_model_conv_channels(m), 16);
}

sl_layer_scratch sl_layer_delta_scratch(const sl_model *m, uint32_t chunk) {
    uint64_t n = chunk, channels = sl_model_conv_channels(m),
             v = (uint64_t)m->delta.n_v_heads * m->delta.d_v;
    return (sl_layer_scratch){n * channels, n * channels, n * SL_MAX(v, m->d_model), n * v,
                              n * 4 * m->delta.n_v_heads};
}

sl_status sl_layer_delta(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_model *m = f->model;
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    size_t gates = (size_t)n * m->delta.n_v_heads;
    float *state = sl_state_recurrent(f->state, m, layer);
    sl_status st;

    sl_pack(f, s->h, n, m->d_model);
    const sl_projection in[] = {{w[SL_ROLE_DELTA_QKV], NULL, s->a},
                                {w[SL_ROLE_DELTA_Z], NULL, s->c},
                                {w[SL_ROLE_DELTA_A], NULL, s->e},
                                {w[SL_ROLE_DELTA_B], NULL, s->e + gates}};
    if ((st = sl_project(f, in, SL_COUNT(in), err)))
        return st;

    const sl_delta_step step = {
        .n_tokens = n,
        .n_k_heads = m->delta.n_k_heads,
        .n_v_heads = m->delta.n_v_heads,
        .d_k = m->delta.d_k,
        .d_v = m->delta.d_v,
        .conv_width = m->delta.conv_width,
        .norm_eps = m->norm_eps,
        .taps = sl_vector(w[SL_ROLE_DELTA_CONV]),
        .a_log = sl_vector(w[SL_ROLE_DELTA_A_LOG]),
        .dt_bias = sl_vector(w[SL_ROLE_DELTA_DT_BIAS]),
        .norm = sl_vector(w[SL_ROLE_DELTA_NORM]),
        .qkv = s->a,
        .z = s->c,
        .a = s->e,
        .b = s->e + gates,
        .mixed = s->b,
        .decay = s->e + 2 * gates,
        .beta = s->e + 3 * gates,
        .tail = state,
        .state = state + sl_delta_tail_floats(m),
        .out = s->d,
    };
    f->backend->ops->delta(f->backend, &step);

    sl_pack(f, s->d, n, m->delta.n_v_heads * m->delta.d_v);
    if ((st = sl_project(f, &(sl_projection){w[SL_ROLE_DELTA_OUT], NULL, s->c}, 1, err)))
        return st;
    f->backend->ops->add(f->backend, s->x, s->c, (size_t)n * m->d_model);
    return SL_OK;
}
