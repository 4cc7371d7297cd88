/* Answers: the first byte chooses the format, the buffers' size and where the text is cut; the rest is
 * what the model says. All of it must come out again, framing newlines aside, and the same whether it
 * is fed whole or in pieces. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/answer.h"

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

// The events as one line of text.
typedef struct heard {
    sl_buf out;
    int last;
} heard;

static void hear(void *ctx, const sl_answer_event *event) {
    heard *h = ctx;
    int kind = 1 + (int)event->kind + 4 * event->oversized;
    if (kind != h->last || event->kind == SL_ANSWER_TOOL_CALL)
        sl_buf_add_char(&h->out, (char)kind);
    h->last = kind;
    require(event->len > 0);
    sl_buf_add(&h->out, event->text, event->len);
    if (event->kind == SL_ANSWER_TOOL_CALL) {
        sl_json_reader r;
        sl_json_event e;
        sl_json_reader_init(&r, event->text, event->len);
        while ((e = sl_json_next(&r, NULL)) != SL_JSON_EV_END)
            require(e != SL_JSON_EV_ERROR);
        require(event->arguments_len >= 2 && event->arguments[0] == '{');
    }
}

static void run(heard *h, uint8_t how, const char *text, size_t len, size_t step) {
    static const char *const names[] = {"plain", "think", "qwen-xml", "qwen-json"};
    static const char *const other_names[] = {"glm", "harmony", "deepseek", "harmony"};
    static char call[512], json[1024];
    sl_answer answer;
    sl_buf_init(&h->out);
    h->last = 0;
    const char *name = how & 64 ? other_names[how & 3] : names[how & 3];
    sl_answer_init(&answer, sl_answer_format_find(name), how & 4, NULL, call,
                   how & 8 ? 24 : sizeof(call), json, sizeof(json), hear, h);
    for (size_t i = 0; i < len; i += step)
        sl_answer_feed(&answer, text + i, SL_MIN(step, len - i));
    sl_answer_end(&answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = size - 1;
    // The parser is given whole characters: what is not UTF-8 is left out.
    sl_json_reader reader;
    char *quoted = malloc(len + 2);
    require(quoted != NULL);
    quoted[0] = quoted[len + 1] = '"';
    for (size_t i = 0; i < len; i++)
        quoted[i + 1] =
            (uint8_t)text[i] < 0x20 || text[i] == '"' || text[i] == '\\' ? ' ' : text[i];
    sl_json_reader_init(&reader, quoted, len + 2);
    bool valid = sl_json_next(&reader, NULL) == SL_JSON_EV_STRING;
    free(quoted);
    if (!valid)
        return 0;
    heard whole, cut;
    run(&whole, data[0], text, len, len);
    run(&cut, data[0], text, len, 1 + (data[0] >> 4));
    require(whole.out.len == cut.out.len && memcmp(whole.out.data, cut.out.data, cut.out.len) == 0);
    sl_buf_deinit(&whole.out);
    sl_buf_deinit(&cut.out);
    return 0;
}
