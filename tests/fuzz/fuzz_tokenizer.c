/* The tokenizer over arbitrary input. The first byte chooses:
 *   'J'  the rest is a tokenizer.json, which is compiled;
 *   'C'  the rest, up to a zero byte, is a tokenizer.json, then comes a tokenizer_config.json;
 *   'P'  the rest, up to a zero byte, is an expression of pre-tokenization, then comes a text;
 *   else the rest are tables, which are opened as they are.
 * Tables that open must encode any text: within bounds, in bounded time, and as plain text into
 * tokens that spell the normalized text. An expression that compiles cuts any text, and how much of it is
 * in sight changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

#define TEXT_MAX 512

static void require(bool condition) {
    if (!condition)
        abort();
}

// What plain encoding must spell.
static size_t normalized(const sl_tok *tok, const char *text, size_t len, uint8_t *out,
                         size_t cap) {
    static sl_uni_marked segment[4 * TEXT_MAX], scratch[4 * TEXT_MAX];
    sl_normalizer z = {.at = (const uint8_t *)text,
                       .end = (const uint8_t *)text + len,
                       .segment = segment,
                       .scratch = scratch,
                       .segment_cap = SL_COUNT(segment),
                       .nfc = tok->flags & SL__TOK_NFC,
                       .spaces = tok->flags & SL__TOK_CHARS};
    size_t n;
    require(sl_normalizer_fill(&z, out + 1, cap - 1, &n, NULL) == SL_OK && z.at == z.end);
    bool space = (tok->flags & SL__TOK_SPACE_RAW) ||
                 ((tok->flags & (SL__TOK_SPACE_PIECE | SL__TOK_SPACE_FIRST)) && out[1] != ' ');
    if (n > 0 && space) {
        out[0] = ' ';
        return n + 1;
    }
    memmove(out, out + 1, n);
    return n;
}

static void encode(const sl_tok *tok, const char *text, size_t len) {
    static uint32_t ids[4 * TEXT_MAX];
    static uint8_t spelled[4 * TEXT_MAX], expected[4 * TEXT_MAX];
    size_t work_bytes = sl_tok_workspace_bytes(0), n, spelled_len = 0;
    void *block = malloc(work_bytes);
    sl_arena arena;
    sl_error err;
    require(block != NULL);
    sl_arena_init(&arena, "fuzz", block, work_bytes);
    require(sl_tok_encode(tok, text, len, SL_TOK_TEMPLATE, ids, SL_COUNT(ids), &n, &arena, &err) ==
            SL_OK);
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t bytes_len;
        require(ids[i] < tok->n_vocab);
        (void)sl_tok_decode(tok, ids[i], i == 0, &bytes, &bytes_len);
    }
    require(sl_tok_encode(tok, text, len, SL_TOK_PLAIN, ids, SL_COUNT(ids), &n, &arena, &err) ==
            SL_OK);
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t bytes_len;
        require(sl_tok_token_bytes(tok, ids[i], &bytes, &bytes_len));
        require(bytes_len <= sizeof(spelled) - spelled_len);
        memcpy(spelled + spelled_len, bytes, bytes_len);
        spelled_len += bytes_len;
    }
    size_t expected_len = normalized(tok, text, len, expected, sizeof(expected));
    require(spelled_len == expected_len && memcmp(spelled, expected, expected_len) == 0);
    free(block);
}

static void use(const void *blob, size_t size, bool must_open, const char *text, size_t len) {
    static const char words[] =
        "Hello  world's <|im_end|><tag> 123\r\n\tcaf\xc3\xa9 e\xcc\x81 \xf0\x9f\x98\x80\xff ab abc";
    sl_tok tok;
    sl_error err;
    uint32_t id;
    sl_status st = sl_tok_open(blob, size, &tok, &err);
    require(st == SL_OK || (!must_open && err.message[0] != '\0'));
    if (st)
        return;
    encode(&tok, words, sizeof(words) - 1);
    encode(&tok, text, SL_MIN(len, TEXT_MAX));
    (void)sl_tok_find(&tok, text, SL_MIN(len, 8), &id);
    for (id = 0; id <= tok.n_vocab; id++)
        (void)sl_tok_is_special(&tok, id);
}

static void cut(const char *regex, size_t regex_len, const uint8_t *text, size_t len) {
    sl_pretok pretok = {0};
    sl_pretok_cursor whole = {0}, cursor = {0};
    sl_error err;
    if (sl_pretok_add(&pretok, regex, regex_len, &err)) {
        require(err.status == SL_ERR_UNSUPPORTED && err.message[0] != '\0');
        return;
    }
    // Twice the same step, the second time as the second of two.
    if (sl_pretok_add(&pretok, regex, regex_len, &err) ||
        !sl_utf8_is_valid((const char *)text, len))
        return;
    for (size_t at = 0, sight = 0, n; at < len; at += n) {
        size_t expected = sl_pretok_next(&pretok, &whole, text, at, len, true);
        require(expected > 0 && expected <= len - at);
        while (at == sight ||
               (n = sl_pretok_next(&pretok, &cursor, text, at, sight, sight == len)) == 0) {
            require(sight < len);
            do
                sight++;
            while (sight < len && (text[sight] & 0xc0) == 0x80);
        }
        require(n == expected);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    char kind = (char)*data++;
    size--;
    // The last bytes serve as text as well.
    const char *text = (const char *)data + (size - SL_MIN(size, TEXT_MAX));
    size_t text_len = SL_MIN(size, TEXT_MAX);
    if (kind == 'P') {
        const char *zero = memchr(data, 0, size);
        size_t len = zero ? (size_t)(zero - (const char *)data) : size;
        size_t rest = zero ? size - len - 1 : 0;
        cut((const char *)data, len, data + size - rest, SL_MIN(rest, TEXT_MAX));
        return 0;
    }
    if (kind == 'J' || kind == 'C') {
        const char *json = (const char *)data, *config = NULL;
        size_t len = size, config_len = 0;
        const char *zero = kind == 'C' ? memchr(json, 0, len) : NULL;
        if (zero) {
            config = zero + 1;
            config_len = (size_t)(json + len - config);
            len = (size_t)(zero - json);
        }
        sl_buf blob;
        sl_error err;
        sl_buf_init(&blob);
        sl_status st = sl_tok_compile(json, len, config, config_len, &blob, &err);
        require(st == SL_OK || (blob.len == 0 && err.status == st && err.message[0] != '\0'));
        if (!st)
            use(blob.data, blob.len, true, text, text_len);
        sl_buf_deinit(&blob);
        return 0;
    }
    void *blob = malloc(size ? size : 1); // aligned, and with its end guarded
    require(blob != NULL);
    memcpy(blob, data, size);
    use(blob, size, false, text, text_len);
    free(blob);
    return 0;
}
