/* See stream.h. */
#include "cli/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/input.h"
#include "cli/signals.h"

#define STREAM_BYTES_MAX ((size_t)64 << 20)
#define RECENT 8u // greedy text would circle: a token that was there just now is passed over

int cli_stream_read(cli *c, uint32_t **ids, size_t *n) {
    char *text, problem[160];
    size_t len, most = *n;
    const char *path = cli_string(c, CLI_STREAM);
    *ids = NULL;
    switch (cli_input_all(path, STREAM_BYTES_MAX, &text, &len)) {
    case CLI_INPUT_OK:
        break;
    case CLI_INPUT_SIGNAL:
        return CLI_EXIT_SIGNAL + cli_signal();
    case CLI_INPUT_TOO_LONG:
        return cli_fail(c, CLI_EXIT_FAILED, "argument", "--stream: '%s' is longer than %zu bytes",
                        path, STREAM_BYTES_MAX);
    case CLI_INPUT_FAILED:
        return cli_fail(c, CLI_EXIT_FAILED, "io", "--stream: reading '%s': %s", path,
                        strerror(errno));
    }
    bool good = cli_input_ids(text, len, ids, n, problem);
    free(text);
    if (!good)
        return cli_fail(c, CLI_EXIT_FAILED, "syntax", "--stream: '%s': %s", path, problem);
    if (*n < most || *n == 0) {
        size_t has = *n;
        free(*ids);
        *ids = NULL;
        return cli_fail(c, CLI_EXIT_FAILED, "argument",
                        "--stream: '%s' has %zu tokens, %zu are needed", path, has,
                        most ? most : 1);
    }
    *n = most ? most : *n;
    return CLI_EXIT_OK;
}

static uint32_t likeliest(const float *logits, uint32_t n_vocab, const uint32_t *ids, size_t n) {
    uint32_t best = UINT32_MAX;
    for (uint32_t v = 0; v < n_vocab; v++) {
        bool recent = false;
        for (size_t j = n > RECENT ? n - RECENT : 0; j < n; j++)
            recent |= ids[j] == v;
        if (!recent && (best == UINT32_MAX || logits[v] > logits[best]))
            best = v;
    }
    return best == UINT32_MAX ? 0 : best;
}

int cli_stream_make(cli *c, sl_session *session, const sl_model_info *model, uint32_t *ids,
                    size_t n) {
    sl_error err;
    if (!model->has_tokenizer) {
        uint64_t state = 1;
        for (size_t i = 0; i < n; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            ids[i] = (uint32_t)((state >> 33) % model->n_vocab);
        }
        return CLI_EXIT_OK;
    }
    size_t start = n < CLI_STREAM_START ? n : CLI_STREAM_START;
    for (size_t i = 0; i < start; i++)
        ids[i] = ((uint32_t)i * 37 + 300) % model->n_vocab;
    sl_session_reset(session);
    sl_status st = n > start ? sl_session_feed(session, ids, start, NULL, &err) : SL_OK;
    for (size_t i = start; i < n && !st; i++) {
        ids[i] = likeliest(sl_session_logits(session), model->n_vocab, ids, i);
        if (i + 1 < n)
            st = sl_session_feed(session, &ids[i], 1, NULL, &err);
    }
    sl_session_reset(session);
    return st ? cli_fail_status(c, &err) : CLI_EXIT_OK;
}

bool cli_sizes(cli *c, const char *option, const char *text, bool all_too,
               uint64_t sizes[CLI_SIZES_MAX], uint32_t *n, int *exit_code) {
    char word[64], message[CLI_MESSAGE_MAX];
    *n = 0;
    for (const char *at = text; *n == 0 || *at;) {
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), at);
        if (*n == CLI_SIZES_MAX) {
            *exit_code = cli_usage_error(c, "%s: more than %u sizes", option, CLI_SIZES_MAX);
            return false;
        }
        if (all_too && strcmp(word, "all") == 0) {
            sizes[(*n)++] = CLI_SIZE_ALL;
        } else if (cli_parse_size(option, word, &sizes[*n], message)) {
            ++*n;
        } else {
            *exit_code = cli_usage_error(c, "%s", message);
            return false;
        }
        at += length;
        if (*at == ',' && at[1] == '\0') {
            *exit_code = cli_usage_error(c, "%s: '%.64s' ends with a comma", option, text);
            return false;
        }
        at += *at == ',';
    }
    return true;
}
