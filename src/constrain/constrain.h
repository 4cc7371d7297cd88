/* Constrained decoding: an answer that is JSON of a given schema, enforced while it is generated.
 *
 * Three objects. A *vocabulary* (sl_vocab) is a trie of the bytes of all tokens, made once for a
 * tokenizer and read by everybody. A *constraint* is a schema compiled into automata for scalars and
 * a table of containers. A *state* is where an answer stands: plain data of a fixed size, copied with
 * `=` to take a snapshot and back to return to it.
 *
 *     sl_constraint_begin(c, &state);
 *     for (;;) {
 *         sl_constraint_mask(c, &state, work, bits);        // only these tokens may be sampled
 *         token = sample(logits, bits);
 *         if (sl_constraint_is_end(c, token)) break;        // the answer is whole and valid
 *         st = sl_constraint_accept(c, &state, work, token, &err);
 *     }
 *
 * What holds for every answer that ends with an end token: it is one JSON value without anything
 * before or after it, and it satisfies the schema. As long as the value is not complete at least one
 * token is allowed: what could not be finished is not begun, which includes nesting beyond
 * SL_JSON_DEPTH_MAX and characters whose bytes have no token of their own. Numbers and keys that
 * could go on may still be cut by the caller's limit of tokens; then the answer is a prefix of a
 * valid one.
 *
 * Schemas are JSON Schema 2020-12 as docs/constrained.md lists it. A keyword that is not enforced is
 * refused with SL_ERR_UNSUPPORTED and its JSON pointer; so is a schema that no value satisfies, as
 * far as that is found. Of all valid spellings these are generated: keys in the order in which the
 * schema declares them, others after them; keys, constants and strings with a pattern or a format
 * without needless escapes; integers without fraction and exponent; between tokens of JSON nothing, a
 * space, or a line break and at most four spaces for each open container.
 *
 * Nothing here allocates: everything lives in the caller's arenas. Time and memory of a compilation
 * are bounded by the limits and by the arenas. All calls are safe on any thread; a state and a work
 * area belong to one thread at a time, vocabulary and constraint are never changed. */
#ifndef SL_CONSTRAIN_CONSTRAIN_H
#define SL_CONSTRAIN_CONSTRAIN_H

#include <stdbool.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

/* ---- vocabulary ---------------------------------------------------------------------------- */

/* Longer tokens are never allowed. */
#define SL_VOCAB_TOKEN_BYTES_MAX 128

/* Where the bytes of tokens come from, in the caller's words. */
typedef struct sl_vocab_source {
    uint32_t n_vocab; /* ids are below this; at least the number of logits is a good choice */
    /* The bytes of a token as they appear in an answer (for text/tokenizer: sl_tok_token_bytes).
     * false, or no bytes, for ids that must never be part of an answer: special and unused ones. The
     * bytes stay where they are as long as a call here runs. */
    bool (*token_bytes)(const void *ctx, uint32_t id, const char **bytes, size_t *len);
    const void *ctx;
    const uint32_t *end_ids; /* tokens that end an answer: allowed when it is complete */
    uint32_t n_end;          /* 1..SL_VOCAB_ENDS_MAX; each below n_vocab */
} sl_vocab_source;

#define SL_VOCAB_ENDS_MAX 8

typedef struct sl_vocab sl_vocab;

/* Bytes that sl_vocab_build() takes from its arena, exactly, so that they can be planned.
 * scratch: 8 * n_vocab bytes, given back. Errors: as sl_vocab_build(), but for its arena. */
SL_MUST_USE sl_status sl_vocab_measure(const sl_vocab_source *source, sl_arena *scratch,
                                       uint64_t *bytes, sl_error *err);
/* Build the trie. About 8 bytes a node of the trie and 10 bytes a token: 7.2 MB for the 248,000 tokens
 * of Qwen3.6. The source is not needed afterwards. scratch as above.
 * Errors: SL_ERR_ARGUMENT (counts, end tokens), SL_ERR_UNSUPPORTED (a printable ASCII character has
 * no token of its own), SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_vocab_build(const sl_vocab_source *source, sl_arena *arena,
                                     sl_arena *scratch, sl_vocab **out, sl_error *err);
uint32_t sl_vocab_size(const sl_vocab *vocab); /* n_vocab */

/* ---- compiling ----------------------------------------------------------------------------- */

typedef struct sl_constraint_limits {
    uint32_t n_nodes_max;  /* distinct subschemas, after references and allOf are resolved */
    uint32_t n_states_max; /* of all automata together */
    uint64_t n_steps_max;  /* units of work; about 5 ns each */
    /* An object that declares properties and does not mention additionalProperties gets declared
     * keys only. Such answers are valid too, and a small model is not led to invent keys. Off: such
     * an object may have any other key, as the standard says. */
    bool closed_objects;
} sl_constraint_limits;

/* 4,000 nodes, 40,000 states, 40 million steps; closed_objects off. */
sl_constraint_limits sl_constraint_limits_default(void);

typedef struct sl_constraint sl_constraint;

