/* A small server over src/server/http.h, for the Python tests: what a handler may do with an
 * exchange, each at a path of its own, with settings from the command line. Prints a line "port
 * N" when it listens, "gone PATH" when a client has left an exchange that was kept, "stopped" at
 * the end. With --sandbox 1 it is shut in as a server is (base/sandbox.h). Stops at SIGTERM (--stop seconds to finish), or after ten minutes.
 *
 *   /health            answered at once; needs no key
 *   /echo              the body, sent back by a worker
 *   /fields            path, query, the parameter q, type and size of the body, as JSON
 *   /delay?ms=         answered by a worker after that time, unless the client leaves
 *   /stream?n=&ms=&bytes=  n events of that size, a pause before each
 *   /silent?ms=        a stream that says nothing for that time
 *   /big?bytes=        an answer of that size, by a worker
 *   /static            256 KiB that are not copied
 *   /forget, /abort    not answered, cut in the middle
 *   /stats             counters, bytes planned */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sandbox.h"
#include "server/http.h"

#define N_WORKERS 72
#define QUEUE_MAX 256
#define STATIC_BYTES (256 * 1024)

static struct {
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t filled;
    sl_http_exchange *items[QUEUE_MAX];
    unsigned first, n;
    bool is_over;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};

static sl_http_server *server;
static sl_http_options options;
static bool is_shut_in;
static sl_sandbox_report shut_in;
static char page[STATIC_BYTES];
static char pattern[1 << 16]; /* of answers: byte i is 'a' + i % 23 */

static void say(const char *word, const char *path) {
    char line[128];
    const int n = snprintf(line, sizeof(line), "%s %s\n", word, path);
    if (n > 0 && write(STDOUT_FILENO, line, (size_t)n) < 0)
        exit(1);
}

