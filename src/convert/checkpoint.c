/* From the model's tensor list to places in a checkpoint's files, see checkpoint.h. */
#include "convert/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "convert/checkpoint_internal.h"
#include "convert/quantize.h"

#define NAME_MAX_BYTES 192u
#define OPEN_FILES_MAX 64u

/* ---- options and config ------------------------------------------------------------------------ */

sl_status sl__check_options(const sl_checkpoint_options *options, uint32_t *bits, uint32_t *group,
                            sl_error *err) {
    sl_dtype dtype;
    *bits = options->bits ? options->bits : 4;
    *group = options->group ? options->group : 64;
    if (!sl_dtype_quantized(*bits, &dtype))
        return sl_fail(err, SL_ERR_ARGUMENT, "%u bits: expected 2, 3, 4, 5, 6 or 8", *bits);
    if (*group != 32 && *group != 64 && *group != 128)
        return sl_fail(err, SL_ERR_ARGUMENT, "a group of %u: expected 32, 64 or 128", *group);
    return SL_OK;
}

static sl_status read_rule(const sl_json *section, const char *name, sl_quant_rule *out,
                           sl_error *err) {
    const sl_json *mode = sl_json_member_set(section, "mode");
    const struct {
        const char *key;
        uint32_t *out;
    } numbers[] = {{"bits", &out->bits}, {"group_size", &out->group}};
    if (mode && !sl_json_text_is(mode, "affine"))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: quantization mode '%.40s' of %.120s, supported is affine",
                       mode->text ? mode->text : "?", name);
    for (size_t i = 0; i < SL_COUNT(numbers); i++) {
        uint64_t v;
        const sl_json *n = sl_json_member_set(section, numbers[i].key);
        if (n && (!sl_json_uint64(n, &v) || v == 0 || v > 1024))
            return sl_fail(err, SL_ERR_CORRUPT,
                           "config.json: quantization of %.120s: '%s' is no sensible number", name,
                           numbers[i].key);
        if (n)
            *numbers[i].out = (uint32_t)v;
    }
    return SL_OK;
}

sl_status sl__quant_rule(const sl_json *config, const char *path, bool *found, sl_quant_rule *out,
                         sl_error *err) {
    const sl_json *q = sl_json_member_set(config, "quantization");
    if (!q)
        q = sl_json_member_set(config, "quantization_config");
    *found = q != NULL;
    *out = (sl_quant_rule){.quantized = q != NULL};
    if (!q)
        return SL_OK;
    const sl_json *method = sl_json_member_set(q, "quant_method");
    if (method)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: weights quantized with '%.40s', supported is the affine "
                       "quantization of MLX",
                       method->text ? method->text : "?");
    const sl_json *own = path ? sl_json_member_set(q, path) : NULL;
    sl_status st = read_rule(q, "the model", out, err);
    if (st || !own)
        return st;
    if (sl_json_is(own, SL_JSON_FALSE)) {
        out->quantized = false;
        return SL_OK;
    }
    return read_rule(own, path, out, err);
}

sl_matrix_shape sl__quantized_shape(const sl_tensor_spec *spec, sl_dtype dtype, uint32_t bits,
                                    uint32_t group) {
    sl_matrix_shape s = {.dtype = dtype, .rows = spec->rows, .cols = spec->cols};
    // Routers decide between close scores: MLX keeps them at 8 bits whatever was asked.
    bits = spec->router ? 8 : bits;
    group = spec->router ? 64 : group;
    if (spec->cols % group == 0 && sl_dtype_quantized(bits, &s.dtype)) {
        s.group = group;
        s.scale_dtype = dtype;
    }
    return s;
}

static sl_status parse_text(const sl_buf *text, const char *name, sl_arena *tree, sl_json **out,
                            sl_error *err) {
    sl_status st = sl_arena_map(tree, name, text->len * SL_CONFIG_TREE_FACTOR + SL_PAGE, err);
    if (st == SL_OK &&
        (st = sl_json_parse(text->data ? text->data : "", text->len, tree, out, err)))
        st = sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "%s", name);
    return st;
}

