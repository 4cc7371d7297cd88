/* The course of a conversion: where it works, what is done already, units, publication. */
#include "convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "checkpoint/form.h"
#include "checkpoint/in_place.h"
#include "checkpoint/texts.h"
#include "convert/journal.h"
#include "convert/move.h"
#include "store/store_write.h"

#define WINDOW_BYTES ((size_t)32 << 20)
/* A matrix of 2880 x 2880, the largest known to be turned on its side in a file, fits. */
#define WIDE_BYTES ((size_t)32 << 20)
#define SPACE_SPARE (16 * SL_MIB) /* for the manifest, folders and the file system's own records */

typedef struct conversion {
    const sl_convert_params *params;
    sl_convert_outcome *out;
    sl_checkpoint ck;
    sl_tensor_spec *specs; /* all tensors of the model */
    sl_store store;        /* the numbers of what is being made */
    sl_checkpoint_texts texts;
    sl_store_writer writer;
    sl_tensor_form form;
    uint64_t done; /* bytes of the checkpoint */
    sl_journal journal;
    char dst[SL_PATH_MAX - 16], parent[SL_PATH_MAX - 16];
    char partial[SL_PATH_MAX], spare[SL_PATH_MAX];
    bool replaces; /* dst is there, a store, and may be replaced */
    bool complete; /* an earlier run did everything but give the folder its name */
    void *memory;  /* of the buffers */
} conversion;

/* ---- places ------------------------------------------------------------------------------------- */

