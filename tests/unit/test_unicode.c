/* text/utf8, text/unicode and text/normalize: replacement, streaming, composition. The tables
 * themselves are held to the reference by tests/diff/test_tokenizer_hf.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "text/normalize.h"
#include "text/utf8.h"

// Invalid sequences and what they become: one U+FFFD for each maximal subpart.
static const struct {
    const char *bytes, *text;
} replaced[] = {
    {"", ""},
    {"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "plain é € 😀"},
    {"a\x80z", "a\xef\xbf\xbdz"},
    {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"\xc3", "\xef\xbf\xbd"},
    {"\xc3(", "\xef\xbf\xbd("},
    {"\xe2\x82"
     "A",
     "\xef\xbf\xbd"
     "A"},
    {"\xf0\x9f\x98", "\xef\xbf\xbd"},
    {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd😀"},
    {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                                 // overlong
    {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 // overlong
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                 // a surrogate
    {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, // above U+10FFFF
    {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
    {"\xf5\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
};

static void invalid_text_is_replaced(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(replaced); i++) {
        const char *bytes = replaced[i].bytes;
        size_t len = strlen(bytes), n = 0;
        uint8_t out[64];
        for (size_t at = 0; at < len;) {
            uint32_t cp;
            at += sl_utf8_decode((const uint8_t *)bytes + at, (const uint8_t *)bytes + len, &cp);
            n += sl_utf8_encode(cp == SL_UTF8_INVALID ? SL_UTF8_REPLACEMENT : cp, out + n);
        }
        out[n] = 0;
        assert_string_equal((char *)out, replaced[i].text);
        assert_int_equal(sl_utf8_is_valid(bytes, len), strcmp(bytes, replaced[i].text) == 0);
    }
}

static void every_code_point_survives(void **state) {
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        uint8_t bytes[4];
        uint32_t back;
        size_t n = sl_utf8_encode(cp, bytes);
        assert_int_equal(n, sl_utf8_size(cp));
        bool surrogate = cp >= 0xd800 && cp < 0xe000;
        size_t taken = sl_utf8_decode(bytes, bytes + n, &back);
        assert_true(surrogate ? back == SL_UTF8_INVALID : back == cp && taken == n);
    }
}

// Whatever the cuts, a stream gives what the whole gives, and never a part of a character.
static void a_stream_never_splits_a_character(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(replaced); i++) {
        const char *bytes = replaced[i].bytes;
        size_t len = strlen(bytes);
        for (uint32_t cuts = 0; cuts < 1u << SL_MIN(len, 12); cuts++) {
            sl_utf8_stream stream;
            char out[128];
            size_t n = 0, from = 0;
            sl_utf8_stream_init(&stream);
            for (size_t at = 1; at <= len; at++) {
                if (at < len && (at > 12 || !(cuts >> (at - 1) & 1)))
                    continue;
                char part[SL_UTF8_FEED_BYTES(32)];
                size_t got = sl_utf8_feed(&stream, bytes + from, at - from, part);
                assert_true(got <= SL_UTF8_FEED_BYTES(at - from));
                assert_true(sl_utf8_is_valid(part, got));
                memcpy(out + n, part, got);
                n += got;
                from = at;
            }
            n += sl_utf8_flush(&stream, out + n);
            out[n] = '\0';
            assert_string_equal(out, replaced[i].text);
            assert_int_equal(sl_utf8_flush(&stream, out), 0);
        }
    }
}

static void a_stream_releases_as_early_as_it_can(void **state) {
    (void)state;
    sl_utf8_stream stream;
    char out[32];
    sl_utf8_stream_init(&stream);
    assert_int_equal(sl_utf8_feed(&stream, "a\xf0\x9f", 3, out), 1);
    assert_int_equal(sl_utf8_feed(&stream, "\x98", 1, out), 0);
    assert_int_equal(sl_utf8_feed(&stream, "\x80", 1, out), 4);
    assert_int_equal(sl_utf8_feed(&stream, "\xe2", 1, out), 0);
    assert_int_equal(sl_utf8_feed(&stream, "b", 1, out), 4);    // U+FFFD and b
    assert_int_equal(sl_utf8_feed(&stream, "\xc0", 1, out), 3); // never the start of anything
}

static void classes_are_those_of_unicode_16(void **state) {
    (void)state;
    assert_int_equal(sl_uni_class('a'), SL_UNI_LL | SL_UNI_WORD);
    assert_int_equal(sl_uni_class('A'), SL_UNI_LU | SL_UNI_WORD);
    assert_int_equal(sl_uni_class(0x1c5), SL_UNI_LT | SL_UNI_WORD);
    assert_int_equal(sl_uni_class(0x2b0), SL_UNI_LM | SL_UNI_WORD);
    assert_int_equal(sl_uni_class(0x4e2d), SL_UNI_LO | SL_UNI_WORD);
    assert_int_equal(sl_uni_class('7'), SL_UNI_ND | SL_UNI_WORD);
    assert_int_equal(sl_uni_class('_'), SL_UNI_PC | SL_UNI_WORD);
    assert_int_equal(sl_uni_class('+'), SL_UNI_SM);
    assert_int_equal(sl_uni_class('\n'), SL_UNI_WHITE_CONTROL);
    assert_int_equal(sl_uni_class(0x85), SL_UNI_WHITE_CONTROL);
    assert_int_equal(sl_uni_class(0x1c), SL_UNI_CC); // a separator by name only
    assert_int_equal(sl_uni_class(0x301), SL_UNI_MN | SL_UNI_WORD);
    assert_int_equal(sl_uni_class(0x3000), SL_UNI_ZS);
    assert_int_equal(sl_uni_class(0x200b), SL_UNI_CF);
    assert_int_equal(sl_uni_class(0x200d), SL_UNI_CF | SL_UNI_WORD);
    assert_int_equal(sl_uni_class(0xbd), SL_UNI_NO);
    assert_int_equal(sl_uni_class(0x105c0), SL_UNI_LO | SL_UNI_WORD); // new in Unicode 16
    assert_int_equal(sl_uni_class(0x10ffff), SL_UNI_CN);
    assert_int_equal(SL_UNI_WHITE & (SL_UNI_CC | SL_UNI_L), 0);
}

static size_t nfc(const char *text, size_t len, size_t room, char *out, size_t segment_cap,
                  sl_status *st) {
    static sl_uni_marked segment[4096], scratch[4096];
    sl_normalizer z = {.at = (const uint8_t *)text,
                       .end = (const uint8_t *)text + len,
                       .segment = segment,
                       .scratch = scratch,
                       .segment_cap = segment_cap,
                       .nfc = true};
    size_t total = 0, n = 0;
    do {
        *st = sl_normalizer_fill(&z, (uint8_t *)out + total, room, &n, NULL);
        assert_true(n <= room);
        total += *st ? 0 : n;
    } while (!*st && n > 0);
    if (!*st && z.at < z.end)
        *st = SL_ERR_MEMORY; // the room is too small for what comes next
    return total;
}

static void normalization_is_the_same_in_every_room(void **state) {
    (void)state;
    static const struct {
        const char *text, *nfc;
    } cases[] = {
        {"plain ascii text, long enough for words", "plain ascii text, long enough for words"},
        {"e\xcc\x81", "é"},
        {"a\xcc\xa3\xcc\x87 a\xcc\x87\xcc\xa3", "ạ̇ ạ̇"},
        {"\xe2\x84\xab\xe2\x84\xa6", "ÅΩ"},           // singletons
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"}, // excluded from composition
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "한"},
        {"\xed\x95\x98\xe1\x86\xab", "한"},
        {"\xcc\x81x\xff\xcc\x81", "\xcc\x81x\xef\xbf\xbd\xcc\x81"},
        {"\xf0\x9f\x98\x80 日本語", "\xf0\x9f\x98\x80 日本語"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        for (size_t room = 12; room < 80; room++) {
            char out[512];
            sl_status st;
            size_t n = nfc(cases[i].text, strlen(cases[i].text), room, out, 64, &st);
            assert_int_equal(st, SL_OK);
            out[n] = '\0';
            assert_string_equal(out, cases[i].nfc);
        }
    }
}

// 3,000 marks of two classes, in the worst order, come out sorted, and in linear time.
static void long_runs_of_marks_are_ordered(void **state) {
    (void)state;
    char text[1 + 2 * 3000 + 1], out[sizeof(text)];
    sl_status st;
    text[0] = 'q';
    for (size_t i = 0; i < 3000; i++)
        memcpy(text + 1 + 2 * i, i % 2 ? "\xcc\xa3" : "\xcc\x88", 2);
    size_t n = nfc(text, sizeof(text) - 1, sizeof(out), out, 4096, &st);
    assert_int_equal(st, SL_OK);
    assert_int_equal(n, sizeof(text) - 1);
    for (size_t i = 0; i < 3000; i++)
        assert_memory_equal(out + 1 + 2 * i, i < 1500 ? "\xcc\xa3" : "\xcc\x88", 2);
    nfc(text, sizeof(text) - 1, sizeof(out), out, 1000, &st);
    assert_int_equal(st, SL_ERR_MEMORY);
    nfc(text, sizeof(text) - 1, 1000, out, 4096, &st);
    assert_int_equal(st, SL_ERR_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_text_is_replaced),
        cmocka_unit_test(every_code_point_survives),
        cmocka_unit_test(a_stream_never_splits_a_character),
        cmocka_unit_test(a_stream_releases_as_early_as_it_can),
        cmocka_unit_test(classes_are_those_of_unicode_16),
        cmocka_unit_test(normalization_is_the_same_in_every_room),
        cmocka_unit_test(long_runs_of_marks_are_ordered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
