/* The engine section of sluice.h: plan, open, text, session, telemetry. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "base/process.h"

const char *sl_version(void) {
    return SL_VERSION;
}

void sl_free(void *block) {
    sl_mem_free(block);
}

void sl_engine_options_init(sl_engine_options *options) {
    memset(options, 0, sizeof(*options));
}

uint64_t sl_default_mem_bytes(void) {
    uint64_t half = sl_memory_available() / 2, limit = sl_cgroup_memory_limit();
    return limit == UINT64_MAX ? half : SL_MIN(half, limit / 10 * 8);
}

static bool report_open(void *user, uint64_t done, uint64_t total) {
    const sl_progress *p = user;
    return p->report(p->user, SL_PHASE_OPEN, done, total);
}

bool sl__api_report_prefill(void *user, uint64_t done, uint64_t total) {
    const sl_progress *p = user;
    return p->report(p->user, SL_PHASE_PREFILL, done, total);
}

sl_status sl__api_setup(const sl_engine_options *o, sl_engine_setup *out, sl_error *err) {
    memset(out, 0, sizeof(*out));
    out->budget_bytes = o->mem_bytes ? o->mem_bytes : sl_default_mem_bytes();
    out->process = o->scope == SL_SCOPE_PROCESS;
    out->n_ctx = o->n_ctx;
    out->n_threads = o->n_threads;
    out->chunk = o->chunk;
    out->buffered = o->buffered;
    out->no_guesses = o->no_guesses;
    out->snapshot_bytes = o->snapshot_bytes;
    out->server_bytes = o->server_bytes;
    out->reader_given = o->io != SL_IO_AUTO;
    out->reader = o->io == SL_IO_URING ? SL_READER_URING : SL_READER_PREAD;
    out->cpu = sl_cpu_level_best();
    if ((unsigned)o->scope > SL_SCOPE_PROCESS || (unsigned)o->io > SL_IO_PREAD)
        return sl_fail(err, SL_ERR_ARGUMENT, "scope %d, io %d: not one of sl_scope, sl_io",
                       (int)o->scope, (int)o->io);
    if (o->n_threads > SL_POOL_THREADS_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "%u threads: at most %u", o->n_threads,
                       SL_POOL_THREADS_MAX);
    if (o->cpu) {
        if (!sl_cpu_level_from_name(o->cpu, &out->cpu))
            return sl_fail(err, SL_ERR_ARGUMENT,
                           "cpu level '%.40s': expected ref, avx2, avx512 or neon", o->cpu);
        if (!sl_cpu_level_runs(out->cpu))
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "this processor cannot run level '%s'; the best it runs is '%s'", o->cpu,
                           sl_cpu_level_name(sl_cpu_level_best()));
    }
    return SL_OK;
}

// Accounts that are told only where somebody asked for them.
static bool is_optional(unsigned account) {
    return account == SL_ACCOUNT_SNAPSHOTS || account == SL_ACCOUNT_SERVER;
}

void sl__api_plan_info(const sl_store *store, const sl_plan_result *p, sl_plan_info *out) {
    const sl_model *m = &store->model;
    memset(out, 0, sizeof(*out));
    out->budget_bytes = p->budget_bytes;
    out->total_bytes = p->total_bytes;
    out->smallest_bytes = p->smallest_bytes;
    out->fits = p->total_bytes != 0;
    for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++) {
        if (!is_optional(i) || p->account[i])
            out->accounts[out->n_accounts++] =
                (sl_account){sl_account_name(i), sl_account_purpose(i), p->account[i]};
    }
    out->n_ctx = p->n_ctx;
    out->n_ctx_model = m->n_ctx_max;
    out->n_threads = p->n_threads;
    out->chunk = p->chunk;
    out->model_bytes = store->model_bytes;
    out->expert_bytes = store->expert.stride;
    out->n_experts_total = (uint32_t)sl_plan_n_experts(store);
    out->n_experts_token = sl_model_ffn_count(m, SL_FFN_MOE) * m->moe.top_k;
    out->hot_slots = p->hot_slots;
    out->ring_slots = p->ring_slots;
    out->n_tensors_streamed = p->n_streamed;
    out->trunk_streamed_bytes = p->streamed_bytes;
    out->in_place = store->in_place != NULL;
    out->open_bytes = p->open_bytes;
    out->token_read_bytes_low = p->token_read_bytes_low;
    out->token_read_bytes_high = p->token_read_bytes_high;
}

sl_status sl_engine_open(const char *store, const sl_engine_options *options,
                         const sl_progress *progress, sl_engine **out, sl_error *err) {
    sl_engine_setup setup;
    *out = NULL;
    sl_status st = sl__api_setup(options, &setup, err);
    if (st)
        return st;
    if (progress && progress->report) {
        setup.progress = report_open;
        setup.user = (void *)progress;
    }
    return sl__engine_open(store, &setup, out, err);
}

void sl_engine_close(sl_engine *engine) {
    sl__engine_close(engine);
}

void sl_engine_plan(const sl_engine *e, sl_plan_info *out) {
    sl__api_plan_info(&e->store, &e->plan, out);
}

void sl_engine_model(const sl_engine *e, sl_model_info *out) {
    const sl_model *m = &e->store.model;
    *out = (sl_model_info){
        .family = sl_model_family_name(m),
        .think_end = e->answer_format->think_end,
        .n_layers = m->n_layers,
        .n_experts = m->moe.n_experts,
        .n_experts_token = m->moe.top_k,
        .n_vocab = m->n_vocab,
        .d_model = m->d_model,
        .n_ctx_max = m->n_ctx_max,
        .has_tokenizer = e->has_tokenizer,
        .has_template = e->has_template,
        .cpu = e->backend.k.level,
        .io = sl_reader_kind_name(e->settings.reader),
        .direct = e->store.direct,
    };
}

/* ---- text ------------------------------------------------------------------------------------- */

