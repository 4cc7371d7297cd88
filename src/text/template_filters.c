/* The filters, tests, methods and global functions of templates, one table each. A row names the
 * parameters, so that calls are checked when the template is parsed and arguments are bound in one
 * place. What a filter does is what jinja2 3.1 does, error cases included. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/template_internal.h"

#define ARGUMENTS tpl_run *run, const tpl_val *self, const tpl_val *arg, tpl_val *out
#define ANY_ARGUMENTS tpl_run *run, const tpl_val *self, const tpl_args *args, tpl_val *out

static bool given(const tpl_val *arg) {
    return arg->type != TPL_V_ABSENT;
}
static bool is_true(const tpl_val *arg) {
    return given(arg) && sl__tpl_truth(arg);
}

static bool type_error(tpl_run *run, const char *what, const tpl_val *v) {
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: '%s' is of the wrong type", what,
                        sl__tpl_type_name(v));
}

// An argument that must be an integer; `absent` where it is not given or None.
static bool integer_arg(tpl_run *run, const tpl_val *arg, int64_t absent, int64_t *out) {
    *out = absent;
    if (!given(arg) || arg->type == TPL_V_NONE)
        return true;
    if (!tpl_is_integral(arg))
        return type_error(run, "an integer argument", arg);
    *out = tpl_integral(arg);
    return true;
}

/* ---- case ---------------------------------------------------------------------------------- */

// Is the capital sigma at `at` the last letter of its word?
static bool final_sigma(const tpl_val *s, size_t at) {
    size_t n, i = at;
    bool before = false;
    while (i > 0 && !before) {
        do
            i--;
        while ((s->s[i] & 0xc0) == 0x80);
        uint32_t cp = sl__tpl_cp_decode(s->s + i, &n);
        if (!sl__tpl_is_case_ignorable(cp)) {
            before = sl__tpl_is_cased(cp);
            if (!before)
                return false;
        }
    }
    if (!before)
        return false;
    for (i = at + 2; i < s->len; i += n) {
        uint32_t cp = sl__tpl_cp_decode(s->s + i, &n);
        if (!sl__tpl_is_case_ignorable(cp))
            return !sl__tpl_is_cased(cp);
    }
    return true;
}

// The code point of s at `at`, mapped; what is around it matters for a capital sigma.
static size_t add_mapped(tpl_text *text, const tpl_val *s, size_t at, tpl_case to) {
    size_t bytes;
    uint32_t cp = sl__tpl_cp_decode(s->s + at, &bytes), mapped[3], n;
    if (cp == 0x3a3 && to == TPL_CASE_LOWER) {
        mapped[0] = final_sigma(s, at) ? 0x3c2 : 0x3c3;
        n = 1;
        sl__tpl_steps(text->run, s->len / 32);
    } else {
        n = sl__tpl_case_map(cp, to, mapped);
    }
    char utf8[12];
    size_t len = 0;
    for (uint32_t i = 0; i < n; i++)
        len += sl__tpl_cp_encode(mapped[i], utf8 + len);
    sl__tpl_text_add(text, utf8, len);
    return bytes;
}

static bool map_case(tpl_run *run, const tpl_val *s, tpl_case first, tpl_case rest, tpl_val *out) {
    tpl_text text = sl__tpl_text(run);
    bool markup = s->markup;
    if (!sl__tpl_steps(run, s->len / 4))
        return false;
    for (size_t i = 0; i < s->len && !run->status;)
        i += add_mapped(&text, s, i, i == 0 ? first : rest);
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = markup;
    return true;
}

bool sl__tpl_lower(tpl_run *run, const tpl_val *s, tpl_val *out) {
    return map_case(run, s, TPL_CASE_LOWER, TPL_CASE_LOWER, out);
}

static bool str_upper(ARGUMENTS) {
    (void)arg;
    return map_case(run, self, TPL_CASE_UPPER, TPL_CASE_UPPER, out);
}
static bool str_lower(ARGUMENTS) {
    (void)arg;
    return sl__tpl_lower(run, self, out);
}
static bool str_capitalize(ARGUMENTS) {
    (void)arg;
    return map_case(run, self, TPL_CASE_TITLE, TPL_CASE_LOWER, out);
}

static bool str_title(ARGUMENTS) {
    (void)arg;
    tpl_text text = sl__tpl_text(run);
    bool in_word = false;
    if (!sl__tpl_steps(run, self->len / 4))
        return false;
    for (size_t i = 0; i < self->len && !run->status;) {
        size_t bytes;
        bool cased = sl__tpl_is_cased(sl__tpl_cp_decode(self->s + i, &bytes));
        i += add_mapped(&text, self, i, in_word ? TPL_CASE_LOWER : TPL_CASE_TITLE);
        in_word = cased;
    }
    return sl__tpl_text_end(&text, out);
}

static bool soft_str(tpl_run *run, const tpl_val *self, tpl_val *s) {
    return sl__tpl_to_str(run, self, s);
}

static bool filter_upper(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_upper(run, &s, arg, out);
}
static bool filter_lower(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_lower(run, &s, arg, out);
}
static bool filter_capitalize(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_capitalize(run, &s, arg, out);
}

// Jinja's own idea of a word: it begins after a blank or one of -({[<, and nothing else ends it.
static bool filter_title(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    if (!soft_str(run, self, &s) || !sl__tpl_steps(run, s.len / 4))
        return false;
    tpl_text text = sl__tpl_text(run);
    for (size_t i = 0; i < s.len && !run->status;) {
        size_t bytes, end = i;
        bool separators = false;
        for (; end < s.len; end += bytes) {
            uint32_t cp = sl__tpl_cp_decode(s.s + end, &bytes);
            bool is_separator =
                sl__tpl_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
            if (end == i)
                separators = is_separator;
            else if (is_separator != separators)
                break;
        }
        i += add_mapped(&text, &s, i, TPL_CASE_UPPER);
        tpl_val rest = tpl_str(s.s + i, end - i);
        for (size_t k = 0; k < rest.len && !run->status;)
            k += add_mapped(&text, &rest, k, TPL_CASE_LOWER);
        i = end;
    }
    return sl__tpl_text_end(&text, out);
}

/* ---- stripping, splitting, searching ------------------------------------------------------- */

