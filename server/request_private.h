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

#endif
