/* What the files with the filters, tests, methods and functions of templates share: how a row of
 * their tables is written, and how its function reads its arguments. */
#ifndef SL_TEXT_TEMPLATE_CALL_H
#define SL_TEXT_TEMPLATE_CALL_H

#include "text/template_internal.h"

/* The parameters of tpl_callable's fn and any_fn. */
#define ARGUMENTS tpl_run *run, const tpl_val *self, const tpl_val *arg, tpl_val *out
#define ANY_ARGUMENTS tpl_run *run, const tpl_val *self, const tpl_args *args, tpl_val *out

/* A row: name, required and all parameters, the function, and the parameters' names (0: none can be
 * given by name). */
#define FIXED(text, required, count, function, ...)                                                \
    {                                                                                              \
        .name = (text), .params = {__VA_ARGS__}, .n_params = (count), .n_required = (required),    \
        .fn = (function)                                                                           \
    }
#define ANY(text, function)                                                                        \
    { .name = (text), .any_fn = (function) }
#define METHOD(type, text, required, count, function, ...)                                         \
    {                                                                                              \
        .name = (text), .params = {__VA_ARGS__}, .n_params = (count), .n_required = (required),    \
        .self_type = (type), .fn = (function)                                                      \
    }

typedef struct tpl_table {
    const tpl_callable *rows;
    size_t n;
} tpl_table;

extern const tpl_table sl__tpl_filters, sl__tpl_text_filters, sl__tpl_tests, sl__tpl_functions;
extern const tpl_table sl__tpl_str_methods, sl__tpl_container_methods;

/* ---- arguments ----------------------------------------------------------------------------- */

static inline bool given(const tpl_val *arg) {
    return arg->type != TPL_V_ABSENT;
}
static inline bool is_true(const tpl_val *arg) {
    return given(arg) && sl__tpl_truth(arg);
}

/* An argument that is the given word. */
bool sl__tpl_arg_is(const tpl_val *arg, const char *word);
/* An argument that must be an integer; `absent` where it is not given or None. */
bool sl__tpl_arg_int(tpl_run *run, const tpl_val *arg, int64_t absent, int64_t *out);
/* False, after an error that says what does not take v. */
bool sl__tpl_type_error(tpl_run *run, const char *what, const tpl_val *v);

/* ---- of strings, in template_strings.c ------------------------------------------------------- */

/* str.strip(set) on either side; white space where set is absent or None. */
bool sl__tpl_strip(tpl_run *run, const tpl_val *s, const tpl_val *set, bool left, bool right,
                   tpl_val *out);
bool sl__tpl_lower(tpl_run *run, const tpl_val *s, tpl_val *out);
/* str.islower() and str.isupper(). */
bool sl__tpl_is_case(tpl_run *run, const tpl_val *s, bool upper, tpl_val *out);

#endif
