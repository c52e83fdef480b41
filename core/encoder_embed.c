/* The two ends of an encoder: tokens become rows, and rows become one vector. */
#include <math.h>
#include <string.h>

#include "encoder_private.h"

/* --- tokens --------------------------------------------------------------------------------------- */

/* Which row of the position table token t takes; `before` counts the tokens before it that are not padding. */
static size_t position_row(const attn_encoder *e, const attn_encode_sequence *s, size_t t,
                           size_t before)
{
    if (!e->skips_padding)
        return t;
    bool padding = s->ids != NULL && s->ids[t] == e->padding_id;
    return (size_t)e->padding_id + (padding ? 0 : before + 1);
}

static void add_row(float *x, const float *row, size_t n)
{
    attn_kernels.scale_add(x, row, n, 1.0F);
}

static void look_up(const attn_encoder *e, size_t id, float *x)
{
    size_t width = e->info.embed_width;
    const char *row = (const char *)e->words + id * width * attn_dtype_size(e->words_dtype);
    attn_error err = {0};

    if (attn_widen(x, row, width, e->words_dtype, &err) != ATTN_OK)
        x[0] = NAN; /* cannot be: only float64 has numbers that do not fit */
}

/* Tokens [t0, t0 + rows) of a sequence: the sum of their embeddings, normalised. */
static void embed_rows(const attn_encoder *e, const attn_encode_sequence *s, size_t t0, size_t rows,
                       float *x)
{
    size_t width = e->info.embed_width, before = 0;

    for (size_t t = 0; t < t0 && e->skips_padding; t++)
        before += s->ids == NULL || s->ids[t] != e->padding_id;
    for (size_t t = t0; t < t0 + rows; t++) {
        float *row = x + (t - t0) * width;
        if (s->ids != NULL)
            look_up(e, (size_t)s->ids[t], row);
        else
            memcpy(row, s->embeds + t * width, width * sizeof(float));
        if (e->types != NULL)
            add_row(row, e->types + (s->types != NULL ? (size_t)s->types[t] : 0) * width, width);
        if (e->positions != NULL)
            add_row(row, e->positions + position_row(e, s, t, before) * width, width);
        before += s->ids == NULL || s->ids[t] != e->padding_id;
    }
    attn_kernels.norm(&(attn_norm){
        .out = x,
        .x = x,
        .rows = rows,
        .n = width,
        .weight = e->embed_norm.weight,
        .bias = e->embed_norm.bias,
        .eps = e->eps,
    });
}

static void embed_task(void *arg, size_t task, size_t worker)
{
    encode_run *run = arg;
    const attn_encoder *e = run->e;
    size_t r0 = 0, rows = encoder_tile(run, &run->tiling, task, &r0), d = e->info.d_model;
    bool projected = e->projection.weight != NULL;
    float *x = projected ? run->scratch + worker * run->scratch_floats : run->x + r0 * d;

    for (size_t r = r0; r < r0 + rows;) {
        size_t i = encoder_sequence_of(run, r), some = attn_min(run->row[i + 1], r0 + rows) - r;
        embed_rows(e, &run->seqs[i], r - run->row[i], some, x + (r - r0) * e->info.embed_width);
        r += some;
    }
    if (projected)
        attn_dense_multiply(&e->projection, &(attn_dense_part){x, e->info.embed_width, rows, 0, d,
                                                               run->x + r0 * d, d, NULL});
    encoder_check_rows(run, r0, rows);
    if (e->pre_norm)
        encoder_next_rows(run, 0, r0, rows, NULL);
}

void encoder_embed(encode_run *run)
{
    size_t unit = attn_row_unit();

    run->tiling = encoder_cut(run, attn_tiles(ENCODER_EMBED_ROWS, unit) * unit);
    attn_pool_run(run->pool, run->tiling.tiles, embed_task, run);
}

/* --- pooling -------------------------------------------------------------------------------------- */

static bool counts(const attn_encode_sequence *s, size_t t)
{
    return s->counted == NULL || s->counted[t] != 0;
}

/* Columns [c0, c0 + n) of the sequence's rows become one row. Sums are kept in double. */
static void pool_columns(const attn_encode_sequence *s, attn_embed pooling, const float *x,
                         size_t d, size_t c0, size_t n)
{
    enum { MOST = 64 };
    double sum[MOST] = {0};
    size_t counted = 0;
    float *out = s->embedding + c0;

    for (size_t t = 0; t < s->tokens; t++) {
        const float *row = x + t * d + c0;
        if (!counts(s, t))
            continue;
        for (size_t c = 0; c < n; c++) {
            if (pooling == ATTN_EMBED_MAX)
                sum[c] = counted == 0 || (double)row[c] > sum[c] ? (double)row[c] : sum[c];
            else
                sum[c] += (double)row[c];
        }
        counted++;
    }
    double by = pooling == ATTN_EMBED_MAX         ? 1.0
                : pooling == ATTN_EMBED_MEAN_SQRT ? sqrt((double)counted)
                                                  : (double)counted;
    for (size_t c = 0; c < n; c++)
        out[c] = counted == 0 ? 0.0F : (float)(sum[c] / by);
}

static void pool_task(void *arg, size_t i, size_t worker)
{
    enum { COLUMNS = 64 };
    const encode_run *run = arg;
    const attn_encode_sequence *s = &run->seqs[i];
    size_t d = run->e->info.d_model;
    const float *x = run->x + run->row[i] * d;
    attn_embed pooling = run->opt->pooling;

    (void)worker;
    if (s->embedding == NULL || pooling == ATTN_EMBED_NONE)
        return;
    if (pooling == ATTN_EMBED_CLS)
        memcpy(s->embedding, x, d * sizeof(float));
    for (size_t c = 0; c < d && pooling != ATTN_EMBED_CLS; c += COLUMNS)
        pool_columns(s, pooling, x, d, c, attn_min(d - c, COLUMNS));
    if (!run->opt->normalize)
        return;
    double squares = 0.0;
    for (size_t c = 0; c < d; c++)
        squares += (double)s->embedding[c] * (double)s->embedding[c];
    double length = fmax(sqrt(squares), 1e-12); /* as torch.nn.functional.normalize has it */
    for (size_t c = 0; c < d; c++)
        s->embedding[c] = (float)((double)s->embedding[c] / length);
}

void encoder_pool(encode_run *run)
{
    attn_pool_run(run->pool, run->n, pool_task, run);
}
