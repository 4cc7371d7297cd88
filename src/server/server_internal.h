/* Shared by the sources of the server: its parts, and which thread touches them. */
#ifndef SL_SERVER_SERVER_INTERNAL_H
#define SL_SERVER_SERVER_INTERNAL_H

#include <pthread.h>

#include "base/sandbox.h"
#include "base/thread.h"
#include "constrain/constrain.h"
#include "server/api_format.h"
#include "server/http.h"
#include "server/server.h"

/* ---- sizes (server_plan.c) ---------------------------------------------------------------------- */

typedef struct sl_server_sizes {
    sl_http_options http; /* limits alone */
    uint32_t n_queue;
    uint64_t text_bytes;   /* a rendered prompt */
    uint64_t job_bytes;    /* arena of one request: parsed body, compiled schema */
    uint64_t out_bytes;    /* an answer's body, or events on their way */
    uint64_t vocab_bytes;  /* tokens as a trie; 0: answers cannot be held to a schema */
    uint64_t work_bytes;   /* masks */
    uint64_t mask_bytes;   /* which tokens are allowed */
    uint32_t n_masks;      /* cached */
    uint64_t arena_bytes;  /* of all that, HTTP's own part included */
    uint64_t server_bytes; /* the account: arena_bytes, and what HTTP makes others hold */
    uint64_t snapshot_bytes;
    uint64_t smallest_bytes; /* the smallest budget that works with these options; 0: not known */
} sl_server_sizes;

/* The numbers of a server for this budget. Errors: as sl_server_engine_options(). */
SL_MUST_USE sl_status sl__server_sizes(const sl_server_options *options, sl_server_sizes *out,
                                       sl_error *err);

/* ---- what there is to tell (status.c) ----------------------------------------------------------- */

typedef enum sl_server_phase {
    SL_SERVER_IDLE,
    SL_SERVER_PREPARE, /* a request is read, its prompt rendered */
    SL_SERVER_PREFILL,
    SL_SERVER_ANSWER,
} sl_server_phase;

/* Counters since the start, and what happens now. Under sl_server.mutex. */
typedef struct sl_server_state {
    sl_server_phase phase;
    uint64_t done, total; /* tokens of the prompt */
    uint32_t n_answered;  /* tokens of the answer so far */
    uint64_t n_requests, n_failed, n_refused_busy, n_gone;
    uint64_t n_prompt, n_cached, n_completion; /* tokens */
    uint64_t n_calls_refused, n_ignored_fields;
} sl_server_state;

#define SL_SERVER_STACK_BYTES (512 * SL_KIB)
#define SL_SERVER_WATCHER_STACK_BYTES (64 * SL_KIB)
#define SL_SERVER_WATCHERS_MAX 8u

/* ---- the server --------------------------------------------------------------------------------- */

struct sl_server {
    sl_server_options options;
    sl_server_sizes sizes;
    char name[256];
    int64_t started; /* seconds since 1970 */
    sl_arena arena;
    sl_sandbox_report walls;
    char sandbox[256]; /* what they are, in words */

    /* Set before the threads start; then of the worker, which runs the engine. Telemetry may be read by any. */
    sl_engine *engine;
    sl_session *session;
    sl_plan_info plan;
    sl_model_info model;
    sl_arena job;              /* of one request, reset before each */
    char *text, *other_text;   /* [text_bytes] */
    uint32_t *ids, *other_ids; /* [n_ctx + 1] */
    char *out, *store;         /* [out_bytes] */
    sl_vocab *vocab;           /* NULL: no constrained answers */
    sl_constraint_work *work;
    uint32_t *mask; /* [SL_CONSTRAINT_MASK_WORDS(n_vocab)] */

    sl_http_server *http;
    sl_thread worker, watcher;

    pthread_mutex_t mutex; /* guards all that follows */
    pthread_cond_t has_work, has_ended;
    sl_http_exchange **queue; /* [n_queue], a ring */
    uint32_t first, n_queued;
    sl_http_exchange *current; /* the worker's, while its client may be told apart from others */
    bool stopping;
    sl_server_state state;
    sl_http_exchange *watchers[SL_SERVER_WATCHERS_MAX];
    bool newcomers; /* among them: they are told at once, also if nothing is new */
};

/* A line for the log. Any thread. */
void sl__server_log(sl_server *s, bool is_error, const char *fmt, ...) SL_PRINTF(3, 4);

/* ---- routes (routes.c); the HTTP thread ---------------------------------------------------------- */

