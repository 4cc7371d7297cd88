/* The hot tier and the ring, driven directly: experts of random layers and chunks, with reads that fail
 * now and then. Whatever happens, each expert that is handed out holds the bytes of the store, each is
 * handed out once, and the tables stay consistent. */
#include "engine/experts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "helpers/demo.h"
#include "plan/plan.h"

#define LAYERS 12u
#define EXPERTS 64u
#define TOP_K 4u
#define DEPTH 4u

static sl_store store;

static int set_up(void **state) {
    (void)state;
    sl_error err;
    demo_check(sl_store_open(demo_store(), SL_DIRECT_REQUIRED, &store, &err), &err);
    assert_int_equal(store.model.n_layers, LAYERS);
    assert_int_equal(store.model.moe.n_experts, EXPERTS);
    assert_int_equal(store.model.moe.top_k, TOP_K);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    sl_store_close(&store);
    return 0;
}

typedef struct tier {
    sl_experts x;
    sl_arena arena;
    sl_reader *reader;
    sl_pool pool;
} tier;

static void tier_open(tier *t, sl_reader_kind kind, uint32_t ring_slots, uint32_t hot_slots,
                      bool guesses) {
    sl_error err;
    uint64_t tables = sl_plan_hot_table_bytes(&store, ring_slots + hot_slots);
    uint64_t slots = (uint64_t)(ring_slots + hot_slots) * store.expert.stride;
    demo_check(sl_arena_map(&t->arena, "experts",
                            slots + tables + sl_reader_bytes(kind, DEPTH) + 2 * SL_PAGE, &err),
               &err);
    uint8_t *ring = sl_arena_alloc(&t->arena, ring_slots * store.expert.stride, SL_PAGE);
    uint8_t *hot = sl_arena_alloc(&t->arena, hot_slots * store.expert.stride, SL_PAGE);
    void *memory = sl_arena_alloc(&t->arena, (size_t)tables, 64);
    demo_check(sl_pool_init(&t->pool, 1, NULL, NULL, &err), &err);
    demo_check(sl_reader_open(kind, DEPTH, &t->arena, &t->reader, &err), &err);
    sl_experts_init(&t->x, &store, t->reader, &t->pool, DEPTH, ring, ring_slots, hot, hot_slots,
                    memory, guesses);
}

static void tier_close(tier *t) {
    sl_experts_drain(&t->x);
    sl_reader_close(t->reader);
    sl_pool_deinit(&t->pool);
    sl_arena_unmap(&t->arena);
}

/* Between layers nothing is pinned, nothing but guesses is under way, entries and slots point at each other, and
 * the ring is a list of its slots. */
static void check_tables(const sl_experts *x) {
    uint32_t n_held = 0, n_ring = 0;
    for (uint32_t i = 0; i < x->ring_slots; i++)
        assert_true(x->slots[x->slots[i].ring].flags & SL_SLOT_RING);
    for (uint32_t i = 0; i < x->n_slots; i++) {
        const sl_slot *s = &x->slots[i];
        bool guess = s->flags & SL_SLOT_GUESSED;
        n_ring += (s->flags & SL_SLOT_RING) != 0;
        assert_int_equal(s->pins, 0);
        if (!guess)
            assert_int_equal(s->pending, 0);
        if (s->key == UINT32_MAX)
            continue;
        n_held++;
        assert_true(s->key < LAYERS * EXPERTS);
        assert_int_equal(x->entries[s->key].slot, i);
        if (!guess) {
            assert_int_equal(s->error, 0);
            assert_true(s->flags & SL_SLOT_CHECKED);
        }
    }
    assert_int_equal(n_ring, x->ring_slots);
    for (uint32_t k = 0; k < LAYERS * EXPERTS; k++)
        if (x->entries[k].slot != UINT32_MAX) {
            n_held--;
            assert_int_equal(x->slots[x->entries[k].slot].key, k);
        }
    assert_int_equal(n_held, 0);
}

// What layers have counted is what was counted in all.
static void check_layers(const sl_experts *x) {
    uint64_t hits = 0, reads = 0, guess_reads = 0, guesses_used = 0;
    for (uint32_t i = 0; i < store.model.n_layers; i++) {
        hits += x->layers[i].hits;
        reads += x->layers[i].reads;
        guess_reads += x->layers[i].guess_reads;
        guesses_used += x->layers[i].guesses_used;
    }
    assert_int_equal(hits, x->hits);
    assert_int_equal(reads, x->reads_total);
    assert_int_equal(guess_reads, x->guess_reads);
    assert_int_equal(guesses_used, x->guesses_used);
}

