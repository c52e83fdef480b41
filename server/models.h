/* models.h: the models that are served by name, and their weights, which may be replaced while requests compute.
 *
 * A request acquires a model once and computes with that set of weights to its end; a set is freed after its last
 * request. What takes long runs on a thread of its own, behind everybody else: loading, packing, freeing.
 *
 *                    load: ok, and the next request has the new weights
 *                   .--------.
 *                   v        |          load: failed, the old weights stay
 *      loading --> ready ----'--------> ready
 *        ^  |         |
 *   load |  | failed  | unload
 *        |  v         |
 *      unloaded <-----'
 *
 * One load or reload is under way at a time. A set without a tokeniser, because that cannot be read, does not take the
 * place of one with it. */
#ifndef SRV_MODELS_H
#define SRV_MODELS_H

#include <stdatomic.h>

#include "config/config.h"
#include "core/encoder.h"
#include "core/tokenizer.h"
#include "server/examples.h"
#include "server/model_stats.h"

typedef struct srv_models srv_models;

/* One set of weights and what lay beside it; immutable, but for the statistics, which all sets of a name share. */
typedef struct srv_served {
    attn_model *model;
    attn_tokenizer *tokenizer; /* of a whole encoder; NULL = none, and why */
    attn_error no_tokenizer;
    srv_examples *examples;
    srv_model_stats *stats;
} srv_served;

/* Loads all of the list, which outlives the models; none = the demo model. The first failure is the error:
 * ATTN_ECANCELED once *cancel is true, which also ends later loads. */
ATTN_NODISCARD attn_status srv_models_new(srv_models **out, const cfg_model *list, size_t n,
                                          const atomic_bool *cancel, attn_error *err);
/* Logs what is there; from here on it can be loaded and unloaded. */
ATTN_NODISCARD attn_status srv_models_start(srv_models *m, attn_error *err);
void srv_models_free(srv_models *m); /* nothing is held any more; waits for a load; takes NULL */

/* --- what is there; any thread ---------------------------------------------------------------- */

size_t srv_models_count(const srv_models *m);
const char *srv_models_name(const srv_models *m, size_t i);
size_t srv_models_find(const srv_models *m, const char *name); /* SIZE_MAX = there is none */

/* The first one that takes texts; while it is unloaded, too. SIZE_MAX = none does. */
size_t srv_models_first_of_texts(srv_models *m);

/* The weights of now, which stay until they are released; NULL = the model is not loaded. */
const srv_served *srv_models_acquire(srv_models *m, size_t i);
void srv_models_release(srv_models *m, const srv_served *served); /* takes NULL */

typedef enum { SRV_MODEL_READY, SRV_MODEL_LOADING, SRV_MODEL_UNLOADED } srv_model_state;

/* *last (unless NULL): why the last load failed; its code is ATTN_OK when it did not. */
srv_model_state srv_models_state(srv_models *m, size_t i, attn_error *last);

typedef struct {
    size_t ready;          /* models */
    size_t weights_bytes;  /* of all sets, those that only requests still hold among them */
    uint64_t loads, fails; /* since srv_models_start() */
} srv_models_figures;

srv_models_figures srv_models_get_figures(srv_models *m);

/* --- changes; any thread ---------------------------------------------------------------------- */

/* On the thread of the models. */
typedef void srv_models_done(void *arg, attn_status rc, const attn_error *err);

/* Loads a model from its path, in place of what is there. ATTN_EBUSY: another load is under way, `done` will not be
 * called. */
ATTN_NODISCARD attn_status srv_models_load(srv_models *m, size_t i, srv_models_done *done,
                                           void *arg, attn_error *err);

/* At once for new requests, again is harmless. ATTN_EBUSY: a load is under way. */
ATTN_NODISCARD attn_status srv_models_unload(srv_models *m, size_t i, attn_error *err);

/* Loads every model that is ready, one after the other; what fails stays as it is. `done` is told of the first failure.
 * False: a load is under way. The reload follows it; of several that wait, one is made. */
bool srv_models_reload(srv_models *m, srv_models_done *done, void *arg);

#endif
