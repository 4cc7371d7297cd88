/* What a config.json says of quantization, and the numbers of the store that it stands for. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/quantize.h"

sl_status sl__check_options(const sl_checkpoint_options *options, uint32_t *bits, uint32_t *group,
                            sl_error *err) {
    sl_dtype dtype;
    *bits = options->bits ? options->bits : 4;
    *group = options->group ? options->group : 64;
    if (!sl_dtype_quantized(*bits, &dtype))
        return sl_fail(err, SL_ERR_ARGUMENT, "%u bits: expected 2, 3, 4, 5, 6 or 8", *bits);
    if (*group != 32 && *group != 64 && *group != 128)
        return sl_fail(err, SL_ERR_ARGUMENT, "a group of %u: expected 32, 64 or 128", *group);
    return SL_OK;
}

sl_matrix_shape sl__quantized_shape(const sl_tensor_spec *spec, sl_dtype dtype, uint32_t bits,
                                    uint32_t group) {
    sl_matrix_shape s = {.dtype = dtype, .rows = spec->rows, .cols = spec->cols};
    // Routers decide between close scores: MLX keeps them at 8 bits, or dense, whatever was asked.
    bool eight = spec->precision == SL_PRECISION_EIGHT_BITS;
    bits = eight ? 8 : bits;
    group = eight ? 64 : group;
    if (spec->precision != SL_PRECISION_DENSE && spec->cols % group == 0 &&
        sl_dtype_quantized(bits, &s.dtype)) {
        s.group = group;
        s.scale_dtype = dtype;
    }
    return s;
}

sl_status sl__parse_text(const sl_buf *text, const char *name, sl_arena *tree, sl_json **out,
                         sl_error *err) {
    sl_status st = sl_arena_map(tree, name, text->len * SL_CONFIG_TREE_FACTOR + SL_PAGE, err);
    if (st == SL_OK &&
        (st = sl_json_parse(text->data ? text->data : "", text->len, tree, out, err)))
        st = sl_error_context(err, st == SL_ERR_SYNTAX ? SL_ERR_CORRUPT : st, "%s", name);
    return st;
}

/* ---- the quantization section --------------------------------------------------------------------- */

// A section of MLX, or a module's part of it. Numbers that are not there stay; without a mode it is affine.
static sl_status read_mlx(const sl_json *section, const char *name, sl_quant_rule *out,
                          sl_error *err) {
    const sl_json *mode = sl_json_member_set(section, "mode");
    const struct {
        const char *key;
        uint32_t *out;
    } numbers[] = {{"bits", &out->bits}, {"group_size", &out->group}};
    out->method = SL_QUANT_AFFINE;
    if (mode && sl_json_text_is(mode, "mxfp4")) {
        *out = (sl_quant_rule){SL_QUANT_MXFP4, 4, SL_MXFP4_GROUP};
    } else if (mode && !sl_json_text_is(mode, "affine")) {
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: quantization mode '%.40s' of %.120s, supported are affine and "
                       "mxfp4",
                       mode->text ? mode->text : "?", name);
    }
    for (size_t i = 0; i < SL_COUNT(numbers); i++) {
        uint64_t v;
        const sl_json *n = sl_json_member_set(section, numbers[i].key);
        if (n && (!sl_json_uint64(n, &v) || v == 0 || v > 1024))
            return sl_fail(err, SL_ERR_CORRUPT,
                           "config.json: quantization of %.120s: '%s' is no sensible number", name,
                           numbers[i].key);
        if (n)
            *numbers[i].out = (uint32_t)v;
    }
    if (out->method == SL_QUANT_MXFP4 && (out->bits != 4 || out->group != SL_MXFP4_GROUP))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: quantization of %.120s: mxfp4 of %u bits in groups of %u, "
                       "expected 4 and %u",
                       name, out->bits, out->group, SL_MXFP4_GROUP);
    return SL_OK;
}

// A section of Hugging Face, which names its method.
static sl_status read_method(const sl_json *section, const sl_json *method, sl_quant_rule *out,
                             sl_error *err) {
    if (sl_json_text_is(method, "mxfp4")) {
        *out = (sl_quant_rule){SL_QUANT_MXFP4_EXPERTS, 4, SL_MXFP4_GROUP};
        return SL_OK;
    }
    if (!sl_json_text_is(method, "fp8"))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: weights quantized with '%.40s', supported are mxfp4, fp8 and "
                       "the affine quantization of MLX",
                       method->text ? method->text : "?");
    const sl_json *tile = sl_json_member_set(section, "weight_block_size"),
                  *format = sl_json_member_set(section, "fmt");
    uint64_t rows = 0, cols = 0;
    if (!sl_json_uint64(sl_json_element(tile, 0), &rows) ||
        !sl_json_uint64(sl_json_element(tile, 1), &cols) || rows != SL_F8_TILE ||
        cols != SL_F8_TILE || (format && !sl_json_text_is(format, "e4m3")))
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "config.json: fp8 weights of another kind than e4m3 with a "
                       "weight_block_size of [%u, %u]",
                       SL_F8_TILE, SL_F8_TILE);
    *out = (sl_quant_rule){.method = SL_QUANT_F8};
    return SL_OK;
}

