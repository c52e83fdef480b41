#include "server/infer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "server/clock.h"

enum { TICK_MS = 20 };

struct srv_infer {
    attn_pool *pool;
    size_t max_requests;
    pthread_t worker, watch;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;  /* head != NULL, or stopping */
    pthread_cond_t tick;  /* the watch has something to do: a deadline is set, or stopping */
    srv_job *head, *tail;
    srv_job *parked; /* wait for their readers */
    size_t waiting;
    srv_job *running;
    bool canceling, stopping;

    atomic_bool cancel; /* of the running request */
};

static void end_unrun(srv_job *job, attn_status code, const char *why)
{
    job->status = attn_fail(&job->error, code, "%s", why);
    job->queue_s = (double)(srv_now_ms() - job->queued_ms) / 1000.0;
    job->done(job);
}

static const char deadline_text[] = "the request's deadline passed before it was answered";
static const char canceled_text[] = "the daemon is shutting down";

/* One step; true: the job is over. */
static bool step(srv_infer *q, srv_job *job, srv_step *next)
{
    double begin = srv_now_s();

    if (!job->begun)
        job->queue_s = (double)(srv_now_ms() - job->queued_ms) / 1000.0;
    job->begun = true;
    attn_error why = {0};
    job->status = srv_request_step(job->request, q->pool, &q->cancel, next, &why);
    job->compute_s += srv_now_s() - begin;
    if (job->status == ATTN_ECANCELED && atomic_load(&q->cancel)) {
        bool late = srv_now_ms() >= job->deadline_ms;
        why = (attn_error){0};
        job->status = attn_fail(&why, late ? ATTN_ETIMEDOUT : ATTN_ECANCELED, "%s",
                                late ? deadline_text : canceled_text);
    }
    job->error = why;
    return job->status != ATTN_OK || *next == SRV_STEP_DONE;
}

/* Behind all that waits; the lock is held. */
static void append(srv_infer *q, srv_job *job)
{
    job->next = NULL;
    if (q->tail == NULL)
        q->head = job;
    else
        q->tail->next = job;
    q->tail = job;
    q->waiting++;
    (void)pthread_cond_signal(&q->wake);
    (void)pthread_cond_signal(&q->tick);
}

static void *work(void *arg)
{
    srv_infer *q = arg;

    attn_pool_pin_caller(q->pool);
    (void)pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->head == NULL && !q->stopping)
            (void)pthread_cond_wait(&q->wake, &q->lock);
        srv_job *job = q->head;
        if (job == NULL)
            break;
        q->head = job->next;
        if (q->head == NULL)
            q->tail = NULL;
        q->waiting--;
        q->running = job;
        job->woken = false;
        atomic_store(&q->cancel, q->canceling || srv_now_ms() >= job->deadline_ms);
        (void)pthread_mutex_unlock(&q->lock);

        srv_step next = SRV_STEP_DONE;
        bool over = step(q, job, &next);
        bool starts = !job->answering && srv_request_answers(job->request);

        (void)pthread_mutex_lock(&q->lock);
        q->running = NULL;
        if (starts) {
            job->answering = true;
            job->deadline_ms = INT64_MAX;
        }
        (void)pthread_mutex_unlock(&q->lock);
        if (starts)
            job->started(job);
        if (over)
            job->done(job); /* may free it */
        (void)pthread_mutex_lock(&q->lock);
        if (over)
            continue;
        if (next == SRV_STEP_WAITS && !job->woken && !q->canceling) {
            job->parked = true;
            job->next = q->parked;
            q->parked = job;
        } else {
            append(q, job);
        }
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void unpark(srv_infer *q, srv_job *job)
{
    srv_job **at = &q->parked;

    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    job->parked = false;
    append(q, job);
}

void srv_infer_wake(srv_infer *q, srv_job *job)
{
    (void)pthread_mutex_lock(&q->lock);
    job->woken = true;
    if (job->parked)
        unpark(q, job);
    (void)pthread_mutex_unlock(&q->lock);
}

