/* The forms that a set of schemas allows a value to have: one for each type, or one for the values that
 * enum and const list. */
#include "constrain/compile_internal.h"

#define ITEMS_MAX 1024u

static sl_status add_form(sl__compiler *c, const sl__alt *form) {
    sl__alt *place = sl__vector_add(c, &c->alts, 1, sizeof(*place));
    if (!place)
        return SL_ERR_MEMORY;
    *place = *form;
    return SL_OK;
}

sl_status sl__add_dfa_form(sl__compiler *c, const sl__dfa *dfa, uint32_t depth) {
    if (!dfa->next)
        return SL_OK; // nothing fits: no form
    sl__dfa *place = sl__vector_add(c, &c->dfas, 1, sizeof(*place));
    if (!place)
        return SL_ERR_MEMORY;
    *place = *dfa;
    const sl__alt form = {.kind = SL__ALT_DFA, .min_depth = (uint8_t)depth, .dfa = c->dfas.n - 1};
    return add_form(c, &form);
}

/* ---- listed values ------------------------------------------------------------------------- */

typedef struct listing {
    sl__compiler *c;
    sl__nfa nfa;
    sl__vector text; /* of one value */
    uint32_t accept, depth;
} listing;

static uint32_t nesting(const sl_json *value) { // recursion as deep as the schema
    uint32_t depth = 0;
    for (const sl_json *child = value->child; child; child = child->next)
        depth = SL_MAX(depth, nesting(child));
    return depth + (value->type == SL_JSON_ARRAY || value->type == SL_JSON_OBJECT);
}

static sl_status begin_listing(sl__compiler *c, listing *l) {
    *l = (listing){.c = c, .nfa = {.start = SL__NONE, .rest = SL__NONE}};
    return sl__nfa_add(c, &l->nfa, SL__NFA_ACCEPT, 0, 0, SL__NONE, SL__NONE, &l->accept);
}

static sl_status list_bytes(listing *l, const uint8_t *bytes, size_t len) {
    uint32_t at = l->accept;
    sl_status st = SL_OK;
    while (!st && len-- > 0)
        st = sl__nfa_add(l->c, &l->nfa, SL__NFA_BYTE, bytes[len], bytes[len], at, SL__NONE, &at);
    return st ? st
              : sl__nfa_add(l->c, &l->nfa, SL__NFA_SPLIT, 0, 0, at, l->nfa.start, &l->nfa.start);
}

static sl_status end_listing(listing *l) {
    sl__dfa dfa;
    if (l->nfa.start == SL__NONE)
        return SL_OK;
    sl_status st = sl__nfa_determinize(l->c, &l->nfa, l->c->arena, &dfa);
    return st ? st : sl__add_dfa_form(l->c, &dfa, l->depth);
}

typedef struct literal_rules { // what a listed value must satisfy besides
    const sl__set *set;
    uint32_t types;
    sl__number_rules numbers;
    sl__string_rules strings;
    sl__dfa body; /* of strings, when strings.automaton */
} literal_rules;

// Objects and arrays that are listed are not compared with keywords that look into them.
static sl_status check_inside(sl__compiler *c, const sl__set *set, const sl_json *value) {
    static const char *const of_objects[] = {"properties", "required", "additionalProperties",
                                             NULL};
    static const char *const of_arrays[] = {"items", "prefixItems", "minItems", "maxItems", NULL};
    const char *const *names = value->type == SL_JSON_OBJECT ? of_objects : of_arrays;
    for (; value->n_children && *names; names++)
        for (uint32_t i = 0; i < set->n; i++)
            if (sl_json_member(sl__set_schema(set, i), *names))
                return sl__refuse(c, sl__set_schema(set, i), *names,
                                  "not supported beside an enum or const of objects or arrays");
    return SL_OK;
}

