/* Products of every weight type, one row and one tile of columns at a time. Where a type is worth a
 * shape of its own (4 bits), an instruction set may have a product_q4_*.c instead. */
#ifndef SL_KERNELS_LANES_PRODUCT_H
#define SL_KERNELS_LANES_PRODUCT_H

#include "kernels/lanes/tiles.h"

/* How a type's weights are laid out. The widths that are no power of two, and 2 bits, share one piece of
 * code; program pages count against every budget. */
typedef enum lanes_layout {
    LANES_F32,
    LANES_F16,
    LANES_BF16,
    LANES_MXFP4,
    LANES_Q4,
    LANES_Q8,
    LANES_ODD
} lanes_layout;

SL_INLINE bool lanes_quantized(lanes_layout layout) {
    return layout >= LANES_MXFP4;
}
SL_INLINE bool lanes_affine(lanes_layout layout) {
    return layout >= LANES_Q4;
}

/* The bytes of one block of a row: 16 lanes of 8 elements. */
SL_INLINE size_t lanes_block_bytes(unsigned bits) {
    return (size_t)bits * SL_LANES;
}

/* The code of `bits` bits at bit `at` of each word, centred: with the exponent of 2^(23 - at) above
 * it, the code is the integer part of a float, and one exact subtraction leaves code - C.
 * at + bits <= 23. */
SL_INLINE lanes lanes_code(words w, unsigned bits, unsigned at) {
    const uint32_t one = (uint32_t)(127 + 23 - at) << 23;
    const words coded = w_keep_or(w, w_set1(((1u << bits) - 1) << at), w_set1(one));
    return l_sub(l_bits(coded), l_set1(sl__float_of_bits(one) + (float)(1u << (bits - 1))));
}

/* The E2M1 code at bits 4j .. 4j+3 of each word. Its bits in the places of f32 make a number that is 2^126
 * too small, subnormals included. */
SL_INLINE lanes lanes_fp4(words w, int j) {
    const words magnitude = 4 * j < 22 ? w_shl(w, 22 - 4 * j) : w_shr(w, 4 * j - 22);
    const words sign = w_and(w_shl(w, 28 - 4 * j), w_set1(0x80000000u));
    return l_mul(l_bits(w_keep_or(magnitude, w_set1(0x01c00000u), sign)), l_set1(0x1p126f));
}

/* w[j], lane i: weight (dense), value of the code (mxfp4) or centred code (affine) of input 8i + j of a block. */
SL_INLINE void lanes_weights(const unsigned char *block, lanes_layout layout, unsigned bits,
                             lanes w[8]) {
    words raw[8];
    switch (layout) {
    case LANES_F32:
        w_deal4(block, 32, raw);
        w_deal4(block + 16, 32, raw + 4);
        SL_UNROLL
        for (int j = 0; j < 8; j++) {
            w[j] = l_bits(raw[j]);
        }
        return;
    case LANES_F16:
        w_deal4(block, 16, raw);
        SL_UNROLL
        for (int t = 0; t < 4; t++) {
            w[2 * t] = l_half(raw[t]);
            w[2 * t + 1] = l_half(w_shr(raw[t], 16));
        }
        return;
    case LANES_BF16:
        w_deal4(block, 16, raw);
        SL_UNROLL
        for (int t = 0; t < 4; t++) {
            w[2 * t] = l_bits(w_shl(raw[t], 16));
            w[2 * t + 1] = l_bits(w_and(raw[t], w_set1(0xffff0000u)));
        }
        return;
    case LANES_MXFP4:
        raw[0] = w_load(block);
        SL_UNROLL
        for (int j = 0; j < 8; j++) {
            w[j] = lanes_fp4(raw[0], j);
        }
        return;
    case LANES_Q4:
        raw[0] = w_load(block);
        raw[1] = w_shr(raw[0], 20);
        SL_UNROLL
        for (unsigned j = 0; j < 8; j++) {
            w[j] = j < 5 ? lanes_code(raw[0], 4, 4 * j) : lanes_code(raw[1], 4, 4 * (j - 5));
        }
        return;
    case LANES_Q8:
        w_deal2(block, raw);
        SL_UNROLL
        for (int t = 0; t < 2; t++) {
            const words upper = w_shr(raw[t], 16);
            w[4 * t] = lanes_code(raw[t], 8, 0);
            w[4 * t + 1] = lanes_code(raw[t], 8, 8);
            w[4 * t + 2] = lanes_code(upper, 8, 0);
            w[4 * t + 3] = lanes_code(upper, 8, 8);
        }
        return;
    case LANES_ODD: // a lane's eight codes begin its eight bytes; four of them fill a word
        w_bytes8(block, bits, raw);
        raw[1] =
            w_keep_or(w_shl(raw[1], 32 - 4 * (int)bits), w_set1(~0u), w_shr(raw[0], 4 * (int)bits));
        SL_UNROLL
        for (unsigned t = 0; t < 4; t++) {
            w[t] = lanes_code(w_shr(raw[0], (int)(bits * t)), bits, 0);
            w[t + 4] = lanes_code(w_shr(raw[1], (int)(bits * t)), bits, 0);
        }
        return;
    }
}

