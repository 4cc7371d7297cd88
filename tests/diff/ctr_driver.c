/* Writes answers under a JSON Schema and judges given ones, so that a test in another language can
 * compare with a validator.
 *
 *   ctr_driver TOKENIZER.JSON      one question a line on standard input, one answer a line
 *
 * A question is JSON: {"schema": ..., "seed": 1, "n": 3, "texts": ["...", ...], "closed": false}. The
 * answer is {"error": "...", "code": "SL_ERR_..."}, or {"answers": [text or null, ...], "accepted":
 * [true, ...]}: n walks through the tokens that are allowed, drawn uniformly with a growing wish to
 * come to an end (null: not ended after many tokens), and for each text whether it is accepted,
 * as bytes and as the tokens the tokenizer makes of it. On the way the mask is held against
 * sl_constraint_allows() and against one computed without the memory of earlier ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/constrain.h"
#include "text/tokenizer.h"

#define LINE_MAX_BYTES (4u << 20)
#define ARENA_BYTES (16u << 20)
#define TOKENS_MAX 3000u

typedef struct bench {
    sl_tok tok;
    sl_vocab *vocab;
    sl_constraint_work *work, *plain;
    uint32_t *mask, *other;
    uint64_t seed;
} bench;

static void require(bool condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "ctr_driver: %s\n", what);
        exit(1);
    }
}

static void *room(size_t bytes) {
    void *p = calloc(1, bytes);
    require(p != NULL, "out of memory");
    return p;
}

static void new_arena(sl_arena *arena, size_t bytes) {
    sl_arena_init(arena, "test", room(bytes), bytes);
}

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    const sl_tok *tok = ctx;
    return !sl_tok_is_special(tok, id) && sl_tok_token_bytes(tok, id, bytes, len);
}

static uint32_t draw(bench *b, uint32_t n) { // xorshift64*
    b->seed ^= b->seed >> 12;
    b->seed ^= b->seed << 25;
    b->seed ^= b->seed >> 27;
    return (uint32_t)((b->seed * 0x2545f4914f6cdd1du >> 32) % n);
}

static bool has(const uint32_t *mask, uint32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

static void check_mask(bench *b, const sl_constraint *c, const sl_constraint_state *s) {
    size_t n_words = SL_CONSTRAINT_MASK_WORDS(b->tok.n_vocab);
    sl_constraint_mask(c, s, b->plain, b->other);
    require(memcmp(b->mask, b->other, n_words * 4) == 0, "the memory of masks changed one");
    for (int i = 0; i < 40; i++) {
        uint32_t id = draw(b, b->tok.n_vocab);
        require(has(b->mask, id) == sl_constraint_allows(c, s, b->plain, id),
                "mask and sl_constraint_allows() differ");
    }
}

// A token of the mask, drawn uniformly; its number among n_allowed.
static uint32_t draw_token(bench *b) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < b->tok.n_vocab; id++)
        n += has(b->mask, id);
    require(n > 0, "no token is allowed");
    uint32_t pick = draw(b, n);
    for (uint32_t id = 0;; id++)
        if (has(b->mask, id) && pick-- == 0)
            return id;
}

// One of the tokens that may bring the answer nearer to its end; in a string that is the quote alone.
static bool draw_closing(bench *b, uint32_t end, uint32_t *id) {
    static const char *const texts[] = {"}", "]", "\""};
    *id = end;
    if (has(b->mask, end))
        return true;
    for (uint32_t i = 0, first = draw(b, 3); i < 3; i++) {
        const char *text = texts[(first + i) % 3];
        if (sl_tok_find(&b->tok, text, 1, id) && has(b->mask, *id))
            return true;
    }
    return false;
}

/* Texts that bring values and patterns to an end which a random walk would hardly find: appended when
 * one fits, like text that was not sampled. */
