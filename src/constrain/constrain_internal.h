/* What the sources of constrain/ share: the tables of a vocabulary, of a compiled constraint, and the
 * step by one byte. */
#ifndef SL_CONSTRAIN_INTERNAL_H
#define SL_CONSTRAIN_INTERNAL_H

#include <string.h>

#include "constrain/constrain.h"

#define SL__NONE UINT32_MAX

/* ---- vocabulary ---------------------------------------------------------------------------- */

/* A node stands for one byte after its parent. Nodes are in preorder: the children of node i begin at
 * i + 1, its next sibling (or what follows its parent) is at skip. Tokens have ranks in the order of
 * their bytes; those of node i alone are first[i] .. first[i + 1] - 1, those of it and all below it
 * first[i] .. first[skip] - 1. Node 0 is the root and has no byte. */
typedef struct sl__trie_node {
    uint32_t skip_byte;   /* skip << 8 | byte */
    uint32_t first_depth; /* first << 8 | depth: 1 below the root */
} sl__trie_node;

typedef struct sl__trie {
    sl__trie_node *nodes; /* [n_nodes + 1]: the last one only says where tokens end */
    uint32_t *ids;        /* [n_tokens] by rank */
    uint32_t n_nodes, n_tokens;
} sl__trie;

static inline uint32_t sl__trie_skip(const sl__trie *trie, uint32_t node) {
    return trie->nodes[node].skip_byte >> 8;
}
static inline uint32_t sl__trie_first(const sl__trie *trie, uint32_t node) {
    return trie->nodes[node].first_depth >> 8;
}
static inline uint8_t sl__trie_byte(const sl__trie *trie, uint32_t node) {
    return (uint8_t)trie->nodes[node].skip_byte;
}

/* Inside a JSON string, after its opening quote. */
enum {
    SL__STR_BODY, /* between characters */
    SL__STR_ESCAPE,
    SL__STR_U4, /* after \u */
    SL__STR_UD, /* after \ud: 0-7 is a character, 8-b half of one */
    SL__STR_U3, /* so many hexadecimal digits follow */
    SL__STR_U2,
    SL__STR_U1,
    SL__STR_HIGH2, /* the same in a high surrogate, and what must follow it */
    SL__STR_HIGH1,
    SL__STR_LOW_ESCAPE,
    SL__STR_LOW_U,
    SL__STR_LOW_D,
    SL__STR_LOW_C,
    SL__STR_1, /* so many continuation bytes of UTF-8 follow */
    SL__STR_2,
    SL__STR_3,
    SL__STR_E0, /* the first of them is restricted */
    SL__STR_ED,
    SL__STR_E2,
    SL__STR_E280,
    SL__STR_F0,
    SL__STR_F4,
    SL__STR_N,
    SL__STR_CLOSE = 254,
    SL__STR_DEAD = 255,
};

struct sl_vocab {
    uint32_t n_vocab, n_end;
    uint32_t end_ids[SL_VOCAB_ENDS_MAX];
    bool has_byte[256]; /* there is a token of this byte alone */
    bool has_all_bytes;
    uint8_t string_next[SL__STR_N][256];
    bool string_live[SL__STR_N]; /* the string can be finished with tokens of one byte */
    sl__trie all;
    sl__trie closing;      /* tokens that reach a closing quote from SL__STR_BODY */
    sl__trie odd;          /* tokens of inside, below, that are not in plain */
    uint32_t *rank_of;     /* [n_vocab], SL__NONE for ids that are no text */
    uint8_t *n_characters; /* [n_vocab] that begin in a token of inside; 255 for others */
    uint32_t *inside;      /* mask: tokens that stay in a string from SL__STR_BODY */
    uint32_t *inside_key;  /* the same without escapes */
    uint32_t *plain;       /* of these, short ones (SL__ALIKE_BYTES) without U+2028 and U+2029 */
};

/* The bytes of the token with this rank, from the trie. */
size_t sl__vocab_bytes(const sl_vocab *vocab, uint32_t rank, uint8_t out[SL_VOCAB_TOKEN_BYTES_MAX]);

/* ---- compiled constraint ------------------------------------------------------------------- */

/* A deterministic automaton over bytes. State 0 is the start; every state leads to acceptance. */
#define SL__DFA_DEAD UINT16_MAX
#define SL__DFA_ACCEPT 1u
#define SL__DFA_MORE 2u   /* some byte leads on */
#define SL__DFA_LIVE 4u   /* acceptance is reached with bytes that have a token of their own */
#define SL__DFA_BODY 8u   /* in a string, between two characters */
#define SL__DFA_PLAIN 16u /* and all texts of sl_vocab.plain are allowed */
typedef struct sl__dfa {
    uint32_t n_states, n_classes;
    const uint8_t *class_of; /* [256] */
    const uint16_t *next;    /* [n_states][n_classes] */
    const uint8_t *flags;    /* [n_states] */
    /* [n_states]: states with the same value allow the same texts of up to SL__ALIKE_BYTES, so that
     * counting up to a limit far away does not make all masks different. */
    const uint16_t *alike;
} sl__dfa;

#define SL__ALIKE_BYTES 32

