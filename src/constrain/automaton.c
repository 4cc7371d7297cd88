/* Deterministic automata: tabulating a machine, determinizing, products.
 *
 * Everything that becomes a table goes through sl__dfa_build(): it explores the states that can be
 * reached, drops those from which nothing is accepted, and notes from which states acceptance can be
 * reached with tokens of one byte. */
#include "constrain/compile_internal.h"

/* ---- tabulating ---------------------------------------------------------------------------- */

typedef struct explorer {
    sl__compiler *c;
    const sl__machine *machine;
    sl__vector states; /* uint64_t */
    sl__vector next;   /* uint16_t: index of a state or SL__DFA_DEAD, n_classes each */
    uint32_t *table;   /* hash table of states: index + 1 */
    uint32_t n_table;
} explorer;

static uint32_t hash_state(uint64_t state) {
    state *= 0x9e3779b97f4a7c15u;
    return (uint32_t)(state >> 32);
}

static sl_status rehash(explorer *x, uint32_t n_table) {
    sl__compiler *c = x->c;
    x->table = sl__take(c, c->scratch, (size_t)n_table * sizeof(uint32_t), 4);
    if (!x->table)
        return SL_ERR_MEMORY;
    memset(x->table, 0, (size_t)n_table * sizeof(uint32_t));
    x->n_table = n_table;
    const uint64_t *states = x->states.data;
    for (uint32_t i = 0; i < x->states.n; i++) {
        uint32_t at = hash_state(states[i]) & (n_table - 1);
        while (x->table[at])
            at = (at + 1) & (n_table - 1);
        x->table[at] = i + 1;
    }
    return SL_OK;
}

static sl_status index_of(explorer *x, uint64_t state, uint32_t *index) {
    const uint64_t *states = x->states.data;
    uint32_t at = hash_state(state) & (x->n_table - 1);
    for (; x->table[at]; at = (at + 1) & (x->n_table - 1)) {
        *index = x->table[at] - 1;
        if (states[*index] == state)
            return SL_OK;
    }
    *index = x->states.n;
    if (*index >= x->c->limits->n_states_max || *index >= SL__DFA_DEAD - 1u)
        return sl__refuse(x->c, x->c->at, x->c->keyword,
                          "needs an automaton of more than %u states",
                          SL_MIN(x->c->limits->n_states_max, SL__DFA_DEAD - 1u));
    uint64_t *place = sl__vector_add(x->c, &x->states, 1, sizeof(uint64_t));
    if (!place)
        return SL_ERR_MEMORY;
    *place = state;
    if (2 * x->states.n > x->n_table)
        return rehash(x, 2 * x->n_table);
    x->table[at] = *index + 1;
    return SL_OK;
}

static sl_status explore(explorer *x) {
    const sl__machine *m = x->machine;
    uint32_t index;
    uint8_t byte_of[256];
    for (int b = 255; b >= 0; b--)
        byte_of[m->class_of[b]] = (uint8_t)b;
    sl_status st = rehash(x, 64);
    if (!st)
        st = index_of(x, m->start, &index);
    for (uint32_t i = 0; !st && i < x->states.n; i++) {
        uint16_t *row = sl__vector_add(x->c, &x->next, m->n_classes, sizeof(uint16_t));
        if (!row)
            return SL_ERR_MEMORY;
        st = sl__spend(x->c, m->n_classes);
        for (uint32_t k = 0; !st && k < m->n_classes; k++) {
            uint64_t from = ((const uint64_t *)x->states.data)[i];
            uint64_t to = m->step(m->ctx, from, byte_of[k], &st);
            index = SL__DFA_DEAD;
            if (!st && to != SL__DEAD)
                st = index_of(x, to, &index);
            row[k] = (uint16_t)index;
        }
    }
    return st;
}

// reaches[i]: from state i acceptance is reached through the classes of allowed[].
static sl_status find_reaching(explorer *x, const bool *allowed, bool *reaches) {
    const uint16_t *next = x->next.data;
    const uint64_t *states = x->states.data;
    uint32_t n = x->states.n, n_classes = x->machine->n_classes;
    for (uint32_t i = 0; i < n; i++)
        reaches[i] = x->machine->accepts(x->machine->ctx, states[i]);
    for (bool changed = true; changed;) {
        changed = false;
        sl_status st = sl__spend(x->c, (uint64_t)n * n_classes / 4);
        if (st)
            return st;
        for (uint32_t i = n; i-- > 0;)
            for (uint32_t k = 0; k < n_classes && !reaches[i]; k++) {
                uint16_t to = next[(size_t)i * n_classes + k];
                if (allowed[k] && to != SL__DFA_DEAD && reaches[to])
                    changed = reaches[i] = true;
            }
    }
    return SL_OK;
}

