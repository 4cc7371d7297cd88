/* What the owner of an exchange calls: the ring, answers, the end. No socket is touched here: the
 * HTTP thread is woken, and sends. */
#include "server/http_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define ERROR_BYTES 1024

// ---- the ring -----------------------------------------------------------------------------------

size_t sl__http_ring_used(const sl_http_exchange *x) {
    return (size_t)(x->ring_in - x->ring_out);
}

static size_t ring_room(const sl_http_exchange *x) {
    return (size_t)x->server->options.out_bytes - sl__http_ring_used(x);
}

void sl__http_ring_put(sl_http_exchange *x, const void *bytes, size_t n) {
    const size_t cap = (size_t)x->server->options.out_bytes;
    const size_t at = (size_t)(x->ring_in % cap);
    const size_t first = SL_MIN(n, cap - at);
    memcpy(x->ring + at, bytes, first);
    memcpy(x->ring, (const uint8_t *)bytes + first, n - first);
    x->ring_in += n;
}

size_t sl__http_ring_take(sl_http_exchange *x, void *out, size_t n) {
    const size_t cap = (size_t)x->server->options.out_bytes;
    const size_t at = (size_t)(x->ring_out % cap);
    n = SL_MIN(n, sl__http_ring_used(x));
    const size_t first = SL_MIN(n, cap - at);
    memcpy(out, x->ring + at, first);
    memcpy((uint8_t *)out + first, x->ring, n - first);
    x->ring_out += n;
    return n;
}

void sl__http_answer_reset(sl_http_exchange *x) {
    x->ring_in = x->ring_out = 0;
    x->is_held = x->is_kept = false;
    x->is_begun = x->is_ended = x->is_aborted = x->is_partial = false;
    x->status = 0;
    x->length = SL_HTTP_UNKNOWN_LENGTH;
    x->type[0] = x->extra[0] = '\0';
    x->keep_alive = NULL;
    x->fixed = NULL;
    x->user = NULL;
    atomic_store_explicit(&x->is_gone, false, memory_order_relaxed);
}

// ---- beginning ----------------------------------------------------------------------------------

/* A line of the head that is ours to send must not hold another one. */
static bool is_sendable(const char *text) {
    for (; *text; text++) {
        if ((uint8_t)*text < 0x20 || *text == 0x7f)
            return false;
    }
    return true;
}

static void put_headers(sl_http_exchange *x, const sl_http_header *headers, uint32_t n_headers) {
    size_t at = 0;
    for (uint32_t i = 0; i < n_headers; i++) {
        const size_t name = strlen(headers[i].name) + 1, value = strlen(headers[i].value) + 1;
        if (!is_sendable(headers[i].name) || !is_sendable(headers[i].value))
            continue;
        const bool fits = at + name + value + 1 <= sizeof(x->extra);
        assert(fits);
        if (!fits)
            break;
        memcpy(x->extra + at, headers[i].name, name);
        memcpy(x->extra + at + name, headers[i].value, value);
        at += name + value;
    }
    x->extra[at] = '\0';
}

static void begin_locked(sl_http_exchange *x, unsigned status, const char *type, uint64_t length,
                         const sl_http_header *headers, uint32_t n_headers) {
    x->is_begun = true;
    x->status = status;
    x->length = length;
    (void)snprintf(x->type, sizeof(x->type), "%s", type && is_sendable(type) ? type : "");
    put_headers(x, headers, n_headers);
    x->active_ns = sl_clock_ns();
}

