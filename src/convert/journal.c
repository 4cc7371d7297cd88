/* Journal lines, see journal.h. */
#include "convert/journal.h"

#include <string.h>

#include "io/folder.h"

// 256 layers of 4096 experts, 33 bytes each.
#define JOURNAL_MAX ((uint64_t)64 << 20)
#define HEX 32u

static void put_hash(sl_buf *out, sl_hash128 h) {
    sl_buf_printf(out, " %016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
}

static bool take_hash(const char *p, sl_hash128 *out) {
    uint64_t half[2] = {0, 0};
    for (unsigned i = 0; i < HEX; i++) {
        int d = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
                : p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
                                             : -1;
        if (d < 0)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)d;
    }
    *out = (sl_hash128){half[1], half[0]};
    return true;
}

// Bytes of the line at p with its newline; 0 when it is torn or damaged.
static size_t intact_line(const char *p, size_t left) {
    const char *end = memchr(p, '\n', left);
    size_t n = end ? (size_t)(end - p) : 0;
    sl_hash128 want;
    if (n < HEX + 2 || p[n - HEX - 2] != ' ' || p[n - HEX - 1] != '#' ||
        !take_hash(end - HEX, &want))
        return 0;
    return sl_hash_equal(sl_hash(p, n - HEX - 2), want) ? n + 1 : 0;
}

sl_status sl_journal_open(const char *folder, sl_journal *out, sl_error *err) {
    char path[SL_PATH_MAX];
    sl_status st;
    *out = SL_JOURNAL_CLOSED;
    sl_buf_init(&out->text);
    if ((st = sl_path_join(folder, SL_JOURNAL_NAME, path, sizeof(path), err)) ||
        (st = sl_log_open(path, &out->fd, err)) ||
        (st = sl_file_slurp(path, JOURNAL_MAX, &out->text, err))) {
        sl_journal_close(out);
        return st;
    }
    size_t at = 0, n;
    while (at < out->text.len && (n = intact_line(out->text.data + at, out->text.len - at)))
        at += n;
    // A torn line would spoil the one that is appended to it.
    if (at < out->text.len && (st = sl_log_cut(out->fd, at, err)))
        sl_journal_close(out);
    else
        out->text.len = at;
    return st;
}

void sl_journal_close(sl_journal *journal) {
    sl_log_close(journal->fd);
    sl_buf_deinit(&journal->text);
    *journal = SL_JOURNAL_CLOSED;
}

bool sl_journal_find(const sl_journal *journal, const char *unit, sl_hash128 *hashes, size_t n) {
    size_t name = strlen(unit);
    size_t at = 0;
    while (at < journal->text.len) {
        const char *p = journal->text.data + at, *newline = memchr(p, '\n', journal->text.len - at);
        size_t len = (size_t)(newline - p) - HEX - 2; // without the check
        if (len == name + n * (HEX + 1) && memcmp(p, unit, name) == 0) {
            size_t i = 0;
            for (const char *h = p + name; i < n && *h == ' ' && take_hash(h + 1, &hashes[i]); i++)
                h += HEX + 1;
            if (i == n)
                return true;
        }
        at += (size_t)(newline - p) + 1;
    }
    return false;
}

sl_status sl_journal_add(sl_journal *journal, const char *unit, const sl_hash128 *hashes, size_t n,
                         sl_error *err) {
    sl_buf line;
    sl_buf_init(&line);
    sl_buf_add_text(&line, unit);
    for (size_t i = 0; i < n; i++)
        put_hash(&line, hashes[i]);
    sl_hash128 check = sl_hash(line.data, line.len);
    sl_buf_add_text(&line, " #");
    sl_buf_printf(&line, "%016llx%016llx\n", (unsigned long long)check.high,
                  (unsigned long long)check.low);
    sl_status st = line.failed ? sl_fail(err, SL_ERR_MEMORY, "no memory for a journal line")
                               : sl_log_append(journal->fd, line.data, line.len, err);
    sl_buf_deinit(&line);
    return st;
}

sl_status sl_journal_clear(sl_journal *journal, sl_error *err) {
    sl_buf_clear(&journal->text);
    return sl_log_cut(journal->fd, 0, err);
}
