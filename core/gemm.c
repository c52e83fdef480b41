#include "gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "kern.h"

static void product_blas(const attn_product *p)
{
    if (p->m == 0 || p->n == 0)
        return;
    if (p->k == 0) {
        for (size_t i = 0; i < p->m && !p->add; i++)
            memset(p->c + i * p->ldc, 0, p->n * sizeof(float));
        return;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, p->b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)p->m, (blasint)p->n, (blasint)p->k, 1.0F, p->a, (blasint)p->lda, p->b,
                (blasint)p->ldb, p->add ? 1.0F : 0.0F, p->c, (blasint)p->ldc);
}

void attn_kern_init_blas(attn_kern *k)
{
    k->isa = "blas";
    k->product = product_blas;
}

void attn_blas_get_info(attn_blas_info *out)
{
    static const char *const kinds[] = {"serial", "pthread", "openmp"};
    int parallel = openblas_get_parallel();

    (void)snprintf(out->config, sizeof out->config, "%s", openblas_get_config());
    (void)snprintf(out->core, sizeof out->core, "%s", openblas_get_corename());
    out->parallel = parallel >= 0 && parallel <= 2 ? kinds[parallel] : "unknown";
    out->serial = parallel == 0;
}

static bool among(const char *core, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(core, names[i]) == 0)
            return true;
    }
    return false;
}

const char *attn_blas_better_core(unsigned cpu_flags, const char *core)
{
    static const char *const with_avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids"};
    static const char *const with_avx2[] = {"Haswell", "Zen", "Excavator"};

    if (among(core, with_avx512, sizeof with_avx512 / sizeof *with_avx512))
        return NULL;
    if (cpu_flags & ATTN_CPU_AVX512)
        return "SkylakeX";
    if (among(core, with_avx2, sizeof with_avx2 / sizeof *with_avx2))
        return NULL;
    return cpu_flags & ATTN_CPU_AVX2 ? "Haswell" : NULL;
}

attn_status attn_blas_prepare(size_t workers, attn_error *err)
{
    attn_blas_info info;

    openblas_set_num_threads(1);
    attn_blas_get_info(&info);
    if (info.serial && workers > 1)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "the serial OpenBLAS has no locks and computes wrong results in %zu "
                         "threads; install libopenblas0-pthread or set compute.threads to 1",
                         workers);
    if (openblas_get_num_threads() != 1)
        return attn_fail(err, ATTN_EUNSUPPORTED,
                         "OpenBLAS (%s) insists on %d threads of its own; set OMP_NUM_THREADS=1",
                         info.parallel, openblas_get_num_threads());
    return ATTN_OK;
}

/* Small exact integers: every kernel must give the same floats, whatever its order of summing. */
static void fill_test(float *x, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = (float)((int)(seed >> 28) - 8);
    }
}

attn_status attn_blas_self_test(attn_error *err)
{
    static const size_t shapes[][3] = {{1, 1, 1},    {1, 64, 48},   {3, 5, 7},     {16, 24, 33},
                                       {64, 64, 64}, {64, 200, 64}, {128, 40, 257}};
    enum { LARGEST = 128 * 257 };
    attn_kern ref;
    attn_status rc = ATTN_OK;
    float *a = malloc(sizeof(float) * LARGEST), *b = malloc(sizeof(float) * LARGEST);
    float *got = malloc(sizeof(float) * LARGEST), *want = malloc(sizeof(float) * LARGEST);

    attn_kern_init_ref(&ref);
    if (a == NULL || b == NULL || got == NULL || want == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for the numeric self-test");
        goto done;
    }
    for (size_t s = 0; s < 2 * (sizeof shapes / sizeof *shapes) && rc == ATTN_OK; s++) {
        size_t m = shapes[s / 2][0], n = shapes[s / 2][1], k = shapes[s / 2][2];
        bool transposed = s % 2 == 1;
        attn_product p = {m, n, k, a, k, b, transposed ? k : n, transposed, got, n, false};
        fill_test(a, m * k, (unsigned)s + 1);
        fill_test(b, k * n, (unsigned)s + 100);
        attn_kernels.product(&p);
        p.c = want;
        ref.product(&p);
        for (size_t i = 0; i < m * n && rc == ATTN_OK; i++) {
            if (got[i] != want[i])
                rc = attn_fail(err, ATTN_EINTERNAL,
                               "the numeric self-test failed: a [%zu,%zu] by [%zu,%zu] product of "
                               "kernels \"%s\" gave %g where %g is right",
                               m, k, k, n, attn_kernels.isa, (double)got[i], (double)want[i]);
        }
    }
done:
    free(a);
    free(b);
    free(got);
    free(want);
    return rc;
}
