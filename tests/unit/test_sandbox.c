/* base/sandbox: children shut themselves in, then try what must go on and what must not. Each
 * says on standard error which line was not as it should be. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/process.h"
#include "base/sandbox.h"
#include "io/reader.h"

#define OTHER_FILE "/etc/passwd"

/* ---- children ---------------------------------------------------------------------------------- */

static void expect(bool holds, const char *what, int line) {
    if (holds)
        return;
    dprintf(STDERR_FILENO, "test_sandbox.c:%d: %s (errno: %s)\n", line, what, sl_errno_text(errno));
    _exit(1);
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
// Fails with this errno.
#define EXPECT_ERRNO(number, call) expect((call) == -1 && errno == (number), #call, __LINE__)

// How a child that runs this ends, as waitpid() tells it.
static int end_of(void (*run)(void)) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void child_ends_well(void (*run)(void)) {
    assert_int_equal(end_of(run), 0);
}
static void child_is_killed(void (*run)(void), int number) {
    int status = end_of(run);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
}

static sl_sandbox_report enter(bool files, bool calls, const sl_sandbox_options *options) {
    sl_sandbox_report report = {0};
    sl_error err;
    EXPECT(!files || sl_sandbox_files(options, &report, &err) == SL_OK);
    EXPECT(!calls || sl_sandbox_calls(options, &report, &err) == SL_OK);
    EXPECT(!files || report.landlock_abi);
    EXPECT(!calls || report.n_calls);
    return report;
}

/* ---- what this kernel has ---------------------------------------------------------------------- */

static sl_sandbox_report here; // by a child's pipe, since it cannot be undone

static void find_out(void) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        sl_sandbox_report report = {0};
        sl_error err;
        EXPECT(sl_sandbox_files(NULL, &report, &err) == SL_OK);
        EXPECT(sl_sandbox_calls(NULL, &report, &err) == SL_OK);
        // Pointers to texts of this program: the same in the parent.
        EXPECT(write(ends[1], &report, sizeof(report)) == sizeof(report));
        _exit(0);
    }
    int status;
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(read(ends[0], &here, sizeof(here)), sizeof(here));
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static int look_at_kernel(void **state) {
    (void)state;
    char line[200];
    find_out();
    sl_sandbox_describe(&here, line, sizeof(line));
    print_message("here: %s\n", line);
    // Absent or not, and if so for a reason.
    assert_true((here.landlock_abi > 0) == (here.landlock_is_absent == NULL));
    assert_true((here.n_calls > 0) == (here.seccomp_is_absent == NULL));
    return 0;
}

static void need_landlock(uint32_t abi) {
    if (here.landlock_abi >= abi)
        return;
    print_message("skipped: Landlock is of ABI %u here (%s), this needs %u\n", here.landlock_abi,
                  here.landlock_is_absent ? here.landlock_is_absent : "older", abi);
    skip();
}
static void need_seccomp(void) {
    if (here.n_calls)
        return;
    print_message("skipped: no seccomp here (%s)\n", here.seccomp_is_absent);
    skip();
}

/* ---- Landlock alone ---------------------------------------------------------------------------- */

