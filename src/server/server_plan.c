/* How large the parts of a server are. Everything follows from the budget, the context and the options, so that the
 * plan can be shown, and refused, before a model is opened. */
#include <string.h>

#include "server/server_internal.h"

#define SMALL_BUDGET (128 * SL_MIB)
#define SNAPSHOT_SHARE 8u  /* of the budget */
#define BYTES_PER_TOKEN 8u /* of a prompt's text, as the engine's plan has it */
#define TEXT_BASE 4096u
#define BYTES_PER_LOGPROBS 3072u /* of an answer: a token with 20 alternatives */
#define ANSWER_SHARE 256u        /* of the budget, twice: what logprobs may make it larger */
#define SEND_SECONDS 10u         /* others wait for the session while a client takes nothing */
#define PARSE_BYTES_PER_BYTE 4u
#define MASKS_CACHED 32u
#define VOCAB_SLACK (64 * SL_KIB)

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
static sl_status measure_vocab(const char *path, sl_server_sizes *z, sl_error *err) {
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
    if (!st && *bytes) {
        *bytes = SL_ALIGN_UP(*bytes + VOCAB_SLACK, SL_PAGE);
        z->work_bytes =
            SL_ALIGN_UP(sl_constraint_work_bytes(n + 8192, z->n_masks) + SL_KIB, SL_PAGE);
    }
    sl_tokenizer_close(t);
    sl_mem_trim();
    return st;
}

static void http_limits(const sl_server_options *o, uint64_t budget, uint64_t text,
                        sl_http_options *http) {
    bool small = budget < SMALL_BUDGET;
    sl_http_options_init(http);
    http->host = o->host;
    http->port = o->port;
    http->hosts = o->hosts;
    http->n_hosts = o->n_hosts;
    http->origins = o->origins;
    http->n_origins = o->n_origins;
    http->keys = o->keys;
    http->n_keys = o->n_keys;
    http->n_connections_max = o->n_connections ? o->n_connections : small ? 16 : 80;
    http->send_seconds = SEND_SECONDS;
    http->out_bytes = small ? 16 * SL_KIB : 32 * SL_KIB;
    http->body_bytes_max = clamp(256 * SL_KIB, 4 * text, 8 * SL_MIB);
    http->bodies_bytes =
        small ? http->body_bytes_max + 64 * SL_KIB : SL_MAX(2 * http->body_bytes_max, 4 * SL_MIB);
}

/* A share of the budget, and no more than half of what the model itself leaves: otherwise snapshots that nobody asked
 * for would make the smallest budget larger. */
static uint64_t default_snapshots(const sl_server_options *o, uint64_t budget,
                                  uint64_t server_bytes) {
    sl_engine_options without = o->engine;
    sl_plan_info plan;
    without.mem_bytes = budget;
    without.server_bytes = server_bytes;
    without.snapshot_bytes = 0;
    if (sl_plan(o->path, &without, false, &plan, NULL) != SL_OK)
        return 0; // opening says why, with a plan that has none
    return SL_MIN(budget / SNAPSHOT_SHARE, (budget - plan.smallest_bytes) / 2);
}

sl_status sl__server_sizes(const sl_server_options *o, sl_server_sizes *z, sl_error *err) {
    uint64_t budget = o->engine.mem_bytes ? o->engine.mem_bytes : sl_default_mem_bytes();
    uint64_t n_ctx = o->engine.n_ctx ? o->engine.n_ctx : 4096;
    memset(z, 0, sizeof(*z));
    z->text_bytes = n_ctx * BYTES_PER_TOKEN + TEXT_BASE;
    z->n_queue = o->n_queue ? o->n_queue : 64;
    z->n_masks = budget < SMALL_BUDGET ? 4 : MASKS_CACHED;
    http_limits(o, budget, z->text_bytes, &z->http);
    z->job_bytes = PARSE_BYTES_PER_BYTE * z->http.body_bytes_max +
                   clamp(512 * SL_KIB, budget / 32, 6 * SL_MIB);
    uint64_t with_logprobs = SL_MIN(n_ctx * BYTES_PER_LOGPROBS, budget / ANSWER_SHARE);
    z->out_bytes = clamp(64 * SL_KIB, SL_MAX(4 * z->text_bytes, with_logprobs), 16 * SL_MIB);
    sl_status st = measure_vocab(o->path, z, err);
    if (st)
        return st;
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
    z->snapshot_bytes = o->snapshot_bytes == SL_SERVER_DEFAULT
                            ? default_snapshots(o, budget, z->server_bytes)
                            : o->snapshot_bytes;
    return SL_OK;
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
