/* Checking values against a schema: one function a keyword, a table of them, and what they share.
 *
 * sl_schema_check() looks at the schema first (check_schema.c) and then walks the value and its schemas
 * together. A function of a keyword returns SL_OK when the value fits, SL_ERR_ARGUMENT when it does not,
 * and another status when the whole check must stop. Messages are made only where the misfit decides:
 * below anyOf, not and the like the walk is quiet. */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "constrain/check_internal.h"
#include "text/utf8.h"

/* Bytes of a message's three parts, which together are below SL_ERROR_MESSAGE_MAX. */
#define POINTER_BYTES 100u
#define EXPECTED_BYTES 200u
#define FOUND_BYTES 140u
#define TEXT_BYTES 140u /* of what is put into EXPECTED */
#define SHOWN_BYTES 60u /* of a text */
#define LIST_BYTES 70u  /* of a list, when another element may follow */

static sl_status eval(sl__checker *k, const sl_json *schema, const sl_json *value);

/* ---- messages ------------------------------------------------------------------------------ */

// The longest beginning of at most max bytes that ends between characters.
static size_t cut(const char *text, size_t len, size_t max) {
    if (len <= max)
        return len;
    while (max > 0 && ((uint8_t)text[max] & 0xc0) == 0x80)
        max--;
    return max;
}

static void show_text(sl_buf *buf, const char *text, size_t len) {
    size_t n = cut(text, len, SHOWN_BYTES);
    sl_buf_add_json_string(buf, text, n);
    if (n < len)
        sl_buf_add_text(buf, "...");
}

// Whether a list that is being written has come to its end, for want of room.
static bool list_goes_on(sl_buf *buf, bool first) {
    if (!first)
        sl_buf_add_text(buf, ", ");
    if (buf->len <= LIST_BYTES)
        return true;
    sl_buf_add_text(buf, "...");
    return false;
}

static void show_names(sl_buf *buf, const sl_json *object) {
    for (const sl_json *m = object->child; m && list_goes_on(buf, m == object->child); m = m->next)
        show_text(buf, m->key, m->key_len);
}

static void show(sl_buf *buf, const sl_json *value) {
    switch (value->type) {
    case SL_JSON_NULL:
        sl_buf_add_text(buf, "null");
        break;
    case SL_JSON_FALSE:
        sl_buf_add_text(buf, "false");
        break;
    case SL_JSON_TRUE:
        sl_buf_add_text(buf, "true");
        break;
    case SL_JSON_NUMBER:
        sl_buf_add(buf, value->text, SL_MIN(value->text_len, SHOWN_BYTES));
        sl_buf_add_text(buf, value->text_len > SHOWN_BYTES ? "..." : "");
        break;
    case SL_JSON_STRING:
        show_text(buf, value->text, value->text_len);
        break;
    case SL_JSON_ARRAY:
        sl_buf_printf(buf, "an array of %u", value->n_children);
        break;
    case SL_JSON_OBJECT:
        sl_buf_add_text(buf, value->n_children ? "an object of " : "an object of nothing");
        show_names(buf, value);
        break;
    }
}

static void show_pointer(sl_buf *buf, const sl_json *root, const sl_json *node) {
    if (node == root || !sl__find_pointer(root, node, buf)) {
        sl_buf_add_text(buf, "(root)");
    } else if (buf->failed) { // its end is missing, maybe of a character too
        buf->len = cut(buf->data, buf->len, buf->len - 4);
        buf->failed = false;
        sl_buf_add_text(buf, "...");
    }
}

/* value does not fit: "POINTER: expected WHAT, found WHAT". Of misfits below anyOf the one is told whose
 * rank is highest: first the depth counts, then whether the value was of the right type. */
static SL_NOINLINE sl_status misfit(sl__checker *k, const sl_json *value, const char *fmt, ...)
    SL_PRINTF(3, 4);

