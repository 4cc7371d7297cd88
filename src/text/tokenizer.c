/* Opening a blob and asking it about tokens, see tokenizer.h. The checks here are what lets the rest
 * of the tokenizer follow offsets and ids without looking. */
#include "text/tokenizer.h"

#include "text/tokenizer_internal.h"
#include "text/utf8.h"

static sl_status damaged(sl_error *err, const char *what) {
    return sl_fail(err, SL_ERR_CORRUPT, "tokenizer tables: %s", what);
}

static sl_status check_header(const sl__tok_header *h, size_t size, sl_error *err) {
    if (memcmp(h->magic, SL__TOK_MAGIC, sizeof(h->magic)) != 0)
        return damaged(err, "these are no tokenizer tables");
    if (h->version != SL__TOK_VERSION)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "tokenizer tables have format version %u, this build reads version %u; "
                       "convert the model again",
                       h->version, SL__TOK_VERSION);
    if (h->blob_bytes != size)
        return sl_fail(err, SL_ERR_CORRUPT, "tokenizer tables: %zu bytes, the header says %llu",
                       size, (unsigned long long)h->blob_bytes);
    if ((h->flags & ~(uint32_t)SL__TOK_FLAGS) != 0)
        return damaged(err, "unknown flags in the header");
    if (h->n_vocab == 0 || h->n_vocab > SL_TOK_IDS_MAX || h->n_added > h->n_vocab ||
        h->n_raw > h->n_added || h->n_slots == 0 || h->n_pairs == 0 ||
        h->n_results > SL_TOK_IDS_MAX || h->n_before > SL__TOK_AROUND_MAX ||
        h->n_after > SL__TOK_AROUND_MAX)
        return damaged(err, "a count in the header is out of range");
    return SL_OK;
}

static sl_status check_tokens(const sl__tok_header *h, sl_tok *tok, sl_error *err) {
    uint32_t previous = sl__tok_start(tok, 0);
    for (uint32_t id = 0; id < h->n_vocab; id++) {
        uint32_t next = sl__tok_start(tok, id + 1);
        if (next < previous || next - previous > SL_TOK_TOKEN_BYTES_MAX || next > h->n_bytes)
            return sl_fail(err, SL_ERR_CORRUPT, "tokenizer tables: token %u has a bad place", id);
        tok->token_bytes_max = SL_MAX(tok->token_bytes_max, next - previous);
        previous = next;
    }
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t id = tok->byte_id[b];
        if (id >= h->n_vocab || sl__tok_start(tok, id + 1) - sl__tok_start(tok, id) != 1 ||
            tok->bytes[sl__tok_start(tok, id)] != b)
            return sl_fail(err, SL_ERR_CORRUPT, "tokenizer tables: byte %u has a wrong token", b);
    }
    return SL_OK;
}

// Both hash tables need an empty entry, where a search ends, and no run of used ones too long to walk.
typedef struct run_check {
    uint32_t first, current, longest;
    bool wrapped; // an empty entry was seen
} run_check;

static void run_check_entry(run_check *c, bool empty) {
    if (!empty) {
        c->current++;
    } else {
        if (!c->wrapped)
            c->first = c->current;
        c->wrapped = true;
        c->longest = SL_MAX(c->longest, c->current);
        c->current = 0;
    }
}

static bool run_check_ok(const run_check *c) {
    return c->wrapped && c->longest <= SL__TOK_PROBES_MAX &&
           (uint64_t)c->current + c->first <= SL__TOK_PROBES_MAX;
}

static sl_status check_slots(const sl__tok_header *h, sl_tok *tok, sl_error *err) {
    run_check runs = {0};
    for (uint32_t i = 0; i < h->n_slots; i++) {
        uint32_t entry = tok->slot[i], id = entry & SL__TOK_ID_MASK;
        run_check_entry(&runs, entry == SL__TOK_NO_SLOT);
        if (entry == SL__TOK_NO_SLOT)
            continue;
        if (id >= h->n_vocab)
            return damaged(err, "the word table names a token that does not exist");
        tok->word_bytes_max =
            SL_MAX(tok->word_bytes_max, sl__tok_start(tok, id + 1) - sl__tok_start(tok, id));
    }
    return run_check_ok(&runs) ? SL_OK : damaged(err, "the word table is too full");
}

