/* From tokenizer.json to a blob, see tokenizer.h.
 *
 * The file is walked with the pull reader. Small settings (normalizer, pre-tokenizer, ...) become
 * trees in a bounded arena; the vocabulary and the merges, which make up nearly all of it, are read
 * where they stand, in a second walk, once everything around them is known. */
#include "base/json.h"
#include "text/normalize.h"
#include "text/pretokenize.h"
#include "text/tokenizer_internal.h"
#include "text/utf8.h"

#include <stdlib.h>

/* A setting larger than this is none that is understood. */
#define SETTING_BYTES_MAX ((size_t)64 << 10)
#define SETTING_ARENA_BYTES ((size_t)1 << 20)

#define SPACE_FLAGS (SL__TOK_SPACE_RAW | SL__TOK_SPACE_PIECE | SL__TOK_SPACE_FIRST)
#define SPACE_MARK "\xe2\x96\x81" /* SL_SPACE_MARK */

/* One vocabulary entry or added token while it is being put together. */
typedef struct entry {
    uint32_t at, len; /* in texts */
    uint8_t state;
} entry;

enum {
    ENTRY_NONE,
    ENTRY_BYTES, /* vocabulary, what merging works on; texts holds the bytes that it stands for */
    ENTRY_TEXT,  /* vocabulary, out of merging's reach; texts holds the text itself */
    ENTRY_STATE = 3,
    ENTRY_ADDED = 4,
    ENTRY_SPECIAL = 8,
};

typedef struct added {
    uint32_t id;
    uint32_t flags;
    bool normalized;
    uint32_t pattern, pattern_len; /* in texts; the content, or its NFC where that is looked for */
    const char *bytes;             /* the pattern itself, once texts stays where it is */
} added;

/* What tokenizer_config.json says about the text around a text. */
typedef enum around_flag { AROUND_UNSAID, AROUND_OFF, AROUND_ON } around_flag;

typedef struct around_config {
    around_flag add;
    char token[SL_TOK_TOKEN_BYTES_MAX]; /* [len] */
    size_t len;
} around_config;

typedef struct compiler {
    sl_error *err;
    uint32_t flags;
    bool byte_level;    /* the pre-tokenizer maps bytes to characters */
    bool byte_fallback; /* the model does */
    bool byte_decoder, char_decoder;
    bool marks_late; /* spaces become marks after normalized added tokens were cut out */
    bool cut_marks;  /* before each mark */
    uint32_t n_pre_tokenizers;
    sl_pretok pretok;
    sl_buf patterns; /* of its steps, each with a NUL */
    uint32_t around[2][SL__TOK_AROUND_MAX], n_around[2];
    around_config config[2]; /* bos_token, eos_token */
    uint32_t byte_id[256];   /* of a vocabulary with byte_fallback; SL_TOK_IDS_MAX: none */
    sl_buf texts;
    entry *entries; /* [entries_cap], by id */
    uint32_t entries_cap, n_vocab;
    added *added;
    uint32_t n_added, added_cap;
    uint32_t *slot;
    uint32_t n_slots;
    uint64_t *merges;  /* [n_merges]: left id, right id << 21 */
    uint32_t *results; /* [n_merges] */
    uint32_t n_merges, merges_cap;
    char *scratch; /* [scratch_cap]: one decoded JSON string */
    size_t scratch_cap;
} compiler;

static sl_status no_memory(const compiler *c) {
    return sl_fail(c->err, SL_ERR_MEMORY, "the system has no memory for compiling the tokenizer");
}

static sl_status unsupported(const compiler *c, const char *what, const char *found,
                             const char *known) {
    return sl_fail(c->err, SL_ERR_UNSUPPORTED, "tokenizer.json: %s is %.100s; supported: %s", what,
                   found, known);
}

/* ---- byte-level characters ------------------------------------------------------------------ */

// In byte-level vocabularies each byte is written as one visible character: the bytes 33..126,
// 161..172 and 174..255 as the character of that number, the other 68, in order, as U+0100 and up.
// Returns the byte that cp stands for, or -1.
static int byte_of_character(uint32_t cp) {
    if ((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255))
        return (int)cp;
    uint32_t i = cp - 0x100;
    return i < 33 ? (int)i : i < 67 ? (int)(i - 33 + 127) : i == 67 ? 173 : -1;
}

// Turn text into the bytes that it spells, in place. false, and text unchanged, where a character is
// not of the byte-level alphabet.
static bool spell_bytes(char *text, size_t *len) {
    const uint8_t *start = (const uint8_t *)text, *end = start + *len;
    uint32_t cp;
    for (const uint8_t *p = start; p < end;) {
        p += sl_utf8_decode_valid(p, &cp);
        if (byte_of_character(cp) < 0)
            return false;
    }
    size_t n = 0;
    for (const uint8_t *p = start; p < end;) {
        p += sl_utf8_decode_valid(p, &cp);
        text[n++] = (char)byte_of_character(cp);
    }
    *len = n;
    return true;
}

/* ---- characters and marks --------------------------------------------------------------------- */

// <0x00>..<0xFF>: the byte, or -1.
static int byte_of_name(const char *text, size_t len) {
    static const char digits[] = "0123456789ABCDEF";
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !text[3] || !text[4])
        return -1;
    const char *high = strchr(digits, text[3]), *low = strchr(digits, text[4]);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

// Turn marks into spaces, in place. false, and text unchanged, where it has a space already: no text
// that is merged has one.
static bool spell_chars(char *text, size_t *len) {
    size_t n = 0;
    if (memchr(text, ' ', *len))
        return false;
    for (size_t i = 0; i < *len; n++)
        if (*len - i >= 3 && memcmp(text + i, SPACE_MARK, 3) == 0) {
            text[n] = ' ';
            i += 3;
        } else {
            text[n] = text[i++];
        }
    *len = n;
    return true;
}

static bool contains_mark(const char *text, size_t len) {
    for (size_t i = 0; i + 3 <= len; i++)
        if (memcmp(text + i, SPACE_MARK, 3) == 0)
            return true;
    return false;
}

static bool spell(const compiler *c, char *text, size_t *len) {
    return c->flags & SL__TOK_CHARS ? spell_chars(text, len) : spell_bytes(text, len);
}

/* ---- reading JSON --------------------------------------------------------------------------- */

// The reader's last string, decoded into c->scratch.
static sl_status decode(compiler *c, const sl_json_reader *r, size_t *len) {
    if (r->len > c->scratch_cap) {
        char *grown = sl_mem_realloc(c->scratch, r->len * 2);
        if (!grown)
            return no_memory(c);
        c->scratch = grown;
        c->scratch_cap = r->len * 2;
    }
    *len = sl_json_decode(r, c->scratch);
    return SL_OK;
}

static sl_status keep_text(compiler *c, const char *text, size_t len, uint32_t *at) {
    if (c->texts.len + len > UINT32_MAX)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED, "the vocabulary has more than 4 GiB of text");
    *at = (uint32_t)c->texts.len;
    sl_buf_add(&c->texts, text, len);
    return c->texts.failed ? no_memory(c) : SL_OK;
}

