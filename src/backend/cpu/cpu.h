/* The CPU back end: the kernels of one level, spread over a thread pool. Results do not depend on the
 * number of threads: work is split by rows, channels, heads or tokens, never inside a sum. */
#ifndef SL_BACKEND_CPU_CPU_H
#define SL_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/pool.h"

typedef struct sl_cpu_backend {
    sl_backend base;
    sl_kernels k;
    sl_pool *pool;
} sl_cpu_backend;

/* pool is the caller's and outlives the back end; level must run here. */
void sl_cpu_backend_init(sl_cpu_backend *be, sl_cpu_level level, sl_pool *pool);

#endif
