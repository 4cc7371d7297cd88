/* The plan: arithmetic on numbers, for the demo model and for one of 35 billion parameters. */
#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "helpers/demo.h"
#include "model/forward.h"
#include "plan/sizes.h"

#define TENSORS_MAX 4096

/* Qwen3.6-35B-A3B as its 4-bit conversion describes it. */
static const char big_config[] =
    "{\"model_type\": \"qwen3_5_moe\", \"tie_word_embeddings\": false,"
    " \"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"],"
    " \"quantization\": {\"group_size\": 64, \"bits\": 4},"
    " \"text_config\": {\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": 2048,"
    " \"num_hidden_layers\": 40, \"full_attention_interval\": 4, \"num_attention_heads\": 16,"
    " \"num_key_value_heads\": 2, \"head_dim\": 256, \"attention_bias\": false,"
    " \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32, \"linear_key_head_dim\": 128,"
    " \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, \"num_experts\": 256,"
    " \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 512,"
    " \"shared_expert_intermediate_size\": 512, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000,"
    " \"partial_rotary_factor\": 0.25, \"mrope_section\": [11, 11, 10],"
    " \"mrope_interleaved\": true}, \"max_position_embeddings\": 262144, \"vocab_size\": 248320,"
    " \"eos_token_id\": 248044, \"tie_word_embeddings\": false}}";

static sl_store demo, big;

static void describe(const char *text, size_t len, sl_store *out) {
    sl_error err;
    sl_checkpoint_options options = {0};
    demo_check(sl_config_describe(text, len, &options, out, &err), &err);
    // What a conversion adds.
    out->tokenizer.bytes = (uint64_t)out->model.n_vocab * 24;
    out->chat_template.bytes = 8 * SL_KIB;
    assert_true(out->n_tensors <= TENSORS_MAX);
}

static int set_up(void **state) {
    (void)state;
    static char text[1 << 16];
    FILE *f = fopen(SL_MODELS_DIR "/demo/config.json", "rb");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    describe(text, len, &demo);
    describe(big_config, sizeof(big_config) - 1, &big);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sl_store_close(&demo);
    sl_store_close(&big);
    return 0;
}

static sl_plan_input input_of(const sl_store *store, uint64_t budget) {
    return (sl_plan_input){
        .store = store,
        .budget_bytes = budget,
        .n_ctx = 4096,
        .n_threads = 2,
        .n_cpus = 2,
        .process = true,
        .code_bytes = 4 * SL_MIB,
        .thread_stack_bytes = 128 * SL_KIB,
        .reader_bytes = 4 * SL_KIB,
        .kernel_bytes = 100 * SL_KIB,
        .engine_bytes = 16 * SL_KIB,
    };
}

static uint64_t smallest_of(sl_plan_input in) {
    sl_plan_result r;
    sl_error err;
    in.budget_bytes = 1;
    assert_int_equal(sl_plan_solve(&in, &r, NULL, &err), SL_ERR_BUDGET);
    assert_int_equal(r.total_bytes, 0);
    return r.smallest_bytes;
}

static uint64_t up(uint64_t bytes) {
    return SL_ALIGN_UP(bytes, SL_PAGE);
}

