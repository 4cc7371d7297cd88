/* What Python does with values: operators, comparison, iteration and indexing.
 * Text is UTF-8 and counted in code points, as Python's is. Everything that looks at n bytes or n
 * items counts steps for them, so that the limit on steps bounds the time. */
#include <math.h>
#include <string.h>

#include "text/template_internal.h"

/* ---- kinds --------------------------------------------------------------------------------- */

const char *sl__tpl_type_name(const tpl_val *v) {
    static const char *const names[] = {
        [TPL_V_ABSENT] = "nothing",
        [TPL_V_UNDEFINED] = "undefined",
        [TPL_V_NONE] = "None",
        [TPL_V_BOOL] = "bool",
        [TPL_V_INT] = "int",
        [TPL_V_BIG_INT] = "int outside 64 bits",
        [TPL_V_FLOAT] = "float",
        [TPL_V_STR] = "str",
        [TPL_V_LIST] = "list",
        [TPL_V_TUPLE] = "tuple",
        [TPL_V_RANGE] = "range",
        [TPL_V_DICT] = "dict",
        [TPL_V_KEYS] = "dict_keys",
        [TPL_V_VALUES] = "dict_values",
        [TPL_V_ITEMS] = "dict_items",
        [TPL_V_GENERATOR] = "generator",
        [TPL_V_NAMESPACE] = "namespace",
        [TPL_V_LOOP] = "loop",
        [TPL_V_MACRO] = "macro",
        [TPL_V_FUNCTION] = "function",
        [TPL_V_METHOD] = "method",
    };
    return names[v->type];
}

bool sl__tpl_truth(const tpl_val *v) {
    switch (v->type) {
    case TPL_V_ABSENT:
    case TPL_V_UNDEFINED:
    case TPL_V_NONE:
        return false;
    case TPL_V_BOOL:
        return v->b;
    case TPL_V_INT:
        return v->i != 0;
    case TPL_V_FLOAT:
        return v->f != 0;
    case TPL_V_STR:
    case TPL_V_LIST:
    case TPL_V_TUPLE:
    case TPL_V_RANGE:
    case TPL_V_DICT:
    case TPL_V_KEYS:
    case TPL_V_VALUES:
    case TPL_V_ITEMS:
        return v->len != 0;
    default:
        return true;
    }
}

static bool undefined_error(tpl_run *run, const tpl_val *v) {
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%.*s' is undefined", (int)SL_MIN(v->len, 100u),
                        v->s);
}

bool sl__tpl_hashable(tpl_run *run, const tpl_val *v) {
    if (v->type == TPL_V_LIST || v->type == TPL_V_DICT || v->type == TPL_V_KEYS ||
        v->type == TPL_V_ITEMS)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "unhashable type: '%s'", sl__tpl_type_name(v));
    if (v->type != TPL_V_TUPLE)
        return true;
    if (!sl__tpl_enter(run))
        return false;
    bool ok = true;
    for (uint32_t i = 0; i < v->len && ok; i++)
        ok = sl__tpl_hashable(run, &v->items[i]);
    sl__tpl_leave(run);
    return ok;
}

/* ---- equality and order -------------------------------------------------------------------- */

typedef enum order { LESS = -1, SAME = 0, MORE = 1, UNORDERED = 2 } order;

static bool is_number(const tpl_val *v) {
    return tpl_is_integral(v) || v->type == TPL_V_FLOAT;
}
static double to_double(const tpl_val *v) {
    return v->type == TPL_V_FLOAT ? v->f : (double)tpl_integral(v);
}

// Exact, as Python's: an integer is not rounded to a double first.
static order order_int_double(int64_t i, double f) {
    if (isnan(f))
        return UNORDERED;
    if (f >= 0x1p63)
        return LESS;
    if (f < -0x1p63)
        return MORE;
    int64_t whole = (int64_t)f;
    if (i != whole)
        return i < whole ? LESS : MORE;
    double rest = f - (double)whole;
    return rest > 0 ? LESS : rest < 0 ? MORE : SAME;
}

static order order_numbers(const tpl_val *a, const tpl_val *b) {
    if (a->type == TPL_V_FLOAT && b->type == TPL_V_FLOAT)
        return isnan(a->f) || isnan(b->f) ? UNORDERED : a->f < b->f ? LESS : (order)(a->f > b->f);
    if (a->type == TPL_V_FLOAT) {
        order o = order_int_double(tpl_integral(b), a->f);
        return o == UNORDERED ? o : (order)-o;
    }
    if (b->type == TPL_V_FLOAT)
        return order_int_double(tpl_integral(a), b->f);
    int64_t i = tpl_integral(a), k = tpl_integral(b);
    return i < k ? LESS : (order)(i > k);
}

static order order_strings(const tpl_val *a, const tpl_val *b) {
    int c = memcmp(a->s, b->s, SL_MIN(a->len, b->len));
    if (c == 0)
        c = (a->len > b->len) - (a->len < b->len);
    return c < 0 ? LESS : (order)(c > 0);
}

