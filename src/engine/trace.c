/* Files of traces: see trace.h, and docs/format.md for the bytes. */
#include "engine/trace.h"

#include <string.h>

#include "io/folder.h"
#include "model/model.h"
#include "store/store.h"

#define HEAD_BYTES 64u
#define SUM_BYTES 8u

static const char magic[8] = {'s', 'l', '-', 't', 'r', 'a', 'c', 'e'};

// Numbers of the head, little-endian, in order.
enum { AT_VERSION = 8, AT_N_LAYERS, AT_N_MOE, AT_N_EXPERTS, AT_TOP_K, AT_N_GUESS, AT_N_TOKENS };
#define AT_EXPERT_BYTES 40u
#define AT_FIXED_BYTES 48u

static void put32(uint8_t *p, uint32_t v) {
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put64(uint8_t *p, uint64_t v) {
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p) {
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static uint32_t field_at(int field) {
    return AT_VERSION + 4 * (uint32_t)(field - AT_VERSION);
}

uint32_t sl_trace_row_numbers(const sl_trace_shape *s) {
    return s->n_moe * (s->top_k + s->n_guess);
}

/* A part of the file is numbers of 16 bits, zeros up to a multiple of 8 bytes, and a checksum. */
static uint64_t part_bytes(uint64_t n_numbers) {
    return SL_ALIGN_UP(2 * n_numbers, 8) + SUM_BYTES;
}

static void put_numbers(uint8_t *p, const uint16_t *numbers, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        p[2 * i] = (uint8_t)numbers[i];
        p[2 * i + 1] = (uint8_t)(numbers[i] >> 8);
    }
}

static void seal(uint8_t *part, uint64_t bytes) {
    put64(part + bytes - SUM_BYTES, sl_hash(part, (size_t)(bytes - SUM_BYTES)).low);
}

static bool sealed(const uint8_t *part, uint64_t bytes) {
    return get64(part + bytes - SUM_BYTES) == sl_hash(part, (size_t)(bytes - SUM_BYTES)).low;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static uint64_t row_bytes(const sl_trace_shape *s) {
    return part_bytes(sl_trace_row_numbers(s));
}

sl_status sl_trace_create(const char *path, const sl_trace_shape *shape, const uint16_t *layers,
                          sl_trace_writer *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    out->out = SL_OUTPUT_CLOSED;
    out->shape = *shape;
    uint64_t list = part_bytes(shape->n_moe);
    sl_status st = sl_output_open(path, &out->out, err);
    if (st)
        return st;
    if (!(out->row = sl_mem_calloc(1, (size_t)SL_MAX(row_bytes(shape), list)))) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for a token of the trace");
        goto fail;
    }
    // The head comes last: a file without one is no trace.
    out->at = HEAD_BYTES;
    put_numbers(out->row, layers, shape->n_moe);
    seal(out->row, list);
    if ((st = sl_output_write(&out->out, out->row, (size_t)list, out->at, err)))
        goto fail;
    out->at += list;
    memset(out->row, 0, (size_t)row_bytes(shape));
    return SL_OK;
fail:
    sl_trace_abandon(out);
    return st;
}

sl_status sl_trace_add(sl_trace_writer *w, const uint16_t *numbers, sl_error *err) {
    uint64_t bytes = row_bytes(&w->shape);
    put_numbers(w->row, numbers, sl_trace_row_numbers(&w->shape));
    seal(w->row, bytes);
    sl_status st = sl_output_write(&w->out, w->row, (size_t)bytes, w->at, err);
    if (st)
        return st;
    w->at += bytes;
    w->n_tokens++;
    return SL_OK;
}

sl_status sl_trace_finish(sl_trace_writer *w, sl_error *err) {
    const sl_trace_shape *s = &w->shape;
    uint8_t head[HEAD_BYTES] = {0};
    memcpy(head, magic, sizeof(magic));
    put32(head + field_at(AT_VERSION), SL_TRACE_VERSION);
    put32(head + field_at(AT_N_LAYERS), s->n_layers);
    put32(head + field_at(AT_N_MOE), s->n_moe);
    put32(head + field_at(AT_N_EXPERTS), s->n_experts);
    put32(head + field_at(AT_TOP_K), s->top_k);
    put32(head + field_at(AT_N_GUESS), s->n_guess);
    put32(head + field_at(AT_N_TOKENS), w->n_tokens);
    put64(head + AT_EXPERT_BYTES, s->expert_bytes);
    put64(head + AT_FIXED_BYTES, s->fixed_bytes);
    seal(head, HEAD_BYTES);
    sl_status st = sl_output_write(&w->out, head, sizeof(head), 0, err);
    if (st == SL_OK) {
        st = sl_output_finish(&w->out, w->at, err);
        w->out = SL_OUTPUT_CLOSED;
    }
    sl_trace_abandon(w);
    return st;
}

void sl_trace_abandon(sl_trace_writer *w) {
    if (!w->row && w->out.fd <= 0)
        return;
    sl_output_close(&w->out);
    sl_mem_free(w->row);
    w->row = NULL;
    w->out = SL_OUTPUT_CLOSED;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static sl_status parse_head(const uint8_t *bytes, size_t n, sl_trace *out, sl_error *err) {
    sl_trace_shape *s = &out->shape;
    if (n < HEAD_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
        return sl_fail(err, SL_ERR_CORRUPT, "this is not a trace, or one that was not completed");
    uint32_t version = get32(bytes + field_at(AT_VERSION));
    if (version != SL_TRACE_VERSION)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "a trace of version %u: this program reads %u",
                       version, SL_TRACE_VERSION);
    if (!sealed(bytes, HEAD_BYTES))
        return sl_fail(err, SL_ERR_CORRUPT, "the head of the trace does not have its checksum");
    s->n_layers = get32(bytes + field_at(AT_N_LAYERS));
    s->n_moe = get32(bytes + field_at(AT_N_MOE));
    s->n_experts = get32(bytes + field_at(AT_N_EXPERTS));
    s->top_k = get32(bytes + field_at(AT_TOP_K));
    s->n_guess = get32(bytes + field_at(AT_N_GUESS));
    s->expert_bytes = get64(bytes + AT_EXPERT_BYTES);
    s->fixed_bytes = get64(bytes + AT_FIXED_BYTES);
    out->n_tokens = get32(bytes + field_at(AT_N_TOKENS));
    if (s->n_layers == 0 || s->n_layers > SL_LAYERS_MAX || s->n_moe == 0 ||
        s->n_moe > s->n_layers || s->n_experts == 0 || s->n_experts > SL_EXPERTS_MAX ||
        s->top_k == 0 || s->top_k > SL_TOP_K_MAX || s->top_k > s->n_experts ||
        s->n_guess > SL_TOP_K_MAX || out->n_tokens == 0 || s->expert_bytes == 0)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "the head of the trace makes no sense: %u of %u layers, %u of %u experts, "
                       "%u guesses, %u tokens",
                       s->n_moe, s->n_layers, s->top_k, s->n_experts, s->n_guess, out->n_tokens);
    uint64_t want = HEAD_BYTES + part_bytes(s->n_moe) + out->n_tokens * row_bytes(s);
    if (n != want)
        return sl_fail(err, SL_ERR_CORRUPT, "the trace has %zu bytes, %u tokens take %llu", n,
                       out->n_tokens, (unsigned long long)want);
    return SL_OK;
}

static uint16_t number(const uint8_t *part, uint64_t i) {
    return (uint16_t)(part[2 * i] | part[2 * i + 1] << 8);
}

static sl_status parse_layers(const uint8_t *part, sl_trace *out, sl_error *err) {
    const sl_trace_shape *s = &out->shape;
    bool good = sealed(part, part_bytes(s->n_moe));
    for (uint32_t i = 0; i < s->n_moe && good; i++) {
        out->layers[i] = number(part, i);
        good = out->layers[i] < s->n_layers && (i == 0 || out->layers[i] > out->layers[i - 1]);
    }
    return good ? SL_OK : sl_fail(err, SL_ERR_CORRUPT, "the trace's list of layers is damaged");
}

// Copies a token's numbers. False where they cannot be.
static bool parse_row(const uint8_t *part, const sl_trace_shape *s, uint16_t *row) {
    if (!sealed(part, row_bytes(s)))
        return false;
    for (uint32_t i = 0; i < sl_trace_row_numbers(s); i++)
        row[i] = number(part, i);
    for (uint32_t layer = 0; layer < s->n_moe; layer++, row += s->top_k + s->n_guess) {
        for (uint32_t i = 0; i < s->top_k + s->n_guess; i++) {
            if (row[i] >= s->n_experts && !(i >= s->top_k && row[i] == SL_TRACE_NONE))
                return false;
            for (uint32_t j = 0; j < i && i < s->top_k; j++)
                if (row[i] == row[j])
                    return false;
        }
    }
    return true;
}

sl_status sl_trace_parse(const uint8_t *bytes, size_t n, sl_trace *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    sl_status st = parse_head(bytes, n, out, err);
    if (st)
        goto fail;
    const sl_trace_shape *s = &out->shape;
    uint32_t n_row = sl_trace_row_numbers(s);
    out->layers = sl_mem_calloc(s->n_moe, sizeof(uint16_t));
    out->rows = sl_mem_calloc((size_t)out->n_tokens * n_row, sizeof(uint16_t));
    if (!out->layers || !out->rows) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for a trace of %u tokens", out->n_tokens);
        goto fail;
    }
    if ((st = parse_layers(bytes + HEAD_BYTES, out, err)))
        goto fail;
    const uint8_t *part = bytes + HEAD_BYTES + part_bytes(s->n_moe);
    for (uint32_t t = 0; t < out->n_tokens; t++, part += row_bytes(s)) {
        if (!parse_row(part, s, out->rows + (size_t)t * n_row)) {
            st = sl_fail(err, SL_ERR_CORRUPT, "token %u of the trace is damaged", t);
            goto fail;
        }
    }
    return SL_OK;
fail:
    sl_trace_free(out);
    return st;
}

sl_status sl_trace_read(const char *path, sl_trace *out, sl_error *err) {
    sl_buf buf;
    memset(out, 0, sizeof(*out));
    sl_buf_init(&buf);
    sl_status st = sl_file_slurp(path, SL_TRACE_BYTES_MAX, &buf, err);
    if (!st && buf.failed)
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for the trace");
    if (!st)
        st = sl_trace_parse((const uint8_t *)buf.data, buf.len, out, err);
    sl_buf_deinit(&buf);
    return st ? sl_error_context(err, st, "'%s'", path) : SL_OK;
}

void sl_trace_free(sl_trace *t) {
    sl_mem_free(t->layers);
    sl_mem_free(t->rows);
    memset(t, 0, sizeof(*t));
}
