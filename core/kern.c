#include "kern.h"

#include <string.h>

attn_kern attn_kernels;

attn_status attn_kern_init(const char *isa, attn_error *err)
{
    attn_kern_init_ref(&attn_kernels);
    if (isa == NULL || strcmp(isa, "blas") == 0)
        attn_kern_init_blas(&attn_kernels);
    else if (strcmp(isa, "ref") != 0)
        return attn_fail(err, ATTN_EINVAL, "no kernels \"%s\"; there are: ref, blas", isa);
    return ATTN_OK;
}
