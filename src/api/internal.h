/* Shared by the sources of the public face. */
#ifndef SL_API_INTERNAL_H
#define SL_API_INTERNAL_H

#include "base/buf.h"
#include "engine/engine.h"
#include "io/drive.h"
#include "io/folder.h"
#include "sluice.h"

/* Resolve options into what the engine takes. Errors: SL_ERR_ARGUMENT, SL_ERR_UNSUPPORTED. */
SL_MUST_USE sl_status sl__api_setup(const sl_engine_options *options, sl_engine_setup *out,
                                    sl_error *err);
/* The public form of a plan. */
void sl__api_plan_info(const sl_store *store, const sl_plan_result *plan, sl_plan_info *out);

/* The numbers of a store, of a checkpoint as it would be converted, or of a config.json. Release with
 * sl_store_close(). drive_file (SL_PATH_MAX bytes) receives a large file to probe the drive with, or "". */
SL_MUST_USE sl_status sl__api_describe(const char *model, sl_store *out, char *drive_file,
                                       sl_error *err);

/* SL_TOKENIZE_* as the tokenizer has them. */
unsigned sl__api_token_flags(unsigned flags);

/* Pass progress of a prompt on; user is an sl_progress whose report is set. */
bool sl__api_report_prefill(void *user, uint64_t done, uint64_t total);

/* Send a buffer to a sink. Errors: SL_ERR_MEMORY (the buffer had failed), SL_ERR_CANCELED. */
SL_MUST_USE sl_status sl__api_send(const sl_buf *buf, const sl_sink *sink, sl_error *err);

/* Measure a drive by the file; quietly leaves *out zeroed where that is not possible. */
void sl__api_probe(const char *file, uint64_t record_bytes, sl_drive_info *out);

/* Bytes of a store's files that are in the page cache; UINT64_MAX where the kernel does not say. */
SL_MUST_USE sl_status sl__api_cached_bytes(const sl_store *store, uint64_t *out, sl_error *err);

/* "1.5 GiB", "20.2 MiB", "340 KiB". */
void sl__api_add_bytes(sl_buf *buf, uint64_t bytes);

#endif
