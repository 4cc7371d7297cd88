/* Products of 4-bit weights (affine, and MXFP4) in AVX2: a few rows at a time with the columns of a tile, lanes 0-7 and then
 * lanes 8-15 of each block, so that the chains of one half fit the sixteen registers: 2 rows x 4
 * columns, or 4 rows x 1. The lanes' sums stay in the first cache. See product_q4_avx512.c for the rest. */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/lanes/tiles.h"
#include "kernels/x86/x86.h"

#define ROWS_MAX 4

typedef enum q4_type { Q4_AFFINE, Q4_MXFP4 } q4_type;

/* Two of a row's eight codes in each word. An E2M1 value is a BF16: bytes are looked up, its upper half in
 * one table and its lower in another, and put together. */
typedef struct q4_pairs {
    __m256i of[4]; /* codes 0 and 2; 4 and 6; 1 and 3; 5 and 7 */
} q4_pairs;

SL_INLINE void q4_pair_up(__m256i codes, __m256i pairs[2]) {
    const __m256i upper = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0x00, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf,
                      (char)0xbf, (char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0));
    const __m256i lower = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0x00, 0x00, (char)0x80, (char)0xc0, 0x00, 0x40, (char)0x80, (char)0xc0, 0x00,
                      0x00, (char)0x80, (char)0xc0, 0x00, 0x40, (char)0x80, (char)0xc0));
    const __m256i l = _mm256_shuffle_epi8(lower, codes);
    const __m256i u = _mm256_shuffle_epi8(upper, codes);
    pairs[0] = _mm256_unpacklo_epi8(l, u);
    pairs[1] = _mm256_unpackhi_epi8(l, u);
}

SL_INLINE q4_pairs q4_pairs_of(__m256i raw) {
    // of each part of four words: their first two bytes, then their last two
    const __m256i deal = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i codes = _mm256_shuffle_epi8(raw, deal);
    const __m256i low = _mm256_set1_epi8(15);
    q4_pairs p;
    q4_pair_up(_mm256_and_si256(codes, low), p.of);
    q4_pair_up(_mm256_and_si256(_mm256_srli_epi32(codes, 4), low), p.of + 2);
    return p;
}

/* Code j of each word. Affine: a centred code is a four-bit number in two's complement once its top bit is
 * flipped, so shifts extend its sign: no constants, no registers. `codes` come with those bits flipped. */
SL_INLINE __m256 q4_code(__m256i codes, const q4_pairs *pairs, int j, q4_type type) {
    if (type == Q4_AFFINE) {
        const __m256i top = _mm256_slli_epi32(codes, 28 - 4 * j);
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
    }
    const __m256i pair = pairs->of[j % 2 * 2 + j / 4];
    return _mm256_castsi256_ps(j / 2 % 2 == 0
                                   ? _mm256_slli_epi32(pair, 16)
                                   : _mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000u)));
}

/* Half a block: the tile's chains, then their turn in the sums. */
SL_INLINE void q4_half(const __m256i codes[ROWS_MAX], const __m256 scales[ROWS_MAX], int rows,
                       const float *x, int n, q4_type type, float *sums) {
    __m256 p[ROWS_MAX][SL_TILE];
    q4_pairs pairs[ROWS_MAX];
    SL_UNROLL
    for (int r = 0; r < rows && type == Q4_MXFP4; r++) {
        pairs[r] = q4_pairs_of(codes[r]);
    }
    SL_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256 code[ROWS_MAX];
        SL_UNROLL
        for (int r = 0; r < rows; r++) {
            code[r] = q4_code(codes[r], &pairs[r], j, type);
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

/* n <= 8 elements of BF16, then +0. */
SL_INLINE __m256 q4_widen8(const void *array, size_t at, uint32_t n) {
    const char *from = (const char *)array + at * 2;
    return l_widen_bf16(n == 8 ? _mm_loadu_si128((const __m128i *)from)
                               : _mm256_castsi256_si128(w_load_halves(from, n)));
}

/* What q4_biases does, for a row of at most eight groups and scales of BF16: one register is enough. Short
 * rows have many beginnings. */
SL_INLINE void q4_few_biases(const sl_matrix *w, size_t row_groups, uint32_t n_groups,
                             const float *group_sums, uint32_t stride, int n, float *sums,
                             float *chunk) {
    const __m256 zero = _mm256_setzero_ps();
    const __m256 scale = q4_widen8(w->scales, row_groups, n_groups);
    const __m256 bias = q4_widen8(w->biases, row_groups, n_groups);
    const __m256 b = _mm256_fmadd_ps(_mm256_set1_ps(8.0f), scale, bias);
    l_store(chunk, (lanes){scale, zero});
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        const __m256 sum = _mm256_loadu_ps(group_sums + (size_t)k * stride);
        l_store(sums + k * 16, (lanes){_mm256_fmadd_ps(b, sum, zero), zero}); // no group: +0
    }
}

/* The sums of one row and n columns start from the biases; the scales of the first 16 groups are kept. */
SL_INLINE void q4_biases(const sl_matrix *w, size_t row_groups, uint32_t n_groups,
                         const float *group_sums, uint32_t stride, int n, float *sums,
                         float *chunk) {
    const sl_dtype dtype = w->shape.scale_dtype;
    if (n_groups <= 8 && dtype == SL_DTYPE_BF16) {
        q4_few_biases(w, row_groups, n_groups, group_sums, stride, n, sums, chunk);
        return;
    }
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
            a[k] = g == 0 || part == SL_LANES ? sum : l_first(part, sum, a[k]); // +0 stays +0
        }
        g += SL_LANES;
    } while (g < n_groups);
    SL_UNROLL
    for (int k = 0; k < n; k++) {
        l_store(sums + k * 16, a[k]);
    }
}

