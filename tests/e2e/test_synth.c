/* Made-up checkpoints: the same bytes however they are made, of every family, with the routing that was planted. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "helpers/checkpoint.h"
#include "helpers/scratch.h"
#include "io/folder.h"
#include "model/family.h"
#include "sluice.h"
#include "synth.h"

static const synth_options defaults = {
    .bits = 4, .group = 64, .seed = 1, .gains = {.n_topics = 64}};

static synth_options options_default(void) {
    synth_options o = defaults;
    o.gains = synth_gains_default();
    return o;
}

static void check(sl_status st, const sl_error *err, const char *what) {
    if (st)
        fail_msg("%s: %s: %s", what, sl_status_name(st), err->message);
}

static void fails(sl_status st, const sl_error *err, sl_status want, const char *says) {
    if (st != want || !strstr(err->message, says))
        fail_msg("%s '%s', expected %s '%s'", sl_status_name(st), st ? err->message : "",
                 sl_status_name(want), says);
}

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

static char *golden_config(const char *name, size_t *n) {
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/goldens/%s/config.json", SL_TEST_DATA, name);
    return test_file_read(path, n);
}

static void plan_golden(const char *name, const synth_options *options, synth_plan *plan) {
    sl_error err;
    size_t n;
    char *config = golden_config(name, &n);
    check(synth_plan_make(config, n, NULL, options, plan, &err), &err, name);
    free(config);
}

static sl_status write_to(const synth_plan *plan, const char *name, uint32_t n_threads,
                          sl_error *err) {
    const synth_write_options o = {.n_threads = n_threads, .force = true};
    return synth_write(plan, test_scratch_path(name), &o, err);
}

static void convert_to_store(const char *from, const char *to) {
    sl_error err;
    sl_convert_options options;
    sl_convert_report report;
    sl_convert_options_init(&options);
    options.force = true;
    check(sl_convert(test_scratch_path(from), test_scratch_path(to), &options, NULL, &report, &err),
          &err, from);
}

/* ---- bytes ------------------------------------------------------------------------------------------ */

static uint64_t hash_of(const char *path) {
    size_t n;
    char *bytes = test_file_read(path, &n);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 0x100000001b3u;
    free(bytes);
    return hash;
}

static void same_bytes_for_any_threads(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    synth_options options = options_default();
    plan_golden("qwen3_5_moe-mlx4", &options, &plan);
    assert_true(plan.shards[0].bytes > SL_MIB); // several blocks
    for (uint32_t threads = 1; threads <= 4; threads *= 2) {
        char name[16];
        (void)snprintf(name, sizeof(name), "t%u", threads);
        check(write_to(&plan, name, threads, &err), &err, name);
    }
    assert_true(test_files_equal(test_scratch_path("t1/model.safetensors"),
                                 test_scratch_path("t2/model.safetensors")));
    assert_true(test_files_equal(test_scratch_path("t1/model.safetensors"),
                                 test_scratch_path("t4/model.safetensors")));
    // Whatever the machine: another value here is another model for every seed.
    assert_int_equal(hash_of(test_scratch_path("t1/model.safetensors")), 0x1834aaddda25a64e);
    synth_plan_free(&plan);

    options.seed = 2;
    plan_golden("qwen3_5_moe-mlx4", &options, &plan);
    check(write_to(&plan, "t2", 1, &err), &err, "seed 2");
    assert_false(test_files_equal(test_scratch_path("t1/model.safetensors"),
                                  test_scratch_path("t2/model.safetensors")));
    synth_plan_free(&plan);
}

