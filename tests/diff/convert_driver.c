/* convert SRC DST [BITS]: a conversion from the shell. */
#include <stdio.h>
#include <stdlib.h>

#include "convert/convert.h"

int main(int argc, char **argv) {
    sl_convert_params params = {0};
    sl_convert_outcome out;
    sl_error err;
    if (argc < 3)
        return 2;
    params.options.bits = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    sl_status st = sl_convert_run(argv[1], argv[2], &params, &out, &err);
    if (out.notes.data)
        fputs(out.notes.data, stderr);
    sl_convert_outcome_deinit(&out);
    if (st) {
        fprintf(stderr, "%s: %s\n", sl_status_name(st), err.message);
        return 1;
    }
    sl_store store;
    if ((st = sl_store_open(argv[2], SL_DIRECT_PREFERRED, &store, &err))) {
        fprintf(stderr, "%s: %s\n", sl_status_name(st), err.message);
        return 1;
    }
    printf("resumed %d direct %d tensors %u model %llu trunk %llu expert stride %llu tokenizer "
           "%llu template %llu\n",
           out.resumed, store.direct, store.n_tensors, (unsigned long long)store.model_bytes,
           (unsigned long long)store.trunk_bytes, (unsigned long long)store.expert.stride,
           (unsigned long long)store.tokenizer.bytes,
           (unsigned long long)store.chat_template.bytes);
    sl_store_close(&store);
    return 0;
}