// Names that a conversion makes in its folder, and in the one of the experts.
static bool is_ours(const char *name) {
    static const char *const names[] = {SL_STORE_MANIFEST, SL_STORE_TRUNK,   SL_STORE_EMBED,
                                        SL_STORE_TEXT,     SL_STORE_EXPERTS, SL_STORE_SUMS,
                                        SL_JOURNAL_NAME};
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool is_expert_file(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits >= 3 && strcmp(name + digits, ".bin") == 0;
}

static sl_status holds_only(const char *folder, bool (*ours)(const char *name), sl_error *err) {
    sl_buf names;
    uint32_t n;
    sl_buf_init(&names);
    sl_status st = sl_folder_list(folder, &names, &n, err);
    if (st == SL_OK) {
        const char *p = names.data;
        for (uint32_t i = 0; i < n && st == SL_OK; i++, p += strlen(p) + 1)
            if (!ours(p))
                st = sl_fail(err, SL_ERR_EXISTS,
                             "'%.200s' holds '%.100s', which no conversion made: remove it first",
                             folder, p);
    }
    sl_buf_deinit(&names);
    return st;
}

// What is replaced is removed with all that it holds: it must be a model, and nothing else.
static sl_status check_replaced(const char *dst, sl_error *err) {
    static const char *const needed[] = {SL_STORE_MANIFEST, SL_STORE_TRUNK};
    sl_path_info info;
    char path[SL_PATH_MAX];
    bool link;
    sl_status st;
    for (size_t i = 0; i < SL_COUNT(needed); i++) {
        if ((st = sl_path_join(dst, needed[i], path, sizeof(path), err)) ||
            (st = sl_path_stat(path, &info, err)))
            return st;
        if (info.kind != SL_PATH_FILE)
            return sl_fail(
                err, SL_ERR_EXISTS,
                "'%.200s' is there already and is not a converted model: it is not replaced", dst);
    }
    if ((st = sl_path_is_link(dst, &link, err)))
        return st;
    if (link)
        return sl_fail(err, SL_ERR_EXISTS,
                       "'%.200s' is a symbolic link: name the folder that it leads to", dst);
    if ((st = holds_only(dst, is_ours, err)) ||
        (st = sl_path_join(dst, SL_STORE_EXPERTS, path, sizeof(path), err)) ||
        (st = sl_path_stat(path, &info, err)) || info.kind == SL_PATH_NONE ||
        (st = sl_path_is_link(path, &link, err)))
        return st;
    if (link)
        return sl_fail(err, SL_ERR_EXISTS, "'%.200s' is a symbolic link: remove it first", path);
    return holds_only(path, is_expert_file, err);
}

static sl_status place(conversion *c, const char *dst, sl_error *err) {
    sl_status st;
    sl_path_info info;
    if ((st = sl_path_trim(dst, c->dst, sizeof(c->dst), err)))
        return st;
    (void)snprintf(c->partial, sizeof(c->partial), "%s.partial", c->dst);
    (void)snprintf(c->spare, sizeof(c->spare), "%s.old", c->dst);
    const char *slash = strrchr(c->dst, '/');
    (void)snprintf(c->parent, sizeof(c->parent), "%.*s", slash ? (int)SL_MAX(slash - c->dst, 1) : 1,
                   slash ? c->dst : ".");
    if ((st = sl_path_stat(c->dst, &info, err)) || info.kind == SL_PATH_NONE)
        return st;
    if (!c->params->force)
        return sl_fail(
            err, SL_ERR_EXISTS,
            "'%.200s' is there already; choose another destination, or replace it with --force",
            c->dst);
    c->replaces = true;
    return check_replaced(c->dst, err);
}

// The folder to work in holds nothing but what an earlier conversion left.
static sl_status claim_partial(conversion *c, sl_error *err) {
    char experts[SL_PATH_MAX];
    sl_status st;
    if ((st = sl_folder_make(c->partial, err)) || (st = holds_only(c->partial, is_ours, err)) ||
        (st = sl_path_join(c->partial, SL_STORE_EXPERTS, experts, sizeof(experts), err)))
        return st;
    return sl_folder_make(experts, err);
}

/* ---- units --------------------------------------------------------------------------------------- */

// Count bytes as done and tell.
static sl_status report(void *user, uint64_t bytes, sl_error *err) {
    conversion *c = user;
    const sl_convert_params *p = c->params;
    c->done += bytes;
    if (p->report && !p->report(p->user, c->done, c->ck.work_bytes))
        return sl_fail(err, SL_ERR_CANCELED,
                       "stopped at %llu of %llu bytes; a later run goes on from here",
                       (unsigned long long)c->done, (unsigned long long)c->ck.work_bytes);
    return SL_OK;
}

static sl_status read_source(void *user, uint32_t file, uint64_t offset, uint64_t end, void *out,
                             size_t n, sl_error *err) {
    conversion *c = user;
    return sl_checkpoint_read(&c->ck, file, offset, end, out, n, err);
}

static sl_status put_block_part(void *user, uint64_t at, const void *bytes, size_t n,
                                sl_error *err) {
    conversion *c = user;
    return sl_store_block_put(&c->writer, at, bytes, n, err);
}

static sl_status file_is(const conversion *c, const char *name, uint64_t bytes, bool *same,
                         sl_error *err) {
    char path[SL_PATH_MAX];
    sl_path_info info;
    sl_status st;
    *same = false;
    if ((st = sl_path_join(c->partial, name, path, sizeof(path), err)) ||
        (st = sl_path_stat(path, &info, err)))
        return st;
    *same = info.kind == SL_PATH_FILE && info.bytes == bytes;
    return SL_OK;
}

/* Is a unit complete already? Then its checksums are in `hashes`. */
static sl_status unit_done(conversion *c, const char *unit, const char *file, uint64_t bytes,
                           sl_hash128 *hashes, size_t n, bool *done, sl_error *err) {
    sl_status st = SL_OK;
    *done = sl_journal_find(&c->journal, unit, hashes, n);
    if (*done)
        st = file_is(c, file, bytes, done, err);
    c->out->resumed = c->out->resumed || *done;
    return st;
}

static sl_status source_of(conversion *c, sl_role role, uint32_t layer, uint32_t expert,
                           sl_matrix_source *out, sl_error *err) {
    const sl_tensor_spec *spec = c->specs;
    while (spec->role != role || spec->layer != layer)
        spec++;
    return sl_checkpoint_resolve(&c->ck, spec, expert, out, err);
}

static sl_status write_trunk(conversion *c, bool known, sl_error *err) {
    sl_status st;
    if (!known && (st = sl_store_file_begin(&c->writer, SL_STORE_TRUNK, err)))
        return st;
    for (uint32_t i = 0; i < c->store.n_tensors; i++) {
        sl_store_tensor *t = &c->store.tensors[i];
        sl_matrix_source source;
        if ((st = source_of(c, t->role, t->layer, 0, &source, err)))
            return st;
        if (known) {
            if ((st = report(c, source.bytes, err)))
                return st;
            continue;
        }
        sl_store_block_begin(&c->writer, t->offset, t->layout.bytes);
        if ((st = sl_form_tensor(&c->form, &source, 0, err)) ||
            (st = sl_store_block_end(&c->writer, &t->hash, err)))
            return st;
    }
    return known ? SL_OK : sl_store_file_end(&c->writer, sl_store_trunk_file_bytes(&c->store), err);
}

static sl_status make_trunk(conversion *c, sl_error *err) {
    bool done;
    uint32_t n = c->store.n_tensors;
    sl_hash128 *hashes = sl_mem_calloc(n, sizeof(*hashes));
    if (!hashes)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for %u checksums", n);
    sl_status st = unit_done(c, "trunk", SL_STORE_TRUNK, sl_store_trunk_file_bytes(&c->store),
                             hashes, n, &done, err);
    if (st || (st = write_trunk(c, done, err)))
        goto end;
    for (uint32_t i = 0; i < n; i++) {
        if (done)
            c->store.tensors[i].hash = hashes[i];
        else
            hashes[i] = c->store.tensors[i].hash;
    }
    if (!done)
        st = sl_journal_add(&c->journal, "trunk", hashes, n, err);
end:
    sl_mem_free(hashes);
    return st;
}

static sl_status make_embedding(conversion *c, sl_error *err) {
    bool done;
    sl_matrix_source source;
    sl_status st;
    sl_embed_layout *embed = &c->store.embed;
    uint64_t bytes = sl_store_embed_file_bytes(&c->store);
    if ((st = source_of(c, SL_ROLE_EMBED, 0, 0, &source, err)) ||
        (st = unit_done(c, "embed", SL_STORE_EMBED, bytes, &embed->hash, 1, &done, err)))
        return st;
    if (done)
        return report(c, source.bytes, err);
    if ((st = sl_store_file_begin(&c->writer, SL_STORE_EMBED, err)))
        return st;
    sl_store_block_begin(&c->writer, 0, embed->shape.rows * embed->stride);
    if ((st = sl_form_embedding(&c->form, &source, embed, err)) ||
        (st = sl_store_block_end(&c->writer, &embed->hash, err)) ||
        (st = sl_store_file_end(&c->writer, bytes, err)))
        return st;
    return sl_journal_add(&c->journal, "embed", &embed->hash, 1, err);
}

// Names of files and folders so far, on the drive.
static sl_status sync_names(const conversion *c, sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st;
    if ((st = sl_path_join(c->partial, SL_STORE_EXPERTS, path, sizeof(path), err)) ||
        (st = sl_folder_sync(path, err)) || (st = sl_folder_sync(c->partial, err)))
        return st;
    return sl_folder_sync(c->parent, err);
}

static sl_status make_layer(conversion *c, uint32_t layer, sl_error *err) {
    const sl_expert_layout *l = &c->store.expert;
    uint32_t n_experts = c->store.model.moe.n_experts;
    sl_hash128 *hashes = c->store.expert_hashes + (size_t)layer * n_experts;
    uint64_t bytes = sl_store_expert_file_bytes(&c->store);
    char file[32], unit[32];
    bool done;
    sl_store_file_name(&c->store, layer, file, sizeof(file));
    (void)snprintf(unit, sizeof(unit), "layer-%u", layer);
    sl_status st = unit_done(c, unit, file, bytes, hashes, n_experts, &done, err);
    if (st == SL_OK && !done && c->params->move &&
        sl_journal_find(&c->journal, unit, hashes, n_experts))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "'%.150s/%s' is not as it was left, and what it was made from is given back "
                       "already",
                       c->partial, file);
    if (st || (!done && (st = sl_store_file_begin(&c->writer, file, err))))
        return st;
    for (uint32_t e = 0; e < n_experts; e++) {
        if (!done)
            sl_store_block_begin(&c->writer, e * l->stride, l->stride);
        for (uint32_t i = 0; i < l->n_parts; i++) {
            sl_matrix_source source;
            if ((st = source_of(c, sl_expert_part_role(i), layer, e, &source, err)))
                return st;
            st = done ? report(c, source.bytes, err)
                      : sl_form_tensor(&c->form, &source, l->at[i], err);
            if (st)
                return st;
        }
        if (!done && (st = sl_store_block_end(&c->writer, &hashes[e], err)))
            return st;
    }
    if (!done && ((st = sl_store_file_end(&c->writer, bytes, err)) ||
                  (c->params->move && (st = sync_names(c, err))) ||
                  (st = sl_journal_add(&c->journal, unit, hashes, n_experts, err))))
        return st;
    return c->params->move ? sl__move_give_back(&c->ck, layer, err) : SL_OK;
}