static bool equal_dicts(tpl_run *run, const tpl_val *a, const tpl_val *b, bool *out) {
    *out = a->len == b->len;
    for (uint32_t i = 0; i < a->len && *out; i++) {
        const tpl_val *other;
        if (!sl__tpl_dict_find(run, b, &a->pairs[i].key, &other))
            return false;
        *out = other != NULL;
        if (other && !sl__tpl_equal(run, &a->pairs[i].val, other, out))
            return false;
    }
    return true;
}

static tpl_val range_item(const tpl_val *v, uint32_t i) {
    return tpl_int(v->range->start + (int64_t)i * v->range->step);
}

static bool equal_sequences(tpl_run *run, const tpl_val *a, const tpl_val *b, bool *out) {
    *out = a->len == b->len;
    for (uint32_t i = 0; i < a->len && *out; i++) {
        tpl_val x = a->type == TPL_V_RANGE ? range_item(a, i) : a->items[i];
        tpl_val y = b->type == TPL_V_RANGE ? range_item(b, i) : b->items[i];
        if (!sl__tpl_equal(run, &x, &y, out))
            return false;
    }
    return true;
}

bool sl__tpl_equal(tpl_run *run, const tpl_val *a, const tpl_val *b, bool *out) {
    *out = false;
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b) == SAME;
        return sl__tpl_steps(run, 1);
    }
    if ((a->type == TPL_V_BIG_INT && b->type == TPL_V_FLOAT) ||
        (a->type == TPL_V_FLOAT && b->type == TPL_V_BIG_INT))
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "comparing an integer outside 64 bits");
    if (a->type != b->type)
        return sl__tpl_steps(run, 1);
    bool ok = sl__tpl_enter(run) && sl__tpl_steps(run, 1);
    if (!ok)
        return false;
    switch (a->type) {
    case TPL_V_UNDEFINED:
    case TPL_V_NONE:
        *out = true;
        break;
    case TPL_V_STR:
    case TPL_V_BIG_INT:
        *out = a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
        ok = sl__tpl_steps(run, a->len / 64);
        break;
    case TPL_V_LIST:
    case TPL_V_TUPLE:
    case TPL_V_RANGE:
        ok = equal_sequences(run, a, b, out);
        break;
    case TPL_V_DICT:
        ok = equal_dicts(run, a, b, out);
        break;
    case TPL_V_KEYS:
    case TPL_V_ITEMS:
        ok = sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "comparing %s", sl__tpl_type_name(a));
        break;
    case TPL_V_METHOD:
        ok = sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "comparing methods");
        break;
    default:
        *out = a->gen == b->gen; // objects: the same one
    }
    sl__tpl_leave(run);
    return ok;
}

static bool order_of(tpl_run *run, const tpl_val *a, const tpl_val *b, order *out) {
    bool same_type = a->type == b->type;
    if (is_number(a) && is_number(b)) {
        *out = order_numbers(a, b);
        return sl__tpl_steps(run, 1);
    }
    if (same_type && tpl_is_str(a)) {
        *out = order_strings(a, b);
        return sl__tpl_steps(run, 1 + SL_MIN(a->len, b->len) / 64);
    }
    if (same_type && (a->type == TPL_V_LIST || a->type == TPL_V_TUPLE)) {
        // The first elements that are not equal decide.
        uint32_t n = SL_MIN(a->len, b->len), i = 0;
        for (; i < n; i++) {
            bool equal;
            if (!sl__tpl_equal(run, &a->items[i], &b->items[i], &equal))
                return false;
            if (!equal)
                break;
        }
        if (i == n) {
            *out = a->len < b->len ? LESS : (order)(a->len > b->len);
            return true;
        }
        if (!sl__tpl_enter(run))
            return false;
        bool ok = order_of(run, &a->items[i], &b->items[i], out);
        sl__tpl_leave(run);
        return ok;
    }
    if (a->type == TPL_V_UNDEFINED || b->type == TPL_V_UNDEFINED)
        return undefined_error(run, a->type == TPL_V_UNDEFINED ? a : b);
    if (a->type == TPL_V_BIG_INT || b->type == TPL_V_BIG_INT)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "comparing an integer outside 64 bits");
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "cannot order '%s' and '%s'", sl__tpl_type_name(a),
                        sl__tpl_type_name(b));
}

