/* Walks the tree of a template: statements, scopes, calls, output. Functions that recurse are kept
 * small, each level counts against the depth limit, and what a kind of node needs beyond a few words
 * of stack lives in a function of its own. */
#include <string.h>

#include "text/template_internal.h"

typedef enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAIL } flow;

static bool eval(tpl_run *run, const tpl_node *node, tpl_val *out);
static flow exec(tpl_run *run, const tpl_node *body);

/* ---- scopes -------------------------------------------------------------------------------- */

static tpl_binding *find_binding(tpl_scope *scope, const char *name, uint32_t len) {
    tpl_binding *b = scope->first;
    while (b && !(b->len == len && memcmp(b->name, name, len) == 0))
        b = b->next;
    return b;
}

bool sl__tpl_lookup(tpl_scope *scope, const char *name, uint32_t len, tpl_val *out) {
    for (; scope; scope = scope->parent) {
        const tpl_binding *b = find_binding(scope, name, len);
        if (b && b->val.type != TPL_V_ABSENT) {
            *out = b->val;
            return true;
        }
    }
    return false;
}

bool sl__tpl_scope_set(tpl_run *run, tpl_scope *scope, const char *name, uint32_t len,
                       const tpl_val *val) {
    tpl_binding *b = find_binding(scope, name, len);
    if (!b) {
        if (!(b = sl__tpl_alloc(run, 1, sizeof(*b))))
            return false;
        *b = (tpl_binding){.name = name, .len = len, .next = scope->first};
        scope->first = b;
    }
    b->val = *val;
    return true;
}

// A scope inside the given one. The caller puts run->scope back.
static tpl_scope *new_scope(tpl_run *run, tpl_scope *parent) {
    tpl_scope *scope = sl__tpl_alloc(run, 1, sizeof(*scope));
    if (scope)
        *scope = (tpl_scope){.parent = parent};
    return scope;
}

static bool eval_name(tpl_run *run, const tpl_node *node, tpl_val *out) {
    const tpl_val *found;
    tpl_val key = tpl_str(node->text, node->len);
    if (sl__tpl_lookup(run->scope, node->text, node->len, out))
        return true;
    if (!sl__tpl_dict_find(run, &run->vars, &key, &found))
        return false;
    const tpl_callable *fn = found ? NULL : sl__tpl_find_function(node->text, node->len);
    *out = found ? *found
           : fn  ? (tpl_val){.type = TPL_V_FUNCTION, .fn = fn}
                 : tpl_undefined(node->text, node->len);
    return true;
}

static bool assign(tpl_run *run, const tpl_node *target, const tpl_val *val) {
    run->at = target->at;
    if (target->kind == TPL_NAME)
        return sl__tpl_scope_set(run, run->scope, target->text, target->len, val);
    if (target->kind == TPL_ATTR) {
        tpl_val object;
        if (!eval_name(run, target->a, &object))
            return false;
        if (object.type != TPL_V_NAMESPACE)
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "cannot set an attribute of '%s'",
                                sl__tpl_type_name(&object));
        return sl__tpl_scope_set(run, object.scope, target->text, target->len, val);
    }
    const tpl_val *items;
    uint32_t n, i = 0, wanted = 0;
    if (!sl__tpl_iterate(run, val, &items, &n))
        return false;
    for (const tpl_node *t = target->a; t; t = t->next)
        wanted++;
    if (n != wanted)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%u values for %u names", n, wanted);
    for (const tpl_node *t = target->a; t; t = t->next) {
        if (!assign(run, t, &items[i++]))
            return false;
    }
    return true;
}

/* ---- output -------------------------------------------------------------------------------- */

