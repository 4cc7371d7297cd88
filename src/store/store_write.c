/* Blocks and manifests, see store_write.h. */
#include "store/store_write.h"

#include <string.h>
#include <xxhash.h>

#include "store/store_internal.h"

sl_status sl_store_writer_init(sl_store_writer *w, const char *folder, void *window,
                               size_t window_bytes, sl_error *err) {
    memset(w, 0, sizeof(*w));
    w->out = SL_OUTPUT_CLOSED;
    w->window = window;
    w->window_bytes = window_bytes;
    return sl_path_join(folder, "", w->folder, sizeof(w->folder), err);
}

void sl_store_writer_deinit(sl_store_writer *w) {
    if (w->window)
        sl_output_close(&w->out);
    memset(w, 0, sizeof(*w));
}

sl_status sl_store_file_begin(sl_store_writer *w, const char *name, sl_error *err) {
    sl_status st = sl_path_join(w->folder, name, w->path, sizeof(w->path), err);
    return st ? st : sl_output_open(w->path, &w->out, err);
}

sl_status sl_store_file_end(sl_store_writer *w, uint64_t bytes, sl_error *err) {
    return sl_output_finish(&w->out, bytes, err);
}

void sl_store_block_begin(sl_store_writer *w, uint64_t offset, uint64_t bytes) {
    w->block_at = offset;
    w->block_bytes = bytes;
    w->through = bytes > w->window_bytes;
    if (!w->through)
        memset(w->window, 0, (size_t)bytes);
}

sl_status sl_store_block_put(sl_store_writer *w, uint64_t at, const void *bytes, size_t n,
                             sl_error *err) {
    if (w->through)
        return sl_output_write(&w->out, bytes, n, w->block_at + at, err);
    memcpy(w->window + at, bytes, n);
    return SL_OK;
}

sl_status sl_store_hash_range(const sl_file *file, uint64_t offset, uint64_t bytes, void *buffer,
                              size_t buffer_bytes, bool (*report)(void *user, uint64_t bytes),
                              void *user, sl_hash128 *out, sl_error *err) {
    sl_status st = SL_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for a checksum");
    (void)XXH3_128bits_reset(state);
    for (uint64_t at = 0; at < bytes;) {
        // Whole pages, for direct reads; the last one may reach past the end of the file.
        uint64_t skip = (offset + at) % SL_PAGE;
        uint64_t want = SL_MIN(bytes - at, buffer_bytes - skip);
        size_t got;
        st = sl_file_read(file, buffer, (size_t)SL_ALIGN_UP(skip + want, SL_PAGE),
                          offset + at - skip, &got, err);
        if (st == SL_OK && got < skip + want)
            st = sl_fail_at(err, SL_ERR_CORRUPT, -1, -1, offset + at,
                            "the file ends at %llu, expected %llu bytes at %llu",
                            (unsigned long long)(offset + at - skip + got),
                            (unsigned long long)want, (unsigned long long)(offset + at));
        if (st)
            break;
        (void)XXH3_128bits_update(state, (const uint8_t *)buffer + skip, (size_t)want);
        at += want;
        if (report && !report(user, want)) {
            st = sl_fail(err, SL_ERR_CANCELED, "stopped");
            break;
        }
    }
    XXH128_hash_t h = XXH3_128bits_digest(state);
    *out = (sl_hash128){h.low64, h.high64};
    (void)XXH3_freeState(state);
    return st;
}

// The parts are in the file: read them back. What the drive holds is what the checksum vouches for.
static sl_status hash_written(sl_store_writer *w, sl_hash128 *hash, sl_error *err) {
    sl_file file;
    sl_status st;
    if ((st = sl_output_sync(&w->out, err)) || (st = sl_file_open(w->path, false, &file, err)))
        return st;
    // The block's last bytes may be padding that nobody wrote: make them exist.
    if (file.bytes < w->block_at + w->block_bytes) {
        sl_file_close(&file);
        const uint8_t zero = 0;
        if ((st = sl_output_write(&w->out, &zero, 1, w->block_at + w->block_bytes - 1, err)) ||
            (st = sl_output_sync(&w->out, err)) || (st = sl_file_open(w->path, false, &file, err)))
            return st;
    }
    size_t pieces = w->window_bytes / SL_PAGE * SL_PAGE;
    st = sl_store_hash_range(&file, w->block_at, w->block_bytes, w->window, pieces, NULL, NULL,
                             hash, err);
    sl_file_close(&file);
    return st;
}

sl_status sl_store_block_end(sl_store_writer *w, sl_hash128 *hash, sl_error *err) {
    if (w->through)
        return hash_written(w, hash, err);
    *hash = sl_hash(w->window, (size_t)w->block_bytes);
    return sl_output_write(&w->out, w->window, (size_t)w->block_bytes, w->block_at, err);
}

