#include "tests/load.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
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
} client;

static void ask(client *me, const char *text, size_t n)
{
    me->began = now_s();
    assert_true(raw_send(&me->c, text, n));
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

    for (size_t i = 0; i < clients; i++)
        raw_open(&client_[i].c, url);
    double began = now_s();
    for (size_t i = 0; i < clients; i++) {
        fds[i] = (struct pollfd){.fd = asked < total ? client_[i].c.fd : -1, .events = POLLIN};
        if (asked < total)
            ask(&client_[i], text, n);
        asked += asked < total;
    }
    while (taken < total) {
        assert_true(poll(fds, clients, PATIENCE_MS) > 0);
        for (size_t i = 0; i < clients; i++) {
            if (fds[i].fd < 0 || fds[i].revents == 0)
                continue;
            answers[taken++] = take(&client_[i]);
            if (asked == total) {
                fds[i].fd = -1;
            } else {
                ask(&client_[i], text, n);
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
