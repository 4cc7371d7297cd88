/* A byte buffer that text is written into: growable on the heap, or fixed over a caller's block.
 * Writing past a fixed buffer, or out of memory, sets `failed` and drops the rest; callers write
 * freely and look once at the end. data is always NUL-terminated (the NUL is not counted in len). */
#ifndef SL_BASE_BUF_H
#define SL_BASE_BUF_H

#include <stdbool.h>

#include "base/attr.h"

typedef struct sl_buf {
    char *data;
    size_t len;
    size_t cap; /* bytes of data, the NUL included */
    bool fixed;
    bool failed;
} sl_buf;

void sl_buf_init(sl_buf *buf);                                /* growable; free with deinit */
void sl_buf_init_fixed(sl_buf *buf, void *block, size_t cap); /* cap >= 1; deinit is a no-op */
void sl_buf_deinit(sl_buf *buf);
void sl_buf_clear(sl_buf *buf); /* len = 0, failed = false */

void sl_buf_add(sl_buf *buf, const void *bytes, size_t n);
void sl_buf_add_char(sl_buf *buf, char c);
void sl_buf_add_text(sl_buf *buf, const char *text); /* NUL-terminated */
void sl_buf_printf(sl_buf *buf, const char *fmt, ...) SL_PRINTF(2, 3);

/* A JSON string literal with its quotes: ", \ and control characters escaped, everything else kept
 * as it is. bytes must be valid UTF-8 for the result to be valid JSON. */
void sl_buf_add_json_string(sl_buf *buf, const char *bytes, size_t n);

#endif
