/* Values as they are written, compared and counted: spelling, equality, decimal numbers. */
#include "constrain/compile_internal.h"
#include "text/utf8.h"

uint32_t sl__n_characters(const char *text, size_t len) {
    uint32_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((uint8_t)text[i] & 0xc0) != 0x80;
    return n;
}

static size_t spell_unicode(uint32_t unit, uint8_t *out) {
    static const char hex[] = "0123456789abcdef";
    out[0] = '\\';
    out[1] = 'u';
    for (unsigned i = 0; i < 4; i++)
        out[2 + i] = (uint8_t)hex[unit >> (12 - 4 * i) & 15];
    return 6;
}

size_t sl__spell_character(uint32_t cp, bool ascii, uint8_t out[12]) {
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = cp > 0 && cp < 0x80 ? strchr(escaped, (int)cp) : NULL;
    if (at) {
        out[0] = '\\';
        out[1] = (uint8_t)letters[at - escaped];
        return 2;
    }
    if (cp < 0x20)
        return spell_unicode(cp, out);
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (ascii) {
        if (cp < 0x10000)
            return spell_unicode(cp, out);
        (void)spell_unicode(0xd800 + ((cp - 0x10000) >> 10), out);
        (void)spell_unicode(0xdc00 + ((cp - 0x10000) & 0x3ff), out + 6);
        return 12;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (uint8_t)(0x80 | (cp & 0x3f));
    out[0] = (uint8_t)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp);
    return n;
}

static sl_status add_bytes(sl__compiler *c, sl__vector *v, const void *bytes, size_t n) {
    uint8_t *place = n ? sl__vector_add(c, v, (uint32_t)n, 1) : NULL;
    if (n == 0)
        return SL_OK;
    if (!place)
        return SL_ERR_MEMORY;
    memcpy(place, bytes, n);
    return sl__spend(c, n);
}

sl_status sl__spell_string(sl__compiler *c, const char *text, size_t len, sl__vector *v) {
    const uint8_t *p = (const uint8_t *)text, *end = p + len;
    sl_status st = add_bytes(c, v, "\"", 1);
    while (!st && p < end) {
        uint32_t cp;
        uint8_t out[12];
        p += sl_utf8_decode_valid(p, &cp);
        st = add_bytes(c, v, out, sl__spell_character(cp, !c->vocab->has_all_bytes, out));
    }
    return st ? st : add_bytes(c, v, "\"", 1);
}

static sl_status spell_number(sl__compiler *c, const sl_json *value, sl__vector *v) {
    sl__decimal d;
    // A whole number is written as one, so that readers which tell 1.0 from 1 find an integer.
    if (!sl__decimal_parse(value->text, value->text_len, &d) || !sl__decimal_is_integer(&d) ||
        d.point > 18)
        return add_bytes(c, v, value->text, value->text_len);
    uint8_t text[24];
    size_t n = 0;
    if (d.negative)
        text[n++] = '-';
    for (int32_t i = 0; i < d.point; i++)
        text[n++] = (uint8_t)('0' + (i < d.n ? d.digits[i] : 0));
    if (d.n == 0)
        text[n++] = '0';
    return add_bytes(c, v, text, n);
}

// Recursion as deep as the value, which the JSON reader has bounded.
sl_status sl__spell_value(sl__compiler *c, const sl_json *value, sl__vector *v) {
    sl_status st = SL_OK;
    switch (value->type) {
    case SL_JSON_NULL:
        return add_bytes(c, v, "null", 4);
    case SL_JSON_FALSE:
        return add_bytes(c, v, "false", 5);
    case SL_JSON_TRUE:
        return add_bytes(c, v, "true", 4);
    case SL_JSON_NUMBER:
        return spell_number(c, value, v);
    case SL_JSON_STRING:
        return sl__spell_string(c, value->text, value->text_len, v);
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        break;
    }
    bool object = value->type == SL_JSON_OBJECT;
    st = add_bytes(c, v, object ? "{" : "[", 1);
    for (const sl_json *item = value->child; !st && item; item = item->next) {
        if (object)
            st = sl__spell_string(c, item->key, item->key_len, v);
        if (!st && object)
            st = add_bytes(c, v, ":", 1);
        if (!st)
            st = sl__spell_value(c, item, v);
        if (!st && item->next)
            st = add_bytes(c, v, ",", 1);
    }
    return st ? st : add_bytes(c, v, object ? "}" : "]", 1);
}

