/* model.h: a model folder or weight file with its attention layers, ready to compute.
 *
 * Families are recognised from config.json (model_type, architectures), else from tensor names; an
 * explicit layout wins; in doubt the load is refused with what was found. */
#ifndef ATTN_MODEL_H
#define ATTN_MODEL_H

#include <stdatomic.h>

#include "archive.h"
#include "json.h"
#include "layer.h"

typedef struct attn_model attn_model; /* immutable; share it across threads */

typedef struct {
    const char *name;        /* as in URLs */
    const char *path;        /* folder, .safetensors, .npz, .npy or index.json */
    const attn_json *layout; /* explicit layout object, or NULL: config.json's "layout", or none */
    const int64_t *layers;   /* which layers to load, in this order; NULL = all */
    size_t num_layers;
    const atomic_bool *cancel; /* true: ATTN_ECANCELED before the next layer; NULL = never */
} attn_model_options;

/* Loads and packs. On failure *out is NULL and err is one sentence that names file, tensor or key
 * and the values that disagree. */
ATTN_NODISCARD attn_status attn_model_load(attn_model **out, const attn_model_options *options,
                                           attn_error *err);
void attn_model_free(attn_model *m); /* takes NULL */

/* A model of layers that are there already; takes `layers` (malloc()ed) and what it holds, on failure too.
 * `family` is static. */
ATTN_NODISCARD attn_status attn_model_take_layers(attn_model **out, const char *name,
                                                  const char *family, attn_layer **layers, size_t n,
                                                  attn_error *err);

const char *attn_model_name(const attn_model *m);
const char *attn_model_path(const attn_model *m);
const char *attn_model_family(const attn_model *m); /* "bert", "llama", "attnd", ... */
size_t attn_model_layer_count(const attn_model *m);
const attn_layer *attn_model_layer(const attn_model *m, size_t i);
/* Where layer i comes from: its tensor prefix, "bert.encoder.layer.0.attention"; never NULL. */
const char *attn_model_layer_source(const attn_model *m, size_t i);
/* Position scheme of layer i: "none", "rope", "alibi" or "relative" (T5). */
const char *attn_model_layer_position(const attn_model *m, size_t i);
size_t attn_model_weights_bytes(const attn_model *m);
size_t attn_model_warning_count(const attn_model *m); /* unused tensors beside a layer, ... */
const char *attn_model_warning(const attn_model *m, size_t i);

#endif
