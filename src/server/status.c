/* What the server tells of itself: metrics for Prometheus, the accounts of memory, and events while it works. */
#include <string.h>

#include "base/clock.h"
#include "server/server_internal.h"

#define EVENT_SECONDS 0.25
/* Four numbers for each of up to 256 layers, which after months have twelve digits or so; what the smallest ring of a
 * connection takes. */
#define EVENT_BYTES (15 * SL_KIB)
#define LAYERS_MAX 256u

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

// What a page shows beside the accounts: why a plan of this size serves a model of that one.
static void add_model(sl_server *s, sl_buf *out) {
    const sl_plan_info *p = &s->plan;
    sl_buf_add_text(out, "\"model\":{\"name\":");
    sl_api_add_string(out, s->name, strlen(s->name));
    sl_buf_printf(out, ",\"family\":\"%s\",", s->model.family);
    member(out, "bytes", p->model_bytes);
    member(out, "context", p->n_ctx);
    member(out, "context_model", p->n_ctx_model);
    member(out, "layers", s->model.n_layers);
    member(out, "experts", p->n_experts_total);
    member(out, "experts_per_token", p->n_experts_token);
    member(out, "expert_bytes", p->expert_bytes);
    member(out, "hot_experts", p->hot_slots);
    member(out, "streamed_bytes_per_token", p->trunk_streamed_bytes);
    member(out, "read_bytes_per_token_low", p->token_read_bytes_low);
    member(out, "read_bytes_per_token_high", p->token_read_bytes_high);
    sl_buf_printf(out, "\"threads\":%u,\"cpu\":\"%s\",\"io\":\"%s\",\"version\":\"%s\"},",
                  p->n_threads, s->model.cpu, s->model.io, sl_version());
}

// What the model asks for, where a request says nothing.
static void add_sampling(sl_server *s, sl_buf *out) {
    sl_sampling p;
    sl_engine_sampling(s->engine, &p);
    sl_buf_printf(out,
                  "\"sampling\":{\"temperature\":%.6g,\"top_k\":%u,\"top_p\":%.6g,\"min_p\":%.6g,"
                  "\"presence_penalty\":%.6g,\"frequency_penalty\":%.6g,\"repeat_penalty\":%.6g},",
                  (double)p.temperature, p.top_k, (double)p.top_p, (double)p.min_p,
                  (double)p.presence_penalty, (double)p.frequency_penalty,
                  (double)p.repeat_penalty);
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
    sl_buf_printf(out, "\"cgroup_peak_bytes\":%llu},",
                  (unsigned long long)memory.cgroup_peak_bytes);
    add_model(s, out);
    add_sampling(s, out);
    sl_buf_add_text(out, "\"accounts\":[");
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

// Of every layer [hits, reads, reads ahead, those of them that were used], since open: an event that is missed loses nothing.
static void add_layers(sl_server *s, sl_buf *out) {
    sl_layer_use use[LAYERS_MAX];
    uint32_t n = SL_MIN(sl_engine_layers(s->engine, use, LAYERS_MAX), LAYERS_MAX);
    sl_buf_add_text(out, "\"layers\":[");
    for (uint32_t i = 0; i < n; i++)
        sl_buf_printf(out, "%s[%llu,%llu,%llu,%llu]", i ? "," : "", (unsigned long long)use[i].hits,
                      (unsigned long long)use[i].reads, (unsigned long long)use[i].guess_reads,
                      (unsigned long long)use[i].guesses_used);
    sl_buf_add_char(out, ']');
}

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
    sl_buf_printf(out, "\"prefill_seconds\":%.6f,\"decode_seconds\":%.6f,\"wait_seconds\":%.6f,",
                  t.prefill_seconds, t.decode_seconds, t.wait_seconds);
    add_layers(s, out);
    sl_buf_add_text(out, "}\n\n");
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
        bool anybody = false, newcomers = s->newcomers;
        s->newcomers = false;
        for (unsigned i = 0; i < SL_SERVER_WATCHERS_MAX; i++)
            anybody |= s->watchers[i] != NULL;
        (void)pthread_mutex_unlock(&s->mutex);
        if (!anybody)
            continue;
        sl_buf_init_fixed(&event, block, sizeof(block));
        add_event(s, &event);
        // Nothing new: who has left is still noticed.
        if (!newcomers && strcmp(before, event.data) == 0)
            sl_buf_clear(&event);
        else
            memcpy(before, event.data, event.len + 1);
        tell(s, &event, stopping);
    }
}
