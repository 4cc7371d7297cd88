/* Fields that several dialects have: sampling, stop strings, token ids, thinking; and what none supports.
 * Also the entry that parses a body, and the small routes. See api_internal.h. */
#include "server/api_internal.h"

#include <string.h>

#define AT(member) offsetof(sl_api_request, member)

/* ---- sampling ---------------------------------------------------------------------------------------------------- */

static sl_status read_seed(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    int64_t i;
    (void)f;
    if (v->type != SL_JSON_NUMBER)
        return sl__req_wrong_type(r, v, "a whole number");
    if (sl_json_uint64(v, &req->seed))
        return SL_OK;
    if (!sl_json_int64(v, &i))
        return sl__req_fail(r, SL_API_ERR_INVALID,
                            "expected a whole number of 64 bits, found %.40s", v->text);
    req->seed = (uint64_t)i;
    return SL_OK;
}

// As a number of candidates; -1 and 0 are off, as other servers have it.
static sl_status read_top_k(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    int64_t i;
    if (sl_json_int64(v, &i) && i == -1) {
        ((sl_api_request *)into)->top_k = 0;
        return SL_OK;
    }
    return sl__read_uint(r, v, f, into);
}

// max_tokens and max_completion_tokens mean the same.
static sl_status read_max_tokens(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    uint32_t before = req->max_tokens;
    sl_status st = sl__read_uint(r, v, f, into);
    if (!st && before && before != req->max_tokens)
        st = sl__req_fail(r, SL_API_ERR_INVALID, "is %u, and max_tokens is %u: leave one of them",
                          req->max_tokens, before);
    return st;
}

static bool parse_id(const char *text, size_t len, uint32_t *id) {
    uint64_t u = 0;
    if (len == 0 || len > 10)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        u = u * 10 + (uint64_t)(text[i] - '0');
    }
    *id = (uint32_t)u;
    return u <= UINT32_MAX;
}

static sl_status bad_id(api_reader *r, const char *found) {
    uint32_t n_vocab = r->limits->n_vocab;
    return n_vocab
               ? sl__req_fail(r, SL_API_ERR_INVALID, "expected a token id below %u, found '%.40s'",
                              n_vocab, found)
               : sl__req_fail(r, SL_API_ERR_INVALID, "expected a token id, found '%.40s'", found);
}

static bool in_vocab(const api_reader *r, uint64_t id) {
    return id <= UINT32_MAX && (r->limits->n_vocab == 0 || id < r->limits->n_vocab);
}

static sl_status read_bias(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    double d;
    (void)f;
    if (v->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, v, "an object of token ids and numbers");
    if (v->n_children > SL_API_BIAS_MAX)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected at most %d entries, found %u",
                            SL_API_BIAS_MAX, v->n_children);
    sl_api_bias *bias = sl__req_alloc(r, v->n_children + 1, sizeof(*bias));
    if (!bias)
        return SL_ERR_MEMORY;
    req->bias = bias;
    req->n_bias = v->n_children;
    for (const sl_json *m = v->child; m; m = m->next, bias++) {
        size_t mark = sl__req_enter(r, m->key);
        if (!parse_id(m->key, m->key_len, &bias->token) || !in_vocab(r, bias->token))
            return bad_id(r, m->key);
        if (!sl_json_double(m, &d))
            return sl__req_wrong_type(r, m, "a number");
        if (!(d >= -100 && d <= 100))
            return sl__req_fail(r, SL_API_ERR_INVALID,
                                "expected a number from -100 to 100, found %.40s", m->text);
        bias->bias = (float)d;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

static sl_status add_stop(api_reader *r, const sl_json *v, const char **text, size_t *len) {
    if (v->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, v, "a string");
    if (v->text_len == 0 || v->text_len > SL_API_STOP_BYTES_MAX)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected 1 to %d bytes, found %zu",
                            SL_API_STOP_BYTES_MAX, v->text_len);
    if (memchr(v->text, 0, v->text_len))
        return sl__req_fail(r, SL_API_ERR_INVALID, "a stop string cannot hold a NUL");
    *text = v->text;
    *len = v->text_len;
    return SL_OK;
}

