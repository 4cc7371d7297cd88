/* /proc, /sys/fs/cgroup and the affinity mask. All reads go through one small stack buffer: these files are
 * read inside the budget. */
#define _GNU_SOURCE
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

static int open_small(const char *path) {
    return open(path, O_RDONLY | O_CLOEXEC);
}

// Reads a whole small file from its beginning; returns its length (cut at cap - 1) or -1. Threads may share fd.
static ssize_t read_open(int fd, char *out, size_t cap) {
    size_t used = 0;
    ssize_t n = 0;
    while (used < cap - 1 && (n = pread(fd, out + used, cap - 1 - used, (off_t)used)) > 0)
        used += (size_t)n;
    out[used] = '\0';
    return n < 0 && used == 0 ? -1 : (ssize_t)used;
}

static ssize_t read_small(const char *path, char *out, size_t cap) {
    int fd = open_small(path);
    if (fd < 0)
        return -1;
    ssize_t n = read_open(fd, out, cap);
    (void)close(fd);
    return n;
}

#define LIMITS_MAX 32u // groups, one inside the other: beyond, those next to the root are left out

/* Files that stay open where none can be opened later. Written once, by sl_process_keep_open(). */
static struct {
    bool is_done;
    int status, procs, peak; // -1: not there
    int limits[LIMITS_MAX];
    uint32_t n_limits;
} open_files = {.status = -1, .procs = -1, .peak = -1};

// The number after "key:" at the start of a line, in KiB.
static uint64_t field_kib(const char *text, const char *key) {
    size_t n = strlen(key);
    for (const char *p = text; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, n) == 0)
            return strtoull(p + n, NULL, 10);
    }
    return 0;
}

sl_status sl_process_memory_read(sl_process_memory *out, sl_error *err) {
    char text[4096];
    memset(out, 0, sizeof(*out));
    ssize_t n = open_files.status >= 0 ? read_open(open_files.status, text, sizeof(text))
                                       : read_small("/proc/self/status", text, sizeof(text));
    if (n < 0)
        return sl_fail_errno(err, SL_ERR_IO, errno, "/proc/self/status");
    out->rss_bytes = field_kib(text, "VmRSS:") * 1024;
    out->rss_peak_bytes = field_kib(text, "VmHWM:") * 1024;
    out->anonymous_bytes = field_kib(text, "RssAnon:") * 1024;
    out->page_table_bytes = field_kib(text, "VmPTE:") * 1024;
    return SL_OK;
}

#define PROGRAM_FILES_MAX 64u

// The files that hold code: the program and its libraries. Data files that a program has mapped are not
// ours to read in.
typedef struct code_files {
    uint64_t inode[PROGRAM_FILES_MAX];
    char device[PROGRAM_FILES_MAX][16];
    uint32_t n;
    uint64_t bytes; /* of their read-only mappings */
} code_files;

typedef struct mapping {
    uint64_t begin, end, inode;
    char access[5], device[16];
} mapping;

