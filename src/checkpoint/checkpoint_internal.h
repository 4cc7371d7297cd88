/* Shared by the sources that read checkpoints. */
#ifndef SL_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define SL_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "checkpoint/checkpoint.h"

#define SL_CONFIG_MAX ((uint64_t)4 << 20)
/* An arena for the JSON tree of a text: values of two characters take 64 bytes, ordinary ones 12 to 16
 * bytes per byte of text. */
#define SL_CONFIG_TREE_FACTOR 16u

/* Name of a tensor: prefix, place and suffix. */
#define SL_NAME_BYTES 192u

/* How config.json says that weights are quantized. */
typedef enum sl_quant_method {
    SL_QUANT_NONE, /* no section, or false for the module: left as they are */
    SL_QUANT_AFFINE,
    SL_QUANT_MXFP4,
    SL_QUANT_MXFP4_EXPERTS, /* Hugging Face's gpt-oss: the experts, and nothing else */
    SL_QUANT_F8,            /* F8_E4M3 with scales for tiles */
} sl_quant_method;
typedef struct sl_quant_rule {
    sl_quant_method method;
    uint32_t bits, group; /* of AFFINE and MXFP4; 0: not said */
} sl_quant_rule;

/* The rule of a module path, or of everything (path NULL). *found is false when there is no section.
 * Errors: SL_ERR_UNSUPPORTED for other modes and methods, SL_ERR_CORRUPT. */
SL_MUST_USE sl_status sl__quant_rule(const sl_json *config, const char *path, bool *found,
                                     sl_quant_rule *out, sl_error *err);
SL_MUST_USE sl_status sl__check_options(const sl_checkpoint_options *options, uint32_t *bits,
                                        uint32_t *group, sl_error *err);
/* What a matrix of a dense type becomes that is not kept as it is. */
sl_matrix_shape sl__quantized_shape(const sl_tensor_spec *spec, sl_dtype dtype, uint32_t bits,
                                    uint32_t group);

SL_MUST_USE sl_status sl__parse_text(const sl_buf *text, const char *name, sl_arena *tree,
                                     sl_json **out, sl_error *err);

/* The first of a tensor's places that is there; NULL: none is. ck->prefix, head_prefix and tied are set. */
sl_st_tensor *sl__find_place(const sl_checkpoint *ck, const sl_tensor_spec *spec, uint32_t expert,
                             sl_tensor_place *out);

/* Find the tensor files and read all headers into ck->table. Sets files, bytes; hashes names, sizes, times
 * and headers into the running fingerprint. */
SL_MUST_USE sl_status sl__checkpoint_files(sl_checkpoint *ck, sl_error *err);

#endif