bool sl__tpl_compare(tpl_run *run, tpl_op op, const tpl_val *a, const tpl_val *b, bool *out) {
    order o = UNORDERED;
    switch (op) {
    case TPL_OP_EQ:
        return sl__tpl_equal(run, a, b, out);
    case TPL_OP_NE:
        if (!sl__tpl_equal(run, a, b, out))
            return false;
        *out = !*out;
        return true;
    case TPL_OP_IN:
        return sl__tpl_contains(run, b, a, out);
    case TPL_OP_NOT_IN:
        if (!sl__tpl_contains(run, b, a, out))
            return false;
        *out = !*out;
        return true;
    default:
        if (!order_of(run, a, b, &o))
            return false;
        *out = o != UNORDERED && (op == TPL_OP_LT   ? o < 0
                                  : op == TPL_OP_LE ? o <= 0
                                  : op == TPL_OP_GT ? o > 0
                                                    : o >= 0);
        return true;
    }
}

bool sl__tpl_contains(tpl_run *run, const tpl_val *box, const tpl_val *v, bool *out) {
    *out = false;
    if (tpl_is_str(box)) {
        if (!tpl_is_str(v))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'in' a string needs a string, not '%s'",
                                sl__tpl_type_name(v));
        const char *at;
        if (!sl__tpl_find(run, box->s, box->len, v->s, v->len, &at))
            return false;
        *out = at != NULL;
        return true;
    }
    if (box->type == TPL_V_DICT || box->type == TPL_V_KEYS) {
        const tpl_val *found;
        if (!sl__tpl_hashable(run, v) || !sl__tpl_dict_find(run, box, v, &found))
            return false;
        *out = found != NULL;
        return true;
    }
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_iterate(run, box, &items, &n))
        return false;
    for (uint32_t i = 0; i < n && !*out; i++) {
        if (!sl__tpl_equal(run, &items[i], v, out))
            return false;
    }
    return true;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

static bool overflow(tpl_run *run) {
    return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "an integer outside 64 bits");
}

static bool zero_division(tpl_run *run) {
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "division by zero");
}

static bool no_power(tpl_run *run) {
    return sl__tpl_fail(run, SL_ERR_UNSUPPORTED,
                        "a power other than of whole numbers, not negative");
}

static bool power_int(tpl_run *run, int64_t a, int64_t b, tpl_val *out) {
    if (b < 0)
        return a == 0 ? zero_division(run) : no_power(run);
    int64_t v = 1;
    if (a == 0 || a == 1 || a == -1) {
        v = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
        b = 0;
    }
    while (b-- > 0) {
        if (__builtin_mul_overflow(v, a, &v))
            return overflow(run);
    }
    *out = tpl_int(v);
    return true;
}

static bool binary_int(tpl_run *run, tpl_op op, int64_t a, int64_t b, tpl_val *out) {
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case TPL_OP_ADD:
        over = __builtin_add_overflow(a, b, &v);
        break;
    case TPL_OP_SUB:
        over = __builtin_sub_overflow(a, b, &v);
        break;
    case TPL_OP_MUL:
        over = __builtin_mul_overflow(a, b, &v);
        break;
    case TPL_OP_DIV: {
        const int64_t exact = (int64_t)1 << 53;
        if (b == 0)
            return zero_division(run);
        if (a > exact || a < -exact || b > exact || b < -exact)
            return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "dividing an integer above 2**53");
        *out = tpl_float((double)a / (double)b);
        return true;
    }
    case TPL_OP_FLOOR_DIV:
    case TPL_OP_MOD: {
        if (b == 0)
            return zero_division(run);
        if (b == -1) { // INT64_MIN / -1
            over = op == TPL_OP_FLOOR_DIV && __builtin_sub_overflow((int64_t)0, a, &v);
            break;
        }
        int64_t q = a / b, r = a % b;
        bool down = r != 0 && (r < 0) != (b < 0);
        v = op == TPL_OP_FLOOR_DIV ? q - down : r + (down ? b : 0);
        break;
    }
    default:
        return power_int(run, a, b, out);
    }
    if (over)
        return overflow(run);
    *out = tpl_int(v);
    return true;
}

/* Whole numbers below 2^52 in either direction of a double: the library's floor() would bring in all of
 * libm, whose pages count against every budget. */
double sl__tpl_floor(double x) {
    if (!(fabs(x) < 0x1p52))
        return x;
    double whole = (double)(int64_t)x;
    return copysign(whole > x ? whole - 1 : whole, x);
}

