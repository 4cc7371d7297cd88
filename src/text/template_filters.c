/* Filters on sequences, numbers and what is missing, and the methods of containers. What a filter does
 * is what jinja2 3.1 does, error cases included. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/template_call.h"

/* ---- methods of containers ----------------------------------------------------------------- */

static bool dict_get(ARGUMENTS) {
    const tpl_val *found;
    if (!sl__tpl_hashable(run, &arg[0]) || !sl__tpl_dict_find(run, self, &arg[0], &found))
        return false;
    *out = found ? *found : given(&arg[1]) ? arg[1] : tpl_none();
    return true;
}
static bool dict_view(const tpl_val *self, tpl_type type, tpl_val *out) {
    *out = *self;
    out->type = (uint8_t)type;
    return true;
}
static bool dict_items(ARGUMENTS) {
    (void)run, (void)arg;
    return dict_view(self, TPL_V_ITEMS, out);
}
static bool dict_keys(ARGUMENTS) {
    (void)run, (void)arg;
    return dict_view(self, TPL_V_KEYS, out);
}
static bool dict_values(ARGUMENTS) {
    (void)run, (void)arg;
    return dict_view(self, TPL_V_VALUES, out);
}
static bool copy(ARGUMENTS) {
    (void)run, (void)arg;
    *out = *self;
    return true;
}

static bool sequence_count(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n, hits = 0;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool equal;
        if (!sl__tpl_equal(run, &items[i], &arg[0], &equal))
            return false;
        hits += equal;
    }
    *out = tpl_int(hits);
    return true;
}
static bool sequence_index(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool equal;
        if (!sl__tpl_equal(run, &items[i], &arg[0], &equal))
            return false;
        *out = tpl_int(i);
        if (equal)
            return true;
    }
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "index: not in the list");
}

static bool loop_cycle(ANY_ARGUMENTS) {
    if (args->n_pos == 0 || args->n_kw)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "cycle: no items given");
    *out = args->pos[self->loop->index0 % args->n_pos];
    return true;
}

/* ---- sequences ----------------------------------------------------------------------------- */

static bool filter_length(ARGUMENTS) {
    (void)arg;
    int64_t n;
    if (!sl__tpl_length(run, self, &n))
        return run->status ? false : sl__tpl_type_error(run, "length", self);
    *out = tpl_int(n);
    return true;
}

static bool filter_list(ARGUMENTS) {
    (void)arg;
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    *out = tpl_list(items, n);
    return true;
}

static bool filter_first(ARGUMENTS) {
    (void)arg;
    const tpl_val *items;
    uint32_t n;
    if (self->type == TPL_V_GENERATOR) {
        tpl_generator *gen = self->gen;
        *out = gen->pos < gen->len ? gen->items[gen->pos++] : tpl_undefined("first", 5);
        return true;
    }
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    *out = n ? items[0] : tpl_undefined("first", 5);
    return true;
}

static bool filter_last(ARGUMENTS) {
    (void)arg;
    const tpl_val *items;
    uint32_t n;
    if (self->type == TPL_V_GENERATOR)
        return sl__tpl_type_error(run, "last", self);
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    *out = n ? items[n - 1] : tpl_undefined("last", 4);
    return true;
}

static bool filter_reverse(ARGUMENTS) {
    (void)arg;
    const tpl_val *items;
    uint32_t n;
    if (tpl_is_str(self)) {
        const tpl_val index[3] = {{0}, {0}, tpl_int(-1)};
        return sl__tpl_slice(run, self, index, out);
    }
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    tpl_val *back = sl__tpl_alloc(run, n, sizeof(*back));
    if (!back || !sl__tpl_steps(run, n / 4))
        return false;
    for (uint32_t i = 0; i < n; i++)
        back[i] = items[n - 1 - i];
    if (self->type != TPL_V_GENERATOR)
        return sl__tpl_generator(run, back, n, out);
    *out = tpl_list(back, n);
    return true;
}

