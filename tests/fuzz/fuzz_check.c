/* Values against schemas: a pair [schema, value]. Every verdict has its message, on one line and in whole
 * characters; scratch comes back; the verdict on the schema alone is that on the pair, and the order of
 * keys, of schema and of value, changes none. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/check.h"

#define SCRATCH_BYTES ((size_t)1 << 20)

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

// No control characters, and every character whole.
static void require_line(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    require(*p);
    while (*p) {
        unsigned n = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
        require(*p >= ' ' && (*p < 0x80 || *p >= 0xc2));
        for (p++; n > 0; n--, p++)
            require((*p & 0xc0) == 0x80);
    }
}

// Turn the members of all objects around.
static void turn(sl_json *node) {
    sl_json *before = NULL;
    for (sl_json *child = node->child, *next; child; child = next) {
        next = child->next;
        turn(child);
        if (node->type == SL_JSON_OBJECT) {
            child->next = before;
            before = child;
        }
    }
    if (node->type == SL_JSON_OBJECT)
        node->child = before;
}

static sl_status check(const sl_json *schema, const sl_json *value, void *block) {
    sl_arena scratch;
    sl_error err = {0};
    sl_arena_init(&scratch, "scratch", block, SCRATCH_BYTES);
    sl_status st = sl_schema_check(schema, value, &scratch, &err);
    require(scratch.used == 0);
    require(st == SL_OK || st == SL_ERR_ARGUMENT || st == SL_ERR_UNSUPPORTED ||
            st == SL_ERR_MEMORY);
    require(st == SL_OK || err.status == st);
    if (st == SL_ERR_ARGUMENT) {
        require_line(err.message);
        require(strstr(err.message, ": expected ") && strstr(err.message, ", found "));
    }
    if (st == SL_ERR_UNSUPPORTED)
        require(strncmp(err.message, "schema: #", 9) == 0);
    require(st == sl_schema_check(schema, value, &scratch, NULL));
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t tree_bytes = 4096 + 256 * size;
    char *block = malloc(tree_bytes + SCRATCH_BYTES);
    sl_arena arena;
    sl_json *root;
    sl_error err;
    require(block != NULL);
    sl_arena_init(&arena, "fuzz", block, tree_bytes);
    if (!sl_json_parse((const char *)data, size, &arena, &root, &err) &&
        root->type == SL_JSON_ARRAY && root->n_children == 2) {
        sl_json *schema = root->child, *value = schema->next;
        void *scratch = block + tree_bytes;
        sl_status alone = check(schema, NULL, scratch), pair = check(schema, value, scratch);
        require(alone != SL_ERR_ARGUMENT);
        require(alone == SL_OK || pair == alone);
        turn(schema);
        turn(value);
        sl_status turned = check(schema, value, scratch);
        // Limits may be met in one order alone.
        require(turned == pair || pair > SL_ERR_ARGUMENT || turned > SL_ERR_ARGUMENT);
    }
    free(block);
    return 0;
}