static void nap(unsigned ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static unsigned long number(const sl_http_request *request, const char *name, unsigned long other) {
    char text[24];
    return sl_http_query(request->query, name, text, sizeof(text)) ? strtoul(text, NULL, 10)
                                                                   : other;
}

/* False when the client left meanwhile. */
static bool wait_for(const sl_http_exchange *x, unsigned long ms) {
    const uint64_t end = sl_clock_ns() + ms * 1000000u;
    while (sl_clock_ns() < end) {
        if (sl_http_is_gone(x))
            return false;
        nap(2);
    }
    return !sl_http_is_gone(x);
}

// ---- workers ------------------------------------------------------------------------------------

static void stream(sl_http_exchange *x, const sl_http_request *request) {
    const unsigned long n = number(request, "n", 3), ms = number(request, "ms", 10);
    const unsigned long bytes = SL_MIN(number(request, "bytes", 32), 60000);
    static const sl_http_header extra = {.name = "X-Driver", .value = "stream"};
    char event[60100];
    sl_http_begin(x, 200, SL_HTTP_SSE_TYPE, &extra, 1, SL_HTTP_SSE_COMMENT);
    for (unsigned long i = 0; i < n; i++) {
        if (ms && !wait_for(x, ms))
            break;
        const int len =
            snprintf(event, sizeof(event), "data: %lu %.*s\n\n", i, (int)bytes, pattern);
        if (sl_http_write(x, event, (size_t)len, 20, NULL) != SL_HTTP_OK) {
            sl_http_abort(x);
            return;
        }
    }
    sl_http_end(x);
}

static void big(sl_http_exchange *x, size_t n) {
    char *const bytes = malloc(n + 1);
    if (!bytes)
        exit(1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)('a' + i % 23);
    sl_http_respond(x, 200, "application/octet-stream", NULL, 0, bytes, n);
    free(bytes);
}

static void work(sl_http_exchange *x) {
    const sl_http_request *const request = sl_http_request_of(x);
    const char *const path = request->path;
    if (!strcmp(path, "/echo")) {
        sl_http_respond(x, 200, "application/octet-stream", NULL, 0, request->body,
                        request->body_bytes);
    } else if (!strcmp(path, "/delay")) {
        if (wait_for(x, number(request, "ms", 100)))
            sl_http_respond(x, 200, "text/plain", NULL, 0, "done", 4);
        else
            sl_http_end(x);
    } else if (!strcmp(path, "/silent")) {
        sl_http_drop_body(x);
        sl_http_begin(x, 200, SL_HTTP_SSE_TYPE, NULL, 0, SL_HTTP_SSE_COMMENT);
        (void)wait_for(x, number(request, "ms", 1000));
        sl_http_end(x);
    } else if (!strcmp(path, "/big")) {
        big(x, number(request, "bytes", 1000));
    } else if (!strcmp(path, "/abort")) {
        sl_http_begin(x, 200, "text/plain", NULL, 0, NULL);
        (void)sl_http_write(x, "half", 4, 1, NULL);
        nap(50);
        sl_http_abort(x);
    } else {
        stream(x, request);
    }
}

static void *worker(void *ctx) {
    (void)ctx;
    for (;;) {
        (void)pthread_mutex_lock(&queue.lock);
        while (queue.n == 0 && !queue.is_over)
            (void)pthread_cond_wait(&queue.filled, &queue.lock);
        sl_http_exchange *x = NULL;
        if (queue.n > 0) {
            x = queue.items[queue.first++ % QUEUE_MAX];
            queue.n--;
        }
        (void)pthread_mutex_unlock(&queue.lock);
        if (!x)
            return NULL;
        work(x);
    }
}

// ---- the handler --------------------------------------------------------------------------------

static void stats(sl_http_exchange *x) {
    sl_http_stats s;
    char text[512];
    sl_http_stats_read(server, &s);
    const int n = snprintf(
        text, sizeof(text),
        "{\"accepted\":%llu,\"requests\":%llu,\"refused\":%llu,\"busy\":%llu,\"gone\":%llu,"
        "\"connections\":%u,\"bodies_bytes\":%llu,\"planned_bytes\":%llu,\"rest_bytes\":%llu}",
        (unsigned long long)s.n_accepted, (unsigned long long)s.n_requests,
        (unsigned long long)s.n_refused, (unsigned long long)s.n_busy, (unsigned long long)s.n_gone,
        s.n_connections, (unsigned long long)s.bodies_bytes,
        (unsigned long long)sl_http_bytes(&options),
        (unsigned long long)sl_http_rest_bytes(&options));
    sl_http_respond(x, 200, "application/json", NULL, 0, text, (size_t)n);
}

static void fields(sl_http_exchange *x, const sl_http_request *request) {
    char text[8192], q[256];
    sl_buf out;
    const char *const agent = sl_http_field(x, "user-agent");
    const bool has_q = sl_http_query(request->query, "q", q, sizeof(q));
    const char *const values[] = {request->path,   request->query,        has_q ? q : "(none)",
                                  request->method, request->content_type, agent ? agent : "(none)"};
    static const char *const names[] = {"path", "query", "q", "method", "type", "agent"};
    sl_buf_init_fixed(&out, text, sizeof(text));
    sl_buf_add_char(&out, '{');
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        sl_buf_printf(&out, "\"%s\":", names[i]);
        sl_buf_add_json_string(&out, values[i], strlen(values[i]));
        sl_buf_add_char(&out, ',');
    }
    sl_buf_printf(&out, "\"bytes\":%zu}", request->body_bytes);
    sl_http_respond(x, 200, "application/json", NULL, 0, out.data, out.len);
}

static void keep(sl_http_exchange *x) {
    (void)pthread_mutex_lock(&queue.lock);
    const bool is_full = queue.n == QUEUE_MAX;
    if (!is_full) {
        sl_http_keep(x, NULL);
        queue.items[(queue.first + queue.n++) % QUEUE_MAX] = x;
        (void)pthread_cond_signal(&queue.filled);
    }
    (void)pthread_mutex_unlock(&queue.lock);
    if (is_full)
        sl_http_refuse(x, 429, "the queue is full", 1);
}

static void handle(void *ctx, sl_http_exchange *x, const sl_http_request *request) {
    static const char *const kept[] = {"/echo", "/delay", "/stream", "/silent", "/big", "/abort"};
    (void)ctx;
    for (size_t i = 0; i < SL_COUNT(kept); i++) {
        if (!strcmp(request->path, kept[i])) {
            keep(x);
            return;
        }
    }
    if (!strcmp(request->path, "/health"))
        sl_http_respond(x, 200, "text/plain", NULL, 0, "ok", 2);
    else if (!strcmp(request->path, "/static"))
        sl_http_respond_static(x, 200, "text/html", NULL, 0, page, sizeof(page));
    else if (!strcmp(request->path, "/stats"))
        stats(x);
    else if (!strcmp(request->path, "/forget"))
        return;
    else
        fields(x, request);
}

