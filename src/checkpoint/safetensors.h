/* safetensors: the header of one file, and the table of all tensors of a checkpoint.
 *
 * A file is 8 bytes of little-endian header length, the header (JSON: name -> dtype, shape, range of bytes
 * after the header), then data. Everything is checked: lengths, ranges, overlaps, shape times element
 * size, duplicate names. The table lists all tensors, also those that nobody wants: what is left over
 * must be told. */
#ifndef SL_CHECKPOINT_SAFETENSORS_H
#define SL_CHECKPOINT_SAFETENSORS_H

#include "base/status.h"
#include "io/file.h"
#include "tensor/dtype.h"

/* The customary limit of a header, and limits of ours that no known checkpoint comes near. */
#define SL_ST_HEADER_MAX ((uint64_t)100 * 1000 * 1000)
#define SL_ST_TENSORS_MAX 500000u
#define SL_ST_FILES_MAX 4096u
#define SL_ST_DIMS_MAX 6u
#define SL_ST_NAME_MAX 512u

typedef struct sl_st_tensor {
    const char *name;
    uint64_t offset, bytes; /* in the file */
    uint64_t dims[SL_ST_DIMS_MAX];
    uint32_t file; /* index into the table's files */
    uint8_t n_dims;
    uint8_t dtype;      /* sl_dtype, SL_DTYPE_COUNT for types that no weight here has */
    bool used;          /* free for the caller to mark */
    char dtype_name[9]; /* as written, for messages */
} sl_st_tensor;

typedef struct sl_st_table {
    sl_st_tensor *tensors; /* sorted by name */
    uint32_t n_tensors, cap;
    struct sl_st_names *names; /* blocks that the names live in */
} sl_st_table;

void sl_st_table_init(sl_st_table *table);
/* Accepts a zeroed table. */
void sl_st_table_deinit(sl_st_table *table);

/* Add the tensors of a header of len bytes; file_bytes is the length of the whole file and file its
 * number. The table is not sorted afterwards. Pure but for memory; text may go afterwards.
 * Errors: SL_ERR_CORRUPT, SL_ERR_UNSUPPORTED (over the limits above), SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_st_add_header(sl_st_table *table, const char *text, uint64_t len,
                                       uint64_t file_bytes, uint32_t file, sl_error *err);
/* Sort, and refuse names that occur twice. */
SL_MUST_USE sl_status sl_st_sort(sl_st_table *table, sl_error *err);
/* NULL when there is none. After sl_st_sort(). */
sl_st_tensor *sl_st_find(const sl_st_table *table, const char *name);

/* The length of the header from the first bytes (up to 64) of a file, or an error that says what the file
 * is: cut short, a Git LFS pointer, a web page, no safetensors at all. */
SL_MUST_USE sl_status sl_st_header_bytes(const void *first, size_t n, uint64_t file_bytes,
                                         uint64_t *out, sl_error *err);

#endif
