/* Filling an sl_error (sluice/status.h). Every function accepts err == NULL. */
#ifndef SL_BASE_STATUS_H
#define SL_BASE_STATUS_H

#include <stdarg.h>

#include "base/attr.h"
#include "sluice/status.h"

/* Set status and message (printf-like, cut at SL_ERROR_MESSAGE_MAX); layer, expert and offset become
 * unknown. Returns status, so that a caller can write `return sl_fail(err, SL_ERR_IO, "...")`. */
sl_status sl_fail(sl_error *err, sl_status status, const char *fmt, ...) SL_PRINTF(3, 4);

/* The same, with the place: layer and expert (-1 unknown) and the byte offset in the named file. */
sl_status sl_fail_at(sl_error *err, sl_status status, int32_t layer, int32_t expert,
                     uint64_t offset, const char *fmt, ...) SL_PRINTF(6, 7);

/* The same, ending with ": " and the text of the given errno. */
sl_status sl_fail_errno(sl_error *err, sl_status status, int errnum, const char *fmt, ...)
    SL_PRINTF(4, 5);

/* Put "context: " before the message of an error that is passed on. Returns status. */
sl_status sl_error_context(sl_error *err, sl_status status, const char *fmt, ...) SL_PRINTF(3, 4);

/* The text of an errno value. Static. */
const char *sl_errno_text(int errnum);

void sl_error_clear(sl_error *err);

#ifdef __clang_analyzer__
/* The analyzer sees one source at a time and would follow paths on which an error is SL_OK. */
#define sl_fail(err, status, ...) (sl_fail(err, status, __VA_ARGS__), (status))
#define sl_fail_at(err, status, layer, expert, offset, ...)                                        \
    (sl_fail_at(err, status, layer, expert, offset, __VA_ARGS__), (status))
#define sl_fail_errno(err, status, errnum, ...)                                                    \
    (sl_fail_errno(err, status, errnum, __VA_ARGS__), (status))
#define sl_error_context(err, status, ...) (sl_error_context(err, status, __VA_ARGS__), (status))
#endif

#endif
