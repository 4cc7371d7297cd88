/* safetensors headers, see safetensors.h. Read with the pull reader: headers reach 100 MB. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define NAMES_BLOCK ((size_t)1 << 18)

struct sl_st_names {
    struct sl_st_names *next;
    size_t used;
    char text[NAMES_BLOCK];
};

void sl_st_table_init(sl_st_table *table) {
    memset(table, 0, sizeof(*table));
}

void sl_st_table_deinit(sl_st_table *table) {
    while (table->names) {
        struct sl_st_names *next = table->names->next;
        sl_mem_free(table->names);
        table->names = next;
    }
    sl_mem_free(table->tensors);
    memset(table, 0, sizeof(*table));
}

// A decoded, NUL-terminated copy of the reader's last string. NULL: no memory.
static const char *keep_name(sl_st_table *table, const sl_json_reader *r) {
    if (!table->names || NAMES_BLOCK - table->names->used < r->len + 1) {
        struct sl_st_names *block = sl_mem_alloc(sizeof(*block));
        if (!block)
            return NULL;
        block->next = table->names;
        block->used = 0;
        table->names = block;
    }
    char *name = table->names->text + table->names->used;
    size_t n = sl_json_decode(r, name);
    name[n] = '\0';
    table->names->used += n + 1;
    return name;
}

static sl_st_tensor *append(sl_st_table *table) {
    if (table->n_tensors == table->cap) {
        uint32_t cap = table->cap ? 2 * table->cap : 256;
        sl_st_tensor *grown = sl_mem_realloc(table->tensors, cap * sizeof(*grown));
        if (!grown)
            return NULL;
        table->tensors = grown;
        table->cap = cap;
    }
    sl_st_tensor *t = &table->tensors[table->n_tensors];
    memset(t, 0, sizeof(*t));
    return t;
}

static const struct {
    const char *name;
    uint8_t bits;
    uint8_t dtype;
} dtypes[] = {
    {"BF16", 16, SL_DTYPE_BF16},    {"F16", 16, SL_DTYPE_F16},
    {"F32", 32, SL_DTYPE_F32},      {"U32", 32, SL_DTYPE_U32},
    {"I32", 32, SL_DTYPE_I32},      {"U8", 8, SL_DTYPE_U8},
    {"F64", 64, SL_DTYPE_COUNT},    {"I64", 64, SL_DTYPE_COUNT},
    {"U64", 64, SL_DTYPE_COUNT},    {"I16", 16, SL_DTYPE_COUNT},
    {"U16", 16, SL_DTYPE_COUNT},    {"I8", 8, SL_DTYPE_COUNT},
    {"BOOL", 8, SL_DTYPE_COUNT},    {"F8_E4M3", 8, SL_DTYPE_F8_E4M3},
    {"F8_E5M2", 8, SL_DTYPE_COUNT}, {"F8_E8M0", 8, SL_DTYPE_COUNT},
    {"C64", 64, SL_DTYPE_COUNT},    {"F4", 4, SL_DTYPE_COUNT},
};

/* What reading a header needs at hand. */
typedef struct reader {
    sl_json_reader json;
    const char *name;    /* of the tensor at hand, for messages; NULL before the first */
    uint64_t data_bytes; /* after the header */
    sl_error *err;
} reader;

static sl_status bad(const reader *r, const char *what) {
    return sl_fail(r->err, SL_ERR_CORRUPT, "safetensors header: tensor '%.200s': %s", r->name,
                   what);
}

// The next event must be this one.
static sl_status expect(reader *r, sl_json_event want, const char *what) {
    sl_json_event ev = sl_json_next(&r->json, r->err);
    if (ev == SL_JSON_EV_ERROR)
        return sl_error_context(r->err, SL_ERR_CORRUPT, "safetensors header");
    if (ev == want)
        return SL_OK;
    return r->name ? bad(r, what) : sl_fail(r->err, SL_ERR_CORRUPT, "safetensors header: %s", what);
}

static sl_status whole_number(const reader *r, uint64_t *out) {
    uint64_t v = 0;
    for (size_t i = 0; i < r->json.len; i++) {
        char c = r->json.text[i];
        if (c < '0' || c > '9' || v > (UINT64_MAX - 9) / 10)
            return bad(r, "a size or offset is not a whole number below 2^64");
        v = v * 10 + (uint64_t)(c - '0');
    }
    *out = v;
    return SL_OK;
}

