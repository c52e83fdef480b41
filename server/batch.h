/* batch.h: small requests that wait for the same layer, computed in one call. */
#ifndef SRV_BATCH_H
#define SRV_BATCH_H

#include "server/request.h"

enum { SRV_BATCH_REQUESTS = 64 };

typedef struct {
    size_t sequences, bytes, longest; /* how many, attn_sequence_bytes() of all, most keys */
} srv_batch_size;

/* The members of one call, and the workspace that calls share one after the other. It is reserved from the
 * members' budget beside what each of them has reserved for itself; where it does not fit, nobody joins.
 * Starts as {0}; used by one thread. */
typedef struct {
    srv_request *members[SRV_BATCH_REQUESTS];
    size_t n;
    srv_batch_size size; /* of all members */

    attn_budget *budget;
    size_t reserved; /* of the budget, for the block */
    char *block;
    size_t allocated; /* bytes of the block: at most what is reserved */
} srv_batch;

/* May both be computed in one call? Both are small, still to be computed, and ask the same layer with the
 * same options; masks, lengths and what else belongs to a sequence may differ. */
bool srv_requests_join(const srv_request *a, const srv_request *b);

/* Begins a new call with its first member. */
void srv_batch_start(srv_batch *b, srv_request *r);

/* True when r is a member now: it joins the first one and the call stays below SRV_WORKSPACE_TARGET and in
 * the budget. */
bool srv_batch_add(srv_batch *b, srv_request *r, size_t workers);

/* Computes all members, two or more. False: none is; each must be computed by itself, for the call was
 * canceled, or somebody's numbers are not finite, or rows are fully masked and it is not known whose. */
bool srv_batch_compute(srv_batch *b, attn_pool *pool, const atomic_bool *cancel);

/* Gives the workspace back; the call is over. */
void srv_batch_release(srv_batch *b);

#endif
