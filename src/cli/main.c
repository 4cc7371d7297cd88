/* The entry point, apart from the rest so that tests can link the rest. */
#include <signal.h>
#include <unistd.h>

#include "cli/cli.h"

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a write to a reader that left returns EPIPE, which ends us quietly
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error, not the end
    return cli_main(argc, argv, STDOUT_FILENO, STDERR_FILENO);
}
