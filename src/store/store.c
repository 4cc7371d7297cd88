/* Layouts and numbers of a store. No I/O: opening is store_open.c, the manifest store_manifest.c. */
#include "store/store.h"

#include <stdio.h>
#include <string.h>

#include "kernels/ref/widen.h"
#include "store/store_internal.h"

#define EMBED_ALIGN 16u
/* Tensors from here on begin on a page, so that direct I/O takes them without a detour. */
#define PAGED_BYTES (64 * SL_KIB)

void sl__hash_text(sl_hash128 hash, char out[SL_STORE_HEX + 1]) {
    (void)snprintf(out, SL_STORE_HEX + 1, "%016llx%016llx", (unsigned long long)hash.high,
                   (unsigned long long)hash.low);
}

bool sl__hash_from_text(const char *text, size_t len, sl_hash128 *out) {
    uint64_t half[2] = {0, 0};
    if (len != SL_STORE_HEX)
        return false;
    for (size_t i = 0; i < SL_STORE_HEX; i++) {
        char c = text[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)d;
    }
    *out = (sl_hash128){half[1], half[0]};
    return true;
}

const char *sl__expert_part_key(sl_expert_part part) {
    static const char *const keys[SL_PARTS_MAX] = {"gate",      "up",      "down",
                                                   "gate_bias", "up_bias", "down_bias"};
    return keys[part];
}

sl_status sl_expert_layout_of(const sl_matrix_shape *shapes, uint32_t n_parts,
                              sl_expert_layout *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    out->n_parts = n_parts;
    for (uint32_t i = 0; i < n_parts; i++) {
        out->shape[i] = shapes[i];
        sl_status st = sl_matrix_layout_of(&shapes[i], &out->layout[i], err);
        if (st)
            return st;
        out->at[i] = out->bytes;
        out->bytes += out->layout[i].bytes;
    }
    out->stride = SL_ALIGN_UP(out->bytes, SL_PAGE);
    if (out->stride > SL_EXPERT_BYTES_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "an expert of %llu bytes: supported are up to %llu",
                       (unsigned long long)out->stride, (unsigned long long)SL_EXPERT_BYTES_MAX);
    return SL_OK;
}

sl_status sl_embed_layout_of(const sl_matrix_shape *shape, sl_embed_layout *out, sl_error *err) {
    sl_matrix_layout layout;
    memset(out, 0, sizeof(*out));
    sl_status st = sl_matrix_layout_of(shape, &layout, err);
    if (st)
        return st;
    out->shape = *shape;
    // Codes of a row end at a multiple of 4 bytes: groups are of 32 inputs or more.
    out->scales_at = layout.row_code_bytes;
    out->biases_at = out->scales_at + layout.row_scale_bytes;
    out->row_bytes = out->biases_at + layout.row_bias_bytes;
    out->stride = SL_ALIGN_UP(out->row_bytes, EMBED_ALIGN);
    return SL_OK;
}

void sl_expert_bind(const sl_expert_layout *layout, const void *slot,
                    sl_matrix parts[SL_PARTS_MAX]) {
    const uint8_t *base = slot;
    for (uint32_t i = 0; i < layout->n_parts; i++)
        sl_matrix_bind(&parts[i], &layout->shape[i], &layout->layout[i], base + layout->at[i]);
}

void sl_embed_bind(const sl_embed_layout *layout, const void *record, sl_matrix *row) {
    const uint8_t *base = record;
    sl_dtype dtype = layout->shape.dtype;
    row->shape = layout->shape;
    row->shape.rows = 1;
    row->codes = base + layout->codes_at;
    row->scales = sl_dtype_is_quantized(dtype) ? base + layout->scales_at : NULL;
    row->biases = sl_dtype_is_affine(dtype) ? base + layout->biases_at : NULL;
}

/* ---- a store's numbers ----------------------------------------------------------------------- */

