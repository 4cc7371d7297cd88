/* What the files of api_format.h share: reading fields by tables, conversations as lists of turns, and the parts of
 * answers. Names with two underscores are known in this folder alone. */
#ifndef SL_SERVER_API_INTERNAL_H
#define SL_SERVER_API_INTERNAL_H

#include "server/api_format.h"

/* ---- reading (api_fields.c) -------------------------------------------------------------------------------------- */

typedef struct api_turn api_turn;

typedef struct api_reader {
    sl_api_request *req; /* NULL for the small routes */
    const sl_api_limits *limits;
    sl_arena *arena;
    sl_api_error *err;
    const sl_json *body;
    /* Where the reader is, for errors. Cut at its size, with path_len the length of what is there. */
    char path[SL_API_PARAM_MAX];
    size_t path_len;
    api_turn *turns, *last_turn;
    const sl_json *template_args; /* chat_template_kwargs, an object; or NULL */
    const char *effort;           /* what the template is told; NULL: nothing */
} api_reader;

/* Go into a member or an element; the result is the mark to go back to. */
size_t sl__req_enter(api_reader *r, const char *key);
size_t sl__req_enter_index(api_reader *r, size_t index);
void sl__req_leave(api_reader *r, size_t mark);

/* An error about the place where the reader is. */
sl_status sl__req_fail(api_reader *r, sl_api_error_kind kind, const char *fmt, ...) SL_PRINTF(3, 4);
sl_status sl__req_wrong_type(api_reader *r, const sl_json *v, const char *expected);
sl_status sl__req_full(api_reader *r); /* the arena is too small */

/* Memory of the request, zeroed; NULL after sl__req_full(). */
void *sl__req_alloc(api_reader *r, size_t count, size_t size);
/* A copy of the path. NULL as above. */
const char *sl__req_path(api_reader *r);
/* Text that is put together at the end of the arena. Between the two nothing else may be taken from it. */
sl_status sl__req_text_begin(api_reader *r, sl_buf *buf);
sl_status sl__req_text_end(api_reader *r, sl_buf *buf, sl_api_text *out);

/* One field of an object. `into` is what the table's offsets are of. */
typedef struct api_field api_field;
typedef sl_status api_read(api_reader *r, const sl_json *v, const api_field *f, void *into);
struct api_field {
    const char *name;
    api_read *read;
    size_t offset;
    bool required;
    uint32_t set;        /* bits of sl_api_request.set */
    double min, max;     /* of numbers */
    const char *neutral; /* of sl__read_refused: a text that says what happens anyway */
};
typedef struct api_table {
    const api_field *fields;
    size_t n;
    const struct api_table *next; /* more fields of the same object */
} api_table;

/* Read v, an object, by its table, in the table's order; members that no table names are noted as ignored. */
sl_status sl__req_fields(api_reader *r, const sl_json *v, const api_table *table, void *into);

/* Readers for tables. */
api_read sl__read_node;  /* const sl_json * */
api_read sl__read_text;  /* sl_api_text */
api_read sl__read_bool;  /* bool */
api_read sl__read_float; /* float in [min, max] */
api_read sl__read_uint;  /* uint32_t in [min, max] */
/* A field that is not supported: refused unless false, empty, the number `min` or the text `neutral`. */
api_read sl__read_refused;

/* The text of a member "type", or NULL after an error. */
const char *sl__req_type(api_reader *r, const sl_json *v);
sl_status sl__req_note_ignored(api_reader *r, const char *key);
/* v, written as JSON. */
void sl__add_json(sl_buf *out, const sl_json *v);

/* ---- fields that several dialects have (api_shared.c) ------------------------------------------------------------ */

extern const api_table
    sl__table_sampling; /* of all, with what other servers call the same; then refused ones */
