/* http.h: HTTP/1.1 over libmicrohttpd: connections, routes, errors; no knowledge of attention.
 *
 * An exchange is one request and its answer. It belongs to one I/O thread, but for the time between
 * srv_http_suspend() and srv_http_resume(). */
#ifndef SRV_HTTP_H
#define SRV_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/status.h"
#include "server/accept.h"
#include "server/access.h"

typedef struct srv_http srv_http;
typedef struct srv_exchange srv_exchange;

/* What a route's body may be and what it answers, the default first. Codings are bits 1u << srv_coding. */
typedef struct {
    const char *const *takes; /* NULL = whatever Content-Type says */
    size_t num_takes;
    unsigned takes_codings;
    const char *const *gives;
    size_t num_gives;
    unsigned gives_codings;
} srv_media;

/* A route. `path` is a template: a segment "{name}" matches one non-empty segment, percent-decoded
 * once. Callbacks run on an I/O thread and never block. In order:
 *   begin   the header is complete. May reply (then no body is read). NULL = nothing to do.
 *   data    a piece of the body, for routes with `body`. A failure makes the exchange a problem
 *           reply; the rest of the body is read and thrown away up to a bound, so that the client
 *           sees the answer.
 *   finish  the request is complete. Must reply, or suspend and arrange for a reply and a resume.
 *   end     the exchange is over, answered or not: frees what it holds. Always called when begin
 *           was (also when begin is NULL), on any thread. NULL = nothing to do. */
typedef struct {
    const char *method; /* "GET" (HEAD comes with it) or "POST" */
    const char *path;
    bool body;
    const srv_media *media; /* with `body`; NULL = application/json as it is, in and out */
    bool quiet;             /* logged at debug only: probes, scrapes */
    bool open;              /* for everybody, also where there are API keys */
    void (*begin)(srv_exchange *x);
    attn_status (*data)(srv_exchange *x, const char *bytes, size_t n, attn_error *err);
    void (*finish)(srv_exchange *x);
    void (*end)(srv_exchange *x);
} srv_route;

/* Where an exchange's time goes, in this order. The rest is the answer's way to the client. */
typedef enum {
    SRV_STAGE_RECV,      /* from the first piece of the body to its end, without parsing */
    SRV_STAGE_PARSE,     /* in the route's `data`, and what the handler adds */
    SRV_STAGE_QUEUE,     /* told by the handler */
    SRV_STAGE_COMPUTE,   /* told by the handler */
    SRV_STAGE_SERIALIZE, /* in the answer's `read` */
    SRV_STAGES
} srv_stage;
extern const char *const srv_stage_names[SRV_STAGES]; /* "recv", ... "serialize" */

/* What is called the route where there is none. */
#define SRV_NO_ROUTE "other"

/* An exchange that is over. */
typedef struct {
    const char *method;
    const srv_route *route; /* NULL = an unknown path, or a method that it does not have */
    int status;             /* 0 = the client left before an answer */
    const char *code;       /* of the problem that was answered, NULL = none; a literal */
    bool taken;             /* the client got the whole answer, as far as can be known */
    double seconds;
    unsigned stages; /* bit i: it came through stage i, in stage_s[i] */
    double stage_s[SRV_STAGES];
} srv_outcome;

typedef struct {
    const char *const *listen; /* "HOST:PORT", "[::]:PORT", "unix:/PATH"; port 0 = any */
    size_t num_listen;         /* 1 to 16 */
    /* Sockets passed, passed + 1, ... listen already: they replace `listen`. num_passed 0 = none. */
    int passed;
    size_t num_passed;
    unsigned io_threads;
    unsigned max_connections;
    uint64_t max_body_bytes;
    int64_t header_timeout_ms, request_timeout_ms;
    const char *base_path; /* in front of every route's; NULL or "" = nothing */
    /* What Host may be, without a port, IPv6 in brackets; "*" = anything. None: loopback's names where all listeners are
     * on loopback, else anything. A unix socket takes anything. */
    const char *const *hosts;
    size_t num_hosts;
    const char *const *origins; /* whose pages may ask, or "*" alone */
    size_t num_origins;
    const srv_route *routes;
    size_t num_routes;
    srv_access *access; /* lives longer; NULL = no keys, no certificate */
    void *app;          /* srv_http_app() */
    /* Told of every exchange that is over, on any thread, before its route's `end`; NULL = not
     * wanted. */
    void (*observe)(void *app, const srv_outcome *outcome);
    /* Retry-After of every 503, at least 1, on any thread; NULL = 1 */
    unsigned (*retry_after_s)(void *app);
} srv_http_options;

/* Starts listening. ATTN_EIO with one sentence (address taken, not there, no permission). */
ATTN_NODISCARD attn_status srv_http_start(srv_http **out, const srv_http_options *o,
                                          attn_error *err);
const char *srv_http_library_version(void); /* of libmicrohttpd, at run time */
/* "http://127.0.0.1:41234" or "unix:/PATH": the real address of each listener; NULL = there is no such one. */
const char *srv_http_url(const srv_http *h, size_t i);

/* Serves a connected stream socket as if it had been accepted, from any thread; it is closed in any case. False: every
 * connection is in use, or there is no memory. */
bool srv_http_adopt(srv_http *h, int fd);

