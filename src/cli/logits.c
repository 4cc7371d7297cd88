/* The verb logits: raw numbers into files that appear complete or not at all. See cli.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/input.h"
#include "cli/signals.h"

#define TOKENS_FILE_MAX ((size_t)256 << 20)
// Written pages are handed to the drive and dropped after this much: they count against the budget.
#define DROP_BYTES ((size_t)1 << 20)

struct output {
    const char *path;
    char partial[CLI_PATH_MAX]; // the name until it is complete; "": written in place
    int fd;                     // -1: not open
    int error;                  // errno of the first failure
    size_t since_drop;
};

static bool drop_pages(struct output *o) {
    o->since_drop = 0;
    if (fdatasync(o->fd) != 0 && errno != EINVAL) { // EINVAL: a pipe or device
        o->error = errno;
        return false;
    }
    posix_fadvise(o->fd, 0, 0, POSIX_FADV_DONTNEED);
    return true;
}

static bool write_output(void *user, const char *bytes, size_t n) {
    struct output *o = user;
    while (n > 0) {
        ssize_t done = write(o->fd, bytes, n < DROP_BYTES ? n : DROP_BYTES);
        if (done < 0 && errno == EINTR && !cli_signal())
            continue;
        if (done < 0) {
            o->error = errno;
            return false;
        }
        bytes += done;
        n -= (size_t)done;
        o->since_drop += (size_t)done;
        if (o->since_drop >= DROP_BYTES && !drop_pages(o))
            return false;
    }
    return cli_signal() == 0;
}

static int output_open(cli *c, struct output *o, const char *path) {
    struct stat there;
    o->path = path;
    if (strlen(path) + sizeof(".4294967295.tmp") > sizeof(o->partial))
        return cli_usage_error(c, "'%.64s...' is longer than a path can be", path);
    // A rename would put a file in the place of a device, a pipe or a link: they are written to.
    bool in_place = lstat(path, &there) == 0 && !S_ISREG(there.st_mode);
    if (!in_place)
        snprintf(o->partial, sizeof(o->partial), "%s.%u.tmp", path, (unsigned)getpid());
    o->fd = open(in_place ? path : o->partial,
                 O_WRONLY | O_CREAT | O_CLOEXEC | (in_place ? O_TRUNC : O_EXCL), 0666);
    if (o->fd < 0)
        return cli_fail(c, CLI_EXIT_FAILED, "io", "making '%s': %s", path, strerror(errno));
    return CLI_EXIT_OK;
}

// Complete the file and give it its name, or remove it. What is written in place stays as it is.
static int output_close(cli *c, struct output *o, bool keep) {
    if (o->fd < 0)
        return CLI_EXIT_OK;
    bool good = drop_pages(o);
    if (close(o->fd) != 0 && good) {
        o->error = errno;
        good = false;
    }
    o->fd = -1;
    if (keep && good && (!*o->partial || rename(o->partial, o->path) == 0))
        return CLI_EXIT_OK;
    int reason = good ? errno : o->error;
    if (*o->partial)
        unlink(o->partial);
    return keep ? cli_fail(c, CLI_EXIT_FAILED, "io", "writing '%s': %s", o->path, strerror(reason))
                : CLI_EXIT_OK;
}

static int compute(cli *c, sl_engine *engine, const uint32_t *ids, size_t n, struct output *out,
                   struct output *hidden) {
    sl_error err;
    sl_session *session;
    if (sl_session_open(engine, &session, &err) != SL_OK)
        return cli_fail_status(c, &err);
    sl_sink out_sink = {write_output, out}, hidden_sink = {write_output, hidden};
    cli_signals_cancel(session);
    sl_status st = cli_signal() ? SL_ERR_CANCELED
                                : sl_logits(session, ids, n, &out_sink,
                                            hidden->fd >= 0 ? &hidden_sink : NULL, &err);
    cli_signals_cancel(NULL);
    sl_session_close(session);
    if (st == SL_OK)
        return CLI_EXIT_OK;
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    struct output *failed = out->error ? out : hidden->error ? hidden : NULL;
    if (failed)
        return cli_fail(c, CLI_EXIT_FAILED, "io", "writing '%s': %s", failed->path,
                        strerror(failed->error));
    return cli_fail_status(c, &err);
}

static int read_ids(cli *c, uint32_t **ids, size_t *n) {
    char *text, problem[160];
    size_t len;
    const char *path = cli_string(c, CLI_TOKENS);
    switch (cli_input_all(path, TOKENS_FILE_MAX, &text, &len)) {
    case CLI_INPUT_OK:
        break;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    case CLI_INPUT_TOO_LONG:
        return cli_fail(c, CLI_EXIT_FAILED, "argument", "--tokens: '%s' is longer than %zu bytes",
                        path, TOKENS_FILE_MAX);
    case CLI_INPUT_FAILED:
        return cli_fail(c, CLI_EXIT_FAILED, "io", "--tokens: reading '%s': %s", path,
                        strerror(errno));
    }
    bool good = cli_input_ids(text, len, ids, n, problem);
    free(text);
    if (!good)
        return cli_fail(c, CLI_EXIT_FAILED, "syntax", "--tokens: '%s': %s", path, problem);
    if (*n == 0) {
        free(*ids);
        *ids = NULL;
        return cli_fail(c, CLI_EXIT_FAILED, "syntax", "--tokens: '%s' holds no ids", path);
    }
    return CLI_EXIT_OK;
}

int cli_logits(cli *c) {
    char path[CLI_PATH_MAX];
    int exit_code;
    size_t n = 0;
    uint32_t *ids = NULL;
    sl_engine *engine = NULL;
    struct output out = {.fd = -1}, hidden = {.fd = -1};
    if (!cli_given(c, CLI_TOKENS) || !cli_given(c, CLI_OUT))
        return cli_usage_error(
            c, "%s is missing: write 'sluice logits MODEL --tokens FILE --out FILE'",
            cli_given(c, CLI_TOKENS) ? "--out" : "--tokens");
    if (cli_given(c, CLI_HIDDEN) && strcmp(cli_string(c, CLI_OUT), cli_string(c, CLI_HIDDEN)) == 0)
        return cli_usage_error(c, "--out and --hidden name one file: write two");
    if (!cli_model_path(c, c->args.positional[0], false, path, &exit_code))
        return exit_code;
    sl_model_kind kind = sl_model_kind_of(path);
    if (kind == SL_MODEL_NONE)
        return cli_no_model(c, c->args.positional[0], path);
    cli_signals_catch();
    if ((exit_code = read_ids(c, &ids, &n)) != CLI_EXIT_OK)
        return exit_code;

    sl_engine_options options;
    cli_engine_options(c, &options);
    if (!cli_given(c, CLI_CTX))
        options.n_ctx = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    if ((exit_code = output_open(c, &out, cli_string(c, CLI_OUT))) == CLI_EXIT_OK &&
        (!cli_given(c, CLI_HIDDEN) ||
         (exit_code = output_open(c, &hidden, cli_string(c, CLI_HIDDEN))) == CLI_EXIT_OK) &&
        (exit_code = cli_engine_open(c, path, &options, &engine)) == CLI_EXIT_OK)
        exit_code = compute(c, engine, ids, n, &out, &hidden);
    sl_engine_close(engine);
    free(ids);
    bool keep = exit_code == CLI_EXIT_OK;
    int closed = output_close(c, &hidden, keep);
    if (closed == CLI_EXIT_OK)
        closed = output_close(c, &out, keep);
    else
        output_close(c, &out, false);
    return keep ? closed : exit_code;
}