static bool append_hint(bench *b, const sl_constraint *c, sl_constraint_state *s, sl_buf *out) {
    static const char *const hints[] = {"null", "abc", "baz", "Az", ".de", "x@y.de"};
    sl_error err;
    const char *hint = hints[draw(b, SL_COUNT(hints))];
    if (sl_constraint_accept_bytes(c, s, b->work, hint, strlen(hint), &err))
        return false;
    sl_buf_add_text(out, hint);
    return true;
}

static bool walk(bench *b, const sl_constraint *c, uint32_t end, sl_buf *out) {
    sl_constraint_state s;
    sl_error err;
    uint32_t patience = 1 + draw(b, 90);
    sl_constraint_begin(c, &s);
    for (uint32_t n = 0; n < TOKENS_MAX; n++) {
        uint32_t id;
        sl_constraint_mask(c, &s, b->work, b->mask);
        if (n % 4 == 0)
            check_mask(b, c, &s);
        require(has(b->mask, end) == sl_constraint_is_complete(c, &s),
                "end and completeness differ");
        if (n <= patience) {
            id = draw_token(b);
        } else if (!has(b->mask, end) && draw(b, 2) && append_hint(b, c, &s, out)) {
            continue;
        } else if (!draw_closing(b, end, &id)) {
            id = draw_token(b);
        }
        if (id == end)
            return true;
        const char *bytes;
        size_t len;
        require(sl_tok_token_bytes(&b->tok, id, &bytes, &len), "an allowed token has no bytes");
        sl_buf_add(out, bytes, len);
        require(sl_constraint_accept(c, &s, b->work, id, &err) == SL_OK,
                "an allowed token is not accepted");
    }
    return false;
}

static bool is_accepted(bench *b, const sl_constraint *c, const char *text, size_t len) {
    static uint32_t ids[65536];
    sl_constraint_state s, t;
    sl_error err;
    sl_arena work;
    size_t n = 0;
    sl_constraint_begin(c, &s);
    sl_constraint_begin(c, &t);
    bool ok = !sl_constraint_accept_bytes(c, &s, b->work, text, len, &err) &&
              sl_constraint_is_complete(c, &s);
    new_arena(&work, sl_tok_workspace_bytes(1u << 16));
    require(!sl_tok_encode(&b->tok, text, len, SL_TOK_PLAIN, ids, 65536, &n, &work, &err),
            "a text cannot be encoded");
    free(work.base);
    bool ok_tokens = true;
    for (size_t i = 0; i < n && ok_tokens; i++) {
        sl_constraint_mask(c, &t, b->work, b->mask);
        ok_tokens = has(b->mask, ids[i]);
        require(ok_tokens == !sl_constraint_accept(c, &t, b->work, ids[i], &err),
                "mask and sl_constraint_accept() differ");
    }
    ok_tokens = ok_tokens && sl_constraint_is_complete(c, &t);
    require(ok == ok_tokens, "a text is judged differently as bytes and as tokens");
    return ok;
}

