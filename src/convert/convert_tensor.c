/* One tensor from a checkpoint's files into a block of the store, in strips of a few megabytes. */
#include <string.h>

#include "convert/convert_internal.h"
#include "convert/quantize.h"

sl_status sl__report(sl_tensor_writer *w, uint64_t bytes, sl_error *err) {
    w->done += bytes;
    if (w->params->report && !w->params->report(w->params->user, w->done, w->total))
        return sl_fail(err, SL_ERR_CANCELED,
                       "stopped at %llu of %llu bytes; a later run goes on from here",
                       (unsigned long long)w->done, (unsigned long long)w->total);
    return SL_OK;
}

static sl_status read_strip(sl_tensor_writer *w, const sl_matrix_source *s, unsigned part,
                            uint64_t at, void *to, size_t n, sl_error *err) {
    sl_status st =
        sl_checkpoint_read(w->ck, s->file[part], s->at[part] + at, s->end[part], to, n, err);
    return st ? st : sl__report(w, n, err);
}

static sl_status not_finite(const sl_matrix_source *s, sl_error *err) {
    return sl_fail(
        err, SL_ERR_CORRUPT,
        "tensor '%.200s' holds values that are not finite numbers: the checkpoint is damaged",
        s->name);
}

// A part that is stored as it is. dtype: of numbers that must be finite; U8 for codes.
static sl_status copy_part(sl_tensor_writer *w, const sl_matrix_source *s, unsigned part,
                           sl_dtype dtype, uint64_t to, sl_error *err) {
    size_t size = sl_dtype_bits(dtype) / 8;
    for (uint64_t at = 0; at < s->bytes[part];) {
        size_t n = (size_t)SL_MIN(s->bytes[part] - at, (uint64_t)SL_STRIP_BYTES);
        sl_status st = read_strip(w, s, part, at, w->raw, n, err);
        if (st)
            return st;
        if (dtype != SL_DTYPE_U8 && !sl_all_finite(w->raw, dtype, n / size))
            return not_finite(s, err);
        if ((st = sl_store_block_put(w->out, to + at, w->raw, n, err)))
            return st;
        at += n;
    }
    return SL_OK;
}

/* How many rows go through the buffers at once: a power of two, so that strips of ordinary shapes end on pages
 * and can be written directly. */
static uint32_t strip_rows(const sl_matrix_source *s, uint64_t row_bytes) {
    uint64_t widest = SL_MAX(row_bytes, (uint64_t)s->shape.cols * sizeof(float));
    uint32_t rows = 1;
    while (2 * rows * widest <= SL_STRIP_BYTES && rows < s->shape.rows)
        rows *= 2;
    return rows;
}

/* Rows first.. of a dense source, quantized: codes, scales and biases one after another in w->packed. */
static sl_status quantize_strip(sl_tensor_writer *w, const sl_matrix_source *s, uint32_t first,
                                uint32_t rows, const sl_matrix_layout *layout, sl_error *err) {
    size_t count = (size_t)rows * s->shape.cols, size = sl_dtype_bits(s->dtype) / 8;
    uint64_t row_bytes = (uint64_t)s->shape.cols * size;
    sl_status st = read_strip(w, s, 0, first * row_bytes, w->raw, count * size, err);
    if (st)
        return st;
    sl_widen(w->raw, s->dtype, count, w->wide);
    uint8_t *scales = w->packed + rows * layout->row_code_bytes;
    if (!sl_quantize_rows(w->wide, rows, &s->shape, w->packed, scales,
                          scales + rows * layout->row_scale_bytes))
        return not_finite(s, err);
    return SL_OK;
}

static sl_status write_quantized(sl_tensor_writer *w, const sl_matrix_source *s,
                                 const sl_matrix_layout *layout, uint64_t to, sl_error *err) {
    uint32_t step = strip_rows(s, 0);
    for (uint32_t first = 0; first < s->shape.rows; first += step) {
        uint32_t rows = SL_MIN(step, s->shape.rows - first);
        size_t codes = (size_t)(rows * layout->row_code_bytes),
               scales = (size_t)(rows * layout->row_scale_bytes);
        const uint8_t *p = w->packed;
        sl_status st;
        if ((st = quantize_strip(w, s, first, rows, layout, err)) ||
            (st = sl_store_block_put(w->out, to + layout->codes_at + first * layout->row_code_bytes,
                                     p, codes, err)) ||
            (st = sl_store_block_put(w->out,
                                     to + layout->scales_at + first * layout->row_scale_bytes,
                                     p + codes, scales, err)) ||
            (st = sl_store_block_put(w->out,
                                     to + layout->biases_at + first * layout->row_scale_bytes,
                                     p + codes + scales, scales, err)))
            return st;
    }
    return SL_OK;
}

static sl_status write_f32(sl_tensor_writer *w, const sl_matrix_source *s, uint64_t to,
                           sl_error *err) {
    size_t size = sl_dtype_bits(s->dtype) / 8;
    uint64_t n = (uint64_t)s->shape.rows * s->shape.cols, step = SL_STRIP_BYTES / sizeof(float);
    for (uint64_t at = 0; at < n; at += step) {
        size_t count = (size_t)SL_MIN(step, n - at);
        sl_status st = read_strip(w, s, 0, at * size, w->raw, count * size, err);
        if (st)
            return st;
        if (!sl_all_finite(w->raw, s->dtype, count))
            return not_finite(s, err);
        sl_widen(w->raw, s->dtype, count, w->wide);
        for (size_t i = 0; s->plus_one && i < count; i++)
            w->wide[i] = 1.0f + w->wide[i];
        if ((st = sl_store_block_put(w->out, to + at * sizeof(float), w->wide,
                                     count * sizeof(float), err)))
            return st;
    }
    return SL_OK;
}

