/* Embedding rows: read for the tokens of a chunk, a few in flight, unless they are among the recent ones. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

static sl_status fill(sl_engine *e, sl_loader *loader, sl_in_place *in, bool all, sl_error *err) {
    const sl_embed_layout *l = &e->store.embed;
    if (!in)
        return sl_load(loader, &e->store.embed_file, SL_STORE_EMBED, "the embedding", 0,
                       l->stride * l->shape.rows, all ? e->rows.cache : NULL, l->hash, err);
    return all ? sl_in_place_embedding(in, e->rows.cache, err) : SL_OK;
}

sl_status sl__rows_init(sl_engine *e, sl_loader *loader, sl_in_place *in, sl_error *err) {
    const sl_embed_layout *l = &e->store.embed;
    sl_rows *r = &e->rows;
    r->buffers = e->account[SL_ACCOUNT_EMBEDDING].base;
    r->cache = r->buffers + e->plan.row_buffers * e->plan.row_buffer_bytes;
    r->n_cached = e->plan.row_cache;
    r->cached = (uint32_t *)(r->cache + r->n_cached * l->stride);
    bool all = r->n_cached == l->shape.rows;
    sl_status st = fill(e, loader, in, all, err);
    for (uint32_t i = 0; !st && all && i < l->shape.rows; i++)
        r->cached[i] = i + 1;
    return st;
}

static uint8_t *find(const sl_engine *e, uint32_t token) {
    const sl_rows *r = &e->rows;
    if (r->n_cached == 0 || r->cached[token % r->n_cached] != token + 1)
        return NULL;
    return r->cache + token % r->n_cached * e->store.embed.stride;
}

// Where a row goes on its way to x: into the cache, where there is one.
static uint8_t *keep(sl_engine *e, uint32_t token) {
    sl_rows *r = &e->rows;
    r->cached[token % r->n_cached] = token + 1;
    return r->cache + token % r->n_cached * e->store.embed.stride;
}

static void widen(sl_engine *e, const sl_matrix *row, float *x) {
    e->backend.base.ops->row(&e->backend.base, row, 0, x);
}

static void widen_record(sl_engine *e, const uint8_t *record, float *x) {
    sl_matrix row;
    sl_embed_bind(&e->store.embed, record, &row);
    widen(e, &row, x);
}

/* Bytes of the parts of a row: in a store they lie together in its record. */
static uint32_t row_parts(const sl_store *store, uint64_t bytes[SL_TENSOR_PARTS]) {
    const sl_embed_layout *l = &store->embed;
    memset(bytes, 0, SL_TENSOR_PARTS * sizeof(*bytes));
    if (!store->in_place) {
        bytes[0] = l->stride;
        return 1;
    }
    bytes[0] = l->scales_at;
    bytes[1] = l->biases_at - l->scales_at;
    bytes[2] = l->row_bytes - l->biases_at;
    return bytes[2] ? 3 : bytes[1] ? 2 : 1;
}

static const sl_file *row_file(const sl_store *store, uint32_t part) {
    return store->in_place ? sl_store_file(store, store->in_place->embed[part].file)
                           : &store->embed_file;
}

static void submit(sl_engine *e, uint32_t token, sl_row_read *row, uint8_t *buffer) {
    const sl_store *store = &e->store;
    uint64_t bytes[SL_TENSOR_PARTS];
    row->n_parts = row_parts(store, bytes);
    for (uint32_t i = 0; i < SL_TENSOR_PARTS && i < row->n_parts; i++) {
        uint64_t offset = (store->in_place ? store->in_place->embed[i].at : 0) + token * bytes[i];
        uint64_t from = offset / SL_PAGE * SL_PAGE,
                 n = SL_ALIGN_UP(offset + bytes[i], SL_PAGE) - from;
        row->reads[i] = (sl_read){.fd = row_file(store, i)->fd,
                                  .n_bytes = (uint32_t)n,
                                  .offset = from,
                                  .buf = buffer,
                                  .tag = (uint32_t)(offset - from)};
        buffer += SL_ALIGN_UP(bytes[i], SL_PAGE) + SL_PAGE;
        sl_reader_submit(e->reader, &row->reads[i]);
    }
}

