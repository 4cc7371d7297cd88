/* Template text to tree. Owns the grammar: the lexer's white-space rules, the expression grammar and
 * the statements; and every decision that needs no values: which filters, tests, methods and
 * functions exist and how many arguments they take. Recursion is bounded by DEPTH_MAX. */
#include <stdio.h>
#include <string.h>

#include "text/template_internal.h"

// Nesting of the parser itself: brackets and blocks, also those that leave no node behind.
#define DEPTH_MAX SL_TEMPLATE_HEIGHT_MAX

typedef enum token_kind {
    TK_END,
    TK_TEXT,
    TK_VARIABLE_BEGIN,
    TK_VARIABLE_END,
    TK_BLOCK_BEGIN,
    TK_BLOCK_END,
    TK_NAME,
    TK_STR,
    TK_INT,
    TK_FLOAT,
    TK_ADD,
    TK_SUB,
    TK_MUL,
    TK_DIV,
    TK_FLOOR_DIV,
    TK_MOD,
    TK_POW,
    TK_TILDE,
    TK_EQ,
    TK_NE,
    TK_LT,
    TK_LE,
    TK_GT,
    TK_GE,
    TK_ASSIGN,
    TK_DOT,
    TK_COLON,
    TK_PIPE,
    TK_COMMA,
    TK_LPAREN,
    TK_RPAREN,
    TK_LBRACKET,
    TK_RBRACKET,
    TK_LBRACE,
    TK_RBRACE,
} token_kind;

typedef struct token {
    token_kind kind;
    size_t at;
    const char *text; // TEXT, NAME, STR (decoded)
    size_t len;
    int64_t i;
    double f;
} token;

typedef enum lex_mode { LEX_DATA, LEX_VARIABLE, LEX_BLOCK } lex_mode;

typedef struct parser {
    const char *src;
    size_t len, pos;
    sl_arena *arena;
    sl_error *err;
    sl_status status; // of the first error
    token tok;        // the current token
    lex_mode mode;
    uint8_t brackets[DEPTH_MAX]; // the closing ones that are due
    uint32_t n_brackets;
    uint32_t depth;
    uint32_t n_loops;  // for statements around this place, in the same macro
    uint32_t n_macros; // macros around this place
    tpl_node *calls;   // of names, through c
    tpl_node *macros;  // TPL_OPERAND, through next; a is the macro
    tpl_node lost;     // stands for every node after an error, so that nobody looks for NULL
} parser;

/* ---- errors and memory --------------------------------------------------------------------- */

void sl__tpl_place(const char *source, size_t at, unsigned *line, unsigned *column) {
    *line = *column = 1;
    for (size_t i = 0; i < at; i++) {
        ++*column;
        if (source[i] == '\n') {
            ++*line;
            *column = 1;
        }
    }
}

// After the first error every token is the end, so that all loops of the parser stop.
static void stop(parser *p, sl_status status) {
    p->status = status;
    p->tok.kind = TK_END;
    p->pos = p->len;
}

// Records the first error only: the callers of a failed parse unwind without looking.
static void fail_at(parser *p, sl_status status, size_t at, const char *fmt, ...) SL_PRINTF(4, 5);
static void fail_at(parser *p, sl_status status, size_t at, const char *fmt, ...) {
    if (p->status)
        return;
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    unsigned line, column;
    sl__tpl_place(p->src, at, &line, &column);
    stop(p, sl_fail(p->err, status, "chat template, line %u column %u: %s", line, column, what));
}

static void *allocate(parser *p, size_t bytes, size_t align) {
    void *block = p->status ? NULL : sl_arena_alloc(p->arena, bytes, align);
    if (!block && !p->status)
        stop(p, sl_arena_full(p->arena, bytes, p->err));
    return block;
}

static tpl_node *new_node(parser *p, tpl_kind kind, size_t at) {
    tpl_node *node = allocate(p, sizeof(*node), _Alignof(tpl_node));
    if (!node)
        node = &p->lost;
    memset(node, 0, sizeof(*node));
    node->kind = (uint8_t)kind;
    node->at = (uint32_t)at;
    node->height = 1;
    return node;
}

// child (NULL: none) is put below parent.
static tpl_node *adopt(parser *p, tpl_node *parent, tpl_node *child) {
    if (child && child->height >= parent->height) {
        if (child->height == SL_TEMPLATE_HEIGHT_MAX)
            fail_at(p, SL_ERR_UNSUPPORTED, parent->at, "nested more than %d deep",
                    SL_TEMPLATE_HEIGHT_MAX);
        parent->height = child->height + 1;
    }
    return child;
}

static void append(parser *p, tpl_node *parent, tpl_node ***tail, tpl_node *child) {
    adopt(p, parent, child);
    **tail = child;
    *tail = &child->next;
}

static bool enter(parser *p) {
    if (p->status)
        return false;
    if (p->depth == DEPTH_MAX) {
        fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "nested more than %d deep", DEPTH_MAX);
        return false;
    }
    p->depth++;
    return true;
}

static tpl_node *lost(parser *p) {
    return new_node(p, TPL_CONST_NONE, 0);
}

/* ---- lexer --------------------------------------------------------------------------------- */

