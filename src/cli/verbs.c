/* The program sluice: which function each verb is. See cli.h. */
#include "cli/cli.h"
#include "cli/help.h"

int cli_help(cli *c) {
    if (cli_given(c, CLI_MAN))
        cli_help_man(&c->out);
    else if (cli_given(c, CLI_BASH))
        cli_help_bash(&c->out);
    else if (cli_given(c, CLI_MARKDOWN))
        cli_help_markdown(&c->out);
    else if (c->args.n_positional == 0)
        cli_help_overview(&c->out);
    else {
        const char *name = c->args.positional[0];
        cli_verb_id verb = cli_verb_find(name);
        if (verb == CLI_N_VERBS) {
            const char *nearest = cli_verb_nearest(name);
            return cli_usage_error(c, "there is no verb '%.64s'%s%s%s", name,
                                   nearest ? ": did you mean '" : "", nearest ? nearest : "",
                                   nearest ? "'?" : ": 'sluice help' lists them");
        }
        cli_help_verb(&c->out, verb);
    }
    return CLI_EXIT_OK;
}

static const cli_verb_function functions[CLI_N_VERBS] = {
    [CLI_RUN] = cli_run,
    [CLI_SERVE] = cli_serve,
    [CLI_CONVERT] = cli_convert,
    [CLI_PLAN] = cli_plan,
    [CLI_SHOW] = cli_show,
    [CLI_VERIFY] = cli_verify,
    [CLI_DOCTOR] = cli_doctor,
    [CLI_LS] = cli_ls,
    [CLI_RM] = cli_rm,
    [CLI_LOGITS] = cli_logits,
    [CLI_BENCH] = cli_bench,
    [CLI_TRACE] = cli_trace,
    [CLI_TOKENIZE] = cli_tokenize,
    [CLI_TEMPLATE] = cli_template,
    [CLI_VERSION] = cli_version,
    [CLI_HELP] = cli_help,
};

int cli_main(int argc, char *const *argv, int out_fd, int err_fd) {
    return cli_program(argc, argv, out_fd, err_fd, functions);
}
