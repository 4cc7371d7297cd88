/* The verb convert. See cli.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/signals.h"

bool cli_convert_destination(cli *c, const char *src, char dst[CLI_PATH_MAX], int *exit_code) {
    char folder[CLI_PATH_MAX];
    sl_error err;
    size_t end = strlen(src), start;
    while (end > 0 && src[end - 1] == '/')
        end--;
    for (start = end; start > 0 && src[start - 1] != '/'; start--) {
    }
    if (start == end || src[start] == '.') {
        *exit_code = cli_usage_error(c,
                                     "'%s' gives no name for the model: write one, as in "
                                     "'sluice convert CHECKPOINT NAME'",
                                     src);
        return false;
    }
    if (sl_models_folder(folder, sizeof(folder), &err) != SL_OK) {
        *exit_code = cli_fail_status(c, &err);
        return false;
    }
    if ((size_t)snprintf(dst, CLI_PATH_MAX, "%s/%.*s", folder, (int)(end - start), src + start) >=
        CLI_PATH_MAX) {
        *exit_code =
            cli_usage_error(c,
                            "the path of the models folder (%s) and the name of the checkpoint "
                            "are longer than %d bytes together",
                            folder, CLI_PATH_MAX);
        return false;
    }
    return true;
}

static bool report_convert(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    (void)phase;
    cli_progress_show(user, done, total);
    return cli_signal() == 0;
}

static void print_notes_json(cli_json *json, const char *notes) {
    cli_json_begin(json, "notes", '[');
    while (*notes) {
        size_t n = strcspn(notes, "\n");
        if (n > 0)
            cli_json_string(json, NULL, notes, n);
        notes += n + (notes[n] == '\n');
    }
    cli_json_end(json, ']');
}

static void print_report_json(cli *c, const char *dst, const sl_convert_report *r) {
    cli_json json = {.out = &c->out};
    cli_json_begin(&json, NULL, '{');
    cli_json_string(&json, "path", dst, strlen(dst));
    cli_json_uint(&json, "source_bytes", r->source_bytes);
    cli_json_uint(&json, "store_bytes", r->store_bytes);
    cli_json_uint(&json, "peak_bytes", r->peak_bytes);
    cli_json_real(&json, "seconds", r->seconds);
    cli_json_bool(&json, "resumed", r->resumed);
    cli_json_uint(&json, "tensors", r->n_tensors);
    cli_json_uint(&json, "experts", r->n_experts);
    cli_json_uint(&json, "skipped", r->n_skipped);
    cli_json_bool(&json, "has_tokenizer", r->has_tokenizer);
    cli_json_bool(&json, "has_template", r->has_template);
    print_notes_json(&json, r->notes);
    cli_json_end(&json, '}');
    cli_puts(&c->out, "\n");
}

// True when dst lies directly in the models folder, which then is what its name is looked up in.
static bool in_models_folder(const char *dst) {
    char folder[CLI_PATH_MAX];
    if (sl_models_folder(folder, sizeof(folder), NULL) != SL_OK)
        return false;
    size_t n = strlen(folder);
    return strncmp(dst, folder, n) == 0 && dst[n] == '/' && !strchr(dst + n + 1, '/');
}

static void print_report(cli *c, const char *dst, const sl_convert_report *r) {
    cli_out *out = &c->out;
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX], d[CLI_NUMBER_MAX], quoted[CLI_PATH_MAX];
    cli_set_style(out, CLI_BOLD);
    cli_text(out, dst, strlen(dst));
    cli_set_style(out, CLI_PLAIN);
    cli_print(out, "\n%s from %s in %.1f s%s; peak memory %s\n", cli_bytes(a, r->store_bytes),
              cli_bytes(b, r->source_bytes), r->seconds, r->resumed ? " (continued)" : "",
              cli_bytes(d, r->peak_bytes));
    cli_print(out, "%u tensors, %u experts", r->n_tensors, r->n_experts);
    if (r->n_skipped > 0)
        cli_print(out, ", %u tensors left out", r->n_skipped);
    cli_puts(out, "\n");
    cli_wrap(out, r->notes, 0, 0);
    if (out->mid_line)
        cli_puts(out, "\n");
    if (r->has_tokenizer && r->has_template)
        cli_print(out, "Next: sluice run %s\n",
                  cli_quoted(in_models_folder(dst) ? strrchr(dst, '/') + 1 : dst, quoted,
                             sizeof(quoted)));
    else
        cli_print(out, "It has no %s: 'sluice logits' works, 'sluice run' does not%s\n",
                  r->has_tokenizer ? "chat template" : "tokenizer",
                  r->has_tokenizer ? " (except with --raw)" : "");
}

int cli_convert_paths(cli *c, const char *src, const char *dst, const sl_convert_options *options) {
    sl_error err;
    sl_convert_report report;
    cli_progress line;
    char parents[CLI_PATH_MAX];
    snprintf(parents, sizeof(parents), "%s", dst);
    if (in_models_folder(dst) && !cli_make_folders_above(parents))
        return cli_fail(c, CLI_EXIT_FAILED, "io", "making '%s': %s", parents, strerror(errno));
    memset(&report, 0, sizeof(report));
    cli_signals_catch();
    cli_progress_init(&line, &c->err, "converting", false);
    if (c->quiet)
        line.out = NULL;
    sl_progress progress = {report_convert, &line};
    sl_status st = sl_convert(src, dst, options, &progress, &report, &err);
    cli_progress_clear(&line);
    if (st == SL_ERR_CANCELED && cli_signal()) {
        cli_note(c, "stopped; nothing is lost: the same command goes on from here");
        return CLI_EXIT_SIGNAL + cli_signal();
    }
    if (st == SL_ERR_EXISTS)
        return cli_fail(c, CLI_EXIT_FAILED, "exists", "%s", err.message);
    if (st != SL_OK)
        return cli_fail_status(c, &err);
    if (c->json)
        print_report_json(c, dst, &report);
    else
        print_report(c, dst, &report);
    return CLI_EXIT_OK;
}

// The source is destroyed: nobody may be surprised.
static bool confirm_move(cli *c, const char *src, const char *dst) {
    char question[2 * CLI_PATH_MAX + 128];
    snprintf(question, sizeof(question),
             "Move '%s' to '%s'? Its weights are removed as they are converted.", src, dst);
    return cli_given(c, CLI_YES) || cli_confirm(c, question);
}

int cli_convert(cli *c) {
    char dst[CLI_PATH_MAX], quoted[CLI_PATH_MAX];
    int exit_code;
    const char *src = c->args.positional[0];
    sl_convert_options options;
    sl_convert_options_init(&options);
    if (cli_given(c, CLI_BITS))
        options.bits = (uint32_t)(cli_string(c, CLI_BITS)[0] - '0');
    if (cli_given(c, CLI_GROUP)) {
        const char *group = cli_string(c, CLI_GROUP);
        options.group = group[0] == '3' ? 32 : group[0] == '6' ? 64 : 128;
    }
    options.force = cli_given(c, CLI_FORCE);
    options.move = cli_given(c, CLI_MOVE);
    if (options.move && options.force)
        return cli_usage_error(c, "--move replaces nothing: leave --force out");
    if (c->args.n_positional == 2) {
        if (!cli_model_path(c, c->args.positional[1], false, dst, &exit_code))
            return exit_code;
    } else if (!cli_convert_destination(c, src, dst, &exit_code)) {
        return exit_code;
    }
    switch (sl_model_kind_of(src)) {
    case SL_MODEL_NONE:
        return cli_fail(
            c, CLI_EXIT_MODEL, "missing",
            "there is no checkpoint at '%s': a folder with config.json and safetensors files is "
            "expected",
            src);
    case SL_MODEL_STORE:
        return cli_fail(c, CLI_EXIT_USAGE, "usage",
                        "'%s' is converted already: 'sluice run %s' runs it", src,
                        cli_quoted(src, quoted, sizeof(quoted)));
    default:
        if (options.move && !confirm_move(c, src, dst))
            return cli_signal() ? CLI_EXIT_SIGNAL + cli_signal()
                                : cli_fail(c, CLI_EXIT_USAGE, "usage",
                                           "--move destroys the checkpoint: say --yes");
        return cli_convert_paths(c, src, dst, &options);
    }
}
