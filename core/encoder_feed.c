/* What follows the attention: output projection, residual, norm, feed-forward layer, residual, norm. Where there are
 * rows enough for all workers, one of them does all this to a tile of rows, which never leaves its caches; else
 * each product is cut into columns as well. The bits are the same. */
#include <string.h>

#include "encoder_private.h"

size_t encoder_most_rows(const attn_encoder *e)
{
    size_t unit = attn_row_unit(), rows = ENCODER_TILE_FLOATS / e->widest / unit * unit;

    return attn_max(attn_min(rows, ENCODER_TILE_ROWS), unit);
}

/* --- rows ----------------------------------------------------------------------------------------- */

void encoder_next_rows(const encode_run *run, size_t layer, size_t r0, size_t rows,
                       const float *add)
{
    const attn_encoder *e = run->e;
    size_t d = e->info.d_model;
    float *x = run->x + r0 * d;
    bool ends = layer == e->info.num_layers;
    const encoder_norm *norm = ends ? &e->final_norm : &e->layer[layer].feed->attention_norm;

    if (norm->weight != NULL) {
        attn_kernels.norm(&(attn_norm){
            .out = ends ? x : run->h + r0 * d,
            .sum = ends || add == NULL ? NULL : x,
            .x = x,
            .add = add,
            .rows = rows,
            .n = d,
            .weight = norm->weight,
            .bias = norm->bias,
            .eps = e->eps,
        });
        return;
    }
    if (add != NULL)
        attn_kernels.scale_add(x, add, rows * d, 1.0F);
    if (!ends)
        memcpy(run->h + r0 * d, x, rows * d * sizeof(float));
}

/* y, the attention's output, is added. Returns the rows that the feed-forward layer reads. */
static const float *finish_attention(const encode_run *run, size_t r0, size_t rows, float *y)
{
    const attn_encoder *e = run->e;
    const encoder_norm *norm = e->pre_norm ? &e->layer[run->layer].feed->feed_norm
                                           : &e->layer[run->layer].feed->attention_norm;
    float *x = run->x + r0 * e->info.d_model;

    attn_kernels.norm(&(attn_norm){
        .out = e->pre_norm ? y : x,
        .sum = e->pre_norm ? x : NULL,
        .x = x,
        .add = y,
        .rows = rows,
        .n = e->info.d_model,
        .weight = norm->weight,
        .bias = norm->bias,
        .eps = e->eps,
    });
    return e->pre_norm ? y : x;
}

/* y, the feed-forward layer's output, is added. */
static void finish_feed(encode_run *run, size_t r0, size_t rows, const float *y)
{
    const attn_encoder *e = run->e;
    const encoder_norm *norm = &e->layer[run->layer].feed->feed_norm;
    float *x = run->x + r0 * e->info.d_model;

    if (e->pre_norm)
        encoder_next_rows(run, run->layer + 1, r0, rows, y);
    else
        attn_kernels.norm(&(attn_norm){
            .out = x,
            .x = x,
            .add = y,
            .rows = rows,
            .n = e->info.d_model,
            .weight = norm->weight,
            .bias = norm->bias,
            .eps = e->eps,
        });
    encoder_check_rows(run, r0, rows);
}

/* inter = activation(x up), times x gate where there is one, panel by panel: a panel's results are activated
 * while they are in the first cache. */
static void feed_up(const encode_run *run, attn_dense_part p, float *gate)
{
    const encoder_feed *feed = run->e->layer[run->layer].feed;
    size_t end = p.c1;

    const float *behind = p.next;

    for (; p.c0 < end; p.c0 += attn_kernels.panel, p.y += attn_kernels.panel) {
        p.c1 = attn_min(p.c0 + attn_kernels.panel, end);
        p.next = p.c1 < end ? feed->up.weight + p.c1 * p.ldx : behind;
        attn_activate a = {
            .kind = run->e->activation, .x = p.y, .rows = p.rows, .n = p.c1 - p.c0, .ld = p.ldy};
        attn_dense_part g = p;
        if (feed->gate.weight != NULL)
            p.next = feed->gate.weight + p.c0 * p.ldx;
        attn_dense_multiply(&feed->up, &p);
        if (feed->gate.weight != NULL) {
            a.gate = g.y = gate;
            a.gate_ld = g.ldy = attn_kernels.panel;
            attn_dense_multiply(&feed->gate, &g);
        }
        attn_kernels.activate(&a);
    }
}

/* --- tiles of rows -------------------------------------------------------------------------------- */

static void tile_task(void *arg, size_t task, size_t worker)
{
    encode_run *run = arg;
    const encoder_layer *l = &run->e->layer[run->layer];
    size_t d = run->e->info.d_model, wide = l->feed->up.out, r0 = 0;
    size_t rows = encoder_tile(run, &run->tiling, task, &r0);
    float *y = run->scratch + worker * run->scratch_floats, *inter = y + run->most_rows * d;

    if (encoder_canceled(run))
        return;
    attn_dense_part join = {run->context + r0 * d, d, rows, 0, d, y, d, l->feed->up.weight};
    attn_dense_multiply(&l->joined, &join);
    const float *in = finish_attention(run, r0, rows, y);
    attn_dense_part up = {in, d, rows, 0, wide, inter, wide, l->feed->down.weight};
    feed_up(run, up, run->gate + worker * run->gate_floats);
    attn_dense_part down = {inter, wide, rows, 0, d, y, d, l->joined.weight};
    attn_dense_multiply(&l->feed->down, &down);
    finish_feed(run, r0, rows, y);
}

/* --- few rows --------------------------------------------------------------------------------------- */

/* A task's rows and columns of a product with `width` columns. The worker's next task is most likely the one that
 * comes when all workers have taken one more. */
