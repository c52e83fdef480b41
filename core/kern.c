#include "kern.h"

#include <string.h>

#include "cpu.h"

attn_kern attn_kernels;

static void init_ref(attn_kern *k)
{
    attn_kern_init_ref(k);
}

static void init_blas(attn_kern *k)
{
    attn_kern_init_ref(k);
    attn_kern_init_blas(k);
}

#if defined(__x86_64__)
static void init_avx2(attn_kern *k)
{
    init_blas(k);
    attn_kern_init_avx2(k);
}

static void init_avx512(attn_kern *k)
{
    init_blas(k);
    attn_kern_init_avx512(k);
}
#endif

/* From the best to the plainest. */
static const struct {
    const char *isa;
    unsigned needs; /* ATTN_CPU_* */
    void (*init)(attn_kern *k);
} levels[] = {
#if defined(__x86_64__)
    {"avx512", ATTN_CPU_AVX512 | ATTN_CPU_AVX2, init_avx512},
    {"avx2", ATTN_CPU_AVX2, init_avx2},
#endif
    {"blas", 0, init_blas},
    {"ref", 0, init_ref},
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
    return attn_fail(err, ATTN_EINVAL, "no kernels \"%s\"; there are avx512, avx2, blas and ref",
                     isa);
}
