/* Faults: every read of a token that comes short or fails, damaged records, files that are cut short
 * or damaged before and after open, cancellation at any moment. Each gives a typed error that names the
 * place; afterwards the engine answers the next request with the same bits as before, and nothing stays
 * behind. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "helpers/demo.h"
#include "helpers/held.h"
#include "helpers/trace.h"
#include "helpers/scratch.h"
#include "io/reader_internal.h"

#define N_TOKENS 3 /* a chunk of two, in which experts come in order, and one alone */
#define CTX 256

static const uint32_t tokens[N_TOKENS] = {8180, 268, 4839};

/* ---- engines ----------------------------------------------------------------------------------- */

typedef struct opened {
    sl_engine *engine;
    sl_session *session;
} opened;

static sl_engine_options options_of(uint64_t mem, sl_io io) {
    sl_engine_options o;
    sl_engine_options_init(&o);
    o.mem_bytes = mem;
    o.n_ctx = CTX;
    o.n_threads = 2;
    o.chunk = 2;
    o.io = io;
    return o;
}

// part: 0 is the floor, 16 is everything in memory.
static uint64_t budget_of(uint32_t part) {
    sl_engine_options o = options_of(0, SL_IO_PREAD);
    uint64_t floor = trace_smallest(demo_store(), &o), top = trace_largest(demo_store(), &o);
    return floor + (top - floor) * part / 16;
}

/* The smallest budget, in steps of 64 KiB, at which so many experts stay. */
static uint64_t budget_with_hot(uint32_t hot_slots, sl_io io) {
    sl_engine_options o = options_of(0, io);
    sl_plan_info plan;
    sl_error err;
    o.mem_bytes = trace_smallest(demo_store(), &o);
    do {
        o.mem_bytes += 64 * SL_KIB;
        demo_check(sl_plan(demo_store(), &o, false, &plan, &err), &err);
    } while (plan.hot_slots < hot_slots);
    return o.mem_bytes;
}

static sl_status try_open(const char *store, uint64_t mem, sl_io io, opened *out, sl_error *err) {
    sl_engine_options o = options_of(mem, io);
    o.no_guesses = true; // whose failures nobody notices: test_experts has them
    memset(out, 0, sizeof(*out));
    sl_status st = sl_engine_open(store, &o, NULL, &out->engine, err);
    return st ? st : sl_session_open(out->engine, &out->session, err);
}

static opened open_at(const char *store, uint64_t mem, sl_io io) {
    opened x;
    sl_error err;
    demo_check(try_open(store, mem, io, &x, &err), &err);
    return x;
}

static sl_status feed(const opened *x, sl_hash128 *logits, sl_error *err) {
    memset(logits, 0, sizeof(*logits));
    sl_session_reset(x->session);
    sl_status st = sl_session_feed(x->session, tokens, N_TOKENS, NULL, err);
    if (!st)
        *logits =
            sl_hash(sl_session_logits(x->session), x->engine->store.model.n_vocab * sizeof(float));
    return st;
}

static sl_hash128 answer_of(const opened *x) {
    sl_hash128 logits;
    sl_error err;
    demo_check(feed(x, &logits, &err), &err);
    return logits;
}

static bool has(const sl_error *err, const char *text) {
    return strstr(err->message, text) != NULL;
}

/* ---- injected ---------------------------------------------------------------------------------- */

typedef struct seen {
    uint32_t n_experts, n_trunk, n_head, n_rows;
} seen;

