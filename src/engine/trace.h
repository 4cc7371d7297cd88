/* A trace: which experts each token picked, layer by layer, and which were guessed. In a file (docs/format.md) and
 * in memory. The file is written token by token, in memory that does not grow; it is read whole.
 *
 * Thread: one at a time. */
#ifndef SL_ENGINE_TRACE_H
#define SL_ENGINE_TRACE_H

#include "io/output.h"
#include "base/buf.h"

#define SL_TRACE_VERSION 1u
#define SL_TRACE_NONE UINT16_MAX /* in place of a guess that was not made */
#define SL_TRACE_BYTES_MAX ((uint64_t)1 << 30)

/* What the rows of a trace look like. */
typedef struct sl_trace_shape {
    uint32_t n_layers;     /* of the model */
    uint32_t n_moe;        /* layers with experts */
    uint32_t n_experts;    /* of such a layer; < 65535 */
    uint32_t top_k;        /* picks of a token there, all different */
    uint32_t n_guess;      /* guesses before it, the likeliest first */
    uint64_t expert_bytes; /* of a slot */
    uint64_t fixed_bytes;  /* what the plan spends beside slots for experts */
} sl_trace_shape;

/* Numbers of a token: [n_moe][top_k + n_guess], picks first. */
uint32_t sl_trace_row_numbers(const sl_trace_shape *shape);

typedef struct sl_trace_writer {
    sl_trace_shape shape;
    sl_output out;
    uint8_t *row; /* heap: a token as it goes into the file */
    uint64_t at;
    uint32_t n_tokens;
} sl_trace_writer;

/* Create the file. layers [n_moe], ascending: those with experts. Errors: SL_ERR_IO, SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_trace_create(const char *path, const sl_trace_shape *shape,
                                      const uint16_t *layers, sl_trace_writer *out, sl_error *err);
/* Add a token. Allocates nothing. Errors: SL_ERR_IO. */
SL_MUST_USE sl_status sl_trace_add(sl_trace_writer *w, const uint16_t *numbers, sl_error *err);
/* Complete and close the file. On error it is closed as well. */
SL_MUST_USE sl_status sl_trace_finish(sl_trace_writer *w, sl_error *err);
/* Close without a promise. Accepts a zeroed struct and a writer that is finished. */
void sl_trace_abandon(sl_trace_writer *w);

typedef struct sl_trace sl_trace;
struct sl_trace {
    sl_trace_shape shape;
    uint32_t n_tokens;
    uint16_t *layers; /* [n_moe]; heap, as what follows */
    uint16_t *rows;   /* [n_tokens][n_moe][top_k + n_guess] */
};

/* Read a trace and check all of it: every checksum, and that numbers are experts and picks of a layer differ.
 * Errors: SL_ERR_MISSING, SL_ERR_IO, SL_ERR_MEMORY, SL_ERR_UNSUPPORTED (another version), SL_ERR_CORRUPT (not a
 * trace, cut short, damaged: names the token). *out is zeroed then. */
SL_MUST_USE sl_status sl_trace_read(const char *path, sl_trace *out, sl_error *err);
/* The same for a file's bytes. */
SL_MUST_USE sl_status sl_trace_parse(const uint8_t *bytes, size_t n, sl_trace *out, sl_error *err);
/* Accepts a zeroed struct. */
void sl_trace_free(sl_trace *trace);

/* Picks of a token in the i-th layer with experts; the guesses follow them. */
static inline const uint16_t *sl_trace_picks(const sl_trace *t, uint32_t token, uint32_t i) {
    const sl_trace_shape *s = &t->shape;
    return t->rows + ((size_t)token * s->n_moe + i) * (s->top_k + s->n_guess);
}

#endif
