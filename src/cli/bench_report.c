/* A benchmark as tables, as JSON and as a picture: see bench.h. */
#include "cli/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double bench_bound(const bench *b, const bench_run *r) {
    double compute = b->compute_alone > 0 ? b->compute_alone : r->compute;
    return r->reads_alone > compute ? r->reads_alone : compute;
}

static double token_seconds(const bench_run *r) {
    return 1 / r->tokens_per_second;
}

static const char *budget_name(const bench_budget *b, char buffer[CLI_NUMBER_MAX]) {
    return b->mem_bytes == CLI_SIZE_ALL ? "all" : cli_bytes(buffer, b->mem_bytes);
}

/* ---- text ----------------------------------------------------------------------------------------- */

static void head(cli *c, const char *fmt) {
    cli_set_style(&c->out, CLI_BOLD);
    cli_puts(&c->out, fmt);
    cli_set_style(&c->out, CLI_PLAIN);
    cli_puts(&c->out, "\n");
}

// The next budget that was run, from the i-th on; NULL: there is none.
static const bench_budget *next_run(const bench *b, uint32_t *i) {
    while (*i < b->n_budgets && !b->budgets[*i].n_runs)
        ++*i;
    return *i < b->n_budgets ? &b->budgets[(*i)++] : NULL;
}

static void print_decode(cli *c, const bench *b) {
    char size[CLI_NUMBER_MAX];
    head(c, "   memory   tok/s   p50 ms   p90 ms  MiB/token    hits  guessed    used  wasted");
    uint32_t i = 0;
    for (const bench_budget *budget; (budget = next_run(b, &i));) {
        const bench_run *r = &budget->median;
        cli_print(&c->out, "%9s%8.2f%9.1f%9.1f%11.1f%7.1f%%%9.1f%8.1f%8.1f\n",
                  budget_name(budget, size), r->tokens_per_second, 1e3 * r->p50, 1e3 * r->p90,
                  r->bytes_per_token / 0x1p20, 100 * r->hit_rate, r->guesses, r->guesses_used,
                  r->guesses_wasted);
    }
}

static void print_bounds(cli *c, const bench *b) {
    char size[CLI_NUMBER_MAX];
    const char *mark = b->compute_alone > 0 ? "" : "~";
    head(c, "   memory  ms/token    wait  compute  reads alone  compute alone  over the larger");
    uint32_t i = 0;
    for (const bench_budget *budget; (budget = next_run(b, &i));) {
        const bench_run *r = &budget->median;
        char alone[CLI_NUMBER_MAX] = "-";
        if (b->compute_alone > 0)
            snprintf(alone, sizeof(alone), "%.1f", 1e3 * b->compute_alone);
        cli_print(&c->out, "%9s%10.1f%8.1f%9.1f%13.1f%15s%16s%.2f\n", budget_name(budget, size),
                  1e3 * token_seconds(r), 1e3 * r->wait, 1e3 * r->compute, 1e3 * r->reads_alone,
                  alone, mark, token_seconds(r) / bench_bound(b, r));
    }
    if (b->compute_alone == 0)
        cli_puts(&c->out, "~ without a run of 'all' compute is what the run did not wait for\n");
}

static void print_start(cli *c, const bench *b) {
    char size[CLI_NUMBER_MAX], peak[CLI_NUMBER_MAX], cached[CLI_NUMBER_MAX];
    head(c,
         "   memory  prefill tok/s   open s        peak  of budget   experts kept  cached before");
    uint32_t i = 0;
    for (const bench_budget *budget; (budget = next_run(b, &i));) {
        const bench_run *r = &budget->median;
        cli_print(&c->out, "%9s%15.1f%9.2f%12s%10.1f%%%15.0f%15s\n", budget_name(budget, size),
                  r->prefill_tokens_per_second, r->open_seconds,
                  cli_bytes(peak, (uint64_t)r->peak_bytes), 100 * r->peak_bytes / r->budget_bytes,
                  r->hot_slots,
                  r->cached_bytes < 0 ? "unknown" : cli_bytes(cached, (uint64_t)r->cached_bytes));
    }
}

