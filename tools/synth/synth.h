/* A made-up checkpoint: which tensors it has, what their rows hold, how it is written and checked.
 *
 * The list of tensors is that of sl_model_tensors(), each where sl_tensor_places() says MLX's files have it.
 * What a row holds follows from the seed, the tensor's name and the row's number. docs/synth.md describes
 * the structure that is planted in embedding, routers and layer outputs. */
#ifndef SYNTH_H
#define SYNTH_H

#include "base/buf.h"
#include "base/mem.h"
#include "model/model.h"
#include "tensor/dtype.h"

/* ---- shape ---------------------------------------------------------------------------------------- */

typedef struct synth_preset {
    const char *name, *config, *generation;
} synth_preset;
extern const synth_preset synth_presets[]; /* ends with a NULL name */
const synth_preset *synth_preset_find(const char *name);

/* Shares of the variance of a router's logits, and what else is planted. common + topic <= 1; the rest is of
 * the single token. */
typedef struct synth_gains {
    double common; /* the same for every token: some experts are picked often */
    double topic;  /* the same for the tokens of a topic: neighbours pick alike */
    double change; /* share of the rest that is new from one layer to the next */
    uint32_t n_topics;
} synth_gains;
synth_gains synth_gains_default(void);

typedef struct synth_options {
    uint32_t bits, group, n_layers; /* n_layers 0: as the config says */
    uint64_t seed;
    synth_gains gains;
} synth_options;

/* ---- channels ------------------------------------------------------------------------------------- */

/* What a channel of the residual stream is for. Values 0.. are slots: slot s is written by the feed-forward
 * layer s - 1 and the mixer s, and hardly by any other. */
enum { SYNTH_CHANNEL_SIGNAL = -1, SYNTH_CHANNEL_TOKEN = -2 };

typedef struct synth_channels {
    uint32_t d_model, n_slots;
    int16_t *of;     /* [d_model] */
    uint32_t *count; /* [n_slots] channels of a slot */
    uint32_t n_signal, n_token;
    int8_t *signs; /* [1 + n_topics][d_model] +-1: the common pattern, then each topic's */
} synth_channels;

/* ---- plan ----------------------------------------------------------------------------------------- */

typedef enum synth_fill {
    SYNTH_RANDOM,  /* random codes, or random numbers around `centre` */
    SYNTH_PLANTED, /* embedding, routers, head; the final norm of a tied head */
} synth_fill;

/* Weight of row r and channel j, in steps of 2^-16 codes from the middle of the range:
 *   common[j] + topic[j] * (sign of r's topic) + noise[j] * (odd number of -255 .. 255, by chance)
 * rounded up or down by chance, so that small weights are right in the mean. `unit` is a code's size. */
typedef struct synth_planted {
    const int32_t *common, *topic, *noise; /* [d_model] */
    float unit;
} synth_planted;

#define SYNTH_LEVELS 128u /* different scales that a matrix has */
typedef struct synth_scales {
    uint16_t scale[SYNTH_LEVELS], bias[SYNTH_LEVELS]; /* BF16 */
    uint8_t exponent;                                 /* MXFP4: the lower of two */
    uint8_t higher;                                   /* of 256 scales, how many have the other */
} synth_scales;

typedef struct synth_module {
    char name[192]; /* without ".weight" */
    sl_role role;
    uint32_t layer;
    synth_fill fill;
    sl_dtype dtype; /* Q2..Q8, MXFP4, BF16 or F32 */
    uint32_t rows, cols, n_stack, group;
    uint64_t n_rows; /* n_stack * rows */
    uint64_t key;
    float centre, half;   /* dense: centre + half * (-1..1) */
    bool writes;          /* rows are channels of the residual stream */
    uint32_t slot;        /* that it writes */
    synth_scales on, off; /* quantized: rows in the slot (or all), rows outside */
    synth_planted planted;
} synth_module;

typedef enum synth_part { SYNTH_CODES, SYNTH_SCALES, SYNTH_BIASES, SYNTH_DENSE } synth_part;

typedef struct synth_tensor {
    uint32_t module, shard;
    synth_part part;
    uint32_t n_dims, dims[3];
    uint64_t n_rows, row_bytes;
    uint64_t at; /* in its file */
} synth_tensor;

typedef struct synth_shard {
    uint32_t first, n; /* tensors */
    uint64_t bytes;
    sl_buf header; /* with its length in front */
} synth_shard;

typedef struct synth_plan {
    sl_arena arena; /* holds everything but the headers */
    synth_options options;
    sl_model model;
    synth_channels channels;
    synth_module *modules;
    synth_tensor *tensors;
    synth_shard *shards;
    uint32_t n_modules, n_tensors, n_shards;
    uint64_t bytes;         /* of all shards */
    uint64_t scratch_bytes; /* of synth_fill_range() */
    sl_buf config, index;   /* texts of config.json and model.safetensors.index.json */
    const char *generation; /* text, or NULL */
} synth_plan;

