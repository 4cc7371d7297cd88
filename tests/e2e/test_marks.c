/* What a model's special tokens mean for its answer, through the public face. The model has random weights
 * and says random tokens, the same ones for a seed: each case gives those tokens the texts that it wants
 * to hear, in a tokenizer of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/attr.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "sluice.h"
#include "text/utf8.h"

#define N_IDS 10
#define N_VOCAB 300

static uint32_t ids[N_IDS]; // what the model says
static uint64_t seed;

typedef struct mark_case {
    const char *template;
    // Of two bytes or more; special ones begin with '<'. The last one ends the answer.
    const char *tokens[N_IDS];
    const char *stop; // a stop string, or NULL
    bool raw;
    const char *heard; // T[...] R[...] C[...]
    sl_finish finish;
} mark_case;

static void check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

static void write_in(const char *folder, const char *name, const char *text) {
    char path[1100];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    test_file_write(path, text, strlen(text));
}

// Tokens of single bytes, but for the ids that have other texts.
static void write_tokenizer(const char *folder, const mark_case *c) {
    sl_buf out;
    uint32_t n = 0, id = 0, remapped = 0;
    sl_buf_init(&out);
    sl_buf_add_text(&out, "{\"added_tokens\":[");
    for (; n < N_IDS && c->tokens[n]; n++) {
        sl_buf_printf(&out, "%s{\"id\":%u,\"content\":", n ? "," : "", ids[n]);
        sl_buf_add_json_string(&out, c->tokens[n], strlen(c->tokens[n]));
        sl_buf_printf(&out, ",\"special\":%s,\"normalized\":false}",
                      c->tokens[n][0] == '<' ? "true" : "false");
    }
    sl_buf_add_text(&out, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                          "\"add_prefix_space\":false,\"use_regex\":true},\"post_processor\":null,"
                          "\"decoder\":{\"type\":\"ByteLevel\"},"
                          "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t b = 0; b < 256; b++) {
        bool kept = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        uint8_t spelled[4];
        size_t len = sl_utf8_encode(kept ? b : 256 + remapped++, spelled);
        for (uint32_t i = 0; i < n; i++) {
            if (ids[i] == id) {
                id++;
                i = UINT32_MAX; // from the first one again
            }
        }
        sl_buf_add_text(&out, b ? "," : "");
        sl_buf_add_json_string(&out, (char *)spelled, len);
        sl_buf_printf(&out, ":%u", id++);
    }
    sl_buf_add_text(&out, "},\"merges\":[]}}");
    assert_true(id <= N_VOCAB);
    write_in(folder, "tokenizer.json", out.data);
    sl_buf_deinit(&out);
}

// A checkpoint, converted: with the case's texts, or without any.
static sl_engine *open_model(const mark_case *c, sl_session **session) {
    static unsigned n_models;
    char name[32], src[1024], dst[1024], config[64];
    test_checkpoint spec = test_checkpoint_default();
    sl_convert_options convert;
    sl_convert_report report;
    sl_engine_options options;
    sl_engine *engine;
    sl_error err;
    (void)snprintf(name, sizeof(name), "source%u", n_models);
    (void)snprintf(src, sizeof(src), "%s", test_scratch_path(name));
    (void)snprintf(name, sizeof(name), "store%u", n_models++);
    (void)snprintf(dst, sizeof(dst), "%s", test_scratch_path(name));
    assert_int_equal(spec.n_vocab, N_VOCAB);
    test_checkpoint_write(src, &spec);
    if (c) {
        uint32_t n = 0;
        while (n < N_IDS && c->tokens[n])
            n++;
        write_tokenizer(src, c);
        write_in(src, "chat_template.jinja", c->template);
        (void)snprintf(config, sizeof(config), "{\"eos_token_id\": %u}", ids[n - 1]);
        write_in(src, "generation_config.json", config);
    }
    sl_convert_options_init(&convert);
    check(sl_convert(src, dst, &convert, NULL, &report, &err), &err);
    sl_engine_options_init(&options);
    options.n_ctx = 64;
    options.n_threads = 1;
    check(sl_engine_open(dst, &options, NULL, &engine, &err), &err);
    check(sl_session_open(engine, session, &err), &err);
    return engine;
}

static void generate(sl_session *session, sl_generate_request *request,
                     sl_generate_result *result) {
    static const uint32_t prompt[] = {1};
    sl_error err;
    request->prompt = prompt;
    request->n_prompt = 1;
    request->sampling =
        (sl_sampling){.temperature = 100, .top_p = 1, .repeat_penalty = 1, .seed = seed};
    request->max_tokens = N_IDS;
    sl_session_reset(session);
    check(sl_session_generate(session, request, result, &err), &err);
}

static uint32_t n_heard;

static bool keep_token(void *user, uint32_t token) {
    ((uint32_t *)user)[n_heard++] = token;
    return true;
}

// A seed whose tokens are all different, so that each can have a text of its own.
static int choose_seed(void **state) {
    (void)state;
    sl_session *session;
    sl_engine *engine = open_model(NULL, &session);
    bool differ = false;
    for (seed = 1; seed < 100 && !differ; seed += !differ) {
        sl_generate_request request = {.on_token = keep_token, .user = ids};
        sl_generate_result result;
        n_heard = 0;
        generate(session, &request, &result);
        differ = n_heard == N_IDS;
        for (uint32_t i = 0; i < n_heard; i++)
            for (uint32_t j = 0; j < i; j++)
                differ &= ids[i] != ids[j];
    }
    sl_engine_close(engine);
    return differ ? 0 : -1;
}

typedef struct recorder {
    char text[512];
    size_t n;
    char open;
} recorder;

static void record(recorder *r, char kind, const char *bytes, size_t n) {
    if (r->open != kind || kind == 'C')
        r->n += (size_t)snprintf(r->text + r->n, sizeof(r->text) - r->n, "%s%.1s%s",
                                 r->open ? "]" : "", &kind, kind ? "[" : "");
    r->open = kind;
    assert_true(n < sizeof(r->text) - r->n);
    memcpy(r->text + r->n, bytes, n);
    r->n += n;
    r->text[r->n] = 0;
}

static bool keep_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    record(user, kind == SL_PIECE_TEXT ? 'T' : kind == SL_PIECE_REASONING ? 'R' : 'C', bytes, n);
    return true;
}

static void run_cases(const mark_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        sl_session *session;
        sl_engine *engine = open_model(&cases[i], &session);
        recorder heard = {0};
        sl_generate_request request = {
            .parse = !cases[i].raw, .on_piece = keep_piece, .user = &heard};
        sl_generate_result result;
        request.stop = &cases[i].stop;
        request.n_stop = cases[i].stop != NULL;
        generate(session, &request, &result);
        record(&heard, 0, "", 0);
        assert_string_equal(heard.text, cases[i].heard);
        assert_int_equal(result.finish, cases[i].finish);
        sl_engine_close(engine);
    }
}

#define MESSAGES "{{ '<|start|>assistant<|channel|>final<|message|>' }}"
#define ANALYSIS "<|channel|>", "analysis", "<|message|>"
#define FINAL "<|channel|>", "final", "<|message|>"
#define CALL "<|channel|>", "commentary", " to=functions.f ", "<|constrain|>", "json", "<|message|>"

static void marks_reach_the_parser(void **state) {
    (void)state;
    const mark_case cases[] = {
        {MESSAGES,
         {ANALYSIS, "why", " so", "<|return|>"},
         NULL,
         false,
         "R[why so]",
         SL_FINISH_STOP},
        {MESSAGES,
         {ANALYSIS, "why", "<|end|>", "so", "<|return|>"},
         NULL,
         false,
         "R[why]T[so]",
         SL_FINISH_STOP},
        // The token that ends the answer closes the call, and is part of it where it is none.
        {MESSAGES,
         {CALL, "{\"a\": ", "1}", "<|call|>"},
         NULL,
         false,
         "C[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
         SL_FINISH_TOOL_CALLS},
        {MESSAGES,
         {CALL, "{1}", "<|call|>"},
         NULL,
         false,
         "T[<|channel|>commentary to=functions.f <|constrain|>json<|message|>{1}<|call|>]",
         SL_FINISH_STOP},
        {"{{ '<think>' }}<｜tool▁calls▁begin｜>",
         {"Hm", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function", "<｜tool▁sep｜>",
          "f\n```json\n{}\n", "```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜end｜>"},
         NULL,
         false,
         "T[Hm]C[{\"name\": \"f\", \"arguments\": {}}]",
         SL_FINISH_TOOL_CALLS},
    };
    run_cases(cases, SL_COUNT(cases));
}

static void other_special_tokens_are_no_text(void **state) {
    (void)state;
    const mark_case cases[] = {
        {MESSAGES,
         {FINAL, "aa", "<|pad|>", "bb", "<|endoftext|>"},
         NULL,
         false,
         "T[aabb]",
         SL_FINISH_STOP},
        {"{{ '<think>' }}", {FINAL, "aa", "<|end|>"}, NULL, false, "T[finalaa]", SL_FINISH_STOP},
        {MESSAGES,
         {CALL, "{}", "<|call|>"},
         NULL,
         true,
         "T[commentary to=functions.f json{}]",
         SL_FINISH_STOP},
    };
    run_cases(cases, SL_COUNT(cases));
}

static void stop_strings_see_text_alone(void **state) {
    (void)state;
    const mark_case cases[] = {
        {MESSAGES, {FINAL, "abc", "def", "<|return|>"}, "cd", false, "T[ab]", SL_FINISH_STOP},
        {MESSAGES, {FINAL, "abc", "<|return|>"}, "final", false, "T[abc]", SL_FINISH_STOP},
        {MESSAGES, {FINAL, "abc", "<|return|>"}, "|>", false, "T[abc]", SL_FINISH_STOP},
        // What may have become a stop string goes out before the mark.
        {MESSAGES,
         {ANALYSIS, "ab", "<|end|>", "cd", "<|return|>"},
         "abc",
         false,
         "R[ab]T[cd]",
         SL_FINISH_STOP},
    };
    run_cases(cases, SL_COUNT(cases));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_reach_the_parser),
        cmocka_unit_test(other_special_tokens_are_no_text),
        cmocka_unit_test(stop_strings_see_text_alone),
    };
    return cmocka_run_group_tests(tests, choose_seed, NULL);
}