/* Compile a schema (a parsed one must outlive this call only). arena receives the result: usually
 * below 50 KB; scratch is given back: usually below 300 KB. Patterns that count to hundreds take more:
 * ^.{1,200}$ 0.5 MB and 4 MB.
 * Errors: SL_ERR_SYNTAX (text that is no JSON), SL_ERR_UNSUPPORTED (names the keyword and its JSON
 * pointer: not supported, cannot be satisfied, or above a limit), SL_ERR_ARGUMENT (a keyword's value
 * is of the wrong kind, a reference leads nowhere), SL_ERR_MEMORY (an arena is too small). On error
 * the arenas are as they were. */
SL_MUST_USE sl_status sl_constraint_compile(const sl_json *schema, const sl_vocab *vocab,
                                            const sl_constraint_limits *limits, sl_arena *arena,
                                            sl_arena *scratch, sl_constraint **out, sl_error *err);
SL_MUST_USE sl_status sl_constraint_compile_text(const char *schema, size_t len,
                                                 const sl_vocab *vocab,
                                                 const sl_constraint_limits *limits,
                                                 sl_arena *arena, sl_arena *scratch,
                                                 sl_constraint **out, sl_error *err);
/* Any JSON object: response_format json_object. Takes less than 32 KiB of the arena. */
SL_MUST_USE sl_status sl_constraint_compile_object(const sl_vocab *vocab, sl_arena *arena,
                                                   sl_arena *scratch, sl_constraint **out,
                                                   sl_error *err);

/* ---- running ------------------------------------------------------------------------------- */

/* Where an answer may stand at once: an anyOf is followed in all its branches until they differ.
 * Where schemas within schemas stay ambiguous beyond this, the later branches are given up; answers
 * stay valid. */
#define SL_CONSTRAINT_THREADS_MAX 32
#define SL_CONSTRAINT_FRAMES_MAX 256
/* Keys that are not declared and stand in objects still open: their hashes are kept, because no key
 * may be written twice. An object is closed when there is no room for another. */
#define SL_CONSTRAINT_KEYS_MAX 512
#define SL_CONSTRAINT_KEYS_THREAD_MAX 128

/* One way to read the answer so far. Internal. */
typedef struct sl__ctr_thread {
    uint8_t mode, depth, space, n_keys;
    uint16_t parent, keys;
    uint32_t alt, pos;
    uint32_t leaf, state, count;
} sl__ctr_thread;

/* A container that is open around the current one. Internal. */
typedef struct sl__ctr_frame {
    uint32_t alt, pos;
    uint16_t parent, keys;
    uint32_t n_keys;
} sl__ctr_frame;

typedef struct sl__ctr_key {
    uint32_t hash;
    uint32_t previous;
} sl__ctr_key;

/* About 9 KB of plain data. */
typedef struct sl_constraint_state {
    uint16_t n_threads, n_frames, n_keys;
    sl__ctr_thread threads[SL_CONSTRAINT_THREADS_MAX];
    sl__ctr_frame frames[SL_CONSTRAINT_FRAMES_MAX];
    sl__ctr_key keys[SL_CONSTRAINT_KEYS_MAX];
} sl_constraint_state;

/* Room for walking the trie, and for masks that were computed before. One for each thread that
 * decodes; it may serve any constraint of this vocabulary, one after another or interleaved.
 * n_cached masks of n_vocab bits each; 0 is allowed, 64 is a good choice (2 MB). */
typedef struct sl_constraint_work sl_constraint_work;
size_t sl_constraint_work_bytes(uint32_t n_vocab, uint32_t n_cached);
/* Errors: SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_constraint_work_init(const sl_vocab *vocab, uint32_t n_cached,
                                              sl_arena *arena, sl_constraint_work **out,
                                              sl_error *err);

/* The empty answer. */
void sl_constraint_begin(const sl_constraint *constraint, sl_constraint_state *state);

/* Words of a mask: token id is bit id % 32 of word id / 32. */
#define SL_CONSTRAINT_MASK_WORDS(n_vocab) (((size_t)(n_vocab) + 31) / 32)

/* Write into bits[SL_CONSTRAINT_MASK_WORDS(n_vocab)] which tokens may follow: end tokens where the
 * answer is complete, and every token that keeps it the beginning of a valid one. */
void sl_constraint_mask(const sl_constraint *constraint, const sl_constraint_state *state,
                        sl_constraint_work *work, uint32_t *bits);
/* The same for one token, in microseconds. */
bool sl_constraint_allows(const sl_constraint *constraint, const sl_constraint_state *state,
                          sl_constraint_work *work, uint32_t token);
/* Append a token that is no end token. SL_ERR_STATE when it is not allowed; the state is then as it
 * was. */
SL_MUST_USE sl_status sl_constraint_accept(const sl_constraint *constraint,
                                           sl_constraint_state *state, sl_constraint_work *work,
                                           uint32_t token, sl_error *err);
/* Append bytes instead of a token: text that was not sampled. SL_ERR_STATE as above. */
SL_MUST_USE sl_status sl_constraint_accept_bytes(const sl_constraint *constraint,
                                                 sl_constraint_state *state,
                                                 sl_constraint_work *work, const char *bytes,
                                                 size_t len, sl_error *err);
/* The answer so far is valid as it is: it may end here. */
bool sl_constraint_is_complete(const sl_constraint *constraint, const sl_constraint_state *state);
/* It is complete and nothing but an end token may follow: a caller need not sample. */
bool sl_constraint_is_closed(const sl_constraint *constraint, const sl_constraint_state *state);
bool sl_constraint_is_end(const sl_constraint *constraint, uint32_t token);

#endif
