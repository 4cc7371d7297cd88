/* Landlock and seccomp, by their system calls: a library for either is larger than what is needed
 * of it. The header has the reasons; here are the lists. Numbers that headers of an older kernel
 * lack are written out. */
#define _GNU_SOURCE
#include "base/sandbox.h"

#include <stdio.h>

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"

// Filters of both kinds need it, and it is what makes them hold: no program can give rights back.
static bool no_new_privileges(void) {
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// True for the answers of a kernel, or of a container around us, that has no such thing to offer.
static bool means_absent(int errnum) {
    return errnum == ENOSYS || errnum == EOPNOTSUPP || errnum == EPERM;
}

/* ---- Landlock ---------------------------------------------------------------------------------- */

// linux/landlock.h of ABI 8; each ABI knows a beginning of the struct and some of the bits.
#define LANDLOCK_CREATE 444
#define LANDLOCK_ADD_RULE 445
#define LANDLOCK_RESTRICT 446
#define LANDLOCK_VERSION 1u     // flag of CREATE
#define LANDLOCK_ALL_THREADS 8u // flag of RESTRICT: LANDLOCK_RESTRICT_SELF_TSYNC, ABI 8
#define LANDLOCK_RULE_PORT 2u
#define LANDLOCK_BIND 1u
#define LANDLOCK_CONNECT 2u
#define LANDLOCK_SCOPES 3u // abstract sockets, signals

struct landlock_rules {
    uint64_t files, net, scoped;
};
struct landlock_port {
    uint64_t allowed, port;
};

static struct landlock_rules landlock_rules_of(uint32_t abi) {
    // Bits 0..12 came first; then REFER, TRUNCATE, and with ABI 5 IOCTL_DEV.
    const uint32_t n_files = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;
    return (struct landlock_rules){.files = ((uint64_t)1 << n_files) - 1,
                                   .net = abi >= 4 ? LANDLOCK_BIND | LANDLOCK_CONNECT : 0,
                                   .scoped = abi >= 6 ? LANDLOCK_SCOPES : 0};
}

static size_t landlock_rules_bytes(uint32_t abi) {
    return sizeof(uint64_t) * (abi >= 6 ? 3 : abi >= 4 ? 2 : 1);
}

// Puts the rules in force; 0 or an errno.
static int landlock_enter(int rules, sl_sandbox_report *report) {
    if (!no_new_privileges())
        return errno;
    report->landlock_is_everywhere =
        report->landlock_abi >= 8 && syscall(LANDLOCK_RESTRICT, rules, LANDLOCK_ALL_THREADS) == 0;
    if (report->landlock_is_everywhere || syscall(LANDLOCK_RESTRICT, rules, 0) == 0)
        return 0;
    return errno;
}

sl_status sl_sandbox_files(const sl_sandbox_options *options, sl_sandbox_report *report,
                           sl_error *err) {
    sl_process_keep_open();
    const long abi = syscall(LANDLOCK_CREATE, NULL, (size_t)0, LANDLOCK_VERSION);
    if (abi < 1 && !means_absent(errno))
        return sl_fail_errno(err, SL_ERR_STATE, errno, "asking for Landlock");
    if (abi < 1) {
        report->landlock_is_absent = sl_errno_text(errno);
        return SL_OK;
    }
    const struct landlock_rules handled = landlock_rules_of((uint32_t)abi);
    const int rules =
        (int)syscall(LANDLOCK_CREATE, &handled, landlock_rules_bytes((uint32_t)abi), 0);
    if (rules < 0)
        return sl_fail_errno(err, SL_ERR_STATE, errno, "making rules for Landlock (ABI %ld)", abi);
    report->landlock_abi = (uint32_t)abi;
    int errnum = 0;
    if (options && options->may_listen && handled.net) {
        const struct landlock_port port = {.allowed = LANDLOCK_BIND, .port = options->port};
        if (syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PORT, &port, 0) != 0)
            errnum = errno;
    }
    if (!errnum)
        errnum = landlock_enter(rules, report);
    (void)close(rules);
    if (errnum) {
        report->landlock_abi = 0;
        return sl_fail_errno(err, SL_ERR_STATE, errnum, "entering Landlock (ABI %ld)", abi);
    }
    return SL_OK;
}

/* ---- seccomp ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define OUR_ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define OUR_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* Linux 5.17. Later calls did not exist when the list was made: a library that tries one expects to
 * hear so. (The numbers of x32 are among them.) */
#define NEWEST_CALL 450

