/* io: files, both readers, faults and the drive probe, on real files in a folder of their own beside
 * the test program. As root everything runs a second time as an ordinary user, with the 8 MiB of
 * lockable memory that such a user has. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/file.h"

#define ORDINARY_USER 65534

/* The file most tests read: whole pages and an odd tail. */
#define DATA_PAGES 300
#define DATA_TAIL 1234
#define DATA_BYTES (DATA_PAGES * SL_PAGE + DATA_TAIL)

static uint8_t data[DATA_BYTES];
static SL_ALIGNED(4096) uint8_t block[DATA_PAGES * 4096 + 4096];
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
    assert_true((status == SL_OK && is_direct) || status == SL_ERR_UNSUPPORTED);
    sl_file_close(&file);
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