// The shape of a part of an expert, as it was first met and in a later layer.
static sl_status take_expert_shape(const sl_tensor_spec *spec, const sl_matrix_shape *shape,
                                   sl_matrix_shape *kept, sl_error *err) {
    if (kept->rows == 0) {
        *kept = *shape;
        return SL_OK;
    }
    if (kept->dtype == shape->dtype && kept->group == shape->group &&
        kept->scale_dtype == shape->scale_dtype)
        return SL_OK;
    return sl_fail_at(
        err, SL_ERR_UNSUPPORTED, (int32_t)spec->layer, -1, 0,
        "layer %u: experts' %s is %s in groups of %u with %s scales, in the layers before it is %s "
        "in "
        "groups of %u with %s scales; this version stores the experts of all layers alike",
        spec->layer, sl_role_name(spec->role), sl_dtype_name(shape->dtype), shape->group,
        sl_dtype_name(shape->scale_dtype), sl_dtype_name(kept->dtype), kept->group,
        sl_dtype_name(kept->scale_dtype));
}

static sl_status check_shape(const sl_tensor_spec *spec, const sl_matrix_shape *shape,
                             sl_error *err) {
    bool f32 = spec->kind != SL_TENSOR_MATRIX && spec->kind != SL_TENSOR_EXPERT;
    if (shape->rows != spec->rows || shape->cols != spec->cols)
        return sl_fail(err, SL_ERR_CORRUPT, "layer %u %s: [%u][%u], the config asks for [%u][%u]",
                       spec->layer, sl_role_name(spec->role), shape->rows, shape->cols, spec->rows,
                       spec->cols);
    if (f32 && shape->dtype != SL_DTYPE_F32)
        return sl_fail(err, SL_ERR_CORRUPT, "layer %u %s: stored as %s, expected f32", spec->layer,
                       sl_role_name(spec->role), sl_dtype_name(shape->dtype));
    return SL_OK;
}

sl_status sl__store_describe(const sl_model *model, sl_store_shape_of shape_of, void *user,
                             size_t text_bytes, sl_store *out, sl_error *err) {
    sl_status st;
    sl_matrix_shape parts[SL_PARTS_MAX] = {0};
    uint32_t n_specs = sl_model_tensors(model), n_trunk = 0;
    sl_tensor_spec spec;

    memset(out, 0, sizeof(*out));
    out->trunk = out->embed_file = out->text = SL_FILE_CLOSED;
    out->model = *model;
    out->temperature = out->top_p = out->min_p = out->repeat_penalty = -1;
    out->top_k = -1;
    out->path = out->source = out->converter = "";
    for (uint32_t i = 0; i < n_specs; i++) {
        sl_model_tensor(model, i, &spec);
        n_trunk += !sl_kind_is_expert(spec.kind) && spec.role != SL_ROLE_EMBED;
    }
    size_t n_sums = (size_t)model->n_layers * model->moe.n_experts;
    uint64_t bytes = n_trunk * sizeof(*out->tensors) + n_sums * sizeof(*out->expert_hashes) +
                     model->n_layers * sizeof(*out->experts) + text_bytes + 4 * 64;
    if ((st = sl_arena_map(&out->arena, "store", bytes, err)))
        return st;
    out->tensors = sl_arena_alloc(&out->arena, n_trunk * sizeof(*out->tensors), 64);
    out->expert_hashes = sl_arena_alloc(&out->arena, n_sums * sizeof(*out->expert_hashes), 64);
    out->n_extents = 1;
    out->experts = sl_arena_alloc(&out->arena, model->n_layers * sizeof(*out->experts), 64);
    if (!out->tensors || !out->expert_hashes || !out->experts) {
        st = sl_arena_full(&out->arena, (size_t)bytes, err);
        goto fail;
    }
    for (uint32_t i = 0; i < model->n_layers; i++)
        out->experts[i] = SL_FILE_CLOSED;

    for (uint32_t i = 0; i < n_specs; i++) {
        sl_matrix_shape shape = {0};
        sl_model_tensor(model, i, &spec);
        if ((st = shape_of(user, &spec, &shape, err)) || (st = check_shape(&spec, &shape, err)))
            goto fail;
        if (sl_kind_is_expert(spec.kind)) {
            uint32_t part = spec.role - SL_ROLE_EXPERT_GATE_PROJ;
            if ((st = take_expert_shape(&spec, &shape, &parts[part], err)))
                goto fail;
        } else if (spec.role == SL_ROLE_EMBED) {
            if ((st = sl_embed_layout_of(&shape, &out->embed, err)))
                goto fail;
        } else {
            sl_store_tensor *t = &out->tensors[out->n_tensors++];
            t->role = spec.role;
            t->layer = spec.layer;
            t->shape = shape;
            if ((st = sl_matrix_layout_of(&shape, &t->layout, err)))
                goto fail;
            t->offset = t->layout.bytes < PAGED_BYTES ? out->trunk_bytes
                                                      : SL_ALIGN_UP(out->trunk_bytes, SL_PAGE);
            out->trunk_bytes = t->offset + t->layout.bytes;
        }
    }
    if ((st = sl_expert_layout_of(parts, model->moe.expert_bias ? SL_PARTS_MAX : SL_PART_GATE_BIAS,
                                  &out->expert, err)))
        goto fail;
    out->model_bytes = out->trunk_bytes + out->embed.shape.rows * out->embed.stride +
                       sl_model_ffn_count(model, SL_FFN_MOE) * sl_store_expert_file_bytes(out);
    return SL_OK;
fail:
    sl_store_close(out);
    return st;
}

