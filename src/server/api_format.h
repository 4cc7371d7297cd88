/* The formats of the local server: a request body in, the bytes of an answer out. No HTTP and no engine in here.
 *
 * Four dialects: OpenAI chat completions, completions and responses (a subset), and Anthropic messages with its token
 * count. Each parses its body into one sl_api_request, and each writes the same events (sl_api_writer) as its own JSON
 * or server-sent events. docs/openapi.yaml is the manual of the bytes; what is refused there is refused here.
 *
 * Fields of a body come in three kinds: those that are read; those that change what the answer means and are not
 * supported, which are refused (unless they hold what happens anyway, such as "n": 1); and all others, which are ignored
 * and listed in sl_api_request.ignored for the log. null means absent.
 *
 * Memory: everything of a request lies in the caller's arena; a writer works in two blocks of the caller's. Nothing is
 * taken from the heap. Threads: no shared state, an object belongs to one thread at a time. */
#ifndef SL_SERVER_API_FORMAT_H
#define SL_SERVER_API_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "sluice/status.h"

typedef enum sl_api_dialect {
    SL_API_CHAT,         /* POST /v1/chat/completions */
    SL_API_COMPLETIONS,  /* POST /v1/completions */
    SL_API_RESPONSES,    /* POST /v1/responses */
    SL_API_MESSAGES,     /* POST /v1/messages */
    SL_API_COUNT_TOKENS, /* POST /v1/messages/count_tokens; answered by sl_api_write_count() */
    SL_API_DIALECTS
} sl_api_dialect;

typedef struct sl_api_text {
    const char *text; /* NUL-terminated besides; may hold NULs. NULL where there is none */
    size_t len;
} sl_api_text;

/* ---- errors ------------------------------------------------------------------------------------------------------ */

