/* Every kernel level of this machine against plain loops in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "core/gemm.h"
#include "core/kern.h"
#include "tests/layer_case.h"

enum { LONGEST = 131 };

static uint64_t seed = 1;

static float random_float(float scale)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return ((float)(seed >> 40) / 8388608.0F - 1.0F) * scale;
}

/* Exactly n floats on the heap: ASan sees one more. */
static float *random_row(size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(scale);
    return x;
}

/* n floats that fill whole vectors of the level in use. */
static size_t whole_vectors(size_t n)
{
    return (n + attn_kernels.lanes - 1) / attn_kernels.lanes * attn_kernels.lanes;
}

/* Stretches of a row, one after the other, against the softmax of the whole row in double. Measured: at most 1.5e-7
 * relative near the largest; the bounds leave some room. */
static void softmax_in_stretches_is_the_softmax_of_the_row(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t round = 1; round <= LONGEST; round++) {
            enum { ROWS = 3, STRETCHES = 4 };
            size_t n = whole_vectors(round % 48 + 1), ld = n + round % 5,
                   all = ROWS * ld * STRETCHES;
            float *x = random_row(all, 60.0F), *y = malloc(all * sizeof *y);
            float max[ROWS] = {-INFINITY, -INFINITY, -INFINITY}, sum[ROWS] = {0}, factor[ROWS];
            double scale[STRETCHES][ROWS];
            memcpy(y, x, all * sizeof *y);
            for (size_t t = 0; t < STRETCHES; t++) {
                attn_kernels.softmax(
                    &(attn_softmax){y + t * ROWS * ld, ROWS, n, ld, max, sum, factor});
                for (size_t r = 0; r < ROWS; r++) {
                    scale[t][r] = 1.0;
                    for (size_t before = 0; before < t; before++)
                        scale[before][r] *= (double)factor[r];
                }
            }
            for (size_t r = 0; r < ROWS; r++) {
                double want_sum = 0.0, want_max = -INFINITY;
                for (size_t i = 0; i < STRETCHES * n; i++)
                    want_max = fmax(want_max, (double)x[(i / n * ROWS + r) * ld + i % n]);
                assert_true((double)max[r] == want_max);
                for (size_t i = 0; i < STRETCHES * n; i++) {
                    size_t at = (i / n * ROWS + r) * ld + i % n;
                    double d = (double)x[at] - want_max, want = exp(d);
                    want_sum += want;
                    if (!(fabs((double)y[at] * scale[i / n][r] - want) <=
                          want * (5e-7 - 1.5e-7 * d) + 2e-38))
                        fail_msg("%s: exp(%.9g) = %.9g, not %.9g", case_levels[l], d,
                                 (double)y[at] * scale[i / n][r], want);
                }
                assert_true(fabs((double)sum[r] - want_sum) <= 1e-6 * want_sum);
            }
            for (size_t i = 0; i < all; i++) /* between the rows */
                assert_true(i % ld < n || y[i] == x[i]);
            free(x);
            free(y);
        }
    }
}

static void softmax_of_what_is_masked_is_exactly_zero_and_nan_shows(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 1; n <= 40; n++) {
            size_t room = whole_vectors(n);
            float *x = random_row(room, 1.0F), max = -INFINITY, sum = 0.0F, factor;
            attn_softmax s = {x, 1, room, room, &max, &sum, &factor};
            for (size_t i = 0; i < room; i++)
                x[i] = -INFINITY;
            attn_kernels.softmax(&s); /* nothing yet */
            assert_true(max == -INFINITY && sum == 0.0F && factor == 0.0F);
            for (size_t i = 0; i < room; i++)
                assert_true(x[i] == 0.0F && !signbit(x[i]));
            for (size_t i = 0; i < room; i++)
                x[i] = i < n ? 2.0F : i % 2 == 0 ? -INFINITY : -1e30F;
            attn_kernels.softmax(&s);
            assert_true(max == 2.0F && sum == (float)n && factor == 0.0F);
            for (size_t i = 0; i < room; i++)
                assert_true(x[i] == (i < n ? 1.0F : 0.0F));
            x[n / 2] = NAN;
            attn_kernels.softmax(&s);
            assert_true(factor == 1.0F && isnan(sum));
            free(x);
        }
    }
}

