/* Conversion as the kernel sees it: killed at any moment, on a full drive, its memory and the page cache it leaves.
 * Each conversion runs in a child process. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/convert.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "store/verify.h"

/* What a child does: convert with a limit on file sizes, then write status, message and "resumed" to a pipe. */
typedef struct answer {
    sl_status status;
    bool resumed;
    char message[SL_ERROR_MESSAGE_MAX];
} answer;

// Half way, once: wait for a signal to go on.
static bool stop_half_way(void *user, uint64_t done, uint64_t total) {
    bool *stopped = user;
    if (done >= total / 2 && !*stopped) {
        *stopped = true;
        (void)raise(SIGSTOP);
    }
    return true;
}

static bool moves; // what children do: take no second copy

static pid_t begin(const char *src, const char *dst, uint64_t file_bytes_max, bool stop,
                   int *from) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool stopped = false;
        const sl_convert_params params = {
            .move = moves, .report = stop ? stop_half_way : NULL, .user = &stopped};
        sl_convert_outcome out;
        sl_error err = {0};
        answer a = {0};
        if (file_bytes_max) {
            const struct rlimit limit = {file_bytes_max, file_bytes_max};
            (void)signal(SIGXFSZ, SIG_IGN);
            (void)setrlimit(RLIMIT_FSIZE, &limit);
        }
        a.status = sl_convert_run(src, dst, &params, &out, &err);
        a.resumed = out.resumed;
        memcpy(a.message, err.message, sizeof(a.message));
        sl_convert_outcome_deinit(&out);
        (void)!write(ends[1], &a, sizeof(a));
        _exit(0);
    }
    (void)close(ends[1]);
    *from = ends[0];
    return pid;
}

// The child's answer, and its peak memory in bytes. A child that was killed has status SL_ERR_CANCELED.
static answer finish(pid_t pid, int from, uint64_t *peak) {
    answer a = {.status = SL_ERR_CANCELED};
    struct rusage usage;
    int status;
    if (read(from, &a, sizeof(a)) != sizeof(a))
        a.status = SL_ERR_CANCELED;
    (void)close(from);
    assert_int_equal(wait4(pid, &status, 0, &usage), pid);
    if (peak)
        *peak = (uint64_t)usage.ru_maxrss * 1024;
    return a;
}

static answer run(const char *src, const char *dst, uint64_t file_bytes_max, uint64_t *peak) {
    int from;
    pid_t pid = begin(src, dst, file_bytes_max, false, &from);
    return finish(pid, from, peak);
}

static void check(const answer *a) {
    if (a->status)
        fail_msg("%s: %s", sl_status_name(a->status), a->message);
}

static test_checkpoint middling(void) {
    test_checkpoint spec = test_checkpoint_default();
    spec.n_layers = 8;
    spec.n_experts = 16;
    spec.d_model = 256;
    spec.d_expert = 256;
    spec.n_vocab = 4000;
    return spec;
}

static void stores_agree(const char *a, const char *b, uint32_t n_layers, bool manifest) {
    // A move leaves the files' times out of what the manifest says of the checkpoint.
    static const char *const files[] = {"manifest.json", "trunk.bin", "embed.bin", "experts.sum"};
    for (size_t i = !manifest; i < SL_COUNT(files); i++)
        assert_true(test_files_equal(test_path_in(a, files[i]), test_path_in(b, files[i])));
    for (uint32_t i = 0; i < n_layers; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "experts/%03u.bin", i);
        assert_true(test_files_equal(test_path_in(a, name), test_path_in(b, name)));
    }
}

