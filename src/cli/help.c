/* Help, man page, completion and reference, all from the tables: see help.h. */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "sluice.h"

#define OPTION_COLUMN 26

static const char page_date[] = "2026-12-01"; // of the man page: its last change

static const char tagline[] = "Mixture-of-Experts language models inside a memory budget";

// What every form of the documentation says after the verbs.
static const struct {
    const char *code, *meaning;
} exit_codes[] = {
    {"0", "everything went well; also when the reader of a pipe left early"},
    {"1", "it failed while running"},
    {"2", "the command line is wrong"},
    {"3", "the model does not fit the memory budget"},
    {"4", "the model is missing, damaged or of a kind that is not supported"},
    {"130", "interrupted (SIGINT)"},
    {"143", "terminated (SIGTERM)"},
};

static const struct {
    const char *name, *meaning;
} environment[] = {
    {"SLUICE_HOME", "where models and the history of chats live. Without it: $XDG_DATA_HOME/sluice "
                    "(~/.local/share/sluice) and $XDG_STATE_HOME/sluice (~/.local/state/sluice)"},
    {"NO_COLOR", "when not empty: no colours"},
};

static const char model_names[] = "A MODEL with a slash, or that exists as a folder, is a path; "
                                  "any other name is looked for in the "
                                  "models folder.";

// "-f, --file FILE" into buffer.
static const char *option_heading(const cli_option *o, char buffer[64]) {
    char letter[8] = "";
    if (o->letter)
        snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    snprintf(buffer, 64, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
             o->value ? o->value : "");
    return buffer;
}

static bool takes(cli_verb_id verb, const cli_option *o) {
    return (o->verbs >> verb) & 1;
}

static void usage_line(cli_out *out, cli_verb_id verb) {
    const cli_verb *v = &cli_verbs[verb];
    cli_print(out, "sluice %s%s%s [OPTIONS]", v->name, *v->arguments ? " " : "", v->arguments);
}

/* ---- help ------------------------------------------------------------------------------------ */

void cli_help_overview(cli_out *out) {
    cli_set_style(out, CLI_BOLD);
    cli_print(out, "sluice");
    cli_set_style(out, CLI_PLAIN);
    cli_print(out, " %s: %s\n\n", sl_version(), tagline);
    for (size_t i = 0; i < CLI_N_VERBS; i++) {
        cli_puts(out, "  ");
        cli_set_style(out, CLI_BOLD);
        cli_print(out, "%-10s", cli_verbs[i].name);
        cli_set_style(out, CLI_PLAIN);
        cli_print(out, "  %s\n", cli_verbs[i].summary);
    }
    cli_puts(out, "\n");
    cli_wrap(out, model_names, 0, 0);
    cli_puts(out, "\n'sluice help VERB' explains a verb and lists its options.\n");
}

static void help_options(cli_out *out, cli_verb_id verb, bool advanced, const char *title) {
    bool any = false;
    for (size_t i = 0; i < cli_n_options; i++) {
        const cli_option *o = &cli_options[i];
        char heading[64];
        if (!takes(verb, o) || o->advanced != advanced)
            continue;
        if (!any)
            cli_print(out, "\n%s\n", title);
        any = true;
        cli_print(out, "  %-*s", OPTION_COLUMN - 2, option_heading(o, heading));
        if (strlen(heading) + 3 > OPTION_COLUMN)
            cli_print(out, "\n%*s", OPTION_COLUMN, "");
        cli_wrap(out, o->help, OPTION_COLUMN, OPTION_COLUMN);
        cli_puts(out, "\n");
    }
}

