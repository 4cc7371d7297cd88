/* Lines: see lineedit.h. */
#include "cli/lineedit.h"

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/signals.h"

#define HISTORY_ENTRIES 500

/* ---- history file ---------------------------------------------------------------------------- */

// $SLUICE_HOME/history, or history in the XDG state folder, which is made.
static void find_history(cli_editor *e) {
    const char *home = getenv("SLUICE_HOME"), *state = getenv("XDG_STATE_HOME"),
               *user = getenv("HOME");
    int n;
    if (home && *home)
        n = snprintf(e->history_path, sizeof(e->history_path), "%s/history", home);
    else if (state && *state == '/')
        n = snprintf(e->history_path, sizeof(e->history_path), "%s/sluice/history", state);
    else if (user && *user)
        n = snprintf(e->history_path, sizeof(e->history_path), "%s/.local/state/sluice/history",
                     user);
    else
        return;
    if ((size_t)n >= sizeof(e->history_path)) {
        e->history_path[0] = '\0';
        return;
    }
    if (!cli_make_folders_above(e->history_path)) {
        cli_note(e->c, "no history is kept: making '%s': %s", e->history_path, strerror(errno));
        e->history_path[0] = '\0';
    }
}

/* ---- libedit --------------------------------------------------------------------------------- */

static bool load(cli_editor *e) {
    static const char *const names[] = {"libedit.so.2", "libedit.3.dylib"};
    const struct {
        const char *name;
        void *function; // address of the pointer to fill
    } symbols[] = {
        {"el_init", &e->lib.el_init},
        {"el_end", &e->lib.el_end},
        {"el_gets", &e->lib.el_gets},
        {"el_set", &e->lib.el_set},
        {"el_get", &e->lib.el_get},
        {"el_resize", &e->lib.el_resize},
        {"history_init", &e->lib.history_init},
        {"history_end", &e->lib.history_end},
        {"history", &e->lib.history},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !e->library; i++)
        e->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; e->library && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(e->library, symbols[i].name);
        // POSIX lets an object pointer hold a function's address; C has no cast for it.
        memcpy(symbols[i].function, &address, sizeof(address));
        if (!address) {
            dlclose(e->library);
            e->library = NULL;
        }
    }
    return e->library != NULL;
}

