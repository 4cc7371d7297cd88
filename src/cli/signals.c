/* Signals: see signals.h. The variables below are mutable globals because a handler has no
 * other way to reach the program. */
#include "cli/signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/select.h>
#include <unistd.h>

#include "cli/cli.h"

static volatile sig_atomic_t last_signal, ends_at_once;
// Written by the main thread, read by the handler, which runs on it.
static _Atomic(sl_session *) running;

static void on_signal(int number) {
    if (ends_at_once)
        _exit(CLI_EXIT_SIGNAL + number);
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
    sigaddset(&set, SIGHUP);
    return set;
}

static void catch_one(int number) {
    struct sigaction old, action = {.sa_handler = on_signal, .sa_mask = caught_set()};
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

void cli_signals_catch(void) {
    catch_one(SIGINT);
    catch_one(SIGTERM);
}

void cli_signals_catch_hangup(void) {
    catch_one(SIGHUP);
}

void cli_signals_end_at_once(void) {
    ends_at_once = 1;
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

// fd < 0: none.
static void wait_for(int fd) {
    sigset_t ours = caught_set(), before;
    fd_set readable;
    int n = 0;
    // Held back between the look at the flag and the wait, where one would be lost otherwise.
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    while (n == 0 && !last_signal) {
        FD_ZERO(&readable);
        if (fd >= 0)
            FD_SET(fd, &readable);
        n = pselect(fd + 1, &readable, NULL, NULL, NULL, &before);
        if (n < 0 && errno == EINTR)
            n = 0; // ours ends the loop; another, such as a change of the window's size, does not
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool cli_signals_wait_readable(int fd) {
    wait_for(fd);
    return last_signal == 0;
}

void cli_signals_wait(void) {
    wait_for(-1);
}
