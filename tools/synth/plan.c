/* From a config to the list of tensors and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan_internal.h"
#include "random.h"

#define SHARD_BYTES ((uint64_t)5 << 30)
#define CONFIG_TREE_FACTOR 64

/* ---- config text ---------------------------------------------------------------------------------- */

static bool is_dropped(const sl_json *v) {
    return v->key &&
           (strcmp(v->key, "quantization") == 0 || strcmp(v->key, "quantization_config") == 0);
}

static void add_json(sl_buf *out, const sl_json *v, uint32_t n_layers) {
    bool object = v->type == SL_JSON_OBJECT, first = true;
    uint32_t at = 0;
    switch (v->type) {
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
        if (n_layers && v->key && strcmp(v->key, "num_hidden_layers") == 0)
            sl_buf_printf(out, "%u", n_layers);
        else
            sl_buf_add(out, v->text, v->text_len);
        return;
    case SL_JSON_STRING:
        sl_buf_add_json_string(out, v->text, v->text_len);
        return;
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        break;
    }
    bool cut = n_layers && v->key && strcmp(v->key, "layer_types") == 0;
    sl_buf_add_char(out, object ? '{' : '[');
    for (const sl_json *c = v->child; c; c = c->next) { // as deep as the parser allows
        if (is_dropped(c) || (cut && at++ >= n_layers))
            continue;
        sl_buf_add_text(out, first ? "" : ", ");
        first = false;
        if (object) {
            sl_buf_add_json_string(out, c->key, c->key_len);
            sl_buf_add_text(out, ": ");
        }
        add_json(out, c, n_layers);
    }
    sl_buf_add_char(out, object ? '}' : ']');
}

static const sl_json *find_text(const sl_json *config, const char *key) {
    const sl_json *v = sl_json_member_set(sl_json_member_set(config, "text_config"), key);
    return v ? v : sl_json_member_set(config, key);
}

sl_status synth_config_cut(const sl_json *config, uint32_t n_layers, sl_buf *out, sl_error *err) {
    uint64_t has = 0;
    if (!sl_json_is(config, SL_JSON_OBJECT))
        return sl_fail(err, SL_ERR_CORRUPT, "config.json: expected an object");
    if (n_layers && sl_json_uint64(find_text(config, "num_hidden_layers"), &has) && n_layers > has)
        return sl_fail(err, SL_ERR_ARGUMENT, "%u layers, of a model that has %llu", n_layers,
                       (unsigned long long)has);
    add_json(out, config, n_layers);
    return out->failed ? sl_fail(err, SL_ERR_MEMORY, "no memory for the config") : SL_OK;
}

static void add_rule(sl_buf *out, const synth_module *m) {
    if (m->dtype == SL_DTYPE_MXFP4)
        sl_buf_printf(out, "\"%s\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\"}",
                      m->name);
    else
        sl_buf_printf(out, "\"%s\": {\"group_size\": %u, \"bits\": %u}", m->name, m->group,
                      sl_dtype_bits(m->dtype));
}

void synth_config_quantization(const synth_plan *p, sl_buf *config) {
    sl_dtype usual = SL_DTYPE_Q4;
    (void)sl_dtype_quantized(p->options.bits, &usual);
    config->len--; // the object's end
    for (unsigned copy = 0; copy < 2; copy++) {
        sl_buf_printf(config, "%s\"%s\": {\"group_size\": %u, \"bits\": %u, \"mode\": \"affine\"",
                      config->len > 1 ? ", " : "", copy ? "quantization_config" : "quantization",
                      p->options.group, p->options.bits);
        for (uint32_t i = 0; i < p->n_modules; i++) {
            const synth_module *m = &p->modules[i];
            if (!sl_dtype_is_quantized(m->dtype) ||
                (m->dtype == usual && m->group == p->options.group))
                continue;
            sl_buf_add_text(config, ", ");
            add_rule(config, m);
        }
        sl_buf_add_char(config, '}');
    }
    sl_buf_add_text(config, "}\n");
}

/* ---- modules -------------------------------------------------------------------------------------- */

/* The place in MLX's files: the first that is listed, but for one role whose second name is that of a model
 * without query latents. Files of a family that also exist as MXFP4 blocks have MXFP4 experts. */
