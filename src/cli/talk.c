/* Answers: see talk.h. */
#include "cli/talk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/signals.h"

/* ---- open ------------------------------------------------------------------------------------ */

static uint64_t draw_seed(void) {
    uint32_t seed = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    bool drawn = fd >= 0 && read(fd, &seed, sizeof(seed)) == (ssize_t)sizeof(seed);
    if (fd >= 0)
        close(fd);
    if (!drawn) // a system without the device: any number will do, as it is printed
        seed = (uint32_t)(int64_t)(cli_now() * 1e6) ^ (uint32_t)getpid();
    return seed;
}

static void choose_sampling(const cli *c, cli_talk *t) {
    sl_sampling *s = &t->sampling;
    sl_engine_sampling(t->engine, s);
    if (cli_given(c, CLI_TEMP))
        s->temperature = (float)c->args.value[CLI_TEMP].real;
    if (cli_given(c, CLI_TOP_K))
        s->top_k = (uint32_t)cli_count(c, CLI_TOP_K);
    if (cli_given(c, CLI_TOP_P))
        s->top_p = (float)c->args.value[CLI_TOP_P].real;
    if (cli_given(c, CLI_MIN_P))
        s->min_p = (float)c->args.value[CLI_MIN_P].real;
    if (cli_given(c, CLI_PRESENCE_PENALTY))
        s->presence_penalty = (float)c->args.value[CLI_PRESENCE_PENALTY].real;
    if (cli_given(c, CLI_REPEAT_PENALTY))
        s->repeat_penalty = (float)c->args.value[CLI_REPEAT_PENALTY].real;
    s->seed = cli_given(c, CLI_SEED) ? cli_count(c, CLI_SEED) : draw_seed();
}

static void print_defaults(cli_talk *t) {
    const sl_plan_info *p = &t->plan;
    const sl_sampling *s = &t->sampling;
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX], line[256];
    cli_note(t->c, "budget %s, weights %s: %u of %u experts stay in memory%s",
             cli_bytes(a, p->budget_bytes), cli_bytes(b, p->model_bytes), p->hot_slots,
             p->n_experts_total, p->n_tensors_streamed ? ", trunk streams" : "");
    cli_note(t->c, "context %u, %u thread%s, %s, %s%s", p->n_ctx, p->n_threads,
             p->n_threads == 1 ? "" : "s", t->model.cpu, t->model.io,
             t->model.direct ? "" : " through the page cache");
    int n = snprintf(line, sizeof(line), "temp %g", (double)s->temperature);
    if (s->temperature > 0 && s->top_k > 0)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", top-k %u", s->top_k);
    if (s->temperature > 0 && s->top_p < 1)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", top-p %g", (double)s->top_p);
    if (s->temperature > 0 && s->min_p > 0)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", min-p %g", (double)s->min_p);
    if (s->presence_penalty != 0)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", presence-penalty %g",
                      (double)s->presence_penalty);
    if (s->repeat_penalty != 1)
        n += snprintf(line + n, sizeof(line) - (size_t)n, ", repeat-penalty %g",
                      (double)s->repeat_penalty);
    snprintf(line + n, sizeof(line) - (size_t)n, ", seed %llu", (unsigned long long)s->seed);
    cli_note(t->c, "%s", line);
}

