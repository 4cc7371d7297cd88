/* What the server tells of itself: metrics for Prometheus, the accounts of memory, and events while it works. */
#include <string.h>

#include "base/clock.h"
#include "server/server_internal.h"

#define EVENT_SECONDS 0.25
#define EVENT_BYTES 2048

static const char *phase_name(sl_server_phase phase) {
    switch (phase) {
    case SL_SERVER_IDLE:
        return "idle";
    case SL_SERVER_PREPARE:
        return "prepare";
    case SL_SERVER_PREFILL:
        return "prefill";
    case SL_SERVER_ANSWER:
        return "answer";
    }
    return "";
}

static void read_state(sl_server *s, sl_server_state *state, uint32_t *n_queued) {
    (void)pthread_mutex_lock(&s->mutex);
    *state = s->state;
    *n_queued = s->n_queued;
    (void)pthread_mutex_unlock(&s->mutex);
}

/* ---- metrics --------------------------------------------------------------------------------------- */

static void metric(sl_buf *out, const char *name, const char *type, const char *help,
                   double value) {
    sl_buf_printf(out, "# HELP sluice_%s %s\n# TYPE sluice_%s %s\nsluice_%s %.17g\n", name, help,
                  name, type, name, value);
}

static void counter(sl_buf *out, const char *name, const char *help, uint64_t value) {
    metric(out, name, "counter", help, (double)value);
}

static void gauge(sl_buf *out, const char *name, const char *help, double value) {
    metric(out, name, "gauge", help, value);
}

void sl__status_metrics(sl_server *s, sl_buf *out) {
    sl_server_state state;
    uint32_t n_queued;
    sl_telemetry t;
    sl_http_stats http;
    sl_memory_info memory;
    read_state(s, &state, &n_queued);
    sl_engine_telemetry(s->engine, &t);
    sl_http_stats_read(s->http, &http);
    counter(out, "requests_total", "Requests that were queued for the model.", state.n_requests);
    counter(out, "requests_failed_total", "Requests answered with an error.", state.n_failed);
    counter(out, "requests_busy_total", "Requests refused because the queue was full.",
            state.n_refused_busy);
    counter(out, "clients_gone_total", "Clients that left before their answer was complete.",
            state.n_gone);
    counter(out, "http_requests_total", "Requests that reached a route.", http.n_requests);
    counter(out, "http_refused_total", "Requests and connections refused by HTTP's checks.",
            http.n_refused);
    gauge(out, "connections", "Open connections.", http.n_connections);
    gauge(out, "queue_length", "Requests that wait.", n_queued);
    gauge(out, "busy", "1 while a request is computed.", state.phase != SL_SERVER_IDLE);
    counter(out, "prompt_tokens_total", "Tokens of prompts.", state.n_prompt);
    counter(out, "cached_tokens_total", "Tokens of prompts that were known from earlier ones.",
            state.n_cached);
    counter(out, "completion_tokens_total", "Tokens of answers.", state.n_completion);
    metric(out, "prefill_seconds_total", "counter", "Time spent on prompts.", t.prefill_seconds);
    metric(out, "decode_seconds_total", "counter", "Time spent on answers.", t.decode_seconds);
    metric(out, "wait_seconds_total", "counter", "Time spent waiting for the drive.",
           t.wait_seconds);
    counter(out, "expert_hits_total", "Experts found in memory.", t.hits);
    counter(out, "expert_reads_total", "Experts read because they were asked for.", t.reads);
    counter(out, "guess_reads_total", "Experts read early.", t.guess_reads);
    counter(out, "guesses_used_total", "Of these, asked for later.", t.guesses_used);
    counter(out, "read_bytes_total", "Bytes read from the drive.", t.read_bytes);
    gauge(out, "memory_budget_bytes", "The budget.", (double)s->plan.budget_bytes);
    gauge(out, "memory_planned_bytes", "Sum of the accounts.", (double)s->plan.total_bytes);
    if (sl_engine_memory(s->engine, &memory, NULL) == SL_OK) {
        gauge(out, "memory_resident_bytes", "Resident set.", (double)memory.rss_bytes);
        gauge(out, "memory_peak_bytes", "Peak, with page tables and the kernel's share.",
              (double)memory.peak_bytes);
    }
}

/* ---- memory ---------------------------------------------------------------------------------------- */

static void member(sl_buf *out, const char *name, uint64_t value) {
    sl_buf_printf(out, "\"%s\":%llu,", name, (unsigned long long)value);
}

