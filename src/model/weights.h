/* The trunk as layers see it: weights that are in memory, or that pass through in strips of rows. */
#ifndef SL_MODEL_WEIGHTS_H
#define SL_MODEL_WEIGHTS_H

#include "model/model.h"
#include "tensor/matrix.h"

/* One tensor of the trunk. */
typedef struct sl_weight {
    sl_role role;
    uint32_t layer;
    sl_matrix_shape shape;
    sl_matrix_layout layout;
    const void *block; /* layout.bytes, or NULL: streamed */
    uint32_t index;    /* the trunk source's own */
} sl_weight;

/* NULL where a layer or model has no such tensor. */
typedef struct sl_layer_weights {
    const sl_weight *role[SL_ROLE_COUNT];
} sl_layer_weights;

typedef struct sl_weights {
    const sl_layer_weights *layers; /* [n_layers] */
    const sl_weight *norm_final, *head;
} sl_weights;

/* How a layer gets a weight that is not in memory. Implemented above (engine/trunk.c): this floor sees
 * no file. */
typedef struct sl_trunk_source sl_trunk_source;
struct sl_trunk_source {
    /* Call use() for strips of consecutive rows until all rows of the weight were given. A strip is
     * valid during the call. Errors: those of reading; use() cannot fail. */
    sl_status (*stream)(sl_trunk_source *source, const sl_weight *w,
                        void (*use)(void *ctx, const sl_matrix *strip, uint32_t first_row),
                        void *ctx, sl_error *err);
};

#endif