sl_status sl_engine_tokenize(sl_engine *e, const char *text, size_t len, unsigned flags,
                             uint32_t *ids, size_t cap, size_t *n, sl_error *err) {
    *n = 0;
    if (!e->has_tokenizer)
        return sl_fail(err, SL_ERR_STATE,
                       "this model has no tokenizer; only `logits` works with it");
    sl_seal_enter();
    sl_status st = sl_tok_encode(&e->tokenizer, text, len, sl__api_token_flags(flags), ids, cap, n,
                                 &e->text_workspace, err);
    sl_seal_leave();
    return st;
}

/* A template writes a placeholder for a picture, which a model without vision answers at random: what is not
 * text is refused. */
static sl_status check_parts(const sl_json *vars, sl_error *err) {
    const sl_json *messages = sl_json_member(vars, "messages");
    uint32_t n = 0;
    for (const sl_json *m = messages ? messages->child : NULL; m; m = m->next, n++) {
        const sl_json *content = sl_json_member(m, "content");
        if (!sl_json_is(content, SL_JSON_ARRAY))
            continue;
        for (const sl_json *part = content->child; part; part = part->next) {
            const sl_json *type = sl_json_member(part, "type");
            if (type ? !sl_json_text_is(type, "text") : !sl_json_member(part, "text"))
                return sl_fail(
                    err, SL_ERR_ARGUMENT,
                    "message %u has a part of type '%.40s'; this version reads text only", n,
                    type && type->text ? type->text : "unknown");
        }
    }
    return SL_OK;
}

static sl_status render(sl_engine *e, const char *json, size_t len, sl_buf *out, sl_error *err) {
    // The tree of the variables first, the template's values behind it.
    sl_json *vars;
    sl_status st = sl_json_parse(json, len, &e->text_workspace, &vars, err);
    if (st || (st = check_parts(vars, err)))
        return st;
    sl_template_limits limits = sl_template_limits_default(sl_unix_time());
    return sl_template_render(e->chat_template, vars, &limits, &e->text_workspace, out, err);
}

sl_status sl_engine_render(sl_engine *e, const char *json, size_t len, char *out, size_t cap,
                           size_t *n, sl_error *err) {
    *n = 0;
    if (!e->has_template)
        return sl_fail(err, SL_ERR_STATE, "this model has no chat template; use --raw");
    if (cap == 0)
        return sl_fail(err, SL_ERR_CONTEXT, "no room for the rendered prompt");
    sl_buf buf;
    sl_buf_init_fixed(&buf, out, cap);
    size_t mark = sl_arena_mark(&e->text_workspace);
    sl_seal_enter();
    sl_status st = render(e, json, len, &buf, err);
    sl_seal_leave();
    sl_arena_reset(&e->text_workspace, mark);
    *n = st ? 0 : buf.len;
    return st;
}

size_t sl_engine_text_max(const sl_engine *e) {
    return (size_t)e->plan.text_max;
}

bool sl_engine_token(const sl_engine *e, uint32_t id, sl_token_info *out) {
    memset(out, 0, sizeof(*out));
    if (!e->has_tokenizer || !sl_tok_token_bytes(&e->tokenizer, id, &out->bytes, &out->len))
        return false;
    out->special = sl_tok_is_special(&e->tokenizer, id);
    out->end = sl_model_is_stop_token(&e->store.model, id);
    return true;
}

bool sl_engine_call_opening(const sl_engine *e, const char *name, char *out, size_t cap,
                            bool *json) {
    sl_buf buf;
    if (cap == 0)
        return false;
    sl_buf_init_fixed(&buf, out, cap);
    *json = sl_answer_calls_json(e->answer_format);
    return sl_answer_add_call_opening(e->answer_format, name, &buf) && !buf.failed;
}

const char *sl_engine_call_name_end(const sl_engine *e) {
    return sl_answer_call_name_end(e->answer_format);
}

/* ---- session ----------------------------------------------------------------------------------- */

sl_status sl_session_open(sl_engine *e, sl_session **out, sl_error *err) {
    *out = NULL;
    if (e->session.is_open)
        return sl_fail(err, SL_ERR_STATE, "the engine's one session is open already");
    e->session.is_open = true;
    sl__session_reset(&e->session);
    atomic_store_explicit(&e->session.cancel, false, memory_order_relaxed);
    *out = &e->session;
    return SL_OK;
}