static sl_status emit(explorer *x, const bool *reaches, const bool *live, sl_arena *arena,
                      sl__dfa *out) {
    sl__compiler *c = x->c;
    const sl__machine *m = x->machine;
    const uint16_t *from = x->next.data;
    const uint64_t *states = x->states.data;
    uint32_t n = 0, n_classes = m->n_classes;
    uint32_t *new_index = sl__take(c, c->scratch, x->states.n * sizeof(uint32_t), 4);
    if (!new_index)
        return SL_ERR_MEMORY;
    for (uint32_t i = 0; i < x->states.n; i++)
        new_index[i] = reaches[i] ? n++ : SL__NONE;
    c->n_states += n;
    if (c->n_states > c->limits->n_states_max)
        return sl__refuse(c, c->at, c->keyword, "brings the automata to more than %u states",
                          c->limits->n_states_max);
    uint8_t *class_of = sl__take(c, arena, 256, 1);
    uint16_t *next = class_of ? sl__take(c, arena, (size_t)n * n_classes * 2, 2) : NULL;
    uint8_t *flags = next ? sl__take(c, arena, n, 1) : NULL;
    if (!flags)
        return SL_ERR_MEMORY;
    memcpy(class_of, m->class_of, 256);
    for (uint32_t i = 0; i < x->states.n; i++) {
        if (!reaches[i])
            continue;
        uint8_t flag = (uint8_t)((m->accepts(m->ctx, states[i]) ? SL__DFA_ACCEPT : 0) |
                                 (live[i] ? SL__DFA_LIVE : 0));
        for (uint32_t k = 0; k < n_classes; k++) {
            uint16_t to = from[(size_t)i * n_classes + k];
            bool kept = to != SL__DFA_DEAD && reaches[to];
            next[(size_t)new_index[i] * n_classes + k] =
                kept ? (uint16_t)new_index[to] : SL__DFA_DEAD;
            flag |= kept ? SL__DFA_MORE : 0;
        }
        flags[new_index[i]] = flag;
    }
    *out = (sl__dfa){
        .n_states = n, .n_classes = n_classes, .class_of = class_of, .next = next, .flags = flags};
    return SL_OK;
}

static const void *move_down(sl_arena *arena, const void *from, size_t bytes) {
    if (!from)
        return NULL;
    void *to = arena->base + arena->used;
    memmove(to, from, bytes);
    arena->used += SL_ALIGN_UP(bytes, 8);
    return to;
}

void sl__dfa_settle(sl__compiler *c, size_t mark, const sl_arena *arena, sl__dfa *dfa) {
    sl_arena_reset(c->scratch, mark);
    if (arena != c->scratch || !dfa->next)
        return;
    // The parts lie above the mark in this order, so that none is overwritten before it is moved.
    size_t n = dfa->n_states;
    c->scratch->used += (size_t)(-(uintptr_t)(c->scratch->base + mark) & 7);
    dfa->class_of = move_down(c->scratch, dfa->class_of, 256);
    dfa->next = move_down(c->scratch, dfa->next, n * dfa->n_classes * sizeof(*dfa->next));
    dfa->flags = move_down(c->scratch, dfa->flags, n);
    dfa->alike = move_down(c->scratch, dfa->alike, n * sizeof(*dfa->alike));
}

sl_status sl__dfa_build(sl__compiler *c, const sl__machine *machine, sl_arena *arena,
                        sl__dfa *out) {
    explorer x = {.c = c, .machine = machine};
    bool all[256], single[256] = {false};
    size_t mark = sl_arena_mark(c->scratch);
    memset(out, 0, sizeof(*out));
    sl_status st = explore(&x);
    bool *reaches = st ? NULL : sl__take(c, c->scratch, 2 * (size_t)x.states.n, 1);
    if (!st && !reaches)
        st = SL_ERR_MEMORY;
    if (st)
        return st;
    bool *live = reaches + x.states.n;
    memset(all, true, sizeof(all));
    for (unsigned b = 0; b < 256; b++)
        single[machine->class_of[b]] |= !c->vocab || c->vocab->has_byte[b];
    st = find_reaching(&x, all, reaches);
    if (!st)
        st = find_reaching(&x, single, live);
    if (!st && reaches[0] && live[0])
        st = emit(&x, reaches, live, arena, out);
    sl__dfa_settle(c, mark, arena, out);
    return st;
}

