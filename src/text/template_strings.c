/* Strings: the methods of str and the filters that work on text. Text is UTF-8, counted in code
 * points; case and white space are Python's. */
#include <string.h>

#include "text/template_call.h"

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

static bool filter_upper(ARGUMENTS) {
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && str_upper(run, &s, arg, out);
}
static bool filter_lower(ARGUMENTS) {
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && str_lower(run, &s, arg, out);
}
static bool filter_capitalize(ARGUMENTS) {
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && str_capitalize(run, &s, arg, out);
}

// Jinja's own idea of a word: it begins after a blank or one of -({[<, and nothing else ends it.
static bool filter_title(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    if (!sl__tpl_to_str(run, self, &s) || !sl__tpl_steps(run, s.len / 4))
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

bool sl__tpl_strip(tpl_run *run, const tpl_val *self, const tpl_val *set, bool left, bool right,
                   tpl_val *out) {
    const char *s = self->s, *end = s + self->len;
    if (given(set) && set->type != TPL_V_NONE && !tpl_is_str(set))
        return sl__tpl_type_error(run, "characters to strip", set);
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
    return sl__tpl_strip(run, self, &arg[0], true, true, out);
}
static bool str_lstrip(ARGUMENTS) {
    return sl__tpl_strip(run, self, &arg[0], true, false, out);
}
static bool str_rstrip(ARGUMENTS) {
    return sl__tpl_strip(run, self, &arg[0], false, true, out);
}
static bool filter_trim(ARGUMENTS) {
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && str_strip(run, &s, arg, out);
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
        return sl__tpl_type_error(run, "separator", &arg[0]);
    if (!by_space && arg[0].len == 0)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "empty separator");
    if (!sl__tpl_arg_int(run, &arg[1], -1, &max))
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
    if (!sl__tpl_arg_int(run, &arg[0], 0, &start) || !sl__tpl_arg_int(run, &arg[1], n, &end) ||
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
        return sl__tpl_type_error(run, "find", &arg[0]);
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
        return sl__tpl_type_error(run, "count", &arg[0]);
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
            return sl__tpl_type_error(run, suffix ? "endswith" : "startswith", &items[i]);
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
        return sl__tpl_type_error(run, "removeprefix", &arg[0]);
    bool has = arg[0].len <= self->len && memcmp(self->s, arg[0].s, arg[0].len) == 0;
    *out = *self;
    out->s += has ? arg[0].len : 0;
    out->len -= has ? arg[0].len : 0;
    return true;
}
static bool str_removesuffix(ARGUMENTS) {
    if (!tpl_is_str(&arg[0]))
        return sl__tpl_type_error(run, "removesuffix", &arg[0]);
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
        return sl__tpl_type_error(run, "replace", tpl_is_str(&arg[0]) ? &arg[1] : &arg[0]);
    bool markup = self->markup;
    if (!sl__tpl_arg_int(run, &arg[2], -1, &max) || (markup && !sl__tpl_escape(run, &new, &new)) ||
        !replace(run, self, &arg[0], &new, max, out))
        return false;
    out->markup = markup;
    return true;
}

static bool filter_replace(ARGUMENTS) {
    tpl_val s, old, new;
    int64_t max;
    return sl__tpl_to_str(run, self, &s) && sl__tpl_to_str(run, &arg[0], &old) &&
           sl__tpl_to_str(run, &arg[1], &new) && sl__tpl_arg_int(run, &arg[2], -1, &max) &&
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
            return sl__tpl_type_error(run, "join", &item);
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

bool sl__tpl_is_case(tpl_run *run, const tpl_val *s, bool upper, tpl_val *out) {
    *out = tpl_bool(is_case(s, upper));
    return sl__tpl_steps(run, s->len);
}

static bool str_islower(ARGUMENTS) {
    (void)arg;
    return sl__tpl_is_case(run, self, false, out);
}
static bool str_isupper(ARGUMENTS) {
    (void)arg;
    return sl__tpl_is_case(run, self, true, out);
}

/* ---- text filters -------------------------------------------------------------------------- */

static bool filter_string(ARGUMENTS) {
    (void)arg;
    return sl__tpl_to_str(run, self, out);
}

static bool filter_safe(ARGUMENTS) {
    (void)arg;
    if (!sl__tpl_to_str(run, self, out))
        return false;
    out->markup = true;
    return true;
}

static bool filter_escape(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && sl__tpl_escape(run, &s, out);
}

static bool filter_indent(ARGUMENTS) {
    tpl_val pad = tpl_str(" ", 1), lines;
    int64_t width = 4;
    if (!tpl_is_str(self))
        return sl__tpl_type_error(run, "indent", self);
    if (tpl_is_str(&arg[0]))
        pad = arg[0];
    else if (!sl__tpl_arg_int(run, &arg[0], 4, &width))
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
            return sl__tpl_type_error(run, "tojson", &arg[1]);
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
            return sl__tpl_type_error(run, "tojson separators", pair);
        style.item_sep = pair->items[0];
        style.key_sep = pair->items[1];
    }
    return sl__tpl_to_json(run, self, &style, out);
}

/* ---- tables -------------------------------------------------------------------------------- */

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
};
const tpl_table sl__tpl_str_methods = {methods, SL_COUNT(methods)};

static const tpl_callable filters[] = {
    FIXED("capitalize", 0, 0, filter_capitalize, 0),
    FIXED("e", 0, 0, filter_escape, 0),
    FIXED("escape", 0, 0, filter_escape, 0),
    FIXED("indent", 0, 3, filter_indent, "width", "first", "blank"),
    FIXED("lower", 0, 0, filter_lower, 0),
    FIXED("replace", 2, 3, filter_replace, "old", "new", "count"),
    FIXED("safe", 0, 0, filter_safe, 0),
    FIXED("string", 0, 0, filter_string, 0),
    FIXED("title", 0, 0, filter_title, 0),
    FIXED("tojson", 0, 4, filter_tojson, "ensure_ascii", "indent", "separators", "sort_keys"),
    FIXED("trim", 0, 1, filter_trim, "chars"),
    FIXED("upper", 0, 0, filter_upper, 0),
};
const tpl_table sl__tpl_text_filters = {filters, SL_COUNT(filters)};