static sl_status literal_fits(sl__compiler *c, literal_rules *r, const sl_json *value, listing *l,
                              bool *fits) {
    uint64_t cost = value->n_children ? sl__json_equal_cost(value) : 1 + value->text_len / 8;
    *fits = (sl__type_of(value) & r->types) != 0;
    for (uint32_t i = 0; *fits && i < r->set->n; i++) {
        const sl_json *schema = sl__set_schema(r->set, i);
        const sl_json *list = sl_json_member(schema, "enum"),
                      *one = sl_json_member(schema, "const");
        sl_status st = sl__spend(c, cost * (list ? list->n_children : 1));
        if (st)
            return st;
        if (one && !sl__json_equal(one, value))
            *fits = false;
        const sl_json *other = list ? list->child : NULL;
        while (other && !sl__json_equal(other, value))
            other = other->next;
        *fits &= !list || other;
    }
    if (!*fits)
        return SL_OK;
    sl__decimal d;
    if (value->type == SL_JSON_NUMBER) {
        if (!r->numbers.has_min && !r->numbers.has_max && !r->numbers.multiple_of)
            return SL_OK;
        if (!sl__decimal_parse(value->text, value->text_len, &d))
            return sl__refuse(c, c->at, "enum", "a number of too many digits to be compared");
        *fits = sl__number_fits(&r->numbers, &d);
    } else if (value->type == SL_JSON_STRING) {
        uint32_t n = sl__n_characters(value->text, value->text_len);
        *fits = n >= r->strings.min && n <= r->strings.max &&
                (!r->strings.automaton || sl__dfa_accepts(&r->body, l->text.data, l->text.n));
    } else if (value->type == SL_JSON_ARRAY || value->type == SL_JSON_OBJECT) {
        return check_inside(c, r->set, value);
    }
    return SL_OK;
}

sl_status sl__literals_add(sl__compiler *c, const sl__set *set, uint32_t types, bool *has) {
    const sl_json *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < set->n && !first; i++) {
        const sl_json *list = sl_json_member(sl__set_schema(set, i), "enum");
        const sl_json *one = sl_json_member(sl__set_schema(set, i), "const");
        first = one ? one : list ? list->child : NULL;
        n = one ? 1 : list ? list->n_children : 0;
    }
    *has = first != NULL;
    if (!first)
        return SL_OK;
    listing l;
    literal_rules r = {.set = set, .types = types};
    sl_status st = sl__number_rules_of(c, set, false, &r.numbers);
    if (!st)
        st = sl__string_rules_of(c, set, &r.strings);
    if (!st && r.strings.automaton)
        st = sl__strings_build(c, set, &r.strings, c->scratch, &r.body);
    if (!st)
        st = begin_listing(c, &l);
    for (const sl_json *value = first; !st && n-- > 0; value = value->next) {
        bool fits;
        l.text.n = 0;
        st = sl__spell_value(c, value, &l.text);
        if (!st)
            st = literal_fits(c, &r, value, &l, &fits);
        if (!st && fits) {
            l.depth = SL_MAX(l.depth, nesting(value));
            st = list_bytes(&l, l.text.data, l.text.n);
        }
    }
    return st ? st : end_listing(&l);
}

static sl_status add_words(sl__compiler *c, uint32_t types) {
    listing l;
    sl_status st = begin_listing(c, &l);
    if (!st && (types & SL__T_NULL))
        st = list_bytes(&l, (const uint8_t *)"null", 4);
    if (!st && (types & SL__T_BOOLEAN))
        st = list_bytes(&l, (const uint8_t *)"true", 4);
    if (!st && (types & SL__T_BOOLEAN))
        st = list_bytes(&l, (const uint8_t *)"false", 5);
    return st ? st : end_listing(&l);
}

/* ---- numbers and strings ------------------------------------------------------------------- */

static sl_status add_number(sl__compiler *c, const sl__set *set, bool integer) {
    sl__number_rules rules;
    sl__dfa dfa;
    sl_status st = sl__number_rules_of(c, set, integer, &rules);
    if (!st)
        st = sl__number_build(c, &rules, c->arena, &dfa);
    return st ? st : sl__add_dfa_form(c, &dfa, 0);
}

static sl_status add_string(sl__compiler *c, const sl__set *set) {
    sl__string_rules rules;
    sl__dfa dfa;
    sl_status st = sl__string_rules_of(c, set, &rules);
    if (st || rules.min > rules.max)
        return st;
    if (!rules.automaton) {
        const sl__alt form = {.kind = SL__ALT_STRING, .min = rules.min, .max = rules.max};
        return add_form(c, &form);
    }
    st = sl__strings_build(c, set, &rules, c->arena, &dfa);
    return st ? st : sl__add_dfa_form(c, &dfa, 0);
}