static uint64_t random_state;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* Serve one layer. Returns the status; after an error, how far it came does not matter. */
static sl_status serve(tier *t, uint32_t layer, const uint32_t *experts, const uint32_t *n_uses,
                       uint32_t n, bool in_order, sl_error *err) {
    sl_expert_source *s = &t->x.base;
    bool given[EXPERTS] = {false};
    sl_status st = SL_OK;
    uint64_t hits = t->x.hits, counted = hits + t->x.guesses_used + t->x.reads_total;
    s->begin(s, layer, experts, n_uses, n, in_order);
    for (uint32_t i = 0; i < n;) {
        sl_expert_view views[EXPERTS];
        uint32_t got, max = in_order ? 1 : 1 + random_below(EXPERTS);
        if ((st = s->take(s, views, max, random_below(4) > 0, &got, err)))
            break;
        assert_true(got <= max);
        for (uint32_t j = 0; j < got; j++) {
            const sl_expert_view *v = &views[j];
            assert_true(v->index < n && v->expert == experts[v->index]);
            assert_false(given[v->index]);
            given[v->index] = true;
            if (in_order)
                assert_int_equal(v->index, i);
            // The view is the record, to the last byte.
            const uint8_t *record = (const uint8_t *)v->w.gate.codes -
                                    store.expert.at[SL_PART_GATE] -
                                    store.expert.layout[SL_PART_GATE].codes_at;
            assert_true(sl_store_expert_intact(&store, layer, v->expert, record));
        }
        for (uint32_t j = 0; j < got; j++)
            s->release(s, &views[j]);
        i += got;
    }
    s->end(s);
    // Each that was asked for counts once and as what it was, also where it lost its slot and was read after all.
    assert_true(t->x.hits >= hits && t->x.hits - hits <= n);
    if (!st)
        assert_int_equal(t->x.hits + t->x.guesses_used + t->x.reads_total, counted + n);
    check_tables(&t->x);
    check_layers(&t->x);
    return st;
}

// n different experts, ascending; low ids more often.
static uint32_t random_experts(uint32_t n, uint32_t *experts) {
    bool used[EXPERTS] = {false};
    for (uint32_t i = 0; i < n; i++)
        used[random_below(1 + random_below(EXPERTS))] = true;
    n = 0;
    for (uint32_t e = 0; e < EXPERTS; e++)
        if (used[e])
            experts[n++] = e;
    return n;
}

/* With guesses, no reads fail: a guess that does shows in a later round. */
static void random_work(sl_reader_kind kind, uint32_t ring_slots, uint32_t hot_slots,
                        uint32_t rounds, bool guesses) {
    static const sl_fault_kind faults[] = {SL_FAULT_SHORT, SL_FAULT_EIO, SL_FAULT_FLIP};
    tier t = {0};
    uint32_t n_failed = 0;
    tier_open(&t, kind, ring_slots, hot_slots, guesses);
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t layer = round % LAYERS, experts[EXPERTS], n_uses[EXPERTS], n;
        bool single = random_below(3) > 0;
        if (single) {
            // A token: exactly top-k experts.
            while ((n = random_experts(6, experts)) != TOP_K) {
            }
        } else {
            n = random_experts(1 + random_below(90), experts);
        }
        for (uint32_t i = 0; i < n; i++)
            n_uses[i] = single ? 1 : 1 + random_below(9);
        if (layer == 0)
            sl_experts_tick(&t.x, 1 + random_below(3));
        sl_fault_kind fault = faults[random_below(3)];
        sl_reader_inject(t.reader, guesses || random_below(6) ? SL_FAULT_NONE : fault,
                         1 + random_below(5));
        if (guesses) {
            uint32_t guess[8], n_guess = 1 + random_below(8);
            for (uint32_t i = 0; i < n_guess; i++)
                guess[i] = random_below(3) && i < n ? experts[i] : random_below(EXPERTS);
            t.x.base.guess(&t.x.base, layer, guess, n_guess);
        }
        sl_error err;
        sl_status st = serve(&t, layer, experts, n_uses, n, !single, &err);
        sl_reader_inject(t.reader, SL_FAULT_NONE, 0);
        if (st) {
            n_failed++;
            assert_int_equal(st, fault == SL_FAULT_FLIP ? SL_ERR_CORRUPT : SL_ERR_IO);
            assert_int_equal(err.layer, layer);
            bool asked = false;
            for (uint32_t i = 0; i < n; i++)
                asked |= experts[i] == (uint32_t)err.expert;
            assert_true(asked);
            // The same again works.
            assert_int_equal(serve(&t, layer, experts, n_uses, n, !single, &err), SL_OK);
        }
    }
    assert_true(guesses || hot_slots == LAYERS * EXPERTS || n_failed > 0);
    assert_int_equal(t.x.guesses_used + t.x.guesses_wasted <= t.x.guess_reads, 1);
    if (guesses && ring_slots > 3 && hot_slots < LAYERS * EXPERTS)
        assert_true(t.x.guesses_used > 0);
    sl_experts_drain(&t.x);
    assert_int_equal(t.x.read_bytes % store.expert.stride, 0);
    printf("%s, ring %u, hot %u: %llu hits, %llu reads, %u failures\n", sl_reader_kind_name(kind),
           ring_slots, hot_slots, (unsigned long long)t.x.hits, (unsigned long long)t.x.reads_total,
           n_failed);
    tier_close(&t);
}

