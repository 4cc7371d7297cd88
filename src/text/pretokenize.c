/* The patterns and their matcher, see pretokenize.h. */
#include "text/pretokenize.h"

#include <string.h>

#include "base/buf.h"
#include "text/unicode.h"
#include "text/utf8.h"

// Sets of characters are sets of these bits; the low ones are those of unicode.h.
enum {
    L = SL_UNI_L,
    M = SL_UNI_M,
    N = SL_UNI_N,
    WHITE = SL_UNI_WHITE,
    CRLF = 0x80,
    SPACE = 0x100,
};

typedef struct char_set {
    uint16_t bits;
    bool negated; // none of bits, instead of any of them
} char_set;

#define ANY(b)                                                                                     \
    { (b), false }
#define NONE_OF(b)                                                                                 \
    { (b), true }
#define NO_SET                                                                                     \
    { 0, false }

typedef enum rule_kind {
    RULE_END,
    RULE_CONTRACTION, // 's 't 're 've 'm 'll 'd
    RULE_RUN,         // lead? run{1,max} tail*
    RULE_LINES,       // \s*[\r\n]+
    RULE_WHITE,       // \s+(?!\S)
} rule_kind;

typedef struct rule {
    rule_kind kind;
    bool fold; // contraction: (?i:...)
    char_set lead, run, tail;
    uint32_t max; // of run; 0 is no limit
} rule;

struct sl_pretok {
    uint32_t id;
    const char *name;
    const char *regex;
    rule rules[8];
};

#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"
#define LINES_AND_WHITE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const sl_pretok patterns[] = {
    {
        SL_PRETOK_GPT2,
        "gpt2",
        CONTRACTION "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        {
            {.kind = RULE_CONTRACTION},
            {.kind = RULE_RUN, .lead = ANY(SPACE), .run = ANY(L)},
            {.kind = RULE_RUN, .lead = ANY(SPACE), .run = ANY(N)},
            {.kind = RULE_RUN, .lead = ANY(SPACE), .run = NONE_OF(WHITE | L | N)},
            {.kind = RULE_WHITE},
            {.kind = RULE_RUN, .run = ANY(WHITE)},
        },
    },
    {
        SL_PRETOK_QWEN2,
        "qwen2",
        "(?i:" CONTRACTION ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_WHITE,
        {
            {.kind = RULE_CONTRACTION, .fold = true},
            {.kind = RULE_RUN, .lead = NONE_OF(CRLF | L | N), .run = ANY(L)},
            {.kind = RULE_RUN, .run = ANY(N), .max = 1},
            {.kind = RULE_RUN,
             .lead = ANY(SPACE),
             .run = NONE_OF(WHITE | L | N),
             .tail = ANY(CRLF)},
            {.kind = RULE_LINES},
            {.kind = RULE_WHITE},
            {.kind = RULE_RUN, .run = ANY(WHITE)},
        },
    },
    {
        SL_PRETOK_QWEN35,
        "qwen35",
        "(?i:" CONTRACTION ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_WHITE,
        {
            {.kind = RULE_CONTRACTION, .fold = true},
            {.kind = RULE_RUN, .lead = NONE_OF(CRLF | L | N), .run = ANY(L | M)},
            {.kind = RULE_RUN, .run = ANY(N), .max = 1},
            {.kind = RULE_RUN,
             .lead = ANY(SPACE),
             .run = NONE_OF(WHITE | L | M | N),
             .tail = ANY(CRLF)},
            {.kind = RULE_LINES},
            {.kind = RULE_WHITE},
            {.kind = RULE_RUN, .run = ANY(WHITE)},
        },
    },
};

const sl_pretok *sl_pretok_by_id(uint32_t id) {
    for (size_t i = 0; i < SL_COUNT(patterns); i++)
        if (patterns[i].id == id)
            return &patterns[i];
    return NULL;
}

uint32_t sl_pretok_find(const char *regex, size_t len) {
    for (size_t i = 0; i < SL_COUNT(patterns); i++)
        if (strlen(patterns[i].regex) == len && memcmp(patterns[i].regex, regex, len) == 0)
            return patterns[i].id;
    return 0;
}