sl_status sl_store_describe(const sl_model *model, sl_store_shape_of shape_of, void *user,
                            sl_store *out, sl_error *err) {
    return sl__store_describe(model, shape_of, user, 0, out, err);
}

sl_status sl_store_describe_in_place(const sl_model *model, sl_store_shape_of shape_of, void *user,
                                     uint32_t n_files, uint64_t extra_bytes, sl_store *out,
                                     sl_error *err) {
    size_t n_pieces = (size_t)model->n_layers * SL_EXTENTS_MAX;
    size_t n_parts = (size_t)sl_model_tensors(model) * SL_TENSOR_PARTS;
    uint64_t bytes = sizeof(sl_store_in_place) + n_files * (sizeof(sl_file) + sizeof(char *)) +
                     n_pieces * sizeof(sl_expert_piece) + n_parts * sizeof(sl_part_place) +
                     extra_bytes + 5 * 64;
    sl_status st = sl__store_describe(model, shape_of, user, (size_t)bytes, out, err);
    if (st)
        return st;
    sl_store_in_place *in = sl_arena_alloc(&out->arena, sizeof(*in), 64);
    sl_file *files = sl_arena_alloc(&out->arena, n_files * sizeof(*files), 64);
    const char **names = sl_arena_alloc(&out->arena, n_files * sizeof(*names), 64);
    sl_expert_piece *pieces = sl_arena_alloc(&out->arena, n_pieces * sizeof(*pieces), 64);
    sl_part_place *parts = sl_arena_alloc(&out->arena, n_parts * sizeof(*parts), 64);
    if (!in || !files || !names || !pieces || !parts) {
        st = sl_arena_full(&out->arena, (size_t)bytes, err);
        sl_store_close(out);
        return st;
    }
    in->n_files = n_files;
    in->files = files;
    in->names = names;
    in->pieces = pieces;
    for (uint32_t i = 0; i < n_files; i++)
        files[i] = SL_FILE_CLOSED;
    for (uint32_t i = 0; i < out->n_tensors; i++)
        out->tensors[i].parts = parts + (size_t)i * SL_TENSOR_PARTS;
    out->in_place = in;
    return SL_OK;
}

static const sl_expert_piece *piece_of(const sl_store *store, uint32_t layer, uint32_t i) {
    return &store->in_place->pieces[(size_t)layer * SL_EXTENTS_MAX + i];
}