static cli_editor *editor_of(EditLine *edit, const struct cli_libedit *lib) {
    void *editor = NULL;
    lib->el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

// libedit's callbacks get no more than the EditLine, and asking it for its client data takes a
// function of the library: this is where they find it. Set once, while there is one thread.
static const struct cli_libedit *library;

static char *prompt_text(EditLine *edit) {
    // libedit does not write to it, its type only says so.
    return (char *)(uintptr_t)editor_of(edit, library)->prompt;
}

// One character. The read of libedit tries again after a signal, so that Ctrl-C would go unseen.
static int read_character(EditLine *edit, wchar_t *out) {
    cli_editor *e = editor_of(edit, library);
    unsigned char bytes[4];
    size_t n = 0, need = 1;
    while (n < need) {
        if (!cli_signals_wait_readable(STDIN_FILENO)) {
            e->interrupted = true;
            errno = EINTR;
            return -1;
        }
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return (int)got;
        if (n == 0)
            need = bytes[0] < 0xc0 ? 1 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
        n++;
    }
    uint32_t code = bytes[0];
    if (need > 1) {
        if (cli_utf8_length((const char *)bytes, n) != n) {
            *out = 0xfffd;
            return 1;
        }
        code = bytes[0] & (0xffu >> (need + 1));
        for (size_t i = 1; i < need; i++)
            code = code << 6 | (bytes[i] & 0x3fu);
    }
    *out = (wchar_t)code;
    return 1;
}

void cli_editor_open(cli_editor *e, cli *c) {
    memset(e, 0, sizeof(*e));
    e->c = c;
    if (!load(e)) {
        cli_note(
            c,
            "libedit.so.2 is not installed: lines can be typed, without history and cursor keys");
        return;
    }
    library = &e->lib;
    // Characters are typed in UTF-8, whatever the locale says about numbers and messages.
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    // Prompts go where they do not mix with the answers. One write per line, not per character.
    static char buffer[512];
    setvbuf(stderr, buffer, _IOFBF, sizeof(buffer));
    HistEvent event;
    e->edit = e->lib.el_init("sluice", stdin, stderr, stderr);
    e->history = e->lib.history_init();
    if (!e->edit || !e->history) {
        cli_note(c, "libedit cannot work on this terminal: lines can be typed, without history");
        cli_editor_close(e);
        return;
    }
    find_history(e);
    e->lib.history(e->history, &event, H_SETSIZE, HISTORY_ENTRIES);
    e->lib.history(e->history, &event, H_SETUNIQUE, 1);
    if (*e->history_path)
        e->lib.history(e->history, &event, H_LOAD, e->history_path); // absent in the first chat
    e->lib.el_set(e->edit, EL_CLIENTDATA, e);
    e->lib.el_set(e->edit, EL_PROMPT, prompt_text);
    e->lib.el_set(e->edit, EL_EDITOR, "emacs");
    e->lib.el_set(e->edit, EL_SIGNAL, 0);
    e->lib.el_set(e->edit, EL_HIST, e->lib.history, e->history);
    e->lib.el_set(e->edit, EL_GETCFN, read_character);
    e->lib.el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

void cli_editor_close(cli_editor *e) {
    if (e->edit)
        e->lib.el_end(e->edit);
    if (e->history)
        e->lib.history_end(e->history);
    // The library stays loaded: what it and the terminal library keep for themselves would leak.
    e->edit = NULL;
    e->history = NULL;
    e->library = NULL;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static cli_line read_plain(cli_editor *e, const char *prompt, const char **line, size_t *n) {
    cli_puts(&e->c->err, prompt);
    cli_flush(&e->c->err);
    e->c->err.mid_line = false;
    *n = 0;
    while (*n < sizeof(e->buffer)) {
        if (!cli_signals_wait_readable(STDIN_FILENO))
            return CLI_LINE_INTERRUPTED;
        ssize_t got = read(STDIN_FILENO, e->buffer + *n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return CLI_LINE_END;
        if (e->buffer[*n] == '\n')
            break;
        (*n)++;
    }
    *line = e->buffer;
    return CLI_LINE_OK;
}

cli_line cli_editor_read(cli_editor *e, const char *prompt, const char **line, size_t *n) {
    int length = 0;
    if (!e->library)
        return read_plain(e, prompt, line, n);
    e->prompt = prompt;
    e->interrupted = false;
    e->lib.el_resize(e->edit);
    errno = 0;
    *line = e->lib.el_gets(e->edit, &length);
    fflush(stderr);
    if (e->interrupted)
        return CLI_LINE_INTERRUPTED;
    if (!*line || length <= 0)
        return CLI_LINE_END;
    *n = (size_t)length;
    while (*n > 0 && ((*line)[*n - 1] == '\n' || (*line)[*n - 1] == '\r'))
        (*n)--;
    return CLI_LINE_OK;
}

void cli_editor_remember(cli_editor *e, const char *text, size_t n) {
    HistEvent event;
    char entry[1024];
    // Longer messages come from elsewhere, and are found there again.
    if (!e->library || n >= sizeof(entry))
        return;
    memcpy(entry, text, n);
    entry[n] = '\0';
    e->lib.history(e->history, &event, H_ENTER, entry);
    // Saved each time: a closed terminal ends the program without a word.
    if (*e->history_path && e->lib.history(e->history, &event, H_SAVE, e->history_path) < 0) {
        cli_note(e->c, "no history is kept: '%s' cannot be written", e->history_path);
        e->history_path[0] = '\0';
    }
}
