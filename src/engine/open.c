/* Opening: everything that the engine will ever hold is reserved here, and nothing is touched before the
 * plan has said that it fits. */
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "engine/engine.h"
#include "io/folder.h"
#include "plan/sizes.h"

#define CTX_DEFAULT 4096u
#define READS_DEFAULT 16u
#define READS_SMALL 4u
#define READS_IN_PLACE 8u /* experts, each of several reads */
#define SMALL_BUDGET (64 * SL_MIB)

// An entry, and one byte of the list of experts that were handed out.
_Static_assert(sizeof(sl_expert_entry) + 1 <= SL_EXPERT_ENTRY_BYTES,
               "the plan counts expert entries too small");
_Static_assert(sizeof(sl_slot) <= SL_SLOT_ENTRY_BYTES, "the plan counts slot entries too small");
_Static_assert(sizeof(sl_layer_counts) <= SL_LAYER_COUNTS_BYTES,
               "the plan counts layers too small");

uint64_t sl__engine_code_bytes(void) {
    sl_process_memory m;
    uint64_t code = sl_process_populate(), data = SL_PROCESS_DATA_BYTES;
    // What the program itself allocates is small and varies: a fixed allowance covers it, unless the
    // caller already holds more.
    if (!sl_process_memory_read(&m, NULL) && m.anonymous_bytes > data / 2)
        data = m.anonymous_bytes + data / 2;
    return code + data;
}

static sl_status solve(const sl_store *store, const sl_engine_setup *setup,
                       const sl_engine_settings *settings, uint64_t code_bytes, sl_plan_result *out,
                       uint8_t *resident, sl_error *err) {
    uint32_t n_ctx = setup->n_ctx ? setup->n_ctx : SL_MIN(CTX_DEFAULT, store->model.n_ctx_max);
    const sl_plan_input in = {
        .store = store,
        .budget_bytes = setup->budget_bytes,
        .n_ctx = n_ctx,
        .n_threads = settings->n_threads,
        .chunk = SL_MIN(setup->chunk, n_ctx),
        .n_cpus = settings->n_cpus,
        .process = setup->process,
        .code_bytes = code_bytes,
        .thread_stack_bytes = sl_pool_bytes(settings->n_threads),
        .reader_bytes = sl_reader_bytes(settings->reader, settings->depth),
        .kernel_bytes = sl_reader_kernel_bytes(settings->reader, settings->depth) +
                        sl_pool_kernel_bytes(settings->n_threads),
        .engine_bytes = sizeof(sl_engine),
        .snapshot_bytes = setup->snapshot_bytes,
        .server_bytes = setup->server_bytes,
    };
    return sl_plan_solve(&in, out, resident, err);
}

sl_status sl__engine_plan(const sl_store *store, const sl_engine_setup *setup, uint64_t code_bytes,
                          sl_plan_result *out, sl_engine_settings *settings, uint8_t *resident,
                          sl_error *err) {
    uint32_t n_cpus = sl_cpus_allowed();
    uint32_t n_threads = setup->n_threads ? setup->n_threads : sl_cores_allowed();
    memset(out, 0, sizeof(*out));
    memset(settings, 0, sizeof(*settings));
    if (setup->n_ctx > store->model.n_ctx_max)
        return sl_fail(err, SL_ERR_ARGUMENT, "a context of %u is more than the model's %u",
                       setup->n_ctx, store->model.n_ctx_max);
    settings->n_threads = SL_MIN(n_threads, SL_POOL_THREADS_MAX);
    settings->reader = setup->reader;
    if (!setup->reader_given)
        settings->reader = sl_reader_uring_works() ? SL_READER_URING : SL_READER_PREAD;
    // The frugal settings decide what is possible at all.
    settings->depth = SL_MAX(READS_SMALL, store->n_extents);
    settings->n_cpus = setup->process ? SL_MIN(n_cpus, settings->n_threads) : n_cpus;
    settings->narrow = settings->n_cpus < n_cpus;
    sl_status st = solve(store, setup, settings, code_bytes, out, resident, err);
    if (st || setup->budget_bytes < SMALL_BUDGET)
        return st;
    sl_engine_settings ample = *settings;
    sl_plan_result with_ample;
    ample.depth = store->in_place ? SL_MIN(READS_IN_PLACE * store->n_extents, SL_EXPERT_READS_MAX)
                                  : READS_DEFAULT;
    ample.n_cpus = n_cpus;
    ample.narrow = false;
    uint64_t smallest = out->smallest_bytes;
    if (solve(store, setup, &ample, code_bytes, &with_ample, NULL, NULL))
        return SL_OK;
    *settings = ample;
    st = solve(store, setup, settings, code_bytes, out, resident, err);
    out->smallest_bytes = smallest;
    return st;
}

