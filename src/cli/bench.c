/* The verb bench: the speed of a model at several budgets, beside what the machine allows. See cli.h.
 *
 * Every run is a process of its own, forked before anything is opened, so that its peak of memory is its own; numbers
 * come back through a pipe. Runs are interleaved: each budget once, then again. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/signals.h"

#define PROMPT_DEFAULT 512u
#define TOKENS_DEFAULT 64u
#define RUNS_DEFAULT 3u
#define READS_PER_EXPERT 5u // room in the list of reads: guesses, extents, parts of the trunk
#define READS_BESIDE 4096u
#define MEMORY_ALL ((uint64_t)1 << 40)

typedef struct job {
    const char *path;
    sl_engine_options options;
    const uint32_t *ids; // [n_prompt + n_tokens]
    uint32_t n_prompt, n_tokens, n_experts_token;
    bool resident; // every expert in memory: what is read the first time does not count
} job;

// What a child sends: a status and, where that is good, numbers or ids.
typedef struct answer {
    int32_t status;
    char message[SL_ERROR_MESSAGE_MAX];
} answer;

/* ---- one run, in a child ------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sl_status feed_all(sl_session *s, const job *j, double *seconds, sl_error *err) {
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < j->n_tokens && !st; i++) {
        double begin = cli_now();
        st = sl_session_feed(s, &j->ids[j->n_prompt + i], 1, NULL, err);
        seconds[i] = cli_now() - begin;
    }
    return st;
}

static void count(const job *j, const sl_telemetry *a, const sl_telemetry *b, double *seconds,
                  bench_run *r) {
    double n = j->n_tokens, total = 0;
    for (uint32_t i = 0; i < j->n_tokens; i++)
        total += seconds[i];
    qsort(seconds, j->n_tokens, sizeof(*seconds), by_value);
    r->tokens_per_second = n / total;
    r->p50 = seconds[(j->n_tokens - 1) / 2];
    r->p90 = seconds[(j->n_tokens - 1) * 9 / 10];
    r->bytes_per_token = (double)(b->read_bytes - a->read_bytes) / n;
    double reading = b->drive_seconds - a->drive_seconds;
    r->drive_rate = reading > 0 ? (double)(b->drive_bytes - a->drive_bytes) / reading : 0;
    r->wait = (b->wait_seconds - a->wait_seconds) / n;
    r->compute = total / n - r->wait;
    r->guesses = (double)(b->guess_reads - a->guess_reads) / n;
    r->guesses_used = (double)(b->guesses_used - a->guesses_used) / n;
    r->guesses_wasted = (double)(b->guesses_wasted - a->guesses_wasted) / n;
    double hits = (double)(b->hits - a->hits),
           uses = hits + (double)(b->reads - a->reads) + r->guesses_used * n;
    r->hit_rate = uses > 0 ? hits / uses : 0;
}

/* seconds [n_tokens], and a list of reads in log. Both were written to before, so that the plan counts them. */
static sl_status measure(const job *j, sl_engine *engine, double *seconds, void *log,
                         size_t log_bytes, bench_run *r, sl_error *err) {
    sl_telemetry a, b;
    sl_memory_info memory;
    sl_plan_info plan;
    sl_reads_alone alone;
    sl_session *s;
    sl_status st = sl_session_open(engine, &s, err);
    if (st)
        return st;
    if ((st = sl_session_feed(s, j->ids, j->n_prompt, NULL, err)))
        return st;
    sl_engine_telemetry(engine, &a);
    r->open_seconds = a.open_seconds;
    r->prefill_tokens_per_second = (double)j->n_prompt / a.prefill_seconds;
    if (j->resident) {
        if ((st = feed_all(s, j, seconds, err)))
            return st;
        sl_session_reset(s);
        if ((st = sl_session_feed(s, j->ids, j->n_prompt, NULL, err)))
            return st;
    }
    sl_engine_log_reads(engine, log, log_bytes);
    sl_engine_telemetry(engine, &a);
    if ((st = feed_all(s, j, seconds, err)))
        return st;
    sl_engine_telemetry(engine, &b);
    count(j, &a, &b, seconds, r);
    if ((st = sl_engine_memory(engine, &memory, err)))
        return st;
    sl_engine_plan(engine, &plan);
    r->peak_bytes = (double)memory.peak_bytes;
    r->budget_bytes = (double)memory.budget_bytes;
    r->hot_slots = plan.hot_slots;
    if ((st = sl_engine_replay_reads(engine, &alone, err)))
        return st;
    double n_reads = (double)(alone.n_reads + alone.n_lost);
    // What the list had no room for takes as long as what it holds.
    r->reads_alone =
        alone.n_reads ? alone.seconds / j->n_tokens * n_reads / (double)alone.n_reads : 0;
    r->reads_alone_lost = n_reads > 0 ? (double)alone.n_lost / n_reads : 0;
    return SL_OK;
}