int cli_talk_open(cli *c, const char *path, cli_talk *t) {
    sl_error err;
    sl_engine_options options;
    memset(t, 0, sizeof(*t));
    t->c = c;
    cli_engine_options(c, &options);
    int exit_code = cli_engine_open(c, path, &options, &t->engine);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    sl_engine_plan(t->engine, &t->plan);
    sl_engine_model(t->engine, &t->model);
    if (!t->model.has_tokenizer)
        exit_code =
            cli_fail(c, CLI_EXIT_MODEL, "state",
                     "'%s' has no tokenizer, so it cannot be talked to: its checkpoint had no "
                     "tokenizer.json. 'sluice logits' works with token ids",
                     path);
    else if (!t->model.has_template && !cli_given(c, CLI_RAW))
        exit_code = cli_fail(
            c, CLI_EXIT_MODEL, "state",
            "'%s' has no chat template: add --raw to let it continue the prompt as it is", path);
    else if (sl_session_open(t->engine, &t->session, &err) != SL_OK)
        exit_code = cli_fail_status(c, &err);
    if (exit_code == CLI_EXIT_OK) {
        t->request.cap = t->text.cap = sl_engine_text_max(t->engine);
        t->request.bytes = malloc(t->request.cap);
        t->text.bytes = malloc(t->text.cap);
        t->ids = malloc(((size_t)t->plan.n_ctx + 1) * sizeof(*t->ids));
        if (!t->request.bytes || !t->text.bytes || !t->ids)
            exit_code =
                cli_fail(c, CLI_EXIT_FAILED, "memory", "the system refused %zu bytes for text",
                         t->request.cap + t->text.cap);
    }
    if (exit_code != CLI_EXIT_OK) {
        cli_talk_close(t);
        return exit_code;
    }
    choose_sampling(c, t);
    print_defaults(t);
    return CLI_EXIT_OK;
}

void cli_talk_close(cli_talk *t) {
    sl_session_close(t->session);
    sl_engine_close(t->engine);
    free(t->request.bytes);
    free(t->text.bytes);
    free(t->ids);
    memset(t, 0, sizeof(*t));
}

/* ---- prompt ---------------------------------------------------------------------------------- */

int cli_talk_render(cli_talk *t) {
    sl_error err;
    size_t n;
    sl_status st = sl_engine_render(t->engine, t->request.bytes, t->request.n, t->text.bytes,
                                    t->text.cap, &n, &err);
    if (st == SL_ERR_CONTEXT)
        return cli_fail(t->c, CLI_EXIT_FAILED, "context",
                        "the prompt is longer than the %zu bytes that a context of %u tokens "
                        "holds; --ctx makes it "
                        "larger",
                        t->text.cap, t->plan.n_ctx);
    if (st != SL_OK)
        return cli_fail_status(t->c, &err);
    t->text.n = n;
    return CLI_EXIT_OK;
}

int cli_talk_tokenize(cli_talk *t) {
    sl_error err;
    unsigned flags = cli_given(t->c, CLI_RAW) ? SL_TOKENIZE_WHOLE : 0;
    sl_status st = sl_engine_tokenize(t->engine, t->text.bytes, t->text.n, flags, t->ids,
                                      t->plan.n_ctx, &t->n_prompt, &err);
    if (st == SL_ERR_CONTEXT && t->n_prompt < t->plan.n_ctx_model)
        return cli_fail(
            t->c, CLI_EXIT_FAILED, "context",
            "the prompt has %zu tokens, the context holds %u: nothing was cut. Write --ctx %zu or "
            "more (this model allows %u), or a shorter prompt",
            t->n_prompt, t->plan.n_ctx, t->n_prompt + 1, t->plan.n_ctx_model);
    if (st == SL_ERR_CONTEXT)
        return cli_fail(t->c, CLI_EXIT_FAILED, "context",
                        "the prompt has %zu tokens, the context holds %u and this model at most "
                        "%u: nothing was "
                        "cut. Write a shorter prompt",
                        t->n_prompt, t->plan.n_ctx, t->plan.n_ctx_model);
    if (st != SL_OK)
        return cli_fail_status(t->c, &err);
    if (t->n_prompt == 0)
        return cli_usage_error(t->c, "the prompt has no tokens");
    return CLI_EXIT_OK;
}

/* ---- answer ---------------------------------------------------------------------------------- */

// With --json the pieces are kept in the text buffer as they come: kind, length, bytes. Pieces of a
// kind that follow each other become one, except for tool calls, each of which is a value of its
// own.
struct piece {
    uint32_t kind, n;
};

