#include "server/healthcheck.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/tls.h"

static const char READY[] = "/health/ready";
enum { LIMIT_S = 5 };

typedef struct {
    bool secure, local;
    char host[256]; /* without brackets; the path of a unix socket */
    char port[16];
    char authority[300]; /* what Host says */
    char target[512];
} place;

/* A base path, "" or "/..." and a request for the rest of it, into the target. */
static bool set_target(place *p, const char *base)
{
    size_t n = strcspn(base, "?#");

    while (n > 0 && base[n - 1] == '/')
        n--;
    bool whole = n >= sizeof READY - 1 &&
                 strncmp(base + n - (sizeof READY - 1), READY, sizeof READY - 1) == 0;
    for (size_t i = 0; i < n; i++) {
        if (base[i] <= ' ' || base[i] == 0x7F)
            return false;
    }
    int length = snprintf(p->target, sizeof p->target, "%.*s%s", n < 256 ? (int)n : 256, base,
                          whole ? "" : READY);
    return n <= 256 && (size_t)length < sizeof p->target;
}

/* unix:/PATH[:/BASE] */
static bool split_local(place *p, const char *path)
{
    const char *colon = strstr(path, ":/");
    size_t n = colon != NULL ? (size_t)(colon - path) : strlen(path);

    p->local = true;
    (void)snprintf(p->authority, sizeof p->authority, "localhost");
    if (path[0] != '/' || n >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return false;
    memcpy(p->host, path, n);
    p->host[n] = '\0';
    return set_target(p, colon != NULL ? colon + 1 : "");
}

/* HOST[:PORT][/BASE], HOST being a name, an IPv4 address or [IPv6]. */
static bool split_host(place *p, const char *rest)
{
    size_t n = strcspn(rest, "/");
    bool v6 = rest[0] == '[';
    const char *end = v6 ? memchr(rest, ']', n) : memchr(rest, ':', n);
    const char *first = rest + v6;

    if (v6 && end == NULL)
        return false;
    const char *host_end = end != NULL ? end : rest + n, *port = host_end + v6;
    size_t length = (size_t)(host_end - first), digits = (size_t)(rest + n - port);
    if (length == 0 || length >= sizeof p->host || n >= sizeof p->authority ||
        (digits > 0 && *port != ':') || digits > sizeof p->port)
        return false;
    memcpy(p->host, first, length);
    p->host[length] = '\0';
    memcpy(p->authority, rest, n);
    p->authority[n] = '\0';
    (void)snprintf(p->port, sizeof p->port, "%s", p->secure ? "443" : "80");
    if (digits > 0)
        (void)snprintf(p->port, sizeof p->port, "%.*s", (int)digits - 1, port + 1);
    return p->port[0] != '\0' && strspn(p->port, "0123456789") == strlen(p->port) &&
           strpbrk(p->authority, " \t\r\n") == NULL && set_target(p, rest + n);
}

static bool split(place *p, const char *url)
{
    memset(p, 0, sizeof *p);
    if (strncmp(url, "unix:", 5) == 0)
        return split_local(p, url + 5);
    p->secure = strncmp(url, "https://", 8) == 0;
    if (!p->secure && strncmp(url, "http://", 7) != 0)
        return false;
    return split_host(p, url + (p->secure ? 8 : 7));
}

static int connect_one(int family, const struct sockaddr *a, socklen_t n)
{
    const struct timeval limit = {.tv_sec = LIMIT_S};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, a, n) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int connect_to(const place *p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    int fd = -1;

    if (p->local) {
        memcpy(local.sun_path, p->host, strlen(p->host) + 1);
        return connect_one(AF_UNIX, (const struct sockaddr *)&local, sizeof local);
    }
    if (getaddrinfo(p->host, p->port, &hints, &list) != 0)
        return -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
        fd = connect_one(a->ai_family, a->ai_addr, a->ai_addrlen);
    freeaddrinfo(list);
    return fd;
}

static attn_status ask(const place *p, const char *url, int fd, srv_tls_client *tls,
                       attn_error *err)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                     p->target, p->authority);
    ssize_t sent = tls != NULL ? srv_tls_client_send(tls, text, (size_t)n)
                               : send(fd, text, (size_t)n, MSG_NOSIGNAL);

    if (sent != n)
        return attn_fail(err, ATTN_EIO, "%s: cannot send", url);
    for (size_t got = 0; got < 12;) {
        ssize_t more = tls != NULL ? srv_tls_client_recv(tls, text + got, sizeof text - 1 - got)
                                   : recv(fd, text + got, sizeof text - 1 - got, 0);
        if (more <= 0)
            return attn_fail(err, ATTN_EIO, "%s: no answer", url);
        got += (size_t)more;
        text[got] = '\0';
    }
    if (memcmp(text, "HTTP/1.1 200", 12) == 0)
        return ATTN_OK;
    text[strcspn(text, "\r\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        *c = *c < ' ' || *c == 0x7F ? '?' : *c; /* one line, whoever answered */
    return attn_fail(err, ATTN_EBUSY, "%s is not ready: %.80s", url, text);
}

static attn_status check(const place *p, const char *url, bool insecure, attn_error *err)
{
    srv_tls_client *tls = NULL;
    attn_error why = {0};
    attn_status rc = ATTN_OK;
    int fd = connect_to(p);

    if (fd < 0)
        return attn_fail(err, ATTN_EIO, "%s: cannot connect", url);
    if (p->secure && srv_tls_client_open(&tls, fd, p->host, !insecure, &why) != ATTN_OK)
        rc = attn_fail(err, ATTN_EIO, "%s: %s", url, why.text);
    if (rc == ATTN_OK)
        rc = ask(p, url, fd, tls, err);
    srv_tls_client_close(tls);
    (void)close(fd);
    return rc;
}

attn_status srv_healthcheck(const char *url, bool insecure, attn_error *err)
{
    place p;

    if (!split(&p, url))
        return attn_fail(err, ATTN_EINVAL,
                         "%s: expected http://HOST:PORT, https://HOST:PORT or unix:/PATH", url);
    return check(&p, url, insecure, err);
}

attn_status srv_healthcheck_own(const cfg_config *c, attn_error *err)
{
    const char *listen = c->server.listen.item[0], *base = c->server.base_path;
    const char *port = strrchr(listen, ':');
    bool local = strncmp(listen, "unix:", 5) == 0;
    bool any = strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;
    char url[600];
    place p;

    if (local)
        (void)snprintf(url, sizeof url, "%s%s%s", listen, base[0] != '\0' ? ":" : "", base);
    else /* who listens everywhere listens here, and [::] on IPv4, too */
        (void)snprintf(url, sizeof url, "%s://%.*s%s%s",
                       c->tls.certificate_file[0] != '\0' ? "https" : "http",
                       any ? 9 : (int)(port - listen), any ? "127.0.0.1" : listen, port, base);
    if (!local && strcmp(port, ":0") == 0)
        return attn_fail(err, ATTN_EINVAL, "server.listen is %s, any free port: give --url",
                         listen);
    if (!split(&p, url))
        return attn_fail(err, ATTN_EINVAL, "%s: no address to connect to: give --url", url);
    if (c->server.allowed_hosts.n > 0 && strcmp(c->server.allowed_hosts.item[0], "*") != 0)
        (void)snprintf(p.authority, sizeof p.authority, "%s", c->server.allowed_hosts.item[0]);
    return check(&p, url, true, err);
}
