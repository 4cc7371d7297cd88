/* Chat templates: bytes up to the first NUL are a template, what follows are the variables (JSON; a
 * conversation where that is missing). Rendering twice must give the same. Limits are low, so that
 * templates that loop end soon. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/template.h"

#define TREE_BYTES (1u << 20)
#define SCRATCH_BYTES (1u << 20)
#define OUT_BYTES (1u << 16)

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
    "[{\"type\": \"text\", \"text\": \"\\u00e4 b\"}]}, {\"role\": \"assistant\", \"content\": "
    "null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [2.5, "
    "true]}}}]}, {\"role\": \"tool\", \"content\": \"<x>\"}], \"tools\": [{\"name\": \"f\"}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"n\": 3, \"s\": \"Hello\"}";

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char tree[TREE_BYTES], scratch[SCRATCH_BYTES], out_a[OUT_BYTES], out_b[OUT_BYTES];
    size_t len = 0;
    while (len < size && data[len])
        len++;
    sl_arena arena, work;
    sl_template *tpl;
    sl_json *vars;
    sl_error err;
    sl_arena_init(&arena, "fuzz", tree, sizeof(tree));
    sl_arena_init(&work, "fuzz", scratch, sizeof(scratch));
    // A copy of its own, so that reading past the template is seen.
    char *src = malloc(len + !len);
    require(src != NULL);
    memcpy(src, data, len);
    // First in an arena that may be too small anywhere on the way.
    sl_arena_init(&work, "fuzz", scratch, len + (size * 2654435761u) % (8 * len + 64));
    sl_status small = sl_template_parse(src, len, &work, &tpl, &err);
    sl_arena_init(&work, "fuzz", scratch, sizeof(scratch));
    sl_status st = sl_template_parse(src, len, &arena, &tpl, &err);
    require(small == st || small == SL_ERR_MEMORY);
    free(src);
    require((st == SL_OK) == (tpl != NULL));
    require(st == SL_OK || err.status == st);
    if (st)
        return 0;
    const char *json = len + 1 < size ? (const char *)data + len + 1 : conversation;
    size_t json_len = len + 1 < size ? size - len - 1 : sizeof(conversation) - 1;
    if (sl_json_parse(json, json_len, &arena, &vars, &err) != SL_OK)
        return 0;
    sl_template_limits limits = sl_template_limits_default(1750861384);
    limits.steps_max = 100000;
    sl_buf a, b;
    sl_buf_init_fixed(&a, out_a, sizeof(out_a));
    sl_buf_init_fixed(&b, out_b, sizeof(out_b));
    st = sl_template_render(tpl, vars, &limits, &work, &a, &err);
    require(work.used == 0);
    require(st == sl_template_render(tpl, vars, &limits, &work, &b, &err));
    require(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    return 0;
}
