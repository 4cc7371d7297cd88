/* The plan: a budget, a context and the numbers of a model in; the size of every account out.
 *
 * Arithmetic only: no I/O, no allocation, no clock. `open` reserves exactly what this computes, by the
 * same *_bytes() functions, so that plan and allocation cannot disagree (docs/memory.md). */
#ifndef SL_PLAN_PLAN_H
#define SL_PLAN_PLAN_H

#include "store/store.h"

typedef enum sl_account_id {
    SL_ACCOUNT_CODE,      /* program and libraries, their data, the main stack */
    SL_ACCOUNT_THREADS,   /* stacks of our threads */
    SL_ACCOUNT_KERNEL,    /* what the kernel holds for us: page tables, thread structures, rings */
    SL_ACCOUNT_TRUNK,     /* non-expert weights in memory, tables, strips of streamed tensors */
    SL_ACCOUNT_EMBEDDING, /* rows on their way and rows kept; all only once every expert has a slot */
    SL_ACCOUNT_HEAD,      /* the output head, when in memory */
    SL_ACCOUNT_KV,        /* key/value cache */
    SL_ACCOUNT_STATE,     /* recurrent state */
    SL_ACCOUNT_SCRATCH,   /* activations of a chunk, logits, sampler */
    SL_ACCOUNT_RING,      /* experts on their way through */
    SL_ACCOUNT_HOT,       /* experts that stay */
    SL_ACCOUNT_TEXT,      /* tokenizer, template, prompt text */
    SL_ACCOUNT_SNAPSHOTS, /* copies of states, for sequences that begin alike */
    SL_ACCOUNT_SERVER,    /* the caller's own: of a server connections, requests and answers */
    SL_ACCOUNT_RESERVE,   /* the kernel charges in batches: left free */
    SL_ACCOUNT_COUNT
} sl_account_id;

const char *sl_account_name(sl_account_id id);
const char *sl_account_purpose(sl_account_id id);

typedef struct sl_plan_input {
    const sl_store *store; /* numbers only */
    uint64_t budget_bytes;
    uint32_t n_ctx;              /* resolved: 1 .. model's maximum */
    uint32_t n_threads;          /* resolved: >= 1 */
    uint32_t chunk;              /* 0: chosen here */
    uint32_t n_cpus;             /* in the affinity mask, for the reserve */
    bool process;                /* the budget covers code and caller's buffers as well */
    uint64_t code_bytes;         /* measured; counted when process */
    uint64_t thread_stack_bytes; /* of all compute threads but the caller's */
    uint64_t reader_bytes;       /* of the I/O reader */
    uint64_t kernel_bytes;       /* the kernel's own for threads and reader */
    uint64_t engine_bytes;       /* the engine's own structures */
    uint64_t snapshot_bytes;     /* as asked for; less than a history of n_ctx tokens: none */
    uint64_t server_bytes;       /* the caller's own */
} sl_plan_input;

typedef struct sl_plan_result {
    uint64_t account[SL_ACCOUNT_COUNT];
    uint64_t total_bytes, budget_bytes, smallest_bytes;
    uint32_t n_ctx, n_threads, chunk;
    uint32_t ring_slots, hot_slots;
    uint32_t row_buffers;      /* embedding rows in flight */
    uint64_t row_buffer_bytes; /* of one, a multiple of SL_PAGE */
    uint64_t ring_bytes;  /* of the ring's memory, which serves to prepare weights while opening */
    uint32_t row_cache;   /* embedding rows kept in memory; the vocabulary: all of them */
    uint64_t strip_bytes; /* of one strip buffer (there are two), 0: nothing streams */
    uint64_t text_max;    /* longest rendered prompt */
    uint64_t text_workspace_bytes;
    uint32_t n_streamed;
    uint64_t streamed_bytes; /* read for trunk and head for every token or chunk, in whole pages */
    uint64_t token_read_bytes_low, token_read_bytes_high;
    uint64_t kernel_fixed_bytes; /* the kernel account without page tables */
    uint64_t
        open_bytes; /* peak of opening a checkpoint in place, before the accounts are there; 0: a store */
} sl_plan_result;

/* Solve. resident [store->n_tensors] receives 1 for every tensor that is kept in memory; it may be NULL.
 * Order of value: what an answer cannot do without; then trunk tensors in order of use, the head
 * last (a trunk byte is used once per token, a cached expert's byte about a sixth of that); then whole
 * hot slots; and when every expert has one, the embedding table, of which a token uses one row.
 * SL_ERR_BUDGET: *out has total_bytes 0 and smallest_bytes; the message says what is needed, which
 * accounts it goes to, and a context that would fit. */
SL_MUST_USE sl_status sl_plan_solve(const sl_plan_input *in, sl_plan_result *out, uint8_t *resident,
                                    sl_error *err);

/* ---- sizes that the plan and the engine share ------------------------------------------------- */

/* Tables of the weights (sl_weight, sl_layer_weights), in the trunk account. */
uint64_t sl_plan_weight_table_bytes(const sl_store *store);
/* Memory of one trunk tensor that is in memory. */
uint64_t sl_plan_tensor_bytes(const sl_store_tensor *tensor);
/* True when a tensor can pass through in strips instead of staying. */
bool sl_plan_tensor_can_stream(const sl_store_tensor *tensor);
/* A tensor that streams passes through in strips of so many rows. A strip's codes, scales and biases are
 * three runs of whole pages. */
#define SL_STRIP_PARTS 3u
uint32_t sl_plan_strip_rows(const sl_matrix_layout *layout, uint32_t n_rows, uint64_t strip_bytes);
/* Bytes that are read to stream it once. */
uint64_t sl_plan_streamed_bytes(const sl_store_tensor *tensor, uint64_t strip_bytes);
/* Pages around one row of the embedding: of each of its parts, in place. */
uint64_t sl_plan_row_buffer_bytes(const sl_store *store);
/* Rows kept, with their ids. */
uint64_t sl_plan_row_cache_bytes(const sl_store *store, uint32_t n_rows);
/* Experts of all layers. */
uint64_t sl_plan_n_experts(const sl_store *store);
/* Tables of the hot tier, for n slots. */
uint64_t sl_plan_hot_table_bytes(const sl_store *store, uint32_t n_slots);
/* The sampler's working memory. */
uint64_t sl_plan_sampler_bytes(const sl_model *model);
/* Tree and source of the chat template once parsed. */
uint64_t sl_plan_template_bytes(const sl_store *store);

#endif
