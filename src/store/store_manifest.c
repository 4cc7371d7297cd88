/* manifest.json -> numbers. Every value is checked against the descriptor of the config inside it. */
#include <math.h>
#include <string.h>

#include "store/store_internal.h"

// Whole numbers of a manifest fit in 56 bits by the limits of a descriptor.
#define NUMBER_MAX ((uint64_t)1 << 56)

/* Where in the manifest reading is: the object, and its name for messages. */
typedef struct place {
    const sl_json *node;
    const char *name;
    uint32_t index;
    sl_error *err;
} place;

static sl_status bad(const place *p, const char *key, const char *expected) {
    return sl_fail(p->err, SL_ERR_CORRUPT,
                   "manifest.json: %s %u: '%s' is missing or wrong, expected %s", p->name, p->index,
                   key, expected);
}

static sl_status read_number(const place *p, const char *key, uint64_t max, uint64_t *out) {
    if (!sl_json_uint64(sl_json_member(p->node, key), out) || *out > max)
        return bad(p, key, "a whole number in range");
    return SL_OK;
}

static sl_status read_hash(const place *p, const char *key, sl_hash128 *out) {
    const sl_json *v = sl_json_member(p->node, key);
    if (!sl_json_is(v, SL_JSON_STRING) || !sl__hash_from_text(v->text, v->text_len, out))
        return bad(p, key, "a checksum of 32 hexadecimal digits");
    return SL_OK;
}

static sl_status read_dtype(const place *p, const char *key, sl_dtype *out) {
    const sl_json *v = sl_json_member(p->node, key);
    if (!sl_json_is(v, SL_JSON_STRING) || !sl_dtype_from_name(v->text, out))
        return bad(p, key, "a type name such as q4 or f32");
    return SL_OK;
}

static sl_status read_shape(const place *p, sl_matrix_shape *out) {
    sl_status st;
    uint64_t rows, cols, group = 0;
    memset(out, 0, sizeof(*out));
    if ((st = read_dtype(p, "dtype", &out->dtype)) ||
        (st = read_number(p, "rows", UINT32_MAX, &rows)) ||
        (st = read_number(p, "cols", UINT32_MAX, &cols)))
        return st;
    if (sl_dtype_is_quantized(out->dtype) && ((st = read_number(p, "group", UINT32_MAX, &group)) ||
                                              (st = read_dtype(p, "scales", &out->scale_dtype))))
        return st;
    out->rows = (uint32_t)rows;
    out->cols = (uint32_t)cols;
    out->group = (uint32_t)group;
    return SL_OK;
}

/* What the callback of sl_store_describe() walks along. */
typedef struct walk {
    const sl_json *tensor; /* the next entry of trunk.tensors */
    uint32_t index;
    const sl_json *embed, *experts;
} walk;

static sl_status shape_of(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                          sl_error *err) {
    walk *w = user;
    if (spec->role == SL_ROLE_EMBED)
        return read_shape(&(place){w->embed, "embed", 0, err}, out);
    if (sl_kind_is_expert(spec->kind)) {
        const char *key = sl__expert_part_key(spec->role - SL_ROLE_EXPERT_GATE_PROJ);
        return read_shape(&(place){sl_json_member(w->experts, key), key, 0, err}, out);
    }
    place p = {w->tensor, "tensor", w->index, err};
    uint64_t layer;
    sl_status st = read_number(&p, "layer", UINT32_MAX, &layer);
    if (st)
        return st;
    if (!sl_json_text_is(sl_json_member(p.node, "role"), sl_role_name(spec->role)) ||
        layer != spec->layer)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "manifest.json: tensor %u is not %s of layer %u, which the config asks for there",
            w->index, sl_role_name(spec->role), spec->layer);
    w->tensor = w->tensor->next;
    w->index++;
    return read_shape(&p, out);
}

// Offsets and checksums of trunk.bin's tensors: ascending, aligned, without overlap.
static sl_status read_trunk(const sl_json *trunk, sl_store *s, sl_error *err) {
    sl_status st;
    uint64_t bytes, end = 0;
    const sl_json *tensors = sl_json_member(trunk, "tensors");
    if ((st = read_number(&(place){trunk, "trunk", 0, err}, "bytes", NUMBER_MAX, &bytes)))
        return st;
    if (tensors->n_children != s->n_tensors)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "manifest.json: %u trunk tensors, the config asks for %u",
                       tensors->n_children, s->n_tensors);
    const sl_json *node = tensors->child;
    for (uint32_t i = 0; i < s->n_tensors; i++, node = node->next) {
        sl_store_tensor *t = &s->tensors[i];
        place p = {node, "tensor", i, err};
        if ((st = read_number(&p, "offset", NUMBER_MAX, &t->offset)) ||
            (st = read_hash(&p, "xxh3", &t->hash)))
            return st;
        if (t->offset < end || t->offset % SL_MATRIX_ALIGN || t->offset + t->layout.bytes > bytes)
            return sl_fail_at(err, SL_ERR_CORRUPT, (int32_t)t->layer, -1, t->offset,
                              "manifest.json: layer %u %s at %llu (%llu bytes) overlaps the one "
                              "before, is not aligned or "
                              "leaves the trunk's %llu bytes",
                              t->layer, sl_role_name(t->role), (unsigned long long)t->offset,
                              (unsigned long long)t->layout.bytes, (unsigned long long)bytes);
        end = t->offset + t->layout.bytes;
    }
    s->model_bytes += bytes - s->trunk_bytes;
    s->trunk_bytes = bytes;
    return SL_OK;
}

