/* An opened model under a plan, and the one session on it.
 *
 * Everything is reserved in sl__engine_open; afterwards nothing here asks the system for memory.
 * The types are those of sluice.h; this header is the inside that src/api wraps. */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "backend/cpu/cpu.h"
#include "checkpoint/in_place.h"
#include "engine/experts.h"
#include "engine/sampler.h"
#include "engine/snapshots.h"
#include "engine/trunk.h"
#include "model/forward.h"
#include "plan/plan.h"
#include "text/answer.h"
#include "text/template.h"
#include "text/tokenizer.h"

typedef struct sl_engine_setup {
    uint64_t budget_bytes;
    bool process;                     /* the budget covers the whole process */
    uint32_t n_ctx, n_threads, chunk; /* 0: the default */
    bool reader_given;
    sl_reader_kind reader;
    sl_cpu_level cpu;
    bool buffered, no_guesses;
    uint64_t snapshot_bytes, server_bytes;
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
} sl_engine_setup;

/* What follows from a setup and the machine; chosen together with the plan. */
typedef struct sl_engine_settings {
    sl_reader_kind reader;
    uint32_t depth; /* reads in flight */
    uint32_t n_threads, n_cpus;
    bool narrow; /* keep to n_cpus processors: each one costs reserve */
} sl_engine_settings;

/* Rows of the embedding: on their way from disk, and recent ones (all, where the plan has room). */
#define SL_ROW_READS_MAX 8u /* rows at once: SL_ROW_BUFFERS_MAX of the plan */
typedef struct sl_row_read {
    uint32_t n_parts;
    sl_read reads[SL_TENSOR_PARTS];
} sl_row_read;
typedef struct sl_rows {
    sl_row_read reads[SL_ROW_READS_MAX];
    uint8_t *buffers;
    uint8_t *cache;   /* [n_cached] records; row id is at id % n_cached or not there */
    uint32_t *cached; /* [n_cached] ids, plus one; 0: none */
    uint32_t n_cached;
    uint64_t read_bytes;
    double wait_seconds;
    /* Asked between batches of reads; true: SL_ERR_CANCELED. */
    bool (*canceled)(void *user);
    void *user;
} sl_rows;

typedef struct sl_engine sl_engine;
typedef struct sl_session sl_session;

/* What telemetry shows. The owner counts in the engine's fields and publishes a copy now and then. */
typedef struct sl_counters {
    uint64_t tokens_prefilled, tokens_decoded, hits, reads;
    uint64_t guess_reads, guesses_used, guesses_wasted;
    uint64_t expert_read_bytes, trunk_read_bytes, row_read_bytes, open_read_bytes;
    double open_seconds, prefill_seconds, decode_seconds, wait_seconds;
    sl_reader_rate drive, drive_at_open;
    sl_times times;
    uint64_t used[SL_ACCOUNT_COUNT]; /* bytes that hold something */
} sl_counters;

#define SL_TAIL_TOKENS 16u
#define SL_LIMIT_LOOK_SECONDS 1.0 /* between two looks at the control group's limit */
/* A token of an answer that was canceled is finished, so that the session can go on, if that takes no longer. */
#define SL_CANCEL_PATIENCE_SECONDS 2.0

/* The progress of a prompt, told now and then within a chunk. */
typedef struct sl_prefill_progress {
    bool (*report)(void *user, uint64_t done, uint64_t total);
    void *user;
    uint64_t done, chunk, total; /* tokens: before this chunk, in it, of the prompt */
    double next;                 /* when it is told again */
    bool stop;                   /* report has returned false */
} sl_prefill_progress;

struct sl_session {
    sl_engine *engine;
    sl_prefill_progress prefill;
    bool is_open, has_logits;
    uint32_t tail[SL_TAIL_TOKENS]; /* the last tokens fed, oldest first */
    uint32_t n_tail;
    atomic_bool cancel; /* set by any thread, read by the one that computes; relaxed: a hint */
    double cancel_seen; /* sl_now() when a token of an answer first saw it; 0: it has not */
};

struct sl_engine {
    sl_store store;
    sl_checkpoint_texts texts; /* of a checkpoint that runs in place */
    sl_plan_result plan;
    sl_arena account[SL_ACCOUNT_COUNT];
    sl_arena hot_tables; /* the hot account's tables */
    sl_pool pool;
    sl_cpu_backend backend;
    sl_reader *reader;
    sl_engine_settings settings;

    sl_weights weights;
    sl_trunk trunk;
    sl_experts experts;
    sl_rows rows;
    sl_state state;
    sl_scratch scratch;
    sl_times times;
    sl_forward forward;
    sl_sampler sampler;
    sl_snapshots snapshots;

