#include "attention_private.h"
#include "kern.h"

/* A product of rows that lie behind each other, cut into tiles of rows by some panels of columns. */
typedef struct {
    const float *in;
    size_t rows, in_width;
    const float *weight, *bias;
    float *out;
    size_t out_width; /* columns, and the row stride */
} projection;

/* Panels of one task: a few, so that one can be fetched while another is used, but so that every worker has
 * some tasks. Which are together changes no bit. */
static size_t panels_together(const attn_run *run, size_t panels)
{
    enum { MOST = 4, TASKS_EACH = 4 };
    size_t n = panels / (run->workers * TASKS_EACH);

    return n < 1 ? 1 : attn_min(n, MOST);
}

static size_t tasks_across(const attn_run *run, const projection *p)
{
    size_t panels = attn_panel_count(p->out_width);
    return attn_tiles(panels, panels_together(run, panels));
}

/* The part of the output that a task computes. */
typedef struct {
    size_t r0, rows, c0, columns;
} part;

static part project(const attn_run *run, const projection *p, size_t index)
{
    size_t panel = attn_kernels.panel, across = tasks_across(run, p);
    size_t width = panels_together(run, attn_panel_count(p->out_width)) * panel;
    part x = {.r0 = index / across * PROJECTION_ROWS, .c0 = index % across * width};

    x.rows = attn_min(p->rows - x.r0, PROJECTION_ROWS);
    x.columns = attn_min(p->out_width - x.c0, width);
    for (size_t c = x.c0; c < x.c0 + x.columns; c += panel)
        attn_kernels.product(&(attn_product){
            .m = x.rows,
            .n = attn_min(p->out_width - c, panel),
            .k = p->in_width,
            .a = p->in + x.r0 * p->in_width,
            .lda = p->in_width,
            .b = p->weight + c * p->in_width,
            .c = p->out + x.r0 * p->out_width + c,
            .ldc = p->out_width,
            .bias = p->bias == NULL ? NULL : p->bias + c,
            .next = c + panel < x.c0 + x.columns ? p->weight + (c + panel) * p->in_width : NULL,
        });
    return x;
}

static projection make(const attn_run *run, const attn_item *it, attn_projection which)
{
    const attn_layer *l = run->layer;
    const attn_sequence *s = it->seq;
    size_t rows = it->rows[which];

    switch (which) {
    case ATTN_PROJECT_Q:
        return (projection){s->x,  rows,           l->spec.d_model,     l->wq,
                            l->bq, it->query.data, it->query.row_stride};
    case ATTN_PROJECT_KV:
        return (projection){s->context != NULL ? s->context : s->x,
                            rows,
                            l->spec.d_kv,
                            l->wkv,
                            l->bkv,
                            it->key.data,
                            it->key.row_stride};
    default:
        return (projection){it->context.data, rows,         it->context.row_stride, l->wo, l->bo,
                            s->output,        l->spec.d_out};
    }
}

/* Does `next` begin where `p` ends, in and out? */
static bool follows(const projection *p, const projection *next)
{
    return next->in == p->in + p->rows * p->in_width &&
           next->out == p->out + p->rows * p->out_width;
}

void attn_join_projections(attn_run *run)
{
    for (attn_projection which = 0; which < ATTN_PROJECTIONS; which++) {
        attn_item *first = NULL; /* of the rows that lie behind each other so far */
        for (size_t i = 0; i < run->n; i++) {
            attn_item *it = &run->items[i];
            size_t n = which == ATTN_PROJECT_KV ? it->seq->kv_len : it->seq->q_len;
            if (which == ATTN_PROJECT_OUT && it->seq->output == NULL)
                n = 0;
            it->rows[which] = n;
            if (n == 0)
                continue;
            if (first != NULL && attn_kernels.rows_independent) {
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
    projection p = make(run, it, which);
    return attn_tiles(p.rows, PROJECTION_ROWS) * tasks_across(run, &p);
}

void attn_project_task(void *arg, size_t task, size_t worker)
{
    attn_run *run = arg;
    size_t index = 0;

    (void)worker;
    const attn_item *it = attn_find_item(run, ATTN_PHASE_PROJECT, task, &index);
    size_t first = attn_projection_tasks(run, it, ATTN_PROJECT_Q);
    projection p = make(run, it, index < first ? ATTN_PROJECT_Q : ATTN_PROJECT_KV);
    if (!attn_canceled(run))
        (void)project(run, &p, index < first ? index : index - first);
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
    part x = project(run, &p, index);
    for (size_t r = x.r0; r < x.r0 + x.rows; r++) {
        if (!attn_kernels.all_finite(p.out + r * p.out_width + x.c0, x.columns))
            note_overflow(run, it, r);
    }
}
