/* sluice-synth: made-up checkpoints of any shape, their token streams, and what their routes look like. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "io/folder.h"
#include "synth.h"

#define THREADS_MAX 16u
#define CONFIG_BYTES_MAX ((uint64_t)16 << 20)
#define TOKENS_MAX ((uint64_t)1 << 24)

static const char usage[] =
    "usage: sluice-synth [write] (--preset NAME | --config FILE) [OPTIONS] DIR\n"
    "       sluice-synth stream  (--preset NAME | --config FILE) --tokens N [--out FILE]\n"
    "       sluice-synth check   CHECKPOINT [--tokens N]\n"
    "       sluice-synth check   --full STORE [--tokens N] [--budget GIB]\n"
    "       sluice-synth presets\n"
    "\n"
    "  --bits N, --group N   codes of quantized weights (4, 64)\n"
    "  --layers N            only the first N layers\n"
    "  --seed N              another model, and another stream (1)\n"
    "  --threads N           threads that compute (all processors, up to 16)\n"
    "  --tokenizer DIR       copy the tokenizer and chat template from there\n"
    "  --force               replace a checkpoint\n"
    "  --tokens N            tokens of the stream (5000)\n"
    "  --common X, --topic X shares of a router's logits: of all tokens, of the topic's\n"
    "  --change X            share of the rest that changes from layer to layer\n"
    "  --topics N            topics in the vocabulary\n";

/* The flag has to be global: a handler has no other way to reach the program. */
static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

typedef struct arguments {
    const char *command, *preset, *config, *out, *target;
    synth_options synth;
    synth_write_options write;
    uint64_t tokens, budget_gib;
    bool full;
} arguments;

/* ---- arguments ------------------------------------------------------------------------------------ */

typedef struct option {
    const char *name;
    const char **text;
    uint32_t *small;
    uint64_t *number;
    double *share;
    bool *flag;
    uint64_t max;
} option;

static sl_status read_value(const option *o, const char *value, sl_error *err) {
    char *end = NULL;
    if (!value)
        return sl_fail(err, SL_ERR_ARGUMENT, "%s needs a value", o->name);
    if (o->text) {
        *o->text = value;
        return SL_OK;
    }
    if (o->share) {
        *o->share = strtod(value, &end);
        if (end == value || *end || !(*o->share >= 0 && *o->share <= 1))
            return sl_fail(err, SL_ERR_ARGUMENT, "%s %s: expected 0 to 1", o->name, value);
        return SL_OK;
    }
    unsigned long long n = strtoull(value, &end, 10);
    if (end == value || *end || *value == '-' || n > o->max)
        return sl_fail(err, SL_ERR_ARGUMENT, "%s %s: expected a number up to %llu", o->name, value,
                       (unsigned long long)o->max);
    if (o->small)
        *o->small = (uint32_t)n;
    else
        *o->number = n;
    return SL_OK;
}