static bool keep_piece(cli_talk *t, size_t *last, sl_piece kind, const char *bytes, size_t n) {
    struct piece head = {.kind = (uint32_t)kind};
    if (t->text.n > 0)
        memcpy(&head, t->text.bytes + *last, sizeof(head));
    if (t->text.n == 0 || head.kind != (uint32_t)kind || kind == SL_PIECE_TOOL_CALL) {
        *last = t->text.n;
        head = (struct piece){.kind = (uint32_t)kind};
        cli_buffer_add(&t->text, (const char *)&head, sizeof(head));
    }
    cli_buffer_add(&t->text, bytes, n);
    if (t->text.full)
        return false;
    head.n += (uint32_t)n;
    memcpy(t->text.bytes + *last, &head, sizeof(head));
    return true;
}

static void end_reasoning(cli_talk *t) {
    if (!t->in_reasoning)
        return;
    cli_set_style(&t->c->err, CLI_PLAIN);
    cli_puts(&t->c->err, t->c->err.mid_line ? "\n\n" : "\n");
    cli_flush(&t->c->err);
    t->in_reasoning = false;
}

struct generation {
    cli_talk *t;
    size_t last_piece;
};

static bool on_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    struct generation *g = user;
    cli_talk *t = g->t;
    cli *c = t->c;
    cli_progress_clear(&t->line);
    if (c->json) {
        t->kept_all = keep_piece(t, &g->last_piece, kind, bytes, n);
        return t->kept_all;
    }
    switch (kind) {
    case SL_PIECE_TEXT:
        end_reasoning(t);
        if (t->keep_in_request && !cli_request_message_part(&t->request, bytes, n)) {
            t->kept_all = false;
            return false;
        }
        cli_text(&c->out, bytes, n);
        return cli_flush(&c->out);
    case SL_PIECE_REASONING:
        if (c->quiet)
            return true;
        if (!t->in_reasoning) {
            cli_set_style(&c->err, CLI_DIM);
            cli_puts(&c->err, "thinking: ");
            t->in_reasoning = true;
        }
        cli_text(&c->err, bytes, n);
        cli_flush(&c->err);
        return true;
    case SL_PIECE_TOOL_CALL:
        end_reasoning(t);
        cli_flush(&c->out);
        if (c->out.mid_line && c->out.terminal && c->err.terminal)
            cli_puts(&c->err, "\n");
        cli_set_style(&c->err, CLI_DIM);
        cli_puts(&c->err, "tool call: ");
        cli_set_style(&c->err, CLI_PLAIN);
        cli_text(&c->err, bytes, n);
        cli_puts(&c->err, "\n");
        cli_flush(&c->err);
        return true;
    }
    return true;
}

static bool on_token(void *user, uint32_t token) {
    struct generation *g = user;
    cli_talk *t = g->t;
    if (!t->counting) {
        sl_engine_telemetry(t->engine, &t->at_first_token);
        t->counting = true;
    }
    t->ids[t->n_ids++] = token;
    return true;
}

static bool on_prefill(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    struct generation *g = user;
    (void)phase;
    cli_progress_show(&g->t->line, done, total);
    return true;
}

