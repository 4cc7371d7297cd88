/* The manifest of a store, without the checksum at its end, which this target puts there: otherwise nothing behind it
 * would ever be reached. What is accepted must be consistent: tensors inside the trunk and apart. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_internal.h"

#define TEXT_MAX ((size_t)256 << 10)

static void require(bool condition) {
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sl_store store;
    sl_error err;
    sl_arena tree;
    char hex[SL_STORE_HEX + 1];
    if (size > TEXT_MAX)
        return 0;
    size_t len = size + SL_STORE_SEAL_BYTES, head = sizeof(SL_STORE_SEAL_HEAD) - 1;
    char *text = malloc(len);
    void *block = malloc(len * SL_STORE_TREE_FACTOR);
    require(text && block);
    if (size)
        memcpy(text, data, size);
    sl__hash_text(sl_hash(text, size), hex);
    memcpy(text + size, SL_STORE_SEAL_HEAD, head);
    memcpy(text + size + head, hex, SL_STORE_HEX);
    memcpy(text + size + head + SL_STORE_HEX, SL_STORE_SEAL_TAIL, sizeof(SL_STORE_SEAL_TAIL) - 1);
    sl_arena_init(&tree, "tree", block, len * SL_STORE_TREE_FACTOR);
    sl_status st = sl__store_parse_manifest(text, len, "path", &tree, &store, &err);
    if (st == SL_OK) {
        uint64_t end = 0;
        for (uint32_t i = 0; i < store.n_tensors; i++) {
            const sl_store_tensor *t = &store.tensors[i];
            require(t->offset >= end && t->offset % SL_MATRIX_ALIGN == 0);
            end = t->offset + t->layout.bytes;
        }
        require(end <= store.trunk_bytes && store.trunk_bytes <= sl_store_trunk_file_bytes(&store));
        for (uint32_t i = 0; i < store.expert.n_parts; i++)
            require(store.expert.at[i] + store.expert.layout[i].bytes <= store.expert.stride);
        require(sl_store_tensor_find(&store, SL_ROLE_HEAD, 0) && store.path[0] == 'p');
        require(sl_store_text_file_bytes(&store) >=
                store.tokenizer.bytes + store.chat_template.bytes);
    } else {
        require(err.status == st && err.message[0]);
    }
    sl_store_close(&store);
    free(text);
    free(block);
    return 0;
}
