/* daemon.h: the real daemon, started for a test and spoken to through libcurl.
 *
 * Whatever goes wrong in here fails the running test and prints what the daemon wrote on stderr. */
#ifndef TESTS_DAEMON_H
#define TESTS_DAEMON_H

#include <stddef.h>
#include <sys/types.h>

typedef struct test_daemon test_daemon;

/* Starts $ATTND (default build/attnd) with `args`, a NULL-terminated list, and waits until it says
 * that it is ready. Unless the list has "--listen" already, it listens on a free port of loopback. */
test_daemon *daemon_start(const char *const *args);

/* The same where it may end instead: then NULL, its exit code (-1: it hung and was killed) and what it wrote on stderr,
 * which the caller frees. */
test_daemon *daemon_try(const char *const *args, int *code, char **err);

/* The same as process number one of a namespace of its own, as in a container without an init; here it is *one. NULL:
 * no namespace can be made here. */
test_daemon *daemon_start_as_one(const char *const *args, pid_t *one);

/* SIGTERM, then waits. The test fails unless it exits 0 in time and no sanitizer complained. Takes
 * NULL. */
void daemon_stop(test_daemon *d);

/* Waits until it ends by itself, at most `within_ms`; the test fails when it does not, or when a
 * sanitizer complained. The exit code, 128 + signal when a signal ended it. `more` receives what came
 * on stdout behind the line that it is ready, the caller frees; NULL = not wanted. Frees `d`. */
int daemon_wait(test_daemon *d, long within_ms, char **more);

const char *daemon_url(const test_daemon *d); /* "http://127.0.0.1:40001" or "unix:/path" */
pid_t daemon_pid(const test_daemon *d);
char *daemon_log(const test_daemon *d); /* stderr so far; the caller frees */

/* Runs the program to its end and returns its exit code, 128 + signal when a signal ended it. The
 * outputs are NUL-terminated and the caller's to free; NULL = not wanted. */
int daemon_run(const char *const *args, char **out, char **err);

typedef struct {
    long status;
    char *headers; /* as received, "\r\n" between them */
    char *body;    /* NUL behind it */
    size_t body_bytes;
    double seconds;
} test_reply;

/* One request. `path` begins with "/"; `headers` is a NULL-terminated list or NULL; body NULL = none.
 * Status 0: the connection ended without an answer. */
test_reply daemon_request(const test_daemon *d, const char *method, const char *path,
                          const char *const *headers, const void *body, size_t body_bytes);
void reply_free(test_reply *r);

/* POST of JSON text; the test fails, with body and stderr, unless the status is `expected`. */
test_reply daemon_post(const test_daemon *d, const char *path, const char *json, long expected);

/* The value of a header, or NULL; the caller frees. */
char *reply_header(const test_reply *r, const char *name);

/* Prints what the daemon wrote on stderr, for a test that is about to fail. */
void daemon_show_log(const test_daemon *d);

#endif