/* ---- accounts ---------------------------------------------------------------------------------- */

/* A large hot tier takes as long to fault in as the trunk to read: a thread of its own does it meanwhile, whose
 * stack lies in the scratch area, as that has no use yet. */
#define FILL_BESIDE_BYTES (64 * SL_MIB)
#define FILL_STACK_BYTES (64 * SL_KIB)

static bool fills_beside(const sl_plan_result *p, const sl_store *store) {
    return p->hot_slots * store->expert.stride >= FILL_BESIDE_BYTES;
}

static void fill(void *ctx) {
    sl_arena_fault_in(ctx);
}

static sl_status map_accounts(sl_engine *e, sl_error *err) {
    const sl_plan_result *p = &e->plan;
    const sl_store *store = &e->store;
    const sl_model *m = &store->model;
    // In place, the tokenizer's image is there already: it was made from the checkpoint.
    uint64_t image = store->in_place ? 0 : SL_ALIGN_UP(store->tokenizer.bytes, 64);
    uint64_t text = store->tokenizer.bytes ? image + sl_plan_template_bytes(store) +
                                                 SL_ALIGN_UP(p->text_workspace_bytes, 64)
                                           : 0;
    // The engine's own structures and the store's tables are in the trunk account, but not in its arena.
    uint64_t trunk =
        p->account[SL_ACCOUNT_TRUNK] - SL_ALIGN_UP(store->arena.used + sizeof(sl_engine), SL_PAGE);
    const struct {
        sl_account_id id;
        uint64_t bytes;
    } list[] = {
        {SL_ACCOUNT_THREADS, p->account[SL_ACCOUNT_THREADS]},
        {SL_ACCOUNT_TRUNK, trunk},
        {SL_ACCOUNT_HEAD, p->account[SL_ACCOUNT_HEAD]},
        {SL_ACCOUNT_EMBEDDING, p->account[SL_ACCOUNT_EMBEDDING]},
        {SL_ACCOUNT_KV, sl_kv_bytes(m, p->n_ctx)},
        {SL_ACCOUNT_STATE, sl_recurrent_bytes(m)},
        {SL_ACCOUNT_SCRATCH, sl_scratch_bytes(m, p->chunk) + sl_plan_sampler_bytes(m)},
        {SL_ACCOUNT_RING, p->ring_bytes},
        {SL_ACCOUNT_HOT, p->hot_slots * store->expert.stride},
        {SL_ACCOUNT_TEXT, text},
        {SL_ACCOUNT_SNAPSHOTS, p->account[SL_ACCOUNT_SNAPSHOTS]},
    };
    for (size_t i = 0; i < SL_COUNT(list); i++) {
        sl_arena *arena = &e->account[list[i].id];
        const char *name = sl_account_name(list[i].id);
        bool later = list[i].id == SL_ACCOUNT_HOT && fills_beside(p, store);
        sl_status st = later ? sl_arena_reserve(arena, name, list[i].bytes, err)
                             : sl_arena_map(arena, name, list[i].bytes, err);
        if (st)
            return st;
    }
    return sl_arena_map(&e->hot_tables, sl_account_name(SL_ACCOUNT_HOT),
                        sl_plan_hot_table_bytes(store, p->hot_slots + p->ring_slots), err);
}

/* ---- text -------------------------------------------------------------------------------------- */

