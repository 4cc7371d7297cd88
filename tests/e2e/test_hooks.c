/* What a caller of sl_session_generate() can add: a mask over the tokens, an opening, logprobs, biases, and which stop
 * string it was. On the demo model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "helpers/demo.h"
#include "sluice.h"

#define TOKENS_MAX 64
#define VOCAB_MAX 8192

static sl_engine *engine;
static sl_session *session;
static sl_model_info model;

typedef struct heard {
    uint32_t tokens[TOKENS_MAX];
    size_t n, n_logprobs, n_masks;
    char text[4096];
    size_t n_text;
    uint32_t bits[VOCAB_MAX / 32];
    bool stop;
} heard;

static bool on_token(void *user, uint32_t token) {
    heard *h = user;
    assert_true(h->n < TOKENS_MAX);
    h->tokens[h->n++] = token;
    return true;
}

static bool on_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    heard *h = user;
    assert_int_equal(kind, SL_PIECE_TEXT);
    assert_true(h->n_text + n < sizeof(h->text));
    memcpy(h->text + h->n_text, bytes, n);
    h->n_text += n;
    return true;
}

static bool on_mask(void *user, sl_place place, const uint32_t **bits) {
    heard *h = user;
    assert_int_equal(place, SL_PLACE_TEXT);
    *bits = h->n_masks++ % 2 ? NULL : h->bits; // every other token is free
    return !h->stop;
}

static bool on_logprobs(void *user, const sl_token_logprob *token, const sl_token_logprob *top,
                        size_t n_top) {
    heard *h = user;
    double sum = 0;
    assert_int_equal(n_top, 5);
    // Greedy: the most likely token, of all by the model's own count.
    assert_int_equal(token->token, top[0].token);
    assert_true(token->logprob == top[0].logprob);
    for (size_t i = 0; i < n_top; i++) {
        assert_true(top[i].logprob <= 0 && (i == 0 || top[i].logprob <= top[i - 1].logprob));
        sum += exp((double)top[i].logprob);
    }
    assert_true(sum > 0 && sum < 1.000001);
    const float *logits = sl_session_logits(session);
    assert_true(fabs((double)(logits[top[0].token] - logits[top[4].token]) -
                     (double)(top[0].logprob - top[4].logprob)) < 1e-4);
    h->n_logprobs++;
    return true;
}

static sl_generate_request request_of(heard *h) {
    sl_generate_request r;
    const demo_example *x = demo_example_at(0);
    memset(h, 0, sizeof(*h));
    sl_generate_request_init(engine, &r);
    r.sampling = (sl_sampling){.top_p = 1, .repeat_penalty = 1};
    r.prompt = x->prompt_ids;
    r.n_prompt = x->n_prompt;
    r.max_tokens = 12;
    r.on_token = on_token;
    r.on_piece = on_piece;
    r.user = h;
    return r;
}

static sl_generate_result answer(const sl_generate_request *r) {
    sl_generate_result result;
    sl_error err;
    sl_session_reset(session);
    demo_check(sl_session_generate(session, r, &result, &err), &err);
    return result;
}

static void a_mask_decides(void **state) {
    (void)state;
    heard h;
    sl_generate_request r = request_of(&h);
    r.on_mask = on_mask;
    for (uint32_t id = 1000; id < 1010; id++)
        h.bits[id / 32] |= 1u << id % 32;
    for (int warm = 0; warm < 2; warm++) {
        h.n = h.n_text = h.n_masks = 0;
        r.sampling.temperature = warm ? 2 : 0;
        (void)answer(&r);
        assert_true(h.n > 4);
        bool others = false;
        for (size_t i = 0; i < h.n; i++) {
            bool allowed = h.tokens[i] >= 1000 && h.tokens[i] < 1010;
            assert_true(allowed || i % 2 == 1);
            others |= !allowed;
        }
        assert_true(others);
    }
    h.stop = true;
    h.n = 0;
    assert_int_equal(answer(&r).finish, SL_FINISH_CANCEL);
    assert_int_equal(h.n, 0);
}

static void an_opening_is_part_of_the_answer(void **state) {
    (void)state;
    heard whole, rest;
    sl_generate_request r = request_of(&whole);
    sl_generate_result first = answer(&r);
    assert_true(whole.n > 4);
    r = request_of(&rest);
    r.opening = whole.tokens;
    r.n_opening = 3;
    sl_generate_result second = answer(&r);
    assert_int_equal(first.n_generated, second.n_generated);
    assert_int_equal(whole.n, rest.n);
    assert_memory_equal(whole.tokens, rest.tokens, rest.n * sizeof(*rest.tokens));
    assert_int_equal(whole.n_text, rest.n_text);
    assert_memory_equal(whole.text, rest.text, rest.n_text);
}

static void logprobs_are_the_models(void **state) {
    (void)state;
    heard h;
    sl_generate_request r = request_of(&h);
    r.on_logprobs = on_logprobs;
    r.n_top = 5;
    (void)answer(&r);
    assert_int_equal(h.n_logprobs, h.n);
    sl_generate_result result;
    r.n_top = SL_TOP_LOGPROBS_MAX + 1;
    assert_int_equal(sl_session_generate(session, &r, &result, NULL), SL_ERR_ARGUMENT);
}

static void a_bias_moves_the_choice(void **state) {
    (void)state;
    heard h;
    static const uint32_t ids[] = {1234};
    static const float bias[] = {100};
    sl_generate_request r = request_of(&h);
    r.sampling.bias_ids = ids;
    r.sampling.bias = bias;
    r.sampling.n_bias = 1;
    (void)answer(&r);
    for (size_t i = 0; i < h.n; i++)
        assert_int_equal(h.tokens[i], 1234);
    // Said again and again, until the penalty has eaten the bias.
    r.sampling.frequency_penalty = 50;
    h.n = h.n_text = 0;
    (void)answer(&r);
    assert_int_equal(h.tokens[0], 1234);
    assert_int_not_equal(h.tokens[h.n - 1], 1234);
    sl_generate_result result;
    static const uint32_t outside[] = {UINT32_MAX};
    r.sampling.bias_ids = outside;
    assert_int_equal(sl_session_generate(session, &r, &result, NULL), SL_ERR_ARGUMENT);
}

static void which_stop_string(void **state) {
    (void)state;
    heard h;
    sl_generate_request r = request_of(&h);
    (void)answer(&r);
    assert_true(h.n_text > 6);
    char second[3] = {h.text[4], h.text[5], 0};
    const char *const stops[] = {"\x01never", second};
    heard cut;
    r = request_of(&cut);
    r.stop = stops;
    r.n_stop = 2;
    sl_generate_result result = answer(&r);
    assert_true(result.stop_string);
    assert_int_equal(result.stop_index, 1);
    assert_true(cut.n_text <= 4);
}

static void tokens_have_bytes(void **state) {
    (void)state;
    sl_token_info t;
    bool special = false, end = false;
    for (uint32_t id = 0; id < model.n_vocab; id++) {
        if (!sl_engine_token(engine, id, &t))
            continue;
        special |= t.special;
        end |= t.end;
        assert_true(t.len == 0 || t.bytes);
    }
    assert_true(special && end);
    assert_false(sl_engine_token(engine, UINT32_MAX, &t));
}

int main(void) {
    sl_engine_options o;
    sl_error err;
    sl_engine_options_init(&o);
    o.mem_bytes = 32 * SL_MIB;
    o.n_ctx = 1024;
    demo_check(sl_engine_open(demo_store(), &o, NULL, &engine, &err), &err);
    demo_check(sl_session_open(engine, &session, &err), &err);
    sl_engine_model(engine, &model);
    if (model.n_vocab > VOCAB_MAX)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_decides),
        cmocka_unit_test(an_opening_is_part_of_the_answer),
        cmocka_unit_test(logprobs_are_the_models),
        cmocka_unit_test(a_bias_moves_the_choice),
        cmocka_unit_test(which_stop_string),
        cmocka_unit_test(tokens_have_bytes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sl_engine_close(engine);
    return failed;
}