static bool is_in_set(const tpl_val *set, const char *s, size_t bytes) {
    if (!given(set) || set->type == TPL_V_NONE)
        return sl__tpl_is_space(sl__tpl_cp_decode(s, &bytes));
    for (size_t i = 0; i < set->len; i += sl__tpl_cp_len(set->s + i)) {
        if (sl__tpl_cp_len(set->s + i) == bytes && memcmp(set->s + i, s, bytes) == 0)
            return true;
    }
    return false;
}

static bool strip(tpl_run *run, const tpl_val *self, const tpl_val *set, bool left, bool right,
                  tpl_val *out) {
    const char *s = self->s, *end = s + self->len;
    if (given(set) && set->type != TPL_V_NONE && !tpl_is_str(set))
        return type_error(run, "characters to strip", set);
    uint64_t each = 1 + (tpl_is_str(set) ? set->len / 8 : 0), work = 0;
    while (left && s < end && is_in_set(set, s, sl__tpl_cp_len(s)) && (work += each))
        s += sl__tpl_cp_len(s);
    while (right && s < end) {
        const char *last = end - 1;
        while (last > s && (*last & 0xc0) == 0x80)
            last--;
        if (!is_in_set(set, last, (size_t)(end - last)))
            break;
        work += each;
        end = last;
    }
    bool markup = self->markup;
    *out = tpl_str(s, (size_t)(end - s));
    out->markup = markup;
    return sl__tpl_steps(run, work / 8);
}

static bool str_strip(ARGUMENTS) {
    return strip(run, self, &arg[0], true, true, out);
}
static bool str_lstrip(ARGUMENTS) {
    return strip(run, self, &arg[0], true, false, out);
}
static bool str_rstrip(ARGUMENTS) {
    return strip(run, self, &arg[0], false, true, out);
}
static bool filter_trim(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_strip(run, &s, arg, out);
}

// One field of split() or rsplit(): taken off *rest, which runs from from to to. `more` says whether
// the rest may be split further. False when nothing is left.
typedef struct splitter {
    tpl_run *run;
    const char *from, *to;
    const char *sep; // NULL: white space
    size_t sep_len;
    bool backwards, done;
} splitter;

static const char *space_or_not(const char *s, const char *to, bool space) {
    size_t n;
    for (; s < to && sl__tpl_is_space(sl__tpl_cp_decode(s, &n)) == space; s += n)
        ;
    return s;
}

static const char *space_or_not_back(const char *from, const char *s, bool space) {
    size_t n;
    while (s > from) {
        const char *last = s - 1;
        while (last > from && (*last & 0xc0) == 0x80)
            last--;
        if (sl__tpl_is_space(sl__tpl_cp_decode(last, &n)) != space)
            break;
        s = last;
    }
    return s;
}

static bool next_field(splitter *f, bool more, tpl_val *out) {
    const char *at;
    if (f->done)
        return false;
    if (!f->sep) {
        if (f->backwards)
            f->to = space_or_not_back(f->from, f->to, true);
        else
            f->from = space_or_not(f->from, f->to, true);
        if (f->from == f->to)
            return false;
        if (!more) {
            *out = tpl_str(f->from, (size_t)(f->to - f->from));
            f->done = true;
        } else if (f->backwards) {
            at = space_or_not_back(f->from, f->to, false);
            *out = tpl_str(at, (size_t)(f->to - at));
            f->to = at;
        } else {
            at = space_or_not(f->from, f->to, false);
            *out = tpl_str(f->from, (size_t)(at - f->from));
            f->from = at;
        }
        return sl__tpl_steps(f->run, 1 + out->len / 16);
    }
    size_t len = (size_t)(f->to - f->from);
    at = NULL;
    if (more && !(f->backwards ? sl__tpl_find_last : sl__tpl_find)(f->run, f->from, len, f->sep,
                                                                   f->sep_len, &at))
        return false;
    if (!at) {
        *out = tpl_str(f->from, len);
        f->done = true;
    } else if (f->backwards) {
        *out = tpl_str(at + f->sep_len, (size_t)(f->to - at) - f->sep_len);
        f->to = at;
    } else {
        *out = tpl_str(f->from, (size_t)(at - f->from));
        f->from = at + f->sep_len;
    }
    return sl__tpl_steps(f->run, 1);
}

static bool split(tpl_run *run, const tpl_val *self, const tpl_val *arg, bool backwards,
                  tpl_val *out) {
    int64_t max;
    bool by_space = !given(&arg[0]) || arg[0].type == TPL_V_NONE;
    if (!by_space && !tpl_is_str(&arg[0]))
        return type_error(run, "separator", &arg[0]);
    if (!by_space && arg[0].len == 0)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "empty separator");
    if (!integer_arg(run, &arg[1], -1, &max))
        return false;
    splitter start = {.run = run,
                      .from = self->s,
                      .to = self->s + self->len,
                      .sep = by_space ? NULL : arg[0].s,
                      .sep_len = by_space ? 0 : arg[0].len,
                      .backwards = backwards};
    tpl_val field, *items = NULL;
    uint32_t n = 0;
    // The fields are counted first: they go into one block.
    for (splitter f = start; next_field(&f, max < 0 || (int64_t)n < max, &field);)
        n++;
    if (run->status || !(items = sl__tpl_alloc(run, n, sizeof(*items))))
        return false;
    splitter f = start;
    for (uint32_t i = 0; i < n && next_field(&f, max < 0 || (int64_t)i < max, &field); i++) {
        field.markup = self->markup;
        items[backwards ? n - 1 - i : i] = field;
    }
    *out = tpl_list(items, n);
    return run->status == SL_OK;
}

static bool str_split(ARGUMENTS) {
    return split(run, self, arg, false, out);
}
static bool str_rsplit(ARGUMENTS) {
    return split(run, self, arg, true, out);
}

// Bytes of the line at s and of the line end after it, as str.splitlines() sees them.
static size_t line_len(const char *s, size_t len, size_t *end) {
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t cp = sl__tpl_cp_decode(s + i, &n);
        if ((cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
            cp == 0x2028 || cp == 0x2029) {
            *end = cp == '\r' && i + 1 < len && s[i + 1] == '\n' ? 2 : n;
            return i;
        }
    }
    *end = 0;
    return len;
}

static bool split_lines(tpl_run *run, const tpl_val *s, bool keep, tpl_val *out) {
    uint32_t n = 0;
    size_t end;
    for (size_t at = 0; at < s->len; at += end, n++)
        at += line_len(s->s + at, s->len - at, &end);
    tpl_val *items = sl__tpl_alloc(run, n, sizeof(*items));
    if (!items || !sl__tpl_steps(run, n + s->len / 16))
        return false;
    n = 0;
    for (size_t at = 0; at < s->len; n++) {
        size_t len = line_len(s->s + at, s->len - at, &end);
        items[n] = tpl_str(s->s + at, keep ? len + end : len);
        at += len + end;
    }
    *out = tpl_list(items, n);
    return true;
}

