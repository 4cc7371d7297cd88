/* JSON pull reader and tree, see json.h. The tree is built from the reader's events, so there is one
 * grammar. */
#define _GNU_SOURCE
#include "base/json.h"

#include <assert.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXPECT_VALUE,
    EXPECT_FIRST_VALUE,
    EXPECT_FIRST_KEY,
    EXPECT_KEY,
    EXPECT_COLON,
    AFTER_VALUE,
    FAILED
};

void sl_json_reader_init(sl_json_reader *r, const char *text, size_t len) {
    memset(r, 0, sizeof(*r));
    r->start = r->at = text;
    r->end = text + len;
    r->state = EXPECT_VALUE;
}

static sl_json_event fail(sl_json_reader *r, sl_error *err, const char *what) {
    size_t line = 1, column = 1;
    for (const char *p = r->start; p < r->at && p < r->end; p++) {
        column++;
        if (*p == '\n') {
            line++;
            column = 1;
        }
    }
    sl_fail(err, SL_ERR_SYNTAX, "JSON, line %zu column %zu: %s", line, column, what);
    r->state = FAILED;
    return SL_JSON_EV_ERROR;
}

static bool is_digit(const char *p, const char *end) {
    return p < end && *p >= '0' && *p <= '9';
}

static int hex4(const char *p, const char *end) {
    if (end - p < 4)
        return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

// Length of the valid UTF-8 sequence at p, or 0.
static size_t utf8_len(const char *p, const char *end) {
    const unsigned char *s = (const unsigned char *)p;
    size_t left = (size_t)(end - p);
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        return left >= 2 && (s[1] & 0xc0) == 0x80 ? 2 : 0;
    if (s[0] >= 0xe0 && s[0] <= 0xef) {
        if (left < 3 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80)
            return 0;
        if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f))
            return 0;
        return 3;
    }
    if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        if (left < 4 || (s[1] & 0xc0) != 0x80 || (s[2] & 0xc0) != 0x80 || (s[3] & 0xc0) != 0x80)
            return 0;
        if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

// r->at is after the opening quote. Sets text, len, escaped and moves past the closing quote.
static const char *scan_string(sl_json_reader *r) {
    r->text = r->at;
    r->escaped = false;
    while (r->at < r->end) {
        unsigned char c = (unsigned char)*r->at;
        if (c == '"') {
            r->len = (size_t)(r->at - r->text);
            r->at++;
            return NULL;
        }
        if (c < 0x20)
            return "control character inside a string";
        if (c != '\\') {
            size_t n = utf8_len(r->at, r->end);
            if (n == 0)
                return "invalid UTF-8 inside a string";
            r->at += n;
            continue;
        }
        r->escaped = true;
        r->at++;
        if (r->at >= r->end)
            break;
        switch (*r->at) {
        case '"':
        case '\\':
        case '/':
        case 'b':
        case 'f':
        case 'n':
        case 'r':
        case 't':
            r->at++;
            break;
        case 'u': {
            int u = hex4(r->at + 1, r->end);
            if (u < 0)
                return "\\u needs four hexadecimal digits";
            r->at += 5;
            if (u >= 0xdc00 && u <= 0xdfff)
                return "a low surrogate without its high one";
            if (u >= 0xd800 && u <= 0xdbff) {
                int low = -1;
                if (r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u')
                    low = hex4(r->at + 2, r->end);
                if (low < 0xdc00 || low > 0xdfff)
                    return "a high surrogate without its low one";
                r->at += 6;
            }
            break;
        }
        default:
            return "unknown escape";
        }
    }
    return "the string does not end";
}

static const char *scan_number(sl_json_reader *r) {
    const char *p = r->at;
    if (p < r->end && *p == '-')
        p++;
    if (!is_digit(p, r->end))
        return "expected a value";
    if (*p == '0') {
        p++;
        if (is_digit(p, r->end))
            return "a number must not start with 0";
    } else {
        while (is_digit(p, r->end))
            p++;
    }
    if (p < r->end && *p == '.') {
        p++;
        if (!is_digit(p, r->end))
            return "a digit must follow the decimal point";
        while (is_digit(p, r->end))
            p++;
    }
    if (p < r->end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < r->end && (*p == '+' || *p == '-'))
            p++;
        if (!is_digit(p, r->end))
            return "the exponent has no digits";
        while (is_digit(p, r->end))
            p++;
    }
    r->text = r->at;
    r->len = (size_t)(p - r->at);
    r->at = p;
    return NULL;
}

static bool literal(sl_json_reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return false;
    r->at += n;
    return true;
}

static sl_json_event close_container(sl_json_reader *r) {
    r->at++;
    r->depth--;
    r->state = AFTER_VALUE;
    return r->stack[r->depth] == '{' ? SL_JSON_EV_END_OBJECT : SL_JSON_EV_END_ARRAY;
}