/* Shutdown in steps: drain makes each answer say Connection: close, and all else goes on; quiesce closes the listening
 * sockets, and who was connected before that is served; wait returns when no exchange is left and none has come for a
 * moment, or timeout_ms has passed, and how many are left; stop waits like that, then ends all and returns how many
 * were cut. Every suspended exchange must be resumed, before or during stop. Called from one thread. */
void srv_http_drain(srv_http *h);
void srv_http_quiesce(srv_http *h); /* and drain */
size_t srv_http_wait(srv_http *h, int64_t timeout_ms);
size_t srv_http_stop(srv_http *h, int64_t timeout_ms);
void srv_http_free(srv_http *h);           /* after stop; takes NULL */
size_t srv_http_active(const srv_http *h); /* exchanges under way, any thread */

/* What an exchange is about. Strings are valid until `end` returns. */
void *srv_http_app(const srv_exchange *x);
bool srv_http_draining(const srv_exchange *x); /* drain was called: this reply closes */
const char *srv_http_request_id(const srv_exchange *x);
const char *srv_http_param(const srv_exchange *x, const char *name);  /* of the path; NULL = none */
const char *srv_http_header(const srv_exchange *x, const char *name); /* NULL = absent */
size_t srv_http_header_count(const srv_exchange *x, const char *name);
/* What was negotiated: indices into the route's `takes` and `gives`, codings. With `floats` the answer's numbers
 * hardly shrink, see srv_choose_coding(). */
size_t srv_http_body_type(const srv_exchange *x);
srv_coding srv_http_body_coding(const srv_exchange *x);
size_t srv_http_answer_type(const srv_exchange *x);
srv_coding srv_http_answer_coding(const srv_exchange *x, bool floats);
const char *srv_http_query(const srv_exchange *x); /* what stands behind '?'; NULL = nothing */
uint64_t srv_http_max_body(const srv_exchange *x);
uint64_t srv_http_content_length(const srv_exchange *x); /* UINT64_MAX = chunked or unknown */
int64_t srv_http_started_ms(const srv_exchange *x);  /* CLOCK_MONOTONIC of the first byte seen */
void srv_http_set_user(srv_exchange *x, void *user); /* the handler's own data */
void *srv_http_user(const srv_exchange *x);
/* Adds to a stage's time. The stages that are known when the answer begins go into its Server-Timing
 * field, where the route has a body; all of them go to the log and to `observe`. */
void srv_http_add_stage(srv_exchange *x, srv_stage stage, double seconds);
double srv_http_stage_s(const srv_exchange *x, srv_stage stage); /* so far */
/* Queue and compute time (compute_s 0: it never ran), and figures for the log line. */
void srv_http_log_compute(srv_exchange *x, double queue_s, double compute_s, size_t batch,
                          size_t tokens);

/* Replies: exactly one for an exchange, from begin or finish, or between suspend and resume. With HEAD
 * and status 304 the text itself is not sent, but its length is. */
void srv_http_reply_text(srv_exchange *x, int status, const char *content_type, const char *text,
                         size_t n); /* copied */
/* Streams what `read` gives, on an I/O thread: how many bytes of n >= 64, or 0 = that was all. `arg` lives until
 * the exchange's `end`. It may also return
 *   SRV_READ_LATER   nothing yet: it is called again after srv_http_wake()
 *   SRV_READ_FAILED  the rest will never come: the connection is cut, without the last chunk
 * A client that does not take a block within the request timeout is cut off, too. */
typedef ssize_t srv_reader(void *arg, char *out, size_t n);
#define SRV_READ_LATER  ((ssize_t)-1)
#define SRV_READ_FAILED ((ssize_t)-2)
void srv_http_reply_stream(srv_exchange *x, int status, const char *content_type, srv_reader *read,
                           void *arg);
/* The stream that was just set has exactly n bytes: it goes without chunks, and `read` is not asked beyond them, at last
 * for less than 64. */
void srv_http_set_length(srv_exchange *x, uint64_t n);
/* What SRV_READ_LATER waited for may be there. From any thread and at any time before `end`; it may not hold a lock
 * that `read` takes. */
void srv_http_wake(srv_exchange *x);
/* application/problem+json from err; the HTTP status follows from err->code (one table, http_reply.c):
 * EINVAL, EFORMAT 400; ENOTFOUND 404; ESHAPE, ENONFINITE, EUNSUPPORTED 422; ETOOBIG 413 with
 * needed_bytes and limit_bytes; EBUSY 503 with Retry-After; ETIMEDOUT 504; ECANCELED 503; others 500.
 * `code`, a literal; NULL = attn_status_name(err->code). */
void srv_http_reply_problem(srv_exchange *x, const attn_error *err, const char *code);
/* The same with a status that is not in the table. */
void srv_http_reply_refusal(srv_exchange *x, int status, const char *code, const attn_error *err);
/* A header field of the reply, copied; before or after the reply is set. Ours have X-Request-Id,
 * X-Content-Type-Options and Content-Type already. */
void srv_http_set_header(srv_exchange *x, const char *name, const char *value);

/* From finish only: the exchange waits. Call it before the work is handed over. */
void srv_http_suspend(srv_exchange *x);
/* The connection's socket, to watch it for a client that leaves (POLLRDHUP) while the exchange is suspended;
 * to nothing else, and no longer: then it may be closed. */
int srv_http_socket(const srv_exchange *x);
/* From any thread, once, after a reply was set. */
void srv_http_resume(srv_exchange *x);

#endif
