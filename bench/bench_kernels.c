/* How fast the kernels are, beside what the machine can do: the rate of fused multiply-adds and the
 * read bandwidth of the second cache and of memory, measured in the same run.
 *
 *   bench_kernels [--json] [--cpu LEVEL] [--threads N]
 *   bench_kernels --families [--cpu LEVEL]     the expert matrices of each family of models, each in turn
 *                                              with the common shape: a table of speeds and ratios
 *
 * A kernel's figure is the median of 15 runs of about 4 ms, a limit's the best of them. One thread is
 * measured in its own processor time, so that other programs disturb its caches at most; several
 * threads in wall time. Shapes are rows x inputs. Gweights/s counts a weight once per column that it
 * meets, GFLOP/s two operations for each. */
#define _DEFAULT_SOURCE // clock_gettime, MAP_ANONYMOUS

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "base/attr.h"
#include "kernels/kernels.h"

#define RUNS 15
#define RUN_SECONDS 0.004
#define THREADS_MAX 64

static bool as_json;
static unsigned n_threads;

/* ---- time ---- */

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct timing {
    double best, median; /* seconds per call */
} timing;

static timing time_calls_by(clockid_t clock, void (*work)(void *arg), void *arg) {
    work(arg);
    double start = now(clock);
    work(arg);
    const double once = now(clock) - start;
    const unsigned calls = once >= RUN_SECONDS ? 1 : (unsigned)(RUN_SECONDS / (once + 1e-8)) + 1;
    double seconds[RUNS];
    for (int run = 0; run < RUNS; run++) {
        start = now(clock);
        for (unsigned i = 0; i < calls; i++) {
            work(arg);
        }
        seconds[run] = (now(clock) - start) / calls;
    }
    qsort(seconds, RUNS, sizeof(seconds[0]), compare_doubles);
    return (timing){.best = seconds[0], .median = seconds[RUNS / 2]};
}

static timing time_calls(void (*work)(void *arg), void *arg) {
    return time_calls_by(CLOCK_THREAD_CPUTIME_ID, work, arg);
}

/* ---- threads: each runs its share of every call, all start together ---- */

typedef struct crew {
    void (*work)(void *arg, unsigned thread);
    void *arg;
    pthread_barrier_t begin, end;
    bool stop;
    pthread_t threads[THREADS_MAX];
} crew;

typedef struct crew_member {
    crew *crew;
    unsigned thread;
} crew_member;

static void *crew_main(void *arg) {
    const crew_member me = *(crew_member *)arg;
    for (;;) {
        pthread_barrier_wait(&me.crew->begin);
        if (me.crew->stop) {
            return NULL;
        }
        me.crew->work(me.crew->arg, me.thread);
        pthread_barrier_wait(&me.crew->end);
    }
}

static void crew_call(void *arg) {
    crew *c = arg;
    pthread_barrier_wait(&c->begin);
    c->work(c->arg, 0);
    pthread_barrier_wait(&c->end);
}

static timing time_on_threads(void (*work)(void *arg, unsigned thread), void *arg) {
    crew c = {.work = work, .arg = arg};
    crew_member members[THREADS_MAX];
    pthread_barrier_init(&c.begin, NULL, n_threads);
    pthread_barrier_init(&c.end, NULL, n_threads);
    for (unsigned i = 1; i < n_threads; i++) {
        members[i] = (crew_member){.crew = &c, .thread = i};
        if (pthread_create(&c.threads[i], NULL, crew_main, &members[i]) != 0) {
            fprintf(stderr, "bench_kernels: cannot start a thread\n");
            exit(1);
        }
    }
    const timing t = time_calls_by(CLOCK_MONOTONIC, crew_call, &c);
    c.stop = true;
    pthread_barrier_wait(&c.begin);
    for (unsigned i = 1; i < n_threads; i++) {
        pthread_join(c.threads[i], NULL);
    }
    pthread_barrier_destroy(&c.begin);
    pthread_barrier_destroy(&c.end);
    return t;
}

/* ---- memory and numbers ---- */

static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        fprintf(stderr, "bench_kernels: cannot map %zu bytes\n", bytes);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE); // a wish: without it the figures are a little lower
#endif
    return p;
}

static uint64_t random_state = 1;

