/* Files at the speed of the drive: threads fill one half of a buffer while another writes the other half. */
#include <stdio.h>
#include <string.h>

#include "base/pool.h"
#include "io/folder.h"
#include "io/output.h"
#include "synth.h"

#define BLOCK_BYTES ((size_t)1 << 20)
#define HALF_BLOCKS 16u
#define HALF_BYTES (HALF_BLOCKS * BLOCK_BYTES)
#define SPARE_BYTES ((uint64_t)64 << 20) // for texts, and what the file system keeps for itself

static const char *const tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json",
                                              "chat_template.jinja"};
static const char *const own_files[] = {"config.json", "generation_config.json",
                                        "model.safetensors.index.json", "model.safetensors"};

/* ---- the writing thread --------------------------------------------------------------------------- */

/* One half at a time is on its way. Fields below the mutex are guarded by it; the half that is pending is
 * the thread's until `pending` is false again. */
typedef struct drive {
    sl_thread thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool pending, stop;
    sl_output *file;
    const uint8_t *bytes;
    size_t n;
    uint64_t at;
    sl_status status; /* the first that was not SL_OK */
    sl_error error;
} drive;

static void drive_run(void *ctx) {
    drive *d = ctx;
    (void)pthread_mutex_lock(&d->mutex);
    for (;;) {
        while (!d->pending && !d->stop)
            (void)pthread_cond_wait(&d->changed, &d->mutex);
        if (!d->pending)
            break;
        sl_error err;
        (void)pthread_mutex_unlock(&d->mutex);
        sl_status st = sl_output_write(d->file, d->bytes, d->n, d->at, &err);
        (void)pthread_mutex_lock(&d->mutex);
        if (st && !d->status) {
            d->status = st;
            d->error = err;
        }
        d->pending = false;
        (void)pthread_cond_broadcast(&d->changed);
    }
    (void)pthread_mutex_unlock(&d->mutex);
}

static sl_status drive_wait(drive *d, sl_error *err) {
    (void)pthread_mutex_lock(&d->mutex);
    while (d->pending)
        (void)pthread_cond_wait(&d->changed, &d->mutex);
    sl_status st = d->status;
    if (st && err)
        *err = d->error;
    (void)pthread_mutex_unlock(&d->mutex);
    return st;
}

// After drive_wait().
static void drive_put(drive *d, sl_output *file, const void *bytes, size_t n, uint64_t at) {
    (void)pthread_mutex_lock(&d->mutex);
    d->file = file;
    d->bytes = bytes;
    d->n = n;
    d->at = at;
    d->pending = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->mutex);
}

static void drive_stop(drive *d) {
    (void)pthread_mutex_lock(&d->mutex);
    d->stop = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->mutex);
    sl_thread_join(&d->thread);
}

/* ---- one file ------------------------------------------------------------------------------------- */

typedef struct writer {
    const synth_plan *plan;
    const synth_write_options *options;
    sl_arena arena; /* halves, scratch, stacks */
    uint8_t *half[2], *scratch;
    sl_pool pool;
    drive drive;
    uint64_t done;
} writer;

typedef struct fill_job {
    const writer *w;
    uint32_t shard;
    uint64_t at;
    size_t n;
    uint8_t *out;
} fill_job;

static void fill_block(void *ctx, uint32_t part, uint32_t thread) {
    const fill_job *j = ctx;
    size_t from = part * BLOCK_BYTES, n = SL_MIN(j->n - from, BLOCK_BYTES);
    synth_fill_range(j->w->plan, j->shard, j->at + from, n, j->out + from,
                     j->w->scratch + thread * j->w->plan->scratch_bytes);
}

static sl_status write_blocks(writer *w, uint32_t shard, sl_output *file, sl_error *err) {
    const synth_write_options *o = w->options;
    uint64_t bytes = w->plan->shards[shard].bytes;
    sl_status st = SL_OK;
    for (uint64_t at = 0, turn = 0; at < bytes && !st; at += HALF_BYTES, turn++) {
        fill_job job = {w, shard, at, (size_t)SL_MIN(bytes - at, (uint64_t)HALF_BYTES),
                        w->half[turn % 2]};
        sl_pool_run(&w->pool, (uint32_t)((job.n + BLOCK_BYTES - 1) / BLOCK_BYTES), fill_block,
                    &job);
        if ((st = drive_wait(&w->drive, err)))
            break;
        drive_put(&w->drive, file, job.out, job.n, at);
        w->done += job.n;
        if (o->report && !o->report(o->user, w->done, w->plan->bytes))
            st = sl_fail(err, SL_ERR_CANCELED, "stopped; what was written is removed");
    }
    sl_status last = drive_wait(&w->drive, st ? NULL : err);
    return st ? st : last;
}

