/* The step by one byte, and what is made of it: beginning, accepting, completeness.
 *
 * A thread is one way to read the answer so far. It knows the innermost container and how far that
 * has come; the containers around it are a list of frames that threads share. Frames and keys are
 * never changed, only added and, between tokens, collected. Equal ones are the same one, so that
 * threads which have come to agree are equal byte by byte and become one. */
#include "constrain/constrain_internal.h"

#define NO_LINK UINT16_MAX

/* ---- containers ---------------------------------------------------------------------------- */

static bool fits(const sl_constraint *c, uint32_t node, uint32_t depth) {
    return node != SL__NONE && c->nodes[node].min_depth <= SL_JSON_DEPTH_MAX - depth;
}

static bool may_have_other_key(const sl_constraint *c, const sl__ctr_thread *t) {
    const sl__alt *alt = &c->alts[t->alt];
    return alt->rest != SL__NONE && t->n_keys < SL_CONSTRAINT_KEYS_THREAD_MAX &&
           fits(c, alt->rest, t->depth);
}

// The index of the first required key at or after pos, or n.
static uint32_t required_from(const sl_constraint *c, const sl__alt *alt, uint32_t pos) {
    return pos < alt->n ? c->props[alt->first + pos].next_required : alt->n;
}

// The first declared key from pos that may come now; n if there is none. *last: behind the last one.
static uint32_t next_prop(const sl_constraint *c, const sl__alt *alt, uint32_t pos, uint32_t depth,
                          uint32_t *last) {
    uint32_t required = required_from(c, alt, pos);
    *last = required < alt->n ? required + 1 : alt->n;
    while (pos < *last && !fits(c, c->props[alt->first + pos].node, depth))
        pos++;
    return pos < *last ? pos : alt->n;
}

static bool may_have_key(const sl_constraint *c, const sl__ctr_thread *t) {
    const sl__alt *alt = &c->alts[t->alt];
    uint32_t last;
    return next_prop(c, alt, t->pos, t->depth, &last) < alt->n ||
           (required_from(c, alt, t->pos) == alt->n && may_have_other_key(c, t));
}

// The node of the item at t->pos, or SL__NONE when there can be none.
static uint32_t next_item(const sl_constraint *c, const sl__ctr_thread *t) {
    const sl__alt *alt = &c->alts[t->alt];
    if (t->pos >= alt->max)
        return SL__NONE;
    uint32_t node = t->pos < alt->n ? c->refs[alt->first + t->pos] : alt->rest;
    return fits(c, node, t->depth) ? node : SL__NONE;
}

static bool may_close(const sl_constraint *c, const sl__ctr_thread *t) {
    const sl__alt *alt = &c->alts[t->alt];
    return alt->kind == SL__ALT_OBJECT ? required_from(c, alt, t->pos) == alt->n
                                       : t->pos >= alt->min;
}

static void finish_value(const sl_constraint *c, sl__ctr_thread *t) {
    t->leaf = t->state = t->count = 0;
    t->space = SL__SPACE_MAY;
    if (t->alt == SL__NONE) {
        t->mode = SL__MODE_DONE;
        return;
    }
    const sl__alt *alt = &c->alts[t->alt];
    // Where nothing depends on the number of items any more it is not counted: more states are equal.
    if (alt->kind == SL__ALT_OBJECT ? t->pos < alt->n
                                    : alt->max != SL__NONE || t->pos < SL_MAX(alt->min, alt->n))
        t->pos++;
    t->mode = SL__MODE_AFTER;
}

static bool open_container(sl__pools *pools, sl__ctr_thread *t, uint32_t alt, uint8_t mode) {
    sl__ctr_frame frame = {
        .alt = t->alt, .pos = t->pos, .parent = t->parent, .keys = t->keys, .n_keys = t->n_keys};
    uint32_t i = pools->n_frames;
    while (i > 0 && memcmp(&pools->frames[i - 1], &frame, sizeof(frame)) != 0)
        i--;
    if (i == 0) {
        if (pools->n_frames == SL__FRAMES_ROOM)
            return false;
        pools->frames[pools->n_frames++] = frame;
        i = pools->n_frames;
    }
    t->parent = (uint16_t)(i - 1);
    t->keys = NO_LINK;
    t->alt = alt;
    t->pos = 0;
    t->depth++;
    t->mode = mode;
    t->space = SL__SPACE_MAY;
    t->leaf = t->state = t->count = 0;
    return true;
}

