/* SIGINT and SIGTERM as a flag that the verbs look at, and as sl_session_cancel() while a session
 * works.
 *
 * The handler does these two things and nothing else, on the main thread: the library's threads
 * take no signals, so a read or write that waits there wakes up. A signal that was ignored when the
 * program started (a background job of a script, nohup) stays ignored. */
#ifndef SL_CLI_SIGNALS_H
#define SL_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#include "sluice.h"

/* From now on the two signals set the flag instead of ending the process. Interrupted reads and
 * writes return EINTR. */
void cli_signals_catch(void);
/* The same for SIGHUP: for a program that is meant to outlive a command, the terminal's end is a
 * reason to stop like others. */
void cli_signals_catch_hangup(void);
/* From now on a signal ends the process at once, with 128 and its number. */
void cli_signals_end_at_once(void);
/* The last signal that came, or 0. */
int cli_signal(void);
void cli_signal_clear(void);

/* While session is not NULL, a signal also cancels it. */
void cli_signals_cancel(sl_session *session);

/* Wait until fd can be read. False when a signal came first; a signal that came before the call
 * counts, so none is lost between the look at the flag and the wait. */
bool cli_signals_wait_readable(int fd);
/* Wait for a signal; returns at once when one came before. */
void cli_signals_wait(void);

#endif