/* Killed after ever longer times until it gets through: the store is the same, and work is carried over. */
static void kill_at_any_moment(void **state) {
    (void)state;
    test_checkpoint spec = middling();
    const char *src = test_scratch_path("kill-src"), *whole = test_scratch_path("kill-whole");
    const char *dst = test_scratch_path("kill");
    test_checkpoint_write(src, &spec);
    answer a = run(src, whole, 0, NULL);
    check(&a);
    unsigned n_killed = 0;
    bool resumed = false;
    for (long us = 500; us < 60000000; us += us / 4 + 500) {
        int from;
        pid_t pid = begin(src, dst, 0, false, &from);
        const struct timespec nap = {us / 1000000, us % 1000000 * 1000};
        (void)nanosleep(&nap, NULL);
        (void)kill(pid, SIGKILL);
        a = finish(pid, from, NULL);
        if (a.status == SL_OK)
            break;
        assert_int_equal(a.status, SL_ERR_CANCELED);
        // Never half a store under its name.
        assert_int_equal(access(dst, F_OK), -1);
        n_killed++;
    }
    if (access(dst, F_OK)) {
        a = run(src, dst, 0, NULL);
        check(&a);
    }
    resumed = a.resumed;
    print_message("killed %u times, then done%s\n", n_killed, resumed ? " from where it was" : "");
    assert_true(n_killed >= 3 && resumed);
    stores_agree(whole, dst, spec.n_layers, true);
}

static uint64_t blocks_of(const char *folder, uint32_t n_shards) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_shards; i++) {
        char name[64];
        struct stat s;
        (void)snprintf(name, sizeof(name), "model-%u.safetensors", i);
        if (stat(test_path_in(folder, name), &s) == 0)
            bytes += (uint64_t)s.st_blocks * 512;
    }
    return bytes;
}

/* Moved, and killed after ever longer times until it gets through: the store is whole, the checkpoint gone. In between,
 * nobody else takes the checkpoint for one, or the unfinished store for another conversion's. */
static void moved(const char *name, test_layout layout) {
    test_checkpoint spec = middling();
    char src_name[64], dst_name[64], whole_name[64];
    spec.layout = layout;
    spec.n_shards = 3;
    (void)snprintf(src_name, sizeof(src_name), "move-%s-src", name);
    (void)snprintf(dst_name, sizeof(dst_name), "move-%s", name);
    (void)snprintf(whole_name, sizeof(whole_name), "move-%s-whole", name);
    char src[1024], dst[1024], whole[1024];
    (void)snprintf(src, sizeof(src), "%s", test_scratch_path(src_name));
    (void)snprintf(dst, sizeof(dst), "%s", test_scratch_path(dst_name));
    (void)snprintf(whole, sizeof(whole), "%s", test_scratch_path(whole_name));
    test_checkpoint_write(src, &spec);
    answer a = run(src, whole, 0, NULL);
    check(&a);
    unsigned n_killed = 0, n_refused = 0;
    const uint64_t before = blocks_of(src, spec.n_shards);
    uint64_t least = before;
    for (long us = 500; us < 60000000; us += us / 8 + 500) {
        int from;
        moves = true;
        pid_t pid = begin(src, dst, 0, false, &from);
        const struct timespec nap = {us / 1000000, us % 1000000 * 1000};
        (void)nanosleep(&nap, NULL);
        (void)kill(pid, SIGKILL);
        a = finish(pid, from, NULL);
        moves = false;
        if (a.status == SL_OK)
            break;
        assert_int_equal(a.status, SL_ERR_CANCELED);
        n_killed++;
        if (access(test_path_in(src, "sluice-move"), F_OK)) {
            if (access(dst, F_OK) == 0) { // all was done but saying so
                a.status = SL_OK;
                break;
            }
            continue;
        }
        least = SL_MIN(least, blocks_of(src, spec.n_shards));
        a = run(src, test_path_in(test_scratch(), "move-other"), 0, NULL);
        assert_int_equal(a.status, SL_ERR_STATE);
        if (access(dst, F_OK)) {
            answer other =
                run(whole, dst, 0, NULL); // no checkpoint: refused before anything is touched
            assert_int_not_equal(other.status, SL_OK);
        }
        n_refused++;
    }
    if (a.status) {
        moves = true;
        a = run(src, dst, 0, NULL);
        moves = false;
        check(&a);
    }
    print_message("killed %u times, %u of them in the move; least of the checkpoint left %.2f\n",
                  n_killed, n_refused, (double)least / (double)before);
    assert_true(n_killed >= 3 && n_refused >= 1);
    stores_agree(whole, dst, spec.n_layers, false);
    const sl_verify_params quiet = {0};
    sl_error err;
    uint32_t n_damaged;
    assert_int_equal(sl_store_verify(dst, &quiet, &n_damaged, &err), SL_OK);
    assert_int_equal(blocks_of(src, spec.n_shards), 0);
    assert_int_equal(access(test_path_in(src, "sluice-move"), F_OK), -1);
    assert_int_equal(access(test_path_in(src, "config.json"), F_OK), 0);
}

