/* See move.h. */
#include "convert/move.h"

#include <stdio.h>
#include <string.h>

#define NEW_MARK SL_MOVE_MARK ".new"
#define MARK_MAX SL_MIB
#define HEX 32u

sl_status sl__move_check(const sl_checkpoint *ck, sl_error *err) {
    for (uint32_t i = 0; i < ck->n_files; i++) {
        char path[SL_PATH_MAX];
        sl_path_info info;
        bool link;
        sl_status st;
        if ((st = sl_path_join(ck->path, ck->files[i], path, sizeof(path), err)) ||
            (st = sl_path_stat(path, &info, err)) || (st = sl_path_is_link(path, &link, err)))
            return st;
        if (link || info.n_links > 1)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "'%.200s' %s: others may use it, so it cannot be moved; convert without "
                           "--move",
                           path, link ? "is a symbolic link" : "has another name as well");
    }
    return SL_OK;
}

sl_status sl__move_is_marked(const char *src, bool *marked, sl_error *err) {
    char path[SL_PATH_MAX];
    sl_path_info info;
    sl_status st = sl_path_join(src, SL_MOVE_MARK, path, sizeof(path), err);
    if (st == SL_OK)
        st = sl_path_stat(path, &info, err);
    *marked = st == SL_OK && info.kind != SL_PATH_NONE;
    return st;
}

static void hash_text(sl_hash128 h, char out[HEX + 1]) {
    (void)snprintf(out, HEX + 1, "%016llx%016llx", (unsigned long long)h.high,
                   (unsigned long long)h.low);
}

sl_status sl__move_mark(const sl_checkpoint *ck, sl_error *err) {
    char from[SL_PATH_MAX], to[SL_PATH_MAX], hash[HEX + 1];
    sl_buf text;
    int fd = -1;
    sl_buf_init(&text);
    hash_text(ck->fingerprint, hash);
    sl_buf_printf(&text, "%s\n", hash);
    for (uint32_t i = 0; i < ck->n_files; i++)
        sl_buf_printf(&text, "%s\n", ck->files[i]);
    sl_status st = text.failed ? sl_fail(err, SL_ERR_MEMORY, "no memory for a mark") : SL_OK;
    if (st || (st = sl_path_join(ck->path, NEW_MARK, from, sizeof(from), err)) ||
        (st = sl_path_join(ck->path, SL_MOVE_MARK, to, sizeof(to), err)) ||
        (st = sl_path_remove(from, err)) || (st = sl_log_open(from, &fd, err)) ||
        (st = sl_log_append(fd, text.data, text.len, err)) || (st = sl_path_rename(from, to, err)))
        goto done;
    st = sl_folder_sync(ck->path, err);
done:
    sl_log_close(fd);
    sl_buf_deinit(&text);
    return st;
}

static sl_status give_back(const sl_checkpoint *ck, uint32_t file, uint64_t from, uint64_t to,
                           sl_error *err) {
    char path[SL_PATH_MAX];
    bool given;
    if (from == to)
        return SL_OK;
    sl_status st = sl_path_join(ck->path, ck->files[file], path, sizeof(path), err);
    return st ? st : sl_path_give_back(path, from, to - from, &given, err);
}

/* One tensor of a layer's experts: what follows one another goes at once. Of two roles in one tensor, each gives back all
 * of it. */
static sl_status give_back_part(sl_checkpoint *ck, const sl_tensor_spec *spec, uint32_t part,
                                sl_error *err) {
    uint64_t from = 0, to = 0;
    uint32_t file = 0;
    for (uint32_t e = 0; e < ck->model.moe.n_experts; e++) {
        sl_matrix_source s;
        sl_status st = sl_checkpoint_resolve(ck, spec, e, &s, err);
        if (st)
            return st;
        // Scales of tiles are no rows; they are small, and stay to the end.
        uint64_t rows = s.vector ? 1 : s.in.dtype == SL_DTYPE_F8_E4M3 && part ? 0 : s.in.rows;
        uint64_t bytes = rows * s.row_bytes[part];
        if (s.file[part] != file || s.at[part] != to) {
            if ((st = give_back(ck, file, from, to, err)))
                return st;
            file = s.file[part];
            from = s.at[part];
        }
        to = s.at[part] + bytes;
    }
    return give_back(ck, file, from, to, err);
}

sl_status sl__move_give_back(sl_checkpoint *ck, uint32_t layer, sl_error *err) {
    uint32_t n = sl_model_tensors(&ck->model);
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_model_tensor(&ck->model, i, &spec);
        if (!sl_kind_is_expert(spec.kind) || spec.layer != layer)
            continue;
        for (uint32_t part = 0; part < SL_TENSOR_PARTS; part++) {
            sl_status st = give_back_part(ck, &spec, part, err);
            if (st)
                return st;
        }
    }
    return SL_OK;
}

// A line of the mark that names a file: nothing that leads out of the folder.
static bool is_tensor_file(const char *name) {
    size_t n = strlen(name), k = strlen(".safetensors");
    return n > k && *name != '.' && !strchr(name, '/') && strcmp(name + n - k, ".safetensors") == 0;
}

static sl_status remove_all(const char *src, char *names, sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st;
    for (char *next, *name = names; *name; name = next) {
        next = name + strcspn(name, "\n");
        if (*next)
            *next++ = '\0';
        if (!is_tensor_file(name))
            return sl_fail(err, SL_ERR_CORRUPT, SL_MOVE_MARK " names '%.100s', no tensor file",
                           name);
        if ((st = sl_path_join(src, name, path, sizeof(path), err)) ||
            (st = sl_path_remove(path, err)))
            return st;
    }
    if ((st = sl_folder_sync(src, err)) ||
        (st = sl_path_join(src, SL_MOVE_MARK, path, sizeof(path), err)) ||
        (st = sl_path_remove(path, err)))
        return st;
    return sl_folder_sync(src, err);
}

sl_status sl__move_finish(const char *src, const char *dst, bool *done, sl_error *err) {
    char path[SL_PATH_MAX], hash[HEX + 1];
    bool marked;
    sl_buf text;
    sl_store store;
    *done = false;
    sl_status st = sl__move_is_marked(src, &marked, err);
    if (st || !marked || sl_store_open(dst, SL_DIRECT_PREFERRED, &store, NULL))
        return st;
    hash_text(store.source_hash, hash);
    sl_store_close(&store);
    sl_buf_init(&text);
    if ((st = sl_path_join(src, SL_MOVE_MARK, path, sizeof(path), err)) == SL_OK &&
        (st = sl_file_slurp(path, MARK_MAX, &text, err)) == SL_OK && text.len > HEX + 1 &&
        memcmp(text.data, hash, HEX) == 0 && text.data[HEX] == '\n') {
        st = remove_all(src, text.data + HEX + 1, err);
        *done = st == SL_OK;
    }
    sl_buf_deinit(&text);
    return st;
}
