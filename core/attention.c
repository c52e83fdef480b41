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
 * behind each other: Q [T, H*d]; the joined context [T, H*e], unless it may overwrite Q (a task reads its block
 * of Q before it writes there); K and V packed. */
typedef enum { PART_QUERY, PART_CONTEXT, PART_PACKED, PARTS } part;

static size_t packed_floats(const attn_heads *n, size_t s_len)
{
    return n->num_kv_heads *
           (attn_packed_floats(n->head_dim, s_len) + attn_packed_floats(s_len, n->v_head_dim));
}

static void *carve_part(carver *c, part which, const attn_layer *layer, const attn_heads *n,
                        const attn_sequence *s)
{
    switch (which) {
    case PART_QUERY:
        return carve(c, layer == NULL ? 0 : s->q_len * n->num_heads * n->head_dim, sizeof(float));
    case PART_CONTEXT:
        return carve(c,
                     layer == NULL || n->head_dim == n->v_head_dim
                         ? 0
                         : s->q_len * n->num_heads * n->v_head_dim,
                     sizeof(float));
    default:
        return carve(c, s->keys != NULL ? 0 : packed_floats(n, s->past_len + s->kv_len),
                     sizeof(float));
    }
}

static void place_item(attn_item *it, float *const at[PARTS], const attn_layer *layer,
                       const attn_heads *n)
{
    const attn_sequence *s = it->seq;
    size_t hd = n->num_heads * n->head_dim, he = n->num_heads * n->v_head_dim;
    float *joined = n->head_dim == n->v_head_dim ? at[PART_QUERY] : at[PART_CONTEXT];

    it->s_len = s->past_len + s->kv_len;
    it->packed_key = s->keys != NULL ? (float *)(uintptr_t)s->keys : at[PART_PACKED];
    it->packed_value =
        it->packed_key + n->num_kv_heads * attn_packed_floats(n->head_dim, it->s_len);
    it->query = layer != NULL ? (attn_view){at[PART_QUERY], n->head_dim, hd} : s->query;
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

static size_t scratch_floats(const attn_layer *layer, const attn_heads *n, const attn_options *o,
                             size_t longest)
{
    size_t strip = attn_strip_scratch(n, o, longest);

    return layer == NULL ? strip : attn_max(strip, attn_projection_scratch(layer));
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

size_t attn_scratch_bytes(const attn_layer *layer, const attn_heads *heads,
                          const attn_options *options, size_t longest, size_t workers)
{
    attn_heads n = heads_of(layer, heads);
    return workers * scratch_floats(layer, &n, options, longest) * sizeof(float) + 64;
}

size_t attn_row_length(const attn_sequence *seq)
{
    return attn_max(seq->past_len + seq->kv_len, seq->map_columns);
}

size_t attn_keys_bytes(const attn_layer *layer, const attn_heads *heads, const attn_sequence *seq)
{
    attn_heads n = heads_of(layer, heads);
    return attn_max(packed_floats(&n, seq->past_len + seq->kv_len) * sizeof(float), 64);
}

/* --- the call -------------------------------------------------------------------------------- */

static void number_tasks(attn_run *run)
{
    if (run->layer != NULL)
        attn_join_projections(run);
    for (size_t i = 0; i < run->n; i++) {
        attn_item *it = &run->items[i];
        size_t tasks[ATTN_PHASES] = {
            [ATTN_PHASE_INPUT] = attn_input_tasks(run, it),
            [ATTN_PHASE_STRIP] = run->keys_only ? 0 : attn_strip_tasks(run, it),
            [ATTN_PHASE_OUTPUT] = attn_projection_tasks(run, it, ATTN_PROJECT_OUT),
            [ATTN_PHASE_POOL] = run->keys_only ? 0 : attn_pool_tasks(run->opt),
        };
        for (size_t phase = 0; phase < ATTN_PHASES; phase++) {
            it->first[phase] = run->tasks[phase];
            run->tasks[phase] += tasks[phase];
        }
    }
}

void attn_note_overflow(attn_run *run, const attn_item *it, size_t row)
{
    uint64_t place = (uint64_t)(it - run->items) << 32 | (uint32_t)row;
    uint64_t known = atomic_load(&run->overflow);
    while (place < known && !atomic_compare_exchange_weak(&run->overflow, &known, place))
        ;
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
    attn_pool_run(pool, run->tasks[ATTN_PHASE_INPUT], attn_input_task, run);
    if (atomic_load(&run->dirty) && !attn_canceled(run))
        ATTN_TRY(attn_clean(run, err));
    attn_pool_run(pool, run->tasks[ATTN_PHASE_STRIP], attn_strip_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_OUTPUT], attn_output_task, run);
    attn_pool_run(pool, run->tasks[ATTN_PHASE_POOL], attn_pool_task, run);
    if (attn_canceled(run))
        return attn_fail(err, ATTN_ECANCELED, "the computation was canceled");
    return ATTN_OK;
}

/* Gives every sequence its share of the workspace. */
static void place_items(attn_run *run, attn_sequence *seqs, void *workspace)
{
    carver c = {workspace, 0}, parts[PARTS]; /* each part begins where the one before ends */
    size_t longest = 0;

    run->items = carve(&c, run->n, sizeof(attn_item));
    for (size_t i = 0; i < run->n; i++) {
        const attn_sequence *s = &seqs[i];
        longest = attn_max(longest, attn_row_length(s));
        run->every_head |= s->output != NULL || s->joined_context != NULL || s->logsumexp != NULL ||
                           s->query_out.data != NULL;
    }
    run->scratch_floats = scratch_floats(run->layer, &run->heads, run->opt, longest);
    run->scratch = carve(&c, run->workers * run->scratch_floats, sizeof(float));
    for (part which = 0; which < PARTS; which++) {
        parts[which] = c;
        for (size_t i = 0; i < run->n && !run->keys_only; i++)
            (void)carve_part(&c, which, run->layer, &run->heads, &seqs[i]);
    }
    for (size_t i = 0; i < run->n; i++) {
        float *at[PARTS] = {NULL};
        for (part which = 0; which < PARTS && !run->keys_only; which++)
            at[which] = carve_part(&parts[which], which, run->layer, &run->heads, &seqs[i]);
        run->items[i].seq = &seqs[i];
        place_item(&run->items[i], at, run->layer, &run->heads);
    }
}

static attn_status compute(attn_run *run, attn_pool *pool, attn_error *err)
{
    number_tasks(run);
    uint64_t state = attn_flush_subnormals(); /* as the other workers do */
    attn_status rc = run_phases(run, pool, err);
    attn_restore_float_state(state);
    return rc;
}

attn_status attn_forward(const attn_layer *layer, const attn_heads *heads,
                         const attn_options *options, attn_sequence *seqs, size_t n,
                         attn_pool *pool, void *workspace, const atomic_bool *cancel,
                         attn_stats *stats, attn_error *err)
{
    attn_run run = {
        .layer = layer,
        .heads = heads_of(layer, heads),
        .opt = options,
        .n = n,
        .workers = attn_pool_size(pool),
        .cancel = cancel,
    };
    atomic_init(&run.overflow, UINT64_MAX);

    place_items(&run, seqs, workspace);
    ATTN_TRY(compute(&run, pool, err));
    uint64_t place = atomic_load(&run.overflow);
    if (place != UINT64_MAX) {
        const attn_sequence *s = &seqs[place >> 32];
        return attn_fail(err, ATTN_ENONFINITE,
                         "sequence %zu, token %zu: the result overflows float32 or is not a number",
                         s->index, s->first + (size_t)(place & UINT32_MAX));
    }
    stats->fully_masked_rows = atomic_load(&run.fully_masked);
    return ATTN_OK;
}

attn_status attn_prepare(const attn_layer *layer, const attn_heads *heads,
                         const attn_options *options, attn_sequence *seq, float *keys,
                         attn_pool *pool, void *workspace, const atomic_bool *cancel,
                         attn_error *err)
{
    attn_run run = {
        .layer = layer,
        .heads = heads_of(layer, heads),
        .opt = options,
        .n = 1,
        .workers = attn_pool_size(pool),
        .keys_only = true,
        .cancel = cancel,
    };

    seq->keys = keys; /* where they shall be */
    place_items(&run, seq, workspace);
    seq->keys = NULL; /* they are not there yet */
    attn_status rc = compute(&run, pool, err);
    seq->keys = keys;
    return rc;
}
