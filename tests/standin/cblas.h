/* cblas.h: what core/gemm.c uses of OpenBLAS, for a processor that we have no OpenBLAS for. The product is the
 * plain one, so that the "blas" kernels are there, and right. */
#ifndef TESTS_STANDIN_CBLAS_H
#define TESTS_STANDIN_CBLAS_H

typedef int blasint;
enum { CblasRowMajor, CblasNoTrans };

static inline void cblas_sgemm(int order, int trans_a, int trans_b, blasint m, blasint n, blasint k,
                               float alpha, const float *a, blasint lda, const float *b,
                               blasint ldb, float beta, float *c, blasint ldc)
{
    (void)order, (void)trans_a, (void)trans_b;
    for (blasint i = 0; i < m; i++) {
        for (blasint j = 0; j < n; j++) {
            float sum = 0.0F;
            for (blasint l = 0; l < k; l++)
                sum += a[i * lda + l] * b[l * ldb + j];
            c[i * ldc + j] = alpha * sum + beta * c[i * ldc + j];
        }
    }
}

static inline int openblas_get_parallel(void)
{
    return 1; /* pthread */
}

static inline const char *openblas_get_config(void)
{
    return "stand-in";
}

static inline const char *openblas_get_corename(void)
{
    return "plain";
}

static inline void openblas_set_num_threads(int n)
{
    (void)n;
}

static inline int openblas_get_num_threads(void)
{
    return 1;
}

#endif