static void answer(bench *b, const sl_json *question, uint32_t end, sl_buf *out) {
    sl_arena arena, scratch;
    sl_error err;
    sl_constraint *c;
    sl_constraint_limits limits = sl_constraint_limits_default();
    uint64_t n = 0, seed = 1;
    new_arena(&arena, ARENA_BYTES);
    new_arena(&scratch, ARENA_BYTES);
    (void)sl_json_uint64(sl_json_member(question, "n"), &n);
    (void)sl_json_uint64(sl_json_member(question, "seed"), &seed);
    limits.closed_objects = sl_json_is(sl_json_member(question, "closed"), SL_JSON_TRUE);
    b->seed = seed * 0x9e3779b97f4a7c15u + 1;
    const sl_json *schema = sl_json_member(question, "schema");
    require(schema != NULL, "a question without a schema");
    sl_status st = sl_constraint_compile(schema, b->vocab, &limits, &arena, &scratch, &c, &err);
    if (st) {
        sl_buf_printf(out, "{\"code\": \"%s\", \"error\": ", sl_status_name(st));
        sl_buf_add_json_string(out, err.message, strlen(err.message));
        sl_buf_add_text(out, "}\n");
    } else {
        sl_buf_add_text(out, "{\"answers\": [");
        for (uint64_t i = 0; i < n; i++) {
            sl_buf text;
            sl_buf_init(&text);
            sl_buf_add_text(out, i ? ", " : "");
            if (walk(b, c, end, &text))
                sl_buf_add_json_string(out, text.data, text.len);
            else
                sl_buf_add_text(out, "null");
            sl_buf_deinit(&text);
        }
        sl_buf_add_text(out, "], \"accepted\": [");
        const sl_json *texts = sl_json_member(question, "texts");
        for (const sl_json *t = texts ? texts->child : NULL; t; t = t->next) {
            sl_buf_add_text(out, t == texts->child ? "" : ", ");
            sl_buf_add_text(out, is_accepted(b, c, t->text, t->text_len) ? "true" : "false");
        }
        sl_buf_printf(out, "], \"bytes\": %zu}\n", arena.used);
    }
    free(arena.base);
    free(scratch.base);
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *text = room(64u << 20);
    require(f != NULL, "cannot read the tokenizer");
    *len = fread(text, 1, 64u << 20, f);
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    bench b = {0};
    sl_buf blob, out;
    sl_error err;
    sl_arena arena, scratch;
    size_t len;
    uint32_t end;
    require(argc == 2, "usage: ctr_driver TOKENIZER.JSON");
    char *json = read_file(argv[1], &len);
    sl_buf_init(&blob);
    require(!sl_tok_compile(json, len, NULL, 0, &blob, &err), "the tokenizer does not compile");
    require(!sl_tok_open(blob.data, blob.len, &b.tok, &err), "the tokenizer does not open");
    require(sl_tok_find(&b.tok, "<|im_end|>", 10, &end), "the tokenizer has no <|im_end|>");
    free(json);

    sl_vocab_source source = {.n_vocab = b.tok.n_vocab,
                              .token_bytes = token_bytes,
                              .ctx = &b.tok,
                              .end_ids = &end,
                              .n_end = 1};
    uint64_t bytes;
    new_arena(&scratch, (size_t)b.tok.n_vocab * 8 + 64);
    if (sl_vocab_measure(&source, &scratch, &bytes, &err)) {
        fprintf(stderr, "ctr_driver: %s\n", err.message);
        return 1;
    }
    new_arena(&arena, bytes);
    require(!sl_vocab_build(&source, &arena, &scratch, &b.vocab, &err), "the trie does not fit");
    sl_arena works;
    new_arena(&works, 2 * sl_constraint_work_bytes(sl_vocab_size(b.vocab), 8));
    require(!sl_constraint_work_init(b.vocab, 8, &works, &b.work, &err), "no room");
    require(!sl_constraint_work_init(b.vocab, 0, &works, &b.plain, &err), "no room");
    b.mask = room(SL_CONSTRAINT_MASK_WORDS(b.tok.n_vocab) * 4);
    b.other = room(SL_CONSTRAINT_MASK_WORDS(b.tok.n_vocab) * 4);

    char *line = room(LINE_MAX_BYTES);
    sl_buf_init(&out);
    while (fgets(line, LINE_MAX_BYTES, stdin)) {
        sl_json *question;
        sl_arena tree;
        new_arena(&tree, ARENA_BYTES);
        require(!sl_json_parse(line, strlen(line), &tree, &question, &err), "a line is no JSON");
        sl_buf_clear(&out);
        answer(&b, question, end, &out);
        require(!out.failed, "out of memory");
        fwrite(out.data, 1, out.len, stdout);
        fflush(stdout);
        free(tree.base);
    }
    free(scratch.base);
    free(arena.base);
    free(works.base);
    free(b.mask);
    free(b.other);
    free(line);
    sl_buf_deinit(&blob);
    sl_buf_deinit(&out);
    return 0;
}
