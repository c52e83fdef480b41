#include "server/healthcheck.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Splits "http://HOST[:PORT][/...]" and "http://[V6]:PORT"; false when it is none. */
static bool split(const char *url, char *host, size_t room, char *port, size_t port_room)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *p = url + sizeof scheme - 1;
    const char *end = p + strcspn(p, "/");
    bool v6 = *p == '[';
    const char *host_end =
        v6 ? memchr(p, ']', (size_t)(end - p)) : memchr(p, ':', (size_t)(end - p));
    const char *colon = host_end;

    if (v6) {
        if (host_end == NULL)
            return false;
        p++;
        colon = host_end + 1 < end && host_end[1] == ':' ? host_end + 1 : NULL;
    } else if (host_end == NULL) {
        host_end = end;
    }
    size_t n = (size_t)(host_end - p);
    if (n == 0 || n >= room)
        return false;
    memcpy(host, p, n);
    host[n] = '\0';
    int written = colon == NULL
                      ? snprintf(port, port_room, "80")
                      : snprintf(port, port_room, "%.*s", (int)(end - colon - 1), colon + 1);
    return written > 0 && (size_t)written < port_room;
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    const struct timeval limit = {.tv_sec = 5};
    int fd = -1;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

attn_status srv_healthcheck(const char *url, attn_error *err)
{
    char host[256], port[16], text[512];
    attn_status rc = ATTN_OK;

    if (!split(url, host, sizeof host, port, sizeof port))
        return attn_fail(err, ATTN_EINVAL, "%s: expected http://HOST:PORT", url);
    int fd = connect_to(host, port);
    if (fd < 0)
        return attn_fail(err, ATTN_EIO, "%s: cannot connect", url);
    int n = snprintf(text, sizeof text,
                     "GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    size_t got = 0;
    if (send(fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        rc = attn_fail(err, ATTN_EIO, "%s: cannot send", url);
    while (rc == ATTN_OK && got < 12) {
        ssize_t more = recv(fd, text + got, sizeof text - 1 - got, 0);
        if (more <= 0)
            rc = attn_fail(err, ATTN_EIO, "%s: no answer", url);
        else
            got += (size_t)more;
    }
    if (rc == ATTN_OK && memcmp(text, "HTTP/1.1 200", 12) != 0) {
        text[got] = '\0';
        text[strcspn(text, "\r\n")] = '\0';
        rc = attn_fail(err, ATTN_EBUSY, "%s is not ready: %.80s", url, text);
    }
    (void)close(fd);
    return rc;
}
