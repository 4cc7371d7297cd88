/* io: files, both readers, faults and the drive probe, on real files in a folder of their own
 * beside the test program. As root everything runs a second time as an ordinary user, with the 8
 * MiB of lockable memory that such a user has. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "io/drive.h"
#include "io/file.h"
#include "io/reader.h"
#include "io/reader_internal.h"

#define ORDINARY_USER 65534

/* The file most tests read: whole pages and an odd tail. */
#define DATA_PAGES 300
#define DATA_TAIL 1234
#define DATA_BYTES (DATA_PAGES * SL_PAGE + DATA_TAIL)

static uint8_t data[DATA_BYTES];
// The data file in whole pages, and a page that nobody may write to.
static SL_ALIGNED(4096) uint8_t block[DATA_PAGES * 4096 + 2 * 4096];
static char work_dir[64];     // made by main, of the user who runs the tests
static char foreign_path[96]; // of root, readable by all

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", work_dir, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    for (size_t at = 0; at < n;) {
        ssize_t rc = write(fd, (const uint8_t *)bytes + at, n - at);
        assert_true(rc > 0);
        at += (size_t)rc;
    }
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

static unsigned open_fds(void) {
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Open a file directly, or skip the test where its file system has no direct I/O. */
static void open_direct(const char *name, sl_file *file) {
    sl_error err;
    sl_status status = sl_file_open(in_dir(name), true, file, &err);
    if (status == SL_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", err.message);
        skip();
    }
    assert_int_equal(status, SL_OK);
}

/* The same, and where direct reads stay out of the page cache. */
static void open_truly_direct(const char *name, sl_file *file) {
    sl_error err;
    bool is_direct;
    open_direct(name, file);
    assert_int_equal(sl_file_probe_direct(file, &is_direct, &err), SL_OK);
    if (!is_direct) {
        sl_file_close(file);
        print_message("skipped: the build folder's file system reads through the page cache\n");
        skip();
    }
}

static void file_reads_what_is_there(void **state) {
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        sl_file file;
        sl_error err;
        if (direct)
            open_direct("data", &file);
        else
            assert_int_equal(sl_file_open(in_dir("data"), false, &file, &err), SL_OK);
        assert_int_equal(file.bytes, DATA_BYTES);
        assert_int_equal(file.direct, direct);
        assert_true(file.align >= 1 && file.align <= 4096 && (direct || file.align == 1));

        assert_int_equal(sl_file_read(&file, block, 7 * SL_PAGE, 3 * SL_PAGE, NULL, &err), SL_OK);
        assert_memory_equal(block, data + 3 * SL_PAGE, 7 * SL_PAGE);

        // Past the end: the tail, no byte more, and an error for who asked for all of it.
        size_t got;
        memset(block, 0xa5, sizeof(block));
        assert_int_equal(
            sl_file_read(&file, block, 4 * SL_PAGE, (DATA_PAGES - 2) * SL_PAGE, &got, &err), SL_OK);
        assert_int_equal(got, 2 * SL_PAGE + DATA_TAIL);
        assert_memory_equal(block, data + (DATA_PAGES - 2) * SL_PAGE, got);
        assert_int_equal(
            sl_file_read(&file, block, 4 * SL_PAGE, (DATA_PAGES - 2) * SL_PAGE, NULL, &err),
            SL_ERR_CORRUPT);
        assert_int_equal(err.offset, (DATA_PAGES - 2) * SL_PAGE);
        assert_non_null(strstr(err.message, "16384"));
        assert_non_null(strstr(err.message, "9426"));
        assert_int_equal(sl_file_read(&file, block, SL_PAGE, 1 << 30, &got, &err), SL_OK);
        assert_int_equal(got, 0);
        assert_int_equal(sl_file_read(&file, block, SL_PAGE, UINT64_MAX - SL_PAGE + 1, &got, &err),
                         SL_ERR_CORRUPT);
        assert_int_equal(sl_file_read(&file, block, 0, 0, NULL, &err), SL_OK);
        sl_file_close(&file);
        assert_int_equal(file.fd, -1);
        sl_file_close(&file);
    }
}