static sl_status read_text(sl_engine *e, sl_loader *loader, const sl_text_part *part,
                           const char *what, uint8_t *out, sl_error *err) {
    return sl_load(loader, &e->store.text, SL_STORE_TEXT, what, part->offset, part->bytes, out,
                   part->hash, err);
}

static sl_status open_text(sl_engine *e, sl_loader *loader, sl_error *err) {
    const sl_store *store = &e->store;
    sl_arena *arena = &e->account[SL_ACCOUNT_TEXT];
    sl_status st;
    e->answer_format = sl_answer_format_find("plain");
    if (!store->tokenizer.bytes)
        return SL_OK;
    void *workspace = sl_arena_alloc(arena, (size_t)e->plan.text_workspace_bytes, 64);
    uint8_t *blob = store->in_place ? (uint8_t *)e->texts.tokenizer.data
                                    : sl_arena_alloc(arena, (size_t)store->tokenizer.bytes, 64);
    if (!workspace || !blob)
        return sl_arena_full(arena, (size_t)store->tokenizer.bytes, err);
    sl_arena_init(&e->text_workspace, sl_account_name(SL_ACCOUNT_TEXT), workspace,
                  (size_t)e->plan.text_workspace_bytes);
    if ((!store->in_place &&
         (st = read_text(e, loader, &store->tokenizer, "the tokenizer", blob, err))) ||
        (st = sl_tok_open(blob, (size_t)store->tokenizer.bytes, &e->tokenizer, err)))
        return st;
    if (e->tokenizer.n_vocab > store->model.n_vocab)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "the tokenizer has ids up to %u, the model's vocabulary %u",
                       e->tokenizer.n_vocab - 1, store->model.n_vocab);
    e->has_tokenizer = true;
    if (!store->chat_template.bytes)
        return SL_OK;
    uint8_t *source = store->in_place
                          ? (uint8_t *)e->texts.chat_template.data
                          : sl_arena_alloc(arena, (size_t)store->chat_template.bytes, 1);
    if (!source)
        return sl_arena_full(arena, (size_t)store->chat_template.bytes, err);
    if ((!store->in_place &&
         (st = read_text(e, loader, &store->chat_template, "the chat template", source, err))) ||
        (st = sl_template_parse((const char *)source, (size_t)store->chat_template.bytes, arena,
                                &e->chat_template, err)))
        return sl_error_context(err, st, "chat template");
    e->answer_format =
        sl_answer_format_of_template((const char *)source, (size_t)store->chat_template.bytes);
    e->has_template = true;
    return SL_OK;
}

/* ---- open -------------------------------------------------------------------------------------- */

static void bind(sl_engine *e, const sl_engine_setup *setup) {
    const sl_plan_result *p = &e->plan;
    const sl_store *store = &e->store;
    const sl_model *m = &store->model;
    uint64_t scratch = sl_scratch_bytes(m, p->chunk);
    sl_state_bind(&e->state, p->n_ctx, e->account[SL_ACCOUNT_KV].base,
                  e->account[SL_ACCOUNT_STATE].base);
    sl_scratch_bind(&e->scratch, m, p->chunk, e->account[SL_ACCOUNT_SCRATCH].base);
    sl_sampler_init(&e->sampler, m->n_vocab, e->account[SL_ACCOUNT_SCRATCH].base + scratch);
    sl_snapshots_init(&e->snapshots, p->n_ctx, e->account[SL_ACCOUNT_SNAPSHOTS].base,
                      p->account[SL_ACCOUNT_SNAPSHOTS]);
    sl_experts_init(&e->experts, store, e->reader, &e->pool, e->settings.depth,
                    e->account[SL_ACCOUNT_RING].base, p->ring_slots,
                    e->account[SL_ACCOUNT_HOT].base, p->hot_slots, e->hot_tables.base,
                    !setup->no_guesses);
    e->forward = (sl_forward){
        .model = m,
        .weights = &e->weights,
        .backend = &e->backend.base,
        .trunk = &e->trunk.base,
        .experts = &e->experts.base,
        .scratch = &e->scratch,
        .state = &e->state,
        .times = &e->times,
        .user = e,
    };
}

