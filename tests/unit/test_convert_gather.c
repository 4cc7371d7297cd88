/* Tensors from their places: rows by runs, columns turned into rows, in strips that begin and end anywhere, against
 * loops that take one element at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/form.h"
#include "helpers/checkpoint.h"
#include "helpers/scratch.h"

#define OFFSET 48u /* of the tensor in its file */
#define WIDE_BYTES ((size_t)32 << 20)
#define SMALL_BYTES ((size_t)64 << 10) /* of strips, as an engine with little memory has them */

/* The file, and the result in memory. */
typedef struct gathered {
    sl_checkpoint ck;
    char *out;
    size_t out_bytes;
    uint64_t done;
} gathered;

static sl_status read_file(void *user, uint32_t file, uint64_t offset, uint64_t end, void *out,
                           size_t n, sl_error *err) {
    return sl_checkpoint_read(&((gathered *)user)->ck, file, offset, end, out, n, err);
}

static sl_status put(void *user, uint64_t at, const void *bytes, size_t n, sl_error *err) {
    gathered *g = user;
    (void)err;
    assert_true(at <= g->out_bytes && n <= g->out_bytes - at);
    memcpy(g->out + at, bytes, n);
    return SL_OK;
}

static sl_status count(void *user, uint64_t bytes, sl_error *err) {
    (void)err;
    ((gathered *)user)->done += bytes;
    return SL_OK;
}

// Any bits but those of numbers that are not finite.
static float element(uint64_t i) {
    uint32_t u = (uint32_t)(i * 2654435761u) & 0xbfffffffu;
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

// Element (row, col) of what is meant by the place, as its index in the file's matrix.
static uint64_t index_of(const sl_tensor_place *p, uint32_t out_cols, uint32_t row, uint32_t col) {
    uint32_t turned = (p->cols - p->first_col + p->col_step - 1) / p->col_step;
    uint32_t in_row = p->transposed ? row / turned * out_cols + col : row;
    uint32_t in_col = p->transposed ? p->first_col + row % turned * p->col_step : col;
    const sl_row_run *run = p->runs;
    for (; in_row >= run->rows * run->count; run++)
        in_row -= run->rows * run->count;
    return (uint64_t)(run->first + in_row / run->rows * run->stride + in_row % run->rows) *
               p->cols +
           in_col;
}

static void gather_case(const sl_tensor_place *p, bool copied) {
    uint32_t n_rows = 0, turned = (p->cols - p->first_col + p->col_step - 1) / p->col_step;
    for (uint32_t i = 0; i < p->n_runs; i++)
        n_rows += p->runs[i].rows * p->runs[i].count;
    const uint32_t cols = p->transposed ? p->runs[0].rows : p->cols;
    const uint32_t rows = p->transposed ? n_rows / cols * turned : n_rows;
    const size_t in_bytes = (size_t)p->rows * p->cols * sizeof(float);
    char *memory = malloc(OFFSET + in_bytes);
    for (size_t i = 0; i < (size_t)p->rows * p->cols; i++) {
        float f = element(i);
        memcpy(memory + OFFSET + i * sizeof(f), &f, sizeof(f));
    }
    test_file_write(test_scratch_path("gather-in"), memory, OFFSET + in_bytes);
    free(memory);

    const char *name = "gather-in";
    sl_file file;
    sl_error err;
    assert_int_equal(sl_file_open(test_scratch_path(name), false, &file, &err), SL_OK);
    const sl_matrix_shape f32 = {.dtype = SL_DTYPE_F32, .rows = rows, .cols = cols};
    sl_matrix_source s = {.shape = f32,
                          .in = {.dtype = SL_DTYPE_F32, .rows = p->rows, .cols = p->cols},
                          .place = *p,
                          .at = {OFFSET},
                          .row_bytes = {p->cols * sizeof(float)},
                          .end = {OFFSET + in_bytes},
                          .bytes = (uint64_t)rows * cols * sizeof(float),
                          .copied = copied,
                          .name = "gathered"};
    const size_t longest = SL_MAX(p->cols, cols) * sizeof(float),
                 least = SL_MAX(SMALL_BYTES, longest);
    for (int small = 0; small < 2; small++) {
        gathered g = {.ck = {.n_files = 1, .files = &name, .opened = &file},
                      .out = calloc(1, s.bytes),
                      .out_bytes = s.bytes};
        sl_tensor_form form = {.read = read_file,
                               .put = put,
                               .report = count,
                               .user = &g,
                               .strip_bytes = small ? least : SL_STRIP_BYTES,
                               .wide_bytes = small ? least : WIDE_BYTES};
        form.raw = malloc(form.strip_bytes);
        form.wide = malloc(form.wide_bytes);
        form.packed = malloc(form.strip_bytes);
        if (sl_form_tensor(&form, &s, 0, &err))
            fail_msg("%s", err.message);
        assert_int_equal(g.done, s.bytes);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < cols; c++) {
                float want = element(index_of(p, cols, r, c));
                if (memcmp(g.out + ((size_t)r * cols + c) * sizeof(want), &want, sizeof(want)) != 0)
                    fail_msg("row %u, column %u of %u x %u", r, c, rows, cols);
            }
        free(g.out);
        free(form.raw);
        free(form.wide);
        free(form.packed);
    }
    sl_file_close(&file);
}

static void rows_by_runs(void **state) {
    (void)state;
    static const sl_tensor_place cases[] = {
        {.rows = 7, .cols = 5, .n_runs = 1, .runs = {{2, 3, 3, 1}}, .col_step = 1},
        {.rows = 12, .cols = 5, .n_runs = 1, .runs = {{1, 1, 2, 6}}, .col_step = 1},
        {.rows = 30,
         .cols = 3,
         .n_runs = 3,
         .runs = {{0, 2, 10, 3}, {2, 2, 10, 3}, {4, 3, 10, 3}},
         .col_step = 1},
        // Strips of 2048 rows of a thousand, groups of 300 in 700: each begins inside of one.
        {.rows = 9800,
         .cols = 1000,
         .n_runs = 2,
         .runs = {{0, 300, 700, 14}, {400, 100, 700, 14}},
         .col_step = 1},
        // Groups further apart than a strip is long.
        {.rows = 7000, .cols = 1000, .n_runs = 1, .runs = {{100, 2500, 3500, 2}}, .col_step = 1},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        gather_case(&cases[i], true);
        gather_case(&cases[i], false);
    }
}

static void columns_as_rows(void **state) {
    (void)state;
    static const sl_tensor_place cases[] = {
        {.rows = 7, .cols = 5, .n_runs = 1, .runs = {{0, 7, 7, 1}}, .col_step = 1},
        {.rows = 7, .cols = 10, .n_runs = 1, .runs = {{0, 7, 7, 1}}, .first_col = 1, .col_step = 2},
        {.rows = 24, .cols = 6, .n_runs = 1, .runs = {{2, 3, 8, 3}}, .col_step = 1},
        // Groups one after another, and rows of which a strip takes 20.
        {.rows = 60, .cols = 100000, .n_runs = 1, .runs = {{0, 30, 30, 2}}, .col_step = 1},
        // More than fits the wide buffer: its end is inside of a group.
        {.rows = 4000, .cols = 4096, .n_runs = 1, .runs = {{0, 900, 1000, 4}}, .col_step = 1},
    };
    for (size_t i = 0; i < SL_COUNT(cases); i++) {
        sl_tensor_place p = cases[i];
        p.transposed = true;
        gather_case(&p, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_by_runs),
        cmocka_unit_test(columns_as_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
