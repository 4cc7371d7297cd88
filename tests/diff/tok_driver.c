/* Answers questions about a tokenizer in bulk, so that a test in another language can compare.
 *
 *   tok_driver TOKENIZER.JSON [TOKENIZER_CONFIG.JSON] < questions > answers
 *
 * A question is uint32 kind, uint32 length, the text; an answer is uint32 status, uint32 n, uint32[n]:
 *   0  ids of the text            1  ids of the text as plain text
 *   2  code points of its NFC     3  the bytes of the tokens whose ids (uint32 each) are the text
 *   4  as 0, in the smallest workspace, so that the window over the text moves often
 *   5  as 0, with the tokens of the template
 *   6  the bytes of the text that a stream of the ids gives; 7: without special tokens
 * Numbers are little-endian. The first answer, unasked, is the size of the tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define TEXT_MAX ((size_t)16 << 20)
#define PIECE_MAX ((size_t)1 << 20)

static void answer(sl_status status, const uint32_t *values, size_t n) {
    uint32_t head[2] = {status, (uint32_t)n};
    fwrite(head, sizeof(head), 1, stdout);
    fwrite(values, sizeof(*values), n, stdout);
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *text = malloc(TEXT_MAX * 4);
    if (!f || !text) {
        fprintf(stderr, "tok_driver: cannot read %s\n", path);
        exit(1);
    }
    *len = fread(text, 1, TEXT_MAX * 4, f);
    fclose(f);
    return text;
}

static size_t normalize(const char *text, size_t len, uint32_t *out, uint8_t *room) {
    static sl_uni_marked segment[1 << 20], scratch[1 << 20];
    sl_normalizer z = {.at = (const uint8_t *)text,
                       .end = (const uint8_t *)text + len,
                       .segment = segment,
                       .scratch = scratch,
                       .segment_cap = SL_COUNT(segment),
                       .nfc = true};
    size_t n, count = 0;
    if (sl_normalizer_fill(&z, room, 3 * TEXT_MAX, &n, NULL))
        return 0;
    for (uint8_t *p = room; p < room + n; count++)
        p += sl_utf8_decode_valid(p, &out[count]);
    return count;
}

static size_t token_bytes(const sl_tok *tok, const char *ids, size_t len, uint32_t *out) {
    size_t count = 0;
    for (size_t i = 0; i + 4 <= len; i += 4) {
        uint32_t id;
        const char *bytes;
        size_t n;
        memcpy(&id, ids + i, 4);
        sl_tok_token_bytes(tok, id, &bytes, &n);
        for (size_t k = 0; k < n; k++)
            out[count++] = (uint8_t)bytes[k];
    }
    return count;
}

static size_t stream_text(const sl_tok *tok, const char *ids, size_t len, bool special,
                          uint32_t *out) {
    sl_utf8_stream stream;
    char text[SL_UTF8_FEED_BYTES(SL_TOK_TOKEN_BYTES_MAX)];
    size_t count = 0;
    bool at_start = true;
    sl_utf8_stream_init(&stream);
    for (size_t i = 0; i <= len; i += 4) {
        uint32_t id;
        const char *bytes;
        size_t n = 0;
        if (i + 4 > len) {
            n = sl_utf8_flush(&stream, text);
        } else {
            memcpy(&id, ids + i, 4);
            if ((!special && sl_tok_is_special(tok, id)) ||
                !sl_tok_decode(tok, id, at_start, &bytes, &n))
                continue;
            at_start = false;
            n = sl_utf8_feed(&stream, bytes, n, text);
        }
        for (size_t k = 0; k < n; k++)
            out[count++] = (uint8_t)text[k];
    }
    return count;
}

int main(int argc, char **argv) {
    sl_error err;
    sl_buf blob;
    sl_tok tok;
    size_t len, config_len = 0;
    if (argc < 2)
        return 2;
    char *json = read_file(argv[1], &len);
    char *config = argc > 2 ? read_file(argv[2], &config_len) : NULL;
    sl_buf_init(&blob);
    if (sl_tok_compile(json, len, config, config_len, &blob, &err) ||
        sl_tok_open(blob.data, blob.len, &tok, &err)) {
        fprintf(stderr, "tok_driver: %s\n", err.message);
        return 1;
    }
    size_t work = sl_tok_workspace_bytes(PIECE_MAX);
    void *block = malloc(work);
    char *text = malloc(TEXT_MAX);
    uint32_t *values = malloc(TEXT_MAX * sizeof(*values));
    uint8_t *room = malloc(3 * TEXT_MAX);
    uint32_t size = (uint32_t)blob.len;
    if (!block || !text || !values || !room)
        return 1;
    answer(SL_OK, &size, 1);
    uint32_t head[2];
    while (fread(head, sizeof(head), 1, stdin) == 1) {
        if (head[1] > TEXT_MAX || fread(text, 1, head[1], stdin) != head[1])
            return 1;
        sl_arena arena;
        sl_arena_init(&arena, "workspace", block, head[0] == 4 ? sl_tok_workspace_bytes(0) : work);
        size_t n = 0;
        sl_status st = SL_OK;
        if (head[0] == 2)
            n = normalize(text, head[1], values, room);
        else if (head[0] == 3)
            n = token_bytes(&tok, text, head[1], values);
        else if (head[0] == 6 || head[0] == 7)
            n = stream_text(&tok, text, head[1], head[0] == 6, values);
        else
            st = sl_tok_encode(&tok, text, head[1],
                               head[0] == 1   ? SL_TOK_PLAIN
                               : head[0] == 5 ? SL_TOK_TEMPLATE
                                              : 0,
                               values, TEXT_MAX, &n, &arena, &err);
        answer(st, values, n);
    }
    free(json);
    free(config);
    free(block);
    free(text);
    free(values);
    free(room);
    sl_buf_deinit(&blob);
    return 0;
}
