/* The verb plan: what a budget is spent on. See cli.h. */
#include <string.h>

#include "cli/cli.h"

static void print_json(cli *c, const sl_plan_info *plan, const sl_error *err) {
    cli_json json = {.out = &c->out};
    cli_json_begin(&json, NULL, '{');
    cli_plan_members(&json, plan);
    if (err) {
        cli_json_begin(&json, "error", '{');
        cli_json_string(&json, "code", "budget", 6);
        cli_json_string(&json, "message", err->message, strlen(err->message));
        cli_json_end(&json, '}');
    }
    cli_json_end(&json, '}');
    cli_puts(&c->out, "\n");
}

int cli_plan(cli *c) {
    char path[CLI_PATH_MAX];
    int exit_code;
    sl_error err;
    sl_engine_options options;
    sl_plan_info plan;
    if (!cli_model_path(c, c->args.positional[0], true, path, &exit_code))
        return exit_code;
    if (sl_model_kind_of(path) == SL_MODEL_NONE)
        return cli_no_model(c, c->args.positional[0], path);
    cli_engine_options(c, &options);
    sl_status st = sl_plan(path, &options, true, &plan, &err);
    if (st != SL_OK && st != SL_ERR_BUDGET)
        return cli_fail_status(c, &err);
    if (c->json)
        print_json(c, &plan, st == SL_OK ? NULL : &err);
    else
        cli_plan_print(&c->out, path, &plan, err.message);
    return cli_exit_code(st);
}
