/* request_private.h: between request.c and request_parse.c. */
#ifndef SRV_REQUEST_PRIVATE_H
#define SRV_REQUEST_PRIVATE_H

#include "server/request.h"

/* request_options.c: the small members (numbers, choices, what to return) into r->options, r->want...;
 * `queries` and `keys` are checked against the sizes later, by srv_request_check_ranges(). */
ATTN_NODISCARD attn_status srv_request_read_options(srv_request *r, attn_error *err);
ATTN_NODISCARD attn_status srv_request_check_ranges(srv_request *r, attn_error *err);

#endif