static void moved_at_any_moment(void **state) {
    (void)state;
    moved("mlx", TEST_MLX_DENSE);
    moved("fused", TEST_HF_FUSED);
}

/* What a stopped move left is not thrown away by another conversion to the same place, and files with other names are not
 * moved. */
static void moves_are_careful(void **state) {
    (void)state;
    test_checkpoint spec = middling();
    char src[1024], other[1024], dst[1024];
    int from, status;
    (void)snprintf(src, sizeof(src), "%s", test_scratch_path("careful-src"));
    (void)snprintf(other, sizeof(other), "%s", test_scratch_path("careful-other"));
    (void)snprintf(dst, sizeof(dst), "%s", test_scratch_path("careful"));
    test_checkpoint_write(src, &spec);
    spec.n_vocab++;
    test_checkpoint_write(other, &spec);
    moves = true;
    assert_int_equal(link(test_path_in(src, "model.safetensors"), test_path_in(src, "same.file")),
                     0);
    answer a = run(src, dst, 0, NULL);
    assert_int_equal(a.status, SL_ERR_UNSUPPORTED);
    assert_int_equal(unlink(test_path_in(src, "same.file")), 0);
    pid_t pid = begin(src, dst, 0, true, &from);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    (void)kill(pid, SIGKILL);
    (void)finish(pid, from, NULL);
    a = run(other, dst, 0, NULL);
    assert_int_equal(a.status, SL_ERR_STATE);
    moves = false;
    a = run(other, dst, 0, NULL);
    assert_int_equal(a.status, SL_ERR_STATE);
    assert_non_null(strstr(a.message, "only copy"));
    moves = true;
    a = run(src, dst, 0, NULL);
    moves = false;
    check(&a);
    assert_true(a.resumed);
}

// Two at once: the second is told that somebody is at work.
static void one_at_a_time(void **state) {
    (void)state;
    test_checkpoint spec = middling();
    const char *src = test_scratch_path("two-src"), *dst = test_scratch_path("two");
    test_checkpoint_write(src, &spec);
    int from, status;
    pid_t pid = begin(src, dst, 0, true, &from);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    answer second = run(src, dst, 0, NULL);
    (void)kill(pid, SIGCONT);
    answer first = finish(pid, from, NULL);
    check(&first);
    assert_int_equal(second.status, SL_ERR_STATE);
    assert_non_null(strstr(second.message, "another process"));
}

static void a_file_that_cannot_grow(void **state) {
    (void)state;
    test_checkpoint spec = middling();
    const char *src = test_scratch_path("limit-src"), *dst = test_scratch_path("limit");
    test_checkpoint_write(src, &spec);
    answer a = run(src, dst, 100000, NULL);
    assert_int_equal(a.status, SL_ERR_IO);
    assert_non_null(strstr(a.message, "longer than is allowed"));
    assert_int_equal(access(test_path_in(test_scratch(), "limit.partial"), F_OK), 0);
    a = run(src, dst, 0, NULL);
    check(&a);
}

/* A drive of 8 MiB: said before anything is written. Filled up behind its back: said in words, and what is done is
 * kept. Needs the right to mount. */
