/* The part of a reader that callers see. A read is one or more attempts of the back end: an attempt
 * that stops early is continued, until one brings nothing new. */
#include "io/reader_internal.h"

#include <assert.h>
#include <errno.h>

/* Continue at a multiple of this, so that a direct read stays on its grid whatever its alignment
 * is. */
#define GRID_BYTES ((uint32_t)SL_PAGE)

/* For EAGAIN, which a busy kernel may say now and then. */
#define RETRIES_MAX 64

sl_attempt sl__read_attempt(const sl_read *read) {
    uint32_t from = read->n_read & ~(GRID_BYTES - 1);
    return (sl_attempt){.buf = (uint8_t *)read->buf + from,
                        .n = read->n_bytes - from,
                        .offset = read->offset + from};
}

static void finish(sl_reader *reader, sl_read *read, int32_t result) {
    switch ((sl_fault_kind)read->fault) {
    case SL_FAULT_NONE:
        break;
    case SL_FAULT_SHORT:
        result = result > 0 ? result / 2 : result;
        break;
    case SL_FAULT_EIO:
        result = -EIO;
        break;
    case SL_FAULT_FLIP:
        if (result > 0)
            ((uint8_t *)read->buf)[result / 2] ^= 1;
        break;
    }
    read->result = result;
    read->busy = false;
    read->done = true;
    reader->n_in_flight--;
}

/* An attempt has ended: finish the read, or go on with it. */
static void settle(sl_reader *reader, sl_read *read) {
    int32_t got = read->result;
    if ((got == -EAGAIN || got == -EINTR) && read->n_retries < RETRIES_MAX) {
        read->n_retries++;
        reader->ops->start(reader, read);
        return;
    }
    if (got < 0) {
        finish(reader, read, got);
        return;
    }
    uint32_t n_read = (read->n_read & ~(GRID_BYTES - 1)) + (uint32_t)got;
    bool is_new = n_read > read->n_read;
    if (is_new)
        read->n_read = n_read;
    if (is_new && n_read < read->n_bytes)
        reader->ops->start(reader, read);
    else
        finish(reader, read, (int32_t)read->n_read);
}

// Sleep until some attempt has ended, and settle it.
static void settle_one(sl_reader *reader) {
    sl_read *ended = reader->ops->collect(reader, true);
    if (ended)
        settle(reader, ended);
}

uint64_t sl_reader_bytes(sl_reader_kind kind, uint32_t depth) {
    return kind == SL_READER_URING ? sl__reader_uring_bytes() : sl__reader_pread_bytes(depth);
}

uint64_t sl_reader_kernel_bytes(sl_reader_kind kind, uint32_t depth) {
    return kind == SL_READER_URING ? sl__reader_uring_kernel_bytes(depth)
                                   : sl__reader_pread_kernel_bytes(depth);
}

bool sl_reader_uring_works(void) {
    return sl__reader_uring_works();
}

sl_status sl_reader_open(sl_reader_kind kind, uint32_t depth, sl_arena *arena, sl_reader **out,
                         sl_error *err) {
    *out = NULL;
    if (depth < 1 || depth > SL_READER_DEPTH_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "1 to %d reads in flight were expected, got %u",
                       SL_READER_DEPTH_MAX, depth);
    return kind == SL_READER_URING ? sl__reader_uring_open(depth, arena, out, err)
                                   : sl__reader_pread_open(depth, arena, out, err);
}

void sl_reader_close(sl_reader *reader) {
    if (!reader)
        return;
    while (reader->n_in_flight > 0)
        settle_one(reader);
    reader->ops->close(reader);
}

static void note(sl_read_log *log, const sl_read *read) {
    if (log->n < log->cap)
        log->notes[log->n++] = (sl_read_note){read->fd, read->n_bytes, read->offset};
    else
        log->n_lost++;
}

void sl_reader_submit(sl_reader *reader, sl_read *read) {
    assert(!read->busy && read->n_bytes <= SL_READ_BYTES_MAX);
    while (reader->n_in_flight >= reader->depth)
        settle_one(reader);
    read->busy = true;
    read->done = false;
    read->n_read = 0;
    read->n_retries = 0;
    read->fault = SL_FAULT_NONE;
    if (reader->fault_in > 0 && --reader->fault_in == 0)
        read->fault = (uint8_t)reader->fault;
    if (reader->log)
        note(reader->log, read);
    reader->n_in_flight++;
    reader->ops->start(reader, read);
}

void sl_reader_log(sl_reader *reader, sl_read_log *log) {
    reader->log = log;
}

uint32_t sl_reader_free(const sl_reader *reader) {
    return reader->depth - reader->n_in_flight;
}

void sl_reader_wait(sl_reader *reader, sl_read *read) {
    assert(read->busy || read->done);
    while (!read->done)
        settle_one(reader);
}

void sl_reader_poll(sl_reader *reader) {
    sl_read *ended;
    while (reader->n_in_flight > 0 && (ended = reader->ops->collect(reader, false)))
        settle(reader, ended);
}

void sl_reader_inject(sl_reader *reader, sl_fault_kind kind, uint32_t nth) {
    reader->fault = kind;
    reader->fault_in = kind == SL_FAULT_NONE ? 0 : nth;
}

const char *sl_reader_kind_name(sl_reader_kind kind) {
    return kind == SL_READER_URING ? "io_uring" : "pread";
}
