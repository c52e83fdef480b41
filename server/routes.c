#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/decimal.h"
#include "core/nearest.h"
#include "server/answer.h"
#include "server/app.h"
#include "server/assets.h"
#include "server/clock.h"
#include "server/log.h"
#include "server/oip.h"
#include "server/stream.h"
#include "server/wire.h"

/* --- small answers ----------------------------------------------------------------------------- */

void srv_app_reply_json(srv_exchange *x, srv_json_writer *w)
{
    char *text = NULL;
    size_t used = 0, room = 0;

    if (w == NULL || srv_json_writer_status(w) != ATTN_OK)
        goto no_memory;
    for (;;) {
        if (room - used < 4096) {
            char *more = realloc(text, room + (room >> 1) + 8192);
            if (more == NULL)
                goto no_memory;
            text = more;
            room += (room >> 1) + 8192;
        }
        size_t n = srv_json_writer_read(w, text + used, room - used);
        if (n == 0)
            break;
        used += n;
    }
    srv_http_reply_text(x, 200, "application/json", text, used);
    free(text);
    srv_json_writer_free(w);
    return;
no_memory:
    free(text);
    srv_json_writer_free(w);
    attn_error err = {0};
    (void)attn_fail(&err, ATTN_ENOMEM, "no memory for the answer");
    srv_http_reply_problem(x, &err, NULL);
}

/* --- models ------------------------------------------------------------------------------------- */

bool srv_app_find(srv_exchange *x, size_t *i)
{
    const srv_app *app = srv_http_app(x);
    const char *name = srv_http_param(x, "model");
    size_t n = srv_models_count(app->models);

    *i = srv_models_find(app->models, name);
    if (*i != SIZE_MAX)
        return true;
    const char **names = calloc(n, sizeof *names);
    const char *near = NULL;
    for (size_t k = 0; k < n && names != NULL; k++)
        names[k] = srv_models_name(app->models, k);
    if (names != NULL)
        near = attn_nearest(name, names, n);
    attn_error err = {0};
    (void)attn_fail(&err, ATTN_ENOTFOUND, "there is no model \"%.64s\"%s%s%s", name,
                    near != NULL ? "; did you mean \"" : "; GET /v1/models lists them",
                    near != NULL ? near : "", near != NULL ? "\"?" : "");
    free(names);
    srv_http_reply_problem(x, &err, "model_not_found");
    return false;
}

/* Says why requests for a model cannot be answered now; returns the code. */
static const char *say_not_loaded(srv_models *m, size_t i, attn_error *err)
{
    bool loading = srv_models_state(m, i, NULL) == SRV_MODEL_LOADING;

    (void)attn_fail(err, ATTN_EBUSY, "model \"%s\" is %s", srv_models_name(m, i),
                    loading ? "being loaded" : "not loaded");
    return loading ? "loading" : "model_not_loaded";
}

const srv_served *srv_app_acquire(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    attn_error err = {0};
    size_t i = 0;

    if (!srv_app_find(x, &i))
        return NULL;
    const srv_served *served = srv_models_acquire(app->models, i);
    if (served == NULL) {
        const char *code = say_not_loaded(app->models, i, &err);
        srv_http_reply_problem(x, &err, code);
    }
    return served;
}

void srv_app_release(srv_exchange *x, const srv_served *served)
{
    srv_models_release(((srv_app *)srv_http_app(x))->models, served);
}

const char *srv_app_not_ready(srv_exchange *x, attn_error *err)
{
    const srv_app *app = srv_http_app(x);

    if (srv_http_draining(x)) {
        (void)attn_fail(err, ATTN_EBUSY, "the daemon is shutting down");
        return "draining";
    }
    for (size_t i = 0; i < srv_models_count(app->models); i++) {
        if (srv_models_state(app->models, i, NULL) != SRV_MODEL_READY)
            return say_not_loaded(app->models, i, err);
    }
    return NULL;
}

static void write_float(srv_json_writer *w, float value)
{
    char text[ATTN_F32_CHARS];
    srv_json_writer_raw(w, text, attn_f32_print(text, value));
}

