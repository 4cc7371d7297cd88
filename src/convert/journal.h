/* The journal of an unfinished conversion: which units of the store are complete, with their checksums.
 *
 * A text file of lines "unit checksum... #check". The first line names the conversion: "source" and the
 * fingerprint of checkpoint and options. A line is appended, and on the drive, after the unit's file is. A
 * process killed at any moment leaves at most half a line at the end, which its check tells and opening
 * cuts off. */
#ifndef SL_CONVERT_JOURNAL_H
#define SL_CONVERT_JOURNAL_H

#include "base/buf.h"
#include "base/status.h"
#include "store/store.h"

#define SL_JOURNAL_NAME "journal"

typedef struct sl_journal {
    int fd;      /* -1 when closed; holds the folder's lock */
    sl_buf text; /* the intact lines, at open */
} sl_journal;

#define SL_JOURNAL_CLOSED ((sl_journal){.fd = -1})

/* Open or create the journal of a folder and lock it. Errors: SL_ERR_STATE when another process works
 * there, SL_ERR_IO, SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_journal_open(const char *folder, sl_journal *out, sl_error *err);
void sl_journal_close(sl_journal *journal);

/* The line of a unit: reads up to n checksums into hashes. false: it is not there, or has not n. Pure. */
bool sl_journal_find(const sl_journal *journal, const char *unit, sl_hash128 *hashes, size_t n);
/* Append a unit's line and wait until it is on the drive. */
SL_MUST_USE sl_status sl_journal_add(sl_journal *journal, const char *unit,
                                     const sl_hash128 *hashes, size_t n, sl_error *err);
/* Forget everything. */
SL_MUST_USE sl_status sl_journal_clear(sl_journal *journal, sl_error *err);

#endif
