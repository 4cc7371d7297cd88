/* Reference: causal depthwise convolution, with and without SiLU. The first tap is a product, the others
 * fused. */
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

static void ref_conv(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                     const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                     uint32_t begin, uint32_t end, bool silu) {
    const uint32_t history = width - 1;
    for (uint32_t c = begin; c < end; c++) {
        for (uint32_t t = 0; t < n_tokens; t++) {
            float sum = 0.0f;
            for (uint32_t j = 0; j < width; j++) { // input t + j of the sequence (tail, x)
                const uint32_t at = t + j;
                const float u = at < history ? tail[(size_t)at * n_channels + c]
                                             : x[(size_t)(at - history) * x_stride + c];
                const float tap = taps[(size_t)j * n_channels + c];
                sum = j == 0 ? tap * u : sl__fmaf(tap, u, sum);
            }
            y[(size_t)t * y_stride + c] = silu ? ref_siluf(sum) : sum;
        }
        for (uint32_t j = 0; j < history; j++) {
            const uint32_t at = n_tokens + j;
            tail[(size_t)j * n_channels + c] = at < history
                                                   ? tail[(size_t)at * n_channels + c]
                                                   : x[(size_t)(at - history) * x_stride + c];
        }
    }
}

void SL_REF(conv_silu)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                       const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                       uint32_t begin, uint32_t end) {
    ref_conv(y, y_stride, x, x_stride, tail, taps, width, n_channels, n_tokens, begin, end, true);
}

void SL_REF(conv)(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                  const float *taps, uint32_t width, uint32_t n_channels, uint32_t n_tokens,
                  uint32_t begin, uint32_t end) {
    ref_conv(y, y_stride, x, x_stride, tail, taps, width, n_channels, n_tokens, begin, end, false);
}