static void transpose_moves_every_element_and_no_other(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t round = 0; round < 200; round++) {
            size_t rows = round % 37 + 1, columns = round * 7 % 41 + 1;
            size_t in_stride = columns + round % 3, out_stride = rows + round % 2;
            float *in = random_row(rows * in_stride, 1.0F),
                  *out = random_row(columns * out_stride, 1.0F);
            float *before = malloc(columns * out_stride * sizeof *before);
            memcpy(before, out, columns * out_stride * sizeof *before);
            attn_kernels.transpose(out, out_stride, in, in_stride, rows, columns);
            for (size_t c = 0; c < columns; c++) {
                for (size_t r = 0; r < out_stride; r++)
                    assert_true(out[c * out_stride + r] ==
                                (r < rows ? in[r * in_stride + c] : before[c * out_stride + r]));
            }
            free(in);
            free(out);
            free(before);
        }
    }
}

static void scale_multiplies_each_element_once(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 0; n <= LONGEST; n++) {
            float *x = random_row(n, 3.0F), *y = random_row(n, 3.0F);
            (n % 2 == 0 ? attn_kernels.scale : attn_kernels.stream)(y, x, n, 0.3F);
            for (size_t i = 0; i < n; i++)
                assert_true(y[i] == x[i] * 0.3F);
            free(x);
            free(y);
        }
    }
}

static void scale_add_scales_what_was_there_once(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 0; n <= LONGEST; n++) {
            float *x = random_row(n, 3.0F), *y = random_row(n, 3.0F), *before = random_row(n, 1.0F);
            memcpy(before, y, n * sizeof *y);
            attn_kernels.scale_add(y, x, n, 0.3F);
            for (size_t i = 0; i < n; i++) /* rounded once or twice */
                assert_true(
                    fabs((double)y[i] - ((double)before[i] * (double)0.3F + (double)x[i])) <= 5e-7);
            free(x);
            free(y);
            free(before);
        }
    }
}

static double activation(attn_activation kind, double x)
{
    switch (kind) {
    case ATTN_GELU:
        return x * 0.5 * erfc(-x / sqrt(2.0));
    case ATTN_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case ATTN_RELU:
        return fmax(x, 0.0);
    default:
        return x / (1.0 + exp(-x));
    }
}

/* Measured: at most 1.2e-7 of |x| or of 1, the larger. Near 0 and far below it the error must be small beside the
 * result as well. */
static void activations_agree_with_their_formulas(void **state)
{
    (void)state;
    enum { N = 20011 };
    static float x[N], y[N];

    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (attn_activation kind = ATTN_GELU; kind <= ATTN_SILU; kind++) {
            for (size_t i = 0; i < N; i++)
                y[i] = x[i] = i < N / 2 ? random_float(8.0F)
                                        : random_float(1.0F) * exp2f(random_float(100.0F));
            attn_kernels.activate(
                &(attn_activate){.kind = kind, .x = y, .rows = 1, .n = N, .ld = N});
            for (size_t i = 0; i < N; i++) {
                double want = activation(kind, (double)x[i]), error = fabs((double)y[i] - want);
                double allowed = 2e-7 * fmax(fabs((double)x[i]), 1.0);
                if (fabs((double)x[i]) < 1.0)
                    allowed = 5e-7 * fabs(want) + 1e-37; /* subnormal numbers count as zero */
                else if (x[i] > -4.0F && x[i] < 0.0F)
                    allowed = 1e-5 * fabs(want);
                if (!(error <= allowed))
                    fail_msg("%s: activation %d of %.9g is %.9g, not %.17g", attn_kernels.isa,
                             (int)kind, (double)x[i], (double)y[i], want);
            }
        }
    }
    case_use_best_level();
}

/* Rows with gaps, of any length: what lies between them stays, an element's bits are those of any other place, a gate
 * multiplies. */