static bool filter_items(ARGUMENTS) {
    (void)arg;
    const tpl_val *items = NULL;
    uint32_t n = 0;
    tpl_val view = *self;
    if (self->type == TPL_V_DICT) {
        view.type = TPL_V_ITEMS;
        if (!sl__tpl_iterate(run, &view, &items, &n))
            return false;
    } else if (self->type != TPL_V_UNDEFINED) {
        return sl__tpl_type_error(run, "items", self);
    }
    return sl__tpl_generator(run, items, n, out);
}

// The part of an attribute path "a.b.0" up to the next dot, as an index. *more: a dot followed.
static tpl_val path_part(const char **path, const char *end, bool *more) {
    const char *from = *path;
    int64_t i = 0;
    bool digits = true;
    for (; *path < end && **path != '.'; (*path)++) {
        digits &= **path >= '0' && **path <= '9' && i < INT32_MAX;
        i = digits ? i * 10 + (**path - '0') : 0;
    }
    tpl_val part = digits && *path > from ? tpl_int(i) : tpl_str(from, (size_t)(*path - from));
    *more = *path < end;
    *path += *more;
    return part;
}

// item.a.b by a path; `missing`, unless absent or None, stands for what is undefined on the way.
static bool attribute(tpl_run *run, tpl_val item, const tpl_val *path, const tpl_val *missing,
                      tpl_val *out) {
    if (!given(path) || path->type == TPL_V_NONE) {
        *out = item;
        return true;
    }
    const char *at = path->s, *end = tpl_is_str(path) ? at + path->len : at;
    for (bool more = true; more;) {
        tpl_val part = *path, object = item;
        more = false;
        if (tpl_is_str(path))
            part = path_part(&at, end, &more);
        if (!sl__tpl_item(run, &object, &part, &item) || !sl__tpl_steps(run, 1))
            return false;
        if (item.type == TPL_V_UNDEFINED && missing && given(missing) &&
            missing->type != TPL_V_NONE)
            item = *missing;
    }
    *out = item;
    return true;
}

static bool fold_case(tpl_run *run, tpl_val *v) {
    return !tpl_is_str(v) || sl__tpl_lower(run, v, v);
}

static bool join_all(tpl_run *run, const tpl_val *self, const tpl_val *sep, const tpl_val *path,
                     tpl_val *out) {
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    // Everything is made a string first, so that the text grows undisturbed.
    tpl_val *words = sl__tpl_alloc(run, n, sizeof(*words));
    if (!words)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!attribute(run, items[i], path, NULL, &words[i]) ||
            !sl__tpl_to_str(run, &words[i], &words[i]) || !sl__tpl_steps(run, 1))
            return false;
    }
    tpl_text text = sl__tpl_text(run);
    for (uint32_t i = 0; i < n; i++) {
        if (i)
            sl__tpl_text_add(&text, sep->s, sep->len);
        sl__tpl_text_add(&text, words[i].s, words[i].len);
    }
    return sl__tpl_text_end(&text, out);
}

static bool filter_join(ARGUMENTS) {
    tpl_val sep = tpl_str("", 0);
    return (!given(&arg[0]) || sl__tpl_to_str(run, &arg[0], &sep)) &&
           join_all(run, self, &sep, &arg[1], out);
}

// A stable merge sort by key, from bottom to top.
static bool sort_pairs(tpl_run *run, tpl_pair *pairs, uint32_t n, bool reverse) {
    tpl_pair *from = pairs, *to = sl__tpl_alloc(run, n, sizeof(*to));
    if (!to)
        return false;
    for (uint64_t width = 1; width < n; width *= 2) {
        for (uint64_t low = 0; low < n; low += 2 * width) {
            uint64_t mid = SL_MIN(low + width, n), high = SL_MIN(low + 2 * width, n);
            uint64_t a = low, b = mid;
            for (uint64_t k = low; k < high; k++) {
                bool take_b = a == mid;
                if (a < mid && b < high) {
                    const tpl_val *ka = &from[a].key, *kb = &from[b].key;
                    if (!sl__tpl_compare(run, reverse ? TPL_OP_GT : TPL_OP_LT, kb, ka, &take_b))
                        return false;
                }
                to[k] = take_b ? from[b++] : from[a++];
            }
        }
        tpl_pair *swap = from;
        from = to;
        to = swap;
    }
    if (from != pairs)
        memcpy(pairs, from, n * sizeof(*pairs));
    return sl__tpl_steps(run, n);
}

