/* From a tensor of the model to its place in a checkpoint's files, and what it becomes. */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/quantize.h"

static const char *const suffixes[] = {
    [SL_SUFFIX_WEIGHT] = ".weight", [SL_SUFFIX_NONE] = "", [SL_SUFFIX_BLOCKS] = "_blocks"};

static const char *prefix_of(const sl_checkpoint *ck, const sl_tensor_spec *spec) {
    return spec->role == SL_ROLE_HEAD && !ck->tied ? ck->head_prefix : ck->prefix;
}

static uint32_t places_of(const sl_checkpoint *ck, const sl_tensor_spec *spec, uint32_t expert,
                          sl_tensor_place out[SL_PLACES_MAX]) {
    sl_tensor_spec embed;
    if (spec->role != SL_ROLE_HEAD || !ck->tied)
        return sl_tensor_places(&ck->model, spec, expert, out);
    sl_model_tensor(&ck->model, 0, &embed);
    return sl_tensor_places(&ck->model, &embed, 0, out);
}

static sl_st_tensor *find(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                          const sl_tensor_place *place, const char *suffix) {
    char name[SL_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%.60s%.95s%s", prefix_of(ck, spec), place->name, suffix);
    return sl_st_find(&ck->table, name);
}

sl_st_tensor *sl__find_place(const sl_checkpoint *ck, const sl_tensor_spec *spec, uint32_t expert,
                             sl_tensor_place *out) {
    sl_tensor_place places[SL_PLACES_MAX];
    uint32_t n = places_of(ck, spec, expert, places);
    for (uint32_t i = 0; i < n; i++) {
        sl_st_tensor *t = find(ck, spec, &places[i], suffixes[places[i].suffix]);
        if (t) {
            *out = places[i];
            return t;
        }
    }
    return NULL;
}

// Under the name that it would have in a checkpoint of this layout.
static sl_status missing(const sl_checkpoint *ck, const sl_tensor_spec *spec, uint32_t expert,
                         sl_error *err) {
    sl_tensor_place places[SL_PLACES_MAX];
    uint32_t n = places_of(ck, spec, expert, places);
    const sl_tensor_place *p = &places[ck->mlx ? 0 : n - 1];
    return sl_fail(err, SL_ERR_MISSING, "tensor '%.60s%.100s%s' is not in the checkpoint",
                   prefix_of(ck, spec), p->name, suffixes[p->suffix]);
}

static sl_status wrong_shape(const sl_st_tensor *t, const char *expected, sl_error *err) {
    char dims[96] = "";
    size_t n = 0;
    for (unsigned i = 0; i < t->n_dims && n < sizeof(dims) - 24; i++)
        n += (size_t)snprintf(dims + n, sizeof(dims) - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)t->dims[i]);
    return sl_fail(err, SL_ERR_CORRUPT, "tensor '%.180s' is %s [%s], expected %s", t->name,
                   t->dtype_name, dims, expected);
}

static bool is_dense(unsigned dtype) {
    return dtype == SL_DTYPE_BF16 || dtype == SL_DTYPE_F16 || dtype == SL_DTYPE_F32;
}

static sl_status dense_type(const sl_st_tensor *t, sl_error *err) {
    if (is_dense(t->dtype))
        return SL_OK;
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "tensor '%.200s' is of type %s, supported are BF16, F16, F32, F8_E4M3 with "
                   "scales, MXFP4 and the affine quantization of MLX (U32 with scales and biases)",
                   t->name, t->dtype_name);
}

// Which matrix of the file's tensor is meant; 0 when it is all of them.
static uint64_t matrix_of(const sl_tensor_place *p) {
    return p->n_stack && p->index != SL_STACK_WHOLE ? p->index : 0;
}

/* The dimensions of a place's tensor up to its rows, then `n_tail` of its own, the first of which is *cols. */
static bool has_rows(const sl_st_tensor *t, const sl_tensor_place *p, unsigned n_tail,
                     uint64_t *cols) {
    unsigned lead = p->n_stack ? 1 : 0;
    uint64_t rows = p->index == SL_STACK_WHOLE && lead ? p->rows / p->n_stack : p->rows;
    if (t->n_dims != lead + 1 + n_tail || (lead && t->dims[0] != p->n_stack) ||
        t->dims[lead] != rows)
        return false;
    *cols = t->dims[lead + 1];
    return *cols > 0;
}

