/* Test helper: the demo model, converted once for a test program, and its examples.json. Everything
 * here fails the running cmocka test where something goes wrong, and lives until the program ends. */
#ifndef SL_TESTS_DEMO_H
#define SL_TESTS_DEMO_H

#include "base/json.h"
#include "sluice.h"

/* Fail the test with the status and the message unless st is SL_OK. */
void demo_check(sl_status st, const sl_error *err);

/* Path of the converted model, in the scratch folder. Converts on first use. */
const char *demo_store(void);

typedef struct demo_example {
    const sl_json *json;
    const char *rendered, *answer;
    size_t n_rendered;
    uint32_t *prompt_ids, *answer_ids;
    uint32_t n_prompt, n_answer;
    double min_margin;
} demo_example;

uint32_t demo_n_examples(void);
const demo_example *demo_example_at(uint32_t i);
/* The one whose prompt has exactly n tokens. */
const demo_example *demo_example_of(uint32_t n_prompt);
/* messages, tools and enable_thinking of an example, as sl_engine_render() takes them, with
 * "add_generation_prompt". The text is valid until the next call. */
const char *demo_request(const demo_example *example, size_t *len);

/* A value as text into out, NUL-terminated; "" for NULL. */
void demo_json(const sl_json *node, char *out, size_t cap);

#endif