// Key of an item for sort: a list, one element for each path in "a,b".
static bool sort_key(tpl_run *run, const tpl_val *item, const tpl_val *paths, bool fold,
                     tpl_val *out) {
    uint32_t n = 1;
    for (uint32_t i = 0; tpl_is_str(paths) && i < paths->len; i++)
        n += paths->s[i] == ',';
    tpl_val *keys = sl__tpl_alloc(run, n, sizeof(*keys));
    if (!keys)
        return false;
    const char *at = paths->s;
    for (uint32_t i = 0; i < n; i++) {
        tpl_val path = *paths;
        if (tpl_is_str(paths)) {
            size_t left = (size_t)(paths->s + paths->len - at);
            const char *comma = memchr(at, ',', left);
            path = tpl_str(at, comma ? (size_t)(comma - at) : left);
            at = comma ? comma + 1 : at;
        }
        if (!attribute(run, *item, &path, NULL, &keys[i]) || (fold && !fold_case(run, &keys[i])))
            return false;
    }
    *out = tpl_list(keys, n);
    return true;
}

static bool filter_sort(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    tpl_pair *pairs = sl__tpl_alloc(run, n, sizeof(*pairs));
    tpl_val *sorted = sl__tpl_alloc(run, n, sizeof(*sorted));
    if (!pairs || !sorted)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        pairs[i].val = items[i];
        if (!sort_key(run, &items[i], &arg[2], !is_true(&arg[1]), &pairs[i].key))
            return false;
    }
    if (!sort_pairs(run, pairs, n, is_true(&arg[0])))
        return false;
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = pairs[i].val;
    *out = tpl_list(sorted, n);
    return true;
}

static bool filter_dictsort(ARGUMENTS) {
    bool by_value = sl__tpl_arg_is(&arg[1], "value");
    if (self->type != TPL_V_DICT)
        return sl__tpl_type_error(run, "dictsort", self);
    if (given(&arg[1]) && !by_value && !sl__tpl_arg_is(&arg[1], "key"))
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "dictsort: by is \"key\" or \"value\"");
    tpl_val view = *self;
    const tpl_val *items;
    uint32_t n;
    view.type = TPL_V_ITEMS;
    tpl_pair *pairs = sl__tpl_alloc(run, self->len, sizeof(*pairs));
    tpl_val *sorted = sl__tpl_alloc(run, self->len, sizeof(*sorted));
    if (!pairs || !sorted || !sl__tpl_iterate(run, &view, &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        pairs[i] = (tpl_pair){items[i].items[by_value], items[i]};
        if (!is_true(&arg[0]) && !fold_case(run, &pairs[i].key))
            return false;
    }
    if (!sort_pairs(run, pairs, n, is_true(&arg[2])))
        return false;
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = pairs[i].val;
    *out = tpl_list(sorted, n);
    return true;
}

static bool filter_unique(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n, n_kept = 0;
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    tpl_val *kept = sl__tpl_alloc(run, n, sizeof(*kept));
    tpl_val *keys = sl__tpl_alloc(run, n, sizeof(*keys));
    if (!kept || !keys)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        tpl_val key, seen = tpl_list(keys, n_kept);
        bool found;
        if (!attribute(run, items[i], &arg[1], NULL, &key) ||
            (!is_true(&arg[0]) && !fold_case(run, &key)) || !sl__tpl_hashable(run, &key) ||
            !sl__tpl_contains(run, &seen, &key, &found))
            return false;
        if (!found) {
            keys[n_kept] = key;
            kept[n_kept++] = items[i];
        }
    }
    return sl__tpl_generator(run, kept, n_kept, out);
}

static bool extreme(tpl_run *run, const tpl_val *self, const tpl_val *arg, tpl_op better,
                    tpl_val *out) {
    const tpl_val *items;
    uint32_t n;
    tpl_val best = tpl_none(), key;
    *out = tpl_undefined("aggregated item", 15);
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        bool take = i == 0;
        if (!attribute(run, items[i], &arg[1], NULL, &key) ||
            (!is_true(&arg[0]) && !fold_case(run, &key)) ||
            (i && !sl__tpl_compare(run, better, &key, &best, &take)))
            return false;
        if (take) {
            best = key;
            *out = items[i];
        }
    }
    return true;
}

