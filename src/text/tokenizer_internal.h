/* The blob, and what its writer (tokenizer_compile.c) and its readers share.
 *
 * A blob is a header and sections, little-endian, each at a multiple of 64 bytes, in this order and
 * of sizes that the header's counts give; it holds no pointers. Ids have 21 bits, lengths 10. */
#ifndef SL_TEXT_TOKENIZER_INTERNAL_H
#define SL_TEXT_TOKENIZER_INTERNAL_H

#include <string.h>

#include "text/tokenizer.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blobs are read in place");

#define SL__TOK_MAGIC "SLTOKENS"
#define SL__TOK_VERSION 2u

enum {
    SL__TOK_NFC = 1,           /* normalize to NFC */
    SL__TOK_IGNORE_MERGES = 2, /* a pre-token that is in the vocabulary is taken whole */
    /* Merging starts from characters, and from bytes where the vocabulary lacks one; U+2581 is a
     * space. Without this flag it starts from bytes. */
    SL__TOK_CHARS = 4,
    /* A space is put before the text ... */
    SL__TOK_SPACE_RAW = 8,    /* between raw added tokens, before it is looked through for others */
    SL__TOK_SPACE_PIECE = 16, /* between added tokens, where it does not start with one */
    SL__TOK_SPACE_FIRST = 32, /* the same, for what stands at the very start only */
    SL__TOK_STRIP = 64,       /* a space at the start of decoded text is left out */
    SL__TOK_FLAGS = 127,
};

/* Tokens that the template puts before and after a text. */
#define SL__TOK_AROUND_MAX 8

typedef struct sl__tok_header {
    char magic[8];
    uint32_t version;
    uint32_t flags;
    uint64_t blob_bytes;
    uint32_t n_pattern_bytes;
    uint32_t n_vocab;
    uint32_t n_added;
    uint32_t n_raw;
    uint32_t n_slots;
    uint32_t n_pairs;
    uint32_t n_results; /* 0: the values of pairs are their results */
    uint32_t n_bytes;   /* of the section of token bytes */
    uint32_t n_before, n_after;
} sl__tok_header;

/* Sections. Token id spans bytes[base[id / 64] + offset[id]] up to the same of id + 1. */
typedef enum sl__tok_section {
    SL__TOK_BYTES, /* uint8_t [n_bytes]: tokens by id, then patterns that differ from their token */
    SL__TOK_BASE,  /* uint32_t [n_vocab / 64 + 1] */
    SL__TOK_OFFSET,  /* uint16_t [n_vocab + 1] */
    SL__TOK_SPECIAL, /* bits [n_vocab] */
    SL__TOK_SLOT,    /* uint32_t [n_slots]: hash table from bytes to ids */
    SL__TOK_PAIR,    /* uint64_t [n_pairs]: hash table from (left id, right id) to a value */
    SL__TOK_RESULT,  /* uint32_t [n_results]: the id that a merge of this rank makes */
    SL__TOK_BYTE_ID, /* uint32_t [256]: the id of each single byte */
    SL__TOK_AROUND,  /* uint32_t [n_before + n_after]: ids of the template */
    SL__TOK_PATTERN, /* char [n_pattern_bytes]: the steps of pretokenize.h, each ends with a NUL */
    SL__TOK_ADDED,   /* sl__tok_added [n_added]: raw ones, then normalized ones, each by pattern */
    SL__TOK_SECTIONS,
} sl__tok_section;

enum {
    SL__TOK_LSTRIP = 1,
    SL__TOK_RSTRIP = 2,
    SL__TOK_SINGLE_WORD = 4,
    SL__TOK_ADDED_FLAGS = 7,
};

typedef struct sl__tok_added {
    uint32_t id;
    uint32_t flags;
    uint32_t pattern; /* what is looked for: its start in the bytes section */
    uint32_t pattern_len;
} sl__tok_added;

/* Where each section starts, and with [SL__TOK_SECTIONS] the size of the blob. Counts within limits
 * cannot overflow. */
static inline void sl__tok_layout(const sl__tok_header *h, uint64_t at[SL__TOK_SECTIONS + 1]) {
    const uint64_t bytes[SL__TOK_SECTIONS] = {
        h->n_bytes,
        4 * ((uint64_t)h->n_vocab / 64 + 1),
        2 * ((uint64_t)h->n_vocab + 1),
        ((uint64_t)h->n_vocab + 7) / 8,
        4 * (uint64_t)h->n_slots,
        8 * (uint64_t)h->n_pairs,
        4 * (uint64_t)h->n_results,
        4 * 256,
        4 * ((uint64_t)h->n_before + h->n_after),
        h->n_pattern_bytes,
        sizeof(sl__tok_added) * (uint64_t)h->n_added,
    };
    uint64_t end = sizeof(*h);
    for (int i = 0; i < SL__TOK_SECTIONS; i++) {
        at[i] = SL_ALIGN_UP(end, 64);
        end = at[i] + bytes[i];
    }
    at[SL__TOK_SECTIONS] = SL_ALIGN_UP(end, 64);
}