// The remainder of a / b with the sign of a, exactly, as C's fmod(): long division of the mantissas.
static double remainder_of(double a, double b) {
    uint64_t ua, ub;
    memcpy(&ua, &a, sizeof(ua));
    memcpy(&ub, &b, sizeof(ub));
    const uint64_t sign = ua & (uint64_t)1 << 63, fraction = ((uint64_t)1 << 52) - 1;
    ua &= ~((uint64_t)1 << 63);
    ub &= ~((uint64_t)1 << 63);
    int ea = (int)(ua >> 52), eb = (int)(ub >> 52);
    if (ub == 0 || ea == 0x7ff || ub > (uint64_t)0x7ff << 52)
        return (double)NAN;
    if (ua < ub)
        return a;
    uint64_t ma = ua & fraction, mb = ub & fraction;
    ma |= ea ? (uint64_t)1 << 52 : 0;
    mb |= eb ? (uint64_t)1 << 52 : 0;
    ea = ea ? ea : 1; // subnormal numbers have the exponent of the smallest normal ones
    eb = eb ? eb : 1;
    for (ma %= mb; ea > eb && ma;) {
        int step = ea - eb < 11 ? ea - eb : 11; // 53 bits and 11 fit 64
        ma = (ma << step) % mb;
        ea -= step;
    }
    if (ma == 0) {
        ua = sign;
    } else {
        int shift = __builtin_clzll(ma) - 11;
        shift = shift < eb - 1 ? shift : eb - 1;
        ma <<= shift;
        ua = sign | (ma & (uint64_t)1 << 52 ? (uint64_t)(eb - shift) << 52 | (ma & fraction) : ma);
    }
    memcpy(&a, &ua, sizeof(a));
    return a;
}

static bool binary_double(tpl_run *run, tpl_op op, double a, double b, tpl_val *out) {
    switch (op) {
    case TPL_OP_ADD:
        *out = tpl_float(a + b);
        return true;
    case TPL_OP_SUB:
        *out = tpl_float(a - b);
        return true;
    case TPL_OP_MUL:
        *out = tpl_float(a * b);
        return true;
    case TPL_OP_DIV:
        if (b == 0)
            return zero_division(run);
        *out = tpl_float(a / b);
        return true;
    case TPL_OP_FLOOR_DIV:
    case TPL_OP_MOD: {
        // As CPython defines them: the remainder has the divisor's sign, the quotient is rounded to
        // the nearest whole number of (a - remainder) / b.
        if (b == 0)
            return zero_division(run);
        double mod = remainder_of(a, b), div = (a - mod) / b;
        if (mod != 0 && (b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0, b);
        }
        if (div != 0)
            div = sl__tpl_floor(div) + (div - sl__tpl_floor(div) > 0.5);
        else
            div = copysign(0, a / b);
        *out = tpl_float(op == TPL_OP_MOD ? mod : div);
        return true;
    }
    default:
        return a == 0 && b < 0 ? zero_division(run) : no_power(run);
    }
}

static void escape_into(tpl_text *text, const tpl_val *s) {
    size_t from = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *entity = s->s[i] == '&'    ? "&amp;"
                             : s->s[i] == '<'  ? "&lt;"
                             : s->s[i] == '>'  ? "&gt;"
                             : s->s[i] == '\'' ? "&#39;"
                             : s->s[i] == '"'  ? "&#34;"
                                               : NULL;
        if (!entity)
            continue;
        sl__tpl_text_add(text, s->s + from, i - from);
        sl__tpl_text_puts(text, entity);
        from = i + 1;
    }
    sl__tpl_text_add(text, s->s + from, s->len - from);
}

bool sl__tpl_escape(tpl_run *run, const tpl_val *s, tpl_val *out) {
    *out = *s;
    if (s->markup)
        return true;
    tpl_text text = sl__tpl_text(run);
    escape_into(&text, s);
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = true;
    return true;
}

// a + b. Where a is the last thing in the arena b is put right behind it, so that a template that
// builds a long string piece by piece copies each piece once.
static bool add_strings(tpl_run *run, tpl_val a, tpl_val b, tpl_val *out) {
    bool markup = a.markup || b.markup;
    if (markup && (!sl__tpl_escape(run, &a, &a) || !sl__tpl_escape(run, &b, &b)))
        return false;
    tpl_text text = sl__tpl_text(run);
    if (a.len) {
        text.s = (char *)(uintptr_t)a.s;
        text.len = text.cap = a.len;
    }
    sl__tpl_text_add(&text, b.s, b.len);
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = markup;
    return true;
}

static bool repeat(tpl_run *run, const tpl_val *a, int64_t times, tpl_val *out) {
    uint64_t n = times > 0 ? (uint64_t)times : 0;
    *out = *a;
    if (a->len == 0 || n == 0) {
        out->len = 0;
        return true;
    }
    if (n > run->arena->bytes || n * a->len > UINT32_MAX)
        return sl__tpl_fail(run, SL_ERR_MEMORY, "%llu copies of %u elements do not fit",
                            (unsigned long long)n, a->len);
    size_t size = tpl_is_str(a) ? 1 : sizeof(tpl_val);
    char *block = sl__tpl_alloc(run, n * a->len, size);
    if (!block || !sl__tpl_steps(run, n * a->len * size / 64))
        return false;
    for (uint64_t i = 0; i < n; i++)
        memcpy(block + i * a->len * size, tpl_is_str(a) ? (const void *)a->s : a->items,
               a->len * size);
    out->len = (uint32_t)(n * a->len);
    if (tpl_is_str(a))
        out->s = block;
    else
        out->items = (const tpl_val *)(const void *)block;
    return true;
}