/* Bytes that lanes_weights reads for one block: of odd widths, the last lane's eight. */
SL_INLINE size_t lanes_block_reach(lanes_layout layout, unsigned bits) {
    return lanes_block_bytes(bits) + (layout == LANES_ODD ? 8 - bits : 0);
}

/* p[c] = the chained products of a block with each of n columns. */
SL_INLINE void lanes_block_products(const lanes w[8], const float *x, int n, lanes p[SL_TILE]) {
    SL_UNROLL
    for (int j = 0; j < 8; j++) {
        SL_UNROLL
        for (int c = 0; c < n; c++) {
            const lanes xj = l_load(x + (j * n + c) * (int)SL_LANES);
            p[c] = j == 0 ? l_mul(w[j], xj) : l_fma(w[j], xj, p[c]);
        }
    }
}

/* a[c] from the biases: B_g times the group sums, 16 groups at a time. */
SL_INLINE void lanes_biases(const sl_matrix *w, size_t row_groups, uint32_t n_groups, float centre,
                            const float *group_sums, size_t sums_stride, int n, lanes a[SL_TILE]) {
    const sl_dtype dtype = w->shape.scale_dtype;
    SL_UNROLL
    for (int c = 0; c < n; c++) {
        a[c] = l_zero();
    }
    for (uint32_t g = 0; g < n_groups; g += SL_LANES) {
        const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
        const lanes b = l_fma(l_set1(centre), l_widen(w->scales, dtype, row_groups + g, part),
                              l_widen(w->biases, dtype, row_groups + g, part));
        SL_UNROLL
        for (int c = 0; c < n; c++) {
            const lanes sums = l_load(group_sums + (size_t)c * sums_stride + g);
            a[c] = l_first(part, l_fma(b, sums, a[c]), a[c]);
        }
    }
}

/* Scales of the groups g .. g+15 of a row, +0 past its last. */
SL_INLINE lanes lanes_scales(const sl_matrix *w, size_t row_groups, uint32_t g, uint32_t n_groups,
                             lanes_layout layout) {
    const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
    return layout == LANES_MXFP4
               ? l_exponents((const unsigned char *)w->scales + row_groups + g, part)
               : l_widen(w->scales, w->shape.scale_dtype, row_groups + g, part);
}

