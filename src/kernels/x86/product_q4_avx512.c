/* Products of 4-bit weights (affine, and MXFP4) in AVX-512: four rows at a time with the columns of a tile.
 *
 * The sixteen chains of a 4 x 4 tile and their operands fill the register file, so the lanes' sums stay
 * in the first cache and are fetched once per block. Codes are decoded inside the tile: there is no
 * buffer of widened weights, and a tile of columns costs one pass over the codes. A single column takes
 * the same path; the four rows it reads at once, and their scales and biases, are fetched ahead by hand,
 * because the processor's own prefetching follows one stream better than six. */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/lanes/tiles.h"
#include "kernels/x86/x86.h"

#define ROWS 4
/* How far: at the speed out of the first cache some 250 ns, or what memory takes. */
#define CODES_AHEAD 8192u
#define SCALES_AHEAD 2048u

typedef enum q4_type { Q4_AFFINE, Q4_MXFP4 } q4_type;

/* The four low bits of each word, as a centred code or as E2M1, looked up in a register. */
SL_INLINE __m512 q4_code(__m512i word, q4_type type) {
    const __m512 centred = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512 e2m1 = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                       -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    return _mm512_permutexvar_ps(word, type == Q4_AFFINE ? centred : e2m1);
}

/* One block: the tile's chains, then their turn in the sums. */
SL_INLINE void q4_block(__m512i codes[ROWS], float (*chunk)[SL_LANES], __m512i groups,
                        const float *x, int n, q4_type type, float *sums) {
    __m512 p[ROWS][SL_TILE];
    SL_UNROLL
    for (int j = 0; j < 8; j++) {
        __m512 xj[SL_TILE];
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            xj[k] = _mm512_load_ps(x + (j * n + k) * 16);
            __asm__("" : "+v"(xj[k])); // loaded once, not folded into four multiplications
        }
        SL_UNROLL
        for (int r = 0; r < ROWS; r++) {
            const __m512 code = q4_code(codes[r], type);
            codes[r] = _mm512_srli_epi32(codes[r], 4);
            SL_UNROLL
            for (int k = 0; k < n; k++) {
                p[r][k] =
                    j == 0 ? _mm512_mul_ps(code, xj[k]) : _mm512_fmadd_ps(code, xj[k], p[r][k]);
            }
        }
    }
    SL_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const __m512 scale = _mm512_permutexvar_ps(groups, _mm512_load_ps(chunk[r]));
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            float *sum = sums + (r * n + k) * 16;
            _mm512_store_ps(sum, _mm512_fmadd_ps(scale, p[r][k], _mm512_load_ps(sum)));
        }
    }
}

/* Four rows of at most eight groups, scales and biases of BF16: those of all four rows are one load, and a
 * row's are picked from it into the upper halves of its lanes. Short rows have many beginnings. */
#define FEW_GROUPS 8u

SL_INLINE void q4_few_biases(const sl_matrix *w, size_t first_group, uint32_t n_groups,
                             const float *group_sums, uint32_t stride, int n, float *sums,
                             float (*chunk)[SL_LANES]) {
    const __mmask32 present = (__mmask32)((UINT64_C(1) << ROWS * n_groups) - 1);
    const __mmask32 upper = 0xaaaau & (__mmask32)((1u << 2 * n_groups) - 1);
    const __m512i scales =
        _mm512_maskz_loadu_epi16(present, (const char *)w->scales + first_group * 2);
    const __m512i biases =
        _mm512_maskz_loadu_epi16(present, (const char *)w->biases + first_group * 2);
    const __m512i next_row = _mm512_set1_epi16((short)n_groups);
    __m512i at = _mm512_setr_epi32(0, 1 << 16, 2 << 16, 3 << 16, 4 << 16, 5 << 16, 6 << 16, 7 << 16,
                                   0, 0, 0, 0, 0, 0, 0, 0);
    SL_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const __m512 scale = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper, at, scales));
        const __m512 bias = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper, at, biases));
        const __m512 b = _mm512_fmadd_ps(_mm512_set1_ps(8.0f), scale, bias);
        _mm512_store_ps(chunk[r], scale);
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            const __m512 sum = _mm512_load_ps(group_sums + (size_t)k * stride);
            const __m512 from_zero = _mm512_fmadd_ps(b, sum, _mm512_setzero_ps()); // no group: +0
            _mm512_store_ps(sums + (r * n + k) * 16, from_zero);
        }
        at = _mm512_add_epi16(at, next_row);
    }
}