/* ---- arrays -------------------------------------------------------------------------------- */

static sl_status item_node(sl__compiler *c, const sl__set *set, uint32_t index, uint32_t *node) {
    sl__set items = {0};
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        const sl_json *item = sl_json_element(sl_json_member(schema, "prefixItems"), index);
        if (!item)
            item = sl_json_member(schema, "items");
        sl_status st = item ? sl__set_add(c, &items, item) : SL_OK;
        if (st)
            return st;
    }
    return sl__node_of(c, &items, node);
}

static sl_status add_array(sl__compiler *c, const sl__set *set) {
    sl__alt form = {.kind = SL__ALT_ARRAY, .max = SL__NONE};
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        const sl_json *prefix = sl_json_member(schema, "prefixItems");
        uint32_t min = 0, max = SL__NONE;
        sl_status st = sl__count_of(c, schema, "minItems", &min);
        if (!st)
            st = sl__count_of(c, schema, "maxItems", &max);
        if (!st && prefix && prefix->n_children > ITEMS_MAX)
            st = sl__refuse(c, schema, "prefixItems", "more than %u schemas", ITEMS_MAX);
        if (st)
            return st;
        form.min = SL_MAX(form.min, min);
        form.max = SL_MIN(form.max, max);
        form.n = SL_MAX(form.n, prefix ? prefix->n_children : 0);
    }
    if (form.min > form.max)
        return SL_OK;
    sl_status st = item_node(c, set, UINT32_MAX, &form.rest);
    form.first = c->refs.n;
    for (uint32_t i = 0; !st && i < form.n; i++) {
        uint32_t *ref = sl__vector_add(c, &c->refs, 1, sizeof(*ref)), node;
        if (!ref)
            return SL_ERR_MEMORY;
        st = item_node(c, set, i, &node);
        *ref = node;
    }
    return st ? st : add_form(c, &form);
}

/* ---- objects ------------------------------------------------------------------------------- */

static const sl_json *member_of(const sl_json *object, const char *key, size_t len) {
    for (const sl_json *m = object ? object->child : NULL; m; m = m->next)
        if (m->key_len == len && memcmp(m->key, key, len) == 0)
            return m;
    return NULL;
}

// The schemas for a key: what declares it, and additionalProperties of those that do not. NULL: others.
static sl_status key_node(sl__compiler *c, const sl__set *set, const char *key, size_t len,
                          uint32_t *node) {
    sl__set values = {0};
    sl_status st = SL_OK;
    for (uint32_t i = 0; !st && i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        const sl_json *properties = sl_json_member(schema, "properties");
        const sl_json *value = key ? member_of(properties, key, len) : NULL;
        st = sl__spend(c, 1 + (properties ? properties->n_children / 4 : 0));
        if (!value)
            value = sl_json_member(schema, "additionalProperties");
        if (!st && value)
            st = sl__set_add(c, &values, value);
    }
    return st ? st : sl__node_of(c, &values, node);
}

typedef struct key_name {
    const char *text;
    size_t len;
    bool required;
} key_name;

static sl_status add_name(sl__compiler *c, sl__vector *names, const char *text, size_t len,
                          bool required) {
    key_name *known = names->data;
    for (uint32_t i = 0; i < names->n; i++)
        if (known[i].len == len && memcmp(known[i].text, text, len) == 0) {
            known[i].required |= required;
            return SL_OK;
        }
    key_name *name = sl__vector_add(c, names, 1, sizeof(*name));
    if (!name)
        return SL_ERR_MEMORY;
    *name = (key_name){.text = text, .len = len, .required = required};
    return sl__spend(c, names->n / 4);
}

