#include "encoder.h"

#include <string.h>

#include "cpu.h"
#include "encoder_private.h"

/* --- what is wanted ------------------------------------------------------------------------------ */

static bool wants_maps(const attn_encode_options *o, size_t layer, size_t *slot)
{
    for (*slot = 0; *slot < o->num_map_layers; ++*slot) {
        if (o->map_layers[*slot] == layer)
            return true;
    }
    return false;
}

static bool wants_state(const attn_encode_options *o, size_t state)
{
    for (size_t i = 0; i < o->num_hidden; i++) {
        if (o->hidden[i] == state)
            return true;
    }
    return false;
}

/* The last hidden state that a result needs. */
static size_t last_state(const encode_run *run)
{
    size_t last = 0;

    for (size_t i = 0; i < run->opt->num_hidden; i++)
        last = attn_max(last, run->opt->hidden[i]);
    for (size_t i = 0; i < run->opt->num_map_layers; i++)
        last = attn_max(last, run->opt->map_layers[i]);
    for (size_t i = 0; i < run->n; i++) {
        if (run->seqs[i].embedding != NULL)
            return run->e->info.num_layers;
        if (run->seqs[i].rollout != NULL && run->opt->rollout)
            last = attn_max(last, run->e->info.num_layers - 1);
    }
    return last;
}

static attn_options layer_options(const attn_encoder *e, size_t layer)
{
    const attn_layer_spec *s = &e->layer[layer].attention->spec;

    return (attn_options){
        .scale = s->scale, .softcap = s->softcap, .is_causal = s->is_causal, .window = s->window};
}

/* What the caller says about maps, in this layer's terms. */
static attn_options map_options(const attn_encoder *e, const attn_encode_options *o, size_t layer)
{
    attn_options own = layer_options(e, layer), all = o->maps;

    all.scale = own.scale;
    all.softcap = own.softcap;
    all.is_causal = own.is_causal;
    all.window = own.window;
    all.want_maps = true;
    return all;
}

/* The mean of all heads, for the rollout. */
static attn_options mean_options(const attn_encoder *e, size_t layer)
{
    attn_options o = layer_options(e, layer);

    o.want_maps = true;
    o.stage = ATTN_PROBABILITIES;
    o.reduce = ATTN_REDUCE_MEAN;
    o.num_heads = e->info.num_heads;
    return o;
}

attn_status attn_encode_check(const attn_encoder *e, const attn_encode_sequence *seq,
                              attn_error *err)
{
    const attn_encoder_info *info = &e->info;

    if (seq->tokens == 0 || seq->tokens > info->max_tokens)
        return attn_fail(err, ATTN_ESHAPE, "sequence %zu has %zu tokens; the model takes 1 to %zu",
                         seq->index, seq->tokens, info->max_tokens);
    for (size_t t = 0; t < seq->tokens && seq->ids != NULL; t++) {
        if (seq->ids[t] < 0 || (size_t)seq->ids[t] >= info->vocabulary)
            return attn_fail(err, ATTN_ESHAPE,
                             "sequence %zu, token %zu: its id is %ld; the model has 0 to %zu",
                             seq->index, t, (long)seq->ids[t], info->vocabulary - 1);
    }
    for (size_t t = 0; t < seq->tokens && seq->types != NULL; t++) {
        if (seq->types[t] < 0 || (size_t)seq->types[t] >= attn_max(info->types, 1))
            return attn_fail(err, ATTN_ESHAPE,
                             "sequence %zu, token %zu: its type is %ld; the model has 0 to %zu",
                             seq->index, t, (long)seq->types[t], attn_max(info->types, 1) - 1);
    }
    return ATTN_OK;
}

/* --- the workspace -------------------------------------------------------------------------------- */

static size_t lines(size_t n, size_t size)
{
    return (n * size + 63) / 64 * 64;
}

/* Rows that are kept from one layer to the next: x, and the context or, of pre-norm models, what is read. */
enum { KEPT_ROWS = 2 };

static bool rolls(const attn_encode_options *o, const attn_encode_sequence *s)
{
    return o->rollout && s->rollout != NULL;
}

static attn_sequence bare_sequence(const attn_encode_sequence *s)
{
    return (attn_sequence){
        .index = s->index, .q_len = s->tokens, .kv_len = s->tokens, .map_columns = s->map_columns};
}

