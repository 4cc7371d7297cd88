/* JSON Schemas: bytes up to the first NUL are a schema, what follows chooses the tokens of a walk.
 * Compiling twice must give the same, also in an arena that may be too small on the way; on the walk
 * something is always allowed, what the mask allows is accepted, and what is complete is JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "constrain/constrain.h"

#define ARENA_BYTES (1u << 20)
#define SCRATCH_BYTES (2u << 20)
#define OUT_BYTES (1u << 12)

static const char *const words[] = {"\":", "\",\"", "{\"", "}}",  "true", "null",
                                    "é",   "[[",    "],",  "\\u", "00",   "日"};
enum { N_WORDS = sizeof(words) / sizeof(words[0]), END = 256 + N_WORDS, N_VOCAB };

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    const char *single = ctx;
    *bytes = id < 256 ? single + id : id < END ? words[id - 256] : "";
    *len = id < 256 ? 1 : strlen(*bytes);
    return id < END;
}

static char single[256], vocab_block[1 << 17], work_block[1 << 19];
static sl_vocab *vocab;
static sl_constraint_work *work;

static void prepare(char *scratch_block) {
    static const uint32_t ends[] = {END};
    const sl_vocab_source source = {
        .n_vocab = N_VOCAB, .token_bytes = token_bytes, .ctx = single, .end_ids = ends, .n_end = 1};
    sl_arena arena, scratch;
    sl_error err;
    for (unsigned b = 0; b < 256; b++)
        single[b] = (char)b;
    sl_arena_init(&arena, "fuzz", vocab_block, sizeof(vocab_block));
    sl_arena_init(&scratch, "fuzz", scratch_block, SCRATCH_BYTES);
    require(sl_vocab_build(&source, &arena, &scratch, &vocab, &err) == SL_OK);
    sl_arena_init(&arena, "fuzz", work_block, sizeof(work_block));
    require(sl_constraint_work_init(vocab, 8, &arena, &work, &err) == SL_OK);
}

static void walk(const sl_constraint *c, const uint8_t *choices, size_t n) {
    static char text[OUT_BYTES], tree[OUT_BYTES * 100];
    sl_constraint_state s;
    sl_error err;
    size_t len = 0;
    sl_constraint_begin(c, &s);
    for (size_t i = 0; len + 8 < OUT_BYTES; i++) {
        uint32_t bits[SL_CONSTRAINT_MASK_WORDS(N_VOCAB)], n_allowed = 0;
        sl_constraint_mask(c, &s, work, bits);
        for (uint32_t id = 0; id < N_VOCAB; id++)
            n_allowed += bits[id / 32] >> id % 32 & 1;
        require(n_allowed > 0);
        require((bits[END / 32] >> END % 32 & 1) == sl_constraint_is_complete(c, &s));
        if (sl_constraint_is_complete(c, &s)) {
            sl_arena arena;
            sl_json *root;
            sl_arena_init(&arena, "fuzz", tree, sizeof(tree));
            require(sl_json_parse(text, len, &arena, &root, &err) == SL_OK);
        }
        if (i >= n)
            return;
        uint32_t pick = choices[i] % n_allowed, id = 0;
        for (;; id++)
            if (bits[id / 32] >> id % 32 & 1 && pick-- == 0)
                break;
        if (id == END)
            return;
        const char *bytes;
        size_t n_bytes;
        require(token_bytes(single, id, &bytes, &n_bytes));
        memcpy(text + len, bytes, n_bytes);
        len += n_bytes;
        require(sl_constraint_allows(c, &s, work, id));
        require(sl_constraint_accept(c, &s, work, id, &err) == SL_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char block[ARENA_BYTES], small_block[ARENA_BYTES], scratch_block[SCRATCH_BYTES];
    size_t len = 0;
    while (len < size && data[len])
        len++;
    if (!vocab)
        prepare(scratch_block);
    sl_arena arena, small, scratch;
    sl_constraint *c, *other;
    sl_error err;
    sl_constraint_limits limits = sl_constraint_limits_default();
    limits.n_steps_max = 2000000;
    limits.closed_objects = size & 1;
    char *text = malloc(len + !len); // a copy of its own, so that reading past the schema is seen
    require(text != NULL);
    memcpy(text, data, len);
    sl_arena_init(&arena, "fuzz", block, sizeof(block));
    sl_arena_init(&scratch, "fuzz", scratch_block, sizeof(scratch_block));
    sl_status st =
        sl_constraint_compile_text(text, len, vocab, &limits, &arena, &scratch, &c, &err);
    require((st == SL_OK) == (c != NULL) && (st == SL_OK || err.status == st));
    require(scratch.used == 0 && (st == SL_OK || arena.used == 0));
    sl_arena_init(&small, "fuzz", small_block, (size * 2654435761u) % (arena.used + 64));
    sl_status again =
        sl_constraint_compile_text(text, len, vocab, &limits, &small, &scratch, &other, &err);
    require(again == st || again == SL_ERR_MEMORY);
    free(text);
    if (st == SL_OK)
        walk(c, data + len, size - len);
    return 0;
}
