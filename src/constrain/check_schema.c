/* The schema of a check: all schemas that can be reached from the root are looked at once. Their
 * keywords are of the right kinds afterwards, references are resolved, patterns are automata. */
#include "constrain/check_internal.h"

#define CHAIN_MAX 64

sl_status sl__check_spend(sl__checker *k, uint64_t steps) {
    k->c.n_steps += steps;
    if (k->c.n_steps <= SL_SCHEMA_CHECK_STEPS_MAX)
        return SL_OK;
    return sl__refuse(&k->c, k->c.root, NULL, "checking takes more than %u steps",
                      SL_SCHEMA_CHECK_STEPS_MAX);
}

// SL_ERR_ARGUMENT of the decoder's functions, which here would mean a value that does not fit.
static sl_status blame_schema(sl__checker *k, sl_status st) {
    if (st != SL_ERR_ARGUMENT)
        return st;
    if (k->c.err)
        k->c.err->status = SL_ERR_UNSUPPORTED;
    return SL_ERR_UNSUPPORTED;
}

/* ---- what is known of nodes ---------------------------------------------------------------- */

static uint32_t place_of(const sl__checker *k, const sl_json *node) {
    uint64_t hash = (uint64_t)(uintptr_t)node * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)(hash >> 32) & (k->n_table - 1);
    while (k->known[at].node && k->known[at].node != node)
        at = (at + 1) & (k->n_table - 1);
    return at;
}

sl__check_known *sl__check_find(const sl__checker *k, const sl_json *node) {
    sl__check_known *known = &k->known[place_of(k, node)];
    return known->node ? known : NULL;
}

static sl_status grow(sl__checker *k) {
    const sl__check_known *old = k->known;
    uint32_t n_old = k->n_table, n = n_old ? 2 * n_old : 64;
    k->known = sl__take(&k->c, k->c.scratch, n * sizeof(*k->known), 8);
    if (!k->known)
        return SL_ERR_MEMORY;
    memset(k->known, 0, n * sizeof(*k->known));
    k->n_table = n;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].node)
            k->known[place_of(k, old[i].node)] = old[i];
    return SL_OK;
}

// The entry of a node; it moves when the next one is added.
static sl_status know(sl__checker *k, const sl_json *node, sl__check_known **out) {
    sl_status st = 2 * k->n_known >= k->n_table ? grow(k) : SL_OK;
    if (st)
        return st;
    *out = &k->known[place_of(k, node)];
    k->n_known += !(*out)->node;
    (*out)->node = node;
    return SL_OK;
}

typedef struct todo { // a schema that is still to be looked at
    const sl_json *schema;
} todo;

static sl_status later(sl__checker *k, const sl_json *schema) {
    todo *place = sl__vector_add(&k->c, &k->todo, 1, sizeof(*place));
    if (!place)
        return SL_ERR_MEMORY;
    place->schema = schema;
    return SL_OK;
}

/* ---- references ---------------------------------------------------------------------------- */

static bool is_anchor(const sl_json *schema, const char *name) {
    return sl_json_text_is(sl_json_member(schema, "$anchor"), name) ||
           sl_json_text_is(sl_json_member(schema, "$dynamicAnchor"), name);
}

/* The schema with this anchor, among those that stand where schemas do; NULL if there is none.
 * Recursion as deep as the schema. */
static const sl_json *find_anchor(sl__checker *k, const sl_json *schema, const char *name) {
    const sl_json *found = NULL;
    if (schema->type != SL_JSON_OBJECT || (schema != k->c.root && sl_json_member(schema, "$id")))
        return NULL; // an $id begins another document
    k->c.n_steps += schema->n_children + 1;
    if (is_anchor(schema, name))
        return schema;
    for (const sl_json *m = schema->child; !found && m; m = m->next) {
        const sl__check_row *row = sl__check_row_of(m);
        if (!row)
            continue;
        if (row->kind == SL__IS_SCHEMA || row->kind == SL__IS_ITEMS)
            found = find_anchor(k, m, name);
        if (row->kind == SL__IS_SCHEMAS || row->kind == SL__IS_SCHEMA_MAP ||
            row->kind == SL__IS_PATTERN_MAP || row->kind == SL__IS_DEFINITIONS ||
            row->kind == SL__IS_DEPENDENCIES ||
            (row->kind == SL__IS_ITEMS && m->type == SL_JSON_ARRAY))
            for (const sl_json *s = m->child; !found && s; s = s->next)
                found = find_anchor(k, s, name);
    }
    return found;
}

