/* The kernels of level neon: every aarch64 processor has them. */
#include "kernels/arm/lanes_neon.h"
#include "kernels/lanes/table.h"
#include "kernels/arm/arm.h"

LANES_PRODUCT(q4, LANES_Q4, 4)
LANES_PRODUCT(mxfp4, LANES_MXFP4, 4)

void sl__neon_table(sl_kernels *k) {
    lanes_table(k);
    k->product[SL_DTYPE_Q4] = lanes_product_q4;
    k->product[SL_DTYPE_MXFP4] = lanes_product_mxfp4;
    k->level = "neon";
}
