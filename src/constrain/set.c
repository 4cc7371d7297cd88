/* Sets of schemas that apply to one value, the keywords that are known, references, and what of a set
 * is said about types, strings and numbers. */
#include "constrain/compile_internal.h"

#define CHAIN_MAX 64

/* ---- keywords ------------------------------------------------------------------------------ */

typedef enum keyword_kind { ANNOTATION, ENFORCED, DEFINITIONS } keyword_kind;

static const struct {
    const char *name;
    keyword_kind kind;
} keywords[] = {
    {"type", ENFORCED},
    {"enum", ENFORCED},
    {"const", ENFORCED},
    {"properties", ENFORCED},
    {"required", ENFORCED},
    {"additionalProperties", ENFORCED},
    {"items", ENFORCED},
    {"prefixItems", ENFORCED},
    {"minItems", ENFORCED},
    {"maxItems", ENFORCED},
    {"minLength", ENFORCED},
    {"maxLength", ENFORCED},
    {"pattern", ENFORCED},
    {"format", ENFORCED},
    {"minimum", ENFORCED},
    {"maximum", ENFORCED},
    {"exclusiveMinimum", ENFORCED},
    {"exclusiveMaximum", ENFORCED},
    {"multipleOf", ENFORCED},
    {"anyOf", ENFORCED},
    {"oneOf", ENFORCED},
    {"allOf", ENFORCED},
    {"$ref", ENFORCED},
    {"$defs", DEFINITIONS},
    {"definitions", DEFINITIONS},
    {"title", ANNOTATION},
    {"description", ANNOTATION},
    {"default", ANNOTATION},
    {"example", ANNOTATION},
    {"examples", ANNOTATION},
    {"$schema", ANNOTATION},
    {"$id", ANNOTATION},
    {"$comment", ANNOTATION},
    {"deprecated", ANNOTATION},
    {"readOnly", ANNOTATION},
    {"writeOnly", ANNOTATION},
    {"contentEncoding", ANNOTATION},
    {"contentMediaType", ANNOTATION},
};

static bool is_known(const char *name) {
    for (size_t i = 0; i < SL_COUNT(keywords); i++)
        if (strcmp(keywords[i].name, name) == 0)
            return true;
    return false;
}

// Keywords whose neutral value says nothing.
static bool is_neutral(const sl_json *member) {
    uint64_t n;
    if (strcmp(member->key, "uniqueItems") == 0)
        return member->type == SL_JSON_FALSE;
    if (strcmp(member->key, "minProperties") == 0 || strcmp(member->key, "minContains") == 0)
        return sl_json_uint64(member, &n) && n == 0;
    if (strcmp(member->key, "unevaluatedProperties") == 0 ||
        strcmp(member->key, "unevaluatedItems") == 0)
        return member->type == SL_JSON_TRUE;
    if (strcmp(member->key, "patternProperties") == 0)
        return member->type == SL_JSON_OBJECT && member->n_children == 0;
    return false;
}

static bool is_schema(const sl_json *value) {
    return value->type == SL_JSON_OBJECT || value->type == SL_JSON_TRUE ||
           value->type == SL_JSON_FALSE;
}

