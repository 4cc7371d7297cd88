/* Files opened for direct reading, and the proof that direct reading is true here.
 *
 * tmpfs accepts O_DIRECT and serves the read from the page cache, so the flag proves nothing:
 * sl_file_probe_direct() reads a page and asks the kernel whether it stayed out of the cache. */
#ifndef SL_IO_FILE_H
#define SL_IO_FILE_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/status.h"

typedef struct sl_file {
    int fd;         /* -1 when closed */
    uint64_t bytes; /* at open */
    bool direct;    /* opened with O_DIRECT */
    uint32_t align; /* of offset, length and memory for direct reads: a power of two <= 4096 */
} sl_file;

/* Bytes that a read of n must bring: those that the file had there when it was opened. */
static inline uint32_t sl_file_has(const sl_file *file, uint64_t offset, uint32_t n) {
    uint64_t left = file->bytes > offset ? file->bytes - offset : 0;
    return left < n ? (uint32_t)left : n;
}

#define SL_FILE_CLOSED ((sl_file){.fd = -1})

/* Open a regular file for reading. direct: with O_DIRECT; the alignment is what the kernel states,
 * or what a test read finds. Never blocks on a pipe or device put in the file's place. A buffered
 * file (direct == false) is opened without read-ahead. Errors: SL_ERR_MISSING; SL_ERR_UNSUPPORTED
 * where the file system refuses direct reads or wants more than 4096 bytes of alignment; SL_ERR_IO
 * otherwise. *out is SL_FILE_CLOSED after an error. Any thread. */
SL_MUST_USE sl_status sl_file_open(const char *path, bool direct, sl_file *out, sl_error *err);
/* Accepts SL_FILE_CLOSED and a file that was closed before. */
void sl_file_close(sl_file *file);

/* Prove it: find a page of the file that is not in the page cache (after asking the kernel to drop
 * them), read it through `file`, which is open with direct, and see whether it is still absent.
 * *is_direct tells. Memory file systems are never direct. An empty file counts as direct.
 *
 * mincore, the witness, may be mute: for a file that is neither ours nor writable by us it calls
 * every page present; and pages that another process has mapped cannot be dropped. Then the
 * kernel's word counts (STATX_DIOALIGN: ext4, xfs, f2fs and others state it per file, and state
 * "no" for files they would read through the cache). Where there is no such word either:
 * SL_ERR_UNSUPPORTED, with the reason. Errors besides: SL_ERR_IO. */
SL_MUST_USE sl_status sl_file_probe_direct(const sl_file *file, bool *is_direct, sl_error *err);

/* Bytes of the file (of file->bytes, in whole pages) that are in the page cache now. Reads no data
 * and brings nothing into the cache. Errors: SL_ERR_UNSUPPORTED where mincore is mute (see above),
 * SL_ERR_IO. */
SL_MUST_USE sl_status sl_file_cached_bytes(const sl_file *file, uint64_t *out, sl_error *err);
/* Write dirty pages back and drop all of the file's pages from the page cache. Pages that a process
 * has mapped stay: that is no error. */
SL_MUST_USE sl_status sl_file_drop_cache(int fd, sl_error *err);

/* Read n bytes at offset, however many calls it takes. For direct files buf, offset and n are
 * multiples of file->align; n may reach past the end of the file (the buffer behind it may be
 * written to). *got is what there was, less than n at the end of the file; with got == NULL a short
 * read is SL_ERR_CORRUPT, which names what was expected and found. A buffered file drops the pages
 * it read from the page cache. Errors besides: SL_ERR_IO. The message names no file: the caller
 * knows it and adds it. Any thread. */
SL_MUST_USE sl_status sl_file_read(const sl_file *file, void *buf, size_t n, uint64_t offset,
                                   size_t *got, sl_error *err);

#endif