/* ---- one tensor -------------------------------------------------------------------------------- */

/* What to look for: `base` + ".weight" (or base itself), as `n_stack` matrices of `stack_rows` rows, of which
 * spec->rows from `first_row` of matrix `index` are meant. n_stack 0: one matrix without that dimension. */
typedef struct lookup {
    const char *base, *suffix;
    uint32_t n_stack, index, stack_rows, first_row;
} lookup;

static void join(char *out, const char *a, const char *b, const char *c) {
    (void)snprintf(out, NAME_MAX_BYTES, "%s%s%s", a, b, c);
}

static sl_st_tensor *find3(const sl_checkpoint *ck, const char *a, const char *b, const char *c) {
    char name[NAME_MAX_BYTES];
    join(name, a, b, c);
    return sl_st_find(&ck->table, name);
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

// [n_stack][stack_rows][*] or, without a stack, [stack_rows][*].
static bool has_rows(const sl_st_tensor *t, const lookup *l, uint64_t *cols) {
    unsigned lead = l->n_stack ? 1 : 0;
    if (t->n_dims != lead + 2 || (lead && t->dims[0] != l->n_stack) ||
        t->dims[lead] != l->stack_rows)
        return false;
    *cols = t->dims[lead + 1];
    return *cols > 0;
}

static sl_status dense_type(const sl_st_tensor *t, sl_error *err) {
    if (t->dtype == SL_DTYPE_BF16 || t->dtype == SL_DTYPE_F16 || t->dtype == SL_DTYPE_F32)
        return SL_OK;
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "tensor '%.200s' is of type %s, supported are BF16, F16, F32 and the affine "
                   "quantization of MLX (U32 with scales and biases)",
                   t->name, t->dtype_name);
}

static void place(sl_matrix_source *out, unsigned part, sl_st_tensor *t, uint64_t first_row,
                  uint64_t rows, uint64_t row_bytes) {
    t->used = true;
    out->file[part] = t->file;
    out->at[part] = t->offset + first_row * row_bytes;
    out->bytes[part] = rows * row_bytes;
    out->end[part] = t->offset + t->bytes;
}

static sl_status resolve_affine(const sl_tensor_spec *spec, const lookup *l, sl_st_tensor *w,
                                sl_st_tensor *scales, sl_st_tensor *biases, sl_matrix_source *out,
                                sl_error *err) {
    char expected[128];
    uint64_t words, n_groups, n_biases;
    if (!biases)
        return sl_fail(
            err, SL_ERR_UNSUPPORTED,
            "tensor '%.200s' has no biases beside it: not the affine quantization of MLX",
            scales->name);
    (void)snprintf(expected, sizeof(expected), "U32 with %u rows", l->stack_rows);
    if (w->dtype != SL_DTYPE_U32 || !has_rows(w, l, &words))
        return wrong_shape(w, expected, err);
    (void)snprintf(expected, sizeof(expected),
                   "%u rows of one scale for 32, 64 or 128 of %u inputs", l->stack_rows,
                   spec->cols);
    if (!has_rows(scales, l, &n_groups) || spec->cols % n_groups)
        return wrong_shape(scales, expected, err);
    uint64_t group = spec->cols / n_groups;
    if (group != 32 && group != 64 && group != 128)
        return wrong_shape(scales, expected, err);
    if (!has_rows(biases, l, &n_biases) || n_biases != n_groups || biases->dtype != scales->dtype)
        return wrong_shape(biases, "what the scales are", err);
    sl_status st = dense_type(scales, err);
    if (st)
        return st;
    uint64_t bits = words * 32 / spec->cols;
    if (words * 32 % spec->cols || bits > 8 ||
        !sl_dtype_quantized((unsigned)bits, &out->shape.dtype))
        return wrong_shape(w, "rows of 2, 3, 4, 5, 6 or 8 bits for each input", err);
    out->affine = true;
    out->shape.scale_dtype = scales->dtype;
    out->shape.group = (uint32_t)group;
    uint64_t first = (uint64_t)l->index * l->stack_rows + l->first_row;
    uint64_t scale_row = n_groups * sl_dtype_bits(scales->dtype) / 8;
    place(out, 0, w, first, spec->rows, words * 4);
    place(out, 1, scales, first, spec->rows, scale_row);
    place(out, 2, biases, first, spec->rows, scale_row);
    return SL_OK;
}