static sl_status run_job(const job *j, bench_run *r, sl_error *err) {
    size_t log_bytes =
        ((size_t)j->n_tokens * j->n_experts_token * READS_PER_EXPERT + READS_BESIDE) *
        SL_READ_LOG_ENTRY_BYTES;
    double *seconds = malloc(j->n_tokens * sizeof(*seconds));
    void *log = malloc(log_bytes);
    uint64_t cached;
    sl_engine *engine = NULL;
    sl_status st = SL_OK;
    if (!seconds || !log) {
        *err = (sl_error){.status = SL_ERR_MEMORY, .message = "no memory to measure in"};
        st = SL_ERR_MEMORY;
    }
    if (!st && !(st = sl_model_uncache(j->path, &cached, err))) {
        memset(seconds, 1, j->n_tokens * sizeof(*seconds));
        memset(log, 1, log_bytes);
        r->cached_bytes = cached == UINT64_MAX ? -1 : (double)cached;
        if (!(st = sl_engine_open(j->path, &j->options, NULL, &engine, err)))
            st = measure(j, engine, seconds, log, log_bytes, r, err);
    }
    sl_engine_close(engine);
    free(seconds);
    free(log);
    return st;
}

/* The model's own text, made with as much memory as there is. */
static sl_status make_ids(cli *c, const job *j, uint32_t *ids, sl_error *err) {
    sl_engine *engine;
    sl_session *s;
    sl_model_info model;
    sl_status st = sl_engine_open(j->path, &j->options, NULL, &engine, err);
    if (st)
        return st;
    sl_engine_model(engine, &model);
    if (!(st = sl_session_open(engine, &s, err)) &&
        cli_stream_make(c, s, &model, ids, (size_t)j->n_prompt + j->n_tokens) != CLI_EXIT_OK) {
        *err = (sl_error){.status = SL_ERR_STATE, .message = "the text could not be made"};
        st = SL_ERR_STATE;
    }
    sl_engine_close(engine);
    return st;
}

/* ---- processes ------------------------------------------------------------------------------------ */

