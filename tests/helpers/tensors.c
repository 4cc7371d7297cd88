#include "helpers/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

struct test_tensors {
    char *file;
    const char *data;
    void *block;
    sl_json *header;
};

static void die(const char *what, const char *detail) {
    fprintf(stderr, "%s: %s\n", what, detail);
    exit(1);
}

test_tensors *test_tensors_open(const char *path) {
    test_tensors *t = calloc(1, sizeof(*t));
    FILE *f = fopen(path, "rb");
    if (!t || !f)
        die(path, "cannot be opened");
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    t->file = malloc(n);
    if (!t->file || fread(t->file, 1, n, f) != n)
        die(path, "cannot be read");
    fclose(f);
    uint64_t header;
    memcpy(&header, t->file, 8);
    t->data = t->file + 8 + header;
    size_t bytes = (size_t)header * 64 + 65536;
    t->block = malloc(bytes);
    sl_arena arena;
    sl_error err;
    sl_arena_init(&arena, "header", t->block, bytes);
    if (sl_json_parse(t->file + 8, (size_t)header, &arena, &t->header, &err))
        die(path, err.message);
    return t;
}

void test_tensors_close(test_tensors *t) {
    free(t->block);
    free(t->file);
    free(t);
}

test_tensor test_tensors_get(const test_tensors *t, const char *name) {
    const sl_json *entry = sl_json_member(t->header, name), *shape = sl_json_member(entry, "shape");
    uint64_t begin = 0;
    test_tensor out = {.n_elements = 1};
    if (!entry ||
        !sl_json_uint64(sl_json_element(sl_json_member(entry, "data_offsets"), 0), &begin))
        die(name, "no such tensor");
    for (const sl_json *d = shape->child; d && out.n_dims < 4; d = d->next) {
        uint64_t n = 0;
        (void)sl_json_uint64(d, &n);
        out.shape[out.n_dims++] = (size_t)n;
        out.n_elements *= (size_t)n;
    }
    out.data = t->data + begin;
    return out;
}

/* ---- files made of others --------------------------------------------------------------------- */

static size_t size_of(const char *dtype) {
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"F32", 4}, {"U32", 4}, {"I32", 4},    {"BF16", 2},
                 {"F16", 2}, {"U8", 1},  {"F8_E4M3", 1}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, dtype) == 0)
            return types[i].size;
    die(dtype, "no such type");
    return 0;
}

void *test_entries_add(test_entries *e, const char *name, const char *dtype, size_t a, size_t b,
                       size_t c, size_t d) {
    test_entry t = {.shape = {a, b, c, d}, .bytes = size_of(dtype)};
    (void)snprintf(t.name, sizeof(t.name), "%s", name);
    (void)snprintf(t.dtype, sizeof(t.dtype), "%s", dtype);
    for (size_t i = 0; i < 4 && t.shape[i]; i++, t.n_dims++)
        t.bytes *= t.shape[i];
    t.data = calloc(t.bytes, 1);
    e->entries = realloc(e->entries, (e->n + 1) * sizeof(t));
    if (!t.data || !e->entries)
        die(name, "no memory");
    e->entries[e->n++] = t;
    return t.data;
}

test_entries test_entries_read(const char *path) {
    test_tensors *t = test_tensors_open(path);
    test_entries e = {NULL, 0};
    for (const sl_json *v = t->header->child; v; v = v->next) {
        const sl_json *dtype = sl_json_member(v, "dtype");
        if (!dtype) // __metadata__
            continue;
        test_tensor from = test_tensors_get(t, v->key);
        size_t s[4] = {0};
        memcpy(s, from.shape, from.n_dims * sizeof(*s));
        void *to = test_entries_add(&e, v->key, dtype->text, s[0], s[1], s[2], s[3]);
        memcpy(to, from.data, e.entries[e.n - 1].bytes);
    }
    test_tensors_close(t);
    return e;
}

void test_entries_free(test_entries *e) {
    for (size_t i = 0; i < e->n; i++)
        free(e->entries[i].data);
    free(e->entries);
    *e = (test_entries){NULL, 0};
}

test_entry *test_entries_find(const test_entries *e, const char *name) {
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->entries[i].name, name) == 0)
            return &e->entries[i];
    return NULL;
}

void test_entries_drop(test_entries *e, const char *name) {
    test_entry *t = test_entries_find(e, name);
    if (!t)
        die(name, "no such tensor");
    free(t->data);
    e->n--;
    memmove(t, t + 1, (size_t)(e->entries + e->n - t) * sizeof(*t));
}

void test_entries_write(const test_entries *e, const char *path) {
    size_t cap = 64 + e->n * 320, n = 8, at = 0;
    char *header = malloc(cap);
    FILE *f = fopen(path, "wb");
    if (!header || !f)
        die(path, "cannot be written");
    for (size_t i = 0; i < e->n; i++) {
        const test_entry *t = &e->entries[i];
        n += (size_t)snprintf(header + n, cap - n, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[",
                              i ? "," : "{", t->name, t->dtype);
        for (size_t k = 0; k < t->n_dims; k++)
            n += (size_t)snprintf(header + n, cap - n, "%s%zu", k ? "," : "", t->shape[k]);
        n += (size_t)snprintf(header + n, cap - n, "],\"data_offsets\":[%zu,%zu]}", at,
                              at + t->bytes);
        at += t->bytes;
    }
    header[n++] = '}';
    while (n % 8)
        header[n++] = ' ';
    uint64_t len = n - 8;
    memcpy(header, &len, 8);
    if (fwrite(header, 1, n, f) != n)
        die(path, "cannot be written");
    for (size_t i = 0; i < e->n; i++)
        if (fwrite(e->entries[i].data, 1, e->entries[i].bytes, f) != e->entries[i].bytes)
            die(path, "cannot be written");
    if (fclose(f))
        die(path, "cannot be written");
    free(header);
}