static bool at_char(const parser *p, size_t at, char c) {
    return at < p->len && p->src[at] == c;
}
static bool at_pair(const parser *p, size_t at, char c, char d) {
    return at_char(p, at, c) && at_char(p, at + 1, d);
}
static bool is_digit(const parser *p, size_t at) {
    return at < p->len && p->src[at] >= '0' && p->src[at] <= '9';
}
static bool is_word(const parser *p, size_t at) {
    if (at >= p->len)
        return false;
    char c = p->src[at];
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// White space is str.isspace(), which is what \s matches.
static size_t skip_space(const parser *p, size_t at) {
    while (at < p->len) {
        size_t n;
        if (!sl__tpl_is_space(sl__tpl_cp_decode(p->src + at, &n)))
            break;
        at += n;
    }
    return at;
}

// End of text[from, to) without the white space at its end.
static size_t strip_end(const parser *p, size_t from, size_t to) {
    while (to > from) {
        size_t n, last = to - 1;
        while (last > from && (p->src[last] & 0xc0) == 0x80)
            last--;
        if (!sl__tpl_is_space(sl__tpl_cp_decode(p->src + last, &n)))
            break;
        to = last;
    }
    return to;
}

// End of the text [from, to) before a tag that starts at `to` with the given sign.
static size_t text_end(const parser *p, size_t from, size_t to, char sign, bool variable) {
    if (sign == '-')
        return strip_end(p, from, to);
    if (sign == '+' || variable)
        return to;
    size_t line = to;
    while (line > from && p->src[line - 1] != '\n')
        line--;
    bool starts_line = line > from || from == 0 || p->src[from - 1] == '\n';
    return starts_line && strip_end(p, line, to) == line ? line : to;
}

// Past a closing "%}" or "#}" at `at` that may be preceded by a sign; 0 if there is none. The newline
// after it goes with it (trim_blocks).
static size_t close_tag(const parser *p, size_t at, char mark) {
    char sign = '\0';
    if (at_char(p, at, '-') || at_char(p, at, '+'))
        sign = p->src[at++];
    if (!at_pair(p, at, mark, '}'))
        return 0;
    at += 2;
    if (sign == '-')
        return skip_space(p, at);
    return sign == '\0' && at_char(p, at, '\n') ? at + 1 : at;
}

static char sign_at(const parser *p, size_t at) {
    return at_char(p, at, '-') || at_char(p, at, '+') ? p->src[at] : '\0';
}

// Past "{% raw %}" at `at`, or 0. A newline after it stays.
static size_t raw_begin(const parser *p, size_t at) {
    at += 2;
    at = skip_space(p, sign_at(p, at) ? at + 1 : at);
    if (p->len - at < 3 || memcmp(p->src + at, "raw", 3) != 0)
        return 0;
    at = skip_space(p, at + 3);
    if (at_char(p, at, '-') && at_pair(p, at + 1, '%', '}'))
        return skip_space(p, at + 3);
    return at_pair(p, at, '%', '}') ? at + 2 : 0;
}

// Past "{% endraw %}" at `at`, or 0.
static size_t raw_end(const parser *p, size_t at) {
    at += 2;
    at = skip_space(p, sign_at(p, at) ? at + 1 : at);
    if (p->len - at < 6 || memcmp(p->src + at, "endraw", 6) != 0)
        return 0;
    return close_tag(p, skip_space(p, at + 6), '%');
}

static bool text_token(parser *p, size_t from, size_t to) {
    p->tok = (token){.kind = TK_TEXT, .at = from, .text = p->src + from, .len = to - from};
    return to > from;
}

// The next token outside of tags. Text is returned before the tag that ends it is entered.
static void next_data(parser *p) {
    while (p->pos < p->len) {
        size_t from = p->pos, tag = from;
        while (tag < p->len && !at_pair(p, tag, '{', '{') && !at_pair(p, tag, '{', '%') &&
               !at_pair(p, tag, '{', '#'))
            tag++;
        if (tag == p->len) {
            p->pos = tag;
            text_token(p, from, tag);
            return;
        }
        char mark = p->src[tag + 1];
        char sign = sign_at(p, tag + 2);
        p->pos = tag;
        if (text_token(p, from, text_end(p, from, tag, sign, mark == '{')))
            return;
        size_t body = mark == '%' ? raw_begin(p, tag) : 0;
        if (body) {
            size_t end = body, past = 0;
            while (end < p->len && !(at_pair(p, end, '{', '%') && (past = raw_end(p, end))))
                end++;
            if (!past) {
                fail_at(p, SL_ERR_SYNTAX, tag, "{%% raw %%} without {%% endraw %%}");
                return;
            }
            p->pos = past;
            if (text_token(p, body, text_end(p, body, end, sign_at(p, end + 2), false)))
                return;
            continue;
        }
        p->pos = tag + (sign ? 3 : 2);
        if (mark == '#') {
            size_t end = p->pos;
            while (end < p->len && !close_tag(p, end, '#'))
                end++;
            if (end == p->len) {
                fail_at(p, SL_ERR_SYNTAX, tag, "the comment does not end");
                return;
            }
            p->pos = close_tag(p, end, '#');
            continue;
        }
        p->mode = mark == '{' ? LEX_VARIABLE : LEX_BLOCK;
        p->tok = (token){.kind = mark == '{' ? TK_VARIABLE_BEGIN : TK_BLOCK_BEGIN, .at = tag};
        return;
    }
    p->tok = (token){.kind = TK_END, .at = p->pos};
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decode the escapes of text into out (which has room: no escape is shorter than what it means).
// Returns the length.
static size_t unescape(parser *p, size_t at, const char *text, size_t len, char *out) {
    static const char simple[] = "n\nt\tr\rb\bf\fv\va\a\\\\''\"\"";
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\\') {
            out[n++] = text[i];
            continue;
        }
        char c = text[++i];
        const char *hit = NULL;
        for (size_t k = 0; k < sizeof(simple) - 1 && !hit; k += 2)
            hit = simple[k] == c ? simple + k + 1 : NULL;
        size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        uint32_t cp = 0;
        if (hit) {
            out[n++] = *hit;
        } else if (c == '\n') {
            // A line that goes on.
        } else if (c >= '0' && c <= '7') {
            for (size_t k = 0; k < 3 && i < len && text[i] >= '0' && text[i] <= '7'; k++)
                cp = cp * 8 + (uint32_t)(text[i++] - '0');
            i--;
            n += sl__tpl_cp_encode(cp, out + n);
        } else if (digits) {
            for (size_t k = 0; k < digits; k++) {
                int h = ++i < len ? hex_value(text[i]) : -1;
                if (h < 0 || cp > 0x10ffff) {
                    fail_at(p, SL_ERR_SYNTAX, at, "malformed \\%c escape in a string", c);
                    return 0;
                }
                cp = cp * 16 + (uint32_t)h;
            }
            if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
                fail_at(p, SL_ERR_UNSUPPORTED, at, "\\%c escape of U+%04X, which is no character",
                        c, cp);
                return 0;
            }
            n += sl__tpl_cp_encode(cp, out + n);
        } else if (c == 'N' || (unsigned char)c >= 0x80) {
            fail_at(p, SL_ERR_UNSUPPORTED, at, "a backslash before this character in a string");
            return 0;
        } else {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    return n;
}

static void next_string(parser *p) {
    char quote = p->src[p->pos];
    size_t from = p->pos + 1, at = from;
    bool escaped = false;
    while (at < p->len && p->src[at] != quote) {
        escaped |= p->src[at] == '\\';
        at += p->src[at] == '\\' ? 2 : 1;
    }
    if (at >= p->len) {
        fail_at(p, SL_ERR_SYNTAX, p->pos, "the string does not end");
        return;
    }
    p->tok = (token){.kind = TK_STR, .at = p->pos, .text = p->src + from, .len = at - from};
    if (escaped) {
        char *out = allocate(p, at - from, 1);
        if (!out)
            return;
        p->tok.len = unescape(p, p->pos, p->src + from, at - from, out);
        p->tok.text = out;
    }
    p->pos = at + 1;
}

// Past digits that may be grouped by single underscores.
static size_t skip_digits(const parser *p, size_t at) {
    while (is_digit(p, at) || (at_char(p, at, '_') && is_digit(p, at - 1) && is_digit(p, at + 1)))
        at++;
    return at;
}

static size_t skip_exponent(const parser *p, size_t at) {
    if (!at_char(p, at, 'e') && !at_char(p, at, 'E'))
        return at;
    size_t digits = at + 1;
    if (at_char(p, digits, '+') || at_char(p, digits, '-'))
        digits++;
    return is_digit(p, digits) ? skip_digits(p, digits) : at;
}

static void next_number(parser *p) {
    size_t from = p->pos;
    p->tok = (token){.kind = TK_FLOAT, .at = from};
    // ".5" is an attribute lookup, so a number after a dot ends before the next dot.
    if (from == 0 || p->src[from - 1] != '.') {
        size_t end = skip_digits(p, from), whole = end;
        if (at_char(p, end, '.') && is_digit(p, end + 1))
            end = skip_digits(p, end + 1);
        end = skip_exponent(p, end);
        if (end > whole) {
            char text[128];
            size_t n = 0;
            for (size_t i = from; i < end && n < sizeof(text); i++) {
                if (p->src[i] != '_')
                    text[n++] = p->src[i];
            }
            if (n == sizeof(text)) {
                fail_at(p, SL_ERR_UNSUPPORTED, from, "a number this long");
                return;
            }
            p->tok.f = sl_json_parse_double(text, n);
            p->pos = end;
            return;
        }
    }
    int base = 10;
    size_t at = from;
    if (p->src[at] == '0' && at + 1 < p->len) {
        char c = p->src[at + 1] | 0x20;
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        size_t digit = at + 2 + at_char(p, at + 2, '_');
        if (b != 10 && digit < p->len && hex_value(p->src[digit]) >= 0 &&
            hex_value(p->src[digit]) < b) {
            base = b;
            at = digit;
        }
    }
    bool zero = base == 10 && p->src[at] == '0'; // "012" is 0 and then 12
    int64_t v = 0;
    for (;;) {
        int h = at < p->len ? hex_value(p->src[at]) : -1;
        if (h < 0 || h >= base || (zero && h))
            break;
        if (__builtin_mul_overflow(v, (int64_t)base, &v) ||
            __builtin_add_overflow(v, (int64_t)h, &v)) {
            fail_at(p, SL_ERR_UNSUPPORTED, from, "an integer outside 64 bits");
            return;
        }
        at++;
        if (at_char(p, at, '_') && at + 1 < p->len && hex_value(p->src[at + 1]) >= 0 &&
            hex_value(p->src[at + 1]) < base && !(zero && p->src[at + 1] != '0'))
            at++;
    }
    p->tok.kind = TK_INT;
    p->tok.i = v;
    p->pos = at;
}

static void next_operator(parser *p) {
    static const struct {
        char text[3];
        token_kind kind;
    } operators[] = {
        {"//", TK_FLOOR_DIV}, {"**", TK_POW},     {"==", TK_EQ},      {"!=", TK_NE},
        {"<=", TK_LE},        {">=", TK_GE},      {"+", TK_ADD},      {"-", TK_SUB},
        {"*", TK_MUL},        {"/", TK_DIV},      {"%", TK_MOD},      {"~", TK_TILDE},
        {"<", TK_LT},         {">", TK_GT},       {"=", TK_ASSIGN},   {".", TK_DOT},
        {":", TK_COLON},      {"|", TK_PIPE},     {",", TK_COMMA},    {"(", TK_LPAREN},
        {")", TK_RPAREN},     {"[", TK_LBRACKET}, {"]", TK_RBRACKET}, {"{", TK_LBRACE},
        {"}", TK_RBRACE},
    };
    char c = p->src[p->pos];
    size_t i = 0, n = 0;
    for (; i < SL_COUNT(operators); i++) {
        n = operators[i].text[1] ? 2 : 1;
        if (operators[i].text[0] == c && (n == 1 || at_char(p, p->pos + 1, operators[i].text[1])))
            break;
    }
    if (i == SL_COUNT(operators)) {
        if ((unsigned char)c >= 0x80)
            fail_at(p, SL_ERR_UNSUPPORTED, p->pos, "a character outside ASCII in an expression");
        else
            fail_at(p, SL_ERR_SYNTAX, p->pos, "unexpected character '%c'",
                    c < 0x20 || c == 0x7f ? '?' : c);
        return;
    }
    p->tok = (token){.kind = operators[i].kind, .at = p->pos};
    if (c == '(' || c == '[' || c == '{') {
        if (p->n_brackets == DEPTH_MAX) {
            fail_at(p, SL_ERR_UNSUPPORTED, p->pos, "nested more than %d deep", DEPTH_MAX);
            return;
        }
        p->brackets[p->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (p->n_brackets == 0 || p->brackets[p->n_brackets - 1] != c) {
            fail_at(p, SL_ERR_SYNTAX, p->pos, "unexpected '%c'", c);
            return;
        }
        p->n_brackets--;
    }
    p->pos += n;
}

// The next token inside a tag. A closing mark counts only outside of brackets: {{ {"a": {}} }}.
static void next_in_tag(parser *p) {
    for (;;) {
        size_t past = 0;
        if (p->n_brackets == 0 && p->mode == LEX_BLOCK)
            past = close_tag(p, p->pos, '%');
        else if (p->n_brackets == 0 && at_pair(p, p->pos, '}', '}'))
            past = p->pos + 2;
        else if (p->n_brackets == 0 && at_char(p, p->pos, '-') && at_pair(p, p->pos + 1, '}', '}'))
            past = skip_space(p, p->pos + 3);
        if (past) {
            p->tok = (token){.kind = p->mode == LEX_BLOCK ? TK_BLOCK_END : TK_VARIABLE_END,
                             .at = p->pos};
            p->pos = past;
            p->mode = LEX_DATA;
            return;
        }
        size_t at = skip_space(p, p->pos);
        if (at == p->pos)
            break;
        p->pos = at;
    }
    if (p->pos >= p->len) {
        fail_at(p, SL_ERR_SYNTAX, p->pos, "the template ends inside a tag");
    } else if (is_digit(p, p->pos)) {
        next_number(p);
    } else if (is_word(p, p->pos)) {
        size_t from = p->pos;
        while (is_word(p, p->pos))
            p->pos++;
        p->tok = (token){.kind = TK_NAME, .at = from, .text = p->src + from, .len = p->pos - from};
    } else if (p->src[p->pos] == '\'' || p->src[p->pos] == '"') {
        next_string(p);
    } else {
        next_operator(p);
    }
}

static void advance(parser *p) {
    if (p->status)
        return;
    if (p->mode == LEX_DATA)
        next_data(p);
    else
        next_in_tag(p);
}

/* ---- token helpers ------------------------------------------------------------------------- */

static bool text_is(const char *text, size_t len, const char *word) {
    return strlen(word) == len && memcmp(text, word, len) == 0;
}

static bool is_name(const parser *p, const char *word) {
    return p->tok.kind == TK_NAME && text_is(p->tok.text, p->tok.len, word);
}

// The word is one of the names in words, which are separated by blanks.
static bool word_among(const char *text, size_t len, const char *words) {
    for (const char *w = words; *w;) {
        size_t n = strcspn(w, " ");
        if (n == len && memcmp(w, text, n) == 0)
            return true;
        w += n + (w[n] == ' ');
    }
    return false;
}

static bool is_among(const parser *p, const char *words) {
    return p->tok.kind == TK_NAME && word_among(p->tok.text, p->tok.len, words);
}

static void unexpected(parser *p, const char *wanted) {
    if (p->tok.kind == TK_END)
        fail_at(p, SL_ERR_SYNTAX, p->tok.at, "the template ends, expected %s", wanted);
    else if (p->tok.kind == TK_NAME)
        fail_at(p, SL_ERR_SYNTAX, p->tok.at, "expected %s, found '%.*s'", wanted,
                (int)SL_MIN(p->tok.len, (size_t)60), p->tok.text);
    else
        fail_at(p, SL_ERR_SYNTAX, p->tok.at, "expected %s", wanted);
}

static bool skip_name(parser *p, const char *word) {
    if (!is_name(p, word))
        return false;
    advance(p);
    return true;
}

static bool skip_kind(parser *p, token_kind kind) {
    if (p->tok.kind != kind)
        return false;
    advance(p);
    return true;
}

static void expect(parser *p, token_kind kind, const char *wanted) {
    if (!skip_kind(p, kind))
        unexpected(p, wanted);
}

/* ---- expressions --------------------------------------------------------------------------- */

static tpl_node *parse_expression(parser *p, bool with_cond);
static tpl_node *parse_unary(parser *p, bool with_filter);

static tpl_node *text_node(parser *p, tpl_kind kind, const token *tok) {
    tpl_node *node = new_node(p, kind, tok->at);
    node->text = tok->text;
    node->len = (uint32_t)tok->len;
    return node;
}

static bool ends_tuple(const parser *p, const char *end_name) {
    return p->tok.kind == TK_VARIABLE_END || p->tok.kind == TK_BLOCK_END ||
           p->tok.kind == TK_RPAREN || p->tok.kind == TK_END || (end_name && is_name(p, end_name));
}

// One expression, or several with commas, which make a tuple. Nothing at all is a tuple only between
// parentheses.
static tpl_node *parse_tuple(parser *p, bool with_cond, const char *end_name, bool in_parens) {
    size_t at = p->tok.at;
    if (ends_tuple(p, end_name) && !in_parens) {
        unexpected(p, "an expression");
        return lost(p);
    }
    tpl_node *first = ends_tuple(p, end_name) ? NULL : parse_expression(p, with_cond);
    if (first && p->tok.kind != TK_COMMA)
        return first;
    tpl_node *tuple = new_node(p, TPL_TUPLE, at);
    tpl_node **tail = &tuple->a;
    if (first)
        append(p, tuple, &tail, first);
    while (skip_kind(p, TK_COMMA) && !ends_tuple(p, end_name))
        append(p, tuple, &tail, parse_expression(p, with_cond));
    return tuple;
}

static tpl_node *parse_list(parser *p) {
    tpl_node *list = new_node(p, TPL_LIST, p->tok.at);
    tpl_node **tail = &list->a;
    advance(p);
    while (!p->status && p->tok.kind != TK_RBRACKET) {
        append(p, list, &tail, parse_expression(p, true));
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RBRACKET, "',' or ']'");
    return list;
}

static tpl_node *parse_dict(parser *p) {
    tpl_node *dict = new_node(p, TPL_DICT, p->tok.at);
    tpl_node **tail = &dict->a;
    advance(p);
    while (!p->status && p->tok.kind != TK_RBRACE) {
        append(p, dict, &tail, parse_expression(p, true));
        expect(p, TK_COLON, "':'");
        append(p, dict, &tail, parse_expression(p, true));
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RBRACE, "',' or '}'");
    return dict;
}

static tpl_node *parse_strings(parser *p) {
    tpl_node *node = text_node(p, TPL_CONST_STR, &p->tok);
    advance(p);
    while (p->tok.kind == TK_STR) {
        char *joined = allocate(p, node->len + p->tok.len, 1);
        if (!joined)
            break;
        memcpy(joined, node->text, node->len);
        memcpy(joined + node->len, p->tok.text, p->tok.len);
        node->text = joined;
        node->len += (uint32_t)p->tok.len;
        advance(p);
    }
    return node;
}

static tpl_node *parse_name(parser *p) {
    token tok = p->tok;
    advance(p);
    if (word_among(tok.text, tok.len, "true True false False")) {
        tpl_node *node = new_node(p, TPL_CONST_BOOL, tok.at);
        node->op = tok.text[0] == 't' || tok.text[0] == 'T';
        return node;
    }
    if (word_among(tok.text, tok.len, "none None"))
        return new_node(p, TPL_CONST_NONE, tok.at);
    if (word_among(tok.text, tok.len, "self super") ||
        (p->n_macros && word_among(tok.text, tok.len, "varargs kwargs caller")))
        fail_at(p, SL_ERR_UNSUPPORTED, tok.at, "the special name '%.*s'", (int)tok.len, tok.text);
    return text_node(p, TPL_NAME, &tok);
}

static tpl_node *parse_primary(parser *p) {
    tpl_node *node;
    size_t at = p->tok.at;
    if (!enter(p))
        return lost(p);
    switch (p->tok.kind) {
    case TK_NAME:
        node = parse_name(p);
        break;
    case TK_STR:
        node = parse_strings(p);
        break;
    case TK_INT:
        node = new_node(p, TPL_CONST_INT, at);
        node->i = p->tok.i;
        advance(p);
        break;
    case TK_FLOAT:
        node = new_node(p, TPL_CONST_FLOAT, at);
        node->f = p->tok.f;
        advance(p);
        break;
    case TK_LPAREN:
        advance(p);
        node = parse_tuple(p, true, NULL, true);
        expect(p, TK_RPAREN, "')'");
        break;
    case TK_LBRACKET:
        node = parse_list(p);
        break;
    case TK_LBRACE:
        node = parse_dict(p);
        break;
    default:
        unexpected(p, "an expression");
        node = lost(p);
    }
    p->depth--;
    return node;
}

// name= follows: the argument is given by name.
static bool at_keyword(const parser *p) {
    size_t at = skip_space(p, p->pos);
    return p->tok.kind == TK_NAME && at_char(p, at, '=') && !at_char(p, at + 1, '=');
}

// The arguments of a call, from the opening parenthesis. They go to parent->b, positional ones first.
static void parse_arguments(parser *p, tpl_node *parent) {
    tpl_node **tail = &parent->b;
    bool named = false;
    advance(p);
    while (!p->status && p->tok.kind != TK_RPAREN) {
        if (p->tok.kind == TK_MUL || p->tok.kind == TK_POW) {
            fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "* and ** in a call");
        } else if (at_keyword(p)) {
            tpl_node *keyword = text_node(p, TPL_KEYWORD, &p->tok);
            for (const tpl_node *arg = parent->b; arg && !p->status; arg = arg->next) {
                if (arg->kind == TPL_KEYWORD && arg->len == keyword->len &&
                    memcmp(arg->text, keyword->text, arg->len) == 0)
                    fail_at(p, SL_ERR_SYNTAX, p->tok.at, "argument '%.*s' is given twice",
                            (int)SL_MIN(arg->len, 60u), arg->text);
            }
            advance(p);
            advance(p);
            keyword->a = adopt(p, keyword, parse_expression(p, true));
            append(p, parent, &tail, keyword);
            named = true;
        } else if (named) {
            fail_at(p, SL_ERR_SYNTAX, p->tok.at, "an argument without a name after named ones");
        } else {
            append(p, parent, &tail, parse_expression(p, true));
        }
        if (!skip_kind(p, TK_COMMA))
            break;
    }
    expect(p, TK_RPAREN, "',' or ')'");
}

static tpl_node *parse_call(parser *p, tpl_node *callee) {
    tpl_node *call = new_node(p, TPL_CALL, p->tok.at);
    call->a = adopt(p, call, callee);
    parse_arguments(p, call);
    if (callee->kind == TPL_NAME) {
        call->c = p->calls;
        p->calls = call;
    } else if (callee->kind == TPL_ATTR &&
               !sl__tpl_find_method(callee->text, callee->len, TPL_V_ABSENT)) {
        fail_at(p, SL_ERR_UNSUPPORTED, callee->at, "unknown method '%.*s'",
                (int)SL_MIN(callee->len, 60u), callee->text);
    }
    return call;
}

static tpl_node *parse_index(parser *p) {
    if (p->tok.kind == TK_COLON || p->tok.kind == TK_RBRACKET || p->tok.kind == TK_COMMA)
        return new_node(p, TPL_ABSENT, p->tok.at);
    return parse_expression(p, true);
}

static tpl_node *parse_subscript(parser *p, tpl_node *object) {
    size_t at = p->tok.at;
    if (skip_kind(p, TK_DOT)) {
        token tok = p->tok;
        if (tok.kind == TK_NAME) {
            tpl_node *attr = text_node(p, TPL_ATTR, &tok);
            attr->a = adopt(p, attr, object);
            advance(p);
            return attr;
        }
        tpl_node *item = new_node(p, TPL_ITEM, at);
        item->a = adopt(p, item, object);
        item->b = new_node(p, TPL_CONST_INT, tok.at);
        item->b->i = tok.i;
        adopt(p, item, item->b);
        expect(p, TK_INT, "a name or a number");
        return item;
    }
    advance(p);
    tpl_node *start = p->tok.kind == TK_RBRACKET ? NULL : parse_index(p);
    bool slice = start && p->tok.kind == TK_COLON;
    tpl_node *node = new_node(p, slice ? TPL_SLICE : TPL_ITEM, at);
    tpl_node **tail = &node->b;
    node->a = adopt(p, node, object);
    if (slice) {
        append(p, node, &tail, start);
        advance(p);
        append(p, node, &tail, parse_index(p));
        bool step = skip_kind(p, TK_COLON);
        append(p, node, &tail, step ? parse_index(p) : new_node(p, TPL_ABSENT, p->tok.at));
        if (p->tok.kind == TK_COMMA)
            fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "a slice beside another index");
    } else if (start && p->tok.kind != TK_COMMA) {
        append(p, node, &tail, start);
    } else {
        // None or several make a tuple, which is a key that a dict may have.
        tpl_node *tuple = new_node(p, TPL_TUPLE, at), **items = &tuple->a;
        if (start)
            append(p, tuple, &items, start);
        while (skip_kind(p, TK_COMMA))
            append(p, tuple, &items, parse_expression(p, true));
        append(p, node, &tail, tuple);
    }
    expect(p, TK_RBRACKET, "']'");
    return node;
}

