/* Verification, see verify.h. Files are opened one at a time, so that a missing one does not hide the rest. */
#include "store/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/folder.h"
#include "store/store_internal.h"
#include "store/store_write.h"

#define BUFFER_BYTES (16 * SL_MIB)

typedef struct verification {
    const sl_verify_params *params;
    sl_store store;
    sl_arena buffer;
    sl_file file;
    const char *name; /* of the open file */
    uint64_t done, total;
    uint32_t n_damaged;
    bool sums_known; /* expert_hashes are the ones that were written */
} verification;

static sl_status stopped(sl_error *err) {
    return sl_fail(err, SL_ERR_CANCELED, "stopped");
}

static SL_PRINTF(4, 5) sl_status
    tell(verification *v, bool damaged, sl_error *err, const char *fmt, ...) {
    char text[SL_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->n_damaged += damaged;
    return v->params->line && !v->params->line(v->params->user, damaged, text) ? stopped(err)
                                                                               : SL_OK;
}

static bool count(void *user, uint64_t bytes) {
    verification *v = user;
    v->done += bytes;
    return !v->params->report || v->params->report(v->params->user, v->done, v->total);
}

// Open a file and compare its length. *there is false when nothing of it can be checked.
static sl_status open_file(verification *v, const char *name, uint64_t bytes, bool *there,
                           sl_error *err) {
    sl_error why;
    v->name = name;
    sl_status st = sl__store_open_file(v->store.path, name, true, &v->file, &why);
    if (st == SL_ERR_UNSUPPORTED)
        st = sl__store_open_file(v->store.path, name, false, &v->file, &why);
    *there = st == SL_OK;
    if (st == SL_ERR_MISSING)
        return tell(v, true, err, "%s: missing", name);
    if (st)
        return tell(v, true, err, "%s: %s", name, why.message);
    if (v->file.bytes != bytes)
        return tell(v, true, err, "%s: %llu bytes long, expected %llu", name,
                    (unsigned long long)v->file.bytes, (unsigned long long)bytes);
    return SL_OK;
}

// Check bytes of the open file. what: "expert 17", "layer 3 attn_q", ...
static sl_status check_range(verification *v, const char *what, uint64_t offset, uint64_t bytes,
                             sl_hash128 want, sl_error *err) {
    sl_hash128 hash;
    sl_error why;
    sl_status st = sl_store_hash_range(&v->file, offset, bytes, v->buffer.base, v->buffer.bytes,
                                       count, v, &hash, &why);
    if (st == SL_ERR_CANCELED)
        return stopped(err);
    if (st)
        return tell(v, true, err, "%s: %s at %llu: %s", v->name, what, (unsigned long long)offset,
                    why.message);
    if (!sl_hash_equal(hash, want)) {
        char found[SL_STORE_HEX + 1], expected[SL_STORE_HEX + 1];
        sl__hash_text(hash, found);
        sl__hash_text(want, expected);
        return tell(v, true, err, "%s: %s at %llu: checksum %s, expected %s", v->name, what,
                    (unsigned long long)offset, found, expected);
    }
    return SL_OK;
}

static sl_status check_trunk(verification *v, sl_error *err) {
    bool there;
    sl_status st = open_file(v, SL_STORE_TRUNK, sl_store_trunk_file_bytes(&v->store), &there, err);
    for (uint32_t i = 0; st == SL_OK && there && i < v->store.n_tensors; i++) {
        const sl_store_tensor *t = &v->store.tensors[i];
        char what[64];
        (void)snprintf(what, sizeof(what), "layer %u %s", t->layer, sl_role_name(t->role));
        st = check_range(v, what, t->offset, t->layout.bytes, t->hash, err);
    }
    sl_file_close(&v->file);
    return st;
}

static sl_status check_embedding(verification *v, sl_error *err) {
    bool there;
    const sl_embed_layout *e = &v->store.embed;
    sl_status st = open_file(v, SL_STORE_EMBED, sl_store_embed_file_bytes(&v->store), &there, err);
    if (st == SL_OK && there)
        st = check_range(v, "embedding", 0, e->shape.rows * e->stride, e->hash, err);
    sl_file_close(&v->file);
    return st;
}

static sl_status check_text(verification *v, sl_error *err) {
    bool there;
    const sl_text_part *tokenizer = &v->store.tokenizer, *chat = &v->store.chat_template;
    uint64_t bytes = sl_store_text_file_bytes(&v->store);
    if (bytes == 0)
        return SL_OK;
    sl_status st = open_file(v, SL_STORE_TEXT, bytes, &there, err);
    if (st == SL_OK && there && tokenizer->bytes)
        st = check_range(v, "tokenizer", tokenizer->offset, tokenizer->bytes, tokenizer->hash, err);
    if (st == SL_OK && there && chat->bytes)
        st = check_range(v, "chat template", chat->offset, chat->bytes, chat->hash, err);
    sl_file_close(&v->file);
    return st;
}

/* The experts' checksums. They are small beside the buffer: at most 16 MiB by the limits of a descriptor. */
static sl_status check_sums(verification *v, sl_error *err) {
    bool there;
    uint32_t before = v->n_damaged;
    uint64_t bytes = sl_store_sums_file_bytes(&v->store);
    sl_status st = open_file(v, SL_STORE_SUMS, bytes, &there, err);
    if (st == SL_OK && there &&
        (st = check_range(v, "checksums", 0, bytes, v->store.sums_hash, err)) == SL_OK)
        v->sums_known = v->n_damaged == before;
    if (v->sums_known)
        // check_range() left them in the buffer: the range is no longer than it.
        memcpy(v->store.expert_hashes, v->buffer.base,
               (size_t)v->store.model.n_layers * v->store.model.moe.n_experts * sizeof(sl_hash128));
    else if (st == SL_OK)
        st = tell(v, false, err, SL_STORE_SUMS " is damaged: experts cannot be checked");
    sl_file_close(&v->file);
    return st;
}

static sl_status check_layer(verification *v, uint32_t layer, sl_error *err) {
    char name[32];
    bool there;
    uint64_t stride = v->store.expert.stride;
    uint32_t n = v->store.model.moe.n_experts;
    const sl_hash128 *hashes = v->store.expert_hashes + (size_t)layer * n;
    sl_store_file_name(&v->store, layer, name, sizeof(name));
    sl_status st = open_file(v, name, sl_store_expert_file_bytes(&v->store), &there, err);
    for (uint32_t e = 0; st == SL_OK && there && v->sums_known && e < n; e++) {
        char what[32];
        (void)snprintf(what, sizeof(what), "expert %u", e);
        st = check_range(v, what, e * stride, stride, hashes[e], err);
    }
    sl_file_close(&v->file);
    return st;
}

// Is `name` what a store of these numbers has in its folder (experts: in the folder of experts)?
static bool belongs(const sl_store *s, bool experts, const char *name) {
    static const char *const names[] = {SL_STORE_MANIFEST, SL_STORE_TRUNK,   SL_STORE_EMBED,
                                        SL_STORE_SUMS,     SL_STORE_EXPERTS, SL_STORE_TEXT};
    for (uint32_t i = 0; experts && i < s->model.n_layers; i++) {
        char file[32];
        sl_store_file_name(s, i, file, sizeof(file));
        if (s->model.ffn[i] == SL_FFN_MOE && strcmp(file + sizeof(SL_STORE_EXPERTS), name) == 0)
            return true;
    }
    size_t n = SL_COUNT(names) - (sl_store_text_file_bytes(s) == 0);
    for (size_t i = 0; !experts && i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static sl_status check_names(verification *v, sl_error *err) {
    sl_status st = SL_OK;
    for (unsigned experts = 0; experts < 2 && st == SL_OK; experts++) {
        char path[SL_PATH_MAX];
        sl_buf names;
        uint32_t n;
        if ((st = sl_path_join(v->store.path, experts ? SL_STORE_EXPERTS : "", path, sizeof(path),
                               err)))
            return st;
        sl_buf_init(&names);
        st = sl_folder_list(path, &names, &n, err);
        if (st == SL_ERR_MISSING) { // said for every file of it
            st = SL_OK;
            n = 0;
        }
        const char *p = names.data;
        for (uint32_t i = 0; i < n && st == SL_OK; i++, p += strlen(p) + 1)
            if (!belongs(&v->store, experts, p))
                st = tell(v, false, err, "%s%.200s: not part of the store",
                          experts ? SL_STORE_EXPERTS "/" : "", p);
        sl_buf_deinit(&names);
    }
    return st;
}

sl_status sl_store_verify(const char *path, const sl_verify_params *params, uint32_t *n_damaged,
                          sl_error *err) {
    verification v = {.params = params, .file = SL_FILE_CLOSED};
    sl_store *s = &v.store;
    *n_damaged = 0;
    sl_status st = sl__store_read_manifest(path, s, err);
    if (st)
        return sl_error_context(err, st, "store '%.200s'", path);
    v.total = s->trunk_bytes + sl_store_sums_file_bytes(s) + s->tokenizer.bytes +
              s->chat_template.bytes + s->embed.shape.rows * s->embed.stride +
              sl_model_ffn_count(&s->model, SL_FFN_MOE) * sl_store_expert_file_bytes(s);
    if ((st = sl_arena_map(&v.buffer, "verify", BUFFER_BYTES + SL_PAGE, err)) ||
        (st = check_text(&v, err)) || (st = check_trunk(&v, err)) ||
        (st = check_embedding(&v, err)) || (st = check_sums(&v, err)))
        goto done;
    for (uint32_t i = 0; i < s->model.n_layers && st == SL_OK; i++)
        if (s->model.ffn[i] == SL_FFN_MOE)
            st = check_layer(&v, i, err);
    if (st == SL_OK)
        st = check_names(&v, err);
    if (st == SL_OK && v.n_damaged)
        st =
            sl_fail(err, SL_ERR_CORRUPT,
                    "store '%.200s': %u files or records are damaged; convert the checkpoint again",
                    path, v.n_damaged);
done:
    *n_damaged = v.n_damaged;
    sl_arena_unmap(&v.buffer);
    sl_store_close(s);
    return st;
}