static sl_tensor_place place_of(const sl_model *m, const sl_tensor_spec *spec, bool *mxfp4) {
    sl_tensor_place places[SL_PLACES_MAX];
    uint32_t n = sl_tensor_places(m, spec, 0, places), use = 0;
    *mxfp4 = false;
    for (uint32_t i = 0; i < n; i++)
        *mxfp4 |= places[i].suffix == SL_SUFFIX_BLOCKS;
    if (spec->role == SL_ROLE_MLA_Q && !m->mla.d_q_latent && n > 1)
        use = 1;
    return places[use];
}

static sl_status add_module(synth_plan *p, const sl_tensor_spec *spec, sl_error *err) {
    const sl_model *model = &p->model;
    bool mxfp4;
    sl_tensor_place place = place_of(model, spec, &mxfp4);
    synth_module *m = &p->modules[p->n_modules];
    const char *prefix = spec->role == SL_ROLE_HEAD ? sl_model_head_prefixes(model)[0]
                                                    : sl_model_name_prefixes(model)[0];
    memset(m, 0, sizeof(*m));
    (void)snprintf(m->name, sizeof(m->name), "%s%s", prefix, place.name);
    // Projections that are fused in the files are listed once for each of their parts.
    for (uint32_t i = p->n_modules; i-- > 0 && p->modules[i].layer == spec->layer;)
        if (strcmp(p->modules[i].name, m->name) == 0)
            return SL_OK;
    m->role = spec->role;
    m->layer = spec->layer;
    m->n_stack = place.n_stack;
    m->rows =
        place.n_stack && place.index == SL_STACK_WHOLE ? place.rows / place.n_stack : place.rows;
    m->cols = place.cols;
    if (spec->kind == SL_TENSOR_CONV) { // [channels][width][1]
        m->rows = spec->cols;
        m->cols = spec->rows;
    }
    m->n_rows = (uint64_t)SL_MAX(1u, m->n_stack) * m->rows;
    m->key = synth_key(p->options.seed, m->name);
    p->n_modules++;
    return synth_module_fill(p, spec, mxfp4, m, err);
}

static sl_status add_modules(synth_plan *p, sl_error *err) {
    uint32_t n = sl_model_tensors(&p->model);
    for (uint32_t i = 0; i < n; i++) {
        sl_tensor_spec spec;
        sl_model_tensor(&p->model, i, &spec);
        if (spec.role == SL_ROLE_HEAD && p->model.tied_head)
            continue;
        sl_status st = add_module(p, &spec, err);
        if (st)
            return st;
    }
    return SL_OK;
}

/* ---- tensors and files ---------------------------------------------------------------------------- */

static void add_tensor(synth_plan *p, uint32_t module, synth_part part) {
    const synth_module *m = &p->modules[module];
    sl_tensor_kind kind = sl_role_kind(m->role);
    synth_tensor *t = &p->tensors[p->n_tensors++];
    uint32_t bits = sl_dtype_bits(m->dtype), words = m->cols * bits / 32,
             last = part == SYNTH_CODES   ? words
                    : part == SYNTH_DENSE ? m->cols
                                          : m->cols / m->group;
    *t = (synth_tensor){.module = module, .part = part, .n_rows = m->n_rows};
    t->row_bytes = part == SYNTH_CODES   ? (uint64_t)words * 4
                   : part == SYNTH_DENSE ? (uint64_t)m->cols * (bits / 8)
                                         : (uint64_t)last * (m->dtype == SL_DTYPE_MXFP4 ? 1 : 2);
    if (m->n_stack)
        t->dims[t->n_dims++] = m->n_stack;
    if (kind != SL_TENSOR_VECTOR && kind != SL_TENSOR_EXPERT_VECTOR)
        t->dims[t->n_dims++] = m->rows;
    t->dims[t->n_dims++] = last;
    if (kind == SL_TENSOR_CONV)
        t->dims[t->n_dims++] = 1;
}

static void add_tensors(synth_plan *p) {
    for (uint32_t i = 0; i < p->n_modules; i++) {
        if (!sl_dtype_is_quantized(p->modules[i].dtype)) {
            add_tensor(p, i, SYNTH_DENSE);
            continue;
        }
        add_tensor(p, i, SYNTH_CODES);
        add_tensor(p, i, SYNTH_SCALES);
        if (sl_dtype_is_affine(p->modules[i].dtype))
            add_tensor(p, i, SYNTH_BIASES);
    }
}

