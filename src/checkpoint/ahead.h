/* Direct reads of a checkpoint's files that go on ahead of whoever asks.
 *
 * A small cache of pieces: each tensor is read from front to back, and several in turn (nine parts of the experts
 * of a layer), so the pieces that follow what was just asked for are read while that is being worked on. The
 * drive and the processor then work at the same time. One thread. */
#ifndef SL_CHECKPOINT_AHEAD_H
#define SL_CHECKPOINT_AHEAD_H

#include "base/mem.h"
#include "io/reader.h"

#define SL_AHEAD_PIECE ((uint64_t)512 << 10) /* most and least bytes of a piece, a power of two */
#define SL_AHEAD_PIECE_MIN ((uint64_t)8 << 10)
#define SL_AHEAD_PIECES 64u /* most and least pieces */
#define SL_AHEAD_PIECES_MIN 16u

typedef struct sl_ahead_piece {
    const sl_file *file; /* NULL: holds nothing */
    uint64_t index;      /* bytes index * piece_bytes and on */
    uint64_t used;       /* when it was last asked for */
    uint8_t *bytes;
    sl_read read;
} sl_ahead_piece;

typedef struct sl_ahead {
    sl_arena arena; /* of its own reader and pieces, or nothing */
    sl_reader *reader;
    uint64_t clock, piece_bytes;
    uint32_t n_pieces;
    sl_ahead_piece pieces[SL_AHEAD_PIECES];
} sl_ahead;

/* With memory of its own: n_pieces times piece_bytes, and a reader. Errors: SL_ERR_MEMORY, SL_ERR_UNSUPPORTED. */
SL_MUST_USE sl_status sl_ahead_open(sl_ahead *ahead, uint32_t n_pieces, uint64_t piece_bytes,
                                    sl_error *err);
/* With the caller's reader and memory (n_pieces * piece_bytes, aligned to SL_PAGE). Nobody else uses the reader
 * until sl_ahead_close(). */
void sl_ahead_init(sl_ahead *ahead, sl_reader *reader, uint8_t *memory, uint32_t n_pieces,
                   uint64_t piece_bytes);
/* Waits for what is in flight. Accepts a zeroed struct. */
void sl_ahead_close(sl_ahead *ahead);

/* Read n bytes at an offset of a direct file, and begin to read what follows, up to `end` at most (where what
 * is read in sequence ends). The file stays where it is until sl_ahead_forget().
 * Errors: SL_ERR_IO, SL_ERR_CORRUPT (the file is shorter than it was). */
SL_MUST_USE sl_status sl_ahead_read(sl_ahead *ahead, const sl_file *file, uint64_t offset,
                                    uint64_t end, void *out, size_t n, sl_error *err);
/* Before a file is closed. */
void sl_ahead_forget(sl_ahead *ahead, const sl_file *file);

#endif
