/* The two tables and their parser: see options.h. Nothing here prints, allocates or knows what a
 * verb does; values are checked for their form, and what depends on a model is checked by the
 * library. */
#include "cli/options.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const cli_verb cli_verbs[CLI_N_VERBS] = {
    [CLI_RUN] =
        {"run", "MODEL [PROMPT]", 1, 2, "answer one prompt, or chat",
         "Opens a converted model inside a memory budget and answers. The answer alone goes to "
         "standard "
         "output, as it is generated; thinking, tool calls, progress and statistics go to standard "
         "error. A line break is added where the answer does not end in one.\n"
         "The prompt is PROMPT, a file (-f), standard input when that is a pipe or a file, or "
         "PROMPT "
         "and standard input together, joined by a blank line. One line break at the end of a file "
         "or "
         "pipe is not part of the prompt (except with --raw). Marker tokens that are written in a "
         "prompt, such as <|im_end|>, are recognised, as the reference implementation does: text "
         "from "
         "strangers can speak in them.\n"
         "Without a prompt, on a terminal, a chat starts. There, \"\"\" opens and closes a message "
         "of "
         "several lines, a backslash at the end of a line continues it, Ctrl-C stops the answer "
         "and "
         "keeps the chat, Ctrl-D and /bye leave, /clear forgets the conversation, /system TEXT "
         "sets "
         "the system message, /help lists all this.\n"
         "MODEL is a converted model, or a checkpoint in the mlx-community layout with quantized "
         "weights, which runs as it was downloaded. A checkpoint of another kind is converted "
         "first, "
         "if you agree.\n"
         "The defaults that are used are printed: the budget and its plan, sampling and seed. The "
         "same "
         "model, prompt and seed give the same answer at every budget and number of threads.",
         "run demo 'What is the capital of Italy?'\n"
         "run demo --mem 14M --stats 'What does \"owl\" mean?'\n"
         "run demo 'Define these words:' < words.txt\n"
         "run demo"},
    [CLI_SERVE] =
        {"serve", "[MODEL]", 0, 1, "answer over HTTP, for this machine alone unless told otherwise",
         "Opens a model inside a memory budget and answers at the address that it prints, until a "
         "signal: chat completions, completions and responses as OpenAI's clients send them, "
         "messages as Anthropic's do. docs/server.md has all of it.\n"
         "MODEL is what run takes, except that nothing is converted first. It can be left out "
         "while the models folder holds exactly one.\n"
         "Only programs on this machine reach the server, unless --host says otherwise, which "
         "takes keys. There is one session: requests are answered in the order in which they "
         "come, and wait in a queue with an end.\n"
         "Standard output has one line, \"Listening on\" and the address, once requests are taken. "
         "The plan and a log go to standard error. SIGINT, SIGTERM or SIGHUP stops the server: "
         "what is under way has 10 seconds to end, a second signal ends it at once. Ends with 0 "
         "after a stop.\n"
         "The server is a program of its own, sluice-serve, so that the other verbs pay no memory "
         "for it. It is built where libmicrohttpd is found.",
         "serve demo --mem 24M\n"
         "serve --mem 4G --port 8000 --name qwen\n"
         "serve demo --host 0.0.0.0 --api-key-file keys.txt"},
    [CLI_CONVERT] =
        {"convert", "CHECKPOINT [MODEL]", 1, 2,
         "convert a checkpoint into a model that run can stream",
         "CHECKPOINT is a folder in the mlx-community layout (affine 2, 3, 4, 5, 6 or 8 bit) or "
         "the "
         "Hugging Face layout (safetensors in BF16, F16 or F32). MODEL is a name for the models "
         "folder "
         "or a path; by default the checkpoint's own name, in the models folder. Weights that are "
         "quantized already are kept as they are.\n"
         "The work can be interrupted at any time; the same command goes on where it stopped. The "
         "result appears, complete, under its name at the end.",
         "convert ~/checkpoints/demo\n"
         "convert ~/checkpoints/demo /data/models/demo --bits 8"},
    [CLI_PLAN] = {"plan", "MODEL", 1, 1,
                  "show what a memory budget is spent on, and what it would give",
                  "MODEL is a converted model, a checkpoint folder or a config.json. Prints every "
                  "account of the "
                  "budget, how many experts stay in memory, what is read for a token, and the "
                  "speed that the "
                  "drive allows (its direct reads are measured for that). Ends with 3, and the "
                  "smallest budget "
                  "that works, when the budget is too small.",
                  "plan demo --mem 14M --ctx 2048\n"
                  "plan ./checkpoint/config.json --mem 4G --json"},
    [CLI_SHOW] = {"show", "MODEL", 1, 1, "describe a model, a checkpoint or a config.json", "",
                  "show demo\nshow demo --json"},
    [CLI_VERIFY] =
        {"verify", "MODEL", 1, 1, "check every checksum of a model",
         "Reads the whole model and names each damaged record. Ends with 4 when there is any.",
         "verify demo"},
    [CLI_DOCTOR] =
        {"doctor", "[PATH]", 0, 1, "examine the machine and the drive",
         "Measures the direct read speed at the size of a record and looks at direct I/O, the kind "
         "of "
         "drive, memory and limits, the processor and io_uring. PATH is a model or a folder on the "
         "drive; by default the models folder.",
         "doctor\ndoctor /data/models"},
    [CLI_LS] = {"ls", "", 0, 0, "list the models in the models folder",
                "The models folder is $SLUICE_HOME/models, or ~/.local/share/sluice/models.", "ls"},
    [CLI_RM] =
        {"rm", "MODEL", 1, 1, "remove a model or an unfinished conversion",
         "Removes only files that a conversion makes, and asks first. Without a terminal it needs "
         "--yes.",
         "rm demo\nrm demo --yes"},
    [CLI_LOGITS] = {"logits", "MODEL", 1, 1, "write the logits of a given sequence of tokens",
                    "For holding the engine against others. The output is raw little-endian f32 "
                    "[tokens][vocabulary]; hidden states are [layers + 1][tokens][width]: the "
                    "embeddings, then the "
                    "residual stream after each layer, before the final norm. Files appear "
                    "complete or not at all; devices, pipes and links are written as they are.",
                    "logits demo --tokens ids.txt --out logits.f32\n"
                    "logits demo --tokens ids.txt --out logits.f32 --hidden hidden.f32"},
    [CLI_BENCH] = {"bench", "MODEL", 1, 1, "measure a model's speed at several budgets",
                   "Forces the same tokens through the model at each budget of --mem: a prompt, "
                   "then an answer token by "
                   "token. Each run is a process of its own, with the model's files out of the "
                   "page cache, and "
                   "runs are interleaved; figures are medians. \"all\" is as much memory as the "
                   "model takes: there the tokens "
                   "pass once before they are measured, so that every expert is present.\n"
                   "Beside the runs stand, from the same machine: reads alone (the reads of the "
                   "measured tokens made "
                   "again, without computing), compute alone (the tokens with every expert "
                   "present, from a run of \"all\"), and "
                   "the time of a token over the larger of the two; the drive's direct reads, with "
                   "the processors idle and "
                   "busy; and reading memory.\n"
                   "The tokens are those of --stream; without it the model's own text after a "
                   "fixed start or, for a model "
                   "without a tokenizer, random ones, which route at random.",
                   "bench demo --mem 14M,24M,all\n"
                   "bench demo --mem 1G,3G,4G,6G,all --runs 5 --json --plot speed.svg"},
    [CLI_TRACE] = {"trace", "record|replay MODEL|FILE", 2, 2,
                   "record which experts a model uses, and replay that",
                   "record computes a sequence of tokens and writes into --out which experts each "
                   "token picks in each "
                   "layer, and what the layer before guesses. The tokens are those of --stream; "
                   "without it the model's own "
                   "text after a fixed start or, for a model without a tokenizer, random ones.\n"
                   "replay prints, without the model, how many experts would have to be read for a "
                   "token at a number of "
                   "slots: with the engine's own policy, with LRU, with LFU, and Belady's bound, "
                   "which knows the future. "
                   "With --mem the slots follow from what the plan spent on other things when the "
                   "trace was recorded. "
                   "With --guess, guesses are read ahead and counted apart.",
                   "trace record demo --tokens 2000 --out demo.trace\n"
                   "trace replay demo.trace --slots 200 --guess 4\n"
                   "trace replay demo.trace --mem 16M,24M --policy ours"},
    [CLI_TOKENIZE] = {"tokenize", "MODEL [FILE]", 1, 2,
                      "turn text into token ids, or ids into text",
                      "MODEL is a converted model, a checkpoint folder or a tokenizer.json. Reads "
                      "FILE, or standard "
                      "input where FILE is - or missing, and prints the ids on one line.",
                      "tokenize demo prompt.txt\n"
                      "tokenize demo --decode ids.txt"},
    [CLI_TEMPLATE] =
        {"template", "MODEL FILE.json", 2, 2, "render a chat template",
         "MODEL is a converted model, a checkpoint folder or a .jinja file. FILE.json (- is "
         "standard "
         "input) holds {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, "
         "\"enable_thinking\": false}. Prints exactly what the template renders.",
         "template demo chat.json"},
    [CLI_VERSION] = {"version", "", 0, 0, "print version, licence and what this build can do", "",
                     "version"},
    [CLI_HELP] = {"help", "[VERB]", 0, 1, "explain a verb", "", "help run"},
};

