#include "helpers/demo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "helpers/scratch.h"

#define EXAMPLES_MAX 128

void demo_check(sl_status st, const sl_error *err) {
    if (st)
        fail_msg("%s: %s", sl_status_name(st), err->message);
}

const char *demo_store(void) {
    static char path[768];
    if (path[0])
        return path;
    sl_error err;
    sl_convert_options options;
    sl_convert_report report;
    sl_convert_options_init(&options);
    const char *to = test_scratch_path("demo");
    demo_check(sl_convert(SL_MODELS_DIR "/demo", to, &options, NULL, &report, &err), &err);
    (void)snprintf(path, sizeof(path), "%s", to);
    return path;
}

/* ---- examples ---------------------------------------------------------------------------------- */

static demo_example examples[EXAMPLES_MAX];
static uint32_t n_examples;

static const sl_json *member(const sl_json *node, const char *key) {
    const sl_json *m = sl_json_member(node, key);
    if (!m)
        fail_msg("examples.json: no '%s'", key);
    return m;
}

static uint32_t *ids_of(const sl_json *array, uint32_t *n) {
    uint32_t *ids = malloc((array->n_children + 1) * sizeof(*ids));
    *n = 0;
    for (const sl_json *e = array->child; e; e = e->next) {
        uint64_t id = 0;
        assert_true(sl_json_uint64(e, &id));
        ids[(*n)++] = (uint32_t)id;
    }
    return ids;
}

static void load_examples(void) {
    static char text[1 << 20];
    static uint8_t tree[8 << 20];
    sl_arena arena;
    sl_json *root;
    sl_error err;
    if (n_examples)
        return;
    FILE *f = fopen(SL_MODELS_DIR "/demo/examples.json", "rb");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof(text), f);
    (void)fclose(f);
    sl_arena_init(&arena, "examples", tree, sizeof(tree));
    demo_check(sl_json_parse(text, len, &arena, &root, &err), &err);
    for (const sl_json *e = member(root, "examples")->child; e; e = e->next) {
        assert_true(n_examples < EXAMPLES_MAX);
        demo_example *x = &examples[n_examples++];
        x->json = e;
        x->rendered = member(e, "rendered")->text;
        x->n_rendered = member(e, "rendered")->text_len;
        x->answer = member(e, "answer")->text;
        x->prompt_ids = ids_of(member(e, "prompt_ids"), &x->n_prompt);
        x->answer_ids = ids_of(member(e, "answer_ids"), &x->n_answer);
        assert_true(sl_json_double(member(e, "min_margin"), &x->min_margin));
    }
}

uint32_t demo_n_examples(void) {
    load_examples();
    return n_examples;
}

const demo_example *demo_example_at(uint32_t i) {
    load_examples();
    assert_true(i < n_examples);
    return &examples[i];
}

const demo_example *demo_example_of(uint32_t n_prompt) {
    load_examples();
    for (uint32_t i = 0; i < n_examples; i++)
        if (examples[i].n_prompt == n_prompt)
            return &examples[i];
    fail_msg("examples.json has no prompt of %u tokens", n_prompt);
    return NULL;
}

// The depth is that of our own file.
static void write_json(const sl_json *node, sl_buf *out) {
    if (node->key) {
        sl_buf_add_json_string(out, node->key, node->key_len);
        sl_buf_add_text(out, ": ");
    }
    switch (node->type) {
    case SL_JSON_NULL:
        sl_buf_add_text(out, "null");
        return;
    case SL_JSON_FALSE:
        sl_buf_add_text(out, "false");
        return;
    case SL_JSON_TRUE:
        sl_buf_add_text(out, "true");
        return;
    case SL_JSON_NUMBER:
        sl_buf_add(out, node->text, node->text_len);
        return;
    case SL_JSON_STRING:
        sl_buf_add_json_string(out, node->text, node->text_len);
        return;
    default:
        break;
    }
    bool object = node->type == SL_JSON_OBJECT;
    sl_buf_add_char(out, object ? '{' : '[');
    for (const sl_json *c = node->child; c; c = c->next) {
        write_json(c, out);
        if (c->next)
            sl_buf_add_text(out, ", ");
    }
    sl_buf_add_char(out, object ? '}' : ']');
}

const char *demo_request(const demo_example *x, size_t *len) {
    static char text[1 << 16];
    static const char *const keys[] = {"messages", "tools", "enable_thinking"};
    sl_buf b;
    sl_buf_init_fixed(&b, text, sizeof(text));
    sl_buf_add_text(&b, "{\"add_generation_prompt\": true");
    for (size_t i = 0; i < SL_COUNT(keys); i++) {
        const sl_json *m = sl_json_member(x->json, keys[i]);
        if (m) {
            sl_buf_add_text(&b, ", ");
            write_json(m, &b);
        }
    }
    sl_buf_add_char(&b, '}');
    assert_false(b.failed);
    *len = b.len;
    return text;
}

void demo_json(const sl_json *node, char *out, size_t cap) {
    sl_buf b;
    sl_buf_init_fixed(&b, out, cap);
    if (node) {
        // Without the key that it has where it stands.
        sl_json value = *node;
        value.key = NULL;
        write_json(&value, &b);
    }
    assert_false(b.failed);
}
