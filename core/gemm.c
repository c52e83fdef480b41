#include "gemm.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "kern.h"

/* What OpenBLAS makes of a row depends on how many there are: they are multiplied in blocks of ROWS,
 * however many a call has. Measured against 144: up to 25 % slower. */
enum { PANEL = 256, LANES = 4, ROWS = 48 };

static void product_blas(const attn_product *p)
{
    size_t width = (p->n + LANES - 1) / LANES * LANES;

    for (size_t i = 0; i < p->m; i++) {
        if (p->bias != NULL)
            memcpy(p->c + i * p->ldc, p->bias, p->n * sizeof(float));
        else
            memset(p->c + i * p->ldc, 0, p->n * sizeof(float));
    }
    if (p->n == 0 || p->k == 0)
        return;
    for (size_t i = 0; i < p->m; i += ROWS) {
        size_t rows = p->m - i < ROWS ? p->m - i : ROWS;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows, (blasint)p->n,
                    (blasint)p->k, 1.0F, p->a + i * p->lda, (blasint)p->lda, p->b, (blasint)width,
                    1.0F, p->c + i * p->ldc, (blasint)p->ldc);
    }
}

void attn_kern_init_blas(attn_kern *k)
{
    k->isa = "blas";
    k->panel = PANEL;
    k->lanes = LANES;
    k->row_block = ROWS;
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
                                       {64, 64, 64}, {64, 200, 64}, {100, 40, 257}};
    enum { LARGEST = 128 * 320 };
    attn_status rc = ATTN_OK;
    float *a = calloc(LARGEST, sizeof(float)), *b = calloc(LARGEST, sizeof(float));
    float *packed = calloc(LARGEST, sizeof(float)), *got = calloc(LARGEST, sizeof(float));

    if (a == NULL || b == NULL || packed == NULL || got == NULL) {
        rc = attn_fail(err, ATTN_ENOMEM, "no memory for the numeric self-test");
        goto done;
    }
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes && rc == ATTN_OK; s++) {
        size_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        fill_test(a, m * k, (unsigned)s + 1);
        fill_test(b, n * k, (unsigned)s + 100);
        attn_pack_transposed(packed, k, n, 0, b, n, k);
        for (size_t p = 0, c0 = 0; p < attn_panel_count(n); p++, c0 += attn_kernels.panel) {
            size_t columns = n - c0 < attn_kernels.panel ? n - c0 : attn_kernels.panel;
            attn_kernels.product(&(attn_product){.m = m,
                                                 .n = columns,
                                                 .k = k,
                                                 .a = a,
                                                 .lda = k,
                                                 .b = packed + c0 * k,
                                                 .c = got + c0,
                                                 .ldc = n});
        }
        for (size_t i = 0; i < m * n && rc == ATTN_OK; i++) {
            float want = 0.0F;
            for (size_t l = 0; l < k; l++)
                want += a[i / n * k + l] * b[i % n * k + l];
            if (got[i] != want)
                rc = attn_fail(err, ATTN_EINTERNAL,
                               "the numeric self-test failed: a [%zu,%zu] by [%zu,%zu] product of "
                               "kernels \"%s\" gave %g where %g is right",
                               m, k, k, n, attn_kernels.isa, (double)got[i], (double)want);
        }
    }
done:
    free(a);
    free(b);
    free(packed);
    free(got);
    return rc;
}
