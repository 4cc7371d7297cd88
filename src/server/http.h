/* HTTP for the local server: everything that is about the protocol and nothing that is about
 * models. The only user of libmicrohttpd.
 *
 * One thread, started here, owns every socket. It accepts, checks what arrives, and calls the
 * handler (sl_http_options.handle) once a request is complete. The handler answers at once, or
 * keeps the exchange and has it answered from another thread. Bytes of an answer pass through a
 * ring of the connection, so a client that reads slowly makes its writer wait (or give up), never
 * memory grow.
 *
 * Before the handler sees a request, it has passed: the shape of its head (CRLF only, no control
 * characters, no folded lines, sizes), duplicates of fields that steer (Host, Content-Length,
 * Transfer-Encoding, ...), the method, Host, Origin, the key, the limit on the body. A refusal is
 * a small JSON text, shaped by sl_http_options.error_body.
 *
 * One request a connection: every answer says "Connection: close". Nothing that follows a request
 * can then be taken for another one, and what a connection may hold is known when it is accepted.
 *
 * A client has left when it closes its side, also if only for writing: one that goes away sends
 * just that, and nothing else tells before a write fails. It is noticed when the kernel tells, in
 * every phase: is_gone() turns true, writes end, `gone` is called. A request that was answered in
 * the handler is answered in any case.
 *
 * Memory: one arena, given at the start; afterwards this code asks for nothing. libmicrohttpd
 * takes heap for each connection, the kernel takes socket buffers: both have bounds, which
 * sl_http_bytes() counts. */
#ifndef SL_SERVER_HTTP_H
#define SL_SERVER_HTTP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"

typedef struct sl_http_server sl_http_server;
/* One request and its answer. A handle is good from the call of the handler to sl_http_end(). */
typedef struct sl_http_exchange sl_http_exchange;

/* Texts are NUL-terminated and hold no other NUL and no control characters. They and `body` are
 * good during the handler, and as long as the exchange when it is kept (the body until
 * sl_http_drop_body). */
typedef struct sl_http_request {
    /* "GET", "POST", "DELETE"; a HEAD is "GET" with is_head: its body is not sent */
    const char *method;
    bool is_head;
    const char *path;  /* decoded, begins with '/', valid UTF-8 */
    const char *query; /* as it was sent, behind the '?'; "" without one: sl_http_query() */
    const char *body;  /* [body_bytes], then a NUL that is not counted; NULL without a body */
    size_t body_bytes;
    /* lower case, without parameters ("application/json"); "" without one */
    const char *content_type;
    const char *id; /* as sent in X-Request-Id: "req_" and 16 hexadecimal digits */
} sl_http_request;

typedef struct sl_http_header {
    const char *name;  /* a token */
    const char *value; /* printable ASCII */
} sl_http_header;