static void file_refuses_what_is_no_file(void **state) {
    (void)state;
    unsigned before = open_fds();
    sl_file file;
    sl_error err;
    for (int direct = 0; direct < 2; direct++) {
        assert_int_equal(sl_file_open(in_dir("none"), direct, &file, &err), SL_ERR_MISSING);
        assert_non_null(strstr(err.message, "none"));
        assert_int_equal(file.fd, -1);
        assert_int_equal(sl_file_open(in_dir("data/below"), direct, &file, &err), SL_ERR_MISSING);
        assert_int_not_equal(sl_file_open(work_dir, direct, &file, &err), SL_OK);
        assert_int_not_equal(sl_file_open("/dev/zero", direct, &file, &err), SL_OK);
        // Nobody will ever write into this one.
        assert_int_not_equal(sl_file_open(in_dir("pipe"), direct, &file, &err), SL_OK);
    }
    assert_int_equal(sl_file_open(in_dir("pipe"), false, &file, &err), SL_ERR_IO);
    assert_non_null(strstr(err.message, "regular file"));
    assert_int_equal(open_fds(), before);
}

static void direct_reads_leave_no_pages(void **state) {
    (void)state;
    sl_file file;
    sl_error err;
    uint64_t cached;
    open_truly_direct("data", &file);
    assert_int_equal(sl_file_drop_cache(file.fd, &err), SL_OK);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
    assert_int_equal(cached, 0);
    size_t got;
    assert_int_equal(sl_file_read(&file, block, sizeof(block), 0, &got, &err), SL_OK);
    assert_int_equal(got, DATA_BYTES);
    assert_memory_equal(block, data, DATA_BYTES);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
    assert_int_equal(cached, 0);
    sl_file_close(&file);
}

static void cached_pages_are_seen_and_dropped(void **state) {
    (void)state;
    sl_file file;
    sl_error err;
    uint64_t cached;
    open_truly_direct("data", &file);
    int fd = open(in_dir("data"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, block, DATA_BYTES, 0), DATA_BYTES);
    close(fd);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
    assert_int_equal(cached, SL_ALIGN_UP(DATA_BYTES, (uint64_t)sysconf(_SC_PAGESIZE)));
    // The proof does not need a file that nobody has read before.
    bool is_direct;
    assert_int_equal(sl_file_probe_direct(&file, &is_direct, &err), SL_OK);
    assert_true(is_direct);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
    assert_int_equal(cached, 0);

    sl_file buffered;
    assert_int_equal(sl_file_open(in_dir("data"), false, &buffered, &err), SL_OK);
    assert_int_equal(sl_file_read(&buffered, block, 100000, 5001, NULL, &err), SL_OK);
    assert_memory_equal(block, data + 5001, 100000);
    assert_int_equal(sl_file_cached_bytes(&buffered, &cached, &err), SL_OK);
    assert_int_equal(cached, 0);
    sl_file_close(&buffered);
    sl_file_close(&file);
}

static void memory_file_systems_are_not_direct(void **state) {
    (void)state;
    char path[] = "/dev/shm/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        print_message("skipped: /dev/shm is not writable\n");
        skip();
    }
    assert_int_equal(write(fd, data, 3 * SL_PAGE), 3 * SL_PAGE);
    close(fd);
    sl_file file;
    sl_error err;
    bool is_direct = true;
    sl_status status = sl_file_open(path, true, &file, &err);
    if (status == SL_OK) {
        assert_int_equal(sl_file_probe_direct(&file, &is_direct, &err), SL_OK);
        assert_false(is_direct);
        sl_file_close(&file);
    } else {
        assert_int_equal(status, SL_ERR_UNSUPPORTED); // kernels before 6.6
    }
    unlink(path);
}

static void other_peoples_files_are_taken_at_the_kernels_word(void **state) {
    (void)state;
    if (geteuid() == 0) {
        print_message("skipped: root may ask about every file; see the run as an ordinary user\n");
        skip();
    }
    if (foreign_path[0] == '\0') {
        print_message("skipped: only root can make a file of another user\n");
        skip();
    }
    sl_file file;
    sl_error err;
    uint64_t cached;
    bool is_direct;
    sl_status status = sl_file_open(foreign_path, true, &file, &err);
    if (status == SL_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", err.message);
        skip();
    }
    assert_int_equal(status, SL_OK);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "another user"));
    status = sl_file_probe_direct(&file, &is_direct, &err);
    sl_file_close(&file);
    sl_drive_info info;
    sl_drive_describe(foreign_path, &info);
    if (strcmp(info.file_system, "tmpfs") == 0)
        assert_true(status == SL_OK && !is_direct);
    else
        assert_true((status == SL_OK && is_direct) || status == SL_ERR_UNSUPPORTED);
}

