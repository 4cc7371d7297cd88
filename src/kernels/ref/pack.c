/* Reference: permuting inputs into lanes, and the sums that affine biases need. */
#include "kernels/ref/ref.h"

void SL_REF(pack)(const float *x, size_t x_stride, uint32_t n, uint32_t n_inputs, float *xp,
                  float *lane_sums) {
    const uint32_t blocks = sl_blocks(n_inputs);
    for (uint32_t column = 0; column < n; column++) {
        const uint32_t first = column / SL_TILE * SL_TILE;
        const uint32_t width = n - first < SL_TILE ? n - first : SL_TILE;
        const float *in = x + column * x_stride;
        float *tile = xp + (size_t)first * blocks * SL_BLOCK;
        float *sums = lane_sums + (size_t)column * blocks * SL_LANES;
        for (uint32_t b = 0; b < blocks; b++) {
            for (uint32_t lane = 0; lane < SL_LANES; lane++) {
                float t = 0.0f;
                for (uint32_t j = 0; j < 8; j++) {
                    const uint32_t at = SL_BLOCK * b + 8 * lane + j;
                    const float value = at < n_inputs ? in[at] : 0.0f;
                    const size_t step = (size_t)8 * b + j;
                    tile[(step * width + column - first) * SL_LANES + lane] = value;
                    t = j == 0 ? value : t + value;
                }
                sums[b * SL_LANES + lane] = t;
            }
        }
    }
}

void SL_REF(group_sums)(const float *lane_sums, uint32_t n, uint32_t n_inputs, uint32_t group,
                        float *sums) {
    const uint32_t lanes_per_group = group / 8;
    const uint32_t n_groups = n_inputs / group;
    const uint32_t stride = sl_group_stride(n_inputs, group);
    for (uint32_t column = 0; column < n; column++) {
        const float *lanes = lane_sums + column * sl_lane_floats(n_inputs);
        float *out = sums + (size_t)column * stride;
        for (uint32_t g = 0; g < stride; g++) {
            if (g >= n_groups) {
                out[g] = 0.0f;
                continue;
            }
            float u[SL_LANES] = {0};
            for (uint32_t i = 0; i < lanes_per_group; i++) {
                u[i] = lanes[g * lanes_per_group + i];
            }
            for (uint32_t d = lanes_per_group / 2; d >= 1; d /= 2) {
                for (uint32_t i = 0; i < d; i++) {
                    u[i] = u[i] + u[i + d];
                }
            }
            out[g] = u[0];
        }
    }
}
