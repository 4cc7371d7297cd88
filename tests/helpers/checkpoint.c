#define _GNU_SOURCE
#include "helpers/checkpoint.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "model/model.h"

#define CHUNK ((size_t)1 << 20)

static _Noreturn void die(const char *what) {
    perror(what);
    exit(1);
}

test_checkpoint test_checkpoint_default(void) {
    return (test_checkpoint){.layout = TEST_HF_FUSED,
                             .n_layers = 4,
                             .d_model = 128,
                             .n_experts = 6,
                             .d_expert = 64,
                             .n_vocab = 300};
}

char *test_file_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st))
        die(path);
    char *bytes = malloc((size_t)st.st_size + 1);
    if (!bytes || fread(bytes, 1, (size_t)st.st_size, f) != (size_t)st.st_size)
        die(path);
    fclose(f);
    bytes[st.st_size] = '\0';
    *n = (size_t)st.st_size;
    return bytes;
}

void test_file_write(const char *path, const void *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        die(path);
}

void test_file_flip(const char *path, uint64_t offset) {
    char c;
    int fd = open(path, O_RDWR);
    if (fd < 0 || pread(fd, &c, 1, (off_t)offset) != 1)
        die(path);
    c ^= 4;
    if (pwrite(fd, &c, 1, (off_t)offset) != 1 || fsync(fd) || close(fd))
        die(path);
}

bool test_files_equal(const char *a, const char *b) {
    size_t n, m;
    char *x = test_file_read(a, &n), *y = test_file_read(b, &m);
    bool same = n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

static void write_config(const char *path, const test_checkpoint *s, char *text, size_t cap) {
    char file[1024];
    int n = snprintf(
        text, cap,
        "{\"model_type\": \"qwen3_5_moe_text\", \"hidden_size\": %u, \"num_hidden_layers\": %u,\n"
        " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 32,\n"
        " \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": "
        "16,\n"
        " \"linear_value_head_dim\": 32, \"linear_conv_kernel_dim\": 4, \"num_experts\": %u,\n"
        " \"num_experts_per_tok\": 2, \"moe_intermediate_size\": %u,\n"
        " \"shared_expert_intermediate_size\": 64, \"rms_norm_eps\": 1e-6, \"vocab_size\": %u,\n"
        " \"max_position_embeddings\": 4096, \"eos_token_id\": 7, \"tie_word_embeddings\": %s,\n"
        " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4}}\n",
        s->d_model, s->n_layers, s->n_experts, s->d_expert, s->n_vocab, s->tied ? "true" : "false");
    snprintf(file, sizeof(file), "%s/config.json", path);
    test_file_write(file, text, (size_t)n);
}

/* One tensor to be written: header text and how to fill it. */
typedef struct entry {
    char name[160];
    uint64_t dims[3], n;
    unsigned n_dims;
    float scale, offset;
} entry;

typedef struct list {
    entry *entries;
    size_t n;
} list;

static void add(list *l, const test_checkpoint *s, float scale, float offset, unsigned n_dims,
                uint64_t a, uint64_t b, uint64_t c, const char *fmt, ...) {
    entry e = {.dims = {a, b, c}, .n_dims = n_dims, .scale = scale, .offset = offset};
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.name, sizeof(e.name), fmt, args);
    va_end(args);
    if (s->omit && strcmp(e.name, s->omit) == 0)
        return;
    e.n = a * (n_dims > 1 ? b : 1) * (n_dims > 2 ? c : 1);
    l->entries = realloc(l->entries, (l->n + 1) * sizeof(e));
    l->entries[l->n++] = e;
}

static void add_experts(list *l, const test_checkpoint *s, const sl_model *m,
                        const sl_tensor_spec *t) {
    sl_tensor_place p[SL_PLACES_MAX]; // stacked, fused, one by one
    (void)sl_tensor_places(m, t, 0, p);
    if (s->layout == TEST_MLX_DENSE) {
        add(l, s, .1f, 0, 3, s->n_experts, p[0].rows, p[0].cols, "model.%s.weight", p[0].name);
    } else if (s->layout == TEST_HF_FUSED) {
        if (t->role != SL_ROLE_EXPERT_UP_PROJ)
            add(l, s, .1f, 0, 3, s->n_experts, p[1].rows, p[1].cols, "model.%s", p[1].name);
    } else {
        for (uint32_t e = 0; e < s->n_experts; e++) {
            (void)sl_tensor_places(m, t, e, p);
            add(l, s, .1f, 0, 2, p[2].rows, p[2].cols, 0, "model.%s.weight", p[2].name);
        }
    }
}