static void start_thread(void) {
    (void)sl_fpenv_set();
}

// Trunk, rows and text.
static sl_status load(sl_engine *e, const sl_engine_setup *setup, sl_in_place *in,
                      uint8_t *resident, sl_error *err) {
    const sl_plan_result *p = &e->plan;
    sl_arena *trunk = &e->account[SL_ACCOUNT_TRUNK];
    sl_status st;
    // What streams in later, or is computed, can serve as a buffer now.
    sl_arena *ring = &e->account[SL_ACCOUNT_RING], *hot = &e->account[SL_ACCOUNT_HOT];
    sl_arena *spare = hot->bytes > ring->bytes && !fills_beside(p, &e->store) ? hot : ring;
    sl_loader loader = {
        .bounce = spare->base,
        .bounce_bytes = SL_MIN(spare->bytes, 4 * SL_MIB),
        .total = e->store.trunk_bytes + e->store.embed.stride * e->store.embed.shape.rows +
                 e->store.tokenizer.bytes + e->store.chat_template.bytes,
        .progress = setup->progress,
        .user = setup->user,
    };
    void *tables = sl_arena_alloc(trunk, (size_t)sl_plan_weight_table_bytes(&e->store), 64);
    if (!tables)
        return sl_arena_full(trunk, (size_t)sl_plan_weight_table_bytes(&e->store), err);
    if (in) {
        in->progress = setup->progress;
        in->user = setup->user;
        for (uint32_t i = 0; i < e->store.n_tensors; i++)
            in->total += resident[i] ? in->sources[i].bytes : 0;
        if (p->row_cache == e->store.embed.shape.rows)
            in->total += in->embed.bytes;
        sl_in_place_begin(in, &e->store, e->reader, spare->base, spare->bytes);
    }
    st = sl_trunk_load(&e->store, resident, tables, trunk, &e->account[SL_ACCOUNT_HEAD], &loader,
                       in, &e->weights, err);
    if (st == SL_OK)
        st = sl__rows_init(e, &loader, in, err);
    sl_reader_rate by_reader = sl_reader_measured(e->reader);
    e->drive_at_open = (sl_reader_rate){by_reader.bytes + loader.read_bytes,
                                        by_reader.seconds + loader.read_seconds};
    e->drive_before = by_reader;
    if (in) {
        loader.read_bytes += in->done;
        sl_in_place_end(in);
    }
    if (st || (st = open_text(e, &loader, err)))
        return st;
    e->open_read_bytes = loader.read_bytes;
    return SL_OK;
}

static sl_status start(sl_engine *e, const sl_engine_setup *setup, sl_in_place *in,
                       uint8_t *resident, sl_error *err) {
    const sl_plan_result *p = &e->plan;
    sl_arena *trunk = &e->account[SL_ACCOUNT_TRUNK];
    sl_status st;
    if ((st = map_accounts(e, err)) ||
        (st = sl_pool_init(&e->pool, p->n_threads, &e->account[SL_ACCOUNT_THREADS], start_thread,
                           err)) ||
        (st = sl_reader_open(e->settings.reader, e->settings.depth, &e->account[SL_ACCOUNT_THREADS],
                             &e->reader, err)))
        return st;
    sl_cpu_backend_init(&e->backend, setup->cpu, &e->pool);

    void *strips = sl_arena_alloc(trunk, (size_t)(2 * p->strip_bytes), SL_PAGE);
    if (!strips)
        return sl_arena_full(trunk, (size_t)(2 * p->strip_bytes), err);

    sl_arena *scratch = &e->account[SL_ACCOUNT_SCRATCH];
    sl_thread filler = {0};
    if (fills_beside(p, &e->store) &&
        (st = sl_thread_start(&filler, "sl-fill", scratch, FILL_STACK_BYTES, fill,
                              &e->account[SL_ACCOUNT_HOT], err)))
        return st;
    st = load(e, setup, in, resident, err);
    sl_thread_join(&filler);
    sl_arena_reset(scratch, 0);
    if (st)
        return st;
    if (p->strip_bytes)
        sl_trunk_init(&e->trunk, &e->store, e->reader, strips, p->strip_bytes);
    bind(e, setup);
    e->session.engine = e;
    sl__session_reset(&e->session);
    return SL_OK;
}