static SL_NOINLINE sl_status misfit(sl__checker *k, const sl_json *value, const char *fmt, ...) {
    char pointer[POINTER_BYTES], found[FOUND_BYTES], expected[EXPECTED_BYTES];
    sl_buf where, what;
    va_list args;
    k->rank = 2 * k->level + 1;
    if (k->quiet || !k->c.err)
        return SL_ERR_ARGUMENT;
    va_start(args, fmt);
    (void)vsnprintf(expected, sizeof(expected), fmt, args);
    va_end(args);
    sl_buf_init_fixed(&where, pointer, sizeof(pointer));
    show_pointer(&where, k->instance, value);
    sl_buf_init_fixed(&what, found, sizeof(found));
    show(&what, value);
    return sl_fail(k->c.err, SL_ERR_ARGUMENT, "%s: expected %s, found %s", where.data, expected,
                   what.data);
}

// The same where the value is not of the kind that was meant: of the wrong type, another constant.
static sl_status other_kind(sl__checker *k, const sl_json *value, const char *expected) {
    sl_status st = misfit(k, value, "%s", expected);
    k->rank = 2 * k->level;
    return st;
}

/* ---- what keywords share ------------------------------------------------------------------- */

static sl_status eval_quietly(sl__checker *k, const sl_json *schema, const sl_json *value,
                              bool *fits) {
    k->quiet++;
    sl_status st = eval(k, schema, value);
    k->quiet--;
    *fits = st == SL_OK;
    return st == SL_ERR_ARGUMENT ? SL_OK : st;
}

static sl_status eval_inside(sl__checker *k, const sl_json *schema, const sl_json *value) {
    k->level++;
    sl_status st = eval(k, schema, value);
    k->level--;
    return st;
}

static const sl_json *find_key(const sl_json *object, const char *key, size_t len) {
    const sl_json *m = object ? object->child : NULL;
    while (m && (m->key_len != len || memcmp(m->key, key, len) != 0))
        m = m->next;
    return m;
}

// Work of looking for one key.
static sl_status spend_search(sl__checker *k, const sl_json *object) {
    return sl__check_spend(k, object ? object->n_children + (uint64_t)1 : 1);
}

static uint64_t count_of(const sl_json *member) {
    uint64_t n;
    return sl_json_uint64(member, &n) ? n : UINT64_MAX; // a whole number, as was looked at
}

static bool is_within(const sl_json *min, const sl_json *max, uint64_t n) {
    return (!min || n >= count_of(min)) && (!max || n <= count_of(max));
}

static sl__decimal decimal_of(const sl_json *number) {
    sl__decimal d;
    (void)sl__decimal_parse(number->text, number->text_len, &d); // its length was looked at
    return d;
}

static sl_status match(sl__checker *k, const sl__dfa *dfa, const char *text, size_t len,
                       bool *matches) {
    uint32_t state = 0;
    *matches = false;
    for (size_t i = 0; dfa->next && i < len;) {
        uint32_t cp;
        uint8_t spelled[12];
        i += sl_utf8_decode_valid((const uint8_t *)text + i, &cp);
        size_t n = sl__spell_character(cp, false, spelled);
        for (size_t b = 0; b < n; b++) {
            state = dfa->next[state * dfa->n_classes + dfa->class_of[spelled[b]]];
            if (state == SL__DFA_DEAD)
                return sl__check_spend(k, i);
        }
    }
    *matches = dfa->next && (dfa->flags[state] & SL__DFA_ACCEPT);
    return sl__check_spend(k, len);
}

/* ---- equality ------------------------------------------------------------------------------ */

static sl_status equals(sl__checker *k, const sl_json *a, const sl_json *b, bool *equal) {
    *equal = false;
    if (a->type != b->type || a->n_children != b->n_children)
        return sl__check_spend(k, 1);
    sl_status st = sl__check_spend(k, a->n_children ? sl__json_equal_cost(a) : 4 + a->text_len / 8);
    if (!st)
        *equal = sl__json_equal(a, b);
    return st;
}

static uint64_t mix(uint64_t hash) {
    hash ^= hash >> 32;
    hash *= 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return mix(hash);
}

// Equal values have equal hashes: numbers by value, keys in any order.
static uint64_t hash_of(sl__checker *k, const sl_json *value) {
    uint64_t hash = mix((uint64_t)value->type + 1);
    k->c.n_steps += 4 + value->text_len / 4;
    if (value->type == SL_JSON_NUMBER) {
        sl__decimal d = decimal_of(value);
        hash = mix(hash ^ (uint64_t)(uint32_t)d.point << 1 ^ d.negative);
        return hash_bytes(hash, d.digits, d.n);
    }
    if (value->type == SL_JSON_STRING)
        return hash_bytes(hash, value->text, value->text_len);
    for (const sl_json *child = value->child; child; child = child->next) {
        uint64_t one = hash_of(k, child);
        if (value->type == SL_JSON_OBJECT)
            hash += mix(hash_bytes(one, child->key, child->key_len));
        else
            hash = mix(hash * 3 + one);
    }
    return hash;
}