// Make room for id, which is valid afterwards.
static sl_status reach_id(compiler *c, uint64_t id) {
    if (id >= SL_TOK_IDS_MAX)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "token id %llu is too large; supported: below %u", (unsigned long long)id,
                       SL_TOK_IDS_MAX);
    if (id >= c->entries_cap) {
        uint32_t cap = SL_MAX((uint32_t)id + 1, c->entries_cap + c->entries_cap / 2 + 1024);
        entry *grown = sl_mem_realloc(c->entries, cap * sizeof(*grown));
        if (!grown)
            return no_memory(c);
        memset(grown + c->entries_cap, 0, (cap - c->entries_cap) * sizeof(*grown));
        c->entries = grown;
        c->entries_cap = cap;
    }
    c->n_vocab = SL_MAX(c->n_vocab, (uint32_t)id + 1);
    return SL_OK;
}

static bool parse_id(const char *text, size_t len, uint64_t *id) {
    *id = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || *id > SL_TOK_IDS_MAX)
            return false;
        *id = *id * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

// The value that the reader is about to enter, as a tree in arena.
static sl_status read_setting(compiler *c, sl_json_reader *r, const char *name, sl_arena *arena,
                              sl_json **out) {
    const char *start = r->at;
    sl_status st = sl_json_skip(r, false, c->err);
    if (st)
        return st;
    while (start < r->at &&
           (*start == ':' || *start == ' ' || *start == '\t' || *start == '\n' || *start == '\r'))
        start++;
    if ((size_t)(r->at - start) > SETTING_BYTES_MAX)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "tokenizer.json: %s has %zu bytes; supported: %zu", name,
                       (size_t)(r->at - start), SETTING_BYTES_MAX);
    return sl_json_parse(start, (size_t)(r->at - start), arena, out, c->err);
}

/* ---- settings ------------------------------------------------------------------------------- */

static const char *type_name(const sl_json *node) {
    const sl_json *type = sl_json_member(node, "type");
    return sl_json_is(type, SL_JSON_STRING) ? type->text : "something without a type";
}

static bool is_type(const sl_json *node, const char *type) {
    return sl_json_text_is(sl_json_member(node, "type"), type);
}

// Absent or null counts as fallback.
static bool flag_is(const sl_json *node, const char *name, bool fallback, bool wanted) {
    const sl_json *flag = sl_json_member_set(node, name);
    return flag ? sl_json_is(flag, wanted ? SL_JSON_TRUE : SL_JSON_FALSE) : fallback == wanted;
}

// One step of normalization that is known, or the elements of a sequence.
static sl_status read_normalizer(compiler *c, const sl_json *node) {
    const char *known = "null, NFC, Prepend and Replace as SentencePiece has them";
    if (sl_json_is(node, SL_JSON_NULL))
        return SL_OK;
    if (is_type(node, "Sequence")) {
        const sl_json *list = sl_json_member(node, "normalizers");
        if (!sl_json_is(list, SL_JSON_ARRAY))
            return unsupported(c, "normalizer", "a sequence of nothing", known);
        for (const sl_json *part = list->child; part; part = part->next) {
            sl_status st = is_type(part, "Sequence")
                               ? unsupported(c, "normalizer", "a sequence of sequences", known)
                               : read_normalizer(c, part);
            if (st)
                return st;
        }
        return SL_OK;
    }
    if (is_type(node, "NFC")) {
        c->flags |= SL__TOK_NFC;
    } else if (is_type(node, "Prepend") &&
               sl_json_text_is(sl_json_member(node, "prepend"), SPACE_MARK)) {
        c->flags |= SL__TOK_SPACE_RAW;
    } else if (is_type(node, "Replace") &&
               sl_json_text_is(sl_json_member(sl_json_member(node, "pattern"), "String"), " ") &&
               sl_json_text_is(sl_json_member(node, "content"), SPACE_MARK)) {
        c->flags |= SL__TOK_CHARS;
    } else {
        return unsupported(c, "normalizer", type_name(node), known);
    }
    return SL_OK;
}

static sl_status add_pattern(compiler *c, const char *regex, size_t len) {
    sl_status st = sl_pretok_add(&c->pretok, regex, len, c->err);
    if (st)
        return sl_error_context(c->err, st, "tokenizer.json");
    sl_buf_add(&c->patterns, regex, len);
    sl_buf_add_char(&c->patterns, '\0');
    return c->patterns.failed ? no_memory(c) : SL_OK;
}

static sl_status read_split(compiler *c, const sl_json *node) {
    const sl_json *pattern = sl_json_member(node, "pattern"),
                  *regex = sl_json_member(pattern, "Regex");
    // No space is left to be found where all of them became marks.
    if (c->flags & SL__TOK_CHARS && sl_json_text_is(sl_json_member(pattern, "String"), " ") &&
        !sl_json_text_is(sl_json_member(node, "behavior"), "Removed"))
        return SL_OK;
    if (!sl_json_text_is(sl_json_member(node, "behavior"), "Isolated"))
        return unsupported(c, "Split", "of another behavior", "Isolated");
    // (What invert turns around, matches and gaps, are pieces alike.)
    if (!sl_json_is(regex, SL_JSON_STRING))
        return unsupported(c, "Split pattern", "no Regex", "Regex");
    return add_pattern(c, regex->text, regex->text_len);
}

static sl_status read_metaspace(compiler *c, const sl_json *node) {
    const sl_json *scheme = sl_json_member_set(node, "prepend_scheme");
    if (!sl_json_text_is(sl_json_member(node, "replacement"), SPACE_MARK))
        return unsupported(c, "Metaspace replacement", "another character", SPACE_MARK);
    if (scheme ? sl_json_text_is(scheme, "always") : flag_is(node, "add_prefix_space", true, true))
        c->flags |= SL__TOK_SPACE_PIECE;
    else if (sl_json_text_is(scheme, "first"))
        c->flags |= SL__TOK_SPACE_FIRST;
    else if (scheme && !sl_json_text_is(scheme, "never"))
        return unsupported(c, "Metaspace prepend_scheme", "another word", "always, first, never");
    if (c->flags & SL__TOK_CHARS || c->n_pre_tokenizers > 0)
        return unsupported(c, "Metaspace", "not the first to replace spaces", "the first");
    c->flags |= SL__TOK_CHARS;
    c->marks_late = true;
    c->cut_marks = flag_is(node, "split", true, true);
    return SL_OK;
}

