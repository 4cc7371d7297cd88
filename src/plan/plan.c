/* The solver. Everything is a sum of sizes; the only choices are the chunk, the ring, which trunk tensors
 * stay, and the number of hot slots. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "model/forward.h"
#include "plan/sizes.h"
#include "text/tokenizer.h"

static const struct {
    const char *name, *purpose;
} accounts[SL_ACCOUNT_COUNT] = {
    [SL_ACCOUNT_CODE] = {"code", "the program, its libraries and the caller's own data"},
    [SL_ACCOUNT_THREADS] = {"threads", "stacks of the threads that compute and read"},
    [SL_ACCOUNT_KERNEL] = {"kernel", "what the kernel holds for us: page tables, threads, rings"},
    [SL_ACCOUNT_TRUNK] = {"trunk",
                          "weights that every token uses, and strips of those that stream"},
    [SL_ACCOUNT_EMBEDDING] = {"embedding",
                              "rows of the input table: those in use, and recent ones"},
    [SL_ACCOUNT_HEAD] = {"head", "the output matrix, from hidden state to vocabulary"},
    [SL_ACCOUNT_KV] = {"kv", "keys and values of every position of the context"},
    [SL_ACCOUNT_STATE] = {"state", "recurrent state, the same size at any context"},
    [SL_ACCOUNT_SCRATCH] = {"scratch", "activations of one chunk of tokens, logits, sampler"},
    [SL_ACCOUNT_RING] = {"ring", "experts on their way from disk through the computation"},
    [SL_ACCOUNT_HOT] = {"hot", "experts kept in memory because they are likely to be needed again"},
    [SL_ACCOUNT_TEXT] = {"text", "tokenizer, chat template and the text of the prompt"},
    [SL_ACCOUNT_SNAPSHOTS] = {"snapshots",
                              "states of earlier conversations, so that a turn computes only what "
                              "is new"},
    [SL_ACCOUNT_SERVER] = {"server", "connections, requests, queues and answers on their way"},
    [SL_ACCOUNT_RESERVE] = {"reserve", "left free, since the kernel charges memory in batches"},
};

const char *sl_account_name(sl_account_id id) {
    return accounts[id].name;
}
const char *sl_account_purpose(sl_account_id id) {
    return accounts[id].purpose;
}

/* ---- sizes ------------------------------------------------------------------------------------ */

static uint64_t page_up(uint64_t bytes) {
    return SL_ALIGN_UP(bytes, SL_PAGE);
}

uint64_t sl_plan_weight_table_bytes(const sl_store *store) {
    return SL_ALIGN_UP((uint64_t)store->n_tensors * sizeof(sl_weight), 64) +
           SL_ALIGN_UP((uint64_t)store->model.n_layers * sizeof(sl_layer_weights), 64);
}

uint64_t sl_plan_tensor_bytes(const sl_store_tensor *t) {
    return SL_ALIGN_UP(t->layout.bytes, SL_MATRIX_ALIGN);
}

bool sl_plan_tensor_can_stream(const sl_store_tensor *t) {
    return t->shape.rows > 1 && sl_role_kind(t->role) == SL_TENSOR_MATRIX &&
           sl_store_tensor_part(t, 0).file != SL_FILE_NONE;
}

uint32_t sl_plan_strip_rows(const sl_matrix_layout *l, uint32_t n_rows, uint64_t strip_bytes) {
    uint64_t slack = SL_STRIP_PARTS * 2 * SL_PAGE;
    uint64_t row = l->row_code_bytes + l->row_scale_bytes + l->row_bias_bytes;
    uint64_t rows = strip_bytes > slack ? (strip_bytes - slack) / row : 0;
    return (uint32_t)SL_MIN(SL_MAX(rows, 1u), n_rows);
}

uint64_t sl_plan_streamed_bytes(const sl_store_tensor *t, uint64_t strip_bytes) {
    const sl_matrix_layout *l = &t->layout;
    const uint64_t row_bytes[SL_STRIP_PARTS] = {l->row_code_bytes, l->row_scale_bytes,
                                                l->row_bias_bytes};
    uint32_t step = sl_plan_strip_rows(l, t->shape.rows, strip_bytes);
    uint64_t sum = 0;
    for (uint32_t row = 0; row < t->shape.rows; row += step) {
        uint32_t n = SL_MIN(step, t->shape.rows - row);
        for (uint32_t i = 0; i < SL_STRIP_PARTS && row_bytes[i]; i++) {
            uint64_t from = sl_store_tensor_part(t, i).at + row * row_bytes[i];
            sum += page_up(from + n * row_bytes[i]) - from / SL_PAGE * SL_PAGE;
        }
    }
    return sum;
}

