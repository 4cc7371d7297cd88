/* Texts made from the tables of options.h. Each is written whole to out; none can fail except as
 * cli_flush(out) tells. */
#ifndef SL_CLI_HELP_H
#define SL_CLI_HELP_H

#include "cli/console.h"
#include "cli/options.h"

void cli_help_overview(cli_out *out);
void cli_help_verb(cli_out *out, cli_verb_id verb);
void cli_help_man(cli_out *out);      // roff, for man(1)
void cli_help_bash(cli_out *out);     // a completion script
void cli_help_markdown(cli_out *out); // docs/commands.md

#endif