static uint64_t random_u64(void) {
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void fill_floats(float *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        p[i] = (float)((double)(int64_t)random_u64() * 0x1p-63);
    }
}

static uint16_t bf16_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* ---- results ---- */

static bool first_result = true;

static void result(const char *level, const char *name, double value, const char *unit,
                   double share, const char *of) {
    if (as_json) {
        printf("%s\n  {\"level\": \"%s\", \"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\"",
               first_result ? "" : ",", level, name, value, unit);
        if (of != NULL) {
            printf(", \"percent\": %.1f, \"of\": \"%s\"", 100.0 * share, of);
        }
        printf("}");
    } else {
        printf("%-8s %-34s %9.2f %-11s", level, name, value, unit);
        if (of != NULL) {
            printf(" %5.1f%% of %s", 100.0 * share, of);
        }
        printf("\n");
    }
    first_result = false;
    fflush(stdout);
}

/* ---- what the machine can do ---- */

#define FMA_ROUNDS 2000
#define FMA_CHAINS 12

#if defined(__x86_64__)

__attribute__((target("avx512f"))) static void fma_512(void *arg) {
    __m512 a[FMA_CHAINS];
    const __m512 x = _mm512_set1_ps(0.999f);
    const __m512 y = _mm512_set1_ps(0.001f);
    for (int c = 0; c < FMA_CHAINS; c++) {
        a[c] = _mm512_set1_ps((float)c);
    }
    for (int i = 0; i < FMA_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < FMA_CHAINS; c++) {
            a[c] = _mm512_fmadd_ps(a[c], x, y);
        }
    }
    for (int c = 0; c < FMA_CHAINS; c++) {
        _mm512_storeu_ps((float *)arg + 16 * c, a[c]);
    }
}

__attribute__((target("avx2,fma"))) static void fma_256(void *arg) {
    __m256 a[FMA_CHAINS];
    const __m256 x = _mm256_set1_ps(0.999f);
    const __m256 y = _mm256_set1_ps(0.001f);
    for (int c = 0; c < FMA_CHAINS; c++) {
        a[c] = _mm256_set1_ps((float)c);
    }
    for (int i = 0; i < FMA_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < FMA_CHAINS; c++) {
            a[c] = _mm256_fmadd_ps(a[c], x, y);
        }
    }
    for (int c = 0; c < FMA_CHAINS; c++) {
        _mm256_storeu_ps((float *)arg + 8 * c, a[c]);
    }
}

#elif defined(__aarch64__)

static void fma_128(void *arg) {
    float32x4_t a[FMA_CHAINS];
    const float32x4_t x = vdupq_n_f32(0.999f);
    const float32x4_t y = vdupq_n_f32(0.001f);
    for (int c = 0; c < FMA_CHAINS; c++) {
        a[c] = vdupq_n_f32((float)c);
    }
    for (int i = 0; i < FMA_ROUNDS; i++) {
#pragma GCC unroll 12
        for (int c = 0; c < FMA_CHAINS; c++) {
            a[c] = vfmaq_f32(x, a[c], y);
        }
    }
    for (int c = 0; c < FMA_CHAINS; c++) {
        vst1q_f32((float *)arg + 4 * c, a[c]);
    }
}

#endif

/* GFLOP/s of one thread with the vectors that a level may use; 0 where that was not measured. */
static double peak_of(sl_cpu_level level) {
    static SL_ALIGNED(64) float sink[FMA_CHAINS * 16];
    double width = 0.0;
    double seconds = 1.0;
#if defined(__x86_64__)
    if (level == SL_CPU_AVX512) {
        width = 16.0;
        seconds = time_calls(fma_512, sink).best;
    } else if (level == SL_CPU_AVX2) {
        width = 8.0;
        seconds = time_calls(fma_256, sink).best;
    }
#elif defined(__aarch64__)
    if (level == SL_CPU_NEON) {
        width = 4.0;
        seconds = time_calls(fma_128, sink).best;
    }
#endif
    (void)sink;
    return 2.0 * width * FMA_ROUNDS * FMA_CHAINS / seconds / 1e9;
}

typedef struct read_job {
    const uint64_t *data;
    size_t bytes; /* of each thread */
    uint64_t sink[THREADS_MAX][8];
} read_job;