/* Everything that must hold of any plan that fits. */
static void check(const sl_plan_input *in, sl_plan_result *r) {
    static uint8_t resident[TENSORS_MAX];
    const sl_store *store = in->store;
    const sl_model *m = &store->model;
    const uint64_t *a = r->account;
    sl_error err;
    memset(resident, 0xee, sizeof(resident));
    demo_check(sl_plan_solve(in, r, resident, &err), &err);

    uint64_t sum = 0, trunk = 0, head = 0, streamed = 0, least_streamed = UINT64_MAX;
    uint32_t n_streamed = 0;
    for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++) {
        sum += a[i];
        assert_true(a[i] <= in->budget_bytes);
        assert_int_equal(a[i] % SL_PAGE, 0);
    }
    assert_int_equal(sum, r->total_bytes);
    assert_true(r->total_bytes <= in->budget_bytes);
    assert_true(r->smallest_bytes <= in->budget_bytes);

    // Each account is what its function says: the one that sizes the arena.
    for (uint32_t i = 0; i < store->n_tensors; i++) {
        const sl_store_tensor *t = &store->tensors[i];
        assert_in_range(resident[i], 0, 1);
        if (resident[i]) {
            *(t->role == SL_ROLE_HEAD ? &head : &trunk) += sl_plan_tensor_bytes(t);
            continue;
        }
        assert_true(sl_plan_tensor_can_stream(t));
        n_streamed++;
        streamed += sl_plan_streamed_bytes(t, r->strip_bytes);
        assert_true(sl_plan_streamed_bytes(t, r->strip_bytes) >=
                    t->layout.bytes - 3 * SL_MATRIX_ALIGN);
        least_streamed = SL_MIN(least_streamed, sl_plan_tensor_bytes(t));
        // The widest row has room in a strip, wherever in a page its three parts begin.
        assert_true(t->layout.row_code_bytes + 2 * t->layout.row_scale_bytes + 6 * SL_PAGE <=
                    r->strip_bytes);
    }
    assert_int_equal(n_streamed, r->n_streamed);
    assert_int_equal(streamed, r->streamed_bytes);
    assert_int_equal(n_streamed > 0, r->strip_bytes > 0);
    assert_int_equal(a[SL_ACCOUNT_CODE], in->process ? up(in->code_bytes) : 0);
    assert_int_equal(a[SL_ACCOUNT_THREADS], up(in->thread_stack_bytes) + up(in->reader_bytes));
    assert_int_equal(a[SL_ACCOUNT_TRUNK], up(trunk + sl_plan_weight_table_bytes(store)) +
                                              2 * r->strip_bytes +
                                              up(store->arena.used + in->engine_bytes));
    assert_int_equal(a[SL_ACCOUNT_HEAD], up(head));
    assert_int_equal(a[SL_ACCOUNT_EMBEDDING], r->row_buffers * r->row_buffer_bytes +
                                                  up(sl_plan_row_cache_bytes(store, r->row_cache)));
    assert_true(r->row_buffer_bytes >= store->embed.stride + SL_PAGE);
    assert_int_equal(a[SL_ACCOUNT_KV], up(sl_kv_bytes(m, in->n_ctx)));
    assert_int_equal(a[SL_ACCOUNT_STATE], up(sl_recurrent_bytes(m)));
    assert_int_equal(a[SL_ACCOUNT_SCRATCH],
                     up(sl_scratch_bytes(m, r->chunk) + sl_plan_sampler_bytes(m)));
    assert_int_equal(a[SL_ACCOUNT_RING], r->ring_slots * store->expert.stride);
    assert_int_equal(a[SL_ACCOUNT_HOT],
                     r->hot_slots * store->expert.stride +
                         up(sl_plan_hot_table_bytes(store, r->hot_slots + r->ring_slots)));
    assert_int_equal(a[SL_ACCOUNT_RESERVE], in->n_cpus * SL_RESERVE_BYTES_PER_CPU);
    // Page tables: an entry of 8 bytes for every page.
    assert_true(a[SL_ACCOUNT_KERNEL] - r->kernel_fixed_bytes >=
                (r->total_bytes - a[SL_ACCOUNT_RESERVE] - a[SL_ACCOUNT_KERNEL]) / 512);

    assert_in_range(r->chunk, 1, in->n_ctx);
    assert_true(r->ring_slots >= SL_RING_SLOTS_MIN);
    assert_true(r->hot_slots <= m->n_layers * m->moe.n_experts);
    assert_true(r->row_cache <= store->embed.shape.rows);
    assert_true(r->token_read_bytes_low <= r->token_read_bytes_high);
    assert_true(r->token_read_bytes_low >= r->streamed_bytes);

    // A trunk byte is worth more than an expert's: the slots take less than any tensor that streams.
    assert_true(r->hot_slots * store->expert.stride < least_streamed);

    // Nothing idle: one slot more, or with all slots the whole embedding, would not fit.
    uint64_t idle = in->budget_bytes - r->total_bytes, next = 0;
    if (r->hot_slots < m->n_layers * m->moe.n_experts)
        next = store->expert.stride;
    else if (r->row_cache < store->embed.shape.rows)
        next = up(sl_plan_row_cache_bytes(store, store->embed.shape.rows));
    // Its tables and page tables come in whole pages.
    if (next && idle >= next + next / 512 + 3 * SL_PAGE)
        fail_msg(
            "%llu of %llu bytes are idle, %llu more would be used; %u slots, %u rows, %u stream",
            (unsigned long long)idle, (unsigned long long)in->budget_bytes,
            (unsigned long long)next, r->hot_slots, r->row_cache, r->n_streamed);
}