static void write_layer(srv_json_writer *w, const attn_model *m, size_t i)
{
    const attn_layer_spec *s = attn_layer_get_spec(attn_model_layer(m, i));

    srv_json_writer_format(w, "{\"layer\":%zu,\"source\":", i);
    srv_json_writer_string(w, attn_model_layer_source(m, i));
    srv_json_writer_format(
        w,
        ",\"d_model\":%zu,\"num_heads\":%zu,\"num_kv_heads\":%zu,\"head_dim\":%zu,"
        "\"v_head_dim\":%zu,\"d_out\":%zu,\"scale\":",
        s->d_model, s->num_heads, s->num_kv_heads, s->head_dim, s->v_head_dim, s->d_out);
    write_float(w, s->scale);
    srv_json_writer_format(
        w, ",\"is_causal\":%s,\"window\":{\"left\":%lld,\"right\":%lld},\"softcap\":",
        s->is_causal ? "true" : "false", (long long)s->window.left, (long long)s->window.right);
    write_float(w, s->softcap);
    bool cross = s->cross || s->d_kv != s->d_model;
    srv_json_writer_format(w, ",\"position\":\"%s\",\"cross\":%s,\"d_kv\":%zu}",
                           attn_model_layer_position(m, i), cross ? "true" : "false", s->d_kv);
}

static void write_model(srv_json_writer *w, const attn_model *m)
{
    srv_json_writer_raw(w, "{\"name\":", 8);
    srv_json_writer_string(w, attn_model_name(m));
    srv_json_writer_raw(w, ",\"family\":", 10);
    srv_json_writer_string(w, attn_model_family(m));
    srv_json_writer_format(w, ",\"weights_bytes\":%zu,\"layers\":[", attn_model_weights_bytes(m));
    for (size_t i = 0; i < attn_model_layer_count(m); i++) {
        if (i != 0)
            srv_json_writer_raw(w, ",", 1);
        write_layer(w, m, i);
    }
    srv_json_writer_raw(w, "]}", 2);
}

static void get_models(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    srv_json_writer *w = srv_json_writer_new();

    if (w != NULL) {
        bool first = true;
        srv_json_writer_raw(w, "{\"models\":[", 11);
        for (size_t i = 0; i < srv_models_count(app->models); i++) {
            const srv_served *served = srv_models_acquire(app->models, i);
            if (served == NULL)
                continue;
            if (!first)
                srv_json_writer_raw(w, ",", 1);
            first = false;
            write_model(w, served->model);
            srv_models_release(app->models, served);
        }
        srv_json_writer_raw(w, "]}", 2);
    }
    srv_app_reply_json(x, w);
}

static void get_model(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL)
        write_model(w, served->model);
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

static void get_examples(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    srv_json_writer *w = srv_json_writer_new();
    if (w != NULL) {
        srv_json_writer_raw(w, "{\"examples\":[", 13);
        for (size_t i = 0; i < srv_examples_count(served->examples); i++) {
            if (i != 0)
                srv_json_writer_raw(w, ",", 1);
            srv_json_writer_string(w, srv_examples_name(served->examples, i));
        }
        srv_json_writer_raw(w, "]}", 2);
    }
    srv_app_release(x, served);
    srv_app_reply_json(x, w);
}

static void reply_example(srv_exchange *x, const srv_served *served)
{
    const char *name = srv_http_param(x, "name");
    attn_error err = {0};

    for (size_t i = 0; i < srv_examples_count(served->examples); i++) {
        if (strcmp(srv_examples_name(served->examples, i), name) == 0) {
            size_t n = 0;
            const char *body = srv_examples_body(served->examples, i, &n);
            srv_http_reply_text(x, 200, "application/json", body, n);
            return;
        }
    }
    (void)attn_fail(&err, ATTN_ENOTFOUND, "model \"%s\" has no example \"%.64s\"",
                    attn_model_name(served->model), name);
    srv_http_reply_problem(x, &err, "example_not_found");
}

static void get_example(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);

    if (served == NULL)
        return;
    reply_example(x, served);
    srv_app_release(x, served);
}

static void get_live(srv_exchange *x)
{
    static const char text[] = "{\"status\":\"live\"}";
    srv_http_reply_text(x, 200, "application/json", text, sizeof text - 1);
}

