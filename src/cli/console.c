/* Output: see console.h. Writes go straight to the file descriptor, because stdio would allocate
 * its buffers and lose the errno of a failed write, which decides between "the reader left" and an
 * error. */
#include "cli/console.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/signals.h"

#define REPLACEMENT "\xef\xbf\xbd"

void cli_out_init(cli_out *out, int fd, bool want_colour) {
    const char *no_colour = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    memset(out, 0, sizeof(*out));
    out->fd = fd;
    out->terminal = isatty(fd) == 1;
    out->colour = want_colour && out->terminal && !(no_colour && *no_colour) && term && *term &&
                  strcmp(term, "dumb") != 0;
}

bool cli_flush(cli_out *out) {
    size_t done = 0;
    while (!out->error && done < out->n) {
        ssize_t n = write(out->fd, out->buffer + done, out->n - done);
        if (n >= 0)
            done += (size_t)n;
        else if (errno != EINTR || cli_signal())
            out->error = errno;
    }
    out->n = 0;
    return out->error == 0;
}

void cli_write(cli_out *out, const char *bytes, size_t n) {
    if (n > 0)
        out->mid_line = bytes[n - 1] != '\n';
    while (n > 0 && !out->error) {
        size_t room = sizeof(out->buffer) - out->n;
        size_t part = n < room ? n : room;
        memcpy(out->buffer + out->n, bytes, part);
        out->n += part;
        bytes += part;
        n -= part;
        if (out->n == sizeof(out->buffer))
            cli_flush(out);
    }
}

void cli_puts(cli_out *out, const char *text) {
    cli_write(out, text, strlen(text));
}

void cli_print(cli_out *out, const char *fmt, ...) {
    char small[1024];
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof(small), fmt, args);
    if (n >= 0 && (size_t)n < sizeof(small)) {
        cli_write(out, small, (size_t)n);
    } else if (n >= 0) {
        char *large = malloc((size_t)n + 1);
        if (large) {
            vsnprintf(large, (size_t)n + 1, fmt, again);
            cli_write(out, large, (size_t)n);
            free(large);
        } else {
            out->error = ENOMEM;
        }
    }
    va_end(again);
    va_end(args);
}

// Characters that a terminal acts upon: C0 except tab and newline, DEL, C1.
static bool is_control(const unsigned char *c, size_t length) {
    if (length == 1)
        return (c[0] < 0x20 && c[0] != '\n' && c[0] != '\t') || c[0] == 0x7f;
    return length == 2 && c[0] == 0xc2 && c[1] < 0xa0;
}

