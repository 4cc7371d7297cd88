/* Which tokens may follow: the walk through the trie of the vocabulary, and its short cuts.
 *
 * The mask of a state is the union of the masks of its threads. Inside a string nearly every token is
 * allowed: there the answer is a mask made with the vocabulary, and only tokens that close the string
 * are walked. Everything else prunes the trie early, except automata that allow most characters;
 * masks are remembered by what a thread depends on. */
#include "constrain/constrain_internal.h"

static bool is_leaf_mode(uint8_t mode) {
    return mode == SL__MODE_DFA || mode == SL__MODE_STRING || mode == SL__MODE_OTHER_KEY;
}

static void begin_level(const sl__ctr_thread *threads, uint32_t thread, uint32_t n,
                        const sl__pools *pools, sl__level *level) {
    level->thread = thread;
    level->n = n;
    level->n_frames = pools->n_frames;
    level->n_keys = pools->n_keys;
    if (n == 1 && is_leaf_mode(threads[thread].mode)) {
        level->n = 0;
        level->state = threads[thread].state;
        level->count = threads[thread].count;
    }
}

// The common step inside a scalar or key. false when it is left, or dead: then sl__step() decides.
static inline bool step_leaf(const sl_constraint *c, const sl__ctr_thread *t, const sl__level *from,
                             uint8_t byte, sl__level *to) {
    *to = *from;
    if (t->mode == SL__MODE_DFA) {
        const sl__dfa *dfa = &c->dfas[t->leaf];
        uint16_t next = dfa->next[from->state * dfa->n_classes + dfa->class_of[byte]];
        if (next == SL__DFA_DEAD || !(dfa->flags[next] & SL__DFA_MORE))
            return false;
        to->state = next;
        return true;
    }
    uint8_t next = c->vocab->string_next[from->state][byte];
    if (next >= SL__STR_N)
        return false;
    to->state = next;
    if (t->mode == SL__MODE_OTHER_KEY) {
        to->count = sl__hash_byte(from->count, byte);
        return byte != '\\';
    }
    if (from->state == SL__STR_BODY) {
        const sl__alt *alt = &c->alts[t->leaf];
        if (from->count >= alt->max)
            return false;
        if (alt->max != SL__NONE || from->count < alt->min)
            to->count++;
    }
    return true;
}

static bool step_level(const sl_constraint *c, sl_constraint_work *work, const sl__level *from,
                       uint8_t byte, sl__level *to) {
    sl__ctr_thread *threads = work->threads;
    const sl__ctr_thread *t = &threads[from->thread];
    if (from->n == 0 && step_leaf(c, t, from, byte, to))
        return true;
    uint32_t top = from->thread + SL_MAX(from->n, 1), n = 0;
    work->pools.n_frames = from->n_frames;
    work->pools.n_keys = from->n_keys;
    if (from->n == 0) {
        sl__ctr_thread leaf = *t;
        leaf.state = from->state;
        leaf.count = from->count;
        n = sl__step(c, &work->pools, &leaf, byte, threads + top);
    } else {
        sl__ctr_thread stepped[SL_CONSTRAINT_THREADS_MAX];
        for (uint32_t i = 0; i < from->n; i++) {
            uint32_t n_more = sl__step(c, &work->pools, &t[i], byte, stepped);
            n = sl__add_threads(threads + top, n, stepped, n_more);
        }
    }
    begin_level(threads, top, n, &work->pools, to);
    return n > 0;
}

static bool is_live_level(const sl_constraint *c, const sl_constraint_work *work,
                          const sl__level *level) {
    if (c->vocab->has_all_bytes)
        return true;
    sl__ctr_thread t = work->threads[level->thread];
    if (level->n == 0) {
        t.state = level->state;
        return sl__is_live(c, &t);
    }
    for (uint32_t i = 0; i < level->n; i++)
        if (sl__is_live(c, &work->threads[level->thread + i]))
            return true;
    return false;
}

