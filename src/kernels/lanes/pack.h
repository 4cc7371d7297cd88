/* Packing inputs into lanes. */
#ifndef SL_KERNELS_LANES_PACK_H
#define SL_KERNELS_LANES_PACK_H

/* One block: its steps go to tile + j * step, the lanes' sums to `sums`. */
SL_INLINE void lanes_pack_block(const float *x, float *tile, size_t step, float *sums) {
    words w[8];
    w_deal4(x, 32, w);
    w_deal4(x + 4, 32, w + 4);
    lanes t = l_bits(w[0]);
    l_store(tile, t);
    SL_UNROLL
    for (int j = 1; j < 8; j++) {
        l_store(tile + (size_t)j * step, l_bits(w[j]));
        t = l_add(t, l_bits(w[j]));
    }
    l_store(sums, t);
}

static void lanes_pack(const float *x, size_t x_stride, uint32_t n, uint32_t n_inputs, float *xp,
                       float *lane_sums) {
    const uint32_t blocks = sl_blocks(n_inputs);
    const uint32_t full = n_inputs / SL_BLOCK;
    for (uint32_t column = 0; column < n; column++) {
        const uint32_t first = column / SL_TILE * SL_TILE;
        const uint32_t width = n - first < SL_TILE ? n - first : SL_TILE;
        const size_t step = (size_t)width * SL_LANES;
        const float *in = x + column * x_stride;
        float *tile = xp + (size_t)first * blocks * SL_BLOCK + (column - first) * SL_LANES;
        float *sums = lane_sums + (size_t)column * blocks * SL_LANES;
        for (uint32_t b = 0; b < full; b++) {
            lanes_pack_block(in + SL_BLOCK * b, tile + 8 * b * step, step, sums + SL_LANES * b);
        }
        if (full < blocks) {
            float last[SL_BLOCK] = {0.0f};
            memcpy(last, in + SL_BLOCK * full, (n_inputs - SL_BLOCK * full) * sizeof(float));
            lanes_pack_block(last, tile + 8 * full * step, step, sums + SL_LANES * full);
        }
    }
}

#endif