void sl__classes_from_splits(const bool splits[257], sl__machine *machine) {
    uint32_t class = 0;
    for (unsigned b = 0; b < 256; b++) {
        class += b > 0 && splits[b];
        machine->class_of[b] = (uint8_t) class;
    }
    machine->n_classes = class + 1;
}

bool sl__dfa_accepts(const sl__dfa *dfa, const uint8_t *bytes, size_t len) {
    uint16_t state = 0;
    if (!dfa->next)
        return false;
    for (size_t i = 0; i < len; i++) {
        state = dfa->next[state * dfa->n_classes + dfa->class_of[bytes[i]]];
        if (state == SL__DFA_DEAD)
            return false;
    }
    return dfa->flags[state] & SL__DFA_ACCEPT;
}

/* ---- products ------------------------------------------------------------------------------ */

static void split_by(const sl__dfa *dfa, bool splits[257]) {
    for (unsigned b = 1; b < 256; b++)
        splits[b] |= dfa->class_of[b] != dfa->class_of[b - 1];
}

static uint16_t next_of(const sl__dfa *dfa, uint64_t state, uint8_t byte) {
    return dfa->next[state * dfa->n_classes + dfa->class_of[byte]];
}

typedef struct pair {
    const sl__dfa *a, *b;
    uint32_t min, max; // of the limit
} pair;

static uint64_t step_pair(void *ctx, uint64_t state, uint8_t byte, sl_status *status) {
    const pair *p = ctx;
    (void)status;
    uint16_t a = next_of(p->a, state >> 32, byte), b = next_of(p->b, (uint32_t)state, byte);
    return a == SL__DFA_DEAD || b == SL__DFA_DEAD ? SL__DEAD : (uint64_t)a << 32 | b;
}

static bool pair_accepts(void *ctx, uint64_t state) {
    const pair *p = ctx;
    return p->a->flags[state >> 32] & p->b->flags[(uint32_t)state] & SL__DFA_ACCEPT;
}

sl_status sl__dfa_intersect(sl__compiler *c, const sl__dfa *a, const sl__dfa *b, sl_arena *arena,
                            sl__dfa *out) {
    pair p = {.a = a, .b = b};
    sl__machine m = {.ctx = &p, .step = step_pair, .accepts = pair_accepts};
    bool splits[257] = {false};
    memset(out, 0, sizeof(*out));
    if (!a->next || !b->next)
        return SL_OK;
    split_by(a, splits);
    split_by(b, splits);
    sl__classes_from_splits(splits, &m);
    return sl__dfa_build(c, &m, arena, out);
}

/* A state of the limit: the state of a, the characters begun, and how many bytes of the last one are
 * to come: a canonical spelling has escapes of two bytes, \u00xx, and UTF-8. */
#define PENDING_ESCAPE 15u

static uint64_t step_limit(void *ctx, uint64_t state, uint8_t byte, sl_status *status) {
    const pair *p = ctx;
    uint32_t n = (uint32_t)(state >> 8) & 0xffffff, pending = (uint32_t)state & 0xff;
    (void)status;
    uint16_t a = next_of(p->a, state >> 32, byte);
    if (a == SL__DFA_DEAD)
        return SL__DEAD;
    if (pending == PENDING_ESCAPE) {
        pending = byte == 'u' ? 4 : 0;
    } else if (pending > 0) {
        pending--;
    } else {
        n++;
        pending = byte == '\\'  ? PENDING_ESCAPE
                  : byte < 0xc0 ? 0
                  : byte < 0xe0 ? 1
                  : byte < 0xf0 ? 2
                                : 3;
        if (n > p->max)
            return SL__DEAD;
        if (p->max == SL__NONE && n > p->min)
            n = p->min; // more does not matter
    }
    return (uint64_t)a << 32 | (uint64_t)n << 8 | pending;
}

static bool limit_accepts(void *ctx, uint64_t state) {
    const pair *p = ctx;
    return (p->a->flags[state >> 32] & SL__DFA_ACCEPT) && ((state >> 8) & 0xffffff) >= p->min;
}

