/* A conversation on the terminal. */
#ifndef SL_CLI_CHAT_H
#define SL_CLI_CHAT_H

#include "cli/cli.h"

/* Open the store at path and talk until the person leaves. Returns the exit code. */
int cli_chat(cli *c, const char *path);

#endif
