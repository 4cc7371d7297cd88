/* The program: see serve.h. It opens a server with the options of the command line, says where it
 * listens, waits for a signal and stops. Standard output gets the address alone, for scripts;
 * everything for people goes to standard error. */
#include "serve/serve.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/signals.h"
#include "serve/keys.h"
#include "serve/notify.h"
#include "server/server.h"

#define STOP_SECONDS 10
#define NAME_BYTES 256

typedef struct serving {
    cli *c;
    char path[CLI_PATH_MAX];
    char name[NAME_BYTES];
    char *key_text; // of the heap; keys points into it
    serve_keys keys;
    sl_server_options options;
    sl_server *server;
    cli_progress progress;
    bool has_clock; // the log's lines begin with the time: nobody else adds it
} serving;

/* ---- what is served -------------------------------------------------------------------------- */

struct only_model {
    char name[NAME_BYTES];
    char list[1024]; // "a, b, c"
    size_t n;        // models
};

static void count_model(void *user, const char *name, const char *path, sl_model_kind kind) {
    struct only_model *only = user;
    size_t used = strlen(only->list);
    (void)path;
    if (kind != SL_MODEL_STORE)
        return;
    if (only->n++ == 0)
        snprintf(only->name, sizeof(only->name), "%s", name);
    // A name that does not fit is left out whole.
    if (used + strlen(name) + 3 < sizeof(only->list))
        snprintf(only->list + used, sizeof(only->list) - used, "%s%s", used ? ", " : "", name);
}

// The only model of the models folder, where MODEL was left out.
static int choose_model(cli *c, struct only_model *only) {
    char folder[CLI_PATH_MAX];
    sl_error err;
    memset(only, 0, sizeof(*only));
    if (sl_models_folder(folder, sizeof(folder), &err) != SL_OK)
        return cli_fail_status(c, &err);
    if (!cli_list_models(folder, count_model, only) && errno != ENOENT)
        return cli_fail(c, CLI_EXIT_FAILED, "io", "listing '%s': %s", folder, strerror(errno));
    if (only->n == 0)
        return cli_fail(c, CLI_EXIT_MODEL, "missing",
                        "there is no model in %s: 'sluice convert CHECKPOINT' makes one, "
                        "'sluice serve MODEL' takes one from elsewhere",
                        folder);
    if (only->n > 1)
        return cli_usage_error(c,
                               "MODEL is missing, and the models folder has %zu: %s\n"
                               "Write 'sluice serve MODEL' with one of them",
                               only->n, only->list);
    return CLI_EXIT_OK;
}

static int find_model(serving *s) {
    cli *c = s->c;
    struct only_model only;
    char quoted[CLI_PATH_MAX];
    bool convert;
    const char *model = only.name;
    int exit_code = CLI_EXIT_OK;
    if (c->args.n_positional > 0)
        model = c->args.positional[0];
    else
        exit_code = choose_model(c, &only);
    if (exit_code == CLI_EXIT_OK)
        exit_code = cli_model_find(c, model, s->path, &convert);
    if (exit_code == CLI_EXIT_OK && convert)
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' is a checkpoint that has to be converted first: "
                        "'sluice convert %s'",
                        s->path, cli_quoted(s->path, quoted, sizeof(quoted)));
    return exit_code;
}

static const char *last_part(const char *path, size_t *n) {
    size_t end = strlen(path), start;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/'; start--) {
    }
    *n = end - start;
    return path + start;
}

// What the model is called: --name, or the last part of its path.
static void choose_name(serving *s) {
    size_t n;
    const char *name = last_part(s->path, &n);
    if (cli_given(s->c, CLI_NAME)) {
        name = cli_string(s->c, CLI_NAME);
        n = strlen(name);
    } else if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        name = "model"; // a folder that was not called by its name
        n = strlen(name);
    }
    snprintf(s->name, sizeof(s->name), "%.*s", (int)n, name);
}

/* ---- options --------------------------------------------------------------------------------- */

static int read_keys(serving *s) {
    cli *c = s->c;
    const char *file = cli_string(c, CLI_API_KEY_FILE);
    char problem[160];
    struct stat status;
    size_t n;
    switch (cli_input_all(file, SERVE_KEYS_FILE_MAX, &s->key_text, &n)) {
    case CLI_INPUT_OK:
        break;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    case CLI_INPUT_TOO_LONG:
        return cli_fail(c, CLI_EXIT_FAILED, "argument",
                        "--api-key-file: '%s' is longer than %d bytes", file, SERVE_KEYS_FILE_MAX);
    case CLI_INPUT_FAILED:
        return cli_fail(c, CLI_EXIT_FAILED, "io", "--api-key-file: reading '%s': %s", file,
                        strerror(errno));
    }
    if (!serve_keys_parse(s->key_text, n, &s->keys, problem))
        return cli_fail(c, CLI_EXIT_FAILED, "syntax", "--api-key-file: '%s': %s", file, problem);
    if (stat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        (status.st_mode & (S_IRGRP | S_IROTH)))
        cli_note(c, "others can read the keys in '%s': 'chmod 600' keeps them from it", file);
    return CLI_EXIT_OK;
}