sl_status sl__dfa_limit(sl__compiler *c, const sl__dfa *a, uint32_t min, uint32_t max,
                        sl_arena *arena, sl__dfa *out) {
    pair p = {.a = a, .min = min, .max = max};
    sl__machine m = {.ctx = &p, .step = step_limit, .accepts = limit_accepts};
    bool splits[257] = {false};
    memset(out, 0, sizeof(*out));
    if (!a->next)
        return SL_OK;
    split_by(a, splits);
    splits['u'] = splits['u' + 1] = splits['\\'] = splits['\\' + 1] = true;
    splits[0xc0] = splits[0xe0] = splits[0xf0] = true;
    sl__classes_from_splits(splits, &m);
    return sl__dfa_build(c, &m, arena, out);
}

#define QUOTE_START (UINT64_MAX - 1)
#define QUOTE_END (UINT64_MAX - 2)

static uint64_t step_quote(void *ctx, uint64_t state, uint8_t byte, sl_status *status) {
    const sl__dfa *body = ctx;
    (void)status;
    if (state == QUOTE_START)
        return byte == '"' ? 0 : SL__DEAD;
    if (state == QUOTE_END)
        return SL__DEAD;
    uint16_t next = next_of(body, state, byte);
    if (next != SL__DFA_DEAD)
        return next;
    // A quote inside a body follows its backslash, and there no body ends.
    return byte == '"' && (body->flags[state] & SL__DFA_ACCEPT) ? QUOTE_END : SL__DEAD;
}

static bool quote_accepts(void *ctx, uint64_t state) {
    (void)ctx;
    return state == QUOTE_END;
}

/* Where each state stands in the string: bits of SL__STR_*, for all ways that lead to it. */
static sl_status find_places(sl__compiler *c, const sl__dfa *dfa, uint32_t *places) {
    memset(places, 0, dfa->n_states * sizeof(*places));
    places[next_of(dfa, 0, '"')] = 1u << SL__STR_BODY;
    for (bool changed = true; changed;) {
        changed = false;
        sl_status st = sl__spend(c, (uint64_t)dfa->n_states * 64);
        if (st)
            return st;
        for (uint32_t i = 0; i < dfa->n_states; i++)
            for (unsigned b = 0; places[i] && b < 256; b++) {
                uint16_t to = next_of(dfa, i, (uint8_t)b);
                if (to == SL__DFA_DEAD)
                    continue;
                uint32_t more = 0;
                for (unsigned p = 0; p < SL__STR_N; p++)
                    if (places[i] >> p & 1 && c->vocab->string_next[p][b] < SL__STR_N)
                        more |= 1u << c->vocab->string_next[p][b];
                changed |= (places[to] | more) != places[to];
                places[to] |= more;
            }
    }
    return SL_OK;
}

// Whether a plain text may have this byte at one of the places.
static bool is_plain_byte(const sl_vocab *vocab, uint32_t places, uint8_t byte) {
    for (unsigned p = 0; p < SL__STR_N; p++)
        if (places >> p & 1 && vocab->string_next[p][byte] < SL__STR_N && byte != '\\' &&
            !(p == SL__STR_E280 && (byte & 0xfe) == 0xa8))
            return true;
    return false;
}

/* Mark the states that stand between two characters, and those of them that allow all plain texts of
 * SL__ALIKE_BYTES: `reach` counts the bytes for which that is certain, going down until it holds. */
static sl_status mark_bodies(sl__compiler *c, const sl__dfa *dfa, uint8_t *flags) {
    uint32_t n = dfa->n_states;
    uint32_t *places = sl__take(c, c->scratch, n * sizeof(*places), 4);
    uint8_t *reach = places ? sl__take(c, c->scratch, n, 1) : NULL;
    if (!reach)
        return SL_ERR_MEMORY;
    memset(reach, SL__ALIKE_BYTES, n);
    sl_status st = find_places(c, dfa, places);
    for (bool changed = true; !st && changed;) {
        changed = false;
        st = sl__spend(c, (uint64_t)n * 64);
        for (uint32_t i = n; i-- > 0;)
            for (unsigned b = 0; b < 256 && reach[i] > 0; b++) {
                uint16_t to = next_of(dfa, i, (uint8_t)b);
                uint8_t most = to == SL__DFA_DEAD ? 0 : (uint8_t)(reach[to] + 1);
                if (most < reach[i] && is_plain_byte(c->vocab, places[i], (uint8_t)b)) {
                    reach[i] = most;
                    changed = true;
                }
            }
    }
    for (uint32_t i = 0; i < n; i++)
        if (places[i] == 1u << SL__STR_BODY)
            flags[i] |=
                SL__DFA_BODY |
                (reach[i] == SL__ALIKE_BYTES && c->vocab->has_all_bytes ? SL__DFA_PLAIN : 0);
    return st;
}

