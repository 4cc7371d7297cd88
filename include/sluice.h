/* Sluice: Mixture-of-Experts language models inside a memory budget.
 *
 * The whole public face. Four sections: the engine (plan, open, session, generate, telemetry), model
 * tools (convert, show, verify, logits, remove, doctor), measuring (traces and benchmarks) and text tools
 * (tokenize, chat template).
 *
 * Conventions
 * - Functions that can fail return an sl_status and fill a caller-owned sl_error (sluice/status.h; may
 *   be NULL). On failure out-parameters hold NULL or zeros and nothing needs releasing.
 * - Text is UTF-8. Paths are what open(2) takes. Strings are NUL-terminated unless a length goes along.
 * - The library never prints, exits, aborts on input, or installs signal handlers.
 * - Options structs are set up by their _init function and then changed; a zero means the default.
 * - Threads: functions without an object may run on any thread. Threads that the library starts block all
 *   signals. An engine and its session belong to
 *   one thread at a time, except for sl_session_cancel(), sl_engine_telemetry(), sl_engine_layers() and
 *   sl_engine_used(), which any thread may call while another one works.
 *
 * A minimal program is examples/minimal.c. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0". */
SL_PUBLIC const char *sl_version(void);

/* Receives output text in pieces. Return false to stop (the call then ends with SL_ERR_CANCELED). */
typedef struct sl_sink {
    bool (*write)(void *user, const char *bytes, size_t n);
    void *user;
} sl_sink;

/* Progress of long work. total is 0 where it is not known. Return false to stop. */
typedef enum sl_phase {
    SL_PHASE_OPEN,    /* bytes of trunk, embedding and text */
    SL_PHASE_PREFILL, /* tokens of the prompt */
    SL_PHASE_CONVERT, /* bytes of the checkpoint */
    SL_PHASE_VERIFY,  /* bytes of the store */
} sl_phase;
typedef struct sl_progress {
    bool (*report)(void *user, sl_phase phase, uint64_t done, uint64_t total);
    void *user;
} sl_progress;

/* ============================================================================================
 * Engine
 * ============================================================================================ */

typedef struct sl_engine sl_engine;   /* an opened model under a plan */
typedef struct sl_session sl_session; /* one mutable sequence of tokens */

typedef enum sl_scope {
    SL_SCOPE_ENGINE, /* the budget covers what the engine allocates and causes */
    /* The budget covers everything this process holds: code, stacks, the rest. For small budgets the calling
     * thread, and those it starts from then on, are kept to as many processors as compute: each one costs
     * reserve. */
    SL_SCOPE_PROCESS,
} sl_scope;

typedef enum sl_io {
    SL_IO_AUTO, /* io_uring where the kernel allows it, else pread */
    SL_IO_URING,
    SL_IO_PREAD,
} sl_io;

typedef struct sl_engine_options {
    uint64_t mem_bytes; /* the budget; 0: sl_default_mem_bytes() */
    sl_scope scope;
    uint32_t n_ctx;     /* positions of the session; 0: 4096 or the model's maximum, if smaller */
    uint32_t n_threads; /* threads that compute, the caller's included; 0: physical cores allowed */
    uint32_t chunk;  /* tokens of a prefill chunk; 0: chosen by the plan. Never changes results */
    sl_io io;        /* never changes results */
    const char *cpu; /* "ref", "avx2", "avx512", "neon"; NULL: the best. Never changes results */
    bool buffered;   /* allow reads through the page cache where direct I/O is not true */
    uint64_t snapshot_bytes; /* for states of earlier sequences, see sl_session_rewind(); 0: none */
    uint64_t server_bytes;   /* what the caller holds beside the engine: an account of the plan */
    bool no_guesses;         /* read no expert before it is asked for. Never changes results */
} sl_engine_options;

SL_PUBLIC void sl_engine_options_init(sl_engine_options *options);

/* The smaller of half of MemAvailable and 80% of the tightest memory cgroup limit. */
SL_PUBLIC uint64_t sl_default_mem_bytes(void);