static bool filter_min(ARGUMENTS) {
    return extreme(run, self, arg, TPL_OP_LT, out);
}
static bool filter_max(ARGUMENTS) {
    return extreme(run, self, arg, TPL_OP_GT, out);
}

static bool filter_sum(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n;
    tpl_val total = given(&arg[1]) ? arg[1] : tpl_int(0);
    if (tpl_is_str(&total))
        return sl__tpl_type_error(run, "sum", &total);
    if (!sl__tpl_iterate(run, self, &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        tpl_val item;
        if (!attribute(run, items[i], &arg[0], NULL, &item) ||
            !sl__tpl_binary(run, TPL_OP_ADD, &total, &item, &total))
            return false;
    }
    *out = total;
    return true;
}

static bool filter_default(ARGUMENTS) {
    (void)run;
    bool missing = self->type == TPL_V_UNDEFINED || (is_true(&arg[1]) && !sl__tpl_truth(self));
    *out = !missing ? *self : given(&arg[0]) ? arg[0] : tpl_str("", 0);
    return true;
}

/* ---- filters that apply filters and tests -------------------------------------------------- */

static const tpl_keyword_arg *keyword(const tpl_args *args, const char *name) {
    for (uint32_t i = 0; i < args->n_kw; i++) {
        if (args->kw[i].len == strlen(name) && memcmp(args->kw[i].name, name, args->kw[i].len) == 0)
            return &args->kw[i];
    }
    return NULL;
}

// These filters find nothing in what is false, None included.
static bool iterate_true(tpl_run *run, const tpl_val *v, const tpl_val **items, uint32_t *n) {
    *items = NULL;
    *n = 0;
    return !sl__tpl_truth(v) || sl__tpl_iterate(run, v, items, n);
}

static bool filter_map(ANY_ARGUMENTS) {
    const tpl_val *items;
    uint32_t n;
    const tpl_keyword_arg *path = keyword(args, "attribute"), *missing = keyword(args, "default");
    const tpl_callable *fn = NULL;
    tpl_args rest = *args;
    if (args->n_pos == 0 && path) {
        if (args->n_kw != 1u + (missing != NULL))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "map: unexpected keyword argument");
    } else {
        if (args->n_pos == 0 || !tpl_is_str(&args->pos[0]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "map: a filter or attribute= is needed");
        if (!(fn = sl__tpl_find_filter(args->pos[0].s, args->pos[0].len)))
            return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "unknown filter '%.*s'",
                                (int)SL_MIN(args->pos[0].len, 60u), args->pos[0].s);
        rest.pos++;
        rest.n_pos--;
    }
    if (!iterate_true(run, self, &items, &n))
        return false;
    tpl_val *mapped = sl__tpl_alloc(run, n, sizeof(*mapped));
    if (!mapped)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!sl__tpl_steps(run, 1))
            return false;
        if (fn ? !sl__tpl_call(run, fn, &items[i], &rest, &mapped[i])
               : !attribute(run, items[i], &path->val, missing ? &missing->val : NULL, &mapped[i]))
            return false;
    }
    return sl__tpl_generator(run, mapped, n, out);
}

static bool pick(tpl_run *run, const tpl_val *self, const tpl_args *args, bool by_attribute,
                 bool wanted, tpl_val *out) {
    const tpl_val *items;
    uint32_t n, n_kept = 0;
    const tpl_callable *test = NULL;
    tpl_args rest = *args;
    tpl_val path = {0};
    if (by_attribute) {
        if (rest.n_pos == 0)
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "the name of an attribute is missing");
        path = *rest.pos++;
        rest.n_pos--;
    }
    if (rest.n_pos) {
        if (!tpl_is_str(rest.pos) || !(test = sl__tpl_find_test(rest.pos->s, rest.pos->len)))
            return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "unknown test");
        rest.pos++;
        rest.n_pos--;
    } else if (rest.n_kw) {
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "unexpected keyword argument");
    }
    if (!iterate_true(run, self, &items, &n))
        return false;
    tpl_val *kept = sl__tpl_alloc(run, n, sizeof(*kept));
    if (!kept)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        tpl_val v;
        if (!sl__tpl_steps(run, 1) || !attribute(run, items[i], &path, NULL, &v) ||
            (test && !sl__tpl_call(run, test, &v, &rest, &v)))
            return false;
        if (sl__tpl_truth(&v) == wanted)
            kept[n_kept++] = items[i];
    }
    return sl__tpl_generator(run, kept, n_kept, out);
}

