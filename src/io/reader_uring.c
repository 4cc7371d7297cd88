/* Reading with io_uring. Buffers and files are not registered: an ordinary user may lock 8 MiB,
 * which is less than the slots take. */
#define _GNU_SOURCE
#include "io/reader_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#ifdef SL_HAVE_URING
#include <liburing.h>
#include <sys/syscall.h>

#include "base/thread.h"

/* Kernel threads that start what cannot be started without blocking, such as a read the drive takes
 * in several pieces. They only start it, so that few are enough. */
#define KERNEL_WORKERS_MAX 2

typedef struct uring_reader {
    sl_reader base;
    struct io_uring ring;
    sl_read *performed; /* attempts made without the ring, see start */
} uring_reader;

/* Made switched off, until restrict_ring: a ring can be told what it may do only then (Linux 5.10).
 * Without the other flags, each completion interrupts the thread that submitted, to tell it. With them it
 * is told when it next enters the kernel, and a bit in the ring says that there is something to
 * enter for. (Linux 5.19; the flags that tie the ring to one thread for ever are not used.) */
static int make_ring(struct io_uring *ring, uint32_t depth) {
    static const unsigned flags[] = {IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN |
                                         IORING_SETUP_TASKRUN_FLAG,
                                     IORING_SETUP_R_DISABLED, 0};
    int rc = -EINVAL;
    for (size_t i = 0; i < SL_COUNT(flags) && rc == -EINVAL; i++)
        rc = io_uring_queue_init(depth, ring, flags[i]);
    return rc;
}

/* Reading is all that the ring will ever do: its operations pass no filter of system calls, so that
 * one that can also open and connect would be a way around base/sandbox.h. */
static int restrict_ring(struct io_uring *ring) {
    struct io_uring_restriction allowed[] = {
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ},
        {.opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_NOP}};
    if (!(ring->flags & IORING_SETUP_R_DISABLED))
        return 0;
    // liburing declares functions for both, which its shared library does not export up to 2.3.
    if (syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_RESTRICTIONS, allowed,
                SL_COUNT(allowed)) != 0 ||
        syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) != 0)
        return -errno;
    return 0;
}

/* IORING_OP_READ came with Linux 5.6. */
static bool can_read(struct io_uring *ring) {
    union {
        struct io_uring_probe probe; // followed by an entry for each operation
        uint8_t bytes[sizeof(struct io_uring_probe) +
                      (IORING_OP_READ + 1) * sizeof(struct io_uring_probe_op)];
    } p;
    memset(&p, 0, sizeof(p));
    return io_uring_register_probe(ring, &p.probe, IORING_OP_READ + 1) == 0 &&
           io_uring_opcode_supported(&p.probe, IORING_OP_READ);
}

static int32_t attempt_pread(const sl_read *read) {
    sl_attempt a = sl__read_attempt(read);
    ssize_t got = pread(read->fd, a.buf, a.n, (off_t)a.offset);
    return got < 0 ? -errno : (int32_t)got;
}

static void uring_start(sl_reader *reader, sl_read *read) {
    uring_reader *r = (uring_reader *)reader;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (!sqe) {
        // Full of entries that do nothing, see below: try to be rid of them.
        (void)io_uring_submit(&r->ring);
        sqe = io_uring_get_sqe(&r->ring);
    }
    if (sqe) {
        sl_attempt a = sl__read_attempt(read);
        io_uring_prep_read(sqe, read->fd, a.buf, (unsigned)a.n, a.offset);
        io_uring_sqe_set_data(sqe, read);
        int rc;
        do {
            rc = io_uring_submit(&r->ring);
        } while (rc == -EINTR);
        if (io_uring_sq_ready(&r->ring) == 0)
            return;
        // The kernel has no memory for a request just now. The entry is still ours: it becomes one
        // that does nothing, goes with the next submission, and the read is made right here.
        io_uring_prep_nop(sqe);
        io_uring_sqe_set_data(sqe, NULL);
    }
    read->result = attempt_pread(read);
    read->next = r->performed;
    r->performed = read;
}