static sl_status check_kinds(sl__compiler *c, const sl_json *schema) {
    static const char *const lists[] = {"anyOf", "oneOf", "allOf", "prefixItems"};
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        const sl_json *list = sl_json_member(schema, lists[i]);
        if (list && (list->type != SL_JSON_ARRAY || list->n_children == 0))
            return sl__wrong(c, schema, lists[i], "expected a list of schemas, not empty");
    }
    const sl_json *items = sl_json_member(schema, "items");
    if (items && items->type == SL_JSON_ARRAY)
        return sl__refuse(c, schema, "items", "a list is prefixItems since 2020-12");
    const sl_json *properties = sl_json_member(schema, "properties");
    if (properties && properties->type != SL_JSON_OBJECT)
        return sl__wrong(c, schema, "properties", "expected an object of schemas");
    const sl_json *required = sl_json_member(schema, "required");
    if (required && required->type != SL_JSON_ARRAY)
        return sl__wrong(c, schema, "required", "expected a list of names");
    for (const sl_json *name = required ? required->child : NULL; name; name = name->next)
        if (name->type != SL_JSON_STRING)
            return sl__wrong(c, schema, "required", "expected a list of names");
    const sl_json *values = sl_json_member(schema, "enum");
    if (values && (values->type != SL_JSON_ARRAY || values->n_children == 0))
        return sl__wrong(c, schema, "enum", "expected a list of values, not empty");
    const sl_json *ref = sl_json_member(schema, "$ref");
    if (ref && ref->type != SL_JSON_STRING)
        return sl__wrong(c, schema, "$ref", "expected a text");
    const sl_json *pattern = sl_json_member(schema, "pattern");
    if (pattern && pattern->type != SL_JSON_STRING)
        return sl__wrong(c, schema, "pattern", "expected a text");
    const sl_json *format = sl_json_member(schema, "format");
    if (format && format->type != SL_JSON_STRING)
        return sl__wrong(c, schema, "format", "expected a text");
    if (format && !sl__format_pattern(format->text))
        return sl__refuse(
            c, schema, "format",
            "'%.40s' is not known; known are date, time, date-time, uuid, ipv4, email",
            format->text);
    return SL_OK;
}

static sl_status check_keywords(sl__compiler *c, const sl_json *schema) {
    for (const sl_json *member = schema->child; member; member = member->next) {
        if (member->key_len != strlen(member->key))
            return sl__refuse(c, schema, NULL, "a keyword holds a NUL");
        if (!is_known(member->key) && !is_neutral(member))
            return sl__refuse(c, schema, member->key, "this keyword is not supported");
        if (strcmp(member->key, "$id") == 0 && schema != c->root)
            return sl__refuse(c, schema, "$id", "supported at the root of a schema only");
    }
    return check_kinds(c, schema);
}

/* ---- references ---------------------------------------------------------------------------- */

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The next character of a pointer, of which %xx and ~0, ~1 are undone (RFC 6901, section 6); -1: what
 * is written there means none. */
static int pointer_character(const char **at) {
    const char *p = *at;
    int c = (unsigned char)*p++;
    if (c == '%') {
        int high = hex_digit(*p), low = high < 0 ? -1 : hex_digit(p[1]);
        c = low < 0 ? -1 : high * 16 + low;
        p += low < 0 ? 0 : 2;
    }
    if (c == '~' && (*p == '0' || *p == '1'))
        c = *p++ == '0' ? '~' : '/';
    *at = p;
    return c;
}

// One step of a JSON pointer, from *at ('/' before it) to the next '/' or the end.
static const sl_json *pointer_step(const sl_json *from, const char **at) {
    char name[256];
    size_t n = 0;
    const char *p = *at + 1;
    while (*p && *p != '/') {
        int c = pointer_character(&p);
        if (c <= 0 || n + 1 >= sizeof(name))
            return NULL;
        name[n++] = (char)c;
    }
    name[n] = '\0';
    *at = p;
    if (from->type == SL_JSON_OBJECT)
        return sl_json_member(from, name);
    if (from->type != SL_JSON_ARRAY || n == 0 || n > 6)
        return NULL;
    uint32_t index = 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] < '0' || name[i] > '9')
            return NULL;
        index = index * 10 + (uint32_t)(name[i] - '0');
    }
    return sl_json_element(from, index);
}

sl_status sl__resolve(sl__compiler *c, const sl_json *schema, const sl_json **target) {
    const sl_json *ref = sl_json_member(schema, "$ref");
    const char *p = ref->text;
    *target = c->root;
    if (ref->text_len != strlen(ref->text) || p[0] != '#' || (p[1] != '\0' && p[1] != '/'))
        return sl__refuse(c, schema, "$ref", "only '#' and JSON pointers '#/...' are supported");
    sl_status st = sl__spend(c, ref->text_len + 1);
    if (st)
        return st;
    p++;
    while (*target && *p == '/') {
        st = sl__spend(c, 1 + (*target)->n_children / 4);
        if (st)
            return st;
        *target = pointer_step(*target, &p);
        if (*target && *target != c->root &&
            sl_json_is(sl_json_member(*target, "$id"), SL_JSON_STRING))
            return sl__refuse(c, schema, "$ref", "'%.80s' leads into a schema with an $id",
                              ref->text);
    }
    if (!*target || !is_schema(*target))
        return sl__wrong(c, schema, "$ref", "'%.80s' leads to no schema", ref->text);
    return SL_OK;
}

