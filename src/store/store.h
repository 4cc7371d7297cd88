/* The store: a converted model on disk (docs/format.md). This folder is the only reader and writer of it.
 *
 *   manifest.json    version, source, config, generation config, tensor table, layouts, checksums
 *   trunk.bin        tensors in order of use, each at a multiple of 64 bytes
 *   embed.bin        one fixed-stride record per vocabulary row
 *   experts/NNN.bin  one file per layer that has experts, one fixed-stride record (a multiple of 4 KiB) per expert
 *   experts.sum      XXH3-128 of every expert record, [layer][expert] 16 bytes (zero without experts)
 *   text.bin         compiled tokenizer and chat template
 *
 * Files are a multiple of 4 KiB long. Everything read from them is checked before use. This header
 * describes an opened store: numbers and file descriptors, no weights. */
#ifndef SL_STORE_STORE_H
#define SL_STORE_STORE_H

#include "io/file.h"
#include "model/model.h"
#include "tensor/matrix.h"

#define SL_STORE_VERSION 1
#define SL_STORE_MANIFEST "manifest.json"
#define SL_STORE_MANIFEST_MAX ((uint64_t)4 << 20)
#define SL_STORE_TRUNK "trunk.bin"
#define SL_STORE_EMBED "embed.bin"
#define SL_STORE_TEXT "text.bin"
#define SL_STORE_EXPERTS "experts" /* the folder */
#define SL_STORE_SUMS "experts.sum"
#define SL_STORE_EXPERT_FILE "experts/%03u.bin"

typedef struct sl_hash128 {
    uint64_t low, high; /* of XXH3_128bits(); written as 32 hexadecimal digits, high first */
} sl_hash128;

/* Where a part of a tensor (its codes, scales or biases) begins, when it lies in a checkpoint: of an expert's tensor,
 * that of expert 0. Its rows follow one another. */
#define SL_FILE_NONE UINT32_MAX
#define SL_FILE_TRUNK (UINT32_MAX - 1) /* trunk.bin */
#define SL_TENSOR_PARTS 3u
typedef struct sl_part_place {
    uint32_t file; /* of sl_store_file() */
    uint64_t at;
} sl_part_place;

/* One tensor of trunk.bin. Vectors and convolutions are f32 matrices ([1][n], [width][channels]). */
typedef struct sl_store_tensor {
    sl_role role;
    uint32_t layer;
    sl_matrix_shape shape;
    sl_matrix_layout layout; /* of the block at `offset` */
    uint64_t offset;         /* in trunk.bin, a multiple of SL_MATRIX_ALIGN */
    sl_hash128 hash;         /* of the layout.bytes bytes at offset */
    /* [SL_TENSOR_PARTS] in a checkpoint, of file SL_FILE_NONE where the tensor has another form there; NULL in
     * a store. */
    const sl_part_place *parts;
} sl_store_tensor;

/* An expert is one read (SL_READ_BYTES_MAX of io/reader.h). */
#define SL_EXPERT_BYTES_MAX ((uint64_t)1 << 30)

/* The parts of an expert record, in the order in which they lie there. Biases are f32 [1][rows]. */
typedef enum sl_expert_part {
    SL_PART_GATE,
    SL_PART_UP,
    SL_PART_DOWN,
    SL_PART_GATE_BIAS,
    SL_PART_UP_BIAS,
    SL_PART_DOWN_BIAS,
    SL_PARTS_MAX
} sl_expert_part;
/* The tensor that a part is. */
static inline sl_role sl_expert_part_role(sl_expert_part part) {
    return (sl_role)(SL_ROLE_EXPERT_GATE_PROJ + part);
}

/* An expert record. The same for every layer of this version that has experts. */
typedef struct sl_expert_layout {
    uint32_t n_parts; /* 3, with biases 6 */
    sl_matrix_shape shape[SL_PARTS_MAX];
    sl_matrix_layout layout[SL_PARTS_MAX];
    uint64_t at[SL_PARTS_MAX]; /* offsets in the record */
    uint64_t bytes;            /* without padding */
    uint64_t stride;           /* a multiple of SL_PAGE */
} sl_expert_layout;

/* Where an expert's bytes are: a list of extents that fill a slot, each of whole pages. In a store it is one, of
 * `stride` bytes. A checkpoint that is run in place has one for each tensor: codes, scales and biases of gate, up and
 * down, and three vectors where there are some. There, what is wanted lies `skip` bytes behind the extent's
 * begin. */
#define SL_EXTENTS_MAX 12
typedef struct sl_extent {
    uint32_t file;    /* of sl_store_file(): the layer, for the files of a store */
    uint32_t skip;    /* less than a page */
    uint64_t offset;  /* in the file */
    uint64_t slot_at; /* in the slot */
    uint64_t bytes;
} sl_extent;
typedef struct sl_expert_place {
    uint32_t n_extents;
    sl_extent extents[SL_EXTENTS_MAX];
} sl_expert_place;