static sl_status resolve_dense(const sl_checkpoint *ck, const sl_tensor_spec *spec, const lookup *l,
                               sl_st_tensor *w, sl_matrix_source *out, sl_error *err) {
    char expected[96];
    uint64_t cols;
    sl_status st = dense_type(w, err);
    if (st)
        return st;
    (void)snprintf(expected, sizeof(expected), "%u rows of %u", l->stack_rows, spec->cols);
    if (!has_rows(w, l, &cols) || cols != spec->cols)
        return wrong_shape(w, expected, err);
    out->dtype = w->dtype;
    // Whoever quantized the rest left this one as it is for a reason.
    if (ck->quantized)
        out->shape = (sl_matrix_shape){.dtype = w->dtype, .rows = spec->rows, .cols = spec->cols};
    else
        out->shape = sl__quantized_shape(spec, w->dtype, ck->bits, ck->group);
    place(out, 0, w, (uint64_t)l->index * l->stack_rows + l->first_row, spec->rows,
          cols * sl_dtype_bits(w->dtype) / 8);
    return SL_OK;
}

static sl_status resolve_matrix(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                const char *prefix, const lookup *l, sl_matrix_source *out,
                                sl_error *err) {
    sl_st_tensor *w = find3(ck, prefix, l->base, l->suffix);
    if (!w)
        return sl_fail(err, SL_ERR_MISSING, "tensor '%.100s%.100s%s' is not in the checkpoint",
                       prefix, l->base, l->suffix);
    out->name = w->name;
    out->shape.rows = spec->rows;
    out->shape.cols = spec->cols;
    sl_st_tensor *scales = find3(ck, prefix, l->base, ".scales");
    if (scales)
        return resolve_affine(spec, l, w, scales, find3(ck, prefix, l->base, ".biases"), out, err);
    return resolve_dense(ck, spec, l, w, out, err);
}

static sl_status resolve_vector(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                sl_matrix_source *out, sl_error *err) {
    char expected[64];
    sl_st_tensor *t = find3(ck, ck->prefix, spec->name, "");
    if (!t)
        return sl_fail(err, SL_ERR_MISSING, "tensor '%.100s%.100s' is not in the checkpoint",
                       ck->prefix, spec->name);
    sl_status st = dense_type(t, err);
    if (st)
        return st;
    if (spec->kind == SL_TENSOR_VECTOR) {
        (void)snprintf(expected, sizeof(expected), "[%u]", spec->cols);
        if (t->n_dims != 1 || t->dims[0] != spec->cols)
            return wrong_shape(t, expected, err);
    } else {
        // [channels][width][1] in MLX, [channels][1][width] in HF: the same bytes.
        unsigned taps = ck->mlx ? 1 : 2;
        (void)snprintf(expected, sizeof(expected), ck->mlx ? "[%u, %u, 1]" : "[%u, 1, %u]",
                       spec->cols, spec->rows);
        if (t->n_dims != 3 || t->dims[0] != spec->cols || t->dims[taps] != spec->rows ||
            t->dims[3 - taps] != 1)
            return wrong_shape(t, expected, err);
        out->transposed = true;
    }
    out->name = t->name;
    out->dtype = t->dtype;
    out->shape = (sl_matrix_shape){.dtype = SL_DTYPE_F32, .rows = spec->rows, .cols = spec->cols};
    out->plus_one = spec->zero_centred && !ck->mlx;
    place(out, 0, t, 0, 1, (uint64_t)spec->rows * spec->cols * sl_dtype_bits(t->dtype) / 8);
    return SL_OK;
}

