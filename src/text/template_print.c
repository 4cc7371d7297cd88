/* Values as text: str(), repr() and json.dumps(); and JSON as values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/template_internal.h"

size_t sl__tpl_float_repr(double f, char buf[40]) {
    if (isnan(f) || isinf(f))
        return (size_t)snprintf(buf, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    // The fewest digits that give the same double back. printf's decimal point depends on the
    // locale, so digits and exponent are taken apart.
    char digits[24], form[40];
    int n = 0, exponent = 0;
    for (int precision = 0; precision < 17; precision++) {
        snprintf(form, sizeof(form), "%.*e", precision, f);
        const char *e = strchr(form, 'e');
        n = 0;
        for (const char *p = form; p < e; p++) {
            if (*p >= '0' && *p <= '9')
                digits[n++] = *p;
        }
        exponent = (int)strtol(e + 1, NULL, 10);
        char plain[40];
        int len = snprintf(plain, sizeof(plain), "%s%.*se%d", signbit(f) ? "-" : "", n, digits,
                           exponent - (n - 1));
        if (sl_json_parse_double(plain, (size_t)len) == f)
            break;
    }
    while (n > 1 && digits[n - 1] == '0')
        n--;
    char *out = buf;
    if (signbit(f))
        *out++ = '-';
    if (exponent < -4 || exponent >= 16) {
        *out++ = digits[0];
        if (n > 1) {
            *out++ = '.';
            memcpy(out, digits + 1, (size_t)n - 1);
            out += n - 1;
        }
        out += snprintf(out, 8, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return (size_t)(out - buf);
    }
    for (int i = exponent < 0 ? exponent : 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1)
            *out++ = '.';
        *out++ = i >= 0 && i < n ? digits[i] : '0';
    }
    return (size_t)(out - buf);
}

static void add_number(tpl_text *text, const tpl_val *v) {
    char buf[40];
    size_t n = v->type == TPL_V_FLOAT ? sl__tpl_float_repr(v->f, buf)
                                      : (size_t)snprintf(buf, sizeof(buf), "%lld", (long long)v->i);
    sl__tpl_text_add(text, buf, n);
}

static void repr_string(tpl_text *text, const tpl_val *v) {
    bool single = memchr(v->s, '\'', v->len) != NULL, twice = memchr(v->s, '"', v->len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    sl__tpl_text_add(text, &quote, 1);
    for (size_t i = 0, bytes; i < v->len; i += bytes) {
        uint32_t cp = sl__tpl_cp_decode(v->s + i, &bytes);
        char form[12];
        if (cp == (unsigned char)quote || cp == '\\')
            snprintf(form, sizeof(form), "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(form, sizeof(form), "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (sl__tpl_is_printable(cp))
            snprintf(form, sizeof(form), "%.*s", (int)bytes, v->s + i);
        else
            snprintf(form, sizeof(form),
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     cp);
        sl__tpl_text_puts(text, form);
    }
    sl__tpl_text_add(text, &quote, 1);
}

static bool repr_into(tpl_text *text, const tpl_val *v, bool is_repr) {
    tpl_run *run = text->run;
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_enter(run) || !sl__tpl_steps(run, 1))
        return false;
    bool ok = true;
    switch (v->type) {
    case TPL_V_UNDEFINED:
        if (is_repr)
            sl__tpl_text_puts(text, "Undefined");
        break;
    case TPL_V_NONE:
        sl__tpl_text_puts(text, "None");
        break;
    case TPL_V_BOOL:
        sl__tpl_text_puts(text, v->b ? "True" : "False");
        break;
    case TPL_V_INT:
    case TPL_V_FLOAT:
        add_number(text, v);
        break;
    case TPL_V_BIG_INT:
        sl__tpl_text_add(text, v->s, v->len);
        break;
    case TPL_V_STR:
        if (is_repr && v->markup)
            sl__tpl_text_puts(text, "Markup(");
        if (is_repr)
            repr_string(text, v);
        else
            sl__tpl_text_add(text, v->s, v->len);
        if (is_repr && v->markup)
            sl__tpl_text_puts(text, ")");
        break;
    case TPL_V_RANGE: {
        char buf[80];
        snprintf(buf, sizeof(buf),
                 v->range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)v->range->start, (long long)v->range->stop, (long long)v->range->step);
        sl__tpl_text_puts(text, buf);
        break;
    }
    case TPL_V_DICT:
        sl__tpl_text_puts(text, "{");
        for (uint32_t i = 0; i < v->len && ok; i++) {
            if (i)
                sl__tpl_text_puts(text, ", ");
            ok = repr_into(text, &v->pairs[i].key, true);
            sl__tpl_text_puts(text, ": ");
            ok = ok && repr_into(text, &v->pairs[i].val, true);
        }
        sl__tpl_text_puts(text, "}");
        break;
    case TPL_V_LIST:
    case TPL_V_TUPLE:
    case TPL_V_KEYS:
    case TPL_V_VALUES:
    case TPL_V_ITEMS: {
        bool tuple = v->type == TPL_V_TUPLE, view = !tuple && v->type != TPL_V_LIST;
        if (!sl__tpl_iterate(run, v, &items, &n)) {
            ok = false;
            break;
        }
        if (view) {
            sl__tpl_text_puts(text, sl__tpl_type_name(v));
            sl__tpl_text_puts(text, "(");
        }
        sl__tpl_text_puts(text, tuple ? "(" : "[");
        for (uint32_t i = 0; i < n && ok; i++) {
            if (i)
                sl__tpl_text_puts(text, ", ");
            ok = repr_into(text, &items[i], true);
        }
        sl__tpl_text_puts(text, tuple ? (n == 1 ? ",)" : ")") : view ? "])" : "]");
        break;
    }
    default:
        ok = sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "printing a %s", sl__tpl_type_name(v));
    }
    sl__tpl_leave(run);
    return ok;
}

bool sl__tpl_to_str(tpl_run *run, const tpl_val *v, tpl_val *out) {
    *out = *v;
    if (tpl_is_str(v))
        return true;
    tpl_text text = sl__tpl_text(run);
    return repr_into(&text, v, false) && sl__tpl_text_end(&text, out);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_string(tpl_text *text, const tpl_val *v, bool ascii) {
    sl__tpl_text_puts(text, "\"");
    size_t from = 0;
    for (size_t i = 0, bytes; i < v->len; i += bytes) {
        uint32_t cp = sl__tpl_cp_decode(v->s + i, &bytes);
        if (cp >= 0x20 && cp != '"' && cp != '\\' && !(ascii && cp > 0x7e))
            continue;
        static const char shorts[] = "\"\"\\\\\nn\rr\tt\bb\ff";
        char form[16];
        const char *hit = NULL;
        for (size_t k = 0; k < sizeof(shorts) - 1 && !hit; k += 2)
            hit = (unsigned char)shorts[k] == cp ? shorts + k + 1 : NULL;
        if (hit)
            snprintf(form, sizeof(form), "\\%c", *hit);
        else if (cp < 0x10000)
            snprintf(form, sizeof(form), "\\u%04x", cp);
        else
            snprintf(form, sizeof(form), "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10),
                     0xdc00 + (cp & 0x3ff));
        sl__tpl_text_add(text, v->s + from, i - from);
        sl__tpl_text_puts(text, form);
        from = i + bytes;
    }
    sl__tpl_text_add(text, v->s + from, v->len - from);
    sl__tpl_text_puts(text, "\"");
}

static bool json_key(tpl_text *text, const tpl_val *key, const tpl_json_style *style) {
    tpl_text word = sl__tpl_text(text->run);
    tpl_val s = *key;
    switch (key->type) {
    case TPL_V_STR:
        break;
    case TPL_V_NONE:
        s = tpl_str("null", 4);
        break;
    case TPL_V_BOOL:
        s = key->b ? tpl_str("true", 4) : tpl_str("false", 5);
        break;
    case TPL_V_INT:
        add_number(&word, key);
        if (!sl__tpl_text_end(&word, &s))
            return false;
        break;
    case TPL_V_FLOAT:
        if (isfinite(key->f)) {
            add_number(&word, key);
            if (!sl__tpl_text_end(&word, &s))
                return false;
        } else {
            s = isnan(key->f) ? tpl_str("NaN", 3)
                : key->f > 0  ? tpl_str("Infinity", 8)
                              : tpl_str("-Infinity", 9);
        }
        break;
    default:
        return sl__tpl_fail(text->run, SL_ERR_ARGUMENT, "tojson: '%s' cannot be a key",
                            sl__tpl_type_name(key));
    }
    json_string(text, &s, style->ascii);
    return true;
}

static void json_break(tpl_text *text, const tpl_json_style *style, unsigned level) {
    if (!style->indent)
        return;
    sl__tpl_text_puts(text, "\n");
    for (unsigned i = 0; i < level; i++)
        sl__tpl_text_add(text, style->indent, style->indent_len);
}

// Indices of pairs in the order of their keys, which must all be strings or all be numbers.
static bool sort_keys(tpl_run *run, const tpl_val *dict, const tpl_pair **pairs) {
    tpl_pair *sorted = sl__tpl_alloc(run, dict->len, sizeof(*sorted));
    if (!sorted)
        return false;
    for (uint32_t i = 0; i < dict->len; i++) {
        uint32_t at = i;
        for (; at > 0; at--) {
            bool less;
            if (!sl__tpl_compare(run, TPL_OP_LT, &dict->pairs[i].key, &sorted[at - 1].key, &less))
                return false;
            if (!less)
                break;
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = dict->pairs[i];
    }
    *pairs = sorted;
    return true;
}

static bool json_into(tpl_text *text, const tpl_val *v, const tpl_json_style *style,
                      unsigned level) {
    tpl_run *run = text->run;
    if (!sl__tpl_enter(run) || !sl__tpl_steps(run, 1))
        return false;
    bool ok = true;
    switch (v->type) {
    case TPL_V_NONE:
        sl__tpl_text_puts(text, "null");
        break;
    case TPL_V_BOOL:
        sl__tpl_text_puts(text, v->b ? "true" : "false");
        break;
    case TPL_V_FLOAT:
        if (!isfinite(v->f)) {
            sl__tpl_text_puts(text, isnan(v->f) ? "NaN" : v->f > 0 ? "Infinity" : "-Infinity");
            break;
        }
        // fall through
    case TPL_V_INT:
        add_number(text, v);
        break;
    case TPL_V_BIG_INT:
        sl__tpl_text_add(text, v->s, v->len);
        break;
    case TPL_V_STR:
        json_string(text, v, style->ascii);
        break;
    case TPL_V_LIST:
    case TPL_V_TUPLE:
        sl__tpl_text_puts(text, "[");
        for (uint32_t i = 0; i < v->len && ok; i++) {
            if (i)
                sl__tpl_text_add(text, style->item_sep.s, style->item_sep.len);
            json_break(text, style, level + 1);
            ok = json_into(text, &v->items[i], style, level + 1);
        }
        if (v->len)
            json_break(text, style, level);
        sl__tpl_text_puts(text, "]");
        break;
    case TPL_V_DICT: {
        const tpl_pair *pairs = v->pairs;
        ok = !style->sort_keys || sort_keys(run, v, &pairs);
        sl__tpl_text_puts(text, "{");
        for (uint32_t i = 0; i < v->len && ok; i++) {
            if (i)
                sl__tpl_text_add(text, style->item_sep.s, style->item_sep.len);
            json_break(text, style, level + 1);
            ok = json_key(text, &pairs[i].key, style);
            sl__tpl_text_add(text, style->key_sep.s, style->key_sep.len);
            ok = ok && json_into(text, &pairs[i].val, style, level + 1);
        }
        if (v->len)
            json_break(text, style, level);
        sl__tpl_text_puts(text, "}");
        break;
    }
    default:
        ok = sl__tpl_fail(run, SL_ERR_ARGUMENT, "tojson: '%s' is not JSON serializable",
                          sl__tpl_type_name(v));
    }
    sl__tpl_leave(run);
    return ok;
}

bool sl__tpl_to_json(tpl_run *run, const tpl_val *v, const tpl_json_style *style, tpl_val *out) {
    tpl_text text = sl__tpl_text(run);
    return json_into(&text, v, style, 0) && sl__tpl_text_end(&text, out);
}

static bool number_to_val(tpl_run *run, const sl_json *json, tpl_val *out) {
    if (json->text_len > UINT32_MAX)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "a number this long");
    bool integer = true;
    for (size_t i = 0; i < json->text_len; i++)
        integer &= json->text[i] == '-' || (json->text[i] >= '0' && json->text[i] <= '9');
    int64_t i;
    if (!integer)
        *out = tpl_float(sl_json_parse_double(json->text, json->text_len));
    else if (sl_json_int64(json, &i))
        *out = tpl_int(i);
    else
        *out = (tpl_val){.type = TPL_V_BIG_INT, .s = json->text, .len = (uint32_t)json->text_len};
    return true;
}

// Recursion is bounded by the depth that sl_json_parse accepts.
bool sl__tpl_json_to_val(tpl_run *run, const sl_json *json, tpl_val *out) {
    uint32_t n = 0;
    if (!sl__tpl_enter(run))
        return false;
    bool ok = true;
    switch (json->type) {
    case SL_JSON_NULL:
        *out = tpl_none();
        break;
    case SL_JSON_FALSE:
    case SL_JSON_TRUE:
        *out = tpl_bool(json->type == SL_JSON_TRUE);
        break;
    case SL_JSON_NUMBER:
        ok = number_to_val(run, json, out);
        break;
    case SL_JSON_STRING:
        if (json->text_len > UINT32_MAX)
            ok = sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "a string of more than 4 GiB");
        *out = tpl_str(json->text, json->text_len);
        break;
    case SL_JSON_ARRAY: {
        tpl_val *items = sl__tpl_alloc(run, json->n_children, sizeof(*items));
        ok = items != NULL;
        for (const sl_json *c = json->child; c && ok; c = c->next)
            ok = sl__tpl_json_to_val(run, c, &items[n++]);
        *out = tpl_list(items, n);
        break;
    }
    case SL_JSON_OBJECT: {
        tpl_pair *pairs = sl__tpl_alloc(run, json->n_children, sizeof(*pairs));
        ok = pairs != NULL;
        for (const sl_json *c = json->child; c && ok; c = c->next) {
            pairs[n].key = tpl_str(c->key, c->key_len);
            ok = sl__tpl_json_to_val(run, c, &pairs[n++].val);
        }
        *out = tpl_dict(pairs, n);
        break;
    }
    }
    sl__tpl_leave(run);
    return ok;
}