/* Every byte is looked at; the compiler makes vectors of whatever width it may use here. */
static void read_all(void *arg, unsigned thread) {
    read_job *job = arg;
    const uint64_t *p = job->data + thread * (job->bytes / 8);
    uint64_t a[8] = {0};
    for (size_t i = 0; i < job->bytes / 8; i += 8) {
        for (int j = 0; j < 8; j++) {
            a[j] ^= p[i + (size_t)j];
        }
    }
    memcpy(job->sink[thread], a, sizeof(a));
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_all_256(void *arg, unsigned thread) {
    read_job *job = arg;
    const __m256i *p = (const __m256i *)(job->data + thread * (job->bytes / 8));
    __m256i a[4];
    for (int j = 0; j < 4; j++) {
        a[j] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i < job->bytes / 32; i += 4) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            a[j] = _mm256_xor_si256(a[j], _mm256_load_si256(p + i + j));
        }
    }
    a[0] = _mm256_xor_si256(_mm256_xor_si256(a[0], a[1]), _mm256_xor_si256(a[2], a[3]));
    _mm256_storeu_si256((__m256i *)job->sink[thread], a[0]);
}

__attribute__((target("avx512f"))) static void read_all_512(void *arg, unsigned thread) {
    read_job *job = arg;
    const char *p = (const char *)(job->data + thread * (job->bytes / 8));
    __m512i a[4];
    for (int j = 0; j < 4; j++) {
        a[j] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i < job->bytes; i += 256) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            a[j] = _mm512_xor_si512(a[j], _mm512_load_si512(p + i + 64 * j));
        }
    }
    a[0] = _mm512_xor_si512(_mm512_xor_si512(a[0], a[1]), _mm512_xor_si512(a[2], a[3]));
    _mm512_storeu_si512(job->sink[thread], a[0]);
}
#endif

static void (*best_read(void))(void *, unsigned) {
#if defined(__x86_64__)
    if (sl_cpu_level_runs(SL_CPU_AVX512)) {
        return read_all_512;
    }
    if (sl_cpu_level_runs(SL_CPU_AVX2)) {
        return read_all_256;
    }
#endif
    return read_all;
}

typedef struct read_alone {
    read_job *job;
} read_alone;

static void read_on_one(void *arg) {
    best_read()(((read_alone *)arg)->job, 0);
}

/* GB/s. */
static double bandwidth_one(const void *data, size_t bytes) {
    static read_job job;
    job = (read_job){.data = data, .bytes = bytes};
    read_alone alone = {.job = &job};
    return (double)bytes / time_calls(read_on_one, &alone).best / 1e9;
}

static double bandwidth_all(const void *data, size_t bytes) {
    static read_job job;
    job = (read_job){.data = data, .bytes = bytes / n_threads / 256 * 256};
    return (double)(job.bytes * n_threads) / time_on_threads(best_read(), &job).best / 1e9;
}

/* ---- products ---- */

typedef struct product_job {
    const sl_kernels *k;
    sl_matrix w;
    sl_columns x;
    float *y;
} product_job;

static void product_rows(product_job *job, uint32_t begin, uint32_t end) {
    job->k->product[job->w.shape.dtype](&job->w, begin, end, &job->x, job->y, job->w.shape.rows);
}

static void product_on_one(void *arg) {
    product_job *job = arg;
    product_rows(job, 0, job->w.shape.rows);
}

static void product_on_thread(void *arg, unsigned thread) {
    product_job *job = arg;
    const uint64_t rows = job->w.shape.rows;
    product_rows(job, (uint32_t)(rows * thread / n_threads),
                 (uint32_t)(rows * (thread + 1) / n_threads));
}

/* One pool serves every job in turn. */
typedef struct pool {
    unsigned char *weights; /* codes, then scales and biases */
    size_t weights_bytes;
    float *x, *xp, *xp_common, *lane_sums, *group_sums, *y;
} pool;

static sl_matrix_shape shape_of(sl_dtype dtype, uint32_t rows, uint32_t cols) {
    const bool fp4 = dtype == SL_DTYPE_MXFP4;
    return (sl_matrix_shape){.dtype = dtype,
                             .scale_dtype = fp4 ? SL_DTYPE_U8 : SL_DTYPE_BF16,
                             .rows = rows,
                             .cols = cols,
                             .group = fp4                         ? 32
                                      : sl_dtype_is_affine(dtype) ? 64
                                                                  : 0};
}

