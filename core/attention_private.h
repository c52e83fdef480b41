/* attention_private.h: one call of attn_forward(), shared by its phases. */
#ifndef ATTN_ATTENTION_PRIVATE_H
#define ATTN_ATTENTION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "attention.h"
#include "kern.h"
#include "layer_private.h"

/* Tiles of work; a row's bits do not depend on them, where rows are cut at attn_row_unit(). */
enum {
    STRIP_ROWS = 144,      /* most query rows of one attention task */
    CAUSAL_ROWS = 72,      /* the same with causality: less is computed in vain (measured: 4 %) */
    KEY_TILE = 512,        /* keys of one step of the running softmax; decides bits */
    KEPT_FLOATS = 196608,  /* scores that a task keeps for probability maps, in the second cache */
    PACK_ROWS = 64,        /* keys that came as they are, of one packing task */
    PROJECTION_ROWS = 240, /* most rows of one projection task */
    PROJECTION_FLOATS = 61440 /* keys or values of one task before they are packed */
};

/* The phases of a call, each a run of the pool over its tasks. */
typedef enum {
    ATTN_PHASE_INPUT, /* queries, keys and values: projected, normalised, rotated, checked, packed */
    ATTN_PHASE_STRIP,  /* attention: a strip of queries of one head (or of all, when reduced) */
    ATTN_PHASE_OUTPUT, /* output projection */
    ATTN_PHASE_POOL,   /* rows of pooled maps, a head each */
    ATTN_PHASES
} attn_phase;

typedef enum {
    ATTN_PROJECT_Q,
    ATTN_PROJECT_K,
    ATTN_PROJECT_V,
    ATTN_PROJECT_OUT,
    ATTN_PROJECTIONS
} attn_projection;

/* One sequence in the workspace. */
typedef struct {
    attn_sequence *seq;
    size_t s_len;        /* S = past + new */
    attn_view query;     /* [H][T][d], rotated; not scaled */
    attn_view context;   /* [H][T][e]; data NULL = not needed */
    float *packed_key;   /* [G] packed [d, S] */
    float *packed_value; /* [G] packed [S, e] */
    /* Rows to project from here on: this sequence's, or those of several, or none. */
    size_t rows[ATTN_PROJECTIONS];
    size_t first[ATTN_PHASES]; /* number of its first task in each phase */
} attn_item;

typedef struct {
    const attn_layer *layer;
    attn_heads heads;
    const attn_options *opt;
    attn_item *items;
    size_t n, workers;
    bool keys_only;  /* attn_prepare() */
    bool every_head; /* a result needs all heads, not only those of the maps */
    size_t tasks[ATTN_PHASES];
    float *scratch; /* per worker: scratch_floats */
    size_t scratch_floats;
    const atomic_bool *cancel;
    atomic_bool dirty;         /* a row that was read or projected is not finite */
    _Atomic uint64_t overflow; /* smallest item number << 32 | row, or UINT64_MAX */
    _Atomic size_t fully_masked;
} attn_run;

static inline size_t attn_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t attn_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t attn_tiles(size_t n, size_t tile)
{
    return (n + tile - 1) / tile;
}

static inline bool attn_canceled(const attn_run *run)
{
    return run->cancel != NULL && atomic_load(run->cancel);
}

/* Rows of work are cut at multiples of this: whole tiles of the kernels, which have 6 rows at most,
 * and whole blocks of blas. */
static inline size_t attn_row_unit(void)
{
    return attn_max(attn_kernels.row_block, 6);
}

/* Are probabilities kept until their row's sum is known? */
static inline bool attn_keeps_scores(const attn_options *o)
{
    return o->want_maps && o->stage == ATTN_PROBABILITIES;
}

/* Is a map formed in scratch, and only a part of it kept? */
static inline bool attn_folds_maps(const attn_options *o)
{
    return o->want_maps && (o->pooling != ATTN_POOL_NONE || o->top_k != 0);
}

/* Notes that a result at (item, row) is not finite. */
void attn_note_overflow(attn_run *run, const attn_item *it, size_t row);

/* The sequence that a task of a phase belongs to; *index becomes the task's number within it. */
const attn_item *attn_find_item(const attn_run *run, attn_phase phase, size_t task, size_t *index);

/* attention_project.c: fills every item's `rows`. With kernels whose rows are independent, sequences that lie
 * behind each other are projected as one, by the first of them. */