static void any_piece_is_part_of_the_whole(void **state) {
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    for (size_t b = 0; b < SL_COUNT(bits); b++) {
        synth_plan plan;
        synth_options options = options_default();
        options.bits = bits[b];
        plan_golden(b % 2 ? "gpt_oss" : "deepseek_v3-mlx4", &options, &plan);
        size_t n = (size_t)plan.shards[0].bytes, step = 100003;
        uint8_t *whole = malloc(n), *piece = malloc(step);
        void *scratch = aligned_alloc(64, (size_t)plan.scratch_bytes);
        synth_fill_range(&plan, 0, 0, n, whole, scratch);
        for (size_t at = 0; at < n; at += step) {
            size_t take = SL_MIN(step, n - at);
            synth_fill_range(&plan, 0, at, take, piece, scratch);
            assert_memory_equal(piece, whole + at, take);
        }
        free(whole);
        free(piece);
        free(scratch);
        synth_plan_free(&plan);
    }
}

/* ---- shapes ----------------------------------------------------------------------------------------- */

static uint64_t data_bytes(const synth_plan *p, bool experts) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (sl_kind_is_expert(sl_role_kind(p->modules[p->tensors[i].module].role)) == experts)
            sum += p->tensors[i].n_rows * p->tensors[i].row_bytes;
    return sum;
}

// Sizes of published files, without vision: counted from their configs by other means.
static void presets_have_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t expert_bytes, n_experts, other_bytes; /* other_bytes 0: not held */
    } known[] = {{"qwen3.6-35b-a3b", 1769472, 10240, 1389396096},
                 {"qwen3-next-80b-a3b", 1769472, 24576, 0},
                 {"qwen3-30b-a3b", 2654208, 6144, 0},
                 {"olmoe-1b-7b", 3538944, 1024, 0},
                 {"cogito-v2-671b", 24772608, 58 * 256, 0},
                 {"gpt-oss-20b", 13219200 + 17280, 768, 0}};
    for (const synth_preset *preset = synth_presets; preset->name; preset++) {
        sl_error err;
        synth_plan plan;
        const synth_options options = options_default();
        check(synth_plan_make(preset->config, strlen(preset->config), preset->generation, &options,
                              &plan, &err),
              &err, preset->name);
        assert_true(plan.model.n_stop_tokens > 0);
        for (size_t i = 0; i < SL_COUNT(known); i++) {
            if (strcmp(known[i].name, preset->name) != 0)
                continue;
            assert_int_equal(data_bytes(&plan, true), known[i].expert_bytes * known[i].n_experts);
            if (known[i].other_bytes)
                assert_int_equal(data_bytes(&plan, false), known[i].other_bytes);
        }
        synth_plan_free(&plan);
    }
}

typedef struct seen {
    float least, greatest;
    size_t n;
    bool finite;
} seen;

static bool see(void *user, const char *bytes, size_t n) {
    seen *s = user;
    for (size_t i = 0; i < n / sizeof(float); i++, s->n++) {
        float v;
        memcpy(&v, bytes + i * sizeof(v), sizeof(v));
        s->finite &= isfinite(v);
        s->least = SL_MIN(s->least, v);
        s->greatest = SL_MAX(s->greatest, v);
    }
    return true;
}

/* The whole way: written, converted, opened, answering with numbers of a sensible size. */
static void answers(const char *name, const sl_model *model) {
    enum { N = 96 };
    sl_error err;
    sl_engine_options options;
    sl_engine *engine;
    sl_session *session;
    uint32_t tokens[N];
    seen logits = {.finite = true}, hidden = {.finite = true};
    const sl_sink to_logits = {see, &logits}, to_hidden = {see, &hidden};
    convert_to_store("family", "store");
    sl_engine_options_init(&options);
    options.mem_bytes = 256 * SL_MIB;
    options.n_ctx = N;
    options.buffered = true;
    check(sl_engine_open(test_scratch_path("store"), &options, NULL, &engine, &err), &err, name);
    check(sl_session_open(engine, &session, &err), &err, name);
    synth_stream(model, 1, 64, tokens, N);
    check(sl_logits(session, tokens, N, &to_logits, &to_hidden, &err), &err, name);
    sl_session_close(session);
    sl_engine_close(engine);
    assert_int_equal(logits.n, (size_t)N * model->n_vocab);
    if (!logits.finite || !hidden.finite || logits.greatest - logits.least < 2 ||
        logits.greatest > 60 || logits.least < -60 || hidden.greatest > 30 || hidden.least < -30)
        fail_msg("%s: logits from %g to %g, hidden states from %g to %g", name,
                 (double)logits.least, (double)logits.greatest, (double)hidden.least,
                 (double)hidden.greatest);
}

