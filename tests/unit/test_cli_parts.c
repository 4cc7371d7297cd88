/* The small parts of the command line: numbers for people, wrapping, UTF-8, JSON, requests, ids,
 * inputs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "cli/console.h"
#include "cli/input.h"
#include "cli/request.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static FILE *file;

static cli_out out_to_file(void) {
    cli_out out;
    file = tmpfile();
    cli_out_init(&out, fileno(file), true);
    return out;
}

static const char *written(cli_out *out) {
    static char text[1 << 16];
    assert_true(cli_flush(out));
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void numbers_read_well(void **state) {
    (void)state;
    char b[CLI_NUMBER_MAX];
    assert_string_equal(cli_bytes(b, 0), "0 B");
    assert_string_equal(cli_bytes(b, 1023), "1023 B");
    assert_string_equal(cli_bytes(b, 1024), "1.0 KiB");
    assert_string_equal(cli_bytes(b, 1048575), "1.0 MiB");
    assert_string_equal(cli_bytes(b, 14680064), "14.0 MiB");
    assert_string_equal(cli_bytes(b, UINT64_MAX), "16.0 EiB");
    assert_string_equal(cli_exact(b, 7), "7");
    assert_string_equal(cli_exact(b, 1234), "1,234");
    assert_string_equal(cli_exact(b, UINT64_MAX), "18,446,744,073,709,551,615");
    assert_string_equal(cli_size(b, (uint64_t)4 << 30), "4G");
    assert_string_equal(cli_size(b, 14680064), "14M");
    assert_string_equal(cli_size(b, 14680065), "14337K"); // up, so that it fits
    assert_string_equal(cli_size(b, 1), "1K");
    assert_string_equal(cli_duration(b, 8.2), "0:08");
    assert_string_equal(cli_duration(b, 3723), "1:02:03");
    assert_string_equal(cli_duration(b, 1e300), "99:59:59");
    // A size that is printed is one that --mem reads back.
    uint64_t bytes;
    char message[CLI_MESSAGE_MAX];
    assert_true(cli_parse_size("--mem", cli_size(b, 8596480), &bytes, message) && bytes == 8596480);
}

static void text_wraps_at_80_columns(void **state) {
    (void)state;
    cli_out out = out_to_file();
    char words[400] = "";
    for (int i = 0; i < 40; i++)
        strcat(words, i ? " abcdefg" : "abcdefg");
    cli_wrap(&out, words, 0, 4);
    const char *text = written(&out);
    assert_int_equal(strcspn(text, "\n"), 79); // ten words
    assert_int_equal(strncmp(text + 79, "\n    abc", 8), 0);
    out = out_to_file();
    cli_wrap(&out, "a\n  b  c\n\nd", 0, 0);
    assert_string_equal(written(&out), "a\n  b c\n\nd");
    out = out_to_file();
    cli_wrap(&out, words, 200, 0); // a cursor beyond the end
    written(&out);
}

static void long_prints_are_whole(void **state) {
    (void)state;
    static char text[5001];
    memset(text, 'x', 5000);
    cli_out out = out_to_file();
    cli_print(&out, "<%s>", text);
    assert_int_equal(strlen(written(&out)), 5002);
}

static void a_failed_write_is_remembered(void **state) {
    (void)state;
    cli_out out;
    cli_out_init(&out, -1, true);
    cli_puts(&out, "x");
    assert_false(cli_flush(&out));
    assert_int_not_equal(out.error, 0);
    cli_puts(&out, "y");
    assert_int_equal(out.n, 0);
}

static void utf8_is_strict(void **state) {
    (void)state;
    const struct {
        const char *bytes;
        size_t length;
    } cases[] = {{"a", 1},
                 {"\xc3\xa9", 2},
                 {"\xe2\x82\xac", 3},
                 {"\xf0\x9f\x98\x80", 4},
                 {"\x80", 0},
                 {"\xc0\xaf", 0},
                 {"\xc1\xbf", 0},
                 {"\xe0\x80\x80", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xf0\x80\x80\x80", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf5\x80\x80\x80", 0},
                 {"\xe2\x82", 0},
                 {"\xc3", 0},
                 {"\xff", 0},
                 {"\xc3(", 0},
                 {"\xf4\x8f\xbf\xbf", 4}};
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_int_equal(cli_utf8_length(cases[i].bytes, strlen(cases[i].bytes)), cases[i].length);
    assert_int_equal(cli_utf8_length("", 0), 0);
}

static void terminals_get_no_control_characters(void **state) {
    (void)state;
    cli_out out = out_to_file();
    const char text[] = "a\033[2J\x07\x7f\tb\n\xc2\x9b\xc3\xa9\xff";
    out.terminal = true;
    cli_text(&out, text, sizeof(text) - 1);
    assert_string_equal(
        written(&out),
        "a\xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd\tb\n\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
    out = out_to_file(); // a file gets the bytes
    cli_text(&out, text, sizeof(text) - 1);
    assert_string_equal(written(&out), text);
}

static void json_is_written(void **state) {
    (void)state;
    cli_out out = out_to_file();
    cli_json json = {.out = &out};
    cli_json_begin(&json, NULL, '{');
    cli_json_string(&json, "s", "q\"\\\n\t\r\x01\x7f\xc3\xa9\xff\0z", 13);
    cli_json_begin(&json, "a", '[');
    cli_json_uint(&json, NULL, UINT64_MAX);
    cli_json_begin(&json, NULL, '{');
    cli_json_end(&json, '}');
    cli_json_end(&json, ']');
    cli_json_real(&json, "r", 0.25);
    cli_json_bool(&json, "b", false);
    cli_json_raw(&json, "w", "{}", 2);
    cli_json_end(&json, '}');
    assert_string_equal(
        written(&out),
        "{\"s\": \"q\\\"\\\\\\n\\t\\r\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\\u0000z\", \"a\": "
        "[18446744073709551615, {}], \"r\": 0.25, \"b\": false, \"w\": {}}");
}

/* ---- requests -------------------------------------------------------------------------------- */