// Calls fn for every file mapping in /proc/self/maps; lines longer than the buffer are cut.
static void each_mapping(void (*fn)(const mapping *m, code_files *files), code_files *files) {
    char text[1024];
    size_t used = 0;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    for (;;) {
        ssize_t n = read(fd, text + used, sizeof(text) - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
        text[used] = '\0';
        char *line = text, *end;
        while ((end = strchr(line, '\n'))) {
            *end = '\0';
            mapping m;
            unsigned long long from, to, inode;
            if (sscanf(line, "%llx-%llx %4s %*x %15s %llu", &from, &to, m.access, m.device,
                       &inode) == 5 &&
                inode) {
                m.begin = from;
                m.end = to;
                m.inode = inode;
                fn(&m, files);
            }
            line = end + 1;
        }
        used -= (size_t)(line - text);
        memmove(text, line, used);
        if (used == sizeof(text) - 1)
            used = 0;
    }
    (void)close(fd);
}

static bool is_known(const mapping *m, const code_files *files) {
    for (uint32_t i = 0; i < files->n; i++)
        if (files->inode[i] == m->inode && strcmp(files->device[i], m->device) == 0)
            return true;
    return false;
}

static void note_code(const mapping *m, code_files *files) {
    if (m->access[2] != 'x' || files->n == PROGRAM_FILES_MAX || is_known(m, files))
        return;
    files->inode[files->n] = m->inode;
    (void)snprintf(files->device[files->n], sizeof(files->device[0]), "%s", m->device);
    files->n++;
}

static void populate(const mapping *m, code_files *files) {
    if (m->access[0] != 'r' || m->access[1] == 'w' || !is_known(m, files))
        return;
    files->bytes += m->end - m->begin;
    (void)madvise((void *)(uintptr_t)m->begin, (size_t)(m->end - m->begin), MADV_POPULATE_READ);
}

uint64_t sl_process_populate(void) {
    code_files files = {.n = 0};
    each_mapping(note_code, &files);
    each_mapping(populate, &files);
    return files.bytes;
}

static uint64_t meminfo(const char *key) {
    char text[2048];
    return read_small("/proc/meminfo", text, sizeof(text)) < 0 ? 0 : field_kib(text, key) * 1024;
}

uint64_t sl_memory_available(void) {
    return meminfo("MemAvailable:");
}

uint64_t sl_memory_total(void) {
    return meminfo("MemTotal:");
}

/* ---- control groups -------------------------------------------------------------------------- */

typedef struct group {
    char path[512];  /* of the folder that holds the memory controller's files */
    size_t root_len; /* length of the mount point in it */
    bool v2;
} group;

static bool find_group(const char *root, group *g) {
    char text[4096], probe[600];
    memset(g, 0, sizeof(*g));
    (void)snprintf(probe, sizeof(probe), "%s/proc/self/cgroup", root);
    if (read_small(probe, text, sizeof(text)) < 0)
        return false;
    const char *path = NULL, *path_v2 = NULL;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *controllers = strchr(line, ':');
        char *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where)
            continue;
        controllers++;
        *where++ = '\0';
        if (*controllers == '\0')
            path_v2 = where;
        for (char *c = controllers; c && *c; c = strchr(c, ',') ? strchr(c, ',') + 1 : NULL)
            if (strncmp(c, "memory", 6) == 0 && (c[6] == ',' || c[6] == '\0'))
                path = where;
    }
    static const char *const v1_roots[] = {"/sys/fs/cgroup/memory"};
    static const char *const v2_roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; path && i < SL_COUNT(v1_roots); i++) {
        (void)snprintf(probe, sizeof(probe), "%s%s/memory.limit_in_bytes", root, v1_roots[i]);
        if (access(probe, R_OK) == 0) {
            (void)snprintf(g->path, sizeof(g->path), "%s%s%s", root, v1_roots[i], path);
            g->root_len = strlen(root) + strlen(v1_roots[i]);
            return true;
        }
    }
    for (size_t i = 0; path_v2 && i < SL_COUNT(v2_roots); i++) {
        (void)snprintf(probe, sizeof(probe), "%s%s/cgroup.controllers", root, v2_roots[i]);
        if (access(probe, R_OK) == 0) {
            (void)snprintf(g->path, sizeof(g->path), "%s%s%s", root, v2_roots[i], path_v2);
            g->root_len = strlen(root) + strlen(v2_roots[i]);
            g->v2 = true;
            return true;
        }
    }
    return false;
}

