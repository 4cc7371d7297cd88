/* Pure functions over the texts of a request. See http_head.h. */
#include "server/http_head.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "server/http.h"
#include "text/utf8.h"

// ---- characters ---------------------------------------------------------------------------------

static bool is_token_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_control(char c) {
    return (uint8_t)c < 0x20 || c == 0x7f;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool text_is(const char *text, size_t n, const char *expected) {
    return strlen(expected) == n && strncasecmp(text, expected, n) == 0;
}

// ---- the head -----------------------------------------------------------------------------------

/* Fields that steer and must not come twice. */
enum { HOST, LENGTH, ENCODING, EXPECT, ORIGIN, TYPE, AUTHORIZATION, KEY, N_SINGLE };
static const char *const single_names[N_SINGLE] = {
    [HOST] = "host",
    [LENGTH] = "content-length",
    [ENCODING] = "transfer-encoding",
    [EXPECT] = "expect",
    [ORIGIN] = "origin",
    [TYPE] = "content-type",
    [AUTHORIZATION] = "authorization",
    [KEY] = "x-api-key",
};

typedef struct scan {
    const char *at, *end;
    sl_http_head *head;
    bool seen[N_SINGLE];
    uint32_t n_fields, n_cookies;
    const char *why;
} scan;

static unsigned wrong(scan *s, unsigned status, const char *why) {
    s->why = why;
    return status;
}

/* The line at s->at: its bytes without the CRLF, and s->at behind it. */
static unsigned next_line(scan *s, const char **line, size_t *n) {
    for (const char *p = s->at; p < s->end; p++) {
        if (*p == '\r' && p + 1 == s->end)
            return SL_HTTP_HEAD_MORE;
        if (*p == '\r' && p[1] == '\n') {
            *line = s->at;
            *n = (size_t)(p - s->at);
            s->at = p + 2;
            return 0;
        }
        if (is_control(*p) && *p != '\t')
            return wrong(s, 400, "control characters, or a line that does not end in CRLF");
    }
    return SL_HTTP_HEAD_MORE;
}

static unsigned scan_version(scan *s, const char *text, size_t n) {
    if (n != 8 || memcmp(text, "HTTP/", 5) != 0 || text[5] < '0' || text[5] > '9' ||
        text[6] != '.' || text[7] < '0' || text[7] > '9')
        return wrong(s, 400, "the request line is not METHOD TARGET HTTP/1.1");
    if (text[5] != '1' || text[7] > '1')
        return wrong(s, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    s->head->is_1_0 = text[7] == '0';
    return 0;
}

static unsigned scan_request_line(scan *s) {
    const char *line;
    size_t n, at = 0;
    const unsigned status = next_line(s, &line, &n);
    if (status)
        return status;
    while (at < n && is_token_char(line[at]))
        at++;
    const size_t target = at + 1;
    if (at == 0 || at == n || line[at] != ' ')
        return wrong(s, 400, "the request line is not METHOD TARGET HTTP/1.1");
    uint32_t n_parameters = 1;
    for (at = target; at < n && line[at] != ' '; at++) {
        if ((uint8_t)line[at] <= ' ' || (uint8_t)line[at] >= 0x7f)
            return wrong(s, 400, "the target holds bytes that must be percent-encoded");
        n_parameters += line[at] == '&';
    }
    if (at == n || at == target)
        return wrong(s, 400, "the request line is not METHOD TARGET HTTP/1.1");
    if (n_parameters > SL_HTTP_PARAMETERS_MAX)
        return wrong(s, 414, "the query has too many parameters");
    s->head->target = line + target;
    s->head->target_bytes = at - target;
    return scan_version(s, line + at + 1, n - at - 1);
}

static unsigned check_value(scan *s, int field, const char *value, size_t n) {
    switch (field) {
    case LENGTH:
        for (size_t i = 0; i < n; i++) {
            if (value[i] < '0' || value[i] > '9')
                return wrong(s, 400, "Content-Length is not a number");
        }
        if (n == 0)
            return wrong(s, 400, "Content-Length is not a number");
        return n > 18 ? wrong(s, 413, "the body is too large") : 0;
    case ENCODING:
        return text_is(value, n, "chunked")
                   ? 0
                   : wrong(s, 501, "no other Transfer-Encoding than chunked is known");
    case EXPECT:
        return text_is(value, n, "100-continue")
                   ? 0
                   : wrong(s, 417, "nothing else can be expected than 100-continue");
    default:
        return 0;
    }
}

static unsigned scan_field(scan *s, const char *line, size_t n) {
    size_t name = 0;
    if (line[0] == ' ' || line[0] == '\t')
        return wrong(s, 400, "a field is folded over several lines");
    while (name < n && is_token_char(line[name]))
        name++;
    if (name == 0 || name == n || line[name] != ':')
        return wrong(s, 400, "a line of the head is not NAME: VALUE");
    if (++s->n_fields > SL_HTTP_FIELDS_MAX)
        return wrong(s, 431, "the head has too many fields");
    size_t value = name + 1;
    while (value < n && (line[value] == ' ' || line[value] == '\t'))
        value++;
    while (n > value && (line[n - 1] == ' ' || line[n - 1] == '\t'))
        n--;
    if (text_is(line, name, "cookie")) {
        for (size_t i = value; i < n; i++)
            s->n_cookies += line[i] == ';' || line[i] == ',';
        if (++s->n_cookies > SL_HTTP_COOKIES_MAX)
            return wrong(s, 431, "the head has too many cookies");
    }
    for (int i = 0; i < N_SINGLE; i++) {
        if (!text_is(line, name, single_names[i]))
            continue;
        if (s->seen[i])
            return wrong(s, 400, "a field that decides how the request is read comes twice");
        s->seen[i] = true;
        return check_value(s, i, line + value, n - value);
    }
    return 0;
}

static unsigned scan_fields(scan *s) {
    for (;;) {
        const char *line;
        size_t n;
        unsigned status = next_line(s, &line, &n);
        if (status)
            return status;
        if (n == 0)
            return 0;
        if ((status = scan_field(s, line, n)))
            return status;
    }
}

unsigned sl__http_head_scan(const char *bytes, size_t n, sl_http_head *out, const char **why) {
    scan s = {.at = bytes, .end = bytes + n, .head = out};
    unsigned status;
    memset(out, 0, sizeof(*out));
    if (!(status = scan_request_line(&s)) && !(status = scan_fields(&s))) {
        if (s.seen[ENCODING] && s.seen[LENGTH])
            status = wrong(&s, 400, "Transfer-Encoding and Content-Length exclude each other");
        else if (s.seen[ENCODING] && out->is_1_0)
            status = wrong(&s, 400, "HTTP/1.0 has no Transfer-Encoding");
        else if (!s.seen[HOST] && !out->is_1_0)
            status = wrong(&s, 400, "the field Host is missing");
    }
    out->bytes = (size_t)(s.at - bytes);
    *why = s.why;
    return status;
}

// ---- target and query ---------------------------------------------------------------------------

/* Percent-decode n bytes to out (room for n + 1). The length, or -1: a bad escape, a control
 * character (NUL above all) or no UTF-8 in the result. */
static ptrdiff_t decode(const char *text, size_t n, bool plus_is_space, char *out) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '%') {
            const int high = i + 2 < n ? hex_value(text[i + 1]) : -1;
            const int low = i + 2 < n ? hex_value(text[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (is_control(c))
            return -1;
        out[len++] = c;
    }
    out[len] = '\0';
    return sl_utf8_is_valid(out, len) ? (ptrdiff_t)len : -1;
}

/* Skip "http:" or "https:" and two slashes. */
static const char *behind_scheme(const char *text, size_t n, int32_t *default_port) {
    static const struct {
        const char *name;
        int32_t port;
    } schemes[] = {{"http", 80}, {"https", 443}};
    for (size_t i = 0; i < SL_COUNT(schemes); i++) {
        const size_t len = strlen(schemes[i].name);
        if (n > len + 3 && strncasecmp(text, schemes[i].name, len) == 0 &&
            memcmp(text + len, "://", 3) == 0) {
            *default_port = schemes[i].port;
            return text + len + 3;
        }
    }
    return NULL;
}

bool sl__http_target_parse(const char *target, size_t n, char *out, sl_http_target *parsed) {
    const char *const end = target + n, *path = target;
    int32_t port;
    memset(parsed, 0, sizeof(*parsed));
    if (n > 0 && target[0] != '/' && !(n == 1 && target[0] == '*')) {
        if (!(parsed->authority = behind_scheme(target, n, &port)))
            return false;
        for (path = parsed->authority; path < end && *path != '/' && *path != '?';)
            path++;
        parsed->authority_bytes = (size_t)(path - parsed->authority);
    }
    const char *query = path < end ? memchr(path, '?', (size_t)(end - path)) : NULL;
    const char *const path_end = query ? query : end;
    ptrdiff_t len = 1;
    if (path == path_end && parsed->authority)
        memcpy(out, "/", 2); // an authority alone
    else if (path == path_end || (len = decode(path, (size_t)(path_end - path), false, out)) < 0)
        return false;
    char *const kept = out + len + 1;
    const size_t query_bytes = query ? (size_t)(end - query - 1) : 0;
    if (query_bytes)
        memcpy(kept, query + 1, query_bytes);
    kept[query_bytes] = '\0';
    parsed->path = out;
    parsed->query = kept;
    return true;
}

bool sl_http_query(const char *query, const char *name, char *out, size_t cap) {
    const size_t name_bytes = strlen(name);
    for (const char *at = query; *at;) {
        const size_t n = strcspn(at, "&");
        const char *const equals = memchr(at, '=', n);
        const size_t key = equals ? (size_t)(equals - at) : n;
        if (key == name_bytes && memcmp(at, name, key) == 0) {
            const size_t value = equals ? n - key - 1 : 0;
            size_t decoded =
                0; // escapes shrink: what fits at the end is known before it is written
            for (size_t i = 0; i < value; i++, decoded++)
                i += equals[1 + i] == '%' ? 2 : 0;
            return decoded < cap && decode(at + n - value, value, true, out) >= 0;
        }
        at += n + (at[n] == '&');
    }
    return false;
}

// ---- Host and Origin ----------------------------------------------------------------------------

/* Write the canonical form of an address; false: it is none. */
static bool canonical_address(int family, const char *text, char *out, size_t cap) {
    struct in6_addr address; // large enough for both
    return inet_pton(family, text, &address) == 1 &&
           inet_ntop(family, &address, out, (socklen_t)cap) != NULL;
}

static bool parse_port(const char *text, size_t n, int32_t *port) {
    int32_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || (value = value * 10 + (text[i] - '0')) > 65535)
            return false;
    }
    *port = value;
    return n > 0;
}

