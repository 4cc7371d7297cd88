/* A checkpoint as a whole, see checkpoint.h: its layout, and that everything is there. */
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/quantize.h"

#define OPEN_FILES_MAX 64u

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

static sl_status quantized_already(sl_error *err) {
    return sl_fail(
        err, SL_ERR_ARGUMENT,
        "the checkpoint is quantized already and its codes are kept: bits and group can be "
        "chosen for unquantized checkpoints, for FP8 ones, and where experts alone are MXFP4");
}

static sl_status find_prefixes(sl_checkpoint *ck, sl_error *err) {
    sl_tensor_spec embed, head;
    sl_tensor_place place;
    const char *prefix = NULL;
    sl_model_tensor(&ck->model, 0, &embed);
    sl_model_tensor(&ck->model, sl_model_tensors(&ck->model) - 1, &head);
    for (const char *const *p = sl_model_name_prefixes(&ck->model); *p; p++) {
        ck->prefix = *p;
        if (!sl__find_place(ck, &embed, 0, &place))
            continue;
        if (prefix)
            return sl_fail(err, SL_ERR_CORRUPT, "both '%s%s.weight' and '%s%s.weight' are there",
                           prefix, place.name, *p, place.name);
        prefix = *p;
    }
    ck->prefix = prefix;
    if (!prefix)
        return sl_fail(
            err, SL_ERR_MISSING,
            "no tensor 'embed_tokens.weight' under any prefix of family %s: these are not its "
            "weights",
            sl_model_family_name(&ck->model));
    const bool tied = ck->tied;
    const char *head_prefix = NULL;
    ck->tied = false; // to look for a head of its own
    for (const char *const *p = sl_model_head_prefixes(&ck->model); *p && !head_prefix; p++) {
        ck->head_prefix = *p;
        if (sl__find_place(ck, &head, 0, &place))
            head_prefix = *p;
    }
    ck->head_prefix = head_prefix;
    ck->tied = tied;
    if (!ck->tied && !ck->head_prefix) {
        sl_buf_add_text(ck->notes,
                        "no lm_head in the checkpoint: the embedding is used as the head\n");
        ck->tied = true;
    }
    return SL_OK;
}

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Which codes there are: ".scales" are MLX's, of which U8 belong to MXFP4, "_scales" Hugging Face's MXFP4. */
static sl_status find_quantized(sl_checkpoint *ck, sl_error *err) {
    for (uint32_t i = 0; i < ck->table.n_tensors; i++) {
        const sl_st_tensor *t = &ck->table.tensors[i];
        bool mlx = ends_with(t->name, ".scales"), u8 = t->dtype == SL_DTYPE_U8;
        ck->affine = ck->affine || (mlx && !u8);
        ck->mxfp4 = ck->mxfp4 || ((mlx || ends_with(t->name, "_scales")) && u8);
    }
    if (ck->affine && ck->asked)
        return quantized_already(err);
    ck->keeps_dense = (ck->affine || ck->mxfp4) && !ck->asked;
    return SL_OK;
}

/* Layout by what is there: the convolutions' axes, scales, stacked experts. It decides what zero-centred norms
 * hold; in families that have none nothing depends on it but the convolutions' axes. */
static sl_status decide_layout(sl_checkpoint *ck, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model), n_hf = 0, n_mlx = 0;
    bool forms = ck->affine, centred = false;
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_tensor_place place;
        sl_model_tensor(&ck->model, i, &spec);
        const sl_st_tensor *t = sl__find_place(ck, &spec, 0, &place);
        centred = centred || spec.zero_centred;
        forms = forms || (t && place.mlx);
        if (t && t->n_dims == 3 && spec.kind == SL_TENSOR_CONV) {
            n_hf += t->dims[1] == 1 && t->dims[2] != 1;
            n_mlx += t->dims[2] == 1 && t->dims[1] != 1;
        }
    }
    if (n_hf && n_mlx)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "%u convolutions are in the Hugging Face layout [channels, 1, width] and %u in "
            "MLX's [channels, width, 1]: one or the other is expected",
            n_hf, n_mlx);
    ck->mlx = n_mlx || (!n_hf && forms);
    if (!ck->mlx && forms && centred)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "the convolutions are in the Hugging Face layout, the %s in MLX's: whether norms "
            "hold w or 1 + w would be a guess",
            ck->affine ? "quantized weights" : "stacked experts");
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
        size_t size = sl_dtype_bits(source.in.dtype) / 8, taken = 0;
        double part = 0;
        for (uint32_t at = 0; at < spec.cols; at += (uint32_t)taken) {
            taken = SL_MIN((size_t)(spec.cols - at), SL_COUNT(values));
            if ((st = sl_checkpoint_read(ck, source.file[0], source.at[0] + at * size,
                                         source.end[0], raw, taken * size, err)))
                return st;
            sl_widen(raw, source.in.dtype, taken, values);
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

// The config's view of a module whose codes are kept against the file's.
static sl_status compare_rule(const sl_json *config, const sl_matrix_source *source,
                              uint32_t *n_differ, sl_error *err) {
    char path[SL_NAME_BYTES];
    bool found, affine = sl_dtype_is_affine(source->in.dtype);
    sl_quant_rule rule;
    (void)snprintf(path, sizeof(path), "%s", source->name);
    if (ends_with(path, ".weight"))
        path[strlen(path) - strlen(".weight")] = '\0';
    sl_status st = sl__quant_rule(config, path, &found, &rule, err);
    bool method = rule.method == (affine ? SL_QUANT_AFFINE : SL_QUANT_MXFP4) ||
                  (!affine && rule.method == SL_QUANT_MXFP4_EXPERTS);
    if (st == SL_OK &&
        (!method || rule.bits != sl_dtype_bits(source->in.dtype) || rule.group != source->in.group))
        ++*n_differ;
    return st;
}

/* How many matrices are of which kind; the experts of a layer count as one. */
typedef struct tally {
    uint32_t n_differ, n_dense, n_f8, n_again;
} tally;

static sl_status count_source(sl_checkpoint *ck, const sl_json *config, const sl_tensor_spec *spec,
                              const sl_matrix_source *s, tally *t, sl_error *err) {
    bool matrix = spec->kind == SL_TENSOR_MATRIX || spec->kind == SL_TENSOR_EXPERT;
    bool quantized = sl_dtype_is_quantized(s->in.dtype);
    if (quantized && ck->asked && spec->kind != SL_TENSOR_EXPERT)
        return quantized_already(err);
    t->n_dense += matrix && ck->keeps_dense && !quantized && s->in.dtype != SL_DTYPE_F8_E4M3;
    t->n_f8 += s->in.dtype == SL_DTYPE_F8_E4M3;
    t->n_again += quantized && !s->copied;
    return quantized ? compare_rule(config, s, &t->n_differ, err) : SL_OK;
}

static void tell_tally(sl_checkpoint *ck, const tally *t) {
    if (t->n_differ)
        sl_buf_printf(ck->notes,
                      "%u quantized modules have other bits or groups than config.json says: the "
                      "files count\n",
                      t->n_differ);
    if (t->n_dense)
        sl_buf_printf(ck->notes,
                      "%u matrices are not quantized in the checkpoint and stay as they are\n",
                      t->n_dense);
    if (t->n_f8)
        sl_buf_printf(ck->notes, "FP8 weights are requantized to %u bits, group %u\n", ck->bits,
                      ck->group);
    if (t->n_again)
        sl_buf_printf(ck->notes,
                      "%u quantized matrices are turned on their side: widened and quantized "
                      "again, with the same bits and groups\n",
                      t->n_again);
}

// Resolve everything once, so that nothing is found missing later; count what it takes.
static sl_status check_tensors(sl_checkpoint *ck, const sl_json *config, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model);
    tally t = {0};
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_matrix_source first, source;
        sl_status st;
        sl_model_tensor(&ck->model, i, &spec);
        if ((st = sl_checkpoint_resolve(ck, &spec, 0, &first, err)) ||
            (st = count_source(ck, config, &spec, &first, &t, err)))
            return st;
        ck->work_bytes += first.bytes;
        if (!sl_kind_is_expert(spec.kind))
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
            ck->work_bytes += source.bytes;
        }
    }
    tell_tally(ck, &t);
    return SL_OK;
}

