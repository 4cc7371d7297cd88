/* Encoding: the four steps of tokenizer.h, through one window of normalized text.
 *
 * Raw text -> sections between added tokens -> window (normalize.h) -> pre-tokens -> ids. Nothing in
 * here depends on the size of the text; the workspace bounds the window and the longest piece. */
#include <assert.h>

#include "text/normalize.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

/* ---- merging one piece ---------------------------------------------------------------------- */

/* Symbols live where their bytes are: symbol[i] describes the symbol that starts at byte i, and the
 * last byte of a longer one points back to its start. rank[i] is the order of merging the symbol at i
 * with the one after it. Above the ranks stand levels, each the minima of 16 below, so that the
 * smallest rank is found, leftmost first, and updated in logarithmic time; a piece of up to 16 bytes
 * has one level and is simply scanned. */
#define BACK 0x80000000u
#define FAN 16
#define LEVELS_MAX 8 /* 16^8 = 2^32 bytes */

typedef struct rank_tree {
    uint32_t *level[LEVELS_MAX];
    unsigned n_levels;
} rank_tree;

// Ranks of one level, in whole groups.
static size_t level_size(size_t n) {
    return SL_ALIGN_UP(n, FAN);
}

size_t sl__tok_rank_count(size_t n) {
    size_t total = level_size(n);
    for (size_t count = n; count > FAN;) {
        count = level_size(count) / FAN;
        total += level_size(count);
    }
    return total;
}

static inline uint32_t group_min(const uint32_t *group) {
    uint32_t low = group[0];
    for (int i = 1; i < FAN; i++)
        low = SL_MIN(low, group[i]);
    return low;
}

static inline size_t group_find(const uint32_t *group, uint32_t value) {
    size_t i = 0;
    while (group[i] != value)
        i++;
    return i;
}

// The ranks of the first level are in place; fill what follows them.
static void tree_init(rank_tree *t, uint32_t *rank, size_t n) {
    t->level[0] = rank;
    t->n_levels = 1;
    for (size_t i = n; i < level_size(n); i++)
        rank[i] = SL__TOK_NO_VALUE;
    for (size_t count = n; count > FAN;) {
        const uint32_t *below = t->level[t->n_levels - 1];
        uint32_t *above = t->level[t->n_levels - 1] + level_size(count);
        count = level_size(count) / FAN;
        for (size_t i = 0; i < count; i++)
            above[i] = group_min(below + i * FAN);
        for (size_t i = count; i < level_size(count); i++)
            above[i] = SL__TOK_NO_VALUE;
        t->level[t->n_levels++] = above;
    }
}

static inline void tree_set(rank_tree *t, size_t i, uint32_t rank) {
    t->level[0][i] = rank;
    for (unsigned k = 1; k < t->n_levels; k++) {
        i /= FAN;
        uint32_t low = group_min(t->level[k - 1] + i * FAN);
        if (t->level[k][i] == low)
            return;
        t->level[k][i] = low;
    }
}

// The place of the smallest rank, leftmost first; false when nothing can be merged.
static inline bool tree_min(const rank_tree *t, size_t *at, uint32_t *rank) {
    unsigned k = t->n_levels - 1;
    uint32_t low = group_min(t->level[k]);
    if (low == SL__TOK_NO_VALUE)
        return false;
    size_t i = group_find(t->level[k], low);
    while (k-- > 0)
        i = i * FAN + group_find(t->level[k] + i * FAN, low);
    *at = i;
    *rank = low;
    return true;
}

