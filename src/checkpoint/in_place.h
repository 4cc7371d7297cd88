/* A checkpoint in the role of a store: described, its files open, the trunk prepared from them.
 *
 * What can be used in place: experts whose tensors are stacked and are what a conversion would keep (the layout of
 * mlx-community, quantized), and an embedding of that kind. Tensors of the trunk may need more than copying; those
 * that do cannot stream. The numbers are those of the converted store, to the bit. There are no checksums.
 *
 * One thread. */
#ifndef SL_CHECKPOINT_IN_PLACE_H
#define SL_CHECKPOINT_IN_PLACE_H

#include "checkpoint/form.h"
#include "checkpoint/texts.h"

typedef struct sl_in_place {
    sl_matrix_source *sources; /* [n_tensors] of the store, in its arena */
    sl_matrix_source embed;
    sl_checkpoint_texts texts; /* the tokenizer as it is used; owned here */

    /* While the trunk is prepared. */
    const sl_store *store;
    sl_ahead ahead;
    sl_tensor_form form;
    uint8_t *out;         /* of the tensor at work */
    uint64_t done, total; /* bytes, for progress */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
} sl_in_place;

/* Can this checkpoint be used in place? *n_reads receives the reads of an expert. Errors: SL_ERR_UNSUPPORTED says why not. */
SL_MUST_USE sl_status sl_in_place_check(sl_checkpoint *ck, uint32_t *n_reads, sl_error *err);

/* Open a checkpoint folder. *store gets sizes, places, files and sampling defaults; release both. Temporary memory
 * (in_place->open_bytes at most) is returned before this ends.
 * Errors: those of sl_checkpoint_open(); SL_ERR_UNSUPPORTED: it has to be converted, the message says why, or there is
 * no direct I/O. */
SL_MUST_USE sl_status sl_in_place_open(const char *path, sl_store_direct direct, sl_store *store,
                                       sl_in_place *out, sl_error *err);
/* Accepts a zeroed struct. */
void sl_in_place_close(sl_in_place *in);

/* Get ready to prepare: with a reader that nobody else uses until sl_in_place_end(), and `bytes` bytes of memory
 * (prepare_bytes at least, aligned to SL_PAGE). */
void sl_in_place_begin(sl_in_place *in, const sl_store *store, sl_reader *reader, uint8_t *memory,
                       uint64_t bytes);
void sl_in_place_end(sl_in_place *in);
/* Tensor i of the store into a block of its layout. Errors: SL_ERR_IO, SL_ERR_CORRUPT, SL_ERR_CANCELED. */
SL_MUST_USE sl_status sl_in_place_tensor(sl_in_place *in, uint32_t i, uint8_t *block,
                                         sl_error *err);
/* All rows of the embedding as records. */
SL_MUST_USE sl_status sl_in_place_embedding(sl_in_place *in, uint8_t *records, sl_error *err);

#endif
