/* After open the library asks the system for nothing. This program brings its own malloc, mmap and the
 * like, through which every caller goes, those inside the C library included; while an engine works each
 * call is counted, with the stack of the first one shown. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "helpers/demo.h"
#include "helpers/scratch.h"
#include "helpers/trace.h"

/* ---- the trap ---------------------------------------------------------------------------------- */

static atomic_bool watching;
static atomic_uint n_asked;

static void asked(const char *what) {
    void *frames[24];
    if (!atomic_load(&watching))
        return;
    if (atomic_fetch_add(&n_asked, 1) > 0)
        return;
    atomic_store(&watching, false);
    (void)!write(2, what, strlen(what));
    (void)!write(2, " was called:\n", 13);
    backtrace_symbols_fd(frames, backtrace(frames, SL_COUNT(frames)), 2);
    atomic_store(&watching, true);
}

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

SL_PUBLIC void *malloc(size_t n) {
    asked("malloc");
    return __libc_malloc(n);
}
SL_PUBLIC void *calloc(size_t n, size_t size) {
    asked("calloc");
    return __libc_calloc(n, size);
}
SL_PUBLIC void *realloc(void *p, size_t n) {
    asked("realloc");
    return __libc_realloc(p, n);
}
SL_PUBLIC void *memalign(size_t align, size_t n) {
    asked("memalign");
    return __libc_memalign(align, n);
}
SL_PUBLIC void *aligned_alloc(size_t align, size_t n) {
    asked("aligned_alloc");
    return __libc_memalign(align, n);
}
SL_PUBLIC int posix_memalign(void **out, size_t align, size_t n) {
    asked("posix_memalign");
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

// Mappings that are made while watching: made all the same, so that the program can go on.
#define NEXT(type, name)                                                                           \
    static _Atomic(type) next;                                                                     \
    type f = atomic_load(&next);                                                                   \
    if (!f) {                                                                                      \
        *(void **)&f = dlsym(RTLD_NEXT, name);                                                     \
        atomic_store(&next, f);                                                                    \
    }

typedef void *(*mmap_fn)(void *, size_t, int, int, int, off_t);
SL_PUBLIC void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    asked("mmap");
    NEXT(mmap_fn, "mmap")
    return f(at, n, protection, flags, fd, offset);
}
typedef void *(*sbrk_fn)(intptr_t);
SL_PUBLIC void *sbrk(intptr_t n) {
    asked("sbrk");
    NEXT(sbrk_fn, "sbrk")
    return f(n);
}

static void watch(void) {
    atomic_store(&n_asked, 0);
    atomic_store(&watching, true);
}

static uint32_t calls(void) {
    atomic_store(&watching, false);
    return atomic_load(&n_asked);
}

static void the_trap_works(void **state) {
    (void)state;
    void *volatile p;
    char *volatile text = NULL;
    fprintf(stderr, "two calls on purpose:\n");
    watch();
    p = malloc(10);
    assert_true(asprintf((char **)&text, "%d", 1) == 1); // the C library's own
    assert_true(calls() >= 2);
    free(p);
    free(text);
}

/* ---- a chat ------------------------------------------------------------------------------------ */

typedef struct heard {
    char text[1 << 14];
    size_t n;
    uint32_t n_tokens, n_calls;
} heard;

static bool on_piece(void *user, sl_piece kind, const char *bytes, size_t n) {
    heard *h = user;
    h->n_calls += kind == SL_PIECE_TOOL_CALL;
    if (kind != SL_PIECE_TEXT || n > sizeof(h->text) - h->n)
        return true;
    memcpy(h->text + h->n, bytes, n);
    h->n += n;
    return true;
}

static bool on_token(void *user, uint32_t token) {
    (void)token;
    ((heard *)user)->n_tokens++;
    return true;
}

static bool on_progress(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    (void)user;
    (void)phase;
    return done <= total;
}

static bool drop(void *user, const char *bytes, size_t n) {
    (void)user;
    (void)bytes;
    (void)n;
    return true;
}

