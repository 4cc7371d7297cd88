/* A stand-in for the library behind sluice.h: no model, no numbers, the same contract. The command
 * line is tested against it, in unit tests and as the program sluice_fake, because it does on
 * demand what an engine does rarely: fail in the middle of an answer, think, call a tool, fill a
 * context, answer slowly.
 *
 * A store is a folder with a manifest.json, a checkpoint one with a config.json. A token is a byte.
 * The template renders its JSON as it is. What is answered follows from the last user message: long
 * words without end, one in 5 ms        think    reasoning, then text tool         a tool call fail
 * an I/O error after one word control      an escape sequence                    request  the
 * request as it came tools        the schemas that came along           anything else: "You said:
 * ..." */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "sluice.h"

#define FLOOR ((uint64_t)8 << 20)
#define CTX_MODEL 8192

struct sl_engine {
    sl_plan_info plan;
    sl_telemetry telemetry;
    char *rendered;
};

struct sl_session {
    sl_engine *engine;
    volatile bool canceled;
};

struct sl_tokenizer {
    int unused;
};

static sl_session the_session;

const char *sl_version(void) {
    return "0.0.0-fake";
}

void sl_free(void *block) {
    free(block);
}

static bool has(const char *folder, const char *name) {
    char path[4096];
    struct stat s;
    return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
           stat(path, &s) == 0;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

sl_status sl_model_runs_in_place(const char *path, sl_error *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED, "'%s' has to be converted", path);
}

sl_model_kind sl_model_kind_of(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0)
        return SL_MODEL_NONE;
    if (S_ISREG(s.st_mode))
        return ends_with(path, "config.json") ? SL_MODEL_CONFIG
               : ends_with(path, ".gguf")     ? SL_MODEL_OTHER
                                              : SL_MODEL_NONE;
    return ends_with(path, ".partial")  ? SL_MODEL_PARTIAL
           : has(path, "manifest.json") ? SL_MODEL_STORE
           : has(path, "config.json")   ? SL_MODEL_CHECKPOINT
                                        : SL_MODEL_NONE;
}

sl_status sl_models_folder(char *out, size_t cap, sl_error *err) {
    const char *home = getenv("SLUICE_HOME");
    if (snprintf(out, cap, "%s/models", home ? home : "/nonexistent") >= (int)cap)
        return sl_fail(err, SL_ERR_ARGUMENT, "path too long");
    return SL_OK;
}

sl_status sl_model_path(const char *model, char *out, size_t cap, sl_error *err) {
    struct stat s;
    char folder[2048];
    if (strchr(model, '/') || (stat(model, &s) == 0 && S_ISDIR(s.st_mode))) {
        if (snprintf(out, cap, "%s", model) >= (int)cap)
            return sl_fail(err, SL_ERR_ARGUMENT, "path too long");
        return SL_OK;
    }
    sl_models_folder(folder, sizeof(folder), err);
    if (snprintf(out, cap, "%s/%s", folder, model) >= (int)cap)
        return sl_fail(err, SL_ERR_ARGUMENT, "path too long");
    return SL_OK;
}

/* ---- plan and engine ------------------------------------------------------------------------- */

void sl_engine_options_init(sl_engine_options *options) {
    memset(options, 0, sizeof(*options));
}
uint64_t sl_default_mem_bytes(void) {
    return (uint64_t)64 << 20;
}