void bench_print_text(cli *c, const bench *b) {
    char x[CLI_NUMBER_MAX], y[CLI_NUMBER_MAX], z[CLI_NUMBER_MAX];
    const sl_machine_speeds *m = &b->machine;
    cli_set_style(&c->out, CLI_BOLD);
    cli_text(&c->out, b->model, strlen(b->model));
    cli_set_style(&c->out, CLI_PLAIN);
    cli_print(&c->out, "\nprompt of %u tokens, answer of %u, %s; medians of %u run%s\n\n",
              b->n_prompt, b->n_tokens, b->no_guesses ? "no guesses" : "with guesses", b->n_runs,
              b->n_runs == 1 ? "" : "s");
    print_decode(c, b);
    cli_puts(&c->out, "\n");
    print_bounds(c, b);
    cli_puts(&c->out, "\n");
    print_start(c, b);
    cli_print(
        &c->out,
        "\nDrive      %s/s in records of %s, %u at a time; %s/s while %u thread%s compute%s\n",
        cli_bytes(x, m->drive_bytes_per_second), cli_bytes(y, m->record_bytes), m->depth,
        cli_bytes(z, m->drive_busy_bytes_per_second), m->n_threads, m->n_threads == 1 ? "" : "s",
        m->n_threads == 1 ? "s" : "");
    cli_print(&c->out, "Memory     %s/s read by %u thread%s\n",
              cli_bytes(x, m->memory_bytes_per_second), m->n_threads, m->n_threads == 1 ? "" : "s");
    for (uint32_t i = 0; i < b->n_budgets; i++)
        if (*b->budgets[i].problem) {
            cli_print(&c->out, "Not run    %s: ", budget_name(&b->budgets[i], x));
            cli_wrap(&c->out, b->budgets[i].problem, 20, 11);
            cli_puts(&c->out, "\n");
        }
}

/* ---- JSON ----------------------------------------------------------------------------------------- */

static void json_run(cli_json *j, const bench *b, const bench_run *r) {
    cli_json_real(j, "tokens_per_second", r->tokens_per_second);
    cli_json_real(j, "token_seconds_p50", r->p50);
    cli_json_real(j, "token_seconds_p90", r->p90);
    cli_json_real(j, "read_bytes_per_token", r->bytes_per_token);
    cli_json_real(j, "hit_rate", r->hit_rate);
    cli_json_real(j, "guesses_per_token", r->guesses);
    cli_json_real(j, "guesses_used_per_token", r->guesses_used);
    cli_json_real(j, "guesses_wasted_per_token", r->guesses_wasted);
    if (r->drive_rate > 0)
        cli_json_real(j, "drive_bytes_per_second", r->drive_rate);
    cli_json_real(j, "wait_seconds_per_token", r->wait);
    cli_json_real(j, "compute_seconds_per_token", r->compute);
    cli_json_real(j, "reads_alone_seconds_per_token", r->reads_alone);
    cli_json_real(j, "reads_alone_lost", r->reads_alone_lost);
    cli_json_real(j, "over_larger", token_seconds(r) / bench_bound(b, r));
    cli_json_real(j, "prefill_tokens_per_second", r->prefill_tokens_per_second);
    cli_json_real(j, "open_seconds", r->open_seconds);
    cli_json_uint(j, "budget_bytes", (uint64_t)r->budget_bytes);
    cli_json_uint(j, "peak_bytes", (uint64_t)r->peak_bytes);
    cli_json_uint(j, "hot_slots", (uint64_t)r->hot_slots);
    if (r->cached_bytes >= 0)
        cli_json_uint(j, "cached_bytes_before", (uint64_t)r->cached_bytes);
}

void bench_print_json(cli *c, const bench *b) {
    cli_json json = {.out = &c->out}, *j = &json;
    const sl_machine_speeds *m = &b->machine;
    char size[CLI_NUMBER_MAX];
    cli_json_begin(j, NULL, '{');
    cli_json_string(j, "model", b->model, strlen(b->model));
    cli_json_uint(j, "prompt_tokens", b->n_prompt);
    cli_json_uint(j, "tokens", b->n_tokens);
    cli_json_uint(j, "runs", b->n_runs);
    cli_json_bool(j, "guesses", !b->no_guesses);
    cli_json_uint(j, "threads", m->n_threads);
    cli_json_uint(j, "record_bytes", m->record_bytes);
    cli_json_uint(j, "drive_bytes_per_second", m->drive_bytes_per_second);
    cli_json_uint(j, "drive_busy_bytes_per_second", m->drive_busy_bytes_per_second);
    cli_json_uint(j, "memory_bytes_per_second", m->memory_bytes_per_second);
    if (b->compute_alone > 0)
        cli_json_real(j, "compute_alone_seconds_per_token", b->compute_alone);
    cli_json_begin(j, "budgets", '[');
    for (const bench_budget *budget = b->budgets; budget < b->budgets + b->n_budgets; budget++) {
        const char *name = budget_name(budget, size);
        cli_json_begin(j, NULL, '{');
        cli_json_string(j, "mem", name, strlen(name));
        if (*budget->problem)
            cli_json_string(j, "not_run", budget->problem, strlen(budget->problem));
        if (budget->n_runs) {
            json_run(j, b, &budget->median);
            cli_json_begin(j, "each_run", '[');
            for (uint32_t r = 0; r < budget->n_runs; r++) {
                cli_json_begin(j, NULL, '{');
                json_run(j, b, &budget->runs[r]);
                cli_json_end(j, '}');
            }
            cli_json_end(j, ']');
        }
        cli_json_end(j, '}');
    }
    cli_json_end(j, ']');
    cli_json_end(j, '}');
    cli_puts(&c->out, "\n");
}