static sl_status resolve_expert(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                uint32_t expert, sl_matrix_source *out, sl_error *err) {
    sl_expert_names names;
    sl_tensor_expert_names(&ck->model, spec, expert, &names);
    uint32_t n = ck->model.moe.n_experts;
    lookup l = {names.stacked, ".weight", n, expert, spec->rows, 0};
    if (!find3(ck, ck->prefix, names.stacked, ".weight")) {
        if (find3(ck, ck->prefix, names.fused, ""))
            l = (lookup){names.fused, "", n, expert, names.fused_rows, names.fused_row};
        else
            l = (lookup){names.single, ".weight", 0, 0, spec->rows, 0};
    }
    sl_status st = resolve_matrix(ck, spec, ck->prefix, &l, out, err);
    if (st && err) {
        err->layer = (int32_t)spec->layer;
        err->expert = (int32_t)expert;
    }
    return st;
}

sl_status sl_checkpoint_resolve(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                                uint32_t expert, sl_matrix_source *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    if (spec->kind == SL_TENSOR_EXPERT)
        return resolve_expert(ck, spec, expert, out, err);
    if (spec->kind != SL_TENSOR_MATRIX)
        return resolve_vector(ck, spec, out, err);
    lookup l = {spec->name, ".weight", 0, 0, spec->rows, 0};
    const char *prefix = ck->prefix;
    sl_tensor_spec embed;
    if (spec->role == SL_ROLE_HEAD && ck->tied) {
        sl_model_tensor(&ck->model, 0, &embed);
        l.base = embed.name;
    } else if (spec->role == SL_ROLE_HEAD) {
        prefix = ck->head_prefix;
    }
    return resolve_matrix(ck, spec, prefix, &l, out, err);
}

uint64_t sl_matrix_source_bytes(const sl_matrix_source *source) {
    return source->bytes[0] + source->bytes[1] + source->bytes[2];
}

static void close_file(sl_checkpoint *ck, sl_file *file) {
    sl_ahead_forget(&ck->ahead, file);
    // A buffered file drops what it reads, but for the pages at both ends of a piece. Only a courtesy.
    if (file->fd >= 0 && !file->direct) {
        sl_status dropped = sl_file_drop_cache(file->fd, NULL);
        (void)dropped;
    }
    sl_file_close(file);
}

static sl_status open_file(sl_checkpoint *ck, uint32_t file, sl_error *err) {
    char path[SL_PATH_MAX];
    uint32_t n_open = 0;
    for (uint32_t i = 0; i < ck->n_files; i++)
        n_open += ck->opened[i].fd >= 0;
    for (uint32_t i = 0; i < ck->n_files && n_open >= OPEN_FILES_MAX; i++)
        close_file(ck, &ck->opened[i]);
    sl_status st = sl_path_join(ck->path, ck->files[file], path, sizeof(path), err);
    if (st)
        return st;
    st = sl_file_open(path, true, &ck->opened[file], err);
    return st == SL_ERR_UNSUPPORTED ? sl_file_open(path, false, &ck->opened[file], err) : st;
}

sl_status sl_checkpoint_read(sl_checkpoint *ck, uint32_t file, uint64_t offset, uint64_t end,
                             void *out, size_t n, sl_error *err) {
    const sl_file *f = &ck->opened[file];
    sl_status st = f->fd < 0 ? open_file(ck, file, err) : SL_OK;
    if (st == SL_OK)
        st = f->direct ? sl_ahead_read(&ck->ahead, f, offset, end, out, n, err)
                       : sl_file_read(f, out, n, offset, NULL, err);
    return st ? sl_error_context(err, st, "%s", ck->files[file]) : SL_OK;
}

/* ---- the whole checkpoint ---------------------------------------------------------------------- */

static sl_status find_prefixes(sl_checkpoint *ck, sl_error *err) {
    sl_tensor_spec embed;
    sl_model_tensor(&ck->model, 0, &embed);
    for (const char *const *p = sl_model_name_prefixes(&ck->model); *p; p++) {
        if (!find3(ck, *p, embed.name, ".weight"))
            continue;
        if (ck->prefix)
            return sl_fail(err, SL_ERR_CORRUPT, "both '%s%s.weight' and '%s%s.weight' are there",
                           ck->prefix, embed.name, *p, embed.name);
        ck->prefix = *p;
    }
    if (!ck->prefix)
        return sl_fail(
            err, SL_ERR_MISSING,
            "no tensor '%s.weight' under any prefix of family %s: these are not its weights",
            embed.name, sl_model_family_name(&ck->model));
    for (const char *const *p = sl_model_head_prefixes(&ck->model); *p && !ck->head_prefix; p++)
        if (find3(ck, *p, "lm_head", ".weight"))
            ck->head_prefix = *p;
    if (!ck->tied && !ck->head_prefix) {
        sl_buf_add_text(ck->notes,
                        "no lm_head in the checkpoint: the embedding is used as the head\n");
        ck->tied = true;
    }
    return SL_OK;
}

