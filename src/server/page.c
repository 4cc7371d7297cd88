/* The chat page: the files of web/, which the build compresses and puts into the program. */
#include <string.h>

#include "server/page_files.h"
#include "server/server_internal.h"

/* Nothing but what this server sends: no inline code or style, no other place to load from or to send to. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

static const char *type_of(const char *name) {
    static const struct {
        const char *end, *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < SL_COUNT(types); i++)
        if (strcmp(end, types[i].end) == 0)
            return types[i].type;
    return "application/octet-stream";
}

static const sl_page_file *find(const char *path) {
    const char *name = strcmp(path, "/") == 0 ? "index.html" : path + 1;
    for (size_t i = 0; *path == '/' && i < sl__n_page_files; i++)
        if (strcmp(sl__page_files[i].name, name) == 0)
            return &sl__page_files[i];
    return NULL;
}

bool sl__page_has(const char *path) {
    return find(path) != NULL;
}

bool sl__page_answer(sl_http_exchange *x, const sl_http_request *request) {
    const sl_page_file *f = find(request->path);
    const sl_http_header headers[] = {{"Content-Encoding", "gzip"},
                                      {"Content-Security-Policy", policy},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"Cross-Origin-Opener-Policy", "same-origin"}};
    if (!f)
        return false;
    sl_http_respond_static(x, 200, type_of(f->name), headers, SL_COUNT(headers), f->bytes,
                           f->n_bytes);
    return true;
}
