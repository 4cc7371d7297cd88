/* Tokens to force through a model, for bench and trace, and lists of sizes. Every run of a comparison is given the
 * same ones, so that all do the same work. */
#ifndef SL_CLI_STREAM_H
#define SL_CLI_STREAM_H

#include "cli/cli.h"

#define CLI_STREAM_START 16u // tokens that the model's own text follows
#define CLI_SIZES_MAX 16u
#define CLI_SIZE_ALL UINT64_MAX // "all": whatever the model takes

/* The first n ids of the file of --stream, or all where n is 0; *n is how many. free(*ids). Not CLI_EXIT_OK: reported. */
int cli_stream_read(cli *c, uint32_t **ids, size_t *n);

/* n tokens that are made here: the model's own greedy text after a fixed start where it has a tokenizer, else drawn at
 * random, always the same. Resets the session. Not CLI_EXIT_OK: reported. */
int cli_stream_make(cli *c, sl_session *session, const sl_model_info *model, uint32_t *ids,
                    size_t n);

/* "1G,3G,all". False: reported, *exit_code is set. */
bool cli_sizes(cli *c, const char *option, const char *text, bool all_too,
               uint64_t sizes[CLI_SIZES_MAX], uint32_t *n, int *exit_code);

#endif