// A store, or a checkpoint in the role of one; which it is, its files tell.
static sl_status open_model(sl_engine *e, const char *path, sl_store_direct direct, sl_in_place *in,
                            sl_error *err) {
    sl_path_info config;
    char name[SL_PATH_MAX];
    sl_status st = sl_store_open(path, direct, &e->store, err);
    if (st != SL_ERR_MISSING || sl_path_join(path, "config.json", name, sizeof(name), NULL) ||
        sl_path_stat(name, &config, NULL) || config.kind != SL_PATH_FILE)
        return st;
    st = sl_in_place_open(path, direct, &e->store, in, err);
    if (st == SL_OK) {
        e->texts = in->texts; // kept as long as the engine
        memset(&in->texts, 0, sizeof(in->texts));
    }
    return st;
}

// More than the machine has would be faulted in until the kernel kills somebody.
static sl_status check_machine(const sl_plan_result *p, sl_error *err) {
    uint64_t total = sl_memory_total();
    if (total == 0 || p->total_bytes <= total)
        return SL_OK;
    return sl_fail(
        err, SL_ERR_BUDGET,
        "the plan takes %.2f GiB, and this machine has %.2f GiB of memory, %.2f GiB of it "
        "free: give a smaller budget or context",
        (double)p->total_bytes / (double)SL_GIB, (double)total / (double)SL_GIB,
        (double)sl_memory_available() / (double)SL_GIB);
}

sl_status sl__engine_open(const char *path, const sl_engine_setup *setup, sl_engine **out,
                          sl_error *err) {
    sl_status st;
    uint8_t *resident = NULL;
    sl_in_place in;
    double begin = sl_now();
    *out = NULL;
    uint64_t code = setup->process ? sl__engine_code_bytes() : 0;
    uint64_t fpenv = sl_fpenv_set();
    sl_engine *e = sl_mem_calloc(1, sizeof(*e));
    if (!e) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for the engine");
        goto fail;
    }
    (void)pthread_mutex_init(&e->counters_lock, NULL);
    if ((st = open_model(e, path, setup->buffered ? SL_DIRECT_PREFERRED : SL_DIRECT_REQUIRED, &in,
                         err)))
        goto fail;
    if (!(resident = sl_mem_alloc(e->store.n_tensors))) {
        st = sl_fail(err, SL_ERR_MEMORY, "no memory for %u tensor flags", e->store.n_tensors);
        goto fail;
    }
    if ((st = sl__engine_plan(&e->store, setup, code, &e->plan, &e->settings, resident, err)))
        goto fail;
    e->memory_limit = sl_cgroup_memory_limit;
    if ((st = check_machine(&e->plan, err)) || (st = sl__engine_check_limit(e, err)))
        goto fail;
    if (e->settings.narrow)
        sl_cpus_narrow(e->settings.n_cpus);
    if ((st = start(e, setup, e->store.in_place ? &in : NULL, resident, err)))
        goto fail;
    sl_mem_free(resident);
    sl_fpenv_restore(fpenv);
    e->open_seconds = sl_now() - begin;
    sl__engine_publish(e);
    *out = e;
    return SL_OK;
fail:
    sl_fpenv_restore(fpenv);
    sl_mem_free(resident);
    sl__engine_close(e);
    return sl_error_context(err, st, "opening '%s'", path);
}

void sl__engine_close(sl_engine *e) {
    if (!e)
        return;
    if (e->reader)
        sl_experts_drain(&e->experts);
    sl_pool_deinit(&e->pool);
    sl_reader_close(e->reader);
    for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++)
        sl_arena_unmap(&e->account[i]);
    sl_arena_unmap(&e->hot_tables);
    sl_store_close(&e->store);
    sl_checkpoint_texts_deinit(&e->texts);
    (void)pthread_mutex_destroy(&e->counters_lock);
    sl_mem_free(e);
}
