#include "server/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/attention.h"
#include "core/checked.h"
#include "core/cpu.h"
#include "core/gemm.h"
#include "core/kern.h"
#include "core/memory.h"
#include "server/request.h"

enum { WARM_UP = 3, LEAST_RUNS = 5, MOST_RUNS = 10000 };

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- the machine's peak ------------------------------------------------------------------------ */

enum { BURST = 200000 };

static void burst_task(void *arg, size_t task, size_t worker)
{
    (void)arg;
    (void)task;
    (void)worker;
    (void)attn_kernels.fma_burst(BURST);
}

/* float32 multiply-add peak of all workers together, GFLOP/s: the best of some bursts. */
static double measure_peak(attn_pool *pool)
{
    size_t n = attn_pool_size(pool);
    double best = 0.0;

    for (int i = 0; i < 30; i++) {
        double begin = now_ms();
        attn_pool_run(pool, n * 4, burst_task, NULL);
        double flops = attn_kernels.fma_burst(0) * BURST * (double)(n * 4);
        double gflops = flops / (now_ms() - begin) / 1e6;
        best = gflops > best ? gflops : best;
    }
    return best;
}

static double peak_rss_mib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[128];
    double kib = 0.0;

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = strtod(line + 6, NULL);
    }
    if (f != NULL)
        (void)fclose(f);
    return kib / 1024.0;
}

/* --- one shape --------------------------------------------------------------------------------- */

typedef struct {
    srv_bench_shape shape;
    attn_layer *layer;
    attn_heads heads;
    attn_options options;
    attn_sequence *seqs;
    size_t group; /* sequences computed in one call */
    float *x, *y; /* [B,T,D]; with core, q, k and v stand in x */
    float *maps;  /* of one sequence, used again: a streamed answer needs no more */
    void *workspace;
} setup;

static void fill(float *x, size_t n, unsigned seed, float scale)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = ((float)(seed >> 8) / 8388608.0F - 1.0F) * scale;
    }
}

