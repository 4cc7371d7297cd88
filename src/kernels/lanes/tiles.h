/* The walk of a product over its matrix and its columns. */
#ifndef SL_KERNELS_LANES_TILES_H
#define SL_KERNELS_LANES_TILES_H

#include "kernels/lanes/lanes.h"

/* Codes of the rows that are taken through all columns before the next rows: half of a second cache
 * of 512 KiB, so that every tile of columns after the first finds them there. */
#define SL_PANEL_BYTES (256u << 10)

/* Rows of a panel, a multiple of `step`. */
SL_INLINE uint32_t sl_panel_rows(size_t row_bytes, uint32_t step) {
    const size_t rows = row_bytes == 0 ? step : SL_PANEL_BYTES / row_bytes / step * step;
    return rows < step ? step : rows > 1u << 20 ? 1u << 20 : (uint32_t)rows;
}

/* Ask for the first codes, scales and biases, if any, of a range of rows. An expert comes cold, and as small
 * products go its three streams would wait for memory one after the other. */
SL_INLINE void sl_prefetch_rows(const sl_matrix *w, uint32_t row, size_t row_bytes) {
    for (size_t at = 0; at < 2048; at += 64) {
        __builtin_prefetch((const char *)w->codes + row * row_bytes + at);
    }
    if (w->shape.group != 0) {
        const size_t scale_bytes = sl_dtype_bits(w->shape.scale_dtype) / 8;
        const size_t first = (size_t)row * (w->shape.cols / w->shape.group) * scale_bytes;
        for (size_t at = 0; at < 384; at += 64) {
            __builtin_prefetch((const char *)w->scales + first + at);
            if (w->biases) {
                __builtin_prefetch((const char *)w->biases + first + at);
            }
        }
    }
}

/* DO(begin, end, column, n) for every panel of rows and every tile of columns in it, with n the tile's
 * width as a literal, so that DO is compiled once for each. `x` is the sl_columns. */
#define SL_WALK_TILES(row_begin, row_end, panel, x, DO)                                            \
    for (uint32_t begin = (row_begin); begin < (row_end); begin += (panel)) {                      \
        const uint32_t end = (row_end)-begin < (panel) ? (row_end) : begin + (panel);              \
        for (uint32_t column = 0; column < (x)->n; column += SL_TILE) {                            \
            switch ((x)->n - column) {                                                             \
            case 1:                                                                                \
                DO(begin, end, column, 1);                                                         \
                break;                                                                             \
            case 2:                                                                                \
                DO(begin, end, column, 2);                                                         \
                break;                                                                             \
            case 3:                                                                                \
                DO(begin, end, column, 3);                                                         \
                break;                                                                             \
            default:                                                                               \
                DO(begin, end, column, 4);                                                         \
                break;                                                                             \
            }                                                                                      \
        }                                                                                          \
    }

#endif
