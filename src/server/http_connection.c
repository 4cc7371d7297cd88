/* Sockets: listening, accepting, the look at a head before libmicrohttpd gets the connection,
 * refusals by hand, and the end of a connection. */
#include "server/http_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define ACCEPT_AT_ONCE 16
#define ACCEPT_PAUSE_NS 100000000u
#define SEND_BUFFER_BYTES 16384
#define LISTEN_BACKLOG 64
#define NS_PER_SECOND 1000000000ull

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

// ---- addresses ----------------------------------------------------------------------------------

static bool parse_address(const sl_http_options *options, address *out, socklen_t *n) {
    const char *const host =
        !options->host || !strcmp(options->host, "localhost") ? "127.0.0.1" : options->host;
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, host, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(options->port);
        *n = sizeof(out->v4);
        return true;
    }
    if (inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(options->port);
        *n = sizeof(out->v6);
        return true;
    }
    return false;
}

bool sl__http_is_loopback(const sl_http_options *options) {
    address a;
    socklen_t n;
    if (!parse_address(options, &a, &n))
        return false;
    return a.any.sa_family == AF_INET ? (ntohl(a.v4.sin_addr.s_addr) >> 24) == 127
                                      : IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
}

/* The address that a connection came to, as Host would write it. */
static void local_address(int fd, char *out, size_t cap) {
    address a;
    socklen_t n = sizeof(a);
    const char *text = NULL;
    out[0] = '\0';
    if (getsockname(fd, &a.any, &n) != 0)
        return;
    if (a.any.sa_family == AF_INET)
        text = inet_ntop(AF_INET, &a.v4.sin_addr, out, (socklen_t)cap);
    else if (IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr))
        text = inet_ntop(AF_INET, &a.v6.sin6_addr.s6_addr[12], out, (socklen_t)cap);
    else
        text = inet_ntop(AF_INET6, &a.v6.sin6_addr, out, (socklen_t)cap);
    if (!text)
        out[0] = '\0';
}

static bool set_flags(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

/* What the kernel may hold for a connection is set once, here: accepted sockets inherit it. It
 * doubles the numbers, for its own overhead. The head has to fit, with that, because it is looked
 * at in there. */
static int receive_buffer(const sl_http_options *options) {
    return (int)SL_MAX(2 * options->head_bytes_max, 32 * SL_KIB);
}

static bool set_buffers(int fd, const sl_http_options *options) {
    const int on = 1, out = SEND_BUFFER_BYTES, in = receive_buffer(options);
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &out, sizeof(out)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &in, sizeof(in)) == 0;
}

uint64_t sl__http_socket_bytes(const sl_http_options *options) {
    return 2 * ((uint64_t)SEND_BUFFER_BYTES + (uint64_t)receive_buffer(options)) +
           16 * SL_KIB; // the socket, three watches of it, one packet over the limit
}

sl_status sl__http_listen(const sl_http_options *options, int *fd, uint16_t *port, sl_error *err) {
    address a;
    socklen_t n;
    *fd = -1;
    if (!parse_address(options, &a, &n))
        return sl_fail(err, SL_ERR_ARGUMENT, "'%s' is no IPv4 or IPv6 address in digits",
                       options->host);
    int made = socket(a.any.sa_family, SOCK_STREAM, 0);
    if (made < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "a socket to listen with");
    if (!set_flags(made) || !set_buffers(made, options) || bind(made, &a.any, n) != 0 ||
        listen(made, LISTEN_BACKLOG) != 0 || getsockname(made, &a.any, &n) != 0) {
        int errnum = errno;
        (void)close(made);
        return sl_fail_errno(err, SL_ERR_IO, errnum, "listening on %s port %u",
                             options->host ? options->host : "127.0.0.1", options->port);
    }
    *fd = made;
    *port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return SL_OK;
}

// ---- watching and closing -----------------------------------------------------------------------

