/* What the sources of the plan share. */
#ifndef SYNTH_PLAN_INTERNAL_H
#define SYNTH_PLAN_INTERNAL_H

#include "synth.h"

/* Standard deviation of a router's logits, and of the head's: by the topic, and without it. */
#define SYNTH_LOGIT_STD 1.5
#define SYNTH_HEAD_TOPIC 5.0
#define SYNTH_HEAD_NOISE 1.5
/* Amplitude of what layers write outside of their slot. */
#define SYNTH_LEAK 0.03125f

/* Size and fill of a module of this role; bits and group as the plan's options say. */
sl_status synth_module_fill(synth_plan *plan, const sl_tensor_spec *spec, bool mxfp4,
                            synth_module *out, sl_error *err);

/* The text of a config with n_layers layers (0: as it says), one space after commas, without its quantization
 * section. */
sl_status synth_config_cut(const sl_json *config, uint32_t n_layers, sl_buf *out, sl_error *err);
/* Add the quantization section that describes the plan's modules. */
void synth_config_quantization(const synth_plan *plan, sl_buf *config);

#endif
