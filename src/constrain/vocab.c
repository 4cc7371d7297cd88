/* The trie of a vocabulary and what is known beforehand about tokens inside strings.
 *
 * Ids are sorted by the bytes of their tokens. The common prefix of neighbours gives the number of
 * nodes, so that memory is known before it is taken, and then the nodes in preorder. */
#include "constrain/constrain_internal.h"

typedef struct token {
    const uint8_t *bytes;
    size_t len; // 0: no text
} token;

static token token_of(const sl_vocab_source *source, uint32_t id) {
    static const token none = {.bytes = (const uint8_t *)""};
    const char *text = NULL;
    size_t len = 0;
    if (!source->token_bytes(source->ctx, id, &text, &len) || !text ||
        len > SL_VOCAB_TOKEN_BYTES_MAX)
        return none;
    return (token){.bytes = (const uint8_t *)text, .len = len};
}

static bool is_end(const sl_vocab_source *source, uint32_t id) {
    for (uint32_t i = 0; i < source->n_end; i++)
        if (source->end_ids[i] == id)
            return true;
    return false;
}

static bool in_order(const sl_vocab_source *source, uint32_t x, uint32_t y) {
    const token p = token_of(source, x), q = token_of(source, y);
    int order = memcmp(p.bytes, q.bytes, SL_MIN(p.len, q.len));
    return order < 0 || (order == 0 && (p.len < q.len || (p.len == q.len && x <= y)));
}

static void merge(const sl_vocab_source *source, const uint32_t *left, uint32_t n_left,
                  const uint32_t *right, uint32_t n_right, uint32_t *out) {
    while (n_left && n_right) {
        if (in_order(source, *left, *right)) {
            *out++ = *left++;
            n_left--;
        } else {
            *out++ = *right++;
            n_right--;
        }
    }
    memcpy(out, left, n_left * sizeof(*out));
    memcpy(out + n_left, right, n_right * sizeof(*out));
}

/* ids[0..return value) of all tokens that are text, sorted by their bytes. ids has room for twice
 * n_vocab. (The C library's sort may ask for memory.) */
static uint32_t sorted_ids(const sl_vocab_source *source, uint32_t *ids) {
    uint32_t n = 0, *from = ids, *to = ids + source->n_vocab;
    for (uint32_t id = 0; id < source->n_vocab; id++)
        if (!is_end(source, id) && token_of(source, id).len > 0)
            ids[n++] = id;
    for (uint32_t run = 1; run < n; run *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * run) {
            uint32_t n_left = SL_MIN(run, n - i), n_right = SL_MIN(run, n - i - n_left);
            merge(source, from + i, n_left, from + i + n_left, n_right, to + i);
        }
        uint32_t *other = from;
        from = to;
        to = other;
    }
    if (from != ids)
        memcpy(ids, from, n * sizeof(*ids));
    return n;
}

static size_t common_prefix(token a, token b) {
    size_t k = 0;
    while (k < a.len && k < b.len && a.bytes[k] == b.bytes[k])
        k++;
    return k;
}

// The trie's nodes for ids[n], sorted; the root included.
static uint64_t count_nodes(const sl_vocab_source *source, const uint32_t *ids, uint32_t n) {
    token before = {0};
    uint64_t nodes = 1;
    for (uint32_t i = 0; i < n; i++) {
        const token t = token_of(source, ids[i]);
        nodes += t.len - common_prefix(before, t);
        before = t;
    }
    return nodes;
}

static void fill_trie(const sl_vocab_source *source, const uint32_t *ids, sl__trie *trie) {
    uint32_t open[SL_VOCAB_TOKEN_BYTES_MAX + 1] = {0}, n = 1;
    token before = {0};
    size_t depth = 0;
    memcpy(trie->ids, ids, trie->n_tokens * sizeof(*ids));
    trie->nodes[0] = (sl__trie_node){.skip_byte = 0};
    for (uint32_t i = 0; i < trie->n_tokens; i++) {
        const token t = token_of(source, trie->ids[i]);
        size_t common = common_prefix(before, t);
        while (depth > common)
            trie->nodes[open[depth--]].skip_byte |= n << 8;
        while (depth < t.len) {
            trie->nodes[n].skip_byte = t.bytes[depth];
            trie->nodes[n].first_depth = i << 8 | (uint32_t)++depth;
            open[depth] = n++;
        }
        before = t;
    }
    while (depth > 0)
        trie->nodes[open[depth--]].skip_byte |= n << 8;
    trie->nodes[0].skip_byte |= n << 8;
    trie->nodes[n] = (sl__trie_node){.skip_byte = n << 8, .first_depth = trie->n_tokens << 8};
}

