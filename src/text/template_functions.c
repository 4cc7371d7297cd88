/* The global functions: dict, namespace, range, raise_exception and strftime_now. */
#include <stdio.h>
#include <string.h>

#include "text/template_call.h"

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
    tpl_val dict = tpl_none();
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
            return sl__tpl_type_error(run, "range", &arg[i]);
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
    if (!sl__tpl_to_str(run, &arg[0], &s))
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

typedef struct moment {
    int64_t year;
    int month, day;  // from 1
    int weekday;     // 0 is Sunday
    int day_of_year; // from 1
    int hour, minute, second;
} moment;

// The date in the Gregorian calendar, UTC. Years are counted from March, so that the leap day is last.
static moment moment_of(int64_t unix_seconds) {
    static const uint16_t days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    moment t;
    int64_t days = unix_seconds / 86400 - (unix_seconds % 86400 < 0);
    int second = (int)(unix_seconds - days * 86400);
    t.hour = second / 3600;
    t.minute = second / 60 % 60;
    t.second = second % 60;
    t.weekday = (int)(((days + 4) % 7 + 7) % 7);               // 1970-01-01 was a Thursday
    days += 719468;                                            // since 0000-03-01
    int64_t era = (days >= 0 ? days : days - 146096) / 146097; // of 400 years
    int64_t of_era = days - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int month = (int)((5 * of_year + 2) / 153);
    t.day = (int)(of_year - (153 * month + 2) / 5) + 1;
    t.month = month < 10 ? month + 3 : month - 9;
    t.year = year + era * 400 + (t.month <= 2);
    bool leap = t.year % 4 == 0 && (t.year % 100 != 0 || t.year % 400 == 0);
    t.day_of_year = days_before[t.month - 1] + t.day + (leap && t.month > 2);
    return t;
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

// The number that a directive stands for, and how wide it is printed; -1 for those that are words.
static int directive_number(const moment *t, char directive, int *width) {
    *width = directive == 'j' ? 3 : directive == 'Y' || directive == 'u' ? 1 : 2;
    switch (directive) {
    case 'Y':
        return (int)t->year;
    case 'y':
        return (int)(t->year % 100);
    case 'm':
        return t->month;
    case 'd':
    case 'e':
        return t->day;
    case 'H':
        return t->hour;
    case 'I':
        return t->hour % 12 ? t->hour % 12 : 12;
    case 'M':
        return t->minute;
    case 'S':
        return t->second;
    case 'j':
        return t->day_of_year;
    case 'u':
        return t->weekday ? t->weekday : 7;
    default:
        return -1;
    }
}

static void add_directive(tpl_text *text, const moment *t, char directive, bool bare) {
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    char form[32];
    int width, number = directive_number(t, directive, &width), year = (int)t->year;
    if (number >= 0)
        snprintf(form, sizeof(form), directive == 'e' ? "%*d" : "%0*d", bare ? 1 : width, number);
    else if (directive == 'p')
        snprintf(form, sizeof(form), "%s", t->hour < 12 ? "AM" : "PM");
    else if (directive == 'B' || directive == 'b' || directive == 'h')
        snprintf(form, sizeof(form), "%.*s", directive == 'B' ? 9 : 3, months[t->month - 1]);
    else if (directive == 'A' || directive == 'a')
        snprintf(form, sizeof(form), "%.*s", directive == 'A' ? 9 : 3, days[t->weekday]);
    else if (directive == 'F')
        snprintf(form, sizeof(form), "%d-%02d-%02d", year, t->month, t->day);
    else if (directive == 'T')
        snprintf(form, sizeof(form), "%02d:%02d:%02d", t->hour, t->minute, t->second);
    else if (directive == 'R')
        snprintf(form, sizeof(form), "%02d:%02d", t->hour, t->minute);
    else if (directive == 'D')
        snprintf(form, sizeof(form), "%02d/%02d/%02d", t->month, t->day, year % 100);
    else
        snprintf(form, sizeof(form), "%s", directive == 'n' ? "\n" : "%");
    sl__tpl_text_puts(text, form);
}

static bool strftime_now(ARGUMENTS) {
    (void)self;
    if (!tpl_is_str(&arg[0]))
        return sl__tpl_type_error(run, "strftime_now", &arg[0]);
    if (!sl__tpl_strftime_ok(arg[0].s, arg[0].len))
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "a directive of this time format");
    moment t = moment_of(run->limits->now_unix);
    if (t.year < 1 || t.year > 9999)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "strftime_now: year %lld", (long long)t.year);
    tpl_text text = sl__tpl_text(run);
    for (size_t i = 0; i < arg[0].len; i++) {
        if (arg[0].s[i] != '%') {
            sl__tpl_text_add(&text, arg[0].s + i, 1);
            continue;
        }
        bool bare = arg[0].s[++i] == '-'; // without leading zeros or blanks
        i += bare;
        add_directive(&text, &t, arg[0].s[i], bare);
    }
    return sl__tpl_text_end(&text, out);
}

static const tpl_callable functions[] = {
    ANY("dict", make_dict),
    ANY("namespace", make_namespace),
    FIXED("raise_exception", 1, 1, raise_exception, "message"),
    FIXED("range", 1, 3, make_range, 0),
    FIXED("strftime_now", 1, 1, strftime_now, "format"),
};
const tpl_table sl__tpl_functions = {functions, SL_COUNT(functions)};