static void walk(const sl_constraint *c, sl_constraint_work *work, const sl__trie *trie,
                 const sl__ctr_thread *thread, uint32_t *bits) {
    sl__level *levels = work->levels;
    uint32_t depth = 0;
    work->threads[0] = *thread;
    begin_level(work->threads, 0, 1, &work->pools, &levels[0]);
    levels[0].end = trie->n_nodes;
    for (uint32_t node = 1; node < trie->n_nodes;) {
        while (node >= levels[depth].end)
            depth--;
        uint32_t skip = sl__trie_skip(trie, node);
        if (!step_level(c, work, &levels[depth], sl__trie_byte(trie, node), &levels[depth + 1])) {
            node = skip;
            continue;
        }
        levels[++depth].end = skip;
        uint32_t first = sl__trie_first(trie, node), last = sl__trie_first(trie, ++node);
        if (first < last && is_live_level(c, work, &levels[depth]))
            for (uint32_t rank = first; rank < last; rank++)
                bits[trie->ids[rank] / 32] |= 1u << trie->ids[rank] % 32;
    }
    // What was tried is forgotten.
    work->pools.n_frames = levels[0].n_frames;
    work->pools.n_keys = levels[0].n_keys;
}

// Tokens inside a string that begin at most `room` characters.
static void add_short(const sl_vocab *vocab, uint32_t room, uint32_t *bits) {
    for (uint32_t id = 0; id < vocab->n_vocab; id += 32) {
        uint32_t word = 0, n = SL_MIN(32, vocab->n_vocab - id);
        for (uint32_t i = 0; i < n; i++)
            word |= (uint32_t)(vocab->n_characters[id + i] <= room) << i;
        bits[id / 32] |= word;
    }
}

static void add_mask(uint32_t *bits, const uint32_t *more, size_t n_words) {
    for (size_t i = 0; i < n_words; i++)
        bits[i] |= more[i];
}

/* Tokens that stay inside a string with an automaton: the walk with nothing but its states. What
 * closes the string is left out. */
static void walk_inside(const sl_constraint *c, const sl__dfa *dfa, uint32_t state,
                        const sl__trie *trie, uint32_t *bits) {
    uint32_t rows[SL_VOCAB_TOKEN_BYTES_MAX + 1], n_classes = dfa->n_classes;
    bool all_bytes = c->vocab->has_all_bytes;
    const sl__trie_node *nodes = trie->nodes;
    rows[0] = state;
    for (uint32_t node = 1; node < trie->n_nodes;) {
        const sl__trie_node at = nodes[node];
        uint32_t depth = at.first_depth & 0xff;
        uint32_t next = dfa->next[rows[depth - 1] * n_classes + dfa->class_of[at.skip_byte & 0xff]];
        if (next == SL__DFA_DEAD || !(dfa->flags[next] & SL__DFA_MORE)) {
            node = at.skip_byte >> 8;
            continue;
        }
        rows[depth] = next;
        uint32_t first = at.first_depth >> 8, last = nodes[++node].first_depth >> 8;
        if (all_bytes || dfa->flags[next] & SL__DFA_LIVE)
            for (; first < last; first++)
                bits[trie->ids[first] / 32] |= 1u << trie->ids[first] % 32;
    }
}

static bool is_body(const sl_constraint *c, const sl__ctr_thread *t) {
    return t->mode == SL__MODE_DFA && (c->dfas[t->leaf].flags[t->state] & SL__DFA_BODY);
}

/* ---- masks that were computed before -------------------------------------------------------- */

static void mix(uint64_t key[2], uint64_t value) {
    key[0] = (key[0] ^ value) * 0x9e3779b97f4a7c15u;
    key[0] ^= key[0] >> 29;
    key[1] = (key[1] + value) * 0xd1342543de82ef95u + key[0];
    key[1] ^= key[1] >> 32;
}

static void mix_keys(uint64_t key[2], const sl__pools *pools, uint16_t keys) {
    for (uint32_t i = keys; i != UINT16_MAX; i = pools->keys[i].previous)
        mix(key, pools->keys[i].hash + 1ull);
    mix(key, 0);
}

