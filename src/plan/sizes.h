/* The constants of the plan, each with where it comes from. */
#ifndef SL_PLAN_SIZES_H
#define SL_PLAN_SIZES_H

#include "base/attr.h"

/* A control group is charged in batches of 64 pages per processor, so it starts to fail while that much
 * is still free. */
#define SL_RESERVE_BYTES_PER_CPU (256 * SL_KIB)

/* Kernel memory on our behalf, measured as a cgroup's charge beyond the resident set (docs/memory.md,
 * "What the kernel holds"). */
#define SL_KERNEL_BASE_BYTES (192 * SL_KIB)
#define SL_KERNEL_BYTES_PER_FILE ((uint64_t)2 * SL_KIB)
#define SL_PAGE_TABLE_BASE_BYTES (96 * SL_KIB)

/* Data, heap and main stack of the program beside its code. */
#define SL_PROCESS_DATA_BYTES (512 * SL_KIB)

#define SL_RING_SLOTS_MIN 2u
#define SL_ROW_BUFFERS_MAX 8u
/* Share of the budget for recently used embedding rows: a row takes a whole read, and few are common. */
#define SL_ROW_CACHE_SHARE 256u
#define SL_STRIP_BYTES_MIN (64 * SL_KIB)
#define SL_STRIP_BYTES_MAX SL_MIB

/* A larger chunk may take 1/8 of what the smallest plan leaves, a wider ring 1/4. */
#define SL_CHUNK_SHARE 8u
#define SL_LARGE_CHUNK_SHARE 16u /* of more than 512 tokens */
#define SL_RING_SHARE 4u

/* The longest prompt text: tokens of everyday text have about 4 bytes. */
#define SL_TEXT_BYTES_PER_TOKEN 8u
#define SL_TEXT_BYTES_BASE 4096u
/* The longest single word that the tokenizer's workspace holds. */
#define SL_TEXT_PIECE_MAX (64 * SL_KIB)
/* Rendering: the parsed conversation and the template's values, per byte of the prompt. */
#define SL_RENDER_BYTES_PER_BYTE 6u
#define SL_RENDER_BYTES_BASE (96 * SL_KIB)

/* Per expert, per slot of the hot tier, and per layer (engine/open.c asserts them). */
#define SL_EXPERT_ENTRY_BYTES 16u
#define SL_SLOT_ENTRY_BYTES 24u
#define SL_LAYER_COUNTS_BYTES 32u
/* Per vocabulary entry: a candidate's logit and id, and its count in the answer. */
#define SL_SAMPLER_TOKEN_BYTES 12u

#endif
