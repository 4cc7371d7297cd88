/* Conversion: a checkpoint becomes a store.
 *
 * Work happens in DST.partial, unit by unit (trunk, embedding, the experts of each layer), and every
 * complete unit is noted in a journal there. A run that was stopped, by whatever means, is continued by the
 * next one, provided that checkpoint and options are the same; otherwise it starts anew and says so. The
 * result appears by rename; one that replaces another is exchanged with it in one step where the system
 * can. Peak memory is below 0.3 GiB whatever the size: a 32 MiB window, some buffers, the tensor table
 * and, while it is compiled, the tokenizer. Pages of checkpoint and store do not stay in the page cache. */
#ifndef SL_CONVERT_CONVERT_H
#define SL_CONVERT_CONVERT_H

#include "checkpoint/checkpoint.h"

typedef struct sl_convert_params {
    sl_checkpoint_options options;
    bool
        move; /* give the checkpoint back to the drive as it is converted, and remove it in the end: move.h */
    bool force; /* replace a destination that is a store */
    /* Told the bytes of the checkpoint that are done, of `total`. false stops: SL_ERR_CANCELED. NULL: nobody. */
    bool (*report)(void *user, uint64_t done, uint64_t total);
    void *user;
} sl_convert_params;

typedef struct sl_convert_outcome {
    uint64_t source_bytes, store_bytes;
    bool resumed; /* an earlier run's units were kept */
    uint32_t n_tensors, n_skipped;
    uint32_t n_experts; /* layers that have some times experts */
    bool has_tokenizer, has_template;
    sl_buf notes; /* lines of text; release with sl_convert_outcome_deinit() */
} sl_convert_outcome;

/* A move that was stopped goes on with `move` alone, which is refused together with force.
 * out is filled as far as is known, on error too; deinit it in any case. One thread; the callback runs on
 * it. Errors: those of sl_checkpoint_open(); SL_ERR_EXISTS (a destination without force, or one that is no
 * store); SL_ERR_STATE (another process converts to the same place); SL_ERR_SYNTAX (chat template, with line
 * and column); SL_ERR_IO (also: not enough space, with the numbers). What is done is kept on every error. */
SL_MUST_USE sl_status sl_convert_run(const char *src, const char *dst,
                                     const sl_convert_params *params, sl_convert_outcome *out,
                                     sl_error *err);
void sl_convert_outcome_deinit(sl_convert_outcome *out);

#endif
