/* Test helper: named tensors of a small safetensors file, read whole. Not hardened: our own files only. */
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

#endif
