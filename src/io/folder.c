/* Folders, names and small files, see folder.h. */
#define _GNU_SOURCE
#include "io/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/file.h"

sl_status sl_path_stat(const char *path, sl_path_info *out, sl_error *err) {
    struct stat s;
    memset(out, 0, sizeof(*out));
    if (stat(path, &s)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return SL_OK;
        return sl_fail_errno(err, SL_ERR_IO, errno, "'%s'", path);
    }
    out->kind = S_ISREG(s.st_mode)   ? SL_PATH_FILE
                : S_ISDIR(s.st_mode) ? SL_PATH_FOLDER
                                     : SL_PATH_OTHER;
    out->device = (uint64_t)s.st_dev;
    out->n_links = (uint64_t)s.st_nlink;
    out->bytes = s.st_size > 0 ? (uint64_t)s.st_size : 0;
#ifdef __APPLE__
    out->mtime_ns = (int64_t)s.st_mtimespec.tv_sec * 1000000000 + s.st_mtimespec.tv_nsec;
#else
    out->mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
#endif
    return SL_OK;
}

static sl_status put_path(char *out, size_t cap, int n, sl_error *err) {
    if (n < 0 || (size_t)n >= cap) {
        out[0] = '\0';
        return sl_fail(err, SL_ERR_ARGUMENT, "a path is longer than %zu bytes", cap - 1);
    }
    return SL_OK;
}

sl_status sl_path_is_link(const char *path, bool *out, sl_error *err) {
    char name[SL_PATH_MAX];
    struct stat s;
    *out = false;
    sl_status st = sl_path_trim(path, name, sizeof(name), err);
    if (st)
        return st;
    if (lstat(name, &s)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return SL_OK;
        return sl_fail_errno(err, SL_ERR_IO, errno, "'%s'", path);
    }
    *out = S_ISLNK(s.st_mode);
    return SL_OK;
}

sl_status sl_path_join(const char *folder, const char *name, char *out, size_t cap, sl_error *err) {
    size_t n = strlen(folder);
    const char *slash = *name && n && folder[n - 1] != '/' ? "/" : "";
    return put_path(out, cap, snprintf(out, cap, "%s%s%s", folder, slash, name), err);
}

sl_status sl_path_trim(const char *path, char *out, size_t cap, sl_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return put_path(out, cap, snprintf(out, cap, "%.*s", (int)SL_MIN(n, (size_t)SL_PATH_MAX), path),
                    err);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

sl_status sl_folder_list(const char *path, sl_buf *names, uint32_t *n, sl_error *err) {
    sl_status st = SL_OK;
    sl_buf found;
    const char **order = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return sl_fail_errno(err, errno == ENOENT ? SL_ERR_MISSING : SL_ERR_IO, errno,
                             "folder '%s'", path);
    sl_buf_init(&found);
    uint32_t count = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(dir);
        if (!e) {
            if (errno)
                st = sl_fail_errno(err, SL_ERR_IO, errno, "reading folder '%s'", path);
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        sl_buf_add(&found, e->d_name, strlen(e->d_name) + 1);
        count++;
    }
    (void)closedir(dir);
    order = sl_mem_calloc(count, sizeof(*order));
    if (st == SL_OK && (found.failed || !order))
        st = sl_fail(err, SL_ERR_MEMORY, "listing folder '%s'", path);
    if (st == SL_OK) {
        const char *p = found.data;
        for (uint32_t i = 0; i < count; i++, p += strlen(p) + 1)
            order[i] = p;
        if (count)
            qsort(order, count, sizeof(*order), by_bytes);
        for (uint32_t i = 0; i < count; i++)
            sl_buf_add(names, order[i], strlen(order[i]) + 1);
        *n = count;
        if (names->failed)
            st = sl_fail(err, SL_ERR_MEMORY, "listing folder '%s'", path);
    }
    sl_mem_free(order);
    sl_buf_deinit(&found);
    return st;
}

sl_status sl_folder_make(const char *path, sl_error *err) {
    if (mkdir(path, 0777) == 0)
        return SL_OK;
    int errnum = errno;
    struct stat s;
    if (errnum == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return SL_OK;
    return sl_fail_errno(err, SL_ERR_IO, errnum, "making folder '%s'", path);
}

sl_status sl_folder_sync(const char *path, sl_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "folder '%s'", path);
    // EINVAL: a file system that has no such operation, and nothing that could be lost by it.
    int errnum = fsync(fd) && errno != EINVAL ? errno : 0;
    (void)close(fd);
    return errnum ? sl_fail_errno(err, SL_ERR_IO, errnum, "writing back folder '%s'", path) : SL_OK;
}

sl_status sl_folder_remove(const char *path, sl_error *err) {
    return rmdir(path) ? sl_fail_errno(err, SL_ERR_IO, errno, "removing folder '%s'", path) : SL_OK;
}

sl_status sl_path_remove(const char *path, sl_error *err) {
    if (unlink(path) && errno != ENOENT)
        return sl_fail_errno(err, SL_ERR_IO, errno, "removing '%s'", path);
    return SL_OK;
}

sl_status sl_path_give_back(const char *path, uint64_t offset, uint64_t bytes, bool *given,
                            sl_error *err) {
    *given = false;
#ifdef __linux__
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "opening '%s'", path);
    int failed =
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes)
            ? errno
            : 0;
    (void)close(fd);
    if (failed && failed != EOPNOTSUPP && failed != ENOSYS)
        return sl_fail_errno(err, SL_ERR_IO, failed, "giving back %llu bytes at %llu of '%s'",
                             (unsigned long long)bytes, (unsigned long long)offset, path);
    *given = !failed;
