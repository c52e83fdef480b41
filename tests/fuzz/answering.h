/* answering.h: requests for attention from the demo model, computed in the calling thread. */
#ifndef TESTS_ANSWERING_H
#define TESTS_ANSWERING_H

#include "core/model.h"
#include "core/pool.h"
#include "server/request.h"

/* The demo model and a pool of one thread, made by the first call. */
const attn_model *answering_model(void);
attn_pool *answering_pool(void);

/* Admits and computes a request that was parsed and reads its answer, *n bytes, for free(). NULL: *err, or, with
 * ATTN_ETIMEDOUT, it would take too long for a fuzzer. */
char *answering_text(srv_request *r, size_t *n, attn_error *err);

/* The same answer, but for what it says of memory. */
bool answering_same(const char *a, size_t a_bytes, const char *b, size_t b_bytes);

#endif