static void take(sl_matrix_source *out, unsigned part, sl_st_tensor *t, uint64_t row_bytes) {
    t->used = true;
    out->file[part] = t->file;
    out->row_bytes[part] = row_bytes;
    out->at[part] = t->offset + matrix_of(&out->place) * out->place.rows * row_bytes;
    out->end[part] = t->offset + t->bytes;
}

/* ---- matrices ------------------------------------------------------------------------------------ */

static sl_status resolve_affine(sl_st_tensor *w, sl_st_tensor *scales, sl_st_tensor *biases,
                                sl_matrix_source *out, sl_error *err) {
    const sl_tensor_place *p = &out->place;
    char expected[128];
    uint64_t words, n_groups, n_biases;
    if (!biases)
        return sl_fail(
            err, SL_ERR_UNSUPPORTED,
            "tensor '%.200s' has no biases beside it: not the affine quantization of MLX",
            scales->name);
    (void)snprintf(expected, sizeof(expected), "U32 with %u rows", p->rows);
    if (w->dtype != SL_DTYPE_U32 || !has_rows(w, p, 1, &words))
        return wrong_shape(w, expected, err);
    (void)snprintf(expected, sizeof(expected),
                   "%u rows of one scale for 32, 64 or 128 of %u inputs", p->rows, p->cols);
    if (!has_rows(scales, p, 1, &n_groups) || p->cols % n_groups)
        return wrong_shape(scales, expected, err);
    uint64_t group = p->cols / n_groups;
    if (group != 32 && group != 64 && group != 128)
        return wrong_shape(scales, expected, err);
    if (!has_rows(biases, p, 1, &n_biases) || n_biases != n_groups ||
        biases->dtype != scales->dtype)
        return wrong_shape(biases, "what the scales are", err);
    sl_status st = dense_type(scales, err);
    if (st)
        return st;
    uint64_t bits = words * 32 / p->cols;
    if (words * 32 % p->cols || bits > 8 || !sl_dtype_quantized((unsigned)bits, &out->in.dtype))
        return wrong_shape(w, "rows of 2, 3, 4, 5, 6 or 8 bits for each input", err);
    out->in.scale_dtype = scales->dtype;
    out->in.group = (uint32_t)group;
    uint64_t scale_row = n_groups * sl_dtype_bits(scales->dtype) / 8;
    take(out, 0, w, words * 4);
    take(out, 1, scales, scale_row);
    take(out, 2, biases, scale_row);
    return SL_OK;
}

// w: U32 words of 8 codes, or U8 blocks of 16 bytes for 32 inputs; the same bytes.
static sl_status resolve_mxfp4(sl_st_tensor *w, sl_st_tensor *scales, sl_matrix_source *out,
                               sl_error *err) {
    const sl_tensor_place *p = &out->place;
    bool blocks = p->suffix == SL_SUFFIX_BLOCKS;
    char expected[128];
    uint64_t n;
    (void)snprintf(expected, sizeof(expected), "%s with %u rows of 4 bits for each of %u inputs",
                   blocks ? "U8 blocks of 16" : "U32", p->rows, p->cols);
    if (!has_rows(w, p, blocks ? 2 : 1, &n) || p->cols % SL_MXFP4_GROUP ||
        n != p->cols / (blocks ? SL_MXFP4_GROUP : 8) ||
        w->dtype != (blocks ? SL_DTYPE_U8 : SL_DTYPE_U32) ||
        (blocks && w->dims[w->n_dims - 1] != SL_MXFP4_GROUP / 2))
        return wrong_shape(w, expected, err);
    (void)snprintf(expected, sizeof(expected), "U8 with %u rows of one for 32 of %u inputs",
                   p->rows, p->cols);
    if (!has_rows(scales, p, 1, &n) || n != p->cols / SL_MXFP4_GROUP ||
        scales->dtype != SL_DTYPE_U8)
        return wrong_shape(scales, expected, err);
    if (p->transposed)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "tensor '%.200s' is MXFP4 and would have to be turned on its side", w->name);
    out->in.dtype = SL_DTYPE_MXFP4;
    out->in.scale_dtype = SL_DTYPE_U8;
    out->in.group = SL_MXFP4_GROUP;
    take(out, 0, w, p->cols / 2);
    take(out, 1, scales, n);
    return SL_OK;
}