// A part of a file that is in memory already.
static sl_status put_block(conversion *c, uint64_t offset, const void *bytes, size_t n,
                           uint64_t padded, sl_hash128 *hash, sl_error *err) {
    sl_store_block_begin(&c->writer, offset, padded);
    sl_status st = sl_store_block_put(&c->writer, 0, bytes, n, err);
    return st ? st : sl_store_block_end(&c->writer, hash, err);
}

static sl_status make_text(conversion *c, sl_error *err) {
    sl_status st;
    sl_store *s = &c->store;
    s->tokenizer.bytes = c->texts.tokenizer.len;
    s->chat_template.offset = SL_ALIGN_UP(s->tokenizer.bytes, SL_PAGE);
    s->chat_template.bytes = c->texts.chat_template.len;
    if (s->chat_template.bytes == 0)
        s->chat_template.offset = 0;
    if (s->tokenizer.bytes + s->chat_template.bytes == 0)
        return SL_OK;
    if ((st = sl_store_file_begin(&c->writer, SL_STORE_TEXT, err)) ||
        (s->tokenizer.bytes &&
         (st = put_block(c, 0, c->texts.tokenizer.data, c->texts.tokenizer.len, s->tokenizer.bytes,
                         &s->tokenizer.hash, err))) ||
        (s->chat_template.bytes &&
         (st = put_block(c, s->chat_template.offset, c->texts.chat_template.data,
                         c->texts.chat_template.len, s->chat_template.bytes, &s->chat_template.hash,
                         err))))
        return st;
    return sl_store_file_end(&c->writer, sl_store_text_file_bytes(s), err);
}

