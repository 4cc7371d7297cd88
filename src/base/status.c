/* Errors: names, texts and the message builders. Never allocates. */
#define _GNU_SOURCE
#include "base/status.h"

#include <stdio.h>
#include <string.h>

// What status.h tells the analyzer, which this file defines for real.
#undef sl_fail
#undef sl_fail_at
#undef sl_fail_errno
#undef sl_error_context

const char *sl_status_name(sl_status status) {
    switch (status) {
#define SL_STATUS_NAME(name, text)                                                                 \
    case name:                                                                                     \
        return #name;
        SL_STATUS_LIST(SL_STATUS_NAME)
#undef SL_STATUS_NAME
    }
    return "SL_ERR_UNKNOWN";
}

const char *sl_status_text(sl_status status) {
    switch (status) {
#define SL_STATUS_TEXT(name, text)                                                                 \
    case name:                                                                                     \
        return text;
        SL_STATUS_LIST(SL_STATUS_TEXT)
#undef SL_STATUS_TEXT
    }
    return "unknown error";
}

void sl_error_clear(sl_error *err) {
    if (!err)
        return;
    err->status = SL_OK;
    err->layer = -1;
    err->expert = -1;
    err->offset = 0;
    err->message[0] = '\0';
}

static void set(sl_error *err, sl_status status, const char *fmt, va_list args) {
    sl_error_clear(err);
    err->status = status;
    (void)vsnprintf(err->message, sizeof(err->message), fmt, args);
}

sl_status sl_fail(sl_error *err, sl_status status, const char *fmt, ...) {
    if (err) {
        va_list args;
        va_start(args, fmt);
        set(err, status, fmt, args);
        va_end(args);
    }
    return status;
}

sl_status sl_fail_at(sl_error *err, sl_status status, int32_t layer, int32_t expert,
                     uint64_t offset, const char *fmt, ...) {
    if (err) {
        va_list args;
        va_start(args, fmt);
        set(err, status, fmt, args);
        va_end(args);
        err->layer = layer;
        err->expert = expert;
        err->offset = offset;
    }
    return status;
}

const char *sl_errno_text(int errnum) {
    const char *text = strerrordesc_np(errnum);
    return text ? text : "unknown error";
}

sl_status sl_fail_errno(sl_error *err, sl_status status, int errnum, const char *fmt, ...) {
    if (err) {
        va_list args;
        va_start(args, fmt);
        set(err, status, fmt, args);
        va_end(args);
        size_t used = strlen(err->message);
        (void)snprintf(err->message + used, sizeof(err->message) - used, ": %s",
                       sl_errno_text(errnum));
    }
    return status;
}

sl_status sl_error_context(sl_error *err, sl_status status, const char *fmt, ...) {
    if (err) {
        char inner[SL_ERROR_MESSAGE_MAX];
        memcpy(inner, err->message, sizeof(inner));
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(err->message, sizeof(err->message), fmt, args);
        va_end(args);
        size_t used = n < 0 ? 0 : SL_MIN((size_t)n, sizeof(err->message) - 1);
        const size_t room = sizeof(err->message) - used;
        (void)snprintf(err->message + used, room, ": %.*s", (int)room, inner);
        err->status = status;
    }
    return status;
}
