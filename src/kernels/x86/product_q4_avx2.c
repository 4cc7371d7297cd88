/* Products of 4-bit weights in AVX2: a few rows at a time with the columns of a tile, lanes 0-7 and then
 * lanes 8-15 of each block, so that the chains of one half fit the sixteen registers: 2 rows x 4
 * columns, or 4 rows x 1. The lanes' sums stay in the first cache. See product_q4_avx512.c for the rest. */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/lanes/tiles.h"
#include "kernels/x86/x86.h"

#define ROWS_MAX 4

/* Half a block: the tile's chains, then their turn in the sums. A centred code is a four-bit number in
 * two's complement once its top bit is flipped, so shifts extend its sign: no constants, no registers.
 * `codes` come with those bits flipped. */
SL_INLINE void q4_half(const __m256i codes[ROWS_MAX], const __m256 scales[ROWS_MAX], int rows,
                       const float *x, int n, float *sums) {
    __m256 p[ROWS_MAX][SL_TILE];
    SL_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256 code[ROWS_MAX];
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            const __m256i top = _mm256_slli_epi32(codes[r], 28 - 4 * j);
            code[r] = _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
        }
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            __m256 xj = _mm256_load_ps(x + (j * n + k) * 16);
            __asm__("" : "+x"(xj)); // loaded once, not folded into each multiplication
            SL_UNROLL
            for (int r = 0; r < rows; r++) {
                p[r][k] =
                    j == 0 ? _mm256_mul_ps(code[r], xj) : _mm256_fmadd_ps(code[r], xj, p[r][k]);
            }
        }
    }
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            float *sum = sums + (r * n + k) * 16;
            _mm256_store_ps(sum, _mm256_fmadd_ps(scales[r], p[r][k], _mm256_load_ps(sum)));
        }
    }
}

/* The sums of one row and n columns start from the biases; the scales of the first 16 groups are kept. */
SL_INLINE void q4_biases(const sl_matrix *w, size_t row_groups, uint32_t n_groups,
                         const float *group_sums, uint32_t stride, int n, float *sums,
                         float *chunk) {
    const sl_dtype dtype = w->shape.scale_dtype;
    lanes a[SL_TILE];
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        a[k] = l_zero();
    }
    uint32_t g = 0;
    do { // a row has a group
        const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
        const lanes scale = l_widen(w->scales, dtype, row_groups + g, part);
        const lanes bias = l_widen(w->biases, dtype, row_groups + g, part);
        const lanes b = l_fma(l_set1(8.0f), scale, bias);
        if (g == 0) {
            l_store(chunk, scale);
        }
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            const lanes sum = l_fma(b, l_load(group_sums + (size_t)k * stride + g), a[k]);
            a[k] = l_first(part, sum, a[k]);
        }
        g += SL_LANES;
    } while (g < n_groups);
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        l_store(sums + k * 16, a[k]);
    }
}

/* Codes of half h of block b of each row, their top bits flipped; words past the last input are eight
 * centred 0. */
SL_INLINE void q4_codes(__m256i c[ROWS_MAX], const char *const rows[ROWS_MAX], int n_rows, size_t b,
                        int h, uint32_t n_words) {
    const __m256i flip = _mm256_set1_epi32((int)0x88888888u);
    const size_t at = b * 64 + 32 * (unsigned)h;
    if (n_words >= 16) {
        SL_UNROLL
        for (int r = 0; r < n_rows; r++) {
            c[r] = _mm256_xor_si256(_mm256_loadu_si256((const __m256i *)(rows[r] + at)), flip);
        }
        return;
    }
    const __m256i present = l_mask8((int32_t)n_words - 8 * h);
    SL_UNROLL
    for (int r = 0; r < n_rows; r++) {
        const __m256i some = _mm256_maskload_epi32((const int *)(rows[r] + at), present);
        c[r] = _mm256_and_si256(_mm256_xor_si256(some, flip), present);
    }
}

/* Scales of half h of a block of each row; chunk[r][g] is that of the block's first group. */
SL_INLINE void q4_scales(__m256 scales[ROWS_MAX], float (*chunk)[SL_LANES], int n_rows, uint32_t g,
                         int h, uint32_t group) {
    if (group == 32) {
        SL_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const float *s = chunk[r] + g + 2 * h;
            scales[r] = _mm256_set_m128(_mm_set1_ps(s[1]), _mm_set1_ps(s[0]));
        }
        return;
    }
    const uint32_t at = group == 64 ? g + (unsigned)h : g;
    SL_UNROLL
    for (int r = 0; r < n_rows; r++) {
        scales[r] = _mm256_broadcast_ss(chunk[r] + at);
    }
}