/* ---- any type ------------------------------------------------------------------------------ */

static sl_status check_type(sl__checker *k, const sl_json *schema, const sl_json *member,
                            const sl_json *value) {
    const sl__set one = {.n = 1, .elements = {(uint64_t)(uintptr_t)schema}};
    char text[TEXT_BYTES];
    sl_buf names;
    uint32_t types;
    sl_status st = sl__set_types(&k->c, &one, &types);
    if (st || (types & sl__type_of(value)))
        return st;
    if (k->quiet)
        return other_kind(k, value, "");
    sl_buf_init_fixed(&names, text, sizeof(text));
    if (member->type == SL_JSON_STRING)
        sl_buf_add_text(&names, member->text);
    for (const sl_json *t = member->child; t; t = t->next) {
        sl_buf_add_text(&names, t == member->child ? "" : " or ");
        sl_buf_add_text(&names, t->text);
    }
    return other_kind(k, value, names.data);
}

static sl_status check_const(sl__checker *k, const sl_json *schema, const sl_json *member,
                             const sl_json *value) {
    char text[TEXT_BYTES];
    sl_buf shown;
    bool equal;
    (void)schema;
    sl_status st = equals(k, member, value, &equal);
    if (st || equal)
        return st;
    sl_buf_init_fixed(&shown, text, sizeof(text));
    show(&shown, member);
    return other_kind(k, value, shown.data);
}

static sl_status check_enum(sl__checker *k, const sl_json *schema, const sl_json *member,
                            const sl_json *value) {
    char text[TEXT_BYTES] = "one of ";
    sl_buf shown;
    (void)schema;
    for (const sl_json *one = member->child; one; one = one->next) {
        bool equal;
        sl_status st = equals(k, one, value, &equal);
        if (st || equal)
            return st;
    }
    sl_buf_init_fixed(&shown, text, sizeof(text));
    sl_buf_add_text(&shown, "one of ");
    for (const sl_json *one = member->child; one && list_goes_on(&shown, one == member->child);
         one = one->next)
        show(&shown, one);
    return other_kind(k, value, shown.data);
}

/* ---- numbers ------------------------------------------------------------------------------- */

static sl_status check_bound(sl__checker *k, const sl_json *schema, const sl_json *member,
                             const sl_json *value) {
    const char *word = member->key;
    bool exclusive = word[0] == 'e', is_min = word[exclusive ? 10 : 1] == 'i';
    if (member->type != SL_JSON_NUMBER)
        return SL_OK; // of an older draft: it is looked at with the other bound, here
    exclusive |= sl_json_is(
        sl_json_member(schema, is_min ? "exclusiveMinimum" : "exclusiveMaximum"), SL_JSON_TRUE);
    sl__decimal number = decimal_of(value), bound = decimal_of(member);
    int order = sl__decimal_compare(&number, &bound);
    if ((is_min ? order > 0 : order < 0) || (order == 0 && !exclusive))
        return SL_OK;
    return misfit(k, value, "a number %s %.*s",
                  is_min      ? exclusive ? "above" : "of at least"
                  : exclusive ? "below"
                              : "of at most",
                  (int)SL_MIN(member->text_len, SHOWN_BYTES), member->text);
}

/* Both numbers are scaled by the power of ten that makes the divisor a whole number; what is then left
 * of the value after the point is no multiple. The rest of a division, digit by digit, is below 10^18. */