static bool add_sequences(tpl_run *run, const tpl_val *a, const tpl_val *b, tpl_val *out) {
    size_t n = (size_t)a->len + b->len;
    tpl_val *items = sl__tpl_alloc(run, n, sizeof(*items));
    if (!items || !sl__tpl_steps(run, n / 4))
        return false;
    if (a->len)
        memcpy(items, a->items, a->len * sizeof(*items));
    if (b->len)
        memcpy(items + a->len, b->items, b->len * sizeof(*items));
    *out = a->type == TPL_V_LIST ? tpl_list(items, (uint32_t)n) : tpl_tuple(items, (uint32_t)n);
    return true;
}

static bool is_repeatable(const tpl_val *v) {
    return tpl_is_str(v) || v->type == TPL_V_LIST || v->type == TPL_V_TUPLE;
}

bool sl__tpl_binary(tpl_run *run, tpl_op op, const tpl_val *a, const tpl_val *b, tpl_val *out) {
    static const char *const symbols[] = {
        [TPL_OP_ADD] = "+",        [TPL_OP_SUB] = "-", [TPL_OP_MUL] = "*",  [TPL_OP_DIV] = "/",
        [TPL_OP_FLOOR_DIV] = "//", [TPL_OP_MOD] = "%", [TPL_OP_POW] = "**",
    };
    if (tpl_is_integral(a) && tpl_is_integral(b))
        return binary_int(run, op, tpl_integral(a), tpl_integral(b), out);
    if (is_number(a) && is_number(b))
        return binary_double(run, op, to_double(a), to_double(b), out);
    if (op == TPL_OP_ADD && a->type == b->type) {
        if (tpl_is_str(a))
            return add_strings(run, *a, *b, out);
        if (a->type == TPL_V_LIST || a->type == TPL_V_TUPLE)
            return add_sequences(run, a, b, out);
    }
    if (op == TPL_OP_MUL && is_repeatable(a) && tpl_is_integral(b))
        return repeat(run, a, tpl_integral(b), out);
    if (op == TPL_OP_MUL && tpl_is_integral(a) && is_repeatable(b))
        return repeat(run, b, tpl_integral(a), out);
    if (a->type == TPL_V_UNDEFINED || b->type == TPL_V_UNDEFINED)
        return undefined_error(run, a->type == TPL_V_UNDEFINED ? a : b);
    if (op == TPL_OP_MOD && tpl_is_str(a))
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "formatting with %%");
    if (a->type == TPL_V_BIG_INT || b->type == TPL_V_BIG_INT)
        return overflow(run);
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%s' %s '%s' is not possible", sl__tpl_type_name(a),
                        symbols[op], sl__tpl_type_name(b));
}

bool sl__tpl_unary(tpl_run *run, tpl_op op, const tpl_val *a, tpl_val *out) {
    if (op == TPL_OP_NOT) {
        *out = tpl_bool(!sl__tpl_truth(a));
        return true;
    }
    if (tpl_is_integral(a))
        return binary_int(run, op == TPL_OP_NEGATE ? TPL_OP_SUB : TPL_OP_ADD, 0, tpl_integral(a),
                          out);
    if (a->type == TPL_V_FLOAT) {
        *out = tpl_float(op == TPL_OP_NEGATE ? -a->f : a->f);
        return true;
    }
    if (a->type == TPL_V_UNDEFINED)
        return undefined_error(run, a);
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%s' has no sign", sl__tpl_type_name(a));
}

/* ---- containers ---------------------------------------------------------------------------- */

bool sl__tpl_length(tpl_run *run, const tpl_val *v, int64_t *out) {
    bool unused;
    switch (v->type) {
    case TPL_V_UNDEFINED:
        *out = 0;
        return true;
    case TPL_V_STR:
        *out = (int64_t)sl__tpl_cp_count(v->s, v->len);
        return sl__tpl_steps(run, v->len / 64);
    case TPL_V_LIST:
    case TPL_V_TUPLE:
    case TPL_V_RANGE:
    case TPL_V_DICT:
    case TPL_V_KEYS:
    case TPL_V_VALUES:
    case TPL_V_ITEMS:
        *out = v->len;
        return true;
    case TPL_V_LOOP:
        if (!sl__tpl_loop_reach(run, v->loop, UINT32_MAX, &unused))
            return false;
        *out = v->loop->n_kept;
        return true;
    default:
        return false;
    }
}

bool sl__tpl_is_iterable(const tpl_val *v) {
    return v->type == TPL_V_UNDEFINED || v->type == TPL_V_LOOP ||
           (v->type >= TPL_V_STR && v->type <= TPL_V_GENERATOR);
}

bool sl__tpl_generator(tpl_run *run, const tpl_val *items, uint32_t len, tpl_val *out) {
    tpl_generator *gen = sl__tpl_alloc(run, 1, sizeof(*gen));
    if (!gen)
        return false;
    *gen = (tpl_generator){.items = items, .len = len};
    *out = (tpl_val){.type = TPL_V_GENERATOR, .gen = gen};
    return true;
}

