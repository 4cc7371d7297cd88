/* See snapshots.h. A record is a head, the tokens and the copy of the state, each in whole cache lines. */
#include "engine/snapshots.h"

#include <string.h>

typedef struct record {
    uint64_t bytes;   /* of the whole record */
    uint64_t used_at; /* of the clock */
    uint32_t n_tokens;
} record;

#define LINE 64u

static uint64_t head_bytes(uint32_t n_tokens) {
    return LINE + SL_ALIGN_UP((uint64_t)n_tokens * sizeof(uint32_t), LINE);
}

uint64_t sl_snapshots_history_bytes(uint32_t n_ctx) {
    return SL_ALIGN_UP((uint64_t)n_ctx * sizeof(uint32_t), LINE);
}

uint64_t sl_snapshot_bytes(const sl_model *model, uint32_t n_ctx, uint32_t n_tokens) {
    const sl_state state = {.n_ctx = n_ctx, .n_past = n_tokens};
    return head_bytes(n_tokens) + SL_ALIGN_UP(sl_state_copy_bytes(&state, model), LINE);
}

void sl_snapshots_init(sl_snapshots *s, uint32_t n_ctx, void *memory, uint64_t bytes) {
    memset(s, 0, sizeof(*s));
    uint64_t history = sl_snapshots_history_bytes(n_ctx);
    if (bytes < history)
        return;
    s->history = memory;
    s->block = (uint8_t *)memory + history;
    s->cap = (bytes - history) / LINE * LINE;
}

static record *at(const sl_snapshots *s, uint64_t offset) {
    return (record *)(void *)(s->block + offset);
}

static const uint32_t *tokens_of(const record *r) {
    return (const uint32_t *)((const uint8_t *)r + LINE);
}

static const void *state_of(const record *r) {
    return (const uint8_t *)r + head_bytes(r->n_tokens);
}

static bool begins_with(const uint32_t *tokens, size_t n, const uint32_t *beginning, size_t len) {
    return len <= n && memcmp(tokens, beginning, len * sizeof(*tokens)) == 0;
}

// The longest record that tokens [n] begin with, shorter than n; NULL without one.
static record *find(const sl_snapshots *s, const uint32_t *tokens, size_t n) {
    record *best = NULL;
    for (uint64_t offset = 0; offset < s->used; offset += at(s, offset)->bytes) {
        record *r = at(s, offset);
        if (r->n_tokens < n && (!best || r->n_tokens > best->n_tokens) &&
            begins_with(tokens, n, tokens_of(r), r->n_tokens))
            best = r;
    }
    return best;
}

static void drop_oldest(sl_snapshots *s) {
    uint64_t oldest = 0;
    for (uint64_t offset = 0; offset < s->used; offset += at(s, offset)->bytes)
        if (at(s, offset)->used_at < at(s, oldest)->used_at)
            oldest = offset;
    uint64_t bytes = at(s, oldest)->bytes;
    memmove(s->block + oldest, s->block + oldest + bytes, s->used - oldest - bytes);
    s->used -= bytes;
    s->n--;
}

bool sl_snapshots_keep(sl_snapshots *s, const sl_state *state, const sl_model *model) {
    uint32_t n = state->n_past;
    uint64_t bytes = sl_snapshot_bytes(model, state->n_ctx, n);
    if (!s->history || n == 0 || bytes > s->cap)
        return false;
    record *same = find(s, s->history, (size_t)n + 1);
    if (same && same->n_tokens == n) {
        same->used_at = ++s->clock;
        return true;
    }
    while (s->cap - s->used < bytes)
        drop_oldest(s);
    record *r = at(s, s->used);
    *r = (record){.bytes = bytes, .used_at = ++s->clock, .n_tokens = n};
    memcpy((uint8_t *)r + LINE, s->history, n * sizeof(*s->history));
    sl_state_copy(state, model, (uint8_t *)r + head_bytes(n));
    s->used += bytes;
    s->n++;
    return true;
}

// Tokens that the state has in common with the beginning of tokens [n], and that it can go back to.
static uint32_t kept_in_place(const sl_snapshots *s, const sl_state *state, const sl_model *model,
                              const uint32_t *tokens, size_t n) {
    uint32_t most = (uint32_t)SL_MIN(state->n_past, n - 1), same = 0;
    while (same < most && s->history[same] == tokens[same])
        same++;
    return same == state->n_past || sl_state_can_shorten(state, model) ? same : 0;
}

uint32_t sl_snapshots_rewind(sl_snapshots *s, sl_state *state, const sl_model *model,
                             const uint32_t *tokens, size_t n) {
    if (!s->history || n == 0) {
        sl_state_reset(state, model);
        return 0;
    }
    uint32_t kept = kept_in_place(s, state, model, tokens, n);
    record *r = find(s, tokens, n);
    if (r && r->n_tokens > kept) {
        r->used_at = ++s->clock;
        kept = r->n_tokens;
        sl_state_restore(state, model, kept, state_of(r));
        memcpy(s->history, tokens, kept * sizeof(*tokens));
    } else if (kept == 0) {
        sl_state_reset(state, model);
    }
    state->n_past = kept;
    return kept;
}
