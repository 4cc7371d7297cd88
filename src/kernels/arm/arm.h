/* What the levels of aarch64 put into the table. */
#ifndef SL_KERNELS_ARM_ARM_H
#define SL_KERNELS_ARM_ARM_H

#include "kernels/kernels.h"

void sl__neon_table(sl_kernels *k);

#endif