const char *sl_pretok_names(char *out, size_t cap) {
    sl_buf text;
    sl_buf_init_fixed(&text, out, cap);
    for (size_t i = 0; i < SL_COUNT(patterns); i++)
        sl_buf_printf(&text, "%s%s", i ? ", " : "", patterns[i].name);
    return out;
}

// The rule cannot tell before it sees what follows end.
#define MORE SIZE_MAX

static inline size_t next_char(const uint8_t *p, uint16_t *bits) {
    uint32_t cp;
    size_t n = sl_utf8_decode_valid(p, &cp);
    *bits = sl_uni_class(cp);
    if (cp == ' ')
        *bits |= SPACE;
    else if (cp == '\n' || cp == '\r')
        *bits |= CRLF;
    return n;
}

static inline bool in(char_set set, uint16_t bits) {
    return ((bits & set.bits) != 0) != set.negated;
}

static size_t match_contraction(bool fold, const uint8_t *p, const uint8_t *end, bool final) {
    if (p[0] != '\'')
        return 0;
    // Two letters at most; with less than that in sight the text must be known to end.
    size_t n = (size_t)(end - p);
    if (n < 3 && !final)
        return MORE;
    if (n < 2)
        return 0;
    uint8_t bit = fold ? 0x20 : 0;
    uint8_t a = p[1] | bit, b = n > 2 ? p[2] | bit : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    // Under case folding U+017F, the long s, is an s.
    if (fold && n > 2 && p[1] == 0xc5 && p[2] == 0xbf)
        return 3;
    return 0;
}

// run{1,max} tail* at p.
static size_t match_run_at(const rule *r, const uint8_t *p, const uint8_t *end, bool final) {
    const uint8_t *q = p;
    uint32_t count = 0;
    uint16_t bits = 0;
    size_t n = 0;
    while (q < end && (r->max == 0 || count < r->max) &&
           in(r->run, (n = next_char(q, &bits), bits))) {
        q += n;
        count++;
    }
    if (count == 0)
        return q == end && !final ? MORE : 0;
    if (r->tail.bits != 0)
        while (q < end && in(r->tail, (n = next_char(q, &bits), bits)))
            q += n;
    bool may_go_on = r->tail.bits != 0 || r->max == 0 || count < r->max;
    return q == end && !final && may_go_on ? MORE : (size_t)(q - p);
}

static size_t match_run(const rule *r, const uint8_t *p, const uint8_t *end, bool final) {
    if (r->lead.bits != 0) {
        uint16_t bits;
        size_t n = next_char(p, &bits);
        if (in(r->lead, bits)) {
            size_t rest = match_run_at(r, p + n, end, final);
            if (rest == MORE)
                return MORE;
            if (rest > 0)
                return n + rest;
        }
    }
    return match_run_at(r, p, end, final);
}

// \s* takes the whole run of white space and gives back until [\r\n]+ matches: up to its last line end.
static size_t match_lines(const uint8_t *p, const uint8_t *end, bool final) {
    const uint8_t *q = p, *stop = p;
    while (q < end) {
        uint16_t bits;
        size_t n = next_char(q, &bits);
        if (!(bits & WHITE))
            return (size_t)(stop - p);
        q += n;
        if (bits & CRLF)
            stop = q;
    }
    return final ? (size_t)(stop - p) : MORE;
}

// The whole run at the end of the text; before other text, the run without its last character.
static size_t match_white(const uint8_t *p, const uint8_t *end, bool final) {
    const uint8_t *q = p, *last = p;
    while (q < end) {
        uint16_t bits;
        size_t n = next_char(q, &bits);
        if (!(bits & WHITE))
            return (size_t)(last - p);
        last = q;
        q += n;
    }
    return final ? (size_t)(q - p) : MORE;
}

size_t sl_pretok_next(const sl_pretok *pattern, const uint8_t *p, const uint8_t *end, bool final) {
    for (const rule *r = pattern->rules; r->kind != RULE_END; r++) {
        size_t n = r->kind == RULE_CONTRACTION ? match_contraction(r->fold, p, end, final)
                   : r->kind == RULE_RUN       ? match_run(r, p, end, final)
                   : r->kind == RULE_LINES     ? match_lines(p, end, final)
                                               : match_white(p, end, final);
        if (n == MORE)
            return 0;
        if (n > 0)
            return n;
    }
    return 0;
}