bool sl__tpl_iterate(tpl_run *run, const tpl_val *v, const tpl_val **items, uint32_t *n) {
    tpl_val *made;
    *items = NULL;
    *n = v->len;
    switch (v->type) {
    case TPL_V_UNDEFINED:
        *n = 0;
        return true;
    case TPL_V_LIST:
    case TPL_V_TUPLE:
        *items = v->items;
        return true;
    case TPL_V_GENERATOR:
        *items = v->gen->len ? v->gen->items + v->gen->pos : NULL;
        *n = v->gen->len - v->gen->pos;
        v->gen->pos = v->gen->len;
        return true;
    case TPL_V_STR:
        *n = (uint32_t)sl__tpl_cp_count(v->s, v->len);
        break;
    case TPL_V_RANGE:
    case TPL_V_DICT:
    case TPL_V_KEYS:
    case TPL_V_VALUES:
    case TPL_V_ITEMS:
        break;
    default:
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%s' is not iterable", sl__tpl_type_name(v));
    }
    if (!sl__tpl_steps(run, *n / 4 + v->len / 64) ||
        !(made = sl__tpl_alloc(run, *n, sizeof(*made))))
        return false;
    *items = made;
    if (tpl_is_str(v)) {
        for (uint32_t i = 0, at = 0; i < *n; i++) {
            size_t bytes = sl__tpl_cp_len(v->s + at);
            made[i] = tpl_str(v->s + at, bytes);
            at += (uint32_t)bytes;
        }
        return true;
    }
    tpl_val *both = NULL;
    if (v->type == TPL_V_ITEMS && !(both = sl__tpl_alloc(run, 2 * (size_t)*n, sizeof(*both))))
        return false;
    for (uint32_t i = 0; i < *n; i++) {
        if (v->type == TPL_V_RANGE) {
            made[i] = range_item(v, i);
        } else if (v->type == TPL_V_ITEMS) {
            both[2 * i] = v->pairs[i].key;
            both[2 * i + 1] = v->pairs[i].val;
            made[i] = tpl_tuple(both + 2 * i, 2);
        } else {
            made[i] = v->type == TPL_V_VALUES ? v->pairs[i].val : v->pairs[i].key;
        }
    }
    return true;
}

bool sl__tpl_dict_find(tpl_run *run, const tpl_val *dict, const tpl_val *key, const tpl_val **out) {
    *out = NULL;
    if (!sl__tpl_steps(run, dict->len / 16))
        return false;
    for (uint32_t i = 0; i < dict->len; i++) {
        const tpl_val *k = &dict->pairs[i].key;
        bool equal = false;
        if (tpl_is_str(k) && tpl_is_str(key)) // nearly always, and it cannot fail
            equal = k->len == key->len && memcmp(k->s, key->s, k->len) == 0;
        else if (!sl__tpl_equal(run, k, key, &equal))
            return false;
        if (equal) {
            *out = &dict->pairs[i].val;
            return true;
        }
    }
    return true;
}

bool sl__tpl_dict_put(tpl_run *run, tpl_pair *pairs, uint32_t *n, const tpl_val *key,
                      const tpl_val *val) {
    tpl_val dict = tpl_dict(pairs, *n);
    const tpl_val *found;
    if (!sl__tpl_hashable(run, key) || !sl__tpl_dict_find(run, &dict, key, &found))
        return false;
    if (found)
        *(tpl_val *)(uintptr_t)found = *val; // in pairs, which is ours
    else
        pairs[(*n)++] = (tpl_pair){*key, *val};
    return true;
}

/* Names that Python's types have and that the table of methods lacks: looking one up gives something
 * that is defined and true, which matters to `is defined` and to a dict with such a key. What
 * changes a list or dict is withheld by the sandbox and so undefined. */
static bool python_has(const tpl_val *v, const char *name, uint32_t len, bool *withheld) {
    static const char str_names[] =
        " casefold center encode expandtabs format format_map isalnum isalpha isascii isdecimal "
        "isdigit isidentifier islower isnumeric isprintable isspace istitle isupper ljust "
        "maketrans "
        "partition rindex rjust rpartition swapcase translate zfill ";
    static const char list_changes[] = " append clear extend insert pop remove reverse sort ";
    static const char dict_changes[] = " clear pop popitem setdefault update ";
    *withheld = false;
    char padded[32];
    if (len + 2 >= sizeof(padded) || memchr(name, ' ', len) || memchr(name, '\0', len))
        return false;
    padded[0] = ' ';
    memcpy(padded + 1, name, len);
    memcpy(padded + 1 + len, " ", 2);
    switch (v->type) {
    case TPL_V_STR:
        return strstr(str_names, padded) != NULL;
    case TPL_V_LIST:
        return *withheld = strstr(list_changes, padded) != NULL;
    case TPL_V_DICT:
        *withheld = strstr(dict_changes, padded) != NULL;
        return *withheld || strcmp(padded, " fromkeys ") == 0;
    default:
        return false;
    }
}

