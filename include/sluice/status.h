/* The vocabulary of errors: the one part of the public face that every floor shares.
 *
 * Anything that can fail returns an sl_status (0 is success) and fills a caller-owned sl_error. The
 * struct has a fixed size and owns nothing, so reporting an error never allocates and never fails. */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports; everything else in it is hidden. */
#if defined(__GNUC__)
#define SL_PUBLIC __attribute__((visibility("default")))
#else
#define SL_PUBLIC
#endif

/* name, default text. The order is part of the ABI: new codes are added at the end. */
#define SL_STATUS_LIST(X)                                                                          \
    X(SL_OK, "success")                                                                            \
    X(SL_ERR_ARGUMENT, "an argument is out of range")                                              \
    X(SL_ERR_MEMORY, "an account is too small or the system refused memory")                       \
    X(SL_ERR_BUDGET, "the budget is too small")                                                    \
    X(SL_ERR_IO, "reading or writing failed")                                                      \
    X(SL_ERR_CORRUPT, "the data is damaged")                                                       \
    X(SL_ERR_MISSING, "not found")                                                                 \
    X(SL_ERR_UNSUPPORTED, "not supported")                                                         \
    X(SL_ERR_SYNTAX, "the input cannot be parsed")                                                 \
    X(SL_ERR_CANCELED, "canceled")                                                                 \
    X(SL_ERR_CONTEXT, "the context is full")                                                       \
    X(SL_ERR_EXISTS, "already exists")                                                             \
    X(SL_ERR_STATE, "called in a state that does not allow it")

typedef enum sl_status {
#define SL_STATUS_ENUM(name, text) name,
    SL_STATUS_LIST(SL_STATUS_ENUM)
#undef SL_STATUS_ENUM
} sl_status;

#define SL_ERROR_MESSAGE_MAX 480

/* What went wrong, in words and, where the place is known, in numbers. */
typedef struct sl_error {
    sl_status status;
    int32_t layer;                      /* -1 where no layer is concerned */
    int32_t expert;                     /* -1 where no expert is concerned */
    uint64_t offset;                    /* byte offset in the file named by the message, or 0 */
    char message[SL_ERROR_MESSAGE_MAX]; /* one line, no newline, always terminated */
} sl_error;

/* The code's name ("SL_ERR_IO") and its default text ("reading or writing failed"). Never NULL. */
SL_PUBLIC const char *sl_status_name(sl_status status);
SL_PUBLIC const char *sl_status_text(sl_status status);

#ifdef __cplusplus
}
#endif
#endif
