/* From an expression to a step, see pretokenize.h: a parser of one pass, then what follows from the
 * whole alternative. */
#include <string.h>

#include "text/pretokenize.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* A repetition of more than this counts as one without limit where work is bounded. */
#define FEW 8

#define ALL_CATEGORIES (~SL_UNI_WORD)

typedef struct parser {
    sl_pretok *out;
    const uint8_t *start, *at, *end;
    bool fold;
    sl_error *err;
} parser;

static sl_status refuse(const parser *p, const char *what) {
    size_t len = (size_t)(p->end - p->start);
    return sl_fail(p->err, SL_ERR_UNSUPPORTED,
                   "pre-tokenizer pattern '%.*s%s': at %zu: %s is not supported",
                   (int)SL_MIN(len, (size_t)200), (const char *)p->start, len > 200 ? "..." : "",
                   (size_t)(p->at - p->start), what);
}

static bool next_is(const parser *p, const char *text) {
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && memcmp(p->at, text, n) == 0;
}

static bool skip(parser *p, const char *text) {
    if (!next_is(p, text))
        return false;
    p->at += strlen(text);
    return true;
}

/* ---- sets ----------------------------------------------------------------------------------- */

static void set_add_categories(sl__pretok_set *set, uint32_t categories) {
    set->categories |= categories;
    for (uint32_t c = 0; c < 128; c++)
        if (sl_uni_class(c) & categories)
            set->ascii[c / 64] |= (uint64_t)1 << c % 64;
}

static void set_add_ascii(sl__pretok_set *set, uint32_t c) {
    set->ascii[c / 64] |= (uint64_t)1 << c % 64;
}

// The characters low..high.
static sl_status set_add_range(parser *p, sl__pretok_set *set, uint32_t low, uint32_t high) {
    for (uint32_t c = low; c <= high && c < 128; c++) {
        set_add_ascii(set, c);
        bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        if (!p->fold || !(upper || lower))
            continue;
        set_add_ascii(set, c ^ 0x20);
        // The two characters outside of ASCII that fold into it.
        sl_status st = SL_OK;
        if ((c | 0x20) == 's' || (c | 0x20) == 'k') {
            uint32_t other = (c | 0x20) == 's' ? 0x17f : 0x212a;
            p->fold = false;
            st = set_add_range(p, set, other, other);
            p->fold = true;
        }
        if (st)
            return st;
    }
    if (high < 128)
        return SL_OK;
    if (p->fold)
        return refuse(p, "a character outside of ASCII in (?i:");
    sl_pretok *t = p->out;
    if (t->n_ranges == SL_PRETOK_RANGES_MAX)
        return refuse(p, "that many ranges");
    t->range[t->n_ranges][0] = SL_MAX(low, 128u);
    t->range[t->n_ranges++][1] = high;
    set->count++;
    set->in_range = true;
    return SL_OK;
}

static void set_complement(sl__pretok_set *set) {
    set->ascii[0] = ~set->ascii[0];
    set->ascii[1] = ~set->ascii[1];
    set->categories = ~set->categories & ALL_CATEGORIES;
    set->in_range = set->count > 0 && !set->in_range;
}

// Whether a character may be in both; where ranges are involved, yes.
static bool sets_overlap(const sl__pretok_set *a, const sl__pretok_set *b) {
    return (a->ascii[0] & b->ascii[0]) != 0 || (a->ascii[1] & b->ascii[1]) != 0 ||
           (a->categories & b->categories) != 0 || a->count > 0 || b->count > 0;
}

static bool sets_equal(const sl__pretok_set *a, const sl__pretok_set *b) {
    return a->count == 0 && b->count == 0 && a->ascii[0] == b->ascii[0] &&
           a->ascii[1] == b->ascii[1] && a->categories == b->categories;
}

