/* oneOf: a value must satisfy exactly one of the schemas. It is followed like anyOf, which is right
 * only where no value satisfies two of them; what shows that is looked for here, and everything else
 * is refused. */
#include "constrain/compile_internal.h"

#define LOOK_DEPTH 4

static sl_status disjoint(sl__compiler *c, const sl_json *a, const sl_json *b, unsigned depth,
                          bool *out);

typedef struct values { // of enum or const
    const sl_json *first;
    uint32_t n;
} values;

static values listed(const sl__set *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *one = sl_json_member(sl__set_schema(set, i), "const");
        const sl_json *list = sl_json_member(sl__set_schema(set, i), "enum");
        if (one || list)
            return one ? (values){one, 1} : (values){list->child, list->n_children};
    }
    return (values){NULL, 0};
}

static uint32_t types_of(values v) {
    uint32_t types = 0;
    for (const sl_json *x = v.first; v.n > 0; x = x->next, v.n--)
        types |= sl__type_of(x);
    return types;
}

static sl_status share_value(sl__compiler *c, values a, values b, bool *out) {
    sl_status st = SL_OK;
    *out = false;
    for (const sl_json *x = a.first; !st && a.n > 0; x = x->next, a.n--) {
        uint32_t n = b.n;
        st = sl__spend(c, sl__json_equal_cost(x) * n);
        for (const sl_json *y = b.first; n > 0; y = y->next, n--)
            *out |= sl__json_equal(x, y);
    }
    return st;
}

static bool is_below(const sl__number_rules *a, const sl__number_rules *b) {
    if (!a->has_max || !b->has_min)
        return false;
    int order = sl__decimal_compare(&a->max, &b->min);
    return order < 0 || (order == 0 && (a->below_max || b->above_min));
}

static bool requires(const sl__set *set, const char *name, size_t len) {
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *required = sl_json_member(sl__set_schema(set, i), "required");
        for (const sl_json *r = required ? required->child : NULL; r; r = r->next)
            if (r->text_len == len && memcmp(r->text, name, len) == 0)
                return true;
    }
    return false;
}

static const sl_json *declared(const sl_json *schema, const sl_json *name) {
    const sl_json *properties = sl_json_member(schema, "properties");
    for (const sl_json *p = properties ? properties->child : NULL; p; p = p->next)
        if (p->key_len == name->text_len && memcmp(p->key, name->text, p->key_len) == 0)
            return p;
    return NULL;
}

// A schema of the set forbids the key.
static bool forbids(const sl__set *set, const sl_json *name) {
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i), *p = declared(schema, name);
        if (!p)
            p = sl_json_member(schema, "additionalProperties");
        if (sl_json_is(p, SL_JSON_FALSE))
            return true;
    }
    return false;
}

// What looking up one key in a set costs.
static uint32_t size_of(const sl__set *set) {
    uint32_t n = set->n;
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *properties = sl_json_member(sl__set_schema(set, i), "properties");
        const sl_json *required = sl_json_member(sl__set_schema(set, i), "required");
        n += (properties ? properties->n_children : 0) + (required ? required->n_children : 0);
    }
    return n;
}

// A key that a requires and b forbids, or that both require with values that cannot agree.
static sl_status objects_disjoint(sl__compiler *c, const sl__set *a, const sl__set *b,
                                  unsigned depth, bool *out) {
    sl_status st = SL_OK;
    uint64_t cost =
        1 + (uint64_t)size_of(b) + (uint64_t)size_of(a) * b->n + (uint64_t)size_of(b) * a->n;
    for (uint32_t i = 0; !st && !*out && i < a->n; i++) {
        const sl_json *required = sl_json_member(sl__set_schema(a, i), "required");
        for (const sl_json *r = required ? required->child : NULL; !st && !*out && r; r = r->next) {
            st = sl__spend(c, cost);
            if (st)
                return st;
            *out |= forbids(b, r);
            if (!requires(b, r->text, r->text_len))
                continue;
            for (uint32_t x = 0; !st && x < a->n; x++)
                for (uint32_t y = 0; !st && !*out && y < b->n; y++) {
                    const sl_json *p = declared(sl__set_schema(a, x), r);
                    const sl_json *q = declared(sl__set_schema(b, y), r);
                    if (p && q)
                        st = disjoint(c, p, q, depth + 1, out);
                }
        }
    }
    return st;
}

static sl_status sets_disjoint(sl__compiler *c, const sl__set *a, const sl__set *b, unsigned depth,
                               bool *out) {
    uint32_t types_a, types_b;
    sl__number_rules numbers_a, numbers_b;
    values listed_a = listed(a), listed_b = listed(b);
    sl_status st = sl__set_types(c, a, &types_a);
    if (!st)
        st = sl__set_types(c, b, &types_b);
    if (st)
        return st;
    types_a &= listed_a.n ? types_of(listed_a) : SL__T_ALL;
    types_b &= listed_b.n ? types_of(listed_b) : SL__T_ALL;
    uint32_t common = types_a & types_b;
    if (!common || a->never || b->never) {
        *out = true;
        return SL_OK;
    }
    if (listed_a.n && listed_b.n) {
        bool share;
        st = share_value(c, listed_a, listed_b, &share);
        *out = !share;
        return st;
    }
    if (!(common & ~(uint32_t)(SL__T_INTEGER | SL__T_NUMBER))) {
        st = sl__number_rules_of(c, a, false, &numbers_a);
        if (!st)
            st = sl__number_rules_of(c, b, false, &numbers_b);
        *out = !st && (is_below(&numbers_a, &numbers_b) || is_below(&numbers_b, &numbers_a));
        return st;
    }
    if (common == SL__T_OBJECT) {
        st = objects_disjoint(c, a, b, depth, out);
        if (!st && !*out)
            st = objects_disjoint(c, b, a, depth, out);
    }
    return st;
}

static sl_status disjoint(sl__compiler *c, const sl_json *a, const sl_json *b, unsigned depth,
                          bool *out) {
    sl__set x = {0}, y = {0};
    *out = false;
    if (depth > LOOK_DEPTH)
        return SL_OK;
    sl_status st = sl__set_add(c, &x, a);
    if (!st)
        st = sl__set_add(c, &y, b);
    return st ? st : sets_disjoint(c, &x, &y, depth, out);
}

sl_status sl__check_one_of(sl__compiler *c, const sl_json *schema) {
    const sl_json *list = sl_json_member(schema, "oneOf");
    if (list->n_children > SL_CONSTRAINT_THREADS_MAX)
        return sl__refuse(c, schema, "oneOf", "more than %d schemas", SL_CONSTRAINT_THREADS_MAX);
    uint32_t i = 0;
    for (const sl_json *a = list->child; a; a = a->next, i++) {
        uint32_t k = i + 1;
        for (const sl_json *b = a->next; b; b = b->next, k++) {
            bool apart;
            sl_status st = disjoint(c, a, b, 0, &apart);
            if (st)
                return st;
            if (!apart)
                return sl__refuse(c, schema, "oneOf",
                                  "schemas %u and %u are not seen to exclude each other "
                                  "(by type, by listed values, by bounds, or by a required key); "
                                  "anyOf is supported for any",
                                  i, k);
        }
    }
    return SL_OK;
}
