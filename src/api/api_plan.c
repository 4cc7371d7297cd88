/* Plan and description of a model that is not open, and the machine report. */
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/process.h"
#include "checkpoint/in_place.h"

#define CONFIG_MAX (16 * SL_MIB)
#define PROBE_DEPTH 8u
#define PROBE_BYTES (32 * SL_MIB)

/* ---- describing --------------------------------------------------------------------------------- */

static sl_status describe_checkpoint(const char *path, sl_store *out, char *drive_file,
                                     sl_error *err) {
    sl_checkpoint ck;
    sl_checkpoint_options options = {.frugal = true};
    sl_in_place in;
    sl_buf notes;
    sl_error ignored;
    // As open would have it; a checkpoint that has to be converted, as conversion would make it.
    if (sl_in_place_open(path, SL_DIRECT_PREFERRED, out, &in, &ignored) == SL_OK) {
        sl_in_place_close(&in);
        return sl_path_join(path, out->in_place->names[0], drive_file, SL_PATH_MAX, err);
    }
    sl_buf_init(&notes);
    sl_status st = sl_checkpoint_open(path, &options, &notes, &ck, err);
    if (!st) {
        if (ck.n_files)
            st = sl_path_join(path, ck.files[0], drive_file, SL_PATH_MAX, err);
        if (!st)
            st = sl_checkpoint_describe(&ck, out, err);
        sl_checkpoint_close(&ck);
    }
    sl_buf_deinit(&notes);
    return st;
}

static sl_status describe_config(const char *path, sl_store *out, sl_error *err) {
    sl_buf text;
    sl_checkpoint_options options = {0};
    sl_buf_init(&text);
    sl_status st = sl_file_slurp(path, CONFIG_MAX, &text, err);
    if (!st)
        st = sl_config_describe(text.data, text.len, &options, out, err);
    sl_buf_deinit(&text);
    return st;
}

sl_status sl__api_describe(const char *model, sl_store *out, char *drive_file, sl_error *err) {
    sl_status st;
    memset(out, 0, sizeof(*out));
    *drive_file = '\0';
    switch (sl_model_kind_of(model)) {
    case SL_MODEL_STORE:
        if ((st = sl_store_open(model, SL_DIRECT_PREFERRED, out, err)))
            return st;
        return sl_path_join(model, SL_STORE_EXPERTS "/000.bin", drive_file, SL_PATH_MAX, err);
    case SL_MODEL_CHECKPOINT:
        st = describe_checkpoint(model, out, drive_file, err);
        break;
    case SL_MODEL_CONFIG:
        st = describe_config(model, out, err);
        break;
    case SL_MODEL_PARTIAL:
        return sl_fail(err, SL_ERR_MISSING,
                       "'%s' is an unfinished conversion: run `sluice convert` again to go on",
                       model);
    case SL_MODEL_OTHER:
        return sl_fail(
            err, SL_ERR_UNSUPPORTED,
            "'%s' has a format that is not supported yet; supported are checkpoint folders with "
            "config.json and safetensors files, in the Hugging Face or the mlx-community layout",
            model);
    default:
        return sl_fail(err, SL_ERR_MISSING,
                       "'%s': expected a model's store, a checkpoint folder or a config.json",
                       model);
    }
    // What a conversion will add: nearly always a tokenizer of about this size, and a template.
    if (!st && !out->in_place && !out->tokenizer.bytes) {
        out->tokenizer.bytes = (uint64_t)out->model.n_vocab * 24;
        out->chat_template.bytes = 8 * SL_KIB;
    }
    return st;
}

/* ---- plan --------------------------------------------------------------------------------------- */