// Layout by what is there: the convolutions' axes, scales, stacked experts.
static sl_status decide_layout(sl_checkpoint *ck, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model), n_hf = 0, n_mlx = 0;
    bool stacked = false;
    for (uint32_t i = 0; i < ck->table.n_tensors; i++) {
        const char *dot = strrchr(ck->table.tensors[i].name, '.');
        ck->quantized = ck->quantized || (dot && strcmp(dot, ".scales") == 0);
    }
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_expert_names names;
        sl_model_tensor(&ck->model, i, &spec);
        if (spec.kind == SL_TENSOR_EXPERT) {
            sl_tensor_expert_names(&ck->model, &spec, 0, &names);
            stacked = stacked || find3(ck, ck->prefix, names.stacked, ".weight");
        } else if (spec.kind == SL_TENSOR_CONV) {
            const sl_st_tensor *t = find3(ck, ck->prefix, spec.name, "");
            n_hf += t && t->n_dims == 3 && t->dims[1] == 1 && t->dims[2] != 1;
            n_mlx += t && t->n_dims == 3 && t->dims[2] == 1 && t->dims[1] != 1;
        }
    }
    if (n_hf && n_mlx)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "%u convolutions are in the Hugging Face layout [channels, 1, width] and %u in "
            "MLX's [channels, width, 1]: one or the other is expected",
            n_hf, n_mlx);
    ck->mlx = n_mlx || (!n_hf && (ck->quantized || stacked));
    if (!ck->mlx && (ck->quantized || stacked))
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "the convolutions are in the Hugging Face layout, the %s in MLX's: whether norms "
            "hold w or 1 + w would be a guess",
            ck->quantized ? "quantized weights" : "stacked experts");
    return SL_OK;
}

/* Zero-centred norms hold values near 0 in the Hugging Face layout, near 1 in MLX's. The mean over all of
 * them must say the same as the layout: a wrong 1 makes a model that answers nonsense. */
static sl_status check_norms(sl_checkpoint *ck, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model), n_norms = 0;
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_matrix_source source;
        sl_status st;
        sl_model_tensor(&ck->model, i, &spec);
        if (!spec.zero_centred)
            continue;
        if ((st = sl_checkpoint_resolve(ck, &spec, 0, &source, err)))
            return st;
        uint8_t raw[4096];
        float values[1024];
        size_t size = sl_dtype_bits(source.dtype) / 8, taken = 0;
        double part = 0;
        for (uint32_t at = 0; at < spec.cols; at += (uint32_t)taken) {
            taken = SL_MIN((size_t)(spec.cols - at), SL_COUNT(values));
            if ((st = sl_checkpoint_read(ck, source.file[0], source.at[0] + at * size,
                                         source.end[0], raw, taken * size, err)))
                return st;
            sl_widen(raw, source.dtype, taken, values);
            for (size_t k = 0; k < taken; k++)
                part += (double)values[k];
        }
        if (!isfinite(part))
            return sl_fail(err, SL_ERR_CORRUPT, "tensor '%.200s' holds values that are not finite",
                           source.name);
        sum += part / spec.cols;
        n_norms++;
    }
    double mean = n_norms ? sum / n_norms : ck->mlx;
    if ((fabs(mean - 1) < fabs(mean)) != ck->mlx)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "the layout is %s, in which norm weights are near %d, but their mean is %.3f: "
            "whether they hold w or 1 + w would be a guess",
            ck->mlx ? "MLX's" : "Hugging Face's", ck->mlx, mean);
    return SL_OK;
}