void cli_text(cli_out *out, const char *bytes, size_t n) {
    if (!out->terminal) {
        cli_write(out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t length = cli_utf8_length(bytes + i, n - i);
        if (length == 0 || is_control((const unsigned char *)bytes + i, length))
            cli_puts(out, REPLACEMENT);
        else
            cli_write(out, bytes + i, length);
        i += length ? length : 1;
    }
}

void cli_set_style(cli_out *out, cli_style style) {
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[31m"};
    bool mid_line = out->mid_line;
    if (out->colour)
        cli_puts(out, codes[style]);
    out->mid_line = mid_line;
}

// Columns of a word: characters, as all text that is wrapped here is one column wide.
static int width_of(const char *word, size_t n) {
    int width = 0;
    for (size_t i = 0; i < n; i++)
        width += ((unsigned char)word[i] & 0xc0) != 0x80;
    return width;
}

void cli_wrap(cli_out *out, const char *text, int column, int indent) {
    bool first = true; // nothing on this line yet but the indentation
    while (*text) {
        if (*text == '\n' || *text == ' ') {
            if (*text == '\n') {
                cli_print(out, "\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
                column = indent;
                first = true;
                for (; text[1] == ' '; text++, column++) // a line that is indented stays so
                    cli_puts(out, " ");
            }
            text++;
            continue;
        }
        size_t n = strcspn(text, " \n");
        int width = width_of(text, n);
        if (!first && column + 1 + width >= CLI_COLUMNS) {
            cli_print(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        if (!first)
            cli_puts(out, " ");
        cli_text(out, text, n);
        column += width + (first ? 0 : 1);
        first = false;
        text += n;
    }
}

void cli_message(cli_out *out, const char *text, int column) {
    if (out->terminal)
        cli_wrap(out, text, column, 0);
    else
        cli_puts(out, text);
}

const char *cli_bytes(char buffer[CLI_NUMBER_MAX], uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    // 1023.95 would be printed as 1024.0 of the smaller unit.
    while (value >= 1023.95 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, CLI_NUMBER_MAX, "%.*f %s", unit ? 1 : 0, value, units[unit]);
    return buffer;
}

const char *cli_exact(char buffer[CLI_NUMBER_MAX], uint64_t value) {
    char digits[CLI_NUMBER_MAX];
    int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buffer[at++] = ',';
        buffer[at++] = digits[i];
    }
    buffer[at] = '\0';
    return buffer;
}

const char *cli_size(char buffer[CLI_NUMBER_MAX], uint64_t bytes) {
    uint64_t k = bytes / 1024 + (bytes % 1024 != 0);
    if (k > 0 && k % (1024 * 1024) == 0)
        snprintf(buffer, CLI_NUMBER_MAX, "%lluG", (unsigned long long)(k >> 20));
    else if (k > 0 && k % 1024 == 0)
        snprintf(buffer, CLI_NUMBER_MAX, "%lluM", (unsigned long long)(k >> 10));
    else
        snprintf(buffer, CLI_NUMBER_MAX, "%lluK", (unsigned long long)k);
    return buffer;
}

const char *cli_duration(char buffer[CLI_NUMBER_MAX], double seconds) {
    double most = 359999; // 99:59:59
    unsigned s = (unsigned)(seconds < most ? seconds + 0.5 : most);
    if (s >= 3600)
        snprintf(buffer, CLI_NUMBER_MAX, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buffer, CLI_NUMBER_MAX, "%u:%02u", s / 60, s % 60);
    return buffer;
}

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- UTF-8 and JSON -------------------------------------------------------------------------- */

size_t cli_utf8_length(const char *bytes, size_t n) {
    const unsigned char *s = (const unsigned char *)bytes;
    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
                    : (s[0] & 0xf0) == 0xe0       ? 3
                    : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                                  : 0;
    if (length == 0 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    // Overlong forms, surrogates and what lies beyond U+10FFFF.
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
        return 0;
    return length;
}

size_t cli_json_escape(const char *text, size_t n, char out[CLI_JSON_ESCAPE_MAX], size_t *used) {
    static const char digits[] = "0123456789abcdef";
    unsigned char c = (unsigned char)text[0];
    size_t length = cli_utf8_length(text, n);
    *used = length ? length : 1;
    if (length == 0) {
        memcpy(out, REPLACEMENT, 3);
        return 3;
    }
    if (length > 1 || (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)) {
        memcpy(out, text, length);
        return length;
    }
    out[0] = '\\';
    char letter = c == '"' || c == '\\' ? (char)c
                  : c == '\n'           ? 'n'
                  : c == '\t'           ? 't'
                  : c == '\r'           ? 'r'
                                        : '\0';
    if (letter) {
        out[1] = letter;
        return 2;
    }
    memcpy(out + 1, "u00", 3);
    out[4] = digits[c >> 4];
    out[5] = digits[c & 15];
    return 6;
}

void cli_json_string_part(cli_json *json, const char *text, size_t n) {
    char escaped[CLI_JSON_ESCAPE_MAX];
    for (size_t i = 0, used; i < n; i += used) {
        size_t length = cli_json_escape(text + i, n - i, escaped, &used);
        cli_write(json->out, escaped, length);
    }
}

static void begin_value(cli_json *json, const char *key) {
    if (json->comma)
        cli_puts(json->out, ", ");
    json->comma = true;
    if (key)
        cli_print(json->out, "\"%s\": ", key);
}

void cli_json_begin(cli_json *json, const char *key, char bracket) {
    begin_value(json, key);
    cli_write(json->out, &bracket, 1);
    json->comma = false;
}

void cli_json_end(cli_json *json, char bracket) {
    cli_write(json->out, &bracket, 1);
    json->comma = true;
}

void cli_json_string_begin(cli_json *json, const char *key) {
    begin_value(json, key);
    cli_puts(json->out, "\"");
}

void cli_json_string_end(cli_json *json) {
    cli_puts(json->out, "\"");
}

void cli_json_string(cli_json *json, const char *key, const char *text, size_t n) {
    cli_json_string_begin(json, key);
    cli_json_string_part(json, text, n);
    cli_json_string_end(json);
}

void cli_json_uint(cli_json *json, const char *key, uint64_t value) {
    begin_value(json, key);
    cli_print(json->out, "%llu", (unsigned long long)value);
}

void cli_json_real(cli_json *json, const char *key, double value) {
    begin_value(json, key);
    cli_print(json->out, "%.6g", value);
}

void cli_json_bool(cli_json *json, const char *key, bool value) {
    begin_value(json, key);
    cli_puts(json->out, value ? "true" : "false");
}

void cli_json_raw(cli_json *json, const char *key, const char *text, size_t n) {
    begin_value(json, key);
    cli_write(json->out, text, n);
}

/* ---- progress -------------------------------------------------------------------------------- */

void cli_progress_init(cli_progress *progress, cli_out *out, const char *verb, bool count) {
    memset(progress, 0, sizeof(*progress));
    progress->out = out->terminal ? out : NULL;
    progress->verb = verb;
    progress->count = count;
}

// Columns of the line. One stays free: a line that fills the last one would wrap on some terminals.
// Asked for anew each time, since windows change.
static int line_columns(const cli_out *out) {
    struct winsize size;
    bool known = ioctl(out->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return (known && size.ws_col < CLI_COLUMNS ? size.ws_col : CLI_COLUMNS) - 1;
}

void cli_progress_show(cli_progress *progress, uint64_t done, uint64_t total) {
    if (!progress->out)
        return;
    double now = cli_now();
    if (!progress->begun) {
        progress->begun = true;
        progress->start = progress->shown = now;
        progress->first = done;
        return; // what is over within a tenth of a second shows nothing
    }
    if (now - progress->shown < 0.1)
        return;
    progress->shown = now;

    char a[CLI_NUMBER_MAX], b[CLI_NUMBER_MAX], line[160];
    double rate = (double)(done - progress->first) / (now - progress->start);
    int n;
    if (progress->count)
        n = snprintf(line, sizeof(line), "%s %s", progress->verb, cli_exact(a, done));
    else
        n = snprintf(line, sizeof(line), "%s %s", progress->verb, cli_bytes(a, done));
    if (total > 0)
        n += snprintf(line + n, sizeof(line) - (size_t)n, " of %s  %3.0f%%",
                      progress->count ? cli_exact(b, total) : cli_bytes(b, total),
                      100.0 * (double)done / (double)total);
    if (progress->count)
        n += snprintf(line + n, sizeof(line) - (size_t)n, "  %.1f tok/s", rate);
    else
        n += snprintf(line + n, sizeof(line) - (size_t)n, "  %s/s", cli_bytes(a, (uint64_t)rate));
    if (total > done && rate > 0)
        snprintf(line + n, sizeof(line) - (size_t)n, "  %s left",
                 cli_duration(b, (double)(total - done) / rate));
    int columns = line_columns(progress->out);
    cli_print(progress->out, "\r%-*.*s", columns, columns, line);
    cli_flush(progress->out);
    progress->visible = true;
}

void cli_progress_clear(cli_progress *progress) {
    if (!progress->visible)
        return;
    cli_print(progress->out, "\r%*s\r", line_columns(progress->out), "");
    progress->out->mid_line = false;
    cli_flush(progress->out);
    progress->visible = false;
}
