/* What the operating system says about this process and its limits: memory, processors, control groups.
 * Reads /proc and /sys with a small buffer; allocates nothing. */
#ifndef SL_BASE_PROCESS_H
#define SL_BASE_PROCESS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct sl_process_memory {
    uint64_t rss_bytes, rss_peak_bytes; /* VmRSS, VmHWM */
    uint64_t anonymous_bytes;           /* RssAnon */
    uint64_t page_table_bytes;          /* VmPTE */
} sl_process_memory;

/* From /proc/self/status. */
SL_MUST_USE sl_status sl_process_memory_read(sl_process_memory *out, sl_error *err);

/* Fault in every page of this process's code and constants: the mappings of the program and its libraries
 * (files that are mapped to execute) that cannot be written to. Later code paths then cannot grow the
 * resident set. Returns their bytes, which do not depend on what ran before. Best effort. */
uint64_t sl_process_populate(void);

/* MemAvailable of the machine, or 0 when it cannot be read. */
uint64_t sl_memory_available(void);
/* MemTotal, likewise. */
uint64_t sl_memory_total(void);

/* The tightest memory limit of the control groups that this process is in (v1 or v2, ancestors
 * included), as the kernel has it now; UINT64_MAX without one, and where it cannot be read. Some twenty system calls:
 * not for every token. */
uint64_t sl_cgroup_memory_limit(void);
/* The same, with /proc and /sys looked for below the folder `root`. */
uint64_t sl_cgroup_memory_limit_under(const char *root);
/* Peak memory charged to our own group, when that group holds this process alone; 0 otherwise. */
uint64_t sl_cgroup_memory_peak(void);

/* Keep open what sl_process_memory_read(), sl_cgroup_memory_limit() and sl_cgroup_memory_peak() read, for a
 * process that soon opens nothing any more (base/sandbox.h). They then speak of this process, and of the
 * groups that it is in now, also in a child. Before threads that call them are started; a second call does
 * nothing. */
void sl_process_keep_open(void);

/* Processors in the affinity mask; and how many cores those are (threads of one core count once). */
uint32_t sl_cpus_allowed(void);
uint32_t sl_cores_allowed(void);
/* Keep the calling thread, and threads that it starts from now on, on n allowed processors: of different
 * cores as far as there are some. n >= 1. */
void sl_cpus_narrow(uint32_t n);

#endif
