/* The lexer of chat templates, see template_lex.h. */
#include "text/template_lex.h"

#include <stdio.h>
#include <string.h>

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
static void stop(tpl_parser *p, sl_status status) {
    p->status = status;
    p->tok.kind = TK_END;
    p->pos = p->len;
}

// Records the first error only: the callers of a failed parse unwind without looking.
void sl__tpl_lex_fail(tpl_parser *p, sl_status status, size_t at, const char *fmt, ...) {
    if (p->status)
        return;
    char what[256];
    va_list args;
    va_start(args, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is lost when calls are inlined
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    unsigned line, column;
    sl__tpl_place(p->src, at, &line, &column);
    stop(p, sl_fail(p->err, status, "chat template, line %u column %u: %s", line, column, what));
}

void *sl__tpl_lex_alloc(tpl_parser *p, size_t bytes, size_t align) {
    void *block = p->status ? NULL : sl_arena_alloc(p->arena, bytes, align);
    if (!block && !p->status)
        stop(p, sl_arena_full(p->arena, bytes, p->err));
    return block;
}

static bool at_char(const tpl_parser *p, size_t at, char c) {
    return at < p->len && p->src[at] == c;
}
static bool at_pair(const tpl_parser *p, size_t at, char c, char d) {
    return at_char(p, at, c) && at_char(p, at + 1, d);
}
static bool is_digit(const tpl_parser *p, size_t at) {
    return at < p->len && p->src[at] >= '0' && p->src[at] <= '9';
}
static bool is_word(const tpl_parser *p, size_t at) {
    if (at >= p->len)
        return false;
    char c = p->src[at];
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// White space is str.isspace(), which is what \s matches.
static size_t skip_space(const tpl_parser *p, size_t at) {
    while (at < p->len) {
        size_t n;
        if (!sl__tpl_is_space(sl__tpl_cp_decode(p->src + at, &n)))
            break;
        at += n;
    }
    return at;
}

// End of text[from, to) without the white space at its end.
static size_t strip_end(const tpl_parser *p, size_t from, size_t to) {
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
static size_t text_end(const tpl_parser *p, size_t from, size_t to, char sign, bool variable) {
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
static size_t close_tag(const tpl_parser *p, size_t at, char mark) {
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

static char sign_at(const tpl_parser *p, size_t at) {
    return at_char(p, at, '-') || at_char(p, at, '+') ? p->src[at] : '\0';
}

// Past "{% raw %}" at `at`, or 0. A newline after it stays.
static size_t raw_begin(const tpl_parser *p, size_t at) {
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
static size_t raw_end(const tpl_parser *p, size_t at) {
    at += 2;
    at = skip_space(p, sign_at(p, at) ? at + 1 : at);
    if (p->len - at < 6 || memcmp(p->src + at, "endraw", 6) != 0)
        return 0;
    return close_tag(p, skip_space(p, at + 6), '%');
}

static bool text_token(tpl_parser *p, size_t from, size_t to) {
    p->tok = (tpl_token){.kind = TK_TEXT, .at = from, .text = p->src + from, .len = to - from};
    return to > from;
}

// The next token outside of tags. Text is returned before the tag that ends it is entered.
static void next_data(tpl_parser *p) {
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
                sl__tpl_lex_fail(p, SL_ERR_SYNTAX, tag, "{%% raw %%} without {%% endraw %%}");
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
                sl__tpl_lex_fail(p, SL_ERR_SYNTAX, tag, "the comment does not end");
                return;
            }
            p->pos = close_tag(p, end, '#');
            continue;
        }
        p->mode = mark == '{' ? LEX_VARIABLE : LEX_BLOCK;
        p->tok = (tpl_token){.kind = mark == '{' ? TK_VARIABLE_BEGIN : TK_BLOCK_BEGIN, .at = tag};
        return;
    }
    p->tok = (tpl_token){.kind = TK_END, .at = p->pos};
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decode the escapes of text into out (which has room: no escape is shorter than what it means).
// Returns the length.
static size_t unescape(tpl_parser *p, size_t at, const char *text, size_t len, char *out) {
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
                    sl__tpl_lex_fail(p, SL_ERR_SYNTAX, at, "malformed \\%c escape in a string", c);
                    return 0;
                }
                cp = cp * 16 + (uint32_t)h;
            }
            if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) {
                sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, at,
                                 "\\%c escape of U+%04X, which is no character", c, cp);
                return 0;
            }
            n += sl__tpl_cp_encode(cp, out + n);
        } else if (c == 'N' || (unsigned char)c >= 0x80) {
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, at,
                             "a backslash before this character in a string");
            return 0;
        } else {
            out[n++] = '\\';
            out[n++] = c;
        }
    }
    return n;
}