// Everything the mask of a thread depends on.
static void key_of(const sl_constraint *c, const sl__pools *pools, const sl__ctr_thread *t,
                   uint64_t key[2]) {
    key[0] = c->fingerprint;
    key[1] = ~c->fingerprint;
    mix(key, (uint64_t)t->mode | (uint64_t)t->depth << 8 | (uint64_t)t->space << 16 |
                 (uint64_t)t->n_keys << 24 | (uint64_t)t->alt << 32);
    mix(key, (uint64_t)t->pos | (uint64_t)t->leaf << 32);
    mix(key, (uint64_t)t->state | (uint64_t)t->count << 32);
    mix_keys(key, pools, t->keys);
    for (uint32_t i = t->parent; i != UINT16_MAX; i = pools->frames[i].parent) {
        mix(key, (uint64_t)pools->frames[i].alt | (uint64_t)pools->frames[i].pos << 32);
        mix(key, pools->frames[i].n_keys);
        mix_keys(key, pools, pools->frames[i].keys);
    }
}

// The entry that has the key, or the one to be used for it, which is then empty.
static sl__cached *find_cached(sl_constraint_work *work, const uint64_t key[2]) {
    sl__cached *oldest = &work->cached[0];
    for (uint32_t i = 0; i < work->n_cached; i++) {
        sl__cached *entry = &work->cached[i];
        if (entry->used && entry->key[0] == key[0] && entry->key[1] == key[1])
            return entry;
        if (entry->used < oldest->used)
            oldest = entry;
    }
    oldest->used = 0;
    return oldest;
}

// The mask with this key; *fresh: it is new, and cleared.
static uint32_t *cached_mask(sl_constraint_work *work, size_t n_words, const uint64_t key[2],
                             bool *fresh) {
    sl__cached *entry = find_cached(work, key);
    uint32_t *mask = work->cached_bits + (size_t)(entry - work->cached) * n_words;
    *fresh = !entry->used;
    if (*fresh)
        memset(mask, 0, n_words * sizeof(*mask));
    entry->key[0] = key[0];
    entry->key[1] = key[1];
    entry->used = ++work->clock;
    return mask;
}

/* ---- the parts of a mask ------------------------------------------------------------------- */

static void mask_body(const sl_constraint *c, sl_constraint_work *work, const sl__ctr_thread *t,
                      uint32_t *bits) {
    const sl__dfa *dfa = &c->dfas[t->leaf];
    const sl_vocab *vocab = c->vocab;
    size_t n_words = SL_CONSTRAINT_MASK_WORDS(vocab->n_vocab);
    if (dfa->flags[t->state] & SL__DFA_PLAIN) {
        add_mask(bits, vocab->plain, n_words);
        walk_inside(c, dfa, t->state, &vocab->odd, bits);
        return;
    }
    if (work->n_cached == 0) {
        walk_inside(c, dfa, t->state, &vocab->all, bits);
        return;
    }
    // Of states that are alike one mask serves all, as far as plain tokens go, which are short.
    uint64_t key[2] = {c->fingerprint, t->leaf};
    bool fresh;
    mix(key, 1ull << 32 | dfa->alike[t->state]);
    uint32_t *mask = cached_mask(work, n_words, key, &fresh);
    if (fresh) {
        walk_inside(c, dfa, t->state, &vocab->all, mask);
        for (size_t i = 0; i < n_words; i++)
            mask[i] &= vocab->plain[i];
    }
    add_mask(bits, mask, n_words);
    walk_inside(c, dfa, t->state, &vocab->odd, bits);
}

/* The part of a thread's mask that depends on nothing around it: tokens that stay inside a string. What
 * remains is in the trie that is returned. */
