/* Reading a config.json: shared by the sources that do. Internal to src/model. */
#ifndef SL_MODEL_CONFIG_H
#define SL_MODEL_CONFIG_H

#include "model/family.h"

/* Keys are looked up in the text section first, then at top level; null counts as absent. */
typedef struct sl_config {
    const sl_json *text, *top;
    const sl_family *family;
    sl_buf *notes; /* may be NULL */
    sl_error *err;
} sl_config;

#define SL_KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

const sl_json *sl__config_find(const sl_config *c, const char *key);
/* The first of the alternatives (NULL-terminated) that is present; *found is its name. */
const sl_json *sl__config_find_any(const sl_config *c, const char *const *keys, const char **found);

typedef struct sl_config_number {
    const char *const *keys; /* aliases, NULL-terminated */
    uint32_t *out;
    uint32_t min, max;
    bool optional; /* keeps *out when absent */
} sl_config_number;

/* Errors: SL_ERR_CORRUPT names the key, its value and what is expected. */
SL_MUST_USE sl_status sl__config_numbers(const sl_config *c, const sl_config_number *list,
                                         size_t n);
/* v: the value of `key`, or NULL, which keeps *out. */
SL_MUST_USE sl_status sl__config_float(const sl_config *c, const sl_json *v, const char *key,
                                       double min, double max, double *out);
/* A switch: *out is what the key says where the family leaves it to the key, which must agree otherwise.
 * keys: aliases, NULL-terminated. */
SL_MUST_USE sl_status sl__config_choice(const sl_config *c, const char *const *keys,
                                        sl_choice choice, bool *out);

/* Refuse keys that ask for arithmetic that the family does not have, and keys that nothing is known of and
 * that are set; note those that are not set. */
SL_MUST_USE sl_status sl__config_check_keys(const sl_config *c, const sl_json *section);

/* Frequencies, and the factor of MLA's softmax scale that comes with them. m->attn and m->mla are read. */
SL_MUST_USE sl_status sl__config_rope(const sl_config *c, sl_model *m, double *mla_scale);

#endif