#define V(verb) ((uint32_t)1 << (verb))
#define ENGINE_VERBS (V(CLI_RUN) | V(CLI_SERVE) | V(CLI_LOGITS))
#define PLAN_VERBS (ENGINE_VERBS | V(CLI_PLAN))
#define MEASURE_VERBS (V(CLI_BENCH) | V(CLI_TRACE))
#define ALL_VERBS (V(CLI_N_VERBS) - 1)

const cli_option cli_options[] = {
    {CLI_MEM, "mem", 0, false, CLI_KIND_SIZE, PLAN_VERBS, "SIZE", NULL, 1, 0,
     "Memory budget of the whole process, such as 4G, 1.5G or 800M (K, M and G are powers of "
     "1024). "
     "Default: the smaller of half of the available memory and 80% of the cgroup's limit."},
    {CLI_SIZES, "mem", 0, false, CLI_KIND_TEXT, V(CLI_TRACE), "SIZE,...", NULL, 0, 0,
     "Memory budgets, such as 1G,4G; record takes one. Default of record: as for run."},
    {CLI_SIZES, "mem", 0, false, CLI_KIND_TEXT, V(CLI_BENCH), "SIZE,...", NULL, 0, 0,
     "Memory budgets of the whole process, such as 1G,4G,all. Default: one, as for run."},
    {CLI_CTX, "ctx", 0, false, CLI_KIND_COUNT, V(CLI_RUN) | V(CLI_SERVE) | V(CLI_PLAN), "N", NULL,
     1, 1 << 24,
     "Tokens of the context: prompt and answer together. Default: 4096, or the model's maximum if "
     "that "
     "is smaller."},
    {CLI_CTX, "ctx", 0, false, CLI_KIND_COUNT, V(CLI_LOGITS), "N", NULL, 1, 1 << 24,
     "Tokens of the context. Default: as many as there are tokens."},
    {CLI_FILE, "file", 'f', false, CLI_KIND_FILE, V(CLI_RUN), "FILE", NULL, 0, 0,
     "Read the prompt from FILE (- is standard input)."},
    {CLI_CHAT, "chat", 0, false, CLI_KIND_FILE, V(CLI_RUN), "FILE.json", NULL, 0, 0,
     "Answer the conversation in FILE.json (- is standard input): {\"messages\": [...], \"tools\": "
     "[...]}, as for template. What the file says about add_generation_prompt and enable_thinking "
     "counts."},
    {CLI_RAW, "raw", 0, false, CLI_KIND_FLAG, V(CLI_RUN), NULL, NULL, 0, 0,
     "No chat template: the model continues the prompt as it is."},
    {CLI_SYSTEM, "system", 0, false, CLI_KIND_TEXT, V(CLI_RUN), "TEXT", NULL, 0, 0,
     "The system message."},
    {CLI_THINK, "think", 0, false, CLI_KIND_CHOICE, V(CLI_RUN), "on|off", "on|off", 0, 0,
     "Let the model think before it answers. Default: off, so that a small budget answers soon."},
    {CLI_MAX_TOKENS, "max-tokens", 0, false, CLI_KIND_COUNT, V(CLI_RUN), "N", NULL, 1, UINT32_MAX,
     "Stop the answer after N tokens. Default: until the context is full."},
    {CLI_STOP, "stop", 0, false, CLI_KIND_LIST, V(CLI_RUN), "TEXT", NULL, 1, 256,
     "Stop the answer where TEXT appears; TEXT is not part of it. May be given 16 times."},
    {CLI_TEMP, "temp", 0, false, CLI_KIND_REAL, V(CLI_RUN), "T", NULL, 0, 100,
     "Temperature; 0 always takes the likeliest token. Default of this and the next three: what "
     "the "
     "model's generation_config.json says."},
    {CLI_TOP_K, "top-k", 0, false, CLI_KIND_COUNT, V(CLI_RUN), "N", NULL, 0, UINT32_MAX,
     "Sample from the N likeliest tokens; 0 is off."},
    {CLI_TOP_P, "top-p", 0, false, CLI_KIND_REAL, V(CLI_RUN), "P", NULL, 1e-6, 1,
     "Sample from the likeliest tokens that together reach the probability P; 1 is off."},
    {CLI_MIN_P, "min-p", 0, false, CLI_KIND_REAL, V(CLI_RUN), "P", NULL, 0, 1,
     "Drop tokens less likely than P times the likeliest; 0 is off."},
    {CLI_PRESENCE_PENALTY, "presence-penalty", 0, false, CLI_KIND_REAL, V(CLI_RUN), "X", NULL, -100,
     100, "Subtracted from the logit of every token that the answer already has. Default: 0."},
    {CLI_REPEAT_PENALTY, "repeat-penalty", 0, false, CLI_KIND_REAL, V(CLI_RUN), "X", NULL, 0.01,
     100, "Makes tokens that appeared less likely; 1 is off, which is the default."},
    {CLI_SEED, "seed", 0, false, CLI_KIND_COUNT, V(CLI_RUN), "N", NULL, 0, 0x1p64,
     "Seed of the sampling. Default: drawn, and printed."},
    {CLI_HOST, "host", 0, false, CLI_KIND_TEXT, V(CLI_SERVE), "ADDRESS", NULL, 0, 0,
     "Listen on this IPv4 or IPv6 address of the machine; 0.0.0.0 is all of them. Addresses that "
     "other machines reach need --api-key-file. Default: 127.0.0.1, for this machine alone."},
    {CLI_PORT, "port", 0, false, CLI_KIND_COUNT, V(CLI_SERVE), "N", NULL, 0, 65535,
     "Listen on port N; 0 takes one that is free. Default: 8080."},
    {CLI_API_KEY_FILE, "api-key-file", 0, false, CLI_KIND_FILE, V(CLI_SERVE), "FILE", NULL, 0, 0,
     "Answer only requests that bring a key of FILE (- is standard input): one a line, empty lines "
     "and those that begin with # left out. Default: no key is asked for."},
    {CLI_ALLOW_HOST, "allow-host", 0, false, CLI_KIND_LIST, V(CLI_SERVE), "NAME", NULL, 1, 255,
     "A name, NAME or NAME:PORT, under which clients know the server, beside its address and "
     "localhost: requests for others are refused. May be given 16 times."},
    {CLI_CORS, "cors", 0, false, CLI_KIND_LIST, V(CLI_SERVE), "ORIGIN", NULL, 1, 255,
     "Pages of ORIGIN, such as https://chat.example.org, may use the server from a browser; * is "
     "all of them. May be given 16 times. Default: none but the server's own."},
    {CLI_NAME, "name", 0, false, CLI_KIND_TEXT, V(CLI_SERVE), "NAME", NULL, 0, 0,
     "What the model is called in answers. Default: its name in the models folder."},
    {CLI_SNAPSHOTS, "snapshots", 0, false, CLI_KIND_SIZE, V(CLI_SERVE), "SIZE", NULL, 0, 0,
     "Memory for the states of earlier conversations, which then go on without being computed "
     "again; part of the budget, 0 for none. Default: a share of the budget."},
    {CLI_CONNECTIONS, "connections", 0, true, CLI_KIND_COUNT, V(CLI_SERVE), "N", NULL, 1, 4096,
     "Connections at a time; further ones are told to come back. Default: 80, fewer in a small "
     "budget."},
    {CLI_QUEUE, "queue", 0, true, CLI_KIND_COUNT, V(CLI_SERVE), "N", NULL, 1, 4096,
     "Requests that may wait for the one that is answered; further ones are told to come back. "
     "Default: 64."},
    {CLI_NO_SANDBOX, "no-sandbox", 0, true, CLI_KIND_FLAG, V(CLI_SERVE), NULL, NULL, 0, 0,
     "Keep the rights that a server does not need: to open other files, to start programs, to "
     "connect to other machines. Without this it gives them up before the first request."},
    {CLI_BITS, "bits", 0, false, CLI_KIND_CHOICE, V(CLI_CONVERT), "N", "2|3|4|5|6|8", 0, 0,
     "Bits of a weight that is not quantized yet: 2, 3, 4, 5, 6 or 8. Default: 4."},
    {CLI_GROUP, "group", 0, false, CLI_KIND_CHOICE, V(CLI_CONVERT), "N", "32|64|128", 0, 0,
     "Weights that share a scale: 32, 64 or 128. Default: 64."},
    {CLI_FORCE, "force", 0, false, CLI_KIND_FLAG, V(CLI_CONVERT), NULL, NULL, 0, 0,
     "Replace a model that is there already."},
    {CLI_MOVE, "move", 0, false, CLI_KIND_FLAG, V(CLI_CONVERT), NULL, NULL, 0, 0,
     "Take no second copy: the checkpoint's weights are given back to the drive while they are "
     "converted, and are gone in the end. Asks first; the same command goes on after a stop."},
    {CLI_YES, "yes", 0, false, CLI_KIND_FLAG, V(CLI_RM) | V(CLI_CONVERT), NULL, NULL, 0, 0,
     "Do not ask."},
    {CLI_NAMES, "names", 0, false, CLI_KIND_FLAG, V(CLI_LS), NULL, NULL, 0, 0,
     "Names alone, one a line, without unfinished ones."},
    {CLI_TOKENS, "tokens", 0, false, CLI_KIND_FILE, V(CLI_LOGITS), "FILE", NULL, 0, 0,
     "Decimal token ids, separated by white space (- is standard input). Required."},
    {CLI_OUT, "out", 0, false, CLI_KIND_FILE, V(CLI_LOGITS), "FILE", NULL, 0, 0,
     "Where the logits go. Required."},
    {CLI_STREAM, "stream", 0, false, CLI_KIND_FILE, MEASURE_VERBS, "FILE", NULL, 0, 0,
     "The tokens: decimal ids, separated by white space (- is standard input)."},
    {CLI_PROMPT, "prompt", 0, false, CLI_KIND_COUNT, V(CLI_BENCH), "N", NULL, 1, 1 << 20,
     "Tokens of the prompt. Default: 512."},
    {CLI_N_TOKENS, "tokens", 0, false, CLI_KIND_COUNT, V(CLI_BENCH), "N", NULL, 1, 1 << 16,
     "Tokens of the answer. Default: 64."},
    {CLI_RUNS, "runs", 0, false, CLI_KIND_COUNT, V(CLI_BENCH), "N", NULL, 1, 31,
     "Runs of each budget. Default: 3."},
    {CLI_PLOT, "plot", 0, false, CLI_KIND_FILE, V(CLI_BENCH), "FILE.svg", NULL, 0, 0,
     "Draw the speeds, and what the drive and the processor allow, into FILE.svg."},
    {CLI_N_TOKENS, "tokens", 0, false, CLI_KIND_COUNT, V(CLI_TRACE), "N", NULL, 1, 1 << 24,
     "How many tokens to record. Default: all of --stream, else 1000."},
    {CLI_OUT, "out", 0, false, CLI_KIND_FILE, V(CLI_TRACE), "FILE", NULL, 0, 0,
     "Where the recording goes. Required for record."},
    {CLI_SLOTS, "slots", 0, false, CLI_KIND_COUNT, V(CLI_TRACE), "N", NULL, 2, 1 << 24,
     "Experts that memory has room for, those on their way included."},
    {CLI_POLICY, "policy", 0, false, CLI_KIND_CHOICE, V(CLI_TRACE), "NAME",
     "ours|lru|lfu|belady|all", 0, 0,
     "What decides which expert stays: ours, lru, lfu, belady or all. Default: all."},
    {CLI_GUESS, "guess", 0, false, CLI_KIND_COUNT, V(CLI_TRACE), "N", NULL, 1, 64,
     "Experts that are read ahead before each layer, at most. Default: none."},
    {CLI_WARM, "warm", 0, false, CLI_KIND_COUNT, V(CLI_TRACE), "N", NULL, 0, 1 << 24,
     "Tokens that fill the slots and are not counted. Default: a fifth of the trace."},
    {CLI_HIDDEN, "hidden", 0, false, CLI_KIND_FILE, V(CLI_LOGITS), "FILE", NULL, 0, 0,
     "Where the hidden states go. They are kept in memory until the end, outside the budget."},
    {CLI_DECODE, "decode", 0, false, CLI_KIND_FLAG, V(CLI_TOKENIZE), NULL, NULL, 0, 0,
     "The input holds ids, separated by white space; write their bytes."},
    {CLI_PLAIN_TEXT, "plain", 0, false, CLI_KIND_FLAG, V(CLI_TOKENIZE), NULL, NULL, 0, 0,
     "Take marker tokens that are written in the text, such as <|im_end|>, as plain text."},
    {CLI_WHOLE, "whole", 0, false, CLI_KIND_FLAG, V(CLI_TOKENIZE), NULL, NULL, 0, 0,
     "With what the tokenizer puts around a prompt that stands by itself, such as a BOS; as "
     "'sluice run --raw' has it."},
    {CLI_MAN, "man", 0, false, CLI_KIND_FLAG, V(CLI_HELP), NULL, NULL, 0, 0, "Print the man page."},
    {CLI_BASH, "bash", 0, false, CLI_KIND_FLAG, V(CLI_HELP), NULL, NULL, 0, 0,
     "Print the completion script for bash."},
    {CLI_MARKDOWN, "markdown", 0, false, CLI_KIND_FLAG, V(CLI_HELP), NULL, NULL, 0, 0,
     "Print docs/commands.md."},
    {CLI_STATS, "stats", 0, false, CLI_KIND_FLAG, V(CLI_RUN), NULL, NULL, 0, 0,
     "Afterwards, print tokens per second, the share of experts found in memory, bytes read, what "
     "the drive delivered while it read, then and while the model was opened ('sluice plan' "
     "measures what it can), and the peak of memory against the budget."},
    {CLI_JSON, "json", 0, false, CLI_KIND_FLAG,
     V(CLI_RUN) | V(CLI_SERVE) | V(CLI_CONVERT) | V(CLI_PLAN) | V(CLI_SHOW) | V(CLI_VERIFY) |
         V(CLI_DOCTOR) | V(CLI_LS) | V(CLI_VERSION) | MEASURE_VERBS,
     NULL, NULL, 0, 0,
     "Print one JSON object on one line of standard output; an error is {\"error\": {\"code\": "
     "..., "
     "\"message\": ...}}."},
    {CLI_QUIET, "quiet", 'q', false, CLI_KIND_FLAG,
     V(CLI_RUN) | V(CLI_SERVE) | V(CLI_CONVERT) | V(CLI_VERIFY) | V(CLI_LOGITS) | MEASURE_VERBS,
     NULL, NULL, 0, 0,
     "No plan, progress or thinking on standard error: only what went wrong, and what was asked "
     "for."},
    {CLI_NO_COLOR, "no-color", 0, false, CLI_KIND_FLAG, ALL_VERBS, NULL, NULL, 0, 0,
     "No colours; so does a non-empty NO_COLOR in the environment, and output that is no "
     "terminal."},
    {CLI_HELP_FLAG, "help", 'h', false, CLI_KIND_FLAG, ALL_VERBS, NULL, NULL, 0, 0,
     "Explain the verb."},
    {CLI_THREADS, "threads", 0, true, CLI_KIND_COUNT, PLAN_VERBS | MEASURE_VERBS, "N", NULL, 1, 256,
     "Threads that compute. Never changes results. Default: the physical cores that may be used."},
    {CLI_CHUNK, "chunk", 0, true, CLI_KIND_COUNT, PLAN_VERBS | MEASURE_VERBS, "N", NULL, 1, 1 << 20,
     "Tokens of the prompt that are computed together. Never changes results. Default: what fits."},
    {CLI_IO, "io", 0, true, CLI_KIND_CHOICE, ENGINE_VERBS | MEASURE_VERBS, "WAY",
     "auto|uring|pread", 0, 0,
     "How experts are read: auto, uring or pread. Never changes results. Default: auto."},
    {CLI_CPU, "cpu", 0, true, CLI_KIND_CHOICE, ENGINE_VERBS | MEASURE_VERBS, "LEVEL",
     "ref|avx2|avx512|neon", 0, 0,
     "Instructions that are used: ref, avx2, avx512 or neon. Never changes results. Default: the "
     "best "
     "that the processor has."},
    {CLI_BUFFERED, "buffered", 0, true, CLI_KIND_FLAG, PLAN_VERBS | MEASURE_VERBS, NULL, NULL, 0, 0,
     "Read through the page cache where direct I/O is not possible; the pages are then outside the "
     "budget."},
    {CLI_NO_GUESSES, "no-guesses", 0, true, CLI_KIND_FLAG, ENGINE_VERBS | V(CLI_BENCH), NULL, NULL,
     0, 0, "Read no expert before it is asked for. Never changes results."},
};
const size_t cli_n_options = COUNT(cli_options);

