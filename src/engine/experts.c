/* See experts.h. */
#include "engine/experts_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define TAKE_MAX 32u /* experts that are given at once */

static sl_experts *self(sl_expert_source *source) {
    return (sl_experts *)source;
}

static uint8_t *slot_memory(const sl_experts *x, uint32_t slot) {
    uint64_t stride = x->store->expert.stride;
    return slot < x->ring_slots ? x->ring + slot * stride
                                : x->hot + (slot - x->ring_slots) * stride;
}

uint32_t sl__expert_key(const sl_experts *x, uint32_t layer, uint32_t expert) {
    return layer * x->store->model.moe.n_experts + expert;
}

// Expected number of tokens until the expert of that layer is asked for again.
static float expected_wait(const sl_experts *x, uint32_t key, uint32_t layer) {
    return sl_policy_wait(&x->policy, &x->entries[key].use, layer, x->layer,
                          x->store->model.n_layers);
}

// Of the layer's expert `index`, or SL_NO_SLOT.
static uint32_t slot_of(const sl_experts *x, uint32_t index) {
    return x->entries[sl__expert_key(x, x->layer, x->experts[index])].slot;
}

/* ---- reads ------------------------------------------------------------------------------------- */

// Account for reads that have finished.
static void collect(sl_experts *x) {
    sl_reader_poll(x->reader);
    for (uint32_t i = 0; i < x->n_reads; i++) {
        sl_expert_read *r = &x->reads[i];
        if (!r->used || !r->read.done)
            continue;
        sl_slot *slot = &x->slots[r->slot];
        r->used = false;
        slot->pending--;
        --*(r->guess ? &x->guesses.in_flight : &x->n_under_way);
        int32_t result = r->read.result;
        if (result >= 0 && (uint32_t)result < r->least)
            result = -ENODATA;
        if (result < 0 && !slot->error) {
            slot->error = (int16_t)result;
            slot->error_extent = (uint16_t)r->extent;
        }
        if (result > 0)
            x->read_bytes += (uint64_t)result;
        if (!r->guess && x->n_under_way == 0 && x->n_submitted == x->n)
            sl__guess_demand_ends(x);
    }
}

static void wait_any(sl_experts *x, uint32_t slot) {
    double begin = sl_now();
    for (uint32_t i = 0; i < x->n_reads; i++) {
        if (x->reads[i].used && x->reads[i].slot == slot) {
            sl_reader_wait(x->reader, &x->reads[i].read);
            break;
        }
    }
    x->wait_seconds += sl_now() - begin;
    collect(x);
}

void sl_experts_drain(sl_experts *x) {
    for (uint32_t i = 0; i < x->n_slots; i++)
        while (x->slots[i].pending)
            wait_any(x, i);
}

uint32_t sl__expert_reads_free(const sl_experts *x) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n_reads; i++)
        n += !x->reads[i].used;
    return SL_MIN(n, sl_reader_free(x->reader));
}

/* ---- slots ------------------------------------------------------------------------------------- */

void sl__expert_forget(sl_experts *x, uint32_t slot) {
    sl_slot *s = &x->slots[slot];
    if (sl__slot_has(s, SL_SLOT_GUESSED))
        sl__guess_lost(x, slot);
    if (s->key != SL_NO_KEY)
        x->entries[s->key].slot = SL_NO_SLOT;
    s->key = SL_NO_KEY;
    s->error = 0;
    s->flags &= SL_SLOT_RING;
}

void sl__expert_read(sl_experts *x, uint32_t slot, uint32_t key, bool guess) {
    uint32_t n_experts = x->store->model.moe.n_experts;
    sl_slot *s = &x->slots[slot];
    sl_expert_place place;
    sl_store_expert_place(x->store, key / n_experts, key % n_experts, &place);
    s->key = key;
    s->layer = (uint16_t)(key / n_experts);
    s->flags |= guess ? SL_SLOT_GUESSED : 0;
    x->entries[key].slot = slot;
    for (uint32_t i = 0, j = 0; i < place.n_extents; i++) {
        while (x->reads[j].used)
            j++;
        sl_expert_read *r = &x->reads[j];
        r->used = true;
        r->guess = guess;
        r->slot = slot;
        r->extent = i;
        const sl_file *file = sl_store_file(x->store, place.extents[i].file);
        r->least = sl_file_has(file, place.extents[i].offset, (uint32_t)place.extents[i].bytes);
        r->read = (sl_read){.fd = file->fd,
                            .n_bytes = (uint32_t)place.extents[i].bytes,
                            .offset = place.extents[i].offset,
                            .buf = slot_memory(x, slot) + place.extents[i].slot_at};
        s->pending++;
        ++*(guess ? &x->guesses.in_flight : &x->n_under_way);
        sl_reader_submit(x->reader, &r->read);
    }
}