/* The most frequent ones first: kernels before 5.11 go through the list at each call. */
static const uint16_t allowed_calls[] = {
    // Reading weights.
    SYS_pread64,
    SYS_io_uring_enter,
    SYS_futex,
    // Clients, the log, /proc.
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_accept,
    SYS_accept4,
    SYS_shutdown,
    SYS_close,
    SYS_getsockopt,
    SYS_setsockopt,
    SYS_getsockname,
    SYS_getpeername,
    SYS_lseek,
    SYS_fstat,
// Waiting.
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_select
    SYS_select,
#endif
    SYS_epoll_pwait,
    SYS_epoll_ctl,
    SYS_ppoll,
    SYS_pselect6,
    SYS_restart_syscall,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_sched_yield,
    // Time: where the kernel's page for it does not serve.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
#ifdef SYS_time
    SYS_time,
#endif
    // Memory. mmap and mprotect are among the conditions.
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mincore, // how much of the store is in the page cache; out of which buffered reads go
    SYS_fadvise64,
    // Threads and signals of our own.
    SYS_exit,
    SYS_exit_group,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_membarrier,
    SYS_gettid,
    SYS_getpid,
    SYS_rt_sigreturn,
    SYS_rt_sigprocmask,
    SYS_rt_sigaction,
    SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait,
    SYS_rt_sigpending,
    SYS_sigaltstack,
    // What the C library asks: random numbers for its heap, memory for qsort, processors.
    SYS_getrandom,
    SYS_sysinfo,
    SYS_sched_getaffinity,
    SYS_getcpu,
    SYS_getrusage,
    SYS_uname,
};

/* Nothing in the program does these, whatever goes wrong. */
static const uint16_t deadly_calls[] = {
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_open_by_handle_at,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_personality,
};

/* Calls that are allowed by their lower half of one argument. */
typedef enum condition {
    ONE_OF, // it is one of the values
    NONE_OF // it has none of the bits of values[0]
} condition;
typedef struct conditional_call {
    uint16_t call;
    uint8_t argument;
    condition condition;
    uint32_t n_values;
    uint32_t values[5];
} conditional_call;

// Flags with which C libraries start a thread; a process, or new name spaces, would need others.
#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |            \
     CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static const conditional_call conditional_calls[] = {
    {SYS_mmap, 2, NONE_OF, 1, {PROT_EXEC}},
    {SYS_mprotect, 2, NONE_OF, 1, {PROT_EXEC}},
    {SYS_clone, 0, ONE_OF, 2, {THREAD_FLAGS, THREAD_FLAGS | CLONE_DETACHED}},
    {SYS_fcntl, 1, ONE_OF, 5, {F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL}},
    // Is it a terminal, how wide is it; not what puts characters into one.
    {SYS_ioctl, 1, ONE_OF, 3, {TCGETS, TIOCGWINSZ, FIONBIO}},
    {SYS_prctl, 0, ONE_OF, 1, {PR_SET_NAME}},
    // The C library's fstat. (With a path it tells whether a file is there, and its size.)
    {SYS_newfstatat, 3, ONE_OF, 1, {AT_EMPTY_PATH}},
};

#define PROGRAM_MAX                                                                                \
    (2 * (SL_COUNT(allowed_calls) + SL_COUNT(deadly_calls)) +                                      \
     9 * (SL_COUNT(conditional_calls) + 1) + 16)
typedef struct program {
    struct sock_filter code[PROGRAM_MAX];
    uint16_t n;
} program;

static void emit(program *p, struct sock_filter instruction) {
    p->code[p->n++] = instruction;
}
static void load(program *p, size_t offset) {
    emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}
static void result(program *p, uint32_t action) {
    emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}
// Goes on after so many instructions, by whether what was loaded passes the test.
static void skip(program *p, uint16_t test, uint32_t value, uint32_t if_true, uint32_t if_false) {
    emit(p, (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | BPF_K) | test, value,
                                         (uint8_t)if_true, (uint8_t)if_false));
}

static void result_for(program *p, uint32_t call, uint32_t action) {
    skip(p, BPF_JEQ, call, 0, 1);
    result(p, action);
}

// Both machines are little-endian: the lower half of an argument comes first.
static void conditional(program *p, const conditional_call *c, uint32_t refusal) {
    const uint32_t n = c->n_values;
    skip(p, BPF_JEQ, c->call, 0, n + 3); // past all that follows
    load(p, offsetof(struct seccomp_data, args) + c->argument * sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++) {
        if (c->condition == ONE_OF)
            skip(p, BPF_JEQ, c->values[i], n - i, 0);
        else
            skip(p, BPF_JSET, c->values[i], 0, n - i);
    }
    result(p, refusal);
    result(p, SECCOMP_RET_ALLOW);
}

