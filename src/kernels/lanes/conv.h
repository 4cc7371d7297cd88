/* Causal depthwise convolution, with and without SiLU: 16 channels at a time. */
#ifndef SL_KERNELS_LANES_CONV_H
#define SL_KERNELS_LANES_CONV_H

/* What conv or conv_silu was called with; at the sequence (tail, x). */
typedef struct lanes_conv {
    float *y;
    const float *x;
    float *tail;
    const float *taps;
    size_t y_stride, x_stride;
    uint32_t width, n_channels, n_tokens;
} lanes_conv;

SL_INLINE const float *lanes_conv_at(const lanes_conv *a, uint32_t at, uint32_t c) {
    const uint32_t history = a->width - 1;
    return at < history ? a->tail + (size_t)at * a->n_channels + c
                        : a->x + (size_t)(at - history) * a->x_stride + c;
}

/* Channels c .. c+n-1. */
SL_INLINE void lanes_conv_channels(const lanes_conv *a, uint32_t c, uint32_t n, bool silu) {
    for (uint32_t t = 0; t < a->n_tokens; t++) {
        lanes sum = l_mul(l_load_part(a->taps + c, n), l_load_part(lanes_conv_at(a, t, c), n));
        for (uint32_t j = 1; j < a->width; j++) {
            const lanes tap = l_load_part(a->taps + (size_t)j * a->n_channels + c, n);
            sum = l_fma(tap, l_load_part(lanes_conv_at(a, t + j, c), n), sum);
        }
        l_store_part(a->y + (size_t)t * a->y_stride + c, silu ? l_silu(sum) : sum, n);
    }
    for (uint32_t j = 0; j + 1 < a->width; j++) {
        const lanes u = l_load_part(lanes_conv_at(a, a->n_tokens + j, c), n);
        l_store_part(a->tail + (size_t)j * a->n_channels + c, u, n);
    }
}

SL_INLINE void lanes_conv_run(float *y, size_t y_stride, const float *x, size_t x_stride,
                              float *tail, const float *taps, uint32_t width, uint32_t n_channels,
                              uint32_t n_tokens, uint32_t begin, uint32_t end, bool silu) {
    const lanes_conv args = {.y = y,
                             .x = x,
                             .tail = tail,
                             .taps = taps,
                             .y_stride = y_stride,
                             .x_stride = x_stride,
                             .width = width,
                             .n_channels = n_channels,
                             .n_tokens = n_tokens};
    for (uint32_t c = begin; c < end; c += SL_LANES) {
        lanes_conv_channels(&args, c, end - c < SL_LANES ? end - c : SL_LANES, silu);
    }
}

static void lanes_conv_silu(float *y, size_t y_stride, const float *x, size_t x_stride, float *tail,
                            const float *taps, uint32_t width, uint32_t n_channels,
                            uint32_t n_tokens, uint32_t begin, uint32_t end) {
    lanes_conv_run(y, y_stride, x, x_stride, tail, taps, width, n_channels, n_tokens, begin, end,
                   true);
}

static void lanes_conv_plain(float *y, size_t y_stride, const float *x, size_t x_stride,
                             float *tail, const float *taps, uint32_t width, uint32_t n_channels,
                             uint32_t n_tokens, uint32_t begin, uint32_t end) {
    lanes_conv_run(y, y_stride, x, x_stride, tail, taps, width, n_channels, n_tokens, begin, end,
                   false);
}

#endif