static size_t stage_part(const encode_run *run, const attn_dense *dense, size_t task,
                         attn_dense_part *p)
{
    size_t r0 = 0, width = dense->out, tasks = run->tiling.tiles * run->parts;
    size_t next = task + run->workers;

    p->next = next < tasks        ? dense->weight + next % run->parts * run->columns * dense->in
              : run->then == NULL ? NULL
                                  : run->then + (next - tasks) * run->then_floats;
    p->rows = encoder_tile(run, &run->tiling, task / run->parts, &r0);
    p->c0 = task % run->parts * run->columns;
    p->c1 = attn_min(p->c0 + run->columns, width);
    p->ldy = width;
    return r0;
}

/* Is this the last part of its tile to be done? Then all of its row is there. */
static bool last_part(encode_run *run, size_t task)
{
    return atomic_fetch_sub(&run->left[task / run->parts], 1) == 1;
}

static void join_task(void *arg, size_t task, size_t worker)
{
    encode_run *run = arg;
    size_t d = run->e->info.d_model;
    attn_dense_part p;

    (void)worker;
    if (encoder_canceled(run))
        return;
    const attn_dense *joined = &run->e->layer[run->layer].joined;
    size_t r0 = stage_part(run, joined, task, &p);
    p.x = run->context + r0 * d;
    p.ldx = d;
    p.y = run->y + r0 * d + p.c0;
    attn_dense_multiply(joined, &p);
    if (last_part(run, task))
        (void)finish_attention(run, r0, p.rows, run->y + r0 * d);
}

static void up_task(void *arg, size_t task, size_t worker)
{
    encode_run *run = arg;
    size_t d = run->e->info.d_model, wide = run->e->layer[run->layer].feed->up.out;
    attn_dense_part p;

    if (encoder_canceled(run))
        return;
    size_t r0 = stage_part(run, &run->e->layer[run->layer].feed->up, task, &p);
    p.x = (run->e->pre_norm ? run->y : run->x) + r0 * d;
    p.ldx = d;
    p.y = run->inter + r0 * wide + p.c0;
    feed_up(run, p, run->gate + worker * run->gate_floats);
}

static void down_task(void *arg, size_t task, size_t worker)
{
    encode_run *run = arg;
    const encoder_feed *feed = run->e->layer[run->layer].feed;
    size_t d = run->e->info.d_model, wide = feed->up.out;
    attn_dense_part p;

    (void)worker;
    if (encoder_canceled(run))
        return;
    size_t r0 = stage_part(run, &feed->down, task, &p);
    p.x = run->inter + r0 * wide;
    p.ldx = wide;
    p.y = run->y + r0 * d + p.c0;
    attn_dense_multiply(&feed->down, &p);
    if (last_part(run, task))
        finish_feed(run, r0, p.rows, run->y + r0 * d);
}

/* Columns of one task: few panels, so that every worker has some tasks. */
static size_t stage_columns(const encode_run *run, size_t width)
{
    enum { MOST = 4, TASKS_EACH = 4 };
    size_t together = attn_panel_count(width) / (run->workers * TASKS_EACH);

    return attn_max(attn_min(together, MOST), 1) * attn_kernels.panel;
}

/* `then` is the product of the next stage, or NULL. */
static void run_stage(encode_run *run, const attn_dense *dense, const attn_dense *then,
                      attn_task *fn)
{
    run->columns = stage_columns(run, dense->out);
    run->parts = attn_tiles(dense->out, run->columns);
    run->then = then == NULL ? NULL : then->weight;
    run->then_floats = then == NULL ? 0 : stage_columns(run, then->out) * then->in;
    for (size_t i = 0; i < run->tiling.tiles; i++)
        atomic_store(&run->left[i], run->parts);
    attn_pool_run(run->pool, run->tiling.tiles * run->parts, fn, run);
}

/* Rows of a tile where products are cut into columns, too: fewer where even that is not enough for all workers. */
static size_t few_rows(const encode_run *run)
{
    enum { LEAST_ROWS = 24 };
    size_t rows = ENCODER_TILE_ROWS, panels = attn_panel_count(run->e->info.d_model);

    while (attn_kernels.row_block == 1 && rows > LEAST_ROWS &&
           attn_tiles(run->rows, rows) * panels < 2 * run->workers)
        rows = attn_tiles(attn_min(rows, run->rows), 12) * 6;
    return rows;
}

/* Rows of a tile of many: such that all workers have the same number of them. */
static size_t many_rows(const encode_run *run)
{
    size_t tiles = attn_tiles(run->rows, run->most_rows);

    if (attn_kernels.row_block != 1)
        return run->most_rows;
    tiles = attn_tiles(tiles, run->workers) * run->workers;
    return attn_min(attn_tiles(attn_tiles(run->rows, tiles), 6) * 6, run->most_rows);
}

void encoder_feed_forward(encode_run *run)
{
    const encoder_layer *l = &run->e->layer[run->layer];
    size_t d = run->e->info.d_model;

    if (run->rows > run->workers * run->most_rows) {
        run->tiling = encoder_cut(run, many_rows(run));
        attn_pool_run(run->pool, run->tiling.tiles, tile_task, run);
        return;
    }
    bool last = run->layer + 1 == run->e->info.num_layers;
    attn_dense query = {.in = d, .out = d, .weight = last ? NULL : l[1].attention->wq};
    run->tiling = encoder_cut(run, few_rows(run));
    run->y = run->scratch;
    run->inter = run->y + run->rows * d;
    run_stage(run, &l->joined, &l->feed->up, join_task);
    run_stage(run, &l->feed->up, &l->feed->down, up_task);
    run_stage(run, &l->feed->down, last ? NULL : &query, down_task);
}