static sl_status make_sums(conversion *c, sl_error *err) {
    sl_store *s = &c->store;
    uint64_t bytes = sl_store_sums_file_bytes(s);
    size_t n = (size_t)s->model.n_layers * s->model.moe.n_experts * sizeof(sl_hash128);
    sl_status st = sl_store_file_begin(&c->writer, SL_STORE_SUMS, err);
    if (st || (st = put_block(c, 0, s->expert_hashes, n, bytes, &s->sums_hash, err)))
        return st;
    return sl_store_file_end(&c->writer, bytes, err);
}

static sl_status make_manifest(conversion *c, sl_error *err) {
    sl_buf text;
    sl_status st;
    const sl_checkpoint *ck = &c->ck;
    const char *slash = strrchr(ck->path, '/');
    const sl_manifest_source source = {
        .name = slash && slash[1] ? slash + 1 : ck->path,
        .layout = ck->mlx ? "mlx" : "hf",
        .bytes = ck->bytes,
        .bits = ck->keeps_dense ? 0 : ck->bits,
        .group = ck->keeps_dense ? 0 : ck->group,
        .config = ck->config.data,
        .config_len = ck->config.len,
        .generation_config = ck->generation.len ? ck->generation.data : NULL,
        .generation_config_len = ck->generation.len,
    };
    sl_buf_init(&text);
    sl_store_manifest_text(&c->store, &source, &text);
    if (text.failed) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for the manifest");
    } else if (text.len > SL_STORE_MANIFEST_MAX) {
        st = sl_fail(err, SL_ERR_UNSUPPORTED, "the manifest would be %zu bytes long", text.len);
    } else if ((st = sl_store_file_begin(&c->writer, SL_STORE_MANIFEST, err)) == SL_OK &&
               (st = sl_output_write(&c->writer.out, text.data, text.len, 0, err)) == SL_OK) {
        st = sl_store_file_end(&c->writer, text.len, err);
    }
    sl_buf_deinit(&text);
    return st;
}

