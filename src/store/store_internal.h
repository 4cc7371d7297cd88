/* Shared by the sources of this folder. */
#ifndef SL_STORE_STORE_INTERNAL_H
#define SL_STORE_STORE_INTERNAL_H

#include "store/store.h"

#define SL_STORE_FORMAT "sluice-store"
/* The manifest's last member protects everything before it; it has a fixed length. */
#define SL_STORE_SEAL_HEAD ",\n\"checksum\": \""
#define SL_STORE_SEAL_TAIL "\"}\n"
#define SL_STORE_HEX 32u
#define SL_STORE_SEAL_BYTES                                                                        \
    (sizeof(SL_STORE_SEAL_HEAD) - 1 + SL_STORE_HEX + sizeof(SL_STORE_SEAL_TAIL) - 1)
/* Members are looked up by name; a tree takes up to some 12 bytes per byte of manifest text. */
#define SL_STORE_TREE_FACTOR 16u
/* Longest tokenizer image and chat template. */
#define SL_STORE_TEXT_MAX ((uint64_t)256 << 20)

/* sl_store_describe() with room for strings in the arena. */
SL_MUST_USE sl_status sl__store_describe(const sl_model *model, sl_store_shape_of shape_of,
                                         void *user, size_t text_bytes, sl_store *out,
                                         sl_error *err);

/* Open a file of a folder. */
SL_MUST_USE sl_status sl__store_open_file(const char *folder, const char *name, bool direct,
                                          sl_file *out, sl_error *err);
/* Read manifest.json of a folder; see sl__store_parse_manifest(). */
SL_MUST_USE sl_status sl__store_read_manifest(const char *path, sl_store *out, sl_error *err);

/* Read a manifest from memory: everything of *out except files and expert_hashes (room for which
 * is there, zeroed). tree holds the JSON and may go afterwards. The fuzz target's entrance.
 * Errors: SL_ERR_CORRUPT, SL_ERR_UNSUPPORTED, SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl__store_parse_manifest(const char *text, size_t len, const char *path,
                                               sl_arena *tree, sl_store *out, sl_error *err);

/* The member of "experts" that has a part's shape: "gate", "up_bias", ... */
const char *sl__expert_part_key(sl_expert_part part);

/* sl_hash() for machines that have these instructions. */
sl_hash128 sl__hash_avx2(const void *bytes, size_t n);
sl_hash128 sl__hash_avx512(const void *bytes, size_t n);

/* 32 hexadecimal digits and a NUL. */
void sl__hash_text(sl_hash128 hash, char out[SL_STORE_HEX + 1]);
bool sl__hash_from_text(const char *text, size_t len, sl_hash128 *out);

#endif