/* Rows row .. row + n_rows - 1, at most `rows`; what is missing repeats the first and is dropped. */
SL_INLINE void q4_tile(const sl_matrix *w, uint32_t row, uint32_t n_rows, int rows,
                       const float *tile, const float *group_sums, int n, float *y,
                       size_t y_stride) {
    SL_ALIGNED(64) float sums[8 * SL_LANES]; // rows * n <= 8
    float chunk[ROWS_MAX][SL_LANES];         // scales of 16 groups
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = w->shape.group;
    const uint32_t n_groups = n_inputs / group;
    const size_t row_bytes = n_inputs / 2;
    const size_t ahead = SL_ALIGN_UP(2048, (unsigned)rows * row_bytes);
    const char *codes[ROWS_MAX];
    size_t row_groups[ROWS_MAX];
    SL_UNROLL
    for (int r = 0; r < rows; r++) {
        const uint32_t at = (uint32_t)r < n_rows ? row + (uint32_t)r : row;
        codes[r] = (const char *)w->codes + at * row_bytes;
        row_groups[r] = (size_t)at * n_groups;
        q4_biases(w, row_groups[r], n_groups, group_sums, sl_group_stride(n_inputs, group), n,
                  sums + r * n * 16, chunk[r]);
    }
    for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
        const uint32_t g = b * (SL_BLOCK / group);
        const uint32_t n_words = (n_inputs - b * SL_BLOCK) / 8;
        if (g % SL_LANES == 0 && g > 0) {
            const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
            SL_UNROLL
            for (int r = 0; r < rows; r++) {
                const sl_dtype dtype = w->shape.scale_dtype;
                l_store(chunk[r], l_widen(w->scales, dtype, row_groups[r] + g, part));
            }
        }
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            _mm_prefetch(codes[r] + (size_t)b * 64 + ahead, _MM_HINT_T0);
        }
        SL_UNROLL
        for (int h = 0; h < 2; h++) {
            if (n_words <= 8 * (unsigned)h) { // nothing there: +0 is added, which ends a sum of -0
                for (int i = 0; i < rows * n; i++) {
                    float *sum = sums + i * 16 + 8 * h;
                    const __m256 zero = _mm256_setzero_ps();
                    _mm256_store_ps(sum, _mm256_add_ps(_mm256_load_ps(sum), zero));
                }
                continue;
            }
            __m256i c[ROWS_MAX];
            __m256 scales[ROWS_MAX];
            q4_codes(c, codes, rows, b, h, n_words);
            q4_scales(scales, chunk, rows, g % SL_LANES, h, group);
            q4_half(c, scales, rows, tile + (size_t)b * SL_BLOCK * (unsigned)n + 8 * h, n,
                    sums + 8 * h);
        }
    }
    float out[8];
    const int n_sums = rows * n;
    SL_UNROLL
    for (int i = 0; i < n_sums; i += 4) {
        const lanes four[4] = {l_load(sums + i * 16), l_load(sums + (i + 1) * 16),
                               l_load(sums + (i + 2 < n_sums ? i + 2 : i) * 16),
                               l_load(sums + (i + 3 < n_sums ? i + 3 : i) * 16)};
        l_tree4(out + i, four);
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        for (int k = 0; k < n; k++) {
            y[(size_t)k * y_stride + row + r] = out[r * (unsigned)n + (unsigned)k];
        }
    }
}

SL_INLINE void q4_rows(const sl_matrix *w, uint32_t begin, uint32_t end, const sl_columns *x,
                       uint32_t column, int n, float *y, size_t y_stride) {
    const float *tile = x->xp + column * sl_pack_floats(x->n_inputs);
    const float *sums = x->group_sums + (size_t)column * sl_group_stride(x->n_inputs, x->group);
    const uint32_t rows = n == 1 ? 4 : 2;
    for (uint32_t row = begin; row < end; row += rows) {
        q4_tile(w, row, end - row < rows ? end - row : rows, (int)rows, tile, sums, n,
                y + column * y_stride, y_stride);
    }
}

void sl__avx2_product_q4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                         const sl_columns *x, float *y, size_t y_stride) {
    const uint32_t panel = sl_panel_rows(w->shape.cols / 2, ROWS_MAX);
    sl_prefetch_rows(w, row_begin, w->shape.cols / 2);
#define TILE(begin, end, column, n) q4_rows(w, begin, end, x, column, n, y, y_stride)
    SL_WALK_TILES(row_begin, row_end, panel, x, TILE)
#undef TILE
}