/* One row with the n columns of a tile. Scales are widened for 16 groups at a time. */
SL_INLINE void lanes_row(const sl_matrix *w, uint32_t row, const float *tile,
                         const float *group_sums, lanes_layout layout, unsigned bits, int n,
                         float y[SL_TILE]) {
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = w->shape.group;
    const size_t block_bytes = lanes_block_bytes(bits);
    const bool quantized = lanes_quantized(layout);
    const uint32_t n_groups = quantized ? n_inputs / group : 0;
    const uint32_t groups_per_block = quantized ? SL_BLOCK / group : 0;
    const size_t row_groups = (size_t)row * n_groups;
    const size_t row_bytes = (size_t)n_inputs * block_bytes / SL_BLOCK;
    const unsigned char *codes = (const unsigned char *)w->codes + (size_t)row * row_bytes;
    const size_t codes_left = (size_t)(w->shape.rows - row) * row_bytes;
    float scales[SL_LANES + 4] = {0.0f}; // l_spread may look at four from any of the 16
    lanes a[SL_TILE];
    if (lanes_affine(layout)) {
        const float centre = (float)(1u << (bits - 1));
        lanes_biases(w, row_groups, n_groups, centre, group_sums, sl_group_stride(n_inputs, group),
                     n, a);
    } else {
        SL_UNROLL
        for (int c = 0; c < n; c++) {
            a[c] = l_zero();
        }
    }
    for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
        const unsigned char *block = codes + (size_t)b * block_bytes;
        unsigned char last[4 * SL_BLOCK];
        lanes weights[8], p[SL_TILE];
        // Blocks of codes may read on into the next row, whose codes meet inputs and scales of +0.
        const size_t block_end = (size_t)b * block_bytes + lanes_block_reach(layout, bits);
        const size_t readable = quantized ? codes_left : row_bytes;
        if (block_end > readable) {
            memset(last, 0, sizeof(last));
            block = memcpy(last, block, readable - (size_t)b * block_bytes);
        }
        lanes_weights(block, layout, bits, weights);
        lanes_block_products(weights, tile + (size_t)b * SL_BLOCK * (unsigned)n, n, p);
        if (quantized) {
            const uint32_t g = b * groups_per_block;
            if (g % SL_LANES == 0) {
                l_store(scales, lanes_scales(w, row_groups, g, n_groups, layout));
            }
            const lanes scale = l_spread(scales + g % SL_LANES, group);
            SL_UNROLL
            for (int c = 0; c < n; c++) {
                a[c] = l_fma(scale, p[c], a[c]);
            }
        } else {
            SL_UNROLL
            for (int c = 0; c < n; c++) {
                a[c] = l_add(a[c], p[c]);
            }
        }
    }
    SL_UNROLL
    for (int c = 0; c < n; c++) {
        if (quantized &&
            n_inputs % SL_BLOCK != 0) { // lanes without inputs add +0, whatever was read
            a[c] = l_first(n_inputs % SL_BLOCK / 8, a[c], l_add(a[c], l_zero()));
        }
        y[c] = l_tree(a[c]);
    }
}

SL_INLINE void lanes_tile(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                          const sl_columns *x, uint32_t column, lanes_layout layout, unsigned bits,
                          int n, float *y, size_t y_stride) {
    const float *tile = x->xp + column * sl_pack_floats(x->n_inputs);
    const float *sums =
        lanes_affine(layout)
            ? x->group_sums + (size_t)column * sl_group_stride(x->n_inputs, x->group)
            : NULL;
    for (uint32_t row = row_begin; row < row_end; row++) {
        float out[SL_TILE];
        lanes_row(w, row, tile, sums, layout, bits, n, out);
        for (int c = 0; c < n; c++) {
            y[(column + (unsigned)c) * y_stride + row] = out[c];
        }
    }
}

SL_INLINE void lanes_product(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                             const sl_columns *x, float *y, size_t y_stride, lanes_layout layout,
                             unsigned bits) {
    const size_t row_bytes = (size_t)w->shape.cols * lanes_block_bytes(bits) / SL_BLOCK;
    const uint32_t panel = sl_panel_rows(row_bytes, 1);
    sl_prefetch_rows(w, row_begin, row_bytes);
#define TILE(begin, end, column, n)                                                                \
    lanes_tile(w, begin, end, x, column, layout, bits, n, y, y_stride)
    SL_WALK_TILES(row_begin, row_end, panel, x, TILE)
#undef TILE
}

/* The table's entry for a layout; `bits` may look at w. */
#define LANES_PRODUCT(name, layout, bits)                                                          \
    static void lanes_product_##name(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,     \
                                     const sl_columns *x, float *y, size_t y_stride) {             \
        lanes_product(w, row_begin, row_end, x, y, y_stride, layout, bits);                        \
    }
LANES_PRODUCT(f32, LANES_F32, 32)
LANES_PRODUCT(f16, LANES_F16, 16)
LANES_PRODUCT(bf16, LANES_BF16, 16)
LANES_PRODUCT(q8, LANES_Q8, 8)
LANES_PRODUCT(odd, LANES_ODD, sl_dtype_bits(w->shape.dtype))

#endif