static sl_status resolve_f8(const sl_checkpoint *ck, const sl_tensor_spec *spec, sl_st_tensor *w,
                            sl_matrix_source *out, sl_error *err) {
    const sl_tensor_place *p = &out->place;
    char expected[96];
    uint64_t cols, rows = (p->rows + SL_F8_TILE - 1) / SL_F8_TILE,
                   tiles = (p->cols + SL_F8_TILE - 1) / SL_F8_TILE;
    sl_st_tensor *scales = find(ck, spec, p, ".weight_scale_inv");
    if (!scales || p->n_stack)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "tensor '%.200s' is F8_E4M3 and has no weight_scale_inv beside it", w->name);
    (void)snprintf(expected, sizeof(expected), "%u rows of %u", p->rows, p->cols);
    if (!has_rows(w, p, 1, &cols) || cols != p->cols)
        return wrong_shape(w, expected, err);
    (void)snprintf(expected, sizeof(expected), "F32 or BF16 [%llu, %llu]", (unsigned long long)rows,
                   (unsigned long long)tiles);
    if (scales->n_dims != 2 || scales->dims[0] != rows || scales->dims[1] != tiles ||
        (scales->dtype != SL_DTYPE_F32 && scales->dtype != SL_DTYPE_BF16))
        return wrong_shape(scales, expected, err);
    out->in.dtype = SL_DTYPE_F8_E4M3;
    out->in.scale_dtype = scales->dtype;
    take(out, 0, w, cols);
    take(out, 1, scales, tiles * sl_dtype_bits(scales->dtype) / 8);
    return SL_OK;
}

static sl_status resolve_dense(sl_st_tensor *w, sl_matrix_source *out, sl_error *err) {
    char expected[96];
    uint64_t cols;
    sl_status st = dense_type(w, err);
    if (st)
        return st;
    (void)snprintf(expected, sizeof(expected), "%u rows of %u", out->place.rows, out->place.cols);
    if (!has_rows(w, &out->place, 1, &cols) || cols != out->place.cols)
        return wrong_shape(w, expected, err);
    out->in.dtype = w->dtype;
    take(out, 0, w, cols * sl_dtype_bits(w->dtype) / 8);
    return SL_OK;
}

static sl_matrix_shape stored_shape(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                    const sl_matrix_source *s) {
    sl_matrix_shape out = {.dtype = s->in.dtype, .rows = spec->rows, .cols = spec->cols};
    if (s->in.dtype == SL_DTYPE_F8_E4M3)
        return sl__quantized_shape(spec, SL_DTYPE_BF16, ck->bits, ck->group);
    if (!sl_dtype_is_quantized(s->in.dtype))
        // Whoever quantized the rest left this one as it is for a reason.
        return ck->keeps_dense ? out : sl__quantized_shape(spec, s->in.dtype, ck->bits, ck->group);
    if (spec->cols % s->in.group) { // turned on its side, its rows are others
        out.dtype = s->in.scale_dtype;
        return out;
    }
    out.group = s->in.group;
    out.scale_dtype = s->in.scale_dtype;
    return out;
}

static uint64_t row_bytes_stored(const sl_matrix_source *s) {
    return s->row_bytes[0] + s->row_bytes[1] + s->row_bytes[2];
}