// One step of pre-tokenization, or the elements of a sequence.
static sl_status read_pre_tokenizer(compiler *c, const sl_json *node) {
    const char *known = "Split, Digits, ByteLevel, Metaspace, and Sequences of them";
    sl_status st = SL_OK;
    if (sl_json_is(node, SL_JSON_NULL))
        return SL_OK;
    if (is_type(node, "Sequence")) {
        const sl_json *list = sl_json_member(node, "pretokenizers");
        if (!sl_json_is(list, SL_JSON_ARRAY))
            return unsupported(c, "pre_tokenizer", "a sequence of nothing", known);
        for (const sl_json *part = list->child; part && !st; part = part->next)
            st = is_type(part, "Sequence")
                     ? unsupported(c, "pre_tokenizer", "a sequence of sequences", known)
                     : read_pre_tokenizer(c, part);
        return st;
    }
    if (c->byte_level)
        return unsupported(c, "pre_tokenizer", "something after ByteLevel", "ByteLevel at the end");
    if (is_type(node, "Split")) {
        st = read_split(c, node);
    } else if (is_type(node, "Digits")) {
        st = flag_is(node, "individual_digits", false, true) ? add_pattern(c, "\\p{N}", 5)
                                                             : add_pattern(c, "\\p{N}+", 6);
    } else if (is_type(node, "Metaspace")) {
        st = read_metaspace(c, node);
    } else if (is_type(node, "ByteLevel")) {
        c->byte_level = true;
        if (flag_is(node, "add_prefix_space", true, true)) {
            if (c->n_pre_tokenizers > 0)
                return unsupported(c, "ByteLevel add_prefix_space", "true after another step",
                                   "true where ByteLevel is alone");
            c->flags |= SL__TOK_SPACE_PIECE;
        }
        if (flag_is(node, "use_regex", true, true))
            st = add_pattern(c, SL_PRETOK_GPT2, strlen(SL_PRETOK_GPT2));
    } else {
        st = unsupported(c, "pre_tokenizer", type_name(node), known);
    }
    c->n_pre_tokenizers++;
    return st;
}

// TemplateProcessing for a single text: the ids before and after it.
static sl_status read_template(compiler *c, const sl_json *node) {
    const sl_json *single = sl_json_member(node, "single"),
                  *tokens = sl_json_member(node, "special_tokens");
    uint32_t after = 0, n_texts = 0;
    if (!sl_json_is(single, SL_JSON_ARRAY) || c->n_around[0] + c->n_around[1] > 0)
        return unsupported(c, "post_processor", "several templates, or one without a list", "one");
    for (const sl_json *part = single->child; part; part = part->next) {
        const sl_json *token = sl_json_member(part, "SpecialToken"),
                      *sequence = sl_json_member(part, "Sequence");
        if (sl_json_text_is(sl_json_member(sequence, "id"), "A")) {
            n_texts++;
            after = 1;
            continue;
        }
        const sl_json *name = sl_json_member(token, "id"), *ids = NULL;
        if (sl_json_is(name, SL_JSON_STRING))
            ids = sl_json_member(sl_json_member(tokens, name->text), "ids");
        if (!ids || !sl_json_is(ids, SL_JSON_ARRAY))
            return unsupported(c, "post_processor", "a template with an unknown part",
                               "tokens of special_tokens, and the text A");
        for (const sl_json *id = ids->child; id; id = id->next) {
            uint64_t value;
            if (c->n_around[after] == SL__TOK_AROUND_MAX || !sl_json_uint64(id, &value) ||
                value >= SL_TOK_IDS_MAX)
                return unsupported(c, "post_processor", "a template of too many ids", "8");
            c->around[after][c->n_around[after]++] = (uint32_t)value;
        }
    }
    if (n_texts != 1)
        return unsupported(c, "post_processor", "a template without a single text", "one text");
    return SL_OK;
}

static sl_status read_post_processor(compiler *c, const sl_json *node) {
    const char *known = "null, ByteLevel, TemplateProcessing, and Sequences of them";
    if (sl_json_is(node, SL_JSON_NULL) || is_type(node, "ByteLevel"))
        return SL_OK;
    if (is_type(node, "TemplateProcessing"))
        return read_template(c, node);
    const sl_json *list = sl_json_member(node, "processors");
    if (!is_type(node, "Sequence") || !sl_json_is(list, SL_JSON_ARRAY))
        return unsupported(c, "post_processor", type_name(node), known);
    for (const sl_json *part = list->child; part; part = part->next) {
        sl_status st = is_type(part, "Sequence")
                           ? unsupported(c, "post_processor", "a sequence of sequences", known)
                           : read_post_processor(c, part);
        if (st)
            return st;
    }
    return SL_OK;
}

// Replace (mark to space), ByteFallback, Fuse, and perhaps Strip of one space at the start.
static bool is_char_decoder(const sl_json *node, bool *strips) {
    const sl_json *list = sl_json_member(node, "decoders");
    uint64_t start, stop;
    if (!is_type(node, "Sequence") || !sl_json_is(list, SL_JSON_ARRAY) ||
        (list->n_children != 3 && list->n_children != 4))
        return false;
    const sl_json *replace = list->child, *fallback = replace->next, *fuse = fallback->next,
                  *strip = fuse->next;
    *strips = strip != NULL;
    return is_type(replace, "Replace") &&
           sl_json_text_is(sl_json_member(sl_json_member(replace, "pattern"), "String"),
                           SPACE_MARK) &&
           sl_json_text_is(sl_json_member(replace, "content"), " ") &&
           is_type(fallback, "ByteFallback") && is_type(fuse, "Fuse") &&
           (!strip ||
            (is_type(strip, "Strip") && sl_json_text_is(sl_json_member(strip, "content"), " ") &&
             sl_json_uint64(sl_json_member(strip, "start"), &start) && start == 1 &&
             sl_json_uint64(sl_json_member(strip, "stop"), &stop) && stop == 0));
}

static sl_status read_decoder(compiler *c, const sl_json *node) {
    bool strips;
    if (is_type(node, "ByteLevel")) {
        c->byte_decoder = true;
        return SL_OK;
    }
    if (is_char_decoder(node, &strips)) {
        c->char_decoder = true;
        c->flags |= strips ? SL__TOK_STRIP : 0u;
        return SL_OK;
    }
    return unsupported(
        c, "decoder",
        sl_json_is(node, SL_JSON_NULL) ? "null"
        : is_type(node, "Sequence")    ? "another Sequence"
                                       : type_name(node),
        "ByteLevel, or the Sequence of Replace, ByteFallback, Fuse and perhaps Strip");
}

// The parts make one of the two kinds of tokenizer.
static sl_status check_kind(const compiler *c) {
    bool chars = c->flags & SL__TOK_CHARS;
    if (chars
            ? c->byte_level || c->byte_decoder || !c->byte_fallback || c->pretok.n_steps > 0
            : !c->byte_level || c->char_decoder || c->byte_fallback || c->flags & SL__TOK_SPACE_RAW)
        return unsupported(c, "the tokenizer", "a mixture of kinds",
                           "ByteLevel as pre_tokenizer and decoder without byte_fallback, or marks "
                           "for spaces with it and without Split");
    return SL_OK;
}

/* ---- added tokens --------------------------------------------------------------------------- */

typedef struct added_options {
    bool special, normalized, lstrip, rstrip, single_word;
} added_options;

static sl_status read_flag(compiler *c, const sl_json *node, const char *name, bool fallback,
                           bool *out) {
    const sl_json *flag = sl_json_member_set(node, name);
    *out = flag ? flag->type == SL_JSON_TRUE : fallback;
    if (flag && flag->type != SL_JSON_TRUE && flag->type != SL_JSON_FALSE)
        return sl_fail(c->err, SL_ERR_CORRUPT, "an added token's '%s' is neither true nor false",
                       name);
    return SL_OK;
}

