/* safetensors.h: the header of one safetensors file or message.
 *
 * Eight bytes of little-endian length, that many bytes of JSON, then the data: see
 * https://github.com/huggingface/safetensors#format. What the parser accepts is whole: every range
 * fits its shape and dtype, and the ranges cover the data without holes, overlap or rest. */
#ifndef ATTN_SAFETENSORS_H
#define ATTN_SAFETENSORS_H

#include "json.h"
#include "tensor.h"

#define ATTN_SAFETENSORS_PREFIX     8         /* bytes before the JSON */
#define ATTN_SAFETENSORS_HEADER_MAX 100000000 /* bytes of JSON; the limit of the reference reader */

#define ATTN_SAFETENSORS_UNKNOWN UINT64_MAX /* as `total` or `data_bytes`: the end is not checked */

typedef struct {
    attn_json *document; /* owns the names of the tensors and of their types */
    attn_tensor *tensor; /* by offset, which counts from the start of the file */
    size_t count;
} attn_safetensors;

/* *header_bytes = the length of the JSON of a file of `total` bytes. `start` holds the first n bytes
 * of it, at least min(total, 8); with 64 the message can say what else the file may be. `what`
 * names it in messages. ATTN_EFORMAT. */
ATTN_NODISCARD attn_status attn_safetensors_measure(size_t *header_bytes, const void *start,
                                                    size_t n, uint64_t total, const char *what,
                                                    attn_error *err);

/* Parses n bytes of JSON that data_bytes of data follow. The tensors' `file` is `what`, borrowed. The
 * JSON tree may take 80 times n bytes: who reads from the network bounds n first. On failure *s is
 * empty. ATTN_EFORMAT; ATTN_EUNSUPPORTED: more than ATTN_MAX_RANK dimensions. */
ATTN_NODISCARD attn_status attn_safetensors_parse(attn_safetensors *s, const char *header, size_t n,
                                                  uint64_t data_bytes, const char *what,
                                                  attn_error *err);
void attn_safetensors_deinit(attn_safetensors *s); /* takes an empty one */

#endif
