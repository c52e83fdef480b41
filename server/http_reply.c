#include "server/http_private.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/log.h"
#include "server/text.h"

static const char PROBLEM_TYPE[] = "application/problem+json";

const char *srv_status_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } phrases[] = {{200, "OK"},
                   {204, "No Content"},
                   {304, "Not Modified"},
                   {308, "Permanent Redirect"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {406, "Not Acceptable"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {422, "Unprocessable Content"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"}};
    for (size_t i = 0; i < sizeof phrases / sizeof phrases[0]; i++) {
        if (phrases[i].status == status)
            return phrases[i].phrase;
    }
    return "Error";
}

static int status_of(attn_status code)
{
    switch (code) {
    case ATTN_EINVAL:
    case ATTN_EFORMAT:
        return 400;
    case ATTN_ENOTFOUND:
        return 404;
    case ATTN_ESHAPE:
    case ATTN_ENONFINITE:
    case ATTN_EUNSUPPORTED:
        return 422;
    case ATTN_ETOOBIG:
        return 413;
    case ATTN_EBUSY:
    case ATTN_ECANCELED:
        return 503;
    case ATTN_ETIMEDOUT:
        return 504;
    default:
        return 500;
    }
}

/* --- problems: RFC 9457 --- */

static size_t print_problem(char out[SRV_PROBLEM_BYTES], int status, const char *code,
                            const attn_error *err, const char *request_id)
{
    srv_text t;
    srv_text_init(&t, out, SRV_PROBLEM_BYTES - 1); /* the brace always fits */
    bool fits = srv_text_format(&t,
                                "{\"type\":\"urn:attnd:problem:%s\",\"title\":\"%s\",\"status\":%d,"
                                "\"detail\":",
                                code, srv_status_phrase(status), status);
    fits = fits && srv_text_json(&t, err->text, strlen(err->text));
    fits = fits && srv_text_format(&t, ",\"code\":\"%s\",\"error\":", code);
    fits = fits && srv_text_json(&t, err->text, strlen(err->text));
    if (fits && err->pointer[0] != '\0') {
        fits = srv_text_raw(&t, ",\"pointer\":", 11);
        fits = fits && srv_text_json(&t, err->pointer, strlen(err->pointer));
    }
    fits = fits && srv_text_format(&t, ",\"request_id\":\"%s\"", request_id);
    if (fits && err->needed != 0)
        fits = srv_text_format(&t, ",\"needed_bytes\":%zu", err->needed);
    if (fits && err->limit != 0)
        (void)srv_text_format(&t, ",\"limit_bytes\":%zu", err->limit);
    t.size = SRV_PROBLEM_BYTES;
    (void)srv_text_raw(&t, "}", 1);
    return t.used;
}

static void reply_problem(srv_exchange *x, int status, const char *code, const attn_error *err)
{
    char text[SRV_PROBLEM_BYTES];
    size_t n = print_problem(text, status, code, err, x->request_id);
    srv_http_reply_text(x, status, PROBLEM_TYPE, text, n);
    x->reply.code = code;
    if (status == 503) {
        char seconds[16];
        (void)snprintf(seconds, sizeof seconds, "%u", srv_http_retry_after_s(x));
        srv_http_set_header(x, "Retry-After", seconds);
    }
}

void srv_http_reply_problem(srv_exchange *x, const attn_error *err, const char *code)
{
    reply_problem(x, status_of(err->code), code != NULL ? code : attn_status_name(err->code), err);
}

void srv_http_reply_refusal(srv_exchange *x, int status, const char *code, const attn_error *err)
{
    reply_problem(x, status, code, err);
}

void srv_reply_refuse(srv_exchange *x, int status, const char *code, const char *format, ...)
{
    attn_error err = {.code = ATTN_EINVAL};
    va_list args;
    va_start(args, format);
    (void)vsnprintf(err.text, sizeof err.text, format, args);
    va_end(args);
    reply_problem(x, status, code, &err);
}

/* --- replies --- */

void srv_http_reply_text(srv_exchange *x, int status, const char *content_type, const char *text,
                         size_t n)
{
    srv_reply *r = &x->reply;
    free(r->text);
    r->text = malloc(n + 1);
    r->read = NULL;
    r->code = NULL;
    if (r->text == NULL) { /* no memory: an answer without a text says that much */
        r->status = 500;
        r->content_type = NULL;
        r->n = 0;
        return;
    }
    memcpy(r->text, text, n);
    r->n = n;
    r->status = status;
    r->content_type = content_type;
}

void srv_http_reply_stream(srv_exchange *x, int status, const char *content_type, srv_reader *read,
                           void *arg)
{
    srv_reply *r = &x->reply;
    r->status = status;
    r->content_type = content_type;
    r->code = NULL;
    r->read = read;
    r->arg = arg;
    r->sized = false;
}

void srv_http_set_length(srv_exchange *x, uint64_t n)
{
    x->reply.length = n;
    x->reply.sized = true;
}

void srv_http_set_header(srv_exchange *x, const char *name, const char *value)
{
    srv_reply *r = &x->reply;
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    if (name_bytes + value_bytes > sizeof r->extra - r->extra_used) {
        srv_log(SRV_LOG_ERROR, "reply", "a header field did not fit and was left out",
                (const srv_log_field[]){SRV_STR("name", name)}, 1);
        return;
    }
    memcpy(r->extra + r->extra_used, name, name_bytes);
    memcpy(r->extra + r->extra_used + name_bytes, value, value_bytes);
    r->extra_used += name_bytes + value_bytes;
}

/* --- stages --- */

const char *const srv_stage_names[SRV_STAGES] = {"recv", "parse", "queue", "compute", "serialize"};

void srv_http_add_stage(srv_exchange *x, srv_stage stage, double seconds)
{
    x->stages |= 1u << stage;
    x->stage_s[stage] += seconds > 0 ? seconds : 0;
}

double srv_http_stage_s(const srv_exchange *x, srv_stage stage)
{
    return x->stage_s[stage];
}

void srv_http_log_compute(srv_exchange *x, double queue_s, double compute_s, size_t batch,
                          size_t tokens)
{
    srv_http_add_stage(x, SRV_STAGE_QUEUE, queue_s);
    if (compute_s > 0)
        srv_http_add_stage(x, SRV_STAGE_COMPUTE, compute_s);
    x->batch = batch;
    x->tokens = tokens;
}

bool srv_reply_timing(const srv_exchange *x, char out[SRV_TIMING_BYTES])
{
    srv_text t;

    srv_text_init(&t, out, SRV_TIMING_BYTES);
    for (unsigned i = 0; i < SRV_STAGES; i++) {
        if (!(x->stages & 1u << i))
            continue;
        /* Milliseconds, by way of whole numbers: the decimal point is no matter of the locale. */
        long long us = llround(x->stage_s[i] * 1e6);
        (void)srv_text_format(&t, "%s%s;dur=%lld.%03lld", t.used > 0 ? ", " : "",
                              srv_stage_names[i], us / 1000, us % 1000);
    }
    return t.used > 0;
}

/* --- fields --- */

static bool put_fields(const srv_reply *r, const srv_exchange *x, srv_put_field *put, void *arg)
{
    bool vary = x->vary_origin, cors = true;

    for (const char *name = r->extra; name < r->extra + r->extra_used;) {
        const char *value = name + strlen(name) + 1;
        char both[256];
        if (vary && strcasecmp(name, "Vary") == 0) {
            vary = false;
            (void)snprintf(both, sizeof both, "%.200s, Origin", value);
            if (!put(arg, name, both))
                return false;
        } else if (!put(arg, name, value)) {
            return false;
        }
        cors = cors &&
               strcasecmp(name, "Access-Control-Allow-Origin") != 0; /* the route has its own */
        name = value + strlen(value) + 1;
    }
    return (!vary || put(arg, "Vary", "Origin")) && (!cors || srv_cors_put(x, put, arg));
}

bool srv_reply_put(const srv_exchange *x, srv_put_field *put, void *arg)
{
    return put_fields(&x->reply, x, put, arg);
}

/* --- answers that the library cannot give: see srv_conn_cut() --- */

static bool print_field(void *arg, const char *name, const char *value)
{
    return srv_text_format(arg, "%s: %s\r\n", name, value);
}

static size_t print_answer(char *out, size_t n, const srv_reply *r, const char *request_id,
                           const srv_exchange *x)
{
    srv_text t;
    srv_text_init(&t, out, n);
    bool fits = srv_text_format(&t,
                                "HTTP/1.1 %d %s\r\nConnection: close\r\nX-Request-Id: %s\r\n"
                                "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n",
                                r->status, srv_status_phrase(r->status), request_id, r->n);
    if (fits && r->content_type != NULL)
        fits = srv_text_format(&t, "Content-Type: %s\r\n", r->content_type);
    if (fits && x != NULL)
        fits = put_fields(r, x, print_field, &t);
    fits = fits && srv_text_raw(&t, "\r\n", 2) && srv_text_raw(&t, r->text, r->n);
    return fits ? t.used : 0;
}

size_t srv_reply_print(const srv_exchange *x, char *out, size_t n)
{
    return x->reply.text != NULL ? print_answer(out, n, &x->reply, x->request_id, x) : 0;
}

size_t srv_reply_print_late(srv_exchange *x, char *out, size_t n)
{
    attn_error err = {.code = ATTN_ETIMEDOUT, .text = "the request took too long to arrive"};
    char id[SRV_REQUEST_ID_BYTES], body[SRV_PROBLEM_BYTES];
    if (x == NULL)
        srv_request_id(id, NULL);
    else
        x->late = true;
    const char *request_id = x != NULL ? x->request_id : id;
    const srv_reply r = {.status = 408,
                         .content_type = PROBLEM_TYPE,
                         .text = body,
                         .n = print_problem(body, 408, SRV_LATE_CODE, &err, request_id)};
    return print_answer(out, n, &r, request_id, x);
}