typedef struct sl_http_options {
    /* An IPv4 or IPv6 address in digits, or "localhost" (127.0.0.1); NULL: that. */
    const char *host;
    uint16_t port; /* 0: the kernel chooses, see sl_http_port() */

    uint32_t n_connections_max; /* default 64; further ones get 503 with Retry-After */
    uint64_t head_bytes_max;   /* request line and fields, default 16 KiB, at most 64 KiB: or 431 */
    uint64_t target_bytes_max; /* path and query, default 2 KiB: or 414 */
    uint64_t body_bytes_max;   /* of one request, default 8 MiB: or 413 */
    /* Of all requests together, default 16 MiB, at least body_bytes_max. A body that finds no room
     * gets 503 with Retry-After. */
    uint64_t bodies_bytes;
    uint64_t out_bytes;    /* ring of one connection, default 32 KiB, at least 4 KiB */
    uint32_t head_seconds; /* for the head to be complete, default 10: or 408 */
    uint32_t body_seconds; /* for the body to be complete, default 60: or 408 */
    /* That a client may take nothing while there is something for it, default 30. Then it is cut
     * off, and counts as gone. */
    uint32_t send_seconds;
    uint32_t keep_alive_seconds; /* silence in a stream before a comment is sent, default 5 */

    /* Names that Host may have. Always allowed, with the port of the server: localhost, and the
     * address that the connection came to. Others: "name" (any port) or "name:port". */
    const char *const *hosts;
    uint32_t n_hosts;
    /* Origins whose pages may use the server, "scheme://host[:port]" or "*" for all: they get the
     * fields of CORS. None by default; a page of another origin than the server's own is refused
     * (403). */
    const char *const *origins;
    uint32_t n_origins;
    /* Keys, 1..255 bytes of printable ASCII; one is enough. Sent as "Authorization: Bearer KEY" or
     * "X-Api-Key: KEY", compared in constant time. Required unless host is a loopback address. */
    const char *const *keys;
    uint32_t n_keys;

    /* First argument of all that follow; each is called on the HTTP thread and returns soon. */
    void *ctx;

    /* A complete request. Answer it (sl_http_respond, sl_http_begin ...) and end it, or
     * sl_http_keep() it. What is neither kept nor ended when the handler returns is ended with
     * 500. */
    void (*handle)(void *ctx, sl_http_exchange *x, const sl_http_request *request);
    /* Optional: the head alone (body is NULL, body_bytes what was announced, 0 if unknown),
     * before a body is received. Returning a status (404, 405, 429 ...) refuses it;
     * *retry_seconds > 0 sends Retry-After. 0 goes on. */
    unsigned (*check)(void *ctx, const sl_http_request *request, unsigned *retry_seconds);
    /* Optional: true for what needs no key, such as GET /health or the files of the page. */
    bool (*is_open)(void *ctx, const sl_http_request *request);
    /* Optional: the JSON text of a refusal. path may be "" (nothing was parsed). out is fixed,
     * about 1 KiB. */
    void (*error_body)(void *ctx, const char *path, unsigned status, const char *message,
                       sl_buf *out);
    /* Optional: the client of a kept exchange has left, or was cut off. Called once, unless the
     * owner has ended the exchange before. The owner still ends it, now (the handle may be used
     * in here) or later; another thread may be doing so meanwhile, so look `user` up under a lock
     * of your own before it is followed. */
    void (*gone)(void *ctx, sl_http_exchange *x, void *user);
} sl_http_options;

/* The defaults above, with no handler. */
void sl_http_options_init(sl_http_options *options);

/* What the server takes. Pure. arena: what sl_http_start() takes of its arena; rest: heap of
 * libmicrohttpd, kernel's buffers and its thread (upper bounds); bytes: both. UINT64_MAX: out of
 * range. */
uint64_t sl_http_arena_bytes(const sl_http_options *options);
uint64_t sl_http_rest_bytes(const sl_http_options *options);
uint64_t sl_http_bytes(const sl_http_options *options);

/* Listen and start the thread. options are copied, with all their texts. *out is set before the
 * handler can be called, which may so use what out points to. The arena is the server's until
 * sl_http_stop(). Errors: SL_ERR_ARGUMENT (a value out of range, or no key off
 * loopback), SL_ERR_IO (the address cannot be had), SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_http_start(const sl_http_options *options, sl_arena *arena,
                                    sl_http_server **out, sl_error *err);
/* Whether sl_http_start() would accept the options and get the address, just now: for those who prepare for long in
 * between. Errors: as there, but SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_http_try(const sl_http_options *options, sl_error *err);
uint16_t sl_http_port(const sl_http_server *server);

/* Stop: new connections are refused at once; exchanges that are under way have `seconds` to end,
 * then they are cut (their owners see them gone). Returns when the thread has ended; handles that
 * are still kept may then only be ended, before the arena is reused. Accepts NULL. Not the HTTP
 * thread; not in a signal handler. */
void sl_http_stop(sl_http_server *server, double seconds);

typedef struct sl_http_stats {
    uint64_t n_accepted, n_requests; /* connections; requests that reached the handler */
    uint64_t n_refused;              /* by this layer, 503 included */
    uint64_t n_busy;                 /* 503 for connections or bodies */
    uint64_t n_gone;                 /* clients that left before their answer was complete */
    uint32_t n_connections;          /* now */
    uint64_t bodies_bytes;           /* now */
} sl_http_stats;
/* Any thread. */
void sl_http_stats_read(sl_http_server *server, sl_http_stats *out);

/* ---- in the handler -------------------------------------------------------------------------- */

