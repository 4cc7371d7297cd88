/* What the levels of x86-64 put into the table. Each overwrites the entries that it improves. */
#ifndef SL_KERNELS_X86_X86_H
#define SL_KERNELS_X86_X86_H

#include "kernels/kernels.h"

void sl__avx2_table(sl_kernels *k);
void sl__avx512_table(sl_kernels *k);

void sl__avx2_product_q4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                         const sl_columns *x, float *y, size_t y_stride);
void sl__avx2_product_mxfp4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                            const sl_columns *x, float *y, size_t y_stride);
void sl__avx512_product_q4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                           const sl_columns *x, float *y, size_t y_stride);
void sl__avx512_product_mxfp4(const sl_matrix *w, uint32_t row_begin, uint32_t row_end,
                              const sl_columns *x, float *y, size_t y_stride);

#endif