static sl_status read_arguments(int argc, char **argv, arguments *a, sl_error *err) {
    const option options[] = {
        {.name = "--preset", .text = &a->preset},
        {.name = "--config", .text = &a->config},
        {.name = "--out", .text = &a->out},
        {.name = "--tokenizer", .text = &a->write.tokenizer},
        {.name = "--bits", .small = &a->synth.bits, .max = 8},
        {.name = "--group", .small = &a->synth.group, .max = 128},
        {.name = "--layers", .small = &a->synth.n_layers, .max = SL_LAYERS_MAX},
        {.name = "--seed", .number = &a->synth.seed, .max = UINT64_MAX},
        {.name = "--threads", .small = &a->write.n_threads, .max = THREADS_MAX},
        {.name = "--topics", .small = &a->synth.gains.n_topics, .max = 4096},
        {.name = "--tokens", .number = &a->tokens, .max = TOKENS_MAX},
        {.name = "--budget", .number = &a->budget_gib, .max = 1 << 20},
        {.name = "--common", .share = &a->synth.gains.common},
        {.name = "--topic", .share = &a->synth.gains.topic},
        {.name = "--change", .share = &a->synth.gains.change},
        {.name = "--force", .flag = &a->write.force},
        {.name = "--full", .flag = &a->full},
    };
    static const char *const commands[] = {"write", "stream", "check", "presets", "help"};
    for (int i = 1; i < argc; i++) {
        const option *found = NULL;
        for (size_t k = 0; k < SL_COUNT(options); k++)
            if (strcmp(argv[i], options[k].name) == 0)
                found = &options[k];
        if (found && found->flag) {
            *found->flag = true;
            continue;
        }
        if (found) {
            sl_status st = read_value(found, i + 1 < argc ? argv[i + 1] : NULL, err);
            if (st)
                return st;
            i++;
            continue;
        }
        if (argv[i][0] == '-')
            return sl_fail(err, SL_ERR_ARGUMENT, "unknown option %s; see sluice-synth help",
                           argv[i]);
        for (size_t k = 0; i == 1 && k < SL_COUNT(commands); k++)
            if (strcmp(argv[i], commands[k]) == 0)
                a->command = commands[k];
        if (i == 1 && a->command)
            continue;
        if (a->target)
            return sl_fail(err, SL_ERR_ARGUMENT, "one folder, not '%s' and '%s'", a->target,
                           argv[i]);
        a->target = argv[i];
    }
    return SL_OK;
}

static sl_status make_plan(const arguments *a, sl_buf *config, synth_plan *plan, sl_error *err) {
    const synth_preset *preset = a->preset ? synth_preset_find(a->preset) : NULL;
    memset(plan, 0, sizeof(*plan));
    if (!a->preset == !a->config)
        return sl_fail(err, SL_ERR_ARGUMENT, "either --preset or --config says which model");
    if (a->preset && !preset)
        return sl_fail(err, SL_ERR_ARGUMENT, "no preset '%s'; see sluice-synth presets", a->preset);
    if (preset)
        return synth_plan_make(preset->config, strlen(preset->config), preset->generation,
                               &a->synth, plan, err);
    sl_status st = sl_file_slurp(a->config, CONFIG_BYTES_MAX, config, err);
    if (st == SL_OK)
        st = synth_plan_make(config->data ? config->data : "", config->len, NULL, &a->synth, plan,
                             err);
    return st ? sl_error_context(err, st, "'%s'", a->config) : SL_OK;
}

/* ---- commands ------------------------------------------------------------------------------------- */

typedef struct progress {
    double begin, last;
    bool shown;
} progress;

static bool report(void *user, uint64_t done, uint64_t total) {
    progress *p = user;
    double now = sl_now();
    if (isatty(STDERR_FILENO) && (now - p->last > 0.2 || done == total)) {
        fprintf(stderr, "\r%.2f of %.2f GiB, %.2f GiB/s ", (double)done / (double)SL_GIB,
                (double)total / (double)SL_GIB, (double)done / (double)SL_GIB / (now - p->begin));
        p->last = now;
        p->shown = true;
    }
    return !stopped;
}

static sl_status run_write(arguments *a, const synth_plan *plan, sl_error *err) {
    double begin = sl_now();
    progress p = {begin, 0, false};
    if (!a->target)
        return sl_fail(err, SL_ERR_ARGUMENT, "a folder to write is missing");
    a->write.report = report;
    a->write.user = &p;
    sl_status st = synth_write(plan, a->target, &a->write, err);
    if (p.shown)
        fputc('\n', stderr);
    if (st == SL_OK)
        printf("%s: %s, %u layers, %u tensors in %u files, %.2f GiB in %.1f s\n", a->target,
               sl_model_family_name(&plan->model), plan->model.n_layers, plan->n_tensors,
               plan->n_shards, (double)plan->bytes / (double)SL_GIB, sl_now() - begin);
    return st;
}