static bool str_splitlines(ARGUMENTS) {
    return split_lines(run, self, is_true(&arg[0]), out);
}

// The part of self that optional start and end arguments name, in bytes; false if start lies behind
// the end of the string, where nothing is found, not even the empty string.
static bool window(tpl_run *run, const tpl_val *self, const tpl_val *arg, size_t *from, size_t *to,
                   bool *inside) {
    int64_t n = (int64_t)sl__tpl_cp_count(self->s, self->len), start, end;
    if (!integer_arg(run, &arg[0], 0, &start) || !integer_arg(run, &arg[1], n, &end) ||
        !sl__tpl_steps(run, self->len / 32))
        return false;
    start = start < 0 ? SL_MAX(start + n, 0) : start;
    end = end < 0 ? SL_MAX(end + n, 0) : SL_MIN(end, n);
    *inside = start <= end;
    if (*inside) {
        *from = sl__tpl_cp_offset(self->s, self->len, (size_t)start);
        *to = sl__tpl_cp_offset(self->s, self->len, (size_t)end);
    }
    return true;
}

static bool find_in(tpl_run *run, const tpl_val *self, const tpl_val *arg, bool last,
                    int64_t *out) {
    size_t from, to;
    bool inside;
    const char *at;
    *out = -1;
    if (!tpl_is_str(&arg[0]))
        return type_error(run, "find", &arg[0]);
    if (!window(run, self, arg + 1, &from, &to, &inside))
        return false;
    if (!inside)
        return true;
    if (!(last ? sl__tpl_find_last : sl__tpl_find)(run, self->s + from, to - from, arg[0].s,
                                                   arg[0].len, &at))
        return false;
    if (at)
        *out = (int64_t)sl__tpl_cp_count(self->s, (size_t)(at - self->s));
    return true;
}

static bool str_find(ARGUMENTS) {
    int64_t at;
    if (!find_in(run, self, arg, false, &at))
        return false;
    *out = tpl_int(at);
    return true;
}
static bool str_rfind(ARGUMENTS) {
    int64_t at;
    if (!find_in(run, self, arg, true, &at))
        return false;
    *out = tpl_int(at);
    return true;
}
static bool str_index(ARGUMENTS) {
    int64_t at;
    if (!find_in(run, self, arg, false, &at))
        return false;
    *out = tpl_int(at);
    return at >= 0 || sl__tpl_fail(run, SL_ERR_ARGUMENT, "index: substring not found");
}

static bool str_count(ARGUMENTS) {
    size_t from, to;
    bool inside;
    int64_t n = 0;
    if (!tpl_is_str(&arg[0]))
        return type_error(run, "count", &arg[0]);
    if (!window(run, self, arg + 1, &from, &to, &inside))
        return false;
    if (inside && arg[0].len == 0) {
        n = (int64_t)sl__tpl_cp_count(self->s + from, to - from) + 1;
    } else if (inside) {
        const char *at;
        while (sl__tpl_find(run, self->s + from, to - from, arg[0].s, arg[0].len, &at) && at) {
            from = (size_t)(at - self->s) + arg[0].len;
            n += sl__tpl_steps(run, 1);
        }
    }
    *out = tpl_int(n);
    return run->status == SL_OK;
}

// prefix or suffix, or any of a tuple of them.
static bool affix(tpl_run *run, const tpl_val *self, const tpl_val *arg, bool suffix,
                  tpl_val *out) {
    size_t from, to;
    bool inside, hit = false;
    const tpl_val *items = arg;
    uint32_t n = 1;
    if (arg[0].type == TPL_V_TUPLE) {
        items = arg[0].items;
        n = arg[0].len;
    }
    if (!window(run, self, arg + 1, &from, &to, &inside) || !sl__tpl_steps(run, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!tpl_is_str(&items[i]))
            return type_error(run, suffix ? "endswith" : "startswith", &items[i]);
        size_t len = items[i].len;
        hit |= inside && len <= to - from &&
               memcmp(self->s + (suffix ? to - len : from), items[i].s, len) == 0;
    }
    *out = tpl_bool(hit);
    return true;
}

static bool str_startswith(ARGUMENTS) {
    return affix(run, self, arg, false, out);
}
static bool str_endswith(ARGUMENTS) {
    return affix(run, self, arg, true, out);
}

static bool str_removeprefix(ARGUMENTS) {
    if (!tpl_is_str(&arg[0]))
        return type_error(run, "removeprefix", &arg[0]);
    bool has = arg[0].len <= self->len && memcmp(self->s, arg[0].s, arg[0].len) == 0;
    *out = *self;
    out->s += has ? arg[0].len : 0;
    out->len -= has ? arg[0].len : 0;
    return true;
}
static bool str_removesuffix(ARGUMENTS) {
    if (!tpl_is_str(&arg[0]))
        return type_error(run, "removesuffix", &arg[0]);
    bool has = arg[0].len <= self->len &&
               memcmp(self->s + self->len - arg[0].len, arg[0].s, arg[0].len) == 0;
    *out = *self;
    out->len -= has ? arg[0].len : 0;
    return true;
}

static bool replace(tpl_run *run, const tpl_val *s, const tpl_val *old, const tpl_val *new,
                    int64_t max, tpl_val *out) {
    tpl_text text = sl__tpl_text(run);
    size_t from = 0, at = 0;
    for (int64_t n = 0; (max < 0 || n < max) && !run->status; n++) {
        const char *hit = NULL;
        if (old->len == 0) {
            // Between all characters, and at both ends.
            if (n > 0 && at >= s->len)
                break;
            at += n > 0 ? sl__tpl_cp_len(s->s + at) : 0;
            hit = s->s + at;
        } else if (!sl__tpl_find(run, s->s + from, s->len - from, old->s, old->len, &hit) || !hit) {
            break;
        }
        sl__tpl_text_add(&text, s->s + from, (size_t)(hit - s->s) - from);
        sl__tpl_text_add(&text, new->s, new->len);
        from = (size_t)(hit - s->s) + old->len;
        sl__tpl_steps(run, 1);
    }
    sl__tpl_text_add(&text, s->s + from, s->len - from);
    return sl__tpl_text_end(&text, out);
}

