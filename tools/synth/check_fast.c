/* Routes without experts: embedding rows and routers as the checkpoint has them, and in place of what the
 * layers add, noise of the size they are made for, in the channels they are made for. */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "checkpoint/checkpoint.h"
#include "model/layers.h"
#include "random.h"
#include "synth.h"

#define CHUNK 64u
#define WRITE_RMS 0.7071f

typedef struct fast {
    sl_checkpoint ck;
    sl_arena arena;
    sl_buf notes;
    sl_pool pool;
    sl_cpu_backend be;
    sl_packed packed;
    synth_channels channels;
    sl_matrix_source embed;
    sl_matrix *routers; /* [n_layers]; codes NULL: no router */
    float *x, *h;       /* [CHUNK][d_model] */
    float *logits, *choice, *weights;
    uint32_t *picks, *guesses, *tokens;
    uint32_t n_chunk;
    uint64_t seed;
    uint8_t *row; /* a block of one embedding row */
    synth_figures *figures;
} fast;

static sl_status read_matrix(fast *f, const sl_matrix_source *s, uint32_t first, uint32_t rows,
                             uint8_t *block, sl_matrix *out, sl_error *err) {
    sl_matrix_layout layout;
    sl_matrix_shape shape = s->shape;
    shape.rows = rows;
    sl_status st = sl_matrix_layout_of(&shape, &layout, err);
    const uint64_t at[3] = {layout.codes_at, layout.scales_at, layout.biases_at};
    const unsigned n = !sl_dtype_is_quantized(shape.dtype) ? 1
                       : sl_dtype_is_affine(shape.dtype)   ? 3
                                                           : 2;
    if (st == SL_OK && !s->copied)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "'%s' is not stored as it will be used", s->name);
    for (unsigned part = 0; part < n && !st; part++)
        st = sl_checkpoint_read(&f->ck, s->file[part], s->at[part] + first * s->row_bytes[part],
                                s->end[part], block + at[part], (size_t)(rows * s->row_bytes[part]),
                                err);
    if (st == SL_OK)
        sl_matrix_bind(out, &shape, &layout, block);
    return st;
}

static sl_status find_tensors(fast *f, uint64_t *bytes, sl_error *err) {
    const sl_model *m = &f->ck.model;
    uint32_t n = sl_model_tensors(m);
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_matrix_source source;
        sl_matrix_layout layout;
        sl_model_tensor(m, i, &spec);
        if (spec.role != SL_ROLE_EMBED && spec.role != SL_ROLE_ROUTER)
            continue;
        sl_status st = sl_checkpoint_resolve(&f->ck, &spec, 0, &source, err);
        if (st || (st = sl_matrix_layout_of(&source.shape, &layout, err)))
            return st;
        if (spec.role == SL_ROLE_EMBED)
            f->embed = source;
        else
            *bytes += layout.bytes + 64;
    }
    return SL_OK;
}

static sl_status read_routers(fast *f, sl_error *err) {
    const sl_model *m = &f->ck.model;
    uint32_t n = sl_model_tensors(m);
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_matrix_source source;
        sl_matrix_layout layout;
        sl_model_tensor(m, i, &spec);
        if (spec.role != SL_ROLE_ROUTER)
            continue;
        sl_status st = sl_checkpoint_resolve(&f->ck, &spec, 0, &source, err);
        if (st || (st = sl_matrix_layout_of(&source.shape, &layout, err)))
            return st;
        uint8_t *block = sl_arena_alloc(&f->arena, (size_t)layout.bytes, 64);
        if (!block)
            return sl_arena_full(&f->arena, (size_t)layout.bytes, err);
        if ((st = read_matrix(f, &source, 0, spec.rows, block, &f->routers[spec.layer], err)))
            return st;
    }
    return SL_OK;
}

static void *take(fast *f, size_t bytes, bool *failed) {
    void *p = sl_arena_alloc(&f->arena, bytes, 64);
    *failed |= !p;
    return p;
}

static sl_status reserve(fast *f, const synth_gains *gains, uint32_t n_tokens, uint32_t n_threads,
                         sl_error *err) {
    const sl_model *m = &f->ck.model;
    uint64_t routers = 0;
    sl_matrix_layout row;
    sl_status st = find_tensors(f, &routers, err);
    sl_matrix_shape shape = f->embed.shape;
    shape.rows = 1;
    if (st || (st = sl_matrix_layout_of(&shape, &row, err)))
        return st;
    const size_t d = m->d_model, wide = SL_ALIGN_UP(d, SL_BLOCK), k = m->moe.top_k;
    const size_t sizes[] = {CHUNK * d * 4,
                            CHUNK * d * 4,
                            CHUNK * sl_pack_floats((uint32_t)d) * 4,
                            CHUNK * sl_lane_floats((uint32_t)d) * 4,
                            CHUNK * sl_group_stride((uint32_t)wide, 32) * 4,
                            CHUNK * (size_t)m->moe.n_experts * 4,
                            (size_t)m->moe.n_experts * 4,
                            k * 4,
                            CHUNK * k * 4,
                            CHUNK * k * 4,
                            (size_t)n_tokens * 4,
                            (size_t)row.bytes,
                            m->n_layers * sizeof(*f->routers)};
    uint64_t bytes = routers + synth_channels_bytes(m, gains) + sl_pool_bytes(n_threads) +
                     2 * sl_thread_page_bytes();
    for (size_t i = 0; i < SL_COUNT(sizes); i++)
        bytes += sizes[i] + 64;
    if ((st = sl_arena_map(&f->arena, "check", bytes, err)) ||
        (st = sl_pool_init(&f->pool, n_threads, &f->arena, NULL, err)) ||
        (st = synth_channels_init(m, f->seed, gains, &f->arena, &f->channels, err)))
        return st;
    bool failed = false;
    f->x = take(f, sizes[0], &failed);
    f->h = take(f, sizes[1], &failed);
    f->packed.xp = take(f, sizes[2], &failed);
    f->packed.lane_sums = take(f, sizes[3], &failed);
    f->packed.group_sums = take(f, sizes[4], &failed);
    f->logits = take(f, sizes[5], &failed);
    f->choice = take(f, sizes[6], &failed);
    f->weights = take(f, sizes[7], &failed);
    f->picks = take(f, sizes[8], &failed);
    f->guesses = take(f, sizes[9], &failed);
    f->tokens = take(f, sizes[10], &failed);
    f->row = take(f, sizes[11], &failed);
    f->routers = take(f, sizes[12], &failed);
    return failed ? sl_arena_full(&f->arena, (size_t)bytes, err) : read_routers(f, err);
}