/* The sums of one row and n columns start from the biases; the scales of the first 16 groups are kept. */
SL_INLINE void q4_biases(const sl_matrix *w, size_t row_groups, uint32_t n_groups,
                         const float *group_sums, uint32_t stride, int n, float *sums,
                         float *chunk) {
    const sl_dtype dtype = w->shape.scale_dtype;
    __m512 a[SL_TILE];
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        a[k] = _mm512_setzero_ps();
    }
    uint32_t g = 0;
    do { // a row has a group
        const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
        const __m512 scale = l_widen(w->scales, dtype, row_groups + g, part);
        const __m512 bias = l_widen(w->biases, dtype, row_groups + g, part);
        const __m512 b = _mm512_fmadd_ps(_mm512_set1_ps(8.0f), scale, bias);
        if (g == 0) {
            _mm512_store_ps(chunk, scale);
        }
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            const __m512 sum = _mm512_load_ps(group_sums + (size_t)k * stride + g);
            a[k] = _mm512_mask3_fmadd_ps(b, sum, a[k], l_mask(part));
        }
        g += SL_LANES;
    } while (g < n_groups);
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        _mm512_store_ps(sums + k * 16, a[k]);
    }
}

/* Scales of the groups g .. g+15 of a row, +0 past its last. */
SL_INLINE __m512 q4_scales(const sl_matrix *w, size_t row_groups, uint32_t g, uint32_t n_groups,
                           q4_type type) {
    const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
    return type == Q4_MXFP4 ? l_exponents((const char *)w->scales + row_groups + g, part)
                            : l_widen(w->scales, w->shape.scale_dtype, row_groups + g, part);
}

/* Codes of block b of each row; words past the last input hold eight codes of value 0. */
SL_INLINE void q4_codes(__m512i c[ROWS], const char *const rows[ROWS], size_t b, uint32_t n_words,
                        q4_type type) {
    if (n_words >= 16) {
        SL_UNROLL
        for (int r = 0; r < ROWS; r++) {
            c[r] = _mm512_loadu_si512(rows[r] + b * 64);
        }
        return;
    }
    const __m512i none = _mm512_set1_epi32(type == Q4_AFFINE ? (int)0x88888888u : 0);
    SL_UNROLL
    for (int r = 0; r < ROWS; r++) {
        c[r] = _mm512_mask_loadu_epi32(none, l_mask(n_words), rows[r] + b * 64);
    }
}

/* Rows row .. row + n_rows - 1, at most four; what is missing repeats the first and is dropped. `few`: there
 * are four, and q4_few_biases may begin them. It is a literal; a test here would take the registers that
 * short rows gain from. */