static bool str_replace(ARGUMENTS) {
    int64_t max;
    tpl_val new = arg[1];
    if (!tpl_is_str(&arg[0]) || !tpl_is_str(&arg[1]))
        return type_error(run, "replace", tpl_is_str(&arg[0]) ? &arg[1] : &arg[0]);
    bool markup = self->markup;
    if (!integer_arg(run, &arg[2], -1, &max) || (markup && !sl__tpl_escape(run, &new, &new)) ||
        !replace(run, self, &arg[0], &new, max, out))
        return false;
    out->markup = markup;
    return true;
}

static bool filter_replace(ARGUMENTS) {
    tpl_val s, old, new;
    int64_t max;
    return soft_str(run, self, &s) && soft_str(run, &arg[0], &old) &&
           soft_str(run, &arg[1], &new) && integer_arg(run, &arg[2], -1, &max) &&
           replace(run, &s, &old, &new, max, out);
}

static bool str_join(ARGUMENTS) {
    const tpl_val *items;
    uint32_t n;
    bool markup = self->markup;
    if (!sl__tpl_iterate(run, &arg[0], &items, &n))
        return false;
    tpl_text text = sl__tpl_text(run);
    for (uint32_t i = 0; i < n && sl__tpl_steps(run, 1); i++) {
        tpl_val item = items[i];
        if (!tpl_is_str(&item))
            return type_error(run, "join", &item);
        if (markup && !sl__tpl_escape(run, &item, &item))
            return false;
        if (i)
            sl__tpl_text_add(&text, self->s, self->len);
        sl__tpl_text_add(&text, item.s, item.len);
    }
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = markup;
    return true;
}

static bool str_isspace(ARGUMENTS) {
    (void)arg;
    *out = tpl_bool(self->len &&
                    space_or_not(self->s, self->s + self->len, true) == self->s + self->len);
    return sl__tpl_steps(run, self->len / 16);
}

static bool is_case(const tpl_val *s, bool upper) {
    bool any = false;
    for (size_t i = 0, n; i < s->len; i += n) {
        uint32_t cp = sl__tpl_cp_decode(s->s + i, &n);
        if (upper ? sl__tpl_is_upper(cp) : sl__tpl_is_lower(cp))
            any = true;
        else if (sl__tpl_is_cased(cp))
            return false;
    }
    return any;
}

static bool str_islower(ARGUMENTS) {
    (void)arg;
    *out = tpl_bool(is_case(self, false));
    return sl__tpl_steps(run, self->len);
}
static bool str_isupper(ARGUMENTS) {
    (void)arg;
    *out = tpl_bool(is_case(self, true));
    return sl__tpl_steps(run, self->len);
}

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
        return run->status ? false : type_error(run, "length", self);
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
        return type_error(run, "last", self);
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
        return type_error(run, "items", self);
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
    return (!given(&arg[0]) || soft_str(run, &arg[0], &sep)) &&
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

static bool str_arg_is(const tpl_val *arg, const char *word) {
    return tpl_is_str(arg) && arg->len == strlen(word) && memcmp(arg->s, word, arg->len) == 0;
}

static bool filter_dictsort(ARGUMENTS) {
    bool by_value = str_arg_is(&arg[1], "value");
    if (self->type != TPL_V_DICT)
        return type_error(run, "dictsort", self);
    if (given(&arg[1]) && !by_value && !str_arg_is(&arg[1], "key"))
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
        return type_error(run, "sum", &total);
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
        return type_error(run, "abs", self);
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
    bool up = str_arg_is(&arg[1], "ceil"), down = str_arg_is(&arg[1], "floor");
    if (given(&arg[1]) && !up && !down && !str_arg_is(&arg[1], "common"))
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "round: method is common, ceil or floor");
    if (given(&arg[0]) && !tpl_is_integral(&arg[0]))
        return type_error(run, "round", &arg[0]);
    if (given(&arg[0]))
        decimals = tpl_integral(&arg[0]);
    if (!tpl_is_integral(self) && self->type != TPL_V_FLOAT)
        return type_error(run, "round", self);
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
        double f = up ? ceil(scaled.f) : floor(scaled.f);
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
    return strip(run, s, &none, true, true, &word) && parse_float(word.s, word.s + word.len, out);
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
        return type_error(run, "float", self);
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
        return type_error(run, "int", self);
    if (!tpl_is_str(self))
        return true;
    if (!integer_arg(run, &arg[1], 10, &base) || !strip(run, self, &none, true, true, &word))
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

/* ---- text filters -------------------------------------------------------------------------- */

static bool filter_string(ARGUMENTS) {
    (void)arg;
    return soft_str(run, self, out);
}

static bool filter_safe(ARGUMENTS) {
    (void)arg;
    if (!soft_str(run, self, out))
        return false;
    out->markup = true;
    return true;
}

static bool filter_escape(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    return soft_str(run, self, &s) && sl__tpl_escape(run, &s, out);
}

static bool filter_default(ARGUMENTS) {
    (void)run;
    bool missing = self->type == TPL_V_UNDEFINED || (is_true(&arg[1]) && !sl__tpl_truth(self));
    *out = !missing ? *self : given(&arg[0]) ? arg[0] : tpl_str("", 0);
    return true;
}

static bool filter_indent(ARGUMENTS) {
    tpl_val pad = tpl_str(" ", 1), lines;
    int64_t width = 4;
    if (!tpl_is_str(self))
        return type_error(run, "indent", self);
    if (tpl_is_str(&arg[0]))
        pad = arg[0];
    else if (!integer_arg(run, &arg[0], 4, &width))
        return false;
    tpl_val times = tpl_int(width);
    if (!tpl_is_str(&arg[0]) && !sl__tpl_binary(run, TPL_OP_MUL, &pad, &times, &pad))
        return false;
    bool first = is_true(&arg[1]), blank = is_true(&arg[2]);
    // Python appends a newline before it splits, so that one at the end is kept.
    tpl_val newline = tpl_str("\n", 1), whole = *self;
    whole.markup = false;
    if (!sl__tpl_binary(run, TPL_OP_ADD, &whole, &newline, &whole) ||
        !split_lines(run, &whole, false, &lines))
        return false;
    tpl_text text = sl__tpl_text(run);
    for (uint32_t i = 0; i < lines.len; i++) {
        const tpl_val *line = &lines.items[i];
        if (i)
            sl__tpl_text_puts(&text, "\n");
        if (i ? blank || line->len : first)
            sl__tpl_text_add(&text, pad.s, pad.len);
        sl__tpl_text_add(&text, line->s, line->len);
    }
    bool markup = self->markup;
    if (!sl__tpl_text_end(&text, out))
        return false;
    out->markup = markup;
    return true;
}

