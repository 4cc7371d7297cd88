/* Reading parts of the store at open: through a bounce buffer, since direct reads come in whole pages, and
 * compared with their checksums. */
#ifndef SL_ENGINE_LOAD_H
#define SL_ENGINE_LOAD_H

#include "store/store.h"

typedef struct sl_loader {
    uint8_t *bounce;       /* page-aligned; memory that is idle while opening */
    uint64_t bounce_bytes; /* at least one page */
    uint64_t read_bytes;   /* so far */
    double read_seconds;   /* that reading them took, comparing apart */
    uint64_t done, total;  /* bytes for progress */
    bool (*progress)(void *user, uint64_t done, uint64_t total); /* may be NULL; false stops */
    void *user;
} sl_loader;

/* Read bytes [offset, offset + n) of a file to dst, or, with dst NULL, only look at them; then compare their
 * checksum. what names the part in messages.
 * Errors: SL_ERR_IO, SL_ERR_CORRUPT (checksum, or the file was cut short), SL_ERR_CANCELED. */
SL_MUST_USE sl_status sl_load(sl_loader *l, const sl_file *file, const char *file_name,
                              const char *what, uint64_t offset, uint64_t n, uint8_t *dst,
                              sl_hash128 hash, sl_error *err);

#endif
