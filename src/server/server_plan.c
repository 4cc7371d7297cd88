/* How large the parts of a server are. Everything follows from the budget, the context and the options, so that the
 * plan can be shown, and refused, before a model is opened.
 *
 * There are two sizes of server. The frugal one decides what is possible at all; where it leaves much room, the ample
 * one takes its place. So the smallest budget is the same whatever budget was asked for. */
#include <string.h>

#include "server/server_internal.h"

#define AMPLE_ROOM (128 * SL_MIB) /* beyond the smallest budget */
#define SNAPSHOT_SHARE 8u         /* of the budget */
#define BYTES_PER_TOKEN 8u        /* of a prompt's text, as the engine's plan has it */
#define TEXT_BASE 4096u
#define BYTES_PER_LOGPROBS 3072u /* of an answer: a token with 20 alternatives */
#define SEND_SECONDS 10u         /* others wait for the session while a client takes nothing */
#define PARSE_BYTES_PER_BYTE 4u
#define VOCAB_SLACK (64 * SL_KIB)

typedef struct server_scale {
    uint32_t n_connections, n_masks;
    uint64_t connection_bytes; /* out, of each */
    uint64_t schema_bytes;     /* compiled, and for compiling */
    uint64_t answer_bytes;     /* of one that is not streamed, with logprobs */
    uint64_t bodies_bytes;     /* at least */
} server_scale;

static const server_scale frugal = {16, 4, 16 * SL_KIB, 3 * SL_MIB / 2, 256 * SL_KIB, 0};
static const server_scale ample = {80, 32, 32 * SL_KIB, 6 * SL_MIB, 16 * SL_MIB, 4 * SL_MIB};

static uint64_t clamp(uint64_t least, uint64_t value, uint64_t most) {
    return SL_MIN(SL_MAX(least, value), most);
}

static bool token_bytes(const void *ctx, uint32_t id, const char **bytes, size_t *len) {
    sl_token_info t;
    if (!sl_tokenizer_token(ctx, id, &t) || t.special)
        return false;
    *bytes = t.bytes;
    *len = t.len;
    return true;
}

/* Of the tokens as a trie. Which ids end an answer is not known before the model is open, and changes nothing. Without a
 * printable character of its own, a vocabulary cannot spell every answer: 0. */
static sl_status measure_vocab(const char *path, sl_server_sizes *z, uint32_t *n_vocab,
                               sl_error *err) {
    sl_tokenizer *t;
    sl_arena scratch;
    uint64_t *bytes = &z->vocab_bytes;
    sl_status st = sl_tokenizer_open(path, &t, err);
    if (st)
        return st;
    uint32_t n = sl_tokenizer_size(t), end = n - 1;
    const sl_vocab_source source = {
        .n_vocab = n, .token_bytes = token_bytes, .ctx = t, .end_ids = &end, .n_end = 1};
    // A bit for a token; the model may have a few more, without text.
    z->mask_bytes = n / 8 + 1024;
    st = sl_arena_reserve(&scratch, "scratch", 8 * (uint64_t)n + SL_PAGE, err);
    if (!st) {
        st = sl_vocab_measure(&source, &scratch, bytes, err);
        if (st == SL_ERR_UNSUPPORTED)
            st = SL_OK; // *bytes is 0
        sl_arena_unmap(&scratch);
    }
    if (!st && *bytes)
        *bytes = SL_ALIGN_UP(*bytes + VOCAB_SLACK, SL_PAGE);
    *n_vocab = n;
    sl_tokenizer_close(t);
    sl_mem_trim();
    return st;
}

static void http_limits(const sl_server_options *o, const server_scale *scale, uint64_t text,
                        sl_http_options *http) {
    sl_http_options_init(http);
    http->host = o->host;
    http->port = o->port;
    http->hosts = o->hosts;
    http->n_hosts = o->n_hosts;
    http->origins = o->origins;
    http->n_origins = o->n_origins;
    http->keys = o->keys;
    http->n_keys = o->n_keys;
    http->n_connections_max = o->n_connections ? o->n_connections : scale->n_connections;
    http->send_seconds = SEND_SECONDS;
    http->out_bytes = scale->connection_bytes;
    http->body_bytes_max = clamp(256 * SL_KIB, 4 * text, 8 * SL_MIB);
    http->bodies_bytes = scale->bodies_bytes ? SL_MAX(2 * http->body_bytes_max, scale->bodies_bytes)
                                             : http->body_bytes_max + 64 * SL_KIB;
}

