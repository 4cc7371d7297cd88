/* Layer kind: a dense feed-forward layer, SwiGLU. Scratch: as sl_feed_forward(), d = its output. */
#include "base/clock.h"
#include "model/layers.h"

sl_status sl_layer_dense(sl_forward *f, uint32_t layer, uint32_t n, sl_error *err) {
    const sl_weight *const *w = f->weights->layers[layer].role;
    sl_scratch *s = f->scratch;
    double begin = sl_now();
    sl_status st = sl_feed_forward(f, w[SL_ROLE_DENSE_GATE_PROJ], w[SL_ROLE_DENSE_UP_PROJ],
                                   w[SL_ROLE_DENSE_DOWN_PROJ], (sl_projection){0}, n, s->d, err);
    if (st)
        return st;
    f->backend->ops->add(f->backend, s->x, s->d, (size_t)n * f->model->d_model);
    f->times->experts += sl_now() - begin;
    return SL_OK;
}
