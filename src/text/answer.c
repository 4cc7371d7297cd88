/* The incremental parser of answers, see answer.h. Reasoning and text look for markers and pass
 * everything else on; a call, and the header of a message, are collected up to their closing marker and
 * then read at once. */
#include "text/answer.h"

#include <string.h>

enum { MODE_TEXT, MODE_REASONING, MODE_CALL, MODE_OVERSIZED, MODE_HEADER };

static const sl_answer_format formats[] = {
    {.name = "plain"},
    {.name = "think", .think_begin = "<think>", .think_end = "</think>"},
    {.name = "qwen-xml",
     .think_begin = "<think>",
     .think_end = "</think>",
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .calls = SL_ANSWER_CALLS_XML},
    {.name = "qwen-json",
     .think_begin = "<think>",
     .think_end = "</think>",
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .calls = SL_ANSWER_CALLS_JSON},
    {.name = "glm",
     .think_begin = "<think>",
     .think_end = "</think>",
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .calls = SL_ANSWER_CALLS_KEYS},
    {.name = "deepseek",
     .think_begin = "<think>",
     .think_end = "</think>",
     .call_begin = "<｜tool▁call▁begin｜>",
     .call_end = "<｜tool▁call▁end｜>",
     .calls = SL_ANSWER_CALLS_FENCED,
     .separator = "<｜tool▁sep｜>",
     .frames = {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"}},
    {.name = "harmony",
     .call_end = "<|call|>",
     .calls = SL_ANSWER_CALLS_MESSAGE,
     .frames = {"<|end|>", "<|return|>", "<|call|>"},
     .start = "<|start|>",
     .channel = "<|channel|>",
     .constrain = "<|constrain|>",
     .message = "<|message|>"},
};

// A header that the prompt has begun, up to the role, may go on with this.
static const char header_rest[] = " to=";

const sl_answer_format *sl_answer_format_find(const char *name) {
    for (size_t i = 0; i < SL_COUNT(formats); i++) {
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    }
    return NULL;
}

/* How the forms of calls begin, between the format's own marks: in front of a name, and behind it. */
static const struct {
    const char *before, *after;
    bool json;
} openings[] = {
    [SL_ANSWER_CALLS_NONE] = {"", "", false},
    [SL_ANSWER_CALLS_XML] = {"\n<function=", ">\n", false},
    [SL_ANSWER_CALLS_JSON] = {"\n{\"name\": \"", "\", \"arguments\": ", true},
    [SL_ANSWER_CALLS_KEYS] = {"", "\n", false},
    [SL_ANSWER_CALLS_FENCED] = {"function", "\n```json\n", true},
    [SL_ANSWER_CALLS_MESSAGE] = {"commentary to=functions.", " <|constrain|>json<|message|>", true},
};

bool sl_answer_add_call_opening(const sl_answer_format *f, const char *name, sl_buf *out) {
    if (f->calls == SL_ANSWER_CALLS_NONE)
        return false;
    if (f->calls == SL_ANSWER_CALLS_FENCED)
        sl_buf_add_text(out, f->frames[0]);
    sl_buf_add_text(out, f->calls == SL_ANSWER_CALLS_MESSAGE ? f->channel : f->call_begin);
    sl_buf_add_text(out, openings[f->calls].before);
    if (f->separator)
        sl_buf_add_text(out, f->separator);
    if (name) {
        sl_buf_add_text(out, name);
        sl_buf_add_text(out, openings[f->calls].after);
    }
    return true;
}

const char *sl_answer_call_name_end(const sl_answer_format *f) {
    return openings[f->calls].after;
}

bool sl_answer_calls_json(const sl_answer_format *f) {
    return openings[f->calls].json;
}

// The first place of word in [s, end), or NULL.
static const char *find(const char *s, const char *end, const char *word) {
    size_t n = strlen(word);
    for (; (size_t)(end - s) >= n; s++) {
        if (*s == *word && memcmp(s, word, n) == 0)
            return s;
    }
    return NULL;
}

const sl_answer_format *sl_answer_format_of_template(const char *source, size_t len) {
    const char *end = source + len;
    bool calls = find(source, end, "<tool_call>") != NULL;
    bool messages = find(source, end, "<|channel|>") && find(source, end, "<|message|>");
    return sl_answer_format_find(messages                                      ? "harmony"
                                 : find(source, end, "<｜tool▁calls▁begin｜>") ? "deepseek"
                                 : calls && find(source, end, "<function=")    ? "qwen-xml"
                                 : calls && find(source, end, "<arg_key>")     ? "glm"
                                 : calls && find(source, end, "arguments")     ? "qwen-json"
                                 : find(source, end, "<think>")                ? "think"
                                                                               : "plain");
}

bool sl_answer_is_mark(const sl_answer_format *f, const char *text, size_t len) {
    const char *const marks[] = {f->think_begin, f->think_end, f->call_begin, f->call_end,
                                 f->separator,   f->frames[0], f->frames[1],  f->frames[2],
                                 f->start,       f->channel,   f->constrain,  f->message};
    for (size_t i = 0; i < SL_COUNT(marks); i++) {
        if (marks[i] && strlen(marks[i]) == len && memcmp(marks[i], text, len) == 0)
            return true;
    }
    return false;
}

/* ---- events -------------------------------------------------------------------------------- */

static void emit_text(sl_answer *a, const char *text, size_t len, bool oversized) {
    if (len == 0)
        return;
    const sl_answer_event event = {.kind = a->mode == MODE_REASONING ? SL_ANSWER_REASONING
                                                                     : SL_ANSWER_TEXT,
                                   .text = text,
                                   .len = len,
                                   .oversized = oversized};
    a->began |= event.kind == SL_ANSWER_TEXT;
    a->said = (uint8_t)(1 + event.kind);
    a->fn(a->ctx, &event);
}

static void emit_mark(sl_answer *a, const char *mark, bool oversized) {
    if (mark)
        emit_text(a, mark, strlen(mark), oversized);
}

// Newlines that were held back turn out to be text, unless a part has only just begun.
static void flush_newlines(sl_answer *a) {
    static const char newlines[] = "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n";
    while (a->n_newlines && !a->drop_newlines) {
        size_t n = SL_MIN(a->n_newlines, sizeof(newlines) - 1);
        a->n_newlines -= n;
        emit_text(a, newlines, n, false);
    }
    a->n_newlines = 0;
    a->drop_newlines = false;
}

static void emit(sl_answer *a, const char *text, size_t len) {
    flush_newlines(a);
    if (a->gap && len) {
        a->gap = false;
        emit_text(a, "\n\n", 2, false);
    }
    emit_text(a, text, len, false);
}

// Enter a part of the answer; newlines before and at its start are framing.
static void start_part(sl_answer *a, int mode) {
    a->mode = (uint8_t)mode;
    a->n_newlines = 0;
    a->drop_newlines = true;
    a->gap = false;
}

// Newlines before a call stay held back: it may turn out to be text.
static void start_call(sl_answer *a) {
    a->mode = MODE_CALL;
    a->call_len = 0;
    a->in_value = a->escaped = false;
}

static void header_is_text(sl_answer *a) {
    a->mode = MODE_TEXT;
    emit(a, a->call, a->call_len);
}

// So do newlines before a header.
static void start_header(sl_answer *a, const char *mark) {
    size_t n = strlen(mark);
    bool fits = n <= a->call_cap;
    a->mode = fits ? MODE_HEADER : MODE_TEXT;
    a->gap = a->in_message = false;
    a->call_len = fits ? n : 0;
    memcpy(a->call, mark, a->call_len);
    if (!fits)
        emit(a, mark, n);
}

/* ---- reading a call ------------------------------------------------------------------------ */

typedef struct call {
    sl_answer *answer;
    sl_buf json; // the name as it is, then {"name": ..., "arguments": {...}}
    size_t name_len;
    size_t arguments, arguments_len; // the place in json
} call;

// Reads the call whose text is [s, end) into its json; false if it is none.
typedef bool call_reader(call *call, const char *s, const char *end, bool unclosed);

static const char *skip_space(const char *s, const char *end) {
    while (s < end && (*s == ' ' || *s == '\n' || *s == '\t' || *s == '\r'))
        s++;
    return s;
}

// Past word at s; or NULL. With `cut` the text may end inside the word: *cut is then set.
static const char *past_word(const char *s, const char *end, const char *word, bool *cut) {
    size_t n = strlen(word), left = (size_t)(end - s);
    if (left >= n)
        return memcmp(s, word, n) == 0 ? s + n : NULL;
    if (!cut || memcmp(s, word, left) != 0)
        return NULL;
    *cut = true;
    return end;
}

static void begin_call(call *c, const char *name, size_t len) {
    c->name_len = len;
    sl_buf_add(&c->json, name, len);
    sl_buf_add_text(&c->json, "{\"name\": ");
    sl_buf_add_json_string(&c->json, name, len);
    sl_buf_add_text(&c->json, ", \"arguments\": ");
    c->arguments = c->json.len;
}

static void end_call(call *c) {
    c->arguments_len = c->json.len - c->arguments;
    sl_buf_add_text(&c->json, "}");
}

static bool is_json(const char *text, size_t len) {
    sl_json_reader reader;
    sl_json_event event;
    sl_json_reader_init(&reader, text, len);
    do
        event = sl_json_next(&reader, NULL);
    while (event != SL_JSON_EV_END && event != SL_JSON_EV_ERROR);
    return event == SL_JSON_EV_END;
}

static bool key_is(const sl_json *node, const char *text, size_t len) {
    return sl_json_is(node, SL_JSON_STRING) && node->text_len == len &&
           memcmp(node->text, text, len) == 0;
}

// The schema of a parameter in the tools, or NULL.
static const sl_json *param_schema(const sl_json *tools, const char *name, size_t name_len,
                                   const char *key, size_t key_len) {
    if (!sl_json_is(tools, SL_JSON_ARRAY))
        return NULL;
    for (const sl_json *tool = tools->child; tool; tool = tool->next) {
        const sl_json *function = sl_json_member(tool, "function");
        function = function ? function : tool;
        if (!key_is(sl_json_member(function, "name"), name, name_len))
            continue;
        const sl_json *properties =
            sl_json_member(sl_json_member(function, "parameters"), "properties");
        if (!sl_json_is(properties, SL_JSON_OBJECT))
            return NULL;
        for (const sl_json *p = properties->child; p; p = p->next) {
            if (p->key_len == key_len && memcmp(p->key, key, key_len) == 0)
                return p;
        }
        return NULL;
    }
    return NULL;
}

static bool has_type(const sl_json *schema, const char *type) {
    const sl_json *types = sl_json_member(schema, "type");
    if (sl_json_is(types, SL_JSON_ARRAY)) {
        for (const sl_json *t = types->child; t; t = t->next) {
            if (sl_json_text_is(t, type))
                return true;
        }
    }
    return sl_json_text_is(types, type);
}

static void add_value(call *c, const sl_json *schema, const char *value, size_t len) {
    const char *from = skip_space(value, value + len), *end = value + len;
    while (end > from && skip_space(end - 1, end) == end)
        end--;
    size_t n = (size_t)(end - from);
    bool null = n == 4 && memcmp(from, "null", 4) == 0;
    bool text =
        !c->answer->tools || (has_type(schema, "string") && !(null && has_type(schema, "null")));
    if (!text && is_json(from, n))
        sl_buf_add(&c->json, from, n);
    else if (!text && has_type(schema, "boolean") && n == 4 && memcmp(from, "True", 4) == 0)
        sl_buf_add_text(&c->json, "true"); // templates that print values with str() teach this
    else if (!text && has_type(schema, "boolean") && n == 5 && memcmp(from, "False", 5) == 0)
        sl_buf_add_text(&c->json, "false");
    else
        sl_buf_add_json_string(&c->json, value, len);
}

/* The words around the parts of a call whose parameters are marked up. Between them white space is
 * free, except around values. */
typedef struct call_words {
    const char *head, *name_end; /* no name_end: the name ends with its line, or before a mark */
    const char *key, *key_end, *value, *value_end;
    const char *tail;
    bool is_framed; /* a newline on each side of a value is no part of it */
} call_words;

static const call_words *words_of(const sl_answer *a) {
    static const call_words xml = {.head = "<function=",
                                   .name_end = ">",
                                   .key = "<parameter=",
                                   .key_end = ">",
                                   .value_end = "</parameter>",
                                   .tail = "</function>",
                                   .is_framed = true};
    static const call_words keys = {.head = "",
                                    .key = "<arg_key>",
                                    .key_end = "</arg_key>",
                                    .value = "<arg_value>",
                                    .value_end = "</arg_value>",
                                    .tail = ""};
    return a->format->calls == SL_ANSWER_CALLS_XML ? &xml : &keys;
}

// Is the parameter's name one of those before it? Those are read again: calls are short.
static bool is_repeated(const call_words *w, const char *params, const char *end, const char *key,
                        size_t len) {
    const char *at = params;
    while ((at = find(at, end, w->key)) && at < end) {
        const char *name = at + strlen(w->key);
        const char *close = find(name, end, w->key_end);
        if (close && (size_t)(close - name) == len && memcmp(name, key, len) == 0)
            return true;
        at = close ? find(close, end, w->value_end) : NULL;
        if (!at)
            break;
    }
    return false;
}

static bool is_name(const char *s, size_t len) {
    return len > 0 && !memchr(s, '<', len) && !memchr(s, '\n', len);
}

// The name of a call at s, past its head. *past is where the parameters start.
static bool read_name(const call_words *w, const char *s, const char *end, size_t *len,
                      const char **past) {
    const char *close = s;
    if (w->name_end) {
        close = find(s, end, w->name_end);
        *past = close ? close + strlen(w->name_end) : NULL;
    } else {
        while (close < end && *close != '\n' && *close != '<')
            close++;
        *past = close;
        while (close > s && skip_space(close - 1, close) == close)
            close--;
    }
    *len = close ? (size_t)(close - s) : 0;
    // A name on a line of its own is a word: prose and JSON are none.
    return is_name(s, *len) && (w->name_end || (!memchr(s, ' ', *len) && !memchr(s, '{', *len)));
}

// A call with marked parameters. Unclosed: the text may end after a parameter.
static bool read_marked(call *c, const char *s, const char *end, bool unclosed) {
    const call_words *w = words_of(c->answer);
    bool cut = false;
    const char *name = past_word(skip_space(s, end), end, w->head, NULL), *at, *past;
    size_t name_len;
    if (!name || !read_name(w, name, end, &name_len, &at))
        return false;
    const char *params = at;
    uint32_t n_params = 0;
    begin_call(c, name, name_len);
    sl_buf_add_text(&c->json, "{");
    for (;;) {
        at = skip_space(at, end);
        const char *key = past_word(at, end, w->key, NULL);
        if (!key)
            break;
        const char *key_end = find(key, end, w->key_end);
        const char *value = key_end ? key_end + strlen(w->key_end) : NULL;
        if (value && w->value)
            value = past_word(skip_space(value, end), end, w->value, NULL);
        const char *value_end = value ? find(value, end, w->value_end) : NULL;
        if (!value_end || !is_name(key, (size_t)(key_end - key)) ||
            is_repeated(w, params, at, key, (size_t)(key_end - key)))
            return false;
        at = value_end + strlen(w->value_end);
        if (w->is_framed) {
            value += value < value_end && *value == '\n';
            value_end -= value_end > value && value_end[-1] == '\n';
        }
        if (n_params++)
            sl_buf_add_text(&c->json, ", ");
        sl_buf_add_json_string(&c->json, key, (size_t)(key_end - key));
        sl_buf_add_text(&c->json, ": ");
        add_value(c, param_schema(c->answer->tools, name, name_len, key, (size_t)(key_end - key)),
                  value, (size_t)(value_end - value));
    }
    sl_buf_add_text(&c->json, "}");
    end_call(c);
    past = past_word(at, end, w->tail, unclosed ? &cut : NULL);
    // Nothing but a parameter says that a name without an end of its own is whole.
    cut |= unclosed && !w->name_end;
    if (!past || (cut && n_params == 0))
        return false;
    past = skip_space(past, end);
    return unclosed ? past_word(past, end, c->answer->format->call_end, &cut) == end : past == end;
}

// {"name": ..., "arguments": {...}}, in any order.
static bool read_json(call *c, const char *s, const char *end, bool unclosed) {
    sl_json_reader r, name = {0};
    const char *arguments = NULL;
    size_t arguments_len = 0;
    bool cut = false, has_name = false;
    s = skip_space(s, end);
    sl_json_reader_init(&r, s, (size_t)(end - s));
    if (sl_json_next(&r, NULL) != SL_JSON_EV_BEGIN_OBJECT)
        return false;
    sl_json_event event;
    while ((event = sl_json_next(&r, NULL)) == SL_JSON_EV_KEY) {
        bool is_name_key = sl_json_reader_is(&r, "name");
        bool is_arguments = sl_json_reader_is(&r, "arguments");
        event = sl_json_next(&r, NULL);
        if (event == SL_JSON_EV_ERROR || (is_name_key && event != SL_JSON_EV_STRING))
            return false;
        if (is_name_key) {
            name = r;
            has_name = true;
        }
        const char *value = r.at - 1;
        if (event == SL_JSON_EV_BEGIN_OBJECT || event == SL_JSON_EV_BEGIN_ARRAY) {
            if (sl_json_skip(&r, true, NULL))
                return false;
        }
        if (!is_arguments)
            continue;
        if (event != SL_JSON_EV_BEGIN_OBJECT)
            return false;
        arguments = value;
        arguments_len = (size_t)(r.at - value);
    }
    if (event != SL_JSON_EV_END_OBJECT || !has_name || !arguments)
        return false;
    const char *past = skip_space(r.at, end);
    if (past != end &&
        !(unclosed && past_word(past, end, c->answer->format->call_end, &cut) == end))
        return false;
    if (name.len >= c->json.cap) {
        c->json.failed = true;
        return true;
    }
    // Decoded in place, where begin_call() would put it.
    char *decoded = c->json.data;
    size_t len = sl_json_decode(&name, decoded);
    c->json.len = c->name_len = len;
    sl_buf_add_text(&c->json, "{\"name\": \"");
    sl_buf_add(&c->json, name.text, name.len);
    sl_buf_add_text(&c->json, "\", \"arguments\": ");
    c->arguments = c->json.len;
    sl_buf_add(&c->json, arguments, arguments_len);
    end_call(c);
    return true;
}

// The JSON object at s, white space around it aside, as the call's arguments. Returns what is past it;
// or NULL.
static const char *read_arguments(call *c, const char *s, const char *end, const char *name,
                                  size_t name_len) {
    sl_json_reader r;
    s = skip_space(s, end);
    sl_json_reader_init(&r, s, (size_t)(end - s));
    if (sl_json_next(&r, NULL) != SL_JSON_EV_BEGIN_OBJECT || sl_json_skip(&r, true, NULL))
        return NULL;
    begin_call(c, name, name_len);
    sl_buf_add(&c->json, s, (size_t)(r.at - s));
    end_call(c);
    return skip_space(r.at, end);
}

// function<separator>NAME\n```json\n{...}\n```. Unclosed: the text may end after the object.
static bool read_fenced(call *c, const char *s, const char *end, bool unclosed) {
    const sl_answer_format *f = c->answer->format;
    bool cut = false;
    s = past_word(skip_space(s, end), end, "function", NULL);
    const char *name = s ? past_word(s, end, f->separator, NULL) : NULL;
    const char *line_end = name ? find(name, end, "\n") : NULL;
    if (!line_end || !is_name(name, (size_t)(line_end - name)))
        return false;
    s = past_word(skip_space(line_end, end), end, "```json", NULL);
    s = s ? read_arguments(c, s, end, name, (size_t)(line_end - name)) : NULL;
    s = s ? past_word(s, end, "```", unclosed ? &cut : NULL) : NULL;
    s = s ? skip_space(s, end) : NULL;
    return s && (s == end || (unclosed && past_word(s, end, f->call_end, &cut) == end));
}

typedef struct header {
    sl_answer_kind kind;
    const char *name; // of a call
    size_t name_len;
} header;

static bool word_is(const char *s, size_t len, const char *word) {
    return strlen(word) == len && memcmp(s, word, len) == 0;
}

/* What the header of a message says: the role, and in any order a channel, a recipient (which stands
 * before or after the channel) and the type of the content. False for everything that is not known:
 * other roles and channels, and recipients that are none of the caller's functions. */
static bool read_header(const sl_answer *a, header *h) {
    const sl_answer_format *f = a->format;
    const char *s = a->call, *end = s + a->header_len - strlen(f->message);
    bool has_channel = false, has_recipient = false, has_type = false;
    *h = (header){.kind = SL_ANSWER_TEXT};
    const char *role = past_word(s, end, f->start, NULL);
    if (role && !(s = past_word(role, end, "assistant", NULL)))
        return false;
    while ((s = skip_space(s, end)) < end) {
        const char *word;
        bool *has;
        if ((word = past_word(s, end, f->channel, NULL))) {
            has = &has_channel;
        } else if ((word = past_word(s, end, "to=", NULL))) {
            has = &has_recipient;
        } else {
            word = past_word(s, end, f->constrain, NULL);
            word = word ? word : s;
            has = &has_type;
        }
        s = word;
        while (s < end && *s != ' ' && *s != '<')
            s++;
        size_t len = (size_t)(s - word);
        if (*has || len == 0 || (has == &has_type && !has_channel))
            return false;
        *has = true;
        if (has == &has_recipient) {
            h->name = past_word(word, s, "functions.", NULL);
            h->name_len = h->name ? (size_t)(s - h->name) : 0;
            if (h->name_len == 0)
                return false;
        } else if (has == &has_channel) {
            bool is_analysis = word_is(word, len, "analysis");
            h->kind = is_analysis ? SL_ANSWER_REASONING : SL_ANSWER_TEXT;
            if (!is_analysis && !word_is(word, len, "commentary") && !word_is(word, len, "final"))
                return false;
        }
    }
    return true;
}

// A message to a function. Unclosed: the text may end after the object.
static bool read_message(call *c, const char *s, const char *end, bool unclosed) {
    const sl_answer *a = c->answer;
    bool cut = false;
    header h;
    s = read_header(a, &h) ? read_arguments(c, s + a->header_len, end, h.name, h.name_len) : NULL;
    return s && (s == end || (unclosed && past_word(s, end, a->format->call_end, &cut) == end));
}

// The call that was collected, closed by a marker or NULL: as a call, or as the text that it is.
static void deliver_call(sl_answer *a, const char *closing) {
    static call_reader *const readers[] = {
        [SL_ANSWER_CALLS_XML] = read_marked,      [SL_ANSWER_CALLS_JSON] = read_json,
        [SL_ANSWER_CALLS_KEYS] = read_marked,     [SL_ANSWER_CALLS_FENCED] = read_fenced,
        [SL_ANSWER_CALLS_MESSAGE] = read_message,
    };
    bool unclosed = !closing;
    call c = {.answer = a};
    sl_buf_init_fixed(&c.json, a->json, a->json_cap);
    bool ok = readers[a->format->calls](&c, a->call, a->call + a->call_len, unclosed);
    a->mode = MODE_TEXT;
    if (ok && !c.json.failed) {
        const char *json = c.json.data;
        const sl_answer_event event = {.kind = SL_ANSWER_TOOL_CALL,
                                       .text = json + c.name_len,
                                       .len = c.json.len - c.name_len,
                                       .name = json,
                                       .name_len = c.name_len,
                                       .arguments = json + c.arguments,
                                       .arguments_len = c.arguments_len,
                                       .unclosed = unclosed};
        start_part(a, MODE_TEXT);
        a->began = true;
        a->said = 0;
        a->n_calls++;
        a->fn(a->ctx, &event);
        return;
    }
    flush_newlines(a);
    emit_mark(a, a->format->call_begin, c.json.failed);
    emit_text(a, a->call, a->call_len, c.json.failed);
    emit_mark(a, closing, c.json.failed);
}

/* ---- collecting a call --------------------------------------------------------------------- */

static bool ends_with(const char *s, size_t len, const char *word) {
    size_t n = strlen(word);
    return len >= n && memcmp(s + len - n, word, n) == 0;
}

// The marker at the end of the text that closes a call, or NULL.
static const char *closing_mark(const sl_answer_format *f, const char *s, size_t len) {
    if (ends_with(s, len, f->call_end))
        return f->call_end;
    for (size_t i = 0; i < SL_COUNT(f->frames) && f->frames[i]; i++) {
        if (ends_with(s, len, f->frames[i]))
            return f->frames[i];
    }
    return NULL;
}

// Inside a parameter or a JSON string the closing marker is data.
static void track_value(sl_answer *a, char c) {
    if (a->format->calls == SL_ANSWER_CALLS_XML || a->format->calls == SL_ANSWER_CALLS_KEYS) {
        const call_words *w = words_of(a);
        if (ends_with(a->call, a->call_len, w->value ? w->value : w->key))
            a->in_value = true;
        else if (ends_with(a->call, a->call_len, w->value_end))
            a->in_value = false;
    } else if (a->escaped) {
        a->escaped = false;
    } else if (c == '\\') {
        a->escaped = a->in_value;
    } else if (c == '"') {
        a->in_value = !a->in_value;
    }
}

// A call that outgrew its buffer goes out as text, up to its end; held keeps the last bytes that went
// out, in which the closing marker shows. Returns how many bytes were taken.
static size_t feed_oversized(sl_answer *a, const char *bytes, size_t len) {
    size_t taken = 0;
    bool closed = false;
    while (taken < len && !closed) {
        if (a->n_held == SL_ANSWER_MARKER_MAX)
            memmove(a->held, a->held + 1, --a->n_held);
        a->held[a->n_held++] = bytes[taken++];
        closed = closing_mark(a->format, a->held, a->n_held) != NULL;
    }
    emit_text(a, bytes, taken, true);
    if (closed) {
        a->mode = MODE_TEXT;
        a->n_held = 0;
    }
    return taken;
}

static void start_oversized(sl_answer *a) {
    size_t keep = SL_MIN(a->call_len, SL_ANSWER_MARKER_MAX);
    a->mode = MODE_OVERSIZED;
    flush_newlines(a);
    emit_mark(a, a->format->call_begin, true);
    emit_text(a, a->call, a->call_len, true);
    // The marker may have begun inside the buffer.
    memcpy(a->held, a->call + a->call_len - keep, keep);
    a->n_held = (uint8_t)keep;
}

// Bytes of the character that starts with this one.
static size_t char_len(char c) {
    unsigned char lead = (unsigned char)c;
    return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// False if the byte does not fit and is still to be taken. Only whole characters are let in, so that
// what goes out stays valid.
static bool feed_call(sl_answer *a, char c) {
    if (char_len(c) > a->call_cap - a->call_len) {
        start_oversized(a);
        return false;
    }
    a->call[a->call_len++] = c;
    track_value(a, c);
    const char *closing = a->in_value ? NULL : closing_mark(a->format, a->call, a->call_len);
    if (closing) {
        a->call_len -= strlen(closing);
        deliver_call(a, closing);
    }
    return true;
}

// The header is whole: on with the message.
static void end_header(sl_answer *a) {
    header h;
    a->header_len = a->call_len;
    if (!read_header(a, &h)) {
        header_is_text(a);
        return;
    }
    a->began = true;
    if (h.name) {
        a->mode = MODE_CALL; // from here on: the header is part of its text
        a->in_value = a->escaped = false;
        return;
    }
    start_part(a, h.kind == SL_ANSWER_REASONING ? MODE_REASONING : MODE_TEXT);
    a->gap = a->said == 1 + h.kind;
    a->in_message = h.kind == SL_ANSWER_TEXT;
}

// False if the byte does not fit and is still to be taken.
static bool feed_header(sl_answer *a, char c) {
    if (char_len(c) > SL_MIN(a->call_cap, SL_ANSWER_HEADER_MAX) - a->call_len) {
        header_is_text(a);
        return false;
    }
    a->call[a->call_len++] = c;
    if (ends_with(a->call, a->call_len, a->format->message))
        end_header(a);
    else if (c == '\n' || closing_mark(a->format, a->call, a->call_len))
        header_is_text(a);
    return true;
}

/* ---- markers ------------------------------------------------------------------------------- */

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_FULL } match;

// Whether held is the marker; *best becomes what it is at least.
static bool is_marker(const sl_answer *a, const char *marker, match *best) {
    size_t n = marker ? strlen(marker) : 0;
    if (a->n_held > n || memcmp(marker, a->held, a->n_held) != 0)
        return false;
    match m = a->n_held == n ? MATCH_FULL : MATCH_PART;
    *best = SL_MAX(*best, m);
    return m == MATCH_FULL;
}

// What held is in the current mode; a full marker is acted on.
static match try_markers(sl_answer *a) {
    const sl_answer_format *f = a->format;
    match m = MATCH_NONE;
    if (a->mode == MODE_REASONING && f->think_end) {
        if (is_marker(a, f->think_end, &m))
            start_part(a, MODE_TEXT);
        return m;
    }
    if (!a->began && is_marker(a, f->think_begin, &m))
        start_part(a, MODE_REASONING);
    else if (is_marker(a, f->call_begin, &m))
        start_call(a);
    else if (is_marker(a, f->start, &m))
        start_header(a, f->start);
    else if (is_marker(a, f->channel, &m))
        start_header(a, f->channel);
    else if (f->start && !a->began && is_marker(a, header_rest, &m))
        start_header(a, header_rest);
    for (size_t i = 0; i < SL_COUNT(f->frames) && m != MATCH_FULL; i++) {
        if (is_marker(a, f->frames[i], &m)) {
            start_part(a, MODE_TEXT);
            a->in_message = false;
            a->gap = f->message && a->said == 1 + SL_ANSWER_TEXT;
        }
    }
    return m;
}

// False if the character is no part of a marker: the held ones before it have then gone out as text.
static bool feed_marker(sl_answer *a, const char *c, size_t len) {
    memcpy(a->held + a->n_held, c, len);
    a->n_held += (uint8_t)len;
    for (;;) {
        match m = try_markers(a);
        if (m == MATCH_FULL)
            a->n_held = 0;
        if (m != MATCH_NONE)
            return true;
        if (a->n_held == len)
            break;
        char first[4];
        size_t n = SL_MIN(char_len(a->held[0]), a->n_held - len);
        memcpy(first, a->held, n);
        a->n_held -= (uint8_t)n;
        memmove(a->held, a->held + n, a->n_held);
        emit(a, first, n);
    }
    a->n_held = 0;
    a->n_newlines += *c == '\n';
    return *c == '\n';
}

static bool starts_marker(const sl_answer *a, char c) {
    const sl_answer_format *f = a->format;
    const char *const markers[] = {f->think_begin, f->think_end, f->call_begin, f->start};
    for (size_t i = 0; i < SL_COUNT(markers); i++) {
        if (markers[i] && c == *markers[i])
            return true;
    }
    return f->start && !a->began && c == *header_rest;
}

/* ---- public -------------------------------------------------------------------------------- */

void sl_answer_init(sl_answer *a, const sl_answer_format *format, bool in_reasoning,
                    const sl_json *tools, void *call_block, size_t call_cap, void *json,
                    size_t json_cap, sl_answer_fn *fn, void *ctx) {
    *a = (sl_answer){.format = format,
                     .tools = tools,
                     .fn = fn,
                     .ctx = ctx,
                     .mode = in_reasoning && format->think_end ? MODE_REASONING : MODE_TEXT,
                     .call = call_block,
                     .call_cap = call_cap,
                     .json = json,
                     .json_cap = json_cap};
    a->drop_newlines = a->mode == MODE_REASONING;
}

void sl_answer_feed(sl_answer *a, const char *bytes, size_t len) {
    for (size_t i = 0; i < len;) {
        if (a->mode == MODE_CALL) {
            i += feed_call(a, bytes[i]);
        } else if (a->mode == MODE_HEADER) {
            i += feed_header(a, bytes[i]);
        } else if (a->mode == MODE_OVERSIZED) {
            i += feed_oversized(a, bytes + i, len - i);
        } else {
            size_t n = SL_MIN(char_len(bytes[i]), len - i);
            bool may_mark = a->n_held || bytes[i] == '\n' || starts_marker(a, bytes[i]);
            if (may_mark && feed_marker(a, bytes + i, n)) {
                i += n;
                continue;
            }
            size_t run = n;
            while (i + run < len && bytes[i + run] != '\n' && !starts_marker(a, bytes[i + run]))
                run++;
            emit(a, bytes + i, run);
            i += run;
        }
    }
}

void sl_answer_end(sl_answer *a) {
    if (a->mode == MODE_CALL)
        deliver_call(a, NULL);
    else if (a->mode == MODE_HEADER)
        header_is_text(a);
    else if (a->mode != MODE_OVERSIZED)
        emit(a, a->held, a->n_held);
    a->n_held = 0;
}

bool sl_answer_in_header(const sl_answer *a) {
    return a->mode == MODE_HEADER;
}

bool sl_answer_in_text(const sl_answer *a) {
    return a->mode == MODE_TEXT && (!a->format->message || a->in_message);
}

bool sl_answer_in_reasoning(const sl_answer *a) {
    return a->mode == MODE_REASONING;
}
