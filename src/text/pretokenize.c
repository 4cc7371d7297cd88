/* Matching and cutting, see pretokenize.h. The compiler is pretokenize_compile.c. */
#include "text/pretokenize.h"

#include "text/unicode.h"
#include "text/utf8.h"

/* Results of matching, beside the length of a match. */
#define NO_MATCH (SIZE_MAX - 1)
#define MORE SIZE_MAX /* it depends on what follows the end */

/* What an alternative is matched against. */
typedef struct subject {
    const sl_pretok *pretok;
    const uint8_t *start, *end;
    bool final;
} subject;

// The bytes of the character at p if it is in the set, or 0.
static inline size_t take(const sl_pretok *t, const sl__pretok_set *set, const uint8_t *p) {
    if (*p < 0x80)
        return set->ascii[*p / 64] >> *p % 64 & 1;
    uint32_t cp;
    size_t n = sl_utf8_decode_valid(p, &cp);
    for (uint32_t i = set->first; i < set->first + (uint32_t)set->count; i++)
        if (cp - t->range[i][0] <= t->range[i][1] - t->range[i][0])
            return set->in_range ? n : 0;
    return sl_uni_class(cp) & set->categories ? n : 0;
}

// A branch of a group at text[at]: where it ends, NO_MATCH or MORE.
static size_t match_branch(const subject *s, const sl__pretok_item *branch, size_t at) {
    const uint8_t *p = s->start + at;
    for (uint32_t i = 1; i <= branch->n_skip; i++) {
        if (p == s->end)
            return s->final ? NO_MATCH : MORE;
        size_t n = take(s->pretok, &s->pretok->set[branch[i].set], p);
        if (n == 0)
            return NO_MATCH;
        p += n;
    }
    return (size_t)(p - s->start);
}

// Items [it, last) at text[at]: where their match ends, NO_MATCH or MORE. Calls itself for the items
// that follow one with a choice.
static size_t match_items(const subject *s, const sl__pretok_item *it, const sl__pretok_item *last,
                          size_t at) {
    for (; it < last; it += 1 + it->n_skip) {
        const uint8_t *p = s->start + at;
        const sl__pretok_set *set = &s->pretok->set[it->set];
        uint32_t count = 0;
        size_t n;
        switch ((sl__pretok_kind)it->kind) {
        case SL__PRETOK_RUN:
            for (; it->max == 0 || count < it->max; count++, p += n) {
                if (p == s->end) {
                    if (!s->final)
                        return MORE;
                    break;
                }
                if ((n = take(s->pretok, set, p)) == 0)
                    break;
            }
            if (count < it->min)
                return NO_MATCH;
            at = (size_t)(p - s->start);
            if (!it->gives_back)
                break;
            while ((n = match_items(s, it + 1, last, at)) == NO_MATCH && count > it->min) {
                do
                    at--;
                while ((s->start[at] & 0xc0) == 0x80);
                count--;
            }
            return n;
        case SL__PRETOK_GROUP:
            for (uint32_t i = 1; i <= it->n_skip; i += 1u + it[i].n_skip) {
                size_t after = match_branch(s, it + i, at);
                if (after == MORE)
                    return MORE;
                if (after != NO_MATCH &&
                    (n = match_items(s, it + 1 + it->n_skip, last, after)) != NO_MATCH)
                    return n;
            }
            if (it->min > 0)
                return NO_MATCH;
            break;
        case SL__PRETOK_AHEAD:
            if (p == s->end) {
                if (!s->final)
                    return MORE;
                if (it->min > 0)
                    return NO_MATCH;
            } else if (take(s->pretok, set, p) == 0) {
                return NO_MATCH;
            }
            break;
        case SL__PRETOK_BRANCH: // skipped with its group
            break;
        }
    }
    return at;
}

// A match of the step at p < end: its length, NO_MATCH or MORE.
static size_t match(const sl_pretok *t, const sl__pretok_step *step, const uint8_t *p,
                    const uint8_t *end, bool final) {
    const subject s = {t, p, end, final};
    uint32_t candidates = *p < 0x80 ? step->first[*p] : (1u << step->n_alternatives) - 1;
    for (; candidates != 0; candidates &= candidates - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(candidates);
        size_t n = match_items(&s, t->item + step->item[i], t->item + step->item[i + 1], 0);
        if (n != NO_MATCH)
            return n;
    }
    return NO_MATCH;
}

size_t sl_pretok_next(const sl_pretok *pretok, sl_pretok_cursor *cursor, const uint8_t *text,
                      size_t from, size_t end, bool final) {
    for (uint32_t k = 0; k < pretok->n_steps; k++) {
        const sl__pretok_step *step = &pretok->step[k];
        size_t at = cursor->step[k].end;
        bool closed = cursor->step[k].closed;
        if (at <= from) { // a piece starts here
            size_t n = match(pretok, step, text + from, text + end, final);
            if (n == MORE)
                return 0;
            closed = n != NO_MATCH;
            at = closed ? from + n : from + 1;
        }
        // What lies between matches ends where one starts, or with the piece of the step before.
        for (; !closed && at < end; at++) {
            if ((text[at] & 0xc0) == 0x80)
                continue;
            size_t n = match(pretok, step, text + at, text + end, final);
            if (n == MORE)
                break;
            closed = n != NO_MATCH;
            if (closed)
                break;
        }
        closed = closed || (at >= end && final);
        cursor->step[k].end = at;
        cursor->step[k].closed = closed;
        end = at;
        final = closed;
    }
    return final ? end - from : 0;
}

void sl_pretok_moved(sl_pretok_cursor *cursor, size_t n) {
    for (uint32_t k = 0; k < SL_PRETOK_STEPS_MAX; k++)
        cursor->step[k].end -= SL_MIN(cursor->step[k].end, n);
}
