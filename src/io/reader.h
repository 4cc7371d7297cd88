/* Many reads in flight, behind one table: io_uring, a pool of pread threads, or either with faults
 * injected. The engine submits requests and waits for completions; it does not know which it is.
 *
 * A reader belongs to one thread. After sl_reader_open nothing is allocated. */
#ifndef SL_IO_READER_H
#define SL_IO_READER_H

#include "io/file.h"

/* One read. The caller owns it and must leave it alone from submit until it is done. */
typedef struct sl_read {
    int fd;
    uint32_t n_bytes;
    uint64_t offset;
    void *buf;
    uint32_t tag;        /* the caller's */
    /* Set by the reader: */
    int32_t result;      /* bytes read (short reads are continued inside; fewer means end of file), or -errno */
    bool done;
    bool busy;           /* submitted and not done */
    struct sl_read *next;
} sl_read;

typedef enum sl_reader_kind { SL_READER_URING, SL_READER_PREAD } sl_reader_kind;

/* Faults for tests: the n-th read from now on (1 = the next) fails once. 0 = none. */
typedef enum sl_fault_kind { SL_FAULT_NONE, SL_FAULT_SHORT, SL_FAULT_EIO, SL_FAULT_FLIP } sl_fault_kind;

typedef struct sl_reader sl_reader;

/* Bytes the reader takes from its arena, and what the kernel holds for it (rings, worker stacks).
 * Pure; the plan counts both. depth: reads in flight, 1..256. */
uint64_t sl_reader_bytes(sl_reader_kind kind, uint32_t depth);
uint64_t sl_reader_kernel_bytes(sl_reader_kind kind, uint32_t depth);
/* True when this kernel lets us have a ring (it may be disabled by sysctl or seccomp). */
bool sl_reader_uring_works(void);

/* Everything, worker stacks included, comes from arena. Errors: SL_ERR_UNSUPPORTED (no io_uring here),
 * SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_reader_open(sl_reader_kind kind, uint32_t depth, sl_arena *arena, sl_reader **out,
                                     sl_error *err);
/* Waits for reads in flight. Accepts NULL. */
void sl_reader_close(sl_reader *reader);

/* Start a read; at most depth may be in flight (sl_reader_free tells how many more fit). */
void sl_reader_submit(sl_reader *reader, sl_read *read);
uint32_t sl_reader_free(const sl_reader *reader);
/* Block until this read is done; others that finish meanwhile are marked done as well. */
void sl_reader_wait(sl_reader *reader, sl_read *read);
/* Collect what is done, without blocking. */
void sl_reader_poll(sl_reader *reader);

void sl_reader_inject(sl_reader *reader, sl_fault_kind kind, uint32_t nth);

const char *sl_reader_kind_name(sl_reader_kind kind);

#endif