// What merging starts from, with the ranks of neighbours: bytes, or characters where they are tokens.
static size_t first_symbols(const sl_tok *tok, const sl__tok_merger *m, const uint8_t *piece,
                            size_t n) {
    uint32_t *symbol = m->symbol;
    size_t count = 0, previous = 0, len;
    for (size_t i = 0; i < n; i += len) {
        uint32_t slot = SL__TOK_NO_SLOT, cp;
        len = 1;
        if (tok->flags & SL__TOK_CHARS && (piece[i] & 0xc0) != 0x80) {
            len = sl_utf8_decode_valid(piece + i, &cp);
            slot = sl__tok_lookup(tok, piece + i, len);
            len = slot == SL__TOK_NO_SLOT ? 1 : len;
        }
        uint32_t id = slot == SL__TOK_NO_SLOT ? tok->byte_id[piece[i]] : slot & SL__TOK_ID_MASK;
        symbol[i] = id | (uint32_t)len << 21;
        for (size_t k = i + 1; k < i + len; k++)
            m->rank[k] = SL__TOK_NO_VALUE;
        if (len > 1)
            symbol[i + len - 1] = BACK | (uint32_t)i;
        if (i > 0)
            m->rank[previous] = sl__tok_pair_value(tok, sl__tok_symbol_id(symbol[previous]), id);
        previous = i;
        count++;
    }
    m->rank[previous] = SL__TOK_NO_VALUE;
    return count;
}

size_t sl__tok_merge(const sl_tok *tok, sl__tok_merger *m, const uint8_t *piece, size_t n) {
    uint32_t *symbol = m->symbol;
    rank_tree tree;
    size_t count = first_symbols(tok, m, piece, n), at;
    uint32_t value;
    tree_init(&tree, m->rank, n);
    while (tree_min(&tree, &at, &value)) {
        size_t right = at + sl__tok_symbol_len(symbol[at]);
        uint32_t len = sl__tok_symbol_len(symbol[at]) + sl__tok_symbol_len(symbol[right]);
        size_t next = at + len;
        uint32_t id = sl__tok_result(tok, value);
        symbol[at] = id | len << 21;
        symbol[next - 1] = BACK | (uint32_t)at;
        tree_set(&tree, right, SL__TOK_NO_VALUE);
        tree_set(&tree, at,
                 next < n ? sl__tok_pair_value(tok, id, sl__tok_symbol_id(symbol[next]))
                          : SL__TOK_NO_VALUE);
        if (at > 0) {
            size_t left = symbol[at - 1] & BACK ? symbol[at - 1] & ~BACK : at - 1;
            tree_set(&tree, left, sl__tok_pair_value(tok, sl__tok_symbol_id(symbol[left]), id));
        }
        count--;
    }
    return count;
}

/* ---- added tokens --------------------------------------------------------------------------- */

typedef struct added_match {
    const sl__tok_added *added;
    size_t start, end;
} added_match;

// The longest of the added tokens [low, high) at text[at], or NULL. They are sorted, so a prefix of
// the text selects a range, which shrinks byte by byte; a token that ends here is first in its range.
static const sl__tok_added *longest_at(const sl_tok *tok, uint32_t low, uint32_t high,
                                       const uint8_t *text, size_t len, size_t at) {
    const sl__tok_added *best = NULL;
    for (size_t depth = 0; low < high; depth++) {
        if (tok->added[low].pattern_len == depth)
            best = &tok->added[low++];
        if (at + depth == len)
            break;
        uint8_t c = text[at + depth];
        for (int upper = 0; upper < 2; upper++) {
            uint32_t a = low, b = high; // the first token whose byte here is >= c, then > c
            while (a < b) {
                uint32_t middle = a + (b - a) / 2;
                uint8_t byte = tok->bytes[tok->added[middle].pattern + depth];
                if (byte < c || (upper && byte == c))
                    a = middle + 1;
                else
                    b = middle;
            }
            *(upper ? &high : &low) = a;
        }
    }
    return best;
}

// The first match that starts in text[from, limit), raw tokens or normalized ones. Without one, *from
// is where looking can go on: the first character at or after limit.
static bool find_added(const sl_tok *tok, bool normalized, const uint8_t *text, size_t len,
                       size_t *from, size_t limit, added_match *match) {
    const uint64_t *first = tok->first[normalized];
    uint32_t low = normalized ? tok->n_raw : 0, high = normalized ? tok->n_added : tok->n_raw;
    size_t at = *from;
    if (low == high)
        at = SL_MAX(at, limit);
    for (; at < limit; at++) {
        uint8_t c = text[at];
        if (SL_LIKELY((first[c / 64] >> c % 64 & 1) == 0))
            continue;
        const sl__tok_added *added = longest_at(tok, low, high, text, len, at);
        if (added) {
            *match = (added_match){added, at, at + added->pattern_len};
            *from = at;
            return true;
        }
    }
    while (at < len && (text[at] & 0xc0) == 0x80)
        at++;
    *from = at;
    return false;
}