/* Takes out of the queue what waits past its deadline; the lock is held. */
static srv_job *take_late(srv_infer *q, int64_t now)
{
    srv_job *late = NULL, **at = &q->head, *last = NULL;

    while (*at != NULL) {
        srv_job *job = *at;
        if (q->canceling || now >= job->deadline_ms) {
            *at = job->next;
            job->next = late;
            late = job;
            q->waiting--;
        } else {
            last = job;
            at = &job->next;
        }
    }
    q->tail = last;
    return late;
}

/* Deadlines: what waits too long is ended here, what runs too long is told to stop. */
static void *watch(void *arg)
{
    srv_infer *q = arg;

    (void)pthread_mutex_lock(&q->lock);
    while (!q->stopping) {
        int64_t now = srv_now_ms();
        if (q->running != NULL && (q->canceling || now >= q->running->deadline_ms))
            atomic_store(&q->cancel, true);
        srv_job *late = take_late(q, now);
        if (late != NULL) {
            bool canceling = q->canceling;
            (void)pthread_mutex_unlock(&q->lock);
            while (late != NULL) {
                srv_job *next = late->next;
                end_unrun(late, canceling ? ATTN_ECANCELED : ATTN_ETIMEDOUT,
                          canceling ? canceled_text : deadline_text);
                late = next;
            }
            (void)pthread_mutex_lock(&q->lock);
            continue;
        }
        if (q->head == NULL && q->running == NULL) {
            (void)pthread_cond_wait(&q->tick, &q->lock);
            continue;
        }
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&q->tick, &q->lock, &until);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

attn_status srv_infer_start(srv_infer **out, attn_pool *pool, size_t max_requests, attn_error *err)
{
    srv_infer *q = calloc(1, sizeof *q);

    *out = NULL;
    if (q == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the queue");
    q->pool = pool;
    q->max_requests = max_requests;
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->wake, NULL);
    (void)pthread_cond_init(&q->tick, NULL);
    if (pthread_create(&q->worker, NULL, work, q) != 0) {
        free(q);
        return attn_fail(err, ATTN_EIO, "cannot start the compute thread");
    }
    if (pthread_create(&q->watch, NULL, watch, q) != 0) {
        (void)pthread_mutex_lock(&q->lock);
        q->stopping = true;
        (void)pthread_cond_signal(&q->wake);
        (void)pthread_mutex_unlock(&q->lock);
        (void)pthread_join(q->worker, NULL);
        free(q);
        return attn_fail(err, ATTN_EIO, "cannot start the deadline thread");
    }
    *out = q;
    return ATTN_OK;
}

attn_status srv_infer_submit(srv_infer *q, srv_job *job, attn_error *err)
{
    (void)pthread_mutex_lock(&q->lock);
    if (q->waiting >= q->max_requests) {
        (void)pthread_mutex_unlock(&q->lock);
        return attn_fail(err, ATTN_EBUSY, "the queue is full: %zu requests wait", q->max_requests);
    }
    job->queued_ms = srv_now_ms();
    append(q, job);
    (void)pthread_mutex_unlock(&q->lock);
    return ATTN_OK;
}

void srv_infer_cancel(srv_infer *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->canceling = true;
    while (q->parked != NULL)
        unpark(q, q->parked);
    (void)pthread_cond_signal(&q->tick);
    (void)pthread_mutex_unlock(&q->lock);
}

void srv_infer_free(srv_infer *q)
{
    if (q == NULL)
        return;
    (void)pthread_mutex_lock(&q->lock);
    q->stopping = true;
    (void)pthread_cond_signal(&q->wake);
    (void)pthread_cond_signal(&q->tick);
    (void)pthread_mutex_unlock(&q->lock);
    (void)pthread_join(q->worker, NULL);
    (void)pthread_join(q->watch, NULL);
    (void)pthread_mutex_destroy(&q->lock);
    (void)pthread_cond_destroy(&q->wake);
    (void)pthread_cond_destroy(&q->tick);
    free(q);
}