int cli_talk_generate(cli_talk *t, const char *tools, bool keep_in_request) {
    cli *c = t->c;
    sl_error err;
    sl_status st = SL_OK;
    struct generation g = {.t = t};
    sl_progress progress = {on_prefill, &g};
    sl_generate_request request;
    sl_generate_request_init(t->engine, &request);
    request.prompt = t->ids;
    request.n_prompt = t->n_prompt;
    request.sampling = t->sampling;
    if (cli_given(c, CLI_MAX_TOKENS))
        request.max_tokens = (uint32_t)cli_count(c, CLI_MAX_TOKENS);
    request.stop = c->args.stop.text;
    request.n_stop = c->args.stop.n;
    request.parse = !cli_given(c, CLI_RAW);
    request.tools_json = tools;
    request.on_piece = on_piece;
    request.on_token = on_token;
    request.user = &g;
    request.progress = &progress;

    memset(&t->result, 0, sizeof(t->result));
    t->text.n = 0;
    t->text.full = false;
    t->n_ids = t->n_prompt;
    t->kept_all = true;
    t->counting = false;
    t->keep_in_request = keep_in_request;
    cli_progress_init(&t->line, &c->err, "reading the prompt:", true);
    if (c->quiet)
        t->line.out = NULL;
    cli_signals_cancel(t->session);
    // A signal that came before has not reached the session; one that canceled an answer in its
    // very last moment would stop the next one, which is then simply begun again.
    for (int attempt = 0, again = 1; again && attempt < 2; attempt++) {
        sl_session_reset(t->session);
        st = cli_signal() ? SL_ERR_CANCELED
                          : sl_session_generate(t->session, &request, &t->result, &err);
        bool canceled =
            st == SL_ERR_CANCELED || (st == SL_OK && t->result.finish == SL_FINISH_CANCEL);
        again = canceled && !cli_signal() && t->kept_all && c->out.error == 0 &&
                t->n_ids == t->n_prompt;
    }
    cli_signals_cancel(NULL);
    cli_progress_clear(&t->line);
    end_reasoning(t);
    if (!c->json && c->out.mid_line) {
        cli_puts(&c->out, "\n");
        cli_flush(&c->out);
    }
    // Canceled while the prompt was read: an answer without tokens.
    if (st == SL_ERR_CANCELED && (cli_signal() || c->out.error)) {
        t->result.finish = SL_FINISH_CANCEL;
        return CLI_EXIT_OK;
    }
    return st == SL_OK ? CLI_EXIT_OK : cli_fail_status(c, &err);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static double ratio(double a, double b) {
    return b > 0 ? a / b : 0;
}

void cli_talk_print_stats(cli_talk *t) {
    cli_out *out = &t->c->err;
    const sl_generate_result *r = &t->result;
    sl_telemetry now;
    sl_memory_info memory;
    sl_error err;
    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX], d[CLI_NUMBER_MAX];
    sl_engine_telemetry(t->engine, &now);
    cli_print(out, "prefill  %u tokens in %.2f s: %.1f tok/s\n", r->n_prompt, r->prefill_seconds,
              ratio(r->n_prompt, r->prefill_seconds));
    cli_print(out, "decode   %u tokens in %.2f s: %.1f tok/s\n", r->n_generated, r->decode_seconds,
              ratio(r->n_generated, r->decode_seconds));
    cli_print(out, "experts  %.1f%% found in memory: %s hits, %s reads\n",
              100 * ratio((double)now.hits, (double)(now.hits + now.reads + now.guesses_used)),
              cli_exact(a, now.hits), cli_exact(b, now.reads));
    if (now.guess_reads)
        cli_print(
            out, "guesses  %s read early, %.1f%% of them were asked for\n",
            cli_exact(a, now.guess_reads),
            100 * ratio((double)now.guesses_used, (double)(now.guesses_used + now.guesses_wasted)));
    // From the first token on, which comes out of the prompt's prefill.
    uint64_t decoded = t->counting ? now.tokens_decoded - t->at_first_token.tokens_decoded : 0;
    uint64_t per_token = decoded ? (now.read_bytes - t->at_first_token.read_bytes) / decoded : 0;
    cli_print(out, "read     %s for each token; %s in all, %s of it to open\n",
              cli_bytes(a, per_token), cli_bytes(b, now.read_bytes),
              cli_bytes(d, now.open_read_bytes));
    if (now.drive_seconds > 0 && now.drive_open_seconds > 0)
        cli_print(out, "drive    %s/s while reading, %s/s at open\n",
                  cli_bytes(a, (uint64_t)((double)now.drive_bytes / now.drive_seconds)),
                  cli_bytes(b, (uint64_t)((double)now.drive_open_bytes / now.drive_open_seconds)));
    if (sl_engine_memory(t->engine, &memory, &err) == SL_OK)
        cli_print(out, "memory   peak %s of %s (%.1f%%)\n", cli_bytes(a, memory.peak_bytes),
                  cli_bytes(b, memory.budget_bytes),
                  100 * ratio((double)memory.peak_bytes, (double)memory.budget_bytes));
    else
        cli_print(out, "memory   %s\n", err.message);
    cli_flush(out);
}

