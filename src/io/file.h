/* Files opened for direct reading, and the proof that direct reading is true here.
 *
 * tmpfs accepts O_DIRECT and fills the page cache, so the flag proves nothing: sl_file_probe_direct()
 * reads a page and asks with mincore whether it stayed out. */
#ifndef SL_IO_FILE_H
#define SL_IO_FILE_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/status.h"

typedef struct sl_file {
    int fd;              /* -1 when closed */
    uint64_t bytes;      /* at open */
    bool direct;         /* opened with O_DIRECT */
    uint32_t align;      /* of offset, length and memory for direct reads; at most 4096 */
} sl_file;

#define SL_FILE_CLOSED ((sl_file){.fd = -1})

/* Open for reading. direct: with O_DIRECT, SL_ERR_UNSUPPORTED where the file system refuses it or its
 * alignment is over 4096. Errors: SL_ERR_MISSING, SL_ERR_IO (a regular file is required). */
SL_MUST_USE sl_status sl_file_open(const char *path, bool direct, sl_file *out, sl_error *err);
/* Accepts SL_FILE_CLOSED and a file that was closed before. */
void sl_file_close(sl_file *file);

/* Prove it: read the last page of the file through `file` (already open with direct) into an aligned
 * buffer and see that it is not in the page cache afterwards; pages that others had cached before are
 * dropped first (posix_fadvise). *is_direct tells. Files shorter than a page count as proved. */
SL_MUST_USE sl_status sl_file_probe_direct(const sl_file *file, bool *is_direct, sl_error *err);

/* Bytes of the file that are in the page cache now (mincore). */
SL_MUST_USE sl_status sl_file_cached_bytes(const sl_file *file, uint64_t *out, sl_error *err);
/* Write dirty pages back and drop all of the file's pages from the page cache. */
SL_MUST_USE sl_status sl_file_drop_cache(int fd, sl_error *err);

/* Read exactly n bytes at offset, however many calls it takes. For direct files buf, offset and n are
 * multiples of file->align, except that n may reach past the end of the file: *got then is less than n
 * (got may be NULL when a short read is an error, SL_ERR_CORRUPT). A buffered file drops what it read
 * from the page cache. */
SL_MUST_USE sl_status sl_file_read(const sl_file *file, void *buf, size_t n, uint64_t offset, size_t *got,
                                   sl_error *err);

#endif