static bool emit(tpl_run *run, const char *s, size_t len) {
    if (len == 0)
        return true;
    if (!sl__tpl_steps(run, len / 64))
        return false;
    if (run->capture) {
        tpl_piece *piece = sl__tpl_alloc(run, 1, sizeof(*piece));
        if (!piece)
            return false;
        *piece = (tpl_piece){.s = s, .len = len};
        *run->capture->tail = piece;
        run->capture->tail = &piece->next;
        run->capture->bytes += len;
        return true;
    }
    if (len > run->limits->output_bytes_max - run->out_bytes)
        return sl__tpl_fail(run, SL_ERR_CONTEXT, "more than %zu bytes of output",
                            run->limits->output_bytes_max);
    run->out_bytes += len;
    sl_buf_add(run->out, s, len);
    if (!run->out->failed)
        return true;
    return run->out->fixed ? sl__tpl_fail(run, SL_ERR_CONTEXT,
                                          "the output does not fit in %zu bytes", run->out->cap)
                           : sl__tpl_fail(run, SL_ERR_MEMORY, "no memory for %zu bytes of output",
                                          run->out->len + len);
}

static void begin_capture(tpl_run *run, tpl_capture *capture) {
    *capture = (tpl_capture){.tail = &capture->first, .outer = run->capture};
    run->capture = capture;
}

static bool end_capture(tpl_run *run, tpl_capture *capture, tpl_val *out) {
    run->capture = capture->outer;
    if (run->status)
        return false;
    *out = tpl_str("", 0);
    // One piece is a string already.
    if (capture->first && !capture->first->next && capture->bytes <= UINT32_MAX) {
        *out = tpl_str(capture->first->s, capture->first->len);
        return true;
    }
    tpl_text text = sl__tpl_text(run);
    for (const tpl_piece *p = capture->first; p; p = p->next)
        sl__tpl_text_add(&text, p->s, p->len);
    return sl__tpl_text_end(&text, out);
}

/* ---- calls --------------------------------------------------------------------------------- */

static bool eval_args(tpl_run *run, const tpl_node *node, tpl_args *args) {
    uint32_t n_pos = 0, n_kw = 0;
    *args = (tpl_args){0};
    if (!node)
        return true;
    for (const tpl_node *a = node; a; a = a->next) {
        n_kw += a->kind == TPL_KEYWORD;
        n_pos += a->kind != TPL_KEYWORD;
    }
    tpl_val *pos = sl__tpl_alloc(run, n_pos, sizeof(*pos));
    tpl_keyword_arg *kw = sl__tpl_alloc(run, n_kw, sizeof(*kw));
    if (!pos || !kw)
        return false;
    *args = (tpl_args){.pos = pos, .kw = kw, .n_pos = n_pos, .n_kw = n_kw};
    for (const tpl_node *a = node; a; a = a->next) {
        if (a->kind == TPL_KEYWORD) {
            kw->name = a->text;
            kw->len = a->len;
            if (!eval(run, a->a, &kw++->val))
                return false;
        } else if (!eval(run, a, pos++)) {
            return false;
        }
    }
    return true;
}

// Parameters of a macro that were not given are undefined, or their default, which is evaluated in
// the macro's scope and so may name the parameters before it.
static bool bind_macro(tpl_run *run, const tpl_node *macro, const tpl_args *args,
                       tpl_scope *scope) {
    uint32_t i = 0, used = 0;
    for (const tpl_node *p = macro->a; p; p = p->next, i++) {
        const tpl_val *given = i < args->n_pos ? &args->pos[i] : NULL;
        for (uint32_t k = 0; k < args->n_kw && !given; k++) {
            if (args->kw[k].len == p->len && !memcmp(args->kw[k].name, p->text, p->len)) {
                given = &args->kw[k].val;
                used++;
            }
        }
        tpl_val missing = tpl_undefined(p->text, p->len);
        if (!sl__tpl_scope_set(run, scope, p->text, p->len, given ? given : &missing))
            return false;
        if (!given && p->a) {
            if (!eval(run, p->a, &missing) ||
                !sl__tpl_scope_set(run, scope, p->text, p->len, &missing))
                return false;
        }
    }
    if (args->n_pos > i)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "macro '%.*s' takes %u arguments, not %u",
                            (int)SL_MIN(macro->len, 60u), macro->text, i, args->n_pos);
    if (used != args->n_kw)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "macro '%.*s' has no argument of this name",
                            (int)SL_MIN(macro->len, 60u), macro->text);
    return true;
}

