/* The smallest useful program with libsluice: one question, answered inside a memory budget.
 *
 *   cc minimal.c $(pkg-config --cflags --libs sluice) -o minimal
 *   ./minimal STORE 64 'What does "owl" mean?'          (64 MiB)
 *
 * STORE is a model that `sluice convert` made. */
#include <sluice.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    (void)user;
    if (kind == SL_PIECE_TEXT) {
        fwrite(bytes, 1, n, stdout);
        fflush(stdout);
    }
    return true;
}

/* The conversation as the chat template wants it. A program that takes any text brings a JSON library;
 * this one refuses what it would have to escape, apart from quotes. */
static sl_status make_chat(const char *question, char *json, size_t cap, sl_error *err) {
    static const char tail[] = "\"}], \"add_generation_prompt\": true, \"enable_thinking\": false}";
    size_t n = (size_t)snprintf(json, cap, "{\"messages\": [{\"role\": \"user\", \"content\": \"");
    for (const char *c = question; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == '\\' || n + 2 + sizeof tail > cap) {
            snprintf(err->message, sizeof err->message,
                     "the question is too long or holds a control character or a backslash");
            return SL_ERR_ARGUMENT;
        }
        if (*c == '"') {
            json[n++] = '\\';
        }
        json[n++] = *c;
    }
    memcpy(json + n, tail, sizeof tail);
    return SL_OK;
}

static sl_status answer(sl_engine *engine, const char *question, sl_error *err) {
    static char json[4096], prompt[8192];
    static uint32_t tokens[4096];
    size_t n_prompt, n_tokens;
    sl_status status;
    sl_session *session;
    sl_generate_request request;
    sl_generate_result result;

    if ((status = make_chat(question, json, sizeof json, err)) ||
        (status =
             sl_engine_render(engine, json, strlen(json), prompt, sizeof prompt, &n_prompt, err)) ||
        (status = sl_engine_tokenize(engine, prompt, n_prompt, 0, tokens,
                                     sizeof tokens / sizeof *tokens, &n_tokens, err)) ||
        (status = sl_session_open(engine, &session, err))) {
        return status;
    }
    sl_generate_request_init(engine, &request);
    request.prompt = tokens;
    request.n_prompt = n_tokens;
    request.sampling.temperature = 0;
    request.max_tokens = 200;
    request.on_piece = print_piece;
    status = sl_session_generate(session, &request, &result, err);
    if (status == SL_OK) {
        printf("\n");
        fprintf(stderr, "%u tokens in %.3f s\n", result.n_generated, result.decode_seconds);
    }
    sl_session_close(session);
    return status;
}

int main(int argc, char **argv) {
    sl_error err = {0};
    sl_engine *engine;
    sl_engine_options options;

    if (argc != 4) {
        fprintf(stderr, "usage: minimal STORE MEBIBYTES QUESTION\n");
        return 2;
    }
    sl_engine_options_init(&options);
    options.mem_bytes = strtoull(argv[2], NULL, 10) << 20;
    options.n_ctx = 1024;

    sl_status status = sl_engine_open(argv[1], &options, NULL, &engine, &err);
    if (status == SL_OK) {
        status = answer(engine, argv[3], &err);
        sl_engine_close(engine);
    }
    if (status != SL_OK) {
        fprintf(stderr, "minimal: %s\n", err.message);
    }
    return status == SL_OK ? 0 : 1;
}