static bool filter_tojson(ARGUMENTS) {
    tpl_json_style style = {.ascii = is_true(&arg[0]), .sort_keys = is_true(&arg[3])};
    tpl_val pad = tpl_str(" ", 1);
    if (tpl_is_str(&arg[1])) {
        pad = arg[1];
    } else if (given(&arg[1]) && arg[1].type != TPL_V_NONE) {
        if (!tpl_is_integral(&arg[1]))
            return type_error(run, "tojson", &arg[1]);
        if (!sl__tpl_binary(run, TPL_OP_MUL, &pad, &arg[1], &pad))
            return false;
    }
    if (given(&arg[1]) && arg[1].type != TPL_V_NONE) {
        style.indent = pad.s;
        style.indent_len = pad.len;
    }
    style.item_sep = style.indent ? tpl_str(",", 1) : tpl_str(", ", 2);
    style.key_sep = tpl_str(": ", 2);
    if (given(&arg[2]) && arg[2].type != TPL_V_NONE) {
        const tpl_val *pair = &arg[2];
        if ((pair->type != TPL_V_TUPLE && pair->type != TPL_V_LIST) || pair->len != 2 ||
            !tpl_is_str(&pair->items[0]) || !tpl_is_str(&pair->items[1]))
            return type_error(run, "tojson separators", pair);
        style.item_sep = pair->items[0];
        style.key_sep = pair->items[1];
    }
    return sl__tpl_to_json(run, self, &style, out);
}

/* ---- tests --------------------------------------------------------------------------------- */

#define TEST_OF(name, expression)                                                                  \
    static bool name(ARGUMENTS) {                                                                  \
        (void)run, (void)self, (void)arg;                                                          \
        *out = tpl_bool(expression);                                                               \
        return true;                                                                               \
    }
TEST_OF(test_defined, self->type != TPL_V_UNDEFINED)
TEST_OF(test_undefined, self->type == TPL_V_UNDEFINED)
TEST_OF(test_none, self->type == TPL_V_NONE)
TEST_OF(test_boolean, self->type == TPL_V_BOOL)
TEST_OF(test_true, self->type == TPL_V_BOOL && self->b)
TEST_OF(test_false, self->type == TPL_V_BOOL && !self->b)
TEST_OF(test_integer, self->type == TPL_V_INT || self->type == TPL_V_BIG_INT)
TEST_OF(test_float, self->type == TPL_V_FLOAT)
TEST_OF(test_number, self->type >= TPL_V_BOOL && self->type <= TPL_V_FLOAT)
TEST_OF(test_string, tpl_is_str(self))
TEST_OF(test_mapping, self->type == TPL_V_DICT)
TEST_OF(test_sequence,
        self->type == TPL_V_UNDEFINED || (self->type >= TPL_V_STR && self->type <= TPL_V_DICT))
TEST_OF(test_iterable, sl__tpl_is_iterable(self))
// Undefined can be called; it raises.
TEST_OF(test_callable, self->type >= TPL_V_MACRO || self->type == TPL_V_UNDEFINED)
TEST_OF(test_escaped, tpl_is_str(self) && self->markup)
TEST_OF(test_filter, tpl_is_str(self) && sl__tpl_find_filter(self->s, self->len))
TEST_OF(test_test, tpl_is_str(self) && sl__tpl_find_test(self->s, self->len))

static bool test_lower(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_islower(run, &s, arg, out);
}
static bool test_upper(ARGUMENTS) {
    tpl_val s;
    return soft_str(run, self, &s) && str_isupper(run, &s, arg, out);
}

static bool has_remainder(tpl_run *run, const tpl_val *self, const tpl_val *by, int64_t wanted,
                          tpl_val *out) {
    tpl_val rest, want = tpl_int(wanted);
    bool equal;
    if (!sl__tpl_binary(run, TPL_OP_MOD, self, by, &rest) ||
        !sl__tpl_equal(run, &rest, &want, &equal))
        return false;
    *out = tpl_bool(equal);
    return true;
}

static bool test_odd(ARGUMENTS) {
    (void)arg;
    tpl_val two = tpl_int(2);
    return has_remainder(run, self, &two, 1, out);
}
static bool test_even(ARGUMENTS) {
    (void)arg;
    tpl_val two = tpl_int(2);
    return has_remainder(run, self, &two, 0, out);
}
static bool test_divisibleby(ARGUMENTS) {
    return has_remainder(run, self, &arg[0], 0, out);
}

#define COMPARISON(name, op)                                                                       \
    static bool name(ARGUMENTS) {                                                                  \
        bool result;                                                                               \
        if (!sl__tpl_compare(run, op, self, &arg[0], &result))                                     \
            return false;                                                                          \
        *out = tpl_bool(result);                                                                   \
        return true;                                                                               \
    }
COMPARISON(test_eq, TPL_OP_EQ)
COMPARISON(test_ne, TPL_OP_NE)
COMPARISON(test_lt, TPL_OP_LT)
COMPARISON(test_le, TPL_OP_LE)
COMPARISON(test_gt, TPL_OP_GT)
COMPARISON(test_ge, TPL_OP_GE)
COMPARISON(test_in, TPL_OP_IN)

// Identity, which is certain for the values of which there is only one.
static bool test_sameas(ARGUMENTS) {
    const tpl_val *other = &arg[0];
    bool single = self->type == TPL_V_NONE || self->type == TPL_V_BOOL ||
                  other->type == TPL_V_NONE || other->type == TPL_V_BOOL;
    if (!single && self->type == other->type)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "sameas of a %s", sl__tpl_type_name(self));
    *out = tpl_bool(self->type == other->type && (self->type == TPL_V_NONE || self->b == other->b));
    return true;
}

/* ---- functions ----------------------------------------------------------------------------- */