void sl__status_memory(sl_server *s, sl_buf *out) {
    uint64_t used[SL_ACCOUNTS_MAX];
    sl_memory_info memory;
    sl_http_stats http;
    memset(&memory, 0, sizeof(memory));
    (void)sl_engine_memory(s->engine, &memory, NULL); // zeros where the kernel tells nothing
    sl_engine_used(s->engine, used);
    sl_http_stats_read(s->http, &http);
    sl_buf_add_char(out, '{');
    member(out, "budget_bytes", s->plan.budget_bytes);
    member(out, "planned_bytes", s->plan.total_bytes);
    sl_buf_add_text(out, "\"kernel\":{");
    member(out, "peak_bytes", memory.peak_bytes);
    member(out, "resident_bytes", memory.rss_bytes);
    member(out, "resident_peak_bytes", memory.rss_peak_bytes);
    member(out, "page_table_bytes", memory.page_table_bytes);
    sl_buf_printf(out, "\"cgroup_peak_bytes\":%llu},\"accounts\":[",
                  (unsigned long long)memory.cgroup_peak_bytes);
    for (uint32_t i = 0; i < s->plan.n_accounts; i++) {
        const sl_account *a = &s->plan.accounts[i];
        bool server = strcmp(a->name, "server") == 0;
        sl_buf_printf(out, "%s{\"name\":\"%s\",\"purpose\":", i ? "," : "", a->name);
        sl_buf_add_json_string(out, a->purpose, strlen(a->purpose));
        sl_buf_printf(out, ",\"planned_bytes\":%llu,\"used_bytes\":%llu}",
                      (unsigned long long)a->bytes,
                      (unsigned long long)(server ? s->arena.used + http.bodies_bytes : used[i]));
    }
    sl_buf_add_text(out, "]}");
}

/* ---- events ---------------------------------------------------------------------------------------- */

static void add_event(sl_server *s, sl_buf *out) {
    sl_server_state state;
    uint32_t n_queued;
    sl_telemetry t;
    read_state(s, &state, &n_queued);
    sl_engine_telemetry(s->engine, &t);
    sl_buf_printf(out, "event: status\ndata: {\"phase\":\"%s\",", phase_name(state.phase));
    member(out, "prompt_done", state.done);
    member(out, "prompt_total", state.total);
    member(out, "answered", state.n_answered);
    member(out, "queued", n_queued);
    member(out, "tokens_prefilled", t.tokens_prefilled);
    member(out, "tokens_decoded", t.tokens_decoded);
    member(out, "hits", t.hits);
    member(out, "reads", t.reads);
    member(out, "guess_reads", t.guess_reads);
    member(out, "guesses_used", t.guesses_used);
    member(out, "read_bytes", t.read_bytes);
    sl_buf_printf(out,
                  "\"prefill_seconds\":%.6f,\"decode_seconds\":%.6f,\"wait_seconds\":%.6f}\n\n",
                  t.prefill_seconds, t.decode_seconds, t.wait_seconds);
}

// Sends to everybody; who has left, or takes nothing, is let go. last: that was it.
static void tell(sl_server *s, const sl_buf *event, bool last) {
    for (unsigned i = 0; i < SL_SERVER_WATCHERS_MAX; i++) {
        (void)pthread_mutex_lock(&s->mutex);
        sl_http_exchange *x = s->watchers[i];
        (void)pthread_mutex_unlock(&s->mutex);
        if (!x)
            continue;
        bool whole = sl_http_room(x) >= event->len; // else it is skipped: the next one says more
        bool gone = sl_http_is_gone(x) ||
                    (whole && sl_http_write(x, event->data, event->len, 0, NULL) != SL_HTTP_OK);
        if (!gone && !last)
            continue;
        (void)pthread_mutex_lock(&s->mutex);
        s->watchers[i] = NULL;
        (void)pthread_mutex_unlock(&s->mutex);
        sl_http_end(x);
    }
}

void sl__watcher_main(void *server) {
    sl_server *s = server;
    char block[EVENT_BYTES], before[EVENT_BYTES] = "";
    double when = sl_now();
    for (bool stopping = false; !stopping;) {
        sl_buf event;
        sl_sleep_until(when += EVENT_SECONDS);
        (void)pthread_mutex_lock(&s->mutex);
        stopping = s->stopping;
        bool anybody = false;
        for (unsigned i = 0; i < SL_SERVER_WATCHERS_MAX; i++)
            anybody |= s->watchers[i] != NULL;
        (void)pthread_mutex_unlock(&s->mutex);
        if (!anybody)
            continue;
        sl_buf_init_fixed(&event, block, sizeof(block));
        add_event(s, &event);
        // Nothing new: who has left is still noticed.
        if (strcmp(before, event.data) == 0)
            sl_buf_clear(&event);
        else
            memcpy(before, event.data, event.len + 1);
        tell(s, &event, stopping);
    }
}