/* The value of a request field, or NULL. In `handle`, `check` and `is_open` only. */
const char *sl_http_field(sl_http_exchange *x, const char *name);
/* The exchange will be ended later, maybe by another thread. user: see sl_http_user(). */
void sl_http_keep(sl_http_exchange *x, void *user);

/* ---- the owner of the exchange: the handler, then whoever it was handed to; one thread at a
 * time -- */

typedef enum sl_http_result {
    SL_HTTP_OK,
    SL_HTTP_GONE, /* the client left, was cut off, or the server stops: end the exchange */
    SL_HTTP_FULL, /* the client takes nothing: end the exchange, or try again with what is left */
} sl_http_result;

/* The request of a kept exchange, until sl_http_end(). */
const sl_http_request *sl_http_request_of(const sl_http_exchange *x);
void *sl_http_user(const sl_http_exchange *x);
/* The body is not needed any more; its memory serves others. */
void sl_http_drop_body(sl_http_exchange *x);

/* A whole answer: begin, write and end in one; where an answer has begun already it is cut (as
 * sl_http_abort). On the HTTP thread n must not exceed out_bytes (else 500 is sent); elsewhere
 * this waits for a slow client as long as send_seconds. The handle is gone afterwards. */
void sl_http_respond(sl_http_exchange *x, unsigned status, const char *type,
                     const sl_http_header *headers, uint32_t n_headers, const void *body, size_t n);
/* The same with bytes that live as long as the server, such as the page: of any size, not copied,
 * never waits. */
void sl_http_respond_static(sl_http_exchange *x, unsigned status, const char *type,
                            const sl_http_header *headers, uint32_t n_headers, const void *body,
                            size_t n);
/* A refusal, with the body that error_body shapes. retry_seconds > 0: Retry-After. */
void sl_http_refuse(sl_http_exchange *x, unsigned status, const char *message,
                    unsigned retry_seconds);

/* Begin an answer whose length is not known: chunked, or up to the end of the connection for
 * HTTP/1.0. What is sent always: Date, X-Request-Id, Cache-Control: no-store,
 * X-Content-Type-Options: nosniff, Connection: close; headers add to that (1 KiB together;
 * copied; one with control characters is left out). keep_alive: a static text of at most 1 KiB
 * that is sent whenever nothing was written for keep_alive_seconds (SL_HTTP_SSE_COMMENT, or an
 * event of the API), never inside what one call of sl_http_write() writes; NULL for other types
 * than event streams. Begin early: there can be no sign of life before. */
#define SL_HTTP_SSE_TYPE "text/event-stream"
#define SL_HTTP_SSE_COMMENT ": keep-alive\n\n"
void sl_http_begin(sl_http_exchange *x, unsigned status, const char *type,
                   const sl_http_header *headers, uint32_t n_headers, const char *keep_alive);
/* Write n bytes, in an event stream one or more whole events. Waits until the ring has taken all
 * of them; gives up when it has not moved for wait_seconds (0: never waits). *taken (may be NULL)
 * is how many were. On the HTTP thread wait_seconds counts as 0. After SL_HTTP_FULL no keep-alive
 * is sent until the rest was written. */
sl_http_result sl_http_write(sl_http_exchange *x, const void *bytes, size_t n, double wait_seconds,
                             size_t *taken);
/* Bytes that sl_http_write() takes now without waiting. */
size_t sl_http_room(sl_http_exchange *x);
/* The answer is complete (500 if it was never begun); the handle is gone. Needed once for every
 * exchange that was kept and is not ended by one of the functions that answer whole, also when
 * its client has left. */
void sl_http_end(sl_http_exchange *x);
/* Instead of sl_http_end(): cut the connection, so that the client knows that the answer is not
 * complete. */
void sl_http_abort(sl_http_exchange *x);

/* ---- any thread, while the handle is good
 * -------------------------------------------------------- */

bool sl_http_is_gone(const sl_http_exchange *x);

/* ---- pure helpers
 * -------------------------------------------------------------------------------- */

/* The decoded value of a name in a query ("a=1&b=%20"; '+' is a space), the first one. False: not
 * there, not UTF-8, holds control characters, a bad escape, or longer than cap - 1. */
bool sl_http_query(const char *query, const char *name, char *out, size_t cap);

#endif