uint32_t sl__ring_slot(const sl_experts *x, uint32_t i) {
    return x->slots[(x->ring_next + i) % x->ring_slots].ring;
}

/* The hot slot whose expert is expected back last, if that is later than `key` is; SL_NO_SLOT else. */
static uint32_t hot_victim(const sl_experts *x, uint32_t key) {
    uint32_t victim = SL_NO_SLOT;
    float longest = expected_wait(x, key, x->layer);
    for (uint32_t i = 0; i < x->n_slots; i++) {
        const sl_slot *s = &x->slots[i];
        if (s->pins || s->pending || sl__slot_has(s, SL_SLOT_RING))
            continue;
        if (s->key == SL_NO_KEY) // its read failed
            return i;
        float wait = expected_wait(x, s->key, s->layer);
        if (wait > longest) {
            longest = wait;
            victim = i;
        }
    }
    return victim;
}

// A ring slot that is free; one whose guess may still come true only where there is no other.
static uint32_t free_ring_slot(sl_experts *x) {
    uint32_t second = SL_NO_SLOT;
    for (uint32_t i = 0; i < x->ring_slots; i++) {
        uint32_t slot = sl__ring_slot(x, i);
        const sl_slot *s = &x->slots[slot];
        if (s->pins || s->pending)
            continue;
        if (!sl__slot_has(s, SL_SLOT_GUESSED)) {
            x->ring_next = (x->ring_next + i + 1) % x->ring_slots;
            return slot;
        }
        if (second == SL_NO_SLOT)
            second = slot;
    }
    return second;
}

// A slot for an expert that has to be read, or SL_NO_SLOT while all that could serve are in use.
static uint32_t choose_slot(sl_experts *x, uint32_t key) {
    if (x->n_empty_hot)
        return x->n_slots - x->n_empty_hot--;
    uint32_t victim = x->single ? hot_victim(x, key) : SL_NO_SLOT;
    return victim != SL_NO_SLOT ? victim : free_ring_slot(x);
}

/* An expert that was found in the ring is asked for: if a hot one is expected back later, the two slots change
 * their parts. */
static void promote(sl_experts *x, uint32_t slot) {
    if (x->n_slots == x->ring_slots)
        return;
    uint32_t other = x->n_empty_hot ? x->n_slots - x->n_empty_hot--
                     : x->single    ? hot_victim(x, x->slots[slot].key)
                                    : SL_NO_SLOT;
    if (other == SL_NO_SLOT)
        return;
    uint32_t i = 0;
    while (x->slots[i].ring != slot)
        i++;
    x->slots[i].ring = other;
    x->slots[other].flags |= SL_SLOT_RING;
    x->slots[slot].flags &= (uint8_t)~SL_SLOT_RING;
}

// Start reading the next missing expert of the layer. False when it has to wait.
static bool submit_next(sl_experts *x) {
    uint32_t key = sl__expert_key(x, x->layer, x->experts[x->n_submitted]);
    // Present since begin; or it was, has been handed out and given back, and its slot taken since.
    if (x->entries[key].slot != SL_NO_SLOT || x->given[x->n_submitted]) {
        x->n_submitted++;
        return true;
    }
    if (sl__expert_reads_free(x) < x->store->n_extents)
        return false;
    uint32_t slot = choose_slot(x, key);
    if (slot == SL_NO_SLOT)
        return false;
    sl__expert_forget(x, slot);
    sl__expert_read(x, slot, key, false);
    x->slots[slot].pins = 1;
    x->reads_total++;
    sl__layer_count(&x->layers[x->layer].reads, 1);
    x->n_submitted++;
    return true;
}

static void submit_more(sl_experts *x) {
    while (x->n_submitted < x->n && submit_next(x)) {
    }
    sl__guess_submit(x);
}

/* ---- the source --------------------------------------------------------------------------------- */