/* One line of the plan. */
typedef struct sl_account {
    const char *name;    /* "trunk", "kv", ... (docs/memory.md); static */
    const char *purpose; /* one sentence for people; static */
    uint64_t bytes;      /* planned */
} sl_account;

#define SL_ACCOUNTS_MAX 16

typedef struct sl_plan_info {
    uint64_t budget_bytes;
    uint64_t total_bytes; /* sum of the accounts, <= budget_bytes */
    uint64_t
        smallest_bytes; /* the smallest budget that works with these options (n_ctx included) */
    uint32_t n_accounts;
    sl_account accounts[SL_ACCOUNTS_MAX];
    uint32_t n_ctx, n_ctx_model, n_threads, chunk;
    uint64_t model_bytes;          /* trunk, embedding, head and experts as stored */
    uint64_t expert_bytes;         /* one expert in its slot */
    uint32_t n_experts_total;      /* layers times experts */
    uint32_t n_experts_token;      /* experts that one token uses */
    uint32_t hot_slots;            /* experts that stay in memory */
    uint32_t ring_slots;           /* experts on their way through */
    uint32_t n_tensors_streamed;   /* trunk tensors that do not fit and are read for every chunk */
    uint64_t trunk_streamed_bytes; /* read again for every token of an answer */
    uint64_t token_read_bytes_low, token_read_bytes_high; /* expert and trunk reads of one token */
    uint64_t drive_bytes_per_second; /* measured at record size; 0: not measured */
    /* The model is a checkpoint that is used as it was downloaded, without checksums. Opening it takes open_bytes for a
     * moment, before the accounts are there; smallest_bytes is no less. */
    bool in_place;
    uint64_t open_bytes;
    double tokens_per_second_low,
        tokens_per_second_high; /* reads alone at that speed; 0: unknown */
    bool fits;
} sl_plan_info;

/* Plan without opening: arithmetic on the numbers of a model. model is a store, a checkpoint folder or
 * a config.json; with probe, the drive's direct read speed is measured where there is a store or
 * checkpoint (reads at most 64 MiB). SL_ERR_BUDGET when the budget is too small: *out is then filled
 * as well, with fits false and smallest_bytes; err names the account that does not fit. */
SL_PUBLIC sl_status sl_plan(const char *model, const sl_engine_options *options, bool probe,
                            sl_plan_info *out, sl_error *err);

/* Open a store, or a checkpoint in place (sl_model_runs_in_place()). Everything the engine will ever hold is reserved and faulted in here; what does not fit
 * is refused with SL_ERR_BUDGET before anything is touched; so is a plan that the machine, or a memory control group of this
 * process, may not hold. progress may be NULL.
 * Errors: SL_ERR_MISSING (no store there), SL_ERR_CORRUPT, SL_ERR_BUDGET, SL_ERR_UNSUPPORTED (also:
 * direct I/O is not true here and buffered is false), SL_ERR_IO, SL_ERR_MEMORY. */
SL_PUBLIC sl_status sl_engine_open(const char *store, const sl_engine_options *options,
                                   const sl_progress *progress, sl_engine **out, sl_error *err);
/* Accepts NULL. Sessions of the engine are closed with it. */
SL_PUBLIC void sl_engine_close(sl_engine *engine);

SL_PUBLIC void sl_engine_plan(const sl_engine *engine, sl_plan_info *out);

typedef struct sl_model_info {
    const char *family; /* "qwen3_5_moe" */
    const char *
        think_end; /* the mark that ends thinking, where the family's answers have one; else NULL */
    uint32_t n_layers, n_experts, n_experts_token, n_vocab, d_model, n_ctx_max;
    bool has_tokenizer, has_template;
    const char *cpu; /* kernel level in use */
    const char *io;  /* "io_uring" or "pread" */
    bool direct;     /* false: reads go through the page cache (options.buffered) */
} sl_model_info;
SL_PUBLIC void sl_engine_model(const sl_engine *engine, sl_model_info *out);

/* ---- text of an engine: the store's tokenizer and chat template, within the plan ------------- */

/* Marker tokens that are written in the text (such as <|im_end|>) are taken literally, as text from outside
 * should be; a rendered template needs them recognised. */
