/* What is kept of a map (pooled blocks, the largest cells of a row) against the whole map of the same call. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/attention.h"
#include "core/kern.h"

enum { H = 3, D = 8 };

static uint64_t seed = 7;

static size_t below(size_t n)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (size_t)(seed >> 33) % n;
}

static float *numbers(size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)below(2001) / 500.0F - 2.0F;
    return x;
}

typedef struct {
    size_t t, s, rows, columns, slots;
    float *query, *key, *value;
    unsigned char *mask;
    attn_options options;
} problem;

static void make(problem *p)
{
    static const size_t order[2] = {2, 0};
    size_t q_from, k_from;

    memset(p, 0, sizeof *p);
    p->t = 1 + below(below(4) == 0 ? 300 : 40);
    p->s = 1 + below(below(4) == 0 ? 1500 : 90);
    p->query = numbers(H * p->t * D);
    p->key = numbers(H * p->s * D);
    p->value = numbers(H * p->s * D);
    p->mask = malloc(p->s);
    for (size_t j = 0; j < p->s; j++)
        p->mask[j] = below(4) != 0;
    q_from = below(p->t);
    k_from = below(p->s);
    p->rows = 1 + below(p->t - q_from);
    p->columns = 1 + below(p->s - k_from);
    p->options = (attn_options){
        .scale = 0.3F,
        .window = {-1, -1},
        .want_maps = true,
        .stage = below(2) == 0 ? ATTN_PROBABILITIES : ATTN_SCORES,
        .reduce = (attn_reduce)below(3),
        .num_heads = H,
        .q_from = q_from,
        .k_from = k_from,
        .pool_rows = 1,
        .pool_columns = 1,
    };
    if (below(2) == 0) {
        p->options.heads = order;
        p->options.num_heads = 2;
    }
    p->slots = p->options.reduce == ATTN_REDUCE_NONE ? p->options.num_heads : 1;
}

static void drop(problem *p)
{
    free(p->query);
    free(p->key);
    free(p->value);
    free(p->mask);
}

/* Runs the call; `width` is the row stride of the maps. Returns the outputs. */
static float *run(const problem *p, attn_pool *pool, float *maps, size_t width, int32_t *top_keys,
                  float *top_rest)
{
    attn_heads heads = {H, H, D, D};
    attn_sequence seq = {
        .q_len = p->t,
        .kv_len = p->s,
        .query = {p->query, p->t * D, D},
        .key = {p->key, p->s * D, D},
        .value = {p->value, p->s * D, D},
        .mask = p->mask,
        .mask_stride = {0, 0, 1},
        .output_head_stride = p->t * D,
        .map_rows = p->rows,
        .map_columns = p->columns,
        .maps = {maps, p->rows * width, width},
        .top_keys = top_keys,
        .top_rest = top_rest,
        .top_head_stride = p->rows * p->options.top_k,
    };
    attn_error err = {0};
    attn_stats stats;
    void *workspace = NULL;
    size_t bytes =
        attn_sequence_bytes(NULL, &heads, &seq) +
        attn_scratch_bytes(NULL, &heads, &p->options, attn_row_length(&seq), attn_pool_size(pool));

    seq.output = malloc(H * p->t * D * sizeof(float));
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    memset(workspace, 0xFF, bytes);
    if (attn_forward(NULL, &heads, &p->options, &seq, 1, pool, workspace, NULL, &stats, &err) !=
        ATTN_OK)
        fail_msg("%s", err.text);
    free(workspace);
    return seq.output;
}