static SL_NOINLINE bool call_macro(tpl_run *run, const tpl_closure *closure, const tpl_args *args,
                                   tpl_val *out) {
    tpl_scope *caller = run->scope, *scope = new_scope(run, closure->scope);
    tpl_capture capture;
    if (!scope)
        return false;
    run->scope = scope;
    bool ok = bind_macro(run, closure->node, args, scope);
    if (ok) {
        begin_capture(run, &capture);
        exec(run, closure->node->b);
        ok = end_capture(run, &capture, out);
    }
    run->scope = caller;
    return ok;
}

static SL_NOINLINE bool eval_call(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val callee;
    tpl_args args;
    if (!eval(run, node->a, &callee) || !eval_args(run, node->b, &args))
        return false;
    run->at = node->a->at;
    switch (callee.type) {
    case TPL_V_MACRO:
        return call_macro(run, callee.macro, &args, out);
    case TPL_V_FUNCTION:
        return sl__tpl_call(run, callee.fn, &callee, &args, out);
    case TPL_V_METHOD:
        if (callee.bound->fn)
            return sl__tpl_call(run, callee.bound->fn, &callee.bound->self, &args, out);
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "this method of '%s'",
                            sl__tpl_type_name(&callee.bound->self));
    case TPL_V_UNDEFINED:
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%.*s' is undefined",
                            (int)SL_MIN(callee.len, 100u), callee.s);
    default:
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "'%s' cannot be called",
                            sl__tpl_type_name(&callee));
    }
}

static SL_NOINLINE bool eval_filter(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val subject;
    tpl_args args;
    if (!eval(run, node->a, &subject) || !eval_args(run, node->b, &args))
        return false;
    run->at = node->at;
    return sl__tpl_call(run, node->fn, &subject, &args, out);
}

/* ---- expressions --------------------------------------------------------------------------- */

static SL_NOINLINE bool eval_sequence(tpl_run *run, const tpl_node *node, tpl_val *out) {
    uint32_t n = 0;
    for (const tpl_node *a = node->a; a; a = a->next)
        n++;
    tpl_val *items = sl__tpl_alloc(run, n, sizeof(*items));
    if (!items)
        return false;
    *out = node->kind == TPL_LIST ? tpl_list(items, n) : tpl_tuple(items, n);
    for (const tpl_node *a = node->a; a; a = a->next) {
        if (!eval(run, a, items++))
            return false;
    }
    return true;
}

static SL_NOINLINE bool eval_dict(tpl_run *run, const tpl_node *node, tpl_val *out) {
    uint32_t n = 0, used = 0;
    for (const tpl_node *a = node->a; a; a = a->next->next)
        n++;
    tpl_pair *pairs = sl__tpl_alloc(run, n, sizeof(*pairs));
    if (!pairs)
        return false;
    for (const tpl_node *a = node->a; a; a = a->next->next) {
        tpl_val key, val;
        if (!eval(run, a, &key) || !eval(run, a->next, &val) ||
            !sl__tpl_dict_put(run, pairs, &used, &key, &val))
            return false;
    }
    *out = tpl_dict(pairs, used);
    return true;
}

static SL_NOINLINE bool eval_slice(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val object, index[3] = {{0}};
    if (!eval(run, node->a, &object))
        return false;
    int i = 0;
    for (const tpl_node *n = node->b; n; n = n->next, i++) {
        if (n->kind != TPL_ABSENT && !eval(run, n, &index[i]))
            return false;
    }
    run->at = node->at;
    return sl__tpl_slice(run, &object, index, out);
}

static SL_NOINLINE bool eval_item(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val object, index;
    if (!eval(run, node->a, &object) || !eval(run, node->b, &index))
        return false;
    run->at = node->at;
    return sl__tpl_item(run, &object, &index, out);
}

static SL_NOINLINE bool eval_binary(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val right;
    if (!eval(run, node->a, out))
        return false;
    for (const tpl_node *o = node->b; o; o = o->next) {
        if (!eval(run, o->a, &right))
            return false;
        run->at = o->at;
        tpl_val left = *out;
        if (!sl__tpl_binary(run, o->op, &left, &right, out))
            return false;
    }
    return true;
}

