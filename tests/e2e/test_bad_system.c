/* A system that has had enough: reads, writes, files, mappings and threads that fail, one call after another, while a
 * model is opened and while one is converted; a disk that is full; a conversion that is killed. Each gives a typed
 * error, leaves nothing behind, and the same again works and gives the same bytes.
 *
 * This program's own pread, open and so on stand in front of the C library's: what the library under test calls comes
 * here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "helpers/checkpoint.h"
#include "helpers/demo.h"
#include "helpers/held.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"

/* ---- calls ------------------------------------------------------------------------------------- */

typedef enum call {
    CALL_NONE,
    CALL_OPEN,
    CALL_PREAD,
    CALL_PWRITE,
    CALL_WRITE,
    CALL_FSYNC,
    CALL_FTRUNCATE,
    CALL_FALLOCATE,
    CALL_RENAME,
    CALL_MKDIR,
    CALL_UNLINK,
    CALL_MMAP,
    CALL_THREAD,
} call;

static const char *const call_names[] = {"",       "open",      "pread",         "pwrite", "write",
                                         "fsync",  "ftruncate", "fallocate",     "rename", "mkdir",
                                         "unlink", "mmap",      "pthread_create"};

typedef enum manner { HOW_FAIL, HOW_SHORT, HOW_KILL } manner;

static struct {
    call kind;
    manner how;
    int errnum;
    bool for_ever; // from the nth on, as a disk that stays full
    atomic_long left;
    atomic_bool hit;
} plan;

// From now on the nth call of a kind fails.
static void arm(call kind, long nth, manner how, int errnum, bool for_ever) {
    plan.kind = kind;
    plan.how = how;
    plan.errnum = errnum;
    plan.for_ever = for_ever;
    atomic_store(&plan.hit, false);
    atomic_store(&plan.left, nth);
}

static bool disarm(void) {
    plan.kind = CALL_NONE;
    return atomic_load(&plan.hit);
}

static bool strikes(call kind) {
    if (plan.kind != kind)
        return false;
    long left = atomic_fetch_sub(&plan.left, 1);
    if (left > 1 || (left < 1 && !plan.for_ever))
        return false;
    atomic_store(&plan.hit, true);
    return true;
}

/* What is done instead of a call that needs no half: fails, or kills. */
static int refuse(void) {
    if (plan.how == HOW_KILL)
        (void)raise(SIGKILL);
    errno = plan.errnum;
    return -1;
}

ssize_t pread(int fd, void *buf, size_t n, off_t at) {
    if (!strikes(CALL_PREAD))
        return syscall(SYS_pread64, fd, buf, n, at);
    return plan.how == HOW_SHORT ? syscall(SYS_pread64, fd, buf, n / 2 / 4096 * 4096, at)
                                 : refuse();
}

// A disk that fills up, or a machine that is switched off, in the middle of a write.
ssize_t pwrite(int fd, const void *buf, size_t n, off_t at) {
    if (!strikes(CALL_PWRITE))
        return syscall(SYS_pwrite64, fd, buf, n, at);
    (void)syscall(SYS_pwrite64, fd, buf, n / 2 / 4096 * 4096, at);
    return refuse();
}

ssize_t write(int fd, const void *buf, size_t n) {
    if (fd <= STDERR_FILENO || !strikes(CALL_WRITE))
        return syscall(SYS_write, fd, buf, n);
    (void)syscall(SYS_write, fd, buf, n / 2);
    return refuse();
}

static const char *meminfo; // what stands for /proc/meminfo