typedef enum sl_route_kind {
    SL_ROUTE_HEALTH,
    SL_ROUTE_MODELS,
    SL_ROUTE_MODEL,
    SL_ROUTE_METRICS,
    SL_ROUTE_MEMORY,
    SL_ROUTE_EVENTS,
    /* The worker's: */
    SL_ROUTE_GENERATE,
    SL_ROUTE_COUNT,
    SL_ROUTE_TOKENIZE,
    SL_ROUTE_DETOKENIZE,
} sl_route_kind;

typedef struct sl_route {
    const char *method, *path;
    sl_route_kind kind;
    sl_api_dialect dialect; /* also of its errors */
} sl_route;

/* The route of a request that has passed the checks. */
const sl_route *sl__route_of(const sl_http_request *request);
/* Fill the callbacks of the options. */
void sl__routes_init(sl_server *s, sl_http_options *http);
/* End a kept exchange with an error in its dialect's form, before anything else was sent. */
void sl__answer_error(sl_server *s, sl_http_exchange *x, sl_api_dialect dialect,
                      const sl_api_error *err);

/* ---- the worker (worker.c, generate.c) ----------------------------------------------------------- */

void sl__worker_main(void *server);
typedef enum sl_generated {
    SL_GENERATED_ERROR, /* nothing was sent, err says why */
    SL_GENERATED_BODY,  /* nothing was sent, body is to be */
    SL_GENERATED_SENT,  /* a stream, complete but for its end */
    SL_GENERATED_CUT,   /* a stream that ended early: the client left, or was too slow */
} sl_generated;
/* Compute what a request asks for. x is not ended here. body lies over s->out. */
sl_generated sl__generate(sl_server *s, sl_http_exchange *x, sl_api_dialect dialect, sl_buf *body,
                          sl_api_error *err);
void sl__set_phase(sl_server *s, sl_server_phase phase, uint64_t done, uint64_t total);

/* ---- holding an answer to a schema, or to a tool call (hold.c); the worker --------------------------- */

typedef enum sl_hold_stage {
    SL_HOLD_NOT,       /* every token is allowed */
    SL_HOLD_WAIT,      /* until the answer's own text begins: thinking is free */
    SL_HOLD_TEXT,      /* the text is a value of the schema */
    SL_HOLD_NAME,      /* a call: one of the tools' names */
    SL_HOLD_ARGUMENTS, /* a call: a value of the tool's schema; free behind it */
} sl_hold_stage;

typedef struct sl_hold {
    sl_server *server;
    const sl_api_request *request;
    sl_hold_stage stage;
    bool json_arguments; /* calls are written with a JSON object */
    const char *name_end;
    char name[2 * SL_API_TOOL_NAME_MAX]; /* as far as it is written */
    size_t n_name;
    uint32_t *opening; /* tokens that the answer begins with */
    size_t n_opening;
    sl_constraint *constraint;
    sl_constraint_state state;
    uint32_t think_tokens; /* thinking ends behind so many of them; 0: when the model likes */
    uint32_t think_end;    /* the token that ends it */
} sl_hold;

/* What the request asks for; compiles its schema and writes the opening, in the job's arena. */
SL_MUST_USE sl_status sl__hold_begin(sl_hold *h, sl_server *s, const sl_api_request *request,
                                     sl_api_error *err);
/* Whether the prompt has to go without thinking: the answer begins in its own text. */
bool sl__hold_skips_thinking(const sl_api_request *request);
/* Whether it has anything to say while the answer is generated. */
bool sl__hold_any(const sl_hold *h);
/* As sl_generate_request.on_mask, before token n_tokens (0: the first) of the answer. */
const uint32_t *sl__hold_mask(sl_hold *h, sl_place place, uint32_t n_tokens);
/* A token was chosen; end tokens are not told. */
void sl__hold_token(sl_hold *h, uint32_t token);

/* ---- the page (page.c); any thread ---------------------------------------------------------------- */

/* Whether a path is one of the page's files. Only exact names: no path is put together from a request. */
bool sl__page_has(const char *path);
/* Answer with the file of that name; false where there is none. */
bool sl__page_answer(sl_http_exchange *x, const sl_http_request *request);

/* ---- status (status.c) ---------------------------------------------------------------------------- */

void sl__status_metrics(sl_server *s, sl_buf *out);
void sl__status_memory(sl_server *s, sl_buf *out);
/* Sends events to those who watch, until the server stops. */
void sl__watcher_main(void *server);

#endif
