/* Checking a value against a schema: one function a group of keywords, each looking at the kind of value that it is
 * about. See schema_check.h. */
#include "server/schema_check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 128
#define STEPS_MAX 1000000u

typedef struct place {
    const struct place *parent;
    const char *key; // or an index
    uint32_t index;
} place;

typedef struct checker {
    const sl_json *root;
    sl_error *err;
    uint32_t quiet; // inside a schema that may fail: anyOf, not, if ...
    uint32_t depth, steps;
} checker;

/* A value's verdict is SL_OK or SL_ERR_ARGUMENT; anything else ends the check. */
static sl_status check(checker *c, const sl_json *schema, const sl_json *v, const place *at);

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

// The pointer to a place, from its end; what does not fit is cut at the front.
static const char *pointer(const place *at, char *text, size_t cap) {
    char *p = text + cap - 1;
    *p = '\0';
    for (; at && at->parent; at = at->parent) {
        char number[16];
        const char *step = at->key;
        if (!step) {
            (void)snprintf(number, sizeof(number), "%u", at->index);
            step = number;
        }
        size_t n = strlen(step);
        if (n + 1 > (size_t)(p - text))
            break;
        p -= n;
        memcpy(p, step, n);
        *--p = '/';
    }
    return p;
}

SL_NOINLINE static sl_status misfit(const checker *c, const place *at, const char *fmt, ...)
    SL_PRINTF(3, 4);
static sl_status misfit(const checker *c, const place *at, const char *fmt, ...) {
    char text[200], what[200];
    if (c->quiet)
        return SL_ERR_ARGUMENT;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    const char *where = pointer(at, text, sizeof(text));
    return sl_fail(c->err, SL_ERR_ARGUMENT, "%s%s%s", where, *where ? ": " : "", what);
}

static sl_status bad_schema(const checker *c, const char *keyword, const char *why) {
    return sl_fail(c->err, SL_ERR_UNSUPPORTED, "schema: %s: %s", keyword, why);
}