static tpl_node *parse_postfix(parser *p, tpl_node *node) {
    for (;;) {
        if (p->tok.kind == TK_DOT || p->tok.kind == TK_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->tok.kind == TK_LPAREN)
            node = parse_call(p, node);
        else
            return node;
    }
}

// The arguments of a filter or test are counted here; names that are given as strings are looked up.
static void check_callable(parser *p, const tpl_node *node, const char *what, const token *name) {
    if (!node->fn) {
        if (!p->status)
            fail_at(p, SL_ERR_UNSUPPORTED, name->at, "unknown %s '%.*s'", what,
                    (int)SL_MIN(name->len, (size_t)60), name->text);
        return;
    }
    uint32_t n = 0;
    const tpl_node *arg = node->b, *keywords;
    for (; arg && arg->kind != TPL_KEYWORD; arg = arg->next)
        n++;
    keywords = arg;
    const char *problem = sl__tpl_check_call(node->fn, n, keywords);
    if (problem)
        fail_at(p, SL_ERR_SYNTAX, name->at, "%s '%s' %s", what, node->fn->name, problem);
    const char *const with_filter = "map", *const with_test = "select reject";
    const char *const with_attr_test = "selectattr rejectattr";
    arg = node->b;
    if (node->kind == TPL_FILTER && arg && word_among(name->text, name->len, with_attr_test))
        arg = arg->next;
    if (!arg || arg->kind != TPL_CONST_STR || node->kind != TPL_FILTER)
        return;
    if (word_among(name->text, name->len, with_filter) && !sl__tpl_find_filter(arg->text, arg->len))
        fail_at(p, SL_ERR_UNSUPPORTED, arg->at, "unknown filter '%.*s'", (int)SL_MIN(arg->len, 60u),
                arg->text);
    else if ((word_among(name->text, name->len, with_test) ||
              (arg != node->b && word_among(name->text, name->len, with_attr_test))) &&
             !sl__tpl_find_test(arg->text, arg->len))
        fail_at(p, SL_ERR_UNSUPPORTED, arg->at, "unknown test '%.*s'", (int)SL_MIN(arg->len, 60u),
                arg->text);
}

