#include "server/infer.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "server/batch.h"
#include "server/clock.h"

enum {
    TICK_MS = 10, /* so late is a deadline seen, or that a client has left */
    CLIENTS = 64, /* looked at in one go */
    MEAN_OF = 16, /* requests that the moving average remembers */
    MAX_RETRY_S = 60
};

enum { READY, IN_STEP, AT_READER, OVER };

/* Why a job ends before it is computed. */
enum { NONE, LATE, GONE, STOPPING };

struct srv_infer {
    attn_pool *pool;
    size_t max_requests;
    pthread_t worker, watch;

    pthread_mutex_t lock; /* guards all below but the last, and the queue's part of every job */
    pthread_cond_t wake;  /* a job is ready, or stopping */
    pthread_cond_t
        tick; /* CLOCK_MONOTONIC; the list is not empty any more, a verdict, or stopping */
    srv_job *head, *tail; /* all that are not over, in order of arrival */
    size_t ready, in_step;
    double
        even_share; /* seconds of the pool for a job that had always been ready, had all had the same */
    double mean_s; /* of the pool, for a request; 0 = none yet */
    bool canceling, stopping;
    double stuck_since_s; /* 0 = it works, or has nothing to do */
    srv_infer_stats stats;
    atomic_bool cancel; /* of the step */

    srv_batch batch; /* the compute thread's */
};

/* --- jobs; the lock is held ------------------------------------------------------------------ */

static void make_ready(srv_infer *q, srv_job *job)
{
    job->state = READY;
    q->ready++;
    (void)pthread_cond_signal(&q->wake);
}

/* From here on the job is its owner's, who must be told. */
static void take_out(srv_infer *q, srv_job *job)
{
    *(job->prev != NULL ? &job->prev->next : &q->head) = job->next;
    *(job->next != NULL ? &job->next->prev : &q->tail) = job->prev;
    job->next = job->prev = NULL;
    job->state = OVER;
    if (q->head == NULL && q->stopping) {
        (void)pthread_cond_signal(&q->wake);
        (void)pthread_cond_signal(&q->tick);
    }
}

static void end_unfinished(srv_infer *q, srv_job *job)
{
    static const struct {
        attn_status code;
        const char *why;
    } table[] = {
        [LATE] = {ATTN_ETIMEDOUT, "the request's deadline passed before it was answered"},
        [GONE] = {ATTN_ECANCELED, "the client closed its connection before it was answered"},
        [STOPPING] = {ATTN_ECANCELED, "the daemon is shutting down"},
    };

    if (!job->begun)
        job->queue_s = srv_now_s() - job->queued_s;
    job->error = (attn_error){0};
    job->status = attn_fail(&job->error, table[job->verdict].code, "%s", table[job->verdict].why);
    q->stats.canceled++;
}

/* Not under the lock. */
static void tell_owners(srv_job *over)
{
    while (over != NULL) {
        srv_job *next = over->next;
        over->done(over); /* may free it */
        over = next;
    }
}

/* --- the compute thread ---------------------------------------------------------------------- */

static bool may_step(const srv_job *job, int64_t now)
{
    return job->state == READY && job->verdict == NONE && now < job->deadline_ms;
}

/* Chooses the jobs of the next step; 0 = none is ready. The lock is held. */
static size_t choose(srv_infer *q, srv_job *members[SRV_BATCH_REQUESTS])
{
    int64_t now = srv_now_ms();
    srv_job *first = NULL;
    size_t n = 0;

    for (srv_job *job = q->canceling ? NULL : q->head; job != NULL; job = job->next) {
        if (may_step(job, now) && (first == NULL || job->turn < first->turn))
            first = job;
    }
    if (first == NULL)
        return 0;
    members[n++] = first;
    if (q->ready > 1 && !first->alone) {
        srv_batch_start(&q->batch, first->request);
        for (srv_job *job = q->head; job != NULL && n < SRV_BATCH_REQUESTS; job = job->next) {
            if (job != first && !job->alone && may_step(job, now) &&
                srv_batch_add(&q->batch, job->request, attn_pool_size(q->pool)))
                members[n++] = job;
        }
    }
    for (size_t i = 0; i < n; i++) {
        members[i]->state = IN_STEP;
        members[i]->woken = false;
    }
    q->ready -= n;
    q->in_step = n;
    atomic_store(&q->cancel, false);
    return n;
}

/* Computes one step; returns how long it took. */
static double step(srv_infer *q, srv_job *const *members, size_t n)
{
    double begin = srv_now_s();

    for (size_t i = 0; i < n; i++) {
        if (!members[i]->begun)
            members[i]->queue_s = begin - members[i]->queued_s;
        members[i]->begun = true;
    }
    if (n == 1) {
        srv_job *job = members[0];
        job->status = srv_request_step(job->request, q->pool, &q->cancel, &job->after, &job->error);
    } else {
        bool computed = srv_batch_compute(&q->batch, q->pool, &q->cancel);
        for (size_t i = 0; i < n; i++) {
            members[i]->after = computed ? SRV_STEP_DONE : SRV_STEP_MORE;
            members[i]->alone = !computed;
        }
    }
    return srv_now_s() - begin;
}