static sl_status check_multiple(sl__checker *k, const sl_json *schema, const sl_json *member,
                                const sl_json *value) {
    sl__decimal number = decimal_of(value), divisor = decimal_of(member);
    int32_t scale = SL_MAX((int32_t)divisor.n - divisor.point, 0);
    int32_t n_digits = number.point + scale; // of the number, scaled
    uint64_t whole = 0, rest = 0;
    (void)schema;
    for (int32_t i = 0; i < divisor.point + scale; i++)
        whole = whole * 10 + (i < divisor.n ? divisor.digits[i] : 0);
    assert(whole > 0); // as was looked at
    for (int32_t i = 0; i < n_digits; i++)
        rest = (rest * 10 + (i < number.n ? number.digits[i] : 0)) % whole;
    sl_status st = sl__check_spend(k, (uint64_t)SL_MAX(n_digits, 0));
    if (st || (rest == 0 && number.n <= SL_MAX(n_digits, 0)))
        return st;
    return misfit(k, value, "a multiple of %.*s", (int)SL_MIN(member->text_len, SHOWN_BYTES),
                  member->text);
}

/* ---- strings ------------------------------------------------------------------------------- */

static sl_status check_length(sl__checker *k, const sl_json *schema, const sl_json *member,
                              const sl_json *value) {
    bool is_min = member->key[1] == 'i';
    uint32_t n = sl__n_characters(value->text, value->text_len);
    sl_status st = sl__check_spend(k, value->text_len / 8);
    (void)schema;
    if (st || is_within(is_min ? member : NULL, is_min ? NULL : member, n))
        return st;
    return misfit(k, value, "%s %.*s characters", is_min ? "at least" : "at most",
                  (int)SL_MIN(member->text_len, SHOWN_BYTES), member->text);
}

static sl_status check_pattern(sl__checker *k, const sl_json *schema, const sl_json *member,
                               const sl_json *value) {
    char text[TEXT_BYTES];
    sl_buf pattern;
    bool matches;
    (void)schema;
    sl_status st = match(k, sl__check_find(k, member)->dfa, value->text, value->text_len, &matches);
    if (st || matches)
        return st;
    sl_buf_init_fixed(&pattern, text, sizeof(text));
    show_text(&pattern, member->text, member->text_len);
    return misfit(k, value, "a text in which %s is found", pattern.data);
}

/* ---- arrays -------------------------------------------------------------------------------- */

static sl_status check_size(sl__checker *k, const sl_json *schema, const sl_json *member,
                            const sl_json *value) {
    bool is_min = member->key[1] == 'i';
    (void)schema;
    if (is_within(is_min ? member : NULL, is_min ? NULL : member, value->n_children))
        return SL_OK;
    return misfit(k, value, "%s %.*s %s", is_min ? "at least" : "at most",
                  (int)SL_MIN(member->text_len, SHOWN_BYTES), member->text,
                  value->type == SL_JSON_ARRAY ? "items" : "properties");
}

static sl_status check_prefix(sl__checker *k, const sl_json *schema, const sl_json *member,
                              const sl_json *value) {
    const sl_json *s = member->child;
    sl_status st = SL_OK;
    (void)schema;
    for (const sl_json *item = value->child; !st && item && s; item = item->next, s = s->next)
        st = eval_inside(k, s, item);
    return st;
}

static sl_status check_items(sl__checker *k, const sl_json *schema, const sl_json *member,
                             const sl_json *value) {
    const sl_json *prefix = sl_json_member(schema, "prefixItems");
    const sl_json *item = value->child;
    sl_status st = SL_OK;
    if (member->type == SL_JSON_ARRAY) { // as before 2020-12
        st = check_prefix(k, schema, member, value);
        prefix = member;
        member = sl_json_member(schema, "additionalItems");
        if (st || !member)
            return st;
    }
    for (uint32_t i = prefix ? prefix->n_children : 0; item && i > 0; i--)
        item = item->next;
    for (; !st && item; item = item->next)
        st = eval_inside(k, member, item);
    return st;
}

static sl_status check_contains(sl__checker *k, const sl_json *schema, const sl_json *member,
                                const sl_json *value) {
    const sl_json *min = sl_json_member(schema, "minContains");
    const sl_json *max = sl_json_member(schema, "maxContains");
    uint64_t n = 0;
    k->level++;
    for (const sl_json *item = value->child; item; item = item->next) {
        bool fits;
        sl_status st = eval_quietly(k, member, item, &fits);
        if (st)
            return st;
        n += fits;
    }
    k->level--;
    if (is_within(min, max, n) && (min || n > 0))
        return SL_OK;
    bool too_many = !is_within(NULL, max, n);
    const sl_json *missed = too_many ? max : min;
    return misfit(k, value, "at %s %.*s items that fit contains (%llu do)",
                  too_many ? "most" : "least",
                  missed ? (int)SL_MIN(missed->text_len, SHOWN_BYTES) : 1,
                  missed ? missed->text : "1", (unsigned long long)n);
}

