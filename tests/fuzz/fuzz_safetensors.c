/* safetensors: the first bytes of a file, and a header over a file of any length. The first 8 bytes of the input
 * are the length of the data behind the header; the rest is the header's text. What the table then says must lie
 * inside the file. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"

static void require(bool condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_st_table table;
    sl_error err;
    uint64_t header_bytes, data_bytes = 0;
    if (sl_st_header_bytes(data, SL_MIN(size, (size_t)64), size, &header_bytes, &err) == SL_OK)
        require(header_bytes + 8 <= size);
    if (size < 8)
        return 0;
    memcpy(&data_bytes, data, 8);
    data_bytes &= ((uint64_t)1 << 48) - 1;
    uint64_t len = size - 8, file_bytes = size + data_bytes;
    sl_st_table_init(&table);
    sl_status st = sl_st_add_header(&table, (const char *)data + 8, len, file_bytes, 0, &err);
    if (st == SL_OK)
        st = sl_st_sort(&table, &err);
    if (st == SL_OK) {
        for (uint32_t i = 0; i < table.n_tensors; i++) {
            const sl_st_tensor *t = &table.tensors[i];
            require(t->offset >= 8 + len && t->bytes <= file_bytes &&
                    t->offset <= file_bytes - t->bytes);
            require(sl_st_find(&table, t->name) == t);
        }
    } else {
        require(err.status == st && err.message[0]);
    }
    sl_st_table_deinit(&table);
    return 0;
}