static sl_status read_text_part(const sl_json *text, const char *key, uint64_t from,
                                sl_text_part *out, sl_error *err) {
    sl_status st;
    place p = {sl_json_member_set(text, key), key, 0, err};
    if (!p.node)
        return SL_OK;
    if ((st = read_number(&p, "offset", NUMBER_MAX, &out->offset)) ||
        (st = read_number(&p, "bytes", SL_STORE_TEXT_MAX, &out->bytes)) ||
        (st = read_hash(&p, "xxh3", &out->hash)))
        return st;
    if (out->bytes == 0 || out->offset < from || out->offset % SL_PAGE)
        return bad(&p, "offset",
                   "a part that is not empty, at a multiple of 4096, after the one before");
    return SL_OK;
}

static sl_status read_layouts(const sl_json *root, sl_store *s, sl_error *err) {
    sl_status st;
    uint64_t stride;
    place embed = {sl_json_member(root, "embed"), "embed", 0, err};
    place experts = {sl_json_member(root, "experts"), "experts", 0, err};
    const sl_json *text = sl_json_member(root, "text");
    if ((st = read_number(&embed, "stride", NUMBER_MAX, &stride)) ||
        (st = read_hash(&embed, "xxh3", &s->embed.hash)))
        return st;
    if (stride != s->embed.stride)
        return bad(&embed, "stride", "the length that its layout has");
    if ((st = read_number(&experts, "stride", NUMBER_MAX, &stride)) ||
        (st = read_hash(&experts, "sums_xxh3", &s->sums_hash)))
        return st;
    if (stride != s->expert.stride)
        return bad(&experts, "stride", "the length that its layout has");
    if ((st = read_text_part(text, "tokenizer", 0, &s->tokenizer, err)) ||
        (st = read_text_part(text, "chat_template", s->tokenizer.offset + s->tokenizer.bytes,
                             &s->chat_template, err)))
        return st;
    return SL_OK;
}

static sl_status read_stop_tokens(const sl_json *root, sl_model *m, sl_error *err) {
    place p = {root, "manifest", 0, err};
    const sl_json *list = sl_json_member(root, "stop_tokens");
    if (!sl_json_is(list, SL_JSON_ARRAY) || list->n_children > SL_STOP_TOKENS_MAX)
        return bad(&p, "stop_tokens", "a list of at most 16 token ids");
    m->n_stop_tokens = 0;
    for (const sl_json *c = list->child; c; c = c->next) {
        uint64_t id;
        if (!sl_json_uint64(c, &id) || id >= m->n_vocab)
            return bad(&p, "stop_tokens", "ids inside the vocabulary");
        m->stop_tokens[m->n_stop_tokens++] = (uint32_t)id;
    }
    return SL_OK;
}

sl_status sl_store_sampling_from_json(const sl_json *g, sl_store *s, sl_error *err) {
    const struct {
        const char *key;
        double min, max, *out;
    } numbers[] = {{"temperature", 0, 100, &s->temperature},
                   {"top_p", 0, 1, &s->top_p},
                   {"min_p", 0, 1, &s->min_p},
                   {"repetition_penalty", 1e-3, 100, &s->repeat_penalty}};
    for (size_t i = 0; i < SL_COUNT(numbers); i++) {
        const sl_json *v = sl_json_member_set(g, numbers[i].key);
        if (v && (!sl_json_double(v, numbers[i].out) || !(*numbers[i].out >= numbers[i].min) ||
                  *numbers[i].out > numbers[i].max))
            return sl_fail(err, SL_ERR_CORRUPT, "%s: expected a number from %g to %g",
                           numbers[i].key, numbers[i].min, numbers[i].max);
    }
    const sl_json *top_k = sl_json_member_set(g, "top_k");
    if (top_k && (!sl_json_int64(top_k, &s->top_k) || s->top_k < 0 || s->top_k > INT32_MAX))
        return sl_fail(err, SL_ERR_CORRUPT, "top_k: expected a whole number from 0 to %d",
                       INT32_MAX);
    s->do_sample = sl_json_is(sl_json_member_set(g, "do_sample"), SL_JSON_TRUE);
    return SL_OK;
}