typedef enum sl__alt_kind {
    SL__ALT_DFA,
    SL__ALT_STRING,
    SL__ALT_OBJECT,
    SL__ALT_ARRAY
} sl__alt_kind;

/* One form a value may have. */
typedef struct sl__alt {
    uint8_t kind;
    uint8_t min_depth; /* levels of nesting the smallest value takes, its own included */
    uint32_t dfa;      /* DFA */
    uint32_t min, max; /* STRING: code points; ARRAY: items. max SL__NONE: no limit */
    uint32_t hashes;   /* OBJECT: of declared keys, ascending, from here in refs */
    uint32_t first, n; /* OBJECT: declared keys in props; ARRAY: leading items in refs */
    uint32_t rest;     /* OBJECT: node of other keys, ARRAY: of further items; or SL__NONE */
} sl__alt;

typedef struct sl__prop {
    uint32_t key, key_len;  /* in texts, with both quotes */
    uint32_t hash;          /* of the bytes between the quotes */
    uint32_t node;          /* SL__NONE: must not be there */
    uint32_t next_required; /* index in the object of the first required key from here; n if none */
} sl__prop;

/* A value: any of the forms alts[first .. first + n - 1]. */
typedef struct sl__node {
    uint32_t first, n;
    uint32_t min_depth; /* of the flattest form; SL__NONE: no value fits */
} sl__node;

struct sl_constraint {
    const sl_vocab *vocab;
    uint64_t fingerprint; /* of all tables */
    uint32_t root;
    const sl__node *nodes;
    const sl__alt *alts;
    const sl__prop *props;
    const uint32_t *refs;
    const uint8_t *texts;
    const sl__dfa *dfas;
    uint32_t n_nodes, n_alts, n_props, n_refs, n_texts, n_dfas;
};

#define SL__HASH_START 2166136261u
static inline uint32_t sl__hash_byte(uint32_t hash, uint8_t byte) { // FNV-1a
    return (hash ^ byte) * 16777619u;
}

/* ---- running ------------------------------------------------------------------------------- */

enum {
    SL__MODE_VALUE,       /* leaf: node */
    SL__MODE_FIRST_VALUE, /* the same after '[' */
    SL__MODE_FIRST_KEY,
    SL__MODE_NEXT_KEY,
    SL__MODE_KEY,       /* pos: first declared key that fits, count: bytes of it */
    SL__MODE_OTHER_KEY, /* state: of the string, count: hash */
    SL__MODE_COLON,     /* leaf: node of the value */
    SL__MODE_AFTER,     /* after a value in a container */
    SL__MODE_CLOSE,     /* the same, and space before the closing bracket has begun */
    SL__MODE_DFA,       /* leaf: dfa, state */
    SL__MODE_STRING,    /* leaf: alt, state, count: code points begun */
    SL__MODE_DONE,
};

enum { SL__SPACE_MAY = 0, SL__SPACE_LINE = 2, SL__SPACE_ONE = 254, SL__SPACE_NO = 255 };

#define SL__FRAMES_ROOM (SL_CONSTRAINT_FRAMES_MAX + 512)
#define SL__KEYS_ROOM (SL_CONSTRAINT_KEYS_MAX + 512)

/* Frames and keys while bytes are tried: those of the state, and room above for new ones. */
typedef struct sl__pools {
    sl__ctr_frame frames[SL__FRAMES_ROOM];
    sl__ctr_key keys[SL__KEYS_ROOM];
    uint32_t n_frames, n_keys;
} sl__pools;

/* The ways to go on from thread by one byte: written to out, at most SL_CONSTRAINT_THREADS_MAX;
 * returns their number. */
uint32_t sl__step(const sl_constraint *c, sl__pools *pools, const sl__ctr_thread *thread,
                  uint8_t byte, sl__ctr_thread *out);
/* Append those of more[n_more] that are not among threads[n] yet, as far as there is room. */
uint32_t sl__add_threads(sl__ctr_thread *threads, uint32_t n, const sl__ctr_thread *more,
                         uint32_t n_more);
void sl__load_pools(const sl_constraint_state *state, sl__pools *pools);
/* A token may end here: what remains can be written byte by byte. */
bool sl__is_live(const sl_constraint *c, const sl__ctr_thread *thread);
bool sl__is_complete(const sl_constraint *c, const sl__ctr_thread *thread);

typedef struct sl__level { /* of the walk through a trie */
    uint32_t end;          /* node at which it is left */
    uint32_t thread, n;    /* its threads in work->threads; n == 0: a leaf, below */
    uint32_t n_frames, n_keys;
    uint32_t state, count; /* of a leaf, whose other members are those of `thread` */
} sl__level;

typedef struct sl__cached {
    uint64_t key[2];
    uint64_t used; /* time of last use; 0: empty */
} sl__cached;

struct sl_constraint_work {
    sl__pools pools;
    sl__level levels[SL_VOCAB_TOKEN_BYTES_MAX + 2];
    sl__ctr_thread threads[(SL_VOCAB_TOKEN_BYTES_MAX + 2) * SL_CONSTRAINT_THREADS_MAX];
    sl_constraint_state next;
    uint32_t n_cached;
    uint64_t clock;
    sl__cached *cached;    /* [n_cached] */
    uint32_t *cached_bits; /* [n_cached][n_words] */
};

#endif