void attn_join_projections(attn_run *run);
size_t attn_projection_tasks(const attn_run *run, const attn_item *it, attn_projection which);
size_t attn_projection_scratch(const attn_layer *layer);
void attn_project_task(attn_run *run, const attn_item *it, attn_projection which, size_t index,
                       float *scratch);
void attn_output_task(void *arg, size_t task, size_t worker);

/* attention_pack.c: what happens to a row between projection and attention. */
void attn_finish_query(attn_run *run, const attn_item *it, size_t h, size_t heads, size_t i);
/* Keys or values [j0, j1) of heads [g, g + heads), all past or all new, from row j0 of head g on. */
void attn_pack_keys(attn_run *run, const attn_item *it, size_t g, size_t heads, size_t j0,
                    size_t j1, const attn_view *from);
void attn_pack_values(attn_run *run, const attn_item *it, size_t g, size_t heads, size_t j0,
                      size_t j1, const attn_view *from);
/* Norm and rotation of new keys that were just projected, before they are packed. */
void attn_finish_keys(const attn_run *run, const attn_item *it, size_t heads, size_t new_j0,
                      size_t rows, const attn_view *keys);
size_t attn_input_tasks(const attn_run *run, const attn_item *it);
void attn_input_task(void *arg, size_t task, size_t worker);

/* attention_clean.c. Some row is not finite: harmless where nothing attends, else the end of the call. */
ATTN_NODISCARD attn_status attn_clean(attn_run *run, attn_error *err);

/* attention_mask.c. Keys [*lo, *hi) that causality and window leave to query row i; empty: both 0. */
void attn_row_range(const attn_run *run, const attn_item *it, size_t i, size_t *lo, size_t *hi);
/* May query row i of head h attend to key j? The whole rule, slowly. */
bool attn_visible(const attn_run *run, const attn_item *it, size_t h, size_t i, size_t j);
/* Does nothing but causality and window change the scores? */
bool attn_scores_are_plain(const attn_run *run, const attn_item *it);
void attn_soft_cap(float *x, size_t n, float cap);
/* Scores of row i with keys [lo, hi), x[0] is key lo: softcap, position bias, bias and mask by selection: what
 * is not allowed becomes -Infinity whatever it held. Returns how many keys are left. */
size_t attn_mask_scores(const attn_run *run, const attn_item *it, size_t h, size_t i, float *x,
                        size_t lo, size_t hi);

/* attention_maps.c. Where head h's map goes: its place among the chosen, or num_heads when not chosen. */
size_t attn_map_slot(const attn_options *o, size_t h);
/* Rows of one map, from `first_row` on; column 0 is key k_from. */
typedef struct {
    const attn_run *run;
    const attn_sequence *seq;
    size_t slot;
    bool combine; /* with what is there: the second and later heads that are reduced */
    float *data;
    size_t row_stride, first_row;
} attn_map;
/* The map in the result, or, when it is folded, in `scratch` (rows of `room` from row r0 on). */
attn_map attn_map_of(const attn_run *run, const attn_item *it, size_t slot, bool combine,
                     float *scratch, size_t room, size_t r0);
/* Is what was asked for of keys [j0, j1) of row i finite? x[0] is key j0. */
bool attn_map_finite(const attn_map *m, size_t i, const float *x, size_t j0, size_t j1);
/* Writes keys [j0, j1) of row i: factor * x[0 ..], or `value` at each. What was not asked for is left out. */
void attn_map_piece(const attn_map *m, size_t i, const float *x, float factor, size_t j0,
                    size_t j1);
void attn_map_fill(const attn_map *m, size_t i, float value, size_t j0, size_t j1);
/* Rows [r0, r1) have all they get: the sum of heads becomes their mean, and what is kept goes to the result. */
void attn_map_finish(const attn_map *m, size_t r0, size_t r1);
/* Pooled columns of all rows become pooled rows. */
size_t attn_pool_tasks(const attn_options *o);
void attn_pool_task(void *arg, size_t task, size_t worker);

/* Does any result need head h? */
static inline bool attn_head_wanted(const attn_run *run, size_t h)
{
    return run->every_head || attn_map_slot(run->opt, h) < run->opt->num_heads;
}

/* attention_core.c. Attention of one strip: task number -> (item, strip, head or all heads). */
size_t attn_strip_tasks(const attn_run *run, const attn_item *it);
size_t attn_strip_scratch(const attn_heads *n, const attn_options *o, size_t longest);
void attn_strip_task(void *arg, size_t task, size_t worker);

#endif