// The config's view of a quantized module against the file's.
static sl_status compare_rule(const sl_json *config, const sl_matrix_source *source,
                              uint32_t *n_differ, sl_error *err) {
    char path[NAME_MAX_BYTES];
    bool found;
    sl_quant_rule rule;
    (void)snprintf(path, sizeof(path), "%s", source->name);
    char *dot = strrchr(path, '.');
    if (dot && strcmp(dot, ".weight") == 0)
        *dot = '\0';
    sl_status st = sl__quant_rule(config, path, &found, &rule, err);
    if (st == SL_OK &&
        (!found || !rule.quantized || rule.bits != sl_dtype_bits(source->shape.dtype) ||
         rule.group != source->shape.group))
        ++*n_differ;
    return st;
}

// Resolve everything once, so that nothing is found missing later; count what it takes.
static sl_status check_tensors(sl_checkpoint *ck, const sl_json *config, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model), n_differ = 0, n_dense = 0;
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_matrix_source first, source;
        sl_status st;
        sl_model_tensor(&ck->model, i, &spec);
        if ((st = sl_checkpoint_resolve(ck, &spec, 0, &first, err)) ||
            (first.affine && (st = compare_rule(config, &first, &n_differ, err))))
            return st;
        n_dense += spec.kind != SL_TENSOR_VECTOR && spec.kind != SL_TENSOR_CONV && !first.affine;
        ck->work_bytes += sl_matrix_source_bytes(&first);
        if (spec.kind != SL_TENSOR_EXPERT)
            continue;
        for (uint32_t e = 1; e < ck->model.moe.n_experts; e++) {
            if ((st = sl_checkpoint_resolve(ck, &spec, e, &source, err)))
                return st;
            if (source.shape.dtype != first.shape.dtype ||
                source.shape.group != first.shape.group ||
                source.shape.scale_dtype != first.shape.scale_dtype)
                return sl_fail_at(err, SL_ERR_UNSUPPORTED, (int32_t)spec.layer, (int32_t)e, 0,
                                  "layer %u: '%.200s' is stored otherwise than expert 0; this "
                                  "version stores all experts alike",
                                  spec.layer, source.name);
            ck->work_bytes += sl_matrix_source_bytes(&source);
        }
    }
    if (n_differ)
        sl_buf_printf(ck->notes,
                      "%u quantized modules have other bits or groups than config.json says: the "
                      "files count\n",
                      n_differ);
    if (ck->quantized && n_dense)
        sl_buf_printf(ck->notes,
                      "%u matrices are not quantized in the checkpoint and stay as they are\n",
                      n_dense);
    return SL_OK;
}

static bool starts_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* Every tensor is used, known to be of no use here, or reported; one that belongs to the text model and is
 * not in its list would change the answers. */
static sl_status check_leftovers(sl_checkpoint *ck, sl_error *err) {
    uint32_t n_unknown = 0;
    const char *unknown = NULL;
    for (uint32_t i = 0; i < ck->table.n_tensors; i++) {
        const sl_st_tensor *t = &ck->table.tensors[i];
        if (t->used) {
            ck->n_used++;
            continue;
        }
        bool unused = ck->tied && ck->head_prefix && starts_with(t->name, ck->head_prefix) &&
                      starts_with(t->name + strlen(ck->head_prefix), "lm_head.");
        for (const char *const *p = sl_model_unused_prefixes(&ck->model); *p && !unused; p++)
            unused = starts_with(t->name, *p);
        if (unused) {
            ck->n_skipped++;
        } else if (starts_with(t->name, ck->prefix)) {
            return sl_fail(
                err, SL_ERR_UNSUPPORTED,
                "tensor '%.200s' is not one that family %s has: leaving it out would change "
                "the answers",
                t->name, sl_model_family_name(&ck->model));
        } else {
            unknown = unknown ? unknown : t->name;
            n_unknown++;
        }
    }
    if (ck->n_skipped)
        sl_buf_printf(ck->notes,
                      "%u tensors that this version does not use are left out (vision, multi-token "
                      "prediction)\n",
                      ck->n_skipped);
    if (n_unknown)
        sl_buf_printf(ck->notes, "%u unknown tensors are left out, the first is '%.200s'\n",
                      n_unknown, unknown);
    ck->n_skipped += n_unknown;
    return SL_OK;
}