/* ---- manifest --------------------------------------------------------------------------------- */

static void put_hash(sl_buf *out, const char *key, sl_hash128 hash) {
    char text[SL_STORE_HEX + 1];
    sl__hash_text(hash, text);
    sl_buf_printf(out, "\"%s\": \"%s\"", key, text);
}

static void put_shape(sl_buf *out, const sl_matrix_shape *s) {
    sl_buf_printf(out, "\"dtype\": \"%s\", \"rows\": %u, \"cols\": %u", sl_dtype_name(s->dtype),
                  s->rows, s->cols);
    if (sl_dtype_is_quantized(s->dtype))
        sl_buf_printf(out, ", \"group\": %u, \"scales\": \"%s\"", s->group,
                      sl_dtype_name(s->scale_dtype));
}

static void put_text_part(sl_buf *out, const char *key, const sl_text_part *part) {
    sl_buf_printf(out, "\"%s\": ", key);
    if (part->bytes == 0) {
        sl_buf_add_text(out, "null");
        return;
    }
    sl_buf_printf(out, "{\"offset\": %llu, \"bytes\": %llu, ", (unsigned long long)part->offset,
                  (unsigned long long)part->bytes);
    put_hash(out, "xxh3", part->hash);
    sl_buf_add_char(out, '}');
}

void sl_store_manifest_text(const sl_store *s, const sl_manifest_source *source, sl_buf *out) {
    size_t from = out->len;
    sl_buf_printf(out,
                  "{\n\"format\": \"" SL_STORE_FORMAT
                  "\",\n\"version\": %d,\n\"converter\": \"sluice " SL_VERSION
                  "\",\n\"source\": {\"name\": ",
                  SL_STORE_VERSION);
    sl_buf_add_json_string(out, source->name, strlen(source->name));
    sl_buf_printf(out, ", \"layout\": \"%s\", \"bytes\": %llu, \"bits\": %u, \"group\": %u, ",
                  source->layout, (unsigned long long)source->bytes, source->bits, source->group);
    put_hash(out, "fingerprint", s->source_hash);
    sl_buf_add_text(out, "},\n\"config\": ");
    sl_buf_add(out, source->config, source->config_len);
    sl_buf_add_text(out, ",\n\"generation_config\": ");
    if (source->generation_config)
        sl_buf_add(out, source->generation_config, source->generation_config_len);
    else
        sl_buf_add_text(out, "null");
    sl_buf_add_text(out, ",\n\"stop_tokens\": [");
    for (uint32_t i = 0; i < s->model.n_stop_tokens; i++)
        sl_buf_printf(out, "%s%u", i ? ", " : "", s->model.stop_tokens[i]);
    sl_buf_printf(out, "],\n\"trunk\": {\"bytes\": %llu, \"tensors\": [",
                  (unsigned long long)s->trunk_bytes);
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const sl_store_tensor *t = &s->tensors[i];
        sl_buf_printf(out, "%s\n{\"role\": \"%s\", \"layer\": %u, ", i ? "," : "",
                      sl_role_name(t->role), t->layer);
        put_shape(out, &t->shape);
        sl_buf_printf(out, ", \"offset\": %llu, ", (unsigned long long)t->offset);
        put_hash(out, "xxh3", t->hash);
        sl_buf_add_char(out, '}');
    }
    sl_buf_add_text(out, "]},\n\"embed\": {");
    put_shape(out, &s->embed.shape);
    sl_buf_printf(out, ", \"stride\": %llu, ", (unsigned long long)s->embed.stride);
    put_hash(out, "xxh3", s->embed.hash);
    sl_buf_add_text(out, "},\n\"experts\": {");
    for (uint32_t i = 0; i < s->expert.n_parts; i++) {
        sl_buf_printf(out, "\"%s\": {", sl__expert_part_key(i));
        put_shape(out, &s->expert.shape[i]);
        sl_buf_add_text(out, "}, ");
    }
    sl_buf_printf(out, "\"stride\": %llu, ", (unsigned long long)s->expert.stride);
    put_hash(out, "sums_xxh3", s->sums_hash);
    sl_buf_add_text(out, "},\n\"text\": {");
    put_text_part(out, "tokenizer", &s->tokenizer);
    sl_buf_add_text(out, ", ");
    put_text_part(out, "chat_template", &s->chat_template);
    sl_buf_add_char(out, '}');

    char seal[SL_STORE_HEX + 1];
    sl__hash_text(sl_hash(out->data + from, out->len - from), seal);
    sl_buf_printf(out, SL_STORE_SEAL_HEAD "%s" SL_STORE_SEAL_TAIL, seal);
}