/* An embedding row record: codes, scales, biases at these offsets (a one-row sl_matrix, see
 * sl_embed_bind()). Dense rows have codes alone. */
typedef struct sl_embed_layout {
    sl_matrix_shape shape; /* rows = n_vocab */
    uint64_t codes_at, scales_at, biases_at;
    uint64_t row_bytes, stride; /* stride: a multiple of 16 */
    sl_hash128 hash;            /* of the whole file's rows * stride bytes */
} sl_embed_layout;

/* A part of text.bin; bytes == 0: the store has none. */
typedef struct sl_text_part {
    uint64_t offset, bytes;
    sl_hash128 hash;
} sl_text_part;

/* A tensor of the experts of a layer in a checkpoint: codes, scales or biases of a matrix, or a vector. */
typedef struct sl_expert_piece {
    sl_part_place place; /* of expert 0 */
    uint64_t bytes;      /* of one expert; they follow one another */
} sl_expert_piece;
/* What the i-th piece of every layer is, and where it goes in a slot. */
typedef struct sl_piece_slot {
    sl_expert_part part;
    uint32_t which;   /* 0 codes (or the vector), 1 scales, 2 biases */
    sl_dtype vector;  /* of a vector, in the file: it is widened behind the reads */
    uint64_t slot_at; /* whole pages, with room for the pages around the piece */
} sl_piece_slot;

/* A checkpoint that is used as it was downloaded. Everything lives in the store's arena. */
typedef struct sl_store_in_place {
    uint32_t n_files;
    sl_file *files;
    const char **names;
    sl_piece_slot piece[SL_EXTENTS_MAX];
    sl_expert_piece *pieces;              /* [n_layers][n_extents] */
    sl_part_place embed[SL_TENSOR_PARTS]; /* of the embedding */
    uint64_t prepare_bytes; /* of working memory that preparing the trunk takes at least */
    uint64_t open_bytes;    /* that opening takes before any account is there, at most */
} sl_store_in_place;

typedef struct sl_store {
    /* The descriptor of the config, with two changes: stop_tokens holds the tokenizer's as well, and
     * tied_head is false, since a store always has a head of its own (a tied one is a copy). */
    sl_model model;
    uint32_t n_tensors;
    sl_store_tensor *tensors; /* in order of use; not embedding, not experts */
    sl_expert_layout expert;
    uint32_t n_extents; /* of an expert */
    sl_embed_layout embed;
    sl_text_part tokenizer, chat_template; /* compiled table image; UTF-8 source */
    uint64_t trunk_bytes;                  /* of trunk.bin's tensors, gaps included */
    uint64_t model_bytes;                  /* trunk + embedding + expert records, as stored */
    bool direct;                           /* files are open for direct I/O, proved by a probe */

    /* Sampling defaults of generation_config.json; negative: not given. */
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k;
    bool do_sample;

    sl_file trunk, embed_file, text;
    sl_file *experts;            /* [n_layers], closed for layers without experts */
    sl_hash128 *expert_hashes;   /* [n_layers][n_experts], zero for layers without */
    sl_hash128 sums_hash;        /* of experts.sum, padding included */
    sl_store_in_place *in_place; /* NULL: a store */
    sl_arena arena;              /* owns what this struct points to: mapped, sized exactly */
    const char *path;
    const char *source;     /* name of the checkpoint folder */
    sl_hash128 source_hash; /* of its files' names, sizes, times and headers, and the options */
    const char *converter;  /* "sluice 0.1.0" */
} sl_store;

typedef enum sl_store_direct {
    SL_DIRECT_REQUIRED,  /* refuse (SL_ERR_UNSUPPORTED) where direct I/O is not true */
    SL_DIRECT_PREFERRED, /* fall back to buffered reads; store->direct tells */
} sl_store_direct;

/* Read and check the manifest and open every file. Leaves no page of the store in the page cache: all
 * reads are direct where the drive allows it. Temporary memory is returned before this ends.
 * Errors: SL_ERR_MISSING (no manifest: not a store), SL_ERR_UNSUPPORTED (a newer version, a model this
 * binary does not run, no direct I/O), SL_ERR_CORRUPT (names the field, file or size), SL_ERR_IO. */
SL_MUST_USE sl_status sl_store_open(const char *path, sl_store_direct direct, sl_store *out,
                                    sl_error *err);
/* Accepts a zeroed struct. */
void sl_store_close(sl_store *store);
/* The sampling defaults in a generation_config.json; NULL has none. A value that makes no sense is an error
 * (SL_ERR_CORRUPT): it would change every answer. */
SL_MUST_USE sl_status sl_store_sampling_from_json(const sl_json *generation, sl_store *out,
                                                  sl_error *err);