static sl_status check_pairs(const sl__tok_header *h, const sl_tok *tok, sl_error *err) {
    run_check runs = {0};
    for (uint32_t i = 0; i < h->n_pairs; i++) {
        uint64_t entry = tok->pair[i];
        run_check_entry(&runs, entry == SL__TOK_NO_PAIR);
        if (entry == SL__TOK_NO_PAIR)
            continue;
        uint32_t left = entry & SL__TOK_ID_MASK, right = (uint32_t)(entry >> 21) & SL__TOK_ID_MASK;
        uint32_t value = (uint32_t)(entry >> SL__TOK_VALUE_SHIFT);
        if (left >= h->n_vocab || right >= h->n_vocab ||
            value >= (tok->result ? h->n_results : h->n_vocab) ||
            sl__tok_result(tok, value) >= h->n_vocab)
            return damaged(err, "a merge names a token that does not exist");
        // Merging replaces two symbols in place, so the result must be exactly as long as they are.
        uint32_t result = sl__tok_result(tok, value), a = sl__tok_start(tok, left),
                 b = sl__tok_start(tok, right), r = sl__tok_start(tok, result);
        uint32_t a_len = sl__tok_start(tok, left + 1) - a,
                 b_len = sl__tok_start(tok, right + 1) - b;
        if (a_len == 0 || b_len == 0 || sl__tok_start(tok, result + 1) - r != a_len + b_len ||
            memcmp(tok->bytes + r, tok->bytes + a, a_len) != 0 ||
            memcmp(tok->bytes + r + a_len, tok->bytes + b, b_len) != 0)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "tokenizer tables: token %u is not what merging %u and %u gives", result,
                           left, right);
    }
    return run_check_ok(&runs) ? SL_OK : damaged(err, "the table of merges is too full");
}

static sl_status check_added(const sl__tok_header *h, sl_tok *tok, sl_error *err) {
    for (uint32_t i = 0; i < h->n_added; i++) {
        const sl__tok_added *a = &tok->added[i];
        if (a->id >= h->n_vocab || (a->flags & ~(uint32_t)SL__TOK_ADDED_FLAGS) != 0 ||
            a->pattern_len == 0 || a->pattern_len > SL_TOK_TOKEN_BYTES_MAX ||
            a->pattern > h->n_bytes || a->pattern_len > h->n_bytes - a->pattern ||
            !sl_utf8_is_valid((const char *)tok->bytes + a->pattern, a->pattern_len))
            return sl_fail(err, SL_ERR_CORRUPT, "tokenizer tables: added token %u is damaged", i);
        const uint8_t *pattern = tok->bytes + a->pattern;
        bool normalized = i >= h->n_raw;
        if (i > 0 && i != h->n_raw) {
            const sl__tok_added *b = a - 1;
            int order =
                memcmp(tok->bytes + b->pattern, pattern, SL_MIN(a->pattern_len, b->pattern_len));
            if (order > 0 || (order == 0 && b->pattern_len >= a->pattern_len))
                return damaged(err, "the added tokens are not in order");
        }
        tok->first[normalized][pattern[0] / 64] |= (uint64_t)1 << pattern[0] % 64;
        if (normalized) {
            tok->pattern_bytes_max = SL_MAX(tok->pattern_bytes_max, a->pattern_len);
            tok->strips_left |= (a->flags & SL__TOK_LSTRIP) != 0;
        }
    }
    return SL_OK;
}

static sl_status check_patterns(const sl__tok_header *h, sl_tok *tok, const char *pattern,
                                sl_error *err) {
    for (size_t at = 0; at < h->n_pattern_bytes;) {
        const char *end = memchr(pattern + at, 0, h->n_pattern_bytes - at);
        if (!end)
            return damaged(err, "a pattern has no end");
        sl_status st = sl_pretok_add(&tok->pretok, pattern + at, (size_t)(end - pattern) - at, err);
        if (st)
            return sl_error_context(err, SL_ERR_CORRUPT, "tokenizer tables");
        at = (size_t)(end - pattern) + 1;
    }
    for (uint32_t i = 0; i < tok->n_before + tok->n_after; i++)
        if (tok->around[i] >= h->n_vocab)
            return damaged(err, "the template names a token that does not exist");
    return SL_OK;
}

