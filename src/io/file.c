/* Opening, reading and cross-examining files. No state besides the descriptor; the page cache is
 * touched only by what the header says. */
#define _GNU_SOURCE
#include "io/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* One read call; the kernel cuts at 2 GiB - 4 KiB anyway. A multiple of every alignment. */
#define READ_BYTES_MAX ((size_t)1 << 30)

/* Pages asked about by one mincore call: the answer is a byte a page, on the stack. */
#define MINCORE_PAGES 4096

static sl_status open_status(int errnum) {
    return errnum == ENOENT || errnum == ENOTDIR ? SL_ERR_MISSING : SL_ERR_IO;
}

/* What the kernel states about direct reads of this file. false: it does not say. *align is 0 for
 * "not possible". */
static bool stated_alignment(int fd, uint32_t *align) {
#ifdef STATX_DIOALIGN
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) == 0 &&
        (st.stx_mask & STATX_DIOALIGN) != 0) {
        *align = SL_MAX(st.stx_dio_mem_align, st.stx_dio_offset_align);
        return true;
    }
#else
    (void)fd;
#endif
    *align = 0;
    return false;
}

static ssize_t read_once(int fd, void *buf, size_t n, uint64_t offset) {
    ssize_t got;
    do {
        got = pread(fd, buf, n, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got;
}

/* Try the two alignments that drives have, at an address and length that are no more aligned. */
static sl_status find_alignment(int fd, uint32_t *align, sl_error *err) {
    uint8_t block[3 * SL_PAGE];
    uint8_t *page = block + (-(uintptr_t)block & (SL_PAGE - 1));
    if (read_once(fd, page + 512, 512, 0) >= 0) {
        *align = 512;
        return SL_OK;
    }
    if (errno == EINVAL && read_once(fd, page, SL_PAGE, 0) >= 0) {
        *align = SL_PAGE;
        return SL_OK;
    }
    if (errno == EINVAL)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the file system refuses direct reads of 4096 bytes");
    return sl_fail_errno(err, SL_ERR_IO, errno, "test read");
}

static sl_status check_alignment(int fd, uint32_t *align, sl_error *err) {
    if (!stated_alignment(fd, align))
        return find_alignment(fd, align, err);
    if (*align == 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the file system has no direct reads for this file");
    if (*align > SL_PAGE || (*align & (*align - 1)) != 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "direct reads need an alignment of %u bytes here, at most 4096 is supported",
                       *align);
    return SL_OK;
}

sl_status sl_file_open(const char *path, bool direct, sl_file *out, sl_error *err) {
    *out = SL_FILE_CLOSED;
    // O_NONBLOCK: opening a pipe without a writer would wait for ever.
    int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (direct ? O_DIRECT : 0);
    int fd = open(path, flags);
    if (fd < 0) {
        if (direct && errno == EINVAL)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "opening '%s': the file system refuses direct I/O", path);
        return sl_fail_errno(err, open_status(errno), errno, "opening '%s'", path);
    }
    sl_status status = SL_OK;
    struct stat st;
    uint32_t align = 1;
    if (fstat(fd, &st) != 0) {
        status = sl_fail_errno(err, SL_ERR_IO, errno, "looking at '%s'", path);
    } else if (!S_ISREG(st.st_mode)) {
        status = sl_fail(err, SL_ERR_IO, "opening '%s': a regular file was expected", path);
    } else if (fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        // Left set, it would make io_uring answer EAGAIN instead of waiting for the drive.
        status = sl_fail_errno(err, SL_ERR_IO, errno, "opening '%s'", path);
    } else if (direct) {
        status = check_alignment(fd, &align, err);
        if (status)
            status = sl_error_context(err, status, "opening '%s'", path);
    } else {
        // Read-ahead would bring pages that nobody asked for and nobody drops. Advice: may fail.
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    }
    if (status) {
        (void)close(fd);
        return status;
    }
    *out = (sl_file){.fd = fd, .bytes = (uint64_t)st.st_size, .direct = direct, .align = align};
    return SL_OK;
}

void sl_file_close(sl_file *file) {
    if (file->fd >= 0)
        (void)close(file->fd);
    *file = SL_FILE_CLOSED;
}

/* The kernel's page, which is what mincore and posix_fadvise count in: 4 KiB, or 16 or 64 on arm64.
 * */
static size_t kernel_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* One byte a page, bit 0: present. The mapping is made for the question alone and never touched. */
static sl_status ask_mincore(int fd, uint64_t offset, size_t n_pages, unsigned char *present,
                             sl_error *err) {
    size_t bytes = n_pages * kernel_page();
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (map == MAP_FAILED)
        return sl_fail_errno(err, SL_ERR_IO, errno, "mapping a file to ask about its pages");
    int rc = mincore(map, bytes, present);
    int errnum = errno;
    (void)munmap(map, bytes);
    return rc == 0 ? SL_OK : sl_fail_errno(err, SL_ERR_IO, errnum, "mincore");
}

/* Does mincore tell the truth about this file? A page far behind the end cannot be cached; where
 * the kernel hides residency from us it calls even that one present. */
static sl_status is_mincore_mute(const sl_file *file, bool *mute, sl_error *err) {
    unsigned char present;
    // Far: a large folio may reach over the end.
    uint64_t beyond = SL_ALIGN_UP(file->bytes, kernel_page()) + 256 * SL_MIB;
    sl_status status = ask_mincore(file->fd, beyond, 1, &present, err);
    *mute = !status && (present & 1) != 0;
    return status;
}

sl_status sl_file_cached_bytes(const sl_file *file, uint64_t *out, sl_error *err) {
    *out = 0;
    bool mute;
    sl_status status = is_mincore_mute(file, &mute, err);
    if (status)
        return status;
    if (mute)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "the kernel does not tell this user which pages of the file are cached "
                       "(the file belongs to another user and is not writable)");
    uint64_t page = kernel_page();
    uint64_t n_pages = SL_ALIGN_UP(file->bytes, page) / page;
    for (uint64_t at = 0; at < n_pages; at += MINCORE_PAGES) {
        unsigned char present[MINCORE_PAGES];
        size_t n = (size_t)SL_MIN(n_pages - at, (uint64_t)MINCORE_PAGES);
        if ((status = ask_mincore(file->fd, at * page, n, present, err)))
            return status;
        for (size_t i = 0; i < n; i++)
            *out += (present[i] & 1) ? page : 0;
    }
    return SL_OK;
}

sl_status sl_file_drop_cache(int fd, sl_error *err) {
    // Dirty pages cannot be dropped. EROFS, EINVAL: nothing here can be dirty.
    if (fdatasync(fd) != 0 && errno != EROFS && errno != EINVAL)
        return sl_fail_errno(err, SL_ERR_IO, errno, "writing a file back to the drive");
    int errnum = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return errnum == 0 ? SL_OK : sl_fail_errno(err, SL_ERR_IO, errnum, "dropping cached pages");
}

static bool lives_in_memory(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* The last page among the last MINCORE_PAGES of the file that is not cached. */
static sl_status find_absent_page(const sl_file *file, bool *found, uint64_t *offset,
                                  sl_error *err) {
    unsigned char present[MINCORE_PAGES];
    uint64_t page = kernel_page();
    uint64_t n_pages = SL_ALIGN_UP(file->bytes, page) / page;
    size_t n = (size_t)SL_MIN(n_pages, (uint64_t)MINCORE_PAGES);
    *found = false;
    sl_status status = ask_mincore(file->fd, (n_pages - n) * page, n, present, err);
    if (status)
        return status;
    for (size_t i = n; i > 0 && !*found; i--) {
        *found = (present[i - 1] & 1) == 0;
        *offset = (n_pages - n + i - 1) * page;
    }
    return SL_OK;
}

/* Without a witness. */
static sl_status take_kernels_word(const sl_file *file, const char *why, bool *is_direct,
                                   sl_error *err) {
    uint32_t align;
    if (!stated_alignment(file->fd, &align))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "direct I/O cannot be proved: %s, and the file "
                       "system does not state its alignment",
                       why);
    *is_direct = align != 0;
    return SL_OK;
}

sl_status sl_file_probe_direct(const sl_file *file, bool *is_direct, sl_error *err) {
    assert(file->direct);
    *is_direct = false;
    if (lives_in_memory(file->fd))
        return SL_OK;
    if (file->bytes == 0) {
        *is_direct = true;
        return SL_OK;
    }
    bool mute, found;
    uint64_t offset;
    sl_status status;
    if ((status = is_mincore_mute(file, &mute, err)))
        return status;
    if (mute)
        return take_kernels_word(file, "the file belongs to another user", is_direct, err);
    if ((status = sl_file_drop_cache(file->fd, err)) ||
        (status = find_absent_page(file, &found, &offset, err)))
        return status;
    if (!found)
        return take_kernels_word(file, "another process keeps its pages in the cache", is_direct,
                                 err);
    uint8_t block[2 * SL_PAGE];
    uint8_t *page = block + (-(uintptr_t)block & (SL_PAGE - 1));
    size_t got;
    unsigned char present;
    if ((status = sl_file_read(file, page, SL_PAGE, offset, &got, err)) ||
        (status = ask_mincore(file->fd, offset, 1, &present, err)))
        return status;
    *is_direct = (present & 1) == 0;
    return SL_OK;
}

sl_status sl_file_read(const sl_file *file, void *buf, size_t n, uint64_t offset, size_t *got,
                       sl_error *err) {
    assert(((offset | (uintptr_t)buf | n) & (file->align - 1)) == 0);
    size_t done = 0;
    if (got)
        *got = 0;
    if (offset > INT64_MAX || n > INT64_MAX - offset)
        return sl_fail_at(err, SL_ERR_CORRUPT, -1, -1, offset,
                          "reading %zu bytes at %llu: no file is that long", n,
                          (unsigned long long)offset);
    while (done < n) {
        // A direct read that ends off the grid is the end of the file, or a drive that stopped in
        // the middle: asking again from the grid tells which, by making progress or not.
        size_t from = done & ~(size_t)(file->align - 1);
        ssize_t rc = read_once(file->fd, (uint8_t *)buf + from, SL_MIN(n - from, READ_BYTES_MAX),
                               offset + from);
        if (rc < 0) {
            int errnum = errno;
            sl_status status = sl_fail_errno(err, SL_ERR_IO, errnum, "reading %zu bytes at %llu", n,
                                             (unsigned long long)offset);
            if (err)
                err->offset = offset;
            return status;
        }
        if (from + (size_t)rc <= done)
            break;
        done = from + (size_t)rc;
    }
    if (!file->direct && done > 0) {
        // In whole pages: the kernel keeps one that is only partly named.
        uint64_t page = kernel_page();
        uint64_t first = offset / page * page;
        uint64_t end = SL_ALIGN_UP(offset + done, page);
        (void)posix_fadvise(file->fd, (off_t)first, (off_t)(end - first), POSIX_FADV_DONTNEED);
    }
    if (got)
        *got = done;
    else if (done < n)
        return sl_fail_at(err, SL_ERR_CORRUPT, -1, -1, offset,
                          "expected %zu bytes at %llu, the file ends after %zu of them", n,
                          (unsigned long long)offset, done);
    return SL_OK;
}