static sl_matrix_layout layout_of(const sl_matrix_shape *shape) {
    sl_matrix_layout layout;
    sl_error err;
    if (sl_matrix_layout_of(shape, &layout, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.message);
        exit(1);
    }
    return layout;
}

static product_job product_of(const pool *p, const sl_kernels *k, sl_dtype dtype, uint32_t rows,
                              uint32_t cols, uint32_t n) {
    const bool affine = sl_dtype_is_affine(dtype);
    const sl_matrix_shape shape = shape_of(dtype, rows, cols);
    const sl_matrix_layout layout = layout_of(&shape);
    const uint32_t group = affine ? shape.group : 0;
    const size_t codes = layout.codes_bytes;
    if (layout.bytes > p->weights_bytes) {
        fprintf(stderr, "bench_kernels: a matrix larger than the pool\n");
        exit(1);
    }
    product_job job = {
        .k = k,
        .x = {.n = n, .n_inputs = cols, .group = group, .xp = p->xp, .group_sums = p->group_sums},
        .y = p->y};
    sl_matrix_bind(&job.w, &shape, &layout, p->weights);
    if (dtype == SL_DTYPE_MXFP4) {
        memset(p->weights + layout.scales_at, 120, layout.scales_bytes);
    } else {
        uint16_t *halves = (uint16_t *)(void *)(p->weights + layout.scales_at);
        for (size_t i = 0; i < (layout.bytes - layout.scales_at) / 2 && affine; i++) {
            halves[i] = bf16_of((float)(random_u64() >> 40) * 0x1p-28f);
        }
    }
    if (dtype == SL_DTYPE_BF16 || dtype == SL_DTYPE_F16) {
        for (size_t i = 0; i < codes / 2; i++) { // F16: of 0.0001 to 2, as weights are
            const uint64_t r = random_u64();
            ((uint16_t *)(void *)p->weights)[i] =
                dtype == SL_DTYPE_BF16 ? bf16_of((float)(r >> 40) * 0x1p-24f)
                                       : (uint16_t)((r & 0x83ff) | (2 + (r >> 32) % 14) << 10);
        }
    } else if (dtype == SL_DTYPE_F32) {
        fill_floats((float *)(void *)p->weights, codes / 4);
    } else {
        for (size_t i = 0; i < codes; i += 8) {
            const uint64_t r = random_u64();
            memcpy(p->weights + i, &r, codes - i < 8 ? codes - i : 8);
        }
    }
    k->pack(p->x, cols, n, cols, p->xp, p->lane_sums);
    if (affine) {
        k->group_sums(p->lane_sums, n, cols, group, p->group_sums);
    }
    return job;
}

static double matrix_bytes(const product_job *job) {
    return (double)layout_of(&job->w.shape).bytes;
}

static void matvecs(const pool *p, const sl_kernels *k, double l2_gbs) {
    static const struct {
        sl_dtype dtype;
        uint32_t rows, cols;
    } shapes[] = {
        {SL_DTYPE_Q4, 512, 2048},   {SL_DTYPE_Q4, 2048, 512},    {SL_DTYPE_Q4, 1024, 192},
        {SL_DTYPE_Q4, 1024, 64},    {SL_DTYPE_Q8, 256, 2048},    {SL_DTYPE_Q8, 1024, 192},
        {SL_DTYPE_BF16, 128, 2048}, {SL_DTYPE_F32, 64, 2048},    {SL_DTYPE_Q3, 512, 2048},
        {SL_DTYPE_Q6, 256, 2048},   {SL_DTYPE_MXFP4, 512, 2048}, {SL_DTYPE_F16, 128, 2048}};
    for (size_t i = 0; i < SL_COUNT(shapes); i++) {
        product_job job = product_of(p, k, shapes[i].dtype, shapes[i].rows, shapes[i].cols, 1);
        const double seconds = time_calls(product_on_one, &job).median;
        char name[64];
        snprintf(name, sizeof(name), "%s matvec, L2, %ux%u", sl_dtype_name(shapes[i].dtype),
                 shapes[i].rows, shapes[i].cols);
        result(k->level, name, (double)shapes[i].rows * shapes[i].cols / seconds / 1e9,
               "Gweights/s", matrix_bytes(&job) / seconds / 1e9 / l2_gbs, "L2 read");
    }
}