sl_status sl__quant_rule(const sl_json *config, const char *path, bool *found, sl_quant_rule *out,
                         sl_error *err) {
    const sl_json *q = sl_json_member_set(config, "quantization");
    if (!q)
        q = sl_json_member_set(config, "quantization_config");
    *found = q != NULL;
    *out = (sl_quant_rule){.method = SL_QUANT_NONE};
    if (!q)
        return SL_OK;
    const sl_json *method = sl_json_member_set(q, "quant_method");
    if (method)
        return read_method(q, method, out, err);
    const sl_json *own = path ? sl_json_member_set(q, path) : NULL;
    sl_status st = read_mlx(q, "the model", out, err);
    if (st || !own)
        return st;
    if (sl_json_is(own, SL_JSON_FALSE)) {
        out->method = SL_QUANT_NONE;
        return SL_OK;
    }
    return read_mlx(own, path, out, err);
}

/* ---- numbers without files ------------------------------------------------------------------------- */

typedef struct config_shapes {
    const sl_model *model;
    const sl_json *config;
    bool asked;
    uint32_t bits, group;
} config_shapes;

// The name of a module in MLX's conversions, which is what a section for modules speaks of.
static void module_path(const sl_model *m, const sl_tensor_spec *spec, char out[SL_NAME_BYTES]) {
    sl_tensor_place places[SL_PLACES_MAX];
    uint32_t n = sl_tensor_places(m, spec, 0, places), best = 0;
    while (best < n && !places[best].mlx)
        best++;
    const char *prefix =
        spec->role == SL_ROLE_HEAD ? sl_model_head_prefixes(m)[0] : sl_model_name_prefixes(m)[0];
    (void)snprintf(out, SL_NAME_BYTES, "%.60s%.95s", prefix, places[best < n ? best : 0].name);
}

static sl_status shape_in_config(void *user, const sl_tensor_spec *spec, sl_matrix_shape *out,
                                 sl_error *err) {
    const config_shapes *c = user;
    char path[SL_NAME_BYTES];
    bool found, expert = spec->kind == SL_TENSOR_EXPERT;
    sl_quant_rule rule;
    *out = (sl_matrix_shape){.dtype = SL_DTYPE_F32, .rows = spec->rows, .cols = spec->cols};
    if (!expert && spec->kind != SL_TENSOR_MATRIX)
        return SL_OK;
    module_path(c->model, spec, path);
    sl_status st = sl__quant_rule(c->config, path, &found, &rule, err);
    if (st)
        return st;
    const bool dense_experts = rule.method == SL_QUANT_MXFP4_EXPERTS && !expert;
    if (!found || rule.method == SL_QUANT_F8 || (dense_experts && c->asked)) {
        *out = sl__quantized_shape(spec, SL_DTYPE_BF16, c->bits, c->group);
        return SL_OK;
    }
    out->dtype = SL_DTYPE_BF16;
    if (rule.method == SL_QUANT_NONE || dense_experts || spec->precision == SL_PRECISION_DENSE ||
        rule.group == 0 || spec->cols % rule.group)
        return SL_OK;
    if (rule.method != SL_QUANT_AFFINE) {
        out->dtype = SL_DTYPE_MXFP4;
        out->group = rule.group;
        out->scale_dtype = SL_DTYPE_U8;
    } else if (sl_dtype_quantized(rule.bits, &out->dtype)) {
        out->group = rule.group;
        out->scale_dtype = SL_DTYPE_BF16;
    }
    return SL_OK;
}

sl_status sl_config_describe(const char *text, size_t len, const sl_checkpoint_options *options,
                             sl_store *out, sl_error *err) {
    config_shapes c = {.asked = options->bits || options->group};
    sl_arena tree = {0};
    sl_json *config;
    sl_model model;
    const sl_buf in = {.data = (char *)(uintptr_t)text, .len = len};
    memset(out, 0, sizeof(*out));
    sl_status st = sl__check_options(options, &c.bits, &c.group, err);
    if (st || (st = sl__parse_text(&in, "config.json", &tree, &config, err)) ||
        (st = sl_model_from_config(config, NULL, &model, NULL, err)))
        goto done;
    model.tied_head = false;
    c.config = config;
    c.model = &model;
    st = sl_store_describe(&model, shape_in_config, &c, out, err);
done:
    sl_arena_unmap(&tree);
    return st;
}
