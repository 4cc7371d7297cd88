/* Where models live, what is there, and taking them away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "base/process.h"
#include "checkpoint/in_place.h"
#include "convert/convert.h"
#include "convert/journal.h"
#include "store/verify.h"

/* ---- paths -------------------------------------------------------------------------------------- */

sl_status sl_models_folder(char *out, size_t cap, sl_error *err) {
    const char *home = getenv("SLUICE_HOME"), *data = getenv("XDG_DATA_HOME"),
               *user = getenv("HOME");
    int n;
    if (home && *home)
        n = snprintf(out, cap, "%s/models", home);
    else if (data && *data == '/')
        n = snprintf(out, cap, "%s/sluice/models", data);
    else if (user && *user)
        n = snprintf(out, cap, "%s/.local/share/sluice/models", user);
    else
        return sl_fail(
            err, SL_ERR_MISSING,
            "no folder for models: set SLUICE_HOME or HOME, or give a path with a slash");
    if (n < 0 || (size_t)n >= cap)
        return sl_fail(err, SL_ERR_ARGUMENT,
                       "the path of the models folder is longer than %zu bytes", cap - 1);
    return SL_OK;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

static bool is_foreign(const char *name) {
    static const char *const endings[] = {".gguf", ".ggml", ".bin",  ".pth",
                                          ".pt",   ".npz",  ".onnx", ".h5"};
    for (size_t i = 0; i < SL_COUNT(endings); i++)
        if (ends_with(name, endings[i]))
            return true;
    return false;
}

// A folder, or a file of a kind that some verb takes as its model: any other file does not hide a name.
static bool is_model_path(const char *model) {
    sl_path_info info;
    sl_error ignored;
    if (strchr(model, '/'))
        return true;
    if (sl_path_stat(model, &info, &ignored))
        return false;
    return info.kind == SL_PATH_FOLDER ||
           (info.kind == SL_PATH_FILE &&
            (ends_with(model, ".json") || ends_with(model, ".jinja") || is_foreign(model)));
}

sl_status sl_model_path(const char *model, char *out, size_t cap, sl_error *err) {
    if (!*model)
        return sl_fail(err, SL_ERR_ARGUMENT, "the name of the model is empty");
    if (is_model_path(model)) {
        if (strlen(model) >= cap)
            return sl_fail(err, SL_ERR_ARGUMENT, "the path is longer than %zu bytes", cap - 1);
        memcpy(out, model, strlen(model) + 1);
        return SL_OK;
    }
    char folder[SL_PATH_MAX];
    sl_status st = sl_models_folder(folder, sizeof(folder), err);
    return st ? st : sl_path_join(folder, model, out, cap, err);
}

static bool is_kind(const char *folder, const char *name, sl_path_kind kind) {
    char path[SL_PATH_MAX];
    sl_path_info info;
    sl_error ignored;
    return !sl_path_join(folder, name, path, sizeof(path), &ignored) &&
           !sl_path_stat(path, &info, &ignored) && info.kind == kind;
}

static bool has_file(const char *folder, const char *name) {
    return is_kind(folder, name, SL_PATH_FILE);
}

sl_model_kind sl_model_kind_of(const char *path) {
    sl_path_info info;
    sl_error ignored;
    if (sl_path_stat(path, &info, &ignored) || info.kind == SL_PATH_NONE)
        return SL_MODEL_NONE;
    if (info.kind == SL_PATH_FILE)
        return ends_with(path, ".json") ? SL_MODEL_CONFIG
               : is_foreign(path)       ? SL_MODEL_OTHER
                                        : SL_MODEL_NONE;
    if (info.kind != SL_PATH_FOLDER)
        return SL_MODEL_NONE;
    if (ends_with(path, ".partial") && has_file(path, SL_JOURNAL_NAME))
        return SL_MODEL_PARTIAL;
    // Web projects have a manifest.json too.
    if (has_file(path, SL_STORE_MANIFEST) && has_file(path, SL_STORE_TRUNK))
        return SL_MODEL_STORE;
    // What an interrupted removal leaves.
    if (is_kind(path, SL_STORE_EXPERTS, SL_PATH_FOLDER) && has_file(path, SL_STORE_TRUNK))
        return SL_MODEL_PARTIAL;
    sl_buf names;
    uint32_t n = 0;
    bool safetensors = false, foreign = false;
    sl_buf_init(&names);
    if (!sl_folder_list(path, &names, &n, &ignored)) {
        const char *name = names.data;
        for (uint32_t i = 0; i < n; i++, name += strlen(name) + 1) {
            safetensors |= ends_with(name, ".safetensors");
            foreign |= is_foreign(name);
        }
    }
    sl_buf_deinit(&names);
    if (safetensors && has_file(path, "config.json"))
        return SL_MODEL_CHECKPOINT;
    return foreign ? SL_MODEL_OTHER : SL_MODEL_NONE;
}

sl_status sl_model_runs_in_place(const char *path, sl_error *err) {
    const sl_checkpoint_options options = {.frugal = true};
    sl_checkpoint ck;
    sl_buf notes;
    uint32_t n_reads;
    sl_buf_init(&notes);
    sl_status st = sl_checkpoint_open(path, &options, &notes, &ck, err);
    if (st == SL_OK) {
        st = sl_in_place_check(&ck, &n_reads, err);
        sl_checkpoint_close(&ck);
    }
    sl_buf_deinit(&notes);
    sl_mem_trim();
    return st;
}

/* ---- remove -------------------------------------------------------------------------------------- */

// Remove the files of a conversion from a folder; *left receives the first other name.
static sl_status remove_ours(const char *folder, bool (*is_ours)(const char *name), char *left,
                             size_t cap, sl_error *err) {
    sl_buf names;
    uint32_t n = 0;
    sl_buf_init(&names);
    sl_status st = sl_folder_list(folder, &names, &n, err);
    const char *name = names.data;
    for (uint32_t i = 0; !st && i < n; i++, name += strlen(name) + 1) {
        char path[SL_PATH_MAX];
        if (!is_ours(name)) {
            if (!*left)
                (void)snprintf(left, cap, "%s", name);
            continue;
        }
        if (!(st = sl_path_join(folder, name, path, sizeof(path), err)))
            st = sl_path_remove(path, err);
    }
    sl_buf_deinit(&names);
    return st;
}

static bool is_store_file(const char *name) {
    static const char *const ours[] = {SL_STORE_MANIFEST, SL_STORE_TRUNK, SL_STORE_EMBED,
                                       SL_STORE_TEXT,     SL_STORE_SUMS,  SL_JOURNAL_NAME};
    for (size_t i = 0; i < SL_COUNT(ours); i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

static bool is_expert_file(const char *name) {
    size_t digits = strspn(name, "0123456789");
    return digits >= 3 && strcmp(name + digits, ".bin") == 0;
}

sl_status sl_model_remove(const char *path, sl_error *err) {
    sl_model_kind kind = sl_model_kind_of(path);
    char experts[SL_PATH_MAX], left[256] = "";
    sl_status st;
    if (kind == SL_MODEL_NONE)
        return sl_fail(err, SL_ERR_MISSING, "'%s' is no model", path);
    if (kind != SL_MODEL_STORE && kind != SL_MODEL_PARTIAL)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "'%s' was not made by `sluice convert`: remove it by hand", path);
    // What a link leads to may have other names and other users.
    bool link;
    if ((st = sl_path_join(path, SL_STORE_EXPERTS, experts, sizeof(experts), err)) ||
        (st = sl_path_is_link(path, &link, err)) ||
        (!link && (st = sl_path_is_link(experts, &link, err))))
        return st;
    if (link)
        return sl_fail(err, SL_ERR_EXISTS,
                       "'%s' is a symbolic link, or its experts are: remove links by hand", path);
    // The manifest goes first: what is left after an interruption is no model any more, and is recognised as
    // the rest of one.
    char manifest[SL_PATH_MAX];
    if ((st = sl_path_join(path, SL_STORE_MANIFEST, manifest, sizeof(manifest), err)) ||
        (st = sl_path_remove(manifest, err)))
        return st;
    if (is_kind(path, SL_STORE_EXPERTS, SL_PATH_FOLDER) &&
        (st = remove_ours(experts, is_expert_file, left, sizeof(left), err)))
        return st;
    if (!*left && is_kind(path, SL_STORE_EXPERTS, SL_PATH_FOLDER) &&
        (st = sl_folder_remove(experts, err)))
        return st;
    bool experts_left = *left;
    if ((st = remove_ours(path, is_store_file, left, sizeof(left), err)))
        return st;
    if (*left)
        return sl_fail(err, SL_ERR_EXISTS, "the model is gone; '%s%s/%s' is not ours and was left",
                       path, experts_left ? "/" SL_STORE_EXPERTS : "", left);
    return sl_folder_remove(path, err);
}

/* ---- convert, verify ------------------------------------------------------------------------------ */

void sl_convert_options_init(sl_convert_options *options) {
    memset(options, 0, sizeof(*options));
}

static bool report_convert(void *user, uint64_t done, uint64_t total) {
    const sl_progress *p = user;
    return p->report(p->user, SL_PHASE_CONVERT, done, total);
}

sl_status sl_convert(const char *src, const char *dst, const sl_convert_options *options,
                     const sl_progress *progress, sl_convert_report *report, sl_error *err) {
    sl_convert_params params = {
        .options = {.bits = options->bits, .group = options->group},
        .move = options->move,
        .force = options->force,
        .report = progress && progress->report ? report_convert : NULL,
        .user = (void *)progress,
    };
    sl_convert_outcome outcome;
    sl_process_memory memory;
    double begin = sl_now();
    sl_convert_report unread;
    report = report ? report : &unread;
    memset(report, 0, sizeof(*report));
    sl_status st = sl_convert_run(src, dst, &params, &outcome, err);
    report->source_bytes = outcome.source_bytes;
    report->store_bytes = outcome.store_bytes;
    report->seconds = sl_now() - begin;
    report->resumed = outcome.resumed;
    report->n_tensors = outcome.n_tensors;
    report->n_experts = outcome.n_experts;
    report->n_skipped = outcome.n_skipped;
    report->has_tokenizer = outcome.has_tokenizer;
    report->has_template = outcome.has_template;
    (void)snprintf(report->notes, sizeof(report->notes), "%s", outcome.notes.data);
    if (!sl_process_memory_read(&memory, NULL))
        report->peak_bytes = memory.rss_peak_bytes + memory.page_table_bytes;
    sl_convert_outcome_deinit(&outcome);
    return st;
}

typedef struct verification {
    const sl_progress *progress;
    const sl_sink *sink;
} verification;

static bool report_verify(void *user, uint64_t done, uint64_t total) {
    const verification *v = user;
    const sl_progress *p = v->progress;
    return !p || !p->report || p->report(p->user, SL_PHASE_VERIFY, done, total);
}

static bool verify_line(void *user, bool damaged, const char *text) {
    const verification *v = user;
    (void)damaged;
    return v->sink->write(v->sink->user, text, strlen(text)) &&
           v->sink->write(v->sink->user, "\n", 1);
}

sl_status sl_verify(const char *store, const sl_progress *progress, const sl_sink *sink,
                    uint32_t *n_damaged, sl_error *err) {
    verification v = {progress, sink};
    const sl_verify_params params = {report_verify, verify_line, &v};
    return sl_store_verify(store, &params, n_damaged, err);
}