/* The first piece of an answer is there. Its job is still in the step, so that nobody else ends it. */
static void start_answer(srv_infer *q, srv_job *job)
{
    (void)pthread_mutex_lock(&q->lock);
    bool starts = job->verdict == NONE && !job->answering;
    if (starts) {
        job->answering = true;
        job->deadline_ms = INT64_MAX;
        job->client_fd = -1;
    }
    (void)pthread_mutex_unlock(&q->lock);
    if (starts)
        job->started(job);
}

static void note_finished(srv_infer *q, const srv_job *job)
{
    q->mean_s += (job->pool_s - q->mean_s) / (q->mean_s > 0.0 ? MEAN_OF : 1);
}

/* What comes of the jobs of a step; returns those that are over. The lock is held. */
static srv_job *settle(srv_infer *q, srv_job *const *members, size_t n, double took)
{
    srv_job *over = NULL, **end = &over;

    q->even_share += took / (double)(q->ready + n);
    q->in_step = 0;
    q->stats.calls++;
    for (size_t i = 0; i < n; i++) {
        srv_job *job = members[i];
        bool finished = job->status == ATTN_OK && job->after == SRV_STEP_DONE;
        job->compute_s += took;
        job->pool_s += took / (double)n;
        job->turn += took / (double)n;
        if (job->status == ATTN_OK && !finished && job->verdict == NONE) {
            if (job->after == SRV_STEP_WAITS && !job->woken)
                job->state = AT_READER;
            else
                make_ready(q, job);
            continue;
        }
        take_out(q, job);
        if (finished) {
            note_finished(q, job);
            q->stats.shared += n > 1;
        } else if (job->verdict != NONE) {
            end_unfinished(q, job);
        }
        *end = job;
        end = &job->next;
    }
    return over;
}