#define SL_TOKENIZE_PLAIN 1u
/* With what the tokenizer puts around a prompt that stands by itself, such as a BOS. Not for a rendered
 * template, which writes that itself. */
#define SL_TOKENIZE_WHOLE 2u

/* Text to tokens. flags: SL_TOKENIZE_*. At most cap ids are written; *n is the
 * number needed. Errors: SL_ERR_CONTEXT when n > cap, SL_ERR_STATE without a tokenizer, SL_ERR_MEMORY for a
 * single word that is longer than the plan's text account holds. */
SL_PUBLIC sl_status sl_engine_tokenize(sl_engine *engine, const char *text, size_t len,
                                       unsigned flags, uint32_t *ids, size_t cap, size_t *n,
                                       sl_error *err);
/* Render the chat template for a JSON object {"messages": [...], "tools": [...],
 * "add_generation_prompt": true, "enable_thinking": false, ...} into out: less than cap bytes, and a NUL
 * that *n does not count. Errors: SL_ERR_SYNTAX (JSON), SL_ERR_ARGUMENT (the template's own complaint, or a
 * message with parts that are not text), SL_ERR_CONTEXT (longer than cap), SL_ERR_MEMORY (more values than
 * the text account holds), SL_ERR_STATE without a template. */
SL_PUBLIC sl_status sl_engine_render(sl_engine *engine, const char *json, size_t len, char *out,
                                     size_t cap, size_t *n, sl_error *err);
typedef struct sl_token_info {
    const char *bytes; /* not NUL-terminated, may be part of a character; as long as the engine */
    size_t len;
    bool special; /* a marker: no text of an answer */
    bool end;     /* ends an answer */
} sl_token_info;
/* False when there is no such token, or no tokenizer. Any thread. */
SL_PUBLIC bool sl_engine_token(const sl_engine *engine, uint32_t id, sl_token_info *out);
/* The text with which an answer in this model's form begins a tool call, as far as what the model has to decide: the
 * function's name, or with a name its arguments. For sl_generate_request.opening. *json: the arguments follow as a JSON
 * object; else in a form of the family's own. False for a model whose template has no calls, or when it does not fit
 * cap (a NUL is added). */
SL_PUBLIC bool sl_engine_call_opening(const sl_engine *engine, const char *name, char *out,
                                      size_t cap, bool *json);
/* What follows the name in that text: it tells where a name ends. "" without calls. Static. */
SL_PUBLIC const char *sl_engine_call_name_end(const sl_engine *engine);
/* Longest rendered prompt, in bytes, that the plan holds; callers size their buffers with it. */
SL_PUBLIC size_t sl_engine_text_max(const sl_engine *engine);

/* ---- session ---------------------------------------------------------------------------------- */

/* Take the engine's session slot (one in this version). Errors: SL_ERR_STATE when it is taken. */
SL_PUBLIC sl_status sl_session_open(sl_engine *engine, sl_session **out, sl_error *err);
SL_PUBLIC void sl_session_close(sl_session *session);
/* Forget all tokens. */
SL_PUBLIC void sl_session_reset(sl_session *session);
/* Tokens in the session so far. */
SL_PUBLIC uint32_t sl_session_length(const sl_session *session);

/* Make the session hold the longest beginning of tokens [n] that is known, shorter than n, and return its length: from
 * what it holds already, or from a snapshot. 0 leaves it empty. Feed the rest afterwards; the logits are those of a session that
 * was fed everything. */
SL_PUBLIC uint32_t sl_session_rewind(sl_session *session, const uint32_t *tokens, size_t n);
/* Keep a snapshot of the session for sl_session_rewind(): where later sequences are likely to branch off. The ones used
 * longest ago make room. False when it is larger than options.snapshot_bytes. Copies n tokens' worth of state. */
SL_PUBLIC bool sl_session_keep(sl_session *session);