void sl__http_watch(sl_http_exchange *x, uint32_t events, bool add) {
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)x->generation << 32 | x->index};
    (void)epoll_ctl(x->server->poll_fd, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, x->fd, &event);
}

void sl__http_close(sl_http_exchange *x) {
    if (x->fd >= 0) {
        struct epoll_event none = {.events = 0};
        (void)epoll_ctl(x->server->poll_fd, EPOLL_CTL_DEL, x->fd, &none);
        (void)close(x->fd);
        x->fd = -1;
    }
    x->deadline_ns = UINT64_MAX;
    (void)pthread_mutex_lock(&x->lock);
    const bool is_held = x->is_held;
    (void)pthread_mutex_unlock(&x->lock);
    x->phase = is_held ? SL_HTTP_OWNED : SL_HTTP_FREE;
    if (!is_held)
        atomic_store_explicit(&x->body_held, 0, memory_order_relaxed);
}

void sl__http_linger(sl_http_exchange *x, uint64_t now) {
    (void)shutdown(x->fd, SHUT_WR);
    x->phase = SL_HTTP_LINGER;
    x->deadline_ns = now + SL_HTTP_LINGER_SECONDS * NS_PER_SECOND;
    sl__http_watch(x, EPOLLIN | EPOLLRDHUP, false);
    sl__http_drain(x);
}