static void print_pieces(cli_talk *t, cli_json *json, const char *key, sl_piece kind) {
    bool calls = kind == SL_PIECE_TOOL_CALL;
    struct piece head;
    if (calls)
        cli_json_begin(json, key, '[');
    else
        cli_json_string_begin(json, key);
    for (size_t i = 0; i < t->text.n; i += sizeof(head) + head.n) {
        memcpy(&head, t->text.bytes + i, sizeof(head));
        if (head.kind != (uint32_t)kind)
            continue;
        if (calls)
            cli_json_raw(json, NULL, t->text.bytes + i + sizeof(head), head.n);
        else
            cli_json_string_part(json, t->text.bytes + i + sizeof(head), head.n);
    }
    if (calls)
        cli_json_end(json, ']');
    else
        cli_json_string_end(json);
}

int cli_talk_print_json(cli_talk *t) {
    static const char *const finishes[] = {"stop", "length", "cancel", "tool_calls"};
    const char *finish = finishes[t->result.finish];
    sl_telemetry now;
    sl_memory_info memory;
    sl_error err;
    if (!t->kept_all)
        return cli_fail(t->c, CLI_EXIT_FAILED, "context",
                        "the answer is longer than the %zu bytes that a context of %u tokens holds",
                        t->text.cap, t->plan.n_ctx);
    if (sl_engine_memory(t->engine, &memory, &err) != SL_OK)
        return cli_fail_status(t->c, &err);
    sl_engine_telemetry(t->engine, &now);
    cli_json json = {.out = &t->c->out};
    cli_json_begin(&json, NULL, '{');
    print_pieces(t, &json, "text", SL_PIECE_TEXT);
    print_pieces(t, &json, "reasoning", SL_PIECE_REASONING);
    print_pieces(t, &json, "tool_calls", SL_PIECE_TOOL_CALL);
    cli_json_begin(&json, "tokens", '[');
    for (size_t i = t->n_prompt; i < t->n_ids; i++)
        cli_json_uint(&json, NULL, t->ids[i]);
    cli_json_end(&json, ']');
    cli_json_uint(&json, "prompt_tokens", t->n_prompt);
    cli_json_string(&json, "finish", finish, strlen(finish));
    cli_json_begin(&json, "seconds", '{');
    cli_json_real(&json, "open", now.open_seconds);
    cli_json_real(&json, "prefill", t->result.prefill_seconds);
    cli_json_real(&json, "decode", t->result.decode_seconds);
    cli_json_end(&json, '}');
    cli_json_uint(&json, "hits", now.hits);
    cli_json_uint(&json, "reads", now.reads);
    cli_json_uint(&json, "guess_reads", now.guess_reads);
    cli_json_uint(&json, "guesses_used", now.guesses_used);
    cli_json_uint(&json, "read_bytes", now.read_bytes);
    cli_json_uint(&json, "drive_bytes", now.drive_bytes);
    cli_json_real(&json, "drive_seconds", now.drive_seconds);
    cli_json_uint(&json, "drive_open_bytes", now.drive_open_bytes);
    cli_json_real(&json, "drive_open_seconds", now.drive_open_seconds);
    cli_json_uint(&json, "mem_bytes", memory.budget_bytes);
    cli_json_uint(&json, "peak_bytes", memory.peak_bytes);
    cli_json_uint(&json, "seed", t->sampling.seed);
    cli_json_end(&json, '}');
    cli_puts(&t->c->out, "\n");
    return CLI_EXIT_OK;
}