static void begin(sl_expert_source *source, uint32_t layer, const uint32_t *experts,
                  const uint32_t *n_uses, uint32_t n, bool in_order) {
    sl_experts *x = self(source);
    x->layer = layer;
    x->experts = experts;
    x->n = n;
    x->in_order = in_order;
    x->n_submitted = x->n_given = 0;
    memset(x->given, 0, n);
    uint32_t n_tokens = 0;
    for (uint32_t i = 0; i < n; i++)
        n_tokens += n_uses[i];
    n_tokens = SL_MAX(n_tokens / x->store->model.moe.top_k, 1u);
    x->single = n_tokens == 1;
    collect(x);
    for (uint32_t i = 0; i < n; i++)
        sl_policy_count(&x->policy, &x->entries[sl__expert_key(x, layer, experts[i])].use,
                        n_uses[i], n_tokens);
    uint32_t n_missing = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slot_of(x, i);
        if (slot != SL_NO_SLOT && x->slots[slot].error && !x->slots[slot].pending) {
            sl__expert_forget(x, slot); // a guess that failed: nobody waited for it
            slot = SL_NO_SLOT;
        }
        n_missing += slot == SL_NO_SLOT;
        if (slot == SL_NO_SLOT)
            continue;
        x->slots[slot].pins++;
        if (sl__slot_has(&x->slots[slot], SL_SLOT_GUESSED)) {
            sl__guess_came_true(x, slot);
        } else {
            x->slots[slot].flags &= (uint8_t)~SL_SLOT_CAME_TRUE;
            x->hits++;
            sl__layer_count(&x->layers[layer].hits, 1);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = slot_of(x, i);
        if (slot != SL_NO_SLOT && sl__slot_has(&x->slots[slot], SL_SLOT_RING))
            promote(x, slot);
    }
    sl__guess_layer_begins(x, n_missing);
    submit_more(x);
}

static sl_status read_failed(const sl_experts *x, uint32_t slot, sl_error *err) {
    const sl_slot *s = &x->slots[slot];
    uint32_t n_experts = x->store->model.moe.n_experts, layer = s->key / n_experts,
             expert = s->key % n_experts;
    sl_expert_place place;
    char name[64];
    sl_store_expert_place(x->store, layer, expert, &place);
    const sl_extent *e = &place.extents[s->error ? s->error_extent : 0];
    sl_store_file_name(x->store, e->file, name, sizeof(name));
    unsigned long long offset = e->offset, bytes = e->bytes;
    if (!s->error)
        return sl_fail_at(
            err, SL_ERR_CORRUPT, (int32_t)layer, (int32_t)expert, offset,
            "layer %u expert %u: %s: the %llu bytes at %llu do not have the checksum of the "
            "manifest; `sluice verify` lists all damage, converting again mends it",
            layer, expert, name, bytes, offset);
    if (s->error == -ENODATA)
        return sl_fail_at(
            err, SL_ERR_IO, (int32_t)layer, (int32_t)expert, offset,
            "layer %u expert %u: %s: read fewer than %llu bytes at %llu: the file was cut short",
            layer, expert, name, bytes, offset);
    return sl_fail_at(err, SL_ERR_IO, (int32_t)layer, (int32_t)expert, offset,
                      "layer %u expert %u: %s: reading %llu bytes at %llu failed: %s", layer,
                      expert, name, bytes, offset, sl_errno_text(-s->error));
}

// Index of the expert to hand out now, or x->n while none is ready.
static uint32_t pick_ready(const sl_experts *x) {
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->given[i])
            continue;
        uint32_t slot = slot_of(x, i);
        if (slot != SL_NO_SLOT && !x->slots[slot].pending)
            return i;
        if (x->in_order)
            break;
    }
    return x->n;
}

/* The next expert in order has no slot, since experts that come after it hold the whole ring: take the
 * last one's and read that one again when its turn comes. False where only guesses are in the way. */
static bool steal_slot(sl_experts *x) {
    for (uint32_t i = x->n; i-- > x->n_submitted;) {
        uint32_t slot = slot_of(x, i);
        if (slot != SL_NO_SLOT && sl__slot_has(&x->slots[slot], SL_SLOT_RING) &&
            !x->slots[slot].pending) {
            if (sl__slot_has(&x->slots[slot], SL_SLOT_CAME_TRUE)) {
                x->guesses_used--;
                x->guesses_wasted++;
                sl__layer_count(&x->layers[x->layer].guesses_used, -1);
            } else {
                x->hits--;
                sl__layer_count(&x->layers[x->layer].hits, -1);
            }
            x->slots[slot].pins = 0;
            sl__expert_forget(x, slot);
            return true;
        }
    }
    return false;
}