void cli_help_verb(cli_out *out, cli_verb_id verb) {
    const cli_verb *v = &cli_verbs[verb];
    cli_set_style(out, CLI_BOLD);
    usage_line(out, verb);
    cli_set_style(out, CLI_PLAIN);
    cli_print(out, "\n%c%s.\n", v->summary[0] - 'a' + 'A', v->summary + 1);
    if (*v->description) {
        cli_puts(out, "\n");
        cli_wrap(out, v->description, 0, 0);
        cli_puts(out, "\n");
    }
    help_options(out, verb, false, "Options");
    help_options(out, verb, true, "Advanced options");
    cli_puts(out, "\nExamples\n");
    for (const char *line = v->examples; *line;) {
        size_t n = strcspn(line, "\n");
        cli_print(out, "  sluice %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

/* ---- man page -------------------------------------------------------------------------------- */

// Text of a roff line: hyphens as typed, backslashes kept, nothing taken for a request.
static void roff(cli_out *out, const char *text) {
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            cli_puts(out, "\\&");
        line_start = *text == '\n';
        if (*text == '\\')
            cli_puts(out, "\\e");
        else if (*text == '-')
            cli_puts(out, "\\-");
        else if (*text == '\'')
            cli_puts(out, "\\(aq");
        else if (*text == '\n')
            cli_puts(out, "\n.PP\n");
        else
            cli_write(out, text, 1);
    }
    cli_puts(out, "\n");
}

void cli_help_man(cli_out *out) {
    cli_print(out, ".TH SLUICE 1 \"%s\" \"sluice %s\" \"User Commands\"\n.SH NAME\nsluice \\- ",
              page_date, sl_version());
    roff(out, tagline);
    cli_puts(out, ".SH SYNOPSIS\n.B sluice\n.I VERB\n[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]\n"
                  ".SH DESCRIPTION\n");
    roff(out, "Sluice runs Mixture-of-Experts language models that are larger than memory. The "
              "user names a "
              "budget; every byte is planned inside it, and the experts are streamed from the "
              "drive by direct "
              "reads.");
    cli_puts(out, ".PP\n");
    roff(out, model_names);
    cli_puts(out, ".SH VERBS\n");
    for (size_t v = 0; v < CLI_N_VERBS; v++) {
        const cli_verb *verb = &cli_verbs[v];
        cli_print(out, ".SS \"sluice %s%s%s\"\n%c", verb->name, *verb->arguments ? " " : "",
                  verb->arguments, verb->summary[0] - 'a' + 'A');
        char summary[128];
        snprintf(summary, sizeof(summary), "%s.", verb->summary + 1);
        roff(out, summary);
        if (*verb->description) {
            cli_puts(out, ".PP\n");
            roff(out, verb->description);
        }
        for (size_t i = 0; i < cli_n_options; i++) {
            const cli_option *o = &cli_options[i];
            char heading[64];
            if (!takes((cli_verb_id)v, o))
                continue;
            cli_puts(out, ".TP\n.B ");
            roff(out, option_heading(o, heading));
            roff(out, o->help);
        }
        cli_puts(out, ".PP\nExamples:\n.RS\n.nf\n");
        for (const char *line = verb->examples; *line;) {
            char text[160];
            size_t n = strcspn(line, "\n");
            snprintf(text, sizeof(text), "sluice %.*s", (int)n, line);
            roff(out, text);
            line += n + (line[n] == '\n');
        }
        cli_puts(out, ".fi\n.RE\n");
    }
    cli_puts(out, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++) {
        cli_print(out, ".TP\n.B %s\n", exit_codes[i].code);
        roff(out, exit_codes[i].meaning);
    }
    cli_puts(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++) {
        cli_print(out, ".TP\n.B %s\n", environment[i].name);
        roff(out, environment[i].meaning);
    }
}

/* ---- completion ------------------------------------------------------------------------------ */

void cli_help_bash(cli_out *out) {
    cli_puts(out, "# Completion of sluice for bash, made by 'sluice help --bash'.\n"
                  "_sluice() {\n"
                  "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "    local verb=${COMP_WORDS[1]} options models=0\n"
                  "    COMPREPLY=()\n"
                  "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                  "        COMPREPLY=($(compgen -W '");
    for (size_t v = 0; v < CLI_N_VERBS; v++)
        cli_print(out, "%s%s", v ? " " : "", cli_verbs[v].name);
    cli_puts(out, "' -- \"$cur\"))\n        return\n    fi\n    case $verb in\n");
    for (size_t v = 0; v < CLI_N_VERBS; v++) {
        cli_print(out, "    %s)\n        options='", cli_verbs[v].name);
        for (size_t i = 0, n = 0; i < cli_n_options; i++) {
            if (takes((cli_verb_id)v, &cli_options[i]))
                cli_print(out, "%s--%s", n++ ? " " : "", cli_options[i].name);
        }
        cli_puts(out, "'\n");
        const char *arguments = cli_verbs[v].arguments;
        if (strncmp(arguments + (arguments[0] == '['), "MODEL", 5) == 0)
            cli_puts(out, "        models=1\n");
        if (v == CLI_HELP) {
            cli_puts(out, "        options+=' ");
            for (size_t k = 0; k < CLI_N_VERBS; k++)
                cli_print(out, "%s%s", k ? " " : "", cli_verbs[k].name);
            cli_puts(out, "'\n");
        }
        cli_puts(out, "        ;;\n");
    }
    cli_puts(out, "    *) return ;;\n    esac\n    case $prev in\n");
    for (size_t i = 0; i < cli_n_options; i++) {
        const cli_option *o = &cli_options[i];
        bool repeated = i > 0 && cli_options[i - 1].id == o->id;
        if (o->kind == CLI_KIND_FLAG || repeated)
            continue;
        cli_puts(out, "    ");
        if (o->letter)
            cli_print(out, "-%c | ", o->letter);
        cli_print(out, "--%s) ", o->name);
        if (o->kind == CLI_KIND_CHOICE) {
            cli_puts(out, "COMPREPLY=($(compgen -W '");
            for (const char *c = o->choices; *c; c++)
                cli_write(out, *c == '|' ? " " : c, 1);
            cli_puts(out, "' -- \"$cur\")); return ;;\n");
        } else if (o->kind == CLI_KIND_FILE) {
            cli_puts(out,
                     "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
        } else {
            cli_puts(out, "return ;;\n");
        }
    }
    cli_puts(out,
             "    esac\n"
             "    if [[ $cur == -* || $verb == help ]]; then\n"
             "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
             "        return\n"
             "    fi\n"
             "    compopt -o filenames\n"
             "    local IFS=$'\\n'\n"
             "    if [ \"$models\" -eq 1 ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
             "        COMPREPLY=($(compgen -W \"$(sluice ls --names 2>/dev/null)\" -- \"$cur\"))\n"
             "    fi\n"
             "    COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
             "}\n"
             "complete -F _sluice sluice\n");
}

/* ---- reference ------------------------------------------------------------------------------- */

// Markdown outside code: what a renderer would take for markup is escaped.
static void markdown(cli_out *out, const char *text) {
    for (; *text; text++) {
        if (strchr("<>|*_[]\\`", *text))
            cli_puts(out, "\\");
        if (*text == '\n')
            cli_puts(out, "\n");
        cli_write(out, text, 1);
    }
}

void cli_help_markdown(cli_out *out) {
    cli_puts(out, "# Commands\n\nMade by `sluice help --markdown` from the table of options; "
                  "a test compares.\n\n");
    markdown(out, model_names);
    cli_puts(out, "\n\n| | |\n| --- | --- |\n");
    for (size_t v = 0; v < CLI_N_VERBS; v++) {
        cli_print(out, "| [`sluice %s`](#sluice-%s) | ", cli_verbs[v].name, cli_verbs[v].name);
        markdown(out, cli_verbs[v].summary);
        cli_puts(out, " |\n");
    }
    for (size_t v = 0; v < CLI_N_VERBS; v++) {
        const cli_verb *verb = &cli_verbs[v];
        cli_print(out, "\n## sluice %s\n\n`", verb->name);
        usage_line(out, (cli_verb_id)v);
        cli_print(out, "`\n\n%c", verb->summary[0] - 'a' + 'A');
        markdown(out, verb->summary + 1);
        cli_puts(out, ".\n\n");
        if (*verb->description) {
            markdown(out, verb->description);
            cli_puts(out, "\n\n");
        }
        cli_puts(out, "| option | |\n| --- | --- |\n");
        for (size_t i = 0; i < cli_n_options; i++) {
            const cli_option *o = &cli_options[i];
            char heading[64];
            if (!takes((cli_verb_id)v, o) || o->id == CLI_HELP_FLAG || o->id == CLI_NO_COLOR)
                continue;
            cli_puts(out, "| `");
            for (const char *c = option_heading(o, heading); *c; c++) {
                if (*c == '|')
                    cli_puts(out, "\\");
                cli_write(out, c, 1);
            }
            cli_puts(out, "` | ");
            markdown(out, o->help);
            cli_puts(out, " |\n");
        }
        cli_puts(out, "| `--no-color`, `--help` | as everywhere |\n\n```sh\n");
        for (const char *line = verb->examples; *line;) {
            size_t n = strcspn(line, "\n");
            cli_print(out, "sluice %.*s\n", (int)n, line);
            line += n + (line[n] == '\n');
        }
        cli_puts(out, "```\n");
    }
    cli_puts(out, "\n## Exit codes\n\n| code | |\n| --- | --- |\n");
    for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++)
        cli_print(out, "| %s | %s |\n", exit_codes[i].code, exit_codes[i].meaning);
    cli_puts(out, "\n## Environment\n\n| variable | |\n| --- | --- |\n");
    for (size_t i = 0; i < sizeof(environment) / sizeof(environment[0]); i++)
        cli_print(out, "| `%s` | %s |\n", environment[i].name, environment[i].meaning);
}
