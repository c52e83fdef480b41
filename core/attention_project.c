#include "attention_private.h"
#include "kern.h"

/* A product of rows that lie behind each other, cut into tasks of some rows by some panels of columns. */
typedef struct {
    const float *in;
    size_t rows, in_width;
    const float *weight, *bias;
    const float *then;             /* weights of the projection that follows, or NULL */
    float *out;                    /* NULL: keys or values, which are packed at once */
    size_t out_width;              /* columns, and the row stride of out */
    size_t head;                   /* columns of a head that must stay together; 1 = none */
    size_t across, columns, block; /* tasks across, columns of one, and its rows */
} projection;

/* The fewest columns that are whole heads and whole panels, or all. */
static size_t unit_columns(size_t head, size_t width)
{
    size_t columns = head;

    while (columns % attn_kernels.panel != 0 && columns < width)
        columns += head;
    return columns;
}

/* Columns of one task: a few panels, so that one can be fetched while another is used, but so that every worker
 * has some tasks. Then its rows: where that is not enough for all workers, fewer. How the work is cut changes no
 * bit; where the rows are not independent they are cut alike for any number of workers. */
static void cut(const attn_run *run, projection *p)
{
    enum { MOST = 4, TASKS_EACH = 4, LEAST_ROWS = 24 };
    size_t unit = unit_columns(p->head, p->out_width), units = attn_tiles(p->out_width, unit);
    size_t row_unit = attn_row_unit();
    size_t together =
        attn_min(units / (run->workers * TASKS_EACH), MOST * attn_kernels.panel / unit);

    p->columns = attn_min(unit * attn_max(together, 1), p->out_width);
    p->across = attn_tiles(p->out_width, p->columns);
    p->block = PROJECTION_ROWS;
    if (p->out == NULL)
        p->block = attn_max(
            attn_min(PROJECTION_FLOATS / p->columns / row_unit * row_unit, PROJECTION_ROWS),
            row_unit);
    while (attn_kernels.row_block == 1 && p->block > LEAST_ROWS &&
           attn_tiles(p->rows, p->block) * p->across < 2 * run->workers)
        p->block = attn_tiles(attn_min(p->block, p->rows), 12) * 6;
}

size_t attn_projection_scratch(const attn_layer *layer)
{
    const attn_layer_spec *s = &layer->spec;
    size_t widest = attn_max(unit_columns(s->head_dim, s->num_kv_heads * s->head_dim),
                             unit_columns(s->v_head_dim, s->num_kv_heads * s->v_head_dim));

    return attn_max(PROJECTION_FLOATS, attn_row_unit() * widest);
}

static projection make(const attn_run *run, const attn_item *it, attn_projection which)
{
    const attn_layer *l = run->layer;
    const attn_layer_spec *n = &l->spec;
    const attn_sequence *s = it->seq;
    const float *keys_from = s->context != NULL ? s->context : s->x;
    projection p = {.rows = it->rows[which], .head = 1};

    switch (which) {
    case ATTN_PROJECT_Q:
        p.in = s->x;
        p.in_width = n->d_model;
        p.weight = l->wq;
        p.then = l->wk;
        p.bias = l->bq;
        p.out = it->query.data;
        p.out_width = it->query.row_stride;
        p.head = n->head_dim;
        break;
    case ATTN_PROJECT_K:
        p.in = keys_from;
        p.in_width = n->d_kv;
        p.weight = l->wk;
        p.then = l->wv;
        p.bias = l->bk;
        p.out_width = n->num_kv_heads * n->head_dim;
        p.head = n->head_dim;
        break;
    case ATTN_PROJECT_V:
        p.in = keys_from;
        p.in_width = n->d_kv;
        p.weight = l->wv;
        p.then = l->wo;
        p.bias = l->bv;
        p.out_width = n->num_kv_heads * n->v_head_dim;
        p.head = n->v_head_dim;
        break;
    default:
        p.in = it->context.data;
        p.in_width = it->context.row_stride;
        p.weight = l->wo;
        p.bias = l->bo;
        p.out = s->output;
        p.out_width = n->d_out;
    }
    cut(run, &p);
    return p;
}

/* --- which rows are projected together --------------------------------------------------------- */

static size_t rows_to_project(const attn_run *run, const attn_item *it, attn_projection which)
{
    const attn_sequence *s = it->seq;

    switch (which) {
    case ATTN_PROJECT_Q:
        return run->keys_only ? 0 : s->q_len;
    case ATTN_PROJECT_K:
    case ATTN_PROJECT_V:
        return s->keys != NULL ? 0 : s->kv_len;
    default:
        return run->keys_only || s->output == NULL ? 0 : s->q_len;
    }
}

/* Does `next` begin where `p` ends, in and out? */
static bool follows(const projection *p, const projection *next)
{
    return next->in == p->in + p->rows * p->in_width &&
           (p->out == NULL || next->out == p->out + p->rows * p->out_width);
}

void attn_join_projections(attn_run *run)
{
    for (attn_projection which = 0; which < ATTN_PROJECTIONS; which++) {
        attn_item *first = NULL; /* of the rows that lie behind each other so far */
        for (size_t i = 0; i < run->n; i++) {
            attn_item *it = &run->items[i];
            size_t n = rows_to_project(run, it, which);
            it->rows[which] = n;
            if (n == 0)
                continue;
            if (first != NULL && attn_kernels.row_block == 1) {
                projection p = make(run, first, which), next = make(run, it, which);
                if (follows(&p, &next)) {
                    first->rows[which] += n;
                    it->rows[which] = 0;
                    continue;
                }
            }
            first = it;
        }
    }
}

