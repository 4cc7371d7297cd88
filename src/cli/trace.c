/* The verb trace: record which experts a model asks for, and replay that against policies. See cli.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/signals.h"
#include "cli/stream.h"

#define TOKENS_DEFAULT 1000u

/* ---- record -------------------------------------------------------------------------------------- */

static bool report_record(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    (void)phase;
    cli_progress_show(user, done, total);
    return cli_signal() == 0;
}

static int record(cli *c, sl_engine *engine, uint32_t *ids, size_t n) {
    sl_error err;
    sl_session *session;
    sl_model_info model;
    sl_trace *trace = NULL;
    sl_trace_info info;
    char partial[CLI_PATH_MAX];
    const char *out = cli_string(c, CLI_OUT);
    if (snprintf(partial, sizeof(partial), "%s.partial", out) >= (int)sizeof(partial))
        return cli_usage_error(c, "'%.64s...' is longer than a path can be", out);
    sl_engine_model(engine, &model);
    if (sl_session_open(engine, &session, &err) != SL_OK)
        return cli_fail_status(c, &err);
    cli_signals_cancel(session);
    int exit_code =
        cli_given(c, CLI_STREAM) ? CLI_EXIT_OK : cli_stream_make(c, session, &model, ids, n);
    sl_status st = SL_OK;
    if (exit_code == CLI_EXIT_OK) {
        cli_progress line;
        cli_progress_init(&line, &c->err, "recording", true);
        if (c->quiet)
            line.out = NULL;
        sl_progress progress = {report_record, &line};
        st = sl_trace_record(session, ids, n, partial, &progress, &err);
        cli_progress_clear(&line);
        // Read back: what is kept is known to be whole.
        if (!st && !(st = sl_trace_open(partial, &trace, &info, &err)))
            sl_trace_close(trace);
    }
    cli_signals_cancel(NULL);
    sl_session_close(session);
    if (exit_code != CLI_EXIT_OK || st) {
        remove(partial);
        return exit_code != CLI_EXIT_OK ? exit_code : cli_fail_status(c, &err);
    }
    if (rename(partial, out) != 0) {
        remove(partial);
        return cli_fail(c, CLI_EXIT_FAILED, "io", "'%s' cannot be given its name", out);
    }
    if (c->json) {
        cli_json json = {.out = &c->out};
        cli_json_begin(&json, NULL, '{');
        cli_json_uint(&json, "tokens", info.n_tokens);
        cli_json_uint(&json, "layers", info.n_layers);
        cli_json_uint(&json, "experts", info.n_experts);
        cli_json_uint(&json, "experts_per_token", info.n_experts_token);
        cli_json_end(&json, '}');
        cli_puts(&c->out, "\n");
    } else {
        cli_note(c, "%u tokens, %u layers, %u of %u experts: %s", info.n_tokens, info.n_layers,
                 info.n_experts_token, info.n_experts, out);
    }
    return CLI_EXIT_OK;
}

static int trace_record(cli *c, const char *name) {
    char path[CLI_PATH_MAX];
    int exit_code;
    uint32_t n_sizes = 0, *ids = NULL;
    uint64_t sizes[CLI_SIZES_MAX];
    size_t n = cli_given(c, CLI_N_TOKENS) ? (size_t)cli_count(c, CLI_N_TOKENS) : 0;
    sl_engine *engine = NULL;
    sl_engine_options options;
    if (!cli_given(c, CLI_OUT))
        return cli_usage_error(c, "--out is missing: write 'sluice trace record MODEL --out FILE'");
    if (!cli_model_path(c, name, false, path, &exit_code))
        return exit_code;
    if (sl_model_kind_of(path) == SL_MODEL_NONE)
        return cli_no_model(c, name, path);
    cli_engine_options(c, &options);
    if (cli_given(c, CLI_SIZES)) {
        if (!cli_sizes(c, "--mem", cli_string(c, CLI_SIZES), false, sizes, &n_sizes, &exit_code))
            return exit_code;
        if (n_sizes > 1)
            return cli_usage_error(c, "--mem: a recording has one budget");
        options.mem_bytes = sizes[0];
    }
    cli_signals_catch();
    if (cli_given(c, CLI_STREAM)) {
        if ((exit_code = cli_stream_read(c, &ids, &n)) != CLI_EXIT_OK)
            return exit_code;
    } else {
        n = n ? n : TOKENS_DEFAULT;
        if (!(ids = calloc(n, sizeof(*ids))))
            return cli_fail(c, CLI_EXIT_FAILED, "memory", "no memory for %zu tokens", n);
    }
    options.n_ctx = (uint32_t)n;
    if ((exit_code = cli_engine_open(c, path, &options, &engine)) == CLI_EXIT_OK)
        exit_code = record(c, engine, ids, n);
    sl_engine_close(engine);
    free(ids);
    return exit_code;
}

