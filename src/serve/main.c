/* The entry point, apart from the rest so that tests can link the rest. */
#include <unistd.h>

#include "cli/cli.h"
#include "serve/serve.h"

int main(int argc, char **argv) {
    cli_process_begin();
    return serve_main(argc, argv, STDOUT_FILENO, STDERR_FILENO);
}
