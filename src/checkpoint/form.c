/* See form.h. In strips of a few megabytes: rows that are kept go as they are, all others become f32 and are
 * quantized or narrowed from there. */
#include "checkpoint/form.h"

#include <string.h>

#include "checkpoint/quantize.h"

static sl_status report(const sl_tensor_form *w, uint64_t bytes, sl_error *err) {
    return w->report ? w->report(w->user, bytes, err) : SL_OK;
}

/* ---- reading ------------------------------------------------------------------------------------ */

// n bytes of a part, from its row `row` of the matrix in the file.
static sl_status read_part(const sl_tensor_form *w, const sl_matrix_source *s, unsigned part,
                           uint64_t row, uint64_t skip, void *to, size_t n, sl_error *err) {
    return w->read(w->user, s->file[part], s->at[part] + row * s->row_bytes[part] + skip,
                   s->end[part], to, n, err);
}

static sl_status not_finite(const sl_matrix_source *s, sl_error *err) {
    return sl_fail(
        err, SL_ERR_CORRUPT,
        "tensor '%.200s' holds values that are not finite numbers: the checkpoint is damaged",
        s->name);
}

// Elements, scales and biases must be finite numbers; of MXFP4's scales one value is none.
static sl_status check_numbers(const sl_matrix_source *s, unsigned part, const void *bytes,
                               size_t n, sl_error *err) {
    bool codes = part == 0 && sl_dtype_is_quantized(s->in.dtype);
    if (codes)
        return SL_OK;
    if (part && s->in.dtype == SL_DTYPE_MXFP4)
        return sl_mxfp4_scales_valid(bytes, n)
                   ? SL_OK
                   : sl_fail(err, SL_ERR_CORRUPT,
                             "a scale of tensor '%.200s' is 255, which is no number: the "
                             "checkpoint is damaged",
                             s->name);
    sl_dtype dtype = part ? s->in.scale_dtype : s->in.dtype;
    return sl_all_finite(bytes, dtype, n * 8 / sl_dtype_bits(dtype)) ? SL_OK : not_finite(s, err);
}

/* `rows` rows of the file's matrix, one after another, as f32: out[rows][in.cols], at most strip_bytes. Uses
 * w->raw. */
static sl_status widen_rows(const sl_tensor_form *w, const sl_matrix_source *s, uint32_t first,
                            uint32_t rows, float *out, sl_error *err) {
    const uint32_t cols = s->in.cols;
    size_t n = (size_t)(rows * s->row_bytes[0]);
    uint8_t *scales = w->raw + n;
    sl_status st = read_part(w, s, 0, first, 0, w->raw, n, err);
    if (st)
        return st;
    if (s->in.dtype == SL_DTYPE_F8_E4M3) {
        uint32_t tile = first / SL_F8_TILE, n_tiles = (first + rows - 1) / SL_F8_TILE - tile + 1;
        size_t m = (size_t)(n_tiles * s->row_bytes[1]);
        if ((st = read_part(w, s, 1, tile, 0, scales, m, err)))
            return st;
        return sl_widen_f8_tiles(w->raw, first % SL_F8_TILE, rows, cols, scales, s->in.scale_dtype,
                                 out)
                   ? SL_OK
                   : not_finite(s, err);
    }
    if (!sl_dtype_is_quantized(s->in.dtype)) {
        sl_widen(w->raw, s->in.dtype, (size_t)rows * cols, out);
        return SL_OK;
    }
    size_t m = (size_t)(rows * s->row_bytes[1]);
    if ((st = read_part(w, s, 1, first, 0, scales, m, err)) ||
        (st = read_part(w, s, 2, first, 0, scales + m, m, err)))
        return st;
    const sl_matrix_shape shape = {s->in.dtype, s->in.scale_dtype, rows, cols, s->in.group};
    sl_dequantize_rows(w->raw, scales, scales + m, &shape, out);
    return SL_OK;
}

/* The file's rows that become row `row` of the result and those after it, as far as they lie one after another:
 * *first of them; returns how many. */
static uint32_t rows_from(const sl_tensor_place *p, uint32_t row, uint32_t *first) {
    const sl_row_run *run = p->runs;
    while (row >= run->rows * run->count) {
        row -= run->rows * run->count;
        run++;
    }
    if (run->stride == run->rows || run->count == 1) {
        *first = run->first + row;
        return run->rows * run->count - row;
    }
    *first = run->first + row / run->rows * run->stride + row % run->rows;
    return run->rows - row % run->rows;
}