static bool filter_select(ANY_ARGUMENTS) {
    return pick(run, self, args, false, true, out);
}
static bool filter_reject(ANY_ARGUMENTS) {
    return pick(run, self, args, false, false, out);
}
static bool filter_selectattr(ANY_ARGUMENTS) {
    return pick(run, self, args, true, true, out);
}
static bool filter_rejectattr(ANY_ARGUMENTS) {
    return pick(run, self, args, true, false, out);
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool filter_abs(ARGUMENTS) {
    (void)arg;
    if (tpl_is_integral(self) && tpl_integral(self) < 0)
        return sl__tpl_unary(run, TPL_OP_NEGATE, self, out);
    if (tpl_is_integral(self)) {
        *out = tpl_int(tpl_integral(self));
        return true;
    }
    if (self->type != TPL_V_FLOAT)
        return sl__tpl_type_error(run, "abs", self);
    *out = tpl_float(fabs(self->f));
    return true;
}

// f to a number of decimals, half to even of its exact value, as round() does.
static double round_decimals(double f, int64_t decimals) {
    char text[512];
    if (!isfinite(f) || fabs(f) >= 0x1p52 || decimals > 323)
        return f;
    int n = snprintf(text, sizeof(text), "%.*f", (int)decimals, f);
    for (char *c = text; *c; c++) {
        if (*c != '-' && (*c < '0' || *c > '9'))
            *c = '.'; // the decimal point of the locale
    }
    return sl_json_parse_double(text, (size_t)n);
}

static bool filter_round(ARGUMENTS) {
    int64_t decimals = 0;
    bool up = sl__tpl_arg_is(&arg[1], "ceil"), down = sl__tpl_arg_is(&arg[1], "floor");
    if (given(&arg[1]) && !up && !down && !sl__tpl_arg_is(&arg[1], "common"))
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "round: method is common, ceil or floor");
    if (given(&arg[0]) && !tpl_is_integral(&arg[0]))
        return sl__tpl_type_error(run, "round", &arg[0]);
    if (given(&arg[0]))
        decimals = tpl_integral(&arg[0]);
    if (!tpl_is_integral(self) && self->type != TPL_V_FLOAT)
        return sl__tpl_type_error(run, "round", self);
    if (decimals < 0)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "round: a negative precision");
    if (!up && !down) {
        *out = tpl_is_integral(self) ? tpl_int(tpl_integral(self))
                                     : tpl_float(round_decimals(self->f, decimals));
        return true;
    }
    tpl_val ten = tpl_int(10), precision = tpl_int(decimals), scale, scaled;
    if (!sl__tpl_binary(run, TPL_OP_POW, &ten, &precision, &scale) ||
        !sl__tpl_binary(run, TPL_OP_MUL, self, &scale, &scaled))
        return false;
    if (scaled.type == TPL_V_FLOAT) {
        double f = up ? -sl__tpl_floor(-scaled.f) : sl__tpl_floor(scaled.f);
        if (!isfinite(f) || fabs(f) > 0x1p53)
            return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "round: the number is too large");
        scaled = tpl_int((int64_t)f);
    }
    return sl__tpl_binary(run, TPL_OP_DIV, &scaled, &scale, out);
}