static void activations_stay_in_their_rows(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 1; n <= 70; n++) {
            enum { ROWS = 3 };
            size_t ld = n + 2, all = (ROWS - 1) * ld + n;
            attn_activation kind = (attn_activation)(n % 4);
            float *x = random_row(all, 4.0F), *gate = random_row(all, 2.0F),
                  *y = malloc(all * sizeof *y);
            memcpy(y, x, all * sizeof *y);
            attn_kernels.activate(
                &(attn_activate){kind, y, ROWS, n, ld, n % 3 == 0 ? NULL : gate, ld});
            for (size_t i = 0; i < all; i++) {
                float one[1] = {x[i]};
                if (i % ld < n) {
                    attn_kernels.activate(
                        &(attn_activate){.kind = kind, .x = one, .rows = 1, .n = 1, .ld = 1});
                    if (n % 3 != 0)
                        one[0] *= gate[i];
                }
                assert_memory_equal(&y[i], one, sizeof *one);
            }
            free(x);
            free(gate);
            free(y);
        }
        for (attn_activation kind = ATTN_GELU; kind <= ATTN_SILU; kind++) {
            float bad[] = {1.0F, NAN, -2.0F};
            attn_kernels.activate(
                &(attn_activate){.kind = kind, .x = bad, .rows = 1, .n = 3, .ld = 3});
            assert_true(isnan(bad[1]) && isfinite(bad[0]) && isfinite(bad[2]));
        }
    }
    case_use_best_level();
}

static void check_norm(size_t n, bool added, bool kept, bool biased)
{
    enum { ROWS = 2 };
    float *x = random_row(ROWS * n, 3.0F), *add = random_row(ROWS * n, 3.0F),
          *out = malloc(ROWS * n * sizeof *out);
    float *weight = random_row(n, 1.0F), *bias = random_row(n, 1.0F),
          *sum = malloc(ROWS * n * sizeof *sum);

    attn_kernels.norm(&(attn_norm){out, kept ? sum : NULL, x, added ? add : NULL, ROWS, n, weight,
                                   biased ? bias : NULL, 1e-5F});
    for (size_t r = 0; r < ROWS; r++) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = r * n; i < (r + 1) * n; i++) {
            if (added)
                x[i] += add[i];
            mean += (double)x[i] / (double)n;
        }
        for (size_t i = r * n; i < (r + 1) * n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        for (size_t i = r * n; i < (r + 1) * n; i++) {
            double want = ((double)x[i] - mean) / sqrt(variance + 1e-5) * (double)weight[i - r * n];
            if (biased)
                want += (double)bias[i - r * n];
            if (!(fabs((double)out[i] - want) <= 2e-6))
                fail_msg("%s: %zu wide, element %zu is %.9g, not %.9g", attn_kernels.isa, n, i,
                         (double)out[i], want);
            assert_true(!kept || sum[i] == x[i]);
        }
    }
    free(x);
    free(add);
    free(out);
    free(weight);
    free(bias);
    free(sum);
}

static void norm_agrees_with_its_formula(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 2; n <= LONGEST; n++) {
            for (size_t options = 0; options < 8; options++)
                check_norm(n, options & 1, options & 2, options & 4);
        }
    }
    case_use_best_level();
}

/* The places of x, add and sum may be those of out and x, as the encoder has them. */
static void norm_may_overwrite_what_it_reads(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 2; n <= 70; n++) {
            float *x = random_row(n, 3.0F), *add = random_row(n, 3.0F),
                  *weight = random_row(n, 1.0F);
            float *want = malloc(n * sizeof *want), *sum = malloc(n * sizeof *sum);
            float *copy = malloc(n * sizeof *copy);
            attn_kernels.norm(&(attn_norm){want, sum, x, add, 1, n, weight, NULL, 0.0F});
            memcpy(copy, x, n * sizeof *copy);
            attn_kernels.norm(&(attn_norm){copy, NULL, copy, add, 1, n, weight, NULL, 0.0F});
            assert_memory_equal(copy, want, n * sizeof *want);
            attn_kernels.norm(&(attn_norm){add, x, x, add, 1, n, weight, NULL, 0.0F});
            assert_memory_equal(add, want, n * sizeof *want);
            assert_memory_equal(x, sum, n * sizeof *want);
            free(x);
            free(add);
            free(weight);
            free(want);
            free(sum);
            free(copy);
        }
    }
    case_use_best_level();
}

static void all_finite_sees_one_bad_value_anywhere(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t n = 0; n <= 67; n++) {
            float *x = random_row(n, 3e38F);
            assert_true(attn_kernels.all_finite(x, n));
            for (size_t i = 0; i < n; i++) {
                float kept = x[i];
                x[i] = bad[i % 3];
                assert_false(attn_kernels.all_finite(x, n));
                x[i] = kept;
            }
            free(x);
        }
    }
}

