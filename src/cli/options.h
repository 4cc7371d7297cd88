/* The command line as data: verbs and options in two tables, and the parser that reads them.
 *
 * Everything that describes the command line comes from these tables: parsing, --help, the man
 * page, the completion of bash and docs/commands.md (help.h). An option belongs to the verbs in its
 * mask; two rows may share a name when the verbs mean different things by it. */
#ifndef SL_CLI_OPTIONS_H
#define SL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cli_verb_id {
    CLI_RUN,
    CLI_SERVE,
    CLI_CONVERT,
    CLI_PLAN,
    CLI_SHOW,
    CLI_VERIFY,
    CLI_DOCTOR,
    CLI_LS,
    CLI_RM,
    CLI_LOGITS,
    CLI_BENCH,
    CLI_TRACE,
    CLI_TOKENIZE,
    CLI_TEMPLATE,
    CLI_VERSION,
    CLI_HELP,
    CLI_N_VERBS,
} cli_verb_id;

typedef struct cli_verb {
    const char *name;
    const char *arguments;   // "MODEL [PROMPT]"
    uint8_t n_min, n_max;    // how many of them
    const char *summary;     // one line, no full stop
    const char *description; // paragraphs, separated by newlines
    const char *examples;    // one command a line, without the leading "sluice"
} cli_verb;

extern const cli_verb cli_verbs[CLI_N_VERBS];

typedef enum cli_option_id {
    CLI_MEM,
    CLI_CTX,
    CLI_MAX_TOKENS,
    CLI_TEMP,
    CLI_TOP_K,
    CLI_TOP_P,
    CLI_MIN_P,
    CLI_PRESENCE_PENALTY,
    CLI_REPEAT_PENALTY,
    CLI_SEED,
    CLI_STOP,
    CLI_SYSTEM,
    CLI_THINK,
    CLI_FILE,
    CLI_CHAT,
    CLI_RAW,
    CLI_HOST,
    CLI_PORT,
    CLI_API_KEY_FILE,
    CLI_ALLOW_HOST,
    CLI_CORS,
    CLI_NAME,
    CLI_SNAPSHOTS,
    CLI_CONNECTIONS,
    CLI_QUEUE,
    CLI_NO_SANDBOX,
    CLI_BITS,
    CLI_GROUP,
    CLI_FORCE,
    CLI_MOVE,
    CLI_YES,
    CLI_NAMES,
    CLI_TOKENS,
    CLI_N_TOKENS,
    CLI_SIZES,
    CLI_STREAM,
    CLI_PROMPT,
    CLI_RUNS,
    CLI_PLOT,
    CLI_SLOTS,
    CLI_POLICY,
    CLI_GUESS,
    CLI_WARM,
    CLI_OUT,
    CLI_HIDDEN,
    CLI_DECODE,
    CLI_PLAIN_TEXT,
    CLI_WHOLE,
    CLI_MAN,
    CLI_BASH,
    CLI_MARKDOWN,
    CLI_STATS,
    CLI_JSON,
    CLI_QUIET,
    CLI_NO_COLOR,
    CLI_THREADS,
    CLI_CHUNK,
    CLI_IO,
    CLI_CPU,
    CLI_BUFFERED,
    CLI_NO_GUESSES,
    CLI_HELP_FLAG,
    CLI_N_OPTIONS,
} cli_option_id;

typedef enum cli_kind {
    CLI_KIND_FLAG,
    CLI_KIND_SIZE,  // bytes with K, M or G; plain 0 as well where least is 0
    CLI_KIND_COUNT, // a whole number from least to most
    CLI_KIND_REAL,  // a finite number from least to most
    CLI_KIND_TEXT,
    CLI_KIND_FILE,   // text that names a file: completion knows
    CLI_KIND_CHOICE, // one of the words in choices
    CLI_KIND_LIST,   // text of least to most bytes that may be given CLI_LIST_MAX times
} cli_kind;

typedef struct cli_option {
    cli_option_id id;
    const char *name; // without the dashes
    char letter;      // -f, or 0
    bool advanced;    // listed apart
    cli_kind kind;
    uint32_t verbs;      // bit of each verb that takes it
    const char *value;   // what stands for the value in texts; NULL for flags
    const char *choices; // "on|off"
    double least, most;
    const char *help; // sentences; the default is part of them
} cli_option;

extern const cli_option cli_options[];
extern const size_t cli_n_options; // rows

#define CLI_LIST_MAX 16
typedef struct cli_list {
    const char *text[CLI_LIST_MAX]; // in argv
    uint32_t n;
} cli_list;

typedef struct cli_args {
    cli_verb_id verb;
    const char *positional[2];
    uint32_t n_positional;
    bool given[CLI_N_OPTIONS];
    union {
        uint64_t count; // SIZE and COUNT
        double real;
        const char *text; // TEXT, FILE and CHOICE: in argv
    } value[CLI_N_OPTIONS];
    cli_list stop, hosts, origins; // the options of kind LIST
} cli_args;

#define CLI_MESSAGE_MAX 512

/* Read argv into args. An option's value follows it or stands behind "="; "--" ends the options;
 * options and arguments may be mixed. "sluice --help" and "sluice --version" are the verbs.
 * False: message says what was found, what was expected and what to do. */
bool cli_parse(int argc, char *const *argv, cli_args *args, char message[CLI_MESSAGE_MAX]);

/* The option of that verb, or NULL. */
const cli_option *cli_option_find(cli_verb_id verb, const char *name, size_t n);

/* Values, as the table's kinds read them. False: message is filled; option is the name to print. */
bool cli_parse_size(const char *option, const char *text, uint64_t *out,
                    char message[CLI_MESSAGE_MAX]);
bool cli_parse_count(const char *option, const char *text, uint64_t least, uint64_t most,
                     uint64_t *out, char message[CLI_MESSAGE_MAX]);
bool cli_parse_real(const char *option, const char *text, double least, double most, double *out,
                    char message[CLI_MESSAGE_MAX]);

/* The verb of that name, or CLI_N_VERBS. */
cli_verb_id cli_verb_find(const char *name);
/* The verb that looks most like name, or NULL when none is near. */
const char *cli_verb_nearest(const char *name);

#endif
