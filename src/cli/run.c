/* The verb run: what the prompt is, one answer, and the way to the chat. See cli.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/signals.h"
#include "cli/talk.h"

// Where the prompt comes from: text, then a file or standard input, each NULL or closed when
// absent.
struct prompt {
    const char *argument;
    cli_input file; // -f, or --chat
    cli_input piped;
    bool has_file, has_piped;
};

static int check_options(cli *c, const struct prompt *p) {
    bool chat = cli_given(c, CLI_CHAT), raw = cli_given(c, CLI_RAW);
    if (p->argument && cli_given(c, CLI_FILE))
        return cli_usage_error(c, "there are two prompts, PROMPT and --file: leave one");
    if (chat && (p->argument || cli_given(c, CLI_FILE)))
        return cli_usage_error(c, "--chat brings the whole conversation: leave out %s",
                               p->argument ? "PROMPT" : "--file");
    if (chat && cli_given(c, CLI_SYSTEM))
        return cli_usage_error(
            c, "--chat brings the whole conversation: put the system message into the file");
    if (raw && (chat || cli_given(c, CLI_SYSTEM) || cli_given(c, CLI_THINK)))
        return cli_usage_error(c, "--raw goes without a template, and --%s needs one: leave one",
                               chat                       ? "chat"
                               : cli_given(c, CLI_SYSTEM) ? "system"
                                                          : "think");
    return CLI_EXIT_OK;
}

// Open an input and read its beginning.
static int open_input(cli *c, cli_input *input, const char *path) {
    switch (cli_input_open(input, path)) {
    case CLI_INPUT_OK:
        return CLI_EXIT_OK;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    default:
        return cli_fail(c, CLI_EXIT_FAILED, "io", "reading '%s': %s", path, strerror(errno));
    }
}

static int open_prompt(cli *c, struct prompt *p) {
    const char *file = cli_given(c, CLI_CHAT)   ? cli_string(c, CLI_CHAT)
                       : cli_given(c, CLI_FILE) ? cli_string(c, CLI_FILE)
                       : p->argument            ? NULL
                                                : "-";
    int exit_code;
    if (file) {
        if ((exit_code = open_input(c, &p->file, file)) != CLI_EXIT_OK)
            return exit_code;
        p->has_file = true;
    }
    bool stdin_taken = file && strcmp(file, "-") == 0;
    if (!cli_given(c, CLI_CHAT) && !stdin_taken && cli_input_piped()) {
        if ((exit_code = open_input(c, &p->piped, "-")) != CLI_EXIT_OK)
            return exit_code;
        p->has_piped = true;
    }
    bool empty = !(p->argument && *p->argument) && !(p->has_file && p->file.n) &&
                 !(p->has_piped && p->piped.n);
    if (empty)
        return cli_usage_error(
            c, "the prompt is empty: write it as an argument, with -f FILE or into a pipe");
    return CLI_EXIT_OK;
}

static void close_prompt(struct prompt *p) {
    if (p->has_file)
        cli_input_close(&p->file);
    if (p->has_piped)
        cli_input_close(&p->piped);
}

// The rest of an input onto the end of buffer.
static int read_input(cli_talk *t, cli_input *input, cli_buffer *buffer, bool strip_newline) {
    size_t n;
    switch (cli_input_read(input, buffer->bytes + buffer->n, buffer->cap - buffer->n, &n)) {
    case CLI_INPUT_OK:
        break;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    case CLI_INPUT_TOO_LONG:
        buffer->full = true;
        return CLI_EXIT_OK;
    case CLI_INPUT_FAILED:
        return cli_fail(t->c, CLI_EXIT_FAILED, "io", "reading %s: %s", input->name,
                        strerror(errno));
    }
    buffer->n += n;
    if (strip_newline && n > 0 && buffer->bytes[buffer->n - 1] == '\n') {
        buffer->n--;
        if (n > 1 && buffer->bytes[buffer->n - 1] == '\r')
            buffer->n--;
    }
    return CLI_EXIT_OK;
}

static int fail_too_long(cli_talk *t, size_t cap) {
    return cli_fail(t->c, CLI_EXIT_FAILED, "context",
                    "the prompt is longer than the %zu bytes that a context of %u tokens holds: "
                    "nothing was cut. "
                    "Write a larger --ctx, or a shorter prompt",
                    cap, t->plan.n_ctx);
}

// The prompt as one text, in t->text.
static int gather_prompt(cli_talk *t, struct prompt *p) {
    bool strip = !cli_given(t->c, CLI_RAW);
    int exit_code = CLI_EXIT_OK;
    if (p->argument)
        cli_buffer_add(&t->text, p->argument, strlen(p->argument));
    if (p->has_file)
        exit_code = read_input(t, &p->file, &t->text, strip);
    if (exit_code == CLI_EXIT_OK && p->has_piped && p->piped.n > 0) {
        if (t->text.n > 0)
            cli_buffer_add(&t->text, "\n\n", 2);
        exit_code = read_input(t, &p->piped, &t->text, strip);
    }
    if (exit_code == CLI_EXIT_OK && t->text.full)
        exit_code = fail_too_long(t, t->text.cap);
    return exit_code;
}

static int request_from_prompt(cli_talk *t) {
    cli *c = t->c;
    size_t replaced = 0;
    cli_request_begin(&t->request,
                      cli_given(c, CLI_THINK) && strcmp(cli_string(c, CLI_THINK), "on") == 0);
    if (cli_given(c, CLI_SYSTEM)) {
        const char *system = cli_string(c, CLI_SYSTEM);
        cli_request_message(&t->request, "system", system, strlen(system), &replaced);
    }
    cli_request_message(&t->request, "user", t->text.bytes, t->text.n, &replaced);
    cli_request_end(&t->request);
    if (t->request.full)
        return fail_too_long(t, t->request.cap);
    if (replaced > 0)
        cli_note(c, "the prompt has %zu bytes that are not UTF-8: each was replaced by U+FFFD",
                 replaced);
    return CLI_EXIT_OK;
}

static int request_from_file(cli_talk *t, struct prompt *p) {
    cli *c = t->c;
    const char *value;
    size_t n;
    int exit_code = read_input(t, &p->file, &t->request, false);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    if (cli_given(c, CLI_THINK) && !t->request.full &&
        cli_request_member(t->request.bytes, t->request.n, "enable_thinking", &value, &n))
        return cli_usage_error(
            c, "--think and enable_thinking in '%s' say the same thing: leave one", p->file.name);
    bool think = cli_given(c, CLI_THINK) && strcmp(cli_string(c, CLI_THINK), "on") == 0;
    if (t->request.full ||
        !cli_request_default(&t->request, "enable_thinking", think ? "true" : "false") ||
        !cli_request_default(&t->request, "add_generation_prompt", "true"))
        return fail_too_long(t, t->request.cap);
    return CLI_EXIT_OK;
}

static int answer_once(cli_talk *t, struct prompt *p) {
    cli *c = t->c;
    const char *tools = NULL;
    size_t n_tools;
    int exit_code;
    if (cli_given(c, CLI_CHAT)) {
        exit_code = request_from_file(t, p);
    } else {
        exit_code = gather_prompt(t, p);
        if (exit_code == CLI_EXIT_OK && !cli_given(c, CLI_RAW))
            exit_code = request_from_prompt(t);
    }
    if (exit_code == CLI_EXIT_OK && !cli_given(c, CLI_RAW))
        exit_code = cli_talk_render(t);
    if (exit_code == CLI_EXIT_OK)
        exit_code = cli_talk_tokenize(t);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    // The template has been rendered, so the request may be cut to what is left of it: the tools.
    if (cli_given(c, CLI_CHAT) &&
        cli_request_member(t->request.bytes, t->request.n, "tools", &tools, &n_tools))
        t->request.bytes[(size_t)(tools - t->request.bytes) + n_tools] = '\0';

    exit_code = cli_talk_generate(t, tools, false);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    if (c->json)
        exit_code = cli_talk_print_json(t);
    if (cli_given(c, CLI_STATS))
        cli_talk_print_stats(t);
    int stopped = cli_stopped(c);
    if (stopped >= 0)
        return stopped;
    if (t->result.finish == SL_FINISH_LENGTH && t->result.context_full && !c->json)
        return cli_fail(c, CLI_EXIT_OK, "context",
                        "the context is full (%zu tokens of prompt and %zu of answer in %u): the "
                        "answer ends here. "
                        "--ctx makes it larger",
                        t->n_prompt, t->n_ids - t->n_prompt, t->plan.n_ctx);
    return exit_code;
}

/* ---- models that are not converted yet ------------------------------------------------------- */