// dict(pairs, **keywords): also what a namespace starts with.
static bool make_dict(ANY_ARGUMENTS) {
    const tpl_val *items = NULL, *pair;
    uint32_t n = 0, n_pairs = 0, two;
    (void)self;
    if (args->n_pos > 1)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "dict takes one argument without a name");
    if (args->n_pos) {
        tpl_val source = args->pos[0];
        if (source.type == TPL_V_DICT)
            source.type = TPL_V_ITEMS;
        if (!sl__tpl_iterate(run, &source, &items, &n))
            return false;
    }
    tpl_pair *pairs = sl__tpl_alloc(run, (size_t)n + args->n_kw, sizeof(*pairs));
    if (!pairs)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!sl__tpl_iterate(run, &items[i], &pair, &two))
            return false;
        if (two != 2)
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "dict needs pairs");
        if (!sl__tpl_dict_put(run, pairs, &n_pairs, &pair[0], &pair[1]))
            return false;
    }
    for (uint32_t i = 0; i < args->n_kw; i++) {
        tpl_val key = tpl_str(args->kw[i].name, args->kw[i].len);
        if (!sl__tpl_dict_put(run, pairs, &n_pairs, &key, &args->kw[i].val))
            return false;
    }
    *out = tpl_dict(pairs, n_pairs);
    return true;
}

static bool make_namespace(ANY_ARGUMENTS) {
    tpl_val dict;
    tpl_scope *scope = sl__tpl_alloc(run, 1, sizeof(*scope));
    if (!scope || !make_dict(run, self, args, &dict))
        return false;
    *scope = (tpl_scope){0};
    for (uint32_t i = 0; i < dict.len; i++) {
        const tpl_pair *pair = &dict.pairs[i];
        if (tpl_is_str(&pair->key) &&
            !sl__tpl_scope_set(run, scope, pair->key.s, pair->key.len, &pair->val))
            return false;
    }
    *out = (tpl_val){.type = TPL_V_NAMESPACE, .scope = scope};
    return true;
}

#define RANGE_MAX 100000 // jinja2's sandbox

static bool make_range(ARGUMENTS) {
    (void)self;
    for (int i = 0; i < 3; i++) {
        if (given(&arg[i]) && !tpl_is_integral(&arg[i]))
            return type_error(run, "range", &arg[i]);
    }
    tpl_range *range = sl__tpl_alloc(run, 1, sizeof(*range));
    if (!range)
        return false;
    bool only_stop = !given(&arg[1]);
    *range = (tpl_range){only_stop ? 0 : tpl_integral(&arg[0]), tpl_integral(&arg[!only_stop]),
                         given(&arg[2]) ? tpl_integral(&arg[2]) : 1};
    if (range->step == 0)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "range: step 0");
    uint64_t n = 0, up = (uint64_t)range->stop - (uint64_t)range->start;
    if (range->step > 0 && range->stop > range->start)
        n = (up - 1) / (uint64_t)range->step + 1;
    else if (range->step < 0 && range->stop < range->start)
        n = (0 - up - 1) / (0 - (uint64_t)range->step) + 1;
    if (n > RANGE_MAX)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "range: more than %d numbers", RANGE_MAX);
    *out = (tpl_val){.type = TPL_V_RANGE, .range = range, .len = (uint32_t)n};
    return true;
}

static bool raise_exception(ARGUMENTS) {
    tpl_val s;
    (void)self, (void)out;
    if (!soft_str(run, &arg[0], &s))
        return false;
    char message[SL_ERROR_MESSAGE_MAX];
    size_t n = SL_MIN((size_t)s.len, sizeof(message) - 1);
    while (n < s.len && n > 0 && (s.s[n] & 0xc0) == 0x80)
        n--; // cut between characters
    for (size_t i = 0; i < n; i++)
        message[i] = (unsigned char)s.s[i] < 0x20 ? ' ' : s.s[i];
    message[n] = '\0';
    run->status = sl_fail(run->err, SL_ERR_ARGUMENT, "chat template: %s", message);
    return false;
}

// Years 1..9999 as a date of the Gregorian calendar; the algorithm counts years from March.
static void civil_from_days(int64_t days, int64_t *year, int *month, int *day) {
    days += 719468; // since 0000-03-01
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t of_era = days - era * 146097;
    int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * y + y / 4 - y / 100);
    int m = (int)((5 * of_year + 2) / 153);
    *day = (int)(of_year - (153 * m + 2) / 5) + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = y + era * 400 + (*month <= 2);
}

#define STRFTIME_KNOWN "YymdeHIMSpBbhAaju%nFTDR"

bool sl__tpl_strftime_ok(const char *format, size_t len) {
    for (size_t i = 0; i < len; i++) {
        if (format[i] != '%')
            continue;
        i += i + 1 < len && format[i + 1] == '-';
        i++;
        if (i >= len || !format[i] || !strchr(STRFTIME_KNOWN, format[i]))
            return false;
    }
    return true;
}

static bool strftime_now(ARGUMENTS) {
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    (void)self;
    if (!tpl_is_str(&arg[0]))
        return type_error(run, "strftime_now", &arg[0]);
    if (!sl__tpl_strftime_ok(arg[0].s, arg[0].len))
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "a directive of this time format");
    int64_t now = run->limits->now_unix, year, jan_year;
    int64_t day_number = now / 86400 - (now % 86400 < 0);
    int second = (int)(now - day_number * 86400), month, day, hour = second / 3600;
    civil_from_days(day_number, &year, &month, &day);
    if (year < 1 || year > 9999)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "strftime_now: year %lld", (long long)year);
    int weekday = (int)(((day_number + 4) % 7 + 7) % 7), of_year = day, m, d;
    for (int64_t back = 1; back <= 366; back++) { // the day of the year: back to January 1
        civil_from_days(day_number - back, &jan_year, &m, &d);
        if (jan_year < year)
            break;
        of_year = (int)back + 1;
    }
    if (month == 1)
        of_year = day;
    int minute = second / 60 % 60, twelve = hour % 12 ? hour % 12 : 12;
    tpl_text text = sl__tpl_text(run);
    for (size_t i = 0; i < arg[0].len; i++) {
        char c = arg[0].s[i], form[32];
        if (c != '%') {
            sl__tpl_text_add(&text, &c, 1);
            continue;
        }
        bool bare = arg[0].s[++i] == '-'; // without leading zeros or blanks
        i += bare;
        int number = -1, width = 2;
        char fill = '0';
        form[0] = '\0';
        switch (arg[0].s[i]) {
        case 'Y':
            snprintf(form, sizeof(form), "%d", (int)year);
            break;
        case 'y':
            number = (int)(year % 100);
            break;
        case 'm':
            number = month;
            break;
        case 'e':
            fill = ' ';
            // fall through
        case 'd':
            number = day;
            break;
        case 'H':
            number = hour;
            break;
        case 'I':
            number = twelve;
            break;
        case 'M':
            number = minute;
            break;
        case 'S':
            number = second % 60;
            break;
        case 'j':
            number = of_year;
            width = 3;
            break;
        case 'u':
            number = weekday ? weekday : 7;
            width = 1;
            break;
        case 'p':
            snprintf(form, sizeof(form), "%s", hour < 12 ? "AM" : "PM");
            break;
        case 'B':
            snprintf(form, sizeof(form), "%s", months[month - 1]);
            break;
        case 'b':
        case 'h':
            snprintf(form, sizeof(form), "%.3s", months[month - 1]);
            break;
        case 'A':
            snprintf(form, sizeof(form), "%s", days[weekday]);
            break;
        case 'a':
            snprintf(form, sizeof(form), "%.3s", days[weekday]);
            break;
        case 'F':
            snprintf(form, sizeof(form), "%d-%02d-%02d", (int)year, month, day);
            break;
        case 'T':
            snprintf(form, sizeof(form), "%02d:%02d:%02d", hour, minute, second % 60);
            break;
        case 'R':
            snprintf(form, sizeof(form), "%02d:%02d", hour, minute);
            break;
        case 'D':
            snprintf(form, sizeof(form), "%02d/%02d/%02d", month, day, (int)(year % 100));
            break;
        case 'n':
            snprintf(form, sizeof(form), "\n");
            break;
        default:
            snprintf(form, sizeof(form), "%%");
        }
        if (number >= 0 && bare)
            snprintf(form, sizeof(form), "%d", number);
        else if (number >= 0)
            snprintf(form, sizeof(form), fill == '0' ? "%0*d" : "%*d", width, number);
        sl__tpl_text_puts(&text, form);
    }
    return sl__tpl_text_end(&text, out);
}

