/* What the sources of the HTTP layer share. See http.h for what it does.
 *
 * A connection lives in a slot of a fixed table, and a slot is an exchange: there is one request a
 * connection. Slots go FREE -> HEAD -> LIVE -> (LINGER) -> (OWNED) -> FREE, all on the HTTP thread:
 *   HEAD    the head is looked at where it lies, in the kernel's buffer (MSG_PEEK), until it is
 *           whole and right. libmicrohttpd has not seen the connection; refusals are sent by hand.
 *   LIVE    libmicrohttpd has a duplicate of the descriptor. Ours stays, to notice a client that
 *           leaves (libmicrohttpd does not watch a suspended connection), and to cut it off.
 *   LINGER  the answer is sent, and a client that still sends is listened to for a moment: closing
 *           at once would reset the connection and could take the answer with it.
 *   OWNED   the connection is closed, the owner of the exchange has not ended it yet.
 * While nothing is to be done for a connection in LIVE it is suspended: the thread resumes it
 * when the owner has written. */
#ifndef SL_SERVER_HTTP_INTERNAL_H
#define SL_SERVER_HTTP_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "server/http.h"
#include "server/http_head.h"

struct MHD_Connection;
struct MHD_Daemon;

#define SL_HTTP_STACK_BYTES (256 * SL_KIB)
#define SL_HTTP_REFUSALS_MAX 8u /* connections over the limit that are told so at the same time */
#define SL_HTTP_EXTRA_BYTES 1024
#define SL_HTTP_LINGER_SECONDS 2
#define SL_HTTP_ORIGIN_MAX 256
#define SL_HTTP_UNKNOWN_LENGTH UINT64_MAX

typedef enum sl__http_phase {
    SL_HTTP_FREE,
    SL_HTTP_HEAD,
    SL_HTTP_LIVE,
    SL_HTTP_LINGER,
    SL_HTTP_OWNED,
} sl__http_phase;

struct sl_http_exchange {
    sl_http_server *server;
    uint32_t index;

    /* ---- the HTTP thread's ---- */
    sl__http_phase phase;
    uint32_t generation; /* of the slot: an event may be older than the connection */
    int fd;
    uint64_t deadline_ns; /* of HEAD, of the body, of LINGER; UINT64_MAX: none */
    struct MHD_Connection *connection;
    bool is_suspended;
    bool peer_closed;   /* the client has closed its side */
    bool is_checked;    /* libmicrohttpd's first callback has been */
    bool is_dispatched; /* the handler has been called */
    bool is_queued;     /* the answer was handed to libmicrohttpd */
    bool is_complete;   /* and has been sent */
    bool is_unread;     /* part of the request was left unread */
    sl_http_request request;
    sl_http_target target;
    char *target_text;                    /* [target_bytes_max + 3] */
    char local[INET6_ADDRSTRLEN];         /* address that the connection came to */
    char cors[SL_HTTP_ORIGIN_MAX];        /* the origin that is told that it may, or "" */
    char cors_fields[SL_HTTP_ORIGIN_MAX]; /* of a preflight */
    char content_type[64];
    char id[24];
    uint64_t body_at, body_room, body_got; /* its place among the bodies */
    /* Bytes that the body holds of the account. Set by the HTTP thread; the owner sets it to 0
     * (release) when it has finished reading, the HTTP thread looks (acquire) before it gives the
     * place away. */
    atomic_uint_fast64_t body_held;

    /* ---- guarded by lock ---- */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* the ring has room, or the client is gone */
    uint8_t *ring;        /* [out_bytes], NULL for slots that only refuse */
    uint64_t ring_in, ring_out;
    bool is_held; /* the owner has not ended it */
    bool is_kept;
    bool is_begun, is_ended, is_aborted;
    bool is_partial;  /* an event is written in part: nothing may come between */
    bool is_detached; /* the thread is gone, or about to be: it is not woken */
    unsigned status;
    uint64_t length; /* of the answer, or SL_HTTP_UNKNOWN_LENGTH */
    char type[64];
    char extra[SL_HTTP_EXTRA_BYTES]; /* name NUL value NUL ... NUL */
    const char *keep_alive;
    const uint8_t *fixed; /* respond_static: the bytes, instead of the ring */
    uint64_t active_ns;   /* when bytes last went on, or the answer began */
    void *user;

    /* Set by the HTTP thread under lock, read by anyone without: the owner's work is to stop.
     * Relaxed: what has happened is told by this flag alone. */
    atomic_bool is_gone;
};