// The class of the character that ends at text[at], at > 0; invalid bytes count as U+FFFD.
static uint32_t class_before(const uint8_t *text, size_t at) {
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && (text[start] & 0xc0) == 0x80)
        start--;
    uint32_t cp;
    bool whole = sl_utf8_decode(text + start, text + at, &cp) == at - start;
    return whole && cp != SL_UTF8_INVALID ? sl_uni_class(cp) : SL_UNI_S;
}

static uint32_t class_at(const uint8_t *text, size_t len, size_t at, size_t *n) {
    uint32_t cp;
    *n = sl_utf8_decode(text + at, text + len, &cp);
    return cp != SL_UTF8_INVALID ? sl_uni_class(cp) : SL_UNI_S;
}

static size_t skip_white_back(const uint8_t *text, size_t from, size_t at) {
    while (at > from && (class_before(text, at) & SL_UNI_WHITE))
        do
            at--;
        while (at > from && (text[at] & 0xc0) == 0x80);
    return at;
}

static size_t skip_white(const uint8_t *text, size_t len, size_t at) {
    size_t n;
    while (at < len && (class_at(text, len, at, &n) & SL_UNI_WHITE))
        at += n;
    return at;
}

// Whether a match counts, given the class of what stands before text (0: nothing), and the text it
// takes: with lstrip and rstrip also the white space around it, but none before `taken`.
static bool accept_match(const added_match *m, const uint8_t *text, size_t len, uint32_t before,
                         size_t taken, size_t *start, size_t *stop) {
    size_t n;
    if ((m->added->flags & SL__TOK_SINGLE_WORD) &&
        (((m->start > 0 ? class_before(text, m->start) : before) & SL_UNI_WORD) ||
         (m->end < len && (class_at(text, len, m->end, &n) & SL_UNI_WORD))))
        return false;
    *start = m->added->flags & SL__TOK_LSTRIP ? skip_white_back(text, taken, m->start) : m->start;
    *stop = m->added->flags & SL__TOK_RSTRIP ? skip_white(text, len, m->end) : m->end;
    return true;
}

/* ---- the window ----------------------------------------------------------------------------- */

// Pieces are limited to `limit` bytes; the window holds twice that, so that every refill of it brings
// at least as much new text as it moves.
typedef struct encoder {
    const sl_tok *tok;
    bool plain;
    size_t limit;
    uint8_t *window; // [2 * limit], and a byte before it
    size_t from, to; // the text in the window that is not encoded yet
    size_t seen;     // normalized added tokens were looked for up to here
    uint32_t before; // class of the character that stood before window[0], 0 at a start
    bool space;      // one belongs before the text at from, where it has none
    sl_pretok_cursor cursor;
    sl_normalizer input;
    sl__tok_merger merger;
    uint32_t *ids;
    size_t ids_cap, n_ids;
} encoder;

#define LIMIT_UNIT 256
#define LIMIT_MIN (16 * LIMIT_UNIT)

// Everything that grows with the limit, for LIMIT_UNIT bytes of it; a little more than the levels of
// ranks need, so that it can be turned around.
static size_t unit_bytes(void) {
    return LIMIT_UNIT * (2 + 4 + 4) + 18 * 4;
}
#define FIXED_BYTES 1024
#define HEADROOM 64 /* before the window; one byte is used, the others keep it aligned */

size_t sl_tok_workspace_bytes(size_t piece_bytes_max) {
    size_t limit = SL_MAX(piece_bytes_max, (size_t)LIMIT_MIN);
    size_t units = limit / LIMIT_UNIT + (limit % LIMIT_UNIT != 0);
    if (units > (SIZE_MAX - FIXED_BYTES) / unit_bytes())
        return SIZE_MAX;
    return units * unit_bytes() + FIXED_BYTES;
}