int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (meminfo && strcmp(path, "/proc/meminfo") == 0)
        path = meminfo;
    return strikes(CALL_OPEN) ? refuse() : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fsync(int fd) {
    return strikes(CALL_FSYNC) ? refuse() : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t n) {
    return strikes(CALL_FTRUNCATE) ? refuse() : (int)syscall(SYS_ftruncate, fd, n);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
    return strikes(CALL_FALLOCATE) ? refuse() : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int rename(const char *from, const char *to) {
    return strikes(CALL_RENAME) ? refuse()
                                : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int mkdir(const char *path, mode_t mode) {
    return strikes(CALL_MKDIR) ? refuse() : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int unlink(const char *path) {
    return strikes(CALL_UNLINK) ? refuse() : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

void *mmap(void *where, size_t n, int access, int flags, int fd, off_t at) {
    if (strikes(CALL_MMAP)) {
        (void)refuse();
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, where, n, access, flags, fd, at);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *),
                   void *argument) {
    typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (strikes(CALL_THREAD))
        return plan.errnum;
    create *next = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    return next(thread, attributes, begin, argument);
}

/* ---- open -------------------------------------------------------------------------------------- */

static const uint32_t tokens[] = {7, 268, 489};

static sl_engine_options options_of(const char *model) {
    static uint64_t mem[2];
    static const char *models[2];
    sl_engine_options o;
    uint32_t i = 0;
    sl_engine_options_init(&o);
    o.n_ctx = 64;
    o.n_threads = 2;
    o.chunk = 2;
    o.io = SL_IO_PREAD;
    while (models[i] && strcmp(models[i], model) != 0)
        i++;
    if (!models[i]) {
        models[i] = model;
        uint64_t least = trace_smallest(model, &o), most = trace_largest(model, &o);
        mem[i] = least + (most - least) / 8;
    }
    o.mem_bytes = mem[i];
    return o;
}

static sl_hash128 answer_of(sl_engine *engine) {
    sl_session *session;
    sl_error err;
    demo_check(sl_session_open(engine, &session, &err), &err);
    demo_check(sl_session_feed(session, tokens, SL_COUNT(tokens), NULL, &err), &err);
    sl_hash128 hash =
        sl_hash(sl_session_logits(session), engine->store.model.n_vocab * sizeof(float));
    sl_session_close(session);
    return hash;
}

static sl_hash128 answer_at_best(const char *model) {
    sl_engine *engine;
    sl_error err;
    sl_engine_options o = options_of(model);
    demo_check(sl_engine_open(model, &o, NULL, &engine, &err), &err);
    sl_hash128 hash = answer_of(engine);
    sl_engine_close(engine);
    return hash;
}

static bool is_one_of(sl_status st, const sl_status *list) {
    for (; *list; list++)
        if (st == *list)
            return true;
    return false;
}

/* Each call of opening, or most of them, fails once. What can do without goes on, and gives the same bits. */
static void open_sweep(const char *model, call kind, manner how, int errnum,
                       const sl_status *expected) {
    const sl_hash128 want = answer_at_best(model);
    sl_engine_options o = options_of(model);
    uint32_t n_failed = 0, n_went_on = 0;
    for (long nth = 1;; nth += 1 + nth / 8) {
        sl_engine *engine;
        sl_error err = {0};
        arm(kind, nth, how, errnum, false);
        sl_status st = sl_engine_open(model, &o, NULL, &engine, &err);
        bool hit = disarm();
        if (st) {
            if (!is_one_of(st, expected) || !err.message[0] || engine)
                fail_msg("%s %ld: %s: %s", call_names[kind], nth, sl_status_name(st), err.message);
            n_failed++;
        } else {
            assert_true(sl_hash_equal(answer_of(engine), want));
            sl_engine_close(engine);
            n_went_on += hit;
        }
        if (!hit)
            break;
    }
    printf("%s, %s %s: %u failures, %u went on\n", model, call_names[kind],
           how == HOW_SHORT ? "short" : strerror(errnum), n_failed, n_went_on);
    assert_true(n_failed + n_went_on > 0);
    // A short read is continued; everything else is an error somewhere.
    assert_true(n_failed > 0 || how == HOW_SHORT);
    assert_true(sl_hash_equal(answer_at_best(model), want));
}

static const char *in_place(void) {
    static char path[1024];
    if (!path[0])
        (void)snprintf(path, sizeof(path), "%s", test_golden("qwen3_5_moe-mlx4"));
    return path;
}

static void opening(void **state) {
    (void)state;
    static const sl_status reads[] = {SL_ERR_IO, SL_ERR_CORRUPT, SL_OK},
                           files[] = {SL_ERR_IO, SL_ERR_MISSING, SL_ERR_UNSUPPORTED, SL_OK},
                           memory[] = {SL_ERR_MEMORY, SL_ERR_IO, SL_ERR_UNSUPPORTED, SL_OK};
    const char *const models[] = {demo_store(), in_place()};
    for (size_t i = 0; i < SL_COUNT(models); i++) {
        open_sweep(models[i], CALL_PREAD, HOW_FAIL, EIO, reads);
        open_sweep(models[i], CALL_PREAD, HOW_SHORT, 0, reads);
        open_sweep(models[i], CALL_OPEN, HOW_FAIL, EMFILE, files);
        open_sweep(models[i], CALL_MMAP, HOW_FAIL, ENOMEM, memory);
        open_sweep(models[i], CALL_THREAD, HOW_FAIL, EAGAIN, memory);
    }
}

/* A file that is cut short while it is being read in, and a cancel there. */
typedef struct during {
    const char *file;
    uint64_t at, total;
} during;

static bool cut_during(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    during *d = user;
    (void)phase;
    d->total = total;
    if (done < d->at)
        return true;
    if (!d->file)
        return false;
    assert_int_equal(truncate(d->file, 4096), 0);
    return true;
}

// A command of the shell, which succeeds.
static void shell(const char *fmt, ...) {
    char command[6000];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);
    assert_in_range(n, 1, sizeof(command) - 1);
    assert_int_equal(system(command), 0);
}

// Direct reads follow: no page may be dirty.
static void copy_folder(const char *from, const char *to) {
    shell("rm -rf '%s' && cp -r '%s' '%s' && sync '%s'/*", to, from, to, to);
}

static void changes_while_opening(void **state) {
    (void)state;
    const char *const models[] = {demo_store(), in_place()}, *const files[] = {"trunk.bin",
                                                                               "model.safetensors"};
    for (size_t i = 0; i < SL_COUNT(models); i++) {
        char copy[1024], file[1200];
        sl_engine_options o = options_of(models[i]);
        (void)snprintf(copy, sizeof(copy), "%s", test_scratch_path("during"));
        (void)snprintf(file, sizeof(file), "%s/%s", copy, files[i]);
        during d = {NULL, 0, 0};
        sl_progress progress = {cut_during, &d};
        for (uint32_t k = 0; k < 4; k++) {
            sl_engine *engine;
            sl_error err;
            copy_folder(models[i], copy);
            d.file = NULL;
            d.at = d.total * k / 4;
            assert_int_equal(sl_engine_open(copy, &o, &progress, &engine, &err), SL_ERR_CANCELED);
            assert_null(engine);
            if (k == 3) // by then all of this file has been read
                break;
            d.file = file;
            sl_status st = sl_engine_open(copy, &o, &progress, &engine, &err);
            printf("cut at %u quarters: %s: %s\n", k, sl_status_name(st), err.message);
            assert_true(st == SL_ERR_IO || st == SL_ERR_CORRUPT);
            assert_null(engine);
            assert_non_null(strstr(err.message, files[i]));
        }
    }
}

/* A folder that is removed, or a drive that is unmounted lazily, while a model runs: what is open is read on. */
static void a_folder_that_is_removed(void **state) {
    (void)state;
    const char *const models[] = {demo_store(), in_place()};
    for (size_t i = 0; i < SL_COUNT(models); i++) {
        char copy[1024];
        sl_engine *engine;
        sl_error err;
        sl_engine_options o = options_of(models[i]);
        (void)snprintf(copy, sizeof(copy), "%s", test_scratch_path("removed"));
        copy_folder(models[i], copy);
        demo_check(sl_engine_open(copy, &o, NULL, &engine, &err), &err);
        shell("rm -rf '%s'", copy);
        sl_hash128 got = answer_of(engine);
        sl_engine_close(engine);
        assert_true(sl_hash_equal(got, answer_at_best(models[i])));
        assert_int_equal(sl_engine_open(copy, &o, NULL, &engine, &err), SL_ERR_MISSING);
    }
}

/* A budget that is larger than the machine: refused before a page is touched. */
static void more_than_the_machine_has(void **state) {
    (void)state;
    const char *const models[] = {demo_store(), in_place()};
    char file[1024];
    (void)snprintf(file, sizeof(file), "%s", test_scratch_path("meminfo"));
    for (size_t i = 0; i < SL_COUNT(models); i++) {
        sl_engine *engine;
        sl_error err;
        sl_engine_options o = options_of(models[i]);
        shell("printf 'MemTotal: 1024 kB\\nMemAvailable: 512 kB\\n' >'%s'", file);
        meminfo = file;
        sl_status st = sl_engine_open(models[i], &o, NULL, &engine, &err);
        meminfo = NULL;
        printf("%s: %s\n", sl_status_name(st), err.message);
        assert_int_equal(st, SL_ERR_BUDGET);
        assert_null(engine);
        assert_non_null(strstr(err.message, "this machine has"));
        demo_check(sl_engine_open(models[i], &o, NULL, &engine, &err), &err);
        sl_engine_close(engine);
    }
}

/* ---- convert ----------------------------------------------------------------------------------- */

static const char *checkpoint(void) {
    static char path[1024];
    if (!path[0]) {
        test_checkpoint spec = test_checkpoint_default();
        (void)snprintf(path, sizeof(path), "%s", test_scratch_path("checkpoint"));
        test_checkpoint_write(path, &spec);
    }
    return path;
}

static sl_status convert(const char *from, const char *to, bool move, sl_error *err) {
    sl_convert_options o;
    sl_convert_options_init(&o);
    o.move = move;
    return sl_convert(from, to, &o, NULL, NULL, err);
}

static void remove_folder(const char *path) {
    shell("rm -rf '%s' '%s.partial'", path, path);
}

// But for the manifest, which names the checkpoint and when its files were written: it has a checksum of its own.
static void assert_same_store(const char *a, const char *b) {
    uint32_t n_damaged;
    sl_error err;
    sl_store store;
    shell("diff -r -x manifest.json '%s' '%s'", a, b);
    demo_check(sl_store_open(b, SL_DIRECT_REQUIRED, &store, &err), &err);
    sl_store_close(&store);
    demo_check(sl_verify(b, NULL, NULL, &n_damaged, &err), &err);
}

/* The store that comes out where nothing is wrong. */
static const char *reference(bool move) {
    static char paths[2][1024];
    if (!paths[move][0]) {
        char copy[1024];
        sl_error err;
        (void)snprintf(paths[move], sizeof(paths[0]), "%s",
                       test_scratch_path(move ? "moved" : "converted"));
        (void)snprintf(copy, sizeof(copy), "%s", test_scratch_path("to-move"));
        copy_folder(checkpoint(), copy);
        demo_check(convert(copy, paths[move], move, &err), &err);
        remove_folder(copy);
    }
    return paths[move];
}

/* Each call of a conversion fails; the same call of sl_convert() afterwards gives what would have come out. for_ever: all
 * calls of the kind from there on fail, until then. */
static void convert_sweep(bool move, call kind, manner how, int errnum, bool for_ever) {
    char from[1024], to[1024];
    uint32_t n_failed = 0, n_went_on = 0;
    (void)snprintf(from, sizeof(from), "%s", test_scratch_path("from"));
    (void)snprintf(to, sizeof(to), "%s", test_scratch_path("to"));
    copy_folder(checkpoint(), from);
    for (long nth = 1;; nth += 1 + nth / 6) {
        sl_error err = {0};
        sl_status st = SL_OK;
        bool hit;
        remove_folder(to);
        if (move)
            copy_folder(checkpoint(), from);
        if (how == HOW_KILL) {
            int status;
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                arm(kind, nth, how, errnum, for_ever);
                _exit(convert(from, to, move, &err) ? 1 : 0);
            }
            assert_int_equal(waitpid(child, &status, 0), child);
            hit = WIFSIGNALED(status);
            st = hit ? SL_ERR_IO : SL_OK;
            assert_true(hit ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
        } else {
            arm(kind, nth, how, errnum, for_ever);
            st = convert(from, to, move, &err);
            hit = disarm();
            if (st && (!err.message[0] || (st != SL_ERR_IO && st != SL_ERR_MEMORY &&
                                           st != SL_ERR_CORRUPT && st != SL_ERR_MISSING)))
                fail_msg("%s %ld: %s: %s", call_names[kind], nth, sl_status_name(st), err.message);
            if (st && errnum == ENOSPC)
                if (!strcasestr(err.message, "no space"))
                    fail_msg("%s %ld: %s", call_names[kind], nth, err.message);
        }
        n_failed += st != SL_OK;
        n_went_on += st == SL_OK && hit;
        // Killed after it was published: there is nothing left to do, or only the checkpoint to remove.
        if (st && (access(to, F_OK) != 0 || move)) {
            sl_status again = convert(from, to, move, &err);
            if (again && !(again == SL_ERR_EXISTS && access(to, F_OK) == 0))
                fail_msg("after %s %ld: %s: %s", call_names[kind], nth, sl_status_name(again),
                         err.message);
        }
        assert_same_store(reference(move), to);
        if (!hit)
            break;
    }
    printf("%s, %s %s%s: %u failures, %u went on\n", move ? "move" : "convert", call_names[kind],
           how == HOW_KILL ? "killed" : strerror(errnum), for_ever ? ", for ever" : "", n_failed,
           n_went_on);
    assert_true(n_failed > 0);
}

static void a_full_disk(void **state) {
    (void)state;
    for (int move = 0; move < 2; move++)
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            convert_sweep(move, CALL_PWRITE, HOW_FAIL, ENOSPC, for_ever);
            convert_sweep(move, CALL_WRITE, HOW_FAIL, ENOSPC, for_ever);
            convert_sweep(move, CALL_FSYNC, HOW_FAIL, ENOSPC, for_ever);
            convert_sweep(move, CALL_MKDIR, HOW_FAIL, ENOSPC, for_ever);
            convert_sweep(move, CALL_OPEN, HOW_FAIL, ENOSPC, for_ever);
        }
}

static void a_bad_drive_while_converting(void **state) {
    (void)state;
    for (int move = 0; move < 2; move++) {
        convert_sweep(move, CALL_PREAD, HOW_FAIL, EIO, false);
        convert_sweep(move, CALL_PWRITE, HOW_FAIL, EIO, false);
        convert_sweep(move, CALL_FTRUNCATE, HOW_FAIL, EIO, false);
        convert_sweep(move, CALL_RENAME, HOW_FAIL, EIO, false);
        convert_sweep(move, CALL_OPEN, HOW_FAIL, EMFILE, false);
    }
}

static void a_conversion_that_is_killed(void **state) {
    (void)state;
    for (int move = 0; move < 2; move++) {
        convert_sweep(move, CALL_PWRITE, HOW_KILL, 0, false);
        convert_sweep(move, CALL_WRITE, HOW_KILL, 0, false);
        convert_sweep(move, CALL_FSYNC, HOW_KILL, 0, false);
        convert_sweep(move, CALL_RENAME, HOW_KILL, 0, false);
        convert_sweep(move, CALL_UNLINK, HOW_KILL, 0, false);
    }
    convert_sweep(true, CALL_FALLOCATE, HOW_KILL, 0, false);
}

/* What a conversion reads is cut short, and what it writes is removed, while it runs. */
typedef struct midway {
    uint64_t at;
    const char *cut, *removed;
    bool done;
} midway;

static bool change_midway(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    midway *m = user;
    (void)phase;
    if (m->done || done < total / 4 * m->at)
        return true;
    m->done = true;
    if (m->cut)
        assert_int_equal(truncate(m->cut, 70000), 0);
    if (m->removed)
        shell("rm -rf '%s'", m->removed);
    return true;
}

static void folders_that_change_while_converting(void **state) {
    (void)state;
    char whole[1024], from[1024], to[1024], file[1100], partial[1100], good[1024];
    // More than is read ahead.
    test_checkpoint spec = test_checkpoint_default();
    sl_error ignored;
    spec.n_experts = 48;
    spec.d_expert = 256;
    (void)snprintf(whole, sizeof(whole), "%s", test_scratch_path("whole"));
    (void)snprintf(good, sizeof(good), "%s", test_scratch_path("good"));
    test_checkpoint_write(whole, &spec);
    demo_check(convert(whole, good, false, &ignored), &ignored);
    (void)snprintf(from, sizeof(from), "%s", test_scratch_path("from"));
    (void)snprintf(to, sizeof(to), "%s", test_scratch_path("to"));
    (void)snprintf(file, sizeof(file), "%s/model.safetensors", from);
    (void)snprintf(partial, sizeof(partial), "%s.partial", to);
    for (uint64_t i = 0; i < 8; i++) {
        sl_convert_options o;
        sl_error err = {0};
        midway m = {.at = i % 4, .cut = i < 4 ? file : NULL, .removed = i < 4 ? NULL : partial};
        sl_progress progress = {change_midway, &m};
        remove_folder(to);
        copy_folder(whole, from);
        sl_convert_options_init(&o);
        sl_status st = sl_convert(from, to, &o, &progress, NULL, &err);
        printf("%s at %u quarters: %s: %s\n", m.cut ? "cut" : "removed", (unsigned)m.at,
               sl_status_name(st), err.message);
        assert_true(m.done);
        assert_true(st == SL_ERR_IO || st == SL_ERR_CORRUPT || st == SL_ERR_MISSING);
        assert_int_not_equal(access(to, F_OK), 0);
        copy_folder(whole, from);
        demo_check(convert(from, to, false, &err), &err);
        assert_same_store(good, to);
    }
}

static int set_up(void **state) {
    (void)state;
    (void)demo_store();
    (void)reference(false);
    (void)reference(true);
    (void)answer_at_best(demo_store());
    (void)answer_at_best(in_place());
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_LEAVES_NOTHING(opening),
        TEST_LEAVES_NOTHING(changes_while_opening),
        TEST_LEAVES_NOTHING(a_folder_that_is_removed),
        TEST_LEAVES_NOTHING(more_than_the_machine_has),
        TEST_LEAVES_NOTHING(folders_that_change_while_converting),
        TEST_LEAVES_NOTHING(a_full_disk),
        TEST_LEAVES_NOTHING(a_bad_drive_while_converting),
        TEST_LEAVES_NOTHING(a_conversion_that_is_killed),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