size_t attn_encode_sequence_bytes(const attn_encoder *e, const attn_encode_options *options,
                                  const attn_encode_sequence *seq)
{
    attn_sequence inner = bare_sequence(seq);
    size_t t = seq->tokens, bytes = lines(1, sizeof inner) + lines(1, sizeof(size_t)) +
                                    lines(1, sizeof(size_t)) + lines(1, sizeof(atomic_size_t)) +
                                    2 * lines(1, sizeof(float *));

    bytes += KEPT_ROWS * lines(t * e->info.d_model, sizeof(float));
    if (rolls(options, seq))
        bytes += lines(t * t, sizeof(float)) + lines(encoder_rollout_floats(t), sizeof(float));
    return bytes + attn_sequence_bytes(e->layer[0].attention, NULL, &inner);
}

/* The most that the attention of any layer takes. */
static size_t attention_scratch(const attn_encoder *e, const attn_encode_options *o, size_t longest,
                                size_t workers)
{
    size_t most = 0;

    for (size_t l = 0; l < e->info.num_layers; l++) {
        attn_options kinds[] = {layer_options(e, l), map_options(e, o, l), mean_options(e, l)};
        bool used[] = {true, o->num_map_layers > 0, o->rollout};
        for (size_t k = 0; k < sizeof used / sizeof *used; k++) {
            if (used[k])
                most = attn_max(most, attn_scratch_bytes(e->layer[l].attention, NULL, &kinds[k],
                                                         longest, workers));
        }
    }
    return most;
}

/* Floats of a worker: a tile's activations, or rows of embeddings that are projected. */
static size_t worker_floats(const attn_encoder *e)
{
    size_t tile = encoder_most_rows(e) * (e->info.d_model + e->widest);
    size_t rows = attn_max(ENCODER_EMBED_ROWS, attn_row_unit());

    return attn_max(tile, rows * (e->info.embed_width + e->info.d_model));
}

static size_t gate_floats(const attn_encoder *e)
{
    return e->feed[0].gate.weight == NULL ? 0 : (size_t)ENCODER_TILE_ROWS * attn_kernels.panel;
}

size_t attn_encode_scratch_bytes(const attn_encoder *e, const attn_encode_options *options,
                                 size_t longest, size_t workers)
{
    enum {
        ROUNDING = 8 * 64
    }; /* arrays of all sequences end with a line each, and have one number more */

    return lines(workers * worker_floats(e), sizeof(float)) +
           lines(workers * gate_floats(e), sizeof(float)) +
           lines(workers * ENCODER_TILE_ROWS, sizeof(atomic_size_t)) + ROUNDING +
           attention_scratch(e, options, longest, workers);
}

/* Hands out the workspace in lines of 64 bytes. */
static void *take(char **at, size_t n, size_t size)
{
    void *p = *at;

    *at += lines(n, size);
    return p;
}

static void place(encode_run *run, void *workspace)
{
    const attn_encoder *e = run->e;
    char *at = workspace;
    size_t d = e->info.d_model;

    run->row = take(&at, run->n + 1, sizeof *run->row);
    for (size_t i = 0; i < run->n; i++) {
        run->row[i] = run->rows;
        run->rows += run->seqs[i].tokens;
    }
    run->row[run->n] = run->rows;
    run->inner = take(&at, run->n, sizeof *run->inner);
    run->tile_number = take(&at, run->n + 1, sizeof *run->tile_number);
    run->mean = take(&at, run->n, sizeof *run->mean);
    run->packed = take(&at, run->n, sizeof *run->packed);
    for (size_t i = 0; i < run->n; i++) {
        size_t t = rolls(run->opt, &run->seqs[i]) ? run->seqs[i].tokens : 0;
        run->mean[i] = t == 0 ? NULL : take(&at, t * t, sizeof(float));
        run->packed[i] = t == 0 ? NULL : take(&at, encoder_rollout_floats(t), sizeof(float));
    }
    run->x = take(&at, run->rows * d, sizeof(float));
    run->context = take(&at, run->rows * d, sizeof(float));
    run->h = e->pre_norm ? run->context : run->x;
    run->most_rows = encoder_most_rows(e);
    run->scratch_floats = worker_floats(e);
    run->scratch = take(&at, run->workers * run->scratch_floats, sizeof(float));
    run->gate_floats = gate_floats(e);
    run->gate = take(&at, run->workers * run->gate_floats, sizeof(float));
    run->left = take(&at, run->workers * ENCODER_TILE_ROWS + run->n, sizeof *run->left);
    run->inner_workspace = at;
}