// What an added token looks like in normalized text, into c->texts.
static sl_status keep_normalized(compiler *c, const char *text, size_t len, uint32_t *at,
                                 uint32_t *out_len) {
    // NFC has at most three times the bytes of its source.
    sl_uni_marked segment[2 * SL_TOK_TOKEN_BYTES_MAX], scratch[2 * SL_TOK_TOKEN_BYTES_MAX];
    uint8_t out[1 + 3 * SL_TOK_TOKEN_BYTES_MAX] = {' '};
    size_t n, before = c->flags & SL__TOK_SPACE_RAW ? 1 : 0;
    sl_normalizer z = {.at = (const uint8_t *)text,
                       .end = (const uint8_t *)text + len,
                       .segment = segment,
                       .scratch = scratch,
                       .segment_cap = SL_COUNT(segment),
                       .nfc = c->flags & SL__TOK_NFC,
                       .spaces = c->flags & SL__TOK_CHARS};
    sl_status st = sl_normalizer_fill(&z, out + before, sizeof(out) - before, &n, c->err);
    n += before;
    if (!st && n > SL_TOK_TOKEN_BYTES_MAX)
        st = sl_fail(c->err, SL_ERR_UNSUPPORTED, "a normalized added token has %zu bytes", n);
    *out_len = (uint32_t)n;
    return st ? st : keep_text(c, (const char *)out, n, at);
}

static sl_status add_token(compiler *c, uint64_t id, const char *content, size_t len,
                           added_options o) {
    sl_status st = reach_id(c, id);
    if (st)
        return st;
    if (len == 0 || len > SL_TOK_TOKEN_BYTES_MAX)
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "added token %llu has %zu bytes; supported: 1 to %d", (unsigned long long)id,
                       len, SL_TOK_TOKEN_BYTES_MAX);
    entry *e = &c->entries[id];
    if (e->state & ENTRY_ADDED)
        return sl_fail(c->err, SL_ERR_CORRUPT, "two added tokens have the id %llu",
                       (unsigned long long)id);
    if ((st = keep_text(c, content, len, &e->at)))
        return st;
    e->len = (uint32_t)len;
    e->state = (uint8_t)(ENTRY_ADDED | (o.special ? ENTRY_SPECIAL : 0));
    if (c->n_added == c->added_cap) {
        uint32_t cap = c->added_cap * 2 + 64;
        added *grown = sl_mem_realloc(c->added, cap * sizeof(*grown));
        if (!grown)
            return no_memory(c);
        c->added = grown;
        c->added_cap = cap;
    }
    added *a = &c->added[c->n_added++];
    *a = (added){.id = (uint32_t)id,
                 .flags = (o.lstrip ? SL__TOK_LSTRIP : 0u) | (o.rstrip ? SL__TOK_RSTRIP : 0u) |
                          (o.single_word ? SL__TOK_SINGLE_WORD : 0u),
                 .normalized = o.normalized,
                 .pattern = e->at,
                 .pattern_len = (uint32_t)len};
    return SL_OK;
}

static sl_status read_added_token(compiler *c, const sl_json *node, const uint64_t *known_id) {
    const sl_json *content = sl_json_member(node, "content");
    uint64_t id;
    if (known_id)
        id = *known_id;
    else if (!sl_json_uint64(sl_json_member(node, "id"), &id))
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: an added token has no id");
    if (!sl_json_is(content, SL_JSON_STRING))
        return sl_fail(c->err, SL_ERR_CORRUPT, "added token %llu has no content",
                       (unsigned long long)id);
    added_options o;
    sl_status st;
    if ((st = read_flag(c, node, "special", false, &o.special)) ||
        (st = read_flag(c, node, "normalized", !o.special, &o.normalized)) ||
        (st = read_flag(c, node, "lstrip", false, &o.lstrip)) ||
        (st = read_flag(c, node, "rstrip", false, &o.rstrip)) ||
        (st = read_flag(c, node, "single_word", false, &o.single_word)))
        return st;
    // tokenizer_config.json repeats the added tokens of tokenizer.json; only the rest is new.
    if (known_id && id < c->n_vocab && (c->entries[id].state & ENTRY_ADDED)) {
        const entry *e = &c->entries[id];
        if (e->len == content->text_len &&
            memcmp(c->texts.data + e->at, content->text, e->len) == 0)
            return SL_OK;
        return sl_fail(
            c->err, SL_ERR_CORRUPT,
            "token %llu is '%.*s' in tokenizer.json and '%.60s' in tokenizer_config.json",
            (unsigned long long)id, (int)SL_MIN(e->len, 60u), c->texts.data + e->at, content->text);
    }
    return add_token(c, id, content->text, content->text_len, o);
}

static sl_status read_added_tokens(compiler *c, sl_json_reader r, sl_arena *arena) {
    sl_json_event event = sl_json_next(&r, c->err);
    if (event == SL_JSON_EV_NULL)
        return SL_OK;
    if (event != SL_JSON_EV_BEGIN_ARRAY)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: added_tokens is no list");
    for (;;) {
        // A look ahead tells the end of the list from another token.
        sl_json_reader ahead = r;
        if (sl_json_next(&ahead, c->err) == SL_JSON_EV_END_ARRAY)
            return SL_OK;
        const char *start = r.at;
        sl_status st = sl_json_skip(&r, false, c->err);
        if (st)
            return st;
        while (*start == ',' || *start == ' ' || *start == '\t' || *start == '\n' || *start == '\r')
            start++;
        size_t mark = sl_arena_mark(arena);
        sl_json *node;
        if ((st = sl_json_parse(start, (size_t)(r.at - start), arena, &node, c->err)) ||
            (st = read_added_token(c, node, NULL)))
            return st;
        sl_arena_reset(arena, mark);
    }
}

/* ---- vocabulary and merges ------------------------------------------------------------------ */

static sl_status read_vocab(compiler *c, sl_json_reader r) {
    if (sl_json_next(&r, c->err) != SL_JSON_EV_BEGIN_OBJECT)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: model.vocab is no object");
    sl_json_event event;
    while ((event = sl_json_next(&r, c->err)) == SL_JSON_EV_KEY) {
        size_t len;
        uint64_t id;
        sl_status st = decode(c, &r, &len);
        if (st)
            return st;
        event = sl_json_next(&r, c->err);
        if (event == SL_JSON_EV_ERROR)
            break;
        if (event != SL_JSON_EV_NUMBER || !parse_id(r.text, r.len, &id))
            return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: the id of '%.*s' is no number",
                           (int)SL_MIN(len, 60u), c->scratch);
        if ((st = reach_id(c, id)))
            return st;
        entry *e = &c->entries[id];
        if (e->state & ENTRY_STATE)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer.json: two vocabulary entries have the id %llu",
                           (unsigned long long)id);
        if (e->state & ENTRY_ADDED) {
            // An added token of the vocabulary keeps its content; both must mean the same bytes.
            bool same = e->len == len && memcmp(c->texts.data + e->at, c->scratch, len) == 0;
            bool bytes = spell(c, c->scratch, &len);
            if (!same ||
                (bytes && (e->len != len || memcmp(c->texts.data + e->at, c->scratch, len) != 0)))
                return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                               "tokenizer.json: added token %llu, '%.*s', has another spelling in "
                               "the vocabulary; supported: the same one",
                               (unsigned long long)id, (int)SL_MIN(e->len, 60u),
                               c->texts.data + e->at);
            e->state |= bytes ? ENTRY_BYTES : ENTRY_TEXT;
            continue;
        }
        int byte = c->flags & SL__TOK_CHARS ? byte_of_name(c->scratch, len) : -1;
        if (byte >= 0) {
            c->byte_id[byte] = (uint32_t)id;
            c->scratch[0] = (char)byte;
            len = 1;
        }
        e->state = byte < 0 && spell(c, c->scratch, &len) ? ENTRY_BYTES : ENTRY_TEXT;
        if (len == 0 || len > SL_TOK_TOKEN_BYTES_MAX)
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "tokenizer.json: token %llu has %zu bytes; supported: 1 to %d",
                           (unsigned long long)id, len, SL_TOK_TOKEN_BYTES_MAX);
        e->len = (uint32_t)len;
        if ((st = keep_text(c, c->scratch, len, &e->at)))
            return st;
    }
    return event == SL_JSON_EV_ERROR ? c->err->status : SL_OK;
}

