/* Every checksum of a store, looked at once. */
#ifndef SL_STORE_VERIFY_H
#define SL_STORE_VERIFY_H

#include <stdbool.h>

#include "base/status.h"

typedef struct sl_verify_params {
    /* Told the bytes that were read, of `total`. false stops: SL_ERR_CANCELED. NULL: nobody. */
    bool (*report)(void *user, uint64_t done, uint64_t total);
    /* One line of text for every damaged record, file or missing file ("experts/003.bin: expert 17 at 417792: ..."),
     * and, with damaged false, for files that are not part of the store. false stops. NULL: nobody. */
    bool (*line)(void *user, bool damaged, const char *text);
    void *user;
} sl_verify_params;

/* Read the whole store, at most some 16 MiB of it in memory, by direct I/O where that works; nothing stays in
 * the page cache. Goes on after damage to the end; then SL_ERR_CORRUPT, with *n_damaged counting it. A
 * manifest that cannot be read ends it at once, with the errors of sl_store_open(). */
SL_MUST_USE sl_status sl_store_verify(const char *path, const sl_verify_params *params,
                                      uint32_t *n_damaged, sl_error *err);

#endif
