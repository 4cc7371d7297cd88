/* Finding a filter, test, method or function by its name, and calling it: arguments are checked when
 * the template is parsed, as far as they are known then, and bound to parameters in one place. */
#include "text/template_call.h"

#include <string.h>

bool sl__tpl_type_error(tpl_run *run, const char *what, const tpl_val *v) {
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: '%s' is of the wrong type", what,
                        sl__tpl_type_name(v));
}

bool sl__tpl_arg_int(tpl_run *run, const tpl_val *arg, int64_t absent, int64_t *out) {
    *out = absent;
    if (!given(arg) || arg->type == TPL_V_NONE)
        return true;
    if (!tpl_is_integral(arg))
        return sl__tpl_type_error(run, "an integer argument", arg);
    *out = tpl_integral(arg);
    return true;
}

bool sl__tpl_arg_is(const tpl_val *arg, const char *word) {
    return tpl_is_str(arg) && arg->len == strlen(word) && memcmp(arg->s, word, arg->len) == 0;
}

static const tpl_callable *find_row(const tpl_table *table, const char *name, size_t len,
                                    tpl_type type) {
    for (size_t i = 0; i < table->n; i++) {
        const tpl_callable *row = &table->rows[i];
        if (strlen(row->name) == len && memcmp(row->name, name, len) == 0 &&
            (type == TPL_V_ABSENT || row->self_type == type))
            return row;
    }
    return NULL;
}

const tpl_callable *sl__tpl_find_filter(const char *name, size_t len) {
    const tpl_callable *row = find_row(&sl__tpl_filters, name, len, TPL_V_ABSENT);
    return row ? row : find_row(&sl__tpl_text_filters, name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_test(const char *name, size_t len) {
    return find_row(&sl__tpl_tests, name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_function(const char *name, size_t len) {
    return find_row(&sl__tpl_functions, name, len, TPL_V_ABSENT);
}
const tpl_callable *sl__tpl_find_method(const char *name, size_t len, tpl_type type) {
    const tpl_callable *row = find_row(&sl__tpl_str_methods, name, len, type);
    return row ? row : find_row(&sl__tpl_container_methods, name, len, type);
}

/* ---- binding ------------------------------------------------------------------------------- */

// The parameter of that name, or n_params.
static uint32_t param_index(const tpl_callable *fn, const char *name, size_t len) {
    uint32_t i = 0;
    while (i < fn->n_params && !(fn->params[i] && strlen(fn->params[i]) == len &&
                                 memcmp(fn->params[i], name, len) == 0))
        i++;
    return i;
}

const char *sl__tpl_check_call(const tpl_callable *fn, uint32_t n_pos, const tpl_node *keywords) {
    bool set[TPL_PARAMS_MAX] = {false};
    if (fn->any_fn)
        return NULL;
    if (n_pos > fn->n_params)
        return "is given too many arguments";
    for (uint32_t i = 0; i < n_pos; i++)
        set[i] = true;
    for (const tpl_node *k = keywords; k; k = k->next) {
        uint32_t i = param_index(fn, k->text, k->len);
        if (i == fn->n_params)
            return "has no argument of this name";
        if (set[i])
            return "is given an argument twice";
        set[i] = true;
    }
    for (uint32_t i = 0; i < fn->n_required; i++) {
        if (!set[i])
            return "is given too few arguments";
    }
    return NULL;
}

bool sl__tpl_call(tpl_run *run, const tpl_callable *fn, const tpl_val *self, const tpl_args *args,
                  tpl_val *out) {
    if (fn->any_fn)
        return fn->any_fn(run, self, args, out);
    tpl_val bound[TPL_PARAMS_MAX] = {{0}};
    if (args->n_pos > fn->n_params)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: too many arguments", fn->name);
    for (uint32_t i = 0; i < args->n_pos; i++)
        bound[i] = args->pos[i];
    for (uint32_t k = 0; k < args->n_kw; k++) {
        uint32_t i = param_index(fn, args->kw[k].name, args->kw[k].len);
        if (i == fn->n_params || given(&bound[i]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: unexpected argument '%.*s'", fn->name,
                                (int)SL_MIN(args->kw[k].len, 60u), args->kw[k].name);
        bound[i] = args->kw[k].val;
    }
    for (uint32_t i = 0; i < fn->n_required; i++) {
        if (!given(&bound[i]))
            return sl__tpl_fail(run, SL_ERR_ARGUMENT, "%s: too few arguments", fn->name);
    }
    // self may be out: a callee reads its arguments after it has begun to write.
    tpl_val subject = *self;
    return fn->fn(run, &subject, bound, out);
}