/* Append tokens and compute them (prefill). Afterwards sl_session_logits() holds the logits of the last
 * one. Errors: SL_ERR_CONTEXT (nothing was appended), SL_ERR_CANCELED, SL_ERR_IO and SL_ERR_CORRUPT
 * (the session is reset; a cancel that came before the call leaves it as it was, and one during a call for a single
 * token of an answer lets that end, unless it takes more than 2 seconds), SL_ERR_ARGUMENT (a token outside the
 * vocabulary; nothing was appended), SL_ERR_BUDGET (a control group of this process may no longer hold what the plan
 * does: looked at once a second at most, before the call, which then appends nothing, and between chunks of a prompt,
 * after which the session is reset). */
SL_PUBLIC sl_status sl_session_feed(sl_session *session, const uint32_t *tokens, size_t n,
                                    const sl_progress *progress, sl_error *err);
/* [n_vocab] f32, valid until the next feed or generate; NULL before the first feed. */
SL_PUBLIC const float *sl_session_logits(const sl_session *session);

typedef struct sl_sampling {
    float temperature;      /* 0: greedy */
    uint32_t top_k;         /* 0: off */
    float top_p;            /* 1: off */
    float min_p;            /* 0: off */
    float presence_penalty; /* subtracted from the logit of every token already in the answer */
    float
        repeat_penalty; /* 1: off; divides (multiplies) positive (negative) logits of tokens seen */
    uint64_t seed;      /* keys a counter-based generator together with the position */
    float frequency_penalty; /* subtracted for each time that a token is in the answer */
    const uint32_t
        *bias_ids; /* [n_bias] tokens, and what is added to their logits; good while generating */
    const float *bias;
    size_t n_bias;
} sl_sampling;

/* What the model's generation_config.json asks for; greedy where it says nothing. */
SL_PUBLIC void sl_engine_sampling(const sl_engine *engine, sl_sampling *out);

typedef enum sl_piece {
    SL_PIECE_TEXT,      /* the answer */
    SL_PIECE_REASONING, /* thinking */
    SL_PIECE_TOOL_CALL, /* one complete call as JSON: {"name": ..., "arguments": {...}} */
} sl_piece;

typedef enum sl_finish {
    SL_FINISH_STOP,       /* an end token or a stop string */
    SL_FINISH_LENGTH,     /* max_tokens, or the context is full (then context_full is set) */
    SL_FINISH_CANCEL,     /* sl_session_cancel(), or a callback returned false */
    SL_FINISH_TOOL_CALLS, /* an end token after at least one tool call */
} sl_finish;

/* What the next token of an answer belongs to, as far as can be told. Without parsing all is text. */
typedef enum sl_place {
    SL_PLACE_TEXT,
    SL_PLACE_REASONING,
    SL_PLACE_OTHER, /* a call, or the header of a message */
} sl_place;

/* Natural logarithms of the model's own probabilities, before temperature and all else. */
typedef struct sl_token_logprob {
    uint32_t token;
    float logprob;
} sl_token_logprob;
#define SL_TOP_LOGPROBS_MAX 20

typedef struct sl_generate_request {
    const uint32_t *prompt; /* appended to the session first; may be empty after a feed */
    size_t n_prompt;
    sl_sampling sampling;
    uint32_t max_tokens;     /* 0: until the context is full */
    const char *const *stop; /* strings that end the answer; they are not part of it */
    size_t n_stop;           /* at most 16 of at most 256 bytes */
    /* Split the answer into text, reasoning and tool calls. A prompt that ends with the mark that opens
     * thinking starts inside it. */
    bool parse;
    const char *tools_json; /* with parse: the tools' schemas, to type arguments; or NULL */
    /* Called on the caller's thread, with complete UTF-8 characters. Return false to stop. They run while
     * the engine promises not to allocate: no sl_ function that opens, converts or inspects may be called. */
    bool (*on_piece)(void *user, sl_piece kind, const char *bytes, size_t n);
    /* Every generated token, the end token excluded. */
    bool (*on_token)(void *user, uint32_t token);
    /* Tokens that the answer begins with: fed behind the prompt, passed to the callbacks, not sampled. */
    const uint32_t *opening;
    size_t n_opening;
    /* Before a token is sampled: which ones may be. Sets *bits to words in which bit id % 32 of word id / 32
     * allows a token (at least one, of n_vocab), or to NULL for all. Return false to stop. Called for the same
     * position once. */
    bool (*on_mask)(void *user, sl_place place, const uint32_t **bits);
    /* Of each sampled token, before on_token: its logprob and the n_top most likely ones, best first. */
    bool (*on_logprobs)(void *user, const sl_token_logprob *token, const sl_token_logprob *top,
                        size_t n_top);
    uint32_t n_top; /* at most SL_TOP_LOGPROBS_MAX */
    void *user;
    const sl_progress *progress; /* of the prompt */
} sl_generate_request;