static void every_family_converts_and_answers(void **state) {
    (void)state;
    sl_error err;
    bool found[16] = {false};
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/goldens", SL_TEST_DATA);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        (void)snprintf(path, sizeof(path), "%s/goldens/%.200s/config.json", SL_TEST_DATA,
                       entry->d_name);
        if (!exists(path))
            continue;
        synth_plan plan;
        const synth_options options = options_default();
        plan_golden(entry->d_name, &options, &plan);
        for (uint32_t i = 0; i < sl_n_families && i < SL_COUNT(found); i++)
            found[i] |= sl_families[i] == plan.model.family;
        check(write_to(&plan, "family", 2, &err), &err, entry->d_name);
        answers(entry->d_name, &plan.model);
        synth_plan_free(&plan);
    }
    (void)closedir(folder);
    for (uint32_t i = 0; i < sl_n_families; i++)
        if (!found[i])
            fail_msg("no config of family %s was tried", sl_families[i]->name);
}

static void layers_are_cut(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    synth_options options = options_default();
    options.n_layers = 3;
    plan_golden("lfm2_moe-mlx4", &options, &plan); // its config lists the layers' kinds
    assert_int_equal(plan.model.n_layers, 3);
    check(write_to(&plan, "family", 1, &err), &err, "3 layers");
    answers("3 layers", &plan.model);
    synth_plan_free(&plan);

    const synth_preset *preset = synth_preset_find("qwen3.6-35b-a3b");
    options.n_layers = 4;
    check(synth_plan_make(preset->config, strlen(preset->config), preset->generation, &options,
                          &plan, &err),
          &err, preset->name);
    assert_int_equal(plan.model.n_layers, 4);
    synth_plan_free(&plan);
    options.n_layers = 41;
    fails(synth_plan_make(preset->config, strlen(preset->config), NULL, &options, &plan, &err),
          &err, SL_ERR_ARGUMENT, "41 layers, of a model that has 40");
}

/* ---- routes ----------------------------------------------------------------------------------------- */

static const char routed[] =
    "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 512, \"num_hidden_layers\": 6, "
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 2, \"head_dim\": 64, "
    "\"num_experts\": 256, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 64, "
    "\"intermediate_size\": 512, \"norm_topk_prob\": true, \"rms_norm_eps\": 1e-06, "
    "\"rope_theta\": 1000000, \"max_position_embeddings\": 8192, \"vocab_size\": 8192, "
    "\"tie_word_embeddings\": false}";

static void figures_of(const synth_gains *gains, synth_summary *fast, synth_summary *full) {
    enum { TOKENS = 4000 };
    sl_error err;
    synth_plan plan;
    synth_figures *figures;
    synth_options options = options_default();
    options.gains = *gains;
    check(synth_plan_make(routed, strlen(routed), NULL, &options, &plan, &err), &err, "routed");
    check(write_to(&plan, "routed", 2, &err), &err, "routed");
    synth_plan_free(&plan);
    check(synth_check_fast(test_scratch_path("routed"), 1, gains, TOKENS, 2, &figures, &err), &err,
          "fast");
    synth_figures_summary(figures, fast);
    synth_figures_free(figures);
    convert_to_store("routed", "routed.store");
    check(synth_check_full(test_scratch_path("routed.store"), 1, gains->n_topics, TOKENS,
                           512 * SL_MIB, 2, &figures, &err),
          &err, "full");
    synth_figures_summary(figures, full);
    synth_figures_free(figures);
}

static void in_range(const char *what, double v, double low, double high) {
    if (!(v >= low && v <= high))
        fail_msg("%s: %.3f, expected %.3f to %.3f", what, v, low, high);
}

