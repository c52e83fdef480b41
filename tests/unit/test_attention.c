/* attn_forward() against the oracle, on random layers, sequences and options. */
#include "core/attention.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"
#include "tests/ref_attention.h"

enum { MAX_SEQUENCES = 4, MAX_PILE = 256 };

/* How far a float may be from the oracle's double, as a part of the largest number of its tensor or of 1, the
 * larger. Measured over 3000 cases of each kind of kernels: 4.9e-6 avx512 and avx2, 5.6e-6 blas, 4.7e-6 ref;
 * over 500 cases under emulation: 2.2e-6 neon. */
static const double BOUND = 1e-5;
static double worst; /* the largest difference so far, in the same terms */

/* How many random cases; an emulator is given fewer. */
static uint64_t cases(void)
{
    const char *n = getenv("TEST_CASES");
    return n != NULL ? strtoull(n, NULL, 10) : 300;
}

/* --- random numbers and memory -------------------------------------------------------------- */

static uint64_t seed;

/* Sebastiano Vigna's splitmix64. */
static uint64_t next(void)
{
    uint64_t z = seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static size_t below(size_t n)
{
    return (size_t)(next() % n);
}

static bool chance(size_t one_in)
{
    return below(one_in) == 0;
}

static double uniform(void)
{
    return (double)(next() >> 11) * 0x1p-53;
}

static size_t choose(const size_t *from, size_t n)
{
    return from[below(n)];
}
#define CHOOSE(...)                                                                                \
    choose((const size_t[]){__VA_ARGS__}, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t))

/* Everything of a case lies here and goes at its end. Exact sizes, so that ASan sees one more. */
static void *pile[MAX_PILE];
static size_t pile_n;

static void *get(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size);
    assert_true(p != NULL && pile_n < MAX_PILE);
    return pile[pile_n++] = p;
}

static void drop_pile(void)
{
    while (pile_n > 0)
        free(pile[--pile_n]);
}

static float *random_floats(size_t n, double scale)
{
    float *x = get(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * sqrt(-2 * log(1 - uniform())) * cos(2 * acos(-1.0) * uniform()));
    return x;
}

