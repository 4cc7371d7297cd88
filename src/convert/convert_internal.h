/* Shared by the sources of a conversion. */
#ifndef SL_CONVERT_CONVERT_INTERNAL_H
#define SL_CONVERT_CONVERT_INTERNAL_H

#include "convert/convert.h"
#include "store/store_write.h"

/* The texts of a checkpoint, compiled: what goes into text.bin. */
typedef struct sl_convert_texts {
    sl_buf tokenizer;     /* table image; empty: none */
    sl_buf chat_template; /* source; empty: none */
} sl_convert_texts;

/* Compile tokenizer and template, and add the tokenizer's end token to the store's stop tokens. Notes what
 * is not there. texts is initialised here and released by the caller in any case. */
SL_MUST_USE sl_status sl__convert_texts(const sl_checkpoint *ck, sl_store *store,
                                        sl_convert_texts *texts, sl_error *err);
void sl__convert_texts_deinit(sl_convert_texts *texts);

/* Writes the tensors of a checkpoint in the form of the store. */
typedef struct sl_tensor_writer {
    sl_checkpoint *ck;
    sl_store_writer *out;
    uint8_t *raw;         /* SL_STRIP_BYTES: of the file */
    float *wide;          /* SL_WIDE_BYTES: of the result, before it is encoded */
    uint8_t *packed;      /* SL_STRIP_BYTES: of the store */
    uint64_t done, total; /* bytes of the checkpoint */
    const sl_convert_params *params;
} sl_tensor_writer;

/* A row of SL_ROW_MAX inputs in f32 is a strip; a matrix of 2880 x 2880, the largest known to be turned on its
 * side in a file, fits in the wide buffer and is read once. */
#define SL_STRIP_BYTES (SL_ROW_MAX * sizeof(float))
#define SL_WIDE_BYTES ((size_t)32 << 20)

/* Put a tensor at an offset of the open block, in the layout of its shape. */
SL_MUST_USE sl_status sl__write_tensor(sl_tensor_writer *w, const sl_matrix_source *source,
                                       uint64_t at, sl_error *err);
/* Put the rows of an embedding as records from the start of the open block. */
SL_MUST_USE sl_status sl__write_embedding(sl_tensor_writer *w, const sl_matrix_source *source,
                                          const sl_embed_layout *layout, sl_error *err);
/* Count bytes as done and tell. */
SL_MUST_USE sl_status sl__report(sl_tensor_writer *w, uint64_t bytes, sl_error *err);

#endif