static void empty_files_are_fine(void **state) {
    (void)state;
    sl_file file;
    sl_error err;
    uint64_t cached;
    bool is_direct;
    size_t got;
    open_direct("empty", &file);
    assert_int_equal(file.bytes, 0);
    assert_int_equal(sl_file_probe_direct(&file, &is_direct, &err), SL_OK);
    assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
    assert_int_equal(cached, 0);
    assert_int_equal(sl_file_read(&file, block, SL_PAGE, 0, &got, &err), SL_OK);
    assert_int_equal(got, 0);
    sl_file_close(&file);
}

/* ---- readers ------------------------------------------------------------------------------- */

#define READS_MAX 64

static sl_arena arena;
static sl_reader *reader;

/* False where this reader cannot be had, with the reason printed. */
static bool open_reader(sl_reader_kind kind, uint32_t depth) {
    sl_error err;
    if (kind == SL_READER_URING && !sl_reader_uring_works()) {
        print_message("skipped: this system allows no io_uring\n");
        return false;
    }
    uint64_t bytes = sl_reader_bytes(kind, depth);
    assert_int_equal(sl_arena_map(&arena, "ring", bytes, &err), SL_OK);
    assert_int_equal(sl_reader_open(kind, depth, &arena, &reader, &err), SL_OK);
    assert_true(arena.used <= bytes);
    assert_true(arena.bytes - arena.used < 2 * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_int_equal(sl_reader_free(reader), depth);
    return true;
}

static void close_reader(void) {
    sl_reader_close(reader);
    sl_arena_unmap(&arena);
}

/* What a read of the data file must bring. */
static void assert_read(const sl_read *read) {
    uint64_t want = 0;
    if (read->offset < DATA_BYTES)
        want = SL_MIN((uint64_t)read->n_bytes, DATA_BYTES - read->offset);
    assert_true(read->done);
    assert_false(read->busy);
    assert_int_equal(read->result, want);
    assert_memory_equal(read->buf, data + SL_MIN(read->offset, DATA_BYTES), want);
}

/* Read the data file in pieces of 1, 2, 3.. pages with depth reads in flight, into its place in
 * `block`; the last piece reaches over the end. push: leave it to the reader to wait for room. */
static void read_all(int fd, uint32_t depth, bool push) {
    static sl_read reads[READS_MAX];
    memset(reads, 0, sizeof(reads));
    memset(block, 0xa5, sizeof(block));
    uint32_t n = 0;
    for (uint64_t page = 0; page <= DATA_PAGES; n++) {
        assert_true(n < READS_MAX);
        uint64_t n_pages = SL_MIN((uint64_t)n + 1, DATA_PAGES + 1 - page);
        reads[n] = (sl_read){.fd = fd,
                             .n_bytes = (uint32_t)(n_pages * SL_PAGE),
                             .offset = page * SL_PAGE,
                             .buf = block + page * SL_PAGE,
                             .tag = n};
        page += n_pages;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; !push && sl_reader_free(reader) == 0; j++) {
            assert_true(j < i);
            sl_reader_wait(reader, &reads[j]);
        }
        sl_reader_submit(reader, &reads[i]);
        sl_reader_poll(reader);
    }
    // Last first: those before it are marked on the way, or still under way.
    for (uint32_t i = n; i > 0; i--) {
        sl_reader_wait(reader, &reads[i - 1]);
        assert_read(&reads[i - 1]);
        assert_int_equal(reads[i - 1].tag, i - 1);
        sl_reader_wait(reader, &reads[i - 1]);
    }
    assert_int_equal(sl_reader_free(reader), depth);
    for (size_t i = sizeof(block) - SL_PAGE; i < sizeof(block); i++)
        assert_int_equal(block[i], 0xa5);
}

