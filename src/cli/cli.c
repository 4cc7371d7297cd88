/* The program around its verbs: parsing, errors, exit codes. See cli.h. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/help.h"
#include "cli/signals.h"

/* ---- failing --------------------------------------------------------------------------------- */

static int fail_text(cli *c, int exit_code, const char *code, const char *text) {
    if (c->json) {
        cli_json json = {.out = &c->out};
        cli_json_begin(&json, NULL, '{');
        cli_json_begin(&json, "error", '{');
        cli_json_string(&json, "code", code, strlen(code));
        cli_json_string(&json, "message", text, strlen(text));
        cli_json_end(&json, '}');
        cli_json_end(&json, '}');
        cli_puts(&c->out, "\n");
    } else {
        cli_flush(&c->out);
        if (c->err.mid_line)
            cli_puts(&c->err, "\n");
        cli_set_style(&c->err, CLI_RED);
        cli_puts(&c->err, "sluice:");
        cli_set_style(&c->err, CLI_PLAIN);
        cli_puts(&c->err, " ");
        cli_message(&c->err, text, (int)strlen("sluice: "));
        cli_puts(&c->err, "\n");
    }
    return exit_code;
}

int cli_fail(cli *c, int exit_code, const char *code, const char *fmt, ...) {
    char text[2 * CLI_PATH_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return fail_text(c, exit_code, code, text);
}

int cli_usage_error(cli *c, const char *fmt, ...) {
    char text[2 * CLI_PATH_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return fail_text(c, CLI_EXIT_USAGE, "usage", text);
}

const char *cli_status_word(sl_status status, char buffer[32]) {
    const char *name = sl_status_name(status);
    if (strncmp(name, "SL_ERR_", 7) == 0)
        name += 7;
    size_t n = 0;
    for (; name[n] && n < 31; n++)
        buffer[n] = (char)tolower((unsigned char)name[n]);
    buffer[n] = '\0';
    return buffer;
}

int cli_stopped(cli *c) {
    // The reader left, or there was none from the start.
    if (c->out.error == EPIPE || c->out.error == EBADF)
        return CLI_EXIT_OK;
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    if (c->out.error) {
        c->json = false; // there is nowhere to write an object to
        return cli_fail(c, CLI_EXIT_FAILED, "io", "writing to standard output: %s",
                        strerror(c->out.error));
    }
    return -1;
}

int cli_exit_code(sl_status status) {
    switch (status) {
    case SL_OK:
        return CLI_EXIT_OK;
    case SL_ERR_ARGUMENT:
    case SL_ERR_SYNTAX:
        return CLI_EXIT_USAGE;
    case SL_ERR_BUDGET:
        return CLI_EXIT_BUDGET;
    case SL_ERR_MISSING:
    case SL_ERR_CORRUPT:
    case SL_ERR_UNSUPPORTED:
        return CLI_EXIT_MODEL;
    default:
        return CLI_EXIT_FAILED;
    }
}

int cli_fail_status(cli *c, const sl_error *err) {
    char word[32];
    int stopped = err->status == SL_ERR_CANCELED ? cli_stopped(c) : -1;
    if (stopped >= 0)
        return stopped;
    return fail_text(c, cli_exit_code(err->status), cli_status_word(err->status, word),
                     *err->message ? err->message : sl_status_text(err->status));
}

void cli_note(cli *c, const char *fmt, ...) {
    if (c->quiet)
        return;
    char text[2 * CLI_PATH_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    cli_set_style(&c->err, CLI_DIM);
    cli_message(&c->err, text, 0);
    cli_set_style(&c->err, CLI_PLAIN);
    cli_puts(&c->err, "\n");
    cli_flush(&c->err);
}

bool cli_can_ask(const cli *c) {
    return !c->json && c->err.terminal && isatty(STDIN_FILENO) == 1;
}

bool cli_confirm(cli *c, const char *question) {
    if (!cli_can_ask(c))
        return false;
    cli_text(&c->err, question, strlen(question));
    cli_puts(&c->err, " [y/N] ");
    cli_flush(&c->err);
    c->err.mid_line = false; // the terminal echoes the end of the line
    char line[64];
    if (!cli_signals_wait_readable(STDIN_FILENO))
        return false;
    ssize_t n = read(STDIN_FILENO, line, sizeof(line));
    return n > 0 && (line[0] == 'y' || line[0] == 'Y');
}

/* ---- program --------------------------------------------------------------------------------- */

void cli_process_begin(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    signal(SIGPIPE, SIG_IGN); // a write to a reader that left returns EPIPE, which ends us quietly
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error, not the end
}

int cli_program(int argc, char *const *argv, int out_fd, int err_fd,
                const cli_verb_function functions[CLI_N_VERBS]) {
    cli context, *c = &context;
    char message[CLI_MESSAGE_MAX];
    memset(c, 0, sizeof(*c));
    c->argv = argv;
    // Also a command line that cannot be parsed is answered in the form it asks for.
    bool colour = true;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        c->json = c->json || strcmp(argv[i], "--json") == 0;
        colour = colour && strcmp(argv[i], "--no-color") != 0;
    }
    cli_out_init(&c->out, out_fd, colour);
    cli_out_init(&c->err, err_fd, colour);

    int exit_code;
    if (argc < 2) {
        cli_help_overview(&c->err);
        exit_code = CLI_EXIT_USAGE;
    } else if (!cli_parse(argc, argv, &c->args, message)) {
        exit_code = cli_usage_error(c, "%s", message);
    } else if (c->args.given[CLI_HELP_FLAG]) {
        cli_help_verb(&c->out, c->args.verb);
        exit_code = CLI_EXIT_OK;
    } else if (!functions[c->args.verb]) {
        exit_code = cli_usage_error(c, "this program does not do that: write 'sluice %s'",
                                    cli_verbs[c->args.verb].name);
    } else {
        c->json = cli_given(c, CLI_JSON);
        c->quiet = cli_given(c, CLI_QUIET);
        exit_code = functions[c->args.verb](c);
    }
    if (!cli_flush(&c->out) && exit_code == CLI_EXIT_OK)
        exit_code = cli_stopped(c);
    cli_flush(&c->err);
    return exit_code;
}