/* Codes of half h of block b of each row, affine ones with their top bits flipped; words past the last
 * input are eight times 0. */
SL_INLINE void q4_codes(__m256i c[ROWS_MAX], const char *const rows[ROWS_MAX], int n_rows, size_t b,
                        int h, uint32_t n_words, q4_type type) {
    const __m256i flip = _mm256_set1_epi32(type == Q4_AFFINE ? (int)0x88888888u : 0);
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

/* Scales of the groups g .. g+15 of a row, +0 past its last. */
SL_INLINE lanes q4_chunk(const sl_matrix *w, size_t row_groups, uint32_t g, uint32_t n_groups,
                         q4_type type) {
    const uint32_t part = n_groups - g < SL_LANES ? n_groups - g : SL_LANES;
    return type == Q4_MXFP4 ? l_exponents((const char *)w->scales + row_groups + g, part)
                            : l_widen(w->scales, w->shape.scale_dtype, row_groups + g, part);
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
                       const float *tile, const float *group_sums, int n, q4_type type, float *y,
                       size_t y_stride) {
    SL_ALIGNED(64) float sums[8 * SL_LANES]; // rows * n <= 8
    float chunk[ROWS_MAX][SL_LANES];         // scales of 16 groups
    const uint32_t n_inputs = w->shape.cols;
    const uint32_t group = type == Q4_MXFP4 ? 32 : w->shape.group;
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
        if (type == Q4_AFFINE) {
            q4_biases(w, row_groups[r], n_groups, group_sums, sl_group_stride(n_inputs, group), n,
                      sums + r * n * 16, chunk[r]);
            continue;
        }
        l_store(chunk[r], q4_chunk(w, row_groups[r], 0, n_groups, type));
        SL_UNROLL
        for (int k = 0; k < n; k++) {
            l_store(sums + (r * n + k) * 16, l_zero());
        }
    }
    for (uint32_t b = 0; b < sl_blocks(n_inputs); b++) {
        const uint32_t g = b * (SL_BLOCK / group);
        const uint32_t n_words = (n_inputs - b * SL_BLOCK) / 8;
        if (g % SL_LANES == 0 && g > 0) {
            SL_UNROLL
            for (int r = 0; r < rows; r++) {
                l_store(chunk[r], q4_chunk(w, row_groups[r], g, n_groups, type));
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
            q4_codes(c, codes, rows, b, h, n_words, type);
            q4_scales(scales, chunk, rows, g % SL_LANES, h, group);
            q4_half(c, scales, rows, tile + (size_t)b * SL_BLOCK * (unsigned)n + 8 * h, n, type,
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
                       uint32_t column, int n, q4_type type, float *y, size_t y_stride) {
    const float *tile = x->xp + column * sl_pack_floats(x->n_inputs);
    const float *sums =
        type == Q4_AFFINE ? x->group_sums + (size_t)column * sl_group_stride(x->n_inputs, x->group)
                          : NULL;
    const uint32_t rows = n == 1 ? 4 : 2;
    for (uint32_t row = begin; row < end; row += rows) {
        q4_tile(w, row, end - row < rows ? end - row : rows, (int)rows, tile, sums, n, type,
                y + column * y_stride, y_stride);
    }
}

SL_INLINE void q4_product(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                          const sl_columns *x, q4_type type, float *y, size_t y_stride) {
    const uint32_t panel = sl_panel_rows(w->shape.cols / 2, ROWS_MAX);
    sl_prefetch_rows(w, row_begin, w->shape.cols / 2);
#define TILE(begin, end, column, n) q4_rows(w, begin, end, x, column, n, type, y, y_stride)
    SL_WALK_TILES(row_begin, row_end, panel, x, TILE)
#undef TILE
}

void sl__avx2_product_q4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                         const sl_columns *x, float *y, size_t y_stride) {
    q4_product(w, row_begin, row_end, x, Q4_AFFINE, y, y_stride);
}

void sl__avx2_product_mxfp4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                            const sl_columns *x, float *y, size_t y_stride) {
    q4_product(w, row_begin, row_end, x, Q4_MXFP4, y, y_stride);
}