sl_status sl_tok_open(const void *blob, size_t size, sl_tok *tok, sl_error *err) {
    const sl__tok_header *h = blob;
    uint64_t at[SL__TOK_SECTIONS + 1];
    sl_status st;
    memset(tok, 0, sizeof(*tok));
    if ((uintptr_t)blob % 8 != 0)
        return sl_fail(err, SL_ERR_ARGUMENT, "tokenizer tables must lie at a multiple of 8 bytes");
    if (size < sizeof(*h))
        return damaged(err, "cut short inside the header");
    if ((st = check_header(h, size, err)))
        return st;
    sl__tok_layout(h, at);
    if (at[SL__TOK_SECTIONS] != size)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "tokenizer tables: the counts need %llu bytes, found %zu",
                       (unsigned long long)at[SL__TOK_SECTIONS], size);
    const uint8_t *start = blob;
    *tok = (sl_tok){
        .n_vocab = h->n_vocab,
        .n_added = h->n_added,
        .blob_bytes = size,
        .flags = h->flags,
        .n_before = h->n_before,
        .n_after = h->n_after,
        .n_raw = h->n_raw,
        .n_slots = h->n_slots,
        .n_pairs = h->n_pairs,
        .bytes = start + at[SL__TOK_BYTES],
        .base = (const uint32_t *)(start + at[SL__TOK_BASE]),
        .offset = (const uint16_t *)(start + at[SL__TOK_OFFSET]),
        .special = start + at[SL__TOK_SPECIAL],
        .slot = (const uint32_t *)(start + at[SL__TOK_SLOT]),
        .pair = (const uint64_t *)(start + at[SL__TOK_PAIR]),
        .result = h->n_results ? (const uint32_t *)(start + at[SL__TOK_RESULT]) : NULL,
        .byte_id = (const uint32_t *)(start + at[SL__TOK_BYTE_ID]),
        .around = (const uint32_t *)(start + at[SL__TOK_AROUND]),
        .added = (const sl__tok_added *)(start + at[SL__TOK_ADDED]),
    };
    if ((st = check_tokens(h, tok, err)) || (st = check_slots(h, tok, err)) ||
        (st = check_pairs(h, tok, err)) || (st = check_added(h, tok, err)) ||
        (st = check_patterns(h, tok, (const char *)start + at[SL__TOK_PATTERN], err)))
        memset(tok, 0, sizeof(*tok));
    return st;
}

bool sl_tok_token_bytes(const sl_tok *tok, uint32_t id, const char **bytes, size_t *len) {
    *bytes = NULL;
    *len = 0;
    if (id >= tok->n_vocab)
        return false;
    uint32_t start = sl__tok_start(tok, id);
    *bytes = (const char *)tok->bytes + start;
    *len = sl__tok_start(tok, id + 1) - start;
    return *len > 0;
}

bool sl_tok_decode(const sl_tok *tok, uint32_t id, bool at_start, const char **bytes, size_t *len) {
    if (!sl_tok_token_bytes(tok, id, bytes, len))
        return false;
    if (at_start && (tok->flags & SL__TOK_STRIP) && **bytes == ' ') {
        ++*bytes;
        --*len;
    }
    return true;
}

bool sl_tok_is_special(const sl_tok *tok, uint32_t id) {
    return id < tok->n_vocab && (tok->special[id / 8] >> id % 8 & 1) != 0;
}

bool sl_tok_find(const sl_tok *tok, const char *text, size_t len, uint32_t *id) {
    for (uint32_t i = 0; i < tok->n_added; i++) {
        const char *bytes;
        size_t n;
        if (sl_tok_token_bytes(tok, tok->added[i].id, &bytes, &n) && n == len &&
            memcmp(bytes, text, len) == 0) {
            *id = tok->added[i].id;
            return true;
        }
    }
    uint32_t slot = sl__tok_lookup(tok, (const uint8_t *)text, len);
    if (slot == SL__TOK_NO_SLOT)
        return false;
    *id = slot & SL__TOK_ID_MASK;
    return true;
}