// Most bytes of the pages around one expert's piece, over all layers and experts.
static uint64_t piece_span(const sl_store *store, uint32_t i) {
    uint64_t span = 0;
    for (uint32_t l = 0; l < store->model.n_layers; l++) {
        if (store->model.ffn[l] != SL_FFN_MOE)
            continue;
        const sl_expert_piece *p = piece_of(store, l, i);
        bool pages = p->bytes % SL_PAGE == 0 && p->place.at % SL_PAGE == 0;
        span = SL_MAX(span, SL_ALIGN_UP(p->bytes, SL_PAGE) + (pages ? 0 : SL_PAGE));
    }
    return span;
}

sl_status sl_store_lay_out_slots(sl_store *store, sl_error *err) {
    sl_expert_layout *e = &store->expert;
    uint64_t at = 0, bytes = 0;
    for (uint32_t i = 0; i < store->n_extents; i++) {
        store->in_place->piece[i].slot_at = at;
        at += piece_span(store, i);
        for (uint32_t l = 0; l < store->model.n_layers; l++)
            bytes += piece_of(store, l, i)->bytes * store->model.moe.n_experts;
    }
    // Vectors as f32, behind everything that is read.
    for (uint32_t i = 0; i < e->n_parts; i++) {
        e->at[i] = at;
        at += i >= SL_PART_GATE_BIAS ? e->layout[i].bytes : 0;
    }
    e->stride = SL_ALIGN_UP(at, SL_PAGE);
    if (e->stride > SL_EXPERT_BYTES_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "an expert of %llu bytes: supported are up to %llu",
                       (unsigned long long)e->stride, (unsigned long long)SL_EXPERT_BYTES_MAX);
    store->model_bytes =
        store->trunk_bytes + store->embed.shape.rows * store->embed.row_bytes + bytes;
    return SL_OK;
}

void sl_store_close(sl_store *store) {
    // A zeroed struct has descriptors of 0, which are not ours.
    if (store->arena.base) {
        sl_file_close(&store->trunk);
        sl_file_close(&store->embed_file);
        sl_file_close(&store->text);
        for (uint32_t i = 0; i < store->model.n_layers && store->experts; i++)
            sl_file_close(&store->experts[i]);
        for (uint32_t i = 0; store->in_place && i < store->in_place->n_files; i++)
            sl_file_close(&store->in_place->files[i]);
        sl_arena_unmap(&store->arena);
    }
    memset(store, 0, sizeof(*store));
}

uint64_t sl_store_trunk_file_bytes(const sl_store *store) {
    return SL_ALIGN_UP(store->trunk_bytes, SL_PAGE);
}

uint64_t sl_store_embed_file_bytes(const sl_store *store) {
    return SL_ALIGN_UP(store->embed.shape.rows * store->embed.stride, SL_PAGE);
}

uint64_t sl_store_expert_file_bytes(const sl_store *store) {
    return store->model.moe.n_experts * store->expert.stride;
}

uint64_t sl_store_sums_file_bytes(const sl_store *store) {
    return SL_ALIGN_UP(
        (uint64_t)store->model.n_layers * store->model.moe.n_experts * sizeof(sl_hash128), SL_PAGE);
}

uint64_t sl_store_text_file_bytes(const sl_store *store) {
    uint64_t a = store->tokenizer.offset + store->tokenizer.bytes;
    uint64_t b = store->chat_template.offset + store->chat_template.bytes;
    return SL_ALIGN_UP(SL_MAX(a, b), SL_PAGE);
}

/* ---- looking things up ------------------------------------------------------------------------ */

const sl_store_tensor *sl_store_tensor_find(const sl_store *store, sl_role role, uint32_t layer) {
    for (uint32_t i = 0; i < store->n_tensors; i++)
        if (store->tensors[i].role == role && store->tensors[i].layer == layer)
            return &store->tensors[i];
    return NULL;
}