/* ---- checking, once for each schema -------------------------------------------------------- */

typedef struct sl__seen {
    const sl_json *schema;
    bool open; /* on the way that led here */
} sl__seen;

static uint32_t hash_address(const sl_json *schema) {
    uint64_t hash = (uint64_t)(uintptr_t)schema * 0x9e3779b97f4a7c15u;
    return (uint32_t)(hash >> 32);
}

static uint32_t count_objects(const sl_json *value) { // recursion as deep as the schema
    uint32_t n = value->type == SL_JSON_OBJECT;
    for (const sl_json *child = value->child; child; child = child->next)
        n += count_objects(child);
    return n;
}

static sl_status prepare_seen(sl__compiler *c) {
    uint32_t n = 16, n_objects = count_objects(c->root);
    while (n < 2 * n_objects)
        n *= 2;
    c->seen = sl__take(c, c->scratch, n * sizeof(*c->seen), 8);
    if (!c->seen)
        return SL_ERR_MEMORY;
    memset(c->seen, 0, n * sizeof(*c->seen));
    c->n_seen = n;
    return SL_OK;
}

/* A schema that applies itself to the same value has no meaning. Keywords that apply a schema to the
 * value itself are followed here. */
static sl_status check(sl__compiler *c, const sl_json *schema, uint32_t depth) {
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    if (schema->type == SL_JSON_TRUE || schema->type == SL_JSON_FALSE)
        return SL_OK;
    if (schema->type != SL_JSON_OBJECT)
        return sl__wrong(c, schema, NULL, "a schema is an object, true or false");
    uint32_t at = hash_address(schema) & (c->n_seen - 1);
    while (c->seen[at].schema && c->seen[at].schema != schema)
        at = (at + 1) & (c->n_seen - 1);
    if (c->seen[at].schema)
        return c->seen[at].open ? sl__refuse(c, schema, NULL, "refers to itself without end")
                                : SL_OK;
    if (depth > CHAIN_MAX)
        return sl__refuse(c, schema, NULL, "more than %d references in a row", CHAIN_MAX);
    c->seen[at] = (sl__seen){.schema = schema, .open = true};
    sl_status st = sl__spend(c, schema->n_children + 1);
    if (!st)
        st = check_keywords(c, schema);
    if (!st && sl_json_member(schema, "$ref")) {
        const sl_json *target;
        st = sl__resolve(c, schema, &target);
        if (!st)
            st = check(c, target, depth + 1);
    }
    for (size_t i = 0; i < SL_COUNT(lists); i++) {
        const sl_json *list = sl_json_member(schema, lists[i]);
        for (const sl_json *s = list ? list->child : NULL; !st && s; s = s->next)
            st = check(c, s, depth + 1);
    }
    c->seen[at].open = false;
    return st;
}

sl_status sl__check_schema(sl__compiler *c, const sl_json *schema) {
    sl_status st = c->seen ? SL_OK : prepare_seen(c);
    return st ? st : check(c, schema, 0);
}

/* ---- sets ---------------------------------------------------------------------------------- */

static sl_status add(sl__compiler *c, sl__set *set, const sl_json *schema) {
    if (schema->type == SL_JSON_TRUE || (schema->type == SL_JSON_OBJECT && schema->n_children == 0))
        return SL_OK;
    if (schema->type == SL_JSON_FALSE) {
        set->never = true;
        return SL_OK;
    }
    uint64_t element = (uint64_t)(uintptr_t)schema;
    uint32_t at = 0;
    while (at < set->n && (set->elements[at] & ~(uint64_t)SL__DONE) < element)
        at++;
    for (uint32_t i = at; i < set->n; i++)
        if ((set->elements[i] & ~(uint64_t)SL__DONE) == element)
            return SL_OK;
    if (set->n == SL__SET_MAX)
        return sl__refuse(c, schema, NULL, "more than %d schemas apply to one value", SL__SET_MAX);
    sl_status st = sl__spend(c, set->n + 1);
    if (st)
        return st;
    memmove(set->elements + at + 1, set->elements + at, (set->n - at) * sizeof(uint64_t));
    set->elements[at] = element;
    set->n++;
    if (sl_json_member(schema, "$ref")) {
        const sl_json *target;
        st = sl__resolve(c, schema, &target);
        if (!st)
            st = add(c, set, target);
    }
    const sl_json *all = sl_json_member(schema, "allOf");
    for (const sl_json *s = all ? all->child : NULL; !st && s; s = s->next)
        st = add(c, set, s);
    return st;
}

