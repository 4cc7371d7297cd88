/* What is read of a request by our own code, as pure functions: the shape of a head, the target,
 * Host and Origin, queries and keys. Nothing here keeps state or allocates; any thread. */
#ifndef SL_SERVER_HTTP_HEAD_H
#define SL_SERVER_HTTP_HEAD_H

#include <stdbool.h>

#include "base/attr.h"

#define SL_HTTP_FIELDS_MAX 64     /* lines in a head: libmicrohttpd keeps a record of each */
#define SL_HTTP_PARAMETERS_MAX 32 /* parameters of a query and ... */
#define SL_HTTP_COOKIES_MAX 128   /* ... cookies, of which it keeps records too */
#define SL_HTTP_HOST_MAX 256
#define SL_HTTP_KEY_MAX 256

/* Is there a whole head at the beginning of these bytes, and is it one that every reader
 * understands alike? libmicrohttpd 0.9.75 accepts more than that: duplicates of Host and
 * Content-Length, Transfer-Encoding beside Content-Length, lines that end in LF, NUL inside a
 * line; and it takes the text of a folded line for more of the field's name. Returns 0 for a
 * whole head that is right; SL_HTTP_HEAD_MORE when its end is not there yet (and nothing is wrong
 * so far); otherwise the status to refuse with, and *why in words. */
#define SL_HTTP_HEAD_MORE 1u
typedef struct sl_http_head {
    const char *target; /* [target_bytes], inside bytes */
    size_t target_bytes;
    size_t bytes; /* of the whole head, with the empty line */
    bool is_1_0;
} sl_http_head;
unsigned sl__http_head_scan(const char *bytes, size_t n, sl_http_head *out, const char **why);

/* The target of a request, "/path?query" or "scheme://authority/path?query". The decoded path
 * and, behind its NUL, the query as it is go to out, which has room for n + 3 bytes. authority
 * points into target, or is NULL. False: no such target, a bad escape, control characters, no
 * UTF-8. "*" is the path "*". */
typedef struct sl_http_target {
    const char *path, *query; /* into out */
    const char *authority;    /* [authority_bytes] */
    size_t authority_bytes;
} sl_http_target;
bool sl__http_target_parse(const char *target, size_t n, char *out, sl_http_target *parsed);

/* host[:port] of a Host field. The name in lower case; an address in its canonical form, without
 * brackets. False when it is no such thing. */
typedef struct sl_http_authority {
    char name[SL_HTTP_HOST_MAX];
    int32_t port; /* -1: none given */
    bool is_address;
} sl_http_authority;
bool sl__http_authority_parse(const char *text, size_t n, sl_http_authority *out);

/* May a request have this Host? local: the address that the connection came to, canonical; port:
 * the server's. entries: "name" or "name:port". */
bool sl__http_host_is_allowed(const sl_http_authority *host, const char *local, uint16_t port,
                              const char *const *entries, uint32_t n_entries);

/* Origin: does it name the same place as Host? Whichever scheme: a proxy may speak TLS for us. */
bool sl__http_origin_is_host(const char *origin, const sl_http_authority *host);
/* Is it in the list, or "*" in there? */
bool sl__http_origin_is_listed(const char *origin, const char *const *entries, uint32_t n_entries);

/* Media type without parameters, in lower case; "" when it does not fit or is none. */
void sl__http_media_type(const char *field, char *out, size_t cap);

/* Keys as they are compared: their length and SL_HTTP_KEY_MAX bytes, filled up with NUL. */
typedef struct sl_http_key {
    size_t n;
    uint8_t bytes[SL_HTTP_KEY_MAX];
} sl_http_key;
/* False: empty, too long, or holds something else than printable ASCII without spaces. */
bool sl__http_key_init(sl_http_key *key, const char *text);
/* Is given one of the keys? Takes the same time whichever byte differs, and looks at all keys. */
bool sl__http_key_is_one(const sl_http_key *keys, uint32_t n_keys, const sl_http_key *given);

#endif
