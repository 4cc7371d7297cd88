/* The trunk: weights that are loaded at open, and those that pass through in strips.
 *
 * A strip is a run of consecutive rows: its codes, scales and biases are three reads. Two strip
 * buffers alternate, so that one is read while the other is used. */
#ifndef SL_ENGINE_TRUNK_H
#define SL_ENGINE_TRUNK_H

#include "checkpoint/in_place.h"
#include "engine/load.h"
#include "io/reader.h"
#include "model/weights.h"
#include "store/store.h"

typedef struct sl_trunk {
    sl_trunk_source base;
    const sl_store *store;
    sl_reader *reader;
    uint8_t *strips[2];
    uint64_t strip_bytes;
    uint64_t read_bytes; /* streamed so far */
    double wait_seconds;
    /* Asked after each strip; true: SL_ERR_CANCELED. May be NULL. */
    bool (*canceled)(void *user);
    void *user;
} sl_trunk;

/* Lay out the weight tables in `tables` (sl_plan_weight_table_bytes) and read every tensor that stays into
 * the arenas of trunk and head. Every tensor's checksum is compared, those that will stream included. in: of a
 * checkpoint that runs in place, which has no checksums and prepares what stays; else NULL. */
SL_MUST_USE sl_status sl_trunk_load(const sl_store *store, const uint8_t *resident, void *tables,
                                    sl_arena *trunk, sl_arena *head, sl_loader *loader,
                                    sl_in_place *in, sl_weights *out, sl_error *err);

void sl_trunk_init(sl_trunk *t, const sl_store *store, sl_reader *reader, void *strips,
                   uint64_t strip_bytes);

#endif
