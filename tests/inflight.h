/* inflight.h: requests under way while a test does something else. */
#ifndef TESTS_INFLIGHT_H
#define TESTS_INFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/daemon.h"
#include "tests/rawhttp.h"

/* Connects, and has one request answered, so that the daemon is known to serve this connection. */
void inflight_open(raw_conn *c, const test_daemon *d);

/* Sends a POST of JSON text, but for its last `hold_back` bytes; false when the daemon does not take
 * it. */
bool inflight_post(raw_conn *c, const char *path, const char *json, size_t hold_back);

/* Sends a GET and reads the answer. */
raw_answer inflight_get(raw_conn *c, const char *path);

#define INFLIGHT_SDPA "/v1/scaled-dot-product-attention"

/* A body for INFLIGHT_SDPA: `tokens` queries and keys of size 1, much work for its size. timeout_ms 0 =
 * the daemon's own. The caller frees. */
char *inflight_heavy(size_t tokens, long timeout_ms);

/* A second of work, in sequences that are short enough for the answer to begin only when all is computed. */
char *inflight_heavy_whole(long timeout_ms);

#endif