/* ---- tables -------------------------------------------------------------------------------- */

// name, required and all parameters, and the function.
#define FIXED(text, required, count, function, ...)                                                \
    {                                                                                              \
        .name = text, .params = {__VA_ARGS__}, .n_params = count, .n_required = required,          \
        .fn = function                                                                             \
    }
#define ANY(text, function)                                                                        \
    { .name = text, .any_fn = function }
#define METHOD(type, text, required, count, function, ...)                                         \
    {                                                                                              \
        .name = text, .params = {__VA_ARGS__}, .n_params = count, .n_required = required,          \
        .self_type = type, .fn = function                                                          \
    }

static const tpl_callable filters[] = {
    FIXED("abs", 0, 0, filter_abs, 0),
    FIXED("capitalize", 0, 0, filter_capitalize, 0),
    FIXED("count", 0, 0, filter_length, 0),
    FIXED("d", 0, 2, filter_default, "default_value", "boolean"),
    FIXED("default", 0, 2, filter_default, "default_value", "boolean"),
    FIXED("dictsort", 0, 3, filter_dictsort, "case_sensitive", "by", "reverse"),
    FIXED("e", 0, 0, filter_escape, 0),
    FIXED("escape", 0, 0, filter_escape, 0),
    FIXED("first", 0, 0, filter_first, 0),
    FIXED("float", 0, 1, filter_float, "default"),
    FIXED("indent", 0, 3, filter_indent, "width", "first", "blank"),
    FIXED("int", 0, 2, filter_int, "default", "base"),
    FIXED("items", 0, 0, filter_items, 0),
    FIXED("join", 0, 2, filter_join, "d", "attribute"),
    FIXED("last", 0, 0, filter_last, 0),
    FIXED("length", 0, 0, filter_length, 0),
    FIXED("list", 0, 0, filter_list, 0),
    FIXED("lower", 0, 0, filter_lower, 0),
    ANY("map", filter_map),
    FIXED("max", 0, 2, filter_max, "case_sensitive", "attribute"),
    FIXED("min", 0, 2, filter_min, "case_sensitive", "attribute"),
    ANY("reject", filter_reject),
    ANY("rejectattr", filter_rejectattr),
    FIXED("replace", 2, 3, filter_replace, "old", "new", "count"),
    FIXED("reverse", 0, 0, filter_reverse, 0),
    FIXED("round", 0, 2, filter_round, "precision", "method"),
    FIXED("safe", 0, 0, filter_safe, 0),
    ANY("select", filter_select),
    ANY("selectattr", filter_selectattr),
    FIXED("sort", 0, 3, filter_sort, "reverse", "case_sensitive", "attribute"),
    FIXED("string", 0, 0, filter_string, 0),
    FIXED("sum", 0, 2, filter_sum, "attribute", "start"),
    FIXED("title", 0, 0, filter_title, 0),
    FIXED("tojson", 0, 4, filter_tojson, "ensure_ascii", "indent", "separators", "sort_keys"),
    FIXED("trim", 0, 1, filter_trim, "chars"),
    FIXED("unique", 0, 2, filter_unique, "case_sensitive", "attribute"),
    FIXED("upper", 0, 0, filter_upper, 0),
};

static const tpl_callable tests[] = {
    FIXED("boolean", 0, 0, test_boolean, 0),
    FIXED("callable", 0, 0, test_callable, 0),
    FIXED("defined", 0, 0, test_defined, 0),
    FIXED("divisibleby", 1, 1, test_divisibleby, "num"),
    FIXED("eq", 1, 1, test_eq, 0),
    FIXED("equalto", 1, 1, test_eq, 0),
    FIXED("==", 1, 1, test_eq, 0),
    FIXED("escaped", 0, 0, test_escaped, 0),
    FIXED("even", 0, 0, test_even, 0),
    FIXED("false", 0, 0, test_false, 0),
    FIXED("filter", 0, 0, test_filter, 0),
    FIXED("float", 0, 0, test_float, 0),
    FIXED("ge", 1, 1, test_ge, 0),
    FIXED(">=", 1, 1, test_ge, 0),
    FIXED("greaterthan", 1, 1, test_gt, 0),
    FIXED("gt", 1, 1, test_gt, 0),
    FIXED(">", 1, 1, test_gt, 0),
    FIXED("in", 1, 1, test_in, "seq"),
    FIXED("integer", 0, 0, test_integer, 0),
    FIXED("iterable", 0, 0, test_iterable, 0),
    FIXED("le", 1, 1, test_le, 0),
    FIXED("<=", 1, 1, test_le, 0),
    FIXED("lessthan", 1, 1, test_lt, 0),
    FIXED("lower", 0, 0, test_lower, 0),
    FIXED("lt", 1, 1, test_lt, 0),
    FIXED("<", 1, 1, test_lt, 0),
    FIXED("mapping", 0, 0, test_mapping, 0),
    FIXED("ne", 1, 1, test_ne, 0),
    FIXED("!=", 1, 1, test_ne, 0),
    FIXED("none", 0, 0, test_none, 0),
    FIXED("number", 0, 0, test_number, 0),
    FIXED("odd", 0, 0, test_odd, 0),
    FIXED("sameas", 1, 1, test_sameas, "other"),
    FIXED("sequence", 0, 0, test_sequence, 0),
    FIXED("string", 0, 0, test_string, 0),
    FIXED("test", 0, 0, test_test, 0),
    FIXED("true", 0, 0, test_true, 0),
    FIXED("undefined", 0, 0, test_undefined, 0),
    FIXED("upper", 0, 0, test_upper, 0),
};

