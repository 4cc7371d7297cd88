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
