/* Writing behind the page cache's back, see output.h. */
#define _GNU_SOURCE
#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

sl_status sl_output_open(const char *path, sl_output *out, sl_error *err) {
    *out = SL_OUTPUT_CLOSED;
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = SL_MIN(strlen(name), sizeof(out->name) - 1);
    memcpy(out->name, name, n);
    out->name[n] = '\0';
    out->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out->fd < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "creating '%s'", path);
#ifdef O_DIRECT
    out->direct_fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
#endif
    return SL_OK;
}

static sl_status fail_write(const sl_output *out, int errnum, sl_error *err) {
    if (errnum == ENOSPC || errnum == EDQUOT)
        return sl_fail(err, SL_ERR_IO, "writing '%s': no space is left on the drive", out->name);
    if (errnum == EFBIG)
        return sl_fail(err, SL_ERR_IO,
                       "writing '%s': the file would be longer than is allowed here", out->name);
    return sl_fail_errno(err, SL_ERR_IO, errnum, "writing '%s'", out->name);
}

/* Send the bytes written since the last time to the drive, and wait for those sent before: one window is
 * being filled while another is under way. Hints only: sl_output_sync() decides about success. */
static void send_window(sl_output *out) {
#ifdef __linux__
    (void)sync_file_range(out->fd, (off_t)out->low, (off_t)(out->high - out->low),
                          SYNC_FILE_RANGE_WRITE);
    if (out->sent_high > out->sent_low) {
        off_t at = (off_t)out->sent_low, n = (off_t)(out->sent_high - out->sent_low);
        (void)sync_file_range(out->fd, at, n,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
        (void)posix_fadvise(out->fd, at, n, POSIX_FADV_DONTNEED);
    }
#endif
    out->sent_low = out->low;
    out->sent_high = out->high;
    out->low = out->high = out->pending = 0;
}

/* Write n bytes, however many calls it takes. 0, or the errno of the call that failed; *n is what is left. */
static int write_all(int fd, const uint8_t **p, size_t *n, uint64_t *at) {
    while (*n) {
        ssize_t done = pwrite(fd, *p, *n, (off_t)*at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <=
            0) // a file system that takes nothing and says nothing takes nothing the next time
            return done ? errno : ENOSPC;
        *p += done;
        *at += (uint64_t)done;
        *n -= (size_t)done;
    }
    return 0;
}

sl_status sl_output_write(sl_output *out, const void *bytes, size_t n, uint64_t offset,
                          sl_error *err) {
    const uint8_t *p = bytes;
    size_t left = n;
    uint64_t at = offset;
    if (out->direct_fd >= 0 && ((uintptr_t)p | offset | n) % SL_PAGE == 0) {
        int errnum = write_all(out->direct_fd, &p, &left, &at);
        if (errnum == 0)
            return SL_OK;
        if (errnum != EINVAL)
            return fail_write(out, errnum, err);
        // Accepted at open and refused now: the rest, and all that follows, goes the other way.
        (void)close(out->direct_fd);
        out->direct_fd = -1;
    }
    int errnum = write_all(out->fd, &p, &left, &at);
    if (errnum)
        return fail_write(out, errnum, err);
    out->low = out->pending ? SL_MIN(out->low, offset) : offset;
    out->high = SL_MAX(out->high, at);
    out->pending += n;
    if (out->pending >= SL_OUTPUT_WINDOW)
        send_window(out);
    return SL_OK;
}

sl_status sl_output_sync(sl_output *out, sl_error *err) {
    if (fsync(out->fd))
        return fail_write(out, errno, err);
#ifdef __linux__
    (void)posix_fadvise(out->fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
    out->low = out->high = out->pending = out->sent_low = out->sent_high = 0;
    return SL_OK;
}

sl_status sl_output_finish(sl_output *out, uint64_t bytes, sl_error *err) {
    sl_status st = SL_OK;
    if (ftruncate(out->fd, (off_t)bytes))
        st = fail_write(out, errno, err);
    if (st == SL_OK)
        st = sl_output_sync(out, err);
    // Some file systems report a failed write only here.
    int failed = close(out->fd);
    out->fd = -1;
    sl_output_close(out);
    if (st == SL_OK && failed)
        st = fail_write(out, errno, err);
    return st;
}

void sl_output_close(sl_output *out) {
    if (out->fd >= 0)
        (void)close(out->fd);
    if (out->direct_fd >= 0)
        (void)close(out->direct_fd);
    out->fd = out->direct_fd = -1;
}
