#include "server/http_private.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <microhttpd.h>

#include "server/log.h"
#include "server/tls.h"

#if MHD_VERSION >= 0x00097002
typedef enum MHD_Result mhd_result;
#else
typedef int mhd_result;
#endif

enum {
    DISCARD_BYTES = 64 * 1024 * 1024, /* read past the limit, so that the client sees the answer */
    STRANGER_BYTES = 64 * 1024,       /* the same, without a key */
    IDLE_TIMEOUT_MS = 60000,
    CONNECTION_BYTES =
        128 * 1024, /* the library's memory for one: header, upload and reply block */
    STREAM_BLOCK_BYTES = 64 * 1024,
    /* The library's own limit of connections, never reached: http_conn.c counts, and in 0.9.75 the
     * path behind that limit leaves a mutex locked. */
    LIBRARY_CONNECTIONS = 1 << 20
};

struct srv_http {
    srv_http_options o;
    srv_listeners listeners; /* opened here, then the connections' */
    srv_conns *conns;
    struct MHD_Daemon *plain, *tls; /* NULL: no listener needs it */
    atomic_bool draining;           /* every answer closes its connection */
    bool quiesced;                  /* by the thread that stops */

    uint64_t discard_limit; /* of the bytes of a body: so many are read whatever the answer is */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t fewer; /* active or at_work went down; CLOCK_MONOTONIC */
    size_t active;        /* exchanges whose header is complete */
    size_t at_work;       /* of those: in a route's finish(), or suspended */
    bool stopping;        /* no more finish() */
};

/* --- exchanges --- */

static void free_exchange(srv_exchange *x)
{
    free(x->target);
    free(x->decoded);
    free(x->header);
    free(x->reply.text);
    free(x);
}

/* The library calls this with the target as it came, before it decodes it and cuts it at a %00. */
static void *on_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    srv_conn *conn = info != NULL ? info->socket_context : NULL;
    srv_exchange *x = calloc(1, sizeof *x);
    if (x == NULL || conn == NULL) {
        free(x);
        return NULL;
    }
    const char *target = uri != NULL ? uri : "";
    x->http = cls;
    x->conn = conn;
    x->mhd = mhd;
    x->started_s = srv_now_s();
    x->target = strdup(target);
    x->decoded = malloc(strlen(target) + 1);
    if (x->target == NULL || x->decoded == NULL) {
        free_exchange(x);
        return NULL;
    }
    srv_conn_line(conn);
    return x;
}

static mhd_result collect_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    srv_exchange *x = cls;
    (void)kind;
    x->header[x->num_headers++] = (srv_header){name, value != NULL ? value : ""};
    return MHD_YES;
}

static bool collect_headers(srv_exchange *x)
{
    int n = MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, NULL, NULL);
    x->header = calloc(n > 0 ? (size_t)n : 1, sizeof *x->header);
    if (x->header == NULL)
        return false;
    (void)MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, collect_header, x);
    return true;
}

/* Nothing to send yet: suspends the connection, unless it was woken since `wakes` was read: then the reader is
 * asked again. */
typedef enum { SUSPENDED, ASK_AGAIN, STOPPING } wait_result;