#else
    (void)path, (void)offset, (void)bytes, (void)err;
#endif
    return SL_OK;
}

sl_status sl_path_rename(const char *from, const char *to, sl_error *err) {
    return rename(from, to)
               ? sl_fail_errno(err, SL_ERR_IO, errno, "renaming '%s' to '%s'", from, to)
               : SL_OK;
}

sl_status sl_path_exchange(const char *a, const char *b, const char *spare, bool *atomic,
                           sl_error *err) {
    *atomic = true;
#ifdef __linux__
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) == 0)
        return SL_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return sl_fail_errno(err, SL_ERR_IO, errno, "exchanging '%s' and '%s'", a, b);
#endif
    *atomic = false;
    sl_status st;
    if ((st = sl_path_rename(b, spare, err)) || (st = sl_path_rename(a, b, err)) ||
        (st = sl_path_rename(spare, a, err)))
        return st;
    return SL_OK;
}

sl_status sl_path_free_bytes(const char *path, uint64_t *out, sl_error *err) {
    struct statvfs s;
    *out = 0;
    if (statvfs(path, &s))
        return sl_fail_errno(err, SL_ERR_IO, errno, "free space at '%s'", path);
    *out = (uint64_t)s.f_bavail * s.f_frsize;
    return SL_OK;
}

sl_status sl_log_open(const char *path, int *fd, sl_error *err) {
    *fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (*fd < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "creating '%s'", path);
    if (flock(*fd, LOCK_EX | LOCK_NB)) {
        int errnum = errno;
        (void)close(*fd);
        *fd = -1;
        if (errnum == EWOULDBLOCK)
            return sl_fail(err, SL_ERR_STATE, "'%s' is in use: another process is working there",
                           path);
        return sl_fail_errno(err, SL_ERR_IO, errnum, "locking '%s'", path);
    }
    return SL_OK;
}

sl_status sl_log_append(int fd, const void *bytes, size_t n, sl_error *err) {
    const char *p = bytes;
    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return sl_fail_errno(err, SL_ERR_IO, done ? errno : ENOSPC, "writing the journal");
        p += done;
        n -= (size_t)done;
    }
    return fsync(fd) ? sl_fail_errno(err, SL_ERR_IO, errno, "writing the journal") : SL_OK;
}

sl_status sl_log_cut(int fd, uint64_t bytes, sl_error *err) {
    return ftruncate(fd, (off_t)bytes) ? sl_fail_errno(err, SL_ERR_IO, errno, "cutting the journal")
                                       : SL_OK;
}

void sl_log_close(int fd) {
    if (fd >= 0)
        (void)close(fd);
}

sl_status sl_file_slurp(const char *path, uint64_t max, sl_buf *out, sl_error *err) {
    sl_file file;
    sl_buf_clear(out);
    sl_status st = sl_file_open(path, false, &file, err);
    if (st)
        return st;
    char piece[16384];
    if (file.bytes > max)
        st = sl_fail(err, SL_ERR_CORRUPT, "'%s' is longer than %llu bytes", path,
                     (unsigned long long)max);
    for (uint64_t at = 0; st == SL_OK && at < file.bytes;) {
        size_t n = (size_t)SL_MIN(file.bytes - at, (uint64_t)sizeof(piece));
        st = sl_file_read(&file, piece, n, at, NULL, err);
        if (st)
            st = sl_error_context(err, st, "reading '%s'", path);
        sl_buf_add(out, piece, n);
        at += n;
    }
    if (st == SL_OK && out->failed)
        st = sl_fail(err, SL_ERR_MEMORY, "reading '%s'", path);
    sl_file_close(&file);
    return st;
}