// What follows from the scale; the vocabulary is measured already.
static sl_status fill(const sl_server_options *o, const server_scale *scale, uint32_t n_vocab,
                      sl_server_sizes *z, sl_error *err) {
    uint64_t n_ctx = o->engine.n_ctx ? o->engine.n_ctx : 4096;
    z->text_bytes = n_ctx * BYTES_PER_TOKEN + TEXT_BASE;
    z->n_queue = o->n_queue ? o->n_queue : 64;
    z->n_masks = scale->n_masks;
    z->work_bytes =
        z->vocab_bytes
            ? SL_ALIGN_UP(sl_constraint_work_bytes(n_vocab + 8192, z->n_masks) + SL_KIB, SL_PAGE)
            : 0;
    http_limits(o, scale, z->text_bytes, &z->http);
    z->job_bytes = PARSE_BYTES_PER_BYTE * z->http.body_bytes_max + scale->schema_bytes;
    z->out_bytes =
        clamp(64 * SL_KIB,
              SL_MAX(4 * z->text_bytes, SL_MIN(n_ctx * BYTES_PER_LOGPROBS, scale->answer_bytes)),
              16 * SL_MIB);
    uint64_t http = sl_http_arena_bytes(&z->http), rest = sl_http_rest_bytes(&z->http);
    if (http == UINT64_MAX || rest == UINT64_MAX)
        return sl_fail(err, SL_ERR_ARGUMENT, "the server's limits are out of range");
    z->arena_bytes = http + z->n_queue * sizeof(sl_http_exchange *) + z->job_bytes +
                     2 * z->text_bytes + 2 * (n_ctx + 1) * sizeof(uint32_t) + 2 * z->out_bytes +
                     z->mask_bytes + z->vocab_bytes + z->work_bytes +
                     sl_thread_stack_bytes(SL_SERVER_STACK_BYTES) +
                     sl_thread_stack_bytes(SL_SERVER_WATCHER_STACK_BYTES) + 32 * SL_PAGE;
    z->arena_bytes = SL_ALIGN_UP(z->arena_bytes, SL_PAGE);
    z->server_bytes = z->arena_bytes + rest + 2 * SL_THREAD_KERNEL_BYTES + SL_SANDBOX_KERNEL_BYTES +
                      SL_ALIGN_UP(sizeof(sl_server), SL_PAGE);
    return SL_OK;
}

/* What the budget has beyond the smallest one, with a server of these sizes and the snapshots that were asked for. 0
 * where it is too small: opening says why. */
static uint64_t room_beside(const sl_server_options *o, uint64_t budget, sl_server_sizes *z) {
    sl_engine_options options = o->engine;
    sl_plan_info plan;
    options.mem_bytes = budget;
    options.server_bytes = z->server_bytes;
    options.snapshot_bytes = z->snapshot_bytes;
    sl_status st = sl_plan(o->path, &options, false, &plan, NULL);
    z->smallest_bytes = st == SL_OK || st == SL_ERR_BUDGET ? plan.smallest_bytes : 0;
    return st == SL_OK ? budget - plan.smallest_bytes : 0;
}

sl_status sl__server_sizes(const sl_server_options *o, sl_server_sizes *z, sl_error *err) {
    uint64_t budget = o->engine.mem_bytes ? o->engine.mem_bytes : sl_default_mem_bytes();
    bool by_default = o->snapshot_bytes == SL_SERVER_DEFAULT;
    uint32_t n_vocab;
    memset(z, 0, sizeof(*z));
    z->snapshot_bytes = by_default ? 0 : o->snapshot_bytes;
    sl_status st;
    if ((st = measure_vocab(o->path, z, &n_vocab, err)) || (st = fill(o, &frugal, n_vocab, z, err)))
        return st;
    uint64_t room = room_beside(o, budget, z);
    if (room >= AMPLE_ROOM && (st = fill(o, &ample, n_vocab, z, err)))
        return st;
    // Snapshots that nobody asked for take no more than half of it.
    if (by_default)
        z->snapshot_bytes = SL_MIN(budget / SNAPSHOT_SHARE, room / 2);
    return SL_OK;
}

void sl_server_plan(const sl_server *s, sl_plan_info *out) {
    *out = s->plan;
    if (s->sizes.smallest_bytes)
        out->smallest_bytes = s->sizes.smallest_bytes;
}

void sl_server_options_init(sl_server_options *o) {
    memset(o, 0, sizeof(*o));
    sl_engine_options_init(&o->engine);
    o->engine.scope = SL_SCOPE_PROCESS;
    o->snapshot_bytes = SL_SERVER_DEFAULT;
    o->port = SL_SERVER_PORT;
}

sl_status sl_server_engine_options(const sl_server_options *o, sl_engine_options *out,
                                   sl_error *err) {
    sl_server_sizes z;
    sl_status st = sl__server_sizes(o, &z, err);
    if (st)
        return st;
    *out = o->engine;
    out->server_bytes = z.server_bytes;
    out->snapshot_bytes = z.snapshot_bytes;
    return SL_OK;
}