static double *widened(const float *x, size_t n)
{
    if (x == NULL)
        return NULL;
    double *y = get(n, sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

static float *unset(size_t n) /* what a forgotten write would leave */
{
    float *x = get(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

/* --- a random layer -------------------------------------------------------------------------- */

typedef struct {
    bool with_layer, cross;
    attn_layer_spec spec;
    attn_layer_weights weights;
    attn_heads heads;
    attn_options options;
    size_t q_to, k_to; /* where the maps end */
    attn_layer *layer;
    ref_attention common; /* what is the same for all sequences */
} setup;

static void random_rope(setup *c)
{
    attn_rope *rope = &c->spec.rope;
    size_t d = c->spec.head_dim;

    rope->style = chance(2) ? ATTN_ROPE_HALF : ATTN_ROPE_INTERLEAVED;
    rope->dims = chance(2) ? d / 2 * 2 : 2 * (1 + below(d / 2));
    rope->theta = chance(2) ? 10000 : 500000;
    rope->scaling = (attn_rope_scaling)below(3);
    rope->factor = 8, rope->low_freq_factor = 1, rope->high_freq_factor = 4;
    rope->original_max_position = 64;
    c->common.rope = rope->style == ATTN_ROPE_HALF ? REF_ROPE_HALF : REF_ROPE_INTERLEAVED;
    c->common.rope_dims = rope->dims;
    c->common.rope_theta = rope->theta;
    c->common.rope_scaling = rope->scaling == ATTN_ROPE_SCALE_LINEAR   ? REF_SCALING_LINEAR
                             : rope->scaling == ATTN_ROPE_SCALE_LLAMA3 ? REF_SCALING_LLAMA3
                                                                       : REF_SCALING_NONE;
    c->common.rope_factor = 8, c->common.rope_low = 1, c->common.rope_high = 4;
    c->common.rope_original = 64;
}

static void random_weights(setup *c)
{
    attn_layer_spec *s = &c->spec;
    attn_layer_weights *w = &c->weights;
    ref_attention *r = &c->common;
    size_t q = s->num_heads * s->head_dim, k = s->num_kv_heads * s->head_dim;
    size_t v = s->num_kv_heads * s->v_head_dim, joined = s->num_heads * s->v_head_dim;
    /* A head of few numbers may be near zero in all of them: dividing by its norm then magnifies what the
     * projection rounded, without limit. */
    bool bias = chance(2), norm = chance(4) && s->head_dim >= 8;
    double m = 1 / sqrt((double)s->d_model), kv = 1 / sqrt((double)s->d_kv);

    w->wq = random_floats(q * s->d_model, m), r->wq = widened(w->wq, q * s->d_model);
    w->wk = random_floats(k * s->d_kv, kv), r->wk = widened(w->wk, k * s->d_kv);
    w->wv = random_floats(v * s->d_kv, kv), r->wv = widened(w->wv, v * s->d_kv);
    w->wo = random_floats(s->d_out * joined, 1 / sqrt((double)joined));
    r->wo = widened(w->wo, s->d_out * joined);
    /* Each bias on its own: Whisper has none for the keys. */
    w->bq = bias ? random_floats(q, 0.5) : NULL, r->bq = widened(w->bq, q);
    w->bk = bias && chance(2) ? random_floats(k, 0.5) : NULL, r->bk = widened(w->bk, k);
    w->bv = bias ? random_floats(v, 0.5) : NULL, r->bv = widened(w->bv, v);
    w->bo = bias ? random_floats(s->d_out, 0.5) : NULL, r->bo = widened(w->bo, s->d_out);
    w->q_norm = norm ? random_floats(s->head_dim, 1) : NULL;
    w->k_norm = norm ? random_floats(s->head_dim, 1) : NULL;
    r->q_norm = widened(w->q_norm, s->head_dim);
    r->k_norm = widened(w->k_norm, s->head_dim);
    s->qk_norm_eps = 1e-6F;
    r->norm_eps = (double)s->qk_norm_eps;
}

static void random_layer(setup *c)
{
    attn_layer_spec *s = &c->spec;
    attn_error err = {0};

    s->d_model = CHOOSE(1, 4, 12, 37, 64);
    s->d_kv = c->cross && chance(2) ? CHOOSE(3, 24, 50) : s->d_model;
    s->d_out = chance(4) ? CHOOSE(1, 9, 40) : s->d_model;
    random_weights(c);
    s->scale = 1 / sqrtf((float)s->head_dim);
    s->window = (attn_window){-1, -1};
    if (chance(3) && s->head_dim >= 2)
        random_rope(c);
    if (chance(5))
        s->alibi = c->common.alibi = true;
    if (chance(5)) {
        s->rel_buckets = c->common.rel_buckets = 16;
        s->rel_max_distance = c->common.rel_max_distance = 40;
        s->rel_bidirectional = c->common.rel_bidirectional = chance(2);
        c->weights.rel_bias = random_floats(16 * s->num_heads, 1);
        c->common.rel_bias = widened(c->weights.rel_bias, 16 * s->num_heads);
    }
    c->common.d_model = s->d_model, c->common.d_kv = s->d_kv, c->common.d_out = s->d_out;
    if (attn_layer_new(&c->layer, s, &c->weights, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

static void random_options(setup *c)
{
    attn_options *o = &c->options;
    ref_attention *r = &c->common;
    size_t H = c->spec.num_heads;

    o->scale = chance(3) ? (float)(0.05 + uniform()) : 1 / sqrtf((float)c->spec.head_dim);
    o->softcap = chance(4) ? (float)(1 + 20 * uniform()) : 0;
    o->is_causal = chance(2);
    o->window = (attn_window){-1, -1};
    if (chance(3))
        o->window.left = (int64_t)below(20);
    if (chance(4))
        o->window.right = (int64_t)below(9);
    o->want_maps = !chance(5);
    o->stage = (attn_stage)below(4);
    o->reduce = chance(2) ? ATTN_REDUCE_NONE : (attn_reduce)below(3);
    o->num_heads = H;
    if (chance(2)) { /* some heads, in any order */
        size_t *chosen = get(H, sizeof *chosen);
        for (size_t h = 0; h < H; h++) {
            size_t at = below(h + 1);
            chosen[h] = chosen[at];
            chosen[at] = h;
        }
        o->heads = chosen;
        o->num_heads = 1 + below(H);
    }
    r->scale = (double)o->scale, r->softcap = (double)o->softcap;
    r->causal = o->is_causal;
    r->window_left = o->window.left, r->window_right = o->window.right;
}

static void random_setup(setup *c)
{
    attn_layer_spec *s = &c->spec;
    memset(c, 0, sizeof *c);
    c->common = ref_attention_default();
    c->with_layer = !chance(3);
    c->cross = chance(3);
    s->num_kv_heads = CHOOSE(1, 2, 3);
    s->num_heads = s->num_kv_heads * CHOOSE(1, 1, 2, 4);
    s->head_dim = chance(8) ? CHOOSE(64, 80, 128) : CHOOSE(1, 2, 5, 8, 15, 16, 33);
    s->v_head_dim = chance(3) ? CHOOSE(1, 4, 7, 24) : s->head_dim;
    c->heads = (attn_heads){s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim};
    c->common.heads = s->num_heads, c->common.kv_heads = s->num_kv_heads;
    c->common.head_dim = s->head_dim, c->common.v_head_dim = s->v_head_dim;
    if (c->with_layer)
        random_layer(c);
    random_options(c);
}

/* --- a random sequence ----------------------------------------------------------------------- */

static void random_mask(const setup *c, attn_sequence *s, ref_attention *r)
{
    size_t H = c->spec.num_heads, T = s->q_len, S = s->past_len + s->kv_len;
    size_t dim[3] = {chance(2) ? H : 1, chance(2) ? T : 1, chance(5) ? 1 : S}, stride[3];
    size_t n = dim[0] * dim[1] * dim[2];

    stride[2] = dim[2] == 1 ? 0 : 1;
    stride[1] = dim[1] == 1 ? 0 : dim[2];
    stride[0] = dim[0] == 1 ? 0 : dim[1] * dim[2];
    if (chance(2)) {
        unsigned char *mask = get(n, 1);
        size_t hidden = 2 + below(8);
        for (size_t i = 0; i < n; i++)
            mask[i] = !chance(hidden);
        s->mask = r->mask = mask;
        memcpy(s->mask_stride, stride, sizeof stride);
        memcpy(r->mask_stride, stride, sizeof stride);
    }
    if (chance(2)) {
        float *bias = random_floats(n, 1);
        for (size_t i = 0; i < n; i++)
            bias[i] = chance(8) ? -INFINITY : bias[i];
        s->bias = bias;
        r->bias = widened(bias, n);
        memcpy(s->bias_stride, stride, sizeof stride);
        memcpy(r->bias_stride, stride, sizeof stride);
    }
}

static attn_view random_heads(size_t heads, size_t rows, size_t width, const double **wide)
{
    float *x = random_floats(heads * rows * width, 1);
    *wide = widened(x, heads * rows * width);
    return (attn_view){x, rows * width, width};
}

static void random_sequence(const setup *c, attn_sequence *s, ref_attention *r)
{
    const attn_heads *n = &c->heads;
    size_t G = n->num_kv_heads;
    bool past = chance(4);

    memset(s, 0, sizeof *s);
    *r = c->common;
    s->q_len = chance(10) ? 130 + below(171) : CHOOSE(0, 1, 2, 7, 16, 17, 33, 56, 65);
    s->kv_len = c->cross ? CHOOSE(0, 1, 3, 16, 40, 70) : s->q_len;
    s->past_len = past ? CHOOSE(1, 7, 33) : 0;
    r->tokens = s->q_len, r->new_keys = s->kv_len, r->past = s->past_len;
    if (c->with_layer) {
        s->x = random_floats(s->q_len * c->spec.d_model, 1);
        r->x = widened(s->x, s->q_len * c->spec.d_model);
        if (c->cross) {
            s->context = random_floats(s->kv_len * c->spec.d_kv, 1);
            r->context = widened(s->context, s->kv_len * c->spec.d_kv);
        }
    } else {
        s->query = random_heads(n->num_heads, s->q_len, n->head_dim, &r->query);
        s->key = random_heads(G, s->kv_len, n->head_dim, &r->key);
        s->value = random_heads(G, s->kv_len, n->v_head_dim, &r->value);
    }
    if (past) {
        s->past_key = random_floats(G * s->past_len * n->head_dim, 1);
        s->past_value = random_floats(G * s->past_len * n->v_head_dim, 1);
        r->past_key = widened(s->past_key, G * s->past_len * n->head_dim);
        r->past_value = widened(s->past_value, G * s->past_len * n->v_head_dim);
    }
    s->causal_offset = r->causal_offset =
        chance(3) ? (int64_t)below(40) - 20 : (int64_t)s->past_len;
    s->position_offset = r->query_position =
        chance(2) ? (int64_t)s->past_len : (int64_t)below(3000);
    s->key_position_offset = r->key_position = c->cross ? 0 : s->position_offset;
    if (c->with_layer && chance(4)) {
        int64_t *positions = get(s->q_len, sizeof *positions);
        for (size_t i = 0; i < s->q_len; i++)
            positions[i] = (int64_t)below(500);
        s->positions = r->positions = positions;
    }
    if (chance(2))
        random_mask(c, s, r);
}

/* --- running and comparing ------------------------------------------------------------------- */

/* Room for the results, each wanted or not. */
static void random_results(const setup *c, attn_sequence *s)
{
    const attn_heads *n = &c->heads;
    const attn_options *o = &c->options;
    size_t T = s->q_len, S = s->past_len + s->kv_len, d = n->head_dim, e = n->v_head_dim;
    size_t rows = c->q_to - o->q_from, columns = c->k_to - o->k_from;
    size_t width = c->with_layer ? c->spec.d_out : n->num_heads * e;

    s->output = unset(T * width);
    s->output_head_stride = T * e;
    if (chance(2))
        s->joined_context = unset(T * n->num_heads * e);
    if (o->want_maps) {
        s->maps = (attn_view){unset(n->num_heads * rows * columns), rows * columns, columns};
        s->map_rows = rows;
        s->map_columns = columns;
    }
    if (chance(2))
        s->query_out = (attn_view){unset(n->num_heads * T * d), T * d, d};
    if (chance(2))
        s->key_out = (attn_view){unset(n->num_kv_heads * S * d), S * d, d};
    if (chance(2))
        s->value_out = (attn_view){unset(n->num_kv_heads * S * e), S * e, e};
    if (chance(2))
        s->logsumexp = unset(n->num_heads * T);
    s->lse_head_stride = T;
}

static void forward(const setup *c, attn_sequence *seqs, size_t n, attn_pool *pool,
                    attn_stats *stats)
{
    size_t bytes = 0, longest = 0;
    void *workspace = NULL;
    attn_error err = {0};

    for (size_t b = 0; b < n; b++) {
        size_t S = seqs[b].past_len + seqs[b].kv_len;
        bytes += attn_sequence_bytes(c->layer, &c->heads, &seqs[b]);
        longest = S > longest ? S : longest;
    }
    bytes += attn_scratch_bytes(c->layer, &c->heads, &c->options, longest, attn_pool_size(pool));
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    memset(workspace, 0xFF, bytes); /* old bytes must not show: these are NaN */
    attn_status rc =
        attn_forward(c->layer, &c->heads, &c->options, seqs, n, pool, workspace, NULL, stats, &err);
    free(workspace);
    if (rc != ATTN_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
}

static uint64_t case_seed; /* for messages */

static void same(const char *what, const float *got, const double *expected, size_t n)
{
    double largest = 1;
    if (got == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(expected[i]))
            largest = fmax(largest, fabs(expected[i]));
    }
    for (size_t i = 0; i < n; i++) {
        if (got[i] == -INFINITY && expected[i] == -INFINITY)
            continue;
        double difference = fabs((double)got[i] - expected[i]) / largest;
        if (!(difference <= BOUND))
            fail_msg("case %llu: %s[%zu] is %.9g, expected %.9g", (unsigned long long)case_seed,
                     what, i, (double)got[i], expected[i]);
        worst = fmax(worst, difference);
    }
}

/* The oracle's map as the options ask for it: chosen heads, reduced, the chosen part. */
static void compare_maps(const setup *c, const attn_sequence *s, const double *stage)
{
    const attn_options *o = &c->options;
    size_t T = s->q_len, S = s->past_len + s->kv_len, columns = c->k_to - o->k_from;
    size_t rows = c->q_to < T ? c->q_to : T,
           slots = o->reduce == ATTN_REDUCE_NONE ? o->num_heads : 1;
    double *want = get(columns, sizeof *want);
    size_t end = c->k_to < S ? c->k_to : S;

    for (size_t slot = 0; slot < slots; slot++) {
        for (size_t i = o->q_from; i < rows; i++) {
            for (size_t j = o->k_from; j < end; j++) {
                double sum = 0, most = -INFINITY;
                for (size_t k = slot; k < (slots == 1 ? o->num_heads : slot + 1); k++) {
                    size_t h = o->heads != NULL ? o->heads[k] : k;
                    sum += stage[(h * T + i) * S + j];
                    most = fmax(most, stage[(h * T + i) * S + j]);
                }
                want[j - o->k_from] = o->reduce == ATTN_REDUCE_NONE   ? sum
                                      : o->reduce == ATTN_REDUCE_MEAN ? sum / (double)o->num_heads
                                                                      : most;
            }
            same("map",
                 s->maps.data + slot * s->maps.head_stride + (i - o->q_from) * s->maps.row_stride,
                 want, end > o->k_from ? end - o->k_from : 0);
        }
    }
}

static size_t compare(const setup *c, const attn_sequence *s, ref_attention *r)
{
    const attn_heads *n = &c->heads;
    size_t T = s->q_len, S = s->past_len + s->kv_len, H = n->num_heads, G = n->num_kv_heads;
    size_t d = n->head_dim, e = n->v_head_dim, cells = H * T * S;
    size_t width = c->with_layer ? c->spec.d_out : H * e;
    double *stage[] = {get(cells, 8), get(cells, 8), get(cells, 8), get(cells, 8)};

    r->outputs = get(T * width, 8);
    r->maps = stage[ATTN_PROBABILITIES], r->scores = stage[ATTN_SCORES];
    r->softcapped = stage[ATTN_SOFTCAPPED], r->masked = stage[ATTN_MASKED];
    r->joined = get(T * H * e, 8);
    r->logsumexp = get(H * T, 8);
    r->query_out = get(H * T * d, 8);
    r->key_out = get(G * S * d, 8);
    r->value_out = get(G * S * e, 8);
    ref_attention_run(r);
    same("output", s->output, r->outputs, T * width);
    same("context", s->joined_context, r->joined, T * H * e);
    same("query", s->query_out.data, r->query_out, H * T * d);
    same("key", s->key_out.data, r->key_out, G * S * d);
    same("value", s->value_out.data, r->value_out, G * S * e);
    same("logsumexp", s->logsumexp, r->logsumexp, H * T);
    if (c->options.want_maps)
        compare_maps(c, s, stage[c->options.stage]);
    return r->fully_masked_rows;
}

static void run_case(attn_pool *pool)
{
    setup c;
    attn_sequence seqs[MAX_SEQUENCES];
    ref_attention refs[MAX_SEQUENCES];
    attn_stats stats = {0};
    size_t n = 1 + below(MAX_SEQUENCES), rows = 0, T = 0, S = 0;

    random_setup(&c);
    for (size_t b = 0; b < n; b++) {
        random_sequence(&c, &seqs[b], &refs[b]);
        seqs[b].index = b;
        T = seqs[b].q_len > T ? seqs[b].q_len : T;
        S = seqs[b].past_len + seqs[b].kv_len > S ? seqs[b].past_len + seqs[b].kv_len : S;
    }
    c.q_to = T;
    c.k_to = S;
    if (chance(3) && T > 0 && S > 0) {
        c.options.q_from = below(T);
        c.q_to = c.options.q_from + 1 + below(T - c.options.q_from);
        c.options.k_from = below(S);
        c.k_to = c.options.k_from + 1 + below(S - c.options.k_from);
    }
    for (size_t b = 0; b < n; b++)
        random_results(&c, &seqs[b]);
    forward(&c, seqs, n, pool, &stats);
    for (size_t b = 0; b < n; b++)
        rows += compare(&c, &seqs[b], &refs[b]);
    if (stats.fully_masked_rows != rows)
        fail_msg("case %llu: %zu fully masked rows, expected %zu", (unsigned long long)case_seed,
                 stats.fully_masked_rows, rows);
    attn_layer_free(c.layer);
    drop_pile();
}

static attn_pool *new_pool(size_t threads)
{
    attn_pool *pool = NULL;
    attn_error err = {0};
    if (attn_pool_new(&pool, threads, false, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return pool;
}

static const char *const KERNELS[] = {"avx512", "avx2", "neon", "blas", "ref"};
enum { KERNELS_N = sizeof KERNELS / sizeof *KERNELS };

/* NULL = the best here. False: this processor cannot run them, and it says so. */
static bool use_kernels(const char *name)
{
    attn_error err = {0};
    attn_status rc = attn_kern_init(name, &err);
    if (rc == ATTN_EUNSUPPORTED)
        printf("skipped: kernels: %s\n", err.text);
    else if (rc != ATTN_OK)
        fail_msg("%s", err.text);
    return rc == ATTN_OK;
}

static void random_cases(uint64_t n)
{
    attn_pool *pool = new_pool(2);
    for (case_seed = 0; case_seed < n; case_seed++) {
        seed = case_seed * 1000003;
        run_case(pool);
    }
    attn_pool_free(pool);
}

static void random_cases_agree_with_the_oracle(void **state)
{
    (void)state;
    random_cases(cases());
}

static void every_kind_of_kernel_agrees_with_the_oracle(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNELS_N; i++) {
        if (!use_kernels(KERNELS[i]))
            continue;
        worst = 0.0;
        random_cases(cases() / 5);
        printf("%s: at most %.1e from the oracle, %.0e are allowed\n", KERNELS[i], worst, BOUND);
    }
    assert_true(use_kernels(NULL));
}

/* --- same bits ------------------------------------------------------------------------------- */

static void fixed_setup(setup *c, size_t d_model, size_t heads, size_t head_dim)
{
    attn_error err = {0};
    memset(c, 0, sizeof *c);
    c->common = ref_attention_default();
    c->spec = (attn_layer_spec){.d_model = d_model,
                                .d_kv = d_model,
                                .d_out = d_model,
                                .num_heads = heads,
                                .num_kv_heads = heads,
                                .head_dim = head_dim,
                                .v_head_dim = head_dim,
                                .scale = 0.2F,
                                .window = {-1, -1}};
    c->heads = (attn_heads){heads, heads, head_dim, head_dim};
    random_weights(c);
    if (attn_layer_new(&c->layer, &c->spec, &c->weights, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    c->options = (attn_options){.scale = 0.2F, .window = {-1, -1}, .num_heads = heads};
}

static void check_same_bits(void)
{
    static const size_t LENGTH[] = {1, 7, 56, 130, 300}, THREADS[] = {1, 2, 8};
    enum { N = sizeof LENGTH / sizeof *LENGTH, D = 111 };
    setup c;
    float *alone[N];
    attn_sequence all[N];
    attn_stats stats;

    seed = 7;
    fixed_setup(&c, D, 3, 37);
    attn_pool *pool = new_pool(1);
    memset(all, 0, sizeof all);
    for (size_t b = 0; b < N; b++) {
        all[b].q_len = all[b].kv_len = LENGTH[b];
        all[b].x = random_floats(LENGTH[b] * D, 1);
        all[b].output = alone[b] = unset(LENGTH[b] * D);
        forward(&c, &all[b], 1, pool, &stats);
    }
    attn_pool_free(pool);
    for (size_t t = 0; t < sizeof THREADS / sizeof *THREADS; t++) {
        pool = new_pool(THREADS[t]);
        for (size_t maps = 0; maps < 2; maps++) {
            c.options.want_maps = maps == 1;
            c.q_to = c.k_to = 300;
            for (size_t b = 0; b < N; b++) {
                all[b].output = unset(LENGTH[b] * D);
                if (maps == 1) {
                    all[b].maps = (attn_view){get(3 * 300 * 300, 4), 300 * 300, 300};
                    all[b].map_rows = all[b].map_columns = 300;
                    all[b].joined_context = get(LENGTH[b] * D, 4);
                }
            }
            forward(&c, all, N, pool, &stats);
            for (size_t b = 0; b < N; b++)
                assert_memory_equal(all[b].output, alone[b], LENGTH[b] * D * sizeof(float));
        }
        attn_pool_free(pool);
    }
    attn_layer_free(c.layer);
    drop_pile();
}

static void a_sequence_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    for (size_t i = 0; i < KERNELS_N; i++) {
        if (use_kernels(KERNELS[i]))
            check_same_bits();
    }
    assert_true(use_kernels(NULL));
}

static void what_no_query_sees_may_be_nan(void **state)
{
    enum { T = 9, S = 20, D = 24 };
    setup c;
    attn_stats stats;
    attn_sequence s = {.q_len = T, .kv_len = S, .mask_stride = {0, 0, 1}};
    unsigned char mask[S];
    (void)state;

    seed = 11;
    fixed_setup(&c, D, 4, 6);
    attn_pool *pool = new_pool(2);
    float *context = random_floats(S * D, 1);
    s.x = random_floats(T * D, 1);
    s.context = context;
    s.mask = mask;
    for (size_t j = 0; j < S; j++)
        mask[j] = j % 3 != 1;
    s.output = unset(T * D);
    forward(&c, &s, 1, pool, &stats);
    float *clean = s.output;
    for (size_t j = 0; j < S; j++) {
        if (!mask[j])
            context[j * D + j] = j % 2 ? NAN : -INFINITY;
    }
    s.output = unset(T * D);
    forward(&c, &s, 1, pool, &stats);
    assert_memory_equal(s.output, clean, T * D * sizeof(float));
    attn_pool_free(pool);
    attn_layer_free(c.layer);
    drop_pile();
}

static void nan_that_is_attended_is_refused(void **state)
{
    enum { T = 5, D = 12 };
    setup c;
    attn_stats stats;
    attn_error err = {0};
    attn_sequence s = {.index = 3, .q_len = T, .kv_len = T};
    (void)state;

    seed = 13;
    fixed_setup(&c, D, 2, 6);
    attn_pool *pool = new_pool(1);
    float *x = random_floats(T * D, 1);
    x[2 * D + 1] = NAN;
    s.x = x;
    s.output = unset(T * D);
    size_t bytes = attn_sequence_bytes(c.layer, NULL, &s) +
                   attn_scratch_bytes(c.layer, NULL, &c.options, T, 1);
    void *workspace = NULL;
    assert_int_equal(posix_memalign(&workspace, 64, bytes), 0);
    assert_int_equal(
        attn_forward(c.layer, NULL, &c.options, &s, 1, pool, workspace, NULL, &stats, &err),
        ATTN_ENONFINITE);
    assert_non_null(strstr(err.text, "sequence 3"));
    assert_non_null(strstr(err.text, "token 2"));
    free(workspace);
    attn_pool_free(pool);
    attn_layer_free(c.layer);
    drop_pile();
}

static int best_kernels(void **state)
{
    (void)state;
    return use_kernels(NULL) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_agree_with_the_oracle),
        cmocka_unit_test(every_kind_of_kernel_agrees_with_the_oracle),
        cmocka_unit_test(a_sequence_has_the_same_bits_in_any_company),
        cmocka_unit_test(what_no_query_sees_may_be_nan),
        cmocka_unit_test(nan_that_is_attended_is_refused),
    };
    return cmocka_run_group_tests(tests, best_kernels, NULL);
}
