/* The tests: what may stand after `is`. */
#include "text/template_call.h"

#define TEST_OF(name, expression)                                                                  \
    static bool name(ARGUMENTS) {                                                                  \
        (void)run, (void)self, (void)arg;                                                          \
        *out = tpl_bool(expression);                                                               \
        return true;                                                                               \
    }
TEST_OF(test_defined, self->type != TPL_V_UNDEFINED)
TEST_OF(test_undefined, self->type == TPL_V_UNDEFINED)
TEST_OF(test_none, self->type == TPL_V_NONE)
TEST_OF(test_boolean, self->type == TPL_V_BOOL)
TEST_OF(test_true, self->type == TPL_V_BOOL && self->b)
TEST_OF(test_false, self->type == TPL_V_BOOL && !self->b)
TEST_OF(test_integer, self->type == TPL_V_INT || self->type == TPL_V_BIG_INT)
TEST_OF(test_float, self->type == TPL_V_FLOAT)
TEST_OF(test_number, self->type >= TPL_V_BOOL && self->type <= TPL_V_FLOAT)
TEST_OF(test_string, tpl_is_str(self))
TEST_OF(test_mapping, self->type == TPL_V_DICT)
TEST_OF(test_sequence,
        self->type == TPL_V_UNDEFINED || (self->type >= TPL_V_STR && self->type <= TPL_V_DICT))
TEST_OF(test_iterable, sl__tpl_is_iterable(self))
// Undefined can be called; it raises.
TEST_OF(test_callable, self->type >= TPL_V_MACRO || self->type == TPL_V_UNDEFINED)
TEST_OF(test_escaped, tpl_is_str(self) && self->markup)
TEST_OF(test_filter, tpl_is_str(self) && sl__tpl_find_filter(self->s, self->len))
TEST_OF(test_test, tpl_is_str(self) && sl__tpl_find_test(self->s, self->len))

static bool test_lower(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && sl__tpl_is_case(run, &s, false, out);
}
static bool test_upper(ARGUMENTS) {
    (void)arg;
    tpl_val s;
    return sl__tpl_to_str(run, self, &s) && sl__tpl_is_case(run, &s, true, out);
}

static bool has_remainder(tpl_run *run, const tpl_val *self, const tpl_val *by, int64_t wanted,
                          tpl_val *out) {
    tpl_val rest, want = tpl_int(wanted);
    bool equal;
    if (!sl__tpl_binary(run, TPL_OP_MOD, self, by, &rest) ||
        !sl__tpl_equal(run, &rest, &want, &equal))
        return false;
    *out = tpl_bool(equal);
    return true;
}

static bool test_odd(ARGUMENTS) {
    (void)arg;
    tpl_val two = tpl_int(2);
    return has_remainder(run, self, &two, 1, out);
}
static bool test_even(ARGUMENTS) {
    (void)arg;
    tpl_val two = tpl_int(2);
    return has_remainder(run, self, &two, 0, out);
}
static bool test_divisibleby(ARGUMENTS) {
    return has_remainder(run, self, &arg[0], 0, out);
}

#define COMPARISON(name, op)                                                                       \
    static bool name(ARGUMENTS) {                                                                  \
        bool result;                                                                               \
        if (!sl__tpl_compare(run, (op), self, &arg[0], &result))                                   \
            return false;                                                                          \
        *out = tpl_bool(result);                                                                   \
        return true;                                                                               \
    }
COMPARISON(test_eq, TPL_OP_EQ)
COMPARISON(test_ne, TPL_OP_NE)
COMPARISON(test_lt, TPL_OP_LT)
COMPARISON(test_le, TPL_OP_LE)
COMPARISON(test_gt, TPL_OP_GT)
COMPARISON(test_ge, TPL_OP_GE)
COMPARISON(test_in, TPL_OP_IN)

// Identity, which is certain for the values of which there is only one.
static bool test_sameas(ARGUMENTS) {
    const tpl_val *other = &arg[0];
    bool single = self->type == TPL_V_NONE || self->type == TPL_V_BOOL ||
                  other->type == TPL_V_NONE || other->type == TPL_V_BOOL;
    if (!single && self->type == other->type)
        return sl__tpl_fail(run, SL_ERR_UNSUPPORTED, "sameas of a %s", sl__tpl_type_name(self));
    *out = tpl_bool(self->type == other->type && (self->type == TPL_V_NONE || self->b == other->b));
    return true;
}

static const tpl_callable tests[] = {
    FIXED("boolean", 0, 0, test_boolean, 0),
    FIXED("callable", 0, 0, test_callable, 0),
    FIXED("defined", 0, 0, test_defined, 0),
    FIXED("divisibleby", 1, 1, test_divisibleby, "num"),
    FIXED("eq", 1, 1, test_eq, 0),
    FIXED("equalto", 1, 1, test_eq, 0),
    FIXED("==", 1, 1, test_eq, 0),
    FIXED("escaped", 0, 0, test_escaped, 0),
    FIXED("even", 0, 0, test_even, 0),
    FIXED("false", 0, 0, test_false, 0),
    FIXED("filter", 0, 0, test_filter, 0),
    FIXED("float", 0, 0, test_float, 0),
    FIXED("ge", 1, 1, test_ge, 0),
    FIXED(">=", 1, 1, test_ge, 0),
    FIXED("greaterthan", 1, 1, test_gt, 0),
    FIXED("gt", 1, 1, test_gt, 0),
    FIXED(">", 1, 1, test_gt, 0),
    FIXED("in", 1, 1, test_in, "seq"),
    FIXED("integer", 0, 0, test_integer, 0),
    FIXED("iterable", 0, 0, test_iterable, 0),
    FIXED("le", 1, 1, test_le, 0),
    FIXED("<=", 1, 1, test_le, 0),
    FIXED("lessthan", 1, 1, test_lt, 0),
    FIXED("lower", 0, 0, test_lower, 0),
    FIXED("lt", 1, 1, test_lt, 0),
    FIXED("<", 1, 1, test_lt, 0),
    FIXED("mapping", 0, 0, test_mapping, 0),
    FIXED("ne", 1, 1, test_ne, 0),
    FIXED("!=", 1, 1, test_ne, 0),
    FIXED("none", 0, 0, test_none, 0),
    FIXED("number", 0, 0, test_number, 0),
    FIXED("odd", 0, 0, test_odd, 0),
    FIXED("sameas", 1, 1, test_sameas, "other"),
    FIXED("sequence", 0, 0, test_sequence, 0),
    FIXED("string", 0, 0, test_string, 0),
    FIXED("test", 0, 0, test_test, 0),
    FIXED("true", 0, 0, test_true, 0),
    FIXED("undefined", 0, 0, test_undefined, 0),
    FIXED("upper", 0, 0, test_upper, 0),
};
const tpl_table sl__tpl_tests = {tests, SL_COUNT(tests)};