// \p{..} after the backslash.
static sl_status parse_property(parser *p, uint32_t *categories) {
    static const struct {
        char name[3];
        uint32_t categories;
    } known[] = {
        {"L", SL_UNI_L},   {"M", SL_UNI_M},   {"N", SL_UNI_N},   {"P", SL_UNI_P},
        {"S", SL_UNI_S},   {"Z", SL_UNI_Z},   {"C", SL_UNI_C},   {"Lu", SL_UNI_LU},
        {"Ll", SL_UNI_LL}, {"Lt", SL_UNI_LT}, {"Lm", SL_UNI_LM}, {"Lo", SL_UNI_LO},
        {"Mn", SL_UNI_MN}, {"Mc", SL_UNI_MC}, {"Me", SL_UNI_ME}, {"Nd", SL_UNI_ND},
        {"Nl", SL_UNI_NL}, {"No", SL_UNI_NO}, {"Pc", SL_UNI_PC}, {"Pd", SL_UNI_PD},
        {"Ps", SL_UNI_PS}, {"Pe", SL_UNI_PE}, {"Pi", SL_UNI_PI}, {"Pf", SL_UNI_PF},
        {"Po", SL_UNI_PO}, {"Sm", SL_UNI_SM}, {"Sc", SL_UNI_SC}, {"Sk", SL_UNI_SK},
        {"So", SL_UNI_SO}, {"Zs", SL_UNI_ZS}, {"Zl", SL_UNI_ZL}, {"Zp", SL_UNI_ZP},
    };
    bool complement = *p->at == 'P';
    const uint8_t *name = p->at + 2;
    size_t left = (size_t)(p->end - p->at);
    size_t n = left > 3 && name[1] == '}' ? 1 : left > 4 && name[2] == '}' ? 2 : 0;
    for (size_t i = 0; n > 0 && p->at[1] == '{' && i < SL_COUNT(known); i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, name, n) == 0) {
            *categories = complement ? ~known[i].categories & ALL_CATEGORIES : known[i].categories;
            p->at = name + n + 1;
            return SL_OK;
        }
    return refuse(p, "this property");
}

// What a backslash begins: a set of categories, or *cp when *categories is 0.
static sl_status parse_escape(parser *p, uint32_t *categories, uint32_t *cp) {
    static const char letters[] = "rntfv", controls[] = "\r\n\t\f\v";
    *categories = 0;
    if (++p->at == p->end)
        return refuse(p, "a backslash at the end");
    switch (*p->at) {
    case 'p':
    case 'P':
        return parse_property(p, categories);
    case 's':
        *categories = SL_UNI_WHITE;
        break;
    case 'S':
        *categories = ~SL_UNI_WHITE & ALL_CATEGORIES;
        break;
    case 'd':
        *categories = SL_UNI_ND;
        break;
    case 'D':
        *categories = ~SL_UNI_ND & ALL_CATEGORIES;
        break;
    default:
        *cp = *p->at;
        for (size_t i = 0; i < sizeof(letters) - 1; i++)
            if (*p->at == (uint8_t)letters[i])
                *cp = (uint8_t)controls[i];
        if (*p->at >= 0x80 || (*cp == *p->at && (sl_uni_class(*cp) & (SL_UNI_L | SL_UNI_N))))
            return refuse(p, "this escape");
    }
    p->at++;
    return SL_OK;
}

