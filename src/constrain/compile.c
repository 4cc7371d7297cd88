/* From a schema to a constraint.
 *
 * A value has to satisfy a set of schemas at once: one to begin with, and those that $ref and allOf add
 * (set.c). A set becomes a node: first anyOf and oneOf are opened, one schema after another, which gives
 * alternatives; then each is turned into forms (forms.c). Sets inside (of properties, of items) are
 * nodes of their own, equal sets the same node, and so a schema that refers to itself comes to an end.
 * At last it is computed how deep values must nest at least, which finds values that cannot be. */
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "constrain/compile_internal.h"

#define FORMS_MAX SL_CONSTRAINT_THREADS_MAX

/* ---- what the sources that compile share --------------------------------------------------- */

void *sl__take(sl__compiler *c, sl_arena *arena, size_t bytes, size_t align) {
    void *p = sl_arena_alloc(arena, bytes, align);
    if (!p)
        (void)sl_arena_full(arena, bytes, c->err);
    return p;
}

void *sl__vector_add(sl__compiler *c, sl__vector *v, uint32_t n, size_t element_bytes) {
    if (n > v->cap - v->n) {
        uint64_t cap = SL_MAX(2 * (uint64_t)v->cap, (uint64_t)v->n + n);
        cap = SL_MAX(cap, 16);
        if (cap > UINT32_MAX / 2) {
            (void)sl_fail(c->err, SL_ERR_MEMORY, "a table of a schema is too large");
            return NULL;
        }
        void *data = sl__take(c, c->scratch, (size_t)cap * element_bytes, 8);
        if (!data)
            return NULL;
        if (v->n)
            memcpy(data, v->data, v->n * element_bytes);
        v->data = data;
        v->cap = (uint32_t)cap;
    }
    void *place = (char *)v->data + (size_t)v->n * element_bytes;
    v->n += n;
    return place;
}

sl_status sl__spend(sl__compiler *c, uint64_t steps) {
    c->n_steps += steps;
    if (c->n_steps <= c->limits->n_steps_max)
        return SL_OK;
    return sl__refuse(c, c->at, c->keyword, "compiling it takes more than %llu steps",
                      (unsigned long long)c->limits->n_steps_max);
}

bool sl__find_pointer(const sl_json *at, const sl_json *node, sl_buf *buf) {
    size_t len = buf->len;
    uint32_t index = 0;
    if (at == node)
        return true;
    for (const sl_json *child = at->child; child; child = child->next, index++) {
        if (at->type == SL_JSON_OBJECT) {
            sl_buf_add_char(buf, '/');
            for (size_t i = 0; i < child->key_len; i++) {
                char c = child->key[i];
                if ((unsigned char)c < ' ')
                    sl_buf_printf(buf, "\\u%04x", (unsigned)c);
                else
                    sl_buf_add_text(buf, c == '~' ? "~0" : c == '/' ? "~1" : (char[2]){c, 0});
            }
        } else {
            sl_buf_printf(buf, "/%u", index);
        }
        if (sl__find_pointer(child, node, buf))
            return true;
        buf->len = len;
        buf->failed = false;
    }
    return false;
}

static sl_status complain(sl__compiler *c, sl_status status, const sl_json *schema,
                          const char *keyword, const char *fmt, va_list args) {
    char pointer[200], message[240];
    sl_buf buf;
    sl_buf_init_fixed(&buf, pointer, sizeof(pointer));
    if (schema)
        (void)sl__find_pointer(c->root, schema, &buf);
    pointer[SL_MIN(buf.len, sizeof(pointer) - 1)] = '\0';
    (void)vsnprintf(message, sizeof(message), fmt, args);
    return sl_fail(c->err, status, "schema: #%s%s%s: %s", pointer, keyword ? "/" : "",
                   keyword ? keyword : "", message);
}

sl_status sl__refuse(sl__compiler *c, const sl_json *schema, const char *keyword, const char *fmt,
                     ...) {
    va_list args;
    va_start(args, fmt);
    sl_status st = complain(c, SL_ERR_UNSUPPORTED, schema, keyword, fmt, args);
    va_end(args);
    return st;
}

sl_status sl__wrong(sl__compiler *c, const sl_json *schema, const char *keyword, const char *fmt,
                    ...) {
    va_list args;
    va_start(args, fmt);
    sl_status st = complain(c, SL_ERR_ARGUMENT, schema, keyword, fmt, args);
    va_end(args);
    return st;
}

/* ---- nodes --------------------------------------------------------------------------------- */

typedef struct stored_set { // of node i: sets[i]
    uint32_t first, n, hash;
} stored_set;