// As sl__tok_lookup(), before there is a blob. Returns the id, or SL_TOK_IDS_MAX.
static uint32_t find_bytes(const compiler *c, const void *bytes, size_t len, uint32_t *slot) {
    uint64_t hash = sl__tok_hash(bytes, len);
    uint32_t i = sl__tok_home(hash, c->n_slots);
    for (;; i = i + 1 == c->n_slots ? 0 : i + 1) {
        *slot = i;
        if (c->slot[i] == SL__TOK_NO_SLOT)
            return SL_TOK_IDS_MAX;
        uint32_t id = c->slot[i] & SL__TOK_ID_MASK;
        if (c->entries[id].len == len && memcmp(c->texts.data + c->entries[id].at, bytes, len) == 0)
            return id;
    }
}

// The table of bytes. Special tokens stay out of it, so that plain text cannot become one.
static sl_status build_slots(compiler *c) {
    uint32_t n = 0, slot;
    for (uint32_t id = 0; id < c->n_vocab; id++)
        n += (c->entries[id].state & ENTRY_STATE) == ENTRY_BYTES;
    c->n_slots = n + n / 3 + 2;
    c->slot = sl_mem_alloc(c->n_slots * sizeof(*c->slot));
    if (!c->slot)
        return no_memory(c);
    memset(c->slot, 0xff, c->n_slots * sizeof(*c->slot));
    for (uint32_t id = 0; id < c->n_vocab; id++) {
        const entry *e = &c->entries[id];
        const char *bytes = c->texts.data + e->at;
        if ((e->state & ENTRY_STATE) != ENTRY_BYTES || (e->state & ENTRY_SPECIAL))
            continue;
        uint32_t other = find_bytes(c, bytes, e->len, &slot);
        if (other != SL_TOK_IDS_MAX)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer.json: tokens %u and %u stand for the same bytes", other, id);
        c->slot[slot] = id | sl__tok_tag(sl__tok_hash((const uint8_t *)bytes, e->len))
                                 << SL__TOK_TAG_SHIFT;
    }
    for (uint32_t i = 0; i < c->n_added; i++) {
        // Spelled like an entry of the vocabulary, an added token has to be that entry.
        char content[SL_TOK_TOKEN_BYTES_MAX];
        size_t len = c->added[i].pattern_len;
        memcpy(content, c->texts.data + c->added[i].pattern, len);
        uint32_t id = spell(c, content, &len) ? find_bytes(c, content, len, &slot) : SL_TOK_IDS_MAX;
        if (id != SL_TOK_IDS_MAX && id != c->added[i].id)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer.json: added token %u is entry %u of the vocabulary",
                           c->added[i].id, id);
    }
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        if (!(c->flags & SL__TOK_CHARS))
            c->byte_id[b] = find_bytes(c, &byte, 1, &slot);
        if (c->byte_id[b] == SL_TOK_IDS_MAX)
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "tokenizer.json: the vocabulary has no entry for byte %d; supported: "
                           "vocabularies that have all 256",
                           b);
    }
    return SL_OK;
}

static sl_status add_merge(compiler *c, char *left, size_t left_len, char *right,
                           size_t right_len) {
    char joined[SL_TOK_TOKEN_BYTES_MAX];
    uint32_t slot, a = SL_TOK_IDS_MAX, b = SL_TOK_IDS_MAX, result = SL_TOK_IDS_MAX;
    size_t a_len = left_len, b_len = right_len;
    if (spell(c, left, &a_len) && spell(c, right, &b_len) && a_len > 0 && b_len > 0 &&
        a_len + b_len <= sizeof(joined)) {
        memcpy(joined, left, a_len);
        memcpy(joined + a_len, right, b_len);
        a = find_bytes(c, left, a_len, &slot);
        b = find_bytes(c, right, b_len, &slot);
        result = find_bytes(c, joined, a_len + b_len, &slot);
    }
    if (a == SL_TOK_IDS_MAX || b == SL_TOK_IDS_MAX || result == SL_TOK_IDS_MAX)
        return sl_fail(c->err, SL_ERR_CORRUPT,
                       "tokenizer.json: merge %u names tokens that the vocabulary does not have",
                       c->n_merges);
    if (c->n_merges == c->merges_cap) {
        if (c->n_merges >= SL_TOK_IDS_MAX)
            return sl_fail(c->err, SL_ERR_UNSUPPORTED, "tokenizer.json: more than %u merges",
                           SL_TOK_IDS_MAX);
        uint32_t cap = SL_MIN(c->merges_cap + c->merges_cap / 2 + 4096, SL_TOK_IDS_MAX);
        uint64_t *merges = sl_mem_realloc(c->merges, cap * sizeof(*merges));
        if (!merges)
            return no_memory(c);
        c->merges = merges;
        uint32_t *results = sl_mem_realloc(c->results, cap * sizeof(*results));
        if (!results)
            return no_memory(c);
        c->results = results;
        c->merges_cap = cap;
    }
    c->merges[c->n_merges] = sl__tok_pair_key(a, b);
    c->results[c->n_merges++] = result;
    return SL_OK;
}

// A merge is "a b" or ["a", "b"].
static sl_status read_merges(compiler *c, sl_json_reader r) {
    sl_json_event event = sl_json_next(&r, c->err);
    sl_status st;
    if (event != SL_JSON_EV_BEGIN_ARRAY)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: model.merges is no list");
    for (;;) {
        size_t len = 0, left_len = 0;
        event = sl_json_next(&r, c->err);
        if (event == SL_JSON_EV_END_ARRAY)
            return SL_OK;
        if (event == SL_JSON_EV_STRING) {
            if ((st = decode(c, &r, &len)))
                return st;
            while (left_len < len && c->scratch[left_len] != ' ')
                left_len++;
            if (left_len == len)
                break;
            st = add_merge(c, c->scratch, left_len, c->scratch + left_len + 1, len - left_len - 1);
        } else {
            char left[4 * SL_TOK_TOKEN_BYTES_MAX];
            if (event != SL_JSON_EV_BEGIN_ARRAY || sl_json_next(&r, c->err) != SL_JSON_EV_STRING)
                break;
            if ((st = decode(c, &r, &left_len)))
                return st;
            if (left_len > sizeof(left))
                break;
            memcpy(left, c->scratch, left_len);
            if (sl_json_next(&r, c->err) != SL_JSON_EV_STRING)
                break;
            if ((st = decode(c, &r, &len)))
                return st;
            if (sl_json_next(&r, c->err) != SL_JSON_EV_END_ARRAY)
                break;
            st = add_merge(c, left, left_len, c->scratch, len);
        }
        if (st)
            return st;
    }
    return sl_fail(c->err, SL_ERR_CORRUPT,
                   "tokenizer.json: merge %u is neither \"a b\" nor [\"a\", \"b\"]", c->n_merges);
}

