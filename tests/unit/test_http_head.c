/* server/http_head: which heads are taken, which targets, hosts, origins, queries and keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/http.h"
#include "server/http_head.h"

#define WEB                                                                                        \
    "http:"                                                                                        \
    "//"
#define GET "GET / HTTP/1.1\r\nHost: a\r\n"

static unsigned scan(const char *text, size_t n) {
    sl_http_head head;
    const char *why = NULL;
    const unsigned status = sl__http_head_scan(text, n, &head, &why);
    assert_true(status < 400 || why != NULL);
    return status;
}

static void heads_are_taken_or_refused(void **state) {
    static const struct {
        const char *text;
        unsigned status;
    } cases[] = {
        {GET "\r\n", 0},
        {GET "\r\nmore of it", 0},
        {"GET / HTTP/1.0\r\n\r\n", 0},
        {GET "X:\r\nY:  spaces  \r\nZ: a\tb\r\n\r\n", 0},
        {"HEAD * HTTP/1.1\r\nhOST: a\r\n\r\n", 0},
        {GET "Content-Length: 12\r\n\r\n", 0},
        {GET "Transfer-Encoding: Chunked\r\n\r\n", 0},
        {GET "Expect: 100-Continue\r\n\r\n", 0},
        {"", 1},
        {"G", 1},
        {"GET / HTTP/1.1\r", 1},
        {GET, 1},
        {GET "\r", 1},
        {"GET / HTTP/1.1\n"
         "Host: a\n\n",
         400},
        {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
        {"GET / HTTP/1.1\r\r\n", 400},
        {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
        {"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /\r\n", 400},
        {"GET / http/1.1\r\n", 400},
        {"GET / HTTP/1.10\r\n", 400},
        {"GET / HTTP/2.0\r\n", 505},
        {"GET / HTTP/1.2\r\n", 505},
        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
        {"G(T / HTTP/1.1\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {GET " folded\r\n\r\n", 400},
        {GET "\tfolded\r\n\r\n", 400},
        {GET "X : space before the colon\r\n\r\n", 400},
        {GET "no colon\r\n\r\n", 400},
        {GET ": no name\r\n\r\n", 400},
        {GET "X: bell \a\r\n\r\n", 400},
        {GET "hOsT: b\r\n\r\n", 400},
        {GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400},
        {GET "Content-Length: 1, 1\r\n\r\n", 400},
        {GET "Content-Length: +1\r\n\r\n", 400},
        {GET "Content-Length: -1\r\n\r\n", 400},
        {GET "Content-Length: 0x1\r\n\r\n", 400},
        {GET "Content-Length:\r\n\r\n", 400},
        {GET "Content-Length: 99999999999999999999\r\n\r\n", 413},
        {GET "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        {GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {GET "Transfer-Encoding: xchunked\r\n\r\n", 501},
        {GET "Transfer-Encoding: chunked;x\r\n\r\n", 501},
        {"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {GET "Expect: a miracle\r\n\r\n", 417},
        {GET "Authorization: a\r\nAuthorization: b\r\n\r\n", 400},
        {GET "Origin: a\r\nOrigin: b\r\n\r\n", 400},
    };
    (void)state;
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        const unsigned status = scan(cases[i].text, strlen(cases[i].text));
        if (status != cases[i].status)
            fail_msg("%s: %u instead of %u", cases[i].text, status, cases[i].status);
    }
    static const char nul[] = "GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n";
    static const char nul_in_field[] = GET "X: a\0b\r\n\r\n";
    assert_int_equal(scan(nul, sizeof(nul) - 1), 400);
    assert_int_equal(scan(nul_in_field, sizeof(nul_in_field) - 1), 400);
}

static void a_head_that_arrives_byte_by_byte_is_not_refused(void **state) {
    static const char text[] = "POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    (void)state;
    for (size_t n = 0; n < sizeof(text) - 1; n++)
        assert_int_equal(scan(text, n), SL_HTTP_HEAD_MORE);
    assert_int_equal(scan(text, sizeof(text) - 1), 0);
}

static void repeated(char *out, size_t cap, const char *begin, const char *part, unsigned n,
                     const char *end) {
    size_t at = strlen(begin);
    assert_true(at + n * strlen(part) + strlen(end) < cap);
    memcpy(out, begin, at + 1);
    for (unsigned i = 0; i < n; i++, at += strlen(part))
        memcpy(out + at, part, strlen(part));
    memcpy(out + at, end, strlen(end) + 1);
}

static void what_libmicrohttpd_keeps_records_of_is_limited(void **state) {
    char text[4096];
    (void)state;
    repeated(text, sizeof(text), GET, "X: y\r\n", SL_HTTP_FIELDS_MAX - 1, "\r\n");
    assert_int_equal(scan(text, strlen(text)), 0);
    repeated(text, sizeof(text), GET, "X: y\r\n", SL_HTTP_FIELDS_MAX, "\r\n");
    assert_int_equal(scan(text, strlen(text)), 431);
    repeated(text, sizeof(text), GET "Cookie: a", ";a", SL_HTTP_COOKIES_MAX - 1, "\r\n\r\n");
    assert_int_equal(scan(text, strlen(text)), 0);
    repeated(text, sizeof(text), GET "Cookie: a", ",a", SL_HTTP_COOKIES_MAX, "\r\n\r\n");
    assert_int_equal(scan(text, strlen(text)), 431);
    repeated(text, sizeof(text), "GET /?a", "&a", SL_HTTP_PARAMETERS_MAX - 1,
             " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(scan(text, strlen(text)), 0);
    repeated(text, sizeof(text), "GET /?a", "&a", SL_HTTP_PARAMETERS_MAX,
             " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(scan(text, strlen(text)), 414);
}

static void targets_are_decoded(void **state) {
    static const struct {
        const char *text, *path, *query; // path NULL: refused
    } cases[] = {
        {"/", "/", ""},
        {"/a%20b/%C3%A4", "/a b/\xc3\xa4", ""},
        {"/a?b=c%20d?e", "/a", "b=c%20d?e"},
        {"/a?", "/a", ""},
        {"/a%2Fb%3fc", "/a/b?c", ""},
        {"/a+b", "/a+b", ""},
        {"*", "*", ""},
        {WEB "h:8/x?y", "/x", "y"},
        {WEB "h", "/", ""},
        {WEB "h?y", "/", "y"},
        {"/%", NULL, NULL},
        {"/%4", NULL, NULL},
        {"/%4g", NULL, NULL},
        {"/%00", NULL, NULL},
        {"/a%0d%0ab", NULL, NULL},
        {"/%ff", NULL, NULL},
        {"/%C3", NULL, NULL},
        {"a", NULL, NULL},
        {"", NULL, NULL},
        {"**", NULL, NULL},
        {"ftp:"
         "//h/x",
         NULL, NULL},
        {"h:443", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        char out[64];
        sl_http_target target;
        const bool good = sl__http_target_parse(cases[i].text, strlen(cases[i].text), out, &target);
        if (good != (cases[i].path != NULL))
            fail_msg("'%s' is %s", cases[i].text, good ? "taken" : "refused");
        if (good) {
            assert_string_equal(target.path, cases[i].path);
            assert_string_equal(target.query, cases[i].query);
        }
    }
}

static void queries_are_searched(void **state) {
    char out[8];
    (void)state;
    assert_true(sl_http_query("a=1&b=x+%41&a=2", "a", out, sizeof(out)));
    assert_string_equal(out, "1");
    assert_true(sl_http_query("a=1&b=x+%41&a=2", "b", out, sizeof(out)));
    assert_string_equal(out, "x A");
    assert_true(sl_http_query("a&b", "b", out, sizeof(out)));
    assert_string_equal(out, "");
    assert_true(sl_http_query("a=%31%32%33%34%35%36%37", "a", out, sizeof(out)));
    assert_string_equal(out, "1234567");
    assert_false(sl_http_query("a=12345678", "a", out, sizeof(out)));
    assert_false(sl_http_query("ab=1", "a", out, sizeof(out)));
    assert_false(sl_http_query("", "a", out, sizeof(out)));
    assert_false(sl_http_query("a=%", "a", out, sizeof(out)));
    assert_false(sl_http_query("a=%00", "a", out, sizeof(out)));
    assert_false(sl_http_query("a=%ff", "a", out, sizeof(out)));
}

static void authorities_are_read(void **state) {
    static const struct {
        const char *text, *name; // name NULL: refused
        int port;
    } cases[] = {
        {"localhost", "localhost", -1},
        {"LocalHost:8080", "localhost", 8080},
        {"127.0.0.1:1", "127.0.0.1", 1},
        {"[::1]:8080", "::1", 8080},
        {"[0:0:0:0:0:0:0:1]", "::1", -1},
        {"a-b_c.example", "a-b_c.example", -1},
        {"", NULL, 0},
        {":80", NULL, 0},
        {"a:", NULL, 0},
        {"a:b", NULL, 0},
        {"a:65536", NULL, 0},
        {"a:80:80", NULL, 0},
        {"a b", NULL, 0},
        {"user@a", NULL, 0},
        {"a/b", NULL, 0},
        {"::1", NULL, 0},
        {"[::1", NULL, 0},
        {"[::1]8080", NULL, 0},
        {"[a]", NULL, 0},
        {"[127.0.0.1]", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_http_authority a;
        const bool good = sl__http_authority_parse(cases[i].text, strlen(cases[i].text), &a);
        if (good != (cases[i].name != NULL))
            fail_msg("'%s' is %s", cases[i].text, good ? "taken" : "refused");
        if (good) {
            assert_string_equal(a.name, cases[i].name);
            assert_int_equal(a.port, cases[i].port);
        }
    }
}

static bool allowed(const char *host) {
    static const char *const listed[] = {"chat.example", "other.example:9000"};
    sl_http_authority a;
    assert_true(sl__http_authority_parse(host, strlen(host), &a));
    return sl__http_host_is_allowed(&a, "127.0.0.1", 8080, listed, 2);
}

static void only_our_names_are_allowed(void **state) {
    (void)state;
    assert_true(allowed("localhost:8080"));
    assert_true(allowed("127.0.0.1:8080"));
    assert_true(allowed("CHAT.example"));
    assert_true(allowed("chat.example:1"));
    assert_true(allowed("other.example:9000"));
    assert_false(allowed("localhost"));
    assert_false(allowed("localhost:8081"));
    assert_false(allowed("127.0.0.2:8080"));
    assert_false(allowed("localhost.evil.example:8080"));
    assert_false(allowed("xlocalhost:8080"));
    assert_false(allowed("other.example:9001"));
    assert_false(allowed("other.example"));
    assert_false(allowed("2130706433:8080")); // 127.0.0.1 as browsers may write it
}

static bool same_place(const char *origin, const char *host) {
    sl_http_authority a;
    assert_true(sl__http_authority_parse(host, strlen(host), &a));
    return sl__http_origin_is_host(origin, &a);
}

static void origins_are_compared_with_host(void **state) {
    static const char *const listed[] = {"https:"
                                         "//page.example"};
    static const char *const any[] = {"*"};
    (void)state;
    assert_true(same_place(WEB "localhost:8080", "localhost:8080"));
    assert_true(same_place("https:"
                           "//chat.example",
                           "chat.example"));
    assert_true(same_place("https:"
                           "//chat.example:443",
                           "chat.example"));
    assert_false(same_place(WEB "localhost:8081", "localhost:8080"));
    assert_false(same_place(WEB "localhost", "localhost:8080"));
    assert_false(same_place(WEB "evil.example:8080", "localhost:8080"));
    assert_false(same_place(WEB "localhost:8080.evil.example", "localhost:8080"));
    assert_false(same_place(WEB "localhost:8080/x", "localhost:8080"));
    assert_false(same_place("null", "localhost:8080"));
    assert_false(same_place("file:"
                            "//",
                            "localhost:8080"));
    assert_false(same_place("", "localhost:8080"));
    assert_true(sl__http_origin_is_listed("https:"
                                          "//PAGE.example",
                                          listed, 1));
    assert_false(sl__http_origin_is_listed("https:"
                                           "//page.example.evil",
                                           listed, 1));
    assert_true(sl__http_origin_is_listed("null", any, 1));
    assert_false(sl__http_origin_is_listed("null", listed, 1));
}

static void media_types_are_reduced(void **state) {
    char out[20];
    (void)state;
    sl__http_media_type("Application/JSON; charset=utf-8", out, sizeof(out));
    assert_string_equal(out, "application/json");
    sl__http_media_type("", out, sizeof(out));
    assert_string_equal(out, "");
    sl__http_media_type("application/very-long-indeed", out, sizeof(out));
    assert_string_equal(out, "");
}

static bool has_key(const char *given) {
    static const char *const texts[] = {"first-key", "second"};
    sl_http_key keys[2], key;
    for (int i = 0; i < 2; i++)
        assert_true(sl__http_key_init(&keys[i], texts[i]));
    return sl__http_key_init(&key, given) && sl__http_key_is_one(keys, 2, &key);
}

static void keys_are_compared_whole(void **state) {
    char longest[SL_HTTP_KEY_MAX + 1];
    sl_http_key key;
    (void)state;
    assert_true(has_key("first-key"));
    assert_true(has_key("second"));
    assert_false(has_key("first-ke"));
    assert_false(has_key("first-key1"));
    assert_false(has_key("second-key"));
    assert_false(has_key("Second"));
    assert_false(has_key(""));
    memset(longest, 'k', sizeof(longest));
    longest[SL_HTTP_KEY_MAX] = '\0';
    assert_false(sl__http_key_init(&key, longest));
    longest[SL_HTTP_KEY_MAX - 1] = '\0';
    assert_true(sl__http_key_init(&key, longest));
    assert_false(sl__http_key_init(&key, "a b"));
    assert_false(sl__http_key_init(&key, "a\n"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_taken_or_refused),
        cmocka_unit_test(a_head_that_arrives_byte_by_byte_is_not_refused),
        cmocka_unit_test(what_libmicrohttpd_keeps_records_of_is_limited),
        cmocka_unit_test(targets_are_decoded),
        cmocka_unit_test(queries_are_searched),
        cmocka_unit_test(authorities_are_read),
        cmocka_unit_test(only_our_names_are_allowed),
        cmocka_unit_test(origins_are_compared_with_host),
        cmocka_unit_test(media_types_are_reduced),
        cmocka_unit_test(keys_are_compared_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
