/* libmicrohttpd's callbacks: the checks, the body, the handler, the answer as libmicrohttpd takes
 * it. */
#include "server/http_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define BLOCK_BYTES 4096 /* of an answer that libmicrohttpd takes at once, when it is not chunked */
#define HEADERS_BYTES 4096 /* of an answer */
#define RECORD_BYTES                                                                               \
    80 /* that libmicrohttpd keeps of a field, a parameter or a cookie, 72 in 0.9.75 */
#define METHODS "GET, HEAD, POST, DELETE"

uint64_t sl__http_pool_bytes(const sl_http_options *options) {
    // The head, cookies once more, records, and the head of the answer.
    return 2 * options->head_bytes_max + HEADERS_BYTES +
           RECORD_BYTES *
               (uint64_t)(SL_HTTP_FIELDS_MAX + SL_HTTP_PARAMETERS_MAX + SL_HTTP_COOKIES_MAX);
}

static sl_http_exchange *slot_of(struct MHD_Connection *connection) {
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static const char *field(sl_http_exchange *x, const char *name) {
    return MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
}

const char *sl_http_field(sl_http_exchange *x, const char *name) {
    return x->connection ? field(x, name) : NULL;
}

// ---- the answer ---------------------------------------------------------------------------------

static ssize_t take_fixed(sl_http_exchange *x, uint64_t at, char *out, size_t max) {
    const size_t n = (size_t)SL_MIN(max, x->length - at);
    memcpy(out, x->fixed + at, n);
    x->active_ns = sl_clock_ns();
    return (ssize_t)n;
}

/* libmicrohttpd asks for more of the answer. */
static ssize_t on_more(void *ctx, uint64_t at, char *out, size_t max) {
    sl_http_exchange *const x = ctx;
    ssize_t n = 0;
    (void)pthread_mutex_lock(&x->lock);
    if (x->fixed) {
        n = take_fixed(x, at, out, max);
    } else if ((n = (ssize_t)sl__http_ring_take(x, out, max)) > 0) {
        x->active_ns = sl_clock_ns();
        (void)pthread_cond_broadcast(&x->moved);
    } else if (x->is_aborted || sl_http_is_gone(x)) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (x->is_ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    }
    (void)pthread_mutex_unlock(&x->lock);
    if (n ==
        0) { // what is written from here on wakes this thread, which finds the connection suspended
        MHD_suspend_connection(x->connection);
        x->is_suspended = true;
    }
    return n;
}

static void add(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

static void add_cors(const sl_http_exchange *x, struct MHD_Response *response) {
    add(response, "Access-Control-Allow-Origin", x->cors);
    add(response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    add(response, "Vary", "Origin");
    if (!x->cors_fields[0])
        return;
    add(response, "Access-Control-Allow-Methods", METHODS);
    add(response, "Access-Control-Allow-Headers", x->cors_fields);
    add(response, "Access-Control-Max-Age", "600");
}

static struct MHD_Response *make_response(sl_http_exchange *x) {
    const uint64_t size = x->length == SL_HTTP_UNKNOWN_LENGTH ? MHD_SIZE_UNKNOWN : x->length;
    struct MHD_Response *const response =
        MHD_create_response_from_callback(size, BLOCK_BYTES, on_more, x, NULL);
    if (!response)
        return NULL;
    // A HEAD that would be chunked: libmicrohttpd 0.9.75 would still send the last chunk.
    if (x->request.is_head && size == MHD_SIZE_UNKNOWN)
        (void)MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    if (x->type[0])
        add(response, "Content-Type", x->type);
    add(response, "X-Request-Id", x->id);
    add(response, "Cache-Control", "no-store");
    add(response, "X-Content-Type-Options", "nosniff");
    add(response, "Connection", "close");
    if (x->cors[0])
        add_cors(x, response);
    for (const char *name = x->extra; *name;) {
        const char *const value = name + strlen(name) + 1;
        add(response, name, value);
        name = value + strlen(value) + 1;
    }
    return response;
}

static enum MHD_Result queue(sl_http_exchange *x) {
    struct MHD_Response *const response = make_response(x);
    if (!response)
        return MHD_NO;
    x->is_queued = true;
    const enum MHD_Result result = MHD_queue_response(x->connection, x->status, response);
    MHD_destroy_response(response);
    return result;
}

/* After the handler: send what it began, or wait for it. MHD_NO closes the connection. */
static enum MHD_Result settle(sl_http_exchange *x) {
    (void)pthread_mutex_lock(&x->lock);
    const bool is_begun = x->is_begun, is_lost = x->is_aborted || sl_http_is_gone(x);
    (void)pthread_mutex_unlock(&x->lock);
    if (is_lost)
        return MHD_NO;
    if (is_begun)
        return queue(x);
    MHD_suspend_connection(x->connection);
    x->is_suspended = true;
    return MHD_YES;
}

void sl__http_resume(sl_http_exchange *x) {
    x->is_suspended = false;
    MHD_resume_connection(x->connection);
}

// ---- the checks ---------------------------------------------------------------------------------

typedef struct refusal {
    unsigned status, retry_seconds;
    const char *message;
    bool is_preflight;
    bool is_busy;
} refusal;

static bool refuse(refusal *r, unsigned status, const char *message) {
    r->status = status;
    r->message = message;
    return false;
}

static bool check_host(sl_http_exchange *x, sl_http_authority *host, refusal *r) {
    const sl_http_options *const o = &x->server->options;
    const char *const text = field(x, "Host");
    memset(host, 0, sizeof(*host));
    if (text && !sl__http_authority_parse(text, strlen(text), host))
        return refuse(r, 400, "Host is no name or address with a port");
    if (x->target.authority) {
        sl_http_authority target;
        if (!text ||
            !sl__http_authority_parse(x->target.authority, x->target.authority_bytes, &target) ||
            strcmp(target.name, host->name) != 0 || target.port != host->port)
            return refuse(r, 400, "Host and the target name different servers");
    }
    // HTTP/1.0 may leave it out; browsers, which the check is about, always send it.
    if (text && !sl__http_host_is_allowed(host, x->local, x->server->port, o->hosts, o->n_hosts))
        return refuse(r, 403, "this Host is not allowed here");
    return true;
}

static bool check_origin(sl_http_exchange *x, const sl_http_authority *host, refusal *r) {
    const sl_http_options *const o = &x->server->options;
    const char *const origin = field(x, "Origin");
    if (!origin)
        return true;
    if (strlen(origin) < sizeof(x->cors) &&
        sl__http_origin_is_listed(origin, o->origins, o->n_origins)) {
        (void)snprintf(x->cors, sizeof(x->cors), "%s", origin);
        return true;
    }
    if (host->name[0] && sl__http_origin_is_host(origin, host))
        return true;
    return refuse(r, 403, "pages of this origin are not allowed here");
}

/* A browser's question before a page of another origin may send: answered here, it carries no
 * key. */
static bool check_preflight(sl_http_exchange *x, const char *method, refusal *r) {
    const char *const fields = field(x, "Access-Control-Request-Headers");
    if (strcmp(method, "OPTIONS") != 0 || !x->cors[0] || !field(x, "Access-Control-Request-Method"))
        return true;
    (void)snprintf(x->cors_fields, sizeof(x->cors_fields), "%s",
                   fields && strlen(fields) < sizeof(x->cors_fields)
                       ? fields
                       : "Authorization, Content-Type, X-Api-Key");
    r->is_preflight = true;
    return refuse(r, 204, "");
}

static bool check_method(sl_http_exchange *x, const char *method, refusal *r) {
    static const char *const known[] = {"GET", "POST", "DELETE"};
    static const char *const others[] = {"PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT"};
    x->request.is_head = strcmp(method, "HEAD") == 0;
    for (size_t i = 0; i < SL_COUNT(known); i++) {
        if (!strcmp(x->request.is_head ? "GET" : method, known[i])) {
            x->request.method = known[i];
            return x->request.path[0] == '/' ? true : refuse(r, 400, "the target is no path");
        }
    }
    for (size_t i = 0; i < SL_COUNT(others); i++) {
        if (!strcmp(method, others[i]))
            return refuse(r, 405, "the methods here are " METHODS);
    }
    return refuse(r, 501, "the methods here are " METHODS);
}

static bool has_key(sl_http_exchange *x) {
    const sl_http_server *const server = x->server;
    const char *const bearer = field(x, "Authorization");
    const char *key = field(x, "X-Api-Key");
    sl_http_key given;
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0) {
        for (key = bearer + 7; *key == ' ';)
            key++;
    }
    return key && sl__http_key_init(&given, key) &&
           sl__http_key_is_one(server->keys, server->options.n_keys, &given);
}

static bool check_key(sl_http_exchange *x, refusal *r) {
    const sl_http_options *const o = &x->server->options;
    if (o->n_keys == 0 || (o->is_open && o->is_open(o->ctx, &x->request)) || has_key(x))
        return true;
    return refuse(r, 401, "a key is needed, in Authorization: Bearer or in X-Api-Key");
}

/* What the head says about the body. The head was found to be right: a number of at most 18
 * digits. */
static bool announces_body(sl_http_exchange *x, uint64_t *bytes, bool *is_chunked) {
    const char *const length = field(x, "Content-Length");
    *bytes = 0;
    *is_chunked = field(x, "Transfer-Encoding") != NULL;
    for (const char *p = length ? length : ""; *p; p++)
        *bytes = *bytes * 10 + (uint64_t)(*p - '0');
    return *is_chunked || *bytes > 0;
}

/* A place for n bytes and a NUL among the bodies: behind the end of another one, or at the
 * beginning. */
static bool find_place(sl_http_exchange *x, uint64_t n) {
    sl_http_server *const server = x->server;
    const uint64_t end = sl__http_bodies_room(&server->options);
    for (uint32_t c = 0; c <= server->options.n_connections_max; c++) {
        const sl_http_exchange *const before = c ? &server->slots[c - 1] : NULL;
        const uint64_t held =
            before ? atomic_load_explicit(&before->body_held, memory_order_acquire) : 0;
        const uint64_t at = before ? before->body_at + held : 0;
        bool is_free = (!before || held) && n < end && at < end - n;
        for (uint32_t i = 0; is_free && i < server->options.n_connections_max; i++) {
            const sl_http_exchange *const y = &server->slots[i];
            const uint64_t other = atomic_load_explicit(&y->body_held, memory_order_acquire);
            is_free = other == 0 || at + n + 1 <= y->body_at || y->body_at + other <= at;
        }
        if (is_free) {
            x->body_at = at;
            x->body_room = n;
            atomic_store_explicit(&x->body_held, n + 1, memory_order_release);
            return true;
        }
    }
    return false;
}

static const char *text_of(unsigned status) {
    switch (status) {
    case 404:
        return "there is nothing at this path";
    case 405:
        return "this path does not know this method";
    case 415:
        return "this path takes no body of this Content-Type";
    case 429:
        return "the queue is full";
    default:
        return MHD_get_reason_phrase_for(status);
    }
}

static bool check_body(sl_http_exchange *x, refusal *r) {
    const sl_http_options *const o = &x->server->options;
    uint64_t bytes;
    bool is_chunked;
    x->is_unread = announces_body(x, &bytes, &is_chunked); // until it has been read
    if (bytes > o->body_bytes_max)
        return refuse(r, 413, "the body is too large");
    x->request.body_bytes = (size_t)bytes;
    if (o->check && (r->status = o->check(o->ctx, &x->request, &r->retry_seconds)))
        return refuse(r, r->status, text_of(r->status));
    if (x->is_unread && !find_place(x, is_chunked ? o->body_bytes_max : bytes)) {
        r->retry_seconds = 1;
        r->is_busy = true;
        return refuse(r, 503, "no room for the body");
    }
    return true;
}

static bool check_all(sl_http_exchange *x, const char *method, refusal *r) {
    sl_http_authority host;
    const char *const type = field(x, "Content-Type");
    x->request.path = x->target.path;
    x->request.query = x->target.query;
    sl__http_media_type(type ? type : "", x->content_type, sizeof(x->content_type));
    x->request.content_type = x->content_type;
    return check_host(x, &host, r) && check_origin(x, &host, r) && check_preflight(x, method, r) &&
           check_method(x, method, r) && check_key(x, r) && check_body(x, r);
}

/* An answer of ours, in the first callback: libmicrohttpd then reads no body. */
static enum MHD_Result send_refusal(sl_http_exchange *x, const refusal *r) {
    sl_http_server *const server = x->server;
    char text[1024], seconds[12];
    sl_buf body;
    sl_http_header headers[2];
    uint32_t n_headers = 0;
    sl_buf_init_fixed(&body, text, sizeof(text));
    if (!r->is_preflight) {
        sl__http_error_text(server, x->request.path, r->status, r->message, &body);
        atomic_fetch_add_explicit(&server->n_refused, 1, memory_order_relaxed);
    }
    if (r->is_busy)
        atomic_fetch_add_explicit(&server->n_busy, 1, memory_order_relaxed);
    if (r->retry_seconds) {
        (void)snprintf(seconds, sizeof(seconds), "%u", r->retry_seconds);
        headers[n_headers++] = (sl_http_header){.name = "Retry-After", .value = seconds};
    }
    if (r->status == 401)
        headers[n_headers++] = (sl_http_header){.name = "WWW-Authenticate", .value = "Bearer"};
    if (r->status == 405)
        headers[n_headers++] = (sl_http_header){.name = "Allow", .value = METHODS};
    sl_http_respond(x, r->status, r->is_preflight ? NULL : "application/json", headers, n_headers,
                    body.data, body.len);
    x->is_dispatched = true; // nothing will be
    x->deadline_ns = UINT64_MAX;
    return queue(x);
}

// ---- body and handler ---------------------------------------------------------------------------

static enum MHD_Result take_body(sl_http_exchange *x, const char *bytes, size_t n) {
    if (n >
        x->body_room - x->body_got) { // only a chunked one: libmicrohttpd keeps to Content-Length
        sl__http_refuse_by_hand(x, 413, "the body is too large", 0);
        return MHD_NO;
    }
    memcpy(x->server->bodies + x->body_at + x->body_got, bytes, n);
    x->body_got += n;
    return MHD_YES;
}

static void dispatch(sl_http_exchange *x) {
    sl_http_server *const server = x->server;
    const sl_http_options *const o = &server->options;
    x->is_dispatched = true;
    x->deadline_ns = UINT64_MAX;
    x->request.body_bytes = (size_t)x->body_got;
    if (x->is_unread) { // there is one: now it has been read
        x->is_unread = false;
        server->bodies[x->body_at + x->body_got] = '\0';
        x->request.body = (const char *)server->bodies + x->body_at;
        atomic_store_explicit(&x->body_held, x->body_got + 1, memory_order_release);
    }
    (void)pthread_mutex_lock(&x->lock);
    x->is_held = true;
    (void)pthread_mutex_unlock(&x->lock);
    if (server->is_stopping) {
        sl_http_refuse(x, 503, "the server stops", 0);
        return;
    }
    atomic_fetch_add_explicit(&server->n_requests, 1, memory_order_relaxed);
    o->handle(o->ctx, x, &x->request);
    (void)pthread_mutex_lock(&x->lock);
    const bool is_forgotten = x->is_held && !x->is_kept, is_begun = x->is_begun;
    (void)pthread_mutex_unlock(&x->lock);
    if (is_forgotten && is_begun)
        sl_http_abort(x);
    else if (is_forgotten)
        sl_http_refuse(x, 500, "the request was not answered", 0);
}

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *n, void **request_ctx) {
    sl_http_exchange *const x = slot_of(connection);
    (void)ctx, (void)url, (void)version, (void)request_ctx;
    if (!x->is_checked) {
        refusal r = {.status = 0};
        x->is_checked = true;
        return check_all(x, method, &r) ? MHD_YES : send_refusal(x, &r);
    }
    if (*n > 0) {
        const enum MHD_Result result = take_body(x, bytes, *n);
        *n = 0;
        return result;
    }
    if (!x->is_dispatched)
        dispatch(x);
    return settle(x);
}

// ---- the library --------------------------------------------------------------------------------

static void on_connection(void *ctx, struct MHD_Connection *connection, void **socket_ctx,
                          enum MHD_ConnectionNotificationCode code) {
    sl_http_server *const server = ctx;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_ctx = server->adding;
        server->adding->connection = connection;
    } else {
        sl_http_exchange *const x = *socket_ctx;
        x->connection = NULL;
        x->is_suspended = false;
    }
}