static void close_container(const sl_constraint *c, const sl__pools *pools, sl__ctr_thread *t) {
    const sl__ctr_frame *frame = &pools->frames[t->parent];
    t->alt = frame->alt;
    t->pos = frame->pos;
    t->parent = frame->parent;
    t->keys = frame->keys;
    t->n_keys = (uint8_t)frame->n_keys;
    t->depth--;
    finish_value(c, t);
}

/* ---- keys ---------------------------------------------------------------------------------- */

static bool is_used(const sl__pools *pools, uint16_t keys, uint32_t hash) {
    for (uint32_t i = keys; i != NO_LINK; i = pools->keys[i].previous)
        if (pools->keys[i].hash == hash)
            return true;
    return false;
}

static bool is_declared(const sl_constraint *c, const sl__alt *alt, uint32_t hash) {
    const uint32_t *hashes = c->refs + alt->hashes;
    uint32_t low = 0, high = alt->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low < alt->n && hashes[low] == hash;
}

static bool end_other_key(const sl_constraint *c, sl__pools *pools, sl__ctr_thread *t) {
    const sl__alt *alt = &c->alts[t->alt];
    if (is_declared(c, alt, t->count) || is_used(pools, t->keys, t->count))
        return false;
    sl__ctr_key key = {.hash = t->count, .previous = t->keys};
    uint32_t i = pools->n_keys;
    while (i > 0 && memcmp(&pools->keys[i - 1], &key, sizeof(key)) != 0)
        i--;
    if (i == 0) {
        if (pools->n_keys == SL__KEYS_ROOM)
            return false;
        pools->keys[pools->n_keys++] = key;
        i = pools->n_keys;
    }
    t->keys = (uint16_t)(i - 1);
    t->n_keys++;
    t->mode = SL__MODE_COLON;
    t->pos = alt->n;
    t->leaf = alt->rest;
    t->state = t->count = 0;
    return true;
}

/* Declared keys are spelled with their quotes, so none is the beginning of another. pos stays the
 * first key that agrees with all bytes so far: it stands for the others. */
static bool step_key(const sl_constraint *c, sl__ctr_thread *t, uint8_t byte) {
    const sl__alt *alt = &c->alts[t->alt];
    const sl__prop *props = c->props + alt->first, *first = &props[t->pos];
    uint32_t required = first->next_required;
    uint32_t last = required < alt->n ? required + 1 : alt->n;
    for (uint32_t i = t->pos; i < last; i++) {
        const sl__prop *p = &props[i];
        if (t->count >= p->key_len || c->texts[p->key + t->count] != byte ||
            memcmp(c->texts + p->key, c->texts + first->key, t->count) != 0 ||
            !fits(c, p->node, t->depth))
            continue;
        t->pos = i;
        if (++t->count == p->key_len) {
            t->mode = SL__MODE_COLON;
            t->leaf = p->node;
            t->count = 0;
        }
        return true;
    }
    return false;
}

static uint32_t begin_key(const sl_constraint *c, const sl__ctr_thread *t, sl__ctr_thread *out) {
    const sl__alt *alt = &c->alts[t->alt];
    uint32_t n = 0, last, prop = next_prop(c, alt, t->pos, t->depth, &last);
    if (prop < alt->n) {
        out[n] = *t;
        out[n].mode = SL__MODE_KEY;
        out[n].space = 0;
        out[n].pos = prop;
        out[n++].count = 1;
    }
    if (required_from(c, alt, t->pos) == alt->n && may_have_other_key(c, t)) {
        out[n] = *t;
        out[n].mode = SL__MODE_OTHER_KEY;
        out[n].space = 0;
        out[n].pos = alt->n;
        out[n].state = SL__STR_BODY;
        out[n++].count = SL__HASH_START;
    }
    return n;
}