// After the bar.
static tpl_node *parse_filter(parser *p, tpl_node *subject) {
    token name = p->tok;
    expect(p, TK_NAME, "the name of a filter");
    tpl_node *node = new_node(p, TPL_FILTER, name.at);
    node->a = adopt(p, node, subject);
    if (p->tok.kind == TK_LPAREN)
        parse_arguments(p, node);
    if (p->status)
        return node;
    node->fn = sl__tpl_find_filter(name.text, name.len);
    check_callable(p, node, "filter", &name);
    return node;
}

// After "is".
static tpl_node *parse_test(parser *p, tpl_node *subject) {
    size_t at = p->tok.at;
    bool negated = skip_name(p, "not");
    token name = p->tok;
    expect(p, TK_NAME, "the name of a test");
    tpl_node *node = new_node(p, TPL_TEST, name.at);
    node->a = adopt(p, node, subject);
    switch (p->tok.kind) {
    case TK_LPAREN:
        parse_arguments(p, node);
        break;
    case TK_NAME:
        // An argument without parentheses. As in Jinja, "if" is not among the words that end a test.
        if (is_among(p, "else or and"))
            break;
        if (is_name(p, "is"))
            fail_at(p, SL_ERR_SYNTAX, p->tok.at, "two tests in a row");
        // fall through
    case TK_STR:
    case TK_INT:
    case TK_FLOAT:
    case TK_LBRACKET:
    case TK_LBRACE:
        node->b = adopt(p, node, parse_postfix(p, parse_primary(p)));
        break;
    default:
        break;
    }
    if (p->status)
        return node;
    node->fn = sl__tpl_find_test(name.text, name.len);
    check_callable(p, node, "test", &name);
    if (!negated)
        return node;
    tpl_node *not = new_node(p, TPL_UNARY, at);
    not ->op = TPL_OP_NOT;
    not ->a = adopt(p, not, node);
    return not ;
}

