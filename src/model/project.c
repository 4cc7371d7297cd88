/* Products with trunk weights, wherever they are. */
#include "model/layers.h"

#define PROJECTIONS_MAX 8u

void sl_pack(sl_forward *f, const float *x, uint32_t n, uint32_t n_inputs) {
    f->backend->ops->pack(f->backend, &f->scratch->packed, x, n_inputs, n, n_inputs);
}

typedef struct strip_job {
    sl_forward *f;
    const sl_projection *p;
} strip_job;

static void use_strip(void *ctx, const sl_matrix *strip, uint32_t first_row) {
    const strip_job *j = ctx;
    sl_product product = {*strip, j->p->y + first_row, j->p->w->shape.rows};
    j->f->backend->ops->product(j->f->backend, &j->f->scratch->packed, &product, 1);
}

sl_status sl_project(sl_forward *f, const sl_projection *list, uint32_t n, sl_error *err) {
    sl_product resident[PROJECTIONS_MAX];
    uint32_t n_resident = 0;
    for (uint32_t i = 0; i < n; i++) {
        const sl_weight *w = list[i].w;
        if (!w->block)
            continue;
        sl_product *p = &resident[n_resident++];
        sl_matrix_bind(&p->w, &w->shape, &w->layout, w->block);
        p->y = list[i].y;
        p->y_stride = w->shape.rows;
    }
    if (n_resident)
        f->backend->ops->product(f->backend, &f->scratch->packed, resident, n_resident);
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].w->block)
            continue;
        strip_job job = {f, &list[i]};
        sl_status st = f->trunk->stream(f->trunk, list[i].w, use_strip, &job, err);
        if (st)
            return st;
    }
    return SL_OK;
}