static uint32_t hash_row(const sl__dfa *dfa, const uint16_t *group, uint32_t state) {
    uint32_t hash = group[state] + 1u;
    for (uint32_t k = 0; k < dfa->n_classes; k++) {
        uint16_t to = dfa->next[state * dfa->n_classes + k];
        hash = (hash ^ (to == SL__DFA_DEAD ? to : group[to])) * 0x01000193u;
    }
    return hash ^ hash >> 15;
}

static bool rows_equal(const sl__dfa *dfa, const uint16_t *group, uint32_t a, uint32_t b) {
    for (uint32_t k = 0; k < dfa->n_classes; k++) {
        uint16_t x = dfa->next[a * dfa->n_classes + k], y = dfa->next[b * dfa->n_classes + k];
        if (x != y && (x == SL__DFA_DEAD || y == SL__DFA_DEAD || group[x] != group[y]))
            return false;
    }
    return group[a] == group[b];
}

/* Groups of states that cannot be told apart by texts of up to SL__ALIKE_BYTES: Moore's refinement,
 * one round for each byte. */
static sl_status find_alike(sl__compiler *c, const sl__dfa *dfa, uint16_t *group) {
    uint32_t n = dfa->n_states, n_groups = 0, n_table = 64;
    while (n_table < 2 * n)
        n_table *= 2;
    uint16_t *next = sl__take(c, c->scratch, n * sizeof(*next), 2);
    uint32_t *table = next ? sl__take(c, c->scratch, n_table * sizeof(*table), 4) : NULL;
    if (!table)
        return SL_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        group[i] = dfa->flags[i];
    for (unsigned round = 0; round < SL__ALIKE_BYTES; round++) {
        uint32_t n_next = 0;
        sl_status st = sl__spend(c, (uint64_t)n * dfa->n_classes / 2);
        if (st)
            return st;
        memset(table, 0, n_table * sizeof(*table));
        for (uint32_t i = 0; i < n; i++) {
            uint32_t at = hash_row(dfa, group, i) & (n_table - 1);
            while (table[at] && !rows_equal(dfa, group, table[at] - 1, i))
                at = (at + 1) & (n_table - 1);
            if (!table[at]) {
                table[at] = i + 1;
                next[i] = (uint16_t)n_next++;
            } else {
                next[i] = next[table[at] - 1];
            }
        }
        memcpy(group, next, n * sizeof(*next));
        if (round > 0 && n_next == n_groups)
            break;
        n_groups = n_next;
    }
    return SL_OK;
}

sl_status sl__dfa_quote(sl__compiler *c, const sl__dfa *body, sl_arena *arena, sl__dfa *out) {
    sl__machine m = {.ctx = (void *)(uintptr_t)body,
                     .start = QUOTE_START,
                     .step = step_quote,
                     .accepts = quote_accepts};
    bool splits[257] = {false};
    memset(out, 0, sizeof(*out));
    if (!body->next)
        return SL_OK;
    split_by(body, splits);
    splits['"'] = splits['"' + 1] = true;
    sl__classes_from_splits(splits, &m);
    size_t mark = sl_arena_mark(c->scratch);
    sl_status st = sl__dfa_build(c, &m, arena, out);
    if (st || !out->next)
        return st;
    uint8_t *flags = sl__take(c, arena, out->n_states, 1);
    uint16_t *alike = flags ? sl__take(c, arena, out->n_states * sizeof(*alike), 2) : NULL;
    if (!alike)
        return SL_ERR_MEMORY;
    memcpy(flags, out->flags, out->n_states);
    st = mark_bodies(c, out, flags);
    out->flags = flags;
    if (!st)
        st = find_alike(c, out, alike);
    out->alike = alike;
    sl__dfa_settle(c, mark, arena, out);
    return st;
}

