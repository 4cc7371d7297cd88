/* The HTTP layer with clients and workers as threads of this process, which is what the
 * sanitizers see: many streams at once, a slow client, clients that leave, answers larger than
 * the ring, a stop in the middle, sizes. What the protocol refuses is in test_http.py. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "server/http.h"

#define N_CLIENTS 16
#define N_EVENTS 200
#define BIG_BYTES 1000000
#define ANSWER_MAX (BIG_BYTES + 65536)

typedef struct fixture {
    sl_arena arena;
    sl_http_server *server;
    sl_http_options options;
    atomic_uint n_gone, n_workers, n_results_gone;
} fixture;

static void nap_ms(unsigned ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

// ---- workers: one thread an exchange, as the handler asks for -----------------------------------

static char byte_of(size_t i) {
    return (char)('a' + i % 23);
}

static void *stream_events(void *arg) {
    sl_http_exchange *const x = arg;
    fixture *const f = sl_http_user(x);
    sl_http_result result = SL_HTTP_OK;
    char event[64];
    sl_http_begin(x, 200, SL_HTTP_SSE_TYPE, NULL, 0, SL_HTTP_SSE_COMMENT);
    for (int i = 0; i < N_EVENTS && result == SL_HTTP_OK; i++) {
        const int n = snprintf(event, sizeof(event), "data: %d\n\n", i);
        result = sl_http_write(x, event, (size_t)n, 10, NULL);
    }
    sl_http_end(x);
    atomic_fetch_sub(&f->n_workers, 1);
    return NULL;
}

static void *stream_until_gone(void *arg) {
    sl_http_exchange *const x = arg;
    fixture *const f = sl_http_user(x);
    sl_http_result result;
    char part[1000];
    memset(part, 'x', sizeof(part));
    sl_http_begin(x, 200, "text/plain", NULL, 0, NULL);
    while ((result = sl_http_write(x, part, sizeof(part), 10, NULL)) == SL_HTTP_OK) {
    }
    if (result == SL_HTTP_GONE)
        atomic_fetch_add(&f->n_results_gone, 1);
    sl_http_end(x);
    atomic_fetch_sub(&f->n_workers, 1);
    return NULL;
}

static void *wait_until_gone(void *arg) {
    sl_http_exchange *const x = arg;
    fixture *const f = sl_http_user(x);
    while (!sl_http_is_gone(x))
        nap_ms(2);
    sl_http_end(x);
    atomic_fetch_sub(&f->n_workers, 1);
    return NULL;
}

static void *respond_big(void *arg) {
    sl_http_exchange *const x = arg;
    fixture *const f = sl_http_user(x);
    char *const bytes = malloc(BIG_BYTES);
    if (!bytes)
        abort();
    for (size_t i = 0; i < BIG_BYTES; i++)
        bytes[i] = byte_of(i);
    sl_http_respond(x, 200, "text/plain", NULL, 0, bytes, BIG_BYTES);
    free(bytes);
    atomic_fetch_sub(&f->n_workers, 1);
    return NULL;
}

static void handle(void *ctx, sl_http_exchange *x, const sl_http_request *request) {
    fixture *const f = ctx;
    pthread_t id;
    void *(*const work)(void *) = !strcmp(request->path, "/events")    ? stream_events
                                  : !strcmp(request->path, "/endless") ? stream_until_gone
                                  : !strcmp(request->path, "/wait")    ? wait_until_gone
                                  : !strcmp(request->path, "/big")     ? respond_big
                                                                       : NULL;
    if (!work) {
        sl_http_respond(x, 200, "text/plain", NULL, 0, request->body, request->body_bytes);
        return;
    }
    sl_http_keep(x, f);
    atomic_fetch_add(&f->n_workers, 1);
    if (pthread_create(&id, NULL, work, x) != 0)
        abort();
    (void)pthread_detach(id);
}

static void gone(void *ctx, sl_http_exchange *x, void *user) {
    fixture *const f = ctx;
    (void)x;
    if (user == ctx)
        atomic_fetch_add(&f->n_gone, 1);
}

static int setup(void **state) {
    static fixture f;
    sl_error err;
    memset(&f, 0, sizeof(f));
    sl_http_options_init(&f.options);
    f.options.out_bytes = 4096;
    f.options.bodies_bytes = f.options.body_bytes_max = 64 * 1024;
    f.options.ctx = &f;
    f.options.handle = handle;
    f.options.gone = gone;
    if (sl_arena_map(&f.arena, "server", sl_http_arena_bytes(&f.options), &err) ||
        sl_http_start(&f.options, &f.arena, &f.server, &err)) {
        print_error("%s\n", err.message);
        return 1;
    }
    *state = &f;
    return 0;
}

static void wait_for_workers(fixture *f) {
    for (int i = 0; i < 5000 && atomic_load(&f->n_workers) > 0; i++)
        nap_ms(2);
    assert_int_equal(atomic_load(&f->n_workers), 0);
}

static int teardown(void **state) {
    fixture *const f = *state;
    sl_http_stop(f->server, 0);
    wait_for_workers(f);
    sl_arena_unmap(&f->arena);
    return 0;
}

// ---- clients ------------------------------------------------------------------------------------

static int dial(const fixture *f) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(sl_http_port(f->server)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = 20};
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static int ask(const fixture *f, const char *path) {
    char text[128];
    const int fd = dial(f);
    const int n = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost:%u\r\n\r\n",
                           path, sl_http_port(f->server));
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* Everything up to the end of the connection. */
static size_t read_all(int fd, char *out, size_t cap, unsigned pause_ms) {
    size_t len = 0;
    ssize_t n;
    while (len + 1 < cap && (n = recv(fd, out + len, cap - 1 - len, 0)) > 0) {
        len += (size_t)n;
        if (pause_ms)
            nap_ms(pause_ms);
    }
    out[len] = '\0';
    (void)close(fd);
    return len;
}

