/* The pure functions of src/server/http_head.h over arbitrary bytes. The first byte chooses; for
 * a head, everything that is read out of it is read as well. What a whole head is must not depend
 * on what follows it, and no beginning of a good head may be refused: so it arrives. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/http.h"
#include "server/http_head.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

static void try_target(const char *text, size_t n) {
    sl_http_target target;
    char *const out = malloc(n + 3); // exactly the room that is asked for
    require(out != NULL);
    if (sl__http_target_parse(text, n, out, &target)) {
        char value[16];
        require(target.path[0] == '/' || !strcmp(target.path, "*"));
        require(strlen(target.path) + strlen(target.query) + 2 <= n + 3);
        if (sl_http_query(target.query, "q", value, sizeof(value)))
            require(strlen(value) < sizeof(value));
        if (target.authority) {
            sl_http_authority authority;
            (void)sl__http_authority_parse(target.authority, target.authority_bytes, &authority);
        }
    }
    free(out);
}

static void try_head(const char *text, size_t n) {
    sl_http_head head, again;
    const char *why = NULL, *why_again = NULL;
    const unsigned status = sl__http_head_scan(text, n, &head, &why);
    require(status <= SL_HTTP_HEAD_MORE || (status >= 400 && status < 600 && why));
    if (status == 0) {
        require(head.target >= text && head.target + head.target_bytes <= text + n);
        try_target(head.target, head.target_bytes);
        for (size_t i = 0; i < n && i < 256; i++)
            require(sl__http_head_scan(text, i, &again, &why_again) <= SL_HTTP_HEAD_MORE);
    }
}

static void try_names(const char *text, size_t n) {
    static const char *const listed[] = {"example.org", "example.net:8080", "[::1]"};
    sl_http_authority host;
    char *const copy = malloc(n + 1);
    char type[16];
    sl_http_key key;
    require(copy != NULL);
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (sl__http_authority_parse(text, n, &host)) {
        require(host.port >= -1 && host.port <= 65535 && host.name[0] != '\0');
        if (sl__http_host_is_allowed(&host, "127.0.0.1", 8080, listed, 3))
            require(!strcmp(host.name, "localhost") || !strcmp(host.name, "127.0.0.1") ||
                    !strcmp(host.name, "::1") || !strncmp(host.name, "example.", 8));
        (void)sl__http_origin_is_host(copy, &host);
    }
    (void)sl__http_authority_parse("example.net:8080", 16, &host);
    (void)sl__http_origin_is_host(copy, &host);
    (void)sl__http_origin_is_listed(copy, listed, 3);
    sl__http_media_type(copy, type, sizeof(type));
    require(strlen(type) < sizeof(type));
    if (sl__http_key_init(&key, copy))
        require(sl__http_key_is_one(&key, 1, &key));
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 4096)
        return 0;
    const char *const text = (const char *)data + 1;
    switch (data[0] % 3) {
    case 0:
        try_head(text, size - 1);
        break;
    case 1:
        try_target(text, size - 1);
        break;
    default:
        try_names(text, size - 1);
    }
    return 0;
}