static wait_result wait_for_more(srv_exchange *x, uint64_t wakes)
{
    srv_http *h = x->http;
    wait_result result = SUSPENDED;

    (void)pthread_mutex_lock(&h->lock);
    if (h->stopping) { /* the library cannot be stopped while a connection is suspended */
        result = STOPPING;
    } else if (x->wakes != wakes) {
        result = ASK_AGAIN;
    } else {
        x->waiting = true;
        h->at_work++;
        MHD_suspend_connection(x->mhd);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return result;
}

static ssize_t read_stream(void *cls, uint64_t position, char *out, size_t n)
{
    srv_exchange *x = cls;
    (void)position;
    for (;;) {
        (void)pthread_mutex_lock(&x->http->lock);
        uint64_t wakes = x->wakes;
        (void)pthread_mutex_unlock(&x->http->lock);
        double begin = srv_now_s();
        ssize_t got = x->reply.read(x->reply.arg, out, n);
        srv_http_add_stage(x, SRV_STAGE_SERIALIZE, srv_now_s() - begin);
        srv_conn_answer(x->conn, got == SRV_READ_LATER);
        if (got > 0) {
            x->bytes_out += (uint64_t)got;
            return got;
        }
        if (got == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        wait_result wait = got == SRV_READ_LATER ? wait_for_more(x, wakes) : STOPPING;
        if (wait == SUSPENDED)
            return 0;
        if (wait == STOPPING) {
            x->failed = true;
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    }
}

/* A HEAD asks how long the stream is. Asked to send a stream of unknown length, the library would
 * end it with a last chunk after HEAD, too, which no client expects there. */
static uint64_t stream_length(srv_exchange *x)
{
    char block[4096];
    uint64_t total = 0;
    ssize_t n;
    while ((n = x->reply.read(x->reply.arg, block, sizeof block)) > 0)
        total += (uint64_t)n;
    return total;
}

static struct MHD_Response *make_response(srv_exchange *x)
{
    srv_reply *r = &x->reply;
    bool head = strcmp(x->method, "HEAD") == 0;
    if (r->read != NULL)
        return MHD_create_response_from_callback(head       ? stream_length(x)
                                                 : r->sized ? r->length
                                                            : MHD_SIZE_UNKNOWN,
                                                 STREAM_BLOCK_BYTES, read_stream, x, NULL);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(r->n, r->text, MHD_RESPMEM_MUST_FREE);
    if (response != NULL) {
        r->text = NULL; /* the library's from here on */
        x->bytes_out = head || r->status == 304 ? 0 : r->n;
    }
    return response;
}

static bool add_field(void *arg, const char *name, const char *value)
{
    return MHD_add_response_header(arg, name, value) == MHD_YES;
}

static bool add_headers(const srv_exchange *x, struct MHD_Response *response)
{
    const srv_reply *r = &x->reply;
    char timing[SRV_TIMING_BYTES];
    bool ok = MHD_add_response_header(response, "X-Request-Id", x->request_id) == MHD_YES &&
              MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
    if (r->content_type != NULL)
        ok = ok && MHD_add_response_header(response, "Content-Type", r->content_type) == MHD_YES;
    if (r->close || atomic_load(&x->http->draining))
        ok = ok && MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    if (x->route != NULL && x->route->body && srv_reply_timing(x, timing))
        ok = ok && MHD_add_response_header(response, "Server-Timing", timing) == MHD_YES;
    return ok && srv_reply_put(x, add_field, response);
}

static mhd_result queue_reply(srv_exchange *x)
{
    if (x->reply.status == 0)
        srv_reply_refuse(x, 500, "internal", "the handler gave no answer");
    struct MHD_Response *response = make_response(x);
    bool ok = response != NULL && add_headers(x, response) &&
              MHD_queue_response(x->mhd, (unsigned)x->reply.status, response) == MHD_YES;
    if (response != NULL)
        MHD_destroy_response(response); /* the connection holds its own reference */
    if (!ok) {
        srv_log(SRV_LOG_ERROR, "reply", "an answer could not be queued, the connection is closed",
                (const srv_log_field[]){SRV_STR("request_id", x->request_id),
                                        SRV_INT("status", x->reply.status)},
                2);
        x->reply.status = 0;
    }
    return ok ? MHD_YES : MHD_NO;
}

/* Answers although the body is still coming in, see srv_conn_cut(). */
static void cut(srv_exchange *x)
{
    char answer[SRV_PROBLEM_BYTES + 2 * SRV_EXTRA_BYTES];
    size_t n = x->reply.read == NULL ? srv_reply_print(x, answer, sizeof answer) : 0;
    x->bytes_out = n > 0 ? x->reply.n : 0;
    x->cut = true;
    if (srv_conn_secure(x->conn)) {
        /* Between two calls of this thread the library has nothing half sent. */
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        if (info != NULL)
            srv_tls_finish(info->tls_session, answer, n);
    }
    srv_conn_cut(x->conn, answer, n);
}

/* --- counting --- */

static void enter(srv_http *h, size_t *counter)
{
    (void)pthread_mutex_lock(&h->lock);
    (*counter)++;
    (void)pthread_mutex_unlock(&h->lock);
}

static void leave(srv_http *h, size_t *counter)
{
    (void)pthread_mutex_lock(&h->lock);
    (*counter)--;
    (void)pthread_cond_broadcast(&h->fewer);
    (void)pthread_mutex_unlock(&h->lock);
}

static bool enter_unless_stopping(srv_http *h)
{
    (void)pthread_mutex_lock(&h->lock);
    bool go = !h->stopping;
    h->at_work += go;
    (void)pthread_mutex_unlock(&h->lock);
    return go;
}

/* --- the library's calls --- */

/* The header is complete. */
static mhd_result begin(srv_exchange *x, const char *method, const char *version)
{
    srv_http *h = x->http;

    (void)snprintf(x->method, sizeof x->method, "%s", method);
    x->http_1_0 = strcmp(version, "HTTP/1.0") == 0;
    x->counted = true;
    enter(h, &h->active);
    if (!collect_headers(x))
        return MHD_NO;
    size_t parents = 0;
    const char *parent = srv_header_find(x, "traceparent", &parents);
    srv_request_id(x->request_id, srv_header_find(x, "X-Request-Id", NULL));
    srv_trace_begin(&x->trace, parents == 1 ? parent : NULL);
    const char *expect = srv_header_find(x, "Expect", NULL);
    x->expects_continue = expect != NULL && strcasecmp(expect, "100-continue") == 0 && !x->http_1_0;
    srv_check(x, &h->o, &h->listeners);
    if (!srv_conn_header(x->conn, x, x->has_body))
        return MHD_NO;
    if (x->reply.status == 0) {
        x->begun = true;
        if (x->route->begin != NULL)
            x->route->begin(x);
    }
    if (x->reply.status == 0 || !x->has_body)
        return MHD_YES; /* answered in the last call: the connection stays usable */
    /* Of a stranger not much is read, only to throw it away. */
    uint64_t limit = x->reply.status == 401 ? STRANGER_BYTES : h->discard_limit;
    bool large = x->chunked ? x->reply.status == 401 : x->content_length > limit;
    bool hopeless = x->broken || large;
    if (x->expects_continue) /* the body is not sent; the library closes the connection */
        return srv_conn_complete(x->conn) ? queue_reply(x) : MHD_NO;
    if (hopeless)
        cut(x);
    return MHD_YES;
}

/* A piece of the body came. After a refusal the rest is thrown away: the library takes an answer
 * before the body or after it, and a client that is still sending would not see it anyway. */
static mhd_result take_body(srv_exchange *x, const char *data, size_t n)
{
    srv_http *h = x->http;
    attn_error err = {0};

    if (!srv_conn_body(x->conn))
        return MHD_YES; /* cut: until the connection is closed nobody listens */
    double begin = srv_now_s();
    if (x->bytes_in == 0)
        x->body_began_s = begin;
    x->bytes_in += n;
    if (x->reply.status == 0 && x->bytes_in > h->o.max_body_bytes) {
        (void)attn_fail(&err, ATTN_ETOOBIG, "the body has more than %llu bytes (server.max_body)",
                        (unsigned long long)h->o.max_body_bytes);
        err.needed = x->bytes_in;
        err.limit = h->o.max_body_bytes;
        srv_http_reply_problem(x, &err, NULL);
    } else if (x->reply.status == 0 && x->route->body && x->route->data != NULL) {
        attn_status rc = x->route->data(x, data, n, &err);
        srv_http_add_stage(x, SRV_STAGE_PARSE, srv_now_s() - begin);
        if (rc != ATTN_OK) {
            (void)attn_fail(&err, rc, "the body was refused");
            srv_http_reply_problem(x, &err, NULL);
        }
    }
    if (x->bytes_in > h->discard_limit)
        cut(x);
    return MHD_YES;
}

/* The request is complete, or the exchange was resumed. */
static mhd_result answer(srv_exchange *x)
{
    srv_http *h = x->http;
    if (x->suspended) {
        x->suspended = false;
        return queue_reply(x);
    }
    if (!srv_conn_complete(x->conn))
        return MHD_NO;
    if (x->bytes_in > 0)
        srv_http_add_stage(x, SRV_STAGE_RECV,
                           srv_now_s() - x->body_began_s - x->stage_s[SRV_STAGE_PARSE]);
    if (x->reply.status != 0)
        return queue_reply(x);
    if (!enter_unless_stopping(h)) {
        srv_reply_refuse(x, 503, "stopping", "the server is about to stop");
        return queue_reply(x);
    }
    x->route->finish(x);
    bool suspended = x->suspended; /* then x is another thread's once we return */
    leave(h, &h->at_work);
    return suspended ? MHD_YES : queue_reply(x);
}

static mhd_result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
                             const char *method, const char *version, const char *data, size_t *n,
                             void **context)
{
    srv_exchange *x = *context;
    (void)cls;
    (void)mhd;
    (void)url;
    if (x == NULL)
        return MHD_NO; /* no memory: said by on_line() */
    if (x->step == SRV_AT_HEADER) {
        x->step = SRV_AT_BODY;
        mhd_result rc = begin(x, method, version);
        /* Left to itself the library asks for the body that is not there, and takes the next request for it. */
        bool at_once = rc == MHD_YES && x->expects_continue && !x->has_body;
        return at_once ? answer(x) : rc;
    }
    if (*n > 0) {
        mhd_result rc = take_body(x, data, *n);
        *n = 0;
        return rc;
    }
    return answer(x);
}

static const char *ended_by(const srv_exchange *x, enum MHD_RequestTerminationCode code)
{
    if (x->cut || x->late)
        return x->late ? "timeout" : "refusal";
    if (x->failed)
        return "failure";
    switch (code) {
    case MHD_REQUEST_TERMINATED_COMPLETED_OK:
        return NULL;
    case MHD_REQUEST_TERMINATED_TIMEOUT_REACHED:
        return "timeout";
    case MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN:
        return "shutdown";
    default:
        return "client";
    }
}

static void log_exchange(const srv_exchange *x, double seconds,
                         enum MHD_RequestTerminationCode code)
{
    srv_log_level level = x->route != NULL && x->route->quiet ? SRV_LOG_DEBUG : SRV_LOG_INFO;
    if (!srv_log_enabled(level))
        return;
    const srv_log_field fields[] = {
        SRV_STR("request_id", x->request_id),
        SRV_STR("trace_id", x->trace.trace_id),
        SRV_STR("span_id", x->trace.span_id),
        SRV_STR("method", x->method),
        SRV_STR("route", x->route != NULL ? x->route->path : SRV_NO_ROUTE),
        SRV_INT("status", x->reply.status),
        SRV_INT("bytes_in", x->bytes_in),
        SRV_INT("bytes_out", x->bytes_out),
        SRV_NUM("duration_s", seconds),
        SRV_NUM("recv_s", x->stage_s[SRV_STAGE_RECV]),
        SRV_NUM("parse_s", x->stage_s[SRV_STAGE_PARSE]),
        SRV_NUM("queue_s", x->stage_s[SRV_STAGE_QUEUE]),
        SRV_NUM("compute_s", x->stage_s[SRV_STAGE_COMPUTE]),
        SRV_NUM("serialize_s", x->stage_s[SRV_STAGE_SERIALIZE]),
        SRV_INT("batch", x->batch),
        SRV_INT("tokens", x->tokens),
        SRV_STR("peer", srv_conn_peer(x->conn)),
        SRV_STR("ended_by", ended_by(x, code)),
    };
    srv_log(level, "request", ended_by(x, code) == NULL ? "answered" : "cut off", fields,
            sizeof fields / sizeof fields[0]);
}

static void tell_outcome(const srv_exchange *x, double seconds,
                         enum MHD_RequestTerminationCode code)
{
    const srv_http_options *o = &x->http->o;
    srv_outcome outcome = {.method = x->method,
                           .route = x->route,
                           .status = x->reply.status,
                           .code = x->reply.code,
                           .taken =
                               x->cut || x->late || code == MHD_REQUEST_TERMINATED_COMPLETED_OK,
                           .seconds = seconds,
                           .stages = x->stages};

    if (o->observe == NULL)
        return;
    memcpy(outcome.stage_s, x->stage_s, sizeof outcome.stage_s);
    o->observe(o->app, &outcome);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
                         enum MHD_RequestTerminationCode code)
{
    srv_http *h = cls;
    srv_exchange *x = *context;
    (void)mhd;
    if (x == NULL)
        return;
    *context = NULL;
    srv_conn_done(x->conn); /* from here on the clock does not touch x */
    if (x->counted) {
        double seconds = srv_now_s() - x->started_s;
        if (x->late) {
            x->reply.status = 408;
            x->reply.code = SRV_LATE_CODE;
        }
        log_exchange(x, seconds, code);
        tell_outcome(x, seconds, code);
        if (x->begun && x->route != NULL && x->route->end != NULL)
            x->route->end(x);
        leave(h, &h->active);
    }
    free_exchange(x);
}

/* --- connections --- */

static bool add_connection(void *arg, int fd, const struct sockaddr *addr, socklen_t n)
{
    srv_http *h = arg;
    bool secure = h->tls != NULL && addr->sa_family != AF_UNIX;
    return MHD_add_connection(secure ? h->tls : h->plain, fd, addr, n) == MHD_YES;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    srv_http *h = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        /* Since 1.0 every answer of the library lies in the same place: copy one, then ask on. */
        int fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        const union MHD_ConnectionInfo *addr =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        *context = srv_conn_open(h->conns, fd, addr != NULL ? addr->client_addr : NULL);
    } else {
        srv_conn_close(h->conns, *context);
        *context = NULL;
    }
}

ATTN_PRINTF(2, 0) static void on_library_log(void *cls, const char *format, va_list args)
{
    char text[512];
    (void)cls;
    if (!srv_log_enabled(SRV_LOG_DEBUG))
        return; /* it tells what clients do wrong, line by line */
    int n = vsnprintf(text, sizeof text, format, args);
    while (n > 0 && (size_t)n < sizeof text && text[n - 1] == '\n')
        text[--n] = '\0';
    srv_log(SRV_LOG_DEBUG, "microhttpd", text, NULL, 0);
}

/* --- start and stop --- */

static struct MHD_Daemon *start_daemon(srv_http *h, bool secure)
{
    /* poll, not epoll: libmicrohttpd's epoll is edge-triggered, and a close that comes together with the last
     * bytes is then never seen, so that an abandoned upload holds its memory until the timeout. */
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_ALLOW_SUSPEND_RESUME |
                     MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_USE_ERROR_LOG;
#if MHD_VERSION >= 0x01000000
    flags |= MHD_USE_PEDANTIC_CHECKS; /* a blank in the target, a bare line feed: 400, no guess */
#endif
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, NULL},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)SRV_TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL}};
    srv_tls_callback *retriever = srv_tls_retriever();
    memcpy(&tls[0].ptr_value, &retriever, sizeof retriever);
    flags |= secure ? MHD_USE_TLS : 0;
    if (!secure)
        tls[0].option = MHD_OPTION_END;
    /* A pool of one is a daemon without a pool. */
    struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)h->o.io_threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    if (h->o.io_threads < 2)
        pool[0].option = MHD_OPTION_END;
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, h, /* the logger comes first: it hears of the others */
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_line, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
        h, MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIBRARY_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(IDLE_TIMEOUT_MS / 1000),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES, MHD_OPTION_ARRAY, pool,
        MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
}