static void any_sequence(void **state) {
    (void)state;
    static const uint32_t sizes[][2] = {{2, 0},  {3, 0},  {4, 0},   {16, 0}, {2, 1},
                                        {2, 10}, {4, 40}, {3, 200}, {4, 768}};
    sl_reader_kind kinds[] = {SL_READER_PREAD, SL_READER_URING};
    random_state = 11;
    for (size_t k = 0; k < SL_COUNT(kinds) - !sl_reader_uring_works(); k++)
        for (size_t i = 0; i < SL_COUNT(sizes); i++)
            for (int guesses = 0; guesses < 2; guesses++)
                random_work(kinds[k], sizes[i][0], sizes[i][1], 300, guesses);
}

static uint64_t reads_of(tier *t, uint32_t layer, const uint32_t *experts, uint32_t n,
                         uint32_t uses) {
    static uint32_t n_uses[EXPERTS];
    sl_error err;
    uint64_t before = t->x.reads_total;
    for (uint32_t i = 0; i < n; i++)
        n_uses[i] = uses;
    demo_check(serve(t, layer, experts, n_uses, n, uses > 1, &err), &err);
    return t->x.reads_total - before;
}

/* Experts that every token uses stay, however many others pass through. */
static void favourites_stay(void **state) {
    (void)state;
    tier t = {0};
    tier_open(&t, SL_READER_PREAD, 2, 6, false);
    uint64_t late_reads = 0;
    for (uint32_t token = 0; token < 200; token++) {
        // Two favourites of layers 3 and 7, two strangers each time.
        const uint32_t a[] = {1, 2, 10 + token % 50, 62}, b[] = {0, 5 + token % 40, 50, 60};
        sl_experts_tick(&t.x, 1);
        (void)reads_of(&t, 3, a, 4, 1);
        uint64_t reads = reads_of(&t, 7, b, 4, 1);
        if (token > 50)
            late_reads += reads;
    }
    // In layer 7 one of four is new each time: the rest stays.
    assert_in_range(late_reads, 149 * 1, 149 * 1 + 20);
    tier_close(&t);
}

/* A prompt's many experts fill slots that are empty and take none that is in use. */
static void a_chunk_evicts_nobody(void **state) {
    (void)state;
    tier t = {0};
    uint32_t all[EXPERTS];
    const uint32_t some[] = {3, 9, 20, 40};
    for (uint32_t e = 0; e < EXPERTS; e++)
        all[e] = e;
    tier_open(&t, SL_READER_PREAD, 4, 4, false);
    sl_experts_tick(&t.x, 1);
    assert_int_equal(reads_of(&t, 5, some, 4, 1), 4);
    sl_experts_tick(&t.x, 32);
    assert_int_equal(reads_of(&t, 4, all, EXPERTS, 8), EXPERTS);
    assert_int_equal(reads_of(&t, 5, all, EXPERTS, 8), EXPERTS - 4);
    assert_int_equal(reads_of(&t, 5, some, 4, 1), 0);
    tier_close(&t);
}