/* The error names what failed: layer, expert, file and offset where there are such. */
static void check_place(const opened *x, const sl_error *err, seen *s) {
    const sl_store *store = &x->engine->store;
    char name[64], offset[32];
    (void)snprintf(offset, sizeof(offset), "%llu", (unsigned long long)err->offset);
    if (!has(err, offset))
        fail_msg("the offset %s is not in: %s", offset, err->message);
    if (err->expert >= 0) {
        sl_expert_place place;
        assert_in_range(err->layer, 0, store->model.n_layers - 1);
        assert_in_range(err->expert, 0, store->model.moe.n_experts - 1);
        sl_store_expert_place(store, (uint32_t)err->layer, (uint32_t)err->expert, &place);
        sl_store_file_name(store, place.extents[0].file, name, sizeof(name));
        assert_int_equal(err->offset, place.extents[0].offset);
        assert_true(has(err, name));
        (void)snprintf(name, sizeof(name), "layer %d expert %d", err->layer, err->expert);
        assert_true(has(err, name));
        s->n_experts++;
    } else if (has(err, SL_STORE_TRUNK)) {
        assert_true(err->offset < sl_store_trunk_file_bytes(store));
        if (err->layer < 0) {
            assert_true(has(err, "head"));
            s->n_head++;
            return;
        }
        assert_in_range(err->layer, 0, store->model.n_layers - 1);
        (void)snprintf(name, sizeof(name), "layer %d ", err->layer);
        assert_true(has(err, name));
        s->n_trunk++;
    } else {
        assert_true(has(err, SL_STORE_EMBED));
        assert_int_equal(err->layer, -1);
        assert_true(err->offset < sl_store_embed_file_bytes(store));
        s->n_rows++;
    }
}

/* Let one read of the tokens fail, a later one in every round, until there is none. Short reads and
 * errors take turns. Rows stay in a small cache once read, so they fail in the first rounds only.
 * Returns the number of rounds. */
static uint32_t sweep(const opened *x, uint32_t step, seen *s) {
    static const sl_fault_kind kinds[] = {SL_FAULT_SHORT, SL_FAULT_EIO};
    sl_hash128 expected = {0}, got;
    sl_error err;
    uint32_t round = 0;
    memset(s, 0, sizeof(*s));
    for (uint32_t n = 1;; n += step, round++) {
        sl_fault_kind kind = kinds[round % 2];
        sl_reader_inject(x->engine->reader, kind, n);
        sl_status st = feed(x, &got, &err);
        if (!st) {
            // No such read, so nothing has failed.
            assert_true(x->engine->reader->fault_in > 0);
            break;
        }
        assert_int_equal(st, SL_ERR_IO);
        assert_int_equal(err.status, SL_ERR_IO);
        assert_int_equal(x->engine->reader->fault_in, 0);
        assert_true(has(&err, kind == SL_FAULT_EIO ? "Input/output error" : "cut short"));
        check_place(x, &err, s);
        assert_int_equal(sl_session_length(x->session), 0);
        assert_null(sl_session_logits(x->session));
        got = answer_of(x);
        if (round == 0)
            expected = got;
        assert_true(sl_hash_equal(got, expected));
        assert_true(n < 4096);
    }
    sl_reader_inject(x->engine->reader, SL_FAULT_NONE, 0);
    assert_true(round > 1 && sl_hash_equal(answer_of(x), expected));
    return round;
}

static void any_read_at_the_floor(void **state) {
    (void)state;
    seen s;
    opened x = open_at(demo_store(), budget_of(0), SL_IO_PREAD);
    assert_true(x.engine->plan.n_streamed > 0);
    // A strip is three reads: a step that is no multiple of three meets each of them.
    uint32_t n = sweep(&x, 5, &s);
    printf("%u reads failed one by one: %u experts, %u strips, %u of the head, %u rows\n", n,
           s.n_experts, s.n_trunk, s.n_head, s.n_rows);
    assert_true(s.n_experts > 12 && s.n_trunk > 48 && s.n_head > 0 && s.n_rows > 0);
    sl_engine_close(x.engine);
}

static void reads_with_a_hot_tier(void **state) {
    (void)state;
    static const sl_io ios[] = {SL_IO_AUTO, SL_IO_PREAD};
    for (uint32_t k = 0; k < SL_COUNT(ios); k++) {
        seen s;
        // Fewer slots than the tokens' experts: each round reads some.
        opened x = open_at(demo_store(), budget_with_hot(20, ios[k]), ios[k]);
        assert_in_range(x.engine->plan.hot_slots, 20, 60);
        (void)sweep(&x, 1, &s);
        assert_true(s.n_experts > 0);
        sl_engine_close(x.engine);
    }
}