// One line of the log. Any thread: a line is one write.
static void write_log(void *user, bool is_error, const char *text) {
    const serving *s = user;
    if (s->c->quiet && !is_error)
        return;
    cli_out line = {.fd = s->c->err.fd, .terminal = s->c->err.terminal};
    time_t now = time(NULL);
    struct tm t;
    if (s->has_clock && localtime_r(&now, &t))
        cli_print(&line, "%02d:%02d:%02d ", t.tm_hour, t.tm_min, t.tm_sec);
    cli_text(&line, text, strlen(text));
    cli_puts(&line, "\n");
    cli_flush(&line);
}

static void fill_options(serving *s) {
    const cli *c = s->c;
    sl_server_options *o = &s->options;
    sl_server_options_init(o);
    cli_engine_options(c, &o->engine);
    o->path = s->path;
    o->name = s->name;
    if (cli_given(c, CLI_HOST))
        o->host = cli_string(c, CLI_HOST);
    if (cli_given(c, CLI_PORT))
        o->port = (uint16_t)cli_count(c, CLI_PORT);
    if (cli_given(c, CLI_SNAPSHOTS))
        o->snapshot_bytes = cli_count(c, CLI_SNAPSHOTS);
    if (cli_given(c, CLI_CONNECTIONS))
        o->n_connections = (uint32_t)cli_count(c, CLI_CONNECTIONS);
    if (cli_given(c, CLI_QUEUE))
        o->n_queue = (uint32_t)cli_count(c, CLI_QUEUE);
    o->hosts = c->args.hosts.text;
    o->n_hosts = c->args.hosts.n;
    o->origins = c->args.origins.text;
    o->n_origins = c->args.origins.n;
    o->keys = s->keys.key;
    o->n_keys = s->keys.n;
    o->no_sandbox = cli_given(c, CLI_NO_SANDBOX);
    o->log = write_log;
    o->user = s;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool report_open(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    serving *s = user;
    (void)phase;
    cli_progress_show(&s->progress, done, total);
    return cli_signal() == 0;
}

static int fail_open(serving *s, const sl_error *err) {
    sl_engine_options engine;
    if (err->status == SL_ERR_STATE) // such as a model without a tokenizer
        return cli_fail(s->c, CLI_EXIT_MODEL, "state", "%s", err->message);
    if (err->status == SL_ERR_BUDGET &&
        sl_server_engine_options(&s->options, &engine, NULL) == SL_OK)
        return cli_fail_open(s->c, s->path, &engine, err);
    return cli_fail_status(s->c, err);
}

static int open_server(serving *s) {
    cli *c = s->c;
    sl_error err;
    sl_progress progress = {report_open, s};
    cli_progress_init(&s->progress, &c->err, "opening", false);
    if (c->quiet)
        s->progress.out = NULL;
    sl_status st = sl_server_open(&s->options, &progress, &s->server, &err);
    cli_progress_clear(&s->progress);
    if (st != SL_OK)
        return fail_open(s, &err);
    return cli_signal() ? CLI_EXIT_SIGNAL + cli_signal() : CLI_EXIT_OK;
}

/* ---- what is said ---------------------------------------------------------------------------- */

#define URL_BYTES 96

// host as the authority of a URL; loopback: an address that this machine can use, where host is all
// of them.
static const char *make_url(const serving *s, bool loopback, char url[URL_BYTES]) {
    const char *host = s->options.host ? s->options.host : "127.0.0.1";
    if (loopback && strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1";
    if (loopback && strcmp(host, "::") == 0)
        host = "::1";
    bool v6 = strchr(host, ':') != NULL;
    snprintf(url, URL_BYTES, "http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             sl_server_port(s->server));
    return url;
}

static void print_json(serving *s, const sl_plan_info *plan) {
    char url[URL_BYTES];
    const char *sandbox = sl_server_sandbox(s->server);
    cli_json json = {.out = &s->c->out};
    make_url(s, false, url);
    cli_json_begin(&json, NULL, '{');
    cli_json_string(&json, "url", url, strlen(url));
    cli_json_uint(&json, "port", sl_server_port(s->server));
    cli_json_string(&json, "model", s->name, strlen(s->name));
    cli_json_uint(&json, "keys", s->keys.n);
    cli_json_string(&json, "sandbox", sandbox, strlen(sandbox));
    cli_json_begin(&json, "plan", '{');
    cli_plan_members(&json, plan);
    cli_json_end(&json, '}');
    cli_json_end(&json, '}');
    cli_puts(&s->c->out, "\n");
}

// A request to try the server with, as a command that can be copied.
static void print_example(serving *s) {
    cli_out *out = &s->c->err;
    char url[URL_BYTES], body[6 * NAME_BYTES + 128], quoted[6 * NAME_BYTES + 256];
    size_t n = (size_t)snprintf(body, sizeof(body), "{\"model\": \"");
    for (size_t i = 0, used, length = strlen(s->name); i < length; i += used)
        n += cli_json_escape(s->name + i, length - i, body + n, &used);
    snprintf(body + n, sizeof(body) - n,
             "\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}");
    cli_set_style(out, CLI_DIM);
    cli_puts(out, "  In a browser that is a chat. For programs:\n");
    cli_print(out, "  curl %s/v1/chat/completions \\\n", make_url(s, true, url));
    if (s->keys.n > 0)
        cli_puts(out, "    -H \"Authorization: Bearer $KEY\" \\\n");
    cli_puts(out, "    --json ");
    const char *command = cli_quoted(body, quoted, sizeof(quoted));
    cli_text(out, command, strlen(command));
    cli_set_style(out, CLI_PLAIN);
    cli_puts(out, "\n");
}

static void print_text(serving *s, const sl_plan_info *plan) {
    cli *c = s->c;
    char url[URL_BYTES];
    if (!c->quiet) {
        cli_plan_print(&c->err, s->path, plan, "");
        const char *sandbox = sl_server_sandbox(s->server);
        if (*sandbox) {
            cli_puts(&c->err, "Sandbox    ");
            cli_wrap(&c->err, sandbox, 11, 11);
            cli_puts(&c->err, "\n");
        }
        cli_puts(&c->err, "\n");
        cli_flush(&c->err);
    }
    cli_puts(&c->out, "Listening on ");
    cli_set_style(&c->out, CLI_BOLD);
    cli_puts(&c->out, make_url(s, false, url));
    cli_set_style(&c->out, CLI_PLAIN);
    cli_puts(&c->out, "\n");
    cli_flush(&c->out);
    if (!c->quiet) {
        print_example(s);
        cli_flush(&c->err);
    }
}

// Say where the server listens. A reader of our output that left is no reason not to serve.
static int say_listening(serving *s) {
    cli *c = s->c;
    sl_plan_info plan;
    sl_server_plan(s->server, &plan);
    if (c->json)
        print_json(s, &plan);
    else
        print_text(s, &plan);
    if (cli_flush(&c->out) || c->out.error == EPIPE || c->out.error == EBADF)
        return CLI_EXIT_OK;
    return cli_stopped(c);
}

/* ---- program --------------------------------------------------------------------------------- */

static void wait_and_stop(serving *s, int notify) {
    cli_signals_wait();
    cli_signals_end_at_once();
    serve_notify(notify, "STOPPING=1");
    cli_note(s->c, "stopping: what is under way has %d s; a second signal ends it at once",
             STOP_SECONDS);
    sl_server_stop(s->server, STOP_SECONDS);
}

static int serve(cli *c) {
    static serving program; // large for a stack, and there is one
    serving *s = &program;
    struct stat status;
    *s = (struct serving){.c = c};
    cli_signals_catch();
    cli_signals_catch_hangup();
    // Before rights are given up: the time zone's file, and the manager's socket.
    tzset();
    int notify = serve_notify_open();
    // A journal takes its lines through a socket, and stamps them.
    s->has_clock = fstat(c->err.fd, &status) != 0 || !S_ISSOCK(status.st_mode);

    int exit_code = find_model(s);
    if (exit_code == CLI_EXIT_OK && cli_given(c, CLI_API_KEY_FILE))
        exit_code = read_keys(s);
    if (exit_code == CLI_EXIT_OK) {
        choose_name(s);
        fill_options(s);
        exit_code = open_server(s);
    }
    if (exit_code == CLI_EXIT_OK)
        exit_code = say_listening(s);
    if (exit_code == CLI_EXIT_OK) {
        serve_notify(notify, "READY=1");
        wait_and_stop(s, notify);
    }
    sl_server_close(s->server);
    free(s->key_text);
    return exit_code;
}

int serve_main(int argc, char *const *argv, int out_fd, int err_fd) {
    static const cli_verb_function functions[CLI_N_VERBS] = {[CLI_SERVE] = serve};
    return cli_program(argc, argv, out_fd, err_fd, functions);
}
