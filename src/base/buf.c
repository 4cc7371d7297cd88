/* Byte buffers, see buf.h. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static char empty[1];

void sl_buf_init(sl_buf *buf) {
    memset(buf, 0, sizeof(*buf));
    buf->data = empty;
}

void sl_buf_init_fixed(sl_buf *buf, void *block, size_t cap) {
    memset(buf, 0, sizeof(*buf));
    buf->data = block;
    buf->cap = cap;
    buf->fixed = true;
    buf->data[0] = '\0';
}

void sl_buf_deinit(sl_buf *buf) {
    if (!buf->fixed && buf->cap)
        sl_mem_free(buf->data);
    sl_buf_init(buf);
}

void sl_buf_clear(sl_buf *buf) {
    buf->len = 0;
    buf->failed = false;
    if (buf->cap)
        buf->data[0] = '\0';
}

// Room for n more bytes and the NUL.
static bool reserve(sl_buf *buf, size_t n) {
    if (buf->failed)
        return false;
    if (n < buf->cap - buf->len)
        return true;
    if (buf->cap == 0 && n == 0)
        return true;
    if (buf->fixed || n > SIZE_MAX / 4) {
        buf->failed = true;
        return false;
    }
    size_t cap = SL_MAX(buf->len + n + 1, buf->cap * 2);
    cap = SL_MAX(cap, (size_t)64);
    char *data = sl_mem_realloc(buf->cap ? buf->data : NULL, cap);
    if (!data) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->cap = cap;
    return true;
}

void sl_buf_add(sl_buf *buf, const void *bytes, size_t n) {
    if (n == 0 || !reserve(buf, n))
        return;
    memcpy(buf->data + buf->len, bytes, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void sl_buf_add_char(sl_buf *buf, char c) {
    sl_buf_add(buf, &c, 1);
}

void sl_buf_add_text(sl_buf *buf, const char *text) {
    sl_buf_add(buf, text, strlen(text));
}

void sl_buf_printf(sl_buf *buf, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        buf->failed = true;
    } else if (reserve(buf, (size_t)n) && buf->cap) {
        (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

void sl_buf_add_json_string(sl_buf *buf, const char *bytes, size_t n) {
    sl_buf_add_char(buf, '"');
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        sl_buf_add(buf, bytes + from, i - from);
        from = i + 1;
        switch (c) {
        case '"':
            sl_buf_add_text(buf, "\\\"");
            break;
        case '\\':
            sl_buf_add_text(buf, "\\\\");
            break;
        case '\n':
            sl_buf_add_text(buf, "\\n");
            break;
        case '\r':
            sl_buf_add_text(buf, "\\r");
            break;
        case '\t':
            sl_buf_add_text(buf, "\\t");
            break;
        case '\b':
            sl_buf_add_text(buf, "\\b");
            break;
        case '\f':
            sl_buf_add_text(buf, "\\f");
            break;
        default:
            sl_buf_printf(buf, "\\u%04x", c);
        }
    }
    sl_buf_add(buf, bytes + from, n - from);
    sl_buf_add_char(buf, '"');
}
