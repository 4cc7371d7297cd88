/* The server: options and sizes, start and stop, and the loop of its thread. */
#include "server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/http_internal.h"

#define NS_PER_SECOND 1000000000ull
#define EVENTS_AT_ONCE 64
#define BLOCK_ALIGN 64

/* What libmicrohttpd 0.9.75 takes of the heap: of its own (the daemon, and room for the
 * allocator), and for a connection beside its pool (the connection, an address, an answer with a
 * block and up to 20 fields). */
#define LIBRARY_BYTES (64 * SL_KIB)
#define LIBRARY_CONNECTION_BYTES (10 * SL_KIB)

// What our own descriptors are known by in events; others are slots.
enum { TAG_LISTEN = UINT32_MAX - 2, TAG_LIBRARY, TAG_WAKE };

static _Thread_local const sl_http_server *thread_of;

bool sl__http_on_thread(const sl_http_server *server) {
    return thread_of == server;
}

// ---- options and sizes --------------------------------------------------------------------------

void sl_http_options_init(sl_http_options *options) {
    *options = (sl_http_options){
        .n_connections_max = 64,
        .head_bytes_max = 16 * SL_KIB,
        .target_bytes_max = 2 * SL_KIB,
        .body_bytes_max = 8 * SL_MIB,
        .bodies_bytes = 16 * SL_MIB,
        .out_bytes = 32 * SL_KIB,
        .head_seconds = 10,
        .body_seconds = 60,
        .send_seconds = 30,
        .keep_alive_seconds = 5,
    };
}

static bool is_between(uint64_t value, uint64_t least, uint64_t most) {
    return value >= least && value <= most;
}

static const char *out_of_range(const sl_http_options *o) {
    if (!is_between(o->n_connections_max, 1, 4096))
        return "connections: 1 to 4096";
    if (!is_between(o->head_bytes_max, 1024, 64 * SL_KIB))
        return "head: 1 KiB to 64 KiB";
    if (!is_between(o->target_bytes_max, 64, o->head_bytes_max))
        return "target: 64 bytes to the size of the head";
    if (!is_between(o->body_bytes_max, 1024, SL_GIB))
        return "body: 1 KiB to 1 GiB";
    if (!is_between(o->bodies_bytes, o->body_bytes_max, 64 * SL_GIB))
        return "all bodies: at least one of the largest, at most 64 GiB";
    if (!is_between(o->out_bytes, 4096, 16 * SL_MIB))
        return "output of a connection: 4 KiB to 16 MiB";
    if (!is_between(o->head_seconds, 1, 3600) || !is_between(o->body_seconds, 1, 3600) ||
        !is_between(o->send_seconds, 1, 3600) || !is_between(o->keep_alive_seconds, 1, 3600))
        return "times: 1 to 3600 seconds";
    if (o->n_hosts > 1024 || o->n_origins > 1024 || o->n_keys > 1024)
        return "hosts, origins and keys: at most 1024 each";
    return NULL;
}

/* Take bytes of the arena, or only count them (arena == NULL). Blocks are multiples of
 * BLOCK_ALIGN, so that the sum does not depend on their order. */
static void *take(sl_arena *arena, uint64_t *total, uint64_t bytes) {
    bytes = SL_ALIGN_UP(bytes, BLOCK_ALIGN);
    *total += bytes;
    return arena ? sl_arena_alloc(arena, (size_t)bytes, BLOCK_ALIGN) : NULL;
}

