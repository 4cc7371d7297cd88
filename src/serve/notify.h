/* Tells the service manager that started us how far we are, as sd_notify(3) does: a datagram to the
 * socket that NOTIFY_SOCKET names. That variable is the manager's, like NO_COLOR is the terminal's;
 * it changes nothing that the server does. */
#ifndef SL_SERVE_NOTIFY_H
#define SL_SERVE_NOTIFY_H

/* The socket, open and connected; -1 without a manager that listens. Before rights are given up. */
int serve_notify_open(void);
/* One message, such as "READY=1". Nothing without a socket; nobody is told of a failure, since the
 * manager has a time limit of its own. */
void serve_notify(int socket, const char *state);

#endif
