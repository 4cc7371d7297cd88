/* The text section of sluice.h: tokenizer and chat template of a store, a checkpoint or a file. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "checkpoint/texts.h"

#define TOKENIZER_MAX (256 * SL_MIB)

struct sl_tokenizer {
    sl_tok tok;
    sl_buf blob;
};

static sl_status open_store(const char *path, sl_store *store, sl_error *err) {
    return sl_store_open(path, SL_DIRECT_PREFERRED, store, err);
}

// A part of a store's text.bin into a growable buffer.
static sl_status read_part(const sl_store *store, const sl_text_part *part, const char *what,
                           sl_buf *out, sl_error *err) {
    if (!part->bytes)
        return sl_fail(err, SL_ERR_MISSING, "the model has no %s", what);
    uint64_t from = part->offset / SL_PAGE * SL_PAGE,
             span = SL_ALIGN_UP(part->offset + part->bytes, SL_PAGE) - from;
    sl_arena pages;
    sl_status st = sl_arena_map(&pages, "text", span, err);
    if (st)
        return st;
    if (!(st = sl_file_read(&store->text, pages.base, (size_t)span, from, NULL, err))) {
        sl_buf_clear(out);
        sl_buf_add(out, pages.base + (part->offset - from), (size_t)part->bytes);
        if (out->failed)
            st = sl_fail(err, SL_ERR_MEMORY, "no memory for the %s", what);
        else if (!sl_hash_equal(sl_hash(out->data, out->len), part->hash))
            st = sl_fail(err, SL_ERR_CORRUPT,
                         "%s: the %s does not have the checksum of the manifest", SL_STORE_TEXT,
                         what);
    }
    sl_arena_unmap(&pages);
    return st;
}

/* ---- tokenizer ---------------------------------------------------------------------------------- */

static sl_status compile_file(const char *path, sl_buf *blob, sl_error *err) {
    sl_buf json;
    sl_buf_init(&json);
    sl_status st = sl_file_slurp(path, TOKENIZER_MAX, &json, err);
    if (!st)
        st = sl_tok_compile(json.data, json.len, NULL, 0, blob, err);
    sl_buf_deinit(&json);
    return st;
}

static sl_status load_blob(const char *path, sl_buf *blob, sl_error *err) {
    sl_path_info info;
    sl_status st;
    if (sl_model_kind_of(path) == SL_MODEL_STORE) {
        sl_store store;
        if ((st = open_store(path, &store, err)))
            return st;
        st = read_part(&store, &store.tokenizer, "tokenizer", blob, err);
        sl_store_close(&store);
        return st;
    }
    if ((st = sl_path_stat(path, &info, err)))
        return st;
    if (info.kind == SL_PATH_FILE)
        return compile_file(path, blob, err);
    if (info.kind == SL_PATH_FOLDER)
        return sl_folder_tokenizer(path, blob, err);
    return sl_fail(err, SL_ERR_MISSING,
                   "expected a store, a checkpoint folder or a tokenizer.json");
}

sl_status sl_tokenizer_open(const char *path, sl_tokenizer **out, sl_error *err) {
    *out = NULL;
    sl_tokenizer *t = sl_mem_calloc(1, sizeof(*t));
    if (!t)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for a tokenizer");
    sl_buf_init(&t->blob);
    sl_status st = load_blob(path, &t->blob, err);
    if (!st)
        st = sl_tok_open(t->blob.data, t->blob.len, &t->tok, err);
    if (st) {
        sl_tokenizer_close(t);
        return sl_error_context(err, st, "tokenizer of '%s'", path);
    }
    *out = t;
    return SL_OK;
}

void sl_tokenizer_close(sl_tokenizer *t) {
    if (!t)
        return;
    sl_buf_deinit(&t->blob);
    sl_mem_free(t);
}

unsigned sl__api_token_flags(unsigned flags) {
    return (flags & SL_TOKENIZE_PLAIN ? SL_TOK_PLAIN : 0) |
           (flags & SL_TOKENIZE_WHOLE ? SL_TOK_TEMPLATE : 0);
}

