/* A connection, from its raw bytes to the last byte of its answers, over a socketpair with the whole daemon behind it:
 * all routes, the demo model, a small encoder, the queue. What comes back must be answers, whole but for the last one of a client that
 * left; none of them says that we are at fault; and all memory is given back. Input: how the bytes are cut, then they. */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/json.h"
#include "server/app.h"
#include "server/clock.h"
#include "server/demo.h"
#include "server/log.h"
#include "tests/fuzz/answering.h"
#include "tests/st.h"
#include "tests/tiny_encoder.h"

enum {
    MEMORY = 8 << 20,
    MAX_BODY = 1 << 20,
    PATIENCE_MS = 15000, /* then it hangs */
    LEAVE_MS = 30        /* the client waits so long for an answer that is under way */
};

/* --- the daemon ------------------------------------------------------------------------------- */

static srv_app app;
static srv_http *http;
static srv_route_table table;

static void observe(void *arg, const srv_outcome *outcome)
{
    (void)arg;
    srv_metrics_exchange(app.metrics, outcome);
}

static char demo_name[] = "demo", tiny_name[] = "tiny";
static cfg_model models[] = {{.name = demo_name, .all_layers = true},
                             {.name = tiny_name, .all_layers = true}};

static void load_models(void)
{
    static const atomic_bool never = false;
    char *folder = st_temp_dir();

    models[0].path = st_path("%s/demo", folder);
    models[1].path = st_path("%s/tiny", folder);
    FUZZ_CHECK(srv_demo_write(models[0].path, NULL) == ATTN_OK);
    tiny_encoder_write(models[1].path, 3, 1, NULL);
    FUZZ_CHECK(srv_models_new(&app.models, models, 2, &never, NULL) == ATTN_OK);
    st_remove_dir(folder);
    FUZZ_CHECK(srv_models_start(app.models, NULL) == ATTN_OK);
}

static void start(void)
{
    static const char *const listen[] = {"127.0.0.1:0"}, *const origins[] = {"http://a"};
    static const srv_metrics_label build[] = {{"version", "fuzz"}};
    attn_error err = {0};

    (void)answering_model(); /* chooses the kernels */
    app = (srv_app){.workers = 1, .request_timeout_ms = 5000};
    load_models();
    attn_budget_init(&app.budget, MEMORY);
    FUZZ_CHECK(srv_infer_start(&app.infer, answering_pool(), 16, NULL) == ATTN_OK);
    srv_routes(&table,
               (srv_parts){.metrics = true, .docs = true, .ui = true, .open_metrics = true});
    const srv_metrics_options metrics = {.routes = table.routes,
                                         .num_routes = table.n,
                                         .budget = &app.budget,
                                         .compute_threads = 1,
                                         .build = build,
                                         .num_build = 1};
    FUZZ_CHECK(srv_metrics_new(&app.metrics, &metrics, NULL) == ATTN_OK);
    const srv_http_options o = {.listen = listen,
                                .num_listen = 1,
                                .origins = origins,
                                .num_origins = 1,
                                .io_threads = 1,
                                .max_connections = 64,
                                .max_body_bytes = MAX_BODY,
                                .header_timeout_ms = 5000,
                                .request_timeout_ms = 5000,
                                .routes = table.routes,
                                .num_routes = table.n,
                                .app = &app,
                                .observe = observe,
                                .retry_after_s = srv_app_retry_after_s};
    if (srv_http_start(&http, &o, &err) != ATTN_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

static void stop(void)
{
    (void)srv_http_stop(http, 1000);
    srv_http_free(http);
    srv_infer_free(app.infer);
    srv_metrics_free(app.metrics);
    srv_models_free(app.models);
    free(models[0].path);
    free(models[1].path);
}

/* --- the client ------------------------------------------------------------------------------- */

typedef struct {
    char *at;
    size_t n, room;
    bool left; /* we ended our side while a request was under way */
} received;

/* False: the connection has ended. */
static bool receive(int fd, received *r)
{
    if (r->room - r->n < 4096) {
        r->room = 2 * r->room + 16384;
        r->at = realloc(r->at, r->room);
        FUZZ_CHECK(r->at != NULL);
    }
    ssize_t got = recv(fd, r->at + r->n, r->room - r->n, 0);
    if (got > 0)
        r->n += (size_t)got;
    return got > 0 || (got < 0 && errno == EAGAIN);
}

static bool all_is_read(int fd)
{
    int waiting = 0;
    return ioctl(fd, SIOCOUTQ, &waiting) == 0 && waiting == 0;
}

static bool is_computing(void)
{
    srv_infer_stats now;
    srv_infer_get_stats(app.infer, &now);
    return now.waiting + now.running > 0;
}

/* Sends all, and reads to the end of the stream; our side ends when nothing happens any more. */
static received talk(int fd, fuzz_input in, fuzz_cuts cuts)
{
    received r = {0};
    bool open = true;
    int64_t begin = srv_now_ms(), quiet = begin;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (in.n > 0 ? POLLOUT : 0))};
        int events = poll(&p, 1, open ? 1 : 100);
        int64_t now = srv_now_ms();
        FUZZ_CHECK(now - begin < PATIENCE_MS);
        if (events > 0 && (p.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            quiet = now;
            if (!receive(fd, &r))
                return r;
        }
        if (events > 0 && in.n > 0 && (p.revents & POLLOUT) != 0) {
            ssize_t sent = send(fd, in.at, fuzz_cut(&cuts, in.n), MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN)
                in.n = 0; /* the rest is not wanted */
            in.at += sent > 0 ? sent : 0;
            in.n -= sent > 0 ? (size_t)sent : 0;
        }
        if (events != 0 || in.n > 0 || !open || !all_is_read(fd))
            continue;
        r.left = srv_http_active(http) > 0;
        if (!r.left || now - quiet > (is_computing() ? LEAVE_MS : 2)) {
            open = false;
            (void)shutdown(fd, SHUT_WR);
        }
    }
}