// A text of the folder; one that is not there leaves the buffer empty.
static sl_status slurp(const sl_checkpoint *ck, const char *name, sl_buf *out, sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st = sl_path_join(ck->path, name, path, sizeof(path), err);
    if (st == SL_OK)
        st = sl_file_slurp(path, SL_CONFIG_MAX, out, err);
    return st;
}

sl_status sl_checkpoint_open(const char *path, const sl_checkpoint_options *options, sl_buf *notes,
                             sl_checkpoint *ck, sl_error *err) {
    sl_status st;
    sl_path_info info;
    sl_arena config_tree = {0}, generation_tree = {0};
    sl_json *config = NULL, *generation = NULL;
    bool found;
    sl_quant_rule rule;

    memset(ck, 0, sizeof(*ck));
    ck->notes = notes;
    sl_buf_init(&ck->config);
    sl_buf_init(&ck->generation);
    sl_buf_init(&ck->file_names);
    sl_st_table_init(&ck->table);
    if ((st = sl_ahead_open(&ck->ahead, err)) ||
        (st = sl__check_options(options, &ck->bits, &ck->group, err)) ||
        (st = sl_path_trim(path, ck->path, sizeof(ck->path), err)) ||
        (st = sl_path_stat(ck->path, &info, err)))
        goto fail;
    if (info.kind != SL_PATH_FOLDER) {
        st = sl_fail(err, info.kind == SL_PATH_NONE ? SL_ERR_MISSING : SL_ERR_UNSUPPORTED,
                     "a folder with config.json and .safetensors files is expected%s",
                     info.kind == SL_PATH_NONE
                         ? ", and nothing is there"
                         : "; single files (GGUF and others) are not supported yet");
        goto fail;
    }
    // First the files: a folder of another format has no config.json either, and deserves a better answer.
    if ((st = sl__checkpoint_files(ck, err)) || (st = slurp(ck, "config.json", &ck->config, err)))
        goto fail;
    st = slurp(ck, "generation_config.json", &ck->generation, err);
    if (st == SL_ERR_MISSING) {
        sl_buf_add_text(notes, "no generation_config.json: no sampling defaults, and end tokens "
                               "come from the other configs\n");
        st = SL_OK;
    }
    if (st || (st = parse_text(&ck->config, "config.json", &config_tree, &config, err)) ||
        (ck->generation.len && (st = parse_text(&ck->generation, "generation_config.json",
                                                &generation_tree, &generation, err))))
        goto fail;
    if (generation && !sl_json_is(generation, SL_JSON_OBJECT)) {
        st = sl_fail(err, SL_ERR_CORRUPT, "generation_config.json: expected an object");
        goto fail;
    }
    // Open reads it from the store again: what it would refuse ends the conversion.
    sl_store sampling = {0};
    if ((st = sl_store_sampling_from_json(generation, &sampling, err))) {
        st = sl_error_context(err, st, "generation_config.json");
        goto fail;
    }
    if ((st = sl_model_from_config(config, generation, &ck->model, notes, err)) ||
        (st = sl__quant_rule(config, NULL, &found, &rule, err)))
        goto fail;
    ck->tied = ck->model.tied_head;
    ck->model.tied_head = false;
    if ((st = find_prefixes(ck, err)) || (st = decide_layout(ck, err)) ||
        (st = check_norms(ck, err)))
        goto fail;
    if (ck->quantized && (options->bits || options->group)) {
        st = sl_fail(
            err, SL_ERR_ARGUMENT,
            "the checkpoint is quantized already and its codes are kept: bits and group can be "
            "chosen for unquantized checkpoints only");
        goto fail;
    }
    if ((st = check_tensors(ck, config, err)) || (st = check_leftovers(ck, err)))
        goto fail;
    if (notes->failed) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for notes");
        goto fail;
    }
    sl_arena_unmap(&config_tree);
    sl_arena_unmap(&generation_tree);
    return SL_OK;