static uint32_t hash_set(const sl__set *set) {
    uint64_t hash = set->n;
    for (uint32_t i = 0; i < set->n; i++)
        hash = (hash ^ set->elements[i]) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32;
    return (uint32_t)hash;
}

static sl_status rehash_nodes(sl__compiler *c, uint32_t n_table) {
    c->node_of = sl__take(c, c->scratch, (size_t)n_table * 4, 4);
    if (!c->node_of)
        return SL_ERR_MEMORY;
    memset(c->node_of, 0, (size_t)n_table * 4);
    c->n_node_of = n_table;
    const stored_set *sets = c->sets.data;
    for (uint32_t i = 0; i < c->sets.n; i++) {
        uint32_t at = sets[i].hash & (n_table - 1);
        while (c->node_of[at])
            at = (at + 1) & (n_table - 1);
        c->node_of[at] = i + 1;
    }
    return SL_OK;
}

sl_status sl__node_of(sl__compiler *c, const sl__set *set, uint32_t *node) {
    *node = SL__NONE;
    if (set->never)
        return SL_OK;
    sl_status st = sl__spend(c, set->n + 4);
    if (st)
        return st;
    uint32_t hash = hash_set(set), at = hash & (c->n_node_of - 1);
    for (; c->node_of[at]; at = (at + 1) & (c->n_node_of - 1)) {
        uint32_t i = c->node_of[at] - 1;
        const stored_set *other = (const stored_set *)c->sets.data + i;
        const uint64_t *elements = (const uint64_t *)c->elements.data + other->first;
        if (other->hash == hash && other->n == set->n &&
            (set->n == 0 || memcmp(elements, set->elements, set->n * sizeof(uint64_t)) == 0)) {
            *node = i;
            return SL_OK;
        }
    }
    if (c->nodes.n >= c->limits->n_nodes_max)
        return sl__refuse(c, c->at, NULL, "the schema becomes more than %u different values",
                          c->limits->n_nodes_max);
    sl__node *n = sl__vector_add(c, &c->nodes, 1, sizeof(*n));
    stored_set *stored = n ? sl__vector_add(c, &c->sets, 1, sizeof(*stored)) : NULL;
    uint32_t first = c->elements.n;
    uint64_t *elements =
        stored ? sl__vector_add(c, &c->elements, SL_MAX(set->n, 1), sizeof(uint64_t)) : NULL;
    if (!elements)
        return SL_ERR_MEMORY;
    *n = (sl__node){.min_depth = SL__NONE};
    *stored = (stored_set){.first = first, .n = set->n, .hash = hash};
    memcpy(elements, set->elements, set->n * sizeof(uint64_t));
    *node = c->nodes.n - 1;
    c->node_of[at] = c->nodes.n;
    return 2 * c->nodes.n > c->n_node_of ? rehash_nodes(c, 2 * c->n_node_of) : SL_OK;
}

static void load_set(const sl__compiler *c, uint32_t node, sl__set *set) {
    const stored_set *stored = (const stored_set *)c->sets.data + node;
    set->n = stored->n;
    set->never = false;
    memcpy(set->elements, (const uint64_t *)c->elements.data + stored->first,
           stored->n * sizeof(uint64_t));
}

/* Open the first anyOf or oneOf that is still closed, and so on; each way through them is a set of its
 * own. Recursion as deep as there are such keywords for one value. */
static sl_status expand(sl__compiler *c, const sl__set *set, uint32_t depth) {
    if (set->never)
        return SL_OK;
    if (depth > 16)
        return sl__refuse(c, c->at, NULL, "more than 16 anyOf and oneOf apply to one value");
    for (uint32_t i = 0; i < set->n; i++) {
        const sl_json *schema = sl__set_schema(set, i);
        const sl_json *any = sl_json_member(schema, "anyOf"),
                      *one = sl_json_member(schema, "oneOf");
        uint32_t done = any && !(set->elements[i] & SL__DONE_ANY)   ? SL__DONE_ANY
                        : one && !(set->elements[i] & SL__DONE_ONE) ? SL__DONE_ONE
                                                                    : 0;
        if (!done)
            continue;
        sl_status st = done == SL__DONE_ONE ? sl__check_one_of(c, schema) : SL_OK;
        const sl_json *branches = done == SL__DONE_ANY ? any : one;
        for (const sl_json *branch = branches->child; !st && branch; branch = branch->next) {
            sl__set next = *set;
            next.elements[i] |= done;
            st = sl__spend(c, 16 + set->n);
            if (!st)
                st = sl__set_add(c, &next, branch);
            if (!st)
                st = expand(c, &next, depth + 1);
        }
        return st;
    }
    c->at = set->n ? sl__set_schema(set, 0) : c->root;
    c->keyword = NULL;
    if (c->alts.n - c->first_alt > FORMS_MAX)
        return sl__refuse(c, c->at, NULL, "a value may have more than %d forms", FORMS_MAX);
    return sl__forms_add(c, set);
}