static void check_pooled(const problem *p, const float *full, const float *got, size_t width)
{
    const attn_options *o = &p->options;

    for (size_t slot = 0; slot < p->slots; slot++) {
        for (size_t r = 0; r < p->rows; r += o->pool_rows) {
            for (size_t c = 0; c < p->columns; c += o->pool_columns) {
                double sum = 0.0, max = -INFINITY, cells = 0.0, rows = 0.0;
                for (size_t i = r; i < p->rows && i < r + o->pool_rows; i++) {
                    double row = 0.0, n = 0.0;
                    for (size_t j = c; j < p->columns && j < c + o->pool_columns; j++, n++) {
                        double v = (double)full[(slot * p->rows + i) * p->columns + j];
                        row += v;
                        max = fmax(max, v);
                    }
                    sum += row;
                    cells += n;
                    rows++;
                }
                double want = o->pooling == ATTN_POOL_MAX ? max : sum / cells;
                double is = (double)
                    got[slot * p->rows * width + r / o->pool_rows * width + c / o->pool_columns];
                if (!(fabs(is - want) <= 1e-6 * fmax(1.0, fabs(want)) && rows > 0))
                    fail_msg("cell %zu,%zu of slot %zu is %.9g, not %.9g", r, c, slot, is, want);
            }
        }
    }
}

static const float *sorted_row;

static int by_value(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sorted_row[i] != sorted_row[j])
        return sorted_row[i] > sorted_row[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

static void check_top(const problem *p, const float *full, const float *values, const int32_t *keys,
                      const float *rest)
{
    size_t k = p->options.top_k;
    int32_t *order = malloc(p->columns * sizeof *order);

    for (size_t row = 0; row < p->slots * p->rows; row++) {
        double left = 0.0;
        sorted_row = full + row * p->columns;
        for (size_t j = 0; j < p->columns; j++)
            order[j] = (int32_t)j;
        qsort(order, p->columns, sizeof *order, by_value);
        for (size_t j = 0; j < p->columns; j++) {
            if (j >= k) {
                left += (double)sorted_row[order[j]];
                continue;
            }
            assert_int_equal(keys[row * k + j], order[j] + (int32_t)p->options.k_from);
            assert_true(values[row * k + j] == sorted_row[order[j]]);
        }
        if (p->options.stage == ATTN_PROBABILITIES)
            assert_true(fabs((double)rest[row] - left) <= 1e-6);
    }
    free(order);
}

static void what_is_kept_is_what_the_whole_map_says(void **state)
{
    attn_pool *pool = *state;

    for (int round = 0; round < 120; round++) {
        problem p;
        make(&p);
        size_t cells = p.slots * p.rows * p.columns;
        float *full = malloc(cells * sizeof *full), *kept = malloc(cells * sizeof *kept);
        float *out = run(&p, pool, full, p.columns, NULL, NULL), *same;

        p.options.pooling = round % 2 == 0 ? ATTN_POOL_MEAN : ATTN_POOL_MAX;
        p.options.pool_rows = 1 + below(p.rows);
        p.options.pool_columns = 1 + below(p.columns);
        size_t width = (p.columns + p.options.pool_columns - 1) / p.options.pool_columns;
        same = run(&p, pool, kept, width, NULL, NULL);
        check_pooled(&p, full, kept, width);
        assert_memory_equal(out, same, H * p.t * D * sizeof *out);
        free(same);

        p.options.pooling = ATTN_POOL_NONE;
        p.options.top_k = 1 + below(p.columns < 9 ? p.columns : 9);
        size_t k = p.options.top_k;
        int32_t *keys = malloc(p.slots * p.rows * k * sizeof *keys);
        float *rest = malloc(p.slots * p.rows * sizeof *rest);
        same = run(&p, pool, kept, k, keys, rest);
        check_top(&p, full, kept, keys, rest);
        assert_memory_equal(out, same, H * p.t * D * sizeof *out);
        free(same);
        free(keys);
        free(rest);
        free(out);
        free(full);
        free(kept);
        drop(&p);
    }
}

static int make_pool(void **state)
{
    attn_error err = {0};
    if (attn_kern_init(NULL, &err) != ATTN_OK)
        return -1;
    return attn_pool_new((attn_pool **)state, 3, false, &err) == ATTN_OK ? 0 : -1;
}

static int free_pool(void **state)
{
    attn_pool_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_what_the_whole_map_says),
    };
    return cmocka_run_group_tests(tests, make_pool, free_pool);
}