sl_status sl__set_add(sl__compiler *c, sl__set *set, const sl_json *schema) {
    sl_status st = sl__check_schema(c, schema);
    return st ? st : add(c, set, schema);
}

/* ---- what a set says ----------------------------------------------------------------------- */

static uint32_t type_named(const char *name) {
    static const struct {
        const char *name;
        uint32_t types;
    } names[] = {{"null", SL__T_NULL},       {"boolean", SL__T_BOOLEAN},
                 {"integer", SL__T_INTEGER}, {"number", SL__T_NUMBER | SL__T_INTEGER},
                 {"string", SL__T_STRING},   {"array", SL__T_ARRAY},
                 {"object", SL__T_OBJECT}};
    for (size_t i = 0; i < SL_COUNT(names); i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].types;
    return 0;
}

sl_status sl__set_types(sl__compiler *c, const sl__set *set, uint32_t *types) {
    *types = SL__T_ALL;
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i), *type = sl_json_member(schema, "type");
        uint32_t named = 0;
        if (!type)
            continue;
        if (type->type == SL_JSON_STRING) {
            named = type_named(type->text);
        } else if (type->type == SL_JSON_ARRAY) {
            for (const sl_json *t = type->child; t; t = t->next) {
                uint32_t one = t->type == SL_JSON_STRING ? type_named(t->text) : 0;
                if (!one)
                    return sl__wrong(c, schema, "type", "names a type that is not known");
                named |= one;
            }
        }
        if (!named)
            return sl__wrong(c, schema, "type", "names a type that is not known");
        *types &= named;
    }
    return SL_OK;
}

sl_status sl__count_of(sl__compiler *c, const sl_json *schema, const char *keyword, uint32_t *out) {
    const sl_json *value = sl_json_member(schema, keyword);
    uint64_t n;
    if (!value)
        return SL_OK;
    if (!sl_json_uint64(value, &n))
        return sl__wrong(c, schema, keyword, "expected a whole number of at least 0");
    if (n > 1u << 23)
        return sl__refuse(c, schema, keyword, "%llu is above %u", (unsigned long long)n, 1u << 23);
    *out = (uint32_t)n;
    return SL_OK;
}

sl_status sl__string_rules_of(sl__compiler *c, const sl__set *set, sl__string_rules *rules) {
    *rules = (sl__string_rules){.max = SL__NONE};
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        uint32_t min = 0, max = SL__NONE;
        sl_status st = sl__count_of(c, schema, "minLength", &min);
        if (!st)
            st = sl__count_of(c, schema, "maxLength", &max);
        if (st)
            return st;
        rules->min = SL_MAX(rules->min, min);
        rules->max = SL_MIN(rules->max, max);
        rules->automaton |= sl_json_member(schema, "pattern") || sl_json_member(schema, "format");
    }
    return SL_OK;
}

// Make *body the strings of it and of other; the first time, of other alone.
static sl_status narrow(sl__compiler *c, sl__dfa *body, bool *has, const sl__dfa *other) {
    sl__dfa both = *other;
    sl_status st = *has ? sl__dfa_intersect(c, body, other, c->scratch, &both) : SL_OK;
    *has = true;
    *body = both;
    return st;
}