static void closes_files(void) {
    char text[16];
    int before = open(OTHER_FILE, O_RDONLY | O_CLOEXEC);
    EXPECT(before >= 0);
    enter(true, false, NULL);
    EXPECT_ERRNO(EACCES, open(OTHER_FILE, O_RDONLY | O_CLOEXEC));
    EXPECT_ERRNO(EACCES, open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_ERRNO(EACCES, open("/proc/self/status", O_RDONLY | O_CLOEXEC));
    EXPECT_ERRNO(EACCES, open(SL_TEST_SCRATCH "/new", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_ERRNO(EACCES, mkdir(SL_TEST_SCRATCH "/new", 0700));
    EXPECT_ERRNO(EACCES, unlink(SL_TEST_SCRATCH "/CTestTestfile.cmake"));
    EXPECT_ERRNO(EACCES, execl("/bin/true", "true", (char *)NULL));
    EXPECT(read(before, text, sizeof(text)) == sizeof(text));
}
static void files_are_closed(void **state) {
    (void)state;
    need_landlock(1);
    child_ends_well(closes_files);
}

// Binds and connects to loopback; 0 or an errno.
static int connect_to(uint16_t port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0);
    int errnum = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? 0 : errno;
    close(fd);
    return errnum;
}
// Returns the socket, listening on *port; or -1 and errno.
static int listen_on(uint16_t *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t n = sizeof(a);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 4) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    *port = ntohs(a.sin_port);
    return fd;
}

static void closes_the_net(void) {
    uint16_t before = 0, after = 0, free_port = 0;
    EXPECT(listen_on(&before) >= 0);
    int unused = listen_on(&free_port);
    EXPECT(unused >= 0 && close(unused) == 0);
    EXPECT(connect_to(before) == 0);
    enter(true, false, &(sl_sandbox_options){.may_listen = true, .port = 0});
    EXPECT(connect_to(before) == EACCES);
    EXPECT_ERRNO(EACCES, listen_on(&free_port));
    EXPECT(listen_on(&after) >= 0);
    // Rules add up: what the next ones do not allow is over.
    enter(true, false, NULL);
    after = 0;
    EXPECT_ERRNO(EACCES, listen_on(&after));
}
static void the_net_is_closed(void **state) {
    (void)state;
    need_landlock(4);
    child_ends_well(closes_the_net);
}

static void signals_nobody(void) {
    EXPECT(kill(getppid(), 0) == 0);
    enter(true, false, NULL);
    EXPECT_ERRNO(EPERM, kill(getppid(), 0));
    EXPECT(kill(getpid(), 0) == 0);
}
static void others_get_no_signals(void **state) {
    (void)state;
    need_landlock(6);
    child_ends_well(signals_nobody);
}

static pthread_barrier_t gate;
static atomic_int opened_errno; // relaxed: the join is between

static void *try_to_open(void *is_early) {
    if (is_early) {
        pthread_barrier_wait(&gate); // this thread is there
        pthread_barrier_wait(&gate); // and the sandbox as well
    }
    int fd = open(OTHER_FILE, O_RDONLY | O_CLOEXEC);
    atomic_store_explicit(&opened_errno, fd < 0 ? errno : 0, memory_order_relaxed);
    return NULL;
}

// The errno that a thread gets which was started before, or after.
static int opens_in_thread(bool is_early, bool files, bool calls, sl_sandbox_report *report) {
    pthread_t id;
    EXPECT(pthread_barrier_init(&gate, NULL, 2) == 0);
    if (is_early) {
        EXPECT(pthread_create(&id, NULL, try_to_open, &gate) == 0);
        pthread_barrier_wait(&gate);
    }
    *report = enter(files, calls, NULL);
    if (is_early)
        pthread_barrier_wait(&gate);
    else
        EXPECT(pthread_create(&id, NULL, try_to_open, NULL) == 0);
    EXPECT(pthread_join(id, NULL) == 0);
    return atomic_load_explicit(&opened_errno, memory_order_relaxed);
}

static void files_in_early_thread(void) {
    sl_sandbox_report report;
    int errnum = opens_in_thread(true, true, false, &report);
    EXPECT(errnum == (report.landlock_is_everywhere ? EACCES : 0));
}
static void files_in_later_thread(void) {
    sl_sandbox_report report;
    EXPECT(opens_in_thread(false, true, false, &report) == EACCES);
}
static void landlock_covers_what_it_reports(void **state) {
    (void)state;
    need_landlock(1);
    child_ends_well(files_in_early_thread);
    child_ends_well(files_in_later_thread);
}

/* ---- seccomp alone ----------------------------------------------------------------------------- */

static void refuses(void) {
    int pipe_ends[2];
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(page != MAP_FAILED);
    enter(false, true, NULL);
    EXPECT_ERRNO(EPERM, open(OTHER_FILE, O_RDONLY | O_CLOEXEC));
    EXPECT_ERRNO(EPERM, socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_ERRNO(EPERM, socket(AF_UNIX, SOCK_DGRAM, 0));
    EXPECT_ERRNO(EPERM, connect(0, NULL, 0));
    EXPECT_ERRNO(EPERM, fork());
    EXPECT_ERRNO(EPERM, kill(getppid(), 0));
    EXPECT_ERRNO(EPERM, syscall(SYS_tgkill, getppid(), getppid(), 0));
    EXPECT_ERRNO(EPERM, pipe2(pipe_ends, 0));
    EXPECT_ERRNO(EPERM, mprotect(page, 4096, PROT_READ | PROT_EXEC));
    EXPECT(mprotect(page, 4096, PROT_READ) == 0);
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
               MAP_FAILED &&
           errno == EPERM);
    EXPECT_ERRNO(EPERM, prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
    EXPECT_ERRNO(EPERM, ioctl(0, TIOCSTI, "x"));
    EXPECT_ERRNO(EPERM, fcntl(0, F_SETOWN, getpid()));
    EXPECT_ERRNO(EPERM, access(OTHER_FILE, R_OK));
    EXPECT_ERRNO(EPERM, fstatat(AT_FDCWD, OTHER_FILE, &(struct stat){0}, 0));
    EXPECT_ERRNO(EPERM, syscall(SYS_io_uring_setup, 1, page));
    EXPECT_ERRNO(ENOSYS, syscall(SYS_clone3, NULL, 0));
    EXPECT_ERRNO(ENOSYS, syscall(100000));
}
static void what_is_not_listed_is_refused(void **state) {
    (void)state;
    need_seccomp();
    child_ends_well(refuses);
}

static void calls_in_early_thread(void) {
    sl_sandbox_report report;
    EXPECT(opens_in_thread(true, false, true, &report) == EPERM);
}
static void calls_in_later_thread(void) {
    sl_sandbox_report report;
    EXPECT(opens_in_thread(false, false, true, &report) == EPERM);
}
static void seccomp_covers_every_thread(void **state) {
    (void)state;
    need_seccomp();
    child_ends_well(calls_in_early_thread);
    child_ends_well(calls_in_later_thread);
}

static void starts_a_program(void) {
    enter(false, true, NULL);
    execl("/bin/true", "true", (char *)NULL);
}
static void traces(void) {
    enter(false, true, NULL);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}
static void mounts(void) {
    enter(false, true, NULL);
    syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
}
static void becomes_another(void) {
    enter(false, true, NULL);
    syscall(SYS_setuid, 0);
}
static void what_nobody_does_is_deadly(void **state) {
    (void)state;
    need_seccomp();
    child_is_killed(starts_a_program, SIGSYS);
    child_is_killed(traces, SIGSYS);
    child_is_killed(mounts, SIGSYS);
    child_is_killed(becomes_another, SIGSYS);
}

#if defined(__x86_64__) && !defined(__ILP32__)
static void calls_as_32_bits(void) {
    long result = 20; // getpid there, writev here: the list would allow either
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
}
static void calls_as_32_bits_inside(void) {
    enter(false, true, NULL);
    calls_as_32_bits();
}
static void another_architecture_is_deadly(void **state) {
    (void)state;
    need_seccomp();
    if (end_of(calls_as_32_bits) != 0) {
        print_message("skipped: this kernel has no calls of 32 bits\n");
        skip();
    }
    child_is_killed(calls_as_32_bits_inside, SIGSYS);
}
#endif

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    EXPECT(info->si_syscall == SYS_socket);
    _exit(42);
}
static void is_trapped(void) {
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    EXPECT(sigaction(SIGSYS, &action, NULL) == 0);
    enter(false, true, &(sl_sandbox_options){.trap = true});
    EXPECT_ERRNO(ENOSYS, syscall(SYS_clone3, NULL, 0));
    socket(AF_INET, SOCK_STREAM, 0);
}
static void a_missing_call_can_be_found(void **state) {
    (void)state;
    need_seccomp();
    int status = end_of(is_trapped);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
}

/* ---- what a server does, inside both ------------------------------------------------------------ */

static void *touch(void *bytes) {
    memset(bytes, 7, 4096);
    return bytes;
}

static void touch_bytes(void *bytes) {
    (void)touch(bytes);
}

static void count_parts(void *ctx, uint32_t part, uint32_t thread) {
    (void)part;
    (void)thread;
    atomic_fetch_add_explicit((atomic_int *)ctx, 1, memory_order_relaxed);
}

static void lives_on(void) {
    sl_arena stacks;
    sl_pool pool = {0};
    sl_error err;
    atomic_int n_parts = 0;
    uint8_t bytes[4096];
    EXPECT(sl_arena_map(&stacks, "stacks", 2 * sl_pool_bytes(3) + SL_MIB, &err) == SL_OK);
    EXPECT(sl_pool_init(&pool, 3, &stacks, NULL, &err) == SL_OK);
    enter(true, true, NULL);
    // Threads of before, and of after: with stacks of ours, and of the C library's.
    sl_pool_run(&pool, 1000, count_parts, &n_parts);
    EXPECT(atomic_load(&n_parts) == 1000);
    sl_thread thread;
    pthread_t id;
    EXPECT(sl_thread_start(&thread, "after", &stacks, 64 * SL_KIB, touch_bytes, bytes, &err) ==
           SL_OK);
    sl_thread_join(&thread);
    EXPECT(bytes[4095] == 7);
    EXPECT(pthread_create(&id, NULL, touch, bytes) == 0 && pthread_join(id, NULL) == 0);
    // The heap: small and large blocks, growing and shrinking.
    char *volatile small = malloc(100);
    char *volatile large = malloc(64 << 20);
    EXPECT(small && large);
    memset(large, 1, 64 << 20);
    large = realloc(large, 80 << 20);
    EXPECT(large && large[(64 << 20) - 1] == 1);
    free(small);
    free(large);
    sl_mem_trim();
    sl_pool_deinit(&pool);
    sl_arena_unmap(&stacks);
    EXPECT(fcntl(0, F_GETFL) >= 0);
    EXPECT(fstat(1, &(struct stat){0}) == 0);
    EXPECT(signal(SIGUSR1, SIG_IGN) != SIG_ERR && raise(SIGUSR1) == 0);
}

static void knows_its_memory(void) {
    sl_process_memory before, after;
    sl_error err;
    const uint64_t group_before = sl_cgroup_memory_peak(), limit = sl_cgroup_memory_limit();
    EXPECT(sl_process_memory_read(&before, &err) == SL_OK);
    enter(true, true, NULL);
    const size_t n = 32 << 20;
    sl_arena arena;
    EXPECT(sl_arena_map(&arena, "more", n, &err) == SL_OK);
    EXPECT(sl_process_memory_read(&after, &err) == SL_OK);
    EXPECT(after.rss_bytes > before.rss_bytes + n / 2);
    EXPECT(after.anonymous_bytes > before.anonymous_bytes + n / 2);
    EXPECT(sl_cgroup_memory_peak() >= group_before);
    EXPECT(sl_cgroup_memory_limit() == limit);
    sl_arena_unmap(&arena);
}

static void serves(int listening) {
    char text[8] = "";
    int poll_fd = epoll_create1(EPOLL_CLOEXEC);
    EXPECT(poll_fd >= 0);
    enter(true, true, NULL);
    struct epoll_event event = {.events = EPOLLIN};
    EXPECT(epoll_ctl(poll_fd, EPOLL_CTL_ADD, listening, &event) == 0);
    EXPECT(epoll_wait(poll_fd, &event, 1, -1) == 1);
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    EXPECT(fd >= 0);
    int on = 1, copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    EXPECT(copy >= 0 && close(copy) == 0);
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0);
    EXPECT(recv(fd, text, 4, MSG_WAITALL) == 4 && memcmp(text, "ping", 4) == 0);
    EXPECT(send(fd, "pong", 4, MSG_NOSIGNAL) == 4);
    EXPECT(shutdown(fd, SHUT_WR) == 0 && close(fd) == 0);
}