/* `n` columns of a group of the file's rows, as rows: out[n][group rows]. column: of those that are meant. */
static sl_status turn_columns(const sl_tensor_form *w, const sl_matrix_source *s,
                              uint32_t first_row, uint32_t column, uint32_t n, float *out,
                              sl_error *err) {
    const uint32_t rows = s->shape.cols, cols = s->in.cols, step = s->place.col_step;
    const uint32_t at_once = (uint32_t)(w->strip_bytes / sizeof(float) / cols);
    float *wide = (float *)(void *)w->packed;
    for (uint32_t row = 0; row < rows; row += at_once) {
        uint32_t k = SL_MIN(at_once, rows - row);
        sl_status st = widen_rows(w, s, first_row + row, k, wide, err);
        if (st)
            return st;
        const float *from = wide + s->place.first_col + (size_t)column * step;
        for (uint32_t c = 0; c < n; c++)
            for (uint32_t r = 0; r < k; r++)
                out[(size_t)c * rows + row + r] = from[(size_t)r * cols + (size_t)c * step];
    }
    return SL_OK;
}

// Rows first.. of the result as f32 in w->wide.
static sl_status gather(const sl_tensor_form *w, const sl_matrix_source *s, uint32_t first,
                        uint32_t rows, sl_error *err) {
    const sl_tensor_place *p = &s->place;
    // Columns of a group, which become rows.
    uint32_t turned = (p->cols - p->first_col + p->col_step - 1) / p->col_step, n;
    for (uint32_t done = 0; done < rows; done += n) {
        float *out = w->wide + (size_t)done * s->shape.cols;
        uint32_t row = first + done, from;
        sl_status st;
        if (p->transposed) {
            n = SL_MIN(rows - done, turned - row % turned);
            (void)rows_from(p, row / turned * s->shape.cols, &from);
            st = turn_columns(w, s, from, row % turned, n, out, err);
        } else {
            n = SL_MIN(rows - done, rows_from(p, row, &from));
            st = widen_rows(w, s, from, n, out, err);
        }
        if (st)
            return st;
    }
    return SL_OK;
}

/* How many rows go through the buffers at once: a power of two, so that strips of ordinary shapes end on pages
 * and can be written directly. */
static uint32_t strip_rows(const sl_tensor_form *w, const sl_matrix_source *s, uint64_t row_bytes) {
    uint64_t widest = SL_MAX(row_bytes, (uint64_t)s->shape.cols * sizeof(float));
    uint32_t rows = 1;
    while (2 * rows * widest <= w->strip_bytes && rows < s->shape.rows)
        rows *= 2;
    return rows;
}

/* ---- rows that become others ------------------------------------------------------------------------ */

// Rows as they are stored: codes, scales and biases, or elements, one after another in w->packed.
static sl_status encode(const sl_tensor_form *w, const sl_matrix_source *s, const float *wide,
                        uint32_t rows, const sl_matrix_layout *layout, sl_error *err) {
    size_t n = (size_t)rows * s->shape.cols;
    if (!sl_dtype_is_quantized(s->shape.dtype)) {
        sl_narrow(wide, s->shape.dtype, n, w->packed);
        return sl_all_finite(w->packed, s->shape.dtype, n) ? SL_OK : not_finite(s, err);
    }
    uint8_t *scales = w->packed + rows * layout->row_code_bytes;
    return sl_quantize_rows(wide, rows, &s->shape, w->packed, scales,
                            scales + rows * layout->row_scale_bytes)
               ? SL_OK
               : not_finite(s, err);
}

// Put what encode() made of `rows` rows from `first` on.
static sl_status put_rows(const sl_tensor_form *w, const sl_matrix_layout *l, uint64_t to,
                          uint32_t first, uint32_t rows, sl_error *err) {
    const uint64_t at[3] = {l->codes_at, l->scales_at, l->biases_at},
                   row[3] = {l->row_code_bytes, l->row_scale_bytes, l->row_bias_bytes};
    const uint8_t *p = w->packed;
    for (unsigned i = 0; i < 3 && row[i]; i++) {
        size_t n = (size_t)(rows * row[i]);
        sl_status st = w->put(w->user, to + at[i] + first * row[i], p, n, err);
        if (st)
            return st;
        p += n;
    }
    return SL_OK;
}

