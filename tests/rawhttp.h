/* rawhttp.h: HTTP spoken by hand over a socket, for what no client library would send. */
#ifndef TESTS_RAWHTTP_H
#define TESTS_RAWHTTP_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    int fd;
    char *buffer; /* received, not yet read as an answer */
    size_t used, size;
} raw_conn;

typedef struct {
    int status; /* 0 = no answer: timeout, or the connection was closed */
    char *head; /* status line and header fields */
    char *body; /* NUL-terminated, chunks put together */
    size_t body_bytes;
    bool chunked;
    bool complete; /* the body ended as its header says */
} raw_answer;

/* Connects to "http://HOST:PORT" or "unix:/PATH". Fails the test when that does not work. */
void raw_open(raw_conn *c, const char *url);
void raw_close(raw_conn *c);

/* False when the server does not take all of it. */
bool raw_send(raw_conn *c, const char *bytes, size_t n);
bool raw_text(raw_conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads one answer; `head_only` after HEAD: no body follows whatever the header says. */
raw_answer raw_read(raw_conn *c, bool head_only, int timeout_ms);
void raw_free(raw_answer *a);

/* True when the server closes the connection within the time (what it still sends is thrown away). */
bool raw_is_closed(raw_conn *c, int timeout_ms);

/* Value of a header field, valid until the thread's next call; NULL = absent. */
const char *raw_header(const raw_answer *a, const char *name);

/* One request and its answer on a fresh connection that is closed again. */
raw_answer raw_once(const char *url, const char *request);

long long raw_now_ms(void);

#endif
