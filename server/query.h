/* query.h: the query of a request target, "a=1&b=%5B2%5D", taken apart and decoded. */
#ifndef SRV_QUERY_H
#define SRV_QUERY_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

#define SRV_QUERY_MOST 64 /* parameters */

typedef struct {
    const char *name, *value; /* "" without '=' */
    bool taken;               /* for those who share a query: someone has read it */
} srv_query_parameter;

typedef struct {
    char *text; /* owned: what the strings point into */
    srv_query_parameter *parameter;
    size_t count;
} srv_query;

/* `text` begins behind the '?'; NULL = there is none. Empty parameters ("a=1&&b=2") are none; '+' is a blank, as
 * forms are sent. ATTN_EINVAL: a '%' without two digits, a NUL, no UTF-8, more than SRV_QUERY_MOST, a name twice. */
ATTN_NODISCARD attn_status srv_query_parse(srv_query *q, const char *text, attn_error *err);
void srv_query_deinit(srv_query *q); /* takes an empty one */

/* The value of that parameter, which is marked as taken; NULL = it is not there. */
const char *srv_query_take(srv_query *q, const char *name);

#endif