/* ---- replay -------------------------------------------------------------------------------------- */

static const char *const names[SL_REPLAY_POLICIES] = {
    [SL_REPLAY_OURS] = "ours",
    [SL_REPLAY_LRU] = "lru",
    [SL_REPLAY_LFU] = "lfu",
    [SL_REPLAY_BELADY] = "belady",
};

typedef struct line {
    uint64_t mem_bytes; // 0: slots were given
    sl_replay_setup setup;
    sl_replay_counts counts;
    double bound; // Belady's reads per token at the same slots
} line;

static double per_token(const line *l, uint64_t count) {
    return (double)count / (double)l->counts.n_tokens;
}

static void print_line(cli *c, const line *l, bool first) {
    char size[CLI_NUMBER_MAX] = "";
    double reads = per_token(l, l->counts.demand);
    if (first && l->mem_bytes)
        cli_bytes(size, l->mem_bytes);
    cli_print(&c->out, "%9s", size);
    if (first)
        cli_print(&c->out, "%8u", l->setup.n_slots);
    else
        cli_print(&c->out, "%8s", "");
    cli_print(&c->out, "  %-7s%9.1f%8.2f%8.1f%%", names[l->setup.policy], reads,
              l->bound > 0 ? reads / l->bound : 0,
              100 * (double)l->counts.hits / (double)l->counts.uses);
    if (l->setup.guess_width)
        cli_print(&c->out, "%10.1f%8.1f", per_token(l, l->counts.guess_reads),
                  per_token(l, l->counts.guesses_used));
    cli_puts(&c->out, "\n");
}

static void json_line(cli_json *json, const line *l) {
    cli_json_begin(json, NULL, '{');
    if (l->mem_bytes)
        cli_json_uint(json, "mem_bytes", l->mem_bytes);
    cli_json_uint(json, "slots", l->setup.n_slots);
    cli_json_string(json, "policy", names[l->setup.policy], strlen(names[l->setup.policy]));
    cli_json_uint(json, "guess_width", l->setup.guess_width);
    cli_json_real(json, "demand_reads_per_token", per_token(l, l->counts.demand));
    cli_json_real(json, "over_bound", l->bound > 0 ? per_token(l, l->counts.demand) / l->bound : 0);
    cli_json_real(json, "hit_rate", (double)l->counts.hits / (double)l->counts.uses);
    cli_json_real(json, "guess_reads_per_token", per_token(l, l->counts.guess_reads));
    cli_json_real(json, "guesses_used_per_token", per_token(l, l->counts.guesses_used));
    cli_json_end(json, '}');
}

static void print_head(cli *c, const sl_trace *trace, const sl_trace_info *info, uint32_t warm) {
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX];
    cli_print(&c->out, "%s tokens, %u layers, %u of %u experts each", cli_exact(a, info->n_tokens),
              info->n_layers, info->n_experts_token, info->n_experts);
    if (warm)
        cli_print(&c->out, "; the first %s are not counted", cli_exact(b, warm));
    cli_puts(&c->out, "\n");
    for (uint32_t width = info->n_experts_token / 2; width <= info->n_guesses && width;
         width += info->n_experts_token / 2)
        cli_print(&c->out, "%s%u name %.0f%%",
                  width == info->n_experts_token / 2 ? "Guesses: " : ", ", width,
                  100 * sl_trace_guessed(trace, width));
    cli_puts(&c->out, info->n_guesses ? " of the picks\n\n" : "\n");
    cli_set_style(&c->out, CLI_BOLD);
    cli_print(&c->out, "%9s%8s  %-7s%9s%8s%9s%10s%8s\n", "memory", "slots", "policy", "reads",
              "/bound", "hits", "guessed", "used");
    cli_set_style(&c->out, CLI_PLAIN);
}

/* One size: the bound, which the others are held against, then those that were asked for. */
static sl_status replay_size(cli *c, cli_json *json, const sl_trace *trace, line l, int only,
                             uint32_t width, sl_error *err) {
    bool first = true;
    line bound = l;
    bound.setup.policy = SL_REPLAY_BELADY;
    sl_status st = sl_trace_replay(trace, &bound.setup, &bound.counts, err);
    if (st)
        return st;
    l.bound = bound.bound = per_token(&bound, bound.counts.demand);
    for (int p = 0; p < SL_REPLAY_POLICIES; p++) {
        if (only >= 0 && p != only)
            continue;
        // Ours twice where guesses were asked for: without them, and with.
        for (uint32_t w = 0; w <= (p == SL_REPLAY_OURS ? width : 0); w += width ? width : 1) {
            l.setup.policy = (sl_replay_policy)p;
            l.setup.guess_width = w;
            if (p == SL_REPLAY_BELADY)
                l.counts = bound.counts;
            else if ((st = sl_trace_replay(trace, &l.setup, &l.counts, err)))
                return st;
            if (c->json)
                json_line(json, &l);
            else
                print_line(c, &l, first);
            first = false;
            cli_flush(&c->out);
        }
    }
    return SL_OK;
}

