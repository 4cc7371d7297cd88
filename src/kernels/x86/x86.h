/* What the levels of x86-64 put into the table. Each overwrites the entries that it improves. */
#ifndef SL_KERNELS_X86_X86_H
#define SL_KERNELS_X86_X86_H

#include "kernels/kernels.h"

void sl__avx2_table(sl_kernels *k);
void sl__avx512_table(sl_kernels *k);

#endif
