/* Tokens per second of a converted model, fully in memory and at smaller budgets, and where the time goes.
 *
 *   bench_model STORE [--json] [--tokens N] [--runs N]
 *
 * Every run forces the same token stream, the model's own text after a fixed start, recorded by a first run
 * (random tokens would route at random), so that runs of different
 * settings do the same work. Settings are interleaved: one run of each, then again; figures are medians. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sluice.h"

#define RUNS_MAX 32
#define TOKENS_MAX 1024
#define PROMPT_TOKENS 16

typedef struct setting {
    const char *name;
    uint64_t mem_bytes; /* 0: everything fits */
    uint32_t n_threads;
} setting;

typedef struct sample {
    double decode, prefill;                           /* tokens per second */
    double mixer, router, experts, head, wait, other; /* shares of the time */
    double hit_rate, bytes_per_token;
} sample;

static const char *store;
static uint32_t n_tokens = 200, n_runs = 5;
static bool as_json;
static uint32_t stream[TOKENS_MAX];

static void check(sl_status st, const sl_error *err) {
    if (st) {
        fprintf(stderr, "bench_model: %s\n", err->message);
        exit(1);
    }
}

static sl_engine *open_engine(const setting *s) {
    sl_engine_options o;
    sl_engine *engine;
    sl_error err;
    sl_engine_options_init(&o);
    o.mem_bytes = s->mem_bytes ? s->mem_bytes : (uint64_t)1 << 40;
    o.n_threads = s->n_threads;
    o.n_ctx = TOKENS_MAX + PROMPT_TOKENS;
    check(sl_engine_open(store, &o, NULL, &engine, &err), &err);
    return engine;
}

static sl_session *open_session(sl_engine *engine) {
    sl_session *session;
    sl_error err;
    check(sl_session_open(engine, &session, &err), &err);
    return session;
}

/* Greedy text of the model, end tokens included and followed through, as the stream that all runs force. */
static void record_stream(void) {
    const setting all = {"record", 0, 0};
    sl_engine *engine = open_engine(&all);
    sl_session *session = open_session(engine);
    sl_model_info model;
    sl_error err;
    sl_engine_model(engine, &model);
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++)
        stream[i] = (i * 37 + 300) % model.n_vocab;
    check(sl_session_feed(session, stream, PROMPT_TOKENS, NULL, &err), &err);
    for (uint32_t i = PROMPT_TOKENS; i < n_tokens + PROMPT_TOKENS; i++) {
        const float *logits = sl_session_logits(session);
        uint32_t best = 0;
        // A token that was there a moment ago is passed over: greedy text would circle.
        for (uint32_t v = 0; v < model.n_vocab; v++) {
            bool recent = false;
            for (uint32_t j = i > 8 ? i - 8 : 0; j < i; j++)
                recent |= stream[j] == v;
            if (!recent && logits[v] > logits[best])
                best = v;
        }
        stream[i] = best;
        check(sl_session_feed(session, &best, 1, NULL, &err), &err);
    }
    sl_engine_close(engine);
}

static sample run(const setting *s) {
    sl_engine *engine = open_engine(s);
    sl_session *session = open_session(engine);
    sl_telemetry a, b;
    sl_error err;
    // A warm start: the hot tier has seen the stream once.
    check(sl_session_feed(session, stream, n_tokens + PROMPT_TOKENS, NULL, &err), &err);
    sl_session_reset(session);
    sl_engine_telemetry(engine, &a);
    check(sl_session_feed(session, stream, n_tokens + PROMPT_TOKENS, NULL, &err), &err);
    sl_engine_telemetry(engine, &b);
    sample out = {.prefill =
                      (double)(n_tokens + PROMPT_TOKENS) / (b.prefill_seconds - a.prefill_seconds)};
    sl_session_reset(session);
    check(sl_session_feed(session, stream, PROMPT_TOKENS, NULL, &err), &err);
    sl_engine_telemetry(engine, &a);
    for (uint32_t i = 0; i < n_tokens; i++)
        check(sl_session_feed(session, &stream[PROMPT_TOKENS + i], 1, NULL, &err), &err);
    sl_engine_telemetry(engine, &b);
    double t = b.decode_seconds - a.decode_seconds;
    out.decode = n_tokens / t;
    out.mixer = (b.mixer_seconds - a.mixer_seconds) / t;
    out.router = (b.router_seconds - a.router_seconds) / t;
    out.experts = (b.experts_seconds - a.experts_seconds) / t;
    out.head = (b.head_seconds - a.head_seconds) / t;
    out.wait = (b.wait_seconds - a.wait_seconds) / t;
    out.other = 1 - out.mixer - out.router - out.experts - out.head;
    double uses = (double)(b.hits - a.hits + b.reads - a.reads);
    out.hit_rate = uses > 0 ? (double)(b.hits - a.hits) / uses : 0;
    out.bytes_per_token = (double)(b.read_bytes - a.read_bytes) / n_tokens;
    sl_engine_close(engine);
    return out;
}

