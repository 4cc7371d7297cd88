/* Checks values against schemas, so that a test in another language can compare with a validator.
 *
 *   chk_driver      one question a line on standard input, one answer a line
 *
 * A question is JSON: {"schema": ..., "instances": [...]}. The answer is a list with one element for
 * each instance, and a first one for the schema alone: {"code": "SL_OK", "error": ""}. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "constrain/check.h"

#define LINE_MAX_BYTES (4u << 20)
#define TREE_BYTES (32u << 20)
#define SCRATCH_BYTES (4u << 20)

static void require(bool condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "chk_driver: %s\n", what);
        exit(1);
    }
}

static void *room(size_t bytes) {
    void *p = malloc(bytes);
    require(p != NULL, "out of memory");
    return p;
}

static void answer(const sl_json *schema, const sl_json *instance, sl_arena *scratch, sl_buf *out) {
    sl_error err = {.message = ""};
    size_t used = scratch->used;
    sl_status st = sl_schema_check(schema, instance, scratch, &err);
    require(scratch->used == used, "scratch was not given back");
    sl_buf_printf(out, "{\"code\": \"%s\", \"error\": ", sl_status_name(st));
    sl_buf_add_json_string(out, err.message, st ? strlen(err.message) : 0);
    sl_buf_add_char(out, '}');
}

int main(void) {
    char *line = room(LINE_MAX_BYTES);
    void *tree_block = room(TREE_BYTES), *scratch_block = room(SCRATCH_BYTES);
    sl_buf out;
    sl_buf_init(&out);
    while (fgets(line, LINE_MAX_BYTES, stdin)) {
        sl_arena tree, scratch;
        sl_json *question = NULL;
        sl_error err;
        sl_arena_init(&tree, "tree", tree_block, TREE_BYTES);
        sl_arena_init(&scratch, "scratch", scratch_block, SCRATCH_BYTES);
        require(!sl_json_parse(line, strlen(line), &tree, &question, &err), "a line is no JSON");
        const sl_json *schema = sl_json_member(question, "schema");
        const sl_json *instances = sl_json_member(question, "instances");
        require(schema && instances, "a question lacks its parts");
        sl_buf_clear(&out);
        sl_buf_add_char(&out, '[');
        answer(schema, NULL, &scratch, &out);
        for (const sl_json *i = instances->child; i; i = i->next) {
            sl_buf_add_text(&out, ", ");
            answer(schema, i, &scratch, &out);
        }
        sl_buf_add_text(&out, "]\n");
        require(!out.failed, "out of memory");
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
    }
    sl_buf_deinit(&out);
    free(line);
    free(tree_block);
    free(scratch_block);
    return 0;
}
