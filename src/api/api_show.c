/* What a model is, in a few lines. */
#include <string.h>

#include "api/internal.h"

sl_status sl__api_send(const sl_buf *buf, const sl_sink *sink, sl_error *err) {
    if (buf->failed)
        return sl_fail(err, SL_ERR_MEMORY, "no memory for the output");
    if (buf->len && !sink->write(sink->user, buf->data, buf->len))
        return sl_fail(err, SL_ERR_CANCELED, "stopped");
    return SL_OK;
}

void sl__api_add_bytes(sl_buf *b, uint64_t bytes) {
    if (bytes >= SL_GIB)
        sl_buf_printf(b, "%.2f GiB", (double)bytes / (double)SL_GIB);
    else if (bytes >= SL_MIB)
        sl_buf_printf(b, "%.1f MiB", (double)bytes / (double)SL_MIB);
    else
        sl_buf_printf(b, "%.1f KiB", (double)bytes / (double)SL_KIB);
}

typedef struct figures {
    uint64_t parameters, active, trunk_bytes, head_bytes, expert_bytes;
} figures;

static uint64_t size_of(const sl_matrix_shape *s) {
    return (uint64_t)s->rows * s->cols;
}

static figures count(const sl_store *store) {
    const sl_model *m = &store->model;
    figures f = {0};
    for (uint32_t i = 0; i < store->n_tensors; i++) {
        const sl_store_tensor *t = &store->tensors[i];
        f.parameters += size_of(&t->shape);
        *(t->role == SL_ROLE_HEAD ? &f.head_bytes : &f.trunk_bytes) += t->layout.bytes;
    }
    f.active = f.parameters;
    uint64_t expert =
        size_of(&store->expert.gate) + size_of(&store->expert.up) + size_of(&store->expert.down);
    f.parameters += size_of(&store->embed.shape) + expert * m->n_layers * m->moe.n_experts;
    f.active += expert * m->n_layers * m->moe.top_k + m->d_model;
    f.expert_bytes = store->expert.stride * m->n_layers * m->moe.n_experts;
    return f;
}

static void add_count(sl_buf *b, uint64_t n) {
    if (n >= 1000000000)
        sl_buf_printf(b, "%.2f G", (double)n / 1e9);
    else
        sl_buf_printf(b, "%.2f M", (double)n / 1e6);
}

static void add_type(sl_buf *b, const sl_matrix_shape *s) {
    sl_buf_add_text(b, sl_dtype_name(s->dtype));
    if (s->group)
        sl_buf_printf(b, "/%u", s->group);
}

static void add_size(sl_buf *b, const char *what, uint64_t bytes, const char *note) {
    sl_buf_printf(b, "  %-10s ", what);
    sl__api_add_bytes(b, bytes);
    sl_buf_printf(b, "%s%s\n", *note ? "  " : "", note);
}

static const char *mixer_name(uint8_t mixer) {
    return mixer == SL_MIXER_DELTA ? "gated delta net" : "attention";
}

// "3 gated delta net, 1 attention, ..." as runs, folded when they repeat.
static void add_layers(sl_buf *b, const sl_model *m) {
    uint32_t delta = sl_model_mixer_count(m, SL_MIXER_DELTA),
             attention = sl_model_mixer_count(m, SL_MIXER_ATTENTION);
    sl_buf_printf(b, "%u layers: ", m->n_layers);
    uint32_t period = 1;
    for (; period < m->n_layers; period++) {
        bool repeats = m->n_layers % period == 0;
        for (uint32_t i = period; repeats && i < m->n_layers; i++)
            repeats = m->mixer[i] == m->mixer[i - period];
        if (repeats)
            break;
    }
    if (period == m->n_layers && period > 8) {
        sl_buf_printf(b, "%u gated delta net, %u attention", delta, attention);
        return;
    }
    for (uint32_t i = 0; i < period;) {
        uint32_t end = i;
        while (end < period && m->mixer[end] == m->mixer[i])
            end++;
        sl_buf_printf(b, "%s%u %s", i ? ", " : "", end - i, mixer_name(m->mixer[i]));
        i = end;
    }
    if (m->n_layers / period > 1)
        sl_buf_printf(b, "; %u times over", m->n_layers / period);
}

