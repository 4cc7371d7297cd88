/* JSON (RFC 8259), read in two ways, both strict, both without recursion on the input's depth.
 *
 * sl_json_reader is a pull reader: it walks the text and hands out one event at a time, in constant
 * memory, for files that are large (a tokenizer.json of 20 MB) or only partly wanted.
 * sl_json_parse builds a tree in an arena, for configs, messages and manifests.
 *
 * Strict: no comments, no trailing commas, no NaN, duplicate keys refused (tree only), depth at most
 * SL_JSON_DEPTH_MAX, \u escapes must pair up, text must be valid UTF-8 inside strings.
 * Errors are SL_ERR_SYNTAX with line and column. Text is read-only and must outlive what refers to it. */
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <stdbool.h>

#include "base/mem.h"
#include "base/status.h"

#define SL_JSON_DEPTH_MAX 64

typedef enum sl_json_type {
    SL_JSON_NULL,
    SL_JSON_FALSE,
    SL_JSON_TRUE,
    SL_JSON_NUMBER,
    SL_JSON_STRING,
    SL_JSON_ARRAY,
    SL_JSON_OBJECT,
} sl_json_type;

/* ---- tree ---------------------------------------------------------------------------------- */

typedef struct sl_json sl_json;
struct sl_json {
    sl_json_type type;
    uint32_t n_children; /* array or object */
    const char *key;     /* decoded, NUL-terminated; NULL unless the parent is an object */
    const char *text;    /* string: decoded, NUL-terminated (may hold NULs); number: as written */
    size_t text_len;
    size_t key_len;
    sl_json *child; /* first child */
    sl_json *next;  /* next sibling, in the order of the text */
};

/* Parse the whole text into arena. *out is valid as long as the arena. Any thread.
 * Errors: SL_ERR_SYNTAX, SL_ERR_MEMORY (arena full; about 64 bytes a value plus its text). */
SL_MUST_USE sl_status sl_json_parse(const char *text, size_t len, sl_arena *arena, sl_json **out,
                                    sl_error *err);

/* The member of an object, or NULL: also for node == NULL and for nodes that are no objects. */
const sl_json *sl_json_member(const sl_json *node, const char *key);
/* As above, and NULL where the member is null: for configs, in which null means absent. */
const sl_json *sl_json_member_set(const sl_json *node, const char *key);
/* The index-th element of an array or object, or NULL. O(index). */
const sl_json *sl_json_element(const sl_json *node, uint32_t index);
bool sl_json_is(const sl_json *node, sl_json_type type);     /* false for NULL */
bool sl_json_text_is(const sl_json *node, const char *text); /* a string equal to text */

/* Numbers. false if node is NULL, no number, or (for integers) not a whole number in range;
 * 3.0 and 3e0 count as whole. The double is correctly rounded, independent of the locale. */
bool sl_json_double(const sl_json *node, double *out);
bool sl_json_int64(const sl_json *node, int64_t *out);
bool sl_json_uint64(const sl_json *node, uint64_t *out);
/* Correctly rounded value of a JSON number's text. */
double sl_json_parse_double(const char *text, size_t len);

/* ---- pull reader --------------------------------------------------------------------------- */

typedef enum sl_json_event {
    SL_JSON_EV_ERROR,
    SL_JSON_EV_BEGIN_OBJECT,
    SL_JSON_EV_END_OBJECT,
    SL_JSON_EV_BEGIN_ARRAY,
    SL_JSON_EV_END_ARRAY,
    SL_JSON_EV_KEY,    /* text/len: the raw bytes between the quotes */
    SL_JSON_EV_STRING, /* likewise */
    SL_JSON_EV_NUMBER, /* text/len: as written */
    SL_JSON_EV_TRUE,
    SL_JSON_EV_FALSE,
    SL_JSON_EV_NULL,
    SL_JSON_EV_END, /* end of the text; repeated calls return it again */
} sl_json_event;

typedef struct sl_json_reader {
    const char *start, *at, *end;
    const char *text; /* of the last KEY, STRING or NUMBER */
    size_t len;
    bool escaped;  /* text holds escapes: decode it before use */
    uint8_t state; /* internal */
    uint8_t depth;
    uint8_t stack[SL_JSON_DEPTH_MAX];
} sl_json_reader;

void sl_json_reader_init(sl_json_reader *reader, const char *text, size_t len);
/* On SL_JSON_EV_ERROR err is filled, and stays the answer. */
sl_json_event sl_json_next(sl_json_reader *reader, sl_error *err);
/* Skip the value that follows (after a KEY, or inside an array), or finish the container whose
 * BEGIN was the last event when `entered` is true. */
SL_MUST_USE sl_status sl_json_skip(sl_json_reader *reader, bool entered, sl_error *err);
/* Decode the last KEY or STRING into out (cap >= reader->len suffices; no NUL is added).
 * Returns the decoded length. The text was validated by sl_json_next. */
size_t sl_json_decode(const sl_json_reader *reader, char *out);
/* True when the last KEY or STRING, decoded, equals the NUL-terminated text. */
bool sl_json_reader_is(const sl_json_reader *reader, const char *text);

#endif
