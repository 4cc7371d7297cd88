/* The program sluice-serve: the verb serve, where the server library is linked. `sluice serve`
 * becomes this program with its own arguments. */
#ifndef SL_SERVE_SERVE_H
#define SL_SERVE_SERVE_H

/* The whole program; argv[1] is "serve". Returns the exit code. */
int serve_main(int argc, char *const *argv, int out_fd, int err_fd);

#endif