static unsigned check(void *ctx, const sl_http_request *request, unsigned *retry_seconds) {
    (void)ctx;
    if (!strcmp(request->path, "/none"))
        return 404;
    if (!strcmp(request->content_type, "text/x-unknown"))
        return 415;
    if (!strcmp(request->path, "/busy")) {
        *retry_seconds = 7;
        return 429;
    }
    return 0;
}

static bool is_open(void *ctx, const sl_http_request *request) {
    (void)ctx;
    return !strcmp(request->path, "/health");
}

static void gone(void *ctx, sl_http_exchange *x, void *user) {
    (void)ctx, (void)user;
    say("gone", sl_http_request_of(x)->path);
}

// ---- main ---------------------------------------------------------------------------------------

static double stop_seconds = 2;
static const char *hosts[8], *origins[8], *keys[8];

static void read_options(int argc, char **argv) {
    sl_http_options_init(&options);
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *const name = argv[i], *const value = argv[i + 1];
        const unsigned long n = strtoul(value, NULL, 10);
        if (!strcmp(name, "--connections"))
            options.n_connections_max = (uint32_t)n;
        else if (!strcmp(name, "--body"))
            options.body_bytes_max = n;
        else if (!strcmp(name, "--bodies"))
            options.bodies_bytes = n;
        else if (!strcmp(name, "--out"))
            options.out_bytes = n;
        else if (!strcmp(name, "--head-seconds"))
            options.head_seconds = (uint32_t)n;
        else if (!strcmp(name, "--body-seconds"))
            options.body_seconds = (uint32_t)n;
        else if (!strcmp(name, "--send-seconds"))
            options.send_seconds = (uint32_t)n;
        else if (!strcmp(name, "--keep-alive"))
            options.keep_alive_seconds = (uint32_t)n;
        else if (!strcmp(name, "--stop"))
            stop_seconds = (double)n;
        else if (!strcmp(name, "--sandbox"))
            is_shut_in = n != 0;
        else if (!strcmp(name, "--listen"))
            options.host = value;
        else if (!strcmp(name, "--host") && options.n_hosts < SL_COUNT(hosts))
            hosts[options.n_hosts++] = value;
        else if (!strcmp(name, "--origin") && options.n_origins < SL_COUNT(origins))
            origins[options.n_origins++] = value;
        else if (!strcmp(name, "--key") && options.n_keys < SL_COUNT(keys))
            keys[options.n_keys++] = value;
        else {
            (void)fprintf(stderr, "http_driver: no option %s\n", name);
            exit(2);
        }
    }
    options.hosts = hosts;
    options.origins = origins;
    options.keys = keys;
    options.handle = handle;
    options.check = check;
    options.is_open = is_open;
    options.gone = gone;
}

int main(int argc, char **argv) {
    pthread_t workers[N_WORKERS];
    sl_arena arena;
    sl_error err;
    sigset_t stop;
    char port[16];
    read_options(argc, argv);
    memset(page, 'p', sizeof(page));
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (char)('a' + i % 23);
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTERM);
    (void)sigaddset(&stop, SIGALRM);
    (void)pthread_sigmask(SIG_BLOCK, &stop, NULL); // for main alone, which waits for them
    (void)alarm(600);
    const sl_sandbox_options port_alone = {.may_listen = true, .port = options.port};
    if (sl_arena_map(&arena, "server", sl_http_arena_bytes(&options), &err) ||
        (is_shut_in && sl_sandbox_files(&port_alone, &shut_in, &err)) ||
        sl_http_start(&options, &arena, &server, &err)) {
        (void)fprintf(stderr, "http_driver: %s\n", err.message);
        return 1;
    }
    for (int i = 0; i < N_WORKERS; i++) {
        if (pthread_create(&workers[i], NULL, worker, NULL) != 0)
            return 1;
    }
    if (is_shut_in && sl_sandbox_calls(NULL, &shut_in, &err)) {
        (void)fprintf(stderr, "http_driver: %s\n", err.message);
        return 1;
    }
    (void)snprintf(port, sizeof(port), "%u", sl_http_port(server));
    say("port", port);
    int signal_number;
    (void)sigwait(&stop, &signal_number);
    sl_http_stop(server, stop_seconds);
    (void)pthread_mutex_lock(&queue.lock);
    queue.is_over = true;
    (void)pthread_cond_broadcast(&queue.filled);
    (void)pthread_mutex_unlock(&queue.lock);
    for (int i = 0; i < N_WORKERS; i++)
        (void)pthread_join(workers[i], NULL);
    say("stopped", "");
    sl_arena_unmap(&arena);
    return 0;
}
