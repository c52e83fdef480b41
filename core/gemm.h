/* gemm.h: OpenBLAS: which one it is, whether it may be used, and its matrix product. */
#ifndef ATTN_GEMM_H
#define ATTN_GEMM_H

#include <stdbool.h>
#include <stddef.h>

#include "status.h"

typedef struct {
    char config[128];     /* openblas_get_config() */
    char core[32];        /* openblas_get_corename(): the kernels in use */
    const char *parallel; /* "serial", "pthread", "openmp" */
    bool serial;
} attn_blas_info;

void attn_blas_get_info(attn_blas_info *out);

/* OpenBLAS does not know every processor and then takes kernels far below what it can do. Returns the
 * core name to set as OPENBLAS_CORETYPE before the library is loaded, given the ATTN_CPU_* flags and
 * the core in use; NULL when that one is right. */
const char *attn_blas_better_core(unsigned cpu_flags, const char *core);

/* Sets one BLAS thread a call and refuses what is not safe with `workers` of our own: the serial
 * build has no locks and gives wrong results when called from several threads (ATTN_EUNSUPPORTED). */
ATTN_NODISCARD attn_status attn_blas_prepare(size_t workers, attn_error *err);

/* Products of several shapes against the plain C ones; ATTN_EINTERNAL with shape and error when a
 * kernel computes wrong numbers on this machine. */
ATTN_NODISCARD attn_status attn_blas_self_test(attn_error *err);

#endif