static int listening_fd;
static void serves_the_parent(void) {
    serves(listening_fd);
}

static void *be_a_client(void *port) {
    static char text[8];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(*(uint16_t *)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && write(fd, "ping", 4) == 4)
        (void)!recv(fd, text, 4, MSG_WAITALL);
    close(fd);
    return text;
}

static void a_server_goes_on(void **state) {
    (void)state;
    need_landlock(1);
    need_seccomp();
    child_ends_well(lives_on);
    child_ends_well(knows_its_memory);

    uint16_t port = 0;
    pthread_t client;
    void *answer;
    listening_fd = listen_on(&port);
    assert_true(listening_fd >= 0);
    assert_int_equal(pthread_create(&client, NULL, be_a_client, &port), 0);
    child_ends_well(serves_the_parent);
    assert_int_equal(close(listening_fd), 0);
    assert_int_equal(pthread_join(client, &answer), 0);
    assert_string_equal(answer, "pong");
}

/* ---- the reader ---------------------------------------------------------------------------------- */

#define N_READS 8
static uint8_t page_of[N_READS][4096];

static int data_file(void) {
    char path[] = SL_TEST_SCRATCH "/sandbox-XXXXXX";
    int fd = mkstemp(path);
    EXPECT(fd >= 0 && unlink(path) == 0);
    for (int i = 0; i < N_READS; i++) {
        memset(page_of[i], 'a' + i, sizeof(page_of[i]));
        EXPECT(write(fd, page_of[i], sizeof(page_of[i])) == sizeof(page_of[i]));
    }
    return fd;
}

