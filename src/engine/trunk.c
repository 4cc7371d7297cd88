/* See trunk.h. */
#include "engine/trunk.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "plan/plan.h"

/* ---- loading ------------------------------------------------------------------------------------- */

static void bind(sl_layer_weights *layers, sl_weights *out, const sl_weight *w) {
    switch (w->role) {
    case SL_ROLE_NORM_FINAL:
        out->norm_final = w;
        break;
    case SL_ROLE_HEAD:
        out->head = w;
        break;
    default:
        layers[w->layer].role[w->role] = w;
    }
}

/* A tensor's name for messages: "layer 3 router", or "head". Returns its layer, -1 for those of none. */
static int32_t name_tensor(sl_role role, uint32_t layer, char *out, size_t cap) {
    if (role == SL_ROLE_HEAD || role == SL_ROLE_NORM_FINAL) {
        (void)snprintf(out, cap, "%s", sl_role_name(role));
        return -1;
    }
    (void)snprintf(out, cap, "layer %u %s", layer, sl_role_name(role));
    return (int32_t)layer;
}

sl_status sl_trunk_load(const sl_store *store, const uint8_t *resident, void *tables,
                        sl_arena *trunk, sl_arena *head, sl_loader *loader, sl_in_place *in,
                        sl_weights *out, sl_error *err) {
    sl_weight *weights = tables;
    sl_layer_weights *layers =
        (sl_layer_weights *)((uint8_t *)tables +
                             SL_ALIGN_UP((uint64_t)store->n_tensors * sizeof(*weights), 64));
    memset(out, 0, sizeof(*out));
    out->layers = layers;
    for (uint32_t i = 0; i < store->n_tensors; i++) {
        const sl_store_tensor *t = &store->tensors[i];
        sl_arena *arena = t->role == SL_ROLE_HEAD ? head : trunk;
        uint8_t *block = NULL;
        char what[64];
        if (resident[i] &&
            !(block = sl_arena_alloc(arena, (size_t)sl_plan_tensor_bytes(t), SL_MATRIX_ALIGN)))
            return sl_arena_full(arena, (size_t)t->layout.bytes, err);
        int32_t layer = name_tensor(t->role, t->layer, what, sizeof(what));
        sl_status st = SL_OK;
        if (!in)
            st = sl_load(loader, &store->trunk, SL_STORE_TRUNK, what, t->offset, t->layout.bytes,
                         block, t->hash, err);
        else if (block)
            st = sl_in_place_tensor(in, i, block, err);
        if (st) {
            if (err)
                err->layer = layer;
            return st;
        }
        weights[i] = (sl_weight){t->role, t->layer, t->shape, t->layout, block, i};
        bind(layers, out, &weights[i]);
    }
    return SL_OK;
}

/* ---- streaming ------------------------------------------------------------------------------------- */

typedef struct strip {
    uint32_t first_row, n_rows, n_parts;
    sl_read reads[SL_STRIP_PARTS];
    uint32_t least[SL_STRIP_PARTS]; /* bytes that a read must bring */
    uint32_t file[SL_STRIP_PARTS];
    uint32_t skip[SL_STRIP_PARTS]; /* bytes of the first page before the part's first byte */
    uint64_t at[SL_STRIP_PARTS];   /* where a part's pages are in the buffer */
} strip;

// Pages that hold `bytes` bytes, wherever they begin.
static uint64_t span_max(uint64_t bytes) {
    return SL_ALIGN_UP(bytes, SL_PAGE) + SL_PAGE;
}

