/* A POST under way: from its header to the end of its answer. */
#include "server/call.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/answer.h"
#include "server/clock.h"
#include "server/log.h"
#include "server/oip.h"
#include "server/stream.h"
#include "server/wire.h"

/* One POST under way. It belongs to the exchange and, while it is in the queue, to the queue as well: a client may
 * leave in the middle of an answer that is still computed. The last of them frees it. */
typedef struct {
    srv_job job;
    srv_app *app;
    const srv_served *served; /* held; NULL: no model */
    srv_wire wire;            /* of all others */
    srv_oip *oip;             /* the Open Inference Protocol is spoken; NULL = it is not */
    srv_json_writer *answer;  /* when it is not streamed */
    double logged_s;          /* of computing */
    bool answered;            /* all is computed, and was or can be sent */

    pthread_mutex_t lock; /* guards all below; no other lock is held when it is taken */
    srv_exchange *x;      /* NULL: the exchange is over */
    bool queued;
    bool started; /* the reply of a streamed answer */
} call;

static void free_call(call *c)
{
    srv_wire_deinit(&c->wire);
    srv_json_writer_free(c->answer);
    srv_oip_free(c->oip);
    srv_request_free(c->job.request);
    srv_models_release(c->app->models, c->served);
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
}

/* A call with an empty request, NULL after the reply that says why there is none. It takes `served`, on failure too,
 * which is NULL where the path names no model. */
static call *new_call_take(srv_exchange *x, srv_request_kind kind, const srv_served *served)
{
    srv_app *app = srv_http_app(x);
    attn_error err = {0};
    call *c = calloc(1, sizeof *c);

    if (c == NULL) {
        srv_models_release(app->models, served);
        (void)attn_fail(&err, ATTN_ENOMEM, "no memory for a request");
        srv_http_reply_problem(x, &err, NULL);
        return NULL;
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    c->app = app;
    c->served = served;
    c->x = x;
    c->job.owner = c;
    srv_http_set_user(x, c);
    if (srv_request_new(&c->job.request, kind, served != NULL ? served->model : NULL, &app->budget,
                        &err) == ATTN_OK)
        return c;
    srv_http_reply_problem(x, &err, NULL);
    return NULL;
}

/* A full queue is said before the body is read: reading it would only keep others waiting. */
static bool has_room(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};

    if (srv_infer_has_room(app->infer, &err) == ATTN_OK)
        return true;
    srv_http_reply_problem(x, &err, "queue_full");
    return false;
}

/* NULL after a reply, as before. */
static call *begin_call_take(srv_exchange *x, srv_request_kind kind, const srv_served *served)
{
    attn_error err = {0};
    call *c = new_call_take(x, kind, served);

    if (c == NULL || srv_wire_open(&c->wire, x, c->job.request, &err) == ATTN_OK)
        return c;
    srv_http_reply_problem(x, &err, NULL);
    return NULL;
}

static void begin_attention(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);
    if (served == NULL)
        return;
    if (has_room(x))
        (void)begin_call_take(x, SRV_ATTENTION, served);
    else
        srv_app_release(x, served);
}

static void begin_estimate(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);
    if (served != NULL)
        (void)begin_call_take(x, SRV_ESTIMATE, served);
}

static void begin_sdpa(srv_exchange *x)
{
    if (has_room(x))
        (void)begin_call_take(x, SRV_SDPA, NULL);
}

static void begin_infer(srv_exchange *x)
{
    const srv_served *served = srv_oip_acquire(x);
    srv_oip_body body;
    attn_error err = {0};

    if (served == NULL)
        return;
    if (!has_room(x)) {
        srv_app_release(x, served);
        return;
    }
    call *c = new_call_take(x, SRV_ATTENTION, served);
    if (c != NULL && (srv_oip_read_fields(x, &body, &err) != ATTN_OK ||
                      srv_oip_new(&c->oip, c->job.request, &body, &err) != ATTN_OK))
        srv_http_reply_problem(x, &err, NULL);
}

/* --- whole encoders ------------------------------------------------------------------------------ */

static void set_model(srv_request *r, const srv_served *served)
{
    r->model = served->model;
    r->tokenizer = served->tokenizer;
    r->no_tokenizer = &served->no_tokenizer;
}

static void begin_encode(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    if (!has_room(x)) {
        srv_app_release(x, served);
        return;
    }
    call *c = begin_call_take(x, SRV_ENCODE, served);
    if (c != NULL)
        set_model(c->job.request, served);
}

/* A body that names none means the first model that takes texts, loaded or not: never another one's embeddings. */
static attn_status choose_model(srv_request *r, const char *name, attn_error *err)
{
    call *c = r->choose_arg;
    size_t i = srv_models_first_of_texts(c->app->models);

    if (name != NULL)
        ATTN_TRY(srv_app_find_named(c->app, name, &i, err));
    else if (i == SIZE_MAX)
        return attn_fail(err, ATTN_ENOTFOUND, "no model here is an encoder of texts");
    c->served = srv_models_acquire(c->app->models, i);
    if (c->served == NULL)
        return attn_fail(err, ATTN_EBUSY, "model \"%s\" is not loaded",
                         srv_models_name(c->app->models, i));
    set_model(r, c->served);
    return ATTN_OK;
}