static void tensor_name(const synth_plan *p, const synth_tensor *t, char *out, size_t cap) {
    const synth_module *m = &p->modules[t->module];
    sl_tensor_kind kind = sl_role_kind(m->role);
    bool matrix = kind == SL_TENSOR_MATRIX || kind == SL_TENSOR_EXPERT;
    (void)snprintf(out, cap, "%s%s", m->name,
                   t->part == SYNTH_SCALES   ? ".scales"
                   : t->part == SYNTH_BIASES ? ".biases"
                   : matrix                  ? ".weight"
                                             : "");
}

static const char *type_name(const synth_plan *p, const synth_tensor *t) {
    sl_dtype dtype = p->modules[t->module].dtype;
    if (t->part == SYNTH_CODES)
        return "U32";
    if (t->part == SYNTH_DENSE)
        return dtype == SL_DTYPE_F32 ? "F32" : "BF16";
    return dtype == SL_DTYPE_MXFP4 ? "U8" : "BF16";
}

// At least one tensor a file, in the order of the list.
static void deal_shards(synth_plan *p) {
    uint64_t room = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        synth_tensor *t = &p->tensors[i];
        uint64_t bytes = t->n_rows * t->row_bytes;
        if (i == 0 || bytes > room) {
            p->shards[p->n_shards++] = (synth_shard){.first = i};
            room = SHARD_BYTES;
        }
        synth_shard *s = &p->shards[p->n_shards - 1];
        t->shard = p->n_shards - 1;
        t->at = s->bytes; // after the header, which is not known yet
        s->n++;
        s->bytes += bytes;
        room -= SL_MIN(room, bytes);
    }
}

void synth_shard_name(const synth_plan *p, uint32_t shard, char *out, size_t cap) {
    if (p->n_shards == 1)
        (void)snprintf(out, cap, "model.safetensors");
    else
        (void)snprintf(out, cap, "model-%05u-of-%05u.safetensors", shard + 1, p->n_shards);
}

