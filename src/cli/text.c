/* The verbs tokenize and template: text tools without an engine and without a budget. See cli.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/signals.h"

#define INPUT_MAX ((size_t)1 << 30)

// The whole input, or the exit code of a reported failure.
static int read_all(cli *c, const char *path, char **text, size_t *n) {
    switch (cli_input_all(path, INPUT_MAX, text, n)) {
    case CLI_INPUT_OK:
        return CLI_EXIT_OK;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    case CLI_INPUT_TOO_LONG:
        return cli_fail(c, CLI_EXIT_FAILED, "argument", "'%s' is longer than %zu bytes", path,
                        INPUT_MAX);
    case CLI_INPUT_FAILED:
        break;
    }
    return cli_fail(c, CLI_EXIT_FAILED, "io", "reading '%s': %s", path, strerror(errno));
}

static int encode(cli *c, sl_tokenizer *tokenizer, const char *text, size_t len) {
    sl_error err;
    uint32_t *ids;
    size_t n;
    unsigned flags = (cli_given(c, CLI_PLAIN_TEXT) ? SL_TOKENIZE_PLAIN : 0) |
                     (cli_given(c, CLI_WHOLE) ? SL_TOKENIZE_WHOLE : 0);
    if (sl_tokenizer_encode(tokenizer, text, len, flags, &ids, &n, &err) != SL_OK)
        return cli_fail_status(c, &err);
    for (size_t i = 0; i < n; i++)
        cli_print(&c->out, "%s%u", i ? " " : "", ids[i]);
    cli_puts(&c->out, "\n");
    sl_free(ids);
    return CLI_EXIT_OK;
}

static int decode(cli *c, sl_tokenizer *tokenizer, const char *text, size_t len) {
    sl_error err;
    uint32_t *ids;
    size_t n;
    char problem[160];
    if (!cli_input_ids(text, len, &ids, &n, problem))
        return cli_fail(c, CLI_EXIT_FAILED, "syntax", "--decode: %s", problem);
    sl_sink sink = {cli_sink_out, c};
    sl_status st = sl_tokenizer_decode(tokenizer, ids, n, &sink, &err);
    free(ids);
    return st == SL_OK ? CLI_EXIT_OK : cli_fail_status(c, &err);
}

int cli_tokenize(cli *c) {
    char path[CLI_PATH_MAX], *text;
    int exit_code;
    size_t n;
    sl_error err;
    sl_tokenizer *tokenizer;
    if (cli_given(c, CLI_DECODE) && cli_given(c, CLI_PLAIN_TEXT))
        return cli_usage_error(c, "--plain is about reading text, --decode writes it: leave one");
    if (!cli_model_path(c, c->args.positional[0], true, path, &exit_code))
        return exit_code;
    if (sl_tokenizer_open(path, &tokenizer, &err) != SL_OK) {
        if (err.status == SL_ERR_MISSING && sl_model_kind_of(path) == SL_MODEL_NONE)
            return cli_no_model(c, c->args.positional[0], path);
        return cli_fail_status(c, &err);
    }
    exit_code = read_all(c, c->args.n_positional == 2 ? c->args.positional[1] : "-", &text, &n);
    if (exit_code == CLI_EXIT_OK) {
        exit_code = cli_given(c, CLI_DECODE) ? decode(c, tokenizer, text, n)
                                             : encode(c, tokenizer, text, n);
        free(text);
    }
    sl_tokenizer_close(tokenizer);
    return exit_code;
}

int cli_template(cli *c) {
    char path[CLI_PATH_MAX], *text;
    int exit_code;
    size_t n;
    sl_error err;
    if (!cli_model_path(c, c->args.positional[0], true, path, &exit_code))
        return exit_code;
    if ((exit_code = read_all(c, c->args.positional[1], &text, &n)) != CLI_EXIT_OK)
        return exit_code;
    sl_sink sink = {cli_sink_out, c};
    sl_status st = sl_template_render_file(path, text, n, &sink, &err);
    free(text);
    if (st == SL_ERR_MISSING && sl_model_kind_of(path) == SL_MODEL_NONE &&
        strcmp(path, c->args.positional[0]) != 0)
        return cli_no_model(c, c->args.positional[0], path);
    return st == SL_OK ? CLI_EXIT_OK : cli_fail_status(c, &err);
}