static void every_budget_adds_up(void **state) {
    (void)state;
    static const sl_store *const stores[] = {&demo, &big};
    for (size_t s = 0; s < SL_COUNT(stores); s++) {
        for (uint32_t variant = 0; variant < 6; variant++) {
            sl_plan_input in = input_of(stores[s], 0);
            in.n_ctx = variant & 1 ? 256 : 4096;
            in.chunk = variant & 2 ? 64 : 0;
            in.process = variant < 4;
            uint64_t floor = smallest_of(in);
            // From the floor up to twice the model, in uneven steps.
            for (uint64_t budget = floor; budget < 3 * stores[s]->model_bytes + SL_GIB;
                 budget += budget / 61 + 4093) {
                sl_plan_result r;
                in.budget_bytes = budget;
                check(&in, &r);
                assert_int_equal(r.smallest_bytes, floor);
            }
        }
    }
}

static void the_floor_is_exact(void **state) {
    (void)state;
    static const sl_store *const stores[] = {&demo, &big};
    for (size_t s = 0; s < SL_COUNT(stores); s++) {
        sl_plan_input in = input_of(stores[s], 0);
        sl_plan_result r, refused;
        sl_error err;
        char number[32];
        in.budget_bytes = smallest_of(in);
        check(&in, &r);
        assert_int_equal(in.budget_bytes % SL_PAGE, 0);
        assert_true(r.n_streamed > 0);
        assert_int_equal(r.hot_slots, 0);

        in.budget_bytes -= SL_PAGE;
        assert_int_equal(sl_plan_solve(&in, &refused, NULL, &err), SL_ERR_BUDGET);
        assert_int_equal(err.status, SL_ERR_BUDGET);
        assert_int_equal(refused.total_bytes, 0);
        assert_int_equal(refused.smallest_bytes, in.budget_bytes + SL_PAGE);
        (void)snprintf(number, sizeof(number), "(%llu bytes)",
                       (unsigned long long)refused.smallest_bytes);
        assert_non_null(strstr(err.message, number));
        // The largest account is named.
        unsigned largest = 0;
        for (unsigned i = 1; i < SL_ACCOUNT_COUNT; i++)
            if (refused.account[i] > refused.account[largest])
                largest = i;
        assert_non_null(strstr(err.message, sl_account_name(largest)));

        // And a context that does fit.
        const char *context = strstr(err.message, "A context of ");
        assert_non_null(context);
        in.n_ctx = (uint32_t)strtoul(context + 13, NULL, 10);
        assert_in_range(in.n_ctx, 64, 2048);
        check(&in, &r);
    }
}

/* At a budget that no context fits, none is promised. */
static void no_context_fits(void **state) {
    (void)state;
    sl_plan_input in = input_of(&demo, 0);
    sl_plan_result r;
    sl_error err;
    in.n_ctx = 64;
    in.budget_bytes = smallest_of(in) - SL_PAGE;
    in.n_ctx = 4096;
    assert_int_equal(sl_plan_solve(&in, &r, NULL, &err), SL_ERR_BUDGET);
    assert_null(strstr(err.message, "fits this budget"));
}

