/* Generation: prompt in, then token by token until something ends the answer.
 *
 * The text of an answer passes through three stages, each of which holds back as little as it must:
 *   bytes of tokens -> whole characters (text/utf8.h) -> stop strings -> text, reasoning, tool calls
 * All buffers are in this file's struct on the stack, or in the engine's text account. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "text/answer.h"
#include "text/utf8.h"

#define STOPS_MAX 16u
#define STOP_BYTES_MAX 256u

typedef struct stream {
    const sl_generate_request *request;
    sl_utf8_stream characters;
    bool began; /* text was decoded: what follows is not at its start */
    sl_answer answer;
    char held[2 * STOP_BYTES_MAX]; /* the end of the text that may be the start of a stop string */
    size_t n_held;
    size_t stop_len[STOPS_MAX];
    bool stopped; /* a stop string was found */
    uint32_t stop_index;
    bool refused; /* a callback returned false */
} stream;

void sl_generate_request_init(const sl_engine *engine, sl_generate_request *request) {
    memset(request, 0, sizeof(*request));
    sl_engine_sampling(engine, &request->sampling);
}

void sl_engine_sampling(const sl_engine *e, sl_sampling *out) {
    const sl_store *s = &e->store;
    *out = (sl_sampling){.top_p = 1, .repeat_penalty = 1};
    if (!s->do_sample)
        return;
    out->temperature = s->temperature >= 0 ? (float)s->temperature : 1;
    out->top_k = s->top_k > 0 ? (uint32_t)s->top_k : 0;
    out->top_p = s->top_p >= 0 ? (float)s->top_p : 1;
    out->min_p = s->min_p >= 0 ? (float)s->min_p : 0;
    out->repeat_penalty = s->repeat_penalty > 0 ? (float)s->repeat_penalty : 1;
}

/* ---- the stages, last to first -------------------------------------------------------------------- */

static void to_caller(stream *s, sl_piece kind, const char *bytes, size_t n) {
    const sl_generate_request *r = s->request;
    if (n && r->on_piece && !s->refused && !r->on_piece(r->user, kind, bytes, n))
        s->refused = true;
}

static void on_answer(void *ctx, const sl_answer_event *event) {
    static const sl_piece kinds[] = {
        [SL_ANSWER_TEXT] = SL_PIECE_TEXT,
        [SL_ANSWER_REASONING] = SL_PIECE_REASONING,
        [SL_ANSWER_TOOL_CALL] = SL_PIECE_TOOL_CALL,
    };
    to_caller(ctx, kinds[event->kind], event->text, event->len);
}

static void to_parser(stream *s, const char *bytes, size_t n) {
    if (n == 0)
        return;
    if (s->request->parse)
        sl_answer_feed(&s->answer, bytes, n);
    else
        to_caller(s, SL_PIECE_TEXT, bytes, n);
}

// Length of the longest end of text[0..n) that begins one of the stop strings.
static size_t held_length(const stream *s, const char *text, size_t n) {
    size_t longest = 0;
    for (size_t i = 0; i < s->request->n_stop; i++) {
        size_t most = SL_MIN(s->stop_len[i] - 1, n);
        for (size_t k = most; k > longest; k--)
            if (memcmp(text + n - k, s->request->stop[i], k) == 0)
                longest = k;
    }
    return longest;
}

// Offset of the first stop string in text[0..n), or n.
static size_t find_stop(stream *s, const char *text, size_t n) {
    size_t first = n;
    for (uint32_t i = 0; i < s->request->n_stop; i++)
        for (size_t at = 0; at + s->stop_len[i] <= n && at < first; at++)
            if (memcmp(text + at, s->request->stop[i], s->stop_len[i]) == 0) {
                first = at;
                s->stop_index = i;
            }
    return first;
}

static void to_stops(stream *s, const char *bytes, size_t n) {
    // A message's header is framing: stop strings do not see it.
    if (s->request->n_stop == 0 || (s->request->parse && sl_answer_in_header(&s->answer))) {
        to_parser(s, s->held, s->n_held);
        s->n_held = 0;
        to_parser(s, bytes, n);
        return;
    }
    while (n && !s->stopped) {
        size_t take = SL_MIN(n, STOP_BYTES_MAX);
        memcpy(s->held + s->n_held, bytes, take);
        s->n_held += take;
        bytes += take;
        n -= take;
        size_t stop = find_stop(s, s->held, s->n_held);
        s->stopped = stop < s->n_held;
        size_t keep = s->stopped ? 0 : held_length(s, s->held, s->n_held);
        size_t give = s->stopped ? stop : s->n_held - keep;
        to_parser(s, s->held, give);
        memmove(s->held, s->held + s->n_held - keep, keep);
        s->n_held = keep;
    }
}