static sl_status resolve_matrix(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                sl_st_tensor *w, sl_matrix_source *out, sl_error *err) {
    const sl_tensor_place *p = &out->place;
    sl_status st;
    out->in.rows = p->rows;
    out->in.cols = p->cols;
    bool blocks = p->suffix == SL_SUFFIX_BLOCKS;
    sl_st_tensor *scales = find(ck, spec, p, blocks ? "_scales" : ".scales");
    if (blocks && !scales)
        return sl_fail(err, SL_ERR_MISSING, "tensor '%.200s' has no scales beside it", w->name);
    if (scales && (blocks || scales->dtype == SL_DTYPE_U8))
        st = resolve_mxfp4(w, scales, out, err);
    else if (scales)
        st = resolve_affine(w, scales, find(ck, spec, p, ".biases"), out, err);
    else if (w->dtype == SL_DTYPE_F8_E4M3)
        st = resolve_f8(ck, spec, w, out, err);
    else
        st = resolve_dense(w, out, err);
    if (st)
        return st;
    out->shape = stored_shape(ck, spec, out);
    out->copied = !p->transposed && out->shape.dtype == out->in.dtype;
    out->bytes = out->copied ? spec->rows * row_bytes_stored(out)
                             : (uint64_t)spec->rows * spec->cols * sl_dtype_bits(out->in.dtype) / 8;
    return SL_OK;
}

/* ---- vectors and convolutions ---------------------------------------------------------------------- */

static sl_status resolve_vector(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                sl_st_tensor *t, sl_matrix_source *out, sl_error *err) {
    char expected[64];
    const sl_tensor_place *p = &out->place;
    uint64_t n = p->cols;
    sl_status st = dense_type(t, err);
    if (st)
        return st;
    if (spec->kind == SL_TENSOR_CONV) {
        // [channels][width][1] in MLX, [channels][1][width] in HF: the same bytes.
        unsigned taps = ck->mlx ? 1 : 2;
        (void)snprintf(expected, sizeof(expected), ck->mlx ? "[%u, %u, 1]" : "[%u, 1, %u]",
                       spec->cols, spec->rows);
        if (t->n_dims != 3 || t->dims[0] != spec->cols || t->dims[taps] != spec->rows ||
            t->dims[3 - taps] != 1)
            return wrong_shape(t, expected, err);
        n *= spec->rows;
        out->convolution = true;
    } else {
        out->vector = true;
        unsigned lead = p->n_stack ? 1 : 0;
        if (lead)
            (void)snprintf(expected, sizeof(expected), "[%u, %u]", p->n_stack, p->cols);
        else
            (void)snprintf(expected, sizeof(expected), "[%u]", p->cols);
        if (t->n_dims != lead + 1 || (lead && t->dims[0] != p->n_stack) || t->dims[lead] != p->cols)
            return wrong_shape(t, expected, err);
    }
    out->in = (sl_matrix_shape){.dtype = t->dtype, .rows = 1, .cols = p->cols};
    out->shape = (sl_matrix_shape){.dtype = SL_DTYPE_F32, .rows = spec->rows, .cols = spec->cols};
    out->plus_one = spec->zero_centred && !ck->mlx;
    out->bytes = (uint64_t)spec->rows * spec->cols * sl_dtype_bits(t->dtype) / 8;
    take(out, 0, t, n * sl_dtype_bits(t->dtype) / 8);
    return SL_OK;
}

sl_status sl_checkpoint_resolve(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                uint32_t expert, sl_matrix_source *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    sl_st_tensor *t = sl__find_place(ck, spec, expert, &out->place);
    bool matrix = spec->kind == SL_TENSOR_MATRIX || spec->kind == SL_TENSOR_EXPERT;
    sl_status st;
    out->name = t ? t->name : "";
    uint32_t longest = SL_MAX(out->place.cols, spec->cols);
    if (!t)
        st = missing(ck, spec, expert, err);
    else if (longest > SL_ROW_MAX)
        st = sl_fail(err, SL_ERR_UNSUPPORTED,
                     "tensor '%.200s' has rows of %u, supported are up to %u", t->name, longest,
                     SL_ROW_MAX);
    else
        st = matrix ? resolve_matrix(ck, spec, t, out, err) : resolve_vector(ck, spec, t, out, err);
    if (st && err && sl_kind_is_expert(spec->kind)) {
        err->layer = (int32_t)spec->layer;
        err->expert = (int32_t)expert;
    }
    return st;
}