/* ---- values ---------------------------------------------------------------------------------- */

static bool say(char message[CLI_MESSAGE_MAX], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

// Fills message and returns false, so that a caller can return it.
static bool say(char message[CLI_MESSAGE_MAX], const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, CLI_MESSAGE_MAX, fmt, args);
    va_end(args);
    return false;
}

// A value as it is quoted in a message.
#define SHOWN "%.64s"

bool cli_parse_size(const char *option, const char *text, uint64_t *out,
                    char message[CLI_MESSAGE_MAX]) {
    uint64_t whole = 0, part = 0, scale = 1;
    const char *s = text;
    size_t n_digits = strspn(s, "0123456789");
    bool too_large = false;
    for (size_t i = 0; i < n_digits; i++, s++) {
        if (whole > (UINT64_MAX - 9) / 10)
            too_large = true;
        else
            whole = whole * 10 + (uint64_t)(*s - '0');
    }
    if (n_digits > 0 && *s == '.' && s[1] >= '0' && s[1] <= '9') {
        for (s++; *s >= '0' && *s <= '9'; s++) {
            if (scale <= 100000000) { // nine digits are finer than a byte of a GiB
                part = part * 10 + (uint64_t)(*s - '0');
                scale *= 10;
            }
        }
    }
    const char *units = "KMG", *unit = *s ? strchr(units, *s) : NULL;
    if (n_digits > 0 && *s == '\0')
        return say(message,
                   "%s: '" SHOWN "' has no unit: write %.32sK, %.32sM or %.32sG (powers of 1024)",
                   option, text, text, text, text);
    if (n_digits == 0 || !unit || s[1] != '\0')
        return say(message,
                   "%s: '" SHOWN
                   "' is not a size: write a number and K, M or G (powers of 1024), such as 4G, "
                   "1.5G or 800M",
                   option, text);
    unsigned shift = 10 * (unsigned)(unit - units + 1);
    if (too_large || whole > ((uint64_t)INT64_MAX >> shift) - 1)
        return say(message,
                   "%s: '" SHOWN
                   "' is more than a machine can have: write a smaller size, such as 4G",
                   option, text);
    uint64_t bytes = (whole << shift) + (part << shift) / scale;
    if (bytes == 0)
        return say(message, "%s: '" SHOWN "' is no memory at all: write a size such as 4G", option,
                   text);
    *out = bytes;
    return true;
}

