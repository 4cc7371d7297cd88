/* The chat of run: see chat.h and the text of the verb.
 *
 * The conversation is the JSON that the template gets, in the buffer of the talk. For each turn all
 * of it is rendered, and the answer becomes part of it as it is generated. A turn that fails leaves
 * the conversation as it was before. When the context is full that is said, and nothing is
 * forgotten until the person says /clear. */
#include "cli/chat.h"

#include <signal.h>
#include <string.h>

#include "cli/lineedit.h"
#include "cli/signals.h"
#include "cli/talk.h"

struct chat {
    cli *c;
    cli_talk talk;
    cli_editor editor;
    size_t n_start; // bytes of the request that /clear keeps: its beginning and the system message
    bool literal;   // the message that was read last stood between """
};

static const char help[] =
    "\"\"\"            opens and closes a message of several lines\n"
    "\\              at the end of a line: the message goes on in the next one\n"
    "/clear         forget the conversation; the system message stays\n"
    "/system TEXT   start anew with this system message; without TEXT, with none\n"
    "/help          this list\n"
    "/bye, Ctrl-D   leave\n"
    "Ctrl-C         stop the answer, or clear the line\n";

static void say_full(struct chat *chat, const char *what) {
    cli_fail(chat->c, CLI_EXIT_OK, "context",
             "%s does not fit beside the conversation (%zu bytes are left of %zu): /clear starts "
             "anew, a larger "
             "--ctx holds more",
             what, chat->talk.request.cap - chat->talk.request.n, chat->talk.request.cap);
}

// Start anew, with a system message unless n is 0.
static void start(struct chat *chat, const char *system, size_t n) {
    cli *c = chat->c;
    cli_buffer *request = &chat->talk.request;
    cli_request_begin(request,
                      cli_given(c, CLI_THINK) && strcmp(cli_string(c, CLI_THINK), "on") == 0);
    if (n > 0)
        cli_request_message(request, "system", system, n, NULL);
    if (request->full) {
        request->full = false;
        say_full(chat, "the system message");
    }
    chat->n_start = request->n;
}

static void answer(struct chat *chat, const char *text, size_t n) {
    cli *c = chat->c;
    cli_talk *t = &chat->talk;
    size_t before = t->request.n, replaced = 0;
    cli_request_message(&t->request, "user", text, n, &replaced);
    if (t->request.full) {
        t->request.full = false;
        say_full(chat, "the message");
        return;
    }
    if (replaced > 0)
        cli_note(c, "the message has %zu bytes that are not UTF-8: each was replaced by U+FFFD",
                 replaced);
    cli_request_end(&t->request);
    int exit_code = cli_talk_render(t);
    cli_request_reopen(&t->request);
    if (exit_code == CLI_EXIT_OK)
        exit_code = cli_talk_tokenize(t);
    if (exit_code != CLI_EXIT_OK) {
        if (before > chat->n_start)
            cli_note(c, "The conversation is kept as it was; /clear starts anew.");
        t->request.n = before;
        return;
    }
    cli_request_message_begin(&t->request, "assistant");
    if (t->request.full) {
        t->request.full = false;
        t->request.n = before;
        say_full(chat, "an answer to this message");
        return;
    }
    exit_code = cli_talk_generate(t, NULL, true);
    bool whole = !t->request.full && t->kept_all;
    t->request.full = false;
    bool stopped = cli_signal() == SIGINT;
    if (exit_code != CLI_EXIT_OK || t->n_ids == t->n_prompt) {
        t->request.n = before;
        if (exit_code == CLI_EXIT_OK)
            cli_note(c, stopped ? "(stopped before an answer; the message is not kept)"
                                : "(the model said nothing; the message is not kept)");
        return;
    }
    cli_request_message_end(&t->request);
    if (stopped)
        cli_note(c, "(stopped)");
    else if (!whole)
        say_full(chat, "the rest of the answer");
    else if (t->result.context_full)
        cli_fail(c, CLI_EXIT_OK, "context",
                 "the context is full (%zu tokens of prompt and %zu of answer in %u): the answer "
                 "ends here. "
                 "/clear starts anew, a larger --ctx holds more",
                 t->n_prompt, t->n_ids - t->n_prompt, t->plan.n_ctx);
    if (cli_given(c, CLI_STATS))
        cli_talk_print_stats(t);
}