/* --- what came back --------------------------------------------------------------------------- */

typedef struct {
    int status;
    bool chunked, sized, json;
    size_t length;
} head;

/* Reads the header of an answer; returns where its body begins, NULL when it is cut. */
static const char *read_head(const char *p, const char *end, head *h)
{
    const char *body = memmem(p, (size_t)(end - p), "\r\n\r\n", 4);

    *h = (head){0};
    if (body == NULL)
        return NULL;
    FUZZ_CHECK(body - p > 13 && strncmp(p, "HTTP/1.", 7) == 0);
    h->status = atoi(p + 9);
    FUZZ_CHECK(h->status >= 100 && h->status < 600 && h->status != 500);
    for (const char *line = memchr(p, '\n', (size_t)(body - p)); line != NULL && line < body;
         line = memchr(line, '\n', (size_t)(body - line))) {
        line++;
        if (strncasecmp(line, "Content-Length: ", 16) == 0) {
            FUZZ_CHECK(!h->sized);
            h->sized = true;
            h->length = strtoul(line + 16, NULL, 10);
        }
        h->chunked |= strncasecmp(line, "Transfer-Encoding: chunked", 26) == 0;
        h->json |= strncasecmp(line, "Content-Type: application/json\r", 31) == 0 ||
                   strncasecmp(line, "Content-Type: application/problem+json\r", 39) == 0;
        if (strncasecmp(line, "Content-Encoding: ", 18) == 0)
            h->json = false;
    }
    FUZZ_CHECK(!(h->sized && h->chunked));
    return body + 4;
}

/* Puts the chunks together in `out`; returns what is behind them, NULL when they are cut. */
static const char *read_chunks(const char *p, const char *end, char *out, size_t *n)
{
    for (;;) {
        const char *line = memmem(p, (size_t)(end - p), "\r\n", 2);
        if (line == NULL)
            return NULL;
        char *behind = NULL;
        size_t length = strtoul(p, &behind, 16);
        FUZZ_CHECK(behind == line && line > p);
        p = line + 2;
        if ((size_t)(end - p) < length + 2)
            return NULL;
        memcpy(out + *n, p, length);
        *n += length;
        FUZZ_CHECK(memcmp(p + length, "\r\n", 2) == 0);
        p += length + 2;
        if (length == 0)
            return p;
    }
}

static void check_json(const char *text, size_t n)
{
    attn_json *document = NULL;

    FUZZ_CHECK(attn_json_parse(&document, text, n, "answer", NULL) == ATTN_OK);
    attn_json_free(document);
}

/* Goes through the answers. With `head` some may have no body although they tell its length. */
static void check_answers(const received *r, bool has_head)
{
    const char *p = r->at, *end = r->at + r->n;
    head h;

    while (p != NULL && p < end) {
        const char *body = read_head(p, end, &h);
        size_t n = 0;
        FUZZ_CHECK(body != NULL || r->left);
        if (body == NULL)
            return;
        /* libmicrohttpd 0.9.75 refuses a Content-Length that is none with a header that stands twice. */
        size_t head_bytes = (size_t)(body - p);
        if ((size_t)(end - body) >= head_bytes && h.status / 100 == 4 && !h.json &&
            memcmp(body, p, head_bytes) == 0)
            body += head_bytes;
        p = body;
        if (h.status < 200 || h.status == 204 || h.status == 304 ||
            (has_head && (p == end || strncmp(p, "HTTP/1.1 ", 9) == 0)))
            continue;
        if (h.chunked) {
            char *out = malloc(r->n);
            FUZZ_CHECK(out != NULL);
            p = read_chunks(body, end, out, &n);
            FUZZ_CHECK(p != NULL || r->left || has_head);
            if (p != NULL && h.json)
                check_json(out, n);
            free(out);
        } else {
            n = h.sized ? h.length : (size_t)(end - body);
            bool whole = (size_t)(end - body) >= n;
            FUZZ_CHECK(whole || r->left || has_head);
            p = whole ? body + n : NULL;
            if (whole && h.json && (h.sized || !r->left))
                check_json(body, n);
        }
    }
}

static void settle(void)
{
    int64_t begin = srv_now_ms();

    while (srv_http_active(http) > 0 || atomic_load(&app.budget.used) > 0) {
        FUZZ_CHECK(srv_now_ms() - begin < PATIENCE_MS);
        (void)usleep(200);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    fuzz_input in = {data, n};
    fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in));
    int pair[2];

    if (http == NULL) {
        start();
        FUZZ_CHECK(atexit(stop) == 0);
    }
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    FUZZ_CHECK(srv_http_adopt(http, pair[0]));
    bool has_head = in.n > 0 && memmem(in.at, in.n, "HEAD ", 5) != NULL;
    received r = talk(pair[1], in, cuts);
    (void)close(pair[1]);
    check_answers(&r, has_head);
    free(r.at);
    settle();
    return 0;
}