static void show_text(const sl_store *store, const char *path, sl_buf *b) {
    const sl_model *m = &store->model;
    figures f = count(store);
    sl_buf_printf(b, "%s\n  family     %s\n  shape      ", path, sl_model_family_name(m));
    add_layers(b, m);
    sl_buf_printf(b, "\n             hidden %u, vocabulary %u, context %u\n", m->d_model,
                  m->n_vocab, m->n_ctx_max);
    if (sl_model_mixer_count(m, SL_MIXER_ATTENTION))
        sl_buf_printf(
            b, "  attention  %u query heads over %u key/value heads of %u, %u elements rotate%s\n",
            m->attn.n_heads, m->attn.n_kv_heads, m->attn.d_head, m->rope.n_rot,
            m->attn.gated ? ", output gate" : "");
    if (sl_model_mixer_count(m, SL_MIXER_DELTA))
        sl_buf_printf(b,
                      "  delta net  %u value heads of %u over %u key heads of %u, convolution %u\n",
                      m->delta.n_v_heads, m->delta.d_v, m->delta.n_k_heads, m->delta.d_k,
                      m->delta.conv_width);
    sl_buf_printf(b, "  experts    %u a layer, %u for each token, inner size %u", m->moe.n_experts,
                  m->moe.top_k, m->moe.d_expert);
    if (m->moe.d_shared)
        sl_buf_printf(b, "; a shared one of %u", m->moe.d_shared);
    sl_buf_add_text(b, "\n  parameters ");
    add_count(b, f.parameters);
    sl_buf_add_text(b, ", active for a token ");
    add_count(b, f.active);
    sl_buf_add_text(b, "\n");
    sl_buf_add_text(b, "\nbytes as stored\n");
    char note[96];
    sl_buf n;
    sl_buf_init_fixed(&n, note, sizeof(note));
    add_type(&n, &store->expert.gate);
    sl_buf_add_text(&n, ", one expert ");
    sl__api_add_bytes(&n, store->expert.stride);
    add_size(b, "experts", f.expert_bytes, note);
    add_size(b, "trunk", f.trunk_bytes, "");
    sl_buf_clear(&n);
    const sl_store_tensor *head = sl_store_tensor_find(store, SL_ROLE_HEAD, 0);
    if (head)
        add_type(&n, &head->shape);
    add_size(b, "head", f.head_bytes, note);
    sl_buf_clear(&n);
    add_type(&n, &store->embed.shape);
    add_size(b, "embedding", store->embed.stride * store->embed.shape.rows, note);
    add_size(b, "sum", store->model_bytes, "");
    sl_buf_printf(b, "\ntokenizer %s, chat template %s\n", store->tokenizer.bytes ? "yes" : "none",
                  store->chat_template.bytes ? "yes" : "none");
    if (store->converter && *store->converter)
        sl_buf_printf(b, "converted by %s from %s\n", store->converter, store->source);
}

static void show_json(const sl_store *store, const char *path, sl_buf *b) {
    const sl_model *m = &store->model;
    figures f = count(store);
    sl_buf_add_text(b, "{\"path\": ");
    sl_buf_add_json_string(b, path, strlen(path));
    sl_buf_printf(b, ", \"family\": \"%s\", \"n_layers\": %u, \"layers\": [",
                  sl_model_family_name(m), m->n_layers);
    for (uint32_t i = 0; i < m->n_layers; i++)
        sl_buf_printf(b, "%s\"%s\"", i ? ", " : "", mixer_name(m->mixer[i]));
    sl_buf_printf(b,
                  "], \"d_model\": %u, \"n_vocab\": %u, \"n_ctx_max\": %u, \"n_experts\": %u, "
                  "\"top_k\": %u, \"d_expert\": %u, \"d_shared\": %u, ",
                  m->d_model, m->n_vocab, m->n_ctx_max, m->moe.n_experts, m->moe.top_k,
                  m->moe.d_expert, m->moe.d_shared);
    sl_buf_printf(b,
                  "\"parameters\": %llu, \"active_parameters\": %llu, \"expert_dtype\": \"%s\", "
                  "\"expert_bytes\": %llu, \"experts_bytes\": %llu, \"trunk_bytes\": %llu, "
                  "\"head_bytes\": %llu, \"embedding_bytes\": %llu, \"model_bytes\": %llu, ",
                  (unsigned long long)f.parameters, (unsigned long long)f.active,
                  sl_dtype_name(store->expert.gate.dtype), (unsigned long long)store->expert.stride,
                  (unsigned long long)f.expert_bytes, (unsigned long long)f.trunk_bytes,
                  (unsigned long long)f.head_bytes,
                  (unsigned long long)(store->embed.stride * store->embed.shape.rows),
                  (unsigned long long)store->model_bytes);
    sl_buf_printf(b, "\"tokenizer\": %s, \"chat_template\": %s}\n",
                  store->tokenizer.bytes ? "true" : "false",
                  store->chat_template.bytes ? "true" : "false");
}

sl_status sl_show(const char *model, bool json, const sl_sink *sink, sl_error *err) {
    sl_store store;
    char drive_file[SL_PATH_MAX];
    sl_buf b;
    sl_status st = sl__api_describe(model, &store, drive_file, err);
    if (st)
        return st;
    sl_buf_init(&b);
    (json ? show_json : show_text)(&store, model, &b);
    st = sl__api_send(&b, sink, err);
    sl_buf_deinit(&b);
    sl_store_close(&store);
    return st;
}
