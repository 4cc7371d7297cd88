/* Where a checkpoint may hold a tensor: names from the family's tables, runs of rows from the descriptor. */
#include <stdio.h>
#include <string.h>

#include "model/family.h"

const char *const *sl_model_name_prefixes(const sl_model *model) {
    return model->family->prefixes;
}
const char *const *sl_model_head_prefixes(const sl_model *model) {
    return model->family->head_prefixes;
}
const char *const *sl_model_unused_prefixes(const sl_model *model) {
    return model->family->unused_prefixes;
}

static const sl_tensor_row *find_in(const sl_tensor_block *block, sl_role role) {
    for (uint32_t i = 0; i < block->n; i++)
        if (block->rows[i].role == role)
            return &block->rows[i];
    return NULL;
}

static const sl_tensor_row *find_row(const sl_family *f, sl_role role) {
    const sl_tensor_row *row = find_in(&f->first, role);
    for (const sl_tensor_block *const *b = f->layer; *b && !row; b++)
        row = find_in(*b, role);
    return row ? row : find_in(&f->last, role);
}

// Rows per head that come after one another in a projection fused per key head: of qkvz, and of ba.
static uint32_t v_heads_per_group(const sl_model *m) {
    return m->delta.n_v_heads / m->delta.n_k_heads;
}

static void grouped(const sl_model *m, sl_map map, sl_tensor_place *p) {
    uint32_t n = m->delta.n_k_heads, k = m->delta.d_k, share = v_heads_per_group(m);
    uint32_t v = share * m->delta.d_v, group = 2 * k + 2 * v;
    switch (map) {
    case SL_MAP_GROUPED_QKV:
        p->rows = n * group;
        p->n_runs = 3;
        p->runs[0] = (sl_row_run){0, k, group, n};
        p->runs[1] = (sl_row_run){k, k, group, n};
        p->runs[2] = (sl_row_run){2 * k, v, group, n};
        break;
    case SL_MAP_GROUPED_Z:
        p->rows = n * group;
        p->runs[0] = (sl_row_run){2 * k + v, v, group, n};
        break;
    default: // ba
        p->rows = n * 2 * share;
        p->runs[0] = (sl_row_run){map == SL_MAP_GROUPED_B ? 0 : share, share, 2 * share, n};
        break;
    }
}

/* An expert's matrix of a fused tensor [n_experts][...]. Gate and up stand together, down by itself. */
static void fused(const sl_model *m, const sl_tensor_spec *spec, sl_map map, uint32_t expert,
                  sl_tensor_place *p) {
    bool down = spec->role == SL_ROLE_EXPERT_DOWN_PROJ || spec->role == SL_ROLE_EXPERT_DOWN_BIAS;
    bool up = spec->role == SL_ROLE_EXPERT_UP_PROJ || spec->role == SL_ROLE_EXPERT_UP_BIAS;
    p->n_stack = m->moe.n_experts;
    p->index = expert;
    if (map == SL_MAP_COLUMN_PAIRS) {
        if (spec->kind == SL_TENSOR_EXPERT) { // [in][out]
            p->transposed = true;
            p->rows = spec->cols;
            p->cols = spec->rows;
            p->runs[0] = (sl_row_run){0, p->rows, p->rows, 1};
        }
        if (!down) {
            p->cols *= 2;
            p->first_col = up;
            p->col_step = 2;
        }
        return;
    }
    if (down)
        return;
    p->rows = 2 * spec->rows;
    if (map == SL_MAP_ROW_PAIRS)
        p->runs[0] = (sl_row_run){up, 1, 2, spec->rows};
    else
        p->runs[0].first = up ? spec->rows : 0;
}

static void fill_place(const sl_model *m, const sl_tensor_spec *spec, const sl_tensor_source *s,
                       uint32_t expert, sl_tensor_place *p) {
    memset(p, 0, sizeof(*p));
    p->suffix = s->suffix;
    p->mlx = s->mlx;
    p->rows = spec->rows;
    p->cols = spec->cols;
    p->n_runs = 1;
    p->runs[0] = (sl_row_run){0, spec->rows, spec->rows, 1};
    p->col_step = 1;
    switch (s->map) {
    case SL_MAP_PLAIN:
    case SL_MAP_SINGLE:
        break;
    case SL_MAP_HEADS:
        p->n_stack = m->attn.n_heads;
        p->index = SL_STACK_WHOLE;
        break;
    case SL_MAP_KV_B_KEYS:
    case SL_MAP_KV_B_VALUES: {
        bool keys = s->map == SL_MAP_KV_B_KEYS;
        uint32_t head = m->mla.d_nope + m->mla.d_v;
        p->rows = m->attn.n_heads * head;
        p->cols = m->mla.d_latent;
        p->transposed = keys;
        p->runs[0] = (sl_row_run){keys ? 0 : m->mla.d_nope, keys ? m->mla.d_nope : m->mla.d_v, head,
                                  m->attn.n_heads};
        break;
    }
    case SL_MAP_GROUPED_QKV:
    case SL_MAP_GROUPED_Z:
    case SL_MAP_GROUPED_A:
    case SL_MAP_GROUPED_B:
        grouped(m, s->map, p);
        break;
    case SL_MAP_STACK:
        p->n_stack = m->moe.n_experts;
        p->index = expert;
        break;
    case SL_MAP_FUSED:
    case SL_MAP_ROW_PAIRS:
    case SL_MAP_COLUMN_PAIRS:
        fused(m, spec, s->map, expert, p);
        break;
    }
}

static void name_place(const sl_model *m, const sl_tensor_spec *spec, const sl_tensor_source *s,
                       uint32_t expert, sl_tensor_place *p) {
    bool of_layer = spec->role != SL_ROLE_EMBED && spec->role != SL_ROLE_HEAD &&
                    spec->role != SL_ROLE_NORM_FINAL;
    char tail[80];
    if (spec->role == SL_ROLE_HEAD && m->tied_head)
        s = m->family->first.rows[0].sources; // the embedding's
    const char *mark = strstr(s->name, "%u");
    if (mark)
        (void)snprintf(tail, sizeof(tail), "%.*s%u%s", (int)(mark - s->name), s->name, expert,
                       mark + 2);
    else
        (void)snprintf(tail, sizeof(tail), "%s", s->name);
    if (of_layer)
        (void)snprintf(p->name, sizeof(p->name), "layers.%u.%s", spec->layer, tail);
    else
        (void)snprintf(p->name, sizeof(p->name), "%s", tail);
}

uint32_t sl_tensor_places(const sl_model *model, const sl_tensor_spec *spec, uint32_t expert,
                          sl_tensor_place out[SL_PLACES_MAX]) {
    const sl_tensor_row *row = find_row(model->family, spec->role);
    uint32_t n = 0;
    for (; row && n < SL_PLACES_MAX && row->sources[n].name; n++) {
        fill_place(model, spec, &row->sources[n], expert, &out[n]);
        name_place(model, spec, &row->sources[n], expert, &out[n]);
    }
    return n;
}

bool sl_place_is_plain(const sl_tensor_place *p) {
    return p->n_runs == 1 && p->runs[0].count == 1 && p->runs[0].first == 0 &&
           p->runs[0].rows == p->rows && !p->transposed && p->first_col == 0 && p->col_step == 1;
}
