/* What the two ways of reading fill in, and what they share. reader.c owns everything a caller
 * sees: counting, continuing short reads, faults; a back end performs single attempts. */
#ifndef SL_IO_READER_INTERNAL_H
#define SL_IO_READER_INTERNAL_H

#include "io/reader.h"

typedef struct sl_reader_ops {
    /* Start one attempt (sl__read_attempt says of what). There is room: at most depth are started
     * and not collected. Cannot fail: an error is the attempt's result. */
    void (*start)(sl_reader *reader, sl_read *read);
    /* The next attempt that has ended, with read->result being what pread would have said (-errno
     * for errors); NULL when there is none. wait: some attempt is started; sleep until one has
     * ended (a caller looks for NULL all the same: a back end may wake for reasons of its own). */
    sl_read *(*collect)(sl_reader *reader, bool wait);
    /* Nothing is started any more. */
    void (*close)(sl_reader *reader);
} sl_reader_ops;

/* First member of each back end's own struct. */
struct sl_reader {
    const sl_reader_ops *ops;
    uint32_t depth;
    uint32_t n_in_flight;
    sl_fault_kind fault;
    uint32_t fault_in; /* reads until it strikes; 0: none */
    sl_read_log *log;  /* NULL: none */

    /* A slow drive. Reads that the back end is done with are held back, oldest first: the first until
     * then, the next `delay` seconds longer. */
    uint32_t slow_in; /* reads until it begins; 0: it has, or there is none */
    double delay, delay_next;
    sl_read *held, *held_last;
    uint32_t n_held; /* they are in flight, but not started */
    double held_until;

    /* A period begins when a read is started while none is under way, and ends with the last one. */
    double period_begin, last_seen; /* when reads were last seen under way */
    uint64_t period_bytes;
    sl_reader_rate measured; /* of periods whose end is known */
};

/* The bytes that are still to be read. */
typedef struct sl_attempt {
    void *buf;
    size_t n;
    uint64_t offset;
} sl_attempt;
sl_attempt sl__read_attempt(const sl_read *read);

/* Set up a back end in the arena: its size, what it holds in the kernel, and opening it. */
uint64_t sl__reader_pread_bytes(uint32_t depth);
uint64_t sl__reader_pread_kernel_bytes(uint32_t depth);
sl_status sl__reader_pread_open(uint32_t depth, sl_arena *arena, sl_reader **out, sl_error *err);

uint64_t sl__reader_uring_bytes(void);
uint64_t sl__reader_uring_kernel_bytes(uint32_t depth);
bool sl__reader_uring_works(void);
sl_status sl__reader_uring_open(uint32_t depth, sl_arena *arena, sl_reader **out, sl_error *err);

#endif