/* NULL when the model has no such tensor. O(n_tensors). */
const sl_store_tensor *sl_store_tensor_find(const sl_store *store, sl_role role, uint32_t layer);
void sl_store_expert_place(const sl_store *store, uint32_t layer, uint32_t expert,
                           sl_expert_place *out);
/* The file of an extent, and its name for messages ("experts/003.bin"). */
/* Where codes (0), scales (1) or biases (2) of a tensor begin. */
static inline sl_part_place sl_store_tensor_part(const sl_store_tensor *t, uint32_t part) {
    if (t->parts)
        return t->parts[part];
    uint64_t at = part == 0   ? t->layout.codes_at
                  : part == 1 ? t->layout.scales_at
                              : t->layout.biases_at;
    return (sl_part_place){SL_FILE_TRUNK, t->offset + at};
}
const sl_file *sl_store_file(const sl_store *store, uint32_t file);
/* All files, in any order; some may be closed. */
uint32_t sl_store_n_files(const sl_store *store);
const sl_file *sl_store_each_file(const sl_store *store, uint32_t i);
void sl_store_file_name(const sl_store *store, uint32_t file, char *out, size_t cap);

/* Point the parts into a slot that holds the expert's bytes; parts that the layout does not have are not
 * written. The slot is aligned to SL_MATRIX_ALIGN. */
void sl_expert_bind(const sl_expert_layout *layout, const void *slot,
                    sl_matrix parts[SL_PARTS_MAX]);
/* Point the parts of an expert into the slot that its extents were read to. */
void sl_store_expert_bind(const sl_store *store, uint32_t layer, uint32_t expert, const void *slot,
                          sl_matrix parts[SL_PARTS_MAX]);
/* Point a matrix of one row into an embedding record, at any address that is a multiple of 16. */
void sl_embed_bind(const sl_embed_layout *layout, const void *record, sl_matrix *row);

/* Compute a layout from shapes. Pure; used by the converter, the reader's checks and the plan.
 * hash is zero. */
SL_MUST_USE sl_status sl_expert_layout_of(const sl_matrix_shape *shapes, uint32_t n_parts,
                                          sl_expert_layout *out, sl_error *err);
SL_MUST_USE sl_status sl_embed_layout_of(const sl_matrix_shape *shape, sl_embed_layout *out,
                                         sl_error *err);

/* Make a slot ready whose extents were read: compare the record's checksum (false: it has another), or, in place,
 * where there are no checksums, widen the vectors. Any thread. */
bool sl_store_expert_finish(const sl_store *store, uint32_t layer, uint32_t expert, void *slot);
/* True when the expert's record in the slot (stride bytes, padding included) has its checksum. Any thread. */
bool sl_store_expert_intact(const sl_store *store, uint32_t layer, uint32_t expert,
                            const void *slot);
sl_hash128 sl_hash(const void *bytes, size_t n);
static inline bool sl_hash_equal(sl_hash128 a, sl_hash128 b) {
    return a.low == b.low && a.high == b.high;
}

/* The shape in which a tensor is stored: for sl_store_describe(). rows and cols equal the spec's. */
typedef sl_status (*sl_store_shape_of)(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                                       sl_error *err);

/* The numbers of a store that does not exist (yet): tensor table, layouts and sizes, no hashes, no
 * files, no text. model->tied_head must be false. shape_of is asked for every tensor; vectors and
 * convolutions must be f32. Release with sl_store_close(). Errors: those of shape_of and of layouts;
 * SL_ERR_UNSUPPORTED when experts of one layer differ in shape from the others'. */
SL_MUST_USE sl_status sl_store_describe(const sl_model *model, sl_store_shape_of shape_of,
                                        void *user, sl_store *out, sl_error *err);
/* The same for a checkpoint that is to be used in place: the arena has room for in_place, which is zeroed, for
 * n_files files, the pieces of experts, the places of all tensors, and extra_bytes more. */
SL_MUST_USE sl_status sl_store_describe_in_place(const sl_model *model, sl_store_shape_of shape_of,
                                                 void *user, uint32_t n_files, uint64_t extra_bytes,
                                                 sl_store *out, sl_error *err);
/* Lay out the slots from n_extents, piece[].part, .which and .vector, and pieces. Sets expert.stride and
 * model_bytes. Errors: SL_ERR_UNSUPPORTED (too large). */
SL_MUST_USE sl_status sl_store_lay_out_slots(sl_store *store, sl_error *err);

/* Lengths of the files, padding included. */
uint64_t sl_store_trunk_file_bytes(const sl_store *store);
uint64_t sl_store_embed_file_bytes(const sl_store *store);
uint64_t sl_store_expert_file_bytes(const sl_store *store); /* of one layer that has experts */
uint64_t sl_store_sums_file_bytes(const sl_store *store);
uint64_t sl_store_text_file_bytes(const sl_store *store); /* 0: there is no such file */

#endif