/* Text between added tokens is one piece in tokenizers of this kind, however long. Where no merge puts a
 * space behind something else, none crosses the place before a space that follows something else, and
 * the text can be cut there: the tokens are the same. */
static sl_status cut_at_spaces(compiler *c) {
    if (c->cut_marks)
        return add_pattern(c, " [^ ]*|[^ ]+", 12);
    for (uint32_t i = 0; i < c->n_merges; i++) {
        const entry *e = &c->entries[c->results[i]];
        const char *text = c->texts.data + e->at;
        for (uint32_t k = 1; k < e->len; k++)
            if (text[k] == ' ' && text[k - 1] != ' ')
                return SL_OK;
    }
    return add_pattern(c, " +[^ ]*|[^ ]+", 13);
}

/* ---- the file ------------------------------------------------------------------------------- */

static sl_status read_model(compiler *c, sl_json_reader *r, sl_arena *arena) {
    sl_json_reader vocab = {0}, merges = {0};
    sl_json_event event = sl_json_next(r, c->err);
    if (event != SL_JSON_EV_BEGIN_OBJECT)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: model is no object");
    while ((event = sl_json_next(r, c->err)) == SL_JSON_EV_KEY) {
        sl_status st;
        sl_json *value;
        if (sl_json_reader_is(r, "vocab") || sl_json_reader_is(r, "merges")) {
            *(sl_json_reader_is(r, "vocab") ? &vocab : &merges) = *r;
            if ((st = sl_json_skip(r, false, c->err)))
                return st;
            continue;
        }
        char name[40];
        int name_len = (int)SL_MIN(r->len, sizeof(name) - 1);
        memcpy(name, r->text, (size_t)name_len);
        name[name_len] = '\0';
        sl_arena_reset(arena, 0);
        if ((st = read_setting(c, r, name, arena, &value)))
            return st;
        bool off = sl_json_is(value, SL_JSON_NULL) || sl_json_is(value, SL_JSON_FALSE);
        double number;
        if (strcmp(name, "type") == 0) {
            if (!sl_json_text_is(value, "BPE"))
                return unsupported(c, "model type",
                                   sl_json_is(value, SL_JSON_STRING) ? value->text : "no text",
                                   "BPE");
        } else if (strcmp(name, "ignore_merges") == 0) {
            if (!off)
                c->flags |= SL__TOK_IGNORE_MERGES;
        } else if (strcmp(name, "byte_fallback") == 0) {
            c->byte_fallback = !off;
        } else if (strcmp(name, "dropout") == 0) {
            if (!off && !(sl_json_double(value, &number) && number == 0))
                return unsupported(c, "dropout", "on", "null");
        } else if (strcmp(name, "continuing_subword_prefix") == 0 ||
                   strcmp(name, "end_of_word_suffix") == 0) {
            if (!off && !sl_json_text_is(value, ""))
                return unsupported(c, name, "set", "null");
        } else if (strcmp(name, "unk_token") != 0 && strcmp(name, "fuse_unk") != 0) {
            // (With all 256 bytes in the vocabulary nothing is ever unknown, so nothing is fused.)
            return unsupported(c, "a key of model", name, "those of BPE");
        }
    }
    if (event == SL_JSON_EV_ERROR)
        return c->err->status;
    if (!vocab.start || !merges.start)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: model has no %s",
                       vocab.start ? "merges" : "vocab");
    sl_status st;
    if ((st = check_kind(c)) || (st = read_vocab(c, vocab)) || (st = build_slots(c)) ||
        (st = read_merges(c, merges)))
        return st;
    return c->flags & SL__TOK_CHARS ? cut_at_spaces(c) : SL_OK;
}

// What in tokenizer_config.json would change the ids.
static sl_status read_config(compiler *c, const char *text, size_t len, sl_arena *arena) {
    static const char *const add_names[] = {"add_bos_token", "add_eos_token"};
    static const char *const token_names[] = {"bos_token", "eos_token"};
    sl_json_reader r;
    sl_status st;
    sl_json_reader_init(&r, text, len);
    sl_json_event event = sl_json_next(&r, c->err);
    if (event == SL_JSON_EV_ERROR)
        return c->err->status;
    if (event != SL_JSON_EV_BEGIN_OBJECT)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer_config.json is no JSON object");
    while ((event = sl_json_next(&r, c->err)) == SL_JSON_EV_KEY) {
        if (sl_json_reader_is(&r, "added_tokens_decoder")) {
            event = sl_json_next(&r, c->err);
            if (event == SL_JSON_EV_NULL)
                continue;
            if (event != SL_JSON_EV_BEGIN_OBJECT)
                return sl_fail(c->err, SL_ERR_CORRUPT,
                               "tokenizer_config.json: added_tokens_decoder is no object");
            while ((event = sl_json_next(&r, c->err)) == SL_JSON_EV_KEY) {
                uint64_t id;
                sl_json *value;
                if (!parse_id(r.text, r.len, &id))
                    return sl_fail(c->err, SL_ERR_CORRUPT,
                                   "tokenizer_config.json: '%.*s' is no token id",
                                   (int)SL_MIN(r.len, 40u), r.text);
                sl_arena_reset(arena, 0);
                if ((st = read_setting(c, &r, "an added token", arena, &value)) ||
                    (st = read_added_token(c, value, &id)))
                    return st;
            }
            if (event == SL_JSON_EV_ERROR)
                break;
            continue;
        }
        bool prefix = sl_json_reader_is(&r, "add_prefix_space"),
             split = sl_json_reader_is(&r, "split_special_tokens");
        size_t add = 0, token = 0;
        while (add < 2 && !sl_json_reader_is(&r, add_names[add]))
            add++;
        while (token < 2 && !sl_json_reader_is(&r, token_names[token]))
            token++;
        if (token < 2) {
            sl_json *value;
            sl_arena_reset(arena, 0);
            if ((st = read_setting(c, &r, token_names[token], arena, &value)))
                return st;
            const sl_json *content =
                sl_json_is(value, SL_JSON_OBJECT) ? sl_json_member(value, "content") : value;
            around_config *config = &c->config[token];
            if (sl_json_is(content, SL_JSON_STRING) && content->text_len <= sizeof(config->token)) {
                config->len = content->text_len;
                memcpy(config->token, content->text, content->text_len);
            }
            continue;
        }
        if (!prefix && !split && add == 2) {
            if ((st = sl_json_skip(&r, false, c->err)))
                return st;
            continue;
        }
        event = sl_json_next(&r, c->err);
        if (event == SL_JSON_EV_ERROR)
            break;
        bool on = event == SL_JSON_EV_TRUE;
        if (!on && event != SL_JSON_EV_FALSE && event != SL_JSON_EV_NULL)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer_config.json: a flag is neither true nor false");
        if (add < 2)
            c->config[add].add = on ? AROUND_ON : AROUND_OFF;
        else if (on && (split || !(c->flags & SPACE_FLAGS)))
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "tokenizer_config.json: %s is on; supported: false",
                           split ? "split_special_tokens" : "add_prefix_space");
    }
    return event == SL_JSON_EV_ERROR ? c->err->status : SL_OK;
}

