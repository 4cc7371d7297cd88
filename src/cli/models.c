/* Verbs about models as things on a drive: show, verify, doctor, ls, rm; and version. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "cli/cli.h"
#include "cli/signals.h"

int cli_show(cli *c) {
    char path[CLI_PATH_MAX];
    int exit_code;
    sl_error err;
    if (!cli_model_path(c, c->args.positional[0], true, path, &exit_code))
        return exit_code;
    if (sl_model_kind_of(path) == SL_MODEL_NONE)
        return cli_no_model(c, c->args.positional[0], path);
    sl_sink sink = {cli_sink_out, c};
    if (sl_show(path, c->json, &sink, &err) != SL_OK)
        return cli_fail_status(c, &err);
    if (c->out.mid_line)
        cli_puts(&c->out, "\n");
    return CLI_EXIT_OK;
}

int cli_doctor(cli *c) {
    char path[CLI_PATH_MAX];
    int exit_code;
    struct stat s;
    sl_error err;
    if (c->args.n_positional > 0) {
        if (!cli_model_path(c, c->args.positional[0], true, path, &exit_code))
            return exit_code;
        if (stat(path, &s) != 0)
            return cli_no_model(c, c->args.positional[0], path);
    } else if (sl_models_folder(path, sizeof(path), &err) != SL_OK) {
        return cli_fail_status(c, &err);
    } else if (stat(path, &s) != 0) {
        cli_note(c, "there is no models folder yet (%s): looking at the working folder", path);
        snprintf(path, sizeof(path), ".");
    }
    sl_sink sink = {cli_sink_out, c};
    if (sl_doctor(path, c->json, &sink, &err) != SL_OK)
        return cli_fail_status(c, &err);
    if (c->out.mid_line)
        cli_puts(&c->out, "\n");
    return CLI_EXIT_OK;
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct verify {
    cli *c;
    cli_progress line;
    cli_json json;
    bool in_string;
    size_t n_lines;
};

static bool report_verify(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    struct verify *v = user;
    (void)phase;
    cli_progress_show(&v->line, done, total);
    return cli_signal() == 0;
}

// Lines of damage and remarks; with --json they become the strings of an array.
static bool write_line(void *user, const char *bytes, size_t n) {
    struct verify *v = user;
    cli_progress_clear(&v->line);
    if (!v->c->json)
        return cli_sink_out(v->c, bytes, n);
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        size_t part = newline ? (size_t)(newline - bytes) : n;
        if (part > 0 && !v->in_string) {
            cli_json_string_begin(&v->json, NULL);
            v->in_string = true;
        }
        cli_json_string_part(&v->json, bytes, part);
        if (newline && v->in_string) {
            cli_json_string_end(&v->json);
            v->in_string = false;
        }
        part += newline != NULL;
        bytes += part;
        n -= part;
    }
    return v->c->out.error == 0;
}

int cli_verify(cli *c) {
    char path[CLI_PATH_MAX], word[32];
    int exit_code;
    uint32_t n_damaged = 0;
    sl_error err;
    struct verify v = {.c = c, .json.out = &c->out};
    if (!cli_model_path(c, c->args.positional[0], false, path, &exit_code))
        return exit_code;
    sl_model_kind kind = sl_model_kind_of(path);
    if (kind == SL_MODEL_NONE)
        return cli_no_model(c, c->args.positional[0], path);
    if (kind != SL_MODEL_STORE)
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' is not a converted model: checksums exist only in those", path);

    cli_signals_catch();
    cli_progress_init(&v.line, &c->err, "verifying", false);
    if (c->quiet)
        v.line.out = NULL;
    sl_progress progress = {report_verify, &v};
    sl_sink sink = {write_line, &v};
    if (c->json) {
        cli_json_begin(&v.json, NULL, '{');
        cli_json_begin(&v.json, "lines", '[');
    }
    sl_status st = sl_verify(path, &progress, &sink, &n_damaged, &err);
    cli_progress_clear(&v.line);
    if (c->json) {
        if (v.in_string)
            cli_json_string_end(&v.json);
        cli_json_end(&v.json, ']');
        cli_json_uint(&v.json, "damaged", n_damaged);
        cli_json_bool(&v.json, "ok", st == SL_OK);
        if (st != SL_OK) {
            cli_status_word(err.status, word);
            cli_json_begin(&v.json, "error", '{');
            cli_json_string(&v.json, "code", word, strlen(word));
            cli_json_string(&v.json, "message", err.message, strlen(err.message));
            cli_json_end(&v.json, '}');
        }
        cli_json_end(&v.json, '}');
        cli_puts(&c->out, "\n");
        exit_code = st == SL_ERR_CANCELED ? cli_stopped(c) : -1;
        return exit_code >= 0 ? exit_code : cli_exit_code(st);
    }
    if (st != SL_OK)
        return cli_fail_status(c, &err);
    cli_print(&c->out, "%s: every checksum is right\n", path);
    return CLI_EXIT_OK;
}

/* ---- ls -------------------------------------------------------------------------------------- */