/* Elements of c against plain sums of what b was packed from, [n][k]. */
static void check_product(const char *level, const attn_product *p, const float *b)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            double want = p->bias != NULL ? (double)p->bias[j] : 0.0;
            double size = fabs(want);
            for (size_t k = 0; k < p->k; k++) {
                double t = (double)p->a[i * p->lda + k] * (double)b[j * p->k + k];
                want += t;
                size += fabs(t);
            }
            /* k roundings of half an ulp of partial sums that are at most `size`. */
            if (!(fabs((double)p->c[i * p->ldc + j] - want) <= 6e-8 * (double)(p->k + 2) * size))
                fail_msg("%s: [%zu,%zu]x[%zu,%zu] element %zu,%zu is %.9g, not %.9g", level, p->m,
                         p->k, p->k, p->n, i, j, (double)p->c[i * p->ldc + j], want);
        }
    }
}

static size_t random_size(size_t least, size_t most)
{
    (void)random_float(1);
    return least + (size_t)(seed >> 33) % (most - least + 1);
}

static void product_agrees_with_plain_sums_and_stays_in_its_tile(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (size_t round = 0; round < case_count(400); round++) {
            size_t m = random_size(1, 30), n = random_size(1, attn_kernels.panel);
            size_t k = round % 7 == 0 ? random_size(0, 700) : random_size(0, 40);
            if (round % 20 == 0) /* more than a chunk at every level */
                k = random_size(1025, 4500);
            size_t lda = k + 3, ldc = n + 2;
            float *a = random_row(m * lda, 1.0F), *b = random_row(n * k, 1.0F);
            float *c = random_row(m * ldc, 1.0F), *bias = random_row(n, 1.0F);
            float *packed = random_row(attn_packed_floats(k, n), 1.0F);
            float *before = malloc(m * ldc * sizeof *before);
            memcpy(before, c, m * ldc * sizeof *before);
            attn_pack_transposed(packed, k, n, 0, b, n, k);
            attn_product p = {
                .m = m, .n = n, .k = k, .a = a, .lda = lda, .b = packed, .c = c, .ldc = ldc};
            p.bias = round % 2 == 1 ? bias : NULL;
            attn_kernels.product(&p);
            check_product(case_levels[l], &p, b);
            for (size_t i = 0; i < m; i++)
                assert_memory_equal(c + i * ldc + n, before + i * ldc + n, 2 * sizeof *c);
            free(a);
            free(b);
            free(c);
            free(bias);
            free(packed);
            free(before);
        }
    }
}

static void a_product_without_columns_writes_nothing(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        float a[8] = {0}, b[1] = {0}, c[2] = {3.0F, 4.0F};
        attn_kernels.product(
            &(attn_product){.m = 2, .n = 0, .k = 4, .a = a, .lda = 4, .b = b, .c = c, .ldc = 1});
        assert_true(c[0] == 3.0F && c[1] == 4.0F);
    }
}

static void a_product_cut_at_row_blocks_has_the_same_bits(void **state)
{
    enum { M = 101, N = 64, K = 333 };
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        size_t n = N < attn_kernels.panel ? N : attn_kernels.panel, block = attn_kernels.row_block;
        float *a = random_row(M * K, 1.0F), *b = random_row(n * K, 1.0F),
              *all = random_row(M * n, 1.0F);
        float *packed = random_row(attn_packed_floats(K, n), 1.0F),
              *some = random_row(block * n, 1.0F);
        attn_product p = {
            .m = M, .n = n, .k = K, .a = a, .lda = K, .b = packed, .c = all, .ldc = n};
        attn_pack_transposed(packed, K, n, 0, b, n, K);
        attn_kernels.product(&p);
        p.c = some;
        for (size_t i = 0; i < M; i += block) {
            p.a = a + i * K;
            p.m = M - i < block ? M - i : block;
            attn_kernels.product(&p);
            assert_memory_equal(some, all + i * n, p.m * n * sizeof *some);
        }
        free(a);
        free(b);
        free(all);
        free(packed);
        free(some);
    }
}