static void reader_reads_what_is_there(sl_reader_kind kind) {
    const uint32_t depths[] = {1, 2, 7, 32};
    unsigned fds = open_fds();
    sl_file file;
    sl_error err;
    bool is_direct;
    open_direct("data", &file);
    assert_int_equal(sl_file_probe_direct(&file, &is_direct, &err), SL_OK);
    for (size_t i = 0; i < SL_COUNT(depths); i++) {
        if (!open_reader(kind, depths[i])) {
            sl_file_close(&file);
            skip();
        }
        uint64_t cached, violations = sl_seal_violations();
        assert_int_equal(sl_file_drop_cache(file.fd, &err), SL_OK);
        size_t heap = mallinfo2().uordblks;
        sl_seal_enter();
        read_all(file.fd, depths[i], false);
        read_all(file.fd, depths[i], true);
        sl_seal_leave();
        assert_int_equal(mallinfo2().uordblks, heap);
        assert_int_equal(sl_seal_violations(), violations);
        assert_int_equal(sl_file_cached_bytes(&file, &cached, &err), SL_OK);
        if (is_direct)
            assert_int_equal(cached, 0);
        close_reader();
    }
    sl_file_close(&file);
    assert_int_equal(open_fds(), fds);
}

static void uring_reads_what_is_there(void **state) {
    (void)state;
    reader_reads_what_is_there(SL_READER_URING);
}

static void pread_reads_what_is_there(void **state) {
    (void)state;
    reader_reads_what_is_there(SL_READER_PREAD);
}

/* Run a test with each reader that can be had. */
#define FOR_EACH_READER(kind, depth)                                                               \
    for (sl_reader_kind kind = SL_READER_URING; kind <= SL_READER_PREAD; kind++)                   \
        if (open_reader(kind, depth))

static void buffered_files_need_no_alignment(void **state) {
    (void)state;
    sl_file file;
    sl_error err;
    assert_int_equal(sl_file_open(in_dir("data"), false, &file, &err), SL_OK);
    FOR_EACH_READER(kind, 4) {
        read_all(file.fd, 4, false);
        read_all(file.fd, 4, true);
        sl_read read = {.fd = file.fd, .n_bytes = 77777, .offset = 12345, .buf = block + 1};
        sl_reader_submit(reader, &read);
        sl_reader_wait(reader, &read);
        assert_read(&read);
        read = (sl_read){.fd = file.fd, .n_bytes = 100, .offset = DATA_BYTES - 7, .buf = block + 3};
        sl_reader_submit(reader, &read);
        sl_reader_wait(reader, &read);
        assert_read(&read);
        close_reader();
    }
    sl_file_close(&file);
}

static void reads_behind_the_end_bring_nothing(void **state) {
    (void)state;
    sl_file file;
    open_direct("data", &file);
    FOR_EACH_READER(kind, 2) {
        for (uint64_t page = DATA_PAGES; page < DATA_PAGES + 3; page++) {
            sl_read read = {.fd = file.fd, .n_bytes = 8192, .offset = page * SL_PAGE, .buf = block};
            sl_reader_submit(reader, &read);
            sl_reader_wait(reader, &read);
            assert_read(&read);
        }
        close_reader();
    }
    sl_file_close(&file);
}

static void errors_arrive_as_results(void **state) {
    (void)state;
    sl_file file;
    open_direct("data", &file);
    FOR_EACH_READER(kind, 2) {
        sl_read bad = {.fd = 1 << 20, .n_bytes = 4096, .buf = block};
        sl_read good = {.fd = file.fd, .n_bytes = 4096, .buf = block + 4096};
        sl_reader_submit(reader, &bad);
        sl_reader_submit(reader, &good);
        sl_reader_wait(reader, &bad);
        assert_int_equal(bad.result, -EBADF);
        sl_reader_wait(reader, &good);
        assert_read(&good);
        close_reader();
    }
    sl_file_close(&file);
}

static void polling_is_enough(void **state) {
    (void)state;
    sl_file file;
    open_direct("data", &file);
    FOR_EACH_READER(kind, 8) {
        sl_read reads[8];
        memset(reads, 0, sizeof(reads));
        for (uint32_t i = 0; i < 8; i++) {
            reads[i] = (sl_read){.fd = file.fd,
                                 .n_bytes = 8 * 4096,
                                 .offset = 8 * i * SL_PAGE,
                                 .buf = block + 8 * i * SL_PAGE};
            sl_reader_submit(reader, &reads[i]);
        }
        uint64_t end = sl_clock_ns() + 10000000000;
        while (sl_reader_free(reader) < 8 && sl_clock_ns() < end)
            sl_reader_poll(reader);
        for (uint32_t i = 0; i < 8; i++)
            assert_read(&reads[i]);
        close_reader();
    }
    sl_file_close(&file);
}

