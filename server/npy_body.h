/* npy_body.h: NumPy's .npy as the body of a request and of an answer: application/x-npy. */
#ifndef SRV_NPY_BODY_H
#define SRV_NPY_BODY_H

#include "core/tensor.h"
#include "server/json_reader.h"

#define SRV_NPY_TYPE "application/x-npy"

/* --- request ---------------------------------------------------------------------------------- */

typedef struct srv_npy_body srv_npy_body;

/* The body is the member `name` of `into`: versions 1 to 3, either byte order, C and Fortran order; float
 * types and what else that member takes. `total` is its length where that is known before its end, else
 * UINT64_MAX: a length that does not fit the shape is then refused with the header. */
ATTN_NODISCARD attn_status srv_npy_body_new(srv_npy_body **out, srv_json_reader *into,
                                            const char *name, uint64_t total, attn_error *err);
void srv_npy_body_free(srv_npy_body *b); /* takes NULL */

/* Pieces of any size. After a failure it may only be freed. ATTN_EINVAL: not .npy, damaged, a type that is
 * not read, shorter or longer than its shape says; and what raw_tensor.h has. */
ATTN_NODISCARD attn_status srv_npy_body_feed(srv_npy_body *b, const char *bytes, size_t n,
                                             attn_error *err);
ATTN_NODISCARD attn_status srv_npy_body_finish(srv_npy_body *b, attn_error *err);

/* --- answer ----------------------------------------------------------------------------------- */

enum { SRV_NPY_HEADER_MAX = 320 };

/* The header of an array in C order, of a multiple of 64 bytes, which are returned; the data follow it. Types
 * that .npy has, ATTN_BF16 is none; rank <= ATTN_MAX_RANK. */
size_t srv_npy_header(char out[SRV_NPY_HEADER_MAX], attn_dtype dtype, size_t rank,
                      const size_t *dim);

#endif