static void matvecs_from_memory(const pool *p, const sl_kernels *k, double one_gbs,
                                double all_gbs) {
    static const sl_dtype dtypes[] = {SL_DTYPE_Q4, SL_DTYPE_Q8, SL_DTYPE_BF16};
    for (size_t i = 0; i < SL_COUNT(dtypes); i++) {
        const uint32_t cols = 2048;
        const uint32_t rows =
            (uint32_t)(p->weights_bytes / (cols / 8 * sl_dtype_bits(dtypes[i]) + cols / 16)) / 64 *
            64;
        product_job job = product_of(p, k, dtypes[i], rows, cols, 1);
        char name[64];
        double seconds = time_calls(product_on_one, &job).median;
        snprintf(name, sizeof(name), "%s matvec, memory, 1 thread", sl_dtype_name(dtypes[i]));
        result(k->level, name, (double)rows * cols / seconds / 1e9, "Gweights/s",
               matrix_bytes(&job) / seconds / 1e9 / one_gbs, "memory read, 1 thread");
        seconds = time_on_threads(product_on_thread, &job).median;
        snprintf(name, sizeof(name), "%s matvec, memory, %u threads", sl_dtype_name(dtypes[i]),
                 n_threads);
        result(k->level, name, (double)rows * cols / seconds / 1e9, "Gweights/s",
               matrix_bytes(&job) / seconds / 1e9 / all_gbs, "memory read, all threads");
    }
}

static void matmats(const pool *p, const sl_kernels *k, double peak) {
    static const struct {
        sl_dtype dtype;
        uint32_t rows, cols;
    } shapes[] = {{SL_DTYPE_Q4, 512, 2048}, {SL_DTYPE_Q4, 2048, 512},
                  {SL_DTYPE_Q4, 1024, 192}, {SL_DTYPE_MXFP4, 512, 2048},
                  {SL_DTYPE_Q8, 256, 2048}, {SL_DTYPE_BF16, 256, 2048}};
    static const uint32_t columns[] = {2, 3, 4, 8, 32, 128};
    for (size_t i = 0; i < SL_COUNT(shapes); i++) {
        for (size_t j = 0; j < SL_COUNT(columns); j++) {
            product_job job =
                product_of(p, k, shapes[i].dtype, shapes[i].rows, shapes[i].cols, columns[j]);
            const double seconds = time_calls(product_on_one, &job).median;
            const double gflops =
                2.0 * shapes[i].rows * shapes[i].cols * columns[j] / seconds / 1e9;
            char name[64];
            snprintf(name, sizeof(name), "%s x %u columns, %ux%u", sl_dtype_name(shapes[i].dtype),
                     columns[j], shapes[i].rows, shapes[i].cols);
            result(k->level, name, gflops, "GFLOP/s", peak > 0 ? gflops / peak : 0.0,
                   peak > 0 ? "FMA peak" : NULL);
        }
    }
}

/* ---- experts of the families ---- */

#define L2_BYTES ((size_t)576 << 10) /* what the common shape takes */
#define MANY_COLUMNS 32

/* Products with one matrix, or with as many as the pool holds, one after the other. */
typedef struct walk {
    product_job job;
    sl_matrix_layout layout;
    uint32_t n_matrices, next;
} walk;

static void walk_on(walk *w) {
    const product_job *job = &w->job;
    sl_matrix m = job->w;
    const size_t skip = (size_t)w->next * w->layout.bytes;
    m.codes = (const char *)m.codes + skip;
    m.scales = (const char *)m.scales + skip;
    m.biases = m.biases ? (const char *)m.biases + skip : NULL;
    w->next = (w->next + 1) % w->n_matrices;
    job->k->product[m.shape.dtype](&m, 0, m.shape.rows, &job->x, job->y, m.shape.rows);
}