uint64_t sl_plan_row_buffer_bytes(const sl_store *store) {
    const sl_embed_layout *e = &store->embed;
    if (!store->in_place)
        return page_up(e->stride) + SL_PAGE;
    const uint64_t part[] = {e->scales_at, e->biases_at - e->scales_at,
                             e->row_bytes - e->biases_at};
    uint64_t sum = 0;
    for (size_t i = 0; i < SL_COUNT(part); i++)
        sum += part[i] ? page_up(part[i]) + SL_PAGE : 0;
    return sum;
}

uint64_t sl_plan_row_cache_bytes(const sl_store *store, uint32_t n_rows) {
    return (uint64_t)n_rows * store->embed.stride +
           SL_ALIGN_UP((uint64_t)n_rows * sizeof(uint32_t), 64);
}

uint64_t sl_plan_n_experts(const sl_store *store) {
    return (uint64_t)sl_model_ffn_count(&store->model, SL_FFN_MOE) * store->model.moe.n_experts;
}

uint64_t sl_plan_hot_table_bytes(const sl_store *store, uint32_t n_slots) {
    uint64_t n_experts = (uint64_t)store->model.n_layers * store->model.moe.n_experts;
    return SL_ALIGN_UP(n_experts * SL_EXPERT_ENTRY_BYTES, 64) +
           SL_ALIGN_UP((uint64_t)n_slots * SL_SLOT_ENTRY_BYTES, 64) +
           SL_ALIGN_UP((uint64_t)store->model.n_layers * SL_LAYER_COUNTS_BYTES, 64);
}

uint64_t sl_plan_sampler_bytes(const sl_model *m) {
    return (uint64_t)m->n_vocab * SL_SAMPLER_TOKEN_BYTES;
}

uint64_t sl_plan_template_bytes(const sl_store *store) {
    return store->chat_template.bytes ? store->chat_template.bytes * 10 + 16 * SL_KIB : 0;
}

/* ---- the parts of a plan ---------------------------------------------------------------------- */

// Bytes of trunk tensors: those that cannot stream, those that can without the head, the head.
typedef struct trunk_sums {
    uint64_t fixed, matrices, head, row_max;
} trunk_sums;

static trunk_sums sum_trunk(const sl_store *store) {
    trunk_sums s = {0};
    for (uint32_t i = 0; i < store->n_tensors; i++) {
        const sl_store_tensor *t = &store->tensors[i];
        uint64_t bytes = sl_plan_tensor_bytes(t);
        if (!sl_plan_tensor_can_stream(t))
            s.fixed += bytes;
        else if (t->role == SL_ROLE_HEAD)
            s.head += bytes;
        else
            s.matrices += bytes;
        s.row_max = SL_MAX(s.row_max, t->layout.row_code_bytes + t->layout.row_scale_bytes +
                                          t->layout.row_bias_bytes);
    }
    return s;
}

/* A strip holds whole rows of codes, scales and biases, each read as its own run of pages. */
static uint64_t strip_bytes(uint64_t budget, uint64_t row_max) {
    uint64_t bytes = SL_MIN(budget / 64, SL_STRIP_BYTES_MAX);
    bytes = SL_MAX(bytes, SL_STRIP_BYTES_MIN);
    bytes = SL_MAX(bytes, row_max + 6 * SL_PAGE);
    return SL_ALIGN_UP(bytes, SL_PAGE);
}

// Page tables for everything else, at one entry of 8 bytes per page and some levels above.
static uint64_t page_tables(uint64_t others) {
    return page_up(others / 512) + SL_PAGE_TABLE_BASE_BYTES;
}

typedef struct choice {
    uint32_t chunk, ring_slots, hot_slots;
    uint64_t trunk_resident, head_resident, strip;
    uint32_t rows;
} choice;

static uint64_t account_sum(const sl_plan_result *r) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++)
        sum += r->account[i];
    return sum;
}

