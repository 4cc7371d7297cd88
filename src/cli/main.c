/* The entry point, apart from the rest so that tests can link the rest. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"

/* A standard stream that came closed must not become the next file that is opened: what is said would be written
 * into a model. It becomes one that refuses, as a closed one does. */
static void keep_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) == -1)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv) {
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN); // a write to a reader that left returns EPIPE, which ends us quietly
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error, not the end
    return cli_main(argc, argv, STDOUT_FILENO, STDERR_FILENO);
}
