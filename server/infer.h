/* infer.h: the queue of requests and the thread that computes them, step by step. */
#ifndef SRV_INFER_H
#define SRV_INFER_H

#include "core/pool.h"
#include "server/request.h"

typedef struct srv_infer srv_infer;

/* A request in the queue. The owner fills the first part and keeps it alive until `done` is called. */
typedef struct srv_job {
    srv_request *request;
    int64_t deadline_ms; /* CLOCK_MONOTONIC; until the answer begins */
    /* On another thread, once: the first piece of a streamed answer is there, so that the reply may begin. */
    void (*started)(struct srv_job *job);
    void (*done)(struct srv_job *job); /* on another thread, once: status and error are set */
    void *owner;

    attn_status status;
    attn_error error;
    double queue_s, compute_s;

    struct srv_job *next;
    int64_t queued_ms;
    bool begun, answering; /* by the compute thread */
    bool parked, woken; /* parked: its request waits for its reader; guarded by the queue's lock */
} srv_job;

/* `pool` is used by the queue's thread alone from now on. */
ATTN_NODISCARD attn_status srv_infer_start(srv_infer **out, attn_pool *pool, size_t max_requests,
                                           attn_error *err);

/* ATTN_EBUSY: the queue is full, and `done` will not be called. */
ATTN_NODISCARD attn_status srv_infer_submit(srv_infer *q, srv_job *job, attn_error *err);

/* The reader of a streamed answer took a piece, or left: a job that waited for that goes on. Any thread; a job that
 * does not wait, or is done, is left alone. */
void srv_infer_wake(srv_infer *q, srv_job *job);

/* Ends all that waits or runs with ATTN_ECANCELED, soon. */
void srv_infer_cancel(srv_infer *q);

/* Waits for the thread; nothing may be submitted any more. Takes NULL. */
void srv_infer_free(srv_infer *q);

#endif