size_t attn_projection_tasks(const attn_run *run, const attn_item *it, attn_projection which)
{
    if (run->layer == NULL || it->rows[which] == 0)
        return 0;
    projection p = make(run, it, which);
    return attn_tiles(p.rows, p.block) * p.across;
}

/* --- the tasks ----------------------------------------------------------------------------------- */

/* The part of the output that a task computes. */
typedef struct {
    size_t r0, rows, c0, columns;
} part;

static part part_of(const projection *p, size_t index)
{
    part x = {.r0 = index / p->across * p->block, .c0 = index % p->across * p->columns};

    x.rows = attn_min(p->rows - x.r0, p->block);
    x.columns = attn_min(p->out_width - x.c0, p->columns);
    return x;
}

/* Where this worker most likely goes on: with the task that comes when all workers have taken one more, perhaps
 * one of the projection that follows, whose weights lie behind. */
static const float *weights_after(const attn_run *run, const projection *p, size_t index)
{
    size_t next = index + run->workers, tasks = attn_tiles(p->rows, p->block) * p->across;

    return next < tasks ? p->weight + next % p->across * p->columns * p->in_width : p->then;
}

static void multiply(const projection *p, const part *x, float *out, size_t stride,
                     const float *after)
{
    size_t panel = attn_kernels.panel, end = x->c0 + x->columns;

    for (size_t c = x->c0; c < end; c += panel)
        attn_kernels.product(&(attn_product){
            .m = x->rows,
            .n = attn_min(p->out_width - c, panel),
            .k = p->in_width,
            .a = p->in + x->r0 * p->in_width,
            .lda = p->in_width,
            .b = p->weight + c * p->in_width,
            .c = out + (c - x->c0),
            .ldc = stride,
            .bias = p->bias == NULL ? NULL : p->bias + c,
            .next = c + panel < end ? p->weight + (c + panel) * p->in_width : after,
        });
}

/* Is any of these heads needed? Where only maps are asked for, the others are not. */
static bool heads_wanted(const attn_run *run, size_t h, size_t heads)
{
    for (size_t i = h; i < h + heads; i++) {
        if (attn_head_wanted(run, i))
            return true;
    }
    return false;
}

/* The projected keys or values, rows `x->rows` from `x->r0` of `it` on, perhaps into the sequences behind it. */
static void pack(attn_run *run, const attn_item *it, attn_projection which, const part *x,
                 size_t head, float *rows)
{
    size_t skip = x->r0, g = x->c0 / head, heads = x->columns / head;

    for (size_t done = 0; done < x->rows; it++) {
        size_t n = it->seq->kv_len;
        if (skip >= n) {
            skip -= n;
            continue;
        }
        size_t take = attn_min(n - skip, x->rows - done), j0 = it->seq->past_len + skip;
        attn_view from = {rows + done * x->columns, head, x->columns};
        if (which == ATTN_PROJECT_K) {
            attn_finish_keys(run, it, heads, skip, take, &from);
            attn_pack_keys(run, it, g, heads, j0, j0 + take, &from);
        } else {
            attn_pack_values(run, it, g, heads, j0, j0 + take, &from);
        }
        done += take;
        skip = 0;
    }
}

static void finish_queries(attn_run *run, const attn_item *it, const part *x, size_t head)
{
    size_t row = x->r0;

    for (size_t done = 0; done < x->rows; done++, row++) {
        for (; row >= it->seq->q_len; it++)
            row -= it->seq->q_len;
        attn_finish_query(run, it, x->c0 / head, x->columns / head, row);
    }
}

void attn_project_task(attn_run *run, const attn_item *it, attn_projection which, size_t index,
                       float *scratch)
{
    projection p = make(run, it, which);
    part x = part_of(&p, index);
    const float *after = weights_after(run, &p, index);

    if (which != ATTN_PROJECT_Q) {
        multiply(&p, &x, scratch, x.columns, after);
        pack(run, it, which, &x, p.head, scratch);
    } else if (heads_wanted(run, x.c0 / p.head, x.columns / p.head)) {
        multiply(&p, &x, p.out + x.r0 * p.out_width + x.c0, p.out_width, after);
        finish_queries(run, it, &x, p.head);
    }
}

/* `row` counts from the first row of `it`, perhaps into the sequences behind it. */
static void note_overflow(attn_run *run, const attn_item *it, size_t row)
{
    for (; row >= it->seq->q_len; it++)
        row -= it->seq->q_len;
    attn_note_overflow(run, it, row);
}

/* A finite context can still overflow in the output projection. */
void attn_output_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_OUTPUT, task, &index);
    projection p = make(run, it, ATTN_PROJECT_OUT);
    if (attn_canceled(run))
        return;
    part x = part_of(&p, index);
    float *out = p.out + x.r0 * p.out_width + x.c0;
    multiply(&p, &x, out, p.out_width, weights_after(run, &p, index));
    for (size_t r = 0; r < x.rows; r++) {
        if (!attn_kernels.all_finite(out + r * p.out_width, x.columns))
            note_overflow(run, it, x.r0 + r);
    }
}