bool cli_parse_count(const char *option, const char *text, uint64_t least, uint64_t most,
                     uint64_t *out, char message[CLI_MESSAGE_MAX]) {
    uint64_t value = 0;
    bool good = *text != '\0';
    for (const char *s = text; *s && good; s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        good = *s >= '0' && *s <= '9' && value <= (UINT64_MAX - digit) / 10;
        if (good)
            value = value * 10 + digit;
    }
    if (!good || value < least || value > most)
        return say(message, "%s: '" SHOWN "' is not a whole number from %llu to %llu", option, text,
                   (unsigned long long)least, (unsigned long long)most);
    *out = value;
    return true;
}

bool cli_parse_real(const char *option, const char *text, double least, double most, double *out,
                    char message[CLI_MESSAGE_MAX]) {
    char *end = NULL;
    // strtod also reads "inf", "nan" and hexadecimal, which nobody means here.
    bool decimal = text[strspn(text, "0123456789+-.eE")] == '\0';
    double value = decimal ? strtod(text, &end) : NAN;
    if (!decimal || end == text || *end != '\0' || !isfinite(value) || value < least ||
        value > most)
        return say(message, "%s: '" SHOWN "' is not a number from %g to %g, such as %g", option,
                   text, least, most, least <= 0.5 && most >= 0.5 ? 0.5 : least);
    *out = value + 0.0; // -0 becomes 0
    return true;
}