static void begin_strip(sl_trunk *t, const sl_weight *w, uint32_t first_row, uint32_t n_rows,
                        uint8_t *buffer, strip *s) {
    const sl_matrix_layout *l = &w->layout;
    const uint64_t row_bytes[SL_STRIP_PARTS] = {l->row_code_bytes, l->row_scale_bytes,
                                                l->row_bias_bytes};
    uint64_t at = 0;
    memset(s, 0, sizeof(*s));
    s->first_row = first_row;
    s->n_rows = n_rows;
    for (uint32_t i = 0; i < SL_STRIP_PARTS && row_bytes[i]; i++) {
        const sl_part_place part = sl_store_tensor_part(&t->store->tensors[w->index], i);
        uint64_t offset = part.at + first_row * row_bytes[i], bytes = n_rows * row_bytes[i];
        uint64_t from = offset / SL_PAGE * SL_PAGE;
        s->skip[i] = (uint32_t)(offset - from);
        s->at[i] = at;
        const sl_file *file = sl_store_file(t->store, part.file);
        s->reads[i] = (sl_read){.fd = file->fd,
                                .n_bytes = (uint32_t)(SL_ALIGN_UP(offset + bytes, SL_PAGE) - from),
                                .offset = from,
                                .buf = buffer + at};
        s->file[i] = part.file;
        s->least[i] = sl_file_has(file, from, s->reads[i].n_bytes);
        at += span_max(bytes);
        sl_reader_submit(t->reader, &s->reads[i]);
        s->n_parts++;
    }
}

static sl_status finish_strip(sl_trunk *t, const sl_weight *w, strip *s, sl_error *err) {
    double begin = sl_now();
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        sl_read *r = &s->reads[i];
        sl_reader_wait(t->reader, r);
        if (r->result > 0)
            t->read_bytes += (uint64_t)r->result;
        if (st || r->result >= (int32_t)s->least[i])
            continue;
        char what[64], file[64];
        int32_t layer = name_tensor(w->role, w->layer, what, sizeof(what));
        sl_store_file_name(t->store, sl_store_tensor_part(&t->store->tensors[w->index], i).file,
                           file, sizeof(file));
        st =
            sl_fail_at(err, SL_ERR_IO, layer, -1, r->offset, "%s: %s: reading %u bytes at %llu: %s",
                       file, what, r->n_bytes, (unsigned long long)r->offset,
                       r->result < 0 ? sl_errno_text(-r->result) : "the file was cut short");
    }
    t->wait_seconds += sl_now() - begin;
    return st;
}

static sl_status stream(sl_trunk_source *source, const sl_weight *w,
                        void (*use)(void *ctx, const sl_matrix *strip, uint32_t first_row),
                        void *ctx, sl_error *err) {
    sl_trunk *t = (sl_trunk *)source;
    uint32_t step = sl_plan_strip_rows(&w->layout, w->shape.rows, t->strip_bytes), which = 0;
    strip strips[2];
    begin_strip(t, w, 0, step, t->strips[0], &strips[0]);
    for (uint32_t row = 0; row < w->shape.rows; row += step, which ^= 1) {
        strip *s = &strips[which];
        uint32_t next = row + step;
        sl_status st = finish_strip(t, w, s, err);
        if (st)
            return st;
        if (t->canceled && t->canceled(t->user))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        if (next < w->shape.rows)
            begin_strip(t, w, next, SL_MIN(step, w->shape.rows - next), t->strips[which ^ 1],
                        &strips[which ^ 1]);
        sl_matrix m = {.shape = w->shape};
        m.shape.rows = s->n_rows;
        m.codes = t->strips[which] + s->at[0] + s->skip[0];
        if (s->n_parts > 1)
            m.scales = t->strips[which] + s->at[1] + s->skip[1];
        if (s->n_parts > 2)
            m.biases = t->strips[which] + s->at[2] + s->skip[2];
        use(ctx, &m, s->first_row);
    }
    return SL_OK;
}

void sl_trunk_init(sl_trunk *t, const sl_store *store, sl_reader *reader, void *strips,
                   uint64_t strip_bytes) {
    memset(t, 0, sizeof(*t));
    t->base.stream = stream;
    t->store = store;
    t->reader = reader;
    t->strips[0] = strips;
    t->strips[1] = (uint8_t *)strips + strip_bytes;
    t->strip_bytes = strip_bytes;
}