bool sl__http_authority_parse(const char *text, size_t n, sl_http_authority *out) {
    char name[SL_HTTP_HOST_MAX];
    const bool is_v6 = n > 0 && text[0] == '[';
    const char *const stop = memchr(text, is_v6 ? ']' : ':', n);
    const size_t begin = is_v6;
    const size_t name_bytes = (stop ? (size_t)(stop - text) : n) - begin;
    memset(out, 0, sizeof(*out));
    out->port = -1;
    if ((is_v6 && !stop) || name_bytes == 0 || name_bytes >= sizeof(name))
        return false;
    for (size_t i = 0; i < name_bytes; i++) {
        name[i] = lower(text[begin + i]);
        const bool is_name_char = (name[i] >= 'a' && name[i] <= 'z') ||
                                  (name[i] >= '0' && name[i] <= '9') ||
                                  (name[i] && strchr(is_v6 ? ":." : "-._", name[i]));
        if (!is_name_char)
            return false;
    }
    name[name_bytes] = '\0';
    const size_t after = begin + name_bytes + is_v6;
    if (after < n &&
        (text[after] != ':' || !parse_port(text + after + 1, n - after - 1, &out->port)))
        return false;
    out->is_address =
        canonical_address(is_v6 ? AF_INET6 : AF_INET, name, out->name, sizeof(out->name));
    if (is_v6)
        return out->is_address;
    if (!out->is_address)
        memcpy(out->name, name, name_bytes + 1);
    return true;
}