sl_status sl_plan(const char *model, const sl_engine_options *options, bool probe,
                  sl_plan_info *out, sl_error *err) {
    static const struct {
        const char *name, *purpose;
        uint64_t bytes;
    } fixed[] = {
        {"code", "the program and its libraries", 3000000},
        {"threads", "stacks of the threads that compute", 131072},
        {"trunk", "weights that every token uses: attention, norms, routers, shared experts",
         1798704},
        {"kv", "keys and values of the context", 2097152},
        {"hot", "experts that stay in memory, the ones most likely to be needed again", 0},
    };
    (void)model;
    memset(out, 0, sizeof(*out));
    out->budget_bytes = options->mem_bytes ? options->mem_bytes : sl_default_mem_bytes();
    out->n_ctx_model = CTX_MODEL;
    out->n_ctx = options->n_ctx ? options->n_ctx : 4096;
    out->n_threads = options->n_threads ? options->n_threads : 2;
    out->chunk = 256;
    out->smallest_bytes = FLOOR;
    out->model_bytes = 19493424;
    out->expert_bytes = 20736;
    out->n_experts_total = 768;
    out->n_experts_token = 48;
    if (out->n_ctx > CTX_MODEL)
        return sl_fail(err, SL_ERR_ARGUMENT, "context of %u tokens: this model has %d at most",
                       out->n_ctx, CTX_MODEL);
    out->fits = out->budget_bytes >= FLOOR;
    uint64_t left = out->fits ? out->budget_bytes - FLOOR : 0;
    out->hot_slots = left / 20736 > 768 ? 768 : (uint32_t)(left / 20736);
    out->ring_slots = 8;
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        uint64_t bytes = fixed[i].bytes ? fixed[i].bytes : (uint64_t)out->hot_slots * 20736;
        out->accounts[out->n_accounts++] = (sl_account){fixed[i].name, fixed[i].purpose, bytes};
        out->total_bytes += bytes;
    }
    out->token_read_bytes_high = 48 * 20736;
    if (probe) {
        out->drive_bytes_per_second = 1900000000;
        out->tokens_per_second_low = 900;
        out->tokens_per_second_high = 1900;
    }
    return out->fits
               ? SL_OK
               : sl_fail(err, SL_ERR_BUDGET, "account 'trunk' needs 1798704 bytes, 1000 are left");
}

sl_status sl_engine_open(const char *store, const sl_engine_options *options,
                         const sl_progress *progress, sl_engine **out, sl_error *err) {
    sl_plan_info plan;
    *out = NULL;
    if (sl_model_kind_of(store) != SL_MODEL_STORE)
        return sl_fail(err, SL_ERR_MISSING, "there is no store at '%s'", store);
    if (has(store, "damaged"))
        return sl_fail(err, SL_ERR_CORRUPT, "'%s/manifest.json': damaged", store);
    sl_status st = sl_plan(store, options, false, &plan, err);
    if (st)
        return st;
    if (progress && !progress->report(progress->user, SL_PHASE_OPEN, 1, 1))
        return sl_fail(err, SL_ERR_CANCELED, "canceled");
    sl_engine *engine = calloc(1, sizeof(*engine));
    engine->plan = plan;
    engine->telemetry.open_read_bytes = engine->telemetry.read_bytes = 1798704;
    *out = engine;
    return SL_OK;
}

void sl_engine_close(sl_engine *engine) {
    if (engine)
        free(engine->rendered);
    free(engine);
}
void sl_engine_plan(const sl_engine *engine, sl_plan_info *out) {
    *out = engine->plan;
}

void sl_engine_model(const sl_engine *engine, sl_model_info *out) {
    (void)engine;
    *out = (sl_model_info){.family = "fake",
                           .n_layers = 12,
                           .n_experts = 64,
                           .n_experts_token = 4,
                           .n_vocab = 256,
                           .d_model = 8,
                           .n_ctx_max = CTX_MODEL,
                           .has_tokenizer = true,
                           .has_template = true,
                           .cpu = "ref",
                           .io = "pread",
                           .direct = true};
}

void sl_engine_sampling(const sl_engine *engine, sl_sampling *out) {
    (void)engine;
    *out = (sl_sampling){.temperature = 0.7f, .top_k = 20, .top_p = 0.95f, .repeat_penalty = 1};
}

void sl_engine_telemetry(const sl_engine *engine, sl_telemetry *out) {
    *out = engine->telemetry;
}

sl_status sl_engine_memory(const sl_engine *engine, sl_memory_info *out, sl_error *err) {
    (void)err;
    memset(out, 0, sizeof(*out));
    out->budget_bytes = engine->plan.budget_bytes;
    out->peak_bytes = engine->plan.budget_bytes - 1048576;
    return SL_OK;
}

