/* npy.h: the header of NumPy's .npy, in a file, in a zip member or in memory.
 *
 * Versions 1, 2 and 3 of
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html: magic, version, length,
 * a Python dict literal with descr, fortran_order and shape, then the data to the end. */
#ifndef ATTN_NPY_H
#define ATTN_NPY_H

#include "tensor.h"

#define ATTN_NPY_PREFIX     12    /* bytes that tell the length of the header, in every version */
#define ATTN_NPY_HEADER_MAX 65547 /* bytes before the data: 12, and as many as version 1 can say */
#define ATTN_NPY_DESCR_MAX  32    /* bytes of a type's spelling, with its NUL */

#define ATTN_NPY_UNKNOWN                                                                           \
    UINT64_MAX /* as `total`: the length is held against the shape by the caller */

/* *header_bytes = where the data begin in a file of `total` bytes. `start` holds its first n bytes,
 * at least min(total, ATTN_NPY_PREFIX). `what` names it in messages. ATTN_EFORMAT. */
ATTN_NODISCARD attn_status attn_npy_measure(size_t *header_bytes, const void *start, size_t n,
                                            uint64_t total, const char *what, attn_error *err);

/* Fills everything of *t but name, file and source; its dtype_name is `descr`, which is borrowed.
 * `start` holds the first n bytes, the whole header at least; `total` is checked against the shape.
 * ATTN_EFORMAT: damaged; ATTN_EUNSUPPORTED: Python objects, structured types, more than
 * ATTN_MAX_RANK dimensions. Types of known size that we do not compute with are ATTN_OTHER. */
ATTN_NODISCARD attn_status attn_npy_parse(attn_tensor *t, char descr[ATTN_NPY_DESCR_MAX],
                                          const void *start, size_t n, uint64_t total,
                                          const char *what, attn_error *err);

#endif
