/* One answer for every layer kind: the tiny models of each family, converted to 4 bits, give the same logit bits
 * and the same sampled tokens at every budget, thread count, chunk, I/O back end and instruction set. The
 * contexts are long enough for a sliding window to wrap around its ring several times. */
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
#include "kernels/kernels.h"

#define CTX 512
#define N_TOKENS 300

static const char *store; /* of the family under test */
static uint32_t tokens[N_TOKENS];
static trace reference, other;

static sl_engine_options options_of(uint32_t threads, uint32_t chunk, sl_io io, const char *cpu) {
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = CTX;
    o.n_threads = threads;
    o.chunk = chunk;
    o.io = io;
    o.cpu = cpu;
    return o;
}

static void check(const sl_engine_options *o) {
    char what[200];
    (void)snprintf(what, sizeof(what), "%s: %llu bytes, %u threads, chunk %u, %s, cpu %s", store,
                   (unsigned long long)o->mem_bytes, o->n_threads, o->chunk,
                   o->io == SL_IO_URING ? "io_uring" : "pread", o->cpu ? o->cpu : "best");
    trace_run(store, o, tokens, N_TOKENS, tokens, 40, &other);
    trace_same(&reference, &other, what);
    assert_true(other.plan.total_bytes <= o->mem_bytes);
}

/* Budgets from the floor up, with threads, chunks and readers in turn. */
static void budgets(void) {
    static const uint32_t threads[] = {1, 2, 4}, chunks[] = {0, 1, 7, 64, CTX};
    uint32_t n_streaming = 0, n_partly_hot = 0;
    for (uint32_t i = 0; i <= 10; i++) {
        sl_engine_options o = options_of(threads[i % SL_COUNT(threads)],
                                         chunks[i % SL_COUNT(chunks)], trace_io(store, i), NULL);
        uint64_t floor = trace_smallest(store, &o), top = trace_largest(store, &o);
        o.mem_bytes = floor + (top - floor) * i * i / 100;
        check(&o);
        n_streaming += other.plan.n_tensors_streamed > 0;
        n_partly_hot +=
            other.plan.hot_slots > 0 && other.plan.hot_slots < other.plan.n_experts_total;
        if (i == 0)
            assert_true(other.plan.n_tensors_streamed > 0 && other.trunk_read_bytes > 0);
    }
    assert_true(n_streaming >= 2);
    assert_true(n_partly_hot >= 3);
    assert_int_equal(other.plan.hot_slots, other.plan.n_experts_total);
}

static void levels(void) {
    static const char *const names[] = {"ref", "avx2", "avx512", "neon"};
    for (uint32_t l = 0; l < SL_COUNT(names); l++) {
        sl_cpu_level level;
        assert_true(sl_cpu_level_from_name(names[l], &level));
        if (!sl_cpu_level_runs(level))
            continue;
        for (uint32_t chunk = 1; chunk <= 100; chunk += 99) {
            sl_engine_options o = options_of(2, chunk, SL_IO_PREAD, names[l]);
            o.mem_bytes = chunk == 1 ? trace_smallest(store, &o) : trace_largest(store, &o);
            check(&o);
        }
    }
}

static void family(const char *name, uint32_t bits) {
    char src[1024];
    sl_error err;
    sl_convert_options options;
    sl_convert_report report;
    (void)snprintf(src, sizeof(src), "%s/goldens/%s", SL_TEST_DATA, name);
    store = test_scratch_path(name);
    sl_convert_options_init(&options);
    options.force = true;
    options.bits = bits;
    if (sl_convert(src, store, &options, NULL, &report, &err))
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * i * 7 + i * 3 + 11) % 509;
    sl_engine_options o = options_of(1, CTX, SL_IO_PREAD, NULL);
    o.mem_bytes = trace_largest(store, &o);
    trace_run(store, &o, tokens, N_TOKENS, tokens, 40, &reference);
    assert_true(reference.n_answer > TRACE_ANSWER / 2);
    budgets();
    levels();
}

#define FAMILY(name, bits)                                                                         \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        family(#name, bits);                                                                       \
    }
FAMILY(qwen3_next, 4)  // delta rule, fused projections
FAMILY(olmoe, 4)       // norms over all heads, weights that do not sum to 1
FAMILY(deepseek_v3, 4) // latent attention, dense layers, groups, a plain shared expert
FAMILY(mixtral, 4)
FAMILY(gpt_oss, 4) // sliding windows, sinks, biases, the clamped activation
FAMILY(glm4_moe, 4)
FAMILY(lfm2_moe, 4) // short convolutions, a tied head
FAMILY(qwen3_moe, 3)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_next), cmocka_unit_test(qwen3_moe),   cmocka_unit_test(olmoe),
        cmocka_unit_test(mixtral),    cmocka_unit_test(deepseek_v3), cmocka_unit_test(gpt_oss),
        cmocka_unit_test(glm4_moe),   cmocka_unit_test(lfm2_moe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