/* ---- strings ------------------------------------------------------------------------------- */

static void set(uint8_t *row, unsigned from, unsigned to, uint8_t state) {
    for (unsigned b = from; b <= to; b++)
        row[b] = state;
}

static void set_hex(uint8_t *row, uint8_t state) {
    set(row, '0', '9', state);
    set(row, 'a', 'f', state);
    set(row, 'A', 'F', state);
}

static void fill_string_table(uint8_t next[SL__STR_N][256]) {
    memset(next, SL__STR_DEAD, (size_t)SL__STR_N * 256);
    uint8_t *body = next[SL__STR_BODY];
    set(body, 0x20, 0x7f, SL__STR_BODY);
    body['"'] = SL__STR_CLOSE;
    body['\\'] = SL__STR_ESCAPE;
    set(body, 0xc2, 0xdf, SL__STR_1);
    set(body, 0xe1, 0xef, SL__STR_2);
    body[0xe0] = SL__STR_E0;
    body[0xe2] = SL__STR_E2;
    body[0xed] = SL__STR_ED;
    set(body, 0xf1, 0xf3, SL__STR_3);
    body[0xf0] = SL__STR_F0;
    body[0xf4] = SL__STR_F4;
    for (const char *p = "\"\\/bfnrt"; *p; p++)
        next[SL__STR_ESCAPE][(uint8_t)*p] = SL__STR_BODY;
    next[SL__STR_ESCAPE]['u'] = SL__STR_U4;
    set_hex(next[SL__STR_U4], SL__STR_U3);
    next[SL__STR_U4]['d'] = next[SL__STR_U4]['D'] = SL__STR_UD;
    set(next[SL__STR_UD], '0', '7', SL__STR_U2);
    set(next[SL__STR_UD], '8', '9', SL__STR_HIGH2);
    set(next[SL__STR_UD], 'a', 'b', SL__STR_HIGH2);
    set(next[SL__STR_UD], 'A', 'B', SL__STR_HIGH2);
    set_hex(next[SL__STR_U3], SL__STR_U2);
    set_hex(next[SL__STR_U2], SL__STR_U1);
    set_hex(next[SL__STR_U1], SL__STR_BODY);
    set_hex(next[SL__STR_HIGH2], SL__STR_HIGH1);
    set_hex(next[SL__STR_HIGH1], SL__STR_LOW_ESCAPE);
    next[SL__STR_LOW_ESCAPE]['\\'] = SL__STR_LOW_U;
    next[SL__STR_LOW_U]['u'] = SL__STR_LOW_D;
    next[SL__STR_LOW_D]['d'] = next[SL__STR_LOW_D]['D'] = SL__STR_LOW_C;
    set(next[SL__STR_LOW_C], 'c', 'f', SL__STR_U2);
    set(next[SL__STR_LOW_C], 'C', 'F', SL__STR_U2);
    set(next[SL__STR_1], 0x80, 0xbf, SL__STR_BODY);
    set(next[SL__STR_2], 0x80, 0xbf, SL__STR_1);
    set(next[SL__STR_3], 0x80, 0xbf, SL__STR_2);
    set(next[SL__STR_E0], 0xa0, 0xbf, SL__STR_1);
    set(next[SL__STR_E2], 0x81, 0xbf, SL__STR_1);
    next[SL__STR_E2][0x80] = SL__STR_E280;
    set(next[SL__STR_E280], 0x80, 0xbf, SL__STR_BODY);
    set(next[SL__STR_ED], 0x80, 0x9f, SL__STR_1);
    set(next[SL__STR_F0], 0x90, 0xbf, SL__STR_2);
    set(next[SL__STR_F4], 0x80, 0x8f, SL__STR_2);
}