/* More memory never means more reading, while the chunk is the same; and what costs most goes first. */
static void more_memory_reads_less(void **state) {
    (void)state;
    static const sl_store *const stores[] = {&demo, &big};
    for (size_t s = 0; s < SL_COUNT(stores); s++) {
        sl_plan_input in = input_of(stores[s], 0);
        sl_plan_result before = {0}, r;
        in.chunk = 16;
        uint64_t floor = smallest_of(in);
        for (uint64_t budget = floor; budget < 2 * stores[s]->model_bytes + SL_GIB;
             budget += budget / 97 + SL_PAGE) {
            in.budget_bytes = budget;
            check(&in, &r);
            // The embedding comes last.
            if (r.row_cache == in.store->embed.shape.rows)
                assert_int_equal(r.hot_slots,
                                 in.store->model.n_layers * in.store->model.moe.n_experts);
            if (budget > floor && before.strip_bytes == r.strip_bytes &&
                before.ring_slots == r.ring_slots) {
                assert_true(r.streamed_bytes <= before.streamed_bytes);
                if (r.streamed_bytes == before.streamed_bytes)
                    assert_true(r.hot_slots >= before.hot_slots);
            }
            before = r;
        }
        assert_int_equal(r.n_streamed, 0);
        assert_int_equal(r.hot_slots, in.store->model.n_layers * in.store->model.moe.n_experts);
        assert_int_equal(r.row_cache, in.store->embed.shape.rows);
        assert_int_equal(r.token_read_bytes_high, 0);
    }
}

/* 35 billion parameters: the numbers of the model are as published, and no sum wraps. */
static void a_large_model(void **state) {
    (void)state;
    assert_int_equal(big.expert.stride, 1769472);
    assert_int_equal(big.expert.bytes, 1769472);
    assert_int_equal(sl_kv_bytes(&big.model, 4096), (uint64_t)40960 * 4096);
    for (uint64_t budget = 512 * SL_MIB; budget <= 32 * SL_GIB; budget *= 2) {
        sl_plan_input in = input_of(&big, budget);
        sl_plan_result r;
        sl_error err;
        if (smallest_of(in) > budget) {
            assert_int_equal(sl_plan_solve(&in, &r, NULL, &err), SL_ERR_BUDGET);
            printf("%llu MiB: %s\n", (unsigned long long)(budget / SL_MIB), err.message);
            continue;
        }
        check(&in, &r);
        printf("%llu MiB: %u tensors stream, %u of 10240 experts stay, chunk %u, %.0f to %.0f MiB "
               "a token\n",
               (unsigned long long)(budget / SL_MIB), r.n_streamed, r.hot_slots, r.chunk,
               (double)r.token_read_bytes_low / (double)SL_MIB,
               (double)r.token_read_bytes_high / (double)SL_MIB);
        assert_true(r.token_read_bytes_high - r.streamed_bytes <=
                    (uint64_t)320 * 1769472 + SL_PAGE);
        assert_int_equal(r.n_streamed > 0, budget < 2 * SL_GIB);
        if (budget == 32 * SL_GIB)
            assert_int_equal(r.hot_slots, 10240);
    }
    // The longest context: 10 GiB of keys and values.
    sl_plan_input in = input_of(&big, 16 * SL_GIB);
    sl_plan_result r;
    in.n_ctx = 262144;
    check(&in, &r);
    assert_int_equal(r.account[SL_ACCOUNT_KV], (uint64_t)40960 * 262144);
}

