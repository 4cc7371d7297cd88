/* Measuring beside the engine: the page cache emptied, the machine at its best, and an engine's reads alone. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "base/process.h"

/* ---- a cold start --------------------------------------------------------------------------------- */

sl_status sl_model_uncache(const char *path, uint64_t *cached_bytes, sl_error *err) {
    sl_store store;
    char drive_file[SL_PATH_MAX];
    sl_status st = sl__api_describe(path, &store, drive_file, err);
    *cached_bytes = 0;
    if (st)
        return st;
    for (uint32_t i = 0; i < sl_store_n_files(&store) && !st; i++) {
        const sl_file *f = sl_store_each_file(&store, i);
        if (f->fd >= 0)
            st = sl_file_drop_cache(f->fd, err);
    }
    if (!st)
        st = sl__api_cached_bytes(&store, cached_bytes, err);
    sl_store_close(&store);
    return st;
}

/* ---- the machine ---------------------------------------------------------------------------------- */

#define REPEATS 3
#define PROBE_BYTES SL_DRIVE_TOTAL_BYTES_MAX
#define PROBE_DEPTH 16u
#define SUM_BYTES (512 * SL_MIB)
#define SUM_PART ((uint32_t)SL_MIB)
#define BUSY_FLOATS 8192u /* of each thread: half of an L2 at most */
#define BUSY_STACK_BYTES (64 * SL_KIB)

typedef struct sums {
    const uint64_t *words;
    uint64_t *out; /* [n_parts], so that nothing is left out */
} sums;