static void find_live_strings(sl_vocab *vocab) {
    memset(vocab->string_live, 0, sizeof(vocab->string_live));
    vocab->string_live[SL__STR_BODY] = true; // the quote is printable ASCII
    for (bool changed = true; changed;) {
        changed = false;
        for (unsigned s = 0; s < SL__STR_N; s++)
            for (unsigned b = 0; b < 256 && !vocab->string_live[s]; b++) {
                uint8_t t = vocab->string_next[s][b];
                if (vocab->has_byte[b] && t < SL__STR_N && vocab->string_live[t])
                    changed = vocab->string_live[s] = true;
            }
    }
}

// Where a string stands after a token that begins between two characters.
static uint8_t string_after(uint8_t next[SL__STR_N][256], token t) {
    uint8_t state = SL__STR_BODY;
    for (size_t i = 0; i < t.len && state < SL__STR_N; i++)
        state = next[state][t.bytes[i]];
    return state;
}

/* Escapes have a restricted spelling where there is an automaton, and patterns often leave out the two
 * line separators beyond ASCII: tokens without them are known to fit in many more places. */
static bool is_plain(token t) {
    for (size_t i = 0; i < t.len; i++)
        if (t.bytes[i] == '\\' || (i + 2 < t.len && t.bytes[i] == 0xe2 && t.bytes[i + 1] == 0x80 &&
                                   (t.bytes[i + 2] & 0xfe) == 0xa8))
            return false;
    return t.len <= SL__ALIKE_BYTES;
}

// Remember a token that stays inside a string when it begins between two characters of it.
static void note_inside(sl_vocab *vocab, uint32_t id, token t) {
    uint8_t state = SL__STR_BODY;
    uint32_t n_characters = 0, bit = 1u << id % 32;
    for (size_t i = 0; i < t.len; i++) {
        n_characters += state == SL__STR_BODY;
        state = vocab->string_next[state][t.bytes[i]];
        if (state >= SL__STR_N)
            return;
    }
    if (!vocab->string_live[state])
        return;
    vocab->n_characters[id] = (uint8_t)n_characters;
    vocab->inside[id / 32] |= bit;
    if (!memchr(t.bytes, '\\', t.len))
        vocab->inside_key[id / 32] |= bit;
    if (is_plain(t))
        vocab->plain[id / 32] |= bit;
}

/* ---- sizes and building -------------------------------------------------------------------- */

typedef struct layout {
    uint32_t n_tokens, n_closing, n_odd;
    uint64_t n_nodes, n_closing_nodes, n_odd_nodes;
    uint64_t bytes;
} layout;

static sl_status check_source(const sl_vocab_source *source, sl_error *err) {
    if (source->n_vocab == 0 || source->n_vocab >= 1u << 24)
        return sl_fail(err, SL_ERR_ARGUMENT, "a vocabulary of %u tokens; known are 1 to %u",
                       source->n_vocab, (1u << 24) - 1);
    if (source->n_end == 0 || source->n_end > SL_VOCAB_ENDS_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "%u end tokens; 1 to %d can be given", source->n_end,
                       SL_VOCAB_ENDS_MAX);
    for (uint32_t i = 0; i < source->n_end; i++)
        if (source->end_ids[i] >= source->n_vocab)
            return sl_fail(err, SL_ERR_ARGUMENT, "end token %u is not below n_vocab = %u",
                           source->end_ids[i], source->n_vocab);
    return SL_OK;
}

#define PIECE_ALIGN 16
#define PIECE(bytes) SL_ALIGN_UP((uint64_t)(bytes), PIECE_ALIGN)

static uint64_t trie_bytes(uint64_t n_nodes, uint64_t n_tokens) {
    return PIECE((n_nodes + 1) * sizeof(sl__trie_node)) + PIECE(n_tokens * sizeof(uint32_t));
}