static tpl_node *parse_unary(parser *p, bool with_filter) {
    tpl_node *node;
    if (p->tok.kind == TK_SUB || p->tok.kind == TK_ADD) {
        if (!enter(p))
            return lost(p);
        node = new_node(p, TPL_UNARY, p->tok.at);
        node->op = p->tok.kind == TK_SUB ? TPL_OP_NEGATE : TPL_OP_PLUS;
        advance(p);
        node->a = adopt(p, node, parse_unary(p, false));
        p->depth--;
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (with_filter && !p->status) {
        if (skip_kind(p, TK_PIPE))
            node = parse_filter(p, node);
        else if (skip_name(p, "is"))
            node = parse_test(p, node);
        else if (p->tok.kind == TK_LPAREN)
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

// From loose to tight. Every level is read from left to right, ** included.
typedef enum precedence {
    PREC_NONE,
    PREC_OR,
    PREC_AND,
    PREC_NOT,
    PREC_COMPARE,
    PREC_SUM,
    PREC_CONCAT,
    PREC_PRODUCT,
    PREC_POWER,
    PREC_UNARY,
} precedence;

// The binary operator at the current token.
static precedence operator_at(const parser *p, tpl_op *op) {
    static const struct {
        token_kind kind;
        precedence prec;
        tpl_op op;
    } table[] = {
        {TK_EQ, PREC_COMPARE, TPL_OP_EQ},       {TK_NE, PREC_COMPARE, TPL_OP_NE},
        {TK_LT, PREC_COMPARE, TPL_OP_LT},       {TK_LE, PREC_COMPARE, TPL_OP_LE},
        {TK_GT, PREC_COMPARE, TPL_OP_GT},       {TK_GE, PREC_COMPARE, TPL_OP_GE},
        {TK_ADD, PREC_SUM, TPL_OP_ADD},         {TK_SUB, PREC_SUM, TPL_OP_SUB},
        {TK_TILDE, PREC_CONCAT, TPL_OP_CONCAT}, {TK_MUL, PREC_PRODUCT, TPL_OP_MUL},
        {TK_DIV, PREC_PRODUCT, TPL_OP_DIV},     {TK_FLOOR_DIV, PREC_PRODUCT, TPL_OP_FLOOR_DIV},
        {TK_MOD, PREC_PRODUCT, TPL_OP_MOD},     {TK_POW, PREC_POWER, TPL_OP_POW},
    };
    if (p->tok.kind == TK_NAME) {
        *op = is_name(p, "or")    ? TPL_OP_OR
              : is_name(p, "and") ? TPL_OP_AND
              : is_name(p, "in")  ? TPL_OP_IN
                                  : TPL_OP_NONE;
        size_t next = skip_space(p, p->pos);
        if (is_name(p, "not") && at_pair(p, next, 'i', 'n') && !is_word(p, next + 2))
            *op = TPL_OP_NOT_IN;
        return *op == TPL_OP_OR     ? PREC_OR
               : *op == TPL_OP_AND  ? PREC_AND
               : *op == TPL_OP_NONE ? PREC_NONE
                                    : PREC_COMPARE;
    }
    for (size_t i = 0; i < SL_COUNT(table); i++) {
        if (table[i].kind == p->tok.kind) {
            *op = table[i].op;
            return table[i].prec;
        }
    }
    return PREC_NONE;
}

// An expression of operators that bind at least as tightly as min. Operators of one level become one
// node with a chain of operands, so a long sum is not a deep tree.
static tpl_node *parse_binary(parser *p, precedence min) {
    static const uint8_t kinds[] = {
        [PREC_OR] = TPL_OR,        [PREC_AND] = TPL_AND,       [PREC_COMPARE] = TPL_COMPARE,
        [PREC_SUM] = TPL_BINARY,   [PREC_CONCAT] = TPL_CONCAT, [PREC_PRODUCT] = TPL_BINARY,
        [PREC_POWER] = TPL_BINARY,
    };
    tpl_node *left;
    if (!enter(p))
        return lost(p);
    if (min <= PREC_NOT && is_name(p, "not")) {
        left = new_node(p, TPL_UNARY, p->tok.at);
        left->op = TPL_OP_NOT;
        advance(p);
        left->a = adopt(p, left, parse_binary(p, PREC_NOT));
    } else {
        left = parse_unary(p, true);
    }
    for (;;) {
        tpl_op op;
        precedence level = operator_at(p, &op);
        if (level == PREC_NONE || level < min || p->status)
            break;
        tpl_node *node = new_node(p, kinds[level], p->tok.at);
        tpl_node **tail = &node->b;
        node->a = adopt(p, node, left);
        while (operator_at(p, &op) == level && !p->status) {
            tpl_node *operand = new_node(p, TPL_OPERAND, p->tok.at);
            if (op == TPL_OP_MOD && !node->b && left->kind == TPL_CONST_STR)
                fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "formatting with %%");
            operand->op = (uint8_t)op;
            advance(p);
            if (op == TPL_OP_NOT_IN)
                advance(p);
            operand->a = adopt(p, operand, parse_binary(p, level + 1));
            append(p, node, &tail, operand);
        }
        left = node;
    }
    p->depth--;
    return left;
}

static tpl_node *parse_expression(parser *p, bool with_cond) {
    if (!enter(p))
        return lost(p);
    tpl_node *node = parse_binary(p, PREC_OR);
    while (with_cond && is_name(p, "if")) {
        tpl_node *cond = new_node(p, TPL_COND, p->tok.at);
        advance(p);
        cond->b = adopt(p, cond, node);
        cond->a = adopt(p, cond, parse_binary(p, PREC_OR));
        if (skip_name(p, "else"))
            cond->c = adopt(p, cond, parse_expression(p, true));
        node = cond;
    }
    p->depth--;
    return node;
}

/* ---- statements ---------------------------------------------------------------------------- */

static tpl_node *parse_body(parser *p, const char *ends, tpl_node *parent);

// What can be assigned to: a name, names with commas, or (in set) an attribute of a namespace.
static tpl_node *parse_target(parser *p, bool with_namespace) {
    if (!enter(p))
        return lost(p);
    tpl_node *tuple = NULL, *node = NULL, **tail = NULL;
    for (;;) {
        size_t at = p->tok.at;
        if (skip_kind(p, TK_LPAREN)) {
            node = parse_target(p, with_namespace);
            expect(p, TK_RPAREN, "')'");
        } else if (p->tok.kind == TK_NAME) {
            if (is_among(p, "true True false False none None"))
                fail_at(p, SL_ERR_SYNTAX, at, "cannot assign to this name");
            node = text_node(p, TPL_NAME, &p->tok);
            advance(p);
            if (with_namespace && skip_kind(p, TK_DOT)) {
                tpl_node *attr = text_node(p, TPL_ATTR, &p->tok);
                attr->a = adopt(p, attr, node);
                expect(p, TK_NAME, "the name of an attribute");
                node = attr;
            }
        } else {
            unexpected(p, "a name to assign to");
            node = lost(p);
        }
        if (!tuple && p->tok.kind == TK_COMMA) {
            tuple = new_node(p, TPL_TUPLE, at);
            tail = &tuple->a;
        }
        if (tuple)
            append(p, tuple, &tail, node);
        if (!skip_kind(p, TK_COMMA) || ends_tuple(p, "in"))
            break;
    }
    p->depth--;
    return tuple ? tuple : node;
}

// Past the end of the opening tag, the body, and the closing tag up to its end mark.
static tpl_node *block_body(parser *p, const char *end, tpl_node *parent) {
    expect(p, TK_BLOCK_END, "the end of the tag");
    tpl_node *body = parse_body(p, end, parent);
    advance(p);
    return body;
}

static tpl_node *parse_if(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_IF, at);
    tpl_node **tail = &node->a;
    for (bool more = true; more && !p->status;) {
        tpl_node *branch = new_node(p, TPL_BRANCH, at);
        branch->a = adopt(p, branch, parse_tuple(p, false, NULL, false));
        expect(p, TK_BLOCK_END, "the end of the tag");
        branch->b = parse_body(p, "elif else endif", branch);
        append(p, node, &tail, branch);
        more = skip_name(p, "elif");
    }
    if (skip_name(p, "else")) {
        tpl_node *branch = new_node(p, TPL_BRANCH, at);
        branch->b = block_body(p, "endif", branch);
        append(p, node, &tail, branch);
    } else {
        advance(p); // endif
    }
    return node;
}

static tpl_node *parse_for(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_FOR, at), *loop = new_node(p, TPL_LOOP, at);
    node->a = adopt(p, node, parse_target(p, false));
    if (!skip_name(p, "in"))
        unexpected(p, "'in'");
    node->b = adopt(p, node, parse_tuple(p, false, "recursive", false));
    if (skip_name(p, "if"))
        loop->a = adopt(p, loop, parse_expression(p, true));
    if (is_name(p, "recursive"))
        fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "a recursive loop");
    expect(p, TK_BLOCK_END, "the end of the tag");
    p->n_loops++;
    loop->b = parse_body(p, "else endfor", loop);
    p->n_loops--;
    if (skip_name(p, "else"))
        loop->c = block_body(p, "endfor", loop);
    else
        advance(p); // endfor
    node->c = adopt(p, node, loop);
    return node;
}