/* The pool holds bytes that are good scales of any type. */
static walk walk_of(const pool *p, const sl_kernels *k, sl_dtype dtype, uint32_t rows,
                    uint32_t cols, uint32_t n, bool memory, float *xp) {
    walk w = {.job = {.k = k, .y = p->y}};
    sl_matrix_shape shape = shape_of(dtype, rows, cols);
    w.layout = layout_of(&shape);
    if (n == 1 && !memory && w.layout.bytes > L2_BYTES) {
        shape.rows = (uint32_t)(L2_BYTES / (w.layout.bytes / rows)) / 16 * 16;
        w.layout = layout_of(&shape);
    }
    w.n_matrices = memory ? (uint32_t)(p->weights_bytes / w.layout.bytes) : 1;
    sl_matrix_bind(&w.job.w, &shape, &w.layout, p->weights);
    w.job.x =
        (sl_columns){.n = n, .n_inputs = cols, .group = 64, .xp = xp, .group_sums = p->group_sums};
    k->pack(p->x, cols, n, cols, xp, p->lane_sums);
    return w;
}

/* Weights times columns a second. */
static double walk_speed(walk *w, unsigned calls) {
    const double start = now(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned i = 0; i < calls; i++) {
        walk_on(w);
    }
    const double seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
    const sl_matrix_shape *s = &w->job.w.shape;
    return (double)s->rows * s->cols * w->job.x.n * calls / seconds;
}

static unsigned walk_calls(walk *w) {
    (void)walk_speed(w, 1);
    const sl_matrix_shape *s = &w->job.w.shape;
    const double seconds = (double)s->rows * s->cols * w->job.x.n / walk_speed(w, 1);
    return seconds >= RUN_SECONDS ? 1 : (unsigned)(RUN_SECONDS / seconds) + 1;
}

/* A shape and the common one in turn; medians of the speeds and of the ratios. */
static void compare(walk *w, walk *common, double *speed, double *ratio) {
    double speeds[RUNS], ratios[RUNS];
    const unsigned calls = walk_calls(w), common_calls = walk_calls(common);
    for (int run = 0; run < RUNS; run++) {
        const double before = walk_speed(common, common_calls);
        speeds[run] = walk_speed(w, calls);
        ratios[run] = 2.0 * speeds[run] / (before + walk_speed(common, common_calls));
    }
    qsort(speeds, RUNS, sizeof(speeds[0]), compare_doubles);
    qsort(ratios, RUNS, sizeof(ratios[0]), compare_doubles);
    *speed = speeds[RUNS / 2];
    *ratio = ratios[RUNS / 2];
}

static void families(const pool *p, const sl_kernels *k, double peak) {
    static const struct {
        const char *name;
        sl_dtype dtype;
        uint32_t d_expert, d_model;
    } list[] = {
        {"Qwen3.6, Qwen3-Next", SL_DTYPE_Q4, 512, 2048},
        {"Qwen3-30B-A3B", SL_DTYPE_Q4, 768, 2048},
        {"OLMoE", SL_DTYPE_Q4, 1024, 2048},
        {"DeepSeek-V3, Cogito", SL_DTYPE_Q4, 2048, 7168},
        {"Mixtral", SL_DTYPE_Q4, 14336, 4096},
        {"gpt-oss", SL_DTYPE_MXFP4, 2880, 2880},
        {"GLM-4.5-Air", SL_DTYPE_Q4, 1408, 4096},
        {"LFM2", SL_DTYPE_Q4, 1792, 2048},
    };
    for (size_t i = 0; i < p->weights_bytes; i += 8) {
        const uint64_t r = (random_u64() & 0x0303030303030303u) | 0x3c3c3c3c3c3c3c3cu;
        memcpy(p->weights + i, &r, sizeof(r));
    }
    printf("%s, q4 in groups of 64 (gpt-oss mxfp4): Gweights/s of one column out of L2 and out of "
           "memory, share\nof the FMA rate at %d columns; beside each the ratio to 512x2048\n",
           k->level, MANY_COLUMNS);
    for (size_t i = 0; i < SL_COUNT(list) * 2; i++) {
        const bool down = i % 2 != 0;
        const uint32_t rows = down ? list[i / 2].d_model : list[i / 2].d_expert;
        const uint32_t cols = down ? list[i / 2].d_expert : list[i / 2].d_model;
        printf("%-20s %5u x %-5u", down ? "" : list[i / 2].name, rows, cols);
        for (int column = 0; column < 3; column++) {
            const uint32_t n = column == 2 ? MANY_COLUMNS : 1;
            double speed, ratio;
            walk w = walk_of(p, k, list[i / 2].dtype, rows, cols, n, column == 1, p->xp);
            walk common = walk_of(p, k, SL_DTYPE_Q4, 512, 2048, n, column == 1, p->xp_common);
            compare(&w, &common, &speed, &ratio);
            if (n == 1) {
                printf("  %6.1f %5.2f", speed / 1e9, ratio);
            } else {
                printf("  %5.1f%% %5.2f\n", peak > 0 ? 200.0 * speed / 1e9 / peak : 0.0, ratio);
            }
            fflush(stdout);
        }
    }
}

