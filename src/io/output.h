/* Files being written, without leaving them in the page cache.
 *
 * Whole pages in page-aligned memory go past the page cache, at the speed of the drive. Parts of any other
 * length and place go through it and behind the writer: what was written is sent to the drive while the
 * next part is made, and its pages are dropped as soon as they are there. Where the file system has no
 * direct I/O everything goes that way. */
#ifndef SL_IO_OUTPUT_H
#define SL_IO_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"

#define SL_OUTPUT_WINDOW ((uint64_t)8 << 20)
#define SL_OUTPUT_NAME_MAX 64

typedef struct sl_output {
    int fd;                        /* -1 when closed */
    int direct_fd;                 /* the same file for direct writes; -1: not possible here */
    char name[SL_OUTPUT_NAME_MAX]; /* for messages: the last part of the path */
    uint64_t pending;              /* bytes written since the last window was sent */
    uint64_t low, high;            /* the range they lie in */
    uint64_t sent_low, sent_high;  /* the window that is on its way */
} sl_output;

#define SL_OUTPUT_CLOSED ((sl_output){.fd = -1, .direct_fd = -1})

/* Create, or empty, a file for writing. Errors: SL_ERR_IO. */
SL_MUST_USE sl_status sl_output_open(const char *path, sl_output *out, sl_error *err);
/* Write n bytes at an offset. Errors: SL_ERR_IO names the file; a full drive is said in words. */
SL_MUST_USE sl_status sl_output_write(sl_output *out, const void *bytes, size_t n, uint64_t offset,
                                      sl_error *err);
/* Write back and wait; the file's pages leave the page cache. The output stays open. */
SL_MUST_USE sl_status sl_output_sync(sl_output *out, sl_error *err);
/* Make the file exactly this long, sync and close it. On error it is closed as well. */
SL_MUST_USE sl_status sl_output_finish(sl_output *out, uint64_t bytes, sl_error *err);
/* Close without a promise; for error paths. Accepts SL_OUTPUT_CLOSED. */
void sl_output_close(sl_output *out);

#endif