// A method, or something else that getattr() finds. False: nothing found, or an error.
static bool find_method(tpl_run *run, const tpl_val *obj, const char *name, uint32_t len,
                        tpl_val *out) {
    const tpl_callable *fn = sl__tpl_find_method(name, len, obj->type);
    bool withheld = false;
    if (!fn && !python_has(obj, name, len, &withheld))
        return false;
    *out = tpl_undefined(name, len);
    if (withheld)
        return true;
    tpl_bound *bound = sl__tpl_alloc(run, 1, sizeof(*bound));
    if (!bound)
        return false;
    *bound = (tpl_bound){fn, *obj};
    *out = (tpl_val){.type = TPL_V_METHOD, .bound = bound};
    return true;
}

static bool loop_attr(tpl_run *run, tpl_loop *loop, const char *name, uint32_t len, tpl_val *out) {
    static const char *const names[] = {"index",     "index0",   "first",    "last",
                                        "length",    "previtem", "nextitem", "revindex",
                                        "revindex0", "depth",    "depth0"};
    size_t which = 0;
    while (which < SL_COUNT(names) &&
           !(strlen(names[which]) == len && memcmp(names[which], name, len) == 0))
        which++;
    bool exists = false;
    *out = tpl_undefined(name, len);
    switch (which) {
    case 0:
        *out = tpl_int((int64_t)loop->index0 + 1);
        return true;
    case 1:
        *out = tpl_int(loop->index0);
        return true;
    case 2:
        *out = tpl_bool(loop->index0 == 0);
        return true;
    case 5:
        if (loop->index0 > 0)
            *out = loop->kept[loop->index0 - 1];
        return true;
    case 3:
    case 6:
        if (!sl__tpl_loop_reach(run, loop, loop->index0 + 1, &exists))
            return false;
        if (which == 3)
            *out = tpl_bool(!exists);
        else if (exists)
            *out = loop->kept[loop->index0 + 1];
        return true;
    case 4:
    case 7:
    case 8:
        if (!sl__tpl_loop_reach(run, loop, UINT32_MAX, &exists))
            return false;
        *out = tpl_int(which == 4 ? (int64_t)loop->n_kept
                                  : (int64_t)loop->n_kept - loop->index0 - (which == 8));
        return true;
    case 9:
    case 10:
        *out = tpl_int(which == 9); // loops are not recursive
        return true;
    default:
        find_method(run, &(tpl_val){.type = TPL_V_LOOP, .loop = loop}, name, len, out);
        return run->status == SL_OK;
    }
}

bool sl__tpl_attr(tpl_run *run, const tpl_val *obj, const char *name, uint32_t len, tpl_val *out) {
    const tpl_val *found;
    tpl_val key = tpl_str(name, len);
    switch (obj->type) {
    case TPL_V_UNDEFINED:
        return undefined_error(run, obj);
    case TPL_V_LOOP:
        return loop_attr(run, obj->loop, name, len, out);
    case TPL_V_NAMESPACE:
        if (!sl__tpl_lookup(obj->scope, name, len, out))
            *out = tpl_undefined(name, len);
        return true;
    default:
        if (find_method(run, obj, name, len, out))
            return true;
        *out = tpl_undefined(name, len);
        if (run->status || obj->type != TPL_V_DICT)
            return run->status == SL_OK;
        if (!sl__tpl_dict_find(run, obj, &key, &found))
            return false;
        if (found)
            *out = *found;
        return true;
    }
}

// Where a Python index i points in a sequence of n, or -1.
static int64_t resolve_index(int64_t i, int64_t n) {
    i = i < 0 ? i + n : i;
    return i < n ? i : -1;
}

bool sl__tpl_item(tpl_run *run, const tpl_val *obj, const tpl_val *index, tpl_val *out) {
    const tpl_val *found;
    *out = tpl_undefined("item", 4);
    switch (obj->type) {
    case TPL_V_UNDEFINED:
        return undefined_error(run, obj);
    case TPL_V_DICT:
        if (index->type == TPL_V_LIST || index->type == TPL_V_DICT)
            return true; // unhashable: nothing is found
        if (!sl__tpl_dict_find(run, obj, index, &found))
            return false;
        if (found) {
            *out = *found;
            return true;
        }
        break;
    case TPL_V_STR:
        if (tpl_is_integral(index)) {
            int64_t n = (int64_t)sl__tpl_cp_count(obj->s, obj->len);
            int64_t i = resolve_index(tpl_integral(index), n);
            if (i >= 0) {
                size_t at = sl__tpl_cp_offset(obj->s, obj->len, (size_t)i);
                *out = tpl_str(obj->s + at, sl__tpl_cp_len(obj->s + at));
                out->markup = obj->markup;
            }
            return sl__tpl_steps(run, obj->len / 32);
        }
        break;
    case TPL_V_LIST:
    case TPL_V_TUPLE:
    case TPL_V_RANGE:
        if (tpl_is_integral(index)) {
            int64_t i = resolve_index(tpl_integral(index), obj->len);
            if (i >= 0)
                *out = obj->type == TPL_V_RANGE ? range_item(obj, (uint32_t)i) : obj->items[i];
            return true;
        }
        break;
    default:
        break;
    }
    if (tpl_is_str(index)) {
        *out = tpl_undefined(index->s, index->len);
        if (obj->type == TPL_V_LOOP || obj->type == TPL_V_NAMESPACE)
            return sl__tpl_attr(run, obj, index->s, index->len, out);
        find_method(run, obj, index->s, index->len, out);
    }
    return run->status == SL_OK;
}

