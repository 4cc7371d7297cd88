/* Opening a store: manifest, files, sizes, the proof of direct I/O, the experts' checksums. */
#include <stdio.h>
#include <string.h>

#include "io/folder.h"
#include "store/store_internal.h"

/* Read `bytes` bytes from the start of a file into a fresh mapping, which suits direct reads. */
static sl_status read_file(const sl_file *file, uint64_t bytes, sl_arena *out, sl_error *err) {
    size_t got;
    sl_status st = sl_arena_map(out, "store files", bytes, err);
    if (st || (st = sl_file_read(file, out->base, out->bytes, 0, &got, err)))
        return st;
    if (got < bytes)
        return sl_fail(err, SL_ERR_CORRUPT, "%zu bytes were read, expected %llu", got,
                       (unsigned long long)bytes);
    return SL_OK;
}

sl_status sl__store_open_file(const char *folder, const char *name, bool direct, sl_file *out,
                              sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st = sl_path_join(folder, name, path, sizeof(path), err);
    return st ? st : sl_file_open(path, direct, out, err);
}

// Open a file of the store, of which the manifest says how long it is.
static sl_status open_sized(const char *folder, const char *name, bool direct, uint64_t bytes,
                            sl_file *out, sl_error *err) {
    sl_status st = sl__store_open_file(folder, name, direct, out, err);
    if (st == SL_ERR_MISSING)
        return sl_fail(err, SL_ERR_CORRUPT, "%s is missing", name);
    if (st)
        return st;
    if (out->bytes != bytes) {
        sl_fail(err, SL_ERR_CORRUPT, "%s is %llu bytes long, the manifest says %llu", name,
                (unsigned long long)out->bytes, (unsigned long long)bytes);
        sl_file_close(out);
        return SL_ERR_CORRUPT;
    }
    return SL_OK;
}

static void close_files(sl_store *s) {
    sl_file_close(&s->trunk);
    sl_file_close(&s->embed_file);
    sl_file_close(&s->text);
    for (uint32_t i = 0; i < s->model.n_layers; i++)
        sl_file_close(&s->experts[i]);
}

static sl_status open_files(sl_store *s, bool direct, sl_error *err) {
    sl_status st;
    uint64_t text_bytes = sl_store_text_file_bytes(s);
    if ((st = open_sized(s->path, SL_STORE_TRUNK, direct, sl_store_trunk_file_bytes(s), &s->trunk,
                         err)) ||
        (st = open_sized(s->path, SL_STORE_EMBED, direct, sl_store_embed_file_bytes(s),
                         &s->embed_file, err)) ||
        (text_bytes &&
         (st = open_sized(s->path, SL_STORE_TEXT, direct, text_bytes, &s->text, err))))
        goto fail;
    const sl_file *experts = NULL; // of a layer that has some: there is one in every model
    for (uint32_t i = 0; i < s->model.n_layers; i++) {
        char name[32];
        if (s->model.ffn[i] != SL_FFN_MOE)
            continue;
        sl_store_file_name(s, i, name, sizeof(name));
        if ((st = open_sized(s->path, name, direct, sl_store_expert_file_bytes(s), &s->experts[i],
                             err)))
            goto fail;
        experts = &s->experts[i];
    }
    if (direct) {
        // One file of each folder: a link may lead to another file system.
        bool trunk_direct, experts_direct;
        if ((st = sl_file_probe_direct(&s->trunk, &trunk_direct, err)) ||
            (st = sl_file_probe_direct(experts, &experts_direct, err)))
            goto fail;
        if (!trunk_direct || !experts_direct) {
            st = sl_fail(err, SL_ERR_UNSUPPORTED,
                         "direct I/O is not true here: the file system accepts it and still fills "
                         "the page cache, outside the budget. Put the model on a local drive, or "
                         "allow buffered reads (--buffered)");
            goto fail;
        }
    }
    s->direct = direct;
    return SL_OK;
fail:
    close_files(s);
    return st;
}

// experts.sum: the checksums' own checksum is in the manifest.
static sl_status read_sums(sl_store *s, sl_error *err) {
    sl_file file;
    sl_arena sums = {0};
    uint64_t bytes = sl_store_sums_file_bytes(s);
    sl_status st = open_sized(s->path, SL_STORE_SUMS, s->direct, bytes, &file, err);
    if (st)
        return st;
    st = read_file(&file, bytes, &sums, err);
    if (st == SL_OK && !sl_hash_equal(sl_hash(sums.base, (size_t)bytes), s->sums_hash))
        st = sl_fail(err, SL_ERR_CORRUPT,
                     SL_STORE_SUMS ": its checksum is not the manifest's: damaged");
    if (st == SL_OK)
        memcpy(s->expert_hashes, sums.base,
               (size_t)s->model.n_layers * s->model.moe.n_experts * sizeof(*s->expert_hashes));
    sl_arena_unmap(&sums);
    sl_file_close(&file);
    return st;
}

sl_status sl__store_read_manifest(const char *path, sl_store *out, sl_error *err) {
    sl_file file;
    sl_arena text = {0}, tree = {0};
    memset(out, 0, sizeof(*out));
    sl_status st = sl__store_open_file(path, SL_STORE_MANIFEST, true, &file, err);
    if (st == SL_ERR_UNSUPPORTED)
        st = sl__store_open_file(path, SL_STORE_MANIFEST, false, &file, err);
    if (st == SL_ERR_MISSING)
        return sl_fail(err, SL_ERR_MISSING,
                       "there is no " SL_STORE_MANIFEST ": not a converted model");
    if (st)
        return st;
    if (file.bytes > SL_STORE_MANIFEST_MAX)
        st = sl_fail(err, SL_ERR_CORRUPT,
                     SL_STORE_MANIFEST " is %llu bytes long, expected at most %llu",
                     (unsigned long long)file.bytes, (unsigned long long)SL_STORE_MANIFEST_MAX);
    if (st == SL_OK && (st = read_file(&file, file.bytes, &text, err)) == SL_OK &&
        (st = sl_arena_reserve(&tree, "manifest", file.bytes * SL_STORE_TREE_FACTOR, err)) == SL_OK)
        st = sl__store_parse_manifest((const char *)text.base, (size_t)file.bytes, path, &tree, out,
                                      err);
    sl_arena_unmap(&tree);
    sl_arena_unmap(&text);
    sl_file_close(&file);
    return st;
}

sl_status sl_store_open(const char *path, sl_store_direct direct, sl_store *out, sl_error *err) {
    sl_status st = sl__store_read_manifest(path, out, err);
    if (st)
        goto fail;
    st = open_files(out, true, err);
    if (st == SL_ERR_UNSUPPORTED && direct == SL_DIRECT_PREFERRED)
        st = open_files(out, false, err);
    if (st || (st = read_sums(out, err)))
        goto fail;
    return SL_OK;
fail:
    sl_store_close(out);
    return sl_error_context(err, st, "store '%.200s'", path);
}