    sl_tok tokenizer;
    bool has_tokenizer, has_template;
    sl_template *chat_template;
    const sl_answer_format *answer_format; /* "plain" without a template */
    sl_arena text_workspace;

    sl_session session;
    /* The tightest limit of our control groups; replaced by tests. And when to look at it next, by sl_now(). */
    uint64_t (*memory_limit)(void);
    double limit_look;
    void *capture;        /* of forward.hidden, while logits are recorded */
    sl_read_log read_log; /* while reads are kept for replaying */
    uint64_t open_read_bytes, tokens_prefilled, tokens_decoded;
    double open_seconds, prefill_seconds, decode_seconds;
    /* What the drive delivered while the trunk was read, and as much of that as the reader has measured. */
    sl_reader_rate drive_at_open, drive_before;
    sl_counters counters; /* as published; guarded by counters_lock */
    pthread_mutex_t counters_lock;
};

/* Resolve defaults and solve the plan for a store (its numbers; files are not read). resident may be NULL.
 * Up to 64 MiB, and where nothing else fits, the settings are frugal: few reads in flight, and as many
 * processors as threads. So the smallest budget is the same whatever budget was asked for. */
SL_MUST_USE sl_status sl__engine_plan(const sl_store *store, const sl_engine_setup *setup,
                                      uint64_t code_bytes, sl_plan_result *out,
                                      sl_engine_settings *settings, uint8_t *resident,
                                      sl_error *err);
/* Bytes of the code account for this process, now: populates the program's pages. */
uint64_t sl__engine_code_bytes(void);

SL_MUST_USE sl_status sl__engine_open(const char *path, const sl_engine_setup *setup,
                                      sl_engine **out, sl_error *err);
void sl__engine_close(sl_engine *engine);

/* Around everything that computes or must not allocate: the seal, and the floating-point environment of the
 * definitions. leave takes what enter returned. */
uint64_t sl__engine_enter(void);
void sl__engine_leave(uint64_t entered);

/* Publish the counters; the owner's thread. And read what was published last; any thread. */
void sl__engine_publish(sl_engine *e);
void sl__engine_counters(sl_engine *e, sl_counters *out);

/* Lay out buffers and cache, compare the table's checksum, and fill a cache that holds all rows. in: of a checkpoint
 * that runs in place, else NULL. */
SL_MUST_USE sl_status sl__rows_init(sl_engine *e, sl_loader *loader, sl_in_place *in,
                                    sl_error *err);
/* Embedding rows of n tokens (each < n_vocab) into x [n][d_model]. */
SL_MUST_USE sl_status sl__rows_read(sl_engine *e, const uint32_t *tokens, uint32_t n, float *x,
                                    sl_error *err);

void sl__session_reset(sl_session *s);
/* As sl_session_rewind(), and sl_session_keep(). */
uint32_t sl__session_rewind(sl_session *s, const uint32_t *tokens, size_t n);
bool sl__session_keep(sl_session *s);
/* SL_ERR_BUDGET when a control group that we are in may hold less than the plan does. A limit that cannot be read is
 * none. */
SL_MUST_USE sl_status sl__engine_check_limit(sl_engine *e, sl_error *err);

/* What stands against feeding these tokens: SL_ERR_CONTEXT, SL_ERR_ARGUMENT, a cancel that is there
 * already (SL_ERR_CANCELED), or a memory limit that was lowered (SL_ERR_BUDGET; looked at once a second at most). Nothing
 * has changed then. */
SL_MUST_USE sl_status sl__session_check(sl_session *s, const uint32_t *tokens, size_t n,
                                        sl_error *err);
/* Compute n tokens (1..chunk), checked by sl__session_check(); the residual stream stays in scratch.
 * can_cancel: a cancel stops it at the next layer or read, which leaves the session to be reset; otherwise it does
 * so only after SL_CANCEL_PATIENCE_SECONDS. */
SL_MUST_USE sl_status sl__session_chunk(sl_session *s, const uint32_t *tokens, uint32_t n,
                                        bool can_cancel, sl_error *err);
/* As sl_session_feed(). progress may be NULL. */
SL_MUST_USE sl_status sl__session_feed(sl_session *s, const uint32_t *tokens, size_t n,
                                       bool (*progress)(void *user, uint64_t done, uint64_t total),
                                       void *user, sl_error *err);
/* Logits of the last token fed. */
const float *sl__session_logits(const sl_session *s);

#endif
