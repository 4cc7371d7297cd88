/* Numbers within bounds, as an automaton that reads digits and compares as it goes.
 *
 * A bound is compared digit by digit: of the integer part only the number of digits and the order of
 * the first ones matter, of the fraction the order so far. Bounded numbers have no exponent and at most
 * 15 digits, as many as a double keeps apart: what is above 0.1 here is above 0.1 for every reader.
 * Integers have at most 18 digits (or as many as their bounds), so that they fit in 64 bits. */
#include "constrain/compile_internal.h"

#define INTEGER_DIGITS 18u
#define FRACTION_DIGITS 18u
#define EXACT_DIGITS 15u
#define EXPONENT_DIGITS 2u

enum { START, MINUS, ZERO, WHOLE, POINT, FRACTION, EXPONENT, SIGNED_EXPONENT, EXPONENT_DIGIT };
enum { EQUAL, BELOW, ABOVE };

typedef struct reading { // a state of the machine, packed into 64 bits
    uint8_t phase;
    bool negative, nonzero;
    uint8_t n;              // digits so far; of an exponent: of it
    uint8_t to_min, to_max; // the magnitude read, compared with that of the bound
    uint32_t rest;          // modulo multiple_of
} reading;

static uint64_t pack(const reading *r) {
    return (uint64_t)r->phase | (uint64_t)r->negative << 4 | (uint64_t)r->nonzero << 5 |
           (uint64_t)r->n << 8 | (uint64_t)r->to_min << 16 | (uint64_t)r->to_max << 18 |
           (uint64_t)r->rest << 32;
}

static reading unpack(uint64_t state) {
    return (reading){.phase = state & 15,
                     .negative = state >> 4 & 1,
                     .nonzero = state >> 5 & 1,
                     .n = (uint8_t)(state >> 8),
                     .to_min = state >> 16 & 3,
                     .to_max = state >> 18 & 3,
                     .rest = (uint32_t)(state >> 32)};
}

// Digits before the point: at least one.
static uint32_t whole_digits(const sl__decimal *d) {
    return d->point > 0 ? (uint32_t)d->point : 1;
}

// The digit of a bound at a place: 0 is the first before the point.
static int digit_at(const sl__decimal *d, uint32_t place) {
    int64_t i = d->point > 0 ? (int64_t)place : (int64_t)place - 1 + d->point;
    return i >= 0 && i < d->n ? d->digits[i] : 0;
}

static uint8_t compare_digit(uint8_t so_far, const sl__decimal *bound, uint32_t place, int digit) {
    if (so_far != EQUAL)
        return so_far;
    int other = digit_at(bound, place);
    return digit == other ? EQUAL : digit < other ? BELOW : ABOVE;
}

// The integer part has ended: now its length counts.
static uint8_t end_whole(uint8_t so_far, const sl__decimal *bound, uint32_t n) {
    uint32_t whole = whole_digits(bound);
    return n == whole ? so_far : n < whole ? BELOW : ABOVE;
}

static bool is_bounded(const sl__number_rules *rules) {
    return rules->has_min || rules->has_max;
}

static uint64_t read_digit(const sl__number_rules *rules, reading r, int digit) {
    bool bounded = is_bounded(rules);
    uint32_t max_digits = INTEGER_DIGITS;
    if (rules->integer) {
        if (rules->has_min)
            max_digits = SL_MAX(max_digits, whole_digits(&rules->min));
        if (rules->has_max)
            max_digits = SL_MAX(max_digits, whole_digits(&rules->max));
    } else if (bounded) {
        max_digits = EXACT_DIGITS;
    } else if (r.phase == FRACTION) {
        max_digits = FRACTION_DIGITS;
    }
    if (r.n >= max_digits)
        return SL__DEAD;
    // The n-th digit of one is compared with the n-th of the other; end_whole() tells whether that was
    // the same place.
    if (rules->has_min)
        r.to_min = compare_digit(r.to_min, &rules->min, r.n, digit);
    if (rules->has_max)
        r.to_max = compare_digit(r.to_max, &rules->max, r.n, digit);
    r.n++;
    r.nonzero |= digit != 0;
    if (rules->multiple_of)
        r.rest = (r.rest * 10 + (uint32_t)digit) % rules->multiple_of;
    return pack(&r);
}

