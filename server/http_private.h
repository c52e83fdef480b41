/* http_private.h: what the files of the HTTP layer share. libmicrohttpd is known to http.c alone.
 *
 *   http_listen.c  the listening sockets
 *   http_conn.c    connections: accepting them, and the time each may take
 *   http_check.c   what is refused before a handler sees the request
 *   cors.c         what pages of other origins may do
 *   router.c       path to route
 *   http_reply.c   answers, problems
 *   http.c         exchanges: from libmicrohttpd's calls to the handlers and back */
#ifndef SRV_HTTP_PRIVATE_H
#define SRV_HTTP_PRIVATE_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "server/clock.h"
#include "server/http.h"
#include "server/trace.h"

enum {
    SRV_MAX_LISTENERS = 16,
    SRV_MAX_PARAMS = 4,
    SRV_REQUEST_ID_BYTES = 129, /* 128 characters */
    SRV_PROBLEM_BYTES = 8192, /* the longest problem: twice the sentence and the pointer, escaped */
    SRV_EXTRA_BYTES = 1024,   /* header fields of a reply that are not in every reply */
    SRV_TIMING_BYTES = 256    /* of Server-Timing */
};

/* --- the listening sockets --- */

typedef struct {
    int fd;         /* -1 = closed */
    bool loopback;  /* bound to a loopback address */
    bool local;     /* a unix socket */
    bool adopted;   /* opened by another process, which keeps it */
    char host[256]; /* the name or address that was asked for, without brackets; "" with `local` */
    char url[320];  /* of the address that was bound; "unix:/PATH" with `local` */
    dev_t device;   /* of a unix socket's file, */
    ino_t inode;    /* which is removed with the socket while it is this one */
} srv_listener;

typedef struct {
    srv_listener item[SRV_MAX_LISTENERS];
    size_t n;
} srv_listeners;

/* Each "HOST:PORT", "[HOST]:PORT" or "unix:/PATH". A unix socket's file that nobody listens on any more is
 * replaced; the new one is for the daemon's user and group. `secure`: https on all but unix sockets. */
ATTN_NODISCARD attn_status srv_listeners_open(srv_listeners *l, const char *const *listen, size_t n,
                                              bool secure, attn_error *err);
/* Takes sockets first, first + 1, ... that another process has bound and listens on. */
ATTN_NODISCARD attn_status srv_listeners_adopt(srv_listeners *l, int first, size_t n, bool secure,
                                               attn_error *err);
void srv_listeners_close(srv_listeners *l);

/* Nobody can connect any more. Who has, or is just about to, can still be accepted, but for adopted ones: who waits
 * there is for the process that listens next. */
void srv_listeners_refuse(srv_listeners *l);

/* Raises the limit of open files as far as allowed and returns how many connections fit below it,
 * at most `wanted`. Says in the log when that is fewer. */
unsigned srv_listener_capacity(unsigned wanted);

/* --- connections ---
 *
 * libmicrohttpd knows only silence as a timeout, and its listener cannot be taken away while it is
 * busy (MHD_quiesce_daemon() panics when a worker thread reaches the same lines at the same time).
 * So one thread of ours accepts, and looks at every connection's clock four times a second. */

typedef struct srv_conns srv_conns;
typedef struct srv_conn srv_conn;

typedef struct {
    srv_listeners *listeners; /* lives longer; closed by us, once _new succeeded */
    bool secure;              /* TLS on all but unix sockets */
    unsigned max_connections;
    int64_t header_timeout_ms, request_timeout_ms, idle_timeout_ms;
    /* Gives the connection to the HTTP library, which closes fd in any case. */
    bool (*add)(void *arg, int fd, const struct sockaddr *addr, socklen_t n);
    /* Writes a complete 408 answer for the exchange (NULL: its header never came), returns its
     * length. Called under the lock: it may format and nothing else. */
    size_t (*late)(srv_exchange *x, char *out, size_t n);
    void *arg;
} srv_conns_options;

