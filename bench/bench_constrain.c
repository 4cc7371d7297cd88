/* What constrained decoding costs: the trie of a vocabulary, compiling schemas, and the mask of every
 * step of answers under them.
 *
 *   bench_constrain TOKENIZER.JSON [WALKS]
 *
 * For each schema, WALKS (default 40) answers of at most 200 tokens are drawn uniformly from what is
 * allowed; each step computes the mask with an empty memory of masks (all of a state's cost, `cold`)
 * and with one of 64 masks that lasts for the walks (`kept`). Printed are microseconds of processor time,
 * so that what else the machine does is left out. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "constrain/constrain.h"
#include "text/tokenizer.h"

#define FILE_MAX ((size_t)64 << 20)
#define STEPS_MAX 200u
#define SAMPLES_MAX (1u << 20)

static const struct {
    const char *name, *schema;
} schemas[] = {
    {"any object", "{\"type\": \"object\"}"},
    {"call",
     "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"unit\": "
     "{\"enum\": "
     "[\"celsius\", \"fahrenheit\"]}, \"days\": {\"type\": \"integer\", \"minimum\": 1, "
     "\"maximum\": "
     "14}}, \"required\": [\"city\", \"unit\", \"days\"], \"additionalProperties\": false}"},
    {"open call", "{\"type\": \"object\", \"properties\": {\"query\": {\"type\": \"string\"}, "
                  "\"limit\": {\"type\": "
                  "\"integer\"}}, \"required\": [\"query\"]}"},
    {"short strings",
     "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"type\": \"string\", \"minLength\": 3, "
     "\"maxLength\": 60}}"},
    {"words",
     "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"type\": \"string\", \"pattern\": "
     "\"^[A-Za-z]+(?: [A-Za-z]+)*$\"}}"},
    {"any text by pattern",
     "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"type\": \"string\", "
     "\"pattern\": \"^.{1,200}$\"}}"},
    {"found somewhere", "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"type\": \"string\", "
                        "\"pattern\": \"needle\"}}"},
    {"formats", "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"anyOf\": [{\"type\": "
                "\"string\", \"format\": "
                "\"date-time\"}, {\"type\": \"string\", \"format\": \"uuid\"}, {\"type\": "
                "\"string\", \"format\": "
                "\"email\"}]}}"},
    {"numbers",
     "{\"type\": \"array\", \"minItems\": 20, \"items\": {\"type\": \"number\", \"minimum\": "
     "-1.5, \"maximum\": 1e6}}"},
    {"tree", "{\"$defs\": {\"t\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": "
             "\"string\"}, "
             "\"kids\": {\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/t\"}}}, "
             "\"required\": [\"name\", "
             "\"kids\"], \"additionalProperties\": false}}, \"$ref\": \"#/$defs/t\"}"},
    {"alternatives",
     "{\"type\": \"array\", \"minItems\": 5, \"items\": {\"anyOf\": [{\"type\": \"object\", "
     "\"properties\": {\"kind\": {\"const\": \"text\"}, \"text\": {\"type\": \"string\"}}, "
     "\"required\": "
     "[\"kind\", \"text\"]}, {\"type\": \"object\", \"properties\": {\"kind\": {\"const\": "
     "\"point\"}, "
     "\"x\": {\"type\": \"number\"}, \"y\": {\"type\": \"number\"}}, \"required\": [\"kind\", "
     "\"x\", "
     "\"y\"]}, {\"type\": \"object\"}, {\"type\": \"string\"}]}}"},
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t seed = 88172645463325252u;

static uint32_t draw(uint32_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % n;
}

static void *room(size_t bytes) {
    void *p = calloc(1, bytes);
    if (!p) {
        fprintf(stderr, "bench_constrain: out of memory\n");
        exit(1);
    }
    return p;
}

static void must(sl_status st, const sl_error *err) {
    if (st) {
        fprintf(stderr, "bench_constrain: %s\n", err->message);
        exit(1);
    }
}

static void new_arena(sl_arena *arena, size_t bytes) {
    sl_arena_init(arena, "bench", room(bytes), bytes);
}

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    return !sl_tok_is_special(ctx, id) && sl_tok_token_bytes(ctx, id, bytes, len);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float *cold_us, *kept_us;
static uint32_t n_samples;

static void walk(const sl_constraint *c, sl_constraint_work *cold, sl_constraint_work *kept,
                 uint32_t n_vocab, uint32_t *bits) {
    sl_constraint_state s;
    sl_error err;
    sl_constraint_begin(c, &s);
    for (uint32_t step = 0; step < STEPS_MAX && n_samples < SAMPLES_MAX; step++) {
        double t0 = now();
        sl_constraint_mask(c, &s, cold, bits);
        double t1 = now();
        sl_constraint_mask(c, &s, kept, bits);
        double t2 = now();
        cold_us[n_samples] = (float)(1e6 * (t1 - t0));
        kept_us[n_samples++] = (float)(1e6 * (t2 - t1));
        if (sl_constraint_is_closed(c, &s))
            return;
        uint32_t id;
        do {
            id = draw(n_vocab);
            // Few tokens may be allowed: then the next one from here.
            for (uint32_t i = 0; i < n_vocab && !(bits[id / 32] >> id % 32 & 1); i++)
                id = (id + 1) % n_vocab;
        } while (sl_constraint_is_end(c, id) && !sl_constraint_is_closed(c, &s) && draw(4));
        if (sl_constraint_is_end(c, id))
            return;
        must(sl_constraint_accept(c, &s, cold, id, &err), &err);
    }
}

static void report(float *us) {
    qsort(us, n_samples, sizeof(*us), by_value);
    printf("  %7.1f %7.1f %7.1f", (double)us[n_samples / 2], (double)us[n_samples / 100 * 99],
           (double)us[n_samples - 1]);
}

int main(int argc, char **argv) {
    sl_error err;
    sl_buf blob;
    sl_tok tok;
    sl_vocab *vocab;
    sl_constraint_work *cold, *kept;
    sl_arena arena, scratch, works;
    uint32_t end, n_walks = argc > 2 ? (uint32_t)atoi(argv[2]) : 40;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: bench_constrain TOKENIZER.JSON [WALKS]\n");
        return 2;
    }
    char *json = room(FILE_MAX);
    size_t len = fread(json, 1, FILE_MAX, file);
    fclose(file);
    sl_buf_init(&blob);
    must(sl_tok_compile(json, len, NULL, 0, &blob, &err), &err);
    must(sl_tok_open(blob.data, blob.len, &tok, &err), &err);
    free(json);
    if (!sl_tok_find(&tok, "<|im_end|>", 10, &end))
        return 1;
    sl_vocab_source source = {.n_vocab = tok.n_vocab,
                              .token_bytes = token_bytes,
                              .ctx = &tok,
                              .end_ids = &end,
                              .n_end = 1};
    uint64_t bytes;
    new_arena(&scratch, (size_t)8 << 20);
    double t0 = now();
    must(sl_vocab_measure(&source, &scratch, &bytes, &err), &err);
    double t1 = now();
    new_arena(&arena, (size_t)bytes);
    must(sl_vocab_build(&source, &arena, &scratch, &vocab, &err), &err);
    printf("vocabulary %u ids: %.2f MB, measured in %.3f s, built in %.3f s\n", tok.n_vocab,
           (double)bytes / 1e6, t1 - t0, now() - t1);
    size_t work_bytes = sl_constraint_work_bytes(tok.n_vocab, 64);
    printf("state %zu bytes; work %zu bytes, with 64 masks %zu\n\n", sizeof(sl_constraint_state),
           sl_constraint_work_bytes(tok.n_vocab, 0), work_bytes);
    new_arena(&works, 2 * work_bytes);
    must(sl_constraint_work_init(vocab, 0, &works, &cold, &err), &err);
    must(sl_constraint_work_init(vocab, 64, &works, &kept, &err), &err);
    uint32_t *bits = room(SL_CONSTRAINT_MASK_WORDS(tok.n_vocab) * 4);
    cold_us = room(SAMPLES_MAX * sizeof(float));
    kept_us = room(SAMPLES_MAX * sizeof(float));
    sl_arena result;
    new_arena(&result, (size_t)4 << 20);
    printf("%-20s %8s %8s %8s %6s  %23s  %23s\n", "schema", "us", "bytes", "scratch", "masks",
           "cold: p50   p99    max", "kept: p50   p99    max");
    for (size_t i = 0; i < SL_COUNT(schemas); i++) {
        sl_constraint *c;
        sl_constraint_limits limits = sl_constraint_limits_default();
        result.used = scratch.used_peak = 0;
        double start = now();
        must(sl_constraint_compile_text(schemas[i].schema, strlen(schemas[i].schema), vocab,
                                        &limits, &result, &scratch, &c, &err),
             &err);
        double us = 1e6 * (now() - start);
        n_samples = 0;
        for (uint32_t k = 0; k < n_walks; k++)
            walk(c, cold, kept, tok.n_vocab, bits);
        printf("%-20s %8.0f %8zu %8zu %6u", schemas[i].name, us, result.used, scratch.used_peak,
               n_samples);
        report(cold_us);
        report(kept_us);
        printf("\n");
    }
    free(arena.base);
    free(scratch.base);
    free(works.base);
    free(result.base);
    free(bits);
    free(cold_us);
    free(kept_us);
    sl_buf_deinit(&blob);
    return 0;
}