static sl_status resolve(sl__checker *k, const sl_json *schema, const sl_json *ref,
                         const sl_json **target) {
    sl__compiler *c = &k->c;
    if (ref->type != SL_JSON_STRING)
        return sl__refuse(c, schema, "$ref", "expected a text");
    if (ref->text[0] == '#' && ref->text[1] != '\0' && ref->text[1] != '/') {
        *target = find_anchor(k, c->root, ref->text + 1);
        return *target
                   ? sl__check_spend(k, 1)
                   : sl__refuse(c, schema, "$ref", "there is no $anchor '%.80s'", ref->text + 1);
    }
    return blame_schema(k, sl__resolve(c, schema, target));
}

/* ---- keywords ------------------------------------------------------------------------------ */

const sl_json *sl__check_long_number(const sl_json *value) {
    sl__decimal d;
    const sl_json *found = NULL;
    if (value->type == SL_JSON_NUMBER)
        return sl__decimal_parse(value->text, value->text_len, &d) ? NULL : value;
    for (const sl_json *child = value->child; !found && child; child = child->next)
        found = sl__check_long_number(child);
    return found;
}

static sl_status visit(sl__checker *k, const sl_json *schema, uint32_t chain);

static sl_status visit_or_later(sl__checker *k, const sl_json *schema, bool here, uint32_t chain) {
    return here ? visit(k, schema, chain + 1) : later(k, schema);
}

static sl_status compile_pattern(sl__checker *k, const sl_json *schema, const char *keyword,
                                 const sl_json *node, const char *text, size_t len) {
    sl__dfa *dfa = sl__take(&k->c, k->c.scratch, sizeof(*dfa), 8);
    sl__check_known *known;
    if (!dfa)
        return SL_ERR_MEMORY;
    k->c.at = schema;
    k->c.keyword = keyword;
    sl_status st = sl__pattern_build(&k->c, text, len, k->c.scratch, dfa);
    if (!st)
        st = know(k, node, &known);
    if (!st)
        known->dfa = dfa;
    return st;
}

static bool are_names(const sl_json *list) {
    if (list->type != SL_JSON_ARRAY)
        return false;
    for (const sl_json *name = list->child; name; name = name->next)
        if (name->type != SL_JSON_STRING)
            return false;
    return true;
}

static sl_status visit_map(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl__check_row *row, uint32_t chain) {
    if (member->type != SL_JSON_OBJECT)
        return sl__refuse(&k->c, schema, row->name, "expected an object");
    sl_status st = SL_OK;
    for (const sl_json *s = member->child; !st && s; s = s->next) {
        if (row->kind == SL__IS_DEPENDENCIES && are_names(s))
            continue;
        if (row->kind == SL__IS_PATTERN_MAP)
            st = compile_pattern(k, schema, row->name, s, s->key, s->key_len);
        if (!st)
            st = visit_or_later(k, s, row->here, chain);
    }
    return st;
}

static sl_status visit_names_map(sl__checker *k, const sl_json *schema, const sl_json *member,
                                 const sl__check_row *row) {
    bool ok = member->type == SL_JSON_OBJECT;
    for (const sl_json *names = member->child; ok && names; names = names->next)
        ok = are_names(names);
    return ok ? SL_OK : sl__refuse(&k->c, schema, row->name, "expected lists of names");
}

static bool is_flag(const sl_json *member) {
    return member->type == SL_JSON_TRUE || member->type == SL_JSON_FALSE;
}

static sl_status visit_number(sl__checker *k, const sl_json *schema, const sl_json *member,
                              const sl__check_row *row) {
    sl__decimal d;
    if (row->kind == SL__IS_BOUND && is_flag(member))
        return SL_OK;
    if (member->type != SL_JSON_NUMBER)
        return sl__refuse(&k->c, schema, row->name, "expected a number");
    if (!sl__decimal_parse(member->text, member->text_len, &d))
        return sl__refuse(&k->c, schema, row->name, "the number is too long");
    if (row->kind == SL__IS_COUNT && (d.negative || !sl__decimal_is_integer(&d)))
        return sl__refuse(&k->c, schema, row->name, "expected a whole number of at least 0");
    if (row->kind == SL__IS_DIVISOR && (d.negative || d.n == 0))
        return sl__refuse(&k->c, schema, row->name, "expected a number above 0");
    if (row->kind == SL__IS_DIVISOR && SL_MAX((int32_t)d.n, d.point) > 18)
        return sl__refuse(&k->c, schema, row->name, "more than 18 digits are not supported");
    return SL_OK;
}

static sl_status visit_list(sl__checker *k, const sl_json *schema, const sl_json *member,
                            const sl__check_row *row, uint32_t chain) {
    if (member->type != SL_JSON_ARRAY || member->n_children == 0)
        return sl__refuse(&k->c, schema, row->name, "expected a list of schemas, not empty");
    sl_status st = SL_OK;
    for (const sl_json *s = member->child; !st && s; s = s->next)
        st = visit_or_later(k, s, row->here, chain);
    return st;
}