// Numbers of an array, up to max of them.
static sl_status read_numbers(reader *r, uint64_t *out, unsigned max, unsigned *n) {
    sl_status st;
    *n = 0;
    if ((st = expect(r, SL_JSON_EV_BEGIN_ARRAY, "'shape' or 'data_offsets' is not a list")))
        return st;
    for (;;) {
        sl_json_event ev = sl_json_next(&r->json, r->err);
        if (ev == SL_JSON_EV_END_ARRAY)
            return SL_OK;
        if (ev == SL_JSON_EV_ERROR)
            return sl_error_context(r->err, SL_ERR_CORRUPT, "safetensors header");
        if (ev != SL_JSON_EV_NUMBER)
            return bad(r, "'shape' and 'data_offsets' must list numbers");
        if (*n == max)
            return bad(r, "too many dimensions or offsets");
        if ((st = whole_number(r, &out[(*n)++])))
            return st;
    }
}

static sl_status read_dtype(reader *r, sl_st_tensor *t, unsigned *bits) {
    sl_status st = expect(r, SL_JSON_EV_STRING, "'dtype' is not a string");
    if (st)
        return st;
    for (size_t i = 0; i < SL_COUNT(dtypes); i++) {
        if (sl_json_reader_is(&r->json, dtypes[i].name)) {
            memcpy(t->dtype_name, dtypes[i].name, strlen(dtypes[i].name) + 1);
            t->dtype = dtypes[i].dtype;
            *bits = dtypes[i].bits;
            return SL_OK;
        }
    }
    return sl_fail(r->err, SL_ERR_UNSUPPORTED,
                   "safetensors header: tensor '%.200s': unknown type '%.*s'", r->name,
                   (int)SL_MIN(r->json.len, (size_t)20), r->json.text);
}

// After a name: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}.
static sl_status read_tensor(reader *r, uint64_t header_end, sl_st_tensor *t) {
    sl_status st;
    uint64_t range[2] = {0, 0}, size = 1;
    unsigned n_dims = 0, n_offsets = 0, bits = 0, seen = 0;
    if ((st = expect(r, SL_JSON_EV_BEGIN_OBJECT, "not described by an object")))
        return st;
    for (;;) {
        sl_json_event ev = sl_json_next(&r->json, r->err);
        unsigned field;
        if (ev == SL_JSON_EV_END_OBJECT)
            break;
        if (ev == SL_JSON_EV_ERROR)
            return sl_error_context(r->err, SL_ERR_CORRUPT, "safetensors header");
        if (sl_json_reader_is(&r->json, "dtype")) {
            field = 1;
            st = read_dtype(r, t, &bits);
        } else if (sl_json_reader_is(&r->json, "shape")) {
            field = 2;
            st = read_numbers(r, t->dims, SL_ST_DIMS_MAX, &n_dims);
        } else if (sl_json_reader_is(&r->json, "data_offsets")) {
            field = 4;
            st = read_numbers(r, range, 2, &n_offsets);
        } else {
            return bad(r, "an unknown field");
        }
        if (st)
            return st;
        if (seen & field)
            return bad(r, "a field is given twice");
        seen |= field;
    }
    if (seen != 7 || n_offsets != 2)
        return bad(r, "it needs dtype, shape and two data_offsets");
    for (unsigned i = 0; i < n_dims; i++) {
        if (t->dims[i] && size > ((uint64_t)1 << 56) / t->dims[i])
            return bad(r, "its shape is too large to be true");
        size *= t->dims[i];
    }
    if (range[1] < range[0] || range[1] > r->data_bytes)
        return sl_fail(r->err, SL_ERR_CORRUPT,
                       "safetensors header: tensor '%.200s' takes bytes %llu to %llu of the data, "
                       "which has %llu: the file "
                       "is cut short or damaged",
                       r->name, (unsigned long long)range[0], (unsigned long long)range[1],
                       (unsigned long long)r->data_bytes);
    if (size * bits % 8 || range[1] - range[0] != size * bits / 8)
        return bad(r, "its bytes are not its shape times its element size");
    t->n_dims = (uint8_t)n_dims;
    t->offset = header_end + range[0];
    t->bytes = range[1] - range[0];
    return SL_OK;
}

static int by_offset(const void *a, const void *b) {
    const sl_st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

// The tensors from `first` on lie one behind the other, and the last ends where the file does.
static sl_status check_ranges(sl_st_table *table, uint32_t first, uint64_t end, uint64_t file_bytes,
                              sl_error *err) {
    if (table->n_tensors > first)
        qsort(&table->tensors[first], table->n_tensors - first, sizeof(*table->tensors), by_offset);
    for (uint32_t i = first; i < table->n_tensors; i++) {
        const sl_st_tensor *t = &table->tensors[i];
        if (t->offset < end)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "safetensors header: tensors '%.150s' and '%.150s' overlap",
                           table->tensors[i - 1].name, t->name);
        end = t->offset + t->bytes;
    }
    if (end != file_bytes)
        return sl_fail(err, SL_ERR_CORRUPT, "the file is %llu bytes long, its tensors end at %llu",
                       (unsigned long long)file_bytes, (unsigned long long)end);
    return SL_OK;
}