struct sl_http_server {
    sl_http_options options;
    sl_http_key *keys;
    uint16_t port;
    uint32_t n_slots; /* n_connections_max, then SL_HTTP_REFUSALS_MAX without a ring */
    sl_http_exchange *slots;
    uint8_t *bodies; /* [sl__http_bodies_room()] */
    char *peeked;    /* [head_bytes_max + 1] */
    struct MHD_Daemon *daemon;
    sl_thread thread;
    int listen_fd, poll_fd, wake_fd, library_fd;
    uint64_t id_seed, n_ids;
    uint64_t accept_again_ns; /* out of descriptors: accept no more before */
    bool is_stopping;         /* the thread has seen stop_ns */
    sl_http_exchange *adding; /* the slot whose connection is being added to libmicrohttpd */

    /* 0, or when what is under way is cut. Set by sl_http_stop (release), seen by the thread
     * (acquire). */
    atomic_uint_fast64_t stop_ns;
    /* A wake-up is on its way: set by who wakes, cleared by the thread before it looks. */
    atomic_bool is_woken;
    /* Counters, relaxed. */
    atomic_uint_fast64_t n_accepted, n_requests, n_refused, n_busy, n_gone, n_bodies_bytes;
    atomic_uint_fast32_t n_connections;
};

/* ---- http.c
 * --------------------------------------------------------------------------------------- */

/* True on the thread of the server. */
bool sl__http_on_thread(const sl_http_server *server);
/* Make the thread look at the slots. With the lock of x held. */
void sl__http_wake(sl_http_exchange *x);

/* ---- http_answer.c
 * -------------------------------------------------------------------------------- */

/* With the lock held: forget the last exchange. */
void sl__http_answer_reset(sl_http_exchange *x);
/* Bytes in the ring. With the lock held. */
size_t sl__http_ring_used(const sl_http_exchange *x);
/* Put bytes that fit into the ring. With the lock held. */
void sl__http_ring_put(sl_http_exchange *x, const void *bytes, size_t n);
/* Take up to n bytes out of it. With the lock held. */
size_t sl__http_ring_take(sl_http_exchange *x, void *out, size_t n);
/* The JSON of a refusal. */
void sl__http_error_text(const sl_http_server *server, const char *path, unsigned status,
                         const char *message, sl_buf *out);

/* ---- http_connection.c: sockets, without libmicrohttpd
 * -------------------------------------------- */

SL_MUST_USE sl_status sl__http_listen(const sl_http_options *options, int *fd, uint16_t *port,
                                      sl_error *err);
/* Is the host of these options a loopback address? False as well when it is no address. */
bool sl__http_is_loopback(const sl_http_options *options);
/* What the kernel may hold for a connection. */
uint64_t sl__http_socket_bytes(const sl_http_options *options);
/* Accept whatever waits. */
void sl__http_accept(sl_http_server *server, uint64_t now);
/* Something arrived for a connection in HEAD. */
void sl__http_peek(sl_http_exchange *x, uint64_t now);
/* Send a refusal by hand, where libmicrohttpd has sent nothing. The caller closes or lingers. */
void sl__http_refuse_by_hand(sl_http_exchange *x, unsigned status, const char *message,
                             unsigned retry_seconds);
/* Close our side and wait a moment for the client to do the same. */
void sl__http_linger(sl_http_exchange *x, uint64_t now);
/* Read what a lingering client sends, and close when it has closed. */
void sl__http_drain(sl_http_exchange *x);
/* Close the descriptor; the slot is free, or waits for its owner. */
void sl__http_close(sl_http_exchange *x);
/* What to wait for on our own descriptor; add: it is not watched yet. */
void sl__http_watch(sl_http_exchange *x, uint32_t events, bool add);

/* Bytes for bodies with the NUL behind each. */
static inline uint64_t sl__http_bodies_room(const sl_http_options *options) {
    return options->bodies_bytes + options->n_connections_max;
}

/* ---- http_request.c: with libmicrohttpd
 * -------------------------------------------------------------- */

SL_MUST_USE sl_status sl__http_library_start(sl_http_server *server, sl_error *err);
uint64_t sl__http_pool_bytes(const sl_http_options *options);
/* Hand a connection over, whose head is right. False: no memory. */
bool sl__http_adopt(sl_http_exchange *x, const struct sockaddr *peer, socklen_t peer_bytes);
void sl__http_resume(sl_http_exchange *x);

#endif