static sl_json_event value(sl_json_reader *r, sl_error *err) {
    const char *problem;
    char c = *r->at;
    r->state = AFTER_VALUE;
    switch (c) {
    case '{':
    case '[':
        if (r->depth == SL_JSON_DEPTH_MAX)
            return fail(r, err, "nested too deeply");
        r->stack[r->depth++] = (uint8_t)c;
        r->at++;
        r->state = c == '{' ? EXPECT_FIRST_KEY : EXPECT_FIRST_VALUE;
        return c == '{' ? SL_JSON_EV_BEGIN_OBJECT : SL_JSON_EV_BEGIN_ARRAY;
    case '"':
        r->at++;
        problem = scan_string(r);
        return problem ? fail(r, err, problem) : SL_JSON_EV_STRING;
    case 't':
        return literal(r, "true") ? SL_JSON_EV_TRUE : fail(r, err, "expected a value");
    case 'f':
        return literal(r, "false") ? SL_JSON_EV_FALSE : fail(r, err, "expected a value");
    case 'n':
        return literal(r, "null") ? SL_JSON_EV_NULL : fail(r, err, "expected a value");
    default:
        problem = scan_number(r);
        return problem ? fail(r, err, problem) : SL_JSON_EV_NUMBER;
    }
}

static void skip_space(sl_json_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

sl_json_event sl_json_next(sl_json_reader *r, sl_error *err) {
    for (;;) {
        skip_space(r);
        bool more = r->at < r->end;
        switch (r->state) {
        case FAILED:
            return fail(r, err, "reading went on after an error");
        case EXPECT_FIRST_VALUE:
            if (more && *r->at == ']')
                return close_container(r);
            // fall through
        case EXPECT_VALUE:
            return more ? value(r, err) : fail(r, err, "the text ends where a value was expected");
        case EXPECT_FIRST_KEY:
            if (more && *r->at == '}')
                return close_container(r);
            // fall through
        case EXPECT_KEY: {
            if (!more || *r->at != '"')
                return fail(r, err, "expected a key in double quotes");
            r->at++;
            const char *problem = scan_string(r);
            if (problem)
                return fail(r, err, problem);
            r->state = EXPECT_COLON;
            return SL_JSON_EV_KEY;
        }
        case EXPECT_COLON:
            if (!more || *r->at != ':')
                return fail(r, err, "expected ':'");
            r->at++;
            r->state = EXPECT_VALUE;
            continue;
        case AFTER_VALUE:
            if (r->depth == 0)
                return more ? fail(r, err, "text after the end of the value") : SL_JSON_EV_END;
            if (!more)
                return fail(r, err, "the text ends inside an object or array");
            if (*r->at == ',') {
                r->at++;
                r->state = r->stack[r->depth - 1] == '{' ? EXPECT_KEY : EXPECT_VALUE;
                continue;
            }
            if (*r->at == (r->stack[r->depth - 1] == '{' ? '}' : ']'))
                return close_container(r);
            return fail(r, err, "expected ',' or the end of the object or array");
        }
    }
}

sl_status sl_json_skip(sl_json_reader *r, bool entered, sl_error *err) {
    unsigned target = entered ? r->depth - 1u : r->depth;
    do {
        sl_json_event ev = sl_json_next(r, err);
        if (ev == SL_JSON_EV_ERROR)
            return SL_ERR_SYNTAX;
        if (ev == SL_JSON_EV_END)
            return sl_fail(err, SL_ERR_SYNTAX, "JSON: nothing left to skip");
    } while (r->depth > target);
    return SL_OK;
}

static size_t put_utf8(char *out, uint32_t u) {
    if (u < 0x80) {
        out[0] = (char)u;
        return 1;
    }
    if (u < 0x800) {
        out[0] = (char)(0xc0 | u >> 6);
        out[1] = (char)(0x80 | (u & 0x3f));
        return 2;
    }
    if (u < 0x10000) {
        out[0] = (char)(0xe0 | u >> 12);
        out[1] = (char)(0x80 | (u >> 6 & 0x3f));
        out[2] = (char)(0x80 | (u & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | u >> 18);
    out[1] = (char)(0x80 | (u >> 12 & 0x3f));
    out[2] = (char)(0x80 | (u >> 6 & 0x3f));
    out[3] = (char)(0x80 | (u & 0x3f));
    return 4;
}

// One decoded character (or run of plain bytes of length 1) at *p; advances *p. Text is valid.
static size_t decode_one(const char **p, const char *end, char out[4]) {
    if (**p != '\\') {
        out[0] = *(*p)++;
        return 1;
    }
    char c = (*p)[1];
    *p += 2;
    switch (c) {
    case 'b':
        out[0] = '\b';
        return 1;
    case 'f':
        out[0] = '\f';
        return 1;
    case 'n':
        out[0] = '\n';
        return 1;
    case 'r':
        out[0] = '\r';
        return 1;
    case 't':
        out[0] = '\t';
        return 1;
    case 'u': {
        uint32_t u = (uint32_t)hex4(*p, end);
        *p += 4;
        if (u >= 0xd800 && u <= 0xdbff) {
            uint32_t low = (uint32_t)hex4(*p + 2, end);
            *p += 6;
            u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
        }
        return put_utf8(out, u);
    }
    default:
        out[0] = c;
        return 1;
    }
}

size_t sl_json_decode(const sl_json_reader *r, char *out) {
    if (!r->escaped) {
        memcpy(out, r->text, r->len);
        return r->len;
    }
    const char *p = r->text, *end = r->text + r->len;
    size_t n = 0;
    while (p < end) {
        char one[4];
        size_t k = decode_one(&p, end, one);
        memcpy(out + n, one, k);
        n += k;
    }
    return n;
}

bool sl_json_reader_is(const sl_json_reader *r, const char *text) {
    size_t want = strlen(text);
    if (!r->escaped)
        return want == r->len && memcmp(text, r->text, want) == 0;
    const char *p = r->text, *end = r->text + r->len;
    size_t n = 0;
    while (p < end) {
        char one[4];
        size_t k = decode_one(&p, end, one);
        if (n + k > want || memcmp(text + n, one, k) != 0)
            return false;
        n += k;
    }
    return n == want;
}

/* ---- tree ---------------------------------------------------------------------------------- */

static const char *copy_text(const sl_json_reader *r, sl_arena *arena, size_t *len) {
    char *text = sl_arena_alloc(arena, r->len + 1, 1);
    if (!text)
        return NULL;
    *len = sl_json_decode(r, text);
    text[*len] = '\0';
    return text;
}

static bool has_key(const sl_json *object, const char *key, size_t len) {
    for (const sl_json *c = object->child; c; c = c->next)
        if (c->key_len == len && memcmp(c->key, key, len) == 0)
            return true;
    return false;
}

static const sl_json_type type_of_event[] = {
    [SL_JSON_EV_BEGIN_OBJECT] = SL_JSON_OBJECT, [SL_JSON_EV_BEGIN_ARRAY] = SL_JSON_ARRAY,
    [SL_JSON_EV_STRING] = SL_JSON_STRING,       [SL_JSON_EV_NUMBER] = SL_JSON_NUMBER,
    [SL_JSON_EV_TRUE] = SL_JSON_TRUE,           [SL_JSON_EV_FALSE] = SL_JSON_FALSE,
    [SL_JSON_EV_NULL] = SL_JSON_NULL,
};

sl_status sl_json_parse(const char *text, size_t len, sl_arena *arena, sl_json **out,
                        sl_error *err) {
    sl_json_reader r;
    sl_json *parents[SL_JSON_DEPTH_MAX], *last[SL_JSON_DEPTH_MAX], *root = NULL;
    const char *key = NULL;
    size_t key_len = 0;
    unsigned depth = 0;
    *out = NULL;
    sl_json_reader_init(&r, text, len);
    for (;;) {
        sl_json_event ev = sl_json_next(&r, err);
        switch (ev) {
        case SL_JSON_EV_ERROR:
            return SL_ERR_SYNTAX;
        case SL_JSON_EV_END:
            *out = root;
            return SL_OK;
        case SL_JSON_EV_KEY:
            key = copy_text(&r, arena, &key_len);
            if (!key)
                return sl_arena_full(arena, r.len + 1, err);
            // Objects that people write are small; large tables go through the pull reader.
            assert(depth > 0);
            if (parents[depth - 1]->n_children < 4096 && has_key(parents[depth - 1], key, key_len))
                return sl_fail(err, SL_ERR_SYNTAX, "JSON: the key '%.80s' is given twice", key);
            continue;
        case SL_JSON_EV_END_OBJECT:
        case SL_JSON_EV_END_ARRAY:
            assert(depth > 0);
            depth--;
            continue;
        default:
            break;
        }
        sl_json *node = sl_arena_alloc(arena, sizeof(*node), _Alignof(sl_json));
        if (!node)
            return sl_arena_full(arena, sizeof(*node), err);
        memset(node, 0, sizeof(*node));
        node->type = type_of_event[ev];
        node->key = key;
        node->key_len = key_len;
        key = NULL;
        key_len = 0;
        if (ev == SL_JSON_EV_STRING || ev == SL_JSON_EV_NUMBER) {
            if (ev == SL_JSON_EV_NUMBER)
                r.escaped = false;
            node->text = copy_text(&r, arena, &node->text_len);
            if (!node->text)
                return sl_arena_full(arena, r.len + 1, err);
        }
        if (depth == 0) {
            root = node;
        } else {
            sl_json *parent = parents[depth - 1];
            if (parent->child)
                last[depth - 1]->next = node;
            else
                parent->child = node;
            last[depth - 1] = node;
            parent->n_children++;
        }
        if (ev == SL_JSON_EV_BEGIN_OBJECT || ev == SL_JSON_EV_BEGIN_ARRAY)
            parents[depth++] = node;
    }
}

const sl_json *sl_json_member(const sl_json *node, const char *key) {
    if (!sl_json_is(node, SL_JSON_OBJECT))
        return NULL;
    size_t len = strlen(key);
    for (const sl_json *c = node->child; c; c = c->next)
        if (c->key_len == len && memcmp(c->key, key, len) == 0)
            return c;
    return NULL;
}

const sl_json *sl_json_member_set(const sl_json *node, const char *key) {
    const sl_json *member = sl_json_member(node, key);
    return sl_json_is(member, SL_JSON_NULL) ? NULL : member;
}

const sl_json *sl_json_element(const sl_json *node, uint32_t index) {
    if (!node || index >= node->n_children)
        return NULL;
    const sl_json *c = node->child;
    while (index--)
        c = c->next;
    return c;
}

bool sl_json_is(const sl_json *node, sl_json_type type) {
    return node && node->type == type;
}

bool sl_json_text_is(const sl_json *node, const char *text) {
    return sl_json_is(node, SL_JSON_STRING) && node->text_len == strlen(text) &&
           memcmp(node->text, text, node->text_len) == 0;
}

/* ---- numbers ------------------------------------------------------------------------------- */

double sl_json_parse_double(const char *text, size_t len) {
    static const double pow10[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *p = text, *end = text + len;
    bool negative = p < end && *p == '-';
    if (negative)
        p++;
    uint64_t mantissa = 0;
    int exponent = 0, digits = 0;
    bool fraction = false;
    for (; p < end; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        if (mantissa || *p != '0')
            digits++;
        if (digits <= 19)
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
        exponent -= fraction;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool down = false;
        int e = 0;
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            down = *p++ == '-';
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            e = e < 100000 ? e * 10 + (*p - '0') : e;
        exponent += down ? -e : e;
    }
    // Both factors are exact doubles, so one IEEE operation rounds correctly (Clinger's fast path).
    if (digits <= 19 && mantissa <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22) {
        double v = (double)mantissa;
        v = exponent < 0 ? v / pow10[-exponent] : v * pow10[exponent];
        return negative ? -v : v;
    }
    char copy[512];
    if (len >= sizeof(copy))
        len = sizeof(copy) - 1;
    memcpy(copy, text, len);
    copy[len] = '\0';
    locale_t c =
        newlocale(LC_ALL_MASK, "C", (locale_t)0); // glibc returns a static object: no allocation
    double v = c ? strtod_l(copy, NULL, c) : strtod(copy, NULL);
    if (c)
        freelocale(c);
    return v;
}

bool sl_json_double(const sl_json *node, double *out) {
    if (!sl_json_is(node, SL_JSON_NUMBER))
        return false;
    *out = sl_json_parse_double(node->text, node->text_len);
    return true;
}

// Whole decimal digits without sign, '.' or exponent.
static bool plain_digits(const char *p, size_t len, uint64_t *out) {
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        uint64_t d = (uint64_t)(p[i] - '0');
        if (v > (UINT64_MAX - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *out = v;
    return len > 0;
}

bool sl_json_uint64(const sl_json *node, uint64_t *out) {
    double d;
    if (!sl_json_is(node, SL_JSON_NUMBER))
        return false;
    if (plain_digits(node->text, node->text_len, out))
        return true;
    if (!sl_json_double(node, &d) || d < 0 || d > 9007199254740992.0 || d != (double)(uint64_t)d)
        return false;
    *out = (uint64_t)d;
    return true;
}

bool sl_json_int64(const sl_json *node, int64_t *out) {
    double d;
    uint64_t u;
    if (!sl_json_is(node, SL_JSON_NUMBER))
        return false;
    bool negative = node->text[0] == '-';
    if (plain_digits(node->text + negative, node->text_len - negative, &u)) {
        if (u > (uint64_t)INT64_MAX)
            return false;
        *out = negative ? -(int64_t)u : (int64_t)u;
        return true;
    }
    if (!sl_json_double(node, &d) || d < -9007199254740992.0 || d > 9007199254740992.0 ||
        d != (double)(int64_t)d)
        return false;
    *out = (int64_t)d;
    return true;
}