static void on_completed(void *ctx, struct MHD_Connection *connection, void **request_ctx,
                         enum MHD_RequestTerminationCode code) {
    (void)ctx, (void)request_ctx;
    slot_of(connection)->is_complete = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
}

/* Targets are decoded by sl__http_target_parse: libmicrohttpd leaves them alone. */
static size_t leave_escaped(void *ctx, struct MHD_Connection *connection, char *text) {
    (void)ctx, (void)connection;
    return strlen(text);
}

sl_status sl__http_library_start(sl_http_server *server, sl_error *err) {
    const sl_http_options *const o = &server->options;
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, server, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)sl__http_pool_bytes(o),
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->n_connections_max, MHD_OPTION_STRICT_FOR_CLIENT,
        1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, server, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, server, MHD_OPTION_END);
    if (!server->daemon)
        return sl_fail_errno(err, SL_ERR_IO, errno, "starting libmicrohttpd %s", MHD_get_version());
    server->library_fd = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    return SL_OK;
}

bool sl__http_adopt(sl_http_exchange *x, const struct sockaddr *peer, socklen_t peer_bytes) {
    const int fd = fcntl(x->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return false;
    x->server->adding = x;
    const enum MHD_Result result = MHD_add_connection(x->server->daemon, fd, peer, peer_bytes);
    x->server->adding = NULL;
    if (result != MHD_YES)
        x->connection = NULL;
    return result == MHD_YES; // else it has closed the descriptor
}
