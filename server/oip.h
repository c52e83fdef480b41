/* oip.h: the Open Inference Protocol, version 2, with its binary tensor extension, over a layer's attention.
 *
 *   oip_header.c   the JSON of an inference request: taken apart, checked
 *   oip_parameters.c  its parameters
 *   oip_request.c  a body, JSON and then bytes, into the members of a request for attention
 *   oip_answer.c   its answer
 *   oip_meta.c     what is served, and how it fares
 *   oip_repository.c  models are loaded and unloaded
 *
 * The request is read into the members that POST /v1/models/{model}/attention has, and goes the same way from
 * there on. What is said about them is translated to the names of this protocol. */
#ifndef SRV_OIP_H
#define SRV_OIP_H

#include "server/accept.h"
#include "server/http.h"
#include "server/request.h"

#define SRV_OIP_VERSION "1" /* the only one that a model has */

/* Header fields of a request and an answer. */
#define SRV_OIP_HEADER_LENGTH "Inference-Header-Content-Length"
#define SRV_OIP_BINARY_TYPE   "application/octet-stream"

typedef struct srv_oip srv_oip;

/* How a body comes and its answer shall leave. */
typedef struct {
    uint64_t json_bytes; /* UINT64_MAX = all of it; 0 = none, the rest is one tensor */
    uint64_t length;     /* of the body as it is sent; UINT64_MAX = not known before its end */
    uint64_t max_bytes;  /* of the decoded body */
    srv_coding coding, answer_coding;
} srv_oip_body;

/* Of the routes for inference. Any Content-Type will do, since clients send any, or none. */
extern const srv_media srv_oip_media;

/* What the header fields say. ATTN_EINVAL: a length of the JSON that is none, or is longer than the body. */
ATTN_NODISCARD attn_status srv_oip_read_fields(const srv_exchange *x, srv_oip_body *body,
                                               attn_error *err);

/* `r` outlives it and is given nothing by anyone else. */
ATTN_NODISCARD attn_status srv_oip_new(srv_oip **out, srv_request *r, const srv_oip_body *body,
                                       attn_error *err);
void srv_oip_free(srv_oip *o); /* takes NULL */

/* Pieces of any size. After a failure it may only be freed. */
ATTN_NODISCARD attn_status srv_oip_feed(srv_oip *o, const char *bytes, size_t n, attn_error *err);

/* The body has ended: srv_request_parse(), and what it asks of its answer. */
ATTN_NODISCARD attn_status srv_oip_parse(srv_oip *o, size_t workers, attn_error *err);

/* Puts this protocol's names into what was said about a request. */
void srv_oip_translate(attn_error *err);

/* The answer begins, whose plain bytes are those of read(arg), `length` of them, UINT64_MAX = not known: sets its
 * header fields and replies. */
void srv_oip_reply(srv_oip *o, srv_exchange *x, srv_reader *read, void *arg, uint64_t length);

struct srv_served;

/* As srv_app_acquire(), for the path's {model} and {version}. */
const struct srv_served *srv_oip_acquire(srv_exchange *x);

/* All routes but those of /infer. */
extern const srv_route srv_oip_routes[], srv_repository_routes[];
extern const size_t srv_num_oip_routes, srv_num_repository_routes;

#endif