/* ---- the picture ------------------------------------------------------------------------------------ */

#define SVG_NAMESPACE "http://www.w3.org/2000/svg" // a name, which nobody opens
#define LEFT 64.0
#define TOP 56.0
#define HEIGHT 240.0
#define STEP 104.0
#define BAR 48.0

// 1, 2 or 5 times a power of ten: about a fifth of the range.
static double tick_of(double most) {
    double tick = 1;
    while (tick * 5 > most)
        tick /= 10;
    while (tick * 50 <= most)
        tick *= 10;
    return most / tick <= 10 ? tick * 2 : most / tick <= 25 ? tick * 5 : tick * 10;
}

static double rate(double seconds) {
    return seconds > 0 ? 1 / seconds : 0;
}

static double highest(const bench *b) {
    double most = 0;
    for (uint32_t i = 0; i < b->n_budgets; i++) {
        const bench_run *r = &b->budgets[i].median;
        if (!b->budgets[i].n_runs)
            continue;
        double speed = r->tokens_per_second, bound = rate(bench_bound(b, r));
        most = speed > most ? speed : most;
        most = bound > most ? bound : most;
    }
    return most > 0 ? most * 1.08 : 1;
}

/* A bound across its bar, where it is inside the picture. */
static void mark(FILE *f, const char *class, double x, double value, double scale) {
    double y = TOP + HEIGHT - value * scale;
    if (value > 0 && y >= TOP)
        fprintf(f, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
                x - 10, y, x + BAR + 10, y);
}

static void plot_text(FILE *f, const char *class, double x, double y, const char *text) {
    fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    for (; *text; text++) {
        if (*text == '<' || *text == '&')
            fputs(*text == '<' ? "&lt;" : "&amp;", f);
        else
            fputc((unsigned char)*text < 32 ? ' ' : *text, f);
    }
    fputs("</text>\n", f);
}

static void draw(FILE *f, const bench *b) {
    double most = highest(b), scale = HEIGHT / most, tick = tick_of(most), x = LEFT + 28;
    char text[160], size[CLI_NUMBER_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_budgets; i++)
        n += b->budgets[i].n_runs > 0;
    double width = LEFT + STEP * n + 24;
    width = width < 440 ? 440 : width;
    fprintf(f,
            "<svg xmlns=\"%s\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n"
            "<style>text{fill:#555}.t{font-size:14px}.e{text-anchor:end}.m{text-anchor:middle}"
            ".g{stroke:#888;stroke-opacity:.3}.b{fill:#4a90d9}.r{stroke:#d9822b;stroke-width:2.5}"
            ".c{stroke:#3a9d5d;stroke-width:2.5;stroke-dasharray:5 3}"
            "@media (prefers-color-scheme:dark){text{fill:#bbb}}</style>\n",
            SVG_NAMESPACE, width, TOP + HEIGHT + 76, width);
    const char *slash = strrchr(b->model, '/');
    snprintf(text, sizeof(text), "%.80s: tokens per second by memory",
             slash && slash[1] ? slash + 1 : b->model);
    plot_text(f, "t", LEFT, 24, text);
    for (uint32_t i = 0; i * tick <= most; i++) {
        double v = i * tick, y = TOP + HEIGHT - v * scale;
        fprintf(f, "<line class=\"g\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, y,
                width - 16, y);
        snprintf(text, sizeof(text), "%g", v);
        plot_text(f, "e", LEFT - 8, y + 4, text);
    }
    for (uint32_t i = 0; i < b->n_budgets; i++) {
        const bench_run *r = &b->budgets[i].median;
        if (!b->budgets[i].n_runs)
            continue;
        double h = r->tokens_per_second * scale;
        fprintf(f, "<rect class=\"b\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x,
                TOP + HEIGHT - h, BAR, h);
        mark(f, "r", x, rate(r->reads_alone), scale);
        mark(f, "c", x, rate(b->compute_alone > 0 ? b->compute_alone : r->compute), scale);
        snprintf(text, sizeof(text), "%.3g", r->tokens_per_second);
        plot_text(f, "m", x + BAR / 2, TOP + HEIGHT + 18, budget_name(&b->budgets[i], size));
        plot_text(f, "m", x + BAR / 2, TOP + HEIGHT + 36, text);
        x += STEP;
    }
    double y = TOP + HEIGHT + 62;
    fprintf(f, "<line class=\"r\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, y - 4,
            LEFT + 28, y - 4);
    plot_text(f, "l", LEFT + 34, y, "reads alone");
    fprintf(f, "<line class=\"c\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", LEFT + 130,
            y - 4, LEFT + 158, y - 4);
    plot_text(f, "l", LEFT + 164, y,
              b->compute_alone > 0 ? "compute alone" : "compute (the run's time without waiting)");
    fputs("</svg>\n", f);
}

bool bench_write_plot(const bench *b, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    draw(f, b);
    bool good = !ferror(f);
    return fclose(f) == 0 && good;
}
