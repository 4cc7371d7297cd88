/* A checkpoint of MLX's layout as it was downloaded gives the bits of the store that is converted from it: logits and
 * sampled tokens, at budgets from the floor to everything in memory, with every reader, thread count and chunk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"

#define CTX 256
#define N_TOKENS 80
#define STEPS 6u

static uint32_t tokens[N_TOKENS];
static trace reference, other;

static sl_engine_options options_of(uint32_t threads, uint32_t chunk, sl_io io) {
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = CTX;
    o.n_threads = threads;
    o.chunk = chunk;
    o.io = io;
    return o;
}

static void same_bits(void **state) {
    static const uint32_t threads[] = {1, 2, 3}, chunks[] = {0, 1, 7, 64, CTX};
    const char *name = *state;
    char checkpoint[1024];
    sl_error err;
    sl_convert_options options;
    sl_convert_report report;
    (void)snprintf(checkpoint, sizeof(checkpoint), "%s/goldens/%s", SL_TEST_DATA, name);
    const char *store = test_scratch_path(name);
    sl_convert_options_init(&options);
    options.force = true;
    if (sl_convert(checkpoint, store, &options, NULL, &report, &err))
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * i * 7 + i * 3 + 11) % 509;
    sl_engine_options o = options_of(1, CTX, SL_IO_PREAD);
    o.mem_bytes = trace_largest(store, &o);
    trace_run(store, &o, tokens, N_TOKENS, tokens, 40, &reference);

    uint32_t n_streaming = 0, n_partly_hot = 0;
    for (uint32_t i = 0; i <= STEPS; i++) {
        o = options_of(threads[i % 3], chunks[i % 5], trace_io(checkpoint, i));
        uint64_t smallest = trace_smallest(checkpoint, &o), largest = trace_largest(checkpoint, &o);
        // More steps at the small end, where things differ.
        o.mem_bytes = smallest + (largest - smallest) * i * i / (STEPS * STEPS);
        char what[200];
        (void)snprintf(what, sizeof(what), "%s: %llu bytes, %u threads, chunk %u, io %d", name,
                       (unsigned long long)o.mem_bytes, o.n_threads, o.chunk, (int)o.io);
        trace_run(checkpoint, &o, tokens, N_TOKENS, tokens, 40, &other);
        trace_same(&reference, &other, what);
        assert_true(other.plan.total_bytes <= o.mem_bytes);
        n_streaming += other.plan.n_tensors_streamed > 0;
        n_partly_hot +=
            other.plan.hot_slots > 0 && other.plan.hot_slots < other.plan.n_experts_total;
        if (i == 0)
            assert_true(other.plan.n_tensors_streamed > 0 && other.trunk_read_bytes > 0);
    }
    assert_true(n_streaming >= 1);
    assert_true(n_partly_hot >= 2);
    assert_int_equal(other.plan.hot_slots, other.plan.n_experts_total);
}

static const char *const names[] = {
    "qwen3_5_moe-mlx4", "qwen3_next-mlx4",  "qwen3_moe-mlx4", "olmoe-mlx4",
    "mixtral-mlx4",     "deepseek_v3-mlx4", "glm4_moe-mlx4",  "lfm2_moe-mlx4",
};

int main(void) {
    struct CMUnitTest tests[SL_COUNT(names)];
    for (size_t i = 0; i < SL_COUNT(names); i++)
        tests[i] =
            (struct CMUnitTest){names[i], same_bits, NULL, NULL, (void *)(uintptr_t)names[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