static const char *keep_text(sl_store *s, const char *text, size_t n) {
    char *copy = sl_arena_alloc(&s->arena, n + 1, 1);
    if (copy && n)
        memcpy(copy, text, n);
    return copy ? copy : "";
}

/* The seal: a damaged manifest is told apart from one that somebody meant to write. */
static sl_status check_seal(const char *text, size_t len, sl_error *err) {
    const size_t head = sizeof(SL_STORE_SEAL_HEAD) - 1, tail = sizeof(SL_STORE_SEAL_TAIL) - 1;
    sl_hash128 want;
    const char *seal = text + len - SL_STORE_SEAL_BYTES;
    if (memcmp(seal, SL_STORE_SEAL_HEAD, head) != 0 ||
        memcmp(text + len - tail, SL_STORE_SEAL_TAIL, tail) != 0 ||
        !sl__hash_from_text(seal + head, SL_STORE_HEX, &want))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "manifest.json: the checksum at its end is missing: cut short, or edited");
    if (!sl_hash_equal(sl_hash(text, len - SL_STORE_SEAL_BYTES), want))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "manifest.json: its checksum does not match: damaged, or edited");
    return SL_OK;
}

sl_status sl__store_parse_manifest(const char *text, size_t len, const char *path, sl_arena *tree,
                                   sl_store *out, sl_error *err) {
    sl_status st;
    sl_json *root;
    sl_model model;
    uint64_t version;

    memset(out, 0, sizeof(*out));
    if (len < SL_STORE_SEAL_BYTES)
        return sl_fail(err, SL_ERR_CORRUPT, "manifest.json: %zu bytes, cut short", len);
    if ((st = sl_json_parse(text, len, tree, &root, err)))
        return sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "manifest.json");
    if (!sl_json_text_is(sl_json_member(root, "format"), SL_STORE_FORMAT))
        return sl_fail(err, SL_ERR_CORRUPT,
                       "manifest.json: 'format' is not \"" SL_STORE_FORMAT "\": not a store");
    // Before the seal, so that a later version may seal in another way.
    if (!sl_json_uint64(sl_json_member(root, "version"), &version))
        return sl_fail(err, SL_ERR_CORRUPT, "manifest.json: 'version' is missing");
    if (version != SL_STORE_VERSION)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "manifest.json: store version %llu, this program reads version %d; convert "
                       "the checkpoint again",
                       (unsigned long long)version, SL_STORE_VERSION);
    if ((st = check_seal(text, len, err)))
        return st;

    const sl_json *generation = sl_json_member_set(root, "generation_config");
    const sl_json *source = sl_json_member(root, "source");
    const sl_json *tensors = sl_json_member(sl_json_member(root, "trunk"), "tensors");
    walk w = {NULL, 0, sl_json_member(root, "embed"), sl_json_member(root, "experts")};
    if (!sl_json_is(tensors, SL_JSON_ARRAY))
        return sl_fail(err, SL_ERR_CORRUPT, "manifest.json: 'trunk' has no list 'tensors'");
    w.tensor = tensors->child;
    if ((st = sl_model_from_config(sl_json_member(root, "config"), generation, &model, NULL, err)))
        return sl_error_context(err, st, "manifest.json");
    model.tied_head = false;
    if ((st = read_stop_tokens(root, &model, err)))
        return st;

    const sl_json *name = sl_json_member(source, "name"),
                  *converter = sl_json_member(root, "converter");
    size_t name_len = name ? name->text_len : 0;
    size_t converter_len = converter ? converter->text_len : 0;
    size_t text_bytes = strlen(path) + name_len + converter_len + 3;
    if ((st = sl__store_describe(&model, shape_of, &w, text_bytes, out, err)))
        return sl_error_context(err, st, "manifest.json");
    out->path = keep_text(out, path, strlen(path));
    out->source = keep_text(out, name ? name->text : "", name_len);
    out->converter = keep_text(out, converter ? converter->text : "", converter_len);
    if ((st = read_hash(&(place){source, "source", 0, err}, "fingerprint", &out->source_hash)) ||
        (st = read_trunk(sl_json_member(root, "trunk"), out, err)) ||
        (st = read_layouts(root, out, err))) {
        sl_store_close(out);
        return st;
    }
    if ((st = sl_store_sampling_from_json(generation, out, err))) {
        sl_store_close(out);
        return sl_error_context(err, st, "manifest.json: generation_config");
    }
    return SL_OK;
}
