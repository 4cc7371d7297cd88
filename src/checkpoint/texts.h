/* Tokenizer and chat template of a checkpoint, compiled and checked: what goes into text.bin. */
#ifndef SL_CHECKPOINT_TEXTS_H
#define SL_CHECKPOINT_TEXTS_H

#include "checkpoint/checkpoint.h"

typedef struct sl_checkpoint_texts {
    sl_buf tokenizer;     /* table image; empty: none */
    sl_buf chat_template; /* source; empty: none */
    uint64_t work_bytes;  /* of memory that reading them took, at most */
} sl_checkpoint_texts;

/* Compile tokenizer and template, and add the tokenizer's end token to the store's stop tokens. Notes what
 * is not there. texts is initialised here and released by the caller in any case. */
SL_MUST_USE sl_status sl_checkpoint_texts_read(const sl_checkpoint *ck, sl_store *store,
                                               sl_checkpoint_texts *texts, sl_error *err);
void sl_checkpoint_texts_deinit(sl_checkpoint_texts *texts);

/* Compiled tokenizer and chat template (its source, checked) of a checkpoint folder, as a conversion would
 * take them, into growable buffers. Errors: SL_ERR_MISSING where the folder has none; otherwise as above. */
SL_MUST_USE sl_status sl_folder_tokenizer(const char *folder, sl_buf *blob, sl_error *err);
SL_MUST_USE sl_status sl_folder_template(const char *folder, sl_buf *out, sl_error *err);

#endif