// Convert in a child, so that the peak of its memory is not ours: it does not know of the budget.
static int convert_in_child(cli *c, const char *src, const char *dst) {
    cli_flush(&c->out);
    cli_flush(&c->err);
    pid_t child = fork();
    if (child < 0)
        return cli_fail(c, CLI_EXIT_FAILED, "io", "starting the conversion: %s", strerror(errno));
    if (child == 0) {
        sl_convert_options options;
        sl_convert_options_init(&options);
        c->out = c->err; // what it says is not part of the answer
        int exit_code = cli_convert_paths(c, src, dst, &options);
        cli_flush(&c->out);
        cli_flush(&c->err);
        _exit(exit_code);
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return cli_fail(c, CLI_EXIT_FAILED, "io", "waiting for the conversion: %s",
                            strerror(errno));
    }
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_EXIT_FAILED;
}

// path becomes that of the converted model.
static int convert_first(cli *c, char path[CLI_PATH_MAX]) {
    char dst[CLI_PATH_MAX], question[2 * CLI_PATH_MAX + 64], quoted[CLI_PATH_MAX],
        quoted_dst[CLI_PATH_MAX];
    int exit_code;
    if (!cli_convert_destination(c, path, dst, &exit_code))
        return exit_code;
    const char *name = strrchr(dst, '/') + 1;
    if (sl_model_kind_of(dst) == SL_MODEL_STORE)
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' is a checkpoint; it, or another of its name, was converted already: "
                        "'sluice run %s'",
                        path, cli_quoted(name, quoted, sizeof(quoted)));
    snprintf(question, sizeof(question), "'%s' is a checkpoint. Convert it to '%s' first?", path,
             dst);
    bool yes = cli_confirm(c, question);
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    if (!yes)
        return cli_fail(c, CLI_EXIT_MODEL, "unsupported",
                        "'%s' is a checkpoint, not a converted model. These two commands run it:\n"
                        "  sluice convert %s\n  sluice run %s",
                        path, cli_quoted(path, quoted, sizeof(quoted)),
                        cli_quoted(name, quoted_dst, sizeof(quoted_dst)));
    exit_code = convert_in_child(c, path, dst);
    snprintf(path, CLI_PATH_MAX, "%s", dst);
    return exit_code;
}