typedef struct client {
    const fixture *f;
    unsigned pause_ms;
    char answer[32768];
} client;

static void *read_events(void *arg) {
    client *const c = arg;
    (void)read_all(ask(c->f, "/events"), c->answer, sizeof(c->answer), c->pause_ms);
    return NULL;
}

static void many_streams_come_through_whole(void **state) {
    static client clients[N_CLIENTS];
    pthread_t ids[N_CLIENTS];
    for (int i = 0; i < N_CLIENTS; i++) {
        clients[i] = (client){.f = *state, .pause_ms = i % 4 == 0 ? 5 : 0};
        assert_int_equal(pthread_create(&ids[i], NULL, read_events, &clients[i]), 0);
    }
    for (int i = 0; i < N_CLIENTS; i++) {
        const char *at = clients[i].answer;
        char event[64];
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        assert_non_null(strstr(at, "HTTP/1.1 200 OK\r\n"));
        for (int e = 0; e < N_EVENTS; e++) {
            (void)snprintf(event, sizeof(event), "data: %d\n", e);
            at = strstr(at, event);
            assert_non_null(at); // in order, each
        }
        assert_non_null(strstr(at, "\r\n0\r\n\r\n"));
    }
}

static void an_answer_larger_than_the_ring_waits_for_its_client(void **state) {
    char *const answer = malloc(ANSWER_MAX);
    assert_non_null(answer);
    const int fd = ask(*state, "/big");
    nap_ms(100);
    const size_t n = read_all(fd, answer, ANSWER_MAX, 0);
    const char *const body = strstr(answer, "\r\n\r\n");
    assert_non_null(body);
    assert_non_null(strstr(answer, "Content-Length: 1000000\r\n"));
    assert_int_equal(answer + n - (body + 4), BIG_BYTES);
    for (size_t i = 0; i < BIG_BYTES; i++) {
        if (body[4 + i] != byte_of(i))
            fail_msg("byte %zu is wrong", i);
    }
    free(answer);
}

static void wait_until(const atomic_uint *value, unsigned expected) {
    const uint64_t begin = sl_clock_ns();
    while (atomic_load(value) != expected && sl_clock_ns() - begin < 1000000000u)
        nap_ms(1);
    assert_int_equal(atomic_load(value), expected); // within a second
}

static void wait_for_worker(fixture *f) {
    for (int i = 0; i < 2000 && atomic_load(&f->n_workers) == 0; i++)
        nap_ms(1);
    assert_int_equal(atomic_load(&f->n_workers), 1);
}