sl_status sl_tokenizer_encode(sl_tokenizer *t, const char *text, size_t len, unsigned flags,
                              uint32_t **ids, size_t *n, sl_error *err) {
    *ids = NULL;
    *n = 0;
    // A guess that fits nearly always; a second pass takes the exact count.
    size_t cap = len / 3 + 64;
    size_t workspace_bytes = sl_tok_workspace_bytes(len);
    void *workspace = sl_mem_alloc(workspace_bytes);
    sl_status st = SL_ERR_CONTEXT;
    for (int pass = 0; st == SL_ERR_CONTEXT && pass < 2; pass++) {
        uint32_t *grown = workspace ? sl_mem_realloc(*ids, cap * sizeof(**ids)) : NULL;
        if (!grown) {
            st = sl_fail(err, SL_ERR_MEMORY, "no memory to encode %zu bytes", len);
            break;
        }
        *ids = grown;
        sl_arena arena;
        sl_arena_init(&arena, "workspace", workspace, workspace_bytes);
        st = sl_tok_encode(&t->tok, text, len, sl__api_token_flags(flags), *ids, cap, n, &arena,
                           err);
        cap = *n;
    }
    sl_mem_free(workspace);
    if (st) {
        sl_mem_free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return st;
}

uint32_t sl_tokenizer_size(const sl_tokenizer *t) {
    return t->tok.n_vocab;
}

bool sl_tokenizer_token(const sl_tokenizer *t, uint32_t id, sl_token_info *out) {
    memset(out, 0, sizeof(*out));
    out->special = sl_tok_is_special(&t->tok, id);
    return sl_tok_token_bytes(&t->tok, id, &out->bytes, &out->len);
}

sl_status sl_tokenizer_decode(sl_tokenizer *t, const uint32_t *ids, size_t n, const sl_sink *sink,
                              sl_error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *bytes;
        size_t len;
        if (!sl_tok_token_bytes(&t->tok, ids[i], &bytes, &len))
            return sl_fail(err, SL_ERR_ARGUMENT,
                           "id %zu is %u, which is no token; the largest id is %u", i, ids[i],
                           t->tok.n_vocab - 1);
        if (len && !sink->write(sink->user, bytes, len))
            return sl_fail(err, SL_ERR_CANCELED, "stopped");
    }
    return SL_OK;
}

/* ---- chat template -------------------------------------------------------------------------------- */

static sl_status load_template(const char *path, sl_buf *out, sl_error *err) {
    sl_path_info info;
    sl_status st;
    if (sl_model_kind_of(path) == SL_MODEL_STORE) {
        sl_store store;
        if ((st = open_store(path, &store, err)))
            return st;
        st = read_part(&store, &store.chat_template, "chat template", out, err);
        sl_store_close(&store);
        return st;
    }
    if ((st = sl_path_stat(path, &info, err)))
        return st;
    if (info.kind == SL_PATH_FILE)
        return sl_file_slurp(path, SL_MIB, out, err);
    if (info.kind != SL_PATH_FOLDER)
        return sl_fail(err, SL_ERR_MISSING,
                       "expected a store, a checkpoint folder or a .jinja file");
    return sl_folder_template(path, out, err);
}

static sl_status render_source(const sl_buf *source, const char *json, size_t len, sl_buf *out,
                               sl_error *err) {
    sl_arena arena;
    sl_template *tpl;
    sl_json *vars;
    sl_status st = sl_arena_map(&arena, "template", source->len * 8 + len * 64 + 16 * SL_MIB, err);
    if (st)
        return st;
    sl_template_limits limits = sl_template_limits_default(sl_unix_time());
    if (!(st = sl_template_parse(source->data, source->len, &arena, &tpl, err)) &&
        !(st = sl_json_parse(json, len, &arena, &vars, err)))
        st = sl_template_render(tpl, vars, &limits, &arena, out, err);
    sl_arena_unmap(&arena);
    return st;
}

sl_status sl_template_render_file(const char *model, const char *json, size_t len,
                                  const sl_sink *sink, sl_error *err) {
    sl_buf source, out;
    sl_buf_init(&source);
    sl_buf_init(&out);
    sl_status st = load_template(model, &source, err);
    if (st)
        st = sl_error_context(err, st, "chat template of '%s'", model);
    else if (!(st = render_source(&source, json, len, &out, err)))
        st = sl__api_send(&out, sink, err);
    sl_buf_deinit(&source);
    sl_buf_deinit(&out);
    return st;
}