// All keys that are declared or required, in the order of the schema; *closed: no others.
static sl_status find_names(sl__compiler *c, const sl__set *set, sl__vector *names, bool *closed) {
    sl_status st = SL_OK;
    bool mentioned = false;
    for (uint32_t i = 0; !st && i < set->n; i++) {
        const sl_json *properties = sl_json_member(sl__set_schema(set, i), "properties");
        mentioned |= sl_json_member(sl__set_schema(set, i), "additionalProperties") != NULL;
        for (const sl_json *p = properties ? properties->child : NULL; !st && p; p = p->next)
            st = add_name(c, names, p->key, p->key_len, false);
    }
    *closed = c->limits->closed_objects && names->n > 0 && !mentioned;
    for (uint32_t i = 0; !st && i < set->n; i++) {
        const sl_json *required = sl_json_member(sl__set_schema(set, i), "required");
        for (const sl_json *r = required ? required->child : NULL; !st && r; r = r->next)
            st = add_name(c, names, r->text, r->text_len, true);
    }
    return st;
}

static sl_status add_prop(sl__compiler *c, const sl__set *set, const key_name *name) {
    sl__prop prop = {.key = c->texts.n, .hash = SL__HASH_START};
    sl_status st = sl__spell_string(c, name->text, name->len, &c->texts);
    if (!st)
        st = key_node(c, set, name->text, name->len, &prop.node);
    if (st)
        return st;
    prop.key_len = c->texts.n - prop.key;
    for (size_t i = 0; i < name->len; i++)
        prop.hash = sl__hash_byte(prop.hash, (uint8_t)name->text[i]);
    sl__prop *place = sl__vector_add(c, &c->props, 1, sizeof(*place));
    if (!place)
        return SL_ERR_MEMORY;
    *place = prop;
    return SL_OK;
}

// The hashes of the form's keys in ascending order: a key that is not declared must be none of them.
static sl_status add_hashes(sl__compiler *c, sl__alt *form) {
    const sl__prop *props = (const sl__prop *)c->props.data + form->first;
    form->hashes = c->refs.n;
    for (uint32_t i = 0; i < form->n; i++) {
        uint32_t *place = sl__vector_add(c, &c->refs, 1, sizeof(*place));
        sl_status st = place ? sl__spend(c, 1 + i / 4) : SL_ERR_MEMORY;
        if (st)
            return st;
        uint32_t k = i;
        for (place -= i; k > 0 && place[k - 1] > props[i].hash; k--)
            place[k] = place[k - 1];
        place[k] = props[i].hash;
    }
    return SL_OK;
}

static sl_status add_object(sl__compiler *c, const sl__set *set) {
    sl__alt form = {.kind = SL__ALT_OBJECT, .first = c->props.n, .rest = SL__NONE};
    sl__vector vector = {0};
    bool closed;
    sl_status st = find_names(c, set, &vector, &closed);
    const key_name *names = vector.data;
    form.n = vector.n;
    for (uint32_t i = 0; !st && i < form.n; i++)
        st = add_prop(c, set, &names[i]);
    if (!st && !closed)
        st = key_node(c, set, NULL, 0, &form.rest);
    if (!st)
        st = add_hashes(c, &form);
    if (st)
        return st;
    sl__prop *props = (sl__prop *)c->props.data + form.first;
    uint32_t next = form.n;
    for (uint32_t i = form.n; names && i-- > 0; props[i].next_required = next)
        next = names[i].required ? i : next;
    return add_form(c, &form);
}

/* ---- all ----------------------------------------------------------------------------------- */

sl_status sl__forms_add(sl__compiler *c, const sl__set *set) {
    uint32_t types;
    bool listed;
    sl_status st = sl__set_types(c, set, &types);
    if (!st)
        st = sl__literals_add(c, set, types, &listed);
    if (st || listed)
        return st;
    if (types & (SL__T_NULL | SL__T_BOOLEAN))
        st = add_words(c, types);
    if (!st && (types & (SL__T_INTEGER | SL__T_NUMBER)))
        st = add_number(c, set, !(types & SL__T_NUMBER));
    if (!st && (types & SL__T_STRING))
        st = add_string(c, set);
    if (!st && (types & SL__T_ARRAY))
        st = add_array(c, set);
    if (!st && (types & SL__T_OBJECT))
        st = add_object(c, set);
    return st;
}