/* Every account for a choice. Returns the total. */
static uint64_t fill(const sl_plan_input *in, uint32_t n_ctx, const choice *c, sl_plan_result *r) {
    const sl_store *store = in->store;
    const sl_model *m = &store->model;
    uint64_t *a = r->account;
    memset(a, 0, sizeof(r->account));
    r->n_ctx = n_ctx;
    r->n_threads = in->n_threads;
    r->chunk = c->chunk;
    r->ring_slots = c->ring_slots;
    r->hot_slots = c->hot_slots;
    r->strip_bytes = c->strip;
    r->row_buffers = SL_MIN(c->chunk, SL_ROW_BUFFERS_MAX);
    r->row_buffer_bytes = sl_plan_row_buffer_bytes(store);
    r->text_max = (uint64_t)n_ctx * SL_TEXT_BYTES_PER_TOKEN + SL_TEXT_BYTES_BASE;

    a[SL_ACCOUNT_CODE] = in->process ? page_up(in->code_bytes) : 0;
    a[SL_ACCOUNT_THREADS] = page_up(in->thread_stack_bytes) + page_up(in->reader_bytes);
    a[SL_ACCOUNT_TRUNK] = page_up(c->trunk_resident + sl_plan_weight_table_bytes(store)) +
                          2 * c->strip + page_up(store->arena.used + in->engine_bytes);
    a[SL_ACCOUNT_HEAD] = page_up(c->head_resident);
    r->row_cache = c->rows;
    a[SL_ACCOUNT_EMBEDDING] =
        r->row_buffers * r->row_buffer_bytes + page_up(sl_plan_row_cache_bytes(store, c->rows));
    a[SL_ACCOUNT_KV] = page_up(sl_kv_bytes(m, n_ctx));
    a[SL_ACCOUNT_STATE] = page_up(sl_recurrent_bytes(m));
    a[SL_ACCOUNT_SCRATCH] = page_up(sl_scratch_bytes(m, c->chunk) + sl_plan_sampler_bytes(m));
    r->ring_bytes = c->ring_slots * store->expert.stride;
    if (store->in_place)
        r->ring_bytes = SL_MAX(r->ring_bytes, page_up(store->in_place->prepare_bytes));
    a[SL_ACCOUNT_RING] = r->ring_bytes;
    a[SL_ACCOUNT_HOT] = c->hot_slots * store->expert.stride +
                        page_up(sl_plan_hot_table_bytes(store, c->hot_slots + c->ring_slots));
    if (store->tokenizer.bytes) {
        r->text_workspace_bytes =
            SL_MAX(sl_tok_workspace_bytes((size_t)SL_MIN(r->text_max, SL_TEXT_PIECE_MAX)),
                   r->text_max * SL_RENDER_BYTES_PER_BYTE + SL_RENDER_BYTES_BASE);
        // The caller's copies: the conversation as JSON, the rendered prompt, its tokens.
        uint64_t client = in->process ? 2 * r->text_max + 4 * ((uint64_t)n_ctx + 1) : 0;
        a[SL_ACCOUNT_TEXT] =
            page_up(SL_ALIGN_UP(store->tokenizer.bytes, 64) + sl_plan_template_bytes(store) +
                    SL_ALIGN_UP(r->text_workspace_bytes, 64)) +
            page_up(client);
    }
    a[SL_ACCOUNT_SNAPSHOTS] = page_up(in->snapshot_bytes);
    a[SL_ACCOUNT_SERVER] = page_up(in->server_bytes);
    a[SL_ACCOUNT_RESERVE] = in->n_cpus * SL_RESERVE_BYTES_PER_CPU;
    a[SL_ACCOUNT_KERNEL] = page_up(SL_KERNEL_BASE_BYTES + in->kernel_bytes +
                                   sl_store_n_files(store) * SL_KERNEL_BYTES_PER_FILE);
    r->kernel_fixed_bytes = a[SL_ACCOUNT_KERNEL];
    uint64_t others = account_sum(r) - a[SL_ACCOUNT_RESERVE];
    a[SL_ACCOUNT_KERNEL] += page_tables(others);
    r->total_bytes = account_sum(r);
    return r->total_bytes;
}

static choice smallest_choice(const sl_plan_input *in, const trunk_sums *sums) {
    choice c = {.chunk = in->chunk ? in->chunk : 1, .ring_slots = SL_RING_SLOTS_MIN};
    c.trunk_resident = sums->fixed;
    c.strip = sums->matrices + sums->head ? strip_bytes(0, sums->row_max) : 0;
    // Where all streamed tensors are smaller than the strips, keeping them is the smaller plan.
    if (sums->matrices + sums->head <= 2 * c.strip) {
        c.trunk_resident += sums->matrices;
        c.head_resident = sums->head;
        c.strip = 0;
    }
    return c;
}

/* ---- refusal ---------------------------------------------------------------------------------- */

static void describe_bytes(sl_buf *b, uint64_t bytes) {
    if (bytes >= SL_GIB)
        sl_buf_printf(b, "%.2f GiB", (double)bytes / (double)SL_GIB);
    else if (bytes >= SL_MIB)
        sl_buf_printf(b, "%.1f MiB", (double)bytes / (double)SL_MIB);
    else
        sl_buf_printf(b, "%llu KiB", (unsigned long long)((bytes + SL_KIB - 1) / SL_KIB));
}

