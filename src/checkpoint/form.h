/* One tensor from a checkpoint's files in the form of the store: in the layout of its shape, codes and scales as they
 * are, dense weights quantized where that was asked for, vectors and convolutions as f32. Conversion puts the
 * result into a file, an engine that runs a checkpoint in place into memory: the same bytes. */
#ifndef SL_CHECKPOINT_FORM_H
#define SL_CHECKPOINT_FORM_H

#include "checkpoint/checkpoint.h"

/* A row of SL_ROW_MAX inputs in f32 is a strip. */
#define SL_STRIP_BYTES (SL_ROW_MAX * sizeof(float))

typedef struct sl_tensor_form {
    /* Read n bytes of a tensor file; end bounds what is read ahead (sl_checkpoint_read()). */
    sl_status (*read)(void *user, uint32_t file, uint64_t offset, uint64_t end, void *out, size_t n,
                      sl_error *err);
    /* Put n bytes of the result at an offset; each byte once, in any order. */
    sl_status (*put)(void *user, uint64_t at, const void *bytes, size_t n, sl_error *err);
    /* Bytes of the checkpoint that are done. May be NULL. */
    sl_status (*report)(void *user, uint64_t bytes, sl_error *err);
    void *user;
    /* Buffers, aligned to SL_PAGE. The longest row of the tensor, in its file and as f32, fits in a strip; wide is
     * no smaller. Matrices that are turned on their side and fit in wide are read once. */
    uint8_t *raw;    /* strip_bytes: of the file */
    float *wide;     /* wide_bytes: of the result, before it is encoded */
    uint8_t *packed; /* strip_bytes: of the store */
    size_t strip_bytes, wide_bytes;
} sl_tensor_form;

/* Put a tensor at an offset, in the layout of its shape. Errors: those of the callbacks; SL_ERR_CORRUPT
 * (values that are not finite). */
SL_MUST_USE sl_status sl_form_tensor(const sl_tensor_form *form, const sl_matrix_source *source,
                                     uint64_t at, sl_error *err);
/* Put the rows of an embedding as records, from offset 0. */
SL_MUST_USE sl_status sl_form_embedding(const sl_tensor_form *form, const sl_matrix_source *source,
                                        const sl_embed_layout *layout, sl_error *err);

#endif