SL_INLINE void q4_tile(const sl_matrix *w, uint32_t row, uint32_t n_rows, const float *tile,
                       const float *group_sums, int n, q4_type type, bool few, float *y,
                       size_t y_stride) {
    SL_ALIGNED(64) float sums[ROWS * SL_TILE * SL_LANES];
    SL_ALIGNED(64) float chunk[ROWS][SL_LANES]; // scales of 16 groups
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = type == Q4_MXFP4 ? 32 : w->shape.group;
    const uint32_t n_groups = n_inputs / group;
    const uint32_t n_blocks = sl_blocks(n_inputs);
    const uint32_t chunk_blocks =
        few ? n_blocks : SL_LANES * group / SL_BLOCK; // blocks of 16 groups
    const size_t row_bytes = n_inputs / 2;
    const size_t ahead = SL_ALIGN_UP(CODES_AHEAD, ROWS * row_bytes); // whole tiles
    const size_t scale_bytes = type == Q4_MXFP4                               ? 1
                               : !few && w->shape.scale_dtype == SL_DTYPE_F32 ? 4
                                                                              : 2;
    const size_t scales_ahead = (size_t)row * (n_inputs / group) * scale_bytes + SCALES_AHEAD;
    const size_t scale_step = ROWS * (SL_BLOCK / group) * scale_bytes; // a tile's scales in a row
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first_group = _mm512_srli_epi32(lane, group == 128 ? 4 : group == 64 ? 3 : 2);
    const __m512i next_block = _mm512_set1_epi32((int)(SL_BLOCK / group));
    const char *codes[ROWS];
    size_t row_groups[ROWS];
    if (few) {
        q4_few_biases(w, (size_t)row * n_groups, n_groups, group_sums,
                      sl_group_stride(n_inputs, group), n, sums, chunk);
    }
    SL_UNROLL
    for (uint32_t r = 0; r < ROWS; r++) {
        const uint32_t at = r < n_rows ? row + r : row;
        codes[r] = (const char *)w->codes + at * row_bytes;
        row_groups[r] = (size_t)at * n_groups;
        if (few) {
            continue;
        }
        float *row_sums = sums + r * (unsigned)n * SL_LANES;
        if (type == Q4_AFFINE) {
            q4_biases(w, row_groups[r], n_groups, group_sums, sl_group_stride(n_inputs, group), n,
                      row_sums, chunk[r]);
            continue;
        }
        _mm512_store_ps(chunk[r], q4_scales(w, row_groups[r], 0, n_groups, type));
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            _mm512_store_ps(row_sums + k * 16, _mm512_setzero_ps());
        }
    }
    for (uint32_t first = 0; first < n_blocks; first += chunk_blocks) {
        const uint32_t g = first * (SL_BLOCK / group);
        const uint32_t end = n_blocks - first < chunk_blocks ? n_blocks : first + chunk_blocks;
        __m512i groups = first_group;
        if (first > 0 && !few) {
            SL_UNROLL
            for (int r = 0; r < ROWS; r++) {
                _mm512_store_ps(chunk[r], q4_scales(w, row_groups[r], g, n_groups, type));
            }
        }
        for (uint32_t b = first; b < end; b++) {
            const uint32_t n_words = (n_inputs - b * SL_BLOCK) / 8;
            __m512i c[ROWS];
            q4_codes(c, codes, b, n_words, type);
            SL_UNROLL
            for (int r = 0; r < ROWS; r++) {
                _mm_prefetch(codes[r] + (size_t)b * 64 + ahead, _MM_HINT_T0);
            }
            _mm_prefetch((const char *)w->scales + scales_ahead + b * scale_step, _MM_HINT_T0);
            if (type == Q4_AFFINE) {
                _mm_prefetch((const char *)w->biases + scales_ahead + b * scale_step, _MM_HINT_T0);
            }
            q4_block(c, chunk, groups, tile + (size_t)b * SL_BLOCK * (unsigned)n, n, type, sums);
            groups = _mm512_add_epi32(groups, next_block);
        }
    }
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        const float *s = sums + k * 16;
        const int next = n * 16;
        const __m128 out =
            l_tree4_sums(l_load(s), l_load(s + next), l_load(s + 2 * next), l_load(s + 3 * next));
        float *to = y + (size_t)k * y_stride + row;
        if (n_rows == ROWS) {
            _mm_storeu_ps(to, out);
        } else { // no masked store: gcc 12 makes it a vextractf32x4, whose mask does not stop faults
            float some[ROWS];
            _mm_storeu_ps(some, out);
            memcpy(to, some, n_rows * sizeof(float));
        }
    }
}

SL_INLINE void q4_rows(const sl_matrix *w, uint32_t begin, uint32_t end, const sl_columns *x,
                       uint32_t column, int n, q4_type type, float *y, size_t y_stride) {
    const float *tile = x->xp + column * sl_pack_floats(x->n_inputs);
    const float *sums =
        type == Q4_AFFINE ? x->group_sums + (size_t)column * sl_group_stride(x->n_inputs, x->group)
                          : NULL;
    uint32_t row = begin;
    if (type == Q4_AFFINE && w->shape.scale_dtype == SL_DTYPE_BF16 &&
        w->shape.cols / w->shape.group <= FEW_GROUPS) {
        for (; end - row >= ROWS; row += ROWS) {
            q4_tile(w, row, ROWS, tile, sums, n, type, true, y + column * y_stride, y_stride);
        }
    }
    for (; row < end; row += ROWS) {
        q4_tile(w, row, end - row < ROWS ? end - row : ROWS, tile, sums, n, type, false,
                y + column * y_stride, y_stride);
    }
}

SL_INLINE void q4_product(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                          const sl_columns *x, q4_type type, float *y, size_t y_stride) {
    const uint32_t panel = sl_panel_rows(w->shape.cols / 2, ROWS);
    sl_prefetch_rows(w, row_begin, w->shape.cols / 2);
#define TILE(begin, end, column, n) q4_rows(w, begin, end, x, column, n, type, y, y_stride)
    SL_WALK_TILES(row_begin, row_end, panel, x, TILE)
#undef TILE
}

void sl__avx512_product_q4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                           const sl_columns *x, float *y, size_t y_stride) {
    q4_product(w, row_begin, row_end, x, Q4_AFFINE, y, y_stride);
}

void sl__avx512_product_mxfp4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                              const sl_columns *x, float *y, size_t y_stride) {
    q4_product(w, row_begin, row_end, x, Q4_MXFP4, y, y_stride);
}
