/* The file of keys: see keys.h. */
#include "serve/keys.h"

#include <stdio.h>
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

// Printable ASCII without a space: what the fields of HTTP carry as one word.
static bool is_key(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    }
    return n > 0 && n <= SERVE_KEY_MAX;
}

bool serve_keys_parse(char *text, size_t n, serve_keys *out, char problem[160]) {
    unsigned line = 0;
    out->n = 0;
    for (char *at = text, *end = text + n; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *stop = newline ? newline : end, *next = stop + (newline != NULL);
        line++;
        while (at < stop && is_blank(*at))
            at++;
        while (at < stop && is_blank(stop[-1]))
            stop--;
        if (at < stop && *at != '#') {
            if (!is_key(at, (size_t)(stop - at))) {
                snprintf(problem, 160,
                         "line %u is not a key: 1 to %d printable ASCII characters without spaces",
                         line, SERVE_KEY_MAX);
                return false;
            }
            if (out->n == SERVE_KEYS_MAX) {
                snprintf(problem, 160, "line %u: there are more than %d keys", line,
                         SERVE_KEYS_MAX);
                return false;
            }
            out->key[out->n++] = at;
            *stop = '\0'; // the line break, a blank or the end
        }
        at = next;
    }
    if (out->n == 0)
        snprintf(problem, 160, "there is no key in it");
    return out->n > 0;
}
