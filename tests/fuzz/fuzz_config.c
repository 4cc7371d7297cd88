/* A config.json: the descriptor, the tensor list and the numbers of the store that would come of it. */
#include <stdint.h>
#include <stdlib.h>

#include "checkpoint/checkpoint.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const sl_checkpoint_options options = {0};
    sl_store store;
    sl_error err;
    if (size > (size_t)256 << 10)
        return 0;
    sl_status st = sl_config_describe((const char *)data, size, &options, &store, &err);
    if (st == SL_OK) {
        require(store.n_tensors > 0 && store.n_tensors < sl_model_tensors(&store.model));
        require(store.model_bytes >= store.trunk_bytes && store.expert.stride % SL_PAGE == 0);
        require(store.model.moe.top_k <= store.model.moe.n_experts);
    } else {
        require(err.status == st && err.message[0]);
    }
    sl_store_close(&store);
    return 0;
}
