/* cli/options and what is made from its tables: values, spellings, suggestions, help, documents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/help.h"
#include "cli/options.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static cli_args args;
static char message[CLI_MESSAGE_MAX];

// Parse the words of a line (no quoting) after "sluice".
static bool parse(const char *line) {
    static char text[1024];
    static char *argv[64];
    int argc = 0;
    argv[argc++] = (char[]){"sluice"};
    strcpy(text, line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    message[0] = '\0';
    return cli_parse(argc, argv, &args, message);
}

static void spellings_are_equal(void **state) {
    (void)state;
    const char *lines[] = {"run demo hello --mem 1.5G --temp 0 --json",
                           "run --mem=1.5G demo --temp=0 hello --json",
                           "run --json --temp 0.0 --mem 1536M -- demo hello"};
    for (size_t i = 0; i < COUNT(lines); i++) {
        assert_true(parse(lines[i]));
        assert_int_equal(args.verb, CLI_RUN);
        assert_int_equal(args.n_positional, 2);
        assert_string_equal(args.positional[0], "demo");
        assert_string_equal(args.positional[1], "hello");
        assert_true(args.given[CLI_JSON] && args.given[CLI_MEM] && !args.given[CLI_QUIET]);
        assert_int_equal(args.value[CLI_MEM].count, (uint64_t)3 << 29);
        assert_true(args.value[CLI_TEMP].real == 0);
    }
    assert_true(parse("run demo -f - -q"));
    assert_string_equal(args.value[CLI_FILE].text, "-");
    assert_true(args.given[CLI_QUIET]);
    assert_true(parse("run demo -- --mem")); // what follows -- is no option
    assert_string_equal(args.positional[1], "--mem");
    assert_true(parse("run demo --system=")); // an empty value is a value
    assert_string_equal(args.value[CLI_SYSTEM].text, "");
    assert_true(parse("run demo --stop a --stop b"));
    assert_int_equal(args.stop.n, 2);
    assert_string_equal(args.stop.text[1], "b");
    assert_true(parse("--version") && args.verb == CLI_VERSION);
    assert_true(parse("-h") && args.verb == CLI_HELP);
    assert_true(parse("run --help") && args.given[CLI_HELP_FLAG]);
    assert_true(parse("run demo --seed 18446744073709551615"));
    assert_true(args.value[CLI_SEED].count == UINT64_MAX);
}

static void sizes_are_exact(void **state) {
    (void)state;
    const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1K", 1024},
                {"14M", 14680064},
                {"4G", (uint64_t)4 << 30},
                {"0.5K", 512},
                {"1.25M", 1310720},
                {"0.0009765625M", 1023}, // what is finer than nine digits is cut
                {"8589934590G", (uint64_t)8589934590u << 30}};
    for (size_t i = 0; i < COUNT(good); i++) {
        uint64_t bytes = 0;
        assert_true(cli_parse_size("--mem", good[i].text, &bytes, message));
        assert_true(bytes == good[i].bytes);
    }
    const struct {
        const char *text, *says;
    } bad[] = {{"4", "has no unit: write 4K, 4M or 4G (powers of 1024)"},
               {"1.5", "has no unit: write 1.5K"},
               {"0", "has no unit"},
               {"0K", "no memory at all"},
               {"0.0G", "no memory at all"},
               {"-1G", "is not a size"},
               {"", "is not a size"},
               {"G", "is not a size"},
               {"4GB", "is not a size"},
               {"4g", "is not a size"},
               {"4 G", "is not a size"},
               {".5G", "is not a size"},
               {"5.G", "is not a size"},
               {"infG", "is not a size"},
               {"nan", "is not a size"},
               {"0x4G", "is not a size"},
               {"8589934591G", "more than a machine can have"},
               {"99999999999999999999999999K", "more than a machine can have"}};
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint64_t bytes = 7;
        assert_false(cli_parse_size("--mem", bad[i].text, &bytes, message));
        assert_non_null(strstr(message, bad[i].says));
        assert_int_equal(strncmp(message, "--mem: '", 8), 0);
        assert_int_equal(bytes, 7);
    }
}

static void numbers_are_checked(void **state) {
    (void)state;
    const char *bad[] = {"--ctx 0",
                         "--ctx -1",
                         "--ctx 1.5",
                         "--ctx 99999999",
                         "--ctx +1",
                         "--ctx=",
                         "--threads 0",
                         "--top-k x",
                         "--temp nan",
                         "--temp inf",
                         "--temp -0.1",
                         "--temp 1e99",
                         "--temp 0x1",
                         "--temp 1..2",
                         "--temp=",
                         "--top-p 1.01",
                         "--min-p -1",
                         "--seed -1",
                         "--seed 18446744073709551616",
                         "--chunk 0",
                         "--think yes",
                         "--think on|off",
                         "--io",
                         "--max-tokens 4294967296",
                         "--cpu avx",
                         "--json=1",
                         "--repeat-penalty 0"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char line[128];
        snprintf(line, sizeof(line), "run demo %s", bad[i]);
        assert_false(parse(line));
        size_t n = strcspn(bad[i], " =");
        assert_int_equal(strncmp(message, bad[i], n), 0); // the message begins with the option
    }
    assert_true(parse("run demo --temp 1e-3 --top-k 0 --top-p 1 --min-p .5 --presence-penalty -2"));
    assert_true(args.value[CLI_TEMP].real == 1e-3 && args.value[CLI_PRESENCE_PENALTY].real == -2);
}

static void the_server_has_its_options(void **state) {
    (void)state;
    assert_true(parse("serve")); // MODEL can be left out
    assert_int_equal(args.verb, CLI_SERVE);
    assert_int_equal(args.n_positional, 0);
    assert_true(parse("serve demo --mem 4G --ctx 8192 --threads 2 --chunk 64 --io pread --cpu ref "
                      "--buffered --no-guesses --quiet --no-color --json --host ::1 --port 0 "
                      "--api-key-file keys --connections 4 --queue 5 --name x --no-sandbox"));
    assert_string_equal(args.value[CLI_HOST].text, "::1");
    assert_true(args.given[CLI_PORT] && args.value[CLI_PORT].count == 0);
    assert_int_equal(args.value[CLI_QUEUE].count, 5);
    assert_true(parse("serve --allow-host a --cors b --allow-host c"));
    assert_int_equal(args.hosts.n, 2);
    assert_string_equal(args.hosts.text[1], "c");
    assert_int_equal(args.origins.n, 1);
    assert_string_equal(args.origins.text[0], "b");
    // A size that may be 0 needs no unit then; one that may not is refused as before.
    assert_true(parse("serve --snapshots 0"));
    assert_true(args.given[CLI_SNAPSHOTS] && args.value[CLI_SNAPSHOTS].count == 0);
    assert_true(parse("serve --snapshots 1.5M"));
    assert_int_equal(args.value[CLI_SNAPSHOTS].count, 3 << 19);
    const char *bad[] = {"--mem 0",       "--snapshots 00", "--snapshots -1",
                         "--port 65536",  "--port=",        "--connections 0",
                         "--queue 99999", "--allow-host=",  "--port 1 --port 2"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char line[128];
        snprintf(line, sizeof(line), "serve %s", bad[i]);
        assert_false(parse(line));
        assert_int_equal(strncmp(message, bad[i], strcspn(bad[i], " =")), 0);
    }
    assert_false(parse("serve --temp 1"));
    assert_non_null(strstr(message, "'serve' has no option '--temp' ('run' has)"));
}

static void wrong_lines_are_answered(void **state) {
    (void)state;
    const struct {
        const char *line, *says;
    } cases[] = {
        {"", "a verb is missing"},
        {"rnu", "did you mean 'run'?"},
        {"conv", "did you mean 'convert'?"},
        {"verfy x", "did you mean 'verify'?"},
        {"xyzzy", "there is no verb 'xyzzy': 'sluice help' lists them"},
        {"--json run", "stands before the verb"},
        {"run", "an argument is missing: write 'sluice run MODEL [PROMPT]'"},
        {"run a b c", "a prompt of several words needs quotes"},
        {"show a b", "unexpected argument 'b': write 'sluice show MODEL'"},
        {"ls a", "unexpected argument 'a': write 'sluice ls'"},
        {"run a --men 4G", "did you mean '--mem'?"},
        {"run a --thread 4", "did you mean '--threads'?"},
        {"run a --max-token=4", "'--max-token': did you mean '--max-tokens'?"},
        {"run a --bits 4", "'convert' has"},
        {"show a --xyzzy", "'sluice help show' lists"},
        {"run a -x", "'run' has no option '-x'"},
        {"run a -qf", "'run' has no option '-qf'"},
        {"run a --mem", "--mem: a value is missing: write --mem SIZE"},
        {"run a --mem 1G --mem 2G", "--mem: given twice"},
        {"run a --quiet -q", "--quiet: given twice"},
        {"run a --file=", "--file: the name of a file is expected"},
        {"run a --stop=", "--stop: a text of 1 to 256 bytes"},
        {"convert a --bits 7", "--bits: '7' is unknown: write 2, 3, 4, 5, 6 or 8"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_false(parse(cases[i].line));
        if (!strstr(message, cases[i].says))
            fail_msg("'%s' gave: %s", cases[i].line, message);
    }
    char line[512] = "run a";
    for (int i = 0; i <= CLI_LIST_MAX; i++)
        strcat(line, " --stop x");
    assert_false(parse(line));
    assert_non_null(strstr(message, "given more than 16 times"));
}

static void long_junk_fits_its_message(void **state) {
    (void)state;
    static char junk[70000];
    memset(junk, 'x', sizeof(junk) - 1);
    memcpy(junk, "--", 2);
    char *const lines[][4] = {{(char[]){"s"}, junk},
                              {(char[]){"s"}, (char[]){"run"}, junk},
                              {(char[]){"s"}, (char[]){"run"}, (char[]){"--mem"}, junk},
                              {(char[]){"s"}, junk + 2},
                              {(char[]){"s"}, (char[]){"ls"}, junk + 2}};
    const int counts[] = {2, 3, 4, 2, 3};
    for (size_t i = 0; i < COUNT(counts); i++) {
        assert_false(cli_parse(counts[i], lines[i], &args, message));
        assert_true(strlen(message) < CLI_MESSAGE_MAX);
    }
}

// Everything that write() writes, in a static buffer.
static const char *text_of(void (*write)(cli_out *)) {
    static char text[1 << 17];
    cli_out out;
    FILE *file = tmpfile();
    assert_non_null(file);
    cli_out_init(&out, fileno(file), true);
    write(&out);
    assert_true(cli_flush(&out));
    rewind(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);
    return text;
}

static cli_verb_id shown;
static void write_verb(cli_out *out) {
    cli_help_verb(out, shown);
}

static void lines_fit_80_columns(const char *text) {
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        if (n > CLI_COLUMNS)
            fail_msg("%zu columns: %.*s", n, (int)n, line);
        assert_true(n == 0 || line[n - 1] != ' ');
        line += n + (line[n] == '\n');
    }
}

static void help_names_every_option_once(void **state) {
    (void)state;
    lines_fit_80_columns(text_of(cli_help_overview));
    for (size_t v = 0; v < CLI_N_VERBS; v++) {
        shown = (cli_verb_id)v;
        const char *text = text_of(write_verb);
        lines_fit_80_columns(text);
        for (size_t i = 0; i < cli_n_options; i++) {
            char heading[64];
            if (!((cli_options[i].verbs >> v) & 1))
                continue;
            snprintf(heading, sizeof(heading), cli_options[i].letter ? ", --%s" : "\n  --%s",
                     cli_options[i].name);
            const char *first = strstr(text, heading);
            assert_non_null(first);
            // Two rows of one name must not meet in one verb.
            assert_ptr_equal(
                cli_option_find(shown, cli_options[i].name, strlen(cli_options[i].name)),
                &cli_options[i]);
        }
    }
}

static void man_page_has_every_option(void **state) {
    (void)state;
    const char *text = text_of(cli_help_man);
    assert_int_equal(strncmp(text, ".TH SLUICE 1", 12), 0);
    for (size_t i = 0; i < cli_n_options; i++) {
        char escaped[64] = "\\-\\-";
        size_t n = strlen(escaped);
        for (const char *c = cli_options[i].name; *c; c++)
            n += (size_t)snprintf(escaped + n, sizeof(escaped) - n, *c == '-' ? "\\-" : "%c", *c);
        assert_non_null(strstr(text, escaped));
    }
}

static void commands_page_is_current(void **state) {
    (void)state;
    static char page[1 << 17];
    FILE *file = fopen(SL_TEST_DATA "/../../docs/commands.md", "r");
    assert_non_null(file);
    size_t n = fread(page, 1, sizeof(page) - 1, file);
    page[n] = '\0';
    fclose(file);
    assert_string_equal(
        page, text_of(cli_help_markdown)); // else: build/sluice help --markdown > docs/commands.md
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_are_equal),
        cmocka_unit_test(sizes_are_exact),
        cmocka_unit_test(numbers_are_checked),
        cmocka_unit_test(the_server_has_its_options),
        cmocka_unit_test(wrong_lines_are_answered),
        cmocka_unit_test(long_junk_fits_its_message),
        cmocka_unit_test(help_names_every_option_once),
        cmocka_unit_test(man_page_has_every_option),
        cmocka_unit_test(commands_page_is_current),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