// The template, where tokenizer_config.json says what it is; and its ids, which have to exist.
static sl_status finish_around(compiler *c) {
    bool said = c->config[0].add != AROUND_UNSAID || c->config[1].add != AROUND_UNSAID;
    for (uint32_t side = 0; side < 2; side++) {
        const around_config *config = &c->config[side];
        if (said)
            c->n_around[side] = 0;
        for (uint32_t i = 0; i < c->n_added && config->add == AROUND_ON; i++) {
            const entry *e = &c->entries[c->added[i].id];
            if (e->len == config->len &&
                memcmp(c->texts.data + e->at, config->token, e->len) == 0) {
                c->around[side][0] = c->added[i].id;
                c->n_around[side] = 1;
            }
        }
        if (config->add == AROUND_ON && c->n_around[side] == 0)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer_config.json: %s is on, and '%.*s' is no added token",
                           side == 0 ? "add_bos_token" : "add_eos_token",
                           (int)SL_MIN(config->len, (size_t)60), config->token);
        for (uint32_t i = 0; i < c->n_around[side]; i++)
            if (c->around[side][i] >= c->n_vocab ||
                c->entries[c->around[side][i]].state == ENTRY_NONE)
                return sl_fail(c->err, SL_ERR_CORRUPT,
                               "tokenizer.json: the post_processor adds token %u, which does not "
                               "exist",
                               c->around[side][i]);
    }
    return SL_OK;
}

static sl_status read_tokenizer(compiler *c, const char *text, size_t len, const char *config,
                                size_t config_len, sl_arena *arena) {
    static const struct {
        const char *name;
        sl_status (*read)(compiler *c, const sl_json *value);
        bool required;
    } settings[] = {
        {"normalizer", read_normalizer, false},
        {"pre_tokenizer", read_pre_tokenizer, false},
        {"post_processor", read_post_processor, false},
        {"decoder", read_decoder, true},
    };
    sl_json_reader r, model = {0}, added_list = {0};
    bool seen[SL_COUNT(settings)] = {false};
    sl_status st;
    sl_json_reader_init(&r, text, len);
    sl_json_event event = sl_json_next(&r, c->err);
    if (event == SL_JSON_EV_ERROR)
        return c->err->status;
    if (event != SL_JSON_EV_BEGIN_OBJECT)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json is no JSON object");
    while ((event = sl_json_next(&r, c->err)) == SL_JSON_EV_KEY) {
        if (sl_json_reader_is(&r, "model"))
            model = r;
        else if (sl_json_reader_is(&r, "added_tokens"))
            added_list = r;
        size_t i = 0;
        while (i < SL_COUNT(settings) && !sl_json_reader_is(&r, settings[i].name))
            i++;
        if (i == SL_COUNT(settings)) {
            if ((st = sl_json_skip(&r, false, c->err)))
                return st;
            continue;
        }
        sl_json *value;
        sl_arena_reset(arena, 0);
        if ((st = read_setting(c, &r, settings[i].name, arena, &value)) ||
            (st = settings[i].read(c, value)))
            return st;
        seen[i] = true;
    }
    if (event == SL_JSON_EV_ERROR || sl_json_next(&r, c->err) == SL_JSON_EV_ERROR)
        return c->err->status;
    for (size_t i = 0; i < SL_COUNT(settings); i++)
        if (settings[i].required && !seen[i])
            return sl_fail(c->err, SL_ERR_UNSUPPORTED, "tokenizer.json: no %s", settings[i].name);
    if (!model.start)
        return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: no model");
    sl_arena_reset(arena, 0);
    if ((added_list.start && (st = read_added_tokens(c, added_list, arena))) ||
        (config && (st = read_config(c, config, config_len, arena))))
        return st;
    st = read_model(c, &model, arena);
    return st ? st : finish_around(c);
}

/* ---- the blob ------------------------------------------------------------------------------- */

static int compare_added(const void *x, const void *y) {
    const added *a = x, *b = y;
    if (a->normalized != b->normalized)
        return a->normalized ? 1 : -1;
    int order = memcmp(a->bytes, b->bytes, SL_MIN(a->pattern_len, b->pattern_len));
    return order ? order : (a->pattern_len > b->pattern_len) - (a->pattern_len < b->pattern_len);
}

// Final patterns, in the order of the blob.
static sl_status sort_added(compiler *c) {
    sl_status st;
    for (uint32_t i = 0; i < c->n_added; i++) {
        added *a = &c->added[i];
        entry *e = &c->entries[a->id];
        char content[SL_TOK_TOKEN_BYTES_MAX];
        memcpy(content, c->texts.data + e->at, e->len); // keep_normalized() moves texts
        // Where spaces and marks are one, text does not tell any more which of them was there.
        bool has_mark = contains_mark(content, e->len);
        bool takes_space = a->flags & (SL__TOK_LSTRIP | SL__TOK_RSTRIP) ||
                           (c->marks_late && (has_mark || memchr(content, ' ', e->len) != NULL));
        if (c->flags & SL__TOK_CHARS && (has_mark || (a->normalized && takes_space)))
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "tokenizer.json: added token %u has a mark for a space, or takes spaces "
                           "of normalized text; supported: neither",
                           a->id);
        if (!a->normalized || !(c->flags & (SL__TOK_NFC | SL__TOK_CHARS)))
            continue;
        if ((st = keep_normalized(c, content, e->len, &a->pattern, &a->pattern_len)))
            return st;
        // It is written as it was matched, too.
        e->at = a->pattern;
        e->len = a->pattern_len;
    }
    for (uint32_t i = 0; i < c->n_added; i++)
        c->added[i].bytes = c->texts.data + c->added[i].pattern;
    if (c->n_added > 0)
        qsort(c->added, c->n_added, sizeof(*c->added), compare_added);
    for (uint32_t i = 1; i < c->n_added; i++)
        if (compare_added(&c->added[i - 1], &c->added[i]) == 0)
            return sl_fail(c->err, SL_ERR_CORRUPT,
                           "tokenizer.json: added tokens %u and %u have the same content",
                           c->added[i - 1].id, c->added[i].id);
    return SL_OK;
}

// Ranks and results rise together in most vocabularies; then the result is all that is kept.
static bool results_rise(const compiler *c) {
    for (uint32_t i = 1; i < c->n_merges; i++)
        if (c->results[i] <= c->results[i - 1])
            return false;
    return true;
}

static sl_status fill_pairs(const compiler *c, uint64_t *pair, uint32_t n_pairs, bool by_rank) {
    memset(pair, 0xff, n_pairs * sizeof(*pair));
    for (uint32_t i = 0; i < c->n_merges; i++) {
        uint64_t key = c->merges[i];
        uint32_t at = sl__tok_home(sl__tok_pair_hash(key), n_pairs);
        while (pair[at] != SL__TOK_NO_PAIR) {
            if ((pair[at] & SL__TOK_PAIR_MASK) == key)
                return sl_fail(c->err, SL_ERR_CORRUPT, "tokenizer.json: merge %u is there twice",
                               i);
            at = at + 1 == n_pairs ? 0 : at + 1;
        }
        pair[at] = key | (uint64_t)(by_rank ? i : c->results[i]) << SL__TOK_VALUE_SHIFT;
    }
    return SL_OK;
}