static sl_status embed_chunk(fast *f, const uint32_t *tokens, uint32_t n, sl_error *err) {
    for (uint32_t t = 0; t < n; t++) {
        sl_matrix row;
        sl_status st = read_matrix(f, &f->embed, tokens[t], 1, f->row, &row, err);
        if (st)
            return st;
        f->be.base.ops->row(&f->be.base, &row, 0, f->x + (size_t)t * f->ck.model.d_model);
    }
    return SL_OK;
}

// Three numbers added have about the distribution of what a layer adds.
static void add_noise(fast *f, uint32_t layer, uint32_t slot, uint32_t first, uint32_t n) {
    uint32_t d = f->ck.model.d_model;
    for (uint32_t t = 0; t < n; t++) {
        uint64_t key = synth_mix(f->seed + layer * 2ull + (slot != layer)) + first + t;
        for (uint32_t j = 0; j < d; j++) {
            if (f->channels.of[j] != (int16_t)(slot % f->channels.n_slots))
                continue;
            uint64_t w = synth_word(key, j);
            f->x[(size_t)t * d + j] +=
                WRITE_RMS * (synth_number(w, 0) + synth_number(w, 1) + synth_number(w, 2));
        }
    }
}

static void norm(const float *x, float *h, uint32_t n, uint32_t d) {
    for (uint32_t t = 0; t < n; t++, x += d, h += d) {
        float sum = 0;
        for (uint32_t j = 0; j < d; j++)
            sum += x[j] * x[j];
        float r = 1 / sqrtf(sum / (float)d);
        for (uint32_t j = 0; j < d; j++)
            h[j] = x[j] * r;
    }
}

static void route(fast *f, uint32_t layer, uint32_t n, uint32_t *picks) {
    const sl_model *m = &f->ck.model;
    sl_backend *be = &f->be.base;
    be->ops->product(be, &f->packed, &(sl_product){f->routers[layer], f->logits, m->moe.n_experts},
                     1);
    for (uint32_t t = 0; t < n; t++)
        sl_route(m, be, f->logits + (size_t)t * m->moe.n_experts, NULL, f->choice,
                 picks + (size_t)t * m->moe.top_k, f->weights);
}

static void run_layers(fast *f, uint32_t first, uint32_t n) {
    const sl_model *m = &f->ck.model;
    bool guessed = false;
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        add_noise(f, layer, layer, first, n);
        norm(f->x, f->h, n, m->d_model);
        f->be.base.ops->pack(&f->be.base, &f->packed, f->h, m->d_model, n, m->d_model);
        if (f->routers[layer].codes) {
            route(f, layer, n, f->picks);
            for (uint32_t t = 0; t < n; t++) {
                const uint32_t *picks = f->picks + (size_t)t * m->moe.top_k;
                synth_figures_picks(f->figures, layer, picks);
                if (guessed)
                    synth_figures_guess(f->figures, layer, f->guesses + (size_t)t * m->moe.top_k,
                                        picks);
            }
        }
        guessed = layer + 1 < m->n_layers && f->routers[layer + 1].codes;
        if (guessed)
            route(f, layer + 1, n, f->guesses);
        add_noise(f, layer, layer + 1, first, n);
    }
}

sl_status synth_check_fast(const char *checkpoint, uint64_t seed, const synth_gains *gains,
                           uint32_t n_tokens, uint32_t n_threads, synth_figures **out,
                           sl_error *err) {
    fast f = {.seed = seed};
    sl_checkpoint_options options = {0};
    *out = NULL;
    sl_buf_init(&f.notes);
    sl_status st = sl_checkpoint_open(checkpoint, &options, &f.notes, &f.ck, err);
    if (st == SL_OK && (st = reserve(&f, gains, n_tokens, n_threads, err)) == SL_OK &&
        (st = synth_figures_init(&f.ck.model, &f.figures, err)) == SL_OK) {
        sl_cpu_backend_init(&f.be, sl_cpu_level_best(), &f.pool);
        synth_stream(&f.ck.model, seed, gains->n_topics, f.tokens, n_tokens);
        for (uint32_t at = 0; at < n_tokens && !st; at += CHUNK) {
            uint32_t n = SL_MIN(CHUNK, n_tokens - at);
            if ((st = embed_chunk(&f, f.tokens + at, n, err)) == SL_OK)
                run_layers(&f, at, n);
        }
    }
    if (st == SL_OK)
        *out = f.figures;
    else
        synth_figures_free(f.figures);
    sl_pool_deinit(&f.pool);
    sl_arena_unmap(&f.arena);
    sl_checkpoint_close(&f.ck);
    sl_buf_deinit(&f.notes);
    return st;
}