static uint64_t step_number(void *ctx, uint64_t state, uint8_t byte, sl_status *status) {
    const sl__number_rules *rules = ctx;
    reading r = unpack(state);
    bool digit = byte >= '0' && byte <= '9';
    (void)status;
    switch (r.phase) {
    case START:
    case MINUS:
        if (byte == '-' && r.phase == START) {
            r.phase = MINUS;
            r.negative = true;
            return pack(&r);
        }
        if (!digit)
            return SL__DEAD;
        r.phase = byte == '0' ? ZERO : WHOLE;
        return read_digit(rules, r, byte - '0');
    case ZERO:
    case WHOLE:
        if (digit)
            return r.phase == ZERO ? SL__DEAD : read_digit(rules, r, byte - '0');
        if (rules->integer)
            return SL__DEAD;
        if (byte == '.') {
            r.phase = POINT;
            if (rules->has_min)
                r.to_min = end_whole(r.to_min, &rules->min, r.n);
            if (rules->has_max)
                r.to_max = end_whole(r.to_max, &rules->max, r.n);
            if (!is_bounded(rules))
                r.n = 0;
            return pack(&r);
        }
        break;
    case POINT:
    case FRACTION:
        if (digit) {
            r.phase = FRACTION;
            return read_digit(rules, r, byte - '0');
        }
        if (r.phase == POINT)
            return SL__DEAD;
        break;
    case EXPONENT:
        if (byte == '+' || byte == '-') {
            r.phase = SIGNED_EXPONENT;
            return pack(&r);
        }
        // fall through
    case SIGNED_EXPONENT:
    case EXPONENT_DIGIT:
        r.phase = EXPONENT_DIGIT;
        if (!digit || r.n++ == EXPONENT_DIGITS)
            return SL__DEAD;
        return pack(&r);
    default:
        return SL__DEAD;
    }
    if ((byte != 'e' && byte != 'E') || is_bounded(rules))
        return SL__DEAD;
    r = (reading){.phase = EXPONENT};
    return pack(&r);
}

// How the magnitude compares with a bound's when nothing more is read.
static uint8_t final_order(const reading *r, uint8_t so_far, const sl__decimal *bound) {
    if (r->phase == ZERO || r->phase == WHOLE)
        so_far = end_whole(so_far, bound, r->n);
    if (so_far == EQUAL)
        for (uint32_t place = r->n; (int64_t)place <= (int64_t)bound->n - SL_MIN(bound->point, 0);
             place++)
            if (digit_at(bound, place) != 0)
                return BELOW;
    return so_far;
}

// -1, 0, 1: the number read against the bound.
static int order_to(const reading *r, uint8_t so_far, const sl__decimal *bound) {
    uint8_t order = final_order(r, so_far, bound);
    if (r->negative != bound->negative)
        return r->negative ? -1 : 1;
    int sign = order == EQUAL ? 0 : order == BELOW ? -1 : 1;
    return r->negative ? -sign : sign;
}

static bool number_accepts(void *ctx, uint64_t state) {
    const sl__number_rules *rules = ctx;
    reading r = unpack(state);
    if (r.phase != ZERO && r.phase != WHOLE && r.phase != FRACTION && r.phase != EXPONENT_DIGIT)
        return false;
    if (rules->multiple_of && r.rest != 0)
        return false;
    if (!is_bounded(rules))
        return true;
    if (r.negative && !r.nonzero)
        return false; // zero is written without a sign where its order counts
    int min = rules->has_min ? order_to(&r, r.to_min, &rules->min) : 1;
    int max = rules->has_max ? order_to(&r, r.to_max, &rules->max) : -1;
    return (min > 0 || (min == 0 && !rules->above_min)) &&
           (max < 0 || (max == 0 && !rules->below_max));
}

bool sl__number_fits(const sl__number_rules *rules, const sl__decimal *d) {
    int min = rules->has_min ? sl__decimal_compare(d, &rules->min) : 1;
    int max = rules->has_max ? sl__decimal_compare(d, &rules->max) : -1;
    if (min < 0 || (min == 0 && rules->above_min) || max > 0 || (max == 0 && rules->below_max))
        return false;
    if (!rules->multiple_of)
        return true;
    uint32_t rest = 0;
    for (int32_t i = 0; i < d->point && i < 10000; i++)
        rest = (rest * 10 + (i < d->n ? d->digits[i] : 0)) % rules->multiple_of;
    return sl__decimal_is_integer(d) && rest == 0;
}

static sl_status check_bound(sl__compiler *c, const sl__number_rules *rules, const sl__decimal *d,
                             const char *keyword) {
    uint32_t fraction = d->n > d->point ? (uint32_t)(d->n - d->point) : 0;
    uint32_t n = whole_digits(d) + fraction, max = rules->integer ? 40 : EXACT_DIGITS;
    if (n > max)
        return sl__refuse(c, c->at, keyword, "a bound of %u digits; up to %u are exact", n, max);
    return SL_OK;
}

sl_status sl__number_build(sl__compiler *c, const sl__number_rules *rules, sl_arena *arena,
                           sl__dfa *out) {
    sl__machine m = {
        .ctx = (void *)(uintptr_t)rules, .step = step_number, .accepts = number_accepts};
    bool splits[257] = {false};
    sl_status st = SL_OK;
    if (rules->has_min)
        st = check_bound(c, rules, &rules->min, "minimum");
    if (!st && rules->has_max)
        st = check_bound(c, rules, &rules->max, "maximum");
    if (st)
        return st;
    for (const char *p = "0123456789-+.eE"; *p; p++)
        splits[(uint8_t)*p] = splits[(uint8_t)*p + 1] = true;
    sl__classes_from_splits(splits, &m);
    return sl__dfa_build(c, &m, arena, out);
}
