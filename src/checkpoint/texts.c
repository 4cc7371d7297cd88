/* Tokenizer and chat template of a checkpoint: compiled and checked, so that what cannot be used is an error at
 * conversion and not in a chat. */
#include "checkpoint/texts.h"

#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint_internal.h"
#include "text/template.h"
#include "text/tokenizer.h"

#define TOKENIZER_MAX ((uint64_t)128 << 20)
#define TEMPLATE_MAX ((uint64_t)1 << 20)
/* template.h: a parsed template takes 4 to 6 times its source. */
#define TEMPLATE_TREE_FACTOR 16u

// A file of the checkpoint; one that is not there leaves the buffer empty.
static sl_status slurp_optional(const char *folder, const char *name, uint64_t max, sl_buf *out,
                                sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st = sl_path_join(folder, name, path, sizeof(path), err);
    if (st == SL_OK)
        st = sl_file_slurp(path, max, out, err);
    return st == SL_ERR_MISSING ? SL_OK : st;
}

/* A template of a JSON file: a string, or a list of {"name", "template"}, of which the one named "default"
 * counts. */
static void find_template(const sl_json *config, sl_buf *out) {
    const sl_json *t = sl_json_member_set(config, "chat_template");
    if (sl_json_is(t, SL_JSON_ARRAY)) {
        const sl_json *entry = t->child;
        while (entry && !sl_json_text_is(sl_json_member(entry, "name"), "default"))
            entry = entry->next;
        t = sl_json_member(entry, "template");
    }
    if (sl_json_is(t, SL_JSON_STRING))
        sl_buf_add(out, t->text, t->text_len);
}

static sl_status parse(const sl_buf *text, const char *name, sl_arena *tree, sl_json **out,
                       sl_error *err) {
    *out = NULL;
    if (text->len == 0)
        return SL_OK;
    sl_status st = sl_arena_map(tree, name, text->len * SL_CONFIG_TREE_FACTOR + SL_PAGE, err);
    if (st == SL_OK && (st = sl_json_parse(text->data, text->len, tree, out, err)))
        st = sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "%s", name);
    return st;
}

static sl_status check_template(const sl_buf *source, sl_error *err) {
    sl_arena tree = {0};
    sl_template *parsed;
    sl_status st =
        sl_arena_map(&tree, "chat template", source->len * TEMPLATE_TREE_FACTOR + 64 * SL_KIB, err);
    if (st == SL_OK && (st = sl_template_parse(source->data, source->len, &tree, &parsed, err)))
        st = sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "chat template");
    sl_arena_unmap(&tree);
    return st;
}

/* Templates write tokens by name; the names stand for texts of tokenizer_config.json. Those that a template
 * mentions are defined in a line before it, which prints nothing, unless the caller of the template does. */
static void define_tokens(const sl_json *tokenizer_config, sl_buf *source) {
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    sl_buf line;
    sl_buf_init(&line);
    for (size_t i = 0; i < SL_COUNT(names); i++) {
        const sl_json *token = sl_json_member_set(tokenizer_config, names[i]);
        if (sl_json_is(token, SL_JSON_OBJECT))
            token = sl_json_member_set(token, "content");
        if (!sl_json_is(token, SL_JSON_STRING) || !strstr(source->data, names[i]))
            continue;
        sl_buf_printf(&line, "{%% set %s = %s | default(", names[i], names[i]);
        sl_buf_add_json_string(&line, token->text, token->text_len);
        sl_buf_add_text(&line, ") %}");
    }
    if (line.len) {
        sl_buf_add_char(&line, '\n');
        sl_buf_add(&line, source->data, source->len);
        sl_buf_clear(source);
        sl_buf_add(source, line.data, line.len);
        source->failed |= line.failed;
    }
    sl_buf_deinit(&line);
}

// chat_template.jinja, else chat_template.json, else tokenizer_config.json.
static sl_status find_source(const char *folder, const sl_json *tokenizer_config, sl_buf *out,
                             sl_error *err) {
    sl_buf text;
    sl_arena tree = {0};
    sl_json *json;
    sl_status st = slurp_optional(folder, "chat_template.jinja", TEMPLATE_MAX, out, err);
    if (st || out->len)
        return st;
    sl_buf_init(&text);
    if ((st = slurp_optional(folder, "chat_template.json", SL_CONFIG_MAX, &text, err)) == SL_OK &&
        (st = parse(&text, "chat_template.json", &tree, &json, err)) == SL_OK) {
        find_template(json, out);
        if (out->len == 0)
            find_template(tokenizer_config, out);
    }
    sl_arena_unmap(&tree);
    sl_buf_deinit(&text);
    return st;
}

static sl_status read_template(const char *folder, const sl_json *tokenizer_config, sl_buf *out,
                               sl_error *err) {
    sl_status st = find_source(folder, tokenizer_config, out, err);
    if (st || out->len == 0)
        return st;
    define_tokens(tokenizer_config, out);
    if (out->failed)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for a chat template");
    return check_template(out, err);
}

/* Some uploads lack generation_config.json; then the tokenizer's end token is the only thing that ends a
 * turn. */
