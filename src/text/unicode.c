/* Character classes and canonical composition, see unicode.h. */
#include "text/unicode.h"

#include <string.h>

#include "text/unicode_tables.h"

enum { BOUNDARY = 0x100, CHANGES = 0x200 };

// Hangul syllables are composed by arithmetic (Unicode, section 3.12).
enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

uint32_t sl_uni_class(uint32_t cp) {
    uint32_t block = sl__uni_class_index[cp >> SL_UNI_CLASS_SHIFT];
    uint8_t entry =
        sl__uni_class[block << SL_UNI_CLASS_SHIFT | (cp & ((1u << SL_UNI_CLASS_SHIFT) - 1))];
    return 1u << (entry & 31) | (entry & 32 ? SL_UNI_WORD : 0);
}

static uint32_t nfc_record(uint32_t cp) {
    uint32_t block = sl__uni_nfc_index[cp >> SL_UNI_NFC_SHIFT];
    uint32_t low = cp & ((1u << SL_UNI_NFC_SHIFT) - 1);
    return sl__uni_nfc_record[sl__uni_nfc[block << SL_UNI_NFC_SHIFT | low]];
}

static sl_uni_marked marked(uint32_t cp) {
    return cp | (nfc_record(cp) & 0xff) << 24;
}

bool sl_uni_starts_segment(uint32_t cp) {
    return nfc_record(cp) & BOUNDARY;
}

bool sl_uni_is_plain(uint32_t cp) {
    return (nfc_record(cp) & (BOUNDARY | CHANGES)) == BOUNDARY;
}

size_t sl_uni_decompose(uint32_t cp, sl_uni_marked out[SL_UNI_DECOMPOSED_MAX]) {
    uint32_t s = cp - S_BASE;
    if (s < S_COUNT) {
        out[0] = L_BASE + s / (V_COUNT * T_COUNT);
        out[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
        if (s % T_COUNT == 0)
            return 2;
        out[2] = T_BASE + s % T_COUNT;
        return 3;
    }
    uint32_t record = nfc_record(cp);
    size_t n = record >> 12 & 7;
    if (n == 0) {
        out[0] = cp | (record & 0xff) << 24;
        return 1;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = marked(sl__uni_decomposed[(record >> 16) + i]);
    return n;
}

// The primary composite of two code points, or 0.
static uint32_t compose_pair(uint32_t a, uint32_t b) {
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - (T_BASE + 1) < T_COUNT - 1)
        return a + (b - T_BASE);
    uint32_t low = 0, high = sl__uni_n_pairs;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const uint32_t *pair = sl__uni_pair[middle];
        if (pair[0] == a && pair[1] == b)
            return pair[2];
        if (pair[0] < a || (pair[0] == a && pair[1] < b))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

// Stable sort by class of a run without starters. Short runs by insertion, long ones by counting, so
// that a hostile run of marks costs no more than its length.
static void sort_marks(sl_uni_marked *run, size_t n, sl_uni_marked *scratch) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            sl_uni_marked c = run[i];
            size_t j = i;
            for (; j > 0 && run[j - 1] >> 24 > c >> 24; j--)
                run[j] = run[j - 1];
            run[j] = c;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(run[i] >> 24) + 1]++;
    for (size_t k = 1; k < 256; k++)
        start[k] += start[k - 1];
    for (size_t i = 0; i < n; i++)
        scratch[start[run[i] >> 24]++] = run[i];
    memcpy(run, scratch, n * sizeof(*run));
}

size_t sl_uni_compose(sl_uni_marked *segment, size_t n, sl_uni_marked *scratch) {
    for (size_t i = 0; i < n;) {
        size_t j = i;
        while (j < n && segment[j] >> 24 != 0)
            j++;
        if (j - i > 1)
            sort_marks(segment + i, j - i, scratch);
        i = j + 1;
    }
    size_t kept = 0, starter = SIZE_MAX;
    uint32_t last_class = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = segment[i] & 0xffffff, class = segment[i] >> 24;
        // A character meets the starter unless something of its own class or higher stands between.
        if (starter != SIZE_MAX && (starter + 1 == kept || last_class < class)) {
            uint32_t composed = compose_pair(segment[starter], cp);
            if (composed != 0) {
                segment[starter] = composed;
                continue;
            }
        }
        if (class == 0)
            starter = kept;
        last_class = class;
        segment[kept++] = cp;
    }
    return kept;
}