static bool starts_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

// Is it of a layer past the model's last one? Multi-token prediction is stored so.
static bool is_past_the_end(const sl_checkpoint *ck, const char *name) {
    unsigned layer;
    return starts_with(name, ck->prefix) &&
           sscanf(name + strlen(ck->prefix), "layers.%9u.", &layer) == 1 &&
           layer >= ck->model.n_layers;
}

/* Every tensor is used, known to be of no use here, or reported; one that belongs to the text model and is
 * not in its list would change the answers. */
static sl_status check_leftovers(sl_checkpoint *ck, sl_error *err) {
    uint32_t n_unknown = 0, n_past = 0, n_known = 0;
    uint64_t past_bytes = 0;
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
            n_known++;
        } else if (is_past_the_end(ck, t->name)) {
            n_past++;
            past_bytes += t->bytes;
        } else if (ends_with(t->name, "rotary_emb.inv_freq")) {
            ck->n_skipped++; // follows from the config
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
    if (n_known)
        sl_buf_printf(ck->notes,
                      "%u tensors that this version does not use are left out (vision, multi-token "
                      "prediction)\n",
                      n_known);
    if (n_past)
        sl_buf_printf(ck->notes,
                      "%u tensors (%llu bytes) of layers from %u on are left out (multi-token "
                      "prediction)\n",
                      n_past, (unsigned long long)past_bytes, ck->model.n_layers);
    if (n_unknown)
        sl_buf_printf(ck->notes, "%u unknown tensors are left out, the first is '%.200s'\n",
                      n_unknown, unknown);
    ck->n_skipped += n_known + n_past + n_unknown;
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
    ck->asked = options->bits || options->group;
    ck->moving = options->moving;
    sl_buf_init(&ck->config);
    sl_buf_init(&ck->generation);
    sl_buf_init(&ck->file_names);
    sl_st_table_init(&ck->table);
    const bool frugal = options->frugal;
    if ((st = sl_ahead_open(&ck->ahead, frugal ? SL_AHEAD_PIECES_MIN : SL_AHEAD_PIECES,
                            frugal ? SL_AHEAD_PIECE_MIN : SL_AHEAD_PIECE, err)) ||
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
    if (st || (st = sl__parse_text(&ck->config, "config.json", &config_tree, &config, err)) ||
        (ck->generation.len && (st = sl__parse_text(&ck->generation, "generation_config.json",
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
    if ((st = find_quantized(ck, err)) || (st = find_prefixes(ck, err)) ||
        (st = decide_layout(ck, err)) || (st = check_norms(ck, err)))
        goto fail;
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

// The table is twice as large for a moment when it grows, and so are the names; an index is shorter than the names.
uint64_t sl_checkpoint_open_bytes(const sl_checkpoint *ck) {
    uint64_t tensors = (uint64_t)ck->table.n_tensors * (3 * sizeof(sl_st_tensor) + SL_NAME_BYTES);
    uint64_t trees = (ck->config.len + ck->generation.len) * (SL_CONFIG_TREE_FACTOR + 2);
    return tensors + trees + ck->header_bytes + SL_AHEAD_PIECES_MIN * SL_AHEAD_PIECE_MIN + SL_MIB;
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