static bool parse_choice(const char *option, const char *text, const char *choices,
                         const char **out, char message[CLI_MESSAGE_MAX]) {
    size_t n = strlen(text);
    for (const char *at = choices; n > 0 && *at;) {
        size_t length = strcspn(at, "|");
        if (length == n && memcmp(at, text, n) == 0) {
            *out = text;
            return true;
        }
        at += length + (at[length] == '|');
    }
    char list[128];
    size_t k = 0;
    for (const char *at = choices; *at && k + 8 < sizeof(list); at++) {
        if (*at != '|')
            list[k++] = *at;
        else
            k += (size_t)snprintf(list + k, sizeof(list) - k, "%s",
                                  strchr(at + 1, '|') ? ", " : " or ");
    }
    list[k] = '\0';
    return say(message, "%s: '" SHOWN "' is unknown: write %s", option, text, list);
}

/* ---- nearest names --------------------------------------------------------------------------- */

#define NAME_MAX_COMPARED 24

// Edits (insert, delete, replace, swap of neighbours) between two names; large where one is long.
static unsigned distance(const char *a, size_t n, const char *b) {
    size_t m = strlen(b);
    if (n > NAME_MAX_COMPARED || m > NAME_MAX_COMPARED)
        return 99;
    unsigned rows[3][NAME_MAX_COMPARED + 1];
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i + 2) % 3], *two_before = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_before[j - 2] + 1 < best)
                best = two_before[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[n % 3][m];
}

