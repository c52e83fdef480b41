/* Attention rollout: R = A' R for each layer, A' half the mean map and half the identity. */
#include <string.h>

#include "encoder_private.h"

enum { ROLL_ROWS = 96 }; /* of a task; a multiple of every row block */

size_t encoder_rollout_floats(size_t tokens)
{
    return attn_packed_floats(tokens, tokens);
}

/* Task number to sequence and rows; sequences without a rollout have no tasks. */
static size_t rows_of(const encode_run *run, size_t task, size_t *i, size_t *r0)
{
    size_t rows = encoder_tile(run, &run->tiling, task, r0);

    *i = encoder_sequence_of(run, *r0);
    *r0 -= run->row[*i];
    return rows;
}

/* A row without any key left is the identity's. */
static void mix_task(void *arg, size_t task, size_t worker)
{
    const encode_run *run = arg;
    size_t i = 0, r0 = 0, rows = rows_of(run, task, &i, &r0), t = run->seqs[i].tokens;

    (void)worker;
    if (run->mean[i] == NULL)
        return;
    for (size_t r = r0; r < r0 + rows; r++) {
        float *row = run->mean[i] + r * t;
        double sum = 0.0;
        for (size_t c = 0; c < t; c++)
            sum += (double)row[c];
        attn_kernels.scale(row, row, t, (float)(0.5 / (0.5 * sum + 0.5)));
        row[r] += (float)(0.5 / (0.5 * sum + 0.5));
    }
    if (run->layer > 0)
        attn_pack_rows(run->packed[i], t, t, r0, run->seqs[i].rollout + r0 * t, rows, t);
    else
        memcpy(run->seqs[i].rollout + r0 * t, run->mean[i] + r0 * t, rows * t * sizeof(float));
}

static void multiply_task(void *arg, size_t task, size_t worker)
{
    const encode_run *run = arg;
    size_t i = 0, r0 = 0, rows = rows_of(run, task, &i, &r0), t = run->seqs[i].tokens;

    (void)worker;
    if (run->mean[i] == NULL || encoder_canceled(run))
        return;
    attn_dense so_far = {.in = t, .out = t, .weight = run->packed[i]};
    attn_dense_multiply(&so_far, &(attn_dense_part){run->mean[i] + r0 * t, t, rows, 0, t,
                                                    run->seqs[i].rollout + r0 * t, t, NULL});
}

void encoder_roll(encode_run *run)
{
    run->tiling = encoder_cut_apart(run, ROLL_ROWS);
    attn_pool_run(run->pool, run->tiling.tiles, mix_task, run);
    if (run->layer > 0)
        attn_pool_run(run->pool, run->tiling.tiles, multiply_task, run);
}
