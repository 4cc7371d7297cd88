/* The verb serve: looks at the options and becomes the program sluice-serve, which is in src/serve.
 * See cli.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static bool is_loopback(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    return strcmp(host, "localhost") == 0 ||
           (inet_pton(AF_INET, host, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127) ||
           (inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

static int check_host(cli *c) {
    struct in6_addr address; // large enough for both
    const char *host = cli_string(c, CLI_HOST);
    if (is_loopback(host))
        return CLI_EXIT_OK;
    if (inet_pton(AF_INET, host, &address) != 1 && inet_pton(AF_INET6, host, &address) != 1)
        return cli_usage_error(c,
                               "--host: '%.64s' is not an address: write 127.0.0.1, 0.0.0.0, "
                               "::1 or another one in digits",
                               host);
    if (!cli_given(c, CLI_API_KEY_FILE))
        return cli_usage_error(c,
                               "--host: other machines reach %.64s: add --api-key-file FILE, with "
                               "the keys of those who may use the server",
                               host);
    return CLI_EXIT_OK;
}

// "*", or scheme://host[:port] as a browser sends it: a path, even a "/", would never match.
static bool is_origin(const char *text) {
    static const char scheme[] = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
    static const char authority[] = "abcdefghijklmnopqrstuvwxyz0123456789._-:[]";
    size_t n = strspn(text, scheme);
    if (strcmp(text, "*") == 0)
        return true;
    if (n == 0 || strncmp(text + n, "://", 3) != 0)
        return false;
    text += n + 3;
    return *text && text[strspn(text, authority)] == '\0';
}

// NAME or NAME:PORT; an IPv6 address stands in brackets.
static bool is_host(const char *text) {
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t n = text[0] == '[' ? strcspn(text, "]") + 1 : strspn(text, name);
    uint64_t port;
    char message[CLI_MESSAGE_MAX];
    if (n == 0 || n > strlen(text))
        return false;
    return text[n] == '\0' ||
           (text[n] == ':' && cli_parse_count("", text + n + 1, 1, 65535, &port, message));
}

static bool is_name(const char *text) {
    size_t n = strlen(text), used = 0;
    for (size_t length; used < n; used += length) {
        length = cli_utf8_length(text + used, n - used);
        if (length == 0 || (unsigned char)text[used] < 0x20 || text[used] == 0x7f)
            return false;
    }
    return n > 0 && n <= 128;
}

static int check_options(cli *c) {
    int exit_code = cli_given(c, CLI_HOST) ? check_host(c) : CLI_EXIT_OK;
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    for (uint32_t i = 0; i < c->args.hosts.n; i++) {
        if (!is_host(c->args.hosts.text[i]))
            return cli_usage_error(c,
                                   "--allow-host: '%.64s' is not a name: write NAME or NAME:PORT, "
                                   "such as llm.lan",
                                   c->args.hosts.text[i]);
    }
    for (uint32_t i = 0; i < c->args.origins.n; i++) {
        if (!is_origin(c->args.origins.text[i]))
            return cli_usage_error(c,
                                   "--cors: '%.64s' is not an origin: write https://NAME or "
                                   "http://NAME:PORT in lower case, without a path, or *",
                                   c->args.origins.text[i]);
    }
    if (cli_given(c, CLI_NAME) && !is_name(cli_string(c, CLI_NAME)))
        return cli_usage_error(c, "--name: a text of 1 to 128 bytes, in UTF-8 and without control "
                                  "characters, is expected");
    return CLI_EXIT_OK;
}

/* Where the server may lie: beside this program, as it is built, or in its place below the same
 * prefix, as it is installed. */
static const char *const places[] = {"sluice-serve", "../libexec/sluice/sluice-serve"};
#define N_PLACES (sizeof(places) / sizeof(places[0]))

int cli_serve(cli *c) {
    char self[CLI_PATH_MAX], program[N_PLACES][CLI_PATH_MAX + 64];
    int exit_code = check_options(c);
    if (exit_code != CLI_EXIT_OK)
        return exit_code;
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0 || n == (ssize_t)sizeof(self) - 1)
        return cli_fail(c, CLI_EXIT_FAILED, "io",
                        "looking for sluice-serve beside /proc/self/exe: %s",
                        n < 0 ? strerror(errno) : "its path is too long");
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < N_PLACES; i++) {
        snprintf(program[i], sizeof(program[i]), "%s%s", self, places[i]);
        execv(program[i], c->argv);
        if (errno != ENOENT && errno != ENOTDIR)
            return cli_fail(c, CLI_EXIT_FAILED, "io", "starting '%s': %s", program[i],
                            strerror(errno));
    }
    return cli_fail(c, CLI_EXIT_FAILED, "missing",
                    "the server, a program of its own, is not here: looked for %s and %s\n"
                    "It is built and installed where libmicrohttpd is found (Debian: "
                    "libmicrohttpd-dev)",
                    program[0], program[1]);
}