static sl_status encoder_init(encoder *e, const sl_tok *tok, unsigned flags, uint32_t *ids,
                              size_t ids_cap, sl_arena *workspace, sl_error *err) {
    size_t left = workspace->bytes - workspace->used, needs = sl_tok_workspace_bytes(0);
    if (left < needs)
        return sl_arena_full(workspace, needs, err);
    size_t limit = (left - FIXED_BYTES) / unit_bytes() * LIMIT_UNIT;
    limit = SL_MIN(limit, (size_t)BACK);
    uint8_t *window = sl_arena_alloc(workspace, 2 * limit + HEADROOM, 64);
    *e = (encoder){.tok = tok,
                   .plain = flags & SL_TOK_PLAIN,
                   .limit = limit,
                   .merger = {.symbol = sl_arena_alloc(workspace, 4 * limit, 64),
                              .rank = sl_arena_alloc(workspace, 4 * sl__tok_rank_count(limit), 64)},
                   .ids = ids,
                   .ids_cap = ids_cap};
    if (!window || !e->merger.symbol || !e->merger.rank)
        return sl_arena_full(workspace, needs, err);
    e->window = window + HEADROOM;
    // Normalizing and merging take turns, so they share their room.
    e->input = (sl_normalizer){.segment = e->merger.symbol,
                               .scratch = e->merger.rank,
                               .segment_cap = limit,
                               .nfc = tok->flags & SL__TOK_NFC,
                               .spaces = tok->flags & SL__TOK_CHARS};
    return SL_OK;
}

static inline void emit(encoder *e, uint32_t id) {
    if (e->n_ids < e->ids_cap)
        e->ids[e->n_ids] = id;
    e->n_ids++;
}

static void encode_piece(encoder *e, const uint8_t *piece, size_t n) {
    const sl_tok *tok = e->tok;
    if (n <= tok->word_bytes_max) {
        uint32_t slot = sl__tok_lookup(tok, piece, n);
        if (slot != SL__TOK_NO_SLOT &&
            ((slot & SL__TOK_WHOLE) || (tok->flags & SL__TOK_IGNORE_MERGES))) {
            emit(e, slot & SL__TOK_ID_MASK);
            return;
        }
    }
    size_t count = sl__tok_merge(tok, &e->merger, piece, n);
    for (size_t at = 0; count > 0; count--) {
        emit(e, sl__tok_symbol_id(e->merger.symbol[at]));
        at += sl__tok_symbol_len(e->merger.symbol[at]);
    }
}

static sl_status too_long(const encoder *e, sl_error *err) {
    return sl_fail(err, SL_ERR_MEMORY,
                   "the text has a word or a run of characters of more than %zu bytes that belong "
                   "together, which is more than this workspace holds",
                   e->limit);
}

// Move what is left to the front and fill up behind it.
static sl_status refill(encoder *e, sl_error *err) {
    size_t drop = SL_MIN(e->from, e->seen), left = e->to - drop, n;
    if (left > e->limit)
        return too_long(e, err);
    if (drop > 0) {
        e->before = class_before(e->window, drop);
        memmove(e->window, e->window + drop, left);
        sl_pretok_moved(&e->cursor, drop);
        e->from -= drop;
        e->seen -= drop;
        e->to = left;
    }
    sl_status st = sl_normalizer_fill(&e->input, e->window + left, 2 * e->limit - left, &n, err);
    e->to += n;
    if (!st && n == 0 && e->input.at < e->input.end)
        return too_long(e, err);
    return st;
}

// How far the text in the window is plain for certain. *match is set when an added token follows it
// and takes [start, stop). *more says that the next tokens depend on text that is not here yet.
static size_t plain_end(encoder *e, bool *match, added_match *m, size_t *stop, bool *more) {
    bool all = e->input.at == e->input.end;
    *match = false;
    *more = !all;
    if (e->plain || e->tok->n_raw == e->tok->n_added)
        return e->seen = e->to;
    // A match is certain when the longest token and one character behind it are in sight.
    size_t margin = e->tok->pattern_bytes_max + 4;
    size_t limit = all ? e->to : e->to - SL_MIN(margin, e->to);
    while (find_added(e->tok, true, e->window, e->to, &e->seen, limit, m)) {
        size_t start;
        if (!accept_match(m, e->window, e->to, e->before, e->from, &start, stop)) {
            e->seen = m->end;
            continue;
        }
        *match = true;
        *more = !all && *stop == e->to; // white space that rstrip takes may go on
        return SL_MAX(start, e->from);
    }
    size_t end = SL_MIN(e->seen, e->to);
    if (!all && e->tok->strips_left)
        end = skip_white_back(e->window, e->from, end);
    return SL_MAX(end, e->from);
}