/* The model is named in the body, if at all. */
static void begin_texts(srv_exchange *x, srv_request_kind kind)
{
    if (!has_room(x))
        return;
    call *c = begin_call_take(x, kind, NULL);
    if (c == NULL)
        return;
    c->job.request->choose_model = choose_model;
    c->job.request->choose_arg = c;
}

static void begin_embeddings(srv_exchange *x)
{
    begin_texts(x, SRV_EMBEDDINGS);
}

static void begin_embed(srv_exchange *x)
{
    begin_texts(x, SRV_EMBED);
}

/* --- all of them ---------------------------------------------------------------------------------- */

static attn_status call_data(srv_exchange *x, const char *bytes, size_t n, attn_error *err)
{
    call *c = srv_http_user(x);
    if (c->oip != NULL)
        return srv_oip_feed(c->oip, bytes, n, err);
    return srv_request_feed(c->job.request, bytes, n, err);
}

static ssize_t read_answer(void *arg, char *out, size_t n)
{
    return (ssize_t)srv_json_writer_read(arg, out, n);
}

/* By the thread that has the exchange. */
static void log_compute(call *c)
{
    const srv_request *r = c->job.request;

    srv_http_log_compute(c->x, c->job.queue_s, c->job.compute_s, r->batch, r->tokens);
    c->logged_s = c->job.compute_s;
}

static void count_computed(call *c)
{
    const srv_request *r = c->job.request;

    c->answered = true;
    srv_metrics_computed(c->app->metrics, r->batch, r->tokens, r->plan.micro_batches);
}

static ssize_t read_pieces(void *arg, char *out, size_t n)
{
    call *c = arg;
    bool took = false;
    ssize_t got = srv_stream_read(c->job.request->stream, out, n, &took);

    if (took)
        srv_infer_wake(c->app->infer, &c->job);
    if (got == 0) /* it is all computed: what came since the reply began */
        srv_http_add_stage(c->x, SRV_STAGE_COMPUTE, c->job.compute_s - c->logged_s);
    return got;
}

static void reply_with(call *c, srv_reader *read, void *arg, uint64_t length)
{
    if (c->oip != NULL)
        srv_oip_reply(c->oip, c->x, read, arg, length);
    else
        srv_wire_reply(&c->wire, c->x, c->job.request, read, arg, length);
}

static void reply_failure(call *c)
{
    if (c->oip != NULL)
        srv_oip_translate(&c->job.error);
    srv_http_reply_problem(c->x, &c->job.error, NULL);
}

/* On the compute thread, as all that follows: the reply may begin; the lock is held. */
static void start_reply(call *c)
{
    c->started = true;
    log_compute(c); /* so far */
    reply_with(c, read_pieces, c, UINT64_MAX);
    srv_http_resume(c->x);
}

static void call_started(srv_job *job)
{
    call *c = job->owner;

    (void)pthread_mutex_lock(&c->lock);
    start_reply(c); /* the exchange is suspended: it is there */
    (void)pthread_mutex_unlock(&c->lock);
}

static void call_piece(void *arg)
{
    call *c = arg;

    (void)pthread_mutex_lock(&c->lock);
    if (c->x != NULL && c->started)
        srv_http_wake(c->x);
    (void)pthread_mutex_unlock(&c->lock);
}

/* A streamed answer is complete, or will never be. */
static void end_pieces(call *c)
{
    srv_job *job = &c->job;
    bool ok = job->status == ATTN_OK;

    srv_stream_end(job->request->stream, ok);
    if (ok)
        count_computed(c);
    if (!c->started && ok) { /* there is nothing in it but the usage */
        start_reply(c);
    } else if (!c->started) {
        log_compute(c);
        reply_failure(c);
        srv_http_resume(c->x);
    } else {
        if (!ok) {
            srv_metrics_broken(c->app->metrics);
            srv_log(SRV_LOG_WARN, "answer", "an answer was broken off",
                    (const srv_log_field[]){SRV_STR("request_id", srv_http_request_id(c->x)),
                                            SRV_STR("code", attn_status_name(job->error.code)),
                                            SRV_STR("reason", job->error.text)},
                    3);
        }
        srv_http_wake(c->x);
    }
}

/* All results are there, or none will be. */
static void reply_whole(call *c)
{
    srv_job *job = &c->job;

    if (job->status == ATTN_OK) {
        c->answer = srv_answer(job->request);
        if (c->answer == NULL)
            job->status = attn_fail(&job->error, ATTN_ENOMEM, "no memory for the answer");
    }
    log_compute(c);
    srv_request_drop_inputs(job->request);
    if (job->status == ATTN_OK) {
        count_computed(c);
        reply_with(c, read_answer, c->answer, srv_json_writer_length(c->answer));
    } else {
        reply_failure(c);
    }
    srv_http_resume(c->x);
}

