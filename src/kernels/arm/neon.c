/* The kernels of level neon: every aarch64 processor has them. */
#include "kernels/arm/lanes_neon.h"
#include "kernels/lanes/table.h"
#include "kernels/arm/arm.h"

void sl__neon_table(sl_kernels *k) {
    lanes_table(k);
    k->level = "neon";
}
