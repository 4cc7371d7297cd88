/* The reference once more, built with AVX2 and FMA: the same text gives the same bits, and fmaf is an
 * instruction instead of a call. One file, because no other may be compiled with these flags. */
#define SL_REF_FMA

#include "kernels/ref/attend.c"
#include "kernels/ref/conv.c"
#include "kernels/ref/delta.c"
#include "kernels/ref/elementwise.c"
#include "kernels/ref/norm.c"
#include "kernels/ref/pack.c"
#include "kernels/ref/product.c"
#include "kernels/ref/rope.c"
#include "kernels/ref/table.c"