static tpl_node *parse_block_filters(parser *p, bool first_has_no_bar) {
    tpl_node *node = new_node(p, TPL_SUBJECT, p->tok.at);
    if (first_has_no_bar)
        node = parse_filter(p, node);
    while (skip_kind(p, TK_PIPE))
        node = parse_filter(p, node);
    return node;
}

static tpl_node *parse_set(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_SET, at);
    node->a = adopt(p, node, parse_target(p, true));
    if (skip_kind(p, TK_ASSIGN)) {
        node->b = adopt(p, node, parse_tuple(p, true, NULL, false));
        return node;
    }
    node->kind = TPL_SET_BLOCK;
    node->b = adopt(p, node, parse_block_filters(p, false));
    node->c = block_body(p, "endset", node);
    return node;
}

static tpl_node *parse_filter_block(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_FILTER_BLOCK, at);
    node->b = adopt(p, node, parse_block_filters(p, true));
    node->c = block_body(p, "endfilter", node);
    return node;
}

static tpl_node *parse_macro(parser *p, size_t at) {
    token name = p->tok;
    expect(p, TK_NAME, "the name of the macro");
    tpl_node *node = text_node(p, TPL_MACRO, &name);
    tpl_node **tail = &node->a;
    bool defaults = false;
    node->at = (uint32_t)at;
    tpl_node *link = new_node(p, TPL_OPERAND, at);
    link->a = node;
    link->next = p->macros;
    p->macros = link;
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    p->n_macros++;
    expect(p, TK_LPAREN, "'('");
    while (!p->status && p->tok.kind != TK_RPAREN) {
        tpl_node *param = text_node(p, TPL_PARAM, &p->tok);
        if (is_among(p, "varargs kwargs caller"))
            fail_at(p, SL_ERR_UNSUPPORTED, p->tok.at, "the special name '%.*s'", (int)p->tok.len,
                    p->tok.text);
        if (is_among(p, "true True false False none None"))
            fail_at(p, SL_ERR_SYNTAX, p->tok.at, "cannot assign to this name");
        for (const tpl_node *other = node->a; other && !p->status; other = other->next) {
            if (other->len == param->len && memcmp(other->text, param->text, param->len) == 0)
                fail_at(p, SL_ERR_SYNTAX, param->at, "two parameters of one name");
        }
        expect(p, TK_NAME, "the name of a parameter");
        if (skip_kind(p, TK_ASSIGN)) {
            param->a = adopt(p, param, parse_expression(p, true));
            defaults = true;
        } else if (defaults) {
            fail_at(p, SL_ERR_SYNTAX, param->at, "a parameter without a default after one with");
        }
        append(p, node, &tail, param);
        if (p->tok.kind != TK_RPAREN)
            expect(p, TK_COMMA, "',' or ')'");
    }
    expect(p, TK_RPAREN, "')'");
    node->b = block_body(p, "endmacro", node);
    p->n_loops = n_loops;
    p->n_macros--;
    return node;
}