// The number in such a file; UINT64_MAX for "max", for nonsense and for no file.
static uint64_t number_in(int fd) {
    char text[64];
    if (fd < 0 || read_open(fd, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

static int open_in_group(const group *g, const char *file) {
    char path[640];
    (void)snprintf(path, sizeof(path), "%s/%s", g->path, file);
    return open_small(path);
}

static void close_small(int fd) {
    if (fd >= 0)
        (void)close(fd);
}

// v1 writes "no limit" as the largest whole page count.
static uint64_t limit_in(int fd) {
    uint64_t limit = number_in(fd);
    return limit < (uint64_t)1 << 60 ? limit : UINT64_MAX;
}

// The files with the limits of our group and of those that hold it; returns how many were opened.
static uint32_t open_limits(const char *root, int *fds, uint32_t cap) {
    group g;
    uint32_t n = 0;
    if (!find_group(root, &g))
        return 0;
    while (n < cap) {
        int fd = open_in_group(&g, g.v2 ? "memory.max" : "memory.limit_in_bytes");
        if (fd >= 0)
            fds[n++] = fd;
        char *slash = strrchr(g.path, '/');
        if (!slash || (size_t)(slash - g.path) < g.root_len)
            break;
        *slash = '\0';
    }
    return n;
}

static uint64_t least_in(const int *fds, uint32_t n) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        least = SL_MIN(least, limit_in(fds[i]));
    return least;
}

uint64_t sl_cgroup_memory_limit(void) {
    if (open_files.is_done)
        return least_in(open_files.limits, open_files.n_limits);
    return sl_cgroup_memory_limit_under("");
}

uint64_t sl_cgroup_memory_limit_under(const char *root) {
    int fds[LIMITS_MAX];
    const uint32_t n = open_limits(root, fds, LIMITS_MAX);
    const uint64_t least = least_in(fds, n);
    for (uint32_t i = 0; i < n; i++)
        (void)close(fds[i]);
    return least;
}

// The files that the peak of our group is in; -1 each where we are in no group below the root.
static void open_peak(int *procs, int *peak) {
    group g;
    *procs = *peak = -1;
    if (!find_group("", &g) || strlen(g.path) <= g.root_len + 1)
        return;
    *procs = open_in_group(&g, "cgroup.procs");
    *peak = open_in_group(&g, g.v2 ? "memory.peak" : "memory.max_usage_in_bytes");
}

static uint64_t peak_in(int procs, int peak) {
    char text[64];
    // Ours alone: the only process in it.
    if (procs < 0 || read_open(procs, text, sizeof(text)) <= 0 ||
        strtoull(text, NULL, 10) != (uint64_t)getpid())
        return 0;
    const char *second = strchr(text, '\n');
    if (second && second[1] != '\0')
        return 0;
    uint64_t bytes = number_in(peak);
    return bytes == UINT64_MAX ? 0 : bytes;
}

uint64_t sl_cgroup_memory_peak(void) {
    if (open_files.is_done)
        return peak_in(open_files.procs, open_files.peak);
    int procs, peak;
    open_peak(&procs, &peak);
    uint64_t bytes = peak_in(procs, peak);
    close_small(procs);
    close_small(peak);
    return bytes;
}

void sl_process_keep_open(void) {
    if (open_files.is_done)
        return;
    open_files.status = open_small("/proc/self/status");
    open_peak(&open_files.procs, &open_files.peak);
    open_files.n_limits = open_limits("", open_files.limits, LIMITS_MAX);
    open_files.is_done = true;
}

/* ---- processors -------------------------------------------------------------------------------- */

uint32_t sl_cpus_allowed(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (uint32_t)n : 1;
}

// True when the processor is the first of its core's siblings that we may use.
static bool first_of_core(const cpu_set_t *set, int cpu) {
    char path[96], text[256];
    (void)snprintf(path, sizeof(path),
                   "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (read_small(path, text, sizeof(text)) <= 0)
        return true;
    for (char *p = text; *p;) {
        char *end;
        long from = strtol(p, &end, 10), to = from;
        if (end == p)
            break;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long c = from; c <= to && c < cpu; c++)
            if (c >= 0 && c < CPU_SETSIZE && CPU_ISSET((size_t)c, set))
                return false;
        p = *end == ',' ? end + 1 : end + strlen(end);
    }
    return true;
}

uint32_t sl_cores_allowed(void) {
    cpu_set_t set;
    uint32_t n = 0;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        n += CPU_ISSET((size_t)cpu, &set) && first_of_core(&set, cpu);
    return n ? n : 1;
}

void sl_cpus_narrow(uint32_t n) {
    cpu_set_t set, kept;
    CPU_ZERO(&set);
    CPU_ZERO(&kept);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return;
    // One processor of every core first, then their siblings.
    for (int pass = 0; pass < 2; pass++) {
        for (int cpu = 0; cpu < CPU_SETSIZE && n; cpu++) {
            if (!CPU_ISSET((size_t)cpu, &set) || CPU_ISSET((size_t)cpu, &kept))
                continue;
            if (pass == 0 && !first_of_core(&set, cpu))
                continue;
            CPU_SET((size_t)cpu, &kept);
            n--;
        }
    }
    (void)sched_setaffinity(0, sizeof(kept), &kept);
}
