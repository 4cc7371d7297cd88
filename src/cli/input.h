/* Files and standard input, read once, with a limit. After a file was read its pages are given back
 * to the system (posix_fadvise), because the page cache that we cause counts against the budget. */
#ifndef SL_CLI_INPUT_H
#define SL_CLI_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_input_end {
    CLI_INPUT_OK,
    CLI_INPUT_FAILED, // errno says why
    CLI_INPUT_SIGNAL, // cli_signal() says which
    CLI_INPUT_TOO_LONG,
} cli_input_end;

/* A source whose first bytes are read at once, so that an empty one is known before a model is
 * opened. */
typedef struct cli_input {
    int fd;           // -1: closed
    const char *name; // for messages
    bool at_end;
    size_t n; // bytes of first
    char first[512];
} cli_input;

/* path "-" is standard input. */
cli_input_end cli_input_open(cli_input *input, const char *path);
/* The rest into buffer: *n bytes, at most cap. */
cli_input_end cli_input_read(cli_input *input, char *buffer, size_t cap, size_t *n);
void cli_input_close(cli_input *input);

/* A whole source in one block of the heap, for the verbs without a budget; free() it. One NUL
 * follows. */
cli_input_end cli_input_all(const char *path, size_t most, char **out, size_t *n);

/* True when standard input is a pipe, a socket or a file: something that is meant to be read. */
bool cli_input_piped(void);

/* Decimal ids separated by white space. *ids is from the heap. On failure *problem says where. */
bool cli_input_ids(const char *text, size_t len, uint32_t **ids, size_t *n, char problem[160]);

#endif