static sl_status parse_class(parser *p, sl__pretok_set *set) {
    bool complement = skip(p, "[^");
    if (!complement)
        p->at++;
    if (complement && p->fold)
        return refuse(p, "a complement in (?i:");
    const uint8_t *first = p->at;
    while (p->at < p->end && *p->at != ']') {
        uint32_t categories = 0, low = 0, high;
        sl_status st;
        if (*p->at == '[' || next_is(p, "&&") || (*p->at == '-' && p->at != first))
            return refuse(p, "this in a class");
        if (*p->at != '\\')
            p->at += sl_utf8_decode_valid(p->at, &low);
        else if ((st = parse_escape(p, &categories, &low)))
            return st;
        if (categories) {
            if (p->fold)
                return refuse(p, "a category in (?i:");
            set_add_categories(set, categories);
            continue;
        }
        high = low;
        if (next_is(p, "-") && !next_is(p, "-]")) {
            p->at++;
            if (p->at == p->end || *p->at == '[' || *p->at == ']')
                return refuse(p, "this range");
            if (*p->at != '\\')
                p->at += sl_utf8_decode_valid(p->at, &high);
            else if ((st = parse_escape(p, &categories, &high)))
                return st;
            if (categories || high < low)
                return refuse(p, "this range");
        }
        if ((st = set_add_range(p, set, low, high)))
            return st;
        if (next_is(p, "-]")) {
            set_add_ascii(set, '-');
            p->at++;
        }
    }
    if (p->at == p->end || p->at == first)
        return refuse(p, p->at == first ? "an empty class" : "a class without end");
    p->at++;
    if (complement)
        set_complement(set);
    return SL_OK;
}

// A literal, an escape or a class as a new set.
static sl_status parse_one(parser *p, uint8_t *index) {
    sl_pretok *t = p->out;
    if (t->n_sets == SL_PRETOK_SETS_MAX)
        return refuse(p, "a pattern of that many parts");
    sl__pretok_set *set = &t->set[t->n_sets];
    *set = (sl__pretok_set){.first = (uint8_t)t->n_ranges};
    uint32_t categories = 0, cp = 0;
    sl_status st;
    if (p->at == p->end || strchr("?*+{}()|]^$.", *p->at)) {
        return refuse(p, "this");
    } else if (*p->at == '[') {
        st = parse_class(p, set);
    } else if (*p->at == '\\') {
        st = parse_escape(p, &categories, &cp);
        if (!st && !categories)
            st = set_add_range(p, set, cp, cp);
        else if (!st && p->fold)
            st = refuse(p, "a category in (?i:");
        set_add_categories(set, categories);
    } else {
        p->at += sl_utf8_decode_valid(p->at, &cp);
        st = set_add_range(p, set, cp, cp);
    }
    *index = (uint8_t)t->n_sets;
    for (uint32_t i = 0; !st && i < t->n_sets; i++)
        if (sets_equal(&t->set[i], set)) {
            *index = (uint8_t)i;
            return SL_OK;
        }
    t->n_sets++;
    return st;
}

/* ---- items ---------------------------------------------------------------------------------- */

static sl_status add_item(parser *p, sl__pretok_kind kind, sl__pretok_item **item) {
    sl_pretok *t = p->out;
    if (t->n_items == SL_PRETOK_ITEMS_MAX)
        return refuse(p, "a pattern of that many parts");
    *item = &t->item[t->n_items++];
    **item = (sl__pretok_item){.kind = (uint8_t)kind, .min = 1, .max = 1};
    return SL_OK;
}