static sl_status write_shard(writer *w, const char *folder, uint32_t shard, sl_error *err) {
    char name[64], path[SL_PATH_MAX];
    sl_output file;
    synth_shard_name(w->plan, shard, name, sizeof(name));
    sl_status st = sl_path_join(folder, name, path, sizeof(path), err);
    if (st || (st = sl_output_open(path, &file, err)))
        return st;
    if ((st = write_blocks(w, shard, &file, err))) {
        sl_output_close(&file);
        return st;
    }
    return sl_output_finish(&file, w->plan->shards[shard].bytes, err);
}

static sl_status write_text(const char *folder, const char *name, const char *text, size_t len,
                            sl_error *err) {
    char path[SL_PATH_MAX];
    sl_output file;
    sl_status st = sl_path_join(folder, name, path, sizeof(path), err);
    if (st || (st = sl_output_open(path, &file, err)))
        return st;
    if ((st = sl_output_write(&file, text, len, 0, err))) {
        sl_output_close(&file);
        return st;
    }
    return sl_output_finish(&file, len, err);
}

static sl_status copy_tokenizer(const char *from, const char *folder, sl_error *err) {
    for (size_t i = 0; i < SL_COUNT(tokenizer_files); i++) {
        char path[SL_PATH_MAX];
        sl_buf text;
        sl_buf_init(&text);
        sl_status st = sl_path_join(from, tokenizer_files[i], path, sizeof(path), err);
        if (st == SL_OK)
            st = sl_file_slurp(path, 64 * SL_MIB, &text, err);
        if (st == SL_OK)
            st = write_text(folder, tokenizer_files[i], text.data, text.len, err);
        else if (st == SL_ERR_MISSING && i > 0) // of these only the first must be there
            st = SL_OK;
        sl_buf_deinit(&text);
        if (st)
            return sl_error_context(err, st, "tokenizer '%s'", from);
    }
    return SL_OK;
}

static sl_status write_texts(const synth_plan *p, const char *folder, const char *tokenizer,
                             sl_error *err) {
    sl_status st = write_text(folder, "config.json", p->config.data, p->config.len, err);
    if (st == SL_OK && p->generation)
        st =
            write_text(folder, "generation_config.json", p->generation, strlen(p->generation), err);
    if (st == SL_OK)
        st = write_text(folder, "model.safetensors.index.json", p->index.data, p->index.len, err);
    return st == SL_OK && tokenizer ? copy_tokenizer(tokenizer, folder, err) : st;
}

/* ---- folders -------------------------------------------------------------------------------------- */

static bool starts_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

static bool is_ours(const char *name) {
    for (size_t i = 0; i < SL_COUNT(own_files); i++)
        if (strcmp(name, own_files[i]) == 0)
            return true;
    for (size_t i = 0; i < SL_COUNT(tokenizer_files); i++)
        if (strcmp(name, tokenizer_files[i]) == 0)
            return true;
    size_t n = strlen(name), end = strlen(".safetensors");
    return starts_with(name, "model-") && n > end && strcmp(name + n - end, ".safetensors") == 0;
}

/* The names in a checkpoint's folder, and the bytes of its files. A folder with anything else in it, or a
 * file of that name, is refused. */
static sl_status list_checkpoint(const char *path, sl_buf *names, uint32_t *n, uint64_t *bytes,
                                 sl_error *err) {
    sl_path_info info;
    sl_status st = sl_path_stat(path, &info, err);
    *n = 0;
    *bytes = 0;
    if (st || info.kind == SL_PATH_NONE)
        return st;
    if (info.kind != SL_PATH_FOLDER)
        return sl_fail(err, SL_ERR_EXISTS, "'%s' is not a folder", path);
    if ((st = sl_folder_list(path, names, n, err)))
        return st;
    const char *name = names->data;
    for (uint32_t i = 0; i < *n; i++, name += strlen(name) + 1) {
        char file[SL_PATH_MAX];
        if (!is_ours(name))
            return sl_fail(err, SL_ERR_EXISTS, "'%s' holds '%s', which is no part of a checkpoint",
                           path, name);
        if ((st = sl_path_join(path, name, file, sizeof(file), err)) ||
            (st = sl_path_stat(file, &info, err)))
            return st;
        *bytes += info.bytes;
    }
    return SL_OK;
}

// One that is not there is fine.
static sl_status remove_checkpoint(const char *path, sl_error *err) {
    sl_path_info info;
    sl_buf names;
    uint32_t n;
    uint64_t bytes;
    sl_status st = sl_path_stat(path, &info, err);
    if (st || info.kind == SL_PATH_NONE)
        return st;
    sl_buf_init(&names);
    st = list_checkpoint(path, &names, &n, &bytes, err);
    const char *name = names.data;
    for (uint32_t i = 0; i < n && !st; i++, name += strlen(name) + 1) {
        char file[SL_PATH_MAX];
        if ((st = sl_path_join(path, name, file, sizeof(file), err)) == SL_OK)
            st = sl_path_remove(file, err);
    }
    sl_buf_deinit(&names);
    return st ? st : sl_folder_remove(path, err);
}