static void closing_waits_for_reads(void **state) {
    (void)state;
    sl_file file;
    open_direct("data", &file);
    FOR_EACH_READER(kind, 32) {
        static sl_read reads[32];
        memset(reads, 0, sizeof(reads));
        for (uint32_t i = 0; i < 32; i++) {
            reads[i] = (sl_read){.fd = file.fd,
                                 .n_bytes = 9 * 4096,
                                 .offset = 9 * i * SL_PAGE,
                                 .buf = block + 9 * i * SL_PAGE};
            sl_reader_submit(reader, &reads[i]);
        }
        close_reader();
        for (uint32_t i = 0; i < 32; i++)
            assert_read(&reads[i]);
    }
    sl_file_close(&file);
}

static void faults_strike_once_where_asked(void **state) {
    (void)state;
    sl_file file;
    open_direct("data", &file);
    FOR_EACH_READER(kind, 4) {
        for (sl_fault_kind fault = SL_FAULT_NONE; fault <= SL_FAULT_FLIP; fault++) {
            sl_read reads[4];
            memset(reads, 0, sizeof(reads));
            sl_reader_inject(reader, fault, 3);
            for (uint32_t i = 0; i < 4; i++) {
                reads[i] = (sl_read){
                    .fd = file.fd, .n_bytes = 8192, .offset = 8192 * i, .buf = block + 8192 * i};
                sl_reader_submit(reader, &reads[i]);
            }
            for (uint32_t i = 0; i < 4; i++) {
                sl_reader_wait(reader, &reads[i]);
                if (i != 2 || fault == SL_FAULT_NONE) {
                    assert_read(&reads[i]);
                } else if (fault == SL_FAULT_FLIP) {
                    assert_int_equal(reads[i].result, 8192);
                    unsigned n_bits = 0;
                    for (uint32_t at = 0; at < 8192; at++)
                        n_bits += (unsigned)__builtin_popcount(block[8192 * i + at] ^
                                                               data[8192 * i + at]);
                    assert_int_equal(n_bits, 1);
                } else {
                    assert_int_equal(reads[i].result, fault == SL_FAULT_EIO ? -EIO : 4096);
                }
            }
            sl_reader_submit(reader, &reads[2]); // the same read again is sound
            sl_reader_wait(reader, &reads[2]);
            assert_read(&reads[2]);
        }
        sl_reader_inject(reader, SL_FAULT_EIO, 1);
        sl_reader_inject(reader, SL_FAULT_NONE, 1);
        sl_read read = {.fd = file.fd, .n_bytes = 4096, .buf = block};
        sl_reader_submit(reader, &read);
        sl_reader_wait(reader, &read);
        assert_read(&read);
        close_reader();
    }
    sl_file_close(&file);
}

static void readers_refuse_what_does_not_fit(void **state) {
    (void)state;
    sl_error err;
    unsigned fds = open_fds();
    assert_int_equal(sl_arena_map(&arena, "ring", sl_reader_bytes(SL_READER_PREAD, 4) - 8192, &err),
                     SL_OK);
    assert_int_equal(sl_reader_open(SL_READER_PREAD, 4, &arena, &reader, &err), SL_ERR_MEMORY);
    assert_non_null(strstr(err.message, "'ring'"));
    assert_null(reader);
    for (sl_reader_kind kind = SL_READER_URING; kind <= SL_READER_PREAD; kind++) {
        assert_int_equal(sl_reader_open(kind, 0, &arena, &reader, &err), SL_ERR_ARGUMENT);
        assert_int_equal(sl_reader_open(kind, 257, &arena, &reader, &err), SL_ERR_ARGUMENT);
    }
    sl_reader_close(NULL);
    sl_arena_unmap(&arena);
    assert_int_equal(open_fds(), fds);
}

/* A back end whose attempts stop after 5,000 bytes, off the grid, every third one without a byte.
 * */
typedef struct halting_reader {
    sl_reader base;
    sl_read *started;
    unsigned n_attempts;
} halting_reader;

static void halting_start(sl_reader *base, sl_read *read) {
    halting_reader *r = (halting_reader *)base;
    assert_null(r->started);
    r->started = read;
}