// One message into the text buffer, of one line or several.
static cli_line read_message(struct chat *chat) {
    cli_buffer *text = &chat->talk.text;
    bool more = false, started = false, closed = false;
    text->n = 0;
    text->full = false;
    chat->literal = false;
    do {
        const char *line;
        size_t n;
        cli_line end =
            cli_editor_read(&chat->editor, chat->literal || more ? "... " : ">>> ", &line, &n);
        if (end != CLI_LINE_OK)
            return end;
        if (!chat->literal && !more && n >= 3 && memcmp(line, "\"\"\"", 3) == 0) {
            chat->literal = true;
            line += 3;
            n -= 3;
            if (n == 0)
                continue;
        }
        closed = chat->literal && n >= 3 && memcmp(line + n - 3, "\"\"\"", 3) == 0;
        if (closed) {
            n -= 3;
            if (n == 0)
                break;
        }
        more = !chat->literal && n > 0 && line[n - 1] == '\\';
        if (started)
            cli_buffer_add(text, "\n", 1);
        cli_buffer_add(text, line, more ? n - 1 : n);
        started = true;
    } while (more || (chat->literal && !closed));
    return CLI_LINE_OK;
}

// False: leave.
static bool obey(struct chat *chat, const char *text, size_t n) {
    cli *c = chat->c;
    size_t word = 0;
    while (word < n && text[word] != ' ')
        word++;
    size_t rest = word;
    while (rest < n && text[rest] == ' ')
        rest++;
    if (word == 4 && memcmp(text, "/bye", 4) == 0)
        return false;
    if (word == 6 && memcmp(text, "/clear", 6) == 0) {
        chat->talk.request.n = chat->n_start;
        cli_note(c, "The conversation is forgotten.");
    } else if (word == 7 && memcmp(text, "/system", 7) == 0) {
        start(chat, text + rest, n - rest);
        cli_note(c, n > rest ? "A new conversation, with this system message."
                             : "A new conversation, without a system message.");
    } else if (word == 5 && memcmp(text, "/help", 5) == 0) {
        cli_puts(&c->err, help);
        cli_flush(&c->err);
    } else {
        cli_fail(
            c, CLI_EXIT_OK, "usage",
            "there is no command '%.*s': /help lists them. A message that begins with / is written "
            "between \"\"\"",
            word > 32 ? 32 : (int)word, text);
        cli_flush(&c->err);
    }
    return true;
}

int cli_chat(cli *c, const char *path) {
    struct chat chat = {.c = c};
    cli_buffer *text = &chat.talk.text;
    // Before the model: what the editor takes is then part of what the plan finds in use.
    cli_editor_open(&chat.editor, c);
    int exit_code = cli_talk_open(c, path, &chat.talk);
    if (exit_code != CLI_EXIT_OK) {
        cli_editor_close(&chat.editor);
        return exit_code;
    }
    const char *system = cli_given(c, CLI_SYSTEM) ? cli_string(c, CLI_SYSTEM) : "";
    start(&chat, system, strlen(system));
    cli_note(c, "/help lists the commands, Ctrl-D leaves");
    for (;;) {
        cli_line end = read_message(&chat);
        if (end == CLI_LINE_INTERRUPTED) {
            if (cli_signal() != SIGINT)
                break;
            cli_signal_clear();
            cli_puts(&c->err, "\n");
            cli_flush(&c->err);
            continue;
        }
        if (end == CLI_LINE_END) {
            cli_puts(&c->err, "\n");
            break;
        }
        if (text->full) {
            say_full(&chat, "the message");
            cli_flush(&c->err);
            continue;
        }
        if (text->n == 0)
            continue;
        cli_editor_remember(&chat.editor, text->bytes, text->n);
        if (text->bytes[0] == '/' && !chat.literal) {
            if (!obey(&chat, text->bytes, text->n))
                break;
            continue;
        }
        answer(&chat, text->bytes, text->n);
        cli_puts(&c->err, "\n");
        cli_flush(&c->err);
        if (c->out.error || cli_signal() == SIGTERM)
            break;
        cli_signal_clear();
    }
    cli_talk_close(&chat.talk);
    cli_editor_close(&chat.editor);
    int stopped = cli_stopped(c);
    return stopped >= 0 ? stopped : CLI_EXIT_OK;
}
