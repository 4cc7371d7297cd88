/* Signals: see signals.h. The two variables below are mutable globals because a handler has no other way
 * to reach the program. */
#include "cli/signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/select.h>

static volatile sig_atomic_t last_signal;
// Written by the main thread, read by the handler, which runs on it.
static _Atomic(sl_session *) running;

static void on_signal(int number) {
    last_signal = number;
    sl_session *session = atomic_load_explicit(&running, memory_order_relaxed);
    if (session)
        sl_session_cancel(session);
}

static sigset_t caught_set(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

void cli_signals_catch(void) {
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction old, action = {.sa_handler = on_signal, .sa_mask = caught_set()};
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

int cli_signal(void) {
    sigset_t pending;
    if (!last_signal && sigpending(&pending) == 0) {
        if (sigismember(&pending, SIGTERM) == 1)
            return SIGTERM;
        if (sigismember(&pending, SIGINT) == 1)
            return SIGINT;
    }
    return last_signal;
}

void cli_signal_clear(void) {
    last_signal = 0;
}

void cli_signals_cancel(sl_session *session) {
    atomic_store_explicit(&running, session, memory_order_relaxed);
}

void cli_signals_hold(void) {
    sigset_t set = caught_set();
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void cli_signals_release(void) {
    sigset_t set = caught_set();
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool cli_signals_wait_readable(int fd) {
    sigset_t unblocked;
    fd_set readable;
    int n = 0;
    cli_signals_hold();
    pthread_sigmask(SIG_BLOCK, NULL, &unblocked);
    sigdelset(&unblocked, SIGINT);
    sigdelset(&unblocked, SIGTERM);
    while (n == 0 && !last_signal) {
        FD_ZERO(&readable);
        FD_SET(fd, &readable);
        n = pselect(fd + 1, &readable, NULL, NULL, NULL, &unblocked);
        if (n < 0 && errno == EINTR)
            n = 0; // ours ends the loop; another, such as a change of the window's size, does not
    }
    cli_signals_release();
    return last_signal == 0;
}