static void reads_with(sl_reader_kind kind) {
    sl_arena arena;
    sl_reader *reader;
    sl_read reads[N_READS] = {{0}};
    sl_error err;
    int fd = data_file();
    memset(page_of, 0, sizeof(page_of));
    EXPECT(sl_arena_map(&arena, "reader", sl_reader_bytes(kind, 4) + SL_MIB, &err) == SL_OK);
    EXPECT(sl_reader_open(kind, 4, &arena, &reader, &err) == SL_OK);
    enter(true, true, NULL);
    for (int i = 0; i < N_READS; i++) {
        reads[i] = (sl_read){.fd = fd,
                             .n_bytes = sizeof(page_of[i]),
                             .offset = (uint64_t)i * sizeof(page_of[i]),
                             .buf = page_of[i]};
        sl_reader_submit(reader, &reads[i]);
    }
    for (int i = 0; i < N_READS; i++) {
        sl_reader_wait(reader, &reads[i]);
        EXPECT(reads[i].result == sizeof(page_of[i]));
        EXPECT(page_of[i][0] == 'a' + i && page_of[i][4095] == 'a' + i);
    }
    sl_reader_close(reader);
    sl_arena_unmap(&arena);
}
static void reads_with_pread(void) {
    reads_with(SL_READER_PREAD);
}
static void reads_with_uring(void) {
    reads_with(SL_READER_URING);
}