static void bind_view(const sl_experts *x, uint32_t expert, const uint8_t *slot,
                      sl_expert_view *out) {
    sl_matrix parts[SL_PARTS_MAX] = {0};
    sl_store_expert_bind(x->store, x->layer, expert, slot, parts);
    out->w.gate = parts[SL_PART_GATE];
    out->w.up = parts[SL_PART_UP];
    out->w.down = parts[SL_PART_DOWN];
    out->w.gate_bias = parts[SL_PART_GATE_BIAS].codes;
    out->w.up_bias = parts[SL_PART_UP_BIAS].codes;
    out->w.down_bias = parts[SL_PART_DOWN_BIAS].codes;
}

// Wait until something happens that may make an expert ready.
static void wait_for_next(sl_experts *x) {
    uint32_t first = 0;
    while (x->given[first])
        first++;
    if (first < x->n_submitted) {
        wait_any(x, slot_of(x, first));
        return;
    }
    if (steal_slot(x))
        return;
    // A guess takes the reads, or the slot; it may have come true for another expert and be hot already.
    for (uint32_t i = 0; i < x->n_reads; i++) {
        if (x->reads[i].used) {
            wait_any(x, x->reads[i].slot);
            return;
        }
    }
    assert(!"a ring slot is free, held by a later expert, or being read into");
}

typedef struct check_job {
    sl_experts *x;
    const uint32_t *indices;
} check_job;

static void check_part(void *ctx, uint32_t part, uint32_t thread) {
    const check_job *j = ctx;
    sl_experts *x = j->x;
    uint32_t index = j->indices[part], slot = slot_of(x, index);
    (void)thread;
    if (sl_store_expert_finish(x->store, x->layer, x->experts[index], slot_memory(x, slot)))
        x->slots[slot].flags |= SL_SLOT_CHECKED;
}

// Compare checksums of what was read and not compared since: an expert a thread.
static void check(sl_experts *x, const uint32_t *ready, uint32_t n) {
    uint32_t unchecked[TAKE_MAX], n_unchecked = 0;
    for (uint32_t i = 0; i < n; i++) {
        const sl_slot *s = &x->slots[slot_of(x, ready[i])];
        if (!s->error && !sl__slot_has(s, SL_SLOT_CHECKED))
            unchecked[n_unchecked++] = ready[i];
    }
    check_job j = {x, unchecked};
    // In place there is nothing to compare: waking threads would take longer than what there is to do.
    for (uint32_t i = 0; i < n_unchecked && x->store->in_place; i++)
        check_part(&j, i, 0);
    if (n_unchecked && !x->store->in_place)
        sl_pool_run(x->pool, n_unchecked, check_part, &j);
}

static void give(sl_experts *x, uint32_t index, sl_expert_view *out) {
    x->n_given++;
    out->expert = x->experts[index];
    out->index = index;
    bind_view(x, out->expert, slot_memory(x, slot_of(x, index)), out);
}

static bool is_canceled(const sl_experts *x) {
    return x->canceled && x->canceled(x->user);
}

static sl_status take(sl_expert_source *source, sl_expert_view *out, uint32_t max, bool wait,
                      uint32_t *n, sl_error *err) {
    sl_experts *x = self(source);
    uint32_t ready[TAKE_MAX], n_ready = 0, i;
    assert(x->n_given < x->n);
    *n = 0;
    collect(x);
    submit_more(x);
    while ((i = pick_ready(x)) == x->n && wait) {
        if (is_canceled(x))
            return sl_fail(err, SL_ERR_CANCELED, "canceled");
        wait_for_next(x);
        submit_more(x);
    }
    for (; i < x->n && n_ready < SL_MIN(max, TAKE_MAX); i = pick_ready(x)) {
        x->given[i] = 1;
        ready[n_ready++] = i;
    }
    check(x, ready, n_ready);
    for (uint32_t k = 0; k < n_ready; k++) {
        uint32_t slot = slot_of(x, ready[k]);
        if (x->slots[slot].error || !sl__slot_has(&x->slots[slot], SL_SLOT_CHECKED)) {
            // What is whole goes first, and has to come back; the error is met again.
            for (uint32_t later = k; later < n_ready; later++)
                x->given[ready[later]] = 0;
            return k ? SL_OK : read_failed(x, slot, err);
        }
        give(x, ready[k], &out[k]);
        *n = k + 1;
    }
    return SL_OK;
}