/* --- tiles ---------------------------------------------------------------------------------------- */

encoder_tiling encoder_cut(const encode_run *run, size_t rows)
{
    if (attn_kernels.row_block == 1)
        return (encoder_tiling){rows, attn_tiles(run->rows, rows), true};
    return encoder_cut_apart(run, rows);
}

encoder_tiling encoder_cut_apart(const encode_run *run, size_t rows)
{
    encoder_tiling t = {.tile_rows = rows};

    for (size_t i = 0; i < run->n; i++) {
        run->tile_number[i] = t.tiles;
        t.tiles += attn_tiles(run->seqs[i].tokens, rows);
    }
    run->tile_number[run->n] = t.tiles;
    return t;
}

/* The last of n + 1 ascending numbers, but the last one, that is not above x. */
static size_t last_not_above(const size_t *number, size_t n, size_t x)
{
    size_t lo = 0, hi = n;

    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (number[middle] <= x)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

size_t encoder_tile(const encode_run *run, const encoder_tiling *t, size_t tile, size_t *r0)
{
    if (t->together) {
        *r0 = tile * t->tile_rows;
        return attn_min(run->rows - *r0, t->tile_rows);
    }
    size_t i = last_not_above(run->tile_number, run->n, tile);
    *r0 = run->row[i] + (tile - run->tile_number[i]) * t->tile_rows;
    return attn_min(run->row[i + 1] - *r0, t->tile_rows);
}

size_t encoder_sequence_of(const encode_run *run, size_t row)
{
    return last_not_above(run->row, run->n, row);
}

void encoder_check_rows(encode_run *run, size_t r0, size_t rows)
{
    size_t d = run->e->info.d_model;

    if (attn_kernels.all_finite(run->x + r0 * d, rows * d))
        return;
    for (size_t r = r0; r < r0 + rows; r++) {
        size_t known = atomic_load(&run->overflow);
        if (attn_kernels.all_finite(run->x + r * d, d))
            continue;
        while (r < known && !atomic_compare_exchange_weak(&run->overflow, &known, r))
            ;
    }
}

/* --- the call ------------------------------------------------------------------------------------- */

static attn_status after_state(const encode_run *run, size_t state, attn_error *err)
{
    size_t row = atomic_load(&run->overflow);

    if (encoder_canceled(run))
        return attn_fail(err, ATTN_ECANCELED, "the computation was canceled");
    if (row == SIZE_MAX)
        return ATTN_OK;
    size_t i = encoder_sequence_of(run, row);
    if (state == 0)
        return attn_fail(err, ATTN_ENONFINITE,
                         "sequence %zu, token %zu: its embedding holds NaN or Infinity, or "
                         "overflows float32",
                         run->seqs[i].index, row - run->row[i]);
    return attn_fail(err, ATTN_ENONFINITE,
                     "sequence %zu, token %zu: layer %zu overflows float32 or is not a number",
                     run->seqs[i].index, row - run->row[i], state - 1);
}

static void copy_state(void *arg, size_t i, size_t worker)
{
    const encode_run *run = arg;
    const attn_encode_sequence *s = &run->seqs[i];
    size_t d = run->e->info.d_model;

    (void)worker;
    for (size_t slot = 0; s->hidden != NULL && slot < run->opt->num_hidden; slot++) {
        if (run->opt->hidden[slot] == run->state)
            memcpy(s->hidden + slot * s->hidden_stride, run->x + run->row[i] * d,
                   s->tokens * d * sizeof(float));
    }
}

/* Gives away what belongs to a hidden state. */
static attn_status give_state(encode_run *run, size_t state, attn_error *err)
{
    size_t slot = 0;
    bool state_wanted = wants_state(run->opt, state);
    bool maps_wanted = state > 0 && wants_maps(run->opt, state - 1, &slot);

    run->state = state;
    if (state_wanted)
        attn_pool_run(run->pool, run->n, copy_state, run);
    if (run->opt->done == NULL || !(state_wanted || maps_wanted))
        return ATTN_OK;
    return run->opt->done(run->opt->done_arg, state, err);
}

static attn_status attend(encode_run *run, const attn_options *o, attn_stats *stats,
                          attn_error *err)
{
    attn_stats these = {0};
    attn_error inner = {0};

    attn_status rc = attn_forward(run->e->layer[run->layer].attention, NULL, o, run->inner, run->n,
                                  run->pool, run->inner_workspace, run->cancel, &these, &inner);
    if (rc == ATTN_ECANCELED)
        return attn_fail(err, rc, "%s", inner.text);
    if (rc != ATTN_OK)
        return attn_fail(err, rc, "layer %zu: %s", run->layer, inner.text);
    stats->fully_masked_rows += these.fully_masked_rows;
    return ATTN_OK;
}

/* The attention of run->layer: maps for the rollout, then the context and the maps that were asked for. The context
 * may overwrite what the attention reads, which is read before the first of it is written. */
static attn_status run_attention(encode_run *run, bool with_context, attn_stats *stats,
                                 attn_error *err)
{
    const attn_encoder *e = run->e;
    size_t slot = 0, d = e->info.d_model;
    bool maps = wants_maps(run->opt, run->layer, &slot), any_rollout = false;
    attn_options o = maps ? map_options(e, run->opt, run->layer) : layer_options(e, run->layer);

    for (size_t i = 0; i < run->n; i++) {
        const attn_encode_sequence *s = &run->seqs[i];
        attn_sequence *in = &run->inner[i];
        *in = bare_sequence(s);
        in->x = run->h + run->row[i] * d;
        in->mask = s->mask;
        memcpy(in->mask_stride, s->mask_stride, sizeof in->mask_stride);
        in->map_columns = 0;
        if (run->mean[i] != NULL) {
            any_rollout = true;
            in->map_rows = in->map_columns = s->tokens;
            in->maps = (attn_view){run->mean[i], 0, s->tokens};
        }
    }
    if (any_rollout) {
        attn_stats again = {0};
        attn_options mean = mean_options(e, run->layer);
        ATTN_TRY(attend(run, &mean, &again, err));
        encoder_roll(run);
    }
    if (!maps && !with_context)
        return ATTN_OK;
    for (size_t i = 0; i < run->n; i++) {
        const attn_encode_sequence *s = &run->seqs[i];
        attn_sequence *in = &run->inner[i];
        bool these = maps && s->maps.data != NULL;
        in->joined_context = with_context ? run->context + run->row[i] * d : NULL;
        in->map_rows = these ? s->map_rows : 0;
        in->map_columns = these ? s->map_columns : 0;
        in->maps = s->maps;
        in->maps.data = these ? s->maps.data + slot * s->maps_stride : NULL;
        if (these && s->top_keys != NULL) {
            in->top_keys = s->top_keys + slot * s->top_keys_stride;
            in->top_rest = s->top_rest + slot * s->top_rest_stride;
        }
        in->top_head_stride = s->top_head_stride;
    }
    return attend(run, &o, stats, err);
}

static attn_status run_layers(encode_run *run, attn_stats *stats, attn_error *err)
{
    size_t last = last_state(run), slot = 0;

    encoder_embed(run);
    ATTN_TRY(after_state(run, 0, err));
    ATTN_TRY(give_state(run, 0, err));
    for (run->layer = 0; run->layer < run->e->info.num_layers; run->layer++) {
        bool goes_on = run->layer < last;
        if (!goes_on && !wants_maps(run->opt, run->layer, &slot) &&
            !(run->opt->rollout && run->layer == last))
            break;
        ATTN_TRY(run_attention(run, goes_on, stats, err));
        if (goes_on) {
            encoder_feed_forward(run);
            ATTN_TRY(after_state(run, run->layer + 1, err));
        }
        ATTN_TRY(give_state(run, run->layer + 1, err));
        if (!goes_on)
            break;
    }
    encoder_pool(run);
    return ATTN_OK;
}

attn_status attn_encode(const attn_encoder *e, const attn_encode_options *options,
                        const attn_encode_sequence *seqs, size_t n, attn_pool *pool,
                        void *workspace, const atomic_bool *cancel, attn_stats *stats,
                        attn_error *err)
{
    encode_run run = {
        .e = e,
        .opt = options,
        .seqs = seqs,
        .n = n,
        .workers = attn_pool_size(pool),
        .pool = pool,
        .cancel = cancel,
    };

    atomic_init(&run.overflow, SIZE_MAX);
    stats->fully_masked_rows = 0;
    if (n == 0)
        return ATTN_OK;
    place(&run, workspace);
    uint64_t state = attn_flush_subnormals(); /* as the other workers do */
    attn_status rc = run_layers(&run, stats, err);
    attn_restore_float_state(state);
    return rc;
}
