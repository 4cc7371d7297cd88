/* Numbers by counter: a value depends on its key and index alone, so any thread may make any row.
 * SplitMix64's finalizer over the counter (Steele, Lea, Flood 2014). Pure. */
#ifndef SYNTH_RANDOM_H
#define SYNTH_RANDOM_H

#include <stdint.h>

static inline uint64_t synth_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t synth_word(uint64_t key, uint64_t index) {
    return synth_mix(key + (index + 1) * 0x9e3779b97f4a7c15u);
}

/* A key of its own for everything that has a name. */
static inline uint64_t synth_key(uint64_t seed, const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return synth_mix(hash ^ synth_mix(seed + 1));
}

/* 0 <= result < n, every value to within n / 2^32 as often as the others. */
static inline uint32_t synth_below(uint64_t word, uint32_t n) {
    return (uint32_t)(((word >> 32) * n) >> 32);
}

/* Sixteen bits of a word as a number between -1 and 1. Exact. */
static inline float synth_number(uint64_t word, unsigned quarter) {
    return (float)((int32_t)(uint16_t)(word >> (16 * quarter)) * 2 - 65535) * 0x1p-16f;
}

#endif
