/* Rotary frequencies: theta^(-2i/n_rot), with YaRN's blend where asked for.
 * Sources: RoFormer (Su et al. 2021); YaRN (Peng et al. 2023). */
#include <string.h>

#include "kernels/kernels.h"
#include "model/config.h"

typedef struct rope_numbers {
    double theta, fraction;
    bool yarn, truncate;
    double factor, beta_fast, beta_slow, original; /* YaRN's */
    double attention, mscale, mscale_all;          /* 0: not given */
} rope_numbers;

// floor() for numbers far below 2^31.
static double whole_below(double x) {
    double whole = (double)(int32_t)x;
    return whole > x ? whole - 1 : whole;
}

// m(s, c) of YaRN: how much longer vectors get.
static double stretch(double factor, double c) {
    return factor <= 1 ? 1 : 0.1 * c * sl_log64(factor) + 1;
}

static bool same(const sl_json *a, const sl_json *b) {
    if (a->type != b->type || a->n_children != b->n_children)
        return false;
    if (a->text && (a->text_len != b->text_len || memcmp(a->text, b->text, a->text_len) != 0))
        return false;
    const sl_json *x = a->child;
    for (const sl_json *y = b->child; x; x = x->next, y = y->next)
        if ((x->key && strcmp(x->key, y->key) != 0) || !same(x, y))
            return false;
    return true;
}

/* rope_parameters, or rope_scaling beside a flat rope_theta. A map from layer types to parameters is taken when
 * all say the same. */
static sl_status find_parameters(const sl_config *c, const sl_json **out) {
    const sl_json *p = sl__config_find(c, "rope_parameters");
    *out = p ? p : sl__config_find(c, "rope_scaling");
    if (!p)
        return SL_OK;
    const sl_json *first = NULL;
    for (const sl_json *v = p->child; v; v = v->next) {
        bool of_type = false;
        for (const sl_layer_type *t = c->family->layer_types; t->name; t++)
            of_type |= sl_json_is(v, SL_JSON_OBJECT) && sl_json_member(p, t->name) == v;
        if (!of_type)
            continue;
        if (first && !same(first, v))
            return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                           "config.json: 'rope_parameters' differ between layer types, which this "
                           "version does not compute");
        first = v;
    }
    if (first)
        *out = first;
    return SL_OK;
}

static sl_status read_numbers(const sl_config *c, const sl_model *m, rope_numbers *n) {
    const sl_json *p;
    sl_status st = find_parameters(c, &p);
    if (st)
        return st;
    const sl_json *type = sl_json_member_set(p, "rope_type");
    if (!type)
        type = sl_json_member_set(p, "type");
    n->yarn = sl_json_text_is(type, "yarn");
    // "mrope" is the older name of plain frequencies with a position per axis; text has one position.
    if (type && !n->yarn && !sl_json_text_is(type, "default") && !sl_json_text_is(type, "mrope"))
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: 'rope_type' is '%.40s', supported are default and yarn",
                       type->text ? type->text : "?");
    const sl_json *theta = sl_json_member_set(p, "rope_theta"),
                  *fraction = sl_json_member_set(p, "partial_rotary_factor");
    theta = theta ? theta : sl__config_find(c, "rope_theta");
    fraction = fraction ? fraction : sl__config_find(c, "partial_rotary_factor");
    n->theta = (double)c->family->rope_theta;
    n->fraction = (double)c->family->rotary_fraction;
    if (!theta && n->theta == 0)
        return sl_fail(c->err, SL_ERR_CORRUPT, "config.json: 'rope_theta' is missing");
    // At least 2: the logarithm of a base of 1 is 0, and YaRN divides by it.
    if ((st = sl__config_float(c, theta, "rope_theta", 2, 1e12, &n->theta)) ||
        (st = sl__config_float(c, fraction, "partial_rotary_factor", 0.001, 1, &n->fraction)))
        return st;
    if (!n->yarn)
        return SL_OK;
    n->factor = n->beta_slow = 1;
    n->beta_fast = 32;
    n->original = m->n_ctx_max;
    n->truncate = !sl_json_is(sl_json_member_set(p, "truncate"), SL_JSON_FALSE);
    const struct {
        const char *key;
        double min, max, *out;
    } yarn[] = {
        {"factor", 1, 1e6, &n->factor},
        {"beta_fast", 1e-3, 1e6, &n->beta_fast},
        {"beta_slow", 1e-3, 1e6, &n->beta_slow},
        {"mscale", 0, 1e3, &n->mscale},
        {"mscale_all_dim", 0, 1e3, &n->mscale_all},
        {"attention_factor", 0, 1e3, &n->attention},
        {"original_max_position_embeddings", 1, 1e9, &n->original},
    };
    for (size_t i = 0; i < SL_COUNT(yarn); i++)
        if ((st = sl__config_float(c, sl_json_member_set(p, yarn[i].key), yarn[i].key, yarn[i].min,
                                   yarn[i].max, yarn[i].out)))
            return st;
    return SL_OK;
}