/* ---- the course ------------------------------------------------------------------------------------ */

// A store of this conversion without a journal: a run was stopped just before the end of publish().
static bool is_complete(const conversion *c) {
    sl_store found;
    if (sl_store_open(c->partial, SL_DIRECT_PREFERRED, &found, NULL))
        return false;
    bool same = sl_hash_equal(found.source_hash, c->ck.fingerprint);
    sl_store_close(&found);
    return same;
}

/* Take up an earlier run, or begin: the journal's first line says which conversion it belongs to. */
static sl_status take_up(conversion *c, sl_error *err) {
    sl_status st;
    sl_hash128 source;
    char manifest[SL_PATH_MAX];
    if ((st = claim_partial(c, err)) || (st = sl_journal_open(c->partial, &c->journal, err)) ||
        (st = sl_path_join(c->partial, SL_STORE_MANIFEST, manifest, sizeof(manifest), err)))
        return st;
    bool named = sl_journal_find(&c->journal, "source", &source, 1), marked;
    sl_hash128 moved;
    if (sl_journal_find(&c->journal, "move", &moved, 1) &&
        (!c->params->move || !sl_hash_equal(moved, c->ck.fingerprint)))
        return sl_fail(
            err, SL_ERR_STATE,
            "'%.200s' holds what was moved from another checkpoint, the only copy of it: "
            "`sluice convert --move` with that checkpoint goes on",
            c->partial);
    if (named && sl_hash_equal(source, c->ck.fingerprint))
        return SL_OK;
    if (!named && is_complete(c)) {
        c->out->resumed = c->complete = true;
        return SL_OK;
    }
    if ((st = sl__move_is_marked(c->ck.path, &marked, err)))
        return st;
    if (marked)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "parts of the checkpoint were moved to a conversion that is not at '%.200s'",
                       c->partial);
    if (named)
        sl_buf_add_text(
            &c->out->notes,
            "an unfinished conversion of another checkpoint, of changed files or with other "
            "options was found: it starts anew\n");
    if ((st = sl_path_remove(manifest, err)) || (st = sl_journal_clear(&c->journal, err)))
        return st;
    return sl_journal_add(&c->journal, "source", &c->ck.fingerprint, 1, err);
}

// What is in the folder already counts as free: it will be overwritten or kept.
static sl_status check_space(conversion *c, sl_error *err) {
    sl_status st;
    uint64_t room = 0, have = 0;
    const sl_store *s = &c->store;
    // What is moved on one drive takes the room of what it was made from, a layer later.
    sl_path_info from, to;
    if ((st = sl_path_stat(c->ck.path, &from, err)) || (st = sl_path_stat(c->partial, &to, err)))
        return st;
    const bool takes_room = !c->params->move || from.device != to.device;
    uint64_t n_layers = sl_model_ffn_count(&s->model, SL_FFN_MOE);
    if (!takes_room)
        n_layers = SL_MIN(n_layers, 2);
    uint64_t needed = sl_store_trunk_file_bytes(s) + sl_store_embed_file_bytes(s) +
                      sl_store_sums_file_bytes(s) + n_layers * sl_store_expert_file_bytes(s) +
                      c->texts.tokenizer.len + c->texts.chat_template.len + 2 * SL_PAGE;
    c->out->store_bytes = needed + (sl_model_ffn_count(&s->model, SL_FFN_MOE) - n_layers) *
                                       sl_store_expert_file_bytes(s);
    for (uint32_t i = 0; i < s->model.n_layers + 2; i++) {
        char name[32], path[SL_PATH_MAX];
        sl_path_info info;
        if (i < s->model.n_layers)
            sl_store_file_name(s, i, name, sizeof(name));
        else
            (void)snprintf(name, sizeof(name), "%s",
                           i == s->model.n_layers ? SL_STORE_TRUNK : SL_STORE_EMBED);
        if ((st = sl_path_join(c->partial, name, path, sizeof(path), err)) ||
            (st = sl_path_stat(path, &info, err)))
            return st;
        have += takes_room || i >= s->model.n_layers ? info.bytes : 0;
    }
    if ((st = sl_path_free_bytes(c->partial, &room, err)))
        return st;
    if (needed + SPACE_SPARE > have + room)
        return sl_fail(err, SL_ERR_IO,
                       "not enough space: the store takes %llu bytes (%llu are there already) and "
                       "%llu more are "
                       "to stay free, %llu are free at '%.150s'",
                       (unsigned long long)needed, (unsigned long long)have,
                       (unsigned long long)SPACE_SPARE, (unsigned long long)room, c->parent);
    return SL_OK;
}

