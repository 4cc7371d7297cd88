/* text/pretokenize: the language of expressions, what is refused, and that it does not matter how much of
 * the text is in sight. Equality with the reference over large corpora is
 * tests/diff/test_tokenizer_hf.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "text/pretokenize.h"

#define FOLDED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                     \
    FOLDED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" WHITE
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" FOLDED "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" FOLDED "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" WHITE
#define DEEPSEEK                                                                                   \
    "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",                                   \
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"         \
        "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

static void compile(sl_pretok *p, const char *const *patterns) {
    sl_error err;
    memset(p, 0, sizeof(*p));
    for (; *patterns; patterns++)
        if (sl_pretok_add(p, *patterns, strlen(*patterns), &err) != SL_OK)
            fail_msg("%s", err.message);
}

static const struct {
    const char *patterns[4];
    const char *text, *pieces; // separated by '|'
} cuts[] = {
    {{SL_PRETOK_GPT2}, "it's It'S 123abc  x\n\n y", "it|'s| It|'|S| 123|abc| | x|\n\n| y"},
    {{LLAMA3}, "We'LL 12345 a.\r\n\r\n  b  ", "We|'LL| |123|45| a|.\r\n\r\n| | b|  "},
    {{LLAMA3}, "o'\u017fx \u0661\u0662\u0663\u0664", "o|'\u017f|x| |\u0661\u0662\u0663|\u0664"},
    {{O200K},
     "HTTPServer camelCase's ABC'LL \u01c5x a//\n",
     "HTTPServer| camel|Case's| ABC'LL| \u01c5x| a|//\n"},
    {{O200K}, "ab\u4e2d\u6587Cd", "ab\u4e2d\u6587|Cd"},
    {{DEEPSEEK},
     "a1234\u4e2d\u6587\u306ea _x+y \x01",
     "a|123|4|\u4e2d\u6587\u306e|a| _|x|+y| |\x01"},
    {{"\\p{N}", SL_PRETOK_GPT2}, "a12 3", "a|1|2| |3"},
    {{"b+"}, "abbcab", "a|bb|ca|b"}, // what lies between matches is a piece
    {{"a{2}"}, "aaaaa", "aa|aa|a"},
    {{"a{2,}|b"}, "aaaab", "aaaa|b"},
    {{"[a-c-]+|[^a-c]"}, "a-bx", "a-b|x"},
    {{"a*b?a"}, "aaab", "aaa|b"}, // gives back
    {{"(x|yz)?w"}, "wxwyzwyw", "w|xw|yzw|y|w"},
    {{"a+(?=b)|b"}, "aab a", "aa|b| a"},
    {{"\\P{L}+|\\D"}, "1,a", "1,|a"},
    {{"(?i:k[sd])"}, "\u212as Kd kx", "\u212as| |Kd| kx"},
    {{NULL}, "all one", "all one"},
};

static void texts_are_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(cuts); i++) {
        sl_pretok p;
        sl_pretok_cursor cursor = {0};
        const uint8_t *text = (const uint8_t *)cuts[i].text;
        size_t len = strlen(cuts[i].text), n_found = 0;
        char found[128];
        compile(&p, cuts[i].patterns);
        for (size_t at = 0, n; at < len; at += n) {
            n = sl_pretok_next(&p, &cursor, text, at, len, true);
            assert_true(n > 0 && n <= len - at);
            if (at > 0)
                found[n_found++] = '|';
            memcpy(found + n_found, text + at, n);
            n_found += n;
        }
        found[n_found] = '\0';
        assert_string_equal(found, cuts[i].pieces);
    }
}

// With any part of the text in sight, and with the part before a piece forgotten, the pieces are those of
// the whole.
static void what_is_in_sight_does_not_matter(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(cuts); i++) {
        sl_pretok p;
        sl_pretok_cursor whole = {0}, cursor = {0};
        const uint8_t *text = (const uint8_t *)cuts[i].text;
        size_t len = strlen(cuts[i].text), sight = 0, start = 0;
        compile(&p, cuts[i].patterns);
        for (size_t at = 0, n; at < len; at += n) {
            size_t expected = sl_pretok_next(&p, &whole, text, at, len, true);
            while ((n = sl_pretok_next(&p, &cursor, text + start, at - start, sight - start,
                                       sight == len)) == 0 ||
                   at == sight) {
                assert_true(sight < len);
                do
                    sight++;
                while (sight < len && (text[sight] & 0xc0) == 0x80);
            }
            assert_int_equal(n, expected);
            if (at % 3 == 0) {
                sl_pretok_moved(&cursor, at - start);
                start = at;
            }
        }
    }
}

static void what_is_not_understood_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *regex, *message;
    } cases[] = {
        {"\\w+", "'\\w+': at 1: this escape"},
        {"a|", "may be empty"},
        {"a*", "may be empty"},
        {"(a|)", "empty branch"},
        {"(ab+)", "at 3"},
        {"(a|b)+", "repetition of a group"},
        {"(a(b))", "at 2"},
        {"(?<n>a)", "at 0"},
        {"(?i:\u00e9)", "outside of ASCII"},
        {"(?i:ss)", "pair of letters"},
        {"(?i:[^a])", "complement"},
        {"^a", "at 0"},
        {"a$", "at 1"},
        {".", "at 0"},
        {"a+?", "not greedy"},
        {"a++", "not greedy"},
        {"a{,3}", "repetition"},
        {"a{3,2}", "repetition"},
        {"a{999}", "repetition"},
        {"a{1", "repetition"},
        {"[a", "without end"},
        {"[]", "empty class"},
        {"[z-a]", "range"},
        {"[a&&b]", "in a class"},
        {"[[a]]", "in a class"},
        {"\\p{Han}", "property"},
        {"\\p{L", "property"},
        {"\\", "backslash"},
        {"(?!a)b", "look ahead"},
        {"a(?!b", "look ahead"},
        {"(a", "without end"},
        {"a)", "at 1"},
        {"\\s*\\s*x|y", "depend on each other"},
        {"\xff", "no text"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_pretok p = {0};
        sl_error err;
        if (sl_pretok_add(&p, cases[i].regex, strlen(cases[i].regex), &err) != SL_ERR_UNSUPPORTED ||
            !strstr(err.message, cases[i].message))
            fail_msg("'%s': %s", cases[i].regex, err.message);
    }
}

static void limits_are_kept(void **state) {
    (void)state;
    sl_pretok p = {0};
    sl_error err;
    char many[1024] = "", item[24];
    for (int i = 0; i < SL_PRETOK_STEPS_MAX; i++)
        assert_int_equal(sl_pretok_add(&p, "a", 1, &err), SL_OK);
    assert_int_equal(sl_pretok_add(&p, "a", 1, &err), SL_ERR_UNSUPPORTED);

    memset(&p, 0, sizeof(p)); // alternatives
    for (int i = 0; i < 2 * SL_PRETOK_ALTERNATIVES_MAX - 1; i++)
        strcat(many, i % 2 ? "|" : "a");
    assert_int_equal(sl_pretok_add(&p, many, strlen(many), &err), SL_OK);
    memset(&p, 0, sizeof(p));
    strcat(many, "|a");
    assert_int_equal(sl_pretok_add(&p, many, strlen(many), &err), SL_ERR_UNSUPPORTED);

    memset(&p, 0, sizeof(p)); // items
    memset(many, 'a', SL_PRETOK_ITEMS_MAX + 1);
    assert_int_equal(sl_pretok_add(&p, many, SL_PRETOK_ITEMS_MAX, &err), SL_OK);
    memset(&p, 0, sizeof(p));
    assert_int_equal(sl_pretok_add(&p, many, SL_PRETOK_ITEMS_MAX + 1, &err), SL_ERR_UNSUPPORTED);

    memset(&p, 0, sizeof(p)); // sets
    many[0] = '\0';
    for (int i = 0; i < SL_PRETOK_SETS_MAX + 1; i++) {
        snprintf(item, sizeof(item), "%c", '0' + i);
        strcat(many, strchr("?[\\]^", '0' + i) ? "\\" : "");
        strcat(many, item);
    }
    assert_int_equal(sl_pretok_add(&p, many, strlen(many), &err), SL_ERR_UNSUPPORTED);

    memset(&p, 0, sizeof(p)); // ranges
    many[0] = '\0';
    for (int i = 0; i < SL_PRETOK_RANGES_MAX + 1; i++)
        strcat(many, "\u00e9");
    char class[1024];
    snprintf(class, sizeof(class), "[%s]", many);
    assert_int_equal(sl_pretok_add(&p, class, strlen(class), &err), SL_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut),
        cmocka_unit_test(what_is_in_sight_does_not_matter),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(limits_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
