/* The kernels of level avx512. Built with its flags; nothing here runs before dispatch.c has asked. */
#include "kernels/x86/lanes_avx512.h"
#include "kernels/lanes/table.h"
#include "kernels/x86/x86.h"

void sl__avx512_table(sl_kernels *k) {
    lanes_table(k);
    k->product[SL_DTYPE_Q4] = sl__avx512_product_q4;
    k->product[SL_DTYPE_MXFP4] = sl__avx512_product_mxfp4;
    k->level = "avx512";
}