void sl__api_probe(const char *file, uint64_t record_bytes, sl_drive_info *out) {
    sl_error ignored;
    uint64_t record = SL_MIN(SL_ALIGN_UP(record_bytes, SL_PAGE), PROBE_BYTES);
    uint64_t bytes = sl_drive_probe_bytes(record, PROBE_DEPTH);
    void *block = sl_mem_alloc((size_t)bytes);
    sl_arena arena;
    memset(out, 0, sizeof(*out));
    if (!block)
        return;
    sl_arena_init(&arena, "probe", block, (size_t)bytes);
    if (sl_drive_probe(file, record, PROBE_DEPTH, PROBE_BYTES, &arena, out, &ignored))
        memset(out, 0, sizeof(*out));
    sl_mem_free(block);
}

sl_status sl_plan(const char *model, const sl_engine_options *options, bool probe,
                  sl_plan_info *out, sl_error *err) {
    sl_engine_setup setup;
    sl_store store;
    sl_plan_result plan;
    sl_engine_settings settings;
    char drive_file[SL_PATH_MAX];
    memset(out, 0, sizeof(*out));
    sl_status st = sl__api_setup(options, &setup, err);
    if (st)
        return st;
    uint64_t code = setup.process ? sl__engine_code_bytes() : 0;
    if ((st = sl__api_describe(model, &store, drive_file, err)))
        return sl_error_context(err, st, "planning for '%s'", model);
    st = sl__engine_plan(&store, &setup, code, &plan, &settings, NULL, err);
    if (!st || st == SL_ERR_BUDGET)
        sl__api_plan_info(&store, &plan, out);
    if (!st && probe && *drive_file) {
        sl_drive_info drive;
        sl__api_probe(drive_file, store.expert.stride, &drive);
        double speed = (double)drive.bytes_per_second;
        out->drive_bytes_per_second = drive.bytes_per_second;
        if (out->token_read_bytes_high)
            out->tokens_per_second_low = speed / (double)out->token_read_bytes_high;
        if (out->token_read_bytes_low)
            out->tokens_per_second_high = speed / (double)out->token_read_bytes_low;
    }
    sl_store_close(&store);
    return st;
}

/* ---- doctor -------------------------------------------------------------------------------------- */

typedef struct machine {
    uint64_t available, limit;
    uint32_t cpus, cores;
    bool uring, fpenv;
    sl_drive_info drive;
    bool probed;
} machine;

static void doctor_json(const machine *m, const char *path, sl_buf *b) {
    sl_buf_printf(b,
                  "{\"version\": \"%s\", \"cpu\": \"%s\", \"cpus\": %u, \"cores\": %u, "
                  "\"memory_available_bytes\": %llu, ",
                  SL_VERSION, sl_cpu_level_name(sl_cpu_level_best()), m->cpus, m->cores,
                  (unsigned long long)m->available);
    if (m->limit != UINT64_MAX)
        sl_buf_printf(b, "\"cgroup_limit_bytes\": %llu, ", (unsigned long long)m->limit);
    sl_buf_printf(b, "\"default_mem_bytes\": %llu, \"io_uring\": %s, \"path\": ",
                  (unsigned long long)sl_default_mem_bytes(), m->uring ? "true" : "false");
    sl_buf_add_json_string(b, path, strlen(path));
    sl_buf_printf(
        b, ", \"file_system\": \"%s\", \"network\": %s, \"device\": \"%s\", \"rotational\": %s",
        m->drive.file_system, m->drive.is_network ? "true" : "false", m->drive.device,
        m->drive.rotational < 0 ? "null"
        : m->drive.rotational   ? "true"
                                : "false");
    if (m->probed)
        sl_buf_printf(b,
                      ", \"direct\": %s, \"record_bytes\": %llu, \"read_bytes_per_second\": %llu, "
                      "\"latency_p50_us\": %u, \"latency_p90_us\": %u",
                      m->drive.direct ? "true" : "false", (unsigned long long)m->drive.record_bytes,
                      (unsigned long long)m->drive.bytes_per_second, m->drive.latency_p50_us,
                      m->drive.latency_p90_us);
    sl_buf_add_text(b, "}\n");
}