/* ---- the others ---- */

typedef struct other_job {
    const sl_kernels *k;
    float *a, *b, *c, *d;
    uint32_t n;
} other_job;

static void run_exp(void *arg) {
    other_job *j = arg;
    j->k->exp(j->b, j->a, j->n);
}

static void run_silu_mul(void *arg) {
    other_job *j = arg;
    j->k->silu_mul(j->b, j->a, j->c, j->n);
}

static void run_axpy(void *arg) {
    other_job *j = arg;
    j->k->axpy(j->b, 1e-6f, j->a, j->n);
}

static void run_rms_norm(void *arg) {
    other_job *j = arg;
    j->k->rms_norm(j->b, j->a, j->c, j->n, 1e-6f);
}

static void run_pack(void *arg) {
    other_job *j = arg;
    j->k->pack(j->a, j->n, 1, j->n, j->b, j->d);
}

static void run_group_sums(void *arg) {
    other_job *j = arg;
    j->k->group_sums(j->d, 1, j->n, 64, j->b);
}

static void run_conv(void *arg) {
    other_job *j = arg;
    j->k->conv_silu(j->b, j->n, j->a, j->n, j->d, j->c, 4, j->n, 1, 0, j->n);
}

static void run_gates(void *arg) {
    other_job *j = arg;
    j->k->delta_gates(j->b, j->b + j->n, j->a, j->a + j->n, j->c, j->c + j->n, j->n);
}

/* One head of 128 x 128; n tokens. */
static void run_delta(void *arg) {
    other_job *j = arg;
    const sl_delta_args args = {.state = j->d,
                                .q = j->a,
                                .k = j->a + 128,
                                .v = j->a + 256,
                                .decay = j->c,
                                .beta = j->c + 1,
                                .o = j->b,
                                .q_stride = 384,
                                .k_stride = 384,
                                .v_stride = 384,
                                .o_stride = 128,
                                .gate_stride = 2,
                                .n_tokens = j->n,
                                .d_k = 128,
                                .d_v = 128,
                                .slice_begin = 0,
                                .slice_end = 8};
    j->k->delta(&args);
}

/* One head of 256 over n positions. */
static void run_attend(void *arg) {
    other_job *j = arg;
    const sl_attend_args args = {.n_tokens = 1,
                                 .n_heads = 1,
                                 .q = j->a,
                                 .k = j->a,
                                 .v = j->c,
                                 .out = j->b,
                                 .k_stride = 256,
                                 .v_stride = 256,
                                 .d = 256,
                                 .d_v = 256,
                                 .end = j->n,
                                 .scale = 0.0625f};
    j->k->attend(&args);
}

