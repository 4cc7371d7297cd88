/* The files of a checkpoint folder: which there are, and their headers. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint_internal.h"

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_MAX SL_ST_HEADER_MAX

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

/* Files that hold weights in a way that is not read. */
static const struct {
    const char *end, *what;
} others[] = {{".gguf", "GGUF"},           {".bin", "PyTorch pickles"},
              {".pth", "PyTorch pickles"}, {".pt", "PyTorch pickles"},
              {".npz", "NumPy archives"},  {".h5", "HDF5"},
              {".msgpack", "Flax"},        {".onnx", "ONNX"}};

static const char *other_format(const char *name) {
    for (size_t i = 0; i < SL_COUNT(others); i++)
        if (ends_with(name, others[i].end))
            return others[i].what;
    return NULL;
}

// Index files come from the network: a name must stay inside the folder.
static bool is_plain_name(const char *name) {
    return *name && *name != '.' && !strchr(name, '/') && strlen(name) < 256;
}

// Add a name to the list unless it is there. Lists are short (hundreds).
static sl_status add_file(sl_checkpoint *ck, const char *name, sl_error *err) {
    const char *p = ck->file_names.data;
    for (uint32_t i = 0; i < ck->n_files; i++, p += strlen(p) + 1)
        if (strcmp(p, name) == 0)
            return SL_OK;
    if (ck->n_files == SL_ST_FILES_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "more than %u tensor files", SL_ST_FILES_MAX);
    sl_buf_add(&ck->file_names, name, strlen(name) + 1);
    ck->n_files++;
    return ck->file_names.failed ? sl_fail(err, SL_ERR_MEMORY, "no memory for a list of files")
                                 : SL_OK;
}

static sl_status bad_index(sl_error *err, const char *what) {
    return sl_fail(err, SL_ERR_CORRUPT, INDEX_NAME ": %s", what);
}

// The file names of weight_map. Which tensor is where is taken from the headers themselves.
static sl_status read_weight_map(sl_checkpoint *ck, sl_json_reader *r, sl_error *err) {
    sl_status st;
    if (sl_json_next(r, err) != SL_JSON_EV_BEGIN_OBJECT)
        return bad_index(err, "'weight_map' is not an object");
    for (;;) {
        char name[256];
        sl_json_event ev = sl_json_next(r, err);
        if (ev == SL_JSON_EV_END_OBJECT)
            return SL_OK;
        if (ev == SL_JSON_EV_ERROR || sl_json_next(r, err) != SL_JSON_EV_STRING)
            return bad_index(err, "'weight_map' must map names to file names");
        if (r->len >= sizeof(name))
            return bad_index(err, "a file name is longer than 255 bytes");
        name[sl_json_decode(r, name)] = '\0';
        if (!is_plain_name(name) || !ends_with(name, ".safetensors"))
            return sl_fail(err, SL_ERR_CORRUPT,
                           INDEX_NAME ": '%.100s' is not the plain name of a .safetensors file",
                           name);
        if ((st = add_file(ck, name, err)))
            return st;
    }
}

static sl_status read_index(sl_checkpoint *ck, const char *path, sl_error *err) {
    sl_buf text;
    sl_json_reader r;
    bool found = false;
    sl_buf_init(&text);
    sl_status st = sl_file_slurp(path, INDEX_MAX, &text, err);
    if (st)
        goto done;
    sl_json_reader_init(&r, text.data ? text.data : "", text.len);
    if (sl_json_next(&r, err) != SL_JSON_EV_BEGIN_OBJECT) {
        st = bad_index(err, "not a JSON object");
        goto done;
    }
    for (;;) {
        sl_json_event ev = sl_json_next(&r, err);
        if (ev == SL_JSON_EV_END_OBJECT)
            break;
        if (ev == SL_JSON_EV_ERROR) {
            st = sl_error_context(err, SL_ERR_CORRUPT, INDEX_NAME);
            goto done;
        }
        if (sl_json_reader_is(&r, "weight_map")) {
            found = true;
            st = read_weight_map(ck, &r, err);
        } else if ((st = sl_json_skip(&r, false, err))) {
            st = sl_error_context(err, SL_ERR_CORRUPT, INDEX_NAME);
        }
        if (st)
            goto done;
    }
    if (!found || ck->n_files == 0)
        st = bad_index(err, "'weight_map' is missing or empty");
done:
    sl_buf_deinit(&text);
    return st;
}

// Without an index every .safetensors file counts; with one, the others are mentioned.
static sl_status list_files(sl_checkpoint *ck, sl_error *err) {
    sl_buf names;
    uint32_t n;
    const char *other = NULL;
    char path[SL_PATH_MAX];
    sl_path_info info;
    sl_buf_init(&names);
    sl_status st = sl_folder_list(ck->path, &names, &n, err);
    if (st || (st = sl_path_join(ck->path, INDEX_NAME, path, sizeof(path), err)) ||
        (st = sl_path_stat(path, &info, err)))
        goto done;
    bool index = info.kind != SL_PATH_NONE;
    if (index && (st = read_index(ck, path, err)))
        goto done;
    uint32_t n_listed = ck->n_files;
    const char *p = names.data;
    for (uint32_t i = 0; i < n; i++, p += strlen(p) + 1) {
        other = other ? other : other_format(p);
        if (!ends_with(p, ".safetensors") || *p == '.')
            continue;
        uint32_t before = ck->n_files;
        if ((st = add_file(ck, p, err)))
            goto done;
        if (index && ck->n_files > before) {
            sl_buf_printf(ck->notes, "%s is not in " INDEX_NAME ": left out\n", p);
            ck->file_names.len -= strlen(p) + 1;
            ck->n_files = n_listed;
        }
    }
    if (ck->n_files == 0)
        st = sl_fail(err, other ? SL_ERR_UNSUPPORTED : SL_ERR_MISSING,
                     "no .safetensors files in '%.200s'%s%s; checkpoints of safetensors files in "
                     "the Hugging Face or "
                     "mlx-community layout are supported",
                     ck->path, other ? ", which holds a format that is not supported yet: " : "",
                     other ? other : "");
done:
    sl_buf_deinit(&names);
    return st;
}

