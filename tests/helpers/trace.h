/* Test helper: what a run of a model answers, for comparing runs bit by bit. Everything here fails the running
 * cmocka test where something goes wrong. */
#ifndef SL_TESTS_TRACE_H
#define SL_TESTS_TRACE_H

#include "sluice.h"
#include "store/store.h"

#define TRACE_TOKENS_MAX 1024
#define TRACE_ANSWER 24 /* sampled tokens of a run */

typedef struct trace {
    sl_hash128 row[TRACE_TOKENS_MAX]; /* of each position's logits */
    uint32_t n_rows;
    uint32_t answer[TRACE_ANSWER];
    uint32_t n_answer;
    sl_plan_info plan;
    uint64_t trunk_read_bytes;
} trace;

/* Logits of the first n tokens, then an answer to a prompt, sampled so warmly that it hangs on the last bits. */
void trace_run(const char *store, const sl_engine_options *o, const uint32_t *tokens, uint32_t n,
               const uint32_t *prompt, uint32_t n_prompt, trace *out);
/* For sl_generate_request.on_token: adds to the answer of a trace. */
bool trace_keep_token(void *trace, uint32_t token);
void trace_same(const trace *expected, const trace *got, const char *what);

/* The smallest budget that works with these options; and what is planned when nothing is missing: every tensor,
 * every expert and the embedding in memory. */
uint64_t trace_smallest(const char *store, const sl_engine_options *options);
uint64_t trace_largest(const char *store, const sl_engine_options *options);
/* pread and, where it works, io_uring in turn. */
sl_io trace_io(const char *store, uint32_t i);

#endif
