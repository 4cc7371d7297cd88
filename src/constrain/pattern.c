/* Patterns and formats of strings: a regular expression is parsed into a tree, and the tree becomes a
 * nondeterministic automaton over the bytes of the JSON string's body.
 *
 * The language is ECMA 262 with the flag u: alternatives, groups, greedy and lazy quantifiers, classes,
 * . ^ $ \d \w \s \D \W \S, escapes of single characters. Refused: references back, looking ahead or
 * behind, word boundaries, properties of Unicode. A pattern is searched for, as JSON Schema says: it
 * need not match the whole string. */
#include "constrain/compile_internal.h"
#include "text/utf8.h"

#define GROUP_DEPTH_MAX 32
#define REPEAT_MAX 1000u
#define NFA_STATES_MAX 60000u
#define CODE_POINT_MAX 0x10ffffu

typedef struct range {
    uint32_t lo, hi;
} range;

typedef enum node_kind {
    NODE_CLASS,
    NODE_SEQUENCE,
    NODE_CHOICE,
    NODE_REPEAT,
    NODE_BEGIN,
    NODE_END
} node_kind;

typedef struct node node;
struct node {
    node_kind kind;
    uint32_t min, max; /* REPEAT; max SL__NONE: no limit */
    const range *ranges;
    uint32_t n_ranges; /* CLASS */
    node *child;       /* REPEAT: the repeated; SEQUENCE, CHOICE: the last */
    node *before;      /* the sibling before this one */
};

typedef struct parser {
    sl__compiler *c;
    const uint8_t *start, *at, *end;
    uint32_t depth;
} parser;

/* ---- parsing ------------------------------------------------------------------------------- */

static sl_status bad(parser *p, const char *what) {
    return sl__refuse(p->c, p->c->at, p->c->keyword, "%s, at byte %zu of '%.*s'", what,
                      (size_t)(p->at - p->start), (int)SL_MIN(p->end - p->start, 100),
                      (const char *)p->start);
}

static sl_status new_node(parser *p, node_kind kind, node **out) {
    sl_status st = sl__spend(p->c, 4);
    if (st)
        return st;
    *out = sl__take(p->c, p->c->scratch, sizeof(**out), 8);
    if (!*out)
        return SL_ERR_MEMORY;
    memset(*out, 0, sizeof(**out));
    (*out)->kind = kind;
    return SL_OK;
}

static bool is_next(const parser *p, char c) {
    return p->at < p->end && *p->at == (uint8_t)c;
}

static bool take(parser *p, char c) {
    if (!is_next(p, c))
        return false;
    p->at++;
    return true;
}

static sl_status add_range(parser *p, sl__vector *set, uint32_t lo, uint32_t hi) {
    range *r = sl__vector_add(p->c, set, 1, sizeof(*r));
    if (!r)
        return SL_ERR_MEMORY;
    *r = (range){lo, hi};
    return SL_OK;
}