typedef struct sl_generate_result {
    sl_finish finish;
    bool context_full;
    bool stop_string; /* FINISH_STOP: by stop[stop_index], not by an end token */
    uint32_t stop_index;
    uint32_t n_prompt;    /* tokens that were fed */
    uint32_t n_generated; /* the end token excluded; the opening included */
    double prefill_seconds, decode_seconds;
} sl_generate_result;

SL_PUBLIC void sl_generate_request_init(const sl_engine *engine, sl_generate_request *request);

/* Feed the prompt, then sample and feed until something ends the answer. The last sampled token is not
 * fed. result is filled on success, also when cancelled: a cancel within the answer leaves a session that
 * can go on, one within the prompt, or within a token that takes more than 2 seconds longer, leaves it empty
 * (sl_session_length() tells). Errors: as
 * sl_session_feed; SL_ERR_ARGUMENT; SL_ERR_STATE without a tokenizer. */
SL_PUBLIC sl_status sl_session_generate(sl_session *session, const sl_generate_request *request,
                                        sl_generate_result *result, sl_error *err);
/* Ask the running call of this session to stop: a prompt within the time of a few reads, or of what a layer computes for a
 * chunk; an answer within a token, and at latest 2 seconds and as much later. Any thread, and async-signal-safe. Without a running call the next one stops at once. */
SL_PUBLIC void sl_session_cancel(sl_session *session);

/* ---- telemetry -------------------------------------------------------------------------------- */

typedef struct sl_telemetry {
    uint64_t tokens_prefilled, tokens_decoded;
    uint64_t hits,
        reads; /* expert uses found in memory; experts read because they were asked for */
    /* Experts read early; of these, those that were asked for then, and those whose slot was taken before. */
    uint64_t guess_reads, guesses_used, guesses_wasted;
    uint64_t read_bytes; /* all bytes read since open began, trunk and rows included */
    uint64_t expert_read_bytes, trunk_read_bytes, embedding_read_bytes, open_read_bytes;
    double open_seconds, prefill_seconds, decode_seconds;
    double wait_seconds; /* the computing thread waited for the drive */
    /* What the drive delivers while it reads: bytes, and the seconds in which at least one of their reads was under
     * way, since open. Reads whose end nobody waited for are in neither: when they ended is not known. Beside it, what it
     * gave while the model was opened, in larger reads one at a time: a drive that has turned slow since shows. A plan
     * that is probed and sl_measure_machine() measure what it can at best. */
    uint64_t drive_bytes, drive_open_bytes;
    double drive_seconds, drive_open_seconds;
    double mixer_seconds, router_seconds, experts_seconds, head_seconds;
} sl_telemetry;
SL_PUBLIC void sl_engine_telemetry(const sl_engine *engine, sl_telemetry *out);

/* How experts of one layer were come by since open. Uses of the layer: hits + reads + guesses_used. */
typedef struct sl_layer_use {
    uint64_t hits, reads;               /* found in memory; read because they were asked for */
    uint64_t guess_reads, guesses_used; /* read early; of these, those that were asked for then */
} sl_layer_use;
/* Of the first cap layers (layers without experts count nothing); returns the model's number of layers. Any thread, also
 * in the middle of a token. */
SL_PUBLIC uint32_t sl_engine_layers(const sl_engine *engine, sl_layer_use *out, uint32_t cap);