// Of a path that need not exist.
static void parent_of(const char *path, char *out, size_t cap) {
    const char *slash = strrchr(path, '/');
    (void)snprintf(out, cap, "%.*s", slash && slash > path ? (int)(slash - path) : 1,
                   slash ? path : ".");
}

// What is replaced makes room first.
static sl_status check_space(const synth_plan *p, const char *dir, sl_error *err) {
    char parent[SL_PATH_MAX];
    uint64_t free_bytes = 0, old_bytes;
    uint32_t n;
    sl_buf names;
    sl_buf_init(&names);
    parent_of(dir, parent, sizeof(parent));
    sl_status st = list_checkpoint(dir, &names, &n, &old_bytes, err);
    sl_buf_deinit(&names);
    if (st || (st = sl_path_free_bytes(parent, &free_bytes, err)))
        return st;
    free_bytes += old_bytes;
    if (free_bytes < p->bytes + SPARE_BYTES)
        return sl_fail(err, SL_ERR_IO, "the checkpoint takes %.2f GiB, and '%s' has %.2f GiB free",
                       (double)(p->bytes + SPARE_BYTES) / (double)SL_GIB, parent,
                       (double)free_bytes / (double)SL_GIB);
    return SL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static sl_status start(writer *w, sl_error *err) {
    uint32_t n = w->options->n_threads;
    uint64_t bytes = 2 * HALF_BYTES + n * w->plan->scratch_bytes + sl_pool_bytes(n) +
                     sl_thread_stack_bytes(SL_POOL_STACK_BYTES) + 4 * sl_thread_page_bytes();
    sl_status st = sl_arena_map(&w->arena, "buffers", bytes, err);
    if (st)
        return st;
    w->half[0] = sl_arena_alloc(&w->arena, HALF_BYTES, SL_PAGE);
    w->half[1] = sl_arena_alloc(&w->arena, HALF_BYTES, SL_PAGE);
    w->scratch = sl_arena_alloc(&w->arena, (size_t)(n * w->plan->scratch_bytes), 64);
    if (!w->half[0] || !w->half[1] || !w->scratch)
        return sl_arena_full(&w->arena, bytes, err);
    if ((st = sl_pool_init(&w->pool, n, &w->arena, NULL, err)))
        return st;
    (void)pthread_mutex_init(&w->drive.mutex, NULL);
    (void)pthread_cond_init(&w->drive.changed, NULL);
    st = sl_thread_start(&w->drive.thread, "drive", &w->arena, SL_POOL_STACK_BYTES, drive_run,
                         &w->drive, err);
    if (st)
        sl_pool_deinit(&w->pool);
    return st;
}

static sl_status write_all(const synth_plan *p, const char *folder,
                           const synth_write_options *options, sl_error *err) {
    writer w = {.plan = p, .options = options};
    sl_status st = start(&w, err);
    if (st == SL_OK) {
        for (uint32_t i = 0; i < p->n_shards && !st; i++)
            st = write_shard(&w, folder, i, err);
        drive_stop(&w.drive);
        sl_pool_deinit(&w.pool);
        (void)pthread_cond_destroy(&w.drive.changed);
        (void)pthread_mutex_destroy(&w.drive.mutex);
    }
    sl_arena_unmap(&w.arena);
    return st ? st : write_texts(p, folder, options->tokenizer, err);
}

sl_status synth_write(const synth_plan *p, const char *dir, const synth_write_options *options,
                      sl_error *err) {
    char path[SL_PATH_MAX], partial[SL_PATH_MAX];
    sl_path_info info;
    sl_status st;
    if ((st = sl_path_trim(dir, path, sizeof(path), err)) || (st = sl_path_stat(path, &info, err)))
        return st;
    if (info.kind != SL_PATH_NONE && !options->force)
        return sl_fail(err, SL_ERR_EXISTS, "'%s' exists; --force replaces a checkpoint", path);
    if (snprintf(partial, sizeof(partial), "%s.partial", path) >= (int)sizeof(partial))
        return sl_fail(err, SL_ERR_ARGUMENT, "the path is too long");
    if ((st = remove_checkpoint(partial, err)) || (st = check_space(p, path, err)) ||
        (st = remove_checkpoint(path, err)) || (st = sl_folder_make(partial, err)))
        return st;
    if ((st = write_all(p, partial, options, err)) || (st = sl_folder_sync(partial, err)) ||
        (st = sl_path_rename(partial, path, err)))
        (void)remove_checkpoint(partial, NULL);
    return st;
}