void sl_http_begin(sl_http_exchange *x, unsigned status, const char *type,
                   const sl_http_header *headers, uint32_t n_headers, const char *keep_alive) {
    const bool fits = !keep_alive || strlen(keep_alive) <= SL_HTTP_EXTRA_BYTES; // into any ring
    assert(fits);
    (void)pthread_mutex_lock(&x->lock);
    if (!x->is_begun) {
        begin_locked(x, status, type, SL_HTTP_UNKNOWN_LENGTH, headers, n_headers);
        x->keep_alive = fits ? keep_alive : NULL;
        sl__http_wake(x);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

// ---- writing ------------------------------------------------------------------------------------

/* Wait until the ring moves, at most until the time; false: the time has come. */
static bool wait_locked(sl_http_exchange *x, uint64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(&x->moved, &x->lock, &until) != ETIMEDOUT;
}

static uint64_t wait_ns(const sl_http_exchange *x, double seconds) {
    const bool never = !(seconds > 0) || sl__http_on_thread(x->server);
    return never ? 0 : (uint64_t)(1e9 * SL_MIN(seconds, 1e6));
}

static sl_http_result write_locked(sl_http_exchange *x, const uint8_t *bytes, size_t n,
                                   uint64_t wait, size_t *done) {
    uint64_t until = sl_clock_ns() + wait;
    while (*done < n) {
        if (atomic_load_explicit(&x->is_gone, memory_order_relaxed))
            return SL_HTTP_GONE;
        const size_t part = SL_MIN(n - *done, ring_room(x));
        if (part == 0) {
            if (wait == 0 || !wait_locked(x, until))
                return SL_HTTP_FULL;
            continue;
        }
        if (!x->request.is_head) // no body is sent, so nobody would take it
            sl__http_ring_put(x, bytes + *done, part);
        *done += part;
        x->is_partial = *done < n;
        sl__http_wake(x);
        until = sl_clock_ns() + wait;
    }
    return SL_HTTP_OK;
}

sl_http_result sl_http_write(sl_http_exchange *x, const void *bytes, size_t n, double wait_seconds,
                             size_t *taken) {
    size_t done = 0;
    const uint64_t wait = wait_ns(x, wait_seconds);
    (void)pthread_mutex_lock(&x->lock);
    const sl_http_result result = write_locked(x, bytes, n, wait, &done);
    (void)pthread_mutex_unlock(&x->lock);
    if (taken)
        *taken = done;
    return result;
}

size_t sl_http_room(sl_http_exchange *x) {
    (void)pthread_mutex_lock(&x->lock);
    const size_t room = ring_room(x);
    (void)pthread_mutex_unlock(&x->lock);
    return room;
}

// ---- the end ------------------------------------------------------------------------------------

/* After this the slot may serve another connection as soon as the lock is free. */
static void end_locked(sl_http_exchange *x, bool complete) {
    x->is_ended = complete;
    x->is_aborted = !complete;
    x->is_held = false;
    atomic_store_explicit(&x->body_held, 0, memory_order_release);
    sl__http_wake(x);
}

void sl_http_abort(sl_http_exchange *x) {
    (void)pthread_mutex_lock(&x->lock);
    end_locked(x, false);
    (void)pthread_mutex_unlock(&x->lock);
}

void sl_http_end(sl_http_exchange *x) {
    (void)pthread_mutex_lock(&x->lock);
    const bool was_begun = x->is_begun;
    if (was_begun)
        end_locked(x, true);
    (void)pthread_mutex_unlock(&x->lock);
    if (!was_begun)
        sl_http_refuse(x, 500, "the request was given up", 0);
}

void sl_http_respond(sl_http_exchange *x, unsigned status, const char *type,
                     const sl_http_header *headers, uint32_t n_headers, const void *body,
                     size_t n) {
    size_t done = 0;
    if (sl__http_on_thread(x->server) && n > x->server->options.out_bytes) {
        sl_http_refuse(x, 500, "the answer is larger than a connection's buffer", 0);
        return;
    }
    const uint64_t wait = wait_ns(x, x->server->options.send_seconds);
    (void)pthread_mutex_lock(&x->lock);
    if (!x->is_begun) {
        begin_locked(x, status, type, n, headers, n_headers);
        sl__http_wake(x);
        end_locked(x, write_locked(x, body, n, wait, &done) == SL_HTTP_OK);
    } else {
        end_locked(x, false);
    }
    (void)pthread_mutex_unlock(&x->lock);
}

void sl_http_respond_static(sl_http_exchange *x, unsigned status, const char *type,
                            const sl_http_header *headers, uint32_t n_headers, const void *body,
                            size_t n) {
    (void)pthread_mutex_lock(&x->lock);
    const bool is_first = !x->is_begun;
    if (is_first) {
        begin_locked(x, status, type, n, headers, n_headers);
        x->fixed = body;
    }
    end_locked(x, is_first);
    (void)pthread_mutex_unlock(&x->lock);
}

void sl__http_error_text(const sl_http_server *server, const char *path, unsigned status,
                         const char *message, sl_buf *out) {
    if (server->options.error_body)
        server->options.error_body(server->options.ctx, path, status, message, out);
    if (out->len && !out->failed)
        return;
    sl_buf_clear(out);
    sl_buf_add_text(out, "{\"error\":{\"message\":");
    sl_buf_add_json_string(out, message, strlen(message));
    sl_buf_printf(out, ",\"code\":%u}}", status);
}

void sl_http_refuse(sl_http_exchange *x, unsigned status, const char *message,
                    unsigned retry_seconds) {
    char text[ERROR_BYTES], seconds[12];
    sl_buf body;
    (void)snprintf(seconds, sizeof(seconds), "%u", retry_seconds);
    const sl_http_header retry = {.name = "Retry-After", .value = seconds};
    sl_buf_init_fixed(&body, text, sizeof(text));
    sl__http_error_text(x->server, x->request.path ? x->request.path : "", status, message, &body);
    sl_http_respond(x, status, "application/json", &retry, retry_seconds > 0, body.data, body.len);
}

// ---- looking ------------------------------------------------------------------------------------

void sl_http_drop_body(sl_http_exchange *x) {
    atomic_store_explicit(&x->body_held, 0, memory_order_release);
}

bool sl_http_is_gone(const sl_http_exchange *x) {
    return atomic_load_explicit(&x->is_gone, memory_order_relaxed);
}

const sl_http_request *sl_http_request_of(const sl_http_exchange *x) {
    return &x->request;
}

void sl_http_keep(sl_http_exchange *x, void *user) {
    (void)pthread_mutex_lock(&x->lock);
    x->is_kept = true;
    x->user = user;
    (void)pthread_mutex_unlock(&x->lock);
}

void *sl_http_user(const sl_http_exchange *x) {
    return x->user; // set before the exchange was handed on
}