static void fill_frequencies(const rope_numbers *n, sl_model *m) {
    const double pi = 3.14159265358979323846;
    double n_rot = m->rope.n_rot, log_theta = sl_log64(n->theta), low = 0, high = 0;
    if (n->yarn) {
        low = n_rot * sl_log64(n->original / (2 * pi * n->beta_fast)) / (2 * log_theta);
        high = n_rot * sl_log64(n->original / (2 * pi * n->beta_slow)) / (2 * log_theta);
        if (n->truncate) {
            low = whole_below(low);
            high = -whole_below(-high);
        }
        low = low < 0 ? 0 : low;
        high = high > n_rot - 1 ? n_rot - 1 : high;
        if (low == high)
            high += 0.001;
    }
    for (uint32_t i = 0; i < m->rope.n_rot / 2; i++) {
        double base = sl_exp64(-2.0 * i / n_rot * log_theta), ramp = 0;
        if (n->yarn) {
            ramp = (i - low) / (high - low);
            ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
            base = base / n->factor * ramp + base * (1 - ramp);
        }
        m->rope.inv_freq[i] = (float)base;
    }
}

sl_status sl__config_rope(const sl_config *c, sl_model *m, double *mla_scale) {
    rope_numbers n = {0};
    bool mla = sl_model_mixer_count(m, SL_MIXER_MLA) > 0;
    uint32_t d = mla ? m->mla.d_rope : m->attn.d_head;
    sl_status st = read_numbers(c, m, &n);
    if (st)
        return st;
    m->rope.n_rot = (uint32_t)((double)d * n.fraction);
    // MLA sets the part of a head that rotates apart: all of it does.
    if (m->rope.n_rot == 0 || m->rope.n_rot % 2 || m->rope.n_rot > SL_ROT_MAX ||
        (mla && m->rope.n_rot != d))
        return sl_fail(c->err, SL_ERR_UNSUPPORTED,
                       "config.json: %u rotated elements of a head (%u * %g), expected an even "
                       "number up to %u",
                       m->rope.n_rot, d, n.fraction, SL_ROT_MAX);
    m->rope.pairs = c->family->rope_pairs;
    const sl_json *interleave = sl__config_find(c, "rope_interleave");
    if (interleave && c->family->rope_pairs)
        m->rope.pairs = !sl_json_is(interleave, SL_JSON_FALSE);
    fill_frequencies(&n, m);
    m->rope.cos_sin_scale = 1;
    *mla_scale = 1;
    if (!n.yarn)
        return SL_OK;
    if (n.attention == 0 && n.mscale != 0 && n.mscale_all != 0)
        n.attention = stretch(n.factor, n.mscale) / stretch(n.factor, n.mscale_all);
    m->rope.cos_sin_scale = (float)(n.attention != 0 ? n.attention : stretch(n.factor, 1));
    if (n.mscale_all != 0)
        *mla_scale = stretch(n.factor, n.mscale_all) * stretch(n.factor, n.mscale_all);
    return SL_OK;
}