static tpl_node *parse_with(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_WITH, at);
    tpl_node **tail = &node->a;
    while (!p->status && p->tok.kind != TK_BLOCK_END) {
        if (node->a)
            expect(p, TK_COMMA, "','");
        append(p, node, &tail, parse_target(p, false));
        expect(p, TK_ASSIGN, "'='");
        append(p, node, &tail, parse_expression(p, true));
    }
    node->b = block_body(p, "endwith", node);
    return node;
}

// transformers marks what the assistant said with this block. It prints its body, in a scope of its
// own and out of reach for break and continue.
static tpl_node *parse_generation(parser *p, size_t at) {
    tpl_node *node = new_node(p, TPL_WITH, at);
    uint32_t n_loops = p->n_loops;
    p->n_loops = 0;
    node->b = block_body(p, "endgeneration", node);
    p->n_loops = n_loops;
    return node;
}

// After "{%", with a name as the current token.
static tpl_node *parse_statement(parser *p) {
    static const struct {
        const char *name;
        tpl_node *(*parse)(parser *p, size_t at);
    } statements[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"with", parse_with},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
    };
    token tag = p->tok;
    advance(p);
    for (size_t i = 0; i < SL_COUNT(statements); i++) {
        if (text_is(tag.text, tag.len, statements[i].name))
            return statements[i].parse(p, tag.at);
    }
    bool is_break = text_is(tag.text, tag.len, "break");
    if (is_break || text_is(tag.text, tag.len, "continue")) {
        if (p->n_loops == 0)
            fail_at(p, SL_ERR_SYNTAX, tag.at, "'%.*s' outside of a loop", (int)tag.len, tag.text);
        return new_node(p, is_break ? TPL_BREAK : TPL_CONTINUE, tag.at);
    }
    bool ends =
        word_among(tag.text, tag.len,
                   "elif else endif endfor endset endmacro endwith endfilter endgeneration");
    fail_at(p, ends ? SL_ERR_SYNTAX : SL_ERR_UNSUPPORTED, tag.at, "%s '%.*s'",
            ends ? "unexpected tag" : "unknown tag", (int)SL_MIN(tag.len, (size_t)60), tag.text);
    return lost(p);
}

