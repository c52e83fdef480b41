/* blas_start.h: OpenBLAS takes its kernels from the environment while it is loaded, so a wrong choice is
 * mended by starting ourselves again. */
#ifndef SRV_BLAS_START_H
#define SRV_BLAS_START_H

#include "core/gemm.h"

/* First thing in main(): when OpenBLAS runs on kernels below what the processor can do, sets
 * OPENBLAS_CORETYPE and executes argv again; returns when there is nothing to do or it cannot be done. A
 * value that the user has set is never touched. */
void srv_blas_repair(char **argv);

/* The core that OpenBLAS had chosen before the repair, or NULL when there was none. */
const char *srv_blas_repaired_from(void);

#endif
