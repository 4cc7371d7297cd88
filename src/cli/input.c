/* Input: see input.h. */
#include "cli/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/signals.h"

// Up to cap bytes, until the end of the input. *n is set in every case.
static cli_input_end fill(int fd, char *buffer, size_t cap, size_t *n, bool *at_end) {
    *n = 0;
    while (*n < cap) {
        if (!cli_signals_wait_readable(fd))
            return CLI_INPUT_SIGNAL;
        ssize_t got = read(fd, buffer + *n, cap - *n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return CLI_INPUT_FAILED;
        if (got == 0) {
            *at_end = true;
            return CLI_INPUT_OK;
        }
        *n += (size_t)got;
    }
    return CLI_INPUT_OK;
}

cli_input_end cli_input_open(cli_input *input, const char *path) {
    bool is_stdin = strcmp(path, "-") == 0;
    memset(input, 0, sizeof(*input));
    input->name = is_stdin ? "standard input" : path;
    input->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0)
        return CLI_INPUT_FAILED;
    cli_input_end end =
        fill(input->fd, input->first, sizeof(input->first), &input->n, &input->at_end);
    if (end != CLI_INPUT_OK) {
        int reason = errno;
        cli_input_close(input);
        errno = reason;
    }
    return end;
}

cli_input_end cli_input_read(cli_input *input, char *buffer, size_t cap, size_t *n) {
    *n = 0;
    if (input->n > cap)
        return CLI_INPUT_TOO_LONG;
    memcpy(buffer, input->first, input->n);
    size_t more = 0;
    cli_input_end end = CLI_INPUT_OK;
    if (!input->at_end)
        end = fill(input->fd, buffer + input->n, cap - input->n, &more, &input->at_end);
    *n = input->n + more;
    if (end == CLI_INPUT_OK && !input->at_end) {
        char extra;
        size_t n_extra;
        end = fill(input->fd, &extra, 1, &n_extra, &input->at_end);
        if (end == CLI_INPUT_OK && n_extra > 0)
            end = CLI_INPUT_TOO_LONG;
    }
    return end;
}

void cli_input_close(cli_input *input) {
    if (input->fd < 0)
        return;
    posix_fadvise(input->fd, 0, 0, POSIX_FADV_DONTNEED); // refused for pipes, which have no pages
    if (input->fd != STDIN_FILENO)
        close(input->fd);
    input->fd = -1;
}

cli_input_end cli_input_all(const char *path, size_t most, char **out, size_t *n) {
    cli_input input;
    *out = NULL;
    *n = 0;
    cli_input_end end = cli_input_open(&input, path);
    if (end != CLI_INPUT_OK)
        return end;
    size_t cap = sizeof(input.first) * 8;
    char *block = malloc(cap + 1);
    size_t used = input.n;
    if (block)
        memcpy(block, input.first, input.n);
    while (block && end == CLI_INPUT_OK && !input.at_end) {
        if (used == cap) {
            char *larger = cap < most ? realloc(block, cap * 2 + 1) : NULL;
            if (!larger) {
                end = cap < most ? CLI_INPUT_FAILED : CLI_INPUT_TOO_LONG;
                break;
            }
            block = larger;
            cap *= 2;
        }
        size_t got;
        end = fill(input.fd, block + used, cap - used, &got, &input.at_end);
        used += got;
    }
    if (!block)
        end = CLI_INPUT_FAILED;
    int reason = block ? errno : ENOMEM;
    cli_input_close(&input);
    if (end == CLI_INPUT_OK && used > most)
        end = CLI_INPUT_TOO_LONG;
    if (end != CLI_INPUT_OK) {
        free(block);
        errno = reason;
        return end;
    }
    block[used] = '\0';
    *out = block;
    *n = used;
    return CLI_INPUT_OK;
}

bool cli_input_piped(void) {
    struct stat s;
    return fstat(STDIN_FILENO, &s) == 0 &&
           (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode) || S_ISSOCK(s.st_mode));
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

bool cli_input_ids(const char *text, size_t len, uint32_t **ids, size_t *n, char problem[160]) {
    // A number and a separator take two bytes at least.
    uint32_t *list = malloc((len / 2 + 1) * sizeof(*list));
    size_t count = 0;
    *ids = NULL;
    *n = 0;
    if (!list) {
        snprintf(problem, 160, "no memory for %zu ids", len / 2 + 1);
        return false;
    }
    for (size_t i = 0; i < len;) {
        if (is_space(text[i])) {
            i++;
            continue;
        }
        size_t start = i;
        uint64_t value = 0;
        bool good = true;
        for (; i < len && !is_space(text[i]); i++) {
            good = good && text[i] >= '0' && text[i] <= '9' && value <= UINT32_MAX;
            if (good)
                value = value * 10 + (uint64_t)(text[i] - '0');
        }
        if (!good || value > UINT32_MAX) {
            snprintf(problem, 160,
                     "'%.*s' at byte %zu is not a token id (a whole number from 0 to %u)",
                     i - start > 32 ? 32 : (int)(i - start), text + start, start, UINT32_MAX);
            free(list);
            return false;
        }
        list[count++] = (uint32_t)value;
    }
    *ids = list;
    *n = count;
    return true;
}
