/* serve/keys: the file of --api-key-file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/keys.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static serve_keys keys;
static char problem[160];

// Parse a copy that ends where the text does, so that a sanitizer sees a read behind it.
static bool parse(const char *text, size_t n) {
    static char *copy;
    free(copy);
    copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    copy[n] = '\0';
    problem[0] = '\0';
    return serve_keys_parse(copy, n, &keys, problem);
}

static void keys_stand_one_a_line(void **state) {
    (void)state;
    const char text[] = "# people\n\nalpha\n  be#ta\t\r\n \t\n  # gone\nlast";
    assert_true(parse(text, strlen(text)));
    assert_int_equal(keys.n, 3);
    assert_string_equal(keys.key[0], "alpha");
    assert_string_equal(keys.key[1], "be#ta"); // only a line that begins with it is a remark
    assert_string_equal(keys.key[2], "last");
    assert_true(parse("k\n", 2));
    assert_string_equal(keys.key[0], "k");
}

static void what_is_no_key_is_refused(void **state) {
    (void)state;
    const struct {
        const char *text, *says;
    } cases[] = {{"", "no key"},
                 {"\n \r\n# k\n", "no key"},
                 {"good\nse cret\n", "line 2 is not a key"},
                 {"se\x01"
                  "cret",
                  "line 1 is not a key"},
                 {"\n\nsecr\xc3\xa9t", "line 3 is not a key"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_false(parse(cases[i].text, strlen(cases[i].text)));
        assert_non_null(strstr(problem, cases[i].says));
        assert_null(strstr(problem, "cret")); // a message ends up in logs
    }
    assert_false(parse("a\0b", 3));
}

static void lengths_and_counts_have_limits(void **state) {
    (void)state;
    static char text[2 * (SERVE_KEYS_MAX + 1)];
    char longest[SERVE_KEY_MAX + 2];
    memset(longest, 'k', sizeof(longest));
    assert_true(parse(longest, SERVE_KEY_MAX));
    assert_int_equal(strlen(keys.key[0]), SERVE_KEY_MAX);
    assert_false(parse(longest, SERVE_KEY_MAX + 1));
    for (size_t i = 0; i < sizeof(text); i += 2)
        memcpy(text + i, "k\n", 2);
    assert_true(parse(text, sizeof(text) - 2));
    assert_int_equal(keys.n, SERVE_KEYS_MAX);
    assert_false(parse(text, sizeof(text)));
    assert_non_null(strstr(problem, "more than 64 keys"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_stand_one_a_line),
        cmocka_unit_test(what_is_no_key_is_refused),
        cmocka_unit_test(lengths_and_counts_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