ATTN_NODISCARD attn_status srv_conns_new(srv_conns **out, const srv_conns_options *o,
                                         attn_error *err);
ATTN_NODISCARD attn_status srv_conns_start(srv_conns *c,
                                           attn_error *err); /* from here on it accepts */
bool srv_conns_adopt(srv_conns *c, int fd);                  /* as srv_http_adopt() */
void srv_conns_quiesce(
    srv_conns *c); /* after start; returns when the listening sockets are closed */
/* For how long there may yet be a request from who is connected: 0 when there is nobody, or when nobody came, no
 * exchange ended for a moment, and all that was sent is read. */
int64_t srv_conns_expect_ms(srv_conns *c);
void srv_conns_free(srv_conns *c); /* no connection is left; takes NULL */

/* A connection's life, told by the I/O threads. NULL: no memory. */
srv_conn *srv_conn_open(srv_conns *c, int fd, const struct sockaddr *addr);
void srv_conn_close(srv_conns *c, srv_conn *conn); /* before fd is closed; conn may be NULL */
const char *srv_conn_peer(const srv_conn *conn);

int srv_conn_socket(const srv_conn *conn);
bool srv_conn_local(const srv_conn *conn);  /* it came through a unix socket */
bool srv_conn_secure(const srv_conn *conn); /* it speaks TLS */

void srv_conn_line(srv_conn *conn); /* a request line was read */
/* The header is read; with `body`, the clock of the body starts. False: this connection was cut. */
bool srv_conn_header(srv_conn *conn, srv_exchange *x, bool body);
/* A piece of the body came. False: this connection was cut, nothing more may be said. */
bool srv_conn_body(srv_conn *conn);
bool srv_conn_complete(srv_conn *conn); /* the request is read; false as before */
/* A block of the answer leaves: the clock of the next one starts; or, with `wait`, none is there yet, and it stops. */
void srv_conn_answer(srv_conn *conn, bool wait);
void srv_conn_done(srv_conn *conn); /* the exchange is over: x is not used any more */

/* Answers in the middle of an upload, which the library cannot: sends a complete answer, ends our
 * side of the stream and leaves the client a second to read it before the connection is closed. With TLS the caller has
 * sent it, by way of the session. */
void srv_conn_cut(srv_conn *conn, const char *answer, size_t n);

/* --- exchanges --- */

typedef struct {
    const char *name, *value; /* borrowed from the library until the exchange is over */
} srv_header;

typedef struct {
    const char *name; /* in the template, not NUL-terminated */
    size_t name_length;
    const char *value; /* in srv_exchange.decoded */
} srv_param;

typedef struct {
    int status; /* 0 = no reply yet */
    const char *content_type;
    const char *code; /* of a problem, a literal; NULL = it is none */
    char *text;       /* owned */
    size_t n;
    srv_reader *read;
    void *arg;
    uint64_t length; /* of what is read, where `sized` */
    bool sized;
    char extra[SRV_EXTRA_BYTES]; /* name NUL value NUL, one after the other */
    size_t extra_used;
    bool close; /* the connection ends with this reply */
} srv_reply;

struct srv_exchange {
    srv_http *http;
    srv_conn *conn;
    void *mhd; /* the library's connection */
    void *user;
    double started_s;
    char request_id[SRV_REQUEST_ID_BYTES];
    srv_trace trace;

    char method[32]; /* cut off there: it is none of ours then */
    bool http_1_0;
    char *target;       /* as it was on the wire; owned */
    const char *path;   /* in target, ends at '?' or NUL */
    char *decoded;      /* path segments, percent-decoded; owned, as long as target */
    srv_header *header; /* owned */
    size_t num_headers;
    uint64_t content_length; /* UINT64_MAX = chunked */
    bool chunked, has_body, expects_continue;