static sl_status check_unique(sl__checker *k, const sl_json *schema, const sl_json *member,
                              const sl_json *value) {
    typedef struct place {
        const sl_json *item;
        uint64_t hash;
    } place;
    size_t mark = sl_arena_mark(k->c.scratch), n = 4;
    (void)schema;
    if (member->type == SL_JSON_FALSE || value->n_children < 2)
        return SL_OK;
    while (n < 2 * (size_t)value->n_children)
        n *= 2;
    place *table = sl__take(&k->c, k->c.scratch, n * sizeof(*table), 8);
    if (!table)
        return SL_ERR_MEMORY;
    memset(table, 0, n * sizeof(*table));
    sl_status st = sl__check_spend(k, n);
    bool equal = false;
    for (const sl_json *item = value->child; !st && !equal && item; item = item->next) {
        uint64_t hash = hash_of(k, item);
        size_t at = hash & (n - 1);
        for (; !st && !equal && table[at].item; at = (at + 1) & (n - 1)) {
            st = sl__check_spend(k, 1);
            if (!st && table[at].hash == hash)
                st = equals(k, table[at].item, item, &equal);
        }
        table[at] = (place){.item = item, .hash = hash};
    }
    sl_arena_reset(k->c.scratch, mark);
    return st || !equal ? st : misfit(k, value, "items of which no two are equal");
}

/* ---- objects ------------------------------------------------------------------------------- */

static sl_status check_names(sl__checker *k, const sl_json *names, const sl_json *value) {
    for (const sl_json *name = names->child; name; name = name->next) {
        char text[TEXT_BYTES];
        sl_buf shown;
        sl_status st = spend_search(k, value);
        if (st)
            return st;
        if (find_key(value, name->text, name->text_len))
            continue;
        sl_buf_init_fixed(&shown, text, sizeof(text));
        show_text(&shown, name->text, name->text_len);
        return misfit(k, value, "a property %s", shown.data);
    }
    return SL_OK;
}

static sl_status check_required(sl__checker *k, const sl_json *schema, const sl_json *member,
                                const sl_json *value) {
    (void)schema;
    return check_names(k, member, value);
}

// Lists of names and schemas that matter where the value has a key.
static sl_status check_dependent(sl__checker *k, const sl_json *schema, const sl_json *member,
                                 const sl_json *value) {
    sl_status st = SL_OK;
    (void)schema;
    for (const sl_json *d = member->child; !st && d; d = d->next) {
        st = spend_search(k, value);
        if (st || !find_key(value, d->key, d->key_len))
            continue;
        st = d->type == SL_JSON_ARRAY ? check_names(k, d, value) : eval(k, d, value);
    }
    return st;
}

static sl_status check_properties(sl__checker *k, const sl_json *schema, const sl_json *member,
                                  const sl_json *value) {
    sl_status st = SL_OK;
    (void)schema;
    for (const sl_json *m = value->child; !st && m; m = m->next) {
        st = spend_search(k, member);
        const sl_json *s = st ? NULL : find_key(member, m->key, m->key_len);
        if (s)
            st = eval_inside(k, s, m);
    }
    return st;
}

static sl_status check_pattern_properties(sl__checker *k, const sl_json *schema,
                                          const sl_json *member, const sl_json *value) {
    sl_status st = SL_OK;
    (void)schema;
    for (const sl_json *s = member->child; !st && s; s = s->next) {
        const sl__dfa *dfa = sl__check_find(k, s)->dfa;
        for (const sl_json *m = value->child; !st && m; m = m->next) {
            bool matches;
            st = match(k, dfa, m->key, m->key_len, &matches);
            if (!st && matches)
                st = eval_inside(k, s, m);
        }
    }
    return st;
}

static sl_status is_declared(sl__checker *k, const sl_json *schema, const sl_json *m,
                             bool *declared) {
    const sl_json *properties = sl_json_member(schema, "properties");
    const sl_json *patterns = sl_json_member(schema, "patternProperties");
    sl_status st = spend_search(k, properties);
    *declared = find_key(properties, m->key, m->key_len) != NULL;
    for (const sl_json *s = patterns ? patterns->child : NULL; !st && !*declared && s; s = s->next)
        st = match(k, sl__check_find(k, s)->dfa, m->key, m->key_len, declared);
    return st;
}