// The plain text in the window up to end, as far as it can be cut. Pieces are taken from the byte before
// the window on, so that there is always room for a space before the first.
static sl_status encode_plain(encoder *e, size_t end, bool final, sl_error *err) {
    const uint8_t *text = e->window - 1;
    while (e->from < end) {
        bool space = e->space && e->window[e->from] != ' ';
        size_t at = e->from + !space;
        if (space)
            e->window[(ptrdiff_t)e->from - 1] = ' ';
        size_t n = sl_pretok_next(&e->tok->pretok, &e->cursor, text, at, end + 1, final);
        if (n == 0)
            return SL_OK;
        if (n > e->limit)
            return too_long(e, err);
        encode_piece(e, text + at, n);
        e->from = at + n - 1;
        e->space = false;
    }
    return SL_OK;
}

// Raw text without raw added tokens, len > 0. at_start: nothing stands before it.
static sl_status encode_section(encoder *e, const uint8_t *text, size_t len, bool at_start,
                                sl_error *err) {
    uint32_t flags = e->tok->flags;
    assert(e->window != NULL);
    e->input.at = text;
    e->input.end = text + len;
    e->from = e->to = e->seen = 0;
    e->before = 0;
    if (flags & SL__TOK_SPACE_RAW)
        e->window[e->to++] = ' ';
    e->space = flags & SL__TOK_SPACE_PIECE || (flags & SL__TOK_SPACE_FIRST && at_start);
    e->cursor = (sl_pretok_cursor){0};
    for (;;) {
        sl_status st = refill(e, err);
        if (st)
            return st;
        bool match, more;
        do {
            added_match m;
            size_t stop, end = plain_end(e, &match, &m, &stop, &more);
            if ((st = encode_plain(e, end, match || !more, err)))
                return st;
            if (!match || more)
                break;
            emit(e, m.added->id);
            e->from = stop;
            e->seen = m.end;
            e->space = flags & SL__TOK_SPACE_PIECE;
            e->cursor = (sl_pretok_cursor){0};
        } while (true);
        if (!more)
            return SL_OK;
    }
}

static void emit_around(encoder *e, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        emit(e, e->tok->around[first + i]);
}

sl_status sl_tok_encode(const sl_tok *tok, const char *text, size_t len, unsigned flags,
                        uint32_t *ids, size_t ids_cap, size_t *n_ids, sl_arena *workspace,
                        sl_error *err) {
    encoder e = {.tok = tok};
    size_t mark = sl_arena_mark(workspace), done = 0, seen = 0;
    const uint8_t *raw = (const uint8_t *)text;
    added_match m;
    *n_ids = 0;
    sl_status st = encoder_init(&e, tok, flags, ids, ids_cap, workspace, err);
    if (!st && flags & SL_TOK_TEMPLATE)
        emit_around(&e, 0, tok->n_before);
    while (!st && !e.plain && find_added(tok, false, raw, len, &seen, len, &m)) {
        size_t start, stop;
        seen = m.end;
        if (!accept_match(&m, raw, len, 0, done, &start, &stop))
            continue;
        if (done < start)
            st = encode_section(&e, raw + done, start - done, done == 0, err);
        emit(&e, m.added->id);
        done = stop;
    }
    if (!st && done < len)
        st = encode_section(&e, raw + done, len - done, done == 0, err);
    if (!st && flags & SL_TOK_TEMPLATE)
        emit_around(&e, tok->n_before, tok->n_after);
    sl_arena_reset(workspace, mark);
    if (st)
        return st;
    *n_ids = e.n_ids;
    if (e.n_ids > ids_cap)
        return sl_fail(err, SL_ERR_CONTEXT, "the text has %zu tokens, there is room for %zu",
                       e.n_ids, ids_cap);
    return SL_OK;
}
