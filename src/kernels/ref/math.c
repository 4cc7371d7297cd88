/* The scalar functions of kernels.h; ref/math.h has their text. */
#include "kernels/ref/math.h"

#include "kernels/kernels.h"

float sl_expf(float x) {
    return ref_expf(x);
}
float sl_softplusf(float x) {
    return ref_softplusf(x);
}
float sl_sigmoidf(float x) {
    return ref_sigmoidf(x);
}
void sl_sincosf(float x, float *sin_x, float *cos_x) {
    ref_sincosf(x, sin_x, cos_x);
}
double sl_exp64(double x) {
    return ref_exp64(x);
}
double sl_log64(double x) {
    return ref_log64(x);
}
