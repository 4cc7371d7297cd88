/* From a model's name on the command line to a path, and on to an open engine. See cli.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/signals.h"

bool cli_model_path(cli *c, const char *model, bool files_too, char path[CLI_PATH_MAX],
                    int *exit_code) {
    struct stat s;
    sl_error err;
    if (files_too && strlen(model) < CLI_PATH_MAX && stat(model, &s) == 0 && S_ISREG(s.st_mode)) {
        snprintf(path, CLI_PATH_MAX, "%s", model);
        return true;
    }
    if (sl_model_path(model, path, CLI_PATH_MAX, &err) == SL_OK)
        return true;
    *exit_code = cli_fail_status(c, &err);
    return false;
}

bool cli_make_folders_above(char *path) {
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST)
            return false;
        *slash = '/';
    }
    return true;
}

const char *cli_quoted(const char *path, char *buffer, size_t cap) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    size_t n = 0;
    if (*path && path[strspn(path, plain)] == '\0')
        return path;
    buffer[n++] = '\'';
    for (; *path; path++) {
        if (n + 6 > cap)
            return path;
        if (*path == '\'') {
            memcpy(buffer + n, "'\\''", 4);
            n += 4;
        } else {
            buffer[n++] = *path;
        }
    }
    buffer[n++] = '\'';
    buffer[n] = '\0';
    return buffer;
}

/* ---- the models folder ----------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool cli_list_models(const char *folder, cli_each_model each, void *user) {
    DIR *dir = opendir(folder);
    if (!dir)
        return false;
    char **names = NULL;
    size_t n = 0, cap = 0;
    bool good = true;
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (n == cap) {
            size_t more = cap ? 2 * cap : 32;
            char **larger = realloc(names, more * sizeof(*names));
            good = larger != NULL;
            if (!good)
                break;
            names = larger;
            cap = more;
        }
        names[n] = strdup(entry->d_name);
        good = names[n] != NULL;
        n += good;
    }
    closedir(dir);
    if (n > 0)
        qsort(names, n, sizeof(*names), by_name);
    for (size_t i = 0; i < n; i++) {
        char path[CLI_PATH_MAX];
        if (good &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", folder, names[i]) < sizeof(path)) {
            sl_model_kind kind = sl_model_kind_of(path);
            if (kind != SL_MODEL_NONE)
                each(user, names[i], path, kind);
        }
        free(names[i]);
    }
    free(names);
    if (!good)
        errno = ENOMEM;
    return good;
}

// The names of the stores, for a message: "a, b, c".
struct names {
    char text[1024];
    size_t n;
    bool cut;
};

static void add_name(void *user, const char *name, const char *path, sl_model_kind kind) {
    struct names *list = user;
    (void)path;
    size_t length = strlen(name);
    if (kind != SL_MODEL_STORE || list->cut)
        return;
    if (list->n + length + 8 > sizeof(list->text)) {
        memcpy(list->text + list->n, ", ...", 6);
        list->cut = true;
        return;
    }
    list->n += (size_t)snprintf(list->text + list->n, sizeof(list->text) - list->n, "%s%s",
                                list->n ? ", " : "", name);
}

int cli_no_model(cli *c, const char *model, const char *path) {
    char folder[CLI_PATH_MAX], partial[CLI_PATH_MAX + 16], quoted[CLI_PATH_MAX];
    struct names list = {.n = 0};
    snprintf(partial, sizeof(partial), "%s.partial", path);
    if (sl_model_kind_of(partial) == SL_MODEL_PARTIAL)
        return cli_fail(c, CLI_EXIT_MODEL, "missing",
                        "the conversion to '%s' is not finished: 'sluice convert CHECKPOINT %s' "
                        "goes on with it",
                        path, cli_quoted(model, quoted, sizeof(quoted)));
    if (sl_models_folder(folder, sizeof(folder), NULL) == SL_OK)
        cli_list_models(folder, add_name, &list);
    if (list.n > 0)
        return cli_fail(c, CLI_EXIT_MODEL, "missing",
                        "there is no model '%s': looked for %s\n"
                        "The models folder has: %s",
                        model, path, list.text);
    return cli_fail(c, CLI_EXIT_MODEL, "missing",
                    "there is no model '%s': looked for %s\n"
                    "The models folder is empty: 'sluice convert CHECKPOINT' fills it",
                    model, path);
}

int cli_model_find(cli *c, const char *model, char path[CLI_PATH_MAX], bool *convert) {
    int exit_code;
    *convert = false;
    if (!cli_model_path(c, model, true, path, &exit_code))
        return exit_code;
    switch (sl_model_kind_of(path)) {
    case SL_MODEL_STORE:
        return CLI_EXIT_OK;
    case SL_MODEL_CHECKPOINT:
        // Whatever else is wrong with it, converting or opening tells.
        *convert = sl_model_runs_in_place(path, NULL) != SL_OK;
        return CLI_EXIT_OK;
    case SL_MODEL_CONFIG:
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' describes a model and holds no weights: 'sluice plan' takes it, %s "
                        "does not",
                        path, cli_verbs[c->args.verb].name);
    case SL_MODEL_PARTIAL:
        return cli_fail(
            c, CLI_EXIT_MODEL, "unsupported",
            "'%s' is an unfinished conversion: the same 'sluice convert' as before goes on with it",
            path);
    case SL_MODEL_OTHER:
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' is of a kind that is not supported yet: a folder with config.json "
                        "and safetensors files can be converted",
                        path);
    case SL_MODEL_NONE:
        break;
    }
    return cli_no_model(c, model, path);
}

/* ---- engine ---------------------------------------------------------------------------------- */