static bool write_all(int fd, const void *bytes, size_t n) {
    for (const char *p = bytes; n > 0;) {
        ssize_t done = write(fd, p, n);
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t n) {
    for (char *p = bytes; n > 0;) {
        ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR && !cli_signal())
            continue;
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* In a child: a run into out (n bytes: a bench_run), or with `make` the ids. SL_OK, or the child's error. */
static sl_status in_child(cli *c, const job *j, bool make, void *out, size_t n, sl_error *err) {
    int ends[2];
    answer head = {.status = SL_ERR_STATE};
    memset(err, 0, sizeof(*err));
    cli_flush(&c->out);
    cli_flush(&c->err);
    if (pipe(ends) != 0) {
        err->status = SL_ERR_IO;
        snprintf(err->message, sizeof(err->message), "a pipe: %s", strerror(errno));
        return SL_ERR_IO;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        signal(SIGINT, SIG_DFL); // the parent answers; a child just ends
        signal(SIGTERM, SIG_DFL);
        memset(out, 0, n);
        sl_status st = make ? make_ids(c, j, out, err) : run_job(j, out, err);
        head.status = st;
        memcpy(head.message, err->message, sizeof(head.message));
        bool sent = write_all(ends[1], &head, sizeof(head)) && (st || write_all(ends[1], out, n));
        _exit(sent ? 0 : 1);
    }
    close(ends[1]);
    bool got = child > 0 && read_all(ends[0], &head, sizeof(head)) &&
               (head.status || read_all(ends[0], out, n));
    close(ends[0]);
    int how = 0;
    if (child > 0 && cli_signal())
        kill(child, SIGTERM);
    while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR) {
        if (cli_signal())
            kill(child, SIGTERM);
    }
    if (got) {
        err->status = (sl_status)head.status;
        memcpy(err->message, head.message, sizeof(err->message));
        return err->status;
    }
    err->status = SL_ERR_STATE;
    snprintf(err->message, sizeof(err->message), "the run ended with %s %d",
             WIFSIGNALED(how) ? "signal" : "code",
             WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    return SL_ERR_STATE;
}

/* ---- all runs ------------------------------------------------------------------------------------- */

static void take_medians(bench_budget *b) {
    double values[BENCH_RUNS_MAX], *median = (double *)&b->median;
    for (size_t i = 0; i < BENCH_NUMBERS; i++) {
        for (uint32_t r = 0; r < b->n_runs; r++)
            values[r] = ((const double *)&b->runs[r])[i];
        qsort(values, b->n_runs, sizeof(double), by_value);
        median[i] = b->n_runs ? values[(b->n_runs - 1) / 2] : 0;
    }
}

/* Can it be, here and now? Fills plan_bytes and problem. */
static void plan_budget(const char *path, const sl_engine_options *options, bench_budget *b,
                        uint64_t available) {
    sl_plan_info plan;
    sl_error err;
    char a[CLI_NUMBER_MAX], d[CLI_NUMBER_MAX];
    sl_engine_options o = *options;
    o.mem_bytes = b->mem_bytes == CLI_SIZE_ALL ? MEMORY_ALL : b->mem_bytes;
    if (sl_plan(path, &o, false, &plan, &err) != SL_OK) {
        snprintf(b->problem, sizeof(b->problem), "%.*s", (int)sizeof(b->problem) - 1, err.message);
        return;
    }
    b->plan_bytes = plan.total_bytes;
    if (plan.total_bytes > available)
        snprintf(b->problem, sizeof(b->problem), "it takes %s, and %s are available",
                 cli_bytes(a, plan.total_bytes), cli_bytes(d, available));
}

static int run_all(cli *c, const job *base, bench *b) {
    uint32_t n_done = 0;
    for (uint32_t r = 0; r < b->n_runs; r++) {
        for (uint32_t i = 0; i < b->n_budgets; i++) {
            bench_budget *budget = &b->budgets[i];
            char size[CLI_NUMBER_MAX];
            sl_error err;
            if (*budget->problem)
                continue;
            job j = *base;
            j.resident = budget->mem_bytes == CLI_SIZE_ALL;
            // A little above the plan, whose page tables and code are not the same in every process.
            j.options.mem_bytes =
                j.resident ? budget->plan_bytes + ((uint64_t)64 << 20) : budget->mem_bytes;
            cli_note(c, "run %u of %u at %s", r + 1, b->n_runs,
                     j.resident ? "all" : cli_bytes(size, budget->mem_bytes));
            sl_status st =
                in_child(c, &j, false, &budget->runs[budget->n_runs], sizeof(bench_run), &err);
            if (cli_signal())
                return CLI_EXIT_SIGNAL + cli_signal();
            if (st == SL_ERR_BUDGET)
                memcpy(budget->problem, err.message, sizeof(budget->problem));
            else if (st)
                return cli_fail_status(c, &err);
            else
                budget->n_runs++;
            n_done += st == SL_OK;
        }
    }
    for (uint32_t i = 0; i < b->n_budgets; i++) {
        take_medians(&b->budgets[i]);
        if (b->budgets[i].mem_bytes == CLI_SIZE_ALL && b->budgets[i].n_runs)
            b->compute_alone = 1 / b->budgets[i].median.tokens_per_second;
    }
    if (!n_done)
        return cli_fail(c, CLI_EXIT_BUDGET, "budget", "no budget could be run; %s",
                        b->budgets[0].problem);
    return CLI_EXIT_OK;
}

static int get_ids(cli *c, const job *base, const bench *b, uint32_t **ids) {
    size_t n = (size_t)base->n_prompt + base->n_tokens;
    sl_error err;
    if (cli_given(c, CLI_STREAM))
        return cli_stream_read(c, ids, &n);
    if (!(*ids = calloc(n, sizeof(**ids))))
        return cli_fail(c, CLI_EXIT_FAILED, "memory", "no memory for %zu tokens", n);
    job j = *base;
    for (uint32_t i = 0; i < b->n_budgets; i++) {
        const bench_budget *budget = &b->budgets[i];
        uint64_t bytes = budget->mem_bytes == CLI_SIZE_ALL ? budget->plan_bytes : budget->mem_bytes;
        if (!*budget->problem && bytes > j.options.mem_bytes)
            j.options.mem_bytes = bytes;
    }
    if (!j.options.mem_bytes)
        return CLI_EXIT_OK; // nothing will be run
    cli_note(c, "making %zu tokens", n);
    sl_status st = in_child(c, &j, true, *ids, n * sizeof(**ids), &err);
    if (cli_signal())
        return CLI_EXIT_SIGNAL + cli_signal();
    return st ? cli_fail_status(c, &err) : CLI_EXIT_OK;
}

static int measure_all(cli *c, const char *path, bench *b) {
    int exit_code;
    sl_error err;
    sl_plan_info plan;
    uint32_t *ids = NULL;
    job base = {.path = path, .n_prompt = b->n_prompt, .n_tokens = b->n_tokens};
    cli_engine_options(c, &base.options);
    base.options.n_ctx = b->n_prompt + b->n_tokens;
    sl_engine_options all = base.options;
    all.mem_bytes = MEMORY_ALL;
    if (sl_plan(path, &all, false, &plan, &err) != SL_OK)
        return cli_fail_status(c, &err);
    base.n_experts_token = plan.n_experts_token;
    uint64_t available = 2 * sl_default_mem_bytes(); // of it the default is half, or less
    for (uint32_t i = 0; i < b->n_budgets; i++)
        plan_budget(path, &base.options, &b->budgets[i], available);
    if ((exit_code = get_ids(c, &base, b, &ids)) == CLI_EXIT_OK) {
        base.ids = ids;
        exit_code = run_all(c, &base, b);
    }
    free(ids);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    cli_note(c, "measuring the drive and memory");
    return sl_measure_machine(path, &base.options, &b->machine, &err) == SL_OK
               ? CLI_EXIT_OK
               : cli_fail_status(c, &err);
}

int cli_bench(cli *c) {
    char path[CLI_PATH_MAX];
    int exit_code;
    uint64_t sizes[CLI_SIZES_MAX] = {sl_default_mem_bytes()};
    static bench b;
    b = (bench){.model = c->args.positional[0],
                .n_prompt = PROMPT_DEFAULT,
                .n_tokens = TOKENS_DEFAULT,
                .n_runs = RUNS_DEFAULT,
                .n_budgets = 1,
                .no_guesses = cli_given(c, CLI_NO_GUESSES)};
    if (cli_given(c, CLI_PROMPT))
        b.n_prompt = (uint32_t)cli_count(c, CLI_PROMPT);
    if (cli_given(c, CLI_N_TOKENS))
        b.n_tokens = (uint32_t)cli_count(c, CLI_N_TOKENS);
    if (cli_given(c, CLI_RUNS))
        b.n_runs = (uint32_t)cli_count(c, CLI_RUNS);
    if (cli_given(c, CLI_SIZES) &&
        !cli_sizes(c, "--mem", cli_string(c, CLI_SIZES), true, sizes, &b.n_budgets, &exit_code))
        return exit_code;
    for (uint32_t i = 0; i < b.n_budgets; i++)
        b.budgets[i].mem_bytes = sizes[i];
    if (!cli_model_path(c, b.model, false, path, &exit_code))
        return exit_code;
    if (sl_model_kind_of(path) == SL_MODEL_NONE)
        return cli_no_model(c, b.model, path);
    cli_signals_catch();
    if ((exit_code = measure_all(c, path, &b)) != CLI_EXIT_OK)
        return exit_code;
    if (c->json)
        bench_print_json(c, &b);
    else
        bench_print_text(c, &b);
    if (cli_given(c, CLI_PLOT) && !bench_write_plot(&b, cli_string(c, CLI_PLOT)))
        return cli_fail(c, CLI_EXIT_FAILED, "io", "writing '%s': %s", cli_string(c, CLI_PLOT),
                        strerror(errno));
    return CLI_EXIT_OK;
}
