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
    uint64_t expert = 0, n_moe = sl_model_ffn_count(m, SL_FFN_MOE);
    for (uint32_t i = 0; i < store->expert.n_parts; i++)
        expert += size_of(&store->expert.shape[i]);
    f.parameters += size_of(&store->embed.shape) + expert * n_moe * m->moe.n_experts;
    f.active += expert * n_moe * m->moe.top_k + m->d_model;
    f.expert_bytes = store->expert.stride * n_moe * m->moe.n_experts;
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
    static const char *const names[SL_MIXER_COUNT] = {
        [SL_MIXER_ATTENTION] = "attention",
        [SL_MIXER_MLA] = "latent attention",
        [SL_MIXER_DELTA] = "gated delta net",
        [SL_MIXER_CONV] = "short convolution",
    };
    return names[mixer];
}

static bool same_kind(const sl_model *m, uint32_t i, uint32_t j) {
    return m->mixer[i] == m->mixer[j] && m->ffn[i] == m->ffn[j] && m->windowed[i] == m->windowed[j];
}

// Layers first .. end-1 as runs: "3 x (latent attention, dense), 58 x (latent attention, experts)".
static void add_runs(sl_buf *b, const sl_model *m, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end;) {
        uint32_t next = i;
        while (next < end && same_kind(m, next, i))
            next++;
        sl_buf_printf(b, "%s%u x (%s", i > first ? ", " : "", next - i, mixer_name(m->mixer[i]));
        if (m->windowed[i])
            sl_buf_printf(b, " over %u", m->attn.window);
        sl_buf_printf(b, ", %s)", m->ffn[i] == SL_FFN_MOE ? "experts" : "dense");
        i = next;
    }
}

static uint32_t count_runs(const sl_model *m) {
    uint32_t n = 1;
    for (uint32_t i = 1; i < m->n_layers; i++)
        n += !same_kind(m, i, i - 1);
    return n;
}

// How many layers repeat over and over; all of them where none do.
static uint32_t find_period(const sl_model *m) {
    for (uint32_t period = 1; period < m->n_layers; period++) {
        bool repeats = m->n_layers % period == 0;
        for (uint32_t i = period; repeats && i < m->n_layers; i++)
            repeats = same_kind(m, i, i - period);
        if (repeats)
            return period;
    }
    return m->n_layers;
}

static void add_layers(sl_buf *b, const sl_model *m) {
    uint32_t period = find_period(m);
    sl_buf_printf(b, "%u: ", m->n_layers);
    if (period < m->n_layers && period > 1) {
        sl_buf_printf(b, "%u times ", m->n_layers / period);
        add_runs(b, m, 0, period);
        return;
    }
    if (count_runs(m) <= 6) {
        add_runs(b, m, 0, m->n_layers);
        return;
    }
    bool first = true;
    for (unsigned i = 0; i < SL_MIXER_COUNT; i++) {
        uint32_t n = sl_model_mixer_count(m, (sl_mixer)i);
        if (n)
            sl_buf_printf(b, "%s%u x %s", first ? "" : ", ", n, mixer_name((uint8_t)i));
        first = first && !n;
    }
    sl_buf_printf(b, "; %u with experts", sl_model_ffn_count(m, SL_FFN_MOE));
    if (m->d_dense)
        sl_buf_printf(b, ", %u dense", sl_model_ffn_count(m, SL_FFN_DENSE));
}

static void add_mixers(sl_buf *b, const sl_model *m) {
    if (sl_model_mixer_count(m, SL_MIXER_ATTENTION)) {
        sl_buf_printf(
            b, "  attention  %u query heads over %u key/value heads of %u, %u elements rotate",
            m->attn.n_heads, m->attn.n_kv_heads, m->attn.d_head, m->rope.n_rot);
        const struct {
            bool is;
            const char *what;
        } extras[] = {
            {m->attn.gated, "output gate"}, {m->attn.sinks, "sinks"}, {m->attn.qkv_bias, "biases"}};
        for (size_t i = 0; i < SL_COUNT(extras); i++)
            if (extras[i].is)
                sl_buf_printf(b, ", %s", extras[i].what);
        sl_buf_add_text(b, "\n");
    }
    if (sl_model_mixer_count(m, SL_MIXER_MLA)) {
        sl_buf_printf(b,
                      "  latent     %u heads over one latent of %u and a key of %u that rotates; "
                      "values of %u",
                      m->attn.n_heads, m->mla.d_latent, m->mla.d_rope, m->mla.d_v);
        if (m->mla.d_q_latent)
            sl_buf_printf(b, "; queries through %u", m->mla.d_q_latent);
        sl_buf_add_text(b, "\n");
    }
    if (sl_model_mixer_count(m, SL_MIXER_DELTA))
        sl_buf_printf(b,
                      "  delta net  %u value heads of %u over %u key heads of %u, convolution %u\n",
                      m->delta.n_v_heads, m->delta.d_v, m->delta.n_k_heads, m->delta.d_k,
                      m->delta.conv_width);
    if (sl_model_mixer_count(m, SL_MIXER_CONV))
        sl_buf_printf(b, "  short conv %u channels over %u tokens, gated\n", m->d_model,
                      m->conv.width);
}

