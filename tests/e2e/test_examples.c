/* The examples that come with the demo model, which transformers answered in f32: the rendered prompt,
 * its tokens, and every token of the greedy answer, at a budget at which experts stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "helpers/demo.h"
#include "helpers/trace.h"

#define CTX 2048
/* Below this gap between the two best logits another order of rounding may choose the other one. */
#define MARGIN 1e-3

static sl_engine *open_engine(void) {
    sl_engine_options o;
    sl_engine *engine;
    sl_error err;
    sl_engine_options_init(&o);
    o.n_ctx = CTX;
    o.n_threads = 2;
    o.mem_bytes = trace_smallest(demo_store(), &o);
    o.mem_bytes += (trace_largest(demo_store(), &o) - o.mem_bytes) / 2;
    demo_check(sl_engine_open(demo_store(), &o, NULL, &engine, &err), &err);
    return engine;
}

typedef struct answer {
    uint32_t ids[256];
    uint32_t n;
} answer;

static bool keep_token(void *user, uint32_t token) {
    answer *a = user;
    assert_true(a->n < SL_COUNT(a->ids));
    a->ids[a->n++] = token;
    return true;
}

static void prompts(void **state) {
    (void)state;
    static char text[1 << 16];
    static uint32_t ids[CTX];
    sl_engine *engine = open_engine();
    sl_error err;
    for (uint32_t i = 0; i < demo_n_examples(); i++) {
        const demo_example *x = demo_example_at(i);
        size_t len, n_text, n_ids;
        const char *request = demo_request(x, &len);
        assert_true(sl_engine_text_max(engine) <= sizeof(text));
        demo_check(
            sl_engine_render(engine, request, len, text, sl_engine_text_max(engine), &n_text, &err),
            &err);
        assert_int_equal(n_text, x->n_rendered);
        assert_memory_equal(text, x->rendered, n_text);
        demo_check(sl_engine_tokenize(engine, text, n_text, 0, ids, SL_COUNT(ids), &n_ids, &err),
                   &err);
        assert_int_equal(n_ids, x->n_prompt);
        assert_memory_equal(ids, x->prompt_ids, n_ids * sizeof(*ids));
    }
    sl_engine_close(engine);
}

static void answers(void **state) {
    (void)state;
    sl_engine *engine = open_engine();
    sl_session *session;
    sl_error err;
    uint32_t n_compared = 0, n_tokens = 0, n_near = 0;
    demo_check(sl_session_open(engine, &session, &err), &err);
    for (uint32_t i = 0; i < demo_n_examples(); i++) {
        const demo_example *x = demo_example_at(i);
        sl_generate_request request;
        sl_generate_result result;
        static answer a;
        if (x->min_margin <= MARGIN) {
            printf("example %u is not compared: its margin is %g\n", i, x->min_margin);
            continue;
        }
        memset(&a, 0, sizeof(a));
        sl_generate_request_init(engine, &request);
        request.prompt = x->prompt_ids;
        request.n_prompt = x->n_prompt;
        request.sampling.temperature = 0;
        request.on_token = keep_token;
        request.user = &a;
        sl_session_reset(session);
        demo_check(sl_session_generate(session, &request, &result, &err), &err);
        for (uint32_t t = 0; t < x->n_answer && t < a.n; t++)
            if (a.ids[t] != x->answer_ids[t])
                fail_msg("example %u (margin %g): token %u is %u, expected %u", i, x->min_margin, t,
                         a.ids[t], x->answer_ids[t]);
        assert_int_equal(a.n, x->n_answer);
        assert_int_equal(result.finish, SL_FINISH_STOP);
        n_compared++;
        n_tokens += a.n;
        n_near += x->min_margin < 0.05;
    }
    printf("%u of %u answers compared, %u tokens; %u of them have a margin below 0.05\n",
           n_compared, demo_n_examples(), n_tokens, n_near);
    assert_true(n_compared >= 60);
    sl_engine_close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(prompts), cmocka_unit_test(answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