// Bytes of the files in a folder and in the folders directly in it, which is as deep as a model
// goes.
static uint64_t folder_bytes(const char *path, int depth) {
    uint64_t total = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char inner[CLI_PATH_MAX];
        struct stat s;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) >= sizeof(inner) ||
            lstat(inner, &s) != 0)
            continue;
        if (S_ISREG(s.st_mode))
            total += (uint64_t)s.st_size;
        else if (S_ISDIR(s.st_mode) && depth > 0)
            total += folder_bytes(inner, depth - 1);
    }
    closedir(dir);
    return total;
}

static const char *kind_name(sl_model_kind kind) {
    switch (kind) {
    case SL_MODEL_STORE:
        return "model";
    case SL_MODEL_CHECKPOINT:
        return "checkpoint";
    case SL_MODEL_CONFIG:
        return "config";
    case SL_MODEL_PARTIAL:
        return "unfinished";
    case SL_MODEL_OTHER:
        return "unsupported";
    case SL_MODEL_NONE:
        break;
    }
    return "none";
}

struct list {
    cli *c;
    cli_json json;
    int width;
    size_t n;
};

static void measure_name(void *user, const char *name, const char *path, sl_model_kind kind) {
    struct list *list = user;
    (void)path;
    (void)kind;
    int width = (int)strlen(name);
    list->width = width > list->width ? width : list->width;
    list->n++;
}

static void print_model(void *user, const char *name, const char *path, sl_model_kind kind) {
    struct list *list = user;
    cli_out *out = &list->c->out;
    char size[CLI_NUMBER_MAX];
    if (cli_given(list->c, CLI_NAMES)) {
        if (kind == SL_MODEL_STORE)
            cli_print(out, "%s\n", name);
        return;
    }
    uint64_t bytes = folder_bytes(path, 1);
    if (list->c->json) {
        cli_json_begin(&list->json, NULL, '{');
        cli_json_string(&list->json, "name", name, strlen(name));
        cli_json_string(&list->json, "path", path, strlen(path));
        cli_json_string(&list->json, "kind", kind_name(kind), strlen(kind_name(kind)));
        cli_json_uint(&list->json, "bytes", bytes);
        cli_json_end(&list->json, '}');
        return;
    }
    cli_text(out, name, strlen(name));
    cli_print(out, "%*s  %10s  ", list->width - (int)strlen(name), "", cli_bytes(size, bytes));
    cli_set_style(out, kind == SL_MODEL_STORE ? CLI_PLAIN : CLI_DIM);
    cli_puts(out, kind_name(kind));
    cli_set_style(out, CLI_PLAIN);
    cli_puts(out, "\n");
}