static void add_experts(sl_buf *b, const sl_model *m) {
    sl_buf_printf(b, "  experts    %u a layer, %u for each token, inner size %u", m->moe.n_experts,
                  m->moe.top_k, m->moe.d_expert);
    if (m->moe.n_groups > 1)
        sl_buf_printf(b, ", from %u of %u groups", m->moe.groups_kept, m->moe.n_groups);
    if (m->moe.d_shared)
        sl_buf_printf(b, "; a shared one of %u", m->moe.d_shared);
    sl_buf_add_text(b, "\n");
    if (m->d_dense)
        sl_buf_printf(b, "  dense      inner size %u\n", m->d_dense);
}

static void add_unused(sl_buf *b, const sl_model *m) {
    if (m->n_mtp_layers)
        sl_buf_printf(b,
                      "  not used   multi-token prediction (%u %s): it drafts tokens, answers do "
                      "not need it\n",
                      m->n_mtp_layers, m->n_mtp_layers == 1 ? "layer" : "layers");
    if (m->vision)
        sl_buf_add_text(b, "  not used   the vision tower: this version reads text\n");
}

static void show_text(const sl_store *store, const char *path, sl_buf *b) {
    const sl_model *m = &store->model;
    figures f = count(store);
    sl_buf_printf(b, "%s\n  family     %s\n  layers     ", path, sl_model_family_name(m));
    add_layers(b, m);
    sl_buf_printf(b, "\n             hidden %u, vocabulary %u, context %u\n", m->d_model,
                  m->n_vocab, m->n_ctx_max);
    add_mixers(b, m);
    add_experts(b, m);
    add_unused(b, m);
    sl_buf_add_text(b, "  parameters ");
    add_count(b, f.parameters);
    sl_buf_add_text(b, ", active for a token ");
    add_count(b, f.active);
    sl_buf_add_text(b, "\n");
    sl_buf_add_text(b, "\nbytes as stored\n");
    char note[96];
    sl_buf n;
    sl_buf_init_fixed(&n, note, sizeof(note));
    add_type(&n, &store->expert.shape[SL_PART_GATE]);
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
                  "\"top_k\": %u, \"d_expert\": %u, \"d_shared\": %u, \"n_dense_layers\": %u, "
                  "\"d_dense\": %u, \"n_mtp_layers_unused\": %u, \"vision_unused\": %s, ",
                  m->d_model, m->n_vocab, m->n_ctx_max, m->moe.n_experts, m->moe.top_k,
                  m->moe.d_expert, m->moe.d_shared, sl_model_ffn_count(m, SL_FFN_DENSE), m->d_dense,
                  m->n_mtp_layers, m->vision ? "true" : "false");
    sl_buf_printf(b,
                  "\"parameters\": %llu, \"active_parameters\": %llu, \"expert_dtype\": \"%s\", "
                  "\"expert_bytes\": %llu, \"experts_bytes\": %llu, \"trunk_bytes\": %llu, "
                  "\"head_bytes\": %llu, \"embedding_bytes\": %llu, \"model_bytes\": %llu, ",
                  (unsigned long long)f.parameters, (unsigned long long)f.active,
                  sl_dtype_name(store->expert.shape[SL_PART_GATE].dtype),
                  (unsigned long long)store->expert.stride, (unsigned long long)f.expert_bytes,
                  (unsigned long long)f.trunk_bytes, (unsigned long long)f.head_bytes,
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
