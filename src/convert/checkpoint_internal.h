/* Shared by the sources that read checkpoints. */
#ifndef SL_CONVERT_CHECKPOINT_INTERNAL_H
#define SL_CONVERT_CHECKPOINT_INTERNAL_H

#include "convert/checkpoint.h"

#define SL_CONFIG_MAX ((uint64_t)4 << 20)
/* An arena for the JSON tree of a text: values of two characters take 64 bytes, ordinary ones 12 to 16
 * bytes per byte of text. */
#define SL_CONFIG_TREE_FACTOR 16u

/* What config.json's quantization section says of a module. */
typedef struct sl_quant_rule {
    bool quantized; /* false: explicitly left dense */
    uint32_t bits, group;
} sl_quant_rule;

/* The rule of a module path, or of everything (path NULL). *found is false when there is no section.
 * Errors: SL_ERR_UNSUPPORTED for other modes and methods, SL_ERR_CORRUPT. */
SL_MUST_USE sl_status sl__quant_rule(const sl_json *config, const char *path, bool *found,
                                     sl_quant_rule *out, sl_error *err);
SL_MUST_USE sl_status sl__check_options(const sl_checkpoint_options *options, uint32_t *bits,
                                        uint32_t *group, sl_error *err);
/* What a dense matrix of a type becomes. */
sl_matrix_shape sl__quantized_shape(const sl_tensor_spec *spec, sl_dtype dtype, uint32_t bits,
                                    uint32_t group);

/* Find the tensor files and read all headers into ck->table. Sets files, bytes; hashes names, sizes, times
 * and headers into the running fingerprint. */
SL_MUST_USE sl_status sl__checkpoint_files(sl_checkpoint *ck, sl_error *err);

#endif