// Digits of a base, single underscores between them. False if the text is not such a number.
static bool parse_digits(const char *s, const char *end, int base, bool *over, int64_t *out) {
    bool digit_before = false, any = false, negative = s < end && *s == '-';
    char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
    int64_t v = 0;
    *over = false;
    if (s < end && (*s == '-' || *s == '+'))
        s++;
    if (prefix && end - s > 2 && s[0] == '0' && (s[1] | 0x20) == prefix) {
        digit_before = true; // an underscore may follow
        s += 2;
    }
    for (; s < end; s++) {
        char c = *s >= 'A' && *s <= 'Z' ? (char)(*s + 32) : *s;
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
        if (c == '_' && digit_before) {
            digit_before = false;
            continue;
        }
        if (d >= base)
            return false;
        digit_before = any = true;
        *over |= __builtin_mul_overflow(v, (int64_t)base, &v) ||
                 __builtin_sub_overflow(v, (int64_t)d, &v);
    }
    *over |= !negative && v == INT64_MIN;
    *out = negative ? v : -v * !*over;
    return any && digit_before;
}

// float(str) of stripped text: decimal notation, inf and nan.
static bool parse_float(const char *s, const char *end, double *out) {
    char text[400];
    size_t n = 0;
    bool point = false, exponent = false, digits = false;
    const char *p = s;
    if (p < end && (*p == '-' || *p == '+')) {
        if (*p == '-')
            text[n++] = '-';
        p++;
    }
    static const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t w = 0; w < SL_COUNT(words); w++) {
        size_t len = strlen(words[w]), same = 0;
        while (same < len && p + same < end && (p[same] | 0x20) == words[w][same])
            same++;
        if (same == len && p + len == end) {
            *out = w == 2 ? (double)NAN : n ? -(double)INFINITY : (double)INFINITY;
            return true;
        }
    }
    for (; p < end; p++) {
        bool digit_before = p > s && p[-1] >= '0' && p[-1] <= '9';
        bool digit_after = p + 1 < end && p[1] >= '0' && p[1] <= '9';
        if (*p == '_') {
            if (!digit_before || !digit_after)
                return false;
            continue;
        }
        if (*p >= '0' && *p <= '9') {
            digits = true;
        } else if (*p == '.' && !point && !exponent) {
            point = true;
        } else if ((*p == 'e' || *p == 'E') && digits && !exponent) {
            exponent = true;
            point = true;
            bool sign = p + 1 < end && (p[1] == '-' || p[1] == '+');
            if (!digit_after && !(sign && p + 2 < end && p[2] >= '0' && p[2] <= '9'))
                return false;
            text[n++] = 'e';
            if (sign)
                text[n++] = *++p;
            continue;
        } else {
            return false;
        }
        if (n + 4 >= sizeof(text))
            return false;
        text[n++] = *p;
    }
    *out = sl_json_parse_double(text, n);
    return digits;
}

static bool str_to_float(tpl_run *run, const tpl_val *s, double *out) {
    tpl_val word, none = {0};
    return sl__tpl_strip(run, s, &none, true, true, &word) &&
           parse_float(word.s, word.s + word.len, out);
}

static bool filter_float(ARGUMENTS) {
    double f;
    if (tpl_is_integral(self))
        *out = tpl_float((double)tpl_integral(self));
    else if (self->type == TPL_V_FLOAT)
        *out = *self;
    else if (self->type == TPL_V_BIG_INT)
        *out = tpl_float(sl_json_parse_double(self->s, self->len));
    else if (self->type == TPL_V_UNDEFINED)
        return sl__tpl_type_error(run, "float", self);
    else if (tpl_is_str(self) && str_to_float(run, self, &f))
        *out = tpl_float(f);
    else
        *out = given(&arg[0]) ? arg[0] : tpl_float(0);
    return run->status == SL_OK;
}

static bool float_to_int(tpl_run *run, double f, tpl_val *out) {
    if (!(fabs(f) < 0x1p63))
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "int: a number outside 64 bits");
    *out = tpl_int((int64_t)f);
    return true;
}

