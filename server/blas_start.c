#include "server/blas_start.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/cpu.h"

static const char was_variable[] = "ATTND_OPENBLAS_WAS";

void srv_blas_repair(char **argv)
{
    attn_blas_info info;

    if (getenv("OPENBLAS_CORETYPE") != NULL)
        return;
    attn_blas_get_info(&info);
    const char *better = attn_blas_better_core(attn_cpu_flags(), info.core);
    if (better == NULL)
        return;
    /* The second start finds OPENBLAS_CORETYPE set, so this happens once. */
    if (setenv("OPENBLAS_CORETYPE", better, 1) == 0 && setenv(was_variable, info.core, 1) == 0)
        (void)execv("/proc/self/exe", argv);
}

const char *srv_blas_repaired_from(void)
{
    return getenv(was_variable);
}