/* Slots of bytes: id, a bit that says that merging the token's own bytes gives the token back (so a
 * pre-token equal to it needs no merging), and bits of the hash that spare most comparisons. */
#define SL__TOK_ID_MASK SL_TOK_IDS_MAX
#define SL__TOK_WHOLE (1u << 21)
#define SL__TOK_TAG_SHIFT 22
#define SL__TOK_NO_SLOT UINT32_MAX

/* Pairs: left id, right id << 21, value << 42. The value orders merges: the smallest goes first. It
 * is the rank or, where ranks and results rise together, the result. */
#define SL__TOK_PAIR_MASK (((uint64_t)1 << 42) - 1)
#define SL__TOK_VALUE_SHIFT 42
#define SL__TOK_NO_PAIR UINT64_MAX
#define SL__TOK_NO_VALUE UINT32_MAX

/* Longest run of used entries in a hash table; what hashing gives at 3/4 full stays far below it. */
#define SL__TOK_PROBES_MAX 4096

/* Any fixed mixing will do, but it is part of the format. */
static inline uint64_t sl__tok_mix(uint64_t h) {
    h *= 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static inline uint64_t sl__tok_hash(const uint8_t *p, size_t n) {
    uint64_t h = n, w;
    uint32_t a, b;
    if (n >= 8) {
        const uint8_t *last = p + n - 8;
        for (; p < last; p += 8) {
            memcpy(&w, p, 8);
            h = sl__tok_mix(h ^ w);
        }
        memcpy(&w, last, 8);
        return sl__tok_mix(sl__tok_mix(h ^ w));
    }
    if (n >= 4) {
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        w = (uint64_t)b << 32 | a;
    } else {
        w = n == 0 ? 0 : (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
    }
    return sl__tok_mix(sl__tok_mix(h << 56 ^ w));
}

/* The first entry to probe in a table of n. */
static inline uint32_t sl__tok_home(uint64_t hash, uint32_t n) {
    return (uint32_t)((uint64_t)(uint32_t)hash * n >> 32);
}

static inline uint32_t sl__tok_tag(uint64_t hash) {
    return (uint32_t)(hash >> 54);
}

static inline uint64_t sl__tok_pair_key(uint32_t left, uint32_t right) {
    return left | (uint64_t)right << 21;
}
static inline uint64_t sl__tok_pair_hash(uint64_t key) {
    return sl__tok_mix(sl__tok_mix(key));
}

static inline uint32_t sl__tok_start(const sl_tok *tok, uint32_t id) {
    return tok->base[id / 64] + tok->offset[id];
}

/* The slot that holds the token with these bytes, or SL__TOK_NO_SLOT. */
static inline uint32_t sl__tok_lookup(const sl_tok *tok, const uint8_t *p, size_t n) {
    uint64_t hash = sl__tok_hash(p, n);
    uint32_t tag = sl__tok_tag(hash), i = sl__tok_home(hash, tok->n_slots);
    for (;;) {
        uint32_t entry = tok->slot[i];
        if (entry == SL__TOK_NO_SLOT)
            return SL__TOK_NO_SLOT;
        if (entry >> SL__TOK_TAG_SHIFT == tag) {
            uint32_t id = entry & SL__TOK_ID_MASK, start = sl__tok_start(tok, id);
            if (sl__tok_start(tok, id + 1) - start == n && memcmp(tok->bytes + start, p, n) == 0)
                return entry;
        }
        if (++i == tok->n_slots)
            i = 0;
    }
}

static inline uint32_t sl__tok_pair_value(const sl_tok *tok, uint32_t left, uint32_t right) {
    uint64_t key = sl__tok_pair_key(left, right);
    uint32_t i = sl__tok_home(sl__tok_pair_hash(key), tok->n_pairs);
    for (;;) {
        uint64_t entry = tok->pair[i];
        if ((entry & SL__TOK_PAIR_MASK) == key)
            return (uint32_t)(entry >> SL__TOK_VALUE_SHIFT);
        if (entry == SL__TOK_NO_PAIR)
            return SL__TOK_NO_VALUE;
        if (++i == tok->n_pairs)
            i = 0;
    }
}

static inline uint32_t sl__tok_result(const sl_tok *tok, uint32_t value) {
    return tok->result ? tok->result[value] : value;
}

/* Room for merging one piece of up to n bytes. symbol[n], rank[sl__tok_rank_count(n)]. */
typedef struct sl__tok_merger {
    uint32_t *symbol;
    uint32_t *rank;
} sl__tok_merger;

size_t sl__tok_rank_count(size_t n);

/* Merge a piece of n >= 1 bytes of valid UTF-8 (any bytes without SL__TOK_CHARS). Returns the number of symbols; the first is at symbol[0], and
 * sl__tok_symbol() walks them. */
size_t sl__tok_merge(const sl_tok *tok, sl__tok_merger *m, const uint8_t *piece, size_t n);

/* A symbol is kept at its first byte's place: id, length << 21. */
static inline uint32_t sl__tok_symbol_id(uint32_t symbol) {
    return symbol & SL__TOK_ID_MASK;
}
static inline uint32_t sl__tok_symbol_len(uint32_t symbol) {
    return symbol >> 21;
}

#endif