static void planted_routes_are_there(void **state) {
    (void)state;
    synth_summary fast, full;
    synth_gains gains = synth_gains_default();
    figures_of(&gains, &fast, &full);
    assert_int_equal(full.n_few, 8);
    assert_int_equal(full.n_many, 40);
    in_range("size of the stream", full.rms_least, 0.5, 1);
    in_range("size of the stream", full.rms_greatest, 0.7, 2);
    in_range("overlap", full.overlap, 0.28, 0.42);
    in_range("few", full.top_few, 0.12, 0.22);
    in_range("many", full.top_many, 0.43, 0.56);
    in_range("guessed", full.guessed, 0.72, 0.86);
    in_range("fast overlap", fast.overlap, full.overlap - 0.07, full.overlap + 0.07);
    in_range("fast few", fast.top_few, full.top_few - 0.04, full.top_few + 0.04);
    in_range("fast many", fast.top_many, full.top_many - 0.06, full.top_many + 0.06);
    in_range("fast guessed", fast.guessed, full.guessed - 0.06, full.guessed + 0.06);

    // Without gains there is nothing to see, so the figures above are not of the counting's making.
    gains = (synth_gains){.change = 0.5, .n_topics = 64};
    figures_of(&gains, &fast, &full);
    in_range("overlap without", fast.overlap, 0.02, 0.06); // 8 of 256 by chance: 0.031
    in_range("many without", fast.top_many, 0.156, 0.24);
    in_range("guessed without", fast.guessed, 0.2, 0.6);
}

static void streams_stay_with_a_topic(void **state) {
    (void)state;
    enum { N = 20000 };
    static uint32_t tokens[N], again[N];
    synth_plan plan;
    const synth_options options = options_default();
    const synth_preset *preset = synth_preset_find("qwen3.6-35b-a3b");
    sl_error err;
    check(synth_plan_make(preset->config, strlen(preset->config), preset->generation, &options,
                          &plan, &err),
          &err, preset->name);
    synth_stream(&plan.model, 1, 64, tokens, N);
    synth_stream(&plan.model, 1, 64, again, N);
    assert_memory_equal(tokens, again, sizeof(tokens));
    uint32_t n_switches = 0;
    for (uint32_t i = 0; i < N; i++) {
        assert_true(tokens[i] < plan.model.n_vocab);
        for (uint32_t s = 0; s < plan.model.n_stop_tokens; s++)
            assert_int_not_equal(tokens[i], plan.model.stop_tokens[s]);
        n_switches += i && tokens[i] % 64 != tokens[i - 1] % 64;
    }
    in_range("tokens of a topic at a time", (double)N / n_switches, 70, 130);
    synth_plan_free(&plan);
}

/* ---- what is refused -------------------------------------------------------------------------------- */

static void nonsense_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *config, *says;
        sl_status status;
    } cases[] = {
        {"", "config.json", SL_ERR_SYNTAX},
        {"[1]", "expected an object", SL_ERR_CORRUPT},
        {"{}", "'model_type' is missing", SL_ERR_CORRUPT},
        {"{\"model_type\": \"llama\"}", "'model_type' is 'llama'", SL_ERR_UNSUPPORTED},
        {"{\"model_type\": \"olmoe\"}", "is missing", SL_ERR_CORRUPT},
    };
    sl_error err;
    synth_plan plan;
    synth_options options = options_default();
    for (size_t i = 0; i < SL_COUNT(cases); i++)
        fails(
            synth_plan_make(cases[i].config, strlen(cases[i].config), NULL, &options, &plan, &err),
            &err, cases[i].status, cases[i].says);
    options.bits = 7;
    fails(synth_plan_make(routed, strlen(routed), NULL, &options, &plan, &err), &err,
          SL_ERR_ARGUMENT, "7 bits");
    options.bits = 4;
    options.gains.common = 0.7;
    fails(synth_plan_make(routed, strlen(routed), NULL, &options, &plan, &err), &err,
          SL_ERR_ARGUMENT, "gains");
}

static bool stop(void *user, uint64_t done, uint64_t total) {
    (void)user;
    (void)done;
    (void)total;
    return false;
}

