/* Requests: see request.h. */
#include "cli/request.h"

#include <stdio.h>
#include <string.h>

#include "cli/console.h"

// Enough for the end of a message and of the object: "}]}
#define KEPT_FREE 8

static void add(cli_buffer *b, const char *bytes, size_t n, size_t kept_free) {
    if (b->n + kept_free > b->cap || n > b->cap - b->n - kept_free) {
        b->full = true;
        return;
    }
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

void cli_buffer_add(cli_buffer *buffer, const char *bytes, size_t n) {
    add(buffer, bytes, n, 0);
}

void cli_request_begin(cli_buffer *request, bool think) {
    char text[96];
    int n = snprintf(text, sizeof(text),
                     "{\"add_generation_prompt\": true, \"enable_thinking\": %s, \"messages\": [",
                     think ? "true" : "false");
    request->n = 0;
    request->full = false;
    add(request, text, (size_t)n, KEPT_FREE);
}

void cli_request_message_begin(cli_buffer *request, const char *role) {
    char text[64];
    bool first = request->n > 0 && request->bytes[request->n - 1] == '[';
    int n = snprintf(text, sizeof(text), "%s{\"role\": \"%s\", \"content\": \"", first ? "" : ", ",
                     role);
    add(request, text, (size_t)n, KEPT_FREE);
}

static bool add_escaped(cli_buffer *request, const char *text, size_t n, size_t *replaced) {
    size_t start = request->n;
    for (size_t i = 0, used; i < n && !request->full; i += used) {
        char escaped[CLI_JSON_ESCAPE_MAX];
        size_t length = cli_json_escape(text + i, n - i, escaped, &used);
        if (replaced && cli_utf8_length(text + i, n - i) == 0)
            (*replaced)++;
        add(request, escaped, length, KEPT_FREE);
    }
    if (request->full)
        request->n = start;
    return !request->full;
}

bool cli_request_message_part(cli_buffer *request, const char *text, size_t n) {
    return add_escaped(request, text, n, NULL);
}

void cli_request_message_end(cli_buffer *request) {
    add(request, "\"}", 2, KEPT_FREE - 2);
}

void cli_request_message(cli_buffer *request, const char *role, const char *text, size_t n,
                         size_t *replaced) {
    size_t start = request->n;
    cli_request_message_begin(request, role);
    add_escaped(request, text, n, replaced);
    cli_request_message_end(request);
    if (request->full)
        request->n = start;
}

void cli_request_end(cli_buffer *request) {
    add(request, "]}", 2, 0);
}

void cli_request_reopen(cli_buffer *request) {
    request->n -= 2;
}

/* ---- reading --------------------------------------------------------------------------------- */

static size_t skip_space(const char *text, size_t len, size_t i) {
    while (i < len && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'))
        i++;
    return i;
}

// i is at the opening quote; returns the place behind the closing one.
static size_t skip_string(const char *text, size_t len, size_t i) {
    for (i++; i < len && text[i] != '"'; i++) {
        if (text[i] == '\\')
            i++;
    }
    return i < len ? i + 1 : len;
}

static size_t skip_value(const char *text, size_t len, size_t i) {
    size_t depth = 0;
    while (i < len) {
        char c = text[i];
        if (c == '"') {
            i = skip_string(text, len, i);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            break;
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        i++;
    }
    return i;
}

bool cli_request_member(const char *text, size_t len, const char *key, const char **value,
                        size_t *n) {
    size_t key_len = strlen(key);
    size_t i = skip_space(text, len, 0);
    if (i >= len || text[i] != '{')
        return false;
    i++;
    while ((i = skip_space(text, len, i)) < len && text[i] == '"') {
        size_t end = skip_string(text, len, i);
        bool match = end - i == key_len + 2 && memcmp(text + i + 1, key, key_len) == 0;
        i = skip_space(text, len, end);
        if (i >= len || text[i] != ':')
            return false;
        i = skip_space(text, len, i + 1);
        end = skip_value(text, len, i);
        if (match) {
            while (end > i && skip_space(text + end - 1, 1, 0) == 1)
                end--;
            *value = text + i;
            *n = end - i;
            return true;
        }
        if (end >= len || text[end] != ',')
            return false;
        i = end + 1;
    }
    return false;
}

bool cli_request_default(cli_buffer *request, const char *key, const char *value) {
    const char *found;
    size_t n_found, brace = skip_space(request->bytes, request->n, 0);
    char member[96];
    if (cli_request_member(request->bytes, request->n, key, &found, &n_found) ||
        brace >= request->n || request->bytes[brace] != '{')
        return true;
    size_t first = skip_space(request->bytes, request->n, brace + 1);
    bool empty = first < request->n && request->bytes[first] == '}';
    int length = snprintf(member, sizeof(member), "\"%s\": %s%s", key, value, empty ? "" : ", ");
    if ((size_t)length > request->cap - request->n) {
        request->full = true;
        return false;
    }
    char *at = request->bytes + brace + 1;
    memmove(at + length, at, request->n - brace - 1);
    memcpy(at, member, (size_t)length);
    request->n += (size_t)length;
    return true;
}