/* Unix sockets never speak TLS: one of the library's daemons for them, another for the rest. */
static attn_status start_daemons(srv_http *h, bool secure, attn_error *err)
{
    bool plain = false, tls = false;

    for (size_t i = 0; i < h->listeners.n; i++) {
        bool https = secure && !h->listeners.item[i].local;
        tls = tls || https;
        plain = plain || !https;
    }
    h->plain = plain ? start_daemon(h, false) : NULL;
    h->tls = tls ? start_daemon(h, true) : NULL;
    if (plain != (h->plain != NULL) || tls != (h->tls != NULL))
        return attn_fail(err, ATTN_EIO, "cannot start the HTTP threads");
    return ATTN_OK;
}

static void stop_daemons(srv_http *h)
{
    if (h->plain != NULL)
        MHD_stop_daemon(h->plain);
    if (h->tls != NULL)
        MHD_stop_daemon(h->tls);
    h->plain = h->tls = NULL;
}

attn_status srv_http_start(srv_http **out, const srv_http_options *o, attn_error *err)
{
    attn_status rc = ATTN_OK;
    pthread_condattr_t monotonic;

    *out = NULL;
    (void)signal(SIGPIPE, SIG_IGN); /* a client that left is an error code, not the end */
    srv_http *h = calloc(1, sizeof *h);
    if (h == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for the HTTP server");
    bool secure = o->access != NULL && srv_access_is_secure(o->access);
    rc = o->num_passed > 0
             ? srv_listeners_adopt(&h->listeners, o->passed, o->num_passed, secure, err)
             : srv_listeners_open(&h->listeners, o->listen, o->num_listen, secure, err);
    if (rc != ATTN_OK) {
        free(h);
        return rc;
    }
    h->o = *o;
    if (__builtin_add_overflow(o->max_body_bytes, (uint64_t)DISCARD_BYTES, &h->discard_limit))
        h->discard_limit = UINT64_MAX;
    (void)pthread_mutex_init(&h->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&h->fewer, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);

    rc = srv_conns_new(
        &h->conns,
        &(srv_conns_options){.listeners = &h->listeners,
                             .secure = secure,
                             .max_connections = srv_listener_capacity(o->max_connections),
                             .header_timeout_ms = o->header_timeout_ms,
                             .request_timeout_ms = o->request_timeout_ms,
                             .idle_timeout_ms = IDLE_TIMEOUT_MS,
                             .add = add_connection,
                             .late = srv_reply_print_late,
                             .arg = h},
        err);
    if (rc != ATTN_OK)
        srv_listeners_close(&h->listeners);
    if (rc == ATTN_OK)
        rc = start_daemons(h, secure, err);
    if (rc == ATTN_OK)
        rc = srv_conns_start(h->conns, err);
    if (rc != ATTN_OK) {
        stop_daemons(h);
        srv_http_free(h);
        return rc;
    }
    *out = h;
    return ATTN_OK;
}

bool srv_http_adopt(srv_http *h, int fd)
{
    return srv_conns_adopt(h->conns, fd);
}

const char *srv_http_url(const srv_http *h, size_t i)
{
    return i < h->listeners.n ? h->listeners.item[i].url : NULL;
}

void srv_http_drain(srv_http *h)
{
    atomic_store(&h->draining, true);
}

void srv_http_quiesce(srv_http *h)
{
    srv_http_drain(h);
    if (h->quiesced)
        return;
    h->quiesced = true;
    srv_conns_quiesce(h->conns);
}

size_t srv_http_wait(srv_http *h, int64_t timeout_ms)
{
    int64_t until = srv_now_ms() + timeout_ms;

    for (;;) {
        int64_t now = srv_now_ms(), expect_ms = srv_conns_expect_ms(h->conns);
        (void)pthread_mutex_lock(&h->lock);
        size_t active = h->active;
        int64_t at = active > 0 || now + expect_ms > until ? until : now + expect_ms;
        if ((active > 0 || expect_ms > 0) && at > now) {
            const struct timespec t = {.tv_sec = at / 1000, .tv_nsec = at % 1000 * 1000000};
            (void)pthread_cond_timedwait(&h->fewer, &h->lock, &t);
        }
        (void)pthread_mutex_unlock(&h->lock);
        if ((active == 0 && expect_ms == 0) || now >= until)
            return active;
    }
}

size_t srv_http_stop(srv_http *h, int64_t timeout_ms)
{
    srv_http_quiesce(h);
    (void)srv_http_wait(h, timeout_ms);
    (void)pthread_mutex_lock(&h->lock);
    h->stopping = true;
    while (h->at_work > 0) /* the library cannot be stopped while an exchange is suspended */
        (void)pthread_cond_wait(&h->fewer, &h->lock);
    size_t left = h->active;
    (void)pthread_mutex_unlock(&h->lock);
    stop_daemons(h);
    return left;
}

const char *srv_http_library_version(void)
{
    return MHD_get_version();
}

void srv_http_free(srv_http *h)
{
    if (h == NULL)
        return;
    srv_conns_free(h->conns);
    (void)pthread_cond_destroy(&h->fewer);
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
}

size_t srv_http_active(const srv_http *h)
{
    srv_http *mutable = (srv_http *)(uintptr_t)h; /* the lock is no part of what is const */
    (void)pthread_mutex_lock(&mutable->lock);
    size_t n = h->active;
    (void)pthread_mutex_unlock(&mutable->lock);
    return n;
}

/* --- what handlers ask --- */

bool srv_http_draining(const srv_exchange *x)
{
    return atomic_load(&x->http->draining);
}

void *srv_http_app(const srv_exchange *x)
{
    return x->http->o.app;
}

const char *srv_http_request_id(const srv_exchange *x)
{
    return x->request_id;
}

const char *srv_http_param(const srv_exchange *x, const char *name)
{
    for (size_t i = 0; i < x->num_params; i++) {
        if (strlen(name) == x->param[i].name_length &&
            memcmp(name, x->param[i].name, x->param[i].name_length) == 0)
            return x->param[i].value;
    }
    return NULL;
}

const char *srv_http_header(const srv_exchange *x, const char *name)
{
    return srv_header_find(x, name, NULL);
}

size_t srv_http_header_count(const srv_exchange *x, const char *name)
{
    size_t n = 0;

    (void)srv_header_find(x, name, &n);
    return n;
}

size_t srv_http_body_type(const srv_exchange *x)
{
    return x->body_type;
}

srv_coding srv_http_body_coding(const srv_exchange *x)
{
    return x->body_coding;
}

size_t srv_http_answer_type(const srv_exchange *x)
{
    return x->answer_type;
}

srv_coding srv_http_answer_coding(const srv_exchange *x, bool floats)
{
    srv_field_lines lines = srv_header_lines(x, "Accept-Encoding");
    srv_codings c = srv_accept_codings((srv_lines){lines.line, lines.n});
    srv_coding coding = SRV_IDENTITY;

    if (x->route->media == NULL ||
        !srv_choose_coding(&c, x->route->media->gives_codings, floats, &coding))
        return SRV_IDENTITY;
    return coding;
}

const char *srv_http_query(const srv_exchange *x)
{
    const char *mark = strchr(x->target, '?');
    return mark != NULL ? mark + 1 : NULL;
}

uint64_t srv_http_max_body(const srv_exchange *x)
{
    return x->http->o.max_body_bytes;
}

uint64_t srv_http_content_length(const srv_exchange *x)
{
    return x->content_length;
}

int64_t srv_http_started_ms(const srv_exchange *x)
{
    return (int64_t)(x->started_s * 1000);
}

void srv_http_set_user(srv_exchange *x, void *user)
{
    x->user = user;
}

void *srv_http_user(const srv_exchange *x)
{
    return x->user;
}

void srv_http_suspend(srv_exchange *x)
{
    x->suspended = true;
    enter(x->http, &x->http->at_work);
    MHD_suspend_connection(x->mhd);
}

int srv_http_socket(const srv_exchange *x)
{
    return srv_conn_socket(x->conn);
}

unsigned srv_http_retry_after_s(const srv_exchange *x)
{
    const srv_http_options *o = &x->http->o;
    return o->retry_after_s != NULL ? o->retry_after_s(o->app) : 1;
}

void srv_http_resume(srv_exchange *x)
{
    srv_http *h = x->http;
    MHD_resume_connection(x->mhd); /* from here on x may be gone */
    leave(h, &h->at_work);
}

void srv_http_wake(srv_exchange *x)
{
    srv_http *h = x->http;

    (void)pthread_mutex_lock(&h->lock);
    x->wakes++;
    if (x->waiting) {
        x->waiting = false;
        h->at_work--;
        (void)pthread_cond_broadcast(&h->fewer);
        MHD_resume_connection(x->mhd);
    }
    (void)pthread_mutex_unlock(&h->lock);
}