int cli_ls(cli *c) {
    char folder[CLI_PATH_MAX];
    sl_error err;
    struct list list = {.c = c, .json.out = &c->out};
    if (cli_given(c, CLI_NAMES) && c->json)
        return cli_usage_error(c, "--names and --json are two forms: leave one");
    if (sl_models_folder(folder, sizeof(folder), &err) != SL_OK)
        return cli_fail_status(c, &err);
    if (!cli_list_models(folder, measure_name, &list) && errno != ENOENT)
        return cli_fail(c, CLI_EXIT_FAILED, "io", "listing '%s': %s", folder, strerror(errno));
    if (c->json) {
        cli_json_begin(&list.json, NULL, '{');
        cli_json_string(&list.json, "folder", folder, strlen(folder));
        cli_json_begin(&list.json, "models", '[');
    }
    if (list.n > 0)
        cli_list_models(folder, print_model, &list);
    else if (!c->json && !cli_given(c, CLI_NAMES))
        cli_note(c, "no models in %s: 'sluice convert CHECKPOINT' makes one", folder);
    if (c->json) {
        cli_json_end(&list.json, ']');
        cli_json_end(&list.json, '}');
        cli_puts(&c->out, "\n");
    }
    return CLI_EXIT_OK;
}

int cli_rm(cli *c) {
    char path[CLI_PATH_MAX], partial[CLI_PATH_MAX + 16], question[CLI_PATH_MAX + 64];
    char size[CLI_NUMBER_MAX];
    const char *target = path;
    int exit_code;
    sl_error err;
    if (!cli_model_path(c, c->args.positional[0], false, path, &exit_code))
        return exit_code;
    sl_model_kind kind = sl_model_kind_of(path);
    snprintf(partial, sizeof(partial), "%s.partial", path);
    if (kind == SL_MODEL_NONE && sl_model_kind_of(partial) == SL_MODEL_PARTIAL) {
        target = partial;
        kind = SL_MODEL_PARTIAL;
    }
    if (kind == SL_MODEL_NONE)
        return cli_no_model(c, c->args.positional[0], path);
    if (kind != SL_MODEL_STORE && kind != SL_MODEL_PARTIAL)
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' was not made by a conversion, so it is not removed here", path);
    if (!cli_given(c, CLI_YES)) {
        if (!cli_can_ask(c))
            return cli_usage_error(c,
                                   "removing '%s' needs a yes, and there is no terminal to ask on: "
                                   "add --yes",
                                   target);
        snprintf(question, sizeof(question), "Remove %s '%s' (%s)?",
                 kind == SL_MODEL_STORE ? "the model" : "the unfinished conversion", target,
                 cli_bytes(size, folder_bytes(target, 1)));
        if (!cli_confirm(c, question)) {
            cli_note(c, "kept");
            return CLI_EXIT_FAILED;
        }
    }
    if (sl_model_remove(target, &err) != SL_OK)
        return cli_fail_status(c, &err);
    cli_note(c, "removed %s", target);
    return CLI_EXIT_OK;
}

/* ---- version --------------------------------------------------------------------------------- */

int cli_version(cli *c) {
    static const char *const checkpoints[] = {"mlx-community (affine 2, 3, 4, 5, 6, 8 bit)",
                                              "Hugging Face safetensors (BF16, F16, F32)"};
    struct utsname machine;
    if (uname(&machine) != 0)
        memset(&machine, 0, sizeof(machine));
    if (c->json) {
        cli_json json = {.out = &c->out};
        cli_json_begin(&json, NULL, '{');
        cli_json_string(&json, "version", sl_version(), strlen(sl_version()));
        cli_json_string(&json, "licence", "Apache-2.0", 10);
        cli_json_string(&json, "system", machine.sysname, strlen(machine.sysname));
        cli_json_string(&json, "machine", machine.machine, strlen(machine.machine));
        cli_json_begin(&json, "checkpoints", '[');
        for (size_t i = 0; i < 2; i++)
            cli_json_string(&json, NULL, checkpoints[i], strlen(checkpoints[i]));
        cli_json_end(&json, ']');
        cli_json_end(&json, '}');
        cli_puts(&c->out, "\n");
        return CLI_EXIT_OK;
    }
    cli_print(&c->out, "sluice %s (%s, %s)\n", sl_version(), machine.sysname, machine.machine);
    cli_puts(&c->out, "Licence      Apache-2.0\n");
    for (size_t i = 0; i < 2; i++)
        cli_print(&c->out, "%-11s  %s\n", i ? "" : "Checkpoints", checkpoints[i]);
    return CLI_EXIT_OK;
}