static const range digits[] = {{'0', '9'}};
static const range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const range spaces[] = {
    {9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// Ascending, joined where they touch, without surrogates, which no JSON text holds.
static void normalize(sl__vector *set) {
    range *r = set->data;
    uint32_t n = 0;
    for (uint32_t i = 1; i < set->n; i++)
        for (uint32_t k = i; k > 0 && r[k - 1].lo > r[k].lo; k--) {
            range other = r[k];
            r[k] = r[k - 1];
            r[k - 1] = other;
        }
    for (uint32_t i = 0; i < set->n; i++) {
        if (n > 0 && r[i].lo <= r[n - 1].hi + 1)
            r[n - 1].hi = SL_MAX(r[n - 1].hi, r[i].hi);
        else
            r[n++] = r[i];
    }
    set->n = n;
}

static sl_status add_complement(parser *p, sl__vector *set, const range *r, uint32_t n) {
    uint32_t from = 0;
    for (uint32_t i = 0; i <= n; i++) {
        uint32_t to = i < n ? r[i].lo : CODE_POINT_MAX + 1;
        sl_status st = from < to ? add_range(p, set, from, to - 1) : SL_OK;
        if (st)
            return st;
        from = i < n ? r[i].hi + 1 : 0;
    }
    return SL_OK;
}

static sl_status add_named(parser *p, sl__vector *set, uint8_t name) {
    const range *r = name == 'd' || name == 'D'   ? digits
                     : name == 'w' || name == 'W' ? words
                                                  : spaces;
    uint32_t n = r == digits ? SL_COUNT(digits) : r == words ? SL_COUNT(words) : SL_COUNT(spaces);
    if (name < 'a')
        return add_complement(p, set, r, n);
    for (uint32_t i = 0; i < n; i++) {
        sl_status st = add_range(p, set, r[i].lo, r[i].hi);
        if (st)
            return st;
    }
    return SL_OK;
}

static sl_status take_hex(parser *p, unsigned n, uint32_t *cp) {
    *cp = 0;
    for (unsigned i = 0; i < n; i++, p->at++) {
        uint8_t c = p->at < p->end ? *p->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return bad(p, "an escape lacks hexadecimal digits");
        *cp = *cp * 16 + (uint32_t)digit;
    }
    return SL_OK;
}

static sl_status take_unicode(parser *p, uint32_t *cp) {
    if (!take(p, '{')) {
        sl_status st = take_hex(p, 4, cp);
        if (st || *cp < 0xd800 || *cp > 0xdfff)
            return st;
        uint32_t low;
        if (*cp >= 0xdc00 || !take(p, '\\') || !take(p, 'u'))
            return bad(p, "half a surrogate pair is no character");
        st = take_hex(p, 4, &low);
        if (st)
            return st;
        if (low < 0xdc00 || low > 0xdfff)
            return bad(p, "half a surrogate pair is no character");
        *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        return SL_OK;
    }
    *cp = 0;
    for (unsigned n = 0; !take(p, '}'); n++) {
        uint32_t digit;
        sl_status st = take_hex(p, 1, &digit);
        if (st)
            return st;
        *cp = *cp * 16 + digit;
        if (*cp > CODE_POINT_MAX || n > 16)
            return bad(p, "there is no such character");
    }
    if (*cp >= 0xd800 && *cp <= 0xdfff)
        return bad(p, "half a surrogate pair is no character");
    return SL_OK;
}

/* After a backslash: a single character (*cp), or a class added to set (*cp = SL__NONE). */
static sl_status take_escape(parser *p, sl__vector *set, uint32_t *cp) {
    if (p->at == p->end)
        return bad(p, "the pattern ends after a backslash");
    uint8_t e = *p->at++;
    *cp = e;
    switch (e) {
    case 'd':
    case 'w':
    case 's':
    case 'D':
    case 'W':
    case 'S':
        *cp = SL__NONE;
        return add_named(p, set, e);
    case 'n':
        *cp = '\n';
        return SL_OK;
    case 'r':
        *cp = '\r';
        return SL_OK;
    case 't':
        *cp = '\t';
        return SL_OK;
    case 'v':
        *cp = '\v';
        return SL_OK;
    case 'f':
        *cp = '\f';
        return SL_OK;
    case '0':
        *cp = 0;
        return p->at < p->end && *p->at >= '0' && *p->at <= '9'
                   ? bad(p, "octal escapes are not supported")
                   : SL_OK;
    case 'x':
        return take_hex(p, 2, cp);
    case 'u':
        return take_unicode(p, cp);
    default:
        break;
    }
    if (e >= 0x80 || (e >= '0' && e <= '9') || (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z')) {
        p->at--;
        return bad(p, "this escape is not supported");
    }
    return SL_OK;
}

static sl_status take_character(parser *p, sl__vector *set, uint32_t *cp) {
    if (take(p, '\\'))
        return take_escape(p, set, cp);
    p->at += sl_utf8_decode_valid(p->at, cp);
    return SL_OK;
}

static sl_status finish_class(parser *p, sl__vector *set, node **out) {
    sl_status st = new_node(p, NODE_CLASS, out);
    if (st)
        return st;
    (*out)->ranges = set->data;
    (*out)->n_ranges = set->n;
    return SL_OK;
}

// After '['.
static sl_status parse_class(parser *p, node **out) {
    sl__vector set = {0}, complement = {0};
    sl_status st;
    bool negated = take(p, '^');
    while (!take(p, ']')) {
        uint32_t lo, hi;
        if (p->at == p->end)
            return bad(p, "a class has no end");
        bool escaped_b = p->end - p->at >= 2 && p->at[0] == '\\' && p->at[1] == 'b';
        if (escaped_b) {
            p->at += 2;
            lo = '\b';
        } else {
            st = take_character(p, &set, &lo);
            if (st)
                return st;
        }
        hi = lo;
        if (is_next(p, '-') && p->end - p->at >= 2 && p->at[1] != ']') {
            p->at++;
            st = take_character(p, &set, &hi);
            if (st)
                return st;
            if (lo == SL__NONE || hi == SL__NONE || lo > hi)
                return bad(p, "a range in a class has no order");
        }
        st = lo == SL__NONE ? SL_OK : add_range(p, &set, lo, hi);
        if (st || (st = sl__spend(p->c, set.n)))
            return st;
    }
    normalize(&set);
    if (!negated)
        return finish_class(p, &set, out);
    st = add_complement(p, &complement, set.data, set.n);
    return st ? st : finish_class(p, &complement, out);
}

static sl_status parse_choice(parser *p, node **out);

// After '('.
static sl_status parse_group(parser *p, node **out) {
    if (take(p, '?')) {
        if (is_next(p, '<') && p->end - p->at >= 2 && p->at[1] != '=' && p->at[1] != '!') {
            while (p->at < p->end && *p->at != '>')
                p->at++; // a name
            p->at += p->at < p->end;
        } else if (!take(p, ':')) {
            return bad(p, "looking ahead or behind is not supported");
        }
    }
    if (++p->depth > GROUP_DEPTH_MAX)
        return bad(p, "groups are nested too deeply");
    sl_status st = parse_choice(p, out);
    if (st)
        return st;
    p->depth--;
    return take(p, ')') ? SL_OK : bad(p, "a group has no end");
}

static sl_status parse_atom(parser *p, node **out) {
    sl__vector set = {0};
    sl_status st;
    uint32_t cp;
    switch (*p->at) {
    case '(':
        p->at++;
        return parse_group(p, out);
    case '[':
        p->at++;
        return parse_class(p, out);
    case '^':
        p->at++;
        return new_node(p, NODE_BEGIN, out);
    case '$':
        p->at++;
        return new_node(p, NODE_END, out);
    case '.':
        p->at++;
        st = add_complement(p, &set, line_ends, SL_COUNT(line_ends));
        return st ? st : finish_class(p, &set, out);
    case '*':
    case '+':
    case '?':
    case '{':
        return bad(p, "there is nothing to repeat");
    case '}':
    case ']':
        return bad(p, "a bracket without its partner");
    default:
        break;
    }
    st = take_character(p, &set, &cp);
    if (!st && cp != SL__NONE)
        st = add_range(p, &set, cp, cp);
    return st ? st : finish_class(p, &set, out);
}

static sl_status take_count(parser *p, uint32_t *out) {
    const uint8_t *from = p->at;
    *out = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && *out <= REPEAT_MAX)
        *out = *out * 10 + (uint32_t)(*p->at++ - '0');
    if (p->at == from)
        return bad(p, "a quantifier lacks its number");
    return *out > REPEAT_MAX ? bad(p, "a quantifier is above 1000") : SL_OK;
}

static sl_status parse_quantifier(parser *p, uint32_t *min, uint32_t *max, bool *has) {
    sl_status st = SL_OK;
    *has = true;
    *min = 0;
    *max = SL__NONE;
    if (take(p, '?')) {
        *max = 1;
    } else if (take(p, '+')) {
        *min = 1;
    } else if (take(p, '{')) {
        st = take_count(p, min);
        *max = *min;
        if (!st && take(p, ',')) {
            *max = SL__NONE;
            if (!is_next(p, '}'))
                st = take_count(p, max);
        }
        if (!st && (!take(p, '}') || *max < *min))
            st = bad(p, "a quantifier is not complete");
    } else if (!take(p, '*')) {
        *has = false;
        return SL_OK;
    }
    (void)take(p, '?'); // lazy: the same strings
    return st;
}

static sl_status parse_sequence(parser *p, node **out) {
    sl_status st = new_node(p, NODE_SEQUENCE, out);
    while (!st && p->at < p->end && *p->at != '|' && *p->at != ')') {
        node *item = NULL;
        uint32_t min, max;
        bool has;
        st = parse_atom(p, &item);
        if (!st)
            st = parse_quantifier(p, &min, &max, &has);
        if (!st && has) {
            if (item->kind == NODE_BEGIN || item->kind == NODE_END)
                return bad(p, "an anchor cannot be repeated");
            node *repeat = NULL;
            st = new_node(p, NODE_REPEAT, &repeat);
            if (st)
                return st;
            repeat->min = min;
            repeat->max = max;
            repeat->child = item;
            item = repeat;
        }
        if (st || !item)
            return st;
        item->before = (*out)->child;
        (*out)->child = item;
    }
    return st;
}

static sl_status parse_choice(parser *p, node **out) {
    sl_status st = new_node(p, NODE_CHOICE, out);
    do {
        node *item = NULL;
        if (!st)
            st = parse_sequence(p, &item);
        if (st || !item)
            return st;
        item->before = (*out)->child;
        (*out)->child = item;
    } while (take(p, '|'));
    return SL_OK;
}

/* ---- the automaton, from its end to its beginning ------------------------------------------ */

static sl_status add_state(sl__compiler *c, sl__nfa *nfa, sl__nfa_kind kind, uint8_t lo, uint8_t hi,
                           uint32_t a, uint32_t b, uint32_t *out) {
    if (nfa->states.n >= NFA_STATES_MAX)
        return sl__refuse(c, c->at, c->keyword, "the pattern is too large");
    return sl__nfa_add(c, nfa, kind, lo, hi, a, b, out);
}

static sl_status split(sl__compiler *c, sl__nfa *nfa, uint32_t a, uint32_t b, uint32_t *out) {
    if (a == SL__NONE || b == SL__NONE) {
        *out = a == SL__NONE ? b : a;
        return SL_OK;
    }
    return add_state(c, nfa, SL__NFA_SPLIT, 0, 0, a, b, out);
}

// Bytes lo[i]..hi[i] one after another, then `then`; joined to *entry.
static sl_status add_bytes(sl__compiler *c, sl__nfa *nfa, const uint8_t *lo, const uint8_t *hi,
                           size_t n, uint32_t then, uint32_t *entry) {
    uint32_t at = then;
    sl_status st = SL_OK;
    while (!st && n-- > 0)
        st = add_state(c, nfa, SL__NFA_BYTE, lo[n], hi[n], at, SL__NONE, &at);
    return st ? st : split(c, nfa, *entry, at, entry);
}

/* Characters lo..hi, all at least 0x80, as UTF-8. The range is cut until the encodings of its ends
 * have the same length and each byte runs through a range of its own. */
static sl_status add_utf8(sl__compiler *c, sl__nfa *nfa, range r, uint32_t then, uint32_t *entry) {
    range todo[32];
    unsigned n = 0;
    todo[n++] = r;
    while (n > 0) {
        range at = todo[--n];
        bool cut = false;
        for (uint32_t edge = 0x7ff; !cut && edge <= 0xffff; edge = edge * 32 + 31)
            if (at.lo <= edge && at.hi > edge) {
                todo[n++] = (range){at.lo, edge};
                todo[n++] = (range){edge + 1, at.hi};
                cut = true;
            }
        for (unsigned i = 1; !cut && i < 4; i++) {
            uint32_t low = (1u << 6 * i) - 1;
            if ((at.lo & ~low) == (at.hi & ~low))
                continue;
            uint32_t edge = (at.lo & low) != 0     ? (at.lo | low)
                            : (at.hi & low) != low ? (at.hi & ~low) - 1
                                                   : 0;
            if (edge) {
                todo[n++] = (range){at.lo, edge};
                todo[n++] = (range){edge + 1, at.hi};
                cut = true;
            }
        }
        if (cut)
            continue;
        uint8_t lo[12], hi[12];
        size_t len = sl__spell_character(at.lo, false, lo);
        (void)sl__spell_character(at.hi, false, hi);
        sl_status st = add_bytes(c, nfa, lo, hi, len, then, entry);
        if (st)
            return st;
    }
    return SL_OK;
}

// ASCII characters; a run whose spellings differ in the last byte alone becomes one range.
static sl_status add_ascii(sl__compiler *c, sl__nfa *nfa, range r, uint32_t then, uint32_t *entry) {
    sl_status st = SL_OK;
    for (uint32_t cp = r.lo; !st && cp <= r.hi; cp++) {
        uint8_t lo[12], hi[12], next[12];
        size_t len = sl__spell_character(cp, false, lo);
        memcpy(hi, lo, sizeof(hi));
        while (cp < r.hi && sl__spell_character(cp + 1, false, next) == len &&
               memcmp(next, hi, len - 1) == 0 && next[len - 1] == hi[len - 1] + 1) {
            hi[len - 1]++;
            cp++;
        }
        st = add_bytes(c, nfa, lo, hi, len, then, entry);
    }
    return st;
}

static sl_status add_class(sl__compiler *c, sl__nfa *nfa, const range *r, uint32_t n, uint32_t then,
                           uint32_t *entry) {
    sl_status st = SL_OK;
    *entry = SL__NONE;
    for (uint32_t i = 0; !st && i < n; i++) {
        const range parts[3] = {{r[i].lo, SL_MIN(r[i].hi, 0x7f)},
                                {SL_MAX(r[i].lo, 0x80), SL_MIN(r[i].hi, 0xd7ff)},
                                {SL_MAX(r[i].lo, 0xe000), r[i].hi}};
        if (parts[0].lo <= parts[0].hi)
            st = add_ascii(c, nfa, parts[0], then, entry);
        if (!st && parts[1].lo <= parts[1].hi)
            st = add_utf8(c, nfa, parts[1], then, entry);
        if (!st && parts[2].lo <= parts[2].hi)
            st = add_utf8(c, nfa, parts[2], then, entry);
    }
    // Nothing is in the class: a state that leads nowhere.
    return !st && *entry == SL__NONE
               ? add_state(c, nfa, SL__NFA_SPLIT, 0, 0, SL__NONE, SL__NONE, entry)
               : st;
}

static sl_status add_node(sl__compiler *c, sl__nfa *nfa, const node *at, uint32_t then,
                          uint32_t *entry);

static sl_status add_repeat(sl__compiler *c, sl__nfa *nfa, const node *at, uint32_t then,
                            uint32_t *entry) {
    uint32_t next = then, inner;
    sl_status st = SL_OK;
    if (at->max == SL__NONE) {
        uint32_t loop;
        st = add_state(c, nfa, SL__NFA_SPLIT, 0, 0, SL__NONE, then, &loop);
        if (!st)
            st = add_node(c, nfa, at->child, loop, &inner);
        if (!st)
            ((sl__nfa_state *)nfa->states.data)[loop].a = inner;
        next = loop;
    } else {
        for (uint32_t i = at->min; !st && i < at->max; i++) {
            st = add_node(c, nfa, at->child, next, &inner);
            if (!st)
                st = split(c, nfa, inner, then, &next);
        }
    }
    for (uint32_t i = 0; !st && i < at->min; i++)
        st = add_node(c, nfa, at->child, next, &next);
    *entry = next;
    return st;
}

static sl_status add_node(sl__compiler *c, sl__nfa *nfa, const node *at, uint32_t then,
                          uint32_t *entry) {
    sl_status st = SL_OK;
    uint32_t one = then;
    switch (at->kind) {
    case NODE_CLASS:
        return add_class(c, nfa, at->ranges, at->n_ranges, then, entry);
    case NODE_BEGIN:
        return add_state(c, nfa, SL__NFA_BEGIN, 0, 0, then, SL__NONE, entry);
    case NODE_END:
        return add_state(c, nfa, SL__NFA_END, 0, 0, then, SL__NONE, entry);
    case NODE_REPEAT:
        return add_repeat(c, nfa, at, then, entry);
    case NODE_SEQUENCE:
        for (const node *item = at->child; !st && item; item = item->before)
            st = add_node(c, nfa, item, one, &one);
        *entry = one;
        return st;
    case NODE_CHOICE:
        *entry = SL__NONE;
        for (const node *item = at->child; !st && item; item = item->before) {
            st = add_node(c, nfa, item, then, &one);
            if (!st)
                st = split(c, nfa, *entry, one, entry);
        }
        return st;
    }
    return st;
}

// Every way through begins with ^: what is before the pattern need not be tried.
static bool is_anchored(const node *choice) {
    for (const node *sequence = choice->child; sequence; sequence = sequence->before) {
        const node *first = sequence->child;
        while (first && first->before)
            first = first->before;
        if (!first ||
            !(first->kind == NODE_BEGIN || (first->kind == NODE_CHOICE && is_anchored(first))))
            return false;
    }
    return true;
}

// Any text, then the pattern, then any text.
static sl_status add_search(sl__compiler *c, sl__nfa *nfa, const node *pattern) {
    static const range any = {0, CODE_POINT_MAX};
    uint32_t accept = SL__NONE, rest = SL__NONE, inner = SL__NONE, found = SL__NONE,
             start = SL__NONE;
    sl_status st = add_state(c, nfa, SL__NFA_ACCEPT, 0, 0, SL__NONE, SL__NONE, &accept);
    if (!st)
        st = add_state(c, nfa, SL__NFA_SPLIT, 0, 0, SL__NONE, accept, &rest);
    if (!st)
        st = add_class(c, nfa, &any, 1, rest, &inner);
    if (st)
        return st;
    ((sl__nfa_state *)nfa->states.data)[rest].a = inner;
    nfa->rest = rest;
    st = add_node(c, nfa, pattern, rest, &found);
    nfa->start = found;
    if (st || is_anchored(pattern))
        return st;
    st = add_state(c, nfa, SL__NFA_SPLIT, 0, 0, SL__NONE, found, &start);
    if (!st)
        st = add_class(c, nfa, &any, 1, start, &inner);
    if (!st)
        ((sl__nfa_state *)nfa->states.data)[start].a = inner;
    nfa->start = start;
    return st;
}

sl_status sl__pattern_build(sl__compiler *c, const char *pattern, size_t len, sl_arena *arena,
                            sl__dfa *out) {
    size_t mark = sl_arena_mark(c->scratch);
    memset(out, 0, sizeof(*out));
    sl__nfa nfa = {.rest = SL__NONE};
    node *root = NULL;
    parser p = {.c = c,
                .start = (const uint8_t *)pattern,
                .at = (const uint8_t *)pattern,
                .end = (const uint8_t *)pattern + len};
    sl_status st = parse_choice(&p, &root);
    if (!st && p.at < p.end)
        st = bad(&p, "a bracket without its partner");
    if (!st)
        st = add_search(c, &nfa, root);
    if (!st)
        st = sl__nfa_determinize(c, &nfa, arena, out);
    sl__dfa_settle(c, mark, arena, out);
    return st;
}

/* ---- formats ------------------------------------------------------------------------------- */

/* Each is a subset of what its standard allows, so that every text is valid by it: RFC 3339 without
 * leap seconds and with years from 0001, RFC 4122, dotted addresses without leading zeros, mailboxes
 * of unquoted words at a domain name. */
#define YEAR "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"                                \
    "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?"                                 \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
#define HEX "[0-9a-fA-F]"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "T" TIME "$"},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$"},
    {"ipv4", "^" BYTE "(?:\\." BYTE "){3}$"},
    {"email", "^[A-Za-z0-9_%+-]+(?:\\.[A-Za-z0-9_%+-]+){0,4}@" LABEL "(?:\\." LABEL "){1,4}$"},
};

const char *sl__format_pattern(const char *format) {
    for (size_t i = 0; i < SL_COUNT(formats); i++)
        if (strcmp(formats[i].name, format) == 0)
            return formats[i].pattern;
    return NULL;
}
