/* How fast text becomes tokens, and what compiling a tokenizer costs.
 *
 *   bench_tokenizer TOKENIZER.JSON TEXT_FILE
 *
 * Prints the size of the tables, the time of compiling and opening them, and the rate of encoding the
 * text, the best of several runs. The text is taken as often as it takes to be at least 4 MB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tokenizer.h"

#define RUNS 7
#define FILE_MAX ((size_t)64 << 20)

static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *text = malloc(FILE_MAX);
    if (!f || !text) {
        fprintf(stderr, "bench_tokenizer: cannot read %s\n", path);
        exit(1);
    }
    *len = fread(text, 1, FILE_MAX, f);
    fclose(f);
    return text;
}

int main(int argc, char **argv) {
    sl_error err;
    sl_buf blob;
    sl_tok tok;
    size_t json_len, file_len, n = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_tokenizer TOKENIZER.JSON TEXT_FILE\n");
        return 2;
    }
    char *json = read_file(argv[1], &json_len), *file = read_file(argv[2], &file_len);
    if (file_len == 0)
        return 2;
    size_t copies = ((size_t)4 << 20) / file_len + 1, len = copies * file_len;
    size_t work_bytes = sl_tok_workspace_bytes((size_t)64 << 10);
    char *text = malloc(len);
    uint32_t *ids = malloc(len * sizeof(*ids));
    void *block = malloc(work_bytes);
    if (!text || !ids || !block)
        return 1;
    for (size_t i = 0; i < copies; i++)
        memcpy(text + i * file_len, file, file_len);

    sl_buf_init(&blob);
    double t0 = now();
    sl_status st = sl_tok_compile(json, json_len, NULL, 0, &blob, &err);
    double t1 = now();
    if (st || sl_tok_open(blob.data, blob.len, &tok, &err)) {
        fprintf(stderr, "bench_tokenizer: %s\n", err.message);
        return 1;
    }
    double t2 = now(), best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        sl_arena work;
        sl_arena_init(&work, "workspace", block, work_bytes);
        double start = now();
        if (sl_tok_encode(&tok, text, len, 0, ids, len, &n, &work, &err)) {
            fprintf(stderr, "bench_tokenizer: %s\n", err.message);
            return 1;
        }
        best = SL_MIN(best, now() - start);
    }
    printf("tables   %zu bytes for %u ids; compiled in %.3f s, opened in %.4f s\n", blob.len,
           tok.n_vocab, t1 - t0, t2 - t1);
    printf("encode   %.1f MB/s, %.2f M tokens/s, %.2f bytes a token (%zu bytes, best of %d)\n",
           (double)len / best / 1e6, (double)n / best / 1e6, (double)len / (double)n, len, RUNS);
    free(json);
    free(file);
    free(text);
    free(ids);
    free(block);
    sl_buf_deinit(&blob);
    return 0;
}