static void a_full_drive(void **state) {
    (void)state;
    test_checkpoint spec = middling();
    const char *src = test_scratch_path("full-src"), *drive = test_scratch_path("drive");
    assert_int_equal(mkdir(drive, 0777), 0);
    if (mount("tmpfs", drive, "tmpfs", 0, "size=16m")) {
        print_message("mounting a small file system: %s: skipped\n", strerror(errno));
        skip();
    }
    test_checkpoint_write(src, &spec);
    answer a = run(src, test_path_in(drive, "m"), 0, NULL);
    bool said = a.status == SL_ERR_IO && strstr(a.message, "not enough space");
    (void)umount(drive);
    if (!said)
        fail_msg("%s: %s", sl_status_name(a.status), a.message);
    // Large enough at first; the child is stopped, the drive filled, and the child goes on.
    assert_int_equal(mount("tmpfs", drive, "tmpfs", 0, "size=64m"), 0);
    int from, status;
    pid_t pid = begin(src, test_path_in(drive, "m"), 0, true, &from);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    FILE *hog = fopen(test_path_in(drive, "hog"), "wb");
    const char block[4096] = {0};
    setvbuf(hog, NULL, _IONBF, 0);
    while (fwrite(block, 1, sizeof(block), hog) == sizeof(block))
        ;
    (void)fclose(hog);
    (void)kill(pid, SIGCONT);
    a = finish(pid, from, NULL);
    bool words = a.status == SL_ERR_IO && strstr(a.message, "no space is left");
    (void)unlink(test_path_in(drive, "hog"));
    answer after = run(src, test_path_in(drive, "m"), 0, NULL);
    (void)umount(drive);
    if (!words)
        fail_msg("%s: %s", sl_status_name(a.status), a.message);
    check(&after);
    assert_true(after.resumed);
}

/* 2 GiB of weights (zeros that take no space in the source), among them matrices far larger than any buffer. */
static void memory_is_bounded(void **state) {
    (void)state;
    test_checkpoint spec = {.layout = TEST_HF_FUSED,
                            .n_layers = 4,
                            .d_model = 2048,
                            .n_experts = 32,
                            .d_expert = 512,
                            .n_vocab = 200000,
                            .sparse = true};
    const char *src = test_scratch_path("large-src"), *dst = test_scratch_path("large");
    uint64_t room, peak, cached, total = 0;
    sl_error err;
    sl_store s;
    assert_int_equal(sl_path_free_bytes(test_scratch(), &room, &err), SL_OK);
    if (room < SL_GIB * 3 / 2) {
        print_message("1.5 GiB of free space are needed: skipped\n");
        skip();
    }
    test_checkpoint_write(src, &spec);
    struct timespec before, after;
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    answer a = run(src, dst, 0, &peak);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    check(&a);
    double seconds =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    assert_int_equal(sl_store_open(dst, SL_DIRECT_PREFERRED, &s, &err), SL_OK);
    print_message("peak %.1f MiB, %.1f s for a store of %.2f GiB\n", (double)peak / (double)SL_MIB,
                  seconds, (double)s.model_bytes / (double)SL_GIB);
    assert_true(peak < 300 * SL_MIB);
    // Blocks that went through part by part have the checksums of what is in the file.
    const sl_verify_params quiet = {0};
    uint32_t n_damaged;
    assert_int_equal(sl_store_verify(dst, &quiet, &n_damaged, &err), SL_OK);
    // Nothing of source or store stays in the page cache.
    const char *files[] = {"trunk.bin",       "embed.bin",   "experts/000.bin",
                           "experts/003.bin", "experts.sum", "manifest.json"};
    for (size_t i = 0; i <= SL_COUNT(files); i++) {
        sl_file f;
        const char *path = i < SL_COUNT(files) ? test_path_in(dst, files[i])
                                               : test_path_in(src, "model.safetensors");
        assert_int_equal(sl_file_open(path, false, &f, &err), SL_OK);
        assert_int_equal(sl_file_cached_bytes(&f, &cached, &err), SL_OK);
        total += cached;
        sl_file_close(&f);
    }
    bool direct = s.direct;
    sl_store_close(&s);
    if (!direct) {
        print_message("no direct I/O on this file system: the page cache is not judged\n");
        return;
    }
    assert_int_equal(total, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_at_any_moment),      cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(moved_at_any_moment),     cmocka_unit_test(moves_are_careful),
        cmocka_unit_test(a_file_that_cannot_grow), cmocka_unit_test(a_full_drive),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