static const sl__trie *mask_inside(const sl_constraint *c, sl_constraint_work *work,
                                   const sl__ctr_thread *t, uint32_t *bits) {
    const sl_vocab *vocab = c->vocab;
    size_t n_words = SL_CONSTRAINT_MASK_WORDS(vocab->n_vocab);
    if (t->mode == SL__MODE_STRING && t->state == SL__STR_BODY) {
        uint32_t max = c->alts[t->leaf].max;
        if (max == SL__NONE || max - t->count >= SL_VOCAB_TOKEN_BYTES_MAX)
            add_mask(bits, vocab->inside, n_words);
        else
            add_short(vocab, max - t->count, bits);
        return &vocab->closing;
    }
    if (t->mode == SL__MODE_OTHER_KEY && t->state == SL__STR_BODY) {
        add_mask(bits, vocab->inside_key, n_words);
        return &vocab->closing;
    }
    if (is_body(c, t)) {
        mask_body(c, work, t, bits);
        return &vocab->closing;
    }
    return &vocab->all;
}

static void mask_thread(const sl_constraint *c, sl_constraint_work *work, const sl__ctr_thread *t,
                        uint32_t *bits) {
    const sl_vocab *vocab = c->vocab;
    if (sl__is_complete(c, t))
        for (uint32_t i = 0; i < vocab->n_end; i++)
            bits[vocab->end_ids[i] / 32] |= 1u << vocab->end_ids[i] % 32;
    if (t->mode != SL__MODE_DONE)
        walk(c, work, mask_inside(c, work, t, bits), t, bits);
}

/* ---- the whole mask ---------------------------------------------------------------------- */

/* Inside a string the parts are quick, and what is around it makes many masks of one. Elsewhere the
 * whole mask is kept. */
static bool is_cached(const sl_constraint *c, const sl_constraint_work *work,
                      const sl__ctr_thread *t) {
    bool in_string = (t->mode == SL__MODE_STRING || t->mode == SL__MODE_OTHER_KEY);
    return work->n_cached > 0 && t->mode != SL__MODE_DONE && !in_string && !is_body(c, t);
}

void sl_constraint_mask(const sl_constraint *c, const sl_constraint_state *state,
                        sl_constraint_work *work, uint32_t *bits) {
    size_t n_words = SL_CONSTRAINT_MASK_WORDS(c->vocab->n_vocab);
    memset(bits, 0, n_words * sizeof(*bits));
    sl__load_pools(state, &work->pools);
    for (uint32_t i = 0; i < state->n_threads; i++) {
        const sl__ctr_thread *t = &state->threads[i];
        if (!is_cached(c, work, t)) {
            mask_thread(c, work, t, bits);
            continue;
        }
        uint64_t key[2];
        bool fresh;
        key_of(c, &work->pools, t, key);
        uint32_t *mask = cached_mask(work, n_words, key, &fresh);
        if (fresh)
            mask_thread(c, work, t, mask);
        add_mask(bits, mask, n_words);
    }
}

/* ---- the work area ------------------------------------------------------------------------- */

size_t sl_constraint_work_bytes(uint32_t n_vocab, uint32_t n_cached) {
    size_t mask = SL_CONSTRAINT_MASK_WORDS(n_vocab) * sizeof(uint32_t);
    return sizeof(sl_constraint_work) + 16 + n_cached * (sizeof(sl__cached) + mask);
}

sl_status sl_constraint_work_init(const sl_vocab *vocab, uint32_t n_cached, sl_arena *arena,
                                  sl_constraint_work **out, sl_error *err) {
    size_t bytes = sl_constraint_work_bytes(vocab->n_vocab, n_cached) - 15;
    *out = NULL;
    uint8_t *block = sl_arena_alloc(arena, bytes, 16);
    if (!block)
        return sl_arena_full(arena, bytes, err);
    sl_constraint_work *work = (sl_constraint_work *)block;
    memset(work, 0, sizeof(*work));
    work->n_cached = n_cached;
    work->cached = (sl__cached *)(block + sizeof(*work));
    work->cached_bits = (uint32_t *)(work->cached + n_cached);
    memset(work->cached, 0, n_cached * sizeof(sl__cached));
    *out = work;
    return SL_OK;
}