static bool filter_int(ARGUMENTS) {
    tpl_val word, none = {0};
    int64_t i, base;
    bool over;
    double f;
    *out = given(&arg[0]) ? arg[0] : tpl_int(0);
    if (tpl_is_integral(self)) {
        *out = tpl_int(tpl_integral(self));
        return true;
    }
    if (self->type == TPL_V_FLOAT)
        return isnan(self->f) || float_to_int(run, self->f, out);
    if (self->type == TPL_V_BIG_INT) {
        *out = *self;
        return true;
    }
    if (self->type == TPL_V_UNDEFINED)
        return sl__tpl_type_error(run, "int", self);
    if (!tpl_is_str(self))
        return true;
    if (!sl__tpl_arg_int(run, &arg[1], 10, &base) ||
        !sl__tpl_strip(run, self, &none, true, true, &word))
        return false;
    if (base < 2 || base > 36)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "int: base %lld", (long long)base);
    if (parse_digits(word.s, word.s + word.len, (int)base, &over, &i)) {
        *out = tpl_int(i);
        return !over || sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "int: a number outside 64 bits");
    }
    // "42.23" is 42; what is no number at all is the default.
    if (!parse_float(word.s, word.s + word.len, &f) || isnan(f) || isinf(f))
        return true;
    return float_to_int(run, f, out);
}

/* ---- tables -------------------------------------------------------------------------------- */

static const tpl_callable methods[] = {
    METHOD(TPL_V_DICT, "copy", 0, 0, copy, 0),
    METHOD(TPL_V_DICT, "get", 1, 2, dict_get, 0),
    METHOD(TPL_V_DICT, "items", 0, 0, dict_items, 0),
    METHOD(TPL_V_DICT, "keys", 0, 0, dict_keys, 0),
    METHOD(TPL_V_DICT, "values", 0, 0, dict_values, 0),
    METHOD(TPL_V_LIST, "copy", 0, 0, copy, 0),
    METHOD(TPL_V_LIST, "count", 1, 1, sequence_count, 0),
    METHOD(TPL_V_LIST, "index", 1, 1, sequence_index, 0),
    METHOD(TPL_V_TUPLE, "count", 1, 1, sequence_count, 0),
    METHOD(TPL_V_TUPLE, "index", 1, 1, sequence_index, 0),
    METHOD(TPL_V_RANGE, "count", 1, 1, sequence_count, 0),
    METHOD(TPL_V_RANGE, "index", 1, 1, sequence_index, 0),
    {.name = "cycle", .self_type = TPL_V_LOOP, .any_fn = loop_cycle},
};
const tpl_table sl__tpl_container_methods = {methods, SL_COUNT(methods)};

static const tpl_callable filters[] = {
    FIXED("abs", 0, 0, filter_abs, 0),
    FIXED("count", 0, 0, filter_length, 0),
    FIXED("d", 0, 2, filter_default, "default_value", "boolean"),
    FIXED("default", 0, 2, filter_default, "default_value", "boolean"),
    FIXED("dictsort", 0, 3, filter_dictsort, "case_sensitive", "by", "reverse"),
    FIXED("first", 0, 0, filter_first, 0),
    FIXED("float", 0, 1, filter_float, "default"),
    FIXED("int", 0, 2, filter_int, "default", "base"),
    FIXED("items", 0, 0, filter_items, 0),
    FIXED("join", 0, 2, filter_join, "d", "attribute"),
    FIXED("last", 0, 0, filter_last, 0),
    FIXED("length", 0, 0, filter_length, 0),
    FIXED("list", 0, 0, filter_list, 0),
    ANY("map", filter_map),
    FIXED("max", 0, 2, filter_max, "case_sensitive", "attribute"),
    FIXED("min", 0, 2, filter_min, "case_sensitive", "attribute"),
    ANY("reject", filter_reject),
    ANY("rejectattr", filter_rejectattr),
    FIXED("reverse", 0, 0, filter_reverse, 0),
    FIXED("round", 0, 2, filter_round, "precision", "method"),
    ANY("select", filter_select),
    ANY("selectattr", filter_selectattr),
    FIXED("sort", 0, 3, filter_sort, "reverse", "case_sensitive", "attribute"),
    FIXED("sum", 0, 2, filter_sum, "attribute", "start"),
    FIXED("unique", 0, 2, filter_unique, "case_sensitive", "attribute"),
};
const tpl_table sl__tpl_filters = {filters, SL_COUNT(filters)};
