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
    for (uint32_t i = 0; i < n; i++)
        if (list[i].bias)
            f->backend->ops->add_rows(f->backend, list[i].y, sl_vector(list[i].bias),
                                      f->scratch->packed.n, list[i].w->shape.rows);
    return SL_OK;
}

typedef struct head_job {
    sl_backend *backend;
    const sl_head_product *step;
} head_job;

static void use_head_strip(void *ctx, const sl_matrix *strip, uint32_t first_row) {
    const head_job *j = ctx;
    sl_head_product p = *j->step;
    p.w = *strip;
    p.first_row = first_row;
    j->backend->ops->head_product(j->backend, &p);
}

sl_status sl_project_heads(sl_forward *f, const sl_weight *w, const sl_head_product *step,
                           sl_error *err) {
    head_job job = {f->backend, step};
    if (!w->block)
        return f->trunk->stream(f->trunk, w, use_head_strip, &job, err);
    sl_matrix whole;
    sl_matrix_bind(&whole, &w->shape, &w->layout, w->block);
    use_head_strip(&job, &whole, 0);
    return SL_OK;
}

sl_status sl_feed_forward(sl_forward *f, const sl_weight *gate, const sl_weight *up,
                          const sl_weight *down, sl_projection beside, uint32_t n, float *out,
                          sl_error *err) {
    sl_scratch *s = f->scratch;
    uint32_t inner = gate->shape.rows;
    sl_pack(f, s->h, n, f->model->d_model);
    const sl_projection in[] = {{gate, NULL, s->b}, {up, NULL, s->c}, beside};
    sl_status st = sl_project(f, in, beside.w ? 3 : 2, err);
    if (st)
        return st;
    f->backend->ops->silu_mul(f->backend, s->b, s->b, s->c, (size_t)n * inner);
    sl_pack(f, s->b, n, inner);
    return sl_project(f, &(sl_projection){down, NULL, out}, 1, err);
}