extern const api_table sl__table_openai; /* of chat and completions; then the sampling table */
api_read sl__read_stop;
api_read sl__read_ids; /* token ids: req->prompt_ids, n_prompt_ids */
api_read
    sl__read_thinking; /* {"type":"enabled"|"disabled"|"adaptive","budget_tokens":n,"display":...} */
api_read sl__read_effort;    /* "none", "minimal", ... */
api_read sl__read_reasoning; /* {"effort":...} */
api_read sl__read_switch;    /* true, false */
sl_status sl__req_thinking(api_reader *r, bool enable);
sl_status sl__req_effort(api_reader *r, const char *effort); /* of the template alone */

/* ---- tools and formats (api_tools.c) ----------------------------------------------------------------------------- */

api_read sl__read_tools_chat;      /* [{"type":"function","function":{"name",...}}] */
api_read sl__read_tools_responses; /* [{"type":"function","name",...}] */
api_read sl__read_tools_messages;  /* [{"name","description","input_schema"}] */
/* "auto", "none", "required" or an object. Read after the tools. */
api_read sl__read_tool_choice;
api_read sl__read_format_chat; /* response_format */
api_read
    sl__read_format_schema; /* {"type":"json_schema","schema":...}, of responses and messages */

/* ---- conversations (api_turns.c) --------------------------------------------------------------------------------- */

typedef enum api_role { API_SYSTEM, API_USER, API_ASSISTANT, API_TOOL } api_role;

typedef struct api_part {
    const char *text;
    size_t len;
    struct api_part *next;
} api_part;
typedef struct api_parts {
    api_part *first, *last;
    bool given; /* there was a text, if an empty one */
} api_parts;

typedef struct api_call {
    sl_api_text id, name;
    sl_api_text arguments; /* JSON text of an object, or */
    const sl_json *input;  /* the object itself */
    struct api_call *next;
} api_call;

struct api_turn {
    api_role role;
    api_parts content, reasoning;
    bool gap; /* a blank line goes before the next text */
    api_call *calls, *last_call;
    sl_api_text tool_call_id, name;
    api_turn *next;
};

typedef enum api_join {
    API_JOIN_NEVER, /* a turn of its own; texts of the system are joined as messages all the same */
    API_JOIN_MESSAGE, /* part of the turn before, if that has the role; a blank line goes between their texts */
    API_JOIN_BLOCK, /* the same, and nothing goes between */
} api_join;
/* Each message of a list, in order, to `add`; errors name the message. A list without any is refused. */
sl_status sl__req_messages(api_reader *r, const sl_json *v,
                           sl_status (*add)(api_reader *r, const sl_json *message));
/* The turn of what is said next, or NULL after an error. */
api_turn *sl__turn(api_reader *r, api_role role, api_join join);
sl_status sl__turn_text(api_reader *r, api_turn *turn, const char *text, size_t len);
sl_status sl__turn_reasoning(api_reader *r, api_turn *turn, const char *text, size_t len);
api_call *sl__turn_call(api_reader *r, api_turn *turn);
/* The arguments of a call as a client sends them back: JSON text of an object; "" is {}. */
sl_status sl__call_arguments(api_reader *r, api_call *call, const sl_api_text *text);
/* Content as a string or a list of parts of text; null is no content. */
sl_status sl__turn_content(api_reader *r, api_turn *turn, const sl_json *v);
/* An error about content that is not text, or that nobody knows. */
sl_status sl__req_no_text(api_reader *r, const char *type);
/* Write the turns, the tools and the rest as req->render. */
sl_status sl__req_render(api_reader *r);

/* ---- the dialects ------------------------------------------------------------------------------------------------ */

typedef struct api_record api_record;