static void sum_part(void *ctx, uint32_t part, uint32_t thread) {
    const sums *s = ctx;
    const uint64_t *w = s->words + (size_t)part * (SUM_PART / 8);
    uint64_t sum[8] = {0};
    (void)thread;
    for (size_t i = 0; i < SUM_PART / 8; i += 8)
        for (unsigned k = 0; k < 8; k++)
            sum[k] += w[i + k];
    s->out[part] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static uint64_t middle(uint64_t *v) {
    uint64_t low = SL_MIN(v[0], v[1]), high = SL_MAX(v[0], v[1]);
    return SL_MAX(low, SL_MIN(high, v[2]));
}

static sl_status measure_memory(uint32_t n_threads, uint64_t *out, sl_error *err) {
    const uint32_t n_parts = (uint32_t)(SUM_BYTES / SUM_PART);
    sl_arena arena = {0};
    sl_pool pool = {0};
    sl_status st = sl_arena_map(
        &arena, "memory to measure",
        SUM_BYTES + n_parts * sizeof(uint64_t) + 2 * SL_PAGE + sl_pool_bytes(n_threads), err);
    if (!st)
        st = sl_pool_init(&pool, n_threads, &arena, NULL, err);
    if (!st) {
        uint64_t speed[REPEATS];
        sums s = {sl_arena_alloc(&arena, SUM_BYTES, SL_PAGE),
                  sl_arena_alloc(&arena, n_parts * sizeof(uint64_t), 64)};
        for (int i = 0; i < REPEATS; i++) {
            double begin = sl_now();
            sl_pool_run(&pool, n_parts, sum_part, &s);
            speed[i] = (uint64_t)((double)SUM_BYTES / (sl_now() - begin));
        }
        *out = middle(speed);
    }
    sl_pool_deinit(&pool);
    sl_arena_unmap(&arena);
    return st;
}

/* A thread that multiplies and adds until it is told to stop. */
typedef struct busy {
    sl_thread thread;
    const atomic_bool *stop;
    float x[BUSY_FLOATS];
    volatile float result;
} busy;

static void keep_busy(void *ctx) {
    busy *b = ctx;
    float sum[16] = {0};
    while (!atomic_load_explicit(b->stop, memory_order_relaxed)) // a hint: a round later will do
        for (uint32_t i = 0; i < BUSY_FLOATS; i += 16)
            for (unsigned k = 0; k < 16; k++)
                sum[k] = sum[k] * 0.5f + b->x[i + k];
    for (unsigned k = 0; k < 16; k++)
        b->result = b->result + sum[k];
}

static uint64_t probe(const char *file, uint64_t record_bytes) {
    sl_drive_info drive;
    uint64_t speed[REPEATS];
    uint64_t bytes = sl_drive_probe_bytes(record_bytes, PROBE_DEPTH);
    void *block = sl_mem_alloc((size_t)bytes);
    sl_arena arena;
    memset(speed, 0, sizeof(speed));
    if (!block)
        return 0;
    sl_arena_init(&arena, "probe", block, (size_t)bytes);
    for (int i = 0; i < REPEATS; i++)
        if (!sl_drive_probe(file, record_bytes, PROBE_DEPTH, PROBE_BYTES, &arena, &drive, NULL))
            speed[i] = drive.bytes_per_second;
    sl_mem_free(block);
    return middle(speed);
}

static sl_status probe_busy(const char *file, uint64_t record_bytes, uint32_t n_threads,
                            uint64_t *out, sl_error *err) {
    sl_arena arena = {0};
    atomic_bool stop = false;
    uint32_t n = 0;
    sl_status st = sl_arena_map(&arena, "busy threads",
                                n_threads * (sl_thread_stack_bytes(BUSY_STACK_BYTES) +
                                             sizeof(busy) + 2 * sl_thread_page_bytes()),
                                err);
    busy *threads = st ? NULL : sl_arena_alloc(&arena, n_threads * sizeof(*threads), 64);
    for (; !st && n < n_threads; n++) {
        threads[n].stop = &stop;
        st = sl_thread_start(&threads[n].thread, "sl-busy", &arena, BUSY_STACK_BYTES, keep_busy,
                             &threads[n], err);
        if (st)
            break;
    }
    if (!st)
        *out = probe(file, record_bytes);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    while (n > 0)
        sl_thread_join(&threads[--n].thread);
    sl_arena_unmap(&arena);
    return st;
}

sl_status sl_measure_machine(const char *model, const sl_engine_options *options,
                             sl_machine_speeds *out, sl_error *err) {
    sl_engine_setup setup;
    sl_store store;
    char file[SL_PATH_MAX];
    memset(out, 0, sizeof(*out));
    sl_status st = sl__api_setup(options, &setup, err);
    if (st || (st = sl__api_describe(model, &store, file, err)))
        return st;
    uint64_t record = SL_MIN(SL_ALIGN_UP(store.expert.stride, SL_PAGE), PROBE_BYTES);
    sl_store_close(&store);
    out->n_threads = SL_MIN(setup.n_threads ? setup.n_threads : sl_cores_allowed(),
                            (uint32_t)SL_POOL_THREADS_MAX);
    out->record_bytes = (uint32_t)record;
    out->depth = PROBE_DEPTH;
    if (*file && record) {
        out->drive_bytes_per_second = probe(file, record);
        if ((st = probe_busy(file, record, out->n_threads, &out->drive_busy_bytes_per_second, err)))
            return st;
    }
    return measure_memory(out->n_threads, &out->memory_bytes_per_second, err);
}

/* ---- reads alone ----------------------------------------------------------------------------------- */

_Static_assert(sizeof(sl_read_note) <= SL_READ_LOG_ENTRY_BYTES, "sluice.h says how large it is");

void sl_engine_log_reads(sl_engine *e, void *block, size_t bytes) {
    e->read_log = (sl_read_log){.notes = block, .cap = bytes / sizeof(sl_read_note)};
    sl_reader_log(e->reader, &e->read_log);
}

/* The largest of the logged reads decides how many buffers the experts' memory makes. */
static uint32_t place_buffers(sl_engine *e, uint8_t *buffers[SL_EXPERT_READS_MAX]) {
    const sl_read_log *log = &e->read_log;
    uint64_t largest = SL_PAGE;
    uint32_t n = 0;
    for (size_t i = 0; i < log->n; i++)
        largest = SL_MAX(largest, SL_ALIGN_UP((uint64_t)log->notes[i].n_bytes, SL_PAGE));
    const sl_arena *arenas[] = {&e->account[SL_ACCOUNT_RING], &e->account[SL_ACCOUNT_HOT]};
    for (size_t a = 0; a < SL_COUNT(arenas); a++)
        for (uint64_t at = 0; at + largest <= arenas[a]->bytes && n < e->experts.n_reads;
             at += largest)
            buffers[n++] = arenas[a]->base + at;
    return n;
}

sl_status sl_engine_replay_reads(sl_engine *e, sl_reads_alone *out, sl_error *err) {
    const sl_read_log *log = &e->read_log;
    sl_read reads[SL_EXPERT_READS_MAX] = {0};
    uint8_t *buffers[SL_EXPERT_READS_MAX];
    sl_status st = SL_OK;
    sl_reader_log(e->reader, NULL);
    sl_experts_drain(&e->experts);
    *out = (sl_reads_alone){.n_reads = log->n, .n_lost = log->n_lost};
    uint32_t depth = place_buffers(e, buffers);
    if (depth == 0)
        return sl_fail(err, SL_ERR_MEMORY, "no expert's memory takes the largest of the reads");
    double begin = sl_now();
    for (size_t i = 0; i < log->n + depth; i++) {
        sl_read *r = &reads[i % depth];
        if (i >= depth && i - depth < log->n) {
            sl_reader_wait(e->reader, r);
            if (r->result < 0 && !st)
                st = sl_fail_errno(err, SL_ERR_IO, -r->result, "reading %u bytes again at %llu",
                                   r->n_bytes, (unsigned long long)r->offset);
            out->read_bytes += r->result > 0 ? (uint64_t)r->result : 0;
        }
        if (i < log->n) {
            *r = (sl_read){.fd = log->notes[i].fd,
                           .n_bytes = log->notes[i].n_bytes,
                           .offset = log->notes[i].offset,
                           .buf = buffers[i % depth]};
            sl_reader_submit(e->reader, r);
        }
    }
    out->seconds = sl_now() - begin;
    return st;
}
