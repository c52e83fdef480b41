/* inflate.h: a compressed request body, decoded as it arrives. */
#ifndef SRV_INFLATE_H
#define SRV_INFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"
#include "server/accept.h"

typedef struct srv_inflate srv_inflate;

/* What one takes, zlib's window included; for the budget. */
#define SRV_INFLATE_BYTES ((size_t)64 << 10)

/* Of more than SRV_INFLATE_FREE bytes there may be at most SRV_INFLATE_RATIO for each byte that came: real
 * tensors and their JSON stay far below, and a bomb is known early. */
#define SRV_INFLATE_FREE  ((uint64_t)4 << 20)
#define SRV_INFLATE_RATIO 256u

/* Is given the decoded bytes in pieces of any size. */
typedef attn_status srv_sink(void *arg, const char *bytes, size_t n, attn_error *err);

/* SRV_GZIP is RFC 1952, several members one after the other included; SRV_DEFLATE is what HTTP calls so, the
 * zlib format of RFC 1950. `max_bytes` bounds what comes out. */
ATTN_NODISCARD attn_status srv_inflate_new(srv_inflate **out, srv_coding coding, uint64_t max_bytes,
                                           srv_sink *sink, void *sink_arg, attn_error *err);
void srv_inflate_free(srv_inflate *z); /* takes NULL */

/* The next piece as it was sent. After a failure it may only be freed. ATTN_EINVAL: damaged, or bytes behind
 * its end; ATTN_ETOOBIG: over `max_bytes`, or over the ratio; ATTN_ENOMEM; or what the sink says. Nothing
 * that is over a limit reaches the sink. */
ATTN_NODISCARD attn_status srv_inflate_feed(srv_inflate *z, const char *bytes, size_t n,
                                            attn_error *err);
/* The body has ended. ATTN_EINVAL: it was cut. */
ATTN_NODISCARD attn_status srv_inflate_finish(const srv_inflate *z, attn_error *err);

#endif