static void *work(void *arg)
{
    srv_infer *q = arg;
    srv_job *members[SRV_BATCH_REQUESTS];

    attn_pool_pin_caller(q->pool);
    (void)pthread_mutex_lock(&q->lock);
    for (;;) {
        size_t n = choose(q, members);
        if (n == 0) {
            srv_batch_release(&q->batch);
            if (q->head == NULL && q->stopping)
                break;
            (void)pthread_cond_wait(&q->wake, &q->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&q->lock);
        double took = step(q, members, n);
        if (srv_request_answers(members[0]->request))
            start_answer(q, members[0]);
        (void)pthread_mutex_lock(&q->lock);
        srv_job *over = settle(q, members, n, took);
        bool keep = n > 1 && q->ready > 0;
        (void)pthread_mutex_unlock(&q->lock);
        if (!keep) /* before anybody is told, who may then ask for all of the budget */
            srv_batch_release(&q->batch);
        tell_owners(over);
        (void)pthread_mutex_lock(&q->lock);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* --- the watch thread ------------------------------------------------------------------------ */

/* A client that has closed its side is gone: nobody can see whether it still reads. The lock is held: poll()
 * only looks. */
static void look_for_clients(srv_infer *q)
{
    struct pollfd fds[CLIENTS];
    srv_job *jobs[CLIENTS];

    for (srv_job *job = q->head; job != NULL;) {
        nfds_t n = 0;
        for (; job != NULL && n < CLIENTS; job = job->next) {
            if (job->client_fd < 0 || job->verdict != NONE)
                continue;
            fds[n] = (struct pollfd){.fd = job->client_fd, .events = POLLRDHUP};
            jobs[n++] = job;
        }
        if (poll(fds, n, 0) <= 0)
            continue;
        for (nfds_t i = 0; i < n; i++) {
            if (fds[i].revents != 0)
                jobs[i]->verdict = GONE;
        }
    }
}

/* Finds what must end and tells the step to stop when nobody wants it any more; returns what is over
 * already. The lock is held. */
static srv_job *end_what_must(srv_infer *q)
{
    int64_t now = srv_now_ms();
    srv_job *over = NULL, **end = &over;
    size_t wanted = 0;

    for (srv_job *job = q->head, *next; job != NULL; job = next) {
        next = job->next;
        if (job->verdict == NONE && q->canceling)
            job->verdict = STOPPING;
        else if (job->verdict == NONE && now >= job->deadline_ms)
            job->verdict = LATE;
        if (job->state == IN_STEP) {
            wanted += job->verdict == NONE;
        } else if (job->verdict != NONE) {
            q->ready -= job->state == READY;
            take_out(q, job);
            end_unfinished(q, job);
            *end = job;
            end = &job->next;
        }
    }
    if (q->in_step > 0 && wanted == 0)
        atomic_store(&q->cancel, true);
    bool stuck = q->in_step > 0 ? wanted == 0 : q->ready > 0;
    if (!stuck)
        q->stuck_since_s = 0;
    else if (q->stuck_since_s == 0)
        q->stuck_since_s = srv_now_s();
    return over;
}

static void wait_for_tick(srv_infer *q)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    (void)pthread_cond_timedwait(&q->tick, &q->lock, &until);
}

static void *watch(void *arg)
{
    srv_infer *q = arg;

    (void)pthread_mutex_lock(&q->lock);
    while (q->head != NULL || !q->stopping) {
        look_for_clients(q);
        srv_job *over = end_what_must(q);
        if (over != NULL) {
            (void)pthread_mutex_unlock(&q->lock);
            tell_owners(over);
            (void)pthread_mutex_lock(&q->lock);
        } else if (q->head != NULL) {
            wait_for_tick(q);
        } else {
            (void)pthread_cond_wait(&q->tick, &q->lock);
        }
    }
    (void)pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* --- what others call ------------------------------------------------------------------------ */

attn_status srv_infer_start(srv_infer **out, attn_pool *pool, size_t max_requests, attn_error *err)
{
    srv_infer *q = calloc(1, sizeof *q);
    pthread_condattr_t monotonic;

    *out = NULL;
    if (q == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the queue");
    q->pool = pool;
    q->max_requests = max_requests;
    (void)pthread_mutex_init(&q->lock, NULL);
    (void)pthread_cond_init(&q->wake, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->tick, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
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

static attn_status full(const srv_infer *q, attn_error *err)
{
    return attn_fail(err, ATTN_EBUSY, "the queue is full: %zu requests wait", q->max_requests);
}

attn_status srv_infer_submit(srv_infer *q, srv_job *job, attn_error *err)
{
    (void)pthread_mutex_lock(&q->lock);
    if (q->ready >= q->max_requests) {
        (void)pthread_mutex_unlock(&q->lock);
        return full(q, err);
    }
    if (q->head == NULL)
        (void)pthread_cond_signal(&q->tick);
    job->next = NULL;
    job->prev = q->tail;
    *(q->tail != NULL ? &q->tail->next : &q->head) = job;
    q->tail = job;
    job->queued_s = srv_now_s();
    job->turn = q->even_share;
    make_ready(q, job);
    (void)pthread_mutex_unlock(&q->lock);
    return ATTN_OK;
}

attn_status srv_infer_has_room(srv_infer *q, attn_error *err)
{
    (void)pthread_mutex_lock(&q->lock);
    bool room = q->ready < q->max_requests;
    (void)pthread_mutex_unlock(&q->lock);
    return room ? ATTN_OK : full(q, err);
}

void srv_infer_wake(srv_infer *q, srv_job *job)
{
    (void)pthread_mutex_lock(&q->lock);
    if (job->state == IN_STEP) {
        job->woken = true;
    } else if (job->state == AT_READER) {
        if (job->turn < q->even_share) /* who was away does not save up turns */
            job->turn = q->even_share;
        make_ready(q, job);
    }
    (void)pthread_mutex_unlock(&q->lock);
}

void srv_infer_drop(srv_infer *q, srv_job *job)
{
    (void)pthread_mutex_lock(&q->lock);
    if (job->state != OVER && job->verdict == NONE) {
        job->verdict = GONE;
        (void)pthread_cond_signal(&q->tick);
    }
    (void)pthread_mutex_unlock(&q->lock);
}

void srv_infer_cancel(srv_infer *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->canceling = true;
    (void)pthread_cond_signal(&q->tick);
    (void)pthread_mutex_unlock(&q->lock);
}

void srv_infer_get_stats(srv_infer *q, srv_infer_stats *s)
{
    (void)pthread_mutex_lock(&q->lock);
    *s = q->stats;
    s->waiting = q->ready;
    s->running = q->in_step;
    (void)pthread_mutex_unlock(&q->lock);
}

double srv_infer_stuck_s(srv_infer *q)
{
    (void)pthread_mutex_lock(&q->lock);
    double since = q->stuck_since_s;
    (void)pthread_mutex_unlock(&q->lock);
    return since > 0 ? srv_now_s() - since : 0;
}

unsigned srv_infer_retry_after_s(srv_infer *q)
{
    (void)pthread_mutex_lock(&q->lock);
    double s = q->mean_s * (double)(q->ready + q->in_step);
    (void)pthread_mutex_unlock(&q->lock);
    return s >= MAX_RETRY_S ? MAX_RETRY_S : (unsigned)s + 1;
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