static sl_status check_additional(sl__checker *k, const sl_json *schema, const sl_json *member,
                                  const sl_json *value) {
    char text[TEXT_BYTES];
    sl_buf names;
    sl_status st = SL_OK;
    for (const sl_json *m = value->child; !st && m; m = m->next) {
        bool declared;
        st = is_declared(k, schema, m, &declared);
        if (st || declared)
            continue;
        if (member->type != SL_JSON_FALSE) {
            st = eval_inside(k, member, m);
            continue;
        }
        const sl_json *properties = sl_json_member(schema, "properties");
        sl_buf_init_fixed(&names, text, sizeof(text));
        if (properties && properties->n_children)
            show_names(&names, properties);
        else
            sl_buf_add_text(&names, "none");
        return misfit(k, m, "no property of this name (declared: %s)", names.data);
    }
    return st;
}

static sl_status check_property_names(sl__checker *k, const sl_json *schema, const sl_json *member,
                                      const sl_json *value) {
    (void)schema;
    for (const sl_json *m = value->child; m; m = m->next) {
        const sl_json name = {.type = SL_JSON_STRING, .text = m->key, .text_len = m->key_len};
        bool fits;
        sl_status st = eval_quietly(k, member, &name, &fits);
        if (st)
            return st;
        if (!fits)
            return misfit(k, m, "a name as propertyNames asks for");
    }
    return SL_OK;
}

/* ---- schemas of the same value ------------------------------------------------------------- */

static sl_status check_ref(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl_json *value) {
    (void)member;
    return eval(k, sl__check_find(k, schema)->target, value);
}

static sl_status check_all(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl_json *value) {
    sl_status st = SL_OK;
    (void)schema;
    for (const sl_json *s = member->child; !st && s; s = s->next)
        st = eval(k, s, value);
    return st;
}

/* None of the schemas fits. When one of them fits but for something inside the value, that is what is
 * told. Otherwise the value is of another kind than all of them, and their types are told. */
static sl_status tell_closest(sl__checker *k, const sl_json *member, const sl_json *value,
                              const sl_json *closest, uint32_t rank) {
    char text[TEXT_BYTES];
    sl_buf kinds;
    if (!k->quiet && rank > 2 * k->level)
        return eval(k, closest, value);
    sl_buf_init_fixed(&kinds, text, sizeof(text));
    for (const sl_json *s = member->child; !k->quiet && s && kinds.len <= LIST_BYTES; s = s->next) {
        const sl_json *type = sl_json_member(s, "type"), *constant = sl_json_member(s, "const");
        if (kinds.len)
            sl_buf_add_text(&kinds, " or ");
        if (constant)
            show(&kinds, constant);
        else if (sl_json_is(type, SL_JSON_STRING))
            sl_buf_add_text(&kinds, type->text);
        else
            sl_buf_printf(&kinds, "what another schema of %s says", member->key);
    }
    sl_status st = misfit(k, value, "%s", kinds.data);
    k->rank = rank;
    return st;
}

static sl_status check_any(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl_json *value) {
    const sl_json *closest = member->child;
    uint32_t rank = 0;
    (void)schema;
    for (const sl_json *s = member->child; s; s = s->next) {
        bool fits;
        sl_status st = eval_quietly(k, s, value, &fits);
        if (st || fits)
            return st;
        if (k->rank > rank) {
            rank = k->rank;
            closest = s;
        }
    }
    return tell_closest(k, member, value, closest, rank);
}

static sl_status check_one(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl_json *value) {
    const sl_json *closest = member->child;
    uint32_t rank = 0, n_fit = 0, first = 0, i = 0;
    (void)schema;
    for (const sl_json *s = member->child; s; s = s->next, i++) {
        bool fits;
        sl_status st = eval_quietly(k, s, value, &fits);
        if (st)
            return st;
        if (fits && n_fit++)
            return misfit(k, value, "to fit one schema of oneOf alone (it fits %u and %u)", first,
                          i);
        if (fits)
            first = i;
        if (!fits && k->rank > rank) {
            rank = k->rank;
            closest = s;
        }
    }
    return n_fit ? SL_OK : tell_closest(k, member, value, closest, rank);
}