size_t sl_engine_text_max(const sl_engine *engine) {
    return (size_t)engine->plan.n_ctx * 4;
}

sl_status sl_engine_render(sl_engine *engine, const char *json, size_t len, char *out, size_t cap,
                           size_t *n, sl_error *err) {
    const char *thinking = "\"enable_thinking\": true";
    *n = 0;
    while (len > 0 && json[len - 1] == '\n')
        len--;
    if (len == 0 || json[0] != '{' || json[len - 1] != '}')
        return sl_fail(err, SL_ERR_SYNTAX, "JSON: line 1, column 1: an object is expected");
    free(engine->rendered);
    engine->rendered = malloc(len + 1);
    memcpy(engine->rendered, json, len);
    engine->rendered[len] = '\0';
    *n = (size_t)snprintf(out, cap, "%s%s", engine->rendered,
                          strstr(engine->rendered, thinking) ? "\n<think>\n" : "\n");
    return *n < cap
               ? SL_OK
               : sl_fail(err, SL_ERR_CONTEXT, "the rendered prompt is longer than %zu bytes", cap);
}

sl_status sl_engine_tokenize(sl_engine *engine, const char *text, size_t len, unsigned flags,
                             uint32_t *ids, size_t cap, size_t *n, sl_error *err) {
    (void)engine;
    (void)flags;
    *n = len;
    for (size_t i = 0; i < len && i < cap; i++)
        ids[i] = (unsigned char)text[i];
    return len <= cap ? SL_OK
                      : sl_fail(err, SL_ERR_CONTEXT, "%zu tokens do not fit in %zu", len, cap);
}

/* ---- session --------------------------------------------------------------------------------- */

sl_status sl_session_open(sl_engine *engine, sl_session **out, sl_error *err) {
    (void)err;
    the_session = (sl_session){.engine = engine};
    *out = &the_session;
    return SL_OK;
}
void sl_session_close(sl_session *session) {
    (void)session;
}
void sl_session_reset(sl_session *session) {
    session->engine->telemetry.tokens_prefilled = 0;
}
void sl_session_cancel(sl_session *session) {
    session->canceled = true;
}

void sl_generate_request_init(const sl_engine *engine, sl_generate_request *request) {
    (void)engine;
    memset(request, 0, sizeof(*request));
}

struct answer {
    sl_session *session;
    const sl_generate_request *request;
    sl_generate_result *result;
};

// One piece, a token for each byte. False when the answer ends with it.
static bool say(struct answer *a, sl_piece kind, const char *text) {
    for (size_t i = 0; text[i]; i++) {
        if (a->session->canceled) {
            a->session->canceled = false;
            a->result->finish = SL_FINISH_CANCEL;
            return false;
        }
        if ((a->request->max_tokens && a->result->n_generated == a->request->max_tokens) ||
            a->result->n_prompt + a->result->n_generated > a->session->engine->plan.n_ctx) {
            a->result->context_full =
                !a->request->max_tokens || a->result->n_generated != a->request->max_tokens;
            a->result->finish = SL_FINISH_LENGTH;
            return false;
        }
        a->request->on_token(a->request->user, (unsigned char)text[i]);
        a->result->n_generated++;
        a->session->engine->telemetry.tokens_decoded++;
        a->session->engine->telemetry.hits += 40;
        a->session->engine->telemetry.reads += 8;
        a->session->engine->telemetry.read_bytes += 8 * 20736;
        a->session->engine->telemetry.drive_bytes += 8 << 20;
        a->session->engine->telemetry.drive_seconds += 0.0625;
        a->session->engine->telemetry.drive_open_bytes = 1 << 30;
        a->session->engine->telemetry.drive_open_seconds = 0.5;
        size_t n = kind == SL_PIECE_TOOL_CALL ? strlen(text) : 1;
        if (kind == SL_PIECE_TOOL_CALL ? i > 0 : (text[i] & 0xc0) == 0x80)
            continue; // pieces are whole calls and whole characters
        while (kind != SL_PIECE_TOOL_CALL && (text[i + n] & 0xc0) == 0x80)
            n++;
        if (!a->request->on_piece(a->request->user, kind, text + i, n)) {
            a->result->finish = SL_FINISH_CANCEL;
            return false;
        }
    }
    return true;
}

