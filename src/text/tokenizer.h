/* Tokenizer: byte-pair merges as the checkpoint's tokenizer.json describes them.
 *
 * Two halves. sl_tok_compile() reads tokenizer.json once, at conversion, checks that it understands
 * all of it, and writes one table image, the *blob*. sl_tok_open() checks a blob and points into it;
 * encoding and decoding then work on the blob alone and allocate nothing.
 *
 * Two kinds of vocabulary are known. A byte-level one has all 256 bytes, and merging starts from
 * bytes. One like SentencePiece's (Mixtral) starts from characters, falls back to tokens <0x00>..<0xFF>
 * for those it lacks, and writes U+2581 for a space; here that mark is the space itself, in the
 * vocabulary and in the text.
 *
 * Encoding is that of the `tokenizers` library (tests/diff/test_tokenizer_hf.py holds it to that):
 *   1. added tokens with normalized=false are cut out of the raw text, leftmost, longest first;
 *   2. each piece between them is normalized (NFC of Unicode 9, spaces and their mark made one, a
 *      space put before it, or nothing), and added tokens with normalized=true are cut out of the
 *      result; lstrip, rstrip and single_word are honoured;
 *   3. what remains is cut into pre-tokens (pretokenize.h), and
 *   4. the bytes or characters of a pre-token are merged by rank, leftmost first among equals.
 * Invalid UTF-8 becomes U+FFFD, one for each maximal invalid subpart (utf8.h), after step 1. The
 * truncation and padding settings of tokenizer.json are not applied: they are defaults of a training
 * pipeline, and nothing is cut silently here.
 *
 * Around a text stand the tokens of its template (SL_TOK_TEMPLATE): where tokenizer_config.json says
 * add_bos_token or add_eos_token, those, as transformers 5 does; else what the post-processor of
 * tokenizer.json adds to a single text.
 *
 * Time is linear in the text, with a logarithmic factor in the length of a pre-token; memory is
 * bounded by the longest pre-token. */
#ifndef SL_TEXT_TOKENIZER_H
#define SL_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"
#include "text/pretokenize.h"

/* Limits of the blob's format. */
#define SL_TOK_IDS_MAX ((1u << 21) - 1) /* ids are below this */
#define SL_TOK_TOKEN_BYTES_MAX 1023

/* An opened tokenizer (4 KB): pointers into the blob, which must stay where it is. Plain data, never
 * changed after open: any number of threads may use it. Callers read the first four members. */
typedef struct sl_tok {
    uint32_t n_vocab;         /* one more than the largest id; ids in between may be unused */
    uint32_t n_added;         /* added tokens, special or not */
    uint32_t token_bytes_max; /* of any token */
    size_t blob_bytes;

    uint32_t flags;
    uint32_t n_before, n_after; /* in around[] */
    uint32_t n_raw;             /* the first n_raw added tokens match in raw text */
    uint32_t n_slots;
    uint32_t n_pairs;
    uint32_t word_bytes_max;    /* of tokens in slot[] */
    uint32_t pattern_bytes_max; /* of added tokens that match in normalized text */
    const uint8_t *bytes;
    const uint32_t *base;
    const uint16_t *offset;
    const uint8_t *special;
    const uint32_t *slot;
    const uint64_t *pair;
    const uint32_t *result; /* NULL: a pair's value is the result itself */
    const uint32_t *byte_id;
    const uint32_t *around;
    const struct sl__tok_added *added;
    uint64_t first[2][4]; /* first bytes of raw and of normalized added tokens */
    bool strips_left;     /* an added token matched in normalized text has lstrip */
    sl_pretok pretok;
} sl_tok;

/* Compile tokenizer.json into blob (initialised and growable; emptied first). tokenizer_config_json
 * may be NULL with length 0: of it only what would change the ids is looked at, and added tokens that
 * tokenizer.json does not have, and what stands around a text, are taken from it. Uses the heap: about 25 MB for 250,000 tokens, the
 * blob (6.4 MB) included. Any thread.
 * Errors: SL_ERR_SYNTAX (JSON), SL_ERR_CORRUPT (contradictions: two tokens with one id, a merge of
 * unknown tokens, ...), SL_ERR_UNSUPPORTED (names what was found and what is known), SL_ERR_MEMORY. */
SL_MUST_USE sl_status sl_tok_compile(const char *tokenizer_json, size_t len,
                                     const char *tokenizer_config_json, size_t config_len,
                                     sl_buf *blob, sl_error *err);

/* Open a blob, aligned to 8 bytes, of which nothing is trusted: every table is checked, so that no
 * blob makes the calls below read outside it or run without end. Reads it whole, allocates nothing.
 * Errors: SL_ERR_CORRUPT, SL_ERR_UNSUPPORTED (another version of the format). */
SL_MUST_USE sl_status sl_tok_open(const void *blob, size_t size, sl_tok *tok, sl_error *err);

/* Treat everything as plain text: added tokens are not looked for, so that what spells one is encoded
 * like any other text. For content from outside, which must not speak in control tokens: no special
 * token can come out. */
#define SL_TOK_PLAIN 1u
/* Put the template's tokens (a BOS, where there is one) around the text, as for a prompt that stands
 * by itself. Not for the output of a chat template, which writes them itself. */
#define SL_TOK_TEMPLATE 2u

/* Bytes of workspace for encoding text whose pre-tokens have up to piece_bytes_max bytes (at least
 * 4 KiB are assumed): about 10.4 bytes per byte. 64 KiB is ample for anything written by people. */
size_t sl_tok_workspace_bytes(size_t piece_bytes_max);

/* Encode text[0..len), of any size, into ids[0..ids_cap). *n_ids is the number of tokens of the whole
 * text, also when that is more than ids_cap. Takes its memory from workspace (which decides how long
 * a pre-token may be) and gives it back. Any thread, with a workspace of its own.
 * Errors: SL_ERR_CONTEXT, the tokens do not fit (ids holds the first ids_cap, *n_ids all);
 * SL_ERR_MEMORY, a pre-token or a run of combining marks is longer than the workspace allows, or the
 * workspace is smaller than sl_tok_workspace_bytes(0). */
SL_MUST_USE sl_status sl_tok_encode(const sl_tok *tok, const char *text, size_t len, unsigned flags,
                                    uint32_t *ids, size_t ids_cap, size_t *n_ids,
                                    sl_arena *workspace, sl_error *err);

/* The bytes a token stands for (not NUL-terminated, may be part of a character); they live in the
 * blob. false when no token has this id. Text of several tokens: join the bytes, then utf8.h. */
bool sl_tok_token_bytes(const sl_tok *tok, uint32_t id, const char **bytes, size_t *len);
/* The same as a part of decoded text. at_start: it is the first of the text that has any; where the
 * tokenizer puts a space before a text, it is left out again here, and *len may be 0. What follows
 * another text (the continuation of a raw prompt) is not at a start. */
bool sl_tok_decode(const sl_tok *tok, uint32_t id, bool at_start, const char **bytes, size_t *len);
/* An added token marked special (<|im_end|>): left out of text that people read. false for others. */
bool sl_tok_is_special(const sl_tok *tok, uint32_t id);
/* The id of the added token with this content or, failing that, of the vocabulary entry with exactly
 * these bytes. */
bool sl_tok_find(const sl_tok *tok, const char *text, size_t len, uint32_t *id);

#endif
