#include "tests/load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#include "tests/rawhttp.h"
#include "tests/st.h"

enum { PATIENCE_MS = 60000 };

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct {
    raw_conn c;
    double began;
    size_t sent; /* bytes of the request */
} client;

/* Sends what the socket takes; one that must wait would hold up the others. */
static void send_some(client *me, const char *text, size_t n, struct pollfd *fd)
{
    while (me->sent < n) {
        ssize_t k = send(me->c.fd, text + me->sent, n - me->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0)
            break;
        me->sent += (size_t)k;
    }
    fd->events = me->sent < n ? POLLIN | POLLOUT : POLLIN;
}

static void ask(client *me, const char *text, size_t n, struct pollfd *fd)
{
    me->began = now_s();
    me->sent = 0;
    fd->fd = me->c.fd;
    send_some(me, text, n, fd);
}

static load_answer take(client *me)
{
    raw_answer a = raw_read(&me->c, false, PATIENCE_MS);
    assert_true(a.complete);
    load_answer answer = {.status = a.status, .seconds = now_s() - me->began};
    const char *after = raw_header(&a, "Retry-After");
    answer.retry_after = after != NULL ? atoi(after) : 0;
    raw_free(&a);
    return answer;
}

double load_run(const char *url, const char *path, const char *json, size_t clients,
                load_answer *answers, size_t total)
{
    client *client_ = calloc(clients, sizeof *client_);
    struct pollfd *fds = calloc(clients, sizeof *fds);
    size_t asked = 0, taken = 0;
    assert_true(client_ != NULL && fds != NULL);
    char *text = st_path("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         path, strlen(json), json);
    size_t n = strlen(text);

    for (size_t i = 0; i < clients; i++) {
        const int yes = 1;
        raw_open(&client_[i].c, url);
        (void)setsockopt(client_[i].c.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fds[i].fd = -1;
    }
    double began = now_s();
    for (; asked < clients && asked < total; asked++)
        ask(&client_[asked], text, n, &fds[asked]);
    while (taken < total) {
        assert_true(poll(fds, clients, PATIENCE_MS) > 0);
        for (size_t i = 0; i < clients; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            if ((fds[i].revents & POLLIN) == 0) {
                send_some(&client_[i], text, n, &fds[i]);
                continue;
            }
            answers[taken++] = take(&client_[i]);
            assert_int_equal(client_[i].sent, n);
            fds[i].fd = -1;
            if (asked < total) {
                ask(&client_[i], text, n, &fds[i]);
                asked++;
            }
        }
    }
    double took = now_s() - began;
    for (size_t i = 0; i < clients; i++)
        raw_close(&client_[i].c);
    free(text);
    free(fds);
    free(client_);
    return took;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double load_quantile(const load_answer *answers, size_t total, int status, double p, size_t *count)
{
    double *seconds = calloc(total + 1, sizeof *seconds), value = 0;
    size_t n = 0;
    assert_non_null(seconds);
    for (size_t i = 0; i < total; i++) {
        if (answers[i].status == status)
            seconds[n++] = answers[i].seconds;
    }
    qsort(seconds, n, sizeof *seconds, by_size);
    if (n > 0)
        value = seconds[(size_t)(p * (double)(n - 1))];
    if (count != NULL)
        *count = n;
    free(seconds);
    return value;
}