static bool parse_number(parser *p, uint32_t *value) {
    const uint8_t *first = p->at;
    for (*value = 0; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        *value = SL_MIN(*value * 10 + (uint32_t)(*p->at - '0'), SL_PRETOK_REPEATS_MAX + 1u);
    return p->at > first;
}

static sl_status parse_quantifier(parser *p, sl__pretok_item *item) {
    uint32_t min = 1, max = 1;
    if (skip(p, "?")) {
        min = 0;
    } else if (skip(p, "*")) {
        min = max = 0;
    } else if (skip(p, "+")) {
        max = 0;
    } else if (skip(p, "{")) {
        if (!parse_number(p, &min))
            return refuse(p, "this repetition");
        max = min;
        if (skip(p, ",") && !parse_number(p, &max))
            max = 0;
        else if (max == 0 || min > max)
            return refuse(p, "this repetition");
        if (min > SL_PRETOK_REPEATS_MAX || max > SL_PRETOK_REPEATS_MAX || !skip(p, "}"))
            return refuse(p, "this repetition");
    } else {
        return SL_OK;
    }
    if (p->at < p->end && strchr("?*+{", *p->at))
        return refuse(p, "a repetition that is not greedy");
    item->min = (uint8_t)min;
    item->max = (uint8_t)max;
    return SL_OK;
}

// Case folding joins some letters to one character (ss, st, ff, fi, fl); that is not done here.
static bool folds_together(const sl_pretok *t, const sl__pretok_item *a, const sl__pretok_item *b) {
    const sl__pretok_set *x = &t->set[a->set], *y = &t->set[b->set];
#define HAS(set, c) ((set)->ascii[(c) / 64] >> (c) % 64 & 1)
    return (HAS(x, 's') && (HAS(y, 's') || HAS(y, 't'))) ||
           (HAS(x, 'f') && (HAS(y, 'f') || HAS(y, 'i') || HAS(y, 'l')));
#undef HAS
}

// After the opening of a group, up to and with its end and quantifier.
static sl_status parse_group(parser *p) {
    sl__pretok_item *group = NULL, *branch = NULL, *run = NULL;
    sl_status st = add_item(p, SL__PRETOK_GROUP, &group);
    if (st)
        return st;
    do {
        if ((st = add_item(p, SL__PRETOK_BRANCH, &branch)))
            return st;
        while (p->at < p->end && *p->at != '|' && *p->at != ')') {
            if ((st = add_item(p, SL__PRETOK_RUN, &run)) || (st = parse_one(p, &run->set)))
                return st;
            if (p->fold && branch->n_skip > 0 && folds_together(p->out, run - 1, run))
                return refuse(p, "this pair of letters in (?i:");
            branch->n_skip++;
        }
        if (branch->n_skip == 0)
            return refuse(p, "an empty branch");
    } while (skip(p, "|"));
    if (!skip(p, ")"))
        return refuse(p, "a group without end");
    group->n_skip = (uint8_t)(p->out->item + p->out->n_items - group - 1);
    if (skip(p, "?"))
        group->min = 0;
    if (p->at < p->end && strchr("?*+{", *p->at))
        return refuse(p, "this repetition of a group");
    return SL_OK;
}

static sl_status parse_item(parser *p) {
    sl__pretok_item *item = NULL;
    sl_status st;
    bool negative = next_is(p, "(?!");
    if (skip(p, "(?!") || skip(p, "(?=")) {
        if ((st = add_item(p, SL__PRETOK_AHEAD, &item)) || (st = parse_one(p, &item->set)))
            return st;
        if (negative) {
            sl_pretok *t = p->out;
            if (t->n_sets == SL_PRETOK_SETS_MAX)
                return refuse(p, "a pattern of that many parts");
            t->set[t->n_sets] = t->set[item->set];
            set_complement(&t->set[t->n_sets]);
            item->set = (uint8_t)t->n_sets++;
            item->min = 0;
        }
        return skip(p, ")") ? SL_OK : refuse(p, "this look ahead");
    }
    if (skip(p, "(?i:")) {
        p->fold = true;
        st = parse_group(p);
        p->fold = false;
        return st;
    }
    if (skip(p, "(?:"))
        return parse_group(p);
    if (next_is(p, "(") && !next_is(p, "(?")) {
        p->at++;
        return parse_group(p);
    }
    if ((st = add_item(p, SL__PRETOK_RUN, &item)) || (st = parse_one(p, &item->set)))
        return st;
    return parse_quantifier(p, item);
}

/* ---- alternatives ----------------------------------------------------------------------------- */

static const sl__pretok_item *next_item(const sl__pretok_item *it) {
    return it + 1 + it->n_skip;
}

static bool may_fail(const sl__pretok_item *rest, const sl__pretok_item *last) {
    while (rest < last && rest->kind != SL__PRETOK_AHEAD && rest->min == 0)
        rest = next_item(rest);
    return rest < last;
}

// Whether a run that is followed by [rest, last) may have to give back some of what it took. It need
// not where the rest cannot fail, or cannot begin with any of the run's characters.
static bool must_give_back(const sl_pretok *t, const sl__pretok_item *run,
                           const sl__pretok_item *rest, const sl__pretok_item *last) {
    bool overlaps = false;
    if (run->max != 0 && run->min == run->max)
        return false;
    for (; rest < last; rest = next_item(rest)) {
        if (rest->kind == SL__PRETOK_AHEAD)
            return true;
        if (rest->kind == SL__PRETOK_GROUP) {
            for (uint32_t i = 1; i <= rest->n_skip; i += 1u + rest[i].n_skip)
                overlaps |= sets_overlap(&t->set[run->set], &t->set[rest[i + 1].set]);
        } else {
            overlaps |= sets_overlap(&t->set[run->set], &t->set[rest->set]);
        }
        if (rest->min > 0)
            return overlaps;
    }
    return false;
}

static void add_first(const sl_pretok *t, const sl__pretok_item *run, sl__pretok_step *step) {
    for (uint32_t c = 0; c < 128; c++)
        if (t->set[run->set].ascii[c / 64] >> c % 64 & 1)
            step->first[c] |= (uint16_t)(1u << step->n_alternatives);
}

// The items of a finished alternative: what it can start with, and which runs have a choice.
static sl_status finish_alternative(parser *p, sl__pretok_step *step, sl__pretok_item *first) {
    const sl_pretok *t = p->out;
    const sl__pretok_item *last = t->item + t->n_items;
    bool nullable = true, open = false; // open: a long run before may give back
    for (sl__pretok_item *it = first; it < last; it += 1 + it->n_skip) {
        if (it->kind == SL__PRETOK_AHEAD) {
            if (nullable)
                return refuse(p, "a look ahead before anything else");
            continue;
        }
        if (nullable && it->kind == SL__PRETOK_GROUP)
            for (uint32_t i = 1; i <= it->n_skip; i += 1u + it[i].n_skip)
                add_first(t, it + i + 1, step);
        else if (nullable)
            add_first(t, it, step);
        nullable = nullable && it->min == 0;
        if (it->kind == SL__PRETOK_RUN) {
            bool is_long = it->max == 0 || it->max - it->min > FEW;
            it->gives_back = must_give_back(t, it, it + 1, last);
            if (open && is_long && may_fail(it + 1, last))
                return refuse(p, "an alternative with repetitions that depend on each other");
            open |= it->gives_back && is_long;
        }
    }
    if (nullable)
        return refuse(p, "an alternative that may be empty");
    return SL_OK;
}

sl_status sl_pretok_add(sl_pretok *pretok, const char *regex, size_t len, sl_error *err) {
    const uint8_t *text = (const uint8_t *)regex;
    parser p = {pretok, text, text, text + len, false, err};
    if (!sl_utf8_is_valid(regex, len) || memchr(regex, 0, len))
        return refuse(&p, "an expression that is no text");
    if (pretok->n_steps == SL_PRETOK_STEPS_MAX)
        return refuse(&p, "another step after so many");
    sl__pretok_step *step = &pretok->step[pretok->n_steps];
    memset(step, 0, sizeof(*step));
    do {
        sl_status st;
        sl__pretok_item *first = pretok->item + pretok->n_items;
        if (step->n_alternatives == SL_PRETOK_ALTERNATIVES_MAX)
            return refuse(&p, "that many alternatives");
        step->item[step->n_alternatives] = (uint8_t)pretok->n_items;
        while (p.at < p.end && *p.at != '|')
            if ((st = parse_item(&p)))
                return st;
        if ((st = finish_alternative(&p, step, first)))
            return st;
        step->item[++step->n_alternatives] = (uint8_t)pretok->n_items;
    } while (skip(&p, "|"));
    pretok->n_steps++;
    return SL_OK;
}