/* What the kernel says about this process, beside the plan. Reads /proc; not for every token. */
typedef struct sl_memory_info {
    uint64_t budget_bytes, planned_bytes;
    uint64_t peak_bytes; /* max(VmHWM + VmPTE + kernel estimate, the peak of our own cgroup) */
    uint64_t rss_bytes, rss_peak_bytes, page_table_bytes, kernel_bytes;
    uint64_t cgroup_peak_bytes; /* 0: no cgroup of our own */
} sl_memory_info;
SL_PUBLIC sl_status sl_engine_memory(const sl_engine *engine, sl_memory_info *out, sl_error *err);
/* Bytes of each account of the plan (as sl_engine_plan() orders them) that hold something now: experts in the hot tier, positions
 * of the context, snapshots. What is used whole, or only the kernel knows, counts as planned; what is left free as 0;
 * `server` as planned. Any thread; the figures are those of the last token or chunk. */
SL_PUBLIC void sl_engine_used(const sl_engine *engine, uint64_t used[SL_ACCOUNTS_MAX]);

/* ============================================================================================
 * Model tools
 * ============================================================================================ */

/* Where a model lives. A name with a slash, or one that exists as a folder (or as a .json, .jinja or GGUF
 * file, for the calls that take one), is a path; any other is
 * looked for under $SLUICE_HOME/models, by default the XDG data folder (~/.local/share/sluice).
 * Writes the path into out (cap bytes). Does not check that it exists. */
SL_PUBLIC sl_status sl_model_path(const char *model, char *out, size_t cap, sl_error *err);
/* The models folder itself. */
SL_PUBLIC sl_status sl_models_folder(char *out, size_t cap, sl_error *err);

typedef enum sl_model_kind {
    SL_MODEL_NONE,       /* nothing there, or nothing of ours */
    SL_MODEL_STORE,      /* a converted model */
    SL_MODEL_CHECKPOINT, /* a folder with config.json and safetensors files */
    SL_MODEL_CONFIG,     /* a config.json */
    SL_MODEL_PARTIAL,    /* an unfinished conversion */
    SL_MODEL_OTHER,      /* recognised and not supported (GGUF, PyTorch pickles, ...) */
} sl_model_kind;
SL_PUBLIC sl_model_kind sl_model_kind_of(const char *path);
/* Can a checkpoint folder be opened by sl_engine_open() as it is? Errors: SL_ERR_UNSUPPORTED (it has to be converted: the
 * message says why), and those of reading it. */
SL_PUBLIC sl_status sl_model_runs_in_place(const char *path, sl_error *err);

typedef struct sl_convert_options {
    uint32_t bits;  /* codes of unquantized weights: 2, 3, 4, 5, 6, 8; 0: 4 */
    uint32_t group; /* 32, 64, 128; 0: 64 */
    bool force;     /* replace an existing destination (a store of ours only) */
    /* Take no second copy: what is converted is given back to the drive, and the checkpoint's tensor files are removed in
     * the end. A run that is stopped goes on by the same call, and by nothing else. Not with force. */
    bool move;
} sl_convert_options;
SL_PUBLIC void sl_convert_options_init(sl_convert_options *options);

/* What a conversion found, for the caller to tell. */
typedef struct sl_convert_report {
    uint64_t source_bytes, store_bytes, peak_bytes;
    double seconds;
    bool resumed;
    uint32_t n_tensors, n_experts, n_skipped; /* skipped: vision, MTP */
    bool has_tokenizer, has_template;
    char notes[1024]; /* lines of text: what was left out and why; may be "" */
} sl_convert_report;

/* Convert a checkpoint folder into a store; report may be NULL. Works in dst + ".partial", which a later call continues
 * after checking that the source is the same; the result appears by rename.
 * Errors: SL_ERR_EXISTS, SL_ERR_UNSUPPORTED, SL_ERR_CORRUPT, SL_ERR_IO, SL_ERR_CANCELED, SL_ERR_MISSING. */
SL_PUBLIC sl_status sl_convert(const char *src, const char *dst, const sl_convert_options *options,
                               const sl_progress *progress, sl_convert_report *report,
                               sl_error *err);

/* Describe a store, a checkpoint or a config.json: for people, or as one JSON object. */
SL_PUBLIC sl_status sl_show(const char *model, bool json, const sl_sink *sink, sl_error *err);

/* Check every checksum of a store. Damage is reported line by line to sink and ends, after everything
 * was looked at, with SL_ERR_CORRUPT; *n_damaged counts it. */