/* ---- values -------------------------------------------------------------------------------- */

static bool step_dfa(const sl_constraint *c, sl__ctr_thread *t, uint8_t byte) {
    const sl__dfa *dfa = &c->dfas[t->leaf];
    uint16_t next = dfa->next[t->state * dfa->n_classes + dfa->class_of[byte]];
    if (next == SL__DFA_DEAD)
        return false;
    t->state = next;
    if (!(dfa->flags[next] & SL__DFA_MORE))
        finish_value(c, t);
    return true;
}

static bool step_string(const sl_constraint *c, sl__ctr_thread *t, uint8_t byte) {
    const sl__alt *alt = &c->alts[t->leaf];
    uint8_t next = c->vocab->string_next[t->state][byte];
    if (next == SL__STR_DEAD)
        return false;
    if (next == SL__STR_CLOSE) {
        if (t->count < alt->min)
            return false;
        finish_value(c, t);
        return true;
    }
    if (t->state == SL__STR_BODY) {
        if (t->count >= alt->max)
            return false;
        // Not counted where it makes no difference.
        if (alt->max != SL__NONE || t->count < alt->min)
            t->count++;
    }
    t->state = next;
    return true;
}

static uint32_t begin_value(const sl_constraint *c, sl__pools *pools, const sl__ctr_thread *t,
                            uint8_t byte, sl__ctr_thread *out) {
    const sl__node *node = &c->nodes[t->leaf];
    uint32_t n = 0;
    for (uint32_t i = node->first; i < node->first + node->n && n < SL_CONSTRAINT_THREADS_MAX;
         i++) {
        const sl__alt *alt = &c->alts[i];
        sl__ctr_thread next = *t;
        bool ok = false;
        if (alt->min_depth > SL_JSON_DEPTH_MAX - t->depth)
            continue;
        next.space = 0;
        switch ((sl__alt_kind)alt->kind) {
        case SL__ALT_DFA:
            next.mode = SL__MODE_DFA;
            next.leaf = alt->dfa;
            next.state = next.count = 0;
            ok = step_dfa(c, &next, byte);
            break;
        case SL__ALT_STRING:
            next.mode = SL__MODE_STRING;
            next.leaf = i;
            next.state = SL__STR_BODY;
            next.count = 0;
            ok = byte == '"';
            break;
        case SL__ALT_OBJECT:
            ok = byte == '{' && open_container(pools, &next, i, SL__MODE_FIRST_KEY);
            break;
        case SL__ALT_ARRAY:
            ok = byte == '[' && open_container(pools, &next, i, SL__MODE_FIRST_VALUE);
            if (ok)
                next.leaf = next_item(c, &next);
            break;
        }
        if (ok)
            out[n++] = next;
    }
    return n;
}

/* ---- space --------------------------------------------------------------------------------- */

#define INDENT 4u
#define INDENT_MAX 240u

static bool step_space(sl__ctr_thread *t, uint8_t byte) {
    uint32_t indent_max = SL_MIN(INDENT * t->depth, INDENT_MAX);
    if (t->space == SL__SPACE_NO)
        return false;
    if (byte == '\n' && t->space == SL__SPACE_MAY) {
        t->space = SL__SPACE_LINE;
        return true;
    }
    if (byte != ' ')
        return false;
    if (t->space == SL__SPACE_MAY || t->space == SL__SPACE_ONE)
        t->space = SL__SPACE_NO;
    else if (t->space - SL__SPACE_LINE < (int)indent_max)
        t->space++;
    else
        return false;
    return true;
}

static uint32_t step_after(const sl_constraint *c, const sl__pools *pools, const sl__ctr_thread *t,
                           uint8_t byte, sl__ctr_thread *out) {
    bool object = c->alts[t->alt].kind == SL__ALT_OBJECT;
    *out = *t;
    if (byte == ',' && t->mode == SL__MODE_AFTER) {
        if (object) {
            out->mode = SL__MODE_NEXT_KEY;
            return may_have_key(c, t);
        }
        out->mode = SL__MODE_VALUE;
        out->leaf = next_item(c, t);
        return out->leaf != SL__NONE;
    }
    if (!may_close(c, t))
        return 0;
    if (byte == (object ? '}' : ']')) {
        close_container(c, pools, out);
        return 1;
    }
    out->mode = SL__MODE_CLOSE;
    return step_space(out, byte);
}

