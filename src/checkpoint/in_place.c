/* See in_place.h. */
#include "checkpoint/in_place.h"

#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint_internal.h"

#define STRIP_MIN (64 * SL_KIB)

/* ---- what can be used in place ------------------------------------------------------------------- */

static sl_status refuse(sl_error *err, const char *name, const char *why) {
    return sl_fail(
        err, SL_ERR_UNSUPPORTED,
        "this checkpoint has to be converted before it runs (`sluice convert`): '%.120s' %s", name,
        why);
}

// Rows that lie in the file as a store would have them.
static bool is_plain_matrix(const sl_matrix_source *s) {
    return s->copied && !s->vector && !s->convolution && sl_place_is_plain(&s->place);
}

static bool is_plain_vector(const sl_matrix_source *s) {
    return s->vector && !s->plus_one && s->place.first_col == 0 && s->place.col_step == 1;
}

static uint32_t n_parts(const sl_matrix_source *s) {
    return s->row_bytes[2] ? 3 : s->row_bytes[1] ? 2 : 1;
}

static uint64_t part_bytes(const sl_matrix_source *s, uint32_t part) {
    return s->vector ? s->row_bytes[part] : s->row_bytes[part] * s->shape.rows;
}

// The experts of a layer follow one another, in each of the pieces.
static sl_status check_stack(const sl_checkpoint *ck, const sl_tensor_spec *spec,
                             const sl_matrix_source *first, sl_error *err) {
    for (uint32_t e = 1; e < ck->model.moe.n_experts; e++) {
        sl_matrix_source s;
        sl_status st = sl_checkpoint_resolve(ck, spec, e, &s, err);
        if (st)
            return st;
        for (uint32_t i = 0; i < n_parts(first); i++)
            if (s.file[i] != first->file[i] || s.at[i] != first->at[i] + e * part_bytes(first, i))
                return refuse(err, s.name, "is not stacked with the other experts of its layer");
    }
    return SL_OK;
}

/* The pieces of one tensor of a layer's experts, from piece *n on. */
static sl_status add_pieces(const sl_checkpoint *ck, const sl_tensor_spec *spec, sl_store *store,
                            uint32_t *n, sl_error *err) {
    sl_store_in_place *in = store->in_place;
    sl_expert_part part = (sl_expert_part)(spec->role - SL_ROLE_EXPERT_GATE_PROJ);
    sl_matrix_source s;
    sl_status st = sl_checkpoint_resolve(ck, spec, 0, &s, err);
    if (st)
        return st;
    if (spec->kind == SL_TENSOR_EXPERT ? !is_plain_matrix(&s) : !is_plain_vector(&s))
        return refuse(err, s.name, "is stored otherwise than it is used");
    if ((st = check_stack(ck, spec, &s, err)))
        return st;
    for (uint32_t i = 0; i < n_parts(&s); i++) {
        if (*n == SL_EXTENTS_MAX)
            return refuse(err, s.name, "is one tensor too many of an expert");
        sl_piece_slot *slot = &in->piece[*n];
        const sl_dtype vector = s.vector ? s.in.dtype : SL_DTYPE_COUNT;
        // Shapes of experts are the same in all layers; the types of vectors need not be.
        if (slot->slot_at && slot->vector != vector)
            return refuse(err, s.name, "is of another type than in the layers before");
        *slot = (sl_piece_slot){.part = part, .which = i, .vector = vector, .slot_at = 1};
        in->pieces[(size_t)spec->layer * SL_EXTENTS_MAX + (*n)++] =
            (sl_expert_piece){.place = {s.file[i], s.at[i]}, .bytes = part_bytes(&s, i)};
    }
    return SL_OK;
}