static void readers_go_on(void **state) {
    (void)state;
    need_landlock(1);
    need_seccomp();
    child_ends_well(reads_with_pread);
    if (sl_reader_uring_works())
        child_ends_well(reads_with_uring);
    else
        print_message("no io_uring here: with pread only\n");
}

// The descriptor of the only ring that is open.
static int ring_fd(void) {
    char path[64], target[64];
    for (int fd = 3; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strstr(target, "[io_uring]"))
            return fd;
    }
    return -1;
}

static void asks_more_of_a_ring(void) {
    sl_arena arena;
    sl_reader *reader;
    sl_error err;
    EXPECT(sl_arena_map(&arena, "reader", sl_reader_bytes(SL_READER_URING, 4) + SL_MIB, &err) ==
           SL_OK);
    EXPECT(sl_reader_open(SL_READER_URING, 4, &arena, &reader, &err) == SL_OK);
    const int fd = ring_fd();
    EXPECT(fd >= 0);
    // Files cannot be registered: a ring without limits would say that 0 of them are too few.
    const unsigned register_files = 2;
    EXPECT_ERRNO(EACCES, syscall(SYS_io_uring_register, fd, register_files, NULL, 0));
    sl_reader_close(reader);
    sl_arena_unmap(&arena);
}
static void a_ring_can_only_read(void **state) {
    (void)state;
    if (!sl_reader_uring_works()) {
        print_message("skipped: no io_uring here\n");
        skip();
    }
    child_ends_well(asks_more_of_a_ring);
}

