#include "kern.h"

#include <string.h>

#include "cpu.h"

attn_kern attn_kernels;

static void init_blas(attn_kern *k)
{
    attn_kern_init_ref(k);
    attn_kern_init_blas(k);
}

#if defined(__x86_64__)
#define init_avx2   attn_kern_init_avx2
#define init_avx512 attn_kern_init_avx512
#else /* no processor of another kind has the flags */
#define init_avx2   NULL
#define init_avx512 NULL
#endif

#if defined(__aarch64__)
#define init_neon attn_kern_init_neon
#else
#define init_neon NULL
#endif

/* From the best to the plainest. */
static const struct {
    const char *isa;
    unsigned needs; /* ATTN_CPU_* */
    void (*init)(attn_kern *k);
} levels[] = {
    {"avx512", ATTN_CPU_AVX512 | ATTN_CPU_AVX2, init_avx512},
    {"avx2", ATTN_CPU_AVX2, init_avx2},
    {"neon", ATTN_CPU_NEON, init_neon},
    {"blas", 0, init_blas},
    {"ref", 0, attn_kern_init_ref},
};

attn_status attn_kern_init(const char *isa, attn_error *err)
{
    unsigned flags = attn_cpu_flags();

    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        bool can = (flags & levels[i].needs) == levels[i].needs;
        if (isa == NULL && !can)
            continue;
        if (isa != NULL && strcmp(isa, levels[i].isa) != 0)
            continue;
        if (!can)
            return attn_fail(err, ATTN_EUNSUPPORTED, "this processor cannot run the \"%s\" kernels",
                             isa);
        levels[i].init(&attn_kernels);
        return ATTN_OK;
    }
    return attn_fail(err, ATTN_EINVAL,
                     "no kernels \"%s\"; there are avx512, avx2, neon, blas and ref", isa);
}

/* --- packing ----------------------------------------------------------------------------------- */

size_t attn_panel_count(size_t n)
{
    return (n + attn_kernels.panel - 1) / attn_kernels.panel;
}

size_t attn_panel_width(size_t n, size_t p)
{
    size_t left = n - p * attn_kernels.panel, lanes = attn_kernels.lanes;
    return left >= attn_kernels.panel ? attn_kernels.panel : (left + lanes - 1) / lanes * lanes;
}

size_t attn_packed_floats(size_t k, size_t n)
{
    size_t full = n / attn_kernels.panel * attn_kernels.panel, lanes = attn_kernels.lanes;
    return k * (full + (n - full + lanes - 1) / lanes * lanes);
}

void attn_pack_transposed(float *packed, size_t k, size_t n, size_t c0, const float *in,
                          size_t rows, size_t stride)
{
    for (size_t done = 0; done < rows;) {
        size_t p = (c0 + done) / attn_kernels.panel, at = (c0 + done) % attn_kernels.panel;
        size_t width = attn_panel_width(n, p);
        size_t take = rows - done < attn_kernels.panel - at ? rows - done : attn_kernels.panel - at;
        float *to = packed + p * attn_kernels.panel * k + at;
        attn_kernels.transpose(to, width, in + done * stride, stride, take, k);
        size_t end = at + take;
        done += take;
        if (c0 + done == n && end < width) {
            for (size_t l = 0; l < k; l++)
                memset(packed + p * attn_kernels.panel * k + l * width + end, 0,
                       (width - end) * sizeof(float));
        }
    }
}

void attn_pack_rows(float *packed, size_t k, size_t n, size_t r0, const float *in, size_t rows,
                    size_t stride)
{
    for (size_t p = 0; p < attn_panel_count(n); p++) {
        size_t width = attn_panel_width(n, p), c0 = p * attn_kernels.panel;
        size_t real = n - c0 < width ? n - c0 : width;
        float *to = packed + c0 * k + r0 * width;
        for (size_t r = 0; r < rows; r++) {
            memcpy(to + r * width, in + r * stride + c0, real * sizeof(float));
            memset(to + r * width + real, 0, (width - real) * sizeof(float));
        }
    }
}