static void a_client_that_leaves_is_noticed(void **state) {
    fixture *const f = *state;
    int fd = ask(f, "/wait");
    wait_for_worker(f);
    (void)close(fd);
    wait_until(&f->n_gone, 1);
    wait_until(&f->n_workers, 0);

    fd = ask(f, "/endless"); // reads nothing: the writer waits for room
    wait_for_worker(f);
    nap_ms(100);
    (void)close(fd);
    wait_until(&f->n_gone, 2);
    wait_until(&f->n_workers, 0);
    assert_int_equal(atomic_load(&f->n_results_gone), 1);
}

static void a_stop_cuts_what_does_not_end(void **state) {
    fixture *const f = *state;
    char answer[256];
    const int waiting = ask(f, "/wait"), idle = dial(f);
    wait_for_worker(f);
    const uint64_t begin = sl_clock_ns();
    sl_http_stop(f->server, 0.3);
    const double seconds = 1e-9 * (double)(sl_clock_ns() - begin);
    assert_true(seconds >= 0.29 && seconds < 2);
    assert_int_equal(atomic_load(&f->n_gone), 1);
    wait_for_workers(f);
    assert_int_equal(read_all(waiting, answer, sizeof(answer), 0), 0);
    (void)read_all(idle, answer, sizeof(answer), 0);
    assert_non_null(strstr(answer, " 503 "));
}

static void sizes_are_what_is_taken(void **state) {
    fixture *const f = *state;
    sl_http_options options = f->options;
    const uint64_t bytes = sl_http_arena_bytes(&options);
    // What is over is what depends on where the arena begins.
    assert_true(f->arena.used <= bytes);
    assert_true(bytes - f->arena.used <= 2 * SL_PAGE);
    options.n_connections_max++;
    assert_true(sl_http_arena_bytes(&options) > bytes);
    assert_true(sl_http_bytes(&options) > sl_http_arena_bytes(&options));
    options.n_connections_max = 0;
    assert_true(sl_http_arena_bytes(&options) == UINT64_MAX);
    assert_true(sl_http_bytes(&options) == UINT64_MAX);
}

static void options_that_cannot_be_are_refused(void **state) {
    fixture *const f = *state;
    static const char *const bad_keys[] = {"with space"}, *const good_keys[] = {"k"};
    static const char *const bad_hosts[] = {"a b"};
    sl_http_options o = f->options;
    sl_http_server *server;
    sl_arena small;
    sl_error err;
    char block[4096];
    sl_arena_init(&small, "small", block, sizeof(block));
    assert_int_equal(sl_http_start(&o, &small, &server, &err), SL_ERR_MEMORY);
    assert_null(server);
    o.host = "0.0.0.0"; // others can reach it: not without a key
    assert_int_equal(sl_http_start(&o, &f->arena, &server, &err), SL_ERR_ARGUMENT);
    o.keys = bad_keys;
    o.n_keys = 1;
    assert_int_equal(sl_http_start(&o, &f->arena, &server, &err), SL_ERR_ARGUMENT);
    o.keys = good_keys;
    o.host = "example.org"; // no names are looked up
    assert_int_equal(sl_http_start(&o, &small, &server, &err), SL_ERR_MEMORY);
    o.host = NULL;
    o.hosts = bad_hosts;
    o.n_hosts = 1;
    assert_int_equal(sl_http_start(&o, &f->arena, &server, &err), SL_ERR_ARGUMENT);
    o.n_hosts = 0;
    o.bodies_bytes = o.body_bytes_max - 1;
    assert_int_equal(sl_http_start(&o, &f->arena, &server, &err), SL_ERR_ARGUMENT);
}

static void a_port_in_use_is_an_error(void **state) {
    fixture *const f = *state;
    sl_http_options o = f->options;
    sl_http_server *server;
    sl_arena arena;
    sl_error err;
    assert_int_equal(sl_arena_map(&arena, "second", sl_http_arena_bytes(&o), &err), SL_OK);
    o.port = sl_http_port(f->server);
    assert_int_equal(sl_http_start(&o, &arena, &server, &err), SL_ERR_IO);
    assert_null(server);
    sl_http_stop(server, 1);
    sl_arena_unmap(&arena);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_SERVER(many_streams_come_through_whole),
        WITH_SERVER(an_answer_larger_than_the_ring_waits_for_its_client),
        WITH_SERVER(a_client_that_leaves_is_noticed),
        WITH_SERVER(a_stop_cuts_what_does_not_end),
        WITH_SERVER(sizes_are_what_is_taken),
        WITH_SERVER(options_that_cannot_be_are_refused),
        WITH_SERVER(a_port_in_use_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
