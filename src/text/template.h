/* Chat templates: an interpreter for the part of Jinja that chat templates are written in.
 *
 * A template is parsed once, at conversion or at open, into a tree in an arena; rendering walks the
 * tree. What it prints equals, byte for byte, what Python's jinja2 prints in the environment that
 * transformers gives chat templates: trim_blocks and lstrip_blocks on, autoescape off, sandboxed,
 * loop controls, tojson as json.dumps(ensure_ascii=False), the globals raise_exception and
 * strftime_now. tests/diff/test_template_jinja.py holds it to that.
 *
 * Statements   if for (with filter, else, tuple targets) set (also blocks) macro with filter raw
 *              break continue generation (its body passes through) and comments
 * Expressions  every operator of Jinja, slices, calls with keywords, chained comparisons, inline if
 * Globals      range dict namespace raise_exception strftime_now
 * Filters      abs capitalize count d default dictsort e escape first float indent int items join
 *              last length list lower map max min reject rejectattr replace reverse round safe
 *              select selectattr sort string sum title tojson trim unique upper
 * Tests        all of Jinja's
 * Methods      str: capitalize count endswith find index islower isspace isupper join lower lstrip
 *              removeprefix removesuffix replace rfind rsplit rstrip split splitlines startswith
 *              strip title upper; dict: copy get items keys values; list, tuple, range: count
 *              index; list: copy; loop: cycle
 *
 * Not there, and refused by the parser with line and column: include, import, extends, block, call,
 * recursive loops, * and ** in calls, other filters, methods and functions, identifiers that are not
 * ASCII. Not there, and refused when it happens: integers that leave 64 bits, powers of fractions and
 * negative powers, formatting with %, printing a function. Case mapping and repr() follow the Unicode of Python 3.11 (14.0).
 *
 * Templates and variables are untrusted: parsing bounds its depth, rendering bounds its steps, depth
 * and output. Neither allocates outside the arenas it is given. */
#ifndef SL_TEXT_TEMPLATE_H
#define SL_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/status.h"

/* Nesting of statements and expressions together; deeper templates are refused. */
#define SL_TEMPLATE_HEIGHT_MAX 100

typedef struct sl_template sl_template;

typedef struct sl_template_limits {
    uint64_t steps_max; /* nodes visited, plus one for some dozens of bytes handled */
    size_t output_bytes_max;
    uint32_t depth_max; /* nested evaluations, calls included; some 350 bytes of stack each */
    int64_t now_unix;   /* what strftime_now() shows, in seconds since 1970, as UTC */
} sl_template_limits;

/* Limits that no sensible template meets: 20 million steps, 64 MiB, depth 300. */
sl_template_limits sl_template_limits_default(int64_t now_unix);

/* Parse a template. Its tree and a copy of its source live in arena (6 to 8 times the source's
 * length), which must outlive *out; src may go. Any thread.
 * Errors: SL_ERR_SYNTAX (malformed), SL_ERR_UNSUPPORTED (outside the subset), both with line and
 * column; SL_ERR_MEMORY (arena full). On error *out is NULL. */
SL_MUST_USE sl_status sl_template_parse(const char *src, size_t len, sl_arena *arena,
                                        sl_template **out, sl_error *err);

/* Render into out (appended). vars is an object: messages, tools, add_generation_prompt and so on;
 * its members are the template's variables. scratch holds values, and text while it is put together:
 * some 50 bytes for each JSON value, and once or twice the text for the templates of the families
 * (those that build a prompt in several steps take it once a step). Everything taken from scratch is
 * given back before returning. The template is only read: any number of threads may render it, each
 * with its own scratch and out.
 * Errors:
 *   SL_ERR_ARGUMENT     raise_exception() (the message is the template's), an undefined variable's
 *                       attribute, operands of the wrong type, steps or depth over the limit
 *   SL_ERR_UNSUPPORTED  see above
 *   SL_ERR_CONTEXT      more output than output_bytes_max or than a fixed out holds
 *   SL_ERR_MEMORY       scratch full, or out could not grow
 * After an error out holds what was printed until then. */
SL_MUST_USE sl_status sl_template_render(const sl_template *tpl, const sl_json *vars,
                                         const sl_template_limits *limits, sl_arena *scratch,
                                         sl_buf *out, sl_error *err);

#endif
