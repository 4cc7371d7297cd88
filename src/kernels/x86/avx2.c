/* The kernels of level avx2. Built with -mavx2 -mfma; nothing here runs before dispatch.c has asked. */
#include "kernels/x86/lanes_avx2.h"
#include "kernels/lanes/table.h"
#include "kernels/x86/x86.h"

void sl__avx2_table(sl_kernels *k) {
    lanes_table(k);
    k->product[SL_DTYPE_Q4] = sl__avx2_product_q4;
    k->product[SL_DTYPE_MXFP4] = sl__avx2_product_mxfp4;
    k->level = "avx2";
}