/* How a dialect does its part. The functions for answers append to w->out and look at no bound: api_writer.c does. */
typedef struct api_dialect {
    sl_status (*parse)(api_reader *r);
    /* Without a stream: the whole answer, from the store. */
    void (*body)(sl_api_writer *w, sl_api_finish finish, const char *stop_string,
                 const sl_api_usage *usage);
    /* Of a stream. What is NULL has no event. */
    void (*begin)(sl_api_writer *w);
    void (*piece)(sl_api_writer *w, uint8_t kind, const char *bytes, size_t n);
    void (*call)(sl_api_writer *w, const api_record *call);
    void (*finish)(sl_api_writer *w, sl_api_finish finish, const char *stop_string,
                   const sl_api_usage *usage);
    void (*failure)(sl_api_writer *w, const sl_api_error *cause);
    bool anthropic;     /* errors and progress are said as there */
    bool stream_stores; /* a stream repeats the answer at its end */
    bool text_only;     /* thinking and calls are text like any other */
} api_dialect;

extern const api_dialect sl__api_chat, sl__api_completions, sl__api_responses, sl__api_messages,
    sl__api_count_tokens;
const api_dialect *sl__api_dialect(sl_api_dialect dialect);

/* ---- answers (api_writer.c) -------------------------------------------------------------------------------------- */

enum { API_NOTHING, API_TEXT, API_REASONING, API_CALL, API_TOKEN };

/* One record of a writer's store. Pieces of a kind that follow each other are one record. */
struct api_record {
    uint8_t kind;
    const char *bytes; /* text */
    size_t n;
    sl_api_text name, arguments; /* of a call */
    uint32_t index;              /* of a call: 0, 1, ... */
};

/* Walk the store: *at is 0 first. */
bool sl__store_next(const sl_api_writer *w, size_t *at, api_record *record);
/* Where the item that begins at `at` ends: one call, or all text of a kind with the tokens in between. */
size_t sl__store_item(const sl_api_writer *w, size_t at, api_record *first);
bool sl__store_has(const sl_api_writer *w, uint8_t kind);
/* All text of a kind between two places as one JSON string. */
void sl__add_joined(sl_api_writer *w, uint8_t kind, size_t from, size_t to);

/* The tokens of the store between two places, as chat writes them: [{"token",...},...]. */
void sl__add_logprobs(sl_api_writer *w, size_t from, size_t to);
/* What is in the store is sent, logprobs included; a stream that repeats nothing forgets it. */
void sl__store_sent(sl_api_writer *w);
/* Whether logprobs are not sent yet. */
bool sl__logprobs_wait(const sl_api_writer *w);

/* "chatcmpl-" and 24 hexadecimal digits; index < 0: none, else digits of it follow. With quotes. */
void sl__add_id(sl_api_writer *w, const char *prefix, int64_t index);
void sl__add_float(sl_buf *out, float value); /* -9999 for -inf */
/* A key with its quotes and colon and a string; a comma goes first. */
void sl__add_member(sl_buf *out, const char *key, const char *text);
const char *sl__openai_finish(const sl_api_writer *w, sl_api_finish finish);
/* {"prompt_tokens":...} of chat and completions. */
void sl__add_usage(sl_api_writer *w, const sl_api_usage *usage);
void sl__failure_openai(sl_api_writer *w, const sl_api_error *cause);

/* A token of the store. */
typedef struct api_token {
    const char *at;
    uint32_t n; /* entries: the token itself, then its alternatives */
} api_token;
typedef struct api_entry {
    const char *bytes;
    uint32_t n;
    float logprob;
} api_entry;
bool sl__token_next(const sl_api_writer *w, size_t *at, size_t to, api_token *token);
api_entry sl__token_entry(api_token *token); /* the next one */

/* ---- strings and errors (api_error.c) ---------------------------------------------------------------------------- */

void sl__add_escaped(sl_buf *out, const char *bytes,
                     size_t n);                        /* sl_api_add_string() without quotes */
size_t sl__escaped_bytes(const char *bytes, size_t n); /* how many bytes that writes */
/* Body of an error without braces around: "message":...,"type":...,"param":...,"code":... */
void sl__add_error_openai(sl_buf *out, const sl_api_error *err);
const char *sl__error_code(const sl_api_error *err);

#endif