/* What went wrong, apart from how a dialect says it: HTTP status, OpenAI type and code, Anthropic type. */
#define SL_API_ERROR_LIST(X)                                                                       \
    X(INVALID, 400, "invalid_request_error", "invalid_value", "invalid_request_error")             \
    X(MISSING, 400, "invalid_request_error", "missing_required_parameter",                         \
      "invalid_request_error")                                                                     \
    X(UNSUPPORTED, 400, "invalid_request_error", "unsupported_parameter", "invalid_request_error") \
    X(PICTURE, 400, "invalid_request_error", "unsupported_content", "invalid_request_error")       \
    X(SCHEMA, 400, "invalid_request_error", "unsupported_schema", "invalid_request_error")         \
    X(SYNTAX, 400, "invalid_request_error", "invalid_json", "invalid_request_error")               \
    X(CONTEXT, 400, "invalid_request_error", "context_length_exceeded", "invalid_request_error")   \
    X(AUTH, 401, "authentication_error", "invalid_api_key", "authentication_error")                \
    X(FORBIDDEN, 403, "permission_error", "forbidden", "permission_error")                         \
    X(NOT_FOUND, 404, "invalid_request_error", "not_found", "not_found_error")                     \
    X(MODEL, 404, "invalid_request_error", "model_not_found", "not_found_error")                   \
    X(METHOD, 405, "invalid_request_error", "method_not_allowed", "invalid_request_error")         \
    X(TIMEOUT, 408, "timeout_error", "timeout", "timeout_error")                                   \
    X(TOO_LARGE, 413, "invalid_request_error", "request_too_large", "request_too_large")           \
    X(MEDIA_TYPE, 415, "invalid_request_error", "unsupported_media_type", "invalid_request_error") \
    X(BUSY, 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error")                    \
    X(INTERNAL, 500, "server_error", "internal_error", "api_error")                                \
    X(ANSWER_TOO_LARGE, 500, "server_error", "answer_too_large", "api_error")                      \
    X(UNAVAILABLE, 503, "server_error", "unavailable", "overloaded_error")

typedef enum sl_api_error_kind {
#define SL_API_ERROR_ENUM(name, status, type, code, anthropic) SL_API_ERR_##name,
    SL_API_ERROR_LIST(SL_API_ERROR_ENUM)
#undef SL_API_ERROR_ENUM
} sl_api_error_kind;

#define SL_API_PARAM_MAX 160

typedef struct sl_api_error {
    sl_api_error_kind kind;
    char param
        [SL_API_PARAM_MAX]; /* "messages[2].content[0].type"; "" where no parameter is at fault */
    char message[SL_ERROR_MESSAGE_MAX]; /* one line */
} sl_api_error;

/* Fill err; param may be NULL. Returns the sl_status that stands for kind, so that a caller can write
 * `return sl_api_fail(err, ...)`. */
sl_status sl_api_fail(sl_api_error *err, sl_api_error_kind kind, const char *param, const char *fmt,
                      ...) SL_PRINTF(4, 5);
/* An error of the engine: ARGUMENT, SYNTAX and UNSUPPORTED are the request's fault (400), and so is MEMORY (413): an open
 * engine asks for none, so an account is too small for this request. CONTEXT is 400, STATE 503, others are INTERNAL.
 * param as above. */
sl_status sl_api_fail_engine(sl_api_error *err, const char *param, const sl_error *cause);
/* A prompt that does not fit: 400 with both counts. n_wanted is max_tokens where the request set it, else 0: with it
 * prompt and answer do not fit together. */
sl_status sl_api_fail_context(sl_api_error *err, sl_api_dialect dialect, uint64_t n_prompt,
                              uint64_t n_wanted, uint64_t n_ctx);

int sl_api_error_http_status(const sl_api_error *err);
/* Whether sending the same request again can help: BUSY, TIMEOUT, UNAVAILABLE. Both vendors' clients read the header
 * "x-should-retry: true|false"; without it they repeat what got a 408, 409, 429 or 5xx. */
bool sl_api_error_retry(const sl_api_error *err);
/* The body of an error in the dialect's shape, appended to out:
 *   OpenAI     {"error":{"message":...,"type":...,"param":... or null,"code":...}}
 *   Anthropic  {"type":"error","error":{"type":...,"message":...}}, where the message begins with the parameter */
void sl_api_write_error(sl_api_dialect dialect, const sl_api_error *err, sl_buf *out);

/* ---- requests ---------------------------------------------------------------------------------------------------- */

#define SL_API_STOP_MAX 16
#define SL_API_STOP_BYTES_MAX 256
#define SL_API_BIAS_MAX 1024
#define SL_API_TOOLS_MAX 256
#define SL_API_TOOL_NAME_MAX 128
#define SL_API_TOP_LOGPROBS_MAX 20
#define SL_API_IGNORED_MAX 8

typedef enum sl_api_constraint {
    SL_API_CONSTRAINT_NONE,
    SL_API_CONSTRAINT_JSON_OBJECT,
    SL_API_CONSTRAINT_JSON_SCHEMA,
} sl_api_constraint;

typedef enum sl_api_tool_choice {
    SL_API_TOOL_AUTO, /* also where nothing was said */
    SL_API_TOOL_NONE, /* the template does not see the tools, and calls are not looked for */
    SL_API_TOOL_REQUIRED,
    SL_API_TOOL_NAMED, /* sl_api_request.named_tool */
} sl_api_tool_choice;

typedef struct sl_api_bias {
    uint32_t token;
    float bias; /* -100 to 100 */
} sl_api_bias;

typedef struct sl_api_tool {
    sl_api_text name;   /* letters, digits and _-. */
    sl_api_text schema; /* JSON text of an object; {"type":"object","properties":{}} where none */
    bool strict;        /* "strict": true; Anthropic: the same */
} sl_api_tool;

/* Bits of sl_api_request.set: which of the fields the body gave. Others hold 0, and the default is the caller's. */
enum {
    SL_API_SET_TEMPERATURE = 1u << 0,
    SL_API_SET_TOP_P = 1u << 1,
    SL_API_SET_TOP_K = 1u << 2,
    SL_API_SET_MIN_P = 1u << 3,
    SL_API_SET_PRESENCE = 1u << 4,
    SL_API_SET_FREQUENCY = 1u << 5,
    SL_API_SET_REPEAT = 1u << 6,
    SL_API_SET_SEED = 1u << 7,
    SL_API_SET_MAX_TOKENS = 1u << 8,
    SL_API_SET_THINKING = 1u << 9, /* enable_thinking; the template's JSON says it as well */
    SL_API_SET_THINKING_BUDGET = 1u << 10, /* Anthropic's budget_tokens */
    SL_API_SET_PARALLEL = 1u << 11,
};

typedef struct sl_api_request {
    sl_api_dialect dialect;
    uint32_t set;
    sl_api_text model; /* as asked for; never NULL */
    bool stream;
    bool include_usage; /* chat and completions: a last chunk with the usage */

    /* The prompt, in one of three forms. Chat, responses, messages: `render`, the JSON object for sl_engine_render():
     *   {"messages":[...],"tools":[...],"add_generation_prompt":true,"enable_thinking":...,"reasoning_effort":...}
     * with tools, enable_thinking and reasoning_effort only where the request speaks of them, and the members of
     * chat_template_kwargs. Messages hold role (system, user, assistant, tool), content (always one string: the text
     * parts one after the other), and where given name, reasoning_content, tool_call_id, tool_calls
     * ([{"id","type":"function","function":{"name","arguments":{...}}}], arguments as an object).
     *   "developer" is written as "system". System texts that follow each other become one message, joined by a blank line.
     * Completions: `prompt`, or n_prompt_ids > 0. */
    sl_api_text render;
    sl_api_text prompt;
    const uint32_t *prompt_ids;
    size_t n_prompt_ids;

    float temperature, top_p, min_p, presence_penalty, frequency_penalty, repeat_penalty;
    uint32_t top_k;      /* 0: off */
    uint64_t seed;       /* a negative one is taken modulo 2^64 */
    uint32_t max_tokens; /* at least 1 */
    const sl_api_bias *bias;
    size_t n_bias;
    const char *const *stop; /* none is empty */
    const size_t *stop_len;
    size_t n_stop;

    bool logprobs;
    uint32_t n_top_logprobs;

    sl_api_constraint constraint;
    sl_api_text schema; /* JSON text of the schema, an object; with JSON_SCHEMA */
    /* The param of an error about it: "response_format.json_schema.schema"; with JSON_OBJECT the format's, "text.format". */
    const char *schema_path;

    const sl_api_tool *tools;
    size_t n_tools;
    sl_api_text tools_json; /* as sl_generate_request.tools_json takes it; also with NONE */
    const char *tools_path; /* "tools[%zu].function.parameters", for snprintf with an index */
    sl_api_tool_choice tool_choice;
    size_t named_tool;        /* index in tools; with NAMED */
    bool parallel_tool_calls; /* false: the caller ends the answer after the first call */

    bool enable_thinking;
    bool hide_reasoning; /* Anthropic's display: omitted; the writer drops thinking */
    uint32_t thinking_budget;

    /* Fields that were ignored: paths, for the log. n_ignored counts all, names holds the first ones. */
    const char *ignored[SL_API_IGNORED_MAX];
    size_t n_ignored;

    sl_api_text echo; /* responses: members of the response object that repeat the request */
} sl_api_request;

typedef struct sl_api_limits {
    uint32_t n_vocab; /* ids in logit_bias and prompts are below; 0: not checked */
    /* How to write an assistant message that has tool calls and no text: "content":null, or "". Most templates take "";
     * one that asks whether content is none needs null. */
    bool null_content;
} sl_api_limits;

/* Parse a body. Everything that *out points at lives in arena or is static; body may go afterwards.
 * Of the arena a body of text takes some four bytes for each of its own, one of small values ("[0,0,0") up to 40; one that
 * needs more than there is gets TOO_LARGE. On error *out is zeroed except for its dialect, and err (never NULL) names the
 * parameter. */
SL_MUST_USE sl_status sl_api_parse(sl_api_dialect dialect, const char *body, size_t len,
                                   const sl_api_limits *limits, sl_arena *arena,
                                   sl_api_request *out, sl_api_error *err);

/* POST /tokenize {"content": text, "add_special": bool, "parse_special": bool} ("text" and "prompt" are taken for
 * "content"); POST /detokenize {"tokens": [ids]}. Both as above. */
typedef struct sl_api_tokenize {
    sl_api_text content;
    bool add_special;   /* false unless given: SL_TOKENIZE_WHOLE */
    bool parse_special; /* true unless given: not SL_TOKENIZE_PLAIN */
} sl_api_tokenize;
SL_MUST_USE sl_status sl_api_parse_tokenize(const char *body, size_t len, sl_arena *arena,
                                            sl_api_tokenize *out, sl_api_error *err);
SL_MUST_USE sl_status sl_api_parse_detokenize(const char *body, size_t len, uint32_t n_vocab,
                                              sl_arena *arena, const uint32_t **ids, size_t *n,
                                              sl_api_error *err);

/* ---- answers ----------------------------------------------------------------------------------------------------- */

typedef struct sl_api_usage {
    uint32_t n_prompt;     /* tokens of the whole prompt */
    uint32_t n_cached;     /* of these, found in a snapshot and not computed */
    uint32_t n_completion; /* tokens of the answer, thinking included */
    uint32_t n_reasoning;  /* of these, thinking */
} sl_api_usage;

typedef enum sl_api_finish {
    SL_API_FINISH_STOP, /* an end token; with calls delivered, the dialect's word for tool calls */
    SL_API_FINISH_STOP_STRING, /* stop_string says which */
    SL_API_FINISH_LENGTH,      /* max_tokens */
    SL_API_FINISH_CONTEXT,     /* the context is full */
} sl_api_finish;

typedef struct sl_api_logprob {
    const char *bytes; /* of the token; need not be whole characters */
    size_t n;
    float logprob; /* natural; -inf is written as -9999 */
} sl_api_logprob;

/* What an answer says of itself. Strings must live as long as the writer. */
typedef struct sl_api_identity {
    uint8_t random[12]; /* makes the ids: chatcmpl-..., resp_..., msg_..., call_... */
    int64_t created;    /* seconds since 1970 */
    const char *model;  /* the name to answer with */
} sl_api_identity;

/* Do the arguments (a JSON object) fit the schema of request->tools[tool]? SL_OK; SL_ERR_ARGUMENT, and why (never NULL)
 * says what does not fit; any other error: it cannot be told. */
typedef sl_status sl_api_check_call(void *user, size_t tool, const char *arguments, size_t len,
                                    sl_error *why);
/* The check by constrain/check.h; user is an sl_api_checker. Each call gives back what it takes of scratch. */
typedef struct sl_api_checker {
    const sl_api_request *request;
    sl_arena *scratch; /* 1 MiB is ample without patterns: see there */
} sl_api_checker;
sl_api_check_call sl_api_check_schema;

/* Turns events into bytes. In stream mode each call appends whole server-sent events to out, which the caller sends and
 * clears when it likes. Otherwise the answer is collected, and sl_api_finish_answer() appends the whole body.
 *
 * Bounds: `store` collects what the end of the answer repeats: everything where there is no stream or the dialect is
 * responses, else only the logprobs that wait for their text. An event that would make the store, or the final body in
 * out, larger than they are is refused with ANSWER_TOO_LARGE and the limit in its message, at once and not at the end,
 * so that the caller can stop generating. Nothing of it was written; the answer can only be ended with
 * sl_api_write_failure(). */
typedef struct sl_api_writer {
    const sl_api_request *request;
    const sl_api_identity *identity;
    sl_buf *out;
    sl_buf store;
    sl_api_check_call *check; /* may be NULL: then the arguments are not looked at */
    void *check_user;
    /* For log and metrics. */
    uint32_t n_calls;           /* delivered */
    uint32_t n_calls_refused;   /* no such tool, or arguments that do not fit: delivered as text */
    uint32_t n_calls_unchecked; /* delivered, though `check` could not tell */
    sl_api_error call_refused;  /* the last one that was refused or not checked */
    /* Internal from here on. */
    sl_api_usage prompt_usage;
    bool began, ended, failed;
    uint8_t open;         /* kind of the block or item that is open in the stream, 0: none */
    uint32_t n_items;     /* blocks or items begun */
    uint32_t sequence;    /* responses: sequence_number of the next event */
    size_t item_at;       /* responses: where the open item begins in store */
    size_t logprobs_from; /* where the logprobs begin in store that are not sent yet */
    size_t last_at; /* the last record of store, SIZE_MAX: none; a piece of its kind extends it */
    size_t body_bytes;   /* an upper bound of the body so far */
    uint64_t text_chars; /* completions: characters of the tokens so far */
} sl_api_writer;

/* request, identity, out and store_block live as long as the writer. request->dialect is not COUNT_TOKENS. */
void sl_api_writer_init(sl_api_writer *writer, const sl_api_request *request,
                        const sl_api_identity *identity, sl_buf *out, void *store_block,
                        size_t store_bytes);

/* Events, in this order: progress*, begin, (text | reasoning | call | token)*, and one of finish_answer and write_failure
 * (which may come at any time). Text comes in whole characters. The logprobs of a token come before the text that the
 * token completes. Errors: SL_ERR_MEMORY, err filled, as said above. */

/* A chunk of the prompt was computed. A comment (": prefill 512/2048"), which clients skip; for Anthropic a ping goes
 * with it. Nothing without a stream. */
sl_status sl_api_write_prefill(sl_api_writer *writer, uint64_t done, uint64_t total,
                               sl_api_error *err);
/* usage: the prompt's counts, which Anthropic's stream tells first; the answer's are 0. */
sl_status sl_api_write_begin(sl_api_writer *writer, const sl_api_usage *usage, sl_api_error *err);
sl_status sl_api_write_text(sl_api_writer *writer, const char *bytes, size_t n, sl_api_error *err);
sl_status sl_api_write_reasoning(sl_api_writer *writer, const char *bytes, size_t n,
                                 sl_api_error *err);
/* One whole call. A call of a tool that the request does not have, or one that `check` refuses, is delivered as text
 * ({"name":...,"arguments":...}), as sl_answer does with what looks like a call and is none, and counted. */
sl_status sl_api_write_call(sl_api_writer *writer, const char *name, size_t name_len,
                            const char *arguments, size_t arguments_len, sl_api_error *err);
/* A token and its alternatives, most likely first; ignored unless the request asked for logprobs. More than
 * n_top_logprobs of them are not written. */
sl_status sl_api_write_token(sl_api_writer *writer, const sl_api_logprob *token,
                             const sl_api_logprob *top, size_t n_top, sl_api_error *err);
/* stop_string: with STOP_STRING, the one that was met; else NULL. */
sl_status sl_api_finish_answer(sl_api_writer *writer, sl_api_finish finish, const char *stop_string,
                               const sl_api_usage *usage, sl_api_error *err);
/* End with an error: in a stream as the dialect's event (also when out is full: the events in it that were not sent are
 * then dropped), otherwise as the error's body. out's cap must be at least SL_API_FAILURE_BYTES. */
#define SL_API_FAILURE_BYTES 8192
void sl_api_write_failure(sl_api_writer *writer, const sl_api_error *cause);

/* ---- the other routes -------------------------------------------------------------------------------------------- */

void sl_api_write_count(sl_buf *out, uint64_t n_tokens); /* {"input_tokens":n} */
void sl_api_write_tokens(sl_buf *out, const uint32_t *ids,
                         size_t n); /* {"tokens":[...],"count":n} */
void sl_api_write_content(sl_buf *out, const char *bytes, size_t n); /* {"content":"..."} */
/* GET /v1/models: one body that the clients of both vendors read. */
void sl_api_write_models(sl_buf *out, const char *const *names, size_t n, int64_t created,
                         uint32_t n_ctx);
/* GET /v1/models/NAME */
void sl_api_write_model(sl_buf *out, const char *name, int64_t created, uint32_t n_ctx);

/* A JSON string with its quotes whatever the bytes are: what is no UTF-8 becomes U+FFFD. */
void sl_api_add_string(sl_buf *out, const char *bytes, size_t n);

#endif
