/* Embedding rows, read for the tokens of a chunk, a few in flight; or taken from the table in memory. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine.h"

static void submit(sl_engine *e, uint32_t token, uint32_t buffer) {
    uint64_t offset = token * e->store.embed.stride, from = offset / SL_PAGE * SL_PAGE;
    uint64_t end = SL_ALIGN_UP(offset + e->store.embed.row_bytes, SL_PAGE);
    e->rows.reads[buffer] = (sl_read){.fd = e->store.embed_file.fd,
                                      .n_bytes = (uint32_t)(end - from),
                                      .offset = from,
                                      .buf = e->rows.buffers + buffer * e->plan.row_buffer_bytes,
                                      .tag = (uint32_t)(offset - from)};
    sl_reader_submit(e->reader, &e->rows.reads[buffer]);
}

sl_status sl__rows_load(sl_engine *e, sl_error *err) {
    const sl_embed_layout *l = &e->store.embed;
    uint64_t used = l->stride * l->shape.rows, step = SL_MIB;
    sl_arena *arena = &e->account[SL_ACCOUNT_EMBEDDING];
    for (uint64_t at = 0; at < used; at += step) {
        uint64_t n = SL_MIN(SL_ALIGN_UP(used, SL_PAGE) - at, step);
        sl_status st = sl_file_read(&e->store.embed_file, arena->base + at, (size_t)n, at, NULL, err);
        if (st)
            return sl_error_context(err, st, "%s", SL_STORE_EMBED);
        e->open_read_bytes += n;
    }
    if (!sl_hash_equal(sl_hash(arena->base, (size_t)used), l->hash))
        return sl_fail(err, SL_ERR_CORRUPT, "%s does not have the checksum of the manifest; converting again mends it", SL_STORE_EMBED);
    e->rows.table = arena->base;
    return SL_OK;
}

static void widen(sl_engine *e, const uint8_t *record, float *x) {
    sl_matrix row;
    sl_embed_bind(&e->store.embed, record, &row);
    e->backend.base.ops->row(&e->backend.base, &row, 0, x);
}

sl_status sl__rows_read(sl_engine *e, const uint32_t *tokens, uint32_t n, float *x, sl_error *err) {
    uint32_t n_buffers = SL_MIN(e->plan.row_buffers, e->reader_depth), ahead = 0;
    sl_status st = SL_OK;
    if (e->rows.table) {
        for (uint32_t i = 0; i < n; i++)
            widen(e, e->rows.table + tokens[i] * e->store.embed.stride, x + (size_t)i * e->store.model.d_model);
        return SL_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        while (ahead < n && ahead < i + n_buffers && !st) {
            submit(e, tokens[ahead], ahead % n_buffers);
            ahead++;
        }
        if (i >= ahead)
            break;
        sl_read *r = &e->rows.reads[i % n_buffers];
        double begin = sl_now();
        sl_reader_wait(e->reader, r);
        e->rows.wait_seconds += sl_now() - begin;
        if (st)
            continue;
        if (r->result != (int32_t)r->n_bytes) {
            st = sl_fail_at(err, SL_ERR_IO, -1, -1, r->offset, "%s: reading the row of token %u, %u bytes at %llu: %s",
                            SL_STORE_EMBED, tokens[i], r->n_bytes, (unsigned long long)r->offset,
                            r->result < 0 ? sl_errno_text(-r->result) : "the file was cut short");
            continue;
        }
        e->rows.read_bytes += r->n_bytes;
        widen(e, (const uint8_t *)r->buf + r->tag, x + (size_t)i * e->store.model.d_model);
    }
    return st;
}