static sl_status check_not(sl__checker *k, const sl_json *schema, const sl_json *member,
                           const sl_json *value) {
    bool fits;
    (void)schema;
    sl_status st = eval_quietly(k, member, value, &fits);
    return st || !fits ? st : misfit(k, value, "what does not fit the schema of not");
}

static sl_status check_if(sl__checker *k, const sl_json *schema, const sl_json *member,
                          const sl_json *value) {
    bool fits;
    sl_status st = eval_quietly(k, member, value, &fits);
    const sl_json *s = sl_json_member(schema, fits ? "then" : "else");
    return st || !s ? st : eval(k, s, value);
}

/* ---- the table ----------------------------------------------------------------------------- */

#define NUMBERS (SL__T_INTEGER | SL__T_NUMBER)

static const sl__check_row rows[] = {
    // In the order of strcmp(): they are searched by halving.
    {"$defs", SL__IS_DEFINITIONS, 0, false, NULL},
    {"$dynamicRef", SL__IS_REFUSED, 0, false, NULL},
    {"$id", SL__IS_ID, 0, false, NULL},
    {"$recursiveRef", SL__IS_REFUSED, 0, false, NULL},
    {"$ref", SL__IS_REFERENCE, SL__T_ALL, true, check_ref},
    {"additionalItems", SL__IS_SCHEMA, 0, false, NULL},
    {"additionalProperties", SL__IS_SCHEMA, SL__T_OBJECT, false, check_additional},
    {"allOf", SL__IS_SCHEMAS, SL__T_ALL, true, check_all},
    {"anyOf", SL__IS_SCHEMAS, SL__T_ALL, true, check_any},
    {"const", SL__IS_VALUE, SL__T_ALL, false, check_const},
    {"contains", SL__IS_SCHEMA, SL__T_ARRAY, false, check_contains},
    {"definitions", SL__IS_DEFINITIONS, 0, false, NULL},
    {"dependencies", SL__IS_DEPENDENCIES, SL__T_OBJECT, true, check_dependent},
    {"dependentRequired", SL__IS_NAMES_MAP, SL__T_OBJECT, false, check_dependent},
    {"dependentSchemas", SL__IS_SCHEMA_MAP, SL__T_OBJECT, true, check_dependent},
    {"else", SL__IS_SCHEMA, 0, true, NULL},
    {"enum", SL__IS_VALUES, SL__T_ALL, false, check_enum},
    {"exclusiveMaximum", SL__IS_BOUND, NUMBERS, false, check_bound},
    {"exclusiveMinimum", SL__IS_BOUND, NUMBERS, false, check_bound},
    {"if", SL__IS_SCHEMA, SL__T_ALL, true, check_if},
    {"items", SL__IS_ITEMS, SL__T_ARRAY, false, check_items},
    {"maxContains", SL__IS_COUNT, 0, false, NULL},
    {"maxItems", SL__IS_COUNT, SL__T_ARRAY, false, check_size},
    {"maxLength", SL__IS_COUNT, SL__T_STRING, false, check_length},
    {"maxProperties", SL__IS_COUNT, SL__T_OBJECT, false, check_size},
    {"maximum", SL__IS_NUMBER, NUMBERS, false, check_bound},
    {"minContains", SL__IS_COUNT, 0, false, NULL},
    {"minItems", SL__IS_COUNT, SL__T_ARRAY, false, check_size},
    {"minLength", SL__IS_COUNT, SL__T_STRING, false, check_length},
    {"minProperties", SL__IS_COUNT, SL__T_OBJECT, false, check_size},
    {"minimum", SL__IS_NUMBER, NUMBERS, false, check_bound},
    {"multipleOf", SL__IS_DIVISOR, NUMBERS, false, check_multiple},
    {"not", SL__IS_SCHEMA, SL__T_ALL, true, check_not},
    {"oneOf", SL__IS_SCHEMAS, SL__T_ALL, true, check_one},
    {"pattern", SL__IS_PATTERN, SL__T_STRING, false, check_pattern},
    {"patternProperties", SL__IS_PATTERN_MAP, SL__T_OBJECT, false, check_pattern_properties},
    {"prefixItems", SL__IS_SCHEMAS, SL__T_ARRAY, false, check_prefix},
    {"properties", SL__IS_SCHEMA_MAP, SL__T_OBJECT, false, check_properties},
    {"propertyNames", SL__IS_SCHEMA, SL__T_OBJECT, false, check_property_names},
    {"required", SL__IS_NAMES, SL__T_OBJECT, false, check_required},
    {"then", SL__IS_SCHEMA, 0, true, NULL},
    {"type", SL__IS_TYPES, 0, false, NULL}, // the first of all: see eval()
    {"unevaluatedItems", SL__IS_TRUE_OR_REFUSED, 0, false, NULL},
    {"unevaluatedProperties", SL__IS_TRUE_OR_REFUSED, 0, false, NULL},
    {"uniqueItems", SL__IS_FLAG, SL__T_ARRAY, false, check_unique},
};

