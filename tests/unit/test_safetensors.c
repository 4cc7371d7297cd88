/* checkpoint/safetensors: headers of other people's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/safetensors.h"

static sl_status add(sl_st_table *table, const char *header, uint64_t data_bytes, sl_error *err) {
    size_t len = strlen(header);
    char *copy = malloc(len + 1); // exactly as long: a sanitizer sees a read beyond
    memcpy(copy, header, len);
    sl_st_table_init(table);
    sl_status st = sl_st_add_header(table, copy, len, 8 + len + data_bytes, 3, err);
    if (!st)
        st = sl_st_sort(table, err);
    free(copy);
    return st;
}

static void a_header_is_read(void **state) {
    (void)state;
    sl_st_table table;
    sl_error err;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b.w\":{\"dtype\":\"U32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
        "\"a\\u002ew\":{\"data_offsets\":[0,8],\"shape\":[1,4,1],\"dtype\":\"BF16\"},"
        "\"none\":{\"dtype\":\"F8_E4M3\",\"shape\":[0,7],\"data_offsets\":[32,32]},"
        "\"one\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[32,36]}}   ";
    assert_int_equal(add(&table, header, 36, &err), SL_OK);
    assert_int_equal(table.n_tensors, 4);
    const sl_st_tensor *a = sl_st_find(&table, "a.w"), *b = sl_st_find(&table, "b.w");
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->dtype, SL_DTYPE_BF16);
    assert_int_equal(a->n_dims, 3);
    assert_int_equal(a->dims[1], 4);
    assert_int_equal(a->offset, 8 + strlen(header));
    assert_int_equal(a->bytes, 8);
    assert_int_equal(b->offset, 8 + strlen(header) + 8);
    assert_int_equal(b->file, 3);
    assert_int_equal(sl_st_find(&table, "none")->dtype, SL_DTYPE_F8_E4M3);
    assert_string_equal(sl_st_find(&table, "none")->dtype_name, "F8_E4M3");
    assert_int_equal(sl_st_find(&table, "one")->n_dims, 0);
    assert_null(sl_st_find(&table, "c"));
    sl_st_table_deinit(&table);
}

static void hostile_headers_are_refused(void **state) {
    (void)state;
    const struct {
        const char *header;
        uint64_t data_bytes;
        sl_status status;
        const char *says;
    } cases[] = {
        {"", 0, SL_ERR_CORRUPT, "JSON"},
        {"[]", 0, SL_ERR_CORRUPT, "not an object"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, SL_ERR_CORRUPT,
         "ends"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} x", 4, SL_ERR_CORRUPT,
         "after"},
        {"{\"a\":7}", 0, SL_ERR_CORRUPT, "'a'"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, SL_ERR_UNSUPPORTED,
         "F33"},
        {"{\"a\":{\"dtype\":4,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, SL_ERR_CORRUPT, "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, SL_ERR_CORRUPT, "needs"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, SL_ERR_CORRUPT,
         "needs"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, SL_ERR_CORRUPT,
         "too many"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         SL_ERR_CORRUPT, "twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
         SL_ERR_CORRUPT, "unknown field"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, SL_ERR_CORRUPT,
         "shape times"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, SL_ERR_CORRUPT,
         "bytes 4 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, SL_ERR_CORRUPT,
         "cut short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, SL_ERR_CORRUPT,
         "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", 4, SL_ERR_CORRUPT,
         "whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4,
         SL_ERR_CORRUPT, "whole"},
        // 2^32 * 2^32 elements would be none at all in 64 bits.
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         SL_ERR_CORRUPT, "too large"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}}", 4,
         SL_ERR_CORRUPT, "whole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
         SL_ERR_CORRUPT, "too many"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, SL_ERR_CORRUPT,
         "shape times"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\","
         "\"shape\":[4],\"data_offsets\":[3,7]}}",
         7, SL_ERR_CORRUPT, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\","
         "\"shape\":[4],\"data_offsets\":[4,8]}}",
         8, SL_ERR_CORRUPT, "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5, SL_ERR_CORRUPT,
         "its tensors end"},
        {"{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0,
         SL_ERR_CORRUPT, "object"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_st_table table;
        sl_error err = {0};
        sl_status st = add(&table, cases[i].header, cases[i].data_bytes, &err);
        if (st != cases[i].status || !strstr(err.message, cases[i].says))
            fail_msg("case %zu: %s '%s', expected '%s'", i, sl_status_name(st), err.message,
                     cases[i].says);
        sl_st_table_deinit(&table);
    }
}

static void long_names_are_refused(void **state) {
    (void)state;
    char header[2 * SL_ST_NAME_MAX], name[SL_ST_NAME_MAX + 2];
    sl_st_table table;
    sl_error err;
    for (size_t n = SL_ST_NAME_MAX; n <= SL_ST_NAME_MAX + 1; n++) {
        memset(name, 'x', n);
        name[n] = '\0';
        (void)snprintf(header, sizeof(header),
                       "{\"%s\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", name);
        assert_int_equal(add(&table, header, 0, &err),
                         n > SL_ST_NAME_MAX ? SL_ERR_UNSUPPORTED : SL_OK);
        sl_st_table_deinit(&table);
    }
}

static void what_is_no_safetensors_is_named(void **state) {
    (void)state;
    const struct {
        const char *first;
        size_t n;
        uint64_t file_bytes;
        sl_status status;
        const char *says;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a", 60, 134, SL_ERR_CORRUPT,
         "git lfs pull"},
        {"GGUF\x03\0\0\0\0\0\0\0", 12, 4096, SL_ERR_UNSUPPORTED, "GGUF"},
        {"<!DOCTYPE html>\n<html>", 20, 4096, SL_ERR_CORRUPT, "no safetensors file"},
        {"", 0, 0, SL_ERR_CORRUPT, "only 0 bytes"},
        {"\x10\0\0\0\0\0\0", 7, 7, SL_ERR_CORRUPT, "only 7 bytes"},
        {"\x10\0\0\0\0\0\0\0{}", 10, 10, SL_ERR_CORRUPT, "cut short"},
        {"\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10, 10, SL_ERR_CORRUPT, "9223372036854775807"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, 10, SL_ERR_CORRUPT, "no safetensors file"},
        {"\x01\xe1\xf5\x05\0\0\0\0{}", 10, (uint64_t)1 << 40, SL_ERR_CORRUPT, "100000000"},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_error err = {0};
        uint64_t len;
        sl_status st =
            sl_st_header_bytes(cases[i].first, cases[i].n, cases[i].file_bytes, &len, &err);
        if (st != cases[i].status || !strstr(err.message, cases[i].says))
            fail_msg("case %zu: %s '%s', expected '%s'", i, sl_status_name(st), err.message,
                     cases[i].says);
    }
    uint64_t len;
    assert_int_equal(sl_st_header_bytes("\x02\0\0\0\0\0\0\0{}", 10, 10, &len, NULL), SL_OK);
    assert_int_equal(len, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_is_read),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(what_is_no_safetensors_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
