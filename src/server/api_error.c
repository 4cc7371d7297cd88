/* Errors of the API, and strings that are safe to write: see api_format.h. */
#include "server/api_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

static const struct {
    int status;
    const char *type, *code, *anthropic;
} kinds[] = {
#define ERROR_ROW(name, status, type, code, anthropic)                                             \
    [SL_API_ERR_##name] = {status, type, code, anthropic},
    SL_API_ERROR_LIST(ERROR_ROW)
#undef ERROR_ROW
};

static sl_status status_of(sl_api_error_kind kind) {
    switch (kind) {
    case SL_API_ERR_SYNTAX:
        return SL_ERR_SYNTAX;
    case SL_API_ERR_UNSUPPORTED:
    case SL_API_ERR_PICTURE:
    case SL_API_ERR_SCHEMA:
        return SL_ERR_UNSUPPORTED;
    case SL_API_ERR_CONTEXT:
        return SL_ERR_CONTEXT;
    case SL_API_ERR_NOT_FOUND:
    case SL_API_ERR_MODEL:
        return SL_ERR_MISSING;
    case SL_API_ERR_TOO_LARGE:
    case SL_API_ERR_ANSWER_TOO_LARGE:
        return SL_ERR_MEMORY;
    case SL_API_ERR_BUSY:
    case SL_API_ERR_UNAVAILABLE:
    case SL_API_ERR_INTERNAL:
        return SL_ERR_STATE;
    default:
        return SL_ERR_ARGUMENT;
    }
}

static sl_status fill(sl_api_error *err, sl_api_error_kind kind, const char *param, const char *fmt,
                      va_list args) {
    err->kind = kind;
    (void)snprintf(err->param, sizeof(err->param), "%s", param ? param : "");
    (void)vsnprintf(err->message, sizeof(err->message), fmt, args);
    return status_of(kind);
}

sl_status sl_api_fail(sl_api_error *err, sl_api_error_kind kind, const char *param, const char *fmt,
                      ...) {
    va_list args;
    va_start(args, fmt);
    sl_status st = fill(err, kind, param, fmt, args);
    va_end(args);
    return st;
}

sl_status sl__req_fail(api_reader *r, sl_api_error_kind kind, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    sl_status st = fill(r->err, kind, r->path, fmt, args);
    va_end(args);
    return st;
}

sl_status sl_api_fail_engine(sl_api_error *err, const char *param, const sl_error *cause) {
    sl_api_error_kind kind = SL_API_ERR_INTERNAL;
    if (cause->status == SL_ERR_ARGUMENT || cause->status == SL_ERR_SYNTAX)
        kind = SL_API_ERR_INVALID;
    else if (cause->status == SL_ERR_UNSUPPORTED)
        kind = SL_API_ERR_UNSUPPORTED;
    else if (cause->status == SL_ERR_MEMORY)
        kind = SL_API_ERR_TOO_LARGE;
    else if (cause->status == SL_ERR_CONTEXT)
        kind = SL_API_ERR_CONTEXT;
    else if (cause->status == SL_ERR_STATE)
        kind = SL_API_ERR_UNAVAILABLE;
    (void)sl_api_fail(err, kind, param, "%s", cause->message);
    return cause->status;
}

sl_status sl_api_fail_context(sl_api_error *err, sl_api_dialect dialect, uint64_t n_prompt,
                              uint64_t n_wanted, uint64_t n_ctx) {
    const char *param = dialect == SL_API_COMPLETIONS ? "prompt"
                        : dialect == SL_API_RESPONSES ? "input"
                                                      : "messages";
    if (n_wanted)
        return sl_api_fail(err, SL_API_ERR_CONTEXT, param,
                           "the prompt has %llu tokens and %llu more were asked for; the context "
                           "holds %llu",
                           (unsigned long long)n_prompt, (unsigned long long)n_wanted,
                           (unsigned long long)n_ctx);
    return sl_api_fail(err, SL_API_ERR_CONTEXT, param,
                       "the prompt has %llu tokens, the context holds %llu",
                       (unsigned long long)n_prompt, (unsigned long long)n_ctx);
}

int sl_api_error_http_status(const sl_api_error *err) {
    return kinds[err->kind].status;
}

bool sl_api_error_retry(const sl_api_error *err) {
    return err->kind == SL_API_ERR_BUSY || err->kind == SL_API_ERR_TIMEOUT ||
           err->kind == SL_API_ERR_UNAVAILABLE;
}

const char *sl__error_code(const sl_api_error *err) {
    return kinds[err->kind].code;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

// Bytes of the character at p, or 0 where there is none: those at `skip` are to be replaced then.
static size_t char_len(const char *p, size_t left, size_t *skip) {
    uint32_t cp;
    *skip = sl_utf8_decode((const uint8_t *)p, (const uint8_t *)p + left, &cp);
    return cp == SL_UTF8_INVALID ? 0 : *skip;
}

void sl__add_escaped(sl_buf *out, const char *bytes, size_t n) {
    static const char names[] = "btn\0fr"; // 8, 9, 10, -, 12, 13
    size_t from = 0, i = 0;
    while (i < n) {
        size_t skip, k = char_len(bytes + i, n - i, &skip);
        unsigned char c = (unsigned char)bytes[i];
        if (k > 1 || (k == 1 && c >= 0x20 && c != '"' && c != '\\')) {
            i += k;
            continue;
        }
        sl_buf_add(out, bytes + from, i - from);
        i += skip;
        from = i;
        if (k == 0)
            sl_buf_add_text(out, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\')
            sl_buf_printf(out, "\\%c", c);
        else if (c >= 8 && c <= 13 && names[c - 8])
            sl_buf_printf(out, "\\%c", names[c - 8]);
        else
            sl_buf_printf(out, "\\u%04x", c);
    }
    sl_buf_add(out, bytes + from, n - from);
}

size_t sl__escaped_bytes(const char *bytes, size_t n) {
    size_t total = 0;
    for (size_t i = 0, skip; i < n; i += skip) {
        size_t k = char_len(bytes + i, n - i, &skip);
        unsigned char c = (unsigned char)bytes[i];
        total += k > 1 ? k : k == 0 ? 3 : c < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : 1;
    }
    return total;
}

void sl_api_add_string(sl_buf *out, const char *bytes, size_t n) {
    sl_buf_add_char(out, '"');
    sl__add_escaped(out, bytes, n);
    sl_buf_add_char(out, '"');
}

void sl__add_member(sl_buf *out, const char *key, const char *text) {
    sl_buf_printf(out, ",\"%s\":", key);
    if (text)
        sl_api_add_string(out, text, strlen(text));
    else
        sl_buf_add_text(out, "null");
}

void sl__add_error_openai(sl_buf *out, const sl_api_error *err) {
    sl_buf_add_text(out, "\"message\":");
    sl_api_add_string(out, err->message, strlen(err->message));
    sl__add_member(out, "type", kinds[err->kind].type);
    sl__add_member(out, "param", err->param[0] ? err->param : NULL);
    sl__add_member(out, "code", kinds[err->kind].code);
}

void sl_api_write_error(sl_api_dialect dialect, const sl_api_error *err, sl_buf *out) {
    if (!sl__api_dialect(dialect)->anthropic) {
        sl_buf_add_text(out, "{\"error\":{");
        sl__add_error_openai(out, err);
        sl_buf_add_text(out, "}}");
        return;
    }
    sl_buf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"",
                  kinds[err->kind].anthropic);
    if (err->param[0]) {
        sl__add_escaped(out, err->param, strlen(err->param));
        sl_buf_add_text(out, ": ");
    }
    sl__add_escaped(out, err->message, strlen(err->message));
    sl_buf_add_text(out, "\"}}");
}