void sl__http_drain(sl_http_exchange *x) {
    char waste[4096];
    for (int i = 0; i < 64; i++) { // others want their turn; what is left is told again
        const ssize_t n = recv(x->fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (n > 0)
            continue;
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            sl__http_close(x);
        return;
    }
}

void sl__http_refuse_by_hand(sl_http_exchange *x, unsigned status, const char *message,
                             unsigned retry_seconds) {
    char text[1024], answer[1536], retry[40] = "";
    sl_buf body;
    sl_buf_init_fixed(&body, text, sizeof(text));
    sl__http_error_text(x->server, "", status, message, &body);
    if (retry_seconds)
        (void)snprintf(retry, sizeof(retry), "Retry-After: %u\r\n", retry_seconds);
    const int n =
        snprintf(answer, sizeof(answer),
                 "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\nCache-Control: no-store\r\n"
                 "X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n%s"
                 "Connection: close\r\n\r\n%s",
                 status, MHD_get_reason_phrase_for(status), body.len, x->id, retry, body.data);
    if (n > 0 &&
        (size_t)n < sizeof(answer)) // the send buffer is empty: all of it, or the client is gone
        (void)send(x->fd, answer, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    atomic_fetch_add_explicit(&x->server->n_refused, 1, memory_order_relaxed);
}

static void refuse_head(sl_http_exchange *x, unsigned status, const char *message,
                        unsigned retry_seconds, uint64_t now) {
    sl__http_refuse_by_hand(x, status, message, retry_seconds);
    sl__http_linger(x, now);
}

// ---- a new connection ---------------------------------------------------------------------------

/* splitmix64: a bijection, so that ids do not repeat, and that says little about how many there
 * were. */
static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static sl_http_exchange *free_slot(sl_http_server *server) {
    for (uint32_t i = 0; i < server->n_slots; i++) {
        if (server->slots[i].phase == SL_HTTP_FREE)
            return &server->slots[i];
    }
    return NULL;
}

static void reset(sl_http_exchange *x, int fd) {
    sl_http_server *const server = x->server;
    x->generation++;
    x->fd = fd;
    x->connection = NULL;
    x->is_suspended = x->peer_closed = x->is_checked = x->is_dispatched = false;
    x->is_queued = x->is_complete = x->is_unread = false;
    x->cors[0] = x->cors_fields[0] = x->content_type[0] = '\0';
    x->body_got = x->body_room = 0;
    memset(&x->request, 0, sizeof(x->request));
    memset(&x->target, 0, sizeof(x->target));
    (void)snprintf(
        x->id, sizeof(x->id), "req_%016llx",
        (unsigned long long)mix(server->id_seed + 0x9e3779b97f4a7c15u * ++server->n_ids));
    x->request.id = x->id;
    (void)pthread_mutex_lock(&x->lock);
    sl__http_answer_reset(x);
    (void)pthread_mutex_unlock(&x->lock);
}

static void take_in(sl_http_server *server, int fd, uint64_t now) {
    sl_http_exchange *const x = free_slot(server);
    atomic_fetch_add_explicit(&server->n_accepted, 1, memory_order_relaxed);
    if (!x || !set_flags(fd)) {
        atomic_fetch_add_explicit(&server->n_busy, 1, memory_order_relaxed);
        (void)close(fd);
        return;
    }
    reset(x, fd);
    x->phase = SL_HTTP_HEAD;
    x->deadline_ns = now + server->options.head_seconds * NS_PER_SECOND;
    if (x->index >= server->options.n_connections_max) {
        atomic_fetch_add_explicit(&server->n_busy, 1, memory_order_relaxed);
        sl__http_watch(x, EPOLLIN | EPOLLRDHUP, true);
        refuse_head(x, 503, "too many connections", 1, now);
        return;
    }
    local_address(fd, x->local, sizeof(x->local));
    // Edges: what has been looked at and is not whole stays in the kernel's buffer.
    sl__http_watch(x, EPOLLIN | EPOLLRDHUP | EPOLLET, true);
}

void sl__http_accept(sl_http_server *server, uint64_t now) {
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        const int fd = accept(server->listen_fd, NULL, NULL);
        if (fd >= 0) {
            take_in(server, fd, now);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            server->accept_again_ns = now + ACCEPT_PAUSE_NS; // no descriptors or memory left
            return;
        }
    }
}

// ---- the head -----------------------------------------------------------------------------------

static void adopt(sl_http_exchange *x, uint64_t now) {
    address peer;
    socklen_t n = sizeof(peer);
    if (getpeername(x->fd, &peer.any, &n) != 0) {
        sl__http_close(x);
        return;
    }
    x->phase = SL_HTTP_LIVE;
    x->deadline_ns = now + x->server->options.body_seconds * NS_PER_SECOND;
    sl__http_watch(x, EPOLLRDHUP | EPOLLET, false);
    if (!sl__http_adopt(x, &peer.any, n)) {
        atomic_fetch_add_explicit(&x->server->n_busy, 1, memory_order_relaxed);
        refuse_head(x, 503, "no memory for the connection", 1, now);
    }
}

void sl__http_peek(sl_http_exchange *x, uint64_t now) {
    sl_http_server *const server = x->server;
    const size_t cap = (size_t)server->options.head_bytes_max;
    const ssize_t n = recv(x->fd, server->peeked, cap + 1, MSG_PEEK | MSG_DONTWAIT);
    sl_http_head head;
    const char *why = NULL;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) && !x->peer_closed)
        return;
    if (n <= 0) {
        sl__http_close(x);
        return;
    }
    const unsigned status = sl__http_head_scan(server->peeked, (size_t)n, &head, &why);
    if ((status == SL_HTTP_HEAD_MORE && (size_t)n > cap) || (status == 0 && head.bytes > cap)) {
        refuse_head(x, 431, "the head is too large", 0, now);
    } else if (status == SL_HTTP_HEAD_MORE) {
        if (x->peer_closed)
            sl__http_close(x);
    } else if (status) {
        refuse_head(x, status, why, 0, now);
    } else if (head.target_bytes > server->options.target_bytes_max) {
        refuse_head(x, 414, "the target is too long", 0, now);
    } else if (!sl__http_target_parse(head.target, head.target_bytes, x->target_text, &x->target)) {
        refuse_head(x, 400, "the target is no path with UTF-8 behind its escapes", 0, now);
    } else if (server->is_stopping) {
        refuse_head(x, 503, "the server stops", 0, now);
    } else {
        adopt(x, now);
    }
}