/* Where everything is. */
static sl_status find_places(const sl_checkpoint *ck, sl_store *store, sl_in_place *out,
                             sl_error *err) {
    uint32_t n_specs = sl_model_tensors(&ck->model), n_trunk = 0, n_pieces = 0, layer = UINT32_MAX;
    for (uint32_t i = 0; i < n_specs; i++) {
        sl_tensor_spec spec;
        sl_matrix_source s;
        sl_status st;
        sl_model_tensor(&ck->model, i, &spec);
        if (sl_kind_is_expert(spec.kind)) {
            n_pieces = spec.layer == layer ? n_pieces : 0;
            layer = spec.layer;
            if ((st = add_pieces(ck, &spec, store, &n_pieces, err)))
                return st;
            store->n_extents = SL_MAX(store->n_extents, n_pieces);
            continue;
        }
        if ((st = sl_checkpoint_resolve(ck, &spec, 0, &s, err)))
            return st;
        if (spec.role == SL_ROLE_EMBED) {
            if (!is_plain_matrix(&s))
                return refuse(err, s.name, "is stored otherwise than it is used");
            for (uint32_t part = 0; part < SL_TENSOR_PARTS; part++)
                store->in_place->embed[part] = (sl_part_place){s.file[part], s.at[part]};
            out->embed = s;
            continue;
        }
        // The store's arena owns what `parts` points to: it was handed out as const.
        sl_part_place *parts = (sl_part_place *)(uintptr_t)store->tensors[n_trunk].parts;
        for (uint32_t part = 0; part < SL_TENSOR_PARTS; part++)
            parts[part] =
                (sl_part_place){is_plain_matrix(&s) ? s.file[part] : SL_FILE_NONE, s.at[part]};
        out->sources[n_trunk++] = s;
    }
    return sl_store_lay_out_slots(store, err);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static uint64_t longest_row(const sl_matrix_source *s) {
    uint64_t cols = SL_MAX(s->in.cols, s->shape.cols);
    return SL_MAX(cols * sizeof(float), s->row_bytes[0]);
}

// Strips that the tensors need at least.
static uint64_t strip_least(const sl_in_place *in, uint32_t n_tensors) {
    uint64_t longest = longest_row(&in->embed);
    for (uint32_t i = 0; i < n_tensors; i++)
        longest = SL_MAX(longest, longest_row(&in->sources[i]));
    return SL_ALIGN_UP(SL_MAX(longest, STRIP_MIN), SL_PAGE);
}

static uint64_t least_bytes(const sl_in_place *in, uint32_t n_tensors) {
    return SL_AHEAD_PIECES_MIN * SL_AHEAD_PIECE_MIN + 3 * strip_least(in, n_tensors);
}

/* ---- open --------------------------------------------------------------------------------------- */

// Names in messages have to outlive the checkpoint's table.
static sl_status keep_names(const sl_checkpoint *ck, sl_store *store, sl_in_place *in,
                            sl_error *err) {
    for (uint32_t i = 0; i <= store->n_tensors + ck->n_files; i++) {
        const char **name = i < store->n_tensors ? &in->sources[i].name
                            : i == store->n_tensors
                                ? &in->embed.name
                                : &store->in_place->names[i - store->n_tensors - 1];
        if (i > store->n_tensors)
            *name = ck->files[i - store->n_tensors - 1];
        size_t n = strlen(*name) + 1;
        char *copy = sl_arena_alloc(&store->arena, n, 1);
        if (!copy)
            return sl_arena_full(&store->arena, n, err);
        memcpy(copy, *name, n);
        *name = copy;
    }
    return SL_OK;
}

static sl_status open_all(const sl_checkpoint *ck, sl_store *store, bool direct, sl_error *err) {
    sl_store_in_place *in = store->in_place;
    for (uint32_t i = 0; i < in->n_files; i++) {
        char path[SL_PATH_MAX];
        sl_status st = sl_path_join(ck->path, in->names[i], path, sizeof(path), err);
        sl_file_close(&in->files[i]);
        if (st || (st = sl_file_open(path, direct, &in->files[i], err)))
            return sl_error_context(err, st, "%s", in->names[i]);
    }
    bool is_direct = !direct;
    sl_status st = direct ? sl_file_probe_direct(&in->files[0], &is_direct, err) : SL_OK;
    if (st == SL_OK && !is_direct)
        st = sl_fail(err, SL_ERR_UNSUPPORTED,
                     "direct I/O is not true here: the file system accepts it and still fills "
                     "the page cache, outside the budget. Put the model on a local drive, or "
                     "allow buffered reads (--buffered)");
    store->direct = direct;
    return st;
}

static sl_status read_sampling(const sl_checkpoint *ck, sl_store *store, sl_error *err) {
    sl_arena tree = {0};
    sl_json *generation = NULL;
    sl_status st = SL_OK;
    if (ck->generation.len)
        st = sl__parse_text(&ck->generation, "generation_config.json", &tree, &generation, err);
    if (st == SL_OK)
        st = sl_store_sampling_from_json(generation, store, err);
    sl_arena_unmap(&tree);
    return st;
}

static sl_status shape_of(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                          sl_error *err) {
    sl_matrix_source s;
    sl_status st = sl_checkpoint_resolve(user, spec, 0, &s, err);
    *out = s.shape;
    return st;
}

// Numbers and places, no file.
static sl_status describe(sl_checkpoint *ck, sl_store *store, sl_in_place *out, sl_error *err) {
    uint32_t n_specs = sl_model_tensors(&ck->model);
    uint64_t extra = n_specs * (sizeof(sl_matrix_source) + SL_NAME_BYTES) + ck->file_names.len + 64;
    sl_status st =
        sl_store_describe_in_place(&ck->model, shape_of, ck, ck->n_files, extra, store, err);
    if (st)
        return st;
    store->source_hash = ck->fingerprint;
    out->sources = sl_arena_alloc(&store->arena, store->n_tensors * sizeof(*out->sources), 64);
    if (!out->sources)
        return sl_arena_full(&store->arena, store->n_tensors * sizeof(*out->sources), err);
    return find_places(ck, store, out, err);
}

sl_status sl_in_place_check(sl_checkpoint *ck, uint32_t *n_reads, sl_error *err) {
    sl_store store = {0};
    sl_in_place in = {0};
    sl_status st = describe(ck, &store, &in, err);
    *n_reads = store.n_extents;
    sl_store_close(&store);
    return st;
}

static sl_status fill(sl_checkpoint *ck, sl_store_direct direct, sl_store *store, sl_in_place *out,
                      sl_error *err) {
    sl_status st;
    if ((st = describe(ck, store, out, err)) || (st = keep_names(ck, store, out, err)) ||
        (st = read_sampling(ck, store, err)))
        return st;
    st = open_all(ck, store, true, err);
    if (st == SL_ERR_UNSUPPORTED && direct == SL_DIRECT_PREFERRED)
        st = open_all(ck, store, false, err);
    if (st || (st = sl_checkpoint_texts_read(ck, store, &out->texts, err)))
        return st;
    store->tokenizer.bytes = out->texts.tokenizer.len;
    store->chat_template.bytes = out->texts.chat_template.len;
    store->in_place->prepare_bytes = least_bytes(out, store->n_tensors);
    store->in_place->open_bytes = sl_checkpoint_open_bytes(ck) + out->texts.work_bytes;
    return SL_OK;
}

sl_status sl_in_place_open(const char *path, sl_store_direct direct, sl_store *store,
                           sl_in_place *out, sl_error *err) {
    const sl_checkpoint_options options = {.frugal = true};
    sl_checkpoint ck;
    sl_buf notes;
    memset(store, 0, sizeof(*store));
    memset(out, 0, sizeof(*out));
    sl_buf_init(&out->texts.tokenizer);
    sl_buf_init(&out->texts.chat_template);
    sl_buf_init(&notes);
    sl_status st = sl_checkpoint_open(path, &options, &notes, &ck, err);
    if (st == SL_OK) {
        if ((st = fill(&ck, direct, store, out, err)))
            st = sl_error_context(err, st, "checkpoint '%.200s'", path);
        sl_checkpoint_close(&ck);
    }
    sl_buf_deinit(&notes);
    if (st) {
        sl_in_place_close(out);
        sl_store_close(store);
    }
    sl_mem_trim();
    return st;
}

void sl_in_place_close(sl_in_place *in) {
    sl_checkpoint_texts_deinit(&in->texts);
}

/* ---- preparing the trunk ---------------------------------------------------------------------------- */

static sl_status read_file(void *user, uint32_t file, uint64_t offset, uint64_t end, void *out,
                           size_t n, sl_error *err) {
    sl_in_place *in = user;
    const sl_store_in_place *files = in->store->in_place;
    sl_status st = sl_ahead_read(&in->ahead, &files->files[file], offset, end, out, n, err);
    return st ? sl_error_context(err, st, "%s", files->names[file]) : SL_OK;
}

static sl_status put(void *user, uint64_t at, const void *bytes, size_t n, sl_error *err) {
    (void)err;
    memcpy(((sl_in_place *)user)->out + at, bytes, n);
    return SL_OK;
}

static sl_status report(void *user, uint64_t bytes, sl_error *err) {
    sl_in_place *in = user;
    in->done += bytes;
    return in->progress && !in->progress(in->user, in->done, in->total)
               ? sl_fail(err, SL_ERR_CANCELED, "canceled while opening")
               : SL_OK;
}

void sl_in_place_begin(sl_in_place *in, const sl_store *store, sl_reader *reader, uint8_t *memory,
                       uint64_t bytes) {
    // Half of it for reading ahead, the rest in three strips.
    const uint64_t least = strip_least(in, store->n_tensors);
    uint32_t n_pieces = SL_AHEAD_PIECES_MIN;
    uint64_t piece = SL_AHEAD_PIECE_MIN;
    while (2 * piece * n_pieces <= bytes / 2 && piece < SL_AHEAD_PIECE)
        piece *= 2;
    while (2 * piece * n_pieces <= bytes / 2 && n_pieces < SL_AHEAD_PIECES)
        n_pieces *= 2;
    // What is read ahead of a strip must still be there when it is asked for.
    uint64_t strip = SL_MIN((bytes - piece * n_pieces) / 3, piece * n_pieces / 4);
    strip = SL_MIN(SL_MAX(strip, least), SL_STRIP_BYTES) / SL_PAGE * SL_PAGE;
    in->store = store;
    sl_ahead_init(&in->ahead, reader, memory, n_pieces, piece);
    memory += piece * n_pieces;
    in->form = (sl_tensor_form){.read = read_file,
                                .put = put,
                                .report = report,
                                .user = in,
                                .raw = memory,
                                .packed = memory + strip,
                                .wide = (float *)(void *)(memory + 2 * strip),
                                .strip_bytes = (size_t)strip,
                                .wide_bytes = (size_t)strip};
}

void sl_in_place_end(sl_in_place *in) {
    sl_ahead_close(&in->ahead);
}

sl_status sl_in_place_tensor(sl_in_place *in, uint32_t i, uint8_t *block, sl_error *err) {
    in->out = block;
    return sl_form_tensor(&in->form, &in->sources[i], 0, err);
}

sl_status sl_in_place_embedding(sl_in_place *in, uint8_t *records, sl_error *err) {
    in->out = records;
    return sl_form_embedding(&in->form, &in->embed, &in->store->embed, err);
}
