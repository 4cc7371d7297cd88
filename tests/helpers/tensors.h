/* Test helper: named tensors of a small safetensors file, read whole, changed, and written again. Not hardened:
 * our own files only. */
#ifndef SL_TESTS_TENSORS_H
#define SL_TESTS_TENSORS_H

#include <stddef.h>
#include <stdint.h>

typedef struct test_tensor {
    const void *data;
    size_t n_elements, shape[4], n_dims;
} test_tensor;

typedef struct test_tensors test_tensors;

/* Exits the test with a message when the file cannot be read. */
test_tensors *test_tensors_open(const char *path);
void test_tensors_close(test_tensors *t);
/* Exits the test when there is no such tensor. */
test_tensor test_tensors_get(const test_tensors *t, const char *name);

/* ---- files made of others --------------------------------------------------------------------- */

typedef struct test_entry {
    char name[160], dtype[12];
    size_t n_dims, shape[4];
    void *data; /* owned */
    size_t bytes;
} test_entry;
typedef struct test_entries {
    test_entry *entries;
    size_t n;
} test_entries;

/* Copies of all tensors of a file, in its order. */
test_entries test_entries_read(const char *path);
void test_entries_free(test_entries *e);
/* NULL when there is no such tensor. Valid until the next change. */
test_entry *test_entries_find(const test_entries *e, const char *name);
/* Remove a tensor; exits the test when it is not there. */
void test_entries_drop(test_entries *e, const char *name);
/* Append a tensor of zeros. n_dims is 1 + the dimensions after `a` that are not 0. Returns its data. */
void *test_entries_add(test_entries *e, const char *name, const char *dtype, size_t a, size_t b,
                       size_t c, size_t d);
void test_entries_write(const test_entries *e, const char *path);

#endif