static const tpl_callable methods[] = {
    METHOD(TPL_V_STR, "capitalize", 0, 0, str_capitalize, 0),
    METHOD(TPL_V_STR, "count", 1, 3, str_count, 0),
    METHOD(TPL_V_STR, "endswith", 1, 3, str_endswith, 0),
    METHOD(TPL_V_STR, "find", 1, 3, str_find, 0),
    METHOD(TPL_V_STR, "index", 1, 3, str_index, 0),
    METHOD(TPL_V_STR, "islower", 0, 0, str_islower, 0),
    METHOD(TPL_V_STR, "isspace", 0, 0, str_isspace, 0),
    METHOD(TPL_V_STR, "isupper", 0, 0, str_isupper, 0),
    METHOD(TPL_V_STR, "join", 1, 1, str_join, 0),
    METHOD(TPL_V_STR, "lower", 0, 0, str_lower, 0),
    METHOD(TPL_V_STR, "lstrip", 0, 1, str_lstrip, 0),
    METHOD(TPL_V_STR, "removeprefix", 1, 1, str_removeprefix, 0),
    METHOD(TPL_V_STR, "removesuffix", 1, 1, str_removesuffix, 0),
    METHOD(TPL_V_STR, "replace", 2, 3, str_replace, 0),
    METHOD(TPL_V_STR, "rfind", 1, 3, str_rfind, 0),
    METHOD(TPL_V_STR, "rsplit", 0, 2, str_rsplit, "sep", "maxsplit"),
    METHOD(TPL_V_STR, "rstrip", 0, 1, str_rstrip, 0),
    METHOD(TPL_V_STR, "split", 0, 2, str_split, "sep", "maxsplit"),
    METHOD(TPL_V_STR, "splitlines", 0, 1, str_splitlines, "keepends"),
    METHOD(TPL_V_STR, "startswith", 1, 3, str_startswith, 0),
    METHOD(TPL_V_STR, "strip", 0, 1, str_strip, 0),
    METHOD(TPL_V_STR, "title", 0, 0, str_title, 0),
    METHOD(TPL_V_STR, "upper", 0, 0, str_upper, 0),
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

static const tpl_callable functions[] = {
    ANY("dict", make_dict),
    ANY("namespace", make_namespace),
    FIXED("raise_exception", 1, 1, raise_exception, "message"),
    FIXED("range", 1, 3, make_range, 0),
    FIXED("strftime_now", 1, 1, strftime_now, "format"),
};

static const tpl_callable *find_row(const tpl_callable *table, size_t n, const char *name,
                                    size_t len, tpl_type type) {
    for (size_t i = 0; i < n; i++) {
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0 &&
            (type == TPL_V_ABSENT || table[i].self_type == type))
            return &table[i];
    }
    return NULL;
}

const tpl_callable *sl__tpl_find_filter(const char *name, size_t len) {
    return find_row(filters, SL_COUNT(filters), name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_test(const char *name, size_t len) {
    return find_row(tests, SL_COUNT(tests), name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_function(const char *name, size_t len) {
    return find_row(functions, SL_COUNT(functions), name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_method(const char *name, size_t len, tpl_type type) {
    return find_row(methods, SL_COUNT(methods), name, len, type);
}

/* ---- binding ------------------------------------------------------------------------------- */

// The parameter of that name, or n_params.
static uint32_t param_index(const tpl_callable *fn, const char *name, size_t len) {
    uint32_t i = 0;
    while (i < fn->n_params && !(fn->params[i] && strlen(fn->params[i]) == len &&
                                 memcmp(fn->params[i], name, len) == 0))
        i++;
    return i;
}

const char *sl__tpl_check_call(const tpl_callable *fn, uint32_t n_pos, const tpl_node *keywords) {
    bool set[TPL_PARAMS_MAX] = {false};
    if (fn->any_fn)
        return NULL;
    if (n_pos > fn->n_params)
        return "is given too many arguments";
    for (uint32_t i = 0; i < n_pos; i++)
        set[i] = true;
    for (const tpl_node *k = keywords; k; k = k->next) {
        uint32_t i = param_index(fn, k->text, k->len);
        if (i == fn->n_params)
            return "has no argument of this name";
        if (set[i])
            return "is given an argument twice";
        set[i] = true;
    }
    for (uint32_t i = 0; i < fn->n_required; i++) {
        if (!set[i])
            return "is given too few arguments";
    }
    return NULL;
}

bool sl__tpl_call(tpl_run *run, const tpl_callable *fn, const tpl_val *self, const tpl_args *args,
                  tpl_val *out) {
    if (fn->any_fn)
        return fn->any_fn(run, self, args, out);
    tpl_val bound[TPL_PARAMS_MAX] = {{0}};
    if (args->n_pos > fn->n_params)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: too many arguments", fn->name);
    for (uint32_t i = 0; i < args->n_pos; i++)
        bound[i] = args->pos[i];
    for (uint32_t k = 0; k < args->n_kw; k++) {
        uint32_t i = param_index(fn, args->kw[k].name, args->kw[k].len);
        if (i == fn->n_params || given(&bound[i]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: unexpected argument '%.*s'", fn->name,
                                (int)SL_MIN(args->kw[k].len, 60u), args->kw[k].name);
        bound[i] = args->kw[k].val;
    }
    for (uint32_t i = 0; i < fn->n_required; i++) {
        if (!given(&bound[i]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: too few arguments", fn->name);
    }
    // self may be out: a callee reads its arguments after it has begun to write.
    tpl_val subject = *self;
    return fn->fn(run, &subject, bound, out);
}
