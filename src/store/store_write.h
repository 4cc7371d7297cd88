/* Writing the files of a store: blocks whose parts arrive in any order, and the manifest.
 *
 * A writer owns one open file at a time. A block (a tensor, an expert's record, all embedding rows) is put
 * together in the caller's window and written once when it fits there; a longer one goes to the file
 * part by part and is read back for its checksum. Either way the same bytes and the same checksum come
 * out, memory is bounded by the window, and no page of the file stays in the page cache. */
#ifndef SL_STORE_STORE_WRITE_H
#define SL_STORE_STORE_WRITE_H

#include "base/buf.h"
#include "io/folder.h"
#include "io/output.h"
#include "store/store.h"

typedef struct sl_store_writer {
    char folder[SL_PATH_MAX];
    char path[SL_PATH_MAX]; /* of the open file */
    sl_output out;
    uint8_t *window; /* the caller's */
    size_t window_bytes;
    uint64_t block_at, block_bytes;
    bool through; /* the block is longer than the window */
} sl_store_writer;

/* The folder exists. window stays the caller's; at least 64 KiB. Errors: SL_ERR_ARGUMENT (path). */
SL_MUST_USE sl_status sl_store_writer_init(sl_store_writer *w, const char *folder, void *window,
                                           size_t window_bytes, sl_error *err);
/* Close the file that is open, if any, as it is. Accepts a zeroed struct. */
void sl_store_writer_deinit(sl_store_writer *w);

/* Create a file of the store, empty. */
SL_MUST_USE sl_status sl_store_file_begin(sl_store_writer *w, const char *name, sl_error *err);
/* Make it `bytes` long (zeros where nothing was written), write everything back and close it. */
SL_MUST_USE sl_status sl_store_file_end(sl_store_writer *w, uint64_t bytes, sl_error *err);

/* A block of the open file; what is never put reads as zero. */
void sl_store_block_begin(sl_store_writer *w, uint64_t offset, uint64_t bytes);
SL_MUST_USE sl_status sl_store_block_put(sl_store_writer *w, uint64_t at, const void *bytes,
                                         size_t n, sl_error *err);
/* Write the block; *hash is the checksum of all its bytes. */
SL_MUST_USE sl_status sl_store_block_end(sl_store_writer *w, sl_hash128 *hash, sl_error *err);

/* What a manifest says besides the numbers of the store. */
typedef struct sl_manifest_source {
    const char *name;     /* of the checkpoint folder */
    const char *layout;   /* "mlx" or "hf" */
    uint64_t bytes;       /* of its tensor files */
    uint32_t bits, group; /* what dense weights were quantized to; 0: nothing was */
    const char *config;   /* config.json, an object, verbatim */
    size_t config_len;
    const char *generation_config; /* likewise; NULL: none */
    size_t generation_config_len;
} sl_manifest_source;

/* Append the manifest of a store: its tensor table with checksums, layouts, text parts, stop tokens,
 * sums_hash and source_hash. out->failed tells when memory ran out. */
void sl_store_manifest_text(const sl_store *store, const sl_manifest_source *source, sl_buf *out);

/* Checksum of a range of a file, in pieces through the caller's buffer (aligned to SL_PAGE, a multiple of
 * SL_PAGE long). offset may be anything. report, which may be NULL, is told the
 * bytes of every piece; false stops with SL_ERR_CANCELED. */
SL_MUST_USE sl_status sl_store_hash_range(const sl_file *file, uint64_t offset, uint64_t bytes,
                                          void *buffer, size_t buffer_bytes,
                                          bool (*report)(void *user, uint64_t bytes), void *user,
                                          sl_hash128 *out, sl_error *err);

#endif