/* One inverted bit in a record: the checksum tells. Strips and rows have theirs compared at open. */
static void damaged_records(void **state) {
    (void)state;
    opened x = open_at(demo_store(), budget_with_hot(30, SL_IO_PREAD), SL_IO_PREAD);
    sl_hash128 expected, got;
    sl_error err;
    uint32_t n_found = 0;
    seen s = {0};
    assert_int_equal(x.engine->plan.n_streamed, 0);
    expected = answer_of(&x); // from here on the rows are in their cache: all reads are experts
    for (uint32_t n = 1;; n++) {
        sl_reader_inject(x.engine->reader, SL_FAULT_FLIP, n);
        sl_status st = feed(&x, &got, &err);
        if (!st) {
            assert_true(x.engine->reader->fault_in > 0);
            break;
        }
        assert_int_equal(st, SL_ERR_CORRUPT);
        assert_true(has(&err, "checksum"));
        check_place(&x, &err, &s);
        assert_true(sl_hash_equal(answer_of(&x), expected));
        n_found++;
    }
    assert_true(n_found > 0);
    assert_int_equal(s.n_experts, n_found);
    sl_engine_close(x.engine);
}

/* ---- on the drive ------------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to) {
    static uint8_t block[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ssize_t n;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, block, sizeof(block))) > 0)
        assert_int_equal(write(out, block, (size_t)n), n);
    assert_int_equal(n, 0);
    // Direct reads follow, and pages that stay would be in the way of the proof that they are direct.
    assert_int_equal(fsync(out), 0);
    (void)posix_fadvise(in, 0, 0, POSIX_FADV_DONTNEED);
    (void)posix_fadvise(out, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(in);
    (void)close(out);
}

static const char *const store_files[] = {SL_STORE_MANIFEST, SL_STORE_TRUNK, SL_STORE_EMBED,
                                          SL_STORE_TEXT, SL_STORE_SUMS};

static const char *path_in(const char *store, const char *name) {
    static char paths[4][1024];
    static unsigned at;
    char *p = paths[at++ % 4];
    (void)snprintf(p, sizeof(paths[0]), "%s/%s", store, name);
    return p;
}

static const char *expert_file(uint32_t layer) {
    static char name[64];
    (void)snprintf(name, sizeof(name), SL_STORE_EXPERT_FILE, layer);
    return name;
}

/* A store to damage: a copy of the converted one. */
static const char *copy_store(void) {
    static char copy[768];
    if (copy[0])
        return copy;
    (void)snprintf(copy, sizeof(copy), "%s", test_scratch_path("damaged"));
    assert_int_equal(mkdir(copy, 0755), 0);
    assert_int_equal(mkdir(path_in(copy, SL_STORE_EXPERTS), 0755), 0);
    for (size_t i = 0; i < SL_COUNT(store_files); i++)
        copy_file(path_in(demo_store(), store_files[i]), path_in(copy, store_files[i]));
    for (uint32_t layer = 0; layer < 12; layer++)
        copy_file(path_in(demo_store(), expert_file(layer)), path_in(copy, expert_file(layer)));
    return copy;
}

static void restore(const char *name) {
    copy_file(path_in(demo_store(), name), path_in(copy_store(), name));
}

