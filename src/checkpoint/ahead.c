/* The cache of pieces, see ahead.h. */
#include "checkpoint/ahead.h"

#include <string.h>

#define DEPTH 32u

void sl_ahead_init(sl_ahead *a, sl_reader *reader, uint8_t *memory, uint32_t n_pieces,
                   uint64_t piece_bytes) {
    a->reader = reader;
    a->n_pieces = n_pieces;
    a->piece_bytes = piece_bytes;
    a->clock = 0;
    memset(a->pieces, 0, sizeof(a->pieces));
    for (uint32_t i = 0; i < n_pieces; i++)
        a->pieces[i].bytes = memory + i * piece_bytes;
}

sl_status sl_ahead_open(sl_ahead *a, uint32_t n_pieces, uint64_t piece_bytes, sl_error *err) {
    sl_reader_kind kind = sl_reader_uring_works() ? SL_READER_URING : SL_READER_PREAD;
    uint32_t depth = SL_MIN(DEPTH, n_pieces / 2);
    memset(a, 0, sizeof(*a));
    uint64_t bytes = n_pieces * piece_bytes + sl_reader_bytes(kind, depth) + 2 * SL_PAGE;
    sl_reader *reader = NULL;
    sl_status st = sl_arena_map(&a->arena, "read ahead", bytes, err);
    if (st)
        return st;
    uint8_t *memory = sl_arena_alloc(&a->arena, (size_t)(n_pieces * piece_bytes), SL_PAGE);
    st = memory ? sl_reader_open(kind, depth, &a->arena, &reader, err)
                : sl_arena_full(&a->arena, (size_t)(n_pieces * piece_bytes), err);
    if (st)
        sl_arena_unmap(&a->arena);
    else
        sl_ahead_init(a, reader, memory, n_pieces, piece_bytes);
    return st;
}

void sl_ahead_close(sl_ahead *a) {
    for (uint32_t i = 0; i < a->n_pieces; i++)
        if (a->pieces[i].read.busy)
            sl_reader_wait(a->reader, &a->pieces[i].read);
    if (a->arena.base)
        sl_reader_close(a->reader);
    sl_arena_unmap(&a->arena);
    memset(a, 0, sizeof(*a));
}

static sl_ahead_piece *find(sl_ahead *a, const sl_file *file, uint64_t index) {
    for (uint32_t i = 0; i < a->n_pieces; i++)
        if (a->pieces[i].file == file && a->pieces[i].index == index)
            return &a->pieces[i];
    return NULL;
}

// The piece that was asked for longest ago and is not on its way; NULL: all are.
static sl_ahead_piece *oldest(sl_ahead *a) {
    sl_ahead_piece *best = NULL;
    for (uint32_t i = 0; i < a->n_pieces; i++)
        if (!a->pieces[i].read.busy && (!best || a->pieces[i].used < best->used))
            best = &a->pieces[i];
    return best;
}

static sl_ahead_piece *start(sl_ahead *a, const sl_file *file, uint64_t index) {
    sl_ahead_piece *p = oldest(a);
    p->file = file;
    p->index = index;
    p->used = ++a->clock;
    p->read.fd = file->fd;
    p->read.n_bytes = (uint32_t)a->piece_bytes;
    p->read.offset = index * a->piece_bytes;
    p->read.buf = p->bytes;
    sl_reader_submit(a->reader, &p->read);
    return p;
}

// Begin to read the pieces of a range that are not there, as long as the reader has room.
static void start_range(sl_ahead *a, const sl_file *file, uint64_t from, uint64_t to) {
    sl_reader_poll(a->reader);
    for (uint64_t i = from / a->piece_bytes;
         i * a->piece_bytes < to && sl_reader_free(a->reader) && oldest(a); i++)
        if (!find(a, file, i))
            (void)start(a, file, i);
}

// A piece for which the reader had no room before: what was started first makes it.
static sl_ahead_piece *start_late(sl_ahead *a, const sl_file *file, uint64_t index) {
    sl_ahead_piece *first = NULL;
    for (uint32_t i = 0; i < a->n_pieces; i++)
        if (a->pieces[i].read.busy && (!first || a->pieces[i].used < first->used))
            first = &a->pieces[i];
    if (first && (sl_reader_free(a->reader) == 0 || !oldest(a)))
        sl_reader_wait(a->reader, &first->read);
    return start(a, file, index);
}

// A piece with its bytes there: `want` of them must be.
static sl_status finish(sl_ahead *a, sl_ahead_piece *p, uint64_t want, sl_error *err) {
    sl_reader_wait(a->reader, &p->read);
    uint64_t at = p->index * a->piece_bytes;
    int32_t result = p->read.result;
    if (result >= 0 && (uint64_t)result >= want)
        return SL_OK;
    p->file = NULL;
    if (result < 0)
        return sl_fail_errno(err, SL_ERR_IO, -result, "reading %llu bytes at %llu",
                             (unsigned long long)a->piece_bytes, (unsigned long long)at);
    return sl_fail_at(err, SL_ERR_CORRUPT, -1, -1, at, "the file ends at %llu: it became shorter",
                      (unsigned long long)at + (uint64_t)result);
}

sl_status sl_ahead_read(sl_ahead *a, const sl_file *file, uint64_t offset, uint64_t end, void *out,
                        size_t n, sl_error *err) {
    uint8_t *to = out;
    size_t left = n;
    uint64_t at = offset;
    start_range(a, file, offset, offset + n);
    while (left) {
        uint64_t index = at / a->piece_bytes, skip = at % a->piece_bytes;
        size_t take = (size_t)SL_MIN((uint64_t)left, a->piece_bytes - skip);
        sl_ahead_piece *p = find(a, file, index);
        if (!p)
            p = start_late(a, file, index);
        sl_status st = finish(a, p, skip + take, err);
        if (st)
            return st;
        p->used = ++a->clock;
        memcpy(to, p->bytes + skip, take);
        to += take;
        at += take;
        left -= take;
    }
    // As much again, for the next time.
    start_range(a, file, at, SL_MIN(end, at + SL_MAX((uint64_t)n, a->piece_bytes)));
    return SL_OK;
}

void sl_ahead_forget(sl_ahead *a, const sl_file *file) {
    for (uint32_t i = 0; i < a->n_pieces; i++) {
        sl_ahead_piece *p = &a->pieces[i];
        if (p->file != file)
            continue;
        if (p->read.busy)
            sl_reader_wait(a->reader, &p->read);
        p->file = NULL;
    }
}