    const srv_route *route;        /* NULL = none */
    size_t body_type, answer_type; /* of the route's media */
    srv_coding body_coding;
    srv_param param[SRV_MAX_PARAMS];
    size_t num_params;
    const char *allow_origin; /* of the options, before the clock knows x; NULL = none */
    bool vary_origin;         /* the answer depends on the Origin */

    enum { SRV_AT_HEADER, SRV_AT_BODY, SRV_AT_HANDLER } step;
    bool counted;   /* among the active ones */
    bool begun;     /* the route's `end` is due */
    bool suspended; /* written by the I/O thread only */
    bool cut;       /* answered by srv_conn_cut() */
    bool broken;    /* where the request ends is not known: nothing after it can be trusted */
    bool late;      /* answered with 408 by the clock; guarded by the connections' lock */
    bool failed;    /* its stream ended before its end */
    bool waiting;   /* suspended until srv_http_wake(); guarded by the server's lock */
    uint64_t wakes; /* so far; guarded by the server's lock */
    uint64_t bytes_in, bytes_out;
    srv_reply reply;

    double body_began_s; /* the first piece of the body came; 0 = none did */
    unsigned stages;     /* as in srv_outcome */
    double stage_s[SRV_STAGES];
    size_t batch, tokens;
};

/* Refuses with a reply when the request cannot be served; else sets x->route and the parameters. */
void srv_check(srv_exchange *x, const srv_http_options *o, const srv_listeners *listeners);

/* Request id: the client's when it is well-formed, else a fresh UUIDv7. */
void srv_request_id(char out[SRV_REQUEST_ID_BYTES], const char *from_client);

/* Value of a header field, NULL = absent. *count (unless NULL): how often it stands there. */
const char *srv_header_find(const srv_exchange *x, const char *name, size_t *count);

/* All lines of a field, but for those beyond SRV_FIELD_LINES. */
enum { SRV_FIELD_LINES = 16 };
typedef struct {
    const char *line[SRV_FIELD_LINES];
    size_t n;
} srv_field_lines;
srv_field_lines srv_header_lines(const srv_exchange *x, const char *name);

/* --- routes --- */

enum { SRV_ALLOW_GET = 1, SRV_ALLOW_POST = 2 };

/* Finds the route for x->path and a method ("HEAD" finds GET) and sets x->route and parameters.
 * Returns the methods of that path as SRV_ALLOW_ bits, 0 = no such path. */
unsigned srv_route_find(srv_exchange *x, const srv_route *routes, size_t n, const char *method);

/* --- other origins --- */

/* Takes one field of an answer's header; false: it did not fit, and no more is wanted. */
typedef bool srv_put_field(void *arg, const char *name, const char *value);

void srv_cors_check(srv_exchange *x, const char *const *origins, size_t n);
/* Answers the question that comes before a request, if this is one: `methods` as in Allow. */
void srv_cors_preflight(srv_exchange *x, const char *methods);
bool srv_cors_put(const srv_exchange *x, srv_put_field *put, void *arg);

/* --- replies --- */

/* All fields of the reply's header that are not in every reply. */
bool srv_reply_put(const srv_exchange *x, srv_put_field *put, void *arg);

const char *srv_status_phrase(int status);

unsigned srv_http_retry_after_s(const srv_exchange *x); /* of a 503 */

/* A problem with a status of its own, not that of the code table. */
void srv_reply_refuse(srv_exchange *x, int status, const char *code, const char *format, ...)
    ATTN_PRINTF(4, 5);

/* The value of Server-Timing; false when there is nothing to tell. */
bool srv_reply_timing(const srv_exchange *x, char out[SRV_TIMING_BYTES]);

/* The whole answer as bytes for srv_conn_cut(): x->reply, which is a text. Returns its length. */
size_t srv_reply_print(const srv_exchange *x, char *out, size_t n);

#define SRV_LATE_CODE "request_timeout"

/* The same for a client that was too slow; x may be NULL. Sets x->late. */
size_t srv_reply_print_late(srv_exchange *x, char *out, size_t n);

#endif
