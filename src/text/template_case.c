/* Case mapping and printability by tables that were generated from Python. A mapping is a few hundred
 * runs {first, last, distance, stride} and about a hundred code points that become several. */
#include "text/template_internal.h"

typedef struct code_range {
    uint32_t first, last;
} code_range;

typedef struct case_run {
    uint32_t first, last;
    int32_t delta;
    uint32_t stride;
} case_run;

typedef struct case_special {
    uint32_t cp, n;
    uint32_t out[3];
} case_special;

#include "text/template_case_tables.inc"

static bool in_ranges(const code_range *table, size_t n, uint32_t cp) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp > table[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && cp >= table[low].first;
}
#define IN(table, cp) in_ranges(table, SL_COUNT(table), cp)

// Runs of different strides may interleave, so the first that fits is looked for from the start.
static bool map_run(const case_run *runs, size_t n, uint32_t *cp) {
    for (size_t i = 0; i < n && runs[i].first <= *cp; i++) {
        if (*cp <= runs[i].last && (*cp - runs[i].first) % runs[i].stride == 0) {
            *cp = (uint32_t)((int32_t)*cp + runs[i].delta);
            return true;
        }
    }
    return false;
}

static uint32_t map_special(const case_special *table, size_t n, uint32_t cp, uint32_t out[3]) {
    for (size_t i = 0; i < n; i++) {
        if (table[i].cp == cp) {
            for (uint32_t k = 0; k < table[i].n; k++)
                out[k] = table[i].out[k];
            return table[i].n;
        }
    }
    return 0;
}

uint32_t sl__tpl_case_map(uint32_t cp, tpl_case to, uint32_t out[3]) {
    uint32_t n = 0;
    out[0] = cp;
    if (cp < 0x80) {
        bool lower = cp >= 'a' && cp <= 'z', upper = cp >= 'A' && cp <= 'Z';
        out[0] = to == TPL_CASE_LOWER ? cp + 32 * upper : cp - 32 * lower;
        return 1;
    }
    if (to == TPL_CASE_LOWER) {
        if ((n = map_special(lower_special, SL_COUNT(lower_special), cp, out)))
            return n;
        map_run(lower_runs, SL_COUNT(lower_runs), &out[0]);
        return 1;
    }
    if (to == TPL_CASE_TITLE) {
        if ((n = map_special(title_special, SL_COUNT(title_special), cp, out)))
            return n;
        if (map_run(title_runs, SL_COUNT(title_runs), &out[0]))
            return 1;
    }
    if ((n = map_special(upper_special, SL_COUNT(upper_special), cp, out)))
        return n;
    map_run(upper_runs, SL_COUNT(upper_runs), &out[0]);
    return 1;
}

bool sl__tpl_is_lower(uint32_t cp) {
    return IN(is_lower, cp);
}
bool sl__tpl_is_upper(uint32_t cp) {
    return IN(is_upper, cp);
}
bool sl__tpl_is_cased(uint32_t cp) {
    return IN(is_lower, cp) || IN(is_upper, cp) || IN(is_title, cp);
}
bool sl__tpl_is_case_ignorable(uint32_t cp) {
    return IN(is_ignorable, cp);
}
bool sl__tpl_is_printable(uint32_t cp) {
    return cp < 0x80 ? cp >= 0x20 && cp != 0x7f : !IN(not_printable, cp);
}