static void to_characters(stream *s, const char *bytes, size_t n) {
    char out[SL_UTF8_FEED_BYTES(STOP_BYTES_MAX)];
    while (n && !s->stopped) {
        size_t take = SL_MIN(n, STOP_BYTES_MAX);
        to_stops(s, out, sl_utf8_feed(&s->characters, bytes, take, out));
        bytes += take;
        n -= take;
    }
}

// A run of text is over: let go of what was held back.
static void end_text(stream *s) {
    char out[SL_UTF8_FEED_BYTES(0)];
    if (!s->stopped)
        to_stops(s, out, sl_utf8_flush(&s->characters, out));
    if (!s->stopped)
        to_parser(s, s->held, s->n_held);
    s->n_held = 0;
}

static void finish(stream *s) {
    end_text(s);
    if (s->request->parse)
        sl_answer_end(&s->answer);
}

/* ---- the loop -------------------------------------------------------------------------------------- */

static sl_status check_request(const sl_session *session, const sl_generate_request *r, stream *s,
                               sl_error *err) {
    const sl_sampling *p = &r->sampling;
    if (!(p->temperature >= 0 && p->temperature <= 100))
        return sl_fail(err, SL_ERR_ARGUMENT, "temperature is %g, expected 0 to 100",
                       (double)p->temperature);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return sl_fail(err, SL_ERR_ARGUMENT, "top_p is %g, expected 0 to 1", (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return sl_fail(err, SL_ERR_ARGUMENT, "min_p is %g, expected 0 to 1", (double)p->min_p);
    if (!(p->repeat_penalty > 0 && p->repeat_penalty <= 100))
        return sl_fail(err, SL_ERR_ARGUMENT,
                       "repeat_penalty is %g, expected more than 0 and at most 100",
                       (double)p->repeat_penalty);
    if (!(p->presence_penalty >= -100 && p->presence_penalty <= 100))
        return sl_fail(err, SL_ERR_ARGUMENT, "presence_penalty is %g, expected -100 to 100",
                       (double)p->presence_penalty);
    if (!(p->frequency_penalty >= -100 && p->frequency_penalty <= 100))
        return sl_fail(err, SL_ERR_ARGUMENT, "frequency_penalty is %g, expected -100 to 100",
                       (double)p->frequency_penalty);
    for (size_t i = 0; i < p->n_bias; i++)
        if (p->bias_ids[i] >= session->engine->store.model.n_vocab ||
            !(p->bias[i] >= -100 && p->bias[i] <= 100))
            return sl_fail(err, SL_ERR_ARGUMENT,
                           "bias %g of token %u: expected -100 to 100, of a token below %u",
                           (double)p->bias[i], p->bias_ids[i],
                           session->engine->store.model.n_vocab);
    if (r->n_top > SL_TOP_LOGPROBS_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "%u most likely tokens, at most %u", r->n_top,
                       SL_TOP_LOGPROBS_MAX);
    if (r->n_stop > STOPS_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "%zu stop strings, at most %u", r->n_stop, STOPS_MAX);
    for (size_t i = 0; i < r->n_stop; i++) {
        s->stop_len[i] = strlen(r->stop[i]);
        if (s->stop_len[i] == 0 || s->stop_len[i] > STOP_BYTES_MAX)
            return sl_fail(err, SL_ERR_ARGUMENT, "stop string %zu has %zu bytes, expected 1 to %u",
                           i, s->stop_len[i], STOP_BYTES_MAX);
    }
    if (r->n_prompt == 0 && !sl__session_logits(session))
        return sl_fail(err, SL_ERR_ARGUMENT, "the prompt is empty, and nothing was fed before");
    if (!session->engine->has_tokenizer && (r->parse || r->n_stop || r->on_piece))
        return sl_fail(err, SL_ERR_STATE, "this model has no tokenizer, so an answer has no text");
    return SL_OK;
}

static sl_status feed_prompt(sl_session *session, const sl_generate_request *r, sl_error *err) {
    bool told = r->progress && r->progress->report;
    return sl__session_feed(session, r->prompt, r->n_prompt, told ? sl__api_report_prefill : NULL,
                            (void *)r->progress, err);
}

// A special token is no text, but may be a mark that the parser waits for. Stop strings do not see it.
static void emit_special(stream *s, const sl_engine *e, uint32_t token) {
    const char *bytes;
    size_t n;
    if (!s->request->parse || !sl_tok_token_bytes(&e->tokenizer, token, &bytes, &n) ||
        !sl_answer_is_mark(e->answer_format, bytes, n))
        return;
    end_text(s);
    if (!s->stopped)
        to_parser(s, bytes, n);
}

// One token to the caller.
static void emit_token(stream *s, sl_engine *e, uint32_t token) {
    const sl_generate_request *r = s->request;
    const char *bytes;
    size_t n;
    if (r->on_token && !r->on_token(r->user, token))
        s->refused = true;
    if (!e->has_tokenizer)
        return;
    if (sl_tok_is_special(&e->tokenizer, token)) {
        emit_special(s, e, token);
        return;
    }
    // An answer is a text of its own; without parsing it goes on with the prompt's.
    if (sl_tok_decode(&e->tokenizer, token, r->parse && !s->began, &bytes, &n)) {
        s->began = true;
        to_characters(s, bytes, n);
    }
}

static sl_place place_of(const stream *s) {
    return !s->request->parse || sl_answer_in_text(&s->answer) ? SL_PLACE_TEXT
           : sl_answer_in_reasoning(&s->answer)                ? SL_PLACE_REASONING
                                                               : SL_PLACE_OTHER;
}

static sl_status pick_token(sl_session *session, stream *s, sl_sampler_params *params,
                            uint32_t *token, sl_error *err) {
    sl_engine *e = session->engine;
    const sl_generate_request *r = s->request;
    const float *logits = sl__session_logits(session);
    uint32_t position = e->state.n_past;
    params->mask = NULL;
    if (r->on_mask && !r->on_mask(r->user, place_of(s), &params->mask))
        s->refused = true;
    if (!sl_sampler_pick(&e->sampler, &e->backend.base, logits, params, position, token))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "the logits after %u tokens are not all finite: the model's weights are "
                       "damaged, or not meant for 32-bit arithmetic",
                       position);
    return SL_OK;
}

static void tell_logprobs(stream *s, sl_engine *e, const float *logits, uint32_t token) {
    const sl_generate_request *r = s->request;
    uint32_t ids[SL_TOP_LOGPROBS_MAX], n = SL_MIN(r->n_top, e->store.model.n_vocab);
    float logprobs[SL_TOP_LOGPROBS_MAX];
    sl_token_logprob top[SL_TOP_LOGPROBS_MAX], own = {.token = token};
    own.logprob =
        sl_sampler_logprobs(&e->sampler, &e->backend.base, logits, token, n, ids, logprobs);
    for (uint32_t i = 0; i < n; i++)
        top[i] = (sl_token_logprob){ids[i], logprobs[i]};
    if (!s->refused && !r->on_logprobs(r->user, &own, top, n))
        s->refused = true;
}

/* Sample and feed until the answer ends. Ids that the tokenizer does not have (padding rows of the head) are
 * never sampled by a trained model; they would be passed on as ids without text. */
static sl_status decode(sl_session *session, stream *s, sl_generate_result *out, sl_error *err) {
    sl_engine *e = session->engine;
    const sl_generate_request *r = s->request;
    sl_sampler_params params = {
        .temperature = r->sampling.temperature,
        .top_k = r->sampling.top_k,
        .top_p = r->sampling.top_p,
        .min_p = r->sampling.min_p,
        .presence_penalty = r->sampling.presence_penalty,
        .repeat_penalty = r->sampling.repeat_penalty,
        .seed = r->sampling.seed,
        .frequency_penalty = r->sampling.frequency_penalty,
        .bias_ids = r->sampling.bias_ids,
        .bias = r->sampling.bias,
        .n_bias = r->sampling.n_bias,
    };
    sl_sampler_begin_answer(&e->sampler);
    for (size_t i = 0; i < r->n_opening; i++) {
        sl_sampler_see(&e->sampler, r->opening[i], SL_SEEN_ANSWER);
        out->n_generated++;
        emit_token(s, e, r->opening[i]);
    }
    for (;;) {
        if (s->refused || atomic_load_explicit(&session->cancel, memory_order_relaxed)) {
            out->finish = SL_FINISH_CANCEL;
            return SL_OK;
        }
        if (s->stopped) {
            out->finish = SL_FINISH_STOP;
            out->stop_string = true;
            out->stop_index = s->stop_index;
            return SL_OK;
        }
        if (out->context_full || (r->max_tokens && out->n_generated >= r->max_tokens)) {
            out->finish = SL_FINISH_LENGTH;
            return SL_OK;
        }
        uint32_t position = e->state.n_past, token;
        sl_status st = pick_token(session, s, &params, &token, err);
        if (st)
            return st;
        if (s->refused)
            continue;
        if (sl_model_is_stop_token(&e->store.model, token)) {
            emit_special(s, e, token); // a mark that closes a call
            out->finish = SL_FINISH_STOP;
            return SL_OK;
        }
        sl_sampler_see(&e->sampler, token, SL_SEEN_ANSWER);
        out->n_generated++;
        if (r->on_logprobs)
            tell_logprobs(s, e, sl__session_logits(session), token);
        emit_token(s, e, token);
        out->context_full = position == e->state.n_ctx;
        bool last = s->stopped || s->refused || out->context_full ||
                    (r->max_tokens && out->n_generated == r->max_tokens);
        st = last ? SL_OK : sl__session_feed(session, &token, 1, NULL, NULL, err);
        // A cancel leaves the session as it was before this token; the loop ends above.
        if (st && st != SL_ERR_CANCELED)
            return st;
    }
}

static sl_status generate(sl_session *session, stream *s, sl_generate_result *out, sl_error *err) {
    const sl_generate_request *r = s->request;
    double begin = sl_now();
    sl_status st = feed_prompt(session, r, err);
    if (st == SL_OK)
        st = sl__session_feed(session, r->opening, r->n_opening, NULL, NULL, err);
    out->prefill_seconds = sl_now() - begin;
    if (st == SL_ERR_CANCELED) {
        out->finish = SL_FINISH_CANCEL;
        return SL_OK;
    }
    if (st)
        return st;
    out->n_prompt = (uint32_t)r->n_prompt;
    begin = sl_now();
    st = decode(session, s, out, err);
    if (!st) {
        finish(s);
        if (out->finish == SL_FINISH_STOP && r->parse && s->answer.n_calls)
            out->finish = SL_FINISH_TOOL_CALLS;
    }
    out->decode_seconds = sl_now() - begin;
    return st;
}

// The i-th token from the end (0 is the last) of what the answer will follow; false before the first one.
static bool token_from_end(const sl_session *session, const sl_generate_request *r, size_t i,
                           uint32_t *token) {
    if (i < r->n_prompt) {
        *token = r->prompt[r->n_prompt - 1 - i];
        return true;
    }
    i -= r->n_prompt;
    if (i >= session->n_tail)
        return false;
    *token = session->tail[session->n_tail - 1 - i];
    return true;
}

// Whether the prompt's text ends with the mark that opens thinking, white space behind it aside.
static bool prompt_opens_thinking(const sl_session *session, const sl_generate_request *r) {
    const sl_engine *e = session->engine;
    const char *mark = e->answer_format->think_begin;
    char end[4 * SL_ANSWER_MARKER_MAX];
    size_t n = 0;
    uint32_t token;
    if (!mark)
        return false;
    // The last tokens' bytes, from the back of the buffer to its front.
    for (size_t i = 0; n < sizeof(end) && token_from_end(session, r, i, &token); i++) {
        const char *bytes;
        size_t len;
        if (!sl_tok_token_bytes(&e->tokenizer, token, &bytes, &len))
            break;
        size_t take = SL_MIN(len, sizeof(end) - n);
        n += take;
        memcpy(end + sizeof(end) - n, bytes + len - take, take);
    }
    const char *text = end + sizeof(end) - n;
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    return n >= strlen(mark) && memcmp(text + n - strlen(mark), mark, strlen(mark)) == 0;
}

/* The parser of the answer, its buffers and the tools' schemas: in the text workspace, which nothing else uses
 * while an answer is generated. */
static sl_status init_parser(sl_session *session, stream *s, sl_error *err) {
    sl_engine *e = session->engine;
    const sl_generate_request *r = s->request;
    sl_arena *workspace = &e->text_workspace;
    sl_json *tools = NULL;
    if (r->tools_json) {
        sl_status st = sl_json_parse(r->tools_json, strlen(r->tools_json), workspace, &tools, err);
        if (st)
            return sl_error_context(err, st, "tools");
    }
    size_t cap = (size_t)SL_MAX(e->plan.text_max, 4 * SL_KIB);
    char *call = sl_arena_alloc(workspace, cap, 1), *json = sl_arena_alloc(workspace, 2 * cap, 1);
    if (!call || !json)
        return sl_arena_full(workspace, 3 * cap, err);
    sl_answer_init(&s->answer, e->answer_format, prompt_opens_thinking(session, r), tools, call,
                   cap, json, 2 * cap, on_answer, s);
    return SL_OK;
}

sl_status sl_session_generate(sl_session *session, const sl_generate_request *request,
                              sl_generate_result *result, sl_error *err) {
    stream s;
    memset(&s, 0, sizeof(s));
    memset(result, 0, sizeof(*result));
    s.request = request;
    sl_utf8_stream_init(&s.characters);
    sl_status st = check_request(session, request, &s, err);
    if (st)
        return st;
    size_t mark = sl_arena_mark(&session->engine->text_workspace);
    uint64_t entered = sl__engine_enter();
    if (request->parse)
        st = init_parser(session, &s, err);
    if (!st)
        st = generate(session, &s, result, err);
    sl__engine_leave(entered);
    sl_arena_reset(&session->engine->text_workspace, mark);
    atomic_store_explicit(&session->cancel, false, memory_order_relaxed);
    return st;
}
