/* safetensors_body.h: safetensors as the body of a request and of an answer: application/vnd.safetensors. */
#ifndef SRV_SAFETENSORS_BODY_H
#define SRV_SAFETENSORS_BODY_H

#include "core/tensor.h"
#include "server/json_reader.h"

#define SRV_SAFETENSORS_TYPE "application/vnd.safetensors"

/* --- request ---------------------------------------------------------------------------------- */

/* Bytes of header that are read: room for labels of many tokens among the options. */
#define SRV_SAFETENSORS_HEADER SRV_VALUE_BYTES

typedef struct srv_safetensors_body srv_safetensors_body;

/* Tensors become the members of `into` that have their names, and so do the entries of __metadata__, each
 * value a JSON text: {"layer":"1","return_attentions":"{\"heads\":[0]}"}. The entry "format", which writers
 * of checkpoints add, is passed over. `total` is the body's length where that is known before its end, else
 * UINT64_MAX: one that does not fit the header is then refused with it. */
ATTN_NODISCARD attn_status srv_safetensors_body_new(srv_safetensors_body **out,
                                                    srv_json_reader *into, uint64_t total,
                                                    attn_error *err);
void srv_safetensors_body_free(srv_safetensors_body *b); /* takes NULL */

/* Pieces of any size. After a failure it may only be freed. All members are held against the header before
 * the first byte of data is read. ATTN_EINVAL: not safetensors, damaged, shorter or longer than its header
 * says; ATTN_ETOOBIG: the header is too long; and what raw_tensor.h and srv_json_reader_member() have. */
ATTN_NODISCARD attn_status srv_safetensors_body_feed(srv_safetensors_body *b, const char *bytes,
                                                     size_t n, attn_error *err);
ATTN_NODISCARD attn_status srv_safetensors_body_finish(srv_safetensors_body *b, attn_error *err);

/* --- answer ----------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    attn_dtype dtype; /* not ATTN_OTHER */
    size_t rank, dim[ATTN_MAX_RANK];
} srv_safetensors_entry;

typedef struct {
    const char *key, *value; /* UTF-8 */
} srv_safetensors_option;

/* The beginning of an answer whose data are these tensors, one right after the other in this order: the
 * format allows no holes. Spaces make it a multiple of 64 bytes, *bytes, so that the first tensor is aligned
 * to 64 bytes, and so is every one behind tensors of such sizes; give the widest types first, then each is at
 * least aligned to its own elements. For free(); NULL: no memory, or sizes that overflow. */
char *srv_safetensors_header(const srv_safetensors_entry *entry, size_t n,
                             const srv_safetensors_option *option, size_t num_options,
                             size_t *bytes);

#endif
