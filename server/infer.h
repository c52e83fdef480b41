/* infer.h: the queue of requests and the thread that computes them.
 *
 * All that are ready take turns, a step at a time, so that a small request is not stuck behind a large one:
 * the next step is for whoever had least of the pool, counted from an even share when it came, and for the
 * first to come among equals. Small requests for the same layer that wait are computed in one call. When
 * nothing else is there a request starts at once.
 *
 *                          .--> done
 *      submit ---> ready --+--> in a step --+--> done
 *                    ^  ^-------------------|
 *                    '---- at its reader <--'
 *
 * Whatever it is doing, a job is ended when its deadline passes, its client leaves, its owner drops it or
 * everything is canceled: at once, or in a step at the next tile. */
#ifndef SRV_INFER_H
#define SRV_INFER_H

#include "core/pool.h"
#include "server/request.h"

typedef struct srv_infer srv_infer;

/* A request in the queue. The owner fills the first part and keeps it alive until `done` was called. */
typedef struct srv_job {
    srv_request *request;
    int64_t deadline_ms; /* CLOCK_MONOTONIC */
    int client_fd;       /* a socket that tells when the client leaves; -1 = none */
    /* On another thread, once, before `done`: there is a piece of a streamed answer, so that the reply
     * can begin. From here on neither the deadline counts nor client_fd: the reply has its own. */
    void (*started)(struct srv_job *job);
    void (*done)(struct srv_job *job); /* on another thread, once: status and error are set */
    void *owner;

    attn_status status;
    attn_error error;
    double queue_s;   /* until its first step */
    double compute_s; /* of its steps */

    /* The queue's. */
    struct srv_job *prev, *next;
    int state, verdict;
    srv_step after; /* what its last step said */
    bool begun, alone, woken, answering;
    double queued_s, turn, pool_s;
} srv_job;

/* `pool` is used by the queue's thread alone from now on. */
ATTN_NODISCARD attn_status srv_infer_start(srv_infer **out, attn_pool *pool, size_t max_requests,
                                           attn_error *err);

/* ATTN_EBUSY: max_requests are ready and wait for their turn; `done` will not be called. */
ATTN_NODISCARD attn_status srv_infer_submit(srv_infer *q, srv_job *job, attn_error *err);

/* What srv_infer_submit() would say now. */
ATTN_NODISCARD attn_status srv_infer_has_room(srv_infer *q, attn_error *err);

/* From any thread, while the job's owner keeps it alive; nothing happens when it is over. */
void srv_infer_wake(srv_infer *q,
                    srv_job *job); /* its reader took a piece: SRV_STEP_WAITS is over */
void srv_infer_drop(srv_infer *q, srv_job *job); /* ends it with ATTN_ECANCELED, soon */

/* Ends all that is there with ATTN_ECANCELED, soon. */
void srv_infer_cancel(srv_infer *q);

/* Waits until all is done; nothing may be submitted any more. Takes NULL. */
void srv_infer_free(srv_infer *q);

typedef struct {
    size_t waiting, running; /* ready; in a step */
    uint64_t calls;          /* steps, a shared one counts once */
    uint64_t shared;         /* requests that were computed together with others */
    uint64_t canceled;       /* ended before they were computed, whatever the reason */
} srv_infer_stats;

void srv_infer_get_stats(srv_infer *q, srv_infer_stats *s);

/* For how long the compute thread has not done what it must: end a step that nobody wants any more, which it looks for
 * at every tile, or begin one while jobs are ready. It hangs when that is long. */
double srv_infer_stuck_s(srv_infer *q);

/* When one that is refused now should come again, by how fast requests were computed lately: 1 to 60
 * seconds. */
unsigned srv_infer_retry_after_s(srv_infer *q);

#endif
