/* tensor.h: element types of stored tensors and their exact widening to float32. */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>

#include "status.h"

#define ATTN_MAX_RANK 8

typedef enum {
    ATTN_F32,
    ATTN_F16,
    ATTN_BF16,
    ATTN_F64,
    ATTN_BOOL,
    ATTN_I8,
    ATTN_U8,
    ATTN_I16,
    ATTN_U16,
    ATTN_I32,
    ATTN_U32,
    ATTN_I64,
    ATTN_U64,
    ATTN_OTHER /* known to its file format, not readable here: F8_E4M3, C64, ... */
} attn_dtype;

/* One tensor of a weight file. Strings and the struct live as long as its archive. */
typedef struct {
    const char *name;
    const char *file;       /* path of the file that holds it, for messages */
    const char *dtype_name; /* as the file spells it: "F32", "<f4", "F8_E4M3" */
    attn_dtype dtype;
    size_t rank;
    size_t dim[ATTN_MAX_RANK];
    size_t count;      /* product of dim */
    bool column_major; /* npy with fortran_order */
    bool big_endian;   /* npy with '>' */
    size_t bytes;      /* stored size */
    uint64_t offset;   /* of the data in its file or archive member */
    size_t source;     /* private to the archive */
} attn_tensor;

/* Bytes of one element; 0 for ATTN_OTHER. */
size_t attn_dtype_size(attn_dtype dtype);

/* "float32", "bool", "int64": the names of API.md's tensor objects; "other". */
const char *attn_dtype_name(attn_dtype dtype);

/* The type of that API name; false when there is none. */
bool attn_dtype_parse(const char *name, attn_dtype *out);

/* out[i] = in[i] as float32, n elements, any alignment of `in`, little-endian; `in` and `out` may
 * not overlap. F16 and BF16 are exact; F64 is rounded to nearest, and a finite F64 that has no
 * finite float32 is ATTN_EINVAL (err names index and value). Only the four float types. */
ATTN_NODISCARD attn_status attn_widen(float *out, const void *in, size_t n, attn_dtype dtype,
                                      attn_error *err);

float attn_f16_to_f32(uint16_t bits);
/* The nearest float16, ties to even; what is finite but larger than any becomes the largest. NaN stays NaN. */
uint16_t attn_f32_to_f16(float x);
float attn_bf16_to_f32(uint16_t bits);

#endif