static void call_done(srv_job *job)
{
    call *c = job->owner;
    const srv_request *r = job->request;

    (void)pthread_mutex_lock(&c->lock);
    c->queued = false;
    bool over = c->x == NULL;
    if (!over) {
        if (r->stream == NULL)
            reply_whole(c);
        else
            end_pieces(c);
    }
    if (!over && r->stream != NULL)
        srv_request_drop_inputs(job->request);
    (void)pthread_mutex_unlock(&c->lock);
    if (over)
        free_call(c);
}

static void finish_call(srv_exchange *x)
{
    srv_app *app = srv_http_app(x);
    call *c = srv_http_user(x);
    srv_request *r = c->job.request;
    attn_error err = {0};
    double begin = srv_now_s();
    attn_status rc = c->oip != NULL ? srv_oip_parse(c->oip, app->workers, &err)
                                    : srv_request_parse(r, app->workers, &err);

    srv_http_add_stage(x, SRV_STAGE_PARSE, srv_now_s() - begin);
    if (rc != ATTN_OK) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    if (r->kind == SRV_ESTIMATE) {
        srv_app_reply_json(x, srv_answer_estimate(r));
        return;
    }
    if (srv_request_admit(r, &err) != ATTN_OK ||
        (c->oip == NULL && srv_wire_admit(&c->wire, r, &err) != ATTN_OK)) {
        srv_http_reply_problem(x, &err, NULL);
        return;
    }
    int64_t timeout = r->timeout_ms > 0 ? r->timeout_ms : app->request_timeout_ms;
    c->job.deadline_ms = srv_http_started_ms(x) + (timeout < INT32_MAX ? timeout : INT32_MAX);
    c->job.client_fd = srv_http_socket(x);
    c->job.started = call_started;
    c->job.done = call_done;
    c->queued = true;
    if (r->stream != NULL)
        srv_stream_listen(r->stream, call_piece, c);
    srv_http_suspend(x); /* before the work can end */
    if (srv_infer_submit(app->infer, &c->job, &err) != ATTN_OK) {
        c->queued = false;
        srv_http_reply_problem(x, &err, "queue_full");
        srv_http_resume(x);
    }
}

/* The lock is held. */
static void count_for_model(const call *c)
{
    const srv_request *r = c->job.request;

    if (c->served == NULL || r == NULL || r->kind == SRV_ESTIMATE)
        return;
    const srv_model_outcome o = {.ok = c->answered,
                                 .batch = r->batch,
                                 .executions = r->plan.streamed ? 1 : r->plan.micro_batches,
                                 .total_s = srv_now_s() - (double)srv_http_started_ms(c->x) / 1000,
                                 .queue_s = srv_http_stage_s(c->x, SRV_STAGE_QUEUE),
                                 .input_s = srv_http_stage_s(c->x, SRV_STAGE_PARSE),
                                 .infer_s = srv_http_stage_s(c->x, SRV_STAGE_COMPUTE),
                                 .output_s = srv_http_stage_s(c->x, SRV_STAGE_SERIALIZE)};
    srv_model_stats_add(c->served->stats, &o);
}

static void end_call(srv_exchange *x)
{
    call *c = srv_http_user(x);

    if (c == NULL)
        return;
    (void)pthread_mutex_lock(&c->lock);
    count_for_model(c);
    c->x = NULL;
    bool queued = c->queued;
    if (queued) /* call_done() frees it, soon */
        srv_infer_drop(c->app->infer, &c->job);
    (void)pthread_mutex_unlock(&c->lock);
    if (!queued)
        free_call(c);
}

/* --- the table --------------------------------------------------------------------------------- */

#define BODY(begin_, media_)                                                                       \
    .body = true, .media = &(media_), .begin = begin_, .data = call_data, .finish = finish_call,   \
    .end = end_call

const srv_route srv_call_routes[] = {
    {.method = "POST",
     .path = "/v1/models/{model}/attention",
     BODY(begin_attention, srv_attention_media)},
    {.method = "POST",
     .path = "/v1/models/{model}/attention/estimate",
     BODY(begin_estimate, srv_estimate_media)},
    {.method = "POST",
     .path = "/v1/scaled-dot-product-attention",
     BODY(begin_sdpa, srv_sdpa_media)},
    {.method = "POST", .path = "/v2/models/{model}/infer", BODY(begin_infer, srv_oip_media)},
    {.method = "POST",
     .path = "/v2/models/{model}/versions/{version}/infer",
     BODY(begin_infer, srv_oip_media)},
    {.method = "POST", .path = "/v1/models/{model}/encode", BODY(begin_encode, srv_json_media)},
    {.method = "POST", .path = "/v1/embeddings", BODY(begin_embeddings, srv_json_media)},
    {.method = "POST", .path = "/embed", BODY(begin_embed, srv_json_media)},
};
const size_t srv_num_call_routes = sizeof srv_call_routes / sizeof *srv_call_routes;
