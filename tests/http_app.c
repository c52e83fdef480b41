#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/http_app.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    size_t received;        /* of the body */
    size_t wanted, written; /* of a stream */
    unsigned sleep_ms;
} visit;

static void begin(srv_exchange *x)
{
    http_app *a = srv_http_app(x);
    visit *v = calloc(1, sizeof *v);
    assert_non_null(v);
    srv_http_set_user(x, v);
    atomic_fetch_add(&a->begun, 1);
}

static void end(srv_exchange *x)
{
    http_app *a = srv_http_app(x);
    free(srv_http_user(x));
    atomic_fetch_add(&a->ended, 1);
}

static attn_status take(srv_exchange *x, const char *bytes, size_t n, attn_error *err)
{
    http_app *a = srv_http_app(x);
    visit *v = srv_http_user(x);
    (void)bytes;
    (void)err;
    v->received += n;
    atomic_fetch_add(&a->bytes, n);
    return ATTN_OK;
}

static attn_status take_little(srv_exchange *x, const char *bytes, size_t n, attn_error *err)
{
    visit *v = srv_http_user(x);
    ATTN_TRY(take(x, bytes, n, err));
    if (v->received > 100)
        return attn_fail_at(err, ATTN_EINVAL, "/a/100", "byte 100 is \"%c\"", bytes[0]);
    return ATTN_OK;
}

static void say(srv_exchange *x, const char *text)
{
    srv_http_reply_text(x, 200, "text/plain", text, strlen(text));
}

static void root(srv_exchange *x)
{
    say(x, "root");
}

static void echo(srv_exchange *x)
{
    srv_http_set_header(x, "X-Extra", "1");
    say(x, srv_http_param(x, "name"));
}

static void get_both(srv_exchange *x)
{
    say(x, "get");
}

static void post_both(srv_exchange *x)
{
    say(x, "post");
}

static void say_count(srv_exchange *x)
{
    char text[32];
    visit *v = srv_http_user(x);
    (void)snprintf(text, sizeof text, "%zu", v->received);
    say(x, text);
}

static ssize_t alphabet(void *arg, char *out, size_t n)
{
    visit *v = arg;
    size_t left = v->wanted - v->written;
    n = n < left ? n : left;
    for (size_t i = 0; i < n; i++)
        out[i] = (char)('a' + (v->written + i) % 26);
    v->written += n;
    return (ssize_t)n;
}

static void stream(srv_exchange *x)
{
    visit *v = srv_http_user(x);
    v->wanted = strtoul(srv_http_param(x, "bytes"), NULL, 10);
    srv_http_reply_stream(x, 200, "text/plain", alphabet, v);
}

static void *work_thread(void *arg)
{
    srv_exchange *x = arg;
    http_app *a = srv_http_app(x);
    visit *v = srv_http_user(x);
    (void)usleep(v->sleep_ms * 1000);
    v->wanted = 100000;
    srv_http_log_compute(x, 0.001, 0.25, 2, 7);
    if (v->sleep_ms % 2 == 0)
        srv_http_reply_stream(x, 200, "text/plain", alphabet, v);
    else
        say(x, "worked");
    srv_http_resume(x);
    atomic_fetch_sub(&a->threads, 1);
    return NULL;
}

static void work(srv_exchange *x)
{
    http_app *a = srv_http_app(x);
    visit *v = srv_http_user(x);
    pthread_t thread;
    const char *ms = srv_http_param(x, "ms");
    ms = ms != NULL ? ms : srv_http_header(x, "X-Sleep-Ms");
    v->sleep_ms = ms != NULL ? (unsigned)strtoul(ms, NULL, 10) : 1;
    atomic_fetch_add(&a->threads, 1);
    srv_http_suspend(x);
    if (pthread_create(&thread, NULL, work_thread, x) != 0)
        abort();
    (void)pthread_detach(thread);
}

static void silent(srv_exchange *x)
{
    (void)x;
}

