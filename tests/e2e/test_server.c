/* The whole server in this process, for the sanitizers: many requests of every kind at once, clients that leave, and stops
 * in the middle. What answers say is looked at by test_server.py. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "helpers/demo.h"
#include "server/server.h"

#define CLIENTS 8
#define ROUNDS 6

#define ASK "{\"model\":\"demo\",\"temperature\":0,\"messages\":[{\"role\":\"user\",\"content\":"
#define OWL "\"What does \\\"owl\\\" mean?\"}],\"enable_thinking\":false"
#define LONG                                                                                       \
    "\"Tell me a story about a fox and an owl.\"}],\"logit_bias\":{\"8179\":-100,\"8181\":-100}"
#define SCHEMA                                                                                     \
    ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"w\",\"schema\":"   \
    "{\"type\":\"object\",\"properties\":{\"word\":{\"type\":\"string\",\"maxLength\":9}},"        \
    "\"required\":[\"word\"],\"additionalProperties\":false}}}"

/* What a client does; text: what its answer has to hold; leaves: it does not wait for it. */
typedef struct errand {
    const char *path, *body, *text;
    bool leaves;
} errand;

static const errand errands[] = {
    {"/v1/chat/completions", ASK OWL "}", "nocturnal bird of prey", false},
    {"/v1/chat/completions", ASK OWL ",\"stream\":true}", "data: [DONE]", false},
    {"/v1/chat/completions", ASK OWL ",\"max_tokens\":60" SCHEMA "}", "\\\"word\\\"", false},
    {"/v1/chat/completions", ASK LONG ",\"stream\":true}", NULL, true},
    {"/v1/chat/completions", ASK LONG "}", NULL, true},
    {"/v1/chat/completions", ASK "3}]}", "\"error\"", false},
    {"/v1/messages",
     "{\"model\":\"demo\",\"max_tokens\":9,\"stream\":true,\"messages\":[{\"role\":\"user\","
     "\"content\":\"Hello\"}]}",
     "message_stop", false},
    {"/v1/messages/count_tokens",
     "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}",
     "input_tokens", false},
    {"/tokenize", "{\"content\":\"Hello\"}", "\"tokens\"", false},
    {"/metrics", NULL, "sluice_requests_total", false},
    {"/api/v1/memory", NULL, "planned_bytes", false},
    {"/api/v1/events", NULL, NULL, true},
    {"/v1/models", NULL, "\"demo\"", false},
};

typedef struct client {
    pthread_t thread;
    uint16_t port;
    unsigned seed;
    bool may_fail; /* the server stops meanwhile */
    char failure[512];
    char answer[1 << 16];
} client;

static int dial(uint16_t port) {
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 120};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool request(int fd, const client *c, const errand *e) {
    char text[2048];
    size_t n_body = e->body ? strlen(e->body) : 0;
    int n = snprintf(text, sizeof(text),
                     "%s %s HTTP/1.1\r\nHost: localhost:%u\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     e->body ? "POST" : "GET", e->path, c->port, n_body, e->body ? e->body : "");
    return send(fd, text, (size_t)n, MSG_NOSIGNAL) == n;
}

// The answer up to the end of the connection, as much of it as fits.
static void read_answer(int fd, char *out, size_t cap) {
    char rest[4096];
    size_t len = 0;
    for (;;) {
        size_t room = cap - 1 - len;
        ssize_t n = recv(fd, room ? out + len : rest, room ? room : sizeof(rest), 0);
        // The ring that this thread opened for the engine has its work done here, and that interrupts.
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += room ? (size_t)n : 0;
    }
    out[len] = '\0';
}

static void run_errand(client *c, const errand *e) {
    char *answer = c->answer;
    int fd = dial(c->port);
    bool sent = fd >= 0 && request(fd, c, e);
    if (sent && e->leaves) {
        char some[256];
        sl_sleep_until(sl_now() + 0.001 * (c->seed % 37));
        (void)recv(fd, some, sizeof(some), MSG_DONTWAIT);
    } else if (sent) {
        read_answer(fd, answer, sizeof(c->answer));
        sent = strstr(answer, e->text) != NULL;
    }
    if (fd >= 0)
        close(fd);
    if (!sent && !c->may_fail && !*c->failure)
        (void)snprintf(c->failure, sizeof(c->failure), "%s: %.400s", e->path, answer);
}

static void *run_client(void *user) {
    client *c = user;
    for (unsigned i = 0; i < ROUNDS; i++) {
        c->seed = c->seed * 1103515245u + 12345u;
        run_errand(c, &errands[(c->seed >> 16) % SL_COUNT(errands)]);
    }
    return NULL;
}

static atomic_uint n_lines;

static void count_line(void *user, bool is_error, const char *line) {
    (void)user;
    (void)is_error;
    if (*line)
        (void)atomic_fetch_add_explicit(&n_lines, 1, memory_order_relaxed);
}

static sl_server *open_server(void) {
    sl_server_options o;
    sl_server *server;
    sl_error err;
    sl_server_options_init(&o);
    o.path = demo_store();
    o.name = "demo";
    o.port = 0;
    o.engine.scope = SL_SCOPE_ENGINE; // sanitizers hold much besides
    o.engine.mem_bytes = 48 * SL_MIB;
    o.engine.n_ctx = 512;
    o.engine.n_threads = 2;
    o.no_sandbox = true; // a process cannot take it back
    o.log = count_line;
    demo_check(sl_server_open(&o, NULL, &server, &err), &err);
    return server;
}

static void begin(client *c, const sl_server *server, unsigned seed, bool may_fail) {
    memset(c, 0, sizeof(*c));
    c->port = sl_server_port(server);
    c->seed = seed;
    c->may_fail = may_fail;
}

static void start_clients(client *c, const sl_server *server, bool may_fail) {
    for (unsigned i = 0; i < CLIENTS; i++) {
        begin(&c[i], server, 77 + i, may_fail);
        assert_int_equal(pthread_create(&c[i].thread, NULL, run_client, &c[i]), 0);
    }
}

static void join_clients(client *c) {
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(c[i].thread, NULL), 0);
        assert_string_equal(c[i].failure, "");
    }
}

static void requests_of_every_kind_at_once(void **state) {
    (void)state;
    static client clients[CLIENTS];
    sl_server *server = open_server();
    // Each at least once, whatever the draw.
    for (size_t i = 0; i < SL_COUNT(errands); i++) {
        begin(&clients[0], server, 0, false);
        run_errand(&clients[0], &errands[i]);
        assert_string_equal(clients[0].failure, "");
    }
    start_clients(clients, server, false);
    join_clients(clients);
    sl_server_stop(server, 5);
    sl_server_close(server);
    assert_true(atomic_load_explicit(&n_lines, memory_order_relaxed) > 0); // what was refused
}

static void stops_in_the_middle(void **state) {
    (void)state;
    static client clients[CLIENTS];
    for (unsigned i = 0; i < 3; i++) {
        sl_server *server = open_server();
        start_clients(clients, server, true);
        sl_sleep_until(sl_now() + 0.02 * (1u << (2 * i)));
        if (i)
            sl_server_stop(server, 0.2 * i);
        sl_server_close(server);
        join_clients(clients);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_every_kind_at_once),
        cmocka_unit_test(stops_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