/* One turn as a front end does it: render, tokenize, generate. Nothing here allocates. */
static sl_status turn(sl_engine *engine, sl_session *session, const char *json, size_t len,
                      const char *tools, uint32_t max_tokens, heard *h, sl_error *err) {
    static char text[1 << 16];
    static uint32_t ids[2048];
    static const char *const stops[] = {"never in an answer", "\n\n\n\n"};
    size_t n_text, n_ids;
    sl_generate_request request;
    sl_generate_result result;
    sl_progress progress = {on_progress, NULL};
    sl_status st;
    memset(h, 0, sizeof(*h));
    if ((st =
             sl_engine_render(engine, json, len, text, sl_engine_text_max(engine), &n_text, err)) ||
        (st = sl_engine_tokenize(engine, text, n_text, 0, ids, SL_COUNT(ids), &n_ids, err)))
        return st;
    sl_generate_request_init(engine, &request);
    request.prompt = ids;
    request.n_prompt = n_ids;
    request.sampling.seed = 5;
    request.sampling.presence_penalty = 0.1f;
    request.sampling.repeat_penalty = 1.05f;
    request.sampling.min_p = 0.01f;
    request.max_tokens = max_tokens;
    request.stop = stops;
    request.n_stop = SL_COUNT(stops);
    request.parse = true;
    request.tools_json = tools;
    request.on_piece = on_piece;
    request.on_token = on_token;
    request.user = h;
    request.progress = &progress;
    sl_session_reset(session);
    return sl_session_generate(session, &request, &result, err);
}

