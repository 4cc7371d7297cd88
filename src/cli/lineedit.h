/* Lines from the terminal, with editing and history where libedit is installed.
 *
 * libedit is loaded at run time, for the chat alone, so that a single answer does not pay for it
 * out of its budget. Without it the terminal's own line editing has to do, which is said once.
 * Signals are seen while a line is read, also those that come just before. */
#ifndef SL_CLI_LINEEDIT_H
#define SL_CLI_LINEEDIT_H

#include <histedit.h>
#include <stdbool.h>
#include <stddef.h>

#include "cli/cli.h"

typedef enum cli_line {
    CLI_LINE_OK,
    CLI_LINE_END,         // Ctrl-D on an empty line, or the terminal is gone
    CLI_LINE_INTERRUPTED, // cli_signal() says by which signal
} cli_line;

// The functions of libedit that are used.
struct cli_libedit {
    EditLine *(*el_init)(const char *, FILE *, FILE *, FILE *);
    void (*el_end)(EditLine *);
    const char *(*el_gets)(EditLine *, int *);
    int (*el_set)(EditLine *, int, ...);
    int (*el_get)(EditLine *, int, ...);
    void (*el_resize)(EditLine *);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history)(History *, HistEvent *, int, ...);
};

typedef struct cli_editor {
    cli *c;
    struct cli_libedit lib;
    void *library; // NULL: plain lines
    EditLine *edit;
    History *history;
    const char *prompt;
    bool interrupted;
    char history_path[CLI_PATH_MAX]; // "" where no history is kept
    char buffer[4096];               // a plain line, which a terminal limits to this
} cli_editor;

/* Cannot fail: what is not there is done without. */
void cli_editor_open(cli_editor *editor, cli *c);
void cli_editor_close(cli_editor *editor);
/* *line, *n bytes without the line's end, is valid until the next call. */
cli_line cli_editor_read(cli_editor *editor, const char *prompt, const char **line, size_t *n);
/* A whole message becomes one entry of the history. */
void cli_editor_remember(cli_editor *editor, const char *text, size_t n);

#endif
