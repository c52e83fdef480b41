#include "tests/layer_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/kern.h"

/* --- kernels --------------------------------------------------------------------------------- */

static const char *const all_levels[CASE_MOST_LEVELS] = {"avx512", "avx2", "neon", "blas", "ref"};
const char *case_levels[CASE_MOST_LEVELS];
size_t case_num_levels, case_few_levels;

static void use(const char *isa)
{
    attn_error err = {0};
    if (attn_kern_init(isa, &err) != ATTN_OK)
        fail_msg("%s", err.text);
}

void case_use_level(size_t level)
{
    use(case_levels[level]);
}

void case_use_best_level(void)
{
    use(NULL);
}

int case_find_levels(void **state)
{
    attn_error err = {0};
    (void)state;

    case_num_levels = 0;
    for (size_t i = 0; i < CASE_MOST_LEVELS; i++) {
        if (attn_kern_init(all_levels[i], &err) == ATTN_OK)
            case_levels[case_num_levels++] = all_levels[i];
        else
            printf("skipped: kernels: %s\n", err.text);
        err = (attn_error){0};
    }
    case_few_levels = case_count(2) == 2 ? case_num_levels : 1;
    return attn_kern_init(NULL, &err) == ATTN_OK ? 0 : -1;
}

size_t case_count(size_t normal)
{
    const char *text = getenv("TEST_CASES");
    size_t n = text != NULL ? strtoull(text, NULL, 10) : 300;
    return n < 300 ? (normal * n + 299) / 300 : normal;
}

/* --- random numbers and memory -------------------------------------------------------------- */

static uint64_t number, seed;

void case_start(uint64_t n)
{
    number = n;
    seed = n * 1000003;
}