static sl_read *halting_collect(sl_reader *base, bool wait) {
    (void)wait;
    halting_reader *r = (halting_reader *)base;
    sl_read *read = r->started;
    r->started = NULL;
    if (read && r->n_attempts++ % 3 == 2) {
        read->result = -EAGAIN;
    } else if (read) {
        sl_attempt a = sl__read_attempt(read);
        assert_int_equal((a.offset | (uintptr_t)a.buf) % 4096, 0);
        read->result = (int32_t)pread(read->fd, a.buf, SL_MIN(a.n, 5000), (off_t)a.offset);
    }
    return read;
}

static void halting_close(sl_reader *base) {
    (void)base;
}

static void short_reads_are_continued(void **state) {
    (void)state;
    static const sl_reader_ops ops = {halting_start, halting_collect, halting_close};
    halting_reader r = {.base = {.ops = &ops, .depth = 1}};
    reader = &r.base;
    sl_file file;
    sl_error err;
    assert_int_equal(sl_file_open(in_dir("data"), false, &file, &err), SL_OK);
    const uint32_t sizes[] = {1, 4096, 5000, 5001, 9000, 65536, 100001};
    for (size_t i = 0; i < SL_COUNT(sizes); i++) {
        sl_read read = {.fd = file.fd, .n_bytes = sizes[i], .offset = 8 * SL_PAGE, .buf = block};
        memset(block, 0xa5, sizeof(block));
        sl_reader_submit(reader, &read);
        sl_reader_wait(reader, &read);
        assert_read(&read);
        assert_int_equal(block[sizes[i]], 0xa5);
    }
    sl_read read = {
        .fd = file.fd, .n_bytes = 5 * 4096, .offset = (DATA_PAGES - 2) * SL_PAGE, .buf = block};
    sl_reader_submit(reader, &read);
    sl_reader_wait(reader, &read);
    assert_read(&read);
    sl_file_close(&file);
}

/* From now on `call` answers errnum in this process; with second_over_0, only when its second
 * argument is not 0. */