static void requests_are_built(void **state) {
    (void)state;
    char bytes[512];
    size_t replaced = 0;
    cli_buffer request = {bytes, 0, sizeof(bytes), false};
    cli_request_begin(&request, false);
    cli_request_message(&request, "system", "be\n\"brief\"", 10, &replaced);
    cli_request_message(&request, "user", "x\xff", 2, &replaced);
    cli_request_message_begin(&request, "assistant");
    assert_true(cli_request_message_part(&request, "a", 1));
    assert_true(cli_request_message_part(&request, "\\", 1));
    cli_request_message_end(&request);
    cli_request_end(&request);
    assert_int_equal(replaced, 1);
    assert_int_equal(
        strncmp(bytes,
                "{\"add_generation_prompt\": true, \"enable_thinking\": false, \"messages\": ["
                "{\"role\": \"system\", \"content\": \"be\\n\\\"brief\\\"\"}, "
                "{\"role\": \"user\", \"content\": \"x\xef\xbf\xbd\"}, "
                "{\"role\": \"assistant\", \"content\": \"a\\\\\"}]}",
                request.n),
        0);
    cli_request_reopen(&request);
    cli_request_message(&request, "user", "y", 1, NULL);
    cli_request_end(&request);
    const char tail[] = ", {\"role\": \"user\", \"content\": \"y\"}]}";
    assert_int_equal(strncmp(bytes + request.n - strlen(tail), tail, strlen(tail)), 0);
}

static void a_full_request_stays_whole(void **state) {
    (void)state;
    char bytes[200];
    // At every size, an answer that does not fit can still be ended and the object closed.
    for (size_t cap = 0; cap <= sizeof(bytes); cap++) {
        cli_buffer request = {bytes, 0, cap, false};
        cli_request_begin(&request, true);
        size_t before = request.n;
        cli_request_message(&request, "user", "0123456789", 10, NULL);
        if (request.full) {
            assert_int_equal(request.n, before);
            continue;
        }
        cli_request_message_begin(&request, "assistant");
        if (request.full)
            continue;
        int parts = 0;
        while (cli_request_message_part(&request, "\"\n", 2))
            assert_true(++parts < 100);
        request.full = false;
        cli_request_message_end(&request);
        cli_request_end(&request);
        assert_false(request.full);
        assert_true(request.n <= cap);
        assert_int_equal(memcmp(bytes + request.n - 4, "\"}]}", 4), 0);
    }
}

static void members_are_found(void **state) {
    (void)state;
    const char text[] = " {\"a\": {\"tools\": 1, \"x\": \"},{\\\"\"}, \"tools\" : [ {\"b\": \"]\"} "
                        "] , \"c\": true}\n";
    const char *value;
    size_t n;
    assert_true(cli_request_member(text, strlen(text), "tools", &value, &n));
    assert_int_equal(n, strlen("[ {\"b\": \"]\"} ]"));
    assert_int_equal(strncmp(value, "[ {\"b\": \"]\"} ]", n), 0);
    assert_true(cli_request_member(text, strlen(text), "c", &value, &n));
    assert_int_equal(strncmp(value, "true", n), 0);
    assert_false(cli_request_member(text, strlen(text), "x", &value, &n));
    const char *bad[] = {"",
                         "[",
                         "{",
                         "{\"tools",
                         "{\"tools\"",
                         "{\"tools\" 1}",
                         "{\"a\": \"",
                         "{\"a\": [}",
                         "{\"a\": 1 \"tools\": 2}",
                         "{\"a\\",
                         "{tools: 1}",
                         "\"tools\"",
                         "{\"a\": }}}}",
                         "{\"a\":1,}"};
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(cli_request_member(bad[i], strlen(bad[i]), "tools", &value, &n));
    // Cut at every byte: no byte beyond is looked at (AddressSanitizer would see it).
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        char *copy = malloc(len ? len : 1);
        memcpy(copy, text, len);
        cli_request_member(copy, len, "c", &value, &n);
        free(copy);
    }
}

