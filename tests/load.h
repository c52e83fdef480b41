/* load.h: many clients at once, each sending a request as soon as its last one is answered. */
#ifndef TESTS_LOAD_H
#define TESTS_LOAD_H

#include <stddef.h>

typedef struct {
    int status;
    double seconds;
    int retry_after; /* 0 = there was none */
} load_answer;

/* Sends `total` POSTs of JSON text over `clients` connections; the test fails when one is not answered. Returns
 * how long all of it took, in seconds. */
double load_run(const char *url, const char *path, const char *json, size_t clients,
                load_answer *answers, size_t total);

/* The p-th part of the times of the answers with this status, p in 0..1; 0 when there are none. *count (unless
 * NULL) is how many there are. */
double load_quantile(const load_answer *answers, size_t total, int status, double p, size_t *count);

#endif
