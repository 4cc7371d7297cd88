/* Signals: see signals.h. The two variables below are mutable globals because a handler has no
 * other way to reach the program. */
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
    return last_signal;
}

void cli_signal_clear(void) {
    last_signal = 0;
}

void cli_signals_cancel(sl_session *session) {
    atomic_store_explicit(&running, session, memory_order_relaxed);
}

bool cli_signals_wait_readable(int fd) {
    sigset_t ours = caught_set(), before;
    fd_set readable;
    int n = 0;
    // Held back between the look at the flag and the wait, where one would be lost otherwise.
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    while (n == 0 && !last_signal) {
        FD_ZERO(&readable);
        FD_SET(fd, &readable);
        n = pselect(fd + 1, &readable, NULL, NULL, NULL, &before);
        if (n < 0 && errno == EINTR)
            n = 0; // ours ends the loop; another, such as a change of the window's size, does not
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return last_signal == 0;
}