static void get_ready(srv_exchange *x)
{
    static const char text[] = "{\"status\":\"ready\"}";
    attn_error err = {0};
    const char *code = srv_app_not_ready(x, &err);

    if (code == NULL)
        srv_http_reply_text(x, 200, "application/json", text, sizeof text - 1);
    else
        srv_http_reply_problem(x, &err, code);
}

static void get_metrics(srv_exchange *x)
{
    const srv_app *app = srv_http_app(x);
    srv_infer_stats queue;
    attn_error err = {0};
    size_t n = 0;

    srv_infer_get_stats(app->infer, &queue);
    const srv_models_figures models = srv_models_get_figures(app->models);
    const srv_metrics_now now = {.ready = srv_app_not_ready(x, NULL) == NULL,
                                 .waiting = queue.waiting,
                                 .running = queue.running,
                                 .models = models.ready,
                                 .weights_bytes = models.weights_bytes,
                                 .reloads = models.loads,
                                 .failed_reloads = models.fails,
                                 .lost_log_lines = srv_log_lost()};
    char *text = srv_metrics_print(app->metrics, &now, &n);
    if (text != NULL) {
        srv_http_reply_text(x, 200, SRV_METRICS_TYPE, text, n);
    } else {
        (void)attn_fail(&err, ATTN_ENOMEM, "no memory for the metrics");
        srv_http_reply_problem(x, &err, NULL);
    }
    free(text);
}

/* --- attention --------------------------------------------------------------------------------- */

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
 * which is NULL for SRV_SDPA. */
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

unsigned srv_app_retry_after_s(void *app)
{
    return srv_infer_retry_after_s(((srv_app *)app)->infer);
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

static void begin_call_take(srv_exchange *x, srv_request_kind kind, const srv_served *served)
{
    attn_error err = {0};
    call *c = new_call_take(x, kind, served);

    if (c != NULL && srv_wire_open(&c->wire, x, c->job.request, &err) != ATTN_OK)
        srv_http_reply_problem(x, &err, NULL);
}

static void begin_attention(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);
    if (served == NULL)
        return;
    if (has_room(x))
        begin_call_take(x, SRV_ATTENTION, served);
    else
        srv_app_release(x, served);
}

static void begin_estimate(srv_exchange *x)
{
    const srv_served *served = srv_app_acquire(x);
    if (served != NULL)
        begin_call_take(x, SRV_ESTIMATE, served);
}

static void begin_sdpa(srv_exchange *x)
{
    if (has_room(x))
        begin_call_take(x, SRV_SDPA, NULL);
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

    if (c->served == NULL || r == NULL || r->kind != SRV_ATTENTION)
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

static const srv_route api_routes[] = {
    {.method = "GET", .path = "/health/live", .quiet = true, .open = true, .finish = get_live},
    {.method = "GET", .path = "/health/ready", .quiet = true, .open = true, .finish = get_ready},
    {.method = "GET", .path = "/v1/models", .finish = get_models},
    {.method = "GET", .path = "/v1/models/{model}", .finish = get_model},
    {.method = "GET", .path = "/v1/models/{model}/examples", .finish = get_examples},
    {.method = "GET", .path = "/v1/models/{model}/examples/{name}", .finish = get_example},
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
};

static const srv_route metrics_routes[] = {
    {.method = "GET", .path = "/metrics", .quiet = true, .finish = get_metrics},
};

static void add_routes(srv_route_table *t, const srv_route *routes, size_t n, bool open)
{
    assert(n <= SRV_MAX_ROUTES - t->n);
    memcpy(t->routes + t->n, routes, n * sizeof *routes);
    for (size_t i = 0; i < n && open; i++)
        t->routes[t->n + i].open = true;
    t->n += n;
}

void srv_routes(srv_route_table *t, srv_parts parts)
{
    t->n = 0;
    add_routes(t, api_routes, sizeof api_routes / sizeof *api_routes, false);
    add_routes(t, srv_oip_routes, srv_num_oip_routes, false);
    add_routes(t, srv_repository_routes, srv_num_repository_routes, false);
    if (parts.metrics)
        add_routes(t, metrics_routes, sizeof metrics_routes / sizeof *metrics_routes,
                   parts.open_metrics);
    if (parts.docs)
        add_routes(t, srv_docs_routes, srv_num_docs_routes, true);
    if (parts.ui)
        add_routes(t, srv_ui_routes, srv_num_ui_routes, true);
}
