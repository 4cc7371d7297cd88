/* The part of a reader that callers see. A read is one or more attempts of the back end: an attempt
 * that stops early is continued, until one brings nothing new. */
#include "io/reader_internal.h"

#include <assert.h>
#include <errno.h>

#include "base/clock.h"

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

/* The share of a period in which the drive may have been idle, where the period counts. */
#define UNCERTAIN_SHARE 0.125

/* The last read has ended: at `when`, or, where that is 0, at some time since reads were last seen under way. */
static void end_period(sl_reader *reader, double when) {
    double end = when > 0 ? when : sl_now(), uncertain = when > 0 ? 0 : end - reader->last_seen,
           seconds = end - reader->period_begin;
    if (uncertain > UNCERTAIN_SHARE * seconds)
        return;
    reader->measured.bytes += reader->period_bytes;
    reader->measured.seconds += seconds;
}

static void finish(sl_reader *reader, sl_read *read, int32_t result, double when) {
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
    reader->period_bytes += result > 0 ? (uint64_t)result : 0;
    if (reader->n_in_flight == 0)
        end_period(reader, when);
}

/* ---- a slow drive ------------------------------------------------------------------------------ */

static void hold(sl_reader *reader, sl_read *read, int32_t result) {
    read->result = result;
    read->next = NULL;
    if (reader->held) {
        reader->held_last->next = read;
    } else {
        reader->held = read;
        reader->held_until = sl_now() + reader->delay;
    }
    reader->held_last = read;
    reader->n_held++;
}

// Finish the first read that is held back, if it is due or wait allows to sleep until then.
static bool finish_held(sl_reader *reader, bool wait) {
    sl_read *read = reader->held;
    bool early = read && reader->delay > 0 && sl_now() < reader->held_until;
    if (!read || (early && !wait))
        return false;
    if (early)
        sl_sleep_until(reader->held_until);
    reader->held = read->next;
    reader->n_held--;
    double when = reader->delay > 0 ? reader->held_until : 0;
    reader->held_until += reader->delay;
    finish(reader, read, read->result, when);
    return true;
}

/* ---- attempts ---------------------------------------------------------------------------------- */

// The back end is done with it.
static void complete(sl_reader *reader, sl_read *read, int32_t result, bool just_now) {
    if (reader->delay > 0 || reader->held)
        hold(reader, read, result);
    else
        finish(reader, read, result, just_now ? sl_now() : 0);
}

/* An attempt has ended: the read is complete, or goes on. */
static void settle(sl_reader *reader, sl_read *read, bool just_now) {
    int32_t got = read->result;
    if ((got == -EAGAIN || got == -EINTR) && read->n_retries < RETRIES_MAX) {
        read->n_retries++;
        reader->ops->start(reader, read);
        return;
    }
    if (got < 0) {
        complete(reader, read, got, just_now);
        return;
    }
    uint32_t n_read = (read->n_read & ~(GRID_BYTES - 1)) + (uint32_t)got;
    bool is_new = n_read > read->n_read;
    if (is_new)
        read->n_read = n_read;
    if (is_new && n_read < read->n_bytes)
        reader->ops->start(reader, read);
    else
        complete(reader, read, (int32_t)read->n_read, just_now);
}

// Settle what has ended already.
static void settle_ended(sl_reader *reader) {
    sl_read *ended;
    while (reader->n_in_flight > reader->n_held && (ended = reader->ops->collect(reader, false)))
        settle(reader, ended, false);
}

static void note_seen(sl_reader *reader) {
    if (reader->n_in_flight > 0)
        reader->last_seen = sl_now();
}

// Sleep until some attempt has ended, and settle it.
static void settle_one(sl_reader *reader) {
    if (reader->held) {
        settle_ended(reader);
        (void)finish_held(reader, true);
        return;
    }
    sl_read *ended = reader->ops->collect(reader, false);
    bool sleeps = !ended;
    if (sleeps)
        ended = reader->ops->collect(reader, true);
    if (ended)
        settle(reader, ended, sleeps);
    if (sleeps)
        note_seen(reader);
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
    if (reader->slow_in > 0 && --reader->slow_in == 0)
        reader->delay = reader->delay_next;
    if (reader->log)
        note(reader->log, read);
    if (reader->n_in_flight++ == 0) {
        reader->period_begin = reader->last_seen = sl_now();
        reader->period_bytes = 0;
    }
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
    settle_ended(reader);
    while (finish_held(reader, false)) {
    }
    note_seen(reader);
}

void sl_reader_inject(sl_reader *reader, sl_fault_kind kind, uint32_t nth) {
    reader->fault = kind;
    reader->fault_in = kind == SL_FAULT_NONE ? 0 : nth;
}

void sl_reader_slow(sl_reader *reader, uint32_t nth, double seconds) {
    reader->slow_in = seconds > 0 ? nth : 0;
    reader->delay_next = seconds;
    if (seconds <= 0)
        reader->delay = 0;
}

sl_reader_rate sl_reader_measured(const sl_reader *reader) {
    return reader->measured;
}

const char *sl_reader_kind_name(sl_reader_kind kind) {
    return kind == SL_READER_URING ? "io_uring" : "pread";
}