static void doctor_text(const machine *m, const char *path, sl_buf *b) {
    sl_buf_printf(b, "processor   %u of %u logical CPUs are cores; kernels: %s\n", m->cores,
                  m->cpus, sl_cpu_level_name(sl_cpu_level_best()));
    if (sl_cpu_level_best() == SL_CPU_REF)
        sl_buf_add_text(b,
                        "            ! no AVX2, AVX-512 or NEON: results are the same, and slow\n");
    sl_buf_add_text(b, "memory      ");
    sl__api_add_bytes(b, m->available);
    sl_buf_add_text(b, " available");
    if (m->limit != UINT64_MAX) {
        sl_buf_add_text(b, ", limited to ");
        sl__api_add_bytes(b, m->limit);
        sl_buf_add_text(b, " by a control group");
    }
    sl_buf_add_text(b, "; default budget ");
    sl__api_add_bytes(b, sl_default_mem_bytes());
    sl_buf_printf(b, "\nio_uring    %s\n",
                  m->uring
                      ? "works"
                      : "not allowed here: reads use a pool of threads, as fast on most drives");
    sl_buf_printf(b, "drive       %s: %s%s%s%s\n", path,
                  m->drive.file_system[0] ? m->drive.file_system : "unknown file system",
                  m->drive.device[0] ? " on " : "", m->drive.device,
                  m->drive.rotational == 1 ? " (says that it is a spinning disk)" : "");
    if (m->drive.is_network)
        sl_buf_add_text(b, "            ! a network or user-space file system: expect slow reads; "
                           "a local SSD is what this is made for\n");
    if (!m->probed) {
        sl_buf_add_text(b, "            give a model to measure direct reads with\n");
        return;
    }
    sl_buf_add_text(b, "reads       ");
    if (m->drive.direct)
        sl_buf_add_text(b, "direct I/O is true here; ");
    else
        sl_buf_printf(b, "! direct I/O is not true here (%s): opening needs --buffered; ",
                      m->drive.not_direct_why);
    sl__api_add_bytes(b, m->drive.bytes_per_second);
    sl_buf_add_text(b, "/s in records of ");
    sl__api_add_bytes(b, m->drive.record_bytes);
    sl_buf_printf(b, ", %u in flight; latency %u us (p50), %u us (p90)\n", m->drive.depth,
                  m->drive.latency_p50_us, m->drive.latency_p90_us);
    if (m->drive.bytes_per_second < 200 * SL_MIB)
        sl_buf_add_text(
            b, "            ! slow: a SATA SSD gives 500 MiB/s, an NVMe drive 2 GiB/s and more\n");
}

sl_status sl_doctor(const char *path, bool json, const sl_sink *sink, sl_error *err) {
    machine m;
    sl_path_info info;
    sl_store store;
    char drive_file[SL_PATH_MAX];
    memset(&m, 0, sizeof(m));
    sl_status st = sl_path_stat(path, &info, err);
    if (st)
        return st;
    if (info.kind == SL_PATH_NONE)
        return sl_fail(err, SL_ERR_MISSING, "'%s' does not exist", path);
    m.available = sl_memory_available();
    m.limit = sl_cgroup_memory_limit();
    m.cpus = sl_cpus_allowed();
    m.cores = sl_cores_allowed();
    m.uring = sl_reader_uring_works();
    sl_model_kind kind = sl_model_kind_of(path);
    if (kind == SL_MODEL_STORE || kind == SL_MODEL_CHECKPOINT) {
        if ((st = sl__api_describe(path, &store, drive_file, err)))
            return st;
        sl__api_probe(drive_file, store.expert.stride, &m.drive);
        sl_store_close(&store);
    } else if (info.kind == SL_PATH_FILE) {
        sl__api_probe(path, SL_MIB, &m.drive);
    }
    m.probed = m.drive.bytes_per_second > 0;
    if (!m.probed)
        sl_drive_describe(path, &m.drive);
    sl_buf b;
    sl_buf_init(&b);
    (json ? doctor_json : doctor_text)(&m, path, &b);
    st = sl__api_send(&b, sink, err);
    sl_buf_deinit(&b);
    return st;
}