static list tensors_of(const test_checkpoint *s, const char *config) {
    static char block[1 << 18];
    sl_arena arena;
    sl_json *json;
    sl_model m;
    sl_error err;
    list l = {NULL, 0};
    sl_arena_init(&arena, "test", block, sizeof(block));
    if (sl_json_parse(config, strlen(config), &arena, &json, &err) ||
        sl_model_from_config(json, NULL, &m, NULL, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    bool mlx = s->layout == TEST_MLX_DENSE;
    for (uint32_t i = 0, n = sl_model_tensors(&m); i < n; i++) {
        sl_tensor_spec t;
        sl_tensor_place p[SL_PLACES_MAX];
        sl_model_tensor(&m, i, &t);
        (void)sl_tensor_places(&m, &t, 0, p);
        const char *name = p[0].name;
        const char *prefix = t.role == SL_ROLE_HEAD ? "" : "model.";
        if (t.kind == SL_TENSOR_EXPERT)
            add_experts(&l, s, &m, &t);
        else if (t.kind == SL_TENSOR_MATRIX)
            add(&l, s, .1f, 0, 2, t.rows, t.cols, 0, "%s%s.weight", prefix, name);
        else if (t.kind == SL_TENSOR_CONV)
            add(&l, s, .3f, 0, 3, t.cols, mlx ? t.rows : 1, mlx ? 1 : t.rows, "%s%s", prefix, name);
        else
            add(&l, s, .2f, t.zero_centred ? (float)mlx + s->norm_offset : 1, 1, t.cols, 0, 0,
                "%s%s", prefix, name);
    }
    if (s->extra)
        add(&l, s, 1, 0, 1, 4, 0, 0, "%s", s->extra);
    return l;
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Elements are multiples of 1/1024 below 4, which every type holds nearly or exactly.
static void fill(void *out, size_t n, unsigned size, bool bf16, const entry *e, uint64_t *random) {
    for (size_t i = 0; i < n; i++) {
        float r = (float)((int)(next_random(random) % 2048) - 1024) / 1024.0f;
        float v = e->offset + e->scale * r;
        uint32_t u;
        memcpy(&u, &v, 4);
        if (size == 4) {
            memcpy((char *)out + 4 * i, &u, 4);
        } else {
            // Truncated: any value will do. Values are in the normal range of F16, or zero.
            uint32_t exponent = u >> 23 & 255;
            uint16_t h =
                bf16 ? (uint16_t)(u >> 16)
                : exponent < 113
                    ? 0
                    : (uint16_t)((u >> 16 & 0x8000) | (exponent - 112) << 10 | (u >> 13 & 1023));
            memcpy((char *)out + 2 * i, &h, 2);
        }
    }
}

static void write_file(const char *path, const test_checkpoint *s, const list *l, size_t first,
                       size_t last) {
    const char *dtype = s->dtype ? s->dtype : "BF16";
    unsigned size = strcmp(dtype, "F32") == 0 ? 4 : 2;
    bool bf16 = strcmp(dtype, "BF16") == 0;
    size_t cap = 65536 + (last - first) * 320, n = 8;
    char *header = malloc(cap), *chunk = malloc(CHUNK);
    uint64_t at = 0, random = 12345 + first;
    FILE *f = fopen(path, "wb");
    if (!f || !header || !chunk)
        die(path);
    n += (size_t)snprintf(header + n, cap - n, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = first; i < last; i++) {
        const entry *e = &l->entries[i];
        n += (size_t)snprintf(header + n, cap - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu",
                              e->name, dtype, (unsigned long long)e->dims[0]);
        for (unsigned k = 1; k < e->n_dims; k++)
            n += (size_t)snprintf(header + n, cap - n, ",%llu", (unsigned long long)e->dims[k]);
        n += (size_t)snprintf(header + n, cap - n, "],\"data_offsets\":[%llu,%llu]}",
                              (unsigned long long)at, (unsigned long long)(at + e->n * size));
        at += e->n * size;
    }
    header[n++] = '}';
    while (n % 8)
        header[n++] = ' ';
    uint64_t len = n - 8;
    memcpy(header, &len, 8);
    if (fwrite(header, 1, n, f) != n)
        die(path);
    for (size_t i = first; i < last && !s->sparse; i++) {
        const entry *e = &l->entries[i];
        for (uint64_t k = 0; k < e->n; k += CHUNK / 4) {
            size_t count = e->n - k < CHUNK / 4 ? (size_t)(e->n - k) : CHUNK / 4;
            fill(chunk, count, size, bf16, e, &random);
            if (fwrite(chunk, size, count, f) != count)
                die(path);
        }
    }
    if (fflush(f) || ftruncate(fileno(f), (off_t)(n + at)) || fclose(f))
        die(path);
    free(chunk);
    free(header);
}

static void write_index(const char *path, const list *l, uint32_t n_shards) {
    char file[1024];
    snprintf(file, sizeof(file), "%s/model.safetensors.index.json", path);
    FILE *f = fopen(file, "wb");
    if (!f)
        die(file);
    fprintf(f, "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {");
    for (size_t i = 0; i < l->n; i++)
        fprintf(f, "%s\"%s\": \"model-%zu.safetensors\"", i ? "," : "", l->entries[i].name,
                i * n_shards / l->n);
    fprintf(f, "}}");
    if (fclose(f))
        die(file);
}

void test_checkpoint_write(const char *path, const test_checkpoint *s) {
    char config[2048], file[1024];
    if (mkdir(path, 0777))
        die(path);
    write_config(path, s, config, sizeof(config));
    list l = tensors_of(s, config);
    if (s->n_shards == 0) {
        snprintf(file, sizeof(file), "%s/model.safetensors", path);
        write_file(file, s, &l, 0, l.n);
    } else {
        size_t first = 0;
        for (uint32_t k = 0; k < s->n_shards; k++) {
            size_t last = first;
            while (last < l.n && last * s->n_shards / l.n == k)
                last++;
            snprintf(file, sizeof(file), "%s/model-%u.safetensors", path, k);
            write_file(file, s, &l, first, last);
            first = last;
        }
        write_index(path, &l, s->n_shards);
    }
    free(l.entries);
}
