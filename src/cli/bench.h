/* What a benchmark has measured, and its two forms on paper; bench.c measures. */
#ifndef SL_CLI_BENCH_H
#define SL_CLI_BENCH_H

#include "cli/cli.h"
#include "cli/stream.h"

#define BENCH_RUNS_MAX 31u

/* One run of one budget, all in numbers: it comes through a pipe. Times of a token are in seconds. */
typedef struct bench_run {
    double tokens_per_second, p50, p90;
    double bytes_per_token, wait, compute; // compute: the rest of the time
    double drive_rate; // bytes a second that the drive delivered while it read; 0: not known
    double hit_rate, guesses, guesses_used, guesses_wasted; // the three per token
    double prefill_tokens_per_second, open_seconds;
    double reads_alone;      // per token; 0: nothing was read
    double reads_alone_lost; // share of the reads that the list had no room for
    double peak_bytes, budget_bytes, cached_bytes; // cached: before opening; negative: not known
    double hot_slots;
} bench_run;

#define BENCH_NUMBERS (sizeof(bench_run) / sizeof(double))

typedef struct bench_budget {
    uint64_t mem_bytes;                 // CLI_SIZE_ALL: whatever the model takes
    uint64_t plan_bytes;                // of that
    char problem[SL_ERROR_MESSAGE_MAX]; // not empty: it could not be run, and why
    uint32_t n_runs;
    bench_run runs[BENCH_RUNS_MAX];
    bench_run median; // each number's
} bench_budget;

typedef struct bench {
    const char *model; // as it was named
    uint32_t n_prompt, n_tokens, n_runs, n_budgets;
    bool no_guesses;
    sl_machine_speeds machine;
    double compute_alone; // per token, with every expert in memory; 0: not measured
    bench_budget budgets[CLI_SIZES_MAX];
} bench;

/* The larger of what has to be done for a token: reads alone, and compute alone where it was measured, else the time of the
 * run that was not waiting. */
double bench_bound(const bench *b, const bench_run *r);

void bench_print_text(cli *c, const bench *b);
void bench_print_json(cli *c, const bench *b);
/* An SVG with a bar for each budget, and what the drive and the processor allow. False: errno says why. */
bool bench_write_plot(const bench *b, const char *path);

#endif
