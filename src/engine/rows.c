/* Embedding rows: never resident, read for the tokens of a chunk, a few in flight. */
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

sl_status sl__rows_read(sl_engine *e, const uint32_t *tokens, uint32_t n, float *x, sl_error *err) {
    uint32_t n_buffers = SL_MIN(e->plan.row_buffers, e->reader_depth), ahead = 0;
    sl_status st = SL_OK;
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
        sl_matrix row;
        sl_embed_bind(&e->store.embed, (const uint8_t *)r->buf + r->tag, &row);
        e->backend.base.ops->row(&e->backend.base, &row, 0, x + (size_t)i * e->store.model.d_model);
    }
    return st;
}