bool sl__tpl_slice(tpl_run *run, const tpl_val *obj, const tpl_val index[3], tpl_val *out) {
    for (int i = 0; i < 3; i++) {
        if (index[i].type != TPL_V_ABSENT && index[i].type != TPL_V_NONE &&
            !tpl_is_integral(&index[i]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "a slice needs integers, not '%s'",
                                sl__tpl_type_name(&index[i]));
    }
    if (obj->type == TPL_V_UNDEFINED)
        return undefined_error(run, obj);
    if (!is_repeatable(obj) && obj->type != TPL_V_RANGE)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%s' has no slices", sl__tpl_type_name(obj));
    int64_t n = tpl_is_str(obj) ? (int64_t)sl__tpl_cp_count(obj->s, obj->len) : obj->len;
    int64_t step = tpl_is_integral(&index[2]) ? tpl_integral(&index[2]) : 1;
    if (step == 0)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "a slice with step 0");
    // Ends as Python clamps them: into [0, n] forwards, into [-1, n - 1] backwards.
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    int64_t ends[2] = {step > 0 ? low : high, step > 0 ? high : low};
    for (int i = 0; i < 2; i++) {
        if (!tpl_is_integral(&index[i]))
            continue;
        int64_t v = tpl_integral(&index[i]);
        v = v < 0 ? v + n : v;
        ends[i] = v < low ? low : v > high ? high : v;
    }
    int64_t count = 0;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    uint64_t distance = (uint64_t)(step > 0 ? ends[1] - ends[0] : ends[0] - ends[1]);
    if (step > 0 ? ends[1] > ends[0] : ends[0] > ends[1])
        count = (int64_t)((distance - 1) / stride + 1);
    if (!sl__tpl_steps(run, (uint64_t)count / 4 + (tpl_is_str(obj) ? obj->len / 32 : 0)))
        return false;
    *out = *obj;
    if (obj->type == TPL_V_RANGE) {
        const tpl_range *from = obj->range;
        tpl_range *range = sl__tpl_alloc(run, 1, sizeof(*range));
        if (!range)
            return false;
        if (__builtin_mul_overflow(ends[0], from->step, &range->start) ||
            __builtin_add_overflow(range->start, from->start, &range->start) ||
            __builtin_mul_overflow(ends[1], from->step, &range->stop) ||
            __builtin_add_overflow(range->stop, from->start, &range->stop) ||
            __builtin_mul_overflow(step, from->step, &range->step))
            return overflow(run);
        out->range = range;
        out->len = (uint32_t)count;
        return true;
    }
    if (count <= 1)
        step = 1; // so that nothing below can overflow
    if (!tpl_is_str(obj)) {
        out->len = (uint32_t)count;
        if (step == 1) {
            out->items = count ? obj->items + ends[0] : NULL;
            return true;
        }
        tpl_val *items = sl__tpl_alloc(run, (size_t)count, sizeof(*items));
        if (!items)
            return false;
        for (int64_t i = 0; i < count; i++)
            items[i] = obj->items[ends[0] + i * step];
        out->items = items;
        return true;
    }
    if (step == 1) {
        size_t from = sl__tpl_cp_offset(obj->s, obj->len, (size_t)(count ? ends[0] : 0));
        out->len = (uint32_t)sl__tpl_cp_offset(obj->s + from, obj->len - from, (size_t)count);
        out->s = obj->s + from;
        return true;
    }
    tpl_text text = sl__tpl_text(run);
    const char *at = obj->s + sl__tpl_cp_offset(obj->s, obj->len, (size_t)ends[0]);
    for (int64_t i = 0; i < count; i++) {
        sl__tpl_text_add(&text, at, sl__tpl_cp_len(at));
        for (int64_t k = 0; i + 1 < count && k < (step > 0 ? step : -step); k++) {
            if (step > 0) {
                at += sl__tpl_cp_len(at);
            } else {
                do
                    at--;
                while ((*at & 0xc0) == 0x80);
            }
        }
    }
    bool markup = obj->markup;
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = markup;
    return true;
}