/* What is there before the accounts are, when a checkpoint is opened in place: tokenizer and tables, and what making them
 * takes. */
static uint64_t open_peak(const sl_plan_input *in, const sl_plan_result *r) {
    const sl_store *s = in->store;
    if (!s->in_place)
        return 0;
    return page_up(s->in_place->open_bytes + s->arena.used + in->engine_bytes) +
           r->account[SL_ACCOUNT_CODE] + r->account[SL_ACCOUNT_RESERVE] + r->kernel_fixed_bytes;
}

static sl_status refuse(const sl_plan_input *in, const trunk_sums *sums, sl_plan_result *r,
                        sl_error *err) {
    char text[SL_ERROR_MESSAGE_MAX];
    sl_buf b;
    sl_buf_init_fixed(&b, text, sizeof(text));
    sl_buf_add_text(&b, "a budget of ");
    describe_bytes(&b, in->budget_bytes);
    sl_buf_add_text(&b, " is too small: the smallest that works is ");
    describe_bytes(&b, r->smallest_bytes);
    sl_buf_printf(&b, " (%llu bytes) at a context of %u.", (unsigned long long)r->smallest_bytes,
                  in->n_ctx);
    sl_buf_add_text(&b, " Largest accounts:");
    bool told[SL_ACCOUNT_COUNT] = {false};
    for (int n = 0; n < 4; n++) {
        unsigned best = SL_ACCOUNT_COUNT;
        for (unsigned i = 0; i < SL_ACCOUNT_COUNT; i++)
            if (!told[i] && (best == SL_ACCOUNT_COUNT || r->account[i] > r->account[best]))
                best = i;
        told[best] = true;
        sl_buf_printf(&b, "%s %s ", n ? "," : "", accounts[best].name);
        describe_bytes(&b, r->account[best]);
    }
    if (r->open_bytes == r->smallest_bytes) {
        sl_buf_add_text(&b, ". Opening the checkpoint in place takes ");
        describe_bytes(&b, r->open_bytes);
        sl_buf_add_text(&b, " for a moment; a converted model does not");
    }
    // The largest context, in steps of a power of two, that fits.
    choice c = smallest_choice(in, sums);
    for (uint32_t n_ctx = in->n_ctx / 2; n_ctx >= 64; n_ctx /= 2) {
        sl_plan_result smaller;
        memset(&smaller, 0, sizeof(smaller));
        if (fill(in, n_ctx, &c, &smaller) <= in->budget_bytes) {
            sl_buf_printf(&b, ". A context of %u fits this budget", n_ctx);
            break;
        }
    }
    r->total_bytes = 0;
    return sl_fail(err, SL_ERR_BUDGET, "%s", text);
}

/* ---- solve ------------------------------------------------------------------------------------ */

static const uint32_t chunks[] = {2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2};

// Use some of what is left for a larger chunk, for recent rows, and for a ring that takes a token's experts twice.
static void widen(const sl_plan_input *in, choice *c) {
    sl_plan_result r;
    memset(&r, 0, sizeof(r));
    uint64_t least = fill(in, in->n_ctx, c, &r);
    uint64_t left = in->budget_bytes - least;
    for (size_t i = 0; !in->chunk && i < SL_COUNT(chunks); i++) {
        choice wider = *c;
        wider.chunk = SL_MIN(chunks[i], in->n_ctx);
        uint64_t total = fill(in, in->n_ctx, &wider, &r);
        // Every expert passes once a chunk: a long prompt gains by a large one, a short one gains nothing.
        uint32_t share = wider.chunk > 512 ? SL_LARGE_CHUNK_SHARE : SL_CHUNK_SHARE;
        if (total >= least && total - least <= left / share) {
            *c = wider;
            left -= total - least;
            least = total;
            break;
        }
    }
    choice rows = *c;
    rows.rows = (uint32_t)SL_MIN(in->budget_bytes / SL_ROW_CACHE_SHARE /
                                     (in->store->embed.stride + sizeof(uint32_t)),
                                 in->store->embed.shape.rows);
    uint64_t with_rows = fill(in, in->n_ctx, &rows, &r);
    if (with_rows - least <= left / SL_CHUNK_SHARE) {
        *c = rows;
        left -= with_rows - least;
    }
    uint64_t per_slot =
        in->store->expert.stride + in->store->expert.stride / 512 + SL_SLOT_ENTRY_BYTES;
    // A token's experts, and as many guesses of the next layer's.
    uint32_t wide = 2 * in->store->model.moe.top_k;
    uint32_t more = wide > c->ring_slots ? wide - c->ring_slots : 0;
    more = (uint32_t)SL_MIN(more, left / SL_RING_SHARE / per_slot);
    c->ring_slots += more;
}