static void others(const pool *p, const sl_kernels *k, double peak) {
    static const struct {
        const char *name;
        void (*run)(void *arg);
        uint32_t n;
        double items,
            flops; /* per call: what a nanosecond is counted for; operations, if that says more */
        const char *unit;
    } jobs[] = {
        {"exp, 4096", run_exp, 4096, 4096, 0, "ns/element"},
        {"silu_mul, 4096", run_silu_mul, 4096, 4096, 0, "ns/element"},
        {"axpy, 4096", run_axpy, 4096, 4096, 0, "ns/element"},
        {"rms_norm, 2048", run_rms_norm, 2048, 2048, 0, "ns/element"},
        {"pack, 2048", run_pack, 2048, 2048, 0, "ns/element"},
        {"group_sums, 2048", run_group_sums, 2048, 2048, 0, "ns/element"},
        {"conv_silu width 4, 8192 channels", run_conv, 8192, 8192, 0, "ns/element"},
        {"delta_gates, 32 heads", run_gates, 32, 32, 0, "ns/element"},
        {"delta 128x128, 1 token", run_delta, 1, 1000, 7.0 * 128 * 128, "us/token"},
        {"delta 128x128, 64 tokens", run_delta, 64, 64000, 64 * 7.0 * 128 * 128, "us/token"},
        {"attend 256, 64 positions", run_attend, 64, 64, 4.0 * 256 * 64, "ns/position"},
        {"attend 256, 1024 positions", run_attend, 1024, 1024, 4.0 * 256 * 1024, "ns/position"},
    };
    for (size_t i = 0; i < SL_COUNT(jobs); i++) {
        fill_floats(p->x, 1 << 19);
        fill_floats(p->xp, 1 << 19);
        fill_floats(p->lane_sums, 1 << 16);
        p->xp[0] = 0.9f; // decay
        p->xp[1] = 0.5f; // beta
        other_job job = {
            .k = k, .a = p->x, .b = p->y, .c = p->xp, .d = p->lane_sums, .n = jobs[i].n};
        const double seconds = time_calls(jobs[i].run, &job).median;
        const bool shared = jobs[i].flops > 0 && peak > 0;
        result(k->level, jobs[i].name, seconds * 1e9 / jobs[i].items, jobs[i].unit,
               shared ? jobs[i].flops / seconds / 1e9 / peak : 0.0, shared ? "FMA peak" : NULL);
    }
}

int main(int argc, char **argv) {
    sl_cpu_level only = SL_CPU_REF;
    bool chosen = false, only_families = false;
    n_threads = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            as_json = true;
        } else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc &&
                   sl_cpu_level_from_name(argv[i + 1], &only) && sl_cpu_level_runs(only)) {
            chosen = true;
            i++;
        } else if (strcmp(argv[i], "--families") == 0) {
            only_families = true;
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            n_threads = (unsigned)strtoul(argv[++i], NULL, 10);
        } else {
            fprintf(stderr,
                    "usage: bench_kernels [--json] [--families] [--cpu LEVEL] [--threads N]\n");
            return 2;
        }
    }
    if (n_threads < 1 || n_threads > THREADS_MAX) {
        n_threads = n_threads < 1 ? 1 : THREADS_MAX;
    }
    pool p = {.weights_bytes = (size_t)256 << 20};
    p.weights = map(p.weights_bytes);
    memset(p.weights, 1, p.weights_bytes);
    p.x = map(sizeof(float) << 20);
    p.xp = map(sizeof(float) << 20);
    p.xp_common = map(sizeof(float) << 20);
    p.y = map(sizeof(float) << 20);
    p.lane_sums = map(sizeof(float) << 18);
    p.group_sums = map(sizeof(float) << 18);
    fill_floats(p.x, (size_t)1 << 20);

    if (only_families) {
        const sl_cpu_level level = chosen ? only : sl_cpu_level_best();
        sl_kernels k;
        sl_kernels_init(&k, level);
        families(&p, &k, peak_of(level));
        return 0;
    }
    if (as_json) {
        printf("[");
    }
    const double l2 = bandwidth_one(p.weights, (size_t)512 << 10);
    const double memory_one = bandwidth_one(p.weights, p.weights_bytes);
    const double memory_all = bandwidth_all(p.weights, p.weights_bytes);
    result("machine", "read, L2 (512 KiB), 1 thread", l2, "GB/s", 0, NULL);
    result("machine", "read, memory, 1 thread", memory_one, "GB/s", 0, NULL);
    result("machine", "read, memory, all threads", memory_all, "GB/s", 0, NULL);
    for (int level = SL_CPU_NEON; level >= SL_CPU_REF; level--) {
        if (!sl_cpu_level_runs((sl_cpu_level)level) || (chosen && level != (int)only)) {
            continue;
        }
        sl_kernels k;
        sl_kernels_init(&k, (sl_cpu_level)level);
        const double peak = peak_of((sl_cpu_level)level);
        if (peak > 0) {
            result(k.level, "FMA peak, 1 thread", peak, "GFLOP/s", 0, NULL);
        }
        matvecs(&p, &k, l2);
        if (level != SL_CPU_REF) { // seconds per call in the reference, and nobody waits for it
            matvecs_from_memory(&p, &k, memory_one, memory_all);
            matmats(&p, &k, peak);
        }
        others(&p, &k, peak);
    }
    if (as_json) {
        printf("\n]\n");
    }
    return 0;
}