// [channels][width] in the file, [width][channels] in the store; rows is the width.
static sl_status write_convolution(sl_tensor_writer *w, const sl_matrix_source *s, uint64_t to,
                                   sl_error *err) {
    size_t size = sl_dtype_bits(s->dtype) / 8;
    uint32_t width = s->shape.rows, channels = s->shape.cols;
    uint32_t step = (uint32_t)SL_MIN((uint64_t)channels, SL_STRIP_BYTES / sizeof(float) / width);
    float *turned = (float *)w->packed;
    for (uint32_t first = 0; first < channels; first += step) {
        uint32_t n = SL_MIN(step, channels - first);
        size_t count = (size_t)n * width;
        sl_status st =
            read_strip(w, s, 0, (uint64_t)first * width * size, w->raw, count * size, err);
        if (st)
            return st;
        if (!sl_all_finite(w->raw, s->dtype, count))
            return not_finite(s, err);
        sl_widen(w->raw, s->dtype, count, w->wide);
        for (uint32_t tap = 0; tap < width; tap++)
            for (uint32_t c = 0; c < n; c++)
                turned[(size_t)tap * n + c] = w->wide[(size_t)c * width + tap];
        for (uint32_t tap = 0; tap < width; tap++)
            if ((st = sl_store_block_put(w->out,
                                         to + ((uint64_t)tap * channels + first) * sizeof(float),
                                         turned + (size_t)tap * n, n * sizeof(float), err)))
                return st;
    }
    return SL_OK;
}

sl_status sl__write_tensor(sl_tensor_writer *w, const sl_matrix_source *s, uint64_t at,
                           sl_error *err) {
    sl_matrix_layout layout;
    sl_status st = sl_matrix_layout_of(&s->shape, &layout, err);
    if (st)
        return st;
    if (s->affine) {
        if ((st = copy_part(w, s, 0, SL_DTYPE_U8, at + layout.codes_at, err)) ||
            (st = copy_part(w, s, 1, s->shape.scale_dtype, at + layout.scales_at, err)))
            return st;
        return copy_part(w, s, 2, s->shape.scale_dtype, at + layout.biases_at, err);
    }
    if (s->transposed)
        return write_convolution(w, s, at, err);
    if (sl_dtype_is_quantized(s->shape.dtype))
        return write_quantized(w, s, &layout, at, err);
    if (s->plus_one || s->shape.dtype != s->dtype)
        return write_f32(w, s, at, err);
    return copy_part(w, s, 0, s->dtype, at, err);
}

/* ---- embedding rows ------------------------------------------------------------------------------ */

// Rows first.. as codes, scales, biases one after another in w->packed, whatever the source is.
static sl_status gather_rows(sl_tensor_writer *w, const sl_matrix_source *s, uint32_t first,
                             uint32_t rows, const sl_matrix_layout *layout, sl_error *err) {
    if (!s->affine && sl_dtype_is_quantized(s->shape.dtype))
        return quantize_strip(w, s, first, rows, layout, err);
    const uint64_t row_bytes[3] = {layout->row_code_bytes, layout->row_scale_bytes,
                                   layout->row_bias_bytes};
    uint8_t *to = w->packed;
    for (unsigned part = 0; part < (s->affine ? 3u : 1u); part++) {
        size_t n = (size_t)(rows * row_bytes[part]);
        sl_status st = read_strip(w, s, part, first * row_bytes[part], to, n, err);
        if (st)
            return st;
        sl_dtype dtype = s->affine ? s->shape.scale_dtype : s->dtype;
        if ((part || !s->affine) && !sl_all_finite(to, dtype, n * 8 / sl_dtype_bits(dtype)))
            return not_finite(s, err);
        to += n;
    }
    return SL_OK;
}

sl_status sl__write_embedding(sl_tensor_writer *w, const sl_matrix_source *s,
                              const sl_embed_layout *embed, sl_error *err) {
    sl_matrix_layout layout;
    sl_status st = sl_matrix_layout_of(&s->shape, &layout, err);
    if (st)
        return st;
    uint32_t step = strip_rows(s, embed->stride);
    for (uint32_t first = 0; first < s->shape.rows; first += step) {
        uint32_t rows = SL_MIN(step, s->shape.rows - first);
        if ((st = gather_rows(w, s, first, rows, &layout, err)))
            return st;
        const uint8_t *codes = w->packed, *scales = codes + rows * layout.row_code_bytes;
        const uint8_t *biases = scales + rows * layout.row_scale_bytes;
        uint8_t *record = w->raw;
        memset(record, 0, (size_t)(rows * embed->stride));
        for (uint32_t i = 0; i < rows; i++, record += embed->stride) {
            memcpy(record + embed->codes_at, codes + i * layout.row_code_bytes,
                   (size_t)layout.row_code_bytes);
            memcpy(record + embed->scales_at, scales + i * layout.row_scale_bytes,
                   (size_t)layout.row_scale_bytes);
            memcpy(record + embed->biases_at, biases + i * layout.row_bias_bytes,
                   (size_t)layout.row_bias_bytes);
        }
        if ((st = sl_store_block_put(w->out, first * embed->stride, w->raw,
                                     (size_t)(rows * embed->stride), err)))
            return st;
    }
    return SL_OK;
}