static void release(sl_expert_source *source, const sl_expert_view *view) {
    sl_experts *x = self(source);
    x->slots[x->entries[sl__expert_key(x, x->layer, view->expert)].slot].pins--;
    submit_more(x);
}

/* A slot's reads are no longer waited for: from now on they are a guess. */
static void abandon(sl_experts *x, uint32_t slot) {
    sl_layer_counts *counts = &x->layers[x->layer];
    if (sl__slot_has(&x->slots[slot], SL_SLOT_CAME_TRUE)) {
        x->guesses_used--;
        sl__layer_count(&counts->guesses_used, -1);
    } else {
        x->reads_total--;
        x->guess_reads++;
        sl__layer_count(&counts->reads, -1);
        sl__layer_count(&counts->guess_reads, 1);
    }
    x->slots[slot].flags &= (uint8_t)~SL_SLOT_CAME_TRUE;
    x->slots[slot].flags |= SL_SLOT_GUESSED;
    for (uint32_t i = 0; i < x->n_reads; i++) {
        sl_expert_read *r = &x->reads[i];
        if (!r->used || r->slot != slot || r->guess)
            continue;
        r->guess = true;
        x->n_under_way--;
        x->guesses.in_flight++;
    }
}

static void end(sl_expert_source *source) {
    sl_experts *x = self(source);
    bool hurry = is_canceled(x);
    // After an error: what was asked for and not handed out is unpinned, and failed slots are emptied.
    for (uint32_t i = 0; i < x->n; i++) {
        uint32_t slot = x->given[i] ? SL_NO_SLOT : slot_of(x, i);
        if (slot == SL_NO_SLOT)
            continue;
        while (x->slots[slot].pending && !hurry)
            wait_any(x, slot);
        x->slots[slot].pins = 0;
        if (x->slots[slot].pending)
            abandon(x, slot);
        else if (x->slots[slot].error || !sl__slot_has(&x->slots[slot], SL_SLOT_CHECKED))
            sl__expert_forget(x, slot);
    }
    x->n = x->n_submitted = x->n_given = 0;
}

/* ---- set-up --------------------------------------------------------------------------------------- */

void sl_experts_init(sl_experts *x, const sl_store *store, sl_reader *reader, sl_pool *pool,
                     uint32_t depth, void *ring, uint32_t ring_slots, void *hot, uint32_t hot_slots,
                     void *tables, bool guesses) {
    uint32_t n_experts = store->model.n_layers * store->model.moe.n_experts;
    memset(x, 0, sizeof(*x));
    x->base = (sl_expert_source){0, begin, take, release, end, sl__guess};
    x->store = store;
    x->reader = reader;
    x->pool = pool;
    x->n_reads = SL_MIN(depth, SL_EXPERT_READS_MAX);
    assert(x->n_reads >= store->n_extents && ring_slots >= 2);
    sl_policy_init(&x->policy);
    x->ring = ring;
    x->hot = hot;
    x->ring_slots = ring_slots;
    x->n_slots = ring_slots + hot_slots;
    x->n_empty_hot = hot_slots;
    x->layers = tables;
    x->entries = (sl_expert_entry *)(x->layers + store->model.n_layers);
    x->slots = (sl_slot *)(x->entries + n_experts);
    x->given = (uint8_t *)(x->slots + x->n_slots);
    for (uint32_t i = 0; i < n_experts; i++)
        x->entries[i].slot = SL_NO_SLOT;
    for (uint32_t i = 0; i < x->n_slots; i++)
        x->slots[i].key = SL_NO_KEY;
    for (uint32_t i = 0; i < ring_slots; i++) {
        x->slots[i].flags = SL_SLOT_RING;
        x->slots[i].ring = i;
    }
    sl__guess_init(x, guesses);
}

void sl_experts_tick(sl_experts *x, uint32_t n_tokens) {
    x->tokens += n_tokens;
    sl_policy_tick(&x->policy, n_tokens);
}