static sl_status write_encoded(const sl_tensor_form *w, const sl_matrix_source *s,
                               const sl_matrix_layout *layout, uint64_t to, sl_error *err) {
    const uint32_t strip = strip_rows(w, s, 0), cols = s->shape.cols;
    // Whoever turns reads the same rows for every strip of columns: as few as there is room for.
    const uint32_t step =
        s->place.transposed ? (uint32_t)(w->wide_bytes / sizeof(float) / cols) : strip;
    for (uint32_t first = 0; first < s->shape.rows; first += step) {
        uint32_t rows = SL_MIN(step, s->shape.rows - first);
        sl_status st = gather(w, s, first, rows, err);
        if (st)
            return st;
        for (uint32_t i = 0; i < rows; i += strip) {
            uint32_t k = SL_MIN(strip, rows - i);
            if ((st = encode(w, s, w->wide + (size_t)i * cols, k, layout, err)) ||
                (st = put_rows(w, layout, to, first + i, k, err)))
                return st;
        }
        if ((st = report(w, (uint64_t)rows * cols * sl_dtype_bits(s->in.dtype) / 8, err)))
            return st;
    }
    return SL_OK;
}

/* ---- rows that stay --------------------------------------------------------------------------------- */

// n rows of the file that lie one after another.
static sl_status copy_rows(const sl_tensor_form *w, const sl_matrix_source *s, unsigned part,
                           uint64_t first, uint64_t n, uint64_t to, sl_error *err) {
    uint64_t bytes = n * s->row_bytes[part];
    for (uint64_t at = 0; at < bytes;) {
        size_t k = (size_t)SL_MIN(bytes - at, (uint64_t)w->strip_bytes);
        sl_status st;
        if ((st = read_part(w, s, part, first, at, w->raw, k, err)) ||
            (st = check_numbers(s, part, w->raw, k, err)) ||
            (st = w->put(w->user, to + at, w->raw, k, err)) || (st = report(w, k, err)))
            return st;
        at += k;
    }
    return SL_OK;
}

/* Groups of rows with others between them: what covers as many as fit is read at once, and those that are meant are
 * moved together. */
static sl_status copy_groups(const sl_tensor_form *w, const sl_matrix_source *s, unsigned part,
                             const sl_row_run *run, uint64_t to, sl_error *err) {
    const uint64_t row_bytes = s->row_bytes[part], stride = run->stride * row_bytes;
    const size_t group = (size_t)(run->rows * row_bytes);
    const uint32_t at_once = (uint32_t)SL_MIN(w->strip_bytes / stride, (uint64_t)run->count);
    for (uint32_t i = 0; i < run->count; i += at_once) {
        uint32_t k = SL_MIN(at_once, run->count - i);
        sl_status st = read_part(w, s, part, run->first + (uint64_t)i * run->stride, 0, w->raw,
                                 (size_t)((k - 1) * stride) + group, err);
        if (st)
            return st;
        for (uint32_t g = 1; g < k; g++)
            memmove(w->raw + g * group, w->raw + g * stride, group);
        if ((st = check_numbers(s, part, w->raw, k * group, err)) ||
            (st = w->put(w->user, to + i * group, w->raw, k * group, err)) ||
            (st = report(w, k * group, err)))
            return st;
    }
    return SL_OK;
}

static sl_status copy_part(const sl_tensor_form *w, const sl_matrix_source *s, unsigned part,
                           uint64_t to, sl_error *err) {
    const sl_tensor_place *p = &s->place;
    sl_status st = SL_OK;
    for (uint32_t i = 0; i < p->n_runs && st == SL_OK; i++) {
        const sl_row_run *run = &p->runs[i];
        uint64_t n = (uint64_t)run->rows * run->count;
        if (run->count == 1 || run->stride == run->rows)
            st = copy_rows(w, s, part, run->first, n, to, err);
        else if (run->stride * s->row_bytes[part] <= w->strip_bytes)
            st = copy_groups(w, s, part, run, to, err);
        else
            for (uint32_t g = 0; g < run->count && st == SL_OK; g++)
                st = copy_rows(w, s, part, run->first + (uint64_t)g * run->stride, run->rows,
                               to + (uint64_t)g * run->rows * s->row_bytes[part], err);
        to += n * s->row_bytes[part];
    }
    return st;
}

/* ---- vectors and convolutions ------------------------------------------------------------------------- */

// Every col_step-th of a row's elements, as f32.
static sl_status write_vector(const sl_tensor_form *w, const sl_matrix_source *s, uint64_t to,
                              sl_error *err) {
    const sl_tensor_place *p = &s->place;
    size_t k = 0;
    sl_status st = read_part(w, s, 0, 0, 0, w->raw, (size_t)s->row_bytes[0], err);
    if (st)
        return st;
    sl_widen(w->raw, s->in.dtype, p->cols, w->wide);
    for (size_t i = p->first_col; i < p->cols; i += p->col_step)
        w->wide[k++] = s->plus_one ? 1.0f + w->wide[i] : w->wide[i];
    if (!sl_all_finite(w->wide, SL_DTYPE_F32, k))
        return not_finite(s, err);
    st = w->put(w->user, to, w->wide, k * sizeof(float), err);
    return st ? st : report(w, s->bytes, err);
}

