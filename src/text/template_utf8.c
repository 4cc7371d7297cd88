/* Code points of UTF-8 text, and searching in it. */
#include <string.h>

#include "text/template_internal.h"

size_t sl__tpl_cp_len(const char *s) {
    unsigned char c = (unsigned char)*s;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

size_t sl__tpl_cp_valid(const char *s, size_t left) {
    const unsigned char *u = (const unsigned char *)s;
    size_t n = u[0] < 0x80   ? 1
               : u[0] < 0xc2 ? 0
               : u[0] < 0xe0 ? 2
               : u[0] < 0xf0 ? 3
               : u[0] < 0xf5 ? 4
                             : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return 0;
    }
    // The second byte rules out overlong forms, surrogates and what lies above U+10FFFF.
    if ((u[0] == 0xe0 && u[1] < 0xa0) || (u[0] == 0xed && u[1] > 0x9f) ||
        (u[0] == 0xf0 && u[1] < 0x90) || (u[0] == 0xf4 && u[1] > 0x8f))
        return 0;
    return n;
}

uint32_t sl__tpl_cp_decode(const char *s, size_t *bytes) {
    const unsigned char *u = (const unsigned char *)s;
    *bytes = sl__tpl_cp_len(s);
    switch (*bytes) {
    case 1:
        return u[0];
    case 2:
        return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    case 3:
        return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    default:
        return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    }
}

size_t sl__tpl_cp_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[n] | cp);
    return n;
}

size_t sl__tpl_cp_count(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += (s[i] & 0xc0) != 0x80;
    return n;
}

size_t sl__tpl_cp_offset(const char *s, size_t len, size_t n) {
    size_t at = 0;
    while (n-- && at < len)
        at += sl__tpl_cp_len(s + at);
    return at;
}

bool sl__tpl_is_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static size_t match_len(const char *a, const char *b, size_t max) {
    size_t n = 0;
    while (n < max && a[n] == b[n])
        n++;
    return n;
}

bool sl__tpl_find(tpl_run *run, const char *hay, size_t len, const char *needle, size_t needle_len,
                  const char **at) {
    size_t work = len / 64;
    *at = NULL;
    if (needle_len == 0) {
        *at = hay;
        return true;
    }
    for (size_t i = 0; !*at && needle_len <= len && i <= len - needle_len; i++) {
        const char *hit = memchr(hay + i, needle[0], len - needle_len - i + 1);
        if (!hit)
            break;
        size_t n = match_len(hit, needle, needle_len);
        i = (size_t)(hit - hay);
        work += n / 8;
        if (n == needle_len)
            *at = hit;
        if (work > 1 << 16 && !sl__tpl_steps(run, work))
            return false;
        work = work > 1 << 16 ? 0 : work;
    }
    return sl__tpl_steps(run, work);
}

bool sl__tpl_find_last(tpl_run *run, const char *hay, size_t len, const char *needle,
                       size_t needle_len, const char **at) {
    *at = needle_len == 0 ? hay + len : NULL;
    for (size_t i = needle_len <= len ? len - needle_len + 1 : 0; !*at && i-- > 0;) {
        size_t n = match_len(hay + i, needle, needle_len);
        if (n == needle_len)
            *at = hay + i;
        if ((i % 64 == 0 || n >= 8) && !sl__tpl_steps(run, 1 + n / 8))
            return false;
    }
    return true;
}
