#include "attention_private.h"
#include "kern.h"

/* A product of rows that lie behind each other, cut into tiles of rows by one panel of columns. */
typedef struct {
    const float *in;
    size_t rows, in_width;
    const float *weight, *bias;
    float *out;
    size_t out_width; /* columns, and the row stride */
} projection;

static attn_product project(const projection *p, size_t index)
{
    size_t columns = attn_panel_count(p->out_width);
    size_t r0 = index / columns * PROJECTION_ROWS, c0 = index % columns * attn_kernels.panel;

    attn_product tile = {
        .m = attn_min(p->rows - r0, PROJECTION_ROWS),
        .n = attn_min(p->out_width - c0, attn_kernels.panel),
        .k = p->in_width,
        .a = p->in + r0 * p->in_width,
        .lda = p->in_width,
        .b = p->weight + c0 * p->in_width,
        .c = p->out + r0 * p->out_width + c0,
        .ldc = p->out_width,
        .bias = p->bias == NULL ? NULL : p->bias + c0,
    };
    attn_kernels.product(&tile);
    return tile;
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
    return attn_tiles(p.rows, PROJECTION_ROWS) * attn_panel_count(p.out_width);
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
        (void)project(&p, index < first ? index : index - first);
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
    attn_product tile = project(&p, index);
    for (size_t r = 0; r < tile.m; r++) {
        if (!attn_kernels.all_finite(tile.c + r * tile.ldc, tile.n))
            note_overflow(run, it, (size_t)(tile.c - p.out) / p.out_width + r);
    }
}