void sl_store_expert_place(const sl_store *store, uint32_t layer, uint32_t expert,
                           sl_expert_place *out) {
    memset(out, 0, sizeof(*out));
    out->n_extents = store->n_extents;
    for (uint32_t i = 0; store->in_place && i < out->n_extents; i++) {
        const sl_expert_piece *p = piece_of(store, layer, i);
        uint64_t at = p->place.at + expert * p->bytes, from = at / SL_PAGE * SL_PAGE;
        out->extents[i] = (sl_extent){.file = p->place.file,
                                      .skip = (uint32_t)(at - from),
                                      .offset = from,
                                      .slot_at = store->in_place->piece[i].slot_at,
                                      .bytes = SL_ALIGN_UP(at + p->bytes, SL_PAGE) - from};
    }
    if (store->in_place)
        return;
    out->extents[0] = (sl_extent){.file = layer,
                                  .offset = expert * store->expert.stride,
                                  .slot_at = 0,
                                  .bytes = store->expert.stride};
}

const sl_file *sl_store_file(const sl_store *store, uint32_t file) {
    if (store->in_place)
        return &store->in_place->files[file];
    return file == SL_FILE_TRUNK ? &store->trunk : &store->experts[file];
}

uint32_t sl_store_n_files(const sl_store *store) {
    return store->in_place ? store->in_place->n_files : store->model.n_layers + 3;
}

const sl_file *sl_store_each_file(const sl_store *store, uint32_t i) {
    const sl_file *others[] = {&store->trunk, &store->embed_file, &store->text};
    if (!store->in_place && i >= store->model.n_layers)
        return others[i - store->model.n_layers];
    return sl_store_file(store, i);
}

void sl_store_file_name(const sl_store *store, uint32_t file, char *out, size_t cap) {
    if (store->in_place)
        (void)snprintf(out, cap, "%s", store->in_place->names[file]);
    else if (file == SL_FILE_TRUNK)
        (void)snprintf(out, cap, SL_STORE_TRUNK);
    else
        (void)snprintf(out, cap, SL_STORE_EXPERT_FILE, file);
}

void sl_store_expert_bind(const sl_store *store, uint32_t layer, uint32_t expert, const void *slot,
                          sl_matrix parts[SL_PARTS_MAX]) {
    const sl_expert_layout *l = &store->expert;
    const uint8_t *base = slot;
    if (!store->in_place) {
        sl_expert_bind(l, slot, parts);
        return;
    }
    sl_expert_place place;
    sl_store_expert_place(store, layer, expert, &place);
    for (uint32_t i = 0; i < place.n_extents; i++) {
        const sl_piece_slot *p = &store->in_place->piece[i];
        sl_matrix *m = &parts[p->part];
        const uint8_t *at = base + place.extents[i].slot_at + place.extents[i].skip;
        m->shape = l->shape[p->part];
        if (p->part >= SL_PART_GATE_BIAS)
            m->codes = base + l->at[p->part];
        else
            *(p->which == 0 ? &m->codes : p->which == 1 ? &m->scales : &m->biases) = at;
    }
}

bool sl_store_expert_finish(const sl_store *store, uint32_t layer, uint32_t expert, void *slot) {
    uint8_t *base = slot;
    if (!store->in_place)
        return sl_store_expert_intact(store, layer, expert, slot);
    if (store->expert.n_parts <= SL_PART_GATE_BIAS)
        return true;
    sl_expert_place place;
    sl_store_expert_place(store, layer, expert, &place);
    for (uint32_t i = 0; i < place.n_extents; i++) {
        const sl_piece_slot *p = &store->in_place->piece[i];
        const uint8_t *from = base + place.extents[i].slot_at + place.extents[i].skip;
        float *to = (float *)(void *)(base + store->expert.at[p->part]);
        if (p->part >= SL_PART_GATE_BIAS)
            for (uint32_t c = 0; c < store->expert.shape[p->part].cols; c++)
                to[c] = sl__widen(from, p->vector, c);
    }
    return true;
}

bool sl_store_expert_intact(const sl_store *store, uint32_t layer, uint32_t expert,
                            const void *slot) {
    sl_hash128 want = store->expert_hashes[(size_t)layer * store->model.moe.n_experts + expert];
    return sl_hash_equal(sl_hash(slot, (size_t)store->expert.stride), want);
}