SL_PUBLIC sl_status sl_verify(const char *store, const sl_progress *progress, const sl_sink *sink,
                              uint32_t *n_damaged, sl_error *err);

/* Logits of a forced token sequence, for holding the engine against others.
 * out: [n][n_vocab] f32 rows go to logits, then hidden states [n_layers+1][n][d_model] (the embeddings,
 * then the residual stream after each layer) to hidden, which may be NULL (they are kept on the heap
 * until the end: n * (n_layers + 1) * d_model * 4 bytes outside the budget). Resets the session. */
SL_PUBLIC sl_status sl_logits(sl_session *session, const uint32_t *tokens, size_t n,
                              const sl_sink *logits, const sl_sink *hidden, sl_error *err);

/* Remove a store or an unfinished conversion: only files that a conversion makes; anything else in the
 * folder is left, and then the folder too (SL_ERR_EXISTS, naming what is left). A symbolic link is refused
 * before anything is removed (SL_ERR_EXISTS). */
SL_PUBLIC sl_status sl_model_remove(const char *path, sl_error *err);

/* The machine as the engine sees it, for people or as JSON; path names the drive (a model or folder). */
SL_PUBLIC sl_status sl_doctor(const char *path, bool json, const sl_sink *sink, sl_error *err);

/* ============================================================================================
 * Measuring
 * ============================================================================================ */

/* Compute a forced token sequence and write which experts each token picks, layer by layer, and the guesses that
 * the layer before makes, into a file (docs/format.md). Resets the session. Takes the shape of one chunk's picks from the
 * heap, outside the budget. Errors: as sl_session_feed; SL_ERR_UNSUPPORTED for a model without experts;
 * SL_ERR_IO for the file, which is no trace then. */
SL_PUBLIC sl_status sl_trace_record(sl_session *session, const uint32_t *tokens, size_t n,
                                    const char *path, const sl_progress *progress, sl_error *err);

typedef struct sl_trace sl_trace; /* in memory, checked */
typedef struct sl_trace_info {
    uint32_t n_tokens, n_layers, n_experts, n_experts_token; /* layers: those with experts */
    uint32_t n_guesses;                                      /* of a layer, at most */
    uint64_t expert_bytes;                                   /* of a slot */
    uint64_t fixed_bytes; /* what the plan spent beside slots for experts, when this was recorded */
} sl_trace_info;

/* Errors: SL_ERR_MISSING, SL_ERR_IO, SL_ERR_MEMORY, SL_ERR_UNSUPPORTED (another version), SL_ERR_CORRUPT. */
SL_PUBLIC sl_status sl_trace_open(const char *path, sl_trace **out, sl_trace_info *info,
                                  sl_error *err);
/* Accepts NULL. */
SL_PUBLIC void sl_trace_close(sl_trace *trace);

typedef enum sl_replay_policy {
    SL_REPLAY_OURS, /* what the engine does */
    SL_REPLAY_LRU,  /* the last use longest ago makes room */
    SL_REPLAY_LFU,  /* the fewest uses so far makes room */
    SL_REPLAY_BELADY, /* the next use furthest away makes room: no policy reads less without guessing */
    SL_REPLAY_POLICIES
} sl_replay_policy;

typedef struct sl_replay_setup {
    sl_replay_policy policy;
    uint32_t n_slots; /* for experts, in all; more than a token's experts of a layer */
    uint32_t
        ring_slots; /* OURS: of these, for experts on their way through; at least a token's experts of a layer */
    uint32_t guess_width; /* OURS: experts read ahead before each layer, at most */
    uint32_t warm;        /* tokens that fill the slots before counting begins */
} sl_replay_setup;

/* Sums over the tokens that count. uses = hits + demand + guesses_used. */
typedef struct sl_replay_counts {
    uint64_t n_tokens, uses, hits, demand;
    uint64_t guess_reads, guesses_used;
} sl_replay_counts;

/* What the policy would have had to read; reads take no time. Errors: SL_ERR_ARGUMENT, SL_ERR_MEMORY. */
SL_PUBLIC sl_status sl_trace_replay(const sl_trace *trace, const sl_replay_setup *setup,
                                    sl_replay_counts *out, sl_error *err);
