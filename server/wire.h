/* wire.h: how the body of a request for attention comes and how its answer leaves: media types and codings.
 *
 * What computes does not know of it. A streamed answer goes the same way as one that stands in memory. */
#ifndef SRV_WIRE_H
#define SRV_WIRE_H

#include "server/deflate.h"
#include "server/http.h"
#include "server/picture.h"

/* Of the routes; the last one is of those that speak JSON alone. */
extern const srv_media srv_attention_media, srv_sdpa_media, srv_estimate_media, srv_json_media;

typedef struct {
    srv_coding coding;
    srv_picture picture;
    srv_png *png;
    srv_deflate *deflate;
} srv_wire;

/* The header is complete: opens r's body and notes the answer's form in r. ATTN_EINVAL: the query. */
ATTN_NODISCARD attn_status srv_wire_open(srv_wire *w, const srv_exchange *x, srv_request *r,
                                         attn_error *err);

/* The request is admitted: makes what writing its answer takes. */
ATTN_NODISCARD attn_status srv_wire_admit(srv_wire *w, const srv_request *r, attn_error *err);

/* Replies with what read(arg) gives, or the picture; `length` of them, UINT64_MAX = not known. */
void srv_wire_reply(srv_wire *w, srv_exchange *x, const srv_request *r, srv_reader *read, void *arg,
                    uint64_t length);

void srv_wire_deinit(srv_wire *w); /* takes a zeroed one */

#endif