sl_status sl__read_stop(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    sl_api_request *req = into;
    bool one = v->type == SL_JSON_STRING;
    (void)f;
    if (!one && v->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(r, v, "a string or an array of strings");
    size_t n = one ? 1 : v->n_children;
    if (n > SL_API_STOP_MAX)
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected at most %d stop strings, found %zu",
                            SL_API_STOP_MAX, n);
    const char **texts = sl__req_alloc(r, n + 1, sizeof(*texts));
    size_t *lens = texts ? sl__req_alloc(r, n + 1, sizeof(*lens)) : NULL;
    if (!lens)
        return SL_ERR_MEMORY;
    req->stop = texts;
    req->stop_len = lens;
    req->n_stop = n;
    if (one)
        return add_stop(r, v, texts, lens);
    for (const sl_json *m = v->child; m; m = m->next) {
        size_t i = (size_t)(texts - (const char **)req->stop);
        size_t mark = sl__req_enter_index(r, i);
        sl_status st = add_stop(r, m, texts++, lens++);
        if (st)
            return st;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

static sl_status read_ids(api_reader *r, const sl_json *v, const uint32_t **out, size_t *n) {
    uint64_t u;
    uint32_t *ids = sl__req_alloc(r, v->n_children + (size_t)1, sizeof(*ids));
    if (!ids)
        return SL_ERR_MEMORY;
    *n = 0;
    *out = ids;
    for (const sl_json *m = v->child; m; m = m->next) {
        size_t mark = sl__req_enter_index(r, *n);
        if (m->type != SL_JSON_NUMBER)
            return sl__req_wrong_type(r, m, "a token id");
        if (!sl_json_uint64(m, &u) || !in_vocab(r, u))
            return bad_id(r, m->text);
        ids[(*n)++] = (uint32_t)u;
        sl__req_leave(r, mark);
    }
    return SL_OK;
}

sl_status sl__read_ids(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    return read_ids(r, v, &r->req->prompt_ids, &r->req->n_prompt_ids);
}

/* ---- thinking ---------------------------------------------------------------------------------------------------- */

sl_status sl__req_thinking(api_reader *r, bool enable) {
    if ((r->req->set & SL_API_SET_THINKING) && r->req->enable_thinking != enable)
        return sl__req_fail(
            r, SL_API_ERR_INVALID,
            "turns thinking %s, and another parameter turns it %s: leave one of them",
            enable ? "on" : "off", enable ? "off" : "on");
    r->req->enable_thinking = enable;
    r->req->set |= SL_API_SET_THINKING;
    return SL_OK;
}

/* Templates that know efforts know three. */
sl_status sl__req_effort(api_reader *r, const char *effort) {
    static const char *const known[][2] = {{"minimal", "low"},   {"low", "low"},
                                           {"medium", "medium"}, {"high", "high"},
                                           {"xhigh", "high"},    {"max", "high"}};
    for (size_t i = 0; i < SL_COUNT(known); i++)
        if (strcmp(effort, known[i][0]) == 0) {
            r->effort = known[i][1];
            return SL_OK;
        }
    return sl__req_fail(r, SL_API_ERR_INVALID,
                        "expected none, minimal, low, medium, high, xhigh or max, found '%.40s'",
                        effort);
}

sl_status sl__read_effort(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    if (v->type != SL_JSON_STRING)
        return sl__req_wrong_type(r, v, "a string");
    if (strcmp(v->text, "none") == 0)
        return sl__req_thinking(r, false);
    sl_status st = sl__req_effort(r, v->text);
    return st ? st : sl__req_thinking(r, true);
}

sl_status sl__read_switch(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    if (v->type != SL_JSON_TRUE && v->type != SL_JSON_FALSE)
        return sl__req_wrong_type(r, v, "true or false");
    return sl__req_thinking(r, v->type == SL_JSON_TRUE);
}

// How thinking is shown: as it is, or not at all.
static sl_status read_display(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    (void)into;
    if (!sl_json_text_is(v, "summarized") && !sl_json_text_is(v, "omitted"))
        return sl__req_fail(r, SL_API_ERR_INVALID, "expected summarized or omitted");
    r->req->hide_reasoning = sl_json_text_is(v, "omitted");
    return SL_OK;
}

static sl_status read_thinking_type(api_reader *r, const sl_json *v, const api_field *f,
                                    void *into) {
    (void)f;
    (void)into;
    if (sl_json_text_is(v, "disabled"))
        return sl__req_thinking(r, false);
    if (sl_json_text_is(v, "enabled") || sl_json_text_is(v, "adaptive") ||
        sl_json_text_is(v, "auto"))
        return sl__req_thinking(r, true);
    return sl__req_fail(r, SL_API_ERR_INVALID, "expected enabled, adaptive or disabled");
}

static const api_field thinking_fields[] = {
    {.name = "type", .read = read_thinking_type, .required = true},
    {.name = "budget_tokens",
     .read = sl__read_uint,
     .offset = AT(thinking_budget),
     .set = SL_API_SET_THINKING_BUDGET,
     .min = 1,
     .max = UINT32_MAX},
    {.name = "display", .read = read_display},
};
static const api_table thinking_table = {thinking_fields, SL_COUNT(thinking_fields), NULL};

sl_status sl__read_thinking(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    return sl__req_fields(r, v, &thinking_table, into);
}

static const api_field reasoning_fields[] = {
    {.name = "effort", .read = sl__read_effort},
    {.name = "enabled", .read = sl__read_switch},
};
static const api_table reasoning_table = {reasoning_fields, SL_COUNT(reasoning_fields), NULL};

sl_status sl__read_reasoning(api_reader *r, const sl_json *v, const api_field *f, void *into) {
    (void)f;
    return sl__req_fields(r, v, &reasoning_table, into);
}

// Members of the template's JSON. Those that it has anyway cannot be given.
static sl_status read_template_args(api_reader *r, const sl_json *v, const api_field *f,
                                    void *into) {
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt",
                                        "continue_final_message", "reasoning_effort"};
    (void)f;
    (void)into;
    if (v->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, v, "an object");
    for (const sl_json *m = v->child; m; m = m->next) {
        size_t mark = sl__req_enter(r, m->key);
        for (size_t i = 0; i < SL_COUNT(taken); i++)
            if (strcmp(m->key, taken[i]) == 0)
                return sl__req_fail(r, SL_API_ERR_UNSUPPORTED, "is not for chat_template_kwargs");
        if (strcmp(m->key, "enable_thinking") == 0 || strcmp(m->key, "thinking") == 0) {
            sl_status st = sl__read_switch(r, m, f, into);
            if (st)
                return st;
        }
        sl__req_leave(r, mark);
    }
    r->template_args = v;
    return SL_OK;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

#define REFUSED(text, number)                                                                      \
    { .name = (text), .read = sl__read_refused, .min = (number) }

// Fields by which other servers change what an answer is.
static const api_field refused_fields[] = {
    REFUSED("n", 1),
    REFUSED("best_of", 1),
    REFUSED("use_beam_search", 0),
    REFUSED("length_penalty", 1),
    REFUSED("early_stopping", 0),
    REFUSED("min_tokens", 0),
    REFUSED("ignore_eos", 0),
    REFUSED("stop_token_ids", -1),
    REFUSED("bad_words", -1),
    REFUSED("allowed_token_ids", -1),
    REFUSED("logits_processors", -1),
    REFUSED("typical_p", 1),
    REFUSED("tfs_z", 1),
    REFUSED("top_a", 0),
    REFUSED("top_n_sigma", -1),
    REFUSED("mirostat", 0),
    REFUSED("dynatemp_range", 0),
    REFUSED("xtc_probability", 0),
    REFUSED("dry_multiplier", 0),
    REFUSED("truncate_prompt_tokens", -1),
    REFUSED("prompt_logprobs", -1),
    REFUSED("guided_json", -1),
    REFUSED("guided_regex", -1),
    REFUSED("guided_choice", -1),
    REFUSED("guided_grammar", -1),
    REFUSED("structured_outputs", -1),
    REFUSED("grammar", -1),
    REFUSED("json_schema", -1),
    REFUSED("chat_template", -1),
    REFUSED("documents", -1),
    REFUSED("moderation", -1),
};
static const api_table refused_table = {refused_fields, SL_COUNT(refused_fields), NULL};

static const api_field sampling_fields[] = {
    {.name = "model", .read = sl__read_text, .offset = AT(model), .required = true},
    {.name = "stream", .read = sl__read_bool, .offset = AT(stream)},
    {.name = "temperature",
     .read = sl__read_float,
     .offset = AT(temperature),
     .set = SL_API_SET_TEMPERATURE,
     .max = 2},
    {.name = "top_p",
     .read = sl__read_float,
     .offset = AT(top_p),
     .set = SL_API_SET_TOP_P,
     .max = 1},
    {.name = "top_k",
     .read = read_top_k,
     .offset = AT(top_k),
     .set = SL_API_SET_TOP_K,
     .max = UINT32_MAX},
    {.name = "min_p",
     .read = sl__read_float,
     .offset = AT(min_p),
     .set = SL_API_SET_MIN_P,
     .max = 1},
    {.name = "presence_penalty",
     .read = sl__read_float,
     .offset = AT(presence_penalty),
     .set = SL_API_SET_PRESENCE,
     .min = -2,
     .max = 2},
    {.name = "frequency_penalty",
     .read = sl__read_float,
     .offset = AT(frequency_penalty),
     .set = SL_API_SET_FREQUENCY,
     .min = -2,
     .max = 2},
    {.name = "repeat_penalty",
     .read = sl__read_float,
     .offset = AT(repeat_penalty),
     .set = SL_API_SET_REPEAT,
     .min = 0.01,
     .max = 10},
    {.name = "repetition_penalty",
     .read = sl__read_float,
     .offset = AT(repeat_penalty),
     .set = SL_API_SET_REPEAT,
     .min = 0.01,
     .max = 10},
    {.name = "seed", .read = read_seed, .set = SL_API_SET_SEED},
    {.name = "chat_template_kwargs", .read = read_template_args},
};
const api_table sl__table_sampling = {sampling_fields, SL_COUNT(sampling_fields), &refused_table};

static const api_field usage_fields[] = {
    {.name = "include_usage", .read = sl__read_bool, .offset = AT(include_usage)},
};
static const api_table usage_table = {usage_fields, SL_COUNT(usage_fields), NULL};

static sl_status read_stream_options(api_reader *r, const sl_json *v, const api_field *f,
                                     void *into) {
    (void)f;
    return sl__req_fields(r, v, &usage_table, into);
}

#define MAX_TOKENS(text)                                                                           \
    {                                                                                              \
        .name = (text), .read = read_max_tokens, .offset = AT(max_tokens),                         \
        .set = SL_API_SET_MAX_TOKENS, .min = 1, .max = UINT32_MAX                                  \
    }

static const api_field openai_fields[] = {
    MAX_TOKENS("max_tokens"),
    MAX_TOKENS("max_completion_tokens"),
    {.name = "stop", .read = sl__read_stop},
    {.name = "logit_bias", .read = read_bias},
    {.name = "stream_options", .read = read_stream_options},
    REFUSED("echo", -1),
    REFUSED("suffix", -1),
};
const api_table sl__table_openai = {openai_fields, SL_COUNT(openai_fields), &sl__table_sampling};

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

const api_dialect *sl__api_dialect(sl_api_dialect dialect) {
    static const api_dialect *const all[SL_API_DIALECTS] = {
        [SL_API_CHAT] = &sl__api_chat,
        [SL_API_COMPLETIONS] = &sl__api_completions,
        [SL_API_RESPONSES] = &sl__api_responses,
        [SL_API_MESSAGES] = &sl__api_messages,
        [SL_API_COUNT_TOKENS] = &sl__api_count_tokens,
    };
    return all[dialect];
}

static sl_status parse_body(api_reader *r, const char *body, size_t len) {
    sl_json *root;
    sl_error cause;
    sl_status st = sl_json_parse(body, len, r->arena, &root, &cause);
    if (st == SL_ERR_MEMORY)
        return sl__req_full(r);
    if (st)
        return sl_api_fail(r->err, SL_API_ERR_SYNTAX, NULL, "the body is no JSON: %s",
                           cause.message);
    if (root->type != SL_JSON_OBJECT)
        return sl__req_wrong_type(r, root, "a JSON object as the body");
    r->body = root;
    return SL_OK;
}

sl_status sl_api_parse(sl_api_dialect dialect, const char *body, size_t len,
                       const sl_api_limits *limits, sl_arena *arena, sl_api_request *out,
                       sl_api_error *err) {
    api_reader r = {.req = out, .limits = limits, .arena = arena, .err = err};
    memset(out, 0, sizeof(*out));
    out->dialect = dialect;
    out->parallel_tool_calls = true;
    sl_status st = parse_body(&r, body, len);
    if (!st)
        st = sl__api_dialect(dialect)->parse(&r);
    if (st) {
        memset(out, 0, sizeof(*out));
        out->dialect = dialect;
    }
    return st;
}

sl_status sl_api_parse_tokenize(const char *body, size_t len, sl_arena *arena, sl_api_tokenize *out,
                                sl_api_error *err) {
    static const api_field fields[] = {
        {.name = "content", .read = sl__read_text, .offset = offsetof(sl_api_tokenize, content)},
        {.name = "text", .read = sl__read_text, .offset = offsetof(sl_api_tokenize, content)},
        {.name = "prompt", .read = sl__read_text, .offset = offsetof(sl_api_tokenize, content)},
        {.name = "add_special",
         .read = sl__read_bool,
         .offset = offsetof(sl_api_tokenize, add_special)},
        {.name = "parse_special",
         .read = sl__read_bool,
         .offset = offsetof(sl_api_tokenize, parse_special)},
    };
    static const api_table table = {fields, SL_COUNT(fields), NULL};
    static const sl_api_limits limits = {0};
    api_reader r = {.limits = &limits, .arena = arena, .err = err};
    *out = (sl_api_tokenize){.parse_special = true};
    sl_status st = parse_body(&r, body, len);
    if (!st)
        st = sl__req_fields(&r, r.body, &table, out);
    if (!st && !out->content.text)
        st = sl_api_fail(err, SL_API_ERR_MISSING, "content", "a required parameter is missing");
    return st;
}

sl_status sl_api_parse_detokenize(const char *body, size_t len, uint32_t n_vocab, sl_arena *arena,
                                  const uint32_t **ids, size_t *n, sl_api_error *err) {
    struct {
        const sl_json *tokens;
    } in = {0};
    static const api_field fields[] = {
        {.name = "tokens", .read = sl__read_node, .required = true},
    };
    static const api_table table = {fields, SL_COUNT(fields), NULL};
    const sl_api_limits limits = {.n_vocab = n_vocab};
    api_reader r = {.limits = &limits, .arena = arena, .err = err};
    *ids = NULL;
    *n = 0;
    sl_status st = parse_body(&r, body, len);
    if (!st)
        st = sl__req_fields(&r, r.body, &table, &in);
    if (st)
        return st;
    (void)sl__req_enter(&r, "tokens");
    if (in.tokens->type != SL_JSON_ARRAY)
        return sl__req_wrong_type(&r, in.tokens, "an array of token ids");
    return read_ids(&r, in.tokens, ids, n);
}