static sl_status add_end_token(const sl_buf *blob, const sl_json *tokenizer_config, sl_model *model,
                               sl_buf *notes, sl_error *err) {
    const sl_json *end = sl_json_member_set(tokenizer_config, "eos_token");
    if (sl_json_is(end, SL_JSON_OBJECT))
        end = sl_json_member_set(end, "content");
    if (!sl_json_is(end, SL_JSON_STRING))
        return SL_OK;
    sl_tok tok;
    uint32_t id;
    sl_status st = sl_tok_open(blob->data, blob->len, &tok, err);
    if (st)
        return st;
    if (!sl_tok_find(&tok, end->text, end->text_len, &id) || id >= model->n_vocab) {
        sl_buf_printf(notes,
                      "tokenizer_config.json: the end token '%.80s' is not in the vocabulary\n",
                      end->text);
        return SL_OK;
    }
    for (uint32_t i = 0; i < model->n_stop_tokens; i++)
        if (model->stop_tokens[i] == id)
            return SL_OK;
    if (model->n_stop_tokens == SL_STOP_TOKENS_MAX)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "more than %u end tokens", SL_STOP_TOKENS_MAX);
    model->stop_tokens[model->n_stop_tokens++] = id;
    return SL_OK;
}

/* The peak of compiling, measured: the text, and 3.8 (248,000 tokens) to 4.0 times (128,000) the image, of which one is
 * what stays; 1.2 MiB besides. */
static uint64_t compile_bytes(uint64_t text_bytes, uint64_t image_bytes) {
    return text_bytes + image_bytes * 17 / 4 + 3 * SL_MIB / 2;
}

// *work_bytes is raised to what this took.
static sl_status compile_tokenizer(const char *folder, const sl_buf *config, sl_buf *blob,
                                   uint64_t *work_bytes, sl_error *err) {
    sl_buf text;
    sl_buf_init(&text);
    sl_status st = slurp_optional(folder, "tokenizer.json", TOKENIZER_MAX, &text, err);
    if (st == SL_OK && text.len &&
        (st = sl_tok_compile(text.data, text.len, config->len ? config->data : NULL, config->len,
                             blob, err)))
        st = sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "tokenizer.json");
    *work_bytes = text.len ? compile_bytes(text.len, blob->len) : 0;
    sl_buf_deinit(&text);
    return st;
}

sl_status sl_checkpoint_texts_read(const sl_checkpoint *ck, sl_store *store,
                                   sl_checkpoint_texts *texts, sl_error *err) {
    sl_buf config_text;
    sl_arena tree = {0};
    sl_json *config;
    sl_status st;
    sl_buf_init(&texts->tokenizer);
    sl_buf_init(&texts->chat_template);
    sl_buf_init(&config_text);
    if ((st =
             slurp_optional(ck->path, "tokenizer_config.json", SL_CONFIG_MAX, &config_text, err)) ||
        (st = parse(&config_text, "tokenizer_config.json", &tree, &config, err)) ||
        (st = compile_tokenizer(ck->path, &config_text, &texts->tokenizer, &texts->work_bytes,
                                err)) ||
        (st = read_template(ck->path, config, &texts->chat_template, err)))
        goto done;
    texts->work_bytes +=
        (config_text.len + texts->chat_template.len) * (TEMPLATE_TREE_FACTOR + 2) + 64 * SL_KIB;
    if (texts->tokenizer.len == 0)
        sl_buf_add_text(
            ck->notes,
            "no tokenizer.json: the store can compute logits, and neither read nor write text\n");
    else
        st = add_end_token(&texts->tokenizer, config, &store->model, ck->notes, err);
    if (texts->chat_template.len == 0)
        sl_buf_add_text(ck->notes, "no chat template: prompts can be given raw only\n");
    if (st == SL_OK && store->model.n_stop_tokens == 0)
        sl_buf_add_text(ck->notes,
                        "no end token in any config: an answer ends by its length only\n");
done:
    sl_arena_unmap(&tree);
    sl_buf_deinit(&config_text);
    return st;
}

sl_status sl_folder_tokenizer(const char *folder, sl_buf *blob, sl_error *err) {
    sl_buf config;
    uint64_t work_bytes;
    sl_buf_init(&config);
    sl_status st = slurp_optional(folder, "tokenizer_config.json", SL_CONFIG_MAX, &config, err);
    if (st == SL_OK)
        st = compile_tokenizer(folder, &config, blob, &work_bytes, err);
    if (st == SL_OK && blob->len == 0)
        st = sl_fail(err, SL_ERR_MISSING, "there is no tokenizer.json");
    sl_buf_deinit(&config);
    return st;
}

sl_status sl_folder_template(const char *folder, sl_buf *out, sl_error *err) {
    sl_buf text;
    sl_arena tree = {0};
    sl_json *config;
    sl_buf_init(&text);
    sl_status st = slurp_optional(folder, "tokenizer_config.json", SL_CONFIG_MAX, &text, err);
    if (st == SL_OK && (st = parse(&text, "tokenizer_config.json", &tree, &config, err)) == SL_OK)
        st = read_template(folder, config, out, err);
    if (st == SL_OK && out->len == 0)
        st = sl_fail(
            err, SL_ERR_MISSING,
            "there is no chat_template.jinja, and no chat_template in tokenizer_config.json");
    sl_arena_unmap(&tree);
    sl_buf_deinit(&text);
    return st;
}

void sl_checkpoint_texts_deinit(sl_checkpoint_texts *texts) {
    sl_buf_deinit(&texts->tokenizer);
    sl_buf_deinit(&texts->chat_template);
}