/* ---- one byte ------------------------------------------------------------------------------ */

uint32_t sl__step(const sl_constraint *c, sl__pools *pools, const sl__ctr_thread *t, uint8_t byte,
                  sl__ctr_thread *out) {
    *out = *t;
    switch (t->mode) {
    case SL__MODE_VALUE:
        return step_space(out, byte) ? 1 : begin_value(c, pools, t, byte, out);
    case SL__MODE_FIRST_VALUE:
        if (step_space(out, byte))
            return t->leaf != SL__NONE || may_close(c, t);
        if (byte == ']' && may_close(c, t)) {
            close_container(c, pools, out);
            return 1;
        }
        return t->leaf == SL__NONE ? 0 : begin_value(c, pools, t, byte, out);
    case SL__MODE_FIRST_KEY:
        if (byte == '}' && may_close(c, t)) {
            close_container(c, pools, out);
            return 1;
        }
        // fall through
    case SL__MODE_NEXT_KEY:
        return step_space(out, byte) ? 1 : byte == '"' ? begin_key(c, t, out) : 0;
    case SL__MODE_KEY:
        return step_key(c, out, byte);
    case SL__MODE_OTHER_KEY:
        if (byte == '"' && t->state == SL__STR_BODY)
            return end_other_key(c, pools, out);
        out->state = byte == '\\' ? SL__STR_DEAD : c->vocab->string_next[t->state][byte];
        out->count = sl__hash_byte(t->count, byte);
        return out->state < SL__STR_N;
    case SL__MODE_COLON:
        out->mode = SL__MODE_VALUE;
        out->space = SL__SPACE_ONE;
        return byte == ':';
    case SL__MODE_AFTER:
    case SL__MODE_CLOSE:
        return step_after(c, pools, t, byte, out);
    case SL__MODE_DFA:
        if (step_dfa(c, out, byte))
            return 1;
        if (!(c->dfas[t->leaf].flags[t->state] & SL__DFA_ACCEPT))
            return 0;
        sl__ctr_thread finished = *t; // a number that the byte ends
        finish_value(c, &finished);
        return finished.mode == SL__MODE_DONE ? 0 : step_after(c, pools, &finished, byte, out);
    case SL__MODE_STRING:
        return step_string(c, out, byte);
    default:
        return 0;
    }
}

bool sl__is_live(const sl_constraint *c, const sl__ctr_thread *t) {
    if (t->mode == SL__MODE_DFA)
        return (c->dfas[t->leaf].flags[t->state] & SL__DFA_LIVE) != 0;
    if (t->mode == SL__MODE_STRING || t->mode == SL__MODE_OTHER_KEY)
        return c->vocab->string_live[t->state];
    return true;
}

bool sl__is_complete(const sl_constraint *c, const sl__ctr_thread *t) {
    return t->mode == SL__MODE_DONE || (t->mode == SL__MODE_DFA && t->alt == SL__NONE &&
                                        (c->dfas[t->leaf].flags[t->state] & SL__DFA_ACCEPT));
}

/* ---- accepting ----------------------------------------------------------------------------- */

void sl_constraint_begin(const sl_constraint *c, sl_constraint_state *state) {
    memset(state, 0, sizeof(*state));
    state->n_threads = 1;
    state->threads[0] = (sl__ctr_thread){.mode = SL__MODE_VALUE,
                                         .space = SL__SPACE_NO,
                                         .parent = NO_LINK,
                                         .keys = NO_LINK,
                                         .alt = SL__NONE,
                                         .leaf = c->root};
}

void sl__load_pools(const sl_constraint_state *state, sl__pools *pools) {
    memcpy(pools->frames, state->frames, state->n_frames * sizeof(sl__ctr_frame));
    memcpy(pools->keys, state->keys, state->n_keys * sizeof(sl__ctr_key));
    pools->n_frames = state->n_frames;
    pools->n_keys = state->n_keys;
}

