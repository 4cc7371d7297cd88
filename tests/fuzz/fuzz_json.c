/* JSON: the pull reader, the tree and the helpers over arbitrary bytes. What the tree accepts the
 * reader must accept too, with the same number of values; a number and a string must survive being
 * read by every accessor. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static bool is_value(sl_json_event event) {
    switch (event) {
    case SL_JSON_EV_BEGIN_OBJECT:
    case SL_JSON_EV_BEGIN_ARRAY:
    case SL_JSON_EV_STRING:
    case SL_JSON_EV_NUMBER:
    case SL_JSON_EV_TRUE:
    case SL_JSON_EV_FALSE:
    case SL_JSON_EV_NULL:
        return true;
    default:
        return false;
    }
}

/* Walks the whole text; false where it is no JSON. */
static bool read_all(const char *text, size_t len, uint64_t *n_values) {
    sl_json_reader reader;
    sl_error err;
    char *decoded = malloc(len + 1);
    sl_json_event event;
    *n_values = 0;
    sl_json_reader_init(&reader, text, len);
    while ((event = sl_json_next(&reader, &err)) != SL_JSON_EV_END && event != SL_JSON_EV_ERROR) {
        *n_values += is_value(event);
        if (event == SL_JSON_EV_KEY || event == SL_JSON_EV_STRING) {
            require(decoded && sl_json_decode(&reader, decoded) <= reader.len);
            (void)sl_json_reader_is(&reader, "type");
        }
    }
    free(decoded);
    require(sl_json_next(&reader, &err) == event); // the end and an error are both final
    return event == SL_JSON_EV_END;
}

/* The same text again, skipping the first value inside every second container. */
static void skip_some(const char *text, size_t len) {
    sl_json_reader reader;
    sl_error err;
    uint32_t n_containers = 0;
    sl_json_reader_init(&reader, text, len);
    for (;;) {
        sl_json_event event = sl_json_next(&reader, &err);
        if (event == SL_JSON_EV_END || event == SL_JSON_EV_ERROR) {
            return;
        }
        if (event == SL_JSON_EV_BEGIN_ARRAY || event == SL_JSON_EV_BEGIN_OBJECT) {
            if (n_containers++ % 2 && sl_json_skip(&reader, true, &err) != SL_OK) {
                return;
            }
        }
    }
}

/* Counts the values below and including node, without recursion: the tree has no parent pointers, so
 * the path is kept here, and it is never deeper than the parser allows. */
static uint64_t count(const sl_json *node) {
    const sl_json *path[SL_JSON_DEPTH_MAX + 1];
    uint64_t n = 0;
    uint32_t depth = 0;
    while (node) {
        double d;
        int64_t i;
        uint64_t u;
        n++;
        (void)sl_json_double(node, &d);
        (void)sl_json_int64(node, &i);
        (void)sl_json_uint64(node, &u);
        require(sl_json_element(node, node->n_children) == NULL);
        if (node->child) {
            require(depth < SL_JSON_DEPTH_MAX);
            path[depth++] = node;
            node = node->child;
            continue;
        }
        while (!node->next && depth > 0) {
            node = path[--depth];
        }
        node = node->next;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    size_t block_bytes = 4096 + 256 * size;
    void *block = malloc(block_bytes);
    sl_arena arena;
    sl_json *root = NULL;
    sl_error err;
    uint64_t n_read;
    require(block != NULL);
    sl_arena_init(&arena, "fuzz", block, block_bytes);

    bool readable = read_all(text, size, &n_read);
    skip_some(text, size);
    if (sl_json_parse(text, size, &arena, &root, &err) == SL_OK) {
        require(readable && count(root) == n_read);
        (void)sl_json_member_set(root, "type");
    } else {
        require(root == NULL && err.status != SL_OK && err.message[0] != '\0');
    }
    free(block);
    return 0;
}