static sl_status check_bytes(const sl_vocab_source *source, const uint32_t *ids, uint32_t n,
                             sl_error *err) {
    bool has[256] = {false};
    for (uint32_t i = 0; i < n; i++) {
        const token t = token_of(source, ids[i]);
        has[t.bytes[0]] |= t.len == 1;
    }
    for (unsigned b = 0x20; b < 0x7f; b++)
        if (!has[b])
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "the vocabulary has no token of the byte 0x%02x alone, "
                           "which JSON cannot do without",
                           b);
    return SL_OK;
}

/* ids has room as for sorted_ids(), and holds afterwards the sorted ids and then, from n_vocab on, those
 * of tokens that close strings and of odd ones that stay inside. */
static sl_status measure(const sl_vocab_source *source, uint32_t *ids, layout *l, sl_error *err) {
    uint8_t next[SL__STR_N][256];
    uint32_t *closing = ids + source->n_vocab, *odd;
    memset(l, 0, sizeof(*l));
    fill_string_table(next);
    l->n_tokens = sorted_ids(source, ids);
    for (uint32_t i = 0; i < l->n_tokens; i++)
        if (string_after(next, token_of(source, ids[i])) == SL__STR_CLOSE)
            closing[l->n_closing++] = ids[i];
    odd = closing + l->n_closing;
    for (uint32_t i = 0; i < l->n_tokens; i++) {
        const token t = token_of(source, ids[i]);
        if (!is_plain(t) && string_after(next, t) < SL__STR_N)
            odd[l->n_odd++] = ids[i];
    }
    l->n_nodes = count_nodes(source, ids, l->n_tokens);
    l->n_closing_nodes = count_nodes(source, closing, l->n_closing);
    l->n_odd_nodes = count_nodes(source, odd, l->n_odd);
    if (l->n_nodes >= 1u << 24)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "the vocabulary's trie has %llu nodes, at most %u",
                       (unsigned long long)l->n_nodes, (1u << 24) - 1);
    sl_status st = check_bytes(source, ids, l->n_tokens, err);
    if (st)
        return st;
    uint64_t words = SL_CONSTRAINT_MASK_WORDS(source->n_vocab);
    l->bytes = PIECE(sizeof(sl_vocab)) + trie_bytes(l->n_nodes, l->n_tokens) +
               trie_bytes(l->n_closing_nodes, l->n_closing) + trie_bytes(l->n_odd_nodes, l->n_odd) +
               PIECE((uint64_t)source->n_vocab * 4) + PIECE(source->n_vocab) + 3 * PIECE(words * 4);
    return SL_OK;
}

static uint32_t *take_ids(const sl_vocab_source *source, sl_arena *scratch) {
    return sl_arena_alloc(scratch, 2 * (size_t)source->n_vocab * sizeof(uint32_t), 4);
}

sl_status sl_vocab_measure(const sl_vocab_source *source, sl_arena *scratch, uint64_t *bytes,
                           sl_error *err) {
    layout l;
    size_t mark = sl_arena_mark(scratch);
    *bytes = 0;
    sl_status st = check_source(source, err);
    if (st)
        return st;
    uint32_t *ids = take_ids(source, scratch);
    if (!ids)
        return sl_arena_full(scratch, (size_t)source->n_vocab * 8, err);
    st = measure(source, ids, &l, err);
    sl_arena_reset(scratch, mark);
    if (!st)
        *bytes = l.bytes + PIECE_ALIGN - 1; // what aligning the first piece may take
    return st;
}

static void *piece(uint8_t **at, uint64_t bytes) {
    void *p = *at;
    *at += PIECE(bytes);
    return p;
}

static void place_trie(sl__trie *trie, uint64_t n_nodes, uint32_t n_tokens, uint8_t **at) {
    trie->n_nodes = (uint32_t)n_nodes;
    trie->n_tokens = n_tokens;
    trie->nodes = piece(at, (n_nodes + 1) * sizeof(sl__trie_node));
    trie->ids = piece(at, (uint64_t)n_tokens * sizeof(uint32_t));
}