sl_status sl_st_add_header(sl_st_table *table, const char *text, uint64_t len, uint64_t file_bytes,
                           uint32_t file, sl_error *err) {
    sl_status st;
    uint32_t first = table->n_tensors;
    reader r = {.name = NULL, .data_bytes = file_bytes - 8 - len, .err = err};
    sl_json_reader_init(&r.json, text, (size_t)len);
    if ((st = expect(&r, SL_JSON_EV_BEGIN_OBJECT, "not an object")))
        return st;
    for (;;) {
        sl_json_event ev = sl_json_next(&r.json, err);
        if (ev == SL_JSON_EV_END_OBJECT)
            break;
        if (ev == SL_JSON_EV_ERROR)
            return sl_error_context(err, SL_ERR_CORRUPT, "safetensors header");
        if (sl_json_reader_is(&r.json, "__metadata__")) {
            if (sl_json_skip(&r.json, false, err))
                return sl_error_context(err, SL_ERR_CORRUPT, "safetensors header");
            continue;
        }
        if (r.json.len > SL_ST_NAME_MAX)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "safetensors header: a tensor's name is longer than %u bytes",
                           SL_ST_NAME_MAX);
        if (table->n_tensors == SL_ST_TENSORS_MAX)
            return sl_fail(err, SL_ERR_UNSUPPORTED, "more than %u tensors", SL_ST_TENSORS_MAX);
        r.name = keep_name(table, &r.json);
        sl_st_tensor *t = append(table);
        if (!r.name || !t)
            return sl_fail(err, SL_ERR_MEMORY, "no memory for a table of %u tensors",
                           table->n_tensors);
        if ((st = read_tensor(&r, 8 + len, t)))
            return st;
        t->name = r.name;
        t->file = file;
        table->n_tensors++;
    }
    // Padding with spaces is customary; anything else after the object is not.
    if ((st = expect(&r, SL_JSON_EV_END, "text after the end")))
        return st;
    return check_ranges(table, first, 8 + len, file_bytes, err);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const sl_st_tensor *)a)->name, ((const sl_st_tensor *)b)->name);
}

sl_status sl_st_sort(sl_st_table *table, sl_error *err) {
    if (table->n_tensors)
        qsort(table->tensors, table->n_tensors, sizeof(*table->tensors), by_name);
    for (uint32_t i = 1; i < table->n_tensors; i++)
        if (strcmp(table->tensors[i - 1].name, table->tensors[i].name) == 0)
            return sl_fail(err, SL_ERR_CORRUPT, "tensor '%.200s' is there twice",
                           table->tensors[i].name);
    return SL_OK;
}

sl_st_tensor *sl_st_find(const sl_st_table *table, const char *name) {
    uint32_t low = 0, high = table->n_tensors;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        int order = strcmp(table->tensors[mid].name, name);
        if (order == 0)
            return &table->tensors[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

sl_status sl_st_header_bytes(const void *first, size_t n, uint64_t file_bytes, uint64_t *out,
                             sl_error *err) {
    static const char lfs[] = "version https://git-lfs";
    const uint8_t *p = first;
    *out = 0;
    if (n >= sizeof(lfs) - 1 && memcmp(p, lfs, sizeof(lfs) - 1) == 0)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "this is a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'");
    if (n >= 4 && memcmp(p, "GGUF", 4) == 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "this is a GGUF file, which is not supported yet; safetensors are");
    if (n < 8)
        return sl_fail(err, SL_ERR_CORRUPT, "only %llu bytes long: no safetensors file",
                       (unsigned long long)file_bytes);
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | p[i];
    if (len > SL_ST_HEADER_MAX)
        return sl_fail(
            err, SL_ERR_CORRUPT,
            "its header would be %llu bytes long, at most %llu are allowed: no safetensors file",
            (unsigned long long)len, (unsigned long long)SL_ST_HEADER_MAX);
    if (len > file_bytes - 8)
        return sl_fail(err, SL_ERR_CORRUPT,
                       "the file is %llu bytes long and its header alone %llu: cut short",
                       (unsigned long long)file_bytes, (unsigned long long)len);
    *out = len;
    return SL_OK;
}
