/* deflate.h: an answer, compressed while it is read. */
#ifndef SRV_DEFLATE_H
#define SRV_DEFLATE_H

#include <stddef.h>
#include <sys/types.h>

#include "core/status.h"
#include "server/accept.h"

typedef struct srv_deflate srv_deflate;

/* What one takes, zlib's own memory included; for the budget. */
#define SRV_DEFLATE_BYTES ((size_t)288 << 10)

/* Answers shorter than this fit a packet or two and are sent as they are. */
#define SRV_DEFLATE_LEAST ((size_t)1 << 10)

/* Gives at most n bytes of the answer, 0 at its end, or a negative number that says why it gives none now. */
typedef ssize_t srv_deflate_source(void *arg, char *out, size_t n);

/* `coding` is SRV_GZIP or SRV_DEFLATE. ATTN_ENOMEM. */
ATTN_NODISCARD attn_status srv_deflate_new(srv_deflate **out, srv_coding coding,
                                           srv_deflate_source *source, void *source_arg,
                                           attn_error *err);
void srv_deflate_free(srv_deflate *z); /* takes NULL */

/* The next bytes, at most n; 0 = that was all. What the source gave before it became negative comes out
 * first, so that the client can read on; then the negative number is returned, and the next call asks the
 * source again. The encoded text depends on where the source paused, the decoded one does not. */
ssize_t srv_deflate_read(srv_deflate *z, char *out, size_t n);

#endif