static sl_status compile_node(sl__compiler *c, uint32_t node) {
    sl__set set;
    load_set(c, node, &set);
    uint32_t first = c->first_alt = c->alts.n;
    sl_status st = expand(c, &set, 0);
    if (st)
        return st;
    if (c->alts.n - first > FORMS_MAX)
        return sl__refuse(c, set.n ? sl__set_schema(&set, 0) : c->root, NULL,
                          "a value may have %u forms, at most %u", c->alts.n - first, FORMS_MAX);
    sl__node *n = (sl__node *)c->nodes.data + node;
    n->first = first;
    n->n = c->alts.n - first;
    return SL_OK;
}

/* ---- depth --------------------------------------------------------------------------------- */

static uint32_t depth_of(const sl__node *nodes, uint32_t node) {
    return node == SL__NONE ? SL__NONE : nodes[node].min_depth;
}

static uint32_t alt_depth(sl__compiler *c, const sl__alt *alt) {
    const sl__node *nodes = c->nodes.data;
    const sl__prop *props = (const sl__prop *)c->props.data + alt->first;
    const uint32_t *refs = (const uint32_t *)c->refs.data + alt->first;
    uint32_t depth = 0;
    if (alt->kind == SL__ALT_DFA || alt->kind == SL__ALT_STRING)
        return alt->min_depth;
    c->n_steps += alt->n + 1;
    if (alt->kind == SL__ALT_OBJECT) {
        for (uint32_t i = 0; i < alt->n && depth != SL__NONE; i++)
            if (props[i].next_required == i)
                depth = SL_MAX(depth, depth_of(nodes, props[i].node));
    } else {
        for (uint32_t i = 0; i < alt->min && i < alt->n && depth != SL__NONE; i++)
            depth = SL_MAX(depth, depth_of(nodes, refs[i]));
        if (alt->min > alt->n)
            depth = SL_MAX(depth, depth_of(nodes, alt->rest));
    }
    return depth >= SL_JSON_DEPTH_MAX ? SL__NONE : depth + 1;
}

/* The least nesting of each value, by going over all until nothing changes: what is not known yet
 * counts as impossible, and what stays so is. */
static sl_status find_depths(sl__compiler *c) {
    sl__node *nodes = c->nodes.data;
    sl__alt *alts = c->alts.data;
    for (bool changed = true; changed;) {
        changed = false;
        sl_status st = sl__spend(c, c->alts.n);
        if (st)
            return st;
        for (uint32_t i = 0; i < c->nodes.n; i++)
            for (uint32_t k = nodes[i].first; k < nodes[i].first + nodes[i].n; k++) {
                uint32_t depth = alt_depth(c, &alts[k]);
                if (depth < nodes[i].min_depth) {
                    nodes[i].min_depth = depth;
                    changed = true;
                }
            }
    }
    for (uint32_t k = 0; k < c->alts.n; k++) {
        uint32_t depth = alt_depth(c, &alts[k]);
        alts[k].min_depth = (uint8_t)SL_MIN(depth, 255);
    }
    return SL_OK;
}

/* ---- the result ---------------------------------------------------------------------------- */

static void fold(uint64_t *hash, const void *data, size_t bytes) {
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        *hash = (*hash ^ p[i]) * 0x100000001b3u;
    *hash ^= *hash >> 29;
}

static const void *keep(sl__compiler *c, const sl__vector *v, size_t element_bytes, uint32_t *n,
                        uint64_t *hash) {
    void *data = sl__take(c, c->arena, SL_MAX(v->n, 1) * element_bytes, 8);
    *n = v->n;
    if (data && v->n) {
        memcpy(data, v->data, v->n * element_bytes);
        fold(hash, data, v->n * element_bytes);
    }
    fold(hash, n, sizeof(*n));
    return data;
}