fail:
    sl_arena_unmap(&config_tree);
    sl_arena_unmap(&generation_tree);
    sl_checkpoint_close(ck);
    return sl_error_context(err, st, "checkpoint '%.200s'", path);
}

void sl_checkpoint_close(sl_checkpoint *ck) {
    for (uint32_t i = 0; i < ck->n_files && ck->opened; i++)
        close_file(ck, &ck->opened[i]);
    sl_ahead_close(&ck->ahead);
    sl_mem_free(ck->opened);
    sl_mem_free(ck->files);
    sl_buf_deinit(&ck->file_names);
    sl_buf_deinit(&ck->config);
    sl_buf_deinit(&ck->generation);
    sl_st_table_deinit(&ck->table);
    memset(ck, 0, sizeof(*ck));
}

/* ---- numbers without a store -------------------------------------------------------------------- */

static sl_status shape_in_checkpoint(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                                     sl_error *err) {
    sl_matrix_source source;
    sl_status st = sl_checkpoint_resolve(user, spec, 0, &source, err);
    *out = source.shape;
    return st;
}

sl_status sl_checkpoint_describe(const sl_checkpoint *ck, sl_store *out, sl_error *err) {
    // The callback only resolves, which takes the checkpoint const.
    void *user = (void *)(uintptr_t)ck;
    sl_status st = sl_store_describe(&ck->model, shape_in_checkpoint, user, out, err);
    if (st == SL_OK)
        out->source_hash = ck->fingerprint;
    return st;
}

typedef struct config_shapes {
    const sl_model *model;
    const sl_json *config;
    uint32_t bits, group;
} config_shapes;

// Without files: BF16 weights, or what the quantization section says.
static sl_status shape_in_config(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                                 sl_error *err) {
    const config_shapes *c = user;
    char path[NAME_MAX_BYTES];
    sl_expert_names names;
    bool found;
    sl_quant_rule rule;
    if (spec->kind == SL_TENSOR_VECTOR || spec->kind == SL_TENSOR_CONV) {
        *out = (sl_matrix_shape){.dtype = SL_DTYPE_F32, .rows = spec->rows, .cols = spec->cols};
        return SL_OK;
    }
    const char *name = spec->name, *prefix = sl_model_name_prefixes(c->model)[0];
    if (spec->kind == SL_TENSOR_EXPERT) {
        sl_tensor_expert_names(c->model, spec, 0, &names);
        name = names.stacked;
    } else if (spec->role == SL_ROLE_HEAD) {
        prefix = sl_model_head_prefixes(c->model)[0];
    }
    join(path, prefix, name, "");
    *out = sl__quantized_shape(spec, SL_DTYPE_BF16, c->bits, c->group);
    sl_status st = sl__quant_rule(c->config, path, &found, &rule, err);
    if (st || !found)
        return st;
    *out = (sl_matrix_shape){.dtype = SL_DTYPE_BF16, .rows = spec->rows, .cols = spec->cols};
    if (rule.quantized && rule.group && spec->cols % rule.group == 0 &&
        sl_dtype_quantized(rule.bits, &out->dtype)) {
        out->group = rule.group;
        out->scale_dtype = SL_DTYPE_BF16;
    }
    return SL_OK;
}

sl_status sl_config_describe(const char *text, size_t len, const sl_checkpoint_options *options,
                             sl_store *out, sl_error *err) {
    config_shapes c = {0};
    sl_arena tree = {0};
    sl_json *config;
    sl_model model;
    const sl_buf in = {.data = (char *)(uintptr_t)text, .len = len};
    memset(out, 0, sizeof(*out));
    sl_status st = sl__check_options(options, &c.bits, &c.group, err);
    if (st || (st = parse_text(&in, "config.json", &tree, &config, err)) ||
        (st = sl_model_from_config(config, NULL, &model, NULL, err)))
        goto done;
    model.tied_head = false;
    c.config = config;
    c.model = &model;
    st = sl_store_describe(&model, shape_in_config, &c, out, err);
done:
    sl_arena_unmap(&tree);
    return st;
}