static sl_status visit_reference(sl__checker *k, const sl_json *schema, const sl_json *member,
                                 uint32_t chain) {
    const sl_json *target = NULL;
    sl_status st = resolve(k, schema, member, &target);
    if (!st)
        st = visit(k, target, chain + 1);
    if (!st)
        sl__check_find(k, schema)->target = target;
    return st;
}

static sl_status visit_member(sl__checker *k, const sl_json *schema, const sl_json *member,
                              uint32_t chain) {
    const sl__check_row *row = sl__check_row_of(member);
    sl__compiler *c = &k->c;
    if (!row)
        return SL_OK;
    const char *expected = NULL;
    switch ((sl__check_kind)row->kind) {
    case SL__IS_DEFINITIONS:
        return SL_OK;
    case SL__IS_VALUES:
        if (member->type != SL_JSON_ARRAY)
            return sl__refuse(c, schema, row->name, "expected a list");
        // fall through
    case SL__IS_VALUE:
        if (sl__check_long_number(member))
            return sl__refuse(c, schema, row->name, "a number is too long");
        return SL_OK;
    case SL__IS_TYPES: {
        const sl__set one = {.n = 1, .elements = {(uint64_t)(uintptr_t)schema}};
        uint32_t types;
        return blame_schema(k, sl__set_types(c, &one, &types));
    }
    case SL__IS_COUNT:
    case SL__IS_NUMBER:
    case SL__IS_BOUND:
    case SL__IS_DIVISOR:
        return visit_number(k, schema, member, row);
    case SL__IS_NAMES_MAP:
        return visit_names_map(k, schema, member, row);
    case SL__IS_SCHEMA:
        return visit_or_later(k, member, row->here, chain);
    case SL__IS_ITEMS:
        if (member->type != SL_JSON_ARRAY)
            return visit_or_later(k, member, row->here, chain);
        return member->n_children ? visit_list(k, schema, member, row, chain) : SL_OK;
    case SL__IS_SCHEMAS:
        return visit_list(k, schema, member, row, chain);
    case SL__IS_SCHEMA_MAP:
    case SL__IS_PATTERN_MAP:
    case SL__IS_DEPENDENCIES:
        return visit_map(k, schema, member, row, chain);
    case SL__IS_REFERENCE:
        return visit_reference(k, schema, member, chain);
    case SL__IS_PATTERN:
        if (member->type == SL_JSON_STRING)
            return compile_pattern(k, schema, row->name, member, member->text, member->text_len);
        expected = "expected a text";
        break;
    case SL__IS_FLAG:
        expected = is_flag(member) ? NULL : "expected true or false";
        break;
    case SL__IS_NAMES:
        expected = are_names(member) || is_flag(member) ? NULL : "expected a list of names";
        break;
    case SL__IS_ID:
        expected = schema == c->root ? NULL : "supported at the root of a schema only";
        break;
    case SL__IS_TRUE_OR_REFUSED:
        expected = member->type == SL_JSON_TRUE ? NULL : "this keyword is not supported";
        break;
    case SL__IS_REFUSED:
        expected = "this keyword is not supported";
        break;
    }
    return expected ? sl__refuse(c, schema, row->name, "%s", expected) : SL_OK;
}

/* Schemas that apply to the same value are visited at once, which finds those that refer to themselves;
 * schemas of values inside are put on the list. Recursion of at most CHAIN_MAX. */
static sl_status visit(sl__checker *k, const sl_json *schema, uint32_t chain) {
    sl__check_known *known;
    if (schema->type == SL_JSON_TRUE || schema->type == SL_JSON_FALSE)
        return SL_OK;
    if (schema->type != SL_JSON_OBJECT)
        return sl__refuse(&k->c, schema, NULL, "a schema is an object, true or false");
    sl_status st = know(k, schema, &known);
    if (st)
        return st;
    if (known->schema)
        return known->open ? sl__refuse(&k->c, schema, NULL, "refers to itself without end")
                           : SL_OK;
    if (chain > CHAIN_MAX)
        return sl__refuse(&k->c, schema, NULL, "more than %d references in a row", CHAIN_MAX);
    known->schema = known->open = true;
    st = sl__check_spend(k, 10 * (uint64_t)schema->n_children + 1);
    for (const sl_json *member = schema->child; !st && member; member = member->next)
        st = visit_member(k, schema, member, chain);
    sl__check_find(k, schema)->open = false;
    return st;
}

sl_status sl__check_prepare(sl__checker *k) {
    sl_status st = later(k, k->c.root);
    for (uint32_t i = 0; !st && i < k->todo.n; i++)
        st = visit(k, ((const todo *)k->todo.data)[i].schema, 0);
    return st;
}