static void refuse(srv_exchange *x)
{
    attn_error err = {0};
    begin(x);
    (void)attn_fail(&err, ATTN_ENOTFOUND, "no model \"%s\"", srv_http_param(x, "x"));
    srv_http_reply_problem(x, &err, "model_not_found");
}

static void fail_by_name(srv_exchange *x)
{
    attn_error err = {0};
    const char *name = srv_http_param(x, "code");
    for (int code = 0; code < ATTN_STATUS_COUNT; code++) {
        if (strcmp(attn_status_name((attn_status)code), name) == 0)
            (void)attn_fail_at(&err, (attn_status)code, "/pointer/\"", "failed with %s", name);
    }
    err.needed = 4096;
    err.limit = 1024;
    srv_http_reply_problem(x, &err, NULL);
}

#define GET(path_, finish_)                                                                        \
    {                                                                                              \
        .method = "GET", .path = (path_), .begin = begin, .finish = (finish_), .end = end          \
    }
#define POST(path_, begin_, data_, finish_)                                                        \
    {                                                                                              \
        .method = "POST", .path = (path_), .body = true, .begin = (begin_), .data = (data_),       \
        .finish = (finish_), .end = end                                                            \
    }

static const srv_route routes[] = {
    GET("/", root),
    GET("/echo/{name}", echo),
    GET("/both", get_both),
    POST("/both", begin, take, post_both),
    GET("/stream/{bytes}", stream),
    GET("/wait/{ms}", work),
    GET("/silent", silent),
    GET("/fail/{code}", fail_by_name),
    {.method = "GET", .path = "/quiet", .quiet = true, .finish = root},
    POST("/count", begin, take, say_count),
    POST("/refuse", begin, take_little, say_count),
    POST("/nobody/{x}", refuse, take, say_count),
    POST("/work", begin, take, work),
};

static void observe(void *app, const srv_outcome *outcome)
{
    http_app *a = app;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    assert_non_null(outcome->method);
    assert_true(outcome->seconds >= 0);
    (void)pthread_mutex_lock(&lock);
    (void)snprintf(a->last_route, sizeof a->last_route, "%s",
                   outcome->route != NULL ? outcome->route->path : SRV_NO_ROUTE);
    (void)pthread_mutex_unlock(&lock);
    atomic_store(&a->last_status, outcome->status);
    atomic_fetch_add(&a->observed, 1);
}

void http_app_start(http_app *a, http_app_options o)
{
    attn_error err = {0};
    memset(a, 0, sizeof *a);
    srv_http_options options = {
        .listen = (const char *const[]){o.listen != NULL ? o.listen : "127.0.0.1:0", o.also_listen},
        .num_listen = o.also_listen != NULL ? 2 : 1,
        .io_threads = o.io_threads != 0 ? o.io_threads : 2,
        .max_connections = o.max_connections != 0 ? o.max_connections : 1024,
        .max_body_bytes = o.max_body_bytes != 0 ? o.max_body_bytes : 1 << 20,
        .header_timeout_ms = o.header_timeout_ms != 0 ? o.header_timeout_ms : 10000,
        .request_timeout_ms = o.request_timeout_ms != 0 ? o.request_timeout_ms : 60000,
        .access = o.access,
        .routes = routes,
        .num_routes = sizeof routes / sizeof routes[0],
        .app = a,
        .observe = observe};
    if (srv_http_start(&a->http, &options, &err) != ATTN_OK)
        fail_msg("%s", err.text);
    a->url = srv_http_url(a->http, 0);
}

void http_app_settle(const http_app *a)
{
    for (int i = 0; i < 2000 && srv_http_active(a->http) > 0; i++)
        (void)usleep(1000);
    assert_int_equal(srv_http_active(a->http), 0);
}

size_t http_app_stop(http_app *a, int64_t timeout_ms)
{
    size_t left = srv_http_stop(a->http, timeout_ms);
    srv_http_free(a->http);
    a->http = NULL;
    while (atomic_load(&a->threads) > 0)
        (void)usleep(1000);
    assert_int_equal(a->begun, a->ended);
    return left;
}