// The content of the last user message, as it stands in the JSON; or the prompt itself.
static void last_message(const struct answer *a, char *out, size_t cap) {
    const char *mark = "\"role\": \"user\", \"content\": \"", *from = a->session->engine->rendered,
               *at = NULL;
    size_t n = 0;
    out[0] = '\0';
    for (const char *next = from; next && (next = strstr(next, mark)); next++)
        at = next + strlen(mark);
    if (at) {
        for (; at[n] && (at[n] != '"' || at[n - 1] == '\\') && n + 1 < cap; n++)
            out[n] = at[n];
    } else {
        for (; n < a->request->n_prompt && n + 1 < cap; n++)
            out[n] = (char)a->request->prompt[n];
    }
    out[n] = '\0';
}

sl_status sl_session_generate(sl_session *session, const sl_generate_request *request,
                              sl_generate_result *result, sl_error *err) {
    struct answer a = {session, request, result};
    char message[4096];
    memset(result, 0, sizeof(*result));
    result->n_prompt = (uint32_t)request->n_prompt;
    result->prefill_seconds = 0.25;
    result->decode_seconds = 0.5;
    last_message(&a, message, sizeof(message));
    if (request->progress)
        request->progress->report(request->progress->user, SL_PHASE_PREFILL, request->n_prompt,
                                  request->n_prompt);
    if (strcmp(message, "long") == 0) {
        const struct timespec pause = {0, 5000000};
        while (say(&a, SL_PIECE_TEXT, "word "))
            nanosleep(&pause, NULL);
    } else if (strcmp(message, "fill") == 0) {
        while (say(&a, SL_PIECE_TEXT, "word ")) {
        }
    } else if (strcmp(message, "think") == 0) {
        if (say(&a, SL_PIECE_REASONING, "hm") && say(&a, SL_PIECE_TEXT, "thought"))
            result->finish = SL_FINISH_STOP;
    } else if (strcmp(message, "tool") == 0) {
        if (say(&a, SL_PIECE_TEXT, "calling") &&
            say(&a, SL_PIECE_TOOL_CALL, "{\"name\": \"f\", \"arguments\": {}}"))
            result->finish = SL_FINISH_TOOL_CALLS;
    } else if (strcmp(message, "fail") == 0) {
        say(&a, SL_PIECE_TEXT, "half");
        return sl_fail_at(err, SL_ERR_IO, 3, 5, 4096,
                          "layer 3 expert 5: reading 'experts/003.bin' at 4096: no luck");
    } else if (strcmp(message, "control") == 0) {
        say(&a, SL_PIECE_TEXT, "a\033[31mb");
    } else if (strcmp(message, "tools") == 0) {
        say(&a, SL_PIECE_TEXT, request->tools_json ? request->tools_json : "none");
    } else if (strcmp(message, "request") == 0) {
        say(&a, SL_PIECE_TEXT, session->engine->rendered);
    } else if (say(&a, SL_PIECE_TEXT, "You said: ")) {
        say(&a, SL_PIECE_TEXT, message);
    }
    return SL_OK;
}

/* ---- tools ----------------------------------------------------------------------------------- */

void sl_convert_options_init(sl_convert_options *options) {
    memset(options, 0, sizeof(*options));
}