static sl_read *uring_collect(sl_reader *reader, bool wait) {
    uring_reader *r = (uring_reader *)reader;
    sl_read *read = r->performed;
    if (read) {
        r->performed = read->next;
        return read;
    }
    struct io_uring_cqe *cqe = NULL;
    int rc = io_uring_peek_cqe(&r->ring, &cqe);
    while (wait && (rc == -EAGAIN || rc == -EINTR))
        rc = io_uring_wait_cqe(&r->ring, &cqe);
    if (rc != 0)
        return NULL;
    read = io_uring_cqe_get_data(cqe);
    if (read)
        read->result = cqe->res;
    io_uring_cqe_seen(&r->ring, cqe);
    return read;
}

static void uring_close(sl_reader *reader) {
    io_uring_queue_exit(&((uring_reader *)reader)->ring);
}

static const sl_reader_ops uring_ops = {
    .start = uring_start, .collect = uring_collect, .close = uring_close};

bool sl__reader_uring_works(void) {
    struct io_uring ring;
    if (make_ring(&ring, 1) != 0)
        return false;
    bool works = can_read(&ring);
    io_uring_queue_exit(&ring);
    return works;
}

uint64_t sl__reader_uring_bytes(void) {
    return sizeof(uring_reader) + _Alignof(max_align_t);
}

/* Measured on Linux 6.18 by a memory cgroup: 12 KiB for a small ring, 240 bytes a request, and
 * where a read is larger than the drive takes in one piece one or two workers. Queue pages are
 * added. */
uint64_t sl__reader_uring_kernel_bytes(uint32_t depth) {
    uint64_t entries = 1;
    while (entries < depth)
        entries *= 2;
    uint64_t submission = entries * (sizeof(struct io_uring_sqe) + sizeof(uint32_t));
    uint64_t completion = 2 * entries * sizeof(struct io_uring_cqe);
    return SL_ALIGN_UP(submission, SL_PAGE) + SL_ALIGN_UP(completion, SL_PAGE) + 16 * SL_KIB +
           256 * entries + KERNEL_WORKERS_MAX * SL_THREAD_KERNEL_BYTES;
}

sl_status sl__reader_uring_open(uint32_t depth, sl_arena *arena, sl_reader **out, sl_error *err) {
    uring_reader *r = sl_arena_alloc(arena, sizeof(*r), _Alignof(max_align_t));
    if (!r)
        return sl_arena_full(arena, sizeof(*r), err);
    memset(r, 0, sizeof(*r));
    r->base = (sl_reader){.ops = &uring_ops, .depth = depth};
    int rc = make_ring(&r->ring, depth);
    if (rc == -ENOMEM)
        return sl_fail_errno(err, SL_ERR_MEMORY, ENOMEM, "an io_uring of %u entries", depth);
    if (rc < 0)
        return sl_fail_errno(err, SL_ERR_UNSUPPORTED, -rc, "this system allows no io_uring");
    if (!can_read(&r->ring)) {
        io_uring_queue_exit(&r->ring);
        return sl_fail(err, SL_ERR_UNSUPPORTED, "io_uring needs Linux 5.6 or newer to read files");
    }
    unsigned n_workers[2] = {KERNEL_WORKERS_MAX, 1}; // for files; for sockets and the like, unused
    // Before Linux 5.15 there is no such limit.
    (void)io_uring_register_iowq_max_workers(&r->ring, n_workers);
    if ((rc = restrict_ring(&r->ring)) != 0) {
        io_uring_queue_exit(&r->ring);
        return sl_fail_errno(err, SL_ERR_UNSUPPORTED, -rc, "restricting an io_uring to reads");
    }
    *out = &r->base;
    return SL_OK;
}

#else

bool sl__reader_uring_works(void) {
    return false;
}
uint64_t sl__reader_uring_bytes(void) {
    return 0;
}
uint64_t sl__reader_uring_kernel_bytes(uint32_t depth) {
    (void)depth;
    return 0;
}
sl_status sl__reader_uring_open(uint32_t depth, sl_arena *arena, sl_reader **out, sl_error *err) {
    (void)depth;
    (void)arena;
    (void)out;
    return sl_fail(err, SL_ERR_UNSUPPORTED, "this program was built without liburing");
}

#endif
