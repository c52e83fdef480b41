/* raw_tensor.h: the bytes of one stored tensor, as they arrive, into a member of the reader. */
#ifndef SRV_RAW_TENSOR_H
#define SRV_RAW_TENSOR_H

#include "core/tensor.h"
#include "server/json_reader.h"

typedef struct srv_raw_tensor srv_raw_tensor;

/* Claims the member `name` of `into` for a tensor like *like: its dtype, sizes, byte order and order count,
 * the rest is not looked at. Errors are those of a tensor object in JSON: ATTN_EINVAL when there is no such
 * member, it is there already, or its kind does not take that type; ATTN_ESHAPE for the rank; or what the
 * reader's charge says. Memory is taken as the bytes arrive, but for column-major order, which needs it all. */
ATTN_NODISCARD attn_status srv_raw_tensor_new(srv_raw_tensor **out, srv_json_reader *into,
                                              const char *name, const attn_tensor *like,
                                              attn_error *err);
/* Takes NULL. Without _finish the member stays empty, and what was charged is given back. */
void srv_raw_tensor_free(srv_raw_tensor *t);

/* The next bytes, any number and at any alignment, as far as the tensor goes: *used of n. ATTN_EINVAL: a
 * number that is finite but not as float32, a mask that is neither 0 nor 1. */
ATTN_NODISCARD attn_status srv_raw_tensor_feed(srv_raw_tensor *t, const char *bytes, size_t n,
                                               size_t *used, attn_error *err);
size_t srv_raw_tensor_left(const srv_raw_tensor *t); /* bytes that are still to come */

/* All bytes are there: moves the array into its member. */
ATTN_NODISCARD attn_status srv_raw_tensor_finish(srv_raw_tensor *t, attn_error *err);

#endif