// [channels][width] in the file, [width][channels] in the store; rows is the width.
static sl_status write_convolution(const sl_tensor_form *w, const sl_matrix_source *s, uint64_t to,
                                   sl_error *err) {
    size_t size = sl_dtype_bits(s->in.dtype) / 8;
    uint32_t width = s->shape.rows, channels = s->shape.cols;
    uint32_t step = (uint32_t)SL_MIN((uint64_t)channels, w->strip_bytes / sizeof(float) / width);
    float *turned = (float *)(void *)w->packed;
    for (uint32_t first = 0; first < channels; first += step) {
        uint32_t n = SL_MIN(step, channels - first);
        size_t count = (size_t)n * width;
        sl_status st =
            read_part(w, s, 0, 0, (uint64_t)first * width * size, w->raw, count * size, err);
        if (st)
            return st;
        if (!sl_all_finite(w->raw, s->in.dtype, count))
            return not_finite(s, err);
        sl_widen(w->raw, s->in.dtype, count, w->wide);
        for (uint32_t tap = 0; tap < width; tap++)
            for (uint32_t c = 0; c < n; c++)
                turned[(size_t)tap * n + c] = w->wide[(size_t)c * width + tap];
        for (uint32_t tap = 0; tap < width; tap++)
            if ((st = w->put(w->user, to + ((uint64_t)tap * channels + first) * sizeof(float),
                             turned + (size_t)tap * n, n * sizeof(float), err)))
                return st;
        if ((st = report(w, count * size, err)))
            return st;
    }
    return SL_OK;
}

sl_status sl_form_tensor(const sl_tensor_form *w, const sl_matrix_source *s, uint64_t at,
                         sl_error *err) {
    sl_matrix_layout layout;
    sl_status st = sl_matrix_layout_of(&s->shape, &layout, err);
    if (st)
        return st;
    if (s->convolution)
        return write_convolution(w, s, at, err);
    if (s->vector)
        return write_vector(w, s, at, err);
    if (!s->copied)
        return write_encoded(w, s, &layout, at, err);
    const uint64_t to[3] = {layout.codes_at, layout.scales_at, layout.biases_at};
    for (unsigned part = 0; part < 3 && s->row_bytes[part] && st == SL_OK; part++)
        st = copy_part(w, s, part, at + to[part], err);
    return st;
}

/* ---- embedding rows ------------------------------------------------------------------------------ */

// Rows first.. as codes, scales, biases one after another in w->packed, whatever the source is.
static sl_status gather_records(const sl_tensor_form *w, const sl_matrix_source *s, uint32_t first,
                                uint32_t rows, const sl_matrix_layout *layout, sl_error *err) {
    sl_status st = SL_OK;
    uint8_t *to = w->packed;
    if (!s->copied) {
        if ((st = gather(w, s, first, rows, err)))
            return st;
        return encode(w, s, w->wide, rows, layout, err);
    }
    for (unsigned part = 0; part < 3 && s->row_bytes[part] && st == SL_OK; part++) {
        size_t n = (size_t)(rows * s->row_bytes[part]);
        if ((st = read_part(w, s, part, first, 0, to, n, err)) == SL_OK)
            st = check_numbers(s, part, to, n, err);
        to += n;
    }
    return st;
}

sl_status sl_form_embedding(const sl_tensor_form *w, const sl_matrix_source *s,
                            const sl_embed_layout *embed, sl_error *err) {
    sl_matrix_layout layout;
    sl_status st = sl_matrix_layout_of(&s->shape, &layout, err);
    if (st)
        return st;
    uint32_t step = strip_rows(w, s, embed->stride);
    for (uint32_t first = 0; first < s->shape.rows; first += step) {
        uint32_t rows = SL_MIN(step, s->shape.rows - first);
        if ((st = gather_records(w, s, first, rows, &layout, err)))
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
        // A row is as many bytes of the file as any other.
        if ((st = w->put(w->user, first * embed->stride, w->raw, (size_t)(rows * embed->stride),
                         err)) ||
            (st = report(w, s->bytes / s->shape.rows * rows, err)))
            return st;
    }
    return SL_OK;
}