void sl_session_close(sl_session *s) {
    if (s)
        s->is_open = false;
}

void sl_session_reset(sl_session *s) {
    sl__session_reset(s);
}

uint32_t sl_session_rewind(sl_session *s, const uint32_t *tokens, size_t n) {
    return sl__session_rewind(s, tokens, n);
}

bool sl_session_keep(sl_session *s) {
    return sl__session_keep(s);
}

uint32_t sl_session_length(const sl_session *s) {
    return s->engine->state.n_past;
}

sl_status sl_session_feed(sl_session *s, const uint32_t *tokens, size_t n,
                          const sl_progress *progress, sl_error *err) {
    bool told = progress && progress->report;
    sl_status st =
        sl__session_feed(s, tokens, n, told ? sl__api_report_prefill : NULL, (void *)progress, err);
    atomic_store_explicit(&s->cancel, false, memory_order_relaxed);
    return st;
}

const float *sl_session_logits(const sl_session *s) {
    return sl__session_logits(s);
}

void sl_session_cancel(sl_session *s) {
    atomic_store_explicit(&s->cancel, true, memory_order_relaxed);
}

/* ---- telemetry --------------------------------------------------------------------------------- */

void sl_engine_telemetry(const sl_engine *e, sl_telemetry *out) {
    sl_counters c;
    sl__engine_counters((sl_engine *)e, &c); // only the lock changes
    *out = (sl_telemetry){
        .tokens_prefilled = c.tokens_prefilled,
        .tokens_decoded = c.tokens_decoded,
        .hits = c.hits,
        .reads = c.reads,
        .guess_reads = c.guess_reads,
        .guesses_used = c.guesses_used,
        .guesses_wasted = c.guesses_wasted,
        .read_bytes =
            c.expert_read_bytes + c.trunk_read_bytes + c.row_read_bytes + c.open_read_bytes,
        .expert_read_bytes = c.expert_read_bytes,
        .trunk_read_bytes = c.trunk_read_bytes,
        .embedding_read_bytes = c.row_read_bytes,
        .open_read_bytes = c.open_read_bytes,
        .open_seconds = c.open_seconds,
        .prefill_seconds = c.prefill_seconds,
        .decode_seconds = c.decode_seconds,
        .wait_seconds = c.wait_seconds,
        .drive_bytes = c.drive.bytes,
        .drive_seconds = c.drive.seconds,
        .drive_open_bytes = c.drive_at_open.bytes,
        .drive_open_seconds = c.drive_at_open.seconds,
        .mixer_seconds = c.times.mixer,
        .router_seconds = c.times.router,
        .experts_seconds = c.times.experts,
        .head_seconds = c.times.head,
    };
}

static uint64_t counted(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed); // see sl_layer_counts
}

uint32_t sl_engine_layers(const sl_engine *e, sl_layer_use *out, uint32_t cap) {
    const uint32_t n = e->store.model.n_layers;
    for (uint32_t i = 0; i < SL_MIN(n, cap); i++) {
        const sl_layer_counts *c = &e->experts.layers[i];
        out[i] = (sl_layer_use){.hits = counted(&c->hits),
                                .reads = counted(&c->reads),
                                .guess_reads = counted(&c->guess_reads),
                                .guesses_used = counted(&c->guesses_used)};
    }
    return n;
}

sl_status sl__api_cached_bytes(const sl_store *store, uint64_t *out, sl_error *err) {
    *out = 0;
    for (uint32_t i = 0; i < sl_store_n_files(store); i++) {
        const sl_file *f = sl_store_each_file(store, i);
        uint64_t bytes = 0;
        sl_status st = f->fd >= 0 ? sl_file_cached_bytes(f, &bytes, err) : SL_OK;
        if (st == SL_ERR_UNSUPPORTED) {
            *out = UINT64_MAX;
            return SL_OK;
        }
        if (st)
            return st;
        *out += bytes;
    }
    return SL_OK;
}

sl_status sl_engine_memory(const sl_engine *e, sl_memory_info *out, sl_error *err) {
    sl_process_memory m;
    memset(out, 0, sizeof(*out));
    sl_status st = sl_process_memory_read(&m, err);
    if (st)
        return st;
    out->budget_bytes = e->plan.budget_bytes;
    out->planned_bytes = e->plan.total_bytes;
    out->rss_bytes = m.rss_bytes;
    out->rss_peak_bytes = m.rss_peak_bytes;
    out->page_table_bytes = m.page_table_bytes;
    out->kernel_bytes = e->plan.kernel_fixed_bytes;
    out->cgroup_peak_bytes = sl_cgroup_memory_peak();
    out->peak_bytes =
        SL_MAX(m.rss_peak_bytes + m.page_table_bytes + out->kernel_bytes, out->cgroup_peak_bytes);
    return SL_OK;
}

void sl_engine_used(const sl_engine *e, uint64_t used[SL_ACCOUNTS_MAX]) {
    sl_counters c;
    uint32_t n = 0;
    sl__engine_counters((sl_engine *)e, &c); // only the lock changes
    for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++)
        if (!is_optional(i) || e->plan.account[i])
            used[n++] = c.used[i];
}
