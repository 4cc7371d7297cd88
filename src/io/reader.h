/* Many reads in flight, behind one table: io_uring, a pool of pread threads, or either with faults
 * injected. The engine submits requests and waits for completions; it does not know which it is.
 *
 * A reader belongs to one thread at a time; it may move to another while no read is in flight.
 * After sl_reader_open nothing is allocated. Reads start in the order they are submitted. */
#ifndef SL_IO_READER_H
#define SL_IO_READER_H

#include "io/file.h"

#define SL_READER_DEPTH_MAX 256
#define SL_READ_BYTES_MAX ((uint32_t)1 << 30)

/* One read. The caller owns it, fills the first five fields (the rest may hold anything, except
 * that busy must not be true), and must leave it, the buffer and the descriptor alone from submit
 * until it is done. For a direct file buf, offset and n_bytes are multiples of its alignment;
 * n_bytes may reach past the end of the file, and the buffer behind it may then be written to as
 * well, up to n_bytes. n_bytes <= SL_READ_BYTES_MAX. */
typedef struct sl_read {
    int fd;
    uint32_t n_bytes;
    uint64_t offset;
    void *buf;
    uint32_t tag; /* the caller's; the reader does not look at it */
    /* Set by the reader: */
    int32_t result; /* bytes read, fewer than n_bytes only at the end of the file; or -errno */
    bool done;
    bool busy; /* submitted and not done */
    /* The reader's own: */
    uint8_t fault;
    uint8_t n_retries;
    uint32_t n_read; /* so far */
    struct sl_read *next;
} sl_read;

typedef enum sl_reader_kind { SL_READER_URING, SL_READER_PREAD } sl_reader_kind;

/* Faults for tests. SHORT: the result is half of what was read. EIO: the result is -EIO. FLIP: one
 * bit in the middle of the bytes is inverted. */
typedef enum sl_fault_kind {
    SL_FAULT_NONE,
    SL_FAULT_SHORT,
    SL_FAULT_EIO,
    SL_FAULT_FLIP
} sl_fault_kind;

typedef struct sl_reader sl_reader;

/* Bytes the reader takes from its arena (up to a page less, by alignment), and what the kernel is
 * charged with for it: rings, requests, threads. The plan counts both. Pure. depth: reads in
 * flight, 1..SL_READER_DEPTH_MAX. */
uint64_t sl_reader_bytes(sl_reader_kind kind, uint32_t depth);
uint64_t sl_reader_kernel_bytes(sl_reader_kind kind, uint32_t depth);
/* True when this program and kernel have io_uring (a sysctl or seccomp may forbid it). Asks each
 * time. */
bool sl_reader_uring_works(void);

/* Everything, worker stacks included, comes from the arena, and the reader lives in it. The pread
 * reader has a thread for each read in flight, up to 16; more reads than that queue up. Errors:
 * SL_ERR_UNSUPPORTED (no io_uring here), SL_ERR_MEMORY, SL_ERR_ARGUMENT (depth). */
SL_MUST_USE sl_status sl_reader_open(sl_reader_kind kind, uint32_t depth, sl_arena *arena,
                                     sl_reader **out, sl_error *err);
/* Waits for reads in flight, so that no buffer is written to afterwards. Accepts NULL. */
void sl_reader_close(sl_reader *reader);

/* Start a read now. Where depth are in flight already (sl_reader_free tells how many more fit), one of them is
 * waited for first. What goes wrong arrives as the read's result. */
void sl_reader_submit(sl_reader *reader, sl_read *read);
uint32_t sl_reader_free(const sl_reader *reader);
/* Block until this read is done; others that finish meanwhile are marked done as well. Returns at
 * once when it is done already. */
void sl_reader_wait(sl_reader *reader, sl_read *read);
/* Mark what is done, without blocking; without a system call when there is nothing new. */
void sl_reader_poll(sl_reader *reader);

/* From now on, the nth read submitted (1 = the next) fails in this way, once. Replaces what was
 * injected and has not happened; SL_FAULT_NONE or nth == 0 only takes that back. */
void sl_reader_inject(sl_reader *reader, sl_fault_kind kind, uint32_t nth);

/* From now on, with the nth read submitted (1 = the next), the drive turns slow: reads come in one
 * after another, each so many seconds after the one before it. Whoever waits for them sleeps, and a
 * poll finds what is due. seconds == 0: as fast as it is again. For tests. */
void sl_reader_slow(sl_reader *reader, uint32_t nth, double seconds);

/* What the drive has delivered: bytes that were read, and the seconds in which at least one of their
 * reads was under way. Reads that were found done long after they may have ended are in neither:
 * while nobody looks, the drive cannot be told from one that has nothing to do. Thread: the owner. */
typedef struct sl_reader_rate {
    uint64_t bytes;
    double seconds;
} sl_reader_rate;
sl_reader_rate sl_reader_measured(const sl_reader *reader);

/* A list of the reads that are submitted, in order, in memory of the caller's; what does not fit is counted. */
typedef struct sl_read_note {
    int fd;
    uint32_t n_bytes;
    uint64_t offset;
} sl_read_note;
typedef struct sl_read_log {
    sl_read_note *notes; /* [cap] */
    size_t n, cap, n_lost;
} sl_read_log;
/* From now on into this log; NULL: into none. */
void sl_reader_log(sl_reader *reader, sl_read_log *log);

const char *sl_reader_kind_name(sl_reader_kind kind);

#endif