/* The plan of a checkpoint. config: text of a config.json (a quantization section in it is replaced);
 * generation: of a generation_config.json, or NULL; both must outlive the plan.
 * Errors: those of sl_model_from_config(), SL_ERR_ARGUMENT, SL_ERR_MEMORY. */
SL_MUST_USE sl_status synth_plan_make(const char *config, size_t len, const char *generation,
                                      const synth_options *options, synth_plan *out, sl_error *err);
/* Accepts a zeroed struct. */
void synth_plan_free(synth_plan *plan);
/* "model.safetensors", or "model-00001-of-00004.safetensors". */
void synth_shard_name(const synth_plan *plan, uint32_t shard, char *out, size_t cap);

SL_MUST_USE sl_status synth_channels_init(const sl_model *model, uint64_t seed,
                                          const synth_gains *gains, sl_arena *arena,
                                          synth_channels *out, sl_error *err);
uint64_t synth_channels_bytes(const sl_model *model, const synth_gains *gains);
/* What the router of a layer multiplies its random weight of each channel with: [d_model]. */
void synth_router_gains(const sl_model *model, const synth_gains *gains,
                        const synth_channels *channels, uint32_t layer, float *out);

/* Bytes at .. at + n of a shard. scratch: plan->scratch_bytes, 64-byte aligned. Any thread. */
void synth_fill_range(const synth_plan *plan, uint32_t shard, uint64_t at, size_t n, void *out,
                      void *scratch);

/* ---- writing -------------------------------------------------------------------------------------- */

typedef struct synth_write_options {
    uint32_t n_threads;
    bool force;            /* replace a checkpoint that is there */
    const char *tokenizer; /* folder whose tokenizer and template files are copied, or NULL */
    /* Called now and then; false stops. May be NULL. */
    bool (*report)(void *user, uint64_t done, uint64_t total);
    void *user;
} synth_write_options;

/* Write the checkpoint into the folder dir, which appears by rename when it is complete. Until then it is
 * dir.partial, which is removed on an error. With force, a checkpoint that is there is removed first, so that
 * room for one suffices. Errors: SL_ERR_EXISTS, SL_ERR_IO (also: not enough space, said
 * before anything is written), SL_ERR_CANCELED, SL_ERR_MEMORY. */
SL_MUST_USE sl_status synth_write(const synth_plan *plan, const char *dir,
                                  const synth_write_options *options, sl_error *err);

/* ---- tokens --------------------------------------------------------------------------------------- */

/* n tokens of a stream of topics: runs of tokens of one topic, of 96 tokens on average. Tokens that end an
 * answer do not occur. out [n]. */
void synth_stream(const sl_model *model, uint64_t seed, uint32_t n_topics, uint32_t *out, size_t n);

/* ---- checking ------------------------------------------------------------------------------------- */

/* Counts picks of tokens in order, layer by layer, and what was guessed of them. */
typedef struct synth_figures synth_figures;
SL_MUST_USE sl_status synth_figures_init(const sl_model *model, synth_figures **out, sl_error *err);
void synth_figures_free(synth_figures *figures);
/* Picks of a token [top_k]; tokens of a layer come in order. */
void synth_figures_picks(synth_figures *figures, uint32_t layer, const uint32_t *picks);
/* How many picks of a token in `layer` its state in the layer before had named. */
void synth_figures_guess(synth_figures *figures, uint32_t layer, const uint32_t *guessed,
                         const uint32_t *picks);
/* The residual stream of n tokens [n][d] at any layer. */
void synth_figures_stream(synth_figures *figures, const float *x, uint32_t n, uint32_t d);
typedef struct synth_summary {
    double overlap, top_few, top_many, guessed; /* means over layers, 0..1 */
    double rms_least, rms_greatest;             /* of the stream; 0: not seen */
    uint32_t n_few, n_many;                     /* how many experts the two cover */
} synth_summary;
void synth_figures_summary(const synth_figures *figures, synth_summary *out);
/* For people, with the least and the greatest of all layers. */
void synth_figures_print(const synth_figures *figures, sl_buf *out);

/* Without experts: embeddings and routers of a checkpoint, layer outputs as noise of the size they are made for.
 * n tokens of the stream of this seed. */
SL_MUST_USE sl_status synth_check_fast(const char *checkpoint, uint64_t seed,
                                       const synth_gains *gains, uint32_t n_tokens,
                                       uint32_t n_threads, synth_figures **out, sl_error *err);
/* With all of the forward pass, on a converted checkpoint. */
SL_MUST_USE sl_status synth_check_full(const char *store, uint64_t seed, uint32_t n_topics,
                                       uint32_t n_tokens, uint64_t budget_bytes, uint32_t n_threads,
                                       synth_figures **out, sl_error *err);

#endif