static sl_status read_header(sl_checkpoint *ck, uint32_t i, sl_buf *marks, sl_error *err) {
    char path[SL_PATH_MAX];
    uint8_t first[64];
    uint64_t len;
    size_t got;
    sl_path_info info;
    sl_file *file = &ck->opened[i];
    char *text = NULL;
    sl_status st;
    if ((st = sl_path_join(ck->path, ck->files[i], path, sizeof(path), err)) ||
        (st = sl_path_stat(path, &info, err)) || (st = sl_file_open(path, false, file, err)))
        return st;
    if ((st = sl_file_read(file, first, (size_t)SL_MIN(file->bytes, (uint64_t)sizeof(first)), 0,
                           &got, err)) ||
        (st = sl_st_header_bytes(first, got, file->bytes, &len, err)))
        goto done;
    text = sl_mem_alloc((size_t)len);
    if (!text) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for a header of %llu bytes",
                     (unsigned long long)len);
        goto done;
    }
    if ((st = sl_file_read(file, text, (size_t)len, 8, NULL, err)) ||
        (st = sl_st_add_header(&ck->table, text, len, file->bytes, i, err)))
        goto done;
    sl_hash128 hash = sl_hash(text, (size_t)len);
    sl_buf_printf(marks, "%s %llu %lld %016llx%016llx\n", ck->files[i],
                  (unsigned long long)info.bytes, ck->moving ? 0 : (long long)info.mtime_ns,
                  (unsigned long long)hash.high, (unsigned long long)hash.low);
    ck->bytes += file->bytes;
    ck->header_bytes = SL_MAX(ck->header_bytes, len);
done:
    sl_mem_free(text);
    sl_status dropped = sl_file_drop_cache(file->fd, NULL);
    (void)dropped; // only a courtesy
    sl_file_close(file);
    return st ? sl_error_context(err, st, "%s", ck->files[i]) : SL_OK;
}

// Files beside the tensors that the result depends on.
static sl_status mark_small_files(const sl_checkpoint *ck, sl_buf *marks, sl_error *err) {
    static const char *const names[] = {"config.json",         "generation_config.json",
                                        "tokenizer.json",      "tokenizer_config.json",
                                        "chat_template.jinja", "chat_template.json"};
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        char path[SL_PATH_MAX];
        sl_path_info info;
        sl_status st;
        if ((st = sl_path_join(ck->path, names[i], path, sizeof(path), err)) ||
            (st = sl_path_stat(path, &info, err)))
            return st;
        if (info.kind != SL_PATH_NONE)
            sl_buf_printf(marks, "%s %llu %lld\n", names[i], (unsigned long long)info.bytes,
                          (long long)info.mtime_ns);
    }
    return SL_OK;
}

sl_status sl__checkpoint_files(sl_checkpoint *ck, sl_error *err) {
    sl_buf marks;
    sl_buf_init(&marks);
    sl_path_info mark;
    char path[SL_PATH_MAX];
    sl_status st = sl_path_join(ck->path, SL_MOVE_MARK, path, sizeof(path), err);
    if (st || (st = sl_path_stat(path, &mark, err)))
        goto done;
    if (mark.kind != SL_PATH_NONE && !ck->moving) {
        st = sl_fail(err, SL_ERR_STATE,
                     "parts of it are gone: `sluice convert --move` was stopped while it moved the "
                     "checkpoint; the same command goes on");
        goto done;
    }
    if ((st = list_files(ck, err)))
        goto done;
    ck->files = sl_mem_calloc(ck->n_files, sizeof(*ck->files));
    ck->opened = sl_mem_calloc(ck->n_files, sizeof(*ck->opened));
    if (!ck->files || !ck->opened) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for %u files", ck->n_files);
        goto done;
    }
    const char *p = ck->file_names.data;
    for (uint32_t i = 0; i < ck->n_files; i++, p += strlen(p) + 1) {
        ck->files[i] = p;
        ck->opened[i] = SL_FILE_CLOSED;
    }
    for (uint32_t i = 0; i < ck->n_files; i++)
        if ((st = read_header(ck, i, &marks, err)))
            goto done;
    if ((st = sl_st_sort(&ck->table, err)) || (st = mark_small_files(ck, &marks, err)))
        goto done;
    sl_buf_printf(&marks, "bits %u group %u%s store %d by " SL_VERSION "\n", ck->bits, ck->group,
                  ck->asked ? " asked" : "", SL_STORE_VERSION);
    if (marks.failed)
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for a fingerprint");
    else
        ck->fingerprint = sl_hash(marks.data, marks.len);
done:
    sl_buf_deinit(&marks);
    return st;
}
