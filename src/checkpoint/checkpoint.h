/* A checkpoint folder: config, tensor files, and where in them each tensor of the model is.
 *
 * Two layouts are read: that of Hugging Face (experts fused or one by one, zero-centred norms as w) and that
 * of mlx-community (experts stacked, usually quantized, norms as 1 + w). Each tensor is taken from the first
 * of its places (sl_tensor_places()) that is there. Whether norms hold w or 1 + w follows from the layout, in
 * families where it matters; when the signs disagree, nothing is guessed. Opening checks everything, so that
 * a conversion does not fail after an hour: afterwards every tensor of the model resolves.
 *
 * One thread. Memory: the tensor table (some 150 bytes a tensor), the small texts, 32 MiB for reading
 * ahead unless frugal. */
#ifndef SL_CHECKPOINT_CHECKPOINT_H
#define SL_CHECKPOINT_CHECKPOINT_H

#include "base/buf.h"
#include "checkpoint/ahead.h"
#include "checkpoint/safetensors.h"
#include "io/folder.h"
#include "model/model.h"
#include "store/store.h"

/* Stands in a checkpoint folder of which parts were given back to the drive (convert/move.h): it is a checkpoint for
 * the conversion that moves it, and for nobody else. */
#define SL_MOVE_MARK "sluice-move"

typedef struct sl_checkpoint_options {
    uint32_t bits, group; /* of weights that are not quantized yet; 0: 4 and 64 */
    bool
        moving; /* for the conversion that moves it: times, which change, are no part of the fingerprint */
    bool frugal; /* a few hundred KiB for reading ahead: little is read */
} sl_checkpoint_options;

typedef struct sl_checkpoint {
    char path[SL_PATH_MAX];
    sl_model model;            /* tied_head is false: see sl_store.model */
    sl_buf config, generation; /* texts; generation.len == 0: none */
    sl_st_table table;
    sl_buf file_names; /* NUL-terminated, one after another */
    uint32_t n_files;
    const char **files; /* [n_files], into file_names; tensor->file indexes it */
    sl_file *opened;    /* [n_files], opened when first read */
    sl_ahead ahead;     /* of the files that are open for direct I/O */
    const char *prefix, *head_prefix;
    bool mlx;           /* layout */
    bool affine, mxfp4; /* some weights have codes of this kind, which are kept */
    bool asked;         /* for bits or a group */
    bool moving;
    bool keeps_dense;           /* dense weights stay so: others are quantized, and nobody asked */
    bool tied;                  /* the head is the embedding */
    uint32_t bits, group;       /* of dense and FP8 weights that become quantized */
    uint64_t bytes;             /* of the tensor files */
    uint64_t header_bytes;      /* of the longest header */
    uint64_t work_bytes;        /* that a conversion reads */
    uint32_t n_used, n_skipped; /* tensors */
    sl_hash128 fingerprint;     /* of the files and options */
    sl_buf *notes;              /* the caller's */
} sl_checkpoint;

/* Where a matrix comes from, and what it becomes. */
typedef struct sl_matrix_source {
    sl_matrix_shape shape; /* stored */
    /* In the file: rows and columns of one matrix there. F8_E4M3 has tile scales of type scale_dtype, which
     * are part 1. */
    sl_matrix_shape in;
    sl_tensor_place place;        /* which rows and columns of that matrix are meant */
    uint32_t file[3];             /* codes or elements, scales, biases */
    uint64_t at[3], row_bytes[3]; /* of its first row; bytes of a row */
    uint64_t end[3];              /* of the whole tensors, which may go on after this matrix */
    uint64_t bytes;               /* of the checkpoint that it stands for, in reports */
    bool copied;                  /* rows are stored as they are */
    bool plus_one;                /* add 1 in f32 */
    bool vector;
    bool convolution; /* [cols][rows] in the file */
    const char *name; /* of the first tensor, for messages */
} sl_matrix_source;

/* Longest row, in inputs: strips of whole rows go through buffers (convert_internal.h). */
#define SL_ROW_MAX ((uint32_t)2 << 20)

/* notes receives lines about what is left out or looks odd; growable.
 * Errors: SL_ERR_MISSING, SL_ERR_CORRUPT, SL_ERR_UNSUPPORTED, SL_ERR_ARGUMENT (options that this checkpoint
 * does not allow), SL_ERR_IO, SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_checkpoint_open(const char *path, const sl_checkpoint_options *options,
                                         sl_buf *notes, sl_checkpoint *out, sl_error *err);
/* Accepts a zeroed struct. */
void sl_checkpoint_close(sl_checkpoint *ck);

/* expert: for tensors of experts, else 0. Cannot fail after sl_checkpoint_open() has. */
SL_MUST_USE sl_status sl_checkpoint_resolve(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                            uint32_t expert, sl_matrix_source *out, sl_error *err);
/* Read n bytes of a tensor file; they do not stay in the page cache. end: where the tensor ends, which bounds
 * what is read ahead. */
SL_MUST_USE sl_status sl_checkpoint_read(sl_checkpoint *ck, uint32_t file, uint64_t offset,
                                         uint64_t end, void *out, size_t n, sl_error *err);

/* Memory that opening took at most, for one that is frugal. */
uint64_t sl_checkpoint_open_bytes(const sl_checkpoint *ck);

/* The numbers of the store that a conversion would make. Release with sl_store_close(). */
SL_MUST_USE sl_status sl_checkpoint_describe(const sl_checkpoint *ck, sl_store *out, sl_error *err);
/* The same from a config.json alone (its text): of BF16 weights that are quantized by the options, or of what
 * its quantization section says. */
SL_MUST_USE sl_status sl_config_describe(const char *text, size_t len,
                                         const sl_checkpoint_options *options, sl_store *out,
                                         sl_error *err);

#endif