/* Packing in pieces of any size gives what packing at once gives, filling included. */
static void packing_in_pieces_is_packing_at_once(void **state)
{
    (void)state;
    for (size_t l = 0; l < case_num_levels; l++) {
        case_use_level(l);
        for (int round = 0; round < 60; round++) {
            size_t k = random_size(1, 20), n = random_size(1, 3 * attn_kernels.panel);
            size_t floats = attn_packed_floats(k, n), other = attn_packed_floats(n, k);
            float *in = random_row(n * k, 1.0F), *whole = random_row(floats, 1.0F);
            float *pieces = random_row(floats, 1.0F), *rows = random_row(other, 1.0F);
            attn_pack_transposed(whole, k, n, 0, in, n, k);
            for (size_t c = 0, take; c < n; c += take) {
                take = random_size(1, n - c);
                attn_pack_transposed(pieces, k, n, c, in + c * k, take, k);
            }
            assert_memory_equal(whole, pieces, floats * sizeof *whole);
            for (size_t r = 0, take; r < n; r += take) {
                take = random_size(1, n - r);
                attn_pack_rows(rows, n, k, r, in + r * k, take, k);
            }
            for (size_t r = 0; r < n; r++) {
                for (size_t c = 0; c < k; c++) {
                    size_t p = c / attn_kernels.panel, w = attn_panel_width(k, p);
                    assert_true(rows[p * attn_kernels.panel * n + r * w + c % attn_kernels.panel] ==
                                in[r * k + c]);
                }
            }
            free(in);
            free(whole);
            free(pieces);
            free(rows);
        }
    }
}

static void unknown_levels_are_refused_by_name(void **state)
{
    attn_error err = {0};
    (void)state;
    assert_int_equal(attn_kern_init("sse9", &err), ATTN_EINVAL);
    assert_non_null(strstr(err.text, "sse9"));
}

static void blas_core_names_are_judged_by_what_the_processor_can_do(void **state)
{
    enum { AVX2 = 1, AVX512 = 2 };
    (void)state;
    assert_string_equal(attn_blas_better_core(AVX2 | AVX512, "Prescott"), "SkylakeX");
    assert_string_equal(attn_blas_better_core(AVX2 | AVX512, "Haswell"), "SkylakeX");
    assert_string_equal(attn_blas_better_core(AVX2, "Nehalem"), "Haswell");
    assert_null(attn_blas_better_core(AVX2 | AVX512, "SkylakeX"));
    assert_null(attn_blas_better_core(AVX2 | AVX512, "Cooperlake"));
    assert_null(attn_blas_better_core(AVX2, "Zen"));
    assert_null(attn_blas_better_core(0, "Prescott"));
}

static void wrong_product(const attn_product *p)
{
    memset(p->c, 0, p->n * sizeof *p->c);
}

static void the_self_test_passes_here_and_fails_on_a_wrong_product(void **state)
{
    attn_error err = {0};
    (void)state;
    assert_int_equal(attn_kern_init("ref", &err), ATTN_OK);
    assert_int_equal(attn_blas_self_test(&err), ATTN_OK);
    assert_int_equal(attn_kern_init(NULL, &err), ATTN_OK);
    assert_int_equal(attn_blas_prepare(2, &err), ATTN_OK);
    assert_int_equal(attn_blas_self_test(&err), ATTN_OK);
    attn_kernels.product = wrong_product;
    assert_int_equal(attn_blas_self_test(&err), ATTN_EINTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_in_stretches_is_the_softmax_of_the_row),
        cmocka_unit_test(softmax_of_what_is_masked_is_exactly_zero_and_nan_shows),
        cmocka_unit_test(transpose_moves_every_element_and_no_other),
        cmocka_unit_test(scale_multiplies_each_element_once),
        cmocka_unit_test(scale_add_scales_what_was_there_once),
        cmocka_unit_test(activations_agree_with_their_formulas),
        cmocka_unit_test(activations_stay_in_their_rows),
        cmocka_unit_test(norm_agrees_with_its_formula),
        cmocka_unit_test(norm_may_overwrite_what_it_reads),
        cmocka_unit_test(all_finite_sees_one_bad_value_anywhere),
        cmocka_unit_test(product_agrees_with_plain_sums_and_stays_in_its_tile),
        cmocka_unit_test(a_product_without_columns_writes_nothing),
        cmocka_unit_test(a_product_cut_at_row_blocks_has_the_same_bits),
        cmocka_unit_test(packing_in_pieces_is_packing_at_once),
        cmocka_unit_test(unknown_levels_are_refused_by_name),
        cmocka_unit_test(blas_core_names_are_judged_by_what_the_processor_can_do),
        cmocka_unit_test(the_self_test_passes_here_and_fails_on_a_wrong_product),
    };
    return cmocka_run_group_tests(tests, case_find_levels, NULL);
}