sl_status sl__strings_build(sl__compiler *c, const sl__set *set, const sl__string_rules *rules,
                            sl_arena *arena, sl__dfa *out) {
    size_t mark = sl_arena_mark(c->scratch);
    sl__dfa body = {0}, other;
    bool has = false;
    sl_status st = SL_OK;
    memset(out, 0, sizeof(*out));
    for (uint32_t i = 0; !st && i < set->n; i++) {
        const sl_json *schema = c->at = sl__set_schema(set, i);
        const sl_json *pattern = sl_json_member(schema, "pattern");
        const sl_json *format = sl_json_member(schema, "format");
        if (pattern) {
            c->keyword = "pattern";
            st = sl__pattern_build(c, pattern->text, pattern->text_len, c->scratch, &other);
            if (!st)
                st = narrow(c, &body, &has, &other);
        }
        if (!st && format) {
            c->keyword = "format";
            const char *meant = sl__format_pattern(format->text);
            st = sl__pattern_build(c, meant, strlen(meant), c->scratch, &other);
            if (!st)
                st = narrow(c, &body, &has, &other);
        }
    }
    if (!st && (rules->min > 0 || rules->max != SL__NONE)) {
        c->keyword = rules->max != SL__NONE ? "maxLength" : "minLength";
        st = sl__dfa_limit(c, &body, rules->min, rules->max, c->scratch, &other);
        body = other;
    }
    c->keyword = NULL;
    if (!st)
        st = sl__dfa_quote(c, &body, arena, out);
    sl__dfa_settle(c, mark, arena, out);
    return st;
}

static sl_status bound_of(sl__compiler *c, const sl_json *schema, const char *keyword, bool is_min,
                          bool exclusive, sl__number_rules *rules) {
    const sl_json *value = sl_json_member(schema, keyword);
    sl__decimal d;
    if (!value)
        return SL_OK;
    if (value->type != SL_JSON_NUMBER)
        return sl__wrong(c, schema, keyword, "expected a number");
    if (!sl__decimal_parse(value->text, value->text_len, &d))
        return sl__refuse(c, schema, keyword, "the bound has too many digits");
    bool *has = is_min ? &rules->has_min : &rules->has_max;
    bool *excluded = is_min ? &rules->above_min : &rules->below_max;
    sl__decimal *bound = is_min ? &rules->min : &rules->max;
    int order = *has ? sl__decimal_compare(&d, bound) : is_min ? 1 : -1;
    if (order == 0)
        *excluded |= exclusive;
    if (is_min ? order > 0 : order < 0) {
        *bound = d;
        *excluded = exclusive;
    }
    *has = true;
    return SL_OK;
}

#define MULTIPLE_MAX 1000u

static sl_status multiple_of(sl__compiler *c, const sl_json *schema, sl__number_rules *rules) {
    const sl_json *value = sl_json_member(schema, "multipleOf");
    uint64_t n;
    double d;
    if (!value)
        return SL_OK;
    if (!sl_json_double(value, &d) || !(d > 0))
        return sl__wrong(c, schema, "multipleOf", "expected a number above 0");
    if (!sl_json_uint64(value, &n) || n > MULTIPLE_MAX)
        return sl__refuse(c, schema, "multipleOf", "supported are whole numbers up to %u",
                          MULTIPLE_MAX);
    uint32_t a = rules->multiple_of ? rules->multiple_of : 1, b = (uint32_t)n;
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    n = n / a * (rules->multiple_of ? rules->multiple_of : 1); // the least common multiple
    if (n > MULTIPLE_MAX)
        return sl__refuse(c, schema, "multipleOf", "together with another it is above %u",
                          MULTIPLE_MAX);
    rules->multiple_of = (uint32_t)n;
    return SL_OK;
}

sl_status sl__number_rules_of(sl__compiler *c, const sl__set *set, bool integer,
                              sl__number_rules *rules) {
    *rules = (sl__number_rules){.integer = integer};
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        sl_status st = bound_of(c, schema, "minimum", true, false, rules);
        if (!st)
            st = bound_of(c, schema, "exclusiveMinimum", true, true, rules);
        if (!st)
            st = bound_of(c, schema, "maximum", false, false, rules);
        if (!st)
            st = bound_of(c, schema, "exclusiveMaximum", false, true, rules);
        if (!st)
            st = multiple_of(c, schema, rules);
        if (st)
            return st;
    }
    rules->integer |= rules->multiple_of > 0; // multiples of whole numbers are whole
    return SL_OK;
}
