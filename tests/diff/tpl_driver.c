/* Renders many templates for tests/diff/test_template_jinja.py: reads requests from stdin, one JSON
 * object {"template": ..., "vars": {...}, "now": seconds} on each line, and answers each with one
 * line: {"out": ...}, or {"status": ..., "error": ...}. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "text/template.h"

#define LINE_MAX_BYTES (16u << 20)
#define ARENA_BYTES (64u << 20)

static void answer(const char *line, size_t len, sl_arena *arena) {
    sl_error err;
    sl_json *request;
    sl_template *tpl;
    sl_buf out;
    sl_buf_init(&out);
    sl_arena_reset(arena, 0);
    sl_status st = sl_json_parse(line, len, arena, &request, &err);
    if (!st) {
        const sl_json *source = sl_json_member(request, "template");
        int64_t now = 0;
        (void)sl_json_int64(sl_json_member(request, "now"), &now);
        sl_template_limits limits = sl_template_limits_default(now);
        st = sl_template_parse(source->text, source->text_len, arena, &tpl, &err);
        if (!st)
            st = sl_template_render(tpl, sl_json_member(request, "vars"), &limits, arena, &out,
                                    &err);
    }
    sl_buf reply;
    sl_buf_init(&reply);
    if (st) {
        sl_buf_printf(&reply, "{\"status\": \"%s\", \"error\": ", sl_status_name(st));
        sl_buf_add_json_string(&reply, err.message, strlen(err.message));
    } else {
        sl_buf_add_text(&reply, "{\"out\": ");
        sl_buf_add_json_string(&reply, out.data, out.len);
    }
    printf("%s}\n", reply.data);
    sl_buf_deinit(&reply);
    sl_buf_deinit(&out);
}

int main(void) {
    static char line[LINE_MAX_BYTES], block[ARENA_BYTES];
    sl_arena arena;
    sl_arena_init(&arena, "template test", block, sizeof(block));
    while (fgets(line, sizeof(line), stdin))
        answer(line, strcspn(line, "\n"), &arena);
    return 0;
}