uint32_t sl__add_threads(sl__ctr_thread *threads, uint32_t n, const sl__ctr_thread *more,
                         uint32_t n_more) {
    for (uint32_t i = 0; i < n_more; i++) {
        uint32_t k = 0;
        while (k < n && memcmp(&threads[k], &more[i], sizeof(*more)) != 0)
            k++;
        if (k == n && n < SL_CONSTRAINT_THREADS_MAX)
            threads[n++] = more[i];
    }
    return n;
}

/* All ways to read the bytes after one thread. They are followed from each thread of the state alone,
 * as the mask does it. Returns where they are, in `from` or `to`. */
static sl__ctr_thread *follow(const sl_constraint *c, sl__pools *pools, sl__ctr_thread *from,
                              sl__ctr_thread *to, const uint8_t *bytes, size_t len, uint32_t *n) {
    sl__ctr_thread stepped[SL_CONSTRAINT_THREADS_MAX];
    for (size_t i = 0; i<len && * n> 0; i++) {
        uint32_t n_to = 0;
        for (uint32_t k = 0; k < *n; k++)
            n_to =
                sl__add_threads(to, n_to, stepped, sl__step(c, pools, &from[k], bytes[i], stepped));
        sl__ctr_thread *other = from;
        from = to;
        to = other;
        *n = n_to;
    }
    return from;
}

static bool keep_keys(const sl__pools *pools, uint32_t keys, sl_constraint_state *out,
                      uint16_t *kept) {
    uint16_t chain[SL_CONSTRAINT_KEYS_THREAD_MAX];
    uint32_t n = 0;
    for (uint32_t i = keys; i != NO_LINK; i = pools->keys[i].previous)
        chain[n++] = (uint16_t)i;
    *kept = NO_LINK;
    while (n > 0) {
        sl__ctr_key key = {.hash = pools->keys[chain[--n]].hash, .previous = *kept};
        uint32_t i = out->n_keys;
        while (i > 0 && memcmp(&out->keys[i - 1], &key, sizeof(key)) != 0)
            i--;
        if (i == 0) {
            if (out->n_keys == SL_CONSTRAINT_KEYS_MAX)
                return false;
            out->keys[out->n_keys++] = key;
            i = out->n_keys;
        }
        *kept = (uint16_t)(i - 1);
    }
    return true;
}

/* Add a thread to a state, with the frames and keys that it needs. Left out when there is no room,
 * which cannot be for the first: it has at most SL_JSON_DEPTH_MAX frames and
 * SL_CONSTRAINT_KEYS_THREAD_MAX keys. */
static void keep_thread(const sl__pools *pools, const sl__ctr_thread *thread,
                        sl_constraint_state *out) {
    uint16_t chain[SL_JSON_DEPTH_MAX];
    uint32_t n = 0;
    sl__ctr_thread kept = *thread;
    for (uint32_t i = thread->parent; i != NO_LINK; i = pools->frames[i].parent)
        chain[n++] = (uint16_t)i;
    kept.parent = NO_LINK;
    while (n > 0) {
        sl__ctr_frame frame = pools->frames[chain[--n]];
        frame.parent = kept.parent;
        if (!keep_keys(pools, frame.keys, out, &frame.keys))
            return;
        uint32_t i = out->n_frames;
        while (i > 0 && memcmp(&out->frames[i - 1], &frame, sizeof(frame)) != 0)
            i--;
        if (i == 0) {
            if (out->n_frames == SL_CONSTRAINT_FRAMES_MAX)
                return;
            out->frames[out->n_frames++] = frame;
            i = out->n_frames;
        }
        kept.parent = (uint16_t)(i - 1);
    }
    if (!keep_keys(pools, kept.keys, out, &kept.keys))
        return;
    out->n_threads = (uint16_t)sl__add_threads(out->threads, out->n_threads, &kept, 1);
}