static const char *take_text(sl_arena *arena, uint64_t *total, const char *text) {
    if (!text)
        return NULL;
    const size_t n = strlen(text) + 1;
    char *const copy = take(arena, total, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static const char *const *take_texts(sl_arena *arena, uint64_t *total, const char *const *texts,
                                     uint32_t n) {
    const char **const copy = take(arena, total, n * sizeof(*copy));
    for (uint32_t i = 0; i < n; i++) {
        const char *const text = take_text(arena, total, texts[i]);
        if (copy)
            copy[i] = text;
    }
    return copy;
}

/* Everything that the server takes of its arena, in one place: counted with arena == NULL, taken
 * otherwise (there is room: the arena was compared with the count). The thread's stack follows. */
static sl_http_server *lay_out(const sl_http_options *o, sl_arena *arena, uint64_t *total) {
    sl_http_server *const server = take(arena, total, sizeof(*server));
    sl_http_server unused = {.port = 0};
    sl_http_server *const s = server ? server : &unused;
    const uint32_t n_slots = o->n_connections_max + SL_HTTP_REFUSALS_MAX;
    memset(s, 0, sizeof(*s));
    s->options = *o;
    s->n_slots = n_slots;
    s->options.host = take_text(arena, total, o->host);
    s->options.hosts = take_texts(arena, total, o->hosts, o->n_hosts);
    s->options.origins = take_texts(arena, total, o->origins, o->n_origins);
    s->options.keys = NULL; // only in the form in which they are compared
    s->keys = take(arena, total, o->n_keys * sizeof(*s->keys));
    s->bodies = take(arena, total, sl__http_bodies_room(o));
    s->peeked = take(arena, total, o->head_bytes_max + 1);
    s->slots = take(arena, total, n_slots * sizeof(*s->slots));
    for (uint32_t i = 0; i < n_slots; i++) {
        uint8_t *const ring = i < o->n_connections_max ? take(arena, total, o->out_bytes) : NULL;
        char *const target = take(arena, total, o->target_bytes_max + 3);
        if (!server)
            continue;
        memset(&s->slots[i], 0, sizeof(s->slots[i]));
        s->slots[i].ring = ring;
        s->slots[i].target_text = target;
    }
    return server;
}

uint64_t sl_http_arena_bytes(const sl_http_options *options) {
    uint64_t total = BLOCK_ALIGN; // an arena may begin anywhere
    if (out_of_range(options))
        return UINT64_MAX;
    (void)lay_out(options, NULL, &total);
    return total + sl_thread_stack_bytes(SL_HTTP_STACK_BYTES) + sl_thread_page_bytes();
}

uint64_t sl_http_rest_bytes(const sl_http_options *options) {
    if (out_of_range(options))
        return UINT64_MAX;
    const uint64_t pool = SL_ALIGN_UP(sl__http_pool_bytes(options), sl_thread_page_bytes());
    return LIBRARY_BYTES + SL_THREAD_KERNEL_BYTES +
           options->n_connections_max *
               (pool + LIBRARY_CONNECTION_BYTES + sl__http_socket_bytes(options)) +
           SL_HTTP_REFUSALS_MAX * sl__http_socket_bytes(options);
}

uint64_t sl_http_bytes(const sl_http_options *options) {
    const uint64_t arena = sl_http_arena_bytes(options);
    return arena == UINT64_MAX ? arena : arena + sl_http_rest_bytes(options);
}

// ---- one slot, as often as the thread wakes up --------------------------------------------------

/* The owner's work is to stop; it is told once. */
static void set_gone(sl_http_exchange *x) {
    const sl_http_options *const o = &x->server->options;
    (void)pthread_mutex_lock(&x->lock);
    const bool is_told = x->is_held && x->is_kept && !sl_http_is_gone(x);
    void *const user = x->user;
    atomic_store_explicit(&x->is_gone, true, memory_order_relaxed);
    (void)pthread_cond_broadcast(&x->moved);
    (void)pthread_mutex_unlock(&x->lock);
    if (is_told && o->gone)
        o->gone(o->ctx, x, user);
}

/* End a connection that libmicrohttpd has: it sees the socket fail, at the latest when it is
 * resumed. */
static void cut(sl_http_exchange *x) {
    set_gone(x);
    (void)shutdown(x->fd, SHUT_RDWR);
    if (x->is_suspended)
        sl__http_resume(x);
}

static bool has_unread(const sl_http_exchange *x) {
    char byte;
    return recv(x->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* libmicrohttpd has closed its side. */
static void reap(sl_http_exchange *x, uint64_t now) {
    sl_http_server *const server = x->server;
    set_gone(x);
    if (x->is_dispatched && !x->is_complete)
        atomic_fetch_add_explicit(&server->n_gone, 1, memory_order_relaxed);
    if ((x->is_unread || has_unread(x)) && !x->peer_closed && !server->is_stopping)
        sl__http_linger(x, now);
    else
        sl__http_close(x);
}

/* Resume a connection for which there is something to do, cut one whose client takes nothing, put
 * a sign of life into a silent stream. Returns when it has to be looked at again, at the latest. */
static uint64_t serve_live(sl_http_exchange *x, uint64_t now) {
    const sl_http_options *const o = &x->server->options;
    uint64_t next = UINT64_MAX;
    bool resume = false, stalls = false;
    (void)pthread_mutex_lock(&x->lock);
    const bool is_silent = x->is_queued && sl__http_ring_used(x) == 0 && !x->fixed;
    if (x->is_suspended && x->is_queued && is_silent && x->keep_alive && !x->is_ended &&
        !x->is_aborted && !x->is_partial) {
        next = x->active_ns + o->keep_alive_seconds * NS_PER_SECOND;
        if (now >= next) {
            sl__http_ring_put(x, x->keep_alive, strlen(x->keep_alive));
            resume = true;
        }
    }
    if (x->is_suspended)
        resume = resume || x->is_aborted || sl_http_is_gone(x) ||
                 (x->is_queued ? !is_silent || x->is_ended : x->is_begun);
    else if (x->is_queued) {
        next = x->active_ns + o->send_seconds * NS_PER_SECOND;
        stalls = now >= next && !sl_http_is_gone(x);
        next = sl_http_is_gone(x) ? UINT64_MAX : next;
    }
    const bool has_left = x->peer_closed && x->is_held && x->is_kept && !sl_http_is_gone(x);
    (void)pthread_mutex_unlock(&x->lock);
    if (has_left || stalls)
        cut(x);
    else if (resume)
        sl__http_resume(x);
    return has_left || stalls || resume ? now : next;
}

/* Has the client closed before its body was complete? libmicrohttpd 0.9.75 misses that when the
 * end arrives with the last bytes: it takes a short read for the sign that nothing more is there,
 * and waits for an edge that has been. */
static bool has_left_early(const sl_http_exchange *x) {
    return x->peer_closed && !x->is_dispatched && !sl_http_is_gone(x) && !has_unread(x);
}

static uint64_t serve(sl_http_exchange *x, uint64_t now) {
    uint64_t next = UINT64_MAX;
    if (x->phase == SL_HTTP_LIVE) {
        if (!x->connection)
            reap(x, now);
        else if (!x->is_dispatched && now >= x->deadline_ns) {
            sl__http_refuse_by_hand(x, 408, "the body took too long", 0);
            x->deadline_ns = UINT64_MAX;
            (void)shutdown(x->fd, SHUT_RD); // to libmicrohttpd the client has left
        } else if (has_left_early(x)) {
            cut(x);
        } else
            next = serve_live(x, now);
    } else if (x->phase == SL_HTTP_HEAD && now >= x->deadline_ns) {
        sl__http_refuse_by_hand(x, 408, "the head took too long", 0);
        sl__http_linger(x, now);
    } else if (x->phase == SL_HTTP_LINGER && now >= x->deadline_ns) {
        sl__http_close(x);
    } else if (x->phase == SL_HTTP_OWNED) {
        sl__http_close(x);
    }
    return SL_MIN(next, x->deadline_ns);
}

// ---- the thread ---------------------------------------------------------------------------------

void sl__http_wake(sl_http_exchange *x) {
    sl_http_server *const server = x->server;
    const uint64_t one = 1;
    if (x->is_detached || sl__http_on_thread(server) ||
        atomic_exchange_explicit(&server->is_woken, true, memory_order_acq_rel))
        return;
    while (write(server->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

static void clear_wake(sl_http_server *server) {
    uint64_t count;
    while (read(server->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    // Before the slots are looked at: what is written from now on wakes again.
    atomic_store_explicit(&server->is_woken, false, memory_order_release);
}

static void on_slot_event(sl_http_exchange *x, uint32_t events, uint64_t now) {
    x->peer_closed = x->peer_closed || (events & (EPOLLRDHUP | EPOLLERR | EPOLLHUP));
    if (x->phase == SL_HTTP_HEAD)
        sl__http_peek(x, now);
    else if (x->phase == SL_HTTP_LINGER)
        sl__http_drain(x);
    else if (x->phase == SL_HTTP_LIVE && x->connection && !x->is_complete &&
             (events & (EPOLLERR | EPOLLHUP)))
        cut(x);
}

static void on_event(sl_http_server *server, const struct epoll_event *event, uint64_t now) {
    const uint32_t tag = (uint32_t)event->data.u64;
    if (tag == TAG_WAKE)
        clear_wake(server);
    else if (tag == TAG_LISTEN)
        sl__http_accept(server, now);
    else if (tag < server->n_slots &&
             server->slots[tag].generation == (uint32_t)(event->data.u64 >> 32))
        on_slot_event(&server->slots[tag], event->events, now);
}

static bool watch(sl_http_server *server, int fd, uint32_t tag, uint32_t events, bool add) {
    struct epoll_event event = {.events = events, .data.u64 = tag};
    return epoll_ctl(server->poll_fd, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0;
}

/* No more connections; those that have not sent a whole head are told. */
static void begin_stop(sl_http_server *server, uint64_t now) {
    server->is_stopping = true;
    (void)close(server->listen_fd);
    server->listen_fd = -1;
    for (uint32_t i = 0; i < server->n_slots; i++) {
        sl_http_exchange *const x = &server->slots[i];
        if (x->phase == SL_HTTP_HEAD) {
            sl__http_refuse_by_hand(x, 503, "the server stops", 0);
            sl__http_linger(x, now);
        }
    }
}

/* Is nothing open any more? After the time for it is over, connections are cut. */
static bool is_stopped(sl_http_server *server, uint64_t now) {
    const bool is_over = now >= atomic_load_explicit(&server->stop_ns, memory_order_acquire);
    bool is_done = true;
    for (uint32_t i = 0; i < server->n_slots; i++) {
        sl_http_exchange *const x = &server->slots[i];
        if (x->phase == SL_HTTP_FREE || x->phase == SL_HTTP_OWNED)
            continue;
        is_done = false;
        if (is_over && x->phase == SL_HTTP_LIVE && x->connection)
            cut(x);
        else if (is_over && x->phase != SL_HTTP_LIVE)
            sl__http_close(x);
    }
    return is_done;
}

/* Milliseconds to sleep at most, rounded up: waking up just before a deadline would spin. */
static int sleep_ms(sl_http_server *server, uint64_t next, uint64_t now) {
    MHD_UNSIGNED_LONG_LONG library;
    if (MHD_get_timeout(server->daemon, &library) == MHD_YES)
        next = SL_MIN(next, now + library * 1000000u);
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)SL_MIN((next - now + 999999u) / 1000000u, 60000u);
}

static void count(sl_http_server *server) {
    uint32_t n = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < server->n_slots; i++) {
        n += server->slots[i].fd >= 0;
        bytes += atomic_load_explicit(&server->slots[i].body_held, memory_order_relaxed);
    }
    atomic_store_explicit(&server->n_connections, n, memory_order_relaxed);
    atomic_store_explicit(&server->n_bodies_bytes, bytes, memory_order_relaxed);
}

/* Serve all slots, let libmicrohttpd work, and serve those that it has changed. Returns how long
 * to sleep. */
static int turn(sl_http_server *server, uint64_t now) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < server->n_slots; i++)
        (void)serve(&server->slots[i], now);
    (void)MHD_run(server->daemon);
    for (uint32_t i = 0; i < server->n_slots; i++)
        next = SL_MIN(next, serve(&server->slots[i], now));
    if (server->accept_again_ns) {
        const bool again = now >= server->accept_again_ns;
        if (server->listen_fd >= 0)
            (void)watch(server, server->listen_fd, TAG_LISTEN, again ? EPOLLIN : 0, false);
        next = again ? next : SL_MIN(next, server->accept_again_ns);
        server->accept_again_ns = again ? 0 : server->accept_again_ns;
    }
    if (server->is_stopping)
        next = SL_MIN(next, SL_MAX(atomic_load_explicit(&server->stop_ns, memory_order_acquire),
                                   now + 10000000u));
    count(server);
    return sleep_ms(server, next, now);
}

static void run(void *ctx) {
    sl_http_server *const server = ctx;
    struct epoll_event events[EVENTS_AT_ONCE];
    int wait = 0;
    thread_of = server;
    for (;;) {
        const int n = epoll_wait(server->poll_fd, events, EVENTS_AT_ONCE, wait);
        const uint64_t now = sl_clock_ns();
        for (int i = 0; i < n; i++)
            on_event(server, &events[i], now);
        if (!server->is_stopping && atomic_load_explicit(&server->stop_ns, memory_order_acquire))
            begin_stop(server, now);
        wait = turn(server, now);
        if (server->is_stopping && is_stopped(server, now))
            break;
    }
    for (uint32_t i = 0; i < server->n_slots; i++) {
        sl_http_exchange *const x = &server->slots[i];
        (void)pthread_mutex_lock(&x->lock);
        x->is_detached = true;
        (void)pthread_mutex_unlock(&x->lock);
    }
    MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
}

// ---- start and stop -----------------------------------------------------------------------------

static sl_status check(const sl_http_options *o, sl_error *err) {
    const char *const wrong = out_of_range(o);
    sl_http_key key;
    if (wrong)
        return sl_fail(err, SL_ERR_ARGUMENT, "http: %s", wrong);
    if (!o->handle)
        return sl_fail(err, SL_ERR_ARGUMENT, "http: no handler");
    for (uint32_t i = 0; i < o->n_keys; i++) {
        if (!sl__http_key_init(&key, o->keys[i]))
            return sl_fail(err, SL_ERR_ARGUMENT,
                           "key %u is not 1 to %d printable characters without spaces", i + 1,
                           SL_HTTP_KEY_MAX - 1);
    }
    for (uint32_t i = 0; i < o->n_hosts; i++) {
        sl_http_authority host;
        if (!sl__http_authority_parse(o->hosts[i], strlen(o->hosts[i]), &host))
            return sl_fail(err, SL_ERR_ARGUMENT, "'%s' is no name or address of a host",
                           o->hosts[i]);
    }
    if (o->n_keys == 0 && !sl__http_is_loopback(o))
        return sl_fail(err, SL_ERR_ARGUMENT, "listening on %s, which others can reach, takes a key",
                       o->host);
    return SL_OK;
}

static sl_status init_slot(sl_http_server *server, uint32_t index, sl_error *err) {
    sl_http_exchange *const x = &server->slots[index];
    pthread_condattr_t attr;
    x->server = server;
    x->index = index;
    x->fd = -1;
    x->deadline_ns = UINT64_MAX;
    int errnum = pthread_mutex_init(&x->lock, NULL);
    if (!errnum)
        errnum = pthread_condattr_init(&attr);
    if (!errnum) {
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        errnum = pthread_cond_init(&x->moved, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
    return errnum ? sl_fail_errno(err, SL_ERR_MEMORY, errnum, "http: a lock") : SL_OK;
}

static sl_status open_all(sl_http_server *server, sl_error *err) {
    sl_status st;
    if ((st = sl__http_listen(&server->options, &server->listen_fd, &server->port, err)))
        return st;
    server->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->poll_fd < 0 || server->wake_fd < 0 ||
        getrandom(&server->id_seed, sizeof(server->id_seed), 0) != sizeof(server->id_seed))
        return sl_fail_errno(err, SL_ERR_IO, errno, "http: what the thread waits with");
    if ((st = sl__http_library_start(server, err)))
        return st;
    if (!watch(server, server->listen_fd, TAG_LISTEN, EPOLLIN, true) ||
        !watch(server, server->wake_fd, TAG_WAKE, EPOLLIN, true) ||
        !watch(server, server->library_fd, TAG_LIBRARY, EPOLLIN, true))
        return sl_fail_errno(err, SL_ERR_IO, errno, "http: what the thread waits for");
    return SL_OK;
}

static void close_all(sl_http_server *server) {
    const int fds[] = {server->listen_fd, server->poll_fd, server->wake_fd};
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    for (size_t i = 0; i < SL_COUNT(fds); i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
    }
}

sl_status sl_http_start(const sl_http_options *options, sl_arena *arena, sl_http_server **out,
                        sl_error *err) {
    uint64_t total = 0;
    *out = NULL;
    tzset(); // the C library reads the time zone before the first Date: not later, in a sandbox
    sl_status st = check(options, err);
    if (st)
        return st;
    const uint64_t bytes = sl_http_arena_bytes(options);
    if (arena->bytes - arena->used < bytes)
        return sl_arena_full(arena, (size_t)bytes, err);
    sl_http_server *const server = lay_out(options, arena, &total);
    server->listen_fd = server->poll_fd = server->wake_fd = -1;
    for (uint32_t i = 0; i < options->n_keys; i++)
        (void)sl__http_key_init(&server->keys[i], options->keys[i]);
    for (uint32_t i = 0; !st && i < server->n_slots; i++)
        st = init_slot(server, i, err);
    if (!st)
        st = open_all(server, err);
    *out = server; // before the thread: its handler may look there
    if (!st)
        st = sl_thread_start(&server->thread, "sl-http", arena, SL_HTTP_STACK_BYTES, run, server,
                             err);
    if (st) {
        *out = NULL;
        close_all(server);
    }
    return st;
}

sl_status sl_http_try(const sl_http_options *options, sl_error *err) {
    int fd;
    uint16_t port;
    sl_status st = check(options, err);
    if (st || (st = sl__http_listen(options, &fd, &port, err)))
        return st;
    (void)close(fd);
    return SL_OK;
}

uint16_t sl_http_port(const sl_http_server *server) {
    return server->port;
}

void sl_http_stop(sl_http_server *server, double seconds) {
    const uint64_t one = 1;
    if (!server || !server->thread.guard)
        return;
    const uint64_t wait = seconds > 0 ? (uint64_t)(1e9 * SL_MIN(seconds, 1e6)) : 0;
    atomic_store_explicit(&server->stop_ns, sl_clock_ns() + wait, memory_order_release);
    while (write(server->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    sl_thread_join(&server->thread);
    close_all(server);
    server->listen_fd = server->poll_fd = server->wake_fd = -1;
}

void sl_http_stats_read(sl_http_server *server, sl_http_stats *out) {
    *out = (sl_http_stats){
        .n_accepted = atomic_load_explicit(&server->n_accepted, memory_order_relaxed),
        .n_requests = atomic_load_explicit(&server->n_requests, memory_order_relaxed),
        .n_refused = atomic_load_explicit(&server->n_refused, memory_order_relaxed),
        .n_busy = atomic_load_explicit(&server->n_busy, memory_order_relaxed),
        .n_gone = atomic_load_explicit(&server->n_gone, memory_order_relaxed),
        .n_connections = atomic_load_explicit(&server->n_connections, memory_order_relaxed),
        .bodies_bytes = atomic_load_explicit(&server->n_bodies_bytes, memory_order_relaxed),
    };
}