bool sl__http_host_is_allowed(const sl_http_authority *host, const char *local, uint16_t port,
                              const char *const *entries, uint32_t n_entries) {
    const int32_t given = host->port < 0 ? 80 : host->port;
    if (given == port &&
        (strcmp(host->name, "localhost") == 0 || (host->is_address && !strcmp(host->name, local))))
        return true;
    for (uint32_t i = 0; i < n_entries; i++) {
        sl_http_authority entry;
        if (sl__http_authority_parse(entries[i], strlen(entries[i]), &entry) &&
            strcmp(entry.name, host->name) == 0 && (entry.port < 0 || entry.port == given))
            return true;
    }
    return false;
}

bool sl__http_origin_is_host(const char *origin, const sl_http_authority *host) {
    const size_t n = strlen(origin);
    int32_t port;
    const char *const place = behind_scheme(origin, n, &port);
    sl_http_authority authority;
    if (!place || !sl__http_authority_parse(place, (size_t)(origin + n - place), &authority))
        return false;
    return strcmp(authority.name, host->name) == 0 &&
           (authority.port < 0 ? port : authority.port) == (host->port < 0 ? port : host->port);
}

bool sl__http_origin_is_listed(const char *origin, const char *const *entries, uint32_t n_entries) {
    for (uint32_t i = 0; i < n_entries; i++) {
        if (strcmp(entries[i], "*") == 0 || strcasecmp(entries[i], origin) == 0)
            return true;
    }
    return false;
}

void sl__http_media_type(const char *field, char *out, size_t cap) {
    size_t n = 0;
    for (; is_token_char(field[n]) || field[n] == '/'; n++) {
        if (n + 1 >= cap) {
            n = 0;
            break;
        }
        out[n] = lower(field[n]);
    }
    out[n] = '\0';
}

// ---- keys ---------------------------------------------------------------------------------------

bool sl__http_key_init(sl_http_key *key, const char *text) {
    const size_t n = strlen(text);
    memset(key, 0, sizeof(*key));
    if (n == 0 || n >= SL_HTTP_KEY_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)text[i] <= ' ' || (uint8_t)text[i] >= 0x7f)
            return false;
    }
    memcpy(key->bytes, text, n);
    key->n = n;
    return true;
}

bool sl__http_key_is_one(const sl_http_key *keys, uint32_t n_keys, const sl_http_key *given) {
    unsigned found = 0;
    for (uint32_t k = 0; k < n_keys; k++) {
        volatile size_t differs = keys[k].n ^ given->n; // volatile: nothing is left out early
        for (size_t i = 0; i < SL_HTTP_KEY_MAX; i++)
            differs |= (size_t)(keys[k].bytes[i] ^ given->bytes[i]);
        found |= differs == 0;
    }
    return found != 0;
}