sl_status sl_convert(const char *src, const char *dst, const sl_convert_options *options,
                     const sl_progress *progress, sl_convert_report *report, sl_error *err) {
    char path[4096];
    (void)options;
    if (sl_model_kind_of(src) != SL_MODEL_CHECKPOINT)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "'%s' is not supported yet", src);
    if (sl_model_kind_of(dst) == SL_MODEL_STORE && !options->force)
        return sl_fail(err, SL_ERR_EXISTS, "'%s' exists: --force replaces it", dst);
    const struct timespec pause = {0, 5000000};
    for (uint64_t i = 0; i <= (has(src, "slow") ? 1000 : 3); i++) {
        if (!progress->report(progress->user, SL_PHASE_CONVERT, i << 20, (uint64_t)1000 << 20))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        nanosleep(&pause, NULL);
    }
    snprintf(path, sizeof(path), "%s/manifest.json", dst);
    mkdir(dst, 0777);
    FILE *file = fopen(path, "w");
    if (!file)
        return sl_fail(err, SL_ERR_IO, "making '%s'", path);
    fclose(file);
    *report = (sl_convert_report){.source_bytes = 3 << 20,
                                  .store_bytes = 3 << 20,
                                  .peak_bytes = 1 << 20,
                                  .seconds = 0.1,
                                  .n_tensors = 10,
                                  .n_experts = 4,
                                  .has_tokenizer = true,
                                  .has_template = true};
    snprintf(report->notes, sizeof(report->notes), "left out: vision tower (2 tensors)");
    return SL_OK;
}

static bool put(const sl_sink *sink, const char *text) {
    return sink->write(sink->user, text, strlen(text));
}

sl_status sl_show(const char *model, bool json, const sl_sink *sink, sl_error *err) {
    (void)model;
    return put(sink, json ? "{\"family\": \"fake\"}" : "family  fake\n")
               ? SL_OK
               : sl_fail(err, SL_ERR_CANCELED, "canceled");
}

sl_status sl_verify(const char *store, const sl_progress *progress, const sl_sink *sink,
                    uint32_t *n_damaged, sl_error *err) {
    *n_damaged = 0;
    if (!progress->report(progress->user, SL_PHASE_VERIFY, 1, 1))
        return sl_fail(err, SL_ERR_CANCELED, "canceled");
    if (!has(store, "damaged"))
        return SL_OK;
    put(sink, "experts/003.bin: record 5 is \"damaged\"\nexperts/004.bin: ");
    put(sink, "record 6\n");
    *n_damaged = 2;
    return sl_fail(err, SL_ERR_CORRUPT, "2 records are damaged");
}

sl_status sl_logits(sl_session *session, const uint32_t *tokens, size_t n, const sl_sink *logits,
                    const sl_sink *hidden, sl_error *err) {
    char rows[1024] = {0};
    (void)session;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] > 255)
            return sl_fail(err, SL_ERR_ARGUMENT, "token %u is not in the vocabulary of 256",
                           tokens[i]);
        if (!logits->write(logits->user, rows, sizeof(rows)))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
    }
    if (hidden)
        hidden->write(hidden->user, rows, 416);
    return SL_OK;
}

sl_status sl_model_remove(const char *path, sl_error *err) {
    char file[4096];
    snprintf(file, sizeof(file), "%s/manifest.json", path);
    unlink(file);
    return rmdir(path) == 0 ? SL_OK : sl_fail(err, SL_ERR_EXISTS, "'%s' has other files", path);
}

sl_status sl_doctor(const char *path, bool json, const sl_sink *sink, sl_error *err) {
    (void)path;
    (void)err;
    put(sink, json ? "{\"direct\": true}" : "direct I/O  yes\n");
    return SL_OK;
}

sl_status sl_tokenizer_open(const char *path, sl_tokenizer **out, sl_error *err) {
    static sl_tokenizer tokenizer;
    *out = NULL;
    if (sl_model_kind_of(path) == SL_MODEL_NONE)
        return sl_fail(err, SL_ERR_MISSING, "there is no tokenizer at '%s'", path);
    *out = &tokenizer;
    return SL_OK;
}
void sl_tokenizer_close(sl_tokenizer *tokenizer) {
    (void)tokenizer;
}