static void write_header(synth_plan *p, synth_shard *s) {
    sl_buf *h = &s->header;
    sl_buf_init(h);
    sl_buf_add(h, "\0\0\0\0\0\0\0", 8);
    sl_buf_add_text(h, "{\"__metadata__\":{\"format\":\"mlx\"}");
    for (uint32_t i = s->first; i < s->first + s->n; i++) {
        const synth_tensor *t = &p->tensors[i];
        char name[256];
        tensor_name(p, t, name, sizeof(name));
        sl_buf_printf(h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", name, type_name(p, t));
        for (uint32_t d = 0; d < t->n_dims; d++)
            sl_buf_printf(h, "%s%u", d ? "," : "", t->dims[d]);
        sl_buf_printf(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->at,
                      (unsigned long long)(t->at + t->n_rows * t->row_bytes));
    }
    sl_buf_add_char(h, '}');
    while (h->len % 64)
        sl_buf_add_char(h, ' ');
    if (h->failed)
        return;
    for (unsigned i = 0; i < 8; i++)
        h->data[i] = (char)(unsigned char)((h->len - 8) >> (8 * i));
    for (uint32_t i = s->first; i < s->first + s->n; i++)
        p->tensors[i].at += h->len;
    s->bytes += h->len;
}

static sl_status write_headers(synth_plan *p, sl_error *err) {
    uint64_t data = p->bytes = 0;
    bool failed = false;
    for (uint32_t i = 0; i < p->n_shards; i++) {
        data += p->shards[i].bytes;
        write_header(p, &p->shards[i]);
        failed |= p->shards[i].header.failed;
        p->bytes += p->shards[i].bytes;
    }
    sl_buf_printf(&p->index, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
                  (unsigned long long)data);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        char name[256], file[64];
        tensor_name(p, &p->tensors[i], name, sizeof(name));
        synth_shard_name(p, p->tensors[i].shard, file, sizeof(file));
        sl_buf_printf(&p->index, "%s\"%s\": \"%s\"", i ? ", " : "", name, file);
    }
    sl_buf_add_text(&p->index, "}}\n");
    return failed || p->index.failed || p->config.failed
               ? sl_fail(err, SL_ERR_MEMORY, "no memory for the files' headers")
               : SL_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------ */

static sl_status check_options(const synth_options *o, sl_error *err) {
    sl_dtype dtype;
    const synth_gains *g = &o->gains;
    if (!sl_dtype_quantized(o->bits, &dtype))
        return sl_fail(err, SL_ERR_ARGUMENT, "%u bits: expected 2, 3, 4, 5, 6 or 8", o->bits);
    if (o->group != 32 && o->group != 64 && o->group != 128)
        return sl_fail(err, SL_ERR_ARGUMENT, "a group of %u: expected 32, 64 or 128", o->group);
    if (!(g->common >= 0) || !(g->topic >= 0) || !(g->common + g->topic <= 1) ||
        !(g->change >= 0 && g->change <= 1) || g->n_topics < 1 || g->n_topics > 4096)
        return sl_fail(err, SL_ERR_ARGUMENT,
                       "gains: common and topic are shares of at most 1 together, change is one, "
                       "and there are 1 to 4096 topics");
    return SL_OK;
}

static sl_status parse(const char *text, size_t len, const char *name, sl_arena *tree,
                       sl_json **out, sl_error *err) {
    sl_status st = sl_arena_map(tree, name, len * CONFIG_TREE_FACTOR + SL_PAGE, err);
    if (st == SL_OK && (st = sl_json_parse(text, len, tree, out, err)))
        st = sl_error_context(err, st, "%s", name);
    return st;
}

static sl_status read_model(const char *config, size_t len, synth_plan *p, sl_error *err) {
    sl_arena trees[3] = {{0}};
    sl_json *whole, *cut, *generation = NULL;
    sl_status st;
    if ((st = parse(config, len, "config.json", &trees[0], &whole, err)) ||
        (st = synth_config_cut(whole, p->options.n_layers, &p->config, err)) ||
        (st = parse(p->config.data, p->config.len, "config.json", &trees[1], &cut, err)) ||
        (p->generation && (st = parse(p->generation, strlen(p->generation),
                                      "generation_config.json", &trees[2], &generation, err))))
        goto done;
    st = sl_model_from_config(cut, generation, &p->model, NULL, err);
done:
    for (unsigned i = 0; i < SL_COUNT(trees); i++)
        sl_arena_unmap(&trees[i]);
    return st;
}

sl_status synth_plan_make(const char *config, size_t len, const char *generation,
                          const synth_options *options, synth_plan *p, sl_error *err) {
    sl_status st;
    memset(p, 0, sizeof(*p));
    p->options = *options;
    p->generation = generation;
    sl_buf_init(&p->config);
    sl_buf_init(&p->index);
    if ((st = check_options(options, err)) || (st = read_model(config, len, p, err)))
        goto fail;
    uint32_t n = sl_model_tensors(&p->model);
    uint64_t bytes =
        synth_channels_bytes(&p->model, &options->gains) +
        n * (sizeof(synth_module) + 3 * (sizeof(synth_tensor) + sizeof(synth_shard))) +
        (uint64_t)(p->model.n_layers + 2) * (4 * sizeof(float) * p->model.d_model + 64) + 256;
    if ((st = sl_arena_map(&p->arena, "plan", bytes, err)) ||
        (st = synth_channels_init(&p->model, options->seed, &options->gains, &p->arena,
                                  &p->channels, err)))
        goto fail;
    p->modules = sl_arena_alloc(&p->arena, n * sizeof(*p->modules), 64);
    p->tensors = sl_arena_alloc(&p->arena, 3 * (size_t)n * sizeof(*p->tensors), 64);
    p->shards = sl_arena_alloc(&p->arena, 3 * (size_t)n * sizeof(*p->shards), 64);
    if (!p->modules || !p->tensors || !p->shards) {
        st = sl_arena_full(&p->arena, bytes, err);
        goto fail;
    }
    if ((st = add_modules(p, err)))
        goto fail;
    add_tensors(p);
    deal_shards(p);
    synth_config_quantization(p, &p->config);
    if ((st = write_headers(p, err)))
        goto fail;
    for (uint32_t i = 0; i < p->n_modules; i++) // see fill_tensor()
        p->scratch_bytes = SL_MAX(p->scratch_bytes, (uint64_t)p->modules[i].cols * 10);
    p->scratch_bytes = SL_ALIGN_UP(p->scratch_bytes, 64);
    return SL_OK;
fail:
    synth_plan_free(p);
    return st;
}

void synth_plan_free(synth_plan *p) {
    for (uint32_t i = 0; i < p->n_shards; i++)
        sl_buf_deinit(&p->shards[i].header);
    sl_buf_deinit(&p->config);
    sl_buf_deinit(&p->index);
    sl_arena_unmap(&p->arena);
    memset(p, 0, sizeof(*p));
}