void cli_engine_options(const cli *c, sl_engine_options *options) {
    sl_engine_options_init(options);
    options->scope = SL_SCOPE_PROCESS;
    if (cli_given(c, CLI_MEM))
        options->mem_bytes = cli_count(c, CLI_MEM);
    if (cli_given(c, CLI_CTX))
        options->n_ctx = (uint32_t)cli_count(c, CLI_CTX);
    if (cli_given(c, CLI_THREADS))
        options->n_threads = (uint32_t)cli_count(c, CLI_THREADS);
    if (cli_given(c, CLI_CHUNK))
        options->chunk = (uint32_t)cli_count(c, CLI_CHUNK);
    if (cli_given(c, CLI_IO)) {
        const char *io = cli_string(c, CLI_IO);
        options->io = strcmp(io, "uring") == 0   ? SL_IO_URING
                      : strcmp(io, "pread") == 0 ? SL_IO_PREAD
                                                 : SL_IO_AUTO;
    }
    if (cli_given(c, CLI_CPU))
        options->cpu = cli_string(c, CLI_CPU);
    options->buffered = cli_given(c, CLI_BUFFERED);
    options->no_guesses = cli_given(c, CLI_NO_GUESSES);
}

static bool report_open(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    (void)phase;
    cli_progress_show(user, done, total);
    return cli_signal() == 0;
}

int cli_fail_open(cli *c, const char *path, const sl_engine_options *options, const sl_error *err) {
    sl_plan_info plan;
    char size[CLI_NUMBER_MAX];
    if (err->status != SL_ERR_BUDGET)
        return cli_fail_status(c, err);
    sl_plan(path, options, false, &plan, NULL); // fails as open did, and fills the smallest budget
    return cli_fail(c, CLI_EXIT_BUDGET, "budget",
                    "%s\nThe smallest budget that works here: --mem %s", err->message,
                    cli_size(size, plan.smallest_bytes));
}

int cli_engine_open(cli *c, const char *path, const sl_engine_options *options,
                    sl_engine **engine) {
    sl_error err;
    cli_progress line;
    cli_progress_init(&line, &c->err, "opening", false);
    if (c->quiet)
        line.out = NULL;
    sl_progress progress = {report_open, &line};
    sl_status st = sl_engine_open(path, options, &progress, engine, &err);
    cli_progress_clear(&line);
    if (st == SL_OK && cli_signal()) {
        sl_engine_close(*engine);
        *engine = NULL;
        return CLI_EXIT_SIGNAL + cli_signal();
    }
    return st == SL_OK ? CLI_EXIT_OK : cli_fail_open(c, path, options, &err);
}

bool cli_sink_out(void *user, const char *bytes, size_t n) {
    cli *c = user;
    cli_text(&c->out, bytes, n);
    return c->out.error == 0;
}