static const char chat[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Answer briefly.\"},"
    "{\"role\": \"user\", \"content\": \"What is the capital of Italy?\"},"
    "{\"role\": \"assistant\", \"content\": \"The capital of Italy is Rome.\"},"
    "{\"role\": \"user\", \"content\": \"Tell me a story about a fox \\u00e9\\u4f60 and an "
    "owl.\"}],"
    "\"add_generation_prompt\": true, \"enable_thinking\": false}";

static void whole_chat(uint64_t mem, sl_io io, const char *name) {
    static heard h;
    sl_engine_options o;
    sl_engine *engine;
    sl_session *session;
    sl_error err;
    sl_telemetry telemetry;
    sl_memory_info memory;
    sl_plan_info plan;
    sl_model_info model;
    uint32_t n_tools = 0, n_tool_calls = 0, n_tokens = 0;
    uint64_t violations = sl_seal_violations();

    // What belongs to the test is made before.
    static struct {
        char json[1 << 13], tools[1 << 13];
        size_t len;
    } turns[4];
    for (uint32_t i = 0, n = 0; i < demo_n_examples() && n < SL_COUNT(turns); i++) {
        const demo_example *x = demo_example_at(i);
        const sl_json *tools = sl_json_member(x->json, "tools");
        bool thinks = sl_json_is(sl_json_member(x->json, "enable_thinking"), SL_JSON_TRUE);
        if (!tools && !thinks)
            continue;
        const char *request = demo_request(x, &turns[n].len);
        assert_true(turns[n].len < sizeof(turns[n].json));
        memcpy(turns[n].json, request, turns[n].len);
        demo_json(tools, turns[n].tools, sizeof(turns[n].tools));
        n_tools += tools != NULL;
        // Two that think, two with tools.
        n += tools ? n >= 2 : n < 2;
    }
    assert_true(n_tools >= 2);

    sl_engine_options_init(&o);
    o.mem_bytes = mem;
    o.n_ctx = 1024;
    o.n_threads = 2;
    o.chunk = 64;
    o.io = io;
    sl_status st = sl_engine_open(demo_store(), &o, NULL, &engine, &err);
    if (st == SL_ERR_UNSUPPORTED) {
        printf("%s: %s\n", name, err.message);
        return;
    }
    demo_check(st, &err);

    watch();
    st = sl_session_open(engine, &session, &err);
    for (uint32_t i = 0; !st && i < SL_COUNT(turns); i++) {
        st = turn(engine, session, turns[i].json, turns[i].len,
                  turns[i].tools[0] ? turns[i].tools : NULL, 60, &h, &err);
        n_tool_calls += h.n_calls;
        n_tokens += h.n_tokens;
    }
    if (!st)
        st = turn(engine, session, chat, sizeof(chat) - 1, NULL, 40, &h, &err);
    // Refusals and errors allocate as little.
    sl_error ignored;
    static uint32_t many[4096];
    sl_status too_long = sl_session_feed(session, many, SL_COUNT(many), NULL, &ignored);
    uint32_t no_token = UINT32_MAX;
    sl_status unknown = sl_session_feed(session, &no_token, 1, NULL, &ignored);
    sl_status syntax = turn(engine, session, "{", 1, NULL, 4, &h, &ignored);
    sl_session_cancel(session);
    sl_status canceled = sl_session_feed(session, many, 8, NULL, &ignored);
    sl_sink sink = {drop, NULL};
    if (!st)
        st = sl_logits(session, many, 8, &sink, NULL, &err);
    sl_engine_telemetry(engine, &telemetry);
    sl_engine_plan(engine, &plan);
    sl_engine_model(engine, &model);
    sl_session_close(session);
    uint32_t n = calls();
    // The audit maps the store's files to look at the page cache: the one call that may, and not for every token.
    sl_status audited = sl_engine_memory(engine, &memory, &ignored);

    demo_check(st, &err);
    printf("%s, %llu bytes: %u tokens, %u tool calls, %u allocations\n", name,
           (unsigned long long)mem, n_tokens, n_tool_calls, n);
    assert_int_equal(n, 0);
    assert_int_equal(sl_seal_violations(), violations);
    assert_int_equal(too_long, SL_ERR_CONTEXT);
    assert_int_equal(unknown, SL_ERR_ARGUMENT);
    assert_int_equal(syntax, SL_ERR_SYNTAX);
    assert_int_equal(canceled, SL_ERR_CANCELED);
    assert_int_equal(audited, SL_OK);
    assert_true(n_tokens > 60 && n_tool_calls > 0);
    sl_engine_close(engine);
}

static void no_allocation_after_open(void **state) {
    (void)state;
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.n_ctx = 1024;
    o.n_threads = 2;
    o.chunk = 64;
    uint64_t floor = trace_smallest(demo_store(), &o), top = trace_largest(demo_store(), &o);
    sl_engine *none;
    sl_error err;
    o.io = (sl_io)7;
    assert_int_equal(sl_engine_open(demo_store(), &o, NULL, &none, &err), SL_ERR_ARGUMENT);
    o.io = SL_IO_PREAD;
    whole_chat(trace_smallest(demo_store(), &o), SL_IO_PREAD, "pread");
    whole_chat((floor + top) / 2, SL_IO_URING, "io_uring");
    whole_chat(top, SL_IO_AUTO, "auto");
}

/* The layer kinds of every family, streamed and in memory. */
static void every_layer_kind(void **state) {
    (void)state;
    static const char *const families[] = {"qwen3_next", "qwen3_moe", "olmoe",    "deepseek_v3",
                                           "mixtral",    "gpt_oss",   "glm4_moe", "lfm2_moe"};
    static uint32_t tokens[300];
    for (uint32_t i = 0; i < SL_COUNT(tokens); i++)
        tokens[i] = (i * i * 7 + i * 3 + 11) % 509;
    for (uint32_t i = 0; i < 2 * SL_COUNT(families); i++) {
        const char *family = families[i / 2], *store = test_scratch_path(family);
        char src[1024];
        sl_error err;
        sl_convert_options convert;
        sl_convert_report report;
        sl_engine_options o;
        sl_engine *engine;
        sl_session *session;
        sl_sink sink = {drop, NULL};
        (void)snprintf(src, sizeof(src), "%s/goldens/%s", SL_TEST_DATA, family);
        sl_convert_options_init(&convert);
        if (i % 2 == 0)
            demo_check(sl_convert(src, store, &convert, NULL, &report, &err), &err);
        sl_engine_options_init(&o);
        o.n_ctx = 512;
        o.n_threads = 2;
        o.mem_bytes = i % 2 ? trace_largest(store, &o) : trace_smallest(store, &o);
        demo_check(sl_engine_open(store, &o, NULL, &engine, &err), &err);
        watch();
        sl_status st = sl_session_open(engine, &session, &err);
        if (!st)
            st = sl_logits(session, tokens, SL_COUNT(tokens), &sink, NULL, &err);
        for (uint32_t t = 0; !st && t < 20; t++)
            st = sl_session_feed(session, &tokens[t], 1, NULL, &err);
        uint32_t n = calls();
        demo_check(st, &err);
        if (n)
            fail_msg("%s: %u calls for memory", family, n);
        sl_engine_close(engine);
    }
}

int main(void) {
    void *frame;
    (void)backtrace(&frame, 1); // loads what it needs now
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_trap_works),
        cmocka_unit_test(every_layer_kind),
        cmocka_unit_test(no_allocation_after_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
