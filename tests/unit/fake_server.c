/* A stand-in for the library behind server.h, over that of fake_sluice.c: it opens a model, answers
 * nothing, and says what it was asked for. The program sluice-serve is tested against it as
 * tests/unit/sluice-serve, which sluice_fake beside it starts. A model called "busy" has a request
 * under way that never ends. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sl_server {
    sl_server_options options;
    sl_engine *engine;
};

static struct sl_server the_server;

void sl_server_options_init(sl_server_options *options) {
    memset(options, 0, sizeof(*options));
    sl_engine_options_init(&options->engine);
    options->snapshot_bytes = SL_SERVER_DEFAULT;
    options->port = SL_SERVER_PORT;
}

sl_status sl_server_engine_options(const sl_server_options *options, sl_engine_options *out,
                                   sl_error *err) {
    (void)err;
    *out = options->engine;
    out->server_bytes = 1 << 20;
    return SL_OK;
}

sl_status sl_server_open(const sl_server_options *options, const sl_progress *progress,
                         sl_server **out, sl_error *err) {
    sl_engine_options engine;
    char line[512];
    *out = NULL;
    if (options->port == 1)
        return sl_fail(err, SL_ERR_IO, "listening on port 1: Permission denied");
    if (strcmp(options->name, "mute") == 0)
        return sl_fail(err, SL_ERR_STATE, "'%s' has no tokenizer", options->path);
    sl_status st = sl_server_engine_options(options, &engine, err);
    if (!st)
        st = sl_engine_open(options->path, &engine, progress, &the_server.engine, err);
    if (st)
        return st;
    the_server.options = *options;
    *out = &the_server;
    snprintf(line, sizeof(line),
             "host %s, %u hosts, %u origins, %u keys, last %s, snapshots %lld, queue %u, "
             "connections %u, sandbox %s, path %s, \033[31m",
             options->host ? options->host : "none", options->n_hosts, options->n_origins,
             options->n_keys, options->n_keys ? options->keys[options->n_keys - 1] : "none",
             (long long)options->snapshot_bytes, options->n_queue, options->n_connections,
             options->no_sandbox ? "off" : "on", options->path);
    if (options->log)
        options->log(options->user, false, line);
    if (options->log && strcmp(options->name, "bad") == 0)
        options->log(options->user, true, "layer 3 expert 4: read 0 bytes");
    return SL_OK;
}

void sl_server_plan(const sl_server *server, sl_plan_info *out) {
    sl_engine_plan(server->engine, out);
}

uint16_t sl_server_port(const sl_server *server) {
    return server->options.port ? server->options.port : 49152;
}

const sl_engine *sl_server_engine(const sl_server *server) {
    return server->engine;
}

const char *sl_server_sandbox(const sl_server *server) {
    return server->options.no_sandbox ? "none: --no-sandbox"
                                      : "opens no files, starts no programs, connects to nobody";
}

void sl_server_stop(sl_server *server, double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    if (strcmp(server->options.name, "busy") == 0)
        nanosleep(&t, NULL);
}

void sl_server_close(sl_server *server) {
    if (server)
        sl_engine_close(server->engine);
}
