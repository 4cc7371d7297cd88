/* What a model says, taken apart while it is generated: thinking, text and tool calls.
 *
 * Text goes in piece by piece, split anywhere; events come out. The same text gives the same events
 * however it was split, except that a run of text may come in more or fewer pieces. Nothing is held
 * back except what may be the beginning of a marker, newlines that may belong to one, and a tool call,
 * which is delivered whole. Nothing is lost: what looks like a call and is none arrives as text,
 * markers included.
 *
 * Newlines around markers are framing and are dropped, as the models' templates do: those after
 * <think>, before and after </think>, before <tool_call> and after </tool_call>. So are marks that only
 * stand around calls or end a message.
 *
 * gpt-oss answers in messages, each with a header that says what it is (see read_header() in answer.c):
 *   <|start|>assistant<|channel|>analysis<|message|>...<|end|>                          thinking
 *   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>...<|return|>                          text
 * A header is one line of at most SL_ANSWER_HEADER_MAX bytes and is held back up to <|message|>; one that
 * says nothing known is text. A blank line keeps two messages of a kind apart.
 *
 * No allocation: a call is collected in buffers of the caller's. One thread at a time. */
#ifndef SL_TEXT_ANSWER_H
#define SL_TEXT_ANSWER_H

#include "base/buf.h"
#include "base/json.h"

typedef enum sl_answer_calls {
    SL_ANSWER_CALLS_NONE,
    /* <function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n...</function>. One newline on each side
     * of a value is framing. */
    SL_ANSWER_CALLS_XML,
    /* {"name": NAME, "arguments": {...}} */
    SL_ANSWER_CALLS_JSON,
    /* NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n... */
    SL_ANSWER_CALLS_KEYS,
    /* function<separator>NAME\n```json\n{...}\n``` */
    SL_ANSWER_CALLS_FENCED,
    /* {...}, the name stands in the message's header */
    SL_ANSWER_CALLS_MESSAGE,
} sl_answer_calls;

/* How a family marks up its answers. A marker that is NULL does not exist. Markers start with an ASCII
 * character, have no newlines and at most SL_ANSWER_MARKER_MAX bytes. */
typedef struct sl_answer_format {
    const char *name;
    const char *think_begin, *think_end;
    const char *call_begin, *call_end;
    sl_answer_calls calls;
    const char *separator; /* inside a call */
    /* Marks around calls, or at the end of messages: dropped. A call that has not closed ends there. */
    const char *frames[3];
    /* Of messages: two that begin a header, one inside it, and the one that ends it. */
    const char *start, *channel, *constrain, *message;
} sl_answer_format;

#define SL_ANSWER_MARKER_MAX 31
#define SL_ANSWER_HEADER_MAX 255

/* "plain", "think" (thinking, no calls), "qwen-xml", "qwen-json", "glm", "deepseek" or "harmony"; NULL for
 * other names. */
const sl_answer_format *sl_answer_format_find(const char *name);
/* The format that a chat template teaches its model, by the markers in its text. Never NULL. */
const sl_answer_format *sl_answer_format_of_template(const char *source, size_t len);
/* Whether the text is one of the format's markers. A special token that is one is fed like text, also if
 * it ends the answer; other special tokens are no part of an answer. */
bool sl_answer_is_mark(const sl_answer_format *format, const char *text, size_t len);

/* The text with which a model begins a call: up to the function's name, or with a name up to its arguments. False for
 * a format without calls. And what stands behind the name in that text. */
bool sl_answer_add_call_opening(const sl_answer_format *format, const char *name, sl_buf *out);
const char *sl_answer_call_name_end(const sl_answer_format *format);
/* The arguments are written as one JSON object. */
bool sl_answer_calls_json(const sl_answer_format *format);

typedef enum sl_answer_kind {
    SL_ANSWER_TEXT,
    SL_ANSWER_REASONING,
    SL_ANSWER_TOOL_CALL,
} sl_answer_kind;

typedef struct sl_answer_event {
    sl_answer_kind kind;
    const char *text; /* a piece of text; of a call: {"name": ..., "arguments": {...}} */
    size_t len;
    const char *name; /* of a call: the function's name, as it is */
    size_t name_len;
    const char *arguments; /* of a call: the arguments, a JSON object; lies within text */
    size_t arguments_len;
    bool unclosed;  /* a call that the end of the answer cut off before its closing tag */
    bool oversized; /* text of a call that the buffers do not hold */
} sl_answer_event;

/* Pointers in the event are valid during the call. */
typedef void sl_answer_fn(void *ctx, const sl_answer_event *event);

typedef struct sl_answer {
    const sl_answer_format *format;
    const sl_json *tools;
    sl_answer_fn *fn;
    void *ctx;
    uint32_t n_calls; /* delivered so far */
    /* Internal from here on. */
    uint8_t mode;
    bool drop_newlines; /* at the start of a part */
    bool began;         /* text, a call or a header: <think> is no marker any more */
    bool gap;           /* a blank line goes before the next text */
    bool in_message;    /* of messages: behind the header of one that is text */
    uint8_t said;       /* 1 + the kind of the last text, 0 after a call */
    bool in_value;      /* of a call: inside a parameter, or inside a JSON string */
    bool escaped;       /* of a call: after a backslash in a JSON string */
    size_t n_newlines;  /* held back, before held */
    uint8_t n_held;
    char held[SL_ANSWER_MARKER_MAX + 4]; /* a marker, or its beginning and a character */
    /* The text of a call, without its opening marker; or of a message, from its header on. */
    char *call;
    size_t call_len, call_cap;
    size_t header_len; /* of a message, <|message|> included */
    char *json;
    size_t json_cap;
} sl_answer;

/* Start an answer.
 *   in_reasoning  the prompt ended inside the thinking block
 *   tools         the array that the template was given, or NULL. It types parameters that are marked up:
 *                 a parameter of type string stays text; others are read as JSON where they are JSON
 *                 and stay text otherwise. Without tools all stay text.
 *   call, json    buffers for the text of one call and for its JSON: a call that needs more is
 *                 delivered as text, marked oversized
 * Everything pointed at must live until the end of the answer. */
void sl_answer_init(sl_answer *answer, const sl_answer_format *format, bool in_reasoning,
                    const sl_json *tools, void *call, size_t call_cap, void *json, size_t json_cap,
                    sl_answer_fn *fn, void *ctx);
/* Whole characters. */
void sl_answer_feed(sl_answer *answer, const char *bytes, size_t len);
/* Whether what is fed next belongs to a message's header, and not to what the model says. */
bool sl_answer_in_header(const sl_answer *answer);
/* Whether what is fed next is text, as far as can be told: no thinking, no call and no header. */
bool sl_answer_in_text(const sl_answer *answer);
bool sl_answer_in_reasoning(const sl_answer *answer);
/* The answer is over: delivers what was held back. A call without its closing tag is delivered if its
 * name and at least one parameter are complete and nothing is half-written; otherwise as text. */
void sl_answer_end(sl_answer *answer);

#endif