// Invert a bit in every `every` bytes from `from` on.
static void damage(const char *name, uint64_t from, uint64_t every) {
    const char *path = path_in(copy_store(), name);
    struct stat st;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    for (uint64_t at = from; at < (uint64_t)st.st_size; at += every) {
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    assert_int_equal(fsync(fd), 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(fd);
}

static void cut(const char *name, uint64_t bytes) {
    assert_int_equal(truncate(path_in(copy_store(), name), (off_t)bytes), 0);
}

static sl_error refused(sl_status expected, const char *file, const char *what) {
    opened x;
    sl_error err;
    sl_status st = try_open(copy_store(), budget_of(0), SL_IO_PREAD, &x, &err);
    printf("%s %s: %s: %s\n", file, what, sl_status_name(st), err.message);
    assert_int_equal(st, expected);
    assert_null(x.engine);
    assert_true(has(&err, file));
    return err;
}

static void damage_before_open(void **state) {
    (void)state;
    for (size_t i = 0; i < SL_COUNT(store_files); i++) {
        const char *name = store_files[i];
        bool manifest = i == 0;
        damage(name, manifest ? 40 : 4096 + 1000, manifest ? 1000 : UINT32_MAX);
        // In the manifest the bit may be in any field: it is no JSON, or not what it says.
        if (!manifest)
            (void)refused(SL_ERR_CORRUPT, name, "with an inverted bit");
        restore(name);
        cut(name, manifest ? 1000 : 4096);
        (void)refused(SL_ERR_CORRUPT, name, "cut short");
        restore(name);
    }
    cut(expert_file(5), 4096 * 100);
    (void)refused(SL_ERR_CORRUPT, expert_file(5), "cut short");
    restore(expert_file(5));
    damage(SL_STORE_TRUNK, 1200000, UINT32_MAX);
    sl_error err = refused(SL_ERR_CORRUPT, SL_STORE_TRUNK, "with an inverted bit");
    assert_true(err.layer >= 0 && err.offset > 1000000 && err.offset <= 1200000);
    restore(SL_STORE_TRUNK);
    opened x = open_at(copy_store(), budget_of(0), SL_IO_PREAD);
    sl_engine_close(x.engine);
}

static void next_request_answers(const opened *x, sl_hash128 expected) {
    assert_true(sl_hash_equal(answer_of(x), expected));
}

static void damage_after_open(void **state) {
    (void)state;
    static const uint32_t parts[] = {0, 3};
    for (uint32_t i = 0; i < SL_COUNT(parts); i++) {
        opened x = open_at(copy_store(), budget_of(parts[i]), SL_IO_PREAD);
        sl_hash128 got, expected = answer_of(&x);
        sl_error err;
        const uint32_t layers[] = {0, 5, 11};
        for (uint32_t l = 0; l < SL_COUNT(layers); l++) {
            char file[64];
            seen s = {0};
            (void)snprintf(file, sizeof(file), "%s", expert_file(layers[l]));
            // Every record of the layer. What is in memory already is used from there.
            damage(file, 777, x.engine->store.expert.stride);
            sl_status st = feed(&x, &got, &err);
            if (parts[i] == 0 || st) {
                assert_int_equal(st, SL_ERR_CORRUPT);
                assert_int_equal(err.layer, layers[l]);
                check_place(&x, &err, &s);
                assert_int_equal(s.n_experts, 1);
            }
            restore(file);
            next_request_answers(&x, expected);

            cut(file, 0);
            st = feed(&x, &got, &err);
            if (parts[i] == 0 || st) {
                assert_int_equal(st, SL_ERR_IO);
                assert_int_equal(err.layer, layers[l]);
                assert_true(has(&err, "cut short"));
                check_place(&x, &err, &s);
            }
            restore(file);
            next_request_answers(&x, expected);
        }
        if (x.engine->plan.n_streamed) {
            cut(SL_STORE_TRUNK, 8192);
            assert_int_equal(feed(&x, &got, &err), SL_ERR_IO);
            assert_true(has(&err, SL_STORE_TRUNK) && has(&err, "cut short"));
            restore(SL_STORE_TRUNK);
            next_request_answers(&x, expected);
        }
        sl_engine_close(x.engine);
    }
}

/* ---- cancel ------------------------------------------------------------------------------------- */

typedef struct canceler {
    sl_session *session;
    unsigned microseconds;
} canceler;

static void *cancel_soon(void *ctx) {
    const canceler *c = ctx;
    struct timespec wait = {0, (long)c->microseconds * 1000};
    (void)nanosleep(&wait, NULL);
    sl_session_cancel(c->session);
    return NULL;
}

static bool count_token(void *user, uint32_t token) {
    (void)token;
    ++*(uint32_t *)user;
    return true;
}

static sl_generate_result generate(const opened *x, uint32_t max_tokens, uint32_t *n_tokens) {
    const demo_example *story = demo_example_at(29);
    sl_generate_request request;
    sl_generate_result result;
    sl_error err;
    sl_generate_request_init(x->engine, &request);
    request.prompt = story->prompt_ids;
    request.n_prompt = story->n_prompt;
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    request.on_token = count_token;
    request.user = n_tokens;
    *n_tokens = 0;
    sl_session_reset(x->session);
    demo_check(sl_session_generate(x->session, &request, &result, &err), &err);
    assert_int_equal(*n_tokens, result.n_generated);
    return result;
}

static void cancel_at_any_moment(void **state) {
    (void)state;
    opened x = open_at(demo_store(), budget_of(1), SL_IO_AUTO);
    sl_hash128 expected = answer_of(&x);
    uint32_t n_prefill = 0, n_decode = 0, n_late = 0, n_tokens;
    sl_generate_result whole = generate(&x, 12, &n_tokens);
    assert_int_equal(whole.finish, SL_FINISH_LENGTH);
    double seconds = whole.prefill_seconds + whole.decode_seconds;
    for (uint32_t i = 0; i < 24; i++) {
        canceler c = {x.session, (unsigned)(seconds * 1e6 * i / 20)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &c), 0);
        sl_generate_result r = generate(&x, 12, &n_tokens);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (r.finish == SL_FINISH_CANCEL)
            ++*(r.n_prompt ? &n_decode : &n_prefill);
        else
            n_late++;
        // A cancel that came after the end stops the next call, and that one alone.
        if (r.finish != SL_FINISH_CANCEL && generate(&x, 1, &n_tokens).finish != SL_FINISH_CANCEL)
            fail_msg("a cancel between two calls was lost");
        assert_true(sl_hash_equal(answer_of(&x), expected));
    }
    printf("canceled: %u in the prompt, %u in the answer, %u too late\n", n_prefill, n_decode,
           n_late);
    assert_true(n_prefill > 0);
    sl_engine_close(x.engine);
}

// Certainly in the middle of each phase: the callback that runs there waits for the other thread.
static bool cancel_from_elsewhere(void *user) {
    canceler c = {user, 0};
    pthread_t thread;
    return pthread_create(&thread, NULL, cancel_soon, &c) == 0 && pthread_join(thread, NULL) == 0;
}

static bool cancel_in_prefill(void *user, sl_phase phase, uint64_t done, uint64_t total) {
    (void)phase;
    return done != total / 2 / 2 * 2 || cancel_from_elsewhere(user);
}

static bool cancel_at_token(void *user, uint32_t token) {
    (void)token;
    opened *x = user;
    return sl_session_length(x->session) != 30 || cancel_from_elsewhere(x->session);
}

static void cancel_in_each_phase(void **state) {
    (void)state;
    opened x = open_at(demo_store(), budget_of(1), SL_IO_PREAD);
    sl_hash128 expected = answer_of(&x);
    const demo_example *story = demo_example_at(29);
    sl_generate_request request;
    sl_generate_result result;
    sl_error err;
    sl_progress progress = {cancel_in_prefill, x.session};

    sl_session_reset(x.session);
    assert_int_equal(
        sl_session_feed(x.session, story->prompt_ids, story->n_prompt, &progress, &err),
        SL_ERR_CANCELED);
    assert_int_equal(sl_session_length(x.session), 0);
    assert_true(sl_hash_equal(answer_of(&x), expected));

    sl_session_reset(x.session);
    sl_generate_request_init(x.engine, &request);
    request.prompt = story->prompt_ids;
    request.n_prompt = story->n_prompt;
    request.sampling.temperature = 0;
    request.progress = &progress;
    demo_check(sl_session_generate(x.session, &request, &result, &err), &err);
    assert_int_equal(result.finish, SL_FINISH_CANCEL);
    assert_int_equal(result.n_generated, 0);
    assert_true(sl_hash_equal(answer_of(&x), expected));

    sl_session_reset(x.session);
    request.progress = NULL;
    request.on_token = cancel_at_token;
    request.user = &x;
    demo_check(sl_session_generate(x.session, &request, &result, &err), &err);
    assert_int_equal(result.finish, SL_FINISH_CANCEL);
    assert_int_equal(result.n_prompt, story->n_prompt);
    assert_in_range(result.n_generated, 5, 7);
    assert_true(sl_hash_equal(answer_of(&x), expected));
    sl_engine_close(x.engine);
}

/* ---- the memory limit ---------------------------------------------------------------------------- */

static uint64_t limit_bytes;
static uint32_t n_looks;

static uint64_t limit_now(void) {
    n_looks++;
    return limit_bytes;
}

static bool lower_limit(void *user, uint32_t token) {
    opened *x = user;
    (void)token;
    if (sl_session_length(x->session) >= 30) {
        limit_bytes = x->engine->plan.total_bytes / 2;
        x->engine->limit_look = 0; // a second has passed
    }
    return true;
}

// Says what there is, what is needed and what to do.
static void check_limit_error(const opened *x, const sl_error *err) {
    char number[32];
    assert_int_equal(err->status, SL_ERR_BUDGET);
    (void)snprintf(number, sizeof(number), "(%llu bytes)", (unsigned long long)limit_bytes);
    assert_true(has(err, number));
    (void)snprintf(number, sizeof(number), "(%llu bytes)",
                   (unsigned long long)(x->engine->plan.total_bytes / SL_PAGE * SL_PAGE));
    assert_true(has(err, number));
    assert_true(has(err, "raise the group's limit"));
}

/* A container lowers its limit: the next token is refused, and the session is what it was before. */
static void a_limit_that_is_lowered(void **state) {
    (void)state;
    const demo_example *story = demo_example_at(29);
    opened x = open_at(demo_store(), budget_of(2), SL_IO_AUTO);
    sl_hash128 expected, got;
    sl_error err;
    sl_generate_request request;
    sl_generate_result result;
    const uint32_t next = 300;
    expected = answer_of(&x);
    demo_check(sl_session_feed(x.session, &next, 1, NULL, &err), &err);
    const sl_hash128 after =
        sl_hash(sl_session_logits(x.session), x.engine->store.model.n_vocab * sizeof(float));

    // As large as the plan is enough; one page less is not.
    x.engine->memory_limit = limit_now;
    x.engine->limit_look = 0;
    limit_bytes = x.engine->plan.total_bytes / SL_PAGE * SL_PAGE;
    assert_true(sl_hash_equal(answer_of(&x), expected));
    assert_int_equal(n_looks, 1);
    assert_true(sl_hash_equal(answer_of(&x), expected));
    assert_int_equal(n_looks, 1); // a second has not passed
    limit_bytes -= SL_PAGE;
    x.engine->limit_look = 0;
    assert_int_equal(sl_session_feed(x.session, &next, 1, NULL, &err), SL_ERR_BUDGET);
    check_limit_error(&x, &err);
    assert_int_equal(sl_session_length(x.session), N_TOKENS);
    got = sl_hash(sl_session_logits(x.session), x.engine->store.model.n_vocab * sizeof(float));
    assert_true(sl_hash_equal(got, expected));
    // Raised again, it goes on from there.
    limit_bytes += SL_PAGE;
    x.engine->limit_look = 0;
    demo_check(sl_session_feed(x.session, &next, 1, NULL, &err), &err);
    got = sl_hash(sl_session_logits(x.session), x.engine->store.model.n_vocab * sizeof(float));
    assert_true(sl_hash_equal(got, after));

    // In the middle of an answer.
    limit_bytes = UINT64_MAX;
    sl_session_reset(x.session);
    sl_generate_request_init(x.engine, &request);
    request.prompt = story->prompt_ids;
    request.n_prompt = story->n_prompt;
    request.sampling.temperature = 0;
    request.on_token = lower_limit;
    request.user = &x;
    assert_int_equal(sl_session_generate(x.session, &request, &result, &err), SL_ERR_BUDGET);
    check_limit_error(&x, &err);
    assert_int_equal(sl_session_length(x.session), 30);
    // Between two chunks of a prompt, whose first ones are lost.
    sl_session_reset(x.session);
    x.engine->limit_look = sl_now() + 0.001;
    sl_reader_slow(x.engine->reader, 1, 0.001);
    assert_int_equal(sl_session_feed(x.session, story->prompt_ids, story->n_prompt, NULL, &err),
                     SL_ERR_BUDGET);
    check_limit_error(&x, &err);
    assert_int_equal(sl_session_length(x.session), 0);
    sl_reader_slow(x.engine->reader, 0, 0);
    limit_bytes = UINT64_MAX;
    x.engine->limit_look = 0;
    assert_true(sl_hash_equal(answer_of(&x), expected));
    sl_engine_close(x.engine);
}

// Before anything is counted.
static int set_up(void **state) {
    (void)state;
    (void)demo_store();
    (void)demo_example_at(0);
    (void)copy_store();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_LEAVES_NOTHING(any_read_at_the_floor), TEST_LEAVES_NOTHING(reads_with_a_hot_tier),
        TEST_LEAVES_NOTHING(damaged_records),       TEST_LEAVES_NOTHING(damage_before_open),
        TEST_LEAVES_NOTHING(damage_after_open),     TEST_LEAVES_NOTHING(cancel_at_any_moment),
        TEST_LEAVES_NOTHING(cancel_in_each_phase),  TEST_LEAVES_NOTHING(a_limit_that_is_lowered),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