/* The share of picks that are among the first `width` guesses of their layer; 0 without guesses. */
SL_PUBLIC double sl_trace_guessed(const sl_trace *trace, uint32_t width);

/* Drop a store's files from the page cache; *cached_bytes is what is left of them there (mincore), UINT64_MAX where
 * the kernel does not say. Errors: those of opening the store; SL_ERR_IO. */
SL_PUBLIC sl_status sl_model_uncache(const char *store, uint64_t *cached_bytes, sl_error *err);

/* What the machine can do at best, for holding the engine against: measured here, the median of three. */
typedef struct sl_machine_speeds {
    uint32_t n_threads;
    uint32_t record_bytes,
        depth; /* of the drive's reads: an expert, as many as the engine has under way */
    uint64_t drive_bytes_per_second; /* direct reads of a layer's experts, nothing else running */
    uint64_t drive_busy_bytes_per_second; /* while n_threads multiply and add */
    uint64_t memory_bytes_per_second;     /* n_threads sum up half a GiB */
} sl_machine_speeds;
/* Takes half a GiB of memory for the time. Errors: as sl_plan; SL_ERR_MEMORY. */
SL_PUBLIC sl_status sl_measure_machine(const char *store, const sl_engine_options *options,
                                       sl_machine_speeds *out, sl_error *err);

#define SL_READ_LOG_ENTRY_BYTES 16
/* Keep a list of all reads that the engine starts from now on, in a block of the caller's, aligned to 8 bytes and
 * SL_READ_LOG_ENTRY_BYTES for each read. A block that is written to before the engine is opened counts in a budget of
 * the whole process. */
SL_PUBLIC void sl_engine_log_reads(sl_engine *engine, void *block, size_t bytes);
typedef struct sl_reads_alone {
    uint64_t n_reads, n_lost, read_bytes; /* lost: the block was full */
    double seconds;
} sl_reads_alone;
/* End the list and make the same reads again, in the same order, by the engine's own reader and with as many under way
 * as it can have, without computing anything. What the reads overwrite are the experts in memory: an engine that
 * has done this is only good for telemetry and closing. Errors: SL_ERR_IO. */
SL_PUBLIC sl_status sl_engine_replay_reads(sl_engine *engine, sl_reads_alone *out, sl_error *err);

/* ============================================================================================
 * Text tools: without an engine and without a budget
 * ============================================================================================ */

typedef struct sl_tokenizer sl_tokenizer;

/* From a store, a checkpoint folder or a tokenizer.json. */
SL_PUBLIC sl_status sl_tokenizer_open(const char *path, sl_tokenizer **out, sl_error *err);
SL_PUBLIC void sl_tokenizer_close(sl_tokenizer *tokenizer);
/* flags: SL_TOKENIZE_*. *ids is allocated; release it with sl_free(). */
SL_PUBLIC sl_status sl_tokenizer_encode(sl_tokenizer *tokenizer, const char *text, size_t len,
                                        unsigned flags, uint32_t **ids, size_t *n, sl_error *err);
/* Ids are below this. */
SL_PUBLIC uint32_t sl_tokenizer_size(const sl_tokenizer *tokenizer);
/* False when there is no such token. `end` is not known here. The bytes live as long as the tokenizer. */
SL_PUBLIC bool sl_tokenizer_token(const sl_tokenizer *tokenizer, uint32_t id, sl_token_info *out);
/* The bytes of the tokens to sink, special tokens included, exactly as they are in the vocabulary. */
SL_PUBLIC sl_status sl_tokenizer_decode(sl_tokenizer *tokenizer, const uint32_t *ids, size_t n,
                                        const sl_sink *sink, sl_error *err);

/* Render a chat template (a store, a checkpoint folder or a .jinja file) for a JSON object as in
 * sl_engine_render(). */
SL_PUBLIC sl_status sl_template_render_file(const char *model, const char *json, size_t len,
                                            const sl_sink *sink, sl_error *err);

SL_PUBLIC void sl_free(void *block);

#ifdef __cplusplus
}
#endif
#endif
