/* Test helper: checkpoints made up on the spot, in either layout, with random weights, and small changes to
 * them. Needs the model floor for names and shapes. */
#ifndef SL_TESTS_CHECKPOINT_H
#define SL_TESTS_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum test_layout {
    TEST_HF_FUSED,  /* experts fused, all of one type */
    TEST_HF_SINGLE, /* one tensor per expert */
    TEST_MLX_DENSE, /* stacked experts, unquantized, norms near 1 */
} test_layout;

typedef struct test_checkpoint {
    test_layout layout;
    const char *dtype; /* "BF16", "F16", "F32"; NULL: BF16 */
    uint32_t n_layers, d_model, n_experts, d_expert, n_vocab;
    uint32_t n_shards; /* 0: one file and no index */
    bool sparse;       /* zeros that take no space, instead of random weights */
    bool tied;         /* tie_word_embeddings, and no head */
    float norm_offset; /* added to norm weights */
    const char *omit;  /* a tensor that is not written */
    const char *extra; /* one [4] tensor that the model does not have */
} test_checkpoint;

/* A model of 4 layers, d_model 128, 6 experts of 64, 300 tokens. */
test_checkpoint test_checkpoint_default(void);
/* Make the folder `path` with config.json and tensor files. Exits the test on failure. */
void test_checkpoint_write(const char *path, const test_checkpoint *spec);

/* A whole file, and back; exits the test on failure. The block is freed by the caller. */
char *test_file_read(const char *path, size_t *n);
void test_file_write(const char *path, const void *bytes, size_t n);
/* Flip one bit. */
void test_file_flip(const char *path, uint64_t offset);
/* True when both files are there and hold the same bytes. */
bool test_files_equal(const char *a, const char *b);

#endif