// Keep candidate in *best when it is nearer: by edits, or because name is the beginning of it.
static void consider(const char *name, size_t n, const char *candidate, const char **best,
                     unsigned *best_distance) {
    unsigned d = distance(name, n, candidate);
    if (n >= 2 && strncmp(candidate, name, n) == 0 && d > 1)
        d = 1;
    unsigned limit = n <= 3 ? 1 : n <= 6 ? 2 : 3;
    if (d <= limit && d < *best_distance) {
        *best = candidate;
        *best_distance = d;
    }
}

cli_verb_id cli_verb_find(const char *name) {
    size_t v = 0;
    while (v < CLI_N_VERBS && strcmp(cli_verbs[v].name, name) != 0)
        v++;
    return (cli_verb_id)v;
}

const char *cli_verb_nearest(const char *name) {
    const char *best = NULL;
    unsigned d = 99;
    for (size_t v = 0; v < CLI_N_VERBS; v++)
        consider(name, strlen(name), cli_verbs[v].name, &best, &d);
    return best;
}

const cli_option *cli_option_find(cli_verb_id verb, const char *name, size_t n) {
    for (size_t i = 0; i < cli_n_options; i++) {
        const cli_option *o = &cli_options[i];
        if ((o->verbs & V(verb)) && strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    }
    return NULL;
}

static const cli_option *find_letter(cli_verb_id verb, char letter) {
    for (size_t i = 0; i < cli_n_options; i++) {
        if ((cli_options[i].verbs & V(verb)) && cli_options[i].letter == letter)
            return &cli_options[i];
    }
    return NULL;
}

static bool unknown_option(cli_verb_id verb, const char *arg, size_t n,
                           char message[CLI_MESSAGE_MAX]) {
    const char *best = NULL, *name = arg + 2;
    unsigned d = 99;
    size_t n_name = n - 2;
    if (arg[1] == '-') {
        for (size_t v = 0; v < CLI_N_VERBS; v++) {
            if (cli_option_find((cli_verb_id)v, name, n_name))
                return say(
                    message,
                    "'%s' has no option '%.*s' ('%s' has): 'sluice help %s' lists what it takes",
                    cli_verbs[verb].name, (int)n, arg, cli_verbs[v].name, cli_verbs[verb].name);
        }
        for (size_t i = 0; i < cli_n_options; i++) {
            if (cli_options[i].verbs & V(verb))
                consider(name, n_name, cli_options[i].name, &best, &d);
        }
    }
    if (best)
        return say(message, "'%s' has no option '%.*s': did you mean '--%s'?", cli_verbs[verb].name,
                   n > 64 ? 64 : (int)n, arg, best);
    return say(message, "'%s' has no option '%.*s': 'sluice help %s' lists what it takes",
               cli_verbs[verb].name, n > 64 ? 64 : (int)n, arg, cli_verbs[verb].name);
}

/* ---- parser ---------------------------------------------------------------------------------- */

static cli_list *list_of(cli_args *args, cli_option_id id) {
    return id == CLI_STOP         ? &args->stop
           : id == CLI_ALLOW_HOST ? &args->hosts
           : id == CLI_CORS       ? &args->origins
                                  : NULL;
}

static bool add_to_list(cli_list *list, const cli_option *o, const char *name, const char *value,
                        char message[CLI_MESSAGE_MAX]) {
    if (list->n == CLI_LIST_MAX)
        return say(message, "%s: given more than %d times", name, CLI_LIST_MAX);
    size_t n = strlen(value);
    if (n < (size_t)o->least || n > (size_t)o->most)
        return say(message, "%s: a text of %.0f to %.0f bytes is expected, this one has %zu", name,
                   o->least, o->most, n);
    list->text[list->n++] = value;
    return true;
}

static bool set_option(cli_args *args, const cli_option *o, const char *value,
                       char message[CLI_MESSAGE_MAX]) {
    char name[40];
    snprintf(name, sizeof(name), "--%s", o->name);
    if (args->given[o->id] && o->kind != CLI_KIND_LIST)
        return say(message, "%s: given twice: leave one", name);
    args->given[o->id] = true;
    switch (o->kind) {
    case CLI_KIND_FLAG:
        return true;
    case CLI_KIND_SIZE:
        if (o->least == 0 && strcmp(value, "0") == 0) {
            args->value[o->id].count = 0;
            return true;
        }
        return cli_parse_size(name, value, &args->value[o->id].count, message);
    case CLI_KIND_COUNT: {
        uint64_t most = o->most >= 0x1p64 ? UINT64_MAX : (uint64_t)o->most;
        return cli_parse_count(name, value, (uint64_t)o->least, most, &args->value[o->id].count,
                               message);
    }
    case CLI_KIND_REAL:
        return cli_parse_real(name, value, o->least, o->most, &args->value[o->id].real, message);
    case CLI_KIND_TEXT:
        args->value[o->id].text = value;
        return true;
    case CLI_KIND_FILE:
        args->value[o->id].text = value;
        return *value ? true
                      : say(message, "%s: the name of a file is expected, found nothing", name);
    case CLI_KIND_CHOICE:
        return parse_choice(name, value, o->choices, &args->value[o->id].text, message);
    case CLI_KIND_LIST:
        return add_to_list(list_of(args, o->id), o, name, value, message);
    }
    return true;
}

static bool parse_verb(const char *name, cli_args *args, char message[CLI_MESSAGE_MAX]) {
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        args->verb = CLI_HELP;
    } else if (strcmp(name, "--version") == 0) {
        args->verb = CLI_VERSION;
    } else {
        args->verb = cli_verb_find(name);
    }
    if (args->verb != CLI_N_VERBS)
        return true;
    if (name[0] == '-')
        return say(message,
                   "'" SHOWN "' stands before the verb: write 'sluice VERB ... " SHOWN
                   "'; 'sluice help' lists the verbs",
                   name, name);
    const char *nearest = cli_verb_nearest(name);
    if (nearest)
        return say(message, "there is no verb '" SHOWN "': did you mean '%s'?", name, nearest);
    return say(message, "there is no verb '" SHOWN "': 'sluice help' lists them", name);
}