/* ---- determinizing ------------------------------------------------------------------------- */

sl_status sl__nfa_add(sl__compiler *c, sl__nfa *nfa, sl__nfa_kind kind, uint8_t lo, uint8_t hi,
                      uint32_t a, uint32_t b, uint32_t *out) {
    sl_status st = sl__spend(c, 1);
    if (st)
        return st;
    sl__nfa_state *s = sl__vector_add(c, &nfa->states, 1, sizeof(*s));
    if (!s)
        return SL_ERR_MEMORY;
    *s = (sl__nfa_state){.kind = (uint8_t)kind, .lo = lo, .hi = hi, .a = a, .b = b};
    *out = nfa->states.n - 1;
    return SL_OK;
}

typedef struct subset { // of the states of an automaton: members[first .. first + n - 1], ascending
    uint32_t first, n, hash;
    bool accepts, at_start;
} subset;

typedef struct subsets {
    sl__compiler *c;
    const sl__nfa *nfa;
    sl__vector sets;    // subset
    sl__vector members; // uint32_t
    uint32_t *stack;    // [n states]
    uint32_t *marks;    // [n states]: the round in which a state was reached
    uint32_t *reached;  // [n states]: those reached in this round
    uint32_t n_reached, round;
    uint32_t *table; // hash table: set + 1
    uint32_t n_table;
} subsets;

static void begin_round(subsets *s) {
    s->round++;
    s->n_reached = 0;
}

static void mark_state(subsets *s, uint32_t state, uint32_t *n_stack) {
    if (state == SL__NONE || s->marks[state] == s->round)
        return;
    s->marks[state] = s->round;
    s->reached[s->n_reached++] = state;
    s->stack[(*n_stack)++] = state;
}

// Mark what is reached from state without reading. Returns whether acceptance is among it.
static bool close_over(subsets *s, uint32_t state, bool at_start, bool at_end) {
    const sl__nfa_state *states = s->nfa->states.data;
    uint32_t n = 0;
    bool accepts = false;
    mark_state(s, state, &n);
    while (n > 0) {
        const sl__nfa_state *at = &states[s->stack[--n]];
        s->c->n_steps++;
        accepts |= at->kind == SL__NFA_ACCEPT;
        if (at->kind == SL__NFA_SPLIT || (at->kind == SL__NFA_BEGIN && at_start) ||
            (at->kind == SL__NFA_END && at_end)) {
            mark_state(s, at->a, &n);
            mark_state(s, at->b, &n);
        }
    }
    return accepts;
}

// The states of this round in ascending order, in reached[].
static void sort_reached(subsets *s) {
    uint32_t n_states = s->nfa->states.n, *r = s->reached;
    s->c->n_steps += s->n_reached;
    if (s->n_reached > n_states / 32) { // many: all states are looked at
        s->c->n_steps += n_states / 16;
        s->n_reached = 0;
        for (uint32_t i = 0; i < n_states; i++)
            if (s->marks[i] == s->round)
                r[s->n_reached++] = i;
        return;
    }
    for (uint32_t gap = s->n_reached > 16 ? 13 : 1; gap > 0; gap = gap > 4 ? 4 : gap > 1 ? 1 : 0)
        for (uint32_t i = gap; i < s->n_reached; i++)
            for (uint32_t k = i; k >= gap && r[k - gap] > r[k]; k -= gap) {
                uint32_t other = r[k];
                r[k] = r[k - gap];
                r[k - gap] = other;
            }
}

static sl_status rehash_sets(subsets *s, uint32_t n_table) {
    s->table = sl__take(s->c, s->c->scratch, (size_t)n_table * 4, 4);
    if (!s->table)
        return SL_ERR_MEMORY;
    memset(s->table, 0, (size_t)n_table * 4);
    s->n_table = n_table;
    const subset *sets = s->sets.data;
    for (uint32_t i = 0; i < s->sets.n; i++) {
        uint32_t at = sets[i].hash & (n_table - 1);
        while (s->table[at])
            at = (at + 1) & (n_table - 1);
        s->table[at] = i + 1;
    }
    return SL_OK;
}

/* The subset that was reached in this round: states that read or assert, and acceptance. When one of
 * them accepts any text, the others add nothing. */