// Use a row that was read, and keep it.
static void use(sl_engine *e, uint32_t token, const sl_row_read *row, float *x) {
    const sl_embed_layout *l = &e->store.embed;
    const uint8_t *part[SL_TENSOR_PARTS] = {0};
    const uint64_t at[SL_TENSOR_PARTS] = {0, l->scales_at, l->biases_at};
    uint64_t bytes[SL_TENSOR_PARTS];
    uint32_t n = row_parts(&e->store, bytes);
    for (uint32_t i = 0; i < n; i++)
        part[i] = (const uint8_t *)row->reads[i].buf + row->reads[i].tag;
    if (e->rows.n_cached) {
        uint8_t *record = keep(e, token);
        for (uint32_t i = 0; i < n; i++)
            memcpy(record + at[i], part[i], (size_t)bytes[i]);
        widen_record(e, record, x);
    } else if (n == 1) {
        widen_record(e, part[0], x);
    } else {
        sl_matrix m = {.shape = l->shape, .codes = part[0], .scales = part[1], .biases = part[2]};
        m.shape.rows = 1;
        widen(e, &m, x);
    }
}

// Wait for a row's reads and use it. Reads that were submitted are waited for also after an error.
static sl_status finish(sl_engine *e, uint32_t token, sl_row_read *row, float *x, sl_error *err) {
    double begin = sl_now();
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < row->n_parts; i++)
        sl_reader_wait(e->reader, &row->reads[i]);
    e->rows.wait_seconds += sl_now() - begin;
    for (uint32_t i = 0; i < row->n_parts && !st; i++) {
        const sl_read *read = &row->reads[i];
        if (read->result <
            (int32_t)sl_file_has(row_file(&e->store, i), read->offset, read->n_bytes))
            st = sl_fail_at(
                err, SL_ERR_IO, -1, -1, read->offset,
                "%s: reading the row of token %u, %u bytes at %llu: %s",
                e->store.in_place ? e->store.in_place->names[e->store.in_place->embed[i].file]
                                  : SL_STORE_EMBED,
                token, read->n_bytes, (unsigned long long)read->offset,
                read->result < 0 ? sl_errno_text(-read->result) : "the file was cut short");
        e->rows.read_bytes += read->n_bytes;
    }
    if (!st)
        use(e, token, row, x);
    return st;
}

sl_status sl__rows_read(sl_engine *e, const uint32_t *tokens, uint32_t n, float *x, sl_error *err) {
    uint64_t bytes[SL_TENSOR_PARTS];
    uint32_t n_buffers =
                 SL_MIN(e->plan.row_buffers, e->settings.depth / row_parts(&e->store, bytes)),
             d_model = e->store.model.d_model;
    uint32_t waiting[SL_ROW_READS_MAX], n_waiting = 0;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < n && !st;) {
        if (e->rows.canceled && e->rows.canceled(e->rows.user))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        // A batch: rows in memory at once, up to n_buffers others by reading.
        for (n_waiting = 0; i < n && n_waiting < n_buffers; i++) {
            const uint8_t *record = find(e, tokens[i]);
            if (record) {
                widen_record(e, record, x + (size_t)i * d_model);
                continue;
            }
            waiting[n_waiting] = i;
            submit(e, tokens[i], &e->rows.reads[n_waiting],
                   e->rows.buffers + n_waiting * e->plan.row_buffer_bytes);
            n_waiting++;
        }
        for (uint32_t j = 0; j < n_waiting; j++) {
            sl_error ignored;
            sl_status one = finish(e, tokens[waiting[j]], &e->rows.reads[j],
                                   x + (size_t)waiting[j] * d_model, st ? &ignored : err);
            st = st ? st : one;
        }
    }
    return st;
}