// Statements up to a tag named in ends, whose name is then the current token, or up to the end of
// the template where ends is NULL.
static tpl_node *parse_body(parser *p, const char *ends, tpl_node *parent) {
    tpl_node *first = NULL, **tail = &first;
    if (!enter(p))
        return NULL;
    while (!p->status) {
        token tok = p->tok;
        if (tok.kind == TK_END) {
            if (ends)
                fail_at(p, SL_ERR_SYNTAX, parent->at, "the block does not end (expected %s)", ends);
            break;
        }
        tpl_node *node;
        advance(p);
        if (tok.kind == TK_TEXT) {
            node = text_node(p, TPL_TEXT, &tok);
        } else if (tok.kind == TK_VARIABLE_BEGIN) {
            node = new_node(p, TPL_PRINT, tok.at);
            node->a = adopt(p, node, parse_tuple(p, true, NULL, false));
            expect(p, TK_VARIABLE_END, "the end of the expression");
        } else {
            if (p->tok.kind != TK_NAME) {
                unexpected(p, "the name of a tag");
                break;
            }
            if (ends && is_among(p, ends))
                break;
            node = parse_statement(p);
            expect(p, TK_BLOCK_END, "the end of the tag");
        }
        append(p, parent, &tail, node);
    }
    p->depth--;
    return first;
}

// Calls of names: a macro of this template, or a function that exists.
static void check_calls(parser *p) {
    for (const tpl_node *call = p->calls; call && !p->status; call = call->c) {
        const tpl_node *name = call->a, *link = p->macros;
        while (link &&
               !(link->a->len == name->len && !memcmp(link->a->text, name->text, name->len)))
            link = link->next;
        if (link)
            continue;
        const tpl_callable *fn = sl__tpl_find_function(name->text, name->len);
        if (!fn) {
            fail_at(p, SL_ERR_UNSUPPORTED, name->at, "unknown function '%.*s'",
                    (int)SL_MIN(name->len, 60u), name->text);
            return;
        }
        uint32_t n = 0;
        const tpl_node *arg = call->b;
        for (; arg && arg->kind != TPL_KEYWORD; arg = arg->next)
            n++;
        const char *problem = sl__tpl_check_call(fn, n, arg);
        if (problem)
            fail_at(p, SL_ERR_SYNTAX, call->at, "function '%s' %s", fn->name, problem);
        else if (!strcmp(fn->name, "strftime_now") && call->b->kind == TPL_CONST_STR &&
                 !sl__tpl_strftime_ok(call->b->text, call->b->len))
            fail_at(p, SL_ERR_UNSUPPORTED, call->b->at, "a directive of this time format");
    }
}

/* ---- public -------------------------------------------------------------------------------- */

// A copy of the source in the arena with \n as the only newline and without the last one. NULL after
// an error.
static char *normalize(parser *p, const char *src, size_t len) {
    char *copy = allocate(p, len, 1);
    if (!copy)
        return NULL;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        copy[n++] = src[i] == '\r' ? '\n' : src[i];
        if (src[i] == '\r' && i + 1 < len && src[i + 1] == '\n')
            i++;
    }
    if (n && copy[n - 1] == '\n')
        n--;
    p->src = copy;
    p->len = n;
    for (size_t i = 0; i < n;) {
        size_t bytes = sl__tpl_cp_valid(copy + i, n - i);
        if (!bytes) {
            p->len = n;
            fail_at(p, SL_ERR_SYNTAX, i, "invalid UTF-8");
            return NULL;
        }
        i += bytes;
    }
    return copy;
}

sl_status sl_template_parse(const char *src, size_t len, sl_arena *arena, sl_template **out,
                            sl_error *err) {
    parser p = {.arena = arena, .err = err};
    tpl_node root = {.height = 1};
    *out = NULL;
    if (len > UINT32_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "chat template: %zu bytes, at most 4 GiB", len);
    if (!normalize(&p, src, len))
        return p.status;
    sl_template *tpl = allocate(&p, sizeof(*tpl), _Alignof(sl_template));
    advance(&p);
    tpl_node *body = parse_body(&p, NULL, &root);
    check_calls(&p);
    if (p.status)
        return p.status;
    *tpl = (sl_template){.source = p.src, .body = body};
    *out = tpl;
    return SL_OK;
}
