/* The local server: HTTP on one side, the engine's one session on the other.
 *
 *   HTTP thread (http.c)       answers what needs no engine at once (health, models, memory, metrics, events) and
 *                              puts every other request into a queue with a limit
 *   worker thread (worker.c)   owns engine and session: takes the requests in order, one at a time
 *   the caller's thread        opens, waits for a reason to stop, stops
 *
 * Everything that the server holds lies in one arena, the plan's `server` account, whose size follows from the
 * options before anything is opened (server_plan.c). */
#ifndef SL_SERVER_SERVER_H
#define SL_SERVER_SERVER_H

#include "base/status.h"
#include "sluice.h"

typedef struct sl_server sl_server;

typedef struct sl_server_options {
    const char *path; /* of the model */
    const char *name; /* what it is called in answers; NULL: the last part of the path */
    sl_engine_options
        engine; /* scope and mem_bytes included; server_bytes and snapshot_bytes are set here */
    uint64_t
        snapshot_bytes; /* SL_SERVER_DEFAULT: a share of the budget, less of a small one; 0: none */

    const char *host;                                        /* NULL: loopback */
    uint16_t port;                                           /* 0: the kernel chooses */
    const char *const *hosts, *const *origins, *const *keys; /* see sl_http_options */
    uint32_t n_hosts, n_origins, n_keys;
    uint32_t n_connections; /* 0: 80, fewer where the budget is small */
    uint32_t n_queue;       /* requests that wait for the session; 0: 64 */

    /* One line for a person, without a line break: what was ignored or refused or, is_error, went wrong in here. Any thread. May be NULL. */
    void (*log)(void *user, bool is_error, const char *line);
    void *user;
    bool no_sandbox;
} sl_server_options;

#define SL_SERVER_DEFAULT UINT64_MAX
#define SL_SERVER_PORT 8080

void sl_server_options_init(sl_server_options *options);

/* Options for the engine as the server will open it, for a plan of both. Reads the model's tokenizer. Errors: as
 * sl_tokenizer_open(), and SL_ERR_BUDGET where the budget has no room for a server of these options. */
SL_MUST_USE sl_status sl_server_engine_options(const sl_server_options *options,
                                               sl_engine_options *out, sl_error *err);

/* Open the model and listen. progress may be NULL. The options' texts must live as long as the server. Errors: as
 * sl_engine_open(), sl_http_start(), sl_server_engine_options(); SL_ERR_STATE for a model without a tokenizer. */
SL_MUST_USE sl_status sl_server_open(const sl_server_options *options, const sl_progress *progress,
                                     sl_server **out, sl_error *err);
uint16_t sl_server_port(const sl_server *server);
const sl_engine *sl_server_engine(const sl_server *server);
/* The engine's plan, with the smallest budget that a server of these options works with. */
void sl_server_plan(const sl_server *server, sl_plan_info *out);
/* What the process shut itself off from, in one line; static. */
const char *sl_server_sandbox(const sl_server *server);

/* Stop accepting, give what is under way `seconds`, cancel the rest. The thread that opened. */
void sl_server_stop(sl_server *server, double seconds);
/* Stops at once if it was not stopped. Accepts NULL. */
void sl_server_close(sl_server *server);

#endif