static void defaults_go_in_front(void **state) {
    (void)state;
    char bytes[64] = " {\"a\": 1}";
    cli_buffer request = {bytes, strlen(bytes), sizeof(bytes), false};
    assert_true(cli_request_default(&request, "b", "true"));
    assert_int_equal(strncmp(bytes, " {\"b\": true, \"a\": 1}", request.n), 0);
    assert_true(cli_request_default(&request, "a", "2"));
    assert_int_equal(strncmp(bytes, " {\"b\": true, \"a\": 1}", request.n), 0);
    strcpy(bytes, "{ }");
    request.n = 3;
    assert_true(cli_request_default(&request, "b", "true"));
    assert_int_equal(strncmp(bytes, "{\"b\": true }", request.n), 0);
    request.cap = request.n + 3;
    assert_false(cli_request_default(&request, "c", "true"));
    strcpy(bytes, "[1]"); // not ours to repair
    request.n = 3;
    request.cap = sizeof(bytes);
    assert_true(cli_request_default(&request, "b", "true"));
    assert_int_equal(request.n, 3);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void ids_are_read(void **state) {
    (void)state;
    uint32_t *ids;
    size_t n;
    char problem[160];
    const char good[] = "\n 0 1\t4294967295\r\n7";
    assert_true(cli_input_ids(good, strlen(good), &ids, &n, problem));
    assert_int_equal(n, 4);
    assert_true(ids[0] == 0 && ids[1] == 1 && ids[2] == UINT32_MAX && ids[3] == 7);
    free(ids);
    assert_true(cli_input_ids("", 0, &ids, &n, problem));
    assert_int_equal(n, 0);
    free(ids);
    const char *bad[] = {
        "1,2", "-1",          "+1", "1.0", "0x1", "4294967296", "99999999999999999999999",
        "a",   "\xc2\xa0\x31"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char text[64];
        snprintf(text, sizeof(text), "12 %s 3", bad[i]);
        assert_false(cli_input_ids(text, strlen(text), &ids, &n, problem));
        assert_null(ids);
        assert_non_null(strstr(problem, "at byte 3 is not a token id"));
    }
}

static void inputs_know_their_limits(void **state) {
    (void)state;
    char path[] = "sluice-test-XXXXXX", buffer[3000], *all;
    int fd = mkstemp(path);
    size_t n;
    cli_input input;
    assert_true(fd >= 0);
    memset(buffer, 'x', sizeof(buffer));
    const size_t sizes[] = {0, 1, 511, 512, 513, 2048, 2999, 3000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, buffer, sizes[i], 0), sizes[i]);
        char read_back[3000];
        assert_int_equal(cli_input_open(&input, path), CLI_INPUT_OK);
        assert_int_equal(input.n > 0, sizes[i] > 0);
        assert_int_equal(cli_input_read(&input, read_back, sizes[i], &n), CLI_INPUT_OK);
        assert_int_equal(n, sizes[i]);
        cli_input_close(&input);
        if (sizes[i] > 0) {
            assert_int_equal(cli_input_open(&input, path), CLI_INPUT_OK);
            assert_int_equal(cli_input_read(&input, read_back, sizes[i] - 1, &n),
                             CLI_INPUT_TOO_LONG);
            cli_input_close(&input);
            assert_int_equal(cli_input_all(path, sizes[i] - 1, &all, &n), CLI_INPUT_TOO_LONG);
        }
        assert_int_equal(cli_input_all(path, sizes[i], &all, &n), CLI_INPUT_OK);
        assert_int_equal(n, sizes[i]);
        assert_int_equal(all[n], '\0');
        free(all);
    }
    close(fd);
    unlink(path);
    assert_int_equal(cli_input_open(&input, path), CLI_INPUT_FAILED);
    assert_int_equal(cli_input_open(&input, "."),
                     CLI_INPUT_FAILED); // a folder opens, and cannot be read
    assert_int_equal(cli_input_all(path, 100, &all, &n), CLI_INPUT_FAILED);
    assert_null(all);
}

static void paths_are_quoted_for_a_shell(void **state) {
    (void)state;
    char buffer[64];
    assert_string_equal(cli_quoted("a/b-1.2", buffer, sizeof(buffer)), "a/b-1.2");
    assert_string_equal(cli_quoted("a b", buffer, sizeof(buffer)), "'a b'");
    assert_string_equal(cli_quoted("it's", buffer, sizeof(buffer)), "'it'\\''s'");
    assert_string_equal(cli_quoted("", buffer, sizeof(buffer)), "''");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_well),
        cmocka_unit_test(text_wraps_at_80_columns),
        cmocka_unit_test(long_prints_are_whole),
        cmocka_unit_test(a_failed_write_is_remembered),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(terminals_get_no_control_characters),
        cmocka_unit_test(json_is_written),
        cmocka_unit_test(requests_are_built),
        cmocka_unit_test(a_full_request_stays_whole),
        cmocka_unit_test(members_are_found),
        cmocka_unit_test(defaults_go_in_front),
        cmocka_unit_test(ids_are_read),
        cmocka_unit_test(inputs_know_their_limits),
        cmocka_unit_test(paths_are_quoted_for_a_shell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