static SL_NOINLINE bool eval_concat(tpl_run *run, const tpl_node *node, tpl_val *out) {
    // All operands come first, then their text in one go.
    uint32_t n = 1, i = 0;
    for (const tpl_node *o = node->b; o; o = o->next)
        n++;
    tpl_val *parts = sl__tpl_alloc(run, n, sizeof(*parts));
    if (!parts || !eval(run, node->a, &parts[i++]))
        return false;
    for (const tpl_node *o = node->b; o; o = o->next) {
        if (!eval(run, o->a, &parts[i++]))
            return false;
    }
    run->at = node->at;
    for (i = 0; i < n; i++) {
        if (!sl__tpl_to_str(run, &parts[i], &parts[i]))
            return false;
    }
    tpl_text text = sl__tpl_text(run);
    for (i = 0; i < n; i++)
        sl__tpl_text_add(&text, parts[i].s, parts[i].len);
    return sl__tpl_text_end(&text, out);
}

// a < b < c: every operand is evaluated once, and none after the first comparison that is false.
static SL_NOINLINE bool eval_compare(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val left, right;
    bool holds = true;
    if (!eval(run, node->a, &left))
        return false;
    for (const tpl_node *o = node->b; o && holds; o = o->next) {
        if (!eval(run, o->a, &right))
            return false;
        run->at = o->at;
        if (!sl__tpl_compare(run, o->op, &left, &right, &holds))
            return false;
        left = right;
    }
    *out = tpl_bool(holds);
    return true;
}

static SL_NOINLINE bool eval_logic(tpl_run *run, const tpl_node *node, tpl_val *out) {
    bool stop_at = node->kind == TPL_OR;
    if (!eval(run, node->a, out))
        return false;
    for (const tpl_node *o = node->b; o && sl__tpl_truth(out) != stop_at; o = o->next) {
        if (!eval(run, o->a, out))
            return false;
    }
    return true;
}

static SL_NOINLINE bool eval_unary(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val v;
    if (!eval(run, node->a, &v))
        return false;
    run->at = node->at;
    return sl__tpl_unary(run, node->op, &v, out);
}

static bool eval_attr(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val object;
    if (!eval(run, node->a, &object))
        return false;
    run->at = node->at;
    return sl__tpl_attr(run, &object, node->text, node->len, out);
}

static bool eval_cond(tpl_run *run, const tpl_node *node, tpl_val *out) {
    tpl_val test;
    if (!eval(run, node->a, &test))
        return false;
    const tpl_node *taken = sl__tpl_truth(&test) ? node->b : node->c;
    *out = tpl_undefined("the value of an if without else", 31);
    return !taken || eval(run, taken, out);
}

static bool eval_node(tpl_run *run, const tpl_node *node, tpl_val *out) {
    switch ((tpl_kind)node->kind) {
    case TPL_CONST_NONE:
        *out = tpl_none();
        return true;
    case TPL_CONST_BOOL:
        *out = tpl_bool(node->op);
        return true;
    case TPL_CONST_INT:
        *out = tpl_int(node->i);
        return true;
    case TPL_CONST_FLOAT:
        *out = tpl_float(node->f);
        return true;
    case TPL_CONST_STR:
        *out = tpl_str(node->text, node->len);
        return true;
    case TPL_NAME:
        return eval_name(run, node, out);
    case TPL_SUBJECT:
        *out = run->subject;
        return true;
    case TPL_LIST:
    case TPL_TUPLE:
        return eval_sequence(run, node, out);
    case TPL_DICT:
        return eval_dict(run, node, out);
    case TPL_ATTR:
        return eval_attr(run, node, out);
    case TPL_ITEM:
        return eval_item(run, node, out);
    case TPL_SLICE:
        return eval_slice(run, node, out);
    case TPL_CALL:
        return eval_call(run, node, out);
    case TPL_FILTER:
    case TPL_TEST:
        return eval_filter(run, node, out);
    case TPL_UNARY:
        return eval_unary(run, node, out);
    case TPL_BINARY:
        return eval_binary(run, node, out);
    case TPL_CONCAT:
        return eval_concat(run, node, out);
    case TPL_COMPARE:
        return eval_compare(run, node, out);
    case TPL_AND:
    case TPL_OR:
        return eval_logic(run, node, out);
    default:
        return eval_cond(run, node, out);
    }
}

