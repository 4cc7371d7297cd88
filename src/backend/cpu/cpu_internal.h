/* What the sources of the CPU back end share. Each operation is cut into parts that threads claim. A part
 * is large enough that claiming it costs little, and never cuts through a sum. */
#ifndef SL_BACKEND_CPU_CPU_INTERNAL_H
#define SL_BACKEND_CPU_CPU_INTERNAL_H

#include "backend/cpu/cpu.h"

#define PART_WEIGHTS                                                                               \
    ((uint64_t)1 << 17) /* weights times columns, about 5 us: worth a part of their own */
#define PART_FLOATS ((size_t)1 << 14) /* the same for elementwise work */

static inline sl_cpu_backend *cpu(sl_backend *be) {
    return (sl_cpu_backend *)be;
}

// Parts for n units of work of which `per_part` are worth a part; at most a few for each thread.
static inline uint32_t parts_for(const sl_cpu_backend *c, uint64_t n, uint64_t per_part) {
    uint64_t threads = sl_pool_threads(c->pool);
    uint64_t parts = SL_MIN(n / (per_part ? per_part : 1), threads * 4);
    return threads == 1 || parts == 0 ? 1 : (uint32_t)parts;
}

static inline void slice(uint64_t n, uint32_t parts, uint32_t part, uint64_t *begin,
                         uint64_t *end) {
    *begin = n * part / parts;
    *end = n * (part + 1) / parts;
}

void sl__cpu_attention(sl_backend *be, const sl_attention_step *s);
void sl__cpu_mla(sl_backend *be, const sl_mla_step *s);
void sl__cpu_short_conv(sl_backend *be, const sl_short_conv_step *s);
void sl__cpu_delta(sl_backend *be, const sl_delta_step *s);

#endif
