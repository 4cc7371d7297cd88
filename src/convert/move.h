/* Conversion without a second copy: what is converted is given back to the drive, layer by layer.
 *
 * A layer's experts are given back once its file, the file's name and the journal's line are on the drive: nothing that
 * is done is needed from the checkpoint again. Everything else stays until the store has its name; then the tensor
 * files are removed. From the first byte that is given back a mark stands in the checkpoint's folder, with the
 * fingerprint of the conversion and the files: whoever opens the folder otherwise is told, and a run that was killed
 * between publication and the end finds what is left to remove. */
#ifndef SL_CONVERT_MOVE_H
#define SL_CONVERT_MOVE_H

#include "checkpoint/checkpoint.h"

/* Refuse files that have other names or are links: others may use them. Errors: SL_ERR_UNSUPPORTED. */
SL_MUST_USE sl_status sl__move_check(const sl_checkpoint *ck, sl_error *err);
/* Is the mark there? */
SL_MUST_USE sl_status sl__move_is_marked(const char *src, bool *marked, sl_error *err);
/* Put the mark into the folder, on the drive. */
SL_MUST_USE sl_status sl__move_mark(const sl_checkpoint *ck, sl_error *err);
/* Give back the experts of a layer. Where the file system cannot, nothing happens. */
SL_MUST_USE sl_status sl__move_give_back(sl_checkpoint *ck, uint32_t layer, sl_error *err);
/* Remove the files that the mark names, and the mark, when dst is the store that was made of them. *done tells. Errors:
 * SL_ERR_CORRUPT (the mark is damaged), SL_ERR_IO. */
SL_MUST_USE sl_status sl__move_finish(const char *src, const char *dst, bool *done, sl_error *err);

#endif
