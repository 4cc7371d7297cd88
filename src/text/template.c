/* The public functions of the template interpreter, and what its parts need of the world around it:
 * errors that name a place, steps and depth that are counted, memory from the scratch arena. */
#include "text/template.h"

#include <stdio.h>
#include <string.h>

#include "text/template_internal.h"

sl_template_limits sl_template_limits_default(int64_t now_unix) {
    return (sl_template_limits){.steps_max = 20000000,
                                .output_bytes_max = 64 * SL_MIB,
                                .depth_max = 300,
                                .now_unix = now_unix};
}

bool sl__tpl_fail(tpl_run *run, sl_status status, const char *fmt, ...) {
    if (run->status)
        return false;
    char what[SL_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    for (char *c = what; *c; c++) {
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    }
    unsigned line, column;
    sl__tpl_place(run->tpl->source, run->at, &line, &column);
    run->status =
        sl_fail(run->err, status, "chat template, line %u column %u: %s", line, column, what);
    return false;
}

bool sl__tpl_steps(tpl_run *run, uint64_t n) {
    run->steps += n;
    if (run->steps <= run->limits->steps_max)
        return true;
    return sl__tpl_fail(run, SL_ERR_ARGUMENT, "more than %llu steps",
                        (unsigned long long)run->limits->steps_max);
}

bool sl__tpl_enter(tpl_run *run) {
    if (run->depth >= run->limits->depth_max)
        return sl__tpl_fail(run, SL_ERR_ARGUMENT, "nested more than %u deep",
                            run->limits->depth_max);
    run->depth++;
    return true;
}

void *sl__tpl_alloc(tpl_run *run, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    size_t align = size == 1 ? 1 : _Alignof(tpl_val);
    void *block = run->status ? NULL : sl_arena_alloc(run->arena, bytes, align);
    if (!block && !run->status)
        run->status = sl_arena_full(run->arena, bytes, run->err);
    return block;
}

/* ---- text ---------------------------------------------------------------------------------- */

// Room for n more bytes: behind the text where it ends the arena, otherwise in a new place.
static bool text_reserve(tpl_text *text, size_t n) {
    sl_arena *arena = text->run->arena;
    if (text->run->status)
        return false;
    if (n <= text->cap - text->len)
        return true;
    if (text->len + n > UINT32_MAX)
        return sl__tpl_fail(text->run, SL_ERR_MEMORY, "a string of more than 4 GiB");
    // Compared as numbers: the text may be anywhere, the template's own tree included.
    uintptr_t start = (uintptr_t)text->s, base = (uintptr_t)arena->base;
    if (text->s && start >= base && start + text->cap == base + arena->used) {
        size_t more = n - (text->cap - text->len);
        if (!sl__tpl_alloc(text->run, more, 1))
            return false;
        text->cap += more;
        return true;
    }
    size_t cap = text->len + n;
    char *s = sl__tpl_alloc(text->run, cap, 1);
    if (!s || !sl__tpl_steps(text->run, text->len / 32))
        return false;
    if (text->s)
        memcpy(s, text->s, text->len);
    text->s = s;
    text->cap = cap;
    return true;
}

void sl__tpl_text_add(tpl_text *text, const void *bytes, size_t n) {
    if (n == 0 || !text_reserve(text, n) || !sl__tpl_steps(text->run, n / 64))
        return;
    memcpy(text->s + text->len, bytes, n);
    text->len += n;
}

void sl__tpl_text_puts(tpl_text *text, const char *s) {
    sl__tpl_text_add(text, s, strlen(s));
}

bool sl__tpl_text_end(tpl_text *text, tpl_val *out) {
    *out = tpl_str(text->len ? text->s : "", text->len);
    return text->run->status == SL_OK;
}

/* ---- public -------------------------------------------------------------------------------- */

sl_status sl_template_render(const sl_template *tpl, const sl_json *vars,
                             const sl_template_limits *limits, sl_arena *scratch, sl_buf *out,
                             sl_error *err) {
    if (!sl_json_is(vars, SL_JSON_OBJECT))
        return sl_fail(err, SL_ERR_ARGUMENT, "chat template: the variables are not a JSON object");
    tpl_run run = {.tpl = tpl, .limits = limits, .arena = scratch, .out = out, .err = err};
    size_t mark = sl_arena_mark(scratch);
    if (sl__tpl_json_to_val(&run, vars, &run.vars))
        sl__tpl_exec_template(&run);
    sl_arena_reset(scratch, mark);
    return run.status;
}
