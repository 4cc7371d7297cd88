/* A model that is open for answering, and one answer: render, tokenize, generate, show.
 *
 * All buffers are made when the model is opened, from the engine's own measure, and only the pages
 * that are written count: the request and the text at sl_engine_text_max() bytes each, and the ids
 * of one context. Nothing is allocated while a prompt is read or an answer generated. */
#ifndef SL_CLI_TALK_H
#define SL_CLI_TALK_H

#include "cli/cli.h"
#include "cli/request.h"

typedef struct cli_talk {
    cli *c;
    sl_engine *engine;
    sl_session *session;
    sl_plan_info plan;
    sl_model_info model;
    sl_sampling sampling;
    cli_buffer request; // what the template gets
    cli_buffer text;    // the prompt as text; then, with --json, the answer's pieces
    uint32_t *ids;      // [n_ctx + 1]: the prompt, then the answer
    size_t n_prompt;
    size_t n_ids; // prompt and answer

    // The answer that was generated last.
    sl_generate_result result;
    sl_telemetry at_first_token;
    bool kept_all; // no part of the answer was left out of the request or text

    // While generating.
    cli_progress line;
    bool counting;        // at_first_token is filled
    bool in_reasoning;    // the dim text on standard error is open
    bool keep_in_request; // the answer's text becomes part of the request
} cli_talk;

/* Open the store at path as the options say and print the defaults that are used. On failure the
 * error is reported, nothing needs closing, and the exit code is returned. */
int cli_talk_open(cli *c, const char *path, cli_talk *t);
void cli_talk_close(cli_talk *t);

/* Each reports its error and returns the exit code, 0 on success. */
int cli_talk_render(cli_talk *t);   // request -> text
int cli_talk_tokenize(cli_talk *t); // text -> ids; the context must hold them
/* Forget what the session holds, then answer the prompt in ids: text to standard output as it
 * comes. 0 also for an answer that was canceled: result.finish tells. tools: JSON, NUL-terminated,
 * or NULL. */
int cli_talk_generate(cli_talk *t, const char *tools, bool keep_in_request);

void cli_talk_print_stats(cli_talk *t);
int cli_talk_print_json(cli_talk *t); // after cli_talk_generate() with --json

#endif