static bool fits(const sl_plan_input *in, const choice *c, sl_plan_result *r) {
    return fill(in, in->n_ctx, c, r) <= in->budget_bytes;
}

/* Keep trunk tensors in order of use, the head last, as far as they fit. */
static void keep_trunk(const sl_plan_input *in, const trunk_sums *sums, choice *c,
                       sl_plan_result *r, uint8_t *resident) {
    const sl_store *store = in->store;
    choice all = *c;
    all.trunk_resident = sums->fixed + sums->matrices;
    all.head_resident = sums->head;
    all.strip = 0;
    bool everything = c->strip == 0 || fits(in, &all, r);
    if (everything)
        *c = all;
    else
        c->strip = strip_bytes(in->budget_bytes, sums->row_max);
    if (!everything && !fits(in, c, r))
        c->strip = strip_bytes(0, sums->row_max);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < store->n_tensors; i++) {
            const sl_store_tensor *t = &store->tensors[i];
            bool head = t->role == SL_ROLE_HEAD, streams = sl_plan_tensor_can_stream(t);
            if (head != (pass == 1))
                continue;
            bool keep = everything || !streams;
            if (!keep) {
                choice more = *c;
                *(head ? &more.head_resident : &more.trunk_resident) += sl_plan_tensor_bytes(t);
                keep = fits(in, &more, r);
                if (keep)
                    *c = more;
            }
            if (resident)
                resident[i] = keep;
            if (!keep) {
                r->n_streamed++;
                r->streamed_bytes += sl_plan_streamed_bytes(t, c->strip);
            }
        }
    }
}

static void keep_experts(const sl_plan_input *in, choice *c, sl_plan_result *r) {
    const sl_store *store = in->store;
    uint64_t most = sl_plan_n_experts(store);
    uint64_t total = fill(in, in->n_ctx, c, r);
    uint64_t n = (in->budget_bytes - total) / store->expert.stride;
    c->hot_slots = (uint32_t)SL_MIN(n, most);
    // Tables and page tables of the slots take their share: step back until it fits.
    while (c->hot_slots && !fits(in, c, r)) {
        uint64_t over =
            (r->total_bytes - in->budget_bytes + store->expert.stride - 1) / store->expert.stride;
        c->hot_slots -= (uint32_t)SL_MIN(over, c->hot_slots);
    }
    // With the slots went their tables: one of them may fit after all.
    choice more = *c;
    while (++more.hot_slots <= most && fits(in, &more, r))
        *c = more;
    more = *c;
    more.rows = store->embed.shape.rows;
    if (c->hot_slots == most && fits(in, &more, r))
        *c = more;
}

/* Expert and trunk bytes that one token of an answer reads. High: uniform routing, so that the hot share
 * of the experts catches that share of the picks. Low: skewed routing, of the kind that trained models
 * show, in which a share s of the experts takes about sqrt(s) of the picks. */
static void estimate_reads(const sl_plan_input *in, sl_plan_result *r) {
    const sl_store *store = in->store;
    double experts = (double)sl_plan_n_experts(store);
    double uses = experts / store->model.moe.n_experts * store->model.moe.top_k *
                  (double)store->expert.stride;
    double share = SL_MIN((double)r->hot_slots / experts, 1.0);
    uint64_t fixed = r->streamed_bytes + (r->row_cache == store->embed.shape.rows ? 0 : SL_PAGE);
    r->token_read_bytes_high = fixed + (uint64_t)(uses * (1 - share));
    r->token_read_bytes_low = fixed + (uint64_t)(uses * (1 - sqrt(share)));
}

sl_status sl_plan_solve(const sl_plan_input *in, sl_plan_result *r, uint8_t *resident,
                        sl_error *err) {
    trunk_sums sums = sum_trunk(in->store);
    memset(r, 0, sizeof(*r));
    choice c = smallest_choice(in, &sums);
    r->budget_bytes = in->budget_bytes;
    uint64_t smallest = page_up(fill(in, in->n_ctx, &c, r));
    r->open_bytes = open_peak(in, r);
    smallest = SL_MAX(smallest, r->open_bytes);
    r->smallest_bytes = smallest;
    if (in->budget_bytes < smallest)
        return refuse(in, &sums, r, err);
    widen(in, &c);
    keep_trunk(in, &sums, &c, r, resident);
    keep_experts(in, &c, r);
    (void)fill(in, in->n_ctx, &c, r);
    estimate_reads(in, r);
    return SL_OK;
}
