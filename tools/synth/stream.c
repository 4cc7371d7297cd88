/* The forced tokens: runs of one topic each. */
#include "random.h"
#include "synth.h"

#define RUN_TOKENS 96u // on average; a topic ends with each token with one chance in this

static bool is_stop(const sl_model *m, uint32_t token) {
    for (uint32_t i = 0; i < m->n_stop_tokens; i++)
        if (m->stop_tokens[i] == token)
            return true;
    return false;
}

void synth_stream(const sl_model *m, uint64_t seed, uint32_t n_topics, uint32_t *out, size_t n) {
    uint64_t key = synth_key(seed, "stream"), word = 0;
    uint32_t topics = SL_MIN(n_topics, m->n_vocab), topic = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || synth_below(synth_word(key, word++), RUN_TOKENS) == 0)
            topic = synth_below(synth_word(key, word++), topics);
        uint32_t in_topic = (m->n_vocab - topic + topics - 1) / topics;
        uint32_t tries = 0;
        do { // the lower of two: some tokens come often, as words do
            uint32_t a = synth_below(synth_word(key, word++), in_topic),
                     b = synth_below(synth_word(key, word++), in_topic);
            out[i] = topic + topics * SL_MIN(a, b);
        } while (is_stop(m, out[i]) && ++tries < 64);
    }
}
