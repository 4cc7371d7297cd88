/* Embedding rows: read for the tokens of a chunk, a few in flight, unless they are among the recent ones. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

sl_status sl__rows_init(sl_engine *e, sl_loader *loader, sl_error *err) {
    const sl_embed_layout *l = &e->store.embed;
    sl_rows *r = &e->rows;
    r->buffers = e->account[SL_ACCOUNT_EMBEDDING].base;
    r->cache = r->buffers + e->plan.row_buffers * e->plan.row_buffer_bytes;
    r->n_cached = e->plan.row_cache;
    r->cached = (uint32_t *)(r->cache + r->n_cached * l->stride);
    bool all = r->n_cached == l->shape.rows;
    sl_status st = sl_load(loader, &e->store.embed_file, SL_STORE_EMBED, "the embedding", 0,
                           l->stride * l->shape.rows, all ? r->cache : NULL, l->hash, err);
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

static void keep(sl_engine *e, uint32_t token, const uint8_t *record) {
    sl_rows *r = &e->rows;
    if (r->n_cached == 0)
        return;
    r->cached[token % r->n_cached] = token + 1;
    memcpy(r->cache + token % r->n_cached * e->store.embed.stride, record,
           (size_t)e->store.embed.stride);
}

static void widen(sl_engine *e, const uint8_t *record, float *x) {
    sl_matrix row;
    sl_embed_bind(&e->store.embed, record, &row);
    e->backend.base.ops->row(&e->backend.base, &row, 0, x);
}

static void submit(sl_engine *e, uint32_t token, sl_read *read, uint8_t *buffer) {
    uint64_t offset = token * e->store.embed.stride, from = offset / SL_PAGE * SL_PAGE;
    uint64_t end = SL_ALIGN_UP(offset + e->store.embed.stride, SL_PAGE);
    *read = (sl_read){.fd = e->store.embed_file.fd,
                      .n_bytes = (uint32_t)(end - from),
                      .offset = from,
                      .buf = buffer,
                      .tag = (uint32_t)(offset - from)};
    sl_reader_submit(e->reader, read);
}

// Wait for a read and use its row. Reads that were submitted are waited for also after an error.
static sl_status finish(sl_engine *e, uint32_t token, sl_read *read, float *x, sl_error *err) {
    double begin = sl_now();
    sl_reader_wait(e->reader, read);
    e->rows.wait_seconds += sl_now() - begin;
    if (read->result != (int32_t)read->n_bytes)
        return sl_fail_at(err, SL_ERR_IO, -1, -1, read->offset,
                          "%s: reading the row of token %u, %u bytes at %llu: %s", SL_STORE_EMBED,
                          token, read->n_bytes, (unsigned long long)read->offset,
                          read->result < 0 ? sl_errno_text(-read->result)
                                           : "the file was cut short");
    e->rows.read_bytes += read->n_bytes;
    const uint8_t *record = (const uint8_t *)read->buf + read->tag;
    widen(e, record, x);
    keep(e, token, record);
    return SL_OK;
}

sl_status sl__rows_read(sl_engine *e, const uint32_t *tokens, uint32_t n, float *x, sl_error *err) {
    uint32_t n_buffers = SL_MIN(e->plan.row_buffers, e->settings.depth),
             d_model = e->store.model.d_model;
    uint32_t waiting[SL_EXPERT_READS_MAX], n_waiting = 0;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < n && !st;) {
        // A batch: rows in memory at once, up to n_buffers others by reading.
        for (n_waiting = 0; i < n && n_waiting < n_buffers; i++) {
            const uint8_t *record = find(e, tokens[i]);
            if (record) {
                widen(e, record, x + (size_t)i * d_model);
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