// A schema whose failure is no failure. *fits is set where SL_OK is returned.
static sl_status try_schema(checker *c, const sl_json *schema, const sl_json *v, const place *at,
                            bool *fits) {
    c->quiet++;
    sl_status st = check(c, schema, v, at);
    c->quiet--;
    *fits = st == SL_OK;
    return st == SL_ERR_ARGUMENT ? SL_OK : st;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_whole(const sl_json *v) {
    double d;
    return sl_json_double(v, &d) && isfinite(d) && floor(d) == d;
}

static const char *type_name(const sl_json *v) {
    static const char *const names[] = {
        [SL_JSON_NULL] = "null",     [SL_JSON_FALSE] = "boolean", [SL_JSON_TRUE] = "boolean",
        [SL_JSON_NUMBER] = "number", [SL_JSON_STRING] = "string", [SL_JSON_ARRAY] = "array",
        [SL_JSON_OBJECT] = "object",
    };
    return names[v->type];
}

static bool is_of_type(const sl_json *v, const char *type) {
    return strcmp(type_name(v), type) == 0 || (strcmp(type, "integer") == 0 && is_whole(v));
}

static bool spend(checker *c, uint32_t n) {
    c->steps = n > STEPS_MAX - c->steps ? STEPS_MAX : c->steps + n;
    return c->steps < STEPS_MAX;
}

// Equal as JSON values: 1 and 1.0 are, and the order of members means nothing. As deep as the parser allows.
static bool equal(checker *c, const sl_json *a, const sl_json *b) {
    double x, y;
    if (a->type != b->type || !spend(c, 1))
        return false;
    switch (a->type) {
    case SL_JSON_NUMBER:
        if (a->text_len == b->text_len && memcmp(a->text, b->text, a->text_len) == 0)
            return true;
        return sl_json_double(a, &x) && sl_json_double(b, &y) && x == y;
    case SL_JSON_STRING:
        return a->text_len == b->text_len && memcmp(a->text, b->text, a->text_len) == 0;
    case SL_JSON_ARRAY:
    case SL_JSON_OBJECT:
        break;
    default:
        return true;
    }
    if (a->n_children != b->n_children)
        return false;
    const sl_json *other = b->child;
    for (const sl_json *m = a->child; m; m = m->next) {
        const sl_json *twin = other;
        if (a->type == SL_JSON_OBJECT)
            twin = spend(c, b->n_children) ? sl_json_member(b, m->key) : NULL;
        else
            other = other->next;
        if (!twin || !equal(c, m, twin))
            return false;
    }
    return true;
}

/* ---- any value --------------------------------------------------------------------------------------------------- */

static sl_status check_type(const checker *c, const sl_json *type, const sl_json *v,
                            const place *at) {
    if (type->type == SL_JSON_STRING)
        return is_of_type(v, type->text)
                   ? SL_OK
                   : misfit(c, at, "expected %.40s, found %s", type->text, type_name(v));
    if (type->type != SL_JSON_ARRAY)
        return bad_schema(c, "type", "expected a string or an array");
    for (const sl_json *t = type->child; t; t = t->next)
        if (t->type == SL_JSON_STRING && is_of_type(v, t->text))
            return SL_OK;
    return misfit(c, at, "%s is none of the types that are allowed", type_name(v));
}

static sl_status check_constants(checker *c, const sl_json *schema, const sl_json *v,
                                 const place *at) {
    const sl_json *values = sl_json_member(schema, "enum"),
                  *constant = sl_json_member(schema, "const");
    if (constant && !equal(c, constant, v))
        return misfit(c, at, "is not the one value that is allowed");
    if (!values)
        return SL_OK;
    if (values->type != SL_JSON_ARRAY)
        return bad_schema(c, "enum", "expected an array");
    for (const sl_json *e = values->child; e; e = e->next)
        if (equal(c, e, v))
            return SL_OK;
    return misfit(c, at, "is none of the values that are allowed");
}

// "#", or "#/a/b" with ~0, ~1 and %xx.
static const sl_json *follow(const sl_json *root, const char *ref) {
    if (*ref++ != '#')
        return NULL;
    while (root && *ref) {
        char key[256];
        size_t n = 0;
        if (*ref++ != '/')
            return NULL;
        for (; *ref && *ref != '/' && n < sizeof(key) - 1; ref++) {
            unsigned code;
            if (ref[0] == '~' && (ref[1] == '0' || ref[1] == '1'))
                key[n++] = *++ref == '0' ? '~' : '/';
            else if (ref[0] == '%' && ref[1] && sscanf(ref + 1, "%2x", &code) == 1 && ref[2])
                key[n++] = (char)code, ref += 2;
            else
                key[n++] = *ref;
        }
        key[n] = '\0';
        unsigned index;
        int end = 0;
        if (root->type == SL_JSON_ARRAY)
            root = sscanf(key, "%9u%n", &index, &end) == 1 && !key[end]
                       ? sl_json_element(root, index)
                       : NULL;
        else
            root = sl_json_member(root, key);
    }
    return root;
}

static sl_status check_reference(checker *c, const sl_json *ref, const sl_json *v,
                                 const place *at) {
    const sl_json *target = ref->type == SL_JSON_STRING ? follow(c->root, ref->text) : NULL;
    return target ? check(c, target, v, at) : bad_schema(c, "$ref", "leads nowhere in this schema");
}

// anyOf, oneOf: how many of the schemas fit.
static sl_status count_fits(checker *c, const sl_json *schemas, const sl_json *v, const place *at,
                            uint32_t stop, uint32_t *n) {
    *n = 0;
    if (schemas->type != SL_JSON_ARRAY)
        return bad_schema(c, schemas->key, "expected an array");
    for (const sl_json *s = schemas->child; s && *n < stop; s = s->next) {
        bool fits;
        sl_status st = try_schema(c, s, v, at, &fits);
        if (st)
            return st;
        *n += fits;
    }
    return SL_OK;
}

static sl_status check_choices(checker *c, const sl_json *schema, const sl_json *v,
                               const place *at) {
    const sl_json *all = sl_json_member(schema, "allOf"), *any = sl_json_member(schema, "anyOf");
    const sl_json *one = sl_json_member(schema, "oneOf"), *no = sl_json_member(schema, "not");
    sl_status st;
    uint32_t n;
    bool fits;
    if (all && all->type != SL_JSON_ARRAY)
        return bad_schema(c, "allOf", "expected an array");
    for (const sl_json *s = all ? all->child : NULL; s; s = s->next)
        if ((st = check(c, s, v, at)))
            return st;
    if (any && (st = count_fits(c, any, v, at, 1, &n)))
        return st;
    if (any && n == 0)
        return misfit(c, at, "fits none of anyOf");
    if (one && (st = count_fits(c, one, v, at, 2, &n)))
        return st;
    if (one && n != 1)
        return misfit(c, at, n ? "fits more than one of oneOf" : "fits none of oneOf");
    if (no && (st = try_schema(c, no, v, at, &fits)))
        return st;
    return no && fits ? misfit(c, at, "fits what it must not") : SL_OK;
}

static sl_status check_condition(checker *c, const sl_json *schema, const sl_json *v,
                                 const place *at) {
    const sl_json *condition = sl_json_member(schema, "if");
    bool fits;
    if (!condition)
        return SL_OK;
    sl_status st = try_schema(c, condition, v, at, &fits);
    const sl_json *then = sl_json_member(schema, fits ? "then" : "else");
    return st || !then ? st : check(c, then, v, at);
}

/* ---- numbers and strings ----------------------------------------------------------------------------------------- */

// The number of a keyword; false where the keyword is not there.
static sl_status number_of(const checker *c, const sl_json *schema, const char *keyword,
                           double *out, bool *given) {
    const sl_json *n = sl_json_member(schema, keyword);
    *given = n != NULL;
    if (n && !sl_json_double(n, out))
        return bad_schema(c, keyword, "expected a number");
    return SL_OK;
}

static sl_status check_bound(const checker *c, const sl_json *schema, const char *keyword,
                             bool exclusive, int sign, double d, const place *at) {
    double bound;
    bool given;
    const sl_json *value = sl_json_member(schema, keyword);
    if (value && (value->type == SL_JSON_TRUE || value->type == SL_JSON_FALSE))
        return SL_OK; // of an older draft: it changes the other bound
    sl_status st = number_of(c, schema, keyword, &bound, &given);
    if (st || !given)
        return st;
    double over = sign * (d - bound);
    if (over < 0 || (!exclusive && over == 0))
        return SL_OK;
    return misfit(c, at, "%.17g is out of range: %s is %.17g", d, keyword, bound);
}

static sl_status check_number(const checker *c, const sl_json *schema, const sl_json *v,
                              const place *at) {
    double d = 0, factor;
    bool given, low = sl_json_is(sl_json_member(schema, "exclusiveMinimum"), SL_JSON_TRUE),
                high = sl_json_is(sl_json_member(schema, "exclusiveMaximum"), SL_JSON_TRUE);
    sl_status st;
    (void)sl_json_double(v, &d);
    if ((st = check_bound(c, schema, "minimum", low, -1, d, at)) ||
        (st = check_bound(c, schema, "maximum", high, 1, d, at)) ||
        (st = check_bound(c, schema, "exclusiveMinimum", true, -1, d, at)) ||
        (st = check_bound(c, schema, "exclusiveMaximum", true, 1, d, at)) ||
        (st = number_of(c, schema, "multipleOf", &factor, &given)))
        return st;
    if (!given)
        return SL_OK;
    if (!(factor > 0))
        return bad_schema(c, "multipleOf", "expected a number above 0");
    // 0.3 is a multiple of 0.1 for people: the quotient may miss a whole number by a few units in its last place.
    double q = d / factor;
    bool fits = isfinite(q) && fabs(q - nearbyint(q)) <= 4 * 0x1p-52 * fmax(fabs(q), 1);
    return fits ? SL_OK : misfit(c, at, "%.17g is no multiple of %.17g", d, factor);
}

// A count between two keywords.
static sl_status check_count(const checker *c, const sl_json *schema, const char *least,
                             const char *most, uint64_t n, const char *what, const place *at) {
    double bound;
    bool given;
    sl_status st = number_of(c, schema, least, &bound, &given);
    if (st)
        return st;
    if (given && (double)n < bound)
        return misfit(c, at, "expected at least %.0f %s, found %llu", bound, what,
                      (unsigned long long)n);
    if ((st = number_of(c, schema, most, &bound, &given)))
        return st;
    if (given && (double)n > bound)
        return misfit(c, at, "expected at most %.0f %s, found %llu", bound, what,
                      (unsigned long long)n);
    return SL_OK;
}

static uint64_t characters(const sl_json *v) {
    uint64_t n = 0;
    for (size_t i = 0; i < v->text_len; i++)
        n += ((unsigned char)v->text[i] & 0xc0) != 0x80;
    return n;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static sl_status check_items(checker *c, const sl_json *schema, const sl_json *v, const place *at) {
    const sl_json *prefix = sl_json_member(schema, "prefixItems"),
                  *rest = sl_json_member(schema, "items");
    if (sl_json_is(rest, SL_JSON_ARRAY)) { // of an older draft
        prefix = rest;
        rest = sl_json_member(schema, "additionalItems");
    }
    if (prefix && prefix->type != SL_JSON_ARRAY)
        return bad_schema(c, "prefixItems", "expected an array");
    const sl_json *own = prefix ? prefix->child : NULL;
    place here = {.parent = at};
    for (const sl_json *m = v->child; m; m = m->next, here.index++) {
        const sl_json *s = own ? own : rest;
        sl_status st = s ? check(c, s, m, &here) : SL_OK;
        if (st)
            return st;
        own = own ? own->next : NULL;
    }
    return SL_OK;
}

static sl_status check_contains(checker *c, const sl_json *schema, const sl_json *v,
                                const place *at) {
    const sl_json *wanted = sl_json_member(schema, "contains");
    uint64_t n = 0;
    if (!wanted)
        return SL_OK;
    place here = {.parent = at};
    for (const sl_json *m = v->child; m; m = m->next, here.index++) {
        bool fits;
        sl_status st = try_schema(c, wanted, m, &here, &fits);
        if (st)
            return st;
        n += fits;
    }
    if (n == 0 && !sl_json_member(schema, "minContains"))
        return misfit(c, at, "holds nothing that fits contains");
    return check_count(c, schema, "minContains", "maxContains", n, "items that fit contains", at);
}

static sl_status check_array(checker *c, const sl_json *schema, const sl_json *v, const place *at) {
    sl_status st;
    if ((st = check_count(c, schema, "minItems", "maxItems", v->n_children, "items", at)) ||
        (st = check_items(c, schema, v, at)) || (st = check_contains(c, schema, v, at)))
        return st;
    if (!sl_json_is(sl_json_member(schema, "uniqueItems"), SL_JSON_TRUE))
        return SL_OK;
    for (const sl_json *a = v->child; a; a = a->next)
        for (const sl_json *b = a->next; b; b = b->next)
            if (equal(c, a, b))
                return misfit(c, at, "two items are equal");
    return SL_OK;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static sl_status check_required(checker *c, const sl_json *names, const sl_json *v,
                                const place *at) {
    if (names->type == SL_JSON_TRUE || names->type == SL_JSON_FALSE)
        return SL_OK; // of an old draft: said of the member itself
    if (names->type != SL_JSON_ARRAY)
        return bad_schema(c, names->key, "expected an array");
    for (const sl_json *n = names->child; n; n = n->next) {
        if (n->type != SL_JSON_STRING)
            return bad_schema(c, names->key, "expected names");
        if (spend(c, 1 + v->n_children) && !sl_json_member(v, n->text))
            return misfit(c, at, "'%.80s' is missing", n->text);
    }
    return SL_OK;
}

static sl_status check_members(checker *c, const sl_json *schema, const sl_json *v,
                               const place *at) {
    const sl_json *properties = sl_json_member(schema, "properties"),
                  *names = sl_json_member(schema, "propertyNames");
    const sl_json *others = sl_json_member(schema, "patternProperties")
                                ? NULL
                                : sl_json_member(schema, "additionalProperties");
    sl_status st;
    if (properties && properties->type != SL_JSON_OBJECT)
        return bad_schema(c, "properties", "expected an object");
    for (const sl_json *m = v->child; m; m = m->next) {
        const place here = {.parent = at, .key = m->key};
        const sl_json *s = spend(c, properties ? properties->n_children : 1)
                               ? sl_json_member(properties, m->key)
                               : NULL;
        if (!s && sl_json_is(others, SL_JSON_FALSE))
            return misfit(c, at, "'%.80s' is no member that is allowed", m->key);
        s = s ? s : others;
        if (s && (st = check(c, s, m, &here)))
            return st;
        const sl_json name = {.type = SL_JSON_STRING, .text = m->key, .text_len = m->key_len};
        if (names && (st = check(c, names, &name, &here)))
            return st;
    }
    return SL_OK;
}

static sl_status check_object(checker *c, const sl_json *schema, const sl_json *v,
                              const place *at) {
    const sl_json *required = sl_json_member(schema, "required");
    const sl_json *dependent = sl_json_member(schema, "dependentRequired");
    sl_status st;
    if ((st = check_count(c, schema, "minProperties", "maxProperties", v->n_children, "members",
                          at)) ||
        (required && (st = check_required(c, required, v, at))) ||
        (st = check_members(c, schema, v, at)))
        return st;
    for (const sl_json *d = dependent ? dependent->child : NULL; d; d = d->next)
        if (d->key && sl_json_member(v, d->key) && (st = check_required(c, d, v, at)))
            return st;
    return SL_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static sl_status check_value(checker *c, const sl_json *schema, const sl_json *v, const place *at) {
    switch (v->type) {
    case SL_JSON_NUMBER:
        return check_number(c, schema, v, at);
    case SL_JSON_STRING:
        return check_count(c, schema, "minLength", "maxLength", characters(v), "characters", at);
    case SL_JSON_ARRAY:
        return check_array(c, schema, v, at);
    case SL_JSON_OBJECT:
        return check_object(c, schema, v, at);
    default:
        return SL_OK;
    }
}

static sl_status check_all(checker *c, const sl_json *schema, const sl_json *v, const place *at) {
    const sl_json *type = sl_json_member(schema, "type"), *ref = sl_json_member(schema, "$ref");
    sl_status st;
    if ((ref && (st = check_reference(c, ref, v, at))) ||
        (type && (st = check_type(c, type, v, at))) || (st = check_constants(c, schema, v, at)) ||
        (st = check_value(c, schema, v, at)) || (st = check_choices(c, schema, v, at)))
        return st;
    return check_condition(c, schema, v, at);
}

static sl_status check(checker *c, const sl_json *schema, const sl_json *v, const place *at) {
    if (schema->type == SL_JSON_TRUE)
        return SL_OK;
    if (schema->type == SL_JSON_FALSE)
        return misfit(c, at, "nothing is allowed here");
    if (schema->type != SL_JSON_OBJECT)
        return bad_schema(c, "a schema", "expected an object, true or false");
    if (c->depth >= DEPTH_MAX)
        return bad_schema(c, "too deep", "schema and value nest more than 128 times");
    if (!spend(c, 1 + schema->n_children))
        return bad_schema(c, "too large", "this value takes more than a million steps to check");
    c->depth++;
    sl_status st = check_all(c, schema, v, at);
    c->depth--;
    return st;
}

sl_status sl_schema_check(const sl_json *schema, const sl_json *value, sl_error *err) {
    checker c = {.root = schema, .err = err};
    const place root = {0};
    sl_status st = check(&c, schema, value, &root);
    if (c.steps >= STEPS_MAX) // a comparison may have been cut short
        return bad_schema(&c, "too large", "this value takes more than a million steps to check");
    return st;
}

sl_status sl_schema_check_text(const char *schema, size_t schema_len, const char *value,
                               size_t value_len, sl_arena *scratch, sl_error *err) {
    sl_json *s, *v;
    size_t mark = sl_arena_mark(scratch);
    sl_status st;
    if (!(st = sl_json_parse(schema, schema_len, scratch, &s, err)) &&
        !(st = sl_json_parse(value, value_len, scratch, &v, err)))
        st = sl_schema_check(s, v, err);
    sl_arena_reset(scratch, mark);
    return st;
}