/* ---- words, and doing it twice ------------------------------------------------------------------ */

static void the_report_says_what_stands(void **state) {
    (void)state;
    char line[200];
    sl_sandbox_report report = {0};
    sl_sandbox_describe(&report, line, sizeof(line));
    assert_string_equal(line, "no Landlock (not asked for), no seccomp (not asked for)");
    report = (sl_sandbox_report){.landlock_abi = 7, .n_calls = 66};
    sl_sandbox_describe(&report, line, sizeof(line));
    assert_string_equal(line, "Landlock (ABI 7: no files, no connections, no signals; threads "
                              "since open), seccomp (66 calls)");
    report = (sl_sandbox_report){
        .landlock_abi = 3, .landlock_is_everywhere = true, .seccomp_is_absent = "not here"};
    sl_sandbox_describe(&report, line, sizeof(line));
    assert_string_equal(line, "Landlock (ABI 3: no files; all threads), no seccomp (not here)");
}

static void enters_seccomp_twice(void) {
    sl_sandbox_report report = {0};
    sl_error err;
    enter(false, true, NULL);
    // The call that would do it is not on the list: it reads as a kernel without.
    EXPECT(sl_sandbox_calls(NULL, &report, &err) == SL_OK);
    EXPECT(report.n_calls == 0 && report.seccomp_is_absent);
    EXPECT(sl_sandbox_files(NULL, &report, &err) == SL_OK);
    EXPECT(report.landlock_abi == 0 && report.landlock_is_absent);
}
static void twice_does_no_harm(void **state) {
    (void)state;
    need_seccomp();
    child_ends_well(enters_seccomp_twice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_closed),
        cmocka_unit_test(the_net_is_closed),
        cmocka_unit_test(others_get_no_signals),
        cmocka_unit_test(landlock_covers_what_it_reports),
        cmocka_unit_test(what_is_not_listed_is_refused),
        cmocka_unit_test(seccomp_covers_every_thread),
        cmocka_unit_test(what_nobody_does_is_deadly),
#if defined(__x86_64__) && !defined(__ILP32__)
        cmocka_unit_test(another_architecture_is_deadly),
#endif
        cmocka_unit_test(a_missing_call_can_be_found),
        cmocka_unit_test(a_server_goes_on),
        cmocka_unit_test(readers_go_on),
        cmocka_unit_test(a_ring_can_only_read),
        cmocka_unit_test(the_report_says_what_stands),
        cmocka_unit_test(twice_does_no_harm),
    };
    return cmocka_run_group_tests(tests, look_at_kernel, NULL);
}