static void nothing_is_left_after_a_failure(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    const synth_options options = options_default();
    synth_write_options o = {.n_threads = 2};
    struct rlimit before, small;
    plan_golden("olmoe-mlx4", &options, &plan);

    o.report = stop;
    fails(synth_write(&plan, test_scratch_path("gone"), &o, &err), &err, SL_ERR_CANCELED,
          "removed");
    assert_false(exists(test_scratch_path("gone")));
    assert_false(exists(test_scratch_path("gone.partial")));

    o.report = NULL;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 256 * SL_KIB;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    sl_status st = synth_write(&plan, test_scratch_path("gone"), &o, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    fails(st, &err, SL_ERR_IO, "longer than is allowed");
    assert_false(exists(test_scratch_path("gone")));
    assert_false(exists(test_scratch_path("gone.partial")));
    synth_plan_free(&plan);
}

static void a_full_drive_is_said_before(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    uint64_t free_bytes;
    const synth_options options = options_default();
    const synth_write_options o = {.n_threads = 1};
    const synth_preset *preset = synth_preset_find("cogito-v2-671b");
    check(synth_plan_make(preset->config, strlen(preset->config), NULL, &options, &plan, &err),
          &err, preset->name);
    check(sl_path_free_bytes(test_scratch(), &free_bytes, &err), &err, "space");
    if (free_bytes > plan.bytes) {
        synth_plan_free(&plan);
        print_message("this drive has %llu GiB free\n", (unsigned long long)(free_bytes / SL_GIB));
        skip();
    }
    fails(synth_write(&plan, test_scratch_path("large"), &o, &err), &err, SL_ERR_IO, "free");
    assert_false(exists(test_scratch_path("large.partial")));
    synth_plan_free(&plan);
}

static void only_checkpoints_are_replaced(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    const synth_options options = options_default();
    synth_write_options o = {.n_threads = 1};
    plan_golden("olmoe-mlx4", &options, &plan);
    check(synth_write(&plan, test_scratch_path("kept"), &o, &err), &err, "first");
    fails(synth_write(&plan, test_scratch_path("kept"), &o, &err), &err, SL_ERR_EXISTS, "--force");
    o.force = true;
    check(synth_write(&plan, test_scratch_path("kept"), &o, &err), &err, "again");
    test_file_write(test_scratch_path("kept/letter.txt"), "dear", 4);
    fails(synth_write(&plan, test_scratch_path("kept"), &o, &err), &err, SL_ERR_EXISTS,
          "letter.txt");
    assert_true(exists(test_scratch_path("kept/model.safetensors")));
    assert_true(exists(test_scratch_path("kept/letter.txt")));
    synth_plan_free(&plan);
}

static void the_tokenizer_comes_along(void **state) {
    (void)state;
    sl_error err;
    synth_plan plan;
    const synth_options options = options_default();
    synth_write_options o = {.n_threads = 1, .tokenizer = SL_MODELS_DIR "/demo"};
    plan_golden("olmoe-mlx4", &options, &plan);
    check(synth_write(&plan, test_scratch_path("talks"), &o, &err), &err, "tokenizer");
    assert_true(test_files_equal(test_scratch_path("talks/tokenizer.json"),
                                 SL_MODELS_DIR "/demo/tokenizer.json"));
    o.tokenizer = test_scratch();
    fails(synth_write(&plan, test_scratch_path("mute"), &o, &err), &err, SL_ERR_MISSING,
          "tokenizer");
    assert_false(exists(test_scratch_path("mute")));
    synth_plan_free(&plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(any_piece_is_part_of_the_whole),
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(every_family_converts_and_answers),
        cmocka_unit_test(layers_are_cut),
        cmocka_unit_test(planted_routes_are_there),
        cmocka_unit_test(streams_stay_with_a_topic),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(nothing_is_left_after_a_failure),
        cmocka_unit_test(a_full_drive_is_said_before),
        cmocka_unit_test(only_checkpoints_are_replaced),
        cmocka_unit_test(the_tokenizer_comes_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
