/* The process shuts itself in, once everything that it will need is open: whoever takes it over by
 * what a client sends finds no file, no program to start and nobody to call.
 *
 * Two walls, each of which the kernel may lack (that is reported, and no error):
 *
 *   files   Landlock. No file or folder can be opened, made, renamed or removed; TCP connects to
 *           nothing and binds to one port at most (ABI 4); no signals to other processes and no
 *           abstract sockets of theirs (ABI 6). What is open stays as usable as it was.
 *   calls   seccomp. System calls of a list, of which some with certain arguments only: reading and
 *           writing what is open, accepting, waiting, memory that is not code, threads. Three ends
 *           for the others:
 *             EPERM   a call that the list forgot: a library most likely has a way to go on without
 *             ENOSYS  calls newer than the list, and clone3, whose flags a filter cannot see: the C
 *                     library then uses the older call, whose flags it can
 *             killed  what no part of the program does (execve, ptrace, mount, bpf ...), and calls
 *                     of another architecture: whoever does that is not this program any more
 *
 * Order, for a server:
 *
 *   1. open the engine: its threads compute and read from descriptors that are open
 *   2. sl_sandbox_files(): Landlock covers the calling thread and those it starts from now on; all
 *      threads where the kernel can (ABI 8, which nobody has run this on yet)
 *   3. listen; start the threads that handle input. Libraries are loaded before step 2
 *   4. sl_sandbox_calls(): covers every thread of the process, also those of step 1
 *
 * Until step 4, a thread of step 1 can open files; after it nobody can, whether or not there is
 * Landlock. Neither can be undone. Both are inherited by children and programs.
 *
 * io_uring: its operations do not pass seccomp. No ring can be made after step 4, and the reader's
 * (io/reader_uring.c) can do nothing but read from what is open, from Linux 5.10 on.
 *
 * To find what the list lacks: every refusal is a line of the kernel's log (`journalctl -k -g
 * SECCOMP`: "syscall=" is the number), and with sl_sandbox_options.trap the thread gets SIGSYS, at
 * which a debugger stops and shows who called. */
#ifndef SL_BASE_SANDBOX_H
#define SL_BASE_SANDBOX_H

#include <stdbool.h>

#include "base/status.h"

/* What the kernel is charged with for both, which a plan counts. A text of /proc or of a control group
 * that stays open keeps a page of its own once it was read, for up to 11 of them (groups eight deep);
 * the filter takes the rest. Measured on Linux 6.18 by a memory cgroup: 28..32 KiB for 7 texts, 4..8
 * KiB for the filter. */
#define SL_SANDBOX_KERNEL_BYTES (64 * SL_KIB)

typedef struct sl_sandbox_options {
    bool may_listen; /* on the port that follows; 0: one that the kernel chooses. */
    uint16_t port;
    bool trap; /* for whoever looks for a missing call: SIGSYS instead of EPERM */
} sl_sandbox_options;

/* What stands. Zeroed before the first call. */
typedef struct sl_sandbox_report {
    uint32_t landlock_abi;          /* 0: no Landlock */
    bool landlock_is_everywhere;    /* in every thread; else in those that step 2 covers */
    const char *landlock_is_absent; /* why; NULL: it is not, or was not asked for. Static. */
    uint32_t n_calls;               /* on the list; 0: no seccomp */
    const char *seccomp_is_absent;  /* the same */
} sl_sandbox_report;

/* Step 2. Keeps open what base/process.h reads while a server runs (sl_process_keep_open), so that
 * the account of memory goes on. options may be NULL: no listening, no trap. Errors: SL_ERR_STATE
 * where the kernel has Landlock and refuses what it should accept; nothing is restricted then. */
SL_MUST_USE sl_status sl_sandbox_files(const sl_sandbox_options *options, sl_sandbox_report *report,
                                       sl_error *err);
/* Step 4. Errors: SL_ERR_STATE, also where a thread has a filter of its own that is no part of the
 * caller's; nothing is restricted then. */
SL_MUST_USE sl_status sl_sandbox_calls(const sl_sandbox_options *options, sl_sandbox_report *report,
                                       sl_error *err);

/* The report in one line without a line break, cut at cap - 1: 200 bytes hold it.
 * "Landlock (ABI 7: no files, no connections, no signals; threads since open), seccomp (70 calls)" */
void sl_sandbox_describe(const sl_sandbox_report *report, char *out, size_t cap);

#endif
