/* What routes look like: see docs/synth.md for the figures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "synth.h"

typedef struct layer_counts {
    uint64_t tokens, same, guessed, guesses; /* same: picks that the token before had too */
    uint32_t last[SL_TOP_K_MAX];
} layer_counts;

struct synth_figures {
    uint32_t n_layers, n_experts, top_k;
    layer_counts *layers;
    uint64_t *uses; /* [n_layers][n_experts] */
    double rms_least, rms_greatest;
};

sl_status synth_figures_init(const sl_model *m, synth_figures **out, sl_error *err) {
    synth_figures *f = *out = sl_mem_calloc(1, sizeof(*f));
    if (!f)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for counts");
    f->n_layers = m->n_layers;
    f->n_experts = m->moe.n_experts;
    f->top_k = m->moe.top_k;
    f->layers = sl_mem_calloc(f->n_layers, sizeof(*f->layers));
    f->uses = sl_mem_calloc((size_t)f->n_layers * f->n_experts, sizeof(*f->uses));
    if (f->layers && f->uses)
        return SL_OK;
    synth_figures_free(f);
    *out = NULL;
    return sl_fail(err, SL_ERR_MEMORY, "no memory for counts");
}

void synth_figures_free(synth_figures *f) {
    if (!f)
        return;
    sl_mem_free(f->layers);
    sl_mem_free(f->uses);
    sl_mem_free(f);
}

static uint32_t in_common(const uint32_t *a, const uint32_t *b, uint32_t n) {
    uint32_t same = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            same += a[i] == b[j];
    return same;
}

void synth_figures_picks(synth_figures *f, uint32_t layer, const uint32_t *picks) {
    layer_counts *l = &f->layers[layer];
    if (l->tokens++)
        l->same += in_common(l->last, picks, f->top_k);
    memcpy(l->last, picks, f->top_k * sizeof(*picks));
    for (uint32_t i = 0; i < f->top_k; i++)
        f->uses[(size_t)layer * f->n_experts + picks[i]]++;
}

void synth_figures_guess(synth_figures *f, uint32_t layer, const uint32_t *guessed,
                         const uint32_t *picks) {
    f->layers[layer].guesses += f->top_k;
    f->layers[layer].guessed += in_common(guessed, picks, f->top_k);
}

void synth_figures_stream(synth_figures *f, const float *x, uint32_t n, uint32_t d) {
    for (uint32_t t = 0; t < n; t++, x += d) {
        double sum = 0;
        for (uint32_t j = 0; j < d; j++)
            sum += (double)x[j] * (double)x[j];
        double rms = sqrt(sum / d);
        if (!(rms <= f->rms_greatest)) // a NaN stays
            f->rms_greatest = rms;
        if (f->rms_least == 0 || rms < f->rms_least)
            f->rms_least = rms;
    }
}

/* ---- summary -------------------------------------------------------------------------------------- */

enum { OVERLAP, FEW, MANY, GUESSED, N_FIGURES };

static int by_count(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

// As many of the experts as 8 and 40 are of 256, but at least one.
static uint32_t n_few(const synth_figures *f) {
    return SL_MAX(1u, f->n_experts / 32);
}
static uint32_t n_many(const synth_figures *f) {
    return SL_MAX(1u, f->n_experts * 5 / 32);
}

static double covered(const synth_figures *f, uint32_t layer, uint32_t n) {
    uint64_t sorted[SL_EXPERTS_MAX], sum = 0;
    memcpy(sorted, f->uses + (size_t)layer * f->n_experts, f->n_experts * sizeof(*sorted));
    qsort(sorted, f->n_experts, sizeof(*sorted), by_count);
    for (uint32_t i = 0; i < n; i++)
        sum += sorted[i];
    return (double)sum / (double)(f->layers[layer].tokens * f->top_k);
}

// False: the layer has none.
static bool layer_figure(const synth_figures *f, uint32_t layer, int figure, double *out) {
    const layer_counts *l = &f->layers[layer];
    if (l->tokens < 2)
        return false;
    switch (figure) {
    case OVERLAP:
        *out = (double)l->same / (double)((l->tokens - 1) * f->top_k);
        return true;
    case FEW:
        *out = covered(f, layer, n_few(f));
        return true;
    case MANY:
        *out = covered(f, layer, n_many(f));
        return true;
    default:
        *out = l->guesses ? (double)l->guessed / (double)l->guesses : 0;
        return l->guesses > 0;
    }
}

typedef struct range {
    double mean, least, greatest;
    uint32_t n;
} range;

static range range_of(const synth_figures *f, int figure) {
    range r = {0, 1, 0, 0};
    for (uint32_t layer = 0; layer < f->n_layers; layer++) {
        double v;
        if (!layer_figure(f, layer, figure, &v))
            continue;
        r.mean += v;
        r.least = SL_MIN(r.least, v);
        r.greatest = SL_MAX(r.greatest, v);
        r.n++;
    }
    if (r.n)
        r.mean /= r.n;
    else
        r.least = 0;
    return r;
}

void synth_figures_summary(const synth_figures *f, synth_summary *out) {
    *out = (synth_summary){.overlap = range_of(f, OVERLAP).mean,
                           .top_few = range_of(f, FEW).mean,
                           .top_many = range_of(f, MANY).mean,
                           .guessed = range_of(f, GUESSED).mean,
                           .rms_least = f->rms_least,
                           .rms_greatest = f->rms_greatest,
                           .n_few = n_few(f),
                           .n_many = n_many(f)};
}

static void print_range(sl_buf *out, range r) {
    sl_buf_printf(out, "%5.1f %%  (layers %.1f to %.1f)\n", 100 * r.mean, 100 * r.least,
                  100 * r.greatest);
}

void synth_figures_print(const synth_figures *f, sl_buf *out) {
    uint64_t tokens = 0;
    for (uint32_t layer = 0; layer < f->n_layers; layer++)
        tokens = SL_MAX(tokens, f->layers[layer].tokens);
    sl_buf_printf(out, "%llu tokens, %u of %u experts in each of %u layers\n",
                  (unsigned long long)tokens, f->top_k, f->n_experts, range_of(f, OVERLAP).n);
    sl_buf_add_text(out, "picks that the token before had too   ");
    print_range(out, range_of(f, OVERLAP));
    sl_buf_printf(out, "picks of the %4u commonest experts    ", n_few(f));
    print_range(out, range_of(f, FEW));
    sl_buf_printf(out, "picks of the %4u commonest experts    ", n_many(f));
    print_range(out, range_of(f, MANY));
    sl_buf_add_text(out, "picks known from the layer before     ");
    print_range(out, range_of(f, GUESSED));
    if (f->rms_least > 0)
        sl_buf_printf(out, "size of a token's residual stream      %.2f to %.2f (rms)\n",
                      f->rms_least, f->rms_greatest);
}
