/* What every verb of the command line shares: its context, its way to fail, and how a model's name
 * becomes an open engine. The command line is a user of sluice.h and of nothing below it. */
#ifndef SL_CLI_CLI_H
#define SL_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/console.h"
#include "cli/options.h"
#include "sluice.h"

enum {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILED = 1,
    CLI_EXIT_USAGE = 2,
    CLI_EXIT_BUDGET = 3,
    CLI_EXIT_MODEL = 4,
    CLI_EXIT_SIGNAL = 128, // plus the signal's number
};

#define CLI_PATH_MAX 4096

typedef struct cli {
    cli_args args;
    char *const *argv; // what args was read from
    cli_out out, err;
    bool json, quiet;
} cli;

static inline bool cli_given(const cli *c, cli_option_id id) {
    return c->args.given[id];
}
static inline uint64_t cli_count(const cli *c, cli_option_id id) {
    return c->args.value[id].count;
}
static inline const char *cli_string(const cli *c, cli_option_id id) {
    return c->args.value[id].text;
}

/* ---- failing --------------------------------------------------------------------------------- */

/* Report an error: "sluice: message" on standard error or, with --json, one object on standard
 * output. code is a word for scripts. Returns exit_code, so that a verb can return the call. */
int cli_fail(cli *c, int exit_code, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
int cli_usage_error(cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for an error of the library: the exit code follows from the status (and, when it was
 * canceled, from the signal; when our own output failed, from that). */
int cli_fail_status(cli *c, const sl_error *err);
int cli_exit_code(sl_status status);
/* What a caught signal or failed output makes of the exit code: 130, 143, 0 for a reader that left,
 * 1 for a failed write, which is reported here; -1 when neither happened. */
int cli_stopped(cli *c);
/* "SL_ERR_BUDGET" as "budget". */
const char *cli_status_word(sl_status status, char buffer[32]);

/* A remark on standard error, unless --quiet. */
void cli_note(cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "question [y/N] " on standard error, an answer from the terminal. False without a terminal, and
 * when a caught signal comes first. */
bool cli_confirm(cli *c, const char *question);
bool cli_can_ask(const cli *c);

/* ---- models ---------------------------------------------------------------------------------- */

/* The path of the verb's MODEL. A file of that name in the working folder is meant, too, where
 * files_too is set. False: *exit_code is set and the error is reported. */
bool cli_model_path(cli *c, const char *model, bool files_too, char path[CLI_PATH_MAX],
                    int *exit_code);

/* The path of the verb's MODEL, where it can be opened: a converted model, or a checkpoint that runs
 * in place; one that has to be converted first as well, with *convert set. Otherwise the error is
 * reported and the exit code returned. */
int cli_model_find(cli *c, const char *model, char path[CLI_PATH_MAX], bool *convert);

/* Report that there is no model at path: where it was looked for, and what there is. Returns 4. */
int cli_no_model(cli *c, const char *model, const char *path);

/* Make the folders above path that are missing, for the person alone (0700). path is changed and
 * changed back. False: errno says why, and path ends at the folder that could not be made. */
bool cli_make_folders_above(char *path);

/* A path as one argument of a shell command, quoted where it needs to be. buffer gets the text, or
 * path itself where it does not fit. */
const char *cli_quoted(const char *path, char *buffer, size_t cap);

/* Called for each entry of the models folder that is ours, in the order of names. */
typedef void (*cli_each_model)(void *user, const char *name, const char *path, sl_model_kind kind);
/* False: the folder cannot be listed; errno says why (ENOENT: there is none yet). */
bool cli_list_models(const char *folder, cli_each_model each, void *user);

/* Engine options from the command line's. */
void cli_engine_options(const cli *c, sl_engine_options *options);

/* Open the store at path, with progress. Signals are held back meanwhile, so that only the main
 * thread gets them. On failure the error is reported, *engine is NULL and the exit code is
 * returned; 0: open. */
int cli_engine_open(cli *c, const char *path, const sl_engine_options *options, sl_engine **engine);

/* What cli_engine_open() and the like make of a failed open: with SL_ERR_BUDGET, the smallest budget
 * that these options work with is part of the message. Returns the exit code. */
int cli_fail_open(cli *c, const char *path, const sl_engine_options *options, const sl_error *err);

/* A plan as a table with what follows from it; refusal says why, where it does not fit. */
void cli_plan_print(cli_out *out, const char *path, const sl_plan_info *plan, const char *refusal);
/* The same as members of the object that json is in. */
void cli_plan_members(cli_json *json, const sl_plan_info *plan);

/* A sink that writes to standard output; text from a model or file. user is the cli. */
bool cli_sink_out(void *user, const char *bytes, size_t n);

/* ---- verbs ----------------------------------------------------------------------------------- */

/* Does the verb's work and returns the exit code. */
typedef int (*cli_verb_function)(cli *c);

int cli_run(cli *c);
int cli_serve(cli *c); // hands over to the program sluice-serve
int cli_convert(cli *c);
int cli_plan(cli *c);
int cli_show(cli *c);
int cli_verify(cli *c);
int cli_doctor(cli *c);
int cli_ls(cli *c);
int cli_rm(cli *c);
int cli_logits(cli *c);
int cli_bench(cli *c);
int cli_trace(cli *c);
int cli_tokenize(cli *c);
int cli_template(cli *c);
int cli_version(cli *c);
int cli_help(cli *c);

/* Convert src to dst (the part of the verb that run offers, too). */
int cli_convert_paths(cli *c, const char *src, const char *dst, const sl_convert_options *options);
/* The destination that convert chooses for a checkpoint. */
bool cli_convert_destination(cli *c, const char *src, char dst[CLI_PATH_MAX], int *exit_code);

/* First in main(). A standard stream that came closed must not become the next file that is opened, or
 * what is said would be written into a model: it becomes one that refuses, as a closed one does. */
void cli_process_begin(void);
/* A whole program: parses, runs the verb's function, returns the exit code. A verb whose function is
 * NULL is for another program. out_fd and err_fd are 1 and 2 except in tests. */
int cli_program(int argc, char *const *argv, int out_fd, int err_fd,
                const cli_verb_function functions[CLI_N_VERBS]);
/* The program sluice, with all verbs. */
int cli_main(int argc, char *const *argv, int out_fd, int err_fd);

#endif