static int by_decode(const void *a, const void *b) {
    double x = ((const sample *)a)->decode, y = ((const sample *)b)->decode;
    return (x > y) - (x < y);
}

static int usage(void) {
    fprintf(stderr, "usage: bench_model STORE [--json] [--tokens N] [--runs N]\n");
    return 2;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc)
            n_tokens = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
            n_runs = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (argv[i][0] != '-' && !store)
            store = argv[i];
        else
            return usage();
    }
    if (!store || n_tokens == 0 || n_tokens > TOKENS_MAX || n_runs == 0 || n_runs > RUNS_MAX)
        return usage();
    sl_plan_info plan;
    sl_error err;
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.mem_bytes = (uint64_t)1 << 40;
    o.n_ctx = TOKENS_MAX + PROMPT_TOKENS;
    check(sl_plan(store, &o, false, &plan, &err), &err);
    // Everything; three quarters and a quarter of the way down to the smallest plan.
    uint64_t span = plan.total_bytes - plan.smallest_bytes;
    const setting settings[] = {
        {"resident, 1 thread", 0, 1},
        {"resident, 2 threads", 0, 2},
        {"3/4 of the span", plan.smallest_bytes + span / 4 * 3, 1},
        {"1/4 of the span", plan.smallest_bytes + span / 4, 1},
    };
    enum { N = sizeof(settings) / sizeof(settings[0]) };
    static sample samples[N][RUNS_MAX];
    record_stream();
    for (uint32_t r = 0; r < n_runs; r++)
        for (int i = 0; i < N; i++)
            samples[i][r] = run(&settings[i]);
    if (!as_json)
        printf("%-22s %9s %9s  %6s %6s %7s %6s %6s  %6s  %8s %9s\n", "", "decode", "prefill",
               "mixer", "router", "experts", "head", "other", "wait", "hit rate", "per token");
    for (int i = 0; i < N; i++) {
        qsort(samples[i], n_runs, sizeof(sample), by_decode);
        const sample *s = &samples[i][n_runs / 2];
        if (as_json)
            printf("%s{\"setting\": \"%s\", \"decode_tokens_per_second\": %.1f, "
                   "\"prefill_tokens_per_second\": %.1f, \"shares\": {\"mixer\": %.3f, \"router\": "
                   "%.3f, \"experts\": %.3f, \"head\": %.3f, \"other\": %.3f, \"wait\": %.3f}, "
                   "\"hit_rate\": %.4f, \"read_bytes_per_token\": %.0f}%s\n",
                   i ? "" : "[", settings[i].name, s->decode, s->prefill, s->mixer, s->router,
                   s->experts, s->head, s->other, s->wait, s->hit_rate, s->bytes_per_token,
                   i + 1 < N ? "," : "]");
        else
            printf("%-22s %5.0f t/s %5.0f t/s  %5.1f%% %5.1f%% %6.1f%% %5.1f%% %5.1f%%  %5.1f%%  "
                   "%7.1f%% %6.0f KiB\n",
                   settings[i].name, s->decode, s->prefill, 100 * s->mixer, 100 * s->router,
                   100 * s->experts, 100 * s->head, 100 * s->other, 100 * s->wait,
                   100 * s->hit_rate, s->bytes_per_token / 1024);
    }
    return 0;
}