static bool eval(tpl_run *run, const tpl_node *node, tpl_val *out) {
    run->at = node->at;
    if (!sl__tpl_enter(run))
        return false;
    bool ok = sl__tpl_steps(run, 1) && eval_node(run, node, out);
    sl__tpl_leave(run);
    return ok;
}

/* ---- loops --------------------------------------------------------------------------------- */

// The next item that the loop's condition lets through, tried in a scope of its own.
static bool try_next(tpl_run *run, tpl_loop *loop, bool *kept) {
    tpl_scope *before = run->scope;
    tpl_val verdict;
    tpl_val *list = (tpl_val *)(uintptr_t)loop->kept; // ours, see exec_for
    const tpl_val *item = &loop->items[loop->n_tried++];
    run->scope = new_scope(run, loop->outer);
    bool ok =
        run->scope && assign(run, loop->node->a, item) && eval(run, loop->node->c->a, &verdict);
    run->scope = before;
    *kept = ok && sl__tpl_truth(&verdict);
    if (*kept)
        list[loop->n_kept++] = *item;
    return ok;
}

bool sl__tpl_loop_reach(tpl_run *run, tpl_loop *loop, uint32_t i, bool *exists) {
    while (loop->n_kept <= i && loop->n_tried < loop->n) {
        bool kept;
        if (!try_next(run, loop, &kept))
            return false;
    }
    *exists = i < loop->n_kept;
    return true;
}

// *completed: some turn ran to its end. That, and not whether there was an item, is what Jinja's else
// looks at.
static flow run_loop(tpl_run *run, tpl_loop *loop, tpl_scope *scope, bool *completed) {
    const tpl_val self = {.type = TPL_V_LOOP, .loop = loop};
    for (;; loop->index0++) {
        bool exists;
        run->scope = loop->outer;
        if (!sl__tpl_loop_reach(run, loop, loop->index0, &exists))
            return FLOW_FAIL;
        if (!exists)
            return FLOW_NEXT;
        run->scope = scope;
        for (tpl_binding *b = scope->first; b; b = b->next)
            b->val.type = TPL_V_ABSENT;
        if (!sl__tpl_scope_set(run, scope, "loop", 4, &self) ||
            !assign(run, loop->node->a, &loop->kept[loop->index0]))
            return FLOW_FAIL;
        flow f = exec(run, loop->node->c->b);
        if (f == FLOW_BREAK)
            return FLOW_NEXT;
        if (f == FLOW_FAIL)
            return f;
        *completed |= f == FLOW_NEXT;
    }
}

static SL_NOINLINE flow exec_for(tpl_run *run, const tpl_node *node) {
    tpl_val source;
    tpl_scope *outer = run->scope;
    tpl_loop *loop = sl__tpl_alloc(run, 1, sizeof(*loop));
    tpl_scope *scope = new_scope(run, outer);
    if (!loop || !scope || !eval(run, node->b, &source))
        return FLOW_FAIL;
    run->at = node->b->at;
    *loop = (tpl_loop){.node = node, .outer = outer};
    if (!sl__tpl_iterate(run, &source, &loop->items, &loop->n))
        return FLOW_FAIL;
    if (node->c->a) {
        if (!(loop->kept = sl__tpl_alloc(run, loop->n, sizeof(*loop->kept))))
            return FLOW_FAIL;
    } else {
        loop->kept = loop->items;
        loop->n_kept = loop->n_tried = loop->n;
    }
    bool completed = false;
    flow f = run_loop(run, loop, scope, &completed);
    run->scope = outer;
    if (f == FLOW_NEXT && !completed && node->c->c) {
        if (!(run->scope = new_scope(run, outer)))
            f = FLOW_FAIL;
        else
            f = exec(run, node->c->c);
        run->scope = outer;
    }
    return f;
}

/* ---- statements ---------------------------------------------------------------------------- */

static SL_NOINLINE flow exec_if(tpl_run *run, const tpl_node *node) {
    for (const tpl_node *branch = node->a; branch; branch = branch->next) {
        tpl_val test = tpl_bool(true);
        if (branch->a && !eval(run, branch->a, &test))
            return FLOW_FAIL;
        if (sl__tpl_truth(&test))
            return exec(run, branch->b);
    }
    return FLOW_NEXT;
}