static sl_status intern(subsets *s, bool at_start, uint64_t *out) {
    const sl__nfa_state *states = s->nfa->states.data;
    uint32_t first = s->members.n, hash = SL__HASH_START + at_start;
    if (s->nfa->rest != SL__NONE && s->marks[s->nfa->rest] == s->round) {
        begin_round(s);
        (void)close_over(s, s->nfa->rest, false, false);
    }
    sort_reached(s);
    for (uint32_t i = 0; i < s->n_reached; i++) {
        if (states[s->reached[i]].kind == SL__NFA_SPLIT)
            continue;
        uint32_t *member = sl__vector_add(s->c, &s->members, 1, sizeof(*member));
        if (!member)
            return SL_ERR_MEMORY;
        *member = s->reached[i];
        hash = (hash ^ *member) * 0x01000193u;
        hash ^= hash >> 15;
    }
    uint32_t n = s->members.n - first;
    const uint32_t *members = s->members.data;
    const subset *sets = s->sets.data;
    if (n == 0) {
        *out = SL__DEAD;
        return SL_OK;
    }
    uint32_t at = hash & (s->n_table - 1);
    for (; s->table[at]; at = (at + 1) & (s->n_table - 1)) {
        const subset *set = &sets[s->table[at] - 1];
        if (set->hash == hash && set->n == n && set->at_start == at_start &&
            memcmp(members + set->first, members + first, n * sizeof(*members)) == 0) {
            s->members.n = first;
            *out = s->table[at] - 1;
            return SL_OK;
        }
    }
    subset *set = sl__vector_add(s->c, &s->sets, 1, sizeof(*set));
    if (!set)
        return SL_ERR_MEMORY;
    *set = (subset){.first = first, .n = n, .hash = hash, .at_start = at_start};
    begin_round(s);
    for (uint32_t i = 0; i < n; i++)
        set->accepts |= close_over(s, members[first + i], at_start, true);
    *out = s->sets.n - 1;
    s->table[at] = s->sets.n;
    return 2 * s->sets.n > s->n_table ? rehash_sets(s, 2 * s->n_table) : SL_OK;
}

static uint64_t step_subset(void *ctx, uint64_t state, uint8_t byte, sl_status *status) {
    subsets *s = ctx;
    const sl__nfa_state *states = s->nfa->states.data;
    const subset set = ((const subset *)s->sets.data)[state];
    const uint32_t *members = s->members.data;
    uint64_t out = SL__DEAD;
    begin_round(s);
    *status = sl__spend(s->c, set.n / 4);
    for (uint32_t i = 0; !*status && i < set.n; i++) {
        const sl__nfa_state *at = &states[members[set.first + i]];
        if (at->kind == SL__NFA_BYTE && at->lo <= byte && byte <= at->hi)
            (void)close_over(s, at->a, false, false);
    }
    if (!*status)
        *status = intern(s, false, &out);
    return out;
}

static bool subset_accepts(void *ctx, uint64_t state) {
    const subsets *s = ctx;
    return ((const subset *)s->sets.data)[state].accepts;
}

sl_status sl__nfa_determinize(sl__compiler *c, sl__nfa *nfa, sl_arena *arena, sl__dfa *out) {
    size_t mark = sl_arena_mark(c->scratch), bytes = nfa->states.n * sizeof(uint32_t);
    subsets s = {.c = c, .nfa = nfa};
    sl__machine m = {.ctx = &s, .step = step_subset, .accepts = subset_accepts};
    bool splits[257] = {false};
    const sl__nfa_state *states = nfa->states.data;
    s.stack = sl__take(c, c->scratch, bytes, 4);
    s.marks = s.stack ? sl__take(c, c->scratch, bytes, 4) : NULL;
    s.reached = s.marks ? sl__take(c, c->scratch, bytes, 4) : NULL;
    if (!s.reached)
        return SL_ERR_MEMORY;
    memset(s.marks, 0, bytes);
    for (uint32_t i = 0; i < nfa->states.n; i++)
        if (states[i].kind == SL__NFA_BYTE)
            splits[states[i].lo] = splits[states[i].hi + 1] = true;
    sl__classes_from_splits(splits, &m);
    sl_status st = rehash_sets(&s, 64);
    if (st)
        return st;
    begin_round(&s);
    (void)close_over(&s, nfa->start, true, false);
    st = intern(&s, true, &m.start);
    if (!st)
        st = sl__dfa_build(c, &m, arena, out);
    sl__dfa_settle(c, mark, arena, out);
    return st;
}