static void fill_tokens(const compiler *c, const sl__tok_header *h, uint8_t *blob,
                        const uint64_t at[SL__TOK_SECTIONS + 1]) {
    uint8_t *bytes = blob + at[SL__TOK_BYTES], *special = blob + at[SL__TOK_SPECIAL];
    uint32_t *base = (uint32_t *)(blob + at[SL__TOK_BASE]);
    uint16_t *offset = (uint16_t *)(blob + at[SL__TOK_OFFSET]);
    uint32_t *byte_id = (uint32_t *)(blob + at[SL__TOK_BYTE_ID]);
    sl__tok_added *out = (sl__tok_added *)(blob + at[SL__TOK_ADDED]);
    uint32_t used = 0;
    for (uint32_t id = 0;; id++) {
        if (id % 64 == 0)
            base[id / 64] = used;
        offset[id] = (uint16_t)(used - base[id / 64]);
        if (id == c->n_vocab)
            break;
        const entry *e = &c->entries[id];
        memcpy(bytes + used, c->texts.data + e->at, e->len);
        used += e->len;
        if (e->state & ENTRY_SPECIAL)
            special[id / 8] |= (uint8_t)(1u << id % 8);
    }
    for (uint32_t i = 0; i < c->n_added; i++) {
        const added *a = &c->added[i];
        uint32_t start = base[a->id / 64] + offset[a->id];
        if (a->pattern != c->entries[a->id].at) {
            start = used;
            memcpy(bytes + used, a->bytes, a->pattern_len);
            used += a->pattern_len;
        }
        out[i] = (sl__tok_added){a->id, a->flags, start, a->pattern_len};
    }
    memcpy(byte_id, c->byte_id, sizeof(c->byte_id));
    memcpy(blob + at[SL__TOK_SLOT], c->slot, h->n_slots * sizeof(*c->slot));
    uint32_t *around = (uint32_t *)(blob + at[SL__TOK_AROUND]);
    memcpy(around, c->around[0], c->n_around[0] * sizeof(*around));
    memcpy(around + c->n_around[0], c->around[1], c->n_around[1] * sizeof(*around));
    if (c->patterns.len > 0)
        memcpy(blob + at[SL__TOK_PATTERN], c->patterns.data, c->patterns.len);
}

// Mark the tokens that merging gives back whole, with the very code that will merge.
static sl_status mark_whole(const compiler *c, uint8_t *blob, size_t size, uint32_t *slot) {
    uint32_t symbol[SL_TOK_TOKEN_BYTES_MAX], rank[2 * SL_TOK_TOKEN_BYTES_MAX];
    sl__tok_merger m = {symbol, rank};
    sl_tok tok;
    sl_status st = sl_tok_open(blob, size, &tok, c->err);
    if (st)
        return st;
    for (uint32_t i = 0; i < tok.n_slots; i++) {
        uint32_t id = slot[i] & SL__TOK_ID_MASK;
        const char *bytes;
        size_t n;
        if (slot[i] != SL__TOK_NO_SLOT && sl_tok_token_bytes(&tok, id, &bytes, &n) &&
            sl__tok_merge(&tok, &m, (const uint8_t *)bytes, n) == 1)
            slot[i] |= SL__TOK_WHOLE;
    }
    return SL_OK;
}

static sl_status write_blob(compiler *c, sl_buf *out) {
    sl_status st = sort_added(c);
    if (st)
        return st;
    bool by_rank = !results_rise(c);
    uint64_t n_bytes = 0, at[SL__TOK_SECTIONS + 1];
    uint32_t n_raw = 0;
    for (uint32_t id = 0; id < c->n_vocab; id++)
        n_bytes += c->entries[id].len;
    for (uint32_t i = 0; i < c->n_added; i++) {
        n_raw += !c->added[i].normalized;
        if (c->added[i].pattern != c->entries[c->added[i].id].at)
            n_bytes += c->added[i].pattern_len;
    }
    sl__tok_header h = {.magic = {'S', 'L', 'T', 'O', 'K', 'E', 'N', 'S'},
                        .version = SL__TOK_VERSION,
                        .flags = c->flags,
                        .n_pattern_bytes = (uint32_t)c->patterns.len,
                        .n_vocab = c->n_vocab,
                        .n_added = c->n_added,
                        .n_raw = n_raw,
                        .n_slots = c->n_slots,
                        .n_pairs = c->n_merges + c->n_merges / 3 + 2,
                        .n_results = by_rank ? c->n_merges : 0,
                        .n_bytes = (uint32_t)n_bytes,
                        .n_before = c->n_around[0],
                        .n_after = c->n_around[1]};
    sl__tok_layout(&h, at);
    h.blob_bytes = at[SL__TOK_SECTIONS];
    uint8_t *blob = sl_mem_calloc(1, h.blob_bytes);
    if (!blob)
        return no_memory(c);
    memcpy(blob, &h, sizeof(h));
    fill_tokens(c, &h, blob, at);
    if (by_rank)
        memcpy(blob + at[SL__TOK_RESULT], c->results, c->n_merges * sizeof(*c->results));
    if ((st = fill_pairs(c, (uint64_t *)(blob + at[SL__TOK_PAIR]), h.n_pairs, by_rank)) ||
        (st = mark_whole(c, blob, h.blob_bytes, (uint32_t *)(blob + at[SL__TOK_SLOT]))))
        goto done;
    sl_buf_add(out, blob, h.blob_bytes);
    st = out->failed ? no_memory(c) : SL_OK;
done:
    sl_mem_free(blob);
    return st;
}

sl_status sl_tok_compile(const char *tokenizer_json, size_t len, const char *tokenizer_config_json,
                         size_t config_len, sl_buf *blob, sl_error *err) {
    sl_error unused;
    compiler c = {.err = err ? err : &unused};
    sl_arena arena;
    sl_buf_clear(blob);
    sl_buf_init(&c.texts);
    sl_buf_init(&c.patterns);
    for (int b = 0; b < 256; b++)
        c.byte_id[b] = SL_TOK_IDS_MAX;
    void *block = sl_mem_alloc(SETTING_ARENA_BYTES);
    sl_status st = block ? SL_OK : no_memory(&c);
    if (!st) {
        sl_arena_init(&arena, "tokenizer settings", block, SETTING_ARENA_BYTES);
        st = read_tokenizer(&c, tokenizer_json, len, tokenizer_config_json, config_len, &arena);
    }
    if (!st)
        st = write_blob(&c, blob);
    sl_mem_free(block);
    sl_buf_deinit(&c.texts);
    sl_buf_deinit(&c.patterns);
    sl_mem_free(c.entries);
    sl_mem_free(c.added);
    sl_mem_free(c.slot);
    sl_mem_free(c.merges);
    sl_mem_free(c.results);
    sl_mem_free(c.scratch);
    return st;
}
