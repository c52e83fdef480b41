#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/rawhttp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_TIMEOUT_MS = 5000 };

long long raw_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void open_local(raw_conn *c, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof a.sun_path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    if (connect(c->fd, (const struct sockaddr *)&a, sizeof a) != 0)
        fail_msg("cannot connect to %s: %s", path, strerror(errno));
    assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
}

void raw_open(raw_conn *c, const char *url)
{
    char host[64], port[8];
    struct addrinfo *a = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    memset(c, 0, sizeof *c);
    if (strncmp(url, "unix:", 5) == 0) {
        open_local(c, url + 5);
        return;
    }
    if (sscanf(url, "http://[%63[^]]]:%7[0-9]", host, port) != 2 &&
        sscanf(url, "http://%63[^:]:%7[0-9]", host, port) != 2)
        fail_msg("not an address: %s", url);
    assert_int_equal(getaddrinfo(host, port, &hints, &a), 0);
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(c->fd >= 0);
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) != 0)
        fail_msg("cannot connect to %s: %s", url, strerror(errno));
    freeaddrinfo(a);
    assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
}

void raw_close(raw_conn *c)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    free(c->buffer);
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

bool raw_send(raw_conn *c, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = c->fd, .events = POLLOUT};
            if (poll(&p, 1, DEFAULT_TIMEOUT_MS) <= 0)
                return false;
            continue;
        }
        if (sent < 0)
            return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

bool raw_text(raw_conn *c, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < sizeof text);
    return raw_send(c, text, (size_t)n);
}

/* Receives some bytes. False at the end of the stream, after an error or when the time is over. */
static bool fill(raw_conn *c, long long until)
{
    for (;;) {
        long long left = until - raw_now_ms();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (poll(&p, 1, left > 0 ? (int)left : 0) <= 0)
            return false;
        if (c->size - c->used < 4096) {
            c->size = c->size * 2 + 65536;
            c->buffer = realloc(c->buffer, c->size);
            assert_non_null(c->buffer);
        }
        ssize_t n = recv(c->fd, c->buffer + c->used, c->size - c->used - 1, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return false;
        c->used += (size_t)n;
        c->buffer[c->used] = '\0';
        return true;
    }
}

static void consume(raw_conn *c, size_t n)
{
    memmove(c->buffer, c->buffer + n, c->used - n);
    c->used -= n;
    c->buffer[c->used] = '\0';
}

static bool want(raw_conn *c, size_t n, long long until)
{
    while (c->used < n) {
        if (!fill(c, until))
            return false;
    }
    return true;
}

static char *line_end(raw_conn *c, const char *end, long long until)
{
    char *found;
    while (c->used == 0 || (found = strstr(c->buffer, end)) == NULL) {
        if (!fill(c, until))
            return NULL;
    }
    return found;
}

static void append(raw_answer *a, const char *bytes, size_t n)
{
    a->body = realloc(a->body, a->body_bytes + n + 1);
    assert_non_null(a->body);
    memcpy(a->body + a->body_bytes, bytes, n);
    a->body_bytes += n;
    a->body[a->body_bytes] = '\0';
}

static void read_chunks(raw_conn *c, raw_answer *a, long long until)
{
    for (;;) {
        char *end = line_end(c, "\r\n", until);
        if (end == NULL)
            return;
        size_t n = strtoul(c->buffer, NULL, 16);
        consume(c, (size_t)(end - c->buffer) + 2);
        if (!want(c, n + 2, until))
            return;
        append(a, c->buffer, n);
        consume(c, n + 2);
        if (n == 0) {
            a->complete = true;
            return;
        }
    }
}

raw_answer raw_read(raw_conn *c, bool head_only, int timeout_ms)
{
    raw_answer a = {0};
    long long until = raw_now_ms() + (timeout_ms > 0 ? timeout_ms : DEFAULT_TIMEOUT_MS);
    char *end = line_end(c, "\r\n\r\n", until);
    if (end == NULL)
        return a;
    size_t n = (size_t)(end - c->buffer) + 2;
    a.head = strndup(c->buffer, n);
    assert_non_null(a.head);
    consume(c, n + 2);
    if (sscanf(a.head, "HTTP/1.1 %d ", &a.status) != 1)
        fail_msg("no status line: %s", a.head);
    append(&a, "", 0);
    const char *length = raw_header(&a, "Content-Length");
    const char *close_ = NULL;
    if (head_only || a.status < 200 || a.status == 204 || a.status == 304) {
        a.complete = true;
    } else if (length != NULL) {
        size_t bytes = strtoul(length, NULL, 10);
        a.complete = want(c, bytes, until);
        append(&a, c->buffer != NULL ? c->buffer : "", a.complete ? bytes : c->used);
        consume(c, a.complete ? bytes : c->used);
    } else if (raw_header(&a, "Transfer-Encoding") != NULL) {
        a.chunked = true;
        read_chunks(c, &a, until);
    } else if ((close_ = raw_header(&a, "Connection")) != NULL &&
               strcasecmp(close_, "close") == 0) {
        while (fill(c, until))
            ;
        append(&a, c->buffer != NULL ? c->buffer : "", c->used);
        consume(c, c->used);
        a.complete = true;
    }
    return a;
}

void raw_free(raw_answer *a)
{
    free(a->head);
    free(a->body);
    memset(a, 0, sizeof *a);
}

bool raw_is_closed(raw_conn *c, int timeout_ms)
{
    long long until = raw_now_ms() + timeout_ms;
    for (;;) {
        char bytes[65536];
        long long left = until - raw_now_ms();
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (poll(&p, 1, left > 0 ? (int)left : 0) <= 0)
            return false;
        ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return true;
    }
}

const char *raw_header(const raw_answer *a, const char *name)
{
    static _Thread_local char value[1024];
    size_t n = strlen(name);
    for (const char *line = strstr(a->head, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':') {
            const char *from = line + n + 1 + strspn(line + n + 1, " ");
            (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(from, "\r"), from);
            return value;
        }
    }
    return NULL;
}

raw_answer raw_once(const char *url, const char *request)
{
    raw_conn c;
    raw_open(&c, url);
    (void)raw_send(&c, request, strlen(request));
    raw_answer a = raw_read(&c, strncmp(request, "HEAD", 4) == 0, 0);
    raw_close(&c);
    return a;
}