static sl_status run_stream(const arguments *a, const synth_plan *plan, sl_error *err) {
    uint32_t *tokens = sl_mem_alloc((size_t)a->tokens * sizeof(*tokens));
    if (!tokens)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for %llu tokens",
                       (unsigned long long)a->tokens);
    synth_stream(&plan->model, a->synth.seed, a->synth.gains.n_topics, tokens, (size_t)a->tokens);
    FILE *out = a->out ? fopen(a->out, "w") : stdout;
    bool failed = !out;
    for (uint64_t i = 0; i < a->tokens && !failed; i++)
        failed = fprintf(out, "%u\n", tokens[i]) < 0;
    if (out && (a->out ? fclose(out) : fflush(out)))
        failed = true;
    sl_mem_free(tokens);
    return failed ? sl_fail(err, SL_ERR_IO, "writing '%s' failed", a->out ? a->out : "the stream")
                  : SL_OK;
}

static sl_status run_check(const arguments *a, sl_error *err) {
    synth_figures *figures = NULL;
    sl_buf text;
    const synth_options *s = &a->synth;
    if (!a->target)
        return sl_fail(err, SL_ERR_ARGUMENT, "a folder to check is missing");
    if (a->tokens < 2)
        return sl_fail(err, SL_ERR_ARGUMENT, "figures need at least 2 tokens");
    sl_status st =
        a->full ? synth_check_full(a->target, s->seed, s->gains.n_topics, (uint32_t)a->tokens,
                                   a->budget_gib * SL_GIB, a->write.n_threads, &figures, err)
                : synth_check_fast(a->target, s->seed, &s->gains, (uint32_t)a->tokens,
                                   a->write.n_threads, &figures, err);
    if (st)
        return st;
    sl_buf_init(&text);
    synth_figures_print(figures, &text);
    printf("%s", text.data ? text.data : "");
    sl_buf_deinit(&text);
    synth_figures_free(figures);
    return SL_OK;
}

static sl_status run(arguments *a, sl_error *err) {
    if (strcmp(a->command, "check") == 0)
        return run_check(a, err);
    sl_buf config;
    synth_plan plan;
    sl_buf_init(&config);
    sl_status st = make_plan(a, &config, &plan, err);
    if (st == SL_OK)
        st = strcmp(a->command, "stream") == 0 ? run_stream(a, &plan, err)
                                               : run_write(a, &plan, err);
    synth_plan_free(&plan);
    sl_buf_deinit(&config);
    return st;
}

static uint32_t default_threads(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)SL_MIN(n, (long)THREADS_MAX);
}

int main(int argc, char **argv) {
    arguments a = {.tokens = 5000, .budget_gib = 4};
    sl_error err;
    a.synth = (synth_options){.bits = 4, .group = 64, .seed = 1, .gains = synth_gains_default()};
    struct sigaction action = {.sa_handler = on_signal};
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGXFSZ, SIG_IGN);
    sl_status st = read_arguments(argc, argv, &a, &err);
    if (st == SL_OK && (argc == 1 || (a.command && strcmp(a.command, "help") == 0))) {
        fputs(usage, argc == 1 ? stderr : stdout);
        return argc == 1 ? 2 : 0;
    }
    if (st == SL_OK && a.command && strcmp(a.command, "presets") == 0) {
        for (const synth_preset *p = synth_presets; p->name; p++)
            puts(p->name);
        return 0;
    }
    a.command = a.command ? a.command : "write";
    a.write.n_threads = a.write.n_threads ? a.write.n_threads : default_threads();
    if (st == SL_OK)
        st = run(&a, &err);
    if (st)
        fprintf(stderr, "sluice-synth: %s\n", err.message);
    return st == SL_OK ? 0 : st == SL_ERR_ARGUMENT ? 2 : st == SL_ERR_CANCELED ? 130 : 1;
}
