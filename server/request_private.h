/* request_private.h: between the files of a request. */
#ifndef SRV_REQUEST_PRIVATE_H
#define SRV_REQUEST_PRIVATE_H

#include "server/request.h"

/* For batch.c. Is one call of attn_forward() all that this request takes, and still to come? */
bool srv_request_is_one_call(const srv_request *r);
void srv_request_point_at_results(srv_request *r, size_t b); /* sequence b, before it is computed */
void srv_request_end_call(srv_request *r, size_t end,
                          const attn_stats *stats); /* up to sequence `end` */

/* request_options.c: the small members (numbers, choices, what to return) into r->options, r->want...;
 * `queries` and `keys` are checked against the sizes later, by srv_request_check_ranges(). */
ATTN_NODISCARD attn_status srv_request_read_options(srv_request *r, attn_error *err);
ATTN_NODISCARD attn_status srv_request_check_ranges(srv_request *r, attn_error *err);

/* Bytes of the budget beside what the request holds, for its r->read or r->reserved. ATTN_EBUSY: not now; ATTN_ETOOBIG:
 * it all is more than the budget, whatever else is held now. */
ATTN_NODISCARD attn_status srv_request_reserve(srv_request *r, size_t bytes, attn_error *err);

/* Holds a mask's dimensions against [B,H,T,S]; axis[i] says which of the four dimension i is. A dimension of 1 is
 * broadcast: stride 0. */
ATTN_NODISCARD attn_status srv_request_broadcast(const char *name, const srv_array *a,
                                                 const int *axis, const size_t *full,
                                                 size_t *stride, attn_error *err);

/* For encode.c: a choice among names, its index; and an optional boolean. */
ATTN_NODISCARD attn_status srv_request_choice(const attn_json *v, const char *pointer,
                                              const char *const *names, size_t n, size_t *out,
                                              attn_error *err);
ATTN_NODISCARD attn_status srv_request_bool(const srv_request *r, srv_field_name field,
                                            const char *pointer, bool *out, attn_error *err);
/* Different integers in 0 .. most, a list of at most most + 1; *out is malloc()ed. */
ATTN_NODISCARD attn_status srv_request_indices(const attn_json *v, const char *pointer, size_t most,
                                               size_t **out, size_t *n, attn_error *err);

#endif