static void wild_numbers(void **state) {
    (void)state;
    static const uint64_t budgets[] = {
        0, 1, 4095, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)1 << 63};
    static const sl_store *const stores[] = {&demo, &big};
    for (size_t s = 0; s < SL_COUNT(stores); s++) {
        for (size_t b = 0; b < SL_COUNT(budgets); b++) {
            for (uint32_t v = 0; v < 4; v++) {
                sl_plan_input in = input_of(stores[s], budgets[b]);
                sl_plan_result r;
                sl_error err;
                in.n_ctx = v & 1 ? 1 : in.store->model.n_ctx_max;
                in.n_cpus = v & 2 ? 1 << 16 : 1;
                in.n_threads = v & 2 ? 1024 : 1;
                in.thread_stack_bytes = (uint64_t)in.n_threads * SL_MIB;
                in.chunk = v & 1 ? 1 : 0;
                if (budgets[b] > SL_GIB) {
                    check(&in, &r);
                } else {
                    assert_int_equal(sl_plan_solve(&in, &r, NULL, &err), SL_ERR_BUDGET);
                    assert_true(r.smallest_bytes > SL_MIB);
                    assert_true(strlen(err.message) < SL_ERROR_MESSAGE_MAX - 1);
                }
            }
        }
    }
}

static void replace(char *text, size_t cap, const char *from, const char *to) {
    char copy[4096];
    char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(copy, sizeof(copy), "%s", at + strlen(from));
    (void)snprintf(at, cap - (size_t)(at - text), "%s%s", to, copy);
}

/* The largest sizes that a config may have, one by one and all together: the sums do not wrap around. */
static void largest_config(void **state) {
    (void)state;
    static const struct {
        const char *from, *to;
    } edits[] = {
        {"\"hidden_size\": 2048", "\"hidden_size\": 65536"},
        {"\"num_experts\": 256", "\"num_experts\": 4096"},
        {"\"num_hidden_layers\": 40", "\"num_hidden_layers\": 256"},
        {"\"moe_intermediate_size\": 512", "\"moe_intermediate_size\": 8192"},
        {"\"vocab_size\": 248320", "\"vocab_size\": 16777216"},
        {"\"max_position_embeddings\": 262144", "\"max_position_embeddings\": 4194304"},
        {"\"linear_num_value_heads\": 32", "\"linear_num_value_heads\": 1024"},
        {"\"head_dim\": 256", "\"head_dim\": 512"},
    };
    char all[4096];
    (void)snprintf(all, sizeof(all), "%s", big_config);
    for (size_t i = 0; i <= SL_COUNT(edits); i++) {
        char one[4096];
        (void)snprintf(one, sizeof(one), "%s", i < SL_COUNT(edits) ? big_config : all);
        if (i < SL_COUNT(edits)) {
            replace(one, sizeof(one), edits[i].from, edits[i].to);
            replace(all, sizeof(all), edits[i].from, edits[i].to);
        }
        sl_store store;
        sl_error err;
        sl_plan_result r;
        sl_checkpoint_options options = {0};
        demo_check(sl_config_describe(one, strlen(one), &options, &store, &err), &err);
        sl_plan_input in = input_of(&store, UINT64_MAX / 2);
        in.n_ctx = store.model.n_ctx_max;
        uint64_t smallest = smallest_of(in);
        printf("%s: smallest %.3g GiB\n", i < SL_COUNT(edits) ? edits[i].to : "all of it",
               (double)smallest / (double)SL_GIB);
        check(&in, &r);
        assert_true(smallest > 2 * store.expert.stride + sl_kv_bytes(&store.model, in.n_ctx));
        assert_true(r.total_bytes > store.model_bytes / 2 && r.total_bytes < (uint64_t)1 << 60);
        sl_store_close(&store);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_budget_adds_up), cmocka_unit_test(the_floor_is_exact),
        cmocka_unit_test(no_context_fits),      cmocka_unit_test(more_memory_reads_less),
        cmocka_unit_test(a_large_model),        cmocka_unit_test(wild_numbers),
        cmocka_unit_test(largest_config),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
