#include "attention.h"

#include "attention_private.h"
#include "cpu.h"
#include "kern.h"

/* --- the workspace -------------------------------------------------------------------------- */

static attn_heads heads_of(const attn_layer *layer, const attn_heads *heads)
{
    if (layer == NULL)
        return *heads;
    const attn_layer_spec *s = &layer->spec;
    return (attn_heads){s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim};
}

/* Hands out the workspace in lines of 64 bytes; with base NULL it only counts. */
typedef struct {
    char *base;
    size_t used;
} carver;

static void *carve(carver *c, size_t n, size_t size)
{
    void *p = c->base == NULL ? NULL : c->base + c->used;
    c->used += (n * size + 63) / 64 * 64;
    return p;
}

/* One sequence's share, in parts that are carved for all sequences in turn, so that the rows of one part lie
 * behind each other: Q [T, H*d]; K and V of the new tokens side by side [kv_len, G*d + G*e]; the joined
 * context [T, H*e], unless it may overwrite Q (a task reads its block of Q before it writes there); K and V
 * packed. */
typedef enum { PART_QUERY, PART_KEY_VALUE, PART_CONTEXT, PART_PACKED, PARTS } part;

static void *carve_part(carver *c, part which, const attn_layer *layer, const attn_heads *n,
                        const attn_sequence *s)
{
    size_t s_len = s->past_len + s->kv_len;

    switch (which) {
    case PART_QUERY:
        return carve(c, layer == NULL ? 0 : s->q_len * n->num_heads * n->head_dim, sizeof(float));
    case PART_KEY_VALUE:
        return carve(
            c, layer == NULL ? 0 : s->kv_len * n->num_kv_heads * (n->head_dim + n->v_head_dim),
            sizeof(float));
    case PART_CONTEXT:
        return carve(c,
                     layer == NULL || n->head_dim == n->v_head_dim
                         ? 0
                         : s->q_len * n->num_heads * n->v_head_dim,
                     sizeof(float));
    default:
        return carve(c,
                     n->num_kv_heads * (attn_packed_floats(n->head_dim, s_len) +
                                        attn_packed_floats(s_len, n->v_head_dim)),
                     sizeof(float));
    }
}

static void place_item(attn_item *it, float *const at[PARTS], const attn_layer *layer,
                       const attn_heads *n)
{
    const attn_sequence *s = it->seq;
    size_t hd = n->num_heads * n->head_dim, he = n->num_heads * n->v_head_dim;
    size_t gd = n->num_kv_heads * n->head_dim, kv = gd + n->num_kv_heads * n->v_head_dim;
    float *joined = n->head_dim == n->v_head_dim ? at[PART_QUERY] : at[PART_CONTEXT];

    it->s_len = s->past_len + s->kv_len;
    it->packed_key = at[PART_PACKED];
    it->packed_value =
        at[PART_PACKED] + n->num_kv_heads * attn_packed_floats(n->head_dim, it->s_len);
    it->query = layer != NULL ? (attn_view){at[PART_QUERY], n->head_dim, hd} : s->query;
    it->key = layer != NULL ? (attn_view){at[PART_KEY_VALUE], n->head_dim, kv} : s->key;
    it->value = layer != NULL ? (attn_view){at[PART_KEY_VALUE] + gd, n->v_head_dim, kv} : s->value;
    /* The heads are joined where the caller wants them, else in the workspace; without a layer the context
     * itself is the output. */
    if (s->joined_context != NULL)
        it->context = (attn_view){s->joined_context, n->v_head_dim, he};
    else if (layer == NULL)
        it->context = (attn_view){s->output, s->output_head_stride, n->v_head_dim};
    else if (s->output != NULL)
        it->context = (attn_view){joined, n->v_head_dim, he};
    else
        it->context = (attn_view){NULL, 0, 0};
}

static size_t scratch_floats(const attn_heads *n, size_t longest)
{
    return attn_tiles(STRIP_ROWS * n->head_dim, 16) * 16 +
           STRIP_ROWS * (attn_tiles(longest, 16) * 16 + 16);
}

size_t attn_sequence_bytes(const attn_layer *layer, const attn_heads *heads,
                           const attn_sequence *seq)
{
    attn_heads n = heads_of(layer, heads);
    carver c = {NULL, 0};

    (void)carve(&c, 1, sizeof(attn_item));
    for (part which = 0; which < PARTS; which++)
        (void)carve_part(&c, which, layer, &n, seq);
    return c.used;
}

size_t attn_scratch_bytes(const attn_layer *layer, const attn_heads *heads, size_t longest,
                          size_t workers)
{
    attn_heads n = heads_of(layer, heads);
    return workers * scratch_floats(&n, longest) * sizeof(float) + 64;
}