static uint32_t slots_of(const sl_trace_info *info, uint64_t mem_bytes) {
    uint64_t left = mem_bytes > info->fixed_bytes ? mem_bytes - info->fixed_bytes : 0;
    uint64_t n = left / info->expert_bytes, all = (uint64_t)info->n_layers * info->n_experts;
    return (uint32_t)(n < all ? n : all);
}

static int replay_all(cli *c, const sl_trace *trace, const sl_trace_info *info, int only) {
    sl_error err;
    int exit_code;
    uint64_t sizes[CLI_SIZES_MAX] = {0};
    uint32_t n = 1, warm = info->n_tokens / 5;
    if (cli_given(c, CLI_SIZES) &&
        !cli_sizes(c, "--mem", cli_string(c, CLI_SIZES), false, sizes, &n, &exit_code))
        return exit_code;
    if (cli_given(c, CLI_WARM))
        warm = (uint32_t)cli_count(c, CLI_WARM);
    uint32_t width = cli_given(c, CLI_GUESS) ? (uint32_t)cli_count(c, CLI_GUESS) : 0;
    cli_json json = {.out = &c->out};
    sl_status st = SL_OK;
    // What cannot be is found before anything is printed.
    line lines[CLI_SIZES_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        line *l = &lines[i];
        l->mem_bytes = sizes[i];
        l->setup.warm = warm;
        l->setup.n_slots = sizes[i] ? slots_of(info, sizes[i]) : (uint32_t)cli_count(c, CLI_SLOTS);
        l->setup.ring_slots = 2 * info->n_experts_token;
        if (l->setup.n_slots <= l->setup.ring_slots)
            return cli_fail(
                c, CLI_EXIT_BUDGET, "budget",
                "%u slots are not enough: a layer asks for %u experts, and as many may be "
                "on their way",
                l->setup.n_slots, info->n_experts_token);
    }
    if (warm >= info->n_tokens)
        return cli_usage_error(c, "--warm: the trace has %u tokens", info->n_tokens);
    if (c->json) {
        cli_json_begin(&json, NULL, '{');
        cli_json_uint(&json, "tokens", info->n_tokens);
        cli_json_uint(&json, "warm", warm);
        cli_json_uint(&json, "layers", info->n_layers);
        cli_json_uint(&json, "experts", info->n_experts);
        cli_json_uint(&json, "experts_per_token", info->n_experts_token);
        cli_json_real(&json, "guesses_name", sl_trace_guessed(trace, info->n_experts_token));
        cli_json_begin(&json, "replays", '[');
    } else {
        print_head(c, trace, info, warm);
    }
    for (uint32_t i = 0; i < n && !st && !cli_signal(); i++)
        st = replay_size(c, &json, trace, lines[i], only, width, &err);
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    if (st)
        return cli_fail_status(c, &err);
    if (c->json) {
        cli_json_end(&json, ']');
        cli_json_end(&json, '}');
        cli_puts(&c->out, "\n");
    }
    return CLI_EXIT_OK;
}

static int trace_replay(cli *c, const char *path) {
    sl_error err;
    sl_trace *trace;
    sl_trace_info info;
    int only = -1;
    if (cli_given(c, CLI_SLOTS) == cli_given(c, CLI_SIZES))
        return cli_usage_error(
            c, "either --slots or --mem: write 'sluice trace replay FILE --mem 4G'");
    if (cli_given(c, CLI_POLICY))
        for (int p = 0; p < SL_REPLAY_POLICIES; p++)
            if (strcmp(names[p], cli_string(c, CLI_POLICY)) == 0)
                only = p;
    cli_signals_catch();
    if (sl_trace_open(path, &trace, &info, &err) != SL_OK)
        return cli_fail_status(c, &err);
    int exit_code = replay_all(c, trace, &info, only);
    sl_trace_close(trace);
    return exit_code;
}

int cli_trace(cli *c) {
    const char *what = c->args.positional[0];
    if (strcmp(what, "record") == 0)
        return trace_record(c, c->args.positional[1]);
    if (strcmp(what, "replay") == 0)
        return trace_replay(c, c->args.positional[1]);
    return cli_usage_error(
        c, "'%.64s': write 'sluice trace record MODEL' or 'sluice trace replay FILE'", what);
}