static bool parse_positional(cli_args *args, const char *value, char message[CLI_MESSAGE_MAX]) {
    const cli_verb *verb = &cli_verbs[args->verb];
    if (args->n_positional == verb->n_max) {
        if (args->verb == CLI_RUN)
            return say(message,
                       "unexpected argument '" SHOWN "': a prompt of several words needs quotes",
                       value);
        return say(message, "unexpected argument '" SHOWN "': write 'sluice %s%s%s'", value,
                   verb->name, *verb->arguments ? " " : "", verb->arguments);
    }
    args->positional[args->n_positional++] = value;
    return true;
}

bool cli_parse(int argc, char *const *argv, cli_args *args, char message[CLI_MESSAGE_MAX]) {
    memset(args, 0, sizeof(*args));
    args->verb = CLI_N_VERBS;
    if (argc < 2)
        return say(message, "a verb is missing: 'sluice help' lists them");
    if (!parse_verb(argv[1], args, message))
        return false;

    bool options_ended = false;
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i];
        if (options_ended || arg[0] != '-' || arg[1] == '\0') {
            if (!parse_positional(args, arg, message))
                return false;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            options_ended = true;
            continue;
        }
        bool is_long = arg[1] == '-';
        size_t n = is_long ? strcspn(arg, "=") : strlen(arg);
        const cli_option *o = is_long  ? cli_option_find(args->verb, arg + 2, n - 2)
                              : n == 2 ? find_letter(args->verb, arg[1])
                                       : NULL;
        if (!o)
            return unknown_option(args->verb, arg, n, message);
        const char *value = arg[n] == '=' ? arg + n + 1 : NULL;
        if (o->kind == CLI_KIND_FLAG && value)
            return say(message, "--%s: takes no value, found '" SHOWN "'", o->name, value);
        if (o->kind == CLI_KIND_FLAG) {
            value = "";
        } else if (!value) {
            if (i + 1 >= argc)
                return say(message, "--%s: a value is missing: write --%s %s", o->name, o->name,
                           o->value);
            value = argv[++i];
        }
        if (!set_option(args, o, value, message))
            return false;
    }
    const cli_verb *verb = &cli_verbs[args->verb];
    if (args->n_positional < verb->n_min && !args->given[CLI_HELP_FLAG])
        return say(message, "an argument is missing: write 'sluice %s %s'", verb->name,
                   verb->arguments);
    return true;
}