static void copy_state(const sl_constraint_state *from, sl_constraint_state *to) {
    to->n_threads = from->n_threads;
    to->n_frames = from->n_frames;
    to->n_keys = from->n_keys;
    memcpy(to->threads, from->threads, from->n_threads * sizeof(*to->threads));
    memcpy(to->frames, from->frames, from->n_frames * sizeof(*to->frames));
    memcpy(to->keys, from->keys, from->n_keys * sizeof(*to->keys));
}

/* Follow the bytes from `from`; false when they are not allowed. Where they lead is written to `to`
 * (which may be from) unless that is NULL. With at_end a token ends with them. */
static bool try_bytes(const sl_constraint *c, const sl_constraint_state *from,
                      sl_constraint_work *work, const uint8_t *bytes, size_t len, bool at_end,
                      sl_constraint_state *to) {
    sl__ctr_thread *a = work->threads, *b = a + SL_CONSTRAINT_THREADS_MAX;
    sl_constraint_state *next = &work->next;
    bool any = false;
    next->n_threads = next->n_frames = next->n_keys = 0;
    for (uint32_t i = 0; i < from->n_threads; i++) {
        uint32_t n = 1;
        a[0] = from->threads[i];
        sl__load_pools(from, &work->pools);
        sl__ctr_thread *end = follow(c, &work->pools, a, b, bytes, len, &n);
        for (uint32_t k = 0; k < n; k++) {
            if (at_end && !sl__is_live(c, &end[k]))
                continue;
            any = true;
            if (to)
                keep_thread(&work->pools, &end[k], next);
        }
    }
    if (any && to)
        copy_state(next, to);
    return any;
}

static bool try_token(const sl_constraint *c, const sl_constraint_state *from,
                      sl_constraint_work *work, uint32_t token, sl_constraint_state *to) {
    uint8_t bytes[SL_VOCAB_TOKEN_BYTES_MAX];
    if (token >= c->vocab->n_vocab || c->vocab->rank_of[token] == SL__NONE)
        return false;
    size_t len = sl__vocab_bytes(c->vocab, c->vocab->rank_of[token], bytes);
    return try_bytes(c, from, work, bytes, len, true, to);
}

bool sl_constraint_allows(const sl_constraint *c, const sl_constraint_state *state,
                          sl_constraint_work *work, uint32_t token) {
    if (sl_constraint_is_end(c, token))
        return sl_constraint_is_complete(c, state);
    return try_token(c, state, work, token, NULL);
}

sl_status sl_constraint_accept(const sl_constraint *c, sl_constraint_state *state,
                               sl_constraint_work *work, uint32_t token, sl_error *err) {
    if (!try_token(c, state, work, token, state))
        return sl_fail(err, SL_ERR_STATE, "token %u is not allowed here by the schema", token);
    return SL_OK;
}

sl_status sl_constraint_accept_bytes(const sl_constraint *c, sl_constraint_state *state,
                                     sl_constraint_work *work, const char *bytes, size_t len,
                                     sl_error *err) {
    sl_constraint_state moved;
    copy_state(state, &moved);
    for (size_t at = 0; at < len; at++)
        if (!try_bytes(c, &moved, work, (const uint8_t *)bytes + at, 1, at + 1 == len, &moved))
            return sl_fail(err, SL_ERR_STATE, "byte %zu of the text is not allowed by the schema",
                           at);
    copy_state(&moved, state);
    return SL_OK;
}

bool sl_constraint_is_complete(const sl_constraint *c, const sl_constraint_state *state) {
    for (uint32_t i = 0; i < state->n_threads; i++)
        if (sl__is_complete(c, &state->threads[i]))
            return true;
    return false;
}

bool sl_constraint_is_closed(const sl_constraint *c, const sl_constraint_state *state) {
    (void)c;
    for (uint32_t i = 0; i < state->n_threads; i++)
        if (state->threads[i].mode != SL__MODE_DONE)
            return false;
    return true;
}

bool sl_constraint_is_end(const sl_constraint *c, uint32_t token) {
    for (uint32_t i = 0; i < c->vocab->n_end; i++)
        if (c->vocab->end_ids[i] == token)
            return true;
    return false;
}