static attn_status make_layer(setup *s, attn_error *err)
{
    size_t d = s->shape.d_model;
    float *w = malloc((4 * d * d + 4 * d) * sizeof(float));
    attn_layer_spec spec = {
        .d_model = d,
        .d_kv = d,
        .d_out = d,
        .num_heads = s->heads.num_heads,
        .num_kv_heads = s->heads.num_heads,
        .head_dim = s->heads.head_dim,
        .v_head_dim = s->heads.head_dim,
        .scale = s->options.scale,
        .window = {-1, -1},
    };
    if (w == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the weights of the bench");
    fill(w, 4 * d * d + 4 * d, 1, 1.0F / (float)__builtin_sqrt((double)d));
    attn_layer_weights weights = {
        .wq = w,
        .wk = w + d * d,
        .wv = w + 2 * d * d,
        .wo = w + 3 * d * d,
        .bq = w + 4 * d * d,
        .bk = w + 4 * d * d + d,
        .bv = w + 4 * d * d + 2 * d,
        .bo = w + 4 * d * d + 3 * d,
    };
    attn_status rc = attn_layer_new(&s->layer, &spec, &weights, err);
    free(w);
    return rc;
}

static void point(setup *s, size_t b, bool core, bool maps)
{
    const srv_bench_shape *z = &s->shape;
    attn_sequence *q = &s->seqs[b];
    size_t td = z->tokens * z->d_model, hd = s->heads.head_dim;

    *q = (attn_sequence){.index = b, .q_len = z->tokens, .kv_len = z->tokens};
    if (core) {
        q->query = (attn_view){s->x + (3 * b) * td, hd, z->d_model};
        q->key = (attn_view){s->x + (3 * b + 1) * td, hd, z->d_model};
        q->value = (attn_view){s->x + (3 * b + 2) * td, hd, z->d_model};
    } else {
        q->x = s->x + b * td;
    }
    q->output = s->y + b * td;
    q->output_head_stride = z->tokens * hd;
    if (maps) {
        q->map_rows = q->map_columns = z->tokens;
        q->maps = (attn_view){s->maps + b % s->group * s->heads.num_heads * z->tokens * z->tokens,
                              z->tokens * z->tokens, z->tokens};
    }
}

static attn_status prepare(setup *s, const srv_bench_options *o, size_t workers, attn_error *err)
{
    const srv_bench_shape *z = &s->shape;
    bool core = o->core, maps = o->maps;
    size_t td = z->tokens * z->d_model, inputs = z->batch * td * (core ? 3 : 1), bytes = 0;

    s->heads = (attn_heads){z->heads, z->heads, z->d_model / z->heads, z->d_model / z->heads};
    s->options = (attn_options){
        .scale = (float)(1.0 / __builtin_sqrt((double)s->heads.head_dim)),
        .window = {-1, -1},
        .want_maps = maps,
        .is_causal = o->causal,
        .num_heads = z->heads,
    };
    if (!core)
        ATTN_TRY(make_layer(s, err));
    size_t map_floats = maps ? z->heads * z->tokens * z->tokens : 0;
    attn_sequence probe = {.q_len = z->tokens, .kv_len = z->tokens};
    size_t one = attn_sequence_bytes(s->layer, &s->heads, &probe) + map_floats * sizeof(float);
    s->group =
        SRV_WORKSPACE_TARGET / one < 1 ? 1 : SRV_WORKSPACE_TARGET / one; /* as for requests */
    if (s->group > z->batch)
        s->group = z->batch;
    bytes = s->group * attn_sequence_bytes(s->layer, &s->heads, &probe) +
            attn_scratch_bytes(s->layer, &s->heads, &s->options, z->tokens, workers);
    s->x = attn_block_alloc(inputs * sizeof(float));
    s->y = attn_block_alloc(z->batch * td * sizeof(float));
    s->workspace = attn_block_alloc(bytes);
    s->seqs = calloc(z->batch, sizeof *s->seqs);
    s->maps = maps ? attn_block_alloc(s->group * map_floats * sizeof(float)) : NULL;
    if (s->x == NULL || s->y == NULL || s->seqs == NULL || (maps && s->maps == NULL) ||
        s->workspace == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for [%zu,%zu,%zu]", z->batch, z->tokens,
                         z->d_model);
    fill(s->x, inputs, 7, 1.0F);
    for (size_t b = 0; b < z->batch; b++)
        point(s, b, core, maps);
    return ATTN_OK;
}

static void release(setup *s)
{
    attn_layer_free(s->layer);
    free(s->x);
    free(s->y);
    free(s->seqs);
    free(s->maps);
    free(s->workspace);
}

static attn_status run_once(setup *s, attn_pool *pool, attn_error *err)
{
    for (size_t b = 0; b < s->shape.batch; b += s->group) {
        size_t n = s->shape.batch - b < s->group ? s->shape.batch - b : s->group;
        attn_stats stats = {0};
        ATTN_TRY(attn_forward(s->layer, &s->heads, &s->options, s->seqs + b, n, pool, s->workspace,
                              NULL, &stats, err));
    }
    return ATTN_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_result(const srv_bench_options *o, const srv_bench_shape *z, const double *ms,
                         size_t n, double peak, size_t threads)
{
    double b = (double)z->batch, t = (double)z->tokens, d = (double)z->d_model;
    double median = ms[n / 2];
    double gflops = ((o->core ? 0.0 : 8.0 * b * t * d * d) + 4.0 * b * t * t * d) / median / 1e6;

    if (o->json) {
        (void)printf("{\"shape\":[%zu,%zu,%zu,%zu],\"maps\":%s,\"core\":%s,"
                     "\"threads\":%zu,\"ms\":%.4g,"
                     "\"ms_min\":%.4g,\"ms_max\":%.4g,\"gflops\":%.1f,\"peak_gflops\":%.1f,"
                     "\"rss_mib\":%.1f,\"causal\":%s}\n",
                     z->batch, z->tokens, z->d_model, z->heads, o->maps ? "true" : "false",
                     o->core ? "true" : "false", threads, median, ms[0], ms[n - 1], gflops, peak,
                     peak_rss_mib(), o->causal ? "true" : "false");
    } else {
        (void)printf(
            "(%zu,%zu,%zu,%zu)%s%s%s: %.4g ms (%.4g to %.4g), %.1f GFLOP/s, %.0f %% of the peak of "
            "%.0f, %zu threads, %.1f MiB\n",
            z->batch, z->tokens, z->d_model, z->heads, o->core ? " core" : "",
            o->maps ? " maps" : "", o->causal ? " causal" : "", median, ms[0], ms[n - 1], gflops,
            100.0 * gflops / peak, peak, threads, peak_rss_mib());
    }
    (void)fflush(stdout);
}

static attn_status bench_shape(const srv_bench_options *o, const srv_bench_shape *z,
                               attn_pool *pool, attn_error *err)
{
    double ms[MOST_RUNS];
    setup s = {.shape = *z};
    attn_status rc = prepare(&s, o, attn_pool_size(pool), err);
    size_t n = 0;
    double total = 0.0;

    for (int i = 0; i < WARM_UP && rc == ATTN_OK; i++)
        rc = run_once(&s, pool, err);
    while (rc == ATTN_OK && n < MOST_RUNS && (n < LEAST_RUNS || total < 1000.0)) {
        double begin = now_ms();
        rc = run_once(&s, pool, err);
        ms[n] = now_ms() - begin;
        total += ms[n++];
    }
    if (rc == ATTN_OK && n > 0) {
        qsort(ms, n, sizeof *ms, by_value);
        print_result(o, z, ms, n, measure_peak(pool), attn_pool_size(pool));
    }
    release(&s);
    return rc;
}

bool srv_bench_parse_shape(const char *text, srv_bench_shape *out)
{
    size_t *fields[] = {&out->batch, &out->tokens, &out->d_model, &out->heads};
    const char *p = text;

    for (size_t i = 0; i < 4; i++) {
        char *end = NULL;
        unsigned long v = strtoul(p, &end, 10);
        if (*p < '0' || *p > '9' || v == 0 || v > 1UL << 24 || *end != (i == 3 ? '\0' : ','))
            return false;
        *fields[i] = v;
        p = end + 1;
    }
    size_t n = 0;
    return out->d_model % out->heads == 0 &&
           attn_size_product((size_t[]){out->batch, out->tokens, out->d_model, 64}, 4, &n);
}

attn_status srv_bench(const srv_bench_options *o, attn_error *err)
{
    attn_limits limits;
    attn_pool *pool = NULL;

    attn_limits_read(&limits, "");
    size_t threads = o->threads != 0 ? o->threads : limits.threads;
    ATTN_TRY(attn_kern_init(getenv("ATTND_ISA"), err));
    ATTN_TRY(attn_blas_prepare(threads, err));
    ATTN_TRY(attn_pool_new(&pool, threads, true, err));
    attn_pool_pin_caller(pool);
    attn_status rc = ATTN_OK;
    for (size_t i = 0; i < o->num_shapes && rc == ATTN_OK; i++)
        rc = bench_shape(o, &o->shapes[i], pool, err);
    attn_pool_free(pool);
    return rc;
}