/* ---- equality ------------------------------------------------------------------------------ */

static bool texts_equal(const char *a, size_t m, const char *b, size_t n) {
    return m == n && memcmp(a, b, n) == 0;
}

static bool numbers_equal(const sl_json *a, const sl_json *b) {
    sl__decimal x, y;
    if (!sl__decimal_parse(a->text, a->text_len, &x) ||
        !sl__decimal_parse(b->text, b->text_len, &y))
        return texts_equal(a->text, a->text_len, b->text, b->text_len);
    return sl__decimal_compare(&x, &y) == 0;
}

bool sl__json_equal(const sl_json *a, const sl_json *b) {
    if (a->type != b->type || a->n_children != b->n_children)
        return false;
    if (a->type == SL_JSON_NUMBER)
        return numbers_equal(a, b);
    if (a->type == SL_JSON_STRING)
        return texts_equal(a->text, a->text_len, b->text, b->text_len);
    const sl_json *y = b->child;
    for (const sl_json *x = a->child; x; x = x->next, y = y ? y->next : NULL) {
        if (a->type == SL_JSON_OBJECT) { // in any order
            y = b->child;
            while (y && !texts_equal(x->key, x->key_len, y->key, y->key_len))
                y = y->next;
        }
        if (!y || !sl__json_equal(x, y))
            return false;
    }
    return true;
}

uint64_t sl__json_equal_cost(const sl_json *value) {
    uint64_t cost = 1 + value->text_len / 8;
    if (value->type == SL_JSON_OBJECT)
        cost += (uint64_t)value->n_children * value->n_children;
    for (const sl_json *child = value->child; child; child = child->next)
        cost += sl__json_equal_cost(child) + child->key_len / 8;
    return cost;
}

uint32_t sl__type_of(const sl_json *value) {
    sl__decimal d;
    switch (value->type) {
    case SL_JSON_NULL:
        return SL__T_NULL;
    case SL_JSON_FALSE:
    case SL_JSON_TRUE:
        return SL__T_BOOLEAN;
    case SL_JSON_STRING:
        return SL__T_STRING;
    case SL_JSON_ARRAY:
        return SL__T_ARRAY;
    case SL_JSON_OBJECT:
        return SL__T_OBJECT;
    case SL_JSON_NUMBER:
        break;
    }
    return sl__decimal_parse(value->text, value->text_len, &d) && sl__decimal_is_integer(&d)
               ? SL__T_INTEGER
               : SL__T_NUMBER;
}

/* ---- decimal numbers ----------------------------------------------------------------------- */

bool sl__decimal_parse(const char *text, size_t len, sl__decimal *out) {
    const char *p = text, *end = text + len;
    bool fraction = false;
    int32_t exponent = 0, sign = 1;
    memset(out, 0, sizeof(*out));
    if (p < end && *p == '-') {
        out->negative = true;
        p++;
    }
    for (; p < end && (*p == '.' || (*p >= '0' && *p <= '9')); p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        if (out->n == 0 && *p == '0') {
            out->point -= fraction;
            continue;
        }
        if (out->n == SL__DIGITS_MAX)
            return false;
        out->digits[out->n++] = (uint8_t)(*p - '0');
        out->point += !fraction;
    }
    if (p < end) { // e or E
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            sign = *p++ == '-' ? -1 : 1;
        for (; p < end; p++) {
            exponent = exponent * 10 + (*p - '0');
            if (exponent > 9999)
                return false;
        }
    }
    while (out->n > 0 && out->digits[out->n - 1] == 0)
        out->n--;
    out->point += sign * exponent;
    if (out->n == 0) {
        out->point = 0;
        out->negative = false;
    }
    return true;
}

static int compare_magnitudes(const sl__decimal *a, const sl__decimal *b) {
    if (a->n == 0 || b->n == 0 || a->point != b->point)
        return a->n == 0 || b->n == 0 ? (a->n > 0) - (b->n > 0) : a->point < b->point ? -1 : 1;
    for (unsigned i = 0; i < a->n || i < b->n; i++) {
        int x = i < a->n ? a->digits[i] : 0, y = i < b->n ? b->digits[i] : 0;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

int sl__decimal_compare(const sl__decimal *a, const sl__decimal *b) {
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? -compare_magnitudes(a, b) : compare_magnitudes(a, b);
}

bool sl__decimal_is_integer(const sl__decimal *d) {
    return d->n <= d->point || d->n == 0;
}
