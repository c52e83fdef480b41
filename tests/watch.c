#include "tests/watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/rawhttp.h"

enum { METRIC_MS = 120000, LOG_MS = 10000 };

scrape watch_metrics(const test_daemon *d)
{
    test_reply r = daemon_request(d, "GET", "/metrics", NULL, NULL, 0);

    assert_int_equal(r.status, 200);
    scrape s = scrape_read(r.body, r.body_bytes);
    reply_free(&r);
    return s;
}

double watch_metric(const test_daemon *d, const char *series)
{
    scrape s = watch_metrics(d);
    double value =
        strchr(series, '{') != NULL ? scrape_or_zero(&s, series) : scrape_value(&s, series);

    scrape_free(&s);
    return value;
}

void watch_until(const test_daemon *d, const char *series, double value)
{
    long long until = raw_now_ms() + METRIC_MS;
    double now = watch_metric(d, series);

    for (; now != value && raw_now_ms() < until; now = watch_metric(d, series))
        (void)usleep(5000);
    if (now == value)
        return;
    daemon_show_log(d);
    fail_msg("%s is %g, not %g", series, now, value);
}

bool watch_log_has(const test_daemon *d, const char *text)
{
    char *log = daemon_log(d);
    bool has = strstr(log, text) != NULL;

    free(log);
    return has;
}

void watch_log_until(const test_daemon *d, const char *text)
{
    long long until = raw_now_ms() + LOG_MS;
    bool has = watch_log_has(d, text);

    for (; !has && raw_now_ms() < until; has = watch_log_has(d, text))
        (void)usleep(2000);
    if (has)
        return;
    daemon_show_log(d);
    fail_msg("the log does not say %s", text);
}
