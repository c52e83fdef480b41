/* http_app.h: a small application over the HTTP layer, in this process, for its tests. */
#ifndef TESTS_HTTP_APP_H
#define TESTS_HTTP_APP_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "server/http.h"

/* GET  /                 "root"
 * GET  /echo/{name}      the name; header X-Extra: 1
 * GET  /both, POST /both "get", "post"
 * GET  /stream/{bytes}   so many bytes, "abc...zabc..."
 * GET  /wait/{ms}        suspends, a thread answers after so long
 * GET  /silent           forgets to answer
 * GET  /fail/{code}      a problem with this status code of the library, by its stable name
 * GET  /quiet            not logged at info
 * POST /count            number of bytes received
 * POST /refuse           fails in `data`, after 100 bytes
 * POST /nobody/{x}       refused in `begin`
 * POST /work             like GET /work, after a body; ms in header X-Sleep-Ms */
typedef struct {
    srv_http *http;
    const char *url;
    atomic_size_t begun, ended, bytes, threads, observed;
    atomic_int last_status;
    char last_route[64]; /* of the last exchange observed; read it when none is under way */
} http_app;

/* Options are the daemon's defaults where 0 stands: 1 MiB of body, 10 s, 60 s, 2 threads. */
typedef struct {
    const char *listen;      /* NULL: 127.0.0.1:0 */
    const char *also_listen; /* NULL: nowhere */
    uint64_t max_body_bytes;
    int64_t header_timeout_ms, request_timeout_ms;
    srv_access *access; /* NULL: no keys, no certificate */
    unsigned io_threads, max_connections;
} http_app_options;

void http_app_start(http_app *a, http_app_options o);  /* fails the test */
size_t http_app_stop(http_app *a, int64_t timeout_ms); /* waits for all threads; returns the cut */

/* Waits up to two seconds until no exchange is left. */
void http_app_settle(const http_app *a);

#endif
