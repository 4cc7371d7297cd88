/* Output of the command line: streams with small fixed buffers, styles, numbers for people, JSON.
 *
 * Everything that goes to a terminal from a model, a file or an error passes cli_text(), which
 * shows control characters as U+FFFD, so that no text can drive the terminal. A pipe or file gets
 * the bytes as they are. No function here allocates, with one exception named at cli_print(). A
 * failed write is remembered in the stream and drops what follows; cli_flush() tells. */
#ifndef SL_CLI_CONSOLE_H
#define SL_CLI_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLI_COLUMNS 80

typedef struct cli_out {
    int fd;
    int error;     // errno of the first write that failed, 0: none
    bool terminal; // fd is a terminal
    bool colour;   // styles are written
    bool mid_line; // the last byte was not a newline
    size_t n;
    char buffer[1024];
} cli_out;

typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED } cli_style;

/* Styles need a terminal that is not "dumb", no NO_COLOR in the environment, and want_colour. */
void cli_out_init(cli_out *out, int fd, bool want_colour);

void cli_write(cli_out *out, const char *bytes, size_t n);
void cli_puts(cli_out *out, const char *text);
/* printf. Up to 1 KiB is formatted on the stack, more in a block of the heap. */
void cli_print(cli_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Text from outside. Whole characters only, or a character is shown as its bytes' replacements. */
void cli_text(cli_out *out, const char *bytes, size_t n);
void cli_set_style(cli_out *out, cli_style style);
/* Hand the buffer to the system. False when this or an earlier write failed (out->error). A write
 * that a caught signal interrupts fails with EINTR: the reader of a full pipe may be gone. */
bool cli_flush(cli_out *out);

/* Words of text, wrapped before CLI_COLUMNS. The cursor is at `column`; following lines are
 * indented by `indent`. A newline in text starts a new line; spaces that follow it are kept. Ends
 * without a newline. */
void cli_wrap(cli_out *out, const char *text, int column, int indent);
/* A message for people: wrapped on a terminal, as it is elsewhere, so tools see whole lines. */
void cli_message(cli_out *out, const char *text, int column);

#define CLI_NUMBER_MAX 32
/* "13.2 MiB", "704 B"; "14,680,064"; a value that --mem takes, rounded up to K: "8396K". */
const char *cli_bytes(char buffer[CLI_NUMBER_MAX], uint64_t bytes);
const char *cli_exact(char buffer[CLI_NUMBER_MAX], uint64_t value);
const char *cli_size(char buffer[CLI_NUMBER_MAX], uint64_t bytes);
/* "0:08", "1:02:03". */
const char *cli_duration(char buffer[CLI_NUMBER_MAX], double seconds);

double cli_now(void); // seconds of a clock that only goes forward

/* ---- UTF-8 and JSON -------------------------------------------------------------------------- */

/* Length of the valid UTF-8 sequence that starts at bytes, 0 when there is none in n bytes. */
size_t cli_utf8_length(const char *bytes, size_t n);

#define CLI_JSON_ESCAPE_MAX 6
/* One character of text as the inside of a JSON string: consumes *used bytes, writes at most
 * CLI_JSON_ESCAPE_MAX, returns how many. A byte that is not UTF-8 becomes U+FFFD. n > 0. */
size_t cli_json_escape(const char *text, size_t n, char out[CLI_JSON_ESCAPE_MAX], size_t *used);

/* A writer of one JSON value, on one line. key is NULL in arrays and for the outermost value. */
typedef struct cli_json {
    cli_out *out;
    bool comma;
} cli_json;

void cli_json_begin(cli_json *json, const char *key, char bracket); // '{' or '['
void cli_json_end(cli_json *json, char bracket);                    // '}' or ']'
void cli_json_string(cli_json *json, const char *key, const char *text, size_t n);
void cli_json_uint(cli_json *json, const char *key, uint64_t value);
void cli_json_real(cli_json *json, const char *key, double value); // finite
void cli_json_bool(cli_json *json, const char *key, bool value);
/* Text that is JSON already. */
void cli_json_raw(cli_json *json, const char *key, const char *text, size_t n);
/* Piece by piece: begin, any number of parts of whole characters, end. */
void cli_json_string_begin(cli_json *json, const char *key);
void cli_json_string_part(cli_json *json, const char *text, size_t n);
void cli_json_string_end(cli_json *json);

/* ---- progress -------------------------------------------------------------------------------- */

/* One line that is rewritten in place, ten times a second at most, on a terminal only. */
typedef struct cli_progress {
    cli_out *out; // NULL: show nothing
    const char *verb;
    bool count; // units are tokens, else bytes
    double start, shown;
    uint64_t first; // done at the start: what an earlier run did is not part of the rate
    bool begun, visible;
} cli_progress;

void cli_progress_init(cli_progress *progress, cli_out *out, const char *verb, bool count);
void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total);
void cli_progress_clear(cli_progress *progress);

#endif