static sl_status take_memory(conversion *c, sl_error *err) {
    uint32_t n = sl_model_tensors(&c->ck.model);
    c->memory = sl_mem_alloc(WINDOW_BYTES + 2 * SL_STRIP_BYTES + WIDE_BYTES + SL_PAGE);
    c->specs = sl_mem_calloc(n, sizeof(*c->specs));
    if (!c->memory || !c->specs)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for buffers");
    for (uint32_t i = 0; i < n; i++)
        sl_model_tensor(&c->ck.model, i, &c->specs[i]);
    uint8_t *at = (uint8_t *)SL_ALIGN_UP((uintptr_t)c->memory, SL_PAGE);
    c->form = (sl_tensor_form){.read = read_source,
                               .put = put_block_part,
                               .report = report,
                               .user = c,
                               .raw = at + WINDOW_BYTES,
                               .wide = (float *)(at + WINDOW_BYTES + SL_STRIP_BYTES),
                               .packed = at + WINDOW_BYTES + SL_STRIP_BYTES + WIDE_BYTES,
                               .strip_bytes = SL_STRIP_BYTES,
                               .wide_bytes = WIDE_BYTES};
    return sl_store_writer_init(&c->writer, c->partial, at, WINDOW_BYTES, err);
}

// Remove what an exchange brought to the partial name: a store of an earlier conversion.
static sl_status remove_old(const char *folder, sl_error *err) {
    static const char *const folders[] = {SL_STORE_EXPERTS, ""};
    for (size_t i = 0; i < SL_COUNT(folders); i++) {
        char path[SL_PATH_MAX], file[SL_PATH_MAX];
        sl_buf names;
        uint32_t n;
        sl_path_info info;
        sl_status st;
        if ((st = sl_path_join(folder, folders[i], path, sizeof(path), err)) ||
            (st = sl_path_stat(path, &info, err)))
            return st;
        if (info.kind != SL_PATH_FOLDER)
            continue;
        sl_buf_init(&names);
        st = sl_folder_list(path, &names, &n, err);
        const char *p = names.data;
        for (uint32_t k = 0; k < n && st == SL_OK; k++, p += strlen(p) + 1)
            if ((st = sl_path_join(path, p, file, sizeof(file), err)) == SL_OK)
                st = sl_path_remove(file, err);
        sl_buf_deinit(&names);
        if (st || (st = sl_folder_remove(path, err)))
            return st;
    }
    return SL_OK;
}

/* The journal goes, then the folder gets its name. A run that is stopped before finds everything done and
 * comes here again: by the journal, or by is_complete(). */
static sl_status publish(conversion *c, sl_error *err) {
    char path[SL_PATH_MAX];
    bool atomic;
    sl_status st;
    sl_journal_close(&c->journal);
    if ((st = sl_path_join(c->partial, SL_STORE_EXPERTS, path, sizeof(path), err)) ||
        (st = sl_folder_sync(path, err)) ||
        (st = sl_path_join(c->partial, SL_JOURNAL_NAME, path, sizeof(path), err)) ||
        (st = sl_path_remove(path, err)) || (st = sl_folder_sync(c->partial, err)))
        return st;
    if (!c->replaces) {
        if ((st = sl_path_rename(c->partial, c->dst, err)))
            return st;
        return sl_folder_sync(c->parent, err);
    }
    if ((st = sl_path_exchange(c->partial, c->dst, c->spare, &atomic, err)) ||
        (st = sl_folder_sync(c->parent, err)))
        return st;
    return remove_old(c->partial, err);
}

