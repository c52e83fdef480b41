/* watch.h: what a daemon says of itself in its metrics and its log, asked until it is so. An exchange is counted and
 * logged when it is over, which the client may know a moment before the daemon does. For cmocka programs: what goes
 * wrong fails the test. */
#ifndef TESTS_WATCH_H
#define TESTS_WATCH_H

#include <stdbool.h>

#include "tests/daemon.h"
#include "tests/scrape.h"

scrape watch_metrics(const test_daemon *d); /* the caller frees */
/* 0 where it has no such labels yet. */
double watch_metric(const test_daemon *d, const char *series);

/* Until the series has this value; the test fails after two minutes. */
void watch_until(const test_daemon *d, const char *series, double value);

bool watch_log_has(const test_daemon *d, const char *text);

/* Until the text is in the log; the test fails after ten seconds. */
void watch_log_until(const test_daemon *d, const char *text);

#endif