static bool forbid(unsigned call, unsigned errnum, bool second_over_0) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, second_over_0 ? 0 : 0xffffffff, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errnum),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = SL_COUNT(code), .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Run a test in a process of its own. It answers 0, or 77 where it could not be tried. */
static void in_child(int (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(body());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        print_message("skipped: no io_uring, or no seccomp filters here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int refused_ring(void) {
    sl_error err;
    if (!sl_reader_uring_works() || !forbid(SYS_io_uring_setup, EPERM, false))
        return 77;
    if (sl_arena_map(&arena, "ring", sl_reader_bytes(SL_READER_URING, 4), &err))
        return 1;
    if (sl_reader_uring_works())
        return 2;
    return sl_reader_open(SL_READER_URING, 4, &arena, &reader, &err) == SL_ERR_UNSUPPORTED &&
                   strstr(err.message, "io_uring") != NULL
               ? 0
               : 3;
}

static void a_forbidden_ring_is_reported(void **state) {
    (void)state;
    in_child(refused_ring);
}

/* A kernel that has no memory for requests: every read must arrive nevertheless. */
static int starved_ring(void) {
    sl_error err;
    sl_file file;
    if (!sl_reader_uring_works() ||
        sl_arena_map(&arena, "ring", sl_reader_bytes(SL_READER_URING, 4), &err) ||
        sl_reader_open(SL_READER_URING, 4, &arena, &reader, &err) ||
        sl_file_open(in_dir("data"), false, &file, &err) ||
        !forbid(SYS_io_uring_enter, EAGAIN, true))
        return 77;
    for (uint32_t i = 0; i < 20; i++) {
        sl_read reads[2] = {
            {.fd = file.fd, .n_bytes = 12288, .offset = 4096 * i, .buf = block},
            {.fd = file.fd, .n_bytes = 8192, .offset = 8192 * i, .buf = block + 65536}};
        sl_reader_submit(reader, &reads[0]);
        sl_reader_submit(reader, &reads[1]);
        for (int k = 0; k < 2; k++) {
            sl_reader_wait(reader, &reads[k]);
            if (reads[k].result != (int32_t)reads[k].n_bytes ||
                memcmp(reads[k].buf, data + reads[k].offset, reads[k].n_bytes) != 0)
                return 1;
        }
    }
    sl_reader_close(reader);
    return 0;
}

static void a_starved_ring_still_reads(void **state) {
    (void)state;
    in_child(starved_ring);
}

/* ---- drive --------------------------------------------------------------------------------- */

static void a_drive_is_measured(void **state) {
    (void)state;
    const struct {
        uint64_t record_bytes, total_bytes_max;
        uint32_t depth;
        uint64_t n_reads, read_bytes; // expected
    } cases[] = {
        {4096, 1 * SL_MIB, 1, 256, 1 * SL_MIB},
        {16384, 1 * SL_MIB, 4, 64, 1 * SL_MIB},
        {16384, 64 * SL_MIB, 256, 75, 75 * 16384},  // every whole record there is
        {2 * SL_MIB, 2 * SL_MIB, 8, 1, DATA_BYTES}, // shorter than a record
        {100 * SL_PAGE, 100 * SL_PAGE, 2, 1, 100 * SL_PAGE},
    };
    unsigned fds = open_fds();
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error err;
        sl_drive_info info;
        uint64_t bytes = sl_drive_probe_bytes(cases[i].record_bytes, cases[i].depth);
        assert_int_equal(sl_arena_map(&arena, "probe", bytes, &err), SL_OK);
        assert_int_equal(sl_drive_probe(in_dir("data"), cases[i].record_bytes, cases[i].depth,
                                        cases[i].total_bytes_max, &arena, &info, &err),
                         SL_OK);
        assert_int_equal(arena.used, 0);
        sl_arena_unmap(&arena);
        assert_int_equal(info.n_reads, cases[i].n_reads);
        assert_int_equal(info.read_bytes, cases[i].read_bytes);
        assert_true(info.depth <= info.n_reads);
        assert_true(info.bytes_per_second > 0);
        assert_true(info.latency_p50_us <= info.latency_p90_us);
        assert_int_equal(info.direct, info.not_direct_why[0] == '\0');
        assert_true(info.file_system[0] != '\0');
        if (i == 1)
            print_message("%s on '%s', rotational %d, %s, %s: %.0f MB/s, %u us, %u us\n",
                          info.file_system, info.device, info.rotational,
                          info.direct ? "direct" : info.not_direct_why,
                          sl_reader_kind_name(info.reader), (double)info.bytes_per_second / 1e6,
                          info.latency_p50_us, info.latency_p90_us);
    }
    assert_int_equal(open_fds(), fds);
}

static void a_drive_in_memory_is_told(void **state) {
    (void)state;
    char path[] = "/dev/shm/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) {
        print_message("skipped: /dev/shm is not writable\n");
        skip();
    }
    assert_int_equal(write(fd, data, 64 * SL_PAGE), 64 * SL_PAGE);
    close(fd);
    sl_error err;
    sl_drive_info info;
    assert_int_equal(sl_arena_map(&arena, "probe", sl_drive_probe_bytes(8192, 4), &err), SL_OK);
    sl_status status = sl_drive_probe(path, 8192, 4, SL_MIB, &arena, &info, &err);
    unlink(path);
    sl_arena_unmap(&arena);
    assert_int_equal(status, SL_OK);
    assert_string_equal(info.file_system, "tmpfs");
    assert_false(info.direct);
    assert_true(info.not_direct_why[0] != '\0');
    assert_string_equal(info.device, "");
    assert_int_equal(info.rotational, -1);
    assert_false(info.is_network);
    assert_int_equal(info.read_bytes, 64 * SL_PAGE);
}

