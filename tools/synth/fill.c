/* The bytes of tensors, row by row. */
#include <string.h>

#include "checkpoint/quantize.h"
#include "plan_internal.h"
#include "random.h"

static void put64(uint8_t *out, uint64_t w) {
    for (unsigned b = 0; b < 8; b++)
        out[b] = (uint8_t)(w >> (8 * b));
}

static void put_words(uint64_t key, uint8_t *out, size_t n) {
    uint64_t i = 0;
    for (; n >= 8; n -= 8, out += 8)
        put64(out, synth_word(key, i++));
    uint8_t last[8];
    put64(last, synth_word(key, i));
    memcpy(out, last, n);
}

static void put16(uint8_t *out, uint16_t v) {
    out[0] = (uint8_t)v;
    out[1] = (uint8_t)(v >> 8);
}

static bool in_slot(const synth_plan *p, const synth_module *m, uint64_t row) {
    return !m->writes || p->channels.of[row % m->rows] == (int16_t)m->slot;
}

/* Codes of one row, one to a byte; or the numbers themselves where there are no codes. */
static void planted_row(const synth_plan *p, const synth_module *m, uint64_t row, uint8_t *codes,
                        float *numbers, uint8_t *chance) {
    const synth_planted *w = &m->planted;
    const uint32_t topic = 1 + (uint32_t)(row % p->options.gains.n_topics);
    const int8_t *signs = p->channels.signs + (size_t)topic * m->cols;
    const int32_t most = (1 << sl_dtype_bits(m->dtype)) - 1;
    put_words(synth_mix(m->key + 2 * row), chance, 2 * (size_t)m->cols);
    for (uint32_t j = 0; j < m->cols; j++) {
        int32_t x = w->common[j] + w->topic[j] * signs[j] + w->noise[j] * (2 * chance[j] - 255);
        if (numbers) {
            numbers[j] = (float)x * 0x1p-16f * w->unit;
            continue;
        }
        int32_t code = (x + most * 32768 + chance[m->cols + j] * 256) >> 16;
        codes[j] = (uint8_t)(code < 0 ? 0 : code > most ? most : code);
    }
}

// A row of codes as a bit stream.
static void pack_codes(const uint8_t *codes, uint32_t n, unsigned bits, uint8_t *out) {
    if (bits == 8) {
        memcpy(out, codes, n);
        return;
    }
    uint32_t held = 0, n_held = 0;
    for (uint32_t i = 0; i < n; i++) {
        held |= (uint32_t)codes[i] << n_held;
        n_held += bits;
        for (; n_held >= 8; n_held -= 8, held >>= 8)
            *out++ = (uint8_t)held;
    }
}

// Which of a matrix's scales each group has: the same for codes, scales and biases.
static uint64_t level_word(const synth_module *m, uint64_t row, uint32_t group, uint64_t word) {
    return group % 8 ? word >> 8 : synth_word(synth_mix(m->key + 2 * row + 1), group / 8);
}

static void planted_codes(const synth_plan *p, const synth_module *m, uint64_t row, uint8_t *out,
                          uint8_t *scratch) {
    uint8_t *codes = scratch, *chance = scratch + m->cols;
    const uint8_t mirror = (uint8_t)((1u << sl_dtype_bits(m->dtype)) - 1);
    planted_row(p, m, row, codes, NULL, chance);
    uint64_t word = 0;
    for (uint32_t g = 0; g < m->cols / m->group; g++) {
        word = level_word(m, row, g, word);
        bool negative = word % SYNTH_LEVELS >= SYNTH_LEVELS / 2;
        for (uint32_t j = g * m->group; j < (g + 1) * m->group; j++)
            codes[j] ^= negative ? mirror : 0;
    }
    pack_codes(codes, m->cols, sl_dtype_bits(m->dtype), out);
}

static void fill_scales(const synth_plan *p, const synth_module *m, synth_part part, uint64_t row,
                        uint8_t *out) {
    const synth_scales *s = in_slot(p, m, row) ? &m->on : &m->off;
    const uint16_t *values = part == SYNTH_SCALES ? s->scale : s->bias;
    uint64_t word = 0;
    for (uint32_t g = 0; g < m->cols / m->group; g++) {
        word = level_word(m, row, g, word);
        if (m->dtype == SL_DTYPE_MXFP4)
            out[g] = (uint8_t)(s->exponent + ((uint8_t)word < s->higher));
        else
            put16(out + 2 * (size_t)g, values[word % SYNTH_LEVELS]);
    }
}

static void fill_dense(const synth_plan *p, const synth_module *m, uint64_t row, uint8_t *out,
                       uint8_t *scratch) {
    float *v = (float *)(void *)scratch;
    uint64_t key = synth_mix(m->key + 2 * row);
    if (m->fill == SYNTH_PLANTED) {
        planted_row(p, m, row, NULL, v, scratch + (size_t)m->cols * sizeof(*v));
    } else {
        float half = in_slot(p, m, row) ? m->half : m->half * SYNTH_LEAK;
        for (uint32_t j = 0; j < m->cols; j++)
            v[j] = m->centre + half * synth_number(synth_word(key, j / 4), j % 4);
    }
    sl_narrow(v, m->dtype, m->cols, out);
}

/* A row of a part: the whole of it, into out. */
static void fill_row(const synth_plan *p, const synth_module *m, synth_part part, uint64_t row,
                     uint8_t *out, uint8_t *scratch) {
    if (part == SYNTH_DENSE)
        fill_dense(p, m, row, out, scratch);
    else if (part != SYNTH_CODES)
        fill_scales(p, m, part, row, out);
    else if (m->fill == SYNTH_PLANTED)
        planted_codes(p, m, row, out, scratch);
    else // any bits are codes
        put_words(synth_mix(m->key + 2 * row), out, (size_t)m->cols * sl_dtype_bits(m->dtype) / 8);
}

static void fill_tensor(const synth_plan *p, const synth_tensor *t, uint64_t at, size_t n,
                        uint8_t *out, uint8_t *scratch) {
    const synth_module *m = &p->modules[t->module];
    uint8_t *whole = scratch + (size_t)m->cols * 6; // fill_row() uses less
    while (n) {
        uint64_t row = at / t->row_bytes, skip = at % t->row_bytes;
        size_t take = (size_t)SL_MIN(t->row_bytes - skip, n);
        if (take == t->row_bytes) {
            fill_row(p, m, t->part, row, out, scratch);
        } else {
            fill_row(p, m, t->part, row, whole, scratch);
            memcpy(out, whole + skip, take);
        }
        out += take;
        at += take;
        n -= take;
    }
}

void synth_fill_range(const synth_plan *p, uint32_t shard, uint64_t at, size_t n, void *out,
                      void *scratch) {
    const synth_shard *s = &p->shards[shard];
    uint8_t *to = out;
    if (at < s->header.len) {
        size_t take = (size_t)SL_MIN(s->header.len - at, n);
        memcpy(to, s->header.data + at, take);
        at += take;
        to += take;
        n -= take;
    }
    uint32_t low = s->first,
             high = s->first + s->n; // the last tensor that begins at or before `at`
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (p->tensors[middle].at <= at)
            low = middle;
        else
            high = middle;
    }
    for (; n; low++) {
        const synth_tensor *t = &p->tensors[low];
        uint64_t end = t->at + t->n_rows * t->row_bytes;
        size_t take = (size_t)SL_MIN(end - at, n);
        fill_tensor(p, t, at - t->at, take, to, scratch);
        at += take;
        to += take;
        n -= take;
    }
}