static void build(program *p, bool trap) {
    const uint32_t refusal = trap ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
    p->n = 0;
    load(p, offsetof(struct seccomp_data, arch));
    skip(p, BPF_JEQ, OUR_ARCHITECTURE, 1, 0);
    result(p, SECCOMP_RET_KILL_PROCESS);
    load(p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < SL_COUNT(allowed_calls); i++)
        result_for(p, allowed_calls[i], SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < SL_COUNT(deadly_calls); i++)
        result_for(p, deadly_calls[i], SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 0; i < SL_COUNT(conditional_calls); i++)
        conditional(p, &conditional_calls[i], refusal);
    // abort() and raise().
    const conditional_call ours = {SYS_tgkill, 0, ONE_OF, 1, {(uint32_t)getpid()}};
    conditional(p, &ours, refusal);
    result_for(p, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
    skip(p, BPF_JGT, NEWEST_CALL, 0, 1);
    result(p, SECCOMP_RET_ERRNO | ENOSYS);
    result(p, refusal);
}

/* In every thread, or in none. The filter would slow down all that computes on kernels before 5.16,
 * which switch off speculation in filtered threads, unless told that this is not wanted: there is
 * no code of strangers in this process that could watch the rest. (Linux 4.17; LOG: 4.14.) */
static long install(const program *p) {
    const struct sock_fprog filter = {.len = p->n, .filter = (struct sock_filter *)p->code};
    const unsigned flags = SECCOMP_FILTER_FLAG_TSYNC;
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                      flags | SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &filter);
    if (rc < 0 && errno == EINVAL)
        rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter);
    return rc;
}

sl_status sl_sandbox_calls(const sl_sandbox_options *options, sl_sandbox_report *report,
                           sl_error *err) {
    // A kernel that cannot kill the process (before 4.14) would kill a thread, and hang us.
    const uint32_t worst = SECCOMP_RET_KILL_PROCESS;
    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &worst) != 0) {
        report->seccomp_is_absent = sl_errno_text(errno == EINVAL ? EOPNOTSUPP : errno);
        return SL_OK;
    }
    if (!no_new_privileges())
        return sl_fail_errno(err, SL_ERR_STATE, errno, "giving up new privileges");
    program p;
    build(&p, options && options->trap);
    const long rc = install(&p);
    if (rc > 0)
        return sl_fail(err, SL_ERR_STATE, "seccomp: thread %ld has a filter of its own", rc);
    if (rc < 0)
        return sl_fail_errno(err, SL_ERR_STATE, errno, "seccomp: a filter of %u instructions", p.n);
    report->n_calls = (uint32_t)(SL_COUNT(allowed_calls) + SL_COUNT(conditional_calls) + 1);
    return SL_OK;
}

#else

static const char no_walls[] = "not on this system";

sl_status sl_sandbox_files(const sl_sandbox_options *options, sl_sandbox_report *report,
                           sl_error *err) {
    (void)options;
    (void)err;
    report->landlock_is_absent = no_walls;
    return SL_OK;
}

sl_status sl_sandbox_calls(const sl_sandbox_options *options, sl_sandbox_report *report,
                           sl_error *err) {
    (void)options;
    (void)err;
    report->seccomp_is_absent = no_walls;
    return SL_OK;
}

#endif

/* ---- in words ---------------------------------------------------------------------------------- */

void sl_sandbox_describe(const sl_sandbox_report *report, char *out, size_t cap) {
    char files[112], calls[80];
    const uint32_t abi = report->landlock_abi;
    if (abi)
        (void)snprintf(files, sizeof(files), "Landlock (ABI %u: no files%s%s; %s)", abi,
                       abi >= 4 ? ", no connections" : "", abi >= 6 ? ", no signals" : "",
                       report->landlock_is_everywhere ? "all threads" : "threads since open");
    else
        (void)snprintf(files, sizeof(files), "no Landlock (%s)",
                       report->landlock_is_absent ? report->landlock_is_absent : "not asked for");
    if (report->n_calls)
        (void)snprintf(calls, sizeof(calls), "seccomp (%u calls)", report->n_calls);
    else
        (void)snprintf(calls, sizeof(calls), "no seccomp (%s)",
                       report->seccomp_is_absent ? report->seccomp_is_absent : "not asked for");
    (void)snprintf(out, cap, "%s, %s", files, calls);
}