/* Sebastiano Vigna's splitmix64. */
static uint64_t next(void)
{
    uint64_t z = seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

size_t case_below(size_t n)
{
    return (size_t)(next() % n);
}

bool case_chance(size_t one_in)
{
    return case_below(one_in) == 0;
}

double case_uniform(void)
{
    return (double)(next() >> 11) * 0x1p-53;
}

size_t case_choose(const size_t *from, size_t n)
{
    return from[case_below(n)];
}

enum { MAX_PILE = 1024 };
static void *pile[MAX_PILE];
static size_t pile_n;

void *case_get(size_t n, size_t size)
{
    void *p = NULL;
    size_t bytes = n > 0 ? n * size : size;
    assert_true(pile_n < MAX_PILE);
    assert_int_equal(posix_memalign(&p, 64, bytes), 0);
    memset(p, 0, bytes);
    return pile[pile_n++] = p;
}

void case_drop(void)
{
    while (pile_n > 0)
        free(pile[--pile_n]);
}

float *case_floats(size_t n, double scale)
{
    float *x = case_get(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(scale * sqrt(-2 * log(1 - case_uniform())) *
                       cos(2 * acos(-1.0) * case_uniform()));
    return x;
}

double *case_widen(const float *x, size_t n)
{
    if (x == NULL)
        return NULL;
    double *y = case_get(n, sizeof *y);
    for (size_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

float *case_unset(size_t n)
{
    float *x = case_get(n, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

/* --- the layer ------------------------------------------------------------------------------- */

void case_init(layer_case *c, size_t num_heads, size_t num_kv_heads, size_t head_dim,
               size_t v_head_dim)
{
    memset(c, 0, sizeof *c);
    c->common = ref_attention_default();
    c->spec.num_heads = num_heads, c->spec.num_kv_heads = num_kv_heads;
    c->spec.head_dim = head_dim, c->spec.v_head_dim = v_head_dim;
    c->spec.scale = 1 / sqrtf((float)head_dim);
    c->spec.window = (attn_window){-1, -1};
    c->heads = (attn_heads){num_heads, num_kv_heads, head_dim, v_head_dim};
    c->options.scale = c->spec.scale;
    c->options.window = c->spec.window;
    c->options.num_heads = num_heads;
    c->common.heads = num_heads, c->common.kv_heads = num_kv_heads;
    c->common.head_dim = head_dim, c->common.v_head_dim = v_head_dim;
    case_share_options(c);
}

void case_share_options(layer_case *c)
{
    const attn_options *o = &c->options;
    ref_attention *r = &c->common;

    r->scale = (double)o->scale, r->softcap = (double)o->softcap;
    r->causal = o->is_causal;
    r->window_left = o->window.left, r->window_right = o->window.right;
}

void case_add_weights(layer_case *c, size_t d_model, size_t d_kv, size_t d_out)
{
    attn_layer_spec *s = &c->spec;
    attn_layer_weights *w = &c->weights;
    ref_attention *r = &c->common;
    size_t q = s->num_heads * s->head_dim, k = s->num_kv_heads * s->head_dim;
    size_t v = s->num_kv_heads * s->v_head_dim, joined = s->num_heads * s->v_head_dim;
    /* A head of few numbers may be near zero in all of them: dividing by its norm then magnifies
     * what the projection rounded, without limit. */
    bool bias = case_chance(2), norm = case_chance(4) && s->head_dim >= 8;
    double m = 1 / sqrt((double)d_model), kv = 1 / sqrt((double)d_kv);

    c->with_layer = true;
    s->d_model = r->d_model = d_model, s->d_kv = r->d_kv = d_kv, s->d_out = r->d_out = d_out;
    w->wq = case_floats(q * d_model, m), r->wq = case_widen(w->wq, q * d_model);
    w->wk = case_floats(k * d_kv, kv), r->wk = case_widen(w->wk, k * d_kv);
    w->wv = case_floats(v * d_kv, kv), r->wv = case_widen(w->wv, v * d_kv);
    w->wo = case_floats(d_out * joined, 1 / sqrt((double)joined));
    r->wo = case_widen(w->wo, d_out * joined);
    /* Each bias on its own: Whisper has none for the keys. */
    w->bq = bias ? case_floats(q, 0.5) : NULL, r->bq = case_widen(w->bq, q);
    w->bk = bias && case_chance(2) ? case_floats(k, 0.5) : NULL, r->bk = case_widen(w->bk, k);
    w->bv = bias ? case_floats(v, 0.5) : NULL, r->bv = case_widen(w->bv, v);
    w->bo = bias ? case_floats(d_out, 0.5) : NULL, r->bo = case_widen(w->bo, d_out);
    w->q_norm = norm ? case_floats(s->head_dim, 1) : NULL;
    w->k_norm = norm ? case_floats(s->head_dim, 1) : NULL;
    r->q_norm = case_widen(w->q_norm, s->head_dim);
    r->k_norm = case_widen(w->k_norm, s->head_dim);
    s->qk_norm_eps = 1e-6F;
    r->norm_eps = (double)s->qk_norm_eps;
}

void case_add_relative_bias(layer_case *c, bool bidirectional)
{
    attn_layer_spec *s = &c->spec;

    s->rel_buckets = c->common.rel_buckets = 16;
    s->rel_max_distance = c->common.rel_max_distance = 40;
    s->rel_bidirectional = c->common.rel_bidirectional = bidirectional;
    c->weights.rel_bias = case_floats(16 * s->num_heads, 1);
    c->common.rel_bias = case_widen(c->weights.rel_bias, 16 * s->num_heads);
}

void case_pack_layer(layer_case *c)
{
    attn_error err = {0};

    attn_layer_free(c->layer);
    c->layer = NULL;
    if (c->with_layer && attn_layer_new(&c->layer, &c->spec, &c->weights, &err) != ATTN_OK)
        fail_msg("case %llu: %s", (unsigned long long)number, err.text);
}

/* --- a sequence ------------------------------------------------------------------------------ */

static attn_view random_heads(size_t heads, size_t rows, size_t width, const double **wide)
{
    float *x = case_floats(heads * rows * width, 1);
    *wide = case_widen(x, heads * rows * width);
    return (attn_view){x, rows * width, width};
}

void case_add_inputs(const layer_case *c, attn_sequence *s, ref_attention *r)
{
    const attn_heads *n = &c->heads;
    size_t G = n->num_kv_heads, P = s->past_len;

    *r = c->common;
    r->tokens = s->q_len, r->new_keys = s->kv_len, r->past = P;
    r->causal_offset = s->causal_offset;
    if (c->with_layer) {
        s->x = case_floats(s->q_len * c->spec.d_model, 1);
        r->x = case_widen(s->x, s->q_len * c->spec.d_model);
        if (c->cross) {
            s->context = case_floats(s->kv_len * c->spec.d_kv, 1);
            r->context = case_widen(s->context, s->kv_len * c->spec.d_kv);
        }
    } else {
        s->query = random_heads(n->num_heads, s->q_len, n->head_dim, &r->query);
        s->key = random_heads(G, s->kv_len, n->head_dim, &r->key);
        s->value = random_heads(G, s->kv_len, n->v_head_dim, &r->value);
    }
    if (P > 0) {
        s->past_key = random_heads(G, P, n->head_dim, &r->past_key).data;
        s->past_value = random_heads(G, P, n->v_head_dim, &r->past_value).data;
    }
}

static void set_strides(size_t ours[3], size_t oracles[3], const size_t dim[3])
{
    ours[2] = dim[2] == 1 ? 0 : 1;
    ours[1] = dim[1] == 1 ? 0 : dim[2];
    ours[0] = dim[0] == 1 ? 0 : dim[1] * dim[2];
    memcpy(oracles, ours, 3 * sizeof *ours);
}

void case_set_mask(attn_sequence *s, ref_attention *r, const unsigned char *mask,
                   const size_t dim[3])
{
    s->mask = r->mask = mask;
    set_strides(s->mask_stride, r->mask_stride, dim);
}

void case_set_bias(attn_sequence *s, ref_attention *r, const float *bias, const size_t dim[3])
{
    s->bias = bias;
    r->bias = case_widen(bias, dim[0] * dim[1] * dim[2]);
    set_strides(s->bias_stride, r->bias_stride, dim);
}

void case_add_results(const layer_case *c, attn_sequence *s)
{
    const attn_heads *n = &c->heads;
    const attn_options *o = &c->options;
    size_t T = s->q_len, S = s->past_len + s->kv_len, d = n->head_dim, e = n->v_head_dim;
    size_t rows = c->q_to - o->q_from, columns = c->k_to - o->k_from;
    size_t width = c->with_layer ? c->spec.d_out : n->num_heads * e;

    s->output = case_unset(T * width);
    s->output_head_stride = T * e;
    s->joined_context = case_unset(T * n->num_heads * e);
    if (o->want_maps) {
        s->maps = (attn_view){case_unset(n->num_heads * rows * columns), rows * columns, columns};
        s->map_rows = rows;
        s->map_columns = columns;
    }
    s->query_out = (attn_view){case_unset(n->num_heads * T * d), T * d, d};
    s->key_out = (attn_view){case_unset(n->num_kv_heads * S * d), S * d, d};
    s->value_out = (attn_view){case_unset(n->num_kv_heads * S * e), S * e, e};
    s->logsumexp = case_unset(n->num_heads * T);
    s->lse_head_stride = T;
}

/* --- running and comparing ------------------------------------------------------------------- */

attn_pool *case_pool(size_t threads)
{
    attn_pool *pool = NULL;
    attn_error err = {0};
    if (attn_pool_new(&pool, threads, false, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    return pool;
}

size_t case_workspace_bytes(const layer_case *c, const attn_sequence *seqs, size_t n,
                            size_t workers)
{
    size_t bytes = 0, longest = 0;

    for (size_t b = 0; b < n; b++) {
        size_t S = seqs[b].past_len + seqs[b].kv_len;
        bytes += attn_sequence_bytes(c->layer, &c->heads, &seqs[b]);
        longest = S > longest ? S : longest;
    }
    return bytes + attn_scratch_bytes(c->layer, &c->heads, &c->options, longest, workers);
}

attn_status case_try(const layer_case *c, attn_sequence *seqs, size_t n, attn_pool *pool,
                     attn_stats *stats, attn_error *err)
{
    enum { BEHIND = 64, OLD = 0xFF }; /* four bytes of OLD are a NaN */
    size_t bytes = case_workspace_bytes(c, seqs, n, attn_pool_size(pool));
    void *workspace = NULL;

    assert_int_equal(posix_memalign(&workspace, 64, bytes + BEHIND), 0);
    memset(workspace, OLD, bytes + BEHIND);
    attn_status rc =
        attn_forward(c->layer, &c->heads, &c->options, seqs, n, pool, workspace, NULL, stats, err);
    for (size_t i = bytes; i < bytes + BEHIND; i++)
        assert_int_equal(((unsigned char *)workspace)[i], OLD);
    free(workspace);
    return rc;
}

void case_forward(const layer_case *c, attn_sequence *seqs, size_t n, attn_pool *pool,
                  attn_stats *stats)
{
    attn_error err = {0};
    if (case_try(c, seqs, n, pool, stats, &err) != ATTN_OK)
        fail_msg("case %llu: %s", (unsigned long long)number, err.text);
}

const double case_bound = 1e-5;
double case_worst;

void case_near(const char *what, const float *got, const double *expected, size_t n)
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
        if (!(difference <= case_bound))
            fail_msg("case %llu: %s: %s[%zu] is %.9g, expected %.9g", (unsigned long long)number,
                     attn_kernels.isa, what, i, (double)got[i], expected[i]);
        case_worst = fmax(case_worst, difference);
    }
}

void case_oracle(const layer_case *c, const attn_sequence *s, ref_attention *r)
{
    const attn_heads *n = &c->heads;
    size_t T = s->q_len, S = s->past_len + s->kv_len, H = n->num_heads, G = n->num_kv_heads;
    size_t d = n->head_dim, e = n->v_head_dim;
    double **stages[] = {&r->maps, &r->scores, &r->softcapped, &r->masked};

    r->outputs = case_get(T * (c->with_layer ? c->spec.d_out : H * e), sizeof(double));
    if (c->options.want_maps)
        *stages[c->options.stage] = case_get(H * T * S, sizeof(double));
    r->joined = case_get(T * H * e, sizeof(double));
    r->logsumexp = case_get(H * T, sizeof(double));
    r->query_out = case_get(H * T * d, sizeof(double));
    r->key_out = case_get(G * S * d, sizeof(double));
    r->value_out = case_get(G * S * e, sizeof(double));
    ref_attention_run(r);
}

/* The oracle's map as the options ask for it: chosen heads, reduced, the chosen part. */
static void compare_maps(const layer_case *c, const attn_sequence *s, const double *stage)
{
    const attn_options *o = &c->options;
    size_t T = s->q_len, S = s->past_len + s->kv_len, end = c->k_to < S ? c->k_to : S;
    size_t rows = c->q_to < T ? c->q_to : T,
           slots = o->reduce == ATTN_REDUCE_NONE ? o->num_heads : 1;
    double *want = case_get(c->k_to - o->k_from, sizeof *want);

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
            case_near("map",
                      s->maps.data + slot * s->maps.head_stride +
                          (i - o->q_from) * s->maps.row_stride,
                      want, end > o->k_from ? end - o->k_from : 0);
        }
    }
}

void case_compare(const layer_case *c, const attn_sequence *s, const ref_attention *r)
{
    const attn_heads *n = &c->heads;
    size_t T = s->q_len, S = s->past_len + s->kv_len, H = n->num_heads, G = n->num_kv_heads;
    const double *stages[] = {r->maps, r->scores, r->softcapped, r->masked};

    case_near("output", s->output, r->outputs,
              T * (c->with_layer ? c->spec.d_out : H * n->v_head_dim));
    case_near("context", s->joined_context, r->joined, T * H * n->v_head_dim);
    case_near("query", s->query_out.data, r->query_out, H * T * n->head_dim);
    case_near("key", s->key_out.data, r->key_out, G * S * n->head_dim);
    case_near("value", s->value_out.data, r->value_out, G * S * n->v_head_dim);
    case_near("logsumexp", s->logsumexp, r->logsumexp, H * T);
    if (c->options.want_maps)
        compare_maps(c, s, stages[c->options.stage]);
}