// From here on the checkpoint is not one any more.
static sl_status begin_move(conversion *c, sl_error *err) {
    sl_status st;
    sl_hash128 moved;
    bool marked;
    if ((st = sl__move_check(&c->ck, err)) || (st = check_space(c, err)) ||
        (!sl_journal_find(&c->journal, "move", &moved, 1) &&
         (st = sl_journal_add(&c->journal, "move", &c->ck.fingerprint, 1, err))) ||
        (st = sync_names(c, err)) || (st = sl__move_is_marked(c->ck.path, &marked, err)) || marked)
        return st;
    return sl__move_mark(&c->ck, err);
}

static sl_status run(conversion *c, const char *src, const char *dst, sl_error *err) {
    sl_status st;
    sl_checkpoint_options options = c->params->options;
    options.moving = c->params->move;
    if ((st = place(c, dst, err)) ||
        (st = sl_checkpoint_open(src, &options, &c->out->notes, &c->ck, err)) ||
        (st = sl_checkpoint_describe(&c->ck, &c->store, err)))
        return st;
    c->out->source_bytes = c->ck.bytes;
    c->out->n_tensors = c->ck.n_used;
    c->out->n_skipped = c->ck.n_skipped;
    c->out->n_experts =
        sl_model_ffn_count(&c->store.model, SL_FFN_MOE) * c->store.model.moe.n_experts;
    if ((st = sl_checkpoint_texts_read(&c->ck, &c->store, &c->texts, err)))
        return st;
    uint32_t n_reads;
    if (sl_in_place_check(&c->ck, &n_reads, NULL) == SL_OK)
        sl_buf_printf(
            &c->out->notes,
            "the checkpoint runs as it is, too; converted, an expert is one read instead of "
            "%u, and everything has checksums\n",
            n_reads);
    c->out->has_tokenizer = c->texts.tokenizer.len > 0;
    c->out->has_template = c->texts.chat_template.len > 0;
    if ((st = take_memory(c, err)) || (st = take_up(c, err)))
        return st;
    if (c->complete)
        return publish(c, err);
    if (c->params->move && (st = begin_move(c, err)))
        return st;
    if ((st = check_space(c, err)) || (st = make_text(c, err)) || (st = make_trunk(c, err)) ||
        (st = make_embedding(c, err)))
        return st;
    for (uint32_t i = 0; i < c->store.model.n_layers; i++)
        if (c->store.model.ffn[i] == SL_FFN_MOE && (st = make_layer(c, i, err)))
            return st;
    if ((st = make_sums(c, err)) || (st = make_manifest(c, err)))
        return st;
    return publish(c, err);
}

static sl_status convert(conversion *c, const char *src, const char *dst, sl_error *err) {
    bool done = false;
    sl_status st;
    if (!c->params->move)
        return run(c, src, dst, err);
    if (c->params->force)
        return sl_fail(err, SL_ERR_ARGUMENT, "what is moved replaces nothing: move without force");
    // Stopped between the name and the end?
    if ((st = sl__move_finish(src, dst, &done, err)) || done) {
        c->out->resumed = done;
        return st;
    }
    if ((st = run(c, src, dst, err)))
        return st;
    return sl__move_finish(src, dst, &done, err);
}

sl_status sl_convert_run(const char *src, const char *dst, const sl_convert_params *params,
                         sl_convert_outcome *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    sl_buf_init(&out->notes);
    conversion *c = sl_mem_calloc(1, sizeof(*c));
    if (!c)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for a conversion");
    c->params = params;
    c->out = out;
    c->journal = SL_JOURNAL_CLOSED;
    sl_status st = convert(c, src, dst, err);
    sl_store_writer_deinit(&c->writer);
    sl_journal_close(&c->journal);
    sl_checkpoint_texts_deinit(&c->texts);
    sl_store_close(&c->store);
    sl_checkpoint_close(&c->ck);
    sl_mem_free(c->specs);
    sl_mem_free(c->memory);
    sl_mem_free(c);
    return st;
}

void sl_convert_outcome_deinit(sl_convert_outcome *out) {
    sl_buf_deinit(&out->notes);
}