sl_status sl_tokenizer_encode(sl_tokenizer *tokenizer, const char *text, size_t len, unsigned flags,
                              uint32_t **ids, size_t *n, sl_error *err) {
    (void)tokenizer;
    (void)err;
    *ids = malloc((len + 1) * sizeof(**ids));
    *n = len;
    for (size_t i = 0; i < len; i++)
        (*ids)[i] = (unsigned char)text[i] + (flags & SL_TOKENIZE_PLAIN ? 1000 : 0);
    return SL_OK;
}

sl_status sl_tokenizer_decode(sl_tokenizer *tokenizer, const uint32_t *ids, size_t n,
                              const sl_sink *sink, sl_error *err) {
    (void)tokenizer;
    for (size_t i = 0; i < n; i++) {
        char c = (char)ids[i];
        if (ids[i] > 255)
            return sl_fail(err, SL_ERR_ARGUMENT, "token %u is not in the vocabulary of 256",
                           ids[i]);
        if (!sink->write(sink->user, &c, 1))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
    }
    return SL_OK;
}

sl_status sl_template_render_file(const char *model, const char *json, size_t len,
                                  const sl_sink *sink, sl_error *err) {
    if (sl_model_kind_of(model) == SL_MODEL_NONE && !ends_with(model, ".jinja"))
        return sl_fail(err, SL_ERR_MISSING, "there is no template at '%s'", model);
    return sink->write(sink->user, json, len) ? SL_OK : sl_fail(err, SL_ERR_CANCELED, "canceled");
}

sl_status sl_trace_record(sl_session *session, const uint32_t *tokens, size_t n, const char *path,
                          const sl_progress *progress, sl_error *err) {
    (void)session;
    (void)tokens;
    (void)n;
    (void)progress;
    return sl_fail(err, SL_ERR_UNSUPPORTED, "'%s': this model has no experts to trace", path);
}

sl_status sl_trace_open(const char *path, sl_trace **out, sl_trace_info *info, sl_error *err) {
    *out = NULL;
    memset(info, 0, sizeof(*info));
    return sl_fail(err, SL_ERR_CORRUPT, "'%s' is not a trace", path);
}

void sl_trace_close(sl_trace *trace) {
    (void)trace;
}

sl_status sl_trace_replay(const sl_trace *trace, const sl_replay_setup *setup,
                          sl_replay_counts *out, sl_error *err) {
    (void)trace;
    (void)setup;
    memset(out, 0, sizeof(*out));
    return sl_fail(err, SL_ERR_ARGUMENT, "there is no trace");
}

double sl_trace_guessed(const sl_trace *trace, uint32_t width) {
    (void)trace;
    (void)width;
    return 0;
}

sl_status sl_session_feed(sl_session *session, const uint32_t *tokens, size_t n,
                          const sl_progress *progress, sl_error *err) {
    (void)session;
    (void)tokens;
    (void)progress;
    return n ? SL_OK : sl_fail(err, SL_ERR_ARGUMENT, "no tokens were given");
}

const float *sl_session_logits(const sl_session *session) {
    static const float logits[256];
    (void)session;
    return logits;
}

sl_status sl_model_uncache(const char *store, uint64_t *cached_bytes, sl_error *err) {
    (void)store;
    (void)err;
    *cached_bytes = 0;
    return SL_OK;
}

sl_status sl_measure_machine(const char *store, const sl_engine_options *options,
                             sl_machine_speeds *out, sl_error *err) {
    (void)store;
    (void)options;
    (void)err;
    *out = (sl_machine_speeds){2, 4096, 16, 1 << 29, 1 << 28, (uint64_t)1 << 35};
    return SL_OK;
}

void sl_engine_log_reads(sl_engine *engine, void *block, size_t bytes) {
    (void)engine;
    (void)block;
    (void)bytes;
}

sl_status sl_engine_replay_reads(sl_engine *engine, sl_reads_alone *out, sl_error *err) {
    (void)engine;
    (void)err;
    *out = (sl_reads_alone){.n_reads = 10, .read_bytes = 40960, .seconds = 0.01};
    return SL_OK;
}
