/* attention_private.h: one call of attn_forward(), shared by its phases. */
#ifndef ATTN_ATTENTION_PRIVATE_H
#define ATTN_ATTENTION_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "attention.h"
#include "layer_private.h"

/* Tiles of work; kernels make a row's bits independent of them (but see attn_kern.rows_independent). */
enum {
    STRIP_ROWS = 48,       /* query rows of one attention task; whole score rows stay in cache */
    PACK_ROWS = 64,        /* rows of one norm, rotation and packing task */
    PROJECTION_ROWS = 240, /* rows of one projection task */
};

/* The phases of a call, each a run of the pool over its tasks. */
typedef enum {
    ATTN_PHASE_PROJECT, /* Q, then K and V: some rows by some panels of columns */
    ATTN_PHASE_ROWS,    /* norm, rotation, check, packing of keys and values: some rows */
    ATTN_PHASE_STRIP,   /* attention: a strip of queries of one head (or of all, when reduced) */
    ATTN_PHASE_OUTPUT,  /* output projection, likewise */
    ATTN_PHASES
} attn_phase;

typedef enum {
    ATTN_PROJECT_Q,
    ATTN_PROJECT_KV,
    ATTN_PROJECT_OUT,
    ATTN_PROJECTIONS
} attn_projection;

/* One sequence in the workspace. */
typedef struct {
    attn_sequence *seq;
    size_t s_len;         /* S = past + new */
    attn_view query;      /* [H][T][d], rotated; not scaled */
    attn_view key, value; /* [G] of the new tokens, before they are packed */
    attn_view context;    /* [H][T][e]; data NULL = not needed */
    float *packed_key;    /* [G] packed [d, S] */
    float *packed_value;  /* [G] packed [S, e] */
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
    size_t tasks[ATTN_PHASES];
    float *scratch; /* per worker: scratch_floats */
    size_t scratch_floats;
    const atomic_bool *cancel;
    atomic_bool dirty;         /* a projected row is not finite */
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

/* The sequence that a task of a phase belongs to; *index becomes the task's number within it. */
const attn_item *attn_find_item(const attn_run *run, attn_phase phase, size_t task, size_t *index);

/* Key j's rows of head g where they came from, past or new. */
const float *attn_source_key(const attn_run *run, const attn_item *it, size_t g, size_t j);
const float *attn_source_value(const attn_run *run, const attn_item *it, size_t g, size_t j);

/* Keys [*lo, *hi) that causality and window leave to query row i; empty: both 0. */
void attn_row_range(const attn_run *run, const attn_item *it, size_t i, size_t *lo, size_t *hi);

/* May query row i of head h attend to key j? The whole rule, slowly. */
bool attn_visible(const attn_run *run, const attn_item *it, size_t h, size_t i, size_t j);

/* attention_project.c: fills every item's `rows`. With kernels whose rows are independent, sequences that lie
 * behind each other are projected as one, by the first of them. */
void attn_join_projections(attn_run *run);
size_t attn_projection_tasks(const attn_run *run, const attn_item *it, attn_projection which);
void attn_project_task(void *arg, size_t task, size_t worker);
void attn_output_task(void *arg, size_t task, size_t worker);

/* attention_rows.c: norm, rotation, check and packing; then, when a row is not finite, the search for whom
 * it hurts. */
void attn_row_task(void *arg, size_t task, size_t worker);
ATTN_NODISCARD attn_status attn_clean(attn_run *run, attn_error *err);

/* attention_core.c. Attention of one strip: task number -> (item, strip, head or all heads). */
void attn_strip_task(void *arg, size_t task, size_t worker);

/* Notes that a result at (item, row) is not finite. */
void attn_note_overflow(attn_run *run, const attn_item *it, size_t row);

#endif