const sl__check_row *sl__check_row_of(const sl_json *member) {
    size_t lo = 0, hi = SL_COUNT(rows);
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        int order = strcmp(member->key, rows[middle].name);
        if (order == 0)
            return member->key_len == strlen(member->key) ? &rows[middle] : NULL;
        if (order < 0)
            hi = middle;
        else
            lo = middle + 1;
    }
    return NULL;
}

/* ---- the walk ------------------------------------------------------------------------------ */

static sl_status eval_members(sl__checker *k, const sl_json *schema, const sl_json *value) {
    const sl_json *type = sl_json_member(schema, "type");
    uint32_t types = sl__type_of(value);
    // The type first: what else does not fit follows from it.
    sl_status st = type ? check_type(k, schema, type, value) : SL_OK;
    for (const sl_json *m = schema->child; !st && m; m = m->next) {
        const sl__check_row *row = sl__check_row_of(m);
        if (row && row->check && (row->types & types))
            st = row->check(k, schema, m, value);
    }
    return st;
}

// SL_OK: value fits. SL_ERR_ARGUMENT: it does not. Others: the check ends.
static sl_status eval(sl__checker *k, const sl_json *schema, const sl_json *value) {
    if (schema->type == SL_JSON_TRUE)
        return SL_OK;
    if (schema->type == SL_JSON_FALSE)
        return misfit(k, value, "nothing at this place");
    sl_status st = sl__check_spend(k, 10 * (uint64_t)schema->n_children + 4);
    if (st)
        return st;
    if (k->depth == SL_SCHEMA_CHECK_DEPTH_MAX)
        return sl__refuse(&k->c, schema, NULL, "more than %d schemas within schemas",
                          SL_SCHEMA_CHECK_DEPTH_MAX);
    k->depth++;
    st = eval_members(k, schema, value);
    k->depth--;
    return st;
}

static sl_status check(sl__checker *k) {
    sl_status st = sl__check_prepare(k);
    if (st || !k->instance)
        return st;
    const sl_json *number = sl__check_long_number(k->instance);
    if (number)
        return misfit(k, number, "a number of at most %d digits, its exponent of at most 4",
                      SL__DIGITS_MAX);
    return eval(k, k->c.root, k->instance);
}

sl_status sl_schema_check(const sl_json *schema, const sl_json *instance, sl_arena *scratch,
                          sl_error *why) {
    sl_constraint_limits limits = sl_constraint_limits_default();
    size_t mark = sl_arena_mark(scratch);
    limits.n_steps_max = SL_SCHEMA_CHECK_STEPS_MAX;
    sl__checker k = {.c = {.limits = &limits, .scratch = scratch, .err = why, .root = schema},
                     .instance = instance};
    sl_status st = check(&k);
    sl_arena_reset(scratch, mark);
    return st;
}

sl_status sl_schema_check_text(const char *schema, size_t schema_len, const char *instance,
                               size_t instance_len, sl_arena *scratch, sl_error *why) {
    size_t mark = sl_arena_mark(scratch);
    sl_json *s, *v;
    sl_status st = sl_json_parse(schema, schema_len, scratch, &s, why);
    if (!st)
        st = sl_json_parse(instance, instance_len, scratch, &v, why);
    if (!st)
        st = sl_schema_check(s, v, scratch, why);
    sl_arena_reset(scratch, mark);
    return st;
}