static sl_status finish(sl__compiler *c, uint32_t root, sl_constraint **out) {
    sl_constraint *result = sl__take(c, c->arena, sizeof(*result), 8);
    if (!result)
        return SL_ERR_MEMORY;
    memset(result, 0, sizeof(*result));
    uint64_t hash = 0xcbf29ce484222325u;
    uint32_t n_dfa_bytes;
    result->vocab = c->vocab;
    result->root = root;
    result->nodes = keep(c, &c->nodes, sizeof(sl__node), &result->n_nodes, &hash);
    result->alts = keep(c, &c->alts, sizeof(sl__alt), &result->n_alts, &hash);
    result->props = keep(c, &c->props, sizeof(sl__prop), &result->n_props, &hash);
    result->refs = keep(c, &c->refs, sizeof(uint32_t), &result->n_refs, &hash);
    result->texts = keep(c, &c->texts, 1, &result->n_texts, &hash);
    uint64_t addresses = 0; // of no meaning for what the constraint says
    result->dfas = keep(c, &c->dfas, sizeof(sl__dfa), &result->n_dfas, &addresses);
    if (!result->nodes || !result->alts || !result->props || !result->refs || !result->texts ||
        !result->dfas)
        return SL_ERR_MEMORY;
    for (uint32_t i = 0; i < result->n_dfas; i++) {
        const sl__dfa *dfa = &result->dfas[i];
        n_dfa_bytes = dfa->n_states * dfa->n_classes;
        fold(&hash, dfa->class_of, 256);
        fold(&hash, dfa->next, n_dfa_bytes * sizeof(uint16_t));
        fold(&hash, dfa->flags, dfa->n_states); // and what is alike follows from these
    }
    fold(&hash, &root, sizeof(root));
    result->fingerprint = hash;
    *out = result;
    return SL_OK;
}

sl_constraint_limits sl_constraint_limits_default(void) {
    return (sl_constraint_limits){
        .n_nodes_max = 4000, .n_states_max = 40000, .n_steps_max = 40u * 1000 * 1000};
}

// Tables that stay empty have an address too, so that code need not ask.
static sl_status reserve(sl__compiler *c) {
    const struct {
        sl__vector *vector;
        size_t element_bytes;
    } all[] = {{&c->nodes, sizeof(sl__node)},
               {&c->alts, sizeof(sl__alt)},
               {&c->props, sizeof(sl__prop)},
               {&c->refs, sizeof(uint32_t)},
               {&c->texts, 1},
               {&c->dfas, sizeof(sl__dfa)},
               {&c->sets, sizeof(stored_set)},
               {&c->elements, sizeof(uint64_t)}};
    for (size_t i = 0; i < SL_COUNT(all); i++) {
        if (!sl__vector_add(c, all[i].vector, 1, all[i].element_bytes))
            return SL_ERR_MEMORY;
        all[i].vector->n = 0;
    }
    return SL_OK;
}

static sl_status compile(sl__compiler *c, sl_constraint **out) {
    sl__set set = {0};
    uint32_t root = SL__NONE;
    sl_status st = reserve(c);
    if (!st)
        st = rehash_nodes(c, 256);
    if (!st)
        st = sl__set_add(c, &set, c->root);
    if (!st)
        st = sl__node_of(c, &set, &root);
    for (uint32_t i = 0; !st && i < c->nodes.n; i++)
        st = compile_node(c, i);
    if (!st)
        st = find_depths(c);
    if (!st && (root == SL__NONE || ((sl__node *)c->nodes.data)[root].min_depth == SL__NONE))
        st = sl__refuse(c, c->root, NULL,
                        "no value satisfies it (nested at most %d deep, in tokens of the model)",
                        SL_JSON_DEPTH_MAX);
    return st ? st : finish(c, root, out);
}

sl_status sl_constraint_compile(const sl_json *schema, const sl_vocab *vocab,
                                const sl_constraint_limits *limits, sl_arena *arena,
                                sl_arena *scratch, sl_constraint **out, sl_error *err) {
    size_t mark = sl_arena_mark(arena), scratch_mark = sl_arena_mark(scratch);
    sl__compiler c = {.vocab = vocab,
                      .limits = limits,
                      .arena = arena,
                      .scratch = scratch,
                      .err = err,
                      .root = schema,
                      .at = schema};
    *out = NULL;
    sl_status st = compile(&c, out);
    sl_arena_reset(scratch, scratch_mark);
    if (st)
        sl_arena_reset(arena, mark);
    return st;
}

sl_status sl_constraint_compile_text(const char *schema, size_t len, const sl_vocab *vocab,
                                     const sl_constraint_limits *limits, sl_arena *arena,
                                     sl_arena *scratch, sl_constraint **out, sl_error *err) {
    size_t mark = sl_arena_mark(scratch);
    sl_json *root;
    *out = NULL;
    sl_status st = sl_json_parse(schema, len, scratch, &root, err);
    if (!st)
        st = sl_constraint_compile(root, vocab, limits, arena, scratch, out, err);
    sl_arena_reset(scratch, mark);
    return st;
}

sl_status sl_constraint_compile_object(const sl_vocab *vocab, sl_arena *arena, sl_arena *scratch,
                                       sl_constraint **out, sl_error *err) {
    static const char object[] = "{\"type\": \"object\"}";
    sl_constraint_limits limits = sl_constraint_limits_default();
    return sl_constraint_compile_text(object, sizeof(object) - 1, vocab, &limits, arena, scratch,
                                      out, err);
}