/* What is there goes first, so that computing hides reading. */
static void present_experts_come_first(void **state) {
    (void)state;
    tier t = {0};
    sl_error err;
    const uint32_t few[] = {50, 60}, four[] = {10, 20, 50, 60}, uses[] = {1, 1, 1, 1};
    tier_open(&t, SL_READER_PREAD, 4, 8, false);
    sl_experts_tick(&t.x, 1);
    demo_check(serve(&t, 2, few, uses, 2, false, &err), &err);
    sl_expert_source *s = &t.x.base;
    s->begin(s, 2, four, uses, 4, false);
    bool seen[2] = {false};
    for (uint32_t i = 0; i < 4;) {
        sl_expert_view v;
        uint32_t got;
        demo_check(s->take(s, &v, 1, true, &got, &err), &err);
        assert_int_equal(got, 1);
        // A read may have finished already: then lower ids may go first. Both present ones never wait.
        if (v.expert >= 50)
            seen[v.expert == 60] = true;
        s->release(s, &v);
        i += got;
    }
    s->end(s);
    assert_true(seen[0] && seen[1]);
    assert_int_equal(t.x.hits, 2);
    assert_int_equal(t.x.reads_total, 4);
    check_tables(&t.x);
    tier_close(&t);
}

/* A guess is read before it is asked for, stays apart from demand in the counts, and moves into the hot tier when
 * it comes true; one that fails is read again, and nobody notices. */
static void a_guess_comes_true(void **state) {
    (void)state;
    tier t = {0};
    sl_error err;
    const uint32_t experts[] = {4, 9, 33, 60}, uses[] = {1, 1, 1, 1};
    tier_open(&t, SL_READER_PREAD, 6, 8, true);
    t.x.guesses.width = 4;
    for (uint32_t round = 0; round < 2; round++) {
        sl_experts_tick(&t.x, 1);
        if (round == 1)
            sl_reader_inject(t.reader, SL_FAULT_EIO, 2);
        t.x.base.guess(&t.x.base, 2 + round, experts + 1, 2);
        sl_experts_drain(&t.x);
        sl_reader_inject(t.reader, SL_FAULT_NONE, 0);
        assert_int_equal(t.x.guess_reads, 2 + 2 * round);
        assert_int_equal(t.x.reads_total, 2 * round);
        demo_check(serve(&t, 2 + round, experts, uses, 4, false, &err), &err);
        assert_int_equal(t.x.guesses_used, 2 + round);
        assert_int_equal(t.x.guesses_wasted, round);
        assert_int_equal(t.x.reads_total, 2 + 3 * round);
        assert_int_equal(t.x.hits, 0);
        t.x.guesses.width = 4;
    }
    // The first token's experts are where hot ones are.
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t slot = t.x.entries[2 * EXPERTS + experts[i]].slot;
        assert_true(slot != SL_NO_SLOT && !(t.x.slots[slot].flags & SL_SLOT_RING));
    }
    tier_close(&t);
}

/* Guesses fill the ring, and an expert that comes before them needs a slot: one of them goes, is read again, and is no
 * hit that there never was. */
static void a_guess_gives_way(void **state) {
    (void)state;
    tier t = {0};
    sl_error err;
    const uint32_t experts[] = {1, 40, 41, 42, 43}, uses[] = {2, 2, 2, 2, 2};
    tier_open(&t, SL_READER_PREAD, 4, 0, true);
    t.x.guesses.width = 4;
    sl_experts_tick(&t.x, 2);
    t.x.base.guess(&t.x.base, 2, experts + 1, 4);
    sl_experts_drain(&t.x);
    assert_int_equal(t.x.guess_reads, 4);
    demo_check(serve(&t, 2, experts, uses, 5, true, &err), &err);
    assert_int_equal(t.x.hits, 0);
    assert_int_equal(t.x.guesses_used, 3);
    assert_int_equal(t.x.guesses_wasted, 1);
    assert_int_equal(t.x.reads_total, 2);
    tier_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_sequence),          cmocka_unit_test(favourites_stay),
        cmocka_unit_test(a_chunk_evicts_nobody), cmocka_unit_test(present_experts_come_first),
        cmocka_unit_test(a_guess_comes_true),    cmocka_unit_test(a_guess_gives_way),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