/* --- the call -------------------------------------------------------------------------------- */

static void number_tasks(attn_run *run)
{
    bool together = run->opt->want_maps && run->opt->reduce != ATTN_REDUCE_NONE;

    if (run->layer != NULL)
        attn_join_projections(run);
    for (size_t i = 0; i < run->n; i++) {
        attn_item *it = &run->items[i];
        const attn_sequence *s = it->seq;
        size_t strips = attn_tiles(s->q_len, STRIP_ROWS);
        size_t tasks[ATTN_PHASES] = {
            [ATTN_PHASE_ROWS] = attn_tiles(attn_max(s->q_len, it->s_len), PACK_ROWS),
            [ATTN_PHASE_STRIP] = strips * (together ? 1 : run->heads.num_heads),
        };
        if (run->layer != NULL) {
            tasks[ATTN_PHASE_PROJECT] = attn_projection_tasks(run, it, ATTN_PROJECT_Q) +
                                        attn_projection_tasks(run, it, ATTN_PROJECT_KV);
            tasks[ATTN_PHASE_OUTPUT] = attn_projection_tasks(run, it, ATTN_PROJECT_OUT);
        }
        for (size_t phase = 0; phase < ATTN_PHASES; phase++) {
            it->first[phase] = run->tasks[phase];
            run->tasks[phase] += tasks[phase];
        }
    }
}

const attn_item *attn_find_item(const attn_run *run, attn_phase phase, size_t task, size_t *index)
{
    size_t lo = 0, hi = run->n; /* the last item whose first task is not after `task` */
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (run->items[middle].first[phase] <= task)
            lo = middle;
        else
            hi = middle;
    }
    *index = task - run->items[lo].first[phase];
    return &run->items[lo];
}

static attn_status run_phases(attn_run *run, attn_pool *pool, attn_error *err)
{
    attn_pool_run(pool, run->tasks[ATTN_PHASE_PROJECT], attn_project_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_ROWS], attn_row_task, run);
    if (atomic_load(&run->dirty) && !attn_canceled(run))
        ATTN_TRY(attn_clean(run, err));
    attn_pool_run(pool, run->tasks[ATTN_PHASE_STRIP], attn_strip_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_OUTPUT], attn_output_task, run);
    if (attn_canceled(run))
        return attn_fail(err, ATTN_ECANCELED, "the computation was canceled");
    return ATTN_OK;
}

attn_status attn_forward(const attn_layer *layer, const attn_heads *heads,
                         const attn_options *options, attn_sequence *seqs, size_t n,
                         attn_pool *pool, void *workspace, const atomic_bool *cancel,
                         attn_stats *stats, attn_error *err)
{
    carver c = {workspace, 0};
    attn_run run = {
        .layer = layer,
        .heads = heads_of(layer, heads),
        .opt = options,
        .n = n,
        .workers = attn_pool_size(pool),
        .cancel = cancel,
    };
    atomic_init(&run.overflow, UINT64_MAX);

    run.items = carve(&c, n, sizeof(attn_item));
    size_t longest = 0;
    for (size_t i = 0; i < n; i++)
        longest = attn_max(longest, seqs[i].past_len + seqs[i].kv_len);
    run.scratch_floats = scratch_floats(&run.heads, longest);
    run.scratch = carve(&c, attn_pool_size(pool) * run.scratch_floats, sizeof(float));
    carver parts[PARTS]; /* each begins where the one before ends */
    for (part which = 0; which < PARTS; which++) {
        parts[which] = c;
        for (size_t i = 0; i < n; i++)
            (void)carve_part(&c, which, layer, &run.heads, &seqs[i]);
    }
    for (size_t i = 0; i < n; i++) {
        float *at[PARTS];
        for (part which = 0; which < PARTS; which++)
            at[which] = carve_part(&parts[which], which, layer, &run.heads, &seqs[i]);
        run.items[i].seq = &seqs[i];
        place_item(&run.items[i], at, layer, &run.heads);
    }
    number_tasks(&run);

    uint64_t state = attn_flush_subnormals(); /* as the other workers do */
    attn_status rc = run_phases(&run, pool, err);
    attn_restore_float_state(state);
    ATTN_TRY(rc);
    uint64_t place = atomic_load(&run.overflow);
    if (place != UINT64_MAX)
        return attn_fail(
            err, ATTN_ENONFINITE,
            "sequence %llu, token %llu: the result overflows float32 or is not a number",
            (unsigned long long)seqs[place >> 32].index, (unsigned long long)(place & UINT32_MAX));
    stats->fully_masked_rows = atomic_load(&run.fully_masked);
    return ATTN_OK;
}