static int find_model(cli *c, char path[CLI_PATH_MAX]) {
    bool convert;
    int exit_code = cli_model_find(c, c->args.positional[0], path, &convert);
    return exit_code == CLI_EXIT_OK && convert ? convert_first(c, path) : exit_code;
}

int cli_run(cli *c) {
    char path[CLI_PATH_MAX];
    cli_talk talk;
    struct prompt prompt = {.argument = c->args.n_positional == 2 ? c->args.positional[1] : NULL};
    int exit_code = check_options(c, &prompt);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    bool chat = !prompt.argument && !cli_given(c, CLI_FILE) && !cli_given(c, CLI_CHAT) &&
                isatty(STDIN_FILENO) == 1;
    if (chat && (c->json || cli_given(c, CLI_RAW)))
        return cli_usage_error(c, "a chat is not for --%s: write a prompt",
                               c->json ? "json" : "raw");
    cli_signals_catch();
    if ((exit_code = find_model(c, path)) != CLI_EXIT_OK)
        return exit_code;
    if (chat)
        return cli_chat(c, path);

    exit_code = open_prompt(c, &prompt);
    if (exit_code == CLI_EXIT_OK)
        exit_code = cli_talk_open(c, path, &talk);
    if (exit_code == CLI_EXIT_OK) {
        exit_code = answer_once(&talk, &prompt);
        cli_talk_close(&talk);
    }
    close_prompt(&prompt);
    return exit_code;
}