static SL_NOINLINE flow exec_print(tpl_run *run, const tpl_node *node) {
    tpl_val v;
    if (!eval(run, node->a, &v))
        return FLOW_FAIL;
    run->at = node->at;
    return sl__tpl_to_str(run, &v, &v) && emit(run, v.s, v.len) ? FLOW_NEXT : FLOW_FAIL;
}

static SL_NOINLINE flow exec_set(tpl_run *run, const tpl_node *node) {
    tpl_val v;
    return eval(run, node->b, &v) && assign(run, node->a, &v) ? FLOW_NEXT : FLOW_FAIL;
}

// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}.
static SL_NOINLINE flow exec_block(tpl_run *run, const tpl_node *node) {
    tpl_scope *outer = run->scope;
    tpl_capture capture;
    tpl_val text, before = run->subject;
    if (!(run->scope = new_scope(run, outer)))
        return FLOW_FAIL;
    begin_capture(run, &capture);
    flow f = exec(run, node->c);
    bool ok = end_capture(run, &capture, &text);
    run->scope = outer;
    if (f != FLOW_NEXT || !ok)
        return ok ? f : FLOW_FAIL; // a break leaves the block without its text
    run->subject = text;
    ok = eval(run, node->b, &text);
    run->subject = before;
    if (ok && node->kind == TPL_SET_BLOCK)
        ok = assign(run, node->a, &text);
    else if (ok)
        ok = sl__tpl_to_str(run, &text, &text) && emit(run, text.s, text.len);
    return ok ? FLOW_NEXT : FLOW_FAIL;
}

static SL_NOINLINE flow exec_macro(tpl_run *run, const tpl_node *node) {
    tpl_closure *closure = sl__tpl_alloc(run, 1, sizeof(*closure));
    if (!closure)
        return FLOW_FAIL;
    *closure = (tpl_closure){.node = node, .scope = run->scope};
    tpl_val v = {.type = TPL_V_MACRO, .macro = closure};
    return sl__tpl_scope_set(run, run->scope, node->text, node->len, &v) ? FLOW_NEXT : FLOW_FAIL;
}

static SL_NOINLINE flow exec_with(tpl_run *run, const tpl_node *node) {
    tpl_scope *outer = run->scope, *scope = new_scope(run, outer);
    if (!scope)
        return FLOW_FAIL;
    for (const tpl_node *t = node->a; t; t = t->next->next) {
        tpl_val v;
        run->scope = outer;
        bool ok = eval(run, t->next, &v);
        run->scope = scope;
        if (!ok || !assign(run, t, &v))
            return FLOW_FAIL;
    }
    run->scope = scope;
    flow f = exec(run, node->b);
    run->scope = outer;
    return f;
}

static flow exec_node(tpl_run *run, const tpl_node *node) {
    run->at = node->at;
    if (!sl__tpl_steps(run, 1))
        return FLOW_FAIL;
    switch ((tpl_kind)node->kind) {
    case TPL_TEXT:
        return emit(run, node->text, node->len) ? FLOW_NEXT : FLOW_FAIL;
    case TPL_PRINT:
        return exec_print(run, node);
    case TPL_IF:
        return exec_if(run, node);
    case TPL_FOR:
        return exec_for(run, node);
    case TPL_SET:
        return exec_set(run, node);
    case TPL_SET_BLOCK:
    case TPL_FILTER_BLOCK:
        return exec_block(run, node);
    case TPL_MACRO:
        return exec_macro(run, node);
    case TPL_WITH:
        return exec_with(run, node);
    case TPL_BREAK:
        return FLOW_BREAK;
    default:
        return FLOW_CONTINUE;
    }
}

static flow exec(tpl_run *run, const tpl_node *body) {
    if (!sl__tpl_enter(run))
        return FLOW_FAIL;
    flow f = FLOW_NEXT;
    for (const tpl_node *node = body; node && f == FLOW_NEXT; node = node->next)
        f = exec_node(run, node);
    sl__tpl_leave(run);
    return f;
}

bool sl__tpl_exec_template(tpl_run *run) {
    tpl_scope root = {0};
    run->scope = &root;
    return exec(run, run->tpl->body) == FLOW_NEXT;
}