static void next_string(tpl_parser *p) {
    char quote = p->src[p->pos];
    size_t from = p->pos + 1, at = from;
    bool escaped = false;
    while (at < p->len && p->src[at] != quote) {
        escaped |= p->src[at] == '\\';
        at += p->src[at] == '\\' ? 2 : 1;
    }
    if (at >= p->len) {
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->pos, "the string does not end");
        return;
    }
    p->tok = (tpl_token){.kind = TK_STR, .at = p->pos, .text = p->src + from, .len = at - from};
    if (escaped) {
        char *out = sl__tpl_lex_alloc(p, at - from, 1);
        if (!out)
            return;
        p->tok.len = unescape(p, p->pos, p->src + from, at - from, out);
        p->tok.text = out;
    }
    p->pos = at + 1;
}

// Past digits that may be grouped by single underscores.
static size_t skip_digits(const tpl_parser *p, size_t at) {
    while (is_digit(p, at) || (at_char(p, at, '_') && is_digit(p, at - 1) && is_digit(p, at + 1)))
        at++;
    return at;
}

static size_t skip_exponent(const tpl_parser *p, size_t at) {
    if (!at_char(p, at, 'e') && !at_char(p, at, 'E'))
        return at;
    size_t digits = at + 1;
    if (at_char(p, digits, '+') || at_char(p, digits, '-'))
        digits++;
    return is_digit(p, digits) ? skip_digits(p, digits) : at;
}

static void next_number(tpl_parser *p) {
    size_t from = p->pos;
    p->tok = (tpl_token){.kind = TK_FLOAT, .at = from};
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
                sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, from, "a number this long");
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
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, from, "an integer outside 64 bits");
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

static void next_operator(tpl_parser *p) {
    static const struct {
        char text[3];
        tpl_token_kind kind;
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
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->pos,
                             "a character outside ASCII in an expression");
        else
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->pos, "unexpected character '%c'",
                             c < 0x20 || c == 0x7f ? '?' : c);
        return;
    }
    p->tok = (tpl_token){.kind = operators[i].kind, .at = p->pos};
    if (c == '(' || c == '[' || c == '{') {
        if (p->n_brackets == TPL_DEPTH_MAX) {
            sl__tpl_lex_fail(p, SL_ERR_UNSUPPORTED, p->pos, "nested more than %d deep",
                             TPL_DEPTH_MAX);
            return;
        }
        p->brackets[p->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (p->n_brackets == 0 || p->brackets[p->n_brackets - 1] != c) {
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->pos, "unexpected '%c'", c);
            return;
        }
        p->n_brackets--;
    }
    p->pos += n;
}

// The next token inside a tag. A closing mark counts only outside of brackets: {{ {"a": {}} }}.
static void next_in_tag(tpl_parser *p) {
    for (;;) {
        size_t past = 0;
        if (p->n_brackets == 0 && p->mode == LEX_BLOCK)
            past = close_tag(p, p->pos, '%');
        else if (p->n_brackets == 0 && at_pair(p, p->pos, '}', '}'))
            past = p->pos + 2;
        else if (p->n_brackets == 0 && at_char(p, p->pos, '-') && at_pair(p, p->pos + 1, '}', '}'))
            past = skip_space(p, p->pos + 3);
        if (past) {
            p->tok = (tpl_token){.kind = p->mode == LEX_BLOCK ? TK_BLOCK_END : TK_VARIABLE_END,
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
        sl__tpl_lex_fail(p, SL_ERR_SYNTAX, p->pos, "the template ends inside a tag");
    } else if (is_digit(p, p->pos)) {
        next_number(p);
    } else if (is_word(p, p->pos)) {
        size_t from = p->pos;
        while (is_word(p, p->pos))
            p->pos++;
        p->tok =
            (tpl_token){.kind = TK_NAME, .at = from, .text = p->src + from, .len = p->pos - from};
    } else if (p->src[p->pos] == '\'' || p->src[p->pos] == '"') {
        next_string(p);
    } else {
        next_operator(p);
    }
}

void sl__tpl_lex_next(tpl_parser *p) {
    if (p->status)
        return;
    if (p->mode == LEX_DATA)
        next_data(p);
    else
        next_in_tag(p);
}

bool sl__tpl_lex_assign_follows(const tpl_parser *p) {
    size_t at = skip_space(p, p->pos);
    return at_char(p, at, '=') && !at_char(p, at + 1, '=');
}

bool sl__tpl_lex_in_follows(const tpl_parser *p) {
    size_t at = skip_space(p, p->pos);
    return at_pair(p, at, 'i', 'n') && !is_word(p, at + 2);
}

bool sl__tpl_lex_begin(tpl_parser *p, const char *src, size_t len) {
    char *copy = sl__tpl_lex_alloc(p, len, 1);
    if (!copy)
        return false;
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
            sl__tpl_lex_fail(p, SL_ERR_SYNTAX, i, "invalid UTF-8");
            return false;
        }
        i += bytes;
    }
    return true;
}