static void a_probe_refuses_nonsense(void **state) {
    (void)state;
    sl_error err;
    sl_drive_info info;
    assert_int_equal(sl_arena_map(&arena, "probe", sl_drive_probe_bytes(8192, 4), &err), SL_OK);
    const char *path = in_dir("data");
    assert_int_equal(sl_drive_probe(path, 0, 4, SL_MIB, &arena, &info, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_drive_probe(path, 100, 4, SL_MIB, &arena, &info, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_drive_probe(path, 8192, 0, SL_MIB, &arena, &info, &err), SL_ERR_ARGUMENT);
    assert_int_equal(sl_drive_probe(path, 8192, 4, SL_GIB, &arena, &info, &err), SL_ERR_ARGUMENT);
    sl_arena small;
    sl_arena_init(&small, "small", block, 4 * SL_PAGE);
    assert_int_equal(sl_drive_probe(path, 8192, 4, SL_MIB, &small, &info, &err), SL_ERR_MEMORY);
    assert_non_null(strstr(err.message, "'small'"));
    assert_int_equal(sl_drive_probe(in_dir("empty"), 8192, 4, SL_MIB, &arena, &info, &err),
                     SL_ERR_ARGUMENT);
    assert_int_equal(sl_drive_probe(in_dir("none"), 8192, 4, SL_MIB, &arena, &info, &err),
                     SL_ERR_MISSING);
    assert_int_equal(arena.used, 0);
    sl_arena_unmap(&arena);
    sl_drive_describe(in_dir("none"), &info);
    assert_string_equal(info.file_system, "");
    assert_int_equal(info.rotational, -1);
    sl_drive_describe("/proc", &info);
    assert_string_equal(info.file_system, "proc");
}

static int run(void) {
    write_file(in_dir("data"), data, sizeof(data));
    write_file(in_dir("empty"), data, 0);
    if (mkfifo(in_dir("pipe"), 0600) != 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_reads_what_is_there),
        cmocka_unit_test(file_refuses_what_is_no_file),
        cmocka_unit_test(direct_reads_leave_no_pages),
        cmocka_unit_test(cached_pages_are_seen_and_dropped),
        cmocka_unit_test(memory_file_systems_are_not_direct),
        cmocka_unit_test(other_peoples_files_are_taken_at_the_kernels_word),
        cmocka_unit_test(empty_files_are_fine),
        cmocka_unit_test(uring_reads_what_is_there),
        cmocka_unit_test(pread_reads_what_is_there),
        cmocka_unit_test(buffered_files_need_no_alignment),
        cmocka_unit_test(reads_behind_the_end_bring_nothing),
        cmocka_unit_test(errors_arrive_as_results),
        cmocka_unit_test(polling_is_enough),
        cmocka_unit_test(closing_waits_for_reads),
        cmocka_unit_test(faults_strike_once_where_asked),
        cmocka_unit_test(readers_refuse_what_does_not_fit),
        cmocka_unit_test(short_reads_are_continued),
        cmocka_unit_test(a_forbidden_ring_is_reported),
        cmocka_unit_test(a_starved_ring_still_reads),
        cmocka_unit_test(a_drive_is_measured),
        cmocka_unit_test(a_drive_in_memory_is_told),
        cmocka_unit_test(a_probe_refuses_nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static void make_work_dir(uid_t owner) {
    snprintf(work_dir, sizeof(work_dir), "test_io-XXXXXX");
    if (!mkdtemp(work_dir) || (geteuid() == 0 && chown(work_dir, owner, owner) != 0)) {
        perror(work_dir);
        exit(1);
    }
}

static void remove_work_dir(void) {
    static const char *const names[] = {"data", "empty", "pipe"};
    for (size_t i = 0; i < SL_COUNT(names); i++)
        (void)unlink(in_dir(names[i]));
    (void)rmdir(work_dir);
}

static int run_as_ordinary_user(void) {
    struct rlimit memlock = {.rlim_cur = 8 * SL_MIB, .rlim_max = 8 * SL_MIB};
    if (setrlimit(RLIMIT_MEMLOCK, &memlock) != 0 || setgid(ORDINARY_USER) != 0 ||
        setuid(ORDINARY_USER) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) {
        perror("becoming an ordinary user");
        return 1;
    }
    return run();
}

int main(void) {
    uint32_t x = 12345;
    for (size_t i = 0; i < sizeof(data); i++) {
        x = x * 1664525 + 1013904223;
        data[i] = (uint8_t)(x >> 24);
    }
    if (geteuid() == 0) {
        make_work_dir(ORDINARY_USER);
        snprintf(foreign_path, sizeof(foreign_path), "%s-foreign", work_dir);
        write_file(foreign_path, data, 3 * SL_PAGE);
        pid_t child = fork();
        if (child == 0)
            exit(run_as_ordinary_user());
        int state = 1;
        if (child > 0)
            (void)waitpid(child, &state, 0);
        remove_work_dir();
        (void)unlink(foreign_path);
        if (state != 0)
            return 1;
    }
    make_work_dir(geteuid());
    int failed = run();
    remove_work_dir();
    return failed;
}
