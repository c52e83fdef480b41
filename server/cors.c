/* Cross-origin resource sharing: which pages of other origins a browser lets read our answers (WHATWG Fetch, section
 * 3.2). No credentials are ever allowed with it: a key is sent by the page itself, in a field that it names. */
#include "server/http_private.h"

#include <string.h>

/* What our clients send and read beside the fields that every page may. */
static const char REQUEST_FIELDS[] =
    "Accept, Accept-Encoding, Authorization, Content-Encoding, Content-Type, If-None-Match, "
    "Inference-Header-Content-Length, Traceparent, Tracestate, X-API-Key, X-Request-Id";
static const char ANSWER_FIELDS[] =
    "Accept, Accept-Encoding, Allow, Content-Encoding, Content-Length, ETag, "
    "Inference-Header-Content-Length, Retry-After, Server-Timing, Traceparent, WWW-Authenticate, "
    "X-Request-Id";
static const char MAX_AGE_S[] =
    "7200"; /* for which a browser need not ask again; Chromium's most */

void srv_cors_check(srv_exchange *x, const char *const *origins, size_t n)
{
    size_t count = 0;
    const char *origin = srv_header_find(x, "Origin", &count);
    bool any = n == 1 && strcmp(origins[0], "*") == 0;

    x->allow_origin = any ? "*" : NULL;
    x->vary_origin = n > 0 && !any;
    for (size_t i = 0; i < n && count == 1; i++) {
        if (strcmp(origins[i], origin) == 0)
            x->allow_origin = origins[i];
    }
}

void srv_cors_preflight(srv_exchange *x, const char *methods)
{
    if (x->allow_origin == NULL ||
        srv_header_find(x, "Access-Control-Request-Method", NULL) == NULL)
        return;
    srv_http_set_header(x, "Access-Control-Allow-Methods", methods);
    srv_http_set_header(x, "Access-Control-Allow-Headers", REQUEST_FIELDS);
    srv_http_set_header(x, "Access-Control-Max-Age", MAX_AGE_S);
}

bool srv_cors_put(const srv_exchange *x, srv_put_field *put, void *arg)
{
    if (x->allow_origin == NULL)
        return true;
    return put(arg, "Access-Control-Allow-Origin", x->allow_origin) &&
           put(arg, "Access-Control-Expose-Headers", ANSWER_FIELDS);
}