static void place(sl_vocab *vocab, uint32_t n_vocab, uint8_t *at, const layout *l) {
    uint64_t words = SL_CONSTRAINT_MASK_WORDS(n_vocab);
    (void)piece(&at, sizeof(*vocab));
    memset(vocab, 0, sizeof(*vocab));
    place_trie(&vocab->all, l->n_nodes, l->n_tokens, &at);
    place_trie(&vocab->closing, l->n_closing_nodes, l->n_closing, &at);
    place_trie(&vocab->odd, l->n_odd_nodes, l->n_odd, &at);
    vocab->rank_of = piece(&at, (uint64_t)n_vocab * 4);
    vocab->n_characters = piece(&at, n_vocab);
    vocab->inside = piece(&at, words * 4);
    vocab->inside_key = piece(&at, words * 4);
    vocab->plain = piece(&at, words * 4);
    memset(vocab->rank_of, 0xff, (size_t)n_vocab * 4);
    memset(vocab->n_characters, 0xff, n_vocab);
    memset(vocab->inside, 0, words * 4);
    memset(vocab->inside_key, 0, words * 4);
    memset(vocab->plain, 0, words * 4);
}

static void fill(const sl_vocab_source *source, const uint32_t *ids, const layout *l,
                 sl_vocab *vocab) {
    vocab->n_vocab = source->n_vocab;
    vocab->n_end = source->n_end;
    memcpy(vocab->end_ids, source->end_ids, source->n_end * sizeof(uint32_t));
    fill_string_table(vocab->string_next);
    for (uint32_t i = 0; i < l->n_tokens; i++) {
        const token t = token_of(source, ids[i]);
        vocab->has_byte[t.bytes[0]] |= t.len == 1;
        vocab->rank_of[ids[i]] = i;
    }
    vocab->has_all_bytes = true;
    for (unsigned b = 0; b < 256; b++)
        vocab->has_all_bytes &= vocab->has_byte[b];
    find_live_strings(vocab);
    for (uint32_t i = 0; i < l->n_tokens; i++)
        note_inside(vocab, ids[i], token_of(source, ids[i]));
    const uint32_t *closing = ids + source->n_vocab;
    fill_trie(source, ids, &vocab->all);
    fill_trie(source, closing, &vocab->closing);
    fill_trie(source, closing + l->n_closing, &vocab->odd);
}

static sl_status build(const sl_vocab_source *source, uint32_t *ids, sl_arena *arena,
                       sl_vocab **out, sl_error *err) {
    layout l;
    sl_status st = measure(source, ids, &l, err);
    if (st)
        return st;
    uint8_t *block = sl_arena_alloc(arena, (size_t)l.bytes, PIECE_ALIGN);
    if (!block)
        return sl_arena_full(arena, (size_t)l.bytes, err);
    sl_vocab *vocab = (sl_vocab *)block;
    place(vocab, source->n_vocab, block, &l);
    fill(source, ids, &l, vocab);
    *out = vocab;
    return SL_OK;
}

sl_status sl_vocab_build(const sl_vocab_source *source, sl_arena *arena, sl_arena *scratch,
                         sl_vocab **out, sl_error *err) {
    size_t mark = sl_arena_mark(arena), scratch_mark = sl_arena_mark(scratch);
    *out = NULL;
    sl_status st = check_source(source, err);
    if (st)
        return st;
    uint32_t *ids = take_ids(source, scratch);
    if (!ids)
        return sl_arena_full(scratch, (size_t)source->n_vocab * 8, err);
    st = build(source, ids, arena, out, err);
    sl_arena_reset(scratch, scratch_mark);
    if (st) {
        sl_arena_reset(arena, mark);
        *out = NULL;
    }
    return st;
}

uint32_t sl_vocab_size(const sl_vocab *vocab) {
    return vocab->n_vocab;
}

size_t sl__vocab_bytes(const sl_vocab *vocab, uint32_t rank,
                       uint8_t out[SL_VOCAB_TOKEN_BYTES_MAX]) {
    const sl__trie *trie = &vocab->all;
    uint32_t node = 0;
    size_t len = 0;
    while (rank >= sl__trie_first(trie, node + 1)) { // not among the tokens of this node itself
        node++;
        for (uint32_t skip = sl__trie_skip(trie, node); rank >= sl__trie_first(trie, skip);
             skip = sl__trie_skip(trie, node))
            node = skip;
        out[len++] = sl__trie_byte(trie, node);
    }
    return len;
}
