/* source.h: a request body in any media type and content coding that we read, as members of a JSON reader.
 *
 * Whoever checks a request reads the members of the reader and does not know how they came. */
#ifndef SRV_SOURCE_H
#define SRV_SOURCE_H

#include "server/accept.h"
#include "server/json_reader.h"
#include "server/query.h"

typedef enum { SRV_BODY_JSON, SRV_BODY_SAFETENSORS, SRV_BODY_NPY, SRV_BODY_TYPES } srv_body_type;
extern const char *const srv_body_types[SRV_BODY_TYPES]; /* media types, for srv_content_type() */

typedef struct {
    srv_body_type type;
    srv_coding coding;
    uint64_t length;    /* of the body as it is sent; UINT64_MAX = not known before its end */
    uint64_t max_bytes; /* of the decoded body */
    const char *member; /* .npy: the one that the array is; a literal */
} srv_source_options;

typedef struct srv_source srv_source;

/* `into` must outlive the source and is given nothing by anyone else. */
ATTN_NODISCARD attn_status srv_source_new(srv_source **out, srv_json_reader *into,
                                          const srv_source_options *o, attn_error *err);
void srv_source_free(srv_source *s); /* takes NULL */

/* Query parameters as members, each value a JSON text: for .npy, before its body. Those that are marked as
 * taken are passed over. ATTN_EINVAL as by srv_json_reader_member(). */
ATTN_NODISCARD attn_status srv_source_query(srv_source *s, const srv_query *query, attn_error *err);

/* Pieces of any size as they are sent. After a failure it may only be freed. */
ATTN_NODISCARD attn_status srv_source_feed(srv_source *s, const char *bytes, size_t n,
                                           attn_error *err);
/* The body has ended: all members are in the reader, which is finished. */
ATTN_NODISCARD attn_status srv_source_finish(srv_source *s, attn_error *err);

#endif
